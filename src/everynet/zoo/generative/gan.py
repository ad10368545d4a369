"""A generative adversarial network: a generator makes points, a discriminator tells them from data.

    V(D, G) = E_x log D(x) + E_z log(1 - D(G(z)))        (1)  D maximises it, G minimises it
    L_D     = -V(D, G)                                   (2)  descended by D alone
    L_G     = -E_z log D(G(z))                           (3)  descended by G alone
    R       = gamma / 2 E_x |ds(x) / dx|^2               (4)  gradient penalty, added to (2)
    D*(x)   = p(x) / (p(x) + q(x))                       (5)  the best D for a fixed G

where x is data of density p, z is standard normal noise, G(z) has density q, D(x) = sigmoid(s(x))
is the probability that x is real, s is its score and E_x is the mean over x. With the best D the
value is V(D*, G) = -2 log 2 + 2 JSD(p, q), where JSD is the Jensen-Shannon divergence: it is least
where q = p, and there D is 1/2 everywhere, L_D is 2 log 2 and L_G is log 2. Where D rejects all
that G makes, log(1 - D) is flat, so that G descends (3) in its place: it has the same fixed point,
and its gradient by s is D - 1 instead of -D.

Goodfellow et al. (2014), "Generative Adversarial Nets", arXiv:1406.2661, sections 3 and 4. Unlike
the paper, D has the penalty (4), without which the players circle and modes are lost: Mescheder,
Geiger, Nowozin (2018), "Which Training Methods for GANs do actually Converge?", arXiv:1801.04406.
Eight Gaussians on a ring are the test of Metz et al. (2017), "Unrolled Generative Adversarial
Networks", arXiv:1611.02163, for a generator that leaves out part of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import Optimizer

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.recipes.state import State
from everynet.recipes.training import make_optimizer
from everynet.system.errors import UserError
from everynet.training.loop import relearned
from everynet.zoo.generative.pictures.generation import (
    game_frames,
    noise_to_points,
    samples_on_surfaces,
)
from everynet.zoo.generative.ring import MODES, RingPoints, mixture_density, mode_centres

P = TypeVar("P", bound="GAN")


class GAN(nn.Module):
    """A generator that maps noise to points and a discriminator that maps points to scores."""

    generator: nn.Module
    discriminator: nn.Module

    def __init__(self, latent_size: int, hidden_size: int, features: int = 2) -> None:
        super().__init__()
        self.generator = mlp(latent_size, hidden_size, hidden_size, features)
        self.discriminator = mlp(features, hidden_size, hidden_size, 1)

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, " batch"]:
        """The scores s(G(z)) of generated points."""
        return self.score(self.generator(z))

    def score(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, " batch"]:
        """The logit s(x) of D(x): above 0 where a point looks real."""
        s: Tensor = self.discriminator(x)
        return s[:, 0]


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with a ReLU between any two."""
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def discriminator_loss(
    real: Float[Tensor, " some"], fake: Float[Tensor, " others"]
) -> Float[Tensor, ""]:
    """L_D from the scores of real and of generated points; log sigmoid(s) is -softplus(-s)."""
    value = -softplus(-real).mean() - softplus(fake).mean()  # (1)
    return -value  # (2)


def generator_loss(fake: Float[Tensor, " some"]) -> Float[Tensor, ""]:
    """L_G from the scores of generated points: it does not saturate where D is sure."""
    return softplus(-fake).mean()  # (3)


def gradient_penalty(
    real: Float[Tensor, " some"], x: Float[Tensor, "some ..."], gamma: float
) -> Float[Tensor, ""]:
    """R from the real points `x` and their scores: what D pays for a slope at the data."""
    (slope,) = torch.autograd.grad(real.sum(), x, create_graph=True)
    return gamma / 2 * slope.flatten(1).square().sum(1).mean()  # (4)


def best_discriminator(
    p: Float[Tensor, "*points"], q: Float[Tensor, "*points"]
) -> Float[Tensor, "*points"]:
    """The probability that a point is real, from the densities of real and generated ones."""
    return p / (p + q)  # (5)


