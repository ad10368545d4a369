"""The convolutional layer written out: forward and backward, its size, and what it is as a matrix.

    N'           = floor((N + 2P - D(F - 1) - 1) / S) + 1        (1)  output size along an axis
    y_o(m)       = b_o + sum_c sum_u w_oc(u) x_c(S m + D u - P)  (2)  the layer
    dL/dw_oc(u)  = sum_m dL/dy_o(m) x_c(S m + D u - P)           (3)  gradient of a weight
    dL/dx_c(i)   = sum of w_oc(u) dL/dy_o(m), S m + D u - P = i  (4)  gradient of a pixel
    dL/db_o      = sum_m dL/dy_o(m)                              (5)  gradient of a bias
    T_mi         = w(i - m),  y = T x                            (6)  the same as a dense layer
    Y            = W X                                           (7)  1 x 1: one matrix, all pixels

m, i and u are places in the plane, o is a filter (an output channel) and c an input channel: a
filter is as deep as its input, or with groups as its group of channels. F is the size of the
kernel, S the stride, P the zero padding, D the dilation. P = (F - 1) / 2 keeps the size
for S = 1 and odd F. (6) is for one channel, S = D = 1 and P = 0: a dense layer could learn it; that
most weights are 0, and the others the same few again and again, is known here before learning.

LeCun et al. (1989), "Backpropagation Applied to Handwritten Zip Code Recognition",
doi:10.1162/neco.1989.1.4.541; Dumoulin, Visin (2016), "A guide to convolution arithmetic for deep
learning", arXiv:1603.07285, for (1); Lin, Chen, Yan (2013), "Network In Network", arXiv:1312.4400,
for (7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import conv2d, pad

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.vision.convolution import by, correlate2d, farthest, tensor
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.convolution import backward_maps, toeplitz_form


class Slide(NamedTuple):
    """How a kernel is moved over an image."""

    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def output_size(self, pixels: int, kernel_size: int) -> int:
        """The size of the output along an axis; below 1 the kernel does not fit."""
        reach = self.dilation * (kernel_size - 1) + 1
        return (pixels + 2 * self.padding - reach) // self.stride + 1  # (1)

    def view(
        self, padded: Float[Tensor, "batch channels _ _"], u: tuple[int, int], size: Sequence[int]
    ) -> Float[Tensor, "batch channels down across"]:
        """The pixels below weight u of the kernel at all places: a view, through which one adds."""
        rows, columns = (
            slice(self.dilation * at, self.dilation * at + self.stride * (n - 1) + 1, self.stride)
            for at, n in zip(u, size, strict=True)
        )
        return padded[:, :, rows, columns]


ONCE = Slide()


def conv_forward(
    x: Float[Tensor, "batch channels height width"],
    weight: Float[Tensor, "filters depth rows columns"],
    bias: Float[Tensor, " filters"],
    slide: Slide = ONCE,
    groups: int = 1,
) -> Float[Tensor, "batch filters down across"]:
    """One map for each filter, which looks at all channels of its group."""
    size = _places(x, weight, slide, groups)
    padded = pad(x, (slide.padding,) * 4)
    y = bias[:, None, None].expand(len(x), -1, *size).clone()
    for u in _offsets(weight):
        for maps, channels in _groups(y, padded, groups):
            w = weight[maps][:, :, *u]
            pixels = slide.view(padded[:, channels], u, size)
            y[:, maps] += torch.einsum("oc,bcmn->bomn", w, pixels)  # (2)
    return y


def conv_backward(
    x: Float[Tensor, "batch channels height width"],
    weight: Float[Tensor, "filters depth rows columns"],
    dy: Float[Tensor, "batch filters down across"],
    slide: Slide = ONCE,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias from that of the output, dL/dy."""
    size = _places(x, weight, slide, groups)
    padded = pad(x, (slide.padding,) * 4)
    dx, dw = torch.zeros_like(padded), torch.zeros_like(weight)
    for u in _offsets(weight):
        for maps, channels in _groups(dy, padded, groups):
            pixels = slide.view(padded[:, channels], u, size)
            dw[maps, :, *u] = torch.einsum("bomn,bcmn->oc", dy[:, maps], pixels)  # (3)
            share = torch.einsum("oc,bomn->bcmn", weight[maps][:, :, *u], dy[:, maps])
            slide.view(dx[:, channels], u, size).add_(share)  # (4)
    db = dy.sum((0, 2, 3))  # (5)
    inside = slice(slide.padding, -slide.padding or None)
    return dx[:, :, inside, inside], dw, db


def _offsets(weight: Tensor) -> Iterator[tuple[int, int]]:
    """The places u of a kernel."""
    rows, columns = weight.shape[2:]
    return product(range(rows), range(columns))


def _groups(y: Tensor, x: Tensor, groups: int) -> Iterator[tuple[slice, slice]]:
    """The maps of each group, and the channels that they look at."""
    maps, channels = y.shape[1] // groups, x.shape[1] // groups
    for k in range(groups):
        yield slice(k * maps, (k + 1) * maps), slice(k * channels, (k + 1) * channels)


