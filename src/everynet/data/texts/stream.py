"""Lines of text as they come on standard input, so that a verb can be a filter.

Lines that wait already are given together, so that a file that is piped in is read in batches.
"""

from __future__ import annotations

import io
import select
from collections.abc import Iterator

from everynet.data.texts.lines import MOST_LINE
from everynet.system.errors import UserError

CHUNK, TOGETHER = 2**16, 2**24
"""Bytes that are read at once, and beyond which no more are read while lines wait."""
LONGEST = 4 * MOST_LINE + 1
"""Bytes of a line that are kept: with so many it is too long, whatever they spell."""


def waiting_lines(stream: io.BufferedIOBase, most: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines of a stream with their numbers from 1, at most `most` at a time.

    It waits for one line, and takes those that are there by then. The last needs no line end.
    """
    ready: list[tuple[int, bytes]] = []
    number, rest, ended = 0, bytearray(), False
    while ready or not ended:
        size = 0
        while not ended and len(ready) < most and not (ready and _must_wait(stream, size)):
            chunk = stream.read1(CHUNK)
            size, ended = size + len(chunk), not chunk
            *ends, start = chunk.split(b"\n")
            for end in ends:
                number += 1
                ready.append((number, bytes(rest + end)))
                rest.clear()
            rest += start
            del rest[LONGEST:]
            if ended and rest:
                ready.append((number + 1, bytes(rest)))
        if ready:
            yield ready[:most]
        del ready[:most]


def _must_wait(stream: io.BufferedIOBase, size: int) -> bool:
    """Whether there is nothing to be read by now, or `size` bytes are enough."""
    try:
        return size > TOGETHER or not select.select([stream], [], [], 0)[0]
    except (OSError, ValueError):  # no way to find out
        return True


def decode_line(number: int, content: bytes) -> str:
    """A line of standard input as text, if it is some and not too long."""
    where = f"standard input: line {number}"
    if b"\0" in content:
        raise UserError(f"{where} must be text, but holds a byte of value 0")
    try:
        text = content.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        raise UserError(f"{where} is not UTF-8 text; save it as UTF-8") from None
    if len(content) >= LONGEST or len(text) > MOST_LINE:
        raise UserError(
            f"{where} must have at most {MOST_LINE:,} characters, because a line is one text; cut "
            "it into lines"
        )
    return text
