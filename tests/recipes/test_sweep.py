"""Sweeps: what is combined, how it is judged, and who goes on."""

import io
import json
import math
import shutil
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pandas
import pytest
import torch

import everynet
from everynet import runs
from everynet.cli.sweep import report
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Cell, Table
from everynet.recipes.stored import of_run
from everynet.recipes.sweep import Sweep, as_text, split, sweep_of, values_of
from everynet.recipes.training import Training
from everynet.runs import job
from everynet.runs.cell_job import read_cell
from everynet.runs.cell_table import CellTable
from everynet.system.errors import UserError
from tests.runs import laws
from tests.runs.laws import Law, Steep
from tests.runs.recipes import RECIPES, Small
from tests.runs.sealed import reseal
from tests.runs.test_experiment_job import kill_at
from tests.test_contract import Killed, same, table_values
from tests.zoo.cells import cell as made_cell

FILE = Path(laws.__file__)
STEEP = Steep(name="steep")


@dataclass(frozen=True, kw_only=True)
class Typed(Small):
    """A setting of each type."""

    widths: tuple[int, ...] = (3,)
    bias: bool = True
    text: str = ""
    place: Path = Path()


TYPED = Typed(name="typed")


# ------------------------------------------------------------------------------ what is combined


@pytest.mark.parametrize(("key", "text", "values"), [
    ("lr", "0.1,1e-3, 2", [0.1, 1e-3, 2.0]),
    ("steps", "3,5", [3, 5]),
    ("bias", "true,false", [True, False]),
    ("optimizer", "sgd,adam", ["sgd", "adam"]),
    ("widths", "(16,32),(32,64)", [(16, 32), (32, 64)]),
    ("widths", "(16,),(),64", [(16,), (), (64,)]),
    ("widths", "(16,32)", [(16, 32)]),
    ("widths", "16", [(16,)]),
    ("text", "(a.en,a.de),b", ["a.en,a.de", "b"]),
    ("place", "a,b/c", [Path("a"), Path("b/c")]),
])  # fmt: skip
def test_values_have_the_type_of_their_setting(key, text, values):
    found = values_of(TYPED, key, text)
    assert found == values
    assert [*map(type, found)] == [*map(type, values)]


def test_commas_in_parentheses_do_not_part():
    assert split("x", "a,(b,(c,d)),e") == ["a", "(b,(c,d))", "e"]
    assert split("x", "") == [""]


def test_every_combination_with_every_seed_in_order():
    sweep = sweep_of(TYPED, {"lr": "0.1,0.2", "steps": "4", "bias": "true,false", "seed": "5"},
                     seeds=2)  # fmt: skip
    cells = sweep.cells()
    assert [*cells] == [
        f"lr={lr},bias={bias},seed={seed}"
        for lr in ("0.1", "0.2") for bias in ("true", "false") for seed in (5, 6)
    ]  # fmt: skip
    assert [(c.lr, c.bias, c.seed) for c in cells.values()] == [
        (lr, bias, seed) for lr in (0.1, 0.2) for bias in (True, False) for seed in (5, 6)
    ]
    assert {(c.steps, c.name, c.goal) for c in cells.values()} == {(4, "typed", TYPED.goal)}
    assert sweep.name == "sweep-typed"


def test_names_of_cells_are_plain_or_numbers():
    assert [*sweep_of(TYPED, {"widths": "(1,2),3"}).cells()] == ["widths=1x2,seed=0",
                                                                "widths=3,seed=0"]  # fmt: skip
    numbered = ["combination-0,seed=0", "combination-1,seed=0"]
    assert [*sweep_of(TYPED, {"text": "a b,../c"}).cells()] == numbered
    assert [*sweep_of(TYPED, {"text": "a,A"}).cells()] == numbered
    assert [*sweep_of(TYPED, {"text": f"{'a' * 115},b"}).cells()] == numbered
    assert [*sweep_of(TYPED, {}, seeds=2).cells()] == ["seed=0", "seed=1"]


