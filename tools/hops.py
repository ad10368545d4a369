"""How far a reader has to go: count what a prediction and a training pass through.

    python tools/hops.py

For `everynet predict RUN one.png`: calls from one module of everynet into another, reads of each
JSON file of the run, and constructions of the network and of the recipe. For a small training: the
modules of everynet in which a function runs. All is imported before anything is counted.
"""

import contextlib
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import torch
from PIL import Image
from torch import nn

import everynet
from everynet.cli import main
from everynet.recipes.recipe import Recipe
from everynet.system import files

SETTINGS = {"steps": 4, "batch_size": 8, "data": "digits"}


class Hops:
    """What passes between the modules of everynet while it is watched."""

    def __init__(self) -> None:
        self.crossings: Counter[tuple[str, str]] = Counter()
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """The hook: called with every call and return."""
        here = str(frame.f_globals.get("__name__"))
        if event != "call" or not here.startswith("everynet") or frame.f_code.co_name == "<module>":
            return
        self.functions.add((here, frame.f_code.co_qualname))
        there = str(frame.f_back.f_globals.get("__name__")) if frame.f_back else ""
        if there.startswith("everynet") and there != here:
            self.crossings[there, here] += 1

    @property
    def modules(self) -> set[str]:
        """The modules in which a function ran."""
        return {module for module, _ in self.functions}

    @contextlib.contextmanager
    def watch(self) -> Iterator["Hops"]:
        """Count what happens inside."""
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(None)


@contextlib.contextmanager
def counted(owner: object, name: str, key: Callable[..., str]) -> Iterator[Counter[str]]:
    """How often a function is called inside, by what `key` makes of its arguments."""
    usual, calls = getattr(owner, name), Counter[str]()

    def wrapper(*arguments: object, **options: object) -> object:
        calls[key(*arguments)] += 1
        return usual(*arguments, **options)

    setattr(owner, name, wrapper)
    try:
        yield calls
    finally:
        setattr(owner, name, usual)


def predict(run: Path, picture: Path) -> int:
    """The verb, with its output thrown away."""
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["predict", str(run), str(picture)])


def report(title: str, counts: Counter) -> None:
    """Print counts, the largest first."""
    print(f"{title}: {sum(counts.values())}")
    for name, count in counts.most_common(None if "-v" in sys.argv else 8):
        print(f"  {count:4} {' -> '.join(name) if isinstance(name, tuple) else name}")


def count(folder: Path) -> None:
    """Train, predict and print."""
    recipe = everynet.recipe("lenet", **SETTINGS)
    run = everynet.run(recipe, folder, device="cpu").folder
    picture = folder / "one.png"
    Image.fromarray(np.uint8(np.tile([0, 90, 160, 250], (8, 2)))).save(picture)
    predict(run, picture)
    with Hops().watch() as hops:
        predict(run, picture)
    report("crossings of a module boundary by `predict`", hops.crossings)
    with (
        counted(files, "read", lambda path, *_: str(path.relative_to(run))) as reads,
        counted(type(recipe), "model", lambda *_: f"on {torch.empty(0).device}") as models,
        counted(Recipe, "__post_init__", lambda recipe: type(recipe).__name__) as recipes,
        counted(nn.Module, "__init__", lambda module: type(module).__name__) as layers,
    ):
        predict(run, picture)
    report("files read by `predict`", reads)
    report("networks built (on meta without memory, to see whether it fits)", models)
    report("recipes built", recipes)
    report("modules of torch built", layers)
    with Hops().watch() as hops:
        everynet.run(recipe, folder, device="cpu")
    print(f"a training: {len(hops.functions)} functions in {len(hops.modules)} modules")
    if "-v" in sys.argv:
        print("  " + "\n  ".join(sorted(hops.modules)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        count(Path(name))
