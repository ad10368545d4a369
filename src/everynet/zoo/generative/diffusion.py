"""Diffusion: data is drowned in noise step by step, and a network learns to take the noise out.

    x_t    = sqrt(alpha_t) x_{t-1} + sqrt(beta_t) z,   alpha_t = 1 - beta_t         (1)  one step
    abar_t = alpha_1 alpha_2 .. alpha_t                                             (2)
    x_t    = sqrt(abar_t) x_0 + sqrt(1 - abar_t) eps                                (3)  t steps
    abar_t = f(t) / f(0),   f(t) = cos^2(pi/2 (t/T + s) / (1 + s))                  (4)  cosine
    m_t    = (sqrt(abar_{t-1}) beta_t x_0 + sqrt(alpha_t) (1 - abar_{t-1}) x_t) / (1 - abar_t)  (5)
    m_t    = (x_t - beta_t / sqrt(1 - abar_t) eps) / sqrt(alpha_t)                  (6)
    v_t    = beta_t (1 - abar_{t-1}) / (1 - abar_t)                                 (7)
    L      = 1/D E |eps - e(x_t, t)|^2                                              (8)  minimised
    w_t    = beta_t^2 / (2 s_t^2 alpha_t (1 - abar_t)),   s_t^2 = v_t^(1-r) beta_t^r   (9)
    K_t    = w_t |eps - e(x_t, t)|^2 + D/2 (v_t / s_t^2 - 1 - log(v_t / s_t^2))    (10)
    -log p(x_0) <= E[L_T + K_T + .. + K_2 - log N(x_0; m_1, s_1^2)]                (11)  bound
    x_{t-1} = (x_t - beta_t / sqrt(1 - abar_t) e(x_t, t)) / sqrt(alpha_t) + s_t z  (12)  DDPM
    x_s    = sqrt(abar_s) x_0' + sqrt(1 - abar_s - g^2) e(x_t, t) + g z            (13)  DDIM
    g^2    = eta^2 (1 - abar_s) / (1 - abar_t) (1 - abar_t / abar_s)               (14)
    e*(x, t) = sqrt(1 - abar_t) sum_k p_k C_t^-1 (x - sqrt(abar_t) mu_k)           (15)  exact

where x_0 are data of D numbers, t = 1 .. T the steps of noising, beta_t the variance that step t
adds, z and eps noise of N(0, I), and e the network. Given x_0, x_{t-1} is drawn from N(m_t, v_t I):
(5) and (6) are the same mean, because of (3). The network's distribution has its guess e in the
place of eps in (6) and the variance s_t^2, with r from 0 to 1; K_t is the divergence of the two,
L_T that of x_T from N(0, I). v_1 is 0, and v_2 stands in its place. (8) leaves the weights w_t out,
so that steps with much noise count for more than in (11). x_0' is (3) solved for x_0 with e for
eps. (12) and (13) also skip steps, with abar_t / abar_s for alpha_t; eta = 0 draws no noise, and
eta = 1 is (12) with r = 0. (15) is known where the data are Gaussians N(mu_k, C): p_k is the
probability of the k-th given x_t = x, and C_t = abar_t C + (1 - abar_t) I.

Sohl-Dickstein et al. (2015), "Deep unsupervised learning using nonequilibrium thermodynamics",
arXiv:1503.03585; Ho, Jain and Abbeel (2020), "Denoising diffusion probabilistic models",
arXiv:2006.11239; (4) and s_t: Nichol and Dhariwal (2021), "Improved denoising diffusion
probabilistic models", arXiv:2102.09672; (13): Song, Meng and Ermon (2021), "Denoising diffusion
implicit models", arXiv:2010.02502. Unlike these, the steps t of a batch are spread evenly over
1 .. T, one drawn from each of as many equal parts, so that the loss varies less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self, TypeAlias

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.nn.ema import EMA
from everynet.nn.positions import sinusoidal
from everynet.system.errors import UserError
from everynet.system.seeds import generator as make_generator
from everynet.system.wording import unknown
from everynet.zoo.generative.pictures.denoising import clouds, noise_fields, ring_frames
from everynet.zoo.generative.ring import RingPoints, mixture_density, mode_centres

Steps: TypeAlias = Int64[Tensor, " batch"]
Predict: TypeAlias = Callable[[Tensor, Steps], Tensor]
"""From noisy data and the steps of noising to the noise in it."""


class Diffusion(nn.Module):
    """Maps noisy data, and after how many steps it is, to the noise in it.

    `network` does that; `schedule` is the one that it learns.
    """

    def __init__(self, network: nn.Module, schedule: NoiseSchedule) -> None:
        super().__init__()
        self.network, self.schedule = network, schedule

    def forward(
        self, x: Float[Tensor, "batch ..."], t: Steps, y: Int64[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch ..."]:
        e: Tensor = self.network(x, t) if y is None else self.network(x, t, y)
        return e

    def draw_noisy(
        self, x: Float[Tensor, "batch ..."]
    ) -> tuple[Float[Tensor, "batch ..."], Steps, Float[Tensor, "batch ..."]]:
        """x_t of each sample for a t of its own, t, and the noise in it."""
        t = draw_steps(len(x), self.schedule.steps, x.device)
        eps = torch.randn_like(x)
        return self.schedule(x, t, eps), t, eps


class NoiseSchedule(nn.Module):
    """How much noise each of T steps adds, and what follows from that.

    Maps data, a step for each sample and noise to noisy data. Tables have a row for each t from 0,
    where there is no noise; methods with whole numbers t and s compute in the precision of Python.
    """

    signal: Tensor
    noise: Tensor

    def __init__(self, betas: Float[Tensor, " steps"]) -> None:
        super().__init__()
        if not len(betas) or not 0 < float(betas.min()) <= float(betas.max()) < 1:
            raise ValueError(
                f"betas ({len(betas)} numbers) must be one or more above 0 and below 1, because "
                "they are variances that take the place of the data's; try linear_betas(1000)"
            )
        self.steps = len(betas)
        self.betas = [0.0, *betas.tolist()]
        abar = signal_left(betas)
        self.abar: list[float] = abar.tolist()
        self.register_buffer("signal", abar.sqrt(), persistent=False)
        self.register_buffer("noise", (1 - abar).sqrt(), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch ..."], t: Steps, eps: Float[Tensor, "batch ..."]
    ) -> Float[Tensor, "batch ..."]:
        signal, noise = (rows_of(table, t, x) for table in (self.signal, self.noise))
        return signal * x + noise * eps  # (3)

    def alpha(self, t: int, s: int) -> float:
        """The part of the variance of x_s that is left in x_t; for s = t - 1 it is 1 - beta_t."""
        return self.abar[t] / self.abar[s]

    def noise_further(
        self, x: Float[Tensor, "*axes"], z: Float[Tensor, "*axes"], s: int, t: int
    ) -> Float[Tensor, "*axes"]:
        """x_t from x_s, of which it has fewer steps."""
        alpha = self.alpha(t, s)
        return math.sqrt(alpha) * x + math.sqrt(1 - alpha) * z  # (1)

    def data_of(
        self, x: Float[Tensor, "*axes"], eps: Float[Tensor, "*axes"], t: int
    ) -> Float[Tensor, "*axes"]:
        """The x_0 of which eps has made x_t: (3), solved for it."""
        return (x - math.sqrt(1 - self.abar[t]) * eps) / math.sqrt(self.abar[t])

    def noise_of(
        self, x: Float[Tensor, "*axes"], data: Float[Tensor, "*axes"], t: int
    ) -> Float[Tensor, "*axes"]:
        """The noise that has made x_t of x_0."""
        return (x - math.sqrt(self.abar[t]) * data) / math.sqrt(1 - self.abar[t])

    def posterior_mean(
        self, data: Float[Tensor, "*axes"], x: Float[Tensor, "*axes"], t: int, s: int
    ) -> Float[Tensor, "*axes"]:
        """The mean of x_s, given x_0 and x_t; the equation has s = t - 1."""
        alpha, left = self.alpha(t, s), 1 - self.abar[t]
        of_data = math.sqrt(self.abar[s]) * (1 - alpha) / left
        of_x = math.sqrt(alpha) * (1 - self.abar[s]) / left
        return of_data * data + of_x * x  # (5)

    def posterior_mean_by_noise(
        self, x: Float[Tensor, "*axes"], eps: Float[Tensor, "*axes"], t: int, s: int
    ) -> Float[Tensor, "*axes"]:
        """The same from the noise in x_t."""
        alpha = self.alpha(t, s)
        return (x - (1 - alpha) / math.sqrt(1 - self.abar[t]) * eps) / math.sqrt(alpha)  # (6)

    def posterior_variance(self, t: int, s: int) -> float:
        """The variance of x_s, given x_0 and x_t."""
        return (1 - self.alpha(t, s)) * (1 - self.abar[s]) / (1 - self.abar[t])  # (7)

    def model_variance(self, t: int, s: int, share: float) -> float:
        """s_t^2; `share` is r. Where x_s has no noise left, v of the next step stands for v."""
        v = self.posterior_variance(t, s) or self.posterior_variance(min(2, self.steps), 1)
        beta = 1 - self.alpha(t, s)
        return float((v or beta) ** (1 - share) * beta**share)

    def weights(self, share: float) -> Float[Tensor, " times"]:
        """w_t for t from 0, in float64; that of t = 0 is 0."""
        found = [0.0]
        for t in range(1, self.steps + 1):
            beta, variance = self.betas[t], self.model_variance(t, t - 1, share)
            found.append(beta**2 / (2 * variance * (1 - beta) * (1 - self.abar[t])))  # (9)
        return torch.tensor(found, dtype=torch.float64)

    def misfits(self, share: float) -> Float[Tensor, " times"]:
        """What K_t is for each number of the data where the guess is right, for t from 0."""
        found = [0.0, 0.0]
        for t in range(2, self.steps + 1):
            ratio = self.posterior_variance(t, t - 1) / self.model_variance(t, t - 1, share)
            found.append((ratio - 1 - math.log(ratio)) / 2)
        return torch.tensor(found[: self.steps + 1], dtype=torch.float64)


def rows_of(table: Float[Tensor, " times"], t: Steps, x: Tensor) -> Tensor:
    """The entry of a table for each sample, to be multiplied with samples like x."""
    return table[t].to(x.dtype).view(-1, *[1] * (x.dim() - 1))


def linear_betas(steps: int, first: float = 1e-4, last: float = 0.02) -> Float[Tensor, " {steps}"]:
    """Variances that rise evenly; those of 1000 steps, in proportion where there are others."""
    scale = 1000 / steps  # the same noise in the end
    even = torch.linspace(first * scale, last * scale, steps, device="cpu")  # also beside "meta"
    return even.double().clamp(max=0.999)


def cosine_betas(steps: int, s: float = 0.008) -> Float[Tensor, " {steps}"]:
    """Variances by which the signal fades evenly, slower at both ends."""
    t = torch.arange(steps + 1, dtype=torch.float64, device="cpu") / steps
    f = ((t + s) / (1 + s) * math.pi / 2).cos().square()
    abar = f / f[0]  # (4)
    return (1 - abar[1:] / abar[:-1]).clamp(max=0.999)


def signal_left(betas: Float[Tensor, " steps"]) -> Float[Tensor, " times"]:
    """abar_t for t from 0, where it is 1: the share of the data's variance in x_t."""
    abar = (1 - betas.double()).cumprod(0)  # (2)
    return torch.cat([torch.ones_like(abar[:1]), abar])


