import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.data import from_arrays
from selabel_tf.evaluation import clustering
from selabel_tf.models import SelfLabelModel
from selabel_tf.training import NotConvergedWarning, SelfLabelCallback

N = 105  # 7 batches of 16; divides by both cluster counts


@pytest.fixture
def source():
    generator = np.random.default_rng(0)
    return from_arrays(generator.random((N, 6, 5, 1), np.float32), classes=generator.integers(3, size=N))


def make_model(num_clusters=(5, 7), **compile_options):
    keras.utils.set_random_seed(1)
    trunk = keras.Sequential([keras.Input((6, 5, 1)), keras.layers.Flatten(), keras.layers.Dense(13)])
    model = SelfLabelModel(trunk, num_clusters, N)
    model.compile(keras.optimizers.SGD(0.1), **compile_options)
    return model


def fit(model, source, callback, **options):
    return model.fit(source.train_batches(16), shuffle=False, verbose=0, callbacks=[callback], **options)


class Steps(keras.callbacks.Callback):
    """Counts training steps, and notes how many were done when asked."""

    def __init__(self):
        super().__init__()
        self.done = 0

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1


def test_passes_take_place_at_the_scheduled_steps(source):
    passes, steps = [], Steps()
    callback = SelfLabelCallback(
        source, 4, schedule="linear", on_label_pass=lambda p: passes.append((p.number, p.step, steps.done))
    )
    model = make_model()
    model.fit(source.train_batches(16), epochs=4, shuffle=False, verbose=0, callbacks=[callback, steps])
    assert passes == [(0, 0, 0), (1, 7, 7), (2, 14, 14), (3, 21, 21)]


def test_the_quadratic_schedule_is_dense_at_first(source):
    seen = []
    callback = SelfLabelCallback(source, 4, on_label_pass=lambda p: seen.append(p.step))
    fit(make_model(), source, callback, epochs=4)
    assert seen == [0, 1, 7, 15]  # (i / 4)^2 of 28 steps


@pytest.mark.parametrize(("steps", "initial_epoch"), [(7, 0), (14, 0), (21, 0), (14, 1), (16, 0), (10, 0)])
def test_longer_epochs_of_keras_show_no_epoch_of_the_source_twice(source, steps, initial_epoch, monkeypatch):
    shown, begin = [], source._begin_epoch
    monkeypatch.setattr(source, "_begin_epoch", lambda: shown.append(source.next_epoch) or begin())
    batches = source.train_batches(16).repeat()
    callback = SelfLabelCallback(source, 0)
    options = {"steps_per_epoch": steps, "initial_epoch": initial_epoch, "callbacks": [callback]}
    make_model().fit(batches, epochs=3, shuffle=False, verbose=0, **options)
    assert shown == list(range(initial_epoch * steps // 7, -(-3 * steps // 7)))


def test_batches_of_another_size_leave_the_epochs_alone(source, monkeypatch):
    shown, begin = [], source._begin_epoch
    monkeypatch.setattr(source, "_begin_epoch", lambda: shown.append(source.next_epoch) or begin())
    batches, _ = source.train_batches(16), source.train_batches(50)  # after them: it is the length that tells
    look = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: source.train_batches(3))
    make_model().fit(batches, epochs=3, shuffle=False, verbose=0, callbacks=[SelfLabelCallback(source, 0), look])
    assert shown == [0, 1, 2]


def test_initial_epoch_goes_on_where_the_schedule_stands(source):
    seen = []
    callback = SelfLabelCallback(source, 4, schedule="linear", on_label_pass=lambda p: seen.append((p.number, p.step)))
    fit(make_model(), source, callback, epochs=4, initial_epoch=2)
    assert seen == [(2, 14), (3, 21)]


@pytest.mark.parametrize(
    ("num_relabels", "expected"),
    [
        (4, [(0, 0), (1, 12), (2, 18), (3, 27)]),  # due at 0, 9, 18, 27; every epoch has 7 batches, and should have 12
        (9, [(0, 0), (1, 4), (3, 12), (4, 16), (6, 24), (7, 28)]),  # of those at 8 and 12 the later is made
    ],
)
def test_passes_behind_the_end_of_an_epoch_that_keras_cuts_short_are_made_up_for(source, num_relabels, expected):
    seen = []
    note = lambda p: seen.append((p.number, p.step))  # noqa: E731
    callback = SelfLabelCallback(source, num_relabels, schedule="linear", on_label_pass=note)
    options = {"epochs": 3, "steps_per_epoch": 12, "callbacks": [callback]}
    with pytest.warns(UserWarning, match="ran out of data"):
        make_model().fit(source.train_batches(16), shuffle=False, verbose=0, **options)
    assert seen == expected


def test_given_labels_are_set_before_the_first_step_wherever_fit_begins(source):
    passes, model = [], make_model((3, 3))
    callback = SelfLabelCallback(source, labeller="given", on_label_pass=lambda p: passes.append(p.step))
    fit(model, source, callback, epochs=4, initial_epoch=2)
    assert passes == [14]
    np.testing.assert_array_equal(model.labels, np.stack([source.classes] * 2, axis=1))


def test_a_layer_that_was_frozen_between_two_fits_is_frozen_in_label_passes_too(source):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((6, 5, 1)), keras.layers.Flatten(), keras.layers.BatchNormalization()]
    model = SelfLabelModel(keras.Sequential(layers), [5], N)
    model.compile("sgd")
    callback = SelfLabelCallback(source, 1)
    start = np.array(model.backbone.layers[-1].moving_mean)
    fit(model, source, callback)
    before = np.array(model.backbone.layers[-1].moving_mean)
    assert (before != start).all()
    model.backbone.trainable = False
    model.compile("sgd")
    fit(model, source, callback)
    np.testing.assert_array_equal(model.backbone.layers[-1].moving_mean, before)


