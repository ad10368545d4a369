"""Data-parallel training: every process runs the same loop on its own rows of the batch.

The processes are those of a launcher (torchrun, srun, or variables set by hand) or of a group that
the caller made. Text between them goes as bytes, or through the store; nothing is pickled.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later it would keep the group, whose threads abort the end
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]  # public, not in its __all__
from torch.distributed.distributed_c10d import _get_default_store  # has no public name

from everynet.data.draws import Share
from everynet.recipes.state import M, State, X
from everynet.system.errors import Failure, UserError, explain
from everynet.system.launcher import ALONE, Launch, read_launch
from everynet.system.signals import Stop

MEETING = 300.0  # seconds within which all processes must have begun
ANSWER = 3.0  # seconds in which a process that lost another must say that it is still there


class PeerLost(RuntimeError):
    """A message between processes could not be sent or received."""


@contextmanager
def exchanging() -> Iterator[None]:
    """Within it a message goes between processes; whatever prevents it is `PeerLost`.

    Gloo has no error of its own for a peer that is gone, and many words for it.
    """
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(str(error)) from error


@dataclass(frozen=True)
class World:
    """One process among those of the run; alone it is rank 0 of 1."""

    rank: int = 0
    size: int = 1
    store: Store | None = None
    device: torch.device = torch.device("cpu")  # noqa: RUF009 -- it cannot be changed

    @property
    def writes(self) -> bool:
        """Whether this process writes files and prints: rank 0 alone does."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """The rows of a global batch that are for this process."""
        return Share(self.rank, self.size)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over the processes: one message for all of them."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with exchanging():
            dist.all_reduce(flat)
        flat /= self.size
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def average_gradients(
        self, parameters: Sequence[Tensor], loss: Tensor, weight: float | Tensor = 1.0
    ) -> Tensor:
        """Replace gradients by sum_r w_r g_r / sum_r w_r over the processes, in one message.

        One that is absent here counts as zeros, and stays absent if it is so everywhere. The mean
        of the loss, by the same weights, is given back.
        """
        grads = [p.grad for p in parameters]
        filled = [
            torch.zeros_like(p) if grad is None else grad
            for p, grad in zip(parameters, grads, strict=True)
        ]
        own = torch.as_tensor(weight, dtype=filled[0].dtype, device=filled[0].device).reshape(1)
        there = own.new_tensor([grad is not None for grad in grads])
        values = torch.cat([*(g.reshape(-1) for g in filled), loss.detach().to(own).reshape(1)])
        message = torch.cat([values * own, own, there])
        with exchanging():
            dist.all_reduce(message)
        *parts, mean, total, present = message.split(
            [*(g.numel() for g in filled), 1, 1, len(grads)]
        )
        # Asking the device waits for it: only a process that lacks a gradient has to.
        found = present.tolist() if any(grad is None for grad in grads) else [1.0] * len(grads)
        for p, grad, part, anywhere in zip(parameters, filled, parts, found, strict=True):
            if anywhere:
                p.grad = grad.copy_((part / total).view_as(grad))
        (loss,) = mean / total
        return loss

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any process says so; all of them get the same answer."""
        if self.size == 1:
            return flag
        votes = torch.tensor(float(flag), device=device)
        with exchanging():
            dist.all_reduce(votes)
        return bool(votes.item() > 0)

    def same(self, text: str) -> bool:
        """Whether every process has the same text; all of them get the same answer."""
        if self.size == 1:
            return True
        number = float(zlib.crc32(text.encode()) >> 8)  # 24 bits, which a float32 holds
        extremes = torch.tensor([number, -number], device=self.device)
        with exchanging():
            dist.all_reduce(extremes, dist.ReduceOp.MAX)
        return bool((extremes[0] == -extremes[1]).item())

    def share_buffers(self, module: nn.Module) -> None:
        """Give every process rank 0's buffers (the running statistics of batch norm)."""
        if self.size > 1:
            with exchanging():
                for buffer in module.buffers():
                    dist.broadcast(buffer, 0)

    def share_text(self, text: str) -> str:
        """Give every process rank 0's text."""
        if self.size == 1:
            return text
        content = torch.tensor([*text.encode()], dtype=torch.uint8, device=self.device)
        length = torch.tensor(len(content), device=self.device)
        with exchanging():
            dist.broadcast(length, 0)
            content = content if self.writes else content.new_empty(int(length))
            dist.broadcast(content, 0)
        return bytes(content.tolist()).decode()

    def check(self, batch_size: int, per_rank: bool, name: str) -> None:
        """Refuse what cannot be trained by several processes."""
        if self.size > 1 and per_rank:
            raise UserError(f"{name} cannot be trained by several processes: run it without them")
        if self.size > 1 and batch_size % self.size:
            raise UserError(
                f"batch_size ({batch_size}) must be divisible by the {self.size} processes; "
                f"try {(batch_size // self.size + 1) * self.size}"
            )

    def missing(self, error: Exception) -> str:
        """Which processes are gone, with what they said last; asked when a message failed."""
        others = {rank for rank in range(self.size) if rank != self.rank}
        try:
            self._say("here")
            gone = self._without({"here", "raised"}, others)
            raised = others - self._without({"raised"}, others, seconds=0)
            words = [f"rank {r} stopped: {self._read(f'raised/{r}')}" for r in sorted(raised)]
            words += [f"rank {r} was killed" for r in sorted(gone)]
            self._say("named")
            if self.writes:  # the store may live in this process, and the others still ask it
                self._without({"named"}, others - gone - raised)
        except RuntimeError:  # of the store, whose process is gone
            words = ["rank 0 was killed"]
        line = " ".join(str(error).split())
        return "; ".join(words) or f"the processes lost touch with each other: {line:.200}"

    def say_why(self, error: Exception) -> None:
        """Let the other processes know why this one ends."""
        with suppress(RuntimeError):  # they are gone
            self._say("raised", explain(error)[1])

    def _say(self, key: str, text: str = "") -> None:
        assert self.store is not None
        self.store.set(f"{key}/{self.rank}", text)

    def _read(self, key: str) -> str:
        assert self.store is not None
        return str(self.store.get(key), "utf-8")

    def _without(self, keys: set[str], ranks: set[int], seconds: float = ANSWER) -> set[int]:
        """The processes that have said none of these so many seconds from now."""
        assert self.store is not None
        deadline = time.monotonic() + seconds
        while True:
            ranks = {r for r in ranks if not any(self.store.check([f"{k}/{r}"]) for k in keys)}
            if not ranks or time.monotonic() >= deadline:
                return ranks
            time.sleep(0.05)


