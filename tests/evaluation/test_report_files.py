"""What is written beside the page: charts, numbers, and files for TensorBoard's projector."""

import csv

import numpy as np
import pytest
from PIL import Image

from selabel_tf.evaluation import projector, report_files


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def written(tmp_path_factory, example_report):
    contents = example_report(ids=["=1+1", *(f"{row}.png" for row in range(1, 61))])
    return contents, report_files.write(tmp_path_factory.mktemp("files") / "report", contents)


def test_every_chart_is_a_picture_and_its_numbers_a_table(written):
    contents, folder = written
    for curve in contents.curves:
        assert Image.open(folder / f"{curve.key}.png").size[0] > 300
        rows = rows_of(folder / f"{curve.key}.csv")
        np.testing.assert_allclose([float(row["epoch"]) for row in rows], curve.epochs, rtol=1e-5)
        for line, name in enumerate(curve.names):
            found = [float(row[name]) if row[name] else np.nan for row in rows]
            np.testing.assert_allclose(found, curve.values[:, line], rtol=1e-5)
    for name in ("cluster_sizes.png", "filters.png", "probes_0.png"):
        Image.open(folder / name).verify()
    assert [row["accuracy"] for row in rows_of(folder / "probes_0.csv")] == ["0.31", "0.47"]


def test_clusters_map_and_neighbours_are_tables(written):
    contents, folder = written
    clusters = rows_of(folder / "clusters.csv")
    assert len(clusters) == 5 + 7
    assert sum(int(row["size"]) for row in clusters if row["head"] == "1") == 61
    assert [int(k) for k in clusters[3]["nearest"].split()] == contents.training.heads[0].nearest[3].tolist()
    points = rows_of(folder / "map.csv")
    assert [int(row["index"]) for row in points] == contents.map.rows.tolist()
    np.testing.assert_allclose([float(row["PCA x"]) for row in points], contents.map.points["PCA"][:, 0], rtol=1e-5)
    near = rows_of(folder / "neighbours.csv")
    assert len(near) == 2 * 2 * 3 and {row["by"] for row in near} == {"features", "pixels"}


def test_no_cell_is_a_formula(written):
    assert all(row["name"][0] not in "=+-@" for row in rows_of(written[1] / "map.csv"))


def test_the_projector_finds_a_row_and_a_picture_for_every_image(tmp_path, example_report):
    contents = example_report(class_names=("a\tb", "c\nd", "e"))
    folder = projector.write(tmp_path / "projector", contents)
    tensors = np.loadtxt(folder / "tensors.tsv", delimiter="\t")
    np.testing.assert_allclose(tensors, contents.features, rtol=1e-5)
    header, *lines = [line.split("\t") for line in (folder / "metadata.tsv").read_text("utf-8").splitlines()]
    assert header == ["index", "name", "class", "head 0", "head 1"]
    assert len(lines) == 53 and all(len(line) == 5 for line in lines)
    row = int(lines[7][0])
    assert lines[7][1] == f"folder/{row}.png"
    assert lines[7][2] in ("a b", "c d", "e")
    assert [int(k) for k in lines[7][3:]] == contents.training.labels[row].tolist()
    sprite = np.asarray(Image.open(folder / "sprite.png"))
    assert sprite.shape == (8 * 16, 8 * 16, 3)
    np.testing.assert_array_equal(sprite[16:32, 16:32], contents.training.tiles[9])
    config = (folder / "projector_config.pbtxt").read_text()
    from google.protobuf import text_format
    from tensorboard.plugins.projector import ProjectorConfig

    (embedding,) = text_format.Parse(config, ProjectorConfig()).embeddings
    assert embedding.tensor_path == "tensors.tsv" and list(embedding.sprite.single_image_dim) == [16, 16]


def test_without_images_there_is_nothing_to_project(tmp_path, example_report):
    with pytest.raises(ValueError, match=r"no features to project.*leave out --projector"):
        projector.write(tmp_path, example_report(features=None))
