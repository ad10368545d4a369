import math
from itertools import combinations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from everynet import autodiff as ad
from everynet.autodiff.graph import Var
from everynet.plot.style import LEAST, WIDTH
from everynet.system.errors import UserError
from everynet.zoo.feedforward.backprop import (
    EPS,
    RECIPES,
    Backpropagation,
    best_step,
    central_differences,
    count_operations,
    doubles,
    forward_mode,
    named,
    perceptron_error,
    reverse_mode,
    rounding,
    rounding_of_error,
    slopes,
    third_derivatives,
    truncation,
    two_units,
    walk,
)
from everynet.zoo.feedforward.pictures.expression import (
    Shown,
    expression_graphs,
    number,
    walk_frames,
)
from tests.zoo.theory.simulated import simulate_metrics

TIMES = "\N{MULTIPLICATION SIGN}"
VALUES = [0.5, -0.2, 1.5, -1.1, 0.3, -0.8]


def olah():
    """The graph of e = (a + b)(b + 1) at a = 2, b = 1, whose derivatives are known by heart."""
    a, b = Var(2.0, name="a"), Var(1.0, name="b")
    return a, b, slopes((a + b) * (b + 1.0))


def torch_gradient(values, x, t):
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    return torch.autograd.grad(perceptron_error(leaves, x, t), leaves)


# --------------------------------------------------------------------------------------- equations


@pytest.mark.covers("A1")
def test_the_error_is_that_of_a_perceptron_with_two_layers():
    w, b, v = np.reshape(VALUES, (2, 3)).T
    expected = (v @ np.tanh(w * 0.7 + b) - 1.0) ** 2
    assert float(perceptron_error(named(VALUES), 0.7, 1.0)) == pytest.approx(expected, rel=1e-14)
    assert [leaf.name for leaf in named(VALUES)] == ["w1", "b1", "v1", "w2", "b2", "v2"]


@pytest.mark.covers("A1", "A2")
def test_one_pass_back_gives_the_derivative_by_every_node():
    a, b, edges = olah()
    c, d, e = edges
    assert [[slope for _, slope in edges[y]] for y in (c, d, e)] == [[1, 1], [1], [2, 3]]
    gradient, products = reverse_mode(edges)
    assert {y: gradient[y] for y in (a, b, c, d, e)} == {a: 2, b: 5, c: 2, d: 3, e: 1}
    assert products == 5


@pytest.mark.covers("A4")
def test_one_pass_on_gives_the_derivative_of_every_node():
    a, b, edges = olah()
    c, d, e = edges
    for p, expected in ((b, (0, 1, 1, 1, 5)), (a, (1, 0, 1, 0, 2))):
        tangent, products = forward_mode(edges, p)
        assert tuple(tangent[y] for y in (a, b, c, d, e)) == expected
        assert products == 5


@pytest.mark.parametrize("units", [1, 2, 9])
@pytest.mark.covers("A2", "A4")
def test_both_modes_and_the_engine_are_torchs(units):
    values = torch.randn(3 * units, generator=torch.Generator().manual_seed(units)).double()
    leaves = named(values.tolist())
    y = perceptron_error(leaves, 0.7, 1.0)
    y.backward()
    edges = slopes(y)
    gradient, _ = reverse_mode(edges)
    theirs = [float(g) for g in torch_gradient(values.tolist(), 0.7, 1.0)]
    assert [float(p.grad) for p in leaves] == pytest.approx(theirs, rel=1e-13)
    assert [gradient[p] for p in leaves] == pytest.approx(theirs, rel=1e-13)
    assert [forward_mode(edges, p)[0][y] for p in leaves] == pytest.approx(theirs, rel=1e-13)


@pytest.mark.covers("A5")
def test_a_central_difference_is_its_definition():
    x, t, h = 0.7, 1.0, 0.25
    found = central_differences(doubles(VALUES), x, t, h)
    for i in range(6):
        ahead, behind = ([v + s * (j == i) for j, v in enumerate(VALUES)] for s in (h, -h))
        by_hand = float(perceptron_error(ahead, x, t)) - float(perceptron_error(behind, x, t))
        assert found[i].item() == pytest.approx(by_hand / 0.5, rel=1e-12)


def test_third_derivatives_are_torchs():
    found = third_derivatives(VALUES, 0.7, 1.0)
    for i in range(6):
        p = torch.tensor(VALUES[i], dtype=torch.float64, requires_grad=True)
        y = perceptron_error([*doubles(VALUES[:i]), p, *doubles(VALUES[i + 1 :])], 0.7, 1.0)
        for _ in range(2):
            (y,) = torch.autograd.grad(y, p, create_graph=True)
        third = torch.autograd.grad(y, p)[0].item() if y.requires_grad else 0.0
        assert found[i].item() == pytest.approx(third, rel=1e-9, abs=1e-12)
    assert found[2] == pytest.approx(0, abs=1e-12), "E is a parabola in v"


