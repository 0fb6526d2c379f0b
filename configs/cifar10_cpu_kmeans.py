"""The K-means baseline of cifar10_cpu: labels from K-means on the features in place of Sinkhorn.

    python -m tools.train --config=configs/cifar10_cpu_kmeans.py --workdir=runs/cifar10_cpu_kmeans

The paper's "SeLa (K-means)", all else equal: features to 64 whitened principal components of length 1,
MiniBatchKMeans, and the head drawn anew at each pass, since K-means numbers its clusters at random. For the paper's
uneven training sets add --set data.imbalance=light or --set data.imbalance=heavy to this or to cifar10_cpu.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(base, name="cifar10_cpu_kmeans", label=replace(base.label, labeller="kmeans"))
