"""The upper end of cifar10_cpu: the same network, augmentation and epochs, trained on the true classes.

    python -m tools.train --config=configs/cifar10_cpu_supervised.py --workdir=runs/cifar10_cpu_supervised

A run of ours, seed 0 (configs/results/cifar10_trials.json), with --set optimizer.l2=0.0005: kNN 77.9 %, linear probe
78.7 %. The authors' recipe with the classes as labels: kNN 75.7 %, linear probe 76.6 %.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(
        base,
        name="cifar10_cpu_supervised",
        model=replace(base.model, num_clusters=(10,)),
        label=replace(base.label, labeller="given"),
    )
