"""Boxes as other tools write them: a folder in the layout of COCO, YOLO or Pascal VOC.

    COCO   annotations.json, instances_train2017.json or _annotations.coco.json, in the folder, in
           annotations/ or in train/; images beside it, in images/ or in a folder of the part's name
    YOLO   images/1.jpg and labels/1.txt, with `class cx cy w h` a line, in parts of the image, and
           data.yaml or classes.txt with the names; images/train and train/images are parts
    VOC    Annotations/1.xml and JPEGImages/1.jpg; ImageSets/Main/train.txt names those of a part

Edges of VOC are whole pixels counted from 1, so that 1 less is the left edge of the first. A box
that ends less than a pixel outside of its image, as rounding leaves it, is cut there, and one that
is a region of many (`iscrowd`) or has no width or no height is left out; both are said. Any other
box that is outside, and a file or a class that is not there, is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn, TypeAlias
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from everynet.data.images.folder import Probe, entries, walk
from everynet.data.images.skipped import Tally
from everynet.data.paths import read_bytes
from everynet.data.split import PARTS
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

MOST_BYTES = 2**29  # of one file of COCO, which holds all images
MOST_LABEL = 2**24  # of the boxes of one image, or of the names
MOST_BOXES = 10_000  # on one image
SLACK = 1.0  # pixels by which an edge may be outside
ROUNDING = 0.01  # pixels that decimals of a file are worth, of which nothing is said
LOOKED_AT = 2**16  # bytes, or files

Edges: TypeAlias = tuple[float, float, float, float]
Box: TypeAlias = tuple[str, Edges]
"""Class, and left, top, right and bottom as parts of width and height."""
File: TypeAlias = tuple[Path, list[Box]]

_PART = re.compile(r"(train|val|test)(?:ing|id|idation)?(?:20\d\d)?", re.I)
_COCO = re.compile(r"(?:_?annotations(?:\.coco)?|instances(?:_(\w+))?|(train|val|valid|test)\d*)")


class Found(NamedTuple):
    """What a folder holds."""

    own: bool
    """Whether its files say which image is in which part."""
    parts: dict[str, list[File]]


@dataclass
class Reading:
    """What reading one folder needs, and what it left out or cut."""

    root: Path
    tally: Tally
    probe: Probe
    cut: int = 0
    empty: int = 0
    crowds: int = 0
    read: set[Path] = field(default_factory=set)
    boxes: dict[Path, list[Box]] = field(default_factory=dict)

    def image(self, path: Path) -> tuple[int, int] | None:
        """Height and width of an image, or None for one that cannot be read and is skipped."""
        if path in self.read:
            raise UserError(f"{shown(path)} must be named once; it is twice, or in two parts")
        self.read.add(path)
        if not self.tally.takes(path, self.probe):
            return None
        self.boxes[path] = []
        return self.probe(path)[:2]

    def add(self, path: Path, place: str, name: str, edges: Edges, size: tuple[int, int]) -> None:
        """Add a box, of which left, top, right and bottom are given in pixels."""
        height, width = size
        left, top, right, bottom = check_inside(place, edges, height, width, SLACK)
        if left > right or top > bottom:
            raise UserError(f"{place}: the box must not have a negative width or height")
        if left == right or top == bottom:
            self.empty += 1
            return
        cut = (left, top, right, bottom)
        self.cut += any(abs(a - b) > ROUNDING for a, b in zip(cut, edges, strict=True))
        require_room(place, path.name, len(self.boxes[path]))
        self.boxes[path].append(
            (name, (left / width, top / height, right / width, bottom / height))
        )

    def take(self) -> list[File]:
        """The images that were read since the last call, with their boxes."""
        found, self.boxes = [*self.boxes.items()], {}
        return found

    def tell(self) -> None:
        """Say what was cut or left out."""
        for count, what in (
            (self.cut, "less than a pixel outside of the image, and cut there"),
            (self.empty, "without width or height, and left out"),
            (self.crowds, "around many objects at once (iscrowd), and left out"),
        ):
            if count:
                boxes = "1 box is" if count == 1 else f"{count:,} boxes are"
                self.tally.more.append(f"{boxes} {what}")


def check_inside(place: str, edges: Edges, height: int, width: int, slack: float = 0.0) -> Edges:
    """The edges of a box cut to its image, in pixels; further out than `slack` is refused."""
    left, top, right, bottom = edges
    most, low = (width + slack, height + slack), -slack
    across, down = (
        (low <= x <= most[0] for x in (left, right)),
        (low <= y <= most[1] for y in (top, bottom)),
    )
    if not all((*across, *down)):  # so that nan is refused
        raise UserError(
            f"{place}: the box ({left:g}, {top:g}, {right:g}, {bottom:g}) must lie in the image of "
            f"{width}x{height} pixels"
        )
    return (
        *(min(max(left, 0.0), width), min(max(top, 0.0), height)),
        *(min(max(right, 0.0), width), min(max(bottom, 0.0), height)),
    )


def require_room(place: str, image: str, boxes: int) -> None:
    """Refuse one box more than an image may have."""
    if boxes == MOST_BOXES:
        raise UserError(
            f"{place}: image {shown(image, 80)} must have at most {MOST_BOXES:,} boxes, because "
            "every image is given room for as many; cut it into smaller images"
        )


def format_of(root: Path) -> str:
    """The layout that a folder has: "COCO", "YOLO", "VOC" or "" for none; never an error."""
    try:
        if not root.is_dir():
            return ""
        known = {"COCO": _coco_files, "YOLO": _yolo_folders, "VOC": _is_voc}
        return next((name for name, look in known.items() if look(root)), "")
    except (OSError, ValueError, UserError):  # a name that is too long, a folder that is closed
        return ""


def read(root: Path, tally: Tally, probe: Probe) -> Found:
    """Every image of a folder in a known layout that can be read, with its boxes, by part."""
    readers: dict[str, Callable[[Reading], Found]] = {
        **{"COCO": _read_coco, "YOLO": _read_yolo, "VOC": _read_voc}
    }
    reading = Reading(root, tally, probe)
    own, parts = readers[format_of(root)](reading)
    reading.tell()
    return Found(own, {part: parts[part] for part in PARTS if part in parts})


def _part_of(name: str) -> str:
    """The part that a folder or a file is named after; "" for none."""
    found = _PART.fullmatch(name)
    return {"val": "valid"}.get(found[1].lower(), found[1].lower()) if found else ""


def _subfolders(root: Path) -> list[Path]:
    """The folders in a folder, found without a look at each of its files."""
    with os.scandir(root) as found:
        return sorted(root / one.name for one in found if one.is_dir() and one.name[0] != ".")


def _by_part(places: Sequence[tuple[str, Path]]) -> tuple[bool, dict[str, Path]]:
    """Whether places are of parts, and the one of each; without parts all is for training."""
    if len(places) == 1 and not places[0][0]:
        return False, {"train": places[0][1]}
    found: dict[str, Path] = {}
    for part, path in places:
        if not part or part in found:
            other = f", because {shown(found[part])} is it too" if part else ""
            raise UserError(f"{shown(path)} must be named after one of train, val or test{other}")
        found[part] = path
    if "train" not in found:
        raise UserError(f"{shown(places[0][1])} must have a part train beside it")
    return True, found


def _number(value: object) -> float:
    """A number that JSON or a text holds; nan for anything else."""
    try:
        return float(value) if isinstance(value, int | float | str) else float("nan")
    except (ValueError, OverflowError):
        return float("nan")


# ------------------------------------------------------------------------------------------ COCO


def _coco_files(root: Path) -> list[tuple[str, Path]]:
    """The files of annotations, each with its part."""
    inside = [p for p in _subfolders(root) if p.name == "annotations" or _part_of(p.name)]
    found = []
    for place in (root, *inside):
        for path in sorted(place.glob("*.json")):
            name = _COCO.fullmatch(path.stem)
            if name and path.is_file() and _looks_like_coco(path):
                found.append((_part_of(name[1] or name[2] or place.name), path))
    return found


def _looks_like_coco(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(LOOKED_AT).lstrip(b"\xef\xbb\xbf \t\r\n")
    keys = (b'"images"', b'"annotations"', b'"categories"', b'"info"')
    return start.startswith(b"{") and any(key in start for key in keys)


def _read_coco(reading: Reading) -> Found:
    own, files = _by_part(_coco_files(reading.root))
    parts = {}
    for part, file in files.items():
        _read_coco_file(file, part if own else "", reading)
        parts[part] = reading.take()
    return Found(own, parts)


def _read_coco_file(file: Path, part: str, reading: Reading) -> None:
    try:
        document = json.loads(read_bytes(file, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown(file)} must be JSON: {shown(error, 120)}") from None
    classes = {
        _id(one, place): _class(one.get("name"), place)
        for one, place in _records(file, document, "categories")
    }
    images: dict[object, tuple[Path, tuple[int, int] | None]] = {}
    folder: Path | None = None
    for one, place in _records(file, document, "images"):
        name = one.get("file_name")
        if not isinstance(name, str) or not _is_below(name):
            raise UserError(f"{place}: file_name ({shown(name, 80)}) must be a path in the folder")
        folder = folder or _image_folder(file, part, name, reading.root, place)
        path = folder / name
        if not path.is_file():
            raise UserError(f"{place}: image {shown(name, 80)} is not in {shown(folder)}")
        size = reading.image(path)
        said = one.get("height"), one.get("width")
        if size and None not in said and said != size:
            raise _other_size(place, path, size, said)
        if (id := _id(one, place)) in images:
            raise UserError(f"{place}: id ({shown(id, 40)}) must be that of one image alone")
        images[id] = path, size
    for one, place in _records(file, document, "annotations"):
        for key, known in (("image_id", images), ("category_id", classes)):
            if not isinstance(one.get(key), int | str) or one[key] not in known:
                what = "images" if key == "image_id" else "categories"
                raise UserError(f"{place}: {key} ({shown(one.get(key), 40)}) is in no {what}")
        path, size = images[one["image_id"]]
        if one.get("iscrowd"):
            reading.crowds += 1
        elif size:
            box = one.get("bbox")
            if not isinstance(box, list) or len(box) != 4:
                raise UserError(f"{place}: bbox ({shown(box, 60)}) must be [x, y, width, height]")
            x, y, width, height = map(_number, box)
            edges = x, y, x + width, y + height
            reading.add(path, place, classes[one["category_id"]], edges, size)


def _records(file: Path, document: object, name: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a list of a document, each with its place in words."""
    found = document.get(name) if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise UserError(f"{shown(file)} must hold a list {name}, as files of COCO do")
    for number, one in enumerate(found, 1):
        place = f"{shown(file)}: {name} {number:,}"
        if not isinstance(one, dict):
            raise UserError(f"{place} must be an object with an id")
        yield one, place


