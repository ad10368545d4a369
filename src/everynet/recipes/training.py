"""A network that learns by descending a gradient: the kind of recipe most networks are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.metrics.meanings import BETTER
from everynet.metrics.summary import summarise_outputs
from everynet.nn.ema import EMA
from everynet.nn.lion import Lion
from everynet.nn.schedules import SCHEDULES, inverse_sqrt, warm_up
from everynet.recipes.plateau import OBJECTIVE, Plateau
from everynet.recipes.published import Published
from everynet.recipes.recipe import Answers, Fitting, Goal, Recipe, later
from everynet.recipes.state import M, State, X
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.user_files import line_of_method
from everynet.system.wording import nearest, shown


def minimised(terms: Terms) -> Tensor:
    """The sum of the terms that are minimised."""
    first, *others = (value for name, value in terms.items() if not name.startswith("_"))
    return sum(others, start=first)


def check_terms(cls: type, terms: object) -> None:
    """Refuse what no objective gives, which is a mistake in a recipe of one's own."""
    given: object = type(terms).__name__
    if isinstance(terms, dict) and terms:
        if all(isinstance(term, Tensor) and term.dim() == 0 for term in terms.values()):
            return
        given = {name: [*getattr(term, "shape", ())] for name, term in terms.items()}
    raise UserError(
        f"{line_of_method(cls, 'objective')}: objective must return a dict of scalar tensors by "
        f"name, such as {{'loss': loss.mean()}}, not {given}"
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


_LOOKS = 100


@dataclass(frozen=True, kw_only=True)
class Training(Recipe, Generic[M, X]):
    """A network that learns by descending a gradient."""

    steps: int = 1000
    """Updates in all; `epochs=` on the command line is turned into steps."""
    batch_size: int = 64
    """Samples of a batch, over all processes."""
    accumulate: int = later(1)
    """Batches whose gradients make one update: as one batch of so many times the samples."""
    lr: float = 1e-3
    """Learning rate, before the schedule's factor."""
    optimizer: str = "adam"
    """sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw or lion."""
    schedule: str = "constant"
    """constant, linear, cosine, step, one-cycle, plateau or inverse-sqrt."""
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
    metric: str = later("")
    """The validation metric that chooses weights and orders a sweep; empty: as the goal says."""
    start: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """A run to begin from, by names of tensors, tokens, columns and classes; or .safetensors.

    Of a network that has a table for them (`published`) also a folder in Hugging Face's layout.
    """

    kind: ClassVar[str] = "training"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda", "mps")
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "bf16", "fp64")
    captured: ClassVar[bool] = False  # a `step` of its own can be one CUDA graph, as the usual can
    overfits: ClassVar[bool] = True  # the goal's metric improves on one repeated batch
    new_classes: ClassVar[bool] = False  # `start` may be a run that shares no class with the data
    per_rank: ClassVar[bool] = False  # `extra` differs between processes: refuses several
    draws: ClassVar[bool | None] = None  # from Python's or numpy's generators; None: see update 1
    last_weights: ClassVar[bool] = False  # kept where the schedule takes the rate to its end
    waits: ClassVar[int] = 5  # evaluations without progress before plateau divides by ten
    published: ClassVar[Published | None] = None  # where published files have the weights
    known_optimizers: ClassVar[Collection[str]] = OPTIMIZERS  # more where `optimizers` makes them

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "batch_size", "accumulate")
        words = "at least 0" if self.start else "at least 1, or 0 with start=, which trains nothing"
        self.require(self.steps >= (0 if self.start else 1), "steps", words)
        self.above(0, "lr")
        self.at_least(0, "weight_decay", "clip", "clip_value")
        self.within(0, 1, "floor")
        self.at_least(0, "warmup", "eval_every", "save_every", "patience")
        self.one_of("optimizer", self.known_optimizers)
        self.one_of("schedule", SCHEDULES)
        if self.metric:
            self.monitored()  # refuses one of which nobody knows whether more is better
        monitors = self.schedule != "plateau" or self.monitored() is not None
        self.require(monitors, "schedule", "another where no goal says which metric to monitor")

    def dataset(self) -> Data:
        """The data, in three splits.

        A game, which gathers its own, has starts as rows of `valid` and others as rows of `test`:
        `Data(splits, sampler=Made())`, so that none that chose its weights tests it. `metrics`
        plays an episode from each row, and `final` many from those of `test`.
        """
        return Data.none()

    def updates_per_epoch(self, data: Data) -> int:
        """Updates in which each training sample is seen once; 0 where there is no set."""
        return -(-data.steps_per_epoch // self.accumulate)

    def suited(self, data: Data) -> dict[str, Any]:
        """Settings that follow from the user's own data where they were left open.

        Called once, when a run begins: they are printed, and kept in recipe.json. A hundred
        evaluations are enough however short an epoch is, because each may write a checkpoint.
        """
        every, epoch = self.steps // _LOOKS, self.updates_per_epoch(data)
        given = self.eval_every or "eval_every" in self.settings_given()
        short = data.own and not given and 0 < epoch < every
        return {"eval_every": every} if short else {}

    def model(self, data: Data) -> M:
        """The network, built from the fields and `data.spec`."""
        raise NotImplementedError  # every recipe says it: there is no default network

    def extra(self, model: M) -> X:
        """What learning carries besides weights: values that change are buffers or submodules.

        An `EMA` of the model follows each update, and is what is deployed.
        """
        return nn.Module()  # type: ignore[return-value]  # X is nn.Module where this is kept

    def optimizers(self, model: M) -> dict[str, Optimizer]:
        """Named optimisers; only what they are given is trained."""
        if not any(weight.requires_grad for weight in model.parameters()):
            raise UserError(
                f"{line_of_method(type(self), 'model')}: model must return a module with weights "
                "that take a gradient, because they are what is learned, and this has none"
            )
        made = make_optimizer(model.parameters(), self.optimizer, self.lr, self.weight_decay)
        return {"main": made}

    def rate(self, step: int, history: History) -> float:
        """Factor on the learning rate at update `step`: pure, of the step and the evaluations."""
        rising = warm_up(step, self.warmup)
        if self.schedule == "inverse-sqrt":
            return rising * inverse_sqrt(step, self.warmup, self.floor)
        if self.schedule != "plateau":
            return rising * SCHEDULES[self.schedule](step / self.steps, self.floor)
        monitor = self.monitored()
        assert monitor is not None  # __post_init__ asks for it
        plateau: Plateau | None = vars(self).get("_plateau")
        if plateau is None or not plateau.goes_on(history):
            plateau = Plateau(history, monitor, self.waits)
            object.__setattr__(
                self, "_plateau", plateau
            )  # frozen, but what is remembered is no field
        return rising * max(self.floor, plateau.factor(step))

    def objective(self, model: M, batch: Batch) -> Terms:
        """Named terms, each a scalar; their sum is minimised, names with `_` are only logged."""
        raise NotImplementedError  # a recipe gives this or its own `step`

    def step(self, state: State[M, X], batch: Batch) -> Terms:
        """One update. A GAN overrides this; little else does."""
        terms = self.objective(state.model, batch)
        try:
            state.descend(minimised(terms), clip=self.clip, clip_value=self.clip_value)
        except Exception:
            check_terms(type(self), terms)  # says what is wrong with them, if anything is
            if not minimised(terms).requires_grad:
                raise UserError(
                    f"{line_of_method(type(self), 'objective')}: objective must return terms that "
                    "depend on the weights of the model, because it goes down their gradient and "
                    "these have none; leave out detach(), .data and no_grad()"
                ) from None
            raise
        return terms

    def deployed(self, state: State[M, X]) -> M:
        """The model that is evaluated, drawn, exported and kept: averaged weights, if any."""
        return state.extra.average if isinstance(state.extra, EMA) else state.model

    def metrics(self, model: M, batch: Batch) -> dict[str, Tensor]:
        """One value per sample for each name; a scalar stands for the whole batch."""
        return self.objective(model, batch)

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics from the values of all samples."""
        return summarise_outputs(outputs)

    def final(self, model: M, data: Data, generator: torch.Generator) -> dict[str, float]:
        """Metrics that only the end asks for, beside those of the test split: BLEU of a beam, say.

        It is called once, with the weights kept, and by `everynet evaluate`, whose settings are its
        keyword-only parameters (`*, episodes: int = 100`). The goal may name what it gives.
        """
        return {}

    def monitor(self) -> Goal | None:
        """The clause whose metric picks the best weights; None keeps the last ones.

        It is a metric that `metrics` gives: `final` has not been called yet when weights are kept.
        """
        ends = self.last_weights and self.schedule not in ("constant", "plateau")
        return self.goals()[0] if self.goal and not ends else None

    def monitored(self) -> Goal | None:
        """What decides on the validation split: the setting `metric`, else what `monitor` says."""
        monitor = self.monitor()
        if not self.metric:
            return monitor
        known = {name: Goal(name, sign, float(sign == ">=")) for name, sign in BETTER.items()}
        known |= {goal.metric: goal for goal in (*self.goals(), *([monitor] if monitor else []))}
        if self.metric not in known:
            raise UserError(
                f"metric ({shown(self.metric)}) must be one of which it is known whether more is "
                "better, because the best evaluation is chosen by it" + nearest(self.metric, known)
            )
        return known[self.metric]

    def task_metric(self, measured: Collection[str]) -> Goal:
        """What the task is compared by, of the metrics that were measured.

        It is the setting `metric`, else the goal's; else accuracy of classes, the root of the mean
        squared error of numbers, what `monitor` says, or the objective.
        """
        if self.metric and (named := self.monitored()):
            return named
        goals = [goal for goal in self.goals() if goal.metric in measured or not measured]
        goals += [Goal(n, BETTER[n], 1.0) for n in ("accuracy", "rmse") if n in measured]
        monitor = self.monitor()
        goals += [monitor] if monitor and monitor.metric in measured else []
        return next(iter(goals), OBJECTIVE)

    def predict(self, model: M, inputs: Any, spec: Spec) -> Answers:  # noqa: ANN401 -- by its kind
        """An object for each input; keyword-only parameters are settings of the verb."""
        raise UserError(f"{self.name or type(self).__name__} does not predict from files")

    def sample(self, model: M, spec: Spec, generator: torch.Generator) -> Any:  # noqa: ANN401 -- by its kind
        """Samples of a generative network; keyword-only parameters (n=...) are settings.

        One of type `everynet.data.Inputs` is read from files, as the inputs of `predict` are.
        """
        raise UserError(f"{self.name or type(self).__name__} does not generate samples")

    def says(self, model: M, spec: Spec, generator: torch.Generator) -> str:
        """What the network makes at an evaluation, for the card; empty where there is no text."""
        return ""


def implements(recipe: Recipe, verb: str) -> bool:
    """Whether a recipe has a method `predict`, `sample`, `chat` or `final` of its own."""
    absent = (None, getattr(Training, verb, None), getattr(Fitting, verb, None))
    return getattr(type(recipe), verb, None) not in absent
