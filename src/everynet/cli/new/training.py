"""A small network that names the species of a flower.

Run it:            everynet run ./mine.py
Change a setting:  everynet run ./mine.py hidden=32 lr=0.003 seed=1
Look at it:        everynet show ./mine.py
Predict:           everynet predict latest flowers.csv --file mine.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet import Batch, Data, History, Spec, Terms, Training
from everynet.data import load
from everynet.metrics import name_classes


# Fields are settings: each has a type, a default and a line that `everynet show` prints. Those of
# every training (steps, batch_size, lr, optimizer, schedule, seed, ...) are there as well.
@dataclass(frozen=True, kw_only=True)
class Mine(Training[nn.Sequential]):
    """Name the class of each row of a table."""

    data: str = "iris"
    """A known dataset (everynet data list) or a csv file."""
    target: str = ""
    """The column of a csv file that is to be learned."""
    hidden: int = 16
    """Hidden units."""
    steps: int = 300
    batch_size: int = 16
    lr: float = 0.01

    def dataset(self) -> Data:
        """What is learned from, in three splits."""
        return load(
            self.data,
            kind="table",
            batch_size=self.batch_size,
            seed=self.seed,
            target=self.target,
        )

    def model(self, data: Data) -> nn.Sequential:
        """Any torch module; `data.spec` says how large inputs are and which classes there are."""
        inputs, classes = data.spec["shape"][0], len(data.spec["classes"])
        return nn.Sequential(
            nn.Linear(inputs, self.hidden), nn.Tanh(), nn.Linear(self.hidden, classes)
        )

    def objective(self, model: nn.Sequential, batch: Batch) -> Terms:
        """Named terms whose sum is minimised."""
        x, y = batch  # features: batch x inputs; class numbers: batch
        return {"cross_entropy": cross_entropy(model(x), y)}

    def metrics(self, model: nn.Sequential, batch: Batch) -> dict[str, Tensor]:
        """Metrics, one value for each row of the batch; the goal below names one of them."""
        x, y = batch
        z = model(x)
        return {
            "accuracy": (z.argmax(1) == y).double(),
            "cross_entropy": cross_entropy(z, y, reduction="none"),
        }

    # From here on all is optional. A method `final(self, model, data, generator, *, n: int = 100)`
    # gives metrics that only the end asks for; n is then a setting of `everynet evaluate`.

    def picture_weights(self, model: nn.Sequential, data: Data, history: History) -> Figure:
        """Weights of the first layer, by hidden unit and feature. Blue is below zero, red above."""
        # A picture is a method `picture_NAME`, and its docstring is the caption.
        weights = next(model.parameters()).detach().cpu().numpy()  # of the first layer
        figure = Figure(figsize=(6.5, 3), layout="constrained")
        axes = figure.add_subplot()
        largest = float(abs(weights).max())
        shown = axes.imshow(weights, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
        axes.locator_params(integer=True)
        axes.set_xlabel("feature")
        axes.set_ylabel("hidden unit")
        figure.colorbar(shown, label="weight")
        return figure

    def predict(self, model: nn.Sequential, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """What `everynet predict` prints for each input."""
        return name_classes(model(inputs).softmax(1), spec["classes"])


# What `everynet run ./mine.py` finds. The goal says what is to be reached on the test split; its
# metric on the validation split chooses the weights that are kept.
RECIPES = {
    "mine": Mine(goal="accuracy >= 0.9"),
}
