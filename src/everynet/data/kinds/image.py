"""Images with one class each, from a folder with one subfolder a class or an npz file.

They are brought to one size, where a size is given, and standardised channel by channel (see
`standardize.py`); a large dataset stays uint8 and is standardised batch by batch. Images that a
network made are written as PNG files, with all of them on one sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.images import decode as picture
from everynet.data.images import folder
from everynet.data.images.decoded_cache import Decoded
from everynet.data.images.skipped import Survey, Tally
from everynet.data.images.standardize import ARRAYS, MARGIN, Standardize, write_images
from everynet.data.in_memory import Given
from everynet.data.kinds.image_kind import ImageKind, Listing
from everynet.data.paths import kind as kind_of_path
from everynet.data.report import Report, count_rows
from everynet.data.samples import Samples, class_numbers
from everynet.data.split import PARTS
from everynet.data.tables import arrays
from everynet.system.errors import UserError
from everynet.system.wording import shown


class Image(ImageKind[Samples]):
    """Images, each with one class."""

    name: ClassVar[str] = "image"
    about: ClassVar[str] = (
        "images with a class each: a folder with a subfolder for each class, or an npz with a 3-D "
        "or 4-D x and a y"
    )
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = (
        "(X, y) with images X, N x H x W or with 1 or 3 channels, and a class for each"
    )
    target: ClassVar[str] = "label"
    margin: ClassVar[int] = MARGIN
    arrays: ClassVar[tuple[str, ...]] = ARRAYS
    keyed: ClassVar[str] = "class and file name"

    def matches(self, path: Path) -> bool:
        if kind_of_path(path) == "folder":
            return any(inside.is_dir() for inside in folder.entries(path))
        return path.suffix.lower() == ".npz" and arrays.rank(path) in (3, 4)

    def guess_task(self, path: Path) -> str:
        return "classification" if kind_of_path(path) == "folder" else ""

    def list_files(self, root: Path, tally: Tally, probe: folder.Probe) -> list[Any]:
        return [file for file in folder.class_files(root, tally) if tally.takes(file[1], probe)]

    def paths(self, item: Any) -> tuple[Path, ...]:  # noqa: ANN401 -- a class and a path
        return (item[1],)

    def key(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- a class and a path
        return folder.named(item[1], roots)

    def require(self, path: Path, parts: Listing, tally: Tally, like: Spec | None) -> None:
        if like is None:
            folder.require(path, parts, folder.classes(path), tally)
        else:
            class_numbers(like, shown(path), (shown(label) for label, _ in parts["test"]))
            super().require(path, parts, tally, like)

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        labels = folder.classes(path)
        number = {label: row for row, label in enumerate(labels)}
        y = [number[label] for items in parts.values() for label, _ in items]
        return torch.tensor(y, dtype=torch.int64), {"classes": tuple(map(shown, labels))}

    def from_arrays(self, path: Path, like: Spec | None) -> Samples:
        samples = arrays.read(path, like=like)
        if samples.parts["train"][0].dim() != 4:
            raise UserError(f"{shown(path)} must hold images, and x is a table")
        return samples

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Samples | None:
        x, y = given.x, np.asarray(given.y) if isinstance(given.y, list) else given.y
        if not isinstance(x, np.ndarray) or x.ndim not in (3, 4) or not isinstance(y, np.ndarray):
            return None
        found = {"test": (x, y)} if like else {p: (x[r], y[r]) for p, r in given.slices.items()}
        return arrays.make_samples(Path(given.short), found, None, given.digest, like)

    def to_data_units(self, made: Tensor, spec: Spec) -> Tensor:
        return Standardize.of(spec).to_data_units(made.detach().cpu())

    def write(self, made: Tensor, spec: Spec, path: Path) -> list[Path]:
        """Images in the colours of the data: each a PNG, and where there are several a sheet."""
        return write_images(made, path)

    def look_over(self, path: Path, report: Report, **options: Any) -> None:  # noqa: ANN401
        if kind_of_path(path) != "folder":
            super().look_over(path, report, **options)
            return
        report.kind, report.task = "images", self.guess_task(path)
        tally = Tally(path, bool(options.get("strict")))
        survey = Survey(tally)
        with picture.quiet():
            parts, report.split = self._listing(path, tally, picture.probe)
            for part in PARTS:
                for label, file in parts[part]:
                    survey.add(part, file, label)
        survey.tell(report)
        report.classes = {
            shown(name): {part: survey.counts[part][name] for part in PARTS}
            for name in folder.classes(path)
        }
        left = {n: [f for f in files if f[1] not in tally.skipped] for n, files in parts.items()}
        self.require(path, left, tally, None)

    def count(self, samples: Samples, report: Report) -> None:
        count_rows(samples, report)


KIND = Image()
