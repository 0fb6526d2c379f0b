"""SeLa on CIFAR-10 with AlexNet at 224, [128 x 10].

    python -m tools.train --config=configs/cifar10.py --workdir=runs/cifar10

The paper: [128 x 10], batch 128, learning rate 0.03, lambda 25, kNN with k=50 and sigma 0.1. The authors'
CIFAR code where the paper is silent: 400 epochs with drops at 240 and 320, coupled L2 5e-4, one head
relabelled per epoch in turn, crops of 0.2 to 1 of the area with colour jitter, grayscale and flip, and the
CIFAR-10 mean and std. That code has lambda 10 (--set label.lambda_=10). Needs the TFDS set cifar10,
prepared.

Not run by us.
"""

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer


def get_config():
    return Config(
        name="cifar10",
        data=Data(source="tfds", name="cifar10", test_split="test"),
        augment=Augment(
            policy="crop_jitter_cifar", size=224, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)
        ),
        model=Model(backbone="alexnet", num_clusters=(128,) * 10),
        label=Label(lambda_=25.0, num_relabels=400, schedule="linear", heads="in_turn", batch_norm="training"),
        optimizer=Optimizer(learning_rate=0.03, momentum=0.9, l2=5e-4, drop_epochs=(240, 320)),
        evaluation=Evaluation(knn_k=50, knn_sigma=0.1),
        epochs=400,
        batch_size=128,
    )
