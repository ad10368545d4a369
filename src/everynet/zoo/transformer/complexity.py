"""What attention costs: its multiplications, its path lengths, and what it knows of order.

    E_ij  = q_i . k_j               n^2 d multiplications    (1)  self-attention: its scores
    h_t   = W h_{t-1}               n d^2                    (2)  recurrence: its product
    y_t   = sum_{m<k} W_m x_{t-m}   k n d^2                  (3)  convolution of kernel size k
    E_ij  = q_i . k_j, |i - j| <= r   n r d                  (4)  windowed attention: its scores
    L     = min steps from x_1 to the last output            (5)  path length
    A(P X) = P A(X)                                          (6)  A self-attention, P any order
    A(P X + PE) != P A(X + PE)                               (7)  with positions PE

n is the length of a sequence and d the width of its vectors. Multiplications are counted, not
timed, and of each layer only the term that sets it apart: projections are n d^2 in all of them. The
exponents are slopes of their logarithm, where n, d, k or r is doubled several times. (4) computes
n (r + 2 r) scores by `split_windows`. Products that have to wait for one another are one in (1),
(3) and (4), and n in (2). A path goes through as many layers as it needs, for (2) from one state to
the next: L is 1, n, log_k n for kernels whose gaps grow k times from layer to layer, and n / r. So
self-attention is cheaper than a recurrence while n < d, and anything is one step away; but by (6)
it sees a set, and only (7) tells it the order.

Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762, section 4 and table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import conv1d, pad
from torch.utils.flop_counter import FlopCounterMode

from everynet.nn.attention import (
    WindowedAttention,
    banded_mask,
    causal_mask,
    padding_mask,
    score_dot,
    split_windows,
)
from everynet.nn.positions import rotate_positions, sinusoidal
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.transformer.pictures.attention import draw_masks, draw_positions

LAYERS = ("self-attention", "recurrence", "convolution", "windowed attention")
EXPONENTS = ((2, 1, 0, 0), (1, 2, 0, 0), (1, 2, 1, 0), (1, 1, 0, 1))
"""Of n, d, k and r in the multiplications of each layer, as the table of the paper has them."""


def make_layers(n: int, d: int, k: int, r: int) -> tuple[Callable[[], Tensor], ...]:
    """The four layers on sequences without memory: only their shapes are computed."""
    x, w = (torch.empty(*shape, device="meta", requires_grad=True) for shape in ((n, d), (d, d)))
    kernel = torch.empty(d, d, k, device="meta", requires_grad=True)

    def recurrence() -> Tensor:
        h = x[:1]
        for _ in range(n):
            h = h @ w  # (2)
        return h

    def windowed() -> Tensor:
        query, key, *_ = split_windows(x[None, None], x[None, None], x[None, None], r)
        return score_dot(query, key)  # (4)

    return (
        lambda: score_dot(x, x),  # (1)
        recurrence,
        lambda: conv1d(pad(x.T[None], (k - 1, 0)), kernel),  # (3)
        windowed,
    )


def count_products(layer: Callable[[], Tensor]) -> tuple[int, int]:
    """The multiplications of a layer, and its longest chain of products, each waiting for one."""
    with FlopCounterMode(display=False) as counter, torch.enable_grad():
        y = layer()
    depth: dict[Any, int] = {}
    waiting: list[Any] = [y.grad_fn]
    while waiting:  # the longest chain of products, from the inputs on
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in depth]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        is_product = node.name().startswith(("Mm", "Bmm", "Convolution"))
        depth[node] = max((depth[each] for each in before), default=0) + is_product
    return counter.get_total_flops() // 2, depth[y.grad_fn]


def connect(layer: str, n: int, k: int, r: int, step: int) -> Bool[Tensor, "{n} {n}"]:
    """Which positions (columns) each position (row) reads in step `step` of a path."""
    distance = torch.arange(n)[:, None] - torch.arange(n)
    if layer == "self-attention":
        return torch.ones(n, n, dtype=torch.bool)
    if layer == "recurrence":  # first the input, then the state before
        return distance == min(step, 1)
    if layer == "convolution":
        gap: int = k**step
        return (distance % gap == 0) & (distance >= 0) & (distance < k * gap)
    return banded_mask(n, r)


def search_path(layer: str, n: int, k: int, r: int) -> int:
    """Steps from the first input to the last output, searched through the graph."""
    reached, steps = torch.arange(n) == 0, 0
    while not reached[-1]:
        reached, steps = (connect(layer, n, k, r, steps) & reached).any(1), steps + 1  # (5)
    return steps


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class AttentionComplexity(Simulation):
    """Count what four layers cost as sequences, vectors, kernels and windows grow."""

    meanings: ClassVar[Mapping[str, str]] = {
        "exponent_error": "largest difference of an exponent from that of the paper's table",
        "sequential_error": "the same of products that wait for one another: 1, n, 1, 1",
        "path_error": "the same of path lengths: 1, n, log_k n and (n - 1) / r, rounded up",
        "window_error": "largest difference of windowed attention from a banded mask: rounding",
        "equivariance_error": "the same of attention to reordered inputs from reordered outputs",
        "order_effect": "the same with positions added: what is given tells the order",
        "rotation_error": "the same of codes of positions, rotated, from those of later positions",
    }

    length: int = 64
    """Time steps n of the shortest sequence."""
    hidden_size: int = 512
    """Width d of the narrowest vectors."""
    kernel_size: int = 2
    """Time steps k of the smallest kernel."""
    radius: int = 4
    """Neighbours r on each side in the smallest window."""
    doublings: int = 3
    """How often each of the four is doubled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "radius", "doublings")
        self.at_least(2, "kernel_size")
        most = self.radius * 2**self.doublings
        fits = self.length > most and self.length % most == 0
        because = "so that windows of every size fill a sequence"
        wanted = f"at least {2 * most} and a multiple of {most} (radius x 2^doublings)"
        self.require(fits, "length", f"{wanted}, {because}")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        base = (self.length, self.hidden_size, self.kernel_size, self.radius)
        factors = 2 ** torch.arange(self.doublings + 1)
        counts = torch.zeros(len(LAYERS), len(base), len(factors), dtype=torch.int64)
        sequential, paths = counts[:, 0].clone(), counts[:, 0].clone()
        for which in range(len(base)):
            for point, factor in enumerate(factors.tolist()):
                n, d, k, r = (size * (factor if which == i else 1) for i, size in enumerate(base))
                for number, layer in enumerate(make_layers(n, d, k, r)):
                    products, depth = count_products(layer)
                    counts[number, which, point] = products
                    if which == 0:
                        sequential[number, point] = depth
                        paths[number, point] = search_path(LAYERS[number], n, k, r)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        windowed = WindowedAttention(16, 2, 3).double()
        with torch.no_grad():
            for parameter in windowed.parameters():
                parameter.copy_(draw(*parameter.shape) / 4)
            x, attention = draw(2, 20, 16), windowed.attention
            order = torch.randperm(20, generator=generator)
            codes, seen = sinusoidal(64, 32), x + sinusoidal(20, 16)
            errors = [
                windowed(x) - attention(x, mask=banded_mask(20, 3)),
                attention(x[:, order]) - attention(x)[:, order],  # (6)
                attention(x[:, order] + sinusoidal(20, 16)) - attention(seen)[:, order],  # (7)
            ]
        return {
            "lengths": self.length * factors,
            "counts": counts,
            "sequential": sequential,
            "paths": paths,
            "exponents": fit_exponents(counts, factors),
            "errors": torch.stack(errors).abs().amax((1, 2, 3)),
            "codes": codes,
            "rotated": rotate_positions(codes[:-8], 8) - codes[8:],
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        lengths, k, r = result["lengths"].tolist(), self.kernel_size, self.radius
        paths = [[1, n, next(p for p in count() if k**p >= n), -(-(n - 1) // r)] for n in lengths]
        chains = [[1, n, 1, 1] for n in lengths]
        window_error, equivariance_error, order_effect = result["errors"].tolist()
        return {
            "exponent_error": farthest(result["exponents"], EXPONENTS),
            "sequential_error": farthest(result["sequential"].T, chains),
            "path_error": farthest(result["paths"].T, paths),
            "window_error": window_error,
            "equivariance_error": equivariance_error,
            "order_effect": order_effect,
            "rotation_error": float(result["rotated"].abs().max()),
        }

    def picture_complexity(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, Any]]:
        """Multiplications and path lengths of four layers against the length n of a sequence.

        Self-attention costs n to the {power:.2f}, windows to the {windows:.2f}; only a path
        through self-attention does not grow.
        """
        n, slopes = result["lengths"], result["exponents"][:, 0].tolist()
        named = [f"{name}, $n^{{{slope:.2f}}}$" for name, slope in zip(LAYERS, slopes, strict=True)]
        costs = Panel(
            {name: (n, one) for name, one in zip(named, result["counts"][:, 0], strict=True)},
            "time steps $n$", "multiplications", f"counted, $d$ = {self.hidden_size}", log="xy",
            legend="below",
        )  # fmt: skip
        paths = Panel(
            {name: (n, one) for name, one in zip(LAYERS, result["paths"], strict=True)},
            "time steps $n$", "steps from the first input to the last output",
            f"searched, $k$ = {self.kernel_size}, $r$ = {self.radius}", log="xy", legend="below",
        )  # fmt: skip
        return panels(costs, paths), {"power": slopes[0], "windows": slopes[3]}

    def picture_masks(self, result: Mapping[str, Tensor]) -> Figure:
        """Which keys (columns) each query (row) may read, in blue, under four masks.

        Padding is a matter of keys, the causal mask and the band of both.
        """
        padding = padding_mask(torch.tensor([9]), 12)[0].expand(12, 12)
        causal, band = causal_mask(12, 12), banded_mask(12, 2)
        return draw_masks(
            {"causal": causal, "padding": padding, "both": causal & padding, "banded": band}
        )

    def picture_positions(self, result: Mapping[str, Tensor]) -> Figure:
        """The codes of positions, and the inner products of those that are some steps apart.

        Sine and cosine of one angle give the same product from every position; with an angle for
        each, as some texts print it, it depends on the position too.
        """
        return draw_positions(result["codes"])

    def tiny(self) -> Self:
        return replace(super().tiny(), length=16, radius=2, doublings=2)


def fit_exponents(counts: Tensor, factors: Tensor) -> Float[Tensor, "layers variables"]:
    """The slopes of log counts against the log of what is doubled, by least squares."""
    x, y = factors.double().log(), counts.double().log()
    x = x - x.mean()
    return (y * x).sum(-1) / (x * x).sum()


def farthest(found: Tensor, expected: Any) -> float:  # noqa: ANN401 -- nested numbers
    """The largest difference of any two."""
    return float((found.double() - torch.tensor(expected).double()).abs().max())


RECIPES = {
    "attention-complexity": AttentionComplexity(
        goal="exponent_error <= 0.05 and path_error <= 0 and sequential_error <= 0 and "
        "window_error <= 1e-10 and equivariance_error <= 1e-10 and order_effect >= 0.1",
        covers=("T5", "T6", "T9", "T10"),
    ),
}
