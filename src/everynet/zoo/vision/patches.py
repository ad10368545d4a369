"""Patches of photographs, classified by where they are from: features without a download.

    a_k = b_k + sum_c w_kc * x_c          (1)  convolution, 3 x 3, zero padding of 1
    h_k = max(0, a_k)                     (2)  ReLU
    m_k(i, j) = mean of h_k over 2 x 2    (3)  average pooling, between two blocks
    v_k = mean of h_k over all pixels     (4)  global average pooling
    y = W v + b                           (5)  logits: which photograph, and which quarter of it

k and c are feature maps, i and j pixels, and `*` is a convolution. Of a 24 x 24 patch:

    block 1    maps         24 x 24    one convolution
    block 2    2 maps       12 x 12    two convolutions
    block 3    4 maps       6 x 6      one convolution

To say from which place a patch is, a network must know its colours, edges and textures, and that is
what its layers then respond to; no person has named anything.

Doersch, Gupta, Efros (2015), "Unsupervised Visual Representation Learning by Context Prediction",
arXiv:1505.05192. Unlike the paper, the photographs are two, and what is predicted of a patch is its
place in the photograph instead of beside another patch.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

from everynet.data.dataset import Batch, Data, Terms
from everynet.data.loading import samples
from everynet.data.samplers import Made
from everynet.metrics.classification import accuracy
from everynet.recipes.training import Training
from everynet.system.seeds import generator

PHOTOGRAPHS = ("china", "flower")
QUARTERS = ("top left", "top right", "bottom left", "bottom right")
SIZE = 24  # height and width of a patch in pixels
LONGER = 320  # pixels along the longer side of a photograph that patches are cut from


class PatchNet(nn.Module):
    """Maps images of any size to logits; `sizes` are (maps, convolutions) of each block."""

    def __init__(self, in_channels: int, classes: int, *, sizes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.features = blocks(in_channels, sizes)
        self.output = nn.Linear(sizes[-1][0], classes)
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):  # so that deep layers answer as loudly as the first
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        for layer in self.features:
            x = layer(x)  # (1) (2) (3)
        v = x.mean((2, 3))  # (4)
        y: Tensor = self.output(v)  # (5)
        return y


def blocks(in_channels: int, sizes: Sequence[tuple[int, int]]) -> nn.Sequential:
    """Blocks of convolutions as VGG has them: (maps, convolutions) of each, pooled in between.

    Layers have the names of the literature: conv1_1, relu1_1, ..., pool1, conv2_1, ...
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for block, (maps, count) in enumerate(sizes, 1):
        if block > 1:
            layers[f"pool{block - 1}"] = nn.AvgPool2d(2)
        for number in range(1, count + 1):
            layers[f"conv{block}_{number}"] = nn.Conv2d(in_channels, maps, 3, padding=1)
            layers[f"relu{block}_{number}"] = nn.ReLU()
            in_channels = maps
    return nn.Sequential(layers)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Patches(Training[PatchNet]):
    """Say of a patch from which photograph it is, and from which quarter of it."""

    steps: int = 200
    batch_size: int = 32
    lr: float = 3e-3
    schedule: str = "one-cycle"
    maps: int = 16
    """Feature maps of the first block; the next ones have two and four times as many."""

    def dataset(self) -> Data:
        photos = [_photograph(name) for name in PHOTOGRAPHS]
        pixels = torch.stack([photo.flatten(1) for photo in photos])  # photographs channels pixels
        mean, std = pixels.mean((0, 2)), pixels.std((0, 2))
        photos = [(photo - mean[:, None, None]) / std[:, None, None] for photo in photos]
        classes = [f"{name}, {quarter}" for name in PHOTOGRAPHS for quarter in QUARTERS]

        def batch(step: int) -> Batch:
            return cut_patches(photos, self.batch_size, generator(self.seed, 5, step))

        spec = {
            "name": "patches of two photographs", "kind": "image", "task": "classification",
            "shape": [3, SIZE, SIZE], "classes": classes, "mean": mean.tolist(),
            "std": std.tolist(), "peak": 255.0, "size": SIZE,
            "split": "patches are cut at random at each step; another draw is for evaluation",
        }  # fmt: skip
        splits = {
            part: cut_patches(photos, 64, generator(2018, number))
            for number, part in enumerate(("valid", "test"))
        }
        digest = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
        return Data(splits, spec, self.batch_size, self.seed, digest, Made(make=batch))

    def model(self, data: Data) -> PatchNet:
        m = self.maps
        sizes = ((m, 1), (2 * m, 2), (4 * m, 1))
        return PatchNet(3, len(data.spec["classes"]), sizes=sizes)

    def objective(self, model: PatchNet, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}

    def metrics(self, model: PatchNet, batch: Batch) -> dict[str, Tensor]:
        x, y = batch
        return {"accuracy": accuracy(model(x), y)}


def cut_patches(
    photos: Sequence[Float[Tensor, "3 _height _width"]], count: int, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Patches from places drawn at random, with the class of each: all classes in turn."""
    y = torch.arange(count) % (4 * len(photos))
    found = []
    for label in y.tolist():
        photo, quarter = photos[label // 4], label % 4
        half = [side // 2 for side in photo.shape[1:]]
        top, left = (int(torch.randint(side - SIZE + 1, (), generator=draw)) for side in half)
        top, left = top + (quarter // 2) * half[0], left + (quarter % 2) * half[1]
        found.append(photo[:, top : top + SIZE, left : left + SIZE])
    return torch.stack(found), y


def _photograph(name: str) -> Float[Tensor, "3 height width"]:
    """A photograph that ships with scikit-learn, pixels from 0 to 1, made smaller."""
    x: Tensor = samples(name, kind="image").parts["train"][0]
    factor = LONGER / max(x.shape[2:])
    sides = [round(factor * side) for side in x.shape[2:]]
    return interpolate(x.float() / 255, sides, mode="bilinear", antialias=True)[0]
