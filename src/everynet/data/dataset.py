"""`Data`: three splits of samples, and the batches that are drawn from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from everynet.data.draws import WHOLE, Draw, Share
from everynet.data.prefetch import Stored, ahead, bring, feeding
from everynet.data.samplers import Batch as Batch  # noqa: PLC0414 -- used beside Data
from everynet.data.samplers import Buckets, Clips, Loaded, Made, Rows, Sampler, refuse
from everynet.system.seeds import generator

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


SHARE = 0.5
"""The part of a GPU's memory that a set may fill; a larger one stays outside."""


SAMPLE = 7  # the stream of random numbers of `Data.sample`, among those of a seed


@dataclass(frozen=True)
class Data:
    """Three splits, in memory or in a file, and the way in which training batches are drawn.

    `train(step)` is a pure function of (seed, step). `augment` changes training batches only,
    with the random numbers it is given; `prepare` makes a stored batch into what the network sees
    (uint8 to float, say) in every split.
    """

    splits: Mapping[str, Batch]
    spec: Spec = field(default_factory=dict)
    batch_size: int = 1
    seed: int = 0
    digest: str = ""
    """SHA-256 of the contents, for the card and to notice a change before a resume."""
    sampler: Sampler = Rows()  # noqa: RUF009 -- frozen, and the same for all
    augment: Callable[[Batch, Draw], Batch] | None = None
    prepare: Callable[[Batch], Batch] | None = None
    parts: tuple[str, ...] = ("image", "label")
    """What each tensor of a batch is, for what moves images: a mask, map or box moves alike."""
    chooses: bool = True
    """Whether `valid` was held out of training, and is large enough, to choose the weights."""
    own: bool = False
    """Whether they are the user's own files: then `valid` chooses, whatever the schedule."""
    test_only: bool = False
    """Whether a network is only evaluated on them: no batch is drawn for training."""
    notes: tuple[str, ...] = ()
    """What a person should know of them before learning, a line each."""
    eval_batch_size: int = 1000
    mapped: bool = False
    """Whether the rows stay where they are, in a file mostly, and come over a batch at a time."""
    device: torch.device | None = None
    """Where the batches of such a set go; None leaves them."""
    dtype: torch.dtype | None = None
    """What prepared numbers are held in; None leaves them."""

    @staticmethod
    def none() -> Data:
        """For a network that learns from no set: every batch is empty."""
        return Data(splits={}, sampler=Made())

    @staticmethod
    def described(spec: Spec) -> Data:
        """Data of which only the description is at hand: enough to build a model."""
        return Data(splits={}, spec=spec, sampler=Made())

    def __post_init__(self) -> None:
        if not self.test_only:
            refuse(self.sampler.refusal(self.splits.get("train", ()), self.batch_size))

    def rows(self, split: str) -> int:
        """How many samples a split holds."""
        return self.sampler.rows(self.splits.get(split, ()))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in the training set (a partial last one is dropped); 0 without a set."""
        return self.sampler.steps_per_epoch(self.splits.get("train", ()), self.batch_size)

    def train(self, step: int, share: Share = WHOLE) -> Batch:
        """The batch of update `step` (from 0), or the share of it that one process takes."""
        batch = bring(self.stored(step, share), self.device)
        device = batch[0].device if batch and batch[0].is_cuda else "cpu"
        return self.changed(batch, generator(self.seed, 2, step, device=device), share)

    def stored(self, step: int, share: Share = WHOLE) -> Batch:
        """The rows of that batch as they are stored."""
        split = self.splits.get("train", ())
        return self.sampler.batch(split, self.batch_size, self.seed, step, share)

    def feed(self, share: Share = WHOLE) -> AbstractContextManager[Stored]:
        """`stored` by step, on the device; of a mapped set the next ones are made ahead."""
        stored = partial(self.stored, share=share)
        if isinstance(self.sampler, Loaded):
            return self.sampler.open(stored)
        return feeding(stored, self.device) if self.mapped else nullcontext(stored)

    def changed(self, batch: Batch, numbers: torch.Generator, share: Share = WHOLE) -> Batch:
        """What the network sees of stored rows: prepared, and augmented by random numbers."""
        batch = self._prepared(batch)
        if self.augment is None or not batch:
            return batch
        draw = Draw(numbers, self.batch_size, share, self.parts, batch[0].device)
        return self.augment(batch, draw)

    def each(self, change: Callable[..., Batch]) -> Data:
        """The same data with the tensors of every batch changed by a function of them."""
        splits = {part: change(*tensors) for part, tensors in self.splits.items()}
        sampler = self.sampler
        if isinstance(sampler, Loaded):
            sampler = sampler.each(change)
        return replace(self, splits=splits, sampler=sampler)

    def _prepared(self, batch: Batch) -> Batch:
        if self.prepare is None:
            return batch
        made = self.prepare(batch)
        return tuple([t.to(self.dtype) if t.is_floating_point() else t for t in made])

    def batches(self, split: str) -> Iterator[Batch]:
        """Every sample of a split once, in order, the last batch possibly smaller."""
        tensors = self.splits.get(split, ())
        batches = self.sampler.evaluation(tensors, self.batch_size, self.eval_batch_size)
        for batch in ahead(batches, self.device) if self.mapped else batches:
            yield self._prepared(batch)

    @property
    def valid(self) -> Iterator[Batch]:
        """The split that chooses the weights and drives schedules."""
        return self.batches("valid")

    @property
    def test(self) -> Iterator[Batch]:
        """The split that is read once, at the end, on the weights kept."""
        return self.batches("test")

    def sample(self, split: str, rows: int) -> Iterator[Batch]:
        """So many samples of a split at random, or a stretch of a text, as `batches` gives them."""
        tensors, sampler = self.splits.get(split, ()), self.sampler
        known, numbers = self.rows(split), generator(self.seed, SAMPLE)
        rows = min(rows, known)
        batches: Iterator[Batch]
        if isinstance(sampler, Rows | Clips | Buckets):
            kind = torch.int32 if known < 2**31 else torch.int64  # the same order, in less memory
            order = torch.randperm(known, generator=numbers, dtype=kind)[:rows].long()
            batches = (sampler.at(tensors, some) for some in order.split(self.eval_batch_size))
        else:
            first = int(torch.randint(known - rows + 1, (), generator=numbers))
            stretch = tuple(tensor[first : first + rows + 1] for tensor in tensors)
            batches = sampler.evaluation(stretch, self.batch_size, self.eval_batch_size)
        for batch in batches:
            yield self._prepared(bring(batch, self.device))

    def some(self, split: str, rows: Tensor) -> Batch:
        """Those samples of a split, where a sample is a row of every tensor."""
        chosen = tuple([tensor[rows.to(tensor.device)] for tensor in self.splits[split]])
        return self._prepared(bring(chosen, self.device))

    @property
    def whole(self) -> Batch:
        """All of the training set at once, for an estimator's `fit`."""
        return self._prepared(bring(tuple(self.splits["train"]), self.device))

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Data:
        """The same data on a device; floating-point tensors in `dtype`.

        What is mapped, or too large for the device, stays, and its batches come over.
        """
        mapped = self.mapped or self._bytes > SHARE * _memory(device)

        def move(tensor: Tensor) -> Tensor:
            kind = dtype if tensor.is_floating_point() else None
            return tensor.to(device=None if mapped else device, dtype=kind or tensor.dtype)

        splits = {name: tuple(map(move, tensors)) for name, tensors in self.splits.items()}
        place = device if mapped else None
        return replace(self, splits=splits, mapped=mapped, device=place, dtype=dtype)

    @property
    def _bytes(self) -> int:
        return sum(t.numel() * t.element_size() for split in self.splits.values() for t in split)


def _memory(device: torch.device) -> float:
    """Bytes of a GPU; of anything else all that is asked for."""
    if device.type != "cuda":
        return math.inf
    return float(torch.cuda.get_device_properties(device).total_memory)
