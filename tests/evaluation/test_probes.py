"""Linear probes on digits: against scikit-learn, against each other, and cut short."""

from dataclasses import replace
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from selabel_tf.data import digits
from selabel_tf.evaluation import logistic, pooled_layers, probe_training, probes
from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.features import extract
from selabel_tf.models import backbone
from selabel_tf.training.sgd import CoupledSGD

LAYERS = ["conv2_relu", "flatten"]  # 8x8x64, pooled here to 3x3x64, and a vector of 512
SHORT = probe_training.Schedule(0.03, 0.2, (3, 4), epochs=5, batch_size=101, l2=1e-4)


@pytest.fixture(scope="module")
def examined():
    """Digits split into train and test, an untrained network, and the features of both under its two layers."""
    keras.utils.set_random_seed(0)
    source = digits()
    kept, held = probes.held_out_fifth(source.classes, seed=3)
    train, test = source.subset(kept), source.subset(held)
    trunk = backbone("small_conv", (16, 16, 1))
    pooled = pooled_layers.of_layers(trunk, LAYERS, max_features=600)
    rows = [extract(pooled.trunk, s.plain_batches(499), s.num_examples) for s in (train, test)]
    return SimpleNamespace(train=train, test=test, backbone=trunk, pooled=pooled, train_rows=rows[0], test_rows=rows[1])


@pytest.fixture
def stored(examined):
    return probe_training.StoredFeatures(examined.train_rows, examined.train.classes)


def optimizer():
    return CoupledSGD(SHORT.learning_rate, momentum=0.9, l2=SHORT.l2)


def weights_of(linear):
    return {tap.layer: linear.heads.get_layer(tap.layer).get_weights() for tap in linear.taps}


def scikit_learns_accuracy(linear, examined, layer, l2):
    """Of LogisticRegression on the rows that the probe of `layer` sees."""
    rows, unseen = (
        linear.normalised(part, layer).astype(np.float64) for part in (examined.train_rows, examined.test_rows)
    )
    model = LogisticRegression(C=1 / (len(rows) * l2), max_iter=2000).fit(rows, examined.train.classes)
    return model.score(unseen, examined.test.classes)


@pytest.fixture(scope="module")
def trained(examined):
    """Probes after a schedule of the paper's shape; its own is too short for 1,438 images."""
    linear = probes.Probes(examined.pooled, 10)
    schedule = replace(probe_training.SCHEDULES["paper"], learning_rate=0.05, batch_size=64)
    of_train = probe_training.StoredFeatures(examined.train_rows, examined.train.classes)
    history = probe_training.by_sgd(linear, of_train, schedule, CoupledSGD(momentum=0.9, l2=0.01))
    return linear, history.history


def test_gradient_descent_comes_close_to_scikit_learn(trained, examined):
    linear, _ = trained
    rows = probes.evaluate(linear, examined.test, batch_size=97)
    assert [(row["layer"], row["features"]) for row in rows] == [("conv2_relu", 576), ("flatten", 512)]
    for row in rows:  # 359 images: two points are seven of them
        assert abs(row["top1"] - scikit_learns_accuracy(linear, examined, row["layer"], l2=0.01)) <= 0.02
        assert 0.9 < row["top1"] < row["top5"] <= 1


def test_the_history_has_both_accuracies_of_every_layer(trained):
    _, history = trained
    assert {f"{layer}_top{k}" for layer in LAYERS for k in (1, 5)} | {"loss"} <= set(history)
    assert len(history["loss"]) == 36
    assert history["loss"][-1] < history["loss"][0]


def test_l_bfgs_finds_scikit_learns_probabilities():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(211, 13))
    classes = (features[:, :5] + rng.normal(size=(211, 5))).argmax(axis=1)
    result = logistic.solve(features, classes, 5, l2=0.003, tolerance=1e-6)
    theirs = LogisticRegression(C=1 / (211 * 0.003), tol=1e-9, max_iter=5000).fit(features, classes)
    assert result.converged
    np.testing.assert_allclose(result.weights.T, theirs.coef_, atol=2e-3)
    logits = features @ result.weights + result.bias
    ours = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs.predict_proba(features), atol=1e-3)
    loss = -np.log(theirs.predict_proba(features)[np.arange(211), classes]).mean() + 0.0015 * np.sum(theirs.coef_**2)
    assert result.loss == pytest.approx(loss, abs=1e-6)


def test_l_bfgs_says_when_it_was_stopped_early_and_counts_its_iterations():
    rng = np.random.default_rng(0)
    told = []
    result = logistic.solve(
        rng.normal(size=(97, 7)), rng.integers(0, 3, 97), 3, max_iterations=3, on_iteration=told.append
    )
    assert told == [1, 2, 3] and result.num_iterations == 3
    assert not result.converged and result.gradient > 1e-5


