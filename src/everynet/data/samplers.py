"""How training batches are drawn from a split: seven ways, each a pure function of (seed, step).

    Rows      one permutation of the rows an epoch
    Lanes     a stream of tokens folded into lanes, successive windows of all lanes
    Windows   random stretches of a stream of tokens
    Anywhere  the same, evaluated as lanes are
    Clips     a stretch of each clip or piece, which keeps its label
    Buckets   sequences of similar length together, padded to the longest of the batch
    Made      batches that are generated on the spot
    Loaded    batches of a DataLoader: the only way that is no function of (seed, step)

Order is drawn on the CPU for the global batch and an epoch at once, and copied to the device of the
split then; a process uses its share of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from everynet.data.draws import WHOLE, Share, permutation, places
from everynet.nn.losses import IGNORED
from everynet.system.errors import UserError
from everynet.system.seeds import generator

Batch: TypeAlias = tuple[Tensor, ...]
"""What a step is given: (inputs, targets) for most networks; empty for those without data."""

CHUNK = 64
"""Batches whose rows are sorted by length together."""
_FINE = 1 << 20
"""Places at which a stretch of a clip may begin, from its first to its last."""


@runtime_checkable
class Sampler(Protocol):
    """What `Data` asks of the way in which it is drawn."""

    def rows(self, split: Batch) -> int:
        """How many samples (or tokens) a split holds."""
        ...

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        """Whole batches in a split; 0 where there is no set to go through."""
        ...

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        """The share of the batch of update `step`, from 0."""
        ...

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        """Every sample of a split once, in order; at most about `at_once` of them a batch."""
        ...

    def refusal(self, split: Batch, batch_size: int) -> str:
        """Why batches of this size cannot be drawn; empty where they can."""
        ...


@dataclass(frozen=True)
class Rows:
    """One permutation an epoch; a partial last batch is dropped in training."""

    def rows(self, split: Batch) -> int:
        """The length of the first tensor."""
        return len(split[0]) if split else 0

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return self.rows(split) // batch_size

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch(split, batch_size))
        order = permutation(len(split[0]), seed, epoch, str(split[0].device))
        start, mine = position * batch_size, share.of(batch_size)
        chosen = order[start + mine.start : start + mine.stop]
        return tuple([tensor.index_select(0, chosen) for tensor in split])

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        for start in range(0, self.rows(split), at_once):
            yield tuple(tensor[start : start + at_once] for tensor in split)

    def at(self, split: Batch, rows: Tensor) -> Batch:
        """These samples as a batch of an evaluation."""
        return tuple([tensor[rows.to(tensor.device)] for tensor in split])

    def refusal(self, split: Batch, batch_size: int) -> str:
        rows = self.rows(split)
        return "" if 0 < batch_size <= rows else _too_few(batch_size, rows)


def _too_few(batch_size: int, rows: int) -> str:
    return (
        f"batch_size ({batch_size}) must be between 1 and the {rows} training samples; try "
        f"{max(1, min(batch_size, rows))}"
    )


# ----------------------------------------------------------------------------- streams of tokens


def _stream_rows(split: Batch) -> int:
    """Tokens that have one before them, from which they can be told."""
    return max(0, len(split[0]) - 1) if split else 0


def _too_short(tokens: int, batch_size: int, length: int, lanes: int) -> str:
    """Why a stream cannot give windows of `length` in each of `lanes` lanes, if it cannot."""
    if length < 1:
        return f"window ({length}) must be at least 1"
    if batch_size < 1:
        return f"batch_size ({batch_size}) must be at least 1"
    if tokens < length:
        return (
            f"window ({length}) must be at most {tokens}, because the training text has "
            f"{tokens + 1:,} tokens; give more text"
        )
    if tokens // lanes < length:
        return (
            f"batch_size ({batch_size}) must be at most {tokens // length}, because the training "
            f"text has {tokens + 1:,} tokens and each of its lanes needs {length}; give more text, "
            "or a smaller batch_size or window"
        )
    return ""


@dataclass(frozen=True)
class Lanes:
    """A stream folded into `batch_size` lanes; a batch is the next window of every lane.

    A batch is (x, y, keep): y is x one token later, and keep is 0 where a lane begins anew, 1
    elsewhere: it multiplies the state that is carried from the window before. What is left over
    when the stream is folded is cut off at both ends, at another place in each epoch, so that every
    token is trained on. In evaluation a split is one batch of lanes at full length, and what fills
    the last lane has the target IGNORED.
    """

    length: int
    """Tokens of a window."""

    def rows(self, split: Batch) -> int:
        return _stream_rows(split)

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return self.rows(split) // (batch_size * self.length)

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        (stream,) = split
        windows = self.steps_per_epoch(split, batch_size)
        epoch, position = divmod(step, windows)
        used = windows * self.length * batch_size
        spare = self.rows(split) - used
        first = int(torch.randint(spare + 1, (), generator=generator(seed, 1, epoch)))
        mine, start = share.of(batch_size), position * self.length
        x, y = (
            _widened(
                stream[begin : begin + used].unflatten(0, (batch_size, -1))[
                    mine, start : start + self.length
                ]
            )
            for begin in (first, first + 1)
        )
        return x, y, torch.full((len(x),), float(position > 0), device=stream.device)

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        if not self.rows(split):
            return
        (stream,) = split
        each = -(-self.rows(split) // batch_size)
        lanes = -(-self.rows(split) // each)
        x, y = _rectangle(stream, lanes, each)
        yield x, y, torch.zeros(lanes, device=stream.device)

    def refusal(self, split: Batch, batch_size: int) -> str:
        return _too_short(self.rows(split), batch_size, self.length, batch_size)


@dataclass(frozen=True)
class Anywhere(Lanes):
    """Trained on windows that begin anywhere, keep is 0 in all; evaluated as lanes are."""

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return max(1, super().steps_per_epoch(split, batch_size)) if split else 0

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        x, y = Windows(self.length).batch(split, batch_size, seed, step, share)
        return x, y, torch.zeros(len(x), device=x.device)

    def refusal(self, split: Batch, batch_size: int) -> str:
        return _too_short(self.rows(split), batch_size, self.length, lanes=1)


@dataclass(frozen=True)
class Windows:
    """Stretches of a stream that begin anywhere: (x, y), where y is x one token later.

    In evaluation a split is cut into windows side by side; `at_once` counts tokens.
    """

    length: int
    """Tokens of a window."""

    def rows(self, split: Batch) -> int:
        return _stream_rows(split)

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return max(1, self.rows(split) // (batch_size * self.length)) if split else 0

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        (stream,) = split
        room = self.rows(split) - self.length + 1
        steps = self.steps_per_epoch(split, batch_size)
        epoch, position = divmod(step, steps)
        starts = places(room, (steps, batch_size), seed, epoch, str(stream.device))
        starts = starts[position][share.of(batch_size)]
        across = starts[:, None] + torch.arange(self.length, device=stream.device)
        return _widened(stream[across]), _widened(stream[across + 1])

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        windows = -(-self.rows(split) // self.length)
        few = max(1, at_once // self.length)
        for first in range(0, windows, few):
            last = min(first + few, windows)
            tokens = split[0][first * self.length : last * self.length + 1]
            yield _rectangle(tokens, last - first, self.length)

    def refusal(self, split: Batch, batch_size: int) -> str:
        return _too_short(self.rows(split), batch_size, self.length, lanes=1)


def _widened(values: Tensor) -> Tensor:
    """Tokens, which are stored in the smallest integers, as torch indexes; numbers as they are."""
    return values if values.is_floating_point() else values.long()


def _rectangle(tokens: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Tokens and those that follow them, row by row; what is left has the target IGNORED."""
    tokens = _widened(tokens)
    x = tokens.new_zeros(rows * columns, *tokens.shape[1:])
    y = torch.full_like(x, IGNORED)
    x[: len(tokens) - 1], y[: len(tokens) - 1] = tokens[:-1], tokens[1:]
    return x.unflatten(0, (rows, columns)), y.unflatten(0, (rows, columns))


