"""Operations that move elements: shapes, axes, indexing, joining, padding.

Each is linear, and its rule is its transpose: what was repeated is summed, what was picked is put
back into zeros, what was joined is cut apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from everynet.autodiff.arraylike import Axis, Value, implements, value
from everynet.autodiff.graph import Op, Rule, Var
from everynet.autodiff.reverse import unbroadcast


class Reshape(Op):
    """The elements in another shape."""

    forward = staticmethod(np.reshape)
    vjps = (lambda g, y, x, shape: g.reshape(x.shape),)


class Transpose(Op):
    """The axes in another order."""

    forward = staticmethod(np.transpose)
    vjps = (lambda g, y, x, axes: np.transpose(g, axes and tuple(np.argsort(axes).tolist())),)


class Broadcast(Op):
    """The elements repeated along some axes."""

    forward = staticmethod(np.broadcast_to)
    vjps = (lambda g, y, x, shape: unbroadcast(g, x.shape),)


class Index(Op):
    """y = x[index]."""

    symbol = "[ ]"
    forward = staticmethod(lambda x, index: x[index])
    vjps = (lambda g, y, x, index: Scatter.of(g, index, x.shape),)


class Scatter(Op):
    """y = zeros with x added at [index]; an element picked twice is added twice."""

    vjps = (lambda g, y, x, index, shape: g[index],)

    @staticmethod
    def forward(x: Value, index: Value, shape: tuple[int, ...]) -> Value:
        y = np.zeros(shape, x.dtype)
        if _picks_once(index):
            y[index] = x
        else:
            np.add.at(y, index, x)
        return y


def _picks_once(index: Value) -> bool:
    """Whether no element can be picked twice: only numbers, slices, None, ... and truth values."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, int | slice | np.integer)
        or getattr(part, "dtype", None) == np.bool_
        for part in parts
    )


class Concatenate(Op):
    """Arrays one after another; the last argument is the axis."""

    forward = staticmethod(lambda *args: np.concatenate(args[:-1], args[-1]))

    @property
    def vjps(self) -> tuple[Rule, ...]:  # type: ignore[override]  # as many as there are arrays
        return tuple(partial(_piece, i) for i in range(len(self) - 1))


def _piece(i: int, g: Value, y: Value, *args: Value) -> Value:
    """The part of g that belongs to array i."""
    *arrays, axis = args
    start = int(np.sum([a.shape[axis] for a in arrays[:i]]))
    cut = slice(start, start + arrays[i].shape[axis])
    return g[(slice(None),) * (axis % y.ndim) + (cut,)]


class Pad(Op):
    """A constant all around."""

    vjps = (lambda g, y, x, width, fill: g[_inside(width)],)

    @staticmethod
    def forward(x: Value, width: Sequence[tuple[int, int]], fill: float) -> Value:
        shape = [n + before + after for n, (before, after) in zip(x.shape, width, strict=True)]
        y = np.full(shape, fill, x.dtype) if fill else np.zeros(shape, x.dtype)
        y[_inside(width)] = x
        return y


def _inside(width: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(before, -after or None) for before, after in width)


# --------------------------------------------------------------------------------------- functions


@implements(np.reshape)
def reshape(a: Value, shape: int | Sequence[int]) -> Var:
    """The elements of `a`, in order, in another shape."""
    return Reshape.apply(a, shape if isinstance(shape, int) else tuple(shape))


@implements(np.transpose)
def transpose(a: Value, axes: Sequence[int] | None = None) -> Var:
    """The axes of `a` in another order; reversed where none is given."""
    count = np.ndim(value(a))
    return Transpose.apply(a, axes and tuple(axis % count for axis in axes))


@implements(np.swapaxes)
def swapaxes(a: Value, axis1: int, axis2: int) -> Var:
    """Two axes of `a` exchanged."""
    order = list(range(np.ndim(value(a))))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return Transpose.apply(a, tuple(order))


@implements(np.expand_dims)
def expand_dims(a: Value, axis: int | tuple[int, ...]) -> Var:
    """A new axis of length 1 at each place `axis` names."""
    return Reshape.apply(a, np.expand_dims(value(a), axis).shape)


@implements(np.squeeze)
def squeeze(a: Value, axis: Axis = None) -> Var:
    """Axes of length 1 removed."""
    return Reshape.apply(a, np.squeeze(value(a), axis).shape)


@implements(np.broadcast_to)
def broadcast_to(array: Value, shape: tuple[int, ...]) -> Var:
    """`array` repeated to `shape`, without a copy."""
    return Broadcast.apply(array, shape)


@implements(np.ndarray.__getitem__)
def index(x: Value, where: Value) -> Var:
    """x[where]: slices give a view, integer arrays may pick an element more than once."""
    if isinstance(where, list):
        where = np.asarray(where)
    return Index.apply(x, where)


def scatter(values: Value, index: Value, shape: tuple[int, ...]) -> Var:
    """Zeros of `shape` with `values` added at [index]: the transpose of indexing."""
    return Scatter.apply(values, index, shape)


@implements(np.concatenate)
def concatenate(arrays: Sequence[Value], axis: int = 0) -> Var:
    """Arrays joined along an axis they have."""
    return Concatenate.apply(*arrays, axis)


@implements(np.stack)
def stack(arrays: Sequence[Value], axis: int = 0) -> Var:
    """Arrays of one shape joined along a new axis."""
    return concatenate([expand_dims(a, axis) for a in arrays], axis)


@implements(np.pad)
def pad(
    array: Value, pad_width: Value, mode: str = "constant", constant_values: float = 0.0
) -> Var:
    """`array` with `constant_values` around it; `pad_width` is before and after, for each axis."""
    if mode != "constant":
        raise ValueError(f"pad: mode ({mode}) must be 'constant', because no other is written yet")
    widths = np.broadcast_to(np.asarray(pad_width, int), (np.ndim(value(array)), 2))
    return Pad.apply(array, tuple(map(tuple, widths.tolist())), constant_values)
