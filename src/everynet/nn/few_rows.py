"""Products and attention of a few rows, which is what a decoder on the CPU spends its time with.

A decoder takes one token of a sentence, or of the sequences of a beam, at a time. Torch's product
of few rows reads the weights from further away than it has to, and each of its small operations
costs more than its numbers do. Here a weight is read once for four rows, and what a head reads is
one pass over its keys. Not differentiable: `fits` says where these loops may take torch's place.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from everynet.system.tracing import is_traced, is_transformed

MOST = 8
"""Rows up to which a product is limited by reading the weights."""
LEAST = 128
"""Numbers of a row from which the loops are worth their compiling, which is done once a machine."""


def fits(x: Float[Tensor, "*rows size"]) -> bool:
    """Whether these rows are few and long enough, on the CPU, and need no gradient."""
    return (
        not torch.is_grad_enabled()
        and x.shape[-1] >= LEAST
        and 0 < x.numel() <= MOST * x.shape[-1]
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
        and not is_traced()
        and not is_transformed()
    )


def linear(
    x: Float[Tensor, "*rows size"], weight: Float[Tensor, "outputs size"]
) -> Float[Tensor, "*rows outputs"]:
    """`torch.nn.functional.linear`, for few rows by the loop."""
    return multiply(x, weight) if fits(x) else functional.linear(x, weight)


def multiply(
    x: Float[Tensor, "*rows size"],
    weight: Float[Tensor, "outputs size"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*rows outputs"]:
    """What `torch.nn.functional.linear` gives."""
    outputs, size = weight.shape
    flat = x.reshape(-1, size)
    y = flat.new_empty(flat.shape[0], outputs)
    added = flat.new_zeros(outputs) if bias is None else bias
    from everynet.kernels import few_rows  # noqa: PLC0415 -- numba is slow to import

    few_rows.multiply(_array(flat), _array(weight), _array(added), y.numpy())
    return y.view(*x.shape[:-1], outputs)


def attend_past(
    x: Float[Tensor, "rows hidden"],
    project: tuple[Float[Tensor, "three_hidden hidden"], Float[Tensor, " three_hidden"]],
    output: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    stored: Float[Tensor, "2 rows heads context size"],
    length: int,
) -> Float[Tensor, "rows hidden"]:
    """Self-attention of a further time step; its keys and values are put at `length`.

    `project` are weights and biases of queries, keys and values, `output` of the last projection.
    """
    y = torch.empty_like(x)
    (weight, bias), (weight_out, bias_out) = map(_array, project), map(_array, output)
    from everynet.kernels import few_rows  # noqa: PLC0415 -- numba is slow to import

    few_rows.attend_past(
        _array(x), weight, bias, weight_out, bias_out, stored.numpy(), length, y.numpy()
    )
    return y


def attend_memory(
    x: Float[Tensor, "rows hidden"],
    project: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    output: tuple[Float[Tensor, "hidden hidden"], Float[Tensor, " hidden"]],
    memory: tuple[
        Float[Tensor, "batch heads keys size"],
        Float[Tensor, "batch heads keys size"],
        Bool[Tensor, "batch keys"],
    ],
) -> Float[Tensor, "rows hidden"]:
    """What rows read of the keys and values of a memory, those of them that are allowed.

    Rows of a beam, one after another, share the memory of their source.
    """
    y = torch.empty_like(x)
    (weight, bias), (weight_out, bias_out) = map(_array, project), map(_array, output)
    keys, values, allowed = map(_array, memory)
    from everynet.kernels import few_rows  # noqa: PLC0415 -- numba is slow to import

    few_rows.attend_memory(
        _array(x), weight, bias, weight_out, bias_out, keys, values, allowed, y.numpy()
    )
    return y


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().contiguous().numpy()
    return array
