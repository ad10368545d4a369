"""A recipe says what is learned from what: a frozen dataclass whose fields are its settings.

There are four kinds. `Training` descends a gradient, `Fitting` calls an estimator's `fit`,
`Simulation` computes a result from nothing but its settings, and `Experiment` (`experiments.py`)
trains several networks to show a law. A recipe touches no file, chooses no device and prints
nothing: the trainer and the run do that for all of them.
"""

from __future__ import annotations

import math
import operator
import re
import typing
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, Generic

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypeVar

from everynet.data.dataset import Batch, Data, History, Spec, Terms, UserError, nearest
from everynet.metrics.summary import summarised
from everynet.nn.lion import Lion
from everynet.nn.schedules import SCHEDULES, warm_up
from everynet.recipes.trained import Trained
from everynet.system.user_files import line_of

M = TypeVar("M", bound=nn.Module, default=nn.Module)
X = TypeVar("X", bound=nn.Module, default=nn.Module)
E = TypeVar("E", default=Any)

Pictures: typing.TypeAlias = dict[str, Figure]
Answers: typing.TypeAlias = Sequence[dict[str, Any]]
"""What `predict` says of each input: plain JSON, or tensors that the kind of data writes."""

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
        """Refuse figures among which the one that this clause names is not."""
        if self.metric not in metrics:
            raise UserError(
                f"goal ({self.metric}) must name a figure that the recipe gives, which are "
                f"{', '.join(metrics) or 'none'}"
            )

    def reached(self, metrics: Mapping[str, float]) -> bool:
        """Whether the figures meet this clause."""
        self.check(metrics)
        return _COMPARE[self.relation](metrics[self.metric], self.value)

    def merit(self, metrics: Mapping[str, float]) -> float:
        """A number that is larger the better the figures are."""
        self.check(metrics)
        value = metrics[self.metric]
        if self.relation == "==":
            return -abs(value - self.value)
        return value if self.relation in (">=", ">") else -value


def fact(default: Any) -> Any:  # noqa: ANN401 -- the type of a field follows its default
    """A field that says something of a recipe and is no setting: it cannot be overridden."""
    return field(default=default, metadata={"setting": False})


def later(default: Any) -> Any:  # noqa: ANN401 -- the type of a field follows its default
    """A setting that run folders may lack: those older than it were made as with its default."""
    return field(default=default, metadata={"later": True})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all kinds share: a seed, a goal and the curriculum rows it shows."""

    seed: int = 0
    """All randomness of the run follows from this number."""
    goal: str = fact("")
    covers: tuple[str, ...] = fact(())
    name: str = fact("")
    changed: tuple[str, ...] = fact(())
    """Settings that differ from the recipe of the zoo: with any of them no goal is claimed."""

    kind: ClassVar[str] = ""
    writes: ClassVar[str] = ""
    """The kind of data that samples are written as, where it is not that of the data."""
    sources: ClassVar[tuple[str, ...]] = ("data",)
    """Settings that name a known set, or the user's own files, where these are text."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)  # where it can be computed
    precisions: ClassVar[tuple[str, ...]] = ("fp64",)  # the first is what `auto` means
    captions: ClassVar[Mapping[str, str]] = {}
    """The pictures that tell how it works, most telling first, each with what to see in it."""
    figures: ClassVar[Mapping[str, str]] = {}
    """What it prints, each with its meaning; a star in a name stands for what settings decide."""

    def __post_init__(self) -> None:
        self.require(0 <= self.seed < 2**63, "seed", "at least 0 and below 2^63")

    def require(self, holds: bool, name: str, what: str) -> None:
        """Refuse a setting with a line that names it, its value and what it must be."""
        if not holds:
            raise UserError(f"{name} ({getattr(self, name)}) must be {what}")

    def goals(self) -> tuple[Goal, ...]:
        """The goal, clause by clause."""
        return Goal.parse(self.goal)

    def tiny(self) -> Recipe:
        """Itself, small enough for a one-second test, on built-in or generated data."""
        return self


