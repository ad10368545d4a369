"""Tensors on their way to a device, for which nobody waits."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor on a device; on its way from the CPU to cuda nobody waits for it."""
    if tensor.is_cpu and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@lru_cache(maxsize=256)
def constant(values: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of fixed numbers, or rows of them, made once: asking again copies nothing."""
    return torch.tensor(values, dtype=dtype, device=device)
