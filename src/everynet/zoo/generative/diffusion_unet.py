"""The network that predicts noise in images: a residual U-Net that is given the step of noising.

    c      = W_2 s(W_1 PE(t)) + u_y                              (1)  condition of every block
    F(x)   = conv_2(s(norm_2(conv_1(s(norm_1(x))) + V s(c))))    (2)  residual branch
    y      = P x + F(x)                                          (3)  a block
    y      = x + attention(norm(x))                              (4)  pixels read pixels
    e~     = e(x, t) + w (e(x, t, y) - e(x, t))                  (5)  guidance

where s is SiLU, PE(t) the sines and cosines of the step t, u_y a vector for each class y and one
for none of them, norm a group normalisation, P the identity or, where the number of maps changes,
a 1 x 1 convolution, and W, V matrices. In training some labels are left out, so that one network
learns the noise of a class, e(x, t, y), and that of all of them, e(x, t). In (5) w = 0 asks for
any class, w = 1 for y, and more for images that are even more typical of y, less varied ones.
conv_2, the output of attention and the last convolution begin at 0, so that a block begins as P.

    level          0         1         ..   L - 1
    maps           widths[0] widths[1] ..   widths[-1]
    side           H         H / 2     ..   H / 2^(L-1)
    down           `blocks` blocks, halved by a convolution of stride 2    every output is kept
    middle                                  a block, attention, a block
    up             `blocks` + 1 blocks, each given a kept output beside its input; doubled

Attention follows every block of the smallest `attention` levels.

Ho, Jain and Abbeel (2020), "Denoising diffusion probabilistic models", arXiv:2006.11239, appendix
B; (5): Ho and Salimans (2022), "Classifier-free diffusion guidance", arXiv:2207.12598, whose w is
smaller by 1. Unlike the first, widths may be any, and levels of attention are counted from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import group_norm, interpolate, silu

from everynet.nn.attention import MultiHeadAttention
from everynet.nn.positions import sinusoidal

GROUPS, TOGETHER = 32, 4
"""Groups of a normalisation, at most, and maps in each, at least."""
Maps = Float[Tensor, "batch channels height width"]


class NoiseUNet(nn.Module):
    """Maps noisy images, their steps t and, if there are classes, labels to the noise in them.

    A label of `classes`, and none at all, mean any class.
    """

    codes: Tensor

    def __init__(
        self,
        channels: int,
        widths: Sequence[int],
        *,
        noise_steps: int,
        classes: int = 0,
        blocks: int = 2,
        attention: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not widths or min(widths) < 2 or widths[0] % 2:
            raise ValueError(
                f"widths ({', '.join(map(str, widths))}) must be one or more numbers from 2 up, "
                "the first even, because it holds the sines and cosines of t; try 32,64"
            )
        width = 4 * widths[0]
        self.widths, self.classes = tuple(widths), classes
        codes = sinusoidal(noise_steps + 1, widths[0]).to(torch.get_default_dtype())
        self.register_buffer("codes", codes, persistent=False)
        self.time = nn.Sequential(nn.Linear(widths[0], width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width) if classes else None
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down, self.up, kept, now = nn.ModuleList(), nn.ModuleList(), [widths[0]], widths[0]
        for level, maps in enumerate(widths):
            attends = level >= len(widths) - attention
            for _ in range(blocks):
                self.down.append(TimeBlock(now, maps, width, attends=attends, dropout=dropout))
                now = maps
                kept.append(now)
            if level < len(widths) - 1:
                self.down.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                kept.append(now)
        self.middle = nn.ModuleList(
            TimeBlock(now, now, width, attends=first, dropout=dropout) for first in (True, False)
        )
        for level, maps in reversed([*enumerate(widths)]):
            attends = level >= len(widths) - attention
            for _ in range(blocks + 1):
                given = now + kept.pop()
                self.up.append(TimeBlock(given, maps, width, attends=attends, dropout=dropout))
                now = maps
            if level:
                self.up.append(Doubling(now))
        self.norm = MapNorm(now)
        self.last = zero(nn.Conv2d(now, channels, 3, padding=1))

    def forward(
        self, x: Maps, t: Int64[Tensor, " batch"], y: Int64[Tensor, " batch"] | None = None
    ) -> Maps:
        self.check(x.shape[2], x.shape[3])
        c = self.time(self.codes[t])
        if self.label is not None:
            c = c + self.label(torch.full_like(t, self.classes) if y is None else y)  # (1)
        h = self.first(x)
        kept = [h]
        for part in self.down:
            h = part(h, c) if isinstance(part, TimeBlock) else part(h)
            kept.append(h)
        for part in self.middle:
            h = part(h, c)
        for part in self.up:
            h = part(torch.cat([h, kept.pop()], 1), c) if isinstance(part, TimeBlock) else part(h)
        e: Tensor = self.last(silu(self.norm(h)))
        return e

    def check(self, height: int, width: int) -> None:
        """Refuse images that cannot be halved between the levels."""
        factor = 2 ** (len(self.widths) - 1)
        if height % factor or width % factor or min(height, width) < 2 * factor:
            near = max(2, round(height / factor)) * factor
            raise ValueError(
                f"images ({height} x {width}) must have sides from {2 * factor} up that {factor} "
                f"divides, because {len(self.widths)} widths halve them {len(self.widths) - 1} "
                f"times; give size={near}, or fewer widths"
            )


class TimeBlock(nn.Module):
    """Maps feature maps, and the condition c made of step and class, to feature maps."""

    def __init__(
        self, in_channels: int, out_channels: int, width: int, *, attends: bool, dropout: float
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = MapNorm(in_channels), MapNorm(out_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.conv2 = zero(nn.Conv2d(out_channels, out_channels, 3, padding=1))
        self.condition = nn.Linear(width, out_channels)
        self.dropout = nn.Dropout(dropout)
        same = in_channels == out_channels
        self.project = nn.Identity() if same else nn.Conv2d(in_channels, out_channels, 1)
        self.attention = PixelAttention(out_channels) if attends else nn.Identity()

    def forward(
        self,
        x: Maps,
        c: Float[Tensor, "batch units"],
    ) -> Float[Tensor, "batch out_channels height width"]:
        h = self.conv1(silu(self.norm1(x))) + self.condition(silu(c))[:, :, None, None]
        residual = self.conv2(self.dropout(silu(self.norm2(h))))  # (2)
        y: Tensor = self.attention(self.project(x) + residual)  # (3)
        return y


class PixelAttention(nn.Module):
    """Adds to each pixel of feature maps what it reads of all others, with one head."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.attention = MapNorm(channels), MultiHeadAttention(channels, 1)
        nn.init.zeros_(self.attention.output.weight)

    def forward(self, x: Maps) -> Maps:
        pixels = self.norm(x).flatten(2).transpose(1, 2)  # batch pixels channels
        read: Tensor = self.attention(pixels).transpose(1, 2)
        return x + read.reshape(x.shape)  # (4)