def telling(recipe: Recipe, drawn: Collection[str]) -> dict[str, str]:
    """The pictures of a run that tell most, with their captions: the first three it drew."""
    return dict(islice(((n, c) for n, c in recipe.captions.items() if n in drawn), 3))


# ---------------------------------------------------------------------------------------- Training


@dataclass
class State(Generic[M, X]):
    """All that changes while a Training runs; a checkpoint holds exactly this."""

    model: M
    extra: X
    optimizers: dict[str, Optimizer]
    done: int = 0
    """What `step` gives; whoever runs the updates counts here."""
    reduce: Callable[[Sequence[Tensor], Tensor, float | Tensor], Tensor] | None = None
    """Averages the gradients of parameters over the processes of a data-parallel run, by weight."""
    draws: bool | None = None
    """Whether updates draw from Python's or numpy's generators; None before the first one."""
    compiled: Callable[[M, Batch], Terms] | None = None
    """The recipe's objective, compiled, where that was asked for."""
    asked: bool = False
    """Whether `step` was read since this was last set to False."""
    eager: str = ""
    """Why updates on cuda are not captured as one graph; empty where they are, or may be."""
    _clock: Tensor | None = None

    @property
    def step(self) -> int:
        """Updates done. An update that reads it cannot be captured on cuda: see `clock`."""
        self.asked = True
        return self.done

    @step.setter
    def step(self, done: int) -> None:
        self.done = done

    @property
    def clock(self) -> Tensor:
        """Updates done, as a whole number on the device, which a captured update may read."""
        if self._clock is None:
            device = next((t.device for t in self.model.parameters()), torch.device("cpu"))
            self._clock = torch.full((), self.done, device=device)
        return self._clock

    def tick(self) -> None:
        """Set the clock, if anyone has looked at it, before an update."""
        if self._clock is not None:
            self._clock.fill_(self.done)

    def descend(
        self,
        loss: Tensor | Callable[[], Tensor],
        name: str = "main",
        *,
        weight: float | Tensor = 1.0,
        clip: float = 0.0,
        clip_value: float = 0.0,
    ) -> None:
        """One step of optimiser `name` down the gradient of `loss`.

        Over processes the gradient is sum_r w_r g_r / sum_r w_r: `weight` is how much the loss of
        this one counts, such as its number of tokens where the loss is a mean over tokens.
        Each entry of the gradient is clipped at `clip_value`, then its norm at `clip`; 0 clips not.
        Autocast is for the forward pass: it is off here, and what it remembers of the weights,
        which are about to change, is forgotten.

        An optimiser that evaluates the loss several times a step (L-BFGS) takes a function.
        """
        optimizer = self.optimizers[name]
        given = [p for group in optimizer.param_groups for p in group["params"]]

        kind = given[0].device.type
        autocast = torch.is_autocast_enabled(kind)

        def gradient() -> Tensor:
            value = loss
            if callable(value):
                torch.set_autocast_enabled(kind, autocast)
                value = value()
                torch.set_autocast_enabled(kind, False)
            for parameter in given:  # what zero_grad does, without its profiling
                parameter.grad = None
            # Only for what this optimiser was given: the two players of a GAN leave no gradients
            # on each other.
            value.backward(inputs=given if len(self.optimizers) > 1 else None)
            if self.reduce is not None:
                value = self.reduce(given, value, weight)
            if clip_value > 0:
                nn.utils.clip_grad_value_(given, clip_value)
            if clip > 0:
                nn.utils.clip_grad_norm_(given, clip)
            return value

        if autocast:  # switched by hand: the context costs 0.1 ms
            torch.set_autocast_enabled(kind, False)
        try:
            if callable(loss):
                optimizer.step(lambda: gradient().item())
            else:
                gradient()
                optimizer.step()
        finally:
            if autocast:
                torch.set_autocast_enabled(kind, True)
                torch.clear_autocast_cache()


def minimised(terms: Terms) -> Tensor:
    """The sum of the terms that are minimised."""
    first, *others = (value for name, value in terms.items() if not name.startswith("_"))
    return sum(others, start=first)


