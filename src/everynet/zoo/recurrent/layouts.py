"""Five layouts of what a recurrent network reads and says, by one and the same cell.

    h_t = cell(x_t, h_{t-1}) = tanh(U x_t + W h_{t-1} + b)   (1)  h_0 = 0; said is y_t = V h_t + c
    y_1 = V h_1 + c                                          (2)  one to one: no time at all
    y_t = V h_t + c,    h_{t+1} = cell'(y_t, h_t)            (3)  one to many: y is fed back
    y   = V h_T + c                                          (4)  many to one: the last state
    y_t = V h_t + c,    t = 1 .. T                           (5)  many to many: at every token
    s_0 = h_T,   s_t = cell'(y_{t-1}, s_{t-1}),   y_t = V s_t + c,   y_0 = 0
                                                             (6)  encoder-decoder: read, then say

Every layout maps (batch, read, input) to (batch, said, output) and is told how many tokens to say.
cell' is a cell with weights of its own, as what is said need not look like what is read. The
decoder of (6) sees what was read only through s_0, so both sequences may have any length.

Goodfellow, Bengio, Courville (2016), "Deep Learning", sections 10.2 and 10.4; Cho et al. (2014),
"Learning phrase representations using RNN encoder-decoder for statistical machine translation",
arXiv:1406.1078 (6). Unlike both, what is said is a vector of numbers, not a word, and is fed back
in training, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, Terms
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Pictures
from everynet.recipes.training import Training
from everynet.system.seeds import mix
from everynet.zoo.recurrent.pictures.unrolled import Layout, unrolled
from everynet.zoo.recurrent.sequences import generated


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
    cell: Cell, x: Float[Tensor, "batch read input"]
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
        self, x: Float[Tensor, "batch 1 input"], said: int = 1
    ) -> Float[Tensor, "batch said output"]:
        only(said, "said", "OneToOne")
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
        self, x: Float[Tensor, "batch 1 input"], said: int
    ) -> Float[Tensor, "batch said output"]:
        some(said, "said", "OneToMany")
        h = self.cell(x[:, 0], None)
        made = [self.output(h)]
        while len(made) < said:
            h = self.again(made[-1], h)
            made.append(self.output(h))  # (3)
        return torch.stack(made, 1)


class ManyToOne(nn.Module):
    """Maps a sequence to one vector, read off the last state."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch read input"], said: int = 1
    ) -> Float[Tensor, "batch said output"]:
        some(x.shape[1], "read", "ManyToOne")
        only(said, "said", "ManyToOne")
        y: Tensor = self.output(read_all(self.cell, x)[-1])  # (4)
        return y[:, None]


class ManyToMany(nn.Module):
    """Maps a sequence to one of the same length, token by token as it is read."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch read input"], said: int
    ) -> Float[Tensor, "batch said output"]:
        some(x.shape[1], "read", "ManyToMany")
        if said != x.shape[1]:
            raise ValueError(
                f"said ({said}) must be {x.shape[1]}, because ManyToMany says one vector for each "
                "that it reads; EncoderDecoder says any number"
            )
        y: Tensor = self.output(torch.stack(read_all(self.cell, x), 1))  # (5)
        return y


class EncoderDecoder(nn.Module):
    """Maps a sequence to one of any length, which begins when all is read."""

    def __init__(self, input_size: int, hidden_size: int, output_size: int) -> None:
        super().__init__()
        self.cell = Cell(input_size, hidden_size)
        self.decoder = Cell(output_size, hidden_size)  # cell'
        self.output = nn.Linear(hidden_size, output_size)

    def forward(
        self, x: Float[Tensor, "batch read input"], said: int
    ) -> Float[Tensor, "batch said output"]:
        some(x.shape[1], "read", "EncoderDecoder")
        some(said, "said", "EncoderDecoder")
        s = read_all(self.cell, x)[-1]
        made = [torch.zeros_like(self.output(s))]
        for _ in range(said):
            s = self.decoder(made[-1], s)
            made.append(self.output(s))  # (6)
        return torch.stack(made[1:], 1)


def only(count: int, name: str, layout: str) -> None:
    """Refuse more than one token."""
    if count != 1:
        raise ValueError(f"{name} ({count}) must be 1, because {layout} has one there")


def some(count: int, name: str, layout: str) -> None:
    """Refuse no tokens."""
    if count < 1:
        raise ValueError(f"{name} ({count}) must be at least 1, because {layout} has many there")


# ------------------------------------------------------------------------------------------- tasks


class Task(NamedTuple):
    """What a layout is to learn."""

    layout: Callable[[int, int, int], nn.Module]
    read: int
    said: int
    what: str
    answer: Callable[[Tensor], Tensor]
    """From numbers between -1 and 1, (batch, read), to what is to be said, (batch, said)."""


def wave(x: Float[Tensor, "batch 1"]) -> Float[Tensor, "batch 16"]:
    """Sixteen samples of a sine that turns by 0.2 to 0.6 radians a token."""
    return torch.sin((0.4 + 0.2 * x) * torch.arange(1, 17, dtype=x.dtype))


def echo(x: Float[Tensor, "batch read"]) -> Float[Tensor, "batch read"]:
    """What was read two tokens ago; 0 where there was nothing."""
    return nn.functional.pad(x, (2, 0))[:, :-2]


TASKS = {
    "one-to-one": Task(OneToOne, 1, 1, "a sine", lambda x: torch.sin(math.pi * x)),
    "one-to-many": Task(OneToMany, 1, 16, "a wave", wave),
    "many-to-one": Task(ManyToOne, 4, 1, "the largest", lambda x: x.amax(1, keepdim=True)),
    "many-to-many": Task(ManyToMany, 12, 12, "an echo", echo),
    "encoder-decoder": Task(EncoderDecoder, 6, 3, "3 backwards", lambda x: x[:, :3].flip(1)),
}


@dataclass(frozen=True, kw_only=True)
class Saying(Training[nn.Module]):
    """Learn the task of one layout from numbers drawn anew at each step."""

    task: str = "one-to-one"
    """Which of the five."""
    hidden_size: int = 32
    """Units of the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.task in TASKS, "task", "one of " + ", ".join(TASKS))
        self.require(self.hidden_size >= 1, "hidden_size", "at least 1")

    def dataset(self) -> Data:
        task = TASKS[self.task]

        def draw(rows: int, random: torch.Generator) -> Batch:
            x = 2 * torch.rand(rows, task.read, generator=random) - 1
            return x[..., None], task.answer(x)[..., None]

        spec = {"task": "regression", "shape": [task.read, 1], "classes": []}
        return generated(self.task, draw, spec, self.batch_size, self.seed, held_out=1000)

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
        """The share of the variance at each token that what is said does not explain."""
        error, spread = (outputs[name].double().mean().item() for name in ("error", "spread"))
        return {"mse": error, "unexplained": error / spread}


