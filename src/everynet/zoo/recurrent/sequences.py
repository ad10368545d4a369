"""Generated sequences that need memory: three tasks, each batch made anew at its step.

adding          two of T numbers are marked: output their sum
copy            ten symbols, a wait of T, then output them again in order
selective copy  ten symbols scattered over T places: output them again in order

Symbols are 1 and more; 0 is a blank and the highest number is a query for an answer. In the two
tasks of copying the targets are IGNORED but at queries.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735, section 5
(adding); Arjovsky et al. (2016), "Unitary evolution recurrent neural networks", arXiv:1511.06464,
section 5.1 (copy); Gu, Dao (2023), "Mamba", arXiv:2312.00752, section 3.1 (selective copy).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.samplers import Made
from everynet.nn.losses import IGNORED
from everynet.system.errors import UserError
from everynet.system.seeds import generator

REMEMBERED = 10
"""Symbols that are to be copied."""
HELD_OUT = 2000
"""Sequences of `valid`, and of `test`."""

Tokens: TypeAlias = tuple[Int64[Tensor, "batch time"], Int64[Tensor, "batch time"]]


def make_adding(length: int, batch_size: int, seed: int, held_out: int = HELD_OUT) -> Data:
    """(x, y): pairs of a number and a mark, and the sum of the two numbers that are marked.

    One mark is in the first half and one in the second. Always 1 has a mean squared error of
    1/6: nothing that forgets does better.
    """
    _at_least(length, 2)

    def draw(rows: int, random: torch.Generator) -> Batch:
        return draw_adding(length, rows, random)

    spec = {"task": "regression", "shape": [length, 2], "classes": []}
    return generate_data(f"adding {length}", draw, spec, batch_size, seed, held_out)


def draw_adding(
    length: int, rows: int, random: torch.Generator
) -> tuple[Float[Tensor, "batch time 2"], Float[Tensor, " batch"]]:
    """Sequences of the adding problem."""
    values = torch.rand(rows, length, generator=random)
    half = length // 2
    first = torch.randint(half, (rows, 1), generator=random)
    second = torch.randint(half, length, (rows, 1), generator=random)
    marks = torch.zeros(rows, length).scatter_(1, torch.cat([first, second], 1), 1.0)
    return torch.stack([values, marks], 2), (values * marks).sum(1)


def make_copy(
    length: int, batch_size: int, seed: int, symbols: int = 8, held_out: int = HELD_OUT
) -> Data:
    """(x, y): ten symbols, `length` blanks, then ten queries."""
    _at_least(length, 1)

    def draw(rows: int, random: torch.Generator) -> Batch:
        targets = torch.randint(1, symbols + 1, (rows, REMEMBERED), generator=random)
        blanks = targets.new_zeros(rows, length)
        return _with_queries(torch.cat([targets, blanks], 1), targets, symbols)

    spec = _symbols(length + 2 * REMEMBERED, symbols)
    return generate_data(f"copy {length} {symbols}", draw, spec, batch_size, seed, held_out)


def make_selective_copy(
    length: int, batch_size: int, seed: int, symbols: int = 8, held_out: int = HELD_OUT
) -> Data:
    """(x, y): ten symbols at random places among `length`, then ten queries."""
    _at_least(length, REMEMBERED)

    def draw(rows: int, random: torch.Generator) -> Batch:
        targets = torch.randint(1, symbols + 1, (rows, REMEMBERED), generator=random)
        where = torch.rand(rows, length, generator=random).topk(REMEMBERED).indices.sort(1).values
        blanks = targets.new_zeros(rows, length)
        return _with_queries(blanks.scatter_(1, where, targets), targets, symbols)

    spec = _symbols(length + REMEMBERED, symbols)
    return generate_data(
        f"selective copy {length} {symbols}", draw, spec, batch_size, seed, held_out
    )


def _with_queries(x: Tensor, targets: Tensor, symbols: int) -> Tokens:
    """The tokens of a copying task with queries at their end, and a target for each token."""
    queries = torch.full_like(targets, symbols + 1)
    ignored = torch.full_like(x, IGNORED)
    return torch.cat([x, queries], 1), torch.cat([ignored, targets], 1)


def _symbols(time: int, symbols: int) -> Spec:
    """Blank, symbols and query are the inputs; an answer is named by its number."""
    names = ["blank", *map(str, range(1, symbols + 1)), "answer"]
    return {"task": "sequence", "shape": [time], "classes": names}


def _at_least(length: int, least: int) -> None:
    if length < least:
        raise UserError(f"length ({length}) must be at least {least}")


def generate_data(  # noqa: PLR0917 -- all of them are needed
    name: str,
    draw: Callable[[int, torch.Generator], Batch],
    spec: Spec,
    batch_size: int,
    seed: int,
    held_out: int,
) -> Data:
    """Data from `draw`: training batches made at each step; no seed changes `valid` and `test`."""
    held = {
        part: draw(held_out, generator(1997, *name.encode(), number))
        for number, part in enumerate(("valid", "test"))
    }
    digest = hashlib.sha256(name.encode())
    for part in held.values():
        for tensor in part:
            digest.update(tensor.numpy().tobytes())
    described = {
        "name": name,
        "kind": "table",
        **spec,
        "split": "training sequences are made at each step; two fixed sets judge",
    }

    def made(step: int) -> Batch:
        return draw(batch_size, generator(seed, 1, step))

    return Data(held, described, batch_size, seed, digest.hexdigest(), Made(make=made))
