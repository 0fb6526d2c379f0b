"""What the README says is so."""

import re
import sys
from pathlib import Path

import keras
import numpy as np

from selabel_tf.export import saved_model
from selabel_tf.training import serving
from selabel_tf.training.trained_run import load_run

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_keras_snippet_runs_as_it_stands(tmp_path, monkeypatch):
    snippet = SNIPPETS[0]
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(snippet, "README.md", "exec"), names)
    model = names["model"]
    assert model.labels.shape == (1797, 10)
    assert (tmp_path / "model.keras").exists()
    assert len(names["history"].history["loss"]) == 2
    sizes = np.bincount(model.labels[:, 0], minlength=20)
    assert sizes.min() > 0


def test_the_client_runs_as_it_stands(finished_run, tmp_path, monkeypatch, capsys):
    run = load_run(finished_run)
    folder = saved_model.export(run.model, tmp_path / "export", preprocessing=serving.preprocessing(run))
    names = [tmp_path / f"{number}.png" for number in range(3)]
    pixels = np.random.default_rng(0).integers(0, 255, (3, 16, 16, 1)).astype(np.uint8)
    pixels[2] = pixels[0]
    for name, image in zip(names, pixels, strict=True):
        keras.utils.save_img(name, image, scale=False)
    monkeypatch.setattr(sys, "argv", ["client.py", str(folder), *map(str, names)])
    exec(compile(SNIPPETS[1], "README.md", "exec"), {})
    assert f"{names[0]} is most like {names[2]} (1.000)" in capsys.readouterr().out


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
