"""MNIST and Fashion-MNIST, in the idx format: a header with the shape, then one byte a number.

    0 0 type dimensions   4 bytes; type 8 is unsigned bytes
    size of each          4 bytes each, most significant first
    values                in row-major order

Nothing is allocated on the word of a header: its sizes must match the bytes that are there.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Int64, UInt8

from everynet.data.samples import Samples, split_published

UNSIGNED_BYTES = 8
DIMENSIONS = 4
"""No file of ours has more."""
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def decode(classes: tuple[str, ...], held: Sequence[bytes]) -> Samples:
    """Images and labels for training, then for the test, of a dataset laid out like MNIST."""
    train, test = ((images(held[at]), labels(held[at + 1], len(classes))) for at in (0, 2))
    return split_published(train, test, classes)


digits, clothes = partial(decode, tuple("0123456789")), partial(decode, CLOTHES)


def parse(content: bytes) -> UInt8[np.ndarray, "*shape"]:
    """The array an idx file holds, as a view of its bytes."""
    if len(content) < 4:
        raise ValueError(f"the idx header is cut short: {len(content)} of at least 8 bytes")
    zeros, kind, dimensions = struct.unpack_from(">HBB", content)
    if zeros != 0:
        raise ValueError(f"an idx file begins with two zero bytes, not {content[:2].hex(' ')}")
    if kind != UNSIGNED_BYTES:
        raise ValueError(f"the idx type ({kind}) must be 8: unsigned bytes")
    if not 1 <= dimensions <= DIMENSIONS:
        raise ValueError(f"the idx header names {dimensions} dimensions, not 1 to {DIMENSIONS}")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise ValueError(f"the idx header is cut short: {len(content)} of {start} bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if math.prod(shape) != len(content) - start:
        sizes = " x ".join(map(str, shape))
        raise ValueError(
            f"the idx header promises {sizes} = {math.prod(shape):,} bytes, but "
            f"{len(content) - start:,} follow"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def images(content: bytes) -> UInt8[np.ndarray, "count 1 height width"]:
    """Grey images with their channel."""
    found = parse(content)
    if found.ndim != 3 or 0 in found.shape:
        raise ValueError(f"images must be count x height x width, not {found.shape}")
    return found[:, None]


def labels(content: bytes, classes: int) -> Int64[np.ndarray, " count"]:
    """Class numbers, each below `classes`."""
    found = parse(content)
    if found.ndim != 1:
        raise ValueError(f"labels must have one dimension, not {found.ndim}")
    if found.max(initial=0) >= classes:
        raise ValueError(f"label {found.max()} must be below {classes}, the number of classes")
    return found.astype(np.int64)
