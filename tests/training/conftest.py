"""A run small enough for a test: 60 digits, two heads, three epochs of three steps."""

from dataclasses import replace

import pytest

from selabel_tf.config import Augment, Config, Data, Evaluation, Label, Model, Optimizer


@pytest.fixture(scope="session")
def small_config():
    """A function: changes -> Config."""

    def make(**changes):
        config = Config(
            name="small",
            data=Data(source="digits", examples_per_class=6),
            augment=Augment(policy="digits"),
            model=Model(backbone="small_conv", num_clusters=(5, 7)),
            label=Label(num_relabels=3, schedule="linear"),
            optimizer=Optimizer(learning_rate=0.05, drop_epochs=(2,)),
            evaluation=Evaluation(knn_k=5),
            epochs=3,
            batch_size=23,
        )
        return replace(config, **changes)

    return make
