"""The expression graph: a Var is a value, an Op is the operation that made it.

    y.val     = forward(a.val, b.val, ...)      (1)  forward pass
    y.creator = op,  op.args = (a, b, ...)      (2)  graph
    a.grad   += dE/da                           (3)  after E.backward()

Leaves have no creator. A graph is built by computing and can have no cycle: the arguments of an Op
are there before its output is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import ClassVar, TypeAlias

import numpy as np

from everynet.autodiff.arraylike import ArrayLike, Value
from everynet.autodiff.modes import MODE, require_finite
from everynet.autodiff.reverse import pullback, shapes, topological

Rule: TypeAlias = Callable[..., Value]
"""rule(g, y, *args): the gradient by one argument, from the gradient g by the output y."""

SHOWN = 40  # Ops of a graph that a notebook shows by itself
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class Var(ArrayLike):
    """A value in the graph: `val`, the Op that made it, and the gradient by it."""

    __slots__ = ("creator", "grad", "name", "requires_grad", "val")
    creator: Op | None
    grad: Value  # None before the backward pass; a Var when that pass was itself recorded

    def __init__(self, val: Value, requires_grad: bool = True, name: str = "") -> None:
        self.val = np.asarray(val)
        self.grad = self.creator = None
        self.requires_grad = requires_grad
        self.name = name
        if requires_grad and self.val.dtype not in FLOATS:
            raise TypeError(
                f"Var of shape {self.shape} (dtype {self.dtype}) must be float32 or float64, "
                "because only real numbers have derivatives; write 3.0 for 3, use "
                ".astype(np.float64), or say requires_grad=False"
            )

    def __repr__(self) -> str:
        by = f", creator={self.creator.name}" if self.creator else ""
        return f"Var({np.array2string(np.asarray(self.val), separator=', ', prefix='Var(')}{by})"

    def _repr_svg_(self) -> str | None:
        """The graph of a computed Var for a notebook, unless it is large."""
        if self.creator is None or len(topological(self)) > SHOWN:
            return None
        from everynet.autodiff.picture import to_svg  # noqa: PLC0415 -- matplotlib, which draws

        return to_svg(self)

    def backward(self, seed: Value = None, create_graph: bool = False) -> None:
        """Add to `grad` of every Var that led here the gradient of this one, weighted by `seed`.

        With `create_graph` the gradients are Vars, so that they can be differentiated again.
        """
        taken: set[int] = set()
        first = seed_of(self, seed, create_graph)
        with np.errstate(all="ignore") if MODE.checking else nullcontext():
            for var, g in pullback(self, first, create_graph=create_graph):
                if var.grad is not None:
                    var.grad = var.grad + g  # (3)
                else:
                    leaf = var.creator is None and not create_graph
                    var.grad = own(g, taken) if leaf else g  # (3)

    def zero_grad(self) -> None:
        """Forget the gradients of this Var and of all that led to it."""
        self.grad = None
        if self.creator is not None:
            for var in topological(self):
                var.grad = None
                for arg in var.creator or ():
                    if isinstance(arg, Var):
                        arg.grad = None


class Op(tuple[Value, ...]):
    """An operation, which is the tuple of its arguments: first arrays, then settings.

    `forward` maps arrays to an array; `vjps` has a rule for each argument that can be
    differentiated. Rules are written in numpy's functions and operators, or in `Op.of`: what they
    compute can then be differentiated in turn.
    """

    __slots__ = ()
    name: ClassVar[str]
    symbol: ClassVar[str] = ""  # what pictures show instead of the name
    forward: ClassVar[Callable[..., Value]]
    vjps: ClassVar[tuple[Rule, ...]]

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", cls.__name__).lower()

    @property
    def args(self) -> tuple[Value, ...]:
        """The arguments: Vars, constants, settings."""
        return self

    @classmethod
    def apply(cls, *args: Value) -> Var:
        """The value for some arguments, as a Var that remembers them if one of them is a Var."""
        vals: list[Value] = []
        tracked = False
        for arg in args:
            if isinstance(arg, Var):
                vals.append(arg.val)
                tracked = tracked or arg.requires_grad
            else:
                vals.append(np.asarray(arg) if isinstance(arg, list) else arg)
        y = _blank(Var)
        y.val = cls._checked(vals) if MODE.checking else cls._forward(vals)  # (1)
        y.grad, y.name = None, ""
        if tracked and MODE.recording:
            y.creator, y.requires_grad = cls(args), True  # (2)
        else:
            y.creator, y.requires_grad = None, False
            if not isinstance(y.val, np.ndarray | np.generic):
                y.val = cls._forward([np.asarray(val) for val in vals])  # of Python's numbers
        return y

    @classmethod
    def of(cls, *args: Value) -> Value:
        """A Var where an argument is one, else a plain array: how rules call an Op."""
        if any(isinstance(arg, Var) for arg in args):
            return cls.apply(*args)
        return cls.forward(*args)

    @classmethod
    def _forward(cls, vals: Collection[Value]) -> Value:
        try:
            return cls.forward(*vals)
        except (ValueError, TypeError, IndexError) as error:
            kind = next(k for k in (ValueError, TypeError, IndexError) if isinstance(error, k))
            raise kind(f"{cls.name} of {shapes(vals)}: {error}") from error

    @classmethod
    def _checked(cls, vals: Collection[Value]) -> Value:
        with np.errstate(all="ignore"):
            val = cls._forward(vals)
        require_finite(val, f"{cls.name} of {shapes(vals)}: its value")
        return val


_blank = object.__new__


def stop_gradient(x: Value) -> Var:
    """The same value as a constant: no gradient passes."""
    return Var(x.val if isinstance(x, Var) else x, requires_grad=False)


def seed_of(y: Var, seed: Value, create_graph: bool) -> Value:
    """The seed of a backward pass from y: 1 for a scalar, else the given one."""
    what = f"backward of {y.creator.name if y.creator else 'a leaf'}"
    if not y.requires_grad:
        raise ValueError(
            f"{what}: a Var of shape {y.shape} must depend on a Var with requires_grad, because a "
            "constant has no gradient; was it computed inside no_grad, or from arrays alone?"
        )
    if seed is None and y.size != 1:
        raise ValueError(
            f"{what}: a Var of shape {y.shape} must be given a seed of that shape, because only a "
            "scalar has a gradient; take its sum, or call backward(seed)"
        )
    val = seed.val if isinstance(seed, Var) else 1.0 if seed is None else seed
    val = np.array(np.broadcast_to(val, y.shape) if seed is None else val, y.dtype)
    if val.shape != y.shape:
        raise ValueError(f"{what}: seed of shape {val.shape} must have the shape {y.shape}")
    if create_graph:
        return seed if isinstance(seed, Var) else Var(val, requires_grad=False)
    return val


def own(g: Value, taken: set[int]) -> Value:
    """The array g, copied where it cannot be written to or another leaf has its memory."""
    memory = id(g if g.base is None else g.base)
    if memory in taken or not g.flags.writeable:
        return g.copy()
    taken.add(memory)
    return g
