"""Images with boxes around what is to be found: a folder of images with a `boxes.csv`.

    image,class,left,top,right,bottom
    street-1.png,car,12,40,80,76

or a folder in the layout of COCO, YOLO or Pascal VOC (see `box_files.py`).

Edges are in pixels from the left and the top of the image, with decimals where need be; an image
may have several rows, or none. `train`, `valid` and `test` may each be such a folder. The target is
a tensor (images, most boxes, 5): the class (-1 where there is none), then left, top, right and
bottom as parts of width and height, so that `size=` changes images (bilinear) and no box. A box
that is predicted is in pixels of the image that was given, and is drawn onto it with `--out`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data.dataset import Batch, Spec
from everynet.data.images import box_files, folder
from everynet.data.images.box_files import Box, File
from everynet.data.images.decode import SUFFIXES
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.skipped import Tally
from everynet.data.images.standardize import Standardize
from everynet.data.kinds import Origin
from everynet.data.kinds.image_kind import ImageKind, Listing, read_colours
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samples import Pair, Samples, class_numbers, unknown_class
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import shown

FILE = "boxes.csv"
EDGES = ("left", "top", "right", "bottom")
HEADER = ("image", "class", *EDGES)
MOST_BYTES = 2**26
MOST_ROOM = 2**26  # boxes, as many for every image as one has


class Boxes(ImageKind[Samples]):
    """Images, each with boxes."""

    name: ClassVar[str] = "boxes"
    about: ClassVar[str] = (
        f"images with boxes: a folder of images with a {FILE} in it, or one in the layout of COCO, "
        "YOLO or Pascal VOC"
    )
    target: ClassVar[str] = "boxes"
    drawn: ClassVar[bool] = True

    def matches(self, path: Path) -> bool:
        return bool(_layout(path))

    def list_parts(
        self, path: Path, tally: Tally, probe: folder.Probe
    ) -> tuple[bool, dict[str, list[File]]]:
        if _layout(path) in (FILE, ""):
            return super().list_parts(path, tally, probe)
        return box_files.read(path, tally, probe)

    def folders_of(self, path: Path) -> Collection[Path]:
        return super().folders_of(path) if _layout(path) in (FILE, "") else (path,)

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
        if most * len(items) > MOST_ROOM:
            raise UserError(
                f"{shown(path)}: {most:,} boxes on one of {len(items):,} images must be fewer, "
                "because every image is given room for as many; cut that one into smaller images"
            )
        fields = {"classes": classes, "task": "detection", "facts": {"format": _layout(path)}}
        return _targets(items, classes, most), fields

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
            if (path / FILE).exists():
                given += [file for file in folder.entries(path) if file.name != FILE]
            elif _layout(path):
                given += [file for file in folder.walk(path) if file.suffix.lower() in SUFFIXES]
            else:
                given.append(path)
        return super().files(given)

    def answer(self, prediction: Mapping[str, Any], spec: Spec, origin: Origin) -> dict[str, Any]:
        """A box, which a network gives in parts of the image, in pixels of the input."""
        height, width = origin.size or spec["shape"][1:]
        found = dict(prediction)
        for key, value in prediction.items():
            if getattr(value, "shape", None) == (4,):
                edges = zip(EDGES, value.tolist(), (width, height) * 2, strict=True)
                found[key] = {name: part * most for name, part, most in edges}
        return found

    def overlay(self, answer: Mapping[str, Any], spec: Spec, origin: Origin) -> Tensor | None:
        """The image with the outline of the box, in the colour of its class."""
        from matplotlib.colors import to_rgb  # noqa: PLC0415 -- 30 MB, to draw with

        from everynet.plot.style import colour  # noqa: PLC0415 -- matplotlib

        image = read_colours(origin)
        if image is None or "box" not in answer:
            return None
        drawn, (height, width) = image.clone(), image.shape[1:]
        classes = spec["classes"]
        number = classes.index(answer["class"]) if answer.get("class") in classes else 0
        ink = (torch.tensor(to_rgb(colour(number))) * 255).round().byte()[:, None, None]
        left, top, right, bottom = (round(answer["box"][name]) for name in EDGES)
        line = max(1, round(max(height, width) / 250))
        inside = image[:, top + line : bottom - line, left + line : right - line]
        drawn[:, top:bottom, left:right] = ink
        drawn[:, top + line : bottom - line, left + line : right - line] = inside
        return drawn

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
        report.facts |= samples.facts
        report.remarks = list(samples.remarks)

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape} with boxes of {len(spec['classes'])} classes"


def _layout(path: Path) -> str:
    """The file that tells of boxes, or whose layout a folder has; empty for none."""
    return FILE if folder.has_in_it(path, FILE) else box_files.format_of(path)


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
            box_files.require_room(place, name, len(boxes[name]))
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
    for name in EDGES:
        try:
            edges.append(float(cells[name]))
        except ValueError:
            raise UserError(
                f"{place}: {name} ({shown(cells[name], 40)}) must be a number of pixels"
            ) from None
    left, top, right, bottom = edges
    box_files.check_inside(place, (left, top, right, bottom), height, width)
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


KIND = Boxes()
