"""Labels and rotation, alone and together: which images, which loss, which weights."""

import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from selabel_tf.models.objectives import turned
from selabel_tf.models.self_label_model import SelfLabelModel

IMAGES = np.random.default_rng(0).random((37, 5, 5, 2), np.float32)
BOTH = ("labels", "rotation")


def make_model(objectives=BOTH, normalise=True):
    keras.utils.set_random_seed(5)
    layers = [keras.Input((5, 5, 2)), keras.layers.Conv2D(3, 3, activation="relu")]
    layers += [keras.layers.BatchNormalization()] * normalise
    trunk = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(11)], name="trunk")
    model = SelfLabelModel(trunk, [3, 7], 37, objectives=objectives)
    for head in (model.heads, *model.objective_heads):
        head.kernel.assign(keras.random.normal(head.kernel.shape, seed=7))  # small weights tell little apart
    return model


def batches(size=10):
    return tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(37))).batch(size)


def cross_entropy(logits, labels):
    log_p = scipy.special.log_softmax(np.asarray(logits, np.float64), axis=1)
    return -log_p[np.arange(len(labels)), labels]


def rotation_logits(model, images):
    """[n, 4] by hand."""
    head = model.objectives["rotation"].head
    return np.asarray(model.backbone(images)) @ np.asarray(head.kernel) + np.asarray(head.bias)


def label_losses(model, images):
    return np.mean([cross_entropy(z, model.labels[:, h]) for h, z in enumerate(model(images))], axis=0)


def test_turns_come_in_order_and_turning_back_gives_the_image():
    four = turned(tf.constant(IMAGES), 4).numpy().reshape(4, 37, 5, 5, 2)
    np.testing.assert_array_equal(four[0], IMAGES)
    for turn in range(4):
        np.testing.assert_array_equal(four[turn], np.rot90(IMAGES, turn, axes=(1, 2)))
        np.testing.assert_array_equal(np.rot90(four[turn], -turn, axes=(1, 2)), IMAGES)
    assert not np.array_equal(four[1], four[3])  # which way round matters


def test_the_rotation_loss_is_the_mean_over_four_turns_labelled_0_to_3():
    model = make_model()
    values = model.judge(tf.constant(IMAGES), tf.range(37))
    by_turn = [rotation_logits(model, np.rot90(IMAGES, turn, axes=(1, 2))) for turn in range(4)]
    losses = np.mean([cross_entropy(z, np.full(37, turn)) for turn, z in enumerate(by_turn)], axis=0)
    right = np.mean([z.argmax(1) == turn for turn, z in enumerate(by_turn)], axis=0)
    np.testing.assert_allclose(values["rotation_loss"], losses, rtol=1e-4)
    np.testing.assert_allclose(values["rotation_accuracy"], right)


def test_the_label_loss_is_taken_on_the_upright_image_only():
    model = make_model()
    values = model.judge(tf.constant(IMAGES), tf.range(37))
    np.testing.assert_allclose(values["labels_loss"], label_losses(model, IMAGES), rtol=1e-4)
    for turn in (1, 2, 3):  # the wrong choice would be seen
        turned_losses = label_losses(model, np.rot90(IMAGES, turn, axes=(1, 2)))
        assert np.abs(values["labels_loss"] - turned_losses).max() > 0.1
        assert abs(np.mean(values["labels_loss"]) - turned_losses.mean()) > 1e-3
    np.testing.assert_allclose(values["loss"], values["labels_loss"] + values["rotation_loss"], rtol=1e-6)


def test_batch_norm_in_training_sees_all_four_turns_at_once():
    model = make_model()
    values = model.judge(tf.constant(IMAGES), tf.range(37), training=True)
    z = model.backbone(turned(tf.constant(IMAGES), 4), training=True)  # [148, 11] by the statistics of all
    logits = model.heads(z[:37])
    expected = np.mean([cross_entropy(scores, model.labels[:, h]) for h, scores in enumerate(logits)], axis=0)
    np.testing.assert_allclose(values["labels_loss"], expected, rtol=1e-4)


