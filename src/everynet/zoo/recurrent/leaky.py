"""Leaky units: each keeps a running mean of its input and forgets at a rate of its own.

    mu_t  = alpha mu_{t-1} + (1 - alpha) v_t              (1)  running mean
    alpha = exp(-1 / tau),   tau = -1 / ln alpha          (2)  time constant, tokens
    mu_t  = 1 - alpha^t = 1 - e^(-t / tau)                (3)  response to a step of 1 from rest
    L     = mean (mu_t - y_t)^2                           (4)  what learning lowers

The state goes on with slope alpha whatever the input, so a gradient fades as alpha^n = e^(-n/tau):
a unit with a large tau remembers for long, and one with a small tau sees what is new. A fixed tau
is chosen (`requires_grad_(False)`); a learned one is found by descent on ln tau, which keeps it
positive. Here units learn the time constants of filters from their input and noisy output.

Mozer (1992), "Induction of multiscale temporal structure", NIPS 4, p. 275; Jaeger, Lukosevicius,
Popovici, Siewert (2007), "Optimization and applications of echo state networks with leaky-
integrator neurons", doi:10.1016/j.neunet.2007.04.016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.kernels import linear_recurrence
from everynet.metrics.meanings import meanings
from everynet.plot import Panel, logged, panels
from everynet.recipes.recipe import Pictures
from everynet.recipes.training import Training
from everynet.zoo.recurrent.sequences import generated


class LeakyUnits(nn.Module):
    """Maps v_1..v_T to mu_1..mu_T and the last of them, unit by unit."""

    def __init__(self, taus: Sequence[float]) -> None:
        super().__init__()
        if not taus or min(taus) <= 0:
            raise ValueError(
                f"taus ({list(taus)}) must be positive, because a unit forgets in that many "
                "tokens; give one for each unit"
            )
        self.log_tau = nn.Parameter(torch.tensor(list(taus)).log())

    @property
    def alpha(self) -> Float[Tensor, " units"]:
        """The share of a state that is kept from one token to the next."""
        return torch.exp(-torch.exp(-self.log_tau))  # (2)

    @property
    def tau(self) -> Float[Tensor, " units"]:
        """Time constants, in tokens."""
        return self.log_tau.exp()

    def forward(
        self, v: Float[Tensor, "batch time units"], mu: Float[Tensor, "batch units"] | None = None
    ) -> tuple[Float[Tensor, "batch time units"], Float[Tensor, "batch units"]]:
        mu = torch.zeros_like(v[:, 0]) if mu is None else mu
        alpha = self.alpha.to(v.dtype)
        means = linear_recurrence(alpha.expand_as(v), (1 - alpha) * v, mu)  # (1)
        return means, means[:, -1]


def step_response(
    tau: Float[Tensor, " units"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times units"]:
    """What units come to, so many tokens after their input has risen from 0 to 1."""
    return 1 - torch.exp(-times[:, None] / tau)  # (3)


@dataclass(frozen=True, kw_only=True)
class TimeConstants(Training[LeakyUnits]):
    """Learn the time constants of filters from what goes in and, with noise, what comes out."""

    captions: ClassVar[Mapping[str, str]] = {
        "constants": "The time constants along training: each unit goes from where all begin to "
        "that of its filter (dotted), over two powers of ten.",
        "response": "Left what the learned units make of a step from 0 to 1, points, and their "
        "filters, dashes; right a noisy signal as the quick and the slow units see it.",
    }
    meanings: ClassVar[Mapping[str, str]] = meanings("mse") | {
        "tau_error": (
            "how far the worst learned time constant is from the true one, as a part of it"
        ),
    }

    taus: tuple[float, ...] = (2.0, 8.0, 32.0, 128.0)
    """Time constants of the filters, in tokens."""
    start_tau: float = 16.0
    """Time constant that every unit begins with, in tokens."""
    noise: float = 0.05
    """Standard deviation of the noise on what filters give; their input has 1."""
    length: int = 400
    """Tokens of a sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.taus) and min(self.taus) > 0, "taus", "positive, at least one")
        self.require(self.start_tau > 0, "start_tau", "positive")
        self.require(self.noise >= 0, "noise", "at least 0")
        self.require(self.length >= 2, "length", "at least 2")

    def dataset(self) -> Data:
        units = len(self.taus)

        @torch.no_grad()
        def draw(rows: int, random: torch.Generator) -> Batch:
            v = torch.randn(rows, self.length, 1, generator=random).expand(-1, -1, units)
            y, _ = LeakyUnits(self.taus)(v.contiguous())
            return v.clone(), y + self.noise * torch.randn(y.shape, generator=random)

        spec = {"task": "regression", "shape": [self.length, units], "classes": []}
        taus = " ".join(f"{tau:g}" for tau in self.taus)
        name = f"filtered noise {self.length} {taus} {self.noise:g}"
        return generated(name, draw, spec, self.batch_size, self.seed, held_out=200)

    def model(self, data: Data) -> LeakyUnits:
        return LeakyUnits([self.start_tau] * len(self.taus))

    def objective(self, model: LeakyUnits, batch: Batch) -> Terms:
        v, y = batch
        taus = {f"_tau_{n}": tau.detach() for n, tau in enumerate(model.tau, 1)}
        return {"mse": mse_loss(model(v)[0], y), **taus}  # (4)

    def metrics(self, model: LeakyUnits, batch: Batch) -> dict[str, Tensor]:
        v, y = batch
        true = torch.tensor(self.taus).to(model.tau)
        off = (model.tau / true - 1).abs().max()
        return {
            "mse": (model(v)[0] - y).square().mean((1, 2)),
            "tau_error": off.expand(len(v)),
        }

    def pictures(self, model: LeakyUnits, data: Data, history: History) -> Pictures:
        true, found = torch.tensor(self.taus).double(), model.tau.detach().double().cpu()
        names = [f"tau = {tau:g}" for tau in self.taus]
        learned = logged(history, "train")
        begin = torch.zeros(1).double(), torch.full((1,), self.start_tau).double()
        ways = {}
        for n, name in enumerate(names, 1):
            steps, values = learned[f"_tau_{n}"]
            ways[name] = (torch.cat([begin[0], steps]), torch.cat([begin[1], values]))
        times = torch.logspace(0, 3, 25).round().unique()
        ones = torch.ones(1, int(times[-1]), len(true)).to(model.log_tau)
        risen = model(ones)[0][0, times.long().to(ones.device) - 1].double().cpu()
        signal = torch.sin(torch.arange(self.length) / 30)[:, None]
        random = torch.Generator().manual_seed(0)
        noisy = signal + 0.5 * torch.randn(self.length, 1, generator=random)
        seen = model(noisy.expand(-1, len(true))[None].to(model.log_tau).contiguous())[0][0].cpu()
        exact = step_response(true, times.double())
        return {
            "constants": panels(
                Panel(
                    ways,
                    "update",
                    "time constant, tokens",
                    levels={f"{tau:g}": tau for tau in self.taus},
                    log="y",
                    legend="none",
                ),
                width=6.5,
                height=3.2,
            ),
            "response": panels(
                Panel(
                    {"input": (times, torch.ones_like(times))}
                    | {
                        f"tau = {t:.1f}": (times, risen[:, n]) for n, t in enumerate(found.tolist())
                    },
                    "tokens since the step",
                    r"response $\mu_t$",
                    guides={
                        f"tau = {t:.1f}": (times, exact[:, n]) for n, t in enumerate(found.tolist())
                    },
                    levels={"1 - 1/e": 1 - 1 / torch.e},
                    scatter=True,
                    log="x",
                    legend="lower right",
                ),
                Panel(
                    {"input": (torch.arange(self.length), noisy[:, 0])}
                    | {
                        f"tau = {t:.1f}": (torch.arange(self.length), seen[:, n])
                        for n, t in enumerate(found.tolist())
                    },
                    "token",
                    "signal",
                    legend="none",
                ),
                width=3.25,
                height=3.4,
            ),
        }

    def tiny(self) -> Self:
        return replace(self, taus=(2.0, 8.0), length=20, steps=4, batch_size=4)


# Seeds 0, 1, 2, CPU: mse 0.002504 each, where noise alone is 0.0025; tau_error 0.007, 0.004, 0.005.
RECIPES = {
    "leaky-units": TimeConstants(
        steps=400,
        batch_size=16,
        lr=0.05,
        schedule="cosine",
        goal="mse <= 0.0026 and tau_error <= 0.02",
        covers=("R5",),
    ),
}
