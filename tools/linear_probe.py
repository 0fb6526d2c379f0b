"""Judges a run by linear classifiers on its frozen layers: how much of the true classes do they tell?

    python -m tools.linear_probe --workdir=runs/digits
    python -m tools.linear_probe --workdir=runs/cifar10_cpu --layers=stage3_block2_relu,pool --solver=lbfgs
    python -m tools.linear_probe --workdir=runs/imagenet_alexnet --layers=alexnet --augment=window_flip --crops=10

The last one is the paper's protocol for AlexNet; that of the authors' code has --schedule=code --augment=crop_flip.
Without --layers the network's own features are judged: of a ResNet the averaged map, as in the paper.

--solver=sgd trains by gradient descent with a schedule of the recipes; --solver=lbfgs goes to the exact minimum of the
cross-entropy with l2. Without --augment the features are extracted once and the classifiers train on those; with it,
or where they do not fit into memory, images go through the network in every epoch. Other images than the run's own
are chosen by --set, as in every tool that judges a run. Without a test split a fifth of the images, drawn with --seed
from every class, is held out and tested on.

The same command again after a kill goes on after the last finished epoch (sgd) or layer (lbfgs).
"""

import tools.quiet  # noqa: F401  isort: skip  first: TensorFlow is loud

import time
from dataclasses import asdict, replace

import keras
from absl import flags

from selabel_tf.data.augment import POLICIES
from selabel_tf.evaluation import pooled_layers, probe_training, probes
from selabel_tf.evaluation.probe_state import UnfinishedProbe
from selabel_tf.evaluation.report import Table, format_table
from selabel_tf.features import Extractor
from selabel_tf.labelling.storage import available_memory
from selabel_tf.training import distribution
from selabel_tf.training.sgd import CoupledSGD
from tools import console, judged_run

RANDOM_POLICIES = [name for name, policy in POLICIES.items() if policy.steps]
BATCH_SIZE = 256  # of passes that train nothing
FEW_STEPS = 1000  # of gradient descent; 252 on the digits end 2 to 3 points below the minimum

flags.adopt_module_key_flags(judged_run)  # --help shows them, too
LAYERS = flags.DEFINE_list(
    "layers", [], "Names of layers, or 'alexnet': the paper's conv1 to conv5. By default the network's own features."
)
MAX_FEATURES = flags.DEFINE_integer("max_features", 9600, "Maps of named layers are max-pooled to at most this.", 1)
SOLVER = flags.DEFINE_enum("solver", "sgd", ["sgd", "lbfgs"], "Gradient descent, or L-BFGS to the minimum.")
SCHEDULE = flags.DEFINE_enum(
    "schedule",
    None,
    list(probe_training.SCHEDULES),
    "Of sgd; by default paper with --layers=alexnet, else resnet. "
    "paper: 36 epochs of batch 192, 0.01 divided by 5 at 5, 15, 25; code: by 10 at 10, 20, 30; "
    "resnet: 146 epochs of batch 1024, 0.1 divided by 10 at 85, 128.",
)
EPOCHS = flags.DEFINE_integer(
    "epochs", None, "Of sgd; by default the schedule's. Drops come after the same shares of training.", 1
)
BATCH = flags.DEFINE_integer("batch_size", None, "Of sgd; by default the schedule's, or all images if fewer.", 1)
LEARNING_RATE = flags.DEFINE_float("learning_rate", None, "Of sgd, at the start; by default the schedule's.", 0.0)
L2 = flags.DEFINE_float("l2", None, "Weight decay: by default the schedule's for sgd, 1e-4 for lbfgs.", 0.0)
AUGMENT = flags.DEFINE_enum(
    "augment", "none", ["none", *RANDOM_POLICIES], "How training images are augmented; none: shown as in the test."
)
CROPS = flags.DEFINE_enum("crops", "1", ["1", "10"], "Crops of each test image, whose scores are averaged.")
SEED = flags.DEFINE_integer("seed", 0, "Of the order of training, and of what is held out.", 0)


