"""Images with one class each, from a folder with one subfolder a class or an npz file.

They are brought to one size, where one is asked for, and standardised channel by channel (see
`images.py`); a large set stays uint8 and is standardised batch by batch. Images that a network made
are written as PNG files, with all of them on one sheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.images import brightness as looks
from everynet.data.images import decode as picture
from everynet.data.images import folder
from everynet.data.images.augment import Augment
from everynet.data.images.file_cache import Seen
from everynet.data.images.skipped import Tally
from everynet.data.images.standardize import (
    ARRAYS,
    MARGIN,
    Standardize,
    asked,
    asked_array,
    at_once,
    check_size,
    resize,
    treated,
    written_images,
)
from everynet.data.images.survey import Over
from everynet.data.in_memory import Given, Part
from everynet.data.kinds import Inputs, Kind
from everynet.data.labelled_files import (
    all_parts,
    chosen,
    levels,
    like,
    numbers,
    of_arrays,
    renumbered,
    unknown,
)
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import regular
from everynet.data.report import Report, count_rows
from everynet.data.samples import Samples
from everynet.data.split import PARTS
from everynet.data.tables import arrays
from everynet.system.errors import UserError
from everynet.system.wording import shown


class Image(Kind[Samples]):
    """Images, each with one class."""

    name: ClassVar[str] = "image"
    about: ClassVar[str] = (
        "images with a class each: a folder with a subfolder for each class, or an npz with a 3-D "
        "or 4-D x and a y"
    )
    suffix: ClassVar[str] = ".png"
    together: ClassVar[int] = 1
    in_memory: ClassVar[str] = (
        "(X, y) with images X, N x H x W or with 1 or 3 channels, and a class for each"
    )

    def matches(self, path: Path) -> bool:
        if kind_of_path(path) == "folder":
            return any(inside.is_dir() for inside in folder.entries(path))
        return path.suffix.lower() == ".npz" and arrays.rank(path) in (3, 4)

    def find(self, path: Path, *, size: int = 0, strict: bool = False) -> Samples:
        check_size(size)
        if kind_of_path(path) == "folder":
            return folder.read(path, size, strict)
        if path.suffix.lower() not in ARRAYS:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        samples = arrays.read(regular(path))
        if samples.parts["train"][0].dim() != 4:
            raise UserError(f"{shown(path)} must hold images, and x is a table")
        return samples

    def whole(self, path: Path, spec: Spec, *, size: int = 0) -> Samples:
        remarks: tuple[str, ...] = ()
        if kind_of_path(path) == "folder":
            tally, seen = Tally(path), Seen(path)
            with picture.quiet():
                listed, _ = folder.listing(path, tally, seen.probe)
            files, split = chosen(listed, folder.roots(path)[0], path)
            known = numbers(spec, shown(path))
            for label, _ in files:
                if shown(label) not in known:
                    raise unknown(shown(label), spec, shown(path))
            x = like([file for _, file in files], seen, tally, spec, MARGIN)
            y = torch.tensor([known[shown(files[row][0])] for row in x.rows])
            classes, peak, mapped = tuple(known), 255.0, x.mapped
            pair, remarks = (x.x, y), tally.lines
        else:
            if path.suffix.lower() not in ARRAYS:
                raise UserError(f"data ({shown(path)}) must be {self.about}")
            found, y, classes, split = of_arrays(regular(path), "")
            if found.dim() != 4 or y.dim() != 1:
                raise UserError(f"{shown(path)} must hold images with a label each in y")
            pair, peak, mapped = (levels(path, found, spec), y), spec["peak"], False
        return Samples(
            name=shown(path),
            parts=all_parts(pair),
            digest="",
            split=split,
            classes=classes,
            peak=peak,
            task="classification" if classes else "regression",
            mapped=mapped,
            remarks=remarks,
            judged=True,
        )

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
        by: Spec | None = None,
    ) -> Data:
        check_size(size)
        labelled = samples.parts if by is None else renumbered(samples, by)
        parts = {n: (resize(x, size) if size else x, y) for n, (x, y) in labelled.items()}
        splits, spec, prepare = treated(samples, parts, self.name, size, by)
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

    def odd(self, inputs: Inputs, spec: Spec) -> list[str]:
        assert isinstance(inputs, Tensor)
        return looks.odd(inputs, spec)

    def write(self, made: Tensor, spec: Spec, path: Path) -> list[Path]:
        """Images in the colours of the data: each a PNG, and where there are several a sheet."""
        return written_images(self.undone(made, spec), path)

    def check(self, path: Path, **options: Any) -> Report:  # noqa: ANN401 -- those of `find`
        if kind_of_path(path) != "folder":
            return super().check(path, **options)
        report = Report(shown(path), kind="images")
        try:
            _check_folder(path, report, Tally(path, bool(options.get("strict"))))
        except UserError as error:
            report.refused = str(error)
        return report

    def count(self, samples: Samples, report: Report) -> None:
        count_rows(samples, report)

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape}, {len(spec['classes'])} classes"


def _check_folder(path: Path, report: Report, tally: Tally) -> None:
    over = Over(tally)
    with picture.quiet():
        parts, report.split = folder.listing(path, tally, picture.probe)
        for part in PARTS:
            for label, file in parts[part]:
                over.image(part, file, label)
    over.tell(report)
    report.task = "classification"
    report.classes = {
        shown(name): {part: over.counts[part][name] for part in PARTS}
        for name in folder.classes(path)
    }
    left = {
        part: [file for file in files if file[1] not in tally.skipped]
        for part, files in parts.items()
    }
    folder.require(path, left, folder.classes(path), tally)


KIND = Image()
