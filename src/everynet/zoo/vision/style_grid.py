"""Content against style: one picture for each weight of the two, and for more and more layers.

A picture that descends alpha L_c + beta L_s keeps the less of its content the smaller alpha / beta
is. How large the patterns are that it takes from the style is decided by the deepest style layer:
one layer gives colours and grains, all of them whole strokes. With beta = 0 and noise to begin with
the content alone is painted again, which shows what the content layer still knows of it; with
alpha = 0 only the style is left, as a texture.

Gatys, Ecker, Bethge (2015), "A Neural Algorithm of Artistic Style", arXiv:1508.06576, Figures 1
and 3. Unlike the paper's, the ratios here go with layers whose mean is one and with sums as in its
equations, where the content loss grows with the number of pixels: a ratio of 1e-3 keeps the content
almost as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor

from everynet import plot
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.trained import Trained
from everynet.recipes.training import Training
from everynet.zoo.vision import photo_pair as pair
from everynet.zoo.vision.pictures.neural_style import picture_table
from everynet.zoo.vision.style import DEEPEST, StyleTransfer

CONTENT, STYLE = "content-only", "style-only"


def cell(layers: int, ratio: float) -> str:
    """The name of a cell."""
    return f"layers={layers},ratio={ratio:g}"


@dataclass(frozen=True, kw_only=True)
class StyleGrid(Experiment):
    """Learn the same picture with other weights of content and style, and by other layers."""

    meanings: ClassVar[Mapping[str, str]] = {
        "gram_fall": "fall of the style loss with the most weight on style: 1 is all of it",
        "gram_fall_first": "the same with the least weight on style",
        "content_correlation": "correlation with the content where the content alone is painted",
        "style_only_fall": "fall of the style loss where style alone is painted",
    }

    content: Path = Path()
    """The picture whose things are kept; empty takes a photograph from China."""
    style: Path = Path()
    """The picture whose colours and strokes are taken; empty takes a photograph of a flower."""
    size: int = 96
    """Pixels along the longer side; the style is cut to the shape of the content."""
    ratios: tuple[float, ...] = (1e-3, 1e-4, 1e-5, 1e-6)
    """Weights alpha / beta, falling."""
    layers: tuple[int, ...] = (1, 2, 3)
    """Numbers of style layers, rising."""
    features: str = "own"
    """own: those of the run `of` or of a network trained here; vgg19: the published ones."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of a network that tells images apart; empty trains a small one first."""
    training: int = 200
    """Updates of the small network that is trained where `of` is empty."""
    maps: int = 32
    """Feature maps of its first layer."""
    steps: int = 12
    """Updates of each picture."""
    iterations: int = 10
    """Steps that the optimiser takes in an update."""
    optimizer: str = "lbfgs"
    """As for style."""

    def __post_init__(self) -> None:
        super().__post_init__()
        falls = all(a > b > 0 for a, b in zip(self.ratios, self.ratios[1:], strict=False))
        fits = len(self.ratios) > 1 and falls
        self.require(fits, "ratios", "two or more positive numbers that fall")
        rises = all(a < b for a, b in zip(self.layers, self.layers[1:], strict=False))
        fits = rises and bool(self.layers) and 1 <= self.layers[0] <= self.layers[-1] <= DEEPEST
        self.require(fits, "layers", f"numbers from 1 to {DEEPEST} that rise")

    def cells(self) -> dict[str, Training[Any, Any]]:
        one = StyleTransfer(
            content=self.content, style=self.style, size=self.size, features=self.features,
            of=self.of, training=self.training, maps=self.maps, steps=self.steps,
            iterations=self.iterations, optimizer=self.optimizer, layers=self.layers[-1],
            eval_every=self.steps, seed=self.seed,
        )  # fmt: skip
        alone: dict[str, Training[Any, Any]] = {
            CONTENT: replace(one, alpha=1.0, beta=0.0, noise=1.0, steps=2 * self.steps),
            STYLE: replace(one, alpha=0.0, beta=1.0, noise=1.0),
        }
        pairs = product(self.layers, self.ratios)
        return alone | {
            cell(n, ratio): replace(one, layers=n, alpha=1.0, beta=1 / ratio) for n, ratio in pairs
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The two pictures as the cells see them."""
        first = next(iter(self.cells().values()))
        assert isinstance(first, StyleTransfer)
        content, style = first.pair()
        return {"content": content[0], "style": style[0]}

    def metrics(self, table: Table) -> dict[str, float]:
        deepest = [table.cells[cell(self.layers[-1], ratio)].last for ratio in self.ratios]
        return {
            "gram_fall": deepest[-1]["gram_fall"],
            "gram_fall_first": deepest[0]["gram_fall"],
            "content_correlation": table.cells[CONTENT].last["content_correlation"],
            "style_only_fall": table.cells[STYLE].last["gram_fall"],
        }

    def picture_grid(self, table: Table) -> Figure:
        """The learned picture by the weight of the content, and by the number of style layers.

        The content fades to the right, where its weight falls, and patterns grow downwards, with
        more layers.
        """
        rows = []
        for n in self.layers:
            titles = [f"{ratio:g}" if n == self.layers[0] else "" for ratio in self.ratios]
            images = [_pixels(table, cell(n, ratio)) for ratio in self.ratios]
            name = f"{n} style layer" + "s" * (n > 1)
            rows.append((name, [*zip(titles, images, strict=True)]))
        return picture_table(rows, title="weight of the content, alpha / beta")

    def picture_alone(self, table: Table) -> Figure:
        """Content and style, and what is painted from noise by the loss of one alone.

        The content layer brings back the things themselves, the Gram matrices a texture without
        things.
        """
        found = {name: _pixels(table, name) for name in (CONTENT, STYLE)}
        content = [("content", table.result["content"]), ("content alone", found[CONTENT])]
        style = [("style", table.result["style"]), ("style alone", found[STYLE])]
        return picture_table([("", content), ("", style)])

    def picture_trade(self, table: Table) -> Figure:
        """Fall of the style loss, and correlation with the content, by the weight of the content.

        One is bought with the other.
        """
        last = [table.cells[cell(self.layers[-1], ratio)].last for ratio in self.ratios]
        named = {"style loss, fallen by": "gram_fall", "correlation": "content_correlation"}
        ratios = torch.tensor(self.ratios, dtype=torch.float64)
        curves = {n: (ratios, torch.tensor([x[key] for x in last])) for n, key in named.items()}
        panel = plot.Panel(
            curves, "alpha / beta", "share", "content against style", log="x", ylim=(-0.05, 1.05)
        )
        return plot.panels(panel, width=6.5, height=3.2)

    def tiny(self) -> Self:
        return replace(
            self, content=Path(), style=Path(), size=pair.LEAST + 16, features="own", of=Trained(),
            training=2, maps=2, steps=2, iterations=1, ratios=(1e-3, 1e-5), layers=(2,),
        )  # fmt: skip


@torch.no_grad()
def _pixels(table: Table, name: str) -> Tensor:
    """The picture that a cell has learned."""
    pixels: Tensor = table.cells[name].network()()[0]
    return pixels.float()


RECIPES = {
    "style-grid": StyleGrid(
        goal="gram_fall >= 0.9 and content_correlation >= 0.9", covers=("C29",)
    ),
}
