"""Images with a class for each pixel: a folder with `images` and `masks`, see `paired.py`.

A mask is a PNG as large as its image, grey or with a palette. The levels found in the training
masks, sorted, are classes 0, 1, 2 ... (`spec["levels"]`); the first is the background. They are
named as they are ("0", "255"), or by a file `classes.txt` in the folder, one name a line.
`size=` resizes images (bilinear) and masks (nearest) alike. Masks that a network made are written
as PNG files with a palette, whose numbers are the classes.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Int, Shaped, UInt8
from matplotlib.colors import to_rgb
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images import brightness as looks
from everynet.data.images import decode as picture
from everynet.data.images import folder, paired
from everynet.data.images.augment import Augment
from everynet.data.images.decoded_cache import Decoded, decode_all, large
from everynet.data.images.file_cache import Facts, Seen
from everynet.data.images.skipped import Tally
from everynet.data.images.standardize import (
    Standardize,
    asked,
    asked_array,
    check_size,
    resize,
    treated,
)
from everynet.data.in_memory import Part
from everynet.data.kinds import Inputs, Kind
from everynet.data.labelled_files import all_parts, chosen, like
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samples import Counted, Samples
from everynet.data.split import PARTS
from everynet.plot.style import CYCLE
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

NAMES = ("images", "masks")
MOST_CLASSES = 64
PIXELS_AT_ONCE = 2**20
"""So many pixels of a split are evaluated at once."""


@dataclass(frozen=True)
class Masks(Samples):
    """Samples whose y is a class for each pixel, uint8."""

    task: str = "segmentation"
    levels: tuple[int, ...] = ()
    """The level of each class in the files."""


@dataclass(frozen=True)
class Prepare:
    """Makes a stored batch into what the network sees and what the loss takes."""

    standardize: Standardize

    def __call__(self, batch: Batch) -> Batch:
        """Images standardised, masks as int64."""
        x, y = batch
        return self.standardize.images(x), y.long()


class Mask(Kind[Masks]):
    """Images, each with a mask."""

    name: ClassVar[str] = "mask"
    about: ClassVar[str] = (
        "images with a class for each pixel: a folder with images and masks in it, whose files "
        "have the same names"
    )
    suffix: ClassVar[str] = ".png"
    together: ClassVar[int] = 1

    def matches(self, path: Path) -> bool:
        return paired.there(path, *NAMES)

    def find(self, path: Path, *, size: int = 0, strict: bool = False) -> Masks:
        check_size(size)
        if kind_of_path(path) != "folder":
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        tally, seen = Tally(path, strict), Seen(path)
        parts, split = paired.listing(path, *NAMES, tally, seen.probe)
        twos = [two for each in parts.values() for two in each]
        folder.require_parts(path, parts, tally)
        for two in twos:
            paired.same_size(two, seen.probe)

        def masks(paths: list[Path], train: int) -> Decoded:
            return decode_all(
                paths,
                shape[1:],
                lambda file, content: (_fitted(picture.levels(file, content), size), ()),
                seen,
                tally,
                how=f"masks, size {size}, train {train}",
                keep=keep,
                finish=lambda y, rows: _classed(
                    path, y, [paths[row] for row in rows], bisect_left(rows, train)
                ),
            )

        with picture.quiet():
            shape = folder.common_shape([two[0] for two in twos], size, seen.probe)
            keep = large(len(twos), shape, shape[1:])
            images = folder.images_of(shape, seen, tally, keep=keep)
            parts, (first, second) = paired.decode(parts, images, masks)
        folder.require_parts(path, parts, tally)
        pairs = paired.split_up(parts, first.x, second.x)
        levels = tuple(second.facts["levels"])
        return Masks(
            name=shown(path),
            parts={part: (its[0], its[1]) for part, its in pairs.items()},
            digest=paired.digest(path, parts, NAMES, (first.hashes, second.hashes)),
            split=split,
            classes=_names(path, levels),
            mapped=first.mapped,
            counted=Counted(pairs["train"][0], first.facts["counts"], first.facts.get("looks")),
            levels=levels,
            remarks=tally.lines,
        )

    def whole(self, path: Path, spec: Spec, *, size: int = 0) -> Masks:
        if kind_of_path(path) != "folder":
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        tally, seen = Tally(path), Seen(path)
        listed, _ = paired.listing(path, *NAMES, tally, seen.probe)
        twos, split = chosen(listed, folder.roots(path)[0], path)
        for two in twos:
            paired.same_size(two, seen.probe)
        x = like([image for image, _ in twos], seen, tally, spec, 0)
        twos = [twos[row] for row in x.rows]
        side, shape = spec["size"], tuple(spec["shape"][1:])
        number = {level: k for k, level in enumerate(spec["levels"])}
        y = torch.zeros(len(twos), *shape, dtype=torch.uint8)
        with picture.quiet():
            for row, (_, mask) in enumerate(twos):
                y[row] = _fitted(picture.levels(mask, read_bytes(mask, picture.MOST_BYTES)), side)
        for row in range(len(twos)):
            for level in y[row].unique().tolist():
                if level not in number:
                    raise UserError(
                        f"{shown(twos[row][1])} has the level {level}, which no training mask had: "
                        + shown(", ".join(map(str, number)), 120)
                    )
        classed = torch.zeros(256, dtype=torch.uint8)
        classed[list(number)] = torch.arange(len(number), dtype=torch.uint8)
        return Masks(
            name=shown(path),
            parts=all_parts((x.x, classed[y.long()])),
            digest="",
            split=split,
            classes=tuple(spec["classes"]),
            mapped=x.mapped,
            remarks=tally.lines,
            levels=tuple(spec["levels"]),
            judged=True,
        )

    def ask(self, x: Part, spec: Spec) -> Tensor:
        return asked_array(x, spec, margin=0)

    def data(
        self,
        samples: Masks,
        *,
        batch_size: int,
        seed: int = 0,
        size: int = 0,
        augment: Augment | None = None,
        by: Spec | None = None,
    ) -> Data:
        check_size(size)
        if by is not None and list(samples.levels) != by["levels"]:
            raise UserError(
                f"{samples.name}: the levels {shown(', '.join(map(str, samples.levels)), 80)} of "
                f"its masks must be those that were learned: {shown(by['levels'], 80)}"
            )
        parts = {
            part: (resize(x, size, 0), nearest(y, size)) if size else (x, y)
            for part, (x, y) in samples.parts.items()
        }
        splits, spec, large = treated(samples, parts, self.name, size, by)
        if not large:
            splits = {part: (x, y.long()) for part, (x, y) in splits.items()}
        return Data(
            splits,
            spec | {"levels": list(samples.levels)},
            batch_size,
            seed,
            samples.digest,
            augment=augment,
            prepare=Prepare(large) if large else None,
            parts=("image", "mask"),
            eval_batch_size=at_once(spec),
            mapped=samples.mapped,
        )

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Tensor]:
        return asked(paired.asked_of(paths, *NAMES), spec, margin=0)

    def files(self, paths: Sequence[str | Path]) -> list[Path]:
        return super().files(paired.asked_of(paths, *NAMES))

    def odd(self, inputs: Inputs, spec: Spec) -> list[str]:
        assert isinstance(inputs, Tensor)
        return looks.odd(inputs, spec)

    def write(self, made: Int[Tensor, "masks height width"], spec: Spec, path: Path) -> list[Path]:
        """Each mask as a PNG with a palette, whose numbers are the classes."""
        if path.suffix not in ("", ".png"):
            raise UserError(f"--out ({shown(path)}) must end in .png, because masks were made")
        stem = path.with_suffix("")
        one = len(made) == 1
        written = []
        for number, mask in enumerate(made.detach().cpu().to(torch.uint8)):
            image = Image.fromarray(mask.numpy())
            image.putpalette(_palette(len(spec["classes"])))  # makes it one with a palette
            content = io.BytesIO()
            image.save(content, "png")
            name = stem.name if one else f"{stem.name}-{number:03}"
            written.append(stem.with_name(f"{name}.png"))
            files.write(written[-1], content.getvalue())
        return written

    def check(self, path: Path, **options: Any) -> Report:  # noqa: ANN401 -- those of `find`
        report = Report(shown(path), kind="images with masks", task="segmentation")
        try:
            tally = Tally(path, bool(options.get("strict")))
            parts, report.split = paired.listing(path, *NAMES, tally, picture.probe)
            paired.look_over(parts, report, tally, picture.levels)
            if not report.refused:
                self.count(self.find(path, **options), report)
        except UserError as error:
            report.refused = str(error)
        return report

    def count(self, samples: Masks, report: Report) -> None:
        report.classes = {name: {} for name in samples.classes}
        for part in PARTS:
            within = present(samples.parts[part][1]).sum(0).tolist()
            for name, count in zip(samples.classes, within, strict=False):
                report.classes[name][part] = count

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape}, {len(spec['classes'])} classes of pixels"


def at_once(spec: Spec) -> int:
    """How many images of a size are evaluated together."""
    _, height, width = spec["shape"]
    return int(max(1, min(1000, PIXELS_AT_ONCE // (height * width))))


def nearest(
    y: Shaped[Tensor, "batch height width"], size: int
) -> Shaped[Tensor, "batch {size} {size}"]:
    """Masks brought to `size` x `size`: each pixel is the nearest one, never a mean."""
    if y.shape[1:] == (size, size):
        return y
    return interpolate(y[:, None].float(), (size, size), mode="nearest-exact")[:, 0].to(y.dtype)


def _fitted(levels: UInt8[Any, "height width"], size: int) -> UInt8[Tensor, "rows columns"]:
    mask = torch.from_numpy(levels.copy())
    return nearest(mask[None], size)[0] if size else mask


def present(y: UInt8[Tensor, "masks height width"]) -> Bool[Tensor, "masks 256"]:
    """Which levels each mask has."""
    return torch.stack([torch.bincount(mask.flatten(), minlength=256) > 0 for mask in y])


def _classed(
    path: Path, y: UInt8[Tensor, "masks height width"], paths: Sequence[Path], train: int
) -> tuple[Facts, UInt8[Tensor, 256]]:
    """The levels of the first `train` masks, and the class that each of them becomes."""
    if not train:
        raise UserError(f"{shown(path)}: no training mask can be read; add some")
    held = present(y)
    for row in (held.sum(1) > MOST_CLASSES).nonzero()[:1, 0].tolist():
        raise UserError(
            f"{shown(paths[row])} ({int(held[row].sum())} levels) must have at most {MOST_CLASSES} "
            "classes; the mask looks like a photograph"
        )
    levels = held[:train].any(0).nonzero()[:, 0].tolist()
    if len(levels) > MOST_CLASSES:
        raise UserError(
            f"{shown(path)} ({len(levels)} levels in its masks) must have at most {MOST_CLASSES} "
            "classes; the masks look like photographs"
        )
    if len(levels) == 1:
        raise UserError(
            f"{shown(path)}: one class (level {levels[0]}) in all masks is not enough to learn "
            "from; give at least 2"
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
    shades = [
        [
            round(255 * part * 0.8 ** (number // len(CYCLE)))
            for part in to_rgb(CYCLE[number % len(CYCLE)])
        ]
        for number in range(classes)
    ]
    return [part for shade in shades for part in shade]


KIND = Mask()
