"""A sweep by overlaps: the compiled and the torch form, and the weights it never builds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.kernels.hopfield import step_all, step_all_torch, sweep, sweep_torch


def signs(*shape, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, shape, generator=draw).double() * 2 - 1


def by_weights(patterns, bias, x, order):
    """Equation (1) with W = (1/M) X^T X - I, neuron by neuron; M W is exact."""
    count, neurons = patterns.shape
    w = patterns.T @ patterns - count * torch.eye(neurons)
    x = x.clone()
    for i in order.tolist():
        field = x @ w[:, i] + count * bias
        x[:, i] = torch.where(field == 0, x[:, i], field.sign())
    return x


@pytest.mark.parametrize("form", [sweep, sweep_torch])
@given(count=st.integers(1, 9), neurons=st.integers(1, 24), bias=st.sampled_from([0.0, 0.3, -1.0]))
def test_a_sweep_is_that_of_the_weights(form, count, neurons, bias):
    patterns, x = signs(count, neurons, seed=count), signs(5, neurons, seed=neurons)
    order = torch.randperm(neurons, generator=torch.Generator().manual_seed(count))
    expected = by_weights(patterns, bias, x, order)
    states, overlaps = x.clone(), x @ patterns.T
    changed = form(patterns.T.to(torch.int8).contiguous(), bias, states, overlaps, order)
    assert torch.equal(states, expected)
    assert torch.equal(overlaps, states @ patterns.T)
    assert torch.equal(changed, (expected != x).any(1))


@pytest.mark.parametrize("form", [step_all, step_all_torch])
@given(count=st.integers(1, 9), neurons=st.integers(1, 24), bias=st.sampled_from([0.0, 0.3, -1.0]))
def test_all_neurons_at_once_take_the_sign_of_their_field(form, count, neurons, bias):
    patterns, x = signs(count, neurons, seed=count), signs(5, neurons, seed=neurons)
    field = x @ (patterns.T @ patterns - count * torch.eye(neurons)) + count * bias
    expected = torch.where(field == 0, x, field.sign())
    before = x.clone()
    assert torch.equal(form(patterns.to(torch.int8), bias, x), expected)
    assert torch.equal(x, before)