def play(
    state: State[P], batch: Batch, latent_size: int, gamma: float, **clips: float
) -> tuple[Terms, Tensor]:
    """D descends (2) + (4), then G descends (3) against the D of now, from the same noise.

    The losses, and what was generated.
    """
    x, model = batch[0].clone().requires_grad_(), state.model
    z = torch.randn(len(x), latent_size, dtype=x.dtype, device=x.device)
    fake = model.generator(z)

    real_score = model.score(x)
    d_loss = discriminator_loss(real_score, model.score(fake.detach()))
    penalty = gradient_penalty(real_score, x, gamma)
    state.descend(d_loss + penalty, "discriminator", **clips)

    g_loss = generator_loss(model.score(fake))
    state.descend(g_loss, "generator", **clips)
    return {"discriminator": d_loss, "penalty": penalty, "generator": g_loss}, fake


# -------- the network ends here; training and pictures follow --------

MOST = 1_000_000
"""Points that are generated at once."""
FILMED = 1000
"""Points of a film, at most."""
FRAMES, RATE, HOLD = 24, 5.0, 8  # of a film: while learning, in a second, of its end


def player_optimizers(
    model: GAN, optimizer: str, lr: float, weight_decay: float, momentum: float
) -> dict[str, Optimizer]:
    """One for each player, of the same settings."""
    made = {
        name: make_optimizer(player.parameters(), optimizer, lr, weight_decay)
        for name, player in model.named_children()
    }
    for each in made.values():
        for group in each.param_groups:
            group["betas"] = (momentum, 0.9)
    return made


