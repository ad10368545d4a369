"""The plain recurrent network: one layer used again at every time step, with a state.

    h_t = tanh(U x_t + W h_{t-1} + b)                (1)  state form
    a_t = U x_t + W tanh(a_{t-1}) + b                (2)  pre-activation form
    h_t = tanh(W_a [h_{t-1}; x_t] + b)               (3)  concatenated form
    L   = mean (v^T h_T + c - y)^2                   (4)  many numbers in, one out: adding

x_t is the input at time step t, h_t the state, [;] concatenation. The three forms are one network:
U, W and b of (1) and (2) are the same, a_t is the pre-activation, so that h_t = tanh(a_t) and a_0 =
artanh(h_0), and W_a = [W U] holds both matrices. In torch's names U is `weight_ih_l0`, W is
`weight_hh_l0` and b the sum of its two biases. The weights are the same at every time step, so a
sequence may have any length; a state depends on nothing that comes later, so padding behind the end
of a shorter one changes nothing before it.

In the adding problem the output depends on two numbers that lie up to T time steps back. Without
memory the best output is 1, with an error of 1/6. How a text is read and the next token predicted
is in `next_token.py`.

Elman (1990), "Finding structure in time", doi:10.1207/s15516709cog1402_1; Hochreiter, Schmidhuber
(1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735, section 5.4 (adding). Unlike
Elman, tokens have learned embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data.dataset import Batch, Data, Terms
from everynet.nn.input_checks import require_sequences
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.zoo.recurrent.next_token import NextToken
from everynet.zoo.recurrent.sequences import make_adding

ALWAYS_ONE = 1 / 6
"""The mean squared error of always 1: the variance of the sum of two uniform numbers."""


class StateForm(nn.Module):
    """Maps x_1..x_T to h_1..h_T and the last state; pass that state back in to go on."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)  # U and b
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)  # W

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        require_sequences(type(self).__name__, x, self.input.weight, self.input.in_features)
        u = self.input(x)
        h = torch.zeros_like(u[:, 0]) if h is None else h
        states = []
        for now in u.unbind(1):
            h = torch.tanh(now + self.recurrent(h))  # (1)
            states.append(h)
        return torch.stack(states, 1), h


class PreActivationForm(nn.Module):
    """Maps x_1..x_T to the pre-activations a_1..a_T and the last of them."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)  # U and b
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)  # W

    @classmethod
    def of(cls, form: StateForm) -> Self:
        """The same network in this form: the weights as they are, the state h as artanh(h)."""
        same = cls(form.input.in_features, form.input.out_features).to(form.input.weight)
        same.load_state_dict(form.state_dict())
        return same

    def forward(
        self, x: Float[Tensor, "batch time input"], a: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        require_sequences(type(self).__name__, x, self.input.weight, self.input.in_features)
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
        same = cls(form.input.in_features, form.input.out_features).to(form.input.weight)
        joined = torch.cat([form.recurrent.weight, form.input.weight], 1)
        same.both.load_state_dict({"weight": joined, "bias": form.input.bias})
        return same

    def forward(
        self, x: Float[Tensor, "batch time input"], h: Float[Tensor, "batch hidden"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        features = self.both.in_features - self.hidden_size
        require_sequences("ConcatenatedForm", x, self.both.weight, features)
        h = x.new_zeros(x.shape[0], self.hidden_size) if h is None else h
        states = []
        for now in x.unbind(1):
            h = torch.tanh(self.both(torch.cat([h, now], 1)))  # (3)
            states.append(h)
        return torch.stack(states, 1), h


class PlainAdder(nn.Module):
    """Maps a sequence to one number, read off the last state; torch's layer is `StateForm`."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(input_size, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, 1)

    def forward(self, x: Float[Tensor, "batch time input"]) -> Float[Tensor, " batch"]:
        _, h = self.rnn(x)
        y: Tensor = self.output(h[0])[:, 0]
        return y


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PlainNextToken(NextToken):
    """Predict the next token of a text, character by character."""

    def layer(self) -> nn.RNN:
        return nn.RNN(self.hidden_size, self.hidden_size, batch_first=True)


