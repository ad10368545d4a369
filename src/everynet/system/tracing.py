"""Whether torch only records or rewrites what is being called, so that no memory can be read."""

from __future__ import annotations

import torch

_MODES = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)


def is_traced() -> bool:
    """Whether a call is traced: by torch.compile or torch.export, or on tensors without memory."""
    return torch.compiler.is_compiling() or any(map(torch._C._get_dispatch_mode, _MODES))


def is_transformed() -> bool:
    """Whether a transformation of torch.func (grad, vmap, jvp) is at work around a call."""
    return bool(torch._C._are_functorch_transforms_active())
