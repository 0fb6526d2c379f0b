"""Runs side by side: what was measured of each, the baselines measured along with it, and the paper's figures.

A measure is a name and a share of 1:

    knn                             weighted nearest neighbours; k = 50 and sigma = 0.1, the paper's, if measured
    linear conv5, linear pool ...   linear probe on that layer; "... 10-crop" and "... top5" where measured so
    nmi, ami, ari, accuracy         labels of the training images against the true classes, mean of all heads
    test nmi, test ami ...          what the heads predict for unseen images, mean of all heads
    finetune all, finetune fc6 ...  top-1 after fine-tuning these layers; "... mAP" of several classes for each image
    from scratch                    the same network and budget from random weights; with a part of it "random fc6"

They are read from what a run keeps: `numbers` of its results.json, and the evaluation tools' files, which win. A
paper's figure stands beside ours only in the same setting (see `paper.beside`); the paper's other figures for the
same images are rows of their own, named as the paper's.
"""

import dataclasses
import re
from dataclasses import dataclass

from . import paper, results
from .report import Table

CLUSTER_MEASURES = ("nmi", "ami", "ari", "accuracy")
NAMES = {"knn": "kNN", "nmi": "NMI", "ami": "AMI", "ari": "ARI", "accuracy": "ACC"}
BASELINES = ("random weights", "raw pixels")  # of kNN; need no training
PAPERS_NEIGHBOURS = {"k": 50, "sigma": 0.1}


@dataclass(frozen=True)
class Entry:
    """One row of ours: a run, or a baseline measured along with it, on one set of images."""

    name: str
    method: str
    images: str
    state: str
    setting: paper.Setting
    epochs: int
    measures: dict[str, float]
    remarks: tuple[str, ...] = ()
    kind: str = "run"  # "elsewhere": on other images; "baseline"; a config: "kept" results, or "not run"
    has_classes: bool = True  # without them nothing is left to be measured


@dataclass(frozen=True)
class Comparison:
    """The table for a person, the same rows for a program, and what is missing: (measure, name of the run)."""

    table: Table
    rows: tuple[dict, ...]
    notes: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]


def of_summary(numbers, knn_k=None, knn_sigma=None) -> tuple[dict, dict, tuple]:
    """(measures, {baseline: measures}, remarks) of the `numbers` in a results.json."""
    measures, baselines, remarks = {}, {}, []
    for row in numbers.get("knn", ()):
        if row["what"] in BASELINES:
            baselines.setdefault(row["what"], {})["knn"] = row["accuracy"]
        else:
            measures["knn"] = row["accuracy"]
            remarks.append(_neighbours(knn_k, knn_sigma))
    for row in numbers.get("clusters", ()):
        found = {name: row[name] for name in CLUSTER_MEASURES if row.get(name) is not None}
        if row["what"].startswith("self-labels"):
            measures |= found
        elif row["what"] == "K-means on raw pixels":
            baselines[f"{row['what']} [{row['clusters']}]"] = found
    return measures, baselines, tuple(remarks)


def of_run(numbers, own_results, knn_k=None, knn_sigma=None) -> tuple[dict, dict, tuple]:
    """(measures, {baseline: measures}, remarks) of a results.json and of the tools' files on the run's own images."""
    measures, baselines, remarks = of_summary(numbers, knn_k, knn_sigma)
    for result in results.own_features_last(own_results):
        found, others, said = of_result(result)
        if "knn" in found:  # in place of what the summary says of it
            if not set(said) & set(remarks):  # measured in another way: its baselines cannot stand beside this
                for values in baselines.values():
                    values.pop("knn", None)
            remarks = tuple(remark for remark in remarks if not remark.startswith("kNN"))
        measures = {name: value for name, value in measures.items() if name not in found} | found  # the last is shown
        remarks += said
        for what, values in others.items():
            baselines[what] = baselines.get(what, {}) | values
    return measures, baselines, remarks


def of_result(result) -> tuple[dict, dict, tuple]:
    """(measures, {baseline: measures}, remarks) of one file of an evaluation tool; of other tools nothing."""
    readers = {"knn": _of_knn, "linear_probe": _of_probe, "clusters": _of_clusters, "finetune": _of_finetuning}
    reader = readers.get(result["tool"])
    return reader(result["rows"], result["settings"] or {}) if reader else ({}, {}, ())


