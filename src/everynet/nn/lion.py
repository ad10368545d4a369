"""Lion, an optimiser that moves every weight by the same amount and learns only the direction.

    c     = b1 m + (1 - b1) g                       (1)  gradient, smoothed
    theta <- theta - lr (sign(c) + decay theta)     (2)  one step, the same size for all
    m     <- b2 m + (1 - b2) g                      (3)  moment, smoothed longer

A search over programs by evolution found it. The step has the length lr in every weight whose c is
not 0, whatever the gradient: the learning rate wants to be three to ten times smaller than Adam's
and the decay as much larger. It keeps one moment where Adam keeps two.

Chen et al. (2023), "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

Betas = tuple[float, float]
Rows = tuple[list[Tensor], list[Tensor], list[Tensor]]
"""Parameters, their gradients and their moments."""
Rate = float | Tensor
"""On cuda a tensor may be filled anew by a schedule, so that a captured step follows it."""
Way = Callable[[Rows, Rate, Betas, float], None]
"""One step of tensors on one device and of one dtype, by lr, betas and weight decay."""
PLAIN = (nn.Parameter, Tensor)


class Lion(Optimizer):
    """Lion as a drop-in for torch's optimisers: groups, `state_dict`, hooks, closures.

    `foreach` chooses torch's operations on lists of tensors (True) or on one tensor after another
    (False); by default a GPU takes the lists, and the CPU a compiled loop wherever the tensors of a
    parameter lie alike in memory. All give the same steps.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: Betas = (0.9, 0.99),
        weight_decay: float = 0.0,
        foreach: bool | None = None,
    ) -> None:
        if not 0 <= lr < float("inf"):
            raise ValueError(f"lr ({lr}) must be a number from 0 up: the length of a step")
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas ({betas}) must be from 0 up and below 1; try (0.9, 0.99)")
        if not 0 <= weight_decay < float("inf"):
            raise ValueError(f"weight_decay ({weight_decay}) must be a number from 0 up")
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "foreach": foreach}
        super().__init__(params, settings)

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
            for (way, _, _), rows in self._group_tensors(group).items():
                way(rows, group["lr"], group["betas"], group["weight_decay"])
        return loss

    def _group_tensors(
        self,
        group: dict[str, Any],  # Any: torch's own type of a group
    ) -> dict[tuple[Way, torch.dtype, torch.device], Rows]:
        """Parameters with their gradients and moments, by the function that updates them."""
        found: dict[tuple[Way, torch.dtype, torch.device], Rows] = {}
        foreach = group["foreach"]
        compiled = foreach is None and not torch.compiler.is_compiling()
        for p in group["params"]:
            g = p.grad
            if g is None:
                continue
            if g.layout is not torch.strided:
                raise TypeError(
                    f"the gradient's layout ({g.layout}) must be torch.strided, because Lion moves "
                    "every weight at every step; use sparse=False, or torch.optim.SparseAdam"
                )
            state = self.state[p]
            if not state:
                state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            m = state["exp_avg"]
            if p.is_complex():
                p, g, m = map(torch.view_as_real, (p, g, m))  # noqa: PLW2901 -- as torch does
            way: Way = _step_each
            if compiled and p.is_cpu:
                way = _step_compiled if _is_plain_memory(p, g, m) else _step_each
            elif foreach or (foreach is None and p.is_cuda):
                way = _step_foreach
            key = (way, p.dtype, p.device)
            rows = found.get(key)
            if rows is None:
                rows = found[key] = ([], [], [])
            rows[0].append(p)
            rows[1].append(g)
            rows[2].append(m)
        return found


def _is_plain_memory(p: Tensor, g: Tensor, m: Tensor) -> bool:
    """Whether the compiled loop may run over the three as over three plain rows of numbers."""
    dtype = p.dtype
    return (
        (dtype is torch.float32 or dtype is torch.float64)
        and g.dtype is dtype
        and m.dtype is dtype
        and type(p) in PLAIN  # others may have no memory of their own
        and type(g) is Tensor
        and (
            (p.is_contiguous() and g.is_contiguous() and m.is_contiguous())
            or all(t.is_contiguous(memory_format=torch.channels_last) for t in (p, g, m))
        )
        and not g.is_neg()  # a lazy minus sign is not in the memory
    )


def _step_each(rows: Rows, lr: Rate, betas: Betas, weight_decay: float) -> None:
    """Update one tensor after another."""
    b1, b2 = betas
    for p, g, m in zip(*rows, strict=True):
        c = m * b1 + g * (1 - b1)  # (1)
        p.sub_(c.sign_().add_(p, alpha=weight_decay).mul_(lr))  # (2)
        m.mul_(b2).add_(g, alpha=1 - b2)  # (3)


def _step_foreach(rows: Rows, lr: Rate, betas: Betas, weight_decay: float) -> None:
    """Update all tensors by operations on lists; lerp(m, g, w) is m + w (g - m)."""
    (params, grads, moments), (b1, b2) = rows, betas
    c = torch._foreach_lerp(moments, grads, 1 - b1)
    torch._foreach_sign_(c)
    if weight_decay != 0:
        torch._foreach_add_(c, params, alpha=weight_decay)
    torch._foreach_mul_(c, lr)
    torch._foreach_sub_(params, c)
    torch._foreach_lerp_(moments, grads, 1 - b2)


def _step_compiled(rows: Rows, lr: Rate, betas: Betas, weight_decay: float) -> None:
    """Update all tensors in one pass through memory."""
    from everynet.kernels.lion import lion  # noqa: PLC0415 -- numba is slow to import

    lion(*rows, lr=float(lr), betas=betas, weight_decay=weight_decay)
