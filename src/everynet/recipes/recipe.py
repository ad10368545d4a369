"""A recipe says what is learned from what: a frozen dataclass whose fields are its settings.

There are four kinds. `Training` (`training.py`) descends a gradient, `Fitting` calls an estimator's
`fit`, `Simulation` computes a result from nothing but its settings, and `Experiment`
(`experiment.py`) trains several networks to show a law. A recipe touches no file, chooses no device
and prints nothing: the trainer and the run do that for all of them.
"""

from __future__ import annotations

import math
import operator
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, Self

import torch
from matplotlib.figure import Figure
from torch import Tensor
from typing_extensions import TypeVar

from everynet.data import built_in
from everynet.data.dataset import Batch, Data, Spec
from everynet.metrics.summary import summarise_outputs
from everynet.system.errors import UserError
from everynet.system.user_files import line_of_method
from everynet.system.wording import unknown, with_article

E = TypeVar("E", default=Any)
MOST_VALUES = 10_000
"""Of a setting that holds several, such as the widths of layers."""

Answers: typing.TypeAlias = Sequence[dict[str, Any]]
"""What `predict` returns for each input: plain JSON, or tensors that the kind of data writes."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Goal:
    """One clause of a recipe's goal, such as `accuracy >= 0.97`."""

    metric: str
    relation: str
    value: float

    @staticmethod
    def parse(text: str) -> tuple[Goal, ...]:
        """Read `a >= 1 and b < 2`; an empty text is no goal."""
        goals = []
        for clause in filter(None, (part.strip() for part in text.split(" and "))):
            match = re.fullmatch(r"(\w+)\s*(>=|<=|==|>|<)\s*(\S+)", clause)
            if match is None:
                raise ValueError(f"goal ({clause}) must read like 'accuracy >= 0.97'")
            goals.append(Goal(match[1], match[2], float(match[3])))
        return tuple(goals)

    def check(self, metrics: Mapping[str, float]) -> None:
        """Refuse metrics that lack the one of this clause."""
        if self.metric not in metrics:
            raise UserError(
                f"goal ({self.metric}) must name a metric that the recipe gives, which are "
                f"{', '.join(metrics) or 'none'}"
            )

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Whether the metrics meet this clause."""
        self.check(metrics)
        return _COMPARE[self.relation](metrics[self.metric], self.value)

    def merit(self, metrics: Mapping[str, float]) -> float:
        """A number that is larger the better the metrics are."""
        self.check(metrics)
        value = metrics[self.metric]
        if self.relation == "==":
            return -abs(value - self.value)
        return value if self.relation in (">=", ">") else -value


def fact(default: Any, *, compare: bool = True) -> Any:  # noqa: ANN401 -- the type of a field follows its default
    """A field that describes a recipe and is no setting: it cannot be overridden."""
    return field(default=default, compare=compare, metadata={"setting": False})


def later(default: Any, *, learns: bool = True) -> Any:  # noqa: ANN401 -- the type of a field follows its default
    """A setting that run folders may lack: those older than it were made as with its default.

    One that does not change what is learned (`learns`) leaves the goal of a recipe as it is.
    """
    return field(default=default, metadata={"later": True, "learns": learns})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all kinds share: a seed, a goal and the curriculum rows it shows."""

    seed: int = 0
    """All randomness of the run follows from this number."""
    goal: str = fact("")
    """What the metrics of the test split are to reach, such as `accuracy >= 0.97`."""
    covers: tuple[str, ...] = fact(())
    """The rows of the curriculum that it shows, such as `F1`."""
    name: str = fact("")
    changed: tuple[str, ...] = fact(())
    """Settings that differ from the recipe of the zoo: with any of them no goal is claimed."""
    explicit: tuple[str, ...] = fact((), compare=False)
    """Settings that were given, be it with the value of the recipe: data does not choose them."""

    kind: ClassVar[str] = ""
    writes: ClassVar[str] = ""
    """The kind of data that samples are written as, where it is not that of the data."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The kinds of data it takes, where a function asks for them and not `load(self.data, ...)`."""
    made_for: ClassVar[tuple[str, ...]] = ()
    """Kinds of one's own data, or tasks, for which it is a first choice: `list data=PATH`."""
    sources: ClassVar[tuple[str, ...]] = ("data",)
    """Settings that name a known set, or the user's own files, where these are text."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # where it can be computed
    precisions: ClassVar[tuple[str, ...]] = ("fp64",)  # the first is what `auto` means
    meanings: ClassVar[Mapping[str, str]] = {}
    """Each metric with its meaning; a star in a name stands for what settings decide."""

    def __post_init__(self) -> None:
        self.require(0 <= self.seed < 2**63, "seed", "at least 0 and below 2^63")
        for name, value in vars(self).items():
            if isinstance(value, tuple) and len(value) > MOST_VALUES:
                raise UserError(
                    f"{name} ({len(value):,} values) must hold at most {MOST_VALUES:,}, because a "
                    "network of more layers takes minutes to build"
                )

    # ------------------------------------------------------------------------------ declared checks

    def require(self, holds: bool, name: str, what: str | Callable[[], str]) -> None:
        """Refuse a setting with a line that names it, its value and what it must be."""
        if not holds:
            words = what if isinstance(what, str) else what()
            raise UserError(f"{name} ({getattr(self, name)}) must be {words}")

    def at_least(self, least: float, *names: str) -> None:
        """Refuse settings below `least`, or infinite ones."""
        for name in names:
            value = getattr(self, name)
            words = f"a number from {least} up" if type(value) is float else f"at least {least}"
            self.require(least <= value < math.inf, name, words)

    def above(self, least: float, *names: str) -> None:
        """Refuse settings that are not above `least`, or infinite."""
        for name in names:
            words = "a positive number" if least == 0 else f"a number above {least}"
            self.require(least < getattr(self, name) < math.inf, name, words)

    def within(self, low: float, high: float, *names: str) -> None:
        """Refuse settings outside of [low, high]."""
        for name in names:
            self.require(low <= getattr(self, name) <= high, name, f"a number from {low} to {high}")

    def one_of(self, name: str, known: Collection[object]) -> None:
        """Refuse a setting that is none of the known values, and name those most like it."""
        value = getattr(self, name)
        if value not in known:
            raise UserError(unknown(name, value, known))

    # ------------------------------------------------------------------------ goal, size, pictures

    def settings_given(self) -> tuple[str, ...]:
        """Settings that were given or differ from the recipe of the zoo, in the order of fields."""
        return tuple(f.name for f in fields(self) if f.name in {*self.changed, *self.explicit})

    def goals(self) -> tuple[Goal, ...]:
        """The goal, clause by clause."""
        return Goal.parse(self.goal)

    def tiny(self) -> Self:
        """Itself, small enough for a one-second test, on built-in or generated data.

        Settings that say how large something is are cut to `SMALL`; a recipe overrides this only
        where that is not enough.
        """
        sizes = {n: most for n, most in SMALL.items() if type(vars(self).get(n)) is int}
        small: dict[str, Any] = {n: min(getattr(self, n), most) for n, most in sizes.items()}
        given = {f.name: f for f in fields(self)}.get("data")
        if given is not None and str(vars(self)["data"]) not in built_in():
            small["data"] = given.default
        return replace(self, **small)

    @classmethod
    def picture_names(cls) -> dict[str, str]:
        """The pictures with their captions: those of the class first, then inherited ones.

        `picture_first_layer` draws `first-layer`, and its docstring is the caption; a class drops
        an inherited picture by `picture_first_layer = None`.
        """
        found: dict[str, str] = {}
        for owner in cls.__mro__:
            for attribute in vars(owner):
                if attribute.startswith("picture_") and attribute != "picture_names":
                    method = getattr(cls, attribute)
                    name = attribute.removeprefix("picture_").replace("_", "-")
                    if method is not None:
                        found.setdefault(name, " ".join((method.__doc__ or "").split()))
        return found

    def draw(self, *given: Any) -> dict[str, Drawn]:  # noqa: ANN401 -- what pictures of a kind show
        """Every picture with its caption, from what the methods `picture_...` are given."""
        drawn: dict[str, Drawn] = {}
        for name, caption in self.picture_names().items():
            method = "picture_" + name.replace("-", "_")
            made = getattr(self, method)(*given)
            if made is not None:
                figure = made[0] if isinstance(made, tuple) else made
                require_returned(self, method, figure, Figure, "a matplotlib Figure, or None")
            if isinstance(made, tuple):
                drawn[name] = Drawn(made[0], caption.format_map(made[1]))
            elif made is not None:
                drawn[name] = Drawn(made, caption)
        return drawn


def require_returned(
    owner: object,
    method: str,
    value: object,
    kind: type | tuple[type, ...],
    what: str,
    *,
    of: type | tuple[type, ...] = object,
) -> None:
    """Refuse what a method returned unless it is of its kind, and its values `of` theirs.

    That is a mistake in a recipe of one's own: the line names the place of the method.
    """
    if value is None:
        given = "None; end it in a return"
    elif isinstance(value, type):
        given = f"the class {value.__name__}; write {value.__name__}(...)"
    elif not isinstance(value, kind):
        given = with_article(type(value).__name__)
    elif isinstance(value, Mapping) and not all(isinstance(v, of) for v in value.values()):
        given = str({name: type(v).__name__ for name, v in value.items()})
    else:
        return
    where = line_of_method(type(owner), method)
    raise UserError(f"{where}: {method} must return {what}, not {given}")


NUMBERS = "a dict of numbers by name, such as {'error': error.item()}"
"""What metrics of a whole split or result are."""


class Drawn(NamedTuple):
    """A picture and what to see in it."""

    figure: Figure
    caption: str


SMALL: Mapping[str, int] = {
    **{"steps": 4, "batch_size": 8, "epochs": 2, "iterations": 2, "repeats": 1, "trials": 1},
    **{"hidden_size": 8, "embedding": 4, "layers": 2, "width": 4, "maps": 2, "vocabulary": 200},
}
"""What `tiny` cuts settings of these names to."""


# -------------------------------------------------------------------------- Fitting and Simulation


@dataclass(frozen=True, kw_only=True)
class Fitting(Recipe, Generic[E]):
    """An estimator that learns all at once; its attributes that end in `_` are what is saved."""

    kind: ClassVar[str] = "fitting"

    def dataset(self) -> Data:
        """The data, in three splits."""
        raise NotImplementedError  # every recipe has one

    def model(self, data: Data) -> E:
        """The estimator, built from the fields."""
        raise NotImplementedError  # every recipe has one

    def fit(self, model: E, data: Data) -> E:
        """Fit the estimator to the training split."""
        return typing.cast("E", model.fit(*data.whole))  # type: ignore[attr-defined]  # a duck

    def check_learned(self, model: E, spec: Spec) -> None:
        """Refuse an estimator from a run folder whose learned values cannot be used.

        What the spec says as well must agree with it. ValueError says what is wrong.
        """
        check = getattr(model, "check_learned", None)
        if check is not None:
            check()

    def metrics(self, model: E, batch: Batch) -> dict[str, Tensor]:
        """One value per sample for each name."""
        raise NotImplementedError  # every recipe has one

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from the values of all samples."""
        return summarise_outputs(outputs)

    def final(self, model: E, data: Data, generator: torch.Generator) -> dict[str, float]:
        """Metrics beside those of the test split; its parameters are settings of `evaluate`."""
        return {}

    def predict(self, model: E, inputs: Any, spec: Spec) -> Answers:  # noqa: ANN401 -- by its kind
        """An object for each input; keyword-only parameters are settings of the verb."""
        raise UserError(f"{self.name or type(self).__name__} does not predict from files")

    def sample(self, model: E, spec: Spec, generator: torch.Generator) -> Any:  # noqa: ANN401 -- by its kind
        """Samples of a generative model; keyword-only parameters (n=...) are settings."""
        raise UserError(f"{self.name or type(self).__name__} does not generate samples")


@dataclass(frozen=True, kw_only=True)
class Simulation(Recipe):
    """A system whose result follows from its settings: dynamics, or a law shown by experiment."""

    kind: ClassVar[str] = "simulation"

    def ready(self) -> None:
        """Check settings that need files to be read, before the run folder is made."""

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Run it: named arrays, which are saved."""
        raise NotImplementedError  # every recipe has one

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics of the result."""
        raise NotImplementedError  # every recipe has one

    def images_to_keep(self, result: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Images, pixels from 0 to 1, that the run keeps as PNG files, by name; none by default."""
        return {}
