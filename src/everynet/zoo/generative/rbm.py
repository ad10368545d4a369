"""A restricted Boltzmann machine: binary units whose energy says how likely each picture is.

    E(v, h)      = -v W h^T - b v^T - c h^T                       (1)  energy
    q(v, h)      = e^(-E(v, h) / T) / Z                           (2)  Boltzmann distribution
    Delta E(v_i) = -sum_j W_ij h_j - b_i                          (3)  energy gap of v_i = 1 and 0
    P(v_i = 1|h) = sigma(-Delta E(v_i) / T)                       (4)  stochastic visible unit
    P(h_j = 1|v) = sigma((sum_i v_i W_ij + c_j) / T)              (5)  stochastic hidden unit
    F(v)         = -b v^T - T sum_j log(1 + e^((v W + c)_j / T))  (6)  free energy
    grad L       = E_q(h|v)[grad E] - E_q(v,h)[grad E]            (7)  exact gradient, T = 1
    C            = F(v) - F(v'),  v' held fixed                   (8)  contrastive divergence
    w            = prod_k p_k(v_k) / p_(k-1)(v_k)                 (9)  importance weight

where v and h are rows of zeros and ones, W has a row for each visible and a column for each hidden
unit, b and c are biases, T is the temperature, sigma(x) = 1 / (1 + e^-x), and Z sums e^(-E/T) over
all states. Units of a layer do not see each other: given h all v are independent and the reverse,
so that a Gibbs step draws a whole layer at once. q(v) is e^(-F(v)/T) / Z; L = -log q(v) = F(v) +
log Z, and (7) is its gradient, which needs all states. Contrastive divergence takes for v' where k
Gibbs steps lead from the data, or persistent chains that go on from update to update; descending C
is W <- W + lr (v^T sigma(v W + c) - v'^T sigma(v' W + c)), b <- b + lr (v - v'), and c alike.

Annealed importance sampling estimates Z: from a network without weights, whose Z_0 is known, over
p_k(v) = e^((1 - beta_k) a v^T + beta_k b v^T) prod_j (1 + e^(beta_k (v W + c)_j)) with beta_k from
0 to 1 and v_k drawn by a Gibbs step at p_(k-1); the mean of w is Z / Z_0.

Smolensky (1986), "Information processing in dynamical systems", in Parallel Distributed Processing
1; Hinton (2002), "Training products of experts by minimizing contrastive divergence",
doi:10.1162/089976602760128018; Tieleman (2008), "Training restricted Boltzmann machines using
approximations to the likelihood gradient", doi:10.1145/1390156.1390290; Salakhutdinov and Murray
(2008), "On the quantitative analysis of deep belief networks", doi:10.1145/1390156.1390266.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, logsigmoid, softplus

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.keep import keep_mask
from everynet.recipes.recipe import Answers, Goal
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system import seeds
from everynet.system.errors import UserError
from everynet.zoo.generative.binary_images import BinaryImages, binarize, check_pixels, draw
from everynet.zoo.generative.pictures.energy import (
    chain_frames,
    energy_histograms,
    image_table,
    pattern_probabilities,
    samples_by_validity,
)

MOST_UNITS = 20
"""Units whose states are enumerated: 2^20 of them."""


class BoltzmannMachine(nn.Module):
    """Maps v to its free energy; draws v from h and h from v."""

    def __init__(self, visible_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.01 * torch.randn(visible_size, hidden_size))
        self.visible_bias = nn.Parameter(torch.zeros(visible_size))
        self.hidden_bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, v: Float[Tensor, "batch visible"]) -> Float[Tensor, " batch"]:
        """The free energy of v at T = 1."""
        return self.free_energy(v)

    def energy(
        self, v: Float[Tensor, "batch visible"], h: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, " batch"]:
        interaction = ((v @ self.weight) * h).sum(1)
        return -interaction - v @ self.visible_bias - h @ self.hidden_bias  # (1)

    def energy_gap(self, h: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch visible"]:
        """E(v_i = 1) - E(v_i = 0) of each visible unit."""
        return -h @ self.weight.T - self.visible_bias  # (3)

    def visible_given(
        self, h: Float[Tensor, "batch hidden"], temperature: float = 1.0
    ) -> Float[Tensor, "batch visible"]:
        """P(v_i = 1|h)."""
        return torch.sigmoid(-self.energy_gap(h) / temperature)  # (4)

    def hidden_given(
        self, v: Float[Tensor, "batch visible"], temperature: float = 1.0
    ) -> Float[Tensor, "batch hidden"]:
        """P(h_j = 1|v)."""
        return torch.sigmoid((v @ self.weight + self.hidden_bias) / temperature)  # (5)

    def free_energy(
        self, v: Float[Tensor, "batch visible"], temperature: float = 1.0
    ) -> Float[Tensor, " batch"]:
        """-T log sum_h e^(-E(v, h) / T)."""
        inputs = (v @ self.weight + self.hidden_bias) / temperature
        return -v @ self.visible_bias - temperature * softplus(inputs).sum(1)  # (6)

    @torch.no_grad()
    def gibbs(
        self,
        v: Float[Tensor, "batch visible"],
        steps: int,
        temperature: float = 1.0,
        *,
        fixed: Bool[Tensor, " visible"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "batch visible"]:
        """The state v after so many Gibbs steps; units that are `fixed` keep their values."""
        start = v
        for _ in range(steps):
            h = draw_units(self.hidden_given(v, temperature), generator)
            v = draw_units(self.visible_given(h, temperature), generator)
            v = v if fixed is None else torch.where(fixed, start, v)
        return v

    def pseudo_likelihood(
        self, v: Float[Tensor, "batch visible"], i: Int[Tensor, " batch"]
    ) -> Float[Tensor, " batch"]:
        """Log-likelihood of unit i given all others, times the units: its mean over i is exact."""
        sign = 1 - 2 * v.gather(1, i[:, None])  # 1 where the unit goes from 0 to 1
        inputs = v @ self.weight + self.hidden_bias
        rise = softplus(inputs + sign * self.weight[i]).sum(1) - softplus(inputs).sum(1)
        flipped = sign[:, 0] * self.visible_bias[i] + rise  # F(v) - F(v with unit i flipped)
        return v.shape[1] * logsigmoid(-flipped)


def draw_units(
    p: Float[Tensor, "batch units"], generator: torch.Generator | None = None
) -> Float[Tensor, "batch units"]:
    """Ones with probability p, zeros otherwise."""
    u = torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device)
    return (u < p).to(p.dtype)


def contrastive_loss(
    net: BoltzmannMachine,
    v: Float[Tensor, "batch visible"],
    v_model: Float[Tensor, "chains visible"],
) -> Float[Tensor, ""]:
    """C, whose descent makes the data likelier and what the network drew less likely."""
    contrast: Tensor = net(v).mean() - net(v_model.detach()).mean()  # (8)
    return contrast


# ------------------------------------------------------------------- the states of small networks


def all_states(units: int) -> Float[Tensor, "states units"]:
    """Every row of zeros and ones, in the order of binary numbers."""
    if units > MOST_UNITS:
        raise ValueError(
            f"units ({units}) must be at most {MOST_UNITS} to enumerate their 2^{units} states; "
            "estimate the partition function by annealed_log_partition"
        )
    numbers = torch.arange(2**units)[:, None]
    return (numbers >> torch.arange(units - 1, -1, -1) & 1).double()


def log_partition(net: BoltzmannMachine, temperature: float = 1.0) -> Float[Tensor, ""]:
    """The logarithm of Z, summed over all states of the smaller layer."""
    visible, hidden = net.weight.shape
    states = all_states(min(visible, hidden)).to(net.weight)
    if visible <= hidden:
        return (-net.free_energy(states, temperature) / temperature).logsumexp(0)
    inputs = -net.energy_gap(states) / temperature
    logs = states @ net.hidden_bias / temperature + softplus(inputs).sum(1)
    return logs.logsumexp(0)


def joint_distribution(
    net: BoltzmannMachine, temperature: float = 1.0
) -> Float[Tensor, "visible_states hidden_states"]:
    """The probability q of every state, those of v down and those of h across."""
    v, h = (all_states(size).to(net.weight) for size in net.weight.shape)
    pairs = v.repeat_interleave(len(h), 0), h.repeat(len(v), 1)
    boltzmann = torch.exp(
        -net.energy(*pairs) / temperature - log_partition(net, temperature)
    )  # (2)
    return boltzmann.view(len(v), len(h))


@torch.no_grad()
def exact_gradient(net: BoltzmannMachine, v: Float[Tensor, "batch visible"]) -> dict[str, Tensor]:
    """The gradient of the mean of -log q(v) by each parameter, over all states."""
    states = all_states(net.weight.shape[0]).to(net.weight)
    q = torch.exp(-net(states) - log_partition(net))[:, None]
    h, h_states = net.hidden_given(v), net.hidden_given(states)
    return {
        "weight": (q * states).T @ h_states - v.T @ h / len(v),  # (7)
        "visible_bias": (q * states).sum(0) - v.mean(0),
        "hidden_bias": (q * h_states).sum(0) - h.mean(0),
    }


# -------------------------------------------------------------------- annealed importance sampling


class LogPartition(NamedTuple):
    """log Z and the standard error of it."""

    value: float
    error: float


@torch.no_grad()
def annealed_log_partition(
    net: BoltzmannMachine,
    *,
    chains: int = 100,
    steps: int = 1000,
    generator: torch.Generator | None = None,
) -> LogPartition:
    """An estimate of log Z at T = 1 by `chains` weights, each over `steps` distributions.

    The network without weights that it begins from has the biases a with which each unit is on as
    often as in chains of the network itself.
    """
    visible, hidden = net.weight.shape
    half = torch.full((chains, visible), 0.5).to(net.weight)
    v = net.gibbs(draw_units(half, generator), max(1, steps // 10), generator=generator)
    on = net.visible_given(net.hidden_given(v)).mean(0)
    a = torch.logit(on.clamp(0.01, 0.99))
    log_z0 = softplus(a).sum() + hidden * math.log(2)
    v = draw_units(a.sigmoid().expand(chains, -1), generator)
    log_w = torch.zeros(chains).to(net.weight)
    for low, high in pairwise(torch.linspace(0, 1, steps + 1).tolist()):
        inputs = v @ net.weight + net.hidden_bias
        log_w += (high - low) * (v @ (net.visible_bias - a))
        log_w += (softplus(high * inputs) - softplus(low * inputs)).sum(1)  # (9)
        h = draw_units(torch.sigmoid(high * inputs), generator)
        v = draw_units(torch.sigmoid((1 - high) * a - high * net.energy_gap(h)), generator)
    log_w = log_w.double()
    value = log_z0.double() + log_w.logsumexp(0) - math.log(chains)
    w = torch.softmax(log_w, 0) * chains
    return LogPartition(value.item(), (w.std() / chains**0.5).item())


def partition_of(
    net: BoltzmannMachine, chains: int, steps: int, generator: torch.Generator
) -> LogPartition:
    """The logarithm of Z, exact where it can be summed, else estimated."""
    if min(net.weight.shape) <= MOST_UNITS:
        return LogPartition(log_partition(net).item(), 0.0)
    return annealed_log_partition(net, chains=chains, steps=steps, generator=generator)


@torch.no_grad()
def complete(
    net: BoltzmannMachine,
    v: Float[Tensor, "batch visible"],
    kept: Bool[Tensor, " visible"],
    steps: int,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch visible"]:
    """The mean of each unit given those that are kept, over the second half of a Gibbs chain."""
    half = steps // 2
    chain = torch.where(kept, v, draw_units(torch.full_like(v, 0.5), generator))
    chain = net.gibbs(chain, half, fixed=kept, generator=generator)
    total = torch.zeros_like(v)
    for _ in range(steps - half):
        h = draw_units(net.hidden_given(chain), generator)
        p = net.visible_given(h)
        total += p
        chain = torch.where(kept, v, draw_units(p, generator))
    return torch.where(kept, v, total / (steps - half))


# -------- the network ends here; training and pictures follow --------

MOST_SAMPLES = 10_000
MOST_STEPS = 1_000_000
FRAMES, RATE = 100, 12.0  # of a film, and how many of them are shown in a second


@dataclass(frozen=True, kw_only=True)
class DivergenceTraining(Training[BoltzmannMachine, nn.Module]):
    """Learn by contrastive divergence: chains of a few Gibbs steps begin at the data."""

    meanings: ClassVar[Mapping[str, str]] = {
        "pseudo_likelihood": "sum over pixels of the log-probability of each given all others",
        "reconstruction": "cross-entropy of an image and what its hidden code gives back, in nats",
    }

    steps: int = 5000
    batch_size: int = 100
    lr: float = 0.1
    optimizer: str = "sgd"
    schedule: str = "linear"
    hidden_size: int = 128
    """Hidden units."""
    gibbs_steps: int = 1
    """Gibbs steps of a chain in each update, the k of CD-k."""
    sampling_steps: int = 1000
    """Gibbs steps from noise to a sample."""

    captured: ClassVar[bool] = True
    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "gibbs_steps", "sampling_steps")

    def tiny(self) -> Self:
        return replace(super().tiny(), gibbs_steps=min(self.gibbs_steps, 2), sampling_steps=10)

    def model(self, data: Data) -> BoltzmannMachine:
        """With biases of pixels that are on as often as in training, where that is at hand."""
        net = BoltzmannMachine(math.prod(data.spec["shape"]), self.hidden_size)
        if "train" in data.splits:
            some = torch.arange(min(data.rows("train"), 10_000))
            x = data.some("train", some)[0].flatten(1).double().cpu()
            share = (x.sum(0) + 1) / (len(x) + 2)
            net.visible_bias.data.copy_(torch.logit(share))
        return net

    def step(self, state: State[BoltzmannMachine], batch: Batch) -> Terms:
        """Descend C. It is no measure of progress, so that the error of reconstruction is shown."""
        v = draw(batch[0].flatten(1))
        contrast = contrastive_loss(state.model, v, self.chains_after(state, v))
        state.descend(contrast, clip=self.clip, clip_value=self.clip_value)
        with torch.no_grad():
            error = reconstruction_error(state.model, v).mean()
        return {"reconstruction": error, "_contrast": contrast}

    def chains_after(
        self, state: State[BoltzmannMachine], v: Float[Tensor, "batch visible"]
    ) -> Float[Tensor, "chains visible"]:
        """The v' of (8): k Gibbs steps from the data."""
        return state.model.gibbs(v, self.gibbs_steps)

    def metrics(self, model: BoltzmannMachine, batch: Batch) -> dict[str, Tensor]:
        """The pseudo-likelihood of an image by sixteen of its units, drawn for each."""
        v = draw(batch[0].flatten(1))
        units = torch.randint(v.shape[1], (16, len(v))).to(v.device)
        return {
            "pseudo_likelihood": torch.stack([model.pseudo_likelihood(v, i) for i in units]).mean(
                0
            ),
            "reconstruction": reconstruction_error(model, v),
        }

    def monitor(self) -> Goal | None:
        """The last weights are kept where the learning rate falls to its end."""
        ends = self.schedule not in ("constant", "plateau")
        return None if ends else Goal("pseudo_likelihood", ">=", 0.0)

    def sample(
        self,
        model: BoltzmannMachine,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 64,
        steps: int = 0,
        temperature: float = 1.0,
        film: bool = False,
    ) -> Float[Tensor, "n channels height width"] | plot.Film:
        """Images drawn by Gibbs chains from noise (steps=0: as many as the recipe says)."""
        steps = steps or self.sampling_steps
        check_count("n", n, 1, MOST_SAMPLES)
        check_count("steps", steps, 1, MOST_STEPS)
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature ({temperature}) must be above 0; try 1.0")
        source = beside(model, generator)
        v = noise(model, n, source)
        if not film:
            v = model.gibbs(v, steps, temperature, generator=source)
            return v.view(n, *spec["shape"])

        def states() -> Iterator[Tensor]:
            chain = v
            for frame in range(min(FRAMES, steps) + 1):
                if frame:
                    more = frame * steps // min(FRAMES, steps)
                    more -= (frame - 1) * steps // min(FRAMES, steps)
                    chain = model.gibbs(chain, more, temperature, generator=source)
                yield chain.view(n, *spec["shape"]).float().cpu()

        return plot.Film(chain_frames(states(), math.ceil(n**0.5)), RATE)

    def predict(
        self,
        model: BoltzmannMachine,
        inputs: Float[Tensor, "batch channels height width"],
        spec: Spec,
        *,
        keep: str = "",
        steps: int = 200,
        annealing: int = 1000,
    ) -> Answers:
        """Free energy, log-likelihood, hidden code and reconstruction; or with `keep` the rest.

        annealing=0 leaves out a log-likelihood that rests on an estimate of Z.
        """
        v = binarize(check_pixels(inputs, "inputs").flatten(1))
        shape, source = spec["shape"], seeds.generator(self.seed, device=v.device)
        _, height, width = shape
        if keep:
            check_count("steps", steps, 2, MOST_STEPS)
            kept = keep_mask(keep, height, width, source).flatten()
            made = complete(model, v, kept, steps, source)
            return [{"completed": image.view(*shape)} for image in made]
        check_count("annealing", annealing, 0, MOST_STEPS)
        energy, h = model(v), model.hidden_given(v)
        answers: list[dict[str, Any]] = [{"free_energy": value} for value in energy.tolist()]
        if annealing or min(model.weight.shape) <= MOST_UNITS:
            z = partition_of(model, 100, annealing, source)
            for answer in answers:
                answer["log_likelihood"] = -answer["free_energy"] - z.value
                answer["log_partition_error"] = z.error
        for answer, code, image in zip(answers, h, model.visible_given(h), strict=True):
            answer["hidden"] = [round(value, 6) for value in code.tolist()]
            answer["reconstruction"] = image.view(*shape)
        return answers

    # ------------------------------------------------------------------------------------ pictures

    def picture_chain(self, model: BoltzmannMachine, data: Data, history: History) -> Figure:
        """Eight Gibbs chains from noise, a row each, after so many steps as the columns say.

        Noise turns into images within a few steps; a chain that mixes then changes from one kind
        of image to another.
        """
        source = beside(model, seeds.generator(self.seed, 5))
        v, states, done = noise(model, 8, source), [], 0
        stops = sorted({min(n, self.sampling_steps) for n in (0, 1, 2, 5, 10, 30, 100, 300, 1000)})
        for stop in stops:
            v, done = model.gibbs(v, stop - done, generator=source), stop
            states.append(v.view(-1, *data.spec["shape"])[:, 0])
        table = torch.stack(states, 1).float().cpu()
        return image_table(table, columns=[f"{n:,}" for n in stops], title="Gibbs steps from noise")

    def picture_filters(self, model: BoltzmannMachine, data: Data, history: History) -> Figure:
        """The weights of hidden units to the pixels, an image for each unit.

        A unit that is on makes its red pixels likelier and its blue pixels less likely.
        """
        weight = model.weight.T.view(-1, *data.spec["shape"])
        return plot.filters(weight.float(), most=48, title="weights of hidden units")

    def picture_free_energy(
        self, model: BoltzmannMachine, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Free energy of validation images, of samples, and of images whose pixels are independent.

        Data and samples lie at {data:.1f} and {samples:.1f} on average, independent pixels at
        {independent:.1f}: the network knows which pixels go together.
        """
        source = beside(model, seeds.generator(self.seed, 6))
        v = torch.cat([draw(batch[0].flatten(1)) for batch in data.valid])[:1000]
        samples = model.gibbs(noise(model, 500, source), self.sampling_steps, generator=source)
        independent = draw_units(v.mean(0).expand(1000, -1), source)
        kinds = {"data": v, "samples": samples, "independent": independent}
        energies = {name: model(rows) for name, rows in kinds.items()}
        named = {"independent pixels" if n == "independent" else n: e for n, e in energies.items()}
        figure = energy_histograms(named, xlabel="free energy F(v), nats")
        return figure, {name: values.mean().item() for name, values in energies.items()}


def reconstruction_error(
    net: BoltzmannMachine, v: Float[Tensor, "batch visible"]
) -> Float[Tensor, " batch"]:
    """-log P(v|h) at the mean h of v, without a draw."""
    p = net.visible_given(net.hidden_given(v)).float()
    return binary_cross_entropy(p, v.float(), reduction="none").sum(1).to(v.dtype)


def noise(net: BoltzmannMachine, rows: int, generator: torch.Generator) -> Tensor:
    """Images whose pixels are on with probability 1/2."""
    return draw_units(torch.full((rows, len(net.weight)), 0.5).to(net.weight), generator)


def beside(net: BoltzmannMachine, generator: torch.Generator) -> torch.Generator:
    """A generator on the device of the network, that follows from the given one."""
    number = int(torch.randint(2**62, (), generator=generator))
    return seeds.generator(number, device=net.weight.device)


def check_count(name: str, value: int, least: int, most: int) -> None:
    """Refuse a setting of a verb that is too small or too large."""
    if not least <= value <= most:
        raise UserError(f"{name} ({value}) must be from {least} to {most:,}")


class PersistentChains(nn.Module):
    """Chains that go on from update to update."""

    v: Tensor

    def __init__(self, v: Float[Tensor, "chains visible"]) -> None:
        super().__init__()
        self.register_buffer("v", v)


@dataclass(frozen=True, kw_only=True)
class PersistentTraining(DivergenceTraining):
    """Learn by persistent contrastive divergence: chains go on where the last update left them."""

    chains: int = 100
    """Chains that draw from the network."""

    per_rank: ClassVar[bool] = True  # each process would have chains of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "chains")

    def extra(self, model: BoltzmannMachine) -> PersistentChains:
        return PersistentChains(draw_units(torch.full((self.chains, len(model.weight)), 0.5)))

    def chains_after(
        self, state: State[BoltzmannMachine], v: Float[Tensor, "batch visible"]
    ) -> Float[Tensor, "chains visible"]:
        """The v' of (8): k Gibbs steps from where the chains are, which stay where they end."""
        chains = state.extra
        assert isinstance(chains, PersistentChains)
        return chains.v.copy_(state.model.gibbs(chains.v, self.gibbs_steps))


# ---------------------------------------------------------------------------- bars and stripes


def bars_and_stripes(side: int) -> Float[Tensor, "patterns pixels"]:
    """Each setting of the columns, then of the rows: all black and all white are there twice."""
    lines = all_states(side).float()
    bars = lines[:, None, :].expand(-1, side, -1)
    return torch.cat([bars, bars.transpose(1, 2)]).reshape(-1, side * side)


def is_valid(
    images: Float[Tensor, "rows pixels"], patterns: Float[Tensor, "patterns pixels"]
) -> Bool[Tensor, " rows"]:
    """Whether an image is one of the patterns."""
    return (torch.cdist(images, patterns, p=1) < 0.5).any(1)


@dataclass(frozen=True, kw_only=True)
class BarsAndStripes(PersistentTraining):
    """Learn images of whole columns or whole rows, whose distribution is known."""

    meanings: ClassVar[Mapping[str, str]] = {
        **DivergenceTraining.meanings,
        "log_likelihood": "log q(v) of the patterns in nats, with the exact Z",
        "valid_samples": "the share of 2,000 samples of Gibbs chains from noise that are patterns",
        "valid_probability": "the probability q of all patterns together, summed exactly",
        "patterns": "how many of the patterns are among these samples",
    }

    steps: int = 8000
    batch_size: int = 32
    lr: float = 0.15
    hidden_size: int = 32
    gibbs_steps: int = 10
    chains: int = 500
    eval_every: int = 400
    side: int = 4
    """Rows and columns of an image."""

    overfits: ClassVar[bool] = False  # thirty updates are too few for patterns to appear

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(2 <= self.side <= 4, "side", "from 2 to 4, because all states are enumerated")

    def tiny(self) -> Self:
        return replace(super().tiny(), side=3, chains=20)

    @property
    def known(self) -> Float[Tensor, "patterns pixels"]:
        """Every pattern once."""
        found: Tensor = bars_and_stripes(self.side).unique(dim=0)
        return found

    def dataset(self) -> Data:
        """All patterns in each split: what is learned is a distribution that is known."""
        images = bars_and_stripes(self.side).view(-1, 1, self.side, self.side)
        spec = {
            "name": "bars and stripes", "kind": "image", "task": "density",
            "shape": [1, self.side, self.side], "classes": [], "features": [], "mean": [0.0],
            "std": [1.0], "peak": 1.0, "size": 0,
            "split": "each part holds all patterns, because their distribution is what is learned",
        }  # fmt: skip
        splits = {part: (images,) for part in ("train", "valid", "test")}
        digest = hashlib.sha256(f"bars and stripes {self.side}".encode()).hexdigest()
        return Data(splits, spec, min(self.batch_size, len(images)), self.seed, digest)

    def metrics(self, model: BoltzmannMachine, batch: Batch) -> dict[str, Tensor]:
        v, log_z = draw(batch[0].flatten(1)), log_partition(model)
        inside = torch.exp(-model(self.known.to(v)) - log_z).sum()
        return {
            **super().metrics(model, batch),
            "log_likelihood": -model(v) - log_z,
            "valid_probability": inside.expand(len(v)),
        }

    def final(
        self, model: BoltzmannMachine, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        """What Gibbs chains draw."""
        v = self.draw_samples(model, beside(model, generator))
        valid = is_valid(v, self.known)
        return {
            "valid_samples": valid.double().mean().item(),
            "patterns": float(len(v[valid].unique(dim=0))),
        }

    def draw_samples(
        self, model: BoltzmannMachine, generator: torch.Generator
    ) -> Float[Tensor, "samples pixels"]:
        """Two thousand samples of chains from noise."""
        v = noise(model, 2000, generator)
        return model.gibbs(v, self.sampling_steps, generator=generator).float().cpu()

    def picture_samples(
        self, model: BoltzmannMachine, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """The first 128 of 2,000 samples of Gibbs chains from noise, wrong ones in a red frame.

        {share} are bars or stripes, of which there are {patterns}; of random images {chance} are.
        """
        v = self.draw_samples(model, beside(model, seeds.generator(self.seed, 7)))
        valid, images = is_valid(v, self.known), v.view(-1, *data.spec["shape"])
        share, count = valid.double().mean().item(), len(self.known)
        figure = samples_by_validity(
            images[:128], valid[:128].tolist(), title=f"{share:.1%} of 2,000 samples are valid"
        )
        chance = count / 2 ** (self.side**2)
        return figure, {"share": f"{share:.1%}", "patterns": f"{count}", "chance": f"{chance:.2%}"}

    def picture_probabilities(
        self, model: BoltzmannMachine, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """The exact probability that the network gives to each pattern, and that of the data.

        All patterns together have {inside}; what is missing lies on other images.
        """
        patterns = self.known
        q = torch.exp(-model(patterns.to(model.weight)) - log_partition(model)).double().cpu()
        rows = bars_and_stripes(self.side)
        p = (torch.cdist(patterns, rows, p=1) < 0.5).double().mean(1)
        inside = f"{q.sum().item():.1%}"
        return pattern_probabilities(q, p, title=f"{inside} of q on the patterns"), {
            "inside": inside
        }


# ------------------------------------------------------------------------------------- images


@dataclass(frozen=True, kw_only=True)
class DivergenceImages(DivergenceTraining, BinaryImages[BoltzmannMachine, nn.Module]):
    """Learn the distribution of binary images by contrastive divergence."""

    eval_every: int = 250

    meanings: ClassVar[Mapping[str, str]] = {
        **DivergenceTraining.meanings,
        "log_likelihood": "log q(v) of test images in nats; Z is estimated unless it is summed",
        "log_partition": "log Z, estimated by annealed importance sampling unless it is summed",
        "log_partition_error": "standard error of log Z; 0 where it is summed",
    }

    def dataset(self) -> Data:
        data = super().dataset()
        return replace(data, spec={**data.spec, "task": "density"})

    def final(
        self,
        model: BoltzmannMachine,
        data: Data,
        generator: torch.Generator,
        *,
        annealing: int = 1000,
        chains: int = 100,
    ) -> dict[str, float]:
        """The log-likelihood of the test images, and the log Z that it rests on."""
        check_count("annealing", annealing, 1, MOST_STEPS)
        check_count("chains", chains, 2, MOST_SAMPLES)
        z = partition_of(model, chains, annealing, beside(model, generator))
        energy = torch.cat([model(draw(batch[0].flatten(1))) for batch in data.test])
        return {
            "log_likelihood": -energy.double().mean().item() - z.value,
            "log_partition": z.value,
            "log_partition_error": z.error,
        }

    def picture_completion(
        self, model: BoltzmannMachine, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images, what is kept of them, and the mean of the rest given what is kept.

        The hidden pixels are off by {error:.3f} on average, their means over all images by
        {baseline:.3f}.
        """
        (x, *_), shape = next(iter(data.valid)), data.spec["shape"]
        v = draw(x.flatten(1))
        kept = keep_mask("top", *shape[1:]).flatten().to(v.device)
        source = beside(model, seeds.generator(self.seed, 8))
        made = complete(model, v, kept, 200, source)
        grey = torch.where(kept, v, torch.full_like(v, 0.5))
        hidden = ~kept
        error = (made - v)[:, hidden].square().mean().sqrt().item()
        baseline = (v - v.mean(0))[:, hidden].square().mean().sqrt().item()
        some = [part[:8].view(-1, *shape)[:, 0].float().cpu() for part in (v, grey, made)]
        columns = [f"image {n + 1}" for n in range(len(some[0]))]
        figure = image_table(
            torch.stack(some), columns=columns, rows=["image", "kept", "completed"]
        )
        return figure, {"error": error, "baseline": baseline}


@dataclass(frozen=True, kw_only=True)
class PersistentImages(PersistentTraining, DivergenceImages):
    """Learn the distribution of binary images by persistent contrastive divergence."""


RECIPES = {
    "rbm-bars": BarsAndStripes(goal="valid_samples >= 0.9", covers=("G13", "G14", "G15")),
    "rbm": DivergenceImages(gibbs_steps=5, goal="log_likelihood >= -24", covers=("G13", "G15")),
    "rbm-mnist": PersistentImages(
        data="mnist",
        hidden_size=500,
        steps=20_000,
        gibbs_steps=5,
        lr=0.05,
        eval_every=5000,
        goal="log_likelihood >= -93",
        covers=("G13", "G15"),
    ),
}
