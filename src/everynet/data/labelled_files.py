"""Labelled files that judge a trained network: one part, of which nothing is learned.

What was learned in training (means, columns, class names, vocabulary) is in the description `spec`
of the run, and the files are brought to it. A folder or an npz that the user divided into train,
valid and test is judged by its test part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from everynet.data.dataset import Spec
from everynet.data.split import PARTS
from everynet.data.tables import arrays
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

if TYPE_CHECKING:
    from everynet.data.images.decoded_cache import Decoded
    from everynet.data.images.file_cache import Seen
    from everynet.data.images.skipped import Tally
    from everynet.data.samples import Samples
    from everynet.data.tables.npz import Array

ALL, TEST = "all of it judges, and none of it was learned", "its test part judges"
F = TypeVar("F")


def all_parts(batch: F) -> dict[str, F]:
    """The same samples as every part: whatever a recipe looks at is what is judged."""
    return dict.fromkeys(PARTS, batch)


def test_of(samples: Any) -> Any:  # noqa: ANN401 -- samples of any kind
    """A known set of which the test part is all there is; a text is divided by its own kind."""
    if "test" not in samples.parts:
        return samples
    return replace(samples, parts=all_parts(samples.parts["test"]), judged=True, split=TEST)


def chosen(parts: Mapping[str, Sequence[F]], own: bool, path: Path) -> tuple[list[F], str]:
    """Of a listing in parts the test that the user made, or else everything."""
    found = list(parts["test"]) if own else [one for each in parts.values() for one in each]
    if not found:
        raise UserError(f"{shown(path)} holds nothing that could judge a network; add some")
    return found, TEST if own else ALL


def described_by(spec: Spec, samples: Any, shape: Sequence[int] | None = None) -> Spec:  # noqa: ANN401
    """The description of the run, for files that are called otherwise; other shapes are refused."""
    if shape is not None and list(shape) != spec["shape"]:
        raise UserError(
            f"{samples.name} (samples of {_size(shape)}) must have the shape "
            f"{_size(spec['shape'])} of what was learned"
        )
    task = getattr(samples, "task", spec["task"])
    if task != spec["task"]:
        raise UserError(
            f"{samples.name} has targets for {task}, and the network learned {spec['task']}; give "
            "files of the same sort"
        )
    return {**spec, "name": samples.name, "split": samples.split}


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def renumbered(samples: Samples, spec: Spec) -> dict[str, tuple[Tensor, Tensor]]:
    """The parts with the numbers that the run gave to its classes; a new class is refused."""
    if samples.task != "classification":
        return dict(samples.parts)
    number = torch.tensor([numbers(spec, samples.name).get(c, -1) for c in samples.classes])
    parts = {part: (x, number[y]) for part, (x, y) in samples.parts.items()}
    for part, (_, y) in parts.items():
        for row in (y < 0).nonzero()[:1, 0].tolist():
            raise unknown(samples.classes[int(samples.parts[part][1][row])], spec, samples.name)
    return parts


def known(spec: Spec) -> list[str]:
    """The classes as files name them: a network that joins some has kept them as labels."""
    return list(spec["labels" if "labels" in spec else "classes"])


def numbers(spec: Spec, name: str) -> dict[str, int]:
    """The number of each class that the run knows."""
    if not known(spec):
        raise UserError(f"{name} has classes, and the network learned none; give other files")
    return {label: number for number, label in enumerate(known(spec))}


def unknown(label: str, spec: Spec, name: str) -> UserError:
    """A class of the files that the run does not know."""
    return UserError(
        f"{name}: class {shown(label, 60)} is none that the network learned"
        + nearest(label, known(spec))
    )


# ------------------------------------------------------------------------------------- images


def like(paths: Sequence[Path], seen: Seen, tally: Tally, spec: Spec, margin: int) -> Decoded:
    """Images in the shape of those that were learned, still as they are stored.

    Those that cannot be read are told to the tally; there is none where no image is left.
    """
    from everynet.data.images import decode as picture  # noqa: PLC0415 -- they import this file's users
    from everynet.data.images import folder  # noqa: PLC0415 -- they import this file's users
    from everynet.data.images.decoded_cache import large  # noqa: PLC0415

    shape = tuple(spec["shape"])
    with picture.quiet():
        for path in () if spec["size"] else paths:
            height, width, _ = seen.probe(path)
            if (height, width) != shape[1:]:
                raise UserError(
                    f"{shown(path)} ({width}x{height}) must be {shape[2]}x{shape[1]}, as large as "
                    "the images that were learned; save it so"
                )
        keep = large(len(paths), shape)
        made = folder.decode_images(paths, shape, seen, tally, train=1, keep=keep, margin=margin)
    folder.require_parts(tally.root, {"test": made.rows}, tally)
    return made


def levels(path: Path, x: Tensor, spec: Spec) -> Tensor:
    """Images of an array, whole numbers from 0 to the peak if such were learned."""
    peak, low, high = spec["peak"], float(x.min()), float(x.max())
    if peak > 1 and (low < 0 or high > peak or (x.is_floating_point() and high <= 1)):
        raise UserError(
            f"{shown(path)} ({low:g} to {high:g}) must hold values from 0 to {peak:g}, as those "
            "that were learned"
        )
    return x.to(torch.uint8) if peak > 1 and torch.equal(x, x.round()) else x.double()


# ------------------------------------------------------------------------------------- arrays


def of_arrays(path: Path, target: str) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
    """The samples and the answers of an npy or npz file, the classes, and which part it is."""
    if path.suffix.lower() == ".npy":
        x, y = arrays.columns(path, target)
        return arrays.as_samples(path, "x", x), *_labels(path, y, None), ALL
    found = arrays.held(path)
    ends = [end for end in ("_test", "") if {f"x{end}", f"y{end}"} <= set(found)]
    if not ends:
        raise UserError(
            f"{shown(path)} holds {shown(', '.join(found), 80)}, but must hold x and y, or x_test "
            "and y_test, because answers are judged by what is right"
        )
    x, y = found[f"x{ends[0]}"], found[f"y{ends[0]}"]
    if x.ndim == 0 or len(x) != len(y) or not len(x):
        raise UserError(
            f"{shown(path)}: y (shape {y.shape}) must hold one value for each row of x (shape "
            f"{x.shape}), and at least one"
        )
    samples, split = arrays.as_samples(path, "x", x), TEST if ends[0] else ALL
    if y.ndim == 4:
        return samples, arrays.as_samples(path, "y", y).double(), (), split
    if y.ndim != 1:
        raise UserError(f"{shown(path)}: y (shape {y.shape}) must have 1 or 4 dimensions")
    return samples, *_labels(path, y, found.get("classes")), split


def _labels(path: Path, y: Array, names: Array | None) -> tuple[Tensor, tuple[str, ...]]:
    """The y of an array: numbers, or classes with those names that occur in it."""
    if y.dtype.kind == "f":
        return torch.from_numpy(y.astype("f8")), ()
    if y.dtype.kind == "U":
        words = sorted({*y.tolist()})
        index = {word: number for number, word in enumerate(words)}
        return torch.tensor([index[w] for w in y.tolist()]), tuple(shown(w, 80) for w in words)
    codes = torch.from_numpy(y.astype("i8"))
    if len(codes) and int(codes.min()) < 0:
        raise UserError(f"{shown(path)}: label {int(codes.min())} of y must be at least 0")
    count = 1 + int(codes.max()) if len(codes) else 0
    named = [shown(name, 80) for name in (names.tolist() if names is not None else ())]
    if named and count > len(named):
        raise UserError(
            f"{shown(path)}: label {count - 1} of y must be from 0 to {len(named) - 1}, because "
            "classes names so many"
        )
    kinds, places = codes.unique(return_inverse=True)
    return places, tuple(named[k] if named else str(k) for k in kinds.tolist())