@dataclass(frozen=True)
class Clips:
    """A stretch of every clip or piece, at another place in each epoch: (x, lengths, labels).

    A split is a stream of numbers or rows, the places where its clips begin (`flattened`), and a
    label for each. A clip that is shorter than the window is filled up with 0. In evaluation the
    stretch is the middle one.
    """

    length: int
    """Numbers or rows of a window."""

    def rows(self, split: Batch) -> int:
        return len(split[1]) - 1 if split else 0

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return self.rows(split) // batch_size

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch(split, batch_size))
        device = str(split[0].device)
        order = permutation(self.rows(split), seed, epoch, device)
        mine = share.of(batch_size)
        chosen = order[position * batch_size :][mine]
        anywhere = places(_FINE, (self.rows(split),), seed, epoch, device)[chosen]
        return self._cut(split, chosen, anywhere)

    def _cut(self, split: Batch, clips: Tensor, anywhere: Tensor) -> Batch:
        """A stretch of these clips, which begins at a share of the room, in parts of _FINE."""
        stream, starts, labels = split
        whole = (starts[clips + 1] - starts[clips]).clamp(min=0)
        first = starts[clips] + ((whole - self.length + 1).clamp(min=1) * anywhere).div(
            _FINE, rounding_mode="floor"
        )
        lengths = whole.clamp(max=self.length)
        return _padded(stream, first, lengths, self.length), lengths, labels[clips]

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        for start in range(0, self.rows(split), at_once):
            yield self.at(split, torch.arange(start, min(start + at_once, self.rows(split))))

    def at(self, split: Batch, rows: Tensor) -> Batch:
        """The middle of each of these clips."""
        clips = rows.to(split[0].device)
        return self._cut(split, clips, torch.full_like(clips, _FINE // 2))

    def refusal(self, split: Batch, batch_size: int) -> str:
        if self.length < 1:
            return f"window ({self.length}) must be at least 1"
        rows = self.rows(split)
        return "" if 0 < batch_size <= rows else _too_few(batch_size, rows)


def _padded(stream: Tensor, starts: Tensor, lengths: Tensor, most: int) -> Tensor:
    """Stretches of a stream as rows of `most`, filled up with 0."""
    across = torch.arange(most, device=stream.device)
    inside = across < lengths[:, None]
    where = torch.where(inside, starts[:, None] + across, 0)
    inside = inside.unflatten(1, (most, *[1] * (stream.dim() - 1)))
    return _widened(torch.where(inside, stream[where], 0))


# --------------------------------------------------------------------------- unequal sequences


def flattened(sequences: Sequence[Sequence[int] | Tensor]) -> tuple[Tensor, Tensor]:
    """Sequences one after another, and where each begins (and the last ends).

    Tensors may hold numbers of any type, or rows of them; other sequences hold tokens.
    """
    ends = torch.tensor([0, *map(len, sequences)]).cumsum(0)
    tensors = [one for one in sequences if isinstance(one, Tensor)]
    if tensors and len(tensors) == len(sequences):
        return torch.cat(tensors), ends
    tokens = np.fromiter(chain.from_iterable(sequences), np.int32, int(ends[-1]))
    return torch.from_numpy(tokens), ends


@dataclass(frozen=True)
class _Order:
    """One epoch of `Buckets`."""

    batches: Tensor
    """The rows of each batch."""
    longest: list[list[int]]
    """For each ragged column, the longest sequence of each batch."""
    stream: Tensor
    """What it was drawn for, kept so that its id stays its own."""


@dataclass
class Buckets:
    """Sequences of similar length together, so that little of a batch is padding.

    A split holds, for each name of `columns`, a stream and the places where its sequences begin
    ("ragged", see `flattened`), or a tensor of rows ("plain"). A batch holds for each ragged column
    a rectangle padded with 0 to the longest of the global batch, and the lengths; plain as it is.
    """

    columns: tuple[str, ...]
    pad_to: int = 1
    """Lengths of a training batch are rounded up to a multiple of it: fewer shapes to capture."""
    at_most: tuple[int, ...] = ()
    """The longest of each ragged column in training, rounded likewise; the rest is left out."""
    _orders: dict[tuple[int, int, int, int], _Order] = field(
        default_factory=dict, repr=False, compare=False
    )

    def _lengths(self, split: Batch, rows: Tensor | None = None) -> list[Tensor]:
        found, at = [], 0
        for column in self.columns:
            if column == "ragged":
                starts = split[at + 1]
                some = starts.diff() if rows is None else starts[rows + 1] - starts[rows]
                found.append(some.cpu())
            at += 2 if column == "ragged" else 1
        return found

    def rows(self, split: Batch) -> int:
        if not split:
            return 0
        return len(split[1]) - 1 if self.columns[0] == "ragged" else len(split[0])

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return self.rows(split) // batch_size

    def _order(self, split: Batch, batch_size: int, seed: int, epoch: int) -> _Order:
        key = (id(split[0]), batch_size, seed, epoch)
        if key not in self._orders:
            if len(self._orders) > 1:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = self._drawn(split, batch_size, seed, epoch)
        return self._orders[key]

    def _drawn(self, split: Batch, batch_size: int, seed: int, epoch: int) -> _Order:
        draw, whole = generator(seed, 1, epoch), self.steps_per_epoch(split, batch_size)
        # What fills no batch is left out before sorting: afterwards it would be the longest.
        order = torch.randperm(self.rows(split), generator=draw)[: whole * batch_size]
        lengths = self._lengths(split)
        for length, most in zip(lengths, self.at_most, strict=False):
            length.clamp_(max=most)
        first, *others = [length.double() for length in lengths]
        weight = sum(others, start=first * 1e6)
        chunks = order.split(CHUNK * batch_size)
        order = torch.cat([chunk[weight[chunk].argsort(stable=True)] for chunk in chunks])
        batches = order.view(whole, batch_size)[torch.randperm(whole, generator=draw)]
        longest = [
            (-(-length[batches].amax(1) // self.pad_to) * self.pad_to).tolist()
            for length in lengths
        ]
        return _Order(batches.to(split[0].device), longest, split[0])

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        epoch, position = divmod(step, self.steps_per_epoch(split, batch_size))
        order = self._order(split, batch_size, seed, epoch)
        rows = order.batches[position][share.of(batch_size)]
        return self._taken(split, rows, [each[position] for each in order.longest])

    def _taken(self, split: Batch, rows: Tensor, longest: list[int]) -> Batch:
        batch: list[Tensor] = []
        rest, left = list(split), list(longest)
        for column in self.columns:
            if column == "plain":
                batch.append(rest.pop(0)[rows])
                continue
            stream, starts, most = rest.pop(0), rest.pop(0), left.pop(0)
            lengths = (starts[rows + 1] - starts[rows]).clamp(max=most)
            batch += [_padded(stream, starts[rows], lengths, most), lengths]
        return tuple(batch)

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        for start in range(0, self.rows(split), at_once):
            yield self.at(split, torch.arange(start, min(start + at_once, self.rows(split))))

    def at(self, split: Batch, rows: Tensor) -> Batch:
        """These samples, padded to the longest of them."""
        rows = rows.to(split[0].device)
        return self._taken(split, rows, [int(each.max()) for each in self._lengths(split, rows)])

    def refusal(self, split: Batch, batch_size: int) -> str:
        rows = self.rows(split)
        return "" if 0 < batch_size <= rows else _too_few(batch_size, rows)


# --------------------------------------------------------------------------- made on the spot


def nothing(_step: int) -> Batch:
    """The batch of a network that learns from no set."""
    return ()


@dataclass(frozen=True)
class Made(Rows):
    """Batches that are generated: `make(step)` gives the global batch, a pure function.

    What is evaluated is a set all the same, whose rows are gone through in order.
    """

    make: Callable[[int], Batch] = nothing

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return 0

    def batch(
        self, split: Batch, batch_size: int, seed: int, step: int, share: Share = WHOLE
    ) -> Batch:
        return tuple([tensor[share.of(len(tensor))] for tensor in self.make(step)])

    def refusal(self, split: Batch, batch_size: int) -> str:
        return ""


@dataclass(frozen=True)
class Loaded(Rows):
    """Batches that come one after another from elsewhere, whatever the step; see `loader.py`.

    What is evaluated is a set all the same. Its training split holds the first samples alone.
    """

    source: Callable[[], Generator[Batch]]
    """Begins anew with the first samples."""
    steps: int
    size: int
    first: Batch
    """Some of the first samples as they come, to see that the training split holds the same."""
    _live: list[Generator[Batch]] = field(default_factory=list, repr=False, compare=False)

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return self.steps

    def batch(
        self, split: Batch, batch_size: int, seed: int, step: int, share: Share = WHOLE
    ) -> Batch:
        if share != WHOLE:
            raise UserError(
                "data (a DataLoader) must be its dataset, because each of several processes takes "
                "a part of every batch; give loader.dataset"
            )
        if not self._live:
            self._live.append(self.source())
        its = zip(next(self._live[0]), split, strict=True)
        return tuple([rows.to(stored.dtype) for rows, stored in its])

    def each(self, change: Callable[..., Batch]) -> Loaded:
        """The same batches, changed by a function of their tensors."""

        def source() -> Generator[Batch]:
            with closing(self.source()) as batches:
                for batch in batches:
                    yield change(*batch)

        return replace(self, source=source, first=change(*self.first), _live=[])

    @contextmanager
    def open(self, stored: Callable[[int], Batch]) -> Iterator[Callable[[int], Batch]]:
        """`stored`, whose batches begin anew; at the end their source is closed."""
        try:
            yield stored
        finally:
            while self._live:
                self._live.pop().close()

    def refusal(self, split: Batch, batch_size: int) -> str:
        if batch_size != self.size:
            return f"batch_size ({batch_size}) must be {self.size}, as that of the DataLoader"
        same = len(split) == len(self.first) and all(
            torch.equal(mine[: len(its)].cpu().to(its.dtype), its.to(mine.dtype).to(its.dtype))
            for mine, its in zip(split, self.first, strict=True)
        )
        return (
            ""
            if same
            else (
                "data (a DataLoader) must be a Dataset or arrays, because the recipe changes the "
                "whole training set, which a DataLoader gives batch by batch"
            )
        )


def refuse(reason: str) -> None:
    """End with a line, if there is a reason."""
    if reason:
        raise UserError(reason)
