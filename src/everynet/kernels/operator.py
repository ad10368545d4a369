"""Loops that torch sees as operators of its own: one door for all of them.

A call as it stands is an autograd function, which costs least. While torch traces, the same loop is
a custom operator of the namespace `everynet`, one node of the graph that is not entered. Under the
transformations of torch.func, which know the rules of torch's own operators alone, the form in
torch takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from everynet.system.tracing import is_traced, is_transformed


def operator(
    forward: Callable[..., Tensor],
    *,
    plain: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    save: Callable[..., None],
    backward: Callable[..., Any],
) -> Callable[..., Tensor]:
    """The operator that a compiled loop is, under the name of `forward`.

    `plain` is the same in torch, differentiable as often as one likes. `fake` gives an empty tensor
    of the right shape. `save` and `backward` are the two halves of an autograd rule; with gradients
    enabled (create_graph) `backward` must give what can be differentiated again.
    """
    name = forward.__name__.strip("_")
    custom = torch.library.custom_op(f"everynet::{name}", forward, mutates_args=())
    custom.register_fake(fake)
    custom.register_autograd(backward, setup_context=save)

    def run(ctx: Any, *given: Any) -> Tensor:  # noqa: ANN401 -- torch adds attributes to ctx
        output = forward(*given)
        save(ctx, given, output)  # a `setup_context` of its own would cost 30 us a call
        return output

    methods = {"forward": staticmethod(run), "backward": staticmethod(backward)}
    function: Any = type(name, (torch.autograd.Function,), methods)

    def call(*given: Any) -> Tensor:  # noqa: ANN401 -- as `forward` takes them
        if is_transformed():
            return plain(*given)
        made: Tensor = custom(*given) if is_traced() else function.apply(*given)
        return made

    return call


def gradients(
    plain: Callable[..., Any],
    given: tuple[Tensor, ...],
    upstream: Any,  # noqa: ANN401 -- as `plain` gives
) -> tuple[Tensor, ...]:
    """The gradients of the plain form, which can be differentiated again."""
    _, back, *_ = torch.func.vjp(plain, *given)
    found: tuple[Tensor, ...] = back(upstream)
    return found
