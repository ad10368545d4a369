"""Single-object localisation: what is in the image and where, from one set of feature maps.

    F = backbone(x)                                      (1)  maps; p is a place on them
    a(p) = exp(u . F(p)) / sum_q exp(u . F(q))           (2)  where to look
    v = sum_p a(p) F(p)                                  (3)  what is seen there
    y = W v + c                                          (4)  logits, one for each class
    b(p) = [p, p] + [-1, -1, 1, 1] softplus(B F(p) + d)  (5)  box that place p proposes
    b = sum_p a(p) b(p)                                  (6)  box: left, top, right, bottom
    IoU(b, t) = |b and t| / |b or t|                     (7)  overlap with the true box t
    l = sum_e h((b_e - t_e) / s)                         (8)  smooth L1: h(z) = z^2 / 2 up to 1,
                                                              then |z| - 1 / 2
    L = -log softmax(y)_k + 1 - IoU(b, t) + l            (9)  loss; k is the true class

Places and edges are parts of the width and height of the image, and |.| is the area. Each place of
the maps knows only what is near it: it proposes edges at some distance from itself, and (2) decides
whom to believe. So the weights do not depend on the size of the image, and both tasks teach the
backbone. (7) has no gradient where boxes do not meet; there (8) draws them together.

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
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss, softplus

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.augment import affine
from everynet.data.images.standardize import Standardize
from everynet.data.kinds.boxes import KIND as BOXES
from everynet.data.loading import is_own, load, samples
from everynet.metrics.meanings import meanings
from everynet.nn.input_checks import require_images
from everynet.recipes.recipe import Pictures, later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.vision.clutter import in_clutter
from everynet.zoo.vision.cnn import ConvBlock
from everynet.zoo.vision.pictures.localisation import boxes_found, looked_at

Edges = Float[Tensor, "batch 4"]
EDGES = ("left", "top", "right", "bottom")
SHARP = 0.1  # s of (8), as part of the image
FIRST = 0.15  # distance of an edge that every place proposes before training, as part of the image


class Localiser(nn.Module):
    """Maps images to logits and to the edges of one box, through a block for each of `widths`.

    All blocks but the last halve the image.
    """

    def __init__(self, channels: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        last = len(widths) - 1
        self.backbone = nn.Sequential(
            *(
                ConvBlock(before, width, pools=number < last)
                for number, (before, width) in enumerate(pairwise((channels, *widths)))
            )
        )
        self.look = nn.Conv2d(widths[-1], 1, 1, bias=False)
        self.edges = nn.Conv2d(widths[-1], 4, 1)
        self.output = nn.Linear(widths[-1], classes)
        nn.init.zeros_(self.edges.weight)
        nn.init.constant_(self.edges.bias, math.log(math.expm1(FIRST)))  # type: ignore[arg-type]  # it has one

    def attention(
        self, maps: Float[Tensor, "batch maps rows columns"]
    ) -> Float[Tensor, "batch rows columns"]:
        """How much each place is looked at: all of them together 1."""
        seen = self.look(maps)[:, 0]
        a: Tensor = seen.flatten(1).softmax(1).reshape(seen.shape)  # (2)
        return a

    def proposed(
        self, maps: Float[Tensor, "batch maps rows columns"]
    ) -> Float[Tensor, "batch 4 rows columns"]:
        """The box that each place proposes."""
        rows, columns = maps.shape[2:]
        right = (torch.arange(columns).to(maps) + 0.5) / columns
        down = (torch.arange(rows).to(maps) + 0.5) / rows
        x, y = right.expand(rows, -1), down[:, None].expand(-1, columns)
        away = softplus(self.edges(maps))
        left, top, right, bottom = away.unbind(1)
        return torch.stack([x - left, y - top, x + right, y + bottom], 1)  # (5)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch 4"]]:
        require_images(self, x)
        maps = self.backbone(x)  # (1)
        a = self.attention(maps)
        v = torch.einsum("brc,bkrc->bk", a, maps)  # (3)
        b = torch.einsum("brc,bkrc->bk", a, self.proposed(maps))  # (6)
        return self.output(v), b  # (4)


def overlap(b: Edges, t: Edges) -> Float[Tensor, " batch"]:
    """Intersection over union of boxes: left, top, right, bottom."""
    low, high = torch.maximum(b[:, :2], t[:, :2]), torch.minimum(b[:, 2:], t[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    areas = [(box[:, 2:] - box[:, :2]).clamp(min=0).prod(1) for box in (b, t)]
    return both / (areas[0] + areas[1] - both)  # (7)


@dataclass(frozen=True, kw_only=True)
class OneObject(Training[Localiser]):
    """Find the one object of an image: its class and the box around it."""

    captions: ClassVar[Mapping[str, str]] = {
        "boxes": (
            "Validation images with the true box (blue) and the one that was found (orange), the "
            "class that was named and how far the boxes overlap; the last is the worst of all."
        ),
        "attention": (
            "How a box is found: each place of the maps proposes one (thin), and where the network "
            "looks (light) decides which of them count for their mean (orange)."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = meanings("iou") | {
        "accuracy": "the share of images whose class was named",
        "found": "the share of images with the right class and a box that overlaps by half or more",
    }

    data: str = "strokes:3000"
    """Images with one box each, or images with a class each, which are laid in clutter."""
    size: int = 64
    """Side of the images in pixels: others are brought to it, or laid on a canvas so large."""
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
        self.require(self.size >= 0, "size", "at least 0")
        self.require(self.fragments >= 0, "fragments", "at least 0")
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.require(0 <= self.pixels < math.inf, "pixels", "a number from 0 up")
        self.require(0 <= self.scale < 1, "scale", "at least 0 and below 1")

    def dataset(self) -> Data:
        moved = affine(pixels=self.pixels, scale=self.scale)
        augment = moved if self.pixels or self.scale else None
        given = {"batch_size": self.batch_size, "seed": self.seed, "augment": augment}
        files = {"size": self.size, "strict": self.strict}
        found = samples(self.data, kind=("boxes", "image"), **files)
        if found.task == "detection":
            self._check(found.parts.values())
            return load(self.data, kind="boxes", **files, **given)  # type: ignore[arg-type]  # typed above
        if found.task != "classification":
            raise UserError(
                f"data ({self.data}) must be images with one box or one class each, because both "
                "are learned; try digits"
            )
        self.require(self.size >= 16, "size", "at least 16, because images are laid in clutter")
        found = in_clutter(found, self.size, self.fragments)
        made = BOXES.data(found, size=self.size, **given)  # type: ignore[arg-type]  # typed above
        return replace(made, own=is_own(self.data))

    def _check(self, parts: Any) -> None:  # noqa: ANN401 -- pairs of tensors
        counts = torch.cat([(boxes[..., 0] >= 0).sum(1) for _, boxes in parts])
        if bool((counts != 1).any()):
            odd = int(counts[counts != 1][0])
            raise UserError(
                f"data ({self.data}) must have one box in each image, because one object is "
                f"looked for, but an image has {odd}; cut such images into parts with one each"
            )

    def model(self, data: Data) -> Localiser:
        channels, *sides = data.spec["shape"]
        least = 2 ** len(self.widths)
        if min(sides) < least:
            raise UserError(
                f"size ({min(sides)}) must be at least {least}, because every block but the last "
                f"halves the image and some places must be left; do size={least}"
            )
        return Localiser(channels, len(data.spec["classes"]), self.widths)

    def objective(self, model: Localiser, batch: Batch) -> Terms:
        x, t = batch[0], batch[1][:, 0]
        y, b = model(x)
        b = b.to(t.dtype)
        drawn = smooth_l1_loss(b, t[:, 1:], beta=SHARP, reduction="sum") / (SHARP * len(x))  # (8)
        return {
            "cross_entropy": cross_entropy(y, t[:, 0].long()),
            "iou_loss": 1 - overlap(b, t[:, 1:]).mean(),
            "smooth_l1": drawn,
        }  # (9)

    def metrics(self, model: Localiser, batch: Batch) -> dict[str, Tensor]:
        x, t = batch[0], batch[1][:, 0]
        y, b = model(x)
        found, right = overlap(b.to(t.dtype), t[:, 1:]), y.argmax(1) == t[:, 0].long()
        return {
            "iou": found,
            "accuracy": right.to(t.dtype),
            "found": ((found >= 0.5) & right).to(t.dtype),
        }

    last_weights: ClassVar[bool] = True

    def pictures(self, model: Localiser, data: Data, history: History) -> Pictures:
        """Boxes beside the truth, the worst too, and how one came about."""
        classes = data.spec["classes"]
        x, t = (part[:200] for part in next(iter(data.valid)))
        y, b = model(x)
        t, b, said = t[:, 0].cpu(), b.cpu().to(t.dtype), y.argmax(1).cpu()
        meet = overlap(b, t[:, 1:])
        shown = [*range(min(9, len(x) - 1)), int(meet.argmin())]
        images = Standardize.of(data.spec).to_data_units(x.cpu().float())
        maps = model.backbone(x[:3])
        return {
            "boxes": boxes_found(
                images[shown],
                t[shown, 1:],
                b[shown],
                captions=[
                    f"{classes[said[i]]}"
                    + ("" if said[i] == t[i, 0] else f", not {classes[int(t[i, 0])]}")
                    + f"   {float(meet[i]):.2f}"
                    for i in shown
                ],
                title="class named, and IoU of the box found with the true one",
            ),
            "attention": looked_at(
                images[:3], model.attention(maps).cpu(), model.proposed(maps).cpu(), b[:3]
            ),
        }

    def predict(
        self, model: Localiser, inputs: Tensor, spec: Spec, *, width: int = 0, height: int = 0
    ) -> Sequence[dict[str, Any]]:
        """Class and box; edges in pixels of an image of `width` x `height`, or as it was read."""
        answers = []
        sides = (width or inputs.shape[3], height or inputs.shape[2])
        for x in inputs.split(100):
            y, b = (part.double().cpu() for part in model(x))
            for row, parts in zip(y.softmax(1), b.clamp(0, 1), strict=True):
                k = int(row.argmax())
                edges = zip(
                    ("left", "top", "right", "bottom"), parts.tolist(), sides * 2, strict=True
                )
                answers.append(
                    {
                        "class": spec["classes"][k],
                        "probability": float(row[k]),
                        "box": {name: part * side for name, part, side in edges},
                    }
                )
        return answers

    def tiny(self) -> Self:
        return replace(
            self, data="strokes:100", size=16, fragments=1, widths=(4, 4),
            steps=min(self.steps, 4), batch_size=min(self.batch_size, 8),
        )  # fmt: skip


# IoU and accuracy on test images: localise, seed 0, one CPU thread, 84 s: 0.733, 0.908;
# localise-mnist, seeds 0, 1, 2, an H200 in tf32: 0.780 0.789 0.789 and 0.937 0.936 0.935.
RECIPES = {
    "localise": OneObject(
        steps=1200,
        batch_size=32,
        lr=1e-2,
        optimizer="adamw",
        weight_decay=0.02,
        schedule="one-cycle",
        pixels=6.0,
        scale=0.1,
        goal="iou >= 0.7 and accuracy >= 0.8",
        covers=("C27",),
    ),
    "localise-mnist": OneObject(
        data="mnist",
        widths=(16, 32, 64, 64),
        steps=5000,
        batch_size=128,
        lr=1e-2,
        optimizer="adamw",
        weight_decay=0.05,
        schedule="one-cycle",
        pixels=6.0,
        scale=0.1,
        goal="iou >= 0.7 and accuracy >= 0.9",
        covers=("C27",),
    ),
}