def test_fit_and_evaluate_log_every_measure_over_uneven_batches():
    model = make_model(normalise=False)
    model.compile(keras.optimizers.SGD(0.0))
    expected = {k: np.mean(v) for k, v in model.judge(tf.constant(IMAGES), tf.range(37)).items()}
    assert list(expected) == ["loss", "labels_loss", "rotation_loss", "rotation_accuracy"]
    assert [metric.name for metric in model.metrics] == list(expected)
    history = model.fit(batches(), shuffle=False, verbose=0, validation_data=batches(7)).history
    evaluated = model.evaluate(batches(), verbose=0, return_dict=True)
    for name, value in expected.items():
        np.testing.assert_allclose([history[name][0], history[f"val_{name}"][0], evaluated[name]], value, rtol=1e-5)


def test_a_training_step_is_gradient_descent_on_the_sum_of_both_losses():
    model = make_model()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model.judge(tf.constant(IMAGES), tf.range(37), training=True)["loss"])
    gradients = tape.gradient(loss, model.trainable_variables)
    expected = [np.array(w) - 0.5 * np.array(g) for w, g in zip(model.trainable_variables, gradients, strict=True)]
    model.compile(keras.optimizers.SGD(0.5))
    model.fit(batches(37), shuffle=False, verbose=0)
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable, value, atol=1e-5)


def test_rotation_alone_learns_to_tell_turns_apart_and_leaves_the_heads():
    ramp = np.linspace(0, 1, 5, dtype=np.float32)[None, :, None, None]
    images = 0.1 * IMAGES + ramp  # dark above, bright below: which way up is plain to see
    model = make_model(["rotation"], normalise=False)
    heads = [np.array(weight) for weight in model.heads.weights]
    assert [metric.name for metric in model.metrics] == ["loss", "rotation_accuracy"]
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9))
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(37))).batch(10)
    history = model.fit(data, epochs=12, shuffle=False, verbose=0).history
    assert history["rotation_accuracy"][-1] > 0.9 > history["rotation_accuracy"][0]
    assert len(model.trainable_variables) == len(model.backbone.trainable_variables) + 2
    for weight, before in zip(model.heads.weights, heads, strict=True):
        np.testing.assert_array_equal(weight, before)
    beyond = tf.data.Dataset.from_tensor_slices((images[:5], np.arange(100, 105))).batch(5)
    assert model.evaluate(beyond, verbose=0, return_dict=True)["rotation_accuracy"] > 0.8  # needs no labels


def test_two_replicas_agree_with_one_on_uneven_batches(two_replicas):
    def trained(strategy):
        with strategy.scope():
            model = make_model(normalise=False)
            model.compile(keras.optimizers.SGD(0.1))
        history = model.fit(batches(10), epochs=2, shuffle=False, verbose=0).history  # the last 7 are 4 and 3
        return history, [np.array(v) for v in model.trainable_variables]

    (one, ours), (two, theirs) = trained(tf.distribute.get_strategy()), trained(two_replicas)
    for name, values in one.items():
        np.testing.assert_allclose(two[name], values, rtol=1e-4, err_msg=name)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_a_saved_model_comes_back_with_its_rotation_head(tmp_path):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    model.fit(batches(), shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert list(again.objectives) == list(BOTH)
    for ours, theirs in zip(model.variables, again.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(rotation_logits(again, IMAGES), rotation_logits(model, IMAGES))


def test_mixed_float16_keeps_the_loss_in_float32():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make_model()
        model.compile(keras.optimizers.SGD(0.01))
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.judge(tf.constant(IMAGES), tf.range(37))["rotation_loss"].dtype == tf.float32
    assert np.isfinite(model.fit(batches(37), shuffle=False, verbose=0).history["loss"][0])


def test_images_that_are_not_square_cannot_be_turned():
    trunk = keras.Sequential([keras.Input((8, 6, 1)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="needs square ones, got 8 x 6"):
        SelfLabelModel(trunk, [3], 37, objectives=BOTH)


@pytest.mark.parametrize("names", [(), ("labels", "labels"), "rotations"])
def test_objectives_are_known_and_named_once(names):
    with pytest.raises(ValueError, match="expected one or more of labels, rotation, each once"):
        make_model(names)
