"""One's own aligned files: looked over, learned from, asked about, and refused in one line."""

import json
from pathlib import Path

import pytest

from everynet.data.split import by_hash
from everynet.data.split import rows as number_keys
from everynet.runs.job import Job

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
    return rows


def test_from_two_files_to_answers(call, sentences):
    code, out, _ = call("data", "check", "a.en,a.de")
    assert code == 0, out
    assert out.startswith("a.en,a.de: pairs, translation\n")
    assert "source length median 5 words, longest 5" in out
    assert out.endswith("\ngood\n")
    words = ("data=a.en,a.de", "tokens=words", "steps=300", "batch_size=16", "lr=0.01",
             "hidden_size=48", "eval_every=150")  # fmt: skip
    code, out, error = call("run", "seq2seq", *words, "--device", "cpu", "--quiet")
    assert code == 0, error
    folder = out.strip()
    spec = json.loads((Path(folder) / "spec.json").read_text())["spec"]
    names = ",".join(str(Path(name).absolute()) for name in ("a.en", "a.de"))
    assert (spec["name"], spec["kind"]) == (names, "pairs")
    assert "Straße" in spec["target_tokens"]["vocabulary"]
    placed = zip(sentences, by_hash(number_keys(75)), strict=True)
    seen = [row for row, part in placed if part == "train"][::9]
    Path("lines.txt").write_text("".join(f"{english}\n" for english, _ in seen))
    code, out, error = call("predict", folder, "lines.txt", "--device", "cpu")
    assert code == 0, error
    found = [json.loads(line) for line in out.splitlines()]
    assert [row["input"] for row in found] == [f"lines.txt:{n + 1}" for n in range(len(seen))]
    assert [row["output"] for row in found] == [german for _, german in seen]
    assert all(row["log_probability"] < 0 for row in found)
    code, out, _ = call("predict", folder, "lines.txt", "longest=2", "--device", "cpu")
    assert {len(json.loads(line)["output"].split()) for line in out.splitlines()} == {2}


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
        "data (none.de) must be a file or a folder, but is not there"
    )
