"""The model card: what a network is, what it was made from, how good it is and what it is not for, in Markdown.

Every value from outside (names of data sets, of runs, of result files) is escaped: it can neither format the page,
nor break a table, nor bring in links or HTML.
"""

import re
from dataclasses import dataclass, field

import jinja2

from selabel_tf.atomic_file import write_atomically

LOADING = """\
import keras

backbone = keras.models.load_model("backbone.keras")
features = backbone.predict(images)  # images: float32 [n, {0}, {1}, {2}], prepared as above"""

LABELLING = """\
python -m tools.labels --workdir=RUN                    # labels of the training images
python -m tools.labels --workdir=RUN --assign=FOLDER    # clusters of new images"""


class Markdown(str):
    """Text that is Markdown already."""


@dataclass(frozen=True)
class Card:
    """What the card says. The dictionaries are shown as tables, name by name, in their order."""

    name: str  # of the experiment
    method: str  # how it was trained, in a sentence or two
    summary: dict
    data: dict
    recipe: dict
    label_passes: dict
    preprocessing: dict
    checksums: dict
    classes: str  # what the true classes were used for
    limits: tuple[str, ...]  # of its labels, beside those of any network
    input_shape: tuple[int, int, int]  # (h, w, c)
    evaluation: tuple[dict, ...] = field(default=())  # title, columns, rows of text, note: one table each


def write(path, card: Card):
    """Write the card as Markdown; an older file stays until this one is whole."""
    write_atomically(path, render(card))


def render(card: Card) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("selabel_tf.export"),
        autoescape=False,  # of HTML; `finalize` does the same for Markdown
        finalize=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(table=_facts_table, grid=_grid, code=_code)
    return environment.get_template("model_card.md").render(
        card=card,
        loading=LOADING.format(*card.input_shape),
        labelling=LABELLING,
    )


def escape(value) -> str:
    """A value as plain text on one line of Markdown, whatever it holds."""
    if isinstance(value, Markdown):
        return value
    text = " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())  # no line breaks, no controls
    text = re.sub(r"([\\`*_\[\]{}|~#$^!])", r"\\\1", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"^(\d*)([-+=.)])(?=\s|[-+=]*$)", r"\1\\\2", text)  # a list, an underlined heading
    # Bare addresses become links of themselves in many renderers.
    text = re.sub(r"(?i)(www)\.", r"\1&#46;", text.replace("://", "&#58;//").replace("@", "&#64;"))
    return text


def _facts_table(facts):
    return _lines(("", ""), (":--", ":--"), facts.items())


def _grid(table):
    columns = table["columns"]
    return _lines(columns, [":--"] + ["--:"] * (len(columns) - 1), table["rows"])  # the first cell names the row


def _lines(columns, alignment, rows):
    lines = [map(escape, columns), alignment, *(map(escape, row) for row in rows)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _code(text, language=""):
    """A fenced block of text that has no fence in it."""
    return Markdown(f"```{language}\n{text}\n```")
