"""Cells that see: centre against surround, then lines of one angle, then lines in any place.

    D(p) = G(p; s) - G(p; k s),  G(p; s) = exp(-|p|^2 / (2 s^2)) / (2 pi s^2)   (1)  ganglion cell
    S(p) = sum_n e_n D(p - n d u)                            (2)  simple cell: a row of them along u
    r = max(0, sum_p S(p) x(p))                              (3)  its response
    c = (sum_p S(p) x(p))^2 + (sum_p S'(p) x(p))^2           (4)  complex cell
    OSI = |sum_j r_j exp(2 i a_j)| / sum_j r_j               (5)  orientation selectivity
    h_b = sum over a cell of |g| max(0, 1 - |angle(g) / w - b|)   (6)  histogram of gradients
    f = h / sqrt(|h|^2 + e^2)                                (7)  over blocks of 2 x 2 cells

p and n d u are places in pixels from the middle, x is the image and |.| the Euclidean norm. u
points along the preferred angle, e_n is a Gaussian weight along the row. S' is S a quarter of a
wave further across: its phase differs by 90 degrees, so (4) sees a grating wherever its bars lie.
In (6) g is the gradient of the image, angles are taken modulo 180 degrees, and w is the width of a
bin. (6) and (7) are what was made by hand of the same idea: local edges, by angle, in any place.

Hubel, Wiesel (1962), "Receptive fields, binocular interaction and functional architecture in the
cat's visual cortex", doi:10.1113/jphysiol.1962.sp006837; Adelson, Bergen (1985), "Spatiotemporal
energy models for the perception of motion", doi:10.1364/JOSAA.2.000284, for (4); Dalal, Triggs
(2005), "Histograms of oriented gradients for human detection", doi:10.1109/CVPR.2005.177. Unlike
the last, blocks are normed by the L2 norm alone, without clipping.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Float64
from matplotlib.figure import Figure
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn.functional import pad

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.training.loop import evaluate, trained
from everynet.zoo.vision.cnn import CNNPhotographs
from everynet.zoo.vision.pictures.features import cell_fields, named_points

Plane = Float64[Tensor, "size size"]
BINS = 9
PHASES = torch.linspace(0, 2 * math.pi, 37, dtype=torch.float64)


def gaussian(x: Plane, y: Plane, s: float) -> Plane:
    """A round bell whose sum over the plane is 1."""
    return (-(x**2 + y**2) / (2 * s**2)).exp() / (2 * math.pi * s**2)


def centre_surround(x: Plane, y: Plane, s: float, k: float) -> Plane:
    """An on-centre cell: light in the middle excites it, light around it silences it."""
    return gaussian(x, y, s) - gaussian(x, y, k * s)  # (1)


@dataclass(frozen=True)
class CellRow:
    """How a simple cell is made of centre-surround cells."""

    side: int
    s: float
    """Deviation of the centre, in pixels."""
    k: float
    """That of the surround, as a multiple."""
    count: int
    """Cells in the row."""
    gap: float
    """Pixels from one to the next."""


def simple_field(row: CellRow, angle: float, across: float = 0.0) -> Plane:
    """The field of a simple cell that prefers lines at `angle`, moved `across` them by pixels."""
    x, y = _places(row.side)
    right, up = math.cos(angle), math.sin(angle)
    x, y = x + across * up, y - across * right  # the normal of the row is (-up, right)
    field = torch.zeros_like(x)
    for n in range(row.count):
        along = (n - (row.count - 1) / 2) * row.gap
        e = math.exp(-(along**2) / (2 * (row.count * row.gap / 4) ** 2))
        field = field + e * centre_surround(x - along * right, y - along * up, row.s, row.k)  # (2)
    return field


def grating(side: int, angle: float, wave: float, phase: float | Tensor) -> Float64[Tensor, ...]:
    """Bars of light at `angle`, a wave of so many pixels across them."""
    x, y = _places(side)
    across = -x * math.sin(angle) + y * math.cos(angle)
    phase = torch.as_tensor(phase, dtype=torch.float64)[..., None, None]
    return (2 * math.pi * across / wave - phase).cos()


def simple_response(
    field: Plane, x: Float64[Tensor, "*images size size"]
) -> Float64[Tensor, "*images"]:
    """The response of a simple cell to images."""
    return (field * x).sum((-2, -1)).clamp(min=0)  # (3)


def complex_response(
    field: Plane, other: Plane, x: Float64[Tensor, "*images size size"]
) -> Float64[Tensor, "*images"]:
    """The response of a complex cell, from two simple fields a quarter of a wave apart."""
    return (field * x).sum((-2, -1)) ** 2 + (other * x).sum((-2, -1)) ** 2  # (4)


def selectivity(r: Float64[Tensor, " angles"], angles: Float64[Tensor, " angles"]) -> float:
    """0 for equal responses to all angles over 180 degrees, 1 for a response to one alone."""
    turned = (r * torch.exp(2j * angles)).sum().abs()
    return float(turned / r.sum())  # (5)


def preferred_angle(r: Float64[Tensor, " angles"], angles: Float64[Tensor, " angles"]) -> float:
    """The angle of the largest response, from the mean direction of (5)."""
    return float(torch.angle((r * torch.exp(2j * angles)).sum()) / 2 % math.pi)


def hog(
    x: Float[Tensor, "images 1 height width"], cell: int, *, e: float = 1e-3
) -> Float[Tensor, "images features"]:
    """Histograms of oriented gradients: cells of `cell` pixels, blocks of 2 x 2 cells."""
    images = pad(x, (1, 1, 1, 1), mode="replicate")[:, 0]
    right = (images[:, 1:-1, 2:] - images[:, 1:-1, :-2]) / 2
    up = (images[:, :-2, 1:-1] - images[:, 2:, 1:-1]) / 2
    size = (right**2 + up**2).sqrt()
    angle = torch.atan2(up, right) % math.pi / (math.pi / BINS)  # in bins, from 0 to BINS
    rows, columns = size.shape[1] // cell, size.shape[2] // cell
    cells = []
    for b in range(BINS):
        away = (angle - b).abs()
        share = (1 - torch.minimum(away, BINS - away)).clamp(min=0)  # round: bin 9 is bin 0
        votes = (size * share)[:, : rows * cell, : columns * cell]
        cells.append(votes.reshape(len(x), rows, cell, columns, cell).sum((2, 4)))  # (6)
    h = torch.stack(cells, -1)
    blocks = torch.cat([h[:, :-1, :-1], h[:, :-1, 1:], h[:, 1:, :-1], h[:, 1:, 1:]], -1)
    f = blocks / (blocks.square().sum(-1, keepdim=True) + e**2).sqrt()  # (7)
    return f.flatten(1)


def _places(side: int) -> tuple[Plane, Plane]:
    """How far each pixel is to the right of the middle, and how far above it."""
    at = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    return at.expand(side, side), -at[:, None].expand(side, side)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class ReceptiveCells(Simulation):
    """Simple and complex cells from differences of Gaussians, and hand-made features of digits."""

    meanings: ClassVar[Mapping[str, str]] = {
        "osi": "orientation selectivity of simple cells, the least: 1 for one angle alone",
        "angle_error": "error of preferred angles against those that were built in, in degrees",
        "phase_change": "relative change of a complex cell's response with the phase of the bars",
        "pixels_svm": "accuracy of a linear classifier on pixels",
        "hog_svm": "the same on histograms of gradients",
        "cnn": "the same of a small convolutional network",
    }

    angles: tuple[float, ...] = (0.0, 45.0, 90.0, 135.0)
    """Preferred angles of the simple cells, in degrees from the horizontal, counterclockwise."""
    side: int = 33
    """Pixels of a field, across and down."""
    centre: float = 1.5
    """Deviation of the centre of a ganglion cell, in pixels."""
    surround: float = 1.6
    """Deviation of its surround, as a multiple."""
    row: int = 7
    """Ganglion cells in a simple cell."""
    gap: float = 2.0
    """Pixels from one of them to the next."""
    tried: int = 72
    """Angles of gratings between 0 and 180 degrees."""
    data: str = "digits"
    """Grey images with a class each, for the table of hand-made and learned features."""
    cell: int = 2
    """Pixels of a cell of the histograms, across and down."""
    steps: int = 400
    """Updates of the CNN of the table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.angles) >= 1, "angles", "one or more")
        self.at_least(9, "side")
        self.above(0, "centre", "gap")
        self.require(self.surround > 1, "surround", "above 1: it is wider than the centre")
        self.require(self.row >= 2, "row", "at least 2, because a line is made of them")
        self.at_least(8, "tried")
        self.at_least(1, "cell", "steps")

    def wave(self) -> float:
        """The wave length in pixels of the largest response: where (1) passes most."""
        s, k = self.centre, self.surround
        # the largest exp(-s^2 f^2 / 2) - exp(-k^2 s^2 f^2 / 2)
        frequency = math.sqrt(4 * math.log(k) / (k**2 - 1)) / s
        return 2 * math.pi / frequency

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        row = CellRow(self.side, self.centre, self.surround, self.row, self.gap)
        wave, built = self.wave(), [math.radians(angle) for angle in self.angles]
        angles = torch.arange(self.tried, dtype=torch.float64) * (math.pi / self.tried)
        fields = torch.stack([simple_field(row, angle) for angle in built])
        moved = torch.stack([simple_field(row, angle, wave / 4) for angle in built])
        x, y = _places(self.side)
        bars = [grating(self.side, float(angle), wave, PHASES) for angle in angles]
        tuned = torch.stack(
            [torch.stack([simple_response(field, x).amax() for x in bars]) for field in fields]
        )  # cells angles
        spread = torch.stack(
            [
                torch.stack([complex_response(one, two, x).mean() for x in bars])
                for one, two in zip(fields, moved, strict=True)
            ]
        )
        own = grating(self.side, built[0], wave, PHASES)
        return {
            "ganglion": centre_surround(x, y, self.centre, self.surround),
            "fields": fields,
            "moved": moved,
            "angles": angles.rad2deg(),
            "tuning": tuned,
            "complex_tuning": spread,
            "phases": PHASES.rad2deg(),
            "simple_phase": simple_response(fields[0], own),
            "complex_phase": complex_response(fields[0], moved[0], own),
            **self.classify(),
        }

    def classify(self) -> dict[str, Tensor]:
        """Test accuracy of a linear classifier on pixels, on histograms, and of a CNN."""
        recipe = CNNPhotographs(
            data=self.data, widths=(16, 32, 32), steps=self.steps, lr=1e-2, schedule="one-cycle",
            seed=self.seed,
        )  # fmt: skip
        data = recipe.dataset()
        (x, y), tests = data.whole, [*data.test]
        test_x, test_y = (torch.cat(part) for part in zip(*tests, strict=True))
        found = []
        for see in (lambda images: images.flatten(1), lambda images: hog(images, self.cell)):
            machine = LinearSVC(C=1.0, random_state=self.seed, max_iter=5000)
            machine.fit(see(x[:, :1]).numpy(), y.numpy())
            found.append(float(machine.score(see(test_x[:, :1]).numpy(), test_y.numpy())))
        found.append(evaluate(recipe, trained(recipe, data), data.test)["accuracy"])
        return {"told": torch.tensor(found, dtype=torch.float64)}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        angles = result["angles"].deg2rad()
        wrong, selective = [], []
        for angle, r in zip(self.angles, result["tuning"], strict=True):
            gap = abs(math.degrees(preferred_angle(r, angles)) - angle % 180)
            wrong.append(min(gap, 180 - gap))
            selective.append(selectivity(r, angles))
        phase = result["complex_phase"]
        pixels, hand, learned = result["told"].tolist()
        return {
            "osi": min(selective),
            "angle_error": max(wrong),
            "phase_change": float((phase.max() - phase.min()) / phase.mean()),
            "pixels_svm": pixels,
            "hog_svm": hand,
            "cnn": learned,
        }

    def picture_fields(self, result: Mapping[str, Tensor]) -> Figure:
        """Fields of a centre-surround cell, of a simple cell made of a row of them, and of others.

        Light on red excites the cell, and light on blue silences it.
        """
        simple = zip(self.angles[1:], result["fields"][1:], strict=True)
        return cell_fields(
            {
                "centre-surround": result["ganglion"],
                f"simple, {self.angles[0]:g} degrees": result["fields"][0],
                "a quarter wave on": result["moved"][0],
                **{f"simple, {angle:g} degrees": field for angle, field in simple},
            }
        )

    def picture_tuning(self, result: Mapping[str, Tensor]) -> Figure:
        """Responses to gratings by their angle, left, and to bars that move, right.

        Each simple cell responds most at the angle it was built for; to moving bars the simple
        cell comes and goes, and the complex cell stays.
        """
        cells = zip(self.angles, result["tuning"], strict=True)
        tuning = Panel(
            {f"{angle:g} degrees": (result["angles"], r / r.max()) for angle, r in cells},
            "angle of the grating (degrees)", "response / largest",
            "simple cells, by the angle built", ylim=(0.0, 1.5), legend="upper right",
        )  # fmt: skip
        named = {"simple cell": result["simple_phase"], "complex cell": result["complex_phase"]}
        phases = Panel(
            {name: (result["phases"], r / r.max()) for name, r in named.items()},
            "phase of the bars (degrees)", "response / largest",
            f"bars at {self.angles[0]:g} degrees that move", ylim=(0.0, 1.5),
        )  # fmt: skip
        return panels(tuning, phases, width=3.25, height=2.9)

    def picture_told(self, result: Mapping[str, Tensor]) -> Figure:
        """Test accuracy of a linear classifier on pixels, on histograms of gradients, and of a CNN.

        The histograms were made by hand, and the CNN learned its features.
        """
        names = ("SVM on pixels", "SVM on HOG", "CNN")
        accuracy = zip(names, (100 * result["told"]).tolist(), strict=True)
        title = f"{self.data}: features made by hand and learned"
        return named_points(dict(accuracy), xlabel="test accuracy (%)", title=title)

    def tiny(self) -> Self:
        return replace(super().tiny(), side=17, row=3, tried=12)


RECIPES = {
    "receptive-cells": ReceptiveCells(
        goal="osi > 0.5 and angle_error <= 2 and phase_change <= 0.1",
        covers=("C12",),
    ),
}
