"""Looking at paths that nobody would learn from ends soon, and in one line."""

import os
import time

import pytest

from everynet.cli import main


def pipe(path):
    os.mkfifo(path)


def loop(path):
    path.symlink_to(path)


def within_itself(path):
    path.mkdir()
    (path / "again").symlink_to(path)
    (path / "above").symlink_to("..")


def pipes_below(path):
    for name in ("a/1.png", "b/2.png", "annotations/annotations.json", "images/1.jpg", "data.yaml"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path / name)
    for name in ("labels/1.txt", "Annotations/1.xml", "JPEGImages/1.jpg"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path / name)


def many(path):
    path.mkdir()
    for number in range(5000):
        (path / f"{number}.data").touch()


def deep(path):
    for _ in range(200):
        path = path / "d"
    path.mkdir(parents=True)


@pytest.mark.parametrize("make", [pipe, loop, within_itself, pipes_below, many, deep])
@pytest.mark.parametrize("name", ["x", "x.csv", "x.tsv", "x.jsonl", "x.txt", "x\ny"])
def test_a_look_ends_in_a_line(tmp_path, capsys, make, name):
    make(tmp_path / name)
    for words in (["list", f"data={tmp_path / name}"], ["data", "check", str(tmp_path / name)]):
        start = time.process_time()
        code = main(words)
        out, error = capsys.readouterr()
        assert time.process_time() - start < 20, "a second, on a machine that does nothing else"
        assert "Traceback" not in error
        if code:
            assert code == 2
            assert error.count("\n") == 1 or out.endswith("not good\n")
        if make in (pipe, loop):
            assert code == 2
            assert out == ""


def test_finding_recipes_opens_no_file_of_a_folder(tmp_path, monkeypatch):
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for number in range(50):
            (tmp_path / label / f"{number}.png").write_bytes(b"broken")
    monkeypatch.setattr("everynet.data.images.decode.probe", None)
    monkeypatch.setattr("pathlib.Path.open", None)
    monkeypatch.setattr("pathlib.Path.read_bytes", None)
    from everynet.data.loading import recognise

    assert recognise(str(tmp_path)).kinds == ["image"]
