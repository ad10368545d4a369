import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet.kernels.surrogate import SLOPES, Unit
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.spiking.surrogate import (
    RECIPES,
    PoissonNetwork,
    RecurrentNetwork,
    SpikingNetwork,
    _Recurrent,
    by_loop,
)

SPEC = {"mean": [0.25], "std": [0.5], "shape": [1, 2, 3], "classes": list("abc")}


def double(network):
    return network.double()


def slow_recurrent(network, x):
    """Equations (1) to (3) and (7), differentiated by torch."""
    unit, weight = network.unit, network.recurrent[0]
    current = network.layers[0](x)
    v = s = torch.zeros_like(current)
    made = []
    for _ in range(network.steps):
        u = unit.beta * v + (1 - unit.beta) * (current + s @ weight.T)
        fired = (u >= 1).to(u.dtype)
        s = fired + (u - u.detach()) * unit.slope(u.detach())
        v = u * (1 - fired)
        made.append(s)
    return torch.stack(made)


def test_second_derivatives_of_the_recurrent_loop_are_those_of_the_plain_one():
    """Also of a plain sum, whose constant gradient once lost them without a word."""
    torch.manual_seed(0)
    current = (2 * torch.randn(6, 3, 5, dtype=torch.float64) + 1).requires_grad_()
    weight = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)

    def of_penalty(form):
        made = form(current, weight, Unit(0.7, "arctan", 1.5))
        first = torch.autograd.grad(made.sum(), (current, weight), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (current, weight))

    torch.testing.assert_close(of_penalty(_Recurrent.apply), of_penalty(by_loop))


@pytest.mark.parametrize("name", SLOPES)
def test_the_recurrent_loop_equals_autograd(name):
    torch.manual_seed(0)
    network = double(RecurrentNetwork((6, 40, 3), 12, Unit(0.8, name, 2.0)))
    x = torch.randn(5, 6, dtype=torch.float64)
    seed = torch.randn(12, 5, 40, dtype=torch.float64)
    grads = []
    for way in (lambda: network.hidden(x)[0], lambda: slow_recurrent(network, x)):
        network.zero_grad()
        fired = way()
        fired.backward(seed)
        grads.append(
            (fired.detach(), [p.grad.clone() for p in network.parameters() if p.grad is not None])
        )
    assert torch.equal(grads[0][0], grads[1][0])
    assert 0.02 < grads[0][0].mean() < 0.8
    assert len(grads[0][1]) == len(grads[1][1]) == 3
    for mine, theirs in zip(grads[0][1], grads[1][1], strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def test_the_readout_is_a_membrane_that_never_fires():
    network = double(SpikingNetwork((2, 3, 2), 4, Unit(beta=0.5)))
    fired = torch.tensor([[[1.0, 0, 0]], [[0, 1, 0]], [[0, 0, 1]], [[0, 0, 0]]]).double()
    with torch.no_grad():
        network.layers[-1].weight.copy_(torch.tensor([[2.0, 4, 8], [0, 0, 0]]))
        network.layers[-1].bias.copy_(torch.tensor([0.0, 1.0]))
    traces = network.readout(fired)[:, 0]
    assert traces[:, 0].tolist() == pytest.approx([1, 2.5, 5.25, 2.625])
    assert traces[:, 1].tolist() == pytest.approx([0.5, 0.75, 0.875, 0.9375])


@pytest.mark.parametrize("kind", [SpikingNetwork, RecurrentNetwork])
@pytest.mark.parametrize("sizes", [(4, 30, 3), (4, 30, 20, 3)])
def test_logits_are_the_mean_of_the_readout(kind, sizes):
    torch.manual_seed(1)
    network = double(kind(sizes, 40))
    with torch.no_grad():
        network.layers[-1].bias.fill_(3.0)
    x = torch.randn(5, 4, dtype=torch.float64)
    ways = {"one product": network(x), "step by step": network.readout(network.hidden(x)[-1])}
    ways["step by step"] = ways["step by step"].sum(0) / 40
    one, other = (
        torch.autograd.grad(y.square().sum(), network.parameters()) for y in ways.values()
    )
    assert torch.allclose(*ways.values(), rtol=1e-12)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.abs().sum() > 0
        assert torch.allclose(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_constant_current_equals_the_same_current_at_every_step():
    torch.manual_seed(2)
    network = double(SpikingNetwork((4, 30, 3), 8))
    x = torch.randn(5, 4, dtype=torch.float64)
    current = network.currents(0, network.inputs(x))
    assert current.shape == (1, 5, 30)
    assert torch.equal(network.fire(current), network.fire(current.expand(8, -1, -1)))


def test_units_fire_at_the_rate_of_the_formula():
    """Without refractory time a unit at current I fires every ceil(ln(1 - 1/I) / ln beta) steps."""
    network = SpikingNetwork((1, 1, 1), 1200, Unit(beta=0.98))
    for current in (1.05, 1.5, 3.0):
        fired = network.fire(torch.full((1, 1, 1), current, dtype=torch.float64))
        every = math.ceil(math.log(1 - 1 / current) / math.log(0.98))
        assert int(fired.sum()) == 1200 // every


def test_poisson_inputs_have_the_brightness_as_their_rate():
    network = PoissonNetwork((6, 6, 3), 4000, Unit(), spec=SPEC)
    brightness = torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0, 1.3])
    torch.manual_seed(0)
    spikes = network.inputs(((brightness - 0.25) / 0.5)[None])
    assert spikes.shape == (4000, 1, 6)
    assert set(spikes.unique().tolist()) <= {0.0, 1.0}
    assert torch.allclose(spikes.mean(0)[0], brightness.clamp(max=1), atol=0.03)


