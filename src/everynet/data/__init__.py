"""Data: known sets, generated sets and the user's own files, each as one `Data`.

`load` gives the three splits, `inputs` reads what a trained network is asked about and `names`
lists what `load` knows. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everynet.data.asked import inputs as inputs
    from everynet.data.asked import labelled as labelled
    from everynet.data.loading import load as load

OFFLINE = (
    *("digits", "iris", "wine", "breast-cancer", "diabetes", "china", "flower"),
    *("moons", "spirals", "rings", "xor", "blobs", "strokes"),
)
"""Sets that ship with scikit-learn or are generated: they need no network and no file."""

_HOMES = {"load": "loading", "inputs": "asked", "labelled": "asked"}


def names() -> tuple[str, ...]:
    """Every name that `load` knows: first those that are always there, then the real sets."""
    from everynet.data.store import NAMES  # noqa: PLC0415 -- keeps this module light

    return (*OFFLINE, *NAMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a function of loading.py
    if name in _HOMES:
        return getattr(import_module(f"everynet.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'everynet.data' has no attribute {name!r}")
