"""The real program in a process of its own; its parts in this one."""

import json
import shlex
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from selabel_tf.data import from_arrays
from selabel_tf.evaluation import results
from selabel_tf.export import parity, runtimes
from selabel_tf.training.trained_run import load_run
from tools import export as tool


@pytest.fixture(scope="module")
def program(python):
    """(exit code, standard output, standard error) of tools.export."""

    def run(*arguments):
        done = python("-m", "tools.export", *arguments)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def run_folder(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def flagged(monkeypatch):
    """Sets flags for one test, as the command line would."""

    def given(**values):
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        defaults = {"quantize": "none", "batch": None, "num_images": 31, "set": [], "format": "tflite"}
        for name, value in (defaults | values).items():
            monkeypatch.setattr(flags.FLAGS[name], "value", value)
            monkeypatch.setattr(flags.FLAGS[name], "present", 1)

    monkeypatch.setattr(runtimes, "seconds_per_image", lambda *_: 0.001)  # processes of seconds each
    return given


def test_a_saved_model_is_compared_kept_and_served(program, run_folder, tmp_path):
    output = tmp_path / "out" / "digits"
    code, text, errors = program(
        f"--workdir={run_folder}", "--format=saved_model", f"--output={output}", "--num_images=37"
    )
    assert (code, errors) == (0, "")
    lines = text.strip().splitlines()
    assert "The saved_model file against Keras on 37 images of digits" in lines
    assert f"Export: {output / '1'}" in text
    assert "tensorflow/serving" in text and "v1/models/digits:predict" in text
    assert lines[-1].startswith("or look at it with  saved_model_cli show")
    report = json.loads((output / "1" / "parity.json").read_text())
    assert (output / "1" / "MODEL_CARD.md").read_text().startswith("# small\n")
    assert report["largest_difference"] <= 1e-4
    assert report["knn_file"] == report["knn_keras"]
    assert 0 < report["seconds_one_thread"] < 10 and 0 < report["seconds_all_cores"] < 10
    (row,) = results.load_all(run_folder)["export-saved_model"]["rows"]
    assert row["format"] == "saved_model" and row["num_images"] == 37
    run = load_run(run_folder)
    images = next(iter(run.sources()[0].plain_batches(11)))[0]
    served = tf.saved_model.load(output / "1")
    np.testing.assert_allclose(served(images), run.model.embed(images), atol=1e-4)


def test_an_unknown_format_is_one_message(program, run_folder, tmp_path):
    code, _, errors = program(f"--workdir={run_folder}", "--format=tfilte", f"--output={tmp_path / 'out'}")
    assert code == 1
    assert "Unknown format 'tfilte'. Did you mean 'tflite'? Available: saved_model, keras, tflite, onnx." in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "keras"},
        {"format": "tflite", "quantize": "float16"},
        {"format": "tflite", "quantize": "int8", "batch": 7},
        {"format": "saved_model"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_every_format_leaves_by_the_tool(run_folder, tmp_path, flagged, capsys, options):
    flagged(workdir=str(run_folder), output=str(tmp_path / "out"), **options)
    tool.main([])
    text = capsys.readouterr().out
    assert "Next: " in text and f"Export: {tmp_path / 'out' / '1'}" in text
    report = json.loads((tmp_path / "out" / "1" / "parity.json").read_text())
    assert report["num_images"] == 31
    assert (report["float_bytes"] is not None) == (options.get("quantize", "none") != "none")
    assert runtimes.load(tmp_path / "out" / "1")(np.zeros((2, 16, 16, 1), np.float32))["features"].shape == (2, 512)


def test_what_to_do_next_can_be_pasted(run_folder, tmp_path, flagged, capsys):
    flagged(workdir=str(run_folder), output=str(tmp_path / "my model"), format="saved_model")
    tool.main([])
    lines = capsys.readouterr().out.splitlines()
    commands = "docker", "curl", "saved_model_cli"
    served, asked, shown = (shlex.split(next(line for line in lines if one in line)) for one in commands)
    assert f"{tmp_path / 'my model'}:/models/my model" in served and "MODEL_NAME=my model" in served
    assert asked[-1] == "localhost:8501/v1/models/my%20model:predict"
    assert shown[shown.index("--dir") + 1] == str(tmp_path / "my model" / "1")


def test_a_file_that_disagrees_is_not_kept(run_folder, tmp_path, flagged, monkeypatch, capsys):
    monkeypatch.setitem(parity.BOUNDS, "none", parity.Bounds(largest_difference=1e-30, smallest_cosine=2))
    flagged(workdir=str(run_folder), output=str(tmp_path / "out"))
    with pytest.raises(tool.Disagreement, match=r"does not agree with Keras: .*cosine.* Nothing was kept in .*out"):
        tool.main([])
    assert "smallest cosine" in capsys.readouterr().out  # the table is shown all the same
    assert list((tmp_path / "out").iterdir()) == []
    assert not (run_folder / "evaluation").exists()


def test_a_run_without_a_checkpoint_is_refused(run_folder, tmp_path, flagged):
    shutil.rmtree(run_folder / "checkpoints")
    flagged(workdir=str(run_folder), output=str(tmp_path / "out"))
    with pytest.raises(ValueError, match="no whole checkpoint yet"):
        tool.main([])


def test_another_input_size_is_refused(run_folder, tmp_path, flagged):
    flagged(workdir=str(run_folder), output=str(tmp_path / "out"), set=["augment.size=17"])
    with pytest.raises(ValueError, match=r"gives images 17x17x1, the network of .* takes 16x16x1"):
        tool.main([])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"quantize": "int4"}, "Unknown --quantize='int4'. Available: none, float16, dynamic, int8."),
        ({"format": "keras", "quantize": "int8"}, "options of tflite. Leave them out with --format=keras"),
        ({"format": "onnx", "batch": 3}, "options of tflite. Leave them out with --format=onnx"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(flagged, options, message):
    flagged(workdir="none", output="none", **options)
    with pytest.raises(ValueError, match=message):
        tool.check_flags()


def test_images_are_spread_over_a_sorted_set():
    source = from_arrays(np.zeros((101, 3, 3), np.uint8), np.repeat([0, 1], [50, 51]))
    assert tool.spread(source, 5).ids == ("0", "25", "50", "75", "100")
    assert tool.spread(source, 1000).num_examples == 101


def test_without_classes_there_is_no_knn(small_config):
    assert tool.judge(from_arrays(np.zeros((5, 3, 3), np.uint8)), small_config().evaluation) is None
