"""How Ops behave inside a `with`: recording the graph or not, checking for NaN or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from everynet.autodiff.arraylike import Value, value


class Mode(threading.local):
    """The behaviour of this thread."""

    recording = True  # an Op keeps its arguments
    checking = False  # every value and gradient must be finite


MODE = Mode()


@contextmanager
def _set(name: str, to: bool) -> Iterator[None]:
    before = getattr(MODE, name)
    setattr(MODE, name, to)
    try:
        yield
    finally:
        setattr(MODE, name, before)


def no_grad() -> AbstractContextManager[None]:
    """Inside, Ops compute without a graph."""
    return _set("recording", False)


def enable_grad() -> AbstractContextManager[None]:
    """Inside, Ops keep the graph, also within no_grad."""
    return _set("recording", True)


def check_finite() -> AbstractContextManager[None]:
    """Inside, the first Op whose value or gradient is infinite or not a number raises."""
    return _set("checking", True)


def require_finite(x: Value, what: str) -> None:
    """Raise if an element of x is infinite or not a number."""
    val = np.asarray(value(x))
    bad = int(np.sum(~np.isfinite(val)))
    if bad:
        raise FloatingPointError(
            f"{what} of shape {val.shape} must be finite, but {bad} of {val.size} elements are not"
        )
