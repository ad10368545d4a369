"""Tomography: what a scanner sees of an image from many angles, and the image from what it saw.

The image f fills the square from -1 to 1, x to the right and y upwards. A parallel beam at angle t
that passes the centre at distance s measures

    p(t, s) = integral of f along the line x cos t + y sin t = s,

for an ellipse of half axes a and b, turned by o, with its centre at (x_0, y_0) and the value v

    p(t, s) = 2 v a b sqrt(w^2 - d^2) / w^2,    w^2 = a^2 cos^2(t - o) + b^2 sin^2(t - o),
                                                d = s - x_0 cos t - y_0 sin t,

where d^2 < w^2, and 0 elsewhere. Filtered back-projection weighs each frequency by its size, which
for detectors a distance T apart is a convolution with

    h(0) = 1 / (4 T^2),    h(n) = -1 / (pi n T)^2 for odd n,    0 for even n,

and then adds up what was seen along all lines through a point, K angles from 0 to 180 degrees:

    q(t, s) = T sum_n h(n) p(t, s - n T),    b(x, y) = (pi / K) sum_t q(t, x cos t + y sin t).

A phantom is a body with two to six ellipses in it, lighter or darker, and its largest value is 1;
its ellipses follow from its number and the seed alone.

Kak, Slaney (1988), "Principles of Computerized Tomographic Imaging", chapter 3.
"""

from __future__ import annotations

from math import ceil, cos, pi, sin, sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample

from everynet.data.images.standardize import digest
from everynet.data.kinds.map import Maps
from everynet.data.sets import parse_count
from everynet.data.split import GENERATED, generate_parts
from everynet.system.seeds import generator

SIDE, CHUNK, INNER, FINER = 64, 50, 6, 2
ANGLES = 60
NOISE = 0.01
"""Standard deviation of the noise, as a share of the largest value that a scan measures."""
COUNT = 1000
"""Training and validation phantoms of the set; a fifth as many more are its test."""

Ellipses = Float[Tensor, "images ellipses 6"]
"""Right, up, half axis along and across, turn (radians) and value of each."""
Images = Float[Tensor, "images side side"]
Sinogram = Float[Tensor, "images angles detectors"]


def directions(angles: int) -> Float[Tensor, " angles"]:
    """Angles from 0 up to, but not including, half a turn, in radians."""
    return torch.arange(angles) * (pi / angles)


def centres(side: int) -> Float[Tensor, " side"]:
    """The middles of `side` pixels from -1 to 1."""
    return (2 * torch.arange(side) + 1) / side - 1


def detectors(side: int) -> Float[Tensor, " detectors"]:
    """Where detectors are that see images of `side` pixels whole, corners too: a pixel apart."""
    count = 2 * ceil(side / sqrt(2))
    return (2 * torch.arange(count) + 1 - count) / side


# ------------------------------------------------------------------------------------- scanning


def raster(ellipses: Ellipses, side: int = SIDE, finer: int = FINER) -> Images:
    """The image of some ellipses: the mean of finer x finer places in each pixel."""
    x = centres(side * finer).to(ellipses)
    y = -x[:, None]  # the first row is the uppermost
    image = ellipses.new_zeros(len(ellipses), len(x), len(x))
    for ellipse in ellipses.unbind(1):
        right, up, along, across, turn, value = ellipse.T[:, :, None, None]
        a, b = along**-2, across**-2
        p, q = x - right, y - up
        c, d = turn.cos(), turn.sin()
        inside = p * p * (a * c**2 + b * d**2) + q * q * (a * d**2 + b * c**2)
        inside += (2 * (a - b) * c * d * q) * p
        image += value * (inside < 1)
    return avg_pool2d(image[:, None], finer)[:, 0]


def seen(ellipses: Ellipses, angles: int = ANGLES, side: int = SIDE) -> Sinogram:
    """What a scanner for images of `side` pixels sees of some ellipses, exactly."""
    t, s = directions(angles).to(ellipses)[:, None], detectors(side).to(ellipses)
    sinogram = ellipses.new_zeros(len(ellipses), angles, len(s))
    for ellipse in ellipses.unbind(1):
        right, up, along, across, turn, value = ellipse.T[:, :, None, None]
        w = (along * (t - turn).cos()).square() + (across * (t - turn).sin()).square()
        d = s - right * t.cos() - up * t.sin()
        chord = (w - d.square()).clamp(min=0).sqrt()
        sinogram += 2 * value * along * across * chord / w
    return sinogram


def project(images: Images, angles: int = ANGLES) -> Sinogram:
    """What a scanner sees of images made of pixels: each turned by an angle, and summed up."""
    side = images.shape[-1]
    s = detectors(side).to(images)
    along = -s[:, None]  # columns are detectors, rows run down the beam
    rows = []
    for t in directions(angles).tolist():
        x, y = s * cos(t) - along * sin(t), s * sin(t) + along * cos(t)
        grid = torch.stack([x, -y], -1).expand(len(images), -1, -1, -1)
        turned = grid_sample(images[:, None], grid, padding_mode="zeros", align_corners=False)
        rows.append(turned[:, 0].sum(1) * (2 / side))
    return torch.stack(rows, 1)


