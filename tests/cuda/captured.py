"""A captured run is an eager run, bit for bit: `python tests/cuda/captured.py`, where CUDA is.

A plain script: it needs torch and everynet, not pytest. Each check prints a line; the last line
says how many failed, and so does the exit code.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.images.augment import (
    affine,
    colour,
    compose,
    crop,
    cutout,
    flip,
    mixed_cross_entropy,
    mixup,
    noise,
)
from everynet.data.images.standardize import Standardize
from everynet.data.samplers import Buckets, Lanes, Windows, flattened
from everynet.nn.ema import EMA
from everynet.recipes.state import State
from everynet.recipes.training import Training, make_optimizer
from everynet.runs.progress import Progress
from everynet.runs.verbs import resume, run
from everynet.system.errors import NonFinite
from everynet.system.seeds import generator
from everynet.training import graph as capture
from everynet.training.device import choose, computing
from everynet.training.loop import begin, evaluate, train

STEPS = 200


def images(seed: int, rows: int = 512) -> Batch:
    draw = generator(seed)
    y = torch.arange(rows) % 4
    x = torch.randint(0, 128, (rows, 3, 16, 16), generator=draw) + 30 * y[:, None, None, None]
    return x.to(torch.uint8), y


@dataclass(frozen=True, kw_only=True)
class Base(Training):
    """Images of noise in four brightnesses, kept as bytes and standardised batch by batch."""

    steps: int = STEPS
    batch_size: int = 32
    schedule: str = "cosine"
    warmup: int = 5
    eval_every: int = 50
    augmented: bool = False
    mapped: bool = False
    """Whether the set stays outside the GPU and comes over by the thread that feeds."""
    goal: str = "cross_entropy <= 9"

    def dataset(self) -> Data:
        parts = {part: images(n) for n, part in enumerate(("train", "valid", "test"))}
        moves = compose(
            crop(16, 2, [-1.0] * 3), flip(), affine(10, 1, 0.1, 0.1), noise(0.1),
            colour(0.2, 0.2, 0.2), cutout(4),
        )  # fmt: skip
        return Data(
            parts, {"name": "noise"}, self.batch_size, self.seed, "noise",
            augment=moves if self.augmented else None,
            prepare=Standardize([0.4] * 3, [0.2] * 3), mapped=self.mapped,
        )  # fmt: skip

    def model(self, data: Data) -> nn.Module:
        layers = [nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4)]
        return nn.Sequential(*layers)

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, y = batch
        logits = model(x)
        return {"cross_entropy": cross_entropy(logits, y), "_size": logits.square().mean()}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"cross_entropy": cross_entropy(model(batch[0]), batch[1], reduction="none")}

    def picture_empty(self, model: nn.Module, data: Data, history: History) -> Figure:
        return Figure(figsize=(1, 1))


@dataclass(frozen=True, kw_only=True)
class Convolved(Base):
    augmented: bool = True
    clip: float = 1.0
    weight_decay: float = 0.01
    optimizer: str = "adamw"

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1),
            nn.Flatten(), nn.Linear(1024, 4),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mixed(Convolved):
    """Images mixed in pairs, and labels that are not sure."""

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, own = mixup(batch[0], 0.4)
        return {"cross_entropy": mixed_cross_entropy(model(x), batch[1], own, 0.1)}


@dataclass(frozen=True, kw_only=True)
class Averaged(Convolved):
    """Averaged weights, as image classifiers have with `ema=`, and copied running statistics."""

    def extra(self, model: nn.Module) -> EMA:
        return EMA(model, 0.99)


@dataclass(frozen=True, kw_only=True)
class Gan(Base):
    captured: ClassVar[bool] = True

    def model(self, data: Data) -> nn.ModuleDict:
        def net(*sizes: int) -> nn.Module:
            return nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))

        return nn.ModuleDict({"maker": net(8, 64, 768), "critic": net(768, 64, 1)})

    def optimizers(self, model: nn.ModuleDict) -> dict[str, torch.optim.Optimizer]:
        return {n: make_optimizer(part.parameters(), "adam", self.lr) for n, part in model.items()}

    def step(self, state: State, batch: Batch) -> Terms:
        real = batch[0].flatten(1)
        maker, critic = state.model["maker"], state.model["critic"]
        fake = maker(torch.randn(len(real), 8, device=real.device))
        yes, no = critic(real), critic(fake.detach())
        lost = bce(yes, torch.ones_like(yes)) + bce(no, torch.zeros_like(no))
        state.descend(lost, "critic")
        again = critic(fake)
        fooled = bce(again, torch.ones_like(again))
        state.descend(fooled, "maker")
        return {"critic": lost, "maker": fooled}

    def metrics(self, model: nn.ModuleDict, batch: Batch) -> dict[str, Tensor]:
        return {"cross_entropy": model["critic"](batch[0].flatten(1))[:, 0].abs()}


@dataclass(frozen=True, kw_only=True)
class Text(Base):
    """A stream of tokens, in lanes or windows."""

    lanes: bool = False

    def dataset(self) -> Data:
        parts = {
            part: (torch.randint(0, 20, (5000,), generator=generator(n)),)
            for n, part in enumerate(("train", "valid", "test"))
        }
        sampler = Lanes(16) if self.lanes else Windows(16)
        return Data(parts, {"name": "text"}, self.batch_size, self.seed, "text", sampler)

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Embedding(20, 16), nn.Dropout(0.1), nn.Linear(16, 20))

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        return {"cross_entropy": cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return self.objective(model, batch)


@dataclass(frozen=True, kw_only=True)
class Sentences(Base):
    """Sentences of 1 to 60 tokens, whose lengths are rounded up to a multiple of `pad_to`."""

    pad_to: int = 8

    def dataset(self) -> Data:
        parts = {}
        for n, part in enumerate(("train", "valid", "test")):
            sizes = torch.randint(1, 61, (640,), generator=generator(n)).tolist()
            made = [torch.randint(1, 20, (size,), generator=generator(n, size)) for size in sizes]
            parts[part] = (*flattened(made), torch.tensor(sizes) % 2)
        sampler = Buckets(("ragged", "plain"), self.pad_to)
        return Data(parts, {"name": "text"}, self.batch_size, self.seed, "text", sampler)

    def model(self, data: Data) -> nn.Module:
        return nn.ModuleDict(
            {"e": nn.Embedding(20, 32), "rnn": nn.GRU(32, 32), "y": nn.Linear(32, 2)}
        )

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        x, lengths, _ = batch
        states = model["rnn"](model["e"](x).transpose(0, 1))[0]  # time batch hidden
        return model["y"](states.gather(0, (lengths - 1)[None, :, None].expand(1, -1, 32))[0])

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        return {"cross_entropy": cross_entropy(self.logits(model, batch), batch[2])}

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {
            "cross_entropy": cross_entropy(self.logits(model, batch), batch[2], reduction="none")
        }


@dataclass(frozen=True, kw_only=True)
class Reading(Base):
    """Its loss changes with the step: read from the host, or from the clock."""

    captured: ClassVar[bool] = True
    clocked: bool = False

    def step(self, state: State, batch: Batch) -> Terms:
        at = state.clock if self.clocked else torch.full((), state.step, device=batch[0].device)
        loss = cross_entropy(state.model(batch[0]), batch[1]) * (1 + at / STEPS)
        state.descend(loss)
        return {"cross_entropy": loss}


@dataclass(frozen=True, kw_only=True)
class Waiting(Base):
    """Asks the device for a number in every update."""

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        terms = super().objective(model, batch)
        return terms if terms["cross_entropy"].item() >= 0 else {}


CALLS = [0]


@dataclass(frozen=True, kw_only=True)
class Late(Base):
    """Waits for the device only once it is captured: what no watching could have told."""

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        CALLS[0] += 1
        terms = super().objective(model, batch)
        if CALLS[0] > capture.WATCHED:
            terms["cross_entropy"].item()
        return terms


# ------------------------------------------------------------------------------------- checks


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def everything(state: State) -> dict[str, Tensor]:
    """Every number of a state by name."""
    found = {f"model {n}": t for n, t in state.model.state_dict().items()}
    found |= {f"extra {n}": t for n, t in state.extra.state_dict().items()}
    for name, optimizer in state.optimizers.items():
        for row, group in enumerate(optimizer.param_groups):
            for place, p in enumerate(group["params"]):
                for what, value in optimizer.state[p].items():
                    if isinstance(value, Tensor):
                        found[f"{name} {row} {place} {what}"] = value
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def trained(recipe: Training, precision: str, captured: bool) -> tuple[list[Terms], State, str]:
    """The terms of every update, the state at the end, and why updates were no graph."""
    setup = replace(choose("cuda", precision), capture=captured)
    with computing(setup), deterministic():
        torch.backends.cudnn.benchmark = False  # it would choose by the clock
        data = recipe.dataset().to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        update = capture.Update(recipe, state, data, setup)
        terms = []
        for record in train(recipe, state, data, update=update):
            terms.append(record.terms)
            if record.step in (60, 120):  # what a run does in between
                evaluate(recipe, recipe.deployed(state), data.valid, setup)
        return [{n: t.cpu() for n, t in one.items()} for one in terms], state, update.eager


def compare(recipe: Training, precision: str, eager: str = "") -> None:
    """Captured (or, where `eager` is said, fallen back) and eager: the same terms and state."""
    (terms, state, why), (wanted, plain, _) = (trained(recipe, precision, c) for c in (True, False))
    assert eager in why if eager else not why, f"eager: {why!r}"
    assert len(terms) == len(wanted) == recipe.steps
    for step, (one, other) in enumerate(zip(terms, wanted, strict=True), 1):
        assert [*one] == [*other]
        for name, value in one.items():
            assert torch.equal(value, other[name]), (step, name, value, other[name])
    found, right = everything(state), everything(plain)
    assert [*found] == [*right]
    differ = [name for name, value in found.items() if not torch.equal(value, right[name])]
    assert not differ, differ
    assert terms[-1] != terms[0]


def uncaptured() -> Callable[[capture.Update], str]:
    return lambda _update: "asked for by this check"


def through_runs(precision: str) -> None:
    """Evaluation, best, checkpoints and a resume in between: as an eager run, uninterrupted.

    What is kept are averaged weights, so that these are captured and resumed, too.
    """
    figures, weights = [], []
    usual = capture.Update._refusal
    for stop, refusal in ((STEPS, uncaptured()), (STEPS, usual), (90, usual)):
        capture.Update._refusal = refusal
        try:
            with tempfile.TemporaryDirectory() as folder, deterministic():
                recipe = replace(Averaged(), steps=stop, schedule="constant", save_every=30)
                result = run(recipe, folder, device="cuda", precision=precision)
                if stop < STEPS:
                    recipe = replace(recipe, steps=STEPS, name="averaged")
                    result = resume(recipe, result.folder)
                figures.append(result.metrics)
                newest = result.folder / "checkpoints" / str(STEPS)
                weights.append((newest / "model.safetensors").read_bytes())
        finally:
            capture.Update._refusal = usual
    assert weights[0] == weights[1], f"captured run: {figures}"
    assert weights[0] == weights[2], f"resumed run: {figures}"
    assert figures[0] == figures[1] == figures[2]


def says_why() -> None:
    said: list[str] = []
    usual = Progress.say
    Progress.say = lambda _self, text: said.append(text)  # say_once ends here, too
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(Reading(steps=20), folder, device="cuda")
    finally:
        Progress.say = usual
    found = [s for s in said if "not captured as one graph: its update reads `state.step`" in s]
    assert len(found) == 1, said


def non_finite() -> None:
    """A captured run that breaks says the same as an eager one: layer and step."""
    said, usual = [], capture.Update._refusal
    for refusal in (usual, uncaptured()):
        capture.Update._refusal = refusal
        try:
            with tempfile.TemporaryDirectory() as folder, deterministic():
                recipe = replace(Base(), lr=1e18, optimizer="sgd", schedule="constant", warmup=40)
                run(recipe, folder, device="cuda", precision="fp32")
        except NonFinite as error:
            said.append(str(error).partition(";")[0])
        finally:
            capture.Update._refusal = usual
    assert len(said) == 2, said
    assert said[0] == said[1], said
    assert "became non-finite at step" in said[0], said


def waits_for_nothing(recipe: Training, captured: bool) -> None:
    setup = replace(choose("cuda", "tf32"), capture=captured)
    with computing(setup):
        data = recipe.dataset().to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        update = capture.Update(recipe, state, data, setup)
        records = train(recipe, state, data, update=update)
        for _ in range(5):
            next(records)
        assert bool(update.eager) != captured, update.eager
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(STEPS - 5):
                next(records)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def fed_from_outside(precision: str) -> None:
    """A set that stays outside the GPU gives the terms and the state of one that is on it."""
    outside, inside = (replace(Convolved(), mapped=mapped) for mapped in (True, False))
    (terms, state, why), (wanted, plain, too) = (
        trained(r, precision, True) for r in (outside, inside)
    )
    assert not why, why
    assert not too, too
    assert terms == wanted
    found, right = everything(state), everything(plain)
    assert all(torch.equal(value, right[name]) for name, value in found.items())


def late() -> None:
    """A capture that fails half-way leaves a state and generators with which it goes on."""
    CALLS[0] = 0
    terms, state, why = trained(Late(), "fp32", True)
    CALLS[0] = -10 * STEPS
    wanted, plain, _ = trained(Late(), "fp32", False)
    assert "capturing failed" in why, why
    found, right = everything(state), everything(plain)
    differ = [name for name, value in found.items() if not torch.equal(value, right[name])]
    assert not differ, differ
    assert len(terms) == len(wanted)


def several_shapes(pad_to: int, graphs: int) -> None:
    """A graph for each shape of a batch, and the bits of an eager run with the same shapes."""
    recipe = Sentences(pad_to=pad_to)
    compare(recipe, "fp32")
    setup = choose("cuda", "fp32")
    with computing(setup), deterministic():
        data = recipe.dataset().to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        update = capture.Update(recipe, state, data, setup)
        for _ in train(recipe, state, data, update=update):
            pass
    assert len(update.graphs) == graphs, (len(update.graphs), update.uncaptured)
    many = "batches have more than 8 shapes" in update.uncaptured
    assert many == (graphs == capture.SHAPES), update.uncaptured


def accumulated() -> None:
    """Gradients of several batches run eagerly, say so, and are those of one large batch."""
    compare(replace(Base(), accumulate=2), "fp32", "several batches")


def checks() -> Iterator[tuple[str, Callable[[], None]]]:
    recipes = {
        "an MLP with dropout": Base(),
        "a CNN with batch norm and augmentation": Convolved(),
        "a CNN with mix-up": Mixed(),
        "an averaged network": Averaged(),
        "a GAN": Gan(),
    }
    for precision in ("fp32", "bf16"):
        for name, recipe in recipes.items():
            yield f"{name}, {precision}", lambda r=recipe, p=precision: compare(r, p)
    for optimizer in ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adamw", "lion"):
        said = "cannot be captured" if optimizer == "adagrad" else ""
        recipe = replace(Base(), optimizer=optimizer, weight_decay=0.01, clip=1.0)
        yield f"optimiser {optimizer}", lambda r=recipe, s=said: compare(r, "tf32", s)
    yield "text in lanes", lambda: compare(Text(lanes=True), "tf32")
    yield "text in windows", lambda: compare(Text(), "tf32")
    yield "batches of eight shapes at most", lambda: several_shapes(16, 4)
    yield "batches of many shapes", lambda: several_shapes(1, capture.SHAPES)
    yield "gradients of several batches", accumulated
    yield "the clock", lambda: compare(Reading(clocked=True), "fp32")
    yield "float64 runs eagerly", lambda: compare(Base(), "fp64", "in fp64 cannot be captured")
    yield "state.step falls back", lambda: compare(Reading(), "fp32", "reads `state.step`")
    yield "and says so", says_why
    yield "one that waits falls back", lambda: compare(Waiting(), "fp32", "waits for the device")
    yield "a capture that fails", late
    for precision in ("fp32", "bf16"):
        yield f"run, save, resume, {precision}", lambda p=precision: through_runs(p)
    yield "non-finite values are found", non_finite
    for precision in ("fp32", "bf16"):
        yield f"fed from outside, {precision}", lambda p=precision: fed_from_outside(p)
    yield "the same, eagerly", lambda: compare(replace(Convolved(), mapped=True), "tf32")
    recipes["a set outside"] = replace(Convolved(), mapped=True)
    for name, recipe in {**recipes, "windows": Text(), "lanes": Text(lanes=True)}.items():
        for captured in (True, False):
            how = "captured" if captured else "eager"
            yield (
                f"{name}, {how}, waits for nothing",
                lambda r=recipe, c=captured: waits_for_nothing(r, c),
            )


def main() -> int:
    wanted = sys.argv[1:]
    failed = 0
    for name, check in checks():
        if wanted and not any(word in name for word in wanted):
            continue
        start = time.perf_counter()
        try:
            check()
            verdict = "ok"
        except Exception:  # every check is tried
            failed += 1
            verdict = "FAILED\n" + "\n".join(traceback.format_exc()[-500:].splitlines()[-4:])
        print(f"{name}: {verdict} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{torch.__version__}, {torch.cuda.get_device_name()}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    raise SystemExit(main())
