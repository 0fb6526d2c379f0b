r"""SeLa- + Rot + more aug. on ImageNet: one of equalize, autocontrast and sharpening besides. Table 9 of the paper.

    python -m tools.retrain --config=configs/imagenet_alexnet_retrain_rot_moreaug.py \
        --workdir=runs/imagenet_alexnet_retrain_rot_moreaug --labels=runs/imagenet_resnet50

On Places it is judged as imagenet_alexnet_retrain says.

Not run by us.
"""

from dataclasses import replace

from configs import imagenet_alexnet_retrain_rot


def get_config():
    base = imagenet_alexnet_retrain_rot.get_config()
    return replace(
        base,
        name="imagenet_alexnet_retrain_rot_moreaug",
        augment=replace(base.augment, more="one_of"),
    )
