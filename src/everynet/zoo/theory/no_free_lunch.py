"""No free lunch: averaged over all targets, every learner is as good as a coin beyond its samples.

    E(f, D) = (1 / |X - D|) sum_{x not in D} [h_D(x) != f(x)]      (1)  off-training-set error
    (1 / 2^|X|) sum_f E(f, D) = 1 / 2,  for every h and D          (2)  over all 2^|X| targets f
    changes(f) = sum_x [f(x) != f(x + 1)]                          (3)  how often neighbours differ

X are n points on a line, f a labelling of them by 0 and 1, D the points of the training set with
their labels, h_D what a learner makes of them, and [.] is 1 where the statement holds. For each
labelling of D the labels beyond it take all values equally often, so that whatever h_D says is
wrong half of the time. A learner wins only on targets that are more frequent than others: the
nearest neighbours on those with few changes (3), which they must lose again on those with many.

Wolpert (1996), "The lack of a priori distinctions between learning algorithms",
doi:10.1162/neco.1996.8.7.1341.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Float64, Int64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation

Learner = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From places and labels of the training set (a row a target) and new places to their labels."""


def all_labelings(points: int) -> Int64[Tensor, "targets points"]:
    """Every way to label so many points by 0 and 1."""
    return torch.arange(2**points)[:, None] >> torch.arange(points) & 1


def nearest_neighbours(
    places: Int64[Tensor, " known"],
    labels: Int64[Tensor, "targets known"],
    unknown: Int64[Tensor, " unknown"],
    k: int = 1,
) -> Int64[Tensor, "targets unknown"]:
    """The label that most of the k nearest points have; of two as near the left one counts."""
    distances = (unknown[:, None] - places).abs()
    near = distances.argsort(dim=1, stable=True)[:, :k]
    return (2 * labels[:, near].sum(dim=-1) > min(k, len(places))).long()


def three_neighbours(
    places: Int64[Tensor, " known"],
    labels: Int64[Tensor, "targets known"],
    unknown: Int64[Tensor, " unknown"],
) -> Int64[Tensor, "targets unknown"]:
    """The same with three of them."""
    return nearest_neighbours(places, labels, unknown, k=3)


def majority(
    places: Int64[Tensor, " known"],
    labels: Int64[Tensor, "targets known"],
    unknown: Int64[Tensor, " unknown"],
) -> Int64[Tensor, "targets unknown"]:
    """The more frequent label everywhere, 0 where both are."""
    frequent = (2 * labels.sum(dim=1) > labels.shape[1]).long()
    return frequent[:, None].expand(-1, len(unknown))


def anti_majority(
    places: Int64[Tensor, " known"],
    labels: Int64[Tensor, "targets known"],
    unknown: Int64[Tensor, " unknown"],
) -> Int64[Tensor, "targets unknown"]:
    """The other label everywhere, against all reason."""
    return 1 - majority(places, labels, unknown)


LEARNERS: dict[str, Learner] = {
    "nearest neighbour": nearest_neighbours,
    "three neighbours": three_neighbours,
    "majority": majority,
    "anti-majority": anti_majority,
}
"""What is compared."""


def off_training_mistakes(
    learner: Learner, targets: Int64[Tensor, "targets points"], known: Int64[Tensor, " known"]
) -> Int64[Tensor, " targets"]:
    """How many of the points that were not shown a learner gets wrong, for each target."""
    everywhere = torch.arange(targets.shape[1])
    unknown = everywhere[~torch.isin(everywhere, known)]
    said = learner(known, targets[:, known], unknown)
    return (said != targets[:, unknown]).sum(dim=1)  # (1), times the number of points


def mean_error(mistakes: Int64[Tensor, "*sets targets"], unknown: int) -> Float64[Tensor, "*sets"]:
    """The error averaged over all targets, from whole numbers: exact."""
    return mistakes.sum(dim=-1).double() / (unknown * mistakes.shape[-1])  # (2)


