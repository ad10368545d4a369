"""Random graphs of up to 200 operations that numpy, our engine and torch can all compute.

Every register is a 2 by 3 matrix. Before an operation uses one, it is rescaled by constants into
the range where that operation is at home; where a value would leave [1e-3, 1e3] or come within
1e-3 of a kink, a plain subtraction takes its place.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

import everynet.autodiff as ad

SMALL, LARGE = 1e-3, 1e3
LEAVES = {"a": (2, 3), "b": (2, 3), "row": (3,), "column": (2, 1), "square": (3, 3)}
MASK = np.array([[True, False, True], [False, True, False]])
CLASSES = np.array([2, 0])


class Torch:
    """The functions of our engine, by the names it gives them, in torch."""

    exp, log, sqrt, sin, cos, tanh = (
        torch.exp,
        torch.log,
        torch.sqrt,
        torch.sin,
        torch.cos,
        torch.tanh,
    )
    arctan, sigmoid, relu, softplus = torch.arctan, torch.sigmoid, torch.relu, F.softplus
    abs, matmul, softmax, log_softmax = torch.abs, torch.matmul, F.softmax, F.log_softmax
    maximum, minimum, leaky_relu, logsumexp = (
        torch.maximum,
        torch.minimum,
        F.leaky_relu,
        torch.logsumexp,
    )
    conv2d, avg_pool2d, max_pool2d = F.conv2d, F.avg_pool2d, F.max_pool2d
    solve, cholesky = torch.linalg.solve, torch.linalg.cholesky
    binary_cross_entropy_with_logits = staticmethod(F.binary_cross_entropy_with_logits)

    @staticmethod
    def constant(x):
        return torch.as_tensor(x)

    @staticmethod
    def sum(x, axis, keepdims):
        return x.sum(axis, keepdim=keepdims)

    @staticmethod
    def mean(x, axis, keepdims):
        return x.mean(axis, keepdim=keepdims)

    @staticmethod
    def var(x, axis, keepdims):
        return x.var(axis, correction=0, keepdim=keepdims)

    @staticmethod
    def max(x, axis, keepdims):
        return x.amax(axis, keepdim=keepdims)

    @staticmethod
    def min(x, axis, keepdims):
        return x.amin(axis, keepdim=keepdims)

    @staticmethod
    def where(condition, a, b):
        return torch.where(torch.as_tensor(condition), a, b)

    @staticmethod
    def clip(x, low, high):
        return torch.clip(x, low, high)

    @staticmethod
    def concatenate(xs, axis):
        return torch.cat(xs, axis)

    @staticmethod
    def stack(xs):
        return torch.stack(xs)

    @staticmethod
    def transpose(x):
        return x.T

    @staticmethod
    def pad(x, width, constant_values):
        return F.pad(x, (width, width, width, width), value=constant_values)

    @staticmethod
    def broadcast_to(x, shape):
        return torch.broadcast_to(x, shape)

    @staticmethod
    def scatter(x, index, shape):
        return torch.zeros(shape, dtype=x.dtype).index_put(
            tuple(map(torch.as_tensor, index)), x, accumulate=True
        )

    @staticmethod
    def cross_entropy(x, classes, reduction):
        return F.cross_entropy(x, torch.as_tensor(classes), reduction=reduction)


class Ours:
    """Our engine, with constants left as arrays."""

    constant = staticmethod(np.asarray)

    def __getattr__(self, name):
        return getattr(ad, name)


def image(x):
    return x.reshape(1, 1, 2, 3)


POSITIVE, SIGNED, ABOVE_ONE, FAR = (0.3, 1.8), (-1.5, 1.2), (1.3, 3.0), (2.2, 3.5)
TWICE = (np.array([1, 1]), np.array([0, 2]))

OPERATIONS = {
    "add": ((SIGNED, FAR), lambda m, w, u, v: u + v),
    "subtract": ((POSITIVE, FAR), lambda m, w, u, v: u - v),
    "multiply": ((SIGNED, POSITIVE), lambda m, w, u, v: u * v),
    "divide": ((SIGNED, POSITIVE), lambda m, w, u, v: u / v),
    "power": ((POSITIVE, SIGNED), lambda m, w, u, v: u**v),
    "cube": ((SIGNED,), lambda m, w, u: u**3),
    "negative": ((SIGNED,), lambda m, w, u: -u),
    "exp": ((SIGNED,), lambda m, w, u: m.exp(u)),
    "log": ((ABOVE_ONE,), lambda m, w, u: m.log(u)),
    "sqrt": ((POSITIVE,), lambda m, w, u: m.sqrt(u)),
    "sin": ((SIGNED,), lambda m, w, u: m.sin(u)),
    "cos": ((SIGNED,), lambda m, w, u: m.cos(u)),
    "tanh": ((SIGNED,), lambda m, w, u: m.tanh(u)),
    "arctan": ((SIGNED,), lambda m, w, u: m.arctan(u)),
    "sigmoid": ((SIGNED,), lambda m, w, u: m.sigmoid(u)),
    "softplus": ((SIGNED,), lambda m, w, u: m.softplus(u)),
    "relu": ((SIGNED,), lambda m, w, u: m.relu(u) + 0.5),
    "leaky_relu": ((SIGNED,), lambda m, w, u: m.leaky_relu(u, 0.1)),
    "abs": ((SIGNED,), lambda m, w, u: m.abs(u)),
    "maximum": ((SIGNED, SIGNED), lambda m, w, u, v: m.maximum(u, v)),
    "minimum": ((SIGNED, SIGNED), lambda m, w, u, v: m.minimum(u, v)),
    "clip": ((SIGNED,), lambda m, w, u: m.clip(u, -0.9, 0.8)),
    "where": ((SIGNED, POSITIVE), lambda m, w, u, v: m.where(MASK, u, v)),
    "sum": ((POSITIVE, SIGNED), lambda m, w, u, v: m.sum(u, 1, keepdims=True) + v * w["row"]),
    "mean": ((POSITIVE, SIGNED), lambda m, w, u, v: m.mean(u, 0, keepdims=True) * v + w["column"]),
    "var": ((POSITIVE, FAR), lambda m, w, u, v: m.var(u, 1, keepdims=True) + v),
    "max": ((SIGNED, FAR), lambda m, w, u, v: m.max(u, 1, keepdims=True) + v),
    "min": ((SIGNED, FAR), lambda m, w, u, v: m.min(u, 0, keepdims=True) * v),
    "logsumexp": ((SIGNED, SIGNED), lambda m, w, u, v: m.logsumexp(u, 1, True) + v),
    "softmax": ((SIGNED,), lambda m, w, u: m.softmax(u, 1)),
    "log_softmax": ((SIGNED,), lambda m, w, u: m.log_softmax(u, 0)),
    "cross_entropy": (
        (SIGNED, FAR),
        lambda m, w, u, v: m.cross_entropy(u, CLASSES, reduction="none")[:, None] + v,
    ),
    "binary_cross_entropy": (
        (SIGNED, (0.1, 0.9)),
        lambda m, w, u, v: m.binary_cross_entropy_with_logits(u, v, reduction="none"),
    ),
    "matmul": ((SIGNED,), lambda m, w, u: m.matmul(u, w["square"])),
    "matmul batch": (
        (POSITIVE, POSITIVE),
        lambda m, w, u, v: m.matmul(m.stack((u, v)), w["square"])[1] + u,
    ),
    "solve": (
        (SIGNED,),
        lambda m, w, u: m.solve(w["square"] + m.constant(4 * np.eye(3)), m.transpose(u)).T,
    ),
    "cholesky": (
        (SIGNED,),
        lambda m, w, u: m.matmul(
            u,
            m.cholesky(m.matmul(w["square"], m.transpose(w["square"])) + m.constant(2 * np.eye(3))),
        ),
    ),
    "reshape": ((SIGNED, SIGNED), lambda m, w, u, v: u.reshape(3, 2).T * v),
    "index": ((SIGNED,), lambda m, w, u: u[[1, 1]]),
    "slice": ((SIGNED, POSITIVE), lambda m, w, u, v: u[:, :1] * v[1:, :]),
    "scatter": ((SIGNED, SIGNED), lambda m, w, u, v: m.scatter(u[:, 1], TWICE, (2, 3)) + v),
    "concatenate": ((SIGNED, POSITIVE), lambda m, w, u, v: m.concatenate((u, v), 0)[1:3]),
    "stack": ((SIGNED, POSITIVE), lambda m, w, u, v: m.stack((u[0], v[1]))),
    "pad": ((SIGNED,), lambda m, w, u: m.pad(u, 1, constant_values=0.7)[1:3, :3]),
    "broadcast_to": ((POSITIVE,), lambda m, w, u: m.broadcast_to(u[1], (2, 3)) * u),
    "conv2d": (
        (POSITIVE,),
        lambda m, w, u: m.conv2d(image(u), w["square"].reshape(1, 1, 3, 3), padding=1)[0, 0],
    ),
    "avg_pool2d": (
        (POSITIVE,),
        lambda m, w, u: m.avg_pool2d(image(u), (2, 1), 1, (1, 0))[0, 0, :2],
    ),
    "max_pool2d": (
        (SIGNED,),
        lambda m, w, u: m.max_pool2d(image(u), (1, 3), 1, (0, 1))[0, 0] + u[:, :1],
    ),
}


def apart(x, axis):
    """The least distance between two neighbours of sorted x."""
    return np.diff(np.sort(x, axis), axis=axis).min()


KINKS = {
    "relu": lambda u: np.abs(u).min(),
    "leaky_relu": lambda u: np.abs(u).min(),
    "abs": lambda u: np.abs(u).min(),
    "maximum": lambda u, v: np.abs(u - v).min(),
    "minimum": lambda u, v: np.abs(u - v).min(),
    "clip": lambda u: min(np.abs(u + 0.9).min(), np.abs(u - 0.8).min()),
    "max": lambda u, v: apart(u, 1),
    "min": lambda u, v: apart(u, 0),
    "max_pool2d": lambda u: apart(u, 1),
}
"""How far the operands are from where the slope jumps."""


@dataclass
class Graph:
    """Leaves, and for each step its operation, registers, scales and shifts."""

    leaves: dict
    steps: list = field(default_factory=list)

    def run(self, backend, leaves):
        """The registers, then one number that depends on all of them."""
        registers = [leaves["a"], leaves["b"]]
        for name, places, scales, shifts in self.steps:
            operands = [
                registers[i] * a + b for i, a, b in zip(places, scales, shifts, strict=True)
            ]
            registers.append(OPERATIONS[name][1](backend, leaves, *operands))
        used = {i for _, places, _, _ in self.steps for i in places}
        total = 0.0
        for i in range(len(registers)):
            if i not in used:
                total = total + backend.exp(registers[i] * 0.1).sum()
        return registers, total


def fit(x, low, high):
    """A scale and a shift that bring x into [low, high] without enlarging it."""
    scale = min(1.0, (high - low) / max(np.ptp(x), 1e-12))
    return scale, (low + high) / 2 - scale * (x.max() + x.min()) / 2


def in_range(x):
    size = np.abs(x)
    return bool(np.isfinite(size).all() and size.min() >= SMALL and size.max() <= LARGE)


def plans(most=200):
    """A seed for the leaves, and operations with how far back their operands lie."""
    step = st.tuples(st.sampled_from(list(OPERATIONS)), st.integers(0, 11), st.integers(0, 11))
    steps = st.integers(1, most).flatmap(lambda n: st.lists(step, min_size=n, max_size=n))
    return st.tuples(st.integers(0, 2**32 - 1), steps)


def grow(plan):
    """The graph of a plan, or None where even a subtraction is out of bounds."""
    seed, wanted = plan
    random = np.random.default_rng(seed)
    leaves = {name: random.uniform(0.3, 1.5, shape) for name, shape in LEAVES.items()}
    graph, values = Graph(leaves), [leaves["a"], leaves["b"]]
    for name, *back in wanted:
        places = [max(0, len(values) - 1 - i) for i in back]
        step = tried(name, places, values, leaves) or tried("subtract", places, values, leaves)
        if step is None:
            return None
        graph.steps.append(step[0])
        values.append(step[1])
    return graph


def tried(name, places, values, leaves):
    """The step and its value, or None where a value or a kink is out of bounds."""
    ranges, function = OPERATIONS[name]
    places = places[: len(ranges)]
    fits = [fit(values[i], *r) for i, r in zip(places, ranges, strict=True)]
    operands = [values[i] * a + b for i, (a, b) in zip(places, fits, strict=True)]
    if not all(map(in_range, operands)):
        return None
    if name in KINKS and KINKS[name](*operands) < SMALL:
        return None
    with ad.no_grad():
        wrapped = {key: ad.Var(leaf) for key, leaf in leaves.items()}
        y = function(Ours(), wrapped, *map(ad.stop_gradient, operands)).val
    if not in_range(y):
        return None
    return (name, places, [a for a, _ in fits], [b for _, b in fits]), y
