"""How do time and memory grow? Training with replicas and batch size, a label pass with images, clusters and heads.

    python -m tools.benchmark_scaling --output=configs/results/scaling.json --plot=scaling.png

Training: steps of the CPU-sized CIFAR network on batches in memory, on one and on two logical CPU devices that share
the cores. Label passes: scores, solves and roundings of all heads from features [N, 128] (a pass through a network
comes on top, and grows with N alone), one of N, K, H changed at a time. Scores are those of a random head whose logits
have deviation 3; lambda is 10. Memory is what the process grew by at its peak, over what it had before the pass.

Everything is done once after a first, compiling call, and given as seconds on the clock and of the processor.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import json
import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from absl import flags

import selabel_tf as sl
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.labelling.relabel import Relabeller
from selabel_tf.training import CoupledSGD
from selabel_tf.untuned import untuned
from tools import console

REPLICAS = flags.DEFINE_list("replicas", ["1", "2"], "Numbers of logical CPU devices to train on.")
BATCHES = flags.DEFINE_list("batch_sizes", ["64", "128", "256", "512"], "Images per step, over all replicas.")
SIZES = flags.DEFINE_list(
    "sizes",
    "5000x128x1,10000x128x1,20000x128x1,50000x128x1,20000x32x1,20000x512x1,20000x1000x1,20000x3000x1,"
    "20000x128x3,20000x128x10",
    "Label passes: images x clusters x heads.",
)
OUTPUT = flags.DEFINE_string("output", None, "Where to write the figures as JSON.")
PLOT = flags.DEFINE_string("plot", None, "Where to draw them, as PNG.")
FEATURES, DEVIATION, LAMBDA = 128, 3.0, 10.0


def now():
    return np.array([time.perf_counter(), time.process_time()])


def training(replicas, batch_size):
    """Images/s of a training step, by the clock and by the processor."""
    devices = [f"CPU:{number}" for number in range(replicas)]
    strategy = tf.distribute.MirroredStrategy(devices) if replicas > 1 else tf.distribute.get_strategy()
    with strategy.scope():
        model = sl.SelfLabelModel(sl.backbone("resnet18_cifar", (32, 32, 3), width=16), [128] * 10, 512)
        model.compile(CoupledSGD(0.01, l2=5e-4))
    images = np.random.default_rng(0).normal(size=(batch_size, 32, 32, 3)).astype(np.float32)
    steps = 1 + max(4, 1024 // batch_size)
    batch = untuned(tf.data.Dataset.from_tensors((images, np.arange(batch_size))).repeat(steps))
    model.fit(batch.take(2), shuffle=False, verbose=0)
    # TensorFlow's iterators over replicas end late (selabel_tf/untuned.py), so steps are timed by their own ends.
    ends = []
    timer = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ends.append(now()))
    model.fit(batch, shuffle=False, verbose=0, callbacks=[timer])
    clock, processor = (batch_size * (steps - 1) / (ends[-1] - ends[0])).tolist()
    return {
        "replicas": replicas,
        "batch_size": batch_size,
        "images_per_second": clock,
        "per_processor_second": processor,
    }


def label_pass(images, clusters, heads):
    """Seconds and bytes of a label pass over so many images."""
    generator = np.random.default_rng(0)
    pixels = generator.random((images, 1, FEATURES, 1), np.float32)
    flat = keras.Sequential([keras.Input((1, FEATURES, 1)), keras.layers.Flatten()])
    model = sl.SelfLabelModel(flat, [clusters] * heads, images)
    kernel = model.heads.kernel
    spread = DEVIATION * np.sqrt(12 / FEATURES)  # of uniform pixels, whose deviation is 1 / sqrt(12)
    kernel.assign(spread * generator.normal(size=kernel.shape).astype(np.float32))
    relabeller = Relabeller(model, sl.data.from_arrays(pixels), lambda_=LAMBDA, storage="float32", warm_start=False)
    relabeller.run(0, range(heads))
    seen = []
    before = memory("VmRSS")
    reset_peak()
    records = relabeller.run(1, range(heads), on_image=lambda done, total: done < total or seen.append(now()))
    clock, processor = (now() - seen[0]).tolist()
    return {
        "images": images,
        "clusters": clusters,
        "heads": heads,
        "seconds": clock,
        "processor_seconds": processor,
        "peak_bytes": memory("VmHWM") - before,
        "solver_passes": [int(record.solution.num_passes) for record in records],
    }


def memory(field):
    """Bytes: VmRSS, of now; VmHWM, the most since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")


