"""`everynet show`: the idea, the equations, the layers and the settings of a network."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everynet.cli import overridden, table

if TYPE_CHECKING:
    from torch import nn

    from everynet.recipes import Recipe, Training

HELP = "the idea, equations, layers and settings of a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A network and settings."""
    parser.add_argument("name", metavar="NAME", help="a name of `everynet list`, or FILE.py[:NAME]")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="settings to change")


def main(arguments: argparse.Namespace) -> int:
    """Print its page."""
    from everynet.catalog import find

    print("\n\n".join(page(overridden(find(arguments.name), arguments.settings))))
    return 0


def page(recipe: Recipe) -> Iterator[str]:
    """The parts of what is shown."""
    import inspect

    from everynet.recipes import Training
    from everynet.settings import setting_docs, settings
    from everynet.words import written

    cls = type(recipe)
    yield f"{recipe.name}: {recipe.kind} by {cls.__name__} of {inspect.getfile(cls)}"
    yield inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    yield inspect.cleandoc(cls.__doc__ or "")
    if isinstance(recipe, Training):
        yield from layers(recipe)
    docs = setting_docs(recipe)
    rows = [(f"  {name}", written(value), docs[name]) for name, value in settings(recipe).items()]
    yield "settings\n" + table(rows)
    if recipe.captions:
        yield "pictures\n" + table([(f"  {n}", what) for n, what in recipe.captions.items()])
    yield f"goal: {recipe.goal or 'none'}; curriculum rows: {' '.join(recipe.covers) or 'none'}"


class Absent(Exception):
    """A real set would have to be fetched first."""


class Unread(dict[str, Any]):
    """The description of a recipe's data, read when a network first asks for a part of it."""

    def __init__(self, recipe: Training) -> None:
        super().__init__()
        self.recipe = recipe

    def read(self) -> None:
        """Read the data, on the CPU whatever device networks are being built on; fetch none."""
        import torch

        from everynet.data.sets import SETS
        from everynet.data.store import whole

        if self:
            return
        name = getattr(self.recipe, "data", "")
        if name in SETS and not whole(SETS[name]):
            raise Absent(f"{name} is not here; everynet data get {name} fetches it")
        with torch.device("cpu"):
            self.update(self.recipe.dataset().spec)

    def __missing__(self, key: str) -> Any:  # noqa: ANN401 -- any plain JSON
        if self:
            raise KeyError(key)
        self.read()
        return self[key]

    def __contains__(self, key: object) -> bool:
        self.read()
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 -- any plain JSON
        self.read()
        return super().get(key, default)


def layers(recipe: Training) -> Iterator[str]:
    """The table of layers: the network is built without its numbers, whatever its size."""
    import torch

    from everynet.types import Data

    spec = Unread(recipe)
    try:
        with torch.device("meta"):
            model = recipe.model(Data.described(spec))
        shape = _input_shape(model, spec)
    except Absent as error:
        yield f"layers: not shown ({error})"
        return
    header = ("  layer", "kind", "output", "parameters", "multiplications", "sees")
    rows = [header, *_rows(model, shape)]
    total = sum(p.numel() for p in model.parameters())
    yield "layers\n" + table(rows) + f"\n  {total:,} parameters"


def _input_shape(model: nn.Module, spec: Unread) -> tuple[int, ...]:
    """The shape of one input; a network that asked nothing of the data says it itself."""
    from torch import nn

    first = next((m for m in model.modules() if next(m.parameters(False), None) is not None), None)
    if not spec and isinstance(first, nn.Linear):
        return (first.in_features,)
    return tuple(spec.get("shape", ()))


def _rows(model: nn.Module, shape: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
    """Each layer with its shape and cost; without shapes where the input is no single tensor."""
    from everynet.nn.layers import layer_table

    try:
        found = layer_table(model, shape)
    except (RuntimeError, TypeError, ValueError, IndexError):
        for name, module in model.named_modules():
            if own := sum(p.numel() for p in module.parameters(recurse=False)):
                yield f"  {name}", type(module).__name__, "-", f"{own:,}", "-", "-"
        return
    for layer in found:
        products, field = layer.multiplications, layer.receptive_field
        yield (
            f"  {layer.name}",
            layer.kind,
            " x ".join(map(str, layer.shape)),
            f"{layer.parameters:,}",
            "-" if products is None else f"{products:,}",
            "-" if field is None else " x ".join(map(str, field)),
        )
