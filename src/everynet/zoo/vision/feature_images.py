"""Activation maximisation: the image that drives a unit most, found by gradient ascent.

    E(x) = log(1 + a(T x) / m) - l2 mean(z^2) - tv V(z)              (1)  objective, maximised
    V(z) = mean |z(i+1, j) - z(i, j)| + mean |z(i, j+1) - z(i, j)|   (2)  total total_variation
    x <- clip(x + lr g / rms(g), black, white),  g = B grad E(x)     (3)  gradient ascent; B blurs
    d = a(x*) / m                                                    (4)  drive of the image x*

a is the activation of a unit, which is the middle pixel of one feature map of a layer, or the
probability of a class; m is its mean over images and pixels; z is x less black. T is a jitter by a
few random pixels before each step. Without (2), T, B and the limits of (3) the best image would be
noise that no eye reads. A silent unit has no gradient, so the ascent begins with the image that
drives it most, moved so that the place where it does is the middle.

Erhan, Bengio, Courville, Vincent (2009), "Visualizing Higher-Layer Features of a Deep Network",
University of Montreal, report 1341; Simonyan, Vedaldi, Zisserman (2013), "Deep Inside Convolutional
Networks", arXiv:1312.6034, section 2; Olah, Mordvintsev, Schubert (2017), "Feature Visualization",
doi:10.23915/distill.00007, for the jitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from everynet.data.dataset import Data
from everynet.data.images.standardize import Standardize
from everynet.nn.layers import activations
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.wording import nearest
from everynet.training.loop import trained
from everynet.zoo.vision.classifier import check_image_run, image_run
from everynet.zoo.vision.cnn import CNNPhotographs
from everynet.zoo.vision.pictures.features import driving_images

Images = Float[Tensor, "images channels height width"]
AT_ONCE = 250  # images that go through the network together
SEEN = 500  # validation images whose activations are averaged
BEST = 3  # of them those that drive a unit most are shown


def total_variation(z: Images) -> Float[Tensor, " images"]:
    """The mean difference of neighbouring pixels."""
    down, right = z.diff(dim=2).abs().mean((1, 2, 3)), z.diff(dim=3).abs().mean((1, 2, 3))
    return down + right  # (2)


def blur(g: Images) -> Images:
    """The mean over neighbours with weights 1, 2, 1 along each axis: stripes of a pixel vanish."""
    for before, after in ((1, 0), (0, 1)):
        g = avg_pool2d(pad(g, (before, after) * 2, mode="replicate"), 2, 1)
    return g


def ascent_step(x: Images, g: Images, lr: float, low: Tensor, high: Tensor) -> Images:
    """One step up the gradient, of the same size for every image, within black and white."""
    g = blur(g)
    rms = g.square().mean((1, 2, 3), keepdim=True).sqrt()
    return torch.minimum(torch.maximum(x + lr * g / rms.clamp(min=1e-30), low), high)  # (3)


@contextmanager
def layer_output(model: nn.Module, name: str) -> Iterator[list[Tensor]]:
    """Outputs of the module of that name, with their gradient, whenever the model is called."""
    outputs: list[Tensor] = []
    handle = model.get_submodule(name).register_forward_hook(
        lambda _module, _inputs, output: outputs.append(output)
    )
    try:
        yield outputs
    finally:
        handle.remove()


def middle_pixel(maps: Float[Tensor, "images maps rows columns"]) -> Float[Tensor, "images maps"]:
    """The middle pixel of each feature map."""
    return maps[:, :, maps.shape[2] // 2, maps.shape[3] // 2]


def ascend(
    units: Callable[[Images], Float[Tensor, "images units"]],
    x: Images,
    unit: Int[Tensor, " images"],
    settings: ActivationMaximisation,
    *,
    limits: tuple[Tensor, Tensor],
    generator: torch.Generator,
) -> tuple[Images, Float[Tensor, "steps images"]]:
    """Images that drive their unit ever more, and its activation at each step."""
    path, row = [], torch.arange(len(x))
    for step in range(settings.steps):
        still = step >= settings.steps * 3 // 4  # the last quarter stands still
        jitter = 0 if still else settings.jitter
        down, right = torch.randint(-jitter, jitter + 1, (2,), generator=generator).tolist()
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            a = units(x.roll((down, right), (2, 3)))[row, unit]  # in units of m
            z = x - limits[0]
            cost = settings.l2 * z.square().mean((1, 2, 3)) + settings.tv * total_variation(z)
            e = (1 + a).clamp(min=0.1).log() - cost  # (1)
            (g,) = torch.autograd.grad(e.sum(), x)
        path.append(a.detach())
        lr = settings.lr * (1 - step / settings.steps)
        x = ascent_step(x.detach(), g, lr, *limits)
    return x, torch.stack(path)


@dataclass(frozen=True, kw_only=True)
class ActivationMaximisation(Simulation):
    """The images that drive units and classes of a trained network most."""

    meanings: ClassVar[Mapping[str, str]] = {
        "drive": "activation of a made image divided by the mean over images, the least",
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
    """Root mean square of the first step over pixels; it falls to 0 linearly."""
    l2: float = 0.1
    """Weight of the mean square of what is not black."""
    tv: float = 3.0
    """Weight of the total total_variation."""
    jitter: int = 2
    """Pixels by which the image is moved at most before a step."""
    learned: int = 300
    """Updates of the CNN that is trained where `of` is empty."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "units", "steps", "learned")
        self.at_least(0, "l2", "tv", "jitter")
        self.above(0, "lr")

    def ready(self) -> None:
        if self.of:
            check_image_run(self.of, "images are made for it")

    def network(self) -> tuple[nn.Module, Data]:
        """The network, in float64, and its data."""
        if not self.of:
            recipe = CNNPhotographs(
                data="strokes:2000", widths=(8, 16, 16), steps=self.learned, lr=1e-2,
                schedule="one-cycle", seed=self.seed,
            )  # fmt: skip
            data = recipe.dataset()
            return trained(recipe, data).double(), data
        self.ready()
        return image_run(self.of)

    def layer_name(self, model: nn.Module, x: Images) -> str:
        """The layer whose units images are made for."""
        names = [name for name, _ in model.named_modules() if name]
        outputs = activations(model, x[:1], names)
        maps = [n for n, t in outputs.items() if t.dim() == 4 and min(t.shape[2:]) > 1]
        if not maps:
            raise UserError(
                f"of ({self.of}) must have a layer of maps, because units of one are driven; try a "
                "run of lenet"
            )
        if self.layer and self.layer not in maps:
            raise UserError(
                f"layer ({self.layer}) must be a module that gives maps" + nearest(self.layer, maps)
            )
        return self.layer or max(maps, key=[*outputs].index)

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        model, data = self.network()
        model.requires_grad_(False).eval()
        images = torch.cat([x[:SEEN] for x, _ in data.valid])[:SEEN].double()
        name = self.layer_name(model, images)
        with layer_output(model, name) as outputs:
            parts = [model(x).softmax(1) for x in images.split(AT_ONCE)]
            maps, probability = torch.cat(outputs), torch.cat(parts)
        mean = maps.mean((0, 2, 3))
        loud = (mean > 1e-6).nonzero().flatten()[: self.units]
        self.require(len(loud) > 0, "layer", "one with a map that is not silent on average")
        std = torch.tensor(data.spec["std"], dtype=torch.float64)[:, None, None]
        grey = torch.tensor(data.spec["mean"], dtype=torch.float64)[:, None, None]
        limits = (0 - grey) / std, (1 - grey) / std

        def activation(x: Tensor) -> Tensor:
            with layer_output(model, name) as outputs:
                model(x)
            return middle_pixel(outputs[0]) / mean

        def class_probability(x: Tensor) -> Tensor:
            logits: Tensor = model(x)
            return logits.softmax(1) / probability.mean(0)

        classes = torch.arange(probability.shape[1])
        surest = probability.topk(min(BEST, len(probability)), 0).indices.T
        first = _centred(images, maps[:, loud], limits[0])
        given: dict[str, Any] = {"settings": self, "limits": limits, "generator": generator}
        driving, unit_path = ascend(activation, first, loud, **given)
        first = images[surest[:, 0]]
        ideal, class_path = ascend(class_probability, first, classes, **given)
        with torch.no_grad():
            unit_drive = activation(driving)[torch.arange(len(loud)), loud]  # (4)
            class_drive = class_probability(ideal).diagonal()
        field = _receptive_field(activation, driving[:1].clone(), int(loud[0]))
        best = _patches(images, maps[:, loud], field)
        undo = Standardize.of(data.spec).to_data_units
        return {
            "units": loud,
            "images": undo(driving.float()),
            "patches": undo(best.flatten(0, 1).float()).unflatten(0, best.shape[:2]),
            "unit_drive": unit_drive,
            "unit_way": unit_path,
            "class_images": undo(ideal.float()),
            "class_best": undo(images[surest.flatten()].float()).unflatten(0, (len(classes), -1)),
            "class_drive": class_drive,
            "class_way": class_path * probability.mean(0),
            "names": torch.tensor(list("\n".join([name, *data.spec["classes"]]).encode())),
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        both = torch.cat([result["unit_drive"], result["class_drive"]])
        return {
            "drive": both.min().item(),
            "unit_drive": result["unit_drive"].median().item(),
            "class_drive": result["class_drive"].median().item(),
        }

    def picture_units(self, result: Mapping[str, Tensor]) -> Figure:
        """Above, the image made for each unit; below, patches of images that drive it most.

        The number says how many times the mean activation the made image reaches: bright pixels
        are what counts.
        """
        layer, _ = _names(result)
        pairs = zip(result["units"].tolist(), result["unit_drive"].tolist(), strict=True)
        return driving_images(
            result["images"],
            result["patches"],
            [f"map {unit + 1}\n{drive:.0f} x" for unit, drive in pairs],
            title=f"maps of {layer}: what drives the middle pixel",
        )

    def picture_classes(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Above, images made for each class; below, validation images the network is surest of.

        Made images are kept smooth and dark, and the network gives them their class with a mean
        probability of {probability:.0%}.
        """
        last = result["class_way"][-1]
        pairs = zip(_names(result)[1][:10], last.tolist(), strict=False)
        figure = driving_images(
            result["class_images"][:10],
            result["class_best"][:10],
            [f"{name}\n{p:.0%}" for name, p in pairs],
            title="classes: what the network is surest of",
        )
        return figure, {"probability": last.mean().item()}

    def picture_ascent(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """Activation of units, left, and probability of classes, right, step by step.

        The median goes from {first:.0f} to {last:.0f} times the mean over images, that of classes
        from {before:.0%} to {after:.0%}. Images jump to and fro in the first three quarters.
        """
        layer, classes = _names(result)
        units = [f"map {unit + 1}" for unit in result["units"].tolist()]
        steps = torch.arange(1, len(result["unit_way"]) + 1)
        curves = zip(units, result["unit_way"].T, strict=True)
        left = Panel(
            {name: (steps, path) for name, path in curves}, "steps up",
            "activation / its mean", layer, levels={"goal": 5.0}, legend="none",
        )  # fmt: skip
        curves = zip(classes[:10], result["class_way"].T, strict=False)
        right = Panel(
            {name: (steps, path) for name, path in curves}, "steps up", "probability", "classes",
            ylim=(0.0, 1.02), legend="none",
        )  # fmt: skip
        (first, last), (before, after) = (
            result[way][[0, -1]].median(1).values.tolist() for way in ("unit_way", "class_way")
        )
        ends = {"first": first, "last": last, "before": before, "after": after}
        return panels(left, right, width=3.25, height=2.8), ends

    def tiny(self) -> Self:
        return replace(super().tiny(), units=2, learned=2)


def _names(result: Mapping[str, Tensor]) -> tuple[str, list[str]]:
    """The name of the layer, and those of the classes."""
    layer, *classes = bytes(result["names"].tolist()).decode().split("\n")
    return layer, classes


def _receptive_field(
    activation: Callable[[Tensor], Tensor], x: Float[Tensor, "1 channels height width"], k: int
) -> tuple[int, int]:
    """Height and width in pixels of the receptive field of the middle pixel of map k."""
    with torch.enable_grad():
        x = torch.randn_like(x).requires_grad_()
        (g,) = torch.autograd.grad(activation(x)[0, k], x)
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


RECIPES = {
    "feature-images": ActivationMaximisation(goal="drive >= 5", covers=("C13",)),
}
