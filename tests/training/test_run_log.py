"""The log holds every record once, whatever moment the run was killed at."""

import errno
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.training.run_log import RunLog, read_records


def write(folder, *records):
    with RunLog(folder) as log:
        for record in records:
            log.append(record)


def test_records_come_back_in_order_over_two_sessions(tmp_path):
    write(tmp_path / "new" / "run", {"step": 1, "loss": 0.5})
    write(tmp_path / "new" / "run", {"step": 2, "loss": 0.25, "kind": "épreuve"})
    assert read_records(tmp_path / "new" / "run" / "metrics.jsonl") == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.25, "kind": "épreuve"},
    ]


def test_a_record_is_on_disk_as_soon_as_it_is_appended(tmp_path):
    with RunLog(tmp_path) as log:
        log.append({"step": 3})
        assert read_records(tmp_path / "metrics.jsonl") == [{"step": 3}]
        assert log.num_records == 1


def test_numbers_json_does_not_know_become_null_and_numpy_is_unpacked(tmp_path):
    record = {
        "step": 1,
        "a": float("nan"),
        "b": np.float32(-np.inf),
        "c": [np.int64(5), {"d": (np.nan, True)}],
        "e": np.array([1.5, np.inf]),
        "f": np.bool_(True),
        "g": None,
    }
    write(tmp_path, record)

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse) == {
        "step": 1,
        "a": None,
        "b": None,
        "c": [5, {"d": [None, True]}],
        "e": [1.5, None],
        "f": True,
        "g": None,
    }


@pytest.mark.parametrize("record", [{"loss": 1.0}, {"step": 1.0}, {"step": True}, {"step": None}])
def test_a_record_without_a_step_is_refused_and_not_written(tmp_path, record):
    with RunLog(tmp_path) as log, pytest.raises(ValueError, match="A record needs an int 'step'"):
        log.append(record)
    assert read_records(tmp_path / "metrics.jsonl") == []


def test_a_value_that_is_no_json_is_refused_and_not_half_written(tmp_path):
    with RunLog(tmp_path) as log, pytest.raises(TypeError, match="set is not JSON serializable"):
        log.append({"step": 1, "a": [1, {2}]})
    assert (tmp_path / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize("tail", [b'{"step": 2, "lo', b'{"step": 2}', b'{"step": 2, "name": "\xc3'])
def test_a_line_torn_by_a_kill_is_passed_over_and_then_written_anew(tmp_path, tail):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + tail)
    assert read_records(path) == [{"step": 1}]
    write(tmp_path, {"step": 3})
    assert path.read_bytes() == b'{"step": 1}\n{"step": 3}\n'


@pytest.mark.parametrize("bad", ["nonsense", "[1]", '{"loss": 1}', ""])
def test_a_bad_line_in_the_middle_is_named_by_its_number(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{bad}\n{{"step": 2}}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is not a record"):
        read_records(path)
    with pytest.raises(ValueError, match="Mend or remove that line"):
        RunLog(tmp_path)


def test_rewinding_drops_what_came_after_a_position_and_goes_on_from_there(tmp_path):
    with RunLog(tmp_path) as log:
        log.append({"step": 5, "a": 1})
        log.append({"step": 10, "a": 2})
        position = log.position()
        log.append({"step": 10, "a": 3})  # a label pass between two epochs has the step of the epoch before it
    with RunLog(tmp_path) as log:
        assert log.num_records == 3
        log.rewind(**position)
        assert log.position() == position
        log.append({"step": 11, "a": 4})
    assert [record["a"] for record in read_records(tmp_path / "metrics.jsonl")] == [1, 2, 4]


def test_rewinding_to_the_start_leaves_an_empty_log(tmp_path):
    write(tmp_path, {"step": 1}, {"step": 2})
    with RunLog(tmp_path) as log:
        log.scalars(1, {"loss": 0.5})
        log.rewind(0, 0)
    assert read_records(tmp_path / "metrics.jsonl") == []
    assert list((tmp_path / "logs").iterdir()) == []


def test_tensorboard_shows_nothing_twice_after_any_number_of_kills(tmp_path):
    with RunLog(tmp_path) as log:
        log.scalars(3, {"loss": 0.5, "rate": 0.1})
        log.image(3, "filters", np.zeros((1, 5, 7, 3), np.uint8))
        position = log.position()
        log.scalars(3, {"labels": 2.0})
        log.scalars(7, {"loss": 9.0})
    assert position["num_events"] == 3
    for loss in (0.25, 0.125):
        last = max((tmp_path / "logs").glob("events*"), key=lambda path: path.stat().st_mtime_ns)
        with last.open("ab") as file:
            file.write(b"a torn record")
        with RunLog(tmp_path) as log:
            log.rewind(**position)
            log.scalars(7, {"loss": loss})
            assert log.position()["num_events"] == 4
    assert [(step, tag) for step, tag, _ in events(tmp_path)] == [(3, "loss"), (3, "rate"), (3, "filters"), (7, "loss")]
    assert events(tmp_path)[-1][2] == 0.125


def test_a_full_disk_is_told_with_the_name_of_the_log(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with RunLog(tmp_path) as log:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: .*metrics\.jsonl"):
            log.append({"step": 1})


def test_so_it_is_with_the_folder_of_events(tmp_path, monkeypatch):
    with RunLog(tmp_path) as log:
        log.scalars(1, {"loss": 0.5})

        def full():
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

        monkeypatch.setattr(log._writer, "flush", full)
        with pytest.raises(OSError, match=r"No space left on device: .*logs"):
            log.scalars(2, {"loss": 0.5})
        assert log.num_events == 1


def events(folder):
    """(step, tag, tensor) of each summary that TensorBoard would show."""
    found = []
    for path in sorted((folder / "logs").glob("events*")):
        for raw in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(raw.numpy())
            found += [(event.step, value.tag, tf.make_ndarray(value.tensor)) for value in event.summary.value]
    return found


def test_scalars_reach_tensorboard_with_their_step(tmp_path):
    with RunLog(tmp_path) as log:
        log.scalars(3, {"loss": 0.5, "label/nmi": np.float64(0.25)})
        log.scalars(7, {"loss": 0.125})
    assert events(tmp_path) == [(3, "loss", 0.5), (3, "label/nmi", 0.25), (7, "loss", 0.125)]


def test_an_image_reaches_tensorboard_pixel_by_pixel(tmp_path):
    image = np.random.default_rng(2).integers(0, 256, (1, 5, 7, 3), dtype=np.uint8)
    with RunLog(tmp_path) as log:
        log.image(11, "filters", image)
    ((step, tag, (_, _, encoded)),) = events(tmp_path)
    assert (step, tag.split("/")[0]) == (11, "filters")
    np.testing.assert_array_equal(tf.io.decode_png(encoded).numpy(), image[0])


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((1, 5, 7, 3)),
        np.zeros((5, 7, 3), np.uint8),
        np.zeros((2, 5, 7, 3), np.uint8),
        np.zeros((1, 5, 7, 2), np.uint8),
    ],
)
def test_an_image_of_another_form_is_refused(tmp_path, image):
    with (
        RunLog(tmp_path) as log,
        pytest.raises(ValueError, match=r"filters: expected uint8 \[1, h, w, 1 or 3\]"),
    ):
        log.image(11, "filters", image)


def test_a_run_that_draws_nothing_leaves_no_event_file(tmp_path):
    write(tmp_path, {"step": 1})
    assert not (tmp_path / "logs").exists()
