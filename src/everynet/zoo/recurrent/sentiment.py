"""Sentiment: a recurrent network reads a text of any length and predicts one class for all of it.

    a_t = GRU(E w_t, a_{t-1}),  b_t = GRU(E w_t, b_{t+1})      (1)  states of both directions
    v = [a_T; b_1]                                             (2)  the last states, or
    v = (1/T) sum_t [a_t; b_t]                                 (3)  their mean, or
    v = max_t [a_t; b_t]                                       (4)  the largest of each unit
    z = W v + c                                                (5)  logits of the classes

E w_t is the embedding of word t, [;] concatenation, T the length of the text itself: padding is
never read, and the other texts of a batch change nothing. In "the film was not very good" the state
has to hold the "not" until the word that it negates.

With 6,920 sentences to learn from, a bag of words (`bag_of_words.py`) is hard to beat: it has one
number to learn for each word where this network has an embedding and the weights of two cells, two
of three words occur once or twice, and few sentences have a sense that their words alone do not
give away. What order adds has to be learned from those few. Dropout of words, of embeddings and of
v keeps the network from overfitting.

Graves (2012), "Supervised sequence labelling with recurrent neural networks",
doi:10.1007/978-3-642-24797-2, section 3.2; Socher et al. (2013), "Recursive deep models for
semantic compositionality over a sentiment treebank", EMNLP, aclanthology.org/D13-1170.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.nn.recurrent import last_states
from everynet.plot.sentences import sentence_map
from everynet.zoo.recurrent.bidirectional import BothWays, inside
from everynet.zoo.recurrent.classified import EmbeddedClassification, Words


class SentenceReader(nn.Module):
    """Maps texts to logits of their classes, by one vector for each text."""

    def __init__(
        self,
        words: nn.Module,
        reader: nn.Module,
        pool: nn.Module,
        output: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.words, self.reader, self.pool, self.output = words, reader, pool, output
        self.dropout = nn.Dropout(dropout)

    def vectors(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        """One vector for each text."""
        states = self.reader(self.words(x), lengths)  # (1)
        v: Tensor = self.pool(states, lengths)
        return v

    def forward(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch classes"]:
        z: Tensor = self.output(self.dropout(self.vectors(x, lengths)))  # (5)
        return z


class LastStates(nn.Module):
    """Maps states to the last of each direction: that of the last word, and of the first."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        a, b = states.chunk(2, 2)
        return torch.cat([last_states(a, lengths), b[:, 0]], 1)  # (2)


class MeanState(nn.Module):
    """Maps states to their mean over the words."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        mask = inside(lengths, states.shape[1])[:, :, None]
        return (states * mask).sum(1) / lengths[:, None]  # (3)


class LargestState(nn.Module):
    """Maps states to the largest value of each unit over the words."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        mask = inside(lengths, states.shape[1])[:, :, None]
        return states.masked_fill(~mask, -math.inf).amax(1)  # (4)


POOLS: Mapping[str, type[nn.Module]] = {
    "last": LastStates,
    "mean": MeanState,
    "max": LargestState,
}


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Sentiment(EmbeddedClassification[SentenceReader]):
    """Predict whether a text is positive or negative."""

    made_for: ClassVar[tuple[str, ...]] = ("labelled",)

    hidden_size: int = 32
    """Units of each of the two cells."""
    pool: str = "last"
    """How the states become one vector: last, mean or max."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size")
        self.one_of("pool", POOLS)

    def model(self, data: Data) -> SentenceReader:
        onward, backward = (
            nn.GRU(self.embedding, self.hidden_size, batch_first=True) for _ in range(2)
        )
        tokens, classes = Tokens.of(data.spec), len(data.spec["classes"])
        words, dropped = self.embedding, (self.word_dropout, self.dropout)
        return SentenceReader(
            Words(len(tokens), words, *dropped, unknown=tokens.unknown),
            BothWays(onward, backward),
            POOLS[self.pool](),
            nn.Linear(2 * self.hidden_size, classes),
            self.dropout,
        )

    def picture_sentences(self, model: SentenceReader, data: Data, history: History) -> Figure:
        """Unseen sentences as points, by the two main components of their vectors.

        Where the classes lie apart, one linear layer tells them.
        """
        x, lengths, y = next(iter(data.valid))
        vectors = model.vectors(x, lengths)
        return sentence_map(vectors, y, data.spec["classes"], lengths, title="class")


RECIPES = {
    "sentiment": Sentiment(
        steps=400, batch_size=32, lr=5e-3, schedule="cosine",
        goal="accuracy >= 0.99", covers=("R14",),
    ),
    "sentiment-sst": Sentiment(
        data="sst", embedding=64, hidden_size=32, pool="mean", dropout=0.5, word_dropout=0.3,
        steps=648, batch_size=64, lr=3e-3, optimizer="adamw", weight_decay=1e-2, schedule="cosine",
        clip=1.0,
        goal="accuracy >= 0.78", covers=("R14",),
    ),
}  # fmt: skip
