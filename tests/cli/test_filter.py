"""`everynet predict RUN -` of texts is a filter: each line is answered when it comes."""

import io
import json
import os
import select
import signal
import subprocess
import sys

import pytest

import everynet
from everynet.data import kinds
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs import predict
from everynet.runs.job import Job

WAIT = 60  # seconds, on a machine that is busy


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs without pictures: one of sentences, one of running text, one of whole files."""
    texts = tmp_path_factory.mktemp("texts")
    for name in ("good", "bad"):
        (texts / name).mkdir()
        for number in range(9):
            (texts / name / f"{number}.txt").write_text(f"a {name} film\nof {number} acts\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        out = tmp_path_factory.mktemp("runs")
        recipes = {
            "sentences": find("sentiment").tiny(),
            "running": find("ngram").tiny(),
            "files": override(find("bag-of-words"), {"data": str(texts)}),
        }
        return {name: str(everynet.run(one, out).folder) for name, one in recipes.items()}


def given(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def answers(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_process_answers_a_line_before_the_next_is_written(made):
    """And a bad line in its place; Ctrl-C ends it while it waits."""
    words = [sys.executable, "-m", "everynet", "predict", made["sentences"], "-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, **pipes, env=buffered) as process:
        try:
            for line in (b"a good film\n", b"\n", b"a bad one\n"):
                process.stdin.write(line)
                process.stdin.flush()
                assert select.select([process.stdout], [], [], WAIT)[0], "no answer came"
                answer = json.loads(os.read(process.stdout.fileno(), 2**16))
                assert ("class" in answer) == (line != b"\n")
            assert answer["input"] == "-:3"
            process.send_signal(signal.SIGINT)
            process.wait(WAIT)
        finally:
            process.kill()
        assert process.returncode == 130
        assert process.stderr.read() == b"everynet: stopped\n"


def test_lines_are_those_of_a_file(call, made, monkeypatch, tmp_path):
    """More than a batch of them, with the same answers to the last bit."""
    monkeypatch.setattr(predict, "AT_ONCE", 8)
    lines = [f"a film of {n} good and {n * n} bad acts" for n in range(20)]
    content = ("\r\n".join(lines)).encode()
    (tmp_path / "a.txt").write_bytes(content)
    batches = []
    predicted = predict.Predictor.predict_inputs
    monkeypatch.setattr(
        predict.Predictor,
        "predict_inputs",
        lambda self, some, *rest: batches.append(len(some)) or predicted(self, some, *rest),
    )
    _, of_file, _ = call("predict", made["sentences"], "a.txt")
    batches.clear()
    with (tmp_path / "a.txt").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        code, out, error = call("predict", made["sentences"], "-")
    assert (code, error) == (0, "")
    assert out.replace('"-:', '"a.txt:') == of_file
    assert batches == [8, 8, 4]


def test_bad_lines_are_answered_in_place(call, made, monkeypatch, tmp_path):
    content = b"a good film\n\ncaf\xe9\na bad one\n \nnul\0\nlast"
    given(monkeypatch, content)
    code, out, error = call("predict", made["sentences"], "-")
    found = answers(out)
    assert code == 2
    assert [row["input"] for row in found] == [f"-:{n}" for n in range(1, 8)]
    assert [n for n, row in enumerate(found, 1) if "class" in row] == [1, 4, 7]
    empty = "standard input: line 2 is empty; fill it in or leave it out"
    assert found[1] == {"input": "-:2", "error": empty}
    assert found[2]["error"] == "standard input: line 3 is not UTF-8 text; save it as UTF-8"
    assert found[5]["error"] == "standard input: line 6 must be text, but holds a byte of value 0"
    assert error == f"everynet: 4 of 7 inputs cannot be read; the first: {empty}\n"
    given(monkeypatch, content)
    code, out, _ = call("predict", made["sentences"], "-", "--out", "preds.jsonl")
    assert (code, out) == (2, "preds.jsonl\n")
    rows = answers((tmp_path / "preds.jsonl").read_text())
    assert [{k: v for k, v in row.items() if k not in ("row", "id")} for row in rows] == found


def test_a_bad_first_line_does_not_end_it_and_files_before_it_come_first(
    call, made, monkeypatch, tmp_path
):
    given(monkeypatch, b"\n")
    code, out, error = call("predict", made["sentences"], "-")
    assert (code, answers(out)[0]["input"]) == (2, "-:1")
    assert error.startswith("everynet: 1 of 1 inputs cannot be read; the first: standard input: l")
    given(monkeypatch, b"a film\n")
    code, out, _ = call("predict", made["sentences"], "none.txt", "-")
    assert (code, [row["input"] for row in answers(out)]) == (2, ["none.txt", "-:1"])
    (tmp_path / "a.txt").write_text("a film\n")
    given(monkeypatch, b"")
    code, out, _ = call("predict", made["sentences"], "a.txt", "-")
    assert (code, [row["input"] for row in answers(out)]) == (2, ["a.txt:1", "-"])


def test_files_before_it_are_answered_before_a_line_is_waited_for(made, monkeypatch, tmp_path):
    class Silent(io.BytesIO):
        def read1(self, size=-1):
            raise OSError("nothing comes")

    (tmp_path / "a.txt").write_text("a film\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Silent()))
    predictor, out = everynet.trained(made["sentences"])._predictor, predict.Out(None, "x")
    found = predictor.predict_files(["a.txt", "-"], {}, out)
    assert next(found)["input"] == "a.txt:1"
    with pytest.raises(OSError, match="nothing comes"):
        next(found)


def test_running_text_passes_over_empty_lines_as_in_a_file(call, refused, made, monkeypatch):
    given(monkeypatch, b"\xef\xbb\xbf\nthe king\n\n  \nthe queen\n")
    code, out, error = call("predict", made["running"], "-")
    assert (code, error) == (0, "")
    assert [row["input"] for row in answers(out)] == ["-:2", "-:5"]
    for content in (b"", b"\n \n"):
        given(monkeypatch, content)
        line = refused("predict", made["running"], "-")
        assert line == "standard input must hold a line that is not empty"
    monkeypatch.setattr(sys, "stdin", None)
    line = refused("predict", made["running"], "-")
    assert line == "- stands for standard input, which is closed; name a file, or open it"


def test_kinds_whose_inputs_are_lines():
    lines = [name for name in kinds.ORDER if kinds.named(name).reads_lines({"each": "line"})]
    assert lines == ["labelled", "pairs", "text", "lines"]


def test_where_files_were_learned_all_of_standard_input_is_one(call, made, monkeypatch):
    given(monkeypatch, b"a good film\nof 3 acts\n")
    code, out, error = call("predict", made["files"], "-")
    assert (code, error) == (0, "")
    assert [row["input"] for row in answers(out)] == ["-"]


def test_it_ends_when_nobody_reads_the_answers(call, made, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    source, sink = os.pipe()
    os.write(sink, b"a film\n")  # and more might come
    with os.fdopen(source) as lines, os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdin", lines)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", gone)
            code = everynet.cli.main(["predict", made["sentences"], "-"])
    os.close(sink)
    assert code == 141
