"""A run in a few words: what it was, how it went, and whether it looks ill."""

import platform
import shlex
from datetime import UTC, datetime

import keras
import numpy as np

from ..evaluation import collapse, comparison, curves
from ..evaluation import results as evaluation_results
from ..evaluation.report_contents import Verdict

HEALTHY = "The loss moves, labels neither stand still nor change at random, no cluster is forgotten, no head is a copy."

PROBED = 5  # layers that a reader is told to probe


def describe(config, training_set, records) -> dict:
    """Name -> value. training_set: a Source or TrainingSet."""
    epochs, passes = of_kind(records, "epoch"), of_kind(records, "labels")
    shape = "x".join(map(str, training_set.image_shape))
    speed = f"{np.median([r['images_per_second'] for r in epochs]):.0f}" if epochs else None
    return {
        "dataset": f"{training_set.name}, {training_set.num_examples} images {shape}",
        "backbone": config.model.backbone + (f", width {config.model.width}" if config.model.width else ""),
        "clusters": in_heads(config.model.num_clusters),
        "epochs": config.epochs,
        "batch size": config.batch_size,
        "learning rate": _rate(config.optimizer),
        "augmentation": config.augment.policy,
        "labels by": config.label.labeller
        + (f", lambda {config.label.lambda_:g}" * (config.label.labeller == "sinkhorn")),
        "label passes": len({r["step"] for r in passes}),
        "solves that did not converge": sum(r["converged"] is False for r in passes),
        "last loss": epochs[-1]["loss"] if epochs else None,
        "images per second in training": speed,
        "seed": config.seed,
    }


def stamp(name) -> dict:
    """When, under `name`, and with what: of the present moment."""
    return {
        name: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "made with": f"Python {platform.python_version()}, Keras {keras.__version__}",
    }


def highlights(config, training_set, records, labels, results) -> tuple:
    """(name, value, remark) of what a reader asks first. results: as `measured` gives them."""
    epochs, passes = of_kind(records, "epoch"), of_kind(records, "labels")
    found = []
    if epochs:
        uniform = curves.uniform_loss(passes)
        remark = f"untrained, about ln K = {uniform[1]:.3f}" if uniform else ""
        found.append(("Last loss", f"{epochs[-1]['loss']:.3f}", remark))
    last = list({r["head"]: r for r in passes}.values())
    changed = [r["changed"] for r in last if r.get("changed") is not None]
    if changed:
        found.append(("Labels changed", f"{100 * np.mean(changed):.1f}%", f"at the last pass, {_mean_of(changed)}"))
    counts = [np.bincount(column, minlength=k) for column, k in zip(labels.T, config.model.num_clusters, strict=True)]
    sizes = np.concatenate(counts)
    ideal = sorted({len(labels) / k for k in config.model.num_clusters})
    equal = " to ".join(f"{value:.4g}" for value in sorted({ideal[0], ideal[-1]}))
    empty = int(np.sum(sizes == 0))
    remark = f"images; equal ones would have {equal}" + (f"; {empty} are empty" if empty else "")
    found.append(("Cluster sizes", f"{sizes.min()} to {sizes.max()}", remark))
    measures, baselines, remarks = results
    if "knn" in measures:
        how = [remark.removeprefix("kNN with ") for remark in remarks if remark.startswith("kNN")]
        others = [f"{name} {100 * values['knn']:.1f}%" for name, values in baselines.items() if "knn" in values]
        found.append(("kNN accuracy", f"{100 * measures['knn']:.1f}%", ", ".join([*others, *how])))
    probed = {name.removeprefix("linear "): value for name, value in measures.items() if _is_probe(name)}
    if probed:
        layer = max(probed, key=probed.get)
        of = f"best of {len(probed)} layers, {layer}" if len(probed) > 1 else f"on {layer}"
        found.append(("Linear probe", f"{100 * probed[layer]:.1f}%", of))
    if "nmi" in measures:
        found.append(("NMI to classes", f"{measures['nmi']:.3f}", _adjusted(measures)))
    if epochs:
        seconds = sum(training_set.num_examples / r["images_per_second"] for r in epochs if r["images_per_second"])
        remark = "label passes and measuring come on top"
        if all(r.get("seconds") for r in epochs):  # logs of earlier versions do not have them
            remark = f"{_duration(sum(r['seconds'] for r in epochs))} with label passes, by the clock"
        found.append(("Time in training steps", _duration(seconds), remark))
    return tuple(found)