class Narrator(keras.callbacks.Callback):
    """A progress bar over all epochs: the mean loss of the probes and each one's running top-1."""

    def on_epoch_begin(self, epoch, logs=None):
        self.before = epoch * self.params["steps"]
        if not hasattr(self, "progress"):
            total = self.params["epochs"] * self.params["steps"]
            self.progress = console.Progress(total, "training probes", start=self.before)

    def on_train_batch_end(self, batch, logs=None):
        loss = logs["loss"] / len(self.model.output)
        accuracies = {name: value for name, value in logs.items() if name.endswith("top1")}
        self.progress.update(self.before + batch + 1, loss=loss, **accuracies)

    def on_train_end(self, logs=None):
        if hasattr(self, "progress"):
            self.progress.close()


def main(_):
    start = time.monotonic()
    check_flags()
    distribution.make_deterministic_on_cpu(SEED.value)
    judged = judged_run.load()
    train, test, tested_on = split(judged)
    classifiers = probes.Probes(tapped(judged.run.model.backbone), probes.count_classes(train, test))
    examples, features_are = prepared(judged, train, classifiers)
    settings = {
        "layers": [tap.layer for tap in classifiers.taps],
        "chosen_layers": LAYERS.value,
        "pooling": [tap.pooling for tap in classifiers.taps],
        "solver": SOLVER.value,
        "augment": AUGMENT.value,
        "features": features_are,
        "seed": SEED.value,
        "test": tested_on,
    }
    settings |= sgd_settings(train) if SOLVER.value == "sgd" else {"l2": 1e-4 if L2.value is None else L2.value}
    print(f"{train.num_examples} images of {classifiers.num_classes} classes to train on, {tested_on}")
    print(f"Features: {features_are}.")

    variant = judged_run.layers_variant(LAYERS.value)
    unfinished = UnfinishedProbe(
        judged.path("linear_probe", variant).with_suffix(".state"),
        settings | {"run": judged.run.checkpoint.facts, "images": train.fingerprint},
        say=print,
    )
    if examples is None:
        with console.Progress(train.num_examples, "extracting features") as progress:
            rows = Extractor(classifiers.features)(train.plain_batches(BATCH_SIZE), train.num_examples, progress.update)
        examples = probe_training.StoredFeatures(rows, train.classes)
    if SOLVER.value == "sgd":
        schedule = schedule_for(train)
        steps = schedule.epochs * (train.num_examples // schedule.batch_size)
        if steps < FEW_STEPS:
            print(f"Only {steps} steps: probably too few. --solver=lbfgs needs none; or lower --batch_size.")
        optimizer = CoupledSGD(schedule.learning_rate, momentum=0.9, l2=schedule.l2)
        probe_training.by_sgd(
            classifiers, examples, schedule, optimizer, seed=SEED.value, unfinished=unfinished, callbacks=[Narrator()]
        )
    else:
        solve(classifiers, examples, settings["l2"], unfinished)

    with console.Progress(test.num_examples, "testing") as progress:
        rows = probes.evaluate(
            classifiers, test, crops=int(CROPS.value), batch_size=BATCH_SIZE, on_batch=progress.update
        )
    print(f"\n{format_table(table(rows, tested_on, features_are))}", flush=True)  # first: a disk may be full
    path = judged.save("linear_probe", settings | {"crops": int(CROPS.value)}, rows, variant)
    unfinished.remove()
    print(f"\nFinished in {console.duration(time.monotonic() - start)}. Results: {path}")
    named = [LAYERS] if LAYERS.value != ["alexnet"] else []  # which is no name of a layer
    following = console.command("knn", *judged_run.words(*named))
    print(f"Next: {following}  judges the same features by their neighbours.")


def check_flags():
    if SOLVER.value == "lbfgs":
        for flag in (SCHEDULE, EPOCHS, BATCH, LEARNING_RATE):
            if flag.present:
                raise ValueError(f"--{flag.name}={flag.value} belongs to --solver=sgd; lbfgs has none. Leave it out.")
        if AUGMENT.value != "none":
            raise ValueError(
                f"--augment={AUGMENT.value} shows other pixels in every epoch, and --solver=lbfgs needs features that "
                "stay. Use --solver=sgd, or leave --augment out."
            )
    if "alexnet" in LAYERS.value and len(LAYERS.value) > 1:
        raise ValueError("--layers=alexnet stands for all five layers of the paper. Give it alone, or name layers.")


def split(judged):
    """(train, test, what is tested on): without a test split, a fifth of the images is held out."""
    if judged.test is not None:
        return judged.train, judged.test, f"tested on {judged.test.num_examples} images of {judged.test.name}"
    kept, held = probes.held_out_fifth(judged.train.classes, seed=SEED.value)
    seen = "; the network has seen them, without their classes" if judged.on_own_images else ""
    words = f"tested on {len(held)} images held out of the training set, seed {SEED.value}{seen}"
    return judged.train.subset(kept), judged.train.subset(held), words


def tapped(backbone):
    """The PooledLayers of --layers."""
    if LAYERS.value == ["alexnet"]:
        return pooled_layers.of_alexnet(backbone)
    names = LAYERS.value or [pooled_layers.output_layer(backbone)]
    return pooled_layers.of_layers(backbone, names, max_features=MAX_FEATURES.value)


def prepared(judged, train, classifiers):
    """(the source whose images go through the network in every epoch, or None to extract features; in words)."""
    if AUGMENT.value != "none":
        return shown_as(
            judged, train, AUGMENT.value
        ), f"computed in every epoch from images augmented by {AUGMENT.value}"
    needed = 4 * train.num_examples * classifiers.num_features
    copies = 1 if SOLVER.value == "sgd" else 2  # L-BFGS normalises one layer's at a time
    if needed * copies < 0.6 * available_memory():
        return None, "extracted once, augmentation off; the classifiers train on them"
    if SOLVER.value == "lbfgs":
        raise ValueError(
            f"The features of {train.num_examples} images are {needed / 2**30:.1f} GiB, too much for the free memory. "
            "Name fewer layers, lower --max_features, or use --solver=sgd."
        )
    policy = "centre_crop" if POLICIES[train.policy].plain == "centre" else "none"
    words = f"computed in every epoch, augmentation off: at {needed / 2**30:.1f} GiB they do not fit into memory"
    return shown_as(judged, train, policy), words


def shown_as(judged, train, policy):
    """`train` under another augmentation policy, with the size and normalisation that the network is used to."""
    shown = judged.run.data_config(judged_run.SET.value).augment
    return train.augmented(policy, shown.size or None, mean=shown.mean or None, std=shown.std or None)


def schedule_for(train):
    """The schedule of the flags for the images of `train`."""
    schedule = probe_training.SCHEDULES[schedule_name()]
    if EPOCHS.value is not None:
        schedule = schedule.of_length(EPOCHS.value)
    if LEARNING_RATE.value is not None:
        schedule = replace(schedule, learning_rate=LEARNING_RATE.value)
    if L2.value is not None:
        schedule = replace(schedule, l2=L2.value)
    return schedule.for_examples(train.num_examples, BATCH.value)


def sgd_settings(train):
    return {"schedule": schedule_name()} | asdict(schedule_for(train))


def schedule_name():
    return SCHEDULE.value or ("paper" if LAYERS.value == ["alexnet"] else "resnet")


def solve(classifiers, stored, l2, unfinished):
    results = probe_training.by_lbfgs(
        classifiers,
        stored,
        l2=l2,
        unfinished=unfinished,
        on_iteration=lambda layer, done: done % 50 or print(f"{layer}: {done} iterations", flush=True),
    )
    for layer, result in results.items():
        how = "converged" if result.converged else "not converged"
        print(f"{layer}: {how} in {result.num_iterations} iterations, largest gradient {result.gradient:.1e}")


def table(rows, tested_on, features_are):
    columns = ("layer", "features", "pooling", "top-1", "top-5")
    cells = [(row["layer"], row["features"], row["pooling"], row["top1"], row["top5"]) for row in rows]
    crops = "1 crop" if CROPS.value == "1" else "10 crops"
    note = f"{crops}, {SOLVER.value}; {tested_on}. Features {features_are}."
    return Table("Linear probes", columns, tuple(cells), note)


if __name__ == "__main__":
    console.run(main)
