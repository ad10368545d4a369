"""Five layouts of the inputs and outputs of a recurrent network, by one and the same cell.

    h_t = cell(x_t, h_{t-1}) = tanh(U x_t + W h_{t-1} + b)   (1)  h_0 = 0; output y_t = V h_t + c
    y_1 = V h_1 + c                                          (2)  one to one: no time at all
    y_t = V h_t + c,    h_{t+1} = cell'(y_t, h_t)            (3)  one to many: y is fed back
    y   = V h_T + c                                          (4)  many to one: the last state
    y_t = V h_t + c,    t = 1 .. T                           (5)  many to many: at every step
    s_0 = h_T,   s_t = cell'(y_{t-1}, s_{t-1}),   y_t = V s_t + c,   y_0 = 0
                                                             (6)  encoder-decoder: read, then write

x_t are inputs, y_t outputs, h_t and s_t states. Every layout maps (batch, inputs, input) to (batch,
outputs, output) for a given number of outputs. cell' is a cell with weights of its own, as outputs
need not look like inputs. The decoder of (6) depends on the inputs only through s_0, so both
sequences may have any length.

Goodfellow, Bengio, Courville (2016), "Deep Learning", sections 10.2 and 10.4; Cho et al. (2014),
"Learning phrase representations using RNN encoder-decoder for statistical machine translation",
arXiv:1406.1078 (6). Unlike both, an output is a vector of numbers, not a word, and is fed back in
training, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, Terms
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.zoo.recurrent.pictures.unrolled import Layout, unrolled
from everynet.zoo.recurrent.sequences import generate_data


class Cell(nn.Module):
    """Maps an input and a state to the next state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)  # U and b
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)  # W

    def forward(
        self, x: Float[Tensor, "batch input"], h: Float[Tensor, "batch hidden"] | None
    ) -> Float[Tensor, "batch hidden"]:
        u = self.input(x)
        return torch.tanh(u if h is None else u + self.recurrent(h))  # (1)


def read_all(
    cell: Cell, x: Float[Tensor, "batch inputs input"]
) -> list[Float[Tensor, "batch hidden"]]:
    """h_1..h_T of a sequence."""
    states: list[Tensor] = []
    for now in x.unbind(1):
        states.append(cell(now, states[-1] if states else None))
    return states


class OneToOne(nn.Module):
    """Maps one vector to one vector."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)  # V and c

    def forward(
        self, x: Float[Tensor, "batch 1 input"], outputs: int
    ) -> Float[Tensor, "batch outputs output"]:
        require_one(outputs, "outputs", "OneToOne")
        y: Tensor = self.output(self.cell(x[:, 0], None))  # (2)
        return y[:, None]


class OneToMany(nn.Module):
    """Maps one vector to a sequence, each of whose vectors is fed back to make the next."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.again = Cell(output_size, hidden_size)  # cell'
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch 1 input"], outputs: int
    ) -> Float[Tensor, "batch outputs output"]:
        require_some(outputs, "outputs", "OneToMany")
        h = self.cell(x[:, 0], None)
        y = [self.output(h)]
        while len(y) < outputs:
            h = self.again(y[-1], h)
            y.append(self.output(h))  # (3)
        return torch.stack(y, 1)


class ManyToOne(nn.Module):
    """Maps a sequence to one vector, read off the last state."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch inputs input"], outputs: int
    ) -> Float[Tensor, "batch outputs output"]:
        require_some(x.shape[1], "inputs", "ManyToOne")
        require_one(outputs, "outputs", "ManyToOne")
        y: Tensor = self.output(read_all(self.cell, x)[-1])  # (4)
        return y[:, None]


class ManyToMany(nn.Module):
    """Maps a sequence to one of the same length, step by step."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch inputs input"], outputs: int
    ) -> Float[Tensor, "batch outputs output"]:
        require_some(x.shape[1], "inputs", "ManyToMany")
        if outputs != x.shape[1]:
            raise ValueError(
                f"outputs ({outputs}) must be {x.shape[1]}, because ManyToMany gives one for each "
                "input; EncoderDecoder gives any number"
            )
        y: Tensor = self.output(torch.stack(read_all(self.cell, x), 1))  # (5)
        return y


