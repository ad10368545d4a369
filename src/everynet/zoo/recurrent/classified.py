"""Text classification, as several networks share it: embeddings, loss, metrics, predictions.

    z = net(w_1 .. w_T)                              logits of the classes of a text of T words
    L = -log softmax(z)[y]                           cross-entropy in nats
    o(y) = log p(y) - log(1 - p(y))                  log-odds of class y, p = softmax(z)
    e_t = o(y) - o(y without word t)                 effect of word t on class y

Without a word means with the token of unknown words in its place. In training some words are
replaced so at random (word dropout): no text can then rest on a single word, and the embedding of
unknown words, which training texts do not hold, is learned.

Dai, Le (2015), "Semi-supervised sequence learning", arXiv:1511.01432, section 3 (word dropout).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.texts.tokens import PAD, SENTENCE, UNKNOWN, Tokens
from everynet.metrics import classified, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.recurrent.pictures.feelings import along, coloured

_PAD, _UNKNOWN = (SENTENCE.index(token) for token in (PAD, UNKNOWN))
AT_ONCE = 512
"""Texts that are predicted together."""
SCALE = 0.1
"""Of the initial embeddings: what a rare word has learned must not drown in its noise."""
DRAWN = 400
"""Words of a text in the picture of a prediction."""
NEGATIONS = ("not", "n't", "never", "no")

M = TypeVar("M", bound=nn.Module)


class Words(nn.Module):
    """Maps texts to embeddings of their words, 0 at padding; some are unknown in training."""

    def __init__(
        self,
        vocabulary: int,
        embedding: int,
        word_dropout: float,
        dropout: float,
        *,
        unknown: int = _UNKNOWN,
    ) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, embedding, padding_idx=_PAD)
        with torch.no_grad():
            self.vectors.weight.mul_(SCALE)
        self.word_dropout, self.dropout = word_dropout, nn.Dropout(dropout)
        self.unknown = unknown

    def forward(self, x: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time embedding"]:
        if self.training and self.word_dropout > 0:
            dropped = torch.rand(x.shape, device=x.device) < self.word_dropout
            x = torch.where(dropped & (x != _PAD), self.unknown, x)
        vectors: Tensor = self.dropout(self.vectors(x))
        return vectors


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class TextClassification(Training[M]):
    """Predict the class of a text."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "phrases"
    """A known set of texts with classes, a .csv, .tsv or .jsonl, or a folder of folders."""
    text: str = later("")
    """The column of the texts, of a file whose columns have names; empty: the one of sentences."""
    target: str = later("")
    """The column of their classes; empty: the one of few values."""
    tokens: str = "words"
    """Tokens: words, characters or bpe; or a vocabulary, of a run or in a published vocab.txt."""
    vocabulary: int = 0
    """Size of the vocabulary, the commonest words; 0 keeps every one of training."""
    lower: bool = later(False)
    """Whether a text is lower-cased first, also that of a prediction."""

    def dataset(self) -> Data:
        return load(
            self.data, kind="labelled", batch_size=self.batch_size, seed=self.seed,
            tokens=self.tokens, vocabulary=self.vocabulary, lower=self.lower, text=self.text,
            target=self.target,
        )  # fmt: skip

    def objective(self, model: M, batch: Batch) -> Terms:
        x, lengths, y = batch
        return {"cross_entropy": cross_entropy(model(x, lengths), y)}

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        x, lengths, y = batch
        logits = model(x, lengths)
        loss = cross_entropy(logits, y, reduction="none")
        return {**classified(logits, y), "cross_entropy": loss}

    def predict(
        self,
        model: M,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        words: int = 3,
        draw: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """The class, the probability of each, and the `words` with the largest effect e_t.

        With `draw` also a picture of the text with each word coloured by its effect.
        """
        check_words(words)
        tokens, answers = Tokens.of(spec), []
        for text in inputs:
            log_p, effect = effects(model, text, unknown=tokens.unknown)
            order = effect.argsort(descending=True, stable=True)[:words].tolist()
            answers.append(
                {
                    **name_classes(log_p.exp()[None], spec["classes"])[0],
                    "words": {
                        tokens.vocabulary[int(text[t])]: round(effect[t].item(), 4)
                        for t in order
                        if effect[t] > 0
                    },
                    "unknown": int((text == tokens.unknown).sum()),
                }
            )
            if draw:
                drawn = [tokens.vocabulary[token] for token in text[:DRAWN].tolist()]
                label = int(log_p.argmax())
                name = prediction_label(log_p.exp(), label, spec["classes"])
                answers[-1]["picture"] = coloured(
                    [(drawn, effect[:DRAWN], name)],
                    unit=f"effect of a word on “{spec['classes'][label]}” (log-odds)",
                )
        return answers

    def picture_along(
        self, model: M, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """The probability of the last class after each word of a sentence with a negation.

        Below the same sentence without it, where it has one. In the end it is {ends}.
        """
        tokens, (texts, _) = Tokens.of(data.spec), _unpadded(data)
        negations = {tokens.index[word] for word in NEGATIONS if word in tokens.index}
        typical = min(
            texts, key=lambda one: (negations.isdisjoint(one.tolist()), abs(len(one) - 9))
        )
        kept = torch.tensor([token not in negations for token in typical.tolist()])
        shown = (
            [typical]
            if kept.all() or not kept.any()
            else [typical, typical[kept.to(typical.device)]]
        )
        curves = []
        for text in shown:
            parts = [text[: t + 1] for t in range(len(text))]
            p = log_probabilities(model, parts)[:, -1].exp().cpu()
            curves.append(([tokens.vocabulary[token] for token in text.tolist()], p))
        ends = [f"{p[-1]:.1%}" for _, p in curves]
        drawn = along(curves, ylabel=f"probability of “{data.spec['classes'][-1]}”")
        return drawn, {"ends": " with it and ".join(ends) + " without" * (len(ends) - 1)}

    def picture_words(self, model: M, data: Data, history: History) -> Figure:
        """Unseen sentences with each word coloured by its effect on the last class.

        Red speaks for it, blue against: the change of the log-odds where the word is unknown.
        """
        tokens, classes = Tokens.of(data.spec), data.spec["classes"]
        texts, labels = _unpadded(data)
        predicted = log_probabilities(model, texts[:AT_ONCE]).argmax(1).tolist()
        rows = []
        for n in mix_classes(predicted, labels):
            log_p, effect = effects(model, texts[n], len(classes) - 1, unknown=tokens.unknown)
            words = [tokens.vocabulary[token] for token in texts[n].tolist()]
            rows.append((words, effect, prediction_label(log_p.exp(), labels[n], classes)))
        return coloured(rows, unit=f"effect of a word on “{classes[-1]}” (log-odds)")


@dataclass(frozen=True, kw_only=True)
class EmbeddedClassification(TextClassification[M]):
    """Predict the class of a text from embeddings of its words, some of which are dropped."""

    embedding: int = 32
    """Size of the embedding of a word."""
    dropout: float = 0.0
    """Dropout of embeddings and of the vectors of texts."""
    word_dropout: float = 0.05
    """Share of the words that are replaced by the unknown one in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "embedding")
        for name in ("dropout", "word_dropout"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")


def prediction_label(p: Float[Tensor, " classes"], label: int, classes: Sequence[str]) -> str:
    """The predicted class with its probability, and the true one where it is another."""
    best = int(p.argmax())
    return f"{classes[best]} {p[best]:.0%}" + f", true {classes[label]}" * (best != label)


def _unpadded(data: Data) -> tuple[list[Int[Tensor, " _"]], list[int]]:
    """The texts of a validation batch and their classes."""
    x, lengths, y = next(iter(data.valid))
    return [row[:length] for row, length in zip(x, lengths.tolist(), strict=True)], y.tolist()


def check_words(words: int) -> None:
    """Refuse a number of words that an answer cannot name."""
    if words < 0:
        raise UserError(f"words ({words}) must be at least 0, because so many are named")


def log_probabilities(
    model: nn.Module, texts: Sequence[Int[Tensor, " _"]]
) -> Float[Tensor, "texts classes"]:
    """The log-probabilities of the classes of each text, whatever the lengths."""
    found = []
    for start in range(0, len(texts), AT_ONCE):
        some = list(texts[start : start + AT_ONCE])
        x = pad_sequence(some, batch_first=True, padding_value=_PAD)
        lengths = torch.tensor([len(one) for one in some], device=x.device)
        found.append(model(x, lengths).double().log_softmax(1))
    return torch.cat(found)


def log_odds(log_p: Float[Tensor, "texts classes"], label: int) -> Float[Tensor, " texts"]:
    """The log-odds of one class against all others, from log-probabilities."""
    others = log_p.clone()
    others[:, label] = -math.inf
    return log_p[:, label] - others.logsumexp(1)


def effects(
    model: nn.Module,
    text: Int[Tensor, " time"],
    label: int | None = None,
    *,
    unknown: int = _UNKNOWN,
) -> tuple[Float[Tensor, " classes"], Float[Tensor, " time"]]:
    """The log-probabilities of the classes, and the effect of each word on one: the likeliest."""
    without = text.repeat(len(text), 1)
    without.fill_diagonal_(unknown)
    log_p = log_probabilities(model, [text, *without]).cpu()
    odds = log_odds(log_p, int(log_p[0].argmax()) if label is None else label)
    return log_p[0], odds[0] - odds[1:]


def mix_classes(predicted: Sequence[int], labels: Sequence[int], most: int = 8) -> list[int]:
    """Texts of each class in turn, a quarter of them mistaken where there are mistakes."""
    right = [n for n, label in enumerate(predicted) if label == labels[n]]
    wrong = [n for n, label in enumerate(predicted) if label != labels[n]][: most // 4]
    by_class = {label: [n for n in right if labels[n] == label] for label in sorted(set(labels))}
    turns = [n for group in zip(*by_class.values(), strict=False) for n in group]
    return (turns or right)[: most - len(wrong)] + wrong
