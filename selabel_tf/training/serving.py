"""What an export has to know of a run: how its images are prepared, and what its clusters hold."""

from ..data import augment
from ..export.model_facts import name_clusters
from ..export.preprocessing import Preprocessing


def preprocessing(run) -> Preprocessing:
    """How evaluation prepares the images of a TrainedRun, as a value."""
    settings = run.data_config().augment
    shape = run.training_set.image_shape
    made = augment.make(settings.policy, shape, size=settings.size or None, mean=settings.mean, std=settings.std)
    return Preprocessing(made.image_shape, made.policy.plain, made.mean, made.std)


def facts(run, train=None) -> dict:
    """Where a network comes from, and its clusters. train: the source it was trained on, for the names of classes."""
    own = train is not None and train.fingerprint == run.training_set.fingerprint
    return {
        "run": run.config.name,
        "backbone": run.config.model.backbone,
        "epoch": run.checkpoint.facts["epoch"],
        "config_hash": run.checkpoint.facts["config_hash"],
        "training_set": run.training_set.name,
        "clusters": name_clusters(
            run.model.labels,
            run.model.num_clusters,
            train.classes if own else None,
            train.class_names if own else None,
        ),
    }
