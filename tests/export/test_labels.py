import csv
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selabel_tf.export import labels as labels_file
from selabel_tf.export import labels_csv, labels_parquet
from selabel_tf.export.labels import Confidence, Labels

N, NUM_CLUSTERS = 23, (7, 3, 11)
FINGERPRINT = "0123456789abcdef" * 4
IDS = tuple(f"plates/{i:04d}.png" for i in range(N))
HEAD_LINES = 8  # title, six facts, names of the columns
BOTH = pytest.mark.parametrize("ending", ["csv", "parquet"])


def some_labels():
    return np.random.default_rng(0).integers(0, NUM_CLUSTERS, size=(N, len(NUM_CLUSTERS)), dtype=np.int32)


def some_confidence(labels, num_clusters):
    random = np.random.default_rng(1)
    probability = random.uniform(0, 1, labels.shape).astype(np.float32)
    share = random.uniform(0, 1, labels.shape).astype(np.float32)
    runner_up = (labels + random.integers(1, num_clusters, size=labels.shape)) % num_clusters
    return Confidence(probability, runner_up.astype(np.int32), (1 - probability) * share)


def a_file(labels=None, **changes):
    labels = some_labels() if labels is None else np.asarray(labels)
    facts = {"fingerprint": FINGERPRINT, "num_clusters": NUM_CLUSTERS, "config_hash": "cafe01", "checkpoint_hash": "b5"}
    return Labels(**{"labels": labels, "ids": IDS, **facts, **changes})


def a_sure_file(**changes):
    return a_file(**{"confidence": some_confidence(some_labels(), NUM_CLUSTERS), **changes})


def few(labels, ids, num_clusters):
    return a_file(labels, ids=ids, num_clusters=num_clusters)


@pytest.fixture
def path(tmp_path):
    """A good labels file, clusters only."""
    labels_file.write(tmp_path / "labels.csv", a_file())
    return tmp_path / "labels.csv"


@pytest.fixture
def sure_path(tmp_path):
    """A good labels file with probabilities."""
    labels_file.write(tmp_path / "labels.csv", a_sure_file())
    return tmp_path / "labels.csv"


def edit(path, change):
    """Rewrite the file with its list of lines changed: HEAD_LINES of head, then one row per index."""
    lines = path.read_text().splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines))


def parquet_with(path, change=lambda columns: columns, metadata=None):
    """A Parquet file of `a_sure_file` with its columns (name -> pyarrow array) or its metadata changed."""
    labels_file.write(path, a_sure_file())
    table = pq.read_table(path)
    columns = change(dict(zip(table.column_names, table.columns, strict=True)))
    facts = {key.decode(): text.decode() for key, text in table.schema.metadata.items()}
    pq.write_table(pa.table(columns).replace_schema_metadata({**facts, **(metadata or {})}), path)
    return path


