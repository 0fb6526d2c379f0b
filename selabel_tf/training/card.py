"""The model card of a run, from what its folder holds."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from .. import json_file
from ..data.augment import POLICIES
from ..evaluation import results
from ..evaluation.report import Table
from ..export import model_card
from .run_log import read_records

FILE = "MODEL_CARD.md"
UNSEEN = "True classes, where the data have them, were used for these figures only: training has not seen them."
CLUSTERS = (
    "A cluster is a group that looks alike to the network, no class: its number means nothing, and differs between "
    "heads and between runs. Look at the images of a cluster before naming it."
)
METHODS = {  # how the network was trained -> what differs in the words
    "sinkhorn": {
        "method": 'An image network trained without labels, by SeLa ("Self-labelling via simultaneous clustering and '
        'representation learning", Asano, Rupprecht and Vedaldi, ICLR 2020): ordinary cross-entropy on labels which '
        "are themselves renewed as the cheapest way to spread images over clusters of given, by default equal sizes.",
        "classes": UNSEEN,
        "limits": (
            CLUSTERS,
            "The sizes of the clusters of training images are given, not found: with equal ones, what is rare shares a "
            "cluster with something else, and what is frequent fills several.",
        ),
    },
    "kmeans": {
        "method": "An image network trained without labels, by a baseline to SeLa: ordinary cross-entropy on labels "
        "which are themselves renewed as the K-means clusters of the network's own features.",
        "classes": UNSEEN,
        "limits": (CLUSTERS, "Clusters of training images may be of very different sizes, some of them trivial."),
    },
    "given": {
        "method": "An image network trained on the true classes of its images: the baseline that knows them.",
        "classes": "Training has seen the true classes: these figures say nothing about learning without labels.",
        "limits": ("The labels are the classes of the training data, with whatever mistakes these have.",),
    },
    "transfer": {
        "method": "An image network trained by ordinary cross-entropy on labels that came from another run: label "
        'transfer, SeLa- of "Self-labelling via simultaneous clustering and representation learning" (Asano, Rupprecht '
        "and Vedaldi, ICLR 2020).",
        "classes": UNSEEN + " Where the labels came from, the card of that run says.",
        "limits": (CLUSTERS, "The network is no better than the labels it was given."),
    },
    "rotation": {
        "method": "An image network trained without labels to tell by how many quarter turns an image is rotated "
        "(RotNet, Gidaris, Singh and Komodakis, ICLR 2018). Its cluster heads are untrained.",
        "classes": UNSEEN,
        "limits": ("The clusters are those of untrained heads and mean nothing: use the features.",),
    },
}
TOOLS = {  # which measured -> what its table is called
    "knn": "Nearest neighbours",
    "linear_probe": "Linear probes",
    "clusters": "Clusters, head by head",
    "finetune": "Fine-tuning",
    "semi_supervised": "Few labels",
}
MORE = {"none": "", "one_of": "; then one of equalize, autocontrast, sharpening"}
ROTATION = (
    " Beside the labels it has learnt to tell by how many quarter turns an image is rotated; the losses are added."
)
PRIVATE = ("data.path", "data.data_dir", "label.labels")  # places on somebody's machine
PLAIN = {
    "whole": "the whole image, resized (bilinear, antialiased)",
    "centre": "shorter side resized to 256/224 of the size (bilinear, antialiased), then the centre",
}


def write(run, path=None) -> Path:
    """Writes the card of a TrainedRun to `path`, by default into its folder; the path."""
    path = Path(path or run.workdir / FILE)
    with json_file.trusting(run.workdir, "the records of a run", "Remove what is not of this run, or train again."):
        card = describe(run)
    model_card.write(path, card)
    return path


def describe(run) -> model_card.Card:
    config, checkpoint, images = run.config, run.checkpoint, run.training_set
    facts = checkpoint.facts
    height, width, channels = images.image_shape
    parameters = int(sum(np.prod(weight.shape) for weight in run.model.backbone.weights))
    policy = POLICIES[config.augment.policy]
    settings = _settings(config)
    return model_card.Card(
        name=config.name,
        **_method(config),
        summary={
            "network": f"{config.model.backbone}, {parameters} parameters, {run.model.feature_size} features",
            "heads": _tuple(run.model.num_clusters) + " clusters",
            "trained": f"{facts['epoch']} of {config.epochs} epochs, {facts['step']} steps",
        },
        data={
            "name": images.name,
            "images": images.num_examples,
            "fingerprint": images.fingerprint,
        },
        recipe={**settings, "config hash": facts["config_hash"]},
        label_passes=_label_passes(read_records(run.workdir / "metrics.jsonl")[: facts["num_records"]]),
        preprocessing={
            "size": f"{height} x {width}, {channels} channel{'s' * (channels > 1)}",
            "region": PLAIN[policy.plain],
            "values": "0 to 1 (8-bit values divided by 255), then (value - mean) / std",
            "mean": _tuple(config.augment.mean) or "0",
            "std": _tuple(config.augment.std) or "1",
            "augmentation (training only)": policy.summary + MORE[config.augment.more],
        },
        checksums={
            f"sha256 of checkpoints/{checkpoint.path.name}/state.npz": checkpoint.sha256,
            "sha256 of backbone.keras": _checksum(run.workdir / "backbone.keras"),
        },
        input_shape=images.image_shape,
        evaluation=tuple(map(_shown, evaluation_tables(run.workdir))),
    )


def _method(config):
    """Which of METHODS a config is."""
    if "labels" not in config.model.objectives:
        return METHODS["rotation"]
    words = METHODS["transfer" if config.label.labels else config.label.labeller]
    return {**words, "method": words["method"] + ROTATION} if "rotation" in config.model.objectives else words


def _settings(config):
    """section.field -> value, as --set takes it; what is empty, or a place on a machine, is left out."""
    flat = {}
    for name, value in dataclasses.asdict(config).items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    flat = {name: _tuple(value) if isinstance(value, tuple) else value for name, value in flat.items()}
    return {name: value for name, value in flat.items() if value not in ("", None) and name not in PRIVATE}


def _tuple(values):
    """(20, 20, 20) -> "20 x 3", (5, 7) -> "5, 7"."""
    if len(values) > 2 and len(set(values)) == 1:
        return f"{values[0]} x {len(values)}"
    return ", ".join(map(str, values))


def _label_passes(records):
    """What the label passes did; `last`: over the last record of every head, as heads may take turns."""
    passes = [record for record in records if record["kind"] == "labels"]
    if not passes:
        return {"label passes": "none: the labels are those of the start"}
    last = list({record["head"]: record for record in passes}.values())
    facts = {"label passes": len({record["label_pass"] for record in passes})}
    if all(record.get("converged") is not None for record in passes):
        facts["solves that converged"] = f"{sum(record['converged'] for record in passes)} of {len(passes)}"
        facts["last: converged"] = f"{sum(record['converged'] for record in last)} of {len(last)} heads"
    means = {"changed": "last: share of labels changed", "nmi": "last: NMI to the true classes"}
    for key, name in means.items():
        if all(record.get(key) is not None for record in last):
            facts[name] = f"{np.mean([record[key] for record in last]):.3f}, mean of {len(last)} heads"
    if all("smallest" in record and "largest" in record for record in last):
        sizes = min(record["smallest"] for record in last), max(record["largest"] for record in last)
        facts["last: cluster sizes"] = f"{sizes[0]} to {sizes[1]}"
    return facts


def _checksum(path):
    if not path.is_file():
        return "not written yet: the run is not finished"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def evaluation_tables(workdir):
    """The Tables of results.json, and those that the evaluation tools left."""
    record = workdir / "results.json"
    if record.is_file():
        what = "the results.json of a run", "Train again to measure it."
        content = json_file.read_object(record, *what)
        with json_file.trusting(record, *what):
            tables = content["tables"]
            made = [Table(table["title"], table["columns"], table["rows"], table["note"]) for table in tables]
        yield from made
    for name, result in results.load_all(workdir).items():
        columns = list(dict.fromkeys(column for row in result["rows"] for column in row))
        rows = [[row.get(column) for column in columns] for row in result["rows"]]
        tool, epoch = result["tool"], result["model"].get("epoch", "?")
        settings = "; ".join(f"{key.replace('_', ' ')}: {_words(value)}" for key, value in result["settings"].items())
        note = f"Measured by {tool} at epoch {epoch}, {result['date']}" + (f". {settings}." if settings else ".")
        if rows:
            yield Table(TOOLS.get(tool, tool) + (f" ({name})" if name != tool else ""), columns, rows, note)


def _words(value):
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shown(table):
    return {"title": table.title, "columns": table.columns, "rows": table.cells(), "note": table.note}