@dataclass
class SharedState(State[M, X]):
    """The state of one process among several, which average their gradients."""

    world: World = World()

    def average(self, parameters: Sequence[Tensor], loss: Tensor, weight: float | Tensor) -> Tensor:
        return self.world.average_gradients(parameters, loss, weight)


class _Process:
    """What all runs of one process share."""

    runs = 0
    """Numbers them: what one left in the store is not for the next to read."""
    joined = False
    """Whether a run with others is on its way: one within it, of a picture say, is alone."""


@contextmanager
def joined(device: torch.device, stop: Stop | None = None) -> Iterator[World]:
    """The world of this run: the group of the caller, the processes of a launcher, or this one."""
    made = dist.is_initialized()
    launch = Launch(dist.get_rank(), dist.get_world_size()) if made else read_launch()
    if launch.size == 1 or _Process.joined:
        yield World()
        return
    _Process.runs += 1
    prefix = f"everynet-{_Process.runs}"
    if made:
        _check_group(device)
        store = PrefixStore(prefix, _get_default_store())
    else:
        with (stop or Stop()).ending("stopped while it waited for the other processes"):
            store = PrefixStore(prefix, _meet(launch))
        _make_group(device, store, launch)
        _wait_for_all(store, launch)
    world = World(launch.rank, launch.size, PrefixStore("said", store), device)
    _Process.joined = True
    try:
        yield world
    except (PeerLost, dist.DistError) as error:
        raise Failure(f"rank {world.rank} stops: {world.missing(error)}") from error
    except Exception as error:
        world.say_why(error)
        raise
    finally:
        _Process.joined = False
        if not made and dist.is_initialized():
            dist.destroy_process_group()


def _check_group(device: torch.device) -> None:
    """Refuse a device that the group of the caller cannot send from."""
    served = dist.get_backend_config()
    if f"{device.type}:" not in served:
        raise UserError(
            f"device ({device}) must be one that the process group serves, because gradients are "
            f"averaged over it, and it was made for {served}; choose another device, or make it "
            "without naming a backend"
        )


def _make_group(device: torch.device, store: Store, launch: Launch) -> None:
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    try:
        dist.init_process_group(backend, store=store, rank=launch.rank, world_size=launch.size)
    except RuntimeError as error:
        line = " ".join(str(error).split())
        raise Failure(
            f"rank {launch.rank} stops: the processes did not connect by {backend}: {line:.200}"
        ) from error


def _wait_for_all(store: Store, launch: Launch) -> None:
    """Wait until every process is in the group: one that left before would break it for the rest.

    A run may be refused as soon as it begins, by one process earlier than by another.
    """
    store.set(f"in/{launch.rank}", "")
    everyone = [f"in/{rank}" for rank in range(launch.size)]
    store.wait(everyone, timedelta(seconds=MEETING))


@cache
def _meet(launch: Launch) -> Store:
    """The store of all processes, once all are there; one for all runs of this process.

    They are waited for in a thread, because a signal is heard in the main one alone.
    """
    (host, port), found = launch.address(), list[Store | Exception]()
    url = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    url += f"?rank={launch.rank}&world_size={launch.size}"

    def meet() -> None:
        try:
            found.append(next(rendezvous(url, timeout=timedelta(seconds=MEETING)))[0])
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    (store,) = found
    if isinstance(store, Exception):
        line = " ".join(str(store).split())
        raise UserError(
            f"{launch.by} ({launch.size}) must be how many processes were started: they did not "
            f"all meet at {host}:{port} ({line:.200}); start the others within {MEETING:.0f} s, or "
            f"{ALONE}"
        )
    return store
