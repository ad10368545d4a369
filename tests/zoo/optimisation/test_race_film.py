"""The film of the race: it moves, ends where every rule ended, and is made from a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from everynet.cli import main
from everynet.plot.film import Film
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Table
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.optimiser_race import COURSES, HOLD, NAMES
from everynet.zoo.optimisation.pictures.race import race_frames

RACE = replace(find("optimiser-race"), rates=(0.01,), steps=30, updates=1)
GENERATOR = torch.Generator()


@pytest.fixture(scope="module")
def table():
    return Table({}, RACE.race())


def heads(figure):
    """Where each rule is, in the order of their names."""
    dots = [line for line in figure.axes[0].lines if line.get_markersize() == 7]
    return [(line.get_xdata().item(), line.get_ydata().item()) for line in dots]


@pytest.mark.parametrize("course", COURSES)
def test_it_goes_from_the_start_to_the_end_of_every_path(table, course):
    ways = table.result["paths"][:, :, list(COURSES).index(course)]
    paths = dict(zip(NAMES.values(), ways, strict=True))
    first, last = race_frames(COURSES[course], paths, [0, 30])
    assert heads(first) == [COURSES[course].start] * len(NAMES)
    np.testing.assert_array_equal(heads(last), ways[:, -1])
    assert last.axes[0].get_title().endswith(": step 30")
    trails = [line for line in last.axes[0].lines if line.get_label() in NAMES.values()]
    assert [len(line.get_xdata()) for line in trails] == [31] * len(NAMES)


def test_the_film_moves_and_holds_its_end(table):
    film = RACE.sample(table, {}, GENERATOR, course="saddle", frames=3)
    assert len(film.frames) == 3 + HOLD
    assert (film.frames[0] != film.frames[1]).any()
    assert (film.frames[1] != film.frames[2]).any()
    ways = dict(zip(NAMES.values(), table.result["paths"][:, :, 2], strict=True))
    last = Film(race_frames(COURSES["saddle"], ways, [30]), 1).frames[0]
    for frame in film.frames[2:]:
        np.testing.assert_array_equal(frame, last)


def test_what_it_cannot_show_is_one_line(table):
    with pytest.raises(UserError, match="unknown course 'bent'; did you mean bend"):
        RACE.sample(table, {}, GENERATOR, course="bent")
    with pytest.raises(UserError, match=r"frames \(81\) must be from 2 to 80"):
        RACE.sample(table, {}, GENERATOR, frames=81)


def test_a_run_of_the_race_is_filmed_and_does_not_predict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("everynet.runs.job.Job.draw", lambda *_: ())
    folder = run(RACE, tmp_path / "runs").folder
    assert main(["sample", str(folder), "frames=2", "--out", "race.webp"]) == 0, capsys.readouterr()
    assert (tmp_path / "race.webp").read_bytes()[8:12] == b"WEBP"
    assert main(["predict", str(folder), "a.csv"]) == 2
    line = capsys.readouterr().err.strip()
    assert line == "everynet: optimiser-race does not predict: name a cell of it"
