r"""SeLa- + Rot on ImageNet: imagenet_alexnet_retrain with a rotation head. Tables 7 and 9 of the paper.

    python -m tools.retrain --config=configs/imagenet_alexnet_retrain_rot.py \
        --workdir=runs/imagenet_alexnet_retrain_rot --labels=runs/imagenet_resnet50

Batch 64 times four rotations, as in the paper. On Places it is judged as imagenet_alexnet_retrain says.

Not run by us.
"""

from dataclasses import replace

from configs import imagenet_alexnet_retrain


def get_config():
    base = imagenet_alexnet_retrain.get_config()
    return replace(
        base,
        name="imagenet_alexnet_retrain_rot",
        model=replace(base.model, objectives=("labels", "rotation")),
    )
