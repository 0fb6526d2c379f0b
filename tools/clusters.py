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

from absl import flags

from selabel_tf.evaluation import assignment, cluster_report
from selabel_tf.evaluation.report import format_table
from tools import console, judged_run

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
BATCH_SIZE = 256


def main(_):
    judged = judged_run.load(classes_needed=False)
    num_clusters = judged.run.model.num_clusters
    rows = []
    for labelling, source, labels in labellings(judged):
        with console.Progress(len(num_clusters), "measuring heads") as progress:
            found = cluster_report.measure(
                labelling, source.name, labels, source.classes, num_clusters, progress.update
            )
        for table in cluster_report.tables(found):
            print(f"\n{format_table(table)}", flush=True)
        rows += found
    path = judged.save("clusters", {"entropy": "nats", "std": "of the heads, divided by their number"}, rows)
    print(f"\nResults: {path}")
    if judged.on_own_images and judged.test is None:
        tfds = judged.run.config.data.source == "tfds"
        split = "Choose some with --set data.test_split=..., or other images" if tfds else "Choose other images"
        print(f"There is no test split, so no unseen images. {split} with --set data.source=folder --set data.path=...")
    print(f"Next: {console.command('compare', judged.run.workdir)}")


def labellings(judged):
    """(kind, images, labels [N, H]) of all that can be judged, one after the other."""
    if judged.on_own_images:
        yield "labels", judged.train, judged.run.model.labels
    unseen = judged.train if judged.test is None and not judged.on_own_images else judged.test
    if unseen is not None:
        with console.Progress(unseen.num_examples, "predicting") as progress:
            batches = unseen.plain_batches(BATCH_SIZE)
            labels = assignment.assign(judged.run.model, batches, unseen.num_examples, progress.update)
        yield "assigned", unseen, labels


if __name__ == "__main__":
    console.run(main)
