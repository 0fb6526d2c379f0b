"""The shape of the repository: who may import whom, what importing does, and what no file may contain."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for folder in ("selabel_tf", "tools", "configs") for path in (ROOT / folder).rglob("*.py"))

ROOMS = {
    "data",
    "models",
    "labelling",
    "relabel",
    "features",
    "config",
    "atomic_file",
    "json_file",
    "reader_errors",
    "untuned",
    "evaluation",
    "export",
    "training",
}

# room -> the rooms it may import besides itself. Rooms that know nothing of each other share tensors only.
ALLOWED = {
    "data": {"untuned"},
    "models": set(),
    "labelling": set(),  # the solvers
    "relabel": {"labelling", "features"},
    "features": {"reader_errors"},
    "config": {"json_file"},
    "atomic_file": set(),
    "json_file": set(),
    "reader_errors": set(),
    "untuned": set(),
    "evaluation": {"features", "atomic_file", "json_file", "untuned"},
    "export": {"features", "atomic_file", "json_file"},
    "training": ROOMS,
    "tools": ROOMS | {"selabel_tf"},
    "configs": {"config"},
    "selabel_tf": ROOMS,  # the package's own __init__
}


def room_of(module):
    """The room of a dotted module name, None for one that is not ours.

    labelling/relabel is a room of its own, as it alone in its folder may use features; the folder's __init__,
    which shows all of the folder to the outside, belongs to it.
    """
    parts = module.split(".")
    if parts[0] in ("tools", "configs", "tests"):
        return parts[0]
    if parts[0] != "selabel_tf":
        return None
    if parts[1:] in (["labelling"], ["labelling", "relabel"]):
        return "relabel"
    return parts[1] if len(parts) > 1 else "selabel_tf"


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(source, module, *, is_package=False):
    """Yields the dotted names that `source` imports, inside functions as well; relative ones made absolute.

    `from package import name` is the module package.name where there is one of that name, else package.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") + (["__init__"] if is_package else [])
                base = ".".join([*parts[: -node.level], *([base] if base else [])])
            for alias in node.names:
                name = f"{base}.{alias.name}"
                yield name if is_module(name) or base == "absl" else base


def imports_of(path):
    return list(imports(path.read_text("utf-8"), module_name(path), is_package=path.name == "__init__.py"))


def forbidden(module, imported):
    """Those of the names `imported` that the room of `module` may not know."""
    own = room_of(module)
    rooms = {name: room_of(name) for name in imported}
    return sorted(name for name, room in rooms.items() if room is not None and room != own and room not in ALLOWED[own])


def test_every_room_is_in_the_table():
    assert {room_of(module_name(path)) for path in MODULES} <= set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_room_imports_only_what_the_design_allows(path):
    assert forbidden(module_name(path), imports_of(path)) == []


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_command_line_flags_live_only_in_tools(path):
    if path.is_relative_to(ROOT / "tools"):
        return
    assert [name for name in imports_of(path) if name in ("absl", "absl.flags", "absl.app")] == []


@pytest.mark.parametrize(
    "module, source, found",
    [
        ("selabel_tf.data.sources", "import selabel_tf", ["selabel_tf"]),
        ("selabel_tf.data.sources", "from selabel_tf import backbone", ["selabel_tf"]),
        ("selabel_tf.data.sources", "from selabel_tf import models", ["selabel_tf.models"]),
        ("selabel_tf.data.sources", "from selabel_tf.models import heads as h", ["selabel_tf.models.heads"]),
        (
            "selabel_tf.data.sources",
            "def f():\n    from ..models.heads import X",
            ["selabel_tf.models.heads"],
        ),
        ("selabel_tf.data.sources", "from .. import features", ["selabel_tf.features"]),
        ("selabel_tf.data.sources", "from . import augment\nfrom .augment import make\nimport numpy", []),
        ("selabel_tf.labelling.sinkhorn", "from .relabel import X", ["selabel_tf.labelling.relabel"]),
        ("selabel_tf.labelling.sinkhorn", "from ..features import extract", ["selabel_tf.features"]),
        ("selabel_tf.labelling.relabel", "from ..features import extract\nfrom .sinkhorn import solve", []),
        ("selabel_tf.labelling.relabel", "from ..models import heads", ["selabel_tf.models.heads"]),
        ("selabel_tf.evaluation.knn", "from .. import features, atomic_file", []),
        (
            "selabel_tf.evaluation.knn",
            "from selabel_tf import config, training",
            ["selabel_tf.config", "selabel_tf.training"],
        ),
        (
            "selabel_tf.training.experiment",
            "from .. import config, data\nfrom tools import console",
            ["tools.console"],
        ),
        ("configs.digits", "from selabel_tf.config import Config", []),
        ("configs.digits", "from selabel_tf.training import experiment", ["selabel_tf.training.experiment"]),
    ],
)
def test_the_rules_see_every_way_to_import(module, source, found):
    assert forbidden(module, imports(source, module)) == found


def test_relative_imports_of_a_package_start_in_its_own_folder():
    source = "from . import sinkhorn\nfrom .. import features"
    names = list(imports(source, "selabel_tf.labelling", is_package=True))
    assert names == ["selabel_tf.labelling.sinkhorn", "selabel_tf.features"]


IMPORT_AND_LOOK = """
import selabel_tf

from absl import flags
defining = flags.FLAGS.flags_by_module_dict()
print("flags", [name for name in defining if name.startswith(("selabel_tf", "tools"))])

# Devices can be divided only as long as nothing has touched them.
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print("devices", len(tf.config.list_logical_devices("CPU")))
try:
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
except RuntimeError:
    print("then fixed")
"""


def test_importing_the_package_touches_no_device_no_flag_and_no_file(tmp_path):
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("KERAS_HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        environment.pop(name, None)
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_AND_LOOK],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["flags []", "devices 2", "then fixed"]
    # Keras itself writes its settings, and imports matplotlib, which writes a font cache
    assert {path.name for path in tmp_path.iterdir()} <= {".keras", ".cache", ".config", ".nv"}
    beyond = [p for folder in (".cache", ".config") for p in (tmp_path / folder).glob("*") if p.name != "matplotlib"]
    assert beyond == []


def own_text():
    """The text of every file of the repository by its path, without what appears as programs run."""
    paths = [path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".txt")]  # not what CI may drop there
    for folder in ("selabel_tf", "tools", "configs", "tests", ".ci"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        paths += [path for path in files if "__pycache__" not in path.parts]
    return {path.relative_to(ROOT): path.read_text("utf-8", errors="replace") for path in sorted(paths)}


def test_no_file_names_a_place_on_somebodys_machine():
    place = re.compile(r"(?<![\w.>])/(work|root|tmp|home)\b(?=/|\s|[\"'`])")
    assert place.search("see /" + "tmp/x") and place.search("in '/" + "work'")
    assert not place.search("https://example.com/work/x and ./tmp/x")
    assert [f"{path}: {place.search(text)[0]}" for path, text in own_text().items() if place.search(text)] == []


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_is_short_enough_to_be_read_at_once(path):
    assert len(path.read_text("utf-8").splitlines()) <= 350
