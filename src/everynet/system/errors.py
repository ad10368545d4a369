"""The expected ways to fail, each with its exit code; light enough for a verb without torch."""

from __future__ import annotations


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