def tables(figures):
    steps = tuple(
        (f"{r['replicas']} x CPU", r["batch_size"], f"{r['images_per_second']:.0f}", f"{r['per_processor_second']:.0f}")
        for r in figures["training"]
    )
    passes = tuple(
        (
            f"N = {r['images']}, K = {r['clusters']}, H = {r['heads']}",
            f"{r['seconds']:.2f}",
            f"{r['processor_seconds']:.2f}",
            f"{r['peak_bytes'] / 2**30:.2f}",
            max(r["solver_passes"]),
        )
        for r in figures["label_passes"]
    )
    yield Table("Training", ("replicas", "batch", "images/s", "images per processor second"), steps)
    yield Table("Label passes", ("", "s", "processor s", "GiB", "readings"), passes)


def draw(figures, path):
    """Label passes against N, K and H, in processor seconds and GiB; steps against the batch size, in images/s."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    def scale(axis, sizes):
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size // 1000}k" if size % 1000 == 0 else str(size) for size in sizes], fontsize=7)
        axis.xaxis.set_minor_formatter(NullFormatter())

    figure = Figure(figsize=(10, 2.8), layout="constrained")
    *passes, steps = figure.subplots(1, 4)
    names = {"images": "N", "clusters": "K", "heads": "H"}
    usual = {"images": 20000, "clusters": 128, "heads": 1}
    for axis, (field, symbol) in zip(passes, names.items(), strict=True):
        fixed = {other: value for other, value in usual.items() if other != field}
        rows = [r for r in figures["label_passes"] if all(r[other] == value for other, value in fixed.items())]
        rows.sort(key=lambda row: row[field])
        sizes = [row[field] for row in rows]
        axis.loglog(sizes, [row["processor_seconds"] for row in rows], "o-", label="processor s")
        axis.loglog(sizes, [row["peak_bytes"] / 2**30 for row in rows], "s--", label="GiB")
        scale(axis, sizes)
        axis.set_xlabel(f"{symbol}   ({', '.join(f'{names[o]} = {v}' for o, v in fixed.items())})", fontsize=8)
        axis.set_title("label pass", fontsize=8)
    low, high = zip(*(axis.get_ylim() for axis in passes), strict=True)
    for axis in passes:
        axis.set_ylim(min(low), max(high))
    passes[0].legend(fontsize=8)
    for replicas in sorted({row["replicas"] for row in figures["training"]}):
        rows = sorted((r for r in figures["training"] if r["replicas"] == replicas), key=lambda row: row["batch_size"])
        sizes = [row["batch_size"] for row in rows]
        steps.plot(sizes, [row["images_per_second"] for row in rows], "o-", label=f"{replicas} x CPU, images/s")
        scale(steps, sizes)
    if figures["training"]:
        steps.set_ylim(0)
        steps.legend(fontsize=8)
    steps.set_xlabel("batch size", fontsize=8)
    steps.set_title("training step", fontsize=8)
    figure.savefig(path, dpi=90)


def chosen(flag):
    return f"--{flag.name}={','.join(flag.value)}"


def main(_):
    replicas, batches = (list(map(int, flag.value)) for flag in (REPLICAS, BATCHES))
    sizes = []
    for text in SIZES.value:
        parts = text.split("x")
        if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ValueError(f"Cannot read --sizes={text!r}. Write images x clusters x heads, e.g. 20000x128x10.")
        sizes.append(tuple(map(int, parts)))
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * max([1, *replicas]))
    jobs = [(training, (count, batch)) for count in replicas for batch in batches]
    jobs += [(label_pass, size) for size in sizes]
    found = {training: [], label_pass: []}
    with console.Progress(len(jobs), "measuring") as progress:
        for work, arguments in jobs:
            found[work].append(work(*arguments))
            keras.backend.clear_session()
            progress.update(progress.done + 1)
    figures = {
        "command": " ".join(["python -m tools.benchmark_scaling", *map(chosen, (REPLICAS, BATCHES, SIZES))]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} {platform.machine()} cores, "
        f"{len(tf.config.list_physical_devices('GPU')) or 'no'} GPU",
        "training": found[training],
        "label_passes": found[label_pass],
    }
    for table in tables(figures):
        if table.rows:
            print(f"\n{format_table(table)}")
    if OUTPUT.value:
        Path(OUTPUT.value).write_text(json.dumps(figures, indent=1) + "\n")
        print(f"Figures: {OUTPUT.value}")
    if PLOT.value:
        draw(figures, PLOT.value)
        print(f"Plot: {PLOT.value}")


if __name__ == "__main__":
    console.run(main)
