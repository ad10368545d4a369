"""Sounds beside generated ones, what a stack of dilated convolutions reads, gates, and mu-law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.nn import mu_law
from everynet.plot import Panel, panels
from everynet.plot.style import (
    FAINT,
    INK,
    MAGNITUDE,
    OURS,
    SIGNED,
    WIDTH,
    array,
    dress,
    grid,
    log_ticks,
    symmetric,
)

SPAN = 0.04  # s of a waveform that are drawn
FLOOR = -70.0  # dB below the loudest part of a spectrogram that is drawn
Gates = Mapping[str, tuple[Float[Tensor, "units time"], Float[Tensor, "units time"]]]
"""tanh and sigmoid of some layers, by name."""


def spectrogram(
    x: Float[Tensor, " time"], window: int = 256, hop: int = 32
) -> Float[Tensor, "frequencies frames"]:
    """The strength of each frequency in decibels below the strongest."""
    whole = torch.stft(
        x.double(), window, hop, window=torch.hann_window(window, dtype=torch.double),
        pad_mode="constant", return_complex=True,
    ).abs()  # fmt: skip
    return 20 * (whole / whole.max().clamp(min=1e-9)).clamp(min=1e-9).log10()


def draw_sounds(clips: Mapping[str, Float[Tensor, " time"]], rate: int) -> Figure:
    """For each sound a stretch of its waveform, where it is loudest, and its spectrogram."""
    figure = Figure(figsize=(WIDTH, 0.55 + 1.45 * len(clips)), layout="constrained")
    cells = figure.subplots(len(clips), 2, squeeze=False, width_ratios=(1, 1.15))
    longest = max(len(x) for x in clips.values()) / rate
    image = None
    for row, (name, x) in zip(cells, clips.items(), strict=True):
        span = min(len(x), round(SPAN * rate))
        power = x.double().square().cumsum(0)
        middle = int((power < power[-1] / 2).sum())
        first = max(0, min(len(x) - span, middle - span // 2))
        wave, heights = dress(row[0]), dress(row[1])
        t = 1000 * (torch.arange(span) + first) / rate
        wave.plot(array(t), array(x[first : first + span]), color=OURS, lw=1.0)
        wave.set(ylabel="sound", title=name)
        image = heights.imshow(
            array(spectrogram(x)), origin="lower", aspect="auto", cmap=MAGNITUDE, vmin=FLOOR,
            vmax=0, extent=(0, 1000 * len(x) / rate, 0, rate / 2000),
        )  # fmt: skip
        heights.set(ylabel="frequency (kHz)", xlim=(0, 1000 * longest), title=name)
        grid(wave)
    for axes in cells[-1]:
        axes.set_xlabel("time (ms)")
    if image is not None:
        figure.colorbar(image, ax=cells[:, 1].tolist(), label="dB", shrink=0.8)
    return figure


def draw_field(dilations: Sequence[int], reach: Float[Tensor, " back"], field: int) -> Figure:
    """The tree of what one output reads, and the size of its gradient by distance."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    tree, curve = figure.subplots(2, 1, height_ratios=(1.25, 1))
    _tree(dress(tree), dilations)
    dress(curve)
    k = torch.arange(1, len(reach) + 1).double()
    edges = np.unique(np.geomspace(1, len(reach) + 1, 40).astype(int))
    pairs = list(pairwise(edges.tolist()))
    where = [math.sqrt(a * max(a, b - 1)) for a, b in pairs]
    mean = [float(reach[a - 1 : b - 1].mean()) for a, b in pairs]
    shown = [(x, y) for x, y in zip(where, mean, strict=True) if y > 0]
    curve.plot(*zip(*shown, strict=True), "o-", ms=3, color=OURS, lw=1.4)
    curve.axvline(min(field, float(k[-1])), color=FAINT, lw=1.6, zorder=0)
    curve.annotate(
        "receptive field", (field, 1), xycoords=("data", "axes fraction"), ha="right", va="top",
        xytext=(-4, -2), textcoords="offset points", color=INK, fontsize="small",
    )  # fmt: skip
    curve.set(xscale="log", yscale="log", xlabel="k, samples back", ylabel="size of the gradient")
    grid(curve)
    log_ticks(curve)
    return figure


