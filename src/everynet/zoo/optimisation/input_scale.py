"""Scales of inputs: standardised features let gradient descent take steps that suit all of them.

    z    = (x - mu) / sigma                                        (1)  for each feature
    E(w) = mean of softplus(a) - t a,  a = w . (x, 1)              (2)  logistic regression
    dE   = X^T (sigmoid(a) - t) / n                                (3)  rows of X are (x, 1)
    C    = X^T X / (4 n)                                           (4)  the curvature is at most C
    w   <- w - dE / lambda_max(C)                                  (5)  a step that never climbs
    c    = lambda_max(C) / lambda_min(C)                           (6)  condition
    b_i  = a_i / (k + alpha sum_{j near i} a_j^2)^beta             (7)  local response

x are the features of a row, t its target 0 or 1, w the weights, and products are of matrices; in
(7) a_i is the activity of channel i. mu and sigma are those of the training set. A feature with
large values sets lambda_max and with it the step of all; along the flattest direction (5) then
needs about c steps. Standardising changes no answer that the network can give, only the scale of
its weights, and brings c from 5e8 to 45 on the wine table. Not every direction matters to the loss,
so descent can do with fewer than c steps.

(7) is another thing with a like name: AlexNet's local response normalisation, which divides each
channel of a map by the activity of `size` channels around it at the same pixel. torch's
LocalResponseNorm divides alpha by size, so that its alpha is `size` times this one.

LeCun, Bottou, Orr, Mueller (1998), "Efficient BackProp", section 4.3, doi:10.1007/3-540-49430-8_2;
Krizhevsky, Sutskever, Hinton (2012), "ImageNet Classification with Deep Convolutional Neural
Networks", NeurIPS, section 3.3 for (7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import softplus

from everynet.data.loading import samples
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.errors import UserError

Rows = Float[Tensor, "rows features"]
Targets = Float[Tensor, " rows"]


def standardize(x: Rows) -> Rows:
    """Each feature with mean 0 and standard deviation 1; one that never changes becomes 0."""
    mu, sigma = x.mean(dim=0), x.std(dim=0, correction=0)
    return (x - mu) / torch.where(sigma > 0, sigma, 1)  # (1)


def with_bias(x: Rows) -> Float[Tensor, "rows inputs"]:
    """The rows (x, 1)."""
    return torch.cat([x, torch.ones_like(x[:, :1])], dim=1)


def loss(rows: Rows, t: Targets, w: Float[Tensor, " features"]) -> Float[Tensor, ""]:
    """The cross-entropy of logistic regression."""
    a = rows @ w
    return (softplus(a) - t * a).mean()  # (2)


def gradient(rows: Rows, t: Targets, w: Float[Tensor, " features"]) -> Float[Tensor, " features"]:
    """That of `loss` by w."""
    return rows.T @ ((rows @ w).sigmoid() - t) / len(rows)  # (3)


def curvatures(rows: Rows) -> Float[Tensor, " features"]:
    """The eigenvalues of C, the smallest first.

    As squared singular values: of X^T X itself the small ones would be lost in rounding.
    """
    eigenvalues: Tensor = torch.linalg.svdvals(rows).flip(0).square() / (4 * len(rows))  # (4)
    return eigenvalues


def condition(rows: Rows) -> float:
    """How many times steeper the steepest direction is than the flattest."""
    eigenvalues = curvatures(rows)
    return float(eigenvalues[-1] / eigenvalues[0])  # (6)


def descend(rows: Rows, t: Targets, tolerance: float, steps: int) -> Float[Tensor, " times"]:
    """The loss from w = 0 on, until it is at most `tolerance` or `steps` steps are done."""
    w, rate = rows.new_zeros(rows.shape[1]), 1 / curvatures(rows)[-1]
    losses = [loss(rows, t, w)]
    while losses[-1] > tolerance and len(losses) <= steps:
        w = w - rate * gradient(rows, t, w)  # (5)
        losses.append(loss(rows, t, w))
    return torch.stack(losses)


def local_response(
    a: Float[Tensor, "batch channels *pixels"],
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> Float[Tensor, "batch channels *pixels"]:
    """Each channel over the activity of `size` channels around it, itself among them."""
    channels, before, after = a.shape[1], size // 2, (size - 1) // 2
    answers = []
    for i in range(channels):
        near = a[:, max(0, i - before) : min(channels, i + after + 1)]
        answers.append(a[:, i] / (k + alpha * near.square().sum(dim=1)) ** beta)  # (7)
    return torch.stack(answers, dim=1)


@dataclass(frozen=True, kw_only=True)
class InputScale(Simulation):
    """Tell the first class of a table from the others, with raw and with scaled features."""

    meanings: ClassVar[Mapping[str, str]] = {
        "speedup": "how many times fewer steps descent needs on standardised features",
        "steps_raw": "steps on the features as they are",
        "steps_scaled": "steps on standardised features",
        "reached_raw": "1 where descent reached the tolerance on the features as they are, else 0",
        "reached_scaled": "1 where it reached the tolerance on standardised features, else 0",
        "condition_raw": "steepest by flattest curvature of the features as they are",
        "condition_scaled": "the same of standardised features",
    }

    data: str = "wine"
    """A known table or a csv file whose target is a class."""
    target: str = ""
    """The column of the csv file that holds the class."""
    tolerance: float = 0.25
    """The cross-entropy at which descent ends."""
    steps: int = 20_000
    """Steps after which it is given up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "tolerance")
        self.at_least(1, "steps")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        raw = samples(self.data, kind="table", target=self.target)
        x, y = raw.parts["train"]
        if x.dim() != 2 or raw.task != "classification":
            raise UserError(
                f"data ({self.data}) must be a table with a class as its target, because logistic "
                "regression is fitted to its features; try wine or breast-cancer"
            )
        t = (y == 0).double()
        inputs = {"raw": with_bias(x.double()), "scaled": with_bias(standardize(x.double()))}
        result = {"profile": profile()}
        for name, rows in inputs.items():
            result[f"loss_{name}"] = descend(rows, t, self.tolerance, self.steps)
            result[f"curvature_{name}"] = curvatures(rows)
            result[f"condition_{name}"] = torch.tensor(condition(rows), dtype=torch.float64)
        return result

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        raw, scaled = (len(result[f"loss_{name}"]) - 1 for name in ("raw", "scaled"))
        return {
            "speedup": raw / max(scaled, 1),
            "steps_raw": float(raw),
            "steps_scaled": float(scaled),
            "reached_raw": float(result["loss_raw"][-1] <= self.tolerance),
            "reached_scaled": float(result["loss_scaled"][-1] <= self.tolerance),
            "condition_raw": float(result["condition_raw"]),
            "condition_scaled": float(result["condition_scaled"]),
        }

    def picture_descent(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The loss by step of raw and standardised inputs (left), and their curvatures (right).

        Standardised inputs (orange) take {scaled} steps, raw ones (blue) {raw}: their curvatures
        lie closer together.
        """
        names = {"as they are": "raw", "standardised": "scaled"}
        losses = {name: result[f"loss_{kind}"] for name, kind in names.items()}
        curves = {}
        for name, kind in names.items():
            curvature = result[f"curvature_{kind}"]
            direction = torch.arange(1.0, len(curvature) + 1)
            label = f"{name}: condition {float(result[f'condition_{kind}']):.1e}"
            curves[label] = (direction, curvature / curvature[-1])
        descent = Panel(
            {
                name: (torch.arange(1.0, len(row) + 1, dtype=row.dtype), row)
                for name, row in losses.items()
            },
            levels={"tolerance": self.tolerance},
            xlabel="step + 1",
            ylabel="cross-entropy",
            title=r"descent with the step $1 / \lambda_{\mathrm{max}}$",
            log="x",
        )
        spectrum = Panel(
            curves,
            xlabel="direction, the flattest first",
            ylabel="curvature / largest",
            title="curvatures: the step suits the largest",
            log="y",
        )
        steps: dict[str, float] = {kind: len(losses[name]) - 1 for name, kind in names.items()}
        return panels(descent, spectrum, width=5.0), steps

    def picture_local_response(self, result: Mapping[str, Tensor]) -> Figure:
        """Activity of each channel before (blue) and after (orange) local response normalisation.

        A loud channel is brought down and quietens its neighbours.
        """
        before, after = result["profile"]
        channel = torch.arange(1.0, len(before) + 1)
        curves = {"before, $a_i$": (channel, before), "after, $b_i$": (channel, after)}
        title = "local response: the loud quieten their neighbours"
        return panels(Panel(curves, "channel $i$", "activity", title), width=5.6)

    def tiny(self) -> Self:
        return replace(super().tiny(), steps=50)


def profile() -> Float[Tensor, "2 channels"]:
    """The activity of a row of channels, two of them loud, before and after (7)."""
    a = torch.ones(20, dtype=torch.float64)
    a[5], a[14] = 6.0, 3.0
    return torch.stack([a, local_response(a[None], size=5, alpha=0.2)[0]])


RECIPES = {
    "input-scale": InputScale(
        goal="speedup >= 10 and reached_raw >= 1 and reached_scaled >= 1",
        covers=("O20",),
    ),
}
