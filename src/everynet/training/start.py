"""Weights to begin from: tensors by their names, and rows of them by what they stand for.

A row of an embedding stands for a token, a column of the first layer for a column of the table, an
output for a class. Where the run that is begun from had others, or had them in another order, rows
are taken by these names. Which sizes of a tensor count them is seen by building the network twice
without its numbers, for the data and for the same with one token, column or class more: a size that
grows by one is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from everynet.data import kinds
from everynet.data.dataset import Data, Spec
from everynet.data.texts.tokens import SENTENCE
from everynet.recipes.published import Published
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import random_state_kept
from everynet.system.wording import shown

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The types that weights may have."""
MOMENTS = ("mean", "std", "target_mean", "target_std")


@dataclass(frozen=True)
class Axis:
    """The names of one sort, say of tokens, of this data and of that of the run."""

    new: Sequence[str]
    old: Sequence[str]

    @property
    def shared(self) -> list[str]:
        """The names that both have, in the order of this data."""
        held = {*self.old}
        return [name for name in self.new if name in held]

    @property
    def rows(self) -> tuple[list[int], list[int]]:
        """Their places in this data, and in that of the run."""
        new, old = ({name: n for n, name in enumerate(names)} for names in (self.new, self.old))
        return [new[name] for name in self.shared], [old[name] for name in self.shared]


@dataclass(frozen=True)
class Start:
    """The weights that a training begins from, and the names of rows where these differ."""

    path: str
    tensors: Mapping[str, Tensor]
    axes: Mapping[str, Axis] = field(default_factory=dict)
    """Tokens, columns and classes that are not those of the run, or not in the same order."""
    sizes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """For each tensor that depends on an axis, which of its sizes are one; -1: none plainly is."""
    notes: Sequence[str] = ()
    required: frozenset[str] = frozenset()
    """Tensors whose shape must be that of the network, where it has them."""

    @staticmethod
    def of(recipe: Training[Any, Any], spec: Spec) -> Start:
        """What `recipe.start` holds, for a network on data of this description."""
        path, tensors, old = str(recipe.start), recipe.start.tensors(), recipe.start.described()
        if old is None and recipe.published and Path(path).is_dir():
            return Start._of_published(recipe, recipe.published, path, tensors)
        if old is None:
            known = " and ".join(_axes(spec))
            notes = [f"a file names no {known}, so that shapes alone decide"] if known else []
            return Start(path, tensors, notes=notes)
        mine, theirs = _axes(spec), _axes(old, path)
        both = {axis: Axis(mine.get(axis, []), theirs.get(axis, [])) for axis in theirs | mine}
        axes = {axis: names for axis, names in both.items() if names.new != names.old}
        sizes: dict[str, dict[int, str]] = {}
        notes = []
        for axis, names in axes.items():
            found = _sizes(recipe, spec if names.new else old, axis, len(names.new or names.old))
            if found is None and names.new:
                raise UserError(
                    f"start ({path}) must be of the same {axis} in the same order, "
                    f"{_few(names.new)}, because {recipe.name or type(recipe).__name__} cannot be "
                    "built with one more, to see which weights are theirs; leave it out"
                )
            if found and not (axis == "classes" and recipe.new_classes):
                _check_shared(path, axis, names, spec)
            elif found == {}:  # of fixed size, or not of the network at all
                notes.append(f"no weight grows with the {axis}, which are others")
                count = len(names.old)
                found = {name: {-1: axis} for name, t in tensors.items() if count in t.shape}
            for name, which in (found or {}).items():
                sizes[name] = sizes.get(name, {}) | which
        if any(spec.get(name) != old.get(name) for name in MOMENTS):
            notes.append("values are standardised by this data, not as in that run")
        if spec.get("task") != old.get("task"):
            notes.append(f"the task was {shown(old.get('task', 'another'), 40)}")
        return Start(path, tensors, axes, sizes, notes)

    @staticmethod
    def _of_published(
        recipe: Training[Any, Any], table: Published, path: str, tensors: Mapping[str, Tensor]
    ) -> Start:
        """What published files hold, by the names of the network; its sizes are theirs."""
        layers = getattr(recipe, table.sizes[table.layers])
        found = table.rename(tensors, layers, f"start ({path})")
        may_differ = {pattern.format(n=n) for pattern in table.optional for n in range(layers)}
        return Start(path, found, required=frozenset(found.keys() - may_differ))

    def copy_into(self, model: nn.Module) -> None:
        """Fill a network with what fits; what is no number, or nothing that fits, is refused."""
        own = model.state_dict(keep_vars=True)
        for name in sorted(self.required & own.keys()):
            theirs, ours = [*self.tensors[name].shape], [*own[name].shape]
            if theirs != ours:
                raise UserError(
                    f"start ({self.path}) must be of the size of this network, but its tensor "
                    f"for {name} is {theirs}, not {ours}; its config.json or its vocabulary is "
                    "that of another file"
                )
        taken = {name: tensor for name, tensor in own.items() if self._fits(name, tensor)}
        if not taken:
            raise UserError(
                f"start ({self.path}) must hold weights that fit this network: none of its "
                f"{len(self.tensors)} tensors has the name and shape of one of ours, such as "
                f"{next(iter(own), 'none')}; give those of this network, trained with the same "
                "settings"
            )
        with torch.no_grad():
            for name, tensor in taken.items():
                self._copy(name, tensor)

    def describe(self, model: nn.Module) -> str:
        """What was taken, what is new and what was left out, in one line."""
        own = model.state_dict()
        taken = [name for name, tensor in own.items() if self._fits(name, tensor)]
        in_part = sum(name in self.sizes for name in taken)
        whole = f"{len(taken) - in_part} of {len(own)} tensors"
        parts = [whole + (f" whole and {in_part} by the names of rows" if in_part else "")]
        for axis, names in self.axes.items():
            pairs = (pair for which in self.sizes.values() for pair in which.items())
            if any(size >= 0 and its == axis for size, its in pairs):
                shared = {*names.shared}
                new, gone = ([n for n in ns if n not in shared] for ns in (names.new, names.old))
                also = [f"new: {_few(new)}"] if new else []
                also += [f"left out: {_few(gone)}"] if gone else []
                more = f" ({'; '.join(also)})" if also else ""
                parts.append(f"{axis}: {len(shared)} of {len(names.new)}{more}")
        new = [name for name in own if name not in taken]
        unused = sorted(name for name in self.tensors if name not in taken)  # a file has no order
        parts += [f"new: {_few(new)}"] if new else []
        parts += [f"left out: {_few(unused)}"] if unused else []
        return "; ".join([f"began from {self.path}: {parts[0]}", *parts[1:], *self.notes])

    def _fits(self, name: str, tensor: Tensor) -> bool:
        """Whether a tensor of that name is there, as large but for the axes that differ."""
        which = self.sizes.get(name, {})
        if name not in self.tensors or -1 in which:
            return False
        wanted = [*tensor.shape]
        for size, axis in which.items():
            wanted[size] = len(self.axes[axis].old)
        return wanted == [*self.tensors[name].shape]

    def _copy(self, name: str, tensor: Tensor) -> None:
        """Fill a tensor, or the rows of it whose names the run had too."""
        given = self.tensors[name]
        if given.dtype not in (FLOATS if tensor.is_floating_point() else (tensor.dtype,)):
            raise UserError(
                f"start ({self.path}) must hold floating-point numbers of 16, 32 or 64 bits, but "
                f"{name} is of {str(given.dtype).removeprefix('torch.')}; convert it and save it "
                "again"
            )
        places = [torch.arange(size) for size in tensor.shape]
        for size, axis in self.sizes.get(name, {}).items():
            new, old = self.axes[axis].rows
            places[size] = torch.tensor(new, dtype=torch.long)
            given = given.index_select(size, torch.tensor(old, dtype=torch.long))
        if name in self.sizes:
            tensor[torch.meshgrid(*places, indexing="ij")] = given.to(tensor)
        else:
            tensor.copy_(given)
        if not tensor.isfinite().all():
            raise UserError(
                f"start ({self.path}) must hold finite numbers, but {name} has NaN, infinity or a "
                f"number too large for {str(tensor.dtype).removeprefix('torch.')}; give weights of "
                "a training that did not diverge"
            )


