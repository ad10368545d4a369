"""One update of a training, and on cuda the whole of it captured as one graph.

A small network's update is some hundred kernels of a few microseconds each, and starting one takes
the CPU longer than running it takes the GPU. Captured once and replayed, the update (prepare and
augment, forward, backward, clip, optimiser) is started as one. The rules:

    the first updates run kernel by kernel on the stream that captures, and are watched: one that
    waits for the device, reads `state.step` or draws random numbers on the CPU is not captured;
    capturing runs nothing, so the next update is the first replay;
    batches of several shapes have a graph each, up to SHAPES of them, in one pool of memory;
    what changes between replays is written in place: rows of the batch, rates, the clock, seeds;
    the terms of a replay are copied, because the next one overwrites them.

The same kernels run on the same numbers, so the weights are those of updates kernel by kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Generic, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.samplers import Loaded, Rows
from everynet.nn.ema import EMA
from everynet.nn.lion import Lion
from everynet.recipes.recipe import require_returned
from everynet.recipes.state import M, State, X
from everynet.recipes.training import Training, check_terms
from everynet.system.seeds import mix, mix_on, random_state, seed_others, seed_torch
from everynet.training.device import Setup
from everynet.training.processes import World

UPDATE = 3  # seeds what happens in an update
WATCHED = 3
"""Updates before the capture: moments are made, kernels chosen, and the update is watched."""
SHAPES = 8
"""Shapes of batches of which an update is captured; those of others run kernel by kernel."""
Shapes = tuple[torch.Size, ...]


class Captured(NamedTuple):
    """The update for batches of one shape, as a graph."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    """The batch, which is written in place before a replay."""
    names: tuple[str, ...]
    """Of the terms."""
    terms: Tensor
    """The terms of the newest replay."""


def has_images(model: nn.Module) -> bool:
    """Whether a network convolves images, which is faster with the channels last."""
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


# --------------------------------------------------------------------------------------- rates


def hold_rates(optimizers: Sequence[Optimizer], setup: Setup) -> None:
    """Remember the rates to begin with; on cuda hold them there, where a graph can read them.

    The fused kernels of torch read a rate of 32 bits: in float64 it stays a number of Python.
    """
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
            if setup.device.type != "cuda" or setup.dtype is not torch.float32:
                continue
            if "capturable" in group:
                group["capturable"] = True
            elif not isinstance(optimizer, Lion) and not (
                isinstance(optimizer, torch.optim.SGD) and group["fused"]
            ):
                continue
            group["lr"] = torch.full((), group["lr"], device=setup.device)


class Rates:
    """The learning rates of all groups of a state's optimisers, all by one factor."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        self.factor: float | None = None

    def follow(self, factor: float) -> None:
        """Set them; in place where a graph may read them."""
        if factor == self.factor:
            return
        self.factor = factor
        for group in self.groups:
            rate = group["initial_lr"] * factor
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @property
    def on_device(self) -> bool:
        """Whether all of them are on the device."""
        return all(isinstance(group["lr"], Tensor) for group in self.groups)


# -------------------------------------------------------------------------------------- updates


