"""Data: known sets, generated sets and the user's own files, each as one `Data`.

`load` gives the three splits of a kind, `check` looks the user's files over, `names` lists what
`load` knows, and `register` makes a kind or a set of one's own known. Nothing heavy is imported
before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everynet.data.kinds import Inputs as Inputs
    from everynet.data.kinds import Kind as Kind
    from everynet.data.loading import check as check
    from everynet.data.loading import load as load
    from everynet.data.sets import Known as Known

_HOMES = {
    **{"load": "loading", "check": "loading"},
    **{"Inputs": "kinds", "Kind": "kinds", "Known": "sets"},
}


def names() -> tuple[str, ...]:
    """Every name that `load` knows: first those that are always there, then the real sets."""
    return tuple(import_module("everynet.data.sets").everything())


def built_in() -> tuple[str, ...]:
    """The names that need no network and no file."""
    found: tuple[str, ...] = import_module("everynet.data.sets").built_in()
    return found


def register(new: Kind[Any] | Known) -> None:
    """Make a kind of data or a known set of one's own known by its name."""
    sets = import_module("everynet.data.sets")
    home = sets if isinstance(new, sets.Known) else import_module("everynet.data.kinds")
    home.register(new)


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a function or a class
    if name in _HOMES:
        return getattr(import_module(f"everynet.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'everynet.data' has no attribute {name!r}")
