import json


def test_steps_and_label_passes_of_all_sizes_are_measured(python, tmp_path):
    sizes = ["--replicas=1,2", "--batch_sizes=2", "--sizes=4001x31x1,997x7x2"]
    flags = [*sizes, f"--output={tmp_path / 'scaling.json'}", f"--plot={tmp_path / 'scaling.png'}"]
    done = python("-m", "tools.benchmark_scaling", *flags)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "scaling.json").read_text())
    assert figures["command"] == f"python -m tools.benchmark_scaling {' '.join(sizes)}"
    assert [(step["replicas"], step["batch_size"]) for step in figures["training"]] == [(1, 2), (2, 2)]
    assert all(step["images_per_second"] > 0 for step in figures["training"])
    large, small = figures["label_passes"]
    assert (large["images"], large["clusters"], large["heads"]) == (4001, 31, 1)
    assert len(small["solver_passes"]) == 2
    assert min(small["solver_passes"]) > 1  # heads of an untrained network would be solved by the first reading
    assert small["seconds"] > 0
    assert "N = 4001, K = 31, H = 1" in done.stdout
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_size_that_cannot_be_read_is_refused(python):
    done = python("-m", "tools.benchmark_scaling", "--sizes=500x16")
    assert done.returncode == 1
    assert "Cannot read --sizes='500x16'. Write images x clusters x heads, e.g. 20000x128x10." in done.stderr
