"""Flat minima: the curvature where training ends, by batch size, and why the claim is contested.

    H v = grad (g^T v),  g = grad E                                 (1)  Hessian times v, without H
    beta_{j+1} v_{j+1} = H v_j - alpha_j v_j - beta_j v_{j-1}       (2)  Lanczos; alpha_j = v_j.Hv_j
    lambda = largest eigenvalue of T, which has alpha and beta      (3)  of H, after a few steps
    |lambda - an eigenvalue of H| <= beta_{k+1} |s_k|               (4)  s: its eigenvector in T
    E(theta + t v) = E + t g^T v + t^2 lambda / 2 + O(t^3)          (5)  along the top eigenvector
    (W_1, b_1, W_2) -> (a W_1, a b_1, W_2 / a)                      (6)  the same function, ReLU

E is the loss over all training samples, theta the weights, H the Hessian, lambda its top eigenvalue
and v the eigenvector; k is the number of steps of Lanczos, T a k x k matrix with alpha on the
diagonal and beta beside it. That small batches end in flatter minima and therefore predict better
is a claim, not a law. For it: Hochreiter, Schmidhuber (1997); Keskar et al. (2016) at equal epochs.
Against it: at equal epochs a large batch makes fewer updates, and the gap goes with more of them
(Hoffer et al. 2017); what counts is the learning rate over the batch size (Jastrzebski et al.
2017); (6) changes lambda at will and no prediction (Dinh et al. 2017); and over modern networks
flatness and test error hardly go together (Andriushchenko et al. 2023). So the same networks are
trained here in three ways, and lambda is reported with its spread over seeds.

Hochreiter, Schmidhuber (1997), "Flat Minima", Neural Computation 9, doi:10.1162/neco.1997.9.1.1;
Keskar et al. (2016), "On Large-Batch Training for Deep Learning", arXiv:1609.04836; Hoffer, Hubara,
Soudry (2017), "Train longer, generalize better", arXiv:1705.08741; Dinh et al. (2017), "Sharp
Minima Can Generalize For Deep Nets", arXiv:1703.04933; Jastrzebski et al. (2017), "Three Factors
Influencing Minima in SGD", arXiv:1711.04623; Andriushchenko et al. (2023), "A Modern Look at the
Relationship between Sharpness and Generalization", arXiv:2302.07011; Golub, Van Loan (2013),
"Matrix Computations", section 10.1, for (2) to (4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from everynet.data.dataset import Data
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator as seeded
from everynet.system.seeds import mix
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer

Vector = Float[Tensor, " weights"]


def hessian_product(
    loss: Callable[[], Tensor], parameters: Sequence[Tensor]
) -> tuple[Vector, Callable[[Vector], Vector]]:
    """The gradient in one row, and what multiplies such a row by the Hessian."""
    with torch.enable_grad():
        parts = torch.autograd.grad(loss(), parameters, create_graph=True)
        gradient = torch.cat([part.flatten() for part in parts])

    def multiply(v: Vector) -> Vector:
        with torch.enable_grad():
            parts = torch.autograd.grad(gradient, parameters, v, retain_graph=True)  # (1)
        return torch.cat([part.flatten() for part in parts])

    return gradient.detach(), multiply


class Top(NamedTuple):
    """The largest eigenvalue, how far it is from a true one at most, and its eigenvector."""

    value: float
    bound: float
    vector: Vector


def lanczos(
    multiply: Callable[[Vector], Vector], size: int, steps: int, generator: torch.Generator
) -> Top:
    """The top of a symmetric matrix of which only products are known, from a random start."""
    v = torch.randn(size, generator=generator, dtype=torch.float64)
    basis, alphas, betas = [v / v.norm()], list[Tensor](), list[Tensor]()
    for j in range(min(steps, size)):
        w = multiply(basis[j])
        alphas.append(basis[j] @ w)
        w = w - alphas[j] * basis[j] - (betas[j - 1] * basis[j - 1] if j else 0)  # (2)
        whole = torch.stack(basis)
        w = w - whole.T @ (whole @ w)  # rounding lets the rows lean on one another: once more
        betas.append(w.norm())
        if betas[j] < 1e-10 * alphas[0].abs():  # the rows span all that products can reach
            break
        basis.append(w / betas[j])
    beside = torch.stack(betas[:-1]) if len(alphas) > 1 else v.new_zeros(0)
    small = torch.stack(alphas).diag() + beside.diag(1) + beside.diag(-1)
    values, vectors = torch.linalg.eigh(small)
    s = vectors[:, -1]
    bound = float(betas[-1] * s[-1].abs())  # (4)
    return Top(float(values[-1]), bound, s @ torch.stack(basis[: len(s)]))  # (3)


def top_curvature(
    model: nn.Module,
    loss: Callable[[nn.Module], Tensor],
    generator: torch.Generator,
    steps: int,
) -> tuple[Top, Vector]:
    """The largest eigenvalue of the Hessian of a loss of a network, and the gradient."""
    parameters = list(model.parameters())
    gradient, multiply = hessian_product(lambda: loss(model), parameters)
    return lanczos(multiply, len(gradient), steps, generator), gradient


def parabola(loss: float, slope: float, curvature: float, t: Tensor) -> Tensor:
    """The loss that two derivatives expect at a distance."""
    return loss + slope * t + curvature * t.square() / 2  # (5)


@torch.no_grad()
def rescaled(model: MLP, a: float) -> MLP:
    """A copy with one hidden layer of ReLU whose weights differ and whose function does not."""
    twin = deepcopy(model)
    w_1, b_1, w_2, _ = twin.parameters()
    for weight, factor in ((w_1, a), (b_1, a), (w_2, 1 / a)):
        weight.mul_(factor)  # (6)
    return twin


# -------- the network ends here; training and pictures follow --------

WAYS = {
    "epochs": "equal epochs",
    "updates": "equal updates",
    "rate": "equal epochs, rate in proportion",
}
REACH = torch.linspace(-0.3, 0.3, 31, dtype=torch.float64)  # along the eigenvector


@dataclass(frozen=True, kw_only=True)
class Flatness(Experiment):
    """Train one network with batches of several sizes in three ways; measure where it ends."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "ratio_epochs": "lambda of the largest batch by that of the smallest, at equal epochs",
        "flatter": "share of the seeds in which the smallest batch ends flatter, at equal epochs",
        "ratio_updates": "lambda of the largest batch by that of the smallest, at equal updates",
        "ratio_rate": "the same at equal epochs, with a rate in proportion to the batch",
        "spread": "standard deviation of lambda over seeds by its mean, the largest of all",
        "residual": "how far lambda can be from an eigenvalue, as a part of it, the largest",
        "rescaled_ratio": "lambda after rescaling by that before: the function is the same",
        "rescaled_change": "how far an output is changed by rescaling, at most",
    }

    data: str = "digits"
    """Images, or rows of a table, with classes."""
    rows: int = 256
    """Training samples, chosen by the seed."""
    hidden_size: int = 32
    """Hidden units."""
    batch_sizes: tuple[int, ...] = (16, 64, 256)
    """Samples of an update, rising; the second is where all three ways are one."""
    epochs: int = 100
    """Passes over the samples."""
    lr: float = 0.2
    """Learning rate of plain descent, constant."""
    repeats: int = 3
    """Networks of each kind: other samples, other weights."""
    iterations: int = 20
    """Steps of Lanczos, each a product with the Hessian."""
    scale: float = 4.0
    """The factor a of the rescaled networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.batch_sizes
        rising = len(sizes) >= 2 and list(sizes) == sorted(set(sizes)) and sizes[0] >= 1
        self.require(rising, "batch_sizes", "two or more rising positive numbers")
        self.require(self.rows >= sizes[-1], "rows", "at least the largest of batch_sizes")
        self.at_least(1, "hidden_size", "epochs", "repeats", "iterations")
        self.above(0, "lr", "scale")

    def cells(self) -> dict[str, Training[Any, Any]]:
        found: dict[str, Training[Any, Any]] = {}
        middle = self.batch_sizes[1]
        for way, size, repeat in product(WAYS, self.batch_sizes, range(self.repeats)):
            steps = max(1, self.epochs * self.rows // (middle if way == "updates" else size))
            found[f"{way}-{size}-{repeat}"] = OneHiddenLayer(
                data=self.data, rows=self.rows, hidden_size=self.hidden_size, batch_size=size,
                lr=self.lr * (size / middle if way == "rate" else 1), optimizer="sgd",
                steps=steps, eval_every=-(-steps // 6), seed=mix(self.seed, repeat),
            )  # fmt: skip
        return found

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The training loss and its curvature; also along the top eigenvector, and rescaled."""
        x, y = (part.cpu() for part in data.whole)
        x, model = x.double(), deepcopy(state.model).cpu().double()

        def loss(network: nn.Module) -> Tensor:
            return cross_entropy(network(x), y)

        top, gradient = top_curvature(model, loss, seeded(recipe.seed), self.iterations)
        twin = rescaled(model, self.scale)
        here, along = parameters_to_vector(model.parameters()).detach(), deepcopy(model)
        heights = []
        for t in REACH:
            vector_to_parameters(here + t * top.vector, along.parameters())
            heights.append(loss(along).detach())
        again, _ = top_curvature(twin, loss, seeded(recipe.seed), self.iterations)
        numbers = {
            "train": float(loss(model)), "top": top.value, "bound": top.bound,
            "slope": float(gradient @ top.vector), "rescaled": again.value,
            "change": float((twin(x) - model(x)).detach().abs().max()),
        }  # fmt: skip
        doubles = {name: torch.tensor(v, dtype=torch.float64) for name, v in numbers.items()}
        return {**doubles, "along": torch.stack(heights)}

    def ends(self, table: Table, name: str) -> dict[str, Float[Tensor, "repeats sizes"]]:
        """What was measured at the end, by the way of training; NaN where a cell has diverged."""
        found = {}
        for way in WAYS:
            names = product(range(self.repeats), self.batch_sizes)
            cells = [table.cells[f"{way}-{size}-{repeat}"] for repeat, size in names]
            values = [
                math.nan if cell.diverged is not None
                else cell.test["cross_entropy"] if name == "test"
                else float(cell.measured[name][-1])
                for cell in cells
            ]  # fmt: skip
            found[way] = torch.tensor(values, dtype=torch.float64).unflatten(0, (self.repeats, -1))
        return found

    def metrics(self, table: Table) -> dict[str, float]:
        top = self.ends(table, "top")
        every, bound, twin, change = (
            torch.cat([*self.ends(table, name).values()])
            for name in ("top", "bound", "rescaled", "change")
        )
        ratio = {way: float(v[:, -1].mean() / v[:, 0].mean()) for way, v in top.items()}
        spread = torch.stack([v.std(dim=0, correction=0) / v.mean(dim=0) for v in top.values()])
        return {
            "ratio_epochs": ratio["epochs"],
            "flatter": float((top["epochs"][:, 0] < top["epochs"][:, -1]).double().mean()),
            "ratio_updates": ratio["updates"],
            "ratio_rate": ratio["rate"],
            "spread": float(spread.max()),
            "residual": float((bound / every).max()),
            "rescaled_ratio": float((twin / every).median()),
            "rescaled_change": float(change.max()),
        }

    def picture_curvature(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Top eigenvalue of the Hessian (left) and training loss (right) by batch size.

        Means and ranges of {repeats} networks. At equal epochs the largest batch ends {epochs:.2g}
        times as sharp as the smallest, but it has also learned less; at equal updates {updates:.2g}
        times.
        """
        sizes = torch.tensor(self.batch_sizes, dtype=torch.float64)
        drawn = []
        for name, label in (("top", r"$\lambda$ at the end"), ("train", "training loss (nats)")):
            found = self.ends(table, name)
            drawn.append(
                Panel(
                    {words: (sizes, found[way].mean(dim=0)) for way, words in WAYS.items()},
                    bands={words: _range(found[way]) for way, words in WAYS.items()},
                    xlabel="samples in a batch", ylabel=label, log="xy",
                )
            )  # fmt: skip
        metrics = self.metrics(table)
        values = {"epochs": metrics["ratio_epochs"], "updates": metrics["ratio_updates"]}
        return panels(*drawn), {**values, "repeats": self.repeats}

    def picture_along(self, table: Table) -> Figure:
        """Training loss along the top eigenvector from where training ended, and by epoch.

        Dashes are the parabola of slope and curvature there. Right, the curvature on the way.
        """
        cells = {size: table.cells[f"epochs-{size}-0"] for size in self.batch_sizes}
        curves, guides, epochs = {}, {}, {}
        for size, cell in cells.items():
            train, slope, top = (float(cell.measured[n][-1]) for n in ("train", "slope", "top"))
            curves[f"batch {size}"] = (REACH, cell.measured["along"][-1] - train)
            guides[f"batch {size}"] = (REACH, parabola(0.0, slope, top, REACH))
            at = cell.steps * self.epochs / cell.recipe.steps
            epochs[f"batch {size}"] = (at, cell.measured["top"])
        most = max(float(values.max()) for _, values in curves.values())
        least = min(float(values.min()) for _, values in curves.values())
        ways = Panel(
            curves, guides=guides, dashes="parabola",
            xlabel="distance along the eigenvector", ylabel="rise of the training loss (nats)",
            title="where training ended", ylim=(least - 0.1 * most, 1.1 * most),
        )  # fmt: skip
        way = Panel(epochs, xlabel="epoch", ylabel=r"$\lambda$", title="on the way", log="y")
        return panels(ways, way)

    def picture_contested(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Test loss of every network against its top eigenvalue.

        Rescaled by {scale:g} each computes the same function and is {ratio:.2g} times as sharp (a
        median), so that flatness alone says nothing of predictions.
        """
        top, test, twin = (self.ends(table, name) for name in ("top", "test", "rescaled"))
        curves = {words: (top[way].flatten(), test[way].flatten()) for way, words in WAYS.items()}
        curves["all of them rescaled"] = (
            torch.cat([*twin.values()]).flatten(), torch.cat([*test.values()]).flatten()
        )  # fmt: skip
        panel = Panel(
            curves, xlabel=r"$\lambda$ at the end", ylabel="test loss (nats)", log="xy",
            scatter=True, legend="below",
        )  # fmt: skip
        values = {"scale": self.scale, "ratio": self.metrics(table)["rescaled_ratio"]}
        return panels(panel), values

    def tiny(self) -> Self:
        return replace(super().tiny(), rows=16, batch_sizes=(8, 16))


def _range(values: Float[Tensor, "repeats points"]) -> tuple[Tensor, Tensor]:
    low, high = values.aminmax(dim=0)
    return low, high


RECIPES = {
    "flatness": Flatness(
        goal="flatter == 1 and ratio_epochs >= 3 and residual <= 1e-4 and rescaled_ratio >= 2",
        covers=("Y5",),
    ),
}
