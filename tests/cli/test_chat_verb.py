"""`everynet chat`: turns are kept, lines are answered, and nothing ends in a traceback."""

import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import everynet
from everynet.cli.completion import complete
from everynet.recipes.catalog import find
from everynet.runs import chat
from everynet.runs.job import Job

WAIT = 60  # seconds, on a machine that is busy


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs without pictures of the networks that talk, and of one that does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        out = tmp_path_factory.mktemp("runs")
        names = ("dual-encoder", "conversation", "gpt", "seq2seq")
        return {name: str(everynet.run(find(name).tiny(), out).folder) for name in names}


@pytest.fixture
def talk(call, monkeypatch):
    """A conversation by these lines, as the objects that were printed."""

    def say(run, *lines, settings=(), code=0, end="\n"):
        content = b"".join(
            (line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines
        )
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        got, out, error = call("chat", run, *settings, "--json", "--device", "cpu")
        assert (got, error) == (code, ""), error
        return [json.loads(line) for line in out.splitlines()]

    return say


@pytest.mark.parametrize("name", ["dual-encoder", "conversation", "gpt"])
def test_each_line_has_an_answer_and_the_same_seed_the_same_talk(made, talk, name):
    lines = ["hello , i am eva", "how much is a cup ?", "yes please", "goodbye"]
    settings = ["temperature=1", "seed=3"]
    found = talk(made[name], *lines, settings=settings)
    assert [(row["turn"], row["text"]) for row in found] == [*enumerate(lines, 1)]
    assert all(isinstance(row["answer"], str) for row in found)
    assert talk(made[name], *lines, settings=settings) == found
    others = talk(made[name], *lines, settings=["temperature=1", "seed=4"])
    assert [row["answer"] for row in others] != [row["answer"] for row in found]


def test_what_was_said_is_kept_and_forgotten(made, monkeypatch):
    """What the network is given, turn by turn."""
    from everynet.runs.folder import open_run
    from everynet.runs.predict import Predictor

    talker = chat.Chat(Predictor.of(open_run(made["conversation"]), device="cpu"), {})
    given = []
    talker._answer = lambda turns, random, n: given.append((turns, n)) or {"answer": f"a{n}"}
    for line in ("one", "two", "/again", "/again", "three", "/forget", "/again", "four"):
        talker.answer(line)
    said = [([text for _, text in turns], n) for turns, n in given]
    assert said == [
        (["one"], 0),
        (["one", "a0", "two"], 0),
        (["one", "a0", "two"], 1),
        (["one", "a0", "two"], 2),
        (["one", "a0", "two", "a2", "three"], 0),
        (["four"], 0),
    ]
    assert {who for turns, _ in given for who, _ in turns} == {chat.USER, chat.NETWORK}
    for n in range(200):
        talker.answer(str(n))
    assert len(talker.turns) == chat.KEPT


def test_again_gives_another_answer(made, talk):
    first, second, third = talk(made["dual-encoder"], "hello", "/again", "/again")
    assert first["turn"] == second["turn"] == third["turn"] == 1
    assert len({row["answer"] for row in (first, second, third)}) == 3
    assert first["probability"] >= second["probability"] >= third["probability"]
    rows = talk(made["conversation"], "hello", "/again", "/forget", "/again", "hello")
    assert rows[0]["answer"] == rows[4]["answer"] != rows[1]["answer"]
    assert rows[2] == {"note": "what was said is forgotten"}
    assert rows[3] == {"note": "nothing was said yet that could be answered again"}


def test_replies_of_a_file_are_the_answers(made, talk, tmp_path):
    (tmp_path / "mine.txt").write_text("certainly\nnever\n")
    rows = talk(made["dual-encoder"], "hello", "and now ?", settings=["replies=mine.txt"])
    assert {row["answer"] for row in rows} <= {"certainly", "never"}
    assert not any(row["common"] for row in rows)


def test_an_empty_line_or_the_end_of_input_ends_it(made, talk):
    for empty in ("", "   ", "\r"):
        assert len(talk(made["dual-encoder"], "hello", empty, "hello")) == 1
    assert len(talk(made["dual-encoder"], "hello", "hi", end="\n")) == 2
    assert len(talk(made["dual-encoder"], b"hello\nhi", end="")) == 2  # no newline at the end
    assert talk(made["dual-encoder"]) == []


def test_a_common_answer_and_a_cut_one_are_marked(call, made, monkeypatch):
    content = ("word " * 200 + "\n").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    spec = json.loads(Path(made["dual-encoder"], "spec.json").read_text())["spec"]
    Path("one.txt").write_text(spec["replies"][0])
    code, out, error = call("chat", made["dual-encoder"], "replies=one.txt", "--device", "cpu")
    assert (code, error) == (0, "")
    assert out == f"{spec['replies'][0]} [a common reply] [100 words cut]\n"


@pytest.mark.parametrize("name", ["dual-encoder", "conversation", "gpt"])
def test_a_hundred_turns_of_anything_are_answered(made, talk, name):
    """Control characters, no UTF-8, 10,000 characters, words that nobody knows."""
    draw = random.Random(0)
    lines = [b"hello", "zürich \N{GRINNING FACE}".encode(), b"\xff\xfe\x00 x", b"x" * 10_000]
    lines += [b"word " * 2_000, b"\x1b[2J\x07\x00", b"/again now", b"/", b"<turn> <self> <pad>"]
    while len(lines) < 100:
        some = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 60)))
        lines.append(b"a" + some.replace(b"\n", b" ") + b"z")
    settings = ["length=5"] if name == "gpt" else []
    found = talk(made[name], *lines, settings=settings)
    assert len(found) == 100
    assert [row["turn"] for row in found] == [*range(1, 101)]
    for row in found:
        assert all(character.isprintable() for character in row["text"])
        assert len(row["text"]) <= chat.MOST
    assert all("\n" not in row["answer"] for row in found)


