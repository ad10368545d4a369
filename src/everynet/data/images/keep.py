"""Which part of an image is kept where a network completes the rest.

`keep=top`, `bottom`, `left` and `right` keep that half, of an odd number of rows or columns the
smaller one; a number such as `keep=0.5` keeps that share of the pixels, drawn at random.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

HALVES = ("top", "bottom", "left", "right")


def keep_mask(
    keep: str, height: int, width: int, generator: torch.Generator | None = None
) -> Bool[Tensor, "height width"]:
    """True where a pixel is kept, on the generator's device; what hides all or none is refused."""
    device = "cpu" if generator is None else generator.device
    mask = torch.zeros(height, width, dtype=torch.bool, device=device)
    if keep in HALVES:
        rows, columns = height // 2, width // 2
        match keep:
            case "top":
                mask[:rows] = True
            case "bottom":
                mask[height - rows :] = True
            case "left":
                mask[:, :columns] = True
            case "right":
                mask[:, width - columns :] = True
    else:
        kept = round(_share(keep) * height * width)
        order = torch.randperm(height * width, generator=generator, device=device)
        mask.view(-1)[order[:kept]] = True
    if not mask.any() or mask.all():
        what = "no pixel" if mask.all() else "every pixel"
        raise UserError(
            f"keep ({shown(keep)}) hides {what} of {height} x {width}; "
            f"give {', '.join(HALVES)} or a share between 0 and 1, such as 0.5"
        )
    return mask


def _share(keep: str) -> float:
    try:
        share = float(keep)
    except ValueError:
        raise UserError(
            f"keep ({shown(keep)!r}) must be {', '.join(HALVES)} or the share of pixels to keep, "
            f"such as 0.5{nearest(keep, HALVES)}"
        ) from None
    if not 0 <= share <= 1:  # also for nan
        raise UserError(
            f"keep ({shown(keep)}) must lie between 0 and 1: it is the share of the pixels that "
            "are kept"
        )
    return share
