"""Kills a run again and again, by SIGKILL at random moments, and looks whether it ends as if nothing had happened.

    python -m tools.soak --workdir=runs/soak --kills=300
    python -m tools.soak --workdir=runs/soak --kills=25 --set label.heads=in_turn

Moments are drawn from --seed: by the clock, between two writes to disk, in the middle of a checkpoint's file, and in
the middle of a label pass. The folder keeps the reference run, what could not be brought to the same end, and
soak.json. Exit code 1 if there was any. By default the run is small: 60 digits, two heads, eight label passes in
twelve epochs.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import dataclasses
import json
from pathlib import Path

from absl import flags

from selabel_tf import config as configs
from selabel_tf.atomic_file import write_atomically
from selabel_tf.training import soak
from tools import console

SMALL = (
    "data.examples_per_class=6",
    "model.num_clusters=5,7",
    "label.num_relabels=8",
    "evaluation.knn=false",
    "evaluation.kmeans=false",
    "evaluation.knn_every=3",
    "evaluation.knn_k=5",
    "epochs=12",
    "batch_size=13",
    "checkpoint_steps=2",
)
CONFIG = flags.DEFINE_string("config", None, "The run to kill. By default configs/digits.py, made small.")
WORKDIR = flags.DEFINE_string("workdir", None, "Where to do it, e.g. runs/soak.", required=True)
SET = flags.DEFINE_multi_string("set", [], "Changes one setting of the config, section.field=value.")
KILLS = flags.DEFINE_integer("kills", 300, "How many times to kill.", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "Of the moments.", lower_bound=0)


def main(_):
    config = configs.load(CONFIG.value or "configs/digits.py")
    config = configs.override(config, [*(() if CONFIG.value else SMALL), *SET.value])
    print(f"Moments drawn from seed {SEED.value}", flush=True)
    path = Path(WORKDIR.value) / "soak.json"
    about = {"seed": SEED.value, "config": json.loads(configs.to_json(config))}

    def keep(result):
        write_atomically(path, json.dumps({**about, **dataclasses.asdict(result)}, indent=1) + "\n")

    result = soak.soak(
        config,
        WORKDIR.value,
        kills=KILLS.value,
        seed=SEED.value,
        say=lambda text: print(text, flush=True),
        on_run=keep,
    )
    kinds = ", ".join(f"{count} by {kind}" for kind, count in result.kills.items())
    print(
        f"\n{sum(result.kills.values())} kills ({kinds}) in {result.runs} runs, {len(result.unequal)} of which ended "
        f"otherwise than one left alone; {console.duration(result.seconds)}. Record: {path}"
    )
    if result.unequal:
        print(f"Next: compare {WORKDIR.value}/reference with {WORKDIR.value}/unequal-*.")
    return 1 if result.unequal else 0


if __name__ == "__main__":
    console.run(main)
