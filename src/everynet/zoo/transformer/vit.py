"""The Vision Transformer reads an image as a sentence whose words are its patches.

    x_p   = w . patch_p + b                               (1)  patches, by one convolution
    z     = [c, x_1 .. x_N] + E                           (2)  class token and learned positions
    E'    = [E_0, bicubic(E_1 .. E_N)]                    (3)  positions of images of another size
    z    <- z + MHA(LN(z))                                (4)  self-attention, pre-norm
    z    <- z + gelu(LN(z) W1 + b1) W2 + b2               (5)  feed-forward network
    gelu(x) = x (1 + erf(x / sqrt(2))) / 2                (6)  exact, no approximation
    y     = W LN(z_0) + d                                 (7)  logits, from the class token alone
    S_pq  = E_p . E_q / (|E_p| |E_q|)                     (8)  how alike two positions are

patch_p are the P x P pixels of place p in all channels, row by row, w a filter of as many numbers
for each of the hidden units, c a learned vector, E a learned row for each place and E_0 that of the
class token; (4) and (5) are repeated in each layer with weights of their own. MHA and LN are those
of `nn/attention.py` and `nn/transformer.py`. Nothing but E says which patches are neighbours: the
same network reads the same patches in another order, if E follows. In (3) the N rows are laid out
as the grid of patches they were learned for and enlarged or shrunk to the grid at hand.

Shapes for an image of 224 x 224, patches of 16 x 16 and 768 units (ViT-B/16, 1,000 classes, with 12
layers 86,567,656 parameters):

    image           patches       with class token   each layer   class token   logits
    3 x 224 x 224   768 x 14 x 14   197 x 768        197 x 768    768           1,000

Dosovitskiy et al. (2020), "An image is worth 16x16 words: transformers for image recognition at
scale", arXiv:2010.11929; Hendrycks, Gimpel (2016), "Gaussian error linear units", arXiv:1606.08415,
for (6). Unlike the paper, which has a hidden layer in the head while pre-training, (7) is one
matrix, as it is when fine-tuned and in published files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, normalize

from everynet.data.dataset import Data, History
from everynet.data.images.standardize import restandardize
from everynet.nn.attention import record_weights
from everynet.nn.input_checks import require_images
from everynet.nn.transformer import PreNormEncoderLayer
from everynet.recipes.published import Published
from everynet.system.errors import UserError
from everynet.zoo.transformer.pictures.patches import draw_class_attention, draw_similarity
from everynet.zoo.vision.classifier import ImageClassification, predict_validation, valid_images
from everynet.zoo.vision.pictures.neural_style import picture_table

EPS = 1e-12
"""Added to the variance in LN, as in published weights."""
SHOWN = 6  # images of a picture


class ViT(nn.Module):
    """Maps images to logits; those of another size than `size` have interpolated positions."""

    def __init__(
        self,
        in_channels: int,
        classes: int,
        *,
        size: tuple[int, int],
        patch: int = 16,
        hidden_size: int = 768,
        heads: int = 12,
        feedforward_size: int = 3072,
        layers: int = 12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.patch, self.grid = patch, count_patches(size, patch)
        tokens = 1 + self.grid[0] * self.grid[1]
        self.class_token = nn.Parameter(torch.empty(1, 1, hidden_size))
        self.positions = nn.Parameter(torch.empty(1, tokens, hidden_size))
        self.patches = nn.Conv2d(in_channels, hidden_size, patch, stride=patch)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            ViTLayer(hidden_size, heads, feedforward_size, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden_size, eps=EPS)
        self.head = nn.Linear(hidden_size, classes)
        for learned in (self.class_token, self.positions):
            nn.init.trunc_normal_(learned, std=0.02)

    def forward(
        self, x: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch classes"]:
        require_images(self, x)
        grid = count_patches((x.shape[2], x.shape[3]), self.patch)
        patches = self.patches(x).flatten(2).transpose(1, 2)  # (1)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], 1)
        z = self.dropout(tokens + self.positions_of(grid))  # (2)
        for layer in self.layers:
            z = layer(z)  # (4) (5)
        y: Tensor = self.head(self.norm(z[:, 0]))  # (7)
        return y

    def positions_of(self, grid: tuple[int, int]) -> Float[Tensor, "1 tokens hidden"]:
        """The positions of images with so many rows and columns of patches."""
        if grid == self.grid:
            return self.positions
        learned = self.positions[:, 1:].transpose(1, 2).unflatten(2, self.grid)
        resized = interpolate(learned, grid, mode="bicubic", align_corners=False)
        return torch.cat([self.positions[:, :1], resized.flatten(2).transpose(1, 2)], 1)  # (3)

    def similarity(self) -> Float[Tensor, "rows columns rows columns"]:
        """The cosine of the positions of each two patches."""
        e = normalize(self.positions[0, 1:], dim=1)
        return (e @ e.T).reshape(*self.grid, *self.grid)  # (8)


class ViTLayer(PreNormEncoderLayer):
    """Maps sequences to sequences, pre-norm, with the exact GELU."""

    eps = EPS

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """The function of the feed-forward network."""
        return gelu(x)  # (6)


def count_patches(size: tuple[int, int], patch: int) -> tuple[int, int]:
    """Rows and columns of patches of an image; one that they do not divide is refused."""
    height, width = size
    if patch < 1 or height < patch or width < patch or height % patch or width % patch:
        near = dict.fromkeys(zip(*(multiples_near(side, patch) for side in size), strict=True))
        raise ValueError(
            f"size ({height} x {width}) must be a multiple of patch ({patch}) on both sides, "
            f"because patches cover the image; try {' or '.join(f'{h} x {w}' for h, w in near)}"
        )
    return height // patch, width // patch


def multiples_near(side: int, patch: int) -> tuple[int, int]:
    """The nearest sides that patches divide, below or equal and above or equal, at least one."""
    patch = max(patch, 1)
    return max(1, side // patch) * patch, max(1, -(-side // patch)) * patch


# -------- the network ends here; training and pictures follow --------


@torch.no_grad()
def class_attention(
    model: ViT, x: Float[Tensor, "batch channels height width"]
) -> Float[Tensor, "batch layers heads tokens"]:
    """How much the class token reads of each token, itself first, in each head of each layer."""
    with record_weights(model) as found:
        model(x)
    return torch.stack([weights[0][:, :, 0] for weights in found.values()], 1).cpu().float()


@dataclass(frozen=True, kw_only=True)
class ViTImages(ImageClassification[ViT]):
    """Classify images by attention between their patches."""

    patch: int = 4
    """Side of a patch in pixels; it divides the sides of the images."""
    hidden_size: int = 64
    """Size of a token in every layer."""
    heads: int = 4
    """Heads of each attention."""
    feedforward_size: int = 128
    """Inner units of the feed-forward networks."""
    layers: int = 4
    """Layers of attention and feed-forward network."""
    dropout: float = 0.0
    """Share of tokens and of outputs of sublayers that is set to 0 in training."""
    positions_size: int = 0
    """Side of the images that positions are learned for; 0: that of the data. With size=0 images
    are brought to it; with another size positions are interpolated."""

    published: ClassVar[Published] = Published(
        model_type="vit",
        sizes={
            "patch_size": "patch", "hidden_size": "hidden_size", "num_attention_heads": "heads",
            "intermediate_size": "feedforward_size", "num_hidden_layers": "layers",
            "image_size": "positions_size",
        },
        fixed={
            "hidden_act": ("gelu",), "layer_norm_eps": (1e-12,), "qkv_bias": (True,),
        },
        names={
            "class_token": "embeddings.cls_token",
            "positions": "embeddings.position_embeddings",
            **{
                f"{ours}.{kind}": f"{theirs}.{kind}"
                for ours, theirs in {
                    "patches": "embeddings.patch_embeddings.projection",
                    "layers.{n}.around_attention.norm": "encoder.layer.{n}.layernorm_before",
                    "layers.{n}.around_feedforward.norm": "encoder.layer.{n}.layernorm_after",
                    "layers.{n}.attention.output": "encoder.layer.{n}.attention.output.dense",
                    "layers.{n}.feedforward.inner": "encoder.layer.{n}.intermediate.dense",
                    "layers.{n}.feedforward.output": "encoder.layer.{n}.output.dense",
                    "norm": "layernorm",
                    "head": "classifier",
                }.items()
                for kind in ("weight", "bias")
            },
            **{
                f"layers.{{n}}.attention.project.{kind}": tuple(
                    f"encoder.layer.{{n}}.attention.attention.{part}.{kind}"
                    for part in ("query", "key", "value")
                )
                for kind in ("weight", "bias")
            },
        },
        layers="num_hidden_layers",
        optional=frozenset({"head.weight", "head.bias"}),
        prefix="vit.",
        ignored=("pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"),
    )  # fmt: skip
    picture_activations = None  # type: ignore[assignment]  # tokens are no maps
    picture_network = None  # type: ignore[assignment]  # neither are they in a diagram of maps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "patch", "hidden_size", "heads", "feedforward_size", "layers")
        self.at_least(0, "positions_size")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")
        divides = self.hidden_size % self.heads == 0
        self.require(divides, "hidden_size", f"a multiple of heads ({self.heads})")
        for name in ("size", "positions_size"):
            side = getattr(self, name)
            near = " or ".join(map(str, dict.fromkeys(multiples_near(side, self.patch))))
            words = (
                f"a multiple of patch ({self.patch}), because patches cover the image; try {near}"
            )
            self.require(side % self.patch == 0, name, words)

    def dataset(self) -> Data:
        data = super(ViTImages, replace(self, size=self.size or self.positions_size)).dataset()
        start = self.start
        if start and not start.made_by and not start.path.endswith(".safetensors"):
            middle = [0.5] * data.spec["shape"][0]  # published networks saw pixels from -1 to 1
            return restandardize(data, middle, middle)
        return data

    def suited(self, data: Data) -> dict[str, Any]:
        """Positions for images as large as those of the run `start`, so that it gives them on."""
        found = super().suited(data)
        if self.positions_size or not self.start.made_by:
            return found
        source, (_, height, width) = self.start.recipe, data.spec["shape"]
        if isinstance(source, ViTImages) and source.patch == self.patch and height == width:
            side = source.positions_size or min(self.start.spec["shape"][1:])
            if side != height:
                found |= {"positions_size": side, "size": height}
        return found

    def model(self, data: Data) -> ViT:
        channels, height, width = data.spec["shape"]
        if height % self.patch or width % self.patch:
            side, _ = multiples_near(min(height, width), self.patch)
            raise UserError(
                f"data ({self.data}, {height} x {width} pixels) must have sides that patch "
                f"({self.patch}) divides, because patches cover the image; do size={side}"
            )
        side = self.positions_size
        return ViT(
            channels, len(data.spec["classes"]), size=(side, side) if side else (height, width),
            patch=self.patch, hidden_size=self.hidden_size, heads=self.heads,
            feedforward_size=self.feedforward_size, layers=self.layers, dropout=self.dropout,
        )  # fmt: skip

    def picture_attention(
        self, model: ViT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """How much the class token reads of each patch of one validation image, by layer and head.

        It gives {own:.0%} of its attention to itself, and half of the rest to {area:.0%} of the
        patches, on the mean over layers and heads.
        """
        x, _ = data.some("valid", torch.tensor([0]))
        weights = class_attention(model, x)[0]
        patches = weights[..., 1:]
        ordered = patches.sort(-1, descending=True).values.cumsum(-1)
        half = (ordered < ordered[..., -1:] / 2).double().mean(-1) + 1 / patches.shape[-1]
        values = {"own": float(weights[..., 0].mean()), "area": float(half.mean())}
        maps = patches.unflatten(-1, count_patches((x.shape[2], x.shape[3]), model.patch))
        return draw_class_attention(valid_images(data, torch.tensor([0]))[0], maps), values

    def picture_patches(
        self, model: ViT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images with their class, and below what the class token reads of each.

        A patch is the brighter the more the last layer reads of it, on the mean over its heads;
        {wrong:.0f} of the {shown:.0f} are wrong, with what the network took them for.
        """
        y, probabilities = predict_validation(model, data)
        sure, predicted = probabilities.max(1)
        wrong = (predicted != y).nonzero().flatten()[: SHOWN // 2]
        right = (predicted == y).nonzero().flatten()[: SHOWN - len(wrong)]
        rows = torch.cat([right, wrong])
        x, names = data.some("valid", rows)[0], data.spec["classes"]
        size = (x.shape[2], x.shape[3])
        last = class_attention(model, x)[:, -1, :, 1:].mean(1)
        maps = last.unflatten(1, count_patches(size, model.patch))[:, None]
        maps = interpolate(maps / maps.amax((2, 3), keepdim=True), size, mode="nearest")
        images = valid_images(data, rows).float()
        pairs = [*zip(rows.tolist(), images, images * (0.15 + 0.85 * maps), strict=True)]
        above = [(names[y[row]], image) for row, image, _ in pairs]
        below = [(f"{names[predicted[row]]} {sure[row]:.0%}", lit) for row, _, lit in pairs]
        values = {"wrong": float(len(wrong)), "shown": float(len(rows))}
        missed = (predicted != y)[rows].tolist()
        return picture_table([("image", above), ("attention", below)], wrong=missed), values

    def picture_positions(
        self, model: ViT, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Cosine of the learned position of each patch, a tile each, with those of all patches.

        Neighbours have a mean cosine of {near:.2f}, patches that are further apart one of
        {far:.2f}.
        """
        similarity = model.similarity().detach().cpu()
        rows, columns = model.grid
        place = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        apart = (place[:, None] - place).abs().amax(2).reshape(similarity.shape)
        near, far = (similarity[w].mean() if w.any() else 1.0 for w in (apart == 1, apart > 1))
        return draw_similarity(similarity), {"near": float(near), "far": float(far)}

    def tiny(self) -> Self:
        small = replace(self, hidden_size=8, heads=2, size=8, patch=4, positions_size=0)
        return super(ViTImages, replace(small, cutout=min(self.cutout, 2), holdout=True)).tiny()


RECIPES = {
    "vit": ViTImages(
        data="digits", size=32, patch=8, pixels=2.0, smoothing=0.1, steps=1500, batch_size=64,
        lr=5e-3, optimizer="adamw", weight_decay=0.05, schedule="cosine", warmup=100, clip=1.0,
        goal="accuracy >= 0.96", covers=("T2", "T7"),
    ),
    "vit-cifar": ViTImages(
        data="cifar10", holdout=False, pixels=4.0, degrees=15.0, scale=0.15, mirror=True,
        colour=0.3, cutout=8, mixup=0.2, smoothing=0.1, hidden_size=384, heads=6,
        feedforward_size=768, layers=7, steps=15_000, batch_size=512, lr=1e-3, optimizer="adamw",
        weight_decay=0.05, schedule="cosine", warmup=500, clip=1.0, ema=0.999, eval_every=2_500,
        goal="accuracy >= 0.8", covers=("T2", "T7"),
    ),
}  # fmt: skip
