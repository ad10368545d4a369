"""Pictures of convolution: a kernel that slides, turns, is a matrix, sends gradients, and pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from everynet.plot.style import (
    CONTRAST,
    FAINT,
    INK,
    MAGNITUDE,
    SIGNED,
    array,
    bare,
    colour,
    dress,
    symmetric,
)

WIDTH = 6.5  # inches
SMALL = 8  # points
TINY = 7

Shown = tuple[Float[Tensor, "_ _"], Float[Tensor, "_ _"], Float[Tensor, "2 _ _"]]
"""An image, a kernel, and what convolution and correlation make of them."""


# -------------------------------------------------------------------------------- one dimension


def sliding_kernel(
    signal: Float[Tensor, " signal"],
    kernel: Float[Tensor, " kernel"],
    result: Float[Tensor, " places"],
    columns: int = 5,
) -> Figure:
    """The signal, the kernel and the kernel turned; then some steps of it along the signal."""
    figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
    parts = figure.add_gridspec(2, 1, height_ratios=[1, 2.9])
    above, below = (figure.add_subfigure(parts[row]) for row in range(2))
    taps, places = len(kernel), len(result)
    first = above.subplots(1, 3)
    for axes, (name, bars, start, ink) in zip(
        first,
        (
            ("signal f", signal, 0, 0),
            ("kernel g", kernel, 0, 1),
            ("turned: g(-n)", kernel.flip(0), 1 - taps, 1),
        ),
        strict=True,
    ):
        _bars(axes, bars, start, ink)
        axes.set_title(name, fontsize=SMALL, color=INK)
        axes.set_xlabel("n", fontsize=SMALL)
        axes.set_xlim(-taps + 0.4, len(signal) - 0.4)
    steps = [round(k * (places - 1) / (columns - 1)) for k in range(columns)]
    rows = below.subplots(3, columns, sharex=True, sharey="row", squeeze=False)
    for column, m in enumerate(steps):
        on, product, output = rows[:, column]
        _bars(on, signal, 0, 0)
        _bars(on, kernel.flip(0), m - taps + 1, 1, width=0.45)
        seen = [n for n in range(len(signal)) if 0 <= m - n < taps]
        products = torch.zeros_like(signal)
        for n in seen:
            products[n] = signal[n] * kernel[m - n]
        _bars(product, products, 0, 2)
        _bars(output, result[: m + 1], 0, 9)
        output.patches[m].set_facecolor(colour(3))
        sums = " + ".join(f"{float(signal[n]):g}·{float(kernel[m - n]):g}" for n in seen)
        on.set_title(f"m = {m}", fontsize=SMALL, color=INK)
        output.set_title(f"{sums}\n= {float(result[m]):g}", fontsize=TINY, color=INK)
        output.set_xlabel("m", fontsize=SMALL)
        output.set_xlim(-taps + 0.4, places - 0.4)
    for axes, name in zip(rows[:, 0], ("f(n), g(m - n)", "products", "sums so far"), strict=True):
        axes.set_ylabel(name, fontsize=SMALL)
    return figure


def _bars(
    axes: Axes, values: Float[Tensor, " bars"], start: int, ink: int, width: float = 0.85
) -> None:
    dress(axes)
    axes.bar(range(start, start + len(values)), array(values), width, color=colour(ink))
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.tick_params(labelsize=TINY)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))


# ------------------------------------------------------------------------------- two dimensions


def kernel_flips(*given: Shown) -> Figure:
    """A row for each image: it, the kernel, and what convolution and correlation make of them."""
    wide = [image.shape[1] / image.shape[0] for image, _, _ in given]
    figure = Figure(figsize=(WIDTH, 0.3 + sum(0.08 + 1.9 / ratio for ratio in wide)))
    figure.set_layout_engine("constrained", w_pad=0.04)
    axes = figure.subplots(
        len(given), 4, squeeze=False,
        width_ratios=[1, 0.35, 1, 1], height_ratios=[1 / ratio for ratio in wide],
    )  # fmt: skip
    names = ("image", "kernel", "convolution", "cross-correlation")
    for row, (line, (image, kernel, results)) in enumerate(zip(axes, given, strict=True)):
        signed = bool((results < 0).any())
        for one, shown in zip(line, (image, kernel, *results), strict=True):
            mapped = signed and shown is not image
            _show(one, shown, SIGNED if mapped and shown is kernel else "gray")
        for one, name in zip(line, names, strict=True):
            if row == 0:
                one.set_title(name, fontsize=SMALL, color=INK)
    return figure


def _show(axes: Axes, values: Tensor, cmap: Colormap | str) -> None:
    low, high = (float(values.min()), float(values.max()))
    if low < 0:
        low, high = symmetric(values)
        low, high = (low, high) if cmap is SIGNED else (low / 2, high / 2)  # more contrast
    axes.imshow(array(values), cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
    bare(dress(axes))
    frame(axes, values.shape)


def frame(axes: Axes, shape: Sequence[int]) -> None:
    """A faint line around an image, so that white pixels have an edge."""
    height, width = shape
    axes.add_patch(
        Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor=FAINT, lw=0.8, clip_on=False)
    )


def window_frames(
    image: Float[Tensor, "height width"],
    kernel: Float[Tensor, "rows columns"],
    result: Float[Tensor, "down across"],
) -> Iterator[Figure]:
    """A frame for each pixel of a result: the window of the image, the products, the sum.

    The result is that of `convolve2d` where the kernel, which is turned, fits into the image.
    """
    (rows, columns), (down, across) = kernel.shape, result.shape
    turned, so_far = kernel.flip(0, 1), torch.full_like(result, torch.nan)
    low, high = symmetric(result)
    most = float(image.max() * kernel.abs().max())
    made = Figure(figsize=(WIDTH, 2.75))
    places = ((0.01, 0.33), (0.375, 0.25), (0.66, 0.33))
    first, middle, last = (dress(made.add_axes((x, 0.06, w, 0.8))) for x, w in places)
    for row, column in product(range(down), range(across)):
        so_far[row, column] = result[row, column]
        window = image[row : row + rows, column : column + columns]
        for axes in (first, middle, last):
            axes.clear()
        first.imshow(array(image), cmap="gray", interpolation="nearest")
        _mark(first, row, column, (rows, columns))
        _show_products(middle, window, turned, most)
        total = _signed(result[row, column])
        middle.text((columns - 1) / 2, rows - 0.2, f"sum = {total}", ha="center", color=INK)
        last.imshow(array(so_far), cmap=SIGNED, vmin=low, vmax=high, interpolation="nearest")
        frame(last, result.shape)
        for i, j in product(range(down), range(across)):
            if (i, j) <= (row, column):
                ink = "white" if abs(result[i, j]) > 0.6 * high else INK
                text = _signed(result[i, j])
                last.text(j, i, text, ha="center", va="center", fontsize=TINY, color=ink)
        _mark(last, row, column, (1, 1))
        titles = (
            f"image, pixels 0 to {_signed(image.max())}",
            "pixel · turned kernel",
            "convolution",
        )
        for axes, title in zip((first, middle, last), titles, strict=True):
            bare(axes)
            axes.set_title(title, fontsize="medium", color=INK)
        yield made


def _mark(axes: Axes, row: int, column: int, shape: tuple[int, int]) -> None:
    rows, columns = shape
    axes.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5), columns, rows, fill=False, edgecolor=CONTRAST, linewidth=2.5,
            clip_on=False,
        )
    )  # fmt: skip


def _show_products(axes: Axes, window: Tensor, weights: Tensor, most: float) -> None:
    """The pixels of a window, the weights over them, and the products by colour."""
    products = window * weights
    axes.imshow(array(products), cmap=SIGNED, vmin=-most, vmax=most)
    for i, j in product(*map(range, window.shape)):
        text = f"{_signed(window[i, j])} · {_signed(weights[i, j])}\n{_signed(products[i, j])}"
        ink = "white" if abs(products[i, j]) > 0.6 * most else INK
        axes.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=ink)
    frame(axes, window.shape)
    axes.set_ylim(len(window) + 0.1, -0.5)  # room for the sum


def _signed(value: Tensor) -> str:
    return f"{float(value):g}".replace("-", "\N{MINUS SIGN}")


# --------------------------------------------------------------------------------- layer, matrix


def toeplitz_form(
    kernel: Float[Tensor, "rows columns"],
    matrix: Float[Tensor, "places pixels"],
    image: tuple[int, int],
) -> Figure:
    """The kernel beside the dense matrix that does the same to all pixels of an image."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[0.24, 1])
    low, high = symmetric(matrix)
    left.imshow(array(kernel), cmap=SIGNED, vmin=low, vmax=high)
    write(left, kernel)
    bare(dress(left))
    frame(left, kernel.shape)
    count = f"{kernel.numel():,} weights"
    left.set_title(f"kernel\n{count}", fontsize=SMALL, color=INK)
    drawn = dress(right).imshow(
        array(matrix), cmap=SIGNED, vmin=low, vmax=high, interpolation="nearest"
    )
    height, width = image
    share = float((matrix == 0).double().mean())
    right.set_title(
        f"dense matrix for images of {height} x {width}: {matrix.numel():,} weights, "
        f"{share:.0%} of them 0",
        fontsize=SMALL,
        color=INK,
    )
    right.set_xlabel("pixel of the image, row by row", fontsize=SMALL)
    right.set_ylabel("pixel of the output, row by row", fontsize=SMALL)
    right.tick_params(labelsize=TINY)
    bar = figure.colorbar(drawn, ax=right, aspect=24, pad=0.02, shrink=0.9)
    bar.set_label("weight", fontsize=SMALL)
    bar.ax.tick_params(labelsize=TINY)
    bar.outline.set_visible(False)
    return figure


