"""Learning the vectors of words from the company they keep: the task, whoever learns them.

    score = N (n_ab - delta) / (n_a n_b)                           (1)  of a b as one phrase

n_ab is how often a stands before b in a text of N words; delta keeps out pairs that occur by
chance. A text is read up to its last tenth. What was learned is tried there: which of two words was
it that stood in a gap, the other being one from elsewhere? Or it is compared with what people say.

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
from torch import Tensor
from torch.nn.functional import normalize

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.kinds.text import divided
from everynet.data.loading import samples
from everynet.data.sets import judgements
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting, Pictures
from everynet.zoo.language.corpus import Corpus, Sentences, numbered, sentences
from everynet.zoo.language.pictures.word_vectors import word_arrows, word_map, word_similarity
from everynet.zoo.language.word_vectors import RESTRICTED, WordVectors, agreement, judged, plane


def find_phrases(given: Sentences, delta: float, threshold: float) -> set[tuple[str, str]]:
    """Two words that occur together far more often than by chance."""
    held = [list(sentence) for sentence in given]
    one = Counter(word for sentence in held for word in sentence)
    two = Counter(pair for sentence in held for pair in pairwise(sentence))
    total = sum(one.values())
    scores = {(a, b): total * (n - delta) / (one[a] * one[b]) for (a, b), n in two.items()}  # (1)
    return {pair for pair, score in scores.items() if score > threshold}


def join_phrases(given: Sentences, found: Collection[tuple[str, str]]) -> Iterator[list[str]]:
    """The same sentences, both words of a phrase joined by _; a word is in one phrase at most."""
    for sentence in given:
        made: list[str] = []
        rest = iter([*pairwise([*sentence, ""])])
        for a, b in rest:
            made.append(f"{a}_{b}" if (a, b) in found else a)
            if (a, b) in found:
                next(rest)  # b has gone into the phrase
        yield made


class Learner(WordVectors):
    """Word vectors that are learned from text."""

    contexts_: Float[Tensor, "vocab dimensions"]
    loss_curve_: Float[Tensor, " blocks"]

    def fit(self, given: Sentences | Corpus) -> Self:
        """Learn from sentences of words."""
        raise NotImplementedError  # every learner says how


@dataclass(frozen=True, kw_only=True)
class Company(Fitting[Learner]):
    """Learn vectors of the words of a text; tell which word stood in a gap of the rest."""

    learner: ClassVar[type[Learner]]
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)
    captions: ClassVar[Mapping[str, str]] = {
        "map": (
            "Some words (stars) and the five most like each of them, on the plane that keeps most "
            "of their differences: words of one colour mean or do something alike."
        ),
        "analogies": (
            "An arrow from one word of a pair to the other: the nearer all are to the mean "
            "(black), the more is the relation one and the same difference of vectors."
        ),
        "similarity": (
            "The cosine between any two words of the map: high within the groups on the diagonal, "
            "framed in their colours, and low between them."
        ),
        "loss": (
            "How well words around a place tell the word there from noise, as the text is read "
            "over and over: the lower, the better."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "told_apart": "how often the words around a gap prefer its own word to one from elsewhere",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    dimensions: int = 50
    """Numbers of a vector."""
    window: int = 3
    """Words on each side that may predict a word."""
    negatives: int = 5
    """Words of noise for each centre word."""
    min_count: int = 3
    """A word that occurs less often is left out."""
    subsample: float = 1e-3
    """The share of the text above which occurrences of a word are left out."""
    phrase_score: float = 0.0
    """Words that occur together more than this times as often as by chance are one; 0: none."""
    epochs: int = 40
    """How often the text is read."""
    threads: int = 1
    """Which read together, on the CPU; with several, no two runs are the same bit by bit."""
    judgements: str = "help-words"
    """A known set of pairs and analogies: the analogies that are drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dimensions", "window", "negatives", "min_count", "epochs", "threads"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(self.subsample > 0, "subsample", "above 0; 1 keeps every word")
        self.require(self.phrase_score >= 0, "phrase_score", "at least 0, which joins no words")

    def dataset(self) -> Data:
        text = samples(self.data, kind="text")
        parts, split = divided(text, "words")
        found = self._phrases(parts["train"])
        corpus = Corpus.of(join_phrases(sentences(parts["train"]), found), self.min_count)
        splits = {"train": (corpus.text,)} | {
            name: self._gaps(join_phrases(sentences(parts[name]), found), corpus.words)
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
        return find_phrases(sentences(text), self.min_count, score) if score else set()

    def _gaps(self, given: Sentences, words: Sequence[str]) -> Batch:
        """For each place of a text the words around it (-1: none), its own and another's."""
        stream = numbered(given, words).long()
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

    def model(self, data: Data) -> Learner:
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

    def fit(self, model: Learner, data: Data) -> Learner:
        return model.fit(Corpus(data.spec["words"], data.whole[0]))

    def metrics(self, model: Learner, batch: Batch) -> dict[str, Tensor]:
        """Whether the words around a gap predict its own word rather than one from elsewhere."""
        around, own, other = (part.cpu() for part in batch)
        there = (around >= 0).float()[..., None]
        h = (model.vectors_[around] * there).sum(1)
        ahead = (h * (model.contexts_[own] - model.contexts_[other])).sum(1)
        return {"told_apart": 0.5 + ahead.sign() / 2}

    def pictures(self, model: Learner, data: Data, history: History) -> Pictures:
        made: Pictures = {}
        if groups := model.groups(6, 5):
            rows = torch.tensor([model.row(word) for group in groups.values() for word in group])
            unit = normalize(model.vectors_[rows], dim=1)
            made["map"] = word_map(plane(unit), groups)
            made["similarity"] = word_similarity(unit @ unit.T, groups)
        if relations := model.relations(judgements.read(self.judgements)):
            made["analogies"] = word_arrows(relations)
        read = torch.arange(1, len(model.loss_curve_) + 1) / len(model.loss_curve_) * self.epochs
        loss = Panel(
            {"loss": (read, model.loss_curve_)}, "times that the text was read",
            f"loss, of one word and {self.negatives} of noise",
            levels={"nothing learned": (1 + self.negatives) * math.log(2)}, legend="lower left",
            ylim=(0, 1.1 * (1 + self.negatives) * math.log(2)),
        )  # fmt: skip
        return made | {"loss": panels(loss, width=6.5)}

    def predict(
        self, model: Learner, inputs: Sequence[str], spec: Spec, *, n: int = 5
    ) -> Sequence[dict[str, Any]]:
        """Answer `like: queen` and `king - man + woman`, a line each, with the n best words."""
        return [{"asked": line, **model.answer(line, n)} for line in inputs]

    def tiny(self) -> Self:
        return replace(self, dimensions=8, epochs=1, data="topics", judgements="help-words")


@dataclass(frozen=True, kw_only=True)
class Judged(Company):
    """Learn from all of a text; compare with what people say of words."""

    meanings: ClassVar[Mapping[str, str]] = {
        "wordsim": "rank correlation with how related people find pairs of words (WordSim)",
        "simlex": "rank correlation with how alike people find pairs of words (SimLex)",
        "analogies": "the share of questions such as king - man + woman that are answered",
    }

    def dataset(self) -> Data:
        text = samples(self.data, kind="text")
        by = judgements.read(self.judgements)
        whole = "\n\n".join(text.parts.values())
        found = self._phrases(whole)
        corpus = Corpus.of(join_phrases(sentences(whole), found), self.min_count)
        rows, kind, score, left = judged(by, corpus.words[:RESTRICTED])
        split = f"all is read; test is {len(rows):,} questions of {by.name}, {left:,} are left out"
        splits = {"train": (corpus.text,), "test": (rows, kind, score)}
        return self._data(text.name, text.digest, split, corpus, splits)

    def metrics(self, model: Learner, batch: Batch) -> dict[str, Tensor]:
        """What people said of each question, and what the vectors say; nothing to choose by."""
        if not batch:
            return {}
        rows, kind, score = (part.cpu() for part in batch)
        return {"kind": kind, "score": score, "found": model.answers(rows, kind)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        return agreement(outputs["kind"], outputs["score"], outputs["found"]) if outputs else {}
