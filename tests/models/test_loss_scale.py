"""Scaled losses on two replicas, one of which overflows; with one replica nothing changes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.models.loss_scale import SharedLossScaleOptimizer, with_overflow_of_all
from selabel_tf.models.self_label_model import SelfLabelModel


def self_labelling(trunk):
    model = SelfLabelModel(trunk, [3], 8)
    model.compile(keras.optimizers.SGD(0.01))
    return model


def classifier(trunk):
    """Trains by Keras' own step, as fine-tuning does."""
    scores = keras.layers.Dense(3, kernel_initializer="random_normal", dtype="float32")(trunk.outputs[0])
    model = keras.Model(trunk.inputs, scores)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(SharedLossScaleOptimizer(keras.optimizers.SGD(0.01)), loss, jit_compile=False)
    return model


@pytest.mark.parametrize("make", [self_labelling, classifier])
@pytest.mark.parametrize("bright", [0, 1])
def test_an_overflow_on_any_replica_leaves_the_step_out(make, bright, two_replicas):
    """The images of one replica are so bright that its gradients, and not its loss, overflow float16."""
    images, index = np.full((8, 4, 4, 1), 0.001, np.float32), np.arange(8) % 3
    images[4 * bright : 4 * bright + 4] = 200.0
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with two_replicas.scope():
            keras.utils.set_random_seed(0)
            model = make(keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(4)]))
    finally:
        keras.config.set_dtype_policy("float32")
    before = [variable.numpy() for variable in model.trainable_variables]
    model.fit(tf.data.Dataset.from_tensor_slices((images, index)).batch(8), shuffle=False, verbose=0)
    assert float(model.optimizer.dynamic_scale.numpy()) == 2.0**14  # halved
    for variable, value in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_steps_without_overflow_are_those_of_keras(two_replicas):
    images, index = np.random.default_rng(0).normal(size=(8, 4, 4, 1)).astype(np.float32), np.arange(8) % 3
    ended = []
    for kind in (SharedLossScaleOptimizer, keras.optimizers.LossScaleOptimizer):
        with two_replicas.scope():
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(kind(keras.optimizers.SGD(0.5), initial_scale=8.0), loss, jit_compile=False)
        start = model.get_weights()
        model.fit(tf.data.Dataset.from_tensor_slices((images, index)).batch(8), shuffle=False, verbose=0, epochs=3)
        ended.append(model.get_weights())
    assert np.abs(ended[0][0] - start[0]).max() > 0.01
    for ours, theirs in zip(*ended, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_gradients_of_one_replica_are_left_as_they_are():
    gradients = [tf.constant([1.0, np.inf]), None]
    assert with_overflow_of_all(gradients) is gradients


def test_it_comes_back_from_its_config():
    optimizer = SharedLossScaleOptimizer(keras.optimizers.SGD(0.125), initial_scale=4.0)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is SharedLossScaleOptimizer
    assert again.initial_scale == 4.0 and float(again.inner_optimizer.learning_rate) == 0.125
