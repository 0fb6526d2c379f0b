"""Fine-tunes a run's network, with a new classifier, on labelled images: how good a start is it?

    python -m tools.finetune --workdir=runs/digits
    python -m tools.finetune --workdir=runs/digits --weights=random         the baseline: from scratch, same budget
    python -m tools.finetune --workdir=runs/cifar10_cpu --layers=2          the last two blocks only
    python -m tools.finetune --workdir=runs/cifar10_cpu --set data.name=cifar100

The classes are those of the run's own images; others are chosen by --set, as in every tool that judges a run. Without a
test split a fifth of the images, drawn with --seed from every class, is held out and tested on.

Images that show several classes each, as TFDS voc/2007, train by the sigmoid's cross-entropy and are judged by mean
average precision as PASCAL VOC scores it: 11-point (VOC 2007), all-points (later years), and plain. A class that an
image shows only in objects marked difficult counts neither way. PASCAL VOC 2007 as in the paper, whose "fc6-8" is
--layers=fc6 and "all" is --layers=all --schedule=voc_all:

    python -m tools.finetune --workdir=runs/imagenet_alexnet --set data.name=voc/2007 --set data.split=train+validation
        --set data.test_split=test --layers=fc6 --schedule=voc_fc6-8 --augment=crop_flip --batch_norm=inference
        --crops=10

The paper does not tell its schedule there; these are of DeepCluster's public code, which crops 10-50% of an image where
crop_flip takes 8-100%, draws fc6 and fc7 anew, and trains the scale and offset of BatchNorm.

The same command again after a kill goes on after the last finished epoch, to the same result. It leaves
<workdir>/evaluation/finetune_<layers>.json and, beside it, the fine-tuned network as .keras.
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import time

from absl import flags

from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.export import keras_file
from selabel_tf.training import distribution, finetuning
from selabel_tf.training.label_tasks import SingleLabel
from selabel_tf.training.labelled_images import labelled_images
from tools import console, fitting, judged_run

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
flags.adopt_module_key_flags(fitting)
WEIGHTS = flags.DEFINE_enum(
    "weights",
    "trained",
    list(finetuning.WEIGHTS),
    "Where to begin. trained: with the run's network; random: with one drawn anew, to compare with.",
)
SEED = flags.DEFINE_integer(
    "seed", 0, "Of the classifier, the order of training, augmentation, random weights, and what is held out.", 0
)


def main(_):
    start = time.monotonic()
    distribution.make_deterministic_on_cpu(SEED.value)
    judged = judged_run.load(classes_needed=False)
    images = labelled_images(
        judged.run, judged.train, judged.test, judged_run.SET.value, policy=fitting.AUGMENT.value, seed=SEED.value
    )
    recipe = fitting.checked(fitting.recipe(WEIGHTS.value), images.train.num_examples)
    settings = fitting.settings(recipe, images.train.num_examples) | {
        "augment": images.train.policy,
        "seed": SEED.value,
        "labelled": images.train.num_examples,
        "classes": images.task.num_classes,
        "class_names": images.task.class_names,
        "test": images.tested_on,
    }
    variant = recipe.layers + ("" if recipe.weights == "trained" else f"_{recipe.weights}")
    path = judged.path("finetune", variant)
    unfinished = UnfinishedProbe(
        path.with_suffix(".state"),
        settings | {"run": judged.run.checkpoint.facts, "images": images.train.fingerprint},
        say=print,
        what="fine-tuning",
    )
    print(f"{images.train.num_examples} images of {images.task.num_classes} classes to train on, {images.tested_on}")
    print(f"{fitting.told(recipe, images.train.num_examples)}, augmented by {images.train.policy}")
    model = finetuning.finetune(
        judged.run,
        images.train,
        images.task,
        recipe,
        seed=SEED.value,
        strategy=fitting.strategy(),
        unfinished=unfinished,
        save_every=fitting.SAVE_EVERY.value,
        callbacks=[fitting.Narrator()],
    )
    crops = int(fitting.CROPS.value)
    with console.Progress(images.test.num_examples, "testing") as progress:
        scores = finetuning.scores(model, images.test, crops=crops, on_batch=progress.update)
    rows = images.task.judge(scores)
    print(f"\n{format_table(table(rows, images, recipe))}", flush=True)  # first: a disk may be full
    judged.save("finetune", settings | {"crops": crops}, rows, variant)
    keras_file.save(model, path.with_suffix(".keras"))
    unfinished.remove()
    print(f"\nFinished in {console.duration(time.monotonic() - start)}. Results: {path}")
    print(f"The fine-tuned network: {path.with_suffix('.keras')}")
    print(f"Next: {following(judged.run.workdir, recipe)}")


def table(rows, images, recipe):
    crops = "1 crop" if fitting.CROPS.value == "1" else "10 crops"
    note = f"{crops}; {images.tested_on}."
    title = f"Fine-tuning, {recipe.weights} weights, training {fitting.parts(recipe.layers)}"
    if isinstance(images.task, SingleLabel):
        cells = [(images.train.num_examples, row["top1"], row["top5"]) for row in rows]
        return Table(title, ("labelled images", "top-1", "top-5"), tuple(cells), note)
    keys = ("class", "positives", "ignored", "ap11", "ap_all", "ap")
    empty = [row["class"] for row in rows if row["ap"] is None]
    if empty:
        note += f" No test image shows {', '.join(empty)}: not in the mean."
    columns = ("class", "positives", "ignored", "AP 11-point", "AP all-points", "AP plain")
    return Table(title, columns, tuple(tuple(row[key] for key in keys) for row in rows), note)


def following(workdir, recipe):
    if recipe.weights == "trained":
        return "the same command with --weights=random: what does the start of this run gain?"
    return f"{console.command('semi_supervised', f'--workdir={workdir}')}  asks the same of few labels."


if __name__ == "__main__":
    console.run(main)