def noisy(sinogram: Sinogram, random: torch.Generator, noise: float = NOISE) -> Sinogram:
    """With normal noise, a share of the largest value of each scan."""
    errors = torch.randn(sinogram.shape, generator=random, dtype=sinogram.dtype)
    return sinogram + noise * sinogram.amax((1, 2), keepdim=True) * errors


# ------------------------------------------------------------------------------- reconstruction


def ramp(count: int, spacing: float) -> Float[Tensor, "count count"]:
    """The convolution with T h of what so many detectors see, as a matrix."""
    n = torch.arange(count) - torch.arange(count)[:, None]
    odd = -1 / (pi * spacing * n.double().where(n % 2 == 1, 1.0)).square()
    h = torch.where(n == 0, 1 / (4 * spacing**2), torch.where(n % 2 == 1, odd, 0.0))
    return spacing * h


def filtered(sinogram: Sinogram, side: int = SIDE) -> Sinogram:
    """Each row with every frequency weighed by its size."""
    return sinogram @ ramp(sinogram.shape[-1], 2 / side).to(sinogram)


def back_projected(sinogram: Sinogram, side: int = SIDE) -> Images:
    """At each pixel the mean over angles of what was seen along the lines through it, times pi."""
    images, angles, count = sinogram.shape
    at = centres(side).to(sinogram)
    total = sinogram.new_zeros(images, side * side)
    for number, t in enumerate(directions(angles).tolist()):
        s = (at * cos(t) - at[:, None] * sin(t)).flatten()
        place = s * side / 2 + (count - 1) / 2  # in detectors; never beyond the last
        left = place.floor()
        row, first = sinogram[:, number], left.long()
        seen_left, seen_right = row.index_select(1, first), row.index_select(1, first + 1)
        total += torch.lerp(seen_left, seen_right, place - left)
    return (pi / angles * total).reshape(images, side, side)


def reconstructed(sinogram: Sinogram, side: int = SIDE) -> Images:
    """Filtered back-projection."""
    return back_projected(filtered(sinogram, side), side)


# -------------------------------------------------------------------------------------- the set


def ellipses(count: int, seed: int) -> Ellipses:
    """The ellipses of the first `count` phantoms of the endless series of a seed."""
    return torch.cat([_chunk(seed, chunk) for chunk in range(-(-count // CHUNK))])[:count]


def _chunk(seed: int, chunk: int) -> Ellipses:
    """A body, then what is in it, some of it of value 0."""
    random = generator(seed, chunk)

    def uniform(low: float, high: float, count: int) -> Float[Tensor, "images count"]:
        return torch.rand(CHUNK, count, generator=random) * (high - low) + low

    right, up = uniform(-0.1, 0.1, 1), uniform(-0.1, 0.1, 1)
    along, across = uniform(0.6, 0.85, 1), uniform(0.5, 0.75, 1)
    body = torch.stack([right, up, along, across, uniform(0, pi, 1), 0.6 + 0 * up], -1)
    away, where = 0.35 * uniform(0, 1, INNER).sqrt(), uniform(0, 2 * pi, INNER)
    right, up = right + away * where.cos(), up + away * where.sin()
    along, across = uniform(0.04, 0.25, INNER), uniform(0.04, 0.15, INNER)
    there = torch.arange(INNER) < uniform(2, INNER + 1, 1).floor()
    value = there * uniform(-0.25, 0.4, INNER)
    inner = torch.stack([right, up, along, across, uniform(0, pi, INNER), value], -1)
    return torch.cat([body, inner], 1)


def draw(count: int, seed: int = 0) -> tuple[Images, Sinogram, Images]:
    """The first `count` phantoms of a seed, their scans, and their reconstructions."""
    parts = []
    for chunk, shapes in enumerate(ellipses(count, seed).split(CHUNK)):
        image = raster(shapes)
        most = image.amax((1, 2), keepdim=True)
        scan = noisy(seen(shapes) / most, generator(seed, chunk, 1))
        parts.append((image / most, scan, reconstructed(scan)))
    image, scan, back = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return image, scan, back


def read(count: str = "") -> Maps:
    """The dataset, with `count` training and validation phantoms where a count is given."""
    size = parse_count("phantoms", count, COUNT, 20, 100_000)
    drawn = generate_parts(size, draw)
    return Maps(
        name="phantoms",
        parts={part: (back[:, None], image[:, None]) for part, (image, _, back) in drawn.items()},
        digest=digest(*generate_parts(size, ellipses).values()),  # sums may differ by machine
        split=GENERATED,
        peak=1.0,
    )
