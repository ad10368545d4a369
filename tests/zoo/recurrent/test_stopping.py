"""Three ways to stop: probabilities written out, what they sum to, and what is drawn."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from scipy import stats

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.recurrent.stopping import (
    NOTHING,
    RULES,
    chi_squared,
    counted,
    every_sequence,
    joint,
)

SYMBOLS, LONGEST = 3, 4


@pytest.fixture(params=RULES)
def rule(request):
    recipe = replace(find("stopping"), symbols=SYMBOLS, hidden_size=5, longest=LONGEST)
    return recipe.network(request.param, torch.Generator().manual_seed(3))


def by_hand(rule, y):
    """The probability of one sequence, symbol by symbol, from the weights alone."""
    weights = dict(rule.named_parameters())
    u, w, b = (
        weights[f"chain.{n}"] for n in ("symbol.weight", "recurrent.weight", "recurrent.bias")
    )
    v, c = weights["chain.output.weight"], weights["chain.output.bias"]
    kind, n, p = type(rule).__name__, len(y), 1.0

    def state(before, h, t):
        r = weights["left.weight"][:, 0] * max(n - t, 0) if kind == "SampledLength" else 0.0
        return torch.tanh(u[before] + w @ h + b + r)

    h = state(SYMBOLS, torch.zeros(5).double(), 1)
    if kind == "SampledLength":
        p = weights["length"].softmax(0)[n - 1].item()
    for t, symbol in enumerate(y, 1):
        p *= (v @ h + c).softmax(0)[symbol].item()
        h = state(symbol, h, t + 1)
        if kind == "HaltUnit":
            q = torch.sigmoid(weights["halt.weight"][0] @ h + weights["halt.bias"][0]).item()
            p *= q if t == n else 1 - q
    return p * (v @ h + c).softmax(0)[SYMBOLS].item() if kind == "EndSymbol" else p


def unfinished(rule):
    """The probability of having said `LONGEST` symbols without an end, by hand."""
    total = 0.0
    for y in product(range(SYMBOLS), repeat=LONGEST):
        p, h = 1.0, rule.chain.init_state(1)
        for symbol in y:
            p *= rule.chain.log_p(h)[0, symbol].exp().item()
            h = rule.chain(torch.tensor([symbol]), h)
            if type(rule).__name__ == "HaltUnit":
                p *= 1 - torch.sigmoid(rule.halt(h))[0, 0].item()
        end = rule.chain.log_p(h)[0, SYMBOLS].exp().item() if rule.shortest == 0 else 0.0
        total += p * (1 - end)
    return total


@pytest.mark.covers("R13")
@torch.no_grad()
def test_the_probability_of_a_sequence_is_the_product_written_out(rule):
    for n in range(rule.shortest, LONGEST + 1):
        every = every_sequence(SYMBOLS, n)
        assert every.tolist() == [list(y) for y in product(range(SYMBOLS), repeat=n)]
        found = rule.log_prob(every).exp()
        for y, p in list(zip(every.tolist(), found.tolist(), strict=True))[::7]:
            assert p == pytest.approx(by_hand(rule, y), rel=1e-12)


@pytest.mark.covers("R13")
@torch.no_grad()
def test_all_sequences_and_those_without_an_end_sum_to_one(rule):
    found = joint(rule)
    assert len(found) == 1 + 3 + 9 + 27 + 81 + 1
    every = [rule.log_prob(every_sequence(SYMBOLS, n)).exp() for n in range(1, LONGEST + 1)]
    torch.testing.assert_close(found[1:-1], torch.cat(every))
    assert (found[0] > 0) == (rule.shortest == 0)
    longer = 0.0 if type(rule).__name__ == "SampledLength" else unfinished(rule)
    assert found[-1].item() == pytest.approx(longer, abs=1e-12)


@pytest.mark.covers("R13")
@torch.no_grad()
def test_what_is_drawn_has_the_frequencies_of_the_joint_and_its_lengths(rule):
    count = 20_000
    y, lengths = rule.sample(count, torch.Generator().manual_seed(0))
    inside = torch.arange(LONGEST) < lengths[:, None]
    assert ((y == NOTHING) == ~inside).all()
    assert y[inside].min() >= 0
    assert y[inside].max() < SYMBOLS
    counts, exact = counted(rule, (y, lengths)), joint(rule)
    assert counts.sum() == count
    assert counts[-1] == (lengths > LONGEST).sum()
    assert chi_squared(counts, exact)[1] > 0.01
    recipe = replace(find("stopping"), longest=LONGEST)
    each, often = (recipe.by_length(part[None])[0] for part in (exact, counts / count))
    assert len(each) == LONGEST + 2
    assert often[2] == pytest.approx((lengths == 2).double().mean().item())
    assert ((often - each).abs() <= 4 * (each * (1 - each) / count).sqrt() + 1e-6).all()


def test_counts_go_to_the_sequence_they_are_of(rule):
    y = torch.tensor([[2, 0, 1, NOTHING], [1, NOTHING, NOTHING, NOTHING], [2, 0, 1, NOTHING],
                      [1, 1, 1, 1], [NOTHING] * 4])  # fmt: skip
    found = counted(rule, (y, torch.tensor([3, 1, 3, LONGEST + 1, 0])))
    expected = {0: 1, 1 + 1: 1, 1 + 3 + 9 + (2 * 9 + 0 * 3 + 1): 2, 1 + 3 + 9 + 27 + 81: 1}
    assert {place: int(n) for place, n in enumerate(found) if n} == expected
    assert len(found) == 1 + 3 + 9 + 27 + 81 + 1


def test_chi_squared_is_scipys_with_rare_kinds_put_together():
    counts, p = torch.tensor([30, 50, 20]), torch.tensor([0.25, 0.5, 0.25]).double()
    expected = stats.chisquare(counts.numpy(), (100 * p).numpy())
    assert chi_squared(counts, p) == pytest.approx((expected.statistic, expected.pvalue))
    rare = torch.tensor([0.02, 0.5, 0.40, 0.04, 0.04]).double()
    counts = torch.tensor([4, 45, 41, 3, 7])
    expected = stats.chisquare([45, 41, 14], [50, 40, 10])
    assert chi_squared(counts, rare) == pytest.approx((expected.statistic, expected.pvalue))
    few = torch.tensor([0.5, 0.47, 0.03]).double()  # 3 expected: they go with the last
    expected = stats.chisquare([45, 55], [50, 50])
    found = chi_squared(torch.tensor([45, 50, 5]), few)
    assert found == pytest.approx((expected.statistic, expected.pvalue))
    assert chi_squared(torch.tensor([80, 10, 10]), p)[1] < 1e-10
    assert chi_squared(torch.tensor([2, 2]), torch.tensor([0.5, 0.5]).double()) == (0, 1)


def test_the_recipe_reaches_its_goal_with_fewer_samples():
    recipe = replace(find("stopping"), longest=4, samples=50_000)
    figures = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert figures["smallest_p"] > 0.01
    assert figures["length_error"] < 0.01


def test_the_picture_shows_both_and_what_is_longer():
    recipe = replace(find("stopping"), symbols=2, longest=1, samples=100)
    p, counts = torch.tensor([0.2, 0.25, 0.25, 0.3]), torch.tensor([25, 25, 25, 25])
    axes = recipe.picture_lengths({"probabilities": p.expand(3, 4), "counts": counts.expand(3, 4)})
    axes = axes.axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([0.25, 0.5, 0.25])
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.2, 0.5, 0.3])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", ">1"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"symbols": 1}, r"symbols \(1\) must be at least 2"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"longest": 0}, r"longest \(0\) must be at least 1"),
        ({"longest": 20}, r"longest \(20\) must be smaller: 3\^longest sequences are all written"),
        ({"samples": 99}, r"samples \(99\) must be at least 100"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("stopping"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R13")
def test_the_whole_recipe(tmp_path):
    result = runs.run(find("stopping"), tmp_path)
    assert result.reached, result.metrics
