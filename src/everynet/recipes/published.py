"""Published weights: tensors in the layout of Hugging Face, brought to the names of a network here.

A folder of such files holds model.safetensors and config.json, and a text model its vocabulary. A
network of the zoo that reads them has one table, a `Published`, which says under which names each
of its tensors is stored there, and which fields of the recipe the sizes of config.json are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from everynet.system.errors import UserError
from everynet.system.wording import shown

_OLD = {".gamma": ".weight", ".beta": ".bias"}
"""Names of normalisation in files of the first years."""
LAYERS, LARGEST = 1000, 2**24
"""The most layers of a published network, and the largest of its other sizes."""


@dataclass(frozen=True)
class Published:
    """Where each tensor of a network is found in a published file, and its sizes in config.json."""

    model_type: str
    """What config.json calls it."""
    sizes: Mapping[str, str]
    """Fields of the recipe, by their names in config.json."""
    fixed: Mapping[str, Sequence[object]]
    """Entries of config.json with the values of this network, the first where it is left out."""
    names: Mapping[str, str | tuple[str, ...]]
    """Names there by names here; {n} counts layers, and rows of several follow each other."""
    layers: str
    """The entry of `sizes` that counts layers."""
    transposed: frozenset[str] = frozenset()
    """Names here of the matrices that lie transposed there."""
    optional: frozenset[str] = frozenset()
    """Names here that a file may lack, such as those of a head; then they begin anew."""
    prefix: str = ""
    """What the names in a file may begin with."""
    ignored: tuple[str, ...] = ()
    """Ends of names of tensors that are no weights, such as masks."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Names there that repeat another name there."""

    def settings(self, config: Mapping[str, Any], path: str) -> dict[str, int | float]:
        """The fields of the recipe that config.json sets; another network's is refused."""
        if (kind := config.get("model_type", self.model_type)) != self.model_type:
            raise UserError(
                f"{path} (model_type {shown(kind, 40)}) must be of {self.model_type}, because this "
                "network has its layers; name the recipe of that network"
            )
        for name, allowed in self.fixed.items():
            if (value := config.get(name, allowed[0])) not in allowed:
                raise UserError(
                    f"{path} ({name} {shown(value, 40)}) must have {name} {shown(allowed[0], 40)}, "
                    "because this network computes no other; name another folder"
                )
        found = {ours: config[theirs] for theirs, ours in self.sizes.items() if theirs in config}
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(
                    f"{path} ({name} {shown(value, 40)}) must be a number; it is damaged"
                )
            most = LAYERS if name == self.sizes[self.layers] else LARGEST
            if not 0 <= value <= most:
                raise UserError(
                    f"{path} ({name} {shown(value, 40)}) must be from 0 to {most:,}; it is damaged"
                )
        return found

    def rename(
        self, tensors: Mapping[str, Tensor], layers: int, path: str = "the file"
    ) -> dict[str, Tensor]:
        """The tensors of a published file by our names, as our network lays them out."""
        given = {self._plain(name): tensor for name, tensor in tensors.items()}
        found: dict[str, Tensor] = {}
        used: set[str] = set()
        for pattern, sources in self.names.items():
            for n in range(layers) if "{n}" in pattern else (0,):
                ours = pattern.format(n=n)
                several = (sources,) if isinstance(sources, str) else sources
                theirs = [source.format(n=n) for source in several]
                if missing := [name for name in theirs if name not in given]:
                    if pattern in self.optional and len(missing) == len(theirs):
                        continue
                    raise UserError(
                        f"{path} must hold the tensor {missing[0]}, as files of {self.model_type} "
                        f"with {layers} layers do; its {len(given)} tensors have another layout"
                    )
                parts = [given[name] for name in theirs]
                if pattern in self.transposed:
                    parts = [
                        _turned(part, name, path) for part, name in zip(parts, theirs, strict=True)
                    ]
                found[ours] = _joined(parts, theirs, path)
                used |= {*theirs}
        left = [name for name in given if name not in used and not self._may_be_left(name)]
        if left:
            shape = [*given[left[0]].shape]
            raise UserError(
                f"{path} holds the tensor {shown(left[0], 80)} {shape}, which {self.model_type} "
                f"with {layers} layers has not; name the file of such a network"
            )
        return found

    def _plain(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        old = next((end for end in _OLD if name.endswith(end)), "")
        return name.removesuffix(old) + _OLD[old] if old else name

    def _may_be_left(self, name: str) -> bool:
        return name in self.tied or name.endswith(self.ignored)


def _joined(parts: Sequence[Tensor], names: Sequence[str], path: str) -> Tensor:
    """The rows of several tensors, one after the other."""
    if len(parts) == 1:
        return parts[0].contiguous()
    for part, name in zip(parts, names, strict=True):
        if part.dim() == 0 or part.shape[1:] != parts[0].shape[1:]:
            raise UserError(
                f"{path} ({name} {[*part.shape]}) must have the rows of {names[0]} "
                f"{[*parts[0].shape]}; it is damaged"
            )
    return torch.cat([*parts])


def _turned(matrix: Tensor, name: str, path: str) -> Tensor:
    if matrix.dim() != 2:
        raise UserError(f"{path} ({name} {[*matrix.shape]}) must be a matrix; it is damaged")
    return matrix.mT
