"""Double descent: the test error peaks where parameters just suffice to fit, and falls again after.

    phi_j(x) = max(0, w_j^T x) / sqrt(d),  w_j ~ N(0, I)        (1)  p features, not learned
    a  = Phi^+ Y = V S^-1 U^T Y                                 (2)  least squares, the shortest
    a' = V S (S^2 + alpha)^-1 U^T Y                             (3)  the same with a penalty
    E  = mean over samples of |a^T phi(x) - y|^2                (4)  squared error
    R  = (B + s^2) (1 + p / (n - p - 1))                        (5)  exactly, p <= n - 2
    R  = A (1 - n / p) + (B + s^2) (1 + n / (p - n - 1))        (6)  exactly, p >= n + 2
    P  = (d + 1) h + (h + 1) K                                  (7)  of a network: peak near n K

Phi has a row phi(x) for each of n samples of d numbers, Phi = U S V^T, Y has a column for each of K
classes. With p < n features (2) is least squares, with p >= n the shortest of the solutions that
fit every sample. At p = n there is exactly one, however long: the smallest singular value is almost
0, and whatever is noise to these features is divided by it. More features leave a choice, and the
shortest solution gets shorter. The penalty alpha |a|^2 keeps it short, so that there is no peak.
(5) and (6) are the test error of linear regression on the first p of D independent normal inputs,
with y = b^T x + s e and e ~ N(0, 1): A is the sum of b_j^2 over the first p, B over the others. At
p = n it is infinite. A network learns its features, and with h hidden units and enough steps it
peaks near P = n K, if labels are noisy; wider than that it fits the wrong labels as well, and is
right more often nonetheless.

Belkin, Hsu, Ma, Mandal (2018), "Reconciling modern machine learning practice and the bias-variance
trade-off", arXiv:1812.11118; Belkin, Hsu, Xu (2019), "Two models of double descent for weak
features", arXiv:1903.07571, theorem 1, for (5) and (6); Nakkiran et al. (2019), "Deep Double
Descent", arXiv:1912.02292, on noisy labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import one_hot

from everynet.data.dataset import Batch, Data, Terms
from everynet.metrics import accuracy
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Simulation
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator as seeded
from everynet.system.seeds import mix
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import OneHiddenLayer, evaluate_in_training

TESTED = 2000  # test samples at most, on which random features are evaluated
NOISE, ROWS = 0.3, 40  # s and n of regression on normal inputs
WRONG = 5  # the stream of random numbers that chooses wrong labels, among those of a seed


def random_features(
    x: Float[Tensor, "rows inputs"], w: Float[Tensor, "features inputs"]
) -> Float[Tensor, "rows features"]:
    """Rectified projections of some samples."""
    return (x @ w.T / math.sqrt(x.shape[1])).relu()  # (1)


class Decomposed(NamedTuple):
    """The singular values and vectors of features, from which every solution follows."""

    u: Float[Tensor, "rows least"]
    s: Float[Tensor, " least"]
    v: Float[Tensor, "features least"]

    @staticmethod
    def of(phi: Float[Tensor, "rows features"]) -> Decomposed:
        u, s, vh = torch.linalg.svd(phi, full_matrices=False)
        return Decomposed(u, s, vh.mT)

    def shortest(self, y: Float[Tensor, "rows outputs"]) -> Float[Tensor, "features outputs"]:
        """The least-squares solution, the shortest if there are many."""
        largest = self.s[:1] * 1e-12  # what is smaller is rounding
        inverse = torch.where(self.s > largest, 1 / self.s, 0)
        return self.v @ (inverse[:, None] * (self.u.T @ y))  # (2)

    def ridge(
        self, y: Float[Tensor, "rows outputs"], alpha: float
    ) -> Float[Tensor, "features outputs"]:
        """The solution with a penalty on its length."""
        return self.v @ ((self.s / (self.s.square() + alpha))[:, None] * (self.u.T @ y))  # (3)


def squared_error(
    phi: Float[Tensor, "rows features"],
    a: Float[Tensor, "features outputs"],
    y: Float[Tensor, "rows outputs"],
) -> Tensor:
    """The squared error of a solution, a mean over samples."""
    return (phi @ a - y).square().sum(dim=1).mean()  # (4)


def expected_error(
    b: Float[Tensor, " inputs"], noise: float, rows: int, features: Int[Tensor, " counts"]
) -> Float[Tensor, " counts"]:
    """The expected test error of regression on the first inputs, for each of some counts."""
    power = torch.cat([torch.zeros(1, dtype=b.dtype), b.square().cumsum(0)])
    fitted, left = power[features], power[-1] - power[features] + noise**2
    below = left * (1 + features / (rows - features - 1))  # (5)
    above = fitted * (1 - rows / features) + left * (1 + rows / (features - rows - 1))  # (6)
    error = torch.where(features < rows, below, above)
    return error.where((features - rows).abs() > 1, math.inf)


def measured_error(
    b: Float[Tensor, " inputs"],
    noise: float,
    rows: int,
    features: int,
    *,
    trials: int,
    generator: torch.Generator,
) -> Float[Tensor, " trials"]:
    """The test error of as many regressions, exact over test samples, each with its own rows."""
    x = torch.randn(trials, rows, len(b), generator=generator, dtype=b.dtype)
    y = x @ b + noise * torch.randn(trials, rows, generator=generator, dtype=b.dtype)
    fit = torch.zeros(trials, len(b), dtype=b.dtype)
    fit[:, :features] = (torch.linalg.pinv(x[..., :features]) @ y[..., None])[..., 0]
    return (fit - b).square().sum(dim=1) + noise**2


def parameters(inputs: int, hidden: int, outputs: int) -> int:
    """Weights and biases of a network with one hidden layer."""
    return (inputs + 1) * hidden + (hidden + 1) * outputs  # (7)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class DoubleDescent(Simulation):
    """Regress classes of images on random features, from few to many more than samples."""

    meanings: ClassVar[Mapping[str, str]] = {
        "peak_at": "features a sample where the test error is largest",
        "peak_ratio_under": "that error by the least with fewer features",
        "peak_ratio_over": "that error by the least with more features",
        "peak_ratio_ridge": "the largest test error with the penalty by the least",
        "best_accuracy": "test accuracy with the most features",
        "law_error": "how far normal inputs are from (5) and (6), the median over their counts",
    }

    data: str = "digits"
    """Images, or rows of a table, with classes."""
    rows: int = 200
    """Training samples, chosen by the seed."""
    shares: tuple[float, ...] = (
        0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 0.95, 1.0,
        1.05, 1.15, 1.3, 1.6, 2.0, 3.0, 5.0, 10.0, 20.0,
    )  # fmt: skip
    """Features a sample, rising; 1 is among them."""
    alpha: float = 1.0
    """Strength of the penalty."""
    repeats: int = 5
    """Draws of the features."""
    trials: int = 300
    """Regressions on normal inputs, for each number of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(4, "rows")
        rising = list(self.shares) == sorted(set(self.shares)) and 1 in self.shares[1:-1]
        self.require(rising, "shares", "rising, with 1 neither first nor last")
        self.require(self.shares[0] > 0, "shares", "positive")
        self.above(0, "alpha")
        self.at_least(1, "repeats", "trials")

    def ready(self) -> None:
        self.dataset(0)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        found = [
            self.regress(share, data, generator)
            for data in map(self.dataset, range(self.repeats))
            for share in self.shares
        ]
        names = ("test", "train", "length", "ridge", "accuracy")
        by_name = zip(names, torch.tensor(found, dtype=torch.float64).T, strict=True)
        b, counts = self.normal_inputs()
        trials = [
            measured_error(b, NOISE, ROWS, p, trials=self.trials, generator=generator)
            for p in counts.tolist()
        ]
        return {
            **{name: values.unflatten(0, (self.repeats, -1)) for name, values in by_name},
            "normal": torch.stack(trials),
            "expected": expected_error(b, NOISE, ROWS, counts),
        }

    def dataset(self, repeat: int) -> Data:
        """The samples of one repetition."""
        seed = mix(self.seed, repeat)
        return OneHiddenLayer(data=self.data, rows=self.rows, batch_size=1, seed=seed).dataset()

    def regress(self, share: float, data: Data, generator: torch.Generator) -> list[float]:
        """Errors, length of the solution and accuracy with some features a sample."""
        (x, label), (seen, true) = data.whole, (part[:TESTED] for part in data.splits["test"])
        x, seen = x.flatten(1).double(), seen.flatten(1).double()
        y, t = (one_hot(k, len(data.spec["classes"])).double() for k in (label, true))
        size = (max(1, round(share * len(x))), x.shape[1])
        w = torch.randn(size, generator=generator, dtype=torch.float64)
        phi, unseen = random_features(x, w), random_features(seen, w)
        solved = Decomposed.of(phi)
        a = solved.shortest(y)
        return [
            squared_error(unseen, a, t).item(),
            squared_error(phi, a, y).item(),
            a.norm().item(),
            squared_error(unseen, solved.ridge(y, self.alpha), t).item(),
            accuracy(unseen @ a, true).mean().item(),
        ]

    def normal_inputs(self) -> tuple[Float[Tensor, " inputs"], Int[Tensor, " counts"]]:
        """Coefficients that decay, and how many of them are fitted: many near as many as rows."""
        b = torch.arange(1, 10 * ROWS + 1, dtype=torch.float64).rsqrt()
        below = [1, ROWS // 8, ROWS // 4, ROWS // 2, 3 * ROWS // 4, ROWS - 4]
        above = [ROWS + 4, 5 * ROWS // 4, 3 * ROWS // 2, 2 * ROWS, 4 * ROWS, 10 * ROWS]
        return b / b.norm(), torch.tensor([*below, *above])

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        error, one = result["test"].median(dim=0).values, self.shares.index(1)
        ridge = result["ridge"].median(dim=0).values
        ratio = result["normal"].mean(dim=1) / result["expected"]
        return {
            "peak_at": self.shares[int(error.argmax())],
            "peak_ratio_under": float(error.max() / error[:one].min()),
            "peak_ratio_over": float(error.max() / error[one + 1 :].min()),
            "peak_ratio_ridge": float(ridge.max() / ridge.min()),
            "best_accuracy": float(result["accuracy"][:, -1].mean()),
            "law_error": float((ratio - 1).abs().median()),
        }

    def picture_descent(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Squared error (left) and length of the solution (right) against features a sample.

        Medians and quartiles of {repeats} draws. The test error peaks at {peak:g}, where the
        training error comes to 0: {under:.3g} times the least before, {over:.3g} times that behind.
        """
        shares, metrics = torch.tensor(self.shares, dtype=torch.float64), self.metrics(result)
        names = {"test": "test", "ridge": rf"test, penalty $\alpha = {self.alpha:g}$"}
        names["train"] = "training"
        errors = Panel(
            {label: (shares, result[key].median(0).values) for key, label in names.items()},
            bands={label: _quartiles(result[key]) for key, label in names.items()},
            marks={"as many features as samples": 1.0},
            xlabel=f"features a sample ({self.rows} samples of {self.data})",
            ylabel="squared error", title="two descents", log="xy",
            ylim=(5e-3, 3 * float(result["test"].median(0).values.max())),
        )  # fmt: skip
        length = Panel(
            {"solution": (shares, result["length"].median(0).values)},
            bands={"solution": _quartiles(result["length"])},
            marks={"as many features as samples": 1.0},
            xlabel=f"features a sample ({self.rows} samples of {self.data})",
            ylabel="$|a|$", title="its length", log="xy", legend="none",
        )  # fmt: skip
        values = {"peak": metrics["peak_at"], "repeats": self.repeats}
        values |= {"under": metrics["peak_ratio_under"], "over": metrics["peak_ratio_over"]}
        return panels(errors, length), values

    def picture_law(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Test error of regression on the first of {inputs} normal inputs, by how many are fitted.

        Means of {trials} regressions on {rows} samples lie on the exact law, half of them within
        {error:.1%}.
        """
        b, counts = self.normal_inputs()
        fine = torch.unique(torch.logspace(0, math.log10(len(b)), 400).round().long())
        law = expected_error(b, NOISE, ROWS, fine)
        panel = Panel(
            {"measured": (counts, result["normal"].mean(dim=1))},
            guides={
                "expected, (5)": (fine[fine < ROWS], law[fine < ROWS]),
                "expected, (6)": (fine[fine > ROWS], law[fine > ROWS]),
            },
            marks={"as many inputs as samples": ROWS},
            levels={"of predicting 0": 1 + NOISE**2},
            xlabel=f"inputs that are fitted, {ROWS} samples", ylabel="expected test error",
            log="xy", scatter=True,
        )  # fmt: skip
        values = {"inputs": len(b), "trials": self.trials, "rows": ROWS}
        return panels(panel), {**values, "error": self.metrics(result)["law_error"]}

    def tiny(self) -> Self:
        return replace(super().tiny(), rows=20, shares=(0.5, 1.0, 2.0), trials=2)


@dataclass(frozen=True, kw_only=True)
class NoisyLabels(OneHiddenLayer):
    """Regress classes that are wrong in some training samples by a perceptron."""

    noise: float = 0.2
    """Share of the training labels that are replaced by another class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.noise < 1, "noise", "from 0 up and below 1")

    def dataset(self) -> Data:
        data = super().dataset()
        x, y = data.splits["train"]
        draw, classes = seeded(self.seed, WRONG), len(data.spec["classes"])
        wrong = torch.rand(len(y), generator=draw) < self.noise
        other = (y + torch.randint(1, classes, y.shape, generator=draw)) % classes
        return replace(data, splits={**data.splits, "train": (x, torch.where(wrong, other, y))})

    def objective(self, model: MLP, batch: Batch) -> Terms:
        x, label = batch
        y = model(x)
        return {"error": (y - one_hot(label, y.shape[1])).square().sum(dim=1).mean()}  # (4)

    def metrics(self, model: MLP, batch: Batch) -> dict[str, Tensor]:
        x, label = batch
        y = model(x)
        error = (y - one_hot(label, y.shape[1])).square().sum(dim=1)
        return {"error": error, "accuracy": accuracy(y, label)}


@dataclass(frozen=True, kw_only=True)
class DoubleDescentNetwork(Experiment):
    """Train networks of each width to the end on samples of which some have a wrong label."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "peak_at": "parameters by samples times classes where the test error is largest",
        "peak_ratio_under": "that error by the least of narrower networks",
        "peak_ratio_over": "that error by the least of wider networks",
        "peak_accuracy": "test accuracy where the error is largest",
        "widest_accuracy": "test accuracy of the widest networks",
        "widest_fit": "training error of the widest networks, wrong labels included",
    }

    data: str = "digits"
    """Images, or rows of a table, with classes."""
    rows: int = 200
    """Training samples, chosen by the seed; each update is over all of them."""
    noise: float = 0.2
    """Share of them with a wrong label."""
    widths: tuple[int, ...] = (2, 5, 10, 16, 20, 26, 34, 50, 100, 400)
    """Hidden units of the networks, rising."""
    steps: int = 2000
    """Updates of each network, by Adam with a rate that falls to 0."""
    lr: float = 0.01
    """Learning rate at the start."""
    repeats: int = 3
    """Networks of each width: other samples, other wrong labels, other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = len(self.widths) >= 3 and list(self.widths) == sorted(set(self.widths))
        self.require(rising, "widths", "three or more rising numbers")
        self.at_least(1, "rows", "steps", "repeats")
        self.require(self.widths[0] >= 1, "widths", "positive")
        self.above(0, "lr")
        self.require(0 <= self.noise < 1, "noise", "from 0 up and below 1")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"width-{width}-{repeat}": NoisyLabels(
                data=self.data, rows=self.rows, batch_size=self.rows, noise=self.noise,
                hidden_size=width, activation="tanh", steps=self.steps, lr=self.lr,
                schedule="cosine", eval_every=-(-self.steps // 20), seed=mix(self.seed, repeat),
            )
            for width, repeat in product(self.widths, range(self.repeats))
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The training error, wrong labels included, and how many parameters there are."""
        assert isinstance(recipe, NoisyLabels)
        found = evaluate_in_training(recipe, state.model, data.batches("train"))
        inputs, classes = math.prod(data.spec["shape"]), len(data.spec["classes"])
        size = parameters(inputs, recipe.hidden_size, classes) / (self.rows * classes)
        return {"train": found["error"], "parameters": size}

    def ends(self, table: Table) -> dict[str, Float[Tensor, "repeats widths"]]:
        """What each network came to; NaN where it has diverged."""
        rows = [
            (
                float(cell.measured["parameters"][0]), float(cell.measured["train"][-1]),
                cell.test.get("error", math.nan), cell.test.get("accuracy", math.nan),
            )
            for repeat in range(self.repeats)
            for cell in (table.cells[f"width-{width}-{repeat}"] for width in self.widths)
        ]  # fmt: skip
        found = torch.tensor(rows, dtype=torch.float64).unflatten(0, (self.repeats, -1)).unbind(-1)
        return dict(zip(("parameters", "train", "test", "accuracy"), found, strict=True))

    def metrics(self, table: Table) -> dict[str, float]:
        mean = {name: values.mean(dim=0) for name, values in self.ends(table).items()}
        error = mean["test"]
        peak = 1 + int(error[1:-1].argmax())  # neither the first nor the last width is a peak
        return {
            "peak_at": float(mean["parameters"][peak]),
            "peak_ratio_under": float(error[peak] / error[:peak].min()),
            "peak_ratio_over": float(error[peak] / error[peak + 1 :].min()),
            "peak_accuracy": float(mean["accuracy"][peak]),
            "widest_accuracy": float(mean["accuracy"][-1]),
            "widest_fit": float(mean["train"][-1]),
        }

    def picture_widths(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Squared error (left) and accuracy (right) by width, given in parameters.

        {share:.0%} of the training labels are wrong; means of {repeats} networks. The test error
        peaks at {peak_at:.2g}, with {peak:.0%} of answers right; the widest have {widest:.0%}.
        """
        found = self.ends(table)
        size, where = found["parameters"][0], "parameters / (samples x classes)"
        kinds = {"test": found["test"], "training": found["train"]}
        error = Panel(
            {name: (size, values.mean(0)) for name, values in kinds.items()},
            bands={name: _range(values) for name, values in kinds.items()},
            marks={"as many as there are targets": 1.0},
            xlabel=where, ylabel="squared error",
            title=f"{self.rows} samples of {self.data}", log="x", legend="below",
        )  # fmt: skip
        right = Panel(
            {"test": (size, 100 * found["accuracy"].mean(0))},
            bands={"test": _range(100 * found["accuracy"])},
            marks={"as many as there are targets": 1.0},
            xlabel=where, ylabel="accuracy (%)", title="the same networks", log="x", legend="below",
        )  # fmt: skip
        metrics = self.metrics(table)
        values = {"share": self.noise, "repeats": self.repeats, "peak_at": metrics["peak_at"]}
        ends = {"peak": metrics["peak_accuracy"], "widest": metrics["widest_accuracy"]}
        return panels(error, right), values | ends

    def picture_steps(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Validation error by step of a narrow, a middle and the widest network.

        That of the middle one is {least:.2g} at its least and {end:.2g} in the end, that of the
        widest ends at {widest:.2g}.
        """
        shown = [self.widths[0], self.widths[len(self.widths) // 2], self.widths[-1]]
        panel = Panel(
            {
                f"{width} hidden units": (cell.steps[1:], cell.valid["error"][1:])
                for width in shown
                for cell in [table.cells[f"width-{width}-0"]]
            },
            xlabel="step", ylabel="squared error, validation", log="y",
        )  # fmt: skip
        middle, widest = [errors for _, errors in panel.curves.values()][1:]
        values = {"least": middle.min(), "end": middle[-1], "widest": widest[-1]}
        return panels(panel), {name: float(value) for name, value in values.items()}

    def tiny(self) -> Self:
        return replace(super().tiny(), rows=20, widths=(2, 4, 8))


def _range(values: Float[Tensor, "repeats points"]) -> tuple[Tensor, Tensor]:
    low, high = values.aminmax(dim=0)
    return low, high


def _quartiles(values: Float[Tensor, "repeats points"]) -> tuple[Tensor, Tensor]:
    low, high = values.quantile(torch.tensor([0.25, 0.75], dtype=values.dtype), dim=0)
    return low, high


RECIPES = {
    "double-descent": DoubleDescent(
        goal="peak_at == 1 and peak_ratio_under >= 3 and peak_ratio_over >= 3",
        covers=("Y4",),
    ),
    "double-descent-network": DoubleDescentNetwork(
        goal="peak_ratio_under >= 1.2 and peak_ratio_over >= 1.5", covers=("Y4",)
    ),
}