@dataclass(frozen=True, kw_only=True)
class PlainAdding(Training[PlainAdder]):
    """Predict the sum of the two numbers that are marked, one of them long ago."""

    length: int = 10
    """Time steps of a sequence."""
    hidden_size: int = 64
    """Units of the state."""

    def dataset(self) -> Data:
        return make_adding(self.length, self.batch_size, self.seed)

    def model(self, data: Data) -> PlainAdder:
        return PlainAdder(data.spec["shape"][1], self.hidden_size)

    def objective(self, model: PlainAdder, batch: Batch) -> Terms:
        x, y = batch
        return {"mse": mse_loss(model(x), y)}  # (4)


@dataclass(frozen=True, kw_only=True)
class AddingByLength(Experiment):
    """The adding problem at several lengths: how far back a plain network can learn to remember."""

    tests: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "short_mse": "squared error on the shortest sequences; 1/6 for always 1",
        "long_mse": "the same on the longest",
        "mse_*": "squared error on sequences of that length",
    }

    lengths: tuple[int, ...] = (10, 20, 50, 100)
    """Time steps of a sequence, one network for each, from short to long."""
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
        self.at_least(1, "hidden_size", "steps", "batch_size")
        self.above(0, "lr")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            str(length): PlainAdding(
                length=length, hidden_size=self.hidden_size, steps=self.steps, lr=self.lr,
                batch_size=self.batch_size, schedule="cosine", clip=1.0, seed=self.seed,
                eval_every=max(1, self.steps // 15),
            )
            for length in self.lengths
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The derivative of the output with respect to the number at each place, were it marked."""
        x, _ = data.some("valid", torch.arange(min(200, data.rows("valid"))))
        half = x.shape[1] // 2
        places = torch.arange(0, x.shape[1], max(1, x.shape[1] // 25), device=x.device)
        slopes = []
        for place in places.tolist():
            moved = x.clone()
            moved[:, slice(0, half) if place < half else slice(half, None), 1] = 0.0
            moved[:, place, 1] = 1.0  # the mark of this half
            low, high = moved.clone(), moved.clone()
            low[:, place, 0], high[:, place, 0] = 0.25, 0.75
            slopes.append((state.model(high) - state.model(low)).mean() / 0.5)
        return {"places": places, "asked": torch.stack(slopes)}

    def metrics(self, table: Table) -> dict[str, float]:
        errors = {length: table.cells[str(length)].test["mse"] for length in self.lengths}
        return {
            "short_mse": errors[self.lengths[0]],
            "long_mse": errors[self.lengths[-1]],
            **{f"mse_{length}": error for length, error in errors.items()},
        }

    def picture_length(self, table: Table) -> Figure:
        """The test error by the length of the sequences, left, and along training, right.

        A network that comes below the line of always 1 has learned to remember something.
        """
        cells = {f"T = {length}": table.cells[str(length)] for length in self.lengths}
        errors = torch.tensor([cell.test["mse"] for cell in cells.values()])
        level = {"always 1": ALWAYS_ONE}
        by_length = Panel(
            {"test": (torch.tensor(self.lengths), errors)}, "T, time steps of a sequence",
            "mean squared error", log="xy", levels=level, legend="lower right",
        )  # fmt: skip
        along = Panel(
            {name: (cell.steps, cell.valid["mse"]) for name, cell in cells.items()}, "update",
            "mean squared error", log="y", levels=level, ylim=(0.5 * min(errors.tolist()), 10.0),
            legend="upper right",
        )  # fmt: skip
        return panels(by_length, along, width=3.25, height=2.9)

    def picture_asked(self, table: Table) -> Figure:
        """How much the output changes with the number at each place, if that one is marked.

        A sum has a slope of 1 everywhere; at 0 the network does not depend on its input.
        """
        curves = {}
        for length in self.lengths:
            measured = table.cells[str(length)].measured
            curves[f"T = {length}"] = (measured["places"][-1] - length + 1, measured["asked"][-1])
        return panels(
            Panel(
                curves, "place of the number, time steps from the end",
                "change of the output\nby that of the number", levels={"the sum": 1.0},
                legend="upper left",
            ),
            width=6.5, height=3.2,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), lengths=(4, 8))


RECIPES = {
    "char-rnn": PlainNextToken(
        data="topics", steps=2400, batch_size=32, lr=2e-3, schedule="cosine", clip=1.0,
        goal="cross_entropy <= 1.4", covers=("R1", "R3"),
    ),
    "rnn-adding": AddingByLength(
        goal="short_mse <= 0.01 and long_mse >= 0.15", covers=("R1", "R4"),
    ),
}  # fmt: skip
