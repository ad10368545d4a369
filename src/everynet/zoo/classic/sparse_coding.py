"""Sparse coding: each row is a sum of few atoms of a dictionary that is learned with the codes.

    F     = (1/n) sum_i [1/2 |x_i - c_i D|^2 + alpha |c_i|_1]            (1)  objective
    S(v)  = sign(v) max(0, |v| - alpha / L)                              (2)  soft threshold
    c    <- S(c - (c D - x) D^T / L),   L = lambda_max(D D^T)            (3)  ISTA
    A     = C^T C,   B = C^T X                                           (4)  sums over rows
    d_k  <- P(d_k + (B_k - A_k D) / A_kk),   P(d) = d / max(1, |d|)      (5)  dictionary

x_i is row i of n, c_i its code, a row of C, and d_k atom k, a row of D no longer than 1, because
else codes could shrink for nothing. For a fixed D this is the lasso, which has one least value. L
bounds the curvature, so that (3) never raises F: it descends a parabola above F, the threshold
being exact for the absolute value, and makes most entries of a code 0. (5) is exact for one atom at
a time, so that F falls at every step of both. There may be more atoms than columns; an atom that no
row uses becomes the row that is coded worst, which changes no code.

Olshausen, Field (1996), "Emergence of simple-cell receptive field properties by learning a sparse
code for natural images", doi:10.1038/381607a0. ISTA: Daubechies, Defrise, De Mol (2004),
doi:10.1002/cpa.20042. (5): Mairal, Bach, Ponce, Sapiro (2010), "Online Learning for Matrix
Factorization and Sparse Coding", arXiv:0908.0050.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import normalize

from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.images.standardize import digest
from everynet.data.kinds import image
from everynet.data.samples import Samples
from everynet.nn.estimator import Array, Caller, Learned, check_learned, inputs, unsupervised
from everynet.plot.images import filters, image_grid
from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Fitting
from everynet.system.errors import UserError
from everynet.system.seeds import generator as seeded
from everynet.zoo.classic.rows import require_components
from everynet.zoo.vision.photo import photograph

Codes = Float[Tensor, "samples atoms"]
Dictionary = Float[Tensor, "atoms features"]


class SparseCoding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns `components_`, the dictionary; transforms rows to sparse codes.

    `objectives_` is F after each step of ISTA and each update of the dictionary. Without
    `n_components` there are as many atoms as columns.
    """

    components_: Array
    objectives_: Array
    n_iter_: int

    def __init__(  # noqa: PLR0917 -- an estimator's are
        self,
        n_components: int | None = None,
        alpha: float = 1.0,
        max_iter: int = 50,
        steps: int = 10,
        tol: float = 1e-6,
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.max_iter = max_iter
        self.steps = steps
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Array, y: Array = None) -> Self:
        """`max_iter` times `steps` steps of ISTA on all rows and one update of the dictionary."""
        for name in ("max_iter", "steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} ({getattr(self, name)}) must be at least 1")
        if not self.alpha > 0:
            raise UserError(f"alpha ({self.alpha}) must be a positive number, or no code is sparse")
        x, form = unsupervised(self, X)
        k = min(x.shape) if self.n_components is None else self.n_components
        require_components(k, x, columns=False)
        chosen = torch.randperm(len(x), generator=seeded(self.random_state))[:k]
        d, curve = normalize(x[chosen.to(x.device)], dim=1), []
        codes = x.new_zeros(len(x), k)
        for _ in range(self.max_iter):
            for codes in ista(x, d, self.alpha, codes, self.steps):  # noqa: B020
                curve.append(objective(x, codes, d, self.alpha))
            d = update_dictionary(x, codes, d)
            curve.append(objective(x, codes, d, self.alpha))
        self.components_ = form.give(d)
        self.objectives_ = form.give(torch.stack(curve))
        self.n_iter_ = self.max_iter
        return self

    def transform(self, X: Array) -> Array:
        """The code of each row, by ISTA until no entry moves by more than `tol`."""
        x, form = inputs(self, X)
        return form.give(encode(x, form.take(self.components_), self.alpha, self.tol))

    def inverse_transform(self, X: Array) -> Array:
        """The rows that codes stand for."""
        form = Caller.of(X)
        return form.give(form.take(X).to(torch.float64) @ form.take(self.components_))

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "n_features_in_": Learned("int", "features", low=1),
            "components_": Learned("float64", "atoms features", low=-1.001, high=1.001),
            "objectives_": Learned("float64", "steps", low=0),
            "n_iter_": Learned("int", low=1),
        })  # fmt: skip

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def objective(
    x: Float[Tensor, "samples features"], codes: Codes, d: Dictionary, alpha: float
) -> Float[Tensor, ""]:
    """F, the mean over rows."""
    error = (x - codes @ d).square().sum(1) / 2
    return (error + alpha * codes.abs().sum(1)).mean()  # (1)


