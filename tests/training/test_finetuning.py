"""Fine-tuning on a few digits: it learns, it repeats, it goes on after a kill, on one replica and on two."""

from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.data import digits
from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.evaluation.probe_training import Schedule
from selabel_tf.models import backbone
from selabel_tf.models.loss_scale import SharedLossScaleOptimizer
from selabel_tf.training import finetuning
from selabel_tf.training.finetuning import SCHEDULES, Cosine, Recipe, finetune, scores
from selabel_tf.training.label_tasks import SingleLabel
from selabel_tf.training.trained_run import load_run

SHORT = Schedule(0.1, 0.1, (5,), epochs=6, batch_size=26, l2=1e-3)


@pytest.fixture(scope="module")
def given(finished_run):
    """A run, 130 digits to train on, 47 to test on."""
    source = digits().subset(range(177)).augmented("digits")
    train, test = source.subset(range(130)), source.subset(range(130, 177))
    return SimpleNamespace(run=load_run(finished_run), train=train, test=test, task=SingleLabel(train, test))


def tuned(given, recipe=None, **options):
    return finetune(given.run, given.train, given.task, recipe or Recipe(SHORT), **options)


@pytest.fixture(scope="module")
def whole(given):
    """One that ran through."""
    return tuned(given, seed=5)


def test_it_learns_the_classes(given, whole):
    rows = given.task.judge(scores(whole, given.test, batch_size=20))
    assert rows[0]["top1"] > 0.5  # 0.1 is chance
    assert rows[0]["top5"] >= rows[0]["top1"]


def test_another_seed_ends_elsewhere(given, whole):
    other = tuned(given, Recipe(SHORT, layers="1"), seed=6)
    assert np.abs(other.get_layer("conv5").kernel - whole.get_layer("conv5").kernel.numpy()).max() > 1e-3


class Killed(Exception):
    pass


class KillAfter(keras.callbacks.Callback):
    """Stops in the middle of an epoch."""

    def __init__(self, epochs):
        super().__init__()
        self.epochs, self.seen = epochs, 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if self.seen == 5 * self.epochs + 2:
            raise Killed


def test_one_that_was_killed_goes_on_and_ends_as_one_that_ran_through(given, whole, tmp_path):
    said = []
    unfinished = UnfinishedProbe(tmp_path / "state", {"seed": 5}, said.append, what="fine-tuning")
    with pytest.raises(Killed):
        tuned(given, seed=5, unfinished=unfinished, save_every=2, callbacks=[KillAfter(5)])
    assert said == []
    epochs = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    resumed = tuned(given, seed=5, unfinished=unfinished, callbacks=[count])
    assert said == ["Going on with an unfinished fine-tuning, 4 done."]
    assert epochs == [4, 5]
    for here, there in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, atol=1e-6)  # equal bits under op determinism: test_tools_finetune


def test_one_and_two_replicas_agree(given, two_replicas):
    recipe = Recipe(replace(SHORT, epochs=1), batch_norm="inference")  # BatchNorm sees each replica's own images
    one, two = (tuned(given, recipe, seed=3, strategy=s) for s in (tf.distribute.get_strategy(), two_replicas))
    for here, there in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, atol=2e-4)
    found = [scores(model, given.test, batch_size=20) for model in (one, two)]
    np.testing.assert_allclose(*found, atol=1e-2)
    with pytest.raises(ValueError, match="batch_size=25 does not divide over 2 replicas"):
        tuned(given, Recipe(replace(SHORT, batch_size=25)), strategy=two_replicas)


def test_half_precision_scales_the_loss_and_shares_overflows(given, two_replicas):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        run = SimpleNamespace(model=SimpleNamespace(backbone=backbone("small_conv", (16, 16, 1))))
    finally:
        keras.config.set_dtype_policy("float32")
    model = finetune(run, given.train, given.task, Recipe(replace(SHORT, epochs=1)), strategy=two_replicas)
    assert type(model.optimizer) is SharedLossScaleOptimizer
    assert int(model.optimizer.inner_optimizer.iterations.numpy()) == 5
    assert model.optimizer.inner_optimizer.l2 == SHORT.l2


