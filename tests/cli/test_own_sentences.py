"""Sentences of one's own from files to answers, and everything that can be wrong with text."""

import json
from pathlib import Path

import pytest

from everynet.runs.job import Job

GOOD, BAD = ("fine", "lovely", "clever"), ("dull", "silly", "tired")
ROWS = [
    (label, f"the {thing} was {word}")
    for thing in ("film", "story", "song", "plot", "cast", "book", "play", "score")
    for label, words in (("good", GOOD), ("bad", BAD))
    for word in words
]
SMALL = ("steps=40", "batch_size=8", "embedding=8", "hidden_size=8", "lr=0.02")
LANES = ("steps=4", "batch_size=4", "window=16", "hidden_size=8")


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """Without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


@pytest.fixture
def mine():
    Path("mine.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in ROWS))
    Path("texts.txt").write_text("".join(f"{text}\n" for _, text in ROWS))
    Path("classes.txt").write_text("".join(f"{label}\n" for label, _ in ROWS))


@pytest.mark.covers("R14")
@pytest.mark.parametrize("data", ["mine.tsv", "texts.txt,classes.txt"])
def test_sentences_of_ones_own(call, refused, mine, data):
    code, _, error = call("run", "sentiment", f"data={data}", *SMALL, "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    for name in ("mine.tsv", "texts.txt", "classes.txt"):  # what follows needs the run alone
        Path(name).unlink()
    Path("lines.txt").write_text("the film was fine\nthe plot was silly\nbrand new words here\n")
    code, out, error = call("predict", str(folder), "lines.txt", "words=1")
    assert code == 0, error
    fine, silly, new = map(json.loads, out.splitlines())
    assert (fine["input"], fine["class"], silly["class"]) == ("lines.txt:1", "good", "bad")
    assert fine["probability"] > 0.5
    assert ([*fine["words"]], [*silly["words"]]) == (["fine"], ["silly"])
    assert (fine["unknown"], new["unknown"]) == (0, 4)

    for content, said in (
        (b"", "lines.txt is empty"),
        (b"the film\n\nthe plot\n", "lines.txt: line 2 is empty; fill it in or leave it out"),
        (b"the film\nB\xe4ume\n", "lines.txt: line 2 is not UTF-8 text; save it as UTF-8"),
        (b"the film\na\0b\n", "lines.txt must be text, but line 2 holds a byte of value 0"),
    ):
        Path("lines.txt").write_bytes(content)
        assert refused("predict", str(folder), "lines.txt") == said
    assert "none.txt" in refused("predict", str(folder), "none.txt")


def test_a_bag_of_ones_own(call, mine):
    code, _, error = call("run", "bag-of-words", "data=mine.tsv", "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    Path("lines.txt").write_text("the film was fine\nqqq\n")
    code, out, error = call("predict", str(folder), "lines.txt")
    assert code == 0, error
    fine, new = map(json.loads, out.splitlines())
    assert fine["class"] == "good"
    assert "fine" in " ".join(fine["words"])
    assert (new["words"], new["unknown"]) == ({}, 1)


# ------------------------------------------------------------------------------------------- bad


def nothing_is_left(*kept):
    """No run was begun, and what the user has is as it was."""
    assert not Path("runs").exists()
    for path, content in kept:
        assert Path(path).read_bytes() == content


def test_a_label_file_of_another_length(refused, mine):
    for count, lines in ((47, "good\n" * 47), (49, "good\nbad\n" * 24 + "good\n")):
        Path("classes.txt").write_text(lines)
        kept = [(name, Path(name).read_bytes()) for name in ("texts.txt", "classes.txt")]
        said = refused("run", "sentiment", "data=texts.txt,classes.txt", *SMALL)
        assert said == (
            f"classes.txt ({count} lines) must have as many lines as texts.txt (48), because "
            "line n of one belongs to line n of the other"
        )
        nothing_is_left(*kept)


TEXT = b"the cat sat on the mat and looked at the dog\n"
TEXTS = {
    "empty": (b"", "mine.txt is empty"),
    "a mark alone": (b"\xef\xbb\xbf", "mine.txt is empty"),
    "too short to divide": (
        TEXT * 4,
        "mine.txt must hold at least 200 characters, but holds 180: three parts are made of it; "
        "give more text",
    ),
    "binary": (
        TEXT * 10 + b"\x7fELF\0\1",
        "mine.txt must be text, but byte 454 in line 11 is NUL, as in a binary file; save it as "
        "UTF-8",
    ),
    "two encodings": (
        "Bäume und Wälder\n".encode() * 20 + "Bäume\n".encode("latin-1"),
        "mine.txt must be text in UTF-8, but byte 381 in line 21 (0xe4) is not; save it as UTF-8",
    ),
    "UTF-16": (
        ("\N{ZERO WIDTH NO-BREAK SPACE}" + TEXT.decode() * 9).encode("utf-16-le"),
        "mine.txt must be text, but byte 3 in line 1 is NUL, as in a binary file; save it as UTF-8",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_a_bad_text_is_answered_in_one_line(refused, case):
    content, message = TEXTS[case]
    Path("mine.txt").write_bytes(content)
    assert refused("run", "char-rnn", "data=mine.txt", *LANES) == message
    nothing_is_left(("mine.txt", content))


def test_a_text_shorter_than_a_batch_of_lanes(refused):
    content = TEXT * 10
    Path("mine.txt").write_bytes(content)
    said = refused("run", "char-rnn", "data=mine.txt", "batch_size=64", "window=64")
    assert said == (
        "batch_size (64) must be at most 5, because the training text has 365 tokens and each of "
        "its lanes needs 64; give more text, or a smaller batch_size or window"
    )
    nothing_is_left(("mine.txt", content))


def test_what_a_run_is_asked_with_an_unknown_character_or_no_prompt(call, refused):
    Path("mine.txt").write_bytes(TEXT * 40)
    code, _, error = call("run", "char-rnn", "data=mine.txt", *LANES, "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    asked = ("sample", str(folder), "--out", "made.txt")
    assert refused(*asked, "prompt=ü") == (
        "prompt (ü) must hold characters of the training text, and 'ü' is not one of them"
    )
    assert refused(*asked, "prompt=") == (
        "prompt () must hold at least one token, because a text begins with it"
    )
    assert not Path("made.txt").exists()
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before, "the run is as it was"
    Path("lines.txt").write_text("the ü mat\n")  # to be scored, a line may hold what is new
    code, out, error = call("predict", str(folder), "lines.txt")
    assert code == 0, error
    assert json.loads(out)["unknown"] == 1


def test_bad_sentences_begin_no_run(refused, mine):
    whole = Path("mine.tsv").read_bytes()
    for content, message in (
        (b"", "mine.tsv is empty"),
        (whole + b"good\tB\xe4ume\n", "mine.tsv: line 49 is not UTF-8 text; save it as UTF-8"),
        (whole + b"good\ta\0\n", "mine.tsv must be text, but line 49 holds a byte of value 0"),
        (whole + b"good\n", "mine.tsv: line 49 has 1 columns, but must have 2 with one tab"),
        (whole + b"good\t \n", "mine.tsv: line 49, column 2 is empty"),
    ):
        Path("mine.tsv").write_bytes(content)
        for recipe, more in (("sentiment", SMALL), ("bag-of-words", ())):
            assert refused("run", recipe, "data=mine.tsv", *more).startswith(message)
        nothing_is_left(("mine.tsv", content))
    Path("mine.tsv").write_bytes(whole)
    said = refused("run", "sentiment", "data=mine.tsv", "batch_size=1000")
    assert said.startswith("batch_size (1000) must be between 1 and the ")
