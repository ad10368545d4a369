"""A text of one's own from the file to samples: run, sample, predict and check, or one line."""

import json
import os
from pathlib import Path

import pytest

import everynet
from everynet.runs.job import Job

LINES = ("the cat sat on the mat", "a dog ran after the cat", 'and "why" said the mat')
SMALL = ("steps=12", "batch_size=4", "window=16", "hidden_size=16")


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """Without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("\n".join(LINES * 30) + "\n")
    return path


def test_a_text_of_ones_own(call, mine, tmp_path):
    code, out, error = call("run", "char-rnn", f"data={mine}", *SMALL, "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    spec = json.loads((folder / "spec.json").read_text())["spec"]
    assert (spec["name"], spec["kind"]) == (str(mine), "text")
    assert str(mine) in (folder / "card.md").read_text()

    mine.unlink()  # what follows needs the run alone
    words = ("prompt=the c", "temperature=0.5", "n=2", "length=40", "seed=3")
    code, out, error = call("sample", str(folder), *words, "--out", "made.txt")
    assert code == 0, error
    assert out.startswith("the c")
    assert out.endswith("made.txt\n")
    text = Path("made.txt").read_text()
    assert out == text.replace("\n\nthe c", "\nthe c") + "made.txt\n"
    assert len(text) == 2 * 45 + 3
    call("sample", str(folder), *words, "--out", "again.txt")
    assert Path("again.txt").read_text() == text

    Path("lines.txt").write_text(f"{LINES[0]}\n\nzzz! qqq\n")
    code, out, error = call("predict", str(folder), "lines.txt")
    assert code == 0, error
    known, new = map(json.loads, out.splitlines())
    assert (known["input"], new["input"]) == ("lines.txt:1", "lines.txt:3")
    assert 1 < known["perplexity"] < new["perplexity"]
    assert (known["unknown"], known["tokens"]) == (0, len(LINES[0]))
    assert new["unknown"] == 7  # z and ! and q


def test_a_text_on_standard_input(call, mine, monkeypatch):
    import io
    import sys

    call("run", "char-rnn", f"data={mine}", *SMALL, "--out", "runs")
    (folder,) = Path("runs").iterdir()

    class Given:
        buffer = io.BytesIO(b"the cat\nthe mat\n")

    monkeypatch.setattr(sys, "stdin", Given())
    code, out, error = call("predict", str(folder), "-")
    assert code == 0, error
    assert [json.loads(line)["input"] for line in out.splitlines()] == ["-:1", "-:2"]


def test_prompts_from_a_file(call, refused, mine):
    """Each line is continued as it is as a prompt; what predict refuses is refused."""
    call("run", "char-rnn", f"data={mine}", *SMALL, "--out", "runs")
    (folder,) = Path("runs").iterdir()
    run = ("sample", str(folder), "n=1", "length=20")
    Path("prompts.txt").write_text("the cat \n\na do\n")
    code, _, error = call(*run, "prompts=prompts.txt", "--out", "made.txt")
    assert (code, error) == (0, "")
    first, second = Path("made.txt").read_text().removesuffix("\n").split("\n\n")
    assert (first[:8], second[:4]) == ("the cat ", "a do")
    call(*run, "prompt=the cat ", "--out", "alone.txt")
    assert Path("alone.txt").read_text() == f"{first}\n"
    assert everynet.trained(folder).sample(n=1, length=20, prompts=["the cat "]) == [first]
    Path("bad.txt").write_text("the Zat\n")
    for name, said in {
        "none.txt": "prompts: none.txt must be a file, but is not there",
        "prompts.txt,": "prompts (prompts.txt,) must be files, with a comma between two",
        "bad.txt": "prompt (the \ufffdat) must hold characters of the training text, and ",
    }.items():
        assert refused(*run, f"prompts={name}").startswith(said)
    Path("bad.txt").write_text("the\n" * 257)
    assert refused(*run, "prompts=bad.txt") == (
        "prompts (257 inputs) must be at most 256, because they are read at once; give fewer"
    )
    assert "  prompts      " in call("show", "char-rnn")[1]


def test_what_a_sample_is_refused_for(call, refused, mine):
    call("run", "char-rnn", f"data={mine}", *SMALL, "--out", "runs")
    (folder,) = Path("runs").iterdir()
    run = ("sample", str(folder))
    assert "prompt () must hold at least one token" in refused(*run, "prompt=")
    assert "'Z' is not one of them" in refused(*run, "prompt=Zebra")
    assert "temperature (0.0) must be above 0" in refused(*run, "prompt=a", "temperature=0")
    assert "must end in .txt" in refused(*run, "prompt=the ", "--out", "a.png")
    assert "sample has no setting heat" in refused(*run, "heat=2")
    Path("bad.txt").write_bytes(b"fine\n\xff\n")
    said = refused("predict", str(folder), "bad.txt")
    assert said.startswith("bad.txt must be text in UTF-8, but byte 5 in line 2 (0xff) is not")


def test_the_report_of_a_text(call, mine):
    code, out, _ = call("data", "check", str(mine))
    assert code == 0
    assert out.splitlines()[0] == f"{mine}: text, language"
    assert "lines      90" in out
    assert "unknown are 0 of valid and 0 of test" in out
    assert out.endswith("good\n")


@pytest.mark.parametrize("name", ["mine.bin", "mine.txt"])
def test_a_binary_file_is_answered_in_one_line(call, refused, name):
    Path(name).write_bytes(b"MZ\x90\0\x03" + os.urandom(500))
    said = refused("run", "char-rnn", f"data=./{name}", *SMALL)
    assert said == (
        f"{name} must be text, but byte 3 in line 1 is NUL, as in a binary file; save it as UTF-8"
    )
    code, out, error = call("data", "check", f"./{name}", "kind=text")
    assert (code, error) == (2, "")
    assert f"refused    {said}" in out
    assert not Path("runs").exists()


def test_other_data_is_refused_by_what_it_looks_like(refused):
    Path("a.csv").write_text("a,b\n1,2\n")
    said = refused("run", "char-rnn", "data=a.csv", *SMALL)
    assert said == "data (a.csv) must be a text: one file in UTF-8; it looks like table data"
    assert "must be a file or a folder, but is not there" in refused(
        "run", "char-rnn", "data=none.txt"
    )


def test_a_text_in_byte_pairs(call, mine):
    words = ("tokens=bpe", "vocabulary=280", *SMALL)
    code, _, error = call("run", "char-rnn", f"data={mine}", *words, "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    spec = json.loads((folder / "spec.json").read_text())["spec"]
    assert (spec["tokens"]["kind"], spec["shape"]) == ("bpe", [280])
    assert len(spec["tokens"]["merges"]) == 280 - 257
    code, _, error = call("sample", str(folder), "prompt=é 中", "n=1", "length=9", "--out", "a.txt")
    assert code == 0, error
    assert Path("a.txt").read_text().startswith("é 中")
    Path("lines.txt").write_text(f"{LINES[0]}\nzzz! 中\n")
    code, out, error = call("predict", str(folder), "lines.txt")
    assert code == 0, error
    assert [json.loads(line)["unknown"] for line in out.splitlines()] == [0, 0]
