"""One update on a GPU: ours captured and kernel by kernel, a plain loop, torch.compile, Lightning.

    python benchmarks/gpu.py                 on a machine with CUDA: a section of RESULTS.md
    python benchmarks/gpu.py --quick         fewer updates, written nowhere
    python benchmarks/gpu.py --only mlp      one network

The images are random, in the number, shape and type of the sets that the recipes name, and reach
each recipe as a user's npz file would. The plain loop keeps data on the device, takes rows by an
order drawn there, prepares and augments them by the same functions, and has the recipe's own fused
optimiser; it sets no seeds and keeps no terms. Lightning is given those very batches. All are in
one process, take turns, and the best of several turns counts. Batches are those of the recipes.
"""

import argparse
import json
import logging
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import everynet
from everynet.data.dataset import Data
from everynet.runs.verbs import run
from everynet.training.device import Setup, choose, computing
from everynet.training.graph import Update, has_images
from everynet.training.loop import begin, evaluate, train
from side_by_side import write

IMAGES = {"mnist": (70_000, 1, 28), "cifar": (12_000, 3, 32), "cifar10": (60_000, 3, 32)}


RESNET = replace(everynet.recipe("resnet-cifar"), name="resnet-20", holdout=True)
NETWORKS = {
    "mlp-mnist": ("mnist", None),
    "lenet-mnist": ("mnist", None),
    "cnn-mnist": ("mnist", None),
    "cnn-cifar": ("cifar", None),
    "resnet-20": ("cifar10", RESNET),
}
SMALL = ("mlp-mnist", "lenet-mnist", "cnn-mnist", "cnn-cifar")


def made(folder: Path, name: str) -> Path:
    """Random images and labels as an npz file."""
    rows, channels, side = IMAGES[name]
    path = folder / f"{name}.npz"
    if not path.exists():
        draw = np.random.default_rng(0)
        x = draw.integers(0, 256, (rows, channels, side, side), dtype=np.uint8)
        np.savez(path, x=x, y=draw.integers(0, 10, rows))
    return path


# ------------------------------------------------------------------------------------ contestants

Turn = Callable[[int], float]
"""Does so many updates and says how many seconds they took."""


