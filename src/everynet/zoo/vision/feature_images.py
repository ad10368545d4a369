"""Activation maximisation: the image that drives a unit most, found by walking up its gradient.

    E(x) = log(1 + a(T x) / m) - l2 mean(z^2) - tv V(z)              (1)  what is raised
    V(z) = mean |z(i+1, j) - z(i, j)| + mean |z(i, j+1) - z(i, j)|   (2)  total variation
    x <- clip(x + lr g / rms(g), black, white),  g = B grad E(x)     (3)  a step up; B blurs
    d = a(x*) / m                                                    (4)  drive

a is the activation of one map of a layer at the middle place, or the probability of a class; m is
its mean over images and places; z is x less black. T moves the image by a few random pixels before
each step. Without (2), T, B and the limits of (3) the best image would be noise that no eye reads.
A silent unit has no gradient, so the walk begins with the image that drives it most, moved so that
the place where it does is the middle.

Erhan, Bengio, Courville, Vincent (2009), "Visualizing Higher-Layer Features of a Deep Network",
University of Montreal, report 1341; Simonyan, Vedaldi, Zisserman (2013), "Deep Inside Convolutional
Networks", arXiv:1312.6034, section 2; Olah, Mordvintsev, Schubert (2017), "Feature Visualization",
doi:10.23915/distill.00007, for the jitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from everynet.data.dataset import Data
from everynet.data.images.standardize import Standardize
from everynet.nn.layers import activations
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Pictures, Simulation
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.wording import nearest
from everynet.training.loop import trained
from everynet.zoo.vision.classifier import check_image_run, image_run
from everynet.zoo.vision.cnn import Photographs
from everynet.zoo.vision.pictures.features import driven

Images = Float[Tensor, "images channels height width"]
AT_ONCE = 250  # images that go through the network together
SEEN = 500  # validation images whose activations are averaged
BEST = 3  # of them those that drive a unit most are shown


def variation(z: Images) -> Float[Tensor, " images"]:
    """How much neighbours differ."""
    down, right = z.diff(dim=2).abs().mean((1, 2, 3)), z.diff(dim=3).abs().mean((1, 2, 3))
    return down + right  # (2)


def blurred(g: Images) -> Images:
    """The mean over neighbours with weights 1, 2, 1 along each axis: stripes of a pixel vanish."""
    for before, after in ((1, 0), (0, 1)):
        g = avg_pool2d(pad(g, (before, after) * 2, mode="replicate"), 2, 1)
    return g


def rise(x: Images, g: Images, lr: float, low: Tensor, high: Tensor) -> Images:
    """One step up the gradient, of the same size for every image, within black and white."""
    g = blurred(g)
    rms = g.square().mean((1, 2, 3), keepdim=True).sqrt()
    return torch.minimum(torch.maximum(x + lr * g / rms.clamp(min=1e-30), low), high)  # (3)


@contextmanager
def watched(model: nn.Module, name: str) -> Iterator[list[Tensor]]:
    """What the module of that name makes, with its gradient, whenever the model is called."""
    made: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(
        lambda _module, _given, output: made.append(output)
    )
    try:
        yield made
    finally:
        handle.remove()


def at_middle(maps: Float[Tensor, "images maps rows columns"]) -> Float[Tensor, "images maps"]:
    """The middle place of each map."""
    return maps[:, :, maps.shape[2] // 2, maps.shape[3] // 2]


def climb(
    units: Callable[[Images], Float[Tensor, "images units"]],
    begun: tuple[Images, Int[Tensor, " images"]],
    settings: Ascent,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
) -> tuple[Images, Float[Tensor, "steps images"]]:
    """Images that drive their unit ever more, and its activation at each step."""
    x, wanted = begun
    ways, row = [], torch.arange(len(x))
    for step in range(settings.steps):
        still = step >= settings.steps * 3 // 4  # the last quarter stands still
        most = 0 if still else settings.jitter
        down, right = torch.randint(-most, most + 1, (2,), generator=generator).tolist()
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            a = units(x.roll((down, right), (2, 3)))[row, wanted]  # in units of m
            z = x - limits[0]
            cost = settings.l2 * z.square().mean((1, 2, 3)) + settings.tv * variation(z)
            e = (1 + a).clamp(min=0.1).log() - cost  # (1)
            (g,) = torch.autograd.grad(e.sum(), x)
        ways.append(a.detach())
        shrinking = settings.lr * (1 - step / settings.steps)
        x = rise(x.detach(), g, shrinking, *limits)
    return x, torch.stack(ways)


@dataclass(frozen=True, kw_only=True)
class Ascent(Simulation):
    """The images that drive units and classes of a trained network most."""

    captions: ClassVar[Mapping[str, str]] = {
        "units": (
            "Above, the image made for each unit of the layer, and how much more than the mean it "
            "drives it: bright is what counts; below, the patches of validation images that drive "
            "it most."
        ),
        "classes": (
            "Above, images made smooth and dark as far as the network stays sure of their class: "
            "what is left is what it looks for; below, the validation images it is surest of."
        ),
        "ascent": (
            "The activation of units (left) and the probability of classes (right) as their images "
            "are changed step by step; the jitter ends after three quarters of the steps."
        ),
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "drive": (
            "what the made image does to its unit or class, as a multiple of images' mean; the "
            "least"
        ),
        "unit_drive": "the same of units, the median",
        "class_drive": "the same of classes, the median",
    }

    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of a network that tells images apart; empty trains a small CNN on strokes first."""
    layer: str = ""
    """Module whose maps are looked at; empty is the last that gives maps of more than a pixel."""
    units: int = 8
    """Maps of the layer for which images are made, the first that are not silent."""
    steps: int = 120
    """Steps up the gradient."""
    lr: float = 0.1
    """Length of the first step, a root of a mean square over pixels; it falls to 0 evenly."""
    l2: float = 0.1
    """Weight of the mean square of what is not black."""
    tv: float = 3.0
    """Weight of the total variation."""
    jitter: int = 2
    """Pixels by which the image is moved at most before a step."""
    learned: int = 300
    """Updates of the CNN that is trained where `of` is empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("units", "steps", "learned"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        for name in ("l2", "tv", "jitter"):
            self.require(getattr(self, name) >= 0, name, "at least 0")
        self.require(self.lr > 0, "lr", "a positive number")

    def ready(self) -> None:
        if self.of:
            check_image_run(self.of, "images are made for it")

    def network(self) -> tuple[nn.Module, Data]:
        """The network, in float64, and its data."""
        if not self.of:
            recipe = Photographs(
                data="strokes:2000", widths=(8, 16, 16), steps=self.learned, lr=1e-2,
                schedule="one-cycle", seed=self.seed,
            )  # fmt: skip
            data = recipe.dataset()
            return trained(recipe, data).double(), data
        self.ready()
        return image_run(self.of)

    def chosen(self, model: nn.Module, x: Images) -> str:
        """The name of the layer."""
        names = [name for name, _ in model.named_modules() if name]
        made = activations(model, x[:1], names)
        maps = [n for n, t in made.items() if t.dim() == 4 and min(t.shape[2:]) > 1]
        if not maps:
            raise UserError(
                f"of ({self.of}) must have a layer of maps, because units of one are driven; try a "
                "run of lenet"
            )
        if self.layer and self.layer not in maps:
            raise UserError(
                f"layer ({self.layer}) must be a module that gives maps" + nearest(self.layer, maps)
            )
        return self.layer or max(maps, key=[*made].index)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        model, data = self.network()
        model.requires_grad_(False).eval()
        seen = torch.cat([x[:SEEN] for x, _ in data.valid])[:SEEN].double()
        name = self.chosen(model, seen)
        with watched(model, name) as made:
            parts = [model(x).softmax(1) for x in seen.split(AT_ONCE)]
            maps, sure = torch.cat(made), torch.cat(parts)
        mean = maps.mean((0, 2, 3))
        loud = (mean > 1e-6).nonzero().flatten()[: self.units]
        self.require(len(loud) > 0, "layer", "one with a map that is not silent on average")
        std = torch.tensor(data.spec["std"], dtype=torch.float64)[:, None, None]
        grey = torch.tensor(data.spec["mean"], dtype=torch.float64)[:, None, None]
        limits = (0 - grey) / std, (1 - grey) / std

        def unit(x: Tensor) -> Tensor:
            with watched(model, name) as made:
                model(x)
            return at_middle(made[0]) / mean

        def says(x: Tensor) -> Tensor:
            logits: Tensor = model(x)
            return logits.softmax(1) / sure.mean(0)

        kinds = torch.arange(sure.shape[1])
        surest = sure.topk(min(BEST, len(sure)), 0).indices.T
        first = _centred(seen, maps[:, loud], limits[0])
        driving, way = climb(unit, (first, loud), self, limits, generator)
        ideal, said = climb(says, (seen[surest[:, 0]], kinds), self, limits, generator)
        with torch.no_grad():
            unit_drive = unit(driving)[torch.arange(len(loud)), loud]  # (4)
            class_drive = says(ideal).diagonal()
        field = _field(unit, driving[:1].clone(), int(loud[0]))
        best = _patches(seen, maps[:, loud], field)
        undo = Standardize.of(data.spec).to_data_units
        return {
            "units": loud,
            "images": undo(driving.float()),
            "patches": undo(best.flatten(0, 1).float()).unflatten(0, best.shape[:2]),
            "unit_drive": unit_drive,
            "unit_way": way,
            "class_images": undo(ideal.float()),
            "class_best": undo(seen[surest.flatten()].float()).unflatten(0, (len(kinds), -1)),
            "class_drive": class_drive,
            "class_way": said * sure.mean(0),
            "names": torch.tensor(list("\n".join([name, *data.spec["classes"]]).encode())),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        both = torch.cat([result["unit_drive"], result["class_drive"]])
        return {
            "drive": both.min().item(),
            "unit_drive": result["unit_drive"].median().item(),
            "class_drive": result["class_drive"].median().item(),
        }

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        layer, *classes = bytes(result["names"].tolist()).decode().split("\n")
        units = [f"map {int(k) + 1}" for k in result["units"]]
        steps = torch.arange(1, len(result["unit_way"]) + 1)
        return {
            "units": driven(
                result["images"],
                result["patches"],
                [f"{n}\n{d:.0f} x" for n, d in zip(units, result["unit_drive"], strict=True)],
                title=f"maps of {layer}: what drives the middle place",
            ),
            "classes": driven(
                result["class_images"][:10],
                result["class_best"][:10],
                [
                    f"{n}\n{p:.0%}"
                    for n, p in zip(classes[:10], result["class_way"][-1], strict=False)
                ],
                title="classes: what the network is surest of",
            ),
            "ascent": panels(
                Panel(
                    {n: (steps, way) for n, way in zip(units, result["unit_way"].T, strict=True)},
                    "steps up",
                    "activation / its mean over images",
                    layer,
                    levels={"goal": 5.0},
                    legend="none",
                ),
                Panel(
                    {
                        n: (steps, way)
                        for n, way in zip(classes[:10], result["class_way"].T, strict=False)
                    },
                    "steps up",
                    "probability",
                    "classes",
                    legend="none",
                ),
                width=3.25,
                height=2.8,
            ),
        }

    def tiny(self) -> Self:
        return replace(self, steps=4, units=2, learned=2)


def _field(
    unit: Callable[[Tensor], Tensor], x: Float[Tensor, "1 channels height width"], k: int
) -> tuple[int, int]:
    """How many pixels high and wide is what the middle place of a map sees."""
    with torch.enable_grad():
        x = torch.randn_like(x).requires_grad_()
        (g,) = torch.autograd.grad(unit(x)[0, k], x)
    rows, columns = (g[0].abs().amax((0, axis)).nonzero().flatten() for axis in (2, 1))
    if not len(rows):
        return x.shape[2], x.shape[3]
    return int(rows.max() - rows.min()) + 1, int(columns.max() - columns.min()) + 1


def _centred(
    x: Images, maps: Float[Tensor, "images units rows columns"], black: Tensor
) -> Float[Tensor, "units channels height width"]:
    """For each unit the image that drives it most, moved so that it does so in the middle."""
    (height, width), (rows, columns) = x.shape[2:], maps.shape[2:]
    found = []
    for unit in range(maps.shape[1]):
        image, place = divmod(int(maps[:, unit].argmax()), rows * columns)
        row, column = divmod(place, columns)
        top = height + round((rows // 2 - row) * height / rows)
        left = width + round((columns // 2 - column) * width / columns)
        framed = black.expand(-1, 3 * height, 3 * width).clone()
        framed[:, top : top + height, left : left + width] = x[image]
        found.append(framed[:, height : 2 * height, width : 2 * width])
    return torch.stack(found)


def _patches(
    x: Images, maps: Float[Tensor, "images units rows columns"], field: tuple[int, int]
) -> Float[Tensor, "units best channels high wide"]:
    """The patches of images around the places that drive each unit most, one an image."""
    high, wide = (min(f, side) for f, side in zip(field, x.shape[2:], strict=True))
    rows, columns = maps.shape[2:]
    found = []
    for unit in range(maps.shape[1]):
        values, places = maps[:, unit].flatten(1).max(1)
        for image in values.argsort(descending=True)[:BEST].tolist():
            row, column = divmod(int(places[image]), columns)
            top = round((row + 0.5) * x.shape[2] / rows - high / 2)
            left = round((column + 0.5) * x.shape[3] / columns - wide / 2)
            top = min(max(top, 0), x.shape[2] - high)
            left = min(max(left, 0), x.shape[3] - wide)
            found.append(x[image, :, top : top + high, left : left + wide])
    return torch.stack(found).reshape(maps.shape[1], -1, x.shape[1], high, wide)


# Seed 0 on one CPU thread, about 12 s: what is made drives the least driven of its units and
# classes 8.6 times as much as the mean of the images.
RECIPES = {
    "feature-images": Ascent(
        goal="drive >= 5",
        covers=("C13",),
    ),
}