def _places(x: Tensor, weight: Tensor, slide: Slide, groups: int) -> tuple[int, int]:
    """At how many places the kernel stands down and across; refuses what does not fit."""
    channels, (filters, depth, rows, columns) = x.shape[1], weight.shape
    if channels % groups or filters % groups:
        raise ValueError(
            f"groups ({groups}) must divide the channels ({channels}) and the filters ({filters}), "
            "because each has an equal share of both"
        )
    if depth * groups != channels:
        raise ValueError(
            f"weight ({depth} channels deep) must be {channels // groups} deep, because a filter "
            f"looks at every channel of its group: {channels} channels in {groups}"
        )
    down, across = slide.output_size(x.shape[2], rows), slide.output_size(x.shape[3], columns)
    if min(down, across) < 1:
        raise ValueError(
            f"kernel ({by((rows, columns))}, dilation {slide.dilation}) must fit into the image "
            f"({by(x.shape[2:])}, padding {slide.padding}); use a smaller one or more padding"
        )
    return down, across


def toeplitz(
    kernel: Float[Tensor, "rows columns"], height: int, width: int
) -> Float[Tensor, "places pixels"]:
    """The dense matrix that makes of an image, pixel by pixel, its valid correlation."""
    rows, columns = kernel.shape
    down, across = ONCE.output_size(height, rows), ONCE.output_size(width, columns)
    matrix = kernel.new_zeros(down, across, height, width)
    for m, n in product(range(down), range(across)):
        matrix[m, n, m : m + rows, n : n + columns] = kernel  # (6)
    return matrix.reshape(down * across, height * width)


def pointwise(
    x: Float[Tensor, "batch channels height width"], weight: Float[Tensor, "filters channels"]
) -> Float[Tensor, "batch filters height width"]:
    """A 1 x 1 convolution: the same linear map at every pixel."""
    y: Tensor = (weight @ x.flatten(2)).unflatten(2, x.shape[2:])  # (7)
    return y


# -------- the network ends here; training and pictures follow --------

