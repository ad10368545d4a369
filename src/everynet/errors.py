"""The expected ways to fail, each with its exit code; light enough for a verb without torch."""

from __future__ import annotations


class Failure(Exception):
    """An expected way to end: one line for the user and an exit code."""

    code = 1


class UserError(Failure, ValueError):
    """Something the user named is wrong: a setting, a file, a value in the data."""

    code = 2


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


def explained(error: Exception) -> tuple[int, str]:
    """The exit code of an error and what to say of it in one line."""
    line = " ".join(str(error).split())
    if isinstance(error, Failure):
        return error.code, line
    if isinstance(error, ValueError):
        return 2, line
    return 1, f"a fault of ours: {type(error).__name__}: {line} (--debug shows where)"


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
