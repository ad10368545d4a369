"""Row-sparse learning: of a large table only the rows that were looked up are touched.

    u_k = w_{i_k}                                (1)  rows i_1 .. i_n are read
    g_r = sum_{k: i_k = r} dL/du_k               (2)  each row's own gradient; all others have none
    s_r <- s_r + g_r^2                           (3)  squares so far
    w_r <- w_r - lr g_r / (sqrt(s_r) + eps)      (4)  only for rows that were read

The dense gradient of a table of 100,000 rows of 128 numbers is 51 MB to write and to read again for
each step. `rows` gives a gradient that names its rows instead, and `RowAdagrad` follows it: a row
whose gradient is 0 would not have moved under Adagrad either, so this is Adagrad itself and no
approximation of it, which could not be said of Adam or of momentum. torch.optim.SGD (not fused, no
momentum) takes such gradients, too. Nothing here waits for a GPU.

Duchi, Hazan, Singer (2011), "Adaptive Subgradient Methods for Online Learning and Stochastic
Optimization", JMLR 12, p. 2121.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from everynet.system.tracing import is_traced, is_transformed


def rows(table: Float[Tensor, vocab * _], index: Int64[Tensor, " rows"]) -> Float[Tensor, rows * _]:
    """The rows of a table (or entries of a vector) at `index`; the gradient is sparse.

    It is dense where it is itself differentiated, where torch traces or transforms the call, and
    for a table that is computed from others, because few operations take a sparse gradient.
    """
    if not table.is_leaf or is_traced() or is_transformed():
        return table.index_select(0, index)
    read: Tensor = _Rows.apply(table, index)  # type: ignore[no-untyped-call]  # torch's
    return read


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:  # noqa: ANN401 -- torch's own
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table.index_select(0, index)  # (1)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 -- torch's own
        (index,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return slope.new_zeros(ctx.shape).index_add(0, index, slope), None
        made = torch.sparse_coo_tensor(index[None], slope, ctx.shape, check_invariants=False)
        return made, None


def coalesce_rows(gradient: Tensor) -> tuple[Int64[Tensor, " rows"], Float[Tensor, rows * _]]:
    """The rows of a sparse gradient, each once, and the sum of each.

    As many as were read: what is left over at the end is row 0 with a gradient of 0, because how
    many there are would have to be asked of the device.
    """
    index, order = gradient._indices()[0].sort()
    group = torch.cat([index.new_zeros(1), (index.diff() != 0).cumsum(0)])[: len(index)]
    values = gradient._values()
    total = torch.zeros_like(values).index_add_(0, group, values[order])  # (2)
    return torch.zeros_like(index).index_copy_(0, group, index), total


class RowAdagrad(Optimizer):
    """Adagrad that moves the rows of a sparse gradient alone, and all of a dense one."""

    def __init__(self, params: ParamsT, lr: float = 0.1, eps: float = 1e-10) -> None:
        if not 0 <= lr < float("inf"):
            raise ValueError(f"lr ({lr}) must be a number from 0 up: the length of the first step")
        if not 0 < eps < float("inf"):
            raise ValueError(f"eps ({eps}) must be above 0, because steps are divided by it")
        super().__init__(params, {"lr": lr, "eps": eps})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step down the gradients; `closure` computes them, and the loss, first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["sum"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                if p.grad.is_sparse:
                    _update_rows(p, p.grad, state["sum"], group["lr"], group["eps"])
                else:
                    _update_all(p, p.grad, state["sum"], group["lr"], group["eps"])
        return loss


def _update_all(w: Tensor, g: Tensor, s: Tensor, lr: float | Tensor, eps: float) -> None:
    s.addcmul_(g, g)  # (3)
    w.sub_(g / s.sqrt().add_(eps) * lr)  # (4)


def _update_rows(w: Tensor, sparse: Tensor, s: Tensor, lr: float | Tensor, eps: float) -> None:
    index, g = coalesce_rows(sparse)
    s.index_add_(0, index, g * g)  # (3)
    root = s.index_select(0, index).sqrt_().add_(eps)
    w.index_add_(0, index, g.div_(root).mul_(-lr))  # (4)