def soft_threshold(v: Float[Tensor, "*shape"], size: float) -> Float[Tensor, "*shape"]:
    """Numbers that are nearer to 0 by `size`, or 0."""
    return v - v.clamp(-size, size)  # (2)


def curvature(d: Dictionary) -> float:
    """L, which bounds the curvature of the squared error; 1 where all atoms are 0."""
    return float(torch.linalg.matrix_norm(d, 2)) ** 2 or 1.0


def ista(
    x: Float[Tensor, "samples features"], d: Dictionary, alpha: float, codes: Codes, steps: int
) -> Iterator[Codes]:
    """The codes after each step."""
    gram, target, largest = d @ d.T, x @ d.T, curvature(d)
    for _ in range(steps):
        codes = soft_threshold(codes - (codes @ gram - target) / largest, alpha / largest)  # (3)
        yield codes


def encode(
    x: Float[Tensor, "samples features"],
    d: Dictionary,
    alpha: float,
    tol: float,
    most: int = 10_000,
) -> Codes:
    """The lasso of each row: (3) until no entry of its code moves by more than `tol`."""
    gram, target, largest = d @ d.T, x @ d.T, curvature(d)
    found, codes = torch.zeros_like(target), torch.zeros_like(target)
    rows = torch.arange(len(x), device=x.device)
    for _ in range(most):
        before = codes
        codes = soft_threshold(codes - (codes @ gram - target) / largest, alpha / largest)
        moving = (codes - before).abs().amax(1) > tol
        if not moving.all():
            found[rows] = codes
            rows, codes, target = rows[moving], codes[moving], target[moving]
        if not len(rows):
            return found
    found[rows] = codes
    warnings.warn(
        f"{len(rows)} codes still moved by more than tol ({tol}) after {most} steps; raise alpha "
        "or tol",
        ConvergenceWarning,
        stacklevel=3,
    )
    return found


def update_dictionary(
    x: Float[Tensor, "samples features"], codes: Codes, d: Dictionary
) -> Dictionary:
    """The dictionary after one update of each atom in turn."""
    d, a, b = d.clone(), codes.T @ codes, codes.T @ x  # (4)
    unused = []
    for k in range(len(d)):
        if a[k, k] <= 0:
            unused.append(k)
            continue
        atom = d[k] + (b[k] - a[k] @ d) / a[k, k]
        d[k] = atom / atom.norm().clamp(min=1.0)  # (5)
    if unused:
        worst = (x - codes @ d).square().sum(1).argsort(descending=True)[: len(unused)]
        d[unused[: len(worst)]] = normalize(x[worst], dim=1)
    return d


# -------- the network ends here; training and pictures follow --------

CODED = 500  # patches that the random dictionary is compared on
SHOWN = 6  # images in a picture