def measured(config, numbers, evaluation) -> tuple[dict, dict, tuple]:
    """(measures, baselines, remarks) of a results.json, and of the tools' files on the run's own images."""
    own = [result for result in evaluation.values() if result["data"].get("own", True)]
    return comparison.of_run(numbers, own, config.evaluation.knn_k, config.evaluation.knn_sigma)


def verdict(records) -> Verdict:
    """The collapse doctor's."""
    epochs, passes = of_kind(records, "epoch"), of_kind(records, "labels")
    try:
        found = collapse.findings(records)
    except (KeyError, TypeError):  # numbers that it needs are missing
        return Verdict("unknown", "The collapse doctor cannot read this log: it is of another version.")
    if found:
        count = "a problem" if len(found) == 1 else f"{len(found)} problems"
        return Verdict("ill", f"The collapse doctor sees {count}.", tuple(map(str, found)))
    seen = min((sum(r["head"] == head for r in passes) for head in {r["head"] for r in passes}), default=0)
    if not epochs or epochs[-1]["step"] < collapse.FIRST_STEPS or seen <= collapse.PATIENCE:
        steps = epochs[-1]["step"] if epochs else 0
        return Verdict(
            "unknown",
            "Too early for the collapse doctor to judge.",
            (
                f"It needs {collapse.FIRST_STEPS} steps and {collapse.PATIENCE + 1} label passes of each head; "
                f"there are {steps} and {seen}.",
            ),
        )
    return Verdict("well", "The collapse doctor finds nothing wrong.", (HEALTHY,))


def probes(evaluation) -> tuple:
    """(title, ((layer, accuracy), ...)) of every linear probe that was measured."""
    found, probed = {}, [result for result in evaluation.values() if result["tool"] == "linear_probe"]
    probed = evaluation_results.own_features_last(probed)
    for result, apart in zip(probed, evaluation_results.apart(probed), strict=True):
        test = (result["data"].get("test") or result["data"]["train"])["name"] + apart
        for row in result["rows"]:
            if row.get("top1") is not None:
                of = f", {row['features']}" if row.get("features") in comparison.BASELINES else ""
                crops = row.get("crops", (result["settings"] or {}).get("crops", 1))
                title = f"Linear probe by layer: {test}{of}" + (", ten crops" if str(crops) in ("10", "ten") else "")
                layers, layer = found.setdefault(title, {}), str(row.get("layer", "features"))
                layers.pop(layer, None)  # measured twice: the later one stands, and in its place
                layers[layer] = float(row["top1"])
    return tuple((title, tuple(layers.items())) for title, layers in found.items())


def probe_command(workdir, backbone) -> str:
    """How to measure what a few layers tell, from the first to the last: those behind an activation."""
    names = [layer.name for layer in backbone.layers if "relu" in layer.name.lower() and len(layer.output.shape) == 4]
    chosen = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, min(PROBED, len(names))).round().astype(int))]
    layers = "alexnet" if backbone.name.startswith("alexnet") else ",".join(chosen)
    command = f"python -m tools.linear_probe --workdir={shlex.quote(str(workdir))}"
    return command + (f" --layers={layers}" if layers else "")


def of_kind(records, kind) -> list[dict]:
    return [record for record in records if record["kind"] == kind]


def in_heads(num_clusters) -> str:
    """(20, 20) -> "20 in each of 2 heads", (5, 7) -> "5, 7 (2 heads)", (5,) -> "5, one head"."""
    if len(num_clusters) == 1:
        return f"{num_clusters[0]}, one head"
    if len(set(num_clusters)) == 1:
        return f"{num_clusters[0]} in each of {len(num_clusters)} heads"
    return f"{', '.join(map(str, num_clusters))} ({len(num_clusters)} heads)"


def _rate(optimizer):
    parts = [f"{optimizer.learning_rate:g}"]
    if optimizer.warmup_epochs:
        parts.append(f"raised over {optimizer.warmup_epochs} epochs")
    if optimizer.schedule == "cosine":
        parts.append("down to 0 by a cosine")
    if optimizer.drop_epochs:
        parts.append(f"times {optimizer.drop_factor:g} at {', '.join(map(str, optimizer.drop_epochs))}")
    return ", ".join(parts)


def _adjusted(measures):
    return ", ".join(f"{name.upper()} {measures[name]:.3f}" for name in ("ami", "ari") if name in measures)


def _is_probe(measure):
    return measure.startswith("linear") and not measure.endswith("top5")


def _mean_of(values):
    return "one head" if len(values) == 1 else f"mean of {len(values)} heads"


def _duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
