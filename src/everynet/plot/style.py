"""One look for every picture: two colour maps, one cycle of colours, one way to make a figure.

Signed values are blue below zero, white at zero and red above it, with limits from `symmetric` so
that white means zero; magnitudes run from dark to light. The colours of the cycle can be told
apart by readers who do not see red and green as two.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from matplotlib.text import Text
from numpy.typing import NDArray
from torch import Tensor

SIGNED: Colormap = colormaps["RdBu_r"]
"""For values with a sign: weights, errors, gradients, distances from a boundary."""
MAGNITUDE: Colormap = colormaps["viridis"]
"""For values without one: counts, probabilities, activations, energies."""
CYCLE: tuple[str, ...] = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7f5539",
    "#6a4c93",
    "#8a9a00",
    "#5c5c5c",
)
"""The colours of lines and classes, in this order."""
INK = "#222222"
FAINT = "#c8c8c8"


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with matplotlib's own settings, whatever a `matplotlibrc` of a folder or user says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def drawn(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A description of data for pictures: no name of a class or column is read as a formula."""
    names = {
        key: [plain(str(n)) for n in spec[key]] for key in ("classes", "features") if key in spec
    }
    return {**spec, **names}


def plain(name: str) -> str:
    """A name from data as matplotlib draws it letter by letter, a dollar sign and all."""
    return name.replace("$", r"\$")


def figure(
    width: float, height: float, rows: int = 1, columns: int = 1, *, projection: str | None = None
) -> Figure:
    """A figure of `width` by `height` inches with rows x columns axes, in `figure.axes` by rows."""
    made = Figure(figsize=(width, height), layout="constrained")
    for index in range(rows * columns):
        dress(made.add_subplot(rows, columns, index + 1, projection=projection))
    return made


def dress(axes: Axes) -> Axes:
    """The house look on axes made elsewhere: no box, outward ticks, the cycle of colours."""
    axes.set_prop_cycle(color=CYCLE)
    axes.set_axisbelow(True)
    axes.tick_params(color=INK, labelcolor=INK, labelsize="small")
    if axes.name != "3d":
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(INK)
    return axes


def grid(axes: Axes) -> None:
    """Faint lines at the ticks, behind the data; for curves, not for images."""
    axes.grid(visible=True, color=FAINT, linewidth=0.5, alpha=0.6)


def bare(axes: Axes) -> None:
    """No ticks and no frame: the axes of a picture whose pixels are no scale."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def colour(index: int) -> str:
    """The colour of line or class `index`, round and round."""
    return CYCLE[index % len(CYCLE)]


def symmetric(values: Tensor) -> tuple[float, float]:
    """Limits (-m, m) that put zero in the middle of SIGNED; (-1, 1) where all is zero."""
    largest = float(values.detach().abs().max()) if values.numel() else 0.0
    largest = largest if math.isfinite(largest) and largest > 0 else 1.0
    return -largest, largest


def array(values: Tensor) -> NDArray[np.float64]:
    """The values as matplotlib wants them: off the graph, off the device, in float64."""
    return values.detach().cpu().double().numpy()


DPI = 150
"""Dots to the inch of every picture that is written."""


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file; text that is no formula is drawn letter by letter."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_parse_math() and not _is_formula(text.get_text()):
            text.set_parse_math(False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DPI)
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
