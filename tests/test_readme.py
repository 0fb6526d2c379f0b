"""What the README says is so."""

import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()


def test_the_keras_snippet_runs_as_it_stands(tmp_path, monkeypatch):
    (snippet,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(snippet, "README.md", "exec"), names)
    model = names["model"]
    assert model.labels.shape == (1797, 10)
    assert (tmp_path / "model.keras").exists()
    assert len(names["history"].history["loss"]) == 2
    sizes = np.bincount(model.labels[:, 0], minlength=20)
    assert sizes.min() > 0


def test_the_first_commands_are_the_ones_that_exist():
    first = re.search(r"```bash\n(.*?)```", TEXT, re.DOTALL).group(1)
    assert re.findall(r"^bash (\S+)", first, re.MULTILINE) == ["tools/demo.sh", "tools/test.sh"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("bash tools/test.sh")


def test_every_file_named_exists():
    for name in re.findall(r"`((?:configs|tools)/[\w/]+\.(?:py|sh))`", TEXT):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(\w+\.py)`", TEXT):
        assert (ROOT / "configs" / name).exists(), name


def test_every_module_named_on_a_command_line_exists():
    for name in re.findall(r"python -m (tools\.\w+)", TEXT):
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name
