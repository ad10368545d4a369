import math
from dataclasses import replace

import pytest
import torch

from everynet.cli import main
from everynet.recipes.catalog import find
from everynet.recipes.trained import Trained
from everynet.runs.job import Job
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.generative.turing_test import (
    GRAMS,
    RECIPES,
    Interrogator,
    TuringTest,
    count_grams,
    hit_rate,
    interrogate,
    least_distance,
    surprise,
    uniform,
)

ASK = Interrogator(hidden_size=16, steps=100, batch_size=128, lr=1e-2, optimizer="adamw")


def normal(rows, columns, seed, shift=0.0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=draw, dtype=torch.float64) + shift


# --------------------------------------------------------------------------------------- equations


def test_rates_by_hand():
    score, real = torch.tensor([1.0, -1.0, 2.0, -3.0, 0.5]), torch.tensor([1, 1, 1, 0, 0])
    assert hit_rate(score, real) == pytest.approx(3 / 5)
    error, above = surprise(0.6, 100)
    assert (error, above) == (pytest.approx(0.05), pytest.approx(2))
    assert least_distance(0.75) == pytest.approx(0.5)
    assert least_distance(0.4) == 0


def test_the_spread_of_guesses_is_that_of_a_coin():
    draw = torch.Generator().manual_seed(1)
    real = (torch.arange(400) % 2).double()
    found = [hit_rate(torch.randn(400, generator=draw), real) for _ in range(2000)]
    spread = torch.tensor(found).std().item()
    assert spread == pytest.approx(surprise(0.5, 400)[0], rel=5 / math.sqrt(2 * 2000))


@pytest.mark.covers("Z1")
def test_equal_sets_are_told_apart_half_of_the_time():
    """4,000 samples: 2 % is 2.5 standard errors."""
    score, real = interrogate(normal(2000, 3, 1), normal(2000, 3, 2), ASK)
    assert len(score) == 4000
    assert real.sum() == 2000
    assert hit_rate(score, real) == pytest.approx(0.5, abs=0.02)


@pytest.mark.covers("Z1")
@pytest.mark.parametrize("shift", [1.0, 6.0])
def test_shifted_normal_samples_are_told_apart_as_often_as_can_be(shift):
    """The best interrogator of N(0, 1) and N(d, 1) is right Phi(d / 2) of the time."""
    score, real = interrogate(normal(2000, 1, 1), normal(2000, 1, 2, shift), ASK)
    best = 0.5 * (1 + math.erf(shift / 2 / math.sqrt(2)))
    assert hit_rate(score, real) == pytest.approx(best, abs=0.03)
    assert hit_rate(score, real) <= best + 4 * math.sqrt(best * (1 - best) / 4000) + 1e-9


def test_nobody_is_asked_about_what_was_learned():
    """Labels that follow no rule can be learned by heart, and the answers are still guesses."""
    score, real = interrogate(normal(60, 40, 1), normal(60, 40, 2), replace(ASK, steps=200))
    assert abs(hit_rate(score, real) - 0.5) < 4 * surprise(0.5, 120)[0]


def test_texts_are_counted_by_letters_pairs_and_triples():
    counts = count_grams(["abab", "abab", "baba", "abcd"]).square()
    assert counts.shape == (4, GRAMS)
    assert counts.sum(1).tolist() == pytest.approx([4 + 3 + 2] * 4)
    assert torch.equal(counts[0], counts[1])
    assert not torch.equal(counts[0], counts[2])  # as many letters each, other triples
    assert sorted(counts[0].unique().tolist())[-1] >= 2


def test_noise_spans_what_is_real():
    real = torch.tensor([[0.0, -3.0], [1.0, 5.0]], dtype=torch.float64).repeat(500, 1)
    noise = uniform(real, torch.Generator().manual_seed(1))
    assert noise.shape == real.shape
    torch.testing.assert_close(noise.amin(0), real.amin(0), atol=0.1, rtol=0)
    torch.testing.assert_close(noise.mean(0), real.mean(0), atol=0.4, rtol=0)


# ------------------------------------------------------------------------------------ the recipe


def test_metrics_by_hand():
    labels = torch.tensor([1.0, 1, 0, 0])
    result = {"equal_score": [1.0, -1, 1, -1], "made_score": [1.0, 1, 1, -1],
              "noise_score": [1.0, 1, -1, -1]}  # fmt: skip
    result = {name: torch.tensor(score) for name, score in result.items()}
    result |= {name.replace("score", "real"): labels for name in [*result]}
    assert TuringTest().metrics(result) == pytest.approx(
        {"accuracy": 0.75, "error": 0.25, "surprise": 1.0, "distance": 0.5, "equal_accuracy": 0.5,
         "noise_accuracy": 1.0}
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run for each kind of data, hardly trained."""
    out, found = tmp_path_factory.mktemp("turing"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda job, model: ())  # pictures take longer than the rest
        for name in ("rbm", "gan-ring", "gpt", "mlp"):
            found[name] = run(find(name).tiny(), out / name, device="cpu").folder
    return found


@pytest.mark.covers("Z1")
@pytest.mark.parametrize("name", ["rbm", "gan-ring", "gpt"])
def test_runs_of_images_points_and_texts_are_asked_about(runs, name, tmp_path):
    recipe = TuringTest(of=Trained(str(runs[name])), samples=400, letters=20, questions=60)
    found = run(recipe, tmp_path).metrics
    assert found["noise_accuracy"] > (0.6 if name == "gan-ring" else 0.95)
    assert found["accuracy"] > 0.7  # nothing was learned yet
    spread = 1 / (2 * math.sqrt(400))
    assert abs(found["equal_accuracy"] - 0.5) < 4 * spread


@pytest.mark.parametrize("name", ["mlp"])
def test_a_run_that_does_not_sample_is_refused_in_one_line(runs, name, capsys, tmp_path):
    code = main(["run", "turing-test", f"of={runs[name]}", "--out", str(tmp_path)])
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert code
    assert "must be the run of a network that makes samples like those of its data" in line
    assert f"and {name} makes none; try a run of vae" in line


def test_too_few_samples_tell_nothing(runs, tmp_path):
    recipe = TuringTest(of=Trained(str(runs["gpt"])), letters=10**6)
    with pytest.raises(UserError, match="must give at least 20 samples to compare, because fewer"):
        run(recipe, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reaches_its_goal(seed, tmp_path):
    assert run(replace(RECIPES["turing-test"], seed=seed), tmp_path, device="cpu").reached


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 5}, r"samples \(5\) must be at least 20"),
        ({"letters": 2}, r"letters \(2\) must be at least 3"),
        ({"questions": 0}, r"questions \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        TuringTest(**fields)
