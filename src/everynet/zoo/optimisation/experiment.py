"""What the experiments on training share: one network on tensors in memory, and its figures."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.memory import keep_freed_memory
from everynet.recipes import make_optimizer

Loss = Callable[[Tensor, Tensor], Tensor]


def fit(
    model: nn.Module,
    x: Float[Tensor, " rows *features"],
    y: Shaped[Tensor, " rows *target"],
    *,
    steps: int,
    generator: torch.Generator,
    batch_size: int = 0,
    lr: float = 0.1,
    optimizer: str = "sgd",
    weight_decay: float = 0.0,
    loss: Loss = cross_entropy,
    penalty: Callable[[], Tensor] | None = None,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Float[Tensor, " steps"]:
    """Train `model` in place; the loss at each step, without the penalty.

    Batches run through the rows in an order drawn anew each time; 0 takes all rows at once.
    `watch` is called with the number of steps done, first with 0.
    """
    keep_freed_memory()
    size = batch_size or len(x)
    descent = make_optimizer(model.parameters(), optimizer, lr, weight_decay)
    values, order = [], torch.empty(0, dtype=torch.int64)
    model.train()
    for step in range(steps):
        if watch is not None:
            watch(step)
        if len(order) < size:
            order = torch.randperm(len(x), generator=generator)
        rows, order = order[:size], order[size:]
        batch = x if size == len(x) else x[rows]
        batch = augment(batch, generator) if augment else batch
        value = loss(model(batch), y if size == len(x) else y[rows])
        descent.zero_grad()
        (value if penalty is None else value + penalty()).backward()
        descent.step()
        values.append(value.detach())
    if watch is not None:
        watch(steps)
    return torch.stack(values)


@torch.no_grad()
def score(
    model: nn.Module,
    x: Float[Tensor, " rows *features"],
    y: Shaped[Tensor, " rows *target"],
    measure: Loss,
) -> float:
    """A measure over all rows in eval mode; the mode is given back."""
    training = model.training
    model.eval()
    parts = [
        measure(model(some), true).item() * len(some)
        for some, true in zip(x.split(2000), y.split(2000), strict=True)
    ]
    model.train(training)
    return sum(parts) / len(x)


def accuracy(logits: Float[Tensor, "rows classes"], y: Shaped[Tensor, " rows"]) -> Tensor:
    """The share of rows whose largest logit is that of their class."""
    return (logits.argmax(dim=1) == y).double().mean()
