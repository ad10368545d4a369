"""Files of the user's own that were imported, and the line of theirs that an error came through."""

from __future__ import annotations

import os
import sys
from types import TracebackType

FILES: dict[str, str] = {}
"""The files by their whole paths, each as the user wrote it."""


def place(error: BaseException) -> str:
    """`./mine.py line 41`: the last line of the user's files that an error came through, if any.

    A neighbour that the file imported is the user's as well.
    """
    if not FILES:
        return ""
    folders = {os.path.dirname(path): os.path.dirname(name) for path, name in FILES.items()}
    found, at = "", error.__traceback__
    while at is not None:
        path = _file(at)
        folder, name = os.path.split(path)
        if path in FILES:
            found = f"{FILES[path]} line {at.tb_lineno}"
        elif folder in folders and not _ours(at):
            found = f"{os.path.join(folders[folder], name)} line {at.tb_lineno}"
        at = at.tb_next
    return found


def _file(at: TracebackType) -> str:
    return os.path.realpath(at.tb_frame.f_code.co_filename)


def _ours(at: TracebackType) -> bool:
    """Whether a frame is code of the package, or of what has started it."""
    module = str(at.tb_frame.f_globals.get("__name__", ""))
    return module in ("__main__", "everynet") or module.startswith("everynet.")


def resuming(folder: object, file: str) -> str:
    """The command that goes on with a run; where a file of the user's made it, with that file."""
    import shlex  # noqa: PLC0415 -- only a stop needs it

    named = FILES.get(os.path.realpath(file), file)
    return shlex.join(["everynet", "resume", str(folder), *(["--file", named] if file else [])])


def defined(cls: type) -> str:
    """`./mine.py line 12`, where a class of the user's begins; its name where no file is known."""
    import inspect  # noqa: PLC0415 -- only a mistake needs it

    try:
        path, line = os.path.realpath(inspect.getfile(cls)), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return cls.__qualname__
    return f"{FILES.get(path, path)} line {line}"


def line_of_method(cls: type, name: str) -> str:
    """`./mine.py line 41`, where a method begins; where the class does if it is no function."""
    code = getattr(getattr(cls, name, None), "__code__", None)
    if code is None:
        return defined(cls)
    path = os.path.realpath(code.co_filename)
    return f"{FILES.get(path, path)} line {code.co_firstlineno}"


def line_of(cls: type, text: str) -> str:
    """The first line with this text in the file of a class; where the class begins if none has."""
    module = sys.modules.get(cls.__module__)
    path = os.path.realpath(getattr(module, "__file__", None) or "")
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if text in line:
                    return f"{FILES.get(path, path)} line {number}"
    except (OSError, ValueError):
        pass
    return defined(cls)
