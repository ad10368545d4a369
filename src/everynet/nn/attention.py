"""Attention: a query reads the mean of values, weighted by its scores against their keys.

    e_ij = v . tanh(W q_i + U k_j)                         (1)  additive score
    e_ij = q_i . k_j                                       (2)  dot
    e_ij = q_i . k_j / sqrt(d)                             (3)  scaled dot
    e_ij = q_i . k_j / (|q_i| |k_j|)                       (4)  cosine
    a_ij = exp(e_ij) / sum_{l in M_i} exp(e_il)            (5)  weights; 0 for j not in M_i
    o_i  = sum_j a_ij v_j                                  (6)  output
    M_i  = {j <= i}                                        (7)  causal mask
    M_i  = {j < length}                                    (8)  padding mask
    M_i  = {j : |i - j| <= r}                              (9)  banded mask
    Q, K, V = x Wq + bq, m Wk + bk, m Wv + bv             (10)  projections
    y    = [o^1 .. o^H] Wo + bo                           (11)  heads side by side

q_i, k_j and v_j are rows of Q, K and V; d is the size of a key, and M_i are the keys that query i
may read. x reads m; in self-attention m is x itself. Each of the H heads takes its own d columns of
Q, K and V. Keys and queries whose numbers have variance 1 give scores (3) of variance 1, whatever d
is. A mask is True where a key may be read; where M_i is empty, o_i is 0. In (9) most scores are
never needed: `split_windows` computes n (r + 2 r) of them, not n^2.

Vaswani et al. (2017), "Attention is all you need", arXiv:1706.03762, section 3.2; Bahdanau, Cho,
Bengio (2015), "Neural machine translation by jointly learning to align and translate",
arXiv:1409.0473, for (1); Graves, Wayne, Danihelka (2014), "Neural Turing machines",
arXiv:1410.5401, for (4). Unlike the first paper, which does not say so, (10) and (11) have biases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from everynet.nn import few_rows
from everynet.nn.input_checks import (
    require_lengths,
    require_mask,
    require_mask_of,
    require_sequences,
)
from everynet.system.tracing import is_traced

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From queries and keys to the score of each pair."""
Hidden: TypeAlias = Float[Tensor, "batch time hidden"]
Mask: TypeAlias = Bool[Tensor, "*masked"]
"""True where a key may be read: (queries, keys), (batch, queries, keys) or (batch, 1, keys)."""

# ----------------------------------------------------------------------------------------- scores


