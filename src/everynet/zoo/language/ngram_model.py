"""The n-gram model: the probability of a word after the n-1 words before it, from counts.

    P(w_1..w_T) = prod_t P(w_t | w_{t-n+1}..w_{t-1})             (1)  the history is n-1 words
    P(w|h) = p(h w)  where h w is known, else  b(h) P(w|h')      (2)  back-off; h' is h less a word
    perplexity = exp(-(1/T) sum_t log P(w_t|h_t))                (3)  V for a uniform P
    P(w | sentence with a gap) = P(with w) / sum_v P(with v)     (4)  cloze

h is the history of word w, T the number of words and V that of different ones. A sentence begins
with a start symbol, which is a history and never a word, and its end is a word. How p and b follow
from counts is in `smoothing.py`: each of its six methods takes this form.

Shannon (1951), "Prediction and entropy of printed English", doi:10.1002/j.1538-7305.1951.tb01366.x;
Jelinek et al. (1977), "Perplexity: a measure of the difficulty of speech recognition tasks",
doi:10.1121/1.2016299.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from everynet.data.kinds.text import BLANK, GAP
from everynet.data.texts.tokens import UNKNOWN
from everynet.kernels.ngrams import Grams, Ints, count_ngrams, score_tokens, words_before
from everynet.nn.decoding import Draw, generate
from everynet.nn.estimator import Array, Caller, Learned, check_learned
from everynet.system.errors import UserError
from everynet.system.wording import shown, unknown
from everynet.zoo.language import arpa
from everynet.zoo.language.cloze import find_gap
from everynet.zoo.language.smoothing import (
    SMOOTHINGS,
    SmoothingSettings,
    check_settings,
    is_probability,
)

NEWLINE = "\n"
MAX_ORDER = 9
"""The longest n-gram that is counted."""


class NGram(BaseEstimator):
    """Learns from sentences, which are texts of words or lists of them.

    Or from a stream of word numbers with its `vocabulary`, in which a newline or `</s>` ends a
    sentence. Words that do not occur in training are `<unk>`.
    """

    vocabulary_: list[str]
    """All words that can come next: word n is vocabulary_[n]."""
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

    def fit(self, X: Array, y: Array = None, *, vocabulary: Sequence[str] | None = None) -> Self:
        check_model(self.order, self.smoothing)
        settings = SmoothingSettings(self.k, self.discount, self.backoff)
        check_settings(self.smoothing, settings)
        if vocabulary is None:
            number = _Numbers({arpa.UNKNOWN: 0, arpa.END: 1})
            flat, since = _flatten(X, number.__getitem__, 1)
            self._set_vocabulary([*number])
            if arpa.START in number or (flat[:-1] == 1)[since[1:] > 0].any():
                raise UserError(
                    f"a sentence must not hold {arpa.START} or {arpa.END}, because they are added; "
                    "leave them out"
                )
        else:
            self._set_vocabulary(vocabulary)
            flat, since = self._encode(X)
        if len({*np.unique(flat).tolist()} - {self.end_}) < 2:
            raise UserError(
                "the text must hold at least 2 different words, because one alone leaves "
                "nothing to predict; give more text"
            )
        levels = count_ngrams(flat, since, self.order, len(self.vocabulary_))
        weighed = SMOOTHINGS[self.smoothing](levels, settings)
        self._store(weighed.grams(levels))
        self.missing_ = math.log(weighed.missing) if weighed.missing else -math.inf
        return self

    def _set_vocabulary(self, vocabulary: Sequence[str]) -> None:
        words = {word: n for n, word in enumerate(vocabulary)}
        self.vocabulary_ = [*vocabulary]
        self.end_ = words.get(NEWLINE, words.get(arpa.END, -1))
        self.unknown_ = words.get(arpa.UNKNOWN, words.get(UNKNOWN, -1))

    def _store(self, grams: Sequence[Grams]) -> None:
        for name in ("words", "starts", "logp", "backoff"):
            arrays = [np.ascontiguousarray(getattr(gram, name)) for gram in grams]
            setattr(self, f"{name}_", [torch.from_numpy(array) for array in arrays])

    def grams(self) -> list[Grams]:
        """The n-grams with their probabilities and back-off weights, order by order."""
        check_is_fitted(self, "logp_")
        kept = zip(self.words_, self.starts_, self.logp_, self.backoff_, strict=True)
        return [Grams(*(tensor.cpu().numpy() for tensor in gram)) for gram in kept]

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        sizes = check_learned(vars(self), {
            "vocabulary_": Learned("list", "vocab"),
            "end_": Learned("int"),
            "unknown_": Learned("int"),
            "missing_": Learned("float", low=-math.inf, high=0),
        })  # fmt: skip
        like = NGram()
        like._set_vocabulary(self.vocabulary_)
        if (self.end_, self.unknown_) != (like.end_, like.unknown_):
            raise ValueError("end_ and unknown_ must be the places of these in vocabulary_")
        if len(self.grams()) != self.order:
            raise ValueError(f"words_ must hold {self.order} tensors, one for each order")
        shorter, words = 1, sizes["vocab"] + 1  # with the start symbol
        for n, gram in enumerate(self.grams(), 1):
            grams = words if n == 1 else len(gram.words)
            check_learned(vars(gram), {
                "words": Learned("int32", f"{grams}", low=0, high=words - 1),
                "starts": Learned("int32", f"{shorter + 1}", low=0, high=grams),
                "logp": Learned("float64", f"{grams}", low=-math.inf, high=1e-9),
                "backoff": Learned("float64", f"{grams * (n < self.order)}", -math.inf, high=100),
            })  # fmt: skip
            number = np.diff(gram.starts)  # of n-grams with the same beginning
            if (number < 0).any() or number.sum() != grams:
                raise ValueError(f"starts of the {n}-grams must rise from 0 to {grams}")
            keys = np.repeat(np.arange(shorter), number) * words + gram.words
            if (np.diff(keys) <= 0).any():
                raise ValueError(f"words of the {n}-grams must rise after each beginning")
            shorter = grams

    # -------------------------------------------------------------------- probabilities, samples

    def logprob(self, X: Array) -> Array:
        """Log P of every word after those before it; each sentence is followed by its end."""
        return Caller.of(X).give(torch.from_numpy(self.score_words(X)[0]))

    def score_words(self, X: Array) -> tuple[np.ndarray, np.ndarray]:
        """Log P of every word, and the length of the longest known n-gram that ends there."""
        grams = self.grams()
        return score_tokens(*self._encode(X), grams, self.missing_)  # (1)

    def score_samples(self, X: Array) -> Array:
        """Log P of every sentence."""
        logp, (_, since) = self.score_words(X)[0], self._encode(X)
        sums = np.add.reduceat(logp, np.flatnonzero(since == 0))
        return Caller.of(X).give(torch.from_numpy(sums))

    def perplexity(self, X: Array) -> float:
        """Perplexity, the effective number of words to choose from; infinite where P is 0."""
        if not is_probability(self.smoothing):
            raise UserError(
                "smoothing (stupid-backoff) must be another one for a perplexity, because its "
                "scores do not sum to 1; compare its log-scores with logprob"
            )
        return float(np.exp(-self.score_words(X)[0].mean()))  # (3)

    def predict_next(self, context: str | Sequence[str] = "") -> Array:
        """The probability of each word of `vocabulary_` after these; `<s>` begins a sentence.

        An array; of `stupid-backoff` scores, which do not sum to 1.
        """
        grams, words = self.grams(), _words(context)
        opens = words[:1] == [arpa.START]
        history = [len(self.vocabulary_)] * opens + [*map(self._word_index(), words[opens:])]
        p = np.exp(grams[0].logp[:-1])
        for length in range(1, min(len(history), len(grams) - 1) + 1):
            h = _find_ngram(grams, history[len(history) - length :])
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
            number = self._word_index()
            row = np.array([BLANK if w == GAP else number(w) for w in _words(sentence)], np.int64)
        find_gap(torch.from_numpy(row))  # refuses several
        row = np.append(row, self.end_) if self.end_ >= 0 else row
        tries = np.setdiff1d(np.arange(len(self.vocabulary_)), [self.end_, self.unknown_])
        lines = np.where(row == BLANK, tries[:, None], row)  # words line
        since = np.tile(np.arange(len(row)), len(tries))
        logp, _ = score_tokens(lines.reshape(-1), since, self.grams(), self.missing_)
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
        *,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> list[list[str]]:
        """`n` sentences that begin with the prompt, of `length` words at most."""
        banned = [self.unknown_] if self.unknown_ >= 0 else []
        draw = Draw(generator, temperature, top_k, top_p, banned)

        def step(word: Tensor, before: list[str]) -> tuple[Tensor, list[str]]:
            words = before + [self.vocabulary_[n] for n in word.tolist()]
            p = torch.from_numpy(self.predict_next([arpa.START, *words]))
            if not p.index_fill(0, torch.tensor(banned, dtype=torch.long), 0).any():
                raise UserError(
                    f"no word has a probability above 0 after {shown(' '.join(words), 60)!r}, "
                    f"because {self.smoothing} knows nothing but what it has seen; try "
                    "smoothing=modified-kneser-ney"
                )
            return p.log()[None], words

        start, sentences, nothing = _words(prompt), [], torch.zeros(0, dtype=torch.long)
        for _ in range(n):  # one by one: each ends where it ends
            words, left = list(start), length - len(start)
            if left > 0:
                drawn, _ = generate(step, *step(nothing, words), left, draw, end=self.end_)
                ended = takewhile(lambda word: word != self.end_, drawn[0].tolist())
                words += [self.vocabulary_[word] for word in ended]
            sentences.append(words)
        return sentences

    # -------------------------------------------------------------------------------- ARPA files

    def to_arpa(self, path: str | Path) -> None:
        """Write the model in the format that KenLM and SRILM read."""
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
        arpa.write_arpa(Path(path), words, grams)

    @staticmethod
    def from_arpa(path: str | Path) -> NGram:
        """The model of an ARPA file; it cannot be fitted anew."""
        words, grams = arpa.read_arpa(Path(path))
        model = NGram(len(grams), "arpa")
        model._set_vocabulary(words[:-1])
        model._store(grams)
        model.missing_ = 0.0
        return model

    # ------------------------------------------------------------------------------ words, numbers

    def _encode(self, X: Array) -> tuple[Ints, Ints]:
        """Word numbers one after another, and the number of words before each in its sentence."""
        if isinstance(X, Sequence):
            return _flatten(X, self._word_index(), self.end_)
        flat = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
        if flat.ndim != 1 or flat.dtype.kind not in "iu" or not len(flat):
            raise UserError(
                f"X (an array of {flat.dtype}, {list(flat.shape)}) must be a list of sentences, or "
                "a row of word numbers; give their vocabulary to fit"
            )
        flat = flat.astype(np.int64)
        return flat, words_before(flat, self.end_)

    def _word_index(self) -> Callable[[str], int]:
        """A function from a word, known or not, to its number."""
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


class _Numbers(dict[str, int]):
    """The number of each word; a new word gets the next number."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return len(self) - 1


