"""A network for images that are not square: the programs that judge it and take it away, in processes of their own."""

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Evaluation, Label, Model
from selabel_tf.export import labels as label_files
from selabel_tf.training import distribution, experiment
from selabel_tf.training.trained_run import load_run


def pictures(folder, count, shape=(16, 24, 3)):
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.random.default_rng(number).integers(256, size=shape)
            keras.utils.save_img(folder / name / f"{number}.png", pixels, data_format="channels_last", scale=False)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, small_config):
    place = tmp_path_factory.mktemp("wide")
    config = small_config(
        data=Data(source="folder", path=str(pictures(place / "photos", 7))),
        augment=Augment(policy="flip"),
        model=Model(num_clusters=(3,)),
        label=Label(num_relabels=1),
        evaluation=Evaluation(knn=False, kmeans=False, report=False),
        epochs=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        experiment.run(config, place / "run")
    return place / "run"


def test_it_is_exported(python, run, tmp_path):
    done = python("-m", "tools.export", f"--workdir={run}", "--format=keras", f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    exported = keras.models.load_model(tmp_path / "1" / "backbone.keras")
    images = np.random.default_rng(0).normal(size=(5, 16, 24, 3)).astype(np.float32)
    np.testing.assert_array_equal(exported(images, training=False), load_run(run).model.embed(images))


def test_it_is_probed_with_augmentation(python, run):
    flags = ("--augment=flip", "--epochs=1", "--layers=conv5_relu")
    done = python("-m", "tools.linear_probe", f"--workdir={run}", *flags)
    assert done.returncode == 0, done.stderr


def test_it_labels_images_of_its_own_shape_and_refuses_others(python, run, tmp_path):
    pictures(tmp_path / "new", 2)
    done = python(
        "-m", "tools.labels", f"--workdir={run}", f"--assign={tmp_path / 'new'}", f"--output={tmp_path}/l.csv"
    )
    assert done.returncode == 0, done.stderr
    source, _ = load_run(run).sources([f"data.path={tmp_path / 'new'}"])
    ((images, _),) = source.plain_batches(4)
    np.testing.assert_array_equal(label_files.read(tmp_path / "l.csv").labels, load_run(run).model.assign(images))
    pictures(tmp_path / "tall", 1, shape=(24, 16, 3))
    done = python("-m", "tools.labels", f"--workdir={run}", f"--assign={tmp_path / 'tall'}")
    assert done.returncode == 1 and "takes images 16 high and 24 wide" in done.stderr
