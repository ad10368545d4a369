"""Tensors on their way to a device, for which nobody waits."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from everynet.system.tracing import is_traced


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor on a device; on its way from the CPU to cuda nobody waits for it."""
    if tensor.is_cpu and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def constant(values: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of fixed numbers, or rows of them, made once: asking again copies nothing.

    One that torch makes while it traces has no memory and is not kept.
    """
    make = _make_constant.__wrapped__ if is_traced() else _make_constant
    return make(values, dtype, device)


@lru_cache(maxsize=256)
def _make_constant(values: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)
