"""The absorbed kernel against float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.labelling import host, reading
from selabel_tf.labelling import kernel as kernels
from selabel_tf.labelling.kernel import Kernel
from selabel_tf.labelling.reading import Reader
from selabel_tf.labelling.scores import RowBlocks

ROWS, CLUSTERS, LAMBDA = 211, 17, 25.0
LOG_P = np.random.default_rng(0).normal(size=(ROWS, CLUSTERS)).astype(np.float32)
BASE = np.random.default_rng(1).normal(size=CLUSTERS)


def exact_masses(log_alpha):
    scores = LAMBDA * LOG_P.astype(np.float64) + log_alpha
    plan = np.exp(scores - scores.max(1, keepdims=True))
    return (plan / plan.sum(1, keepdims=True)).mean(0)


def filled(kernel, blocks=(LOG_P[:101], LOG_P[101:103], LOG_P[103:]), log_alpha=BASE):
    """The kernel as an exact reading leaves it."""
    Reader(RowBlocks(list(blocks)), kernel=kernel).read(LAMBDA, log_alpha)
    return kernel


@pytest.mark.parametrize("form, tolerance", [("float32", 1e-6), ("disk", 1e-6), ("half", 3e-3)])
@pytest.mark.parametrize("piece", [host.PIECE, 5 * CLUSTERS, 1])
def test_masses_near_the_base_are_those_of_float64(form, tolerance, piece, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "PIECE", piece)
    monkeypatch.setattr(host, "LEAST_ROWS", 1)
    kernel = filled(Kernel(form, tmp_path))
    for move in (np.zeros(CLUSTERS), np.linspace(-10, 10, CLUSTERS), np.linspace(500, 543, CLUSTERS)):
        masses = kernel.masses(BASE + move)
        assert masses.dtype == np.float64 and masses.sum() == pytest.approx(1)
        np.testing.assert_allclose(masses, exact_masses(BASE + move), atol=tolerance)


@pytest.mark.parametrize(("span", "exact"), [(30.0, True), (40.0, True), (42.0, False), (43.9, False)])
def test_it_calls_itself_exact_where_its_floor_adds_no_mass_to_speak_of(span, exact):
    """Every row is sure of cluster 0; the entries of all others lie at the floor, and are lifted by `span`."""
    log_p = np.full((1013, 1009), -1000.0, np.float32)
    log_p[:, 0] = 0.0
    kernel = filled(Kernel(), [log_p], np.zeros(1009))
    log_alpha = np.full(1009, span)
    log_alpha[0] = 0.0
    too_much = kernel.masses(log_alpha)[1:].sum()  # of what is exp(span - 25000), nothing
    assert kernel.is_exact(log_alpha) == exact == (too_much <= kernels.NEGLIGIBLE)
    assert not filled(Kernel("half"), [log_p], np.zeros(1009)).is_exact(np.zeros(1009))


def test_blocks_on_several_devices_are_summed_where_they_are(monkeypatch):
    on_devices = []
    for number, rows in enumerate((slice(0, 101), slice(101, 103), slice(103, ROWS))):
        with tf.device(f"CPU:{number % 2}"):
            on_devices.append(tf.identity(LOG_P[rows]))
    move = np.linspace(-7, 7, CLUSTERS)
    np.testing.assert_allclose(filled(Kernel(), on_devices).masses(BASE + move), exact_masses(BASE + move), atol=1e-6)
    # as if they were accelerators
    monkeypatch.setattr(reading, "HOST", "no such device")
    for form, tolerance in (("float32", 1e-6), ("half", 3e-3)):
        kernel = filled(Kernel(form), on_devices)
        assert [block.device[-5:] for block in kernel._blocks] == ["CPU:0", "CPU:1", "CPU:0"]
        np.testing.assert_allclose(kernel.masses(BASE + move), exact_masses(BASE + move), atol=tolerance)


def test_it_serves_one_lambda_and_scalings_within_reach():
    kernel = Kernel()
    assert not kernel.holds(LAMBDA, BASE)
    filled(kernel)
    assert kernel.holds(LAMBDA, BASE + 1000.0)  # a constant changes nothing
    assert kernel.holds(LAMBDA, BASE + np.linspace(0, kernels.REACH - 1, CLUSTERS))
    assert not kernel.holds(LAMBDA, BASE + np.linspace(0, kernels.REACH + 3, CLUSTERS))
    assert not kernel.holds(LAMBDA + 1, BASE)


def test_rounding_of_half_precision_is_taken_out_by_a_correction():
    kernel = filled(Kernel("half"))
    near, nearer = BASE + 0.3 * np.sin(np.arange(CLUSTERS)), BASE + 0.31 * np.sin(np.arange(CLUSTERS))
    before = np.abs(kernel.masses(nearer) - exact_masses(nearer)).sum()
    kernel.correct(exact_masses(near), kernel.masses(near))
    np.testing.assert_allclose(kernel.masses(near), exact_masses(near), rtol=1e-6)
    assert np.abs(kernel.masses(nearer) - exact_masses(nearer)).sum() < before / 10


@pytest.mark.parametrize("devices", ["here", "elsewhere"])
def test_the_certificate_is_that_of_an_exact_reading(devices, monkeypatch):
    if devices == "elsewhere":
        monkeypatch.setattr(reading, "HOST", "no such device")
    reader = Reader(RowBlocks([LOG_P[:101], LOG_P[101:]]), kernel=Kernel())
    reader.read(LAMBDA, BASE)
    log_alpha = BASE + np.linspace(3, 17, CLUSTERS)
    found = reader.confirm(reader.read(LAMBDA, log_alpha))
    expected = Reader(RowBlocks(LOG_P), wide=True).read(LAMBDA, log_alpha)
    assert found.exact and reader.num_passes == 3
    weights = np.full(CLUSTERS, 1 / CLUSTERS)
    assert found.cost() == pytest.approx(expected.cost(), rel=1e-5)
    assert found.bound(weights) == pytest.approx(expected.bound(weights), rel=1e-5)
    assert found.error(weights) == pytest.approx(expected.error(weights), abs=1e-6)


def test_scores_are_asked_where_the_kernel_is_not_exact(monkeypatch):
    monkeypatch.setattr(kernels, "NEGLIGIBLE", 1e-9)

    class Counting(list):
        readings = 0

        def __iter__(self):
            self.readings += 1
            return super().__iter__()

    far = BASE + np.linspace(0, kernels.REACH - 1, CLUSTERS)  # what was cut off in the kernel may matter there
    for form, log_alpha, readings in (("float32", BASE, 1), ("float32", far, 2), ("half", BASE, 2)):
        source = Counting([LOG_P])
        blocks = RowBlocks(source)
        source.readings = 0
        reader = Reader(blocks, kernel=Kernel(form))
        reader.read(LAMBDA, BASE)
        assert reader.confirm(reader.read(LAMBDA, log_alpha)).exact
        assert source.readings == readings


def test_no_entry_is_denormal():
    kernel = filled(Kernel(), log_alpha=200 * BASE)
    entries = np.concatenate(kernel._blocks)
    assert entries.max() == 1 and entries.min() == np.exp(host.SMALLEST_EXPONENT)


def test_two_kernels_in_one_place_leave_each_other_alone(tmp_path):
    first = filled(Kernel("disk", tmp_path))
    second = filled(Kernel("disk", tmp_path), log_alpha=BASE + np.linspace(0, 9, CLUSTERS))
    np.testing.assert_allclose(first.masses(BASE), exact_masses(BASE), atol=1e-6)
    second.close()
    np.testing.assert_allclose(first.masses(BASE), exact_masses(BASE), atol=1e-6)
    (tmp_path / "thesis").mkdir()
    kernels.remove_leftovers(tmp_path)  # as after a kill
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_a_new_base_replaces_the_blocks_one_by_one(tmp_path):
    kernel = filled(Kernel("disk", tmp_path))
    filled(kernel, log_alpha=BASE + np.linspace(0, 99, CLUSTERS))
    assert len(kernel._blocks) == 3
    assert sorted(path.name for path in tmp_path.rglob("*.float32")) == [f"0000{i}.float32" for i in range(3)]
    log_alpha = BASE + np.linspace(0, 90, CLUSTERS)
    np.testing.assert_allclose(kernel.masses(log_alpha), exact_masses(log_alpha), atol=1e-6)
    kernel.close()
    assert list(tmp_path.iterdir()) == [] and not kernel.holds(LAMBDA, BASE)
