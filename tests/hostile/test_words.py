"""Names from a stranger's files reach the terminal and the card as text, never as commands."""

import io
import json
import math
import re
import sys

import pytest

from everynet.cli import main, table
from everynet.cli.streams import Errors, Output, printable_streams
from everynet.runs.card import cell, code
from everynet.runs.progress import Progress
from everynet.system.errors import CannotWrite
from everynet.system.wording import nearest, printable

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202egnp.exe\x08"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def test_printable_keeps_text_and_drops_what_commands_a_terminal():
    assert (
        printable("tab\tline\nnaïve 数 e\u0301 a\u00a0b") == "tab\tline\nnaïve 数 e\u0301 a\u00a0b"
    )
    assert not RAW.search(printable(EVIL))
    assert printable("\x1b[31mred") == "?[31mred"


@pytest.fixture
def run_folder(tmp_path):
    """A run whose every name is hostile."""
    folder = tmp_path / "runs" / "evil"
    folder.mkdir(parents=True)
    about = {"name": EVIL, "settings": {EVIL: EVIL}, "changed": [EVIL]}
    (folder / "recipe.json").write_text(json.dumps(about))
    row = {"step": 3, "valid": {EVIL: 1.0}}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    return folder


def test_20_no_verb_lets_an_escape_sequence_through(run_folder, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(f'"""Idea {EVIL!r}."""\nRECIPES = {{"a{EVIL}": 1}}\n'.replace("\\", "\\\\"))
    (tmp_path / f"{EVIL}.csv").write_text(f"{EVIL},y\n1,{EVIL}\nx,b\n")
    for words in (
        ["runs"],
        ["runs", str(run_folder)],
        ["draw", str(run_folder)],
        ["run", EVIL],
        [EVIL],
        ["run", "mlp", f"{EVIL}=1"],
        ["run", "mlp", f"data={EVIL}.csv", "target=y"],
        ["data", "check", f"{EVIL}.csv", "target=y"],
        ["run", str(own)],
        ["list", EVIL, "--debug"],
    ):
        main(words)
        out, error = capsys.readouterr()
        assert out or error, words
        assert not RAW.search(out + error), words


def test_the_live_line_returns_to_the_left_and_no_name_does(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with printable_streams():
        monkeypatch.setattr(stream, "isatty", lambda: True)
        progress = Progress(9, shown=True)
        progress.show(3, {EVIL: 1.0})
        progress.say(EVIL)
    assert stream.getvalue().startswith("\rstep 3/9 ")
    assert not RAW.search(stream.getvalue()[1:])
    log = io.StringIO()  # of a program that has none of these streams
    monkeypatch.setattr(sys, "stderr", log)
    progress = Progress(9, shown=True)
    progress.show(3, {EVIL: 1.0})
    progress.say(EVIL)
    assert not RAW.search(log.getvalue())


def test_a_line_break_in_a_name_adds_no_line_to_a_table():
    assert table([("a\nb", "c")]) == "a b  c"


def test_names_that_are_no_words_have_neighbours_too():
    assert nearest("x", [1, 2]) == "; did you mean 2 or 1?"
    assert nearest("x" * 10**6, (str(n) for n in range(10**5)))  # in no time


# ------------------------------------------------------------------------------------ the streams


class Full(io.StringIO):
    def write(self, _):
        raise OSError(28, "No space left on device")


def test_standard_output_that_cannot_be_written_is_said_and_standard_error_is_not():
    for stream, why in ((Full(), "No space left on device"), (None, "it is closed")):
        with pytest.raises(CannotWrite, match=f"cannot write to standard output: {why}"):
            print("figures", file=Output(stream))
        print("a remark", file=Errors(stream), flush=True)
        assert not Output(stream).isatty()
    closed = io.StringIO()
    closed.close()
    with pytest.raises(CannotWrite, match="cannot write to standard output: it is closed"):
        print("figures", file=Output(closed))
    with pytest.raises(io.UnsupportedOperation):
        Output(None).fileno()


@pytest.mark.parametrize("stream", [Full(), None, io.StringIO()])
def test_21_progress_that_nobody_can_see_ends_nothing(stream, monkeypatch):
    if isinstance(stream, io.StringIO) and not isinstance(stream, Full):
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(9, shown=True)
    progress.say("begun")
    lost = stream is not None  # without any stream it is written to memory
    assert progress.shown != lost, "what cannot be written is not tried again"
    progress._last = -math.inf
    assert progress.due() != lost
    progress.close()


# --------------------------------------------------------------------------------------- the card


def test_30_a_cell_of_the_card_is_text():
    assert cell("a|b <b>c</b> `d` [e](f) \\ g <= 3") == (r"a\|b \<b>c\</b> \`d\` \[e](f) \\ g <= 3")
    assert cell("a\nb\x1b\udcff") == "a?b??"


def test_code_of_the_card_ends_where_it_should():
    assert code("plain") == "`plain`"
    assert code("a|b") == r"`a\|b`"
    assert code("a`b``c") == "``` a`b``c ```"