def test_a_step_leaves_of_the_membrane_what_its_time_constant_says():
    """After tau_m / dt = 10 steps without current 1 / e of it is left."""
    recipe = replace(RECIPES["snn"], dt=0.001, tau_m=0.01)
    assert recipe.unit().beta ** 10 == pytest.approx(math.exp(-1))
    assert recipe.model(recipe.dataset()).unit.beta == recipe.unit().beta


def test_a_network_without_hidden_units_is_refused():
    with pytest.raises(ValueError, match=r"sizes \(\[4, 3\]\) must have inputs, hidden units"):
        SpikingNetwork((4, 3))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dt": 0.0}, r"dt \(0.0\) must be a positive number"),
        ({"duration": 0.0001}, r"duration \(0.0001\) must be from dt to 10 s"),
        ({"tau_m": -0.01}, r"tau_m \(-0.01\) must be a positive number"),
        ({"surrogate": "step"}, r"unknown surrogate 'step'"),
        ({"sharpness": 0.0}, r"sharpness \(0.0\) must be a positive number"),
        ({"hidden": ()}, r"hidden \(\(\)\) must be at least one number of units"),
    ],
)
def test_settings_that_cannot_be(fields, message):
    with pytest.raises(UserError, match=message):
        replace(RECIPES["snn"], **fields)


def test_tables_are_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with a class each"):
        replace(RECIPES["snn"], data="iris").dataset()


def test_spikes_carry_the_gradient_to_the_first_layer():
    torch.manual_seed(3)
    network = SpikingNetwork((8, 50, 20, 3), 40)
    nn.functional.cross_entropy(network(torch.randn(16, 8)), torch.arange(16) % 3).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


@pytest.mark.parametrize("kind", [SpikingNetwork, RecurrentNetwork])
def test_half_precision_gives_about_the_same_gradient(kind):
    """Through two hidden layers wide enough for lists of spikes; the last layer is linear."""
    torch.manual_seed(4)
    network, x = kind((30, 80, 70, 3), 20), torch.randn(64, 30)
    grads = []
    for half in (False, True):
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = nn.functional.cross_entropy(network(x).float(), torch.arange(64) % 3)
        loss.backward()
        grads.append([p.grad.clone() for p in network.parameters()])
    for whole, rough in zip(*grads, strict=True):
        assert rough.dtype == torch.float32
        assert nn.functional.cosine_similarity(whole.flatten(), rough.flatten(), dim=0) > 0.9


@pytest.mark.slow
@pytest.mark.covers("N9")
@pytest.mark.parametrize("name", ["snn", "snn-poisson", "snn-recurrent"])
def test_learns_digits(name, tmp_path):
    assert run(replace(RECIPES[name], name=name), tmp_path).reached


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize("name", ["snn-mnist", "snn-fashion"])
def test_learns_real_images(name, tmp_path):
    assert run(replace(RECIPES[name], name=name), tmp_path).reached
