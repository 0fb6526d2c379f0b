import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.data import from_arrays
from selabel_tf.labelling.relabel import Relabeller
from selabel_tf.models import Projection, SelfLabelModel

Z = np.random.default_rng(0).normal(1, 3, (13, 11)).astype(np.float32)
IMAGES = np.random.default_rng(1).integers(0, 256, (37, 8, 6, 1), np.uint8)


def layers_of(projection):
    """[(kernel, bias or None), ...] of the dense layers, float64."""
    dense = [step for step in projection.steps if isinstance(step, keras.layers.Dense)]
    return [[np.asarray(weight, np.float64) for weight in layer.weights] for layer in dense]


def make_model(**options):
    keras.utils.set_random_seed(3)
    trunk = keras.Sequential([keras.Input((8, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(11)], name="trunk")
    return SelfLabelModel(trunk, (3, 7), num_examples=37, projection=Projection((17, 5), 0.25), **options)


@pytest.mark.parametrize("training", [True, False])
def test_it_is_dense_layers_with_batch_norm_between_them(training):
    projection = Projection((17, 5))
    projection.build((None, 11))
    (first,), (last, bias) = layers_of(projection)
    assert bias.shape == (5,) and not bias.any()
    hidden = Z @ first
    mean, variance = (hidden.mean(axis=0), hidden.var(axis=0)) if training else (0.0, 1.0)  # as they were at first
    hidden = np.maximum((hidden - mean) / np.sqrt(variance + 1e-5), 0)
    np.testing.assert_allclose(projection(Z, training=training), hidden @ last + bias, rtol=1e-4, atol=1e-4)


def test_the_temperature_is_the_inverse_length_of_every_row():
    np.testing.assert_allclose(np.linalg.norm(Projection((), 0.2)(Z), axis=1), 5.0, rtol=1e-5)
    np.testing.assert_allclose(Projection((), 0.2)(Z), Projection((), 0.2)(7 * Z), rtol=1e-5)


def test_nothing_asked_for_is_nothing_done():
    projection = Projection()
    projection.build((None, 11))
    assert not projection.weights
    np.testing.assert_array_equal(projection(Z, training=True), Z)
    assert projection.compute_output_shape((None, 11)) == (None, 11)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"sizes": (8, 0)}, "whole numbers of at least 1"), ({"temperature": 0.0}, "expected a positive number")],
)
def test_mistakes_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        Projection(**options)


def test_sizes_may_be_numbers_of_numpy():
    assert Projection(np.array([17, 5])).get_config()["sizes"] == [17, 5]


def test_the_heads_stand_on_it_and_features_do_not():
    model = make_model()
    assert model.heads.kernel.shape == (5, 10) and model.feature_size == 11
    images = np.float32(IMAGES / 255)
    features = model.embed(images)
    assert features.shape == (37, 11)
    for ours, expected in zip(model(images), model.heads(model.projection(features)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


def test_half_precision_neither_overflows_nor_divides_by_nothing():
    layer = Projection((), 0.1, dtype="mixed_float16")
    rows = np.array([[0.0] * 2048, [6.0] * 2048, [1e-4] * 2048])  # of length 0, 272 and 0.005
    z = tf.constant(rows, tf.float16)
    with tf.GradientTape() as tape:
        tape.watch(z)
        outputs = layer(z)
        total = tf.reduce_sum(tf.cast(outputs, tf.float32)[:, 0])
    assert outputs.dtype == tf.float16
    np.testing.assert_allclose(np.linalg.norm(np.float64(outputs), axis=1), [0, 10, 10], rtol=2e-3)
    slope = tape.gradient(total, z).numpy()[:2, 0]
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(slope[1], (1 - 1 / 2048) / (0.1 * 6 * 2048**0.5), rtol=2e-3)


def test_one_that_was_frozen_stays_frozen():
    projection = Projection((17, 5))
    projection.build((None, 11))
    projection.trainable = False
    trunk = keras.Sequential([keras.Input((8, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(11)])
    assert not SelfLabelModel(trunk, (3, 7), num_examples=37, projection=projection).projection.trainable


def test_it_is_trained_by_the_labels_only():
    for objectives, changes in ((("labels",), True), (("rotation",), False)):
        keras.utils.set_random_seed(3)
        trunk = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(11)])
        model = SelfLabelModel(trunk, (3,), 37, projection=Projection((5,)), objectives=objectives)
        before = np.array(model.projection.weights[0])
        model.compile(keras.optimizers.SGD(0.1))
        images = np.float32(IMAGES[:, :6] / 255)
        model.fit(tf.data.Dataset.from_tensor_slices((images, np.arange(37))).batch(10), verbose=0)
        assert (np.array(model.projection.weights[0]) != before).any() == changes


def test_a_saved_model_has_it(tmp_path):
    model = make_model()
    model.compile("sgd")
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    images = np.float32(IMAGES / 255)
    for ours, expected in zip(again(images), model(images), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_label_passes_see_what_the_heads_see():
    """At a flat start argmax labels are those of the scores; with the projection they are its, not the features'."""
    model = make_model()
    model.heads.kernel.assign(np.random.default_rng(2).normal(size=(5, 10)))
    source = from_arrays(IMAGES)
    relabeller = Relabeller(model, source, batch_norm="inference")
    records = relabeller.run(0, [0, 1])
    logits = model(np.float32(IMAGES / 255))
    for record, scores in zip(records, logits, strict=True):
        np.testing.assert_array_equal(record.predictions, np.argmax(scores, axis=1))
