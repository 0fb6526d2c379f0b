"""What the report shows of a run folder: all that is there, and a sentence on each thing that is not."""

import re
import shlex
import shutil
from dataclasses import replace

import keras
import markupsafe
import numpy as np
import pytest

from selabel_tf import config as configs
from selabel_tf.config import Augment, Data, Label, Model
from selabel_tf.evaluation import clustering, neighbours, report_page, results
from selabel_tf.training import distribution, experiment, report_data, run_facts
from selabel_tf.training.trained_run import load_run


@pytest.fixture(scope="module")
def of_finished(finished_run):
    return report_data.of_folder(finished_run)


def altered(tmp_path, finished_run):
    return shutil.copytree(finished_run, tmp_path / "run")


def said(contents):
    """The sentences on what is missing; the page holds them all."""
    page = report_page.render([contents], title="t")
    for sentence in contents.lacking:
        assert markupsafe.escape(sentence) in page
    return "\n".join(contents.lacking)


def test_labels_confidence_and_classes_are_those_of_the_run(of_finished, finished_run):
    run = load_run(finished_run)
    source, _ = run.sources()
    images = of_finished.training
    np.testing.assert_array_equal(images.labels, run.model.labels)
    np.testing.assert_array_equal(images.classes, source.classes)
    assert images.ids == source.ids and sorted(images.shown) == list(range(60))
    ((pixels, _),) = source.subset(images.shown[:7]).plain_batches(7).as_numpy_iterator()
    for head, logits in enumerate(run.model(pixels)):
        p = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        p = (p / p.sum(axis=1, keepdims=True))[np.arange(7), images.labels[images.shown[:7], head]]
        np.testing.assert_allclose(images.confidence[:7, head], p, rtol=1e-4)
    np.testing.assert_allclose(images.tiles[:7] / 255, pixels, atol=0.003)  # not normalised, so the same
    for head, k in enumerate((5, 7)):
        expected = clustering.class_entropies(images.labels[:, head], source.classes, k)
        np.testing.assert_allclose(images.heads[head].entropy, expected)
    assert of_finished.class_names == tuple(map(str, range(10)))


def test_neighbours_are_the_nearest_others_by_features_and_by_pixels(of_finished, finished_run):
    found, images = of_finished.neighbours, of_finished.training
    run = load_run(finished_run)
    source, _ = run.sources()
    ((pixels, _),) = source.plain_batches(60).as_numpy_iterator()
    for rows, table in ((run.model.embed(pixels), found.by_features), (pixels.reshape(60, -1), found.by_pixels)):
        expected = neighbours.nearest_others(rows, 8).rows[found.queries]
        assert np.mean(table == expected) > 0.9  # thumbnails are rounded to 256 levels
    assert set(found.queries) <= set(images.shown) and found.bank == 59


def test_curves_tables_verdict_and_map_are_there(of_finished):
    keys = [curve.key for curve in of_finished.curves]
    assert keys[:6] == ["loss", "nmi", "nmi_previous", "accuracy", "changed", "entropy"]
    assert [table.title for table in of_finished.tables][:1] == ["Clusters against the true classes"]
    assert of_finished.verdict.tone == "unknown" and "there are 9 and 3" in of_finished.verdict.sentences[0]
    assert list(of_finished.map.points) == ["PCA"] and of_finished.map.points["PCA"].shape == (60, 2)
    assert of_finished.filters.dtype == np.uint8
    names = [name for name, _, _ in of_finished.highlights]
    assert names == [
        "Last loss",
        "Labels changed",
        "Cluster sizes",
        "kNN accuracy",
        "NMI to classes",
        "Time in training steps",
    ]
    assert re.fullmatch(r"\d+ (s|min) with label passes, by the clock", of_finished.highlights[-1][2])
    text = said(of_finished)
    assert "no test split" in text and "No evaluation tool has been run" in text


def test_a_run_that_is_not_finished_says_so(tmp_path, finished_run):
    folder = altered(tmp_path, finished_run)
    (folder / "results.json").unlink()
    config = configs.read(folder / "config.json")
    (folder / "config.json").write_text(configs.to_json(replace(config, epochs=8)))
    contents = report_data.of_folder(folder)
    assert "not finished: it has done 3 of 8 epochs" in said(contents)
    assert contents.facts["epochs"] == "3 of 8" and contents.tables == ()
    (folder / "config.json").write_text(configs.to_json(config))
    assert "all epochs are done, but nothing was measured" in said(report_data.of_folder(folder))


