"""Paths are stored from the root, and a set that was moved is found by data= if it is the same."""

import json

import numpy as np
import pytest
import torch

import everynet
from everynet.cli import main
from everynet.data.paths import absolute
from everynet.recipes.settings import override
from everynet.runs import checkpoint
from everynet.runs.cell_job import CellJob
from everynet.runs.experiment_job import CellFailed
from everynet.runs.folder import resolve
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.manifest import put


@pytest.fixture(scope="module", autouse=True)
def unseen():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder with a table in it, which one is in."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write("a.csv")
    return tmp_path / "here"


def write(path, add=0):
    x = np.arange(60)
    rows = [f"{n % 7 + add},{n % 5},{'ab'[n % 2]}" for n in x]
    with open(path, "w") as file:
        file.write("\n".join(["u,v,w", *rows]) + "\n")


def small(data="a.csv", **fields):
    given = {"steps": 3, **fields, "batch_size": 16, "hidden": (4,), "schedule": "constant"}
    return everynet.recipe("mlp", data=data, target="w", **given)


def stored(folder):
    return json.loads((folder / "recipe.json").read_text())["settings"]


def weights(folder):
    return checkpoint.weights_in(folder, checkpoint.kept_weights(folder))


def test_a_run_is_gone_on_with_from_another_folder(here, monkeypatch):
    folder = everynet.run(small(), here / "runs", device="cpu").folder
    assert stored(folder)["data"] == str(here / "a.csv")
    monkeypatch.chdir(here.parent / "there")
    everynet.resume(folder, steps=6)
    whole = everynet.run(small(str(here / "a.csv"), steps=6), here / "runs", device="cpu").folder
    assert all(torch.equal(t, weights(whole)[n]) for n, t in weights(folder).items())


def test_known_names_stay_names_and_others_are_made_absolute(here):
    (here / "digits").mkdir()  # a known set comes first
    (here / "b").touch()
    (here / "c,d").touch()
    for name in ("", "digits", "strokes:200", "memory:00", "gone.csv", "a.csv,gone"):
        assert absolute(name) == name
    assert absolute("a.csv,b") == f"{here}/a.csv,{here}/b"
    assert absolute("c,d") == f"{here}/c,d"
    assert absolute(str(here / "b")) == str(here / "b")
    (here / "e,f").mkdir()
    assert absolute("e,f/../a.csv,b") == "e,f/../a.csv,b"  # too many commas to tell apart


def test_files_and_runs_that_settings_name_are_absolute_too(here):
    folder = everynet.run(small(), "runs", device="cpu").folder
    begun = resolve(override(small(), {"start": str(folder)}))
    assert begun.start.path == str(here / folder)
    style = resolve(override(everynet.recipe("style"), {"content": "a.png", "style": "b.png"}))
    assert (style.content, style.style) == (here / "a.png", here / "b.png")


def test_a_moved_set_is_found_by_data(here, capsys):
    folder = everynet.run(small(), here / "runs", device="cpu").folder
    (here / "a.csv").rename(here / "moved.csv")
    with pytest.raises(UserError, match=r"data \(.*a.csv\) must be a file or a folder, but is not"):
        everynet.resume(folder)
    everynet.resume(folder, data="moved.csv", steps=5)
    assert stored(folder)["data"] == str(here / "moved.csv")
    assert main(["draw", str(folder), "data=moved.csv"]) == 0
    (here / "moved.csv").rename(here / "again.csv")
    assert main(["resume", str(folder), "data=again.csv", "steps=6", "--quiet"]) == 0
    assert stored(folder)["data"] == str(here / "again.csv")
    assert stored(folder)["steps"] == 6
    (here / "again.csv").rename(here / "last.csv")
    capsys.readouterr()
    assert main(["predict", str(folder), "last.csv", "data=last.csv"]) == 0
    assert capsys.readouterr().out.count('"class"') == 60


@pytest.mark.parametrize("verb", ["resume", "draw", "predict"])
def test_another_set_is_refused_with_both_sums(here, verb, capsys):
    folder = everynet.run(small(), here / "runs", device="cpu").folder
    before = (folder / "recipe.json").read_bytes()
    write("other.csv", add=1)
    words = ["a.csv"] if verb == "predict" else []
    assert main([verb, str(folder), *words, "data=other.csv"]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    sums = {small(name).dataset().digest[:12] for name in ("a.csv", "other.csv")}
    assert len(sums) == 2
    assert all(f"{each}..." in error for each in sums)
    assert "name the set where it is with data=" in error
    assert (folder / "recipe.json").read_bytes() == before


def test_a_set_that_changed_is_not_drawn(here):
    folder = everynet.run(small(), here / "runs", device="cpu").folder
    write("a.csv", add=1)
    with pytest.raises(
        UserError, match=r"\(.*a.csv\) has changed since the run began: its SHA-256"
    ):
        everynet.draw(folder)


def test_draw_takes_nothing_else(here, capsys):
    for word in ("lr=3", "data=", "b"):
        assert main(["draw", "gone", word]) == 2
        line = f"everynet: {word} must be data=PATH: where the data of the run is now\n"
        assert capsys.readouterr().err == line


def test_an_experiment_whose_set_was_moved(here, monkeypatch):
    swept = everynet.recipes.sweep.sweep_of(small(), {"lr": "0.1,0.01"})

    def fail(*_):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(CellJob, "end", fail)
        with pytest.raises(CellFailed):
            everynet.run(swept, here / "runs", device="cpu")
    (folder,) = (here / "runs").iterdir()
    base = json.loads((folder / "recipe.json").read_text())["base"]["settings"]
    assert base["data"] == str(here / "a.csv")
    (here / "a.csv").rename(here / "moved.csv")
    everynet.resume(folder, data="moved.csv")  # with a cell that was begun
    everynet.draw(folder, data="moved.csv")
    write("moved.csv", add=1)
    with pytest.raises(UserError, match="has changed since the run began"):
        everynet.draw(folder, data="moved.csv")


def test_a_run_of_before_with_a_relative_path_goes_on(here):
    folder = everynet.run(small(), here / "runs", device="cpu").folder
    old = json.loads((folder / "recipe.json").read_text())
    old["settings"]["data"] = "a.csv"
    put(folder, {"recipe.json": json.dumps(old).encode()})
    assert everynet.resume(folder, steps=5).folder == folder


def test_what_is_wrong_is_said_of_the_path_as_it_was_written(here):
    (here / "bad.csv").write_text("u,w\n1,a\nx\n")
    for data, said in (("bad.csv", "bad.csv: line 3"), (str(here / "bad.csv"), f"{here}/bad.csv")):
        with pytest.raises(UserError, match=rf"^{said}"):
            everynet.run(small(data), here / "runs")
    assert not (here / "runs").exists()
