"""Averaged weights against the sum written out, and what is copied."""

import copy

import pytest
import torch
from torch import nn

from everynet.nn.ema import EMA


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_the_average_is_the_weighted_sum_of_all_weights_so_far(decay):
    model = network()
    averaged = EMA(model, decay).double()
    history = [copy.deepcopy(model.state_dict())]
    for step in range(40):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(step)))
        averaged.update(model)
        history.append(copy.deepcopy(model.state_dict()))
    rates = [1.0, *(max(1 - decay, 9 / (t + 10)) for t in range(40))]
    shares = [r * torch.tensor([1 - s for s in rates[n + 1 :]]).prod() for n, r in enumerate(rates)]
    assert sum(shares) == pytest.approx(1)
    for name, parameter in averaged.average.named_parameters():
        wanted = sum(s * state[name] for s, state in zip(shares, history, strict=True))
        torch.testing.assert_close(parameter, wanted, rtol=1e-5, atol=1e-6)
        assert not parameter.requires_grad


def test_buffers_are_copied_and_the_network_is_left_alone():
    model = network()
    averaged = EMA(model, 0.99).double()
    model(torch.randn(20, 3, dtype=torch.float64) + 4)
    before = copy.deepcopy(model.state_dict())
    averaged.update(model)
    norm = averaged.average[1]
    assert torch.equal(norm.running_mean, model[1].running_mean)
    assert int(norm.num_batches_tracked) == 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert averaged.average[0].weight is not model[0].weight


def test_a_long_average_has_less_noise_than_the_weights():
    """Weights that jitter by 1 about 3: the variance is about r / (2 - r), here 1 / 199."""
    model = nn.Linear(400, 1, bias=False)
    averaged, draw = EMA(model, 0.99), torch.Generator().manual_seed(1)
    for _ in range(2000):
        with torch.no_grad():
            model.weight.copy_(3 + torch.randn(1, 400, generator=draw))
        averaged.update(model)
    spread = (averaged.average.weight - 3).square().mean().item()
    assert spread == pytest.approx(1 / 199, rel=0.25)


def test_a_decay_that_is_none():
    for decay in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match=rf"decay \({decay}\) must be above 0 and below 1"):
            EMA(nn.Linear(1, 1), decay)