@dataclass(frozen=True, kw_only=True)
class PhotoCode(Fitting[SparseCoding]):
    """Write each patch of a photograph as a sum of few atoms."""

    meanings: ClassVar[Mapping[str, str]] = {
        "objective": "half the squared error of a patch, and alpha times the sum of its code",
        "explained": "the share of the variance of test patches that the codes explain",
        "active": "the share of entries of a code that are not 0",
        "pca": "the share that as many principal components explain as a code has entries",
        "random_objective": "the same with a dictionary of random atoms, on some of the patches",
        "largest_rise": "the most that a step of learning raised F: rounding",
    }
    sources: ClassVar[tuple[str, ...]] = ()

    photo: str = "china"
    """A photograph: china, flower or an image file."""
    patch: int = 8
    """Side of a patch in pixels."""
    size: int = 64
    """Side of the squares that are cut from the photograph, and of pictures to predict from."""
    images: int = 60
    """Squares to learn from; valid and test are 20 each, from other columns of pixels."""
    atoms: int = 100
    """Atoms of the dictionary."""
    alpha: float = 0.15
    """Weight of the sum of absolute values, for patches of variance 1 over the photograph."""
    iterations: int = 30
    """Updates of the dictionary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "patch")
        self.at_least(1, "images", "atoms", "iterations")
        self.above(0, "alpha")
        whole = self.size % self.patch == 0 and self.size >= self.patch
        self.require(whole, "size", f"a multiple of patch ({self.patch}), because it is cut up")

    def dataset(self) -> Data:
        grey = (photograph(self.photo, 2 * self.size) * 255).round().to(torch.uint8)
        width, draw = grey.shape[1], seeded(self.seed, 1)
        cuts = (0, int(0.6 * width), int(0.8 * width), width)
        if min(b - a for a, b in pairwise(cuts)) < self.size:
            raise UserError(
                f"size ({self.size}) must be at most a fifth of the width of the photo, {width} "
                "pixels, from which training, validation and test are cut side by side"
            )
        counts = {"train": self.images, "valid": min(20, self.images), "test": min(20, self.images)}
        parts = {
            part: (
                cut_squares(grey[:, low:high], self.size, count, draw),
                torch.zeros(count).long(),
            )
            for (part, count), low, high in zip(counts.items(), cuts, cuts[1:], strict=False)
        }
        samples = Samples(
            name=self.photo, parts=parts, digest=digest(*(x for x, _ in parts.values())),
            split="squares of the first 60 % of the columns of pixels, the next and the last 20 %",
            classes=(self.photo,), task="picture",
        )  # fmt: skip
        return image.KIND.data(samples, batch_size=1, size=self.size)

    def model(self, data: Data) -> SparseCoding:
        return SparseCoding(self.atoms, self.alpha, self.iterations, random_state=self.seed)

    def fit(self, model: SparseCoding, data: Data) -> SparseCoding:
        return model.fit(cut_patches(data.whole[0].double(), self.patch)[0])

    def check_learned(self, model: SparseCoding, spec: Spec) -> None:
        super().check_learned(model, spec)
        if model.n_features_in_ != self.patch**2:
            raise ValueError(f"n_features_in_ must be {self.patch**2}, the pixels of a patch")

    def metrics(self, model: SparseCoding, batch: Batch) -> dict[str, Tensor]:
        x, _ = cut_patches(batch[0].double(), self.patch)
        codes = torch.as_tensor(model.transform(x))
        error = (x - torch.as_tensor(model.inverse_transform(codes))).square().sum(1)
        return {
            "objective": error / 2 + self.alpha * codes.abs().sum(1),
            "active": (codes != 0).double().mean(1),
            "_error": error,
            "_square": x.square().sum(1),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        found = {name: float(outputs[name].mean()) for name in ("objective", "active")}
        found["explained"] = 1 - float(outputs["_error"].sum() / outputs["_square"].sum())
        return found

    def final(
        self, model: SparseCoding, data: Data, generator: torch.Generator
    ) -> dict[str, float]:
        x = cut_patches(data.whole[0].double(), self.patch)[0]
        test = cut_patches(data.splits["test"][0].double(), self.patch)[0]
        codes = torch.as_tensor(model.transform(test))
        k = max(1, round(float((codes != 0).double().sum(1).mean())))
        directions = torch.linalg.eigh(x.T @ x)[1][:, -k:]
        noise = torch.randn(*codes.shape[1:], x.shape[1], generator=generator, dtype=x.dtype)
        some, other = test[:CODED], normalize(noise, dim=1)
        curve = torch.as_tensor(model.objectives_)
        random = objective(some, encode(some, other, self.alpha, 1e-4), other, self.alpha)
        return {
            "pca": float((test @ directions).square().sum() / test.square().sum()),
            "random_objective": float(random),
            "largest_rise": max(0.0, float(curve.diff().max())),
        }

    def picture_atoms(self, model: SparseCoding, data: Data, history: History) -> Figure:
        """The atoms, those that most training patches use first: red is lighter, blue darker."""
        x = cut_patches(data.whole[0].double(), self.patch)[0][:2000]
        used = (torch.as_tensor(model.transform(x)) != 0).double().mean(0)
        atoms = torch.as_tensor(model.components_)[used.argsort(descending=True)]
        return filters(atoms.reshape(-1, 1, self.patch, self.patch), most=40, title="atoms")

    def picture_reconstructions(
        self, model: SparseCoding, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Squares of the test part of the photograph (above) and what their codes say (below).

        A patch has {numbers} pixels and its code {active:.1f} entries that are not 0.
        """
        x = data.splits["test"][0][:SHOWN]
        codes, made = self._coded(model, x)
        shown = image_grid(torch.cat([x.double(), made]), columns=SHOWN)
        active = float((codes != 0).double().sum(-1).mean())
        return shown, {"numbers": self.patch**2, "active": active}

    def picture_learning(self, model: SparseCoding, data: Data, history: History) -> Figure:
        """F by step of learning, after each step of ISTA and each update of the dictionary.

        It falls at every step.
        """
        curve = torch.as_tensor(model.objectives_)
        steps = torch.arange(1.0, 1 + len(curve))
        return panels(Panel({"F": (steps, curve)}, "step", "objective of a patch", log="x",
                            legend="none"))  # fmt: skip

    def _coded(self, model: SparseCoding, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes, images x patches x atoms, and the images that they stand for."""
        patches, means = cut_patches(x.double(), self.patch)
        codes = torch.as_tensor(model.transform(patches))
        made = torch.as_tensor(model.inverse_transform(codes)) + means
        return codes.view(len(x), -1, codes.shape[1]), join_patches(made, x.shape[-1], self.patch)

    def predict(
        self, model: SparseCoding, inputs: Float[Tensor, "batch 1 height width"], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The code of each image, patch by patch from the top left, and the reconstruction."""
        codes, made = self._coded(model, inputs)
        active = (codes != 0).double().mean((1, 2)).tolist()
        each = zip(codes.flatten(1).tolist(), active, made.float(), strict=True)
        return [{"code": code, "active": a, "reconstruction": made} for code, a, made in each]

    def tiny(self) -> Self:
        return replace(super().tiny(), images=2, atoms=10)


def cut_squares(
    grey: UInt8[Tensor, "height width"], size: int, count: int, generator: torch.Generator
) -> UInt8[Tensor, "count 1 size size"]:
    """Squares from random places."""
    tops = torch.randint(grey.shape[0] - size + 1, (count,), generator=generator).tolist()
    lefts = torch.randint(grey.shape[1] - size + 1, (count,), generator=generator).tolist()
    places = zip(tops, lefts, strict=True)
    return torch.stack([grey[None, y : y + size, x : x + size] for y, x in places])


def cut_patches(
    x: Float[Tensor, "images 1 height width"], side: int
) -> tuple[Float[Tensor, "patches pixels"], Float[Tensor, "patches 1"]]:
    """Patches that lie side by side, less the mean of each, and the means."""
    tiles = x.unfold(2, side, side).unfold(3, side, side)
    patches = tiles.reshape(-1, side * side)
    means = patches.mean(1, keepdim=True)
    return patches - means, means


def join_patches(
    patches: Float[Tensor, "patches pixels"], size: int, side: int
) -> Float[Tensor, "images 1 size size"]:
    """The images of which these are the patches."""
    across = size // side
    tiles = patches.view(-1, 1, across, across, side, side).transpose(3, 4)
    return tiles.reshape(-1, 1, size, size)


RECIPES = {
    "sparse-coding": PhotoCode(
        goal="largest_rise <= 1e-12 and explained >= 0.9 and active <= 0.25", covers=("M23",)
    ),
}
