"""A photograph that laws of convolution are shown on: one that is built in, or the user's own."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data.images import decode as picture
from everynet.data.loading import samples
from everynet.system.errors import UserError
from everynet.system.sources import digest_of, note
from everynet.system.wording import shown

PHOTOS = ("china", "flower")
"""Those that ship with scikit-learn, 427 x 640 pixels each."""


def photograph(photo: str, least: int = 1) -> Float[Tensor, "height width"]:
    """The grey levels of a photo, from 0 to 1, in float64; no side is shorter than `least`."""
    if photo in PHOTOS:
        stored = samples(photo, kind="image").parts["train"][0][0]
        pixels = stored.permute(1, 2, 0).numpy()
    else:
        path = Path(photo)
        if not path.is_file():
            raise UserError(
                f"photo ({shown(photo)}) must be {' or '.join(PHOTOS)} or an image file that is "
                "there"
            )
        pixels = picture.read(path)
        note(path.name, digest_of(path, "photo"))
    grey = picture.luma(pixels) if pixels.shape[2] == 3 else pixels
    height, width = grey.shape[:2]
    if min(height, width) < least:
        raise UserError(
            f"photo ({shown(photo)}, {width}x{height}) must have sides of at least {least} pixels, "
            "because a part of it is looked at; give a larger one"
        )
    return torch.from_numpy(grey[:, :, 0].copy()).double() / 255
