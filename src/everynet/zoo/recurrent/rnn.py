"""The plain recurrent network: one layer used again at every token, which hands its state on.

    h_t = tanh(U x_t + W h_{t-1} + b)                (1)  state form
    a_t = U x_t + W tanh(a_{t-1}) + b                (2)  pre-activation form
    h_t = tanh(W_a [h_{t-1}; x_t] + b)               (3)  concatenated form
    L   = mean (v^T h_T + c - y)^2                   (4)  many numbers in, one out: adding

The three forms are one network: U, W and b of (1) and (2) are the same, a_t is what tanh is taken
of, so that h_t = tanh(a_t) and a_0 = artanh(h_0), and W_a = [W U] stands for both matrices. In
torch's names U is `weight_ih_l0`, W is `weight_hh_l0` and b the sum of its two biases. The weights
are the same at every token, so a sequence may have any length; a state depends on nothing that
comes later, so what fills up a shorter one behind its end changes nothing before it.

In the adding problem the answer needs two numbers that lie up to T tokens back. Whoever forgets
says 1 and has an error of 1/6. How a text is read and the next token said is in `next_token.py`.

Elman (1990), "Finding structure in time", doi:10.1207/s15516709cog1402_1; Hochreiter, Schmidhuber
(1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735, section 5.4 (adding). Unlike
Elman, a token has a vector that is learned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data.dataset import Batch, Data, Terms
from everynet.nn.input_checks import require_sequences
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.zoo.recurrent.next_token import NextToken
from everynet.zoo.recurrent.sequences import adding

ALWAYS_ONE = 1 / 6
"""The error of one who always says 1: the variance of the sum of two even numbers."""


class StateForm(nn.Module):
    """Maps x_1..x_T to h_1..h_T and the last state; pass that state back in to go on."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)  # U and b
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)  # W

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        name = type(self).__name__
        require_sequences(name, x, self.input.weight, self.input.in_features)
        u = self.input(x)
        h = torch.zeros_like(u[:, 0]) if h is None else h
        states = []
        for now in u.unbind(1):
            h = torch.tanh(now + self.recurrent(h))  # (1)
            states.append(h)
        return torch.stack(states, 1), h


class PreActivationForm(nn.Module):
    """Maps x_1..x_T to a_1..a_T, the sums before tanh, and the last of them."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)  # U and b
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)  # W

    @classmethod
    def of(cls, form: StateForm) -> Self:
        """The same network in this form: the weights as they are, the state h as artanh(h)."""
        made = cls(form.input.in_features, form.input.out_features).to(form.input.weight)
        made.load_state_dict(form.state_dict())
        return made

    def forward(
        self, x: Float[Tensor, "batch time input"], a: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        name = type(self).__name__
        require_sequences(name, x, self.input.weight, self.input.in_features)
        u = self.input(x)
        a = torch.zeros_like(u[:, 0]) if a is None else a
        sums = []
        for now in u.unbind(1):
            a = now + self.recurrent(torch.tanh(a))  # (2)
            sums.append(a)
        return torch.stack(sums, 1), a


class ConcatenatedForm(nn.Module):
    """Maps x_1..x_T to h_1..h_T and the last state, by one matrix for state and input."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.both = nn.Linear(hidden_size + input_size, hidden_size)  # W_a and b
        self.hidden_size = hidden_size

    @classmethod
    def of(cls, form: StateForm) -> Self:
        """The same network in this form: W_a is W beside U."""
        made = cls(form.input.in_features, form.input.out_features).to(form.input.weight)
        joined = torch.cat([form.recurrent.weight, form.input.weight], 1)
        made.both.load_state_dict({"weight": joined, "bias": form.input.bias})
        return made

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        features = self.both.in_features - self.hidden_size
        require_sequences("ConcatenatedForm", x, self.both.weight, features)
        h = x.new_zeros(len(x), self.hidden_size) if h is None else h
        states = []
        for now in x.unbind(1):
            h = torch.tanh(self.both(torch.cat([h, now], 1)))  # (3)
            states.append(h)
        return torch.stack(states, 1), h


def as_torch(form: StateForm) -> nn.RNN:
    """The same network as torch's own layer; its second bias is zero."""
    made = nn.RNN(form.input.in_features, form.input.out_features, batch_first=True)
    made.to(form.input.weight).load_state_dict(
        {
            "weight_ih_l0": form.input.weight,
            "weight_hh_l0": form.recurrent.weight,
            "bias_ih_l0": form.input.bias,
            "bias_hh_l0": torch.zeros_like(form.input.bias),
        }
    )
    return made


def at_end(
    states: Float[Tensor, "batch time hidden"], lengths: Int64[Tensor, " batch"]
) -> Float[Tensor, "batch hidden"]:
    """The state after the last token of each sequence, where shorter ones were filled up."""
    longest = states.shape[1]
    if not ((lengths >= 1) & (lengths <= longest)).all():
        raise ValueError(
            f"lengths ({lengths.tolist()}) must be from 1 to {longest}, because no state is at "
            "another place; leave empty sequences out"
        )
    return states[torch.arange(len(states), device=states.device), lengths - 1]


# -------------------------------------------------------------------------------------- next token


@dataclass(frozen=True, kw_only=True)
class PlainNextToken(NextToken):
    """Say what comes next in a text, character by character."""

    def layer(self) -> nn.RNN:
        return nn.RNN(self.hidden_size, self.hidden_size, batch_first=True)  # (1)


# ------------------------------------------------------------------------------------------ adding


