"""Neural style: pixels are learned until they show the content of one picture as another paints.

    L_c = 1/2 sum_ij (F_ij - P_ij)^2                      (1)  content loss
    G_ij = sum_k F_ik F_jk                                (2)  Gram matrix
    E_l = sum_ij (G_ij - A_ij)^2 / (4 N^2 M^2)            (3)  style loss of layer l
    L_s = sum_l w_l E_l                                   (4)  style loss, w_l = 1 / layers
    L = alpha L_c + beta L_s                              (5)  loss, minimised over the pixels
    dL_c/dF_ij = (F_ij - P_ij) 1{F_ij > 0}                (6)  gradients before the ReLU,
    dE_l/dF_ij = ((G - A) F)_ij 1{F_ij > 0} / (N^2 M^2)   (7)  by hand

F (N feature maps, M pixels) are the activations that a layer of a given network has for the
picture, P those for the content, and A is the Gram matrix of the style; 1{.} is 1 where the
condition holds and 0 elsewhere. The network is never changed. The sum of (2) runs over
all places, so a Gram matrix knows that yellow and swirls come together, and not where. Of VGG-19
the style layers are conv1_1, conv2_1, ..., conv5_1 and that of the content is conv4_2; of another
network, those that stand in the same places: the first at each size, and the second at the last
size but one.

Gatys, Ecker, Bethge (2015), "A Neural Algorithm of Artistic Style", arXiv:1508.06576. Unlike the
paper, the picture begins as the content with a little noise, its pixels stay between black and
white, and every layer is divided by its mean over the two pictures, so that alpha and beta mean the
same for every network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from everynet import plot
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Made
from everynet.data.sets import vgg19
from everynet.nn.frozen import Frozen
from everynet.nn.layer_outputs import LayerOutputs, group_by_size
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.trained import Trained
from everynet.recipes.training import OPTIMIZERS, Training, minimised
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.training.loop import relearned, trained
from everynet.zoo.vision import photo_pair as pair
from everynet.zoo.vision.patches import Patches, blocks
from everynet.zoo.vision.pictures.neural_style import gram_matrices, picture_table

DEEPEST = 5  # style layers at most
HISTORY = 20  # steps that L-BFGS remembers
FRAMES = (0, 1, 2, 4, 8)  # updates after which the picture is kept to be shown
FAINT = 0.02  # from the darkest to the lightest noise, where 1 is from black to white
FILMED, RATE_FILM, HOLD = 14, 4.0, 8  # of a film: frames, frames a second, frames of its end
SIDE = 288  # pixels of its longer side, about
RATE = 0.02  # with which L-BFGS takes full steps

Maps = Float[Tensor, "maps pixels"]
Matrix = Float[Tensor, "maps maps"]
Image = Float[Tensor, "1 channels height width"]


class Picture(nn.Module):
    """A picture whose pixels are the parameters, clamped between black and white.

    `make_losses` is called when the losses are first needed.
    """

    frames: Tensor

    def __init__(self, pixels: Image, make_losses: Callable[[], PictureLosses]) -> None:
        super().__init__()
        self.pixels = nn.Parameter(pixels)
        self.register_buffer("frames", pixels.detach().repeat(len(FRAMES), 1, 1, 1))
        self.make_losses = make_losses
        self._frozen: Frozen | None = None

    def forward(self) -> Image:
        return self.pixels.clamp(0, 1)

    def losses(self, x: Image) -> tuple[Float[Tensor, ""], Float[Tensor, " layers"]]:
        """Content loss and style losses of a picture, by a network that no checkpoint holds."""
        found: tuple[Tensor, Tensor] = self.frozen()(x)
        return found

    def frozen(self) -> Frozen:
        """The losses with their network, content and style, outside of parameters and state."""
        if self._frozen is None:
            self._frozen = Frozen(self.make_losses()).to(self.pixels)
        return self._frozen


class PictureLosses(nn.Module):
    """Maps a picture to its content loss and to the style loss of each layer.

    The last layer of `features` is that of the content.
    """

    p: Tensor
    content: Tensor

    def __init__(self, features: LayerOutputs, content: Image, style: Image) -> None:
        super().__init__()
        self.features = features
        with torch.no_grad():
            of_content, of_style = features(content), features(style)
            both = zip(of_content, of_style, strict=True)
            self.scales = [max(((p + a).mean() / 2).item(), 1e-12) for p, a in both]
            self.register_buffer("content", content, persistent=False)
            self.register_buffer("p", of_content[-1] / self.scales[-1], persistent=False)
            for number, f in enumerate(of_style[:-1]):
                a = gram(f / self.scales[number])
                self.register_buffer(f"a{number}", a, persistent=False)
            self.initial_style_loss = style_loss(self(content)[1]).item()

    def maps(self, x: Image) -> list[Float[Tensor, "_maps _pixels"]]:
        """Activations of the layers, scaled to a mean of one over content and style."""
        return [f / scale for f, scale in zip(self.features(x), self.scales, strict=True)]

    def targets(self) -> list[Float[Tensor, "_maps _maps"]]:
        """The Gram matrices of the style."""
        return [self.get_buffer(f"a{number}") for number in range(len(self.scales) - 1)]

    def forward(self, x: Image) -> tuple[Float[Tensor, ""], Float[Tensor, " layers"]]:
        *maps, last = self.maps(x)
        with torch.autocast(x.device.type, enabled=False):  # squares of a million numbers
            e = [layer_loss(f, a) for f, a in zip(maps, self.targets(), strict=True)]
            return content_loss(last, self.p), torch.stack(e)


def content_loss(f: Maps, p: Maps) -> Float[Tensor, ""]:
    """Half the squared distance of feature maps from those of the content."""
    return (f - p).square().sum() / 2  # (1)


def gram(f: Maps) -> Matrix:
    """How strongly each two feature maps respond at the same pixels."""
    return f @ f.T  # (2)


def layer_loss(f: Maps, a: Matrix) -> Float[Tensor, ""]:
    """Squared distance of the Gram matrix from that of the style, in one layer."""
    n, m = f.shape
    return (gram(f) - a).square().sum() / (4 * n**2 * m**2)  # (3)


def style_loss(e: Float[Tensor, " layers"]) -> Float[Tensor, ""]:
    """The losses of all style layers, each with the same weight."""
    w = 1 / len(e)
    return (w * e).sum()  # (4)


def content_gradient(f: Maps, p: Maps) -> Maps:
    """The gradient of the content loss before the ReLU, by hand."""
    return (f - p) * (f > 0)  # (6)


def layer_gradient(f: Maps, a: Matrix) -> Maps:
    """The gradient of the loss of a style layer before the ReLU, by hand."""
    n, m = f.shape
    return (gram(f) - a) @ f * (f > 0) / (n**2 * m**2)  # (7)


# -------- the network ends here; training and pictures follow --------


@lru_cache(maxsize=4)
def _trained_here(steps: int, maps: int) -> tuple[nn.Module, Spec]:
    """A small network, the same for every seed: a run that goes on must find it again."""
    recipe = Patches(steps=steps, maps=maps)
    data = recipe.dataset()
    return trained(recipe, data), data.spec


def published() -> nn.Sequential:
    """VGG-19 up to conv5_1 with its published weights, for pixels from 0 to 1.

    Pooling takes the mean, as the paper advises, not the maximum that the weights were made for.
    """
    network = nn.Sequential()
    network.add_module("preproc", nn.Conv2d(3, 3, 1))
    for name, layer in blocks(3, vgg19.BLOCKS).named_children():
        network.add_module(name, layer)
    network.load_state_dict(vgg19.read())
    return network


def choose_layers(stages: Sequence[Sequence[str]]) -> list[str]:
    """The layers of the style, from the names of all layers by size, then that of the content."""
    scales = stages[:DEEPEST]
    middle = scales[max(0, len(scales) - 2)] if scales else []
    return [*(scale[0] for scale in scales), *middle[:2][-1:]]


@dataclass(frozen=True, kw_only=True)
class StyleTransfer(Training[Picture]):
    """Learn the pixels of a picture with the content of one and the style of another."""

    meanings: ClassVar[Mapping[str, str]] = {
        "loss": "content loss and style loss by their weights",
        "content_loss": "half the squared distance of feature maps from those of the content",
        "style_loss": "squared distance of Gram matrices from those of the style, over layers",
        "gram_fall": "1 less the style loss divided by that of the content itself",
        "content_correlation": "correlation of the pixels with those of the content",
    }

    content: Path = Path()
    """The picture whose things are kept; empty takes a photograph from China."""
    style: Path = Path()
    """The picture whose colours and strokes are taken; empty takes a photograph of a flower."""
    size: int = 96
    """Pixels along the longer side; the style is cut to the shape of the content."""
    alpha: float = 1.0
    """Weight of the content."""
    beta: float = 1e4
    """Weight of the style."""
    layers: int = 5
    """Style layers, from the first on; fewer where the network has fewer."""
    noise: float = 0.1
    """How much of the content is hidden in grey noise at the beginning: 0 is nothing, 1 all."""
    features: str = "own"
    """own: those of the run `of` or of a network trained here; vgg19: the published ones."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of a network that tells images apart; empty trains a small one first."""
    training: int = 200
    """Updates of the small network that is trained where `of` is empty."""
    maps: int = 32
    """Feature maps of its first layer."""
    steps: int = 30
    iterations: int = 10
    """Steps that the optimiser takes in an update."""
    batch_size: int = 1
    optimizer: str = "lbfgs"
    """lbfgs, or one that takes a rate: adam, adamw, sgd, momentum, nesterov, rmsprop or lion."""
    lr: float = RATE
    """Learning rate; with lbfgs 0.02 tries its full step first, and looks for a better one."""

    known_optimizers: ClassVar[Collection[str]] = ("lbfgs", *OPTIMIZERS)
    writes: ClassVar[str] = "image"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(pair.LEAST, pair.MOST, "size")
        self.at_least(0, "alpha", "beta")
        some = self.alpha > 0 or self.beta > 0
        self.require(some, "alpha", "positive where beta is 0, because nothing would be learned")
        self.within(1, DEEPEST, "layers")
        self.within(0, 1, "noise")
        self.one_of("features", ("own", "vgg19"))
        one = self.features == "own" or not self.of
        self.require(one, "of", "left out with features=vgg19, because those are of one network")
        self.at_least(1, "training", "maps", "iterations")

    def pair(self) -> tuple[Image, Image]:
        """Content and style in one shape, in as many colours as the network looks at."""
        channels = self._run_spec()["shape"][0] if self.of else 3
        return pair.read(self.content, self.style, self.size, channels)

    def _run_spec(self) -> Spec:
        """The spec of the images that the network of `of` was trained on."""
        spec, source = self.of.spec, self.of.recipe
        images = (spec.get("kind"), spec.get("task")) == ("image", "classification")
        if source.kind != "training" or not images or spec["shape"][0] not in (1, 3):
            raise UserError(
                f"of ({self.of}) must be the run of a network that tells grey or colour images "
                f"apart, because its layers look at pictures, and {source.name} is none; try a run "
                "of cnn-cifar"
            )
        return spec

    def feature_layers(self, x: Image) -> LayerOutputs:
        """The layers of the style, then of the content, for pictures such as this one."""
        spec: Spec = {"mean": [0.0] * 3, "std": [1.0] * 3}
        if self.features == "vgg19":
            network: nn.Module = published()
        elif self.of:
            network, spec = self.of.load(), self._run_spec()
        else:
            network, spec = _trained_here(self.training, self.maps)
            network = deepcopy(network)
        network = network.to(device=x.device, dtype=x.dtype).requires_grad_(False).eval()
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a stub
        *styles, content = choose_layers(group_by_size(network, x)) or [""]
        if not styles:
            raise UserError(
                f"of ({self.of}) must be the run of a network with feature maps behind activation "
                f"functions, because these are compared, and {self.of.recipe.name} shows none of a "
                f"picture of size {self.size}; try a run of cnn-cifar"
            )
        return LayerOutputs(
            network, [*styles[: self.layers], content], spec["mean"], spec["std"]
        ).to(x)

    def losses(self, content: Image, style: Image) -> PictureLosses:
        """The losses of pictures beside these two."""
        return PictureLosses(self.feature_layers(content), content, style)

    def dataset(self) -> Data:
        content, style = self.pair()
        colours = content.shape[1]
        spec = {
            "name": f"{self.content.name or 'china'} as {self.style.name or 'flower'}",
            "kind": "image", "task": "picture", "shape": [*content.shape[1:]], "classes": [],
            "mean": [0.0] * colours, "std": [1.0] * colours, "peak": 255.0, "size": 0,
            "split": "none: two pictures and no set",
        }  # fmt: skip
        digest = hashlib.sha256(content.numpy().tobytes() + style.numpy().tobytes()).hexdigest()
        return Data({"pictures": (content, style)}, spec, digest=digest, sampler=Made())

    def model(self, data: Data) -> Picture:
        if "pictures" not in data.splits:  # to be loaded: its pixels follow
            return Picture(torch.zeros(1, *data.spec["shape"]), lambda: self.losses(*self.pair()))
        content, style = data.splits["pictures"]
        drawn = torch.rand(content.shape, generator=generator(self.seed, 6)).to(content)
        grey = 0.5 + FAINT * (drawn - 0.5)
        pixels = (1 - self.noise) * content + self.noise * grey
        picture = Picture(pixels, lambda: self.losses(content, style))
        picture.frozen()  # refuses now what it cannot load
        return picture

    def optimizers(self, model: Picture) -> dict[str, Optimizer]:
        if self.optimizer != "lbfgs":
            return super().optimizers(model)
        # A full step may go up where pixels become black or white: its length is searched for.
        optimizer = LBFGS(
            [model.pixels], lr=self.lr / RATE, max_iter=self.iterations, history_size=HISTORY,
            tolerance_grad=0.0, line_search_fn="strong_wolfe",
        )  # fmt: skip
        return {"main": optimizer}

    def objective(self, model: Picture, batch: Batch) -> Terms:
        content, e = model.losses(model())
        each = {f"_layer_{number}": value.detach() for number, value in enumerate(e, 1)}
        return {"content": self.alpha * content, "style": self.beta * style_loss(e), **each}

    def step(self, state: State[Picture], batch: Batch) -> Terms:
        if state.step in FRAMES:
            state.model.frames[FRAMES.index(state.step)] = state.model()[0].detach()
        before: list[Terms] = []

        def loss() -> Tensor:
            terms = self.objective(state.model, batch)
            before.append({name: term.detach() for name, term in terms.items()})
            return minimised(terms)  # (5)

        for _ in range(1 if self.optimizer == "lbfgs" else self.iterations):
            state.descend(loss, clip=self.clip, clip_value=self.clip_value)
        return before[0]

    def metrics(self, model: Picture, batch: Batch) -> dict[str, Tensor]:
        x = model()
        content, e = model.losses(x)
        style, losses = style_loss(e), _losses(model)
        both = torch.stack([x.flatten(), losses.content.flatten()]).double()
        return {
            "loss": self.alpha * content + self.beta * style,
            "content_loss": content,
            "style_loss": style,
            "gram_fall": 1 - style / max(losses.initial_style_loss, 1e-30),
            "content_correlation": torch.corrcoef(both)[0, 1],
        }

    def monitor(self) -> Goal | None:
        """The picture with the lowest loss is kept."""
        return Goal("loss", "<=", 0.0)

    def picture_transfer(self, model: Picture, data: Data, history: History) -> Figure:
        """The content on the left, the style in the middle, and the learned picture on the right.

        It shows the things of the first in the colours and strokes of the second.
        """
        content, style = (x.cpu().float() for x in data.splits["pictures"])
        images = (content[0], style[0], model()[0].cpu().float())
        return picture_table([("", [*zip(("content", "style", "learned"), images, strict=True)])])

    def picture_way(self, model: Picture, data: Data, history: History) -> Figure:
        """The picture after more and more steps of the optimiser.

        Each begins where the one before it stopped.
        """
        count = sum(n < self.steps for n in FRAMES)
        names = [f"{n * self.iterations} steps" for n in FRAMES[:count]]
        kept = zip(names, model.frames.cpu()[:count], strict=True)
        shown = [*kept, ("at the end", model()[0].cpu().float())]
        return picture_table([("", shown[at : at + 3]) for at in range(0, len(shown), 3)])

    def picture_gram(
        self, model: Picture, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Gram matrices of the style layers, the first layer on the left.

        Those of the learned picture, in the middle row, are {left:.0%} as far from the style below
        as those of the content above, on the mean over layers.
        """
        losses = _losses(model)
        images = {"content": losses.content, "learned": model()}
        grams = {name: [gram(f) for f in losses.maps(x)[:-1]] for name, x in images.items()}
        grams["style"] = losses.targets()
        far = [
            torch.stack([(g - a).norm() for g, a in zip(grams[name], grams["style"], strict=True)])
            for name in images
        ]
        return gram_matrices(grams, _style_layers(model)), {"left": float((far[1] / far[0]).mean())}

    def picture_layers(self, model: Picture, data: Data, history: History) -> Figure:
        """Style loss of each layer, left, and the two weighted parts of the loss, right.

        The two parts pull against each other, and their sum is what is minimised.
        """
        logged = plot.logged_curves(history, "train")
        names = {f"_layer_{i}": name for i, name in enumerate(_style_layers(model), 1)}
        each = {name: logged[key] for key, name in names.items() if key in logged}
        parts = {name: values for name, values in logged.items() if name in ("content", "style")}
        return plot.panels(
            plot.Panel(each, "updates", "E of the layer", "style, layer by layer", log="y"),
            plot.Panel(parts, "updates", "part of the loss L", "content and style", log="y"),
            width=3.25,
            height=2.8,
        )

    def sample(
        self, model: Picture, spec: Spec, generator: torch.Generator, *, film: bool = False
    ) -> Image | plot.Film:
        """The learned picture; `film` shows how it comes, from the content in noise."""
        if film:
            return plot.Film(self._learn_again(model), RATE_FILM, hold=HOLD)
        pixels: Tensor = model().detach()
        return pixels

    def _learn_again(self, kept: Picture) -> Iterator[np.ndarray]:
        """The picture after each of some updates, large enough to be seen, then as it was kept."""
        times = max(1, SIDE // self.size)
        for _, picture in relearned(self, self.dataset(), FILMED):
            yield film_frame(picture(), times)
        yield film_frame(kept(), times)

    def tiny(self) -> Self:
        return replace(
            super().tiny(), content=Path(), style=Path(), size=pair.LEAST + 16, features="own",
            of=Trained(), training=2, iterations=1,
        )  # fmt: skip


def film_frame(image: Image, times: int) -> UInt8[np.ndarray, "down across ..."]:
    """A picture as a frame of a film, each pixel `times` x `times` large."""
    pixels = (255 * image[0].detach().cpu().float()).round().to(torch.uint8)
    large = pixels.repeat_interleave(times, 1).repeat_interleave(times, 2)
    return large[0].numpy() if len(large) == 1 else large.permute(1, 2, 0).numpy()


def _losses(model: Picture) -> PictureLosses:
    """The losses that a picture is learned by."""
    losses = model.frozen().network
    assert isinstance(losses, PictureLosses)
    return losses


def _style_layers(model: Picture) -> list[str]:
    return [name.rpartition(".")[2] for name in _losses(model).features.layers[:-1]]


RECIPES = {
    "style": StyleTransfer(beta=2e5, steps=15, goal="gram_fall >= 0.9", covers=("C29",)),
    "style-vgg": StyleTransfer(
        features="vgg19", size=256, beta=1e7, steps=20, goal="gram_fall >= 0.9", covers=("C29",)
    ),
}
