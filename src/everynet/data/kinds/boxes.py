"""Images with boxes around what is to be found: a folder of images with a `boxes.csv`.

    image,class,left,top,right,bottom
    street-1.png,car,12,40,80,76

Edges are in pixels from the left and the top of the image, with decimals where need be; an image
may have several rows, or none. `train`, `valid` and `test` may each be such a folder. The target is
a tensor (images, most boxes, 5): the class (-1 where there is none), then left, top, right and
bottom as parts of width and height, so that `size=` changes images (bilinear) and no box.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Float
from matplotlib.colors import to_rgb
from torch import Tensor

from everynet.data.dataset import Batch, Spec
from everynet.data.images import folder
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.skipped import Tally
from everynet.data.images.standardize import Standardize, write_images
from everynet.data.kinds.image_kind import ImageKind, Listing
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samples import Pair, Samples, class_numbers, unknown_class
from everynet.data.split import PARTS
from everynet.plot.style import colour
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

FILE = "boxes.csv"
HEADER = ("image", "class", "left", "top", "right", "bottom")
MOST_BYTES = 2**26
MOST_BOXES = 10_000  # on one image

Box: TypeAlias = tuple[str, tuple[float, float, float, float]]
"""Class, and left, top, right and bottom as parts of width and height."""
File: TypeAlias = tuple[Path, list[Box]]


class Boxes(ImageKind[Samples]):
    """Images, each with boxes."""

    name: ClassVar[str] = "boxes"
    about: ClassVar[str] = f"images with boxes: a folder of images with a {FILE} in it"
    target: ClassVar[str] = "boxes"

    def matches(self, path: Path) -> bool:
        return folder.has_in_it(path, FILE)

    def list_files(self, root: Path, tally: Tally, probe: folder.Probe) -> list[Any]:
        return _listed(root, tally, probe)

    def paths(self, item: Any) -> tuple[Path, ...]:  # noqa: ANN401 -- a path and its boxes
        return (item[0],)

    def detail(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- likewise
        return f" {item[1]}"

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        items = [item for each in parts.values() for item in each]
        if like:
            used = (label for _, boxes in items for label, _ in boxes)
            classes = tuple(class_numbers(like, shown(path), used))
        else:
            classes = _classes(path, parts)
        most = max(1, *(len(boxes) for _, boxes in items))
        return _targets(items, classes, most), {"classes": classes, "task": "detection"}

    def prepare(
        self, samples: Samples, parts: dict[str, Pair], standardize: Standardize, like: Spec | None
    ) -> tuple[Spec, Callable[[Batch], Batch]]:
        if like is None:
            return {"boxes": parts["train"][1].shape[1]}, standardize
        if list(samples.classes) != like["classes"]:
            class_numbers(like, samples.name, samples.classes)
            raise unknown_class(samples.classes[0], like, samples.name)
        return {}, standardize

    def files(self, paths: Sequence[str | Path]) -> list[Path]:
        given: list[Path] = []
        for path in map(Path, paths):
            inside = folder.entries(path) if (path / FILE).exists() else [path]
            given += [file for file in inside if file.name != FILE]
        return super().files(given)

    def write(self, made: Float[Tensor, "images boxes 5"], spec: Spec, path: Path) -> list[Path]:
        """The boxes drawn on white, each in the colour of its class, and as csv in pixels."""
        boxes = made.detach().cpu().float()
        _, height, width = spec["shape"]
        pictures = write_images(torch.stack([_drawn(row, height, width) for row in boxes]), path)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(HEADER)
        for number, rows in enumerate(boxes.tolist()):
            for kind, *edges in rows:
                if kind >= 0:
                    pixels = (e * s for e, s in zip(edges, (width, height) * 2, strict=True))
                    name = spec["classes"][int(kind)]
                    writer.writerow([number, name, *(f"{pixel:.2f}" for pixel in pixels)])
        files.write(path.with_suffix(".csv"), text.getvalue().encode())
        return [*pictures, path.with_suffix(".csv")]

    def count(self, samples: Samples, report: Report) -> None:
        report.task, report.split = samples.task, samples.split
        report.counts = {part: len(samples.parts[part][0]) for part in PARTS}
        channels, height, width = samples.parts["train"][0].shape[1:]
        kind = "grey" if channels == 1 else "colour"
        report.sizes = {f"{width}x{height} {kind}": sum(report.counts.values())}
        report.classes = {
            name: {part: int((samples.parts[part][1][..., 0] == k).sum()) for part in PARTS}
            for k, name in enumerate(samples.classes)
        }
        report.remarks = list(samples.remarks)

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape} with boxes of {len(spec['classes'])} classes"


def _listed(root: Path, tally: Tally, probe: folder.Probe) -> list[File]:
    """Every image of a folder that can be read with its boxes."""
    paths = {path.name: path for path in folder.entries(root) if path.name != FILE}
    good = {name for name, path in paths.items() if tally.takes(path, probe)}
    boxes: dict[str, list[Box]] = {name: [] for name in paths}
    listed = root / FILE
    text = read_bytes(listed, MOST_BYTES).decode("utf-8-sig", errors="replace")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = tuple(cell.strip() for cell in next(rows, []))
        for column in header:
            if column not in HEADER:
                raise UserError(
                    f"{shown(listed)}: column {shown(column, 40)} is unknown; the header must be "
                    + ",".join(HEADER)
                )
        if sorted(header) != sorted(HEADER):
            raise UserError(f"{shown(listed)}: the header must be {','.join(HEADER)}")
        for row in rows:
            if not row:
                continue
            place = f"{shown(listed)}:{rows.line_num}"
            if len(row) != len(HEADER):
                raise UserError(f"{place}: {len(row)} cells must be {len(HEADER)}")
            cells = dict(zip(header, row, strict=True))
            name = cells["image"].strip()
            if name not in paths:
                raise UserError(f"{place}: image {shown(name, 80)} is not in {shown(root)}")
            if len(boxes[name]) == MOST_BOXES:
                raise UserError(
                    f"{place}: image {shown(name, 80)} must have at most {MOST_BOXES:,} boxes, "
                    "because every image is given room for as many; cut it into smaller images"
                )
            if name in good:
                boxes[name].append(_box(place, cells, *probe(paths[name])[:2]))
    except csv.Error as error:
        raise UserError(f"{shown(listed)}:{rows.line_num}: {error}") from None
    return [(path, boxes[name]) for name, path in paths.items() if name in good]


def _box(place: str, cells: dict[str, str], height: int, width: int) -> Box:
    """One row of the file as parts of the image, if it is a box inside it."""
    kind = shown(cells["class"].strip(), 80)
    if not kind:
        raise UserError(f"{place}: class is empty; name one")
    edges = []
    for name in HEADER[2:]:
        try:
            edges.append(float(cells[name]))
        except ValueError:
            raise UserError(
                f"{place}: {name} ({shown(cells[name], 40)}) must be a number of pixels"
            ) from None
    left, top, right, bottom = edges
    if not (0 <= left <= width and 0 <= right <= width and 0 <= top <= height >= bottom >= 0):
        raise UserError(
            f"{place}: the box ({left:g}, {top:g}, {right:g}, {bottom:g}) must lie in the image of "
            f"{width}x{height} pixels"
        )
    if left >= right or top >= bottom:
        low, high = ("left", "right") if left >= right else ("top", "bottom")
        raise UserError(
            f"{place}: {low} ({shown(cells[low].strip(), 40)}) must be below {high} "
            f"({shown(cells[high].strip(), 40)})"
        )
    return kind, (left / width, top / height, right / width, bottom / height)


def _classes(path: Path, parts: dict[str, list[File]]) -> tuple[str, ...]:
    """The classes of the training boxes, sorted; no other part may have more."""
    found = {part: {kind for _, boxes in each for kind, _ in boxes} for part, each in parts.items()}
    if not found["train"]:
        raise UserError(f"{shown(path)}: no training image has a box; add some")
    for part, its in found.items():
        for strange in sorted(its - found["train"])[:1]:
            raise UserError(
                f"{shown(path)}: class {strange} of {part} has no box in a training image; add some"
            )
    return tuple(sorted(found["train"]))


def _targets(
    everything: list[File], classes: Sequence[str], most: int
) -> Float[Tensor, "images boxes 5"]:
    number = {name: k for k, name in enumerate(classes)}
    y = torch.zeros(len(everything), most, 5)
    y[..., 0] = -1
    for row, (_, boxes) in enumerate(everything):
        for place, (kind, edges) in enumerate(boxes):
            y[row, place] = torch.tensor([number[kind], *edges])
    return y


def _drawn(
    boxes: Float[Tensor, "boxes 5"], height: int, width: int
) -> Float[Tensor, "3 height width"]:
    """The outlines of boxes on white."""
    canvas = torch.ones(3, height, width)
    for kind, *edges in boxes.tolist():
        if kind < 0:
            continue
        ink = torch.tensor(to_rgb(colour(int(kind))))[:, None]
        sides = (width, height, width, height)
        # the right and bottom pixel is the last inside
        pixels = [
            round(e * s) - (at > 1) for at, (e, s) in enumerate(zip(edges, sides, strict=True))
        ]
        left, top, right, bottom = (
            min(s - 1, max(0, p)) for p, s in zip(pixels, sides, strict=True)
        )
        canvas[:, [top, bottom], left : right + 1] = ink[..., None]
        canvas[:, top : bottom + 1, [left, right]] = ink[..., None]
    return canvas


KIND = Boxes()
