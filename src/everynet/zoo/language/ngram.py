"""N-grams on a text: what word comes next, from how often words followed each other.

    P(w_1..w_T) = prod_t P(w_t | w_{t-n+1}..w_{t-1})          only n-1 words matter
    perplexity = exp(-(1/T) sum_t log P(w_t|h_t))             words to choose from, on average

A line is a sentence: it has a start, which is no word, and its end is a word and scored. How the
model is asked is in `ngram_model.py`, and what it makes of counts, many of them 0, in
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
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.samplers import Rows
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.kernels.ngrams import Counted, Ints, Reals, counted, scored, since_start
from everynet.metrics.meanings import LANGUAGE, meanings
from everynet.recipes.recipe import Fitting, Pictures
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


@dataclass(frozen=True, kw_only=True)
class NGramNextWord(Fitting[NGram]):
    """Say the next word of a text from how often words followed each other."""

    captions: ClassVar[Mapping[str, str]] = {
        "smoothing": "Perplexity of held-out text (up) by the length of the n-grams: add-k soon "
        "gets worse with every word more, modified Kneser-Ney does not.",
        "rank_frequencies": "Left, how often n-grams stand in the text, by rank, nearly straight for "
        "all n; right, the share of held-out n-grams that training never held, which nears 1.",
        "sentence": "Each word of a held-out sentence with its probability: the colour says how "
        "long an n-gram was seen before, and the dots what the word has without any history.",
    }
    meanings: ClassVar[Mapping[str, str]] = meanings(*LANGUAGE) | {
        "impossible": "the share of words to which the model gives no chance at all",
        "log_score": "the mean log of the score of a word, where scores are no probabilities",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8; a line is a sentence."""
    vocabulary: int = 0
    """Most words that are told apart, the commonest; 0 keeps every one of the training text."""
    order: int = 3
    """Words of an n-gram: one more than are looked back at."""
    smoothing: str = "modified-kneser-ney"
    """mle, add-k, kneser-ney, modified-kneser-ney, katz or stupid-backoff."""
    k: float = 1.0
    """What add-k adds to every count."""
    discount: float = 0.75
    """What kneser-ney takes from every count."""
    backoff: float = 0.4
    """What stupid-backoff pays for each word less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model(self.order, self.smoothing)
        check_settings(self.smoothing, self._settings)

    @property
    def _settings(self) -> SmoothingSettings:
        return SmoothingSettings(self.k, self.discount, self.backoff)

    def dataset(self) -> Data:
        data = load(
            self.data, kind="text", batch_size=1, tokens="words", vocabulary=self.vocabulary
        )
        longest = max(len(stream) for (stream,) in data.splits.values())
        return replace(data, sampler=Rows(), eval_batch_size=longest)  # a split is one batch

    def model(self, data: Data) -> NGram:
        return NGram(self.order, self.smoothing, self.k, self.discount, self.backoff)

    def fit(self, model: NGram, data: Data) -> NGram:
        (stream,) = data.whole
        return model.fit(stream, vocabulary=data.spec["tokens"]["vocabulary"])

    def metrics(self, model: NGram, batch: Batch) -> dict[str, Tensor]:
        """Nats of every word, the ends of lines among them."""
        return {"cross_entropy": -model.logprob(*batch)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Of what has a word with P = 0 the perplexity is infinite: then how many there are."""
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
        """How likely each line and each of its words is, or which words fill its gap best."""
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
                answers.append(_fills(model, row, candidates))
            else:
                answers.append({**_scores(model, row), "tokens": len(row), "unknown": unknown})
        return answers

    def sample(
        self,
        model: NGram,
        spec: Spec,
        generator: torch.Generator,
        *,
        prompt: str = "The",
        temperature: float = 1.0,
        n: int = 5,
        length: int = 50,
    ) -> list[str]:
        """`n` lines that begin with the prompt, each `length` words long at most."""
        known = {*model.vocabulary_}
        if new := [word for word in prompt.split() if word not in known]:
            raise UserError(
                f"prompt ({shown(prompt, 60)}) must hold words of the training text, and {new[0]!r}"
                " is not one of them"
            )
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature ({temperature}) must be above 0; 1 is what was learned")
        for name, value in (("n", n), ("length", length)):
            if value < 1:
                raise UserError(f"{name} ({value}) must be at least 1")
        made = model.sample(n, prompt, length, temperature, generator)
        return [" ".join(words) for words in made]

    def pictures(self, model: NGram, data: Data, history: History) -> Pictures:
        """What smoothing does, how rare n-grams are, and one sentence word by word."""
        train, valid = (data.splits[part][0].cpu().numpy().astype(np.int64) for part in PARTS)
        since, asked = since_start(train, model.end_), since_start(valid, model.end_)
        levels = counted(train, since, self.order, len(model.vocabulary_))
        held = (valid, asked)
        seen = model.score_words(valid)[1]
        deep = [asked + 2 >= n for n in range(1, self.order + 1)]  # the start symbol is one, too
        new = [((seen < n) & there).sum() for n, there in enumerate(deep, 1)]
        unseen = [float(some / max(there.sum(), 1)) for some, there in zip(new, deep, strict=True)]
        unseen[0] = float((levels[0].count[valid] == 0).mean())
        single = np.where(levels[0].opens, 0, levels[0].count)
        every = (single, *(level.count for level in levels[1:]))
        counts = [torch.from_numpy(np.sort(c[c > 0])[::-1].copy()) for c in every]
        return {
            "smoothing": perplexity_by_order(_perplexities(levels, held, self._settings)),
            "rank_frequencies": rank_frequencies(counts, torch.tensor(unseen)),
            "sentence": sentence_probabilities(
                *_sentence(model, valid, asked, single / single.sum())
            ),
        }

    def tiny(self) -> Self:
        return replace(self, data="topics", vocabulary=0, order=2)


