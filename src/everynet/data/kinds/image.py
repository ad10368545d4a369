"""Images with one class each, from a folder with one subfolder a class or an npz file.

They are brought to one size, where one is asked for, and standardised channel by channel (see
`images.py`); a large set stays uint8 and is standardised batch by batch. Images that a network made
are written as PNG files, with all of them on one sheet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from everynet.data import arrays, folder, picture
from everynet.data.augment import Augment
from everynet.data.given import Given, Part
from everynet.data.images import (
    ARRAYS,
    Standardize,
    asked,
    asked_array,
    at_once,
    check_size,
    resize,
    treated,
    written_images,
)
from everynet.data.kinds import Kind
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes, regular
from everynet.data.report import Report, count_rows
from everynet.data.samples import Samples
from everynet.data.split import PARTS
from everynet.types import Data, Spec, UserError
from everynet.words import shown


class Image(Kind[Samples]):
    """Images, each with one class."""

    name: ClassVar[str] = "image"
    about: ClassVar[str] = (
        "images with a class each: a folder with a subfolder for each class, or an npz with a 3-D "
        "or 4-D x and a y"
    )
    suffix: ClassVar[str] = ".png"
    in_memory: ClassVar[str] = (
        "(X, y) with images X, N x H x W or with 1 or 3 channels, and a class for each"
    )

    def matches(self, path: Path) -> bool:
        if kind_of_path(path) == "folder":
            return any(inside.is_dir() for inside in folder.entries(path))
        return path.suffix.lower() == ".npz" and arrays.rank(path) in (3, 4)

    def find(self, path: Path, *, size: int = 0) -> Samples:
        check_size(size)
        if kind_of_path(path) == "folder":
            return folder.read(path, size)
        if path.suffix.lower() not in ARRAYS:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        samples = arrays.read(regular(path))
        if samples.parts["train"][0].dim() != 4:
            raise UserError(f"{shown(path)} must hold images, and x is a table")
        return samples

    def hold(self, given: Given) -> Samples | None:
        x, y = given.x, np.asarray(given.y) if isinstance(given.y, list) else given.y
        if not isinstance(x, np.ndarray) or x.ndim not in (3, 4) or not isinstance(y, np.ndarray):
            return None
        return arrays.made(Path(given.short), {"train": (x, y)}, None, given.digest)

    def ask(self, x: Part, spec: Spec) -> Tensor:
        return asked_array(x, spec)

    def undone(self, made: Tensor, spec: Spec) -> Tensor:
        return Standardize.of(spec).undone(made.detach().cpu())

    def data(
        self,
        samples: Samples,
        *,
        batch_size: int,
        seed: int = 0,
        size: int = 0,
        augment: Augment | None = None,
    ) -> Data:
        check_size(size)
        parts = {n: (resize(x, size) if size else x, y) for n, (x, y) in samples.parts.items()}
        splits, spec, prepare = treated(samples, parts, self.name, size)
        return Data(
            splits,
            spec,
            batch_size,
            seed,
            samples.digest,
            augment=augment,
            prepare=prepare,
            eval_batch_size=at_once(spec),
            mapped=samples.mapped,
        )

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Tensor]:
        return asked(paths, spec)

    def write(self, made: Tensor, spec: Spec, path: Path) -> list[Path]:
        """Images in the colours of the data: each a PNG, and where there are several a sheet."""
        return written_images(self.undone(made, spec), path)

    def check(self, path: Path, **options: Any) -> Report:  # noqa: ANN401 -- those of `find`
        if kind_of_path(path) != "folder":
            return super().check(path, **options)
        report = Report(shown(path), kind="images")
        try:
            _check_folder(path, report)
        except UserError as error:
            report.refused = str(error)
        return report

    def count(self, samples: Samples, report: Report) -> None:
        count_rows(samples, report)

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape}, {len(spec['classes'])} classes"


def _check_folder(path: Path, report: Report) -> None:
    parts, report.split = folder.listing(path)
    report.task = "classification"
    report.counts = {part: len(parts[part]) for part in PARTS}
    report.classes = {
        shown(name): dict(Counter(part for part in PARTS for its, _ in parts[part] if its == name))
        for name in folder.classes(path)
    }
    sizes: Counter[str] = Counter()
    seen: dict[bytes, tuple[str, str]] = {}
    for part in PARTS:
        for _, file in parts[part]:
            try:
                with picture.quiet():
                    picture.probe(file)
                    pixels = picture.decode(file, read_bytes(file, picture.MOST_BYTES))
            except UserError as error:
                report.unreadable.append(str(error))
                continue
            height, width, channels = pixels.shape
            sizes[f"{width}x{height} {'grey' if channels == 1 else 'colour'}"] += 1
            key = hashlib.sha256(f"{pixels.shape}".encode() + pixels.tobytes()).digest()
            first, where = seen.setdefault(key, (part, shown(file)))
            if first != part:
                report.duplicates.append((where, shown(file)))
    report.sizes = dict(sizes.most_common())
    report.refused = report.unreadable[0] if report.unreadable else ""
    folder.require(path, parts, folder.classes(path))


KIND = Image()
