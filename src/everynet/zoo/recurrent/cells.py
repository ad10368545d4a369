"""A gated cell learns to remember over more time steps than a plain one: every cell at two tasks.

    adding   two of T numbers are marked, output their sum; always 1 has an error of 1/6 (MSE)
    copy     ten of eight symbols, a wait of T, output them in order; a guess is wrong by 7/8

All have as many weights, to a tenth: the hidden size of each is chosen so. All have the same
steps, batches, learning rates and clipping, and forget gates begin with a bias of 1. The gradient
of a plain network vanishes or explodes on the way back over T, so that it never learns what to
remember; a gate near 1 (or 0, as it is written) carries a state, and its gradient, on as they are.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735;
Jozefowicz, Zaremba, Sutskever (2015), "An empirical exploration of recurrent network
architectures", ICML 37, p. 2342, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from everynet.data.dataset import Batch, Data, Terms
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import Training
from everynet.system.wording import nearest
from everynet.zoo.recurrent.gru import GRU, ResetAfterGRU, SimplifiedGRU
from everynet.zoo.recurrent.lstm import LSTM
from everynet.zoo.recurrent.lstm_variants import (
    BareLSTM,
    CoupledLSTM,
    MemoryGateLSTM,
    NoForgetLSTM,
    PeepholeLSTM,
    SigmoidLSTM,
)
from everynet.zoo.recurrent.min_gru import MinGRU, MinGRUBlock
from everynet.zoo.recurrent.pictures.remembering import error_rows, learned_when
from everynet.zoo.recurrent.sequences import REMEMBERED, make_adding, make_copy

HELD_OUT = 500
"""Sequences of `valid`, and of `test`."""


class MinGRUStack(nn.Module):
    """Three blocks of minGRU behind a linear layer, as one cell."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        size, blocks = hidden_size, range(3)
        self.entry = nn.Linear(input_size, size)
        self.blocks = nn.ModuleList(
            MinGRUBlock(size, MinGRU(size, size), widening=1) for _ in blocks
        )
        self.norm = nn.LayerNorm(size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        x, last = self.entry(x), []
        begin = [None] * 3 if state is None else state.chunk(3, 2)
        for block, h in zip(self.blocks, begin, strict=True):
            x, h_after = block(x, h)
            last.append(h_after)
        return self.norm(x), torch.cat(last, 2)


def plain(input_size: int, hidden_size: int) -> nn.Module:
    """Torch's plain cell."""
    return nn.RNN(input_size, hidden_size, batch_first=True)


NETWORKS: Mapping[str, Callable[[int, int], nn.Module]] = {
    "rnn": plain,
    "simplified_gru": SimplifiedGRU,
    "gru": GRU,
    "reset_after_gru": ResetAfterGRU,
    "lstm": LSTM,
    "bare_lstm": BareLSTM,
    "memory_gate_lstm": MemoryGateLSTM,
    "peephole_lstm": PeepholeLSTM,
    "no_forget_lstm": NoForgetLSTM,
    "coupled_lstm": CoupledLSTM,
    "sigmoid_lstm": SigmoidLSTM,
    "min_gru": MinGRUStack,
}
TASKS = {"adding": 1 / 6, "copy": 7 / 8}
"""With the error of a network without memory."""


class Rememberer(nn.Module):
    """Maps sequences to outputs read off the last states of a cell."""

    def __init__(self, cell: nn.Module, hidden_size: int, outputs: int, answers: int) -> None:
        super().__init__()
        self.cell, self.output, self.answers = cell, nn.Linear(hidden_size, outputs), answers

    def forward(
        self, x: Float[Tensor, "batch time input"]
    ) -> Float[Tensor, "batch answers outputs"]:
        states, _ = self.cell(x)
        y: Tensor = self.output(states[:, -self.answers :])
        return y


def count_weights(model: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in model.parameters())


def fit_hidden_size(make: Callable[[int], nn.Module], budget: int) -> int:
    """The hidden size with which a network has nearest to `budget` weights."""
    with torch.device("meta"):
        size = 1
        while count_weights(make(2 * size)) < budget:
            size *= 2
        low, high = size, 2 * size
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count_weights(make(middle)) < budget else (low, middle)
        return min((low, high), key=lambda one: abs(count_weights(make(one)) - budget))


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Remember(Training[Rememberer]):
    """One cell at one task."""

    network: str = "lstm"
    """The cell: rnn, gru, lstm, ..."""
    task: str = "adding"
    """Adding or copy."""
    length: int = 100
    """Time steps of the numbers, or of the wait, over which it has to remember."""
    parameters: int = 18_000
    """Weights, of all together; the hidden size follows."""

    def dataset(self) -> Data:
        make = make_adding if self.task == "adding" else make_copy
        return make(self.length, self.batch_size, self.seed, held_out=HELD_OUT)

    def model(self, data: Data) -> Rememberer:
        inputs, outputs, answers = 2, 1, 1
        if self.task == "copy":
            inputs = outputs = len(data.spec["classes"])
            answers = REMEMBERED

        def make(size: int) -> Rememberer:
            return Rememberer(NETWORKS[self.network](inputs, size), size, outputs, answers)

        return make(fit_hidden_size(make, self.parameters))

    def predictions(self, model: Rememberer, batch: Batch) -> tuple[Tensor, Tensor]:
        """Outputs and targets: a number, or logits and a class for each answer."""
        x, y = batch
        if self.task == "adding":
            return model(x)[:, 0, 0], y
        bias = model.output.bias
        one_hot = torch.eye(len(bias), device=x.device, dtype=bias.dtype)
        return model(one_hot[x]).transpose(1, 2), y[:, -REMEMBERED:]

    def objective(self, model: Rememberer, batch: Batch) -> Terms:
        outputs, targets = self.predictions(model, batch)
        return {"loss": (mse_loss if self.task == "adding" else cross_entropy)(outputs, targets)}

    def metrics(self, model: Rememberer, batch: Batch) -> dict[str, Tensor]:
        """Squared error, or the share of wrong answers."""
        outputs, targets = self.predictions(model, batch)
        if self.task == "adding":
            return {"error": (outputs - targets) ** 2}
        return {"error": (outputs.argmax(1) != targets).to(outputs.dtype).mean(1)}


@dataclass(frozen=True, kw_only=True)
class CellComparison(Experiment):
    """Every cell at adding and at copying, for each length."""

    meanings: ClassVar[Mapping[str, str]] = {
        "*_adding*": (
            "squared error of the sum of two marked numbers; 1/6 for always 1 (a length behind it)"
        ),
        "*_copy*": "the share of symbols that are not copied rightly (a length behind it)",
        "most_weights": "weights of the largest network",
        "least_weights": "weights of the smallest",
    }

    lengths: tuple[int, ...] = (100,)
    """Time steps of the numbers, or of the wait, over which the cells have to remember."""
    networks: tuple[str, ...] = tuple(NETWORKS)
    """Cells that are compared."""
    parameters: int = 18_000
    """Weights of each network, to a tenth; hidden sizes follow."""
    steps: int = 2000
    """Updates of each."""
    batch_size: int = 32
    """Sequences an update sees."""
    lr: float = 1e-2
    """Learning rate of Adam to begin with; it falls along a cosine."""
    clip: float = 1.0
    """Largest gradient norm."""
    looks: int = 20
    """Evaluations of each on the way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(bool(self.lengths) and min(self.lengths) >= 2, "lengths", "2 or more, each")
        for network in self.networks:
            if network not in NETWORKS:
                self.require(False, "networks", "cells of ours" + nearest(network, NETWORKS))
        self.require(bool(self.networks), "networks", "one cell at least")
        self.require(len({*self.lengths}) == len(self.lengths), "lengths", "named once each")
        self.require(len({*self.networks}) == len(self.networks), "networks", "named once each")
        self.at_least(500, "parameters")
        self.at_least(1, "steps", "batch_size", "looks")
        self.above(0, "lr")
        self.at_least(0, "clip")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{network}-{task}-{length}": Remember(
                network=network, task=task, length=length, parameters=self.parameters,
                steps=self.steps, batch_size=self.batch_size, lr=self.lr, schedule="cosine",
                warmup=min(50, self.steps // 10), clip=self.clip, seed=self.seed,
                eval_every=max(1, self.steps // self.looks),
            )
            # The longest first, so that several at once end at about one time.
            for length, task, network in product(
                sorted(self.lengths, reverse=True), TASKS, self.networks
            )
        }  # fmt: skip

    def error(self, table: Table, network: str, task: str, length: int) -> float:
        """At the last evaluation that was finite."""
        return table.cells[f"{network}-{task}-{length}"].last["error"]

    def metrics(self, table: Table) -> dict[str, float]:
        """The error of each cell; a name without a number is that of the shortest length."""
        found, shortest = {}, min(self.lengths)
        for length, task, network in product(sorted(self.lengths), TASKS, self.networks):
            name = f"{network}_{task}" + f"_{length}" * (length > shortest)
            found[name] = self.error(table, network, task, length)
        counts = [count_weights(c.network()) for c in table.cells.values() if c.diverged is None]
        return {**found, "most_weights": max(counts), "least_weights": min(counts)}

    def picture_errors(self, table: Table) -> Figure:
        """The error of every cell at the end for each length, on sequences not trained on.

        At the dotted line a cell remembers nothing; left of it it has learned what to keep.
        """
        lengths = sorted(self.lengths)
        errors = {
            task: torch.tensor(
                [[self.error(table, n, task, t) for t in lengths] for n in self.networks]
            )
            for task in TASKS
        }
        return error_rows(errors, self._names(), lengths, TASKS)

    def picture_learning(self, table: Table) -> Figure:
        """The error of each cell along training at the shortest length, by colour.

        A row is dark where the cell still guesses, and turns light where it has learned.
        """
        shares = {}
        for task, guess in TASKS.items():
            cells = [table.cells[f"{n}-{task}-{min(self.lengths)}"] for n in self.networks]
            shares[task] = [(cell.steps, cell.valid["error"] / guess) for cell in cells]
        return learned_when(shares, self._names(), self.steps)

    def _names(self) -> list[str]:
        return [name.replace("_", " ") for name in self.networks]

    def page(self, table: Table) -> list[str]:
        """One table: a row for each cell, a column for each task and length."""
        columns = [*product(TASKS, sorted(self.lengths))]
        heading = ["cell", "hidden size", "weights", *(f"{task} {t}" for task, t in columns)]
        lines = [heading, ["---"] * len(heading)]
        for network in self.networks:
            nets = [table.cells[f"{network}-{task}-{t}"] for task, t in columns]
            whole = next((cell.network() for cell in nets if cell.diverged is None), None)
            size, count = "-", "-"
            if isinstance(whole, Rememberer):
                size, count = str(whole.output.in_features), f"{count_weights(whole):,}"
            errors = [
                f"{c.last['error']:.4f}" if c.diverged is None else f"diverged at {c.diverged:,}"
                for c in nets
            ]
            lines.append([network.replace("_", " "), size, count, *errors])
        nothing = [f"{TASKS[task]:.4f}" for task, _ in columns]
        lines.append(["remembers nothing", "", "", *nothing])
        about = "Mean squared error at adding, share of wrong answers at copying, on `valid`."
        table_lines = [f"| {' | '.join(line)} |" for line in lines]
        return ["", "## Cells", "", about, "", *table_lines]

    def tiny(self) -> Self:
        few = replace(super().tiny(), lengths=(2, 3)[: len(self.lengths)], looks=2)
        return replace(few, networks=("rnn", "gru", "lstm"), parameters=600)


RECIPES = {
    "cells": CellComparison(
        goal="lstm_adding <= 0.01 and gru_adding <= 0.01 and rnn_adding >= 0.1",
        covers=("R4", "R7", "R8", "R9", "R10", "R11"),
    ),
    "cells-long": CellComparison(
        lengths=(100, 200, 400), steps=3000,
        goal="lstm_adding <= 0.01 and gru_adding <= 0.01 and rnn_adding >= 0.1",
        covers=("R4", "R7", "R8", "R9", "R10", "R11"),
    ),
}  # fmt: skip
