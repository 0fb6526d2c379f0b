"""The K-means baseline of cifar10_cpu: labels from K-means on the features in place of Sinkhorn.

    python -m tools.train --config=configs/cifar10_cpu_kmeans.py --workdir=runs/cifar10_cpu_kmeans

The paper's "SeLa (K-means)", all else equal: features to 64 whitened principal components of length 1,
MiniBatchKMeans, and the head drawn anew at each pass, since K-means numbers its clusters at random. For the paper's
uneven training sets add --set data.imbalance=light or --set data.imbalance=heavy to this or to cifar10_cpu.

Runs of ours, seed 0 (configs/results/cifar10_trials.json), with labels once per epoch, so that the head begins anew
less often, --set label.num_relabels=16: kNN 50.7 %, linear probe 56.0 %. Transport, for which the recipe was chosen:
kNN 54.8 %, linear probe 59.4 %. All others with --set optimizer.l2=0.0005: kNN 50.3 %, linear probe 54.4 %; transport:
kNN 53.7 %, linear probe 58.0 %. With 1,000 clusters: kNN 45.0 %, linear probe 51.5 %, and with labels three times per
epoch kNN 41.1 %, linear probe 48.0 %; transport: kNN 52.4 %, linear probe 58.0 %. Uneven sets, labels once per epoch,
light: kNN 48.1 %, linear probe 53.6 %; transport: kNN 51.4 %, linear probe 56.6 %. Heavy: kNN 36.9 %, linear probe 43.9
%; transport: kNN 40.0 %, linear probe 46.6 %.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(base, name="cifar10_cpu_kmeans", label=replace(base.label, labeller="kmeans"))
