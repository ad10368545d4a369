"""Compiled loops for the CPU, each with a form in torch for other devices.

Numba takes settings from `.numba_config.yaml` in the working directory, when it is imported and
again before it compiles. A folder must not choose how we compute: here it is imported without,
unless the program did so before.
"""

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everynet.kernels.recurrence import linear_recurrence as linear_recurrence


def _import_numba() -> None:
    reader = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a file was found which it cannot read
            from numba.core import config  # noqa: PLC0415
    finally:
        del sys.modules["yaml"]
        if reader is not None:
            sys.modules["yaml"] = reader
    config._config_fname = os.devnull  # which is no file, whatever the working directory


if "numba" not in sys.modules:
    _import_numba()


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a function, imported when it is asked for
    if name == "linear_recurrence":
        from everynet.kernels.recurrence import linear_recurrence as found  # noqa: PLC0415

        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
