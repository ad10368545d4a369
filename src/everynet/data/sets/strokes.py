"""Synthetic digits in the manner of handwriting, 28x28 pixels, as many as are wanted.

These are NOT written by people: each is a few pen strokes, drawn from templates by random numbers.
They stand in for real handwriting where no file is at hand; accuracy on them says nothing about
accuracy on MNIST, which has the same size and classes.

A digit is one of a few ways to write it, each a list of strokes through control points. With q
the control points after a random jitter, and B the matrix of a Catmull-Rom spline,

    p = B q                                            points along the pen's path
    p <- p + sum_k a_k sin(w_k . p + f_k)              elastic warp, smooth and random
    p <- A p + c                                       slant, turn, stretch, size and place
    ink(r) = sum_i l_i exp(-|r - p_i|^2 / (2 s^2))     l_i: length of path that point i stands for
    pixel(r) = sigmoid(sharpness (ink(r) - 1))         paper below 1, dark above it, less blank

The Gaussian pen is a product of a row and a column factor, so the ink of a batch is one batched
matrix product. Image i follows from (seed, i) alone, whatever number is drawn.
"""

from __future__ import annotations

from functools import lru_cache
from math import pi

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad

from everynet.data.images.standardize import digest
from everynet.data.samples import Samples
from everynet.data.sets import parse_count
from everynet.data.split import GENERATED, generate_parts
from everynet.system.seeds import generator

SIDE, POINTS, CHUNK = 28, 96, 250
COUNT = 10_000
"""Training and validation images of the set; a fifth as many more are its test."""

# A way to write a digit: strokes, each "x,y x,y ..." with x to the right and y down, from 0 to 1.
# A stroke passes through its points smoothly; a corner is where one stroke ends and another begins.
_WAYS: dict[int, tuple[tuple[str, ...], ...]] = {
    0: (
        (".55,.03 .25,.18 .15,.52 .27,.86 .52,.97 .76,.84 .86,.48 .75,.16 .55,.03 .42,.07",),
        (".62,.08 .36,.10 .18,.50 .36,.92 .62,.92 .82,.52 .66,.12 .50,.04",),
    ),
    1: (
        (".52,.02 .50,.50 .48,.98",),
        (".32,.22 .42,.14 .52,.02", ".52,.02 .51,.50 .50,.98"),
        (".32,.20 .42,.12 .52,.02", ".52,.02 .51,.50 .50,.97", ".30,.97 .50,.97 .72,.96"),
    ),
    2: (
        (".18,.24 .32,.05 .62,.04 .76,.26 .62,.52 .38,.76 .16,.96", ".16,.96 .50,.95 .84,.93"),
        (
            ".20,.22 .36,.04 .64,.06 .74,.30 .58,.58 .36,.84 .20,.94 .14,.84 .26,.78 .46,.88 "
            ".66,.96 .86,.88",
        ),
    ),
    3: (
        (
            ".22,.14 .46,.02 .72,.14 .70,.34 .46,.46",
            ".46,.46 .74,.56 .80,.78 .56,.97 .30,.94 .16,.82",
        ),
        (
            ".20,.05 .50,.05 .78,.05",
            ".78,.05 .60,.24 .44,.42",
            ".44,.42 .78,.52 .80,.80 .50,.97 .18,.86",
        ),
    ),
    4: (
        (".60,.03 .38,.34 .14,.66", ".14,.66 .50,.65 .88,.64", ".64,.34 .63,.66 .62,.98"),
        (".26,.06 .20,.32 .18,.52", ".18,.52 .48,.52 .78,.48", ".76,.04 .72,.50 .66,.98"),
        (".64,.03 .40,.32 .16,.62", ".16,.62 .50,.62 .84,.60", ".64,.03 .63,.50 .60,.98"),
    ),
    5: (
        (
            ".78,.04 .54,.05 .28,.06",
            ".28,.06 .25,.24 .22,.44",
            ".22,.44 .50,.36 .78,.52 .78,.80 .50,.97 .18,.88",
        ),
        (
            ".32,.05 .28,.24 .25,.42",
            ".25,.42 .52,.40 .74,.58 .70,.84 .44,.97 .18,.90",
            ".32,.05 .56,.06 .84,.03",
        ),
    ),
    6: (
        (".66,.04 .40,.22 .22,.54 .22,.82 .46,.97 .72,.84 .74,.62 .52,.50 .28,.62 .22,.76",),
        (".50,.02 .32,.30 .22,.64 .32,.92 .60,.96 .78,.78 .68,.58 .44,.56 .26,.70",),
    ),
    7: (
        (".16,.08 .50,.07 .84,.05", ".84,.05 .62,.44 .44,.98"),
        (".16,.08 .50,.07 .82,.05", ".82,.05 .60,.46 .46,.98", ".34,.52 .54,.51 .74,.49"),
        (".18,.22 .18,.14 .19,.07", ".19,.07 .50,.08 .82,.05", ".82,.05 .60,.40 .52,.98"),
    ),
    8: (
        (
            ".70,.14 .50,.03 .28,.14 .32,.36 .54,.50 .76,.68 .70,.90 .48,.97 .26,.88 .24,.68 "
            ".46,.50 .68,.34 .72,.16 .62,.05",
        ),
        (
            ".52,.47 .30,.36 .28,.14 .50,.03 .72,.14 .70,.36 .52,.47",
            ".52,.47 .26,.62 .22,.84 .50,.97 .78,.84 .76,.62 .52,.47",
        ),
    ),
    9: (
        (".76,.22 .58,.04 .32,.10 .22,.32 .36,.50 .60,.46 .76,.24", ".76,.20 .75,.56 .70,.98"),
        (
            ".74,.26 .58,.05 .32,.10 .22,.32 .38,.50 .62,.44 .74,.26 .76,.56 .64,.86 .42,.98 "
            ".26,.92",
        ),
    ),
}


