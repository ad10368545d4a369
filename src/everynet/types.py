"""The words every part of everynet speaks: batches, data, records and the ways to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from everynet.errors import (
    CannotWrite,
    Failure,
    NoCheckpoint,
    NonFinite,
    Stopped,
    UserError,
)
from everynet.words import nearest

__all__ = [
    "Batch",
    "CannotWrite",
    "Data",
    "Failure",
    "History",
    "NoCheckpoint",
    "NonFinite",
    "Record",
    "Spec",
    "Stopped",
    "Terms",
    "UserError",
    "generator",
    "mix",
    "nearest",
    "permutation",
]

Batch: TypeAlias = tuple[Tensor, ...]
"""What a step is given: (inputs, targets) for most networks; empty for those without data."""
Terms: TypeAlias = dict[str, Tensor]
"""Named values of an objective; those whose name begins with `_` are logged, not minimised."""
Spec: TypeAlias = dict[str, Any]  # plain JSON: shapes, class names, vocabulary, normalisation
History: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of metrics.jsonl: {"step": 7, "train": {...}} or {"step": 8, "valid": {...}}."""


@dataclass(frozen=True)
class Record:
    """What one update gave: the number of updates done so far and the terms of this one."""

    step: int
    terms: Terms


def mix(*parts: int) -> int:
    """One 63-bit seed from several integers; neighbours give unrelated seeds (splitmix64)."""
    state = 0
    for part in parts:
        state = (state ^ (part & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15
        state &= 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1


def generator(*parts: int) -> torch.Generator:
    """A generator of random numbers that is a function of `parts` alone."""
    return torch.Generator().manual_seed(mix(*parts))


@lru_cache(maxsize=2)
def permutation(rows: int, seed: int, epoch: int) -> Tensor:
    """The order of the rows in one epoch: a function of its arguments."""
    return torch.randperm(rows, generator=generator(seed, 1, epoch))


@dataclass(frozen=True)
class Data:
    """Three splits held whole in memory; a batch is one index operation.

    `train(step)` is a pure function of (seed, step). `augment` changes training batches only,
    with random numbers drawn from the generator it is given; `prepare` makes a stored batch
    into what the network sees (uint8 to float, say) in every split.
    """

    splits: Mapping[str, Batch]
    spec: Spec = field(default_factory=dict)
    batch_size: int = 1
    seed: int = 0
    digest: str = ""
    """SHA-256 of the contents, for the card and to notice a change before a resume."""
    augment: Callable[[Batch, torch.Generator], Batch] | None = None
    prepare: Callable[[Batch], Batch] | None = None
    stream: Callable[[int], Batch] | None = None
    """Training batches made on the spot, for generated data: a pure function of the step."""
    eval_batch_size: int = 1000

    @staticmethod
    def none() -> Data:
        """For a network that learns from no set: every batch is empty."""
        return Data(splits={}, stream=lambda _step: ())

    @staticmethod
    def described(spec: Spec) -> Data:
        """Data of which only the description is at hand: enough to build a model."""
        return Data(splits={}, spec=spec, stream=lambda _step: ())

    def __post_init__(self) -> None:
        rows = self.rows("train")
        if self.stream is None and not 0 < self.batch_size <= rows:
            raise UserError(
                f"batch_size ({self.batch_size}) must be between 1 and the {rows} training "
                f"samples; try {max(1, min(self.batch_size, rows))}"
            )

    def rows(self, split: str) -> int:
        """How many samples a split holds."""
        tensors = self.splits.get(split, ())
        return len(tensors[0]) if tensors else 0

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training set (a partial last one is dropped); 0 without a set."""
        return self.rows("train") // self.batch_size

    def train(self, step: int) -> Batch:
        """The batch of update `step` (from 0): whole-batch indices into one permutation."""
        if self.stream is not None:
            return self.stream(step)
        tensors = self.splits["train"]
        epoch, position = divmod(step, self.steps_per_epoch)
        order = permutation(self.rows("train"), self.seed, epoch)
        rows = order[position * self.batch_size : (position + 1) * self.batch_size]
        rows = rows.to(tensors[0].device)
        batch = tuple(tensor.index_select(0, rows) for tensor in tensors)
        batch = self.prepare(batch) if self.prepare else batch
        return self.augment(batch, generator(self.seed, 2, step)) if self.augment else batch

    def batches(self, split: str) -> Iterator[Batch]:
        """Every sample of a split once, in order, the last batch possibly smaller."""
        tensors = self.splits.get(split, ())
        for start in range(0, self.rows(split), self.eval_batch_size):
            batch = tuple(tensor[start : start + self.eval_batch_size] for tensor in tensors)
            yield self.prepare(batch) if self.prepare else batch

    @property
    def valid(self) -> Iterator[Batch]:
        """The split that chooses the weights and drives schedules."""
        return self.batches("valid")

    @property
    def test(self) -> Iterator[Batch]:
        """The split that is read once, at the end, on the weights kept."""
        return self.batches("test")

    @property
    def whole(self) -> Batch:
        """All of the training set at once, for an estimator's `fit`."""
        batch = tuple(self.splits["train"])
        return self.prepare(batch) if self.prepare else batch

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Data:
        """The same data on a device; floating-point tensors in `dtype`."""

        def move(tensor: Tensor) -> Tensor:
            kind = dtype if tensor.is_floating_point() else None
            return tensor.to(device=device, dtype=kind or tensor.dtype)

        splits = {name: tuple(map(move, tensors)) for name, tensors in self.splits.items()}
        return replace(self, splits=splits)
