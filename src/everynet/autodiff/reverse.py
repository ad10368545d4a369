"""The backward pass: each Op once, after all that use its output, without recursion.

    dE/dE = 1                                                   (1)  seed
    dE/da = sum over the uses y of a of vjp(dE/dy)              (2)  chain rule, branches add

vjp is the vector-Jacobian product: a rule of an Op, which maps the gradient by its output (of the
output's shape) to the gradient by one argument (of the argument's shape). The order is Kahn's: an
Op is ready when all that use it are done, and in a cycle none ever is.

Kahn (1962), "Topological sorting of large networks", doi:10.1145/368996.369025.
Rumelhart, Hinton, Williams (1986), "Learning representations by back-propagating errors",
doi:10.1038/323533a0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from everynet.autodiff.arraylike import ArrayLike, Value, value
from everynet.autodiff.modes import MODE, require_finite

if TYPE_CHECKING:
    from everynet.autodiff.graph import Var
else:
    Var = ArrayLike  # Var is the only kind; the file that defines it imports this one

Watch: TypeAlias = "Callable[[Var, int, Value], None]"
"""watch(y, i, d): the gradient d goes from y to argument i of its creator."""


def topological(root: Var) -> list[Var]:
    """All computed Vars that `root` depends on, itself first, each after those that use it."""
    uses, stack = {root: 0}, [root]
    while stack:
        for arg in stack.pop().creator or ():
            if isinstance(arg, Var) and arg.creator is not None:
                if arg in uses:
                    uses[arg] += 1
                else:
                    uses[arg] = 1
                    stack.append(arg)
    order, ready = [], [root] if uses[root] == 0 else []
    while ready:
        var = ready.pop()
        order.append(var)
        for arg in var.creator or ():
            if isinstance(arg, Var) and arg.creator is not None:
                uses[arg] -= 1
                if uses[arg] == 0:
                    ready.append(arg)
    if len(order) < len(uses):
        _report_cycle([var for var, count in uses.items() if count > 0])
    return order


def pullback(
    root: Var,
    seed: Value,
    *,
    create_graph: bool = False,
    wanted: Collection[Var] | None = None,
    watch: Watch | None = None,
) -> Iterator[tuple[Var, Value]]:
    """Each Var that led to `root`, with the gradient of `root` by it, weighted by `seed`.

    With `wanted`, only those are visited that a gradient must pass to reach a wanted one. With
    `create_graph` the seed is a Var and so are all gradients: the pass is itself a graph.
    """
    flow = {root: seed}  # (1)
    order = topological(root) if root.creator is not None else []
    leads = None
    if wanted is not None:
        leads = _leading(order, wanted)
        order = [var for var in order if var in leads]
    if watch is None and MODE.checking:
        watch = _require_finite
    summed: set[Var] = set()  # those whose flow is a sum of our own, free to grow in place
    for var in order:
        g, op = flow.pop(var), var.creator
        assert op is not None
        y: Value = var if create_graph else var.val
        vals = op if create_graph else [a.val if isinstance(a, Var) else a for a in op]
        for i, arg in enumerate(op):
            known = isinstance(arg, Var) and arg.requires_grad
            if not known or (leads is not None and arg not in leads):
                continue  # no gradient is computed for a constant
            d = op.vjps[i](g, y, *vals)
            if isinstance(d, Var) and not create_graph:
                d = d.val  # of a rule written in our own functions
            if d.shape != arg.val.shape:
                d = unbroadcast(d, arg.val.shape)
            if d.dtype != arg.val.dtype:
                d = d.astype(arg.val.dtype)
            if watch is not None:
                watch(var, i, d)
            if arg not in flow:
                flow[arg] = d
            elif arg in summed:
                flow[arg] += d  # (2)
            else:
                flow[arg] = flow[arg] + d  # (2)
                summed.add(arg)
        yield var, g
    yield from flow.items()


def unbroadcast(g: Value, shape: tuple[int, ...]) -> Value:
    """Sum g over the axes along which `shape` was repeated: the transpose of broadcasting."""
    extra = g.ndim - len(shape)
    repeated = tuple(i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1)
    total = g.sum(axis=(*range(extra), *repeated))
    return total if total.shape == shape else total.reshape(shape)


def shapes(vals: Collection[Value]) -> str:
    """The shapes of the arrays among the arguments of an Op, in words."""
    arrays = [v for v in map(value, vals) if isinstance(v, np.ndarray | np.generic | float)]
    return ("shape " if len(arrays) == 1 else "shapes ") + " and ".join(
        str(np.shape(v)) for v in arrays
    )


def _leading(order: list[Var], wanted: Collection[Var]) -> set[Var]:
    """The Vars of the graph from which a gradient reaches a wanted one."""
    leads = set(wanted)
    for var in reversed(order):
        if any(arg in leads for arg in var.creator or () if isinstance(arg, Var)):
            leads.add(var)
    return leads


def _report_cycle(stuck: list[Var]) -> None:
    names = sorted({f"{var.creator.name} {var.shape}" for var in stuck if var.creator})
    raise ValueError(
        f"the graph must have no cycle, because no value can come before itself: look at "
        f"{', '.join(names)}; unroll a recurrence over a fixed number of steps"
    )


def _require_finite(y: Var, place: int, d: Value) -> None:
    assert y.creator is not None
    require_finite(d, f"{y.creator.name} of {shapes(y.creator)}: the gradient of argument {place}")
