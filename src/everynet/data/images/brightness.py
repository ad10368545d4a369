"""The brightness of images as a whole, and which inputs are outliers beside those learned.

    mean      the mean of all pixels
    contrast  their standard deviation
    edges     the mean of the outermost pixels: the background, where there is one

with black as 0 and white as 1, all channels alike. Of the training images the lowest and highest
thousandth of each are remembered in `spec["looks"]`. An image is far from them if its mean or edges
lie outside by more than half their range, and at least by a quarter of the way from black to white,
or if its contrast is below half of theirs. Of the test images of digits, MNIST, Fashion-MNIST and
CIFAR-10 (small) not one is far; with black and white swapped all are, but of CIFAR-10 none, because
photographs have bright and dark edges alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Shaped
from torch import Tensor

from everynet.data.dataset import Spec

SOME = 2000
"""So many training images, spread over all of them, are looked at."""
LEAST = 50
"""Of fewer training images nobody can say what they look like."""
TAIL = 0.001
PIECE = 2**22
"""So many pixels are looked at at once."""
NAMES = {"edges": "edge brightness", "mean": "mean brightness", "contrast": "contrast"}


def learned(x: Shaped[Tensor, "images channels height width"], peak: float) -> Spec:
    """What training images look like, as plain JSON; nothing where they are too few."""
    if len(x) < LEAST:
        return {}
    found = _measured(x[:: -(-len(x) // SOME)], 1 / peak, 0.0)
    ends = torch.tensor([TAIL, 1 - TAIL], dtype=torch.float64)
    return {
        name: [round(end, 6) for end in torch.quantile(values, ends).tolist()]
        for name, values in found.items()
    }


def outliers(x: Float[Tensor, "images channels height width"], spec: Spec) -> list[str]:
    """Why each image, standardised as `spec` says, is an outlier; "" where it is none."""
    known = spec.get("looks")
    if not known:  # learned from few, or by an earlier version
        return [""] * len(x)
    mean, std = (torch.tensor(spec[n], dtype=torch.float64)[:, None, None] for n in ("mean", "std"))
    found = _measured(x.detach().cpu(), std, mean)
    said = []
    for values in zip(*(found[name].tolist() for name in NAMES), strict=True):
        its = dict(zip(NAMES, values, strict=True))
        far = [name for name in NAMES if not _near(name, its[name], known[name])]
        swapped = {name: its[name] if name == "contrast" else 1 - its[name] for name in NAMES}
        other = all(_near(name, swapped[name], known[name]) for name in NAMES)
        said.append(_sentence(far[0], its[far[0]], known[far[0]], other) if far else "")
    return said


def _measured(
    x: Shaped[Tensor, "images channels height width"], scale: float | Tensor, offset: float | Tensor
) -> dict[str, Float64[Tensor, " images"]]:
    """The three measures of each image; many of them are gone through in pieces."""
    found: dict[str, list[Tensor]] = {name: [] for name in NAMES}
    for part in x.split(max(1, PIECE // math.prod(x.shape[1:]))):
        v = part.double() * scale + offset
        edges = torch.cat([v[..., 0, :], v[..., -1, :], v[..., :, 0], v[..., :, -1]], -1)
        found["edges"].append(edges.mean((1, 2)))
        found["mean"].append(v.mean((1, 2, 3)))
        found["contrast"].append(v.flatten(1).std(1, correction=0))
    return {name: torch.cat(parts) for name, parts in found.items()}


def _near(name: str, value: float, ends: Sequence[float]) -> bool:
    low, high = ends
    if name == "contrast":
        return value >= low / 2
    room = max((high - low) / 2, 0.25)
    return low - room <= value <= high + room


def _sentence(name: str, value: float, ends: Sequence[float], swapped: bool) -> str:
    low, high = ends
    line = (
        f"its {NAMES[name]} ({value:.3g}, black being 0 and white 1) is far from that of the "
        f"images learned ({low:.3g} to {high:.3g})"
    )
    return f"{line}; light and dark seem to be swapped" if swapped else line