def test_some_are_drawn_by_the_seed_without_repeating():
    given = {"lr": ",".join(map(str, range(1, 11))), "steps": "1,2,3"}
    sweeps = [sweep_of(TYPED, {**given, "seed": str(seed)}, random=7) for seed in (0, 0, 1)]
    drawn = [[(one.recipe.lr, one.recipe.steps) for one in s.combinations] for s in sweeps]
    assert drawn[0] == drawn[1] != drawn[2]
    for some in drawn:
        assert len({*some}) == 7
        assert some == sorted(some)  # in the order of their values
    every = {(one.recipe.lr, one.recipe.steps) for one in sweep_of(TYPED, given, random=30)
             .combinations}  # fmt: skip
    assert len(every) == 30


@pytest.mark.parametrize(("given", "options", "words"), [
    ({"lrr": "1,2"}, {}, "typed has no setting lrr; did you mean lr, "),
    ({"lr": "1,x"}, {}, r"lr \(x\) must be a number"),
    ({"lr": "1,,2"}, {}, r"lr \(\) must be a number"),
    ({"lr": "1,-2"}, {}, r"lr \(-2.0\) must be a positive number"),
    ({"widths": "(1,2"}, {}, r"widths \(\(1,2\) must have a \) for every \("),
    ({"widths": "1),(2"}, {}, r"widths \(1\),\(2\) must have a \) for every \("),
    ({"lr": "0.1,0.10"}, {}, r"lr \(0.1,0.10\) must have each value once: 0.1 is twice"),
    ({"seed": "1,2"}, {}, r"seed \(1,2\) must be one number, the first seed; say .* --seeds"),
    ({"lr": "1"}, {}, r"must have something to compare: give a setting several values"),
    ({"lr": "1,2"}, {"seeds": 0}, r"seeds \(0\) must be at least 1"),
    ({"lr": "1,2", "seed": str(2**63 - 1)}, {"seeds": 2}, r"seeds \(2\) must be fewer: a seed is"),
    ({"lr": "1,2"}, {"random": 3}, r"random \(3\) must be at most 2, as many combinations as"),
    ({"lr": "1,2"}, {"random": -1}, r"random \(-1\) must be at least 0"),
    ({"lr": "1,2"}, {"seeds": 5001}, r"must have 10,000 cells or fewer, and these are 10,002; "),
    ({"steps": "4,8"}, {"halving": True}, r"steps must have one value with halving"),
    ({"widths": "16,32", "lr": "1,2"}, {}, r"widths \(16,32\) must have parentheses in a sweep, "
     r"because .* write widths=\(16,32\) for one value, or widths=\(16\),\(32\) for each by"),
    ({"widths": [(1,), (1,)]}, {}, r"widths \(\(1\),\(1\)\) must have each value once: 1 is twice"),
    ({"lr": []}, {}, r"lr \(\[\]\) must have a value"),
    ({"lr": [0.1, "x"]}, {}, r"lr \(x\) must be a number"),
    ({"metric": "loss,bits"}, {}, "metric must have one value in a sweep, whose cells are compare"),
])  # fmt: skip
def test_what_is_refused(given, options, words, tmp_path):
    with pytest.raises(UserError, match=words):
        runs.run(sweep_of(TYPED, given, **options), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def test_too_many_to_draw_from():
    many = ",".join(map(str, range(1, 1002)))
    with pytest.raises(
        UserError, match=r"random \(9\) must draw from 1,000,000 .* 1,002,001; give"
    ):
        sweep_of(TYPED, {"steps": many, "batch_size": many}, random=9)


def test_other_kinds_are_refused():
    with pytest.raises(
        UserError, match="law is an experiment and cannot be swept, because a sweep"
    ):
        sweep_of(Law(name="law"), {"steps": "1,2"})


def test_a_mistake_of_one_combination_leaves_no_folder(tmp_path):
    """Each is built on its data before the first is trained."""

    class Narrow(Typed):
        def model(self, data):
            if self.widths == (2,):
                raise UserError("widths (2) must be 4 or more")
            return super().model(data)

    sweep = sweep_of(Narrow(name="narrow"), {"widths": "(4),(2)"})
    with pytest.raises(UserError, match=r"cell widths=2,seed=0: widths \(2\) must be 4 or more"):
        runs.run(sweep, tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


# ---------------------------------------------------------------------------------- what decides


def test_a_recipe_without_a_goal_is_judged_by_its_objective(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Two(Steep):
        goal: str = ""

        def objective(self, model, batch):
            terms = super().objective(model, batch)
            return {**terms, "more": terms["cross_entropy"] * 2, "_seen": torch.tensor(100.0)}

    sweep = sweep_of(Two(name="two"), {"lr": "0.01,0.2"})
    table = runs.load(sweep, runs.run(sweep, tmp_path, device="cpu").folder)
    rows = sweep.rows(table)
    assert rows[0].settings == {"lr": 0.2}
    cell = rows[0].cells[0]
    monitor = sweep.monitor([cell])
    assert monitor.metric == "objective"
    assert sweep.value(cell, monitor) == pytest.approx(3 * cell.last["cross_entropy"])
    assert rows[0].score.merit == -sweep.value(cell, monitor)

    class Silent(Two):
        def metrics(self, model, batch):
            return {"other": torch.zeros(())}

    with pytest.raises(UserError, match="silent must have a goal to be swept, because its metrics"):
        sweep_of(Silent(name="silent"), {"lr": "1,2"})


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    sweep = sweep_of(STEEP, {"lr": "0.01,1e30,0.2,0.05"}, seeds=3)
    result = runs.run(sweep, tmp_path_factory.mktemp("swept"), device="cpu")
    return sweep, result, runs.load(sweep, result.folder)


def test_best_first_and_what_diverged_last(swept):
    sweep, result, table = swept
    rows = sweep.rows(table)
    assert [row.settings["lr"] for row in rows] == [0.2, 0.05, 0.01, 1e30]
    assert [row.diverged for row in rows] == [0, 0, 0, 3]
    assert rows[3].score.merit == -math.inf
    best = statistics.fmean(c.last["cross_entropy"] for c in rows[0].cells)
    assert rows[0].score.merit == -best
    assert result.metrics == {"best_cross_entropy": best, "diverged": 3.0}
    assert result.reached is None


def test_fewer_diverged_come_first(swept):
    """One seed of the best explodes: the next is taken before it."""
    sweep, _, table = swept
    (first, *_), broken = sweep.rows(table), {}
    broken = {**table.cells, first.names[1]: replace(first.cells[1], diverged=3)}
    rows = sweep.rows(replace(table, cells=broken))
    assert [row.settings["lr"] for row in rows] == [0.05, 0.01, 0.2, 1e30]
    assert rows[2].diverged == 1
    assert math.isfinite(rows[2].score.merit)


def test_all_may_diverge(tmp_path):
    sweep = sweep_of(STEEP, {"lr": "1e30,1e31"})
    result = runs.run(sweep, tmp_path, device="cpu")
    assert result.metrics == {"diverged": 2.0}
    assert [*report(sweep, result)][-1].startswith("pictures: ")
    assert "the best is in" not in "".join(report(sweep, result))


def test_tuples_are_lists_in_json(tmp_path):
    sweep = sweep_of(TYPED, {"widths": "(1,2),3", "steps": "1"})
    table = runs.load(sweep, runs.run(sweep, tmp_path, device="cpu").folder)
    rows = json.loads(json.dumps(sweep.json(table)))["rows"]
    assert sorted(row["settings"]["widths"] for row in rows) == [[1, 2], [3]]


def test_a_sweep_is_not_judged_on_the_test_split(tmp_path, swept):
    class Poisoned(Steep):
        def dataset(self):
            data = super().dataset()
            x, y = data.splits["test"]
            return replace(data, splits={**data.splits, "test": (x * (1 / self.lr), 1 - y)})

    sweep = sweep_of(Poisoned(name="poisoned"), {"lr": "0.01,0.2,0.05"}, seeds=3)
    rows = sweep.rows(runs.load(sweep, runs.run(sweep, tmp_path, device="cpu").folder))
    clean = swept[0].rows(swept[2])
    assert [row.settings["lr"] for row in rows] == [row.settings["lr"] for row in clean[:3]]
    assert [row.score for row in rows] == [row.score for row in clean[:3]]
    assert rows[0].test() != clean[0].test()


@pytest.mark.covers("D3")
def test_a_random_half_finds_a_rate_within_twice_the_best(tmp_path):
    """Of rates that double; the cells drawn are those of the whole grid, trained once here."""
    rates = [2.0**n for n in range(-5, 4)]
    grid, half = (sweep_of(STEEP, {"lr": rates, "seed": "1"}, random=n) for n in (0, 4))
    table = runs.load(grid, runs.run(grid, tmp_path, device="cpu").folder)
    assert len(half.cells()) == 4
    assert half.cells().items() <= grid.cells().items()
    best, drawn = (sweep.rows(table)[0].settings["lr"] for sweep in (grid, half))
    assert rates[1] < best < rates[-2]
    assert best / 2 <= drawn <= 2 * best


def test_the_table_has_mean_and_spread_of_valid_and_test(swept):
    sweep, result, table = swept
    heading, *lines = sweep.table(table)
    assert heading == ["", "lr", "valid cross_entropy", "test cross_entropy", "diverged"]
    best = sweep.rows(table)[0]
    valid = [cell.last["cross_entropy"] for cell in best.cells]
    test = [cell.test["cross_entropy"] for cell in best.cells]
    spread = [f"{statistics.fmean(v):.4g} ± {statistics.stdev(v):.2g}" for v in (valid, test)]
    assert lines[0] == ["1", "0.2", *spread, "0 of 3"]
    assert lines[3] == ["4", "1e+30", "-", "-", "3 of 3"]
    page = (result.folder / "card.md").read_text()
    assert "| " + " | ".join(lines[0]) + " |" in page
    assert (
        "by cross_entropy on the validation split, the smaller the better; metrics on the" in page
    )
    assert "for information and had no say" in page
    assert f"{FILE}:steep lr=0.01,1e30,0.2,0.05 --seeds 3`" in page
    assert "![The monitored metric" in page
    plain = sweep.json(table)
    assert plain["monitor"] == {"metric": "cross_entropy", "relation": "<=", "split": "valid"}
    assert plain["rows"][0] == {
        "settings": {"lr": 0.2}, "steps": 12, "diverged": 0, "seeds": [0, 1, 2],
        "valid": {"cross_entropy": {"mean": statistics.fmean(valid),
                                    "std": statistics.stdev(valid), "values": valid}},
        "test": {"cross_entropy": {"mean": statistics.fmean(test),
                                   "std": statistics.stdev(test), "values": test}},
    }  # fmt: skip
    assert plain["rows"][3]["valid"] == {}


def test_a_cell_is_what_its_run_with_the_last_weights_would_be(swept, tmp_path):
    _, _, table = swept
    cell = table.cells["lr=0.2,seed=1"]
    alone = runs.run(replace(cell.recipe, goal=""), tmp_path, device="cpu")
    assert alone.metrics == cell.test
    assert cell.recipe.changed == ("lr",)


# ---------------------------------------------------------------------------------------- halving


@pytest.fixture(scope="module")
def halved(tmp_path_factory):
    given = {"lr": "0.001,0.2,0.01,0.1,0.02", "steps": "16", "schedule": "cosine"}
    sweep = sweep_of(STEEP, given, seeds=2, halving=True)
    result = runs.run(sweep, tmp_path_factory.mktemp("halved"), device="cpu")
    return sweep, runs.load(sweep, result.folder)


def at(cell, step):
    return float(cell.valid["cross_entropy"][cell.steps.tolist().index(step)])


def test_the_better_half_goes_on_for_twice_as_many_steps(halved):
    sweep, table = halved
    assert sweep.rungs() == [2, 4, 8, 16]
    reached = [{name: cell.step for name, cell in table.cells.items()}[f"lr={lr},seed={seed}"]
               for lr in ("0.001", "0.2", "0.01", "0.1", "0.02") for seed in (0, 1)]  # fmt: skip
    assert sorted(reached) == [2, 2, 2, 2, 4, 4, 8, 8, 16, 16]
    assert reached[::2] == reached[1::2]  # both seeds
    going = [*sweep.combinations]
    for step in sweep.rungs()[:-1]:
        looks = {one.name: [table.cells[n] for n in sweep.names(one).values()] for one in going}
        mean = {name: statistics.fmean(at(cell, step) for cell in c) for name, c in looks.items()}
        kept = sorted(mean, key=mean.get)[: math.ceil(len(going) / 2)]
        for one in going:
            assert (looks[one.name][0].step > step) == (one.name in kept)
        going = [one for one in going if one.name in kept]


def test_halving_decides_by_the_look_at_its_rung_whatever_comes_later():
    """The first is better at step 2 and worse at 4; the third diverges at 3, and was best."""
    sweep = sweep_of(STEEP, {"lr": "0.1,0.2,0.3", "steps": "8"}, halving=True)
    values = {"0.1": [1.0, 9.0], "0.2": [2.0, 1.0], "0.3": [0.5, 0.5]}
    ended = {
        f"lr={lr},seed=0": made_cell(
            steps=(2, 4), valid={"cross_entropy": v}, diverged=3 if lr == "0.3" else None
        )
        for lr, v in values.items()
    }
    first, _, third = ended.values()
    monitor = sweep.monitor(ended.values())

    def merits(cell):
        return [sweep.score(cell, monitor, step).merit for step in (2, 4, None)]

    assert merits(first) == [-1, -9, -9]
    assert merits(third) == [-0.5, -math.inf, -math.inf]
    assert sweep.rungs() == [2, 4, 8]
    wanted = sweep.wanted(sweep.cells(), ended)
    assert [*wanted.values()] == [8, 2, 4], "of two at step 4 the one that diverged is out"


def test_a_schedule_stays_that_of_the_full_steps(halved, tmp_path):
    """A cell is stopped early, not shortened: on its way it is the cell of a whole sweep."""
    sweep, table = halved
    full = replace(sweep, halving=False)
    whole = runs.load(full, runs.run(full, tmp_path, device="cpu").folder)
    for name, cell in table.cells.items():
        _, values = cell.terms["cross_entropy"]
        assert values.tolist() == whole.cells[name].terms["cross_entropy"][1][: cell.step].tolist()


def test_only_who_went_to_the_end_is_tested_and_comes_first(halved):
    sweep, table = halved
    rows = sweep.rows(table)
    assert [row.step for row in rows] == [16, 8, 4, 2, 2]
    assert [bool(row.test()) for row in rows] == [True, False, False, False, False]
    heading, *lines = sweep.table(table)
    assert heading[2] == "steps"
    assert [line[2] for line in lines] == ["16", "8", "4", "2", "2"]
    assert lines[1][4] == "-"


def test_who_went_further_comes_before_who_was_better_when_stopped(halved):
    sweep, table = halved
    last = sweep.rows(table)[-1]
    lucky = [replace(c, valid={n: v * 0 for n, v in c.valid.items()}) for c in last.cells]
    changed = {**table.cells, **dict(zip(last.names, lucky, strict=True))}
    rows = sweep.rows(replace(table, cells=changed))
    assert [row.step for row in rows] == [16, 8, 4, 2, 2]
    assert rows[3].settings == last.settings


def test_a_cell_on_its_way_is_seen_as_it_last_ended(tmp_path, monkeypatch):
    """It was to go from 6 updates to 12 and was killed after 9, of which all are saved."""
    sweep = sweep_of(STEEP, {"lr": "0.1,0.2", "save_every": "1"}, halving=True)
    kill_at(monkeypatch, "0.2-0", 9)
    with pytest.raises(Killed):
        runs.run(sweep, tmp_path, device="cpu")
    (folder,) = tmp_path.iterdir()
    name = "lr=0.2,seed=0"
    assert [path.name for path in (folder / "cells" / name / "checkpoints").iterdir()] == ["9"]
    cell = read_cell(folder, name, sweep.cells()[name])
    assert (cell.step, cell.steps.tolist()) == (6, [0, 4, 6])
    assert len(cell.valid["cross_entropy"]) == 3
    assert cell.terms["cross_entropy"][0].tolist() == [*range(1, 7)]


def test_ties_go_by_order_and_diverged_cells_go_no_further(tmp_path):
    class Flat(Steep):
        def metrics(self, model, batch):
            return {"cross_entropy": torch.ones(len(batch[0]))}

    sweep = sweep_of(Flat(name="flat"), {"lr": "1e30,0.3,0.2,0.1"}, halving=True)
    table = runs.load(sweep, runs.run(sweep, tmp_path, device="cpu").folder)
    assert sweep.rungs() == [3, 6, 12]
    assert [cell.step for cell in table.cells.values()] == [2, 12, 6, 3]
    assert [cell.diverged for cell in table.cells.values()] == [2, None, None, None]


@pytest.mark.parametrize("kill", [("0.1-1", 1), ("0.2-0", 3), ("0.2-1", 13)])
def test_halving_that_was_killed_ends_with_the_same_table(kill, halved, tmp_path, monkeypatch):
    sweep, table = halved
    kill_at(monkeypatch, *kill)
    with pytest.raises(Killed):
        runs.run(sweep, tmp_path, device="cpu")
    (folder,) = tmp_path.iterdir()
    runs.resume(of_run(folder, FILE), folder)
    same(table_values(table), table_values(runs.load(sweep, folder)))


# -------------------------------------------------------------------------------- back and forth


def test_a_folder_gives_the_sweep_back(swept):
    sweep, result, _ = swept
    found = of_run(result.folder, FILE)
    assert isinstance(found, Sweep)
    assert (found.grid, found.seeds, found.seed) == (sweep.grid, 3, 0)
    assert found.base.name == "steep"
    assert [*found.cells()] == [*sweep.cells()]
    with pytest.raises(UserError, match=r"was made by .*laws.py, which is not in the zoo"):
        of_run(result.folder)


@pytest.mark.parametrize(("change", "words"), [
    ({"base": 3}, "is damaged: name must be a str in it"),
    ({"base": {}}, "is damaged: name must be a str in it"),
])  # fmt: skip
def test_a_folder_that_was_changed(change, words, swept, tmp_path):
    shutil.copytree(swept[1].folder, tmp_path / "copy")
    path = tmp_path / "copy" / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    reseal(path.parent)
    with pytest.raises(UserError, match=words):
        of_run(path.parent, FILE)
    stored = json.loads((swept[1].folder / "recipe.json").read_text())
    law = {**stored["base"], "class": "Law", "name": "law",
           "settings": {"seed": 0, "rates": [1], "steps": 1, "every": 0}}  # fmt: skip
    path.write_text(json.dumps({**stored, "base": law}))
    reseal(path.parent)
    with pytest.raises(UserError, match="is damaged: law is no training, which alone is swept"):
        of_run(path.parent, FILE)


def test_from_python(tmp_path):
    """The same sweep as the command line makes; a recipe may be given with settings of its own."""
    short = replace(STEEP, steps=3, changed=("steps",))
    given = {"lr": [0.1, 0.2], "clip": 1.0, "optimizer": ["sgd", "adam"]}
    result = everynet.sweep(short, seeds=2, out=tmp_path, device="cpu", **given)
    sweep = of_run(result.folder, FILE)
    assert sweep.grid == ("lr=0.1,0.2", "optimizer=sgd,adam")
    assert (sweep.base.steps, sweep.base.clip) == (3, 1.0)
    assert len(sweep.cells()) == 8
    words = "everynet sweep x lr=0.1,0.2 optimizer=sgd,adam steps=3 clip=1.0 --seeds 2"
    assert " ".join(sweep.command("x")) == words


def test_values_from_python_are_written_as_on_the_command_line():
    for values in ([(16, 32), (64,)], ["a,b", "c"], [0.1, 1e-30], [True, False], [Path("x")]):
        key = {"tuple": "widths", "str": "text", "float": "lr", "bool": "bias"}.get(
            type(values[0]).__name__, "place"
        )
        assert values_of(TYPED, key, as_text(values)) == values


def test_tuples_from_python_are_networks_of_their_own(tmp_path, monkeypatch):
    """Two networks of one layer were one of two layers once."""
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())
    mlp = replace(find("mlp"), steps=2, passes=0, data="iris")
    result = everynet.sweep(mlp, hidden=[(4,), (16,)], out=tmp_path, device="cpu")
    cells = everynet.load(result.folder).cells
    sizes = {name: next(iter(cell.network().parameters())).shape for name, cell in cells.items()}
    assert sizes == {"hidden=4,seed=0": (4, 4), "hidden=16,seed=0": (16, 4)}
    assert of_run(result.folder).values == {"hidden": [(4,), (16,)]}
    one = sweep_of(mlp, {"hidden": [(4, 16)], "lr": [0.1, 0.2]})
    assert (one.base.hidden, one.values) == ((4, 16), {"lr": [0.1, 0.2]})
    assert one.introduction() == [
        "sweep of mlp: 2 combinations", "varies: lr=0.1,0.2",
        "fixed: hidden=(4,16); all else as in mlp",
    ]  # fmt: skip
    seeds = sweep_of(mlp, {}, seeds=3).introduction()
    assert seeds[:2] == ["sweep of mlp: 1 combination x 3 seeds = 3 trainings", "varies: seed"]


def test_a_regression_is_compared_by_its_own_metric(tmp_path, monkeypatch):
    """The goal of mlp is an accuracy, which numbers have not."""
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(0))
    mlp = replace(find("mlp"), steps=30, batch_size=16, passes=0, hidden=(4,), eval_every=30)
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())
    data = (x.numpy(), (3 * x[:, 0] - x[:, 1]).numpy())
    for given, name, better in (({}, "rmse", min), ({"metric": "r2"}, "r2", max)):
        sweep = sweep_of(mlp, {"lr": [1e-4, 0.03], **given})
        result = runs.run(sweep, tmp_path / name, device="cpu", data=data)
        table = runs.load(sweep, result.folder)
        rows = sweep.rows(table)
        valid = [cell.last[name] for row in rows for cell in row.cells]
        assert result.metrics == {f"best_{name}": better(valid), "diverged": 0.0}
        assert rows[0].settings["lr"] == 0.03
        assert f"Best first by {name} on the validation split" in sweep.verdict(table)


