"""Training sets whose classes differ in size, cut from any set that has classes.

    light   half of the last class is removed
    heavy   class c of C loses c / C of its examples: of ten classes the first keeps all, the last a tenth

The paper's two settings on CIFAR-10, whose last class is truck; "10% of one class, 20% of the second and so on" is read
as class c losing 10 c per cent. Shares are rounded so that the smaller part is removed. Which examples go is
random, a function of the seed and the class; those that stay keep their order and their ids.
"""

import numpy as np

STREAM = 1 << 33  # of random numbers: far from the small keys that first labels and views have
KINDS = {  # (examples of the class, its number c among the C) -> how many are removed
    "none": lambda n, c, num_classes: 0,
    "light": lambda n, c, num_classes: n // 2 if c == num_classes - 1 else 0,
    "heavy": lambda n, c, num_classes: n * c // num_classes,
}


def imbalanced(source, kind, seed=0):
    """The examples of `source` that remain under the imbalance `kind`, as a Source."""
    if kind not in KINDS:
        raise ValueError(f"Unknown imbalance {kind!r}. Available: {', '.join(KINDS)}.")
    if kind == "none":
        return source
    if source.classes is None:
        raise ValueError(f"{source.name} has no classes to make uneven. Use imbalance 'none', or a set with classes.")
    return source.subset(remaining_rows(source.classes, kind, seed))


def remaining_rows(classes, kind, seed):
    """Rows that remain of `classes` [N], ascending."""
    values = np.unique(classes)
    kept = []
    for c, value in enumerate(values):
        rows = np.flatnonzero(classes == value)
        words = np.random.Philox(key=[seed, STREAM + c]).random_raw(len(rows))  # raw: NumPy never changes them
        kept.append(rows[np.argsort(words, kind="stable")[KINDS[kind](len(rows), c, len(values)) :]])
    return np.sort(np.concatenate(kept))
