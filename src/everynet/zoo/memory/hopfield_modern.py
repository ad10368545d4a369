"""The modern Hopfield network: real-valued patterns, and an update that is attention.

    x <- softmax(beta x X^T) X                                                    (1)  update
    E  = -log(1/M sum_m exp(beta x X_m^T)) / beta + (x x^T + max_m X_m X_m^T) / 2  (2)  energy

x, a row of N numbers, is the state; rows X_m of X are the M stored patterns; log is natural. An
update never raises E, which is never below 0. With a large beta a state goes to the pattern it is
most like, often in one update, and the number of patterns that can be separated grows
exponentially with N; with a small one it goes to the mean of many. With beta = 1 / sqrt(N), (1) is
scaled dot-product attention: the state is the query, the patterns are keys and values.

Ramsauer et al. (2020), "Hopfield networks is all you need", arXiv:2008.02217. Unlike the paper,
whose layers are normalised, images are brought to one length before they are stored.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import normalize

from everynet.data.dataset import Batch, Data, History
from everynet.nn.attention import attend, score_dot
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.images import image_grid
from everynet.plot.panels import Panel, panels
from everynet.system.errors import UserError
from everynet.zoo.memory.stored_images import StoredImages


class ModernHopfield(TransformerMixin, BaseEstimator):
    """Stores rows of real numbers; a state is drawn to the mean of those it resembles.

    A large `beta` recalls single patterns, a small one the mean of many. The network comes to rest
    where no number changes by more than `tol`.
    """

    patterns_: Array

    def __init__(self, beta: float = 1.0, tol: float = 1e-9, max_updates: int = 1000) -> None:
        self.beta = beta
        self.tol = tol
        self.max_updates = max_updates

    def fit(self, X: Array, y: Array = None) -> Self:
        if not 0 < self.beta < math.inf:
            raise UserError(
                f"beta ({self.beta}) must be a positive number, because it sharpens the softmax"
            )
        if self.max_updates < 1:
            raise UserError(f"max_updates ({self.max_updates}) must be at least 1 to recall at all")
        x, form = unsupervised(self, X)
        self.patterns_ = form.give(x)
        return self

    def recall(self, X: Array) -> Array:
        """The state in which the network comes to rest from each row."""
        x, form = inputs(self, X)
        return form.give(deque(self._states(x, form), maxlen=1).pop())

    def transform(self, X: Array) -> Array:
        """`recall`, under the name by which a pipeline calls it."""
        return self.recall(X)

    def recall_path(self, X: Array) -> Array:
        """All states on the way, the rows themselves first: steps x samples x neurons."""
        x, form = inputs(self, X)
        return form.give(torch.stack([x, *self._states(x, form)]))

    def overlaps(self, X: Array) -> Array:
        """The cosine of each row and each stored pattern."""
        x, form = inputs(self, X)
        return form.give(normalize(x) @ normalize(form.take(self.patterns_)).T)

    def energy(self, X: Array) -> Array:
        """E of each row, which is never below 0."""
        x, form = inputs(self, X)
        patterns = form.take(self.patterns_)
        nearness = (self.beta * x @ patterns.T).logsumexp(1) - math.log(len(patterns))
        largest = patterns.square().sum(1).max()
        return form.give(-nearness / self.beta + (x.square().sum(1) + largest) / 2)  # (2)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "neurons", low=1),
            "patterns_": Learned("float64", "patterns neurons"),
        })  # fmt: skip

    def _states(
        self, x: Float[Tensor, "samples neurons"], form: Caller
    ) -> Iterator[Float[Tensor, "samples neurons"]]:
        """The states after each update; a row that came to rest stays."""
        patterns = form.take(self.patterns_)
        moving = torch.ones_like(x[:, :1], dtype=torch.bool)
        for _ in range(self.max_updates):
            new, _ = attend(score_dot, self.beta * x, patterns, patterns)  # (1)
            moving &= ((new - x).abs() > self.tol).any(1, keepdim=True)
            x = torch.where(moving, new, x)
            yield x
            if not moving.any():
                return
        warnings.warn(
            f"a state still changed by more than tol ({self.tol}) after max_updates "
            f"({self.max_updates}) updates; raise either",
            ConvergenceWarning,
            stacklevel=4,
        )


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class StoredGreyImages(StoredImages[ModernHopfield]):
    """Recall grey images, far more than pixels, by the update that is attention."""

    meanings: ClassVar[Mapping[str, str]] = {
        "recalled": "the share of cues that end within 0.001 of the stored image by cosine",
        "cosine": "the cosine of the state that recall ends in and the stored image",
        "cue_cosine": "the same of the cue, before recall",
        "updates": "updates until the last of the cues is at rest",
        "load": "stored images for each neuron; the binary network holds 0.138",
    }

    stored: int = 1000
    """Images that are stored, the first of the training split."""
    beta: float = 8.0
    """Sharpness of the softmax; a small one recalls means of images."""
    noise: float = 0.5
    """Standard deviation of the noise on each pixel of a cue; black is -1 and white is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "beta")
        self.at_least(0, "noise")

    def model(self, data: Data) -> ModernHopfield:
        return ModernHopfield(self.beta)

    def choose(
        self, x: Float[Tensor, "images neurons"], y: Int[Tensor, " images"], classes: int
    ) -> Int[Tensor, " stored"]:
        self.require(self.stored <= len(x), "stored", f"at most {len(x):,}, the training images")
        return torch.arange(self.stored)

    def states(self, images: Shaped[Tensor, "samples ..."]) -> Float[Tensor, "samples neurons"]:
        """Images as rows of length sqrt(N), so that none attracts by its length alone."""
        x = images.flatten(1).double()
        return normalize(x) * math.sqrt(x.shape[1])

    def corrupt(
        self, x: Float[Tensor, "samples neurons"], generator: torch.Generator
    ) -> Float[Tensor, "samples neurons"]:
        return x + self.noise * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    def metrics(self, model: ModernHopfield, batch: Batch) -> dict[str, Tensor]:
        x, index = batch
        own = torch.arange(len(x))
        before = torch.as_tensor(model.overlaps(x.flatten(1)))[own, index]
        after = torch.as_tensor(model.overlaps(model.recall(x.flatten(1))))[own, index]
        return {"recalled": (after > 0.999).double(), "cosine": after, "cue_cosine": before}

    def final(
        self, model: ModernHopfield, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        x, _ = next(iter(data.test))
        path = model.recall_path(x.flatten(1))
        return {"updates": float(len(path) - 1), "load": self.stored / model.n_features_in_}

    def name_states(self, overlaps: Float[Tensor, "samples patterns"]) -> list[str]:
        return ["stored" if best > 0.999 else "mixture" for best in overlaps.amax(1)]

    def picture_recall(self, model: ModernHopfield, data: Data, history: History) -> Figure:
        """Recall of stored images, one a column, from noisy cues (first row).

        The second row is the state after one update, the third where it comes to rest, the fourth
        the stored image; above each stands its cosine with the stored image.
        """
        _, index = next(iter(data.valid))
        cues = self.cues(data)
        path = torch.as_tensor(model.recall_path(cues))
        truth = torch.as_tensor(model.patterns_)[index[: len(cues)]]
        shown = torch.cat([path[0], path[1], path[-1], truth])
        own = index[: len(cues)].repeat(4)
        cosines = torch.as_tensor(model.overlaps(shown))[torch.arange(len(own)), own]
        return image_grid(
            self.image(shown, data.spec).clamp(-1, 1), columns=len(cues),
            captions=[f"{cosine:.3f}" for cosine in cosines],
            title="cue, after one update, at rest, stored",
        )  # fmt: skip

    def picture_temperature(
        self, model: ModernHopfield, data: Data, history: History
    ) -> tuple[Figure, dict[str, object]]:
        """Cosine of recalled states with the stored image, and the share recalled, by beta.

        With a small beta states end in the mean of many images; from {beta:.2g} on 9 of 10 are
        recalled.
        """
        x, index = next(iter(data.valid))
        x, index = x[:200].flatten(1), index[:200]
        betas = torch.logspace(-2, 2, 17, dtype=torch.float64)
        cosines = torch.stack([
            torch.as_tensor(model.overlaps(_recalled(model, beta, x)))[torch.arange(len(x)), index]
            for beta in betas.tolist()
        ])  # fmt: skip
        share = (cosines > 0.999).double().mean(1)
        enough = betas[share >= 0.9]
        curves = {"cosine, the mean": (betas, cosines.mean(1)), "share recalled": (betas, share)}
        panel = Panel(
            curves, "beta, the inverse temperature", "cosine or share after recall", log="x",
            marks={f"beta of this run, {self.beta:g}": self.beta,
                   "1 / sqrt(N), that of attention": x.shape[1] ** -0.5},
        )  # fmt: skip
        return panels(panel), {"beta": float(enough[0]) if len(enough) else math.inf}


def _recalled(
    model: ModernHopfield, beta: float, x: Float[Tensor, "samples neurons"]
) -> Float[Tensor, "samples neurons"]:
    """What the same patterns give with another beta; near the critical one recall is slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        other = ModernHopfield(beta, tol=1e-6, max_updates=200).fit(model.patterns_)
        return torch.as_tensor(other.recall(x))


RECIPES = {
    "hopfield-modern": StoredGreyImages(goal="recalled >= 0.9", covers=("H3",)),
}
