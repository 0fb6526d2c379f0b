"""One experiment: a config and a folder in, a trained, measured and documented run out.

    config -> source, model -> fit with label passes -> labels.csv, backbone.keras, results.json, report.html

The folder is all that a later tool needs. Calling `run` again on it goes on from the last checkpoint.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import keras

from .. import config as configs
from ..atomic_file import remove_leftovers, write_atomically
from ..evaluation import collapse
from ..export import keras_file
from ..export import labels as label_files
from ..labelling import kernel
from ..reader_errors import own_words
from . import assessment, checkpoints, distribution, given_labels, quarantine, resuming
from .assembly import learning_rate, make_labelling, make_model, make_source, steps_per_epoch
from .interruption import Interruption
from .mid_epoch import fit_from
from .rotation_callback import RotationCallback
from .run_callbacks import CheckpointCallback, KnnCallback, LogCallback
from .run_facts import in_heads
from .run_lock import locked
from .run_log import RunLog, read_records


@dataclass(frozen=True)
class Watcher:
    """Who looks on: callables that `run` tells what happens. All of them may be left out."""

    say: callable = lambda text: None  # one line for a person
    on_label_pass: callable = lambda label_pass: None
    on_progress: callable = lambda number, what, done, total: None  # within a label pass
    on_examined: callable = lambda done, total: None  # images, before training
    callbacks: tuple = ()  # Keras callbacks, for a progress bar


def is_finished(workdir):
    """Whether a run in this folder has come to its end."""
    return (Path(workdir) / "results.json").is_file()


def run(config, workdir, *, devices=None, watcher=None):
    """Trains, measures and writes the run folder; resumes a run that was cut short. Returns the assessment.

    Raises interruption.Interrupted when the process is told to stop, with the state of the run saved.

    Args:
        config: a selabel_tf.config.Config.
        workdir: the run's folder; new, empty, or of a run with the same config.
        devices: as in distribution.strategy; all visible GPUs by default.
        watcher: a Watcher.
    """
    workdir = Path(workdir)
    check_folder(config, workdir)  # before anything is put there
    with own_words(), Interruption() as interruption, locked(workdir):
        return _run(config, workdir, devices, watcher or Watcher(), interruption)


def _run(config, workdir, devices, watcher, interruption):
    check_folder(config, workdir)  # again: now nobody else can begin a run in it
    checkpoint = checkpoints.latest(workdir / "checkpoints")
    distribution.make_deterministic_on_cpu(config.seed)
    strategy = distribution.strategy(devices)
    source = quarantine.settle(config, workdir, say=watcher.say, on_progress=watcher.on_examined)
    distribution.check_batch(config.batch_size, strategy.num_replicas_in_sync, source.num_examples)
    watcher.say(
        f"{source.num_examples} images {'x'.join(map(str, source.image_shape))} from {source.name}, "
        f"backbone {config.model.backbone}, clusters {in_heads(config.model.num_clusters)}; "
        f"{strategy.num_replicas_in_sync} device(s)"
    )
    labels = given_labels.read(config, source, workdir)
    if checkpoint is not None:
        resuming.check(checkpoint, config, source)
    with strategy.scope():
        model = make_model(config, source)
    labelling = make_labelling(resuming.as_begun(config, checkpoint), source, scratch=workdir, labels=labels)
    labelling.check(model, config.epochs, steps_per_epoch(config, source))
    watcher.say(labelling.relabeller.plan.reason)
    neighbours = [*_neighbours(config, source), *_rotations(config)]
    assessment.check(config, source)

    # everything that can be refused has been: only now is the folder claimed
    remove_leftovers(workdir)
    kernel.remove_leftovers(workdir)
    write_atomically(workdir / "config.json", configs.to_json(config))
    given_labels.keep(config, workdir)
    with RunLog(workdir) as log:
        step = resuming.restore(checkpoint, model, labelling, log, watcher.say)
        logging = LogCallback(log, source.num_examples, resuming.seconds(checkpoint))
        saving = CheckpointCallback(
            workdir / "checkpoints",
            config,
            log,
            resumed=checkpoint,
            facts=resuming.facts(config, source, labelling),
            clock=logging.since_record,
            interruption=interruption,
        )
        labelling.before_label_pass = saving.before_label_pass
        labelling.on_label_pass = _logged_and_saved(log, saving, watcher)
        labelling.on_progress = _interruptible(watcher.on_progress, interruption)
        for callback in neighbours:
            callback.log = log
        fit_from(
            step,
            model,
            source,
            batch_size=config.batch_size,
            seed=config.seed,
            epochs=config.epochs,
            callbacks=[
                labelling,
                keras.callbacks.LearningRateScheduler(learning_rate(config.optimizer, config.epochs)),
                logging,
                *neighbours,
                saving,
                *watcher.callbacks,
            ],
        )
    watcher.say("Measuring features and clusters")
    _write_products(config, workdir, model, source, saving.last)
    result = assessment.assess(config, workdir, model, source, watcher.say)
    assessment.write(result, config, workdir)
    return result


def check_folder(config, workdir):
    """Refuses a folder that holds something else than the beginning of this very run."""
    workdir = Path(workdir)
    record = workdir / "config.json"
    if record.is_file():
        before = configs.read(record)
        changed = configs.differences(before, config)
        otherwise = [line for line in changed if not line.startswith("evaluation.")]
        remedy = "Resume it with the settings it was begun with, or give this run a --workdir of its own."
        if not is_finished(workdir):
            changed = otherwise  # how it will be judged may still be settled
        elif not otherwise:
            remedy = (
                "It is finished, and was judged by those. Judge it by others with tools.knn, tools.linear_probe and "
                "tools.clusters, and draw its page with tools.report."
            )
        if changed:
            listed = "\n  ".join(changed)
            raise ValueError(f"{workdir} holds a run with other settings:\n  {listed}\n{remedy}")
    elif workdir.exists() and (not workdir.is_dir() or any(_is_foreign(path) for path in workdir.iterdir())):
        raise ValueError(f"{workdir} is not empty and holds no run of ours. Give the run a --workdir of its own.")


def _is_foreign(path):
    """Whether this is none of the things that a run may leave in its folder before it has claimed it."""
    return path.name != quarantine.FILE and not path.name.startswith(".")


def _neighbours(config, source):
    """The callback of evaluation.knn_every, or none."""
    evaluation = config.evaluation
    if not evaluation.knn_every:
        return []
    test = make_source(config, config.data.test_split) if config.data.test_split else None
    options = {"every": evaluation.knn_every, "k": evaluation.knn_k, "sigma": evaluation.knn_sigma}
    return [KnnCallback(source, test, **options)]


def _rotations(config):
    """The callback that judges the objective "rotation" on held-out images, or none."""
    if "rotation" not in config.model.objectives or not config.data.test_split:
        return []
    return [RotationCallback(make_source(config, config.data.test_split))]


def _interruptible(on_progress, interruption):
    """Progress within a label pass is also where a pass can be abandoned."""

    def tell(*progress):
        on_progress(*progress)
        interruption.leave()

    return tell


def _logged_and_saved(log, saving, watcher):
    """What is done with a label pass: it is logged, told, looked at by the collapse doctor, and saved."""

    def tell(label_pass):
        for record in label_pass.records():
            log.append(record)
        log.scalars(label_pass.step, label_pass.scalars())
        watcher.on_label_pass(label_pass)
        for finding in collapse.new_findings(read_records(log.path)):
            log.append({"kind": "doctor", "step": label_pass.step, **asdict(finding)})
            watcher.say(f"Doctor: {finding}")
        saving.after_label_pass(label_pass)

    return tell


def _write_products(config, workdir, model, source, checkpoint):
    if "labels" in model.objectives:  # else they are as they were drawn
        label_files.write(
            workdir / "labels.csv",
            label_files.Labels(
                model.labels,
                source.ids,
                fingerprint=source.fingerprint,
                num_clusters=model.num_clusters,
                config_hash=configs.config_hash(config),
                checkpoint_hash=checkpoint.sha256,
            ),
        )
    keras_file.save(model.backbone, workdir / "backbone.keras")
