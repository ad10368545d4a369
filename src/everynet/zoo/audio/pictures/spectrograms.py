"""Sounds as pictures: waves, log-mel energies, and what of them decided."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import MAGNITUDE, OURS, SIGNED, WIDTH, array, dress, symmetric

SMALL = 8  # points
RANGE = 14.0
"""So far below the loudest energy the darkest colour is."""


def spectrogram(axes: Axes, energies: Float[Tensor, "frames bands"], seconds: float) -> None:
    """Log-mel energies on axes, time to the right and pitch upwards."""
    top = float(energies.max())
    axes.imshow(
        array(energies.T), origin="lower", aspect="auto", cmap=MAGNITUDE, vmin=top - RANGE,
        vmax=top, extent=(0, seconds, 0, energies.shape[1]), interpolation="nearest",
    )  # fmt: skip


def _grid(columns: int, height: float) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    made = figure.subplots(2, columns, squeeze=False, sharex=True)
    for row in made:
        for axes in row:
            dress(axes)
            axes.tick_params(labelsize=SMALL - 1)
            axes.locator_params(axis="x", nbins=3)
    return figure, [list(row) for row in made]


def _name(grid: list[list[Axes]], titles: Sequence[str], above: str, below: str) -> None:
    for column, title in enumerate(titles):
        grid[0][column].set_title(title, fontsize=SMALL, parse_math=False)
        grid[1][column].set_xlabel("seconds", fontsize=SMALL)
        if column:
            for row in grid:
                row[column].tick_params(labelleft=False)
    grid[0][0].set_ylabel(above, fontsize=SMALL)
    grid[1][0].set_ylabel(below, fontsize=SMALL)


def decided(
    energies: Float[Tensor, "clips frames bands"],
    maps: Float[Tensor, "clips rows columns"],
    titles: Sequence[str],
    seconds: float,
) -> Figure:
    """Log-mel energies in the upper row, and what each place says for a class in the lower."""
    figure, grid = _grid(len(titles), 3.6)
    low, high = symmetric(maps)
    for column in range(len(titles)):
        spectrogram(grid[0][column], energies[column], seconds)
        image = grid[1][column].imshow(
            array(maps[column].T), origin="lower", aspect="auto", cmap=SIGNED, vmin=low, vmax=high,
            extent=(0, seconds, 0, energies.shape[2]), interpolation="nearest",
        )  # fmt: skip
    _name(grid, titles, "mel band", "mel band")
    bar = figure.colorbar(image, ax=grid[1], aspect=12, pad=0.01)
    bar.set_label("d (its mean\nis the logit)", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL - 1)
    return figure


def waves(
    sounds: Float[Tensor, "clips samples"],
    energies: Float[Tensor, "clips frames bands"],
    titles: Sequence[str],
    seconds: float,
) -> Figure:
    """Sounds in the upper row, their log-mel energies in the lower."""
    figure, grid = _grid(len(titles), 3.2)
    most = max(float(sounds.abs().max()), 1e-3)
    for column in range(len(titles)):
        samples = array(sounds[column])
        time = [seconds * n / len(samples) for n in range(len(samples))]
        grid[0][column].plot(time, samples, color=OURS, linewidth=0.4, rasterized=True)
        grid[0][column].set(ylim=(-most, most), xlim=(0, seconds))
        spectrogram(grid[1][column], energies[column], seconds)
    _name(grid, titles, "sound", "mel band")
    return figure
