"""Images that a memory stores and recalls from corrupted ones: what its recipes share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from everynet.data import load
from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images.keep import keep_mask
from everynet.data.images.standardize import restandardize
from everynet.nn.estimator import Array
from everynet.plot.film import Film
from everynet.recipes.recipe import Fitting
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.zoo.memory.pictures.recall import recall_frames

CUES = 6  # in a picture of recall
RATE, HOLD = 8.0, 8  # frames of a film in a second, frames of its end


@runtime_checkable
class Memory(Protocol):
    """An estimator that stores the rows it is fitted to, and recalls them."""

    def fit(self, X: Array, y: Array = None) -> Self: ...
    def recall(self, X: Array) -> Array: ...
    def recall_path(self, X: Array) -> Array: ...
    def overlaps(self, X: Array) -> Array: ...
    def energy(self, X: Array) -> Array: ...


S = TypeVar("S", bound=Memory)


@dataclass(frozen=True, kw_only=True)
class StoredImages(Fitting[S], Generic[S]):
    """What both networks share: images are stored, then recalled from corrupted ones."""

    data: str = "digits"
    """A known set of grey images, or a folder with one subfolder per class."""
    stored: int = 4
    """Images that are stored."""
    probes: int = 1000
    """Corrupted images that recall is measured on, in each split."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "stored", "probes")

    def tiny(self) -> Self:
        return replace(super().tiny(), stored=min(self.stored, 50), probes=20)

    def choose(
        self, x: Float[Tensor, "images neurons"], y: Int[Tensor, " images"], classes: int
    ) -> Int[Tensor, " stored"]:
        """The images to store, by number."""
        raise NotImplementedError  # each network has its own way

    def states(self, images: Shaped[Tensor, "samples ..."]) -> Float[Tensor, "samples neurons"]:
        """Images, black as -1 and white as 1, as states of the network."""
        raise NotImplementedError  # binary or real

    def corrupt(
        self, x: Float[Tensor, "samples neurons"], generator: torch.Generator
    ) -> Float[Tensor, "samples neurons"]:
        """Cues: states that are damaged."""
        raise NotImplementedError  # by flips or by noise

    def draw_noise(self, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, ...]:
        """Pixels at random, from -1 to 1."""
        return torch.rand(*shape, generator=generator, dtype=torch.float64) * 2 - 1

    def dataset(self) -> Data:
        data = load(self.data, kind="image", batch_size=1)
        if data.spec["shape"][0] != 1:
            raise UserError(
                f"data ({self.data}) must be grey images, because a pixel is one neuron; convert "
                "the colours to grey"
            )
        data = restandardize(data, [0.5], [0.5])  # black is -1, white is 1
        x, y = data.whole
        x, shape = self.states(x.double()), data.spec["shape"]
        rows = self.choose(x, y, len(data.spec["classes"]))
        patterns = x[rows]
        splits: dict[str, Batch] = {"train": (patterns.reshape(-1, *shape), y[rows])}
        draw = torch.Generator().manual_seed(mix(self.seed, len(rows)))
        for split in ("valid", "test"):
            index = torch.arange(self.probes) % len(rows)
            cues = self.corrupt(patterns[index], draw)
            splits[split] = (cues.reshape(-1, *shape), index)
        spec = {**data.spec, "task": "recall", "stored": y[rows].tolist()}
        return replace(data, splits=splits, spec=spec, prepare=None, mapped=False)

    def fit(self, model: S, data: Data) -> S:
        model.fit(data.whole[0].flatten(1))
        return model

    def check_learned(self, model: S, spec: Spec) -> None:
        super().check_learned(model, spec)
        patterns, wanted = tuple(vars(model)["patterns_"].shape), spec["stored"]
        if patterns != (len(wanted), math.prod(spec["shape"])):
            raise ValueError(f"patterns_ {patterns} must be those that the description names")

    def image(self, x: Float[Tensor, "samples neurons"], spec: Spec) -> Tensor:
        return torch.as_tensor(x).float().reshape(-1, *spec["shape"])

    def predict(
        self, model: S, inputs: Float[Tensor, "batch ..."], spec: Spec, *, keep: str = ""
    ) -> Sequence[dict[str, Any]]:
        """The pattern that each image reminds of; `keep` leaves a part and hides the rest."""
        images, (_, height, width) = inputs.double(), spec["shape"]
        if keep:
            draw = torch.Generator().manual_seed(mix(self.seed, 1))
            mask, noise = keep_mask(keep, height, width, draw), self.draw_noise(images.shape, draw)
            images = torch.where(mask, images, noise)
        states = model.recall(self.states(images))
        overlaps, energies = (torch.as_tensor(f(states)) for f in (model.overlaps, model.energy))
        nearest, named = overlaps.abs().argmax(1), self.name_states(overlaps)
        return [
            {
                "recalled": image,
                "state": said,
                "stored": int(near),
                "class": spec["classes"][spec["stored"][int(near)]],
                "overlap": float(row[near]),
                "energy": float(height),
            }
            for image, said, near, row, height in zip(
                self.image(states, spec), named, nearest, overlaps, energies, strict=True
            )
        ]

    def name_states(self, overlaps: Float[Tensor, "samples patterns"]) -> list[str]:
        """A word for each state, from its overlaps with the stored images."""
        raise NotImplementedError  # which kinds there are

    def film_path(self, model: S, x: Float[Tensor, "samples neurons"]) -> Tensor:
        """The states that a film shows, steps x samples x neurons."""
        return torch.as_tensor(model.recall_path(x))

    def sample(
        self,
        model: S,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 16,
        film: bool = False,
    ) -> Float[Tensor, "n ..."] | Film:
        """Images recalled from noise; `film` shows the way to them."""
        if not 1 <= n <= 10_000:
            raise UserError(f"n ({n}) must be from 1 to 10,000 images")
        x = self.states(self.draw_noise((n, *spec["shape"]), generator))
        if not film:
            return self.image(model.recall(x), spec)
        path = self.film_path(model, x)
        frames = recall_frames(path.reshape(*path.shape[:2], *spec["shape"][1:]))
        return Film(frames, RATE, hold=HOLD)

    def cues(self, data: Data) -> Float[Tensor, "cues neurons"]:
        """Corrupted images of the validation split, of several patterns."""
        x, _ = next(iter(data.valid))
        some = min(CUES, len(data.spec["stored"]), len(x))
        return x[:some].double().flatten(1)
