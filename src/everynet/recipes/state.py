"""All that changes while a Training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypeVar

M = TypeVar("M", bound=nn.Module, default=nn.Module)
X = TypeVar("X", bound=nn.Module, default=nn.Module)


@dataclass
class State(Generic[M, X]):
    """All that changes while a Training runs; a checkpoint holds exactly this."""

    model: M
    extra: X
    optimizers: dict[str, Optimizer]
    step: int = 0
    """Updates done. An update that reads it cannot be captured on cuda: see `clock`."""
    _clock: Tensor | None = None

    @property
    def clock(self) -> Tensor:
        """Updates done, as a whole number on the device, which a captured update may read."""
        if self._clock is None:
            device = next((t.device for t in self.model.parameters()), torch.device("cpu"))
            self._clock = torch.full((), vars(self)["step"], device=device)
        return self._clock

    def set_clock(self, step: int) -> None:
        """Set the clock before an update, if anyone has looked at it."""
        if self._clock is not None:
            self._clock.fill_(step)

    def average(self, parameters: Sequence[Tensor], loss: Tensor, weight: float | Tensor) -> Tensor:
        """The loss; over several processes it and the gradients are averaged by weight."""
        return loss

    def descend(
        self,
        loss: Tensor | Callable[[], Tensor],
        name: str = "main",
        *,
        weight: float | Tensor = 1.0,
        clip: float = 0.0,
        clip_value: float = 0.0,
    ) -> None:
        """One step of optimiser `name` down the gradient of `loss`.

        Over processes the gradient is sum_r w_r g_r / sum_r w_r: `weight` is how much the loss of
        this one counts, such as its number of tokens where the loss is a mean over tokens.
        Each entry of the gradient is clipped at `clip_value`, then its norm at `clip`; 0 clips not.
        Autocast is for the forward pass: it is off here, and what it remembers of the weights,
        which are about to change, is forgotten.

        An optimiser that evaluates the loss several times a step (L-BFGS) takes a function.
        """
        optimizer = self.optimizers[name]
        given = [p for group in optimizer.param_groups for p in group["params"]]
        kind = given[0].device.type
        autocast = torch.is_autocast_enabled(kind)

        def gradient() -> Tensor:
            value = loss
            if callable(value):
                torch.set_autocast_enabled(kind, autocast)
                value = value()
                torch.set_autocast_enabled(kind, False)
            for parameter in given:  # what zero_grad does, without its profiling
                parameter.grad = None
            # Only for what this optimiser was given: the two players of a GAN leave no gradients
            # on each other.
            value.backward(inputs=given if len(self.optimizers) > 1 else None)
            value = self.average(given, value, weight)
            if clip_value > 0:
                nn.utils.clip_grad_value_(given, clip_value)
            if clip > 0:
                nn.utils.clip_grad_norm_(given, clip)
            return value

        if autocast:  # switched by hand: the context costs 0.1 ms
            torch.set_autocast_enabled(kind, False)
        try:
            if callable(loss):
                optimizer.step(lambda: gradient().item())
            else:
                gradient()
                optimizer.step()
        finally:
            if autocast:
                torch.set_autocast_enabled(kind, True)
                torch.clear_autocast_cache()
