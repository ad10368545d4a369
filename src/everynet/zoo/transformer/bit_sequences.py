"""Sequences of random bits that are to be remembered, padded to one length with a mask.

copy     a mark, n vectors, a mark of another kind, then answers: the n vectors in order
recall   n items of three vectors, each behind a mark; an item again, between two marks of another
         kind, then answers: the item that came after it

An input is a vector of bits and the marks, each on a channel of its own; where an answer is due it
is all 0. The mask is 1 at an answer, and the rest of a sequence up to the padding is 0. So a batch
has one shape, whatever the lengths are.

Graves, Wayne, Danihelka (2014), "Neural Turing machines", arXiv:1410.5401, sections 4.1 and 4.3.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.system.errors import UserError

ITEM = 3
"""Vectors of an item."""

Sequences = tuple[
    Float[Tensor, "batch time channels"],
    Float[Tensor, "batch time bits"],
    Float[Tensor, "batch time"],
]
"""Inputs, answers, and the mask that is 1 where an answer is due."""


def draw_copy(
    lengths: Int64[Tensor, " batch"], padded: int, bits: int, random: torch.Generator
) -> Sequences:
    """Vectors to copy, so many of each sequence, in the time that `padded` of them take."""
    _require(lengths, padded, least=1)
    vectors, time = _bits((len(lengths), padded, bits), random), 2 * padded + 2
    inside = torch.arange(padded) < lengths[:, None]
    x = torch.zeros(len(lengths), time, bits + 2)
    x[:, 0, bits] = 1.0
    x[:, 1 : padded + 1, :bits] = vectors * inside[..., None]
    x[torch.arange(len(x)), lengths + 1, bits + 1] = 1.0
    answer = torch.arange(time) - lengths[:, None] - 2  # which vector is due
    mask = ((answer >= 0) & (answer < lengths[:, None])).float()
    where = answer.clamp(0, padded - 1)[..., None].expand(-1, -1, bits)
    return x, vectors.gather(1, where) * mask[..., None], mask


def draw_recall(
    items: Int64[Tensor, " batch"], padded: int, bits: int, random: torch.Generator
) -> Sequences:
    """Items of which one is asked for, so many of each sequence; any but the last is asked."""
    _require(items, padded, least=2)
    rows = torch.arange(len(items))
    vectors = _bits((len(items), padded, ITEM, bits), random)
    asked = (torch.rand(len(items), generator=random) * (items - 1)).long()
    x = torch.zeros(len(items), padded * (ITEM + 1) + 2 * ITEM + 2, bits + 2)
    inside = (torch.arange(padded) < items[:, None]).float()
    given = x[:, : padded * (ITEM + 1)].unflatten(1, (padded, ITEM + 1))  # a view
    given[:, :, 0, bits] = inside
    given[:, :, 1:, :bits] = vectors * inside[..., None, None]
    query = items * (ITEM + 1)
    x[rows, query, bits + 1] = x[rows, query + ITEM + 1, bits + 1] = 1.0
    y, mask = x.new_zeros(*x.shape[:2], bits), x.new_zeros(x.shape[:2])
    for place in range(ITEM):
        x[rows, query + 1 + place, :bits] = vectors[rows, asked, place]
        y[rows, query + ITEM + 2 + place] = vectors[rows, asked + 1, place]
        mask[rows, query + ITEM + 2 + place] = 1.0
    return x, y, mask


def _bits(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=random).float()


def _require(lengths: Tensor, padded: int, least: int) -> None:
    """Refuse a sequence that has no task, or no room."""
    for length in (int(lengths.min()), int(lengths.max())):
        if not least <= length <= padded:
            raise UserError(
                f"a sequence of length {length} must be at least {least} and at most {padded} "
                "long, because all are padded to that; pad to more"
            )
