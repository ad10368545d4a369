"""What a memory with addresses adds: the copy task by the length of what is copied.

    e_n = wrong bits of copies of n vectors / their bits              (1)
    ratio = sum_n n e_n of the LSTM / sum_n n e_n of the machine      (2)  n = L+1 .. 2 L

Both networks have as many parameters and are trained on lengths up to L. An LSTM holds a sequence
in a state of fixed size and learns each length by itself; the machine of `neural_turing.py` learns
a loop, which goes on.

Graves, Wayne, Danihelka (2014), "Neural Turing machines", arXiv:1410.5401, section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import Data
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.seeds import generator
from everynet.training.loop import evaluating
from everynet.zoo.transformer import neural_turing

LEAST = 1e-4
"""Wrong bits a bit that a ratio is formed with where there are fewer."""


@dataclass(frozen=True, kw_only=True)
class CopyLengths(Experiment):
    """The machine and an LSTM of as many parameters, by the length of what they copy."""

    meanings: ClassVar[Mapping[str, str]] = {
        "turing": "the share of bits that the machine writes wrongly, of lengths it was trained on",
        "turing_longer": "the same of sequences of up to twice the longest length",
        "lstm": "the share of bits that the LSTM writes wrongly, of lengths it was trained on",
        "lstm_longer": "the same of sequences of up to twice the longest length",
        "ratio": "lstm_longer for each of turing_longer, or of 0.0001 if that is more",
    }

    steps: int = 4000
    """Updates of each network."""
    longest: int = 10
    """The longest sequence that is trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.cells()  # checks the other settings

    def cells(self) -> dict[str, Training[Any, Any]]:
        recipes: dict[str, Any] = neural_turing.RECIPES
        return {
            name: replace(
                recipes[recipe], steps=self.steps, longest=self.longest, seed=self.seed,
                eval_every=self.steps, goal="", covers=(),
            )
            for name, recipe in {"turing": "neural-turing", "lstm": "copy-lstm"}.items()
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Wrong bits a bit at each length up to twice the longest."""
        assert isinstance(recipe, neural_turing.BitCopy)
        with evaluating(model := recipe.deployed(state)):
            random = generator(recipe.seed, 1)
            found = [
                neural_turing.wrong_bits(recipe, model, n, random) for n in self.lengths()
            ]  # (1)
        return {"wrong": torch.tensor(found).double()}

    def lengths(self) -> range:
        return range(1, 2 * self.longest + 1)

    def metrics(self, table: Table) -> dict[str, float]:
        found = {}
        for name, cell in table.cells.items():
            weights = torch.tensor(self.lengths()).double()  # a bit counts the same everywhere
            for part, which in (("", slice(self.longest)), ("_longer", slice(self.longest, None))):
                wrong = cell.measured["wrong"][-1, which]
                found[name + part] = float((wrong * weights[which]).sum() / weights[which].sum())
        ratio = found["lstm_longer"] / max(found["turing_longer"], LEAST)  # (2)
        return {**found, "ratio": ratio}

    def picture_length(self, table: Table) -> tuple[Figure, dict[str, object]]:
        """Wrong bits a bit of both networks, by the length of the sequence that is copied.

        The grey line is the longest that was trained. At {length}, the machine has {turing:.1%} of
        the bits wrong and the LSTM {lstm:.1%}.
        """
        names = {"turing": "neural Turing machine", "lstm": "LSTM"}
        lengths = torch.tensor(self.lengths())
        curves = {
            name: (lengths, table.cells[cell].measured["wrong"][-1]) for cell, name in names.items()
        }
        ends = {cell: float(curves[name][1][-1]) for cell, name in names.items()}
        drawn = panels(
            Panel(
                curves,
                "length of the sequence", "wrong bits a bit", levels={"guessing": 0.5},
                marks={"longest trained": float(self.longest)}, ylim=(-0.02, 0.55),
            ),
            height=2.8,
        )  # fmt: skip
        return drawn, {"length": int(lengths[-1]), **ends}

    def tiny(self) -> Self:
        return replace(super().tiny(), longest=2)


RECIPES = {
    "copy-lengths": CopyLengths(goal="turing_longer <= 0.02 and ratio >= 10", covers=("T13",)),
}
