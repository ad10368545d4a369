"""scikit-learn's contract for our estimators, written once.

An estimator computes on float64 tensors. It asks `regression`, `classification` or, where there
are no targets, `unsupervised` for them in `fit` and `inputs` for them afterwards; each also gives a
`Caller`, which hands results back the way the caller's data came: tensors for tensors (on their
device), arrays for anything else.

    class Mean(RegressorMixin, BaseEstimator):
        def fit(self, X: Array, y: Array) -> Self:
            _, targets, form = regression(self, X, y)
            self.mean_ = form.give(targets.mean())
            return self

        def predict(self, X: Array) -> Array:
            x, form = inputs(self, X)
            return form.give(form.take(self.mean_).expand(len(x)))

`__init__` stores its arguments and nothing else; what is learned ends in `_`; a method called
before `fit` raises scikit-learn's NotFittedError, which names `fit`. What was learned may also come
from a run folder, which anyone may have made: `check_learned` looks at it before it is used.

    def check_learned(self) -> None:
        check_learned(vars(self), {"mean_": Learned("float64")})
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

Array: TypeAlias = Any
"""A tensor, or what scikit-learn takes for an array: checked when called, so not typed here."""
Estimator: TypeAlias = Any
"""One of scikit-learn's estimators; their learned attributes are declared nowhere."""

LARGEST = 1e100
"""Of a number that was learned: sums of products of such numbers are finite."""


@dataclass(frozen=True)
class Caller:
    """The form of the caller's data: tensors on a device, or arrays (None)."""

    device: torch.device | None

    @staticmethod
    def of(X: Array) -> Caller:
        """The form of the caller's data."""
        return Caller(X.device if isinstance(X, Tensor) else None)

    def take(self, value: Array) -> Tensor:
        """A tensor to compute with: on the caller's device if that has float64, else the CPU.

        It shares the memory of an array, and is not to be changed in place.
        """
        tensor = value if isinstance(value, Tensor) else _tensor(value)
        on_device = self.device is not None and self.device.type != "mps"
        return tensor.to(self.device if on_device else torch.device("cpu"))

    def give(self, value: Tensor | NDArray[Any]) -> Array:
        """The result in the caller's form; labels that are no numbers stay an array."""
        if self.device is None:
            return value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        if not isinstance(value, Tensor) and value.dtype.kind not in "biuf":
            return value
        tensor = value.detach() if isinstance(value, Tensor) else torch.tensor(value)
        narrow = self.device.type == "mps" and tensor.dtype == torch.float64
        return (tensor.float() if narrow else tensor).to(self.device)


def _tensor(value: Array) -> Tensor:
    array = np.ascontiguousarray(value)
    return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)


def regression(
    estimator: Estimator, X: Array, y: Array
) -> tuple[Float[Tensor, "samples features"], Float[Tensor, " samples"], Caller]:
    """Validated inputs and targets to fit, and the form of results."""
    form = Caller.of(X)
    rows, targets = validate_data(
        estimator, as_array(X), as_array(y), dtype=np.float64, y_numeric=True, ensure_min_samples=2
    )
    return form.take(rows), form.take(np.asarray(targets, dtype=np.float64)), form


def classification(
    estimator: Estimator, X: Array, y: Array
) -> tuple[Float[Tensor, "samples features"], Int[Tensor, " samples"], Caller]:
    """Validated inputs and the index of each class in `classes_`, which is set here."""
    form = Caller.of(X)
    rows, targets = validate_data(
        estimator, as_array(X), as_array(y), dtype=np.float64, ensure_min_samples=2
    )
    classes, index = class_numbers(targets)
    estimator.classes_ = form.give(classes)
    return form.take(rows), form.take(index), form


