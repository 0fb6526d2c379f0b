import csv
import os

import numpy as np
import pytest

from selabel_tf.export import labels as labels_file

N, NUM_CLUSTERS = 23, (7, 3, 11)
FINGERPRINT = "0123456789abcdef" * 4
IDS = [f"plates/{i:04d}.png" for i in range(N)]


def some_labels():
    return np.random.default_rng(0).integers(0, NUM_CLUSTERS, size=(N, len(NUM_CLUSTERS)), dtype=np.int32)


@pytest.fixture
def path(tmp_path):
    """A good labels file."""
    labels_file.write(tmp_path / "labels.csv", some_labels(), IDS, FINGERPRINT, NUM_CLUSTERS, "cafe01")
    return tmp_path / "labels.csv"


def edit(path, change):
    """Rewrite the file with its list of lines changed: 6 lines of head, then one row per index."""
    lines = path.read_text().splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines))


def test_what_was_written_is_read_back(path):
    result = labels_file.read(path, FINGERPRINT)
    np.testing.assert_array_equal(result.labels, some_labels())
    assert result.labels.dtype == np.int32
    assert result.ids == IDS
    assert result.num_clusters == NUM_CLUSTERS
    assert (result.fingerprint, result.config_hash) == (FINGERPRINT, "cafe01")
    assert labels_file.read(str(path)).fingerprint == FINGERPRINT


def test_the_file_is_comments_a_header_and_a_row_for_each_example(tmp_path):
    labels_file.write(tmp_path / "l.csv", [[4, 1], [0, 2]], ["a", "b"], "f1", (5, 3), "c2")
    assert (tmp_path / "l.csv").read_text() == (
        "# selabel_tf labels, format 1\n"
        "# fingerprint: f1\n"
        "# config_hash: c2\n"
        "# num_clusters: 5 3\n"
        "# num_examples: 2\n"
        "index,id,head0,head1\n"
        "0,a,4,1\n"
        "1,b,0,2\n"
    )


@pytest.mark.parametrize("carriage_return", [False, True])
def test_ids_of_any_text_survive(tmp_path, carriage_return):
    ids = [
        "a,b",
        'say "x"',
        "two\nlines",
        "東京/Zürich 🦉",
        "",
        "# no comment",
        " spaces ",
        os.fsdecode(b"caf\xe9"),
        "0",
    ]
    ids += ["carriage\rreturn", "\r\n"] if carriage_return else []
    labels = np.arange(len(ids))[:, None]
    labels_file.write(tmp_path / "l.csv", labels, ids, "f", (97,), "c")
    result = labels_file.read(tmp_path / "l.csv")
    assert result.ids == ids
    np.testing.assert_array_equal(result.labels, labels)


