"""What every network that names the class of a text shares: reading, loss, figures, answers.

    z = net(w_1 .. w_T)                              logits of the classes of a text of T words
    L = -log softmax(z)[y]                           nats a text
    o(y) = log p(y) - log(1 - p(y))                  log-odds of class y, p = softmax(z)
    e_t = o(y) - o(y without word t)                 what word t says for class y

Without a word means with the word that stands for all unknown ones in its place. In training some
words are replaced so at random (word dropout): no text can then rest on a single word, and the
vector of unknown words, which training texts do not hold, is learned.

Dai, Le (2015), "Semi-supervised sequence learning", arXiv:1511.01432, section 3 (word dropout).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.texts.tokens import PAD, SENTENCE, UNKNOWN, Tokens
from everynet.metrics import classified
from everynet.metrics.meanings import CLASSES, meanings
from everynet.recipes.recipe import Pictures
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.recurrent.pictures.feelings import along, coloured

_PAD, _UNKNOWN = (SENTENCE.index(token) for token in (PAD, UNKNOWN))
AT_ONCE = 512
"""So many texts are asked about together."""
SCALE = 0.1
"""Of the vectors at the beginning: what a rare word has learned must not drown in its noise."""
NEGATIONS = ("not", "n't", "never", "no")

M = TypeVar("M", bound=nn.Module)


class Words(nn.Module):
    """Maps texts to vectors of their words, 0 where there is none; some are unknown in training."""

    def __init__(self, vocabulary: int, size: int, word_dropout: float, dropout: float) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, size, padding_idx=_PAD)
        with torch.no_grad():
            self.vectors.weight.mul_(SCALE)
        self.word_dropout, self.dropout = word_dropout, nn.Dropout(dropout)

    def forward(self, x: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time size"]:
        if self.training and self.word_dropout > 0:
            dropped = torch.rand(x.shape, device=x.device) < self.word_dropout
            x = torch.where(dropped & (x != _PAD), _UNKNOWN, x)
        vectors: Tensor = self.dropout(self.vectors(x))
        return vectors


@dataclass(frozen=True, kw_only=True)
class Classified(Training[M]):
    """Name the class of a text."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "phrases"
    """A known set of texts with classes, a .tsv with class and text, or a folder of folders."""
    tokens: str = "words"
    """What a text is cut into: words or characters."""
    vocabulary: int = 0
    """Most words that are told apart, the commonest; 0 keeps every one of training."""
    embedding: int = 32
    """Numbers that stand for a word."""
    dropout: float = 0.0
    """Share of the numbers that is dropped in training, of words and of whole texts."""
    word_dropout: float = 0.05
    """Share of the words that is taken for unknown in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.embedding >= 1, "embedding", "at least 1")
        for name in ("dropout", "word_dropout"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")

    def dataset(self) -> Data:
        return load(
            self.data,
            kind="labelled",
            batch_size=self.batch_size,
            seed=self.seed,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
        )

    def objective(self, model: M, batch: Batch) -> Terms:
        x, lengths, y = batch
        return {"cross_entropy": cross_entropy(model(x, lengths), y)}

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        x, lengths, y = batch
        logits = model(x, lengths)
        loss = cross_entropy(logits, y, reduction="none")
        return {**classified(logits, y), "cross_entropy": loss}

    def predict(
        self, model: M, inputs: Sequence[Tensor], spec: Spec, *, words: int = 3
    ) -> Sequence[dict[str, Any]]:
        """The class with its probability, and the `words` that say most for it, with e_t."""
        check_words(words)
        tokens, answers = Tokens.of(spec), []
        for text in inputs:
            said, effect = effects(model, text)
            order = effect.argsort(descending=True, stable=True)[:words].tolist()
            label = int(said.argmax())
            answers.append(
                {
                    "class": spec["classes"][label],
                    "probability": said[label].exp().item(),
                    "words": {
                        tokens.vocabulary[int(text[t])]: round(effect[t].item(), 4)
                        for t in order
                        if effect[t] > 0
                    },
                    "unknown": int((text == _UNKNOWN).sum()),
                }
            )
        return answers

    def pictures(self, model: M, data: Data, history: History) -> Pictures:
        """What is thought after each word, and which words told."""
        tokens = Tokens.of(data.spec)
        x, lengths, y = next(iter(data.valid))
        texts = [row[:length] for row, length in zip(x, lengths.tolist(), strict=True)]
        return {
            "along": _along(model, texts, tokens, data.spec["classes"]),
            "words": _told(model, texts, y.tolist(), tokens, data.spec["classes"]),
        }

    def tiny(self) -> Self:
        few, small = min(self.steps, 4), min(self.batch_size, 8)
        return replace(self, data="phrases", vocabulary=0, embedding=8, steps=few, batch_size=small)


def check_words(words: int) -> None:
    """Refuse a number of words that an answer cannot name."""
    if words < 0:
        raise UserError(f"words ({words}) must be at least 0, because so many are named")


def log_probabilities(
    model: nn.Module, texts: Sequence[Int[Tensor, " _"]]
) -> Float[Tensor, "texts classes"]:
    """Of the classes of each text, whatever the lengths."""
    found = []
    for start in range(0, len(texts), AT_ONCE):
        some = list(texts[start : start + AT_ONCE])
        x = pad_sequence(some, batch_first=True, padding_value=_PAD)
        lengths = torch.tensor([len(one) for one in some], device=x.device)
        found.append(model(x, lengths).double().log_softmax(1))
    return torch.cat(found)


def log_odds(said: Float[Tensor, "texts classes"], label: int) -> Float[Tensor, " texts"]:
    """Of one class against all others, from log-probabilities."""
    others = said.clone()
    others[:, label] = -math.inf
    return said[:, label] - others.logsumexp(1)


def effects(
    model: nn.Module, text: Int[Tensor, " time"], label: int | None = None
) -> tuple[Float[Tensor, " classes"], Float[Tensor, " time"]]:
    """The log-probabilities of the classes, and what each word says for one: the likeliest."""
    without = text.repeat(len(text), 1)
    without.fill_diagonal_(_UNKNOWN)
    said = log_probabilities(model, [text, *without]).cpu()
    odds = log_odds(said, int(said[0].argmax()) if label is None else label)
    return said[0], odds[0] - odds[1:]


def _along(
    model: nn.Module, texts: Sequence[Tensor], tokens: Tokens, classes: Sequence[str]
) -> Figure:
    """The probability of the last class after each word: of a text with a "not", and without it."""
    numbers = {tokens.index[word] for word in NEGATIONS if word in tokens.index}
    typical = sorted(
        range(len(texts)),
        key=lambda n: (not numbers & set(texts[n].tolist()), abs(len(texts[n]) - 9)),
    )
    text = texts[typical[0]]
    keep = torch.tensor([token not in numbers for token in text.tolist()], device=text.device)
    shown = [text] if keep.all() or not keep.any() else [text, text[keep]]
    curves = []
    for one in shown:
        parts = [one[: t + 1] for t in range(len(one))]
        likely = log_probabilities(model, parts)[:, -1].exp().cpu()
        curves.append(([tokens.vocabulary[token] for token in one.tolist()], likely))
    return along(curves, ylabel=f"probability of “{classes[-1]}”")


def _told(
    model: nn.Module,
    texts: Sequence[Tensor],
    labels: Sequence[int],
    tokens: Tokens,
    classes: Sequence[str],
) -> Figure:
    """What each word says for the last class, in texts that are told rightly and wrongly."""
    chosen = _mixed(log_probabilities(model, texts[:AT_ONCE]).argmax(1).tolist(), labels)
    last = len(classes) - 1
    rows = []
    for n in chosen:
        said, effect = effects(model, texts[n], last)
        words = [tokens.vocabulary[token] for token in texts[n].tolist()]
        rows.append((words, effect, f"{classes[labels[n]]}: {said[labels[n]].exp():.0%}"))
    return coloured(rows, unit=f"what a word says for “{classes[-1]}” (log-odds)")


def _mixed(said: Sequence[int], labels: Sequence[int], most: int = 8) -> list[int]:
    """Texts of each class in turn, a quarter of them mistaken where there are mistakes."""
    right = [n for n, label in enumerate(said) if label == labels[n]]
    wrong = [n for n, label in enumerate(said) if label != labels[n]][: most // 4]
    by_class = {label: [n for n in right if labels[n] == label] for label in sorted(set(labels))}
    turns = [n for group in zip(*by_class.values(), strict=False) for n in group]
    return (turns or right)[: most - len(wrong)] + wrong
