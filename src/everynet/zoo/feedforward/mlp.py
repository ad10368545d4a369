"""Multilayer perceptron: weighted sums and nonlinearities in turn, a matrix product a layer.

    h_l = f(W_l h_{l-1} + b_l),   l = 1 .. L-1,   h_0 = x          (1)  hidden layers
    z   = W_L h_{L-1} + b_L                                        (2)  output
    E   = (1/N) sum_i loss(z_i, t_i)                               (3)  what is minimised
    p   = softmax(z),  or  (1 - s, s) with s = 1 / (1 + e^-z)      (4)  probabilities of classes
    P   = sum_l (n_{l-1} n_l + n_l)                                (5)  parameters, n_l units in h_l

The rows of a batch share W and b, so that a layer is one product of matrices. The loss is the
cross-entropy for classes (two need only one z) and the squared error for numbers, which are
standardised first. One hidden layer already solves XOR, which no single layer can: Minsky and
Papert's limit (1969) is one of single layers.

Rumelhart, Hinton and Williams (1986), "Learning representations by back-propagating errors",
Nature 323, doi:10.1038/323533a0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from everynet import plot
from everynet.data import built_in, load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.metrics import chosen, classified, confusion, regressed
from everynet.metrics.meanings import CLASSES, NUMBERS, meanings
from everynet.nn.input_checks import require_samples
from everynet.recipes.recipe import Goal, Pictures, later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import nearest
from everynet.zoo.classic.pictures.linear import fitted
from everynet.zoo.feedforward.pictures.hidden import hidden_space

MOST_STEPS = 10_000
"""As many updates are made of one's own accord: some ten seconds, for a small table."""
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


