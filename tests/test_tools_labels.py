"""tools.labels and tools.model_card: the real programs, in processes of their own.

Starting TensorFlow takes longer than all the work here, so that one process runs most of the command lines.
"""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.config import Augment, Data, Evaluation, Label
from selabel_tf.data import from_folder
from selabel_tf.evaluation import results
from selabel_tf.export import labels as label_files
from selabel_tf.training import distribution, experiment
from selabel_tf.training.trained_run import load_run

MANY = """
import contextlib, dataclasses, io, json, sys
import tools.labels as tool
from absl import flags

load_run = tool.load_run
for name, argv in json.load(sys.stdin).items():
    for flag in flags.FLAGS:
        flags.FLAGS[flag].unparse()
    flags.FLAGS(["labels", *argv])
    if name == "a network of no square":
        def wide(workdir):
            run = load_run(workdir)
            return dataclasses.replace(run, training_set=dataclasses.replace(run.training_set, image_shape=(16, 17, 3)))
        tool.load_run = wide
    output = io.StringIO()
    error = None
    try:
        with contextlib.redirect_stdout(output):
            tool.main(None)
    except tool.console.USER_ERRORS as problem:
        error = str(problem)
    tool.load_run = load_run
    print(json.dumps({name: [output.getvalue(), error]}))
"""


