"""The expected ways to fail, each with its exit code, and how any error ends a command.

Light enough for a verb without torch.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from everynet.system.user_files import place
from everynet.system.wording import shown

LONGEST = 2000  # characters of a line that says what is wrong
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
NO_MEMORY = re.compile(
    r"can't allocate memory|out of memory|not enough memory|unable to allocate"
    r"|size calculation overflowed|integer multiplication overflow|STATUS_ALLOC_FAILED",
    re.IGNORECASE,
)
"""What torch and numpy say of it; neither has an error of its own for the CPU."""


class Failure(Exception):
    """An expected way to end: one line for the user and an exit code."""

    code = 1


class UserError(Failure, ValueError):
    """Something the user named is wrong: a setting, a file, a value in the data."""

    code = 2


class Damaged(UserError):
    """A file of a run whose bytes are not those that were written."""


class Missing(UserError):
    """A file that is not there."""


class CannotRead(UserError):
    """A file that is there and that the system does not let us read."""


class NonFinite(Failure, ArithmeticError):
    """A value of the training became infinite or not a number."""

    code = 3


class CannotWrite(Failure, OSError):
    """The run folder could not be written."""

    code = 4


class NoCheckpoint(Failure):
    """A run folder holds no checkpoint that can be trusted."""

    code = 5


class Stopped(Failure):
    """A signal ended the run after its state was saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.code = 128 + signal


# ---------------------------------------------------------------------- how an error ends a command


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of a GPU or of the machine."""
    known = isinstance(error, RuntimeError) and NO_MEMORY.search(str(error))
    return isinstance(error, MemoryError) or bool(known)


def explain(error: Exception, words: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code of an error and one line that says what is wrong; `words` are the command's."""
    line = shown(" ".join(str(error).split()), LONGEST)
    if isinstance(error, Failure):
        return error.code, line
    if is_out_of_memory(error):
        return 2, f"there is not enough memory for this: {_find_largest_setting(words)}"
    if isinstance(error, OSError) and error.errno in FULL:
        return 4, f"cannot write: {error.strerror}; free some space or choose another folder"
    where = place(error)  # in a file of the user's that it came through, where there is one
    if where or isinstance(error, ValueError):
        return 2, f"{where}: {type(error).__name__}: {line}" if where else line
    if isinstance(error, OSError) and (named := _find_file(error, words)):
        return 2, f"{shown(named)} cannot be read: {error.strerror}"
    return 1, f"internal error: {type(error).__name__}: {line} (--debug shows where)"


def _find_largest_setting(words: Sequence[str]) -> str:
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


def _find_file(error: OSError, words: Sequence[str]) -> str:
    """The file that could not be read, if it was named on the command line."""
    file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    given = (word.rpartition("=")[2] for word in words)
    return file if any(len(word) > 1 and word in file for word in given) else ""
