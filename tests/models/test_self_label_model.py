import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from selabel_tf.models.objectives import self_label_loss
from selabel_tf.models.projection import Projection
from selabel_tf.models.self_label_model import SelfLabelModel

IMAGES = np.random.default_rng(0).random((37, 8, 6, 1), np.float32)


def make_backbone(normalise=False):
    keras.utils.set_random_seed(5)
    layers = [keras.Input((8, 6, 1)), keras.layers.Conv2D(3, 3, activation="relu")]
    layers += [keras.layers.BatchNormalization()] * normalise
    return keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(11)], name="trunk")


def make_model(num_clusters=(3, 7), **options):
    return SelfLabelModel(make_backbone(), num_clusters, num_examples=37, **options)


def batches(size=10):
    return tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(37))).batch(size)


def expected_losses(model, images, labels):
    """Mean over heads of -log p(label), in float64."""
    per_head = []
    for head, logits in enumerate(model(images)):
        log_p = scipy.special.log_softmax(np.asarray(logits, np.float64), axis=1)
        per_head.append(-log_p[np.arange(len(labels)), labels[:, head]])
    return np.mean(per_head, axis=0)


def test_the_loss_is_the_mean_over_heads_of_the_cross_entropy():
    model = make_model()
    losses = self_label_loss(tf.constant(model.labels), model(IMAGES))
    np.testing.assert_allclose(losses, expected_losses(model, IMAGES, model.labels), rtol=1e-5)


def test_the_losses_of_the_heads_can_be_added_instead_and_that_is_kept():
    model = make_model()
    added = SelfLabelModel.from_config(model.get_config() | {"over_heads": "sum"})
    added.set_weights(model.get_weights())
    added.compile(keras.optimizers.SGD(0.0))
    expected = len(model.num_clusters) * expected_losses(model, IMAGES, model.labels).mean()
    np.testing.assert_allclose(added.evaluate(batches(), verbose=0), expected, rtol=1e-5)
    assert SelfLabelModel.from_config(added.get_config()).over_heads == "sum"


def test_losses_of_heads_are_not_put_together_in_an_unknown_way():
    with pytest.raises(ValueError, match="Unknown over_heads 'median'"):
        SelfLabelModel.from_config(make_model().get_config() | {"over_heads": "median"})


def soft_model(spread=2):
    model = make_model(spread=spread)
    generator = np.random.default_rng(1)
    for head, k in enumerate(model.num_clusters):
        clusters = np.argsort(generator.random((37, k)), axis=1)[:, :spread]
        shares = generator.dirichlet(np.ones(spread), 37).astype(np.float32)
        model.label_store.assign_head(head, clusters[:, 0], np.zeros(k), (clusters, shares))
    return model


def test_the_loss_of_soft_labels_is_the_cross_entropy_to_their_shares():
    model = soft_model()
    clusters, shares = (np.array(variable) for variable in (model.label_store.clusters, model.label_store.shares))
    per_head = []
    for head, logits in enumerate(model(IMAGES)):
        targets = np.zeros(logits.shape)
        np.put_along_axis(targets, clusters[:, head], shares[:, head], axis=1)
        log_p = scipy.special.log_softmax(np.asarray(logits, np.float64), axis=1)
        per_head.append(-(targets * log_p).sum(axis=1).mean())
    model.compile(keras.optimizers.SGD(0.0))
    assert model.evaluate(batches(), verbose=0) == pytest.approx(np.mean(per_head), rel=1e-5)
    assert per_head[0] != pytest.approx(per_head[1], rel=1e-3)


def test_soft_labels_start_as_the_hard_ones():
    soft, hard = make_model(spread=3), make_model()
    for model in (soft, hard):
        model.compile(keras.optimizers.SGD(0.0))
    np.testing.assert_array_equal(soft.labels, hard.labels)
    assert soft.evaluate(batches(), verbose=0) == pytest.approx(hard.evaluate(batches(), verbose=0), rel=1e-6)


def test_soft_labels_travel_with_the_model(tmp_path):
    model = soft_model()
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(again.label_store.shares, model.label_store.shares)
    np.testing.assert_array_equal(again.label_store.clusters, model.label_store.clusters)


@pytest.mark.parametrize("spread", [0, 4])
def test_a_label_is_spread_over_the_clusters_of_the_smallest_head_at_most(spread):
    with pytest.raises(ValueError, match=f"spread={spread}: a label can be spread over 1 cluster .* to 3"):
        make_model(spread=spread)


