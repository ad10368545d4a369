"""Which weights are kept, what is told of them, and when patience ends a run."""

import json
import re
import shutil
from dataclasses import dataclass, replace

import pytest
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.cli.run import summarize
from everynet.data.dataset import Data
from everynet.metrics import classified
from everynet.recipes.recipe import Goal
from everynet.recipes.stored import of_run
from everynet.recipes.sweep import sweep_of
from everynet.runs import checkpoint
from everynet.runs.best_weights import BestWeights
from everynet.system.errors import UserError
from tests.runs.recipes import RECIPES, Small
from tests.runs.sealed import reseal

KNOWN, OWN = Data.none(), replace(Data.none(), own=True)
FALLS = replace(RECIPES["small"], name="falls", schedule="cosine")


class KeepsLast(Small):
    """As recipes whose rate falls do."""

    def monitor(self):
        return None


@dataclass(frozen=True, kw_only=True)
class Measured(Small):
    """Metrics that are not its objective, and no goal."""

    goal: str = ""

    def metrics(self, model, batch):
        return {"right": (model(batch[0]).argmax(1) == batch[1]).float()}


def rows(*values, name="cross_entropy"):
    return [{"step": 2 * n, "valid": {name: v, "_seen": 9.0}} for n, v in enumerate(values, 1)]


def weighed(recipe, data, *values):
    best = BestWeights.of(recipe, data)
    best.replay(rows(*values))
    return best


def test_the_goal_decides_and_says_so():
    best = weighed(RECIPES["small"], KNOWN, 0.5, 0.25, 0.3)
    assert (best.streak.best.merit, best.streak.length) == (-0.25, 1)
    line = best.describe(rows(0.5, 0.25, 0.3), 4, 6, 6)
    assert line == "of step 4 of 6: best valid cross_entropy 0.25"


@pytest.mark.parametrize(
    ("recipe", "data", "why"),
    [
        (KeepsLast(schedule="cosine"), KNOWN, r"the rate falls to its end (schedule=cosine)"),
        (KeepsLast(), KNOWN, "the recipe does not choose by its metrics"),
        (replace(FALLS, goal=""), KNOWN, "no goal of the recipe says which metric is the better"),
        (Measured(), OWN, "no goal of the recipe says which metric is the better"),
        (FALLS, replace(OWN, chooses=False), "holdout=false leaves no rows that could choose"),
    ],
)
def test_the_last_are_kept_and_the_reason_is_said(recipe, data, why):
    best = weighed(recipe, data, 0.5, 0.25)
    assert best.monitor is None
    assert best.describe(rows(0.5, 0.25), -1, 12, 12).startswith(
        f"of step 12, the last, because {why}"
    )


@pytest.mark.parametrize("recipe", [KeepsLast(schedule="cosine"), KeepsLast(schedule="one-cycle")])
def test_on_ones_own_data_and_with_patience_the_best_are_kept(recipe):
    for patient, data in ((recipe, OWN), (replace(recipe, patience=2), KNOWN)):
        best = BestWeights.of(patient, data)
        assert best.monitor.metric == "cross_entropy"


def test_without_a_goal_the_objective_decides_on_ones_own_data():
    best = weighed(replace(FALLS, goal=""), OWN, 0.5, 0.25)
    assert (best.streak.best.merit, best.streak.length) == (-0.25, 0)
    assert best.describe(rows(0.5, 0.25), 4, 4, 4) == "of step 4 of 4: best valid objective 0.25"


def test_patience_counts_evaluations_since_the_best():
    patient = replace(RECIPES["small"], patience=2)
    assert not weighed(patient, KNOWN).out_of_patience
    assert not weighed(patient, KNOWN, 3.0, 2.0, 2.5).out_of_patience
    assert weighed(patient, KNOWN, 3.0, 2.0, 2.5, 2.0).out_of_patience  # as good is no better
    assert not weighed(patient, KNOWN, 3.0, 2.0, 2.5, 1.0).out_of_patience
    assert not weighed(replace(patient, patience=0), KNOWN, 1.0, 2.0, 3.0, 4.0).out_of_patience


ACCURACY = Goal("accuracy", ">=", 0.9)


def evaluations(*pairs):
    return [{"step": n, "valid": {"accuracy": a, "cross_entropy": e}}
            for n, (a, e) in enumerate(pairs, 1)]  # fmt: skip


def kept_of(*pairs, monitor=ACCURACY, terms=("cross_entropy", "_seen")):
    """The number of the evaluation that is kept, from 1, and what is said of it."""
    best, step = BestWeights(monitor, terms=terms), 0
    rows = evaluations(*pairs)
    for row in rows:
        score = best.add(row["valid"])
        if score >= best.kept:
            step, best.kept = row["step"], score
    again = BestWeights(monitor)
    again.replay(rows, step, terms)
    assert (again.kept, again.streak.length) == (best.kept, best.streak.length)
    return step, best.describe(rows, step, len(rows), len(rows))


