"""Trials (training.trials) as tables in Markdown, and their place in a text: between two comments that stay.

<!-- trials: rows -->            one line per row that trials count for, seeds averaged
<!-- trials: rows of heads -->   the same of the rows whose titles begin with "heads: ", a table of their own
<!-- trials: all -->             one line per trial, good and bad
<!-- end of trials -->
"""

import re

from .comparison import markdown
from .report import Table

END = "<!-- end of trials -->"
MEASURES = ("knn", "linear", "nmi")


def by_row(trials, part="") -> str:
    """The trials that count for a row: means over its seeds, and each seed's own where there are several.

    part: of the rows "part: title" those of this part; by default those of none.
    """
    rows = {}
    for trial in trials:
        for row in trial["rows"]:
            own, _, title = row.rpartition(": ")
            if own == part:
                rows.setdefault(title, []).append(trial)
    lines = []
    for title, found in rows.items():
        lengths = sorted({(trial["images"], trial["epochs"]) for trial in found})
        if len(lengths) > 1:
            raise ValueError(
                f"Trials of the row {title!r} differ in images or epochs: {lengths}. Give them rows of their own."
            )
        seeds = ", ".join(str(trial["seed"]) for trial in found)
        lines.append((title, *lengths[0], seeds, *(_mean([trial[name] for trial in found], name) for name in MEASURES)))
    return _markdown(("", "images", "epochs", "seeds", "kNN", "linear", "NMI"), lines)


def all_trials(trials) -> str:
    """Every trial with what it changes, and its learning curve."""
    lines = []
    for trial in trials:
        changes = [text for text in trial["overrides"] if not text.startswith(("seed=", "epochs=", "evaluation."))]
        what = f"{trial['config'].removeprefix('configs/').removesuffix('.py')}" + "".join(f", {c}" for c in changes)
        curve = " ".join(f"{epoch}: {_percent(accuracy)}" for epoch, accuracy in trial["curve"])
        figures = [_mean([trial[name]], name) for name in MEASURES]
        stopped = trial.get("stopped")
        epochs = trial["epochs"] if stopped is None else f"{stopped} of {trial['epochs']}"
        lines.append((what, trial["seed"], trial["images"], epochs, curve or None, *figures))
    columns = ("config and what was changed", "seed", "images", "epochs", "kNN after epochs", "kNN", "linear", "NMI")
    return _markdown(columns, lines)


def renewed(text: str, trials, where: str) -> str:
    """`text` with the tables between its comments made anew; where: its name, for errors."""
    pattern = re.compile(rf"(<!-- trials: (?:(all)|rows(?: of ([^\n]+?))?) -->\n).*?({re.escape(END)})", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(
            f"{where} has no place for the trials. Put the lines <!-- trials: rows --> (or: rows of PART, or: all) and "
            f"{END} where the table is to stand."
        )

    def table(place):
        opening, every, part, end = place.groups()
        return f"{opening}\n{all_trials(trials) if every else by_row(trials, part or '')}\n\n{end}"

    return pattern.sub(table, text)


def _markdown(columns, lines):
    return markdown(Table("", columns, tuple(lines))) if lines else "No trial yet."


def _mean(values, name):
    """Of seeds, in percent or as NMI; None if any was not measured."""
    if None in values:
        return None
    shown = (lambda value: f"{value:.3f}") if name == "nmi" else _percent
    mean = shown(sum(values) / len(values))
    return mean if len(values) == 1 else f"{mean} ({', '.join(map(shown, values))})"


def _percent(value):
    return f"{100 * value:.1f}"
