import keras
import numpy as np
import pytest

from selabel_tf.evaluation.layer_features import LayerFeatures
from selabel_tf.models import backbone

IMAGES = np.random.default_rng(0).normal(size=(5, 16, 16, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def trunk():
    return backbone("small_conv", (16, 16, 1))


def outputs(trunk, *names):
    return [keras.Model(trunk.input, trunk.get_layer(name).output)(IMAGES, training=False).numpy() for name in names]


def test_maps_are_averaged_vectors_are_kept_and_layers_stand_side_by_side(trunk):
    names = [trunk.layers[-1].name, trunk.layers[1].name]
    vector, maps = outputs(trunk, *names)
    assert vector.ndim == 2 and maps.ndim == 4
    features = LayerFeatures(trunk, names)
    rows = np.asarray(features(IMAGES))
    parts = features.split(rows)
    assert list(parts) == names
    np.testing.assert_allclose(parts[names[0]], vector, rtol=1e-6)
    np.testing.assert_allclose(parts[names[1]], maps.mean(axis=(1, 2)), rtol=1e-5, atol=1e-6)
    assert features.sizes == {name: part.shape[1] for name, part in parts.items()}
    assert rows.shape[1] == sum(features.sizes.values())
    assert parts[names[1]].base is not None  # no copy


def test_flat_keeps_every_value(trunk):
    name = trunk.layers[1].name
    (maps,) = outputs(trunk, name)
    features = LayerFeatures(trunk, [name], "flat")
    np.testing.assert_array_equal(features(IMAGES), maps.reshape(5, -1))
    assert features.sizes == {name: maps[0].size}


def test_a_layer_named_twice_counts_once(trunk):
    name = trunk.layers[-1].name
    assert list(LayerFeatures(trunk, [name, name]).sizes) == [name]
    assert LayerFeatures(trunk, [name, name])(IMAGES).shape[1] == LayerFeatures(trunk, [name]).sizes[name]


def test_unknown_pools_and_layers_are_refused_with_the_known_ones(trunk):
    with pytest.raises(ValueError, match=r"Unknown pool 'max'\. Available: average, flat\."):
        LayerFeatures(trunk, [trunk.layers[1].name], "max")
    with pytest.raises(ValueError, match=r"no layer 'convv1'.* Its layers: "):
        LayerFeatures(trunk, ["convv1"])