def test_a_log_of_an_earlier_version_that_had_no_clock_says_what_its_time_leaves_out(tmp_path, finished_run):
    folder = altered(tmp_path, finished_run)
    log = folder / "metrics.jsonl"
    log.write_text(re.sub(r', "seconds": [^,}]+', "", log.read_text()))
    name, _, remark = report_data.of_folder(folder).highlights[-1]
    assert (name, remark) == ("Time in training steps", "label passes and measuring come on top")


def test_a_run_without_its_log_says_so(tmp_path, finished_run):
    folder = altered(tmp_path, finished_run)
    (folder / "metrics.jsonl").unlink()
    contents = report_data.of_folder(folder)
    assert "There is no log of training" in said(contents)
    assert contents.curves == () and contents.verdict.tone == "unknown"


def test_results_of_the_tools_are_shown(tmp_path, finished_run):
    folder = altered(tmp_path, finished_run)
    rows = [
        {"layer": name, "features": size, "top1": value}
        for name, size, value in (("conv1", 512, 0.3), ("conv2", 256, 0.5), ("pool", 64, 0.4))
    ]
    data = {"train": {"name": "digits"}, "test": None, "own": True}
    results.save(folder, "linear_probe", tool="linear_probe", model={"epoch": 3}, data=data, settings={}, rows=rows)
    contents = report_data.of_folder(folder)
    layers = ("conv1", 0.3), ("conv2", 0.5), ("pool", 0.4)
    assert contents.probes == (("Linear probe by layer: digits", layers),)
    assert ("Linear probe", "50.0%", "best of 3 layers, conv2") in contents.highlights
    assert "Linear probes" in [table.title for table in contents.tables]
    assert "No evaluation tool" not in said(contents)
    own, chosen = {"settings": {"chosen_layers": []}}, {"settings": {"chosen_layers": ["conv1", "pool"]}}
    results.save(folder, "linear_probe", tool="linear_probe", model={"epoch": 3}, data=data, rows=rows[2:], **own)
    rows = [{**rows[2], "top1": 0.7}, rows[0]]
    results.save(folder, "linear_probe_x", tool="linear_probe", model={"epoch": 3}, data=data, rows=rows, **chosen)
    assert report_data.of_folder(folder).probes == ((contents.probes[0][0], (("conv1", 0.3), ("pool", 0.4))),)


def test_the_accuracy_of_neighbours_stands_beside_what_was_measured_in_its_way(tmp_path, of_finished, finished_run):
    _, _, remark = next(row for row in of_finished.highlights if row[0] == "kNN accuracy")
    assert re.fullmatch(r"raw pixels .*%, random weights .*%, k=5, sigma=0\.1", remark)
    folder = altered(tmp_path, finished_run)
    data = {"train": {"name": "digits"}, "test": None, "own": True}
    rows = [{"features": "learned", "k": 3, "sigma": 0.7, "top1": 0.875}]
    results.save(folder, "knn", tool="knn", model={"epoch": 3}, data=data, settings={}, rows=rows)
    assert ("kNN accuracy", "87.5%", "k=3, sigma=0.7") in report_data.of_folder(folder).highlights


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("results.json", '{"facts": {}}'),
        ("results.json", "[1, 2"),
        ("metrics.jsonl", "what?\n"),
        ("metrics.jsonl", '{"kind": "epoch", "step": 3}\n'),
        ("evaluation/knn.json", "{}"),
    ],
)
def test_a_damaged_file_is_left_out_and_named(tmp_path, finished_run, file, content):
    folder = altered(tmp_path, finished_run)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(content)
    contents = report_data.of_folder(folder)
    sentences = [sentence for sentence in contents.lacking if sentence.startswith("A damaged file is left out.")]
    assert any(file.split("/")[-1] in sentence for sentence in sentences), contents.lacking
    assert "not finished" not in said(contents)
    assert (contents.curves == ()) == (file == "metrics.jsonl")


def test_the_layers_to_probe_are_named_from_the_first_to_the_last(of_finished, finished_run):
    backbone = load_run(finished_run).model.backbone
    names = [layer.name for layer in backbone.layers]
    command, layers = of_finished.probe_command.split(" --layers=")
    assert command == f"python -m tools.linear_probe --workdir={finished_run}"
    places = [names.index(layer) for layer in layers.split(",")]
    assert places == sorted(places) and 2 <= len(places) <= 5
    alexnet = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.ReLU()], name="alexnet")
    assert run_facts.probe_command("runs/a", alexnet).endswith("--workdir=runs/a --layers=alexnet")


