"""Backpropagation through time by hand against torch's, whole, in parts and in windows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.recurrent import bptt
from everynet.zoo.recurrent.bptt import (
    LabelledSequence,
    Weights,
    by_autograd,
    kept_bytes,
    loss,
    parts,
    run,
    same_window,
    through_time,
    truncated,
)
from everynet.zoo.recurrent.pictures.through_time import parts_by_lag

NAMES = ("u", "w", "b", "v", "c")


@pytest.fixture
def drawn():
    recipe = replace(find("bptt"), input_size=3, hidden_size=4, classes=5)
    return recipe.draw_network(torch.Generator().manual_seed(1), 7)


def torchs(net, given, h, window):
    """The gradients of torch's own layers and loss, the state detached between windows."""
    inputs, units, classes = net.u.shape[1], net.u.shape[0], len(net.c)
    layer = torch.nn.RNN(inputs, units, batch_first=True).double()
    head = torch.nn.Linear(units, classes).double()
    layer.load_state_dict(
        {
            "weight_ih_l0": net.u,
            "weight_hh_l0": net.w,
            "bias_ih_l0": net.b,
            "bias_hh_l0": torch.zeros_like(net.b),
        }
    )
    head.load_state_dict({"weight": net.v, "bias": net.c})
    h = h[None, None]
    for x, y, alpha in zip(*(part.split(window) for part in given), strict=True):
        states, h = layer(x[None], h.detach())
        (alpha * cross_entropy(head(states[0]), y, reduction="none")).sum().backward()
    return Weights(
        layer.weight_ih_l0.grad, layer.weight_hh_l0.grad, layer.bias_ih_l0.grad,
        head.weight.grad, head.bias.grad,
    )  # fmt: skip


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.covers("R2")
def test_every_gradient_by_hand_is_that_of_torchs_layers_and_loss(drawn):
    found, _ = through_time(*drawn)
    for name, expected in zip(NAMES, torchs(*drawn, window=7), strict=True):
        close(getattr(found.weights, name), expected)


@pytest.mark.covers("R2")
def test_gradients_for_logits_and_states_are_autograds_and_the_state_is_the_last(drawn):
    found, last = through_time(*drawn)
    expected = by_autograd(*drawn)
    for one, other in zip(
        (*found.weights, *found[1:]), (*expected.weights, *expected[1:]), strict=True
    ):
        close(one, other)
    net, given, h = drawn
    close(last, run(net, given.x, h)[0][-1])


@pytest.mark.covers("R2")
def test_gradients_are_the_slopes_of_the_weighted_loss(drawn):
    """Differences of the loss itself, which knows nothing of gradients."""
    net, given, h = drawn
    found, _ = through_time(net, given, h)

    def value(changed):
        return loss(torch.stack(run(changed, given.x, h)[1]), given.y, given.alpha)

    for number, gradient in enumerate(found.weights):
        for place in range(0, gradient.numel(), 3):
            both = []
            for step in (1e-6, -1e-6):
                moved = [part.clone() for part in net]
                moved[number].view(-1)[place] += step
                both.append(value(Weights(*moved)))
            slope = (both[0] - both[1]) / 2e-6
            close(slope, gradient.view(-1)[place], 1e-7)


def test_a_loss_of_two_tokens_in_closed_form():
    """One unit, one class against another, written out."""
    one = torch.ones(1, dtype=torch.float64)
    v, x, alpha = (
        torch.stack([one, 0 * one]),
        torch.tensor([[1.0], [-2.0]]),
        torch.tensor([2.0, 3.0]),
    )
    net = Weights(0.5 * one[None], 0.7 * one[None], 0.1 * one, v, 0 * one.expand(2))
    given = LabelledSequence(x.double(), torch.tensor([0, 1]), alpha.double())
    h_0 = 0.3 * one
    h_1 = torch.tanh(0.5 * 1 + 0.7 * 0.3 + 0.1 * one)
    h_2 = torch.tanh(0.5 * -2 + 0.7 * h_1 + 0.1)
    to_o = torch.stack([2 * (torch.sigmoid(h_1) - 1), 3 * torch.sigmoid(h_2)])[:, 0]
    a_2 = (1 - h_2**2) * to_o[1]
    a_1 = (1 - h_1**2) * (to_o[0] + 0.7 * a_2)
    found, last = through_time(net, given, h_0)
    close(last, h_2)
    close(found.o, torch.stack([to_o, -to_o], 1))
    close(found.weights.w[0], a_1 * h_0 + a_2 * h_1)
    close(found.weights.u[0], a_1 * 1 + a_2 * -2)
    close(found.weights.b, a_1 + a_2)
    close(found.weights.v[0], to_o[:1] * h_1 + to_o[1:] * h_2)
    close(found.weights.c, torch.stack([to_o.sum(), -to_o.sum()]))