@dataclass(frozen=True, kw_only=True)
class Layouts(Experiment):
    """Five networks, one for each layout, each with a small task that needs it."""

    tests: ClassVar[bool] = True
    captions: ClassVar[Mapping[str, str]] = {
        "unrolled": "The five layouts unrolled in time, from what is read (below) by way of the "
        "states to what is said (above), each with the shapes of its tensors.",
        "said": "What each network says, points, of sequences it has not seen, and what it should "
        "say, dashes; last the share of the variance that is missed on the way.",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "worst": "the share of the variance that the worst of the five layouts misses",
        "one_to_one": "the share of the variance that it misses: one token to one",
        "one_to_many": "the share of the variance that it misses: one token to many",
        "many_to_one": "the share of the variance that it misses: many tokens to one",
        "many_to_many": "the share of the variance that it misses: many tokens to as many",
        "encoder_decoder": "the share of the variance that it misses: many tokens to others",
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
        for name in ("hidden_size", "steps", "batch_size"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.lr > 0, "lr", "a positive number")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            name: Saying(
                task=name, hidden_size=self.hidden_size, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, schedule="cosine", clip=1.0,
                seed=mix(self.seed, number), eval_every=max(1, self.steps // 10),
            )
            for number, name in enumerate(TASKS)
        }  # fmt: skip

    def metrics(self, table: Table) -> dict[str, float]:
        missed = {name: table.cells[name].test["unexplained"] for name in TASKS}
        each = {name.replace("-", "_"): share for name, share in missed.items()}
        return {"worst": max(missed.values()), **each}

    @torch.no_grad()
    def pictures(self, table: Table) -> Pictures:
        shapes = {
            name: Layout(task.read, task.said, (1, self.hidden_size, 1), f"{name}: {task.what}")
            for name, task in TASKS.items()
        }
        drawn = [self._said(name, table) for name in TASKS]
        ways = {name: (table.cells[name].steps, table.cells[name].valid["unexplained"])
                for name in TASKS}  # fmt: skip
        drawn.append(
            Panel(
                ways, "update", "share of variance missed", "on the way", log="y",
                ylim=(1e-5, 1e5), legend="upper right",
            )
        )  # fmt: skip
        return {
            "unrolled": unrolled(shapes),
            "said": panels(*drawn, columns=2, width=3.25, height=2.5),
        }

    def _said(self, name: str, table: Table) -> Panel:
        """What a network says of a few unseen sequences."""
        task, cell = TASKS[name], table.cells[name]
        x, y = next(cell.recipe.dataset().test)
        found = cell.network().cpu().float()(x, task.said)[..., 0]
        asked = y[..., 0]
        title = f"{name}: {task.what}"
        if task.said == 1:
            across = x[:, 0, 0] if task.read == 1 else asked[:, 0]
            label = "number read" if task.read == 1 else "the largest of those read"
            order = across.argsort()
            return Panel(
                {"says": (across[:60], found[:60, 0])}, label, "number said", title,
                guides={"should": (across[order], asked[order, 0])}, scatter=True,
            )  # fmt: skip
        time = torch.arange(1, task.said + 1)
        rows = {f"sequence {n + 1}": n for n in range(3)}
        return Panel(
            {key: (time, found[n]) for key, n in rows.items()},
            "token",
            "number said",
            title,
            guides={key: (time, asked[n]) for key, n in rows.items()},
            dashes="should",
            scatter=True,
            legend="none",
        )

    def tiny(self) -> Self:
        return replace(self, hidden_size=4, steps=2, batch_size=8)


# Seeds 0, 1, 2, CPU: worst 0.0073, 0.0080, 0.0096, each time of the largest of four.
RECIPES = {
    "layouts": Layouts(
        goal="worst <= 0.02",
        covers=("R6",),
    ),
}
