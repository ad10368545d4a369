"""Pictures of music: piano rolls, and how well models tell its notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator
from torch import Tensor

from everynet.data.kinds.notes import BAR, pitch_name
from everynet.data.sounds.midi import held_notes
from everynet.plot.style import BASELINE, INK, OURS, TRUTH, WIDTH, colour, figure, grid


def piano_rolls(pieces: Mapping[str, Int[Tensor, "time voices"]], voices: Sequence[str]) -> Figure:
    """Pieces by name below each other: pitch over time, a colour for each voice; -1 is a rest."""
    made = figure(WIDTH, 2.2 * len(pieces) + 0.3, len(pieces), 1)
    grids = [piece.cpu().numpy().astype(np.int8) for piece in pieces.values()]
    sounding = np.concatenate([one[one >= 0] for one in grids])
    low, high = (int(sounding.min()), int(sounding.max())) if len(sounding) else (60, 72)
    for axes, title, piece in zip(made.axes, pieces, grids, strict=True):
        for voice, line in enumerate(piece.T):
            held = held_notes(line)
            axes.bar(
                [a / BAR for a, _, _ in held], 0.9, [(b - a) / BAR - 0.012 for a, b, _ in held],
                [pitch - 0.45 for *_, pitch in held], align="edge", color=colour(voice),
                label=voices[voice],
            )  # fmt: skip
        axes.set(xlim=(0, max(map(len, grids)) / BAR), ylim=(low - 1.5, high + 1.5))
        axes.set(ylabel="pitch", title=title)
        axes.xaxis.set_major_locator(MultipleLocator(1))
        axes.yaxis.set_major_locator(MultipleLocator(12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda pitch, _: pitch_name(int(pitch))))
        grid(axes)
    made.axes[-1].set_xlabel("bars of 16 16ths from the beginning")
    known = made.axes[0].get_legend_handles_labels()
    made.legend(*known, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return made


def nats_of_models(network: float, others: Mapping[str, float]) -> Figure:
    """Bars of nats a note: the network, count models, and what is possible, if that is known."""
    named = {"LSTM": network, **{_words(name): value for name, value in others.items()}}
    made = figure(5.5, 0.6 + 0.32 * len(named))
    axes = made.axes[0]
    inks = [OURS if n == "LSTM" else TRUTH if n == "the grammar" else BASELINE for n in named]
    axes.barh(range(len(named)), [*named.values()], color=inks, height=0.65)
    axes.set_yticks(range(len(named)), [*named])
    axes.invert_yaxis()
    for place, value in enumerate(named.values()):
        axes.text(value, place, f" {value:.3f}", va="center", color=INK, fontsize="small")
    axes.set(xlabel="nats a note of test pieces", xlim=(0, 1.15 * max(named.values())))
    return made


def _words(name: str) -> str:
    kind, _, order = name.partition("_")
    words = {"interleaved": "of all voices", "voices": "of one voice"}
    return f"{order.replace('gram', '-grams')} {words[kind]}" if kind in words else f"the {name}"
