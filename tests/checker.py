"""beartype for single functions; `Self`, which it knows only on whole classes, is not checked."""

from typing import Self

from beartype import BeartypeConf, beartype

CONFIGURATION = BeartypeConf(is_pep484_tower=True)  # an int may stand where a float is asked


def checked(function):
    """Check calls of a function against its annotations."""
    hints = getattr(function, "__annotations__", {})
    for name in [n for n, hint in hints.items() if hint is Self or hint == "Self"]:
        del hints[name]
    return beartype(function, conf=CONFIGURATION)
