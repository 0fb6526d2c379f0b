"""tools/environment.sh with made-up interpreters: which one it takes, when it installs, what it says if not.

Each test has its own copy of the scripts, in a folder whose name has a space, and a PATH that holds nothing
but the few programs the scripts need and made-up interpreters that write down how they were called.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("bash", "cat", "cp", "dirname", "grep", "mkdir", "rm")
INSTALLING = "Installing into .venv (about two minutes, once)\n"

# Called as: -c CODE, -m venv FOLDER, -m pip ...; `make` below fills in the words in capitals.
INTERPRETER = """#!BASH
case "$*" in
  *version_info*) echo VERSION ;;
  *ensurepip*) exit NO_ENSUREPIP ;;
  "-m venv "*)
    echo "venv VERSION" >>"$LOG"
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    echo "command = $0 -m venv $3" >"$3/pyvenv.cfg" ;;
  "-m pip --version") ;;
  "-m pip install "*)
    echo "$4 $5 ${*: -2}" >>"$LOG"
    case "$*" in *"${PIP_FAILS_ON:-nothing}"*) echo "no network" >&2; exit 1 ;; esac ;;
  *) echo "ran $*" ;;
esac
"""


class Machine:
    """A made-up machine: a copy of the scripts in `root`, and the programs in `path`."""

    def __init__(self, folder):
        self.root, self.path, self.log_file = folder / "a clone", folder / "bin", folder / "log"
        (self.root / "tools").mkdir(parents=True)
        self.path.mkdir()
        for script in ("environment.sh", "demo.sh", "test.sh"):
            shutil.copy(ROOT / "tools" / script, self.root / "tools")
        (self.root / "requirements.txt").write_text("tensorflow\n")
        (self.root / "pyproject.toml").write_text("[project]\n")
        for program in PROGRAMS:
            (self.path / program).symlink_to(shutil.which(program))

    def make(self, name, version, *, ensurepip=True, path=None):
        """Puts an interpreter on the PATH (or at `path`)."""
        text = INTERPRETER.replace("NO_ENSUREPIP", "0" if ensurepip else "1").replace("VERSION", version)
        target = Path(path or self.path / name)
        target.write_text(text.replace("BASH", shutil.which("bash")))
        target.chmod(0o755)
        return target

    def run(self, *arguments, script="demo.sh", cwd=None, **environment):
        self.log_file.write_text("")
        environment = {"PATH": str(self.path), "LOG": str(self.log_file), **environment}
        command = [shutil.which("bash"), str(self.root / "tools" / script), *arguments]
        return subprocess.run(
            command, cwd=cwd or self.root, env=environment, capture_output=True, text=True, check=False
        )

    def log(self):
        """How interpreters were called in the last run, one line per venv made or pip install."""
        return self.log_file.read_text().splitlines()

    def fail(self, **environment):
        """The one sentence of a run that must stop."""
        result = self.run(**environment)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        return result.stderr.strip()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


RAN = "ran -m tools.train --config=configs/digits.py --workdir=runs/digits"


def test_the_first_run_makes_the_environment_installs_and_starts_the_program(machine):
    machine.make("python3.12", "3.12")
    result = machine.run("--set", "epochs=2")
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout == f"{INSTALLING}{RAN} --set epochs=2\n"
    assert machine.log() == [
        "venv 3.12",
        f"-qq --disable-pip-version-check --requirement {machine.root}/requirements.txt",
        f"-qq --disable-pip-version-check --editable {machine.root}",
    ]


def test_the_second_run_reuses_the_environment_from_any_folder(machine, tmp_path):
    machine.make("python3.12", "3.12")
    machine.run()
    result = machine.run(cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout == f"{RAN}\n"
    assert machine.log() == []


def test_an_environment_that_stands_needs_no_other_python(machine):
    interpreter = machine.make("python3.13", "3.13")
    machine.run()
    interpreter.unlink()
    assert machine.run().stdout == f"{RAN}\n"


@pytest.mark.parametrize("file", ["requirements.txt", "pyproject.toml"])
def test_a_changed_requirement_is_installed_into_the_same_environment(machine, file):
    machine.make("python3.11", "3.11")
    machine.run()
    (machine.root / file).write_text("changed\n")
    assert machine.run().stdout == f"{INSTALLING}{RAN}\n"
    assert len(machine.log()) == 2 and "venv 3.11" not in machine.log()
    assert machine.run().stdout == f"{RAN}\n"


@pytest.mark.parametrize("step", ["--requirement", "--editable"])
def test_an_installation_that_failed_is_said_and_done_again_by_the_next_run(machine, step):
    machine.make("python3.11", "3.11")
    result = machine.run(PIP_FAILS_ON=step)
    assert result.returncode == 1
    assert result.stderr == (
        "no network\n"
        "Installing into .venv failed, for the reason above. "
        "Once that is mended, the same command goes on from here.\n"
    )
    assert machine.run().stdout == f"{INSTALLING}{RAN}\n"
    assert "venv 3.11" not in machine.log()


def test_a_failed_reinstallation_does_not_pass_for_the_old_one(machine):
    machine.make("python3.11", "3.11")
    machine.run()
    (machine.root / "requirements.txt").write_text("changed\n")
    machine.run(PIP_FAILS_ON="--editable")
    (machine.root / "requirements.txt").write_text("tensorflow\n")
    assert machine.run().stdout == f"{INSTALLING}{RAN}\n"


def test_an_environment_whose_python_does_not_run_is_made_anew(machine):
    machine.make("python3.11", "3.11")
    machine.run()
    (machine.root / ".venv/bin/python").write_text("broken")
    result = machine.run()
    assert result.stdout == f"Making .venv anew: the present one has no Python that runs.\n{INSTALLING}{RAN}\n"
    assert machine.log()[0] == "venv 3.11"


def test_an_environment_that_was_only_half_made_is_made_anew(machine):
    machine.make("python3.11", "3.11")
    machine.run()
    (machine.root / ".venv/installed.txt").unlink()
    python = machine.root / ".venv/bin/python"
    python.write_text(python.read_text().replace('"-m pip --version") ;;', '"-m pip --version") exit 1 ;;'))
    result = machine.run()
    assert result.stdout.startswith("Making .venv anew: the present one is incomplete or was made in another folder.\n")
    assert machine.log()[0] == "venv 3.11"


def test_an_environment_that_moved_with_its_repository_is_made_anew(machine):
    machine.make("python3.11", "3.11")
    machine.run()
    machine.root = machine.root.rename(machine.root.parent / "elsewhere")
    result = machine.run()
    assert result.stdout.startswith("Making .venv anew: the present one is incomplete or was made in another folder.\n")
    assert machine.log()[0] == "venv 3.11"


def test_an_environment_of_an_unsuitable_python_is_made_anew(machine):
    machine.make("python3.12", "3.12")
    (machine.root / ".venv/bin").mkdir(parents=True)
    machine.make("python", "3.9", path=machine.root / ".venv/bin/python")
    result = machine.run()
    assert result.stdout.startswith("Making .venv anew with Python 3.12: the present one has Python 3.9.\n")


def test_asking_for_another_python_makes_the_environment_anew_and_asking_for_the_same_does_not(machine):
    machine.make("python3.11", "3.11")
    other = machine.make("mine", "3.13", path=machine.root.parent / "my python")
    machine.run()
    assert machine.run(PYTHON="python3.11").stdout == f"{RAN}\n"
    result = machine.run(PYTHON=str(other))
    assert result.stdout == (
        f"Making .venv anew with Python 3.13: the present one has Python 3.11.\n{INSTALLING}{RAN}\n"
    )
    assert machine.log()[0] == "venv 3.13"
    assert machine.run().stdout == f"{RAN}\n"


@pytest.mark.parametrize(
    "present, taken",
    [
        ({"python3.13": "3.13", "python3.12": "3.12", "python3.11": "3.11"}, "3.11"),
        ({"python3.13": "3.13", "python3.12": "3.12", "python3": "3.9"}, "3.12"),
        ({"python3.13": "3.13", "python3": "3.14"}, "3.13"),
        ({"python3": "3.12", "python": "2.7"}, "3.12"),
        ({"python3": "3.9", "python": "3.12"}, "3.12"),
        ({"python3.11": "", "python3": "3.13"}, "3.13"),  # a shim that runs nothing
    ],
)
def test_the_first_suitable_python_is_taken(machine, present, taken):
    for name, version in present.items():
        machine.make(name, version)
    assert machine.run().returncode == 0
    assert machine.log()[0] == f"venv {taken}"


def test_a_python_without_venv_is_passed_over_for_one_that_has_it(machine):
    machine.make("python3.11", "3.11", ensurepip=False)
    machine.make("python3.13", "3.13")
    machine.run()
    assert machine.log()[0] == "venv 3.13"


def test_a_machine_with_the_wrong_python_gets_one_sentence(machine):
    machine.make("python3", "3.9")
    machine.make("python", "2.7")
    assert machine.fail() == (
        "selabel_tf needs Python 3.11, 3.12 or 3.13 but found python3 (3.9), python (2.7): install one of "
        "them, or name one that is not on PATH with PYTHON=/path/to/python3.12 bash tools/demo.sh"
    )
    assert not (machine.root / ".venv").exists()


def test_a_machine_without_python_gets_one_sentence(machine):
    assert machine.fail().startswith("selabel_tf needs Python 3.11, 3.12 or 3.13 but found no Python: install one")


def test_a_python_that_cannot_make_environments_gets_one_sentence(machine):
    machine.make("python3.11", "3.11", ensurepip=False)
    assert machine.fail().startswith(
        "python3.11 (3.11) cannot make virtual environments: install its venv package (on Debian and Ubuntu: "
    )


def test_an_unsuitable_python_that_was_asked_for_is_refused_and_the_environment_is_left_alone(machine):
    machine.make("python3.11", "3.11")
    machine.make("python3.9", "3.9")
    machine.run()
    assert machine.fail(PYTHON="python3.9").startswith(
        "selabel_tf needs Python 3.11, 3.12 or 3.13 but found python3.9 (3.9): "
    )
    assert machine.run().stdout == f"{RAN}\n"


def test_something_asked_for_that_is_no_python_is_refused(machine):
    machine.make("python3.11", "3.11")
    assert machine.fail(PYTHON="absent").startswith("PYTHON=absent does not run as Python: name Python 3.11, 3.12 or")


def test_the_test_command_checks_style_and_passes_its_options_on_to_pytest(machine):
    machine.make("python3.11", "3.11")
    result = machine.run("-k", "two words", script="test.sh")
    assert result.stdout == (
        f"{INSTALLING}ran -m ruff check\nran -m ruff format --check\n"
        "ran -m pytest -q -n 2 --dist loadfile -k two words\n"
    )


def test_continuous_integration_runs_the_test_command_of_the_readme_from_any_folder(machine, tmp_path):
    machine.make("python3.11", "3.11")
    (machine.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", machine.root / ".ci")
    assert os.access(ROOT / ".ci/run", os.X_OK)
    result = machine.run(script="../.ci/run", cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.endswith("ran -m pytest -q -n 2 --dist loadfile\n")