def changes(targets: Int64[Tensor, "targets points"]) -> Int64[Tensor, " targets"]:
    """How often neighbours have different labels."""
    return (targets.diff(dim=1) != 0).sum(dim=1)  # (3)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class NoFreeLunch(Simulation):
    """Every labelling, every training set, several learners: counted, not sampled."""

    meanings: ClassVar[Mapping[str, str]] = {
        "largest_deviation": "of the mean error over all targets from 1/2, any learner and set",
        "least_error_smooth": "least mean error of a learner on targets with at most one change",
        "spread_smooth": "largest less least mean error of the learners on those targets",
        "neighbour_smooth": "mean error of nearest neighbours on targets with at most one change",
        "neighbour_rough": "and on those with all neighbours but one, or all, different",
        "targets": "labelings that were tried",
        "training_sets": "sets of points that were shown",
    }

    points: int = 8
    """|X|: points on the line."""
    known: int = 4
    """Points of the training set; every choice of so many is tried."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(3, 12, "points")
        self.require(1 <= self.known < self.points, "known", lambda: f"from 1 to {self.points - 1}")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        targets = all_labelings(self.points)
        sets = torch.tensor(list(combinations(range(self.points), self.known)))
        mistakes = [
            torch.stack([off_training_mistakes(learner, targets, known) for known in sets])
            for learner in LEARNERS.values()
        ]
        return {"mistakes": torch.stack(mistakes), "changes": changes(targets), "sets": sets}

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        means = mean_error(result["mistakes"], self.points - self.known)
        by_changes = self.by_changes(result)
        _, sets, targets = result["mistakes"].shape
        smooth = (self.targets_with(result, 0, 1) * by_changes[:, :2]).sum(1)
        rough = (self.targets_with(result, -2, -1) * by_changes[:, -2:]).sum(1)
        return {
            "largest_deviation": (means - 0.5).abs().max().item(),
            "least_error_smooth": smooth.min().item(),
            "spread_smooth": (smooth.max() - smooth.min()).item(),
            "neighbour_smooth": smooth[0].item(),
            "neighbour_rough": rough[0].item(),
            "targets": float(targets),
            "training_sets": float(sets),
        }

    def by_changes(self, result: Mapping[str, Tensor]) -> Float64[Tensor, "learners changes"]:
        """The mean error of each learner over the targets with 0, 1, .. changes."""
        groups = [result["changes"] == number for number in range(self.points)]
        unknown = self.points - self.known
        means = [mean_error(result["mistakes"][:, :, group], unknown).mean(1) for group in groups]
        return torch.stack(means, dim=1)

    def targets_with(self, result: Mapping[str, Tensor], *numbers: int) -> Float64[Tensor, " of"]:
        """The shares of targets with so many changes among all with one of these numbers."""
        counts = torch.bincount(result["changes"], minlength=self.points).double()[list(numbers)]
        return counts / counts.sum()

    def picture_lunch(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The mean error of each learner by how often the labels of neighbours differ.

        Who is good on smooth targets (left) is bad on rough ones (right). Weighted with the number
        of targets (second panel) all of them err on {mean:.1%}.
        """
        number = torch.arange(self.points)
        counts = torch.bincount(result["changes"], minlength=self.points).double()
        errors = self.by_changes(result)
        made = panels(
            Panel(
                {name: (number, row) for name, row in zip(LEARNERS, errors, strict=True)},
                xlabel="neighbours with different labels",
                ylabel="error beyond the training set",
                title=f"{self.known} of {self.points} points are known",
                levels={"a coin": 0.5},
                ylim=(0.0, 1.0),
                legend="below",
            ),
            Panel(
                {"targets": (number, counts)},
                xlabel="neighbours with different labels",
                ylabel="targets",
                title=f"all {int(counts.sum())} targets",
                legend="none",
            ),
        )
        return made, {"mean": float((errors @ counts / counts.sum()).mean())}


RECIPES = {
    "no-free-lunch": NoFreeLunch(
        goal="largest_deviation == 0 and neighbour_smooth < 0.2 and neighbour_rough > 0.7",
        covers=("M13",),
    ),
}
