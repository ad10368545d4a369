"""The one door to the terminal: what is printed, and what to do where nothing can be."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

from everynet.system.errors import CannotWrite
from everynet.system.wording import printable


class Door(io.TextIOBase):
    """A stream that lets no control character through, for names may come from a stranger's files.

    `stream` is None where the process was started with it closed.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 -- whatever stands for a stream
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow terminal is no error

    def write(self, text: str) -> int:
        with self._open() as stream:
            stream.write(self.cleaned(text))
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

    def cleaned(self, text: str) -> str:
        """The text as it may be shown."""
        return printable(text)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """The stream, or one line that it cannot be written."""
        try:
            if self.stream is None:
                raise ValueError("it is closed")
            yield self.stream
        except BrokenPipeError:  # whoever read our output has gone, which is no error of anyone's
            raise
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is closed"
            raise CannotWrite(f"cannot write to standard output: {why}") from error


class Remarks(Door):
    """Standard error: what cannot be said there is left unsaid, and the work goes on."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        with contextlib.suppress(OSError, ValueError):
            yield self.stream or io.StringIO()

    def cleaned(self, text: str) -> str:
        """The text as it may be shown; one carriage return before it is that of a live line."""
        live = text.startswith("\r")
        return "\r" * live + printable(text[live:])


@contextlib.contextmanager
def doors() -> Iterator[None]:
    """All that is printed inside goes through the doors."""
    with (
        contextlib.redirect_stdout(Door(sys.stdout)),
        contextlib.redirect_stderr(Remarks(sys.stderr)),
    ):
        yield


def settle(stream: Any) -> None:  # noqa: ANN401
    """Write what waits in a stream; if that fails drop it, or Python's own end would fail on it."""
    try:
        if stream is not None:
            stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