def _id(one: dict[str, Any], place: str) -> int | str:
    found = one.get("id")
    if not isinstance(found, int | str):
        raise UserError(f"{place}: id ({shown(found, 40)}) must be a number")
    return found


def _class(name: object, place: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"{place}: its name ({shown(name, 40)}) must be that of a class")
    return shown(name.strip(), 80)


def _is_below(name: str) -> bool:
    """Whether a name leads nowhere but into its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and not {"..", "\0"} & {*path.parts, *name}


def _image_folder(file: Path, part: str, name: str, root: Path, place: str) -> Path:
    """The folder in which the first image of a file is."""
    own = [file.stem.removeprefix("instances_"), *(("val",) if part == "valid" else ()), part]
    inside = [*dict.fromkeys(one for one in own if one)]
    tried = [file.parent, file.parent / "images", root, root / "images"]
    tried += [base / one for one in inside for base in (root, root / "images")]
    for folder in tried:
        if (folder / name).is_file():
            return folder
    raise UserError(
        f"{place}: image {shown(name, 80)} is not there; put the images into "
        f"{shown(root / 'images')}"
    )


def _other_size(place: str, path: Path, size: tuple[int, int], said: object) -> UserError:
    height, width = size
    other = "x".join(map(str, reversed(said))) if isinstance(said, tuple) else said
    return UserError(
        f"{place}: the size ({shown(other, 40)}) must be that of {shown(path)} ({width}x{height}), "
        "because boxes are counted in its pixels"
    )


# ------------------------------------------------------------------------------------------ YOLO


def _yolo_folders(root: Path) -> list[tuple[str, Path]]:
    """Folders of images that have one of labels beside them, each with its part."""
    found = []
    for place in (root, *(path for path in _subfolders(root) if _part_of(path.name))):
        images = place / "images"
        if not images.is_dir() or not _holds_texts(place / "labels"):
            continue
        below = _subfolders(images)
        if place == root and below and all(_part_of(path.name) for path in below):
            found += [(_part_of(path.name), path) for path in below]
        else:
            found.append((_part_of(place.name) if place != root else "", images))
    return found


def _holds_texts(folder: Path) -> bool:
    first = islice(walk(folder), LOOKED_AT) if folder.is_dir() else ()
    return any(path.suffix.lower() == ".txt" for path in first)


def _labels_of(images: Path, root: Path) -> Path:
    """The folder of labels beside one of images: images/train -> labels/train."""
    inside = images.relative_to(root).parts
    at = inside.index("images")
    return root.joinpath(*inside[:at], "labels", *inside[at + 1 :])


def _read_yolo(reading: Reading) -> Found:
    own, places = _by_part(_yolo_folders(reading.root))
    names, parts = _yolo_names(reading.root), {}
    for part, images in places.items():
        labels, stems = _labels_of(images, reading.root), set[Path]()
        for path in walk(images):
            stem = path.relative_to(images).with_suffix("")
            size, file = reading.image(path), (labels / stem).with_name(f"{stem.name}.txt")
            stems.add(stem)
            if size and file.is_file():
                _read_label(file, path, size, names, reading)
        for path in walk(labels) if labels.is_dir() else ():
            alone = path.relative_to(labels).with_suffix("") not in stems
            if alone and path.suffix.lower() == ".txt" and path.name != "classes.txt":
                raise UserError(f"{shown(path)} must have an image of its name in {shown(images)}")
        parts[part] = reading.take()
    return Found(own, parts)


def _read_label(
    file: Path, image: Path, size: tuple[int, int], names: Sequence[str], reading: Reading
) -> None:
    height, width = size
    for number, line in _lines(file):
        place, cells = f"{shown(file)}:{number}", line.split()
        if len(cells) != 5:
            raise UserError(
                f"{place}: {len(cells)} numbers must be 5, the class and the middle, width and "
                "height of a box"
            )
        if not cells[0].isascii() or not cells[0].isdigit() or int(cells[0][:9]) >= len(names):
            most = len(names) - 1
            raise UserError(f"{place}: class {shown(cells[0], 40)} must be from 0 to {most}")
        x, y, w, h = map(_number, cells[1:])
        edges = (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height
        reading.add(image, place, names[int(cells[0])], edges, size)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text that are not blank, with their numbers; an empty file has none."""
    if not file.stat().st_size:
        return
    try:
        text = read_bytes(file, MOST_LABEL).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{shown(file)} must be text in UTF-8") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip()


