"""Networks in scikit-learn: an estimator whose `fit` trains a recipe on X and y, in memory.

    net = everynet.estimator("mlp", lr=0.01, hidden=(32,))
    cross_val_score(make_pipeline(StandardScaler(), net), X, y, n_jobs=2)
    GridSearchCV(net, {"lr": [0.001, 0.01]}).fit(X, y).predict(X)

Parameters are the settings of the recipe; `random_state` is its seed. X is an array of rows, images
of three or four axes, or a frame, whose columns become features as those of a run do. All rows are
trained on and the last weights kept, because whoever calls `fit` divides them; a tenth is held out
only where a setting asks for it: `patience`, `metric` or `schedule="plateau"`. Nothing is written
unless `out` names a folder for runs, and nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from inspect import Parameter, Signature
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self, cast

import numpy as np
import torch
from jaxtyping import Float64, Int, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from everynet.data import kinds
from everynet.data.dataset import Data
from everynet.data.in_memory import Columns, Given, Part, holding, part
from everynet.data.split import VALID, held_out, rows, stratified
from everynet.nn.estimator import Array, Caller, as_array, class_numbers, labels
from everynet.recipes.catalog import find
from everynet.recipes.settings import (
    override,
    plain_settings,
    setting_docs,
    settings,
    unknown_setting,
)
from everynet.recipes.training import Training
from everynet.runs.folder import resolve, with_data
from everynet.runs.job import Result
from everynet.runs.log import to_columns
from everynet.runs.predict import AT_ONCE
from everynet.runs.training_job import TrainingJob
from everynet.runs.verbs import run_prepared, setup_for
from everynet.system.errors import NonFinite, UserError
from everynet.system.wording import nearest, unknown, with_article
from everynet.training.device import Setup, computing
from everynet.training.graph import has_images
from everynet.training.loop import evaluating
from everynet.training.processes import World

OF_DATA = {"target": "", "task": "", "drop": (), "strict": False, "holdout": True}
"""Settings that are no parameters, because X, y and the class of the estimator say them."""
OWN = {
    "random_state": "The seed; None or a RandomState draws one at each fit.",
    "device": "auto, cpu, cuda or mps.",
    "precision": "auto, fp32, tf32, bf16 or fp64.",
    "out": "A folder below which the run is kept; None keeps nothing but the estimator.",
}
"""Parameters besides the settings of the recipe."""
Targets = Shaped[np.ndarray, " rows"]
Rows = Int[np.ndarray, " rows"]


def estimator(
    name: str | Training[Any, Any], *, task: str = "classification", **settings: object
) -> Network:
    """The network of a recipe as an estimator of scikit-learn, with some settings replaced.

    `task="regression"` gives a regressor: scikit-learn asks which of the two it is before `fit`.
    """
    return _class_of(name, task)(**settings)


class Network(BaseEstimator):
    """What classifiers and regressors share; each recipe has a subclass with its settings."""

    _recipe: ClassVar[Training[Any, Any]]
    _given: ClassVar[str | Training[Any, Any]]
    """What `estimator` was given."""
    _task: ClassVar[str]
    _answer: ClassVar[str]
    """What the recipe must predict of each input."""
    _defaults: ClassVar[Mapping[str, Any]]

    def __init__(self, **parameters: object) -> None:
        _check_known(self, parameters, TypeError)
        self.__dict__.update({**self._defaults, **parameters})

    def set_params(self, **parameters: object) -> Self:
        """Replace parameters."""
        _check_known(self, parameters, ValueError)
        return cast("Self", super().set_params(**parameters))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True  # of a table, as in a run: the median, and a column
        return tags

    # ---------------------------------------------------------------------------- learning

    def fit(self, X: Array, y: Array) -> Self:
        """Train the network, and keep its last weights, or the best on what was held out."""
        x, targets = _checked(self, X, y)
        classes, codes = self._number(targets, Caller.of(X))
        recipe, out = self._with_settings(classes), vars(self)["out"]
        chooses = bool(recipe.patience or recipe.metric or recipe.schedule == "plateau")
        order, parts = _divided(codes, chooses)
        if recipe.batch_size == self._defaults["batch_size"] > len(parts["train"]):
            recipe = _typed(replace(recipe, batch_size=len(parts["train"])))
        if chooses:
            x, codes = _in_order(x, order), codes[order]
        y_given = codes if classes is None else [f"class {code:09}" for code in codes.tolist()]
        given = Given(x, y_given, parts=parts)
        recipe = _typed(resolve(with_data(recipe, given.name)))
        with holding(given), computing(setup := self._setup(recipe)), torch.enable_grad():
            job = InMemory(
                recipe, setup, World() if out else Unwritten(), classes=classes, chooses=chooses
            )
            job.prepare()
            job.check_answers(self._answer, self._task)
            result = run_prepared(job, Path(out)) if out else job.run()
        self.recipe_, self.spec_, self.model_ = job.recipe, job.data.spec, job.network()
        self.n_iter_, self.history_ = job.state.step, to_columns(job.log.rows)
        self.run_ = result.folder if out else None
        return self

    def _number(self, targets: Targets, form: Caller) -> tuple[tuple[str, ...] | None, Targets]:
        """The names of the classes, if any, and the targets as a network learns them."""
        raise NotImplementedError  # a classifier and a regressor say it

    def _with_settings(self, classes: tuple[str, ...] | None) -> Training[Any, Any]:
        """The recipe with the parameters that differ from it."""
        blank: dict[str, Any] = {
            name: value for name, value in OF_DATA.items() if hasattr(self._recipe, name)
        }
        found: dict[str, Any] = {"seed": _seed(vars(self)["random_state"])}
        for name, default in self._defaults.items():
            value = _plain(vars(self)[name])
            if name not in OWN and value != default:
                found[name] = value
        weights = found.get("class_weight", "")
        if isinstance(weights, dict) and classes is not None:
            del found["class_weight"]
            named = {str(label): float(weight) for label, weight in weights.items()}
            if odd := [label for label in named if label not in classes]:
                raise UserError(
                    f"class_weight ({odd[0]}) must name classes of y" + nearest(odd[0], classes)
                )
            found["class_weights"] = tuple(named.get(label, 1.0) for label in classes)
        elif weights is None:
            del found["class_weight"]
        return _typed(override(replace(self._recipe, **blank), found))

    def _setup(self, recipe: Training[Any, Any]) -> Setup:
        return setup_for(recipe, vars(self)["device"], vars(self)["precision"])

    # -------------------------------------------------------------------------- predicting

    def _answers(self, X: Array) -> list[dict[str, Any]]:
        """What the recipe predicts of each input."""
        check_is_fitted(self)
        x = part(_inputs(self, X, reset=False))
        recipe, model, spec = self.recipe_, self.model_, self.spec_
        setup, inputs = self._setup(recipe), kinds.of(spec).convert(x, spec)
        model.to(device=setup.device, dtype=setup.dtype)
        images, found = has_images(model), list[dict[str, Any]]()
        with evaluating(model), setup.autocast():
            for some in cast("Tensor", inputs).split(AT_ONCE):
                found += recipe.predict(model, *setup.place((some,), images=images), spec)
        return found

    # ------------------------------------------------------------- copied and sent elsewhere

    def __reduce__(self) -> tuple[Callable[..., Network], tuple[object, ...], dict[str, Any]]:
        return _remade, (self._given, self._task), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        """Parameters and what was learned; a network is the arrays of its weights."""
        state = {**vars(self)}
        if "model_" in state:
            weights = state["model_"].state_dict().items()
            state["model_"] = {name: tensor.cpu().numpy() for name, tensor in weights}
            state["recipe_"] = plain_settings(state["recipe_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "model_" not in state:
            return
        weights = {name: torch.tensor(array) for name, array in state["model_"].items()}
        self.recipe_ = _typed(override(self._recipe, state["recipe_"]))
        with torch.random.fork_rng(devices=[]):
            model = self.recipe_.model(Data.described(self.spec_)).eval()
        if any(tensor.dtype == torch.float64 for tensor in weights.values()):
            model.double()
        if has_images(model):
            model.to(memory_format=torch.channels_last)
        model.load_state_dict(weights)
        self.model_ = model


class NetworkClassifier(ClassifierMixin, Network):
    """A network that learns classes."""

    _task: ClassVar[str] = "classification"
    _answer: ClassVar[str] = "probabilities"

    def _number(self, targets: Targets, form: Caller) -> tuple[tuple[str, ...] | None, Targets]:
        classes, codes = class_numbers(targets)
        self.classes_ = form.give(classes)
        return tuple(map(str, classes.tolist())), codes

    def predict(self, X: Array) -> Array:
        """The most likely class of each input."""
        most_likely = torch.from_numpy(self._probabilities(X).argmax(1))
        return labels(self, most_likely, Caller.of(X))

    def predict_proba(self, X: Array) -> Array:
        """The probability of each class, in the order of `classes_`."""
        return Caller.of(X).give(self._probabilities(X))

    def _probabilities(self, X: Array) -> Float64[np.ndarray, "rows classes"]:
        found = [[*answer[self._answer].values()] for answer in self._answers(X)]
        return np.array(found, dtype=np.float64)


class NetworkRegressor(RegressorMixin, Network):
    """A network that learns a number."""

    _task: ClassVar[str] = "regression"
    _answer: ClassVar[str] = "value"

    def _number(self, targets: Targets, form: Caller) -> tuple[tuple[str, ...] | None, Targets]:
        return None, targets.astype(np.float64)

    def predict(self, X: Array) -> Array:
        """The number of each input."""
        found = [answer[self._answer] for answer in self._answers(X)]
        return Caller.of(X).give(np.array(found, dtype=np.float64))


# ------------------------------------------------------------------------------- its classes


def _class_of(name: str | Training[Any, Any], task: str) -> type[Network]:
    """The class of estimators of a recipe."""
    tasks = {cls._task: cls for cls in (NetworkClassifier, NetworkRegressor)}
    if task not in tasks:
        raise UserError(unknown("task", task, tasks))
    recipe = find(name) if isinstance(name, str) else name
    if not isinstance(recipe, Training) or not hasattr(recipe, "data"):
        kind = getattr(recipe, "kind", type(recipe).__name__)
        called = getattr(recipe, "name", "") or type(recipe).__name__
        raise UserError(
            f"{called} ({with_article(kind)}) must be a training that takes data= to be an "
            "estimator; a fitting has one of its own in everynet.zoo, see: everynet list"
        )
    return _made(recipe, name, tasks[task])


@cache
def _made(
    recipe: Training[Any, Any], given: str | Training[Any, Any], parent: type[Network]
) -> type[Network]:
    """A subclass whose `__init__` has the settings as parameters: scikit-learn asks for them."""
    plain = (bool, int, float, str, tuple)
    defaults: dict[str, Any] = {
        name: value if isinstance(value, plain) else str(value)
        for name, value in settings(recipe).items()
        if name not in {"data", "seed", "save_every", *OF_DATA}
    }
    defaults |= {"random_state": recipe.seed, "device": "auto", "precision": "auto", "out": None}

    def __init__(self: Network, **parameters: object) -> None:
        Network.__init__(self, **parameters)

    shown = [Parameter(n, Parameter.KEYWORD_ONLY, default=v) for n, v in defaults.items()]
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = Signature([itself, *shown])  # type: ignore[attr-defined]
    called = recipe.name or type(recipe).__name__
    lines = (f"{name}: {text}" for name, text in (setting_docs(recipe) | OWN).items()
             if name in defaults)  # fmt: skip
    about = f"The recipe {called} as an estimator ({parent._task}).\n\n" + "\n".join(lines)
    facts = {"_recipe": recipe, "_given": given, "_defaults": defaults, "__init__": __init__}
    facts |= {"__doc__": about, "__module__": __name__}
    head = "".join(word[:1].upper() + word[1:] for word in called.split("-"))
    return type(head + parent.__name__.removeprefix("Network"), (parent,), facts)


def _remade(given: str | Training[Any, Any], task: str) -> Network:
    """An estimator with the parameters of its recipe: what a copy begins as."""
    return _class_of(given, task)()


def _check_known(network: Network, names: Mapping[str, object], error: type[Exception]) -> None:
    for name, value in names.items():
        if name in network._defaults:
            continue
        line = unknown_setting(network._recipe, name, value)
        if name == "seed":
            line = f"seed ({value}) is called random_state by scikit-learn; write that"
        elif name in settings(network._recipe):
            line = f"{name} must be left out of an estimator, because X and y of fit say it"
        raise error(line)


def _typed(recipe: object) -> Training[Any, Any]:
    assert isinstance(recipe, Training)  # as it was before settings were replaced
    return recipe


def _seed(random_state: Any) -> int:  # noqa: ANN401 -- as scikit-learn takes it
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _plain(value: Any) -> Any:  # noqa: ANN401 -- a parameter
    """A value of numpy, as a search over parameters gives them, as Python's own."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


