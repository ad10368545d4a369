"""Images that are to become other images: a folder with `inputs` and `targets`, or an npz.

Of a folder (see `paired.py`) a target has values from 0, black, to 1, white; of an npz with an x
and a 4-D y, those of y. Images are standardised channel by channel, targets all alike:

    y = (value - target_mean) / target_std

over the training targets. `size=` resizes both (bilinear). What a network made is written as PNG,
from black at `target_low` to white at `target_high`, and as npy with the exact values.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images import brightness as looks
from everynet.data.images import decode as picture
from everynet.data.images import folder, paired
from everynet.data.images.augment import Augment
from everynet.data.images.decoded_cache import large
from everynet.data.images.file_cache import Seen
from everynet.data.images.skipped import Tally
from everynet.data.images.standardize import (
    Standardize,
    asked,
    asked_array,
    check_size,
    counted_moments,
    counts,
    resize,
    treated,
    written_images,
)
from everynet.data.in_memory import Array, Given, Part
from everynet.data.kinds import Inputs, Kind
from everynet.data.kinds.mask import at_once
from everynet.data.labelled_files import all_parts, chosen, levels, like, of_arrays
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import regular
from everynet.data.report import Report, count_rows
from everynet.data.samples import Counted, Pair, Samples
from everynet.data.tables import arrays
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

NAMES = ("inputs", "targets")
RANGE = ("target_mean", "target_std", "target_low", "target_high")


@dataclass(frozen=True)
class Maps(Samples):
    """Samples whose y is an image of real numbers, or uint8 that stands for 0 to 1."""

    task: str = "regression"
    target_counted: Counted | None = None
    """The levels of the training targets, where they are known."""


@dataclass(frozen=True)
class Prepare:
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


class Map(Kind[Maps]):
    """Images, each with a real-valued image."""

    name: ClassVar[str] = "map"
    about: ClassVar[str] = (
        "images with an image each: a folder with inputs and targets in it, whose files have the "
        "same names, or an npz with an x and a 4-D y"
    )
    suffix: ClassVar[str] = ".png"
    together: ClassVar[int] = 1
    in_memory: ClassVar[str] = "(X, Y) with as many images Y, N x channels x H x W"

    def matches(self, path: Path) -> bool:
        if path.suffix.lower() == ".npz":
            return arrays.rank(path, "y") == 4
        return paired.there(path, *NAMES)

    def find(self, path: Path, *, size: int = 0, strict: bool = False) -> Maps:
        check_size(size)
        if path.suffix.lower() == ".npz":
            return _arrays(regular(path))
        if kind_of_path(path) != "folder":
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        tally, seen = Tally(path, strict), Seen(path)
        parts, split = paired.listing(path, *NAMES, tally, seen.probe)
        twos = [two for each in parts.values() for two in each]
        folder.require_parts(path, parts, tally)
        for two in twos:
            paired.same_size(two, seen.probe)
        with picture.quiet():
            columns = zip(*twos, strict=True)
            shapes = [folder.common_shape(its, size, seen.probe) for its in columns]
            keep = large(len(twos), *shapes)
            readers = (folder.images_of(shape, seen, tally, keep=keep) for shape in shapes)
            parts, (first, second) = paired.decode(parts, *readers)
        folder.require_parts(path, parts, tally)
        pairs = paired.split_up(parts, first.x, second.x)
        return Maps(
            shown(path),
            {part: (its[0], its[1]) for part, its in pairs.items()},
            paired.digest(path, parts, NAMES, (first.hashes, second.hashes)),
            split,
            mapped=first.mapped,
            counted=Counted(pairs["train"][0], first.facts["counts"], first.facts.get("looks")),
            target_counted=Counted(pairs["train"][1], second.facts["counts"]),
            remarks=tally.lines,
        )

    def whole(self, path: Path, spec: Spec, *, size: int = 0) -> Maps:
        if path.suffix.lower() == ".npz":
            x, y, _, split = of_arrays(regular(path), "")
            if x.dim() != 4 or y.dim() != 4 or x.shape[2:] != y.shape[2:]:
                raise UserError(
                    f"{shown(path)}: y (shape {tuple(y.shape)}) must be images as high and wide as "
                    f"x (shape {tuple(x.shape)})"
                )
            pair, peak, mapped = (levels(path, x, spec), y), spec["peak"], False
            remarks: tuple[str, ...] = ()
        else:
            if kind_of_path(path) != "folder":
                raise UserError(f"data ({shown(path)}) must be {self.about}")
            tally, seen = Tally(path), Seen(path)
            listed, _ = paired.listing(path, *NAMES, tally, seen.probe)
            twos, split = chosen(listed, folder.roots(path)[0], path)
            for two in twos:
                paired.same_size(two, seen.probe)
            inputs = like([first for first, _ in twos], seen, tally, spec, 0)
            seconds = [twos[row][1] for row in inputs.rows]
            targets = like(seconds, seen, tally, spec | {"shape": spec["target_shape"]}, 0)
            x = inputs.x if len(targets.rows) == len(seconds) else inputs.x[targets.rows]
            pair, peak, mapped = (x, targets.x), 255.0, inputs.mapped
            remarks = tally.lines
        return Maps(
            name=shown(path),
            parts=all_parts(pair),
            digest="",
            split=split,
            peak=peak,
            mapped=mapped,
            remarks=remarks,
            judged=True,
        )

    def hold(self, given: Given) -> Maps | None:
        x, y = given.x, given.y
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or x.ndim < 3:
            return None
        return _made(Path(given.short), {"train": (x, y)}, given.digest)

    def ask(self, x: Part, spec: Spec) -> Tensor:
        return asked_array(x, spec, margin=0)

    def undone(self, made: Tensor, spec: Spec) -> Tensor:
        values: Tensor = made.detach().cpu().double() * spec["target_std"] + spec["target_mean"]
        return values

    def data(
        self,
        samples: Maps,
        *,
        batch_size: int,
        seed: int = 0,
        size: int = 0,
        augment: Augment | None = None,
        by: Spec | None = None,
    ) -> Data:
        check_size(size)
        parts = {
            part: (resize(x, size, 0), resize(y, size, 0)) if size else (x, y)
            for part, (x, y) in samples.parts.items()
        }
        splits, spec, large = treated(samples, parts, self.name, size, by)
        y = parts["train"][1]
        if by is not None and list(y.shape[1:]) != by["target_shape"]:
            raise UserError(
                f"{samples.name}: targets of shape {tuple(y.shape[1:])} must have the shape "
                f"{tuple(by['target_shape'])} of those that were learned"
            )
        if by is None:
            known = _range(y, samples.target_counted)
        else:
            known = {name: by[name] for name in RANGE}
        if not np.isfinite(list(known.values())).all():
            raise UserError(f"{samples.name}: the targets have values too large to learn from")
        standardize = Standardize(spec["mean"], spec["std"], samples.peak)
        prepare = Prepare(standardize, known["target_mean"], known["target_std"])
        if not large:
            splits = {part: (x, prepare.targets(y)) for part, (x, y) in splits.items()}
        return Data(
            splits,
            spec | known | {"target_shape": list(y.shape[1:])},
            batch_size,
            seed,
            samples.digest,
            augment=augment,
            prepare=prepare if large else None,
            parts=("image", "map"),
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

    def write(
        self, made: Float[Tensor, "maps channels height width"], spec: Spec, path: Path
    ) -> list[Path]:
        """Pictures, and all values in the units of the targets as one npy."""
        values = self.undone(made, spec)
        low, high = spec["target_low"], spec["target_high"]
        grey = values if values.shape[1] in (1, 3) else values[:, :1]
        pictures = written_images(
            ((grey - low) / max(high - low, 1e-300)).clamp(0, 1).float(), path
        )
        content = io.BytesIO()
        np.save(content, values.float().numpy())
        files.write(path.with_suffix(".npy"), content.getvalue())
        return [*pictures, path.with_suffix(".npy")]

    def check(self, path: Path, **options: Any) -> Report:  # noqa: ANN401 -- those of `find`
        if kind_of_path(path) != "folder":
            return super().check(path, **options)
        report = Report(shown(path), kind="images with images", task="regression")
        try:
            tally = Tally(path, bool(options.get("strict")))
            parts, report.split = paired.listing(path, *NAMES, tally, picture.probe)
            paired.look_over(parts, report, tally, picture.decode)
            if not report.refused:
                self.find(path, **options)
        except UserError as error:
            report.refused = str(error)
        return report

    def count(self, samples: Maps, report: Report) -> None:
        count_rows(samples, report)

    def line(self, spec: Spec) -> str:
        shape, target = ("x".join(map(str, spec[name])) for name in ("shape", "target_shape"))
        return f"{spec['name']}: images of {shape} that become {target}"


def _range(
    y: Shaped[Tensor, "maps channels height width"], known: Counted | None
) -> dict[str, float]:
    """Mean, standard deviation, lowest and highest value of targets, all channels alike."""
    if y.dtype == torch.uint8:
        levels = torch.tensor(known.levels) if known and known.images is y else counts(y)
        (mean,), (std,) = counted_moments(levels.sum(0, keepdim=True), 255.0)
        low, high = 0.0, 1.0
    else:
        values = y.double()
        mean, std = values.mean().item(), values.std(correction=0).item() or 1.0
        low, high = values.min().item(), values.max().item()
    return {"target_mean": mean, "target_std": std, "target_low": low, "target_high": high}


def _arrays(path: Path) -> Maps:
    """The samples of an npz with x and a 4-D y."""
    return _made(path, arrays.pairs(path, arrays.held(path)), arrays.digest(path))


def _made(path: Path, found: Mapping[str, tuple[Array, Array]], digest: str) -> Maps:
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
        first = parts["train"]
        for name, mine, other in zip("xy", parts[part], first, strict=True):
            if mine.shape[1:] != other.shape[1:]:
                raise UserError(
                    f"{shown(path)}: a row of {name} of {part} {tuple(mine.shape[1:])} must be as "
                    f"in train {tuple(other.shape[1:])}"
                )
    made, rows, split = arrays.complete(parts)
    whole = all(x.dtype == torch.uint8 for x, _ in made.values())
    if not whole:
        made = {part: (x.double(), y) for part, (x, y) in made.items()}
    return Maps(
        shown(path),
        made,
        digest,
        split,
        peak=255.0 if whole else 1.0,
        rows=rows,
    )


KIND = Map()
