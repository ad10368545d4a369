"""Convolution and pooling, each a product or a reduction over the windows of an image.

    windows(x)[n, c i j, p] = x[n, c, p_y stride + i, p_x stride + j]     (1)  unfold
    conv2d(x, w)            = w windows(x)                                (2)  a matrix product
    max_pool2d(x), avg_pool2d(x) = max, mean of windows(x) over i, j      (3)

The transpose of (1), `fold`, adds each window back where it came from; the rule of the one is the
other, so everything here can be differentiated any number of times. Images are batch, channels,
height, width; padding is zeros (minus infinity for max). Names and arguments of
torch.nn.functional.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from everynet.autodiff.arraylike import Value, value
from everynet.autodiff.graph import Op, Var
from everynet.autodiff.linear import matmul
from everynet.autodiff.reductions import max, mean
from everynet.autodiff.shaping import pad, reshape

Pair: TypeAlias = tuple[int, int]  # down, across


def _pair(x: int | Pair) -> Pair:
    return (x, x) if isinstance(x, int) else x


class Windows(Op):
    """Images to (batch, channels, places in the kernel, places of the window)."""

    vjps = (lambda g, y, x, kernel, stride: Unwindows.of(g, kernel, stride, x.shape),)

    @staticmethod
    def forward(x: Value, kernel: Pair, stride: Pair) -> Value:
        (h, w), (down, right) = kernel, stride
        view = sliding_window_view(x, kernel, axis=(2, 3))[:, :, ::down, ::right]
        n, c, rows, columns = view.shape[:4]
        return view.transpose(0, 1, 4, 5, 2, 3).reshape(n, c, h * w, rows * columns)  # (1)


class Unwindows(Op):
    """Windows back to images of a shape, adding where they overlap: the transpose of Windows."""

    vjps = (lambda g, y, x, kernel, stride, shape: Windows.of(g, kernel, stride),)

    @staticmethod
    def forward(x: Value, kernel: Pair, stride: Pair, shape: tuple[int, ...]) -> Value:
        (h, w), (down, right) = kernel, stride
        rows, columns = positions(shape[2:], kernel, stride)
        apart = h <= down and w <= right
        y = np.zeros(shape, x.dtype)
        x = x.reshape(*x.shape[:2], h, w, rows, columns)
        for i, j in np.ndindex(h, w):
            spot = np.s_[:, :, i : i + rows * down : down, j : j + columns * right : right]
            if apart:
                y[spot] = x[:, :, i, j]
            else:
                y[spot] += x[:, :, i, j]
        return y


def positions(size: tuple[int, ...], kernel: Pair, stride: Pair) -> list[int]:
    """How many windows fit down and across."""
    return [(n - k) // step + 1 for n, k, step in zip(size, kernel, stride, strict=True)]


def _windows(
    name: str,
    x: Value,
    kernel: Pair,
    *,
    stride: int | Pair,
    padding: int | Pair,
    fill: float = 0.0,
) -> tuple[Var, list[int]]:
    """The windows of padded images, and how many there are down and across."""
    shape, stride, (top, left) = np.shape(value(x)), _pair(stride), _pair(padding)
    inside = len(shape) == 4 and all(
        k <= n + 2 * p for k, n, p in zip(kernel, shape[2:], (top, left), strict=True)
    )
    if not inside:
        raise ValueError(
            f"{name} of shape {shape}: must be (batch, channels, height, width) with room for the "
            f"kernel {kernel} in height and width, padding {(top, left)} included"
        )
    if np.min((*kernel, *stride)) < 1 or np.min((top, left)) < 0:
        raise ValueError(
            f"{name} of shape {shape}: kernel {kernel} and stride {stride} must be at least "
            f"1 and padding {(top, left)} at least 0"
        )
    if top or left:
        x = pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=fill)
    spots = positions(np.shape(value(x))[2:], kernel, stride)
    return Windows.apply(x, kernel, stride), spots


def conv2d(
    input: Value, weight: Value, bias: Value = None, stride: int | Pair = 1, padding: int | Pair = 0
) -> Var:
    """Cross-correlation of images with filters (out channels, in channels, height, width)."""
    shape, filters = np.shape(value(input)), np.shape(value(weight))
    if len(filters) != 4 or shape[1:2] != filters[1:2]:
        raise ValueError(
            f"conv2d of shapes {shape} and {filters}: must be (batch, channels, height, width) and "
            "(out channels, channels, height, width) with the same channels"
        )
    if bias is not None and np.shape(value(bias)) != filters[:1]:
        raise ValueError(
            f"conv2d of shapes {shape} and {filters}: bias of shape {np.shape(value(bias))} must "
            f"be {filters[:1]}, one for each filter"
        )
    x, (rows, columns) = _windows("conv2d", input, filters[2:], stride=stride, padding=padding)
    n, c, kernel, spots = x.shape
    y = matmul(reshape(weight, (filters[0], c * kernel)), x.reshape(n, c * kernel, spots))  # (2)
    if bias is not None:
        y = y + reshape(bias, (filters[0], 1))
    return y.reshape(n, filters[0], rows, columns)


def max_pool2d(
    input: Value, kernel_size: int | Pair, stride: int | Pair | None = None, padding: int | Pair = 0
) -> Var:
    """The largest of each window; elements that tie share its gradient equally."""
    kernel = _pair(kernel_size)
    step = kernel if stride is None else stride
    x, spots = _windows("max_pool2d", input, kernel, stride=step, padding=padding, fill=-np.inf)
    return max(x, 2).reshape(*x.shape[:2], *spots)  # (3)


def avg_pool2d(
    input: Value, kernel_size: int | Pair, stride: int | Pair | None = None, padding: int | Pair = 0
) -> Var:
    """The mean of each window, the zeros of the padding included."""
    kernel = _pair(kernel_size)
    step = kernel if stride is None else stride
    x, spots = _windows("avg_pool2d", input, kernel, stride=step, padding=padding)
    return mean(x, 2).reshape(*x.shape[:2], *spots)  # (3)
