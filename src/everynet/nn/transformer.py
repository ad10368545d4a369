"""Layers of a transformer: attention and a feed-forward network, each with a way around it.

    FFN(x) = f(x W1 + b1) W2 + b2                     (1)  at each position by itself
    x' = LN(x + S(x))                                 (2)  post-norm, as in the paper
    x' = x + S(LN(x))                                 (3)  pre-norm

S is a sublayer, LN the layer normalisation and f the positive part, unless a class says otherwise
(`activation`). An encoder layer has two sublayers: self-attention and FFN. A decoder layer has
three: causal self-attention, cross-attention to the memory (the output of the encoder), and FFN.
With (3) the way around is the identity from the first layer to the last, and the network ends in a
normalisation of its own.

Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762, section 3.1; Xiong et al.
(2020), "On layer normalization in the transformer architecture", arXiv:2002.04745, for (3). Unlike
the paper, weights of attention and the inner numbers of FFN may be dropped out too
(`inner_dropout`), besides the output of each sublayer (`dropout`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everynet.nn import few_rows
from everynet.nn.attention import (
    Hidden,
    KeyValueCache,
    Mask,
    MemoryCache,
    MultiHeadAttention,
)

Activation: TypeAlias = Callable[[Tensor], Tensor]
DecoderState: TypeAlias = tuple[KeyValueCache, MemoryCache]
"""Keys and values of the tokens so far, and of the memory."""


class FeedForward(nn.Module):
    """Maps each time step by the same two layers."""

    def __init__(
        self,
        hidden_size: int,
        feedforward_size: int,
        *,
        dropout: float = 0.0,
        activation: Activation = torch.relu,
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden_size, feedforward_size)
        self.output = nn.Linear(feedforward_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.activation = activation

    def forward(self, x: Hidden) -> Hidden:
        h = self.activation(self.inner(x))
        y: Tensor = self.output(self.dropout(h) if self.training else h)  # (1)
        return y

    def step(self, x: Hidden) -> Hidden:
        """The same without dropout, by a loop that is faster for the few rows of a decoder."""
        if not few_rows.fits(x):
            return self.forward(x)
        h = self.activation(few_rows.multiply(x, self.inner.weight, self.inner.bias))
        return few_rows.multiply(h, self.output.weight, self.output.bias)


class _Residual(nn.Module):
    """The way around a sublayer and its normalisation, post-norm."""

    def __init__(self, hidden_size: int, dropout: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden, sublayer: Callable[[Tensor], Tensor]) -> Hidden:
        y: Tensor = self.norm(x + self.drop(sublayer(x)))  # (2)
        return y

    def drop(self, y: Tensor) -> Tensor:
        """Dropout, which costs nothing where there is none: a decoder takes many small steps."""
        return self.dropout(y) if self.training else y


class _PreNormResidual(_Residual):
    """The way around a sublayer, which is given normalised numbers."""

    def forward(self, x: Hidden, sublayer: Callable[[Tensor], Tensor]) -> Hidden:
        y: Tensor = x + self.drop(sublayer(self.norm(x)))  # (3)
        return y


class EncoderLayer(nn.Module):
    """Maps sequences to sequences by self-attention and a feed-forward network, post-norm."""

    residual: type[_Residual] = _Residual
    eps: ClassVar[float] = 1e-5  # added to the variance in LN

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        feedforward_size: int,
        *,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(hidden_size, heads, dropout=inner_dropout)
        self.feedforward = FeedForward(
            hidden_size, feedforward_size, dropout=inner_dropout, activation=self.activation
        )
        self.around_attention = self.residual(hidden_size, dropout, self.eps)
        self.around_feedforward = self.residual(hidden_size, dropout, self.eps)

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """The function f of the feed-forward network."""
        return x.relu()

    def forward(self, x: Hidden, *, mask: Mask | None = None, causal: bool = False) -> Hidden:
        x = self.around_attention(x, lambda x: self.attention(x, mask=mask, causal=causal))
        y: Tensor = self.around_feedforward(x, self.feedforward)
        return y

    def step(self, x: Hidden, past: KeyValueCache) -> tuple[Hidden, KeyValueCache]:
        """The causal output of further time steps, and the keys and values after them."""

        def attend_past(x: Tensor) -> Tensor:
            nonlocal past
            y, past = self.attention.step(x, past)
            return y

        x = self.around_attention.forward(x, attend_past)  # without the cost of a module's call
        return self.around_feedforward.forward(x, self.feedforward.step), past


class DecoderLayer(nn.Module):
    """Maps sequences to sequences by causal self-attention, cross-attention and a network."""

    residual: type[_Residual] = _Residual

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        feedforward_size: int,
        *,
        dropout: float = 0.0,
        inner_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(hidden_size, heads, dropout=inner_dropout)
        self.cross_attention = MultiHeadAttention(hidden_size, heads, dropout=inner_dropout)
        self.feedforward = FeedForward(hidden_size, feedforward_size, dropout=inner_dropout)
        self.around_self = self.residual(hidden_size, dropout)
        self.around_cross = self.residual(hidden_size, dropout)
        self.around_feedforward = self.residual(hidden_size, dropout)

    def forward(
        self,
        x: Hidden,
        memory: Float[Tensor, "batch keys hidden"],
        *,
        mask: Mask | None = None,
    ) -> Hidden:
        """The mask is that of the memory; padding of x comes after all that counts."""
        x = self.around_self(x, lambda x: self.self_attention(x, causal=True))
        x = self.around_cross(x, lambda x: self.cross_attention(x, memory, mask=mask))
        y: Tensor = self.around_feedforward(x, self.feedforward)
        return y

    def begin(
        self,
        memory: Float[Tensor, "batch keys hidden"],
        context: int,
        *,
        mask: Mask | None = None,
    ) -> DecoderState:
        """The state before the first of up to `context` time steps."""
        empty = self.self_attention.empty_cache(memory.shape[0], context)
        return empty, self.cross_attention.cache_memory(memory, mask)

    def step(self, x: Hidden, state: DecoderState) -> tuple[Hidden, DecoderState]:
        """The output of further time steps, and the state after them."""
        past, memory = state

        def attend_past(x: Tensor) -> Tensor:
            nonlocal past
            y, past = self.self_attention.step(x, past)
            return y

        x = self.around_self.forward(x, attend_past)  # without the cost of a module's call
        x = self.around_cross.forward(x, lambda x: self.cross_attention.look_up(x, memory))
        return self.around_feedforward.forward(x, self.feedforward.step), (past, memory)


class PreNormEncoderLayer(EncoderLayer):
    """The same, pre-norm."""

    residual = _PreNormResidual


class PreNormDecoderLayer(DecoderLayer):
    """The same, pre-norm."""

    residual = _PreNormResidual
