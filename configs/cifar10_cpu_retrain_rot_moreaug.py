r"""SeLa- + Rot + more aug. at the size of cifar10_cpu.

    python -m tools.retrain --config=configs/cifar10_cpu_retrain_rot_moreaug.py \
        --workdir=runs/cifar10_cpu_retrain_rot_moreaug --labels=runs/cifar10_cpu_faithful

cifar10_cpu_retrain_rot, and every training image is also equalized, stretched in contrast or sharpened, one of the
three at random: labels that do not change allow for heavier augmentation.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu_retrain_rot


def get_config():
    base = cifar10_cpu_retrain_rot.get_config()
    return replace(
        base,
        name="cifar10_cpu_retrain_rot_moreaug",
        augment=replace(base.augment, more="one_of"),
    )
