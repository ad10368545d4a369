"""The learning rate: too small creeps, too large climbs, and curvature says where that begins.

    k_max   = 2 / lambda_max                                  (1)  largest step that descends
    H v     = grad_theta (g^T v),  g = grad E                 (2)  Hessian times v without H
    v'      = (H - s) v / |(H - s) v|                         (3)  turns to the largest |lambda - s|
    lambda  = v^T H v                                         (4)  its curvature, |v| = 1
    g_B     = (1/B) sum_{i in B} grad E_i                     (5)  gradient of a batch of B samples
    g       = mean of g_B over the batches of an epoch        (6)  unbiased: B = N is descent itself
    var E_B = var E_i / B                                     (7)  noise of a batch's loss

E is the loss, E_i that of sample i, E_B that of a batch, theta the weights, H the Hessian; v is a
vector and s a number that (3) shifts eigenvalues by. On a parabola (least squares on the pixels)
(1) is exact. On a network it is a guide, because the curvature changes on the way: the loss begins
to climb above its start at about twice the limit of the start on the digits, at ten times and more
on MNIST. It may then fall into a flatter valley and train all the same; from steps far larger it
does not return. The best step lies just below where climbing begins. (2) to (4) find lambda_max
from products alone, because the Hessian of a network of n weights has n^2 entries; s is 0, or the
eigenvalue found so where that is negative.

Goodfellow et al. (2016), "Deep Learning", sections 8.1.3 and 11.4.1; LeCun et al. (1993),
"Automatic learning rate maximization by on-line estimation of the Hessian's eigenvectors", NIPS 5;
Lewkowycz et al. (2020), "The large learning rate phase of deep learning: the catapult mechanism",
arXiv:2003.02218.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.training.loop import begin, evaluate, train
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from everynet.zoo.optimisation.gradient_descent import boundary, descend, quadratic

SHOWN = 1e5  # losses above this have left the picture


def largest_curvature(
    loss: Callable[[], Tensor],
    parameters: Sequence[Tensor],
    generator: torch.Generator,
    iterations: int = 60,
) -> float:
    """The largest eigenvalue of the Hessian, by power iteration."""
    shift, value = 0.0, math.nan
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(), parameters, create_graph=True)
        for _ in range(2):
            v = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
            for _ in range(iterations):
                length = torch.stack([part.norm() for part in v]).norm()
                v = [part / length for part in v]
                product = torch.autograd.grad(gradients, parameters, v, retain_graph=True)  # (2)
                value = float(sum((a * b).sum() for a, b in zip(v, product, strict=True)))  # (4)
                v = [a - shift * b for a, b in zip(product, v, strict=True)]  # (3)
            if value > shift:
                break
            shift = value  # the largest in size is negative: once more, counted from there
    return value


def flat_gradient(
    model: nn.Module, x: Float[Tensor, "batch features"], y: Int[Tensor, " batch"]
) -> Float[Tensor, " weights"]:
    """The gradient of the mean loss over some samples, in one row."""
    with torch.enable_grad():
        parts = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))  # (5)
    return torch.cat([part.flatten() for part in parts])


def epoch_gradient(
    model: nn.Module,
    x: Float[Tensor, "rows features"],
    y: Int[Tensor, " rows"],
    batch_size: int,
    generator: torch.Generator,
) -> Float[Tensor, " weights"]:
    """The mean of the gradients of an epoch's batches; the rows are a whole number of batches."""
    order = torch.randperm(len(x), generator=generator)
    parts = [flat_gradient(model, x[rows], y[rows]) for rows in order.split(batch_size)]
    return torch.stack(parts).mean(dim=0)  # (6)


def batch_variance(
    losses: Float[Tensor, " rows"], sizes: Sequence[int], draws: int, generator: torch.Generator
) -> Float[Tensor, " sizes"]:
    """The variance of the mean loss of a batch whose samples are drawn with replacement."""
    rows = (
        torch.randint(len(losses), (draws, size), generator=generator, dtype=torch.int64)
        for size in sizes
    )
    return torch.stack([losses[some].mean(dim=1).var() for some in rows])


