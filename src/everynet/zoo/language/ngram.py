"""The n-gram model: how likely a word is after the n-1 words before it, found by counting.

    P(w_1..w_T) = prod_t P(w_t | w_{t-n+1}..w_{t-1})             (1)  only n-1 words matter
    P(w|h) = p(h w)  where h w is known, else  b(h) P(w|h')      (2)  back-off; h' is h less a word
    perplexity = exp(-(1/T) sum_t log P(w_t|h_t))                (3)  V where all words are equal
    P(w | sentence with a gap) = P(with w) / sum_v P(with v)     (4)  what fills a gap

A sentence begins with a start symbol, which is a history and never a word, and its end is a word.
How p and b follow from counts is in `smoothing.py`: each of its six answers takes this form.

Shannon (1951), "Prediction and entropy of printed English", doi:10.1002/j.1538-7305.1951.tb01366.x;
Jelinek et al. (1977), "Perplexity: a measure of the difficulty of speech recognition tasks",
doi:10.1121/1.2016299.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from everynet.data import arpa, load
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.tokens import UNKNOWN, Tokens
from everynet.estimator import Array, Caller
from everynet.kernels.ngrams import Counted, Grams, Ints, counted, scored, since_start
from everynet.plot.ngrams import by_order, frequencies, word_by_word
from everynet.recipes import Fitting, Pictures
from everynet.samplers import Rows
from everynet.types import Batch, Data, History, Spec, UserError, nearest
from everynet.words import shown
from everynet.zoo.language import smoothing as ways
from everynet.zoo.language.smoothing import SMOOTHINGS, Settings

NEWLINE = "\n"
MOST = 9
"""The longest n-gram that is counted."""


class _Numbers(dict[str, int]):
    """Words by number, each new one the next."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return len(self) - 1


