"""From a name or a path to `Data`: find the source, bring to size, standardise, describe."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from everynet import data as home
from everynet.data import arrays, table
from everynet.data.images import Images, Standardize, moments, resize
from everynet.data.paths import kind, regular
from everynet.data.samples import Samples
from everynet.data.split import three
from everynet.provenance import note
from everynet.types import Batch, Data, Spec, UserError, nearest
from everynet.words import shown

LARGE = 2**29
"""Images that take more bytes than this as float32 stay uint8 and are prepared batch by batch."""
MOST_SIZE = 2048


def load(
    data: str | Path,
    *,
    batch_size: int,
    seed: int = 0,
    target: str = "",
    size: int = 0,
    augment: Callable[[Batch, torch.Generator], Batch] | None = None,
) -> Data:
    """The three splits of a known set (`digits`, `strokes:20000`) or of the user's own files.

    `target` names the column of a table that is to be learned; `size` brings images to
    `size` x `size`; `seed` decides the order of the batches, never the split.
    """
    if not 0 <= size <= MOST_SIZE:
        raise UserError(f"size ({size}) must be from 0, which leaves images alone, to {MOST_SIZE}")
    raw = find(data, target=target, size=size)
    note(raw.name, raw.digest)
    prepare = None
    if raw.parts["train"][0].dim() == 4:
        splits, spec = _images(raw, size)
        if splits["train"][0].dtype == torch.uint8:
            prepare = Standardize.of(spec)
    else:
        for name, given in (("size", size), ("augment", augment)):
            if given:
                raise UserError(
                    f"data ({raw.name}) must hold images where {name} ({given}) is set, and it is "
                    "a table; try digits, or a folder with one subfolder of images a class"
                )
        splits, spec = _table(raw)
    return Data(
        splits=splits,
        spec=spec,
        batch_size=batch_size,
        seed=seed,
        digest=raw.digest,
        augment=augment,
        prepare=prepare,
    )


def find(data: str | Path, *, target: str = "", size: int = 0) -> Samples:
    """The samples of a known set or of a path, as they are."""
    name, _, count = str(data).partition(":")
    if name in home.OFFLINE:
        return _offline(name, count)
    if data in home.names():
        from everynet.data import store  # noqa: PLC0415 -- only where a real set is meant

        return _known(store.read(str(data)))
    path = Path(data)
    suffix, found = path.suffix.lower(), kind(path) if str(data) else ""
    if found == "folder":
        from everynet.data import folder  # noqa: PLC0415 -- pillow only where it is needed

        return folder.read(path, size)
    if found or os.sep in str(data) or suffix in (".csv", ".npy", ".npz"):
        regular(path)
        if suffix == ".csv":
            return table.read(path, target)
        if suffix in (".npy", ".npz"):
            return arrays.read(path, target)
        raise UserError(
            f"data ({shown(path)}) must be a folder with a subfolder for each class, or a file "
            "that ends in .csv, .npy or .npz"
        )
    raise UserError(
        f"data ({shown(data)}) must be a known name or a path that is there"
        + nearest(name, home.names())
    )


def _offline(name: str, count: str) -> Samples:
    from everynet.data import builtin, points, strokes  # noqa: PLC0415 -- scikit-learn is slow

    if name in builtin.SETS:
        if count:
            raise UserError(
                f"data ({name}:{shown(count, 40)}) must be {name}: it has a fixed number of samples"
            )
        return builtin.SETS[name]()
    if count and not (count.isdecimal() and len(count) < 20):
        raise UserError(
            f"data ({name}:{shown(count, 40)}) must be like {name}:2000, with a whole number"
        )
    given = (int(count),) if count else ()
    return strokes.read(*given) if name == "strokes" else points.read(name, *given)


def _known(images: Images) -> Samples:
    rows = three(torch.zeros(len(images.train_y), dtype=torch.bool))
    return Samples(
        name=images.name,
        parts={
            "train": (images.train_x[rows["train"]], images.train_y[rows["train"]]),
            "valid": (images.train_x[rows["valid"]], images.train_y[rows["valid"]]),
            "test": (images.test_x, images.test_y),
        },
        digest=images.digest,
        split="the test set is the one that ships with it; a tenth of the training set, by hash "
        "of the row number, is for validation",
        classes=images.classes,
        peak=images.peak,
    )


def _images(raw: Samples, size: int) -> tuple[Mapping[str, Batch], Spec]:
    """Images at their size: standardised, unless they are many."""
    parts = {part: (resize(x, size) if size else x, y) for part, (x, y) in raw.parts.items()}
    train = parts["train"][0]
    spec = _spec(raw, "image", list(train.shape[1:]), *moments(train, raw.peak))
    spec |= {"size": size, "peak": raw.peak}
    if train.dtype == torch.uint8 and 4 * sum(x.numel() for x, _ in parts.values()) > LARGE:
        return parts, spec
    return {part: Standardize.of(spec)(pair) for part, pair in parts.items()}, spec


def _table(raw: Samples) -> tuple[Mapping[str, Batch], Spec]:
    """A table, standardised feature by feature; one that never changes becomes 0."""
    x, y = raw.parts["train"]
    fixed = (x == x[0]).all(0)
    mean = torch.where(fixed, x[0], x.mean(0))
    std = torch.where(fixed, 1.0, x.std(0, correction=0))
    if not bool(torch.isfinite(mean + std).all()):
        wide = raw.features[int((~torch.isfinite(mean + std)).nonzero()[0])]
        raise UserError(f"{raw.name}: column {wide} has values too large to standardise")
    spec = _spec(raw, "table", [x.shape[1]], mean.tolist(), std.tolist())
    if raw.task == "regression":
        target = {"target_mean": y.mean().item(), "target_std": y.std(correction=0).item()}
        if not all(map(math.isfinite, target.values())):
            raise UserError(f"{raw.name}: the target has values too large to learn from")
        spec |= target
    return {part: ((x - mean) / std, y) for part, (x, y) in raw.parts.items()}, spec


def _spec(raw: Samples, kind: str, shape: list[int], mean: list[float], std: list[float]) -> Spec:
    return {
        "name": raw.name,
        "kind": kind,
        "task": raw.task,
        "shape": shape,
        "classes": list(raw.classes),
        "features": list(raw.features),
        "mean": mean,
        "std": std,
        "split": raw.split,
    }
