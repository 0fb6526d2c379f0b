"""SeLa on scikit-learn's handwritten digits: 1,797 images inside the wheel, no download.

    python -m tools.train --config=configs/digits.py --workdir=runs/digits

Ours, sized for a few minutes on two CPU cores: neither the paper nor its authors' code trains on digits.
Labels are optimised once per epoch, for all heads, from the average of two augmented views.
"""

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer


def get_config():
    return Config(
        name="digits",
        data=Data(source="digits"),
        augment=Augment(policy="digits"),
        model=Model(backbone="small_conv", num_clusters=(20,) * 10),
        label=Label(lambda_=25.0, num_relabels=60, schedule="linear", heads="all", views=2, rounding="argmax"),
        optimizer=Optimizer(learning_rate=0.1, momentum=0.9, l2=5e-4, drop_epochs=(50, 56)),
        evaluation=Evaluation(knn_k=10, knn_sigma=0.1),
        epochs=60,
        batch_size=128,
    )
