"""Where scores live: the plan, and the row blocks."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from selabel_tf.labelling import storage
from selabel_tf.labelling.storage import (
    HeadScores,
    available_disk,
    available_gpu_memory,
    available_memory,
    plan_storage,
    score_devices,
)

GIB = 2**30
N, K, D = 1_281_167, 3000, 512  # 14.3 GiB of scores, 2.4 GiB of features


@pytest.mark.parametrize(
    "memory, disk, kind",
    [
        (40, 0, "float32"),
        (20, 0, "recompute"),
        (12, 0, "half"),
        (12, 100, "half"),
        (5, 100, "disk"),
        (math.inf, 0, "float32"),
    ],
)
def test_the_fastest_that_fits_is_picked_and_told(memory, disk, kind):
    plan = plan_storage(N, K, D, memory * GIB, disk * GIB)
    assert plan.kind == kind
    assert plan.bytes_needed <= memory * GIB
    assert f"{N} x {K} scores on 1 x {D} features" in plan.reason and "the fastest way that fits" in plan.reason


def test_bytes_are_those_of_scores_kernel_features_and_one_block_at_work():
    needed = {kind: plan_storage(N, K, D, 100 * GIB, 100 * GIB, kind=kind).bytes_needed for kind in storage.KINDS}
    work = storage.WORKING_COPIES * 8192 * K * 4
    assert needed["disk"] == 4 * N * D + work
    assert needed["half"] == needed["disk"] + 2 * N * K
    assert needed["recompute"] == needed["disk"] + 4 * N * K
    assert needed["float32"] == needed["disk"] + 8 * N * K
    assert plan_storage(N, K, D, 100 * GIB, 0, views=3).bytes_needed == needed["float32"] + 8 * N * D


@pytest.mark.parametrize(
    "memory, gpu, kind, place",
    [
        (5, 40, "float32", "kept as float32 on the GPU, 29.4 GiB of 40.0 GiB"),
        (5, 20, "recompute", "with a float32 kernel on the GPU, 15.1 GiB of 20.0 GiB"),
        (40, 10, "half", "with a bfloat16 kernel on the GPU, 7.9 GiB of 10.0 GiB"),
        (40, 7, "float32", "kept as float32 in memory, 31.8 GiB of the 40.0 GiB available"),
        (5, math.inf, "float32", "on the GPU, 29.4 GiB of unknown"),
        (12, 7, "half", "with a bfloat16 kernel in memory"),
    ],
)
def test_scores_live_on_the_gpu_if_they_fit_there(memory, gpu, kind, place):
    plan = plan_storage(N, K, D, memory * GIB, 0, gpu_bytes=gpu * GIB)
    assert plan.kind == kind and place in plan.reason
    assert plan.gpu_bytes <= gpu * GIB and plan.bytes_needed <= memory * GIB
    assert (plan.gpu_bytes > 0) == ("GPU" in place)


def test_a_gpu_does_not_help_features_that_do_not_fit_into_main_memory():
    with pytest.raises(ValueError, match=r"there are 2.0 GiB, 80.0 GiB for scores on the GPU, and 0 bytes of disk"):
        plan_storage(N, K, D, 2 * GIB, 0, gpu_bytes=80 * GIB)


def test_few_clusters_need_no_kernel():
    assert plan_storage(1009, 101, 7, GIB, 0).bytes_needed == 4 * 1009 * (7 + 101 + storage.WORKING_COPIES * 101)
    assert plan_storage(1009, 101, 7, GIB, 0, kind="half").reason.startswith(
        "1009 x 101 scores on 1 x 7 features: recomputed from features, "
    )


def test_what_was_asked_for_is_taken_though_another_is_faster():
    plan = plan_storage(N, K, D, 40 * GIB, 0, kind="half")
    assert plan.kind == "half" and "bfloat16" in plan.reason and "label.storage=half" in plan.reason


@pytest.mark.parametrize("memory, kind", [(40, "float32"), (20, "recompute"), (12, "disk")])
def test_exact_is_the_fastest_that_fits_without_half_precision(memory, kind):
    plan = plan_storage(N, K, D, memory * GIB, 100 * GIB, kind="exact")
    assert plan.kind == kind and "the fastest way that fits" in plan.reason
    with pytest.raises(ValueError, match=r"recompute 17.5 GiB, disk 3.2 GiB.*storage='half' would fit"):
        plan_storage(N, K, D, 12 * GIB, 0, kind="exact")


def test_what_does_not_fit_is_refused_with_the_numbers_and_the_remedy():
    with pytest.raises(ValueError, match=r"float32 31.8 GiB.*half 10.3 GiB.*there are 5.0 GiB.*Use fewer clusters"):
        plan_storage(N, K, D, 5 * GIB, 0)
    with pytest.raises(ValueError, match=r"float32 31.8 GiB; there are 20.0 GiB.*storage='recompute' would fit"):
        plan_storage(N, K, D, 20 * GIB, 0, kind="float32")
    with pytest.raises(ValueError, match=r"disk 3.2 GiB and 14.3 GiB of disk; there are 5.0 GiB, and 2.0 GiB of disk"):
        plan_storage(N, K, D, 5 * GIB, 2 * GIB, kind="disk")


def test_bad_kinds_are_refused():
    with pytest.raises(ValueError, match=r"Unknown storage 'tape'\. Available: auto, exact, float32"):
        plan_storage(N, K, D, GIB, 0, kind="tape")
    with pytest.raises(ValueError, match="needs a folder"):
        plan_storage(N, K, D, GIB, 0, kind="disk")


@pytest.mark.parametrize("kind, times", [("float32", 1), ("recompute", 2), ("half", 2), ("disk", 2)])
def test_scores_are_kept_or_made_again(kind, times, monkeypatch):
    monkeypatch.setattr(storage, "ROWS_PER_BLOCK", 7)
    matrix, asked = np.random.default_rng(0).normal(size=(23, 5)), []

    def block(start, stop):
        asked.append((start, stop))
        return matrix[start:stop]

    scores = HeadScores(block, 23, kind, scratch="folder")
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate(list(scores)), matrix)
    assert asked == times * [(0, 7), (7, 14), (14, 21), (21, 23)]
    assert scores.kernel_form == ({"half": "half", "disk": "disk"}.get(kind, "float32"), "folder")


def test_memory_and_disk_to_be_had_are_positive(tmp_path):
    assert available_memory() > 0
    assert available_disk(tmp_path / "not" / "yet") > 0
    assert available_disk(None) == 0


def test_the_memory_of_gpus_is_asked_of_the_drivers_tool(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert available_gpu_memory(["/CPU:0", "/CPU:1"]) == 0

    def tells(text):
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
        return available_gpu_memory(["/job:localhost/device:GPU:0", "/GPU:3", "/CPU:0"])

    wanted = '[ "$*" = "--query-gpu=memory.total --format=csv,noheader,nounits" ] && '
    assert tells(wanted + "echo 81920; echo 40960") == int(0.7 * 2 * 40 * GIB)
    assert tells("echo '[N/A]'") == tells("exit 9") == math.inf
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert available_gpu_memory(["/GPU:0"]) == math.inf


def test_scores_may_live_on_the_devices_that_train(monkeypatch, two_replicas):
    assert [device[-5:] for device in score_devices(two_replicas)] == ["CPU:0", "CPU:1"]
    assert [device[-5:] for device in score_devices(tf.distribute.OneDeviceStrategy("CPU:1"))] == ["CPU:1"]
    assert score_devices(tf.distribute.get_strategy()) == ("/CPU:0",)
    gpus = [SimpleNamespace(name=f"/device:GPU:{number}") for number in range(4)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    assert score_devices(tf.distribute.get_strategy()) == ("/device:GPU:0",)  # the one that TensorFlow takes
    assert [device[-5:] for device in score_devices(two_replicas)] == ["CPU:0", "CPU:1"]  # and not the idle GPUs


@pytest.mark.parametrize("limit, expected", [("9000", 9000 - 2000 + 500 + 40), ("max", 50 * 1024)])
@pytest.mark.parametrize(
    "names, total",
    [
        (("memory.max", "memory.current", "memory.stat"), ""),
        (("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"), "total_"),
    ],
)
def test_a_containers_limit_counts_and_files_that_were_read_do_not(names, total, limit, expected, monkeypatch):
    stat = f"anon 1300\n{total}inactive_file 500\n{total}active_file 40\nworkingset_refault_file 7\n"
    files = {"/proc/meminfo": "MemTotal: 99 kB\nMemAvailable:    50 kB\n"}
    files |= {f"/sys/fs/cgroup/{name}": text for name, text in zip(names, (f"{limit}\n", "2000\n", stat), strict=True)}
    monkeypatch.setattr(Path, "is_file", lambda path: str(path) in files)
    monkeypatch.setattr(Path, "read_text", lambda path: files[str(path)])
    assert available_memory() == expected


@pytest.mark.parametrize(
    ("listed", "folder", "names"),
    [
        ("0::/jobs/7/step", "/sys/fs/cgroup/jobs", ("memory.max", "memory.current")),
        ("0::/jobs/7/step", "/sys/fs/cgroup/jobs/7/step", ("memory.max", "memory.current")),
        (
            "5:cpu,cpuacct:/\n4:memory:/jobs/7",
            "/sys/fs/cgroup/memory/jobs/7",
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ),
    ],
)
def test_the_limit_of_any_group_that_the_process_is_in_counts(listed, folder, names, monkeypatch):
    files = {"/proc/meminfo": "MemAvailable:    50 kB\n", "/proc/self/cgroup": f"{listed}\n"}
    files |= {f"{folder}/{name}": text for name, text in zip(names, ("9000\n", "2000\n"), strict=True)}
    files[f"{folder}/memory.stat"] = "anon 1\n"
    files["/sys/fs/cgroup/others/memory.max"] = "1\n"
    monkeypatch.setattr(Path, "is_file", lambda path: str(path) in files)
    monkeypatch.setattr(Path, "read_text", lambda path: files[str(path)])
    assert available_memory() == 7000


def test_without_meminfo_the_system_is_asked_otherwise(monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    monkeypatch.setattr(storage.os, "sysconf_names", {"SC_AVPHYS_PAGES": 0})
    monkeypatch.setattr(storage.os, "sysconf", {"SC_AVPHYS_PAGES": 11, "SC_PAGE_SIZE": 4096}.get)
    assert available_memory() == 11 * 4096
    monkeypatch.setattr(storage.os, "sysconf_names", {})
    assert available_memory() == math.inf
