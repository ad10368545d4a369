"""Pictures of images mapped to images: fields of sources, and reconstructions of scans."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, bare, colour, dress, symmetric

SMALL = 8  # points
Fields = Float[Tensor, "samples size size"]


def solutions(f: Fields, u: Fields, predicted: Mapping[str, Fields]) -> Figure:
    """Each row a source and its field, then the field of each network and its error.

    Fields of a row share one scale, and so do the errors of a row.
    """
    rows, columns = len(f), 2 + 2 * len(predicted)
    figure = Figure(figsize=(6.5, 1.2 * rows + 0.35), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row in range(rows):
        errors = {name: v[row] - u[row] for name, v in predicted.items()}
        most = symmetric(torch.stack(list(errors.values())))
        line = [(f[row], symmetric(f[row]), "source f"), (u[row], symmetric(u[row]), "field u")]
        for name, v in predicted.items():
            line += [(v[row], symmetric(u[row]), name), (errors[name], most, "its error")]
        for place, (values, (low, high), title) in zip(axes[row], line, strict=True):
            _image(place, values, SIGNED, low, high)
            if row == 0:
                place.set_title(title, fontsize=SMALL, color=INK)
        for number, name in enumerate(predicted):
            error = (errors[name].norm() / u[row].norm()).item()
            axes[row][3 + 2 * number].set_xlabel(f"{error:.1%} of u", fontsize=SMALL, color=INK)
    return figure


def influences(
    maps: Mapping[str, Float[Tensor, "size size"]], *, place: tuple[int, int], receptive_field: int
) -> Figure:
    """How much a source anywhere changes the field at one place, as maps and along its row.

    The first is exact; of the last the square that it sees is outlined.
    """
    (row, column), r = place, receptive_field
    figure = Figure(figsize=(6.5, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, len(maps), height_ratios=[1, 1.05])
    low, high = symmetric(next(iter(maps.values())))
    for number, (name, values) in enumerate(maps.items()):
        axes = dress(figure.add_subplot(grid[0, number]))
        _image(axes, values, SIGNED, low, high)
        axes.plot([column], [row], "x", color=INK, ms=5)
        axes.set_title(name, fontsize=9, color=INK)
        if number == len(maps) - 1:
            corner = (column - r / 2, row - r / 2)
            axes.add_patch(Rectangle(corner, r, r, fill=False, ec=INK, lw=1.2, ls="--"))
            axes.set_xlabel(f"sees {r} x {r} points", fontsize=SMALL, color=INK)
    below = dress(figure.add_subplot(grid[1, :]))
    side = next(iter(maps.values())).shape[-1]
    at = (torch.arange(side) + 1) / (side + 1)
    for number, (name, values) in enumerate(maps.items()):
        ink, dash = (INK, "--") if number == 0 else (colour(number - 1), "-")
        below.plot(array(at), array(values[row]), color=ink, ls=dash, lw=1.6, label=name)
    edges = [(column + 1 + sign * r / 2) / (side + 1) for sign in (-1, 1)]
    below.axvspan(*edges, color=colour(len(maps) - 2), alpha=0.1, lw=0)
    below.set_xlabel("where the source is, x along the row of the cross", fontsize=9)
    below.set_ylabel("change of the field\nat the cross", fontsize=9)
    below.legend(frameon=False, fontsize=SMALL)
    return figure


def reconstructions(
    true: Fields,
    scans: Float[Tensor, "samples angles detectors"],
    given: Fields,
    corrected: Fields,
    *,
    before: Float[Tensor, " samples"],
    after: Float[Tensor, " samples"],
) -> Figure:
    """Each row a phantom, its scan, its back-projection and a network's image, with errors.

    `before` and `after` are the PSNR of the two, in dB; both errors have one scale.
    """
    rows = len(true)
    figure = Figure(figsize=(6.5, 1.18 * rows + 0.45), layout="constrained")
    axes = figure.subplots(rows, 6, squeeze=False)
    names = ["phantom", "scan", "back-projection", "its error", "network", "its error"]
    for row, line in enumerate(axes):
        low, high = true[row].min().item(), true[row].max().item()
        errors = torch.stack([given[row] - true[row], corrected[row] - true[row]])
        most = symmetric(0.5 * errors)  # the few largest errors would hide the others
        _image(line[0], true[row], "gray", low, high)
        line[1].imshow(array(scans[row]), cmap=MAGNITUDE, aspect="auto")
        bare(dress(line[1]))
        line[1].set_box_aspect(1)
        for place, values, error, psnr in (
            (2, given[row], errors[0], before[row]),
            (4, corrected[row], errors[1], after[row]),
        ):
            _image(line[place], values, "gray", low, high)
            _image(line[place + 1], error, SIGNED, *most)
            line[place].set_xlabel(f"{psnr.item():.1f} dB", fontsize=SMALL, color=INK)
        if row == 0:
            for place, name in zip(line, names, strict=True):
                place.set_title(name, fontsize=SMALL, color=INK)
    axes[-1][1].set_xlabel("detector", fontsize=SMALL, color=INK)
    axes[-1][1].set_ylabel("angle", fontsize=SMALL, color=INK)
    return figure


def angles_needed(
    angles: Int[Tensor, " counts"], fbp: Float[Tensor, " counts"], used: int, network: float
) -> Figure:
    """PSNR of filtered back-projection by the number of angles, beside that of a network."""
    name = f"network, {used} angles"
    figure = panels(
        Panel(
            {
                "filtered back-projection": (angles, fbp),
                name: (torch.tensor([used]), torch.tensor([network])),
            },
            "angles from which the phantom was scanned",
            "PSNR (dB)",
            guides={name: (angles[[0, -1]], torch.tensor([network, network]))},
            dashes="",
            log="x",
        ),
        width=6.5,
        height=3.4,
    )
    figure.axes[0].set_xticks(angles.tolist(), [str(count) for count in angles.tolist()])
    figure.axes[0].minorticks_off()
    return figure


def _image(axes: Axes, values: Tensor, cmap: Colormap | str, low: float, high: float) -> None:
    axes.imshow(array(values), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    bare(dress(axes))
