"""Eight Gaussians on a ring: points whose density is known, and how good generated ones are.

A generator that leaves out part of the data shows it here at once, which is what they were made
for: Metz et al. (2017), "Unrolled Generative Adversarial Networks", arXiv:1611.02163.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data.dataset import Batch, Data
from everynet.data.samplers import Made
from everynet.metrics import energy_distance
from everynet.recipes.state import M, X
from everynet.recipes.training import Training
from everynet.system.seeds import generator

MODES = 8
"""Gaussians on the ring."""


def mode_centres(radius: float) -> Float[Tensor, "modes 2"]:
    """The means of the Gaussians, the first on the right, then against the clock."""
    angle = torch.arange(MODES, dtype=torch.float64) * (2 * math.pi / MODES)
    return radius * torch.stack([angle.cos(), angle.sin()], 1)


def sample_ring(
    rows: int, radius: float, std: float, draw: torch.Generator
) -> Float[Tensor, "rows 2"]:
    """Points of the eight Gaussians, each as likely as another."""
    mode = torch.randint(MODES, (rows,), generator=draw)
    noise = torch.randn(rows, 2, generator=draw, dtype=torch.float64)
    return (mode_centres(radius)[mode] + std * noise).float()


def mixture_density(
    x: Float[Tensor, "points 2"], means: Float[Tensor, "modes 2"], std: float
) -> Float[Tensor, " points"]:
    """The density of a mixture of equally likely round Gaussians."""
    square = torch.cdist(x, means).square() / (2 * std**2)
    return torch.exp(-square).mean(1) / (2 * math.pi * std**2)


@dataclass(frozen=True, kw_only=True)
class RingPoints(Training[M, X]):
    """A network that generates points like those of eight Gaussians on a ring.

    Its `metrics` give `real` and as many `fake` points.
    """

    meanings: ClassVar[Mapping[str, str]] = {
        "energy_distance": "energy distance of generated and real points, 0 where both are alike",
        "modes": "modes of eight with at least a quarter of their fair share of generated points",
        "quality": "the share of generated points within three standard deviations of a mean",
    }

    radius: float = 2.0
    """Of the ring."""
    std: float = 0.1
    """Of each Gaussian, along each axis."""
    held_out: int = 2000
    """Points in each of the validation and the test set; as many are generated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "radius", "std")
        self.require(self.held_out >= 2, "held_out", "at least 2, because pairs are compared")

    def dataset(self) -> Data:
        """Training points drawn anew at each step, which no discriminator can learn by heart."""

        def make(step: int) -> Batch:
            draw = generator(self.seed, 1, step)
            return (sample_ring(self.batch_size, self.radius, self.std, draw),)

        held = {
            part: (sample_ring(self.held_out, self.radius, self.std, generator(2014, number)),)
            for number, part in enumerate(("valid", "test"))
        }
        spec = {
            "name": "eight Gaussians on a ring", "kind": "table", "task": "density",
            "shape": [2], "features": ["x", "y"], "mean": [0.0, 0.0], "std": [1.0, 1.0],
            "classes": [],
            "split": "training points are drawn at each step; validation and test sets are fixed",
        }  # fmt: skip
        digest = hashlib.sha256(f"ring {self.radius} {self.std}".encode())
        for (points,) in held.values():
            digest.update(points.numpy().tobytes())
        return Data(held, spec, self.batch_size, self.seed, digest.hexdigest(), Made(make=make))

    def rings(self) -> tuple[Float[Tensor, "modes 2"], float]:
        """The means, and three standard deviations: where generated points count as near."""
        return mode_centres(self.radius), 3 * self.std

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        real, fake = (outputs[name].double().cpu().view(-1, 2) for name in ("real", "fake"))
        return {
            "energy_distance": energy_distance(real, fake).item(),
            "modes": float(self.count_modes(fake)),
            "quality": self.count_by_mode(fake).sum().item() / len(fake),
        }

    def count_by_mode(self, fake: Float[Tensor, "rows 2"]) -> Tensor:
        """How many points lie within three standard deviations of each mean."""
        away, nearest = torch.cdist(fake.double(), mode_centres(self.radius)).min(1)
        return nearest[away <= 3 * self.std].bincount(minlength=MODES)

    def count_modes(self, fake: Float[Tensor, "rows 2"]) -> int:
        """How many modes have at least a quarter of their fair share of the points."""
        return int((self.count_by_mode(fake) >= len(fake) / MODES / 4).sum())