def test_a_last_batch_too_short_for_all_replicas_is_refused_before_the_first(source, two_replicas):
    small = source.subset(np.arange(33))
    with two_replicas.scope():
        trunk = keras.Sequential([keras.Input((6, 5, 1)), keras.layers.Flatten(), keras.layers.Dense(13)])
        model = SelfLabelModel(trunk, [5], 33)
        model.compile("sgd")
    with pytest.raises(ValueError, match=r"last batch of 33 examples has 1, too few for 2 replicas.*e\.g\. 18\.$"):
        fit(model, small, SelfLabelCallback(small, 1))


def test_passes_that_are_done_are_not_made_again_and_each_is_announced(source):
    told = []
    callback = SelfLabelCallback(
        source,
        4,
        schedule="linear",
        before_label_pass=lambda number, step: told.append(("before", number, step)),
        on_label_pass=lambda p: told.append(("after", p.number, p.step)),
    )
    callback.passes_done = 3  # the one before step 14 as well
    fit(make_model(), source, callback, epochs=4, initial_epoch=2)
    assert told == [("before", 3, 21), ("after", 3, 21)]


def test_fit_shows_the_epochs_that_their_numbers_say(source):
    shown = []

    class Spy(SelfLabelModel):
        def train_step(self, data):
            tf.py_function(lambda index: shown.append(index.numpy()), [data[1]], [])
            return super().train_step(data)

    trunk = keras.Sequential([keras.Input((6, 5, 1)), keras.layers.Flatten(), keras.layers.Dense(13)])
    model = Spy(trunk, [5], N)
    model.compile("sgd")
    fit(model, source, SelfLabelCallback(source, 1), epochs=4, initial_epoch=2)
    source.next_epoch = 2
    batches = source.train_batches(16)
    expected = [index for _ in range(2) for _, index in batches.as_numpy_iterator()]
    np.testing.assert_array_equal(np.concatenate(shown), np.concatenate(expected))


def test_no_relabels_leave_the_labels_random(source):
    model = make_model()
    before = model.labels
    fit(model, source, SelfLabelCallback(source, 0))
    np.testing.assert_array_equal(model.labels, before)


def test_heads_in_turn_relabels_one_head_per_pass(source):
    heads = []
    callback = SelfLabelCallback(
        source, 3, heads="in_turn", on_label_pass=lambda p: heads.append([h.head for h in p.heads])
    )
    fit(make_model(), source, callback, epochs=2)
    assert heads == [[0], [1], [0]]


def test_statistics_are_those_of_the_labels(source):
    passes, labels = [], []
    model = make_model()
    before = model.labels

    def note(label_pass):
        passes.append(label_pass)
        labels.append(model.labels)

    fit(model, source, SelfLabelCallback(source, 2, on_label_pass=note, rounding="balanced"))
    for label_pass, after in zip(passes, labels, strict=True):
        for head in label_pass.heads:
            old, new = before[:, head.head], after[:, head.head]
            sizes = np.bincount(new, minlength=(5, 7)[head.head])
            assert (head.smallest, head.largest) == (sizes.min(), sizes.max())
            assert head.changed == pytest.approx((old != new).mean())
            assert head.nmi_previous == pytest.approx(clustering.nmi(old, new))
            assert head.nmi == pytest.approx(clustering.nmi(new, source.classes))
            assert head.converged
            assert head.passes >= 1
            assert head.marginal_error <= 1e-3
            assert head.bound <= head.objective_after + 1e-5  # balanced labels cannot beat the bound
        before = after


