"""The real program on the folder of a finished run, in processes of its own; and its parts."""

import json
import re
import shutil
from functools import partial

import numpy as np
import pytest

from selabel_tf.evaluation import knn, results
from selabel_tf.features import extract
from selabel_tf.training.compared_runs import entries_of
from selabel_tf.training.trained_run import load_run


@pytest.fixture(scope="module")
def program(python):
    return partial(python, "-m", "tools.knn")


@pytest.fixture(scope="module")
def judged(program, finished_run, tmp_path_factory):
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


# Tools define flags of the same names, so that a process can import one of them only: cases run in one of their own.
CASES = """
import tools.quiet, contextlib, io, json, sys
import numpy as np
from absl import flags
from absl.testing import flagsaver
from selabel_tf.data import from_arrays
from selabel_tf.training.trained_run import load_run
from tools import judged_run, knn as tool

def no_extraction(*_):
    raise AssertionError("the extraction began")

def pictures(classes, seed):
    images = np.random.default_rng(seed).integers(256, size=(len(classes), 16, 16, 1), dtype=np.uint8)
    return from_arrays(images, np.array(classes), name=f"pictures{seed}")

def with_test_split(bank_classes, test_classes):
    made = judged_run.JudgedRun(load_run(flags.FLAGS.workdir), pictures(bank_classes, 0), pictures(test_classes, 1))
    judged_run.load = lambda: made

usual = tool.Extractor, tool.available_memory, judged_run.load
ends = []
for case in json.loads(sys.argv[1]):
    said, error = io.StringIO(), None
    with flagsaver.flagsaver(), contextlib.redirect_stdout(said):
        flags.FLAGS(["knn", *case["flags"]])
        tool.Extractor, tool.available_memory, judged_run.load = usual
        exec(case["before"])
        try:
            tool.main([])
        except ValueError as mistake:
            error = str(mistake)
    ends.append([said.getvalue(), error])
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def run_cases(python):
    """[output, error] of the tool for each of (code to run before, *flags)."""

    def run(*cases):
        cases = [{"before": before, "flags": given} for before, *given in cases]
        done = python("-c", CASES, json.dumps(cases))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_every_figure_is_that_of_features_extracted_by_hand(judged):
    folder, _ = judged
    (found,) = results.load_all(folder).values()
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
    (found,) = results.load_all(folder).values()
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
    layers = [layer.name for layer in load_run(folder).model.backbone.layers]
    assert lines[-2] == f"Results: {folder}/evaluation/knn_{layers[1]}_{layers[-1]}.json"
    assert lines[-1].startswith("Next: ") and "tools.linear_probe" in lines[-1]
    assert done.stderr == "" and "\r" not in done.stdout


def test_a_mistake_is_one_message_and_comes_before_the_extraction(program, finished_run):
    done = program(f"--workdir={finished_run}", "--k=60")
    assert done.returncode == 1
    assert "k=60, but each query has 59 candidates. Choose k from 1 to 59." in done.stderr
    assert "Traceback" not in done.stderr and "images" not in done.stdout


MISTAKES = {
    ("--k=5,many",): r"--k=5,many is not a list of numbers\. Give e\.g\. --k=20,50,200",
    ("--sigma=0.1,x",): r"--sigma=0\.1,x is not a list of numbers\. Give e\.g\. --sigma=0\.07,0\.1",
    ("--sigma=0",): r"sigma=0\.0 must be positive",
    ("--sigma=0.1,inf",): "sigma=inf must be positive and finite",
    ("--k=",): "give at least one of each",
    ("--layers=convv9",): r"has no layer 'convv9'.* Its layers: ",
    ("--baselines=pixels",): r"Unknown baseline 'pixels'\. Available: random_weights, raw_pixels\.",
    ("--pca=59999",): r"learned, layer \w+: PCA to 59999 dimensions of 60 rows with \d+ features\. Choose from 1 to",
    ("--set=epochs=7",): "'epochs=7' is a setting of training",
}


def test_mistakes_are_named_before_the_extraction(run_cases, finished_run):
    workdir, before = f"--workdir={finished_run}", "tool.Extractor = no_extraction\n"
    cases = [(before, workdir, "--k=5", *given) for given in MISTAKES]
    cases.append((before + "tool.available_memory = lambda: 1000", workdir, "--k=5"))
    cases.append((before + "with_test_split([0, 1, 2] * 7, [0, 1, 2, 3])", workdir, "--k=5"))
    messages = [
        *MISTAKES.values(),
        r"The features of 60 images at .* take 0\.0 GiB, and 0\.0 are available\. Choose fewer layers",
        r"The queries have 4 classes, the bank has 3, and not among them is 3\.",
    ]
    for (_, error), message in zip(run_cases(*cases), messages, strict=True):
        assert error is not None and re.search(message, error), (message, error)


def test_pca_flat_maps_and_a_test_split_are_done_as_asked(run_cases, finished_run, tmp_path):
    folders = [tmp_path / name for name in ("pca", "flat", "split")]
    for folder in folders:
        shutil.copytree(finished_run, folder)
    first = load_run(finished_run).model.backbone.layers[1]
    layer = f"--layers={first.name}"
    (said, *_), _, (split, _) = run_cases(
        ("", f"--workdir={folders[0]}", "--k=5", layer, "--pool=flat", "--pca=7", "--baselines=raw_pixels"),
        ("", f"--workdir={folders[1]}", "--k=5", layer, "--pool=flat"),
        (
            "with_test_split([0, 1, 2] * 7, [2, 0, 1, 1, 0])",
            f"--workdir={folders[2]}",
            "--k=21",
            "--baselines=raw_pixels",
        ),
    )
    rows = results.load_all(folders[0])[f"knn_{first.name}"]["rows"]
    assert [(r["layer"], r["size"], r["k"]) for r in rows] == [(first.name, 7, 5), ("pixels", 7, 5)]
    chosen = f"--k=5 {layer} --pool=flat --pca=7"  # what was asked for stays so
    assert f"tools.knn --workdir={folders[0]} {chosen} --baselines=random_weights,raw_pixels" in said
    (row,) = results.load_all(folders[1])[f"knn_{first.name}"]["rows"]
    assert row["size"] == np.prod(first.output.shape[1:])
    assert "Bank: pictures0, 21 images of 3 classes. Classified: pictures1, 5 images." in split
    assert "With 3 classes top-5 is every class that has a vote." in split
    found = results.load_all(folders[2])["knn-pictures0"]
    assert found["data"]["test"]["name"] == "pictures1" and found["settings"]["classified"] == "test images"
    assert [row["top5"] for row in found["rows"]] == [1.0, 1.0]  # 21 neighbours: every class has a vote


def test_own_images_shown_otherwise_do_not_replace_the_runs_own_figure(run_cases, finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    workdir, changes = f"--workdir={folder}", ["augment.mean=0.5", "augment.std=2.0"]
    dark = [f"--set={text}" for text in changes]
    (_, first), (said, second) = run_cases(("", workdir, "--k=5"), ("", workdir, "--k=5", *dark))
    assert first is second is None
    found = results.load_all(folder)
    assert list(found) == ["knn", "knn-augment.mean_0.5_augment.std_2.0"]
    assert [one["data"]["own"] for one in found.values()] == [True, False]
    assert [one["data"]["changes"] for one in found.values()] == [[], changes]
    assert f"tools.knn {workdir} --set augment.mean=0.5 --set augment.std=2.0 --k=5 --baselines" in said
    own, *_, other = entries_of(str(folder))
    assert own.measures["knn"] == found["knn"]["rows"][0]["top1"]
    assert (other.kind, other.images) == ("elsewhere", "digits, augment.mean=0.5, augment.std=2.0")


def test_other_images_shown_otherwise_do_not_replace_their_figure(run_cases, finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    other = (f"--workdir={folder}", "--k=5", "--set=data.examples_per_class=3")
    run_cases(("", *other), ("", *other, "--set=augment.mean=0.5", "--set=augment.std=2.0"))
    found = results.load_all(folder)
    assert list(found) == ["knn-digits", "knn-digits-augment.mean_0.5_augment.std_2.0"]
    assert [len(one["data"]["changes"]) for one in found.values()] == [0, 2]


def test_a_folder_that_takes_no_result_is_refused_before_the_work(run_cases, finished_run, tmp_path):
    folder = shutil.copytree(finished_run, tmp_path / "run")
    (folder / results.FOLDER).write_text("")  # as root, a folder without permission would be written to all the same
    ((_, error),) = run_cases(("tool.Extractor = no_extraction", f"--workdir={folder}", "--k=5"))
    assert error.startswith(f"{folder}/evaluation cannot be written (Not a directory), and that is where results")


def test_help_explains_every_flag(program):
    done = program("--helpshort")
    for word in ("--workdir", "--k:", "--sigma", "--layers", "--pool", "--pca", "--baselines", "--set", "conv5_relu"):
        assert word in re.sub(r"--\[no\]", "--", done.stdout)