@pytest.mark.parametrize(
    "features, classes, l2, complaint",
    [
        (np.ones((5, 3)), np.zeros(5, int), 0.0, "l2=0.0 must be positive"),
        (np.ones((5, 3)), np.zeros(4, int), 0.1, r"features \(5, 3\) and classes \(4,\)"),
        (np.ones((5, 3)), np.full(5, 2), 0.1, r"must lie in 0\.\.1"),
        (np.ones((5, 3), int), np.zeros(5, int), 0.1, "features are int64, expected float32 or float64"),
    ],
)
def test_l_bfgs_refuses_what_has_no_answer(features, classes, l2, complaint):
    with pytest.raises(ValueError, match=complaint):
        logistic.solve(features, classes, 2, l2=l2)


def test_probes_by_l_bfgs_reach_scikit_learn_and_are_the_same_every_time(examined, stored):
    both = [probes.Probes(examined.pooled, 10) for _ in range(2)]
    results = [probe_training.by_lbfgs(linear, stored, l2=0.01) for linear in both]
    assert [result.converged for result in results[0].values()] == [True, True]
    for layer in LAYERS:
        np.testing.assert_array_equal(*(weights_of(linear)[layer][0] for linear in both))
    for row in probes.evaluate(both[0], examined.test):
        expected = scikit_learns_accuracy(both[0], examined, row["layer"], l2=0.01)
        assert abs(row["top1"] - expected) <= 0.003  # one image of 359


def test_probes_trained_together_are_as_each_would_be_alone(examined, stored):
    together = probes.Probes(examined.pooled, 10)
    probe_training.by_sgd(together, stored, SHORT, optimizer())
    for tap, columns in together.columns():
        alone = probes.Probes(pooled_layers.of_layers(examined.backbone, [tap.layer], max_features=600), 10)
        part = probe_training.StoredFeatures(stored.features[:, columns], stored.classes)
        probe_training.by_sgd(alone, part, SHORT, optimizer())
        for here, there in zip(weights_of(together)[tap.layer], weights_of(alone)[tap.layer], strict=True):
            np.testing.assert_allclose(here, there, atol=1e-5)
            assert np.abs(here).max() > 1e-3


def test_statistics_are_exact_and_one_per_channel(examined, stored):
    linear = probes.Probes(examined.pooled, 10)
    linear.fix_statistics(stored.features)
    maps = stored.features[:, :576].astype(np.float64).reshape(-1, 64)
    norm = linear.heads.get_layer("conv2_relu_normalised")
    np.testing.assert_allclose(norm.moving_mean, maps.mean(axis=0), rtol=1e-5)
    varies = maps.var(axis=0) > 0
    np.testing.assert_allclose(norm.moving_variance, np.where(varies, maps.var(axis=0), 1), rtol=1e-4)
    deviation = np.where(maps.std(axis=0) > 0, maps.std(axis=0), 1)
    rows = linear.normalised(stored.features, "conv2_relu")
    np.testing.assert_allclose(rows, ((maps - maps.mean(axis=0)) / deviation).reshape(-1, 576), atol=1e-3)


def test_vectors_are_standardised_as_scikit_learn_does_it_and_constant_ones_become_zero(examined, stored):
    features = stored.features.copy()
    features[:, 577] = 0.1
    features[:, 578] *= 1e-4
    linear = probes.Probes(examined.pooled, 10)
    linear.fix_statistics(features)
    expected = StandardScaler().fit_transform(features[:, 576:].astype(np.float64))
    np.testing.assert_allclose(linear.normalised(features, "flatten"), expected, atol=2e-3)
    outputs = keras.Model(linear.heads.input, linear.heads.get_layer("flatten_flat").output)(features, training=True)
    np.testing.assert_allclose(outputs, expected, atol=2e-3)


def test_features_that_are_no_numbers_are_refused(examined, stored):
    features = stored.features.copy()
    features[7, 600] = np.nan
    with pytest.raises(ValueError, match="features of flatten hold NaN"):
        probes.Probes(examined.pooled, 10).fix_statistics(features)


def test_a_loss_that_is_no_number_ends_the_training(examined, stored):
    linear = probes.Probes(examined.pooled, 10)
    schedule = probe_training.Schedule(1e38, 1.0, (), epochs=3, batch_size=101, l2=0.0)
    with pytest.raises(ValueError, match=r"loss is (nan|inf) after epoch 1: their training has diverged"):
        probe_training.by_sgd(linear, stored, schedule, CoupledSGD())


