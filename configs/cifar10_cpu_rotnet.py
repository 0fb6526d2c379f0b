"""The RotNet baseline of cifar10_cpu_faithful: the same network tells four rotations apart and learns no labels.

    python -m tools.train --config=configs/cifar10_cpu_rotnet.py --workdir=runs/cifar10_cpu_rotnet

Every image is shown at 0, 90, 180 and 270 degrees, so a batch of 128 is 512 images for the network.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu_faithful


def get_config():
    base = cifar10_cpu_faithful.get_config()
    return replace(
        base,
        name="cifar10_cpu_rotnet",
        model=replace(base.model, num_clusters=(128,), objectives=("rotation",)),
        label=replace(base.label, num_relabels=0),
    )