KERNEL = ((-4.0, -3.0, -2.0), (-1.0, 1.0, 2.0), (3.0, 4.0, 5.0))
PATCH = 12  # height and width of the patch that a dense matrix is multiplied with
STEPS = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), (7.0, 8.0, 9.0))
SHOWN = ((3, Slide()), (3, Slide(1, 1)), (3, Slide(2, 1)), (3, Slide(1, 0, 3)), (7, Slide(4, 3)))
SLIDES = {
    "stride 1": Slide(), "stride 3": Slide(stride=3), "dilation 2": Slide(dilation=2),
    "stride 3, dilation 2": Slide(stride=3, dilation=2),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConvLayerByHand(Simulation):
    """Hold the layer, its gradients and its size beside torch's, and itself beside a matrix."""

    meanings: ClassVar[Mapping[str, str]] = {
        "value_error": "largest difference of the layer by hand from torch's: rounding",
        "gradient_error": "the same of its gradients",
        "toeplitz_error": "largest difference of the product with a matrix from the convolution",
        "pointwise_error": "largest difference of a 1 x 1 convolution from a product at each pixel",
        "size_misses": "output sizes that the formula gets wrong: none",
        "alexnet_size": "height and width of AlexNet's first feature maps by the formula: 55",
        "dense_parameters": "weights of the dense matrix that does the same",
        "parameter_ratio": "weights of that matrix divided by those of the kernel",
        "zeros": "the share of that matrix that is 0",
    }

    photo: str = "china"
    """What the kernel of the matrix is moved over: china, flower or an image file."""
    largest: int = 32
    """The output size is tried for images up to this size, F to 7, P to 3, S to 4 and D to 3."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(1, 256, "largest")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        image, kernel = photograph(self.photo, least=PATCH), tensor(*KERNEL)
        top, left = ((n - PATCH) // 2 for n in image.shape)
        patch = image[top : top + PATCH, left : left + PATCH]
        matrix = toeplitz(kernel, PATCH, PATCH)
        x, w, none = random(2, 6, 5, 4), random(3, 6), tensor(0.0, 0.0, 0.0)
        values, gradients = beside_torch(random)
        return {
            "matrix": matrix,
            "by_matrix": (matrix @ patch.flatten()).view(PATCH - 2, PATCH - 2),
            "by_kernel": correlate2d(patch, kernel, "valid"),
            "pointwise": torch.stack([pointwise(x, w), conv_forward(x, w[..., None, None], none)]),
            "value_errors": tensor(*values),
            "gradient_errors": tensor(*gradients),
            "misses": tensor(float(size_misses(self.largest))),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        matrix = result["matrix"]
        return {
            "value_error": float(result["value_errors"].max()),
            "gradient_error": float(result["gradient_errors"].max()),
            "toeplitz_error": farthest(result["by_matrix"], result["by_kernel"]),
            "pointwise_error": farthest(*result["pointwise"]),
            "size_misses": float(result["misses"]),
            "alexnet_size": float(Slide(stride=4).output_size(227, 11)),
            "dense_parameters": float(matrix.numel()),
            "parameter_ratio": matrix.numel() / tensor(*KERNEL).numel(),
            "zeros": float((matrix == 0).double().mean()),
        }

    def picture_toeplitz(self, result: Mapping[str, Tensor]) -> Figure:
        """The nine weights of a kernel, and the dense matrix that does the same to an image.

        Every row of the matrix holds the same nine weights, one place further each time, and 0,
        white, everywhere else.
        """
        return toeplitz_form(tensor(*KERNEL), result["matrix"], (PATCH, PATCH))

    def picture_backward(self, result: Mapping[str, Tensor]) -> Figure:
        """A gradient of 1 on two outputs, top, and the gradient of each pixel, bottom.

        A pixel gets the weights that saw it: they overlap, lie apart or leave holes, by stride and
        dilation.
        """
        return backward_maps(tensor(*STEPS), {name: spread(s) for name, s in SLIDES.items()})

    def picture_sizes(self, result: Mapping[str, Tensor]) -> Figure:
        """Output size by image size, for some kernels, strides, paddings and dilations.

        The slope is 1 / S: a stride of 2 halves the size, and padding moves the line up.
        """
        pixels = torch.arange(1, max(self.largest, 12) + 1)
        curves = {}
        for kernel_size, slide in SHOWN:
            sizes = torch.tensor([slide.output_size(int(n), kernel_size) for n in pixels])
            name = f"F = {kernel_size}, S = {slide.stride}, P = {slide.padding}"
            fits = sizes >= 1
            curves[f"{name}, D = {slide.dilation}"] = (pixels[fits], sizes[fits])
        panel = Panel(
            curves, xlabel="height or width of the image / pixels",
            ylabel="that of the output / pixels", title="places where a kernel of size F stands",
            legend="upper left",
        )  # fmt: skip
        return panels(panel, width=6.5, height=3.6)

    def tiny(self) -> Self:
        return replace(self, largest=4)


def spread(slide: Slide) -> tuple[Tensor, Tensor]:
    """Gradients of 1 on two neighbouring outputs of a small image, and what its pixels get."""
    pixels, kernel = 14, tensor(*STEPS)[None, None]
    size = slide.output_size(pixels, 3)
    dy, first = torch.zeros(1, 1, size, size, dtype=torch.float64), (size - 1) // 2
    dy[0, 0, first, first : first + 2] = 1
    dx, _, _ = conv_backward(dy.new_zeros(1, 1, pixels, pixels), kernel, dy, slide)
    return dy[0, 0], dx[0, 0]


def beside_torch(random: Callable[..., Tensor]) -> tuple[list[float], list[float]]:
    """How far values and gradients are from torch's, for many ways to slide."""
    values, gradients = [], []
    for stride, padding, dilation, groups in product((1, 2, 3), (0, 1, 2), (1, 2), (1, 2)):
        slide = Slide(stride, padding, dilation)
        x, w, b = random(2, 4, 9, 8), random(6, 4 // groups, 3, 2), random(6)
        given = [t.clone().requires_grad_() for t in (x, w, b)]
        with torch.enable_grad():
            y = conv2d(given[0], given[1], given[2], *slide, groups)
        dy = random(*y.shape)
        values.append(farthest(conv_forward(x, w, b, slide, groups), y.detach()))
        theirs = torch.autograd.grad(y, given, dy)
        ours = conv_backward(x, w, dy, slide, groups)
        gradients += [farthest(one, other) for one, other in zip(ours, theirs, strict=True)]
    return values, gradients


def size_misses(largest: int) -> int:
    """How often (1) is not the size that torch gives, or below 1 where the kernel fits."""
    misses = 0
    ways = product(range(1, 8), range(4), range(1, 5), range(1, 4))
    for kernel_size, padding, stride, dilation in ways:
        slide = Slide(stride, padding, dilation)
        weight = torch.empty(1, 1, kernel_size, 1, device="meta")
        for pixels in range(1, largest + 1):
            size = slide.output_size(pixels, kernel_size)
            if pixels + 2 * padding <= dilation * (kernel_size - 1):  # torch refuses such a kernel
                misses += size >= 1
                continue
            x = torch.empty(1, 1, pixels, 1, device="meta")
            y = conv2d(x, weight, None, (stride, 1), (padding, 0), (dilation, 1))
            misses += y.shape[2] != size
    return misses


RECIPES = {
    "conv-layer": ConvLayerByHand(
        goal="value_error <= 1e-12 and gradient_error <= 1e-12 and toeplitz_error <= 1e-12 "
        "and pointwise_error <= 1e-12 and size_misses == 0 and alexnet_size == 55 "
        "and parameter_ratio >= 1000",
        covers=("C3", "C4", "C5", "C10"),
    ),
}