def class_numbers(targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The classes in targets, at least two, and the index of each target among them."""
    check_classification_targets(targets)
    classes, index = np.unique(targets, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds 1 class ({classes[0]}) and must hold at least 2, because there is nothing "
            "to tell apart; add samples of another class"
        )
    return classes, index


def unsupervised(
    estimator: Estimator, X: Array, *, reset: bool = True, keep_float32: bool = False
) -> tuple[Float[Tensor, "samples features"], Caller]:
    """Validated inputs to fit without targets, and the form of results.

    Where `fit` computes in float32 it may take such arrays as they are, which saves a copy.
    """
    dtype = (np.float64, np.float32) if keep_float32 else np.float64
    rows = validate_data(estimator, as_array(X), dtype=dtype, reset=reset)
    form = Caller.of(X)
    return form.take(rows), form


def inputs(estimator: Estimator, X: Array) -> tuple[Float[Tensor, "samples features"], Caller]:
    """Validated inputs of a fitted estimator; before `fit`, NotFittedError."""
    check_is_fitted(estimator)
    return unsupervised(estimator, X, reset=False)


def labels(estimator: Estimator, index: Int[Tensor, " samples"], form: Caller) -> Array:
    """The labels in `classes_` at these indices."""
    classes = np.asarray(as_array(estimator.classes_))
    return form.give(classes[index.cpu().numpy()])


# ------------------------------------------------------------------- what comes from a run folder


class Learned(NamedTuple):
    """What a learned value must be: numbers of a type and a shape, from `low` to `high`."""

    dtype: str
    """That of a tensor or an array; else Python's own type, where "list" is one of texts."""
    shape: str = ""
    """Sizes, by number or by a name that stands for one size; an int with a shape is that size."""
    low: float = -LARGEST
    high: float = LARGEST
    ascending: bool = False
    """Whether each number is above the one before it."""

    def fits(self, value: object, sizes: dict[str, int]) -> bool:
        """Whether a value is like that, with sizes that are known; NaN never is."""
        if _type_of(value) != self.dtype:
            return False
        names, found = self.shape.split(), _shape_of(value)
        if isinstance(value, int) and names:
            found = [value]
        for name, size in zip(names, found, strict=False):
            sizes.setdefault(name, int(name) if name.isdigit() else size)
        if [*found] != [sizes.get(name) for name in names] or (0 in found and "0" not in names):
            return False
        if isinstance(value, list):
            return all(isinstance(text, str) for text in value)
        numbers = np.asarray(as_array(value))
        if numbers.dtype.kind == "f":
            numbers = numbers.astype(np.float64)  # or `low` and `high` might be too large for it
        inside = bool(((numbers >= self.low) & (numbers <= self.high)).all())
        return inside and not (self.ascending and (numbers[1:] <= numbers[:-1]).any())


def linear_classifier(classes: str, outputs: str) -> dict[str, Learned]:
    """What a linear classifier learns: a weight for each feature and a bias for each output."""
    return {
        "n_features_in_": Learned("int", "features", low=1),
        "classes_": Learned("int64", classes, ascending=True),
        "coef_": Learned("float64", f"{outputs} features"),
        "intercept_": Learned("float64", outputs),
    }


CONVERGED = {
    "gradient_curve_": Learned("float64", "iterates", low=0),
    "n_iter_": Learned("int", low=1),
}
"""What is kept of the iterates that `converge` followed."""


def _type_of(value: object) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return str(value.dtype).removeprefix("torch.")
    return type(value).__name__


def _shape_of(value: object) -> Sequence[int]:
    return [len(value)] if isinstance(value, list) else getattr(value, "shape", ())


def check_learned(values: Mapping[str, object], declared: Mapping[str, Learned]) -> dict[str, int]:
    """Refuse values that no `fit` learns, because compiled loops index without a look at bounds.

    Gives the sizes by name.
    """
    sizes: dict[str, int] = {}
    for name, wanted in declared.items():
        if name not in values:
            raise ValueError(f"{name} must be there, because it was learned")
        value = values[name]
        if not wanted.fits(value, sizes):
            shape = ", ".join(str(sizes.get(size, size)) for size in wanted.shape.split())
            rising = "ascending " * wanted.ascending
            raise ValueError(
                f"{name} ({_type_of(value)} {[*_shape_of(value)]}) must be {rising}{wanted.dtype} "
                f"[{shape}] from {wanted.low:g} to {wanted.high:g}"
            )
    return sizes


def converge(
    iterates: Iterable[tuple[Tensor, Tensor]], tol: float, max_iter: int
) -> tuple[Tensor, Float[Tensor, " iterates"]]:
    """Follow (weights, gradient) until no entry of the gradient is above `tol`.

    Gives the last weights and the largest entry of each gradient, the start's first. Warns as
    scikit-learn does where the iterates end, or `max_iter` of them are made, before that.
    """
    curve: list[Tensor] = []
    for last, gradient in islice(iterates, max_iter + 1):
        weights = last
        curve.append(gradient.abs().max())
        if curve[-1] <= tol:
            break
    else:
        warnings.warn(
            f"the largest entry of the gradient is {curve[-1]:.2g} after {len(curve) - 1} steps, "
            f"above tol ({tol}); standardise the features or raise max_iter",
            ConvergenceWarning,
            stacklevel=3,
        )
    return weights, torch.stack(curve)


def as_array(value: Array) -> Array:
    """A tensor as an array scikit-learn can check; anything else is left to its own checks."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()
