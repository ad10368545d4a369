"""Single-object localisation: what is in the image and where, from one set of feature maps.

    F = backbone(x)                                      (1)  feature maps; p is a pixel of them
    a(p) = exp(u . F(p)) / sum_q exp(u . F(q))           (2)  attention
    v = sum_p a(p) F(p)                                  (3)  attended features
    y = W v + c                                          (4)  logits, one for each class
    b(p) = [p, p] + [-1, -1, 1, 1] softplus(B F(p) + d)  (5)  box that pixel p proposes
    b = sum_p a(p) b(p)                                  (6)  box: left, top, right, bottom
    IoU(b, t) = |b and t| / |b or t|                     (7)  overlap with the true box t
    l = sum_e h((b_e - t_e) / s)                         (8)  smooth L1: h(z) = z^2 / 2 up to 1,
                                                              then |z| - 1 / 2
    L = -log softmax(y)_k + 1 - IoU(b, t) + l            (9)  loss; k is the true class

Positions p and edges are parts of the width and height of the image, |.| is the area, and u . F(p)
is the scalar product over feature maps. Each pixel of the maps knows only what is near it: it
proposes edges at some distance from itself, and (2) decides whom to believe. So the weights do not
depend on the size of the image, and both tasks teach the backbone. (7) has no gradient where boxes
do not meet; there (8) draws them together. On a 64 x 64 image, with widths (12, 24, 48, 48):

    block      1          2          3         4
    output     12 maps    24 maps    48 maps   48 maps
               32 x 32    16 x 16    8 x 8     8 x 8

Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun (2013), "OverFeat: Integrated Recognition,
Localization and Detection using Convolutional Networks", arXiv:1312.6229, for one backbone of two
tasks; Tian, Shen, Chen, He (2019), "FCOS: Fully Convolutional One-Stage Object Detection",
arXiv:1904.01355, for (5); Yu et al. (2016), "UnitBox", arXiv:1608.01471, for an IoU in the loss.
Unlike these, one box is the mean (6) of all that were proposed, as there is one object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss, softplus

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import affine
from everynet.data.images.standardize import Standardize
from everynet.data.kinds.boxes import KIND as BOXES
from everynet.data.loading import is_own, load, samples
from everynet.metrics.classification import name_classes
from everynet.metrics.meanings import meanings
from everynet.nn.input_checks import require_images
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.clutter import in_clutter
from everynet.zoo.vision.cnn import ConvBlock
from everynet.zoo.vision.pictures.localisation import attention_boxes, predicted_boxes

Edges = Float[Tensor, "batch 4"]
BETA = 0.1  # s of (8), as part of the image
FIRST_DISTANCE = 0.15  # of the edges that a pixel proposes at first, as part of the image


class Localiser(nn.Module):
    """Maps images to logits and to the edges of one box, through a block for each of `widths`.

    All blocks but the last halve the image.
    """

    def __init__(self, in_channels: int, classes: int, *, widths: tuple[int, ...]) -> None:
        super().__init__()
        last = len(widths) - 1
        self.backbone = nn.Sequential(
            *(
                ConvBlock(before, width, pools=number < last)
                for number, (before, width) in enumerate(pairwise((in_channels, *widths)))
            )
        )
        self.look = nn.Conv2d(widths[-1], 1, 1, bias=False)
        self.edges = nn.Conv2d(widths[-1], 4, 1)
        self.output = nn.Linear(widths[-1], classes)
        nn.init.zeros_(self.edges.weight)
        nn.init.constant_(self.edges.bias, math.log(math.expm1(FIRST_DISTANCE)))  # type: ignore[arg-type]  # it has one

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch 4"]]:
        require_images(self, x)
        maps = self.backbone(x)  # (1)
        a = self.attention(maps)
        v = torch.einsum("brc,bkrc->bk", a, maps)  # (3)
        y = self.output(v)  # (4)
        b = torch.einsum("brc,bkrc->bk", a, self.propose_boxes(maps))  # (6)
        return y, b

    def attention(
        self, maps: Float[Tensor, "batch maps rows columns"]
    ) -> Float[Tensor, "batch rows columns"]:
        """The attention on each pixel of the maps; it sums to 1."""
        scores = self.look(maps)[:, 0]
        a: Tensor = scores.flatten(1).softmax(1).reshape(scores.shape)  # (2)
        return a

    def propose_boxes(
        self, maps: Float[Tensor, "batch maps rows columns"]
    ) -> Float[Tensor, "batch 4 rows columns"]:
        """The box that each pixel of the maps proposes."""
        rows, columns = maps.shape[2:]
        across = (torch.arange(columns).to(maps) + 0.5) / columns
        down = (torch.arange(rows).to(maps) + 0.5) / rows
        x, y = across.expand(rows, -1), down[:, None].expand(-1, columns)
        left, top, right, bottom = softplus(self.edges(maps)).unbind(1)
        return torch.stack([x - left, y - top, x + right, y + bottom], 1)  # (5)


def box_iou(b: Edges, t: Edges) -> Float[Tensor, " batch"]:
    """Intersection over union of boxes: left, top, right, bottom."""
    low, high = torch.maximum(b[:, :2], t[:, :2]), torch.minimum(b[:, 2:], t[:, 2:])
    intersection = (high - low).clamp(min=0).prod(1)
    areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (b, t)]
    return intersection / (areas[0] + areas[1] - intersection)  # (7)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SingleObject(Training[Localiser]):
    """Find the one object of an image: its class and the box around it."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = meanings("iou") | {
        "accuracy": "the share of images whose predicted class is right",
        "found": "the share of images with the right class and a box that overlaps by half or more",
    }

    data: str = "strokes:3000"
    """Images with one box each, or images with a class each, which are laid in clutter."""
    size: int = 64
    """Height and width in pixels: images are resized to it, or laid on a canvas so large."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    fragments: int = 8
    """Pieces of other images that lie around each image with a class and no box."""
    widths: tuple[int, ...] = (12, 24, 48, 48)
    """Feature maps of the blocks; all but the last halve the image."""
    pixels: float = 0.0
    """Training images are moved by up to so many pixels along each axis, with their boxes."""
    scale: float = 0.0
    """Training images are stretched by up to this fraction along each axis, with their boxes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "fragments", "pixels")
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.require(0 <= self.scale < 1, "scale", "at least 0 and below 1")

    def dataset(self) -> Data:
        moved = affine(pixels=self.pixels, scale=self.scale)
        augment = moved if self.pixels or self.scale else None
        given = {"batch_size": self.batch_size, "seed": self.seed, "augment": augment}
        files = {"size": self.size, "strict": self.strict}
        found = samples(self.data, kind=("boxes", "image"), **files)
        if found.task == "detection":
            self._require_one_box(found.parts.values())
            return load(self.data, kind="boxes", **files, **given)  # type: ignore[arg-type]  # typed above
        if found.task != "classification":
            raise UserError(
                f"data ({self.data}) must be images with one box or one class each, because both "
                "are learned; try digits"
            )
        self.require(self.size >= 16, "size", "at least 16, because images are laid in clutter")
        found = in_clutter(found, self.size, self.fragments)
        canvases = BOXES.data(found, size=self.size, **given)  # type: ignore[arg-type]  # typed above
        return replace(canvases, own=is_own(self.data))

    def _require_one_box(self, parts: Any) -> None:  # noqa: ANN401 -- pairs of tensors
        counts = torch.cat([(boxes[..., 0] >= 0).sum(1) for _, boxes in parts])
        if bool((counts != 1).any()):
            odd = int(counts[counts != 1][0])
            raise UserError(
                f"data ({self.data}) must have one box in each image, because one object is "
                f"looked for, but an image has {odd}; cut such images into parts with one each"
            )

    def model(self, data: Data) -> Localiser:
        channels, height, width = data.spec["shape"]
        least = 2 ** len(self.widths)
        if min(height, width) < least:
            raise UserError(
                f"size ({min(height, width)}) must be at least {least}, because every block but "
                f"the last halves the image and some pixels must be left; do size={least}"
            )
        return Localiser(channels, len(data.spec["classes"]), widths=self.widths)

    def objective(self, model: Localiser, batch: Batch) -> Terms:
        x, t = batch[0], batch[1][:, 0]
        y, b = model(x)
        b = b.to(t.dtype)
        l1 = smooth_l1_loss(b, t[:, 1:], beta=BETA, reduction="sum") / (BETA * len(x))  # (8)
        return {
            "cross_entropy": cross_entropy(y, t[:, 0].long()),
            "iou_loss": 1 - box_iou(b, t[:, 1:]).mean(),
            "smooth_l1": l1,
        }  # (9)

    def metrics(self, model: Localiser, batch: Batch) -> dict[str, Tensor]:
        x, t = batch[0], batch[1][:, 0]
        y, b = model(x)
        iou, right = box_iou(b.to(t.dtype), t[:, 1:]), y.argmax(1) == t[:, 0].long()
        found = (iou >= 0.5) & right
        return {"iou": iou, "accuracy": right.to(t.dtype), "found": found.to(t.dtype)}

    def picture_boxes(self, model: Localiser, data: Data, history: History) -> Figure:
        """Validation images with the true box, blue, and the predicted one, orange.

        Above each stand the predicted class and the intersection over union of the boxes; the
        last image is the worst of all.
        """
        classes = data.spec["classes"]
        x, t = (part[:200] for part in next(iter(data.valid)))
        y, b = model(x)
        t, b, predicted = t[:, 0].cpu(), b.cpu().to(t.dtype), y.argmax(1).cpu()
        iou = box_iou(b, t[:, 1:])
        shown = [*range(min(9, len(x) - 1)), int(iou.argmin())]
        captions = []
        for i in shown:
            true = "" if predicted[i] == t[i, 0] else f", not {classes[int(t[i, 0])]}"
            captions.append(f"{classes[predicted[i]]}{true}   {float(iou[i]):.2f}")
        images = Standardize.of(data.spec).to_data_units(x.cpu().float())[shown]
        title = "predicted class, and IoU of the predicted box with the true one"
        return predicted_boxes(images, t[shown, 1:], b[shown], captions=captions, title=title)

    def picture_attention(self, model: Localiser, data: Data, history: History) -> Figure:
        """The attention of the network, top, and the boxes that pixels propose, bottom.

        Each pixel of the maps proposes a box, thin, and attention decides which of them count for
        their mean, orange.
        """
        x = next(iter(data.valid))[0][:3]
        maps = model.backbone(x)
        images = Standardize.of(data.spec).to_data_units(x.cpu().float())
        boxes = model.propose_boxes(maps).cpu()
        found = model(x)[1].cpu().to(x.dtype)
        return attention_boxes(images, model.attention(maps).cpu(), boxes, found)

    def predict(self, model: Localiser, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """Class and box, whose edges are parts of the width and height of the image."""
        answers: list[dict[str, Any]] = []
        for x in inputs.split(100):
            y, b = (part.double().cpu() for part in model(x))
            named = name_classes(y.softmax(1), spec["classes"])
            boxes = zip(named, b.clamp(0, 1), strict=True)
            answers += [{**answer, "box": box} for answer, box in boxes]
        return answers

    def tiny(self) -> Self:
        return replace(super().tiny(), data="strokes:100", size=16, fragments=1, widths=(4, 4))


RECIPES = {
    "localise": SingleObject(
        steps=1200, batch_size=32, lr=1e-2, optimizer="adamw", weight_decay=0.02,
        schedule="one-cycle", pixels=6.0, scale=0.1,
        goal="iou >= 0.7 and accuracy >= 0.8", covers=("C27",),
    ),
    "localise-mnist": SingleObject(
        data="mnist", widths=(16, 32, 64, 64), steps=5000, batch_size=128, lr=1e-2,
        optimizer="adamw", weight_decay=0.05, schedule="one-cycle", pixels=6.0, scale=0.1,
        goal="iou >= 0.7 and accuracy >= 0.9", covers=("C27",),
    ),
}  # fmt: skip
