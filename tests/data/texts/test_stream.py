"""Lines of a stream are given when they come, and together where they wait."""

import io
import os

import pytest

from everynet.data.texts import stream
from everynet.data.texts.stream import decode_line, waiting_lines
from everynet.system.errors import UserError


def test_lines_of_any_cut_are_the_lines_of_the_whole():
    for content in (b"", b"a", b"a\n", b"a\n\nb", b"\n\n", b"a\r\nb\n" * 20_000):
        for most in (1, 3, 256):
            if most > 1 or len(content) < 10:
                batches = list(waiting_lines(io.BytesIO(content), most))
                assert all(1 <= len(batch) <= most for batch in batches)
                lines = [line for batch in batches for line in batch]
                assert lines == list(enumerate(content.removesuffix(b"\n").split(b"\n"), 1)) * (
                    content != b""
                )


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", 0) as sink:
        yield source, sink


def test_what_waits_is_given_together_and_nothing_more_is_waited_for(pipe):
    source, sink = pipe
    lines = waiting_lines(source, 3)
    sink.write(b"a\n")
    assert next(lines) == [(1, b"a")]  # with the pipe still open
    for part in (b"b\nc", b"c\nd\ne\n"):
        sink.write(part)
    assert next(lines) == [(2, b"b"), (3, b"cc"), (4, b"d")]
    assert next(lines) == [(5, b"e")]
    sink.write(b"last")
    sink.close()
    assert list(lines) == [[(6, b"last")]]


def test_small_writes_that_wait_already_are_one_batch(pipe, monkeypatch):
    """As many as a batch holds, whatever a single read gives; but so many bytes are enough."""
    source, sink = pipe
    monkeypatch.setattr(stream, "CHUNK", 4)
    sink.write(b"aaaaaa\n" * 50)
    lines = waiting_lines(source, 20)
    assert [len(next(lines)) for _ in range(2)] == [20, 20]
    monkeypatch.setattr(stream, "TOGETHER", 15)
    assert len(next(lines)) < 10


def test_a_line_without_end_is_kept_in_part(monkeypatch):
    monkeypatch.setattr(stream, "LONGEST", 9)
    monkeypatch.setattr(stream, "MOST_LINE", 2)
    monkeypatch.setattr(stream, "CHUNK", 4)
    (first,), (second,) = waiting_lines(io.BytesIO(b"x" * 1000 + b"\nab"), 5)
    assert len(first[1]) <= 9 + 4
    assert decode_line(*second) == "ab"
    said = r"standard input: line 1 must have at most 2 characters, because a line is one text; cut"
    for content in (first[1], b"abc", "\N{PILE OF POO}".encode() * 2 + b"x"):
        with pytest.raises(UserError, match=said):
            decode_line(1, content)


def test_bytes_that_are_no_text():
    with pytest.raises(UserError, match=r"input: line 7 must be text, but holds a byte of value 0"):
        decode_line(7, b"a\0b")
    with pytest.raises(UserError, match=r"input: line 2 is not UTF-8 text; save it as UTF-8"):
        decode_line(2, b"caf\xe9")
    assert decode_line(1, b"\xef\xbb\xbfone\r") == "one"
    assert decode_line(2, b"\xef\xbb\xbftwo") == "\ufefftwo"