def _yolo_names(root: Path) -> list[str]:
    """The names of the classes, which stand in a file of their own."""
    for file in (root / "data.yaml", root / "data.yml", *sorted(root.glob("*.y*ml"))):
        if file.is_file():
            return _yaml_names(file)
    for file in (root / "classes.txt", root / "labels" / "classes.txt"):
        if file.is_file():
            names = [_class(line, f"{shown(file)}:{number}") for number, line in _lines(file)]
            if names:
                return names
    raise UserError(f"{shown(root)} must hold data.yaml or classes.txt with the names of classes")


_SCALAR = r"""'(?:[^']|'')*'|"[^"\\]*"|[^\s:\[\]{}'"#&*!|>%@`-][^:\[\]{}'"#]*"""
_ITEM = re.compile(rf"\s*(?:(\d{{1,6}})\s*:\s+|(-)\s+)?({_SCALAR})\s*(?:#.*)?")


def _yaml_names(file: Path) -> list[str]:
    """`names` of a file in YAML: a list or a table by number, in brackets or a name a line."""
    lines = [line for _, line in _lines(file)]
    at = next((k for k, line in enumerate(lines) if re.match(r"names\s*:", line)), len(lines))
    first = "".join(lines[at : at + 1]).partition(":")[2].strip()
    more = [*takewhile(lambda line: line[0] in " -]}", lines[at + 1 :])]
    if first[:1] in ("[", "{"):
        inner, closed, _ = " ".join((first[1:], *more)).partition("]" if first[0] == "[" else "}")
        items, way = inner.strip().removesuffix(",").split(",") if closed else [], first[0]
    else:
        items, way = more if first[:1] in ("", "#") else [], "-"
    found = [_ITEM.fullmatch(item) for item in items]
    ways = {"{" if one[1] else one[2] or "[" for one in found if one}
    right = None not in found and (ways == {way} or (way == "-" and ways == {"{"}))
    numbers = [int(one[1] or k) for k, one in enumerate(found) if one]
    if not found or not right or numbers != [*range(len(found))]:
        raise UserError(
            f"{shown(file)}: names must be a list of classes, such as names: [cat, dog], or stand "
            "below, a name a line behind `- ` or a number from 0 up"
        )
    counts = [line.partition(":")[2].split() for line in lines if re.match(r"nc\s*:", line)]
    if any(count[:1] != [str(len(found))] for count in counts):
        raise UserError(f"{shown(file)}: nc must be the number of names, {len(found)}")
    return [_class(_unquoted(one[3].strip()), shown(file)) for one in found if one]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("''", "'") if name[0] == "'" else name.strip('"')


