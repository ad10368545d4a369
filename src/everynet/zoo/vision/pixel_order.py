"""A fixed shuffle of the pixels: what it costs a convolutional network, and not a perceptron.

    (Q x)_i    = x_q(i)                                 (1)  one order of pixels for all images
    M(Q x; W)  = M(x; W'),  W'_uj = W_{u, q^-1(j)}      (2)  to an MLP any order is the same

i and j are pixels, q is a permutation of them, M is an MLP and W the weights of its first layer. A
convolutional layer looks at neighbours only, and with the same weights everywhere. Both fit images,
as `image_statistics.py` measures: pixels near each other are hidden_units_for, and what neighbours
say of a pixel is the same everywhere. A shuffle (1) keeps all information and breaks both. To a
fully connected layer it is but another numbering of its inputs: by (2) every function it can
compute is still there, as near as before to where learning begins.

Goodfellow, Bengio, Courville (2016), "Deep Learning", section 9.4, for convolution as a prior;
LeCun, Bengio, Hinton (2015), "Deep learning", doi:10.1038/nature14539.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.data.images.standardize import Standardize
from everynet.plot.images import image_grid
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator, mix
from everynet.zoo.feedforward.mlp import MLP
from everynet.zoo.optimisation.few_images import FewImages
from everynet.zoo.vision.cnn import CNN
from everynet.zoo.vision.image_statistics import at_home, correlation, elsewhere, transfer
from everynet.zoo.vision.photo import photograph

ORDER = 5  # of the pixels, among what is drawn from a seed


def reorder(
    x: Shaped[Tensor, "*batch height width"], order: Int[Tensor, " pixels"]
) -> Shaped[Tensor, "*batch height width"]:
    """Every image with its pixels in another order, the same for all."""
    return x.flatten(-2)[..., order].view_as(x)  # (1)


def renumber(
    weight: Float[Tensor, "units inputs"], order: Int[Tensor, " pixels"]
) -> Float[Tensor, "units inputs"]:
    """The weights that see of images in their own order what these see of reordered ones."""
    channels = weight.unflatten(1, (-1, len(order)))
    moved: Tensor = channels[..., order.argsort()].flatten(1)  # (2)
    return moved


def hidden_units_for(inputs: int, classes: int, parameters: int) -> int:
    """The hidden units that give a perceptron about so many parameters."""
    return max(1, round((parameters - classes) / (inputs + 1 + classes)))


@dataclass(frozen=True, kw_only=True)
class ImagesInOrder(FewImages[nn.Module]):
    """Tell images apart whose pixels are in their places, or all in one other order."""

    kinds: ClassVar[tuple[str, ...]] = ("image",)

    network: str = "cnn"
    shuffled: bool = False
    widths: tuple[int, ...] = (16, 32, 64)

    def dataset(self) -> Data:
        data = super().dataset()
        if data.mapped:
            raise UserError(
                f"data ({self.data}) must fit in memory, because all its pixels are put in another "
                "order; give fewer images"
            )
        if not self.shuffled:
            return data
        order = self.order(data)
        splits = {name: (reorder(x, order), *rest) for name, (x, *rest) in data.splits.items()}
        return replace(data, splits=splits)

    def order(self, data: Data) -> Int[Tensor, " pixels"]:
        """The order that pixels are put in, which the seed decides."""
        pixels = math.prod(data.spec["shape"][1:])
        return torch.randperm(pixels, generator=generator(self.seed, ORDER))

    def model(self, data: Data) -> nn.Module:
        """The convolutional network, or a perceptron with about as many parameters."""
        shape, classes = data.spec["shape"], len(data.spec["classes"])
        least = 2 ** (len(self.widths) - 1)
        if min(shape[1:]) < least:
            raise UserError(
                f"widths ({','.join(map(str, self.widths))}) must be fewer, because all layers but "
                f"the last halve images of {shape[1]} x {shape[2]}"
            )
        cnn = CNN(shape[0], classes, widths=self.widths)
        if self.network == "cnn":
            return cnn
        inputs = math.prod(shape)
        parameters = sum(p.numel() for p in cnn.parameters())
        return MLP((inputs, hidden_units_for(inputs, classes, parameters), classes))


ORDERS = ("ordered", "shuffled")
KINDS = tuple(product(("cnn", "mlp"), ORDERS))
NAMES = {"cnn": "convolutional", "mlp": "perceptron"}
DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True, kw_only=True)
class PixelOrder(Experiment):
    """Teach two networks of one size the same images, in the pixels' order and in another."""

    meanings: ClassVar[Mapping[str, str]] = {
        "cnn_ordered": "accuracy of the convolutional network on images as they are",
        "cnn_shuffled": "the same with all pixels shuffled",
        "mlp_ordered": "accuracy of the perceptron on images as they are",
        "mlp_shuffled": "the same with all pixels shuffled",
        "cnn_lost": "accuracy that the shuffle costs the convolutional network",
        "mlp_lost": "accuracy that it costs the perceptron",
        "renumbered_error": "largest difference of logits with renumbered weights: rounding",
        "size_ratio": "parameters of the perceptron divided by those of the convolutional network",
        "correlation_near": "correlation of neighbouring pixels, the least",
        "correlation_far": "correlation of the most distant pixels, the largest",
        "correlation_rises": "distances at which correlation rises: none where it always falls",
        "correlation_shuffled": "largest correlation of neighbours after the shuffle",
        "explained_here": "share of a pixel's variance that its neighbours explain, the least",
        "explained_elsewhere": "the same by weights that were fitted elsewhere in the image",
        "explained_shuffled": "the same after the shuffle, the most",
    }

    data: str = "strokes:6000"
    """Images with a class each."""
    rows: int = 2000
    """Training images, chosen by the seed."""
    widths: tuple[int, ...] = (16, 32, 64)
    """Maps of the convolutional network's layers; the perceptron gets as many parameters."""
    steps: int = 300
    """Updates of each network."""
    batch_size: int = 50
    """Images an update sees."""
    lr: float = 2e-3
    """Learning rate of Adam, which falls in a half cosine to 0."""
    repeats: int = 3
    """Networks of each kind: other images, weights and orders."""
    photos: tuple[str, ...] = ("china", "flower")
    """What neighbours are looked at in: china, flower or image files."""
    blocks: tuple[int, int] = (3, 4)
    """Parts of a photo down and across, in each of which a pixel is learned from its neighbours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(min(self.widths, default=0) >= 1, "widths", "one or more numbers from 1 up")
        self.at_least(1, "steps", "batch_size", "repeats")
        self.require(self.rows >= self.batch_size, "rows", "at least batch_size")
        self.above(0, "lr")
        self.require(1 <= len(self.photos) <= 4, "photos", "one to four")
        fits = min(self.blocks) >= 1 and 2 <= math.prod(self.blocks) <= 64
        self.require(fits, "blocks", "two numbers from 1 up, 2 to 64 blocks in all")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{network}-{order}-{repeat}": ImagesInOrder(
                network=network, shuffled=order == "shuffled", widths=self.widths,
                data=self.data, rows=self.rows, steps=self.steps, batch_size=self.batch_size,
                lr=self.lr, optimizer="adam", schedule="cosine",
                eval_every=max(1, self.steps // 10), seed=mix(self.seed, repeat),
            )
            for repeat, (network, order) in product(range(self.repeats), KINDS)
        }  # fmt: skip

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Locality and stationarity of the photos, as they are and with their pixels shuffled."""
        found: dict[str, list[Tensor]] = {}
        for photo in self.photos:
            image = photograph(photo, least=2 * DISTANCES[-1])[None]
            order = torch.randperm(image.numel(), generator=generator)
            for name, x in (("ordered", image), ("shuffled", reorder(image, order))):
                explained, power = transfer(x, *self.blocks)
                falls = [correlation(x, d) for d in DISTANCES]
                by_distance = torch.tensor(falls, dtype=torch.float64)
                found.setdefault(f"correlation_{name}", []).append(by_distance)
                found.setdefault(f"explained_{name}", []).append(explained)
                found.setdefault(f"power_{name}", []).append(power)
        return {name: torch.stack(values) for name, values in found.items()}

    def accuracy(self, table: Table, network: str, order: str) -> Float[Tensor, "repeats looks"]:
        """On the validation images, at each look; nothing is known of a network that diverged."""
        cells = [table.cells[f"{network}-{order}-{repeat}"] for repeat in range(self.repeats)]
        whole = [cell for cell in cells if cell.diverged is None]
        if len(whole) < len(cells):
            return torch.full((len(cells), 1), math.nan, dtype=torch.float64)
        return torch.stack([cell.valid["accuracy"] for cell in cells])

    def metrics(self, table: Table) -> dict[str, float]:
        ends = {
            f"{network}_{order}": float(self.accuracy(table, network, order)[:, -1].mean())
            for network, order in KINDS
        }
        near = table.result["correlation_ordered"]
        shuffled = elsewhere(table.result["explained_shuffled"], table.result["power_shuffled"])
        here, there = (
            by(table.result["explained_ordered"], table.result["power_ordered"])
            for by in (at_home, elsewhere)
        )
        return {
            **ends,
            "cnn_lost": ends["cnn_ordered"] - ends["cnn_shuffled"],
            "mlp_lost": ends["mlp_ordered"] - ends["mlp_shuffled"],
            "renumbered_error": self.renumbered(table),
            "size_ratio": self.size_ratio(table),
            "correlation_near": float(near[:, 0].min()),
            "correlation_far": float(near[:, -1].max()),
            "correlation_rises": float((near.diff(dim=1) > 0).sum()),
            "correlation_shuffled": float(table.result["correlation_shuffled"].abs().max()),
            "explained_here": float(here.min()),
            "explained_elsewhere": float(there.min()),
            "explained_shuffled": float(shuffled.max()),
        }

    @torch.no_grad()
    def renumbered(self, table: Table) -> float:
        """How far the logits of a perceptron on shuffled images are from those that (2) gives."""
        cell = table.cells["mlp-shuffled-0"]
        if cell.diverged is not None:
            return math.nan
        assert isinstance(cell.recipe, ImagesInOrder)
        shuffled, net = cell.recipe.dataset(), cell.network()
        ordered = replace(cell.recipe, shuffled=False).dataset()
        rows = torch.arange(min(100, ordered.rows("valid")))
        (x, _), (mixed, _) = (data.some("valid", rows) for data in (ordered, shuffled))
        first = next(net.parameters())
        expected = net(mixed.to(first))
        first.copy_(renumber(first, cell.recipe.order(ordered)))
        return float((net(x.to(first)) - expected).abs().max())

    def size_ratio(self, table: Table) -> float:
        """Parameters of the perceptron over those of the convolutional network."""
        sizes = []
        for network in ("mlp", "cnn"):
            cell = table.cells[f"{network}-ordered-0"]
            if cell.diverged is not None:
                return math.nan
            sizes.append(sum(p.numel() for p in cell.network().parameters()))
        return sizes[0] / sizes[1]

    def picture_accuracy(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Accuracy on validation images during training, with ordered and with shuffled pixels.

        The shuffle costs the convolutional network, left, {cnn:.1%} of the answers and the
        perceptron of the same size, right, {mlp:.1%}.
        """
        shown = []
        for network, title in NAMES.items():
            steps = table.cells[f"{network}-ordered-0"].steps
            curves = {order: self.accuracy(table, network, order) for order in ORDERS}
            there = {order: values for order, values in curves.items() if values.shape[1] > 1}
            panel = Panel(
                {order: (steps, values.mean(0)) for order, values in there.items()},
                xlabel="update", ylabel="accuracy on validation images", title=title,
                bands={order: (values.amin(0), values.amax(0)) for order, values in there.items()},
                ylim=(0.0, 1.02), legend="lower right",
            )  # fmt: skip
            shown.append(panel)
        found = self.metrics(table)
        return panels(*shown, width=3.25), {name: found[f"{name}_lost"] for name in NAMES}

    def picture_images(self, table: Table) -> Figure:
        """The same images as they are, top, and with their pixels in one other order, bottom.

        Nothing is lost but who is whose neighbour.
        """
        shown, captions = [], []
        for order in ORDERS:
            data = table.cells[f"cnn-{order}-0"].recipe.dataset()
            x, y = data.some("valid", torch.arange(min(4, data.rows("valid"))))
            plain = Standardize.of(data.spec).to_data_units(x)
            shown.append(plain if plain.shape[1] in (1, 3) else plain.mean(1, keepdim=True))
            captions += [f"{data.spec['classes'][int(k)]}, {order}" for k in y]
        return image_grid(torch.cat(shown), captions=captions, columns=len(shown[0]))

    def picture_locality(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Correlation of two pixels by distance, left, and what neighbours explain of one, right.

        On average neighbours correlate by {near:.2f} and the pixels furthest apart by {far:.2f};
        weights fitted in one block explain {others:.0%} of a pixel of the others.
        """
        result, far = table.result, torch.tensor(DISTANCES)
        names = [Path(photo).stem for photo in self.photos]
        curves = zip(names, result["correlation_ordered"], strict=True)
        locality = Panel(
            {
                **{name: (far, values) for name, values in curves},
                "shuffled": (far, result["correlation_shuffled"].mean(0)),
            },
            xlabel="distance / pixels", ylabel="correlation of two pixels", title="locality",
            ylim=(-0.05, 1.5), legend="upper right",
        )  # fmt: skip
        explained = result["explained_ordered"][0]
        block, off = torch.arange(1, len(explained) + 1), ~torch.eye(len(explained)).bool()

        def others(matrix: Tensor) -> Float[Tensor, "blocks others"]:
            return torch.stack([row[mask] for row, mask in zip(matrix.T, off.T, strict=True)])

        name, there = "by a rule of other blocks", others(explained)
        shuffled = others(result["explained_shuffled"][0])
        stationarity = Panel(
            {
                "by its own rule": (block, explained.diag()),
                name: (block, there.mean(1)),
                "the same, shuffled": (block, shuffled.mean(1)),
            },
            bands={name: (there.amin(1), there.amax(1))}, xlabel=f"block of {names[0]}",
            ylabel="share of a pixel explained", title="stationarity", ylim=(-0.05, 1.5),
            legend="upper right",
        )  # fmt: skip
        near, apart = result["correlation_ordered"].mean(0)[[0, -1]].tolist()
        values = {"near": near, "far": apart, "others": float(there.mean())}
        return panels(locality, stationarity, width=3.25), values

    def tiny(self) -> Self:
        small = replace(super().tiny(), data="digits", rows=40, widths=(2, 2))
        return replace(small, photos=("china",), blocks=(1, 2))


RECIPES = {
    "pixel-order": PixelOrder(
        goal="cnn_lost >= 0.05 and mlp_lost <= 0.02 and renumbered_error <= 1e-4 "
        "and correlation_near >= 0.9 and correlation_rises == 0 and correlation_shuffled <= 0.05 "
        "and explained_elsewhere >= 0.9 and explained_shuffled <= 0.05",
        covers=("C10",),
    ),
}
