"""SeLa + Rot: cifar10_cpu_faithful with the rotation head beside self-labelling, both from the start. Ours.

    python -m tools.train --config=configs/cifar10_cpu_rot.py --workdir=runs/cifar10_cpu_rot

The paper adds rotation when it retrains (cifar10_cpu_retrain_rot); here labels are found and rotations learnt at once.
Label passes look at upright images only. Every training image is shown at 0, 90, 180 and 270 degrees, so a batch of 128
is 512 images for the network.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu_faithful


def get_config():
    base = cifar10_cpu_faithful.get_config()
    return replace(base, name="cifar10_cpu_rot", model=replace(base.model, objectives=("labels", "rotation")))
