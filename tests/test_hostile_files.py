"""Files that somebody prepared: they run nothing, write nothing, and end in an error that says what to do."""

import ast
import hashlib
import io
import json
import os
import shutil
import struct
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from selabel_tf import config as configs
from selabel_tf import json_file
from selabel_tf.evaluation import results
from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.export import keras_file
from selabel_tf.export import labels as label_files
from selabel_tf.training import card, checkpoints, compared_runs, distribution, experiment
from selabel_tf.training.run_log import read_records
from selabel_tf.training.trained_run import load_run

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(path for folder in ("selabel_tf", "tools", "configs") for path in (ROOT / folder).rglob("*.py"))
TOUCH = "__import__('pathlib').Path('proof').touch()"  # what hostile code would do


@pytest.fixture(autouse=True)
def nothing_is_run_or_written(tmp_path, monkeypatch):
    """Every test works in a folder `inside`; nothing may come to lie beside it, nor anything called proof in it."""
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    yield
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert list(inside.rglob("proof*")) == []


# ---- the sources


@pytest.fixture(scope="module")
def nodes():
    """(file, node) of every call and import in the sources."""
    kinds = (ast.Call, ast.Import, ast.ImportFrom)
    found = [(path, ast.walk(ast.parse(path.read_text("utf-8")))) for path in SOURCES]
    return [(path.relative_to(ROOT), node) for path, tree in found for node in tree if isinstance(node, kinds)]


def calls(nodes, name):
    """(file:line, function, keyword arguments) of every call of a function or method of this name."""
    for path, node in nodes:
        if isinstance(node, ast.Call):
            function = node.func
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
            if called == name:
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                yield f"{path}:{node.lineno}", ast.unparse(function), keywords


def is_constant(node, value):
    return isinstance(node, ast.Constant) and node.value is value


def test_arrays_are_loaded_without_pickle_and_networks_in_safe_mode(nodes):
    loads = [
        (place, keywords) for place, function, keywords in calls(nodes, "load") if function in ("np.load", "numpy.load")
    ]
    assert len(loads) >= 3
    assert [place for place, keywords in loads if not is_constant(keywords.get("allow_pickle"), False)] == []
    models = list(calls(nodes, "load_model"))
    assert len(models) == 2
    assert [place for place, _, keywords in models if not is_constant(keywords.get("safe_mode"), True)] == []


def test_nothing_in_the_sources_unpickles_evaluates_or_leaves_safe_mode(nodes):
    modules = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml"}
    found = []
    for path, node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"{path}: {name}" for name in names if name.split(".")[0] in modules]
    for name in ("eval", "exec", "Lambda", "enable_unsafe_deserialization", "system", "popen"):
        found += [f"{place}: {function}" for place, function, _ in calls(nodes, name)]
    found += [place for place, _, keywords in calls(nodes, "run") if is_constant(keywords.get("shell"), True)]
    assert found == []


# ---- JSON

NOT_JSON = {
    "nothing": b"",
    "no text": b"\xff\xfe\x00\x01",
    "cut off": b'{"name": "x"',
    "python": TOUCH.encode(),
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "a number of 10,000 digits": b"9" * 10_000,
}
NO_OBJECT = {"null": b"null", "a list": b"[]", "text": b'"x"', "a number": b"1e999"}


