"""The transformer: translation by attention alone, every token looking at every other at once.

    x_p = sqrt(d) E[s_p] + PE(p)                               (1)  embedding and position
    memory = Encoder_N(.. Encoder_1(x))                        (2)  every source token reads all
    y_p = sqrt(d) E[v_p] + PE(p),  v_0 = <start>               (3)  the target so far
    s = Decoder_N(.. Decoder_1(y, memory), memory)             (4)  reads its past and the memory
    p(v_{p+1} | v_1 .. v_p, source) = softmax(E s_p)           (5)  the embedding gives the logits

PE are the positions of `nn/positions.py`, and the layers those of `nn/transformer.py`. E is one
matrix of a vocabulary that both languages share; d is the size of an embedding. `Transformer` is
the paper's, which normalises after each sublayer; `PreNormTransformer` normalises before it and
once more before (5), and trains without a long warm-up. In training all positions are computed at
once; in writing, keys and values of the tokens so far are kept, so that a token costs one step.

Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762. Unlike the paper, the
projections of attention have biases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, cast

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.nn import few_rows
from everynet.nn.attention import padding_mask, record_weights
from everynet.nn.positions import SinusoidalPositions
from everynet.nn.transformer import (
    DecoderLayer,
    DecoderState,
    EncoderLayer,
    PreNormDecoderLayer,
    PreNormEncoderLayer,
)
from everynet.plot.sentences import attention_maps
from everynet.zoo.translation.translation import (
    Translation,
    Translator,
    draw_alignments,
    typical,
)

States: TypeAlias = tuple[DecoderState, ...]
"""Keys and values of each layer of the decoder."""


class Transformer(Translator):
    """Maps source sentences to the logits of target tokens, with one vocabulary for both.

    x       (batch, source) -> memory  (batch, source, hidden)
    before  (batch, target) -> s       (batch, target, hidden) -> logits  (batch, target, tokens)
    """

    encoder_layer: ClassVar[type[EncoderLayer]] = EncoderLayer
    decoder_layer: ClassVar[type[DecoderLayer]] = DecoderLayer
    final_norm: ClassVar[type[nn.Module]] = nn.Identity  # post-norm layers end in one

    def __init__(
        self,
        vocabulary: int,
        *,
        hidden_size: int = 512,
        heads: int = 8,
        feedforward_size: int = 2048,
        layers: int = 6,
        dropout: float = 0.1,
        inner_dropout: float = 0.0,
        context: int = 256,
    ) -> None:
        super().__init__()
        size, drop = (hidden_size, heads, feedforward_size), (dropout, inner_dropout)
        self.embedding = nn.Embedding(vocabulary, hidden_size)
        self.context = context
        self.positions = SinusoidalPositions(hidden_size, context)
        self.dropout = nn.Dropout(dropout)
        self.encoder, self.decoder = (
            nn.ModuleList(
                layer(*size, dropout=drop[0], inner_dropout=drop[1]) for _ in range(layers)
            )
            for layer in (self.encoder_layer, self.decoder_layer)
        )
        self.encoder_norm, self.decoder_norm = (self.final_norm(hidden_size) for _ in range(2))
        nn.init.normal_(self.embedding.weight, std=hidden_size**-0.5)

    def embed(
        self, tokens: Int[Tensor, "batch time"], start: int = 0
    ) -> Float[Tensor, "batch time hidden"]:
        """Tokens and their positions, the first of which is `start`."""
        e = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        x: Tensor = self.dropout(self.positions(e, start=start))  # (1) (3)
        return x

    def encode(
        self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Tensor, Tensor]:
        """The memory, and the mask of its words."""
        mask, h = padding_mask(lengths, x.shape[1]), self.embed(x)
        for layer in self.encoder:
            h = layer(h, mask=mask)  # (2)
        return self.encoder_norm(h), mask

    def speak(self, s: Float[Tensor, "batch time hidden"]) -> Float[Tensor, "batch time tokens"]:
        """Logits of the next token."""
        return few_rows.linear(self.decoder_norm(s), self.embedding.weight)  # (5)

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        memory, mask = self.encode(x, lengths)
        s = self.embed(before)
        for layer in self.decoder:
            s = layer(s, memory, mask=mask)  # (4)
        return self.speak(s)

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> States:
        memory, mask = self.encode(x, lengths)
        layers = cast("Iterable[DecoderLayer]", self.decoder)
        return tuple(layer.begin(memory, self.context, mask=mask) for layer in layers)

    def step(
        self, tokens: Int64[Tensor, " batch"], state: States
    ) -> tuple[Float[Tensor, "batch tokens"], States]:
        s = self.embed(tokens[:, None], start=state[0][0].length)
        after = list[DecoderState]()
        for layer, before in zip(cast("Iterable[DecoderLayer]", self.decoder), state, strict=True):
            s, then = layer.step(s, before)
            after.append(then)
        return self.speak(s)[:, 0], tuple(after)

    def align(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target source"]:
        """The mean attention of the decoder to the source, over layers and heads."""
        with record_weights(self.decoder) as found:
            self(x, lengths, before)
        cross = [weights[0] for name, weights in found.items() if "cross" in name]
        return torch.stack(cross).mean((0, 2))


class PreNormTransformer(Transformer):
    """The same, with normalisation before each sublayer and after the last."""

    encoder_layer = PreNormEncoderLayer
    decoder_layer = PreNormDecoderLayer
    final_norm = nn.LayerNorm


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class TransformerTranslation(Translation[Transformer]):
    """Translate a sentence by attention alone."""

    network: ClassVar[type[Transformer]] = Transformer

    shared_vocabulary: bool = True
    """Whether source and target have one vocabulary, as (1), (3) and (5) share E: always."""
    hidden_size: int = 64
    """Size of an embedding and of every layer."""
    heads: int = 4
    """Heads of each attention."""
    feedforward_size: int = 128
    """Inner units of the feed-forward networks."""
    layers: int = 2
    """Layers of the encoder and of the decoder."""
    dropout: float = 0.0
    """Share of embeddings and outputs of sublayers that is set to 0 in training."""
    inner_dropout: float = 0.0
    """The same of attention and of the feed-forward networks' inner units."""
    context: int = 256
    """The most tokens of a sentence, source or target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "heads", "feedforward_size", "layers", "context")
        for name in ("dropout", "inner_dropout"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")
        self.require(self.shared_vocabulary, "shared_vocabulary", "true: both share an embedding")

    def dataset(self) -> Data:
        data = super().dataset()
        ends = [tensors[column] for tensors in data.splits.values() for column in (1, 3)]
        most = max(int(places.diff().max()) for places in ends if len(places) > 1)
        self.require(most <= self.context, "context", f"{most} or more, the longest of the data")
        return data

    def build(self, source: int, target: int) -> Transformer:
        return self.network(
            source, hidden_size=self.hidden_size, heads=self.heads,
            feedforward_size=self.feedforward_size, layers=self.layers, dropout=self.dropout,
            inner_dropout=self.inner_dropout, context=self.context,
        )  # fmt: skip

    def picture_alignment(self, model: Transformer, data: Data, history: History) -> Figure:
        """Attention to the source (across) for each token written (down), of validation sentences.

        It is the mean over heads and layers of the decoder.
        """
        return draw_alignments(model, data)

    def picture_heads(
        self, model: Transformer, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Every head of every cross-attention for one sentence, a row of maps for each layer.

        A token written has on average {sharp:.0%} of its attention on one token of the source in
        the sharpest head, and {spread:.0%} in the one that spreads it most.
        """
        x, lengths = typical(data, 0.1)
        outputs, _ = model.write(x, lengths, 2 * x.shape[1] + 10)
        with record_weights(model.decoder) as found:
            model(x, lengths, model.shift(outputs))
        tokens = Tokens.of(data.spec).vocabulary
        said, read = ([tokens[n] for n in row[0].tolist()] for row in (outputs, x))
        cross = [weights[0][0] for name, weights in found.items() if "cross" in name]
        maps = [
            (f"layer {n + 1}, head {h + 1}", head, said, read)
            for n, heads in enumerate(cross)
            for h, head in enumerate(heads)
        ]
        tops = torch.stack([head.amax(1).mean() for heads in cross for head in heads])
        drawn = attention_maps(maps, columns=min(self.heads, 4))
        return drawn, {"sharp": float(tops.max()), "spread": float(tops.min())}


@dataclass(frozen=True, kw_only=True)
class PreNormTranslation(TransformerTranslation):
    """Translate a sentence by attention alone, with normalisation before each sublayer."""

    network: ClassVar[type[Transformer]] = PreNormTransformer


RECIPES = {
    "transformer": TransformerTranslation(
        steps=3000, lr=2e-3, clip=1.0, warmup=100, schedule="cosine",
        goal="exact >= 0.99", covers=("T4", "T7", "T8"),
    ),
    "transformer-multi30k": PreNormTranslation(
        data="multi30k-de", tokens="bpe", vocabulary=8000, lower=True, hidden_size=256,
        feedforward_size=512, layers=4, dropout=0.3, inner_dropout=0.1, batch_size=128,
        steps=13_600, eval_every=1360, lr=1e-3, warmup=1000, schedule="cosine", clip=1.0,
        label_smoothing=0.1, pad_to=8, ema=0.999, goal="bleu >= 38.5", covers=("T8",),
    ),
}  # fmt: skip
