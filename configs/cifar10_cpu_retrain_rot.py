r"""SeLa- + Rot at the size of cifar10_cpu: retraining on found labels, and telling four rotations apart beside it.

    python -m tools.retrain --config=configs/cifar10_cpu_retrain_rot.py --workdir=runs/cifar10_cpu_retrain_rot \
        --labels=runs/cifar10_cpu_faithful

cifar10_cpu_retrain with a second objective: every image is shown at 0, 90, 180 and 270 degrees, so a batch of 128 is
512 images for the network; the labels are learnt on the upright ones. In joint self-labelling: cifar10_cpu_rot.

Not run by us.
"""

from dataclasses import replace

from configs import cifar10_cpu_retrain


def get_config():
    base = cifar10_cpu_retrain.get_config()
    return replace(
        base,
        name="cifar10_cpu_retrain_rot",
        model=replace(base.model, objectives=("labels", "rotation")),
    )