# ------------------------------------------------------------------------------------- Pascal VOC


def _is_voc(root: Path) -> bool:
    return (root / "Annotations").is_dir() and (root / "JPEGImages").is_dir()


def _read_voc(reading: Reading) -> Found:
    images = {path.stem: path for path in entries(reading.root / "JPEGImages")}
    files = {p.stem: p for p in entries(reading.root / "Annotations") if p.suffix.lower() == ".xml"}
    for stem, file in files.items():
        if stem not in images:
            raise UserError(f"{shown(file)} must have an image of its name in JPEGImages")
    lists = _voc_lists(reading.root)
    stems = {part: [*_voc_stems(listed, images)] for part, listed in lists.items()}
    parts = {}
    for part, its in (stems or {"train": [*images]}).items():
        for stem in its:
            size = reading.image(images[stem])
            if size and stem in files:
                _read_xml(files[stem], images[stem], size, reading)
        parts[part] = reading.take()
    return Found(bool(lists), parts)


def _voc_lists(root: Path) -> dict[str, Path]:
    """The files that name the images of each part; without those for training there are none."""
    main = root / "ImageSets" / "Main"
    found = {_part_of(name): main / f"{name}.txt" for name in ("train", "val", "test")}
    if not found["train"].is_file():
        found["train"] = main / "trainval.txt"
        del found["valid"]
    return (
        {p: file for p, file in found.items() if file.is_file()} if found["train"].is_file() else {}
    )