def test_ties_of_a_sweep_go_by_the_objective():
    """As those of weights do; seeds count by their mean."""
    sweep = sweep_of(replace(find("mlp"), data="iris"), {"lr": "1,2,3"}, seeds=2)

    def cell(recipe, accuracy, loss):
        values = {"accuracy": [0.1, accuracy], "loss": [9.0, loss]}
        valid = {n: torch.tensor(v, dtype=torch.float64) for n, v in values.items()}
        steps = torch.tensor([0, 5])
        return Cell(
            recipe, 5, steps, {}, valid, {"loss": (steps, steps)}, None, {}, torch.nn.Module
        )

    values = [(0.9, 0.3), (0.9, 0.3), (0.8, 0.1), (1.0, 0.4), (0.8, 0.1), (0.8, 0.1)]
    cells = {n: cell(r, *v) for (n, r), v in zip(sweep.cells().items(), values, strict=True)}
    rows = sweep.rows(Table(cells, {}))
    assert [row.settings["lr"] for row in rows] == [2.0, 1.0, 3.0]
    halving = replace(sweep, halving=True, base=replace(sweep.base, steps=20))
    assert halving.rungs() == [5, 10, 20]
    wanted = halving.wanted(halving.cells(), cells)
    assert {n for n, step in wanted.items() if step == 10} == {
        f"lr={lr},seed={seed}" for lr in ("1.0", "2.0") for seed in (0, 1)
    }


