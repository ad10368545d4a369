"""The VC dimension by brute force: how many points a class can label in every way.

    m(n) = max over x_1..x_n of |{(h(x_1), .., h(x_n)) : h in H}|          (1)  growth function
    d    = the largest n with m(n) = 2^n                                   (2)  VC dimension
    s_i (w . x_i + b) >= 1  for all i, for some w and b                    (3)  a half-space cuts s
    low <= x_i <= high  in every axis  <=>  s_i = 1,  for some low, high   (4)  a box cuts s
    m(n) <= sum_{k=0}^d C(n, k)                                            (5)  Sauer's lemma
    m(n)  = 2 sum_{k=0}^D C(n - 1, k)                                      (6)  half-spaces of R^D

s_i = 1 or -1 are the labels of the points x_i in R^D; a set that is labelled in all 2^n ways is
shattered. One such set of n points shows that d >= n; d < n needs that no set is, of which as many
are tried as one likes. The proof for half-spaces: of D + 2 points two parts have hulls that meet
(Radon), and no half-space parts these; so d = D + 1. For boxes: of 2 D + 1 points the 2 D that lie
furthest along each axis, either way, hold the others in their box; so d = 2 D. Below d the growth
function is 2^n, above it a polynomial of degree d: that is why a class of finite d can be learned.
(6) holds of all points in general position (Cover); (3) is decided by a linear program, (4) by the
smallest box around the points of label 1.

Vapnik and Chervonenkis (1971), "On the uniform convergence of relative frequencies of events to
their probabilities", doi:10.1137/1116025; Cover (1965), doi:10.1109/PGEC.1965.264137; Sauer (1972),
"On the density of families of sets", doi:10.1016/0097-3165(72)90019-2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from scipy.optimize import linprog
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

TOLERANCE = 1e-6
"""The least margin at weights up to 1 that separates points; the solver's own tolerance is 1e-7."""


def labelings(points: int) -> Bool[Tensor, "labelings points"]:
    """All 2^n ways to label n points."""
    return ((torch.arange(2**points)[:, None] >> torch.arange(points)) & 1).bool()


def separating_plane(
    x: Float[Tensor, "points axes"], positive: Bool[Tensor, " points"]
) -> Float[Tensor, " weights"] | None:
    """The half-space that holds these points alone, as w and b in one; None if there is none."""
    sides = torch.cat([x, torch.ones_like(x[:, :1])], dim=1).double()
    sides[~positive] *= -1  # (3): of weights up to 1 those with the largest margin
    rows = np.column_stack([-sides.numpy(), np.ones(len(x))])
    axes = sides.shape[1]
    aim = np.append(np.zeros(axes), -1.0)
    limits = [(-1.0, 1.0)] * axes + [(0.0, 1.0)]
    solved = linprog(aim, A_ub=rows, b_ub=np.zeros(len(x)), bounds=limits)
    if solved.x is None:
        raise ArithmeticError(f"the linear program of a half-space failed: {solved.message}")
    margin = float(solved.x[-1])
    return torch.tensor(solved.x[:-1] / margin) if margin > TOLERANCE else None


def by_halfspaces(x: Float[Tensor, "points axes"]) -> Bool[Tensor, " labelings"]:
    """Which of the labelings of the points a half-space cuts out."""
    every = labelings(len(x))
    half = [separating_plane(x, labels) is not None for labels in every[: len(every) // 2]]
    cut = torch.tensor(half)
    return torch.cat([cut, cut.flip(0)])  # the other half has all labels swapped


def by_boxes(x: Float[Tensor, "points axes"]) -> Bool[Tensor, " labelings"]:
    """Which of the labelings of the points a box with sides along the axes cuts out."""
    every = labelings(len(x))
    chosen = every[..., None]
    low = torch.where(chosen, x, math.inf).amin(dim=1, keepdim=True)
    high = torch.where(chosen, x, -math.inf).amax(dim=1, keepdim=True)
    inside = ((x >= low) & (x <= high)).all(dim=2)  # labelings points
    return (inside == every).all(dim=1)  # (4)


def growth(
    cut: Callable[[Tensor], Tensor], sets: Float[Tensor, "sets points axes"]
) -> tuple[int, int]:
    """The most and the fewest labelings of any of the sets that the class cuts out."""
    counts = [int(cut(x).sum()) for x in sets]
    return max(counts), min(counts)  # (1)


def vc_dimension(growths: Mapping[int, int]) -> int:
    """The largest number of points that is shattered, from the growth function."""
    return max((n for n, most in growths.items() if most == 2**n), default=0)  # (2)


def sauer(points: int, dimension: int) -> int:
    """The most labelings that a class of this VC dimension can have."""
    return sum(math.comb(points, k) for k in range(dimension + 1))  # (5)


def cover(points: int, axes: int) -> int:
    """The labelings of points in general position that half-spaces cut out."""
    return 2 * sum(math.comb(points - 1, k) for k in range(axes + 1))  # (6)


# -------- the network ends here; training and pictures follow --------

CLASSES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int], int]]] = {
    "half-spaces": (by_halfspaces, lambda axes: axes + 1),
    "boxes": (by_boxes, lambda axes: 2 * axes),
}
"""Each class with what it cuts out, and its VC dimension in R^D."""


