"""The recipe of cifar10_cpu on all 50,000 training images of CIFAR-10, for hours instead of minutes.

    python -m tools.train --config=configs/cifar10_cpu_full.py --workdir=runs/cifar10_cpu_full

About three hours on one CPU core; the same command goes on after a stop. Labels three times per epoch, as there. Needs
the TFDS set cifar10, prepared.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(
        base,
        name="cifar10_cpu_full",
        data=replace(base.data, examples_per_class=0),
        label=replace(base.label, num_relabels=72),
        evaluation=replace(base.evaluation, knn_every=3),
        epochs=24,
    )
