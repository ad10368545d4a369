"""CIFAR-10 in its binary form, and in the form of our small share of it, numpy's npz.

    binary   a record of 3,073 bytes an image: its label, then 1,024 red, green and blue values
    strips   lossless WebP files of 1,000 images, 64 x 16,000 pixels, two images side by side
    npz      x_train, y_train, x_test, y_test; images are height x width x colour

Krizhevsky (2009), "Learning Multiple Layers of Features from Tiny Images".
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int64, Shaped, UInt8
from PIL import Image

from everynet.data.samples import Samples, split_published

SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SMALL_TRAIN = 1000
"""Images of each class in the training part of the small share: the first of the whole set."""
SMALL_TEST = 200

Pictures = UInt8[np.ndarray, "count 3 32 32"]
Labels = Int64[np.ndarray, " count"]


def of_binary(held: Sequence[bytes]) -> Samples:
    """The whole dataset in its binary form."""
    return split_published(binary(held[:-1]), binary(held[-1:]), CLASSES)


def of_strips(held: Sequence[bytes]) -> Samples:
    """The whole dataset in fifty strips for training, ten for the test, and the labels of all."""
    train, test = strips(held[:50]), strips(held[50:60])
    y = labels(held[60], len(train) + len(test))
    return split_published((train, y[: len(train)]), (test, y[len(train) :]), CLASSES)


def first_images(held: Sequence[bytes]) -> Samples:
    """The small share, taken out of the whole dataset in its binary form."""
    train = first_of_each(*binary(held[:-1]), SMALL_TRAIN)
    return split_published(train, first_of_each(*binary(held[-1:]), SMALL_TEST), CLASSES)


def of_arrays(held: Sequence[bytes]) -> Samples:
    """The small share in npy files."""
    return split_published(npy(held[0], held[1]), npy(held[2], held[3]), CLASSES)


def binary(contents: Iterable[bytes]) -> tuple[Pictures, Labels]:
    """Images and labels of some batch files, in order."""
    records = np.concatenate([_records(content) for content in contents])
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), _labels(records[:, 0])


def strips(contents: Iterable[bytes]) -> Pictures:
    """Images of some strips, in order: image k of a strip is at row k // 2, column k % 2."""
    parts = []
    for content in contents:
        pixels = np.asarray(Image.open(io.BytesIO(content), formats=["WEBP"]).convert("RGB"))
        cut = pixels.reshape(-1, SIDE, 2, SIDE, 3)  # row height column width colour
        parts.append(cut.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE))
    return np.concatenate(parts)


def labels(content: bytes, count: int) -> Labels:
    """The labels of a whole set, as numpy stores them."""
    found = np.load(io.BytesIO(content), allow_pickle=False)
    if found.shape != (count,):
        raise ValueError(f"labels ({found.shape}) must be one for each of the {count} images")
    return _labels(found)


def _records(content: bytes) -> UInt8[np.ndarray, "count record"]:
    if not content or len(content) % RECORD:
        raise ValueError(
            f"{len(content):,} bytes are not a whole number of records of {RECORD:,} bytes"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, RECORD)


def _labels(found: UInt8[np.ndarray, " count"]) -> Labels:
    if found.max(initial=0) >= len(CLASSES):
        raise ValueError(f"label {found.max()} must be below {len(CLASSES)}")
    return found.astype(np.int64)


def first_of_each(
    x: Pictures, y: Labels, number: int
) -> tuple[UInt8[np.ndarray, "kept 3 32 32"], Int64[np.ndarray, " kept"]]:
    """The first `number` images of each class, in the order they stand in."""
    rows = [np.flatnonzero(y == label)[:number] for label in range(len(CLASSES))]
    kept = np.sort(np.concatenate(rows))
    return x[kept], y[kept]


def npy(images: bytes, labels: bytes) -> tuple[Pictures, Labels]:
    """Images and labels of two npy files, colours first."""
    x, y = _array(images), _array(labels)
    if x.dtype != np.uint8 or x.shape[1:] != (SIDE, SIDE, 3):
        raise ValueError(f"images must be uint8, count x 32 x 32 x 3, not {x.dtype} {x.shape}")
    if y.dtype != np.uint8 or y.shape != x.shape[:1]:
        raise ValueError(f"labels must be {len(x)} of uint8, not {y.dtype} {y.shape}")
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), _labels(y)


def _array(content: bytes) -> Shaped[np.ndarray, "*shape"]:
    """The array of an npy file, as a view: no objects, and no more bytes than are there."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"its version is {version}, not (1, 0)")
        shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # a damaged header is read as whatever Python it looks like
        raise ValueError(f"the npy header cannot be read: {error}") from error
    if dtype.hasobject or columns_first:
        raise ValueError(f"an npy array must be plain and row-major, not {dtype}")
    start = stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(
            f"the npy header promises {shape} of {dtype}, but {len(content) - start:,} bytes follow"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)