def picture(path, seed, height=16, width=16, channels=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    path.write_bytes(tf.io.encode_png(pixels).numpy())


@pytest.fixture(scope="module")
def place(tmp_path_factory, small_config, finished_run):
    """A folder with runs on a folder of images and on digits, new images, and images that are none."""
    place = tmp_path_factory.mktemp("labels")
    for seed in range(23):  # equal names in both classes
        picture(place / "photos" / ("cats" if seed % 2 else "dogs") / f"{seed // 2}.png", seed)
    config = small_config(
        data=Data(source="folder", path=str(place / "photos")),
        augment=Augment(policy="flip", size=16, mean=(0.4,) * 3, std=(0.3,) * 3),
        label=Label(num_relabels=1),
        evaluation=Evaluation(knn=False, kmeans=False),
        epochs=1,
        batch_size=11,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        experiment.run(config, place / "run")
    shutil.copytree(finished_run, place / "digits")
    for seed, name in enumerate(("=1+1.png", "a,b.png", "c.png")):
        picture(place / "new" / name, 97 + seed, height=19 + seed, width=31)
    picture(place / "other" / "new" / "d.png", 111)
    picture(place / "写真" / "e.png", 112)
    picture(place / "damaged" / "fine.png", 1)
    whole = (place / "damaged" / "fine.png").read_bytes()
    (place / "damaged" / "torn.png").write_bytes(whole[: len(whole) // 2])
    picture(place / "strange" / "fine.png", 1)
    (place / "strange" / "notes.txt").write_text("no picture")
    (place / "empty").mkdir()
    return place


@pytest.fixture(scope="module")
def done(python, place):
    """Name -> (what was printed, the error or None) of every command line."""
    run, digits = f"--workdir={place}/run", f"--workdir={place}/digits"
    new = f"--assign={place}/new"
    commands = {
        "training images": [run, f"--sort-into={place}/sorted"],
        "parquet": [digits, "--format=parquet", "--head=1", f"--sort-into={place}/sorted_digits"],
        "new images": [run, "--assign", f"{place}/new", f"--sort-into={place}/sorted_new", "--link=copy"],
        "hard links": [run, new, f"--output={place}/new.parquet", f"--sort-into={place}/hard", "--link=hard"],
        "colour for a gray network": [digits, new],
        "the training folder as new": [run, f"--assign={place}/photos"],
        "another folder of that name": [run, f"--assign={place}/other/new"],
        "a name without Latin letters": [run, f"--assign={place}/写真"],
        "no run": [f"--workdir={place}/photos"],
        "no such head": [run, "--head=2"],
        "an empty folder": [run, f"--assign={place}/empty"],
        "no folder": [run, f"--assign={place}/none"],
        "a damaged image": [run, f"--assign={place}/damaged"],
        "no image": [run, f"--assign={place}/strange"],
        "sorted twice": [run, f"--sort-into={place}/photos/cats"],
        "sorted within": [run, f"--sort-into={place}/photos/sorted"],
        "sorted within the new": [run, new, f"--sort-into={place}/new/sorted"],
        "contradiction": [run, "--format=csv", "--output=labels.parquet"],
        "unknown ending": [run, "--output=labels.xlsx"],
        "no folder for the output": [run, f"--output={place}/none/labels.csv"],
        "settings and other images": [run, new, "--set=data.examples_per_class=5"],
        "other images": [run, "--set=data.examples_per_class=5"],
        "a network of no square": [run, new],
    }
    process = python("-c", MANY, stdin=json.dumps(commands))
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    return {name: value for line in process.stdout.splitlines() for name, value in json.loads(line).items()}


def files(folder):
    return {str(path.relative_to(folder)): path for path in Path(folder).rglob("*") if not path.is_dir()}


def test_training_images_keep_the_labels_of_training_and_get_probabilities(place, done):
    output, error = done["training images"]
    assert error is None
    run = load_run(place / "run")
    found = label_files.read(place / "run" / "labels.csv", run.training_set.fingerprint)
    np.testing.assert_array_equal(found.labels, run.model.labels)
    assert found.origin == "training"
    assert found.checkpoint_hash == run.checkpoint.sha256
    assert found.config_hash == run.checkpoint.facts["config_hash"]
    train, _ = run.sources()
    images = np.concatenate([images for images, _ in train.plain_batches(7).as_numpy_iterator()])
    p = tf.nn.softmax(run.model(images, training=False)[1]).numpy()
    expected = p[np.arange(23), found.labels[:, 1]]
    np.testing.assert_allclose(found.confidence.probability[:, 1], expected, rtol=1e-4, atol=2e-6)
    assert "Labels of 23 images, by training" in output
    assert f"Labels: {place}/run/labels.csv" in output
    assert "images  100% 23/23" in output


def test_files_are_linked_into_their_clusters(place, done):
    found = label_files.read(place / "run" / "labels.csv")
    expected = {
        f"cluster-{cluster}/{name.replace('/', '_')}": place / "photos" / name
        for name, cluster in zip(found.ids, found.labels[:, 0], strict=True)
    }
    made = files(place / "sorted")
    assert set(made) == set(expected)
    assert all(made[name].is_symlink() and made[name].samefile(expected[name]) for name in made)
    assert f"Images by cluster of head 0: {place}/sorted" in done["training images"][0]


def test_images_that_are_no_files_are_written_as_png(place, done):
    assert done["parquet"][1] is None
    found = label_files.read(place / "digits" / "labels.parquet")
    made = files(place / "sorted_digits")
    expected = {f"cluster-{k}/{name}.png" for name, k in zip(found.ids, found.labels[:, 1], strict=True)}
    assert set(made) == expected
    train, _ = load_run(place / "digits").sources()
    (first,) = train.stored_images([0])
    written = tf.io.decode_png(made[f"cluster-{found.labels[0, 1]}/{found.ids[0]}.png"].read_bytes()).numpy()
    np.testing.assert_allclose(written / 255, first, atol=0.5 / 255 + 1e-6)


def test_new_images_get_the_prediction_of_the_heads(place, done):
    output, error = done["new images"]
    assert error is None
    found = label_files.read(place / "run" / "labels-new.csv", from_folder(place / "new").fingerprint)
    assert found.ids == ("=1+1.png", "a,b.png", "c.png")
    assert found.origin == "prediction"
    source = from_folder(place / "new").augmented("flip", 16, mean=[0.4] * 3, std=[0.3] * 3)
    images = np.concatenate([images for images, _ in source.plain_batches(2).as_numpy_iterator()])
    np.testing.assert_array_equal(found.labels, load_run(place / "run").model.assign(images))
    assert "by prediction" in output
    made = files(place / "sorted_new")
    assert set(made) == {f"cluster-{k}/{n}" for n, k in zip(found.ids, found.labels[:, 0], strict=True)}
    assert not any(path.is_symlink() for path in made.values())
    assert results.load_all(place / "run")["labels-new"]["rows"][1]["clusters"] == 7


def test_predictions_of_the_training_images_stand_beside_the_labels_of_training(place, done):
    output, error = done["the training folder as new"]
    assert error is None and f"Labels: {place / 'run' / 'labels_predicted.csv'}" in output
    assert label_files.read(place / "run" / "labels_predicted.csv").origin == "prediction"
    assert label_files.read(place / "run" / "labels.csv").origin == "training"


def test_folders_of_the_same_name_keep_results_of_their_own(place, done):
    assert done["another folder of that name"][1] is None
    digits = from_folder(place / "other" / "new").fingerprint[:8]
    assert label_files.read(place / "run" / f"labels-new-{digits}.csv").ids == ("d.png",)
    assert label_files.read(place / "run" / "labels-new.csv").ids == ("=1+1.png", "a,b.png", "c.png")
    assert done["a name without Latin letters"][1] is None
    assert label_files.read(place / "run" / "labels-写真.csv").ids == ("e.png",)


def test_output_and_hard_links(place, done):
    assert done["hard links"][1] is None
    found = label_files.read(place / "new.parquet")
    csv = label_files.read(place / "run" / "labels-new.csv")
    np.testing.assert_array_equal(found.labels, csv.labels)
    made = files(place / "hard")
    assert len(made) == 3
    assert all(path.samefile(place / "new" / path.name) and not path.is_symlink() for path in made.values())


def test_a_gray_network_labels_colour_images(place, done):
    assert done["colour for a gray network"][1] is None
    assert label_files.read(place / "digits" / "labels-new.csv").labels.shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no run", "holds no run: it has no config.json"),
        ("no such head", "--head=2: the run has 2 heads, 0 to 1."),
        ("an empty folder", "holds no images. Expected files"),
        ("no folder", "is not a folder. Give the path of a folder that holds images."),
        ("a damaged image", "torn.png cannot be decoded as an image"),
        ("no image", "notes.txt is not an image"),
        ("sorted twice", "exists and is not an empty folder."),
        ("sorted within", "whose images are to be sorted"),
        ("sorted within the new", "whose images are to be sorted"),
        ("contradiction", "--format=csv and --output=labels.parquet contradict each other."),
        ("unknown ending", "labels are written as .csv or .parquet."),
        ("no folder for the output", "there is no such folder. Create it first."),
        ("settings and other images", "--set chooses where the training images are"),
        ("other images", "is not what"),
        ("a network of no square", "takes images 16 high and 17 wide; folders are brought to squares only."),
    ],
)
def test_mistakes_are_told(done, name, message):
    output, error = done[name]
    assert message in error
    assert "Labels:" not in output


def test_a_mistake_is_one_message_without_a_traceback(python, tmp_path):
    process = python("-m", "tools.labels", f"--workdir={tmp_path}")
    assert process.returncode == 1
    assert "holds no run" in process.stderr
    assert "Traceback" not in process.stderr


def test_help_explains_every_flag(python):
    output = python("-m", "tools.labels", "--help").stdout
    for word in ("--workdir", "--format", "--output", "--assign", "--sort-into", "--link", "--head", "--batch_size"):
        assert word in output


def test_the_card_tool_says_where_the_card_is(python, place):
    process = python("-m", "tools.model_card", f"--workdir={place}/digits", f"--output={place}/CARD.md")
    assert process.returncode == 0, process.stderr
    assert (process.stdout, process.stderr) == (f"Model card: {place}/CARD.md\n", "")
    assert (place / "CARD.md").read_text().startswith("# small\n")
