"""Sentiment: a recurrent network reads a text of any length and says one thing about all of it.

    a_t = GRU(E w_t, a_{t-1}),  b_t = GRU(E w_t, b_{t+1})      (1)  states of both ways at word t
    v = [a_T; b_1]                                             (2)  the last states, or
    v = (1/T) sum_t [a_t; b_t]                                 (3)  their mean, or
    v = max_t [a_t; b_t]                                       (4)  the largest of each unit
    z = W v + c                                                (5)  logits of the classes

T is the length of the text itself: filler is never read, and the company of a text changes nothing.
In "the film was not very good" the state has to hold the "not" until the word that it turns round.

With 6,920 sentences to learn from, a bag of words (`bag_of_words.py`) is hard to beat: it has one
number to learn for each word where this network has an embedding and the weights of two readers,
two of three words are seen once or twice, and few sentences have a sense that their words alone do
not give away. What order adds has to be learned from those few. Dropout of words, of vectors and
of v keeps the network from learning sentences by heart.

Graves (2012), "Supervised sequence labelling with recurrent neural networks",
doi:10.1007/978-3-642-24797-2, section 3.2; Socher et al. (2013), "Recursive deep models for
semantic compositionality over a sentiment treebank", EMNLP, aclanthology.org/D13-1170.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.nn.recurrent import last_of
from everynet.plot.sentences import sentence_map
from everynet.recipes.recipe import Pictures
from everynet.system.wording import nearest
from everynet.zoo.recurrent.bidirectional import BothWays, inside
from everynet.zoo.recurrent.classified import Classified, Words


class LastStates(nn.Module):
    """Maps states of both ways to the last of each: that of the last word, and of the first."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        a, b = states.chunk(2, 2)
        return torch.cat([last_of(a, lengths), b[:, 0]], 1)  # (2)


class MeanState(nn.Module):
    """Maps states to their mean over the words."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        real = inside(lengths, states.shape[1])[:, :, None]
        return (states * real).sum(1) / lengths[:, None]  # (3)


class LargestState(nn.Module):
    """Maps states to the largest value of each unit over the words."""

    def forward(
        self, states: Float[Tensor, "batch time both"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch both"]:
        real = inside(lengths, states.shape[1])[:, :, None]
        return states.masked_fill(~real, -math.inf).amax(1)  # (4)


POOLS: Mapping[str, type[nn.Module]] = {
    "last": LastStates,
    "mean": MeanState,
    "max": LargestState,
}


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
        """What stands for each text."""
        v: Tensor = self.pool(self.reader(self.words(x), lengths), lengths)
        return v

    def forward(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch classes"]:
        z: Tensor = self.output(self.dropout(self.vectors(x, lengths)))  # (5)
        return z


@dataclass(frozen=True, kw_only=True)
class Sentiment(Classified[SentenceReader]):
    """Say whether a text is meant well or ill."""

    captions: ClassVar[dict[str, str]] = {
        "along": "The probability of the last class after each word of a sentence that holds a "
        "not, above, and of the same sentence without it, below: the not turns the answer round.",
        "words": "Unseen sentences, each word coloured by what it says for the last class: red "
        "for, blue against, by how much the answer changes where the word is not known.",
        "sentences": "Unseen sentences as points, by the vector that stands for each of them: the "
        "classes lie apart along the first component.",
    }

    hidden_size: int = 32
    """Units of each of the two readers."""
    pool: str = "last"
    """What of the states stands for a text: last, mean or max."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.hidden_size >= 1, "hidden_size", "at least 1")
        self.require(self.pool in POOLS, "pool", "one we have" + nearest(self.pool, POOLS))

    def model(self, data: Data) -> SentenceReader:
        onward, backward = (
            nn.GRU(self.embedding, self.hidden_size, batch_first=True) for _ in range(2)
        )
        vocabulary, classes = len(Tokens.of(data.spec)), len(data.spec["classes"])
        return SentenceReader(
            Words(vocabulary, self.embedding, self.word_dropout, self.dropout),
            BothWays(onward, backward),  # (1)
            POOLS[self.pool](),
            nn.Linear(2 * self.hidden_size, classes),
            self.dropout,
        )

    def pictures(self, model: SentenceReader, data: Data, history: History) -> Pictures:
        x, lengths, y = next(iter(data.valid))
        vectors = model.vectors(x, lengths)
        names = data.spec["classes"]
        return super().pictures(model, data, history) | {
            "sentences": sentence_map(vectors, y, names, lengths, title="class")
        }

    def tiny(self) -> Self:
        return replace(super().tiny(), hidden_size=8)


# sentiment-sst, 1,821 test sentences, seeds 0, 1, 2: 0.8221, 0.8018, 0.8226 (CPU, one thread, about
# half a minute). A bag of words has 0.8204 there: see `bag_of_words.py`.
RECIPES = {
    "sentiment": Sentiment(
        steps=400,
        batch_size=32,
        lr=5e-3,
        schedule="cosine",
        goal="accuracy >= 0.99",
        covers=("R14",),
    ),
    "sentiment-sst": Sentiment(
        data="sst",
        embedding=64,
        hidden_size=32,
        pool="mean",
        dropout=0.5,
        word_dropout=0.3,
        steps=648,
        batch_size=64,
        lr=3e-3,
        optimizer="adamw",
        weight_decay=1e-2,
        schedule="cosine",
        clip=1.0,
        goal="accuracy >= 0.78",
        covers=("R14",),
    ),
}
