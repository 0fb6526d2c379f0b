"""The images of a run folder, as far as they are still there, and sentences on what is not."""

import numpy as np
import tensorflow as tf

from ..export import labels as label_files
from .assembly import make_source

UNREADABLE = (ValueError, OSError, tf.errors.OpError)  # what reading images may raise


def training_images(run):
    """(ids of the training set, the images of it that are there, their rows, sentences on what is not)."""
    count = run.training_set.num_examples
    try:
        train = run.training_images()
    except UNREADABLE as error:
        gone = f"The training images are not there, so there are no pictures and no classes: {first_line(error)}"
        return _recorded_ids(run) or _numbers(count), None, None, (gone,)
    if train.fingerprint == run.training_set.fingerprint:
        return train.ids, train, np.arange(count), ()
    ids = _recorded_ids(run)
    place = {name: position for position, name in enumerate(train.ids)}
    rows = np.array([row for row, name in enumerate(ids or ()) if name in place], np.int64)
    if not len(rows) or tuple(train.image_shape) != run.training_set.image_shape:
        other = f"{train.name} does not hold the images of training any more: there are no pictures and no classes."
        return ids or _numbers(count), None, None, (other,)
    note = f"{train.name} has changed since training: {len(rows)} of {count} training images are still there by name."
    return ids, train.subset([place[ids[row]] for row in rows]), rows, (note,)


def _recorded_ids(run):
    """The ids in labels.csv, or None where there is no such file that can be read."""
    try:
        return label_files.read(run.workdir / "labels.csv").ids
    except (ValueError, OSError):
        return None


def held_out_images(run):
    """(the images of the test split or None, sentences on why there are none)."""
    config = run.data_config()
    try:
        test = make_source(config, config.data.test_split) if config.data.test_split else None
        return test, what_is_wanting(test)
    except UNREADABLE as error:
        return None, (f"The held-out images are not there: {first_line(error)}",)


def what_is_wanting(test) -> tuple[str, ...]:
    """Sentences on what a run was not set up to have."""
    return () if test is not None else ("There is no test split (data.test_split), so there are no held-out images.",)


def first_line(error):
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _numbers(count):
    return tuple(map(str, range(count)))
