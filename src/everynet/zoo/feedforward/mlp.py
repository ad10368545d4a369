"""Multilayer perceptron: weighted sums and nonlinearities in turn, a matrix product a layer.

    h_l = f(W_l h_{l-1} + b_l),   l = 1 .. L-1,   h_0 = x          (1)  hidden layers
    z   = W_L h_{L-1} + b_L                                        (2)  output
    E   = (1/N) sum_i loss(z_i, t_i)                               (3)  loss, minimised
    p   = softmax(z),  or  (1 - s, s) with s = 1 / (1 + e^-z)      (4)  probabilities of classes
    P   = sum_l (n_{l-1} n_l + n_l)                                (5)  parameters, n_l units in h_l

where x is the input, t its target, f an activation function and W h the product of a matrix and a
vector: the rows of a batch share W and b, so that a layer is one product of matrices. The loss is
the cross-entropy for classes (two need only one z) and the squared error for numbers, which are
standardised first. One hidden layer already solves XOR, which no single layer can: Minsky and
Papert's limit (1969) is one of single layers.

Rumelhart, Hinton and Williams (1986), "Learning representations by back-propagating errors",
Nature 323, doi:10.1038/323533a0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Shaped
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from everynet import plot
from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.transfer import constant
from everynet.metrics import (
    balanced_weights,
    classified,
    confusion,
    name_classes,
    predict_class,
    regressed,
)
from everynet.metrics.meanings import CLASSES, NUMBERS, meanings
from everynet.nn.input_checks import require_samples
from everynet.recipes.recipe import Goal, later
from everynet.recipes.tabular import Probabilistic
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.training.loop import relearned
from everynet.zoo.classic.pictures.linear import fitted
from everynet.zoo.feedforward.pictures.hidden import hidden_space

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


class MLP(nn.Module):
    """Maps samples of any shape, flattened, to the last of `sizes` outputs: logits or numbers."""

    def __init__(self, sizes: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise UserError(
                f"sizes ({','.join(map(str, sizes))}) must be two or more positive numbers: the "
                "inputs, the units of each hidden layer, the outputs; try 64,32,10"
            )
        if activation not in ACTIVATIONS:
            raise UserError(unknown("activation", activation, ACTIVATIONS))
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(sizes))
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch outputs"]:
        first: Any = self.layers[0]  # a Linear
        require_samples(type(self).__name__, x, first.weight, first.in_features)
        z: Tensor = self.layers[-1](self.hidden(x)[-1])  # (2)
        return z

    def hidden(self, x: Float[Tensor, "batch ..."]) -> list[Float[Tensor, "batch _"]]:
        """The values h_0 .. h_{L-1} of the inputs and of each hidden layer's units."""
        h = [x.flatten(1)]
        for layer in list(self.layers)[:-1]:
            h.append(self.activation(layer(h[-1])))  # (1)
        return h


class Regressor(MLP):
    """An MLP that gives numbers in standard deviations of its target, and knows how large one is.

    Targets far from 0 would lose their last digits in float32 otherwise.
    """

    unit: Tensor

    def __init__(self, sizes: Sequence[int], activation: str, unit: float) -> None:
        super().__init__(sizes, activation)
        self.register_buffer("unit", torch.tensor(unit), persistent=False)  # of the data


def count_parameters(sizes: Sequence[int]) -> int:
    """Weights and biases of a network with these layers."""
    return sum(n * m + m for n, m in pairwise(sizes))  # (5)


def loss(
    z: Float[Tensor, "batch outputs"], t: Shaped[Tensor, " batch"], reduction: str = "mean"
) -> Float[Tensor, "*reduced"]:
    """Cross-entropy of classes, one output for two or one for each; squared error of numbers."""
    if t.is_floating_point():
        return mse_loss(z[:, 0], t, reduction=reduction)
    if z.shape[1] == 1:
        return binary_cross_entropy_with_logits(z[:, 0], t.to(z.dtype), reduction=reduction)
    return cross_entropy(z, t, reduction=reduction)


def probabilities(z: Float[Tensor, "batch outputs"]) -> Float[Tensor, "batch classes"]:
    """The probability of each class."""
    if z.shape[1] > 1:
        return z.softmax(1)  # (4)
    return torch.cat([-z, z], 1).sigmoid()


# -------- the network ends here; training and pictures follow --------

MOST_FRAMES, RATE, HOLD = 80, 8.0, 8  # of a film: frames, frames a second, frames of its end
MOST_STEPS = 10_000
"""Updates that `passes` asks for at most: some ten seconds, for a small table."""


