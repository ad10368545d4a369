"""Membranes of nerve cells under the electron microscope: 30 grey images of 512x512 with masks.

The labelled stack of the ISBI 2012 challenge, as PNG files. The split is ours and fixed by the
number of the image, because neighbours in the stack are alike: 0 to 19, 20 to 24 and 25 to 29.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from everynet.data.images import decode as picture
from everynet.data.kinds.mask import Masks

COUNT = 30
_ENDS = {"train": (0, 20), "valid": (20, 25), "test": (25, 30)}


def decode(held: Sequence[bytes]) -> Masks:
    """The images, then their masks."""
    images = [picture.decode(Path("image.png"), content)[:, :, 0] for content in held[:COUNT]]
    labels = [picture.levels(Path("label.png"), content) for content in held[COUNT:]]
    x, y = (torch.stack([torch.tensor(one) for one in each]) for each in (images, labels))
    y = (y > 0).to(torch.uint8)
    return Masks(
        name="",
        parts={part: (x[a:b, None], y[a:b]) for part, (a, b) in _ENDS.items()},
        digest="",
        split="by number in the stack: 0 to 19 train, 20 to 24 valid, 25 to 29 test",
        classes=("membrane", "cell"),
        levels=(0, 255),
    )