def test_the_summary_is_one_line_that_says_it_all(source):
    passes = []
    fit(make_model(), source, SelfLabelCallback(source, 2, on_label_pass=passes.append))
    text = passes[1].summary()
    assert "\n" not in text
    for part in ("labels 2/2", "2 heads", "passes to error", "sizes", "changed", "NMI to last", "NMI to classes", "E "):
        assert part in text
    records = list(passes[1].records())
    assert [r["head"] for r in records] == [0, 1]
    assert records[0]["kind"] == "labels"
    assert records[0]["label_pass"] == 1
    assert {"labels/changed", "labels/nmi", "labels/smallest"} < set(passes[1].scalars())


def test_without_true_classes_nothing_is_said_about_them(source):
    unlabelled = from_arrays(np.random.default_rng(0).random((N, 6, 5, 1), np.float32))
    passes = []
    fit(make_model(), unlabelled, SelfLabelCallback(unlabelled, 1, on_label_pass=passes.append))
    assert passes[0].heads[0].nmi is None
    assert "classes" not in passes[0].summary()
    assert "labels/nmi" not in passes[0].scalars()


def test_pseudo_label_accuracy_is_that_of_the_labels_trained_on(source):
    passes, model = [], make_model()
    before = model.labels
    (images, _), *_ = source.plain_batches(N).as_numpy_iterator()
    predicted = model.assign(images)  # this source shows the same image in every view, and the network has no BatchNorm
    fit(model, source, SelfLabelCallback(source, 1, on_label_pass=passes.append))
    for head in passes[0].heads:
        own = predicted[:, head.head]
        assert head.accuracy == pytest.approx((own == before[:, head.head]).mean())
        assert set(head.unpredicted) == set(range(head.clusters)) - set(own)
        sizes = np.bincount(before[:, head.head]), np.bincount(model.labels[:, head.head], minlength=head.clusters)
        assert head.changed_by_chance == pytest.approx(1 - sum(np.prod(sizes, axis=0)) / N**2)
        other = 1 - head.head
        assert head.closest_head == other
        assert head.nmi_closest == pytest.approx(clustering.nmi(model.labels[:, 0], model.labels[:, 1]))
    scalars = passes[0].scalars()
    assert scalars["labels/accuracy"] == pytest.approx(np.mean([head.accuracy for head in passes[0].heads]))
    assert scalars["labels_accuracy/head_1"] == passes[0].heads[1].accuracy
    assert {"labels_nmi/head_0", "labels_nmi_previous/head_1", "labels/unpredicted"} < set(scalars)


def test_an_only_head_has_no_neighbour_and_no_curve_beside_the_mean(source):
    passes = []
    fit(make_model((5,)), source, SelfLabelCallback(source, 1, on_label_pass=passes.append))
    assert (passes[0].heads[0].closest_head, passes[0].heads[0].nmi_closest) == (None, None)
    assert not [name for name in passes[0].scalars() if "head_" in name or "closest" in name]


def test_k_means_passes_begin_the_head_anew_and_say_what_they_can(source):
    passes, kernels = [], []
    model = make_model()
    start = np.array(model.heads.kernel)

    def note(label_pass):
        passes.append(label_pass)
        kernels.append(np.array(model.heads.kernel))

    fit(model, source, SelfLabelCallback(source, 2, labeller="kmeans", on_label_pass=note))
    for kernel in kernels:  # drawn anew: small, and other than before
        assert 0.005 < kernel.std() < 0.02 and (kernel != start).all()
    assert (kernels[0] != kernels[1]).all()
    for head in passes[1].heads:
        absent = ("passes", "marginal_error", "converged", "cost", "bound", "changed", "objective_after")
        assert all(getattr(head, name) is None for name in absent)
        assert head.smallest >= 1 and 0 <= head.nmi_previous <= 1 and head.nmi is not None
    text = passes[1].summary()
    assert "-> new head" in text and "None" not in text and "sinkhorn" not in text and "changed" not in text
    assert "labels/changed" not in passes[1].scalars() and None not in passes[1].scalars().values()


def test_k_means_in_turn_leaves_the_other_head_alone(source):
    model = make_model()
    start = np.array(model.heads.kernel)
    kernels = []
    note = lambda _: kernels.append(np.array(model.heads.kernel))  # noqa: E731
    callback = SelfLabelCallback(source, 1, labeller="kmeans", heads="in_turn", on_label_pass=note)
    with pytest.warns(UserWarning, match=r"1 of 2 heads keep the labels they begin with: ") as said:
        callback.check(model, 1, 4)  # as experiment.run does, before `fit` does
        fit(model, source, callback)
    (text,) = [str(one.message) for one in said if "heads" in str(one.message)]
    assert text.endswith("Use 2 label passes or more, or heads='all'.")
    assert (kernels[0][:, :5] != start[:, :5]).all()
    np.testing.assert_array_equal(kernels[0][:, 5:], start[:, 5:])


