"""Where and how a network is computed: device, precision, threads, random numbers."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from everynet.data.dataset import Batch
from everynet.data.transfer import to_device
from everynet.system.errors import UserError
from everynet.system.launcher import read_launch
from everynet.system.seeds import random_state_kept
from everynet.system.wording import unknown

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("fp32", "tf32", "bf16", "fp64")
SMALL = 2e7
"""Multiplications an update, roughly, below which a second thread costs more than it brings."""


@dataclass(frozen=True)
class Setup:
    """How a run is computed. With the same setup on the CPU the same bits come out."""

    device: torch.device
    precision: str = "fp32"
    compile: bool = False
    threads: int = 1
    capture: bool = True
    """Whether updates on cuda are captured as one graph where they can be."""
    fixed: bool = False
    """Whether this very card was chosen (`cuda:1`), not any one."""

    @property
    def named(self) -> str:
        """The device by the name that chooses it again, for each process its own card."""
        return str(self.device) if self.fixed else self.device.type

    @property
    def dtype(self) -> torch.dtype:
        """What parameters are held in; bf16 is autocast, so they stay float32."""
        return torch.float64 if self.precision == "fp64" else torch.float32

    def autocast(self) -> AbstractContextManager[None]:
        """Computes matrix products in bfloat16 where that was asked for."""
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def bring(self, batch: Batch) -> Batch:
        """A batch on the device as it is; on its way to cuda nobody waits for it."""
        if self.device.type != "cuda" or all(tensor.is_cuda for tensor in batch):
            return batch
        return tuple([to_device(tensor, self.device) for tensor in batch])

    def place(self, batch: Batch, *, images: bool) -> Batch:
        """A batch on the device, in the precision, images channels-last for convolutions."""
        return tuple([self._place(tensor, images) for tensor in batch])

    def _place(self, tensor: Tensor, images: bool) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
        if images and tensor.dim() == 4:
            return tensor.to(self.device, dtype, memory_format=torch.channels_last)
        if tensor.dtype == dtype and tensor.device == self.device:
            return tensor  # `to` would say the same, ten times slower
        return tensor.to(self.device, dtype)


def choose(device: str = "auto", precision: str = "fp32", compile: bool = False) -> Setup:
    """The setup by names; `auto` takes cuda, else mps, else the CPU.

    `cuda` alone is the card of this process among those started together; `cuda:1` is that card.
    """
    kind, _, index = device.partition(":")
    if kind not in DEVICES or (index and kind != "cuda") or not re.fullmatch(r"\w+(:\d+)?", device):
        raise UserError(unknown("device", device, DEVICES))
    if precision not in PRECISIONS:
        raise UserError(f"precision ({precision}) must be one of {', '.join(PRECISIONS)}")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        device = kind = "cuda" if cuda else "mps" if mps else "cpu"
    if (kind == "cuda" and not cuda) or (kind == "mps" and not mps):
        raise UserError(
            f"device ({device}) must be present: torch finds no {kind}; try --device cpu"
        )
    if kind != "cuda" and precision == "tf32":
        raise UserError(f"precision (tf32) must be another on {kind}, because cuda alone has it")
    if kind == "mps" and precision == "fp64":
        raise UserError("precision (fp64) must be fp32 on mps, which has no float64; try cpu")
    place = torch.device("cuda", _card(device, index)) if kind == "cuda" else torch.device(kind)
    return Setup(place, precision, compile, fixed=bool(index))


def _card(device: str, index: str) -> int:
    """The number of the card that is meant: the one asked for, or that of this process."""
    cards, launch = torch.cuda.device_count(), read_launch()
    if dist.is_initialized():  # by the caller, who has chosen a card for each process
        card = int(index or torch.cuda.current_device())
    elif index and launch.size > 1:
        raise UserError(f"device ({device}) must be cuda with several processes: each takes a card")
    elif index or launch.local_rank is None:
        card = int(index or launch.rank % cards)
    else:  # srun may show each process a card of its own, and no other
        card = 0 if cards == 1 and launch.by.startswith("SLURM") else launch.local_rank
    if card >= cards:
        raise UserError(
            f"device ({device}) must be among the {cards} that torch finds, which are numbered "
            f"from 0, and not number {card}; try cuda:0, or fewer processes"
        )
    return card


def threads_for(model: nn.Module, batch_size: int) -> int:
    """One thread for a small network, all cores for a larger one; OMP_NUM_THREADS decides first.

    The work is guessed from the weights, those of a convolution counted 64 times because they
    are used at every pixel.
    """
    if _Process.forked:
        return torch.get_num_threads()
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if given.isdecimal() and int(given):
        return int(given)
    work = 0
    for module in model.modules():
        reuse = 64 if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) else 1
        work += reuse * sum(p.numel() for p in module.parameters(recurse=False))
    return 1 if work * batch_size < SMALL else max(1, os.cpu_count() or 1)


def describe(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({platform.processor() or platform.machine()})"


def denormals_flushed() -> str:
    """Whether numbers near zero are flushed to it: "yes", "no", or "partly" over the threads."""
    tiny = torch.full((1 << 18,), 1e-40).mul_(0.5)
    zeros = int((tiny == 0).sum())
    return "yes" if zeros == tiny.numel() else "no" if zeros == 0 else "partly"


class _Process:
    """What all runs of one process share."""

    turn = threading.RLock()
    """Held by the thread that computes a run, which may begin another inside."""
    parallel = False
    """Whether it has computed on several threads."""
    forked = False
    """Whether it was forked from one that had: asking OpenMP for its lost threads would hang."""


def _in_child() -> None:
    _Process.turn = threading.RLock()  # a thread that held it is not here
    if _Process.parallel:
        _Process.forked = True
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_in_child)


@contextmanager
def _turn(setup: Setup) -> Iterator[None]:
    """The process to ourselves: random numbers, threads and denormals are one for all of it."""
    if _Process.forked and setup.threads > 1:
        raise UserError(
            f"threads ({setup.threads}) must be 1 in a process that was forked after a run, because"
            " OpenMP cannot start others there; go on in a new process (spawn)"
        )
    turn = _Process.turn
    if not turn.acquire(blocking=False):
        raise UserError(
            "one run at a time can be computed in a process, because both would draw from the same "
            "random numbers: another thread is at it; wait for it, or use a process for each"
        )
    try:
        _Process.parallel |= torch.get_num_threads() > 1 or setup.threads > 1
        yield
    finally:
        turn.release()


@contextmanager
def computing(setup: Setup) -> Iterator[None]:
    """Set threads, denormals and cuda's choices for a run; the caller gets the state back.

    One thread of a process computes at a time; a second is refused.
    """
    with _turn(setup), _kept(setup):
        yield


@contextmanager
def _kept(setup: Setup) -> Iterator[None]:
    flushed, threads = denormals_flushed() == "yes", torch.get_num_threads()
    cuda = [setup.device] if setup.device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), random_state_kept(), _on_cuda(setup):
        torch.set_flush_denormal(True)
        torch.set_num_threads(setup.threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(flushed)


@contextmanager
def _on_cuda(setup: Setup) -> Iterator[None]:
    """Choose convolutions by trying them, and how exact float32 products are; then as before."""
    if setup.device.type != "cuda":
        yield
        return
    cudnn: Any = torch.backends.cudnn  # the stub has no `conv` and no `rnn`
    parts: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = cudnn.benchmark, [part.fp32_precision for part in parts]
    cudnn.benchmark = True
    for part in parts:
        part.fp32_precision = "tf32" if setup.precision in ("tf32", "bf16") else "ieee"
    try:
        yield
    finally:
        cudnn.benchmark = before[0]
        for part, precision in zip(parts, before[1], strict=True):
            part.fp32_precision = precision
