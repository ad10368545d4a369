"""What an optimiser remembers, put back from a file only if it fits: a wrong shape harms memory.

What fits is seen on a copy of the optimiser that makes one step. Moments get the strides of their
parameters: contiguous ones beside channels-last weights make fused Adam compute wrong values.
L-BFGS remembers what it came through: its copy is given the memory, and must be able to go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from everynet.runs.encoding import decode, leaves
from everynet.system.errors import UserError
from everynet.training.start import FLOATS as FLOATS  # noqa: PLC0414 -- used beside check_fits


def remembered(
    where: str,
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    saved: Mapping[str, Mapping[str, Any]],
    moments: Mapping[str, Tensor],
) -> tuple[dict[Tensor, dict[str, Any]], set[str]]:
    """What an optimiser remembered of its parameters, if a step of it makes the like.

    `names` are those of the parameters by id, `saved` what was encoded of each. The tensors that
    were taken are named, too.
    """
    memory, used = dict(saved), set[str]()
    stepped = _stepped(optimizer)
    total = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    found: dict[Tensor, dict[str, Any]] = {}
    for i, group in enumerate(optimizer.param_groups):
        fused = bool(group.get("fused") or group.get("capturable"))
        for j, p in enumerate(group["params"]):
            if (name := names[id(p)]) not in memory:
                continue

            def tensor(key: str, p: Tensor = p, fused: bool = fused) -> Tensor:
                used.add(key)
                return _like(moments[key], key, p, fused)

            found[p] = {what: decode(v, tensor) for what, v in memory.pop(name).items()}
            if stepped is None:
                _check_memory(f"{where}/{name}", found[p], p, total)
            else:
                like = stepped.state[stepped.param_groups[i]["params"][j]]
                more = _check_like(f"{where}/{name}", found[p], like)
                if more and type(optimizer).__module__.startswith(("torch.", "everynet.")):
                    raise misfit(f"{where}/{name}/{next(iter(more)):.40} is in one only")
                _check_memory(f"{where}/{name}", more, p, total)  # it may come at a later step
    if memory:
        raise misfit(f"{where}/{next(iter(memory)):.80} is in one only")
    if type(optimizer) is torch.optim.LBFGS:
        _check_history(where, optimizer, found)
    return found, used


def _check_history(
    where: str, optimizer: torch.optim.LBFGS, found: Mapping[Tensor, dict[str, Any]]
) -> None:
    """Refuse lists that L-BFGS cannot walk through side by side, and what it cannot go on with."""
    (group,) = optimizer.param_groups
    options = {name: group[name] for name in optimizer.defaults}
    copies = [p.detach().clone() for p in group["params"]]
    copy = torch.optim.LBFGS(copies, **{**options, "max_iter": 2, "max_eval": 3})
    for p, own in zip(group["params"], copies, strict=True):
        if p in found:
            copy.state[own] = deepcopy(found[p])
            lengths = {n: len(v) for n, v in found[p].items() if isinstance(v, list)}
            most = group["history_size"]
            odd = lengths.pop("al", most) != most or max(lengths.values(), default=0) > most
            if odd or len({*lengths.values()}) > 1:
                each = ", ".join(f"{n} {len(v)}" for n, v in found[p].items() if n in lengths)
                raise misfit(f"the lists of {where} must be equally long, {most} at most: {each}")

    def steep() -> float:
        for p in copies:
            p.grad = torch.ones_like(p)
        return 1.0

    try:
        copy.step(steep)
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise misfit(f"{where} cannot go on with what it remembers: {line:.200}") from error


def _stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
    """A copy that has made one step, to see what it remembers; None if it needs more than that."""
    copy = deepcopy(optimizer)
    copy.state.clear()
    try:
        for group in copy.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        copy.step()
    except Exception:  # it needs a closure, as L-BFGS does, or more than we know
        return None
    return copy


def _check_like(where: str, found: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse memory of other shapes or kinds than a step of the optimiser makes; gives the rest."""
    for what, wanted in like.items():
        if what not in found:
            raise misfit(f"{where}/{what} is in one only")
        name, value = f"{where}/{what}", found[what]
        if isinstance(wanted, Tensor) and isinstance(value, Tensor):
            _check_alike(name, value, wanted, exact=True)
        elif not _same_kind(value, wanted):
            raise misfit(f"{name} is {_kind(value)} there and {_kind(wanted)} here")
    return {what: value for what, value in found.items() if what not in like}


def _same_kind(value: object, wanted: object) -> bool:
    numbers = (bool, int, float)
    return type(value) is type(wanted) or (type(value) in numbers and type(wanted) in numbers)


def _kind(value: object) -> str:
    return "a tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _check_memory(where: str, found: Mapping[str, Any], p: Tensor, total: int) -> None:
    """Refuse tensors that an optimiser can have no use for: a wrong shape could harm memory."""
    for what, value in found.items():
        for leaf in leaves(value):
            if isinstance(leaf, Tensor):
                fits = leaf.shape == p.shape or leaf.numel() == 1 or leaf.shape == (total,)
                if not fits or (leaf.dtype != p.dtype and leaf.is_floating_point()):
                    raise misfit(
                        f"{where}/{what} is {list(leaf.shape)} of {leaf.dtype} there, and its "
                        f"parameter {list(p.shape)} of {p.dtype} here"
                    )
            elif not isinstance(leaf, int | float | None):
                raise misfit(f"{where}/{what} is {_kind(leaf)} there")


def _like(saved: Tensor, key: str, parameter: Tensor, fused: bool) -> Tensor:
    """What an optimiser remembers of a parameter, with the parameter's strides, where it is."""
    if saved.shape == parameter.shape and saved.dim() > 0:
        return torch.empty_like(parameter, dtype=saved.dtype, requires_grad=False).copy_(saved)
    count = key.endswith("/step") and not fused  # torch counts on the CPU then
    return saved.clone() if count else saved.to(parameter.device, copy=True)


def check_fits(
    wanted: Mapping[str, Tensor], saved: Mapping[str, Tensor], *, exact: bool = True
) -> None:
    """Refuse saved tensors of other names, shapes or types; other floats too, if `exact`."""
    if odd := sorted(set(saved) ^ set(wanted)):
        raise misfit(f"{odd[0]} is in one only")
    for name, tensor in wanted.items():
        _check_alike(name, saved[name], tensor, exact=exact)


def _check_alike(name: str, saved: Tensor, here: Tensor, *, exact: bool) -> None:
    """Refuse a saved tensor of another shape or type; another float too, if `exact`."""
    if saved.shape != here.shape:
        raise misfit(f"{name} is {list(saved.shape)} there and {list(here.shape)} here")
    floats = not exact and saved.dtype in FLOATS and here.dtype in FLOATS
    if saved.dtype != here.dtype and not floats:
        raise misfit(f"{name} is {saved.dtype} there and {here.dtype} here")


def misfit(why: str) -> UserError:
    """That a checkpoint is of another network."""
    return UserError(f"the checkpoint does not fit the network: {why}")
