"""The random numbers of a batch, drawn for the global batch whatever the number of processes.

Each process uses the numbers of its own rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from everynet.data.transfer import to_device
from everynet.system.seeds import generator


@lru_cache(maxsize=4)
def permutation(rows: int, seed: int, epoch: int, device: str = "cpu") -> Tensor:
    """The order of the rows in one epoch, drawn on the CPU and copied to the device once."""
    small = device == "cpu" and rows < 2**31  # the same order, in half the memory
    kind = torch.int32 if small else torch.int64
    order = torch.randperm(rows, generator=generator(seed, 1, epoch), dtype=kind)
    return to_device(order, device)


@lru_cache(maxsize=4)
def places(high: int, shape: tuple[int, ...], seed: int, epoch: int, device: str) -> Tensor:
    """Whole numbers below `high` for one epoch, drawn on the CPU and copied to the device once."""
    return to_device(torch.randint(high, shape, generator=generator(seed, 1, epoch)), device)


@dataclass(frozen=True)
class Share:
    """Which rows of a global batch one process takes: an equal stretch of them."""

    rank: int = 0
    size: int = 1

    def of(self, rows: int) -> slice:
        """Those rows, where the batch has `rows`."""
        return slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)


WHOLE = Share()


@dataclass(frozen=True)
class Draw:
    """The random numbers of one augmented batch, as tensors on the device of the batch.

    They are drawn where the generator is: on cuda nothing is copied, and the numbers are others.

    `parts` says what each tensor of the batch is (image, mask, map, boxes, or label, which stays),
    so that what moves an image moves its targets alike.
    """

    generator: torch.Generator
    rows: int
    """Rows of the global batch."""
    share: Share = WHOLE
    parts: tuple[str, ...] = ("image", "label")
    device: torch.device | None = None

    def uniform(self, count: int) -> Tensor:
        """`count` numbers from 0 to 1 for each row: count rows."""
        return self._mine(torch.rand(count, self.rows, **self._by()))

    def integers(self, low: int, high: int, count: int) -> Tensor:
        """`count` whole numbers from `low` to `high`, both taken in, for each row: count rows."""
        return self._mine(torch.randint(low, high + 1, (count, self.rows), **self._by()))

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, a tensor of this shape for each row: rows *shape."""
        drawn = torch.randn(self.rows, *shape, **self._by())
        return drawn[self.share.of(self.rows)].to(self.device)

    def _by(self) -> dict[str, Any]:  # Any: the types that torch's functions ask for
        return {"generator": self.generator, "device": self.generator.device}

    def _mine(self, drawn: Tensor) -> Tensor:
        return drawn[:, self.share.of(self.rows)].to(self.device)
