"""The practical question of features learnt without labels: how many labels do they save?

For every seed and fraction of the training images, drawn evenly from all classes (evaluation.label_curve):

    linear probe     logistic regression on the run's frozen features           no training of the network
    fine-tuning      the run's network and a new classifier
    from scratch     the same network, recipe and budget from random weights    what the labels alone give

All are tested on the same images. The seed of a point draws its labelled images, and is the seed of its training.
"""

import json
from pathlib import Path

from ..atomic_file import write_atomically
from ..evaluation import accuracy, few_label_probe, label_curve
from ..features import Extractor
from . import finetuning

PROBE, FINETUNING, SCRATCH = "linear probe", "fine-tuning", "from scratch"
METHODS = {"probe": PROBE, "finetune": FINETUNING, "scratch": SCRATCH}


class Points:
    """The points that are measured, kept in a file: after a kill only the others are measured.

    settings: all that a point depends on besides method, fraction and seed; points of other settings are dropped.
    """

    def __init__(self, path, settings, say=lambda text: None):
        self.path, self.settings = Path(path), json.loads(json.dumps(settings))
        self.found = []
        try:
            kept = json.loads(self.path.read_text("utf-8"))
            found = kept["points"] if kept["settings"] == self.settings else None
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):
            found = None
        if found is None:
            say(f"{self.path} is of other settings, or cannot be read: starting anew.")
        elif found:
            say(f"Going on: {len(found)} measured before.")
        self.found = found or []

    def get(self, method, fraction, seed):
        """The point of these, or None."""
        wanted = (method, fraction, seed)
        return next((p for p in self.found if (p["method"], p["fraction"], p["seed"]) == wanted), None)

    def add(self, point):
        self.found.append(point)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps({"settings": self.settings, "points": self.found}))

    def remove(self):
        self.path.unlink(missing_ok=True)


class Measurement:
    """Measures points of one run on LabelledImages of a SingleLabel task.

    Args:
        recipes: {FINETUNING: Recipe, SCRATCH: Recipe}.
        probe_l2: of the linear probe; None lets the labelled images choose it.
        options: of finetuning.finetune, the same for every point: strategy, save_every.
    """

    def __init__(self, run, images, recipes, *, probe_l2=None, crops=1, **options):
        self.run, self.images, self.recipes = run, images, recipes
        self.probe_l2, self.crops, self.options = probe_l2, crops, options
        self._features = None

    def check(self, fractions, seeds):
        """Refuses what could not be measured, before anything is."""
        for fraction in fractions:
            for seed in seeds:
                rows = label_curve.labelled_rows(self.images.task.targets, fraction, seed=seed)
            for recipe in self.recipes.values():
                recipe.schedule_for(len(rows))

    def point(self, method, fraction, seed, *, unfinished=None, callbacks=()) -> dict:
        """{"method", "fraction", "labelled", "seed", "top1", "top5"}, and "l2" of the probe or "epochs" of training.

        unfinished, callbacks: of finetuning.finetune.
        """
        rows = label_curve.labelled_rows(self.images.task.targets, fraction, seed=seed)
        scores, facts = (
            self._probe(rows, seed) if method == PROBE else self._train(method, rows, seed, unfinished, callbacks)
        )
        expected, many = self.images.task.expected, self.images.task.num_classes > 5
        return {
            "method": method,
            "fraction": fraction,
            "labelled": len(rows),
            "seed": seed,
            "top1": accuracy.top_k(scores, expected, 1),
            "top5": accuracy.top_k(scores, expected, 5) if many else None,
            **facts,
        }

    def _probe(self, rows, seed):
        if self._features is None:
            backbone = self.run.model.backbone
            extract = Extractor(lambda images: backbone(images, training=False))
            sources = (self.images.train, self.images.test)
            self._features = [extract(s.plain_batches(256), s.num_examples) for s in sources]
        train, test = self._features
        task = self.images.task
        probe = few_label_probe.fit(train[rows], task.targets[rows], task.num_classes, l2=self.probe_l2, seed=seed)
        return probe.scores(test), {"l2": probe.l2}

    def _train(self, method, rows, seed, unfinished, callbacks):
        images, recipe = self.images.subset(rows), self.recipes[method]
        options = self.options | {"unfinished": unfinished, "callbacks": callbacks}
        model = finetuning.finetune(self.run, images.train, images.task, recipe, seed=seed, **options)
        scores = finetuning.scores(model, images.test, crops=self.crops)
        return scores, {"epochs": recipe.schedule_for(len(rows)).epochs}
