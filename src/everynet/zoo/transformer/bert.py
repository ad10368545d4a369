"""BERT: every token reads those on both sides, and learns from text whose tokens were masked.

    x_p = LN(E[s_p] + P[p] + G[g_p])                            (1)  token, position, segment
    h = Layer_N(.. Layer_1(x))                                  (2)  encoder, f is the exact GELU
    c = tanh(W h_0 + w)                                         (3)  pooler: the vector of [CLS]
    p(s_p | the rest) = softmax(E LN(f(V h_p + v)) + e)         (4)  masked token
    p(b follows a) = softmax(U c + u)                           (5)  next segment
    s_p -> [MASK] (80 %), a random token (10 %), s_p (10 %)     (6)  for p in M, 15 % of the tokens
    L = -mean_{p in M} log p(s_p | the rest) - log p(b follows a or not)    (7)

A text is [CLS] a [SEP] b [SEP]; g_p is 0 up to the first [SEP] and 1 after it. In half of the texts
b is what follows a, in the others a stretch from elsewhere. LN is layer normalisation, the layers
are those of `nn/transformer.py`, and E gives embeddings and logits. M and (6) are drawn anew at
each update, so that no text is seen twice with the same tokens masked. The network learns from
plain text and is then trained on a task, such as naming the class of a text from c.

Devlin et al. (2019), "BERT: pre-training of deep bidirectional transformers for language
understanding", arXiv:1810.04805. Unlike the paper, the inner units of feed-forward networks are
dropped out too, 15 % are counted over a batch and not in each text, unknown tokens are never
masked, and in evaluation all of M are [MASK]: a token that stays could be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, pad
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.draws import Share
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.samplers import Buckets, Windows
from everynet.data.texts.given import BERT as SPECIAL
from everynet.data.texts.tokens import Tokens
from everynet.nn.attention import padding_mask, record_weights
from everynet.nn.positions import LearnedPositions
from everynet.nn.transformer import EncoderLayer
from everynet.plot import Panel, panels
from everynet.plot.sentences import head_maps
from everynet.plot.text import drawable
from everynet.plot.words import WordBar, gap_candidates
from everynet.recipes.published import Published
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.language.cloze import find_gap
from everynet.zoo.recurrent.classified import TextClassification
from everynet.zoo.transformer.pictures.attention import rests_on

SHARE, MASKED, RANDOM = 0.15, 0.8, 0.1
"""Tokens that are chosen, and how many of these become [MASK] and how many a random token."""
SHOWN = 5
"""Guesses of a gap."""
READ = 6
"""Tokens whose attention is drawn."""
PAD_TO = 16
"""Lengths of batches of texts are rounded up to a multiple of it: fewer shapes to capture."""


class BERTLayer(EncoderLayer):
    """Maps sequences to sequences by self-attention and a feed-forward network, post-norm."""

    eps: ClassVar[float] = 1e-12

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """The exact GELU, x times the normal distribution at x."""
        return gelu(x)


class BERT(nn.Module):
    """Maps tokens to a vector for each, which has read all others, and to one for the whole text.

    x  (batch, time)  ->  h  (batch, time, hidden),  c  (batch, hidden)
    """

    unknown, start, end, mask = 1, 2, 3, 4
    """Numbers of [UNK], [CLS], [SEP] and [MASK]; 0 is padding."""

    def __init__(
        self,
        vocabulary: int,
        *,
        hidden_size: int = 768,
        heads: int = 12,
        feedforward_size: int = 3072,
        layers: int = 12,
        dropout: float = 0.1,
        inner_dropout: float = 0.1,
        context: int = 512,
    ) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(vocabulary, hidden_size)
        self.positions = LearnedPositions(hidden_size, context)
        self.segments = nn.Embedding(2, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=BERTLayer.eps)
        self.dropout = nn.Dropout(dropout)
        size, drop = (hidden_size, heads, feedforward_size), (dropout, inner_dropout)
        self.layers = nn.ModuleList(
            BERTLayer(*size, dropout=drop[0], inner_dropout=drop[1]) for _ in range(layers)
        )
        self.pooler = nn.Linear(hidden_size, hidden_size)
        for table in (self.embedding, self.segments):
            nn.init.normal_(table.weight, std=0.02)

    def encode(
        self,
        x: Int64[Tensor, "batch time"],
        lengths: Int64[Tensor, " batch"] | None = None,
        segments: Int64[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "batch hidden"]]:
        """The vectors h of tokens and c of texts; without `segments` all are the first.

        Texts may be padded after `lengths`.
        """
        mask = None if lengths is None else padding_mask(lengths, x.shape[1])
        g = self.segments(torch.zeros_like(x) if segments is None else segments)
        h = self.dropout(self.norm(self.positions(self.embedding(x) + g)))  # (1)
        for layer in self.layers:
            h = layer(h, mask=mask)  # (2)
        return h, self.pooler(h[:, 0]).tanh()  # (3)

    def forward(
        self,
        x: Int64[Tensor, "batch time"],
        lengths: Int64[Tensor, " batch"] | None = None,
        segments: Int64[Tensor, "batch time"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        return self.encode(x, lengths, segments)

    def join(
        self, a: Int64[Tensor, "batch first"], b: Int64[Tensor, "batch second"]
    ) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, "batch time"]]:
        """[CLS] a [SEP] b [SEP], and which segment each token is of."""
        start, end = (torch.full_like(a[:, :1], n) for n in (self.start, self.end))
        parts = (torch.cat([start, a, end], 1), torch.cat([b, end], 1))
        return torch.cat(parts, 1), torch.cat(
            [torch.full_like(p, n) for n, p in enumerate(parts)], 1
        )

    def enclose(
        self, x: Int64[Tensor, "batch time"], lengths: Int64[Tensor, " batch"]
    ) -> tuple[Int64[Tensor, "batch longer"], Int64[Tensor, " batch"]]:
        """[CLS] x [SEP] of texts that are padded after `lengths`, and their lengths then."""
        x = pad(pad(x, (1, 0), value=self.start), (0, 1))
        return x.scatter(1, lengths[:, None] + 1, self.end), lengths + 2

    def vectors(
        self, x: Int64[Tensor, "batch time"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, "batch hidden"]:
        """The mean of h over the tokens of each text."""
        h, _ = self.encode(*self.enclose(x, lengths))
        inside = padding_mask(lengths, x.shape[1]).mT
        return (h[:, 1:-1] * inside).sum(1) / lengths[:, None]


class PretrainingBERT(BERT):
    """Maps tokens to logits of the token at each place, and of whether b follows a (class 0)."""

    def __init__(self, vocabulary: int, *, hidden_size: int = 768, **sizes: Any) -> None:  # noqa: ANN401 -- those of BERT
        super().__init__(vocabulary, hidden_size=hidden_size, **sizes)
        self.guess_inner = nn.Linear(hidden_size, hidden_size)
        self.guess_norm = nn.LayerNorm(hidden_size, eps=BERTLayer.eps)
        self.guess_bias = nn.Parameter(torch.zeros(vocabulary))
        self.follows = nn.Linear(hidden_size, 2)

    def guess(self, h: Float[Tensor, "*places hidden"]) -> Float[Tensor, "*places vocab"]:
        """Logits of the tokens at some places."""
        v = self.guess_norm(BERTLayer.activation(self.guess_inner(h)))
        return linear(v, self.embedding.weight, self.guess_bias)  # (4)

    def forward(
        self,
        x: Int64[Tensor, "batch time"],
        lengths: Int64[Tensor, " batch"] | None = None,
        segments: Int64[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "batch 2"]]:
        h, c = self.encode(x, lengths, segments)
        return self.guess(h), self.follows(c)  # (5)


class BERTClassifier(BERT):
    """Maps texts to logits of their classes."""

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        hidden_size: int = 768,
        dropout: float = 0.1,
        **sizes: Any,  # noqa: ANN401 -- those of BERT
    ) -> None:
        super().__init__(vocabulary, hidden_size=hidden_size, dropout=dropout, **sizes)
        self.classifier = nn.Linear(hidden_size, classes)

    def forward(  # type: ignore[override]  # a classifier of texts, as others are
        self, x: Int64[Tensor, "batch time"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, "batch classes"]:
        _, c = self.encode(*self.enclose(x, lengths))
        z: Tensor = self.classifier(self.dropout(c))
        return z


def pair_segments(
    windows: Int64[Tensor, "batch both"], follows: Bool[Tensor, " batch"]
) -> tuple[Int64[Tensor, "batch each"], Int64[Tensor, "batch each"], Int64[Tensor, " batch"]]:
    """Segments a and b, and 1 where b does not follow: it is then that of another window."""
    a, b = windows.chunk(2, 1)
    other = torch.where(follows[:, None], b, b.roll(len(b) // 2, 0))
    return a, other, (other != b).any(1).long()


def choose_places(
    scores: Float[Tensor, "batch time"], allowed: Bool[Tensor, "batch time"], count: int
) -> Int64[Tensor, " {count}"]:
    """The `count` allowed places with the largest random scores, counted row by row."""
    return scores.masked_fill(~allowed, -1).flatten().topk(count).indices


def mask_tokens(
    x: Int64[Tensor, "batch time"], places: Int64[Tensor, " count"], mask: int, vocabulary: int
) -> Int64[Tensor, "batch time"]:
    """The text with most of the tokens at these places masked, others random or as they are."""
    true, u = x.flatten()[places], torch.rand(places.shape, device=x.device)
    drawn = torch.where(u < MASKED + RANDOM, torch.randint_like(true, vocabulary), true)
    given = torch.where(u < MASKED, mask, drawn)  # (6)
    return x.flatten().scatter(0, places, given).view_as(x)


# -------- the network ends here; training and pictures follow --------

M = TypeVar("M", bound=BERT)

_LAYER = "encoder.layer.{n}."
_NAMES: Mapping[str, str | tuple[str, ...]] = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "positions.table": "embeddings.position_embeddings.weight",
    "segments.weight": "embeddings.token_type_embeddings.weight",
    **{
        f"{ours}.{part}": f"{theirs}.{part}"
        for part in ("weight", "bias")
        for ours, theirs in {
            "norm": "embeddings.LayerNorm",
            "layers.{n}.attention.output": _LAYER + "attention.output.dense",
            "layers.{n}.around_attention.norm": _LAYER + "attention.output.LayerNorm",
            "layers.{n}.feedforward.inner": _LAYER + "intermediate.dense",
            "layers.{n}.feedforward.output": _LAYER + "output.dense",
            "layers.{n}.around_feedforward.norm": _LAYER + "output.LayerNorm",
            "pooler": "pooler.dense",
        }.items()
    },
    **{
        f"layers.{{n}}.attention.project.{part}": tuple(
            f"{_LAYER}attention.self.{name}.{part}" for name in ("query", "key", "value")
        )
        for part in ("weight", "bias")
    },
}
"""Names of the layout of Hugging Face by the names here."""
_GUESSES = {
    "guess_bias": "cls.predictions.bias",
    **{
        f"{ours}.{part}": f"cls.{theirs}.{part}"
        for part in ("weight", "bias")
        for ours, theirs in {
            "guess_inner": "predictions.transform.dense",
            "guess_norm": "predictions.transform.LayerNorm",
            "follows": "seq_relationship",
        }.items()
    },
}
_CLASSES = {f"classifier.{part}": f"classifier.{part}" for part in ("weight", "bias")}
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def _layout(own: Mapping[str, str], other: Mapping[str, str]) -> Published:
    """The table for a network with its own heads; those of another are left out."""
    return Published(
        model_type="bert",
        sizes={
            "hidden_size": "hidden_size", "num_hidden_layers": "layers",
            "num_attention_heads": "heads", "intermediate_size": "feedforward_size",
            "max_position_embeddings": "context", "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "inner_dropout",
        },
        fixed={
            "hidden_act": ("gelu",), "layer_norm_eps": (1e-12,), "type_vocab_size": (2,),
            "position_embedding_type": ("absolute",), "is_decoder": (False,),
        },
        names={**_NAMES, **own},
        layers="num_hidden_layers",
        optional=frozenset({*own, "pooler.weight", "pooler.bias"}),
        prefix="bert.",
        ignored=("position_ids", *other.values()),
        tied=_TIED,
    )  # fmt: skip


@dataclass(frozen=True)
class WholeWindows(Windows):
    """Windows that begin anywhere, alone; evaluated side by side, without the rest of the text."""

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        return super().batch(split, batch_size, seed, step, share)[:1]

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        (stream,) = split
        windows = stream[: len(stream) // self.length * self.length].unflatten(0, (-1, self.length))
        for some in windows.split(max(1, at_once // self.length)):
            yield (some.long(),)


@dataclass(frozen=True, kw_only=True)
class BERTTraining(Training[M]):
    """Train a BERT."""

    hidden_size: int = 64
    """Size of an embedding and of every layer."""
    heads: int = 4
    """Heads of each attention."""
    feedforward_size: int = 256
    """Inner units of the feed-forward networks."""
    layers: int = 2
    """Layers of the encoder."""
    dropout: float = 0.1
    """Share of embeddings and outputs of sublayers that is set to 0 in training."""
    inner_dropout: float = 0.1
    """The same of attention and of the feed-forward networks' inner units."""
    context: int = 128
    """The most tokens of a text, [CLS] and [SEP] among them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "heads", "feedforward_size", "layers", "context")
        for name in ("dropout", "inner_dropout"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")

    def sizes(self) -> dict[str, Any]:
        """What every BERT is built from."""
        return {
            "hidden_size": self.hidden_size, "heads": self.heads, "layers": self.layers,
            "feedforward_size": self.feedforward_size, "dropout": self.dropout,
            "inner_dropout": self.inner_dropout, "context": self.context,
        }  # fmt: skip

    def with_special(self, model: M, spec: Spec) -> M:
        """The network with the numbers of special tokens, which a published vocabulary sets."""
        tokens = Tokens.of(spec)
        model.unknown, model.start, model.end = tokens.unknown, tokens.start, tokens.end
        model.mask = tokens.special_numbers[4]
        return model


@dataclass(frozen=True, kw_only=True)
class MaskedTokens(BERTTraining[PretrainingBERT]):
    """Guess the masked tokens of a text, and whether one segment follows another."""

    meanings: ClassVar[Mapping[str, str]] = {
        "masked_accuracy": "the share of hidden tokens that are guessed, all shown as masks",
        "unigram": "the masked accuracy of always guessing the commonest token",
        "over_unigram": "how many times the unigram accuracy the masked accuracy is",
        "next_accuracy": "the share of pairs classified correctly: following or from elsewhere",
        "cross_entropy": "the cross-entropy of masked tokens in nats, the mean",
    }
    published: ClassVar[Published] = _layout(_GUESSES, _CLASSES)

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    tokens: str = "bpe"
    """Tokens: bpe, words or characters; or a vocabulary, of a run or in a published vocab.txt."""
    vocabulary: int = 2000
    """Size of the vocabulary, the commonest tokens; 0 keeps every one of the training text."""
    lower: bool = True
    """Whether a text is lower-cased first, also that of a prediction."""
    segment: int = 24
    """Tokens of each of the two segments."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "batch_size", "segment")
        least = 2 * self.segment + 3
        self.require(self.context >= least, "context", f"{least} or more: [CLS] a [SEP] b [SEP]")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="text", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, special=SPECIAL,
            sampler=WholeWindows(2 * self.segment),
        )  # fmt: skip
        most = min(len(split[0]) for split in data.splits.values()) // 2
        self.require(self.segment <= most, "segment", f"at most {most}, so that a part holds two")
        return data

    def model(self, data: Data) -> PretrainingBERT:
        vocabulary = len(Tokens.of(data.spec))
        return self.with_special(PretrainingBERT(vocabulary, **self.sizes()), data.spec)

    def _choose(self, model: BERT, x: Tensor, scores: Tensor) -> Tensor:
        words = (x != 0) & (x != model.unknown) & (x != model.start) & (x != model.end)
        return choose_places(scores, words, round(SHARE * len(x) * 2 * self.segment))

    def objective(self, model: PretrainingBERT, batch: Batch) -> Terms:
        (windows,) = batch
        follows = torch.rand(len(windows), device=windows.device) < 0.5
        a, b, other = pair_segments(windows, follows)
        x, segments = model.join(a, b)
        places = self._choose(model, x, torch.rand(x.shape, device=x.device))
        masked = mask_tokens(x, places, model.mask, model.embedding.num_embeddings)
        h, c = model.encode(masked, segments=segments)
        guesses = model.guess(h.flatten(0, 1)[places])
        return {
            "masked": cross_entropy(guesses, x.flatten()[places]),
            "next": cross_entropy(model.follows(c), other),
        }  # (7)

    def metrics(self, model: PretrainingBERT, batch: Batch) -> dict[str, Tensor]:
        """Of each masked token and of each pair, which are the same at every evaluation."""
        windows, drawn = batch[0], generator(0)
        device = windows.device
        a, b, other = pair_segments(
            windows, torch.rand(len(windows), generator=drawn).to(device) < 0.5
        )
        x, segments = model.join(a, b)
        places = self._choose(model, x, torch.rand(x.shape, generator=drawn).to(device))
        true = x.flatten()[places]
        masked = x.flatten().index_fill(0, places, model.mask).view_as(x)
        h, c = model.encode(masked, segments=segments)
        guesses = model.guess(h.flatten(0, 1)[places])
        return {
            "masked_accuracy": (guesses.argmax(1) == true).double(),
            "next_accuracy": (model.follows(c).argmax(1) == other).double(),
            "cross_entropy": cross_entropy(guesses, true, reduction="none"),
            "token": true,
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        tokens = outputs["token"]
        means = {n: v.double().mean().item() for n, v in outputs.items() if n != "token"}
        unigram = tokens.bincount().max().item() / len(tokens)
        return {
            **means,
            "unigram": unigram,
            "over_unigram": means["masked_accuracy"] / unigram,
        }

    def predict(
        self,
        model: PretrainingBERT,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        candidates: int = SHOWN,
        follows: str = "",
        embeddings: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """The tokens that fill the gap ___ of each line best, with their probabilities.

        With `follows=TEXT` the probability that this text follows the line, and with `embeddings`
        the vector of the line, the mean of those of its tokens.
        """
        tokens = Tokens.of(spec)
        known = len(tokens) - len(tokens.special)
        if not 1 <= candidates <= known:
            raise UserError(f"candidates ({candidates}) must be from 1 to the {known} tokens")
        if embeddings:
            return sentence_vectors(model, inputs)
        if follows:
            return [_compare_segments(model, line, follows, tokens) for line in inputs]
        answers: list[dict[str, Any]] = []
        for line in inputs:
            p, best = fill_gap(model, line, tokens).topk(candidates)
            texts = [tokens.decode([number]) for number in best.tolist()]
            said = [text.strip() or text for text in texts]
            answers.append(
                {
                    "filled": tokens.decode(torch.where(line == BLANK, best[0], line).tolist()),
                    "candidates": [list(pair) for pair in zip(said, p.tolist(), strict=True)],
                    "unknown": int((line == tokens.unknown).sum()),
                }
            )
        return answers

    def picture_gaps(self, model: PretrainingBERT, data: Data, history: History) -> Figure:
        """Unseen lines with a gap, and the likeliest tokens there by the network.

        The orange bar is the token that stood there, last where it is none of the likeliest.
        """
        tokens, windows = Tokens.of(data.spec), next(data.valid)[0][:, : self.segment]
        words = [whole_words(window, tokens) for window in windows]
        rows = sorted(range(len(windows)), key=lambda row: -len(words[row]))[:3]
        drawn = []
        for row in rows:
            window = windows[row]
            gap = words[row][len(words[row]) // 2] if words[row] else 0
            line = window.clone()
            line[gap], true = BLANK, int(window[gap])
            p = fill_gap(model, line, tokens).cpu()
            shown = dict.fromkeys([*p.topk(SHOWN).indices.tolist(), true])
            said = {n: tokens.decode([n]) for n in shown}
            bars = [
                WordBar(text.strip() or drawable(text), p[n].item(), marked=n == true)
                for n, text in said.items()
            ]
            sides = window[:gap], window[gap + 1 :]
            before, after = (" ".join(tokens.decode(side.tolist()).split()) for side in sides)
            drawn.append((f"{before} {GAP} {after}", bars))
        return gap_candidates(drawn, "probability by the network")

    def picture_heads(
        self, model: PretrainingBERT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The attention of some heads, a row of maps for each layer, on two short unseen segments.

        The head that looks most at the neighbours of a token has {near:.0%} of its attention there,
        the one that looks most at the separators {ends:.0%}.
        """
        words = next(data.valid)[0][:1, :READ]
        x, segments = model.join(*words.chunk(2, 1))
        layers, at = _attention(model, x, segments), torch.arange(x.shape[1])
        ends = (x[0] == x[0, -1]).cpu().expand(len(at), -1)  # a text ends in a separator
        near = (at[:, None] - at).abs() == 1
        shares = {"near": rests_on(layers, near), "ends": rests_on(layers, ends)}
        return draw_heads(model, x, segments, Tokens.of(data.spec)), shares

    def picture_frequency(
        self, model: PretrainingBERT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """The share of masked validation tokens that are guessed, by their count in training.

        Of the commonest {common:.0%} are guessed, and of the rarest {rare:.0%}.
        """
        found = [self.metrics(model, batch) for batch in data.valid]
        right, token = (
            torch.cat([each[name] for each in found]).cpu() for name in ("masked_accuracy", "token")
        )
        counts = data.splits["train"][0].long().bincount(minlength=int(token.max()) + 1).cpu()
        size = (2 * (counts[token] + 1.0).log10()).floor()
        sizes = size.unique()
        shares = torch.stack([right[size == one].mean() for one in sizes])
        drawn = panels(
            Panel(
                {"guessed": (10 ** (sizes / 2 + 0.25), shares)},
                "count of the token in the training text", "share that is guessed",
                f"{len(token):,} masked tokens", log="x", legend="upper left",
                levels={"always the commonest": token.bincount().max().item() / len(token)},
            ),
            width=5.0,
        )  # fmt: skip
        return drawn, {"common": shares[-1].item(), "rare": shares[0].item()}

    def tiny(self) -> Self:
        return replace(
            super().tiny(), tokens="words", vocabulary=300, segment=6, context=32,
            feedforward_size=8, warmup=0, lr=1e-2,
        )  # fmt: skip


def _check_context(model: BERT, tokens: int) -> None:
    """Refuse texts that have more tokens than the network has positions."""
    if tokens > model.context:
        raise UserError(
            f"a text ({tokens:,} tokens, [CLS] and [SEP] among them) must have at most "
            f"{model.context:,}, the context of the network; divide it, or train with "
            f"context={tokens}"
        )


def fill_gap(
    model: PretrainingBERT, line: Int64[Tensor, " words"], tokens: Tokens
) -> Float[Tensor, " vocab"]:
    """The probability of each token in the one gap of a line; special ones are left out."""
    gap, text = find_gap(line), torch.where(line == BLANK, model.mask, line)[None]
    x, lengths = model.enclose(text, torch.full_like(text[:, 0], len(line)))
    _check_context(model, x.shape[1])
    logits = model.guess(model.encode(x, lengths)[0][0, gap + 1]).double()
    logits[tokens.special_numbers] = -torch.inf
    return logits.softmax(0)


def _compare_segments(
    model: PretrainingBERT, line: Tensor, text: str, tokens: Tokens
) -> dict[str, Any]:
    """The probability that a text follows a line."""
    b = line.new_tensor(tokens.encode(text))
    a = torch.where(line == BLANK, model.mask, line)
    for segment, name in ((a, "a line"), (b, "follows")):
        if len(segment) < 2:
            raise UserError(
                f"{name} ({len(segment)} token) must have at least 2, because one word does not "
                "tell what a segment is about; give more of it"
            )
    x, segments = model.join(a[None], b[None])
    _check_context(model, x.shape[1])
    p = model.follows(model.encode(x, segments=segments)[1]).double().softmax(1)
    return {"follows": p[0, 0].item(), "tokens": [len(a), len(b)]}


def sentence_vectors(model: BERT, texts: Sequence[Int64[Tensor, " _"]]) -> list[dict[str, Any]]:
    """The vector of each text, as plain numbers."""
    _check_context(model, max(map(len, texts)) + 2)
    x = pad_sequence([torch.where(one == BLANK, model.mask, one) for one in texts], True)
    lengths = torch.tensor([len(one) for one in texts], device=x.device)
    return [{"embedding": vector} for vector in model.vectors(x, lengths).double().tolist()]


def whole_words(window: Int64[Tensor, " time"], tokens: Tokens) -> list[int]:
    """The places of tokens that are a word of three letters or more, and no part of one."""
    names = [tokens.vocabulary[n] for n in window.tolist()]
    begins = [tokens.kind != "bpe" or name[:1].isspace() for name in [*names, " "]]
    words = [name.strip() for name in names]
    return [
        n for n, word in enumerate(words)
        if begins[n] and begins[n + 1] and len(word) > 2 and word.isalpha()
    ]  # fmt: skip


def draw_heads(
    model: BERT, x: Int64[Tensor, "1 time"], segments: Tensor | None, tokens: Tokens
) -> Figure:
    """The attention of up to four heads of up to four layers, from the first to the last."""
    return head_maps(_attention(model, x, segments), [tokens.vocabulary[n] for n in x[0].tolist()])


def _attention(
    model: BERT, x: Int64[Tensor, "1 time"], segments: Tensor | None
) -> list[Float[Tensor, "heads queries keys"]]:
    with record_weights(model.layers) as found:
        model.encode(x, segments=segments)
    return [weights[0][0].cpu() for weights in found.values()]


@dataclass(frozen=True, kw_only=True)
class BERTClassification(TextClassification[BERTClassifier], BERTTraining[BERTClassifier]):
    """Predict the class of a text from the vector of [CLS]."""

    published: ClassVar[Published] = _layout(_CLASSES, _GUESSES)

    def dataset(self) -> Data:
        data = load(
            self.data, kind="labelled", batch_size=self.batch_size, seed=self.seed,
            tokens=self.tokens, vocabulary=self.vocabulary, lower=self.lower, special=SPECIAL,
            text=self.text, target=self.target,
        )  # fmt: skip
        most = max(int(split[1].diff().max()) for split in data.splits.values()) + 2
        self.require(most <= self.context, "context", f"{most} or more, the longest of the data")
        return replace(data, sampler=Buckets(("ragged", "plain"), PAD_TO))

    def model(self, data: Data) -> BERTClassifier:
        vocabulary, classes = len(Tokens.of(data.spec)), len(data.spec["classes"])
        return self.with_special(BERTClassifier(vocabulary, classes, **self.sizes()), data.spec)

    def predict(
        self,
        model: BERTClassifier,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        words: int = 3,
        draw: bool = False,
        embeddings: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """The class, the probability of each, and the `words` with the largest effect.

        `draw` adds a picture of these effects; `embeddings` gives the vector of each text instead.
        """
        if embeddings:
            return sentence_vectors(model, inputs)
        _check_context(model, max(map(len, inputs)) + 2)
        return super().predict(model, inputs, spec, words=words, draw=draw)

    def picture_heads(self, model: BERTClassifier, data: Data, history: History) -> Figure:
        """The attention of some heads, a row of maps for each layer, on a short unseen text.

        The first row of a map is what the token reads whose vector gives the class.
        """
        x, lengths, _ = next(data.valid)
        row = int((lengths - READ).abs().argmin())
        text, length = x[row : row + 1, : lengths[row]], lengths[row : row + 1]
        return draw_heads(model, model.enclose(text, length)[0], None, Tokens.of(data.spec))

    def tiny(self) -> Self:
        return replace(super().tiny(), context=64, feedforward_size=8)


RECIPES = {
    "bert": MaskedTokens(
        vocabulary=600, segment=16, feedforward_size=128, dropout=0.0, inner_dropout=0.0,
        steps=3000, batch_size=48, lr=4e-3, warmup=100, schedule="linear", clip=1.0,
        eval_every=300, goal="over_unigram >= 2 and next_accuracy >= 0.65", covers=("T12",),
    ),
    "bert-text8": MaskedTokens(
        data="text8", vocabulary=16_000, segment=37, hidden_size=256, feedforward_size=1024,
        layers=4, steps=12_000, batch_size=256, lr=1e-3, optimizer="adamw", weight_decay=1e-2,
        warmup=1000, schedule="linear", clip=1.0, eval_every=1000,
        goal="over_unigram >= 2 and next_accuracy >= 0.65", covers=("T12",),
    ),
    "bert-sst": BERTClassification(
        data="sst", lower=True, hidden_size=256, feedforward_size=1024, layers=4, steps=1296,
        batch_size=32, lr=2e-4, optimizer="adamw", weight_decay=1e-2, warmup=130,
        schedule="linear", clip=1.0, goal="accuracy >= 0.75", covers=("T12",),
    ),
}  # fmt: skip
