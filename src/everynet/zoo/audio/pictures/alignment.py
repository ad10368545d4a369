"""What a network hears over time, and all alignments of it to what was said."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import BASELINE, INK, MAGNITUDE, WIDTH, array, colour, dress, grid
from everynet.zoo.audio.pictures.spectrograms import SMALL, spectrogram

NAMED = 12
"""So many symbols are named in a legend."""


def heard_over_time(
    energies: Float[Tensor, "frames mels"],
    probabilities: Float[Tensor, "time symbols"],
    words: Sequence[tuple[str, float]],
    symbols: Sequence[str],
    seconds: float,
) -> Figure:
    """Log-mel energies with words where they are heard, and below the probability of symbols."""
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes in (above, below):
        dress(axes)
        axes.tick_params(labelsize=SMALL - 1)
    spectrogram(above, energies, seconds)
    above.set_ylabel("mel band", fontsize=SMALL)
    for word, at in words:
        above.axvline(at, color="white", linewidth=0.8, linestyle=":")
        above.annotate(
            word, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2), ha="center",
            textcoords="offset points", fontsize=SMALL, color=INK, parse_math=False,
        )  # fmt: skip
    values = array(probabilities)
    time = [seconds * t / len(values) for t in range(len(values))]
    below.plot(time, values[:, 0], color=BASELINE, linewidth=1.0, label="blank")
    said = list(dict.fromkeys(word for word, _ in words))
    for number, name in enumerate(symbols):
        if name in said:
            ink = colour(said.index(name))
            label = name if len(said) <= NAMED else "_"
            below.plot(time, values[:, number + 1], color=ink, linewidth=1.6, label=label)
        else:
            below.plot(time, values[:, number + 1], color=BASELINE, linewidth=0.5, alpha=0.5)
    below.set(ylim=(-0.03, 1.03), xlim=(0, seconds))
    below.set_xlabel("seconds", fontsize=SMALL)
    below.set_ylabel("probability", fontsize=SMALL)
    grid(below)
    figure.legend(
        *below.get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False,
        fontsize=SMALL,
    )  # fmt: skip
    return figure


def lattice_picture(
    posterior: Float[Tensor, "time states"], names: Sequence[str], seconds: float
) -> Figure:
    """The probability of each state over time, the first on top."""
    figure = Figure(figsize=(WIDTH, min(5.0, 1.2 + 0.22 * len(names))), layout="constrained")
    axes = dress(figure.add_subplot())
    image = axes.imshow(
        array(posterior.T), aspect="auto", cmap=MAGNITUDE, vmin=0, vmax=1, interpolation="nearest",
        extent=(0, seconds, len(names) - 0.5, -0.5),
    )  # fmt: skip
    axes.set_yticks(range(len(names)), names, fontsize=SMALL, parse_math=False)
    axes.set_xlabel("seconds", fontsize=SMALL)
    axes.set_ylabel("state", fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    bar = figure.colorbar(image, pad=0.01)
    bar.set_label("probability, if this was said", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL - 1)
    return figure