def clocked(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def ours(recipe, data: Data, setup: Setup, captured: bool) -> Turn:
    setup = replace(setup, capture=captured)
    endless = replace(recipe, steps=10**9, schedule="constant")
    state = begin(endless, data, setup)
    update = Update(endless, state, data, setup)
    records = train(endless, state, data, update=update)
    for _ in range(20):
        next(records)
    assert bool(update.eager) != captured, update.eager

    def turn(count: int) -> float:
        return clocked(lambda: [next(records) for _ in range(count)] and None)

    return turn


class Batches:
    """Batches on the device, prepared and augmented there: what the plain loop is fed."""

    def __init__(self, data: Data, images: bool, device: torch.device) -> None:
        self.data, self.images = data, images
        self.numbers = torch.Generator(device).manual_seed(0)

    def __len__(self) -> int:
        return self.data.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.data.splits["train"]
        size = self.data.batch_size
        order = torch.randperm(len(x), device=x.device)
        for start in range(0, len(x) - size + 1, size):
            rows = order[start : start + size]
            batch = (x.index_select(0, rows), y.index_select(0, rows))
            seen, label = self.data.changed(batch, self.numbers)
            if self.images:
                seen = seen.contiguous(memory_format=torch.channels_last)
            yield seen, label


class Plain:
    """A network, its optimiser and its batches."""

    def __init__(self, recipe, data: Data, setup: Setup) -> None:
        torch.manual_seed(0)
        self.model = recipe.model(data).to(setup.device)
        images = has_images(self.model)
        if images:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = recipe.optimizers(self.model)["main"]
        self.batches, self.setup = Batches(data, images, setup.device), setup
        self.network = self.model

    def endless(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.batches

    def update(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        with self.setup.autocast():
            loss = cross_entropy(self.network(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def plain(recipe, data: Data, setup: Setup, compiled: bool) -> Turn:
    loop = Plain(recipe, data, setup)
    if compiled:
        loop.network = torch.compile(loop.model, mode="reduce-overhead")
    batches = loop.endless()
    for _ in range(20):
        loop.update(next(batches))

    def turn(count: int) -> float:
        return clocked(lambda: [loop.update(next(batches)).detach() for _ in range(count)] and None)

    return turn


def module_of(loop: Plain):
    """The module that Lightning is given: its documentation's, around the plain loop's network."""
    from lightning import LightningModule

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = loop.model

        def training_step(self, batch, number):
            return cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self):
            return loop.optimizer

    return Module


def lightning(recipe, data: Data, setup: Setup) -> Turn | None:
    try:
        import lightning
    except ImportError:
        return None

    loop = Plain(recipe, data, setup)
    start, seconds = [0.0], [0.0]

    class Module(module_of(loop)):
        def on_train_batch_start(self, batch, number):
            if self.global_step == 10:
                torch.cuda.synchronize()
                start[0] = time.perf_counter()

        def on_train_end(self):
            torch.cuda.synchronize()
            seconds[0] = time.perf_counter() - start[0]

    module, precision = Module(), "bf16-mixed" if setup.precision == "bf16" else "32-true"
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}

    def turn(count: int) -> float:
        trainer = lightning.Trainer(
            max_steps=count + 10, accelerator="gpu", devices=1, precision=precision,
            enable_checkpointing=False, benchmark=True, **quiet,
        )  # fmt: skip
        trainer.fit(module, loop.batches)
        return seconds[0]

    return turn


# ----------------------------------------------------------------------------------------- tables


def steps(recipe, data: Data, setup: Setup, count: int, repeats: int) -> dict[str, float]:
    """Milliseconds of an update by each contestant: the best of several turns."""
    turns = {
        "captured": ours(recipe, data, setup, True),
        "eager": ours(recipe, data, setup, False),
        "plain": plain(recipe, data, setup, False),
        "compiled": plain(recipe, data, setup, True),
        "lightning": lightning(recipe, data, setup),
    }
    best = {name: math.inf if turn else math.nan for name, turn in turns.items()}
    for _ in range(repeats):
        for name, turn in turns.items():
            if turn:
                best[name] = min(best[name], 1e3 * turn(count) / count)
    return best


def epochs(recipe, data: Data, setup: Setup, count: int, folder: Path) -> dict[str, float]:
    """Images a second over whole epochs, each with an evaluation and a checkpoint."""
    rows = data.steps_per_epoch * data.batch_size
    result = run(
        replace(recipe, steps=count * data.steps_per_epoch, eval_every=data.steps_per_epoch),
        folder, device="cuda", precision=setup.precision,
    )  # fmt: skip
    lines = (result.folder / "timing.jsonl").read_text().splitlines()
    at = [json.loads(line)["seconds"] for line in lines]
    found = {"captured": rows * (len(at) - 1) / (at[-1] - at[0])}
    for compiled in (False, True):
        loop = Plain(recipe, data, setup)
        if compiled:
            loop.network = torch.compile(loop.model, mode="reduce-overhead")

        def epoch(loop: Plain = loop) -> None:
            for batch in loop.batches:
                loop.update(batch)
            evaluate(recipe, loop.model, data.valid, setup)
            both = {"model": loop.model.state_dict(), "optimizer": loop.optimizer.state_dict()}
            torch.save(both, folder / "plain.pt")

        epoch()
        seconds = clocked(lambda: [epoch() for _ in range(count - 1)] and None)
        found["compiled" if compiled else "plain"] = rows * (count - 1) / seconds
    found["lightning"] = lightning_epochs(recipe, data, setup, count, folder)
    return found


class Held:
    """Batches of the validation split as one loader; a list would be several."""

    def __init__(self, batches: list) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator:
        return iter(self.batches)


def lightning_epochs(recipe, data: Data, setup: Setup, count: int, folder: Path) -> float:
    try:
        import lightning
        from lightning.pytorch.callbacks import ModelCheckpoint
    except ImportError:
        return math.nan
    loop, at = Plain(recipe, data, setup), []

    class Module(module_of(loop)):
        def validation_step(self, batch, number):
            logits = self.network(batch[0])
            right = (logits.argmax(1) == batch[1]).float().mean()
            self.log_dict({"loss": cross_entropy(logits, batch[1]), "accuracy": right})

        def on_train_epoch_start(self):
            torch.cuda.synchronize()
            at.append(time.perf_counter())

    trainer = lightning.Trainer(
        max_epochs=count + 1, accelerator="gpu", devices=1, benchmark=True, logger=False,
        precision="bf16-mixed" if setup.precision == "bf16" else "32-true",
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[ModelCheckpoint(folder / "lightning")],
    )  # fmt: skip
    trainer.fit(Module(), loop.batches, Held([*data.valid]))
    rows = data.steps_per_epoch * data.batch_size
    return rows * (len(at) - 1) / (at[-1] - at[0])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu.py is left out: there is no GPU here")
        return 0
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    count, repeats = (50, 2) if given.quick else (200, 4)
    head = "| | batch | captured | eager | plain loop | compiled | Lightning | plain / captured | "
    table = [head + "eager / plain |", "|---" * 9 + "|"]
    whole = ["| | captured | plain loop | compiled | Lightning |", "|---" * 5 + "|"]
    missed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for network, (images, own) in NETWORKS.items():
            if given.only not in network:
                continue
            recipe = own or everynet.recipe(network)
            recipe = replace(recipe, data=str(made(folder, images)))
            for precision in ("fp32", "bf16"):
                setup = choose("cuda", precision)
                with computing(setup):
                    data = recipe.dataset().to(setup.device, setup.dtype)
                    ms = steps(recipe, data, setup, count, repeats)
                    gain, over = ms["plain"] / ms["captured"], ms["eager"] / ms["plain"]
                    shown = " | ".join(f"{value:.3f}" for value in ms.values())
                    title = f"{network}, {precision}"
                    table.append(
                        f"| {title} | {recipe.batch_size} | {shown} | {gain:.1f} | {over:.2f} |"
                    )
                    print(table[-1], flush=True)
                    if gain < (5 if network in SMALL else 1):
                        missed.append(f"{title} captured {gain:.1f} x")
                    if over > 1.1:
                        missed.append(f"{title} eager {over:.2f} x")
                    if given.quick or network not in ("cnn-mnist", "resnet-20"):
                        continue
                    torch._dynamo.reset()
                    speed = epochs(recipe, data, setup, 5, folder)
                    shown = " | ".join(f"{value:,.0f}" for value in speed.values())
                    whole.append(f"| {title} | {shown} |")
                    print(whole[-1], flush=True)
                torch._dynamo.reset()
    about = (
        f"Milliseconds of an update, best of {repeats} turns of {count} updates. To reach: "
        "captured >= 5 x the plain loop for the small ones, never slower than it; eager within "
        f"10 % of it. {'Missed: ' + '; '.join(missed) if missed else 'All reached'}. "
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}."
    )
    again = "Images a second over whole epochs, each with an evaluation and a checkpoint."
    print(about)
    if not given.quick and not given.only:
        parts = ["## Trainer: on a GPU", about, "\n".join(table), again, "\n".join(whole)]
        write("gpu", parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