def _check_terms(cls: type, terms: object) -> None:
    """Refuse what no objective gives, which is a mistake in a recipe of one's own."""
    given: object = type(terms).__name__
    if isinstance(terms, dict) and terms:
        if all(isinstance(term, Tensor) and term.dim() == 0 for term in terms.values()):
            return
        given = {name: [*getattr(term, "shape", ())] for name, term in terms.items()}
    raise UserError(
        f"{line_of(cls, 'def objective(')}: objective must give a dict of scalar tensors by name, "
        f"such as {{'loss': loss.mean()}}, not {given}"
    )


def _on_cpu(groups: Sequence[Any]) -> bool:  # Any: parameters, or groups of them
    first = groups[0]["params"][0] if isinstance(groups[0], dict) else groups[0]
    return bool(first.is_cpu)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda groups, lr: torch.optim.SGD(groups, lr=lr, fused=True),
    "momentum": lambda groups, lr: torch.optim.SGD(groups, lr=lr, momentum=0.9, fused=True),
    "nesterov": lambda groups, lr: torch.optim.SGD(
        groups, lr=lr, momentum=0.9, nesterov=True, fused=True
    ),
    "adagrad": lambda groups, lr: torch.optim.Adagrad(groups, lr=lr, fused=_on_cpu(groups)),
    "rmsprop": lambda groups, lr: torch.optim.RMSprop(groups, lr=lr),
    "adam": lambda groups, lr: torch.optim.Adam(groups, lr=lr, fused=True),
    "adamw": lambda groups, lr: torch.optim.AdamW(groups, lr=lr, weight_decay=0.0, fused=True),
    "lion": lambda groups, lr: Lion(groups, lr=lr),
}


