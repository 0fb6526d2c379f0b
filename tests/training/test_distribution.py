"""Devices are chosen by name, and what is not there is said with what is."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.labelling.relabel import reach_all
from selabel_tf.training import distribution


@pytest.fixture
def mirrored(monkeypatch, two_replicas):
    """Records what MirroredStrategy is asked for; a second real one would upset the first."""
    asked = []

    def make(devices):
        asked.append(devices)
        return two_replicas

    monkeypatch.setattr(tf.distribute, "MirroredStrategy", make)
    return asked


def pretend_devices(monkeypatch, *names):
    def listed(kind=None):
        return [SimpleNamespace(name=f"/device:{n}") for n in names if kind is None or n.startswith(kind)]

    monkeypatch.setattr(tf.config, "list_logical_devices", listed)


@pytest.mark.parametrize("devices", [None, ""])
def test_without_gpus_nothing_is_distributed(devices, mirrored, monkeypatch):
    pretend_devices(monkeypatch, "CPU:0")
    assert distribution.strategy(devices) is tf.distribute.get_strategy()
    assert mirrored == []


def test_one_gpu_is_left_to_tensorflow(mirrored, monkeypatch):
    pretend_devices(monkeypatch, "CPU:0", "GPU:0")
    assert distribution.strategy() is tf.distribute.get_strategy()
    assert mirrored == []


def test_all_visible_gpus_are_used_without_asking(mirrored, monkeypatch):
    pretend_devices(monkeypatch, "CPU:0", "GPU:0", "GPU:1", "GPU:2")
    assert distribution.strategy().num_replicas_in_sync == 2  # the recorder's own
    assert mirrored == [["GPU:0", "GPU:1", "GPU:2"]]


def test_named_devices_are_mirrored_in_the_order_given(mirrored, monkeypatch):
    pretend_devices(monkeypatch, "CPU:0", "GPU:0", "GPU:1", "GPU:2")
    distribution.strategy("gpu:2, GPU")
    assert mirrored == [["GPU:2", "GPU:0"]]


def test_two_real_cpu_devices_can_be_named(mirrored):
    assert distribution.strategy("cpu:0,cpu:1").num_replicas_in_sync == 2
    assert mirrored == [["CPU:0", "CPU:1"]]


@pytest.mark.parametrize(("devices", "place"), [("cpu", "CPU:0"), ("cpu:1", "CPU:1")])
def test_a_single_named_device_holds_the_model_and_trains_it(devices, place):
    strategy = distribution.strategy(devices)
    assert strategy.num_replicas_in_sync == 1
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    before = model.layers[0].kernel.numpy()
    model.fit(np.ones((5, 3)), np.ones((5, 2)), verbose=0)
    assert model.layers[0].kernel.value.device.endswith(place)
    assert np.abs(model.layers[0].kernel.numpy() - before).max() > 1e-4


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("gpu:3", "No device 'gpu:3' in devices='gpu:3'. Visible here: cpu:0, gpu:0."),
        ("gpu:0,tpu", "No device 'tpu' in devices='gpu:0,tpu'. Visible here: cpu:0, gpu:0."),
        ("gpu:0,", "No device '' in devices='gpu:0,'. Visible here: cpu:0, gpu:0."),
        ("gpu:0,gpu", "devices='gpu:0,gpu' names gpu:0 twice. Name each device once."),
    ],
)
def test_a_device_that_is_not_there_or_named_twice_is_refused(devices, message, monkeypatch):
    pretend_devices(monkeypatch, "CPU:0", "GPU:0")
    with pytest.raises(ValueError) as error:
        distribution.strategy(devices)
    assert str(error.value) == message


@pytest.mark.parametrize(("names", "times"), [(("CPU:0",), 1), (("CPU:0", "GPU:0"), 0)])
def test_ops_are_made_deterministic_only_where_there_is_no_gpu(names, times, monkeypatch):
    pretend_devices(monkeypatch, *names)
    calls = []
    # Recorded, not done: the switch holds for the whole process and would reach the other tests.
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: calls.append(1))
    distribution.make_deterministic_on_cpu(7)
    assert len(calls) == times


def test_the_same_seed_gives_the_same_weights(monkeypatch):
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)
    kernels = []
    for seed in (7, 7, 11):
        distribution.make_deterministic_on_cpu(seed)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
        kernels.append(model.layers[0].kernel.numpy())
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert np.abs(kernels[0] - kernels[2]).max() > 1e-3


def test_a_batch_that_does_not_divide_over_the_replicas_is_refused_with_one_that_does():
    with pytest.raises(ValueError, match=r"^batch_size=127 does not divide over 2 replicas\. Use a multiple of 2"):
        distribution.check_batch(127, 2, 1000)
    with pytest.raises(ValueError, match=r"e\.g\. 15\.$"):
        distribution.check_batch(13, 5, 1000)
    distribution.check_batch(126, 2, 1000)
    distribution.check_batch(127, 1, 1000)


def test_a_batch_reaches_all_replicas_if_tensorflow_deals_it_to_all_of_them(python):
    """Asked of TensorFlow itself, in a process with four devices."""
    program = """
import tools.quiet, json
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
strategy = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(4)])
found = []
for count in range(1, 14):
    rows = tf.data.Dataset.range(13).batch(13).map(lambda batch: batch[:count])  # of unknown size, as ours
    (batch,) = strategy.experimental_distribute_dataset(rows)
    found.append(min(int(tf.size(part)) for part in strategy.experimental_local_results(batch)) > 0)
print(json.dumps(found))
"""
    done = python("-c", program)
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    assert expected[3] and not expected[4]  # four images reach four replicas, and five only three
    assert [reach_all(count, count, 4) for count in range(1, 14)] == expected
    for count, reaches in enumerate(expected, 1):
        if count < 13:  # as the last of several batches
            assert reach_all(16, 32 + count, 4) == reaches


def test_a_last_batch_that_leaves_a_replica_without_images_is_refused():
    with pytest.raises(ValueError, match=r"the last batch of 21 examples has 5, too few for 4 .* e\.g\. 24\.$"):
        distribution.check_batch(8, 4, 21)
    distribution.check_batch(24, 4, 21)
    with pytest.raises(ValueError, match=r"5 examples has 5, too few for 4 replicas\. Use fewer replicas\.$"):
        distribution.check_batch(8, 4, 5)


def test_a_last_batch_too_short_for_the_replicas_is_refused_with_a_size_that_fits():
    message = r"^With batch_size=8 the last batch of 17 examples has 1, too few for 2 replicas.*e\.g\. 10\.$"
    with pytest.raises(ValueError, match=message):
        distribution.check_batch(8, 2, 17)
    distribution.check_batch(10, 2, 17)
    distribution.check_batch(8, 2, 16)  # no short batch at all
    distribution.check_batch(8, 2, 18)  # one image for each replica
    distribution.check_batch(8, 1, 17)
