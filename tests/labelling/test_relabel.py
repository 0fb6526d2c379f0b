"""Label passes on a network whose features are known: the images themselves, so scores have a NumPy oracle."""

import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from sklearn.metrics import normalized_mutual_info_score

from selabel_tf.labelling import kmeans, relabel, sinkhorn, storage
from selabel_tf.labelling.relabel import Relabeller
from selabel_tf.labelling.rounding import balanced_labels, hard_labels, soft_labels
from selabel_tf.labelling.sinkhorn import solve
from selabel_tf.models.self_label_model import SelfLabelModel

N, D = 211, 12


class Views:
    """A source of images [N, 4, 3, 1]: view `position` is the images plus a known shift."""

    num_examples = N

    def __init__(self, scale=0.0):
        self.images = np.random.default_rng(0).normal(size=(N, 4, 3, 1)).astype(np.float32)
        self.scale = scale
        self.asked = []

    def view(self, position):
        noise = np.random.default_rng(100 + position).normal(size=self.images.shape)
        return (self.images + self.scale * noise).astype(np.float32)

    def view_batches(self, batch_size, *, position, seed):
        self.asked.append((batch_size, position, seed))
        order = np.random.default_rng(position).permutation(N)
        data = tf.data.Dataset.from_tensor_slices((self.view(position)[order], order))
        return data.batch(batch_size)


def make_model(num_clusters=(5, 7), confidence=3.0, trunk=None, **options):
    if trunk is None:
        trunk = keras.Sequential([keras.Input((4, 3, 1)), keras.layers.Flatten()])
    model = SelfLabelModel(trunk, num_clusters, N, **options)
    kernel = np.random.default_rng(1).normal(size=(D, sum(num_clusters)))
    model.heads.kernel.assign(confidence * kernel / np.sqrt(D))
    return model


def log_probabilities(model, images, head):
    logits = images.reshape(N, D).astype(np.float64) @ np.array(model.heads.kernel)[:, model.heads.span(head)]
    return scipy.special.log_softmax(logits, axis=1)


def test_a_pass_gives_the_labels_of_the_transport_plan():
    model, source = make_model(), Views()
    records = Relabeller(model, source, tolerance=1e-6, seed=9).run(4, [0, 1])
    assert source.asked == [(256, 4, 9)]
    for head, record in enumerate(records):
        log_p = log_probabilities(model, source.images, head).astype(np.float32)
        solution = solve(log_p, tolerance=1e-6)
        expected = hard_labels(log_p, solution.log_alpha)
        assert record.head == head
        assert record.solution.converged
        assert (record.labels_after == expected).mean() > 0.99
        np.testing.assert_array_equal(model.labels[:, head], record.labels_after)
        np.testing.assert_allclose(model.label_store.log_alpha(head), record.solution.log_alpha)


def test_the_objective_is_the_cross_entropy_before_and_after():
    model, source = make_model(), Views()
    before = model.labels
    (record,) = Relabeller(model, source).run(0, [1])
    log_p = log_probabilities(model, source.images, 1)
    np.testing.assert_array_equal(record.labels_before, before[:, 1])
    for labels, value in (
        (record.labels_before, record.objective_before),
        (record.labels_after, record.objective_after),
    ):
        np.testing.assert_allclose(value, -log_p[np.arange(N), labels].mean(), rtol=1e-5)
    assert record.objective_after < record.objective_before


def test_only_the_heads_asked_for_change():
    model, source = make_model(), Views()
    before = model.labels
    Relabeller(model, source).run(0, [1])
    np.testing.assert_array_equal(model.labels[:, 0], before[:, 0])
    assert (model.labels[:, 1] != before[:, 1]).mean() > 0.3


def test_views_are_averaged_as_log_probabilities():
    model, source = make_model((5,)), Views(scale=0.7)
    (record,) = Relabeller(model, source, views=3, batch_size=64).run(2, [0])
    assert [position for _, position, _ in source.asked] == [6, 7, 8]
    log_p = np.mean([log_probabilities(model, source.view(p), 0) for p in (6, 7, 8)], axis=0)
    expected = -log_p[np.arange(N), record.labels_before].mean()
    np.testing.assert_allclose(record.objective_before, expected, rtol=1e-5)