@BOTH
def test_what_was_written_is_read_back(tmp_path, ending):
    written = a_sure_file(origin="prediction")
    labels_file.write(tmp_path / f"l.{ending}", written)
    result = labels_file.read(tmp_path / f"l.{ending}", FINGERPRINT)
    np.testing.assert_array_equal(result.labels, some_labels())
    np.testing.assert_array_equal(result.confidence.runner_up, written.confidence.runner_up)
    tolerance = 0 if ending == "parquet" else 0.5001e-6  # six decimals
    for name in ("probability", "runner_up_probability"):
        ours, theirs = getattr(result.confidence, name), getattr(written.confidence, name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
        assert ours.dtype == np.float32
    assert result.labels.dtype == result.confidence.runner_up.dtype == np.int32
    for name in ("ids", "fingerprint", "num_clusters", "config_hash", "checkpoint_hash", "origin"):
        assert getattr(result, name) == getattr(written, name), name
    assert labels_file.read(str(tmp_path / f"l.{ending}")).fingerprint == FINGERPRINT


@BOTH
def test_labels_without_probabilities_are_read_back(tmp_path, ending):
    labels_file.write(tmp_path / f"l.{ending}", a_file())
    result = labels_file.read(tmp_path / f"l.{ending}")
    np.testing.assert_array_equal(result.labels, some_labels())
    assert result.confidence is None
    assert result.origin == "training"


def test_one_format_turns_into_the_other(sure_path, tmp_path):
    labels_file.write(tmp_path / "l.parquet", labels_file.read(sure_path))
    labels_file.write(tmp_path / "again.csv", labels_file.read(tmp_path / "l.parquet"))
    assert (tmp_path / "again.csv").read_bytes() == sure_path.read_bytes()


def test_the_csv_file_is_comments_a_header_and_a_row_for_each_example(tmp_path):
    sure = Confidence(
        np.array([[0.5, 0.25], [1, 1e-7]], np.float32),
        np.array([[0, 2], [1, 0]], np.int32),
        np.array([[0.123456789, 0.75], [0, 0.9]], np.float32),
    )
    labels_file.write(
        tmp_path / "l.csv", Labels([[4, 1], [0, 2]], ("a", "b"), "f1", (5, 3), "c2", "d3", "prediction", sure)
    )
    assert (tmp_path / "l.csv").read_text() == (
        "# selabel_tf labels, format 2\n"
        "# origin: prediction\n"
        "# fingerprint: f1\n"
        "# config_hash: c2\n"
        "# checkpoint_hash: d3\n"
        "# num_clusters: 5 3\n"
        "# num_examples: 2\n"
        "index,id,head0,head0_probability,head0_runner_up,head0_runner_up_probability,"
        "head1,head1_probability,head1_runner_up,head1_runner_up_probability\n"
        "0,a,4,0.5,0,0.123457,1,0.25,2,0.75\n"
        "1,b,0,1.0,1,0.0,2,0.0,0,0.9\n"
    )


def test_the_parquet_file_has_typed_columns_and_its_facts_in_the_metadata(tmp_path):
    labels_file.write(tmp_path / "l.parquet", a_sure_file())
    table = pq.read_table(tmp_path / "l.parquet")
    assert table.schema.field("index").type == pa.int64()
    assert table.schema.field("id").type == pa.string()
    assert table.schema.field("head2").type == table.schema.field("head2_runner_up").type == pa.int32()
    assert table.schema.field("head2_runner_up_probability").type == pa.float32()
    assert table.num_columns == 2 + 4 * 3
    assert table.schema.metadata[b"fingerprint"].decode() == FINGERPRINT
    assert table.schema.metadata[b"title"] == b"selabel_tf labels, format 2"
    assert table["id"].to_pylist() == list(IDS)


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
risky = st.text(st.sampled_from("=+-@'\"\t\r\n, #\uff1d\0é"), max_size=6)
file_names = st.binary(max_size=6).map(os.fsdecode)


@settings(max_examples=150, deadline=None)
@given(st.lists(names | risky | file_names, min_size=1, max_size=5))
def test_ids_of_any_text_survive(tmp_path_factory, ids):
    folder = tmp_path_factory.mktemp("ids")
    labels = np.arange(len(ids))[:, None]
    for name in ("l.csv", "l.parquet"):
        labels_file.write(folder / name, few(labels, tuple(ids), (97,)))
        result = labels_file.read(folder / name)
        assert result.ids == tuple(ids)
        np.testing.assert_array_equal(result.labels, labels)


@settings(max_examples=150, deadline=None)
@given(names | risky)
def test_no_cell_of_the_csv_file_is_a_formula_to_a_spreadsheet(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("cells") / "l.csv"
    labels_file.write(path, few([[0]], (name,), (2,)))
    with open(path, newline="", encoding="utf-8") as file:
        row = next(csv.reader(file.readlines()[HEAD_LINES:]))
    assert not re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]", row[1])
    assert row[1] in (name, f"'{name}")


def test_harmless_names_are_left_as_they_are(tmp_path):
    ids = ("a=b", "7-2.png", "plates/=1.png", "東京/Zürich 🦉", "", "# no comment", " spaces ", "0")
    labels_file.write(tmp_path / "l.csv", few(np.zeros((8, 1), int), ids, (2,)))
    cells = [line.split(",")[1] for line in (tmp_path / "l.csv").read_text().splitlines()[HEAD_LINES:]]
    assert tuple(cells) == ids


@pytest.mark.parametrize("name", ["\ud800", "\udcc3\udca9", "x" * (labels_file.LONGEST_ID + 1)])
@BOTH
def test_ids_that_no_file_can_hold_are_not_written(tmp_path, ending, name):
    with pytest.raises(ValueError, match=r"the id of index 1, .* is no text that a file can hold"):
        labels_file.write(tmp_path / f"l.{ending}", few([[0], [0]], ("fine", name), (2,)))
    assert os.listdir(tmp_path) == []


def test_other_csv_readers_understand_the_file(sure_path):
    with open(sure_path, newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    assert tuple(row["id"] for row in rows) == IDS
    assert [int(row["head2"]) for row in rows] == some_labels()[:, 2].tolist()
    assert 0 <= float(rows[5]["head1_probability"]) <= 1


def test_many_chunks_make_one_file(tmp_path, monkeypatch):
    for module, ending in ((labels_csv, "csv"), (labels_parquet, "parquet")):
        monkeypatch.setattr(module, "CHUNK", 5)
        labels_file.write(tmp_path / f"l.{ending}", a_sure_file())
        result = labels_file.read(tmp_path / f"l.{ending}")
        np.testing.assert_array_equal(result.labels, some_labels())
        assert result.ids == IDS


@BOTH
def test_a_failed_write_leaves_the_old_file(tmp_path, ending, monkeypatch):
    path = tmp_path / f"labels.{ending}"
    labels_file.write(path, a_file())
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        labels_file.write(path, a_file(config_hash="other"))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("labels", "ids", "num_clusters"),
    [
        (np.zeros((N, 3), int), IDS[1:], NUM_CLUSTERS),
        (np.zeros((N, 2), int), IDS, NUM_CLUSTERS),
        (np.zeros(N, int), IDS, (7,)),
        (np.zeros((N, 3)), IDS, NUM_CLUSTERS),
        (np.zeros((0, 3), int), (), NUM_CLUSTERS),
    ],
)
def test_labels_of_the_wrong_shape_or_type_are_not_written(tmp_path, labels, ids, num_clusters):
    with pytest.raises(ValueError, match=r"clusters have shape .*a row for each id, at least one, and a column for"):
        labels_file.write(tmp_path / "l.csv", few(labels, ids, num_clusters))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range_are_not_written(tmp_path, label):
    labels = some_labels()
    labels[13, 1] = label
    with pytest.raises(ValueError, match=f"label {label} of index 13, head 1 is out of range.*3 clusters: 0 to 2"):
        labels_file.write(tmp_path / "l.csv", a_file(labels))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("runner_up", 11, "runner-up 11 of index 13, head 2 is out of range. That head has 11 clusters: 0 to 10"),
        ("runner_up", None, "of index 13, head 2 is the cluster itself"),
        ("probability", 1.5, "probability 1.5 of index 13, head 2 is not between 0 and 1"),
        ("probability", np.nan, "probability nan of index 13, head 2 is not between 0 and 1"),
        ("runner_up_probability", -0.5, "runner-up's probability -0.5 of index 13, head 2 is not between"),
        ("runner_up_probability", 1.0, "of index 13, head 2 is more than 1"),
    ],
)
def test_a_confidence_that_cannot_be_is_not_written(tmp_path, part, value, message):
    written = a_sure_file()
    getattr(written.confidence, part)[13, 2] = some_labels()[13, 2] if value is None else value
    with pytest.raises(ValueError, match=message):
        labels_file.write(tmp_path / "l.csv", written)


