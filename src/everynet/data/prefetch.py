"""Batches of a set that stays outside the device, made by one thread ahead of their use.

The thread gathers rows, out of a memory-mapped file say, and brings them to the device: through
pinned memory and on a stream of its own where that is a GPU, whose own queue then waits for the
copy; the host never does. What a batch holds is a function of its step alone, so it does not matter
who makes it or when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeAlias

import torch

from everynet.data.samplers import Batch
from everynet.data.transfer import to_device
from everynet.system.memory import give_back_holes

AHEAD = 2
"""So many steps are made before they are asked for."""
HOLES = 2**27
"""After so many bytes of rows, holes in the memory of the CPU are given back."""

Stored: TypeAlias = Callable[[int], Batch]
"""The rows of a step."""
Ordered: TypeAlias = "Future[tuple[Batch, torch.cuda.Event | None]]"
"""A batch to come, and what says that a GPU has it."""


def bring(batch: Batch, device: torch.device | None) -> Batch:
    """A batch on the device; a GPU copies out of pinned memory, and later."""
    return batch if device is None else tuple([to_device(tensor, device) for tensor in batch])


class Carrier:
    """One thread that makes batches and brings them to a device; ends when it is closed."""

    def __init__(self, device: torch.device | None) -> None:
        cuda = device is not None and device.type == "cuda"
        self.device = device
        self.stream = torch.cuda.Stream(device) if cuda else None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="everynet-feed")
        self.taken = 0

    def order(self, make: Callable[[], Batch]) -> Ordered:
        """Have a batch made after those that were ordered before."""
        return self.thread.submit(self._made, make)

    def _made(self, make: Callable[[], Batch]) -> tuple[Batch, torch.cuda.Event | None]:
        with torch.cuda.stream(self.stream):  # of no stream, it does nothing
            batch = bring(make(), self.device)
            return batch, self.stream.record_event() if self.stream else None

    def take(self, ordered: Ordered) -> Batch:
        """A batch that was ordered, when it is there; what went wrong is raised here."""
        batch, there = ordered.result()
        if there is not None:
            now = torch.cuda.current_stream(self.device)
            now.wait_event(there)
            for tensor in batch:
                tensor.record_stream(now)  # its memory is not given away before it was used
        self.taken += sum([tensor.numel() * tensor.element_size() for tensor in batch])
        if self.taken > HOLES and self.stream is None:
            self.taken = 0
            give_back_holes()
        return batch

    def close(self) -> None:
        """End the thread, after the batch that it is making."""
        self.thread.shutdown(cancel_futures=True)


@contextmanager
def feeding(stored: Stored, device: torch.device | None) -> Iterator[Stored]:
    """`stored` with the next steps made ahead; any other step is made when it is asked for."""
    with closing(Carrier(device)) as carrier:
        coming: dict[int, Ordered] = {}

        def fed(step: int) -> Batch:
            wanted = range(step, step + 1 + AHEAD)
            for other in [each for each in coming if each not in wanted]:
                coming.pop(other).cancel()
            for each in wanted:
                if each not in coming:
                    coming[each] = carrier.order(partial(stored, each))
            return carrier.take(coming.pop(step))

        yield fed


def ahead(batches: Iterator[Batch], device: torch.device | None) -> Iterator[Batch]:
    """Batches of a set gone through in order, each made while the one before it is used."""

    def following() -> Batch:
        rows = next(batches, ())
        # A stretch of a file is no more than a place in it until it is read.
        return rows if device is not None else tuple([tensor.clone() for tensor in rows])

    with closing(Carrier(device)) as carrier:
        ordered = carrier.order(following)
        while batch := carrier.take(ordered):
            ordered = carrier.order(following)
            yield batch
