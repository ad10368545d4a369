"""Leaky units: each keeps a running mean of its input and forgets at a rate of its own.

    mu_t  = alpha mu_{t-1} + (1 - alpha) v_t              (1)  running mean
    alpha = exp(-1 / tau),   tau = -1 / ln alpha          (2)  time constant, time steps
    mu_t  = 1 - alpha^t = 1 - e^(-t / tau)                (3)  response to a step of 1 from rest
    L     = mean (mu_t - y_t)^2                           (4)  loss

v_t is the input of a unit at time step t, mu_t its state. d mu_t / d mu_{t-1} = alpha whatever the
input, so a gradient fades as alpha^n = e^(-n/tau): a unit with a large tau remembers for long, and
one with a small tau follows what is new. A learned tau is found by descent on ln tau, which keeps
it positive. Here units learn the time constants of filters from their input and noisy output.

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
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.kernels.recurrence import linear_recurrence
from everynet.metrics.meanings import meanings
from everynet.plot import Panel, logged_curves, panels
from everynet.recipes.training import Training
from everynet.zoo.recurrent.sequences import generate_data


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
        """The share of a state that is kept from one time step to the next."""
        return torch.exp(-torch.exp(-self.log_tau))  # (2)

    @property
    def tau(self) -> Float[Tensor, " units"]:
        """Time constants, in time steps."""
        return self.log_tau.exp()

    def forward(
        self, v: Float[Tensor, "batch time units"], mu: Float[Tensor, "batch units"] | None = None
    ) -> tuple[Float[Tensor, "batch time units"], Float[Tensor, "batch units"]]:
        mu = torch.zeros_like(v[:, 0]) if mu is None else mu
        alpha = self.alpha.to(v.dtype)
        means = linear_recurrence(alpha.expand_as(v), (1 - alpha) * v, mu)  # (1), as in `by_loop`
        return means, means[:, -1]


def by_loop(
    alpha: Float[Tensor, " units"],
    v: Float[Tensor, "batch time units"],
    mu: Float[Tensor, "batch units"],
) -> Float[Tensor, "batch time units"]:
    """The recurrence as it is written, for reading and for tests."""
    means = []
    for t in range(v.shape[1]):
        mu = alpha * mu + (1 - alpha) * v[:, t]  # (1)
        means.append(mu)
    return torch.stack(means, 1)


def step_response(
    tau: Float[Tensor, " units"], times: Float[Tensor, " times"]
) -> Float[Tensor, "times units"]:
    """The state of units, so many time steps after their input has risen from 0 to 1."""
    return 1 - torch.exp(-times[:, None] / tau)  # (3)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class TimeConstants(Training[LeakyUnits]):
    """Learn the time constants of filters from their input and their noisy output."""

    meanings: ClassVar[Mapping[str, str]] = meanings("mse") | {
        "tau_error": "relative error of the worst learned time constant",
    }

    taus: tuple[float, ...] = (2.0, 8.0, 32.0, 128.0)
    """Time constants of the filters, in time steps."""
    start_tau: float = 16.0
    """Initial time constant of every unit, in time steps."""
    noise: float = 0.05
    """Standard deviation of the noise on the output of the filters; that of their input is 1."""
    length: int = 400
    """Time steps of a sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.taus) and min(self.taus) > 0, "taus", "positive, at least one")
        self.above(0, "start_tau")
        self.at_least(0, "noise")
        self.at_least(2, "length")

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
        return generate_data(name, draw, spec, self.batch_size, self.seed, held_out=200)

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

    def picture_constants(self, model: LeakyUnits, data: Data, history: History) -> Figure:
        """The time constant of each unit along training, with those of the filters dotted.

        All units begin at one time constant and move towards that of their own filter.
        """
        begin, curves = torch.tensor([self.start_tau]).double(), {}
        for n, tau in enumerate(self.taus, 1):
            steps, values = logged_curves(history, "train")[f"_tau_{n}"]
            curves[f"tau = {tau:g}"] = (torch.cat([0 * begin, steps]), torch.cat([begin, values]))
        return panels(
            Panel(
                curves, "update", "time constant, time steps",
                levels={f"{tau:g}": tau for tau in self.taus}, log="y", legend="none",
            ),
            width=6.5, height=3.2,
        )  # fmt: skip

    def picture_response(self, model: LeakyUnits, data: Data, history: History) -> Figure:
        """Left the response of units to a step from 0 to 1, points, and of their filters, dashes.

        Right a noisy signal as quick and slow units follow it.
        """
        true, names = torch.tensor(self.taus).double(), [f"tau = {t:.1f}" for t in model.tau]
        times = torch.logspace(0, 3, 25).round().unique()
        ones = torch.ones(1, int(times[-1]), len(true)).to(model.log_tau)
        risen = model(ones)[0][0, times.long().to(ones.device) - 1].double().cpu()
        exact = step_response(true, times.double())
        random, t = torch.Generator().manual_seed(0), torch.arange(self.length)
        noisy = torch.sin(t / 30)[:, None] + 0.5 * torch.randn(self.length, 1, generator=random)
        followed = model(noisy.expand(-1, len(true))[None].to(ones).contiguous())[0][0].cpu()
        return panels(
            Panel(
                {name: (times, one) for name, one in zip(names, risen.T, strict=True)}
                | {"input": (times, torch.ones_like(times))},  # last: units keep their colours
                "time steps since the rise", r"response $\mu_t$",
                guides={name: (times, one) for name, one in zip(names, exact.T, strict=True)},
                levels={"1 - 1/e": 1 - 1 / torch.e}, scatter=True, log="x", legend="lower right",
            ),
            Panel(
                {name: (t, one) for name, one in zip(names, followed.T, strict=True)}
                | {"input": (t, noisy[:, 0])},
                "time step", "signal", legend="none",
            ),
            width=3.25, height=3.4,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), taus=(2.0, 8.0), length=20)


RECIPES = {
    "leaky-units": TimeConstants(
        steps=400, batch_size=16, lr=0.05, schedule="cosine",
        goal="mse <= 0.0026 and tau_error <= 0.02", covers=("R5",),
    ),
}  # fmt: skip