class NGram(BaseEstimator):
    """Learns what follows what, from sentences (texts of words, or lists of them).

    A stream of word numbers will do as well, with the `vocabulary` that they are of, in which a
    newline or `</s>` ends a sentence. Words that were not seen are `<unk>`.
    """

    vocabulary_: list[str]
    """What can come next: word n is vocabulary_[n]."""
    end_: int
    """The number of the end of a sentence; -1 where the text is one sentence."""
    unknown_: int
    words_: list[Tensor]
    starts_: list[Tensor]
    logp_: list[Tensor]
    backoff_: list[Tensor]
    missing_: float

    def __init__(
        self,
        order: int = 3,
        smoothing: str = "modified-kneser-ney",
        k: float = 1.0,
        discount: float = 0.75,
        backoff: float = 0.4,
    ) -> None:
        self.order = order
        self.smoothing = smoothing
        self.k = k
        self.discount = discount
        self.backoff = backoff

    def fit(self, X: Array, y: Array = None, vocabulary: Sequence[str] | None = None) -> Self:
        check(self.order, self.smoothing)
        settings = Settings(self.k, self.discount, self.backoff)
        ways.check(self.smoothing, settings)
        if vocabulary is None:
            number = _Numbers({arpa.UNKNOWN: 0, arpa.END: 1})
            flat, since = _flat(X, number.__getitem__, 1)
            self._name([*number])
            if arpa.START in number or (flat[:-1] == 1)[since[1:] > 0].any():
                raise UserError(
                    f"a sentence must not hold {arpa.START} or {arpa.END}, because they are added; "
                    "leave them out"
                )
        else:
            self._name(vocabulary)
            flat, since = self._numbers(X)
        if len({*np.unique(flat).tolist()} - {self.end_}) < 2:
            raise UserError(
                "the text must hold at least 2 different words, because there is nothing to tell "
                "apart in fewer; give more text"
            )
        levels = counted(flat, since, self.order, len(self.vocabulary_))
        weighed = SMOOTHINGS[self.smoothing](levels, settings)
        self._keep(weighed.grams(levels))
        self.missing_ = math.log(weighed.missing) if weighed.missing else -math.inf
        return self

    def _name(self, vocabulary: Sequence[str]) -> None:
        words = {word: n for n, word in enumerate(vocabulary)}
        self.vocabulary_ = [*vocabulary]
        self.end_ = words.get(NEWLINE, words.get(arpa.END, -1))
        self.unknown_ = words.get(arpa.UNKNOWN, words.get(UNKNOWN, -1))

    def _keep(self, grams: Sequence[Grams]) -> None:
        for name in ("words", "starts", "logp", "backoff"):
            arrays = [np.ascontiguousarray(getattr(gram, name)) for gram in grams]
            setattr(self, f"{name}_", [torch.from_numpy(array) for array in arrays])

    def grams(self) -> list[Grams]:
        """What was learned, order by order."""
        check_is_fitted(self, "logp_")
        kept = zip(self.words_, self.starts_, self.logp_, self.backoff_, strict=True)
        return [Grams(*(tensor.cpu().numpy() for tensor in gram)) for gram in kept]

    # ---------------------------------------------------------------------------- what is asked

    def logprob(self, X: Array) -> Array:
        """log P of every word after those before it; each sentence is followed by its end."""
        return Caller.of(X).give(torch.from_numpy(self.matched(X)[0]))

    def matched(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """log P of every word, and how many words long the n-gram is that says it."""
        grams = self.grams()
        return scored(*self._numbers(X), grams, self.missing_)  # (1)

    def score_samples(self, X: Array) -> Array:
        """log P of every sentence."""
        logp, (_, since) = self.matched(X)[0], self._numbers(X)
        sums = np.add.reduceat(logp, np.flatnonzero(since == 0))
        return Caller.of(X).give(torch.from_numpy(sums))

    def perplexity(self, X: Array) -> float:
        """How many words one would have to choose from, on average; infinite where P is 0."""
        if not ways.is_probability(self.smoothing):
            raise UserError(
                "smoothing (stupid-backoff) must be another one for a perplexity, because its "
                "scores do not sum to 1; compare its log-scores with logprob"
            )
        return float(np.exp(-self.matched(X)[0].mean()))  # (3)

    def next(self, context: str | Sequence[str] = "") -> Array:
        """The probability of each word of `vocabulary_` after these; `<s>` begins a sentence.

        An array; of `stupid-backoff` scores, which do not sum to 1.
        """
        grams, words = self.grams(), _words(context)
        opens = words[:1] == [arpa.START]
        history = [len(self.vocabulary_)] * opens + [*map(self._number(), words[opens:])]
        p = np.exp(grams[0].logp[:-1])
        for length in range(1, min(len(history), len(grams) - 1) + 1):
            h = _place(grams, history[len(history) - length :])
            p = p * math.exp(self.missing_ if h < 0 else grams[length - 1].backoff[h])
            if h >= 0:
                longer = grams[length]
                follow = slice(longer.starts[h], longer.starts[h + 1])
                p[longer.words[follow]] = np.exp(longer.logp[follow])  # (2)
        return p

    def fill(self, sentence: str | Sequence[str] | Ints) -> Array:
        """The probability of each word of `vocabulary_` in the place of `___`."""
        if isinstance(sentence, np.ndarray):
            row = sentence
        else:
            number = self._number()
            row = np.array([BLANK if w == GAP else number(w) for w in _words(sentence)], np.int64)
        gaps = int((row == BLANK).sum())
        if gaps != 1:
            raise UserError(
                f"a line must hold one {GAP} to be filled, but holds {gaps}, because the words in "
                "several depend on each other; fill them one by one"
            )
        row = np.append(row, self.end_) if self.end_ >= 0 else row
        tries = np.setdiff1d(np.arange(len(self.vocabulary_)), [self.end_, self.unknown_])
        lines = np.where(row == BLANK, tries[:, None], row)  # words line
        since = np.tile(np.arange(len(row)), len(tries))
        logp, _ = scored(lines.reshape(-1), since, self.grams(), self.missing_)
        total = logp.reshape(len(tries), -1).sum(1)
        if not np.isfinite(total).any():
            raise UserError(
                f"no word has a probability above 0 in the place of {GAP}, because {self.smoothing}"
                " knows nothing but what it has seen; try smoothing=modified-kneser-ney"
            )
        p = np.zeros(len(self.vocabulary_))
        p[tries] = np.exp(total - np.logaddexp.reduce(total))  # (4)
        return p

    def sample(
        self,
        n: int = 1,
        prompt: str | Sequence[str] = "",
        length: int = 50,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> list[list[str]]:
        """`n` sentences that begin with the prompt, of `length` words at most."""
        begun, made = _words(prompt), []
        for _ in range(n):
            words = list(begun)
            while len(words) < length:
                p = torch.from_numpy(self.next([arpa.START, *words]))
                p[self.unknown_] = 0.0
                drawn = int(torch.multinomial(p ** (1 / temperature), 1, generator=generator))
                if drawn == self.end_:
                    break
                words.append(self.vocabulary_[drawn])
            made.append(words)
        return made

    # -------------------------------------------------------------------------------- ARPA files

    def to_arpa(self, path: str | Path) -> None:
        """Write the model as other programs read it."""
        grams = self.grams()
        if self.missing_ != 0:
            raise UserError(
                f"smoothing ({self.smoothing}) must be another one for an ARPA file, in which a "
                "history that was not seen has the weight 1; try modified-kneser-ney"
            )
        words = [*self.vocabulary_, arpa.START]
        for place, name in ((self.end_, arpa.END), (self.unknown_, arpa.UNKNOWN)):
            if place >= 0:
                words[place] = name
        arpa.write(Path(path), words, grams)

    @staticmethod
    def from_arpa(path: str | Path) -> NGram:
        """The model of an ARPA file; it cannot be fitted anew."""
        words, grams = arpa.read(Path(path))
        model = NGram(len(grams), "arpa")
        model._name(words[:-1])
        model._keep(grams)
        model.missing_ = 0.0
        return model

    # ------------------------------------------------------------------------------ words, numbers

    def _numbers(self, X: Array) -> tuple[Ints, Ints]:
        """Word numbers one after another, and how many of its sentence come before each."""
        if isinstance(X, Sequence):
            return _flat(X, self._number(), self.end_)
        flat = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
        if flat.ndim != 1 or flat.dtype.kind not in "iu" or not len(flat):
            raise UserError(
                f"X (an array of {flat.dtype}, {list(flat.shape)}) must be a list of sentences, or "
                "a row of word numbers; give their vocabulary to fit"
            )
        flat = flat.astype(np.int64)
        return flat, since_start(flat, self.end_)

    def _number(self) -> Callable[[str], int]:
        """What gives the number of a word, known or not."""
        number = {word: n for n, word in enumerate(self.vocabulary_)}
        number[arpa.END] = self.end_
        if self.unknown_ >= 0:
            return lambda word: number.get(word, self.unknown_)

        def known(word: str) -> int:
            if word not in number:
                raise UserError(
                    f"a word ({shown(word, 40)}) must be one of the model, because it has no "
                    f"{arpa.UNKNOWN}; leave it out"
                )
            return number[word]

        return known

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags


def check(order: int, smoothing: str) -> None:
    """Refuse what cannot be counted or is not known."""
    if not 1 <= order <= MOST:
        raise UserError(f"order ({order}) must be from 1 to {MOST}: it is the words of an n-gram")
    if smoothing not in SMOOTHINGS:
        raise UserError(
            f"smoothing ({smoothing}) must be one we have{nearest(smoothing, SMOOTHINGS)}"
        )


def _words(text: str | Sequence[str]) -> list[str]:
    return text.split() if isinstance(text, str) else [*text]


def _flat(X: Array, number: Callable[[str], int], end: int) -> tuple[Ints, Ints]:
    """Sentences as one row of numbers, each with its end; and the words before each of them."""
    if isinstance(X, str) or not isinstance(X, Sequence):
        raise UserError(
            f"X (a {type(X).__name__}) must be a list of sentences, each a text of words or a list "
            "of them; cut a text into lines"
        )
    flat: list[int] = []
    lengths = []
    ends = [end] if end >= 0 else []
    for sentence in X:
        before = len(flat)
        flat += map(number, sentence.split() if isinstance(sentence, str) else sentence)
        flat += ends
        lengths.append(len(flat) - before)
    if len(flat) == len(X) * len(ends):
        raise UserError("the text is empty; give at least one word")
    starts = np.cumsum(lengths) - lengths
    return np.array(flat), np.arange(len(flat)) - np.repeat(starts, lengths)


def _place(grams: Sequence[Grams], words: Sequence[int]) -> int:
    """The number of an n-gram; -1 where it is not known."""
    at = words[0]
    for gram, word in zip(grams[1:], words[1:], strict=False):
        first, last = gram.starts[at], gram.starts[at + 1]
        at = int(first + np.searchsorted(gram.words[first:last], word))
        if at == last or gram.words[at] != word:
            return -1
    return at


# ---------------------------------------------------------------------------------------- recipe


@dataclass(frozen=True, kw_only=True)
class CountedWords(Fitting[NGram]):
    """Say the next word of a text from how often words followed each other."""

    captions: ClassVar[Mapping[str, str]] = {
        "smoothing": "Perplexity of held-out text (up) by the length of the n-grams: add-k soon "
        "gets worse with every word more, modified Kneser-Ney does not.",
        "frequencies": "Left, how often n-grams stand in the text, by rank, nearly straight for "
        "all n; right, the share of held-out n-grams that training never held, which nears 1.",
        "sentence": "Each word of a held-out sentence with its probability: the colour says how "
        "long an n-gram was seen before, and the dots what the word has without any history.",
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
        check(self.order, self.smoothing)
        ways.check(self.smoothing, self._settings)

    @property
    def _settings(self) -> Settings:
        return Settings(self.k, self.discount, self.backoff)

    def dataset(self) -> Data:
        data = load(
            self.data, kind="text", batch_size=1, tokens="words", vocabulary=self.vocabulary
        )
        longest = max(len(stream) for (stream,) in data.splits.values())
        return replace(data, sampler=Rows(), eval_batch_size=longest)  # a split is one batch

    def model(self, data: Data) -> NGram:
        return NGram(self.order, self.smoothing, self.k, self.discount, self.backoff)

    def fit(self, model: NGram, data: Data) -> NGram:
        return model.fit(*data.whole, vocabulary=data.spec["tokens"]["vocabulary"])

    def metrics(self, model: NGram, batch: Batch) -> dict[str, Tensor]:
        """Nats of every word, the ends of lines among them."""
        return {"cross_entropy": -model.logprob(*batch)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Of what has a word with P = 0 the perplexity is infinite: then how many there are."""
        nats = outputs["cross_entropy"]
        if not nats.isfinite().all():
            return {"impossible": nats.isinf().double().mean().item()}
        mean = nats.mean().item()
        if not ways.is_probability(self.smoothing):
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
        seen = model.matched(valid)[1]
        deep = [asked + 2 >= n for n in range(1, self.order + 1)]  # the start symbol is one, too
        unseen = [float((seen < n)[there].mean()) for n, there in enumerate(deep, 1)]
        unseen[0] = float((levels[0].count[valid] == 0).mean())
        counts = [torch.from_numpy(np.sort(level.count)[::-1].copy()) for level in levels]
        return {
            "smoothing": by_order(_perplexities(levels, held, self._settings)),
            "frequencies": frequencies(counts, torch.tensor(unseen)),
            "sentence": word_by_word(*_sentence(model, valid, asked)),
        }

    def tiny(self) -> Self:
        return replace(self, data="topics", vocabulary=1000, order=2)


PARTS = ("train", "valid")


def _scores(model: NGram, row: Ints) -> dict[str, Any]:
    whole = np.append(row, model.end_) if model.end_ >= 0 else row
    logp = model.logprob(whole)
    nats = -float(logp.mean())
    possible = math.isfinite(nats)
    return {
        "cross_entropy": nats if possible else None,
        "perplexity": math.exp(nats) if possible and ways.is_probability(model.smoothing) else None,
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
    levels: Sequence[Counted], held: tuple[Ints, Ints], settings: Settings
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


def _sentence(model: NGram, stream: Ints, since: Ints) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """The words of a held-out sentence, P of each with and without a history, and what was seen."""
    ends = np.flatnonzero(np.append(since[1:] == 0, True)) + 1
    spans = [(end - since[end - 1] - 1, end) for end in ends.tolist()]
    known = [(a, b) for a, b in spans if 9 <= b - a <= 16 and model.unknown_ not in stream[a:b]]
    a, b = known[len(known) // 2] if known else (0, min(len(stream), 16))
    logp, seen = model.matched(stream[a:b])
    alone = model.logp_[0].exp()[torch.from_numpy(stream[a:b])]
    words = [model.vocabulary_[word].replace(NEWLINE, arpa.END) for word in stream[a:b].tolist()]
    return words, torch.from_numpy(np.exp(logp)), alone, torch.from_numpy(seen)


# Reached on the test part of the Penn Treebank: 185.70, 148.28 and 141.19 for orders 2, 3 and 5,
# as KenLM's lmplz. The help is another text in each version of Python, so its goal leaves room.
RECIPES = {
    "ngram": CountedWords(
        vocabulary=3000, goal="perplexity <= 110", covers=("R21", "R22", "R23", "R25")
    ),
    "ngram-ptb": CountedWords(
        data="ptb", order=5, goal="perplexity <= 141.2", covers=("R21", "R22", "R23", "R25")
    ),
}