def test_other_csv_readers_understand_the_file(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert [row["id"] for row in rows] == IDS
    assert [int(row["head2"]) for row in rows] == some_labels()[:, 2].tolist()


def test_many_chunks_make_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(labels_file, "CHUNK", 5)
    labels_file.write(tmp_path / "l.csv", some_labels(), IDS, FINGERPRINT, NUM_CLUSTERS, "c")
    np.testing.assert_array_equal(labels_file.read(tmp_path / "l.csv").labels, some_labels())


def test_a_failed_write_leaves_the_old_file(path):
    before = path.read_bytes()

    class Ids(list):
        def __iter__(self):
            yield "first"
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        labels_file.write(path, some_labels(), Ids(IDS), FINGERPRINT, NUM_CLUSTERS, "c")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["labels.csv"]


@pytest.mark.parametrize(
    ("labels", "ids", "num_clusters"),
    [
        (np.zeros((N, 3), int), IDS[1:], NUM_CLUSTERS),
        (np.zeros((N, 2), int), IDS, NUM_CLUSTERS),
        (np.zeros(N, int), IDS, (7,)),
        (np.zeros((N, 3)), IDS, NUM_CLUSTERS),
        (np.zeros((0, 3), int), [], NUM_CLUSTERS),
    ],
)
def test_labels_of_the_wrong_shape_or_type_are_not_written(tmp_path, labels, ids, num_clusters):
    with pytest.raises(ValueError, match=r"labels have shape .*a row for each id, a column for each of num_clusters"):
        labels_file.write(tmp_path / "l.csv", labels, ids, FINGERPRINT, num_clusters, "c")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range_are_not_written(tmp_path, label):
    labels = some_labels()
    labels[13, 1] = label
    with pytest.raises(ValueError, match=f"label {label} of index 13, head 1 is out of range.*3 clusters: 0 to 2"):
        labels_file.write(tmp_path / "l.csv", labels, IDS, FINGERPRINT, NUM_CLUSTERS, "c")


@pytest.mark.parametrize(("fingerprint", "config_hash"), [("", "c"), ("a\nb", "c"), ("f", " c"), ("f", "c\x00")])
def test_facts_that_do_not_fit_a_line_are_not_written(tmp_path, fingerprint, config_hash):
    with pytest.raises(ValueError, match="cannot be written, expected one line"):
        labels_file.write(tmp_path / "l.csv", some_labels(), IDS, fingerprint, NUM_CLUSTERS, config_hash)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no labels file .*none.csv. Training writes labels.csv"):
        labels_file.read(tmp_path / "none.csv")


def test_labels_of_another_dataset_are_refused_with_both_fingerprints(path):
    with pytest.raises(ValueError, match=r"labels file of another dataset: .*0123456789ab, .*ffffffffffff\. Take the"):
        labels_file.read(path, fingerprint="f" * 64)


@pytest.mark.parametrize("content", [b"", b"index,id,head0\n0,a,1\n", b"\x89PNG\r\n\x1a\n\x00\xff", b"x" * 100_003])
def test_what_is_no_labels_file_is_refused(tmp_path, content):
    (tmp_path / "l.csv").write_bytes(content)
    with pytest.raises(ValueError, match="is not a labels file: its first line does not begin with"):
        labels_file.read(tmp_path / "l.csv")


def test_a_later_format_is_refused(path):
    edit(path, lambda lines: lines.__setitem__(0, "# selabel_tf labels, format 2\n"))
    with pytest.raises(ValueError, match="has format 2, this version reads format 1"):
        labels_file.read(path)


@pytest.mark.parametrize(
    ("line", "text", "key"),
    [
        (1, "# fingerprint:\n", "fingerprint"),
        (2, "# num_clusters: 7 3 11\n", "config_hash"),
        (3, "# num_clusters: 7 0 11\n", "num_clusters"),
        (3, "# num_clusters: seven\n", "num_clusters"),
        (4, "# num_examples: 23 5\n", "num_examples"),
    ],
)
def test_a_damaged_head_is_refused(path, line, text, key):
    edit(path, lambda lines: lines.__setitem__(line, text))
    with pytest.raises(ValueError, match=f"is damaged: it has no proper line '# {key}: ...'"):
        labels_file.read(path)


def test_a_header_row_that_does_not_fit_the_heads_is_refused(path):
    edit(path, lambda lines: lines.__setitem__(5, "index,id,head0,head1\n"))
    with pytest.raises(ValueError, match="the header row is not index,id,head0,head1,head2"):
        labels_file.read(path)


@pytest.mark.parametrize("rows_left", [0, 1, N - 1])
def test_a_file_that_ends_early_is_refused(path, rows_left):
    edit(path, lambda lines: lines.__delitem__(slice(6 + rows_left, None)))
    with pytest.raises(ValueError, match=f"is cut off: it has {rows_left} rows, .*expected {N}"):
        labels_file.read(path)


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"labels\.csv (is|has) "):
            labels_file.read(path)


def test_a_file_cut_inside_a_quoted_id_is_refused(tmp_path):
    labels_file.write(tmp_path / "l.csv", [[0], [0]], ["a", "b\nc"], "f", (1,), "c")
    text = (tmp_path / "l.csv").read_text()
    (tmp_path / "l.csv").write_text(text[: text.index("b\n") + 2])
    with pytest.raises(ValueError, match="is damaged after index 0"):
        labels_file.read(tmp_path / "l.csv")


def test_missing_doubled_and_swapped_rows_are_refused(path):
    good = path.read_text()
    edit(path, lambda lines: lines.__delitem__(6 + 5))
    with pytest.raises(ValueError, match="has index 6 where 5 was expected: rows are missing or not in index order"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.insert(6 + 9, lines[6 + 5]))
    with pytest.raises(ValueError, match="has index 5 twice"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.append(f"{N},x,0,0,0\n"))
    with pytest.raises(ValueError, match=f"it has {N + 1} rows, .*expected {N}"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.__setitem__(6, "first,a,0,0,0\n"))
    with pytest.raises(ValueError, match="has index first where 0 was expected"):
        labels_file.read(path)


@pytest.mark.parametrize("cell", ["1.0", "", "one", "99999999999999999999"])
def test_cells_that_are_no_labels_are_refused(path, cell):
    edit(path, lambda lines: lines.__setitem__(6 + 3, f"3,a,0,{cell},0\n"))
    with pytest.raises(ValueError, match="a label that is no integer in the row of index 3"):
        labels_file.read(path)


def test_rows_of_the_wrong_width_are_refused(path):
    edit(path, lambda lines: lines.__setitem__(6 + 3, "3,a,0,0\n"))
    with pytest.raises(ValueError, match="the row of index 3 has 4 cells, expected 5"):
        labels_file.read(path)


@pytest.mark.parametrize("label", [-1, 7])
def test_labels_outside_their_head_are_refused(path, label):
    edit(path, lambda lines: lines.__setitem__(6 + 3, f"3,a,{label},0,0\n"))
    with pytest.raises(ValueError, match=f"label {label} of index 3, head 0 is out of range.*7 clusters: 0 to 6"):
        labels_file.read(path)