def test_scores_are_the_same_in_several_row_blocks(monkeypatch):
    whole = Relabeller(make_model(), Views()).run(0, [0])[0]
    monkeypatch.setattr(storage, "ROWS_PER_BLOCK", 64)
    blocks = Relabeller(make_model(), Views()).run(0, [0])[0]
    assert (whole.labels_after == blocks.labels_after).mean() > 0.99
    np.testing.assert_allclose(whole.objective_before, blocks.objective_before, rtol=1e-6)


@pytest.mark.parametrize("kind", storage.KINDS)
@pytest.mark.parametrize("rounding", ["argmax", "balanced"])
def test_labels_do_not_depend_on_where_the_scores_live(kind, rounding, monkeypatch, tmp_path):
    monkeypatch.setattr(sinkhorn, "NEWTON_CLUSTERS", 0)  # as for large K: with a kernel
    monkeypatch.setattr(storage, "ROWS_PER_BLOCK", 64)
    options = {"rounding": rounding, "tolerance": 1e-5, "scratch": tmp_path}
    expected = Relabeller(make_model(), Views(), storage="float32", **options).run(0, [0])[0]
    relabeller = Relabeller(make_model(), Views(), storage=kind, **options)
    record = relabeller.run(0, [0])[0]
    assert relabeller.plan.kind == kind
    assert record.solution.converged
    assert (record.labels_after == expected.labels_after).mean() > 0.99
    assert list(tmp_path.iterdir()) == []  # nothing is left on disk


def test_what_does_not_fit_into_memory_is_refused_before_any_pass(monkeypatch):
    monkeypatch.setattr(relabel, "available_memory", lambda: 1000)
    with pytest.raises(ValueError, match="211 x 7 scores on 1 x 12 features needs memory: float32 "):
        Relabeller(make_model(), Views())


def test_labels_are_made_from_the_views_of_another_source_if_there_is_one():
    source, others = Views(), Views(scale=2.0)
    record = Relabeller(make_model(), source, view_source=others).run(3, [0])[0]
    expected = Relabeller(make_model(), others).run(3, [0])[0]
    np.testing.assert_array_equal(record.labels_after, expected.labels_after)
    assert source.asked == [] and [position for _, position, _ in others.asked] == [3, 3]


def test_soft_labels_are_the_largest_entries_of_the_plan():
    model, source = make_model(spread=3), Views()
    record = Relabeller(model, source, lambda_=2.0).run(0, [1])[0]
    store, log_p = model.label_store, log_probabilities(model, source.images, 1).astype(np.float32)
    expected = soft_labels(log_p, record.solution.log_alpha, 3, lambda_=2.0)
    np.testing.assert_array_equal(store.clusters.numpy()[:, 1], expected[0])
    np.testing.assert_allclose(store.shares.numpy()[:, 1], expected[1], rtol=1e-4)
    np.testing.assert_array_equal(store.shares.numpy()[:, 0], np.eye(3)[np.zeros(N, int)])  # the other head: untouched


@pytest.mark.parametrize("labeller", ["kmeans", "given"])
def test_only_a_transport_plan_has_shares(labeller):
    with pytest.raises(ValueError, match=f"spread=3 takes shares from a transport plan, and labeller='{labeller}'"):
        Relabeller(make_model(spread=3), Views(), labeller=labeller)


def test_balanced_labels_are_refused_where_shares_are_learnt_in_their_place():
    with pytest.raises(ValueError, match="a model with spread=3 learns its shares instead"):
        Relabeller(make_model(spread=3), Views(), rounding="balanced")


def test_views_of_other_images_are_refused():
    others = Views()
    others.num_examples = 12
    with pytest.raises(ValueError, match="view_source has 12 images and the source 211"):
        Relabeller(make_model(), Views(), view_source=others)


