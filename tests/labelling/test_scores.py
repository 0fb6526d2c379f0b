"""Row blocks: what the solver and the roundings read."""

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.labelling import scores
from selabel_tf.labelling.scores import RowBlocks

MATRIX = np.random.default_rng(0).normal(size=(23, 5)).astype(np.float32)


class Recomputed:
    """A re-iterable that makes its blocks when asked."""

    def __iter__(self):
        return iter([MATRIX[:7], MATRIX[7:7], MATRIX[7:].tolist()])


@pytest.mark.parametrize(
    "source",
    [MATRIX, MATRIX.astype(np.float64), tf.constant(MATRIX), [MATRIX[:11], MATRIX[11:]], Recomputed()],
    ids=["array", "float64", "tensor", "list", "object"],
)
def test_every_kind_of_source_gives_the_same_rows_again_and_again(source, monkeypatch):
    monkeypatch.setattr(scores, "ROWS_PER_BLOCK", 7)
    blocks = RowBlocks(source)
    for _ in range(2):
        read = list(blocks)
        assert all(block.dtype == tf.float32 and len(block) for block in read)
        np.testing.assert_array_equal(np.concatenate(read), MATRIX)
    assert (blocks.num_rows, blocks.num_clusters) == MATRIX.shape


def test_a_matrix_is_cut_into_blocks_of_8192_rows():
    assert [len(block) for block in RowBlocks(np.zeros([8192 + 3, 2]))] == [8192, 3]


def test_a_memory_mapped_matrix_is_read_block_by_block(tmp_path):
    np.save(tmp_path / "scores.npy", MATRIX)
    np.testing.assert_array_equal(
        np.concatenate(list(RowBlocks(np.load(tmp_path / "scores.npy", mmap_mode="r")))), MATRIX
    )


def test_row_blocks_of_row_blocks_are_the_same_rows():
    np.testing.assert_array_equal(np.concatenate(list(RowBlocks(RowBlocks([MATRIX])))), MATRIX)


def test_a_generator_is_refused():
    with pytest.raises(TypeError, match="can be read only once"):
        RowBlocks(block for block in [MATRIX])


@pytest.mark.parametrize("source", [3.0, "scores", {0: MATRIX}])
def test_what_is_neither_matrix_nor_blocks_is_refused(source):
    with pytest.raises(TypeError, match="expected a matrix"):
        RowBlocks(source)


@pytest.mark.parametrize("source", [np.zeros([3]), np.zeros([2, 3, 5]), [np.zeros([3])]])
def test_other_than_two_axes_are_refused(source):
    with pytest.raises(ValueError, match="expected two axes"):
        RowBlocks(source)


@pytest.mark.parametrize("source", [np.zeros([0, 3]), np.zeros([3, 0]), [], [np.zeros([0, 3])], [np.zeros([3, 0])]])
def test_empty_scores_are_refused(source):
    with pytest.raises(ValueError, match="nothing to label"):
        list(RowBlocks(source))


@pytest.mark.parametrize("source", [np.zeros([3, 5]), [np.zeros([2, 5]), np.zeros([1, 5])]])
def test_fewer_examples_than_clusters_are_refused(source):
    with pytest.raises(ValueError, match="3 examples cannot fill 5 clusters"):
        list(RowBlocks(source))


def test_blocks_of_differing_width_are_refused():
    with pytest.raises(ValueError, match="Block 1 of log_p has 3 columns, the first block 5"):
        list(RowBlocks([np.zeros([7, 5]), np.zeros([7, 3])]))


def test_blocks_that_change_between_readings_are_refused():
    source = [MATRIX]
    blocks = RowBlocks(source)
    list(blocks)
    source.append(MATRIX)
    with pytest.raises(ValueError, match="gave 23 rows when first read and 46 now"):
        list(blocks)


def test_weights_are_made_to_sum_to_one():
    np.testing.assert_allclose(scores.wanted_weights([1, 2, 5], 3), [0.125, 0.25, 0.625])
    np.testing.assert_allclose(scores.wanted_weights(None, 4), [0.25] * 4)