def pooled_model():
    keras.utils.set_random_seed(5)
    layers = [keras.Input((8, 6, 1)), keras.layers.Conv2D(5, 3, activation="relu")]
    trunk = keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(11)])
    trunk = keras.Model(trunk.inputs, trunk.outputs[0])  # which minds what it is called with
    return SelfLabelModel(trunk, (3, 7), num_examples=37)


def test_the_loss_of_an_image_with_small_crops_is_the_mean_over_all_its_crops():
    model = pooled_model()
    model.compile(keras.optimizers.SGD(0.0))
    small = np.random.default_rng(2).random((37, 3, 5, 4, 1), np.float32)
    losses = [expected_losses(model, IMAGES, model.labels)]
    for crop in range(3):
        z = model.backbone.call(tf.constant(small[:, crop]))
        losses.append(np.asarray(self_label_loss(tf.constant(model.labels), model.heads(z))))
    data = tf.data.Dataset.from_tensor_slices(((IMAGES, small), np.arange(37))).batch(10)
    assert model.evaluate(data, verbose=0) == pytest.approx(np.mean(losses), rel=1e-5)
    history = model.fit(data, shuffle=False, verbose=0).history
    assert history["loss"] == pytest.approx([np.mean(losses)], rel=1e-5)
    for ours, theirs in zip(model.predict(data, verbose=0), model.predict(IMAGES, verbose=0), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_small_crops_without_labels_to_learn_are_refused():
    square = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.GlobalAveragePooling2D()])
    model = SelfLabelModel(square, (3,), 37, objectives=("rotation",))
    with pytest.raises(ValueError, match=r"Small crops learn the labels, and objectives=\('rotation',\) has none"):
        model.judge((IMAGES[:5, :6], np.zeros((5, 2, 3, 3, 1), np.float32)), tf.range(5))