def backward_maps(
    kernel: Float[Tensor, "rows columns"],
    maps: Mapping[str, tuple[Float[Tensor, "_ _"], Float[Tensor, "_ _"]]],
) -> Figure:
    """Gradients on outputs (top) and what they are on pixels (bottom), a column for each way."""
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    cells = figure.add_gridspec(2, len(maps) + 1, width_ratios=[0.6, *[1] * len(maps)])
    lone = figure.add_subplot(cells[:, 0])
    lone.imshow(array(kernel), cmap=MAGNITUDE, vmin=0, vmax=1.3 * float(kernel.max()))
    write(lone, kernel, light=True)
    bare(dress(lone))
    lone.set_title("kernel w", fontsize=SMALL, color=INK)
    for column, (name, (dy, dx)) in enumerate(maps.items(), start=1):
        above, below = (figure.add_subplot(cells[row, column]) for row in range(2))
        above.imshow(array(dy), cmap="gray_r", vmin=0, vmax=1.4, interpolation="nearest")
        frame(above, dy.shape)
        below.imshow(array(dx), cmap=MAGNITUDE, vmin=0, interpolation="nearest")
        for one in (above, below):
            bare(dress(one))
        above.set_title(name, fontsize=SMALL, color=INK)
        above.set_xlabel(f"{dy.shape[0]} x {dy.shape[1]}", fontsize=TINY)
        most = f"{dx.shape[0]} x {dx.shape[1]}, 0 to {float(dx.max()):g}"
        below.set_xlabel(most, fontsize=TINY)
        if column == 1:
            above.set_ylabel("dL/dy on outputs", fontsize=SMALL)
            below.set_ylabel("dL/dx on pixels", fontsize=SMALL)
    return figure


