"""The cells of a sweep or an experiment as a table, for pandas, a spreadsheet or a paper."""

from __future__ import annotations

import csv
import html
import io
import math
from pathlib import Path
from types import NoneType
from typing import Any

from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import written

_LATEX = str.maketrans({c: rf"\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


class CellTable(list[dict[str, Any]]):
    """Rows by column: `DataFrame(table)` of pandas or polars takes it as it is."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, the same in every row."""
        return [*self[0]] if self else []

    def to_pandas(self) -> Any:  # noqa: ANN401 -- of a package that need not be there
        """A frame of pandas."""
        try:
            from pandas import DataFrame  # noqa: PLC0415 -- whoever asks for it
        except ImportError as error:
            raise UserError(
                "pandas must be installed to make a frame: pip install pandas"
            ) from error
        return DataFrame(list(self))

    def to_csv(self, path: str | Path | None = None) -> str:
        """The text of a csv file, which is written where a path is given; NaN is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value, "") for value in row.values()] for row in self)
        return _saved(text.getvalue(), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        r"""A tabular for \usepackage{booktabs}, which is written where a path is given."""
        numbers = [
            all(type(row[n]) in (int, float, NoneType) for row in self) for n in self.columns
        ]
        lines = [
            r"\begin{tabular}{" + "".join("lr"[number] for number in numbers) + "}",
            r"\toprule",
        ]
        lines += [_latex_row(self.columns), r"\midrule"]
        lines += [_latex_row([_cell(v, "--", 4) for v in row.values()]) for row in self]
        return _saved("\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]), path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = [[_cell(value, "", 4) for value in row.values()] for row in self]
        lines = ["".join(f"<th>{html.escape(name)}</th>" for name in self.columns)]
        lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(value: object, nothing: str, digits: int = 0) -> str:
    """A value as text: all of a number, or so many digits of it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return nothing
    return f"{value:.{digits}g}" if digits and isinstance(value, float) else written(value)


def _latex_row(cells: list[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"


def _saved(text: str, path: str | Path | None) -> str:
    if path is not None:
        files.write(Path(path), text.encode())
    return text
