"""How far back a recurrent network can learn: a gradient is multiplied by W once a time step.

    h_n    = w^n h_0 + sum_{k<=n} w^(n-k) x_k                 (1)  scalar h_n = w h_{n-1} + x_n
    a_t    = W phi(a_{t-1}) + x_t                             (2)  pre-activation form
    J(t,k) = W diag(phi'(a_{t-1})) ... W diag(phi'(a_k))      (3)  da_t / da_k, later on the left
    |J|    ~ rho^(t-k),   rho = max_i |lambda_i(W)|           (4)  phi(a) = a
    h_t    = Q Lambda^t Q^T h_0                               (5)  W = Q Lambda Q^T, no input
    s_t    = c_1^2 / sum_i (lambda_i / lambda_1)^2t c_i^2     (6)  share of q_1 in |h_t|^2

with c = Q^T h_0. An input of n time steps ago counts w^n times: it has vanished for |w| < 1 and
drowns all else for |w| > 1. For matrices it is the spectral radius rho that decides, whatever the
norm, because |W^n|^(1/n) goes to rho: below 1 gradients vanish, above they explode. tanh puts
factors phi' <= 1 between: where rho > 1 its states grow until these hold the gradient back. Of a
symmetric W the eigenvector q_1 with the largest eigenvalue is all that survives of a state.

Hochreiter (1991), "Untersuchungen zu dynamischen neuronalen Netzen", diploma thesis, TU Munich;
Bengio, Simard, Frasconi (1994), "Learning long-term dependencies with gradient descent is
difficult", doi:10.1109/72.279181; Pascanu, Mikolov, Bengio (2013), "On the difficulty of training
recurrent neural networks", arXiv:1211.5063.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation


def unrolled(
    w: Float[Tensor, ""], h: Float[Tensor, ""], x: Float[Tensor, " time"]
) -> Float[Tensor, " states"]:
    """h_0..h_n of the scalar network in closed form, each by itself."""
    n = torch.arange(len(x) + 1, dtype=x.dtype)
    lag = n[:, None] - n[1:]  # states inputs
    weight = torch.where(lag >= 0, w ** lag.clamp(min=0), 0.0)
    return w**n * h + weight @ x  # (1)


def step_by_step(
    w: Float[Tensor, ""], h: Float[Tensor, ""], x: Float[Tensor, " time"]
) -> Float[Tensor, " states"]:
    """The same one time step after another."""
    states = [h]
    for now in x:
        states.append(w * states[-1] + now)
    return torch.stack(states)


def linear_path(
    w: Float[Tensor, "networks hidden hidden"], distance: int
) -> Float[Tensor, "distances networks hidden hidden"]:
    """J(t,k) for t - k of 0 up to `distance` where phi is the identity: the powers of W."""
    jacobians = [torch.eye(w.shape[-1], dtype=w.dtype).expand_as(w)]
    for _ in range(distance):
        jacobians.append(w @ jacobians[-1])
    return torch.stack(jacobians)


def tanh_path(
    w: Float[Tensor, "networks hidden hidden"],
    a: Float[Tensor, "networks hidden"],
    x: Float[Tensor, "time networks hidden"],
) -> tuple[Float[Tensor, "times networks hidden"], Float[Tensor, "times networks hidden hidden"]]:
    """a_0..a_T and J(t,0) of each, where phi is tanh."""
    states, jacobians = [a], [torch.eye(w.shape[-1], dtype=w.dtype).expand_as(w)]
    for now in x:
        slope = 1 - states[-1].tanh() ** 2
        jacobians.append(w * slope[:, None, :] @ jacobians[-1])  # (3)
        states.append((w @ states[-1].tanh()[..., None])[..., 0] + now)  # (2)
    return torch.stack(states), torch.stack(jacobians)


def spectral_norm(j: Float[Tensor, "*more hidden hidden"]) -> Float[Tensor, "*more"]:
    """The spectral norm: by how much a gradient can grow at most."""
    norm: Tensor = torch.linalg.matrix_norm(j, 2)
    return norm


def rate(sizes: Float[Tensor, "distances networks"]) -> Float[Tensor, " networks"]:
    """The factor a time step: exp of the slope of log |J| over the farther half of distances."""
    far = sizes[len(sizes) // 2 :].log()
    n = torch.arange(len(far), dtype=far.dtype)
    n = n - n.mean()
    return ((n[:, None] * far).sum(0) / (n**2).sum()).exp()  # (4)


def symmetric_path(
    w: Float[Tensor, "hidden hidden"], h: Float[Tensor, " hidden"], times: int
) -> tuple[Float[Tensor, "times hidden"], Float[Tensor, " times"]]:
    """h_0..h_T of a symmetric W from its eigenvectors, and the share of the first in each."""
    values, q = torch.linalg.eigh(w)
    order = values.abs().argsort(descending=True)
    values, q = values[order], q[:, order]
    c = q.T @ h
    t = torch.arange(times + 1, dtype=h.dtype)[:, None]
    states = (values**t * c) @ q.T  # (5)
    share = c[0] ** 2 / ((values / values[0]) ** (2 * t) * c**2).sum(1)  # (6)
    return states, share


def scaled(
    w: Float[Tensor, "*networks hidden hidden"], radius: float
) -> Float[Tensor, "*networks hidden hidden"]:
    """The matrices with that spectral radius."""
    largest: Tensor = torch.linalg.eigvals(w).abs().amax(-1)
    return radius * w / largest[..., None, None]


@dataclass(frozen=True, kw_only=True)
class MemorySpan(Simulation):
    """The norm of a gradient against the distance it comes from, and what of a state survives."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rate_error": (
            "how far gradients fall or grow otherwise than by the spectral radius, the mean"
        ),
        "worst_rate_error": "the same of the worst network",
        "tanh_rate": "the factor a step of tanh networks with the largest radius",
        "tanh_vanishing_error": (
            "how far tanh networks with the smallest radius are from the linear law"
        ),
        "closed_error": "how far the scalar network is from its closed form: rounding",
        "symmetric_error": "the same of a symmetric network",
        "share_error": "how far the share of the first eigenvector is from its law",
        "survivor": "the share of the state that the first eigenvector has at the end",
    }

    radii: tuple[float, ...] = (0.8, 1.0, 1.2)
    """Spectral radii rho: below, at and above 1."""
    hidden_size: int = 50
    """Units of the random networks."""
    networks: int = 20
    """Random networks of each radius."""
    distance: int = 100
    """Time steps that a gradient goes back."""
    noise: float = 0.01
    """Standard deviation of the inputs of the networks with tanh."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.radii) and min(self.radii) > 0, "radii", "positive, at least one")
        self.at_least(2, "hidden_size")
        self.at_least(1, "networks")
        self.require(self.distance >= 4, "distance", "at least 4: a rate is a slope")
        self.at_least(0, "noise")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        count, units, far = self.networks, self.hidden_size, self.distance
        linear, tanh, scalars = [], [], []
        for radius in self.radii:
            w = scaled(normal(count, units, units), radius)
            x = self.noise * normal(2 * far, count, units)
            warm, _ = tanh_path(w, torch.zeros(count, units).double(), x[:far])
            linear.append(spectral_norm(linear_path(w, far)))
            tanh.append(spectral_norm(tanh_path(w, warm[-1], x[far:])[1]))
            one, h = torch.tensor(radius, dtype=torch.float64), normal(1)[0]
            inputs = normal(far)
            scalars.append(torch.stack([unrolled(one, h, inputs), step_by_step(one, h, inputs)]))
        values = torch.linspace(1, 0.3, 8).double() * torch.tensor([1, 1, -1, 1] * 2)
        q = torch.linalg.qr(normal(8, 8)).Q
        w, h = q @ values.diag() @ q.T, normal(8)
        closed, share = symmetric_path((w + w.T) / 2, h, far)
        stepped = [h]
        for _ in range(far):
            stepped.append(w @ stepped[-1])
        return {
            "linear": torch.stack(linear),
            "tanh": torch.stack(tanh),
            "scalar": torch.stack(scalars),
            "closed": closed,
            "stepped": torch.stack(stepped),
            "share": share,
            "q": q,
            "values": values,
        }

    def rates(self, sizes: Float[Tensor, "radii distances networks"]) -> Float[Tensor, " radii"]:
        """The mean over the networks of each radius."""
        return torch.stack([rate(one).mean() for one in sizes])

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        radii = torch.tensor(self.radii, dtype=torch.float64)
        each = torch.stack([rate(one) for one in result["linear"]])  # radii networks
        closed, stepped = result["scalar"].unbind(1)
        states = result["stepped"]
        share = (states @ result["q"][:, 0]) ** 2 / (states**2).sum(1)
        return {
            "rate_error": float((self.rates(result["linear"]) / radii - 1).abs().max()),
            "worst_rate_error": float((each / radii[:, None] - 1).abs().max()),
            "tanh_rate": float(self.rates(result["tanh"])[-1]),
            "tanh_vanishing_error": float((self.rates(result["tanh"])[0] / radii[0] - 1).abs()),
            "closed_error": float(((closed - stepped) / stepped.abs().clamp(min=1)).abs().max()),
            "symmetric_error": float((result["closed"] - states).abs().max()),
            "share_error": float((result["share"] - share).abs().max()),
            "survivor": float(share[-1]),
        }

    def picture_distance(self, result: Mapping[str, Tensor]) -> Figure:
        """The gradient of a state at one so many time steps before, in random networks.

        It follows the powers of rho, dashed; tanh holds it back where rho is above 1.
        """
        n = torch.arange(self.distance + 1).double()
        names = [f"rho = {rho:g}" for rho in self.radii]
        laws = []
        for name, title in (("linear", "without tanh"), ("tanh", "with tanh")):
            norms = result[name]  # radii distances networks
            means = norms.log().mean(2).exp()
            laws.append(
                Panel(
                    {key: (n, mean) for key, mean in zip(names, means, strict=True)},
                    "distance t - k, time steps", r"$\|\partial a_t\,/\,\partial a_k\|$", title,
                    guides={key: (n, rho**n) for key, rho in zip(names, self.radii, strict=True)},
                    dashes="rho to the distance",
                    bands={
                        key: (one.amin(1), one.amax(1))
                        for key, one in zip(names, norms, strict=True)
                    },
                    log="y", legend="upper left" if name == "linear" else "none",
                ),
            )  # fmt: skip
        return panels(*laws, width=3.25, height=3.0)

    def picture_survivor(self, result: Mapping[str, Tensor]) -> Figure:
        """A symmetric network without input: its state along each eigenvector, and q1's share.

        Every eigenvector fades at its own rate, until nothing but the first is left.
        """
        shown = min(self.distance, 40) + 1
        t, states = torch.arange(shown).double(), result["stepped"][:shown]
        parts = (states @ result["q"]).abs()
        share = (states @ result["q"][:, 0]) ** 2 / (states**2).sum(1)
        values = result["values"].tolist()
        fading = Panel(
            {f"{value:+.1f}": (t, part) for value, part in zip(values, parts.T, strict=True)},
            "t, time steps", r"$|q_i^\top h_t|$, by eigenvalue", log="y", legend="lower left",
        )  # fmt: skip
        left = Panel(
            {"measured": (t[::2], share[::2])}, "t, time steps", r"share of $q_1$ in $\|h_t\|^2$",
            guides={"predicted": (t, result["share"][:shown])}, scatter=True, ylim=(0.0, 1.05),
            legend="lower right",
        )  # fmt: skip
        return panels(fading, left, width=3.25, height=3.0)

    def tiny(self) -> Self:
        return replace(super().tiny(), networks=2, distance=20)


RECIPES = {
    "memory-span": MemorySpan(
        goal="rate_error <= 0.05 and closed_error <= 1e-12 and symmetric_error <= 1e-12 "
        "and share_error <= 1e-12 and survivor >= 0.999 and tanh_rate < 1.1",
        covers=("R4",),
    ),
}
