"""A run folder: what makes one, goes on with one, reads one and answers from one.

`run`, `resume`, `load` and `draw` are those of `runs.verbs`, imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everynet.runs.verbs import draw as draw
    from everynet.runs.verbs import load as load
    from everynet.runs.verbs import resume as resume
    from everynet.runs.verbs import run as run


def __getattr__(name: str) -> object:
    if name in ("draw", "load", "resume", "run"):
        return getattr(import_module("everynet.runs.verbs"), name)
    raise AttributeError(f"module 'everynet.runs' has no attribute {name!r}")