def write(axes: Axes, values: Float[Tensor, "rows columns"], *, light: bool = False) -> None:
    """Each value in its cell; `light` where all cells are dark and not only those far from 0."""
    most = float(values.abs().max())
    for row, line in enumerate(values.tolist()):
        for column, value in enumerate(line):
            dark = light or (bool((values < 0).any()) and abs(value) > 0.6 * most)
            axes.text(
                column, row, f"{value:g}", ha="center", va="center", fontsize=SMALL,
                color="white" if dark else INK,
            )  # fmt: skip


# --------------------------------------------------------------------------------------- pooling


def pooling_windows(
    numbers: Float[Tensor, "height width"],
    values: Float[Tensor, "2 down across"],
    routed: Float[Tensor, "2 height width"],
) -> Figure:
    """Numbers in windows of four, their maximum or mean, and where a gradient of 1 on each goes."""
    figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
    axes = figure.subplots(2, 3, width_ratios=[1, 0.62, 1])
    for line, name, value, gradient in zip(axes, ("maximum", "mean"), values, routed, strict=True):
        first, second, third = line
        for one, shown, cmap in (
            (first, numbers, MAGNITUDE),
            (second, value, MAGNITUDE),
            (third, gradient, SIGNED),
        ):
            low, high = (-1.6, 1.6) if cmap is SIGNED else (-6.0, float(numbers.max()))
            one.imshow(array(shown), cmap=cmap, vmin=low, vmax=high, alpha=0.75)
            write(one, shown)
            bare(dress(one))
            windows = (2, 2) if shown is not value else (1, 1)
            _ruled(one, shown.shape, windows)
        first.set_ylabel(name, fontsize="medium", color=INK)
    for one, name in zip(
        axes[0], ("x, windows of 2 x 2", "y", "dL/dx, where dL/dy = 1"), strict=True
    ):
        one.set_title(name, fontsize=SMALL, color=INK)
    return figure


def _ruled(axes: Axes, shape: Sequence[int], window: tuple[int, int]) -> None:
    height, width = shape
    for top in range(0, height, window[0]):
        for left in range(0, width, window[1]):
            axes.add_patch(
                Rectangle(
                    (left - 0.5, top - 0.5), window[1], window[0],
                    fill=False, edgecolor=INK, linewidth=1.4, clip_on=False,
                )
            )  # fmt: skip


def pooled_photos(
    image: Float[Tensor, "height width"], made_of_it: Mapping[str, Sequence[Tensor]]
) -> Figure:
    """An image on the left, and rows of smaller ones made of it, each by its name."""
    height, width = image.shape
    columns = 1 + max(map(len, made_of_it.values()))
    tall = WIDTH / columns * height / width
    figure = Figure(figsize=(WIDTH, len(made_of_it) * (tall + 0.3) + 0.1), layout="constrained")
    cells = figure.add_gridspec(len(made_of_it), columns)
    first = figure.add_subplot(cells[:, 0])
    _picture(first, image)
    first.set_title(f"photo, {height} x {width}", fontsize=SMALL, color=INK)
    for row, (name, images) in enumerate(made_of_it.items()):
        for column, one in enumerate(images):
            axes = figure.add_subplot(cells[row, column + 1])
            _picture(axes, one)
            side = round(height / one.shape[0])
            text = f"{name} of {side} x {side}, to {one.shape[0]} x {one.shape[1]}"
            axes.set_title(text, fontsize=TINY, color=INK)
    return figure


def _picture(axes: Axes, image: Float[Tensor, "height width"]) -> None:
    axes.imshow(array(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    bare(dress(axes))
