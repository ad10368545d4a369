"""Images that are to become other images: a folder with `inputs` and `targets`, or an npz.

Of a folder (see `image_kind.py`) a target has values from 0, black, to 1, white; of an npz with an
x and a 4-D y, those of y. Images are standardised channel by channel, targets all alike:

    y = (value - target_mean) / target_std

over the training targets. `size=` resizes both (bilinear). What a network makes is as large as the
image that it was given (bilinear) and in the units of the targets; it is written as PNG, from black
at `target_low` to white at `target_high`, and as npy with the exact values.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from everynet.data.dataset import Batch, Spec
from everynet.data.images import decode as picture
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.standardize import (
    Standardize,
    counted_moments,
    counts,
    resize,
    write_images,
)
from everynet.data.in_memory import Array, Given
from everynet.data.kinds import Origin
from everynet.data.kinds.image_kind import Listing, PairedKind
from everynet.data.report import Report, count_rows
from everynet.data.samples import Pair, Samples
from everynet.data.tables import arrays
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

RANGE = ("target_mean", "target_std", "target_low", "target_high")


@dataclass(frozen=True)
class Maps(Samples):
    """Samples whose y is an image of real numbers, or uint8 that stands for 0 to 1."""

    task: str = "regression"
    target_levels: Sequence[Sequence[int]] = ()
    """How often each level occurs in each channel of the training targets, where it is known."""


@dataclass(frozen=True)
class PrepareMaps:
    """Makes a stored batch into what the network sees and what it is to give."""

    standardize: Standardize
    mean: float
    std: float

    def targets(self, y: Tensor) -> Float[Tensor, "batch channels height width"]:
        """Targets standardised, float32."""
        values = y.double() / 255 if y.dtype == torch.uint8 else y.double()
        return ((values - self.mean) / self.std).float()

    def __call__(self, batch: Batch) -> Batch:
        """Images and targets standardised."""
        x, y = batch
        return self.standardize.images(x), self.targets(y)


class Map(PairedKind[Maps]):
    """Images, each with a real-valued image."""

    name: ClassVar[str] = "map"
    about: ClassVar[str] = (
        "images with an image each: a folder with inputs and targets in it, whose files have the "
        "same names, or an npz with an x and a 4-D y"
    )
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = "(X, Y) with as many images Y, N x channels x H x W"
    samples: ClassVar[type[Any]] = Maps
    target: ClassVar[str] = "map"
    title: ClassVar[str] = "images with images"
    folders: ClassVar[tuple[str, str]] = ("inputs", "targets")
    arrays: ClassVar[tuple[str, ...]] = (".npz",)
    drawn: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        if path.suffix.lower() == ".npz":
            return arrays.rank(path, "y") == 4
        return super().matches(path)

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        return columns[1].x, {"target_levels": columns[1].facts["counts"]}

    def from_arrays(self, path: Path, like: Spec | None) -> Maps:
        found = arrays.pairs(path, arrays.held(path), like)
        return _make_samples(path, found, arrays.digest(path), like)

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Maps | None:
        x, y = given.x, given.y
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or x.ndim < 3:
            return None
        found = {"test": (x, y)} if like else {p: (x[r], y[r]) for p, r in given.slices.items()}
        return _make_samples(Path(given.short), found, given.digest, like)

    def to_data_units(self, made: Tensor, spec: Spec) -> Tensor:
        values: Tensor = made.detach().cpu().double() * spec["target_std"] + spec["target_mean"]
        return values

    def answer(self, prediction: Mapping[str, Any], spec: Spec, origin: Origin) -> dict[str, Any]:
        """The map in the units of the targets and as large as its image."""
        found = super().answer(prediction, spec, origin)
        for key, value in found.items():
            if hasattr(value, "shape") and origin.size and value.shape[1:] != origin.size:
                (found[key],) = interpolate(
                    value[None], origin.size, mode="bilinear", antialias=True
                )
        return found

    def resized(self, pair: Pair, size: int) -> Pair:
        return resize(pair[0], size, self.margin), resize(pair[1], size, self.margin)

    def prepare(
        self, samples: Maps, parts: dict[str, Pair], standardize: Standardize, like: Spec | None
    ) -> tuple[Spec, Callable[[Batch], Batch]]:
        y = parts["train"][1]
        if like is not None and list(y.shape[1:]) != like["target_shape"]:
            raise UserError(
                f"{samples.name}: targets of shape {tuple(y.shape[1:])} must have the shape "
                f"{tuple(like['target_shape'])} of those that were learned"
            )
        if like is None:
            same = y is samples.parts["train"][1]
            known = _range(y, samples.target_levels if same else ())
        else:
            known = {name: like[name] for name in RANGE}
        if not np.isfinite(list(known.values())).all():
            raise UserError(f"{samples.name}: the targets have values too large to learn from")
        prepare = PrepareMaps(standardize, known["target_mean"], known["target_std"])
        return {**known, "target_shape": list(y.shape[1:])}, prepare

    def write(
        self, made: Float[Tensor, "maps channels height width"], spec: Spec, path: Path
    ) -> list[Path]:
        """Pictures, and all values in the units of the targets as one npy."""
        low, high = spec["target_low"], spec["target_high"]
        grey = made if made.shape[1] in (1, 3) else made[:, :1]
        pictures = write_images(((grey - low) / max(high - low, 1e-300)).clamp(0, 1).float(), path)
        content = io.BytesIO()
        np.save(content, made.float().numpy())
        files.write(path.with_suffix(".npy"), content.getvalue())
        return [*pictures, path.with_suffix(".npy")]

    def decode_target(self, path: Path, content: bytes) -> object:
        return picture.decode(path, content)

    def count(self, samples: Maps, report: Report) -> None:
        if not report.counts:  # of a folder, the files were counted before
            count_rows(samples, report)

    def line(self, spec: Spec) -> str:
        shape, target = ("x".join(map(str, spec[name])) for name in ("shape", "target_shape"))
        return f"{spec['name']}: images of {shape} that become {target}"


def _range(
    y: Shaped[Tensor, "maps channels height width"], levels: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Mean, standard deviation, lowest and highest value of targets, all channels alike."""
    if y.dtype == torch.uint8:
        found = torch.tensor(levels) if levels else counts(y)
        (mean,), (std,) = counted_moments(found.sum(0, keepdim=True), 255.0)
        low, high = 0.0, 1.0
    else:
        values = y.double()
        mean, std = values.mean().item(), values.std(correction=0).item() or 1.0
        low, high = values.min().item(), values.max().item()
    return {"target_mean": mean, "target_std": std, "target_low": low, "target_high": high}


def _make_samples(
    path: Path, found: Mapping[str, tuple[Array, Array]], digest: str, like: Spec | None = None
) -> Maps:
    """The samples in the arrays of some parts."""
    parts: dict[str, Pair] = {}
    for part, (x, y) in found.items():
        images = arrays.as_samples(path, f"x of {part}", x)
        if y.ndim != 4:
            raise UserError(f"{shown(path)}: y of {part} (shape {y.shape}) must have 4 dimensions")
        targets = arrays.as_samples(path, f"y of {part}", y).double()
        same = images.dim() == 4 and images.shape[2:] == targets.shape[2:]
        if not same or len(images) != len(targets):
            raise UserError(
                f"{shown(path)}: y of {part} (shape {y.shape}) must be as many images, as high and "
                f"wide, as x (shape {x.shape})"
            )
        parts[part] = (images, targets)
        arrays.check_alike(path, parts, part)
    return Maps(**arrays.complete(path, parts, digest, like))


KIND = Map()
