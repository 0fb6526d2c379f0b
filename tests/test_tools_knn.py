"""The real program on the folder of a finished run, in processes of its own; and its parts."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from selabel_tf.data import from_arrays
from selabel_tf.evaluation import knn, results
from selabel_tf.features import extract
from selabel_tf.training.trained_run import load_run
from tools import judged_run
from tools import knn as tool

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"k": ["5"], "sigma": ["0.1"], "layers": [], "pool": "average", "pca": 0, "baselines": []}


def program(*arguments):
    command = [sys.executable, "-m", "tools.knn", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "PYTEST"))}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=600)


@pytest.fixture(scope="module")
def judged(finished_run, tmp_path_factory):
    """(folder, output) of the program with everything on, on a copy of the finished run."""
    folder = tmp_path_factory.mktemp("knn") / "run"
    shutil.copytree(finished_run, folder)
    layers = [layer.name for layer in load_run(folder).model.backbone.layers]
    chosen = f"{layers[1]},{layers[-1]}"
    baselines = "random_weights,raw_pixels"
    done = program(
        f"--workdir={folder}", "--k=5,11", "--sigma=0.07,0.5", f"--layers={chosen}", f"--baselines={baselines}"
    )
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.fixture
def set_flags(finished_run):
    """A function: flags of the tool, set for one test."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["knn", f"--workdir={finished_run}"])
    with flagsaver.flagsaver(workdir=str(finished_run), set=[], **SMALL):

        def change(**values):
            for name, value in values.items():
                setattr(flags.FLAGS, name, value)

        yield change


def run_main(set_flags, **values):
    set_flags(**values)
    tool.main([])


def test_every_figure_is_that_of_features_extracted_by_hand(judged):
    folder, _ = judged
    found = results.load_all(folder)["knn"]
    run = load_run(folder)
    source, _ = run.sources()
    last = run.model.backbone.layers[-1].name
    stored = source.augmented("none")
    hand_made = {
        ("learned", last): (run.model.backbone, source),
        ("random weights", last): (run.untrained_model().backbone, source),
        ("raw pixels", "pixels"): (lambda images: images[:, :, :, 0] @ np.eye(16, dtype=np.float32), stored),
    }
    for (name, layer), (network, images) in hand_made.items():
        rows = np.asarray(extract(lambda x, n=network: n(x), images.plain_batches(13), 60)).reshape(60, -1)
        expected = knn.leave_one_out_table(rows, source.classes, ks=[5, 11], sigmas=[0.07, 0.5])
        written = [row for row in found["rows"] if (row["features"], row["layer"]) == (name, layer)]
        assert [(r["k"], r["sigma"], r["size"]) for r in written] == [(e.k, e.sigma, rows.shape[1]) for e in expected]
        for row, one in zip(written, expected, strict=True):
            # batches of another size may round differently: at most one of 60 images
            assert (row["top1"], row["top5"]) == pytest.approx((one.top1, one.top5), abs=1.01 / 60)
    assert len(found["rows"]) == 4 * (2 + 2 + 1)


def test_the_result_says_what_was_judged_and_how(judged):
    folder, _ = judged
    found = results.load_all(folder)["knn"]
    assert found["settings"]["k"] == [5, 11] and found["settings"]["sigma"] == [0.07, 0.5]
    assert (found["settings"]["pool"], found["settings"]["pca"]) == ("average", 0)
    assert found["settings"]["classified"] == "training images, each by all others"
    assert found["data"]["own"] and found["data"]["test"] is None and found["model"]["epoch"] == 3
    json.dumps(found, allow_nan=False)


def test_the_output_is_progress_a_table_and_where_to_go(judged):
    folder, done = judged
    lines = done.stdout.strip().splitlines()
    for label in ("learned: training images", "random weights: training images", "raw pixels: neighbours at pixels"):
        assert re.search(rf"^{label} +100% 60/60", done.stdout, re.MULTILINE)
    assert "Weighted nearest neighbours" in lines
    assert "Bank: digits, 60 images of 10 classes. Classified: each image by all others." in lines
    assert lines[-2] == f"Results: {folder}/evaluation/knn.json"
    assert lines[-1].startswith("Next: ") and "tools.linear_probe" in lines[-1]
    assert done.stderr == "" and "\r" not in done.stdout


def test_a_mistake_is_one_message_and_comes_before_the_extraction(finished_run):
    done = program(f"--workdir={finished_run}", "--k=60")
    assert done.returncode == 1
    assert "k=60, but each query has 59 candidates. Choose k from 1 to 59." in done.stderr
    assert "Traceback" not in done.stderr and "images" not in done.stdout


