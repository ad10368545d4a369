"""Compiled loops for the CPU, each with a form in torch for other devices.

Numba takes settings from `.numba_config.yaml` in the working directory, when it is imported and
again before it compiles. A folder must not choose how we compute: here it is imported without,
unless the program did so before.
"""

import os
import sys
import warnings


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
