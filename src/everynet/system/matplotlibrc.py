"""matplotlib's settings may lie in the working folder, a stranger's or broken: they break nothing.

What everynet draws it draws with matplotlib's own settings (see `plot.style.drawing`). But whoever
imports matplotlib reads the file first: one that is not text ends the import, and a FIFO never ends
it. Where such a file would be read matplotlib is imported here and now, without it.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 1 << 20  # bytes of a file of settings
NAME, VARIABLE, BACKEND = "matplotlibrc", "MATPLOTLIBRC", "MPLBACKEND"


def pass_over_broken_settings() -> None:
    """Import matplotlib with its own settings if those that it would read are broken."""
    if "matplotlib" not in sys.modules and _broken():
        import_with_own_settings()


def import_with_own_settings() -> None:
    """Import matplotlib without a file of settings of the folder, the user or the environment."""
    from contextlib import chdir, suppress  # noqa: PLC0415 -- hardly ever needed
    from importlib import import_module  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    spec = find_spec("matplotlib")
    if spec is None or spec.origin is None:
        return  # whoever needs it is told
    given = {name: os.environ.pop(name, None) for name in (VARIABLE, BACKEND)}
    os.environ[VARIABLE] = str(Path(spec.origin).parent / "mpl-data" / NAME)
    try:
        with chdir("/"):
            matplotlib = import_module("matplotlib")
    finally:
        del os.environ[VARIABLE]
        os.environ.update({name: value for name, value in given.items() if value is not None})
    with suppress(ValueError):  # one that is not installed
        matplotlib.rcParams["backend"] = given[BACKEND] or matplotlib.rcParams["backend"]


def _places() -> Iterator[Path]:
    """Where matplotlib looks for its settings; the first file that it finds is read."""
    yield Path(NAME)
    if named := os.environ.get(VARIABLE):
        yield Path(named)
        yield Path(named) / NAME
    if folder := os.environ.get("MPLCONFIGDIR"):
        yield Path(folder) / NAME
        return
    home = Path(os.path.expanduser("~"))
    yield Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "matplotlib" / NAME
    yield home / ".matplotlib" / NAME


def _broken() -> bool:
    """Whether the file of settings that would be read cannot be: no text, no plain file."""
    for path in _places():
        try:
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST:
                return True
            path.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            return True
        else:
            return False
    return False
