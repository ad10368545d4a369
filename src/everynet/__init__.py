"""Every network of the deep-learning curriculum as real software.

`everynet.recipe("lenet", lr=0.01)` gives a recipe, `everynet.run.run(recipe)` trains it, and
`everynet.load(folder)` gives the trained model back. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from everynet.recipe import Recipe

__version__ = "0.1.0"

_MODULES = ("autodiff", "catalog", "data", "metrics", "nn", "plot", "recipe", "run", "zoo")


def load(folder: str | Path, file: str | Path | None = None) -> Any:  # noqa: ANN401 -- any model
    """The trained model of a run folder, in eval mode; `file` names a recipe outside the zoo."""
    return import_module("everynet.catalog").load(folder, file)


def named(name: str, **fields: object) -> Recipe:
    """The recipe of that name, with some settings replaced; also called `everynet.recipe`."""
    found: Recipe = import_module("everynet.catalog").find(name)
    made: Recipe = import_module("everynet.settings").override(found, fields)
    return made


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a module
    if name in _MODULES:
        return import_module(f"everynet.{name}")
    raise AttributeError(f"module 'everynet' has no attribute {name!r}")
