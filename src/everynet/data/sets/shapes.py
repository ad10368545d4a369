"""Discs, squares and triangles over noise, 64x64 pixels, with a class for each pixel.

These are generated, not photographed. An image is a gradient in a random direction, one to four
shapes of random kind, place, size, turn and brightness, the later ones in front of the earlier,
and normal noise over all of it. With (u, v) the place of a pixel from the centre of a shape, turned
with it and in units of its size,

    disc        u^2 + v^2 < 1
    square      max(|u|, |v|) < 0.9
    triangle    max over k of u cos(a_k) + v sin(a_k) < 0.65,    a_k = 0, 120, 240 degrees

The set for boxes has one shape in an image, among short bars that are no shapes. Image i follows
from (seed, i) alone, whatever number is drawn.
"""

from __future__ import annotations

from functools import partial
from math import pi
from typing import Any

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from everynet.data.images.standardize import digest
from everynet.data.kinds.mask import Masks
from everynet.data.samples import Samples
from everynet.data.sets import parse_count
from everynet.data.split import GENERATED, generate_parts
from everynet.system.seeds import generator

SIDE, CHUNK, MOST = 64, 50, 4
COUNT = 600
"""Training and validation images of the set; a fifth as many more are its test."""
CLASSES = ("background", "disc", "square", "triangle")
HIDDEN = 40
"""A shape that would hide more pixels of those before it is left out."""
BARS = 12
"""Pieces of clutter in an image of the set for boxes."""


class _Random:
    """Uniform numbers, one for each image of a chunk."""

    def __init__(self, seed: int, chunk: int) -> None:
        self.generator = generator(seed, chunk)

    def __call__(self, low: float, high: float) -> Float[Tensor, " images"]:
        return torch.rand(CHUNK, generator=self.generator) * (high - low) + low


def _places(random: _Random, margin: float) -> tuple[Tensor, Tensor]:
    """Places of all pixels from a random centre, turned by a random angle: images side side."""
    at = torch.arange(SIDE) + 0.5
    x = at - random(margin, SIDE - margin)[:, None, None]
    y = at[:, None] - random(margin, SIDE - margin)[:, None, None]
    turn = random(0, 2 * pi)[:, None, None]
    return turn.cos() * x + turn.sin() * y, turn.cos() * y - turn.sin() * x


def _shape(random: _Random, kind: Float[Tensor, " images"]) -> Bool[Tensor, "images side side"]:
    """Which pixels a shape of each image covers; kinds are 1, 2 and 3."""
    u, v = _places(random, 10)
    size = random(8, 14)[:, None, None]
    u, v = u / size, v / size
    disc = u.square() + v.square() < 1
    square = torch.maximum(u.abs(), v.abs()) < 0.9
    angles = [k * 2 * pi / 3 for k in range(3)]
    rays = [u * torch.tensor(a).cos() + v * torch.tensor(a).sin() for a in angles]
    triangle = torch.stack(rays).amax(0) < 0.65
    kind = kind[:, None, None]
    return torch.where(kind == 1, disc, torch.where(kind == 2, square, triangle))


def _ground(random: _Random) -> Float[Tensor, "images side side"]:
    """A gradient in a random direction."""
    at = (torch.arange(SIDE) + 0.5) / SIDE - 0.5
    angle, slope = random(0, 2 * pi)[:, None, None], random(0, 0.35)[:, None, None]
    return 0.4 + slope * (angle.cos() * at + angle.sin() * at[:, None])


def _finished(random: _Random, image: Tensor) -> UInt8[Tensor, "images 1 side side"]:
    noise = torch.randn(image.shape, generator=random.generator)
    image = image + random(0.03, 0.07)[:, None, None] * noise
    return (image * 255).round().clamp(0, 255).to(torch.uint8)[:, None]


def _brightness(random: _Random) -> Float[Tensor, "images 1 1"]:
    """Well above the ground or well below it."""
    contrast = random(0.2, 0.45) * (random(0, 1) < 0.75).float().mul(2).sub(1)
    return (0.4 + contrast)[:, None, None]


def _chunk(seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """CHUNK images and their masks."""
    random = _Random(seed, chunk)
    image, mask = _ground(random), torch.zeros(CHUNK, SIDE, SIDE, dtype=torch.uint8)
    count = random(1, MOST + 1).floor()
    for number in range(MOST):
        kind = random(1, 4).floor()
        covered = _shape(random, kind) & (number < count)[:, None, None]
        hidden = (covered & (mask > 0)).sum((1, 2), keepdim=True)
        covered &= hidden <= HIDDEN
        image = torch.where(covered, _brightness(random), image)
        mask = torch.where(covered, kind[:, None, None].to(torch.uint8), mask)
    return _finished(random, image), mask


def _chunk_of_boxes(seed: int, chunk: int) -> tuple[Tensor, Tensor]:
    """CHUNK images of one shape among bars, and the box of the shape."""
    random = _Random(seed, chunk)
    image = _ground(random)
    for _ in range(BARS):
        u, v = _places(random, 0)
        bar = (u.abs() < random(2, 5)[:, None, None]) & (v.abs() < 1)
        image = torch.where(bar, _brightness(random), image)
    kind = random(1, 4).floor()
    covered = _shape(random, kind)
    image = torch.where(covered, _brightness(random), image)
    edges = []
    for axis in (1, 2):  # over rows: columns that are covered; over columns: rows
        inside = covered.any(axis).to(torch.uint8)
        edges += [inside.argmax(1), SIDE - inside.flip(1).argmax(1)]
    left, right, top, bottom = (edge / SIDE for edge in edges)
    return _finished(random, image), torch.stack([kind - 1, left, top, right, bottom], 1)[:, None]


def draw(count: int, seed: int = 0, *, boxes: bool = False) -> tuple[Tensor, Tensor]:
    """The first `count` images of the endless series that belongs to a seed, with their targets."""
    make = _chunk_of_boxes if boxes else _chunk
    chunks = [make(seed, chunk) for chunk in range(-(-count // CHUNK))]
    x, y = (torch.cat(tensors)[:count] for tensors in zip(*chunks, strict=True))
    return x, y


def read(count: str = "") -> Masks:
    """Images with masks, `count` for training and validation where a count is given."""
    return Masks(**_described("shapes", count), classes=CLASSES, levels=(0, 1, 2, 3))


def read_boxes(count: str = "") -> Samples:
    """As many images, each with one box."""
    found = _described("shapes-boxes", count, boxes=True)
    return Samples(**found, classes=CLASSES[1:], task="detection")


def _described(name: str, count: str, *, boxes: bool = False) -> dict[str, Any]:
    """The name, the parts, their digest and the split."""
    size = parse_count(name, count, COUNT, 20, 1_000_000)
    parts = generate_parts(size, partial(draw, boxes=boxes))
    total = digest(*(tensor for pair in parts.values() for tensor in pair))
    return {"name": name, "parts": parts, "digest": total, "split": GENERATED}
