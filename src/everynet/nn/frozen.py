"""A network that is given and not trained: no checkpoint stores it, no optimiser sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from torch import Tensor, nn


class Frozen(nn.Module):
    """Holds a network in eval mode with its gradients off, outside of parameters and state.

    It moves with whatever holds it (`to`, `double`, `cuda`), answers as the network does, and lets
    gradients through to its inputs.
    """

    network: nn.Module

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "network", network.requires_grad_(False).eval())

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 -- what the network takes and gives
        return self.network(*inputs)

    def train(self, mode: bool = True) -> Self:
        """The network stays in eval mode, whatever becomes of what holds it."""
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.network._apply(fn, recurse)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self
