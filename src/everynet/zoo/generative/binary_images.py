"""Grey images as probabilities of white pixels: what networks for binary images share.

    x_i = 1 with probability g_i, else 0            (1)  a pixel, drawn from its grey value

where g_i, from 0 to 1, is the grey value of pixel i. In training every pixel is drawn anew at each
update, so that no image is seen twice alike. The validation and the test set are drawn once, from
a seed that no setting changes, so that an evaluation gives the same number every time and every
run is compared on the same images. (1) leaves an image that is binary already as it is.

Salakhutdinov and Murray (2008), "On the quantitative analysis of deep belief networks",
doi:10.1145/1390156.1390266, section 4. Published log-likelihoods of MNIST are partly of one fixed
draw of the training set, too, with which a network overfits sooner; ours are of a draw of our own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data
from everynet.data.images.standardize import restandardize
from everynet.recipes.recipe import later
from everynet.recipes.state import M, X
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator

SEED = 2008
"""Of the pixels of the validation and the test set."""


def draw(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Binary pixels of these grey values, by torch's default generator."""
    return (torch.rand_like(x) < x).to(x.dtype)  # (1)


def binarize(x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The most likely binary pixels of these grey values: those above one half are white."""
    return (x > 0.5).to(x.dtype)


def check_pixels(x: Float[Tensor, "*axes"], name: str) -> Float[Tensor, "*axes"]:
    """The grey values to six decimals, so that black is 0; any outside of 0 to 1 are refused."""
    low, high = (float(end) for end in x.aminmax())
    if low < -1e-4 or high > 1 + 1e-4:
        raise UserError(
            f"{name} ({low:g} to {high:g}) must hold pixels from 0 to 1, because they are "
            "probabilities; divide them by the value of white"
        )
    return x.clamp(0, 1).round(decimals=6)


def unit_images(data: Data) -> Data:
    """Images whose pixels are from 0, black, to 1, white, and not standardised.

    Their classes are kept for pictures; what is learned is a density, or codes, of images alone.
    """
    channels = data.spec["shape"][0]
    data = restandardize(data, [0.0] * channels, [1.0] * channels)
    data = replace(data, spec={**data.spec, "task": "density"})
    if data.prepare is not None:  # whole numbers, which are made into such pixels batch by batch
        return data
    name = data.spec["name"]
    splits = {part: (check_pixels(x, name), *rest) for part, (x, *rest) in data.splits.items()}
    return replace(data, splits=splits)


def draw_held_out(data: Data) -> Data:
    """The same images with those of the validation and the test set drawn once, by (1)."""
    peak = data.spec["peak"] if data.prepare is not None else 1.0
    splits = dict(data.splits)
    for number, part in enumerate(("valid", "test")):
        x, *rest = splits[part]
        u = torch.rand(x.shape, generator=generator(SEED, number))
        splits[part] = ((u * peak < x).to(x.dtype) * int(peak), *rest)
    return replace(data, splits=splits)


@dataclass(frozen=True, kw_only=True)
class BinaryImages(Training[M, X]):
    """A network that learns the distribution of binary images."""

    data: str = "digits"
    """A known set of grey images, or a folder with one subfolder of images for each class."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size")

    def dataset(self) -> Data:
        """Grey images and their classes; `draw` makes them binary, those held out are already."""
        data = load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed, size=self.size,
            strict=self.strict,
        )  # fmt: skip
        channels = data.spec["shape"][0]
        if channels != 1:
            raise UserError(
                f"data ({self.data}) must be grey images, because each pixel is drawn as black or "
                f"white, and these have {channels} channels; save them in grey"
            )
        return draw_held_out(unit_images(data))

    def drawn(self, batch: Batch) -> Float[Tensor, "batch pixels"]:
        """Binary images of a batch, as rows."""
        return draw(batch[0].flatten(1))
