"""SeLa on scikit-learn's handwritten digits: 1,797 images inside the wheel, no download.

    python -m tools.train --config=configs/digits.py --workdir=runs/digits

Ours, sized for a minute or two on two CPU cores: neither the paper nor its authors' code trains on digits.
Labels are optimised once per epoch, for all heads, from the average of two augmented views.

Measured on 2 x86 cores, 2026-11-17, seed 0: 74 s; kNN 0.981 (random weights 0.958, pixels 0.966); K-means with ten
clusters on the learned features NMI 0.888 (pixels 0.744). All of it: configs/results/digits.json.
"""

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer


def get_config():
    return Config(
        name="digits",
        data=Data(source="digits"),
        augment=Augment(policy="digits"),
        model=Model(backbone="small_conv", num_clusters=(20,) * 10),
        label=Label(num_relabels=50, schedule="linear", views=2),
        optimizer=Optimizer(learning_rate=0.1, drop_epochs=(42, 48)),
        evaluation=Evaluation(knn_k=50),
        epochs=50,
        batch_size=128,
    )