def test_random_weights_are_of_the_seed_and_not_of_the_run(given):
    run = given.run
    assert finetuning.starting_backbone(run, "trained", 5) is run.model.backbone
    drawn, again, other = (finetuning.starting_backbone(run, "random", seed).get_weights() for seed in (5, 5, 6))
    np.testing.assert_array_equal(drawn[0], again[0])
    assert (drawn[0] != other[0]).any() and (drawn[0] != run.model.backbone.get_weights()[0]).any()
    untouched = run.untrained_model().backbone.get_weights()  # the run's seed is 0
    np.testing.assert_array_equal(finetuning.starting_backbone(run, "random", 0).get_weights()[0], untouched[0])


def test_frozen_random_weights_are_a_baseline_too(given):
    recipe = Recipe(replace(SHORT, epochs=1), layers="classifier", weights="random")
    model = tuned(given, recipe, seed=5)
    np.testing.assert_array_equal(
        model.get_layer("conv1").kernel, finetuning.starting_backbone(given.run, "random", 5).get_layer("conv1").kernel
    )


def test_ten_crops_are_averaged(given, whole):
    rows = scores(whole, given.test, crops=10, batch_size=23)
    crops = np.concatenate([crops for crops, _ in given.test.ten_crop_batches(47)])  # [47, 10, 16, 16, 1]
    expected = np.stack([whole(ten, training=False).numpy().mean(axis=0) for ten in crops[:3]])
    np.testing.assert_allclose(rows[:3], expected, atol=1e-4)
    with pytest.raises(ValueError, match="crops=5 is not known"):
        scores(whole, given.test, crops=5)


def test_the_cosine_goes_from_the_learning_rate_to_zero():
    cosine = Cosine(0.4, 1.0, (), epochs=8, batch_size=1, l2=0.0)
    assert cosine.at_epoch(0) == 0.4
    assert cosine.at_epoch(4) == pytest.approx(0.2)
    assert cosine.at_epoch(8) == pytest.approx(0.0)
    assert isinstance(cosine.of_length(3), Cosine) and cosine.of_length(16).at_epoch(8) == pytest.approx(0.2)


def test_schedules_for_pascal_voc_have_the_steps_of_their_source():
    for name, steps, halvings in (("voc_fc6-8", 80_000, 5_000), ("voc_all", 150_000, 20_000)):
        schedule = SCHEDULES[name]
        per_epoch = 5011 / schedule.batch_size
        assert schedule.epochs * per_epoch == pytest.approx(steps, rel=0.01)
        assert schedule.drops[0] * per_epoch == pytest.approx(halvings, rel=0.01)
        assert np.all(np.diff(schedule.drops) == schedule.drops[0])
        assert schedule.at_epoch(schedule.epochs - 1) == pytest.approx(
            schedule.learning_rate * 0.5 ** (steps // halvings - (steps % halvings == 0))
        )


def test_few_images_get_more_epochs_and_a_smaller_batch():
    recipe = Recipe(SHORT, min_steps=11)
    assert recipe.schedule_for(130).epochs == 6  # 30 steps
    assert recipe.schedule_for(40) == replace(SHORT, epochs=11, drops=(9,))  # one step an epoch
    tiny = recipe.schedule_for(7)
    assert (tiny.batch_size, tiny.epochs) == (7, 11)


def test_a_loss_that_is_no_number_stops_the_training(given):
    with pytest.raises(ValueError, match=r"The loss is (nan|inf) after epoch 1: training has diverged"):
        tuned(given, Recipe(replace(SHORT, learning_rate=1e30)))


def test_mistakes_are_explained(given):
    with pytest.raises(ValueError, match=r"weights='imagenet' is unknown. Use trained or random"):
        Recipe(SHORT, weights="imagenet")
    with pytest.raises(ValueError, match="random weights have none"):
        Recipe(SHORT, weights="random", batch_norm="inference")
    with pytest.raises(ValueError, match="targets for 130 images and digits has 31"):
        finetune(given.run, given.train.subset(range(31)), given.task, Recipe(SHORT))
