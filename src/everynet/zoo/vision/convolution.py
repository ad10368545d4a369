"""Convolution and cross-correlation as sums, in one and two dimensions.

    (f * g)_m     = sum_n f_n g_{m-n}               (1)  convolution
    P(a + b = c)  = sum_a f(a) g(c - a)             (2)  (1) of the probabilities of a and of b
    P(a - b = c)  = sum_b f(c + b) g(b)             (3)  (1) with g run backwards, g(-b)
    (f * g)_mn    = sum_ij f_ij g_{m-i, n-j}        (4)  convolution in the plane
    (f x g)_mn    = sum_ij f_ij g_{m+i, n+j}        (5)  cross-correlation

A ball that is dropped lands at a with probability f(a); dropped again from there it goes b further
with probability g(b), and (2) sums over all ways to come to c. (4) is (5) with the kernel turned by
half a turn. Only convolution gives the same with f and g exchanged; correlation then gives the
result turned. Networks compute (5) and call it convolution: a kernel that is learned may as well be
learned turned.

Gonzalez, Woods (2018), "Digital Image Processing", 4th edition, section 3.4; Goodfellow, Bengio,
Courville (2016), "Deep Learning", section 9.1; Grinstead, Snell (1997), "Introduction to
Probability", chapter 7, for sums of dice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from everynet.data.dataset import Spec
from everynet.plot.film import Film
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.system.errors import UserError
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.convolution import kernel_flips, sliding_kernel, window_frames


def convolve(
    f: Float[Tensor, " left"], g: Float[Tensor, " right"], mode: str = "full"
) -> Float[Tensor, " places"]:
    """Every place where the two meet ("full"), the middle ("same") or where one fills the other."""
    full = f.new_zeros(len(f) + len(g) - 1)
    for n, value in enumerate(f):
        full[n : n + len(g)] += value * g  # (1)
    long, short = max(len(f), len(g)), min(len(f), len(g))
    return _middle(full, (long,), (short,), mode)


def add_distributions(
    f: Float[Tensor, " left"], g: Float[Tensor, " right"]
) -> Float[Tensor, " totals"]:
    """The probabilities of a + b, from 0 up, of those of a and b, from 0 up."""
    return convolve(f, g)  # (2)


def subtract_distributions(
    f: Float[Tensor, " left"], g: Float[Tensor, " right"]
) -> Float[Tensor, " differences"]:
    """The probabilities of a - b, from -(len(g) - 1) up, of those of a and b, from 0 up."""
    return convolve(f, g.flip(0))  # (3)


def convolve2d(
    image: Float[Tensor, "height width"], kernel: Float[Tensor, "rows columns"], mode: str = "full"
) -> Float[Tensor, "down across"]:
    """Every pixel of the image spread out as the kernel says."""
    (height, width), (rows, columns) = image.shape, kernel.shape
    full = image.new_zeros(height + rows - 1, width + columns - 1)
    for i, j in product(range(rows), range(columns)):
        full[i : i + height, j : j + width] += kernel[i, j] * image  # (4)
    return _middle(full, image.shape, kernel.shape, mode)


def correlate2d(
    image: Float[Tensor, "height width"], kernel: Float[Tensor, "rows columns"], mode: str = "full"
) -> Float[Tensor, "down across"]:
    """How alike the kernel and the image below it are, at every place."""
    (height, width), (rows, columns) = image.shape, kernel.shape
    full = image.new_zeros(height + rows - 1, width + columns - 1)
    for i, j in product(range(rows), range(columns)):
        top, left = rows - 1 - i, columns - 1 - j  # the first place is -(rows - 1)
        full[top : top + height, left : left + width] += kernel[i, j] * image  # (5)
    return _middle(full, image.shape, kernel.shape, mode, shift=1)


def _middle(
    full: Tensor, image: Sequence[int], kernel: Sequence[int], mode: str, shift: int = 0
) -> Tensor:
    """The places of a full result that a mode keeps; "same" has as many as the image.

    Of an even kernel the middle is the left of two; `shift` is 1 where it was not turned.
    """
    if mode == "full":
        return full
    if mode == "same":
        first = [(k - 1 + shift) // 2 for k in kernel]
        cut = [slice(start, start + n) for start, n in zip(first, image, strict=True)]
    elif mode == "valid":
        if any(k > n for n, k in zip(image, kernel, strict=True)):
            raise ValueError(
                f"kernel ({by(kernel)}) must fit into the image ({by(image)}), because valid keeps "
                "places where it does; use a smaller one, or same or full"
            )
        cut = [slice(k - 1, n) for n, k in zip(image, kernel, strict=True)]
    else:
        raise ValueError(f"mode ({mode}) must be full, same or valid")
    return full[tuple(cut)]


def by(sizes: Sequence[int]) -> str:
    """Sizes as one writes them: 3 x 5."""
    return " x ".join(map(str, sizes))


SIGNAL = (0.0, 1.0, 3.0, 2.0, 0.0, 0.0, 2.0, 1.0)
KERNEL = (3.0, 2.0, 1.0)  # not the same backwards, so that the flip is seen
LETTER = (
    (1.0, 1.0, 1.0, 1.0),
    (1.0, 0.0, 0.0, 0.0),
    (1.0, 1.0, 1.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
)
RELIEF = ((-2.0, -1.0, 0.0), (-1.0, 0.0, 1.0), (0.0, 1.0, 2.0))  # light from one corner
CROP = (120, 200)  # pixels of the photo that are shown, down and across
LEVELS = 9  # of grey above black in a film, whose numbers are then short
SIDES = (4, 16)  # pixels of an image that is filmed, at least and at most
RATE, HOLD = 6.0, 12  # frames of a film in a second, frames of its end


def tensor(*values: object) -> Tensor:
    """Values in float64."""
    return torch.tensor(values, dtype=torch.float64)


def bell(sigma: float, reach: int) -> Float[Tensor, " places"]:
    """The probabilities of a Gaussian at the whole numbers from -reach to reach."""
    x = torch.arange(-reach, reach + 1, dtype=torch.float64)
    p = (-(x**2) / (2 * sigma**2)).exp()
    return p / p.sum()


def farthest(ours: Float[Tensor, "*shape"], theirs: Float[Tensor, "*shape"]) -> float:
    """The largest difference of two tensors."""
    return float((ours - theirs).abs().max())


def few_pixels(image: Float[Tensor, "height width"], side: int) -> Float[Tensor, "side side"]:
    """The square in the middle of an image in so few pixels, as whole numbers of grey."""
    cut = min(image.shape)
    top, left = ((n - cut) // 2 for n in image.shape)
    square = image[top : top + cut, left : left + cut]
    return (LEVELS * adaptive_avg_pool2d(square[None], side)[0]).round()


@dataclass(frozen=True, kw_only=True)
class ConvolutionSums(Simulation):
    """Hold the sums beside each other and beside what dice and Gaussians must give."""

    writes: ClassVar[str] = "film"
    meanings: ClassVar[Mapping[str, str]] = {
        "flip_error": "largest difference of a convolution from correlation with the turned kernel",
        "commute_error": "largest change of a convolution where image and kernel are exchanged",
        "correlation_gap": "largest change of a correlation then, divided by its largest value",
        "turn_error": "largest difference of that exchanged correlation from a half turn",
        "dice_error": "error of the probabilities of two dice, the largest, times 36",
        "gaussian_error": "largest difference of the sum of two Gaussians from one Gaussian",
        "variance_error": "error of the variance of the sum as a part of it",
    }

    photo: str = "china"
    """What a kernel is moved over: china, flower or an image file."""
    spreads: tuple[float, float] = (3.0, 4.0)
    """Standard deviations of the two Gaussians whose sum is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= min(self.spreads) <= max(self.spreads) <= 100, "spreads", "from 1 to 100")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = photograph(self.photo, least=max(CROP))
        top, left = ((n - cut) // 2 for n, cut in zip(image.shape, CROP, strict=True))
        crop = image[top : top + CROP[0], left : left + CROP[1]]
        points = torch.zeros(15, 25, dtype=torch.float64)
        points[[3, 4, 10], [3, 17, 10]] = 1
        letter, relief = tensor(*LETTER), tensor(*RELIEF)
        a, b = (
            torch.randn(*shape, generator=generator, dtype=torch.float64)
            for shape in ((9, 7), (3, 4))
        )
        die = torch.full((6,), 1 / 6, dtype=torch.float64)
        reach = round(8 * max(self.spreads))
        return {
            "points": points,
            "stamped": torch.stack([f(points, letter, "same") for f in (convolve2d, correlate2d)]),
            "crop": crop,
            "relief": torch.stack([f(crop, relief, "same") for f in (convolve2d, correlate2d)]),
            "convolved": torch.stack([convolve2d(a, b), convolve2d(b, a)]),
            "correlated": torch.stack(
                [correlate2d(a, b), correlate2d(a, b.flip(0, 1)), correlate2d(b, a)]
            ),
            "two": add_distributions(die, die),
            "three": add_distributions(add_distributions(die, die), die),
            "difference": subtract_distributions(die, die),
            "bells": torch.stack([bell(s, reach) for s in self.spreads]),
        }

    def dropped_twice(self, result: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The places of the sum of two Gaussians, its probabilities, and those of one Gaussian."""
        probabilities = add_distributions(*result["bells"])
        reach = len(probabilities) // 2
        expected = bell(sum(s**2 for s in self.spreads) ** 0.5, reach)
        return torch.arange(-reach, reach + 1, dtype=torch.float64), probabilities, expected

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        plain, turned, exchanged = result["correlated"]
        one, other = result["convolved"]
        ways = 6 - (torch.arange(11, dtype=torch.float64) - 5).abs()  # of 36, to throw 2 .. 12
        places, probabilities, expected = self.dropped_twice(result)
        variance = float((places**2 * probabilities).sum()) / sum(s**2 for s in self.spreads)
        size = float(plain.abs().max())
        return {
            "flip_error": farthest(one, turned),
            "commute_error": farthest(one, other),
            "correlation_gap": farthest(plain, exchanged) / size,
            "turn_error": farthest(plain, exchanged.flip(0, 1)),
            "dice_error": max(farthest(36 * result[name], ways) for name in ("two", "difference")),
            "gaussian_error": farthest(probabilities, expected),
            "variance_error": abs(variance - 1),
        }

    def picture_slide(self, result: Mapping[str, Tensor]) -> Figure:
        """A kernel turned round and moved along a signal, column by column.

        It is multiplied with the bars it meets, orange on blue, and each sum of products is one
        bar of the result below.
        """
        signal, kernel = tensor(*SIGNAL), tensor(*KERNEL)
        return sliding_kernel(signal, kernel, convolve(signal, kernel))

    def picture_flip(self, result: Mapping[str, Tensor]) -> Figure:
        """Convolution and cross-correlation of points with a letter, and of a photo with a kernel.

        Convolution stamps the letter as it is and correlation turned by half a turn; on the photo
        light falls from opposite corners.
        """
        return kernel_flips(
            (result["points"], tensor(*LETTER), result["stamped"]),
            (result["crop"], tensor(*RELIEF), result["relief"]),
        )

    def picture_dice(self, result: Mapping[str, Tensor]) -> Figure:
        """Probabilities of one die, of sums and a difference, left, and of a ball dropped twice.

        The sum of two Gaussians, green, is the Gaussian of their joint variance, dashed.
        """
        dice = Panel(
            {
                "one die": (torch.arange(1, 7), torch.full((6,), 1 / 6)),
                "two": (torch.arange(2, 13), result["two"]),
                "three": (torch.arange(3, 19), result["three"]),
                "one less another": (torch.arange(-5, 6), result["difference"]),
            },
            xlabel="points", ylabel="probability", title="sums and differences of dice",
            ylim=(0, 0.29), legend="upper right",
        )  # fmt: skip
        places, probabilities, expected = self.dropped_twice(result)
        spread = sum(s**2 for s in self.spreads) ** 0.5
        far, once = 3.5 * spread, torch.arange(result["bells"].shape[1]) - len(places) // 4
        near, also = once.abs() <= far, places.abs() <= far
        pairs = zip("fg", self.spreads, result["bells"], strict=True)
        curves = {f"{name}, spread {s:g}": (once[near], p[near]) for name, s, p in pairs}
        balls = Panel(
            {**curves, "f * g": (places[also], probabilities[also])},
            guides={f"Gaussian of {spread:.3g}": (places[also], expected[also])},
            xlabel="where the ball lands", ylabel="probability", title="a ball dropped twice",
            ylim=(0, 1.9 * float(result["bells"].max())), legend="upper right",
        )  # fmt: skip
        return panels(dice, balls, width=3.25, height=3.3)

    def sample(
        self,
        found: Mapping[str, Tensor],
        spec: Spec,
        generator: torch.Generator,
        *,
        photo: str = "flower",
        side: int = 10,
    ) -> Film:
        """A kernel on its way over a photo of `side` x `side` pixels: products, and their sum."""
        if not SIDES[0] <= side <= SIDES[1]:
            raise UserError(f"side ({side}) must be from {SIDES[0]} to {SIDES[1]} pixels")
        image, kernel = few_pixels(photograph(photo, least=side), side), tensor(*RELIEF)
        result = convolve2d(image, kernel, "valid")
        return Film(window_frames(image, kernel, result), RATE, hold=HOLD)


RECIPES = {
    "convolution": ConvolutionSums(
        goal="flip_error <= 1e-12 and commute_error <= 1e-12 and correlation_gap >= 0.1 "
        "and dice_error <= 1e-12 and gaussian_error <= 1e-12 and variance_error <= 1e-10",
        covers=("C1", "C2"),
    ),
}