def _spline(controls: int, points: int) -> Float[Tensor, "points controls"]:
    """The Catmull-Rom matrix: `points` on a smooth path through the controls, both ends met."""
    matrix = torch.zeros(points, controls)
    t = torch.linspace(0, controls - 1, points, dtype=torch.float64)
    left = t.floor().clamp(max=controls - 2)
    u = t - left
    weights = torch.stack(
        [
            -0.5 * u + u**2 - 0.5 * u**3,
            1 - 2.5 * u**2 + 1.5 * u**3,
            0.5 * u + 2 * u**2 - 1.5 * u**3,
            -0.5 * u**2 + 0.5 * u**3,
        ],
        1,
    ).float()
    for offset in range(4):
        # Beyond an end the control there is repeated.
        column = (left.long() - 1 + offset).clamp(0, controls - 1)
        matrix[torch.arange(points), column] += weights[:, offset]
    return matrix


@lru_cache(maxsize=1)
def _templates() -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """Controls (ways, most, 2), spline matrices (ways, POINTS, most), starts, first way of each."""
    every = [(digit, way) for digit, ways in _WAYS.items() for way in ways]
    paths = [
        [torch.tensor([[float(v) for v in p.split(",")] for p in s.split()]) for s in way]
        for _, way in every
    ]
    most = max(sum(map(len, path)) for path in paths)
    controls = torch.zeros(len(every), most, 2)
    matrices = torch.zeros(len(every), POINTS, most)
    starts = torch.zeros(len(every), POINTS, dtype=torch.bool)
    for way, path in enumerate(paths):
        lengths = torch.stack([stroke.diff(dim=0).norm(dim=1).sum() for stroke in path])
        ends = (lengths.cumsum(0) / lengths.sum() * POINTS).round().long().tolist()
        column = row = 0
        for stroke, end in zip(path, ends, strict=True):
            controls[way, column : column + len(stroke)] = stroke - 0.5
            matrices[way, row:end, column : column + len(stroke)] = _spline(len(stroke), end - row)
            starts[way, row] = True
            column, row = column + len(stroke), end
    first = [0]
    for ways in _WAYS.values():
        first.append(first[-1] + len(ways))
    return controls, matrices, starts, first


