"""Text CNN: filters slide over the words of a sentence, and each keeps its best match.

    c_i = relu(w . [x_i; ..; x_{i+k-1}] + b)        (1)  a filter of width k at place i
    m = max_i c_i                                   (2)  max over time, wherever it was
    z = W [m of all filters] + d                    (3)  logits of the classes

x_i is the embedding of word i, [;] concatenation, `.` the inner product. A sentence of T words has
k - 1 vectors of zeros on either side, so that it has T + k - 1 places whatever T is; places behind
those are padding and take no part in (2). Filters of several widths look for phrases such as "not
very good" in any place. What no window holds is lost: in sentences of `word-order` a dog and a cat
stand further apart than the widest filter, the windows of "the dog first" and "the cat first" are
alike, and (3) has to guess where a recurrent network, which reads one after the other, does not.

Kim (2014), "Convolutional neural networks for sentence classification", arXiv:1408.5882, section 2.
Unlike the paper, embeddings are learned from the sentences alone (its CNN-rand), words are dropped
in training, and weights decay where it bounds their norm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import pad

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import Training
from everynet.zoo.recurrent import context
from everynet.zoo.recurrent.bidirectional import inside
from everynet.zoo.recurrent.classified import EmbeddedClassification, Words
from everynet.zoo.recurrent.pictures.grams import best_grams
from everynet.zoo.recurrent.sentiment import Sentiment

SHOWN, EACH = 4, 3  # filters of each class that are shown, and phrases of each


class TextCNN(nn.Module):
    """Maps texts to logits of their classes."""

    def __init__(
        self, words: Words, classes: int, *, widths: Sequence[int], filters: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = words
        size = words.vectors.embedding_dim
        self.widths = tuple(widths)
        self.convolutions = nn.ModuleList(nn.Conv1d(size, filters, width) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(filters * len(widths), classes)

    def maps(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> list[Float[Tensor, "batch filters _"]]:
        """The feature maps c of each width, (batch, filters, places); 0 at padding."""
        vectors = self.words(x) * inside(lengths, x.shape[1])[:, :, None]
        maps = []
        for width, convolution in zip(self.widths, self.convolutions, strict=True):
            beyond = width - 1
            c = convolution(pad(vectors.transpose(1, 2), (beyond, beyond))).relu()  # (1)
            maps.append(c * inside(lengths + beyond, c.shape[2])[:, None])
        return maps

    def forward(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch classes"]:
        m = torch.cat([c.amax(2) for c in self.maps(x, lengths)], 1)  # (2)
        z: Tensor = self.output(self.dropout(m))  # (3)
        return z


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class PhraseClassification(EmbeddedClassification[TextCNN]):
    """Predict the class of a text by the phrases in it."""

    widths: tuple[int, ...] = (3, 4, 5)
    """Kernel sizes in words, one group of filters for each."""
    filters: int = 32
    """Filters of each width."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "filters")
        good = bool(self.widths) and min(self.widths) >= 1
        self.require(good, "widths", "one or more numbers from 1 up")

    def model(self, data: Data) -> TextCNN:
        tokens, dropped = Tokens.of(data.spec), (self.word_dropout, self.dropout)
        words = Words(len(tokens), self.embedding, *dropped, unknown=tokens.unknown)
        return TextCNN(
            words, len(data.spec["classes"]), widths=self.widths, filters=self.filters,
            dropout=self.dropout,
        )  # fmt: skip

    def picture_grams(self, model: TextCNN, data: Data, history: History) -> Figure:
        """For each class the filters with the largest weights, and the phrases they match best.

        The phrases of a filter are from unseen sentences, wherever they stood there.
        """
        tokens, classes = Tokens.of(data.spec), data.spec["classes"]
        x, lengths, _ = next(iter(data.valid))
        maps = model.maps(x, lengths)
        filters = maps[0].shape[1]
        weights = model.output.weight - model.output.weight.mean(0)
        strength = torch.cat([c.amax(2).mean(0) for c in maps])
        rows: list[tuple[str, list[tuple[str, float]]]] = []
        for label, name in enumerate(classes):
            for number in (weights[label] * strength).argsort(descending=True)[:SHOWN].tolist():
                c = maps[number // filters][:, number % filters]
                width = model.widths[number // filters]
                heading = f"{name} {weights[label, number].item():+.2f}"
                rows.append((heading, best_matches(c, x, lengths, width, tokens)))
        return best_grams(rows)

    def tiny(self) -> Self:
        return replace(super().tiny(), filters=4)


def best_matches(
    c: Float[Tensor, "batch places"],
    x: Int[Tensor, "batch time"],
    lengths: Int[Tensor, " batch"],
    width: int,
    tokens: Tokens,
) -> list[tuple[str, float]]:
    """The phrases that one filter matches best, no two alike, with its value."""
    values, places = c.max(1)
    found: dict[str, float] = {}
    for row in values.argsort(descending=True).tolist():
        start = int(places[row]) - (width - 1)
        words = x[row, max(0, start) : min(start + width, int(lengths[row]))].tolist()
        found.setdefault(" ".join(tokens.vocabulary[word] for word in words), float(values[row]))
        if len(found) == EACH:
            break
    return list(found.items())


@dataclass(frozen=True, kw_only=True)
class CnnOrder(PhraseClassification):
    """Predict which of two words came first, by windows."""

    length: int = 20
    """Words of a sentence."""
    apart: int = 5
    """Words between the two, and between each and its end, at least."""

    def dataset(self) -> Data:
        return context.make_ordered(self.length, self.apart, self.batch_size, self.seed)


@dataclass(frozen=True, kw_only=True)
class RnnOrder(Sentiment):
    """Predict which of two words came first, by a recurrent network."""

    length: int = 20
    """Words of a sentence."""
    apart: int = 5
    """Words between the two, and between each and its end, at least."""

    def dataset(self) -> Data:
        return context.make_ordered(self.length, self.apart, self.batch_size, self.seed)


@dataclass(frozen=True, kw_only=True)
class WordOrder(Experiment):
    """Which of two words came first, further apart than a filter is wide: windows and reading."""

    meanings: ClassVar[Mapping[str, str]] = {
        "rnn": "accuracy of the recurrent network",
        "cnn": "accuracy of the windows, which can only guess: a half",
    }

    length: int = 20
    """Words of a sentence."""
    apart: int = 5
    """Words from one of the two to the other and to either end, at least."""
    widths: tuple[int, ...] = (3, 4, 5)
    """Kernel sizes of the text CNN, in words."""
    steps: int = 400
    """Updates of each network."""
    batch_size: int = 64
    """Sentences an update sees."""
    lr: float = 5e-3
    """Learning rate."""

    tests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        widest = max(self.widths, default=0)
        what = f"at least {widest}, the widest filter, or a window holds both"
        self.require(widest <= self.apart, "apart", what)
        self.cells()  # checks the other settings

    def cells(self) -> dict[str, Training[Any, Any]]:
        shared: dict[str, Any] = {
            "length": self.length, "apart": self.apart, "steps": self.steps, "lr": self.lr,
            "batch_size": self.batch_size, "schedule": "cosine", "seed": self.seed,
            "embedding": 16, "word_dropout": 0.0,
        }  # fmt: skip
        return {
            "rnn": RnnOrder(hidden_size=16, **shared),
            "cnn": CnnOrder(widths=self.widths, filters=16, **shared),
        }

    def metrics(self, table: Table) -> dict[str, float]:
        return {name: cell.test.get("accuracy", math.nan) for name, cell in table.cells.items()}

    def picture_order(self, table: Table) -> Figure:
        """The accuracy on validation sentences along training, of both networks.

        Windows that hold one of the two words at most can do no better than chance.
        """
        names = {"rnn": "recurrent network", "cnn": f"windows of {max(self.widths)} words or less"}
        curves = {
            names[name]: (cell.steps.double(), cell.valid["accuracy"])
            for name, cell in table.cells.items()
        }
        return panels(
            Panel(
                curves, "update", "accuracy (validation)",
                f"which of two words came first, {self.apart} words apart or more",
                levels={"chance": 0.5}, ylim=(0.4, 1.02),
            ),
            width=6.5,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), length=10, apart=3, widths=(2, 3))


RECIPES = {
    "text-cnn": PhraseClassification(
        steps=400, batch_size=32, lr=3e-3, schedule="cosine", dropout=0.2,
        goal="accuracy >= 0.99", covers=("R19",),
    ),
    "text-cnn-sst": PhraseClassification(
        data="sst", embedding=64, filters=64, dropout=0.5, word_dropout=0.2, steps=648,
        batch_size=64, lr=2e-3, optimizer="adamw", weight_decay=1e-2, schedule="cosine",
        goal="accuracy >= 0.78", covers=("R14", "R19"),
    ),
    "word-order": WordOrder(goal="rnn >= 0.99 and cnn <= 0.6", covers=("R19",)),
}  # fmt: skip