def test_fit_logs_the_loss_of_an_untouched_model_exactly():
    model = make_model()
    model.compile(keras.optimizers.SGD(0.0))
    expected = expected_losses(model, IMAGES, model.labels).mean()  # 37 in tens: not the mean of batch means
    history = model.fit(batches(), epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(model.evaluate(batches(), verbose=0), expected, rtol=1e-5)


def test_a_training_step_is_plain_gradient_descent_on_that_loss():
    model = make_model()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(self_label_loss(tf.constant(model.labels), model(IMAGES, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    expected = [np.array(w) - 0.5 * np.array(g) for w, g in zip(model.trainable_variables, gradients, strict=True)]
    model.compile(keras.optimizers.SGD(0.5))
    model.fit(batches(37), shuffle=False, verbose=0)
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable, value, atol=1e-6)


def test_regularisers_of_the_backbone_are_added_to_the_loss():
    dense = keras.layers.Dense(11, kernel_regularizer=keras.regularizers.L2(0.3))
    trunk = keras.Sequential([keras.Input((8, 6, 1)), keras.layers.Flatten(), dense])
    model = SelfLabelModel(trunk, [3], 37)
    model.heads.kernel.assign(tf.zeros_like(model.heads.kernel))  # no gradient reaches the trunk but the regulariser's
    before = np.array(dense.kernel)
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(batches(37), shuffle=False, verbose=0)
    np.testing.assert_allclose(dense.kernel, before * (1 - 0.1 * 2 * 0.3), atol=1e-6)


def test_new_labels_are_seen_by_a_step_compiled_before():
    model = make_model([3])
    model.compile(keras.optimizers.SGD(0.0))
    before = model.evaluate(batches(), verbose=0)
    model.label_store.assign_head(0, model.assign(IMAGES)[:, 0], np.zeros(3))
    after = model.evaluate(batches(), verbose=0)
    assert after < before  # the most probable label of each row cannot cost more
    np.testing.assert_allclose(after, expected_losses(model, IMAGES, model.labels).mean(), rtol=1e-5)


def test_embed_assign_and_labels_have_the_promised_shapes():
    model = make_model()
    logits = model.predict(IMAGES, verbose=0)
    assert [x.shape for x in logits] == [(37, 3), (37, 7)]
    np.testing.assert_allclose(model.embed(IMAGES), model.backbone(IMAGES), atol=1e-6)
    assigned = model.assign(IMAGES)
    assert assigned.dtype == model.labels.dtype == np.int32
    np.testing.assert_array_equal(assigned, np.stack([x.argmax(1) for x in logits], axis=1))
    assert model.labels.shape == (37, 2)
    assert model.feature_size == 11
    assert model.num_clusters == (3, 7)


def test_embed_uses_batch_norm_as_in_inference():
    model = SelfLabelModel(make_backbone(normalise=True), [3], 37)
    np.testing.assert_allclose(model.embed(IMAGES)[:5], model.embed(IMAGES[:5]), atol=1e-5)


def test_a_saved_model_comes_back_with_labels_heads_and_optimizer(tmp_path):
    model = make_model(seed=3)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    model.fit(batches(), shuffle=False, verbose=0)
    model.label_store.assign_head(1, np.arange(37) % 7, np.arange(7.0))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.labels, model.labels)
    np.testing.assert_array_equal(again.label_store.log_alpha(1), np.arange(7.0))
    for ours, theirs in zip(model(IMAGES), again(IMAGES), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for trained in (model, again):  # momentum and all: training goes on alike
        trained.fit(batches(), shuffle=False, verbose=0)
    for ours, theirs in zip(model.trainable_variables, again.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("part", ["heads", "projection", "backbone"])
def test_what_was_frozen_is_frozen_in_a_model_that_comes_back_with_its_momentum(part, tmp_path, recwarn):
    model = make_model(projection=Projection((5,)))
    getattr(model, part).trainable = False
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    model.fit(batches(), shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert [v.shape for v in again.trainable_variables] == [v.shape for v in model.trainable_variables]
    for ours, theirs in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not [str(w.message) for w in recwarn if "Skipping variable" in str(w.message)]


@pytest.mark.parametrize(("saved", "here"), [("float32", "mixed_float16"), ("mixed_float16", "float32")])
def test_a_model_has_the_precision_of_its_file_and_not_of_the_process(saved, here, tmp_path):
    try:
        keras.config.set_dtype_policy(saved)
        square = keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(11)])
        options = {"objectives": ("labels", "rotation"), "projection": Projection((7, 5))}
        model = SelfLabelModel(square, (3, 7), 37, **options)
        model.save(tmp_path / "model.keras")
        keras.config.set_dtype_policy(here)
        again = keras.models.load_model(tmp_path / "model.keras")
    finally:
        keras.config.set_dtype_policy("float32")
    layers = [again.heads, *again.objective_heads, again.projection, *again.projection.steps, *again.backbone.layers]
    assert len(layers) == 3 + 4 + 2
    assert {layer.name: layer.dtype_policy.name for layer in layers} == {layer.name: saved for layer in layers}


def test_it_is_exported_as_any_keras_model(tmp_path):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(batches(), shuffle=False, verbose=0)
    model.export(tmp_path / "fitted", verbose=False)
    model.save(tmp_path / "model.keras")
    keras.models.load_model(tmp_path / "model.keras").export(tmp_path / "loaded", verbose=False)
    for name in ("fitted", "loaded"):
        served = tf.saved_model.load(tmp_path / name)
        for ours, theirs in zip(served.serve(IMAGES[:5]), model(IMAGES[:5]), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_weights_saved_alone_carry_the_labels(tmp_path):
    model, other = make_model(seed=3), make_model(seed=4)
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other.labels, model.labels)


def test_steps_per_execution_above_one_trains_the_same():
    results = []
    for together in (1, 3):
        model = make_model()
        model.compile(keras.optimizers.SGD(0.1), steps_per_execution=together)
        history = model.fit(batches(), epochs=2, shuffle=False, verbose=0)
        results.append((history.history["loss"], [np.array(w) for w in model.trainable_variables]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    for one, three in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, three, atol=1e-6)


def test_any_keras_application_serves_as_backbone():
    network = keras.applications.MobileNetV2(
        input_shape=(32, 32, 3), alpha=0.35, include_top=False, pooling="avg", weights=None
    )
    model = SelfLabelModel(network, [3, 5], num_examples=7)
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)  # tracing 150 layers takes half a minute
    images = np.random.default_rng(0).random((7, 32, 32, 3), np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(7))).batch(7)
    before = [np.array(w) for w in network.trainable_variables]
    model.fit(data, shuffle=False, verbose=0)
    assert model.embed(images).shape == (7, 1280)
    assert any((np.array(w) != b).any() for w, b in zip(network.trainable_variables, before, strict=True))


def test_a_backbone_that_is_not_built_needs_the_image_shape():
    @keras.saving.register_keras_serializable(package="test")
    class Own(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = keras.layers.Dense(5)

        def call(self, images, training=False):
            return self.dense(keras.ops.reshape(images, (-1, 48)))

    with pytest.raises(ValueError, match=r"image_shape=\(h, w, c\)"):
        SelfLabelModel(Own(), [3], 37)
    model = SelfLabelModel(Own(), [3], 37, image_shape=(8, 6, 1))
    model.compile("sgd")
    model.fit(batches(), shuffle=False, verbose=0)
    assert model.embed(IMAGES).shape == (37, 5)


def test_mixed_float16_trains_with_a_scaled_loss():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make_model()
        model.compile(keras.optimizers.SGD(0.1))
    finally:
        keras.config.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    history = model.fit(batches(), epochs=3, shuffle=False, verbose=0)
    plain = make_model()
    plain.compile(keras.optimizers.SGD(0.1))
    expected = plain.fit(batches(), epochs=3, shuffle=False, verbose=0)
    np.testing.assert_allclose(history.history["loss"], expected.history["loss"], rtol=2e-2)
    assert model.heads.kernel.dtype == "float32"


def test_fewer_examples_than_clusters_are_refused():
    with pytest.raises(ValueError, match="num_examples=37 is fewer than the 41 clusters"):
        make_model([3, 41])


def test_a_backbone_must_give_vectors():
    maps = keras.Sequential([keras.Input((8, 6, 1)), keras.layers.Conv2D(3, 3)])
    with pytest.raises(ValueError, match=r"vectors \[batch, D\] are expected.*pooling='avg'"):
        SelfLabelModel(maps, [3], 37)


@pytest.mark.parametrize("option", [{"loss": "mse"}, {"metrics": ["accuracy"]}])
def test_compile_refuses_another_loss(option):
    with pytest.raises(ValueError, match=f"got {next(iter(option))}, but SelfLabelModel has its own loss"):
        make_model().compile("sgd", **option)


def test_fit_explains_what_it_is_fed_with():
    model = make_model()
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"\(image, index\) pairs"):
        model.fit(tf.data.Dataset.from_tensor_slices(IMAGES).batch(10), shuffle=False, verbose=0)
    rows = np.arange(37)
    for index, what in [
        (rows.astype(np.float32), r"float32 \[None\]"),
        (np.stack([rows, rows], axis=1), r"int64 \[None, 2\]"),
        ({"row": rows}, "a dict"),
    ]:
        data = tf.data.Dataset.from_tensor_slices((IMAGES, index)).batch(10)
        with pytest.raises(ValueError, match=f"index of the examples is {what}; one whole number for each image"):
            model.fit(data, shuffle=False, verbose=0)


@pytest.mark.parametrize(
    "index", [np.arange(37, dtype=np.uint8), np.arange(37)[:, None], np.arange(37, dtype=np.int32)]
)
def test_an_index_may_be_of_any_whole_numbers_and_a_column(index):
    model = make_model()
    model.compile(keras.optimizers.SGD(0.0))
    data = tf.data.Dataset.from_tensor_slices((IMAGES, index)).batch(10)
    expected = expected_losses(model, IMAGES, model.labels).mean()
    np.testing.assert_allclose(model.evaluate(data, verbose=0), expected, rtol=1e-5)


def test_weights_of_images_are_refused_and_single_batches_taken():
    model = make_model()
    model.compile(keras.optimizers.SGD(0.0))
    for option in ({"sample_weight": np.ones(37, np.float32)}, {"class_weight": {0: 1.0, 1: 2.0}}):
        with pytest.raises(ValueError, match="takes no sample_weight or class_weight: all images count alike"):
            model.fit(
                IMAGES, np.arange(37) % (2 if "class_weight" in option else 37), shuffle=False, verbose=0, **option
            )
    expected = expected_losses(model, IMAGES[:5], model.labels[:5]).mean()
    for one_batch in (model.train_on_batch, model.test_on_batch):
        model.reset_metrics()
        np.testing.assert_allclose(one_batch(IMAGES[:5], np.arange(5), return_dict=True)["loss"], expected, rtol=1e-5)


def test_evaluating_on_images_beyond_the_training_set_is_refused():
    model = make_model()
    model.compile("sgd")
    data = tf.data.Dataset.from_tensor_slices((IMAGES[:5], np.arange(35, 40))).batch(5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not of the training set"):
        model.evaluate(data, verbose=0)


def test_a_stock_callback_works(tmp_path):
    model = make_model()
    model.compile("sgd")
    path = tmp_path / "best.weights.h5"
    saver = keras.callbacks.ModelCheckpoint(path, monitor="loss", save_best_only=True, save_weights_only=True)
    model.fit(batches(), shuffle=False, verbose=0, callbacks=[saver])
    assert path.exists()
