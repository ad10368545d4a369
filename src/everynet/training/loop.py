"""The loop: begin a state, train it record by record, evaluate, and find what went non-finite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from everynet.data.dataset import Batch, Data, History, Record, Spec
from everynet.nn.frozen import Frozen
from everynet.recipes.recipe import NUMBERS, Fitting, require_returned
from everynet.recipes.state import M, State, X
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.memory import give_back_holes, keep_freed_memory
from everynet.system.seeds import generator, mix, random_state_kept, seed_all
from everynet.system.user_files import line_of_method
from everynet.training.device import Setup, choose, computing, threads_for
from everynet.training.graph import UPDATE as UPDATE  # noqa: PLC0414 -- beside the others
from everynet.training.graph import Update, has_images, hold_rates
from everynet.training.processes import SharedState, World
from everynet.training.start import Start

INITIAL, EVALUATION, PICTURES = 0, 1, 2  # seeds of what happens outside an update
TEST, FINAL = 5, 6  # of the test split and of `final`: those of `valid` have chosen the weights
_BATCHES = 64  # of an evaluation, after which free memory goes back to the system
VALUES = "a dict of tensors by name, such as {'loss': loss}"
"""What metrics of a batch are: a value for each row, or one for all of them."""


def begin(
    recipe: Training[M, X],
    data: Data,
    setup: Setup | None = None,
    world: World | None = None,
    start: Start | None = None,
) -> State[M, X]:
    """The state before the first update: all but weights to start from follows from the seed."""
    setup, world = setup or choose("cpu"), world or World()
    seed_all(setup.device, recipe.seed, INITIAL)
    model = recipe.model(data)
    require_returned(recipe, "model", model, nn.Module, "a torch.nn.Module")
    model = model.to(device=setup.device, dtype=setup.dtype)
    if start is not None:
        start.copy_into(model)
    if has_images(model):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a stub
    if world.size > 1 and setup.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    extra = recipe.extra(model).to(device=setup.device, dtype=setup.dtype)
    optimizers = recipe.optimizers(model)
    named = "a dict of torch optimisers by name, such as {'main': optimizer}"
    require_returned(recipe, "optimizers", optimizers, dict, named, of=Optimizer)
    hold_rates([*optimizers.values()], setup)
    if world.size > 1:
        return SharedState(model, extra, optimizers, world=world)
    return State(model, extra, optimizers)


def with_threads(setup: Setup, recipe: Training[M, X], model: nn.Module) -> Setup:
    """The setup with the number of threads that suits a network, or one that is given in it."""
    given = [module.network for module in model.modules() if isinstance(module, Frozen)]
    most = max(threads_for(part, recipe.batch_size) for part in (model, *given))
    return replace(setup, threads=most)


def train(
    recipe: Training[M, X],
    state: State[M, X],
    data: Data,
    *,
    history: History = (),
    setup: Setup | None = None,
    world: World | None = None,
    update: Update[M, X] | None = None,
) -> Iterator[Record]:
    """Train `state` in place, one record an update: the caller's loop body replaces callbacks.

    Between two records the state is whole and may be saved. `history` may grow meanwhile. Whoever
    wants to know more of the updates makes the `update`.
    """
    update = update or Update(recipe, state, data, setup or choose("cpu"), world)
    keep_freed_memory()
    state.model.train()
    with data.feed(update.share) as feed:
        while state.step < recipe.steps:
            terms = update(feed, history)
            yield Record(state.step, terms)


def trained(recipe: Training[M, X], data: Data) -> M:
    """The network that a recipe ends with, in memory: no folder, one thread, the last weights."""
    with computing(choose("cpu")), torch.enable_grad():  # an evaluation may ask for it
        state = begin(recipe, data)
        for _ in train(recipe, state, data):
            pass
    return recipe.deployed(state).eval()


def relearned(recipe: Training[M, X], data: Data, count: int) -> Iterator[tuple[int, M]]:
    """The network before the first update and on its way, as a film of `count` frames shows it.

    It learns anew what it learned in a run, on one thread; the steps are at about equal distances
    of their root, because most happens early. The network is one and the same, and goes on.
    """
    shown = {round(recipe.steps * (k / (count - 1)) ** 2) for k in range(1, count)}
    data = data.to(torch.device("cpu"), torch.float32)
    with torch.enable_grad():
        state = begin(recipe, data)
    with evaluating(state.model):
        yield 0, state.model
    records = train(recipe, state, data)
    while state.step < recipe.steps:
        with torch.enable_grad():
            next(records)
        if state.step in shown:
            with evaluating(state.model):
                yield state.step, state.model


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Put a network in eval mode without gradients, and back as it was."""
    training = isinstance(model, nn.Module) and model.training
    if isinstance(model, nn.Module) and training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if isinstance(model, nn.Module) and training:
            model.train()


def evaluate(
    recipe: Training[Any, Any] | Fitting[Any],
    model: object,
    batches: Iterable[Batch],
    setup: Setup | None = None,
) -> dict[str, float]:
    """Each metric over the samples (not the batches) of a split; once, empty, without a split."""
    return summarise(recipe, measure(recipe, model, batches, setup))


