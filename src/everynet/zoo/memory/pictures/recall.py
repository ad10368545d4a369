"""Recall of a Hopfield network: its way through the energy, and a film of many at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import pad

from everynet.plot.images import mosaic
from everynet.plot.panels import Panel, panels

POINTS = 81  # of a landscape, across and up
SIDE = 480  # pixels of the longer side of a film, about


def energy_landscape(
    pair: Float[Tensor, "2 neurons"],
    w: Float[Tensor, "neurons neurons"],
    path: Float[Tensor, "steps cues neurons"],
    energies: Float[Tensor, "steps cues"],
) -> Figure:
    """Mean energy of the states with these overlaps with two patterns, ways on it, and their E.

    Where the patterns agree in a share s of the bits, overlaps (m, n) mean that x equals the first
    by (m + n) / 2s on average there, and by (m - n) / 2(1 - s) elsewhere. Such bits drawn one by
    one have the energy of their means, because the diagonal of W is 0.
    """
    first, second = pair
    agree = first == second
    share = agree.double().mean().clamp(0.01, 0.99)
    at = torch.linspace(-1, 1, POINTS, dtype=torch.float64)
    n, m = torch.meshgrid(at, at, indexing="ij")
    same, other = (m + n) / (2 * share), (m - n) / (2 * (1 - share))
    mean = torch.where(agree, same[..., None], other[..., None]) * first  # up across neurons
    heights = -((mean @ w) * mean).sum(-1) / 2
    heights[(same.abs() > 1) | (other.abs() > 1)] = torch.nan
    overlaps = path @ pair.T / pair.shape[1]  # steps cues 2
    ways = {
        f"cue of pattern {cue + 1}": (overlaps[:, cue, 0], overlaps[:, cue, 1])
        for cue in range(path.shape[1])
    }
    updates = torch.arange(len(path))
    falls = {name: (updates, energies[:, cue]) for cue, name in enumerate(ways)}
    return panels(
        Panel(ways, "overlap with pattern 1", "overlap with pattern 2",
              title="mean energy, blue is low", heights=(at, at, heights)),
        Panel(falls, "updates of a neuron", "energy E", title="along the ways"),
    )  # fmt: skip


def recall_frames(
    path: Float[Tensor, "steps samples height width"],
) -> Iterator[UInt8[np.ndarray, "rows columns"]]:
    """The frames of a film: all samples side by side, -1 black and 1 white, on a grey ground."""
    columns = int(np.ceil(np.sqrt(path.shape[1])))
    times = max(1, SIDE // (columns * (path.shape[3] + 1)))
    moves = (path != path[-1]).flatten(1).any(1)
    for states in [*path[moves], path[-1]]:
        tiles = pad(mosaic(states[:, None].clamp(-1, 1), columns)[..., 0], (0, 1, 0, 1), value=nan)
        grey = (tiles * 127.5 + 127.5).nan_to_num(90).round().to(torch.uint8).numpy()
        yield grey.repeat(times, 0).repeat(times, 1)
