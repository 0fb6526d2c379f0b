r"""SeLa- at the size of cifar10_cpu: the same network from scratch on the labels that a finished run has found.

    python -m tools.train --config=configs/cifar10_cpu.py --workdir=runs/cifar10_cpu
    python -m tools.retrain --config=configs/cifar10_cpu_retrain.py --workdir=runs/cifar10_cpu_retrain \
        --labels=runs/cifar10_cpu

All else is as in cifar10_cpu. The paper's label transfer; for a smaller network add --set model.width=8, for another
one --set model.backbone=small_conv --set model.width=0.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu


def get_config():
    base = cifar10_cpu.get_config()
    return replace(
        base,
        name="cifar10_cpu_retrain",
        model=replace(base.model, num_clusters=()),  # those of the labels
        label=replace(base.label, labeller="given"),
    )
