"""Images that show several classes at once: which of them each image of a prepared TFDS set shows.

    present[i, c]    image i shows class c
    ignored[i, c]    image i shows c only in objects too difficult to ask for: neither right nor wrong, so not counted

This is how PASCAL VOC labels images for classification. TFDS `voc/2007` holds two lists for each image: `labels`, the
classes of all objects, and `labels_no_difficult`, those of objects that are not marked difficult. A set that has the
first list only has nothing to ignore.
"""

from dataclasses import dataclass

import numpy as np

LABELS, EASY_LABELS = "labels", "labels_no_difficult"


@dataclass(frozen=True)
class MultiLabels:
    """What N images show of C classes. `ignored` is never true where `present` is."""

    ids: tuple[str, ...]
    present: np.ndarray  # bool [N, C]
    ignored: np.ndarray  # bool [N, C]
    class_names: tuple[str, ...]

    def __post_init__(self):
        expected = (len(self.ids), len(self.class_names))
        for name in ("present", "ignored"):
            array = getattr(self, name)
            if array.dtype != bool or array.shape != expected:
                raise ValueError(
                    f"{name} must be bool {list(expected)}, an image a row and a class a column, "
                    f"got {array.dtype} {list(array.shape)}."
                )
        if (self.present & self.ignored).any():
            image, class_ = np.argwhere(self.present & self.ignored)[0]
            raise ValueError(
                f"Image {self.ids[image]!r} both shows {self.class_names[class_]!r} and ignores it. "
                "A class that an easy object shows is present."
            )

    def of(self, ids) -> "MultiLabels":
        """The same for the images `ids`, in their order."""
        row = {one: number for number, one in enumerate(self.ids)}
        missing = [one for one in ids if one not in row]
        if missing:
            raise ValueError(f"There are no labels for {len(missing)} images, the first of them {missing[0]!r}.")
        rows = [row[one] for one in ids]
        return MultiLabels(tuple(ids), self.present[rows], self.ignored[rows], self.class_names)


def from_tfds(name, split="train", data_dir=None) -> MultiLabels | None:
    """The labels of a prepared set, or None if it has no feature `labels` that is a list of classes.

    Every record is read, images included: seconds for VOC. Secret labels are refused.
    """
    from selabel_tf.data import tfds_records  # importing TFDS takes time that other sets need not pay

    names = tfds_records.class_lists(name, data_dir)
    if LABELS not in names:
        return None
    reader, ids, _ = tfds_records.open_prepared(name, split, data_dir)
    counted = EASY_LABELS if EASY_LABELS in names else LABELS
    present = np.zeros((reader.num_examples, len(names[LABELS])), bool)
    shown = np.zeros_like(present)
    for row in range(reader.num_examples):
        present[row, reader.numbers(row, counted)] = True
        shown[row, reader.numbers(row, LABELS)] = True
    if not shown.any():
        raise ValueError(
            f"No image of {name}/{split} has a label: the set keeps them secret. Choose a split with labels."
        )
    return MultiLabels(tuple(ids), present, shown & ~present, tuple(names[LABELS]))