@pytest.mark.covers("R3")
@pytest.mark.parametrize("window", [1, 2, 3, 7, 100])
def test_a_window_is_torchs_with_the_state_detached_and_the_explicit_sum(drawn, window):
    found = truncated(*drawn, window)
    for name, expected in zip(NAMES, torchs(*drawn, window), strict=True):
        close(getattr(found.weights, name), expected)
    every = parts(*drawn)
    inside = sum(every[t, k] for t in range(7) for k in range(t + 1) if t // window == k // window)
    close(found.weights.w, inside)
    same = same_window(7, window)
    assert [same[t, k] for t, k in ((0, 0), (6, 6), (6, 0))] == [1, 1, float(window >= 7)]
    close(torch.einsum("tk,tkij->ij", same, every), inside)
    whole, _ = through_time(*drawn)
    assert torch.allclose(found.weights.w, whole.weights.w, atol=1e-12) == (window >= 7)


@pytest.mark.covers("R2")
def test_a_part_is_the_gradient_of_one_loss_through_one_use_of_the_weights(drawn):
    net, given, h = drawn
    every = parts(net, given, h)
    for t in (0, 3, 6):
        copies = [net.w.clone().requires_grad_() for _ in range(7)]
        state = h
        for k in range(t + 1):
            state = torch.tanh(net.u @ given.x[k] + copies[k] @ state + net.b)
        nats = cross_entropy(net.v @ state + net.c, given.y[t])
        gradients = torch.autograd.grad(given.alpha[t] * nats, copies[: t + 1])
        close(every[t, : t + 1], torch.stack(gradients))
        assert not every[t, t + 1 :].any()


@pytest.mark.covers("R3")
def test_what_is_kept_grows_with_the_whole_and_not_with_a_window(drawn):
    net, _, h = drawn
    recipe = replace(find("bptt"), input_size=3, hidden_size=4, classes=5)
    kept = {}
    for length in (8, 16, 32):
        _, given, _ = recipe.draw_network(torch.Generator().manual_seed(1), length)
        kept[length] = [kept_bytes(net, given, h, window) for window in (length, 4)]
    whole, window = zip(*kept.values(), strict=True)
    assert window[0] == window[1] == window[2] < whole[0]
    assert whole[2] - whole[1] == 2 * (whole[1] - whole[0]), "so much a token"
    assert (whole[1] - whole[0]) / 8 >= 8 * (4 + 3), "a state and an input each at least"


def test_windows_end_at_the_length():
    assert replace(find("bptt"), length=48).windows() == [1, 2, 4, 8, 16, 32, 48]
    assert replace(find("bptt"), length=8).windows() == [1, 2, 4, 8]


def test_the_picture_shows_the_parts_it_is_given():
    sizes = torch.tensor([[1.0, 0.0], [0.1, 0.5]])
    drawn = parts_by_lag(sizes, torch.tensor([1.5, 0.1]), torch.tensor([0.1]))
    shown = drawn.axes[0].images[0].get_array()
    expected = np.array([[1.0, 0.1], [-1.0, 0.5]])  # losses across, states down
    assert np.allclose(np.nan_to_num(np.ma.filled(shown, np.nan), nan=-1.0), expected)
    assert drawn.axes[1].lines[0].get_ydata().tolist() == pytest.approx([1, 0.1 / 1.5])
    assert drawn.axes[1].lines[1].get_ydata().tolist() == pytest.approx([0.1])


def test_a_short_recipe_reaches_its_goal():
    recipe = replace(find("bptt"), length=16)
    figures = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert all(goal.reached(figures) for goal in recipe.goals()), figures


@pytest.mark.parametrize("broken", ["by_autograd", "truncated"])
def test_the_error_is_that_against_autograd_and_against_one_window(broken, monkeypatch):
    recipe = replace(find("bptt"), length=8)
    right = getattr(bptt, broken)

    def wrong(net, given, h, *window):
        found = right(net, given, h, *window)
        whole = window in ((), (8,))
        return found._replace(o=found.o + 0.5) if whole else found

    monkeypatch.setattr(bptt, broken, wrong)
    found = recipe.metrics(recipe.simulate(torch.Generator().manual_seed(0)))
    assert found["autograd_error"] == pytest.approx(0.5)


def test_metrics_are_those_of_hand_made_gradients():
    whole = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    cuts = torch.stack([whole - torch.tensor([[0.0, 0.0], [0.0, 1.0]]), whole])
    result = {
        "autograd_error": torch.tensor(0.25), "whole": whole, "cuts": cuts,
        "sums": cuts - torch.tensor([[[0.5]], [[-0.75]]]),
        "kept": torch.tensor([[10, 4], [20, 4], [80, 8]]),
    }  # fmt: skip
    assert find("bptt").metrics(result) == pytest.approx(
        {
            "autograd_error": 0.25, "window_error": 0.75, "full_growth": 8.0,
            "window_growth": 2.0, "lost_by_window_1": 0.2,
        }
    )  # fmt: skip


def test_a_window_of_none_is_refused(drawn):
    with pytest.raises(ValueError, match=r"window \(0\) must be at least 1, because a gradient"):
        truncated(*drawn, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": 1}, r"length \(1\) must be at least 2"),
        ({"classes": 1}, r"classes \(1\) must be at least 2"),
        ({"input_size": 0}, r"input_size \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"window": 0}, r"window \(0\) must be at least 1"),
        ({"window": 49}, r"window \(49\) must be at most length"),
        ({"radius": 0.0}, r"radius \(0.0\) must be a positive number"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("bptt"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R2", "R3")
def test_the_whole_recipe(tmp_path):
    result = runs.run(find("bptt"), tmp_path)
    assert result.reached, result.metrics
