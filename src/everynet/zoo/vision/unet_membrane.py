"""U-Net on nerve cells: thirty images are enough, because each is bent anew every time it is seen.

    x(i) = image(c + R i / s + d(i))                      (1)  a window, turned, stretched and bent
    I_k = sum p_k t_k,  A_k = sum (p_k + t_k - p_k t_k)   (2)  soft intersection and union
    L = -mean log p_t + 1 - mean_k I_k / A_k              (3)  loss, sums over all pixels of a batch
    IoU_k = n_kk / (sum_j n_jk + sum_j n_kj - n_kk)       (4)  n_jk: pixels of j predicted as k
    c = argmax_c w_0 w_1 (m_0 - m_1)^2                    (5)  Otsu's threshold: the baseline

p are the probabilities of a pixel's classes and t is 1 for the true one. In (1) d is normal noise
on 3 x 3 places, bicubic between them: tissue bends too, so that the classes of a bent image are
still true; where a window reaches over the border, the image goes on in a mirror. Membranes have a
fifth of all pixels. The first part of (3) alone is content with cells; the second counts both
classes alike, however many pixels they have. In (5) w and m are the shares and means of the pixels
below and above c: a membrane is dark, but so is much else, and what tells it is its course. The
metric is the mean of (4) over both classes.

Ronneberger, Fischer, Brox (2015), "U-Net: Convolutional Networks for Biomedical Image
Segmentation", arXiv:1505.04597, section 3; Otsu (1979), "A threshold selection method from
gray-level histograms", doi:10.1109/TSMC.1979.4310076. Unlike the paper, (3) balances the classes in
the place of a weight for each pixel, and the network keeps the size of its images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.draws import Draw
from everynet.data.images.augment import Augment, compose
from everynet.data.images.deform import bend, symmetries
from everynet.data.images.standardize import Standardize
from everynet.metrics.segmentation import iou, pixel_confusion
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.vision.pictures.segmentation import bent_windows, membranes
from everynet.zoo.vision.unet import Segmentation, UNet

LEVELS = 256
BASELINES = ("otsu", "light")


def soft_iou(
    logits: Float[Tensor, "batch classes height width"], t: Int[Tensor, "batch height width"]
) -> Float[Tensor, " classes"]:
    """Intersection over union of each class, from probabilities instead of predictions."""
    p = logits.softmax(1)
    true = one_hot(t, logits.shape[1]).movedim(-1, 1).to(p)
    intersection, union = p * true, p + true - p * true  # (2)
    return intersection.sum((0, 2, 3)) / union.sum((0, 2, 3))


def otsu(x: Float[Tensor, "batch height width"]) -> Float[Tensor, " batch"]:
    """Otsu's threshold of each image: the grey above which a pixel is light."""
    flat = x.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    step = ((high - low) / LEVELS).clamp(min=torch.finfo(x.dtype).tiny)
    level = ((flat - low) / step).clamp(0, LEVELS - 1).long()
    found = level.new_zeros(len(x), LEVELS).scatter_add_(1, level, torch.ones_like(level))
    counts, grey = found.cpu().double(), torch.arange(LEVELS) + 0.5
    below, dark = counts.cumsum(1), (counts * grey).cumsum(1)
    above, light = below[:, -1:] - below, dark[:, -1:] - dark
    apart = dark / below.clamp(min=1) - light / above.clamp(min=1)
    best = (below * above * apart.square())[:, :-1].argmax(1, keepdim=True)  # (5)
    return (low + (best.to(x.device) + 1) * step)[:, 0]


def by_threshold(
    x: Float[Tensor, "batch channels height width"],
) -> Int[Tensor, "batch height width"]:
    """1 where a pixel is lighter than Otsu's threshold of its image."""
    grey = x.mean(1)
    return (grey > otsu(grey)[:, None, None]).long()


