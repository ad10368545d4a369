"""All that changes while a Training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypeVar

from everynet.system.errors import UserError

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
    parts: int = 1
    """Batches whose gradients make one update (`accumulate`)."""
    part: int = 0
    """Which of them the gradient is of."""
    _clock: Tensor | None = None
    _weights: dict[str, float | Tensor] = field(default_factory=dict)
    """For each optimiser, the sum of the weights of the batches of this update so far."""

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

    @property
    def at_last_part(self) -> bool:
        """Whether the batch is the last of its update, so that weights change."""
        return self.part == self.parts - 1

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
        this one counts, such as its number of tokens where the loss is a mean over tokens. So it is
        over the batches of an update where there are several; the step is taken after the last.
        Each entry of the gradient is clipped at `clip_value`, then its norm at `clip`; 0 clips not.
        Autocast is for the forward pass: it is off here, and what it remembers of the weights,
        which are about to change, is forgotten.

        An optimiser that evaluates the loss several times a step (L-BFGS) takes a function.
        """
        if self.parts > 1 and callable(loss):
            raise UserError(
                f"accumulate ({self.parts}) must be 1, because optimizer {name!r} evaluates the "
                "loss several times a step; leave it out"
            )
        optimizer, last = self.optimizers[name], self.at_last_part
        given = [p for group in optimizer.param_groups for p in group["params"]]
        kind = given[0].device.type
        autocast = torch.is_autocast_enabled(kind)

        def gradient() -> Tensor:
            value = loss
            if callable(value):
                torch.set_autocast_enabled(kind, autocast)
                value = value()
                torch.set_autocast_enabled(kind, False)
            if self.part == 0:
                for parameter in given:  # what zero_grad does, without its profiling
                    parameter.grad = None
            # Only for what this optimiser was given: the two players of a GAN leave no gradients
            # on each other.
            inputs = given if len(self.optimizers) > 1 else None
            if self.parts == 1:
                value.backward(inputs=inputs)
                value = self.average(given, value, weight)
            else:
                (value * weight).backward(inputs=inputs)
                self._weights[name] = weight + (self._weights[name] if self.part else 0)
                if not last:
                    return value
                self._divide(given, self._weights[name])
                value = self.average(given, value, self._weights[name])
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
                if last:
                    optimizer.step()
        finally:
            if autocast:
                torch.set_autocast_enabled(kind, True)
                torch.clear_autocast_cache()

    @staticmethod
    def _divide(parameters: Sequence[Tensor], total: float | Tensor) -> None:
        """Turn sums of weighted gradients into means."""
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= total
