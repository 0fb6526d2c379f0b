"""Results as a table: aligned text for the terminal, and one HTML page that needs nothing but itself.

The page carries its style and its pictures (as data URIs) and asks the network for nothing: it can be
mailed or archived.
"""

import base64
import numbers
from dataclasses import dataclass

import jinja2

from selabel_tf.atomic_file import write_atomically

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Table:
    """rows: one sequence of cells for each row, as long as `columns`; the first cell names the row."""

    title: str
    columns: tuple
    rows: tuple
    note: str = ""

    def __post_init__(self):
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Row {number} of table {self.title!r} has {len(row)} cells, expected {len(self.columns)}"
                    f": {', '.join(map(str, self.columns))}."
                )

    def cells(self) -> list[list[str]]:
        """The rows as text, the same for the terminal and the page."""
        return [[format_cell(cell) for cell in row] for row in self.rows]


def format_cell(value) -> str:
    """Fractions to three decimals, nothing as a dash, all else as it is."""
    if value is None:
        return "-"
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return f"{value:.3f}"
    return str(value)


def format_table(table: Table) -> str:
    """`table` as aligned plain text: title, rule, header, rule, rows, rule, note."""
    header, rows = [str(column) for column in table.columns], table.cells()
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))

    def line(cells):
        aligned = [
            cells[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)),
        ]
        return "  ".join(aligned).rstrip()

    lines = [table.title, rule, line(header), rule, *map(line, rows), rule]
    return "\n".join(lines + [table.note] * bool(table.note))


def write_report(path, *, title, tables, figures, facts, command=""):
    """Write the page.

    tables: Tables. figures: (caption, PNG bytes, text for those who cannot see it).
    facts: what the run was, name -> value. command: what to type to get these results again.
    """
    pictures = []
    for caption, data, alt in figures:
        if not data.startswith(PNG_SIGNATURE):
            raise ValueError(f"The figure {caption!r} is not a PNG file: it begins with {data[:8]!r}.")
        pictures.append({"caption": caption, "alt": alt, "data": base64.b64encode(data).decode("ascii")})
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("selabel_tf.evaluation"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("report.html").render(
        title=title,
        tables=tables,
        figures=pictures,
        facts={name: format_cell(value) for name, value in facts.items()},
        command=command,
    )
    write_atomically(path, page)
