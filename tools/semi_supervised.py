"""How many labels do a run's features save? Accuracy against the number of labelled images.

    python -m tools.semi_supervised --workdir=runs/cifar10_cpu --set data.data_dir=DIR
    python -m tools.semi_supervised --workdir=runs/digits --fractions=0.02,0.1,1 --seeds=0,1,2 --methods=probe,finetune

For each fraction of the training images, the same share of every class: a linear probe on the frozen network (L-BFGS;
the labelled images choose their l2 in five folds), fine-tuning, and the same network from scratch with the same budget.
A seed draws the labelled images, the classifier, order and augmentation; several seeds give a mean and a deviation.
Parts of one seed contain each other. Without a test split a fifth of the images, drawn with seed 0, is tested on.

The same command again after a kill goes on where it was. It leaves the table as semi_supervised.json and a picture as
semi_supervised.png in <workdir>/evaluation.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import time

from absl import flags

from selabel_tf.atomic_file import write_atomically
from selabel_tf.evaluation import label_curve
from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.training import distribution, semi_supervised
from selabel_tf.training.labelled_images import labelled_images
from tools import console, fitting, judged_run

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
flags.adopt_module_key_flags(fitting)
FRACTIONS = flags.DEFINE_list("fractions", ["0.01", "0.1"], "Shares of the training images that are labelled; 1: all.")
SEEDS = flags.DEFINE_list("seeds", ["0"], "Whole numbers, each a draw of the labelled images and a training.")
METHODS = flags.DEFINE_list("methods", list(semi_supervised.METHODS), "Of probe, finetune, scratch.")
PROBE_L2 = flags.DEFINE_float("probe_l2", None, "Of the linear probe; by default the labelled images choose it.", 0.0)
SCRATCH_LEARNING_RATE = flags.DEFINE_float(
    "scratch_learning_rate", None, "From scratch; by default that of fine-tuning.", 0.0
)


def main(_):
    start = time.monotonic()
    fractions, seeds, methods = (numbers(FRACTIONS, float), numbers(SEEDS, int), chosen_methods())
    distribution.make_deterministic_on_cpu(seeds[0])
    judged = judged_run.load()
    images = labelled_images(
        judged.run, judged.train, judged.test, judged_run.SET.value, policy=fitting.AUGMENT.value, seed=0
    )
    recipes = {
        semi_supervised.FINETUNING: fitting.recipe("trained"),
        semi_supervised.SCRATCH: fitting.recipe("random", SCRATCH_LEARNING_RATE.value),
    }
    settings = {
        "recipes": {name: fitting.settings(recipe, images.train.num_examples) for name, recipe in recipes.items()},
        "probe_l2": PROBE_L2.value,
        "augment": images.train.policy,
        "crops": int(fitting.CROPS.value),
        "test": images.tested_on,
    }
    path = judged.path("semi_supervised")
    identity = settings | {"run": judged.run.checkpoint.facts, "images": images.train.fingerprint}
    points = semi_supervised.Points(path.with_suffix(".points"), identity, say=print)
    measurement = semi_supervised.Measurement(
        judged.run,
        images,
        {name: recipe for name, recipe in recipes.items() if name in methods},
        probe_l2=PROBE_L2.value,
        crops=settings["crops"],
        strategy=fitting.strategy(),
        save_every=fitting.SAVE_EVERY.value,
    )
    measurement.check(fractions, seeds)
    print(f"{images.train.num_examples} images of {images.task.num_classes} classes, {images.tested_on}")
    wanted = [(method, fraction, seed) for fraction in fractions for seed in seeds for method in methods]
    for number, key in enumerate(wanted, start=1):
        if points.get(*key) is None:
            points.add(measured(measurement, key, path, identity))
        point = points.get(*key)
        print(
            f"{number} of {len(wanted)}: {key[0]}, {point['labelled']} labelled images, seed {key[2]}: "
            f"top-1 {point['top1']:.3f}",
            flush=True,
        )
    found = [points.get(*key) for key in wanted]
    rows = label_curve.summary(sorted(found, key=lambda point: methods.index(point["method"])))
    print(f"\n{format_table(table(rows, images, seeds))}", flush=True)  # first: a disk may be full
    judged.save("semi_supervised", settings | {"fractions": fractions, "seeds": seeds, "points": found}, rows)
    title = f"{judged.run.config.name}: {judged.run.config.model.backbone} on {images.train.name}"
    write_atomically(path.with_suffix(".png"), label_curve.picture(rows, title=title))
    points.remove()
    print(f"\nFinished in {console.duration(time.monotonic() - start)}. Results: {path}")
    print(f"Picture: {path.with_suffix('.png')}")
    following = console.command("finetune", f"--workdir={judged.run.workdir}")
    print(f"Next: {following}  keeps a network fine-tuned on all labels.")


def measured(measurement, key, path, identity):
    """One point, with a progress bar, and gone on with if it was cut short."""
    method, fraction, seed = key
    words = f"{method}, {100 * fraction:.4g}% labelled, seed {seed}"
    unfinished = UnfinishedProbe(path.with_suffix(".state"), identity | {"point": key}, say=print, what="training")
    point = measurement.point(method, fraction, seed, unfinished=unfinished, callbacks=[fitting.Narrator(words)])
    unfinished.remove()
    return point


def numbers(flag, kind):
    """The numbers of a list flag, each once."""
    try:
        values = [kind(text) for text in flag.value]
    except ValueError:
        raise ValueError(f"--{flag.name}={','.join(flag.value)} must be numbers, e.g. {flag.default[0]}.") from None
    if not values or len(set(values)) < len(values) or min(values) < 0:
        raise ValueError(f"--{flag.name}={','.join(flag.value)} must be numbers of 0 or more, each once.")
    return values


def chosen_methods():
    for name in METHODS.value:
        if name not in semi_supervised.METHODS:
            raise ValueError(f"--methods: {name!r} is unknown. Choose of {', '.join(semi_supervised.METHODS)}.")
    if not METHODS.value:
        raise ValueError(f"--methods is empty. Choose of {', '.join(semi_supervised.METHODS)}.")
    return [words for name, words in semi_supervised.METHODS.items() if name in METHODS.value]


def table(rows, images, seeds):
    columns = ("method", "labelled", "share", "top-1", "deviation")
    cells = [
        (row["method"], row["labelled"], f"{100 * row['fraction']:.4g}%", row["top1"], row["deviation"]) for row in rows
    ]
    words = "one seed" if len(seeds) == 1 else f"mean and deviation of {len(seeds)} seeds"
    return Table("Accuracy with few labels", columns, tuple(cells), f"{words}; {images.tested_on}.")


if __name__ == "__main__":
    console.run(main)