def test_augmented_images_train_the_probes_through_a_trunk_that_stays_as_it_is(examined):
    linear = probes.Probes(examined.pooled, 10)
    before = examined.pooled.trunk.get_weights()
    source = examined.train.augmented("digits")
    schedule = probe_training.Schedule(0.03, 0.2, (2,), epochs=3, batch_size=53, l2=1e-5)
    probe_training.by_sgd(linear, source, schedule, optimizer())
    for here, there in zip(examined.pooled.trunk.get_weights(), before, strict=True):
        np.testing.assert_array_equal(here, there)
    rows = probes.evaluate(linear, examined.test)
    assert all(row["top1"] > 0.85 for row in rows)
    # the running statistics are those of the augmented images
    norm = linear.heads.get_layer("flatten_normalised")
    assert norm.trainable and np.abs(np.asarray(norm.moving_mean)).max() > 0


class Killed(Exception):
    pass


def killed_after(epochs):
    def on_epoch_begin(epoch, logs):
        if epoch == epochs:
            raise Killed

    return keras.callbacks.LambdaCallback(on_epoch_begin=on_epoch_begin)


def test_a_killed_probe_ends_in_the_same_weights(examined, stored, tmp_path):
    whole = probes.Probes(examined.pooled, 10)
    probe_training.by_sgd(whole, stored, SHORT, optimizer(), seed=5)

    said = []
    unfinished = UnfinishedProbe(tmp_path / "evaluation" / "state", {"epochs": 5}, said.append)
    with pytest.raises(Killed):
        probe_training.by_sgd(
            probes.Probes(examined.pooled, 10),
            stored,
            SHORT,
            optimizer(),
            seed=5,
            unfinished=unfinished,
            callbacks=[killed_after(3)],
        )
    assert said == []
    resumed = probes.Probes(examined.pooled, 10)
    history = probe_training.by_sgd(resumed, stored, SHORT, optimizer(), seed=5, unfinished=unfinished)
    assert said == ["Going on with an unfinished probe, 3 done."]
    assert history.epoch == [3, 4]
    for layer in LAYERS:
        for here, there in zip(weights_of(resumed)[layer], weights_of(whole)[layer], strict=True):
            np.testing.assert_allclose(here, there, atol=1e-6)
    unfinished.remove()
    assert list((tmp_path / "evaluation").iterdir()) == []


def test_l_bfgs_goes_on_after_the_last_finished_layer(examined, stored, tmp_path):
    unfinished = UnfinishedProbe(tmp_path / "state", {"l2": 0.01})

    def kill(layer, count):
        if layer == "flatten":
            raise Killed

    with pytest.raises(Killed):
        linear = probes.Probes(examined.pooled, 10)
        probe_training.by_lbfgs(linear, stored, l2=0.01, unfinished=unfinished, on_iteration=kill)
    resumed = probes.Probes(examined.pooled, 10)
    results = probe_training.by_lbfgs(resumed, stored, l2=0.01, unfinished=unfinished)
    assert list(results) == ["flatten"]
    np.testing.assert_array_equal(weights_of(resumed)["conv2_relu"][0], weights_of(linear)["conv2_relu"][0])
    assert np.abs(weights_of(resumed)["conv2_relu"][0]).max() > 0


def test_a_state_of_other_settings_is_not_gone_on_from(tmp_path):
    said = []
    variable = tf.Variable([1.0, 2.0])
    UnfinishedProbe(tmp_path / "state", {"epochs": 5, "layers": ("a",), "seed": 0}).save([variable], 3)
    variable.assign([7.0, 7.0])
    assert UnfinishedProbe(tmp_path / "state", {"epochs": 9, "layers": ["a"]}, said.append).restore([variable]) == 0
    assert said == ["An unfinished probe with other settings was found (epochs, seed): starting anew."]
    wider = tf.Variable([0.0] * 3)
    same = UnfinishedProbe(tmp_path / "state", {"epochs": 5, "layers": ["a"], "seed": 0}, said.append)
    assert same.restore([wider]) == 0
    assert "(the shapes of its variables)" in said[-1]
    np.testing.assert_array_equal(variable, [7.0, 7.0])
    assert same.restore([variable]) == 3
    np.testing.assert_array_equal(variable, [1.0, 2.0])


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"text"])
def test_a_state_that_cannot_be_read_is_not_gone_on_from(tmp_path, content):
    (tmp_path / "state").write_bytes(content)
    said = []
    assert UnfinishedProbe(tmp_path / "state", {}, said.append).restore([]) == 0
    assert said == [f"{tmp_path / 'state'} cannot be read: starting anew."]