@dataclass(frozen=True, kw_only=True)
class Supervised(Probabilistic, Training[MLP]):
    """Learn the class, or the number, that goes with each sample."""

    made_for: ClassVar[tuple[str, ...]] = ("table",)
    meanings: ClassVar[Mapping[str, str]] = meanings("loss", *CLASSES, *NUMBERS)

    data: str = "digits"
    """A known set, a folder with one subfolder for each class, a csv, parquet, npy or npz file."""
    task: str = ""
    """classification or regression, of a table; empty: few whole numbers are classes."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    size: int = 0
    """Images are brought to `size` x `size` pixels; 0 leaves them as they are."""
    strict: bool = later(False)
    """Of a folder, refuse a file that cannot be read instead of skipping and counting it."""
    sizes: tuple[int, ...] = ()
    """Inputs, units of each hidden layer, outputs; empty takes both ends from the data."""
    hidden: tuple[int, ...] = (64,)
    """Units of each hidden layer, where `sizes` is empty; empty makes a single layer."""
    activation: str = "relu"
    """relu, tanh, sigmoid or gelu."""
    class_weight: str = later("")
    """balanced lets all classes count alike while learning; empty: as often as they occur."""
    class_weights: tuple[float, ...] = later(())
    """How much a sample of each class counts; empty: class_weight says it, or all alike."""
    passes: int = later(0)
    """Times to go over a table of one's own, where `steps` is less and was not changed; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.class_weight in ("", "balanced"), "class_weight", "empty or balanced")
        known = all(0 < weight < math.inf for weight in self.class_weights)
        self.require(known, "class_weights", "numbers above 0")
        self.at_least(0, "passes")

    def suited(self, data: Data) -> dict[str, Any]:
        """At most `MOST_STEPS` steps for `passes` over one's own table, and balanced weights."""
        found: dict[str, Any] = {}
        steps = min(self.passes * self.updates_per_epoch(data), MOST_STEPS)
        table = data.own and data.spec["kind"] == "table" and "steps" not in self.settings_given()
        if table and steps > self.steps:
            found["steps"] = steps
        if self.class_weight and not self.class_weights:
            _, t = data.splits["train"]
            found["class_weights"] = balanced_weights(t, len(data.spec["classes"]))
        return found | super(Supervised, replace(self, **found)).suited(data)

    def dataset(self) -> Data:
        data = load(
            self.data, kind=("table", "image"), batch_size=self.batch_size, seed=self.seed,
            holdout=self.holdout, task=self.task, size=self.size, strict=self.strict,
            **self.columns,
        )  # fmt: skip
        spec = data.spec
        if self.sizes and self.sizes[0] != math.prod(spec["shape"]):
            raise UserError(
                f"sizes ({','.join(map(str, self.sizes))}) must begin with "
                f"{math.prod(spec['shape'])}, the values of a sample of {self.data}"
            )
        if self.sizes and self.sizes[-1] not in (_outputs(spec), len(spec["classes"])):
            raise UserError(
                f"sizes ({','.join(map(str, self.sizes))}) must end in {_outputs(spec)}, what "
                f"{self.data} asks for: 1 for a number or two classes, else one for each class"
            )
        if spec["task"] != "regression":
            return data
        unweighted = not (self.class_weight or self.class_weights)
        self.require(unweighted, "class_weight", "empty, because a number is learned")
        mean, std = spec["target_mean"], spec["target_std"] or 1.0
        return data.each(lambda x, t: (x, (t - mean) / std))

    def model(self, data: Data) -> MLP:
        spec = data.spec
        sizes = self.sizes
        if spec or not sizes:  # both ends are those of the data, as `dataset` checks
            hidden = sizes[1:-1] if sizes else self.hidden
            outputs = len(spec["classes"]) if sizes[-1:] > (1,) else _outputs(spec)
            sizes = (math.prod(spec["shape"]), *hidden, outputs)
        if spec and spec["task"] == "regression":
            return Regressor(sizes, self.activation, spec["target_std"] or 1.0)
        return MLP(sizes, self.activation)

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, t = batch
        z: Tensor = model(x)
        if not (self.class_weight or self.class_weights):
            return {"loss": loss(z, t)}  # (3)
        each = loss(z, t, reduction="none")
        full = len(self.class_weights) == max(2, z.shape[1])
        what = "a number for each class; balanced ones are known where a run begins"
        self.require(full, "class_weights", what)
        weights = constant(self.class_weights, each.dtype, each.device)
        return {"loss": (weights[t] * each).mean()}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        x, t = batch
        z: Tensor = model(x)
        each = {"loss": loss(z, t, reduction="none")}
        if not t.is_floating_point():
            return each | classified(z, t)
        if not isinstance(unit := getattr(model, "unit", None), Tensor):
            raise UserError(
                f"the model ({type(model).__name__}) must have a buffer `unit`, the standard "
                "deviation of the target, because metrics are in the units of the target; see "
                "Regressor in zoo/feedforward/mlp.py"
            )
        return each | regressed(z[:, 0] * unit, t * unit)

    def monitor(self) -> Goal | None:
        """The loss: a small validation set soon has all right, and numbers have no accuracy.

        Where classes are to count alike it is the metric in which they do.
        """
        if self.class_weight:
            return Goal("balanced_accuracy", ">=", 1.0)
        return Goal("loss", "<=", 0.0)

    def picture_surface(self, model: MLP, data: Data, history: History) -> Figure | None:
        """The answer over the plane of two inputs, above cut at a half and as a probability.

        Below the score is a height; samples have the colour of their true class.
        """
        x, t, z = _answers(model, data)
        if not _plane(data) or z.shape[1] > 2:
            return None
        places, look = _square(x, data.spec)
        z = model(places)
        score = z[:, -1] if z.shape[1] == 1 else z[:, 1] - z[:, 0]
        return plot.decision_surface(score, x, t, **look)

    def picture_regions(self, model: MLP, data: Data, history: History) -> Figure | None:
        """The predicted class at each point of the plane of two inputs, by colour.

        Samples on top have the colour of their true class: one on another colour is wrong.
        """
        x, t, z = _answers(model, data)
        if not _plane(data) or z.shape[1] <= 2:
            return None
        places, look = _square(x, data.spec)
        return plot.decision_regions(predict_class(model(places)), x, t, **look)

    def picture_hidden(self, model: MLP, data: Data, history: History) -> Figure | None:
        """Samples as they are (left) and as values of the last hidden layer (right).

        There the black line, a straight cut, is where the network changes its answer.
        """
        x, t, z = _answers(model, data)
        if not _plane(data) or z.shape[1] > 2 or len(model.layers) == 1:
            return None
        last: Any = model.layers[-1]  # a Linear
        w, b = (p[-1] if len(p) == 1 else p[1] - p[0] for p in (last.weight, last.bias))
        spec, h = data.spec, model.hidden(x)[-1]
        return hidden_space(x, h, w, float(b), t, labels=spec["features"], classes=spec["classes"])

    def picture_units(self, model: MLP, data: Data, history: History) -> Figure | None:
        """The value of each hidden unit over the plane of two inputs, a row for each layer.

        A unit of the first layer changes along one direction alone, so that its edge is straight.
        """
        if not _plane(data) or len(model.layers) == 1:
            return None
        places, look = _square(_answers(model, data)[0], data.spec)
        return plot.unit_maps(model.hidden(places)[1:], low=look["low"], high=look["high"])

    def picture_first_layer(self, model: MLP, data: Data, history: History) -> Figure | None:
        """The weights into units of the first layer, for images laid out as the image.

        Where the input is large, red raises the unit and blue lowers it.
        """
        shape, weight = data.spec["shape"], next(model.parameters())
        if data.spec["task"] == "regression" or shape == [2]:
            return None
        if len(shape) == 3:
            return plot.filters(weight.reshape(-1, *shape), title="weights of the first layer")
        return plot.heatmap(weight, xlabel="feature", ylabel="unit of layer 1", unit="weight")

    def picture_misclassified(self, model: MLP, data: Data, history: History) -> Figure | None:
        """Validation images with the predicted class and its probability, mistakes first (red).

        Where few are wrong, the least sure of the right answers (blue) follow.
        """
        if data.spec["task"] == "regression" or len(data.spec["shape"]) != 3:
            return None
        x, t, z = _answers(model, data)
        p = probabilities(z).amax(1)
        return plot.misclassified(x, predict_class(z), t, p, classes=data.spec["classes"])

    def picture_fit(self, model: MLP, data: Data, history: History) -> Figure | None:
        """Predicted (across) and measured values (up) of the validation samples.

        Points on the diagonal are predicted without error.
        """
        if data.spec["task"] != "regression":
            return None
        _, t, z = _answers(model, data)
        both = _in_target_units(z[:, 0], data.spec), _in_target_units(t, data.spec)
        return fitted({"validation": both})

    def picture_confusion(self, model: MLP, data: Data, history: History) -> Figure | None:
        """True classes of the validation samples down, predicted ones across.

        Right answers stand on the diagonal in blue, mistakes beside it in red.
        """
        if data.spec["task"] == "regression":
            return None
        classes, (_, t, z) = data.spec["classes"], _answers(model, data)
        return plot.confusion_matrix(confusion(predict_class(z), t, len(classes)), classes)

    def predict(
        self, model: MLP, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        z = model(inputs)
        if spec["task"] == "regression":
            return [{"value": value} for value in _in_target_units(z[:, 0], spec).tolist()]
        return name_classes(probabilities(z), spec["classes"], spec.get("threshold"))

    def tiny(self) -> Self:
        hidden = tuple(min(n, 8) for n in self.hidden)
        return replace(super().tiny(), hidden=hidden, passes=0)


@dataclass(frozen=True, kw_only=True)
class PlaneClassification(Supervised):
    """Learn the classes of points in a plane; `sample` films how the regions come."""

    made_for: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[str] = "film"

    def sample(
        self, model: MLP, spec: Spec, generator: torch.Generator, *, frames: int = 36
    ) -> plot.Film:
        """The class at each point of the plane while a network learns as this one did."""
        if not 2 <= frames <= MOST_FRAMES:
            raise UserError(f"frames ({frames}) must be from 2 to {MOST_FRAMES}")
        if spec["task"] == "regression" or spec["shape"] != [2]:
            raise UserError(
                f"shape ({spec['shape']}) must be [2] with classes, because the film shows a "
                "plane; train mlp-spirals on a table of two columns"
            )
        return plot.Film(self._learn_again(model, frames), RATE, hold=HOLD - 1)

    def _learn_again(self, model: MLP, frames: int) -> Iterator[Figure]:
        """The regions while a network learns, then those of the network as it was kept."""
        data = self.dataset().to(torch.device("cpu"), torch.float32)
        for step, learner in relearned(self, data, frames):
            yield self._regions(learner, data, f"step {step:,}")
        yield self._regions(model.cpu(), data, "the network as it was kept")

    @torch.no_grad()
    def _regions(self, model: MLP, data: Data, when: str) -> Figure:
        x, t, z = _answers(model, data)
        places, look = _square(x, data.spec)
        drawn = plot.decision_regions(predict_class(model(places)), x, t, **look)
        right = (predict_class(z) == t).float().mean()
        drawn.axes[0].set_title(f"{when}: {right:.0%} right")
        drawn.axes[0].locator_params(nbins=5)
        drawn.set_size_inches(3.1, 3.1)  # two side by side on a page
        return drawn


def _outputs(spec: Spec) -> int:
    """One output for a number or for two classes, otherwise one for each class."""
    return len(spec["classes"]) if len(spec["classes"]) > 2 else 1


def _in_target_units(values: Float[Tensor, " batch"], spec: Spec) -> Float[Tensor, " batch"]:
    """Predictions in the units of the data's target."""
    mean, std = float(spec["target_mean"]), float(spec["target_std"])
    return values * (std or 1.0) + mean


def _answers(model: MLP, data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """Samples of the validation split, their targets and the outputs of the network."""
    answers = ((x, t, model(x)) for x, t in data.valid)  # all at once would fill the memory
    x, t, z = (torch.cat(parts) for parts in zip(*answers, strict=True))
    return x, t, z


def _plane(data: Data) -> bool:
    """Whether classes of points in a plane are learned."""
    return bool(data.spec["task"] != "regression" and data.spec["shape"] == [2])


def _square(x: Float[Tensor, "batch 2"], spec: Spec) -> tuple[Tensor, dict[str, Any]]:
    """Points of a square around the samples, and how pictures of it look."""
    half = 1.1 * float(x.abs().max())
    look = {"low": -half, "high": half, "labels": spec["features"], "classes": spec["classes"]}
    return plot.square(120, -half, half).to(x), look


RECIPES = {
    "mlp": Supervised(
        hidden=(128,), steps=2000, passes=200, lr=3e-3, schedule="one-cycle",
        goal="accuracy >= 0.96", covers=("F5", "F6"),
    ),
    "mlp-xor": PlaneClassification(
        data="xor", hidden=(8,), activation="tanh", steps=300, batch_size=90, lr=0.5,
        optimizer="momentum", goal="accuracy >= 0.99", covers=("F3", "F4"),
    ),
    "mlp-spirals": PlaneClassification(
        data="spirals", hidden=(32, 32), activation="tanh", steps=3000, batch_size=90, lr=0.01,
        schedule="one-cycle", goal="accuracy >= 0.99", covers=("F4",),
    ),
    "mlp-mnist": Supervised(
        data="mnist", hidden=(256, 128), steps=4200, batch_size=128, lr=3e-3,
        schedule="one-cycle", weight_decay=1e-4, goal="accuracy >= 0.98", covers=("F10",),
    ),
}  # fmt: skip