SCHEDULES: Mapping[str, Callable[[int], Tensor]] = {"linear": linear_betas, "cosine": cosine_betas}


def draw_steps(samples: int, steps: int, device: torch.device) -> Int64[Tensor, " {samples}"]:
    """A t for each sample, from 1: one from each of as many equal parts of all steps."""
    place = torch.arange(samples, device=device) + torch.rand(samples, device=device)
    return (place * (steps / samples)).long().clamp(max=steps - 1) + 1


# --------------------------------------------------------------------------------------- losses


def simple_loss(
    eps: Float[Tensor, "batch ..."], predicted: Float[Tensor, "batch ..."]
) -> Float[Tensor, " batch"]:
    """L of each sample: the mean squared error of its noise."""
    return (eps - predicted).square().flatten(1).mean(1)  # (8)


def weighted_loss(
    eps: Float[Tensor, "batch ..."],
    predicted: Float[Tensor, "batch ..."],
    weight: Float[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """What the guess of the noise adds to the bound, by the weight w_t of each sample."""
    return weight * (eps - predicted).square().flatten(1).sum(1)


LogLikelihood: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From x_0, the means m_1 and the standard deviation s_1 to log N of every number."""


def gaussian_log_likelihood(
    x: Float[Tensor, "*axes"], mean: Float[Tensor, "*axes"], std: Float[Tensor, ""]
) -> Float[Tensor, "*axes"]:
    """The logarithm of the density of each number."""
    return -((x - mean) / std).square() / 2 - std.log() - math.log(2 * math.pi) / 2


def bound_terms(
    model: Diffusion,
    x: Float[Tensor, "batch ..."],
    generator: torch.Generator,
    log_likelihood: LogLikelihood = gaussian_log_likelihood,
    *,
    y: Int64[Tensor, " batch"] | None = None,
    share: float = 0.0,
    limit: float = math.inf,
    at_once: int = 512,
) -> Float[Tensor, "batch terms"]:
    """The terms of (11) for each sample, in nats: the last of the chain first, then K_t, then L_T.

    Each has one draw of noise, and their sum is the bound. x_0' is brought to at most `limit`. With
    labels y the bound is that of -log p(x|y).
    """
    schedule, samples, steps = model.schedule, len(x), model.schedule.steps
    draw = torch.Generator(x.device)
    draw.manual_seed(int(torch.randint(2**62, (), generator=generator)))
    tables = (schedule.weights(share), schedule.misfits(share))
    weight, misfit = (table.to(x) for table in tables)
    std = x.new_tensor(math.sqrt(schedule.model_variance(1, 0, share)))
    terms = x.new_zeros(samples, steps + 1)
    for pair in torch.arange(samples * steps, device=x.device).split(at_once):
        row, t = pair // steps, pair % steps + 1
        data = x[row]
        eps = torch.randn(data.shape, generator=draw, dtype=x.dtype, device=x.device)
        noisy = schedule(data, t, eps)
        predicted = model(noisy, t, None if y is None else y[row]).to(x.dtype)
        signal, noise = (rows_of(each, t, x) for each in (schedule.signal, schedule.noise))
        guess = ((noisy - noise * predicted) / signal).clamp(-limit, limit)  # x_0'
        predicted = (noisy - signal * guess) / noise
        k = weighted_loss(eps, predicted, weight[t]) + misfit[t] * x[0].numel()  # (10)
        last = log_likelihood(data, guess, std).flatten(1).sum(1)  # m_1 is x_0'
        terms[row, t - 1] = torch.where(t == 1, -last, k)
    abar = schedule.abar[-1]
    start = abar * x.square() - abar - math.log(1 - abar)
    terms[:, -1] = start.flatten(1).sum(1) / 2  # L_T
    return terms


def bound(terms: Float[Tensor, "batch terms"]) -> Float[Tensor, " batch"]:
    """The bound on -log p of each sample, in nats, from its terms."""
    return terms.double().sum(1)  # (11)


# -------------------------------------------------------------------------------------- sampling


@dataclass(frozen=True)
class DDPM:
    """Ancestral sampling: x_s is drawn from what the network takes for its distribution."""

    share: float = 0.0
    """r: 0 has the variance that x_s has given x_0, 1 that of the step of noising."""

    @property
    def draws(self) -> bool:
        """Whether a step draws noise."""
        return True

    def step(
        self, schedule: NoiseSchedule, x: Tensor, eps: Tensor, t: int, s: int, *, z: Tensor | float
    ) -> Tensor:
        """The last step, to s = 0, adds no noise."""
        mean = schedule.posterior_mean_by_noise(x, eps, t, s)
        std = math.sqrt(schedule.model_variance(t, s, self.share)) if s else 0.0
        return mean + std * z  # (12)


@dataclass(frozen=True)
class DDIM:
    """The same distributions of x_t with less noise drawn on the way: by eta = 0, none at all."""

    eta: float = 0.0

    @property
    def draws(self) -> bool:
        """Whether a step draws noise."""
        return self.eta > 0

    def step(
        self, schedule: NoiseSchedule, x: Tensor, eps: Tensor, t: int, s: int, *, z: Tensor | float
    ) -> Tensor:
        """From x_t to x_s along the line between its noise and the data it is taken to have."""
        left = (1 - schedule.abar[s]) / (1 - schedule.abar[t])
        g = self.eta * math.sqrt(left * (1 - schedule.alpha(t, s)))  # (14)
        data = schedule.data_of(x, eps, t)
        along = math.sqrt(max(0.0, 1 - schedule.abar[s] - g**2))
        return math.sqrt(schedule.abar[s]) * data + along * eps + g * z  # (13)


Sampler: TypeAlias = DDPM | DDIM


def sampling_steps(steps: int, noise_steps: int) -> list[tuple[int, int]]:
    """Pairs of t and the next, s, from T to 0: so many steps at equal distances."""
    if not 1 <= steps <= noise_steps:
        raise UserError(
            f"steps ({steps}) must be from 1 to {noise_steps}, because the network learned to undo "
            f"{noise_steps} steps of noising"
        )
    times = [-(-noise_steps * k // steps) for k in range(steps, -1, -1)]
    return [*pairwise(times)]


def denoise(
    predict: Predict,
    schedule: NoiseSchedule,
    x: Float[Tensor, "batch ..."],
    steps: int,
    sampler: Sampler,
    *,
    generator: torch.Generator | None = None,
    limit: float = math.inf,
) -> Iterator[tuple[int, Float[Tensor, "batch ..."], Float[Tensor, "batch ..."]]]:
    """From noise x_T to data: after each step s, x_s, and the data that x_t was taken to have.

    These are brought to at most `limit`, as pixels must be. The generator is one of the CPU.
    """
    for t, s in sampling_steps(steps, schedule.steps):
        eps = predict(x, torch.full((len(x),), t, device=x.device)).to(x.dtype)
        data = schedule.data_of(x, eps, t)
        if limit < math.inf:
            data = data.clamp(-limit, limit)
            eps = schedule.noise_of(x, data, t)
        z: Tensor | float = 0.0
        if sampler.draws:
            z = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x)
        x = sampler.step(schedule, x, eps, t, s, z=z)
        yield s, x, data


def last_of(steps: Iterator[tuple[int, Tensor, Tensor]]) -> Tensor:
    """What denoising ends with."""
    for _, x, _ in steps:
        last = x
    return last


# -------------------------------------------------------------------------------------- networks


class NoiseMLP(nn.Module):
    """Maps noisy points and their steps to the noise in them, by residual layers.

    Sines and cosines of t are added to the units of each layer.
    """

    codes: Tensor

    def __init__(self, features: int, hidden_size: int, layers: int, noise_steps: int) -> None:
        super().__init__()
        codes = sinusoidal(noise_steps + 1, hidden_size).to(torch.get_default_dtype())
        self.register_buffer("codes", codes, persistent=False)
        self.input = nn.Linear(features, hidden_size)
        self.time = nn.Linear(hidden_size, hidden_size)
        self.hidden = nn.ModuleList(nn.Linear(hidden_size, hidden_size) for _ in range(layers))
        self.output = nn.Linear(hidden_size, features)

    def forward(
        self, x: Float[Tensor, "batch features"], t: Steps
    ) -> Float[Tensor, "batch features"]:
        h, time = self.input(x), self.time(self.codes[t])
        for layer in self.hidden:
            h = h + layer(nn.functional.silu(h + time))
        e: Tensor = self.output(nn.functional.silu(h))
        return e


class ExactNoise(nn.Module):
    """The mean of the noise in noisy points of equally likely Gaussians of one covariance.

    No network predicts it better: it is what (8) is least for.
    """

    means: Tensor
    covariance: Tensor

    def __init__(
        self,
        means: Float[Tensor, "modes features"],
        covariance: Float[Tensor, "features features"],
        schedule: NoiseSchedule,
    ) -> None:
        super().__init__()
        self.register_buffer("means", means)
        self.register_buffer("covariance", covariance)
        self.schedule = schedule

    def forward(
        self, x: Float[Tensor, "batch features"], t: Steps
    ) -> Float[Tensor, "batch features"]:
        signal, noise = (
            each[t].to(x)[:, None] for each in (self.schedule.signal, self.schedule.noise)
        )
        eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        c = (signal**2)[..., None] * self.covariance + (noise**2)[..., None] * eye
        away = x[:, None] - signal[..., None] * self.means  # batch modes features
        pulled = torch.linalg.solve(c, away.mT).mT
        p = (-(away * pulled).sum(2) / 2).softmax(1)
        e: Tensor = noise * (p[..., None] * pulled).sum(1)  # (15)
        return e


# -------- the network ends here; training and pictures follow --------

MOST = 1_000_000
"""Points that are generated at once."""
RATE, HOLD = 12, 10
"""Frames of a film in a second, frames of its end."""
SAMPLERS: Mapping[str, Callable[[float], Sampler]] = {
    "ddim": DDIM,
    "ddpm": DDPM,
}
"""By the setting `method`: what is drawn on the way is `eta` of the one and r of the other."""


def make_sampler(method: str, eta: float) -> Sampler:
    """The way of drawing that two settings of `sample` name."""
    if method not in SAMPLERS:
        raise UserError(unknown("method", method, SAMPLERS))
    if not 0 <= eta <= 1:
        raise UserError(f"eta ({eta}) must be from 0 to 1: how much noise is drawn on the way")
    return SAMPLERS[method](eta)


@dataclass(frozen=True, kw_only=True)
class RingDiffusion(RingPoints[Diffusion, EMA[Diffusion]]):
    """Generate points like those of eight Gaussians on a ring by taking noise out of noise."""

    meanings: ClassVar[Mapping[str, str]] = {
        **RingPoints.meanings,
        "noise_mse": "the mean squared error of the guessed noise, by which the network learns",
        "excess_mse": "how much of it is beyond that of the exact mean of the noise, the least",
    }

    steps: int = 6000
    batch_size: int = 256
    lr: float = 2e-3
    schedule: str = "cosine"
    noise_steps: int = 200
    """Steps T from data to noise."""
    noising: str = "linear"
    """The variances of the steps of noising: linear or cosine."""
    sampling_steps: int = 50
    """Steps from noise to the points of an evaluation, by DDIM."""
    hidden_size: int = 128
    """Units of each layer, and numbers that tell the step."""
    layers: int = 3
    """Residual layers."""
    decay: float = 0.995
    """Of the averaged weights: those that generate."""

    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("noising", SCHEDULES)
        self.at_least(2, "noise_steps")
        self.at_least(1, "sampling_steps", "hidden_size", "layers")
        self.require(self.hidden_size % 2 == 0, "hidden_size", "even: sines and cosines of t")
        words = f"at most noise_steps ({self.noise_steps}), which it undoes"
        self.require(self.sampling_steps <= self.noise_steps, "sampling_steps", words)
        self.require(0 < self.decay < 1, "decay", "above 0 and below 1")

    def model(self, data: Data) -> Diffusion:
        network = NoiseMLP(2, self.hidden_size, self.layers, self.noise_steps)
        return Diffusion(network, NoiseSchedule(SCHEDULES[self.noising](self.noise_steps)))

    def extra(self, model: Diffusion) -> EMA[Diffusion]:
        return EMA(model, self.decay)

    def exact(self, model: Diffusion) -> ExactNoise:
        """The best noise predictor of the points, which is known."""
        schedule, weight = model.schedule, next(model.parameters())
        eye = torch.eye(2, dtype=torch.float64)
        made = ExactNoise(mode_centres(self.radius), self.std**2 * eye, schedule)
        return made.to(weight.device, weight.dtype)

    def objective(self, model: Diffusion, batch: Batch) -> Terms:
        noisy, t, eps = model.draw_noisy(batch[0])
        return {"noise_mse": simple_loss(eps, model(noisy, t)).mean()}

    def metrics(self, model: Diffusion, batch: Batch) -> dict[str, Tensor]:
        """As many generated points as there are real ones, and the errors of the guessed noise."""
        (x,) = batch
        noisy, t, eps = model.draw_noisy(x)
        predicted = model(noisy, t)
        return {
            "real": x,
            "fake": self.generate(model, torch.randn_like(x), self.sampling_steps, DDIM()),
            "noise_mse": simple_loss(eps, predicted),
            "excess_mse": simple_loss(self.exact(model)(noisy, t), predicted),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        errors = {
            name: outputs[name].double().mean().item() for name in ("noise_mse", "excess_mse")
        }
        return {**super().summarise(outputs), **errors}

    def generate(
        self,
        model: Diffusion,
        x: Float[Tensor, "rows 2"],
        steps: int,
        sampler: Sampler,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "rows 2"]:
        """Points from noise."""
        return last_of(denoise(model, model.schedule, x, steps, sampler, generator=generator))

    def sample(
        self,
        model: Diffusion,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 500,
        steps: int = 50,
        method: str = "ddim",
        eta: float = 0.0,
        film: bool = False,
    ) -> Float[Tensor, "n 2"] | plot.Film:
        """Points from noise in `steps` steps by ddim or ddpm, or a film of how they come about."""
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be between 1 and {MOST:,}: so many points are made")
        sampler = make_sampler(method, eta)
        sampling_steps(steps, model.schedule.steps)
        x = torch.randn(n, 2, generator=generator).to(next(model.parameters()))
        if not film:
            pieces = x.split(10_000)
            made = [self.generate(model, some, steps, sampler, generator) for some in pieces]
            return torch.cat(made)
        states = [(model.schedule.steps, x.cpu())]
        states += [
            (s, points.cpu())
            for s, points, _ in denoise(
                model, model.schedule, x, steps, sampler, generator=generator
            )
        ]
        frames = ring_frames(states, span=2 * self.radius, truth=self.rings())
        return plot.Film(frames, RATE, hold=HOLD)

    # --------------------------------------------------------------------------------- pictures

    def picture_denoising(
        self, model: Diffusion, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """Above, points of the data after t steps of noising; below, noise on its way back.

        The way back ends in {modes} of eight Gaussians.
        """
        schedule, weight = model.schedule, next(model.parameters())
        draw = make_generator(self.seed, 3)
        (real,) = data.some("valid", torch.arange(min(600, self.held_out)))
        steps = min(self.sampling_steps, schedule.steps)
        x = torch.randn(real.shape, generator=draw).to(weight)
        back = {s: points for s, points, _ in denoise(model, schedule, x, steps, DDIM())}
        back[schedule.steps] = x
        wanted = [schedule.steps * share // 100 for share in (0, 10, 25, 50, 75, 100)]
        known = torch.tensor([*back])
        times = [int(known[(known - t).abs().argmin()]) for t in wanted]
        eps = torch.randn(real.shape, generator=draw).to(real)
        ahead = [
            schedule(real, torch.full((len(real),), t, device=real.device), eps).cpu()
            for t in times
        ]
        figure = clouds(
            {"noising": ahead, "denoising": [back[t].cpu() for t in times]}, times,
            span=2 * self.radius,
        )  # fmt: skip
        return figure, {"modes": self.count_modes(back[0].cpu())}

    def picture_field(
        self, model: Diffusion, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Arrows against the guessed noise on the density of noisy data, and ways along them.

        They lead to the data; the mean squared error from the exact arrows is {excess:.3f}.
        """
        schedule, weight = model.schedule, next(model.parameters())
        span = 1.5 * self.radius
        places = plot.square(13, -span, span).to(weight)
        exact, fields, densities = self.exact(model), [], []
        fine = plot.square(80, -span, span).double()
        for share in (0.6, 0.3, 0.1):
            t = max(1, round(share * schedule.steps))
            times = torch.full((len(places),), t, device=places.device)
            fields.append((t, -model(places, times).cpu(), -exact(places, times).cpu()))
            std = math.sqrt(schedule.abar[t] * self.std**2 + 1 - schedule.abar[t])
            centres = mode_centres(self.radius * math.sqrt(schedule.abar[t]))
            densities.append(mixture_density(fine, centres, std))
        x = torch.randn(40, 2, generator=make_generator(self.seed, 4)).to(weight)
        steps = min(self.sampling_steps, schedule.steps)
        ways = [x, *(points for _, points, _ in denoise(model, schedule, x, steps, DDIM()))]
        errors = (simple_loss(a.double(), b.double()).mean().item() for _, a, b in fields)
        figure = noise_fields(places.cpu(), fields, densities, torch.stack(ways).cpu(), span=span)
        return figure, {"excess": sum(errors) / len(fields)}

    def tiny(self) -> Self:
        return replace(super().tiny(), held_out=200, noise_steps=10, sampling_steps=3)


RECIPES = {
    "diffusion-ring": RingDiffusion(
        goal="energy_distance <= 0.01 and modes >= 8 and quality >= 0.9",
        covers=("G6", "G7", "G8", "G9", "G10"),
    ),
}
