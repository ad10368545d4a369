"""Datasets of torch: read into memory, item by item, or fed batch by batch by a `DataLoader`.

A `Dataset` is read once, in order, so that its random changes are drawn once. A `DataLoader` for
training is fed as it is, by its own workers: its batches, their order and their random changes are
its own. Its first samples are read ahead: of them is learned what a network must know before its
first update (classes, mean, deviation), and they are the first that it is trained on, so that no
sample is read in vain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from everynet.system.errors import UserError
from everynet.system.memory import free
from everynet.system.seeds import random_state_kept, seed_all
from everynet.system.wording import shown

AHEAD = 2**28
"""Bytes of samples that are read ahead, or one epoch where that is less."""
LOOKED_AT = 8
"""So many items are read again, to see whether they change at random."""
Array = NDArray[Any]
Rows = tuple["Array | list[str]", "Array | list[str] | None"]
"""Inputs and targets, a row for each sample."""
ONCE = (
    "items differ when they are read again: their random changes were drawn once, and every epoch "
    "sees the same; a DataLoader draws them anew"
)


class LoaderFailed(UserError):
    """A batch that a `DataLoader` did not give; a signal may have ended its workers."""


@contextmanager
def _seeded() -> Iterator[None]:
    """Random changes drawn inside are the same each time, and the caller's generators go on."""
    with torch.random.fork_rng(devices=[]), random_state_kept():
        seed_all(torch.device("cpu"), 0)
        try:
            yield
        except RuntimeError as error:  # that a worker was lost torch says between two lines, too
            if not str(error).startswith("DataLoader worker"):
                raise
            raise LoaderFailed(f"the DataLoader cannot be read: {_line(error)}") from error


# ------------------------------------------------------------------------------------- datasets


def read_dataset(dataset: Dataset[Any]) -> tuple[Rows, tuple[str, ...]]:
    """All items of a dataset, in their order, and what is to be said of them."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise UserError(f"data ({name}, an IterableDataset) must be given through a DataLoader")
    try:
        count = len(dataset)  # type: ignore[arg-type]  # a Dataset need not say it
    except (TypeError, NotImplementedError):
        raise UserError(f"data ({name}) must have a length: give it a __len__") from None
    if not count:
        raise UserError(f"data ({name}) must have items, and has none")
    with _seeded():
        first = _item(dataset, 0)
        columns = [_Column(value, count, name) for value in first]
        for number in range(count):
            item = _item(dataset, number) if number else first
            if len(item) != len(columns):
                raise UserError(f"item {number} of {name} must be (x, y) or x alone, as item 0 is")
            for column, value in zip(columns, item, strict=True):
                column.put(number, value)
        again = [_item(dataset, number) for number in range(min(count, LOOKED_AT))]
    random = any(
        not np.array_equal(column.rows[number], value)
        for number, item in enumerate(again)
        for column, value in zip(columns, item, strict=False)
    )
    x, *y = (column.rows for column in columns)
    return (x, y[0] if y else None), (ONCE,) if random else ()


class _Column:
    """The inputs or the targets of items, which must be of one shape."""

    def __init__(self, first: Array | str, count: int, name: str) -> None:
        self.name, self.first = name, first
        self.rows: Any = [""] * count
        if isinstance(first, np.ndarray):
            if (needed := count * first.nbytes) > free():
                raise UserError(
                    f"data ({count:,} items of {name}) must fit into memory, and would take "
                    f"{needed / 1e9:,.1f} GB; give a DataLoader, which is fed batch by batch"
                )
            self.rows = np.empty((count, *first.shape), first.dtype)

    def put(self, number: int, value: Array | str) -> None:
        if (sort := _sort(value)) != (wanted := _sort(self.first)):
            raise UserError(
                f"item {number} of {self.name} ({sort}) must be as item 0 ({wanted}), because "
                "samples have one shape and type; resize or convert it in the dataset"
            )
        self.rows[number] = value


def _sort(value: Array | str) -> str:
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else "a text"


def _item(dataset: Dataset[Any], number: int) -> tuple[Array | str, ...]:
    """One item: its input, and its target where it has one."""
    name = type(dataset).__name__
    try:
        item = dataset[number]
    except Exception as error:
        raise UserError(f"item {number} of {name} cannot be read: {_line(error)}") from error
    values = item if isinstance(item, list | tuple) else (item,)
    if not 1 <= len(values) <= 2:
        raise UserError(f"item {number} of {name} ({len(values)} values) must be (x, y) or x alone")
    return tuple(_value(value, f"item {number} of {name}") for value in values)


def _value(value: Any, what: str) -> Array | str:  # noqa: ANN401 -- whatever an item holds
    """A number, array, tensor or picture as an array; a text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, Tensor):
        kept = value.detach().cpu()
        return (kept.float() if kept.dtype == torch.bfloat16 else kept).numpy()
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a picture of Pillow
        return np.asarray(value if value.mode in ("L", "RGB") else value.convert("RGB"))
    array = np.asarray(value) if isinstance(value, bool | int | float) or _is_array(value) else None
    if array is None or array.dtype.kind not in "biuf":
        raise UserError(
            f"{what} (of type {type(value).__name__}) must hold tensors, arrays, numbers, pictures "
            "or texts: (x, y), or x alone"
        )
    return array


