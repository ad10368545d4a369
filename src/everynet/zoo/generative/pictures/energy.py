"""Pictures of networks with an energy: chains of samples, their energies, and their film."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.images import mosaic
from everynet.plot.panels import Panel, panels
from everynet.plot.style import CYCLE, FAINT, INK, LEAST, WIDTH, WRONG, array, bare, figure

Images = Float[Tensor, "rows columns height width"]


def image_table(
    images: Images, *, columns: Sequence[str], rows: Sequence[str] = (), title: str = ""
) -> Figure:
    """Grey images from 0 to 1 in rows and columns with their names, each in a thin frame."""
    down, across, height, width = images.shape
    tile = min(0.75, (WIDTH - 0.9) / across)  # inches
    times = max(1, 24 // width)
    tiles = images.reshape(-1, 1, height, width)
    tiles = tiles.repeat_interleave(times, -1).repeat_interleave(times, -2)
    height, width, gap = height * times, width * times, 2
    made = figure(across * tile + (0.9 if rows else 0.2), down * tile * height / width + 0.75)
    axes = made.axes[0]
    whole = mosaic(tiles, across, gap=(gap, gap))[..., 0]
    axes.imshow(array(whole), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_facecolor(FAINT)  # gaps are transparent, and white images have an edge
    axes.set(xlim=(-0.5, whole.shape[1] + gap - 0.5), ylim=(whole.shape[0] + gap - 0.5, -0.5))
    axes.set_xticks([(at + 0.5) * (width + gap) for at in range(across)], columns)
    if rows:
        axes.set_yticks([(at + 0.5) * (height + gap) for at in range(down)], rows)
    else:
        axes.set_yticks([])
    axes.tick_params(length=0, labelsize=LEAST)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(title, color=INK, fontsize="medium")
    return made


def samples_by_validity(
    images: Float[Tensor, "rows 1 height width"],
    valid: Sequence[bool],
    *,
    columns: int = 16,
    title: str = "",
) -> Figure:
    """Binary images in a mosaic, those that are not valid in a red frame."""
    count, _, height, width = images.shape
    rows, tile = -(-count // columns), (WIDTH - 0.2) / columns
    made = figure(WIDTH, rows * tile + 0.5)
    axes = made.axes[0]
    axes.imshow(
        array(mosaic(images, columns)[..., 0]), cmap="gray", vmin=-0.25, vmax=1,
        interpolation="nearest",
    )  # fmt: skip
    axes.set(xlim=(-0.5, columns * (width + 1) + 0.5), ylim=(rows * (height + 1) + 0.5, -0.5))
    for at, good in enumerate(valid):
        row, column = divmod(at, columns)
        corner = (column * (width + 1) + 0.5, row * (height + 1) + 0.5)
        ink, line = (FAINT, 0.6) if good else (WRONG, 2.2)
        axes.add_patch(Rectangle(corner, width, height, fill=False, linewidth=line, edgecolor=ink))
    axes.set_title(title, color=INK, fontsize="medium")
    bare(axes)
    return made


def energy_histograms(energies: Mapping[str, Float[Tensor, " _"]], *, xlabel: str) -> Figure:
    """The share of images at each energy, a curve for each sort of images."""
    numbers = {name: values.double().cpu() for name, values in energies.items()}
    low = min(float(values.min()) for values in numbers.values())
    high = max(float(values.max()) for values in numbers.values())
    bins, width = 40, max(high - low, 1e-6) / 40
    centre = low + width * (torch.arange(bins, dtype=torch.float64) + 0.5)
    curves = {
        name: (centre, torch.histc(values, bins, low, high + 1e-9) / len(values))
        for name, values in numbers.items()
    }
    return panels(Panel(curves, xlabel=xlabel, ylabel=f"share of images within {width:.2g}"))


def pattern_probabilities(
    q: Float[Tensor, " patterns"], p: Float[Tensor, " patterns"], *, title: str
) -> Figure:
    """The probability of each pattern as a bar, beside that of the data as a line of dashes."""
    order = q.argsort(descending=True)
    made = figure(WIDTH, 2.6)
    axes, place = made.axes[0], np.arange(len(q))
    axes.bar(place, array(q[order]), color=CYCLE[0], width=0.75, label="network, exact")
    axes.step(place, array(p[order]), "--", where="mid", color=INK, linewidth=1.2, label="data")
    axes.set(xlabel="pattern, the likeliest first", ylabel="probability")
    axes.set_title(title, color=INK, fontsize="medium")
    axes.legend(frameon=False, fontsize="small")
    return made


def chain_frames(
    states: Iterator[Float[Tensor, "rows 1 height width"]], columns: int
) -> Iterator[UInt8[np.ndarray, "height width"]]:
    """A frame for each state of the chains: all images side by side, in grey."""
    for state in states:
        times = max(1, 32 // state.shape[-1])
        large = state.repeat_interleave(times, -1).repeat_interleave(times, -2)
        tiles = mosaic(large, columns, gap=(2, 2)).nan_to_num(0.35)[..., 0]
        yield (tiles * 255).round().to(torch.uint8).numpy()