def make_optimizer(
    parameters: Iterable[nn.Parameter], optimizer: str, lr: float, weight_decay: float = 0.0
) -> Optimizer:
    """An optimiser by name, fused where torch has it; decay acts on matrices, not on biases."""
    given = [p for p in parameters if p.requires_grad]
    if weight_decay == 0:
        return OPTIMIZERS[optimizer](given, lr)
    groups = [
        {"params": [p for p in given if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in given if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return OPTIMIZERS[optimizer]([group for group in groups if group["params"]], lr)


class Watch:
    """What plateau makes of the evaluations: each is looked at once, as the history grows."""

    def __init__(self, history: History, judge: Goal, waits: int) -> None:
        self.history, self.judge, self.waits = history, judge, waits
        self._best, self._since, self._seen = -math.inf, 0, 0
        self._last: Mapping[str, Any] | None = None
        self._steps, self._factors = [-1], [1.0]

    def goes_on(self, history: History) -> bool:
        """Whether this is the history that was looked at, with rows added to it at most."""
        if history is not self.history or len(history) < self._seen:
            return False
        return self._seen == 0 or history[self._seen - 1] is self._last

    def factor(self, step: int) -> float:
        """A tenth for each `waits` evaluations without progress, up to `step`."""
        while self._seen < len(self.history):
            self._last = self.history[self._seen]
            self._seen += 1
            if "valid" not in self._last:
                continue
            value = self.judge.merit(self._last["valid"])
            self._since = 0 if value > self._best else self._since + 1
            self._best = max(self._best, value)
            if self._since >= self.waits:
                self._since = 0
                self._steps.append(self._last["step"])
                self._factors.append(self._factors[-1] / 10)
        return self._factors[bisect_right(self._steps, step) - 1]


_LOOKS = 100


@dataclass(frozen=True, kw_only=True)
class Training(Recipe, Generic[M, X]):
    """A network that learns by descending a gradient."""

    steps: int = 1000
    """Updates in all; `epochs=` on the command line is turned into steps."""
    batch_size: int = 64
    """Samples an update sees, over all processes."""
    lr: float = 1e-3
    """Learning rate, before the schedule's factor."""
    optimizer: str = "adam"
    """sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw or lion."""
    schedule: str = "constant"
    """constant, linear, cosine, step, one-cycle or plateau."""
    floor: float = 0.0
    """Share of the learning rate below which the schedule does not go."""
    warmup: int = 0
    """Updates over which the learning rate rises to the schedule's."""
    weight_decay: float = 0.0
    """L2 decay of weights; biases and norms are left out."""
    clip: float = 0.0
    """Largest gradient norm; 0 clips nothing."""
    clip_value: float = 0.0
    """Largest size of an entry of the gradient; 0 clips nothing."""
    eval_every: int = 0
    """Steps between evaluations; 0 is once an epoch, or a twentieth of the run."""
    save_every: int = 0
    """Steps between checkpoints; 0 is at each evaluation."""
    patience: int = later(0)
    """Evaluations in a row without a better one that end the run; 0 never does."""
    start: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """A run or a .safetensors file to begin from: weights whose names and shapes agree."""

    kind: ClassVar[str] = "training"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda", "mps")
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "bf16", "fp64")
    captured: ClassVar[bool] = False  # a `step` of its own can be one CUDA graph, as the usual can
    overfits: ClassVar[bool] = True  # the goal's metric improves on one repeated batch
    per_rank: ClassVar[bool] = False  # `extra` differs between processes: refuses torchrun
    draws: ClassVar[bool | None] = None  # from Python's or numpy's generators; None: see update 1
    waits: ClassVar[int] = 5  # evaluations without progress before plateau divides by ten
    known_optimizers: ClassVar[Collection[str]] = OPTIMIZERS  # more where `optimizers` makes them

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.steps >= 1, "steps", "at least 1")
        self.require(self.batch_size >= 1, "batch_size", "at least 1")
        self.require(0 < self.lr < math.inf, "lr", "a positive number")
        self.require(0 <= self.weight_decay < math.inf, "weight_decay", "a number from 0 up")
        for name in ("clip", "clip_value"):
            self.require(0 <= getattr(self, name) < math.inf, name, "a number from 0 up")
        self.require(0 <= self.floor <= 1, "floor", "a number from 0 to 1")
        self.require(self.warmup >= 0, "warmup", "at least 0")
        self.require(self.eval_every >= 0, "eval_every", "at least 0")
        self.require(self.save_every >= 0, "save_every", "at least 0")
        self.require(self.patience >= 0, "patience", "at least 0")
        for name, known in (("optimizer", self.known_optimizers), ("schedule", SCHEDULES)):
            value = getattr(self, name)
            self.require(value in known, name, "one we have" + nearest(value, known))
        watches = self.schedule != "plateau" or bool(self.goal)
        self.require(watches, "schedule", "another where no goal says which metric to watch")

    def dataset(self) -> Data:
        """The data, in three splits."""
        return Data.none()

    def suited(self, data: Data) -> dict[str, Any]:
        """Settings that follow from the user's own data where they were left open.

        Asked once, when a run begins: they are said, and kept in recipe.json. A hundred evaluations
        are enough however short an epoch is, because each may write a checkpoint.
        """
        every, epoch = self.steps // _LOOKS, data.steps_per_epoch
        short = data.own and not self.eval_every and 0 < epoch < every
        return {"eval_every": every} if short else {}

    def model(self, data: Data) -> M:
        """The network, built from the fields and `data.spec`."""
        raise NotImplementedError  # every recipe says it: there is no default network

    def extra(self, model: M) -> X:
        """What learning carries besides weights: values that change are buffers or submodules."""
        return nn.Module()  # type: ignore[return-value]  # X is nn.Module where this is kept

    def optimizers(self, model: M) -> dict[str, Optimizer]:
        """Named optimisers; only what they are given is trained."""
        made = make_optimizer(model.parameters(), self.optimizer, self.lr, self.weight_decay)
        return {"main": made}

    def rate(self, step: int, history: History) -> float:
        """Factor on the learning rate at update `step`: pure, of the step and the evaluations."""
        rising = warm_up(step, self.warmup)
        if self.schedule != "plateau":
            return rising * SCHEDULES[self.schedule](step / self.steps, self.floor)
        judge = self.judge()
        assert judge is not None  # __post_init__ asks for a goal
        watch: Watch | None = vars(self).get("_watch")
        if watch is None or not watch.goes_on(history):
            watch = Watch(history, judge, self.waits)
            object.__setattr__(self, "_watch", watch)  # frozen, but what is remembered is no field
        return rising * max(self.floor, watch.factor(step))

    def objective(self, model: M, batch: Batch) -> Terms:
        """Named terms, each a scalar; their sum is minimised, names with `_` are only logged."""
        raise NotImplementedError  # a recipe gives this or its own `step`

    def step(self, state: State[M, X], batch: Batch) -> Terms:
        """One update. A GAN overrides this; little else does."""
        terms = (state.compiled or self.objective)(state.model, batch)
        _check_terms(type(self), terms)
        state.descend(minimised(terms), clip=self.clip, clip_value=self.clip_value)
        return terms

    def deployed(self, state: State[M, X]) -> M:
        """The model that is evaluated, drawn, exported and kept."""
        return state.model

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        """One value per sample for each name; a scalar stands for the whole batch."""
        return self.objective(model, batch)

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures from the values of all samples."""
        return summarised(outputs)

    def judge(self) -> Goal | None:
        """The clause whose metric picks the best weights; without a goal the last are kept."""
        return self.goals()[0] if self.goal else None

    def pictures(self, model: M, data: Data, history: History) -> Pictures:
        """Named figures that show how the network works."""
        return {}  # one of the zoo without a picture fails the contract test

    def predict(self, model: M, inputs: Any, spec: Spec) -> Answers:  # noqa: ANN401 -- by its kind
        """An object for each input; keyword-only parameters are settings of the verb."""
        raise UserError(f"{self.name or type(self).__name__} does not predict from files")

    def sample(self, model: M, spec: Spec, generator: torch.Generator) -> Any:  # noqa: ANN401 -- by its kind
        """Samples of a generative network; keyword-only parameters (n=...) are settings."""
        raise UserError(f"{self.name or type(self).__name__} does not generate samples")

    def says(self, model: M, spec: Spec, generator: torch.Generator) -> str:
        """What the network makes at an evaluation, for the card; empty where there is no text."""
        return ""

    def tiny(self) -> Training[M, X]:
        return replace(self, steps=min(self.steps, 4), batch_size=min(self.batch_size, 8))


# -------------------------------------------------------------------------- Fitting and Simulation


@dataclass(frozen=True, kw_only=True)
class Fitting(Recipe, Generic[E]):
    """An estimator that learns all at once; its attributes that end in `_` are what is saved."""

    kind: ClassVar[str] = "fitting"

    def dataset(self) -> Data:
        """The data, in three splits."""
        raise NotImplementedError  # an estimator needs data

    def model(self, data: Data) -> E:
        """The estimator, built from the fields."""
        raise NotImplementedError  # every recipe says it

    def fit(self, model: E, data: Data) -> E:
        """Let the estimator learn from the training split."""
        return typing.cast("E", model.fit(*data.whole))  # type: ignore[attr-defined]  # a duck

    def metrics(self, model: E, batch: Batch) -> dict[str, Tensor]:
        """One value per sample for each name."""
        raise NotImplementedError  # every recipe says it

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures from the values of all samples."""
        return summarised(outputs)

    def pictures(self, model: E, data: Data, history: History) -> Pictures:
        """Named figures that show how the estimator works."""
        return {}  # one of the zoo without a picture fails the contract test

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
        """Refuse what it was given where only files can tell, before a folder is made."""

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Run it: named arrays, which are saved."""
        raise NotImplementedError  # every recipe says it

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures of the result."""
        raise NotImplementedError  # every recipe says it

    def pictures(self, result: Mapping[str, Tensor]) -> Pictures:
        """Named figures of the result."""
        return {}  # one of the zoo without a picture fails the contract test