def losses_of_players(history: History) -> plot.Panel:
    """Both losses by step, beside their values where D knows nothing."""
    train = plot.logged_curves(history, "train")
    losses, guides = {}, {}
    for name, level in (("discriminator", 2 * math.log(2)), ("generator", math.log(2))):
        steps, values = train[name]
        losses[name] = (steps, plot.moving_mean(values, max(1, len(values) // 60)))
        guides[name] = (steps, torch.full_like(steps, level))
    return plot.Panel(
        losses,
        xlabel="step",
        ylabel="loss, moving mean",
        title="losses of the two players",
        guides=guides,
        dashes="where q = p: 2 log 2 and log 2",
        legend="below",
    )


@dataclass(frozen=True, kw_only=True)
class GaussianRing(RingPoints[GAN]):
    """Generate points like those of eight Gaussians on a ring, all eight of them."""

    steps: int = 6000
    batch_size: int = 128
    lr: float = 2e-3
    schedule: str = "cosine"
    gamma: float = 0.1
    """Weight of the gradient penalty at real points; 0 leaves it out."""
    momentum: float = 0.5
    """Adam's beta_1: 0.9 would chase where the other player was."""
    latent_size: int = 2
    """Numbers of noise from which a point is generated."""
    hidden_size: int = 64
    """Units in each of the two hidden layers of either player."""

    captured: ClassVar[bool] = True
    overfits: ClassVar[bool] = False  # against one batch the players circle: neither wins
    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "gamma")
        self.require(0 <= self.momentum < 1, "momentum", "at least 0 and below 1")
        self.at_least(1, "latent_size", "hidden_size")
        adam = self.optimizer in ("adam", "adamw")
        self.require(adam, "optimizer", "adam or adamw, because momentum is a number of theirs")

    def model(self, data: Data) -> GAN:
        return GAN(self.latent_size, self.hidden_size)

    def optimizers(self, model: GAN) -> dict[str, Optimizer]:
        return player_optimizers(model, self.optimizer, self.lr, self.weight_decay, self.momentum)

    def step(self, state: State[GAN], batch: Batch) -> Terms:
        clips = {"clip": self.clip, "clip_value": self.clip_value}
        return play(state, batch, self.latent_size, self.gamma, **clips)[0]

    def metrics(self, model: GAN, batch: Batch) -> dict[str, Tensor]:
        (x,) = batch
        z = torch.randn(len(x), self.latent_size).to(x)
        return {"real": x, "fake": model.generator(z)}

    def picture_samples(
        self, model: GAN, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """Generated points beside real ones, then on D and on the best D for this generator.

        {modes} of eight Gaussians are covered; D is 1/2 where it cannot tell the two apart.
        """
        weight, span = next(model.parameters()), 1.5 * self.radius
        (real,) = next(iter(data.valid))
        fake = model.generator(torch.randn(2000, self.latent_size).to(weight)).double().cpu()
        places = plot.square(120, -span, span)
        answer = model.score(places.to(weight)).sigmoid()
        # Both densities are smoothed alike, which leaves (5) as it is where p = q.
        bandwidth = self.std / 2
        p = mixture_density(places, mode_centres(self.radius), math.hypot(self.std, bandwidth))
        q = mixture_density(places, fake, bandwidth)
        somewhere = p + q > 1e-3 * p.max()  # elsewhere there is nothing to tell apart
        best = torch.where(somewhere, best_discriminator(p, q), torch.nan)
        surfaces = {"D(x)": answer, "D*(x), the best": best}
        figure = samples_on_surfaces(real, fake, surfaces, span=span)
        return figure, {"modes": self.count_modes(fake)}

    def picture_noise(self, model: GAN, data: Data, history: History) -> Figure:
        """Noise in the colour of the Gaussian that its point is nearest to, and circles of noise.

        A sector of noise is drawn together to a Gaussian; points between come from its edges.
        """
        weight, turn = next(model.parameters()), torch.linspace(0, 2 * math.pi, 721)
        z = torch.randn(2000, self.latent_size).to(weight)
        fake = model.generator(z).double().cpu()
        circles = {}
        for length in (0.5, 1.2, 2.0):
            circle = torch.zeros(len(turn), self.latent_size)
            circle[:, 0] = length * turn.cos()
            circle[:, -1] = length * turn.sin()
            image = model.generator(circle.to(weight)).cpu()
            circles[f"|z| = {length}"] = (circle[:, [0, -1]], image)
        nearest = torch.cdist(fake, mode_centres(self.radius)).argmin(1)
        span = 1.5 * self.radius
        return noise_to_points(z[:, [0, -1]].cpu(), fake, nearest, circles, span=span)

    def picture_game(self, model: GAN, data: Data, history: History) -> Figure:
        """Both losses by step, beside their values where D knows nothing, and how good samples are.

        Losses that settle at 2 log 2 and log 2 mean that neither player wins.
        """
        valid = plot.logged_curves(history, "valid")
        steps, modes = valid["modes"]
        return plot.panels(
            losses_of_players(history),
            plot.Panel(
                {"modes covered / 8": (steps, modes / MODES), "near a mode": valid["quality"]},
                xlabel="step",
                ylabel="share",
                title="generated points, validation",
                ylim=(0.0, 1.05),
                legend="below",
            ),
            height=3.0,
        )

    def sample(
        self,
        model: GAN,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 500,
        film: bool = False,
    ) -> Float[Tensor, "n 2"] | plot.Film:
        """Points generated from noise; `film` shows them, and D, while the players learn anew."""
        most = FILMED if film else MOST
        if not 1 <= n <= most:
            raise UserError(f"n ({n}) must be between 1 and {most:,}: so many points are made")
        z = torch.randn(n, self.latent_size, generator=generator)
        if film:
            states = self._learn_again(model.cpu().float(), z)
            frames = game_frames(states, span=1.5 * self.radius, truth=self.rings())
            return plot.Film(frames, RATE, hold=HOLD)
        z = z.to(next(model.parameters()))
        return torch.cat([model.generator(some) for some in z.split(10_000)])

    def _learn_again(
        self, kept: GAN, z: Float[Tensor, "n latent"]
    ) -> Iterator[tuple[str, Tensor, Tensor]]:
        """The points from one noise and D on a square while both learn, then of those kept."""
        places = plot.square(120, -1.5 * self.radius, 1.5 * self.radius).float()
        for step, model in relearned(self, self.dataset(), FRAMES):
            yield f"step {step:,}", model.generator(z), model.score(places).sigmoid()
        yield "as kept", kept.generator(z), kept.score(places).sigmoid()


RECIPES = {
    "gan-ring": GaussianRing(
        goal="energy_distance <= 0.015 and modes >= 8 and quality >= 0.93", covers=("G12",)
    ),
}
