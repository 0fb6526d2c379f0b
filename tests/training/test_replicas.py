"""One and two replicas train alike: with synchronized BatchNorm, without dropout, uneven last batch included."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.data import digits
from selabel_tf.labelling.relabel import Relabeller
from selabel_tf.models import Projection, SelfLabelModel, backbone
from selabel_tf.training import CoupledSGD, SelfLabelCallback, checkpoints

N = 111  # batches of 20, the last of eleven images: six for one replica, five for the other
EPOCHS = 4  # 24 steps


@pytest.fixture(scope="module", params=["the method", "soft labels, projection, small crops"])
def results(request, two_replicas):
    plain = request.param == "the method"
    return [train(strategy, plain) for strategy in (tf.distribute.get_strategy(), two_replicas)]


def train(strategy, plain):
    source = digits().subset(range(N))
    if not plain:
        source = source.augmented("crop_flip").with_small_crops(2, 8)
    # float64: in float32 the order of sums, which depends on the number of cores, grows to visible size in 20 steps
    keras.config.set_dtype_policy("float64")
    try:
        with strategy.scope():
            keras.utils.set_random_seed(3)
            name, options = ("small_conv", {}) if plain else ("resnet18_cifar", {"width": 2})
            trunk = backbone(name, (16, 16, 1), synchronized=True, **options)
            extra = {} if plain else {"projection": Projection((12, 6), 0.2, synchronized=True), "spread": 3}
            model = SelfLabelModel(trunk, [5, 7], N, **extra)
            model.compile(CoupledSGD(0.01, momentum=0.9, l2=5e-4))
    finally:
        keras.config.set_dtype_policy("float32")
    passes, losses, labels = [], [], []

    def tell(label_pass):
        passes.append(label_pass)
        labels.append(model.labels)

    each_batch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: losses.append(float(logs["loss"])))
    callback = SelfLabelCallback(source, 3, schedule="linear", tolerance=1e-6, on_label_pass=tell)
    callbacks = [callback, each_batch]
    history = model.fit(source.train_batches(20), epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)
    weights = {w.path: w.numpy() for w in trunk.weights + model.heads.weights}
    return {
        "weights": list(weights.values()),
        "labels": labels,
        "loss": history.history["loss"],
        "losses": losses,
        "passes": passes,
        "evaluated": model.evaluate(source.plain_batches(20), verbose=0),
        "model": model,
    }


def test_weights_agree(results):
    one, two = (r["weights"] for r in results)
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-4)


def test_the_labels_of_every_pass_agree(results):
    for one, two in zip(results[0]["labels"], results[1]["labels"], strict=True):
        assert one.shape == (N, 2) and (one == two).mean() >= 0.999  # of 222: all of them


def test_logged_losses_agree(results):
    for what in ("loss", "losses", "evaluated"):  # of epochs, of every step with its uneven batches, at the end
        np.testing.assert_allclose(results[0][what], results[1][what], atol=1e-5, rtol=0)


def test_label_passes_agree(results):
    assert [p.step for p in results[0]["passes"]] == [p.step for p in results[1]["passes"]] == [0, 8, 16]
    for one, two in zip(results[0]["passes"], results[1]["passes"], strict=True):
        for ours, theirs in zip(one.heads, two.heads, strict=True):
            np.testing.assert_allclose(ours.objective_before, theirs.objective_before, rtol=1e-4)


def test_both_really_learned(results):
    losses = results[0]["loss"]
    assert losses[-1] < losses[0]


def test_a_model_trained_on_two_replicas_saves_and_loads_on_one(results, tmp_path):
    model = results[1]["model"]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.labels, model.labels)


def test_labels_by_moving_statistics_are_the_same_after_a_restore(two_replicas, tmp_path):
    """With BatchNorm of its own on each replica: an image goes through the statistics that were saved."""
    source = digits().subset(range(47))

    def make():
        with two_replicas.scope():
            keras.utils.set_random_seed(3)
            model = SelfLabelModel(backbone("small_conv", (16, 16, 1)), [3, 4], 47, projection=Projection((5, 3)))
            model.compile(CoupledSGD(0.05))
            model.optimizer.build(model.trainable_variables)
        return model

    trained, restored = make(), make()
    trained.fit(source.train_batches(8), shuffle=False, epochs=2, verbose=0, callbacks=[SelfLabelCallback(source, 0)])
    checkpoints.restore(checkpoints.save(tmp_path, trained, {"step": 12, "label_passes": 0}), restored)
    for model in (trained, restored):
        Relabeller(model, source, batch_norm="inference", batch_size=16).run(0, [0, 1])
    np.testing.assert_array_equal(trained.labels, restored.labels)