@pytest.mark.parametrize("content", [*NOT_JSON.values(), *NO_OBJECT.values()], ids=[*NOT_JSON, *NO_OBJECT])
def test_a_json_file_that_is_none_of_ours_is_refused_by_every_reader(content, finished_run):
    shutil.copytree(finished_run, "run")
    run = Path("run")
    Path("x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json is not a thing of ours: .*\. Mend it\."):
        json_file.read_object("x.json", "a thing of ours", "Mend it.")
    with pytest.raises(ValueError, match=r"x\.json is not the config\.json of a run"):
        configs.load("x.json")
    (run / "evaluation").mkdir()
    (run / "evaluation" / "knn.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"knn\.json is not a result of ours.*Remove it"):
        results.load_all(run)
    shutil.rmtree(run / "evaluation")
    (run / "results.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"results\.json is not a result of ours.*Remove it"):
        compared_runs.entries_of("run")
    (run / "metrics.jsonl").write_bytes(content + b"\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 1 is not a record"):
        read_records(run / "metrics.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        {"model": None},
        {"model": {"backbone": ["small_conv"]}},
        {"model": {"width": -1}},
        {"model": {"width": 1e400}},
        {"model": {"num_clusters": "5"}},
        {"model": {"num_clusters": [5, [7]]}},
        {"model": {"num_clusters": [5, {"__class__": "os.system"}]}},
        {"data": {"path": {"a": 1}}},
        {"epochs": True},
        {"batch_size": 2.5},
        {"__class__": TOUCH},
        {"seed": None},
        {"name": ""},
        {"label": []},
    ],
    ids=str,
)
def test_a_config_with_values_of_another_kind_is_refused(change, finished_run):
    settings = json.loads((finished_run / "config.json").read_text())
    for key, value in change.items():
        settings[key] = settings[key] | value if isinstance(value, dict) and key in settings else value
    Path("config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"^config\.json is not the config\.json of a run: "):
        configs.load("config.json")


@pytest.mark.parametrize(
    "change",
    [
        {"rows": "text"},
        {"rows": [1]},
        {"rows": [{"k": {"a": 1}, "accuracy": [1]}], "tool": "knn"},
        {"model": []},
        {"data": {"own": False}, "rows": [{"accuracy": 0.5, "k": 10, "sigma": 0.1}]},
        {"data": {"own": False, "train": 7}, "tool": "linear_probe", "rows": [{"layer": {}}]},
        {"settings": 3},
        {"tool": None},
    ],
    ids=str,
)
def test_a_result_with_values_of_another_kind_is_refused_or_left_aside(change, finished_run):
    shutil.copytree(finished_run, "run")
    Path("run/evaluation").mkdir()
    whole = {"tool": "knn", "date": "", "model": {}, "data": {}, "settings": {}, "rows": []}
    Path("run/evaluation/x.json").write_text(json.dumps(whole | change))
    for read in (lambda: compared_runs.entries_of("run"), lambda: card.write(load_run("run"), "card.md")):
        try:
            read()
        except ValueError as error:  # nothing else may come
            assert "run" in str(error) and ("emove" in str(error) or "measure" in str(error))


# ---- checkpoints


@pytest.fixture
def run(finished_run):
    return Path(shutil.copytree(finished_run, "run"))


def manifest_of(run):
    (path,) = {checkpoints.latest(run / "checkpoints").path}
    for other in (run / "checkpoints").iterdir():
        if other.name != path.name:
            shutil.rmtree(other)  # nothing to fall back to
    return path / "manifest.json"


def seal(folder):
    """Makes the checksums of a checkpoint true, as whoever forges one would."""
    digest = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("state.npz", "manifest.json")}
    (folder / "SHA256SUMS").write_text("".join(f"{value}  {name}\n" for name, value in digest.items()))


def refuse(run):
    with pytest.raises(ValueError) as caught:
        load_run(run)
    assert "checkpoint" in str(caught.value)
    return str(caught.value)


@pytest.mark.filterwarnings("ignore:Passing over")
@pytest.mark.parametrize("content", [*NOT_JSON.values(), *NO_OBJECT.values()], ids=[*NOT_JSON, *NO_OBJECT])
def test_a_manifest_that_is_none_is_no_checkpoint(run, content):
    path = manifest_of(run)
    path.write_bytes(content)
    seal(path.parent)
    assert "checkpoint" in refuse(run)


@pytest.mark.parametrize(
    "facts",
    [
        {"num_examples": 10**12},
        {"num_examples": 10**30},
        {"num_examples": -60},
        {"num_examples": "60"},
        {"image_shape": [16, 16]},
        {"image_shape": None},
        {"image_shape": [10**9, 10**9, 1.5]},
        {"fingerprint": {}, "more": 1},
    ],
    ids=str,
)
def test_a_checkpoint_that_says_absurd_things_of_its_images_is_refused_before_a_model_is_made(run, facts, monkeypatch):
    path = manifest_of(run)
    content = json.loads(path.read_text())
    content["facts"]["training_set"] |= facts
    path.write_text(json.dumps(content))
    seal(path.parent)
    monkeypatch.setattr("selabel_tf.training.trained_run.make_model", lambda *_: pytest.fail("a model was made"))
    refuse(run)


def test_a_checkpoint_without_facts_of_its_images_is_refused(run):
    path = manifest_of(run)
    content = json.loads(path.read_text())
    del content["facts"]["training_set"]
    path.write_text(json.dumps(content))
    seal(path.parent)
    assert "does not hold a checkpoint as this version writes it (KeyError" in refuse(run)


def npy(shape, kind="<f4", data=b""):
    """An array file whose header may say anything."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def pickled():
    """An array of objects, as a pickle that touches a file."""
    return npy("(1,)", "|O", b'cbuiltins\neval\n(S"' + TOUCH.encode() + b'"\ntR.')


HOSTILE_ARRAYS = {
    "pickle": pickled(),
    "absurd shape": npy("(1000000, 1000000, 1000000)"),
    "more than there is": npy("(1000003,)"),
    "negative shape": npy("(-1, 3)"),
    "code for a shape": npy(f"({TOUCH},)"),
    "no array": b"hello",
    "nothing": b"",
}


@pytest.mark.parametrize("array", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS)
def test_a_state_with_a_hostile_array_is_refused(run, array):
    folder = manifest_of(run).parent
    with zipfile.ZipFile(folder / "state.npz") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["v00000.npy"] = array
    parts["../proof"] = parts["/proof"] = b"x"
    with zipfile.ZipFile(folder / "state.npz", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    seal(folder)
    with pytest.raises(
        ValueError, match=r"state\.npz does not hold what its manifest.* says: .*Bring this checkpoint back"
    ):
        load_run(run)


@pytest.mark.parametrize("damage", ["no archive", "a part missing", "a part cut off", "a part locked"])
def test_a_state_that_is_no_archive_of_its_parts_is_refused(run, damage):
    path = manifest_of(run).parent / "state.npz"
    content = bytearray(path.read_bytes())
    if damage == "no archive":
        content = b"hello" * 500
    elif damage == "a part missing":
        content = content.replace(b"v00001.npy", b"v99999.npy")
    elif damage == "a part cut off":
        content[300] ^= 1  # the archive's own checksum
    else:
        content[content.index(b"PK\x01\x02") + 8] |= 1  # says that it is encrypted
        content[6] |= 1
    path.write_bytes(content)
    seal(path.parent)
    with pytest.raises(
        ValueError, match=r"state\.npz does not hold what its manifest.* says: .*Bring this checkpoint back"
    ):
        load_run(run)


@pytest.mark.parametrize(
    "facts",
    [
        {"num_records": -3},
        {"num_events": "all"},
        {"batch": None},
        {"seconds": "long"},
        {"seconds": -1.0},
        {"training_set": [1]},
        {"model": None},
        {"storage": {"__class__": "os.system"}},
    ],
    ids=str,
)
def test_a_run_is_not_resumed_from_a_checkpoint_that_says_absurd_things(run, facts, small_config, monkeypatch):
    monkeypatch.setattr(distribution, "make_deterministic_on_cpu", keras.utils.set_random_seed)
    (run / "results.json").unlink()
    path = manifest_of(run)
    content = json.loads(path.read_text())
    content["facts"] |= facts
    path.write_text(json.dumps(content))
    seal(path.parent)
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(
        ValueError, match=r"does not hold a checkpoint as this version writes it|label\.storage=.* must be"
    ):
        experiment.run(small_config(), run)
    assert (run / "metrics.jsonl").read_bytes() == before


class Variable:
    """What UnfinishedProbe needs of one."""

    def __init__(self):
        self.value = np.zeros((3, 5), np.float32)
        self.shape = self.value.shape

    def numpy(self):
        return self.value

    def assign(self, value):
        raise AssertionError("nothing of a hostile file may be believed")


@pytest.mark.parametrize("array", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS)
@pytest.mark.parametrize("about", ["true", "hostile", "missing"])
def test_an_unfinished_probe_that_was_tampered_with_is_begun_anew(array, about):
    said = []
    probe = UnfinishedProbe("probe.npz", {"epochs": 3}, said.append)
    probe.save([Variable()], 2)
    with zipfile.ZipFile("probe.npz") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["v000.npy"] = array
    if about == "hostile":
        buffer = io.BytesIO()
        np.save(buffer, np.array("[" * 100_000))
        parts["about.npy"] = buffer.getvalue()
    elif about == "missing":
        del parts["about.npy"]
    with zipfile.ZipFile("probe.npz", "w") as archive:
        for name, content in {**parts, "../proof": b"x"}.items():
            archive.writestr(name, content)
    assert probe.restore([Variable()]) == 0
    assert said[-1].startswith("probe.npz cannot be read") or "other settings" in said[-1]


def test_a_probe_that_unpacks_to_more_than_it_is_is_not_unpacked():
    said = []
    probe = UnfinishedProbe("probe.npz", {}, said.append)
    with zipfile.ZipFile("probe.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("about.npy", npy("(100000000,)", "|u1") + bytes(100_000_000))
    assert Path("probe.npz").stat().st_size < 200_000
    assert probe.restore([]) == 0 and "cannot be read" in said[0]


# ---- networks


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The parts of a good .keras file."""
    path = tmp_path_factory.mktemp("network") / "good.keras"
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]).save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts):
    with zipfile.ZipFile("network.keras", "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return "network.keras"


def with_layer(parts, **changes):
    """The network with its layer described otherwise."""
    content = json.loads(parts["config.json"])
    layer = content["config"]["layers"][1]
    for key, value in changes.items():
        layer[key] = layer[key] | value if isinstance(value, dict) else value
    return parts | {"config.json": json.dumps(content).encode()}


def with_weights(parts, change):
    buffer = io.BytesIO(parts["model.weights.h5"])
    with h5py.File(buffer, "r+") as file:
        del file["layers/dense/vars/0"]
        change(file)
    return parts | {"model.weights.h5": buffer.getvalue()}


def external(file):
    file["layers/dense/vars/0"] = h5py.ExternalLink(os.path.abspath("elsewhere.h5"), "x")


def absurd(file):
    shape = {"shape": (10**6, 10**6), "chunks": (1000, 1000)}
    file.create_dataset("layers/dense/vars/0", dtype="f4", compression="gzip", **shape)


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


HOSTILE_NETWORKS = {
    "path traversal": lambda parts: parts | {"../proof": b"x", "assets/../../proof": b"x", "/proof": b"x"},
    "assets": lambda parts: parts | {"assets/proof": b"x"},
    "a command as a layer": lambda p: with_layer(
        p, module="os", class_name="system", config={"command": "touch proof"}
    ),
    "a module of its own": lambda p: with_layer(p, module="inside.evil", class_name="Evil"),
    "an unknown class": lambda p: with_layer(p, class_name="Nope"),
    "a function of another module": lambda p: with_layer(p, config={"activation": function("subprocess", "run")}),
    "absurd units": lambda p: with_layer(p, config={"units": 10**30}),
    "negative units": lambda p: with_layer(p, config={"units": -3}),
    "weights elsewhere": lambda p: with_weights(p, external),
    "absurd weights": lambda p: with_weights(p, absurd),
    "no weights": lambda p: with_weights(p, lambda file: None),
    "nested description": lambda p: p | {"config.json": b"[" * 100_000},
    "no description": lambda p: {name: content for name, content in p.items() if name != "config.json"},
    "no HDF5": lambda p: p | {"model.weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(500)},
}


@pytest.mark.parametrize("make", HOSTILE_NETWORKS.values(), ids=HOSTILE_NETWORKS)
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_network_is_refused(network, make):
    Path("evil.py").write_text(TOUCH)
    path = zipped(make(network))
    with pytest.raises(
        ValueError, match=r"network\.keras is not a network that can be loaded safely .*do not trust it"
    ):
        keras_file.load(path)


def test_code_in_a_lambda_is_not_run(network):
    layers = [keras.Input((4,)), keras.layers.Lambda(lambda x: Path("proof").touch() or x, output_shape=(4,))]
    keras.Sequential(layers).save("network.keras")
    Path("proof").unlink(missing_ok=True)  # to describe the layer, Keras has called it
    with pytest.raises(ValueError, match=r"not a network that can be loaded safely .*Lambda"):
        keras_file.load("network.keras")


def test_a_bomb_is_not_unpacked(network):
    with zipfile.ZipFile("network.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (network | {"model.weights.h5": bytes(50_000_000)}).items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"it unpacks to 5\d{7} bytes"):
        keras_file.load("network.keras")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + bytes(99)], ids=["empty", "text", "cut off"])
def test_a_file_that_is_no_network_is_refused(content):
    Path("network.keras").write_bytes(content)
    with pytest.raises(ValueError, match="is not a network that can be loaded safely"):
        keras_file.load("network.keras")


def test_a_good_network_is_loaded_and_a_missing_one_is_missing(network):
    assert keras_file.load(zipped(network)).output_shape == (None, 3)
    with pytest.raises(FileNotFoundError):
        keras_file.load("nowhere.keras")


# ---- labels


@pytest.fixture
def labels():
    return label_files.Labels(np.array([[1, 0], [0, 1]]), ["a", "b"], "f", (2, 2), "c", "d")


def test_labels_that_announce_absurd_numbers_are_refused(labels):
    label_files.write("a.csv", labels)
    text = Path("a.csv").read_text()
    for old, new in (
        ("num_examples: 2", "num_examples: 999999999999"),
        ("num_clusters: 2 2", "num_clusters: 999999999 999999999 999999999"),
        ("0,a,1,0", "0,a,1," + "9" * 5000),
        ("0,a,1,0", "0,a,1,1e400"),
        ("0,a,1,0", "0," + "a" * 200_000 + ",1,0"),
        ("0,a,1,0", '0,"a,1,0'),
        ("0,a,1,0", "0,a\x00,1,-1"),
    ):
        assert old in text
        Path("b.csv").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=r"b\.csv"):
            label_files.read("b.csv")


def test_a_parquet_file_of_other_things_is_refused(labels):
    import pyarrow as pa
    from pyarrow import parquet

    label_files.write("a.parquet", labels)
    facts = parquet.read_schema("a.parquet").metadata
    whole = parquet.read_table("a.parquet")
    absurd = whole.replace_schema_metadata(facts | {b"num_examples": b"999999999999"})
    objects = whole.set_column(2, "head0", pa.array([{"a": TOUCH}, {"a": ""}]))
    for table in (absurd, objects, whole.replace_schema_metadata({}), pa.table({"x": [1]})):
        parquet.write_table(table, "b.parquet")
        with pytest.raises(ValueError, match=r"b\.parquet"):
            label_files.read("b.parquet")
    content = Path("a.parquet").read_bytes()
    for damaged in (content[:-9], b"PAR1", b"PAR1" + bytes(99) + b"PAR1", content[:200] + bytes(60) + content[260:]):
        Path("b.parquet").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"b\.parquet"):
            label_files.read("b.parquet")
