"""Word embeddings as a task: phrases, training text and evaluation, whatever model learns them.

    score = N (n_ab - delta) / (n_a n_b)                           (1)  of a b as one phrase

n_ab counts a before b in a text of N words; delta excludes pairs that occur by chance. The last
tenths of a text are held out: there the context of a word is to predict it rather than a word from
elsewhere. Or the vectors are evaluated on human judgements of similarity and on analogies.

Mikolov, Sutskever, Chen, Corrado and Dean (2013), "Distributed Representations of Words and Phrases
and their Compositionality", arXiv:1310.4546, section 4, and word2phrase.c for the factor N.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.kinds.text import divided
from everynet.data.loading import samples
from everynet.data.sets import judgements
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.zoo.language.corpus import Corpus, Sentences, encode_sentences, split_sentences
from everynet.zoo.language.pictures.word_vectors import word_arrows, word_map, word_similarity
from everynet.zoo.language.word_vectors import (
    RESTRICTED,
    WordVectors,
    principal_plane,
    select_known_questions,
    summarise_questions,
)


def find_phrases(given: Sentences, delta: float, threshold: float) -> set[tuple[str, str]]:
    """Pairs of words that follow each other far more often than by chance."""
    texts = [list(sentence) for sentence in given]
    n = Counter(word for sentence in texts for word in sentence)
    pairs = Counter(pair for sentence in texts for pair in pairwise(sentence))
    total = sum(n.values())
    scores = {(a, b): total * (ab - delta) / (n[a] * n[b]) for (a, b), ab in pairs.items()}  # (1)
    return {pair for pair, score in scores.items() if score > threshold}


def join_phrases(given: Sentences, found: Collection[tuple[str, str]]) -> Iterator[list[str]]:
    """The sentences with the two words of a phrase joined by _; a word is in one phrase at most."""
    for sentence in given:
        joined: list[str] = []
        rest = iter([*pairwise([*sentence, ""])])
        for a, b in rest:
            joined.append(f"{a}_{b}" if (a, b) in found else a)
            if (a, b) in found:
                next(rest)  # b is part of the phrase
        yield joined


class LearnedWordVectors(WordVectors):
    """Word vectors that are learned from text."""

    contexts_: Float[Tensor, "vocab dimensions"]
    loss_curve_: Float[Tensor, " blocks"]

    def fit(self, given: Sentences | Corpus) -> Self:
        """Learn from sentences of words."""
        raise NotImplementedError  # every subclass says how


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class WordEmbedding(Fitting[LearnedWordVectors]):
    """Learn vectors of the words of a text; predict held-out words from their context."""

    learner: ClassVar[type[LearnedWordVectors]]
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)
    meanings: ClassVar[Mapping[str, str]] = {
        "pairwise_accuracy": "how often a context scores its own word above one from elsewhere",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    dimensions: int = 50
    """Dimensions of a vector."""
    window: int = 3
    """Largest distance of a context word, on each side."""
    negatives: int = 5
    """Negative samples for each centre word."""
    min_count: int = 3
    """A word that occurs less often is left out."""
    subsample: float = 1e-3
    """Relative frequency above which occurrences of a word are subsampled."""
    phrase_score: float = 0.0
    """Pairs more often together than this times chance are joined as phrases; 0: none."""
    epochs: int = 40
    """Passes through the text."""
    threads: int = 1
    """Threads on the CPU; with several, runs are not equal bit by bit."""
    judgements: str = "help-words"
    """A known set of pairs and analogies, of which analogies are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "dimensions", "window", "negatives", "min_count", "epochs", "threads")
        self.above(0, "subsample")
        self.at_least(0, "phrase_score")

    def dataset(self) -> Data:
        text = samples(self.data, kind="text")
        parts, split = divided(text, "words")
        phrases = self._phrases(parts["train"])
        corpus = Corpus.from_sentences(
            join_phrases(split_sentences(parts["train"]), phrases), self.min_count
        )
        splits = {"train": (corpus.text,)} | {
            name: self._windows(join_phrases(split_sentences(parts[name]), phrases), corpus.words)
            for name in ("valid", "test")
        }
        return self._data(text.name, text.digest, split, corpus, splits)

    def _data(
        self, name: str, digest: str, split: str, corpus: Corpus, splits: Mapping[str, Batch]
    ) -> Data:
        spec = {
            "name": name,
            "kind": "lines",
            "task": "language",
            "shape": [len(corpus.words)],
            "classes": [],
            "words": corpus.words,
            "split": split,
        }
        return Data(splits, spec, 1, self.seed, digest, eval_batch_size=100_000)

    def _phrases(self, text: str) -> set[tuple[str, str]]:
        score = self.phrase_score
        return find_phrases(split_sentences(text), self.min_count, score) if score else set()

    def _windows(self, given: Sentences, words: Sequence[str]) -> Batch:
        """For each place of a text its context (-1: no word), its own word and another's."""
        stream = encode_sentences(given, words).long()
        places = (stream >= 0).nonzero()[:, 0]
        offsets = [o for o in range(-self.window, self.window + 1) if o != 0]
        wanted = places[:, None] + torch.tensor(offsets)
        beside = wanted.clamp(0, len(stream) - 1)
        sentence = (stream < 0).cumsum(0)
        inside = (sentence[beside] == sentence[places, None]) & (beside == wanted)
        around = torch.where(inside, stream[beside], -1)
        known = (around >= 0).any(1)
        around, own = around[known], stream[places[known]]
        return around, own, own.roll(len(own) // 2)

    def model(self, data: Data) -> LearnedWordVectors:
        return self.learner(
            dimensions=self.dimensions,
            window=self.window,
            negatives=self.negatives,
            min_count=self.min_count,
            subsample=self.subsample,
            epochs=self.epochs,
            threads=self.threads,
            seed=self.seed,
        )

    def fit(self, model: LearnedWordVectors, data: Data) -> LearnedWordVectors:
        return model.fit(Corpus(data.spec["words"], data.whole[0]))

    def check_learned(self, model: LearnedWordVectors, spec: Spec) -> None:
        super().check_learned(model, spec)
        if model.words_ != spec["words"]:
            raise ValueError("words_ must be the words of spec.json, in their order")

    def metrics(self, model: LearnedWordVectors, batch: Batch) -> dict[str, Tensor]:
        """1 where a context scores its own word above one from elsewhere, 0.5 for a tie."""
        around, own, other = (part.cpu() for part in batch)
        there = (around >= 0).float()[..., None]
        h = (model.vectors_[around] * there).sum(1)
        margin = (h * (model.contexts_[own] - model.contexts_[other])).sum(1)
        return {"pairwise_accuracy": 0.5 + margin.sign() / 2}

    def picture_map(self, model: LearnedWordVectors, data: Data, history: History) -> Figure | None:
        """Common words (stars) and the five nearest to each by the cosine, on two principal axes.

        Words of one colour have similar contexts in the text.
        """
        groups = model.similar_groups(6, 5)
        return word_map(principal_plane(model.unit_vectors(groups)), groups) if groups else None

    def picture_analogies(
        self, model: LearnedWordVectors, data: Data, history: History
    ) -> Figure | None:
        """An arrow from one word of a pair to the other, on the two principal axes of all words.

        The nearer the arrows are to their mean (black), the more constant is the difference.
        """
        relations = model.analogy_pairs(judgements.read(self.judgements))
        return word_arrows(relations) if relations else None

    def picture_similarity(
        self, model: LearnedWordVectors, data: Data, history: History
    ) -> Figure | None:
        """The cosine between any two words of the map, group by group, framed in their colours.

        Groups were chosen for high cosines within, on the diagonal, and low ones between them.
        """
        groups = model.similar_groups(6, 5)
        unit = model.unit_vectors(groups)
        return word_similarity(unit @ unit.T, groups) if groups else None

    def picture_loss(self, model: LearnedWordVectors, data: Data, history: History) -> Figure:
        """The loss of negative sampling over the passes through the text.

        The horizontal line is the loss of vectors that have learned nothing.
        """
        curve, start = model.loss_curve_, (1 + self.negatives) * math.log(2)
        epochs = torch.arange(1, len(curve) + 1) / len(curve) * self.epochs
        panel = Panel(
            {"loss": (epochs, curve)}, "epochs",
            f"loss, of one word and {self.negatives} of noise",
            levels={"nothing learned": start}, legend="lower left", ylim=(0, 1.1 * start),
        )  # fmt: skip
        return panels(panel, width=6.5)

    def predict(
        self, model: LearnedWordVectors, inputs: Sequence[str], spec: Spec, *, n: int = 5
    ) -> Sequence[dict[str, Any]]:
        """Answer `like: queen` and `king - man + woman`, a line each, with the n best words."""
        return [{"asked": line, **model.answer_line(line, n)} for line in inputs]

    def tiny(self) -> Self:
        return replace(super().tiny(), dimensions=8, epochs=1, judgements="help-words")


@dataclass(frozen=True, kw_only=True)
class WordSimilarity(WordEmbedding):
    """Learn from a whole text; evaluate on human judgements of similarity and on analogies."""

    meanings: ClassVar[Mapping[str, str]] = {
        "wordsim": "rank correlation with human ratings of relatedness (WordSim-353)",
        "simlex": "rank correlation with human ratings of similarity (SimLex-999)",
        "analogies": "accuracy on analogies such as king - man + woman",
    }

    def dataset(self) -> Data:
        text = samples(self.data, kind="text")
        by = judgements.read(self.judgements)
        whole = "\n\n".join(text.parts.values())
        phrases = self._phrases(whole)
        corpus = Corpus.from_sentences(
            join_phrases(split_sentences(whole), phrases), self.min_count
        )
        rows, kind, score, left = select_known_questions(by, corpus.words[:RESTRICTED])
        split = f"all is read; test is {len(rows):,} questions of {by.name}, {left:,} are left out"
        splits = {"train": (corpus.text,), "test": (rows, kind, score)}
        return self._data(text.name, text.digest, split, corpus, splits)

    def metrics(self, model: LearnedWordVectors, batch: Batch) -> dict[str, Tensor]:
        """Human ratings and the scores of the vectors; there is no validation split."""
        if not batch:
            return {}
        rows, kind, score = (part.cpu() for part in batch)
        return {"kind": kind, "score": score, "found": model.score_questions(rows, kind)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        return (
            summarise_questions(outputs["kind"], outputs["score"], outputs["found"])
            if outputs
            else {}
        )