class AdditiveScore(nn.Module):
    """Maps queries and keys, which may differ in size, to the score (1) of each pair."""

    def __init__(self, query_size: int, key_size: int, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(query_size, hidden_size, bias=False)
        self.key = nn.Linear(key_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, 1, bias=False)

    def forward(
        self, query: Float[Tensor, "*batch queries query"], key: Float[Tensor, "*batch keys key"]
    ) -> Float[Tensor, "*batch queries keys"]:
        return self.compare(query, self.key(key))

    def compare(
        self, query: Float[Tensor, "*batch queries query"], u: Float[Tensor, "*batch keys hidden"]
    ) -> Float[Tensor, "*batch queries keys"]:
        """The scores from u = U k, which a decoder computes once for all of its queries."""
        both = self.query(query).unsqueeze(-2) + u.unsqueeze(-3)  # batch queries keys hidden
        scores: Tensor = self.output(both.tanh()).squeeze(-1)  # (1)
        return scores


def score_dot(
    query: Float[Tensor, "*batch queries size"], key: Float[Tensor, "*batch keys size"]
) -> Float[Tensor, "*batch queries keys"]:
    """The inner product of each pair."""
    return query @ key.transpose(-1, -2)  # (2)


def score_scaled_dot(
    query: Float[Tensor, "*batch queries size"], key: Float[Tensor, "*batch keys size"]
) -> Float[Tensor, "*batch queries keys"]:
    """The inner product of each pair, divided by the root of their size."""
    return score_dot(query, key) / math.sqrt(query.shape[-1])  # (3)


def score_cosine(
    query: Float[Tensor, "*batch queries size"], key: Float[Tensor, "*batch keys size"]
) -> Float[Tensor, "*batch queries keys"]:
    """The cosine of the angle of each pair; 0 for a query or a key of zeros."""
    return score_dot(functional.normalize(query, dim=-1), functional.normalize(key, dim=-1))  # (4)


def attend(
    score: Score,
    query: Float[Tensor, "*batch queries query"],
    key: Float[Tensor, "*batch keys key"],
    value: Float[Tensor, "*batch keys value"],
    mask: Mask | None = None,
) -> tuple[Float[Tensor, "*batch queries value"], Float[Tensor, "*batch queries keys"]]:
    """The output and the weights, with any score; the mask broadcasts to the weights."""
    e = score(query, key)
    if mask is None:
        a = e.softmax(-1)
    else:
        require_mask_of(e, mask)
        empty = ~mask.any(-1, keepdim=True)  # a softmax over nothing would be NaN
        a = e.masked_fill(~(mask | empty), -torch.inf).softmax(-1)  # (5)
        a = a.masked_fill(empty, 0)
    return a @ value, a  # (6)


# ------------------------------------------------------------------------------------------ masks


def causal_mask(
    queries: int, keys: int, *, start: int = 0, device: torch.device | None = None
) -> Bool[Tensor, "{queries} {keys}"]:
    """Each time step reads itself and the past; the first query is of time `start`."""
    i = torch.arange(start, start + queries, device=device)
    return torch.arange(keys, device=device) <= i[:, None]  # (7)


def padding_mask(lengths: Int64[Tensor, " batch"], keys: int) -> Bool[Tensor, "batch 1 {keys}"]:
    """No query reads beyond the length of its row."""
    require_lengths(lengths, keys, least=0)
    j = torch.arange(keys, device=lengths.device)
    return (j < lengths[:, None])[:, None]  # (8)


def banded_mask(
    time: int, radius: int, *, device: torch.device | None = None
) -> Bool[Tensor, "{time} {time}"]:
    """Each time step reads its neighbours up to `radius` steps away, on both sides, and itself."""
    i = torch.arange(time, device=device)
    return (i[:, None] - i).abs() <= radius  # (9)


# ------------------------------------------------------------------------------------- multi-head

Heads: TypeAlias = Float[Tensor, "batch heads time size"]


@dataclass
class KeyValueCache:
    """Keys and values of earlier time steps, in memory that is allocated once and filled in place.

    Indexed by rows of the batch it gives a cache of these rows with memory of its own. For decoding
    without gradients: an older state must not be appended to again, because both would write to
    the same place.
    """

    stored: Float[Tensor, "2 batch heads context size"]
    """Keys, and values."""
    length: int
    """Time steps that are filled."""

    def append(self, new: Float[Tensor, "2 batch heads time size"]) -> KeyValueCache:
        """The cache with further time steps, in the same memory."""
        longer = self.longer(new.shape[3])
        self.stored[:, :, :, self.length : longer.length] = new
        return longer

    def longer(self, steps: int) -> KeyValueCache:
        """The cache with so many further time steps, which are still to be filled."""
        end, context = self.length + steps, self.stored.shape[3]
        if end > context:
            raise ValueError(
                f"context ({context}) must be at least {end}, because the cache has no room for "
                "more time steps; begin with a larger context, or decode fewer tokens"
            )
        return KeyValueCache(self.stored, end)

    @property
    def filled(self) -> Float[Tensor, "2 batch heads time size"]:
        """Keys and values of the time steps so far."""
        return self.stored[:, :, :, : self.length]

    def __getitem__(self, rows: Int64[Tensor, " rows"]) -> KeyValueCache:
        _, _, *sizes = self.stored.shape
        taken = KeyValueCache(self.stored.new_empty(2, len(rows), *sizes), self.length)
        taken.filled.copy_(self.filled.index_select(1, rows))
        return taken


@dataclass
class MemoryCache:
    """Keys and values of a whole memory, and which of them may be read; None is all.

    The sequences of a beam share the row of their source: a beam search copies nothing of it.
    """

    keys: Float[Tensor, "batch heads keys size"]
    values: Float[Tensor, "batch heads keys size"]
    mask: Mask | None = None

    shared_by_beams: ClassVar[bool] = True

    def __getitem__(self, rows: Int64[Tensor, " rows"]) -> MemoryCache:
        mask = None if self.mask is None else self.mask[rows]
        return MemoryCache(self.keys[rows], self.values[rows], mask)


class MultiHeadAttention(nn.Module):
    """Maps sequences to what they read of themselves, or of other sequences (cross-attention)."""

    def __init__(self, hidden_size: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or hidden_size < 1 or hidden_size % heads:
            below = hidden_size // max(heads, 1) * heads
            near = [str(n) for n in (below, below + heads) if n > 0]
            raise ValueError(
                f"hidden_size ({hidden_size}) must be divisible by heads ({heads}), because each "
                f"head takes hidden_size / heads of it; try {' or '.join(near) or 'heads=1'}"
            )
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(hidden_size, 3 * hidden_size)  # rows: queries, keys, values
        self.output = nn.Linear(hidden_size, hidden_size)
        for layer in (self.project, self.output):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Hidden,
        memory: Float[Tensor, "batch keys hidden"] | None = None,
        *,
        mask: Mask | None = None,
        causal: bool = False,
    ) -> Hidden:
        """What x reads of `memory`, or of itself; `causal` adds the causal mask to `mask`."""
        return self._read(*self.split(x, memory), mask, causal=causal)

    def forward_with_weights(
        self,
        x: Hidden,
        memory: Float[Tensor, "batch keys hidden"] | None = None,
        *,
        mask: Mask | None = None,
        causal: bool = False,
    ) -> tuple[Hidden, Float[Tensor, "batch heads time keys"]]:
        """The same as the equations are written, without dropout; and the weights of each head."""
        query, key, value = self.split(x, memory)
        if mask is not None:
            mask = require_mask(mask, x.shape[0], x.shape[1], key.shape[2])
        if causal:
            past = causal_mask(x.shape[1], key.shape[2], device=x.device)
            mask = past if mask is None else mask & past
        o, a = attend(score_scaled_dot, query, key, value, mask)
        return self.merge(o), a

    def split(
        self, x: Hidden, memory: Float[Tensor, "batch keys hidden"] | None = None
    ) -> tuple[
        Heads, Float[Tensor, "batch heads keys size"], Float[Tensor, "batch heads keys size"]
    ]:
        """Queries of x, keys and values of `memory` or of x, by head."""
        if memory is not None:
            self._require(type(self).__name__, x)
            query, (key, value) = self._queries(x), self._keys_values(memory)
            rows, wanted = key.shape[0], query.shape[0]  # len(key) would fix it where torch traces
            if rows != wanted:
                raise ValueError(
                    f"memory ({rows} rows) must have as many rows as x ({wanted}), because "
                    "each row of x reads its own; repeat_interleave repeats rows"
                )
            return query, key, value
        self._require(type(self).__name__, x)
        query, key, value = self._project(x).unbind()
        return query, key, value

    def _project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of x."""
        parts: Tensor = self.project(x).unflatten(2, (3, self.heads, -1))
        return parts.permute(2, 0, 3, 1, 4)  # (10)

    def merge(self, o: Heads) -> Hidden:
        """The outputs of all heads, side by side, and the last projection."""
        y: Tensor = self.output(o.transpose(1, 2).flatten(2))  # (11)
        return y

    def empty_cache(self, batch: int, context: int) -> KeyValueCache:
        """Memory for the keys and values of up to `context` time steps."""
        weight = self.output.weight
        size = len(weight) // self.heads
        return KeyValueCache(weight.new_empty(2, batch, self.heads, context, size), 0)

    def cache_memory(
        self, memory: Float[Tensor, "batch keys hidden"], mask: Mask | None = None
    ) -> MemoryCache:
        """Keys and values of all of `memory`, for `look_up`; the mask is of its padding."""
        key, value = self._keys_values(memory)
        batch, keys, _ = memory.shape
        if mask is not None:
            mask = require_mask(mask, batch, 1, keys)[:, 0].expand(batch, 1, keys)
            mask = None if not is_traced() and bool(mask.all()) else mask  # all may be read
        return MemoryCache(key.contiguous(), value.contiguous(), mask)

    def step(self, x: Hidden, cache: KeyValueCache) -> tuple[Hidden, KeyValueCache]:
        """Self-attention of further time steps, each to itself and the past, and the cache then."""
        if x.shape[1] == 1 and few_rows.fits(x):
            after, project, output = cache.longer(1), self.project, self.output
            first, last = (project.weight, project.bias), (output.weight, output.bias)
            y = few_rows.attend_past(x[:, 0], first, last, cache.stored, cache.length)
            return y[:, None], after
        new = self._project(x)
        start, cache = cache.length, cache.append(new[1:])
        one = x.shape[1] == 1
        past = None if one else causal_mask(x.shape[1], cache.length, start=start, device=x.device)
        keys, values = cache.filled.unbind()
        return self._read(new[0], keys, values, past), cache

    def look_up(self, x: Hidden, cache: MemoryCache) -> Hidden:
        """Cross-attention to the memory of `cache_memory`.

        x may have several rows for each of the memory, one after another: those of a beam. What is
        read does not depend on other queries, so they are read as further time steps of one row.
        """
        rows, keys = x.shape[0], cache.keys.shape[0]
        if rows % keys:
            raise ValueError(
                f"x ({rows} rows) must have as many rows as the memory ({keys}), or a multiple: "
                "the sequences of a beam, one after another; repeat_interleave repeats rows"
            )
        if few_rows.fits(x):
            project, output, mask = self.project, self.output, cache.mask
            width = output.in_features
            first = project.weight[:width], project.bias[:width]
            every = torch.ones(keys, cache.keys.shape[2], dtype=torch.bool)
            memory = cache.keys, cache.values, every if mask is None else mask[:, 0]
            last = output.weight, output.bias
            return few_rows.attend_memory(x.flatten(0, 1), first, last, memory).view_as(x)
        queries = self._queries(x.reshape(keys, -1, x.shape[2]))
        return self._read(queries, cache.keys, cache.values, cache.mask).view_as(x)

    def _queries(self, x: Tensor) -> Tensor:
        width = self.output.in_features
        flat = functional.linear(x, self.project.weight[:width], self.project.bias[:width])  # (10)
        query: Tensor = flat.unflatten(2, (self.heads, -1)).transpose(1, 2)
        return query

    def _keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        self._require(f"The memory of {type(self).__name__}", memory)
        width = self.output.in_features
        both = functional.linear(memory, self.project.weight[width:], self.project.bias[width:])
        key, value = both.unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()  # (10)
        return key, value

    def _require(self, name: str, x: Tensor) -> None:
        weight = self.output.weight
        require_sequences(name, x, weight, len(weight), block="attention", size="hidden_size")

    def _read(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
    ) -> Tensor:
        if mask is not None:
            mask = require_mask(mask, query.shape[0], query.shape[2], key.shape[2])
        dropout = self.dropout if self.training else 0.0
        return self.merge(attend_fused(query, key, value, mask, causal=causal, dropout=dropout))


def attend_fused(
    query: Heads,
    key: Float[Tensor, "batch heads keys size"],
    value: Float[Tensor, "batch heads keys size"],
    mask: Mask | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Heads:
    """What `attend` gives with the scaled dot, by torch's fused kernel, which has no weights."""
    if mask is None:
        return scaled_dot_product_attention(query, key, value, is_causal=causal, dropout_p=dropout)
    if causal:
        mask = mask & causal_mask(query.shape[2], key.shape[2], device=query.device)
    empty = ~mask.any(-1, keepdim=True)
    o = scaled_dot_product_attention(query, key, value, attn_mask=mask | empty, dropout_p=dropout)
    return o.masked_fill(empty, 0)


@contextmanager
def record_weights(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the weights (batch, heads, queries, keys) of each call of each attention inside.

    By the name of the module. They are computed once more: the model itself runs as always.
    """
    found: dict[str, list[Tensor]] = {}

    def recorder(name: str) -> Callable[..., None]:
        def record(module: nn.Module, given: Any, options: Any, _: Tensor) -> None:  # noqa: ANN401 -- torch's
            assert isinstance(module, MultiHeadAttention)
            found.setdefault(name, []).append(module.forward_with_weights(*given, **options)[1])

        return record

    inside = [(n, m) for n, m in model.named_modules() if isinstance(m, MultiHeadAttention)]
    hooks = [m.register_forward_hook(recorder(n), with_kwargs=True) for n, m in inside]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


# --------------------------------------------------------------------------------------- windowed


def split_windows(
    query: Heads, key: Heads, value: Heads, radius: int, mask: Mask | None = None
) -> tuple[
    Float[Tensor, "windows heads chunk size"],
    Float[Tensor, "windows heads width size"],
    Float[Tensor, "windows heads width size"],
    Bool[Tensor, "windows 1 chunk width"],
]:
    """Queries in chunks of `radius`, with the keys and values that any of a chunk may read.

    Those are of the chunk and of `radius` steps before and after it; the mask is the band in them.
    Windows of one row of the batch stand together. `mask` is (batch, 1, time), of padding.
    """
    batch, time = query.shape[0], query.shape[2]
    radius = min(radius, time - 1)
    chunk = max(radius, 1)
    after = -time % chunk  # fills the last chunk
    queries = functional.pad(query, (0, 0, 0, after)).unflatten(2, (-1, chunk))
    keys, values = (
        functional.pad(part, (0, 0, radius, radius + after)).unfold(2, chunk + 2 * radius, chunk)
        for part in (key, value)
    )  # batch heads windows size width
    there = torch.ones(batch, 1, time, dtype=torch.bool, device=query.device)
    there = there if mask is None else there & mask
    there = functional.pad(there, (radius, radius + after)).unfold(2, chunk + 2 * radius, chunk)
    i = torch.arange(chunk, device=query.device)[:, None]
    j = torch.arange(chunk + 2 * radius, device=query.device) - radius
    allowed = there.transpose(1, 2).unsqueeze(3) & ((i - j).abs() <= radius)  # (9)
    return (
        queries.transpose(1, 2).flatten(0, 1),
        keys.permute(0, 2, 1, 4, 3).flatten(0, 1),
        values.permute(0, 2, 1, 4, 3).flatten(0, 1),
        allowed.flatten(0, 1),
    )


class WindowedAttention(nn.Module):
    """Self-attention within `radius` time steps on both sides; its cost is linear in time."""

    def __init__(self, hidden_size: int, heads: int, radius: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if radius < 0:
            raise ValueError(
                f"radius ({radius}) must be at least 0, because a time step reads itself; "
                "1 adds a neighbour on each side"
            )
        self.radius = radius
        self.attention = MultiHeadAttention(hidden_size, heads, dropout=dropout)

    def forward(self, x: Hidden, *, mask: Mask | None = None) -> Hidden:
        """What `self.attention` gives with a banded mask; `mask` is of padding alone."""
        query, key, value = self.attention.split(x)
        if mask is not None:
            mask = require_mask(mask, x.shape[0], 1, x.shape[1])[:, 0]
        windows = split_windows(query, key, value, self.radius, mask)
        dropout = self.attention.dropout if self.training else 0.0
        o = attend_fused(*windows, dropout=dropout).unflatten(0, (x.shape[0], -1))
        o = o.transpose(1, 2).flatten(2, 3)[:, :, : x.shape[1]]  # chunks one after another
        return self.attention.merge(o)
