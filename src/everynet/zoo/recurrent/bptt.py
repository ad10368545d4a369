"""Backpropagation through time by hand: gradients of each loss at each earlier state, added up.

    h_t    = tanh(U x_t + W h_{t-1} + b),   o_t = V h_t + c      (1)  network
    E      = sum_t alpha_t L_t,   L_t = -log softmax(o_t)[y_t]   (2)  weighted loss
    g_o(t) = alpha_t (softmax(o_t) - 1[y_t])                     (3)  of the logits
    g_h(t) = V^T g_o(t) + W^T g_a(t+1)                           (4)  of the state: now and later
    g_a(t) = (1 - h_t^2) * g_h(t)                                (5)  through tanh
    g_V    = sum_t g_o(t) h_t^T,       g_c = sum_t g_o(t)        (6)
    g_W    = sum_t g_a(t) h_{t-1}^T                              (7)
    g_U    = sum_t g_a(t) x_t^T,       g_b = sum_t g_a(t)        (8)
    P(t,k) = g_a(t,k) h_{k-1}^T,       g_W = sum_t sum_{k<=t} P(t,k)        (9)  parts
    g_W^n  = sum of P(t,k) with t and k in the same window of n  (10) truncated

g_z is the gradient of E with respect to z, `*` the product of each unit with its own, 1[y] is 1 at
place y and 0 elsewhere; g_a after the last time step is 0. (4) and (5) together pass a gradient
back by W^T diag(1 - h_{t+1}^2). In (9) g_a(t,k) is the gradient of loss t alone at state k: the lag
t - k is how far. Truncated, the state is carried from window to window and the gradient ends at its
edge: what crosses an edge is lost, and no more than n states are ever kept. With n = T it is the
whole.

Werbos (1990), "Backpropagation through time: what it does and how to do it",
doi:10.1109/5.58337; Williams, Peng (1990), "An efficient gradient-based algorithm for on-line
training of recurrent network trajectories", doi:10.1162/neco.1990.2.4.490 (truncated).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import one_hot

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.recurrent.pictures.through_time import parts_by_lag


class Weights(NamedTuple):
    """The five weights of a network that predicts a class at every time step."""

    u: Float[Tensor, "hidden input"]
    w: Float[Tensor, "hidden hidden"]
    b: Float[Tensor, " hidden"]
    v: Float[Tensor, "classes hidden"]
    c: Float[Tensor, " classes"]


class LabelledSequence(NamedTuple):
    """A sequence, the true class at each time step, and how much the loss there counts."""

    x: Float[Tensor, "time input"]
    y: Int64[Tensor, " time"]
    alpha: Float[Tensor, " time"]

    def cut(self, start: int, stop: int) -> LabelledSequence:
        """The time steps from `start` up to `stop`."""
        return LabelledSequence(self.x[start:stop], self.y[start:stop], self.alpha[start:stop])


class BPTTGradients(NamedTuple):
    """BPTTGradients for the weights, and those for every logit and state."""

    weights: Weights
    o: Float[Tensor, "time classes"]
    h: Float[Tensor, "time hidden"]


def run(
    net: Weights, x: Float[Tensor, "time input"], h: Float[Tensor, " hidden"]
) -> tuple[list[Float[Tensor, " hidden"]], list[Float[Tensor, " classes"]]]:
    """The states h_0..h_T and the logits o_1..o_T."""
    states, logits = [h], []
    for now in x:
        states.append(torch.tanh(net.u @ now + net.w @ states[-1] + net.b))  # (1)
        logits.append(net.v @ states[-1] + net.c)
    return states, logits


def loss(
    o: Float[Tensor, "time classes"], y: Int64[Tensor, " time"], alpha: Float[Tensor, " time"]
) -> Float[Tensor, ""]:
    """E of the logits of a sequence."""
    return -(alpha * o.log_softmax(1).gather(1, y[:, None])[:, 0]).sum()  # (2)


def through_time(
    net: Weights, given: LabelledSequence, h: Float[Tensor, " hidden"]
) -> tuple[BPTTGradients, Float[Tensor, " hidden"]]:
    """All gradients of E by hand, in one pass back through time, and the last state."""
    states, o = (torch.stack(part) for part in run(net, given.x, h))
    now, before = states[1:], states[:-1]
    g_o = given.alpha[:, None] * (o.softmax(1) - one_hot(given.y, o.shape[1]))  # (3)
    g_h, g_a = torch.empty_like(now), torch.empty_like(now)
    later = torch.zeros_like(h)
    for t in reversed(range(len(now))):
        g_h[t] = net.v.T @ g_o[t] + net.w.T @ later  # (4)
        g_a[t] = later = (1 - now[t] ** 2) * g_h[t]  # (5)
    g_v, g_c = g_o.T @ now, g_o.sum(0)  # (6)
    g_w = g_a.T @ before  # (7)
    g_u, g_b = g_a.T @ given.x, g_a.sum(0)  # (8)
    return BPTTGradients(Weights(g_u, g_w, g_b, g_v, g_c), g_o, g_h), states[-1]


def truncated(
    net: Weights, given: LabelledSequence, h: Float[Tensor, " hidden"], window: int
) -> BPTTGradients:
    """The gradients window by window: the state goes on, the gradient ends at each edge."""
    if window < 1:
        raise ValueError(f"window ({window}) must be at least 1, because a gradient needs a token")
    found = []
    for start in range(0, len(given.x), window):
        gradients, h = through_time(net, given.cut(start, start + window), h)
        found.append(gradients)
    summed = [
        sum(parts[1:], start=parts[0]) for parts in zip(*(g.weights for g in found), strict=True)
    ]
    return BPTTGradients(
        Weights(*summed), torch.cat([g.o for g in found]), torch.cat([g.h for g in found])
    )


def parts(
    net: Weights, given: LabelledSequence, h: Float[Tensor, " hidden"]
) -> Float[Tensor, "losses states hidden hidden"]:
    """P(t,k) of every loss t and every state k: zero where k is later than t."""
    states, o = (torch.stack(part) for part in run(net, given.x, h))
    time = len(o)
    p = torch.zeros(time, time, len(h), len(h), dtype=o.dtype)
    g_o = given.alpha[:, None] * (o.softmax(1) - one_hot(given.y, o.shape[1]))
    for t in range(time):
        g = (1 - states[t + 1] ** 2) * (net.v.T @ g_o[t])
        for k in range(t, -1, -1):
            p[t, k] = torch.outer(g, states[k])  # (9)
            g = (1 - states[k] ** 2) * (net.w.T @ g)
    return p


def same_window(time: int, window: int) -> Float[Tensor, "losses states"]:
    """1 where a loss and a state are in one window."""
    number = torch.arange(time) // window
    return (number[:, None] == number).double()


def by_autograd(
    net: Weights, given: LabelledSequence, h: Float[Tensor, " hidden"]
) -> BPTTGradients:
    """The same by torch, which knows nothing of time."""
    with torch.enable_grad():
        leaves = Weights(*(part.detach().requires_grad_() for part in net))
        states, o = run(leaves, given.x, h)
        value = loss(torch.stack(o), given.y, given.alpha)
        found = torch.autograd.grad(value, [*leaves, *o, *states[1:]])
    to_o, to_h = found[5 : 5 + len(o)], found[5 + len(o) :]
    return BPTTGradients(Weights(*found[:5]), torch.stack(to_o), torch.stack(to_h))


def kept_bytes(
    net: Weights, given: LabelledSequence, h: Float[Tensor, " hidden"], window: int
) -> int:
    """The most that torch keeps at once for the way back, without the weights, in bytes."""
    leaves = Weights(*(part.detach().requires_grad_() for part in net))
    weights, most = {part.data_ptr() for part in leaves}, 0
    for start in range(0, len(given.x), window):
        here, kept = given.cut(start, start + window), dict[int, int]()

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor.detach()

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            states, o = run(leaves, here.x, h)
            value = loss(torch.stack(o), here.y, here.alpha)
        torch.autograd.grad(value, leaves)
        h = states[-1].detach()
        most = max(most, sum(size for place, size in kept.items() if place not in weights))
    return most


# -------- the network ends here; training and pictures follow --------


def largest(found: BPTTGradients, expected: BPTTGradients) -> float:
    """The largest difference between two sets of gradients, over all of them."""
    pairs = zip((*found.weights, *found[1:]), (*expected.weights, *expected[1:]), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


@dataclass(frozen=True, kw_only=True)
class ThroughTime(Simulation):
    """BPTTGradients of a random network by hand and by torch, whole and cut into windows."""

    meanings: ClassVar[Mapping[str, str]] = {
        "autograd_error": "how far gradients by hand are from torch's: rounding",
        "window_error": "how far truncated gradients are from the sum of their parts",
        "full_growth": "by what factor kept states grow with the length, for the whole gradient",
        "window_growth": "the same for a window: not at all",
        "lost_by_window_1": "the part of the gradient that a window of one time step loses",
    }

    length: int = 48
    """Time steps of the sequence."""
    input_size: int = 8
    """Numbers at a time step."""
    hidden_size: int = 24
    """Units of the state."""
    classes: int = 6
    """Classes, one of which is to be predicted at each time step."""
    radius: float = 1.5
    """Largest size of an eigenvalue of W."""
    window: int = 8
    """Time steps of the window whose memory is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "input_size", "hidden_size", "window")
        self.at_least(2, "length", "classes")
        self.above(0, "radius")
        self.require(self.window <= self.length, "window", "at most length")

    def draw_network(
        self, generator: torch.Generator, length: int
    ) -> tuple[Weights, LabelledSequence, Float[Tensor, " hidden"]]:
        """A network, a sequence of that length and a first state."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        units, inputs, classes = self.hidden_size, self.input_size, self.classes
        w = normal(units, units)
        w = self.radius * w / torch.linalg.eigvals(w).abs().max()
        u, v = normal(units, inputs) / inputs**0.5, normal(classes, units) / units**0.5
        net = Weights(u, w, 0.1 * normal(units), v, 0.1 * normal(classes))
        y = torch.randint(classes, (length,), generator=generator)
        alpha = torch.rand(length, generator=generator, dtype=torch.float64)
        return net, LabelledSequence(normal(length, inputs), y, alpha), 0.5 * normal(units).tanh()

    def windows(self) -> list[int]:
        """1, 2, 4 and so on, and the whole length."""
        powers = [2**n for n in range(self.length.bit_length()) if 2**n < self.length]
        return [*powers, self.length]

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        net, given, h = self.draw_network(generator, self.length)
        whole = through_time(net, given, h)[0]
        every = parts(net, given, h)
        lags = torch.arange(self.length)[:, None] - torch.arange(self.length)
        by_lag = torch.stack([every[lags == lag].sum(0) for lag in range(self.length)])
        missing = by_lag.cumsum(0) - whole.weights.w
        cuts, sums = [], []
        for window in self.windows():
            same = same_window(self.length, window)
            cuts.append(truncated(net, given, h, window).weights.w)
            sums.append(torch.einsum("tk,tkij->ij", same, every))  # (10)
        lengths = [self.length * n for n in (1, 2, 4, 8)]
        kept = []
        for length in lengths:
            longer = self.draw_network(generator, length)
            kept.append([kept_bytes(*longer, window) for window in (length, self.window)])
        full = truncated(net, given, h, self.length)
        error = max(largest(whole, by_autograd(net, given, h)), largest(whole, full))
        return {
            "autograd_error": torch.tensor(error, dtype=torch.float64),
            "parts": every.flatten(2).norm(dim=2),
            "by_lag": by_lag.flatten(1).norm(dim=1),
            "missing": missing.flatten(1).norm(dim=1) / whole.weights.w.norm(),
            "whole": whole.weights.w,
            "cuts": torch.stack(cuts),
            "sums": torch.stack(sums),
            "lengths": torch.tensor(lengths),
            "kept": torch.tensor(kept),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        kept = result["kept"].double()
        growth = kept[-1] / kept[0]
        lost = (result["cuts"] - result["whole"]).flatten(1).norm(dim=1)
        return {
            "autograd_error": float(result["autograd_error"]),
            "window_error": float((result["cuts"] - result["sums"]).abs().max()),
            "full_growth": float(growth[0]),
            "window_growth": float(growth[1]),
            "lost_by_window_1": float(lost[0] / result["whole"].norm()),
        }

    def picture_parts(self, result: Mapping[str, Tensor]) -> Figure:
        """Left the size of the gradient of each loss, across, at each state, down; right by lag.

        The second curve is the share that is missing where longer lags are left out.
        """
        return parts_by_lag(result["parts"], result["by_lag"], result["missing"][:-1])

    def picture_windows(self, result: Mapping[str, Tensor]) -> Figure:
        """Left the share of the gradient that a window loses; right the memory kept for backward.

        A full window loses nothing, and the memory of a window does not grow with T.
        """
        lost = (result["cuts"] - result["whole"]).flatten(1).norm(dim=1) / result["whole"].norm()
        windows, lengths = torch.tensor(self.windows()), result["lengths"]
        kept = result["kept"].double().T / 1024
        return panels(
            Panel(
                {"random network": (windows, lost)}, "n, time steps of a window",
                "lost of $g_W$, share of its norm", log="x",
                marks={"the whole": float(self.length)}, legend="none",
            ),
            Panel(
                {"whole": (lengths, kept[0]), f"n = {self.window}": (lengths, kept[1])},
                "T, time steps of the sequence", "kept for backward, KiB",
            ),
            width=3.25, height=2.9,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), length=8, window=2)


RECIPES = {
    "bptt": ThroughTime(
        goal="autograd_error <= 1e-12 and window_error <= 1e-12 and window_growth <= 1 "
        "and full_growth >= 7",
        covers=("R2", "R3"),
    ),
}
