"""`everynet show`: the idea, the equations, the layers and the settings of a network."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from textwrap import indent
from typing import TYPE_CHECKING, Any, NoReturn

from everynet.cli import overridden, table
from everynet.system.wording import written

if TYPE_CHECKING:
    from torch import nn

    from everynet.data.dataset import Spec
    from everynet.recipes.recipe import Recipe
    from everynet.recipes.training import Training

HELP = "the idea, equations, layers and settings of a network"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A network and settings."""
    parser.add_argument("name", metavar="NAME", help="a name of `everynet list`, or FILE.py[:NAME]")
    parser.add_argument("settings", metavar="key=value", nargs="*", help="settings to change")


def main(arguments: argparse.Namespace) -> int:
    """Print its page."""
    from everynet.recipes.catalog import find

    print("\n\n".join(describe(overridden(find(arguments.name), arguments.settings))))
    return 0


def describe(recipe: Recipe) -> Iterator[str]:
    """The parts of what is shown."""
    import inspect

    from everynet.recipes.experiment import Experiment, named_cells
    from everynet.recipes.settings import setting_docs, settings
    from everynet.recipes.training import Training

    cls = type(recipe)
    yield f"{recipe.name}: {recipe.kind} by {cls.__name__} of {inspect.getfile(cls)}"
    yield inspect.cleandoc(inspect.getmodule(cls).__doc__ or "")
    yield inspect.cleandoc(cls.__doc__ or "")
    if isinstance(recipe, Training):
        yield from describe_layers(recipe)
    if isinstance(recipe, Experiment):
        names = [*named_cells(recipe)]
        few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        yield f"cells: {len(names)} trainings ({few})"
    docs = setting_docs(recipe)
    rows = [(f"  {name}", written(value), docs[name]) for name, value in settings(recipe).items()]
    yield "settings\n" + table(rows)
    yield from _describe_verbs(recipe)
    if recipe.meanings:
        yield "metrics\n" + table([(f"  {n}", what) for n, what in recipe.meanings.items()])
    if pictures := recipe.picture_names():
        yield "pictures\n" + table([(f"  {n}", what) for n, what in pictures.items()])
    yield f"goal: {recipe.goal or 'none'}; curriculum rows: {' '.join(recipe.covers) or 'none'}"


def _describe_verbs(recipe: Recipe) -> Iterator[str]:
    """The settings of `predict`, `sample` and `chat`, and of `evaluate` by `final`, if any."""
    from everynet.recipes.training import implements
    from everynet.system.values import verb_settings

    methods = {"predict": "predict", "sample": "sample", "chat": "chat", "evaluate": "final"}
    for verb, method in methods.items():
        if implements(recipe, method):
            known = verb_settings(getattr(type(recipe), method)).items()
            rows = [
                (f"  {name}", written(default), *getattr(hint, "__metadata__", ("",)))
                for name, (hint, default) in known
            ]
            if rows or verb == method:  # evaluate has settings without it
                yield f"settings of everynet {verb} RUN\n" + (table(rows) if rows else "  none")


def describe_layers(recipe: Training) -> Iterator[str]:
    """The table of layers: the network is built without its numbers, whatever its size."""
    import torch

    from everynet.data.dataset import Data

    spec: Spec = {}
    try:
        with torch.device("meta"):
            model = recipe.model(Data.described(UnreadSpec()))
    except DataNeeded:
        if missing := _missing_data(recipe):
            yield f"layers: not shown ({missing})"
            return
        spec = recipe.dataset().spec
        with torch.device("meta"):
            model = recipe.model(Data.described(spec))
    yield "layers\n" + indent(_layer_table(model, _input_shape(model, spec)), "  ")


class DataNeeded(Exception):
    """A network is built by what its data is like."""


def _need_data(*_: object) -> NoReturn:
    raise DataNeeded


class UnreadSpec(dict[str, Any]):
    """The spec of data that was not read: any look into it raises DataNeeded."""

    __getitem__ = __contains__ = get = keys = values = items = _need_data


def _missing_data(recipe: Training) -> str:
    """Why the data cannot be read: a real set would have to be downloaded first."""
    from everynet.data.download.store import whole
    from everynet.data.sets import everything

    known = everything().get(getattr(recipe, "data", ""))
    if known is None or known.make or whole(known):
        return ""
    return f"{known.name} is not here; everynet data get {known.name} fetches it"


def _input_shape(model: nn.Module, spec: Spec) -> tuple[int, ...]:
    """The shape of one input; a network that needs no data has it in its first layer."""
    from torch import nn

    first = next((m for m in model.modules() if next(m.parameters(False), None) is not None), None)
    if not spec and isinstance(first, nn.Linear):
        return (first.in_features,)
    return tuple(spec.get("shape", ()))


def _layer_table(model: nn.Module, shape: tuple[int, ...]) -> str:
    """Each layer with its shape and cost; without shapes where the input is no single tensor."""
    from torch import Tensor

    from everynet.nn.layers import layer_table

    try:
        return str(layer_table(model, shape))
    except (RuntimeError, TypeError, ValueError, IndexError):
        rows, counted = [("layer", "kind", "parameters")], set[Tensor]()
        for name, module in model.named_modules():
            own = set(module.parameters(recurse=False)) - counted  # tied weights: their first layer
            counted |= own
            if own:
                kind, size = type(module).__name__, sum(p.numel() for p in own)
                rows.append((name or kind, kind, f"{size:,}"))
        return table(rows) + f"\n{sum(p.numel() for p in counted):,} parameters"
