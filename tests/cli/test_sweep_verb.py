"""`everynet sweep`: from words to a table, and on from a folder."""

import json
import re
from pathlib import Path

import pytest

from everynet.cli.completion import complete

MINE = Path(__file__).parent / "mine.py"
FLOWERS = f"{MINE}:flowers"


def test_a_sweep_prints_its_table_and_where_the_rest_is(call):
    code, out, error = call("sweep", FLOWERS, "lr=0.001,0.1", "steps=6", "--seeds", "2")
    assert code == 0, error
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("sweep-flowers-")
    lines = out.splitlines()
    assert lines[0].split() == ["lr", "valid", "cross_entropy", "test", "cross_entropy"]
    assert [line.split()[:2] for line in lines[1:3]] == [["1", "0.1"], ["2", "0.001"]]
    assert lines[3].startswith("Best first by cross_entropy on the validation split, the smaller")
    assert lines[4] == f"the best is in {folder}/cells/lr=0.1,seed=0"
    assert lines[5] == f"pictures: {folder}/pictures (settings.png)"
    assert len(lines) == 6
    assert error.startswith("sweep-flowers on cpu")
    assert {path.name for path in (folder / "cells").iterdir()} == {
        f"lr={lr},seed={seed}" for lr in ("0.1", "0.001") for seed in (0, 1)
    }
    again, said, _ = call("resume", str(folder), "--file", str(MINE), "--jobs", "2")
    assert (again, said) == (0, out)
    code, out, _ = call("draw", str(folder), "--file", str(MINE))
    assert (code, out) == (0, f"{folder}/pictures/settings.png\n")
    code, out, _ = call("runs")
    assert "sweep-flowers" in out
    assert " ended " in out


def test_one_json_object(call):
    code, out, error = call("sweep", FLOWERS, "lr=0.1,0.2", "steps=6", "--json", "--out", "here")
    assert (code, error) == (0, "")
    found = json.loads(out)
    assert Path(found["folder"]).parent == Path("here")
    assert {row["settings"]["lr"] for row in found["rows"]} == {0.1, 0.2}
    assert found["rows"][0]["valid"]["cross_entropy"]["std"] is None
    assert found["recipe"] == "flowers"


def test_quiet_prints_the_folder_alone(call):
    code, out, error = call("sweep", FLOWERS, "lr=0.1,0.2", "steps=2", "--quiet")
    assert (code, error) == (0, "")
    assert (Path(out.strip()) / "card.md").is_file()


def test_epochs_are_steps(call):
    """An epoch of iris has 108 rows, five whole batches of 20."""
    code, out, error = call("sweep", FLOWERS, "epochs=1,2", "batch_size=20", "--quiet")
    assert (code, error) == (0, "")
    names = {path.name for path in (Path(out.strip()) / "cells").iterdir()}
    assert names == {"steps=5,seed=0", "steps=10,seed=0"}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["nothing"], "nothing must be a setting written name=value, such as seed=1"),
        (["lrr=1,2"], "flowers has no setting lrr; did you mean lr, "),
        (["lr=1,2", "lr=3"], "lr is given twice; keep one of them"),
        (["lr=1,-2"], "lr (-2.0) must be a positive number"),
        (["lr=0.1"], "a sweep must have something to compare: give a setting several values"),
        (["data=iris,nowhere"], "cell data=nowhere,seed=0: "),
        (["epochs=1,2", "steps=3"], "epochs and steps must not both be given"),
        (["epochs=1,2", "batch_size=8,16"], "epochs (1,2) must be steps where batch_size is swept"),
        (["epochs=1,0"], "epochs (0) must be a positive number"),
        (["lr=1,2", "--seeds", "0"], "seeds (0) must be at least 1"),
        (["lr=1,2", "--jobs", "0"], "jobs (0) must be at least 1"),
        (["lr=1,2", "--random", "3"], "random (3) must be at most 2"),
    ],
)
def test_a_mistake_ends_in_one_line_and_leaves_no_folder(given, line, refused):
    assert refused("sweep", FLOWERS, *given).startswith(line)
    assert not [*Path().glob("runs/*")]


def test_a_fault_in_a_cell_names_it(refused):
    """Images, which the network is not made for."""
    line = refused("sweep", FLOWERS, "data=iris,digits", "--quiet")
    assert re.match(r"cell data=digits,seed=0: \S+mine.py line \d+: RuntimeError: mat1", line)


def test_what_cannot_be_swept(refused):
    line = refused("sweep", f"{MINE}:double", "value=1,2")
    assert line.startswith("double is a simulation and cannot be swept, because a sweep compares")
    line = refused("sweep", f"{MINE}:average", "seed=1,2")
    assert line.startswith("average is a fitting and cannot be swept")


def test_jobs_are_refused_where_there_are_no_cells(refused):
    line = refused("run", FLOWERS, "--jobs", "2")
    assert line.startswith("jobs (2) must be 1, because flowers is a training, which has no cells")


def test_words_are_completed():
    assert "mlp" in complete("everynet sweep ml")
    assert "lr=" in complete("everynet sweep mlp l")
    assert complete("everynet sweep mlp lr=1,2 --ha") == ["--halving"]


def test_what_varies_and_what_is_fixed_is_said_first(call):
    code, out, error = call("sweep", FLOWERS, "lr=0.1,0.2", "steps=2", "metric=cross_entropy")
    assert code == 0, error
    first, *lines = error.splitlines()
    assert first.startswith("sweep-flowers on cpu")
    assert lines[:3] == [
        "sweep of flowers: 2 combinations",
        "varies: lr=0.1,0.2",
        "fixed: steps=2; metric=cross_entropy; all else as in flowers",
    ]
    assert "Best first by cross_entropy on the validation split, the smaller" in out


def test_a_comma_between_units_is_refused_because_it_means_two_things(refused):
    line = refused("sweep", "mlp", "hidden=4,16", "lr=0.1,0.2")
    assert line.startswith(
        "hidden (4,16) must have parentheses in a sweep, because it can be read in two ways: write "
        "hidden=(4,16) for one value, or hidden=(4),(16) for each by itself"
    )
    assert refused("sweep", "mlp", "lr=0.1,0.2", "metric=acuracy").endswith(
        "did you mean accuracy, auc or balanced_accuracy?"
    )
    line = refused("sweep", "mlp", "data=iris", "lr=0.1,0.2", "metric=rmse")
    assert "metric (rmse) must be one that mlp measures on this data: loss, accuracy, " in line
    assert not [*Path().glob("runs/*")]
