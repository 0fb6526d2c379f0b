"""SeLa on ImageNet with the authors' pre-activation ResNet-50, [3000 x 10].

    python -m tools.train --config=configs/imagenet_resnet50.py --workdir=runs/imagenet_resnet50

The paper: 400 epochs, learning rate 0.05 divided by ten at 150, 300 and 350, lambda 25, labels at
quadratically spaced times. The authors' code where the paper is silent: batch 256, momentum 0.9, coupled L2
1e-5, all heads at each label optimisation, random resized crop with grayscale, colour jitter and flip (the
paper's text: crops, flip and noise); that code starts from learning rate 0.08 (--set
optimizer.learning_rate=0.08). 80 label optimisations, the best of the paper's ablation (80 to 100 on
ImageNet). Needs the TFDS set imagenet2012, prepared.

Not run by us.
"""

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer


def get_config():
    return Config(
        name="imagenet_resnet50",
        data=Data(source="tfds", name="imagenet2012", test_split="validation"),
        augment=Augment(policy="crop_jitter", size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        model=Model(backbone="resnet50v2", num_clusters=(3000,) * 10),
        label=Label(lambda_=25.0, num_relabels=80, schedule="quadratic", heads="all", batch_norm="training"),
        optimizer=Optimizer(learning_rate=0.05, momentum=0.9, l2=1e-5, drop_epochs=(150, 300, 350)),
        evaluation=Evaluation(knn=False, kmeans=False),  # 1.28 million images against themselves
        epochs=400,
        batch_size=256,
    )
