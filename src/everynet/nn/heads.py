"""Which output goes with which loss: by what the targets are, never by taste.

    task            targets            prediction      loss of z
    binary          0 or 1             sigmoid(z)      -[t log y + (1 - t) log(1 - y)]
    classification  0 .. C-1           softmax(z)      -log y_t, from C outputs
    regression      any real number    z               mean (y - t)^2
    positive        numbers above 0    softplus(z)     mean (y - t)^2

The first three losses are minus a log-likelihood (Bernoulli, categorical, Gaussian), and with these
predictions their slope by z is y - t (times 2 for the last): it never vanishes while the answer is
wrong. A prediction must be able to reach every target: tanh cannot reach a price.

Bishop (2006), "Pattern Recognition and Machine Learning", section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from everynet.system.wording import unknown


class Head(NamedTuple):
    """The output activation and the loss of the last layer's outputs z."""

    activation: Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]]
    """From z to the prediction."""
    loss: Callable[[Float[Tensor, "*shape"], Shaped[Tensor, "*targets"]], Float[Tensor, ""]]
    """Of z itself, before the activation, and of the targets."""
    target: torch.dtype
    """The dtype of the targets; where it is a float, as precise as z."""


HEADS = {
    "binary": Head(torch.sigmoid, functional.binary_cross_entropy_with_logits, torch.float32),
    "classification": Head(lambda z: z.softmax(-1), functional.cross_entropy, torch.int64),
    "regression": Head(lambda z: z, functional.mse_loss, torch.float32),
    "positive": Head(
        functional.softplus,
        lambda z, t: functional.mse_loss(functional.softplus(z), t),
        torch.float32,
    ),
}


def head(task: str) -> Head:
    """The output activation and the loss that belong to a task."""
    if task not in HEADS:
        raise ValueError(unknown("task", task, HEADS))
    return HEADS[task]