@pytest.mark.parametrize("gpu_bytes, expected", [(0, ["/CPU:0"]), (2**30, ["/GPU:0"])])
def test_scores_are_placed_where_the_plan_says(gpu_bytes, expected, monkeypatch):
    monkeypatch.setattr(relabel, "score_devices", lambda strategy: ("/GPU:0",))  # placed softly, there being none
    monkeypatch.setattr(relabel, "available_gpu_memory", lambda devices: gpu_bytes * len(devices))
    placed, usual = [], relabel.HeadScores
    monkeypatch.setattr(relabel, "HeadScores", lambda *a, **o: (placed.append(list(o["devices"])), usual(*a, **o))[1])
    Relabeller(make_model(), Views()).run(0, [0])
    assert placed == [expected]


def test_two_replicas_give_the_labels_of_one(two_replicas, monkeypatch):
    monkeypatch.setattr(storage, "ROWS_PER_BLOCK", 64)
    for newton_clusters in (256, 0):
        monkeypatch.setattr(sinkhorn, "NEWTON_CLUSTERS", newton_clusters)
        alone = Relabeller(make_model(), Views(), tolerance=1e-6).run(0, [0])[0]
        trunk = keras.Sequential([keras.Input((4, 3, 1)), keras.layers.Flatten()])
        with two_replicas.scope():
            model = make_model(trunk=trunk)
        relabeller = Relabeller(model, Views(), tolerance=1e-6)
        together = relabeller.run(0, [0])[0]
        scores = relabeller._scores([Views().images.reshape(N, D)], 0)
        assert [block.device[-5:] for block in scores] == ["CPU:0", "CPU:1", "CPU:0", "CPU:1"]
        assert (alone.labels_after == together.labels_after).mean() >= 0.999
        np.testing.assert_allclose(alone.solution.log_alpha, together.solution.log_alpha, atol=1e-2)


