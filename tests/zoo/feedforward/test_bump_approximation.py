import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.feedforward.bump_approximation import (
    RECIPES,
    TARGETS,
    Bumps,
    build_network,
    bump_edges,
    bump_middles,
    error_bound,
    sum_bumps,
)
from everynet.zoo.feedforward.mlp import MLP

SINE, KINK = TARGETS.values()


def grid(points=4001):
    return torch.linspace(0, 1, points, dtype=torch.float64)


def values(model, x):
    with torch.no_grad():
        return model(x[:, None])[:, 0]


# --------------------------------------------------------------------------------------- equations


def test_four_bumps_by_hand():
    """Edges a cell past either end; read in the middles; each plateau is worth what was read."""
    assert bump_edges(4).tolist() == [-0.25, 0.25, 0.5, 0.75, 1.25]
    assert bump_middles(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    model = build_network(torch.tensor([5.0, -2.0, 7.0, 1.0]).double(), bump_edges(4), 1e4)
    at = torch.tensor([0.0, 0.2, 0.3, 0.49, 0.6, 0.8, 1.0]).double()
    assert values(model, at).tolist() == pytest.approx([5, 5, -2, -2, 7, 1, 1], abs=1e-12)
    assert values(model, torch.tensor([0.25, 0.5]).double()).tolist() == pytest.approx([1.5, 2.5])


@given(heights=st.lists(st.floats(-3, 3), min_size=1, max_size=6), w=st.floats(10, 1e3, width=32))
@settings(max_examples=20, deadline=None)
def test_the_network_is_the_sum_of_the_bumps(heights, w):
    high, b = torch.tensor(heights).double(), bump_edges(len(heights))
    expected = sum_bumps(grid(201), high, b, w)
    torch.testing.assert_close(values(build_network(high, b, w), grid(201)), expected)


@given(w=st.floats(10, 1e4, width=32), x=st.floats(-1, 2))
@settings(max_examples=25, deadline=None)
def test_a_hidden_unit_is_a_step_that_sharpens(w, x):
    model = build_network(torch.ones(1).double(), torch.tensor([0.4, 0.6], dtype=torch.float64), w)
    rise, fall = model.hidden(torch.tensor([[x]], dtype=torch.float64))[1][0].tolist()
    for value, b in ((rise, 0.4), (fall, 0.6)):
        assert value == pytest.approx(0.5 * (1 + math.tanh(w * (x - b) / 2)), abs=1e-9)
        step = 1.0 if x > b else 0.0
        assert abs(value - step) <= math.exp(-w * abs(x - b)) + 1e-9
    assert values(model, torch.tensor([x], dtype=torch.float64)).item() == pytest.approx(
        rise - fall
    )


@pytest.mark.covers("F8")
@given(
    knots=st.lists(st.floats(-1, 1), min_size=3, max_size=9),
    bumps=st.integers(1, 40),
    steepness=st.floats(40, 1e4),
)
@settings(max_examples=25, deadline=None)
def test_the_bound_holds_for_any_broken_line(knots, bumps, steepness):
    heights = torch.tensor(knots, dtype=torch.float64)
    lipschitz = heights.diff().abs().max().item() * (len(knots) - 1)

    def f(x):
        place = x * (len(knots) - 1)
        left = place.floor().long().clamp(max=len(knots) - 2)
        return heights[left] + (place - left) * (heights[left + 1] - heights[left])

    x = grid(40 * bumps + 1)
    error = (f(x) - values(Bumps(steepness=steepness).build(f, bumps), x)).abs().max().item()
    assert error <= error_bound(lipschitz, torch.tensor([bumps]).double()).item() + 1e-9


@pytest.mark.covers("F8")
def test_lipschitz_constants_are_those_of_the_functions():
    for f, lipschitz in (SINE, KINK):
        slope = f(grid()).diff().abs().max().item() * 4000
        assert slope == pytest.approx(lipschitz, rel=1e-5)


def test_bumps_that_stop_at_the_ends_keep_half_their_value_there_for_ever():
    """Why the first and the last reach past the interval: |x - 1/2| at 0 is 1/2, the sum 1/4."""
    f, _ = KINK
    for n in (8, 64, 512):
        short = torch.arange(n + 1, dtype=torch.float64) / n
        error = (
            (f(grid()) - values(build_network(f(bump_middles(n)), short, 200.0 * n), grid()))
            .abs()
            .max()
        )
        assert error.item() == pytest.approx(0.25 + 0.25 / n, abs=1e-6)


@given(bumps=st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_the_bumps_add_to_one_on_the_interval(bumps):
    model = build_network(torch.ones(bumps).double(), bump_edges(bumps), 200.0 * bumps)
    assert (values(model, grid()) - 1).abs().max().item() < 1e-12


# ------------------------------------------------------------------------------------ the recipe


@pytest.mark.covers("F8")
def test_it_is_a_plain_network_of_2n_units_in_any_precision():
    """Its saved weights, loaded into a new MLP, give the same answers, in float32 nearly so."""
    recipe = Bumps()
    result = recipe.simulate(torch.Generator())
    for row, (f, lipschitz) in enumerate((SINE, KINK)):
        prefix = f"{row}."
        weights = {k.removeprefix(prefix): v for k, v in result.items() if k.startswith(prefix)}
        model = MLP((1, 2 * 8, 1), "sigmoid").double()
        model.load_state_dict(weights)
        assert torch.equal(values(model, grid()), values(recipe.build(f, 8), grid()))
        x = grid(8 * recipe.points + 1)
        error = (values(model, x) - f(x)).abs().max()
        assert error == result["errors"][row, 0]
        assert error <= error_bound(lipschitz, torch.tensor([8.0]).double()) + 1e-12
        single = values(model.float(), x.float()).double()
        assert (single - f(x)).abs().max().item() == pytest.approx(error.item(), rel=1e-3)


@pytest.mark.covers("F8")
def test_the_default_recipe_reaches_its_goal(tmp_path):
    recipe = RECIPES["bump-approximation"]
    metrics = run(recipe, tmp_path, device="cpu").metrics
    assert all(goal.reached(metrics) for goal in recipe.goals())
    assert metrics["share_of_bound"] > 0.9  # the bound is sharp: a half of it would not hold


def test_errors_by_hand_and_their_ratio():
    """|x - 1/2| misses by delta / 2 at its ends; the metrics are of the worst function and pair."""
    errors = Bumps(bumps=(8, 16)).simulate(torch.Generator())["errors"]
    assert errors[1].tolist() == pytest.approx([1 / 16, 1 / 32], abs=1e-12)
    assert errors[0].tolist() == pytest.approx([math.sin(math.pi / n) for n in (8, 16)], abs=1e-9)
    made = Bumps(bumps=(8, 16)).metrics({"errors": torch.tensor([[1.0, 0.4], [0.1, 0.05]])})
    assert made["halving_error"] == pytest.approx(0.5)
    assert made["share_of_bound"] == pytest.approx(max(16 / (2 * math.pi), 1.6))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bumps": (8,)}, r"bumps \(\(8,\)\) must be two numbers or more, each doubled"),
        ({"bumps": (8, 24)}, r"bumps .* must be two numbers or more, each doubled"),
        ({"bumps": (0, 0)}, r"bumps .* must be positive"),
        ({"steepness": 5.0}, r"steepness \(5.0\) must be from 40 to 1e6: flatter bumps"),
        ({"points": 1}, r"points \(1\) must be at least 2"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        Bumps(**fields)
