"""PixelCNN: images are drawn pixel by pixel, each from its probability given those before it.

    log p(x) = sum_i x_i log m_i + (1 - x_i) log(1 - m_i)       (1)  m_i = p(x_i = 1 | x_1 .. x_i-1)
    A_t      = 1 for t < 0, else 0                              (2)  mask of the first layers
    B_t      = 1 for t <= 0, else 0                             (3)  mask of all others
    a        = V * v                                            (4)  vertical stack: rows above
    b        = H * h + N a                                      (5)  horizontal stack: its own row
    g(a)     = tanh(a') sigmoid(a'')                            (6)  gate by halves of maps
    v       <- v + g(a)                                         (7)  residual
    h       <- h + Q g(b)                                       (8)  residual
    x_i      = 1 if u_i < m_i, else 0                           (9)  a pixel, drawn

where x_i is pixel i of a binary image, row by row from the upper left, v and h are feature maps, *
is a convolution whose kernel has the place t = 0 at its centre, N and Q mix maps pixel by pixel, a'
and a'' are the first and the second half of the maps a, u_i is uniform from 0 to 1 and logarithms
are natural. Rows of V and columns of H are multiplied by a mask: (2) in the first layers, which see
the image and so must not see the pixel itself, (3) in the others. At a pixel v holds what is known
of all rows above it, and h that and what is known of its left: (1) is exact, and nothing is left
out. One stack whose kernels are masked in the order of the raster sees what lies above and to the
right of a pixel only within a cone: a blind spot is left.

van den Oord, Kalchbrenner, Kavukcuoglu (2016), "Pixel recurrent neural networks",
arXiv:1601.06759; two stacks and gates: van den Oord et al. (2016), "Conditional image generation
with PixelCNN decoders", arXiv:1606.05328, section 2. Unlike the paper, the first layers are not
gated, (7) is residual, too, and pixels have two levels, so that (1) is compared with other networks
for binary images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, conv2d, pad

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.keep import keep_mask
from everynet.nn.ema import EMA
from everynet.recipes.recipe import Goal
from everynet.recipes.trained import Trained
from everynet.system import seeds
from everynet.system.errors import UserError
from everynet.zoo.generative.binary_images import BinaryImages, binarize, check_pixels, draw
from everynet.zoo.generative.pictures.energy import chain_frames, image_table
from everynet.zoo.generative.pictures.pixels import (
    compare_nearest,
    image_mosaics,
    masks_and_fields,
    nats_by_pixel,
)
from everynet.zoo.generative.sample_quality import QUALITY, check_sides, measure_samples


class PixelCNN(nn.Module):
    """Maps binary images to the logits of m, each of which depends on earlier pixels alone."""

    def __init__(
        self, channels: int, layers: int, kernel_size: int = 5, first_kernel_size: int = 7
    ) -> None:
        super().__init__()
        self.vertical = MaskedConv2d(1, channels, vertical_mask(first_kernel_size, "A"))
        self.horizontal = MaskedConv2d(1, channels, horizontal_mask(first_kernel_size, "A"))
        self.layers = nn.ModuleList(GatedLayer(channels, kernel_size) for _ in range(layers))
        self.head = nn.Sequential(
            *(nn.ReLU(), nn.Conv2d(channels, channels, 1)),
            *(nn.ReLU(), nn.Conv2d(channels, 1, 1)),
        )

    def forward(
        self, x: Float[Tensor, "batch 1 height width"]
    ) -> Float[Tensor, "batch 1 height width"]:
        signs = 2 * x - 1
        v, h = self.vertical(signs), self.horizontal(signs)
        for layer in self.layers:
            v, h = layer(v, h)
        logits: Tensor = self.head(h)
        return logits

    def log_likelihoods(
        self, x: Float[Tensor, "batch 1 height width"]
    ) -> Float[Tensor, "batch 1 height width"]:
        """The log-probability of each pixel given those before it; their sum is log p(x)."""
        return -binary_cross_entropy_with_logits(self(x), x, reduction="none")  # (1)


class GatedLayer(nn.Module):
    """One layer of both stacks: maps v and h to the v and h of the next."""

    def __init__(self, channels: int, kernel_size: int = 5) -> None:
        super().__init__()
        self.vertical = MaskedConv2d(channels, 2 * channels, vertical_mask(kernel_size, "B"))
        self.horizontal = MaskedConv2d(channels, 2 * channels, horizontal_mask(kernel_size, "B"))
        self.link = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(
        self,
        v: Float[Tensor, "batch channels height width"],
        h: Float[Tensor, "batch channels height width"],
    ) -> tuple[
        Float[Tensor, "batch channels height width"], Float[Tensor, "batch channels height width"]
    ]:
        a = self.vertical(v)  # (4)
        b = self.horizontal(h) + self.link(a)  # (5)
        return v + gate(a), h + self.out(gate(b))  # (7) (8)


class MaskedConv2d(nn.Conv2d):
    """A convolution whose kernel is 0 outside of a mask, which is a rectangle.

    Only weights inside are stored and multiplied: the image is padded, or cut, by as much as the
    rectangle reaches beyond the centre of the whole kernel, or ends before it.
    """

    def __init__(
        self, in_channels: int, out_channels: int, mask: Bool[Tensor, "height width"]
    ) -> None:
        rows, columns = (mask.any(axis).nonzero().flatten().tolist() for axis in (1, 0))
        super().__init__(in_channels, out_channels, (len(rows), len(columns)))
        y, x = (side // 2 for side in mask.shape)
        self.margins = (x - columns[0], columns[-1] - x, y - rows[0], rows[-1] - y)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch maps height width"]:
        return self.at_end(pad(x, self.margins))

    def at_end(
        self, window: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch maps rows columns"]:
        """Of a window without margins: where it is as large as the mask, the value at its end."""
        return conv2d(window, self.weight, self.bias)

    def widen(self, rows: Tensor) -> Tensor:
        """Rows of feature maps with the margins at their sides."""
        return pad(rows, (*self.margins[:2], 0, 0))


def vertical_mask(kernel_size: int, kind: str) -> Bool[Tensor, "side side"]:
    """True for the rows above the centre of a kernel; with kind "B" also for its own."""
    return keep_before(kernel_size, kind)[:, None].expand(-1, kernel_size)


def horizontal_mask(kernel_size: int, kind: str) -> Bool[Tensor, "1 side"]:
    """True for the columns left of the centre of a kernel; with kind "B" also for its own."""
    return keep_before(kernel_size, kind)[None]


def keep_before(kernel_size: int, kind: str) -> Bool[Tensor, " side"]:
    """The mask "A" or "B" along one axis."""
    if kernel_size < 3 or kernel_size % 2 == 0:
        raise ValueError(
            f"kernel_size ({kernel_size}) must be odd and at least 3, because a mask parts it at "
            "its centre; try 5"
        )
    t = torch.arange(kernel_size, device="cpu") - kernel_size // 2
    return t < 0 if kind == "A" else t <= 0  # (2) (3)


def gate(
    a: Float[Tensor, "batch both height width"],
) -> Float[Tensor, "batch channels height width"]:
    """Maps that pass as far as others let them."""
    value, switch = a.chunk(2, 1)
    return value.tanh() * switch.sigmoid()  # (6)


def draw_pixel(
    logits: Float[Tensor, " batch"], u: Float[Tensor, " batch"], temperature: float = 1.0
) -> Float[Tensor, " batch"]:
    """One pixel of each image."""
    return (u < (logits.to(u) / temperature).sigmoid()).to(u.dtype)  # (9)


@torch.no_grad()
def draw_by_loop(
    net: PixelCNN,
    u: Float[Tensor, "batch height width"],
    x: Float[Tensor, "batch 1 height width"],
    hidden: Bool[Tensor, "height width"],
) -> Float[Tensor, "batch 1 height width"]:
    """The hidden pixels of x drawn, with the whole network for each: for reading and for tests."""
    x = torch.where(hidden, torch.zeros_like(x), x)
    for row, column in hidden.nonzero().tolist():
        logits = net(x)[:, 0, row, column]
        x[:, 0, row, column] = draw_pixel(logits, u[:, row, column])
    return x


@torch.no_grad()
def draw_steps(
    net: PixelCNN,
    u: Float[Tensor, "batch height width"],
    x: Float[Tensor, "batch 1 height width"],
    hidden: Bool[Tensor, "height width"],
    temperature: float = 1.0,
) -> Iterator[Float[Tensor, "batch 1 height width"]]:
    """The same images after each pixel, each layer computed once for each pixel.

    The vertical stack of a row follows from the rows above it, all columns at once; what a kernel
    looks back on is kept: the last rows of v and the last columns of h, layer by layer.
    """
    x = torch.where(hidden, torch.zeros_like(x), x)
    height, width = hidden.shape
    layers = [layer for layer in net.layers if isinstance(layer, GatedLayer)]
    verticals = [net.vertical, *(layer.vertical for layer in layers)]
    horizontals = [net.horizontal, *(layer.horizontal for layer in layers)]
    rows = [empty_window(conv, u, width) for conv in verticals]
    drawn = hidden.tolist()
    for row in range(height):
        links, v = [], net.vertical.at_end(rows[0])
        for at, layer in enumerate(layers, 1):
            rows[at] = shift_in(rows[at], layer.vertical.widen(v), 2)
            a = layer.vertical.at_end(rows[at])
            links.append(layer.link(a))
            v = v + gate(a)
        columns = [empty_window(conv, u, 1) for conv in horizontals]
        for column in range(width):
            if any(drawn[row][column:]):  # after the last hidden pixel of a row nothing is asked
                h = net.horizontal.at_end(columns[0])
                for at, layer in enumerate(layers, 1):
                    columns[at] = shift_in(columns[at], h, 3)
                    link = links[at - 1][..., column : column + 1]
                    b = layer.horizontal.at_end(columns[at]) + link
                    h = h + layer.out(gate(b))
                if drawn[row][column]:
                    logits = net.head(h)[:, 0, 0, 0]
                    x[:, 0, row, column] = draw_pixel(logits, u[:, row, column], temperature)
                signs = 2 * x[:, :, row : row + 1, column : column + 1] - 1
                columns[0] = shift_in(columns[0], signs, 3)
            yield x
        signs = 2 * x[:, :, row : row + 1] - 1
        rows[0] = shift_in(rows[0], net.vertical.widen(signs), 2)


def blank(
    u: Float[Tensor, "batch height width"],
) -> tuple[Float[Tensor, "batch 1 height width"], Bool[Tensor, "height width"]]:
    """Images of which every pixel is hidden, as many as there are numbers to draw them by."""
    return torch.zeros_like(u)[:, None], torch.ones_like(u[0], dtype=torch.bool)


def empty_window(
    conv: MaskedConv2d, u: Float[Tensor, "batch height width"], width: int
) -> Float[Tensor, "batch channels rows columns"]:
    """What a kernel looks back on at the edge of the image, over `width` pixels: zeros."""
    rows, columns = conv.kernel_size
    return conv.weight.new_zeros(len(u), conv.in_channels, rows, columns + width - 1)


def shift_in(window: Tensor, new: Tensor, axis: int) -> Tensor:
    """A window with its oldest row or column out and a new one in."""
    return torch.cat([window.narrow(axis, 1, window.shape[axis] - 1), new], axis)


# -------- the network ends here; training and pictures follow --------

AT_ONCE = 500
"""Images that are drawn together."""
MOST = 100_000
"""Images that are drawn by one command."""
FRAMES, RATE = 100, 12.0  # of a film, and how many of them are shown in a second
ORDER = "hidden pixels are drawn in rows from the upper left, each given all before it alone"


@dataclass(frozen=True, kw_only=True)
class BinaryPixels(BinaryImages[PixelCNN, nn.Module]):
    """Learn the probability of each pixel given those before it, and draw images by it."""

    meanings: ClassVar[Mapping[str, str]] = {
        "negative_log_likelihood": "-log p(x) of an image in nats, exact: the sum over its pixels",
        **QUALITY,
    }

    steps: int = 2000
    batch_size: int = 64
    lr: float = 3e-3
    schedule: str = "cosine"
    width: int = 32
    """Feature maps of either stack."""
    layers: int = 4
    """Gated layers after the first, which sees the image."""
    kernel_size: int = 5
    """Side of their kernels, before they are masked."""
    first_kernel_size: int = 7
    """Side of the kernels of the first layer."""
    ema: float = 0.999
    """Decay of averaged weights, which are the ones that are kept; 0 averages none."""
    samples: int = 1000
    """Images that are drawn at the end, to be recognised by a classifier."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier that looks at the samples; empty trains a small one."""
    classifier_steps: int = 600
    """Updates of the classifier that is trained where `of` is empty."""

    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "width", "layers", "classifier_steps")
        self.at_least(2, "samples")
        self.require(0 <= self.ema < 1, "ema", "at least 0 and below 1; 0.999 is usual")
        for name in ("kernel_size", "first_kernel_size"):
            side = getattr(self, name)
            odd = "odd and at least 3, because a mask parts the kernel at its centre; try 5"
            self.require(side >= 3 and side % 2 == 1, name, odd)

    def dataset(self) -> Data:
        """Binary images: those of training are drawn anew each time, others once."""
        return check_sides(super().dataset())

    def model(self, data: Data) -> PixelCNN:
        return PixelCNN(self.width, self.layers, self.kernel_size, self.first_kernel_size)

    def extra(self, model: PixelCNN) -> nn.Module:
        return EMA(model, self.ema) if self.ema else nn.Module()

    def objective(self, model: PixelCNN, batch: Batch) -> Terms:
        nats = model.log_likelihoods(draw(batch[0])).flatten(1).sum(1)
        return {"negative_log_likelihood": -nats.mean()}

    def metrics(self, model: PixelCNN, batch: Batch) -> dict[str, Tensor]:
        nats = model.log_likelihoods(draw(batch[0])).flatten(1).sum(1)
        return {"negative_log_likelihood": -nats}

    def final(
        self, model: PixelCNN, data: Data, generator: torch.Generator, *, samples: int = 0
    ) -> dict[str, float]:
        """The quality of `samples` (0: as set); the likelihood of test images is exact already."""
        if samples and not 2 <= samples <= MOST:
            raise UserError(f"samples ({samples}) must be from 2 to {MOST:,}; 0 is as trained")
        made = self.draw_images(model, data.spec, generator, samples or self.samples)
        return measure_samples(
            made, data, self.of, steps=self.classifier_steps, seed=self.seed, binary=True
        )

    def draw_images(
        self,
        model: PixelCNN,
        spec: Spec,
        generator: torch.Generator,
        n: int,
        temperature: float = 1.0,
    ) -> Float[Tensor, "n 1 height width"]:
        """Images of the network, some at a time."""
        _, height, width = spec["shape"]
        u = torch.rand(n, height, width, generator=generator).to(next(model.parameters()))
        parts = [
            last(draw_steps(model, some, *blank(some), temperature)) for some in u.split(AT_ONCE)
        ]
        return torch.cat([part.cpu() for part in parts])

    def sample(
        self,
        model: PixelCNN,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 64,
        temperature: float = 1.0,
        film: bool = False,
    ) -> Float[Tensor, "n 1 height width"] | plot.Film:
        """Images drawn pixel by pixel; a temperature below 1 draws likelier pixels."""
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be from 1 to {MOST:,}, because each is drawn by itself")
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature ({temperature}) must be above 0; try 1.0")
        if not film:
            return self.draw_images(model, spec, generator, n, temperature)
        if n > AT_ONCE:
            raise UserError(f"n ({n}) must be at most {AT_ONCE} of a film, to be seen side by side")
        _, height, width = spec["shape"]
        u = torch.rand(n, height, width, generator=generator).to(next(model.parameters()))
        every = max(1, height * width // FRAMES)

        def frames() -> Iterator[Tensor]:
            grey = torch.full((height * width,), 0.5)
            yield grey.view(height, width).expand(n, 1, height, width)
            for done, x in enumerate(draw_steps(model, u, *blank(u), temperature), 1):
                if done % every == 0 or done == height * width:
                    known = torch.arange(height * width).view(height, width) < done
                    yield torch.where(known, x.float().cpu(), grey.view(height, width))

        return plot.Film(chain_frames(frames(), math.ceil(n**0.5)), RATE)

    def predict(
        self,
        model: PixelCNN,
        inputs: Float[Tensor, "batch 1 height width"],
        spec: Spec,
        *,
        keep: str = "",
    ) -> Sequence[dict[str, Any]]:
        """The exact log-likelihood of each image in nats; with `keep` the rest of it, drawn.

        Pixels above one half are white, so that the answer does not depend on a draw.
        """
        grey = check_pixels(inputs, "inputs")
        x = binarize(grey)
        nats = model.log_likelihoods(x).flatten(1).sum(1)
        answers: list[dict[str, Any]] = [{"log_likelihood": value} for value in nats.tolist()]
        for answer, share in zip(answers, (grey != x).flatten(1).float().mean(1), strict=True):
            if share:
                answer["binarized"] = f"{share:.1%} of pixels were grey; above 1/2 they are white"
        if keep:
            _, height, width = spec["shape"]
            source = seeds.generator(self.seed, 9)
            kept = keep_mask(keep, height, width, source).to(x.device)
            u = torch.rand(len(x), height, width, generator=source).to(x)
            for answer, image in zip(answers, complete(model, u, x, kept), strict=True):
                answer["completed"] = image.cpu()
                if comes_later(kept):
                    answer["note"] = ORDER
        return answers

    def monitor(self) -> Goal | None:
        """The last weights are kept where the learning rate falls to its end."""
        ends = self.schedule not in ("constant", "plateau")
        return None if ends else Goal("negative_log_likelihood", "<=", 0.0)

    def tiny(self) -> Self:
        return replace(super().tiny(), samples=20, classifier_steps=3)

    # --------------------------------------------------------------------------------- pictures

    def picture_samples(self, model: PixelCNN, data: Data, history: History) -> Figure:
        """Images that were drawn pixel by pixel, beside validation images.

        Both are binary: validation images are drawn, too, once, from their grey values.
        """
        made = self.draw_images(model, data.spec, seeds.generator(self.seed, 10), 64)
        real = data.some("valid", torch.arange(min(64, data.rows("valid"))))[0].cpu()
        return image_mosaics({"samples": made, "validation images": real})

    def picture_receptive_field(
        self, model: PixelCNN, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """Masks of kernels; then the pixels that the one in the frame depends on, by gradient.

        It sees {seen} of {before} pixels before it and {after} after it. One stack of as many
        layers, masked in the order of the raster, would leave {blind} in a blind spot.
        """
        k, first, layers = self.kernel_size, self.first_kernel_size, len(model.layers)
        at = min(first // 2 + layers * (k // 2), 14)  # as far as it sees, or as can be drawn
        height, width = at + 4, 2 * at + 1
        u = torch.rand(8, 1, height, width, generator=seeds.generator(self.seed, 12))
        x = binarize(u.to(next(model.parameters())))
        depths = sorted({1, (layers + 1) // 2, layers})
        found = [slopes(model, x, at, at, depth) for depth in depths]
        fields = {f"gated layers: {d}": field for d, field in zip(depths, found, strict=True)}
        seen = found[-1] > 0
        alone = single_stack_field(height, width, at, at, [first, *[k] * layers])
        fields["one stack: what it sees"] = alone.double() * found[-1].max()
        masks = {
            "V, first layer: A": vertical_mask(first, "A"),
            "V: B": vertical_mask(k, "B"),
            "H, first layer: A": horizontal_mask(first, "A"),
            "H: B": horizontal_mask(k, "B"),
        }
        order = torch.arange(height * width).view(height, width)
        before = order < order[at, at]
        counts = {"seen": seen & before, "before": before, "after": seen & ~before}
        counts["blind"] = seen & ~alone
        figure = masks_and_fields(masks, fields, (at, at))
        return figure, {name: int(mask.sum()) for name, mask in counts.items()}

    def picture_nats(
        self, model: PixelCNN, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images, the probability of white at each pixel, and nats for each pixel.

        The tenth of pixels that cost most cost {share:.0%} of {nats:.1f} nats an image: those where
        a stroke begins or ends otherwise than expected.
        """
        x = data.some("valid", torch.arange(min(200, data.rows("valid"))))[0]
        nats = -model.log_likelihoods(x).cpu()
        m, each = model(x[:8]).sigmoid().cpu(), nats.flatten(1).sort(descending=True).values
        top = each[:, : max(1, each.shape[1] // 10)].sum() / each.sum()
        figure = nats_by_pixel(x[:8].cpu(), m, nats[:8])
        return figure, {"share": top.item(), "nats": each.sum(1).mean().item()}

    def picture_completions(self, model: PixelCNN, data: Data, history: History) -> Figure:
        """Validation images, what is kept of them, and two draws of the rest.

        Below a kept upper half draws follow the exact conditional distribution; beside a kept left
        half a pixel is drawn without knowing the kept ones in rows below it.
        """
        x = data.some("valid", torch.arange(min(8, data.rows("valid"))))[0]
        source, shape = seeds.generator(self.seed, 11), data.spec["shape"][1:]
        rows = {"image": x}
        for keep in ("top", "left"):
            kept = keep_mask(keep, *shape).to(x.device)
            rows[f"{keep} kept"] = torch.where(kept, x, torch.full_like(x, 0.5))
            for number in (1, 2):
                u = torch.rand(len(x), *shape, generator=source).to(x)
                rows[f"draw {number}, {keep}"] = complete(model, u, x, kept)
        table = torch.stack([*rows.values()])[:, :, 0].float().cpu()
        return image_table(table, columns=[f"{n + 1}" for n in range(len(x))], rows=[*rows])

    def picture_nearest(
        self, model: PixelCNN, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Samples above the nearest training image of each, and squared distances to it.

        The median is {samples:.1f} of samples and {held_out:.1f} of validation images: samples
        that were copies would be nearer than new images are.
        """
        made = self.draw_images(model, data.spec, seeds.generator(self.seed, 10), 200)
        return compare_nearest(made, data)


def complete(
    net: PixelCNN,
    u: Float[Tensor, "batch height width"],
    x: Float[Tensor, "batch 1 height width"],
    kept: Bool[Tensor, "height width"],
) -> Float[Tensor, "batch 1 height width"]:
    """Images with the pixels that are not kept drawn anew, each given all before it."""
    return last(draw_steps(net, u, x, ~kept))


def comes_later(kept: Bool[Tensor, "height width"]) -> bool:
    """Whether a pixel that is kept comes after one that is not, and so is not conditioned on."""
    first = int((~kept).flatten().nonzero()[0])
    return bool(kept.flatten()[first:].any())


def last(steps: Iterator[Tensor]) -> Tensor:
    """What an iterator ends with."""
    for step in steps:
        found = step
    return found


@torch.enable_grad()
def slopes(
    net: PixelCNN, x: Float[Tensor, "batch 1 height width"], row: int, column: int, depth: int
) -> Float[Tensor, "height width"]:
    """How much a pixel's h after so many layers depends on each pixel: mean size of a slope."""
    x = x.clone().requires_grad_()
    v, h = net.vertical(2 * x - 1), net.horizontal(2 * x - 1)
    for layer in net.layers[:depth]:
        v, h = layer(v, h)
    (slope,) = torch.autograd.grad(h[:, :, row, column].square().sum(), x)
    return slope.abs().mean((0, 1)).cpu().double()


def single_stack_field(
    height: int, width: int, row: int, column: int, kernel_sizes: Sequence[int]
) -> Bool[Tensor, "height width"]:
    """What a pixel could see through one stack of convolutions masked in the order of the raster.

    Their kernels keep the rows above the centre, and of its own row what is before it; those after
    the first keep the centre, too.
    """
    seen = torch.zeros(1, 1, height, width)
    seen[..., row, column] = 1
    for number, side in reversed([*enumerate(kernel_sizes)]):  # from the output to the image
        mask = vertical_mask(side, "A").clone()
        mask[side // 2] = horizontal_mask(side, "B" if number else "A")[0]
        spread = conv2d(seen, mask.flip(0, 1).float()[None, None], padding=side // 2)
        seen = (spread > 0).float()
    return seen[0, 0] > 0


RECIPES = {
    "pixelcnn": BinaryPixels(
        goal="negative_log_likelihood <= 22.4 and recognised >= 0.55 and classes >= 10",
        covers=("G16",),
    ),
    "pixelcnn-mnist": BinaryPixels(
        data="mnist", steps=8000, batch_size=128, lr=1e-3, width=128, layers=8, warmup=500,
        clip=784.0, samples=10_000, classifier_steps=3000, eval_every=1000,
        goal="negative_log_likelihood <= 82 and recognised >= 0.8 and classes >= 10",
        covers=("G16",),
    ),
}  # fmt: skip