def test_a_run_that_is_given_is_checked_in_every_cell(tmp_path):
    first = runs.run(STEEP, tmp_path / "first", device="cpu")
    sweep = sweep_of(STEEP, {"start": str(first.folder), "lr": "0.1,0.2"})
    result = runs.run(sweep, tmp_path / "second", device="cpu")
    cell = of_run(result.folder / "cells" / "lr=0.1,seed=0", FILE)
    assert len(cell.start.sha256) == 64
    table = runs.load(sweep, result.folder)
    begun = [cell.valid["cross_entropy"][0] for cell in table.cells.values()]
    assert begun[0] == begun[1]
    assert isinstance(cell, Training)


def test_goals_of_each_relation():
    nearest = replace(RECIPES["small"], name="near", goal="cross_entropy == 0.5")
    sweep = sweep_of(nearest, {"lr": "1,2"})
    nothing = Table({}, {})
    assert "on the validation split, nearest to 0.5; metrics" in sweep.verdict(nothing)
    larger = replace(nearest, goal="cross_entropy > 0.5")
    assert "the larger the better" in sweep_of(larger, {"lr": "1,2"}).verdict(nothing)


# ------------------------------------------------------------------------ the table of a result


def test_a_result_has_a_row_for_each_training(swept, tmp_path):
    """The means of the rows are those of the card, which `test_the_table_has_mean...` checks."""
    sweep, result, table = swept
    rows = result.table()
    assert [row["lr"] for row in rows] == [lr for lr in (0.2, 0.05, 0.01, 1e30) for _ in range(3)]
    assert [row["seed"] for row in rows] == [0, 1, 2] * 4
    assert [row["diverged"] for row in rows] == [False] * 9 + [True] * 3
    assert rows[3]["cell"] == "lr=0.05,seed=0"
    for row, best in zip(rows[::3], sweep.json(table)["rows"][:3], strict=False):
        same_rate = [other for other in rows if other["lr"] == row["lr"]]
        for part in ("valid", "test"):
            values = [other[f"{part}_cross_entropy"] for other in same_rate]
            assert values == best[part]["cross_entropy"]["values"]
    assert all(math.isnan(row["valid_cross_entropy"]) for row in rows[9:])

    frame = rows.to_pandas()
    assert [*frame.columns] == rows.columns == [*rows[0]]
    means = frame.groupby("lr")["valid_cross_entropy"].mean()
    assert means.idxmin() == 0.2
    text = rows.to_csv(tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_text() == text
    read = pandas.read_csv(io.StringIO(text))
    assert read["lr"].tolist() == frame["lr"].tolist()
    assert read["test_cross_entropy"].tolist()[:9] == frame["test_cross_entropy"].tolist()[:9]
    assert read["test_cross_entropy"].isna().tolist() == [False] * 9 + [True] * 3


def test_the_table_in_latex():
    table = CellTable([
        {"cell": "lr=1,seed=0", "lr": 0.123456, "hidden": (4, 16), "valid_r2": math.nan},
        {"cell": "a&b", "lr": 1.0, "hidden": (4,), "valid_r2": 0.5},
    ])  # fmt: skip
    assert table.to_latex().splitlines() == [
        r"\begin{tabular}{lrlr}",
        r"\toprule",
        r"cell & lr & hidden & valid\_r2 \\",
        r"\midrule",
        r"lr=1,seed=0 & 0.1235 & 4,16 & -- \\",
        r"a\&b & 1 & 4 & 0.5 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert "<td>a&amp;b</td>" in table._repr_html_()
    assert CellTable().to_csv() == "\n"


def test_an_experiment_has_such_a_table_and_a_training_has_none(tmp_path):
    result = runs.run(Law(name="law"), tmp_path, device="cpu")
    rows = result.table()
    assert {row["cell"] for row in rows} == {*names_of_cells(result.folder)}
    trained = runs.run(replace(STEEP, steps=1), tmp_path, device="cpu")
    with pytest.raises(UserError, match="has no cells, because it is no sweep and no experiment"):
        trained.table()


def names_of_cells(folder):
    return [path.name for path in (folder / "cells").iterdir()]


def test_pandas_is_asked_for_where_it_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pandas must be installed to make a frame: pip install"):
        CellTable().to_pandas()
