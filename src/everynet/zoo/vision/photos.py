"""Your own photos: a network that is as large as its images are many, or one that was given.

    h = max(0, n(pool(w * x)))                               (1)  stage: conv, 2 x 2 pool, norm
    h <- max(0, h + F(h))                                    (2)  residual blocks behind it
    v_k = mean of h_k over all pixels                        (3)  global average
    y = W v + b                                              (4)  logits, one for each class
    L_c(i, j) = max(0, sum_k W_ck h_k(i, j))                 (5)  evidence for class c at a place
    lr_f = 0 while t < s T, then r lr                        (6)  rate of features that were given

x are the images, * is cross-correlation with kernels w of 3 x 3, n normalises a batch, the last
stage has no pool; F are two 3 x 3 convolutions (see `resnet.py`, and `cnn.py` for the stages); k
counts feature maps, T is the number of updates and t that of one. (5) is Grad-CAM: behind a mean
the gradient of y_c by h_k(i, j) is W_ck / pixels everywhere.

Few images are learned by heart unless the network is small, each image is never seen twice alike
and labels are mixed: two images and their labels are averaged at random (mixup). Many images take
residual blocks and more maps; `Photos.suited` says how many are many. Features that were learned
from a million photographs need the fewest of one's own: `photos-vgg` begins with those of VGG-19,
and `photos start=RUN` with those of a run. A new head would send noise into them, so they are
frozen at first and learn slowly afterwards, by (6); images are standardised as those of the given
network were, which the description of the data says, so that `predict` does the same.

He, Zhang, Ren, Sun (2015), "Deep Residual Learning for Image Recognition", arXiv:1512.03385;
Zhang, Cisse, Dauphin, Lopez-Paz (2017), "mixup", arXiv:1710.09412; Selvaraju et al. (2016),
"Grad-CAM", arXiv:1610.02391, for (5); Yosinski, Clune, Bengio, Lipson (2014), "How transferable are
features in deep neural networks?", arXiv:1411.1792; Simonyan, Zisserman (2014), "Very Deep
Convolutional Networks", arXiv:1409.1556, for the features of VGG-19, up to conv5_1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.optim import Optimizer

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.draws import Draw
from everynet.data.images.folder import survey_sides
from everynet.data.images.standardize import restandardize
from everynet.data.loading import is_own
from everynet.data.sets import vgg19
from everynet.nn.input_checks import require_images
from everynet.recipes.state import State
from everynet.recipes.training import OPTIMIZERS
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.vision.classifier import (
    ImageClassification,
    check_halvings,
    predict_validation,
    to_pixels,
    valid_images,
)
from everynet.zoo.vision.cnn import ConvBlock
from everynet.zoo.vision.patches import blocks as vgg_blocks
from everynet.zoo.vision.pictures.neural_style import picture_table
from everynet.zoo.vision.resnet import BasicBlock

Maps = Float[Tensor, "batch maps rows columns"]


class PhotoNet(nn.Module):
    """Maps images to logits through a stage for each of `widths`, with `blocks` behind each.

    For images of 32 x 32 and widths of (32, 64, 128, 128):

    layer    stage 0   stage 1   stage 2   stage 3   mean    output
    maps     32        64        128       128       128     classes
    size     16 x 16   8 x 8     4 x 4     4 x 4     1 x 1
    """

    def __init__(
        self, in_channels: int, classes: int, *, widths: tuple[int, ...], blocks: int = 0
    ) -> None:
        super().__init__()
        last = len(widths) - 1
        self.features = nn.Sequential()
        for number, (before, width) in enumerate(pairwise((in_channels, *widths))):
            self.features.add_module(
                f"stage{number}", ConvBlock(before, width, pools=number < last)
            )
            for block in range(blocks):
                self.features.add_module(f"block{number}_{block}", BasicBlock(width, width))
        self.output = nn.Linear(widths[-1], classes)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        h = self.features(x)  # (1) (2)
        v = h.mean((2, 3))  # (3)
        y: Tensor = self.output(v)  # (4)
        return y

    def evidence(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes rows columns"]:
        """What each place of the last feature maps says for each class."""
        h = self.features(x)
        return torch.einsum("ck,bkij->bcij", self.output.weight, h).relu()  # (5)


class PhotoVGG(PhotoNet):
    """The same head behind the thirteen convolutions of VGG-19 up to conv5_1.

    For images of 64 x 64, where `width` is 64; a pool that takes the maximum stands before each
    stage but the first:

    stage    1         2         3         4       5       mean    output
    layers   2         2         4         4       1
    maps     64        128       256       512     512     512     classes
    size     64 x 64   32 x 32   16 x 16   8 x 8   4 x 4   1 x 1
    """

    def __init__(self, in_channels: int, classes: int, *, width: int = 64) -> None:
        nn.Module.__init__(self)
        sizes = [(maps * width // 64, layers) for maps, layers in vgg19.BLOCKS]
        self.features = vgg_blocks(in_channels, sizes)
        for name, layer in self.features.named_children():
            if isinstance(layer, nn.AvgPool2d):
                setattr(self.features, name, nn.MaxPool2d(2))
        self.output = nn.Linear(sizes[-1][0], classes)

    @torch.no_grad()
    def load_published(self) -> None:
        """Take the published weights, for channels in the order red, green, blue, or for grey."""
        found = vgg19.read()
        first = found["conv1_1.weight"].flip(1)  # they were learned with blue first,
        first *= 255 * VGG_STD  # and with pixels up to 255, on which a step of Adam is a leap
        grey = self.features.conv1_1.in_channels == 1  # type: ignore[union-attr]  # a convolution
        found["conv1_1.weight"] = first.sum(1, keepdim=True) if grey else first
        own = self.features.state_dict()
        self.features.load_state_dict({name: found[name] for name in own})


# -------- the network ends here; training and pictures follow --------

LEAST, MOST = 16, 64
"""Sides in pixels between which images of one's own are brought where no size is given."""
MANY = 3_000
"""More training images than this take residual blocks and wider stages."""
VGG_MEAN, VGG_STD = (123.68 / 255, 116.779 / 255, 103.939 / 255), 0.25
"""How images are standardised for VGG-19: red, green, blue, and one deviation for all."""
ONE_WAY = re.compile(r"\w|\d+|(.*[\W_])?(left|right)([\W_].*)?", re.IGNORECASE)
"""Names of classes that a mirror may change: a letter, a number, what says left or right."""
FEW = 200
"""Fewer validation images than this do not choose weights: the best of them is a lucky one."""
SHOWN = 6
"""Images in a row of a picture."""