@pytest.fixture(scope="module")
def folder_run(tmp_path_factory, small_config):
    """(config, run folder) of a run, one head, on a folder of images without classes."""
    root = tmp_path_factory.mktemp("folder")
    (root / "images").mkdir()
    for row in range(13):
        keras.utils.save_img(root / "images" / f"<b>{row:02d}.png", np.random.default_rng(row).random((16, 16, 3)))
    config = small_config(
        data=Data(source="folder", path=str(root / "images")),
        augment=Augment(policy="none"),
        model=Model(num_clusters=(3,)),
        label=Label(num_relabels=1),
        epochs=1,
        batch_size=5,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
        experiment.run(config, root / "run")
    return root


def test_a_run_without_classes_and_with_one_head_says_so(folder_run):
    contents = report_data.of_folder(folder_run / "run")
    assert "images has no true classes" in said(contents)
    assert contents.training.classes is None and contents.class_names is None
    assert contents.facts["clusters"] == "3, one head"
    assert contents.training.heads[0].confidence.shape == (3,)
    assert contents.training.ids[0] == "<b>00.png"
    assert (folder_run / "run" / "report.html").read_text().count("<b>00.png") == 0
    assert contents.probe_command == "" and "No evaluation tool" not in said(contents)  # which need classes


def test_commands_on_the_page_can_be_pasted(tmp_path, finished_run):
    folder = shutil.copytree(finished_run, tmp_path / "run 1; ls")
    contents = report_data.of_folder(folder)
    (advice,) = (sentence for sentence in contents.lacking if "No evaluation tool" in sentence)
    assert f"--workdir={folder}" in shlex.split(advice.split("each with ")[1].split(", measure")[0])
    assert shlex.split(contents.command)[-2:] == [f"--config={folder}/config.json", f"--workdir={folder}-again"]
    assert f"--workdir={folder}" in shlex.split(contents.probe_command)


def test_images_that_are_gone_or_fewer_are_told(folder_run, tmp_path):
    root = shutil.copytree(folder_run, tmp_path / "moved")
    config = configs.read(root / "run" / "config.json")
    moved = replace(config, data=replace(config.data, path=str(root / "images")))
    (root / "run" / "config.json").write_text(configs.to_json(moved))
    (root / "images" / "<b>05.png").unlink()
    contents = report_data.of_folder(root / "run")
    assert "12 of 13 training images are still there by name" in said(contents)
    assert len(contents.training.labels) == 13 and 5 not in contents.training.shown
    assert len(contents.training.tiles) == 12
    damaged = root / "images" / "<b>07.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    contents = report_data.of_folder(root / "run")
    assert "cannot be read" in said(contents) and contents.training.tiles is None
    shutil.rmtree(root / "images")
    contents = report_data.of_folder(root / "run")
    assert "The training images are not there" in said(contents)
    assert contents.training.ids[5] == "<b>05.png" and contents.training.heads[0].sizes.sum() == 13
    assert contents.neighbours is contents.map is contents.features is None


def test_large_sets_are_measured_on_a_part(monkeypatch, finished_run):
    monkeypatch.setattr(report_data, "MEASURED", 31)
    monkeypatch.setattr(report_data, "THUMBNAILS", 17)
    contents = report_data.of_folder(finished_run)
    assert "measured on 31 of 60 training images" in said(contents)
    assert "17 of 60 training images have a thumbnail" in said(contents)
    assert len(contents.training.shown) == len(contents.training.tiles) == 17
    assert contents.training.heads[0].sizes.sum() == 60


def test_the_doctor_speaks_in_plain_words():
    assert run_facts.verdict([]).tone == "unknown"
    epochs = [{"kind": "epoch", "step": 100 * e, "epoch": e, "loss": 3.0, "learning_rate": 0.1} for e in (1, 2)]
    labels = [{"kind": "labels", "step": 0, "head": 0, "clusters": 20, "objective_after": 3.0}]
    ill = run_facts.verdict([*labels, *epochs])
    assert ill.tone == "ill" and "sees a problem" in ill.headline and "ln K = 2.996" in ill.sentences[0]
    assert run_facts.verdict([{"kind": "labels", "step": 0, "head": 0}, *epochs]).tone == "unknown"


@pytest.mark.parametrize(
    ("counts", "words"), [((5,), "5, one head"), ((5, 7), "5, 7 (2 heads)"), ((9, 9, 9), "9 in each of 3 heads")]
)
def test_heads_in_words(counts, words):
    assert run_facts.in_heads(counts) == words