def summarise(
    recipe: Training[Any, Any] | Fitting[Any], outputs: Mapping[str, Tensor]
) -> dict[str, float]:
    """Metrics from what the recipe says of every sample."""
    metrics = recipe.summarise(outputs)
    require_returned(recipe, "summarise", metrics, Mapping, NUMBERS, of=(int, float))
    return metrics


def measure(
    recipe: Training[Any, Any] | Fitting[Any],
    model: object,
    batches: Iterable[Batch],
    setup: Setup | None = None,
    purpose: int = EVALUATION,
    *,
    shared: bool = True,
) -> dict[str, Tensor]:
    """What the recipe says of every sample of a split, by name; `purpose` seeds what it draws.

    A value that is one for a whole batch is that of each of its samples, or left out (`shared`).
    """
    setup = setup or choose("cpu")
    images = isinstance(model, nn.Module) and has_images(model)
    method = "objective" if type(recipe).metrics is Training.metrics else "metrics"
    values: dict[str, list[Tensor]] = {}
    with random_state_kept(), evaluating(model), setup.autocast():
        seed_all(setup.device, recipe.seed, purpose)
        for number, batch in enumerate(_at_least_one(batches), 1):
            if number % _BATCHES == 0:
                give_back_holes()  # which what is kept of each batch leaves between large tensors
            found = getattr(recipe, method)(model, setup.place(batch, images=images))
            require_returned(recipe, method, found, Mapping, VALUES, of=Tensor)
            for name, value in found.items():
                if not (shared or value.dim()):
                    continue
                one_each = value if value.dim() or not batch else value.expand(len(batch[0]))
                values.setdefault(name, []).append(one_each.reshape(-1))
    return {name: torch.cat(values.pop(name)) for name in [*values]}  # one by one: they are many


def add_final(
    recipe: Training[Any, Any] | Fitting[Any],
    model: object,
    data: Data,
    metrics: Mapping[str, float],
    setup: Setup,
    *,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """The metrics of the test split with those of `final`; `settings` are its parameters."""
    with random_state_kept(), evaluating(model), setup.autocast():
        seed_all(setup.device, recipe.seed, FINAL)
        found = recipe.final(model, data, generator(recipe.seed, FINAL), **(settings or {}))
    require_returned(recipe, "final", found, Mapping, NUMBERS, of=(int, float))
    if both := [name for name in found if name in metrics]:
        raise UserError(
            f"{line_of_method(type(recipe), 'final')}: final must give its metrics names of their "
            f"own, because metrics gives {', '.join(both)} already; rename what final gives"
        )
    return {**metrics, **found}


def sample_text(recipe: Training[M, X], model: M, spec: Spec, setup: Setup) -> str:
    """What the network makes of the same random numbers at each evaluation, if it is text."""
    with random_state_kept(), evaluating(model), setup.autocast():
        return recipe.says(model, spec, torch.Generator().manual_seed(mix(recipe.seed, EVALUATION)))


def _at_least_one(batches: Iterable[Batch]) -> Iterator[Batch]:
    count = 0
    for batch in batches:
        count += 1
        yield batch
    if count == 0:
        yield ()


# ----------------------------------------------------------------------------------- non-finite


def finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number is finite; one look at the device for all of them."""
    held = [t._values() if t.is_sparse else t for t in tensors if t.is_floating_point()]
    flags = [t.isfinite().all() for t in held]
    return not flags or bool(torch.stack(flags).all())


def find_non_finite(
    recipe: Training[M, X],
    state: State[M, X],
    data: Data,
    *,
    history: History,
    setup: Setup,
    until: int,
) -> str:
    """Train on from a good state with every layer watched; say where and when it breaks."""
    try:
        with _watched(state):
            for record in train(recipe, state, data, history=history, setup=setup):
                for name, term in record.terms.items():
                    if not finite([term]):
                        return f"the term {name} became non-finite at step {record.step}"
                for name, parameter in state.model.named_parameters():
                    if not finite([parameter]):
                        return f"parameter {name} became non-finite at step {record.step}"
                if record.step >= until:
                    return ""
    except _Broken as broken:
        return f"{broken} became non-finite at step {state.step + 1}"
    return ""


class _Broken(ArithmeticError):
    """The first value that is not finite."""


@contextmanager
def _watched(state: State[M, X]) -> Iterator[None]:
    handles: list[RemovableHandle] = []

    def watch(name: str, module: nn.Module) -> None:
        def after(_module: nn.Module, _inputs: object, output: object) -> None:
            if not finite(_tensors_in(output)):
                raise _Broken(f"layer {name}")

        handles.append(module.register_forward_hook(after))

    def watch_gradient(name: str, parameter: nn.Parameter) -> None:
        def after(parameter: Tensor) -> None:
            if parameter.grad is not None and not finite([parameter.grad]):
                raise _Broken(f"the gradient of {name}")

        handles.append(parameter.register_post_accumulate_grad_hook(after))

    for name, module in state.model.named_modules():
        watch(name or type(state.model).__name__, module)
    for name, parameter in state.model.named_parameters():
        if parameter.requires_grad:
            watch_gradient(name, parameter)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors_in(value: object) -> list[Tensor]:
    match value:
        case Tensor():
            return [value]
        case list() | tuple():
            return [t for part in value for t in _tensors_in(part)]
        case Mapping():
            return [t for part in value.values() for t in _tensors_in(part)]
    return []
