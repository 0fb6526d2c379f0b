"""How good are the clusters of a run? Its labels against the true classes, and its predictions for unseen images.

    python -m tools.clusters --workdir=runs/digits
    python -m tools.clusters --workdir=runs/cifar10 --set data.name=cifar100            other images

On the images it was trained on, the labels that training found for them; on unseen images, the test split or the
images of --set, the clusters that the heads predict (model.assign). Each head is measured by itself; the rows mean,
std and best sum up all heads, best being the best head by that measure. Entropy is that of the true classes within a
cluster, in nats, less being better; ACC is the accuracy under the best one-to-one matching of clusters and classes,
in which clusters left over count as wrong. NMI between heads tells whether heads copy each other.
Images without true classes have cluster sizes and NMI between heads only.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import numpy as np
from absl import flags

from selabel_tf.evaluation import assignment, clustering
from selabel_tf.evaluation.report import Table, format_table
from tools import console, judged_run

BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Images per step of prediction.", lower_bound=1)

COLUMNS = {"nmi": "NMI", "ami": "AMI", "ari": "ARI", "accuracy": "ACC", "purity": "purity", "entropy": "entropy"}
TITLES = {"labels": "Labels of the training images", "assigned": "Predictions for unseen images"}


def main(_):
    judged = judged_run.load(classes_needed=False)
    rows = []
    for labelling, source, labels in labellings(judged):
        rows += measured(labelling, source.name, labels, source.classes, judged.run.model.num_clusters)
        print(f"\n{format_table(score_table(rows, labelling, source.name))}", flush=True)
        if labels.shape[1] > 1:
            print(f"\n{format_table(between_table(rows, labelling, labels.shape[1]))}", flush=True)
    if not rows:
        raise ValueError("There is nothing to measure.")
    path = judged.save("clusters", {"batch_size": BATCH_SIZE.value, "entropy": "nats"}, rows)
    print(f"\nResults: {path}")
    if judged.on_own_images and judged.test is None:
        print(
            "There is no test split, so no unseen images. Choose some with --set data.test_split=..., or other images "
            "with --set data.source=folder --set data.path=..."
        )
    print(f"Next: python -m tools.compare {judged.run.workdir}")


def labellings(judged):
    """(kind, images, labels [N, H]) of all that can be judged, one after the other."""
    if judged.on_own_images:
        yield "labels", judged.train, judged.run.model.labels
    unseen = judged.train if judged.test is None and not judged.on_own_images else judged.test
    if unseen is not None:
        with console.Progress(unseen.num_examples, "predicting") as progress:
            batches = unseen.plain_batches(BATCH_SIZE.value)
            labels = assignment.assign(judged.run.model, batches, unseen.num_examples, progress.update)
        yield "assigned", unseen, labels


def measured(labelling, images, labels, classes, num_clusters):
    """The rows of one labelling [N, H]: each head, all heads, every two heads. classes: [N], or None."""
    common = {"labelling": labelling, "images": images, "num_examples": len(labels)}
    rows, per_head = [], []
    with console.Progress(len(num_clusters), "measuring") as progress:
        for head, k in enumerate(num_clusters):
            sizes = clustering.cluster_sizes(labels[:, head], k)
            row = {
                **common,
                "head": str(head),
                "clusters": k,
                "smallest": int(sizes.min()),
                "largest": int(sizes.max()),
                "empty": int(np.sum(sizes == 0)),
            }
            if classes is not None:
                per_head.append(clustering.scores(labels[:, head], classes))
                row |= {"num_classes": len(np.unique(classes)), **per_head[-1]}
            rows.append(row)
            progress.update(head + 1)
    if per_head:
        rows += [{**common, "head": name, **values} for name, values in clustering.over_heads(per_head).items()]
    between = clustering.nmi_between_heads(labels)
    for head, other in zip(*np.triu_indices(len(num_clusters), k=1), strict=True):
        rows.append({**common, "head": str(head), "other_head": str(other), "nmi": float(between[head, other])})
    return rows


def score_table(rows, labelling, images):
    own = [row for row in rows if row["labelling"] == labelling and "other_head" not in row]
    scored = [name for name in COLUMNS if name in own[0]]
    sizes = ("clusters", "smallest", "largest", "empty")
    cells = [[row["head"], *(row.get(name) for name in (*sizes, *scored))] for row in own]
    classes = f", {own[0]['num_classes']} true classes" if scored else "; no true classes to measure against"
    title = f"{TITLES[labelling]}: {images}, {own[0]['num_examples']} images{classes}"
    return Table(title, ("head", *sizes, *(COLUMNS[name] for name in scored)), tuple(map(tuple, cells)))


def between_table(rows, labelling, num_heads):
    between = {
        (r["head"], r["other_head"]): r["nmi"] for r in rows if r["labelling"] == labelling and "other_head" in r
    }
    heads = [str(head) for head in range(num_heads)]
    cells = [[one, *(between.get((one, other), between.get((other, one))) for other in heads)] for one in heads]
    mean, most = np.mean(list(between.values())), max(between, key=between.get)
    note = f"Mean {mean:.3f}; most alike: heads {most[0]} and {most[1]}, {between[most]:.3f}."
    return Table("NMI between heads", ("head", *heads), tuple(map(tuple, cells)), note)


if __name__ == "__main__":
    console.run(main)
