import json


def test_the_benchmark_prints_both_ratios_and_writes_them(python, tmp_path):
    flags = ["--backbone=small_conv", "--width=0", "--size=16", "--policy=flip", "--batch_size=5", "--heads=2"]
    flags += ["--clusters=3", "--steps=2", "--turns=1", f"--output={tmp_path / 'speed.json'}"]
    done = python("-m", "tools.benchmark_training", *flags)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "speed.json").read_text())
    assert {len(turns) for turns in figures["seconds_per_step"].values()} == {1}
    assert f"supervised step: {figures['step_over_supervised_step']:.3f}" in done.stdout
    assert f"step alone:  {figures['fit_rate_over_step_rate']:.3f}" in done.stdout
    assert figures["settings"]["heads"] == 2