def compare(entries, layers="last") -> Comparison:
    """All entries in one table. layers: which probed layers are shown, the "last" of each run or "all"."""
    if not entries:
        raise ValueError("There is nothing to compare. Give one run or more.")
    if layers not in ("last", "all"):
        raise ValueError(f"layers={layers!r} is unknown. Use last or all.")
    entries = _without_repeats(entries)
    rows = [_row_of(entry) for entry in entries] + _reference_rows(entries)
    shown = _shown([row["ours"] for row in rows], [row["paper"] for row in rows], layers)
    rows = [{**row, **{of: {m: row[of][m] for m in shown if m in row[of]} for of in ("ours", "paper")}} for row in rows]
    notes = _notes(entries)
    return Comparison(_table(rows, shown), tuple(rows), tuple(notes), tuple(_missing(entries)))


def markdown(table) -> str:
    """A table in Markdown, numbers to the right."""
    rule = ["---", *["---:"] * (len(table.columns) - 1)]
    lines = [list(map(str, table.columns)), rule, *table.cells()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _of_knn(rows, settings):
    measures, baselines, remarks = {}, {}, ()
    if settings.get("layers"):  # of chosen layers: not the network's features, which all others are judged by
        return measures, baselines, remarks
    for name in dict.fromkeys(_features(row) for row in rows):
        own = [row for row in rows if _features(row) == name]
        usual = [row for row in own if all(_near(row.get(key), v) for key, v in PAPERS_NEIGHBOURS.items())]
        row = (usual or own)[-1]
        if name in BASELINES:
            baselines[name] = {"knn": row["top1"]}
        else:
            measures["knn"] = row["top1"]
            where = f" on {name}" if name not in ("", "learned") else ""
            where += f", {settings['pca']} principal components" if settings.get("pca") else ""
            remarks = (_neighbours(row.get("k"), row.get("sigma")) + where,)
    return measures, baselines, remarks


def _of_probe(rows, settings):
    measures, baselines = {}, {}
    for row in rows:
        crops = str(row.get("crops", settings.get("crops", 1)))
        layer = str(row.get("layer", "features")).removesuffix("_relu")
        name = f"linear {layer}" + (" 10-crop" if crops in ("10", "ten") else "")
        kept = baselines.setdefault(row["features"], {}) if row.get("features") in BASELINES else measures
        for key, value in ((name, row.get("top1")), (f"{name} top5", row.get("top5"))):
            if value is not None:
                kept[key] = value
    return measures, baselines, ()


def _of_clusters(rows, settings):
    measures = {}
    for row in rows:
        if row.get("head") == "mean":
            prefix = "" if row.get("labelling") == "labels" else "test "
            measures |= {prefix + name: row[name] for name in CLUSTER_MEASURES if row.get(name) is not None}
    return measures, {}, ()


def _of_finetuning(rows, settings):
    layers = settings["layers"]
    name = f"finetune {layers}"
    if settings["weights"] == "random":
        name = "from scratch" if layers == "all" else f"random {layers}"
    row = rows[0]  # of several classes for each image the mean
    measure, value = (name, row["top1"]) if "top1" in row else (f"{name} mAP", row["ap11"])
    crops = "10 crops" if settings.get("crops") == 10 else "1 crop"
    return {measure: value}, {}, (f"{measure} with {settings['labelled']} labelled images, {crops}",)


def _features(row):
    return row.get("features", row.get("layer", ""))


def _near(value, wanted):
    return value is not None and abs(value - wanted) < 1e-9


def _neighbours(k, sigma):
    return f"kNN with k={k}, sigma={sigma}"


def _row_of(entry):
    beside = paper.beside(entry.setting)
    return {
        "kind": entry.kind,
        "name": entry.name,
        "method": entry.method,
        "images": entry.images,
        "state": entry.state,
        "ours": {measure: 100 * value for measure, value in entry.measures.items()},
        "paper": {measure: _described(figure) for measure, figure in beside.figures.items()} if beside else {},
    }


def _reference_rows(entries):
    """The paper's own rows, each once."""
    beside = [paper.beside(entry.setting) for entry in entries]
    wanted = []
    for entry in entries:
        wanted += [e for e in paper.references(entry.setting) if e not in beside and e not in wanted]
    rows = []
    for experiment in wanted:
        dataset, judged, imbalance = (experiment.setting[name] for name in ("dataset", "judged", "imbalance"))
        rows.append(
            {
                "kind": "paper",
                "name": "(paper)",
                "method": experiment.method + (f", {imbalance} imbalance" if imbalance != "none" else ""),
                "images": judged if judged == dataset else f"{judged}, trained on {dataset}",
                "state": experiment.setting["backbone"],
                "ours": {},
                "paper": {measure: _described(figure) for measure, figure in experiment.figures.items()},
            }
        )
    return rows


def _described(figure):
    return dataclasses.asdict(figure)


def _without_repeats(entries):
    """Pixels are the same for all runs on the same images: a baseline with the same figures stands once."""
    seen, kept = set(), []
    for entry in entries:
        key = (entry.method, entry.images, tuple(sorted(entry.measures.items())))
        if entry.kind != "baseline" or key not in seen:
            kept.append(entry)
        seen.add(key)
    return kept


def _shown(ours, papers, layers):
    """The measures to show, in order: kNN, linear probes, fine-tuning, clusters of labels and of unseen images."""
    found = list(dict.fromkeys(measure for row in (*ours, *papers) for measure in row))
    probes = [measure for measure in found if measure.startswith("linear")]
    if layers == "last":
        # Of every row the last layer, by crops and top5; what the paper has beside it comes along.
        kinds = [{_kind(m): m for m in row if m.startswith("linear")} for row in (*ours, *papers)]
        last = {measure for row in kinds for measure in row.values()}
        printed = {measure for row in papers for measure in row}
        probes = [m for m in probes if m in last and (not m.endswith("top5") or m in printed)]
    tuned = [measure for measure in found if measure.startswith(("finetune", "from scratch", "random"))]
    clusters = [m for m in (f"test {name}" for name in CLUSTER_MEASURES) if m in found]
    return ["knn", *(probes or ["linear"]), *tuned, *CLUSTER_MEASURES, *clusters]


def _kind(measure):
    """What comes behind the layer: " 10-crop top5" of "linear conv5 10-crop top5"."""
    return re.fullmatch(r"linear [^ ,]+(.*)", measure)[1]


def _table(rows, shown):
    columns = ["", "method", "images", "state"]
    cells = [[row["name"], row["method"], row["images"], row["state"]] for row in rows]
    for measure in shown:
        measured = any(measure in row["ours"] for row in rows)
        printed = any(measure in row["paper"] for row in rows)
        title = NAMES.get(measure, measure)
        if measured or not printed:
            columns.append(title)
            for row, line in zip(rows, cells, strict=True):
                line.append(_percent(row["ours"].get(measure)))
        if printed:
            columns.append("(paper)" if measured else f"{title} (paper)")
            for row, line in zip(rows, cells, strict=True):
                line.append(_percent(row["paper"].get(measure, {}).get("value")))
    return Table("SeLa and its baselines, in percent", tuple(columns), tuple(map(tuple, cells)))


def _percent(value):
    return None if value is None else f"{value:.1f}"


def _notes(entries):
    notes = ["Columns and rows marked (paper) are the paper's figures (ICLR 2020), not ours."]
    for entry in entries:
        beside = paper.beside(entry.setting)
        if beside and entry.kind != "not run" and beside.epochs and beside.epochs != entry.epochs:
            notes.append(f"{entry.name} is set to {entry.epochs} epochs, the paper's experiment to {beside.epochs}.")
        notes += [f"{entry.name}: {remark}." for remark in entry.remarks]
    images = list(dict.fromkeys(entry.images for entry in entries))
    if len(images) > 1:
        notes.append(f"Rows are of different images ({', '.join(images)}): compare those of the same.")
    return notes


def _missing(entries):
    """What each run could still be asked for on its own images, and which configs have to be run for that."""
    for entry in entries:
        probed = any(measure.startswith("linear") for measure in entry.measures)
        wanted = {"knn": "knn" in entry.measures, "linear": probed, "clusters": "accuracy" in entry.measures}
        missing = [measure for measure, there in wanted.items() if not there]
        if entry.kind in ("not run", "kept") and missing:
            waiting = entry.setting.labeller == "given" and not entry.setting.num_clusters  # for labels
            yield "retrain" if waiting else "all", entry.name
        if entry.kind in ("run", "kept", "not run") and entry.has_classes:
            yield from ((measure, entry.name) for measure in missing)