@dataclass(frozen=True, kw_only=True)
class LearningRate(Simulation):
    """Train with rates over five decades: least squares and a small network, on the same data."""

    meanings: ClassVar[Mapping[str, str]] = {
        "boundary_error": (
            "how far the largest rate that descends on a parabola is from 2 / lambda_max"
        ),
        "curvature_error": "how far the curvature found by products is from the true one",
        "best_rate": "the learning rate with the lowest loss at the end",
        "best_ratio": "that rate as a multiple of 2 / lambda_max at the start",
        "best_accuracy": "test accuracy with that rate",
        "climb_ratio": "the first rate at which the loss climbs, as a multiple of 2 / lambda_max",
        "slow_share": "loss at the end by loss at the start, of the smallest rate",
        "fast_share": "the same of the largest rate",
        "epoch_error": "how far the mean of the batches of an epoch is from the whole gradient",
        "variance_error": (
            "how far the spread of a batch's loss is from the spread of one sample by its size"
        ),
    }

    data: str = "digits"
    """Images with classes: digits, mnist, ... or a folder."""
    samples: int = 0
    """Training images that are used; 0 is all of them."""
    hidden_size: int = 32
    """Units of the network's hidden layer."""
    steps: int = 200
    """Updates with each rate, each over all the images."""
    per_decade: int = 5
    """Rates tried in each of the five decades from 0.001 to 100."""
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Sizes of batches whose gradients and losses are measured."""
    draws: int = 4_000
    """Batches of each size whose loss is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "samples")
        self.at_least(1, "hidden_size", "steps", "per_decade")
        self.at_least(2, "draws")
        several = len(self.batch_sizes) >= 2 and min(self.batch_sizes) >= 1
        self.require(several, "batch_sizes", "two or more whole numbers from 1 up")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        recipe = OneHiddenLayer(
            data=self.data, rows=self.samples, hidden_size=self.hidden_size, activation="tanh",
            steps=self.steps, batch_size=1, optimizer="sgd", seed=self.seed,
        )  # fmt: skip
        data = recipe.dataset()
        data = replace(data, batch_size=data.rows("train"))  # each update is over all of them
        x, y = data.whole
        x = x.flatten(1)
        model = begin(recipe, data).model
        top = largest_curvature(
            lambda: cross_entropy(model(x.float()), y), list(model.parameters()), generator
        )
        rates = torch.logspace(-3, 2, 5 * self.per_decade + 1, dtype=torch.float64)
        curves, right, models = [], [], []
        for rate in rates.tolist():
            one = replace(recipe, lr=rate)
            state = begin(one, data)
            curve = [record.terms["cross_entropy"].item() for record in train(one, state, data)]
            last = evaluate(one, state.model, data.batches("train"))["cross_entropy"]
            curves.append([*curve, last])
            right.append(evaluate(one, state.model, data.valid)["accuracy"])
            models.append(state.model)
        losses = torch.tensor(curves, dtype=torch.float64).nan_to_num(math.inf)
        best = models[int(losses[:, -1].argmin())]  # by training loss: the test set has no say
        return {
            "rates": rates,
            "curvature": torch.tensor(top, dtype=torch.float64),
            "losses": losses,
            "accuracy": torch.tensor(right, dtype=torch.float64),
            "test_accuracy": torch.tensor(evaluate(recipe, best, data.test)["accuracy"]).double(),
            **parabola(x.double(), (y == 0).double(), rates, self.steps, generator),
            **self.batches(model.double(), x.double(), y, generator),
        }

    def batches(
        self,
        model: nn.Module,
        x: Float[Tensor, "rows features"],
        y: Shaped[Tensor, " rows"],
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Gradients and losses of batches of each size, before training."""
        whole = math.lcm(*self.batch_sizes)
        x, y = x[: len(x) // whole * whole], y[: len(x) // whole * whole]
        full = flat_gradient(model, x, y)
        means = [epoch_gradient(model, x, y, size, generator) for size in self.batch_sizes]
        with torch.no_grad():
            losses = cross_entropy(model(x), y, reduction="none")
        return {
            "epoch_errors": torch.stack([(mean - full).norm() / full.norm() for mean in means]),
            "batch_variance": batch_variance(losses, self.batch_sizes, self.draws, generator),
            "variance": losses.var(correction=0),
        }

    def noise(self, result: Mapping[str, Tensor]) -> Float[Tensor, " sizes"]:
        """The variance of a batch's loss that is expected."""
        return result["variance"] / torch.tensor(self.batch_sizes, dtype=torch.float64)  # (7)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        losses, rates = result["losses"], result["rates"]
        limit = float(2 / result["curvature"])  # (1)
        first, last = losses[:, 0], losses[:, -1]
        climbs = losses.amax(dim=1) > 1.01 * first
        best = int(last.argmin())
        flat_limit = 2 / result["parabola_curvature"]
        ratio = result["batch_variance"] / self.noise(result)
        return {
            "boundary_error": float((result["boundary"] / flat_limit - 1).abs()),
            "curvature_error": float(
                (result["parabola_power"] / result["parabola_curvature"] - 1).abs()
            ),
            "best_rate": float(rates[best]),
            "best_ratio": float(rates[best]) / limit,
            "best_accuracy": float(result["test_accuracy"]),
            "climb_ratio": float(rates[climbs][:1].sum()) / limit,
            "slow_share": float(last[0] / first[0]),
            "fast_share": min(float(last[-1] / first[-1]), SHOWN),  # a card holds no infinity
            "epoch_error": float(result["epoch_errors"].max()),
            "variance_error": float((ratio - 1).abs().max()),
        }

    def picture_regimes(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The loss by step and against the learning rate, of a network and of a parabola.

        Small rates learn little, {best:.2g} learns best, and beyond 2 over the largest curvature
        (grey line) the parabola diverges.
        """
        rates, losses = result["rates"], result["losses"]
        limit = float(2 / result["curvature"])
        best = int(losses[:, -1].argmin())
        above = int((rates > 2 * limit).int().argmax())
        shown = sorted({self.per_decade, self.per_decade * 2, best, above, len(rates) - 1})
        steps = torch.arange(losses.shape[1], dtype=torch.float64)
        by_step = Panel(
            {
                f"rate {float(f'{rates[i]:.2g}'):g}": (steps, losses[i].clamp(max=SHOWN))
                for i in shown
            },
            xlabel="step",
            ylabel="training loss",
            title=rf"network; $2/\lambda_{{\mathrm{{max}}}}$ = {limit:.2g}",
            log="y",
            ylim=(float(losses.min()) / 2, 10 * SHOWN),
            legend="below",
        )
        mark = {r"$2/\lambda_{\mathrm{max}}$ at the start": limit}
        network = replace(self._by_rate(rates, losses.T, "network"), marks=mark)
        accuracy = Panel(
            {"validation images": (rates, result["accuracy"])},
            marks=mark,
            xlabel="learning rate",
            ylabel=f"accuracy after {self.steps} steps",
            title="network",
            log="x",
            legend="below",
        )
        flat = result["parabola_losses"]
        least_squares = replace(
            self._by_rate(result["parabola_rates"], flat, "least squares, a parabola"),
            ylim=(float(flat.min()) / 2, 30 * float(flat[0, 0])),
            marks={r"$2/\lambda_{\mathrm{max}}$": float(2 / result["parabola_curvature"])},
        )
        drawn = panels(by_step, network, accuracy, least_squares, columns=2)
        return drawn, {"best": float(rates[best])}

    def _by_rate(
        self, rates: Float[Tensor, " rates"], losses: Float[Tensor, "times rates"], title: str
    ) -> Panel:
        """The last and the highest loss of each rate."""
        return Panel(
            {
                f"after {self.steps} steps": (rates, losses[-1].clamp(max=SHOWN)),
                "highest on the way": (rates, losses.amax(dim=0).clamp(max=SHOWN)),
            },
            levels={"at the start": float(losses[0, 0])},
            xlabel="learning rate",
            ylabel="training loss",
            title=title,
            log="xy",
            legend="below",
        )

    def picture_batches(self, result: Mapping[str, Tensor]) -> Figure:
        """The variance of the loss of a batch against its size, both logarithmic.

        Measured dots lie on the dashed law of one over the number of samples.
        """
        sizes = torch.tensor(self.batch_sizes, dtype=torch.float64)
        panel = Panel(
            {f"measured, {self.draws:,} batches each": (sizes, result["batch_variance"])},
            guides={"variance of one sample / B": (sizes, self.noise(result))},
            xlabel="samples B in a batch",
            ylabel="variance of the batch's loss",
            log="xy",
            scatter=True,
        )
        return panels(panel)

    def tiny(self) -> Self:
        return replace(super().tiny(), samples=64, per_decade=1, batch_sizes=(1, 32), draws=100)


def parabola(
    x: Float[Tensor, "rows features"],
    target: Float[Tensor, " rows"],
    rates: Float[Tensor, " rates"],
    steps: int,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Least squares on the same images: its losses, its boundary and its largest curvature."""
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    hessian = x.T @ x / len(x)
    weight = torch.linalg.pinv(hessian, hermitian=True) @ (x.T @ target / len(x))
    energy, rest = quadratic(hessian), (x @ weight - target).square().mean() / 2
    top = torch.linalg.eigvalsh(hessian)[-1]
    edge = torch.tensor([1.98, 2.02], dtype=x.dtype)
    rates = torch.cat([rates, edge]).sort().values / top  # the same in units of this curvature
    path = descend(energy, -weight, rates, steps)  # measured from the minimum, begun at zero
    theta = weight.clone().requires_grad_()
    power = largest_curvature(lambda: (x @ theta - target).square().mean() / 2, [theta], generator)
    return {
        "parabola_losses": (energy(path) + rest).nan_to_num(math.inf, posinf=math.inf),
        "parabola_rates": rates,
        "parabola_curvature": top,
        "parabola_power": torch.tensor(power, dtype=x.dtype),
        "boundary": torch.tensor(boundary(energy, -weight, 300), dtype=x.dtype),
    }


RECIPES = {
    "learning-rate": LearningRate(
        goal="boundary_error <= 0.05 and best_accuracy >= 0.94 and slow_share >= 0.9 "
        "and fast_share >= 1 and epoch_error <= 1e-12 and variance_error <= 0.1",
        covers=("O24", "O22"),
    ),
}
