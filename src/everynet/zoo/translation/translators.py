"""Three translators side by side: one vector, attention to each word, and attention alone.

    BLEU_b = BLEU of the validation sentences with so many words of the source       (1)
    gap_b = BLEU_b of attention - BLEU_b of one vector                               (2)

A decoder that is given one vector of fixed size has to find the whole sentence in it, and loses the
more the longer the sentence is; with attention it looks again at each word. The networks are those
of `bahdanau.py` and of `zoo/transformer/transformer.py`, b is a range of lengths.

Cho et al. (2014), "On the properties of neural machine translation: encoder-decoder approaches",
arXiv:1409.1259, section 4; Bahdanau et al. (2015), "Neural machine translation by jointly learning
to align and translate", arXiv:1409.0473, section 5.1.
"""

from __future__ import annotations

import math
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
from everynet.training.loop import evaluating
from everynet.zoo.transformer import transformer
from everynet.zoo.translation import bahdanau
from everynet.zoo.translation.translation import (
    BY_LENGTH,
    bleu_by_length,
    rows_by_length,
    translate,
)

NAMES = {"transformer": "attention alone", "bahdanau": "attention", "fixed": "one vector"}


@dataclass(frozen=True, kw_only=True)
class Translators(Experiment):
    """Translate captions by three networks, and score them by the length of the source."""

    meanings: ClassVar[Mapping[str, str]] = {
        f"{cell}_*": f"greedy translations by {name}, their BLEU by the length of the source"
        for cell, name in NAMES.items()
    } | {"gap_*": "what attention adds to one vector, in points of BLEU"}

    data: str = "multi30k-de"
    """A known set of pairs, two aligned files written a.en,a.de, or a .tsv with two columns."""
    tokens: str = "bpe"
    """Tokens: words or bpe."""
    vocabulary: int = 8000
    """Size of the vocabulary that both languages share; 0 keeps all of training."""
    steps: int = 6800
    """Updates of each recurrent network; the transformer has twice as many."""
    batch_size: int = 128
    """Sentences an update sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.cells()  # checks the other settings

    def cells(self) -> dict[str, Training[Any, Any]]:
        recurrent = bahdanau.RECIPES
        steps = {"transformer": 2 * self.steps, "bahdanau": self.steps, "fixed": self.steps}
        recipes: dict[str, Any] = {
            "transformer": transformer.RECIPES["transformer-multi30k"],
            "bahdanau": recurrent["bahdanau-multi30k"],
            "fixed": recurrent["seq2seq-multi30k"],
        }
        return {
            name: replace(
                recipe, data=self.data, tokens=self.tokens, vocabulary=self.vocabulary,
                steps=steps[name], eval_every=steps[name], batch_size=self.batch_size,
                seed=self.seed, goal="", covers=(),
            )
            for name, recipe in recipes.items()
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """BLEU of short, middle and long sentences and their mean lengths; none before training."""
        if state.step == 0:
            nothing = torch.full((len(BY_LENGTH),), torch.nan, dtype=torch.double)
            return {"bleu": nothing, "words": nothing}
        with evaluating(model := recipe.deployed(state)):
            texts = translate(model, data.valid, data.spec)
        found, rows = bleu_by_length(*texts), rows_by_length(texts[0])
        words = torch.tensor([len(text.split()) for text in texts[0]]).double()
        return {
            "bleu": torch.tensor([found.get(name, torch.nan) for name in BY_LENGTH]).double(),
            "words": torch.stack([words[rows[name]].mean() for name in BY_LENGTH]),
        }

    def metrics(self, table: Table) -> dict[str, float]:
        """BLEU by length of each network, and what attention adds."""
        found = {
            f"{name}_{part}": float(cell.measured["bleu"][-1, place])
            for name, cell in table.cells.items()
            for place, part in enumerate(BY_LENGTH)  # (1)
        }
        gaps = {
            f"gap_{part}": found[f"bahdanau_{part}"] - found[f"fixed_{part}"]  # (2)
            for part in BY_LENGTH
            if {f"bahdanau_{part}", f"fixed_{part}"} <= found.keys()
        }
        return {name: value for name, value in (found | gaps).items() if not math.isnan(value)}

    def picture_length(self, table: Table) -> tuple[Figure, dict[str, str]]:
        """BLEU of validation sentences by the length of the source, for three networks.

        The points are sentences of at most 10, of 11 to 15 and of 16 words or more. From the
        shortest to the longest BLEU changes by {changes}.
        """
        curves = {
            name: (table.cells[cell].measured["words"][-1], table.cells[cell].measured["bleu"][-1])
            for cell, name in NAMES.items()
            if cell in table.cells
        }
        changes = {name: float(bleu[-1] - bleu[0]) for name, (_, bleu) in curves.items()}
        said = ", ".join(f"{change:+.1f} ({name})" for name, change in changes.items())
        return panels(Panel(curves, "words of the source (mean)", "BLEU (greedy)")), {
            "changes": said
        }

    def tiny(self) -> Self:
        small = replace(super().tiny(), data="verb-final:200", tokens="words", vocabulary=0)
        return replace(small, goal="")  # none of its sentences is long


RECIPES = {
    "translators-multi30k": Translators(
        goal="fixed_long <= 24 and gap_long >= 8", covers=("R18", "R30")
    ),
}
