"""Pictures of symmetry: a map of an image, of the shifted image, and what is left between them."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.style import INK, MAGNITUDE, SIGNED, array, bare, dress, symmetric

SMALL = 8  # points

Three = tuple[Float[Tensor, "_ _"], Float[Tensor, "_ _"], Float[Tensor, "_ _"]]


def shift_grid(
    image: Float[Tensor, "height width"],
    moved: Float[Tensor, "height width"],
    pixels: int,
    kernel: Float[Tensor, "rows columns"],
    rows: Mapping[str, Three],
) -> Figure:
    """An image and it shifted; then for each layer f(x), T f(x), f(Tx) and their difference."""
    figure = Figure(figsize=(6.5, 1.5 * (len(rows) + 1) + 0.3), layout="constrained")
    cells = figure.add_gridspec(len(rows) + 1, 4)
    for column, (name, shown) in enumerate(
        {
            "photo x": image,
            "filter of f": kernel,
            f"Tx: by {pixels} pixels": moved,
            "Tx - x": moved - image,
        }.items()
    ):
        axes = dress(figure.add_subplot(cells[0, column]))
        signed = bool((shown < 0).any())
        low, high = symmetric(shown) if signed else (0.0, 1.0)
        cmap = SIGNED if signed else "gray"
        axes.imshow(array(shown), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(name, fontsize=SMALL, color=INK)
        bare(axes)
    names = ("f(x)", "T f(x)", "f(Tx)", "f(Tx) - T f(x)")
    for row, (layer, (y, expected, found)) in enumerate(rows.items(), start=1):
        rest = found - expected
        rest = rest * (rest.abs() > 1e-9)  # what is rounding is white
        most = float(y.max())
        for column, (name, shown) in enumerate(zip(names, (y, expected, found, rest), strict=True)):
            axes = dress(figure.add_subplot(cells[row, column]))
            last = column == 3
            low, high = symmetric(y) if last else (0.0, most)
            cmap = SIGNED if last else MAGNITUDE
            axes.imshow(array(shown), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
            bare(axes)
            for side in axes.spines.values():
                side.set(visible=last, color=INK, linewidth=0.6)
            if row == 1:
                axes.set_title(name, fontsize=SMALL, color=INK)
            if column == 0:
                axes.set_ylabel(layer, fontsize=SMALL, color=INK)
    return figure
