"""Is this machine fit for a run? Looks at packages, devices, memory, disk and images, and says what to fix.

    python -m tools.doctor
    python -m tools.doctor --config=configs/cifar10.py --workdir=runs/cifar10 --set data.data_dir=DIR

Nothing is trained, and nothing is written. With --config it opens the images and plans the memory of the label passes;
with --workdir it looks at that folder and the disk under it. Exit code 1 when something must be fixed.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

from absl import flags

from selabel_tf import config as configs
from selabel_tf.training import doctor
from tools import console

CONFIG = flags.DEFINE_string("config", None, "The experiment: a file of configs/, or the config.json of a run.")
WORKDIR = flags.DEFINE_string("workdir", None, "The folder that the run has, or will have.")
SET = flags.DEFINE_multi_string("set", [], "Changes one setting of the config, section.field=value.")


def main(_):
    if SET.value and not CONFIG.value:
        raise ValueError(f"--set={SET.value[0]} changes a config. Give one with --config, or leave --set out.")
    config = configs.override(configs.load(CONFIG.value), SET.value) if CONFIG.value else None
    findings = doctor.examine(config, WORKDIR.value)
    print(table(findings))
    bad = [finding for finding in findings if finding.state == doctor.BAD]
    if bad:
        print(f"\nTo fix: {len(bad)}")
        return 1
    if config is None:
        print("\nNothing to fix here. Next: look at a run, too:  python -m tools.doctor --config=... --workdir=...")
    else:
        settings = [word for text in SET.value for word in ("--set", text)]
        words = f"--config={CONFIG.value}", f"--workdir={WORKDIR.value or '...'}", *settings
        print(f"\nNothing to fix. Next: {console.command('train', *words)}")
    return 0


def table(findings):
    """Three columns: state, what, what was seen; remedies below, on lines of their own."""
    states = max(len(finding.state) for finding in findings)
    names = max(len(finding.what) for finding in findings)
    below = "\n" + " " * (states + names + 4)
    lines = []
    for finding in findings:
        seen = below.join(finding.seen.splitlines())
        remedy = f"{below}-> {finding.remedy}" if finding.remedy else ""
        lines.append(f"{finding.state:<{states}}  {finding.what:<{names}}  {seen}{remedy}")
    return "\n".join(lines)


if __name__ == "__main__":
    console.run(main)