def test_memory_does_not_grow_with_the_conversation(made):
    from everynet.runs.folder import open_run
    from everynet.runs.predict import Predictor

    talker = chat.Chat(Predictor.of(open_run(made["dual-encoder"]), device="cpu"), {})
    long = "word " * 2000
    for _ in range(chat.KEPT):
        talker.answer(long)
    tracemalloc.start()
    for _ in range(30):
        talker.answer(long)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2**20


def start(run, *words):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", "everynet", "chat", run, *words, "--device", "cpu"]
    return subprocess.Popen(command, **pipes)


def test_a_process_answers_before_the_next_line_comes_and_minds_no_closed_pipe(made):
    with start(made["conversation"]) as process:
        try:
            for line in (b"hello\n", b"how are you ?\n"):
                process.stdin.write(line)
                process.stdin.flush()
                assert select.select([process.stdout], [], [], WAIT)[0], "no answer came"
                assert os.read(process.stdout.fileno(), 2**16).endswith(b"\n")
            process.stdout.close()
            process.stdin.write(b"and now ?\n")
            process.stdin.close()
            process.wait(WAIT)
        finally:
            process.kill()
        assert process.returncode == 141
        assert process.stderr.read() == b""


def test_ctrl_c_in_the_middle_of_an_answer_is_one_line(made):
    """From a pipe it ends the conversation; a keyboard goes on."""
    with start(made["gpt"], "length=10000000") as process:
        try:
            process.stdin.write(b"hello\n" * 50)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], WAIT)[0], "no answer came"
            process.send_signal(signal.SIGINT)
            process.stdin.close()
            process.wait(WAIT)
        finally:
            process.kill()
        assert process.returncode in (0, 130)  # 0 where it was through by then
        assert process.stderr.read() in (b"", b"everynet: stopped\n")


def test_an_answer_that_is_stopped_leaves_no_trace(made, monkeypatch, capsys):
    """At a keyboard: the line is forgotten, and the next has the numbers it would have had."""
    from everynet.cli import main

    class Keyboard(io.TextIOWrapper):
        def isatty(self):
            return True

    said = []
    for lines, stops in ((b"hello\nbye\n", 9), (b"hello\nwait\nbye\n", 2)):
        calls = []
        once = chat.Chat._go_on

        def stop(self, *given, calls=calls, stops=stops, once=once):
            calls.append(given)
            if len(calls) == stops:
                raise KeyboardInterrupt
            return once(self, *given)

        monkeypatch.setattr(chat.Chat, "_go_on", stop)
        monkeypatch.setattr(sys, "stdin", Keyboard(io.BytesIO(lines)))
        monkeypatch.setattr("everynet.cli.streams.Output.isatty", lambda self: True)
        assert main(["chat", made["conversation"], "temperature=1", "--device", "cpu"]) == 0
        monkeypatch.setattr(chat.Chat, "_go_on", once)
        out, error = capsys.readouterr()
        said.append([line for line in out.replace("> ", "").splitlines() if line])
        assert error == ("everynet: the answer is stopped, and the line forgotten\n" * (stops == 2))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("seq2seq", (), "(a run of seq2seq) must be one that talks, because lines are answered; "
         "name a run of dual-encoder, conversation or gpt"),
        ("conversation", ("beams=2",), "chat has no setting beams; did you mean beam"),
        ("conversation", ("beam=0",), "beam (0) must be 1"),
        ("conversation", ("seed=-1",), "seed (-1) must be at least 0 and below 2^63"),
        ("dual-encoder", ("replies=none.txt",), "none.txt"),
        ("dual-encoder", ("temperature=-1",), "temperature (-1.0) must be at least 0"),
        ("gpt", ("temperature=0",), "temperature (0.0) must be above 0"),
        ("gpt", ("length=0",), "length (0) must be at least 1"),
    ],
)  # fmt: skip
def test_what_it_refuses(refused, made, name, words, message):
    assert message in refused("chat", made[name], *words, "--device", "cpu")


def test_an_empty_file_of_replies_is_one_line(refused, made):
    for content, said in (("", "empty.txt is empty"), (" \n", "replies (empty.txt) must hold a")):
        Path("empty.txt").write_text(content)
        assert said in refused("chat", made["dual-encoder"], "replies=empty.txt", "--device", "cpu")


def test_the_verb_is_known(call, made):
    assert "chat" in complete("everynet c")
    assert "chat" in call("help", "chat")[1]
    assert "/forget" in call("help", "chat")[1]
    os.symlink(os.path.dirname(made["gpt"]), "runs")
    assert any("gpt" in word for word in complete("everynet chat "))
