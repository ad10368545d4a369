"""Gates of a recurrent cell along what it reads: a text, or numbers of which some are marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import CYCLE, FAINT, MAGNITUDE, SIGNED, array, dress, symmetric
from everynet.plot.text import SMALL, WIDTH, label_tokens

Maps = Mapping[str, Float[Tensor, "units time"]]


def gates_over_text(
    gates: Maps, state: Maps, text: Sequence[str], units: Sequence[int], *, title: str = ""
) -> Figure:
    """For the same few units each gate, from shut (0) to open (1), and the state; text beneath."""
    shown = {**gates, **state}
    made = Figure(
        figsize=(WIDTH, 0.75 + 0.155 * len(shown) * (len(units) + 1.6)), layout="constrained"
    )
    every = list(map(dress, made.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]))
    _draw(made, every, gates, state)
    for axes in every:
        axes.set_yticks(range(len(units)), list(map(str, units)), fontsize=SMALL)
        axes.set_ylabel("unit", fontsize=SMALL)
        axes.tick_params(axis="x", length=0, labelbottom=False)
    every[-1].tick_params(axis="x", labelbottom=True)
    label_tokens(every[-1], text)
    if title:
        made.suptitle(title, fontsize="medium")
    return made


def gates_over_marks(
    numbers: Float[Tensor, " time"], marks: Float[Tensor, " time"], gates: Maps, state: Maps
) -> Figure:
    """The numbers of a sequence, those that are marked in colour, and every unit beneath."""
    made = Figure(figsize=(WIDTH, 1.2 + 1.05 * (len(gates) + len(state))), layout="constrained")
    count = len(gates) + len(state)
    top, *every = map(
        dress, made.subplots(count + 1, 1, sharex=True, height_ratios=(0.8, *[1.0] * count))
    )
    inks = [CYCLE[1] if mark else FAINT for mark in marks.tolist()]
    top.bar(range(len(numbers)), array(numbers), color=inks, width=0.9)
    top.set_ylabel("number", fontsize=SMALL)
    top.set_ylim(0, 1)
    top.tick_params(labelsize=SMALL)
    for place in marks.nonzero()[:, 0].tolist():
        top.annotate(
            "marked", (place, 1), (0, 1), textcoords="offset points", ha="center", fontsize=SMALL
        )
    _draw(made, every, gates, state)
    for axes in every:
        axes.set_ylabel("unit", fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
    every[-1].set_xlabel("time $t$", fontsize=SMALL)
    return made


def _draw(made: Figure, every: Sequence[Axes], gates: Maps, state: Maps) -> None:
    """A map for each name; gates share one scale, and states are blue below zero."""
    for axes, (name, values) in zip(every, {**gates, **state}.items(), strict=True):
        low, high = (0.0, 1.0) if name in gates else symmetric(values)
        image = axes.imshow(
            array(values), cmap=MAGNITUDE if name in gates else SIGNED, vmin=low, vmax=high,
            aspect="auto", interpolation="nearest",
        )  # fmt: skip
        axes.set_title(name, fontsize=SMALL + 1, loc="left", pad=2)
        bar = made.colorbar(image, ax=axes, pad=0.01, aspect=8)
        bar.ax.tick_params(labelsize=SMALL)
