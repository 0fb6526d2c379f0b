"""How fast is training, and what does self-labelling cost? All in turns within one process, to be compared as ratios.

    python -m tools.benchmark_training
    python -m tools.benchmark_training --networks=alexnet_64,alexnet_224 --threads=1

For each network, images/s of
    a plain supervised `fit`, of the stock Keras way, on a batch in memory; the same with XLA under --xla
    the self-labelling step, on a batch in memory
    the input pipeline alone: reading and augmentation
    `fit`: both together
    a pass of plain inference over the images, and a label pass: features (augmented, BatchNorm as in training), then
    the solves and roundings of all heads
    the training step in PyTorch, of the small ResNet and where torch is installed: both of its channel layouts

Images are random pixels: only time is measured, each turn as seconds on the clock and as seconds of the processor
(of all threads). On a machine that is shared, with --threads=1, the latter is the steadier measure. A convolution of
the small ResNet is timed in both channel layouts of TensorFlow as well.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import atexit
import contextlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from absl import flags

import selabel_tf as sl
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.features import Extractor
from selabel_tf.labelling.relabel import Relabeller
from selabel_tf.training import CoupledSGD
from selabel_tf.untuned import untuned
from tools import console


@dataclass(frozen=True)
class Network:
    """What is trained; `turn`: steps of one turn, enough of them to make little of what an iteration takes to start."""

    backbone: str
    size: int
    policy: str
    batch_size: int
    turn: int
    clusters: int = 128
    heads: int = 10
    width: int = 0


NETWORKS = {
    "cifar10_cpu": Network("resnet18_cifar", 32, "cifar_cpu", 128, 24, width=16),
    "alexnet_64": Network("alexnet", 64, "crop_jitter_cifar", 128, 40),
    "alexnet_224": Network("alexnet", 224, "crop_jitter", 32, 12),
    "tiny": Network("small_conv", 16, "flip", 5, 2, clusters=3, heads=2),  # for trying the tool itself
}
CHOSEN = flags.DEFINE_list("networks", ["cifar10_cpu"], f"What to train, of {', '.join(NETWORKS)}.")
TURNS = flags.DEFINE_integer("turns", 5, "Turns of each contestant; medians are reported.", 1)
STEPS = flags.DEFINE_integer("steps", 0, "Batches of one turn; 0: the network's own number.", 0)
THREADS = flags.DEFINE_integer("threads", 0, "Threads within an operation, of PyTorch as well; 0: one per core.", 0)
XLA = flags.DEFINE_bool("xla", False, "Also a supervised step with jit_compile.")
OUTPUT = flags.DEFINE_string("output", None, "Where to write the figures as JSON, too.")

SUPERVISED, XLA_STEP, STEP = "supervised Keras fit", "supervised Keras fit, XLA", "self-labelling step"
INPUT, FIT, INFERENCE = "input pipeline", "self-labelling fit", "plain inference"
FEATURES, SOLVES = "label pass: features", "label pass: solves and rounding"
TORCH = {False: "PyTorch step, channels first", True: "PyTorch step, channels last"}


def contestants(network):
    """name -> function that works on network.turn batches."""
    shape, count = (network.size, network.size, 3), network.batch_size * network.turn
    options = {"width": network.width} if network.width else {}
    pixels = np.random.default_rng(0).integers(256, size=(count, *shape), dtype=np.uint8)
    source = sl.data.from_arrays(pixels).augmented(network.policy)
    clusters = [min(network.clusters, count)] * network.heads

    model = sl.SelfLabelModel(sl.backbone(network.backbone, shape, **options), clusters, count)
    model.compile(CoupledSGD(0.01, l2=5e-4))
    trunk = sl.backbone(network.backbone, shape, **options)
    (images, index), *_ = source.train_batches(network.batch_size).take(1)
    same = untuned(tf.data.Dataset.from_tensors((images, index)).repeat(network.turn))
    classes = untuned(tf.data.Dataset.from_tensors((images, index % 10)).repeat(network.turn))

    def supervised(jit_compile):
        copy = keras.models.clone_model(trunk)
        classifier = keras.Model(copy.input, keras.layers.Dense(10)(copy.output))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        classifier.compile(CoupledSGD(0.01, l2=5e-4), loss=loss, jit_compile=jit_compile)
        return lambda: classifier.fit(classes, shuffle=False, verbose=0)

    train, plain = source.train_batches(network.batch_size), source.plain_batches(network.batch_size)
    extractor = Extractor(lambda shown: model.backbone(shown, training=False))
    relabeller = Relabeller(model, source, lambda_=10.0, batch_size=network.batch_size)
    found = {
        SUPERVISED: supervised(False),
        STEP: lambda: model.fit(same, shuffle=False, verbose=0),
        INPUT: lambda: [None for _ in train],
        FIT: lambda: model.fit(train, shuffle=False, verbose=0),
        INFERENCE: lambda: extractor(plain, count),
        FEATURES: lambda: label_pass(relabeller, len(clusters)),
    }
    if XLA.value:
        found[XLA_STEP] = supervised(True)
    if network.backbone == "resnet18_cifar" and importlib.util.find_spec("torch"):
        for last, name in TORCH.items():
            found[name] = torch_turns(network, clusters[0], last)
    return found


def torch_turns(network, clusters, channels_last):
    """A function that lets PyTorch work, in a process of its own; returns the (clock, processor) seconds it took."""
    threads = THREADS.value or os.cpu_count()
    options = {name: getattr(network, name) for name in ("width", "size", "batch_size", "heads", "turn")}
    options |= {"clusters": clusters, "channels_last": channels_last, "threads": threads}
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.torch_step", json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},  # its backward pass runs in threads of OpenMP
    )
    atexit.register(process.kill)

    def turn():
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("PyTorch's process ended, for the reason above. Mend that, or uninstall torch.")
        return np.array(json.loads(line))

    return turn


def label_pass(relabeller, heads):
    """Labels all heads; returns the (clock, processor) seconds that the features took, of which nothing else tells."""
    start, seen = now(), []
    relabeller.run(0, range(heads), on_image=lambda done, total: done < total or seen.append(now()))
    return seen[0] - start


def now():
    return np.array([time.perf_counter(), time.process_time()])


def measure(turns, label):
    """name -> [[clock, processor], ...] seconds a turn; the contestants alternate, and the first turn compiles."""
    seconds = {name: [] for name in (*turns, SOLVES)}
    with console.Progress((TURNS.value + 1) * len(turns), label) as progress:
        for turn in range(TURNS.value + 1):
            for name, work in turns.items():
                start = now()
                part = work()
                whole = now() - start
                if turn and name == FEATURES:
                    seconds[SOLVES].append((whole - part).tolist())
                if name in (FEATURES, *TORCH.values()):
                    whole = part
                if turn:
                    seconds[name].append(whole.tolist())
                progress.update(progress.done + 1)
    return seconds


def layouts(network):
    """Layout -> milliseconds of the processor that a 3 x 3 convolution of the first stage and its gradients take."""
    found = {}
    for layout, shape in (
        ("NHWC", [network.size] * 2 + [network.width]),
        ("NCHW", [network.width] + [network.size] * 2),
    ):
        x = tf.random.normal([network.batch_size, *shape])
        kernel = tf.random.normal([3, 3, network.width, network.width])

        @tf.function
        def work(x, kernel, layout=layout):
            with tf.GradientTape() as tape:
                tape.watch([x, kernel])
                y = tf.nn.conv2d(x, kernel, 1, "SAME", data_format=layout)
            return tape.gradient(y, [x, kernel])

        work(x, kernel)
        times = []
        for _ in range(TURNS.value):
            start = now()
            work(x, kernel)[0].numpy()
            times.append((now() - start)[1])
        found[layout] = 1000 * statistics.median(times)
    return found


def ratios(seconds, clock):
    """Medians over turns, by the clock (0) or the processor (1)."""

    def of(name):
        return np.array([turn[clock] for turn in seconds[name]])

    def median(values):
        return float(np.median(values))

    found = {
        "step_over_supervised_step": median(of(STEP) / of(SUPERVISED)),
        "fit_rate_over_step_rate": median(of(STEP) / of(FIT)),
        "features_over_inference": median(of(FEATURES) / of(INFERENCE)),
    }
    if XLA_STEP in seconds:
        found["xla_over_supervised_step"] = median(of(XLA_STEP) / of(SUPERVISED))
    theirs = [of(name) for name in TORCH.values() if name in seconds]
    if theirs:
        found["step_over_best_torch_step"] = median(of(STEP) / min(theirs, key=np.median))
    return found


def table(name, network, seconds):
    count = network.batch_size * network.turn
    rows = []
    for what, turns in seconds.items():
        clock, processor = (statistics.median(turn[kind] for turn in turns) for kind in (0, 1))
        rows.append((what, f"{count / clock:.0f}", f"{count / processor:.0f}", f"{1000 * clock / network.turn:.1f}"))
    columns = ("", "images/s", "images per processor second", "ms a batch")
    note = f"{network.backbone} at {network.size} pixels, batch {network.batch_size}, "
    note += f"[{network.clusters} x {network.heads}], {count} images a turn"
    return Table(name, columns, tuple(rows), note)


def main(_):
    for name in CHOSEN.value:
        if name not in NETWORKS:
            raise ValueError(f"Unknown network {name!r}. Available: {', '.join(NETWORKS)}.")
    if THREADS.value:
        tf.config.threading.set_intra_op_parallelism_threads(THREADS.value)
    if not importlib.util.find_spec("torch"):
        print("PyTorch is not installed, so its step is left out. To have it:  pip install -e .[torch]")
    results = []
    for name in CHOSEN.value:
        network = NETWORKS[name]
        network = replace(network, turn=STEPS.value or network.turn)
        seconds = measure(contestants(network), name)
        figures = {"clock": ratios(seconds, 0), "processor": ratios(seconds, 1)}
        print(f"\n{format_table(table(name, network, seconds))}")
        for ratio in figures["clock"]:
            both = [figures[kind][ratio] for kind in ("clock", "processor")]
            print(f"{ratio.replace('_', ' ')}: {both[0]:.3f} by the clock, {both[1]:.3f} by the processor")
        if network.width:
            figures["layouts_ms"] = layouts(network)
            print(
                "convolution and gradients: " + ", ".join(f"{k} {v:.1f} ms" for k, v in figures["layouts_ms"].items())
            )
        results.append({"network": name, **asdict(network), "seconds_per_turn": seconds, **figures})
        keras.backend.clear_session()
    if OUTPUT.value:
        options = [f"--networks={','.join(CHOSEN.value)}", f"--steps={STEPS.value}", f"--turns={TURNS.value}"]
        options.append(f"--threads={THREADS.value}")
        content = {
            "command": " ".join(["python -m tools.benchmark_training", *options, *["--xla"] * XLA.value]),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{os.cpu_count()} {platform.machine()} cores, "
            f"{len(tf.config.list_physical_devices('GPU')) or 'no'} GPU",
            "results": results,
        }
        Path(OUTPUT.value).write_text(json.dumps(content, indent=1) + "\n")
        print(f"Figures: {OUTPUT.value}")


if __name__ == "__main__":
    console.run(main)
