"""CoupledSGD is PyTorch's SGD, written down here in float64 NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.training.sgd import CoupledSGD

RATES = [0.1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]  # with drops: the velocity must not hold the rate


def torch_rule(w, gradients, *, momentum, l2):
    """v = mu v + (g + l2 w); w -= lr v, as torch.optim.SGD has it."""
    w = np.array(w, np.float64)
    v = np.zeros_like(w)
    for rate, g in zip(RATES, gradients, strict=True):
        v = momentum * v + (g + l2 * w)
        w = w - rate * v
    return w


def start_and_gradients():
    random = np.random.default_rng(3)
    return random.normal(size=(5, 3)), random.normal(size=(len(RATES), 5, 3))


def run(optimizer, w, gradients):
    variable = keras.Variable(w, dtype="float32")
    for rate, g in zip(RATES, gradients, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([tf.constant(g, tf.float32)], [variable])
    return variable.numpy()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_steps_equal_the_rule_of_pytorch_across_drops_of_the_learning_rate(momentum, l2):
    w, gradients = start_and_gradients()
    ours = run(CoupledSGD(0.5, momentum=momentum, l2=l2), w, gradients)
    np.testing.assert_allclose(ours, torch_rule(w, gradients, momentum=momentum, l2=l2), atol=2e-6)


def test_without_l2_and_drops_it_is_the_sgd_of_keras():
    random = np.random.default_rng(5)
    w, gradients = random.normal(size=7), random.normal(size=(11, 7))
    results = []
    for optimizer in (CoupledSGD(0.1, momentum=0.9), keras.optimizers.SGD(0.1, momentum=0.9)):
        variable = keras.Variable(w, dtype="float32")
        for g in gradients:
            optimizer.apply([tf.constant(g, tf.float32)], [variable])
        results.append(variable.numpy())
    np.testing.assert_allclose(*results, atol=1e-5)


def test_two_hundred_steps_of_zero_gradient_shrink_a_weight_as_in_pytorch():
    optimizer = CoupledSGD(0.1, momentum=0.9, l2=5e-4)
    variable = keras.Variable(1.0)
    for _ in range(200):
        optimizer.apply([tf.constant(0.0)], [variable])
    assert float(variable.numpy()) == pytest.approx(0.909, abs=1e-3)  # Keras's weight_decay: 0.990


def test_variables_of_a_model_are_decayed_one_and_all():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5), keras.layers.BatchNormalization()])
    for variable in model.trainable_variables:
        variable.assign(tf.ones(variable.shape))
    optimizer = CoupledSGD(0.5, momentum=0.0, l2=0.5)
    optimizer.apply([tf.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables)
    assert len(model.trainable_variables) == 4
    for variable in model.trainable_variables:
        np.testing.assert_allclose(variable.numpy(), 0.75)


def test_inside_a_loss_scale_optimizer_steps_are_the_same():
    w, gradients = start_and_gradients()
    optimizer = keras.optimizers.LossScaleOptimizer(CoupledSGD(0.5, l2=0.05), initial_scale=8.0)
    ours = run(optimizer, w, gradients * 8.0)
    np.testing.assert_allclose(ours, torch_rule(w, gradients, momentum=0.9, l2=0.05), atol=2e-6)


def test_two_replicas_sum_their_gradients_and_decay_once(two_replicas):
    w, gradients = start_and_gradients()
    with two_replicas.scope():
        variable = keras.Variable(w, dtype="float32")
        optimizer = CoupledSGD(0.5, l2=0.05)
        optimizer.build([variable])

    @tf.function
    def step(gradient):
        optimizer.apply([gradient / 2.0], [variable])

    for rate, g in zip(RATES, gradients, strict=True):
        optimizer.learning_rate = rate
        two_replicas.run(step, args=(tf.constant(g, tf.float32),))
    expected = torch_rule(w, gradients, momentum=0.9, l2=0.05)
    for replica in two_replicas.experimental_local_results(variable.value):
        np.testing.assert_allclose(replica.numpy(), expected, atol=2e-6)


def test_it_is_serialised_and_comes_back_the_same():
    optimizer = CoupledSGD(0.25, momentum=0.5, l2=0.125, clipnorm=2.0)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is CoupledSGD
    assert again.get_config() == optimizer.get_config()
    assert (again.momentum, again.l2, again.clipnorm) == (0.5, 0.125, 2.0)


def test_a_saved_model_keeps_it(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(CoupledSGD(0.25, l2=0.125), "mse")
    model.fit(np.ones((5, 3)), np.ones((5, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    optimizer = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert (type(optimizer), optimizer.l2) == (CoupledSGD, 0.125)
    np.testing.assert_array_equal(optimizer.momentums[0].numpy(), model.optimizer.momentums[0].numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_decay": 0.1}, "weight_decay=0.1, Keras's decoupled decay. Use l2="),
        ({"nesterov": True}, "no Nesterov momentum"),
        ({"l2": -0.1}, "l2=-0.1. It must be 0 or more"),
        ({"l2": float("nan")}, "l2=nan"),
    ],
)
def test_options_that_would_mean_something_else_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CoupledSGD(0.1, **options)
