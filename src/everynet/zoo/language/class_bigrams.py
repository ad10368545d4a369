"""A synthetic language of which every probability is known: a class-based bigram model.

    P(y | x) = A[c(x), c(y)] z_y / Z[c(y)],    z_y = 1 / (y + 1),    Z[c] = sum of z over class c

c(y), the class of word y, is y modulo the number of classes. Words are numbered by rank and have
frequencies by Zipf's law, and the rows of A are softmaxes of normal numbers: after a word, some
classes are probable and most are not.

Zipf (1949), "Human Behavior and the Principle of Least Effort"; Brown et al. (1992), "Class-based
n-gram models of natural language", Computational Linguistics 18, p. 467.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.data.dataset import Data
from everynet.system.errors import UserError
from everynet.system.seeds import generator


@dataclass(frozen=True)
class ClassBigrams:
    """The language of so many words and classes; it does not depend on a seed."""

    vocabulary: int
    classes: int = 16
    peak: float = 2.0
    """Standard deviation of the logits of the classes that follow."""

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= self.vocabulary:
            raise UserError(
                f"classes ({self.classes}) must be from 2 to the {self.vocabulary} words of the "
                "vocabulary, because each has a word; give a larger vocabulary"
            )

    @property
    def transitions(self) -> Float[Tensor, "classes classes"]:
        """The probability that each class follows each."""
        drawn = torch.randn(self.classes, self.classes, generator=generator(1992)).double()
        return (self.peak * drawn).softmax(1)

    @property
    def class_of(self) -> Int64[Tensor, " vocab"]:
        """The class of each word."""
        return torch.arange(self.vocabulary) % self.classes

    @property
    def within_class(self) -> Float[Tensor, " vocab"]:
        """The probability of each word given its class."""
        z = 1 / torch.arange(1, self.vocabulary + 1).double()
        total = z.new_zeros(self.classes).index_add_(0, self.class_of, z)
        return z / total[self.class_of]

    def log_probability(
        self, x: Int64[Tensor, " contexts"], y: Int64[Tensor, " words"]
    ) -> Float[Tensor, "contexts words"]:
        """Log P(y | x) of every word y after every word x."""
        c = self.class_of
        return self.transitions.log()[c[x][:, None], c[y]] + self.within_class.log()[y]

    def sample_text(self, tokens: int, random: torch.Generator) -> Int64[Tensor, " tokens"]:
        """A text of so many words, each drawn after the one before it."""
        ends = self.transitions.cumsum(1).tolist()
        chain = [0]
        for u in torch.rand(tokens, generator=random, dtype=torch.float64).tolist():
            chain.append(min(bisect_right(ends[chain[-1]], u), self.classes - 1))
        classes, words = torch.tensor(chain[1:]), torch.zeros(tokens, dtype=torch.int64)
        within, c = self.within_class, self.class_of
        for number in range(self.classes):
            here, own = classes == number, (c == number).nonzero()[:, 0]
            if int(here.sum()):
                drawn = torch.multinomial(within[own], int(here.sum()), True, generator=random)
                words[here] = own[drawn]
        return words

    def perplexity(self, text: Int64[Tensor, " tokens"]) -> float:
        """The perplexity of a text under the true probabilities, a floor for any model."""
        c = self.class_of[text]
        nats = self.transitions.log()[c[:-1], c[1:]] + self.within_class.log()[text[1:]]
        return float((-nats.mean()).exp())

    def data(
        self,
        tokens: int,
        batch_size: int,
        seed: int,
        held_out: int,
    ) -> Data:
        """Pairs (x, y) of a word and the next; the texts do not depend on the seed.

        `spec["counts"]` counts each word as the next one in the training text.
        """
        lengths = {"train": tokens, "valid": held_out, "test": held_out}
        splits, digest = {}, hashlib.sha256()
        for number, (part, length) in enumerate(lengths.items()):
            text = make_text(self, length + 1, number)
            digest.update(text.numpy().tobytes())
            splits[part] = (text[:-1], text[1:])
        counts = torch.bincount(splits["train"][1], minlength=self.vocabulary)
        spec = {
            "name": f"class bigrams of {self.vocabulary:,} words",
            "kind": "table",
            "task": "language",
            "shape": [self.vocabulary],
            "classes": [],
            "counts": counts.tolist(),
            "split": "three texts drawn one after another",
        }
        return Data(splits, spec, batch_size, seed, digest.hexdigest())


@lru_cache(maxsize=8)
def make_text(language: ClassBigrams, tokens: int, number: int) -> Int64[Tensor, " tokens"]:
    """Text `number` of a language: 0 for training, 1 for validation, 2 for testing."""
    return language.sample_text(
        tokens, generator(1949, language.vocabulary, language.classes, number)
    )
