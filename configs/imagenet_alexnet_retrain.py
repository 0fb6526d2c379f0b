r"""SeLa- on ImageNet: AlexNet from scratch on the labels of a finished run. Tables 5 and 7 of the paper.

    python -m tools.retrain --config=configs/imagenet_alexnet_retrain.py --workdir=runs/imagenet_alexnet_retrain \
        --labels=runs/imagenet_resnet50

The labels may be those of AlexNet as well (--labels=runs/imagenet_alexnet), or of one head of them (--heads=0). The
paper: 90 epochs, batch 64, learning rate 0.05, times 0.1 at epochs 30 and 60 and times 0.001 from 80 on, coupled L2
1e-5; images and augmentation as in imagenet_alexnet. Judged on ImageNet, on Places as another probe target, and by
fine-tuning on PASCAL VOC 2007 (tools.finetune --help has that command):

    python -m tools.linear_probe --workdir=runs/imagenet_alexnet_retrain --layers=alexnet --augment=window_flip \
        --crops=10
    python -m tools.linear_probe --workdir=runs/imagenet_alexnet_retrain --layers=alexnet --augment=window_flip \
        --crops=10 --set data.name=places365_small

(TFDS has Places with 365 classes; the paper's has 205.) Needs the TFDS set imagenet2012, prepared, and those it is
judged on.

Not run by us.
"""

from dataclasses import replace

from configs import imagenet_alexnet


def get_config():
    base = imagenet_alexnet.get_config()
    return replace(
        base,
        name="imagenet_alexnet_retrain",
        model=replace(base.model, num_clusters=()),  # those of the labels
        label=replace(base.label, labeller="given"),
        optimizer=replace(base.optimizer, drop_epochs=(30, 60, 80)),
        epochs=90,
        batch_size=64,
    )