class Update(Generic[M, X]):
    """One update of a state after another, and what is known of them: draws, and why no graph."""

    def __init__(
        self,
        recipe: Training[M, X],
        state: State[M, X],
        data: Data,
        setup: Setup,
        world: World | None = None,
    ) -> None:
        self.recipe = compile_objective(recipe) if setup.compile else recipe
        self.state, self.data, self.setup, self.world = state, data, setup, world or World()
        self.share, self.images = self.world.share, has_images(state.model)
        state.parts = recipe.accumulate
        self.rate, self.rates = recipe.rate, Rates([*state.optimizers.values()])
        self.first = True
        self.placed = not self.images and _rows_are_placed(data, setup)
        others = self.world.size > 1 or isinstance(data.sampler, Loaded)
        self.draws = True if others else recipe.draws  # processes must agree on it
        """Whether updates draw from Python's or numpy's generators; None before the first one."""
        self.drawn: tuple[object, ...] = ()
        """State of these generators after the first update; a change later means that one drew."""
        self.mixed = mix_on(0, recipe.seed, UPDATE)
        cuda = setup.device.type == "cuda"
        self.numbers = torch.Generator(setup.device if cuda else "cpu")  # for augmentation
        self.graphs: dict[Shapes, Captured] = {}
        self.watched: list[Shapes] = []
        """The shapes of the batches whose updates were watched."""
        self.eager = self._refusal() if cuda else "only cuda captures"
        """Why updates are not captured as one graph; empty where they are, or may be."""
        if not self.eager:
            self.stream, self.pool = torch.cuda.Stream(setup.device), torch.cuda.graph_pool_handle()

    def _refusal(self) -> str:
        """Why there is no use in trying to capture; empty where there may be."""
        recipe, state = self.recipe, self.state
        if not self.setup.capture:
            return "capturing is switched off"
        if self.share.size > 1:
            return "several processes average their gradients"
        if recipe.accumulate > 1:
            return "the gradients of several batches are added up"
        if not recipe.captured and not _usual(type(recipe)):
            return "its class has a step of its own and does not say `captured = True`"
        if not self.rates.on_device:
            kinds = {type(o).__name__ for o in state.optimizers.values()}
            return f"{' and '.join(sorted(kinds))} in {self.setup.precision} cannot be captured"
        return ""

    def __call__(self, feed: Callable[[int], Batch], history: History) -> Terms:
        """Do the next one: what it computes is a function of (seed, step) and of the evaluations.

        Python's and numpy's generators would cost 9 us an update: they are seeded where the first
        update of this process draws from them, or the recipe says that others do.
        """
        state, step = self.state, self.state.step
        self.rates.follow(self.rate(step, history))
        state.set_clock(step)
        if state.parts == 1:
            terms = self._use(feed, step)
        else:
            first = step * state.parts
            every = [self._use(feed, first + part, part) for part in range(state.parts)]
            terms = {name: torch.stack([one[name] for one in every]).mean() for name in every[0]}
        state.step = step + 1
        return terms

    def _use(self, feed: Callable[[int], Batch], number: int, part: int = 0) -> Terms:
        """Do what the recipe does with one batch: part of an update, mostly all of it."""
        self.state.part = part
        self._seed(number, 0)  # the batch is of all processes
        before = random_state() if self.draws is None else ()
        stored = self.setup.bring(feed(number))
        if self.world.rank:
            self._seed(number, self.world.rank)
        if self.data.augment is not None:
            self.numbers.manual_seed(mix(self.data.seed, 2, number))
        terms = self.by_kernels(stored) if self.eager else self._by_graph(stored)
        if self.first:
            self._end_first(terms, before)
        return terms

    def _seed(self, step: int, rank: int) -> None:
        number = mix_on(self.mixed, step, rank) >> 1
        seed_torch(self.setup.device, number)
        if self.draws is not False:
            seed_others(number)

    def _end_first(self, terms: Terms, before: tuple[object, ...]) -> None:
        """See what the first update drew and gave."""
        self.first, self.drawn = False, random_state()
        if self.draws is None:
            self.draws = self.drawn != before
        if _usual(type(self.recipe)):
            check_terms(type(self.recipe), terms)

    def check_draws(self) -> None:
        """Warn if updates drew random numbers that were not seeded, and seed them from now on."""
        if self.draws is False and self.drawn and random_state() != self.drawn:
            self.draws = True
            warnings.warn(
                f"{self.recipe.name} drew from Python's or numpy's random numbers before step "
                f"{self.state.step} and not in its first update: say `draws = True` in its class, "
                "or a resumed run may differ",
                stacklevel=2,
            )

    def by_kernels(self, stored: Batch) -> Terms:
        """One kernel after another."""
        batch = self.data.changed(stored, self.numbers, self.share)
        if not self.placed:
            batch = self.setup.place(batch, images=self.images)
        if self.setup.precision == "bf16":
            with self.setup.autocast():
                terms = self.recipe.step(self.state, batch)
        else:
            terms = self.recipe.step(self.state, batch)
        if isinstance(self.state.extra, EMA) and self.state.at_last_part:
            self.state.extra.update(self.state.model)
        try:
            return {name: term.detach() for name, term in terms.items()}
        except AttributeError:
            what = "a dict of scalar tensors by name, such as {'loss': loss}"
            require_returned(self.recipe, "step", terms, dict, what, of=Tensor)
            raise

    # ------------------------------------------------------------------------------ as one graph

    @property
    def uncaptured(self) -> str:
        """Why some updates, or all of them, run kernel by kernel; empty where none does."""
        shapes = {*self.watched}
        many = len(self.graphs) == SHAPES and len(shapes) > SHAPES
        rest = f"batches have more than {SHAPES} shapes; `pad_to` rounds their lengths"
        return self.eager or (rest if many else "")

    def _by_graph(self, stored: Batch) -> Terms:
        """Watch the first updates and the first of each shape, capture the next, and replay it."""
        shapes = tuple(tensor.shape for tensor in stored)
        if shapes in self.graphs:
            return self._replayed(self.graphs[shapes], stored)
        if len(self.watched) < WATCHED or (
            shapes not in self.watched and len({*self.watched}) <= SHAPES
        ):
            return self._watched(stored, shapes)
        if len(self.graphs) < SHAPES and (made := self._capture(stored)):
            self.graphs[shapes] = made
            return self._replayed(made, stored)
        return self.by_kernels(stored)

    def _watched(self, stored: Batch, shapes: Shapes) -> Terms:
        """One kernel after another on the stream that captures, watched for what no graph can."""
        here, before = torch.cuda.current_stream(), torch.default_generator.get_state()
        self.stream.wait_stream(here)
        with (
            torch.cuda.stream(self.stream),
            _waits() as waits,
            watching_step(self.state) as reads,
        ):
            terms = self.by_kernels(stored)
        here.wait_stream(self.stream)
        self.watched.append(shapes)
        if reads:
            self.eager = "its update reads `state.step` (`state.clock` can be captured)"
        elif not torch.equal(before, torch.default_generator.get_state()):
            self.eager = "its update draws random numbers on the CPU"
        elif waits and len(self.watched) > 1:  # the first makes constants and moments
            self.eager = f"its update waits for the device ({waits[0]})"
        elif not _alike([*terms.values()]):
            self.eager = "its terms are not single numbers on the device, all of one type"
        return terms

    def _capture(self, stored: Batch) -> Captured | None:
        """Record the update for batches of this shape, if that can be; nothing is computed."""
        if self.draws:
            self.eager = "it draws from Python's or numpy's random numbers"
            return None
        inputs = tuple(tensor.clone() for tensor in stored)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.numbers)
        try:
            with (
                _own_workspaces(),
                watching_step(self.state) as reads,
                torch.cuda.graph(
                    graph, self.pool, stream=self.stream, capture_error_mode="thread_local"
                ),
            ):
                terms = self.by_kernels(inputs)
                values = torch.stack([*terms.values()])
        except RuntimeError as error:
            self.eager = f"capturing failed: {str(error).splitlines()[0]}"
            self._generators_anew()
            return None
        if reads:
            self.eager = "its update reads `state.step` (`state.clock` can be captured)"
            return None
        return Captured(graph, inputs, tuple(terms), values)

    def _generators_anew(self) -> None:
        """Give new states to the generators, which a failed capture leaves unusable."""
        device = self.setup.device
        for generator in (torch.cuda.default_generators[device.index or 0], self.numbers):
            number = generator.initial_seed()
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            generator.manual_seed(number)

    def _replayed(self, captured: Captured, stored: Batch) -> Terms:
        if stored:
            torch._foreach_copy_(captured.inputs, stored)
        captured.graph.replay()
        return dict(zip(captured.names, captured.terms.clone().unbind(), strict=True))


