"""Filters made by hand, on a photo: a blur, edges, and a template that is looked for.

    y_mn     = 1/9 sum of x_{m+i, n+j} over i, j = -1, 0, 1    (1)  box blur
    e_mn     = x_{m, n+1} - x_mn                               (2)  edge: weights -1 and 1
    r(m)     = u_m . v                                         (3)  response of a template v
    cos(m)   = u_m . v / (|u_m| |v|)                           (4)  cosine: whatever the light
    c(m)     = (4) of u_m and v, each less its mean            (5)  correlation: whatever the haze

u_m is the patch of the image below the template at place m, all its pixels as one vector, and . is
the scalar product. (3) is
what a unit of a convolutional layer computes. It is largest where the patch is bright, not where it
is like the template: |u_m| takes part. The cosine of the angle between the two is at most 1 and is
1 only where u_m = a v with a > 0, so that a darker photo changes nothing; (5) is 1 where
u_m = a v + b, so that haze does not either. A patch of one level has no direction: (4) of black
and (5) of any even patch are taken to be 0. Beyond the border (1) repeats the last pixels.
(3) is computed as a product of spectra, which is the same sum in fewer steps.

Lewis (1995), "Fast Template Matching", Vision Interface 95, for (5); Gonzalez, Woods (2018),
"Digital Image Processing", 4th edition, sections 3.5 and 3.6, for (1) and (2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.fft import irfft2, rfft2
from torch.nn.functional import pad

from everynet.recipes.recipe import Simulation
from everynet.zoo.vision.convolution import correlate2d
from everynet.zoo.vision.photo import photograph
from everynet.zoo.vision.pictures.filtering import filtered_images, found_shares, template_matches

EVEN = 1e-9  # a sum of squares below this is rounding, for values from 0 to 1


def blur(image: Float[Tensor, "height width"]) -> Float[Tensor, "height width"]:
    """The mean of each pixel and its eight neighbours."""
    wider = pad(image[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    box = torch.full((3, 3), 1 / 9, dtype=image.dtype)
    return correlate2d(wider, box, "valid")  # (1)


def edges(
    image: Float[Tensor, "height width"],
) -> tuple[Float[Tensor, "height less"], Float[Tensor, "fewer width"]]:
    """How much brighter the next pixel is: across, and down."""
    step = torch.tensor([[-1.0, 1.0]], dtype=image.dtype)
    return correlate2d(image, step, "valid"), correlate2d(image, step.T, "valid")  # (2)


def response(
    image: Float[Tensor, "height width"], templates: Float[Tensor, "templates rows columns"]
) -> Float[Tensor, "templates down across"]:
    """The product of each template with the patch below it, at every place."""
    down, across = (n - k + 1 for n, k in zip(image.shape, templates.shape[1:], strict=True))
    spectra = rfft2(templates, s=image.shape).conj() * rfft2(image)
    r: Tensor = irfft2(spectra, s=image.shape)[:, :down, :across]  # (3)
    return r


def cosine(
    image: Float[Tensor, "height width"], templates: Float[Tensor, "templates rows columns"]
) -> Float[Tensor, "templates down across"]:
    """The cosine of the angle between each template and the patch below it, at every place."""
    square = response(image**2, torch.ones_like(templates[:1]))
    lengths = templates.flatten(1).norm(dim=1)[:, None, None]
    return _over(response(image, templates), square, lengths)  # (4)


def centred_cosine(
    image: Float[Tensor, "height width"], templates: Float[Tensor, "templates rows columns"]
) -> Float[Tensor, "templates down across"]:
    """The correlation coefficient of each template and the patch below it, at every place."""
    ones = torch.ones_like(templates[:1])
    spread = response(image**2, ones) - response(image, ones) ** 2 / ones.numel()
    less = templates - templates.mean((1, 2), keepdim=True)  # a mean of the patch falls out
    lengths = less.flatten(1).norm(dim=1)[:, None, None]
    return _over(response(image, less), spread, lengths)  # (5)


def _over(product: Tensor, square: Tensor, lengths: Tensor) -> Tensor:
    """A product of vectors over their lengths; 0 where the patch has none."""
    if float(lengths.min()) ** 2 <= EVEN:
        raise ValueError(
            "templates must each have pixels that differ (or, for the plain cosine, are not "
            "black), because a template without a direction is like nothing; choose another part"
        )
    return product / square.clamp(min=EVEN).sqrt() / lengths * (square > EVEN)


def best(maps: Float[Tensor, "templates down across"]) -> Int[Tensor, "templates 2"]:
    """Row and column of the largest value of each map."""
    place = maps.flatten(1).argmax(1)
    return torch.stack([place // maps.shape[2], place % maps.shape[2]], 1)


METHODS = {"response": response, "cosine": cosine, "centred cosine": centred_cosine}
LIGHTS = {"as it is": (1.0, 0.0), "half the light": (0.5, 0.0), "in haze": (0.5, 0.3)}
"""What becomes of a pixel x of the photo in which templates are looked for: a x + b."""
CROP = (90, 140)  # pixels of the photo that blur and edges are shown on


@dataclass(frozen=True, kw_only=True)
class PhotoFilters(Simulation):
    """Blur a photo, find its edges, and find parts of it again under another light."""

    meanings: ClassVar[Mapping[str, str]] = {
        "found_plain": "the share of templates that the plain response finds, in the best light",
        "found_cosine": "the same by the cosine, in the worse of two lights",
        "found_cosine_haze": "the same by the cosine in haze",
        "found_centred": "the same by the cosine of centred patches, in the worst light",
        "edge_on_even": "largest response of the edge filter to an even image: 0",
        "blur_on_even": "largest change of an even image by blurring: 0",
        "noise_left": "the share of the deviation of noise that a box blur leaves: a third",
        "noise_error": "relative error of that share",
    }

    photo: str = "china"
    """What is filtered: china, flower or an image file."""
    templates: int = 20
    """Parts of the photo that are looked for in it, cut at random places."""
    side: int = 24
    """Their height and width in pixels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "templates")
        self.require(self.side >= 2, "side", "at least 2, because one pixel is like any other")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        image = photograph(self.photo, least=max(*CROP, self.side + 1))
        limits = [pixels - self.side + 1 for pixels in image.shape]
        drawn = [torch.randint(n, (self.templates,), generator=generator) for n in limits]
        places = torch.stack(drawn, 1)
        parts = torch.stack([cut(image, place, self.side) for place in places])
        chosen = int(parts.flatten(1).std(1).argmax())
        photos = [a * image + b for a, b in LIGHTS.values()]
        found = [torch.stack([best(f(x, parts)) for f in METHODS.values()]) for x in photos]
        haze = image * LIGHTS["in haze"][0] + LIGHTS["in haze"][1]
        noise = torch.randn(image.shape, generator=generator, dtype=image.dtype)
        even = torch.full_like(image, 0.7)
        return {
            "photo": image,
            "haze": haze,
            "places": places,
            "found": torch.stack(found),  # lights methods templates 2
            "chosen": torch.tensor(chosen),
            "maps": torch.stack([f(haze, parts[chosen][None])[0] for f in METHODS.values()]),
            "noise_left": blur(noise).std() / noise.std(),
            "even_edges": torch.stack([part.abs().max() for part in edges(even)]),
            "even_blur": (blur(even) - even).abs().max(),
        }

    def right(self, result: Mapping[str, Tensor]) -> Bool[Tensor, "lights methods templates"]:
        """Which templates were found at the very pixel where they were cut."""
        return (result["found"] == result["places"]).all(3)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        plain, angle, centred = self.right(result).double().mean(2).T  # a value for each light
        return {
            "found_plain": float(plain.max()),
            "found_cosine": float(angle[:2].min()),  # haze is more than a change of light
            "found_cosine_haze": float(angle[2]),
            "found_centred": float(centred.min()),
            "edge_on_even": float(result["even_edges"].max()),
            "blur_on_even": float(result["even_blur"]),
            "noise_left": float(result["noise_left"]),
            "noise_error": abs(3 * float(result["noise_left"]) - 1),
        }

    def picture_found(self, result: Mapping[str, Tensor]) -> Figure:
        """A template, green, looked for in a photo in haze, and its response and cosines.

        Orange crosses are the largest values: the plain response is drawn to bright places, the
        cosines to where the template was cut.
        """
        place = result["places"][int(result["chosen"])]
        return template_matches(
            result["haze"], cut(result["photo"], place, self.side), place,
            dict(zip(METHODS, result["maps"], strict=True)), best(result["maps"]),
        )  # fmt: skip

    def picture_filters(self, result: Mapping[str, Tensor]) -> Figure:
        """A part of the photo, blurred once and ten times, and its edges.

        Red means that the next pixel to the right or below is brighter, and blue that it is
        darker.
        """
        image = result["photo"]
        top, left = ((n - size) // 2 for n, size in zip(image.shape, CROP, strict=True))
        crop = image[top : top + CROP[0], left : left + CROP[1]]
        ten = crop
        for _ in range(10):
            ten = blur(ten)
        across, down = edges(crop)
        strength = (across[:-1] ** 2 + down[:, :-1] ** 2).sqrt()
        return filtered_images(
            {"photo": crop, "blurred": blur(crop), "blurred ten times": ten},
            {"edges across": across, "edges down": down},
            {"strength of edges": strength},
        )

    def picture_shares(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """How many templates are found where they were cut, for each light and each method.

        In haze the plain response finds {response} of {of}, the cosine {cosine} and the centred
        cosine {centred}.
        """
        counts = self.right(result).sum(2)
        response, cosine, centred = counts[-1].tolist()
        values = {"response": response, "cosine": cosine, "centred": centred, "of": self.templates}
        return found_shares([*LIGHTS], [*METHODS], counts, self.templates), values

    def tiny(self) -> Self:
        return replace(self, templates=2, side=8)


def cut(
    image: Float[Tensor, "height width"], place: Int[Tensor, 2], side: int
) -> Float[Tensor, "{side} {side}"]:
    """The part of an image whose first pixel is at a place."""
    top, left = (int(k) for k in place)
    return image[top : top + side, left : left + side]


RECIPES = {
    "filters": PhotoFilters(
        goal="found_centred == 1 and found_cosine == 1 and found_plain <= 0.1 "
        "and edge_on_even == 0 and blur_on_even <= 1e-12 and noise_error <= 0.02",
        covers=("C11",),
    ),
}