def _axes(spec: Spec, path: str = "") -> dict[str, list[str]]:
    """The names that a description lists; that of a run may have come from anyone."""
    try:
        found = kinds.of(spec).axes(spec)
        if all(isinstance(name, str) for names in found.values() for name in names):
            return found
    except (TypeError, KeyError, AttributeError, ValueError):
        pass
    raise UserError(f"start ({path}) is damaged: spec.json must list tokens and classes by name")


def _sizes(
    recipe: Training[Any, Any], spec: Spec, axis: str, count: int
) -> dict[str, dict[int, str]] | None:
    """The sizes of tensors that depend on an axis; -1 where it is not as many of them.

    None where the network cannot be built for the description, or not with one more.
    """
    try:
        with random_state_kept(), torch.device("meta"):
            more = kinds.of(spec).with_one_more(spec, axis)
            ours, grown = (recipe.model(Data.described(s)).state_dict() for s in (spec, more))
    except Exception:  # what a recipe says to such data is its own affair
        return None
    found: dict[str, dict[int, str]] = {}
    for name in ours:
        before, after = ([*part[name].shape] if name in part else [] for part in (ours, grown))
        if before == after:
            continue
        pairs = zip(before, after, strict=False)
        which = {size: pair for size, pair in enumerate(pairs) if pair[0] != pair[1]}
        plain = which and {*which.values()} == {(count, count + 1)}
        found[name] = dict.fromkeys(which if plain else [-1], axis)
    return found


def _check_shared(path: str, axis: str, names: Axis, spec: Spec) -> None:
    """Refuse names of which none is shared; a task without classes has none to share."""
    held = (spec.get(name, {}).get("special", ()) for name in ("tokens", "target_tokens"))
    shared = {*names.shared} - {*SENTENCE}.union(*held)
    if shared or (axis == "classes" and not (names.new and names.old)):
        return
    raise UserError(
        f"start ({path}) must share {axis} with the data, because rows of weights are taken by "
        f"their names: it has {_few(names.old) or 'none'}, and the data has "
        f"{_few(names.new) or 'none'}; leave it out, or name its model.safetensors to take what "
        "has the same shape"
    )


def _few(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (
        ", ".join(shown(name, 40) if name.strip() else repr(name) for name in names[:most]) + more
    )
