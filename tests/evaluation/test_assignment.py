"""Clusters predicted for whole sets of images."""

import numpy as np

from selabel_tf.data import from_arrays
from selabel_tf.evaluation.assignment import assign
from selabel_tf.models import SelfLabelModel, backbone


def test_whole_sets_are_assigned_as_single_batches_are():
    images = np.random.default_rng(0).integers(256, size=(31, 16, 16, 1), dtype=np.uint8)
    source = from_arrays(images)
    model = SelfLabelModel(backbone("small_conv", (16, 16, 1)), [5, 7, 3], num_examples=11)
    for variable in model.heads.trainable_variables:  # heads that tell images apart
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    done = []
    found = assign(model, source.plain_batches(13), 31, done.append)
    by_batch = {}
    for batch, index in source.plain_batches(7).as_numpy_iterator():
        by_batch |= dict(zip(index.tolist(), model.assign(batch).tolist(), strict=True))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [by_batch[row] for row in range(31)])
    assert (found.max(axis=0) > 0).all()
    assert done == [13, 26, 31]