def test_a_confidence_of_another_shape_is_not_written(tmp_path):
    sure = some_confidence(some_labels()[1:], NUM_CLUSTERS)
    with pytest.raises(ValueError, match=r"the parts of the confidence have shapes .*expected \(23, 3\) of all"):
        labels_file.write(tmp_path / "l.csv", a_file(confidence=sure))


@pytest.mark.parametrize(
    "facts",
    [
        {"fingerprint": ""},
        {"fingerprint": "a\nb"},
        {"config_hash": " c"},
        {"checkpoint_hash": "c\x00"},
        {"origin": "guess"},
    ],
)
@BOTH
def test_facts_that_do_not_fit_a_line_are_not_written(tmp_path, ending, facts):
    with pytest.raises(ValueError, match=f"{next(iter(facts))}=.* cannot be written, expected one line"):
        labels_file.write(tmp_path / f"l.{ending}", a_file(**facts))


def test_a_file_of_another_ending_is_not_written(tmp_path):
    with pytest.raises(
        ValueError, match=r"labels are written as \.csv or \.parquet. Choose a name with such an ending"
    ):
        labels_file.write(tmp_path / "labels.xlsx", a_file())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no labels file .*none.csv. Training writes labels.csv"):
        labels_file.read(tmp_path / "none.csv")


@BOTH
def test_labels_of_another_dataset_are_refused_with_both_fingerprints(tmp_path, ending):
    labels_file.write(tmp_path / f"l.{ending}", a_file())
    with pytest.raises(ValueError, match=r"labels file of another dataset: .*0123456789ab, .*ffffffffffff\. Take the"):
        labels_file.read(tmp_path / f"l.{ending}", fingerprint="f" * 64)


@pytest.mark.parametrize("content", [b"", b"index,id,head0\n0,a,1\n", b"\x89PNG\r\n\x1a\n\x00\xff", b"x" * 100_003])
def test_what_is_no_labels_file_is_refused(tmp_path, content):
    (tmp_path / "l.csv").write_bytes(content)
    with pytest.raises(ValueError, match="is not a labels file: it does not say 'selabel_tf labels, format 2'"):
        labels_file.read(tmp_path / "l.csv")


