"""The K-means baseline of cifar10_cpu: labels from K-means on the features in place of Sinkhorn, [128 x 1].

    python -m tools.train --config=configs/cifar10_cpu_kmeans.py --workdir=runs/cifar10_cpu_kmeans

The paper's "SeLa (K-means)", all else equal: features to 64 whitened principal components of length 1,
MiniBatchKMeans, and the head drawn anew at each pass, since K-means numbers its clusters at random. Its opposite is
cifar10_cpu.py with --set model.num_clusters=128. For the paper's uneven training sets add --set data.imbalance=light
or --set data.imbalance=heavy to either of the two.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(
        base,
        name="cifar10_cpu_kmeans",
        model=replace(base.model, num_clusters=(128,)),
        label=replace(base.label, labeller="kmeans"),
    )