def suitable_side(folder: Path) -> int:
    """The side that images of a folder are brought to: their median within limits; 0 of none."""
    sides = sorted(survey_sides(folder))
    return min(max(sides[len(sides) // 2], LEAST), MOST) if sides else 0


def suitable_widths(side: int, most: int) -> tuple[int, ...]:
    """Maps of stages that leave about 4 x 4 pixels: `most` at the end and half as many before."""
    pools = max(1, round(math.log2(side / 4)))
    return (*(max(8, most >> number) for number in reversed(range(pools))), most)


@dataclass(frozen=True, kw_only=True)
class Photos(ImageClassification[PhotoNet]):
    """Classify photos of one's own by a network that suits their number."""

    made_for: ClassVar[tuple[str, ...]] = ("image",)
    new_classes: ClassVar[bool] = True  # features are fine-tuned, and outputs begin anew
    captured: ClassVar[bool] = True  # an update reads its number only where features were given

    widths: tuple[int, ...] = (64, 128, 128)
    """Feature maps of the stages; each but the last halves the image."""
    blocks: int = 0
    """Residual blocks behind each stage."""
    frozen: float = 0.4
    """Share of the updates in which features that were given, by `start`, stay as they are."""
    share: float = 0.1
    """Learning rate of such features afterwards, as a share of that of the logits."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.at_least(0, "blocks")
        self.require(0 <= self.frozen < 1, "frozen", "at least 0 and below 1")
        self.require(0 < self.share <= 1, "share", "above 0 and at most 1")
        enough = self.batch_size >= 2
        self.require(enough, "batch_size", "at least 2, because norms need a spread over a batch")

    # ------------------------------------------------------------------------ what suits the data

    def given(self) -> Spec:
        """The description of the images of the run `start`; nothing of a file of weights."""
        if not self.start or Path(self.start.path).is_file():
            return {}
        source = self.start.recipe
        if type(source) is not type(self):
            raise UserError(
                f"start ({self.start}) must be a run of {self.name or 'photos'}, because its "
                f"network goes on to learn, and that of {source.name} is another; do everynet run "
                f"{source.name} start=RUN"
            )
        return self.start.spec

    def moments(self, spec: Spec) -> tuple[Sequence[float], Sequence[float]] | None:
        """Mean and deviation that features which were given expect of images; None: their own."""
        given = self.given()
        if not given:
            return None
        own, its = spec["shape"][0], given["shape"][0]
        if own != its:
            raise UserError(
                f"start ({self.start}) must be a run on images of as many channels as those of "
                f"data ({own}), and its images have {its}; train without start"
            )
        return given["mean"], given["std"]

    def chooses(self) -> bool:
        """Whether settings that were left open follow from the data."""
        return is_own(self.data) or "data" in self.changed or bool(self.start)

    def sized(self) -> Self:
        """With a size that suits the images, where none was given; it is chosen by their files."""
        if "size" in self.settings_given() or not self.chooses():
            return self
        if given := self.given():
            return replace(self, size=given["shape"][1])
        folder = Path(self.data)
        files = is_own(self.data) and folder.is_dir()
        return replace(self, size=suitable_side(folder) if files else 0)

    def suited(self, data: Data) -> dict[str, Any]:
        """Network, augmentation and updates by the number of training images.

        Few images train a plain network, mixed in pairs; many take residual blocks, and are mixed
        less. Images of classes that a mirror may change are not mirrored. Settings that were given
        stay as they are.
        """
        if not self.chooses():
            return super().suited(data)
        images, side = data.rows("train"), min(data.spec["shape"][1:])
        mixes = not (self.class_weight or self.class_weights)
        found = {
            "size": data.spec["size"],
            **self.suited_network(images, side),
            "pixels": float(max(1, side // 10)),
            "mirror": not any(map(ONE_WAY.fullmatch, data.spec["classes"])),
            "mixup": self.suited_mixup(images) if mixes else 0.0,
        }
        given = self.settings_given()
        found = {name: value for name, value in found.items() if name not in given}
        if "eval_every" not in given:
            found["eval_every"] = max(1, found.get("steps", self.steps) // 10)
        return found | super(Photos, replace(self, **found)).suited(data)

    def suited_network(self, images: int, side: int) -> dict[str, Any]:
        """Depth and width, and updates with their batches."""
        many = images > MANY
        found: dict[str, Any] = {
            "widths": suitable_widths(side, 192 if many else 128),
            "blocks": 1 if many else 0,
            "steps": min(2_000 + images // 5, 10_000) if many else 1_500 + images // 2,
            "batch_size": min(64, max(2, images // 2)),
            "lr": 5e-3 if many else 1e-2,
        }
        if self.given():
            source = self.start.recipe
            assert isinstance(source, Photos)
            found |= {"widths": source.widths, "blocks": source.blocks}
        return found

    def suited_mixup(self, images: int) -> float:
        """How much images are mixed."""
        return 0.2 if images > MANY or self.start else 1.0

    def dataset(self) -> Data:
        given = "batch_size" in self.settings_given()
        sized = replace(self.sized(), batch_size=self.batch_size if given else 2)  # few are enough
        data = super(Photos, sized).dataset()
        if self.chooses() and not sized.size and max(data.spec["shape"][1:]) > MOST:  # arrays
            data = super(Photos, replace(sized, size=MOST)).dataset()
        if (moments := self.moments(data.spec)) is not None:
            data = restandardize(data, *moments)
        if data.test_only:
            return replace(data, batch_size=self.batch_size)
        chosen = replace(self, **self.suited(data))
        enough = data.rows("valid") >= FEW or self.patience > 0
        return replace(
            data,
            augment=chosen.augment(),
            batch_size=chosen.batch_size,
            chooses=data.chooses and enough,
        )

    # ------------------------------------------------------------------------------------ learning

    def model(self, data: Data) -> PhotoNet:
        check_halvings(data.spec, self.widths, "stage")
        in_channels, classes = data.spec["shape"][0], len(data.spec["classes"])
        return PhotoNet(in_channels, classes, widths=self.widths, blocks=self.blocks)

    def is_given(self) -> bool:
        """Whether the features begin with weights that were given."""
        return bool(self.start)

    def optimizers(self, model: PhotoNet) -> dict[str, Optimizer]:
        """One; features that were given learn more slowly, and do not decay."""
        if not self.is_given():
            return super().optimizers(model)
        groups = [
            {"params": [*model.features.parameters()], "lr": self.share * self.lr},  # (6)
            {"params": [*model.output.parameters()], "weight_decay": self.weight_decay},
        ]
        return {"main": OPTIMIZERS[self.optimizer](groups, self.lr)}

    def step(self, state: State[PhotoNet], batch: Batch) -> Terms:
        """The usual update; features that were given are frozen at first, their norms always."""
        if self.is_given():
            thawed = state.step >= self.frozen * self.steps  # (6)
            state.model.features.requires_grad_(thawed).eval()
        return super().step(state, batch)

    # ------------------------------------------------------------------------------------ pictures

    def activation_layers(self, model: PhotoNet) -> Sequence[str]:
        return [
            f"features.{name}"
            for name, layer in model.features.named_children()
            if isinstance(layer, ConvBlock | BasicBlock) or name.startswith("pool")
        ]

    def picture_evidence(
        self, model: PhotoNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images with their class, and below what the network took each one for.

        There a place is the brighter the more it speaks for that class (Grad-CAM); half of all
        evidence lies on {area:.0%} of the pixels, and {wrong:.0f} of the {shown:.0f} are wrong.
        """
        y, probabilities = predict_validation(model, data)
        sure, predicted = probabilities.max(1)
        wrong = (predicted != y).nonzero().flatten()[: SHOWN // 2]
        right = (predicted == y).nonzero().flatten()[: SHOWN - len(wrong)]
        rows = torch.cat([right, wrong])
        x, names = data.some("valid", rows)[0], data.spec["classes"]
        found = model.evidence(x)[torch.arange(len(rows)), predicted[rows]].cpu().float()
        maps = interpolate(found[:, None], x.shape[2:], mode="bilinear")
        images = valid_images(data, rows).float()
        lit = images * (0.15 + 0.85 * maps / maps.amax((2, 3), keepdim=True).clamp(min=1e-12))
        above = [(names[y[row]], image) for row, image in zip(rows, images, strict=True)]
        below = [
            (f"{names[predicted[row]]} {sure[row]:.0%}", image)
            for row, image in zip(rows, lit, strict=True)
        ]
        ordered = maps.flatten(1).sort(1, descending=True).values.cumsum(1)
        half = (ordered < ordered[:, -1:] / 2).double().mean()
        values = {"area": half.item(), "wrong": float(len(wrong)), "shown": float(len(rows))}
        missed = (predicted != y)[rows].tolist()
        return picture_table([("image", above), ("evidence", below)], wrong=missed), values

    def picture_augmentation(
        self, model: PhotoNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """Training images as they are, and below as the network sees them in two updates.

        They are {changes} anew for every update, so that none is seen twice alike.
        """
        rows = torch.linspace(0, data.rows("train") - 1, SHOWN).long()
        x, y = data.some("train", rows)
        seen = [x]
        for update in range(2):
            drawn = Draw(generator(self.seed, update), len(rows), parts=data.parts, device=x.device)
            seen.append(data.augment((x, y), drawn)[0] if data.augment else x)
        names = [data.spec["classes"][each] for each in y]
        table = []
        for name, images in zip(("image", "one update", "another"), seen, strict=True):
            drawn_images = to_pixels(images, data.spec)
            titles = names if name == "image" else [""] * len(names)
            table.append((name, [*zip(titles, drawn_images, strict=True)]))
        moved = f"moved by up to {self.pixels:g} pixels"
        return picture_table(table), {
            "changes": moved + (" and mirrored at random" if self.mirror else "")
        }


@dataclass(frozen=True, kw_only=True)
class PhotosVGG(Photos):
    """Classify photos of one's own by features of VGG-19, learned from a million photographs."""

    pretrained: bool = True
    """Begin with the published weights of VGG-19; false begins at random."""
    width: int = 64
    """Feature maps of the first stage; the published weights have 64."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "width")
        fits = self.width == 64 or not self.pretrained
        self.require(fits, "width", "64, because the published weights have as many")
        for name in ("widths", "blocks"):
            same = getattr(self, name) == getattr(Photos, name)
            self.require(same, name, "left out, because VGG-19 has stages of its own")

    def is_given(self) -> bool:
        return True

    def sized(self) -> Self:
        """Images of 64 x 64, to which smaller ones are enlarged."""
        chosen = self.chooses() and "size" not in self.settings_given()
        return replace(self, size=MOST) if chosen else self

    def suited_network(self, images: int, side: int) -> dict[str, Any]:
        return {"steps": 250 + images // 4, "batch_size": min(16, max(2, images // 2))}

    def suited_mixup(self, images: int) -> float:
        return 0.0

    def moments(self, spec: Spec) -> tuple[Sequence[float], Sequence[float]]:
        channels = spec["shape"][0]
        mean = VGG_MEAN if channels == 3 else (sum(VGG_MEAN) / 3,) * channels
        return mean, (VGG_STD,) * channels

    def model(self, data: Data) -> PhotoNet:
        in_channels, *size = data.spec["shape"]
        if min(size) < LEAST:
            raise UserError(
                f"size ({min(size)}) must be at least {LEAST}, because four pools halve the image; "
                f"do size={MOST}"
            )
        network = PhotoVGG(in_channels, len(data.spec["classes"]), width=self.width)
        if self.pretrained and data.splits and not self.start:  # a description is of other weights
            network.load_published()
        return network

    def tiny(self) -> Self:
        small = replace(self, pretrained=False, size=LEAST)
        return super(PhotosVGG, small).tiny()


RECIPES = {
    "photos": Photos(
        data="digits", pixels=1.0, smoothing=0.1, steps=600, batch_size=64, lr=1e-2,
        optimizer="adamw", weight_decay=0.05, schedule="one-cycle",
        goal="accuracy >= 0.98", covers=("C21",),
    ),
    "photos-vgg": PhotosVGG(
        data="digits", size=24, pixels=2.0, smoothing=0.1, steps=200, batch_size=32, lr=1e-3,
        share=0.03, optimizer="adamw", weight_decay=0.05, schedule="one-cycle",
        goal="accuracy >= 0.93", covers=("C28",),
    ),
}  # fmt: skip
