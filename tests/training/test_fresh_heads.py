"""A head drawn anew: its columns and what the optimizer keeps of them, and nothing else."""

import keras
import numpy as np
import pytest

from selabel_tf.data import digits
from selabel_tf.models import SelfLabelModel
from selabel_tf.training import CoupledSGD
from selabel_tf.training.fresh_heads import renew_head

N, CLUSTERS, SPANS = 47, (5, 7, 3), (slice(0, 5), slice(5, 12), slice(12, 15))


def trained_model(optimizer):
    keras.utils.set_random_seed(2)
    trunk = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten(), keras.layers.Dense(211)])
    model = SelfLabelModel(trunk, CLUSTERS, N)
    model.compile(optimizer)
    model.fit(digits().subset(range(N)).train_batches(12), shuffle=False, verbose=0)
    return model


def state(model):
    return {variable.path: np.array(variable) for variable in [*model.variables, *model.optimizer.variables]}


@pytest.mark.parametrize(
    ("make", "slots"),
    [
        (lambda: CoupledSGD(0.1, momentum=0.9), 2),
        (lambda: CoupledSGD(0.1, momentum=0.0), 0),
        (lambda: keras.optimizers.Adam(1e-3), 4),
        (lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True), 2),
        (lambda: keras.optimizers.LossScaleOptimizer(CoupledSGD(0.1, momentum=0.9)), 2),
    ],
    ids=["sgd", "no momentum", "adam", "averaged weights", "loss scaling"],
)
def test_one_head_and_its_slots_begin_anew_and_nothing_else_changes(make, slots):
    model = trained_model(make())
    before = state(model)
    renew_head(model, 1, seed=4, step=30)
    after = state(model)
    kernel = after["heads/kernel"][:, SPANS[1]]
    assert 0.0095 < kernel.std() < 0.0105 and abs(kernel.mean()) < 0.001  # of 1,477 values N(0, 0.01)
    assert not after["heads/bias"][SPANS[1]].any()
    cleared = 0
    for path, old in before.items():
        if (old == after[path]).all():
            continue
        assert old.shape[-1] == sum(CLUSTERS), path
        for untouched in (SPANS[0], SPANS[2]):
            np.testing.assert_array_equal(after[path][..., untouched], old[..., untouched])
        if path not in ("heads/kernel", "heads/bias"):
            assert not after[path][..., SPANS[1]].any()
            cleared += 1
    assert cleared == slots


def test_the_draw_is_a_function_of_seed_step_and_head():
    def draw(head, **position):
        model = trained_model(CoupledSGD(0.1))
        renew_head(model, head, **position)
        return np.array(model.heads.kernel)[:, SPANS[head]]

    first = draw(1, seed=4, step=30)
    np.testing.assert_array_equal(first, draw(1, seed=4, step=30))
    assert (first != draw(1, seed=5, step=30)).all()
    assert (first != draw(1, seed=4, step=31)).all()
    assert (first[:, :3] != draw(2, seed=4, step=30)).all()


def test_before_the_first_step_there_are_no_slots_to_clear():
    trunk = keras.Sequential([keras.Input((16, 16, 1)), keras.layers.Flatten()])
    model = SelfLabelModel(trunk, CLUSTERS, N)
    model.compile(CoupledSGD(0.1))
    old = np.array(model.heads.kernel)
    renew_head(model, 0, seed=0, step=0)
    assert (np.array(model.heads.kernel)[:, SPANS[0]] != old[:, SPANS[0]]).all()


def test_all_replicas_get_the_same_head(two_replicas):
    with two_replicas.scope():
        model = trained_model(CoupledSGD(0.1, momentum=0.9))
    renew_head(model, 2, seed=4, step=30)
    one, two = (np.array(copy) for copy in two_replicas.experimental_local_results(model.heads.kernel.value))
    np.testing.assert_array_equal(one, two)
    slot = next(v for v in model.optimizer.variables if v.shape == model.heads.kernel.shape)
    assert not np.array(slot)[:, SPANS[2]].any() and np.array(slot)[:, SPANS[1]].any()
