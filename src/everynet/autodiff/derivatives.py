"""Derivatives of functions: gradients, Jacobians, Hessians and their products with vectors.

    vjp(u) = J^T u                                        (1)  one backward pass
    J[i]   = vjp(e_i)                                     (2)  Jacobian, a row a pass
    jvp(v) = J v = d(u . v)/du applied to u -> J^T u      (3)  vjp is linear in u: its transpose
    H      = J(grad f),  H v = grad(grad f . v)           (4)  Hessian and its products
    df/dx_i = (f(x + h e_i) - f(x - h e_i)) / 2h + O(h^2) (5)  central difference

A function given arrays returns an array; given Vars it returns a Var, so that `grad(grad(f))` and
any other nesting is right. Griewank, Walther (2008), "Evaluating Derivatives",
doi:10.1137/1.9780898717761.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from everynet.autodiff.arraylike import Array, Value, value
from everynet.autodiff.elementwise import multiply
from everynet.autodiff.graph import FLOATS, Op, Var, own, seed_of
from everynet.autodiff.modes import enable_grad
from everynet.autodiff.reductions import sum
from everynet.autodiff.reverse import pullback
from everynet.autodiff.shaping import reshape, stack

Which: TypeAlias = int | tuple[int, ...]


class _Nesting(threading.local):
    depth = 0  # how many derivatives are being taken around this one


_nesting = _Nesting()


class Identity(Op):
    """A Var of its own for an argument: what a function closes over is not differentiated."""

    forward = staticmethod(lambda x: x)
    vjps = (lambda g, y, x: g,)


class _Evaluated:
    """A function at a point, ready to be differentiated by some of its arguments."""

    def __init__(
        self, name: str, f: Callable[..., Value], args: Sequence[Value], which: Which
    ) -> None:
        places = _places(name, args, which)
        self.name = name
        self.by = {i: _argument(name, args[i]) for i in places}
        self.nested = _nesting.depth > 0 or any(_is_tracked(args[i]) for i in places)
        _nesting.depth += 1
        try:
            with enable_grad():
                y = f(*[self.by.get(i, arg) for i, arg in enumerate(args)])
        finally:
            _nesting.depth -= 1
        self.y = y if isinstance(y, Var) else Var(y, requires_grad=False)

    def gradients(self, seed: Value = None, *, create_graph: bool = False) -> list[Value]:
        """J^T seed for each argument; zeros where y does not depend on it."""
        again, flow = create_graph or self.nested, {}
        if self.y.requires_grad:
            with enable_grad():
                flow = _gradients(self.y, set(self.by.values()), seed, again)
        found = [flow.get(x, np.zeros(x.shape, x.dtype)) for x in self.by.values()]
        if again:
            return [g if isinstance(g, Var) else Var(g, requires_grad=False) for g in found]
        taken: set[int] = set()
        return [own(g, taken) for g in found]

    def require_scalar(self) -> None:
        if self.y.size != 1:
            raise ValueError(
                f"{self.name} of a function with value of shape {self.y.shape}: must be a scalar, "
                "because only a scalar has a gradient; take its sum, or use jacobian"
            )

    def given(self, x: Var) -> Value:
        """A result in the form of the arguments: a Var where derivatives are nested."""
        return x if self.nested else x.val


def _gradients(y: Var, by: set[Var], seed: Value, create_graph: bool) -> dict[Var, Value]:
    start = seed_of(y, seed, create_graph)
    found = pullback(y, start, create_graph=create_graph, wanted=by)  # (1)
    return {x: g for x, g in found if x in by}


def _argument(name: str, x: Value) -> Var:
    val = np.asarray(value(x))
    if val.dtype not in FLOATS:
        raise TypeError(
            f"{name} by an argument of shape {val.shape} (dtype {val.dtype}): must be float32 or "
            "float64, because only real numbers have derivatives; use .astype(np.float64)"
        )
    return Identity.apply(x) if _is_tracked(x) else Var(val)


def _places(name: str, args: Sequence[Value], which: Which) -> tuple[int, ...]:
    """Which arguments to differentiate by, counted from the left."""
    word = "argnum" if name == "jacobian" else "argnums"
    places = (which,) if isinstance(which, int) else tuple(which)
    if not args:
        raise TypeError(f"{name} of a function must be given its arguments, and there is none")
    for i in places:
        if isinstance(i, bool) or not isinstance(i, int):
            raise TypeError(f"{name}: {word} ({which}) must be a number, or a tuple of numbers")
        if not -len(args) <= i < len(args):
            most = len(args) - 1
            raise ValueError(
                f"{name}: {word} ({i}) must be {f'from 0 to {most}' if most else '0'}, because the "
                f"function was given {len(args)} argument{'s' * (most > 0)}, counted from 0"
            )
    from_left = tuple(i % len(args) for i in places)
    if len(set(from_left)) < len(places):
        raise ValueError(f"{name}: {word} ({which}) must name each argument once")
    return from_left


def _is_tracked(x: Value) -> bool:
    return isinstance(x, Var) and x.requires_grad


def value_and_grad(f: Callable[..., Value], argnums: Which = 0) -> Callable[..., Value]:
    """The function x -> (f(x), gradient of f at x), for a scalar f."""
    if not callable(f):
        raise TypeError(
            f"grad must be given a function, not {type(f).__name__}: grad(lambda x: x * x)(3.0); "
            "of a Var that is computed already take backward()"
        )

    def evaluate(*args: Value) -> tuple[Value, Value]:
        at = _Evaluated("grad", f, args, argnums)
        at.require_scalar()
        found = at.gradients(np.ones(at.y.shape, at.y.dtype))
        return at.given(at.y), found[0] if isinstance(argnums, int) else tuple(found)

    return evaluate


def grad(f: Callable[..., Value], argnums: Which = 0) -> Callable[..., Value]:
    """The gradient of a scalar f by one argument, or by each of several."""
    both = value_and_grad(f, argnums)
    return lambda *args: both(*args)[1]


def jacobian(f: Callable[..., Value], argnum: int = 0) -> Callable[..., Value]:
    """The derivative of each element of f by each of its argument: shape of f, then of x."""

    def evaluate(*args: Value) -> Value:
        at = _Evaluated("jacobian", f, args, argnum)
        (x,) = at.by.values()
        units = np.eye(at.y.size, dtype=at.y.dtype).reshape(at.y.size, *at.y.shape)
        rows = [at.gradients(unit)[0] for unit in units]  # (2)
        shape = (*at.y.shape, *x.shape)
        if at.nested:
            return reshape(stack(rows), shape) if rows else Var(np.zeros(shape))
        return np.reshape(rows, shape).astype(x.dtype, copy=False)

    return evaluate


def hessian(f: Callable[..., Value], argnum: int = 0) -> Callable[..., Value]:
    """The second derivatives of a scalar f: shape of x, twice."""
    return jacobian(grad(f, argnum), argnum)  # (4)


def hvp(f: Callable[..., Value], x: Value, v: Value) -> Value:
    """The Hessian of a scalar f at x times v, at the cost of two gradients."""
    return _Evaluated("hvp", grad(f), (x,), 0).gradients(v)[0]  # (4)


def jvp(f: Callable[..., Value], x: Value, v: Value) -> Value:
    """The Jacobian of f at x times v: how f changes along v."""
    at = _Evaluated("jvp", f, (x,), 0)
    u = Var(np.zeros(at.y.shape, at.y.dtype))
    (pulled,) = at.gradients(u, create_graph=True)
    if not pulled.requires_grad:  # f does not depend on x
        return at.given(Var(u.val, requires_grad=False))
    return _gradients(pulled, {u}, v, at.nested)[u]  # (3)


# ------------------------------------------------------------------------------ finite differences


def finite_difference(
    f: Callable[[Array], Value], x: Array, step: float = 1e-5, central: bool = True
) -> Array:
    """The gradient of a scalar f from differences: 2 P evaluations, or P + 1 one-sided ones."""
    x, out = np.asarray(x), np.empty(np.shape(x), np.result_type(x))
    start = 0.0 if central else float(f(x))
    for i in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[i] = step
        ahead, behind = float(f(x + h)), float(f(x - h)) if central else start
        out[i] = (ahead - behind) / (2 * step if central else step)  # (5)
    return out


def gradcheck(
    f: Callable[..., Value],
    *args: Value,
    order: int = 1,
    step: float = 1e-5,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> bool:
    """Whether the derivatives of f up to `order` agree with central differences; raises if not."""
    arrays = [np.asarray(arg, np.float64) for arg in args]
    weights = np.random.default_rng(0).uniform(0.5, 1.5, np.shape(value(f(*arrays))))

    def scalar(*xs: Value) -> Var:
        return sum(multiply(f(*xs), weights))

    for i, x in enumerate(arrays):

        def along(x: Value, i: int = i) -> Var:
            return scalar(*arrays[:i], x, *arrays[i + 1 :])

        exact, near = grad(scalar, i)(*arrays), finite_difference(along, x, step)
        wrong = np.abs(exact - near) > atol + rtol * np.maximum(np.abs(near), 1.0)
        if wrong.any():
            at = tuple(int(n) for n in np.argwhere(wrong)[0])
            raise ArithmeticError(
                f"gradcheck: the derivative by argument {i} (shape {x.shape}) at {at} is "
                f"{exact[at]:.9g} by its rule and {near[at]:.9g} by differences"
            )
        if order > 1:
            gradcheck(grad(scalar, i), *arrays, order=order - 1, step=step, rtol=rtol, atol=atol)
    return True
