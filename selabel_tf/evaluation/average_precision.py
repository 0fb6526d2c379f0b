"""Average precision: how well do scores rank the images that show a class before those that do not?

    at a threshold    precision = right / taken, recall = right / positives; taken: images scored at or above it
    plain             sum_n (recall_n - recall_{n-1}) precision_n            scikit-learn's average_precision_score
    best(r)           max of precision over thresholds with recall >= r
    11-point          mean of best(0), best(0.1), ..., best(1)               PASCAL VOC 2007
    all-points        sum_n (recall_n - recall_{n-1}) best(recall_n)         PASCAL VOC 2010 and later

Images of equal scores are taken together, so the order of images never matters. The mean over classes is mean average
precision. An image that only shows a class in objects marked difficult is left out for that class, as VOC does: it is
neither a positive to be found nor a mistake.
"""

import numpy as np


def plain(scores, present) -> float:
    """`scores` [N], `present` bool [N] with at least one positive."""
    right, taken = _counts(scores, present)
    return float(np.sum(np.diff(right, prepend=0) * right / taken) / right[-1])


def eleven_point(scores, present) -> float:
    right, taken = _counts(scores, present)
    best = _best(right, taken)
    # recall >= t/10 in whole numbers: 3/10 and 0.3 differ in floating point
    first = [np.argmax(10 * right >= t * right[-1]) for t in range(11)]
    return float(np.mean(best[first]))


def all_points(scores, present) -> float:
    right, taken = _counts(scores, present)
    return float(np.sum(np.diff(right, prepend=0) * _best(right, taken)) / right[-1])


VARIANTS = {"ap": plain, "ap11": eleven_point, "ap_all": all_points}


def of_classes(scores, present, ignored, class_names) -> list[dict]:
    """One row for each class, {"class", "positives", "ignored", and each of VARIANTS}, and the mean in a first row.

    A class that no image shows has no average precision: None, and it is not in the mean.

    Args:
        scores: [N, C]; the greater, the more the image is thought to show the class.
        present, ignored: bool [N, C], as in data.multi_label.
    """
    scores, present, ignored = np.asarray(scores), np.asarray(present, bool), np.asarray(ignored, bool)
    expected = (len(scores), len(class_names))
    for name, array in (("scores", scores), ("present", present), ("ignored", ignored)):
        if array.shape != expected:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}: images and {expected[1]} classes.")
    if not present[~ignored].any():
        raise ValueError("No image shows any of the classes: there is nothing to find. Choose other test images.")
    rows = []
    for number, name in enumerate(class_names):
        counted = ~ignored[:, number]
        wanted = present[counted, number]
        row = {"class": name, "positives": int(wanted.sum()), "ignored": int((~counted).sum())}
        found = wanted.any()
        rows.append(row | {key: ap(scores[counted, number], wanted) if found else None for key, ap in VARIANTS.items()})
    mean = {"class": "mean"} | {key: sum(row[key] for row in rows) for key in ("positives", "ignored")}
    mean |= {key: float(np.mean([row[key] for row in rows if row[key] is not None])) for key in VARIANTS}
    return [mean, *rows]


def _counts(scores, present):
    """(right, taken), int64 [T] each, at the T distinct scores from the greatest to the least."""
    scores, present = np.asarray(scores), np.asarray(present, bool)
    if scores.ndim != 1 or scores.shape != present.shape:
        raise ValueError(f"scores {scores.shape} and present {present.shape}: expected one of each for every image.")
    if not np.isfinite(scores).all():
        raise ValueError("The scores hold NaN or infinity, which cannot be ranked. Has the network diverged?")
    if not present.any():
        raise ValueError("No image shows the class: recall, and so average precision, is not defined.")
    order = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    return np.cumsum(present[order])[last_of_equals], last_of_equals + 1


def _best(right, taken):
    """The greatest precision at this or any lower threshold, [T]."""
    return np.maximum.accumulate((right / taken)[::-1])[::-1]