class EncoderDecoder(nn.Module):
    """Maps a sequence to one of any length, which begins when all of the first is read."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.decoder = Cell(output_size, hidden_size)  # cell'
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch inputs input"], outputs: int
    ) -> Float[Tensor, "batch outputs output"]:
        require_some(x.shape[1], "inputs", "EncoderDecoder")
        require_some(outputs, "outputs", "EncoderDecoder")
        s = read_all(self.cell, x)[-1]
        y = [torch.zeros_like(self.output(s))]
        for _ in range(outputs):
            s = self.decoder(y[-1], s)
            y.append(self.output(s))  # (6)
        return torch.stack(y[1:], 1)


def require_one(count: int, name: str, layout: str) -> None:
    """Refuse any number but one."""
    if count != 1:
        raise ValueError(f"{name} ({count}) must be 1, because {layout} has one there")


def require_some(count: int, name: str, layout: str) -> None:
    """Refuse none."""
    if count < 1:
        raise ValueError(f"{name} ({count}) must be at least 1, because {layout} has many there")


# -------- the network ends here; training and pictures follow --------


class Task(NamedTuple):
    """The task of a layout."""

    layout: Callable[[int, int, int], nn.Module]
    inputs: int
    outputs: int
    what: str
    answer: Callable[[Tensor], Tensor]
    """From inputs between -1 and 1, (batch, inputs), to targets, (batch, outputs)."""


def wave(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 16"]:
    """Sixteen samples of a sine that turns by 0.2 to 0.6 radians a step."""
    return torch.sin((0.4 + 0.2 * x) * torch.arange(1, 17, dtype=x.dtype))


def echo(x: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch inputs"]:
    """The input of two steps ago; 0 where there was none."""
    return nn.functional.pad(x, (2, 0))[:, :-2]


TASKS = {
    "one-to-one": Task(OneToOne, 1, 1, "a sine", lambda x: torch.sin(math.pi * x)),
    "one-to-many": Task(OneToMany, 1, 16, "a wave", wave),
    "many-to-one": Task(ManyToOne, 4, 1, "the largest", lambda x: x.amax(1, keepdim=True)),
    "many-to-many": Task(ManyToMany, 12, 12, "an echo", echo),
    "encoder-decoder": Task(EncoderDecoder, 6, 3, "3 backwards", lambda x: x[:, :3].flip(1)),
}


@dataclass(frozen=True, kw_only=True)
class LayoutTask(Training[nn.Module]):
    """Learn the task of one layout from numbers drawn anew at each step."""

    task: str = "one-to-one"
    """Which of the five."""
    hidden_size: int = 32
    """Units of the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("task", TASKS)
        self.at_least(1, "hidden_size")

    def dataset(self) -> Data:
        task = TASKS[self.task]

        def draw(rows: int, random: torch.Generator) -> Batch:
            x = 2 * torch.rand(rows, task.inputs, generator=random) - 1
            return x[..., None], task.answer(x)[..., None]

        spec = {"task": "regression", "shape": [task.inputs, 1], "classes": []}
        return generate_data(self.task, draw, spec, self.batch_size, self.seed, held_out=1000)

    def model(self, data: Data) -> nn.Module:
        return TASKS[self.task].layout(1, self.hidden_size, 1)

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, y = batch
        return {"mse": (model(x, y.shape[1]) - y).square().mean()}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        return {
            "error": (model(x, y.shape[1]) - y).square().mean((1, 2)),
            "spread": (y - y.mean(0)).square().mean((1, 2)),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """The share of the variance at each step that the outputs do not explain."""
        error, spread = (outputs[name].double().mean().item() for name in ("error", "spread"))
        return {"mse": error, "unexplained": error / spread}


@dataclass(frozen=True, kw_only=True)
class Layouts(Experiment):
    """Five networks, one for each layout, each with a small task that needs it."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "worst": "the largest share of the variance that is not explained, of the five layouts",
        "one_to_one": "the share of the variance that is not explained: one input, one output",
        "one_to_many": "the same of one input to many outputs",
        "many_to_one": "the same of many inputs to one output",
        "many_to_many": "the same of many inputs to as many outputs",
        "encoder_decoder": "the same of many inputs to another number of outputs",
    }

    hidden_size: int = 32
    """Units of the state of each network."""
    steps: int = 2000
    """Updates of each network."""
    batch_size: int = 64
    """Sequences an update sees."""
    lr: float = 5e-3
    """Learning rate, which falls along a cosine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "steps", "batch_size")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            name: LayoutTask(
                task=name, hidden_size=self.hidden_size, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, schedule="cosine", clip=1.0,
                seed=mix(self.seed, number), eval_every=max(1, self.steps // 10),
            )
            for number, name in enumerate(TASKS)
        }  # fmt: skip

    def metrics(self, table: Table) -> dict[str, float]:
        shares = {name.replace("-", "_"): table.cells[name].test["unexplained"] for name in TASKS}
        return {"worst": max(shares.values()), **shares}

    def picture_unrolled(self, table: Table) -> Figure:
        """The five layouts unrolled in time, each with the shapes of its tensors.

        Inputs stand below, states in the middle and outputs above; time goes to the right.
        """
        sizes = (1, self.hidden_size, 1)
        return unrolled(
            {
                name: Layout(task.inputs, task.outputs, sizes, f"{name}: {task.what}")
                for name, task in TASKS.items()
            }
        )

    def picture_said(self, table: Table) -> Figure:
        """The outputs of each network on unseen sequences, points, and the targets, dashes.

        Last the share of the variance that is not explained, along training.
        """
        curves = {n: (table.cells[n].steps, table.cells[n].valid["unexplained"]) for n in TASKS}
        along = Panel(
            curves, "update", "share of variance missed", "along training", log="y",
            ylim=(1e-5, 1e5), legend="upper right",
        )  # fmt: skip
        drawn = [self._outputs(name, table) for name in TASKS]
        return panels(*drawn, along, columns=2, width=3.25, height=2.5)

    @torch.no_grad()
    def _outputs(self, name: str, table: Table) -> Panel:
        """The outputs of one network on a few unseen sequences."""
        task, cell = TASKS[name], table.cells[name]
        x, y = next(cell.recipe.dataset().test)
        outputs, targets = cell.network().cpu().float()(x, task.outputs)[..., 0], y[..., 0]
        title = f"{name}: {task.what}"
        if task.outputs == 1:
            across = x[:, 0, 0] if task.inputs == 1 else targets[:, 0]
            label = "input" if task.inputs == 1 else "the largest input"
            order = across.argsort()
            return Panel(
                {"output": (across[:60], outputs[:60, 0])}, label, "output", title,
                guides={"target": (across[order], targets[order, 0])}, scatter=True,
            )  # fmt: skip
        time = torch.arange(1, task.outputs + 1)
        rows = {f"sequence {n + 1}": n for n in range(3)}
        return Panel(
            {key: (time, outputs[n]) for key, n in rows.items()}, "time step", "output", title,
            guides={key: (time, targets[n]) for key, n in rows.items()}, dashes="target",
            scatter=True, legend="none",
        )  # fmt: skip


RECIPES = {"layouts": Layouts(goal="worst <= 0.02", covers=("R6",))}  # fmt: skip