@dataclass(frozen=True, kw_only=True)
class Membranes(Segmentation):
    """Tell membranes from cells, from a few large images that are bent at random."""

    meanings: ClassVar[Mapping[str, str]] = {
        "mean_iou": "intersection over union, the mean over classes",
        "least_iou": "the same of the worst class",
        "accuracy": "the share of pixels whose predicted class is right",
        "cross_entropy": "cross-entropy of a pixel's class in nats, the mean",
        "mean_iou_*": "mean IoU of a baseline: a threshold on brightness, or all pixels light",
    }

    data: str = "membrane"
    """A known set, or a folder with images and masks in it."""
    width: int = 32
    """Feature maps of the uppermost level; each level below has twice as many."""
    depth: int = 4
    """Levels below the uppermost; each halves the image."""
    window: int = 256
    """Height and width of the windows that are trained on, in pixels."""
    degrees: float = 180.0
    """Windows are turned by up to so many degrees."""
    stretch: float = 0.15
    """Windows are enlarged or shrunk by up to this fraction."""
    pixels: float = 8.0
    """Windows are bent by about so many pixels."""
    chance: float = 0.7
    """The share of windows that are turned, stretched and bent; others are cut out as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = 2**self.depth
        whole = self.window >= parts and self.window % parts == 0
        self.require(whole, "window", f"divisible by {parts}, because depth halves it so often")
        self.require(0 <= self.stretch < 1, "stretch", "at least 0 and below 1")
        self.within(0, 1, "chance")

    def augment(self) -> Augment:
        """A window of each image, bent, in one of the eight ways to lay a square on itself."""
        window = bend(self.window, self.degrees, self.stretch, self.pixels, self.chance)  # (1)
        return compose(window, symmetries())

    def dataset(self) -> Data:
        data = super().dataset()
        shorter = min(data.spec["shape"][1:])
        if self.window > shorter:
            raise UserError(
                f"window ({self.window}) must be at most {shorter}, because the images of "
                f"{self.data} have no more; do window={max(1, shorter >> self.depth) << self.depth}"
            )
        return data

    def objective(self, model: UNet, batch: Batch) -> Terms:
        x, t = batch
        y = model(x)
        return {"cross_entropy": cross_entropy(y, t), "overlap": 1 - soft_iou(y, t).mean()}  # (3)

    def metrics(self, model: UNet, batch: Batch) -> dict[str, Tensor]:
        """Also the confusion of two baselines: Otsu's threshold, and all pixels light."""
        x, t = batch
        found, classes = super().metrics(model, batch), model.output.out_channels
        if classes == 2:
            predictions = (by_threshold(x), torch.ones_like(t))
            for name, predicted in zip(BASELINES, predictions, strict=True):
                found[name] = pixel_confusion(predicted, t, classes).flatten(1)
        return found

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """IoU from the pixels of all images together: the mean over classes, and the least."""
        images = len(outputs["cross_entropy"])
        classes = math.isqrt(len(outputs["confusion"].flatten()) // images)

        def by_class(name: str) -> Float[Tensor, " classes"]:
            return iou(outputs[name].reshape(images, classes, classes).sum(0))  # (4)

        found, pooled = by_class("confusion"), super().summarise(outputs)
        return {
            "mean_iou": found.mean().item(),
            "least_iou": found.min().item(),
            **{name: pooled[name] for name in ("accuracy", "cross_entropy")},
            **{f"mean_iou_{n}": by_class(n).mean().item() for n in BASELINES if n in outputs},
        }

    def picture_membranes(self, model: UNet, data: Data, history: History) -> Figure | None:
        """Validation images, the truth, and what a threshold and the network say.

        A threshold takes everything dark for a membrane; the network looks for what runs on as a
        line.
        """
        if len(data.spec["classes"]) != 2:
            return None
        x, t = (part[:2] for part in next(iter(data.valid)))
        size = min(*x.shape[-2:], 224)
        cut = (slice(None), slice(size), slice(size))
        predicted = {"Otsu": by_threshold(x), "U-Net": model(x).argmax(1)}
        return membranes(
            Standardize.of(data.spec).to_data_units(x.cpu().float())[:, 0][cut],
            t.cpu()[cut],
            {name: masks.cpu()[cut] for name, masks in predicted.items()},
            data.spec["classes"],
        )

    def picture_bent(self, model: UNet, data: Data, history: History) -> Figure:
        """One training image with lines drawn on it, as it is and as training sees it.

        Windows are turned, stretched and bent together with their masks, so that a few images
        stand for many.
        """
        image, mask = (part.cpu() for part in data.some("train", torch.tensor([0])))
        lined = Standardize.of(data.spec).to_data_units(image.float()).mean(1, keepdim=True)
        every = max(4, self.window // 8)
        lined[..., ::every, :] = 1.0
        lined[..., ::every] = 1.0
        batch = (lined.expand(3, -1, -1, -1), mask.expand(3, -1, -1))
        bent = bend(self.window, self.degrees, self.stretch, self.pixels)
        moved, masks = bent(batch, Draw(generator(0), 3, parts=("image", "mask")))
        cut = (slice(None), slice(self.window), slice(self.window))
        return bent_windows(
            torch.cat([lined[:, 0][cut], moved[:, 0]]), torch.cat([mask[cut], masks])
        )

    def tiny(self) -> Self:
        return replace(super().tiny(), batch_size=2, window=32)


RECIPES = {
    "unet-membrane": Membranes(
        steps=2000, batch_size=8, lr=2e-3, schedule="one-cycle", eval_every=200,
        goal="mean_iou >= 0.75",
        covers=("C25",),
    ),
}  # fmt: skip
