"""Layer-wise pretraining: learn one layer, freeze it, set the next one on top.

    h_0 = x,  h_l = sigmoid(W_l h_{l-1} + b_l)               (1)  layer l
    y_l = V_l h_l + c_l                                      (2)  logits above layer l
    W_l, V_l = argmin J(y_l), with W_1 ... W_{l-1} frozen    (3)  greedy: for l = 1, 2, ... L
    W_1 ... W_L, V_L = argmin J(y_L)                         (4)  all at once

J is the cross-entropy of the logits with the true classes. A gradient that comes down through L
layers of (4) is multiplied by L slopes of a sigmoid, each at most 1/4, so the first layers of a
deep network hardly learn. In (3) each layer has its own logits right above it: no gradient has far
to go. Rectifiers, norms and skips have made (3) needless since; it was how the first deep networks
were trained.

Bengio, Lamblin, Popovici, Larochelle (2007), "Greedy Layer-Wise Training of Deep Networks", NIPS
19, section 4.2, on the supervised variant. Unlike the paper, the layers are not learned further
together at the end, and both ways have the same number of updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, Terms
from everynet.metrics import accuracy
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.training.loop import evaluating
from everynet.zoo.optimisation.few_images import FewImages


class LayerwiseNet(nn.Module):
    """Maps images to logits through `depth` layers of sigmoids, with logits above each of them."""

    def __init__(self, input_size: int, classes: int, *, hidden_size: int, depth: int) -> None:
        super().__init__()
        sizes = [input_size, *[hidden_size] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.heads = nn.ModuleList(nn.Linear(hidden_size, classes) for _ in range(depth))

    def hidden(self, x: Float[Tensor, "batch ..."], depth: int) -> Float[Tensor, "batch _"]:
        """The output h_l of layer l = `depth`; the image itself where that is 0."""
        h = x.flatten(1)
        for layer in self.layers[:depth]:
            h = layer(h).sigmoid()  # (1)
        return h

    def logits(self, x: Float[Tensor, "batch ..."], depth: int) -> Float[Tensor, "batch classes"]:
        """The logits above layer `depth`, counted from 1."""
        h = self.hidden(x, depth)
        y: Tensor = self.heads[depth - 1](h)  # (2)
        return y

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch classes"]:
        return self.logits(x, len(self.layers))


def greedy_loss(
    model: LayerwiseNet, x: Float[Tensor, "batch ..."], y: Tensor, stage: int
) -> Float[Tensor, ""]:
    """The loss above layer `stage`; no gradient goes further down than that layer."""
    with torch.no_grad():
        below = model.hidden(x, stage - 1)
    h = model.layers[stage - 1](below).sigmoid()
    return cross_entropy(model.heads[stage - 1](h), y)  # (3)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class AtOnce(FewImages[LayerwiseNet]):
    """All layers of a stack by one gradient."""

    depth: int = 4
    hidden_size: int = 64

    def model(self, data: Data) -> LayerwiseNet:
        input_size, classes = math.prod(data.spec["shape"]), len(data.spec["classes"])
        return LayerwiseNet(input_size, classes, hidden_size=self.hidden_size, depth=self.depth)

    def stage(self, step: int) -> int:
        """The layer whose logits count after so many updates, from 1."""
        return self.depth

    def objective(self, model: LayerwiseNet, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}  # (4)


@dataclass(frozen=True, kw_only=True)
class Greedy(AtOnce):
    """One layer after the other, each for as many updates."""

    def stage(self, step: int) -> int:
        return min(self.depth, step * self.depth // self.steps + 1)

    def step(self, state: State[LayerwiseNet, nn.Module], batch: Batch) -> Terms:
        x, y = batch
        loss = greedy_loss(state.model, x, y, self.stage(state.step))
        state.descend(loss)
        return {"cross_entropy": loss}


KINDS: dict[str, type[AtOnce]] = {"once": AtOnce, "greedy": Greedy}
NAMES = {"greedy": "layer by layer", "once": "all at once"}


@dataclass(frozen=True, kw_only=True)
class LayerwiseByDepth(Experiment):
    """Stacks of sigmoids of several depths, learned layer by layer and all at once."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "test accuracy of the deepest network, learned layer by layer",
        "accuracy_once": "the same learned all at once",
        "gain": "accuracy layer by layer less accuracy all at once, in points",
        "shallow": "test accuracy of the shallowest network, layer by layer",
        "shallow_once": "the same all at once",
    }

    data: str = "digits"
    """Images, or rows of a table, with a class each."""
    depths: tuple[int, ...] = (1, 2, 4, 6, 8)
    """Numbers of layers, rising."""
    hidden_size: int = 64
    """Units of a layer."""
    steps: int = 250
    """Updates a layer; all at once, a stack has as many in all."""
    batch_size: int = 64
    """Images an update sees."""
    lr: float = 3e-3
    """Learning rate, with Adam."""
    repeats: int = 3
    """Stacks of each kind and depth, from other weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rise = [*self.depths] == sorted(set(self.depths)) and min(self.depths, default=0) >= 1
        self.require(rise, "depths", "one or more numbers that rise from 1 or more")
        self.at_least(1, "hidden_size", "steps", "repeats")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{kind}-{depth}-{repeat}": KINDS[kind](
                data=self.data, depth=depth, hidden_size=self.hidden_size, lr=self.lr,
                steps=self.steps * depth, batch_size=self.batch_size,
                eval_every=max(1, self.steps // 5), seed=mix(self.seed, repeat),
            )
            for repeat, depth, kind in product(range(self.repeats), self.depths, KINDS)
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The accuracy of the logits that are being learned, on validation images."""
        assert isinstance(recipe, AtOnce)
        depth = recipe.stage(state.step)
        with evaluating(state.model):
            right = [accuracy(state.model.logits(x, depth), y) for x, y in data.valid]
        return {"staged": torch.cat(right).double().mean()}

    def accuracy(self, table: Table, kind: str) -> Float[Tensor, "depths repeats"]:
        """On test images."""
        return torch.tensor(
            [
                [
                    table.cells[f"{kind}-{depth}-{repeat}"].test.get("accuracy", math.nan)
                    for repeat in range(self.repeats)
                ]
                for depth in self.depths
            ]
        )

    def metrics(self, table: Table) -> dict[str, float]:
        once, greedy = (self.accuracy(table, kind).mean(1) for kind in KINDS)
        return {
            "accuracy": greedy[-1].item(),
            "accuracy_once": once[-1].item(),
            "gain": 100 * (greedy[-1] - once[-1]).item(),
            "shallow": greedy[0].item(),
            "shallow_once": once[0].item(),
        }

    def picture_depth(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Test accuracy by depth, mean and spread over networks.

        With {deepest} layers the networks reach {greedy:.0%} layer by layer and {once:.0%} all at
        once.
        """
        depths = torch.tensor(self.depths)
        ends = {name: 100 * self.accuracy(table, kind) for kind, name in NAMES.items()}
        panel = Panel(
            {name: (depths, rows.mean(1)) for name, rows in ends.items()}, "layers",
            "test accuracy (%)", f"sigmoid layers of {self.hidden_size} units on {self.data}",
            bands={name: (rows.amin(1), rows.amax(1)) for name, rows in ends.items()},
            ylim=(0.0, 102.0),
        )  # fmt: skip
        found = self.metrics(table)
        values = {"greedy": found["accuracy"], "once": found["accuracy_once"]}
        return panels(panel, width=6.5, height=3.2), {**values, "deepest": self.depths[-1]}

    def picture_stages(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Validation accuracy of the deepest networks during training.

        Layer by layer a new layer begins with random weights at each grey mark. In the end the mean
        is {greedy:.0f} per cent, and {once:.0f} all at once.
        """
        deepest, curves, steps = self.depths[-1], {}, torch.zeros(0)
        for kind, name in NAMES.items():
            cells = [table.cells[f"{kind}-{deepest}-{repeat}"] for repeat in range(self.repeats)]
            steps = cells[0].steps
            curves[name] = 100 * torch.stack([cell.measured["staged"] for cell in cells])
        panel = Panel(
            {name: (steps, rows.mean(0)) for name, rows in curves.items()}, "updates",
            "accuracy on validation images (%)", f"{deepest} layers",
            bands={name: (rows.amin(0), rows.amax(0)) for name, rows in curves.items()},
            marks={f"layer {n + 1}": float(n * self.steps) for n in range(min(deepest, 10))},
            ylim=(0.0, 102.0), legend="below",
        )  # fmt: skip
        ends = {kind: float(curves[name][:, -1].mean()) for kind, name in NAMES.items()}
        return panels(panel, width=6.5, height=3.2), ends

    def tiny(self) -> Self:
        return replace(super().tiny(), depths=(1, 2))


RECIPES = {
    "layerwise": LayerwiseByDepth(goal="gain >= 10", covers=("C28",)),
}