def test_given_labels_are_set_once_before_the_first_step(source):
    passes, model = [], make_model((3, 3))
    callback = SelfLabelCallback(source, 40, labeller="given", heads="in_turn", on_label_pass=passes.append)
    fit(model, source, callback, epochs=3)
    assert [(p.step, p.num_passes, len(p.heads)) for p in passes] == [(0, 1, 2)]
    np.testing.assert_array_equal(model.labels, np.stack([source.classes] * 2, axis=1))
    text = passes[0].summary()
    assert "changed" in text and "NMI to classes 1.000" in text
    assert not any(word in text for word in ("sinkhorn", "predicted", "E ", "None"))
    assert "labels/unpredicted" not in passes[0].scalars() and None not in passes[0].scalars().values()


def test_labels_and_training_are_the_same_for_the_same_seed(source):
    results = []
    for seed in (0, 0, 1):
        flipped = source.augmented("flip")
        model = make_model()
        callback = SelfLabelCallback(flipped, 2, seed=seed)
        model.fit(flipped.train_batches(16, seed=seed), epochs=1, shuffle=False, verbose=0, callbacks=[callback])
        results.append(model.labels)
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()


def test_a_solve_that_did_not_converge_is_never_silent(source):
    model = make_model()
    model.heads.kernel.assign(np.random.default_rng(0).normal(size=(13, 12)))
    passes = []
    callback = SelfLabelCallback(source, 1, max_passes=1, on_label_pass=passes.append)
    with pytest.warns(NotConvergedWarning, match=r"Label pass 1, head 0: Sinkhorn stopped after 1 passes.*max_passes"):
        fit(model, source, callback)
    assert not passes[0].heads[0].converged


def test_progress_within_a_pass_is_told(source):
    told = []
    callback = SelfLabelCallback(source, 1, on_progress=lambda *args: told.append(args))
    fit(make_model(), source, callback)
    assert told[0] == (0, "images", N, N)
    assert told[-1][1].startswith("head 1, error")


@pytest.mark.parametrize("together", [2, 7])
def test_with_steps_per_execution_a_pass_precedes_the_execution_of_its_step(source, together):
    passes = []
    callback = SelfLabelCallback(source, 3, schedule="linear", on_label_pass=lambda p: passes.append(p.step))
    fit(make_model(steps_per_execution=together), source, callback, epochs=3)
    assert passes == [0, 7, 14]


def test_of_two_passes_in_one_execution_the_last_is_made(source):
    passes = []
    callback = SelfLabelCallback(
        source, 7, schedule="linear", on_label_pass=lambda p: passes.append((p.number, p.step))
    )
    with pytest.warns(UserWarning, match=r"With steps_per_execution=4, 3 of 7 label passes .* are left out"):
        fit(make_model(steps_per_execution=4), source, callback, epochs=2)
    assert passes == [(1, 0), (3, 4), (5, 7), (6, 11)]  # due at 0, 2, 4, 6, 8, 10, 12; an epoch is 7 steps


def test_two_passes_in_one_execution_are_refused_where_a_head_would_be_left_out(source):
    callback = SelfLabelCallback(source, 7, schedule="linear", heads="in_turn")
    with pytest.raises(ValueError, match=r"steps_per_execution=4 would put two.*a head.*Use steps_per_execution=2"):
        fit(make_model(steps_per_execution=4), source, callback, epochs=2)


def test_a_plain_model_is_refused(source):
    plain = keras.Sequential([keras.Input((6, 5, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
    plain.compile(loss="mse")
    with pytest.raises(ValueError, match=r"SelfLabelModel; it got a Sequential. Wrap your network"):
        fit(plain, source, SelfLabelCallback(source, 1))


def test_a_dataset_of_unknown_length_is_refused(source):
    data = source.train_batches(16).filter(lambda *_: True)
    with pytest.raises(ValueError, match="steps per epoch is unknown"):
        make_model().fit(data, shuffle=False, verbose=0, callbacks=[SelfLabelCallback(source, 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"schedule": "cubic"}, "Unknown schedule 'cubic'"), ({"heads": "some"}, "Unknown choice of heads 'some'")],
)
def test_names_are_checked_when_the_callback_is_made(source, options, message):
    with pytest.raises(ValueError, match=message):
        SelfLabelCallback(source, 3, **options)


def test_a_short_training_has_a_pass_before_every_step_at_most(source):
    seen = []
    fit(make_model(), source, SelfLabelCallback(source, 9, on_label_pass=seen.append))
    assert [(p.step, p.num_passes) for p in seen] == [(step, 7) for step in range(7)]
