"""One table of several runs: SeLa against its baselines, with the paper's figures beside ours where there are any.

    python -m tools.compare runs/sela runs/kmeans runs/supervised
    python -m tools.compare runs/digits configs/cifar10.py --format=markdown --output=table.md

Each argument is a run folder, finished or not, or a config file. Nothing is measured here: figures are those of the
run's results.json and of the evaluation tools' files in it; of a config, those kept in configs/results/<name>.json
and <name>-*.json. What nobody has measured is a dash, and the last lines say which commands measure it.

A figure of the paper stands beside a run only if training images (all of them), imbalance, images judged on, backbone,
clusters and labeller are those of the paper's experiment. Otherwise the paper's figures for the same images are rows
of their own: its numbers, in its setting. Both are marked (paper).
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import dataclasses
import json
from pathlib import Path

from absl import flags

from selabel_tf import config as configs
from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import comparison, paper, results
from selabel_tf.evaluation.report import format_table
from selabel_tf.training import checkpoints, experiment
from tools import console

CONFIG = flags.DEFINE_multi_string("config", [], "A config file; the same as naming it among the runs.")
LAYERS = flags.DEFINE_enum("layers", "last", ["last", "all"], "Which probed layers to show: the last one, or all.")
FORMAT = flags.DEFINE_enum("format", "text", ["text", "markdown", "json"], "How the table is written.")
OUTPUT = flags.DEFINE_string("output", None, "Writes the table to this file and not to the screen.")

COMMANDS = {
    "knn": "python -m tools.knn --workdir={run}",
    "linear": "python -m tools.linear_probe --workdir={run}",
    "clusters": "python -m tools.clusters --workdir={run}",
    "all": "python -m tools.train --config={name} --workdir={run}",
}


def main(argv):
    names = [*argv[1:], *CONFIG.value]
    if not names:
        raise ValueError("Nothing to compare. Give run folders or configs: python -m tools.compare runs/a runs/b")
    found = comparison.compare([entry for name in names for entry in entries_of(name)], LAYERS.value)
    text = {"text": as_text, "markdown": as_markdown, "json": as_json}[FORMAT.value](found)
    if OUTPUT.value:
        write_atomically(OUTPUT.value, text)
        print(f"The table is in {OUTPUT.value}.")
    else:
        print(text, end="")


def entries_of(name):
    """The rows of one argument: a run folder or a config."""
    if Path(name).is_dir():
        return run_entries(name)
    if Path(name).suffix == ".py" or Path(name).name == name:
        return config_entries(name)
    raise ValueError(
        f"{name} is neither a run folder nor a config file (.py). Give the --workdir of a tools.train run."
    )


def run_entries(name):
    workdir = Path(name)
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{name} holds no run: it has no config.json. Give the --workdir of a tools.train run.")
    config = configs.read(workdir / "config.json")
    checkpoint = checkpoints.latest(workdir / "checkpoints")
    epoch = checkpoint.facts["epoch"] if checkpoint else 0
    finished = experiment.is_finished(workdir)
    summary = _json(workdir / "results.json").get("numbers", {}) if finished else {}
    state = f"{config.epochs} epochs" if finished else f"epoch {epoch} of {config.epochs}"
    return _entries(name, config, state, summary, results.load_all(workdir), epoch)


def config_entries(name):
    path = Path(name) if Path(name).suffix == ".py" else Path("configs") / f"{name}.py"
    config = configs.load(path)
    folder = path.parent / "results"
    kept = [folder / f"{path.stem}.json", *sorted(folder.glob(f"{path.stem}-*.json"))]
    summary, evaluation, remarks = {}, {}, []
    for file in filter(Path.is_file, kept):
        content = _json(file)
        summary |= content.get("numbers", {})
        if set(results.KEYS) <= set(content):
            evaluation[file.stem] = content
        if content.get("config_hash", configs.config_hash(config)) != configs.config_hash(config):
            remarks.append(f"{file} is of an earlier version of this config")
    if not summary and not evaluation:
        return [comparison.Entry(str(path), method(config), *_images(config), config.epochs, {}, kind="not run")]
    entries = _entries(str(path), config, f"{config.epochs} epochs", summary, evaluation, None)
    changed = {"remarks": entries[0].remarks + tuple(remarks), "kind": "kept"}
    return [dataclasses.replace(entries[0], **changed), *entries[1:]]


def _entries(name, config, state, summary, evaluation, epoch):
    """The run on its own images, its baselines, and the run on each other set of images."""
    options = config.evaluation
    measures, baselines, remarks = comparison.of_summary(summary, options.knn_k, options.knn_sigma)
    elsewhere = []
    for result in evaluation.values():
        found, others, said = comparison.of_result(result)
        at = result["model"].get("epoch")
        if found and epoch is not None and at != epoch:
            said += (f"{result['tool']} was measured at epoch {at}, the run is at {epoch}: measure again",)
        if result["data"].get("own", True):
            if "knn" in found:  # in place of what results.json says of it
                remarks = tuple(remark for remark in remarks if not remark.startswith("kNN"))
            measures, remarks = measures | found, remarks + said
            for what, values in others.items():
                baselines[what] = baselines.get(what, {}) | values
        elif found:
            elsewhere.append((result["data"]["train"]["name"], found, said))
    images, _, setting = _images(config)
    own = comparison.Entry(name, method(config), images, state, setting, config.epochs, measures, remarks)
    rows = [own]
    for what, values in baselines.items():
        labeller = "random" if what == "random weights" else what
        changed = dataclasses.replace(setting, labeller=labeller)
        label = f"{what} ({config.model.backbone})" if what == "random weights" else what
        rows.append(comparison.Entry(name, label, images, "", changed, config.epochs, values, kind="baseline"))
    for judged in dict.fromkeys(where for where, _, _ in elsewhere):
        found = [entry for entry in elsewhere if entry[0] == judged]
        measures = {measure: value for _, values, _ in found for measure, value in values.items()}
        remarks = tuple(f"on {judged}: {remark}" for _, _, said in found for remark in said)
        changed = dataclasses.replace(setting, judged=judged.split("/")[0] if "/" in judged else f"folder {judged}")
        rows.append(
            dataclasses.replace(
                own, images=judged, setting=changed, measures=measures, remarks=remarks, kind="elsewhere"
            )
        )
    return rows


def method(config):
    """The config's method in the paper's notation."""
    counts = config.model.num_clusters
    same = len(set(counts)) == 1
    clusters = f"[{counts[0]} x {len(counts)}]" if same else f"[{', '.join(map(str, counts))}]"
    labeller = getattr(config.label, "labeller", "sinkhorn")
    if labeller == "given":
        return "Supervised"
    name = {"sinkhorn": "SeLa", "kmeans": "SeLa (K-means)"}.get(labeller, labeller)
    return f"{name} {clusters}" + ("" if config.label.num_relabels else ", 0 label optimisations")


def _images(config):
    """(name of the images, state of a config not run, its setting) in the paper's terms."""
    data, counts = config.data, config.model.num_clusters
    dataset = {"tfds": data.name.split(":")[0], "folder": f"folder {Path(data.path).name}"}.get(
        data.source, data.source
    )
    parts = [f"{data.examples_per_class} per class"] * bool(data.examples_per_class)
    parts += [data.split] * (data.source == "tfds" and data.split != "train")
    imbalance = getattr(data, "imbalance", "none")
    described = ", ".join([dataset, *parts, *[f"{imbalance} imbalance"] * (imbalance != "none")])
    setting = paper.Setting(
        dataset=dataset,
        judged=dataset,
        backbone=config.model.backbone + (f" of width {config.model.width}" if config.model.width else ""),
        num_clusters=f"{counts[0]}x{len(counts)}" if len(set(counts)) == 1 else ",".join(map(str, counts)),
        labeller=getattr(config.label, "labeller", "sinkhorn"),
        imbalance=imbalance,
        num_relabels=config.label.num_relabels,
        examples=", ".join(parts) or "all",
    )
    return described, "not run", setting


def commands(missing):
    """One command for each thing that is missing; of a config, after the one that runs it."""
    lines = []
    for measure, name in missing:
        run = f"runs/{Path(name).stem}" if name.endswith(".py") else name
        lines.append(COMMANDS[measure].format(name=name, run=run))
    return lines


def as_text(found):
    lines = [format_table(found.table), *found.notes]
    if found.missing:
        lines += ["", "A dash was not measured. To measure it:", *(f"  {line}" for line in commands(found.missing))]
    return "\n".join(lines) + "\n"


def as_markdown(found):
    lines = [
        f"**{found.table.title}**",
        "",
        comparison.markdown(found.table),
        "",
        *(f"- {note}" for note in found.notes),
    ]
    if found.missing:
        lines += ["", "A dash was not measured. To measure it:", "", "```", *commands(found.missing), "```"]
    return "\n".join(lines) + "\n"


def as_json(found):
    content = {"unit": "percent", "rows": found.rows, "notes": found.notes, "missing": commands(found.missing)}
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _json(path):
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Remove it, or measure again.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no result of ours: it holds {type(content).__name__}, expected an object.")
    return content


if __name__ == "__main__":
    console.run(main)
