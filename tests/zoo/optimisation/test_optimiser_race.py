import math
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from everynet.recipes.experiment import Table
from everynet.recipes.training import OPTIMIZERS
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.training.loop import begin, evaluate, trained
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from everynet.zoo.optimisation.optimiser_race import (
    BATCHES,
    COURSES,
    NAMES,
    RECIPES,
    TEAMS,
    OptimiserRace,
    arrival,
    batch_variance,
    bend,
    choose,
    gradients,
    heights,
    plateau,
    saddle,
    valley,
)
from everynet.zoo.optimisation.pictures.race import Course, courses, standings
from everynet.zoo.optimisation.update_rules import RULES, descend
from tests.zoo.cells import cell

SMALL = OptimiserRace(rates=(0.003, 0.03), steps=60, updates=12, batch_size=32, hidden_size=4)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """What SMALL found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, to, **_: to.write(b"drawn"))
        folder = run(SMALL, tmp_path_factory.mktemp("race")).folder
    return load(SMALL, folder)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------------ the courses


def test_heights_by_hand():
    cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
    assert valley(tensor(2 * cos, 2 * sin)).item() == pytest.approx(1.0)  # along: 0.5 * 4 / 2
    assert valley(tensor(-2 * sin, 2 * cos)).item() == pytest.approx(100.0)  # across: 50 * 4 / 2
    assert bend(tensor(-1.2, 1.0)).item() == pytest.approx(24.2)
    assert saddle(tensor(2.0, 0.0)).item() == 5.0
    assert saddle(tensor(0.0, 2.0)).item() == 1.0
    assert plateau(tensor(2.0, 1.0)).item() == pytest.approx(1 - math.exp(-1))


@pytest.mark.parametrize("name", COURSES)
def test_each_course_is_zero_and_flat_at_its_minima_and_curves_up_there(name):
    course = COURSES[name]
    left, right, bottom, top = course.window
    for place in (*course.minima, course.start):
        assert left < place[0] < right
    for minimum in course.minima:
        point = tensor(*minimum)
        assert course.height(point).item() == pytest.approx(0, abs=1e-15)
        slope = torch.autograd.functional.jacobian(course.height, point)
        torch.testing.assert_close(slope, torch.zeros(2).double())
        curvature = torch.linalg.eigvalsh(torch.autograd.functional.hessian(course.height, point))
        assert (curvature > 0).all()
    assert bottom < course.start[1] < top
    assert course.height(tensor(*course.start)) > 0.9


def test_the_valley_has_condition_100_along_turned_axes():
    hessian = torch.autograd.functional.hessian(valley, tensor(0.3, 0.2))
    assert torch.linalg.eigvalsh(hessian).tolist() == pytest.approx([0.5, 50.0])
    assert abs(hessian[0, 1].item()) > 10


def test_the_saddle_has_a_way_down_and_the_plateau_hardly_any():
    curvature = torch.autograd.functional.hessian(saddle, tensor(0.0, 0.0))
    assert curvature.diagonal().tolist() == [2.0, -2.0]
    start = tensor(*COURSES["plateau"].start)
    assert torch.autograd.functional.jacobian(plateau, start).norm() < 0.003


def test_slopes_are_those_of_each_course():
    starts = tensor(*(course.start for course in COURSES.values()))[:, None].expand(-1, 3, -1)
    found = gradients(starts)
    torch.testing.assert_close(found[1, 0], tensor(-215.6, -88.0))
    torch.testing.assert_close(found[2, 2], tensor(3.0, -2e-3 + 1e-9))
    assert heights(starts.expand(5, -1, -1, -1)).shape == (5, 4, 3)


# ------------------------------------------------------------------------------------- the judging


def test_arrival_is_the_first_step_after_which_it_stays():
    back = tensor(1, 0.5, 0.0005, 0.5, 0.0005, 0.0)
    never, lost = tensor(1, 1, 1, 1, 1, 0.5), tensor(1, 0, 0, math.nan, math.nan, math.nan)
    at_once, last = tensor(1, 0, 0, 0, 0, 0), tensor(1, 1, 1, 1, 1, 0.001)
    runs = torch.stack([back, never, lost, at_once, last], dim=1)
    assert arrival(runs, 1e-3).tolist() == [4, math.inf, math.inf, 1, 5]


def test_the_first_to_arrive_is_chosen_or_the_lowest_where_none_does():
    inf, nan = math.inf, math.nan
    arrivals = tensor([inf, 30, 20, inf], [inf, inf, inf, inf])
    ends = tensor([0.0, 0.1, 0.2, nan], [nan, 0.3, 0.2, inf])
    assert choose(arrivals, ends).tolist() == [2, 2]


def test_the_rate_kept_is_the_best_of_the_grid():
    recipe = replace(SMALL, rates=(0.001, 0.01, 0.03, 0.1), steps=300)
    result = recipe.race()
    column = list(COURSES).index("valley")
    start = tensor(*COURSES["valley"].start)
    slope = torch.autograd.functional.hessian(valley, start)
    for i, rule in enumerate(RULES.values()):
        alone = {
            lr: arrival(valley(descend(rule(lr), lambda p: slope @ p, start, 300)), 1e-3).item()
            for lr in recipe.rates
        }
        assert result["arrivals"][i, column].item() == min(alone.values())
        if math.isfinite(min(alone.values())):
            assert alone[round(result["rates"][i, column].item(), 6)] == min(alone.values())
        values = heights(result["paths"][i][:, :, None])[..., 0]
        torch.testing.assert_close(values, result["values"][i])


@pytest.mark.covers("O22")
def test_the_spread_of_batches_follows_their_size():
    losses = torch.rand(5000, generator=torch.Generator().manual_seed(0)).double() ** 2
    found = batch_variance(losses, torch.Generator().manual_seed(1))
    predicted = losses.var(correction=0) / torch.tensor(BATCHES)
    assert (found / predicted - 1).abs().max() < 0.04  # 1 % of sampling error each


def made_up(ends, rates=(0.1,), **more):
    """Cells of three updates for each rule and rate, with these last losses and accuracies."""
    names = [f"{rule}-{lr:g}" for rule in RULES for lr in rates]
    return {
        name: cell(terms={"cross_entropy": [3.0, 2.0, loss]}, test={"accuracy": right})
        for name, (loss, right) in zip(names, ends, strict=True)
    } | more


def test_metrics_by_hand():
    """SGD 60 steps, momentum 30, Nesterov not in 60; one variance is 10 % above the law."""
    arrivals = torch.full((7, 4), 10.0).double()
    arrivals[:3, 0] = tensor(60, 30, math.inf)
    variance = 3.0 / torch.tensor(BATCHES, dtype=torch.float64)
    variance[2] *= 1.1
    result = {
        "arrivals": arrivals,
        "batch_variance": variance,
        "loss_variance": tensor(3.0)[0],
    }
    cells = made_up(
        [(0.5, 0.9), (0.5, 0.8), (0.5, 0.9), (0.5, 0.9), (0.2, 0.95), (0.3, 0.9), (0.4, 0.7)]
    )
    recipe = replace(SMALL, rates=(0.1,), updates=3)
    assert recipe.metrics(Table(cells, result)) == pytest.approx(
        {
            "arrived": 27,
            "momentum_gain": 2.0,
            "nesterov_gain": 60 / 61,
            "lowest_accuracy": 0.7,
            "best_accuracy": 0.95,
            "lion_accuracy": 0.7,
            "variance_error": 0.1,
        }
    )


def test_the_rate_with_the_lowest_training_loss_counts_and_one_that_diverges_does_not():
    recipe = replace(SMALL, rates=(0.1, 0.5), updates=3)
    ends = [(0.5, 0.9), (0.4, 0.8)] * 7
    lost = {
        "adam-0.5": cell(terms={"cross_entropy": [3.0, 1e9]}, diverged=2),
        "lion-0.1": cell(diverged=1),
        "lion-0.5": cell(diverged=1),
    }
    nets = recipe.networks(Table(made_up(ends, recipe.rates, **lost), {}))
    assert (nets["sgd"].rate, nets["sgd"].accuracy) == (0.5, 0.8)
    assert nets["sgd"].losses.tolist() == [3, 2, 0.4]
    assert (nets["adam"].rate, nets["adam"].accuracy) == (0.1, 0.9)
    assert nets["lion"].accuracy == 0
    assert (nets["lion"].losses == math.inf).all()


def test_losses_are_means_over_parts_of_the_run():
    values = torch.arange(33.0)
    made = cell(terms={"cross_entropy": values})
    found = replace(SMALL, updates=33).losses(made)  # sixteen pairs; the last is left out
    assert found.tolist() == [2 * part + 0.5 for part in range(16)]


# ------------------------------------------------------------------------------------- the network


def test_every_rule_starts_from_the_same_weights_and_batches(small):
    assert list(small.cells) == [f"{rule}-{lr:g}" for rule in RULES for lr in SMALL.rates]
    losses = {name: cell.terms["cross_entropy"][1] for name, cell in small.cells.items()}
    assert len({values[0].item() for values in losses.values()}) == 1
    assert len({values[-1].item() for values in losses.values()}) == len(losses)
    assert all(len(values) == SMALL.updates for values in losses.values())


@pytest.mark.covers("O22")
def test_the_losses_of_batches_are_those_of_the_untrained_network(small):
    data = SMALL.first().dataset()
    model = begin(SMALL.first(), data).model
    first = evaluate(SMALL.first(), model, data.valid)["cross_entropy"]
    assert first == pytest.approx(small.cells["adam-0.003"].valid["cross_entropy"][0].item())
    x, y = data.whole
    each = torch.nn.functional.cross_entropy(model(x), y, reduction="none").double()
    assert small.result["loss_variance"].item() == pytest.approx(each.var(correction=0).item())
    ratio = small.result["batch_variance"] * torch.tensor(BATCHES) / small.result["loss_variance"]
    assert (ratio - 1).abs().max() < 0.1


def test_the_rules_are_those_a_recipe_can_name():
    assert set(RULES) <= set(OPTIMIZERS)
    assert list(NAMES) == list(RULES)
    assert [name for team in TEAMS.values() for name in team] == list(NAMES.values())


# -------------------------------------------------------------------------------- the whole recipe


@pytest.mark.slow
@pytest.mark.covers("O25", "O26", "O28")
def test_the_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["optimiser-race"]
    result = run(recipe, tmp_path)
    assert result.reached
    assert result.metrics["nesterov_gain"] > result.metrics["momentum_gain"]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("O30")
def test_lion_on_mnist():
    recipe = OneHiddenLayer(
        data="mnist", hidden_size=128, steps=2000, batch_size=128, lr=3e-4, optimizer="lion"
    )
    data = recipe.dataset()
    assert evaluate(recipe, trained(recipe, data), data.test)["accuracy"] >= 0.97


def test_pictures_show_every_rule_on_every_course(small):
    maps = SMALL.picture_paths(small).axes
    named = [axes.get_ylabel().replace("\n", " ") for axes in maps[::2]]
    for label, course in zip(named, COURSES.values(), strict=True):
        assert label.startswith(course.title)
    columns = [axes.get_legend_handles_labels()[1] for axes in maps[:2]]
    assert columns == [list(team) for team in TEAMS.values()]
    assert len(SMALL.picture_curves(small).axes) == 6
    written = [text.get_text() for text in SMALL.picture_table(small).axes[0].texts]
    assert set(NAMES.values()) <= set(written)
    assert sum("rate" in text for text in written) >= 35


def test_a_table_prints_the_best_bold_and_a_map_marks_the_minima():
    table = standings(["a", "b"], {"x": ["1", "2\nsmall"], "y": ["3", "4"]}, best=[1, 0])
    bold = [t.get_text() for t in table.axes[0].texts if t.get_weight() == "bold"]
    assert bold == ["a", "b", "2", "3"]
    course = Course("t", saddle, (0, 0), ((0.5, 0.5), (-0.5, 0.5)), (-1, 1, -1, 1))
    axes = courses([(course, {"x": torch.zeros(3, 2).double()})], {"team": ["x"]}).axes[0]
    stars = [line.get_xydata()[0].tolist() for line in axes.lines if line.get_marker() == "*"]
    assert stars == [[0.5, 0.5], [-0.5, 0.5]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rates": ()}, r"rates \(\(\)\) must be at least one number"),
        ({"rates": (0.1, -1.0)}, r"rates \(\(0.1, -1.0\)\) must be positive numbers"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"tolerance": 1.0}, r"tolerance \(1.0\) must be a number between 0 and 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"updates": 0}, r"updates \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        OptimiserRace(**fields)
