from dataclasses import replace

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Label, Model, Optimizer
from selabel_tf.training import assembly


def test_the_same_config_makes_the_same_weights(small_config):
    config = small_config()
    source = assembly.make_source(config)
    one, two = (assembly.make_model(config, source) for _ in range(2))
    for ours, theirs in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    other = assembly.make_model(small_config(seed=1), source)
    assert (np.array(other.heads.kernel) != np.array(one.heads.kernel)).any()
    assert (other.labels != one.labels).any()


def test_the_optimizer_is_the_recipes(small_config):
    config = small_config(optimizer=Optimizer(learning_rate=0.07, momentum=0.8, l2=3e-4))
    optimizer = assembly.make_model(config, assembly.make_source(config)).optimizer
    assert (float(optimizer.learning_rate), optimizer.momentum, optimizer.l2) == pytest.approx((0.07, 0.8, 3e-4))


def test_what_stands_over_the_features_is_the_configs(small_config):
    section = Model(num_clusters=(4, 5), projection=(7, 6), temperature=0.5, over_heads="sum")
    config = small_config(model=section, label=Label(spread=3))
    model = assembly.make_model(config, assembly.make_source(config))
    assert model.label_store.spread == 3
    assert (model.projection.sizes, model.projection.temperature, model.over_heads) == ((7, 6), 0.5, "sum")
    assert model.heads.kernel.shape == (6, 9)
    config = small_config(model=Model(num_clusters=(4, 5)))
    model = assembly.make_model(config, assembly.make_source(config))
    assert (model.projection.sizes, model.projection.temperature, model.over_heads) == ((), None, "mean")


def test_small_crops_are_the_configs_and_of_training_only(small_config):
    augment = Augment(policy="crop_flip", small_crops=2, small_size=8, small_area=(0.1, 0.3))
    config = small_config(augment=augment, label=Label(policy="flip"))
    source = assembly.make_source(config)
    with pytest.raises(ValueError, match="The backbone small_conv has no features of small crops, 8x8"):
        assembly.make_model(config, source)
    assembly.make_model(replace(config, model=Model("resnet18_cifar", width=2, num_clusters=(3,))), source)
    assert source.train_batches(4).element_spec[0][1].shape[1:] == (2, 8, 8, 1)
    views = assembly.make_labelling(config, source).options["view_source"]
    assert views.policy == "flip" and views.train_batches(4).element_spec[0].shape[1:] == source.image_shape
    with pytest.raises(ValueError, match="small_crops=2 learn labels, and model"):
        small_config(augment=augment, model=Model(objectives=("rotation",)), label=Label(num_relabels=0))


def test_label_passes_may_have_a_policy_of_their_own(small_config):
    config = small_config(label=Label(policy="none"))
    source = assembly.make_source(config)
    assert assembly.make_labelling(config, source).options["view_source"].policy == "none"
    assert source.policy == config.augment.policy != "none"
    assert assembly.make_labelling(small_config(), source).options["view_source"] is None
    with pytest.raises(ValueError, match="nowhere"):
        assembly.make_labelling(small_config(label=Label(policy="nowhere")), source)


def test_the_learning_rate_drops_at_the_start_of_its_epochs():
    at_epoch = assembly.learning_rate(Optimizer(learning_rate=0.8, drop_epochs=(2, 5), drop_factor=0.5), epochs=7)
    assert [at_epoch(epoch) for epoch in range(7)] == pytest.approx([0.8, 0.8, 0.4, 0.4, 0.4, 0.2, 0.2])


def test_the_learning_rate_may_follow_a_cosine_after_a_warm_up():
    rates = Optimizer(learning_rate=0.8, schedule="cosine", warmup_epochs=3)
    at_epoch = assembly.learning_rate(rates, epochs=9)
    keras_rate = keras.optimizers.schedules.CosineDecay(0.2, 6, warmup_target=0.8, warmup_steps=3)
    assert [at_epoch(epoch) for epoch in range(9)] == pytest.approx([float(keras_rate(epoch)) for epoch in range(9)])
    assert at_epoch(3) == pytest.approx(0.8)
    dropping = assembly.learning_rate(Optimizer(learning_rate=0.8, warmup_epochs=3, drop_epochs=(4,)), epochs=9)
    assert [dropping(epoch) for epoch in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.08])


@pytest.mark.parametrize(("batch", "steps"), [(20, 3), (23, 3), (60, 1), (61, 1), (59, 2)])
def test_the_short_last_batch_is_a_step(batch, steps, small_config):
    config = small_config(batch_size=batch)
    assert assembly.steps_per_epoch(config, assembly.make_source(config)) == steps


def test_all_examples_are_taken_unless_told(small_config):
    assert assembly.make_source(small_config(data=Data(source="digits"))).num_examples == 1797