def _voc_stems(file: Path, images: dict[str, Path]) -> Iterator[str]:
    for number, line in _lines(file):
        stem = line.split()[0]
        if stem not in images:
            said = f"{shown(file)}:{number}: image {shown(stem, 80)} is not in JPEGImages"
            raise UserError(said + nearest(stem, images))
        yield stem


def _read_xml(file: Path, image: Path, size: tuple[int, int], reading: Reading) -> None:
    root = _parse_xml(file)
    said = _number(root.findtext("size/height")), _number(root.findtext("size/width"))
    if min(said) > 0 and said != size:
        raise _other_size(shown(file), image, size, tuple(map(int, said)))
    for number, one in enumerate(root.iterfind("object"), 1):
        place = f"{shown(file)}: object {number}"
        left, top, right, bottom = (
            _number((one.findtext(f"bndbox/{name}") or "").strip())
            for name in ("xmin", "ymin", "xmax", "ymax")
        )
        name = _class(one.findtext("name"), place)
        reading.add(image, place, name, (left - 1, top - 1, right, bottom), size)


def _parse_xml(file: Path) -> Element:
    """The elements of a file; one that declares a document type, and so entities, is refused."""
    builder, parser, content = TreeBuilder(), expat.ParserCreate(), read_bytes(file, MOST_LABEL)

    def refuse(*_: object) -> NoReturn:
        raise UserError(f"{shown(file)} must not declare a document type (DOCTYPE)")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError) as error:
        raise UserError(f"{shown(file)} must be XML: {shown(error, 120)}") from None
    return builder.close()
