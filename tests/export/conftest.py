"""Two small networks to export, with BatchNorm statistics as after training, and images for them."""

import keras
import numpy as np
import pytest

from selabel_tf.models import SelfLabelModel, backbone

SHAPES = {"small_conv": (13, 11, 1), "resnet18_cifar": (17, 17, 3)}


def make_network(name, image_shape, **options):
    """A SelfLabelModel whose BatchNorm has seen images; without that it would hardly normalise."""
    keras.utils.set_random_seed(3)
    model = SelfLabelModel(backbone(name, image_shape, **options), [3, 5], num_examples=31)
    model.heads.kernel.assign(np.random.default_rng(5).normal(size=model.heads.kernel.shape) / 7)
    for seed in range(3):
        model.backbone(make_images(image_shape, 19, seed), training=True)
    return model


def make_images(image_shape, count, seed=7):
    """Smooth prepared images float32 [count, h, w, c]: noise of 4x4, enlarged."""
    coarse = np.random.default_rng(seed).normal(size=(count, 4, 4, image_shape[2])).astype(np.float32)
    return np.asarray(keras.ops.image.resize(coarse, image_shape[:2], data_format="channels_last"))


@pytest.fixture(scope="session")
def networks():
    """name -> SelfLabelModel; to be read only."""
    options = {"small_conv": {}, "resnet18_cifar": {"width": 8}}
    return {name: make_network(name, shape, **options[name]) for name, shape in SHAPES.items()}


@pytest.fixture(params=SHAPES)
def network(request, networks):
    return networks[request.param]


@pytest.fixture(scope="session")
def images_for():
    """A function: model, count -> prepared images."""
    return lambda model, count=23, seed=7: make_images(model.image_shape, count, seed)


@pytest.fixture(scope="session")
def network_of():
    """make_network, for tests that need another one."""
    return make_network
