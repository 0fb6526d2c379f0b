"""Bad images of a run are set aside before the first step, once and for all: whole runs on small folders."""

import re
import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest
from PIL import Image

from selabel_tf import data
from selabel_tf.config import Augment, Data, Evaluation
from selabel_tf.export import labels as label_files
from selabel_tf.training import card, distribution, experiment, quarantine, report_data
from selabel_tf.training.trained_run import load_run

N = 31
HOSTILE = ("<script>alert(1)<script>.png", "=cmd().png", "| [x](y) `z` {{ 7 * 7 }}.png")  # in place of 01, 02 and 03
BAD = {"000 empty.png": b"", "a note.png": b"no image", "=cmd()'.png": b"\xff\xd8\xff", 'z\r\n"line",.png': b"GIF89a"}


@pytest.fixture(autouse=True)
def seeds_only(monkeypatch):
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)


@pytest.fixture
def photos(tmp_path):
    """A folder of 31 good images with four bad ones among them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, image in enumerate(data.digits().stored_images(np.arange(N))):
        name = HOSTILE[i - 1] if 1 <= i <= len(HOSTILE) else f"{i:02d}.png"
        Image.fromarray(np.uint8(255 * image[..., 0])).save(folder / name)
    for name, content in BAD.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def make_config(small_config):
    def make(folder, **changes):
        settings = {"source": "folder", "path": str(folder), "max_bad_share": 0.2} | changes
        evaluation = Evaluation(knn=False, kmeans=False)
        return small_config(data=Data(**settings), augment=Augment("flip"), evaluation=evaluation, epochs=1)

    return make


def test_a_run_sets_bad_images_aside_as_if_they_had_never_been_there(tmp_path, photos, make_config):
    """Ids, index and fingerprint are those of the folder without them, so nothing that depends on these can differ."""
    said, examined = [], []
    watcher = experiment.Watcher(said.append, on_examined=lambda *done: examined.append(done))
    experiment.run(make_config(photos), tmp_path / "run", watcher=watcher)
    assert examined == [(0, N + 4), (N + 4, N + 4)]
    assert said[0].startswith(f"4 of 35 images of {photos} cannot be used (11.4%) and are left out; all are in")
    assert "\n  000 empty.png is not an image: it is empty" in said[0]
    assert "\r" not in said[0]  # of a name; nothing moves the cursor
    found = quarantine.set_aside(tmp_path / "run")
    assert set(found) == set(BAD) and all(why.startswith("is not an image") for why in found.values())

    clean = tmp_path / "clean" / "photos"
    shutil.copytree(photos, clean, ignore=lambda _, names: set(names) & set(BAD))
    expected = quarantine.settle(make_config(clean), tmp_path / "another")
    labels = label_files.read(tmp_path / "run" / "labels.csv", expected.fingerprint)
    assert labels.ids == expected.ids == tuple(sorted({path.name for path in clean.iterdir()}))
    assert set(HOSTILE) < set(labels.ids)
    assert ",'=cmd().png," in (tmp_path / "run" / "labels.csv").read_text()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert" not in page and "49" + ".png" not in page
    lines = (tmp_path / "another" / "quarantine.csv").read_text().splitlines()
    assert lines[1] == f"# examined: {N}" and lines[2:] == ["id,reason"]

    # What reads the run folder leaves the same images out; of other images none.
    run = load_run(tmp_path / "run")
    shown = report_data.of_folder(tmp_path / "run")
    assert shown.training.ids == labels.ids and len(shown.training.tiles) == N
    assert not any("not there" in sentence or "has changed" in sentence for sentence in shown.lacking)
    train, _ = run.sources()
    assert "<script>" not in card.write(run, tmp_path / "card.md").read_text()
    (tmp_path / "card.md").unlink()
    assert train.fingerprint == run.training_set.fingerprint and train.ids == labels.ids
    (clean / "00.png").rename(clean / "a note.png")  # a good one, whose name is on the list
    other, _ = run.sources([f"data.path={clean}"])
    assert other.num_examples == N and "a note.png" in other.ids


def begin(folder, finished_run):
    """As if training had come to its first checkpoint."""
    shutil.copytree(finished_run / "checkpoints", folder / "checkpoints")


def test_once_there_is_a_checkpoint_the_list_stands(tmp_path, photos, make_config, finished_run, monkeypatch):
    config, run = make_config(photos), tmp_path / "run"
    before = quarantine.settle(config, run)
    begin(run, finished_run)
    monkeypatch.setattr(quarantine, "_inspect", None)  # nothing is decoded again
    (photos / "a note.png").write_bytes((photos / "04.png").read_bytes())  # mended
    (photos / "000 empty.png").unlink()  # removed
    after = quarantine.settle(config, run)
    assert after.ids == before.ids and after.fingerprint == before.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "07.png").write_bytes((folder / "08.png").read_bytes()),
        lambda folder: (folder / "07.png").unlink(),
        lambda folder: (folder / "07.png").rename(folder / "7.png"),
        lambda folder: shutil.copy(folder / "07.png", folder / "07 copy.png"),
        lambda folder: (folder / "07.png").write_bytes((folder / "07.png").read_bytes()[:-9]),
    ],
    ids=["changed", "removed", "renamed", "added", "cut off"],
)
def test_images_that_change_after_a_checkpoint_have_another_fingerprint(
    tmp_path, photos, make_config, finished_run, change
):
    config, run = make_config(photos), tmp_path / "run"
    before = quarantine.settle(config, run).fingerprint
    begin(run, finished_run)
    change(photos)
    assert quarantine.settle(config, run).fingerprint != before


def test_until_there_is_a_checkpoint_every_start_looks_anew(tmp_path, photos, make_config):
    config, run = make_config(photos), tmp_path / "run"
    assert quarantine.settle(config, run).num_examples == N
    (photos / "a note.png").write_bytes((photos / "04.png").read_bytes())
    assert quarantine.settle(config, run).num_examples == N + 1


def test_too_many_bad_images_stop_the_run_with_the_numbers_and_the_remedy(tmp_path, photos, make_config):
    for i in range(3):
        (photos / f"more{i}.png").write_bytes(b"")
    config, run = make_config(photos, max_bad_share=0.1), tmp_path / "run"
    with pytest.raises(ValueError, match=r"7 of 38 images of .*photos cannot be used \(18\.4%\), more than") as caught:
        experiment.run(config, run)
    message = str(caught.value)
    assert "data.max_bad_share=0.1 allows:\n  000 empty.png is not an image: it is empty\n" in message
    assert f"and 2 more\nAll are in {run / 'quarantine.csv'}. Mend or remove them" in message
    assert len(quarantine.set_aside(run)) == 7

    # The remedies work in the same folder: allow them, as the message says, or remove them.
    share = float(re.search(r"--set data\.max_bad_share=(\S+)$", message)[1])
    allowed = replace(config, data=replace(config.data, max_bad_share=share))
    experiment.check_folder(allowed, run)
    assert quarantine.settle(allowed, run).num_examples == N
    for name in quarantine.set_aside(run):
        (photos / name).unlink()
    experiment.check_folder(config, run)
    assert quarantine.settle(config, run).num_examples == N


def test_a_folder_of_nothing_but_bad_images_stops_the_run(tmp_path, make_config):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"1 of 1 images of .* cannot be used \(100%\)"):
        quarantine.settle(make_config(tmp_path / "photos", max_bad_share=0.9), tmp_path / "run")


def test_a_list_that_was_tampered_with_is_refused(tmp_path, photos, make_config, finished_run):
    config, run = make_config(photos), tmp_path / "run"
    quarantine.settle(config, run)
    begin(run, finished_run)
    path = run / quarantine.FILE
    whole = path.read_bytes()
    for content in (b"", b"\xff\xfe", whole[:-1], whole[:-9], whole.replace(b"examined", b"x"), whole + b'"a\n'):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"quarantine\.csv is damaged: .*Bring it back"):
            quarantine.settle(config, run)


def test_sets_that_are_decoded_as_they_are_opened_need_no_second_look(tmp_path, small_config):
    source = quarantine.settle(small_config(), tmp_path / "run", on_progress=pytest.fail)
    assert source.num_examples == 60 and not (tmp_path / "run").exists()


def test_an_image_that_goes_bad_in_the_middle_stops_the_run_by_its_name(tmp_path, photos, make_config):
    config = make_config(photos)

    def spoil(label_pass):
        (photos / "05.png").write_bytes(b"")

    with pytest.raises(ValueError, match=r"^\S*05\.png cannot be decoded as an image"):
        experiment.run(config, tmp_path / "run", watcher=experiment.Watcher(on_label_pass=spoil))
