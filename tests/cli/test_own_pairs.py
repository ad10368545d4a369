"""One's own aligned files: looked over, learned from, asked about, and refused in one line."""

import json
from pathlib import Path

import pytest

from everynet.job import Job

COLOURS = {"red": "rot", "green": "grün", "blue": "blau", "white": "weiß", "black": "schwarz"}
THINGS = {"house": "Haus", "book": "Buch", "car": "Auto", "dress": "Kleid", "boat": "Boot"}
PLACES = {"here": "hier", "there": "dort", "outside": "draußen auf der Straße"}


@pytest.fixture
def sentences(monkeypatch):
    """Files of 75 sentences and their translations, whose lengths differ, and no pictures."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    rows = [
        (f"the {c} {t} is {p}", f"das {COLOURS[c]}e {THINGS[t]} ist {PLACES[p]}")
        for c in COLOURS
        for t in THINGS
        for p in PLACES
    ]
    for side, name in enumerate(("a.en", "a.de")):
        Path(name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    Path("lines.txt").write_text("the red book is outside\nthe blue car is nowhere\n")
    return rows


def test_from_two_files_to_answers(call, sentences):
    code, out, _ = call("data", "check", "a.en,a.de")
    assert code == 0, out
    assert out.startswith("a.en,a.de: pairs, translation\n")
    assert "source length median 5 words, longest 5" in out
    assert out.endswith("\ngood\n")
    words = ("data=a.en,a.de", "tokens=words", "steps=300", "batch_size=16", "hidden_size=32",
             "eval_every=150")  # fmt: skip
    code, out, error = call("run", "seq2seq", *words, "--device", "cpu", "--quiet")
    assert code == 0, error
    folder = out.strip()
    spec = json.loads((Path(folder) / "spec.json").read_text())["spec"]
    assert (spec["name"], spec["kind"]) == ("a.en,a.de", "pairs")
    assert "Straße" in spec["target_tokens"]["vocabulary"]
    code, out, error = call("predict", folder, "lines.txt", "--device", "cpu")
    assert code == 0, error
    found = [json.loads(line) for line in out.splitlines()]
    assert [row["input"] for row in found] == ["lines.txt:1", "lines.txt:2"]
    assert found[0]["output"] == "das rote Buch ist draußen auf der Straße"
    assert all(row["log_probability"] < 0 for row in found)
    code, out, _ = call("predict", folder, "lines.txt", "longest=2", "--device", "cpu")
    assert [len(json.loads(line)["output"].split()) for line in out.splitlines()] == [2, 2]


def test_files_of_different_length_are_one_line(call, refused, sentences):
    Path("short.de").write_text("".join(f"{german}\n" for _, german in sentences[:-1]))
    line = refused("run", "seq2seq", "data=a.en,short.de", "tokens=words", "--quiet")
    assert line == (
        "short.de (74 lines) must have as many lines as a.en (75), because line n of one belongs "
        "to line n of the other"
    )
    code, out, error = call("data", "check", "a.en,short.de")
    assert (code, error) == (2, "")
    assert f"refused    {line}\n" in out
    assert refused("run", "seq2seq", "data=a.en,none.de") == (
        "none.de must be a file, but is not there"
    )