class MLP(nn.Module):
    """Maps samples of any shape, flattened, to the last of `sizes` outputs: logits or numbers."""

    class_weights: Float[Tensor, " classes"] | None
    """How much each class counts while it learns; None: as often as it occurs."""

    def __init__(self, sizes: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise UserError(
                f"sizes ({','.join(map(str, sizes))}) must be two or more positive numbers: the "
                "inputs, the units of each hidden layer, the outputs; try 64,32,10"
            )
        if activation not in ACTIVATIONS:
            raise UserError(
                f"activation ({activation}) must be one we have{nearest(activation, ACTIVATIONS)}"
            )
        self.register_buffer("class_weights", None, persistent=False)
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
        self.register_buffer("unit", torch.tensor(unit))


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


@dataclass(frozen=True, kw_only=True)
class Supervised(Training[MLP]):
    """Learn the class, or the number, that goes with each sample."""

    captions: ClassVar[Mapping[str, str]] = {
        "surface": (
            "The answer over the plane of the inputs, cut at a half on the left and as a "
            "probability on the right, seen from above with the samples and below as a height."
        ),
        "regions": (
            "The class that the network names at each point of the plane, by colour, with the "
            "samples on top in the colour of their true class."
        ),
        "hidden": (
            "The samples as they are (left) and as values of the last hidden layer (right): there "
            "one straight cut, the black line, tells the classes apart."
        ),
        "units": (
            "Each square is one hidden unit over the plane of the inputs, a row for each layer: "
            "the first layer draws straight edges, and later ones bend them."
        ),
        "first-layer": (
            "The weights into units of the first layer, for images laid out as the image: where "
            "the input is large, red raises the unit and blue lowers it."
        ),
        "misclassified": (
            "Validation images, each with the class it was given and how sure that was: the "
            "mistakes (orange) with their true class, then, where few are wrong, the least sure "
            "of the right answers (blue)."
        ),
        "fit": (
            "Each point is a validation sample, at the predicted value (across) and the measured "
            "one (up), so that points on the diagonal are predicted without error."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = meanings("loss", *CLASSES, *NUMBERS)

    data: str = "digits"
    """A known set, a folder with one subfolder for each class, a csv, npy or npz file."""
    target: str = ""
    """The column of a csv file that is to be learned."""
    task: str = ""
    """classification or regression, of a csv file; empty: few whole numbers are classes."""
    drop: tuple[str, ...] = ()
    """Columns of a csv file that are left out."""
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
    passes: int = later(0)
    """Times to go over a table of one's own, where `steps` is less and was not changed; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.class_weight in ("", "balanced"), "class_weight", "empty or balanced")
        self.require(self.passes >= 0, "passes", "at least 0")

    def suited(self, data: Data) -> dict[str, Any]:
        """Enough steps for `passes`, at most `MOST_STEPS`, over a table of the user's own."""
        steps = min(self.passes * data.steps_per_epoch, MOST_STEPS)
        table = data.own and data.spec["kind"] == "table" and "steps" not in self.changed
        if not table or steps <= self.steps:
            return super().suited(data)
        return {"steps": steps} | super(Supervised, replace(self, steps=steps)).suited(data)

    def dataset(self) -> Data:
        data = load(
            self.data,
            kind=("table", "image"),
            batch_size=self.batch_size,
            seed=self.seed,
            holdout=self.holdout,
            target=self.target,
            task=self.task,
            drop=self.drop,
            size=self.size,
            strict=self.strict,
        )
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
            return replace(data, spec=spec | self._weights(data))
        self.require(not self.class_weight, "class_weight", "empty, because a number is learned")
        mean, std = spec["target_mean"], spec["target_std"] or 1.0
        splits = {part: (x, (t - mean) / std) for part, (x, t) in data.splits.items()}
        return replace(data, splits=splits)

    def _weights(self, data: Data) -> dict[str, list[float]]:
        """Weights n / (K n_k) for each of K classes, of n training samples n_k in class k."""
        if not self.class_weight:
            return {}
        counts = torch.bincount(data.splits["train"][1], minlength=len(data.spec["classes"]))
        return {"class_weights": (counts.sum() / (len(counts) * counts.double())).tolist()}

    def model(self, data: Data) -> MLP:
        spec = data.spec
        sizes = self.sizes or (math.prod(spec["shape"]), *self.hidden, _outputs(spec))
        if spec and spec["task"] == "regression":
            return Regressor(sizes, self.activation, spec["target_std"] or 1.0)
        net = MLP(sizes, self.activation)
        if self.class_weight:
            net.class_weights = torch.tensor(spec["class_weights"])
        return net

    def objective(self, model: MLP, batch: Batch) -> Terms:
        x, t = batch
        if model.class_weights is None:
            return {"loss": loss(model(x), t)}  # (3)
        each = loss(model(x), t, reduction="none")
        return {"loss": (model.class_weights[t] * each).mean()}

    def metrics(self, model: MLP, batch: Batch) -> dict[str, Tensor]:
        x, t = batch
        z = model(x)
        figures = {"loss": loss(z, t, reduction="none")}
        if isinstance(model, Regressor):  # numbers are told in the target's own units
            return figures | regressed(z[:, 0] * model.unit, t * model.unit)
        return figures | classified(z, t)

    def monitor(self) -> Goal | None:
        """The loss: a small validation set soon has all right, and numbers have no accuracy."""
        return Goal("loss", "<=", 0.0)

    def pictures(self, model: MLP, data: Data, history: History) -> Pictures:
        x, t = (torch.cat(parts) for parts in zip(*data.valid, strict=True))
        spec, z = data.spec, model(x)
        if spec["task"] == "regression":
            both = _unscaled(z[:, 0], spec), _unscaled(t, spec)
            return {"fit": fitted({"validation": both})}
        counts = confusion(chosen(z), t, len(spec["classes"]))
        drawn = {"confusion": plot.confusion_matrix(counts, spec["classes"])}
        if spec["shape"] == [2]:
            return drawn | _in_the_plane(model, x, t, spec)
        first = next(model.parameters())
        if len(spec["shape"]) != 3:
            weights = plot.heatmap(first, xlabel="feature", ylabel="unit of layer 1", unit="weight")
            return drawn | {"first-layer": weights}
        p = probabilities(z).amax(1)
        wrong = plot.misclassified(x, chosen(z), t, p, classes=spec["classes"])
        weights = plot.filters(
            first.reshape(-1, *spec["shape"]), title="weights of the first layer"
        )
        return drawn | {"first-layer": weights, "misclassified": wrong}

    def predict(
        self, model: MLP, inputs: Float[Tensor, "batch ..."], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        z = model(inputs)
        if spec["task"] == "regression":
            return [{"value": value} for value in _unscaled(z[:, 0], spec).tolist()]
        best = zip(chosen(z).tolist(), probabilities(z).amax(1).tolist(), strict=True)
        return [{"class": spec["classes"][k], "probability": p} for k, p in best]

    def tiny(self) -> Supervised:
        return replace(
            self,
            data=self.data if self.data in built_in() else "digits",
            size=0,
            sizes=(),
            hidden=tuple(min(n, 8) for n in self.hidden),
            steps=min(self.steps, 4),
            passes=0,
            batch_size=min(self.batch_size, 8),
        )


def _outputs(spec: Spec) -> int:
    """One output for a number or for two classes, otherwise one for each class."""
    return len(spec["classes"]) if len(spec["classes"]) > 2 else 1


def _unscaled(values: Float[Tensor, " batch"], spec: Spec) -> Float[Tensor, " batch"]:
    """Predictions in the units of the data's target."""
    mean, std = float(spec["target_mean"]), float(spec["target_std"])
    return values * (std or 1.0) + mean


def _in_the_plane(
    model: MLP, x: Float[Tensor, "batch 2"], t: Shaped[Tensor, " batch"], spec: Spec
) -> Pictures:
    """What a network with two inputs answers on a square around the samples, and how."""
    half = 1.1 * float(x.abs().max())
    places = plot.square(120, -half, half).to(x)
    z, features, classes = model(places), spec["features"], spec["classes"]
    look: dict[str, Any] = {"low": -half, "high": half, "labels": features, "classes": classes}
    if z.shape[1] > 2:
        drawn = {"regions": plot.decision_regions(chosen(z), x, t, **look)}
    else:
        score = z[:, -1] if z.shape[1] == 1 else z[:, 1] - z[:, 0]
        drawn = {"surface": plot.decision_surface(score, x, t, **look)}
    if layers := model.hidden(places)[1:]:
        drawn["units"] = plot.unit_maps(layers, low=-half, high=half)
        if z.shape[1] <= 2:
            last = model.layers[-1]
            assert isinstance(last, nn.Linear)
            w, b = (p[-1] if len(p) == 1 else p[1] - p[0] for p in (last.weight, last.bias))
            drawn["hidden"] = hidden_space(
                x, model.hidden(x)[-1], w, float(b), t, labels=features, classes=classes
            )
    return drawn


# Test accuracy for seeds 0, 1, 2, of the weights with the lowest validation loss:
#   mlp          0.9666 0.9721 0.9749   a stratified random fifth of scikit-learn's digits
#   mlp-xor      1.0    1.0    1.0      500 points generated for the test
#   mlp-spirals  1.0    1.0    1.0      500 points generated for the test
#   mlp-mnist    0.9844 0.9835 0.9843   the 10,000 test images of MNIST
RECIPES = {
    "mlp": Supervised(
        hidden=(128,),
        steps=2000,
        passes=200,
        lr=3e-3,
        schedule="one-cycle",
        goal="accuracy >= 0.96",
        covers=("F5", "F6"),
    ),
    "mlp-xor": Supervised(
        data="xor",
        hidden=(8,),
        activation="tanh",
        steps=300,
        batch_size=90,
        lr=0.5,
        optimizer="momentum",
        goal="accuracy >= 0.99",
        covers=("F3", "F4"),
    ),
    "mlp-spirals": Supervised(
        data="spirals",
        hidden=(32, 32),
        activation="tanh",
        steps=3000,
        batch_size=90,
        lr=0.01,
        schedule="one-cycle",
        goal="accuracy >= 0.99",
        covers=("F4",),
    ),
    "mlp-mnist": Supervised(
        data="mnist",
        hidden=(256, 128),
        steps=4200,
        batch_size=128,
        lr=3e-3,
        schedule="one-cycle",
        weight_decay=1e-4,
        goal="accuracy >= 0.98",
        covers=("F10",),
    ),
}