def compile_objective(recipe: Training[M, X]) -> Training[M, X]:
    """The recipe with an objective that torch compiles at its first call, whole or not at all."""
    compiled = copy(recipe)
    objective = torch.compile(recipe.objective, fullgraph=True)
    object.__setattr__(compiled, "objective", objective)  # frozen, and this is no field
    return compiled


@contextmanager
def watching_step(state: State[M, X]) -> Iterator[list[bool]]:
    """A list that is not empty if `state.step` is read inside; an update that does is no graph."""
    reads: list[bool] = []
    usual = type(state)

    def step(watched: State[M, X]) -> int:
        reads.append(True)
        return int(vars(watched)["step"])

    state.__class__ = type("Watched", (usual,), {"step": property(step)})
    try:
        yield reads
    finally:
        state.__class__ = usual


def _usual(kind: type[Training[M, X]]) -> bool:
    return kind.step is Training.step


def _rows_are_placed(data: Data, setup: Setup) -> bool:
    """Whether batches are rows that are on the device and in the precision already."""
    as_stored = type(data.sampler) is Rows and data.augment is None and data.prepare is None
    return as_stored and all(
        tensor.device == setup.device
        and (tensor.dtype == setup.dtype or not tensor.is_floating_point())
        for tensor in data.splits.get("train", ())
    )


def _alike(terms: Sequence[Tensor]) -> bool:
    single = all(term.is_cuda and term.dim() == 0 for term in terms)
    return single and len({term.dtype for term in terms}) == 1


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """Let a graph keep the workspaces of its products to itself.

    They are remembered by stream: those of the updates before would be freed, and used by others,
    when anyone clears them, as torch.compile does; the graph would go on writing there.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


def captured(function: Callable[[Tensor], Tensor], example: Tensor) -> Callable[[Tensor], Tensor]:
    """On cuda a function that draws no random numbers, as one graph for inputs like `example`.

    It is called in the autocast region, if any, that it was captured in, and with fewer rows they
    are filled up. What it returns is overwritten by the next call. Elsewhere it is the function.
    """
    if not example.is_cuda:
        return function
    device, kind = example.device, torch.get_autocast_dtype("cuda")
    given, stream, graph = example.clone(), torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    on = torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda", kind, enabled=on, cache_enabled=False), _own_workspaces():
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            function(given)  # chooses kernels, and makes what is made once
        torch.cuda.current_stream(device).wait_stream(stream)
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            made = function(given)

    def replay(x: Tensor) -> Tensor:
        given[: len(x)].copy_(x)
        graph.replay()
        return made[: len(x)]

    return replay


@contextmanager
def _waits() -> Iterator[list[str]]:
    """What waits for the device inside, in torch's words."""
    found: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(max(before, 1))  # 1 warns, 2 fails
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
            lines = [str(warning.message) for warning in caught]
            found += [line for line in lines if "synchronizing" in line]
    for line in lines:
        if line not in found:
            warnings.warn(line, stacklevel=2)
