"""What a report page shows of one run, as values: collected by `training`, drawn by `report_page`.

Whatever a run does not have is None or empty, and a sentence in `lacking` says so.
"""

from dataclasses import dataclass

import numpy as np

from .cluster_summary import ClusterSummary
from .curves import Curve
from .report import Table


@dataclass(frozen=True)
class Images:
    """A set of images with the clusters they are in. N of them; P have a thumbnail, in random order."""

    name: str
    ids: tuple[str, ...]
    labels: np.ndarray  # [N, H]
    classes: np.ndarray | None  # [N]
    shown: np.ndarray  # [P] rows
    tiles: np.ndarray | None  # uint8 [P, s, s, c]
    confidence: np.ndarray | None  # [P, H]
    heads: tuple[ClusterSummary, ...]


@dataclass(frozen=True)
class Neighbourhood:
    """For each of Q training images (rows), the k nearest among `bank` images by features and by pixels, as rows."""

    queries: np.ndarray  # [Q]
    by_features: np.ndarray  # [Q, k]
    by_pixels: np.ndarray  # [Q, k]
    bank: int


@dataclass(frozen=True)
class Map:
    """Training images on a plane: rows [n], and for each method points [n, 2] in 0..1."""

    rows: np.ndarray
    points: dict[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """The collapse doctor's, in plain words. tone: "well", "ill" or "unknown"."""

    tone: str
    headline: str
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunContents:
    """One run. highlights: (name, value, remark); probes: (title, (layer, accuracy), ...)."""

    name: str
    highlights: tuple[tuple[str, str, str], ...]
    facts: dict
    verdict: Verdict
    lacking: tuple[str, ...]
    tables: tuple[Table, ...]
    num_clusters: tuple[int, ...]
    class_names: tuple[str, ...] | None
    training: Images
    held_out: Images | None
    curves: tuple[Curve, ...]
    filters: np.ndarray | None  # uint8 [height, width, c]
    probes: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    neighbours: Neighbourhood | None
    map: Map | None
    features: np.ndarray | None  # [P, D] of the training images that have a thumbnail
    command: str
    probe_command: str  # "" where there are no classes to probe for

    @property
    def image_sets(self) -> dict[str, Images]:
        return {key: images for key, images in (("training", self.training), ("heldout", self.held_out)) if images}
