"""Images with a class for each pixel: a folder with `images` and `masks`, see `image_kind.py`.

A mask is a PNG as large as its image, grey or with a palette. The levels found in the training
masks, sorted, are classes 0, 1, 2 ... (`spec["levels"]`); the first is the background. They are
named as they are ("0", "255"), or by a file `classes.txt` in the folder, one name a line.
`size=` resizes images (bilinear) and masks (nearest) alike. A mask that a network predicts is as
large as the image that it was given (nearest) and has the levels of the user's masks; it is written
as a grey PNG, and beside it the image with each class but the first in a colour.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from everynet.data.dataset import Batch, Spec
from everynet.data.images import decode as picture
from everynet.data.images import folder
from everynet.data.images.decoded_cache import Decoded, decode_all, large
from everynet.data.images.file_cache import Facts
from everynet.data.images.standardize import Standardize, resize, write_image
from everynet.data.kinds import Origin
from everynet.data.kinds.image_kind import (
    Listing,
    PairedKind,
    Reader,
    check_same_size,
    read_colours,
)
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samples import Pair, Samples
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import shown

MOST_CLASSES = 64


@dataclass(frozen=True)
class Masks(Samples):
    """Samples whose y is a class for each pixel, uint8."""

    task: str = "segmentation"
    levels: tuple[int, ...] = ()
    """The level of each class in the files."""


@dataclass(frozen=True)
class PrepareMasks:
    """Makes a stored batch into what the network sees and what the loss takes."""

    standardize: Standardize

    def __call__(self, batch: Batch) -> Batch:
        """Images standardised, masks as int64."""
        x, y = batch
        return self.standardize.images(x), y.long()


class Mask(PairedKind[Masks]):
    """Images, each with a mask."""

    name: ClassVar[str] = "mask"
    about: ClassVar[str] = (
        "images with a class for each pixel: a folder with images and masks in it, whose files "
        "have the same names"
    )
    samples: ClassVar[type[Any]] = Masks
    target: ClassVar[str] = "mask"
    title: ClassVar[str] = "images with masks"
    folders: ClassVar[tuple[str, str]] = ("images", "masks")
    drawn: ClassVar[bool] = True

    def readers(self, columns: Sequence[list[Path]], how: folder.Decoding) -> list[Reader]:
        check_same_size(columns, how.seen.probe)
        shape = folder.common_shape(columns[0], how)
        how = replace(how, keep=large(len(columns[0]), shape, shape[1:]))

        def masks(paths: list[Path], train: int) -> Decoded:
            return decode_all(
                paths,
                shape[1:],
                lambda file, content: (_fitted(picture.levels(file, content), how.size), ()),
                how.seen,
                how.tally,
                how=f"masks, size {how.size}, train {train}"
                + (f", levels {how.like['levels']}" if how.like else ""),
                keep=how.keep,
                finish=lambda y, rows: _classed(
                    how, y, [paths[row] for row in rows], bisect_left(rows, train)
                ),
            )

        return [partial(how.images, shape, self.margin), masks]

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        levels = tuple(columns[1].facts["levels"])
        classes = tuple(like["classes"]) if like else _names(path, levels)
        return columns[1].x, {"classes": classes, "levels": levels}

    def resized(self, pair: Pair, size: int) -> Pair:
        return resize(pair[0], size, self.margin), nearest(pair[1], size)

    def prepare(
        self, samples: Masks, parts: dict[str, Pair], standardize: Standardize, like: Spec | None
    ) -> tuple[Spec, Callable[[Batch], Batch]]:
        if like is not None and list(samples.levels) != like["levels"]:
            raise UserError(
                f"{samples.name}: the levels {shown(', '.join(map(str, samples.levels)), 80)} of "
                f"its masks must be those that were learned: {shown(like['levels'], 80)}"
            )
        return {"levels": list(samples.levels)}, PrepareMasks(standardize)

    def to_data_units(
        self, made: Int[Tensor, "masks height width"], spec: Spec
    ) -> UInt8[Tensor, "masks height width"]:
        """The level of the class of each pixel."""
        return torch.tensor(spec["levels"], dtype=torch.uint8)[made.detach().cpu()]

    def answer(self, prediction: Mapping[str, Any], spec: Spec, origin: Origin) -> dict[str, Any]:
        """The mask in levels and as large as its image, and the share of each class in it."""
        found: dict[str, Any] = {}
        for key, value in prediction.items():
            found[key] = value
            if hasattr(value, "shape"):
                mask = nearest(value[None].cpu(), origin.size or tuple(value.shape))
                (found[key],) = self.to_data_units(mask, spec)
                counts = torch.bincount(mask.flatten(), minlength=len(spec["classes"]))
                shares = (counts / mask.numel()).tolist()
                found["classes"] = dict(zip(spec["classes"], shares, strict=True))
        return found

    def overlay(self, answer: Mapping[str, Any], spec: Spec, origin: Origin) -> Tensor | None:
        """The image, and halfway between its colours and that of its class where it has one."""
        image = read_colours(origin)
        masks = [value for value in answer.values() if hasattr(value, "shape")]
        if image is None or not masks:
            return None
        colours = torch.tensor(_palette(len(spec["levels"]))).reshape(-1, 3)
        drawn = image.clone()
        for level, ink in list(zip(spec["levels"], colours, strict=True))[1:]:
            half = (image.int() + ink[:, None, None]) // 2
            drawn = torch.where(masks[0] == level, half.byte(), drawn)
        return drawn

    def write(
        self, made: UInt8[Tensor, "masks height width"], spec: Spec, path: Path
    ) -> list[Path]:
        """Each mask as a grey PNG of its levels."""
        if path.suffix not in ("", ".png"):
            raise UserError(f"--out ({shown(path)}) must end in .png, because masks were made")
        stem = path.with_suffix("")
        one = len(made) == 1
        written = []
        for number, mask in enumerate(made):
            name = stem.name if one else f"{stem.name}-{number:03}"
            written.append(write_image(mask[None], stem.with_name(f"{name}.png")))
        return written

    def decode_target(self, path: Path, content: bytes) -> object:
        return picture.levels(path, content)

    def count(self, samples: Masks, report: Report) -> None:
        report.classes = {name: {} for name in samples.classes}
        for part in PARTS:
            within = present(samples.parts[part][1]).sum(0).tolist()
            for name, count in zip(samples.classes, within, strict=False):
                report.classes[name][part] = count

    def line(self, spec: Spec) -> str:
        return f"{super().line(spec)} of pixels"


def nearest(
    y: Shaped[Tensor, "batch height width"], size: int | tuple[int, ...]
) -> Shaped[Tensor, "batch rows columns"]:
    """Masks brought to `size`, height and width: each pixel is the nearest one, never a mean."""
    sides = (size, size) if isinstance(size, int) else size
    if y.shape[1:] == sides:
        return y
    return interpolate(y[:, None].float(), sides, mode="nearest-exact")[:, 0].to(y.dtype)


def _fitted(levels: UInt8[Any, "height width"], size: int) -> UInt8[Tensor, "rows columns"]:
    mask = torch.from_numpy(levels.copy())
    return nearest(mask[None], size)[0] if size else mask


def present(y: UInt8[Tensor, "masks height width"]) -> Bool[Tensor, "masks 256"]:
    """Which levels each mask has."""
    return torch.stack([torch.bincount(mask.flatten(), minlength=256) > 0 for mask in y])


def _classed(
    how: folder.Decoding, y: UInt8[Tensor, "masks height width"], paths: Sequence[Path], train: int
) -> tuple[Facts, UInt8[Tensor, 256]]:
    """The levels of the first `train` masks, or of those learned, and the class of each."""
    root, held = shown(how.tally.root), present(y)
    if how.like:
        levels = list(how.like["levels"])
    else:
        if not train:
            raise UserError(f"{root}: no training mask can be read; add some")
        for row in (held.sum(1) > MOST_CLASSES).nonzero()[:1, 0].tolist():
            raise UserError(
                f"{shown(paths[row])} ({int(held[row].sum())} levels) must have at most "
                f"{MOST_CLASSES} classes; the mask looks like a photograph"
            )
        levels = held[:train].any(0).nonzero()[:, 0].tolist()
        if len(levels) > MOST_CLASSES:
            raise UserError(
                f"{root} ({len(levels)} levels in its masks) must have at most {MOST_CLASSES} "
                "classes; the masks look like photographs"
            )
        if len(levels) == 1:
            raise UserError(
                f"{root}: one class (level {levels[0]}) in all masks is not enough to learn from; "
                "give at least 2"
            )
    strange = held.clone()
    strange[:, levels] = False
    for row in strange.any(1).nonzero()[:1, 0].tolist():
        level = int(strange[row].nonzero()[0, 0])
        raise UserError(
            f"{shown(paths[row])} has the level {level}, which no training mask has: "
            + shown(", ".join(map(str, levels)), 120)
        )
    number = torch.zeros(256, dtype=torch.uint8)
    number[levels] = torch.arange(len(levels), dtype=torch.uint8)
    return {"levels": levels}, number


def _names(path: Path, levels: Sequence[int]) -> tuple[str, ...]:
    """The lines of classes.txt, or the levels where there is none."""
    listed = path / "classes.txt"
    if not listed.exists():
        return tuple(map(str, levels))
    text = read_bytes(listed, 2**20).decode(errors="replace")
    names = tuple(shown(line.strip(), 80) for line in text.splitlines() if line.strip())
    if len(names) != len(levels) or len(set(names)) != len(names):
        raise UserError(
            f"{shown(listed)} ({len(names)} names) must have one name, each different, for each of "
            f"the {len(levels)} levels in the training masks: "
            + shown(", ".join(map(str, levels)), 120)
        )
    return names


def _palette(classes: int) -> list[int]:
    """The colours of classes; each round through the cycle is darker than the one before."""
    from matplotlib.colors import to_rgb  # noqa: PLC0415 -- 30 MB, to draw with

    from everynet.plot.style import CYCLE  # noqa: PLC0415 -- matplotlib

    shades = [
        [
            round(255 * part * 0.8 ** (number // len(CYCLE)))
            for part in to_rgb(CYCLE[number % len(CYCLE)])
        ]
        for number in range(classes)
    ]
    return [part for shade in shades for part in shade]


KIND = Mask()
