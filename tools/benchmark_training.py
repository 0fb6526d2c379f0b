"""What does self-labelling cost in training? Two ratios, each measured in turns within one process.

    python -m tools.benchmark_training

1. A self-labelling step against a plain supervised step of the same backbone, on a batch that is in memory.
2. `fit` on augmented images against the same training step on a batch that is in memory: what the data cost.

Images are random pixels: only time is measured. Label passes are not part of a step and are not counted.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import json
import platform
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from absl import flags

import selabel_tf as sl
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.training import CoupledSGD
from tools import console

BACKBONE = flags.DEFINE_string("backbone", "resnet18_cifar", "Backbone to train.")
WIDTH = flags.DEFINE_integer("width", 16, "Width of the backbone; 0 for its own.")
SIZE = flags.DEFINE_integer("size", 32, "Side of the images.")
POLICY = flags.DEFINE_string("policy", "cifar_cpu", "Augmentation of the images in `fit`.")
BATCH = flags.DEFINE_integer("batch_size", 128, "Images per step.")
HEADS = flags.DEFINE_integer("heads", 10, "Number of heads.")
CLUSTERS = flags.DEFINE_integer("clusters", 128, "Clusters per head.")
STEPS = flags.DEFINE_integer("steps", 20, "Steps per turn.")
TURNS = flags.DEFINE_integer("turns", 5, "Turns of each contestant; medians are reported.")
OUTPUT = flags.DEFINE_string("output", None, "Where to write the figures as JSON, too.")


def contestants():
    """name -> function that trains one turn."""
    shape = (SIZE.value, SIZE.value, 3)
    options = {"width": WIDTH.value} if WIDTH.value else {}
    count = BATCH.value * STEPS.value
    pixels = np.random.default_rng(0).integers(256, size=(count, *shape), dtype=np.uint8)
    source = sl.data.from_arrays(pixels).augmented(POLICY.value)

    ours = sl.SelfLabelModel(sl.backbone(BACKBONE.value, shape, **options), [CLUSTERS.value] * HEADS.value, count)
    ours.compile(CoupledSGD(0.01, l2=5e-4))
    trunk = sl.backbone(BACKBONE.value, shape, **options)
    supervised = keras.Model(trunk.input, keras.layers.Dense(10)(trunk.output))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    supervised.compile(CoupledSGD(0.01, l2=5e-4), loss=loss, jit_compile=False)

    (images, index), *_ = source.train_batches(BATCH.value).take(1)
    same = tf.data.Dataset.from_tensors((images, index)).repeat(STEPS.value)
    with_classes = tf.data.Dataset.from_tensors((images, index % 10)).repeat(STEPS.value)
    return {
        "self-labelling, batch in memory": lambda: ours.fit(same, shuffle=False, verbose=0),
        "supervised, batch in memory": lambda: supervised.fit(with_classes, shuffle=False, verbose=0),
        "self-labelling, augmented images": lambda: ours.fit(
            source.train_batches(BATCH.value), shuffle=False, verbose=0
        ),
    }


def measure(turns):
    """name -> seconds per step of each turn; the contestants alternate, and the first, compiling turn is dropped."""
    seconds = {name: [] for name in turns}
    with console.Progress((TURNS.value + 1) * len(turns), "measuring") as progress:
        for turn in range(TURNS.value + 1):
            for name, train in turns.items():
                start = time.perf_counter()
                train()
                if turn:
                    seconds[name].append((time.perf_counter() - start) / STEPS.value)
                progress.update(progress.done + 1)
    return seconds


def main(_):
    seconds = measure(contestants())
    ours, supervised, augmented = seconds.values()
    ratios = {
        "step_over_supervised_step": statistics.median(a / b for a, b in zip(ours, supervised, strict=True)),
        "fit_rate_over_step_rate": statistics.median(a / b for a, b in zip(ours, augmented, strict=True)),
    }
    rows = tuple(
        (name, 1000 * statistics.median(values), BATCH.value / statistics.median(values))
        for name, values in seconds.items()
    )
    print(format_table(Table("Training", ("", "ms a step", "images/s"), rows)))
    print(f"\nself-labelling step / supervised step: {ratios['step_over_supervised_step']:.3f}")
    print(f"rate of fit / rate of the step alone:  {ratios['fit_rate_over_step_rate']:.3f}")
    if OUTPUT.value:
        figures = {
            "command": "python -m tools.benchmark_training",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{platform.machine()}, {len(tf.config.list_physical_devices('GPU'))} GPUs",
            "settings": {name: flags.FLAGS[name].value for name in ("backbone", "width", "size", "policy")}
            | {"batch_size": BATCH.value, "heads": HEADS.value, "clusters": CLUSTERS.value},
            "seconds_per_step": seconds,
            **ratios,
        }
        Path(OUTPUT.value).write_text(json.dumps(figures, indent=2) + "\n")
        print(f"Figures: {OUTPUT.value}")


if __name__ == "__main__":
    console.run(main)
