"""What the kinds of images share: files are listed, decoded to one size and standardised.

A kind of images lists its files part by part and says what the target of each is; `PairedKind` is
for targets that are images themselves:

    scans/images/1.png   scans/masks/1.png                   split by hash of the image's file name
    scans/train/images/1.png   scans/train/masks/1.png       split as the folders say

Two files belong together that have the same name up to its ending, and the same folders before it.
Which folders there may be beside `train` is said in `folder.py`. A file that is no image or cannot
be read is skipped and counted, and the one that belongs to it is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images import brightness, folder
from everynet.data.images import decode as picture
from everynet.data.images.augment import Augment
from everynet.data.images.decoded_cache import Decoded, large
from everynet.data.images.file_cache import FileCache
from everynet.data.images.skipped import Survey, Tally
from everynet.data.images.standardize import (
    Standardize,
    as_images,
    check_size,
    describe_images,
    images_like,
    read_images_like,
    resize,
)
from everynet.data.in_memory import Part
from everynet.data.kinds import Inputs, Kind, Origin
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes, regular
from everynet.data.report import Report
from everynet.data.samples import Counted, Pair, Samples, renumber
from everynet.data.split import PARTS, all_parts, test_part
from everynet.system.errors import UserError
from everynet.system.wording import shown

LARGE = 2**29
"""Images that take more bytes than this as float32 stay uint8 and are prepared batch by batch."""
S = TypeVar("S", bound=Samples)
Listing: TypeAlias = dict[str, list[Any]]
"""For each part what a kind lists: a file with its class, say, or two files."""
Reader: TypeAlias = Callable[[list[Path], int], Decoded]
"""Decodes files, so many of which are for training."""


class ImageKind(Kind[S]):
    """Images, each with a target."""

    suffix: ClassVar[str] = ".png"
    together: ClassVar[int] = 1
    samples: ClassVar[type[Any]] = Samples
    target: ClassVar[str]
    """What a target is: "label", "boxes", "mask" or "map"; a box moves as its image does."""
    dense: ClassVar[bool] = False
    """Whether a target is as large as its image, so that fewer are evaluated at once."""
    margin: ClassVar[int] = 0
    """So many missing pixels are padded; where more are missing the image is enlarged."""
    arrays: ClassVar[tuple[str, ...]] = ()
    """How files end that hold images in arrays."""
    keyed: ClassVar[str] = "the file name"
    """What decides the part of an image, in words."""

    # --------------------------------------------------------------------------- what a kind says

    def list_files(self, root: Path, tally: Tally, probe: folder.Probe) -> list[Any]:
        """What a folder holds, less what cannot be looked at."""
        raise NotImplementedError  # every kind says it

    def list_parts(self, path: Path, tally: Tally, probe: folder.Probe) -> tuple[bool, Listing]:
        """Whether the user made the split, and what each part holds."""
        own, roots = folder.roots(path)
        return own, {part: self.list_files(root, tally, probe) for part, root in roots.items()}

    def folders_of(self, path: Path) -> Collection[Path]:
        """The folders of the parts."""
        return folder.roots(path)[1].values()

    def paths(self, item: Any) -> tuple[Path, ...]:  # noqa: ANN401 -- by kind
        """The files of what was listed: an image, and perhaps what belongs to it."""
        raise NotImplementedError  # every kind says it

    def key(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- by kind
        """What decides the part of an image."""
        return self.paths(item)[0].name

    def detail(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- by kind
        """What else the digest tells of it."""
        return ""

    def require(self, path: Path, parts: Listing, tally: Tally, like: Spec | None) -> None:
        """Refuse a listing from which nothing could be learned."""
        folder.require_parts(path, parts, tally)

    def readers(self, columns: Sequence[list[Path]], how: folder.Decoding) -> list[Reader]:
        """What decodes each column of files."""
        shapes = [folder.common_shape(its, how, at) for at, its in enumerate(columns)]
        how = replace(how, keep=large(len(columns[0]), *shapes))
        return [partial(how.images, shape, self.margin) for shape in shapes]

    def label(
        self, path: Path, parts: Listing, columns: Sequence[Decoded], like: Spec | None
    ) -> tuple[Tensor, dict[str, Any]]:
        """The target of each image, and what else the samples say of themselves."""
        raise NotImplementedError  # every kind says it

    def from_arrays(self, path: Path, like: Spec | None) -> S:
        """The samples of an npy or npz file."""
        raise NotImplementedError  # every kind with `arrays` says it

    def resized(self, pair: Pair, size: int) -> Pair:
        """An image and its target, brought to a size."""
        return resize(pair[0], size, self.margin), pair[1]

    def prepare(
        self, samples: S, parts: dict[str, Pair], standardize: Standardize, like: Spec | None
    ) -> tuple[Spec, Callable[[Batch], Batch]]:
        """What else the description says, and what makes stored rows into what a network sees."""
        return {}, standardize

    # ---------------------------------------------------------------------------- what all share

    def find(
        self, path: Path, *, size: int = 0, strict: bool = False, like: Spec | None = None
    ) -> S:
        check_size(size)
        if kind_of_path(path) != "folder":
            if path.suffix.lower() not in self.arrays:
                raise UserError(f"data ({shown(path)}) must be {self.about}")
            return self.from_arrays(regular(path), like)
        tally, seen = Tally(path, strict), FileCache(path)
        how = folder.Decoding(seen, tally, like["size"] if like else size, like)
        with picture.quiet():
            parts, split = self._listing(path, tally, seen.probe, like)
            self.require(path, parts, tally, like)
            parts, columns = self._decode(parts, how)
        self.require(path, parts, tally, like)
        y, fields = self.label(path, parts, columns, like)
        pairs, start = {}, 0
        for part, its in parts.items():
            pairs[part] = (columns[0].x[start : start + len(its)], y[start : start + len(its)])
            start += len(its)
        first, facts = pairs["test" if like else "train"][0], columns[0].facts
        found: S = self.samples(
            name=shown(path),
            parts=all_parts(pairs["test"]) if like else pairs,
            digest="" if like else self._digest(path, parts, columns),
            split=split,
            mapped=columns[0].mapped,
            counted=Counted(first, facts["counts"], facts.get("looks")),
            remarks=tally.lines,
            test_only=like is not None,
            **fields,
        )
        return found

    def _listing(
        self, path: Path, tally: Tally, probe: folder.Probe, like: Spec | None = None
    ) -> tuple[Listing, str]:
        """Every image by its part, and one sentence that says how the parts were made."""
        own, found = self.list_parts(path, tally, probe)
        above = self.folders_of(path)
        parts, split = folder.complete(found, own, lambda item: self.key(item, above), self.keyed)
        if like is None:
            return parts, split
        items, split = test_part(parts, own, shown(path))
        return {"test": items}, split

    def _decode(self, parts: Listing, how: folder.Decoding) -> tuple[Listing, list[Decoded]]:
        """The images and what belongs to them, less those of which either cannot be decoded.

        Where one of the second column cannot be decoded, both begin again without it: what was
        found out of the first was of it, too.
        """
        readers = self.readers(self._columns(parts), how)
        while True:
            made: list[Decoded] = []
            for column, read in enumerate(readers):
                paths = self._columns(parts)[column]
                made.append(read(paths, len(parts["train"]) if how.like is None else 1))
                parts = folder.kept(parts, made[-1].rows)
                if column and len(made[-1].rows) < len(paths):
                    break
            else:
                return parts, made

    def _columns(self, parts: Listing) -> list[list[Path]]:
        """The files of all parts: the images, and where there are some, what belongs to them."""
        paths = (self.paths(item) for items in parts.values() for item in items)
        return [list(column) for column in zip(*paths, strict=True)]

    def _digest(self, path: Path, parts: Listing, columns: Sequence[Decoded]) -> str:
        """SHA-256 of the names and contents of all files."""
        total, above, row = hashlib.sha256(), self.folders_of(path), 0
        for part, items in parts.items():
            for item in items:
                name = f"{part}/{self.key(item, above)}{self.detail(item, above)} "
                total.update(name.encode("utf-8", "surrogateescape"))
                total.update(b"".join(column.hashes[row] for column in columns))
                row += 1
        return total.hexdigest()

    def data(
        self,
        samples: S,
        *,
        batch_size: int,
        seed: int = 0,
        size: int = 0,
        augment: Augment | None = None,
        like: Spec | None = None,
    ) -> Data:
        check_size(size)
        size = like["size"] if like else size
        pairs = renumber(samples, like) if like else dict(samples.parts)
        parts = {n: self.resized(p, size) if size else p for n, p in pairs.items()}
        train = parts["train"][0]
        spec = describe_images(samples, train, self.name, size, like)
        standardize = Standardize(spec["mean"], spec["std"], samples.peak)
        more, prepare = self.prepare(samples, parts, standardize, like)
        many = 4 * sum(x.numel() for x, _ in parts.values()) > LARGE
        later = samples.mapped or (many and train.dtype == torch.uint8)
        splits: Mapping[str, Batch] = parts
        if not later:
            prepared = {p: prepare(parts[p]) for p in (PARTS if like is None else ("test",))}
            splits = prepared if like is None else all_parts(prepared["test"])
        return Data(
            splits,
            spec | more,
            batch_size,
            seed,
            samples.digest,
            augment=augment,
            prepare=prepare if later else None,
            parts=("image", self.target),
            eval_batch_size=self.at_once(spec),
            mapped=samples.mapped,
        )

    def at_once(self, spec: Spec) -> int:
        """How many images are evaluated together."""
        channels, height, width = spec["shape"]
        pixels = 2**20 if self.dense else 2**23 // channels
        return int(max(1, min(1000, pixels // (height * width))))

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Tensor]:
        origins, images = self.read_with_origins(paths, spec)
        return [str(origin.name) for origin in origins], images

    def read_with_origins(
        self, paths: Sequence[str | Path], spec: Spec
    ) -> tuple[list[Origin], Tensor]:
        return read_images_like(spec, self.files(paths), self.margin)

    def convert(self, x: Part, spec: Spec) -> Tensor:
        return self.convert_with_origins(x, spec)[1]

    def convert_with_origins(self, x: Part, spec: Spec) -> tuple[list[Origin], Tensor]:
        return images_like(spec, x, self.margin)

    def stored(self, x: Part, spec: Spec) -> Tensor:
        images = as_images(Path("inputs"), x, spec)
        return resize(images, spec["size"], self.margin) if spec["size"] else images

    def outliers(self, inputs: Inputs, spec: Spec) -> list[str]:
        assert isinstance(inputs, Tensor)
        return brightness.outliers(inputs, spec)

    def line(self, spec: Spec) -> str:
        shape = "x".join(map(str, spec["shape"]))
        return f"{spec['name']}: images of {shape}, {len(spec['classes'])} classes"


# --------------------------------------------------------------------------------- two by two


class PairedKind(ImageKind[S]):
    """Images that each belong to another one, of the same name in the folder beside."""

    folders: ClassVar[tuple[str, str]]
    """The folder of the images, and that of what belongs to them."""
    title: ClassVar[str]
    """What a report calls them."""
    dense: ClassVar[bool] = True
    keyed: ClassVar[str] = "the image's file name"

    def matches(self, path: Path) -> bool:
        return folder.has_in_it(path, *self.folders)

    def list_files(self, root: Path, tally: Tally, probe: folder.Probe) -> list[Any]:
        first, second = self.folders
        images, others = (_by_stem(root, name, tally, probe) for name in self.folders)
        for mine, its, where in ((images, others, second), (others, images, first)):
            for stem, path in mine.items():
                if path and stem not in its:
                    raise UserError(f"{shown(path)} must have a file of the same name in {where}")
        return [
            (image, other)
            for stem, image in images.items()
            if image and (other := others.get(stem)) is not None
        ]

    def paths(self, item: Any) -> tuple[Path, ...]:  # noqa: ANN401 -- two paths
        return (item[0], item[1])

    def key(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- two paths
        return folder.named(item[0], [root / self.folders[0] for root in roots])

    def detail(self, item: Any, roots: Iterable[Path]) -> str:  # noqa: ANN401 -- two paths
        return f" {folder.named(item[1], [root / self.folders[1] for root in roots])}"

    def readers(self, columns: Sequence[list[Path]], how: folder.Decoding) -> list[Reader]:
        check_same_size(columns, how.seen.probe)
        return super().readers(columns, how)

    def files(self, paths: Sequence[str | Path]) -> list[Path]:
        first, second = self.folders
        given = [Path(path) for path in paths]
        both = [(p / first).is_dir() and (p / second).is_dir() for p in given]
        return super().files([p / first if two else p for p, two in zip(given, both, strict=True)])

    def decode_target(self, path: Path, content: bytes) -> object:
        """Decode what belongs to an image, to see whether it can be."""
        raise NotImplementedError  # every kind says it

    def look_over(self, path: Path, report: Report, **options: Any) -> None:  # noqa: ANN401
        if kind_of_path(path) != "folder":
            super().look_over(path, report, **options)
            return
        report.kind, report.task = self.title, self.samples.task
        tally = Tally(path, bool(options.get("strict")))
        with picture.quiet():
            parts, report.split = self._listing(path, tally, picture.probe)
            survey = Survey(tally)
            for part in PARTS:
                for two in parts[part]:
                    try:
                        check_same_size([[path] for path in two], picture.probe)
                    except UserError as error:
                        report.refused = report.refused or str(error)
                    if tally.can(two[1], self._look):
                        survey.add(part, two[0])
        survey.tell(report)
        if not report.refused:
            self.count(self.find(path, **options), report)

    def _look(self, path: Path) -> object:
        return self.decode_target(path, read_bytes(path, picture.MOST_BYTES))


def _by_stem(
    root: Path, name: str, tally: Tally, look: Callable[[Path], object]
) -> dict[Path, Path | None]:
    """Files by their names without the ending; None for one that is skipped."""
    if not (root / name).is_dir():
        raise UserError(f"{shown(root)} must have a folder {name} in it")
    found: dict[Path, Path | None] = {}
    for path in folder.walk(root / name):
        stem = path.relative_to(root / name).with_suffix("")
        if not tally.takes(path, look):
            found.setdefault(stem, None)
            continue
        if found.get(stem):
            raise UserError(f"{shown(path)} must be the only one of its name, up to the ending")
        found[stem] = path
    return found


def read_colours(origin: Origin) -> UInt8[Tensor, "3 height width"] | None:
    """The pixels of an input in colour, to draw onto; None where it was no image."""
    if origin.pixels is None:
        return None
    pixels = origin.pixels()
    return pixels if len(pixels) == 3 else pixels[:1].expand(3, -1, -1)


def check_same_size(columns: Sequence[list[Path]], probe: folder.Probe) -> None:
    """Refuse an image whose other is larger or smaller."""
    for two in zip(*columns, strict=True):
        (height, width, _), (its_height, its_width, _) = (probe(path) for path in two)
        if (its_height, its_width) != (height, width):
            raise UserError(
                f"{shown(two[1])} ({its_width}x{its_height}) must be as large as {shown(two[0])} "
                f"({width}x{height}), because they are taken pixel by pixel; save it in that size"
            )