def _is_array(value: object) -> bool:
    return hasattr(value, "__array__")


def _line(error: BaseException) -> str:
    """What was raised in one line; in a worker, that after its traceback."""
    kind, lines = type(error).__name__, [line for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith(f"Caught {kind} in DataLoader worker"):
        lines = [line.partition(": ")[2] for line in lines if line.startswith(kind)][-1:]
    return shown(f"{kind}: {lines[0]}" if lines else kind)


# --------------------------------------------------------------------------------------- loaders


def read_loader(loader: DataLoader[Any]) -> Rows:
    """All samples that a loader gives in one epoch."""
    with _seeded(), closing(_batches(loader)) as batches:
        found, size, most = list[Rows](), 0, free() / 2
        for batch in batches:
            found.append(batch)
            size += _bytes(batch)
            if size > most:
                raise UserError(
                    f"the samples of a DataLoader ({size / 1e9:,.1f} GB after {len(found):,} "
                    "batches) must fit into memory twice where they are validated or tested on; "
                    "give fewer"
                )
    return _joined(found)


def _batches(loader: DataLoader[Any]) -> Generator[Rows]:
    """The batches of one epoch."""
    done, batches = 0, None
    try:
        batches = iter(loader)
        for batch in batches:
            yield _rows(batch, done)
            done += 1
    except UserError:
        raise
    except Exception as error:
        # Else they live as long as the traceback, and one that was lost is raised again later.
        if shut_down := getattr(batches, "_shutdown_workers", None):
            shut_down()
        line = f"batch {done} of the DataLoader cannot be read: {_line(error)}"
        raise LoaderFailed(line) from error


def _rows(batch: object, number: int) -> Rows:
    """The rows of a batch."""
    what = f"batch {number} of the DataLoader"
    values = batch if isinstance(batch, list | tuple) else (batch,)
    if not 1 <= len(values) <= 2:
        raise UserError(f"{what} ({len(values)} values) must be (x, y) or x alone")
    columns: list[Array | list[str]] = []
    for value in values:
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            columns.append([*value])
            continue
        array = _value(value, what)
        if isinstance(array, str) or not array.ndim:
            raise UserError(f"{what} must hold a row for each sample; let collate_fn stack them")
        columns.append(array)
    if len({*map(len, columns)}) > 1:
        raise UserError(f"{what} must hold as many targets as inputs")
    return columns[0], columns[1] if len(columns) == 2 else None


def _bytes(batch: Rows) -> int:
    return sum(column.nbytes for column in batch if isinstance(column, np.ndarray))


def _joined(batches: Sequence[Rows]) -> Rows:
    """The rows of some batches, which must be alike."""
    if not batches:
        raise UserError("the DataLoader gives no batch; give it a dataset with items")
    for number, batch in enumerate(batches):
        _check_alike(batch, batches[0], f"batch {number} of the DataLoader")
    x, y = (_chained(column) for column in zip(*batches, strict=True))
    assert x is not None
    return x, y


def _chained(column: Sequence[Array | list[str] | None]) -> Array | list[str] | None:
    if isinstance(column[0], list):
        return [text for rows in column if isinstance(rows, list) for text in rows]
    return None if column[0] is None else np.concatenate(column)  # type: ignore[arg-type]  # alike


def _check_alike(batch: Rows, first: Rows, what: str) -> None:
    """Refuse a batch whose rows have another shape or type than those of the first."""
    for mine, its in zip(batch, first, strict=True):
        sorts = [
            f"{rows.dtype} of shape {rows.shape[1:]}"
            if isinstance(rows, np.ndarray)
            else ("texts" if rows else "no targets")
            for rows in (mine, its)
        ]
        if sorts[0] != sorts[1]:
            raise UserError(
                f"{what} (rows of {sorts[0]}) must be as batch 0 (rows of {sorts[1]}), because "
                "samples have one shape and type"
            )


class Stream:
    """Batches of a `DataLoader` for training, epoch after epoch, from samples read ahead on.

    As elsewhere, a batch that is smaller than the others, the last of an epoch, is passed over.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader, self.whole = loader, False
        with _seeded():
            batches = _batches(loader)
            found, size = list[Rows](), 0
            while size < AHEAD:
                batch = next(batches, None)
                if batch is None:
                    self.whole = True
                    break
                found.append(batch)
                size += _bytes(batch)
        self.rest: Generator[Rows] | None = batches
        self.taken = len(found)
        self.batch_size = loader.batch_size or len(found[0][0] if found else ())
        self.ahead = _joined(found)
        self.sizes = [len(batch[0]) for batch in found]
        if self.batch_size not in self.sizes:
            raise UserError(
                f"the DataLoader gives {len(self.ahead[0]):,} samples, which fill no batch of "
                f"{self.batch_size}; give it a smaller batch_size"
            )

    @property
    def steps(self) -> int:
        """Whole batches of an epoch; 0 where nobody knows."""
        if self.whole:
            return self.sizes.count(self.batch_size)
        loader = self.loader
        try:
            if loader.batch_size is None:
                return len(loader)
            iterable = isinstance(loader.dataset, IterableDataset)
            rows = len(loader.dataset if iterable else loader.sampler)  # type: ignore[arg-type]  # or TypeError
            return rows // loader.batch_size
        except (TypeError, NotImplementedError):
            return 0

    @property
    def digest(self) -> str:
        """SHA-256 of what is the same in every epoch: how many samples there are, of which form."""
        x, y = self.ahead
        sorts = [f"{c.dtype} {c.shape[1:]}" if isinstance(c, np.ndarray) else "" for c in (x, y)]
        return hashlib.sha256(f"{self.batch_size} {self.steps} {sorts}".encode()).hexdigest()

    def batches(self) -> Generator[Rows]:
        """The batches of all epochs; once for as long as training goes on."""
        x, y = self.ahead
        for start, end in pairwise([0, *accumulate(self.sizes)]):
            if end - start == self.batch_size:
                yield x[start:end], None if y is None else y[start:end]
        rest, self.rest = self.rest, None
        while True:
            with closing(rest or _batches(self.loader)) as batches:
                count = 0
                for number, batch in enumerate(batches, self.taken if rest else 0):
                    if len(batch[0]) < self.batch_size:
                        continue
                    if len(batch[0]) > self.batch_size:
                        raise UserError(
                            f"batch {number} of the DataLoader ({len(batch[0])} samples) must have "
                            f"{self.batch_size}, as the first; give it a batch_size"
                        )
                    _check_alike(batch, self.ahead, f"batch {number} of the DataLoader")
                    yield batch
                    count += 1
            if rest is None and not count:
                raise UserError("the DataLoader gave no whole batch in an epoch; give it more")
            rest = None
