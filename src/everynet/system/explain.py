"""How an error ends a command: its exit code and one line."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from everynet.system.errors import Failure
from everynet.system.user_files import place
from everynet.system.wording import shown

LONGEST = 2000  # characters of a line that says what is wrong
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
NO_MEMORY = re.compile(
    r"can't allocate memory|out of memory|not enough memory|unable to allocate"
    r"|size calculation overflowed|integer multiplication overflow",
    re.IGNORECASE,
)
"""What torch and numpy say of it; neither has an error of its own for the CPU."""


def explained(error: Exception, words: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code of an error, and what to say of it in one line, after these words."""
    line = shown(" ".join(str(error).split()), LONGEST)
    if isinstance(error, Failure):
        return error.code, line
    if isinstance(error, MemoryError) or NO_MEMORY.search(line):
        return 2, f"there is not enough memory for this: {_largest(words)}"
    if isinstance(error, OSError) and error.errno in FULL:
        return 4, f"cannot write: {error.strerror}; free some space or choose another folder"
    where = place(error)  # in a file of the user's that it came through, where there is one
    if where or isinstance(error, ValueError):
        return 2, f"{where}: {type(error).__name__}: {line}" if where else line
    if isinstance(error, OSError) and (named := _named(error, words)):
        return 2, f"{shown(named)} cannot be read: {error.strerror}"
    return 1, f"a fault of ours: {type(error).__name__}: {line} (--debug shows where)"


def _largest(words: Sequence[str]) -> str:
    """Which of the settings given is the likeliest to ask for it."""
    numbers = {}
    for word in words:
        name, _, value = word.partition("=")
        found = [int(number) for number in re.findall(r"\d+", value)]
        numbers[f"{name} ({value})"] = max(found, default=0)
    most = max(numbers, key=numbers.__getitem__, default="")
    if numbers.get(most, 0) < 1000:
        return "choose a smaller network, batch or set of data"
    return f"{shown(most)} must be smaller"


def _named(error: OSError, words: Sequence[str]) -> str:
    """The file that could not be read, if it was named on the command line."""
    file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    given = (word.rpartition("=")[2] for word in words)
    return file if any(len(word) > 1 and word in file for word in given) else ""


class CellFailed(Failure):
    """A cell of an experiment could not be trained: which one, why, and the exit code of that."""

    def __init__(self, cell: str, why: str, code: int) -> None:
        super().__init__(f"cell {cell}: {why}; the others are saved: everynet resume goes on")
        self.code = code

    @staticmethod
    def of(cell: str, error: Exception) -> CellFailed:
        """What an error in a cell is for the whole experiment."""
        code, why = explained(error)
        return CellFailed(cell, why, code)
