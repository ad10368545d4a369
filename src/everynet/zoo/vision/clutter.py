"""Images with a class each, laid one by one on a larger canvas among fragments of others.

An image is enlarged or shrunk to a random share of the canvas and laid somewhere wholly inside. A
fragment is a small window of another image that was laid in the same way, so that clutter has the
strokes of what is to be found and no whole one. What is lighter covers what is darker. The box is
the smallest that holds all pixels of the image, but for its faint ones. Image i follows from
(seed, i) and the images it is made of.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from everynet.data.images.augment import Affine
from everynet.data.images.standardize import digest
from everynet.data.samples import Samples
from everynet.system.seeds import generator

CHUNK = 250
SHARES = (0.35, 0.6)
"""Height and width of an image as a share of those of the canvas, at least and at most."""
FAINT = 0.25
"""Pixels below this share of the brightest do not count for the box."""
WINDOW = 0.16
"""Height and width of a fragment as a share of those of the canvas."""


def _place(
    x: Float[Tensor, "images channels height width"], size: int, random: torch.Generator
) -> Float[Tensor, "images channels {size} {size}"]:
    """Images somewhere on black canvases; they take the size of a canvas first."""
    low, high = SHARES
    share = low + (high - low) * torch.rand(len(x), generator=random)
    place = (torch.rand(2, len(x), generator=random) - 0.5) * size * (1 - share)  # from the centre
    flat = torch.zeros(len(x))
    # from places on the canvas to places in the image, both in pixels from the centre
    down, across = x.shape[2] / (size * share), x.shape[3] / (size * share)
    matrix = torch.stack([across, flat, -place[0] * across, flat, down, -place[1] * down], 1)
    canvas = torch.zeros(len(x), x.shape[1], size, size)
    return _resample(Affine(matrix.reshape(-1, 2, 3)), x, canvas)


def _resample(move: Affine, x: Tensor, canvas: Tensor) -> Tensor:
    """`x` moved by `move` onto a canvas of another size."""
    height, width = canvas.shape[-2:]
    centred = torch.zeros(len(x), x.shape[1], max(height, x.shape[2]), max(width, x.shape[3]))
    top, left = (centred.shape[2] - x.shape[2]) // 2, (centred.shape[3] - x.shape[3]) // 2
    centred[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
    top, left = (centred.shape[2] - height) // 2, (centred.shape[3] - width) // 2
    return move.image(centred, 0.0)[:, :, top : top + height, left : left + width]


def _edges(
    ink: Float[Tensor, "images channels size size"],
) -> Float[Tensor, "images 4"]:
    """Left, top, right and bottom of what is not faint, as parts of the canvas."""
    visible = ink.amax(1)
    visible = visible > FAINT * visible.amax((1, 2), keepdim=True)
    found, size = [], ink.shape[-1]
    for axis in (1, 2):  # over rows: columns that hold ink; over columns: rows
        inside = visible.any(axis).to(torch.uint8)
        found += [inside.argmax(1), size - inside.flip(1).argmax(1)]
    left, right, top, bottom = (edge / size for edge in found)
    return torch.stack([left, top, right, bottom], 1)


def place_in_clutter(
    x: UInt8[Tensor, "images channels height width"],
    y: Int64[Tensor, " images"],
    size: int,
    fragments: int,
    seed: int,
) -> tuple[UInt8[Tensor, "images channels {size} {size}"], Float[Tensor, "images 1 5"]]:
    """Each image on a canvas of its own among so many fragments, and the box around it."""
    canvases, boxes = [], []
    for number, rows in enumerate(torch.arange(len(x)).split(CHUNK)):
        random = generator(seed, number)
        canvas = _place(x[rows].float(), size, random)
        boxes.append(torch.cat([y[rows, None].float(), _edges(canvas)], 1)[:, None])
        for _ in range(fragments):
            others = torch.randint(len(x), (len(rows),), generator=random)
            piece = _place(x[others].float(), size, random)
            canvas = torch.maximum(canvas, piece * _window(_edges(piece), size, random))
        canvases.append(canvas.round().clamp(0, 255).to(torch.uint8))
    return torch.cat(canvases), torch.cat(boxes)


def _window(
    edges: Float[Tensor, "images 4"], size: int, random: torch.Generator
) -> Float[Tensor, "images 1 size size"]:
    """1 in a small square somewhere inside the edges, 0 elsewhere."""
    at = (torch.arange(size) + 0.5) / size
    centre = edges[:, :2] + torch.rand(len(edges), 2, generator=random) * (
        edges[:, 2:] - edges[:, :2]
    )
    across, down = ((at - c[:, None]).abs() < WINDOW / 2 for c in centre.T)
    inside: Tensor = down[:, None, :, None] & across[:, None, None, :]
    return inside.float()


def in_clutter(samples: Samples, size: int, fragments: int) -> Samples:
    """A set of images with a class each as a set of canvases with a box each."""
    parts = {
        part: place_in_clutter(_bytes(x, samples.peak), y, size, fragments, seed)
        for seed, (part, (x, y)) in enumerate(samples.parts.items(), 1)
    }
    return Samples(
        name=samples.name,
        parts=parts,
        digest=digest(*(tensor for pair in parts.values() for tensor in pair)),
        split=f"{samples.split}; each image lies in clutter that was generated from a fixed seed",
        classes=samples.classes,
        task="detection",
        remarks=samples.remarks,
    )


def _bytes(x: Tensor, peak: float) -> UInt8[Tensor, "images channels height width"]:
    """Images of any peak with values from 0 to 255."""
    if x.dtype == torch.uint8 and peak == 255:
        return x
    return (x.float() * (255 / peak)).round().clamp(0, 255).to(torch.uint8)