class Doubling(nn.Module):
    """Maps feature maps to those of twice the sides: each pixel is repeated, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Maps) -> Float[Tensor, "batch channels height_2 width_2"]:
        y: Tensor = self.conv(interpolate(x, scale_factor=2.0, mode="nearest"))
        return y


class MapNorm(nn.GroupNorm):
    """Group normalisation in the precision of its input: autocast would make it float32.

    A group of one map would lose the condition, which is a constant added to each map.
    """

    def __init__(self, channels: int) -> None:
        groups = max(1, min(GROUPS, channels // TOGETHER))
        super().__init__(math.gcd(groups, channels), channels)

    def forward(self, x: Maps) -> Maps:
        with torch.autocast("cuda", enabled=False):
            weight, bias = (each.to(x.dtype) for each in (self.weight, self.bias))
            return group_norm(x, self.num_groups, weight, bias, self.eps)


def zero(layer: nn.Conv2d) -> nn.Conv2d:
    """The layer with all weights 0, so that at first it adds nothing."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def guided_noise(
    network: nn.Module,
    x: Maps,
    t: Int64[Tensor, " batch"],
    y: Int64[Tensor, " batch"],
    *,
    w: Float[Tensor, " batch"] | float,
    none: int,
) -> Maps:
    """e~ by one call of the network for both; `none` is the label of any class."""
    labels = torch.cat([torch.full_like(y, none), y])
    of_any, of_class = network(x.repeat(2, 1, 1, 1), t.repeat(2), labels).chunk(2)
    if isinstance(w, Tensor):
        w = w.view(-1, 1, 1, 1).to(of_any)
    e: Tensor = of_any + w * (of_class - of_any)  # (5)
    return e