class PlainAdder(nn.Module):
    """Maps a sequence to one number, read off the last state; torch's layer is (1)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, 1)

    def forward(self, x: Float[Tensor, "batch time input"]) -> Float[Tensor, " batch"]:
        _, h = self.rnn(x)
        y: Tensor = self.output(h[0])[:, 0]
        return y


@dataclass(frozen=True, kw_only=True)
class Adding(Training[PlainAdder]):
    """Say the sum of the two numbers that are marked, one of them long ago."""

    length: int = 10
    """Tokens of a sequence."""
    hidden_size: int = 64
    """Units of the state."""

    def dataset(self) -> Data:
        return adding(self.length, self.batch_size, self.seed)

    def model(self, data: Data) -> PlainAdder:
        return PlainAdder(data.spec["shape"][1], self.hidden_size)

    def objective(self, model: PlainAdder, batch: Batch) -> Terms:
        x, y = batch
        return {"mse": mse_loss(model(x), y)}  # (4)


@dataclass(frozen=True, kw_only=True)
class AddingByLength(Experiment):
    """The adding problem at several lengths: what a plain network can keep in mind, and not."""

    tests: ClassVar[bool] = True
    captions: ClassVar[Mapping[str, str]] = {
        "length": "Left the error on unseen sequences by their length, right on the way there: "
        "short sums are learned, long ones stay at what always saying 1 would give.",
        "asked": "How much the answer changes with the number at each place if it is marked: 1 is "
        "a sum, which short networks come near to, and the long ones ask nothing of their input.",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "short_mse": "squared error on the shortest sequences; 1/6 for always saying 1",
        "long_mse": "the same on the longest",
        "mse_*": "squared error on sequences of that length",
    }

    lengths: tuple[int, ...] = (10, 20, 50, 100)
    """Tokens of a sequence, one network for each, from short to long."""
    hidden_size: int = 64
    """Units of the state."""
    steps: int = 3000
    """Updates of each network."""
    batch_size: int = 50
    """Sequences an update sees."""
    lr: float = 3e-3
    """Learning rate, which falls along a cosine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = list(self.lengths) == sorted(set(self.lengths)) and len(self.lengths) >= 2
        self.require(
            rising and self.lengths[0] >= 2, "lengths", "at least 2 numbers from 2 up, in order"
        )
        for name in ("hidden_size", "steps", "batch_size"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.lr > 0, "lr", "a positive number")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            str(length): Adding(
                length=length, hidden_size=self.hidden_size, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, schedule="cosine", clip=1.0, seed=self.seed,
                eval_every=max(1, self.steps // 15),
            )
            for length in self.lengths
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """What the answer asks of the number at each place, were it marked."""
        x, _ = data.some("valid", torch.arange(min(200, data.rows("valid"))))
        half = x.shape[1] // 2
        places = torch.arange(0, x.shape[1], max(1, x.shape[1] // 25), device=x.device)
        asked = []
        for place in places.tolist():
            here = x.clone()
            mine = slice(0, half) if place < half else slice(half, None)
            here[:, mine, 1] = 0.0  # the mark of this half moves here
            here[:, place, 1] = 1.0
            low, high = here.clone(), here.clone()
            low[:, place, 0], high[:, place, 0] = 0.25, 0.75
            asked.append((state.model(high) - state.model(low)).mean() / 0.5)
        return {"places": places, "asked": torch.stack(asked)}

    def metrics(self, table: Table) -> dict[str, float]:
        errors = {length: table.cells[str(length)].test["mse"] for length in self.lengths}
        return {
            "short_mse": errors[self.lengths[0]],
            "long_mse": errors[self.lengths[-1]],
            **{f"mse_{length}": error for length, error in errors.items()},
        }

    def pictures(self, table: Table) -> Pictures:
        cells = {f"T = {length}": table.cells[str(length)] for length in self.lengths}
        errors = torch.tensor([cell.test["mse"] for cell in cells.values()])
        said = {"always saying 1": ALWAYS_ONE}
        by_length = Panel(
            {"test": (torch.tensor(self.lengths), errors)},
            "T, tokens of a sequence",
            "mean squared error",
            log="xy",
            levels=said,
            legend="lower right",
        )
        on_the_way = Panel(
            {name: (cell.steps, cell.valid["mse"]) for name, cell in cells.items()},
            "update",
            "mean squared error",
            log="y",
            levels=said,
            ylim=(0.5 * min(errors.tolist()), 10.0),
            legend="upper right",
        )
        asked = Panel(
            {
                name: (cell.measured["places"][-1] - length + 1, cell.measured["asked"][-1])
                for (name, cell), length in zip(cells.items(), self.lengths, strict=True)
            },
            "place of the number, tokens from the end",
            "change of the answer\nby that of the number",
            levels={"the sum": 1.0},
            legend="upper left",
        )
        return {
            "length": panels(by_length, on_the_way, width=3.25, height=2.9),
            "asked": panels(asked, width=6.5, height=3.2),
        }

    def tiny(self) -> Self:
        return replace(self, lengths=(4, 8), hidden_size=8, steps=4, batch_size=8)


# Reached on the help of Python 3.11, seeds 0, 1, 2, CPU: 1.306, 1.325, 1.329 nats a character. The
# text is another one in each version of Python, so the goal leaves room. Adding, CPU, mean squared
# errors at T = 10, 20, 50, 100: 0.0055, 0.011, 0.158, 0.171 (seed 0), 0.0029, 0.0089, 0.144, 0.171
# (seed 1) and 0.0089, 0.097, 0.159, 0.171 (seed 2).
RECIPES = {
    "char-rnn": PlainNextToken(
        data="topics",
        steps=2400,
        batch_size=32,
        lr=2e-3,
        schedule="cosine",
        clip=1.0,
        goal="cross_entropy <= 1.4",
        covers=("R1", "R3"),
    ),
    "rnn-adding": AddingByLength(
        goal="short_mse <= 0.01 and long_mse >= 0.15",
        covers=("R1", "R4"),
    ),
}