def _tree(axes: Axes, dilations: Sequence[int]) -> None:
    """Values of each layer as points over time, and what the newest output reads of them."""
    span = 1 + sum(dilations)
    names = ["samples, after (3)", *(f"dilation {d}" for d in dilations)]
    active = {0}
    for level in range(len(dilations), -1, -1):
        for t in range(span):
            on = t in active
            axes.plot(-t, level, "o", ms=5 if on else 3.5, color=OURS if on else FAINT, zorder=3)
        if not level:
            break
        below = set()
        for t in active:
            for back in (0, dilations[level - 1]):
                axes.plot([-t, -t - back], [level, level - 1], color=OURS, lw=0.9, zorder=2)
                below.add(t + back)
        active = below
    for level, name in enumerate(names):
        axes.annotate(
            name, (1.0, level), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize="small", color=INK, xycoords=("axes fraction", "data"),
        )  # fmt: skip
    axes.set(
        xlabel="samples from the newest one", yticks=[], ylim=(-0.5, len(dilations) + 0.5),
        title=f"{len(dilations)} layers see {span} samples after (3)",
    )  # fmt: skip
    axes.spines["left"].set_visible(False)


def draw_gates(x: Float[Tensor, " time"], gates: Gates, rate: int) -> Figure:
    """A wave, and below it tanh and sigmoid of the units of some layers."""
    figure = Figure(figsize=(WIDTH, 1.2 + 1.75 * len(gates)), layout="constrained")
    heights = (0.6, *[1.0] * len(gates))
    cells = figure.subplots(
        1 + len(gates), 2, squeeze=False, sharex=True, height_ratios=heights
    )  # fmt: skip
    span = min(len(x), round(2 * SPAN * rate))
    first = max(0, (len(x) - span) // 2)
    part, t = slice(first, first + span), 1000 * (torch.arange(span) + first) / rate
    extent = (float(t[0]), float(t[-1]), 0.0, 1.0)
    for axes in cells[0]:
        dress(axes).plot(array(t), array(x[part]), color=INK, lw=0.9)
        axes.set_ylabel("sound")
    for row, (name, (a, c)) in zip(cells[1:], gates.items(), strict=True):
        order = c[:, part].mean(1).argsort()
        for axes, values, what, limits, colours in (
            (row[0], a, "tanh", symmetric(torch.ones(1)), SIGNED),
            (row[1], c, "sigmoid", (0.0, 1.0), MAGNITUDE),
        ):
            image = dress(axes).imshow(
                array(values[order][:, part]), aspect="auto", cmap=colours, vmin=limits[0],
                vmax=limits[1], extent=extent, interpolation="nearest",
            )  # fmt: skip
            axes.set(title=f"{what}, {name}", ylabel="unit", yticks=[])
            figure.colorbar(image, ax=axes, shrink=0.9)
    for axes in cells[-1]:
        axes.set_xlabel("time (ms)")
    return figure


def draw_mu_law(sound: Float[Tensor, " time"]) -> tuple[Figure, dict[str, str]]:
    """The curve of compression, the error of each level, and the noise by loudness."""
    x = torch.linspace(-1, 1, 801).double()
    edges = mu_law.level_edges(dtype=torch.double)[1:-1]
    levels = torch.arange(1, mu_law.LEVELS - 1)
    width = (edges.diff() / 2).abs()
    uniform = torch.full_like(width, 1 / (mu_law.LEVELS - 1))
    wave = sound.double() / sound.double().abs().max().clamp(min=1e-9)
    decibels = torch.arange(-60, 1, 3).double()
    ours, equal = [], []
    for loudness in decibels:
        y = wave * 10 ** (loudness / 20)
        heard = mu_law.decode(mu_law.encode(y), dtype=torch.double)
        ours.append(float(mu_law.signal_to_noise(y, heard)))
        equal.append(float(mu_law.signal_to_noise(y, mu_law.quantize_uniformly(y))))
    at = int((decibels == -30).nonzero())
    figure = panels(
        Panel(
            {"mu-law": (x, mu_law.compress(x)), "no compression": (x, x)}, "sound x", "level f(x)",
        ),
        Panel({"mu-law": (levels, width), "uniform": (levels, uniform)}, "level n",
              "half its width", log="y"),
        Panel(
            {"mu-law": (decibels, torch.tensor(ours)), "uniform": (decibels, torch.tensor(equal))},
            "peak (dB of full scale)", "signal to noise (dB)",
        ),
    )  # fmt: skip
    return figure, {"loudness": "30", "ours": f"{ours[at]:.0f}", "uniform": f"{equal[at]:.0f}"}
