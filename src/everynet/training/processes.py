"""Data-parallel training under torchrun: every process runs the same loop on its own rows.

Messages between processes go through the rendezvous store as text; nothing is pickled.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later it would keep the group, whose threads abort the end
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]  # public, not in its __all__

from everynet.data.draws import Share
from everynet.recipes.state import M, State, X
from everynet.system.errors import Failure, UserError


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
        dist.all_reduce(votes)
        return bool(votes.item() > 0)

    def same(self, text: str) -> bool:
        """Whether every process has the same text; all of them get the same answer."""
        if self.size == 1:
            return True
        number = float(zlib.crc32(text.encode()) >> 8)  # 24 bits, which a float32 holds
        extremes = torch.tensor([number, -number], device=self.device)
        dist.all_reduce(extremes, dist.ReduceOp.MAX)
        return bool((extremes[0] == -extremes[1]).item())

    def share_buffers(self, module: nn.Module) -> None:
        """Give every process rank 0's buffers (the running statistics of batch norm)."""
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def share_text(self, key: str, text: str) -> str:
        """Give every process rank 0's text."""
        if self.store is None:
            return text
        if self.rank == 0:
            self.store.set(key, text)
        return str(self.store.get(key), "utf-8")

    def check(self, batch_size: int, per_rank: bool, name: str) -> None:
        """Refuse what cannot be trained by several processes."""
        if self.size > 1 and per_rank:
            raise UserError(f"{name} cannot be trained by several processes: run it without them")
        if self.size > 1 and batch_size % self.size:
            raise UserError(
                f"batch_size ({batch_size}) must be divisible by the {self.size} processes; "
                f"try {(batch_size // self.size + 1) * self.size}"
            )

    def missing(self, patience: float = 5.0) -> str:
        """Which processes are gone, with what they said last; asked when a message failed."""
        assert self.store is not None
        self.store.set(f"here/{self.rank}", "")
        deadline = time.monotonic() + patience
        others = [rank for rank in range(self.size) if rank != self.rank]
        while time.monotonic() < deadline:
            if all(self.store.check([f"here/{r}"]) for r in others):
                break
            time.sleep(0.1)
        gone = [r for r in others if not self.store.check([f"here/{r}"])]
        words = []
        for r in gone:
            raised = self.store.check([f"raised/{r}"])
            words.append(
                f"rank {r} stopped: {self.store.get(f'raised/{r}').decode()}"
                if raised
                else f"rank {r} was killed"
            )
        return "; ".join(words) or "the processes lost touch with each other"


@dataclass
class SharedState(State[M, X]):
    """The state of one process among several, which average their gradients."""

    world: World = World()

    def average(self, parameters: Sequence[Tensor], loss: Tensor, weight: float | Tensor) -> Tensor:
        return self.world.average_gradients(parameters, loss, weight)


_runs = count(1)
"""Numbers the runs of this process: what one left in the store is not for the next to read."""


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """The world of this run: torchrun's processes, or this one alone."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or dist.is_initialized():
        yield World()
        return
    store, rank, size = next(rendezvous("env://"))
    store = PrefixStore(f"run-{next(_runs)}", store)
    prefixed = PrefixStore("everynet", store)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", store=store, rank=rank, world_size=size
    )
    world = World(rank, size, prefixed, device)
    try:
        yield world
    except (Failure, ValueError) as error:
        prefixed.set(f"raised/{rank}", str(error))
        raise
    except RuntimeError as error:  # a message that could not be sent or received
        if not isinstance(error, dist.DistError) and "onnection" not in str(error):
            prefixed.set(f"raised/{rank}", f"{type(error).__name__}: {error}")
            raise
        raise Failure(f"rank {rank} stops: {world.missing()}") from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
