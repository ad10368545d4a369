"""Metrics that only the end asks for: `final`, on the weights kept, and by `evaluate`."""

import json
import math
from dataclasses import dataclass, replace

import pytest
import torch

import everynet
from everynet import runs
from everynet.recipes.training import Training
from everynet.runs import job
from everynet.runs.checkpoint import bests
from everynet.runs.evaluate import evaluate_run
from everynet.runs.folder import open_run
from everynet.system.errors import NonFinite, UserError
from everynet.system.seeds import mix
from everynet.training.device import choose
from everynet.training.loop import add_final, begin, measure
from tests.runs import games
from tests.runs.recipes import Small

FILE = games.__file__


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Nobody looks at the pictures of these runs."""
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())


@dataclass(frozen=True, kw_only=True)
class Finished(Small):
    """Its `final` says what it was called with."""

    goal: str = "cross_entropy <= 10"

    def final(self, model, data, generator, *, beam: int = 5, scale: float = 1.0):
        (found, _), *_ = data.test
        CALLS.append((model.training, torch.is_grad_enabled(), next(model.parameters()).clone()))
        logits = model(found)
        return {"half": float(logits.dtype == torch.bfloat16), "scaled": beam * scale,
                "drawn": torch.rand(2, generator=generator)[1].item(),
                "default": torch.rand(()).item()}  # fmt: skip


CALLS = []
FINISHED = Finished(name="finished")


# ------------------------------------------------------------------------- at the end of a run


def test_it_is_called_once_at_the_end_on_the_weights_kept(tmp_path):
    CALLS.clear()
    result = runs.run(replace(FINISHED, goal="cross_entropy >= 0"), tmp_path, device="cpu")
    ((training, grad, weights),) = CALLS
    assert (training, grad) == (False, False)
    kept = runs.load(FINISHED, result.folder)
    assert torch.equal(weights, next(kept.parameters()))
    assert bests(result.folder)[-1] < 12, "these are not the last ones"
    assert result.metrics["scaled"] == 5.0
    assert [*result.metrics] == ["cross_entropy", "half", "scaled", "drawn", "default"]


def test_it_is_computed_in_the_precision_of_the_run(tmp_path):
    setup = choose("cpu", "bf16")
    data = FINISHED.dataset().to(setup.device, setup.dtype)
    state = begin(FINISHED, data, setup)
    state.model.train()
    assert add_final(FINISHED, state.model, data, {}, setup)["half"] == 1
    assert state.model.training, "it comes back as it was"


class Killed(BaseException):
    """What ends a run here as a kill would."""


def test_a_run_that_was_killed_at_the_end_repeats_it_with_the_same_numbers(tmp_path, monkeypatch):
    whole = runs.run(FINISHED, tmp_path / "whole", device="cpu")

    def kill(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Finished, "final", kill)
        with pytest.raises(Killed):
            runs.run(FINISHED, tmp_path / "killed", device="cpu")
    (folder,) = (tmp_path / "killed").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(job.Job, "finish", kill)
        with pytest.raises(Killed):
            runs.resume(FINISHED, folder)
    assert '"test"' not in (folder / "metrics.jsonl").read_text()
    torch.rand(7)
    assert runs.resume(FINISHED, folder).metrics == whole.metrics
    assert (folder / "metrics.jsonl").read_text() == (whole.folder / "metrics.jsonl").read_text()


def test_memory_that_runs_out_in_it_is_one_line_with_the_way_on(tmp_path, monkeypatch):
    def run_out(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Finished, "final", run_out)
    with pytest.raises(
        UserError,
        match=r"memory ran out after the last update \(CUDA out .*\); the run is saved: test and "
        r"draw it where there is more of it, with: everynet resume ",
    ):
        runs.run(FINISHED, tmp_path, device="cpu")


# -------------------------------------------------------------------------------- what is refused


def returns(value):
    return type("Returns", (Finished,), {"final": lambda self, model, data, generator: value})(
        name="returns"
    )


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (None, UserError, r"final must return a dict of numbers by name, .*, not None; end it in"),
        ({"a": torch.ones(())}, UserError, r"final must return .*, not {'a': 'Tensor'}"),
        ({"a": math.nan}, NonFinite, "the metric a is nan at step 12, which is no number"),
        ({"cross_entropy": 1.0}, UserError,
         r"final must give its metrics names of their own, because metrics gives cross_entropy "
         r"already; rename what final gives"),
    ],
)  # fmt: skip
def test_what_it_must_not_return_is_one_line_and_nothing_is_lost(
    value, error, words, tmp_path, capsys
):
    with pytest.raises(error, match=words):
        runs.run(returns(value), tmp_path, device="cpu", show=True)
    (folder,) = tmp_path.iterdir()
    again = f"all steps are done and saved; test and draw it with: everynet resume {folder}"
    assert (again in capsys.readouterr().err) == (error is UserError)
    assert runs.resume(returns({"a": 2.0}), folder).metrics["a"] == 2


def test_parameters_that_the_end_cannot_give_are_refused_before_training(tmp_path):
    def without(self, model, data, generator, *, beam):
        return {}

    def taken(self, model, data, generator, *, device="cpu"):
        return {}

    for final, words in (
        (
            without,
            r"final must be callable as final\(model, data, generator\), because a run ends "
            r"without settings \(missing a required .*'beam'\); give each one a default",
        ),
        (taken, r"device must have another name in final, because evaluate has a setting device"),
    ):
        recipe = type("Wrong", (Finished,), {"final": final})(name="wrong")
        with pytest.raises(UserError, match=words):
            runs.run(recipe, tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def test_a_goal_that_begins_with_it_says_what_chooses_the_weights(tmp_path):
    walk = replace(games.RECIPES["walk"], name="walk")
    unsaid = type("Unsaid", (games.Walk,), {"monitor": Training.monitor})(**vars(walk))
    with pytest.raises(
        UserError,
        match=r"monitor \(episode_return\) must be a metric that walk measures at every "
        r"evaluation: mean_return; final is called at the end alone, when the weights are chosen: "
        r"write a method monitor that gives one of these, or None to keep the last weights",
    ):
        runs.run(unsaid, tmp_path, device="cpu")
    with pytest.raises(
        UserError,
        match=r"metric \(episode_return\) must be one that walk measures on this data: "
        r"mean_return; final is called at the end alone, when the weights are chosen",
    ):
        runs.run(replace(walk, metric="episode_return"), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]
    chosen = runs.run(walk, tmp_path, device="cpu")
    assert "best valid mean_return" in chosen.weights


@pytest.mark.parametrize("own", [False, True])
def test_a_recipe_that_keeps_its_last_weights_may_have_a_goal_of_the_end_alone(own, tmp_path):
    """Also on the user's own data, where the goal's first metric would choose otherwise."""

    class Last(games.Walk):
        def monitor(self):
            return None

        def dataset(self):
            data = super().dataset()
            return replace(data, own=own, splits={**data.splits, "train": data.splits["valid"]})

    last = Last(name="last", goal="episode_return >= 0.01")
    with pytest.raises(UserError, match=r"schedule \(plateau\) must be another where no goal says"):
        replace(last, schedule="plateau")
    assert runs.run(last, tmp_path / "a", device="cpu").weights.startswith("of step 6, the last")
    both = replace(last, goal="episode_return >= 0.01 and mean_return >= 0")
    words = "best valid mean_return" if own else "the last"
    done = runs.run(both, tmp_path / "b", device="cpu")
    assert words in done.weights
    assert runs.resume(both, done.folder).weights == done.weights


def test_sweeps_are_compared_by_what_chooses_the_weights():
    walk = games.RECIPES["walk"]
    assert walk.task_metric({"far", "mean_return"}) == walk.monitor()


def test_a_goal_that_nothing_gives_is_refused_before_training(tmp_path):
    walk = replace(games.RECIPES["walk"], name="walk", goal="episode_retrun >= 0.01")
    with pytest.raises(UserError, match=r"the goal \(episode_retrun >= 0.01\) must name a metric"):
        runs.run(walk, tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


# ----------------------------------------------------------------------------------- random numbers


@dataclass(frozen=True, kw_only=True)
class Dice(Small):
    """Its metric is a throw for each sample."""

    goal: str = "throw >= 0"

    def metrics(self, model, batch):
        return {"throw": torch.rand(len(batch[0]))}

    def final(self, model, data, generator):
        return {"last": torch.rand(64).mean().item(),
                "given": torch.rand(64, generator=generator).mean().item()}  # fmt: skip


def test_each_split_and_the_end_have_random_numbers_of_their_own(tmp_path):
    dice = Dice(name="dice", seed=3)
    result = runs.run(dice, tmp_path, device="cpu")
    rows = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    valid = [row["valid"]["throw"] for row in rows if "valid" in row]
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(mix(3, 1))).mean().item()
    assert valid == pytest.approx([drawn] * 3), "as ever, the same at each evaluation"
    found = [drawn, result.metrics["throw"], result.metrics["last"]]
    assert len({round(value, 5) for value in found}) == 3
    assert result.metrics["given"] in found[2:], "the generator given begins as torch's does"
    setup = choose("cpu")
    data = dice.dataset()
    assert measure(dice, None, data.test, setup)["throw"].mean().item() == pytest.approx(drawn)


# ----------------------------------------------------------------------------------------- games


def test_a_game_is_tested_on_starts_that_chose_no_weights(tmp_path, monkeypatch):
    seen, metrics = [], games.Walk.metrics

    def watched(self, model, batch):
        seen.append({*batch[0].tolist()})
        return metrics(self, model, batch)

    monkeypatch.setattr(games.Walk, "metrics", watched)
    runs.run(replace(games.RECIPES["walk"], name="walk"), tmp_path, device="cpu")
    *chose, tested = seen
    assert len(chose) >= 3
    assert not set.union(*chose) & tested
    assert set.union(*seen) == {*range(1, games.PLACES)}


# -------------------------------------------------------------------------------------- evaluate


@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_other_data_are_what_it_is_given(name, tmp_path, monkeypatch):
    """Of a training and of a fitting."""
    for path, rows in (("learned.csv", 40), ("other.csv", 7)):
        lines = [f"{a},{a * a % 7},{('no', 'yes')[a % 2]}" for a in range(rows)]
        (tmp_path / path).write_text("\n".join(["a,b,y", *lines]) + "\n")

    def final(self, model, data, generator, *, times: int = 1):
        return {"rows_seen": float(times * sum(len(batch[0]) for batch in data.test))}

    recipe = everynet.recipe(name, data=str(tmp_path / "learned.csv"), target="y")
    if name == "mlp":
        recipe = replace(recipe, steps=2, batch_size=8, hidden=(4,), passes=0)
    monkeypatch.setattr(type(recipe), "final", final)
    done = everynet.run(recipe, tmp_path / "runs", device="cpu")
    assert done.metrics["rows_seen"] == 8
    found = evaluate_run(open_run(done.folder), tmp_path / "other.csv", times=2)
    assert found.metrics["rows_seen"] == 14
    assert found.settings == {"times": 2}
    assert everynet.evaluate(done.folder)["rows_seen"] == 8
