"""One look for every picture: two colour maps, one cycle of colours, one way to make axes.

Signed values are blue below zero, white at zero and red above it, with limits from `symmetric` so
that white means zero; magnitudes run from dark to light. The colours of the cycle differ
for readers who do not see red and green as two.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray
from torch import Tensor

LoggedRows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of metrics.jsonl: {"step": 7, "train": {...}} or {"step": 8, "valid": {...}}."""
SIGNED: Colormap = colormaps["RdBu_r"]
"""For values with a sign: weights, errors, gradients, distances from a boundary."""
MAGNITUDE: Colormap = colormaps["viridis"]
"""For values without one: counts, probabilities, activations, energies."""
CYCLE: tuple[str, ...] = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"),
    *("#56b4e9", "#7f5539", "#6a4c93", "#8a9a00", "#5c5c5c"),
)
"""The colours of lines and classes, in this order."""
INK = "#222222"
FAINT = "#c8c8c8"

OURS, CONTRAST, BASELINE, TRUTH, WRONG = CYCLE[0], CYCLE[1], "#8c8c8c", INK, "#e8112d"
"""One legend of roles: the subject is blue, what it is contrasted with orange, a baseline grey, the
truth (a prediction of theory, a target) black and dashed, a mistake red."""

WIDTH = 6.5
"""Inches of a printed page, which no figure exceeds."""
LEAST = 7.0
"""Points of the smallest text."""


@contextmanager
def drawing() -> Iterator[None]:
    """Draw for a page of 6.5 inches, whatever a `matplotlibrc` of a folder or user says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["font.size"] = 8.5  # so that "small" is 7.1 points
        matplotlib.rcParams["axes.titlesize"] = "medium"
        matplotlib.rcParams["svg.hashsalt"] = "everynet"  # equal pictures are equal files
        matplotlib.rcParams["pdf.fonttype"] = 42  # letters stay letters
        yield


def escape_names(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a dataset with classes and features escaped: none is read as a formula."""
    names = {
        key: [escape_dollars(str(n)) for n in spec[key]]
        for key in ("classes", "features")
        if key in spec
    }
    return {**spec, **names}


def escape_dollars(name: str) -> str:
    """The name with dollar signs escaped, which would begin a formula of matplotlib's."""
    return name.replace("$", r"\$")


def figure(
    width: float,
    height: float,
    rows: int = 1,
    columns: int = 1,
    *,
    count: int = 0,
    projection: str | None = None,
) -> Figure:
    """A figure with rows x columns axes, or the first `count` of them, in `figure.axes` by rows.

    It is at most as wide as a page.
    """
    made = Figure(figsize=(min(width, WIDTH), height), layout="constrained")
    for index in range(count or rows * columns):
        dress(made.add_subplot(rows, columns, index + 1, projection=projection))
    return made


def dress(axes: Axes) -> Axes:
    """Style axes as all of ours are: no box, outward ticks, the cycle of colours; returns them."""
    axes.set_prop_cycle(color=CYCLE)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", color=INK, labelcolor=INK, labelsize="small")
    if axes.name != "3d":
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(INK)
    return axes


def grid(axes: Axes) -> None:
    """Draw faint lines at the ticks, behind the data; for curves, not for images."""
    axes.grid(visible=True, color=FAINT, linewidth=0.5, alpha=0.6)


def log_ticks(axes: Axes) -> None:
    """Set readable ticks on logarithmic axes whose limits are final.

    Over three decades powers of ten say enough; below that their doubles and fives are named too,
    and below half a decade a few round numbers.
    """
    for scale, axis, limits in (
        (axes.get_xscale(), axes.xaxis, axes.get_xlim()),
        (axes.get_yscale(), axes.yaxis, axes.get_ylim()),
    ):
        if scale != "log":
            continue
        low, high = min(limits), max(limits)
        axis.set_minor_formatter(NullFormatter())
        if low <= 0 or high / low > 1e3 or not 1e-3 <= low < high <= 1e5:
            continue
        wide = high / low > 3.5
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(4))
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
        )
        axis.set_minor_locator(NullLocator())


def bare(axes: Axes) -> None:
    """Remove ticks and frame, for an image whose pixels are no scale."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def colour(index: int) -> str:
    """The colour of line or class `index`; the cycle repeats."""
    return CYCLE[index % len(CYCLE)]


_PART = re.compile(r"\$[^$]*\$\S*|\S+")  # a formula is one word, spaces and all


def wrapped(text: str, inches: float, points: float = 8.5) -> str:
    """The text in lines that fit in so many inches; a formula is never broken."""
    most = inches * 72 / (0.51 * points)  # letters to a line; one is about half as wide as high
    lines = []
    for given in text.split("\n"):
        line = ""
        for part in _PART.findall(given):
            if line and letters(f"{line} {part}") > most:
                lines.append(line)
                line = part
            else:
                line = f"{line} {part}" if line else part
        lines.append(line)
    return "\n".join(lines)


def letters(text: str) -> int:
    """How many letters are seen of a text whose formulae are spelled out."""
    return len(re.sub(r"\\[a-zA-Z]+|[${}^_\\]", lambda found: "x"[: len(found[0]) // 3], text))


def symmetric(values: Tensor) -> tuple[float, float]:
    """Limits (-m, m) that put zero in the middle of SIGNED; (-1, 1) where all is zero."""
    largest = float(values.detach().abs().max()) if values.numel() else 0.0
    largest = largest if math.isfinite(largest) and largest > 0 else 1.0
    return -largest, largest


def array(values: Tensor) -> NDArray[np.float64]:
    """The values as a float64 array of numpy, detached and on the CPU."""
    return values.detach().cpu().double().numpy()


DPI = 150
"""Dots to the inch of every picture that is written."""


FORMS: dict[str, dict[str, str | None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""File formats, each with the metadata left out so that equal pictures are equal files."""


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file."""
    return render(figure, "png")


def render(figure: Figure, form: str) -> bytes:
    """The figure as the bytes of a file; text that is no formula is drawn letter by letter."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_parse_math() and not _is_formula(text.get_text()):
            text.set_parse_math(False)
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=DPI, metadata=FORMS[form])
    return content.getvalue()


def _is_formula(text: str) -> bool:
    """Whether every line can be read as one, as matplotlib will: line by line."""
    try:
        for line in text.split("\n"):
            if "$" in line:
                MathTextParser("path").parse(line)
    except ValueError:
        return False
    return True
