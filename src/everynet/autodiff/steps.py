"""The graph and its backward pass in words: a table to follow by hand, and text for Graphviz."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everynet.autodiff.arraylike import Value, value
from everynet.autodiff.graph import Op, Var, seed_of
from everynet.autodiff.reverse import pullback, topological
from everynet.system.html import table

HEADINGS = ("step", "operation", "value", "gradient", "goes to", "slope", "adds", "so far")


def brief(x: Value) -> str:
    """A number, a short vector, or the shape and length of anything larger."""
    x = np.asarray(value(x)) + 0.0  # no -0
    if x.ndim == 0:
        return f"{x:.4g}"
    if x.size <= 4:
        text = np.array2string(x, formatter={"float_kind": lambda v: f"{v:.3g}"}, separator=" ")
        return " ".join(text.split())  # on one line
    return f"{'x'.join(map(str, x.shape))} |{np.linalg.norm(x):.3g}|"


@dataclass
class Flow:
    """One argument of one Op: what the backward pass sent to it."""

    var: Var
    op: Op
    place: int
    adds: Value = None  # None for a constant

    @property
    def arg(self) -> Value:
        return self.op[self.place]

    @property
    def slope(self) -> Value:
        """The local derivative of a scalar by a scalar; None of anything larger."""
        if self.var.ndim or self.arg.ndim:
            return None
        vals = [value(arg) for arg in self.op]
        return self.op.vjps[self.place](np.ones((), self.var.dtype), self.var.val, *vals)


class Story:
    """A graph with a name for each Var, in the order of the backward pass, and what flowed."""

    def __init__(self, root: Var, seed: Value = None) -> None:
        self.root = root
        self.order = topological(root) if root.creator is not None else []
        self.flows: dict[Var, list[Flow]] = {}
        for var in self.order:
            op = var.creator
            assert op is not None
            self.flows[var] = [Flow(var, op, i) for i in range(len(op.vjps))]

        def watch(var: Var, place: int, adds: Value) -> None:
            self.flows[var][place].adds = adds

        scalar = root.requires_grad and (root.size == 1 or seed is not None)
        self.gradients = (
            dict(pullback(root, seed_of(root, seed, False), watch=watch)) if scalar else {}
        )
        self.names = self._name()

    def _name(self) -> dict[Var, str]:
        """The given names; else x1, x2, ... for leaves, v1, v2, ... in the order of computing."""
        leaves = dict.fromkeys(
            flow.arg
            for var in reversed(self.order)
            for flow in self.flows[var]
            if isinstance(flow.arg, Var) and flow.arg.creator is None
        )
        taken = {var.name for var in (*leaves, *self.order)}
        names: dict[Var, str] = {}
        for letter, those in (("x", leaves), ("v", reversed(self.order))):
            free = (f"{letter}{i}" for i in range(1, 10**9) if f"{letter}{i}" not in taken)
            names.update({var: var.name or next(free) for var in those})
        names.setdefault(self.root, self.root.name or "x1")
        if not self.root.name and self.order and "y" not in taken:
            names[self.root] = "y"
        return names

    def called(self, x: Value) -> str:
        """The name of a Var, or the value of a constant."""
        return self.names[x] if isinstance(x, Var) else brief(x)

    def formula(self, var: Var) -> str:
        """How a Var was computed: v1 = multiply(x, 2)."""
        assert var.creator is not None
        args = ", ".join(self.called(arg) for arg in var.creator[: len(var.creator.vjps)])
        return f"{self.names[var]} = {var.creator.name}({args})"


@dataclass(frozen=True)
class Step:
    """One line of the table: what one Op sends to one of its arguments."""

    step: int
    operation: str
    value: Value
    gradient: Value
    goes_to: str
    slope: Value  # of a scalar by a scalar; else None: a vector-Jacobian product
    adds: Value
    so_far: Value


class Trace(tuple[Step, ...]):
    """The steps of a backward pass; printed, a table."""

    __slots__ = ()

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The lines of the table below its headings, as text."""
        rows: list[tuple[str, ...]] = []
        before = 0
        for s in self:
            new = s.step != before
            first = (
                (str(s.step), s.operation, brief(s.value), brief(s.gradient)) if new else ("",) * 4
            )
            slope = "" if s.slope is None else brief(s.slope)
            rows.append((*first, s.goes_to, slope, brief(s.adds), brief(s.so_far)))
            before = s.step
        return rows

    def __repr__(self) -> str:
        rows = [HEADINGS, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        return table(HEADINGS, self.rows)


def trace(y: Var, seed: Value = None) -> Trace:
    """The backward pass from y, a line for each argument of each Op: print it.

    Each line says: the gradient of y by the output of the Op, times the slope of that output by
    one argument, adds to the gradient of y by that argument.
    """
    story = Story(y, seed)
    steps: list[Step] = []
    so_far: dict[Var, Value] = {}
    for number, var in enumerate(story.order, start=1):
        for flow in story.flows[var]:
            if flow.adds is None:
                continue
            total = so_far.get(flow.arg, 0.0) + flow.adds
            so_far[flow.arg] = total
            steps.append(
                Step(
                    step=number,
                    operation=story.formula(var),
                    value=var.val,
                    gradient=story.gradients[var],
                    goes_to=story.called(flow.arg),
                    slope=flow.slope,
                    adds=flow.adds,
                    so_far=total,
                )
            )
    return Trace(steps)


def to_dot(y: Var, seed: Value = None) -> str:
    """The graph in the language of Graphviz: Ops are boxes, values and gradients on the edges."""
    story = Story(y, seed)
    nodes = {"out": f"shape=ellipse, label={_quoted(story.names[y])}"}
    edges: list[str] = []
    known: dict[int, str] = {}

    def node(x: Value) -> str:
        """The name of the Op that made x, or of a leaf."""
        if id(x) not in known:
            op = x.creator if isinstance(x, Var) else None
            known[id(x)] = f"{'op' if op else 'leaf'}{len(known)}"
            shape, label = ("box", op.symbol or op.name) if op else ("ellipse", story.called(x))
            nodes[known[id(x)]] = f"shape={shape}, label={_quoted(label)}"
        return known[id(x)]

    def edge(x: Value, head: str, gradient: Value) -> None:
        label = brief(x) + ("" if gradient is None else f"\n{brief(gradient)}")
        edges.append(f"{node(x)} -> {head} [label={_quoted(label)}]")

    if story.order:
        edge(y, "out", story.gradients.get(y))
    for var in story.order:
        for flow in story.flows[var]:
            edge(flow.arg, node(var), flow.adds)
    lines = ["rankdir=LR", *(f"{name} [{how}]" for name, how in nodes.items()), *edges]
    return "digraph {\n" + "".join(f"  {line};\n" for line in lines) + "}\n"


def is_computed(x: Value) -> bool:
    """Whether it is a Var that an Op made."""
    return isinstance(x, Var) and x.creator is not None


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
