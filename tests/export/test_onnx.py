"""ONNX, run by onnxruntime."""

import importlib.util

import numpy as np
import pytest

from selabel_tf.export import onnx, runtimes

installed = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in onnx.NEEDED),
    reason="the extra 'onnx' is not installed",
)


@installed
def test_onnxruntime_gives_the_features_of_keras(network, images_for, tmp_path):
    folder = onnx.export(network, tmp_path)
    run = runtimes.load(folder, threads=1)
    for count in (1, 23):
        images = images_for(network, count)
        expected = network.embed(images)
        np.testing.assert_allclose(run(images)["features"], expected, atol=1e-4 * np.abs(expected).max())
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.onnx"]


def test_without_the_extra_it_says_what_to_install(networks, tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tf2onnx" else real(name))
    with pytest.raises(ValueError, match=r"needs .*tf2onnx.*pip install 'selabel_tf\[onnx\]'"):
        onnx.export(networks["small_conv"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
