"""The comparison with Keras, its bounds, and the files it runs."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.export import keras_file, parity, runtimes, saved_model, tflite
from selabel_tf.export.parity import Bounds, Parity, bounds, row_cosines


def batches_of(images, size=5):
    return tf.data.Dataset.from_tensor_slices((images, np.arange(len(images)))).batch(size)


def found(**changes):
    values = {"num_images": 7, "largest_difference": 1e-6, "smallest_cosine": 0.9999, "mean_cosine": 1.0, "bytes": 11}
    return Parity(**values | changes)


@pytest.mark.parametrize("form", [saved_model, keras_file, tflite])
def test_every_file_agrees_with_keras(network, images_for, form, tmp_path):
    images = images_for(network)
    folder = form.export(network, tmp_path)
    measured = parity.measure(folder, network.backbone, batches_of(images), len(images), timed=False)
    assert measured.num_images == 23
    assert measured.breaches(bounds()) == []
    assert measured.largest_difference < 1e-4
    assert measured.smallest_cosine > 1 - 1e-6


ONE_THREAD = """
import sys, keras, numpy as np, selabel_tf as sl, tensorflow as tf
from selabel_tf.export import keras_file, parity, saved_model
model = sl.SelfLabelModel(sl.backbone("small_conv", (13, 11, 1)), num_clusters=[3], num_examples=5)
images = tf.data.Dataset.from_tensor_slices((np.ones((5, 13, 11, 1), np.float32), np.arange(5))).batch(2)
for form in (keras_file, saved_model):
    folder = form.export(model, sys.argv[1] + form.__name__)
    print(parity.measure(folder, model.backbone, images, 5, timed=False).num_images)
"""


def test_a_machine_of_one_core_compares_too(tmp_path):
    """A compiled function that waits for another one waits for ever where there is one thread to run both."""
    environment = {**os.environ, "TF_NUM_INTEROP_THREADS": "1"}
    command = [sys.executable, "-c", ONE_THREAD, str(tmp_path / "a")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.stdout == "5\n5\n", done.stderr


def test_differences_are_those_computed_by_hand(networks, images_for, tmp_path, monkeypatch):
    model = networks["small_conv"]
    images = images_for(model, 7)
    folder = keras_file.export(model, tmp_path)
    ours = model.embed(images)
    theirs = ours.copy()
    theirs[4, 2] += 0.5
    theirs[1] *= -1
    rows = {image.tobytes(): row for image, row in zip(images, theirs, strict=True)}
    monkeypatch.setattr(
        runtimes, "load", lambda folder: lambda batch: {"features": np.stack([rows[i.tobytes()] for i in batch])}
    )
    told = []
    measured = parity.measure(
        folder, model.backbone, batches_of(images), 7, knn=lambda f: float(f[4, 2]), timed=False, on_batch=told.append
    )
    assert measured.largest_difference == pytest.approx(np.abs(theirs - ours).max() / np.abs(ours).max(), rel=1e-4)
    assert measured.smallest_cosine == pytest.approx(-1)
    assert measured.knn_file - measured.knn_keras == pytest.approx(0.5, rel=1e-4)
    assert told == [5, 7, 12, 14]
    assert measured.bytes == (folder / "backbone.keras").stat().st_size


def test_cosines_of_rows_by_hand():
    f = [[3.0, 4], [0, 0], [0, 0], [1, 0]]
    g = [[6.0, 8], [0, 0], [1, 1], [0, 2]]
    np.testing.assert_allclose(row_cosines(f, g), [1, 1, 0, 0])


@pytest.mark.parametrize(
    "measured, limit, text",
    [
        ({"largest_difference": 2e-4}, bounds("none"), "largest difference 0.0002, allowed 0.0001"),
        ({"largest_difference": float("nan")}, bounds("none"), "largest difference nan"),
        ({"smallest_cosine": 0.9998}, bounds("float16"), "smallest cosine 0.999800, needed 0.9999"),
        ({"smallest_cosine": 0.97}, bounds("int8"), "smallest cosine 0.970000, needed 0.98"),
        ({"knn_keras": 0.52, "knn_file": 0.509}, bounds("int8"), "kNN accuracy 50.90% against 52.00%"),
        ({"bytes": 31 * 2**20, "float_bytes": 100 * 2**20}, bounds("int8"), "0.310 of the float file's size"),
        ({"smallest_cosine": 0.97}, bounds("dynamic"), "smallest cosine"),
    ],
)
def test_a_passed_bound_is_named(measured, limit, text):
    (breach,) = found(**measured).breaches(limit)
    assert text in breach


def test_what_keeps_the_bounds_is_not_blamed():
    good = found(smallest_cosine=0.9999, knn_keras=0.51, knn_file=0.52, bytes=3 * 2**20, float_bytes=10 * 2**20)
    assert [good.breaches(bounds(quantize)) for quantize in parity.BOUNDS] == [[]] * 4
    assert found(bytes=9, float_bytes=10).breaches(bounds("int8")) == []  # too small for its weights to matter
    assert found(largest_difference=9).breaches(Bounds()) == []
    assert bounds("none", "mixed_float16") == bounds("float16")


def test_the_report_is_plain_json():
    facts = json.loads(json.dumps(found(float_bytes=22).facts()))
    assert (facts["share_of_float"], facts["knn_file"]) == (0.5, None)


@pytest.mark.parametrize("write", [saved_model.export, keras_file.export, lambda *to: tflite.export(*to, batch=3)])
def test_a_file_is_timed_in_a_process_of_its_own_without_this_package(networks, tmp_path, write):
    folder = write(networks["small_conv"], tmp_path)
    assert 0 < runtimes.seconds_per_image(folder, (13, 11, 1), threads=1) < 10


def test_a_file_that_does_not_run_is_an_error(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"nothing")
    with pytest.raises(RuntimeError, match="does not run in a process of its own"):
        runtimes.seconds_per_image(tmp_path, (13, 11, 1), threads=1)


def test_a_folder_without_an_export_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no export"):
        runtimes.load(tmp_path)


def test_images_of_a_wrong_size_are_refused(networks, tmp_path):
    run = runtimes.load(tflite.export(networks["small_conv"], tmp_path))
    with pytest.raises(ValueError, match=r"takes images \[13, 11, 1\], got \[11, 13, 1\]"):
        run(np.zeros((2, 11, 13, 1), np.float32))
