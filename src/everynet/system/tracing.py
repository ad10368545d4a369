"""Whether torch only records or rewrites what is being called, so that no memory can be read."""

from __future__ import annotations

import torch


def is_traced() -> bool:
    """Whether a call is traced: by torch.compile or torch.export, or on tensors without memory."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def is_transformed() -> bool:
    """Whether a transformation of torch.func (grad, vmap, jvp) is at work around a call."""
    return bool(torch._C._are_functorch_transforms_active())  # type: ignore[attr-defined]  # C