def test_a_parquet_file_of_somebody_else_is_refused(tmp_path):
    pq.write_table(pa.table({"index": [0], "id": ["a"], "head0": [0]}), tmp_path / "l.parquet")
    with pytest.raises(ValueError, match="is not a labels file"):
        labels_file.read(tmp_path / "l.parquet")


@BOTH
def test_another_format_is_refused_with_the_command_that_writes_this_one(tmp_path, ending):
    path = tmp_path / f"l.{ending}"
    if ending == "csv":
        labels_file.write(path, a_file())
        edit(path, lambda lines: lines.__setitem__(0, "# selabel_tf labels, format 1\n"))
    else:
        parquet_with(path, metadata={"title": "selabel_tf labels, format 1"})
    with pytest.raises(ValueError, match=r"has format 1, this version reads format 2.*tools.labels --workdir=RUN"):
        labels_file.read(path)


@pytest.mark.parametrize(
    ("line", "text", "key"),
    [
        (1, "# origin: elsewhere\n", "origin"),
        (2, "# fingerprint:\n", "fingerprint"),
        (3, "# num_clusters: 7 3 11\n", "config_hash"),
        (4, "#checkpoint_hash: b5\n", "checkpoint_hash"),
        (5, "# num_clusters: 7 0 11\n", "num_clusters"),
        (5, "# num_clusters: seven\n", "num_clusters"),
        (5, f"# num_clusters: {'9' * 5000}\n", "num_clusters"),
        (6, "# num_examples: 23 5\n", "num_examples"),
    ],
)
def test_a_damaged_head_is_refused(path, line, text, key):
    edit(path, lambda lines: lines.__setitem__(line, text))
    with pytest.raises(ValueError, match=f"is damaged: it has no proper '{key}' in its head"):
        labels_file.read(path)


def test_damaged_facts_of_a_parquet_file_are_refused(tmp_path):
    parquet_with(tmp_path / "l.parquet", metadata={"num_clusters": "7 3 11 0"})
    with pytest.raises(ValueError, match="it has no proper 'num_clusters' in its head"):
        labels_file.read(tmp_path / "l.parquet")


def test_columns_that_do_not_fit_the_heads_are_refused(path, tmp_path):
    edit(path, lambda lines: lines.__setitem__(7, "index,id,head0,head1\n"))
    message = "its columns do not fit its 3 heads: .*Expected index, id, head0, head1, head2, perhaps each with"
    with pytest.raises(ValueError, match=message):
        labels_file.read(path)
    parquet_with(tmp_path / "l.parquet", lambda columns: {k: v for k, v in columns.items() if k != "head1_runner_up"})
    with pytest.raises(ValueError, match=message):
        labels_file.read(tmp_path / "l.parquet")


@pytest.mark.parametrize("rows_left", [0, 1, N - 1])
def test_a_file_that_ends_early_is_refused(path, rows_left, tmp_path):
    edit(path, lambda lines: lines.__delitem__(slice(HEAD_LINES + rows_left, None)))
    message = f"is cut off or was added to: it has {rows_left} rows, expected {N}"
    with pytest.raises(ValueError, match=message):
        labels_file.read(path)
    parquet_with(tmp_path / "l.parquet", lambda columns: {k: v[:rows_left] for k, v in columns.items()})
    with pytest.raises(ValueError, match=message):
        labels_file.read(tmp_path / "l.parquet")


def test_a_csv_file_cut_anywhere_is_refused(sure_path):
    whole = sure_path.read_bytes()
    for length in range(0, len(whole), 3):
        sure_path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"labels\.csv (is|has) "):
            labels_file.read(sure_path)


def test_a_last_row_without_its_line_end_is_refused(path):
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is cut off: its last row has no line end"):
        labels_file.read(path)


def test_a_parquet_file_cut_or_changed_anywhere_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    labels_file.write(path, a_sure_file())
    whole, random = path.read_bytes(), np.random.default_rng(0)
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"labels\.parquet (is|has) "):
            labels_file.read(path)
    for _ in range(97):
        damaged = bytearray(whole)
        damaged[random.integers(len(whole))] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        try:
            result = labels_file.read(path, FINGERPRINT)
        except ValueError as error:
            assert "labels.parquet" in str(error)
        else:  # some bytes carry nothing that is read, such as the name of the program that wrote the file
            np.testing.assert_array_equal(result.labels, some_labels())
            np.testing.assert_array_equal(result.confidence.probability, a_sure_file().confidence.probability)
            assert result.ids == IDS