@pytest.mark.parametrize(
    "values, message",
    [
        ({"k": ["5", "many"]}, r"--k=5,many is not a list of numbers. Give e.g. --k=20,50,200"),
        ({"sigma": ["0.1", "x"]}, r"--sigma=0.1,x is not a list of numbers. Give e.g. --sigma=0.07,0.1"),
        ({"sigma": ["0"]}, r"sigma=0.0 must be positive"),
        ({"k": []}, "give at least one of each"),
        ({"layers": ["convv9"]}, r"has no layer 'convv9'.* Its layers: "),
        ({"baselines": ["pixels"]}, "Unknown baseline 'pixels'. Available: random_weights, raw_pixels."),
        (
            {"pca": 59_999},
            r"learned, layer \w+: PCA to 59999 dimensions of 60 rows with \d+ features. Choose from 1 to",
        ),
        ({"set": ["epochs=7"]}, "'epochs=7' is a setting of training"),
    ],
)
def test_mistakes_are_named_before_the_extraction(set_flags, monkeypatch, values, message):
    monkeypatch.setattr(tool, "Extractor", lambda *_: pytest.fail("the extraction began"))
    with pytest.raises(ValueError, match=message):
        run_main(set_flags, **values)


def test_features_that_do_not_fit_into_memory_are_refused_with_their_size(set_flags, monkeypatch):
    monkeypatch.setattr(tool, "available_memory", lambda: 1000)
    with pytest.raises(
        ValueError, match=r"The features of 60 images at .* take 0.0 GiB, and 0.0 are available. Choose"
    ):
        run_main(set_flags)


def test_pca_and_flat_maps_are_done_as_asked(set_flags, finished_run, tmp_path, capsys):
    shutil.copytree(finished_run, tmp_path / "run")
    first = load_run(finished_run).model.backbone.layers[1]
    run_main(set_flags, workdir=str(tmp_path / "run"), layers=[first.name], pool="flat", pca=7)
    (row,) = results.load_all(tmp_path / "run")["knn"]["rows"]
    assert (row["layer"], row["size"], row["k"]) == (first.name, 7, 5)
    assert "--baselines=random_weights,raw_pixels" in capsys.readouterr().out
    run_main(set_flags, pca=0)
    (row,) = results.load_all(tmp_path / "run")["knn"]["rows"]
    assert row["size"] == np.prod(first.output.shape[1:])


def pictures(classes, seed):
    images = np.random.default_rng(seed).integers(256, size=(len(classes), 16, 16, 1), dtype=np.uint8)
    return from_arrays(images, np.array(classes), name=f"pictures{seed}")


def with_test_split(monkeypatch, finished_run, bank_classes, test_classes):
    made = judged_run.JudgedRun(load_run(finished_run), pictures(bank_classes, 0), pictures(test_classes, 1))
    monkeypatch.setattr(judged_run, "load", lambda: made)


def test_a_test_split_is_classified_by_the_training_images(set_flags, finished_run, tmp_path, monkeypatch, capsys):
    shutil.copytree(finished_run, tmp_path / "run")
    with_test_split(monkeypatch, tmp_path / "run", [0, 1, 2] * 7, [2, 0, 1, 1, 0])
    run_main(set_flags, k=["21"], baselines=["raw_pixels"])
    output = capsys.readouterr().out
    assert "Bank: pictures0, 21 images of 3 classes. Classified: pictures1, 5 images." in output
    assert "With 3 classes top-5 is top-3." in output
    found = results.load_all(tmp_path / "run")["knn-pictures0"]
    assert found["data"]["test"]["name"] == "pictures1" and found["settings"]["classified"] == "test images"
    assert [row["top5"] for row in found["rows"]] == [1.0, 1.0]  # 21 neighbours: every class has a vote


def test_a_class_that_the_bank_does_not_know_is_refused(set_flags, finished_run, monkeypatch):
    with_test_split(monkeypatch, finished_run, [0, 1, 2] * 7, [0, 1, 2, 3])
    monkeypatch.setattr(tool, "Extractor", lambda *_: pytest.fail("the extraction began"))
    with pytest.raises(ValueError, match="The queries have 4 classes, the bank has 3, and not among them is 3."):
        run_main(set_flags)


def test_help_explains_every_flag():
    done = program("--helpshort")
    for word in ("--workdir", "--k:", "--sigma", "--layers", "--pool", "--pca", "--baselines", "--set", "conv5_relu"):
        assert word in re.sub(r"--\[no\]", "--", done.stdout)