def test_truncation_is_the_next_term_of_taylors_series():
    """Of p^3 the central difference errs by h^2 alone, which is h^2 E''' / 6 with E''' = 6."""
    assert truncation(doubles([0.1]), -6.0).item() == pytest.approx(0.01)


def test_rounding_sums_over_the_operations_that_a_parameter_reaches():
    a, b, edges = olah()
    both = math.sqrt((3 * 2) ** 2 + (2 * 3) ** 2 + 6**2) / math.sqrt(12)
    without_d = math.sqrt((3 * 2) ** 2 + 6**2) / math.sqrt(12)
    assert rounding_of_error(edges, b) / EPS == pytest.approx(both, rel=1e-12)
    assert rounding_of_error(edges, a) / EPS == pytest.approx(without_d, rel=1e-12)


def test_rounding_of_two_evaluations_is_that_of_noise():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 200_000, generator=generator, dtype=torch.float64)
    measured = ((noise[0] - noise[1]) / (2 * 0.1)).std()
    assert rounding(doubles([0.1]), 1.0).item() == pytest.approx(measured.item(), rel=0.01)


def test_the_best_step_is_where_both_errors_together_are_least():
    h = torch.logspace(-8, -2, 60_001, dtype=torch.float64)
    total = truncation(h, 2.5) + rounding(h, 1e-16)
    assert best_step(1e-16, -2.5) == pytest.approx(h[total.argmin()].item(), rel=1e-3)


def test_operations_are_counted():
    """One unit: x w, + b, tanh, v *, - t, ^ 2 are six operations; an edge for each variable."""
    parameters, operations, forth, back = count_operations(1, VALUES, 0.7, 1.0)
    edges = 1 + 2 + 1 + 2 + 1 + 1
    assert (parameters, operations) == (3, 6)
    assert (back, forth) == (6 + edges, 6 + 3 * edges)
    assert count_operations(2, VALUES, 0.7, 1.0)[1] == 2 * 4 + 1 + 2


# ------------------------------------------------------------------------------------- the recipe


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.covers("A1", "A2", "A4", "A5")
def test_the_goal_is_reached(seed):
    metrics, reached = simulate_metrics(RECIPES["backprop"], seed)
    assert reached
    assert metrics["forward_difference"] < 1e-13
    assert metrics["central_difference"] < 1e-8
    assert 0.2 < metrics["rounding_share"] < 1.2
    assert 0.3 < metrics["best_step"] < 3
    assert metrics["passes"] == 192
    assert metrics["reverse_cost"] < 3 < metrics["forward_cost"]


def test_metrics_of_a_made_up_result():
    h = 0.5 ** torch.arange(1.0, 45.0, dtype=torch.float64)
    errors = h**2.2 + 1e-16 * h**-0.9
    result = {
        "steps": h, "gradient": doubles([1.0, 2.0]), "torch": doubles([1.0, 2.5]),
        "forward": doubles([0.75, 2.0]), "differences": doubles([1.0, 2.0]) + errors[:, None],
        "third": doubles([6.0, 6.0]), "rounding": doubles([1e-16, 1e-16]),
        "counts": torch.tensor([[3, 1, 1, 1], [9, 10, 100, 20]]),
    }  # fmt: skip
    metrics = Backpropagation().metrics(result)
    assert metrics["torch_difference"] == 0.5
    assert metrics["forward_difference"] == 0.25
    assert metrics["central_difference"] == pytest.approx(errors.min().item(), abs=1e-15)
    assert metrics["truncation_slope"] == pytest.approx(2.2, abs=0.01)
    assert metrics["rounding_slope"] == pytest.approx(-0.9, abs=0.01)
    assert metrics["slope_error"] == pytest.approx(0.2, abs=0.01)
    assert (metrics["passes"], metrics["forward_cost"], metrics["reverse_cost"]) == (9, 10, 2)


# ----------------------------------------------------------------------------------------- pictures


@pytest.fixture(scope="module")
def drawn():
    recipe = RECIPES["backprop"]
    return recipe.draw(recipe.simulate(torch.Generator().manual_seed(0)))


