"""Results as a table: aligned text for the terminal; its cells are the same on the report page."""

import numbers
from dataclasses import dataclass


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