def test_balanced_rounding_makes_sizes_exact():
    model, source = make_model(), Views()
    Relabeller(model, source, rounding="balanced").run(0, [0, 1])
    for head, k in enumerate((5, 7)):
        sizes = np.bincount(model.labels[:, head], minlength=k)
        assert (sizes.min(), sizes.max()) == (N // k, N // k + 1)


@pytest.mark.parametrize("rounding", ["argmax", "balanced"])
def test_wanted_shares_are_met(rounding):
    model, source = make_model((5,), confidence=0.3), Views()
    weights = (1.0, 2.0, 3.0, 4.0, 5.0)
    options = {"cluster_weights": weights, "rounding": rounding, "tolerance": 1e-5}
    (record,) = Relabeller(model, source, **options).run(0, [0])
    wanted = N * np.array(weights) / 15
    sizes = np.bincount(record.labels_after, minlength=5)
    if rounding == "balanced":
        assert (np.abs(sizes - wanted) < 1).all()
        log_p = log_probabilities(model, source.images, 0).astype(np.float32)
        expected = balanced_labels(log_p, record.solution.log_alpha, cluster_weights=weights)
        assert (record.labels_after == expected).mean() > 0.95
    else:
        assert (np.abs(sizes - wanted) < 0.15 * N).all()


def test_a_warm_start_needs_fewer_readings_than_a_cold_one():
    passes = {}
    for warm in (True, False):
        model, source = make_model((17,), confidence=9.0), Views()
        relabeller = Relabeller(model, source, tolerance=1e-6, warm_start=warm)
        relabeller.run(0, [0])
        (record,) = relabeller.run(0, [0])
        passes[warm] = record.solution.num_passes
    assert passes[True] == 1  # the same scores again
    assert passes[False] > 1


def test_predictions_are_the_heads_own_whatever_the_labels(monkeypatch):
    monkeypatch.setattr(storage, "ROWS_PER_BLOCK", 64)
    model, source = make_model(), Views()
    for labeller in ("sinkhorn", "kmeans"):
        (record,) = Relabeller(model, source, labeller=labeller).run(0, [1])
        np.testing.assert_array_equal(record.predictions, log_probabilities(model, source.images, 1).argmax(axis=1))


def test_k_means_labels_are_those_of_the_mean_features_over_views():
    model, source = make_model(), Views(scale=0.7)
    records = Relabeller(model, source, labeller="kmeans", views=2, seed=9).run(3, [0, 1])
    rows = kmeans.whitened(np.mean([source.view(p).reshape(N, D) for p in (6, 7)], axis=0))
    for head, record in enumerate(records):
        seed = int(np.random.SeedSequence([9, 3, head]).generate_state(1)[0])
        expected = kmeans.cluster(rows, (5, 7)[head], seed)
        assert normalized_mutual_info_score(record.labels_after, expected) > 0.95  # rounding may move a few
        np.testing.assert_array_equal(model.labels[:, head], record.labels_after)
        assert record.solution is None and record.renumbered
        assert np.unique(record.labels_after).size == (5, 7)[head]


def test_k_means_leaves_the_scalings_alone_and_uses_another_seed_at_each_pass():
    model, source = make_model(), Views()
    (sinkhorn_record,) = Relabeller(model, source).run(0, [0])
    assert not sinkhorn_record.renumbered
    relabeller = Relabeller(model, source, labeller="kmeans")
    one, again, later = (relabeller.run(number, [0])[0].labels_after for number in (0, 0, 1))
    np.testing.assert_allclose(model.label_store.log_alpha(0), sinkhorn_record.solution.log_alpha)
    np.testing.assert_array_equal(one, again)
    assert (one != later).any()


def labelled(num_classes=5, names=None):
    source = Views()
    source.name, source.class_names = "views", names
    source.classes = np.arange(N) % num_classes
    return source


def test_given_labels_are_the_classes_for_every_head():
    model, source = make_model((5, 5)), labelled()
    records = Relabeller(model, source, labeller="given").run(0, [0, 1])
    for head, record in enumerate(records):
        np.testing.assert_array_equal(model.labels[:, head], source.classes)
        np.testing.assert_array_equal(record.labels_after, source.classes)
        assert record.solution is None and not record.renumbered


def test_given_labels_look_at_no_image_and_need_no_memory(monkeypatch):
    model, source = make_model((5, 5)), labelled()
    monkeypatch.setattr(relabel, "available_memory", lambda: 0)
    monkeypatch.delattr(Views, "view_batches")
    relabeller = Relabeller(model, source, labeller="given")
    assert relabeller.plan.bytes_needed == 0 and "labels are given" in relabeller.plan.reason
    for record in relabeller.run(0, [0, 1]):
        assert record.predictions is record.objective_before is record.objective_after is None
    with pytest.raises(ValueError, match="needs memory"):
        Relabeller(model, source)


@pytest.mark.parametrize(
    ("num_clusters", "source", "message"),
    [
        ((5, 7), labelled(), r"views has 5 classes and the heads 5 7 clusters\. Give every head 5, e\.g\. model"),
        ((5,), labelled(names=list("abcdef")), "views has 6 classes and the heads 5 clusters"),
    ],
)
def test_given_labels_need_a_cluster_for_every_class(num_clusters, source, message):
    with pytest.raises(ValueError, match=message):
        Relabeller(make_model(num_clusters), source, labeller="given")


def test_given_labels_may_be_those_of_another_network():
    model = make_model()
    labels = np.stack([np.arange(N) % 5, np.arange(N) % 7], axis=1)
    Relabeller(model, Views(), labeller="given", labels=labels).run(0, [0, 1])
    np.testing.assert_array_equal(model.labels, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((N, 3), int), r"int64 of shape \(211, 3\); whole numbers of shape \(211, 2\) are expected"),
        (np.zeros((N, 2)), "float64 of shape"),
        (np.full((N, 2), 5), r"of head 0 lie in 5\.\.5, and the head has 5 clusters, 0 to 4"),
        (np.array([[0, -1]] * N), r"of head 1 lie in -1\.\.-1"),
    ],
)
def test_given_labels_must_fit_the_examples_and_the_heads(labels, message):
    with pytest.raises(ValueError, match=message):
        Relabeller(make_model(), Views(), labeller="given", labels=labels)


def test_given_labels_need_classes():
    source = labelled()
    source.classes = None
    with pytest.raises(ValueError, match="labeller='given' trains on true classes, and views has none"):
        Relabeller(make_model((5,)), source, labeller="given")


