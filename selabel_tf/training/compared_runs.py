"""Run folders and configs as rows of a comparison: what was measured of each, and in which setting.

Nothing is measured here, and nothing is written. A run may be finished or not; a config has the results that are kept
beside it, configs/results/<name>.json and <name>-*.json, or none.
"""

from dataclasses import replace
from pathlib import Path

from .. import config as configs
from .. import json_file
from ..evaluation import comparison, paper, results
from . import checkpoints, experiment
from .run_log import read_records


def entries_of(name) -> list[comparison.Entry]:
    """The rows of a run folder, or of a config (a .py file, or a bare name for configs/<name>.py)."""
    path = Path(name)
    with json_file.trusting(name, "results", "Remove what is not of this run, or measure again."):
        if path.is_dir():
            return _of_run(str(name), path)
        if path.suffix == ".py":
            return _of_config(path)
        if path.name == str(name):
            return _of_config(Path("configs") / f"{name}.py")
    raise ValueError(
        f"{name} is neither a run folder nor a config file (.py). Give the --workdir of a tools.train run."
    )


def setting_of(config) -> paper.Setting:
    """The setting of a config in the terms that it shares with the paper's experiments."""
    data, counts = config.data, config.model.num_clusters
    names = {"tfds": data.name.split(":")[0], "folder": f"folder {Path(data.path).name}"}
    dataset = names.get(data.source, data.source)
    parts = [f"{data.examples_per_class} per class"] * bool(data.examples_per_class)
    parts += [f"split {data.split}"] * (data.source == "tfds" and data.split != "train")
    return paper.Setting(
        dataset=dataset,
        judged=dataset,
        backbone=config.model.backbone + (f" of width {config.model.width}" if config.model.width else ""),
        num_clusters=f"{counts[0]}x{len(counts)}" if len(set(counts)) == 1 else ",".join(map(str, counts)),
        labeller="transfer" if getattr(config.label, "labels", "") else getattr(config.label, "labeller", "sinkhorn"),
        imbalance=getattr(data, "imbalance", "none"),
        num_relabels=config.label.num_relabels,
        examples=", ".join(parts) or "all",
        objectives=" + ".join(getattr(config.model, "objectives", ("labels",))),
        more=getattr(config.augment, "more", "none"),
    )


def method_of(setting) -> str:
    """The method in the paper's notation, e.g. SeLa [128 x 10], or SeLa- [3000 x 10] + Rot + more aug."""
    added = " + Rot" * ("rotation" in setting.objectives) + " + more aug." * (setting.more != "none")
    if "labels" not in setting.objectives:
        return "RotNet" + added.removeprefix(" + Rot")
    if setting.labeller == "given":
        return ("Supervised" if setting.num_clusters else "SeLa-") + added  # no clusters: labels are still to be given
    name = {"sinkhorn": "SeLa", "kmeans": "SeLa (K-means)", "transfer": "SeLa-"}[setting.labeller]
    clusters = setting.num_clusters.replace("x", " x ").replace(",", ", ")
    relabelled = setting.num_relabels or setting.labeller == "transfer"
    return f"{name} [{clusters}]{added}" + ("" if relabelled else ", 0 label optimisations")


def _of_run(name, workdir):
    if not (workdir / "config.json").is_file():
        raise ValueError(f"{name} holds no run: it has no config.json. Give the --workdir of a tools.train run.")
    config = configs.read(workdir / "config.json")
    checkpoint = checkpoints.latest(workdir / "checkpoints")
    epoch = checkpoint.facts["epoch"] if checkpoint else 0
    finished = experiment.is_finished(workdir)
    summary = _json(workdir / "results.json").get("numbers", {}) if finished else {}
    state = f"{config.epochs} epochs" if finished else f"epoch {epoch} of {config.epochs}"
    row = replace(_row(name, config, state, "run"), has_classes=_has_classes(workdir))
    return _entries(row, config, summary, results.load_all(workdir), epoch)


def _has_classes(workdir):
    """Whether label passes were compared with true classes, or there is no telling."""
    try:
        passes = [record for record in read_records(workdir / "metrics.jsonl") if record["kind"] == "labels"]
    except (OSError, ValueError):
        return True
    return not passes or passes[-1].get("nmi") is not None


def _of_config(path):
    config = configs.load(path)
    folder = path.parent / "results"
    kept = [folder / f"{path.stem}.json", *sorted(folder.glob(f"{path.stem}-*.json"))]
    summary, evaluation, remarks = {}, {}, ()
    for file in filter(Path.is_file, kept):
        content = _json(file)
        summary |= content.get("numbers", {})
        if results.is_result(content):
            evaluation[file.stem] = content
        if content.get("config_hash", configs.config_hash(config)) != configs.config_hash(config):
            remarks += (f"{file} is of an earlier version of this config",)
    if not summary and not evaluation:
        return [_row(str(path), config, "not run", "not run")]
    row = replace(_row(str(path), config, f"{config.epochs} epochs", "kept"), remarks=remarks)
    return _entries(row, config, summary, evaluation, epoch=None)


def _row(name, config, state, kind):
    """The row of a run or config, nothing measured yet."""
    setting = setting_of(config)
    uneven = f"{setting.imbalance} imbalance"
    parts = [setting.examples] * (setting.examples != "all") + [uneven] * (setting.imbalance != "none")
    images = ", ".join([setting.dataset, *parts])
    return comparison.Entry(name, method_of(setting), images, state, setting, config.epochs, {}, kind=kind)


def _entries(row, config, summary, evaluation, epoch):
    """`row` with all that was measured on its own images, its baselines, and a row for each other set of images."""
    own = [result for result in evaluation.values() if result["data"].get("own", True)]
    others = [result for result in evaluation.values() if not result["data"].get("own", True)]
    settings = config.evaluation
    measures, baselines, remarks = comparison.of_run(summary, own, settings.knn_k, settings.knn_sigma)
    remarks += tuple(text for result in own for text in _outdated(result, epoch))
    elsewhere = {}  # (name of other images, what tells them apart) -> (measures, remarks)
    for result, apart in zip(others, results.apart(others), strict=True):
        found, _, said = comparison.of_result(result)
        images = (result["data"]["train"]["name"], apart)
        before, told = elsewhere.get(images, ({}, ()))
        elsewhere[images] = (before | found, told + said + _outdated(result, epoch))
    rows = [replace(row, measures=measures, remarks=row.remarks + remarks)]
    rows += [_baseline(row, what, values) for what, values in baselines.items() if values]
    rows += [_elsewhere(row, *images, *found) for images, found in elsewhere.items() if found[0]]
    return rows


def _outdated(result, epoch):
    at = result["model"].get("epoch")
    if epoch is None or at == epoch or not comparison.of_result(result)[0]:
        return ()
    return (f"{result['tool']} was measured at epoch {at}, the run is at {epoch}: measure again",)


def _baseline(row, what, measures):
    random = what == "random weights"
    setting = replace(row.setting, labeller="random" if random else what)
    named = f"{what} ({setting.backbone})" if random else what
    return replace(row, method=named, state="", setting=setting, measures=measures, kind="baseline")


def _elsewhere(row, images, apart, measures, remarks):
    judged = images.rpartition("/")[0] if "/" in images else f"folder {images}"  # TFDS: name/split, name/config/split
    judged, images = judged + apart, images + apart
    told = tuple(f"on {images}: {remark}" for remark in remarks)
    setting = replace(row.setting, judged=judged)
    return replace(row, images=images, setting=setting, measures=measures, remarks=told, kind="elsewhere")


def _json(path):
    return json_file.read_object(path, "a result of ours", "Remove it, or measure again.")