# -------------------------------------------------------------------------------- X and y


def _inputs(network: Network, X: Array, **checks: Any) -> Any:  # noqa: ANN401 -- arrays, or frames
    """X, and y if that is among the checks, which scikit-learn has found to be good.

    Of a frame only the names and the number of columns are looked at: its columns may hold words,
    dates or nothing, which become features as those of a run do.
    """
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        return validate_data(network, X, **checks, skip_check_array=True)
    if "y" in checks:
        checks |= {"y_numeric": network._task == "regression", "ensure_min_samples": 2}
    several = len(getattr(X, "shape", ())) > 2
    finite = True if several else "allow-nan"
    return validate_data(
        network, as_array(X), **checks, dtype="numeric", allow_nd=True, ensure_all_finite=finite
    )


def _checked(network: Network, X: Array, y: Array) -> tuple[Part, Targets]:
    """X and y to be learned from, as data in memory and as one column."""
    X, y = _inputs(network, X, y=as_array(y))
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    check_consistent_length(X, y)
    return part(X), y


def _divided(targets: Targets, chooses: bool) -> tuple[Rows, dict[str, range]]:
    """The rows in order, those that choose the weights last, and the parts of them.

    Where none are held out, `valid` and `test` are not looked at.
    """
    count = len(targets)
    if not chooses:
        return np.arange(count), {"train": range(count), "valid": range(1), "test": range(1)}
    if targets.dtype.kind == "f":
        marked = held_out(rows(count), VALID, "valid")
    else:
        marked = stratified(torch.from_numpy(targets), VALID, "valid")
    last = range(count - int(marked.sum()), count)
    order = marked.int().argsort(stable=True).numpy()
    return order, {"train": range(last.start), "valid": last, "test": last}