def test_a_file_cut_inside_a_quoted_id_is_refused(tmp_path):
    labels_file.write(tmp_path / "l.csv", few([[0], [0]], ("a", "b\nc"), (2,)))
    text = (tmp_path / "l.csv").read_text()
    (tmp_path / "l.csv").write_text(text[: text.index("b\n") + 2])
    with pytest.raises(ValueError, match="is damaged after index"):
        labels_file.read(tmp_path / "l.csv")


def test_missing_doubled_and_swapped_rows_are_refused(path):
    good = path.read_text()
    edit(path, lambda lines: lines.__delitem__(HEAD_LINES + 5))
    with pytest.raises(ValueError, match="has index 6 where 5 was expected: rows are missing or not in index order"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.insert(HEAD_LINES + 9, lines[HEAD_LINES + 5]))
    with pytest.raises(ValueError, match="has index 5 twice"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.append(f"{N},x,0,0,0\n"))
    with pytest.raises(ValueError, match=f"it has {N + 1} rows, expected {N}"):
        labels_file.read(path)
    path.write_text(good)
    edit(path, lambda lines: lines.__setitem__(HEAD_LINES, "first,a,0,0,0\n"))
    with pytest.raises(ValueError, match="has 'first' as index of index 0, where a whole number was expected"):
        labels_file.read(path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 1, 3, *range(3, N)], "has index 3 where 2 was expected"),
        ([0, 1, 1, *range(3, N)], "has index 1 twice"),
        ([-1, *range(1, N)], "has index -1 where 0 was expected"),
    ],
)
def test_holes_and_doubles_in_the_index_of_a_parquet_file_are_refused(tmp_path, index, message):
    parquet_with(tmp_path / "l.parquet", lambda columns: {**columns, "index": pa.array(index)})
    with pytest.raises(ValueError, match=message):
        labels_file.read(tmp_path / "l.parquet")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("head1", pa.array([0.0] * N), "its column head1 holds double, expected int32"),
        ("head1_probability", pa.array(["x"] * N), "its column head1_probability holds string, expected float"),
        ("id", pa.array(range(N)), "its column id holds int64, expected string"),
        ("head0", pa.array([None] * N, pa.int32()), "its column head0 has empty cells"),
        ("head0", pa.array([9] * N, pa.int32()), "label 9 of index 0, head 0 is out of range"),
        ("id", pa.array([b"\xff"] * N).view(pa.string()), "is damaged or cut off"),
    ],
)
def test_columns_of_a_parquet_file_that_hold_something_else_are_refused(tmp_path, column, values, message):
    parquet_with(tmp_path / "l.parquet", lambda columns: {**columns, column: values})
    with pytest.raises(ValueError, match=message):
        labels_file.read(tmp_path / "l.parquet")


@pytest.mark.parametrize("cell", ["1.0", "", "one", "99999999999999999999", "0,", '"0"x'])
def test_cells_that_are_no_labels_are_refused(path, cell):
    edit(path, lambda lines: lines.__setitem__(HEAD_LINES + 3, f"3,a,0,{cell},0\n"))
    with pytest.raises(ValueError, match=r"as head1 of index 3, where a whole number|row of index 3 has 6|is damaged"):
        labels_file.read(path)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("much", "has 'much' as head0_probability of index 3, where a number was expected"),
        ("nan", "probability nan of index 3, head 0 is not between 0 and 1"),
        ("1e300", "probability inf of index 3, head 0 is not between 0 and 1"),
    ],
)
def test_cells_that_are_no_probabilities_are_refused(sure_path, cell, message):
    def change(lines):
        cells = lines[HEAD_LINES + 3].split(",")
        lines[HEAD_LINES + 3] = ",".join([*cells[:3], cell, *cells[4:]])

    edit(sure_path, change)
    with pytest.raises(ValueError, match=message):
        labels_file.read(sure_path)


def test_rows_of_the_wrong_width_are_refused(path):
    edit(path, lambda lines: lines.__setitem__(HEAD_LINES + 3, "3,a,0,0\n"))
    with pytest.raises(ValueError, match="the row of index 3 has 4 cells, expected 5"):
        labels_file.read(path)


@pytest.mark.parametrize("label", [-1, 7])
def test_labels_outside_their_head_are_refused(path, label):
    edit(path, lambda lines: lines.__setitem__(HEAD_LINES + 3, f"3,a,{label},0,0\n"))
    with pytest.raises(ValueError, match=f"label {label} of index 3, head 0 is out of range.*7 clusters: 0 to 6"):
        labels_file.read(path)
