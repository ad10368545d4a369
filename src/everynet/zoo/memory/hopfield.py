"""Hopfield networks: patterns are stored as minima of an energy, and recalled by going downhill.

    x_i <- sign(sum_j x_j W_ji + b_i)                      (1)  update; at 0 neuron i stays as it is
    E    = -1/2 x W x^T - b x^T                            (2)  energy
    dE/dx_i = -sum_j x_j W_ij - b_i                        (3)  its gradient: minus the field
    W    = (1/M) X^T X - I                                 (4)  Hebbian storage
    x W  = (x X^T) X / M - x                               (5)  the field, W never built

x, a row of N values -1 or 1, is the state; rows X_m of X are the M stored patterns. W is symmetric,
and its diagonal is 0 because X_mi^2 = 1. An update of one neuron (asynchronous) changes E by
-2 |field| or not at all, so that sweeps end in a fixed point; with all neurons at once
(synchronous) a state may alternate with another for ever. tau dx/dt = x W + b descends the same E
without bound, hence the sign. Overlaps o = x X^T follow a changed neuron by o_m + 2 x_i X_mi, so
that a sweep costs M N and not N^2. As E(x) = E(-x) for b = 0, negated patterns are stored too, and
mixtures of patterns (spurious states) are further minima. `hopfield_capacity.py` shows how many
patterns there is room for, `hopfield_modern.py` has the network for many more.

                 Hopfield network                        restricted Boltzmann machine
    neurons      N, all visible, -1 or 1                 visible and hidden, 0 or 1
    weights      between all pairs, symmetric            between visible and hidden alone
    dynamics     deterministic, E never rises            Gibbs sampling of exp(-E) / Z
    learning     one Hebbian sum, (4)                    many steps of contrastive divergence
    memory       0.138 N random patterns                 grows with the hidden units
    gives        the stored pattern nearest to a cue     samples of a distribution

Hopfield (1982), "Neural networks and physical systems with emergent collective computational
abilities", PNAS 79, doi:10.1073/pnas.79.8.2554.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from torch import Tensor

from everynet.data.dataset import Batch, Data, History
from everynet.kernels.hopfield import as_bytes, step_all, sweep
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.images import image_grid
from everynet.system.errors import UserError
from everynet.system.seeds import mix
from everynet.system.wording import unknown
from everynet.zoo.memory.pictures.recall import energy_landscape
from everynet.zoo.memory.stored_images import StoredImages

UPDATES = ("asynchronous", "synchronous")
NEGATED, SPURIOUS = -1, -2
"""What `name_states` gives where a state is no stored pattern."""


class Hopfield(TransformerMixin, BaseEstimator):
    """Stores the rows it is fitted to, and recalls the one that a row reminds it of.

    `binarize` turns numbers above it into 1 and others into -1; without it other values than these
    two are refused. Asynchronous sweeps take the neurons in an order drawn anew for each sweep.
    """

    patterns_: Array

    def __init__(
        self,
        update: str = "asynchronous",
        binarize: float | None = None,
        bias: float = 0.0,
        max_sweeps: int = 100,
        random_state: int = 0,
    ) -> None:
        self.update = update
        self.binarize = binarize
        self.bias = bias
        self.max_sweeps = max_sweeps
        self.random_state = random_state

    def fit(self, X: Array, y: Array = None) -> Self:
        if self.update not in UPDATES:
            raise UserError(unknown("update", self.update, UPDATES))
        if self.max_sweeps < 1:
            raise UserError(f"max_sweeps ({self.max_sweeps}) must be at least 1 to recall at all")
        if not math.isfinite(self.bias):
            raise UserError(f"bias ({self.bias}) must be a finite number, because it is added")
        x, form = unsupervised(self, X)
        self.patterns_ = form.give(self._signs(x))
        return self

    def recall(self, X: Array) -> Array:
        """The state in which the network comes to rest from each row."""
        x, form = inputs(self, X)
        return form.give(deque(self._states(self._signs(x), form), maxlen=1).pop())

    def transform(self, X: Array) -> Array:
        """`recall`, under the name by which a pipeline calls it."""
        return self.recall(X)

    def recall_path(self, X: Array, updates: int = 0) -> Array:
        """All states on the way, the rows themselves first: steps x samples x neurons.

        A step is a sweep or, where asynchronous, so many `updates` of single neurons.
        """
        x, form = inputs(self, X)
        x = self._signs(x)
        path = [x.clone()]
        path.extend(state.clone() for state in self._states(x, form, updates))
        return form.give(torch.stack(path))

    def overlaps(self, X: Array) -> Array:
        """The share of equal bits less that of different ones, row by stored pattern."""
        x, form = inputs(self, X)
        patterns = form.take(self.patterns_)
        return form.give(self._signs(x) @ patterns.T / patterns.shape[1])

    def energy(self, X: Array) -> Array:
        """E of each row, without W."""
        x, form = inputs(self, X)
        x = self._signs(x)
        return form.give(
            -((self._field(x, form) - self.bias) * x).sum(1) / 2 - self.bias * x.sum(1)
        )

    def weights(self) -> Array:
        """W, N x N: for reading, and for networks that are small."""
        form = Caller.of(self.patterns_)
        return form.give(hebbian_weights(form.take(self.patterns_)))

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "neurons", low=1),
            "patterns_": Learned("float64", "patterns neurons", low=-1, high=1),
        })  # fmt: skip
        _require_signs(Caller.of(self.patterns_).take(self.patterns_), "patterns_")

    def _field(
        self, x: Float[Tensor, "samples neurons"], form: Caller
    ) -> Float[Tensor, "samples neurons"]:
        patterns = form.take(self.patterns_)
        count = len(patterns)
        return ((x @ patterns.T) @ patterns - count * x) / count + self.bias  # (5)

    def _states(
        self, x: Float[Tensor, "samples neurons"], form: Caller, updates: int = 0
    ) -> Iterator[Float[Tensor, "samples neurons"]]:
        """The states after each step until nothing changes; one tensor may be all of them."""
        if self.update == "synchronous":
            yield from self._synchronous(x, form)
            return
        patterns, neurons = form.take(self.patterns_), x.shape[1]
        stored, o = as_bytes(patterns).T.contiguous(), x @ patterns.T
        draw = torch.Generator().manual_seed(mix(self.random_state))
        for _ in range(self.max_sweeps):
            order, changed = torch.randperm(neurons, generator=draw), False
            for some in order.split(updates or neurons):  # as `sweep_by_weights` below, by (5)
                changed |= bool(sweep(stored, float(self.bias), x, o, some).any())
                yield x
            if not changed:
                return
        self._warn(f"a neuron still changed after max_sweeps ({self.max_sweeps}); raise it")

    def _synchronous(
        self, x: Float[Tensor, "samples neurons"], form: Caller
    ) -> Iterator[Float[Tensor, "samples neurons"]]:
        stored, before = as_bytes(form.take(self.patterns_)), x
        for _ in range(self.max_sweeps):
            old, before, x = before, x, step_all(stored, float(self.bias), x)  # (1) by (5)
            yield x
            if torch.equal(x, before):
                return
            if torch.equal(x, old):
                cycling = int((x != before).any(1).sum())
                self._warn(
                    f"{cycling} of {len(x)} states alternate with another for ever; use "
                    'update="asynchronous"'
                )
                return
        self._warn(f"a neuron still changed after max_sweeps ({self.max_sweeps}); raise it")

    def _signs(self, x: Float[Tensor, "samples neurons"]) -> Float[Tensor, "samples neurons"]:
        if self.binarize is None:
            return _require_signs(x, "X").clone()  # it is updated in place
        return torch.where(x > self.binarize, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def _warn(said: str) -> None:
        warnings.warn(said, ConvergenceWarning, stacklevel=5)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.binarize is not None  # else no table but one of signs
        return tags


def sign(
    field: Float[Tensor, "*nets neurons"], x: Float[Tensor, "*nets neurons"]
) -> Float[Tensor, "*nets neurons"]:
    """The sign of each field; a neuron whose field is 0 stays as it is."""
    return torch.where(field == 0, x, field.sign())  # (1)


def sweep_by_weights(
    x: Float[Tensor, "*nets neurons"],
    w: Float[Tensor, "*nets neurons neurons"],
    b: Float[Tensor, "*nets neurons"],
    order: Int[Tensor, " updates"],
) -> Iterator[Float[Tensor, "*nets neurons"]]:
    """The states after each asynchronous update with any weights, for reading and for tests."""
    x = x.clone()
    for i in order.tolist():
        field = (x * w[..., :, i]).sum(-1) + b[..., i]
        x[..., i] = sign(field, x[..., i])
        yield x


def energy(
    x: Float[Tensor, "*nets neurons"],
    w: Float[Tensor, "*nets neurons neurons"],
    b: Float[Tensor, "*nets neurons"],
) -> Float[Tensor, "*nets"]:
    """E of each state."""
    xw = (x[..., None, :] @ w)[..., 0, :]
    return -(xw * x).sum(-1) / 2 - (b * x).sum(-1)  # (2)


def energy_gradient(
    x: Float[Tensor, "*nets neurons"],
    w: Float[Tensor, "*nets neurons neurons"],
    b: Float[Tensor, "*nets neurons"],
) -> Float[Tensor, "*nets neurons"]:
    """The gradient of E, where x may be any numbers."""
    xw = (x[..., None, :] @ w)[..., 0, :]
    return -xw - b  # (3)


def hebbian_weights(
    patterns: Float[Tensor, "patterns neurons"],
) -> Float[Tensor, "neurons neurons"]:
    """W from the patterns to be stored."""
    count, neurons = patterns.shape
    w: Tensor = patterns.T @ patterns / count - torch.eye(neurons).to(patterns)  # (4)
    return w


def name_states(overlaps: Float[Tensor, "samples patterns"]) -> Int[Tensor, " samples"]:
    """The number of the stored pattern that each state equals, NEGATED or SPURIOUS."""
    best = overlaps.max(1)
    other = torch.where(overlaps.amin(1) <= -1 + 1e-9, NEGATED, SPURIOUS)
    return torch.where(best.values >= 1 - 1e-9, best.indices, other)


def _require_signs(x: Float[Tensor, "samples neurons"], name: str) -> Tensor:
    wrong = (x.abs() != 1).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise UserError(
            f"{name} (row {row} holds {x[row, column].item():g}) must hold -1 and 1 alone, because "
            "a neuron has these two states; binarize=0.0 turns numbers above 0 into 1, others into "
            "-1"
        )
    return x


# -------- the network ends here; training and pictures follow --------

CANDIDATES = 2000  # training images among which those to store are chosen
FRAMES = 16  # of a film for each sweep
SHOWN = 12  # states that noise ended in


@dataclass(frozen=True, kw_only=True)
class StoredDigits(StoredImages[Hopfield]):
    """Recall whole binary images from images with some bits flipped."""

    meanings: ClassVar[Mapping[str, str]] = {
        "recovered_bits": "the share of pixels that equal those of the stored image after recall",
        "recalled": "the share of cues from which every pixel of the stored image is recalled",
        "negated": "the share of cues that end in a stored image with black and white swapped",
        "spurious": "the share of cues that end in a state that is no stored image",
        "noise_stored": "the share of states of pure noise that end in a stored image",
        "noise_negated": "the share of those that end in a negated image",
        "noise_spurious": "the share of those that end in a spurious state",
        "overlap": "the largest overlap of two different stored images",
    }

    flips: float = 0.1
    """Share of the pixels of a stored image that are flipped, from 0 to 1/2."""
    threshold: float = 0.4
    """Brightness above which a pixel is 1, from 0 (black) to 1 (white)."""
    update: str = "asynchronous"
    """Neurons one after another (asynchronous) or all at once (synchronous)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(0, 0.5, "flips")
        self.require(0 <= self.threshold < 1, "threshold", "at least 0 and below 1")
        self.one_of("update", UPDATES)

    def model(self, data: Data) -> Hopfield:
        return Hopfield(self.update, binarize=2 * self.threshold - 1, random_state=self.seed)

    def choose(
        self, x: Float[Tensor, "images neurons"], y: Int[Tensor, " images"], classes: int
    ) -> Int[Tensor, " stored"]:
        """One image a class, chosen so that their squared overlaps are small."""
        self.require(self.stored <= classes, "stored", f"at most {classes}, one image a class")
        x, y = x[:CANDIDATES], y[:CANDIDATES]
        squares = (x @ x.T).square()
        chosen, cost = torch.arange(len(x))[:, None], squares
        total = torch.zeros(len(x)).double()
        for _ in range(self.stored - 1):  # from each first image on, the least alike
            used = (y[chosen][:, :, None] == y).any(1)
            best = cost.masked_fill(used, math.inf).min(1)
            chosen = torch.cat([chosen, best.indices[:, None]], 1)
            total, cost = total + best.values, cost + squares[best.indices]
        return chosen[total.argmin()]

    def states(self, images: Shaped[Tensor, "samples ..."]) -> Float[Tensor, "samples neurons"]:
        return torch.where(images.flatten(1) > 2 * self.threshold - 1, 1.0, -1.0).double()

    def corrupt(
        self, x: Float[Tensor, "samples neurons"], generator: torch.Generator
    ) -> Float[Tensor, "samples neurons"]:
        return torch.where(torch.rand(x.shape, generator=generator) < self.flips, -x, x)

    def draw_noise(self, shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, ...]:
        return torch.randint(0, 2, tuple(shape), generator=generator).double() * 2 - 1

    def metrics(self, model: Hopfield, batch: Batch) -> dict[str, Tensor]:
        x, index = batch
        states = torch.as_tensor(model.recall(x.flatten(1)))
        patterns = torch.as_tensor(model.patterns_)
        ended = name_states(torch.as_tensor(model.overlaps(states)))
        return {
            "recovered_bits": (states == patterns[index]).double().mean(1),
            "recalled": (ended == index).double(),
            "negated": (ended == NEGATED).double(),
            "spurious": (ended == SPURIOUS).double(),
        }

    def final(
        self, model: Hopfield, data: Data, generator: torch.Generator, *, starts: int = 1000
    ) -> dict[str, float]:
        if starts < 1:
            raise UserError(f"starts ({starts}) must be at least 1")
        patterns = torch.as_tensor(model.patterns_)
        states = model.recall(self.draw_noise((starts, patterns.shape[1]), generator))
        ended = name_states(torch.as_tensor(model.overlaps(states)))
        among = (patterns @ patterns.T / patterns.shape[1]).fill_diagonal_(0)
        return {
            "noise_stored": float((ended >= 0).double().mean()),
            "noise_negated": float((ended == NEGATED).double().mean()),
            "noise_spurious": float((ended == SPURIOUS).double().mean()),
            "overlap": float(among.abs().max()),
        }

    def name_states(self, overlaps: Float[Tensor, "samples patterns"]) -> list[str]:
        words = {NEGATED: "negated", SPURIOUS: "spurious"}
        return [words.get(int(kind), "stored") for kind in name_states(overlaps)]

    def film_path(self, model: Hopfield, x: Float[Tensor, "samples neurons"]) -> Tensor:
        return torch.as_tensor(model.recall_path(x, max(1, x.shape[1] // FRAMES)))

    def picture_recall(self, model: Hopfield, data: Data, history: History) -> Figure:
        """Recall of stored images, one a row, from cues with flipped pixels (left).

        Above each state stands its overlap with the stored image in which it ends.
        """
        cues = self.cues(data)
        path = torch.as_tensor(model.recall_path(cues, max(1, cues.shape[1] // 4)))
        shown = path[[min(step, len(path) - 1) for step in (0, 1, 2, 3, 4, 8)]].transpose(0, 1)
        nearest = torch.as_tensor(model.overlaps(path[-1])).abs().argmax(1)
        overlaps = torch.as_tensor(model.overlaps(shown.flatten(0, 1)))
        rows = nearest.repeat_interleave(shown.shape[1])
        captions = [f"{overlap:.2f}" for overlap in overlaps[torch.arange(len(rows)), rows]]
        return image_grid(
            self.image(shown.flatten(0, 1), data.spec), captions=captions, columns=shown.shape[1],
            title="after 0, 1/4, 1/2, 3/4, 1 and 2 sweeps",
        )  # fmt: skip

    def picture_energy(
        self, model: Hopfield, data: Data, history: History
    ) -> tuple[Figure, dict[str, object]] | None:
        """Mean energy of the states with these overlaps with two stored images, and ways of recall.

        Along them (right) the energy falls by {fall:.3g} and {other:.3g}, and never rises.
        """
        if len(model.patterns_) < 2:
            return None
        patterns = torch.as_tensor(model.patterns_)
        draw = torch.Generator().manual_seed(mix(self.seed, 2))
        start = torch.where(torch.rand(2, patterns.shape[1], generator=draw) < 0.2, -1.0, 1.0)
        path = torch.as_tensor(model.recall_path(start * patterns[:2], 1))
        energies = torch.stack([torch.as_tensor(model.energy(states)) for states in path])
        made = energy_landscape(patterns[:2], torch.as_tensor(model.weights()), path, energies)
        fall = energies[0] - energies[-1]
        return made, {"fall": float(fall[0]), "other": float(fall[1])}

    def picture_noise(self, model: Hopfield, data: Data, history: History) -> Figure:
        """The states in which 1,000 states of pure noise come to rest, the most frequent first.

        Beside stored images stand negated ones, and spurious ones that were never stored.
        """
        draw = torch.Generator().manual_seed(mix(self.seed, 3))
        x = self.draw_noise((1000, model.n_features_in_), draw)
        found, counts = torch.as_tensor(model.recall(x)).unique(dim=0, return_counts=True)
        top = counts.argsort(descending=True, stable=True)[:SHOWN]
        named = self.name_states(torch.as_tensor(model.overlaps(found[top])))
        captions = [f"{word}\n{counts[i] / 10:.1f} %" for word, i in zip(named, top, strict=True)]
        title = f"the {len(top)} most frequent of {len(found)} states"
        images = self.image(found[top], data.spec)
        return image_grid(images, captions=captions, columns=6, title=title)


RECIPES = {
    "hopfield": StoredDigits(
        goal="recovered_bits >= 0.99 and recalled >= 0.98", covers=("H1", "H2", "H3")
    ),
}