def fit_trigrams(stream: Tensor, words: list[str]) -> NGram:
    """Trigrams of a stream of word numbers, with the discounts that it has enough words for."""
    try:
        return NGram(3).fit(stream, vocabulary=words)
    except UserError:
        return NGram(3, "kneser-ney").fit(stream, vocabulary=words)


def check_model(order: int, smoothing: str) -> None:
    """Refuse an order out of range and an unknown smoothing."""
    if not 1 <= order <= MAX_ORDER:
        raise UserError(f"order ({order}) must be from 1 to {MAX_ORDER}, the words of an n-gram")
    if smoothing not in SMOOTHINGS:
        raise UserError(unknown("smoothing", smoothing, SMOOTHINGS))


def _words(text: str | Sequence[str]) -> list[str]:
    return text.split() if isinstance(text, str) else [*text]


def _flatten(X: Array, number: Callable[[str], int], end: int) -> tuple[Ints, Ints]:
    """Sentences as one row of numbers, with their ends; and the number of words before each."""
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


def _find_ngram(grams: Sequence[Grams], words: Sequence[int]) -> int:
    """The number of an n-gram; -1 where it is unknown."""
    at = words[0]
    for gram, word in zip(grams[1:], words[1:], strict=False):
        first, last = gram.starts[at], gram.starts[at + 1]
        at = int(first + np.searchsorted(gram.words[first:last], word))
        if at == last or gram.words[at] != word:
            return -1
    return at