def _warp(
    p: Float[Tensor, "batch points 2"],
    frequency: Float[Tensor, "batch waves 2"],
    phase: Float[Tensor, "batch waves"],
    amplitude: Float[Tensor, "batch waves 2"],
) -> Float[Tensor, "batch points 2"]:
    """Move each point by a few slow waves that run across the page."""
    wave = (torch.einsum("bpd,bkd->bpk", p, frequency) + phase[:, None]).sin()
    return p + wave @ amplitude


def _lay(
    p: Float[Tensor, "batch points 2"],
    size: Float[Tensor, "batch 2"],
    slant: Float[Tensor, " batch"],
    turn: Float[Tensor, " batch"],
    centre: Float[Tensor, "batch 2"],
) -> Float[Tensor, "batch points 2"]:
    """Stretch to a size in pixels, slant to the right, turn, and put the middle at a centre."""
    p = p * size[:, None]
    x, y = p[..., 0] - slant[:, None] * p[..., 1], p[..., 1]
    cos, sin = turn.cos()[:, None], turn.sin()[:, None]
    p = torch.stack([cos * x - sin * y, sin * x + cos * y], 2)
    return p - (p.amin(1, keepdim=True) + p.amax(1, keepdim=True)) / 2 + centre[:, None]


def _ink(
    p: Float[Tensor, "batch points 2"],
    starts: Bool[Tensor, "batch points"],
    pen: Float[Tensor, " batch"],
) -> Float[Tensor, "batch 28 28"]:
    """What a pen of that spread leaves on the page; it is lifted before each start."""
    step = p.diff(dim=1).norm(dim=2) * ~starts[:, 1:]
    length = (pad(step, (1, 0)) + pad(step, (0, 1))) / 2
    away = torch.arange(SIDE, dtype=p.dtype) - p[..., None]  # batch points 2 side
    across, down = (-(away**2) / (2 * pen[:, None, None, None] ** 2)).exp().unbind(2)
    return (down * length[..., None]).transpose(1, 2) @ across


def _chunk(random: torch.Generator) -> tuple[Tensor, Tensor]:
    """CHUNK images, each class equally often."""

    def uniform(low: float, high: float) -> Float[Tensor, " batch"]:
        return torch.rand(CHUNK, generator=random) * (high - low) + low

    def normal(std: float, *shape: int) -> Tensor:
        return std * torch.randn(CHUNK, *shape, generator=random).clamp(-2, 2)

    controls, matrices, starts, first = _templates()
    y = (torch.arange(CHUNK) % 10)[torch.randperm(CHUNK, generator=random)]
    ways = torch.tensor(first).diff()[y]
    way = torch.tensor(first)[y] + (uniform(0, 1) * ways).long()
    p = matrices[way] @ (controls[way] + normal(0.028, *controls.shape[1:]))
    phase = torch.stack([uniform(-pi, pi) for _ in range(3)], 1)
    p = _warp(p, normal(2.2, 3, 2), phase, normal(0.045, 3, 2))
    size = torch.stack([uniform(12, 19), uniform(17, 21.5)], 1)
    p = _lay(p, size, normal(0.22), normal(0.12), SIDE / 2 - 0.5 + normal(0.8, 2))
    ink = _ink(p, starts[way], uniform(0.72, 1.15))
    sharpness = uniform(3.5, 6)[:, None, None]
    blank = (-sharpness).sigmoid()
    pixels = ((sharpness * (ink - 1)).sigmoid() - blank) / (1 - blank)
    return (pixels * 255).round().to(torch.uint8)[:, None], y


def draw(
    count: int, seed: int = 0
) -> tuple[UInt8[Tensor, "count 1 28 28"], Int64[Tensor, " count"]]:
    """The first `count` images of the endless series that belongs to a seed."""
    chunks = [_chunk(generator(seed, chunk)) for chunk in range(-(-count // CHUNK))]
    x, y = (torch.cat(tensors)[:count] for tensors in zip(*chunks, strict=True))
    return x, y


def read(count: str = "") -> Samples:
    """The dataset, with `count` training and validation images where a count is given."""
    parts = generate_parts(parse_count("strokes", count, COUNT, 100, 10_000_000), draw)
    return Samples(
        name="strokes",
        parts=parts,
        digest=digest(*(tensor for pair in parts.values() for tensor in pair)),
        split=GENERATED,
        classes=tuple("0123456789"),
    )
