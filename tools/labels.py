"""The labels of a run as a file, with the heads' own probabilities; labels for new images; images by cluster.

    python -m tools.labels --workdir=runs/digits                               runs/digits/labels.csv
    python -m tools.labels --workdir=runs/digits --format=parquet              runs/digits/labels.parquet
    python -m tools.labels --workdir=runs/photos --assign=new_photos           runs/photos/labels-new_photos.csv
    python -m tools.labels --workdir=runs/photos --sort-into=sorted --head=3   sorted/cluster-07/..., one per cluster

One row per image: index, id, and for each head the cluster, its probability, the runner-up and its probability. The
training images keep the labels that training ended with; new images (--assign: a folder of images, or of one
sub-folder per class) get the most probable cluster of each head.

--sort-into links the files of a folder (--link=symlink|hard|copy); images that are no files are written as PNG.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

from pathlib import Path

import numpy as np
from absl import flags

from selabel_tf.data import from_folder
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.export import cluster_folders, confidence
from selabel_tf.export import labels as label_files
from selabel_tf.training.trained_run import load_run
from tools import console, judged_run
from tools.judged_run import SET, WORKDIR, JudgedRun

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
FORMAT = flags.DEFINE_enum("format", None, ["csv", "parquet"], "By default as --output ends, or csv.")
OUTPUT = flags.DEFINE_string("output", None, "The file to write. By default labels.csv or .parquet in the run folder.")
ASSIGN = flags.DEFINE_string("assign", None, "Labels the images of this folder instead of the training images.")
SORT_INTO = flags.DEFINE_string("sort-into", None, "Also sorts the images into cluster folders in this new folder.")
LINK = flags.DEFINE_enum("link", "symlink", list(cluster_folders.LINKS), "How files get into the cluster folders.")
HEAD = flags.DEFINE_integer("head", 0, "Whose clusters --sort-into makes folders of.")
BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Images in the network at once.", lower_bound=1)


def main(_):
    run = load_run(WORKDIR.value)
    num_heads = len(run.model.num_clusters)
    if not 0 <= HEAD.value < num_heads:
        raise ValueError(f"--head={HEAD.value}: the run has {num_heads} heads, 0 to {num_heads - 1}.")
    chosen_format = _format()  # before the work, which may take long
    folder = ASSIGN.value or run.data_config(SET.value).data.path or None
    if SORT_INTO.value is not None:
        cluster_folders.check_new(SORT_INTO.value, folder)

    source = _new_images(run) if ASSIGN.value else _training_images(run)
    with console.Progress(source.num_examples, "images") as progress:
        batches = source.plain_batches(BATCH_SIZE.value)
        if ASSIGN.value:
            clusters, sure = confidence.predict(run.model, batches, source.num_examples, progress.update)
        else:
            clusters = run.model.labels
            sure = confidence.of_labels(run.model, batches, clusters, progress.update)

    labels = label_files.Labels(
        clusters,
        source.ids,
        fingerprint=source.fingerprint,
        num_clusters=run.model.num_clusters,
        config_hash=run.checkpoint.facts["config_hash"],
        checkpoint_hash=run.checkpoint.sha256,
        origin="prediction" if ASSIGN.value else "training",
        confidence=sure,
    )
    table = _table(labels)
    judged = JudgedRun(run, source, None)
    variant = "predicted" if ASSIGN.value and judged.on_own_images else ""  # labels.csv is what training ended with
    output = OUTPUT.value or run.workdir / f"{judged.path('labels', variant).stem}.{chosen_format}"
    label_files.write(output, labels)
    print(f"\n{format_table(table)}\n\nLabels: {output}", flush=True)
    judged.save("labels", {"origin": labels.origin}, _rows(table), variant)
    if SORT_INTO.value is not None:
        _sort(labels, source, folder)
        print(f"Images by cluster of head {HEAD.value}: {SORT_INTO.value}")
    else:
        print("Next: look at the clusters by adding  --sort-into=DIR")


def _format():
    """The ending of the file to write, as --format and --output have it."""
    if OUTPUT.value is None:
        return FORMAT.value or "csv"
    label_files.format_of(OUTPUT.value)
    ending = Path(OUTPUT.value).suffix[1:]
    if FORMAT.value not in (None, ending):
        raise ValueError(f"--format={FORMAT.value} and --output={OUTPUT.value} contradict each other. Leave one out.")
    if not Path(OUTPUT.value).parent.is_dir():
        raise FileNotFoundError(f"--output={OUTPUT.value}: there is no such folder. Create it first.")
    return ending


def _training_images(run):
    source = run.training_images(SET.value)
    if source.fingerprint != run.training_set.fingerprint:
        raise ValueError(
            f"{source.name} is not what {run.workdir} was trained on: fingerprint {source.fingerprint[:12]}, expected "
            f"{run.training_set.fingerprint[:12]}. Choose the training images by --set, or label other images by "
            "--assign=FOLDER."
        )
    return source


def _new_images(run):
    """The images of --assign, prepared as the run's own."""
    if SET.value:
        raise ValueError("--set chooses where the training images are, --assign other images. Leave one out.")
    augment = run.data_config().augment
    images = from_folder(Path(ASSIGN.value).resolve())
    wanted, size = run.training_set.image_shape, augment.size or None
    shown = (size, size) if size else tuple(images.stored_shape[:2])  # None where images differ in size
    if shown != wanted[:2]:
        raise ValueError(
            f"The network of {run.workdir} takes images {wanted[0]} high and {wanted[1]} wide; folders are brought to "
            "squares only. Label such images with model.assign."
        )
    return images.augmented(augment.policy, size, mean=augment.mean or None, std=augment.std or None)


def _table(labels):
    """What a person wants to know of each head at once."""
    rows = []
    for head, k in enumerate(labels.num_clusters):
        sizes = np.bincount(labels.labels[:, head], minlength=k)
        probability = labels.confidence.probability[:, head]
        first = float(np.mean(probability >= labels.confidence.runner_up_probability[:, head]))
        used, smallest, largest = int(np.sum(sizes > 0)), int(sizes.min()), int(sizes.max())
        rows.append((head, k, used, smallest, largest, float(probability.mean()), first))
    return Table(
        f"Labels of {len(labels.ids)} images, by {labels.origin}",
        ("head", "clusters", "used", "smallest", "largest", "mean probability", "most probable"),
        tuple(rows),
        "Most probable: share of images whose label is the cluster that the head itself finds most probable.",
    )


def _rows(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _sort(labels, source, folder):
    if folder is None:
        names = [name if name.lower().endswith(".png") else f"{name}.png" for name in source.ids]
        place = cluster_folders.pictures(source)
    else:
        names, place = source.ids, cluster_folders.links(folder, source.ids, LINK.value)
    clusters, k = labels.labels[:, HEAD.value].tolist(), labels.num_clusters[HEAD.value]
    with console.Progress(source.num_examples, "sorting") as progress:
        cluster_folders.sort_into(SORT_INTO.value, clusters, k, names, place, progress.update)


if __name__ == "__main__":
    console.run(main)