def _in_order(x: Part, order: Rows) -> Part:
    """The rows of an array or of a frame in another order."""
    if isinstance(x, Columns):
        return replace(x, cells=tuple(cells[order] for cells in x.cells))
    assert isinstance(x, np.ndarray)  # texts have been refused
    ordered: Part = x[order]
    return ordered


# ------------------------------------------------------------------------------ the training


@dataclass(frozen=True)
class Unwritten(World):
    """One process that writes no file: what it learns stays in memory."""

    @property
    def writes(self) -> bool:
        """Whether this process writes files."""
        return False


@dataclass
class InMemory(TrainingJob):
    """A training without a test, whose weights stay in memory, whether it has a folder or not."""

    classes: tuple[str, ...] | None = None
    """The names of the classes, where the network learns some."""
    chooses: bool = False
    """Whether rows are held out that choose the weights."""
    best_tensors: dict[str, Tensor] = field(default_factory=dict, init=False)

    def read_data(self) -> None:
        super().read_data()
        spec = self.data.spec
        spec = spec if self.classes is None else spec | {"classes": [*self.classes]}
        self.data = replace(self.data, chooses=self.chooses, spec=spec)

    def check_answers(self, wanted: str, task: str) -> None:
        """Refuse a recipe that predicts something else, before it is trained."""
        batch = next(iter(self.data.valid))
        with evaluating(self.deployed):
            answers = self.recipe.predict(self.deployed, batch[0][:1], self.data.spec)
        if wanted not in answers[0]:
            raise UserError(
                f"{self.recipe.name} predicts {', '.join(answers[0])} and not {wanted}, so it is "
                f"no estimator for {task}; try mlp"
            )

    @property
    def eval_every(self) -> int:
        """Updates between two evaluations, which nothing asks for where nothing chooses."""
        return super().eval_every if self.chooses else self.until

    def evaluate(self) -> dict[str, Any]:
        return super().evaluate() if self.chooses else {"step": self.state.step, "valid": {}}

    def save_best(self) -> None:
        super().save_best()
        weights = self.deployed.state_dict().items()
        self.best_tensors = {name: tensor.detach().clone() for name, tensor in weights}

    def test_best(self, damage: str) -> Result:
        """Nothing is held out that could test the network: whoever called `fit` does."""
        return Result(self.folder, {}, None, ())

    def network(self) -> nn.Module:
        """The network with the weights that are kept."""
        if self.best_tensors:
            self.deployed.load_state_dict(self.best_tensors)
        return self.deployed.eval()

    def explain_non_finite(self, seen: int) -> NoReturn:
        raise NonFinite(f"a value became non-finite by step {seen}; try a smaller lr or clip=1")

    def explain_memory(self, error: Exception) -> str:
        step, size = self.state.step + 1, self.recipe.batch_size
        return f"memory ran out in update {step:,}; do a smaller batch_size ({size}) or network"
