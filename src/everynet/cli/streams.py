"""Standard output and error: control characters are replaced, and a failing stream is handled."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from everynet.system.errors import CannotWrite
from everynet.system.wording import printable


class Output(io.TextIOBase):
    """Standard output without control characters, for names may come from a stranger's files.

    `stream` is None where the process was started with it closed.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 -- whatever stands for a stream
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow terminal is no error

    def write(self, text: str) -> int:
        with self._open() as stream:
            stream.write(self.clean(text))
        return len(text)

    def flush(self) -> None:
        with self._open() as stream:
            stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(self.stream and not self.stream.closed and self.stream.isatty())

    def fileno(self) -> int:
        if self.stream is None:
            raise io.UnsupportedOperation("fileno")
        return int(self.stream.fileno())

    def clean(self, text: str) -> str:
        """The text without control characters."""
        return printable(text)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """The stream; an error in writing to it becomes one line."""
        try:
            if self.stream is None:
                raise ValueError("it is closed")
            yield self.stream
        except BrokenPipeError:  # whoever read our output has gone, which is no error of anyone's
            raise
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is closed"
            raise CannotWrite(f"cannot write to standard output: {why}") from error


class Errors(Output):
    """Standard error: what cannot be written there is dropped, and the work goes on."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        with contextlib.suppress(OSError, ValueError):
            yield self.stream or io.StringIO()

    def clean(self, text: str) -> str:
        """The text without control characters, but for the carriage return of a live line."""
        live = text.startswith("\r")
        return "\r" * live + printable(text[live:])


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """All that is printed inside goes through `Output` and `Errors`."""
    with (
        contextlib.redirect_stdout(Output(sys.stdout)),
        contextlib.redirect_stderr(Errors(sys.stderr)),
    ):
        yield


def flush(stream: Any) -> None:  # noqa: ANN401 -- whatever stands for a stream
    """Flush a stream; if that fails drop what waits in it, or Python would fail on it at exit."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
