"""Images as tensors: whole sets of them, brought to one size and standardised.

    x = (pixels / peak - mean) / std

with one mean and one standard deviation a channel, taken over the training images alone. The
sums behind them are of whole numbers and exact, so they do not depend on the number of threads.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped, UInt8
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images import brightness
from everynet.data.images import decode as picture
from everynet.data.in_memory import Part, summarize
from everynet.data.kinds import Origin, files_in
from everynet.data.samples import Samples, describe, describe_like
from everynet.data.tables import arrays
from everynet.data.transfer import constant
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.status import say
from everynet.system.wording import shown

PIECE = 2**24
"""So many pixels are counted at once."""
MOST_SIZE = 2048
ARRAYS = (".npy", ".npz")
MARGIN = 4
"""So many missing pixels are padded; where more are missing the image is enlarged."""


def digest(*tensors: Tensor) -> str:
    """SHA-256 of the types, shapes and contents of some tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def resize(
    x: Shaped[Tensor, "batch channels height width"], size: int, margin: int = MARGIN
) -> Shaped[Tensor, "batch channels {size} {size}"]:
    """Bring images to `size` x `size`; whole-number images stay whole numbers.

    A size that both sides divide repeats each pixel; where at most `margin` pixels are missing the
    image gets a black border; anything else is bilinear (averaging where it shrinks), which
    changes the proportions of an image that is not square.
    """
    height, width = x.shape[-2:]
    if size < 1:
        raise UserError(f"size ({size}) must be at least 1")
    if (height, width) == (size, size):
        return x
    if size % height == 0 and size % width == 0:
        return x.repeat_interleave(size // height, -2).repeat_interleave(size // width, -1)
    down, across = size - height, size - width
    if 0 <= down <= margin and 0 <= across <= margin:
        top, left = down // 2, across // 2
        return pad(x, (left, across - left, top, down - top))
    kind = x.dtype if x.is_floating_point() else torch.float32
    parts = [
        interpolate(part.to(kind), (size, size), mode="bilinear", antialias=True)
        for part in x.split(1000)
    ]
    if x.is_floating_point():
        return torch.cat(parts)
    return torch.cat([part.round_().clamp_(0, 255).to(x.dtype) for part in parts])


def counts(x: UInt8[Tensor, "images channels ..."]) -> Int64[Tensor, "channels 256"]:
    """How often each level occurs in each channel; a large set is gone through in pieces."""
    found = torch.zeros(x.shape[1], 256, dtype=torch.int64)
    for part in x.split(max(1, PIECE // math.prod(x.shape[1:]))):
        for channel in range(x.shape[1]):
            found[channel] += torch.bincount(part[:, channel].reshape(-1), minlength=256)
    return found


def counted_moments(
    counts: Int64[Tensor, "rows 256"], peak: float
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each row of levels in units of `peak`; 1 for a constant."""
    mean, std, level = [], [], torch.arange(256)
    for row in counts:
        count = int(row.sum())
        total, square = int((row * level).sum()), int((row * level**2).sum())
        mean.append(total / count / peak)
        std.append((square * count - total**2) ** 0.5 / count / peak or 1.0)
    return mean, std


def moments(
    x: Shaped[Tensor, "batch channels height width"], peak: float
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel in units of `peak`; 1 for a constant one."""
    if x.dtype == torch.uint8:
        return counted_moments(counts(x), peak)
    mean, std = [], []
    for channel in range(x.shape[1]):
        values = x[:, channel].double() / peak
        mean.append(values.mean().item())
        std.append(values.std(correction=0).item() or 1.0)
    return mean, std


@dataclass(frozen=True)
class Standardize:
    """Makes stored pixels into what the network sees; also the `prepare` of a large set."""

    mean: Sequence[float]
    std: Sequence[float]
    peak: float = 255.0

    @staticmethod
    def of(spec: Spec) -> Standardize:
        """As the data of `spec` was standardised."""
        return Standardize(spec["mean"], spec["std"], spec["peak"])

    def images(
        self, x: Shaped[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        """Float32, standardised channel by channel."""
        scale = tuple(1 / (self.peak * s) for s in self.std)
        offset = tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
        affine = constant((scale, offset), torch.float32, x.device)[..., None, None]
        return x.to(torch.float32, copy=True).mul_(affine[0]).add_(affine[1])

    def to_data_units(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        """Pixels from 0 to 1 again."""
        std, mean = (torch.tensor(m, dtype=x.dtype)[:, None, None] for m in (self.std, self.mean))
        return (x * std + mean).clamp(0, 1)

    def __call__(self, batch: Batch) -> Batch:
        """The same for a batch of images and labels."""
        return (self.images(batch[0]), *batch[1:])


def restandardize(data: Data, mean: Sequence[float], std: Sequence[float]) -> Data:
    """The same images, standardised by another mean and deviation, which their spec then says.

    A network that was given expects those of its own images, in training and in `predict`.
    """
    spec = {**data.spec, "mean": [*mean], "std": [*std]}
    if spec == data.spec:
        return data
    if data.prepare is not None:
        return replace(data, spec=spec, prepare=Standardize.of(spec))
    old, new = (torch.tensor([s["mean"], s["std"]])[:, :, None, None] for s in (data.spec, spec))
    made = data.each(lambda x, *rest: ((x * old[1] + (old[0] - new[0])) / new[1], *rest))
    return replace(made, spec=spec)


# ------------------------------------------------------------------------- datasets and inputs


def check_size(size: int) -> None:
    """Refuse a side that no image can have."""
    if not 0 <= size <= MOST_SIZE:
        raise UserError(f"size ({size}) must be from 0, which leaves images alone, to {MOST_SIZE}")


def describe_images(
    samples: Samples, train: Tensor, kind: str, size: int, like: Spec | None = None
) -> Spec:
    """What is known of images, with the moments of the training images; `like` says it instead."""
    for line in samples.remarks:
        say(f"{samples.name}: {line}")
    if like is not None:
        return describe_like(like, samples, train.shape[1:])
    if samples.counted and samples.counted.images is train:
        found = counted_moments(torch.tensor(samples.counted.levels), samples.peak)
        looks = samples.counted.looks
    else:
        found, looks = moments(train, samples.peak), None
    spec = describe(samples, kind, list(train.shape[1:]), *found)
    spec |= {"size": size, "peak": samples.peak}
    spec["looks"] = brightness.learned(train, samples.peak) if looks is None else looks
    return spec | ({"remarks": list(samples.remarks)} if samples.remarks else {})


def read_images_like(
    spec: Spec, paths: Sequence[str | Path], margin: int = MARGIN
) -> tuple[list[Origin], Float[Tensor, "rows channels height width"]]:
    """Images of files and folders with their origins, standardised as those of `spec` were."""
    origins: list[Origin] = []
    rows: list[Tensor] = []
    channels = spec["shape"][0]
    for path in files_in(paths):
        if path.suffix.lower() in ARRAYS:
            x, peak = as_images(path, arrays.first(path), spec), spec["peak"]
            origins += _origins([f"{path}:{row}" for row in range(len(x))], x, peak)
        else:
            pixels, peak = picture.read(path), 255.0
            origins.append(Origin(str(path), size=pixels.shape[:2], pixels=partial(_read, path)))
            pixels = picture.luma(pixels) if pixels.shape[2] > channels else pixels
            x = torch.from_numpy(pixels).permute(2, 0, 1)[None].expand(-1, channels, -1, -1)
        rows.append(_standardized(path, x, peak, spec, margin))
    return origins, torch.cat(rows)


def _read(path: Path) -> UInt8[Tensor, "channels height width"]:
    return torch.from_numpy(picture.read(path)).permute(2, 0, 1)


def _origins(
    names: Sequence[str | int], x: Shaped[Tensor, "rows channels height width"], peak: float
) -> list[Origin]:
    size = (x.shape[2], x.shape[3])
    return [
        Origin(name, size=size, pixels=partial(_grey_levels, image, peak))
        for name, image in zip(names, x, strict=True)
    ]


def _grey_levels(
    image: Shaped[Tensor, "channels height width"], peak: float
) -> UInt8[Tensor, "channels height width"]:
    return (image * (255 / peak)).round().clamp(0, 255).byte()


def images_like(
    spec: Spec, x: Part, margin: int = MARGIN
) -> tuple[list[Origin], Float[Tensor, "rows channels height width"]]:
    """Images in memory with their origins, standardised as those of `spec` were."""
    path = Path("inputs")
    images = as_images(path, x, spec)
    origins = _origins(range(len(images)), images, spec["peak"])
    return origins, _standardized(path, images, spec["peak"], spec, margin)


def _standardized(
    path: Path, x: Tensor, peak: float, spec: Spec, margin: int
) -> Float[Tensor, "rows channels height width"]:
    """Images of the size that was learned, standardised."""
    channels, height, width = spec["shape"]
    x = resize(x, spec["size"], margin) if spec["size"] else x
    if list(x.shape[1:]) != spec["shape"]:
        raise UserError(
            f"{shown(path)} {tuple(x.shape[1:])} must have the shape {channels, height, width} of "
            "the images that were learned; save it so, or train with size=N for images of any size"
        )
    return Standardize(spec["mean"], spec["std"], peak).images(x)


def as_images(path: Path, array: Part, spec: Spec) -> Shaped[Tensor, "rows channels height width"]:
    """Images out of an array, whole numbers from 0 to the peak if such were learned."""
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} ({summarize(array)}) must be images, or the names of files")
    x = arrays.as_samples(path, "x", array)
    if x.dim() != 4 or not len(x):
        raise UserError(f"{shown(path)} must hold images of shape {tuple(spec['shape'])}")
    return arrays.as_levels(path, x, spec)


def black(spec: Spec) -> list[float]:
    """What a black pixel is after standardising: the `fill` of an augmentation, by channel."""
    return [-m / s for m, s in zip(spec["mean"], spec["std"], strict=True)]


def write_images(
    x: Float[Tensor, "batch channels height width"], path: Path, columns: int = 8
) -> list[Path]:
    """Write images of pixels from 0 to 1 as PNG files: one, or each of several and a sheet."""
    if path.suffix not in ("", ".png"):
        raise UserError(f"--out ({shown(path)}) must end in .png, because images were made")
    pixels = (x * 255).round().to(torch.uint8)
    stem = path.with_suffix("")
    if len(pixels) == 1:
        return [write_image(pixels[0], stem.with_suffix(".png"))]
    each = [
        write_image(image, stem.with_name(f"{stem.name}-{number:03}.png"))
        for number, image in enumerate(pixels)
    ]
    height, width = pixels.shape[2:]
    rows = -(-len(pixels) // columns)
    sheet = pixels.new_full((pixels.shape[1], rows * (height + 2), columns * (width + 2)), 255)
    for number, image in enumerate(pixels):
        top, left = (number // columns) * (height + 2), (number % columns) * (width + 2)
        sheet[:, top : top + height, left : left + width] = image
    return [write_image(sheet, stem.with_suffix(".png")), *each]


def write_image(image: UInt8[Tensor, "channels height width"], path: Path) -> Path:
    """Write one image, grey or in colour."""
    content = io.BytesIO()
    array = image.permute(1, 2, 0).numpy()
    Image.fromarray(array[..., 0] if array.shape[2] == 1 else array).save(content, "png")
    files.write(path, content.getvalue())
    return path
