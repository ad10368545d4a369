"""`everynet evaluate`: the figures of a run again, on labelled files, and what cannot judge it."""

import json
from pathlib import Path

import numpy as np
import pytest

import everynet
from everynet.runs import job
from everynet.system.errors import UserError


def rows(path, count=60, noise=0.0, target="y"):
    numbers = np.random.default_rng(count)
    x = numbers.normal(size=(count, 2))
    y = (x.sum(1) + noise * numbers.normal(size=count) > 0).astype(int)
    lines = [f"{a:.4f},{b:.4f},{['no', 'yes'][k]}" for (a, b), k in zip(x, y, strict=True)]
    Path(path).write_text("\n".join([f"a,b,{target}", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A perceptron of two columns and its file."""
    place = tmp_path_factory.mktemp("trained")
    recipe = everynet.recipe(
        "mlp",
        data=str(rows(place / "learned.csv")),
        target="y",
        hidden=(4,),
        steps=40,
        batch_size=8,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Job, "draw", lambda *_: ())  # nobody looks at its pictures
        return everynet.run(recipe, place / "runs", device="cpu")


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_the_test_split_is_judged_again_and_nothing_is_written(trained, call):
    before = contents(trained.folder)
    code, out, _ = call("evaluate", str(trained.folder), "--json")
    assert code == 0
    assert json.loads(out) == pytest.approx(trained.metrics, rel=1e-5)
    code, out, _ = call("evaluate", str(trained.folder))
    assert (code, out.splitlines()[0]) == (
        0,
        f"mlp evaluated on its own test split: {trained.folder.parents[1] / 'learned.csv'} "
        "(12 samples)",
    )
    assert contents(trained.folder) == before


def test_other_files_are_judged_as_the_run_reads_them(trained, call, tmp_path):
    path = rows(tmp_path / "other.csv", 25, noise=2.0)
    figures = everynet.evaluate(trained.folder, path)
    answers = [
        json.loads(line)["class"]
        for line in call("predict", str(trained.folder), str(path))[1].splitlines()
    ]
    right = [line.rpartition(",")[2] for line in path.read_text().splitlines()[1:]]
    assert figures["accuracy"] == pytest.approx(
        np.mean([a == r for a, r in zip(answers, right, strict=True)])
    )
    out = call("evaluate", str(trained.folder), f"data={path}")[1]
    assert out.startswith(f"mlp evaluated on {path} (25 samples)\n")
    assert "the share of samples" in out, "each figure says what it means"


def test_a_copy_of_what_was_learned_is_judged_by_its_test_split(trained, tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_bytes((trained.folder.parents[1] / "learned.csv").read_bytes())
    assert everynet.evaluate(trained.folder, copy) == pytest.approx(trained.metrics, rel=1e-5)
    few = tmp_path / "few.csv"
    few.write_text("a,b,label\n1,1,yes\n")
    assert everynet.evaluate(trained.folder, few, target="label")["majority"] == 1


def test_data_that_changed_since_is_no_test_split(trained, refused):
    path = trained.folder.parents[1] / "learned.csv"
    before = path.read_bytes()
    path.write_bytes(before + b"1,1,yes\n")
    try:
        assert "has changed since, so that its test split is another; give the files" in refused(
            "evaluate", str(trained.folder)
        )
    finally:
        path.write_bytes(before)


def test_what_cannot_judge_is_refused_in_one_line(trained, refused, tmp_path):
    run = str(trained.folder)
    bare = tmp_path / "bare.csv"
    bare.write_text("a,b\n1,2\n")
    assert "has no column y; did you mean " in refused("evaluate", run, f"data={bare}")
    assert "gone.csv) must be a file" in refused("evaluate", run, "data=gone.csv")
    assert "data (lenet) must be a known name or a path" in refused("evaluate", run, "data=lenet")
    assert "iris (samples of 4) must have the shape 2 of" in refused("evaluate", run, "data=iris")
    assert "must be a table" in refused("evaluate", run, "data=digits")
    assert "steps must stay as it was in the run: evaluate takes data and target" in refused(
        "evaluate", run, "steps=3"
    )
    assert "other.csv must be written data=other.csv" in refused("evaluate", run, "other.csv")
    assert "there is no run folder runs/none" in refused("evaluate", "runs/none")


def test_what_no_data_judges_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())
    simulated = everynet.run(everynet.recipe("gradient-descent").tiny(), tmp_path)
    with pytest.raises(UserError, match="is a simulation, which no data can test"):
        everynet.evaluate(simulated.folder)
