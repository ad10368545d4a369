"""Word vectors of one's own text, and questions to them: run and predict, or one line."""

import json
from pathlib import Path

import pytest

from everynet.runs.job import Job

SMALL = ("dimensions=6", "epochs=2", "min_count=2")


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """Without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


def test_vectors_of_a_text_of_ones_own(call, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("The king and the queen sat. A man and a woman ran after the cat!\n" * 60)
    code, _, error = call("run", "word2vec", f"data={mine}", *SMALL, "--out", "runs")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    assert str(mine) in (folder / "card.md").read_text()
    mine.unlink()  # what follows needs the run alone
    Path("asked.txt").write_text("king - man + woman\n\nlike: Queen\nlike: unicorn\nking man\n")
    code, out, error = call("predict", str(folder), "asked.txt", "n=3")
    assert code == 0, error
    answers = [json.loads(line) for line in out.splitlines()]
    assert [a["input"] for a in answers] == [f"asked.txt:{n}" for n in (1, 3, 4, 5)]
    assert [a["asked"] for a in answers][:2] == ["king - man + woman", "like: Queen"]
    for answer in answers[:2]:
        assert len(answer["nearest"]) == 3
        assert not {"king", "man", "woman"} & {w for w, _ in answers[0]["nearest"]}
    assert "word (unicorn) must be one of the" in answers[2]["refused"]
    assert "must read like 'like: queen' or 'king - man + woman'" in answers[3]["refused"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("word " * 300, "must hold at least 2 different words that occur min_count (2) times"),
        ("12 34 " * 300, "sentences must hold words, but there is none"),
        ("a few words", "must hold at least 200 words, but holds 3"),
    ],
)
def test_texts_that_are_refused(call, tmp_path, text, said):
    mine = tmp_path / "mine.txt"
    mine.write_text(text)
    code, out, error = call("run", "word2vec", f"data={mine}", *SMALL, "--out", "runs")
    assert (code, out) == (2, "")
    assert said in error
    assert error.count("\n") == 1