def texts(figure):
    return [text for axes in figure.axes for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("name", ["perceptron", "modes"])
def test_no_text_of_a_graph_is_small_or_lies_on_another_or_off_the_paper(drawn, name):
    figure = drawn[name].figure
    FigureCanvasAgg(figure).draw()
    assert figure.get_size_inches()[0] <= WIDTH
    assert all(text.get_fontsize() >= LEAST for text in texts(figure))
    boxes = [text.get_window_extent() for text in texts(figure)]
    overlapping = [
        (a, b) for a, b in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 3
    ]  # fmt: skip
    assert not overlapping
    width, height = figure.canvas.get_width_height()
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_a_graph_shows_operations_values_slopes_and_gradients(drawn):
    said = [text.get_text() for text in texts(drawn["modes"].figure)]
    assert said[:5] == ["2", "3", "1", "1", "1"], "slopes, from the last operation back"
    back = {said[i]: said[i + 1 : i + 3] for i in range(5, 20, 3)}
    assert back == {TIMES: ["6", "← 1"], "+": ["3", "← 2"], "+ 1": ["2", "← 3"],
                    "a": ["2", "← 2"], "b": ["1", "← 5"]}  # fmt: skip
    assert said[20] == "reverse mode: de / d(node)"
    forth = {said[i]: said[i + 2] for i in range(26, 41, 3)}
    assert forth == {TIMES: "→ 5", "+": "→ 1", "+ 1": "→ 1", "a": "→ 0", "b": "→ 1"}


def test_the_caption_adds_what_meets_at_the_input(drawn):
    first, second, total = (
        float(word) for word in drawn["perceptron"].caption.rstrip(".").replace("- ", "-")
        .replace("+ ", "").partition("meet: ")[2].replace("= ", "").split()
    )  # fmt: skip
    assert first + second == pytest.approx(total, abs=0.011)
    said = [text.get_text() for text in texts(drawn["perceptron"].figure)]
    assert said[said.index("x") + 2] == f"← {number(total)}"


def test_the_dashes_of_both_errors_end_where_the_other_is_larger(drawn):
    close, cost = drawn["steps"].figure.axes
    truncating, rounded = close.lines[1], close.lines[2]
    slope = [np.polyfit(np.log(g.get_xdata()), np.log(g.get_ydata()), 1)[0]
             for g in (truncating, rounded)]  # fmt: skip
    assert slope == pytest.approx([2, -1])
    reverse, forward, differences = (line.get_ydata() for line in cost.lines[:3])
    assert reverse.max() < 3
    assert np.all(forward[1:] > forward[:-1])
    np.testing.assert_allclose(differences, 2 * cost.lines[2].get_xdata())


def test_numbers_are_short():
    assert [number(v) for v in (1.0, -0.001, -1.5, 12.346)] == ["1", "0", "−1.5", "12.35"]  # noqa: RUF001


def test_a_graph_of_one_operation_is_drawn():
    x = Var(3.0, name="x")
    edges = slopes(ad.exp(x))
    figure = expression_graphs(Shown(edges, reverse_mode(edges)[0]))
    assert "exp" in [text.get_text() for text in texts(figure)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": ()}, r"units \(\(\)\) must be one number or more"),
        ({"units": (1, 301)}, r"units \(\(1, 301\)\) must be numbers from 1 to 300"),
        ({"hidden": 1}, r"hidden \(1\) must be a number from 2 to 300"),
        ({"steps": 39}, r"steps \(39\) must be a number from 40 to 50"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Backpropagation(**fields)


def test_the_walk_of_the_film_computes_values_and_then_gradients():
    leaves = named(VALUES)
    edges = slopes(perceptron_error(leaves, Var(0.7, name="x"), Var(1.0, name="t")))
    steps = [shown for shown, _ in walk(edges)]
    assert len(steps) == 2 * len(edges) + 2
    operations = [*edges]
    for count, shown in enumerate(steps[1 : len(edges) + 1], 1):
        assert shown.derivatives == {}
        assert [y for y in operations if shown.has(y)] == operations[:count]
    gradient, _ = reverse_mode(edges)
    assert steps[-1].derivatives == gradient
    assert set(steps[len(edges) + 1].derivatives) == {operations[-1]}


def test_the_film_ends_with_every_value_and_gradient():
    result = {"input": doubles([0.7, 1.0]), "parameters": doubles(VALUES)}
    edges = two_units(result)
    whole, steps = Shown(edges, reverse_mode(edges)[0]), [*walk(edges)]
    first, last = walk_frames(whole, [steps[0], steps[-1]])
    said = [[text.get_text() for text in drawn.axes[0].texts] for drawn in (first, last)]
    for node, value in whole.derivatives.items():
        assert f"← {number(value)}" in said[1]
        assert number(float(node)) in said[1]
    assert not [text for text in said[0] if "←" in text]
    shrunk = min(1.0, WIDTH / last.get_size_inches()[0])
    assert all(shrunk * text.get_fontsize() >= LEAST for text in last.axes[0].texts)