def test_ties_go_by_the_objective_and_then_to_the_later():
    step, line = kept_of((0.8, 1.0), (0.9, 0.5), (0.9, 0.3), (0.9, 0.4), (0.7, 0.1))
    assert step == 3
    assert line == (
        "of step 3 of 5: best valid accuracy 0.9, of 3 such evaluations the best by "
        "cross_entropy 0.3"
    )
    assert kept_of((0.9, 0.5), (0.9, 0.5), (0.8, 0.5))[0] == 2
    assert kept_of((0.9, 0.3), (0.9, 0.5), terms=("cross_entropy", "heads"))[0] == 1
    step, line = kept_of((0.9, 0.1), (0.9, 0.5), (0.8, 0.5), terms=("critic",))
    assert step == 2, "the objective was not measured"
    assert line.endswith("accuracy 0.9, of 2 such evaluations the last")


def test_a_share_below_one_per_cent_leaves_the_choice_to_the_objective():
    """Sentences translated exactly: 0.001 of them says nothing, 0.02 does."""
    step, line = kept_of((0.003, 2.0), (0.001, 1.5), (0.002, 1.6))
    assert step == 2
    assert line == (
        "of step 2 of 3: best valid cross_entropy 1.5, because accuracy (0.001) stayed below 1% "
        "and tells little"
    )
    assert kept_of((0.003, 2.0), (0.02, 2.5), (0.001, 1.5))[0] == 2
    assert kept_of((0.003, 2.0), (0.001, 1.5), terms=("critic",))[0] == 1
    loss = Goal("cross_entropy", "<=", 0.5)
    assert kept_of((0.0, 0.002), (0.0, 0.001), (0.0, 0.003), monitor=loss)[0] == 2


def test_a_better_objective_is_progress_where_the_metric_stays():
    best = BestWeights(ACCURACY, patience=2)
    best.replay(evaluations((0.9, 0.5), (0.9, 0.4), (0.9, 0.3)), 3, ("cross_entropy",))
    assert not best.out_of_patience
    best.replay(evaluations((0.9, 0.3), (0.9, 0.4), (0.9, 0.3)), 3, ("cross_entropy",))
    assert best.out_of_patience


@pytest.mark.parametrize(
    ("recipe", "data", "match"),
    [
        (replace(RECIPES["small"], patience=3), replace(OWN, chooses=False),
         r"patience \(3\) must be 0, because holdout=false leaves no rows"),
        (replace(RECIPES["small"], metric="loss"), replace(OWN, chooses=False),
         r"metric \(loss\) must be empty, because holdout=false leaves no rows"),
        (Measured(patience=3), OWN, r"patience \(3\) must be 0, because no goal of the recipe"),
    ],
)  # fmt: skip
def test_patience_with_nothing_to_wait_for_is_refused(recipe, data, match):
    with pytest.raises(UserError, match=match):
        BestWeights.of(recipe, data)


def test_a_patience_that_cannot_come_to_its_end_is_told(tmp_path, capsys):
    line = r"patience \(3\) cannot end this run, which is evaluated 3 times: do more steps, or a s"
    runs.run(replace(RECIPES["small"], patience=3), tmp_path, device="cpu", show=True)
    assert re.search(line, capsys.readouterr().err)
    assert not BestWeights(None, patience=3).describe_idle_patience(4)
    assert not BestWeights(None).describe_idle_patience(0)


def test_a_patience_below_0_is_refused():
    with pytest.raises(UserError, match=r"patience \(-1\) must be at least 0"):
        Small(patience=-1)


def test_a_goal_that_names_no_metric_is_one_line(tmp_path):
    wrong = replace(RECIPES["small"], goal="accuracy >= 0.5")
    with pytest.raises(
        UserError, match=r"goal \(accuracy >= 0.5\) must name a metric that small gives: cross_ent"
    ):
        runs.run(wrong, tmp_path, device="cpu")


@pytest.mark.parametrize("given", [{"patience": "0,3"}, {"patience": "3", "lr": "1,2"}])
def test_a_sweep_refuses_patience(given):
    with pytest.raises(UserError, match=r"patience must be 0 in a sweep.*--halving"):
        sweep_of(replace(RECIPES["small"], name="small"), given, seeds=1, random=0, halving=False)


# ------------------------------------------------------------------------------- metric=NAME


@dataclass(frozen=True, kw_only=True)
class Tied(Small):
    """Accuracies of 64 samples, among which there are ties."""

    steps: int = 30
    lr: float = 0.02
    eval_every: int = 1
    save_every: int = 4
    goal: str = "accuracy >= 0.5"

    def metrics(self, model, batch):
        x, y = batch
        z = model(x)
        return {**classified(z, y), "cross_entropy": cross_entropy(z, y, reduction="none"),
                "odd": z[:, 0]}  # fmt: skip


TIED = Tied(name="tied")


@pytest.mark.parametrize(("name", "relation"), [
    ("cross_entropy", "<="), ("auc", ">="), ("accuracy", ">="), ("rmse", "<="), ("r2", ">="),
])  # fmt: skip
def test_a_metric_that_is_named_decides(name, relation):
    for recipe in (replace(TIED, metric=name), replace(FALLS, metric=name)):
        monitor = BestWeights.of(recipe, KNOWN).monitor
        assert (monitor.metric, monitor.relation) == (name, relation)
    assert replace(TIED, goal="", schedule="plateau", metric=name).monitored().metric == name


