"""Images with their labels: the run's own, a folder, and PASCAL VOC in the format of TFDS, fine-tuned to the end."""

import keras
import numpy as np
import pytest

from selabel_tf.config import Augment, Data, Model
from selabel_tf.evaluation.probe_training import Schedule
from selabel_tf.training.assembly import TrainingSet, make_model
from selabel_tf.training.finetuning import Recipe, finetune, scores
from selabel_tf.training.label_tasks import MultiLabel, SingleLabel
from selabel_tf.training.labelled_images import labelled_images
from selabel_tf.training.trained_run import TrainedRun, load_run

VOC = ["data.source=tfds", "data.name=voc/2007", "data.split=train+validation"]


@pytest.fixture(scope="module")
def own(finished_run):
    return load_run(finished_run)


@pytest.fixture(scope="module")
def colour_run(small_config, tmp_path_factory):
    """A network for colour images of 16x16 that was never trained."""
    config = small_config(
        data=Data(source="digits"),
        augment=Augment(policy="crop_flip", size=16, mean=(0.5,), std=(0.25,)),
        model=Model(backbone="small_conv", num_clusters=(3,)),
    )
    training_set = TrainingSet("pictures", 7, (16, 16, 3), "00")
    return TrainedRun(tmp_path_factory.mktemp("run"), config, None, training_set, make_model(config, training_set))


def test_without_a_test_split_a_fifth_of_the_runs_own_images_is_held_out(own):
    train, test = own.sources()
    images = labelled_images(own, train, test, seed=3)
    assert (images.train.num_examples, images.test.num_examples) == (50, 10)
    assert not set(images.train.ids) & set(images.test.ids)
    np.testing.assert_array_equal(images.task.targets, images.train.classes)
    np.testing.assert_array_equal(images.task.expected, images.test.classes)
    assert images.tested_on.startswith("tested on 10 images held out of the training set, seed 3; the network has seen")
    assert labelled_images(own, train, test, seed=4).test.ids != images.test.ids
    assert images.train.policy == "digits"


def test_another_augmentation_may_be_chosen(own):
    images = labelled_images(own, *own.sources(), policy="flip")
    assert images.train.policy == images.test.policy == "flip"
    assert images.train.image_shape == (16, 16, 1)


def test_a_part_of_the_images_keeps_their_classes_together(own):
    images = labelled_images(own, *own.sources())
    rows = np.unique(images.train.classes, return_index=True)[1][::-1]  # one of each class
    part = images.subset(rows)
    np.testing.assert_array_equal(part.task.targets, range(9, -1, -1))
    assert part.test is images.test and part.train.num_examples == 10
    with pytest.raises(ValueError, match="classes that digits has none of"):
        images.subset(rows[1:])


@pytest.fixture(scope="module")
def voc(colour_run, small_voc):
    settings = [*VOC, f"data.data_dir={small_voc}", "data.test_split=test"]
    return labelled_images(colour_run, *colour_run.sources(settings), settings)


def test_voc_is_a_multi_label_task(voc):
    assert isinstance(voc.task, MultiLabel)
    assert voc.task.targets.shape == (42, 5) and set(np.unique(voc.task.targets)) == {-1, 0, 1}
    assert voc.tested_on == "tested on 29 images of voc/2007/test"
    with pytest.raises(ValueError, match="show several classes each, and a part of them"):
        voc.subset([0, 1])


def test_voc_is_learnt_and_scored_without_its_difficult_objects(voc, colour_run):
    recipe = Recipe(Schedule(0.02, 0.1, (16,), epochs=20, batch_size=14, l2=1e-4))
    model = finetune(colour_run, voc.train, voc.task, recipe, seed=2)
    mean, *rows = voc.task.judge(scores(model, voc.test, batch_size=13))
    by_class = {row["class"]: row for row in rows}
    for name in ("aeroplane", "bicycle", "bird"):  # about 0.4 by chance
        assert by_class[name]["ap"] > 0.8 and by_class[name]["ap11"] > 0.8
    assert by_class["boat"]["ap"] is None and by_class["boat"]["ignored"] > 0
    assert by_class["bottle"]["positives"] == 0 and by_class["bottle"]["ap11"] is None
    assert by_class["bird"]["ignored"] > 0
    assert mean["ap11"] == pytest.approx(np.mean([by_class[n]["ap11"] for n in ("aeroplane", "bicycle", "bird")]))


def test_mistakes_are_explained(colour_run, small_voc, tmp_path):
    settings = [*VOC, f"data.data_dir={small_voc}"]
    with pytest.raises(ValueError, match=r"need a split to be tested on: --set data\.test_split=test"):
        labelled_images(colour_run, *colour_run.sources(settings), settings)
    for name in ("a", "b"):
        keras.utils.save_img(tmp_path / f"{name}.png", np.zeros((19, 17, 3)), scale=False)
    settings = ["data.source=folder", f"data.path={tmp_path}"]
    with pytest.raises(ValueError, match=r"has no true classes to learn. .* one sub-folder per class"):
        labelled_images(colour_run, *colour_run.sources(settings), settings)


def test_folders_are_single_labels(colour_run, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(5):
            keras.utils.save_img(tmp_path / name / f"{number}.png", np.full((19, 17, 3), 9 * number), scale=False)
    settings = ["data.source=folder", f"data.path={tmp_path}"]
    images = labelled_images(colour_run, *colour_run.sources(settings), settings)
    assert isinstance(images.task, SingleLabel) and images.task.class_names == ("one", "two")
    assert "the network has seen" not in images.tested_on