@dataclass(frozen=True, kw_only=True)
class VCDimension(Simulation):
    """Try all labelings of sets of points, and count those that a class can cut out."""

    meanings: ClassVar[Mapping[str, str]] = {
        "half_spaces_*": "the VC dimension found of half-spaces in so many dimensions",
        "boxes_*": "the VC dimension found of boxes in so many dimensions; rectangles have 2",
        "wrong": "how many of these differ from D + 1 and 2 D",
        "above_sauer": "by how much a growth function exceeds Sauer's bound at most",
        "off_cover": "the largest difference of half-spaces' labelings from Cover's number",
    }

    axes: tuple[int, ...] = (1, 2, 3)
    """Dimensions D of the points."""
    more: int = 2
    """Points beyond D + 1 and 2 D that are tried, so that the growth function bends."""
    sets: int = 3
    """Random sets of each number of points for half-spaces."""
    box_sets: int = 400
    """Random sets of each number of points for boxes, which are quicker to try."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.axes) == sorted(set(self.axes))
        self.require(len(self.axes) >= 1 and rising, "axes", "one number or more, rising")
        self.require(all(1 <= axes <= 5 for axes in self.axes), "axes", "from 1 to 5")
        self.within(1, 4, "more")
        self.within(1, 10_000, "sets", "box_sets")

    def points(self, name: str, axes: int) -> range:
        """The numbers of points that are tried."""
        return range(1, CLASSES[name][1](axes) + self.more + 1)

    def draw_sets(
        self, name: str, points: int, axes: int, generator: torch.Generator
    ) -> Float[Tensor, "sets points axes"]:
        """Random sets of points, and for boxes one on the axes, which lies as far apart as any."""
        count = self.sets if name == "half-spaces" else self.box_sets
        x = torch.randn(count, points, axes, generator=generator, dtype=torch.float64)
        if name == "boxes" and points <= 2 * axes:
            both = torch.cat([torch.eye(axes), -torch.eye(axes)]).double()
            x[0] = both[:points]
        return x

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {
            f"{name} {axes}": torch.tensor(
                [
                    growth(cut, self.draw_sets(name, n, axes, generator))
                    for n in self.points(name, axes)
                ]
            )
            for name, (cut, _) in CLASSES.items()
            for axes in self.axes
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        found: dict[str, float] = {}
        wrong, above, off = 0, [0], [0]
        for name, (_, dimension) in CLASSES.items():
            for axes in self.axes:
                tried = result[f"{name} {axes}"].tolist()
                counts = dict(zip(self.points(name, axes), tried, strict=True))
                vc = vc_dimension({n: most for n, (most, _) in counts.items()})
                found[f"{name.replace('-', '_')}_{axes}"] = float(vc)
                wrong += vc != dimension(axes)
                above += [most - sauer(n, dimension(axes)) for n, (most, _) in counts.items()]
                if name == "half-spaces":
                    off += [abs(c - cover(n, axes)) for n, both in counts.items() for c in both]
        return {**found, "wrong": wrong, "above_sauer": max(above), "off_cover": max(off)}

    def picture_half_planes(self, result: Mapping[str, Tensor]) -> Figure:
        """All labelings (blue and orange) of three points, each with a line that cuts it out.

        Of four points (bottom right) there is always a labeling that no line cuts out: one whose
        two hulls meet, as the diagonals of a square do.
        """
        angle = 2 * math.pi * torch.arange(3, dtype=torch.float64) / 3 + math.pi / 2
        three = torch.stack([angle.cos(), angle.sin()], dim=1)
        four = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]]).double() * 0.8
        crossed = torch.tensor([True, True, False, False])
        drawn = [_cut(three, labels) for labels in labelings(3)]
        made = panels(*drawn, _cut(four, crossed), columns=3, height=2.2)
        for axes in made.axes:
            axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")
        return made

    def picture_growth(self, result: Mapping[str, Tensor]) -> Figure:
        """The share of all 2^n labelings of n points that is cut out, the most of any set tried.

        It is 1 up to the VC dimension, and beyond that at or below Sauer's bound (dashed), a
        polynomial of n over 2^n.
        """
        drawn = []
        for name, (_, dimension) in CLASSES.items():
            curves, bounds = {}, {}
            for axes in self.axes:
                label, n = f"D = {axes}", torch.tensor([*self.points(name, axes)])
                limits = [sauer(each, dimension(axes)) for each in n.tolist()]
                curves[label] = (n, result[f"{name} {axes}"][:, 0] / 2**n)
                bounds[label] = (n, torch.tensor(limits) / 2**n)
            ylabel = "share of labelings, $m(n) / 2^n$"
            drawn.append(
                Panel(curves, "points n", ylabel, name, guides=bounds, dashes="Sauer's bound")
            )
        return panels(*drawn)

    def tiny(self) -> Self:
        return replace(super().tiny(), axes=(1, 2), more=1, sets=1, box_sets=4)


def _cut(x: Float[Tensor, "points 2"], positive: Bool[Tensor, " points"]) -> Panel:
    """The points by label, and the line that cuts them out."""
    found = separating_plane(x, positive)
    line = {}
    if found is not None and found[:2].norm() > TOLERANCE * found.norm():
        w, b = found[:2], found[2]
        along = torch.stack([-w[1], w[0]]) / w.norm()
        ends = -b * w / w.square().sum() + torch.tensor([[-1.5], [1.5]]) * along
        line = {"line": (ends[:, 0], ends[:, 1])}
    title = "no line" if found is None else "all or none" if not line else ""
    return Panel(
        {"1": (x[positive, 0], x[positive, 1]), "-1": (x[~positive, 0], x[~positive, 1])},
        "$x_1$", "$x_2$", title, guides=line, scatter=True, legend="none",
    )  # fmt: skip


RECIPES = {
    "vc-dimension": VCDimension(
        goal="wrong == 0 and above_sauer <= 0 and off_cover == 0", covers=("Y3",)
    ),
}