@pytest.mark.parametrize(("mode", "by_batch"), [("training", True), ("inference", False)])
def test_batch_norm_mode_decides_whose_statistics_are_used(mode, by_batch):
    trunk = keras.Sequential(
        [keras.Input((4, 3, 1)), keras.layers.Flatten(), keras.layers.BatchNormalization(momentum=0.9)]
    )
    model, source = make_model((5,), trunk=trunk), Views()
    moving_before = np.array(trunk.layers[-1].moving_mean)
    (record,) = Relabeller(model, source, batch_norm=mode).run(0, [0])
    z = source.images.reshape(N, D).astype(np.float64)
    mean, variance = (z.mean(0), z.var(0)) if by_batch else (0, 1)  # one batch holds all 211 images
    z = (z - mean) / np.sqrt(variance + 1e-3)
    log_p = scipy.special.log_softmax(z @ np.array(model.heads.kernel), axis=1)
    np.testing.assert_allclose(record.objective_before, -log_p[np.arange(N), record.labels_before].mean(), rtol=1e-4)
    assert (np.array(trunk.layers[-1].moving_mean) != moving_before).any() == by_batch


def test_progress_covers_views_and_readings():
    model, source = make_model(), Views()
    images, readings = [], []
    relabeller = Relabeller(model, source, views=2, batch_size=100)
    relabeller.run(0, [0, 1], lambda done, total: images.append((done, total)), lambda *r: readings.append(r))
    assert images == [(100, 2 * N), (200, 2 * N), (N, 2 * N), (N + 100, 2 * N), (N + 200, 2 * N), (2 * N, 2 * N)]
    assert {head for head, _ in readings} == {0, 1}
    assert readings[0][1].number == 1


def test_a_network_full_of_nan_is_refused_before_the_labels_change():
    model, source = make_model(), Views()
    model.heads.bias.assign(np.full(12, np.nan))
    before = model.labels
    with pytest.raises(ValueError, match="NaN"):
        Relabeller(model, source).run(0, [0])
    np.testing.assert_array_equal(model.labels, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labeller": "k-means"}, r"Unknown labeller 'k-means'\. Available: sinkhorn, kmeans, given"),
        ({"views": 0}, "views=0: at least one"),
        ({"batch_norm": "train"}, "Unknown batch_norm 'train'. Available: training, inference"),
        ({"storage": "tape"}, "Unknown storage 'tape'. Available: auto, exact, float32, recompute, half, disk"),
        ({"storage": "disk"}, "needs a folder"),
        ({"rounding": "greedy"}, "Unknown rounding 'greedy'. Available: argmax, balanced"),
        ({"cluster_weights": (1.0, 2.0)}, r"2 cluster_weights for heads of \[5, 7\] clusters"),
    ],
)
def test_options_are_checked_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        Relabeller(make_model(), Views(), **options)


def test_a_source_of_another_size_is_refused():
    source = Views()
    source.num_examples = 13
    with pytest.raises(ValueError, match="The source has 13 examples and the model has labels for 211"):
        Relabeller(make_model(), source)


@pytest.mark.parametrize(("batch", "used"), [(30, 29), (35, 34), (211, 211), (256, 256), (105, 104)])
def test_the_last_batch_reaches_both_replicas(two_replicas, batch, used):
    # 211 = 7 * 30 + 1 = 6 * 35 + 1 = 2 * 105 + 1: the last image alone would leave one replica without any
    trunk = keras.Sequential([keras.Input((4, 3, 1)), keras.layers.Flatten()])
    with two_replicas.scope():
        model = make_model(trunk=trunk)
    assert Relabeller(model, Views(), batch_size=batch).batch_size == used


@pytest.mark.parametrize(("batch", "used"), [(30, 29), (31, 31), (1, 1), (2, 2), (3, 3), (6, 4), (256, 256)])
def test_no_image_is_left_alone_in_the_last_batch(batch, used):  # BatchNorm would leave nothing of it
    assert Relabeller(make_model(), Views(), batch_size=batch).batch_size == used
