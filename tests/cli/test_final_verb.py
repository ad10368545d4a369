"""`everynet evaluate`, `show`, `runs` and `sweep` of a recipe with metrics that `final` gives."""

import json

import pytest

import everynet
from everynet.cli.show import describe
from everynet.recipes.catalog import find
from everynet.runs import job
from tests.runs import games

FILE = games.__file__


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Nobody looks at the pictures of these runs."""
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Job, "draw", lambda *_: ())
        return everynet.run(find(f"{FILE}:walk"), tmp_path_factory.mktemp("walk"), device="cpu")


def test_its_metrics_join_those_of_the_test_split(walked, call):
    last = json.loads((walked.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["test"] == walked.metrics
    assert walked.metrics.keys() == {"mean_return", "episode_return"}
    assert walked.reached is True
    meaning = games.Walk.meanings["episode_return"]
    line = f"| episode_return | {walked.metrics['episode_return']:.6g} | {meaning} |"
    assert line in (walked.folder / "card.md").read_text()
    assert "episode_return" in call("runs", "--out", str(walked.folder.parent))[1]


def test_a_cell_of_a_sweep_has_it_too(tmp_path, call):
    out = call("sweep", f"{FILE}:walk", "lr=0.1,0.2", "--out", str(tmp_path))[1]
    (cell,) = tmp_path.glob("*/cells/*lr=0.1*")
    found = everynet.evaluate(cell, file=FILE, device="cpu")
    assert f"{found['episode_return']:.4g}" in out


def test_evaluate_gives_the_metrics_of_the_run(walked, call):
    assert everynet.evaluate(walked.folder, file=FILE, device="cpu") == walked.metrics
    out = call("evaluate", str(walked.folder), "--file", FILE, "--json")[1]
    assert json.loads(out) == walked.metrics


def test_evaluate_takes_its_parameters_as_settings(walked, call):
    run = str(walked.folder)
    out = json.loads(call("evaluate", run, "episodes=3", "--file", FILE, "--json")[1])
    assert out["mean_return"] == walked.metrics["mean_return"]
    assert out["episode_return"] != walked.metrics["episode_return"]
    assert everynet.evaluate(run, file=FILE, episodes=3) == out
    trained = everynet.trained(run, file=FILE)
    assert trained.evaluate(episodes=3) == out
    said = call("evaluate", run, "episodes=3", "--file", FILE)[1]
    assert said.splitlines()[0].endswith("walk (7 samples) with episodes=3")
    assert "goal" not in said
    assert "with" not in call("evaluate", run, "--file", FILE)[1].splitlines()[0]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("episode=3", "evaluate has no setting episode; it takes episodes; did you mean episodes?"),
        ("episodes=few", "episodes (few) must be a whole number"),
        ("steps=3", "steps must stay as it was in the run: evaluate takes episodes"),
        ("target=y", "evaluate has no setting target; it takes episodes"),
        ("data=iris", "data (iris) must be left out, because walk learns from no files"),
    ],
)  # fmt: skip
def test_what_evaluate_does_not_take_is_refused_with_the_nearest_name(
    walked, refused, setting, words
):
    assert refused("evaluate", str(walked.folder), setting, "--file", FILE).startswith(words)


def test_show_lists_the_settings_of_evaluate(call, monkeypatch):
    out = call("show", f"{FILE}:walk")[1]
    assert "settings of everynet evaluate RUN\n  episodes  40" in out
    assert "settings of everynet evaluate" not in call("show", "lenet")[1]
    monkeypatch.setattr(games.Walk, "final", lambda self, model, data, generator: {})
    assert "settings of everynet" not in "".join(describe(games.RECIPES["walk"])), "no empty table"
