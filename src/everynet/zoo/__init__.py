"""Networks, estimators and simulators by name: `everynet.zoo.LeNet`, `everynet.zoo.LIFNetwork`.

A name is found by the catalogue in the text of the files, and only the file that has it is
imported. `__init__.pyi`, written by `tools/zoo_stub.py`, says the same to editors and mypy. Recipes
are found by `everynet.recipe`; records and protocols stay in their files.

An optimiser's name gives its class, `Lion(params, lr=...)` as torch's own; the rules of
`optimisation/update_rules.py` are pure functions with names of their own, such as `LionRule`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from everynet.system.wording import no_attribute

OPTIMIZERS = {
    "Lion": "everynet.nn.lion",
    **dict.fromkeys(("SGD", "Adagrad", "RMSprop", "Adam", "AdamW"), "torch.optim"),
}
"""The classes behind the names of a recipe's setting `optimizer`, with their modules."""
_FAMILIES = [path.parent.name for path in sorted(Path(__file__).parent.glob("*/__init__.py"))]


@cache
def _blocks() -> dict[str, str]:
    """Names and files, from the catalogue, which lies above: found by its name."""
    found: dict[str, str] = import_module("everynet.recipes.catalog").blocks()
    return found


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a class, a family or the list of names
    if name == "__all__":
        return __dir__()
    if name in OPTIMIZERS:
        return getattr(import_module(OPTIMIZERS[name]), name)
    if name in _FAMILIES:
        return import_module(f"everynet.zoo.{name}")
    if name.startswith("_") or name not in _blocks():
        raise no_attribute(__name__, name, () if name.startswith("_") else __dir__())
    return import_module("everynet.recipes.catalog").block(name)


def __dir__() -> list[str]:
    return [*_FAMILIES, *OPTIMIZERS, *_blocks()]
