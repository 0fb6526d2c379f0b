"""Orders and factors as pure functions; batches against hand-made ones; one, two replicas and `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import selabel_tf.data as data
from selabel_tf.data import pipeline

N, H, W, F = 53, 5, 7, 3
IMAGES = np.random.default_rng(5).random((N, H, W, 3)).astype(np.float32)
KEY = {"seed": 3, "stream": pipeline.TRAINING, "epoch": 2}
ORDER_OF_SEVEN = [6, 0, 2, 4, 1, 3, 5]
FACTORS_OF_TWO = [[0.82544959, 0.8443948, 0.23609841], [0.72751367, 0.0336163, 0.90538579]]


def by_index(batches):
    """{index: pixels} of one iteration, after checking that every index came once."""
    pairs = [(int(i), image) for images, index in batches for i, image in zip(index, images.numpy(), strict=True)]
    assert sorted(i for i, _ in pairs) == list(range(len(pairs)))
    return dict(pairs)


def order_of(batches):
    return np.concatenate([index for _, index in batches]).tolist()


def same_pixels(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[i], b[i]) for i in a)


@pytest.fixture
def source():
    return data.from_arrays(IMAGES).augmented("random_resized_crop", 4)


def test_the_rest_of_an_epoch_is_the_end_of_the_whole_one(source):
    whole = list(source.train_batches(11, seed=3))
    source.next_epoch = 0
    rest = source.train_batches(11, seed=3, first_batch=3)
    assert rest.cardinality() == 2
    for (images, index), (wanted, where) in zip(rest, whole[3:], strict=True):
        np.testing.assert_array_equal(index, where)
        np.testing.assert_array_equal(images, wanted)


@pytest.mark.parametrize(("first", "message"), [(5, "first_batch=5, but the batches are 0 to 4"), (-1, "at least 0")])
def test_a_batch_that_an_epoch_does_not_have_is_refused(source, first, message):
    with pytest.raises(ValueError, match=message):
        source.train_batches(11, first_batch=first)


def test_an_order_is_a_permutation_that_depends_on_seed_stream_and_epoch():
    keys = [KEY, KEY | {"seed": 4}, KEY | {"stream": pipeline.VIEWS}, KEY | {"epoch": 3}]
    orders = [pipeline.order(N, **key) for key in keys]
    for one in orders:
        np.testing.assert_array_equal(np.sort(one), np.arange(N))
    assert len({tuple(one) for one in orders}) == len(keys)
    np.testing.assert_array_equal(orders[0], pipeline.order(N, **KEY))


def test_order_and_factors_never_change_between_versions():
    """Written down once: a resumed run must see what the interrupted one would have seen."""
    assert pipeline.order(7, **KEY).tolist() == ORDER_OF_SEVEN
    np.testing.assert_allclose(pipeline.factors(2, 3, **KEY), FACTORS_OF_TWO, rtol=0, atol=1e-7)


def test_a_row_of_factors_does_not_depend_on_how_many_rows_there_are():
    np.testing.assert_array_equal(pipeline.factors(N, F, **KEY)[:11], pipeline.factors(11, F, **KEY))


def test_factors_are_uniform_in_zero_to_one_and_differ_by_seed_stream_and_epoch():
    keys = [KEY, KEY | {"seed": 4}, KEY | {"stream": pipeline.VIEWS}, KEY | {"epoch": 3}]
    tables = [pipeline.factors(9973, F, **key) for key in keys]
    for table in tables:
        assert table.dtype == np.float32 and table.shape == (9973, F)
        assert table.min() >= 0 and table.max() < 1
        counts = np.histogram(table, bins=10, range=(0, 1))[0]
        assert abs(counts / table.size - 0.1).max() < 0.01  # 6 standard deviations
    correlations = np.corrcoef(np.concatenate(tables, axis=1).T) - np.eye(len(keys) * F)
    assert abs(correlations).max() < 0.06


def test_every_iteration_shows_the_next_epoch(source):
    batches = source.train_batches(7)
    assert source.next_epoch == 0
    epochs = [by_index(batches) for _ in range(3)]
    assert source.next_epoch == 3
    assert not same_pixels(epochs[0], epochs[1]) and not same_pixels(epochs[1], epochs[2])
    assert len(epochs[0]) == N


def test_setting_the_next_epoch_replays_it_exactly(source):
    batches = source.train_batches(7, seed=11)
    shown = [[(images.numpy(), index.numpy()) for images, index in batches] for _ in range(3)]
    source.next_epoch = 1
    for (images, index), (images_again, index_again) in zip(shown[1], batches, strict=True):
        np.testing.assert_array_equal(index, index_again)
        np.testing.assert_array_equal(images, images_again)
    assert source.next_epoch == 2


def test_pixels_depend_on_seed_epoch_and_index_but_not_on_the_batch_size(source):
    first = by_index(source.train_batches(7, seed=1))
    source.next_epoch = 0
    whole = by_index(source.train_batches(N, seed=1))
    np.testing.assert_allclose([whole[i] for i in range(N)], [first[i] for i in range(N)], atol=1e-5)
    source.next_epoch = 0
    assert not same_pixels(first, by_index(source.train_batches(7, seed=2)))


def test_an_epoch_of_images_is_the_augmentation_of_the_drawn_factors(source):
    source.next_epoch = 2
    shown = by_index(source.train_batches(7, seed=3))
    augmentation = source._augmentation
    expected = augmentation(IMAGES, pipeline.factors(N, augmentation.num_factors, **KEY)).numpy()
    np.testing.assert_allclose(np.stack([shown[i] for i in range(N)]), expected, atol=1e-6)


def test_views_are_a_function_of_seed_and_position_and_unlike_training(source):
    view = source.view_batches(7, position=0)
    first, again = by_index(view), by_index(view)
    assert same_pixels(first, again) and order_of(view) == order_of(view)
    assert source.next_epoch == 0
    assert not same_pixels(first, by_index(source.view_batches(7, position=1)))
    assert not same_pixels(first, by_index(source.view_batches(7, position=0, seed=1)))
    assert not same_pixels(first, by_index(source.train_batches(7)))
    assert order_of(view) != list(range(N))


def test_plain_batches_come_in_index_order_and_unchanged():
    source = data.from_arrays(IMAGES)
    assert order_of(source.plain_batches(11)) == list(range(N))
    images = np.concatenate([images for images, _ in source.plain_batches(11)])
    np.testing.assert_allclose(images, IMAGES, atol=1e-6)


def test_uint8_images_are_scaled_to_zero_to_one():
    pixels = (IMAGES * 255).astype(np.uint8)
    for make in (lambda s: s.plain_batches(N), lambda s: s.train_batches(N)):
        shown = by_index(make(data.from_arrays(pixels)))
        np.testing.assert_allclose(shown[17], pixels[17] / 255, atol=1e-6)


def test_mean_and_std_apply_to_train_view_and_plain_batches_alike():
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    source = data.from_arrays(IMAGES).augmented("none", mean=mean, std=std)
    for batches in (source.train_batches(7), source.view_batches(7, position=0), source.plain_batches(7)):
        np.testing.assert_allclose(by_index(batches)[29], (IMAGES[29] - mean) / std, atol=1e-5)


@pytest.mark.parametrize(("batch_size", "sizes"), [(20, [20, 20, 13]), (N, [N]), (N + 6, [N])])
def test_a_short_last_batch_is_kept_and_the_number_of_batches_is_known(source, batch_size, sizes):
    every_kind = (
        source.train_batches(batch_size),
        source.view_batches(batch_size, position=0),
        source.plain_batches(batch_size),
    )
    for batches in every_kind:
        assert batches.cardinality() == len(sizes)
        assert [len(index) for _, index in batches] == sizes
        images, index = batches.element_spec
        assert (images.dtype, index.dtype) == (tf.float32, tf.int64)
        assert tuple(images.shape[1:]) == source.image_shape == (4, 4, 3)


@pytest.mark.parametrize("name", ["batch_size", "seed", "position", "next_epoch"])
@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (2**63, ValueError), (1.5, TypeError)])
def test_numbers_out_of_range_are_refused_by_name(source, name, value, error):
    with pytest.raises(error, match=rf"{name} must be .*, got "):
        if name == "next_epoch":
            source.next_epoch = value
        else:
            source.view_batches(**({"batch_size": 7, "position": 0} | {name: value}))


def test_a_batch_size_of_zero_is_refused(source):
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        source.train_batches(0)


@pytest.fixture
def uneven(tmp_path):
    """Five files of different sizes."""
    for i in range(5):
        pixels = (IMAGES[i] * 255).astype(np.uint8)[: 3 + i % 3, : 7 - i]
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    return data.from_folder(tmp_path)


def test_images_of_differing_sizes_are_cropped_one_by_one(uneven):
    source = uneven.augmented("random_resized_crop", 4)
    shown = by_index(source.train_batches(3, seed=3))
    augmentation = source._augmentation
    table = pipeline.factors(5, augmentation.num_factors, **KEY | {"epoch": 0})
    for i in range(5):
        pixels = np.asarray(Image.open(source._reader.paths[i]))
        np.testing.assert_allclose(shown[i], augmentation(pixels[None], table[i][None])[0], atol=1e-5)


def test_images_of_differing_sizes_have_plain_batches_too(uneven):
    source = uneven.augmented("centre_crop", 3)
    shown = by_index(source.plain_batches(2))
    for i in range(5):
        pixels = np.asarray(Image.open(source._reader.paths[i]))
        np.testing.assert_allclose(shown[i], source._augmentation.plain(pixels[None])[0], atol=1e-5)


@pytest.mark.parametrize("sizes", ["even", "differing"])
@pytest.mark.parametrize(("piece", "reads"), [(1, [1] * 7), (2 * 7 * 9 * 3 * 4, [1, 2, 2, 2]), (2**30, [4, 3])])
def test_pieces_of_a_batch_make_the_batch(uneven, sizes, piece, reads, monkeypatch):
    even = data.from_arrays(np.random.default_rng(0).random((11, 7, 9, 3), np.float32))
    source = (even if sizes == "even" else uneven).augmented("crop_flip", 4).with_small_crops(2, 3)
    found, read, fetch = [], [], source._reader.fetch
    monkeypatch.setattr(source._reader, "fetch", lambda index: read.append(len(index)) or fetch(index))
    for limit, cores in ((2**40, 99), (piece, 1)):
        monkeypatch.setattr(pipeline, "PIECE_BYTES", limit)
        monkeypatch.setattr(pipeline.os, "cpu_count", lambda cores=cores: cores)
        source.next_epoch = 0
        read.clear()
        batches = source.train_batches(4, first_batch=1)
        found.append(list(batches))
        assert batches.cardinality() == len(found[-1])
    for one, other in zip(*found, strict=True):
        for here, there in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
            np.testing.assert_array_equal(here, there)
    assert sizes != "even" or read == reads


def test_a_file_damaged_in_the_middle_of_training_is_named_in_the_error(uneven):
    source = uneven.augmented("none", 4)
    with open(source._reader.paths[2], "rb+") as file:
        file.truncate(40)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"2\.png cannot be decoded"):
        list(source.train_batches(5))


def test_two_replicas_share_out_exactly_the_images_of_each_batch(source, two_replicas):
    """The short last batch included (53 = 5 * 10 + 3)."""
    alone = [by_hand(images, index) for images, index in source.train_batches(10)]
    source.next_epoch = 0
    shared = []
    for images, index in two_replicas.experimental_distribute_dataset(source.train_batches(10)):
        parts = zip(
            two_replicas.experimental_local_results(images),
            two_replicas.experimental_local_results(index),
            strict=True,
        )
        shared.append({i: image for part in parts for i, image in by_hand(*part).items()})
    assert len(shared) == len(alone)
    assert all(same_pixels(a, b) for a, b in zip(alone, shared, strict=True))
    assert source.next_epoch == 1


def by_hand(images, index):
    return dict(zip(index.numpy().tolist(), images.numpy(), strict=True))


class SeenByFit(keras.Model):
    """Writes down, per epoch, the sum of pixels it was shown for each index."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = self.add_weight(shape=(N,), initializer="zeros", trainable=False, name="seen")

    def call(self, images):
        return self.dense(keras.ops.reshape(images, (-1, 4 * 4 * 3)))

    def train_step(self, batch):
        images, index = batch
        sums = tf.reduce_sum(images, axis=[1, 2, 3])
        self.seen.assign(tf.tensor_scatter_nd_update(self.seen.value, index[:, None], sums))
        return {"loss": tf.reduce_mean(self(images))}


@pytest.mark.parametrize("first", [0, 5])
def test_fit_shows_the_epochs_that_a_callback_sets(source, first):
    expected = []
    for epoch in range(first, first + 3):
        source.next_epoch = epoch
        shown = by_index(source.train_batches(10))
        expected.append([shown[i].sum() for i in range(N)])

    model, seen = SeenByFit(), []
    model.compile()

    class Epochs(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            source.next_epoch = epoch

        def on_epoch_end(self, epoch, logs=None):
            seen.append(np.array(self.model.seen))

    batches = source.train_batches(10)
    model.fit(batches, initial_epoch=first, epochs=first + 3, callbacks=[Epochs()], verbose=0)
    np.testing.assert_allclose(seen, expected, rtol=1e-4)


def test_fit_shows_every_epoch_anew_without_any_callback(source):
    model, seen = SeenByFit(), []
    model.compile()
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(np.array(model.seen)))
    model.fit(source.train_batches(10), epochs=3, callbacks=[note], verbose=0)
    assert len({tuple(one) for one in seen}) == 3
