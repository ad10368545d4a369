"""N-grams on a text: the next word is predicted from counts of word sequences.

    P(w_1..w_T) = prod_t P(w_t | w_{t-n+1}..w_{t-1})          the history is n-1 words
    perplexity = exp(-(1/T) sum_t log P(w_t|h_t))             effective number of choices

A line is a sentence: it has a start symbol, which is no word, and its end is a word and scored. The
model is in `ngram_model.py`, and how it turns counts, many of them 0, into probabilities in
`smoothing.py`.

Shannon (1951), "Prediction and entropy of printed English", doi:10.1002/j.1538-7305.1951.tb01366.x;
Chen, Goodman (1999), "An empirical study of smoothing techniques for language modeling",
doi:10.1006/csla.1999.0128.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.samplers import Rows
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.kernels.ngrams import Counted, Ints, count_ngrams, score_tokens, words_before
from everynet.metrics.meanings import LANGUAGE, meanings
from everynet.recipes.recipe import Fitting, later
from everynet.system.errors import UserError
from everynet.system.wording import shown
from everynet.zoo.language import arpa
from everynet.zoo.language.ngram_model import NEWLINE, NGram, check_model
from everynet.zoo.language.pictures.ngrams import (
    perplexity_by_order,
    rank_frequencies,
    sentence_probabilities,
)
from everynet.zoo.language.smoothing import (
    SMOOTHINGS,
    SmoothingSettings,
    check_settings,
    is_probability,
)
from everynet.zoo.recurrent.next_token import end_before


@dataclass(frozen=True, kw_only=True)
class NGramNextWord(Fitting[NGram]):
    """Predict the next word of a text from counts of n-grams."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*LANGUAGE) | {
        "impossible": "the share of words to which the model gives probability 0",
        "log_score": "the mean log of the score of a word, where scores are no probabilities",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8; a line is a sentence."""
    vocabulary: int = 0
    """Largest number of words, the commonest; 0 keeps every word of the training text."""
    lower: bool = later(False)
    """Whether the text is lower-cased first, also that of a prediction or a prompt."""
    order: int = 3
    """Length n of an n-gram: one more than the words of the history."""
    smoothing: str = "modified-kneser-ney"
    """mle, add-k, kneser-ney, modified-kneser-ney, katz or stupid-backoff."""
    k: float = 1.0
    """The k that add-k adds to every count."""
    discount: float = 0.75
    """The discount that kneser-ney subtracts from every count."""
    backoff: float = 0.4
    """The factor of stupid-backoff for each word that the history is shortened by."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model(self.order, self.smoothing)
        check_settings(self.smoothing, self._settings)

    @property
    def _settings(self) -> SmoothingSettings:
        return SmoothingSettings(self.k, self.discount, self.backoff)

    def dataset(self) -> Data:
        data = load(
            self.data, kind="text", batch_size=1, tokens="words", vocabulary=self.vocabulary,
            lower=self.lower,
        )  # fmt: skip
        longest = max(len(stream) for (stream,) in data.splits.values())
        return replace(data, sampler=Rows(), eval_batch_size=longest)  # a split is one batch

    def model(self, data: Data) -> NGram:
        return NGram(self.order, self.smoothing, self.k, self.discount, self.backoff)

    def fit(self, model: NGram, data: Data) -> NGram:
        (stream,) = data.whole
        return model.fit(stream, vocabulary=data.spec["tokens"]["vocabulary"])

    def check_learned(self, model: NGram, spec: Spec) -> None:
        super().check_learned(model, spec)
        if model.vocabulary_ != spec["tokens"]["vocabulary"]:
            raise ValueError("vocabulary_ must be that of spec.json")

    def metrics(self, model: NGram, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy in nats of every word, the ends of lines among them."""
        return {"cross_entropy": -model.logprob(*batch)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Perplexity, or the share of words with P = 0 where those make it infinite."""
        nats = outputs["cross_entropy"]
        if not nats.isfinite().all():
            return {"impossible": nats.isinf().double().mean().item()}
        mean = nats.mean().item()
        if not is_probability(self.smoothing):
            return {"log_score": -mean}
        return {"cross_entropy": mean, "perplexity": math.exp(mean), "bits": mean / math.log(2)}

    def predict(
        self, model: NGram, inputs: Sequence[Tensor], spec: Spec, *, candidates: int = 5
    ) -> Sequence[dict[str, Any]]:
        """Log-probabilities of each line and of its words, or the words that fill its gap best."""
        if not 1 <= candidates <= len(model.vocabulary_):
            raise UserError(
                f"candidates ({candidates}) must be from 1 to the {len(model.vocabulary_)} words"
            )
        new = Tokens.of(spec).index[UNKNOWN]
        answers: list[dict[str, Any]] = []
        for line in inputs:
            row = line.cpu().numpy()
            unknown = int((row == new).sum())
            row = np.where(row == new, model.unknown_, row)
            if (row == BLANK).any():
                answers.append(_fill_gap(model, row, candidates))
            else:
                answers.append({**_score_line(model, row), "tokens": len(row), "unknown": unknown})
        return answers

    def sample(
        self,
        model: NGram,
        spec: Spec,
        generator: torch.Generator,
        *,
        prompt: str = "The",
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: str = "",
        n: int = 5,
        length: int = 50,
    ) -> list[str]:
        """`n` lines that begin with the prompt, `length` words at most, or to the text `stop`."""
        known, prompt = {*model.vocabulary_}, prompt.lower() if self.lower else prompt
        if new := [word for word in prompt.split() if word not in known]:
            raise UserError(
                f"prompt ({shown(prompt, 60)}) must hold words of the training text, and {new[0]!r}"
                " is not one of them"
            )
        for name, value in (("n", n), ("length", length)):
            if value < 1:
                raise UserError(f"{name} ({value}) must be at least 1")
        lines = model.sample(n, prompt, length, temperature, generator, top_k=top_k, top_p=top_p)
        start = " ".join(prompt.split())
        return [end_before(stop, " ".join(words), len(start)) for words in lines]

    def picture_smoothing(self, model: NGram, data: Data, history: History) -> Figure:
        """Perplexity of held-out text by the length n of the n-grams, for four smoothings.

        The numbers in the legend are those of the curves; a dash is a perplexity that is infinite
        or a text too short for the discounts.
        """
        levels, valid, since = self._count(model, data)
        curves = {}
        for name in ("add-k", "katz", "kneser-ney", "modified-kneser-ney"):
            perplexities = []
            for order in range(1, len(levels) + 1):
                try:
                    smoothed = SMOOTHINGS[name](levels[:order], self._settings)
                except UserError:  # too little text for its discounts
                    perplexities.append(math.nan)
                    continue
                logp, _ = score_tokens(valid, since, smoothed.grams(levels[:order]), 0.0)
                perplexities.append(float(np.exp(-logp.mean())))
            values = torch.tensor(perplexities)
            curves[name] = torch.where(values.isfinite(), values, math.nan)
        return perplexity_by_order(curves)

    def picture_frequencies(
        self, model: NGram, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Left, counts of n-grams in the training text by rank; right, the share of new n-grams.

        Of the longest n-grams of held-out text {share:.0%} do not occur in training.
        """
        levels, valid, since = self._count(model, data)
        length = model.score_words(valid)[1]
        fits = [since + 2 >= n for n in range(1, self.order + 1)]  # the start symbol is one, too
        new = [((length < n) & there).sum() for n, there in enumerate(fits, 1)]
        unseen = [float(some / max(there.sum(), 1)) for some, there in zip(new, fits, strict=True)]
        unseen[0] = float((levels[0].count[valid] == 0).mean())
        words = np.where(levels[0].opens, 0, levels[0].count)
        every = (words, *(level.count for level in levels[1:]))
        counts = [torch.from_numpy(np.sort(c[c > 0])[::-1].copy()) for c in every]
        return rank_frequencies(counts, torch.tensor(unseen)), {"share": unseen[-1]}

    def picture_sentence(self, model: NGram, data: Data, history: History) -> Figure:
        """The probability of each word of a held-out sentence; dots are that without any history.

        The colour of a bar is the length of the longest n-gram that training had up to the word.
        """
        levels, stream, since = self._count(model, data)
        counts = np.where(levels[0].opens, 0, levels[0].count)
        ends = np.flatnonzero(np.append(since[1:] == 0, True)) + 1
        spans = [(end - since[end - 1] - 1, end) for end in ends.tolist()]
        known = [(a, b) for a, b in spans if 9 <= b - a <= 16 and model.unknown_ not in stream[a:b]]
        a, b = known[len(known) // 2] if known else (0, min(len(stream), 16))
        sentence = stream[a:b]
        logp, length = model.score_words(sentence)
        words = [model.vocabulary_[word].replace(NEWLINE, arpa.END) for word in sentence.tolist()]
        alone = torch.from_numpy((counts / counts.sum())[sentence])
        p = torch.from_numpy(np.exp(logp))
        return sentence_probabilities(words, p, alone, torch.from_numpy(length))

    def _count(self, model: NGram, data: Data) -> tuple[Sequence[Counted], Ints, Ints]:
        """Counts of the training text; held-out text and how many words precede each of it."""
        train, valid = (
            data.splits[part][0].cpu().numpy().astype(np.int64) for part in ("train", "valid")
        )
        since = words_before(train, model.end_)
        levels = count_ngrams(train, since, self.order, len(model.vocabulary_))
        return levels, valid, words_before(valid, model.end_)

    def tiny(self) -> Self:
        return replace(super().tiny(), vocabulary=0, order=2)


def _score_line(model: NGram, row: Ints) -> dict[str, Any]:
    whole = np.append(row, model.end_) if model.end_ >= 0 else row
    logp = model.logprob(whole)
    nats = -float(logp.mean())
    possible = math.isfinite(nats)
    return {
        "cross_entropy": nats if possible else None,
        "perplexity": math.exp(nats) if possible and is_probability(model.smoothing) else None,
        "words": [
            [model.vocabulary_[word].replace(NEWLINE, arpa.END), p if math.isfinite(p) else None]
            for word, p in zip(whole.tolist(), logp.tolist(), strict=True)
        ],
    }


def _fill_gap(model: NGram, row: Ints, candidates: int) -> dict[str, Any]:
    p = model.fill(row)
    best = np.argsort(-p, kind="stable")[:candidates].tolist()
    words = [GAP if n == BLANK else model.vocabulary_[n] for n in row.tolist()]
    return {
        "filled": " ".join(words).replace(GAP, model.vocabulary_[best[0]]),
        "candidates": [[model.vocabulary_[word], float(p[word])] for word in best],
    }


RECIPES = {
    "ngram": NGramNextWord(
        vocabulary=3000, order=5, goal="perplexity <= 80",
        covers=("R21", "R22", "R23", "R24", "R25"),
    ),
    "ngram-ptb": NGramNextWord(
        data="ptb", order=5, goal="perplexity <= 141.2",
        covers=("R21", "R22", "R23", "R24", "R25"),
    ),
}  # fmt: skip
