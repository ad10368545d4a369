"""What a trained network is asked about: files, read and treated as its training data was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from everynet.data import arrays, npz, table
from everynet.data.folder import entries
from everynet.data.images import Standardize, resize
from everynet.data.paths import kind, regular
from everynet.data.picture import luma, read
from everynet.types import Spec, UserError
from everynet.words import shown


def inputs(paths: Sequence[str | Path], spec: Spec) -> Tensor:
    """What `predict` is given, read and treated exactly as the training data was."""
    return labelled(paths, spec)[1]


def labelled(paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], Tensor]:
    """The same, with a name for each row: its path, and the row where a file holds several."""
    if not paths:
        raise UserError("inputs must name at least one file")
    labels: list[str] = []
    rows: list[Tensor] = []
    for path in _files(paths):
        x = _image(path, spec) if spec["kind"] == "image" else _rows(path, spec)
        rows.append(x)
        many = path.suffix.lower() in (".csv", ".npy", ".npz")
        labels += [f"{path}:{row}" for row in range(len(x))] if many else [str(path)]
    return labels, torch.cat(rows)


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Every file that was named, and every file in a folder that was named."""
    for given in map(Path, paths):
        if kind(given) == "folder":
            inside = entries(given)
            if not inside:
                raise UserError(f"{shown(given)} holds no file")
            yield from _files(inside)
        else:
            yield regular(given)


def _image(path: Path, spec: Spec) -> Float[Tensor, "rows channels height width"]:
    channels, height, width = spec["shape"]
    if path.suffix.lower() in (".npy", ".npz"):
        x, peak = _levels(path, spec), spec["peak"]
    else:
        pixels, peak = read(path), 255.0
        pixels = luma(pixels) if pixels.shape[2] > channels else pixels
        x = torch.from_numpy(pixels).permute(2, 0, 1)[None].expand(-1, channels, -1, -1)
    x = resize(x, spec["size"]) if spec["size"] else x
    if list(x.shape[1:]) != spec["shape"]:
        raise UserError(
            f"{shown(path)} {tuple(x.shape[1:])} must have the shape {channels, height, width} of "
            "the images that were learned"
        )
    return Standardize(spec["mean"], spec["std"], peak).images(x)


def _levels(path: Path, spec: Spec) -> Shaped[Tensor, "rows channels height width"]:
    """Images out of an array, whole numbers from 0 to the peak if such were learned."""
    x, peak = arrays.as_samples(path, "x", _array(path)), spec["peak"]
    if x.dim() != 4 or not len(x):
        raise UserError(f"{shown(path)} must hold images of shape {tuple(spec['shape'])}")
    low, high = float(x.min()), float(x.max())
    if peak > 1 and (low < 0 or high > peak or (x.is_floating_point() and high <= 1)):
        raise UserError(
            f"{shown(path)} ({low:g} to {high:g}) must hold values from 0 to {peak:g}, as those "
            "that were learned"
        )
    return x.to(torch.uint8) if peak > 1 and torch.equal(x, x.round()) else x


def _array(path: Path) -> npz.Array:
    if path.suffix.lower() == ".npy":
        return npz.read_npy(path)
    found = npz.read_npz(path)
    if "x" not in found:
        raise UserError(f"{shown(path)} holds {shown(', '.join(found), 80)}, but must hold x")
    return found["x"]


def _rows(path: Path, spec: Spec) -> Float64[Tensor, "rows features"]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        x = table.columns(path, spec["features"])
    elif suffix in (".npy", ".npz"):
        x = arrays.as_samples(path, "x", _array(path))
        if list(x.shape[1:]) != spec["shape"]:
            raise UserError(
                f"{shown(path)} {tuple(x.shape)} must have {spec['shape'][0]} columns: "
                + shown(", ".join(spec["features"]))
            )
    else:
        raise UserError(
            f"{shown(path)} must end in .csv, .npy or .npz, because a table was learned"
        )
    mean, std = (torch.tensor(spec[name], dtype=torch.float64) for name in ("mean", "std"))
    return (x - mean) / std