def test_a_metric_of_the_goal_has_its_direction():
    assert replace(TIED, goal="odd > 3", metric="odd").monitored() == Goal("odd", ">", 3.0)


def test_a_metric_that_is_not_known_or_not_measured_is_refused_before_training(tmp_path):
    with pytest.raises(
        UserError,
        match=r"metric \(acuracy\) must be one of which it is known whether more is "
        r"better, because .*; did you mean accuracy",
    ):
        replace(TIED, metric="acuracy")
    with pytest.raises(UserError, match=r"metric \(odd\) must be one of which it is known"):
        replace(TIED, metric="odd")
    with pytest.raises(
        UserError,
        match=r"metric \(rmse\) must be one that tied measures on this data: accuracy, "
        r"cross_entropy, odd, .*; did you mean ",
    ):
        runs.run(replace(TIED, metric="rmse"), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


# ------------------------------------------------------------------------------------- whole runs


def best_of(folder, key):
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [(key(row["valid"]), row["step"]) for row in log if "valid" in row]
    return max(rows)[1], [value for value, _ in rows]


def test_of_ties_the_least_objective_is_kept_also_by_a_run_that_was_stopped(tmp_path):
    def key(valid):
        return valid["accuracy"], -valid["cross_entropy"]

    class Enough(Exception):
        pass

    def stop(record):
        if record["step"] == 18:
            raise Enough

    whole = runs.run(TIED, tmp_path / "whole", device="cpu")
    step, found = best_of(whole.folder, key)
    first = next(n for n, (accuracy, _) in enumerate(found, 1) if accuracy == max(found)[0])
    assert first < step, "there are ties, and another than the first of them is kept"
    assert checkpoint.bests(whole.folder)[-1] == step
    assert f"of step {step} of 30: best valid accuracy" in whole.weights
    with pytest.raises(Enough):
        runs.run(TIED, tmp_path / "stopped", device="cpu", watch=stop)
    (folder,) = (tmp_path / "stopped").iterdir()
    again = runs.resume(TIED, folder)
    assert (again.weights, again.metrics) == (whole.weights, whole.metrics)


def test_a_run_keeps_the_weights_that_the_named_metric_chooses(tmp_path):
    result = runs.run(replace(TIED, metric="macro_f1", lr=0.2), tmp_path, device="cpu")
    step, _ = best_of(result.folder, lambda v: (v["macro_f1"], -v["cross_entropy"]))
    assert result.weights.startswith(f"of step {step} of 30: best valid macro_f1 ")


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    recipe = replace(RECIPES["patient"], name="patient")
    return recipe, runs.run(recipe, tmp_path_factory.mktemp("patient"), device="cpu")


def test_a_run_ends_when_patience_does(patient):
    recipe, result = patient
    log = [json.loads(x) for x in (result.folder / "metrics.jsonl").read_text().splitlines()]
    valid = {row["step"]: row["valid"]["cross_entropy"] for row in log if "valid" in row}
    best = min(valid, key=valid.get)
    assert [*valid][-1] == best + 2 * 3 < recipe.steps
    assert log[-1] == {"step": best + 6, "test": result.metrics}
    assert checkpoint.steps(result.folder)[-1] == best + 6
    told = (
        f"of step {best} of 100: best valid cross_entropy {valid[best]:.4g}; stopped at step "
        f"{best + 6} after 3 evaluations without a better one (patience=3)"
    )
    assert result.weights == told
    assert f"| weights | {told} |" in (result.folder / "card.md").read_text()
    assert f"weights {told}" in [*summarize(recipe, result, "patient")]


def test_gone_on_with_it_does_no_further_step(patient, tmp_path):
    recipe, result = patient
    folder = shutil.copytree(result.folder, tmp_path / "copy")
    (folder / "card.md").unlink()
    again = runs.resume(replace(recipe, steps=200, changed=("steps",)), folder)
    assert again.metrics == result.metrics
    assert again.weights == result.weights.replace("of 100:", "of 200:")
    steps = {p.name for p in (result.folder / "checkpoints").iterdir()}
    assert {p.name for p in (folder / "checkpoints").iterdir()} == steps


def test_a_run_folder_older_than_patience_is_read(tmp_path):
    folder = runs.run(replace(RECIPES["small"], name="small"), tmp_path, device="cpu").folder
    path = folder / "recipe.json"
    about = json.loads(path.read_text())
    del about["settings"]["patience"]
    path.write_text(json.dumps(about))
    reseal(folder)
    found = of_run(folder, "tests/runs/recipes.py")
    assert (found.steps, found.patience) == (12, 0)
    del about["settings"]["lr"]
    path.write_text(json.dumps(about))
    reseal(folder)
    with pytest.raises(UserError, match="has no setting lr"):
        of_run(folder, "tests/runs/recipes.py")