@pytest.mark.parametrize(
    "name, epochs, rates",
    [
        ("paper", (0, 4, 5, 14, 15, 24, 25, 35), (1e-2, 1e-2, 2e-3, 2e-3, 4e-4, 4e-4, 8e-5, 8e-5)),
        ("code", (0, 9, 10, 19, 20, 29, 30, 35), (1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5)),
        ("resnet", (0, 84, 85, 127, 128, 145), (0.1, 0.1, 0.01, 0.01, 0.001, 0.001)),
    ],
)
def test_schedules_are_those_of_the_recipes(name, epochs, rates):
    schedule = probe_training.SCHEDULES[name]
    np.testing.assert_allclose([schedule.at_epoch(epoch) for epoch in epochs], rates)
    assert schedule.epochs == epochs[-1] + 1
    assert (schedule.batch_size, schedule.l2) == ((1024, 0.0) if name == "resnet" else (192, 1e-5))


def test_a_shortened_schedule_drops_after_the_same_share_of_training():
    assert probe_training.SCHEDULES["paper"].of_length(72).drops == (10, 30, 50)
    assert probe_training.SCHEDULES["paper"].of_length(3).drops == (1, 1, 2)
    with pytest.raises(ValueError, match="epochs=0 trains nothing"):
        probe_training.SCHEDULES["paper"].of_length(0)


def test_a_batch_is_at_most_all_images(examined, stored):
    schedule = probe_training.SCHEDULES["resnet"]
    assert schedule.for_examples(500).batch_size == 500
    assert schedule.for_examples(5000).batch_size == 1024
    assert schedule.for_examples(500, 97).batch_size == 97
    with pytest.raises(ValueError, match=r"batch_size=501, but there are 500 images to train on\. Use 1 to 500"):
        schedule.for_examples(500, 501)
    too_large = probe_training.Schedule(0.1, 0.1, (), epochs=1, batch_size=stored.num_examples + 1, l2=0.0)
    with pytest.raises(ValueError, match="images to train on"):
        probe_training.by_sgd(probes.Probes(examined.pooled, 10), stored, too_large, optimizer())


def test_stored_features_come_in_an_order_that_only_seed_and_epoch_decide():
    features = np.arange(37, dtype=np.float32)[:, None]
    stored = probe_training.StoredFeatures(features, np.zeros(37, int))

    def epoch(number, seed):
        stored.next_epoch = number
        shown = [(x.numpy()[:, 0], index.numpy()) for x, index in stored.train_batches(7, seed=seed)]
        assert [len(x) for x, _ in shown] == [7, 7, 7, 7, 7, 2]
        x, index = (np.concatenate(part) for part in zip(*shown, strict=True))
        np.testing.assert_array_equal(x, index)
        assert sorted(index) == list(range(37))
        return list(index)

    first = epoch(0, seed=1)
    assert epoch(1, seed=1) != first != epoch(0, seed=2)
    assert epoch(0, seed=1) == first


def set_of(name, classes, class_names=None):
    return SimpleNamespace(name=name, classes=np.array(classes), class_names=class_names)


def test_classes_are_counted_over_train_and_test():
    assert probes.count_classes(set_of("a", [0, 4, 2]), set_of("b", [2, 0])) == 5


@pytest.mark.parametrize(
    "train, test, complaint",
    [
        (([0, 1], ["x", "y"]), ([0], ["x", "y", "z"]), r"a has 2 classes \(x, y\) and b has 3 \(x, y, z\)"),
        (([0, 1], ["x", "y"]), ([0], ["y", "x"]), "the same classes, in the same order"),
        (([0, 1, 0], ["x", "y", "z"]), ([2, 2], ["x", "y", "z"]), r"1 classes that a has none of \(z\)"),
        (([0, 1],), ([0, 7],), r"1 classes that a has none of \(7\)"),
        (([3, 3],), ([3],), "All images of a are of one class"),
    ],
)
def test_wrong_class_counts_are_refused(train, test, complaint):
    with pytest.raises(ValueError, match=complaint):
        probes.count_classes(set_of("a", *train), set_of("b", *test))


def test_a_fifth_of_every_class_is_held_out_by_seed():
    classes = np.repeat([0, 1, 2, 3], [10, 23, 2, 1])
    kept, held = probes.held_out_fifth(classes, seed=7)
    assert sorted([*kept, *held]) == list(range(36))
    np.testing.assert_array_equal(np.bincount(classes[held], minlength=4), [2, 5, 1, 0])
    np.testing.assert_array_equal(held, probes.held_out_fifth(classes, seed=7)[1])
    assert list(held) != list(probes.held_out_fifth(classes, seed=8)[1])
    with pytest.raises(ValueError, match="none can be held out"):
        probes.held_out_fifth([0, 1, 2])
