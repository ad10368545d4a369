"""Cross-entropy of a linear layer that never holds all of its logits.

    z_ij  = w_j . x_i + b_j                          (1)  logits of some tokens i, all words j
    e_ij  = exp(z_ij - max_j z_ij),  s_i = sum_j e_ij  (2)  in the memory of z
    L     = mean_i (log s_i - (z_iy - max_j z_ij))   (3)  y the target of token i
    g_ij  = (e_ij / s_i - [j = y]) / n               (4)  dL/dz, n tokens that are not ignored
    dL/dx = g w,  dL/dw = g^T x,  dL/db = sum_i g_i  (5)  summed over chunks

The logits of a large vocabulary outweigh all else that a language model holds: 700 tokens of 10,000
words are 28 MB, and the plain form keeps them two or three times over. Here a chunk of tokens goes
through (1) to (5) at once in one block of memory, and what is kept for the backward pass is the
gradients themselves, which are only scaled there. The division by s_i is not done on g but on
the rows of x and of g w, which are far shorter.

Wijmans et al. (2024), "Cut Your Losses in Large-Vocabulary Language Models", arXiv:2411.09009, and
Hsu et al. (2024), "Liger Kernel", arXiv:2410.10989, section 3.2, do so in kernels for a GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.func import vjp
from torch.nn.functional import cross_entropy, linear

from everynet.nn.losses import IGNORED
from everynet.system.tracing import is_traced, is_transformed

LOGITS = 1 << 21
"""Logits of a chunk where `chunk` does not say otherwise."""
LEAST = 64
"""Tokens of a chunk at least, because dL/dw is read and written for each chunk."""


def chunked_cross_entropy(
    x: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    target: Int64[Tensor, " tokens"],
    bias: Float[Tensor, " vocab"] | None = None,
    chunk: int = 0,
) -> Float[Tensor, ""]:
    """The value of `cross_entropy(x @ weight.T + bias, target)`, `chunk` tokens at a time.

    Tokens whose target is IGNORED are left out. 0 chooses a chunk of two million logits, or of 64
    tokens where those are more. Second derivatives, and what torch traces or transforms, go through
    the plain form, which holds all logits.
    """
    if chunk < 0:
        raise ValueError(f"chunk ({chunk}) must be at least 1 token, or 0, which chooses it")
    if chunk == 0:
        chunks = -(-len(x) // max(LEAST, LOGITS // len(weight)))
        chunk = -(-len(x) // max(1, chunks))  # all of about one length
    if is_traced() or is_transformed():
        return _plain(x, weight, bias, target)
    # Inside a Function nothing tells whether gradients are wanted: under no_grad they are not.
    wanted = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias)
    )
    loss: Tensor = _Chunked.apply(x, weight, bias, target, chunk, wanted)  # type: ignore[no-untyped-call]  # torch's
    return loss


def _plain(x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    return cross_entropy(linear(x, weight, bias), target, ignore_index=IGNORED)


class _Chunked(torch.autograd.Function):
    """The loss, with its gradients computed beside it; products in half precision if autocast."""

    @staticmethod
    def forward(  # noqa: PLR0917 -- as apply has them
        ctx: Any,  # noqa: ANN401 -- torch's own
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        chunk: int,
        wanted: bool,
    ) -> Tensor:
        kind, x_, w_ = x.device.type, x, weight
        if torch.is_autocast_enabled(kind):
            x_, w_ = (t.to(torch.get_autocast_dtype(kind)) for t in (x, weight))
        dtype = torch.promote_types(x.dtype, torch.float32)  # that of the softmax, as torch has it
        counted = target != IGNORED
        share = counted.to(dtype) / counted.sum()
        y = target.clamp(min=0)[:, None]
        loss = torch.zeros((), dtype=dtype, device=x.device)
        dx = torch.empty_like(x) if wanted else None
        dw = torch.zeros_like(weight) if wanted else None
        db = torch.zeros_like(bias) if wanted and bias is not None else None
        held = x_.new_empty(min(chunk, len(x)), len(weight))
        with torch.autocast(kind, enabled=False):
            for i in range(0, len(x), chunk):
                part = slice(i, i + chunk)
                z = held[: len(x_[part])]
                if bias is None:
                    torch.mm(x_[part], w_.T, out=z)  # (1)
                else:
                    torch.addmm(bias.to(z.dtype), x_[part], w_.T, out=z)  # (1)
                e = z.to(dtype)  # z itself, but under autocast
                e -= e.amax(1, keepdim=True)
                chosen = e.gather(1, y[part])[:, 0]
                s = e.exp_().sum(1)  # (2)
                loss += (share[part] * (s.log() - chosen)).sum()  # (3)
                if dx is None or dw is None:
                    continue
                e.scatter_add_(1, y[part], -s[:, None])  # (4)
                g, scale = e.to(z.dtype), (share[part] / s).to(z.dtype)
                dx[part] = (g @ w_).mul_(scale[:, None])  # (5)
                _add_product(dw, g.T, x_[part] * scale[:, None])  # (5)
                if db is not None:
                    _add_product(db, g.T, scale)  # (5)
        ctx.save_for_backward(dx, dw, db, x, weight, bias, target)
        return loss

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 -- torch's own
        *found, x, weight, bias, target = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            given = (x, weight) if bias is None else (x, weight, bias)
            _, back, *_ = vjp(lambda x, w, b=None: _plain(x, w, b, target), *given)
            found = [*back(slope), None][:3]
            return *found, None, None, None
        dx, dw, db = [None if g is None else g * slope.to(g.dtype) for g in found]
        return dx, dw, db, None, None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a product in place; sums over chunks are as precise as the parameters are."""
    if total.dtype != a.dtype:
        total += a @ b
    elif b.dim() == 1:
        total.addmv_(a, b)
    else:
        total.addmm_(a, b)
