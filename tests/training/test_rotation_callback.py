"""The rotation of held-out images is judged after every epoch."""

import json

import keras
import numpy as np
import tensorflow as tf

from selabel_tf.data import from_arrays
from selabel_tf.models import SelfLabelModel
from selabel_tf.training.rotation_callback import RotationCallback
from selabel_tf.training.run_log import RunLog

IMAGES = np.random.default_rng(0).random((31, 5, 5, 3), np.float32)


def test_held_out_images_are_judged_at_four_turns_and_logged(tmp_path, monkeypatch):
    monkeypatch.setattr(RotationCallback, "IMAGES", 13)
    trunk = keras.Sequential([keras.Input((5, 5, 3)), keras.layers.Flatten(), keras.layers.Dense(7)])
    model = SelfLabelModel(trunk, [3], 17, objectives=["rotation"])
    model.compile(keras.optimizers.SGD(0.1))
    callback = RotationCallback(from_arrays(IMAGES))
    train = from_arrays(IMAGES[:17]).train_batches(17)
    with RunLog(tmp_path) as log:
        callback.log = log
        model.fit(train, epochs=2, verbose=0, shuffle=False, callbacks=[callback])
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(r["kind"], r["step"], r["epoch"]) for r in records] == [("rotation", 1, 1), ("rotation", 2, 2)]
    rows = np.arange(13) * 31 // 13  # evenly spread
    expected = model.judge(tf.constant(IMAGES[rows]), tf.range(13))
    np.testing.assert_allclose(records[-1]["accuracy"], np.mean(expected["rotation_accuracy"]), atol=1e-6)
    np.testing.assert_allclose(records[-1]["loss"], np.mean(expected["loss"]), rtol=1e-5)