PARTS = ("train", "valid")


def _scores(model: NGram, row: Ints) -> dict[str, Any]:
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


def _fills(model: NGram, row: Ints, candidates: int) -> dict[str, Any]:
    p = model.fill(row)
    best = np.argsort(-p, kind="stable")[:candidates].tolist()
    words = [GAP if n == BLANK else model.vocabulary_[n] for n in row.tolist()]
    return {
        "filled": " ".join(words).replace(GAP, model.vocabulary_[best[0]]),
        "candidates": [[model.vocabulary_[word], float(p[word])] for word in best],
    }


def _perplexities(
    levels: Sequence[Counted], held: tuple[Ints, Ints], settings: SmoothingSettings
) -> dict[str, Tensor]:
    """Of held-out text, for every smoothing and order; nan where it is infinite or not found."""
    found = {}
    for name in ("add-k", "katz", "kneser-ney", "modified-kneser-ney"):
        row = []
        for order in range(1, len(levels) + 1):
            try:
                weighed = SMOOTHINGS[name](levels[:order], settings)
            except UserError:  # too little text for its discounts
                row.append(math.nan)
                continue
            logp, _ = scored(*held, weighed.grams(levels[:order]), 0.0)
            row.append(float(np.exp(-logp.mean())))
        values = torch.tensor(row)
        found[name] = torch.where(values.isfinite(), values, math.nan)
    return found


def _sentence(
    model: NGram, stream: Ints, since: Ints, shares: Reals
) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """The words of a held-out sentence, P of each with and without a history, and what was seen."""
    ends = np.flatnonzero(np.append(since[1:] == 0, True)) + 1
    spans = [(end - since[end - 1] - 1, end) for end in ends.tolist()]
    known = [(a, b) for a, b in spans if 9 <= b - a <= 16 and model.unknown_ not in stream[a:b]]
    a, b = known[len(known) // 2] if known else (0, min(len(stream), 16))
    logp, seen = model.score_words(stream[a:b])
    words = [model.vocabulary_[word].replace(NEWLINE, arpa.END) for word in stream[a:b].tolist()]
    alone = torch.from_numpy(shares[stream[a:b]])
    return words, torch.from_numpy(np.exp(logp)), alone, torch.from_numpy(seen)


# Reached on the test part of the Penn Treebank: 185.70, 148.28 and 141.19 for orders 2, 3 and 5,
# as KenLM's lmplz. The help is another text in each version of Python, so its goal leaves room.
RECIPES = {
    "ngram": NGramNextWord(
        vocabulary=3000,
        order=5,
        goal="perplexity <= 80",
        covers=("R21", "R22", "R23", "R24", "R25"),
    ),
    "ngram-ptb": NGramNextWord(
        data="ptb",
        order=5,
        goal="perplexity <= 141.2",
        covers=("R21", "R22", "R23", "R24", "R25"),
    ),
}
