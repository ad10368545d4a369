import math
from functools import partial

import pytest
import torch
from torch.nn.functional import linear

from everynet.kernels import surrogate
from everynet.kernels.surrogate import SLOPES, Unit, spikes, weighed


def spikes_by_autograd(current, steps, unit):
    """The same by operations that torch differentiates itself."""
    v, made = torch.zeros_like(current[0]), []
    for t in range(steps):
        u = unit.beta * v + (1 - unit.beta) * current[t if len(current) > 1 else 0]
        fired = (u >= 1).to(u.dtype)
        made.append(fired + (u - u.detach()) * unit.slope(u.detach()))  # value and slope apart
        v = u * (1 - fired)
    return torch.stack(made)


def both_ways(rows, unit, dtype, steps=20, units=300):
    generator = torch.Generator().manual_seed(3)
    current = 1.5 * torch.randn(rows, units, generator=generator, dtype=dtype) + 0.8
    seed = torch.randn(steps, units, generator=generator, dtype=dtype)
    for way in (spikes, spikes_by_autograd):
        given = current.clone().requires_grad_()
        made = way(given, steps, unit)
        made.backward(seed)
        yield made.detach(), given.grad
    ones = torch.ones(steps, dtype=dtype)
    fired = surrogate._forward_torch(current, ones, unit, steps)
    yield fired, surrogate._backward_torch(current, ones, seed, unit)


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_loop_equals_autograd_and_the_torch_form(name, rows, dtype):
    (fired, grad), (fired_2, grad_2), (fired_3, grad_3) = both_ways(
        rows, Unit(0.9, name, 3.0), dtype
    )
    assert 0.01 < fired.mean() < 0.5
    assert torch.equal(fired, fired_2)
    assert torch.equal(fired, fired_3)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    assert torch.allclose(grad, grad_2, rtol=tolerance, atol=tolerance)
    assert torch.allclose(grad, grad_3, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighed_spikes_equal_the_sum_of_all(name, rows, share, dtype):
    """In one go, by autograd and with every spike at hand; from few inputs and from many."""
    generator = torch.Generator().manual_seed(4)
    draw = partial(torch.randn, generator=generator, dtype=dtype)
    x = draw(rows, 5, 40) * (torch.rand(rows, 5, 40, generator=generator) < share)
    given = [x, draw(70, 40) / math.sqrt(40 * share) * 2, draw(70) + 0.8]
    shares, seed, unit = draw(20), draw(5, 70), Unit(0.9, name, 3.0)

    def step_by_step(form):
        def way(x, weight, bias):
            current = linear(x, weight, bias).flatten(1)
            return (shares @ form(current, 20, unit)).reshape(5, 70)

        return way

    made = []
    for way in (
        lambda *given: weighed(*given, shares, unit),
        step_by_step(spikes_by_autograd),
        step_by_step(spikes),
    ):
        parts = [part.clone().requires_grad_() for part in given]
        summed = way(*parts)
        summed.backward(seed)
        made.append([summed.detach(), *(part.grad for part in parts)])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for other in made[1:]:
        for ours, theirs in zip(made[0], other, strict=True):
            assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert (made[0][0] != 0).float().mean() > 0.3


@pytest.mark.parametrize("rows", [1, 20])
def test_other_devices_add_up_the_same(rows, monkeypatch):
    """Their form, in torch alone, is taken where nothing is compiled."""
    generator = torch.Generator().manual_seed(5)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    given, shares, seed = [draw(rows, 5, 40), draw(70, 40) / 4, draw(70)], draw(20), draw(5, 70)
    made = []
    for known in (True, False):
        monkeypatch.setattr(surrogate, "has_compiled_loop", lambda *_, known=known: known)
        parts = [part.clone().requires_grad_() for part in given]
        summed = weighed(*parts, shares, Unit())
        summed.backward(seed)
        made.append([summed.detach(), *(part.grad for part in parts)])
    for ours, theirs in zip(*made, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 20])
def test_going_back_twice_gives_the_same_twice(rows):
    """Although the first time the gradient is written over the current."""
    torch.manual_seed(0)
    weight, bias = torch.randn(70, 40, requires_grad=True), torch.randn(70, requires_grad=True)
    summed = weighed(torch.randn(rows, 5, 40), weight, bias, torch.rand(20), Unit()).sum()
    first, second = (
        torch.autograd.grad(summed, (weight, bias), retain_graph=True) for _ in range(2)
    )
    assert first[0].abs().sum() > 0
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


def test_one_step_alone():
    """u = 1.5 fires and u = 0.75 does not; a triangle leaves half and three quarters of a slope."""
    x, bias = torch.ones(1, 1, 1), torch.zeros(2, requires_grad=True)
    current, unit = torch.tensor([[3.0], [1.5]]), Unit(0.5, "triangle", 1.0)
    summed = weighed(x, current, bias, torch.tensor([0.25]), unit)
    assert summed.tolist() == [[0.25, 0]]
    summed.sum().backward()
    assert bias.grad.tolist() == [0.5 * 0.25 * 0.5, 0.5 * 0.25 * 0.75]
    one = current.T.clone().requires_grad_()
    spikes(one, 1, unit).sum().backward()
    assert one.grad.tolist() == [[0.5 * 0.5, 0.5 * 0.75]]


def test_two_threads_give_the_same_bits():
    units = 3 * surrogate.BLOCK // 9 + 17
    current, seed = torch.linspace(-1, 4, units)[None], torch.ones(9, units)
    threads, made = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            given = current.clone().requires_grad_()
            fired = spikes(given, 9, Unit())
            fired.backward(seed)
            made.append((fired.detach(), given.grad))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*made, strict=True))


def test_three_steps_by_hand():
    """beta 1/2, current 3: u = 1.5 fires, and again from 0; current 1.5: u = 3/4, 9/8 fires."""
    fired = spikes(torch.tensor([[3.0, 1.5, 0.5]]), 3, Unit(beta=0.5))
    assert fired.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]


def by_loop(current, steps, unit):
    """Value and gradient of the last step's spikes, each of which came with a gradient of 1."""
    given = current.clone().requires_grad_()
    made = spikes(given, steps, unit)
    made[-1].sum().backward()
    return made.detach(), given.grad


def by_autograd(current, steps, unit):
    given = current.clone().requires_grad_()
    made = spikes_by_autograd(given, steps, unit)
    made[-1].sum().backward()
    return made.detach(), given.grad


def by_torch(current, steps, unit):
    ones, last = torch.ones(steps).to(current), torch.zeros(steps, current.shape[1]).to(current)
    last[-1] = 1
    fired = surrogate._forward_torch(current, ones, unit, steps)
    return fired, surrogate._backward_torch(current, ones, last, unit)


@pytest.mark.parametrize("form", [by_loop, by_autograd, by_torch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_membrane_exactly_at_the_threshold_fires_and_is_reset(form, dtype):
    """beta 1/2, currents 2 and 1: u_1 = 1 fires and cuts what came before, u_2 = 1/2 does not."""
    unit = Unit(0.5, "triangle", 1.0)
    fired, grad = form(torch.tensor([[2.0], [1.0]], dtype=dtype), 2, unit)
    assert fired.flatten().tolist() == [1, 0]
    assert grad.flatten().tolist() == [0, 0.5 * (1 - 0.5)]
    fired, grad = form(torch.tensor([[0.0], [2.0]], dtype=dtype), 2, unit)
    assert fired.flatten().tolist() == [0, 1]
    assert grad.flatten().tolist() == [0.5 * 0.5, 0.5]  # a slope of 1 at the threshold


@pytest.mark.parametrize("known", [True, False])
def test_weighed_spikes_count_a_membrane_exactly_at_the_threshold(known, monkeypatch):
    """In each of three steps u = 1, with shares 1, 10 and 100; the gradient stays in its step."""
    monkeypatch.setattr(surrogate, "has_compiled_loop", lambda *_: known)
    x, weight = torch.ones(1, 1, 1), torch.full((64, 1), 2.0)
    bias, shares = torch.zeros(64, requires_grad=True), torch.tensor([1.0, 10, 100])
    summed = weighed(x, weight, bias, shares, Unit(0.5, "triangle", 1.0))
    assert summed.tolist() == [[111.0] * 64]
    summed.sum().backward()
    assert bias.grad.tolist() == [0.5 * 111] * 64


def test_the_gradient_of_two_steps_by_hand():
    """One unit that does not fire at u_1 = 0.6 and fires at u_2 = 0.3 + 0.8 = 1.1."""
    current = torch.tensor([[1.2], [1.6]], dtype=torch.float64, requires_grad=True)
    fired = spikes(current, 2, Unit(0.5, "triangle", 1.0))
    assert fired.flatten().tolist() == [0, 1]
    fired[1].backward()
    late = 0.5 * (1 - 0.1)
    assert current.grad.flatten().tolist() == pytest.approx([0.5 * late, late])


def test_a_spike_cuts_what_came_before_it():
    current = torch.tensor([[4.0], [1.0]], dtype=torch.float64, requires_grad=True)
    spikes(current, 2, Unit(0.5))[1].backward()
    assert current.grad[0].item() == 0
    assert current.grad[1].item() > 0


@pytest.mark.parametrize(
    ("name", "at_zero", "far"), [("fast-sigmoid", 1, 1 / 9), ("arctan", 1, 0.2), ("triangle", 1, 0)]
)
def test_slopes_are_even_and_highest_at_the_threshold(name, at_zero, far):
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    assert SLOPES[name](x, 2.0).tolist() == pytest.approx([far, at_zero, far])


def test_rows_that_do_not_match_the_steps_are_refused():
    message = "3 rows are given for 20 steps; give one for each step, or one for all"
    with pytest.raises(ValueError, match=message):
        spikes(torch.zeros(3, 5), 20, Unit())
    with pytest.raises(ValueError, match=message):
        weighed(torch.zeros(3, 5, 4), torch.zeros(6, 4), torch.zeros(6), torch.ones(20), Unit())


def drawn_currents(rows, steps=6, units=5):
    generator = torch.Generator().manual_seed(6)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    return (1.5 * draw(rows, units) + 1).requires_grad_(), draw(steps), draw(steps, units)


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("rows", [1, 6])
def test_the_gradient_is_itself_differentiated(name, rows):
    """Numerically: the surrogate gradient is a smooth function of the current, spikes are not."""
    current, _, _ = drawn_currents(rows)
    unit = Unit(0.7, name, 1.5)

    def gradient(current, upstream):
        made = spikes(current, 6, unit)
        assert made.detach().unique().tolist() == [0, 1]
        return torch.autograd.grad(made, current, upstream, create_graph=True)[0]

    upstream = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gradient, (current, upstream))
    assert gradient(current, upstream.detach()).requires_grad  # and not lost where it is constant


@pytest.mark.parametrize("rows", [1, 6])
def test_the_gradient_of_weighed_spikes_is_itself_differentiated(rows):
    torch.manual_seed(1)
    draw = partial(torch.randn, dtype=torch.float64)
    given = [x.requires_grad_() for x in (draw(rows, 2, 3), 2 * draw(4, 3), draw(4) + 1)]
    shares, upstream = draw(6), draw(2, 4).requires_grad_()

    def gradient(x, weight, bias, upstream):
        made = weighed(x, weight, bias, shares, Unit(0.7, "arctan", 1.5))
        return torch.autograd.grad(made, (x, weight, bias), upstream, create_graph=True)

    assert torch.autograd.gradcheck(gradient, (*given, upstream))


@pytest.mark.parametrize("rows", [1, 6])
def test_the_form_for_transformations_is_the_loop(rows):
    current, shares, seed = drawn_currents(rows)
    unit = Unit(0.7)
    made = surrogate.by_loop(current, torch.ones_like(shares), unit, 6)
    assert torch.equal(made, spikes(current, 6, unit))
    ours = torch.autograd.grad(spikes(current, 6, unit), current, seed)
    torch.testing.assert_close(torch.autograd.grad(made, current, seed), ours)


def test_torch_func_sees_the_surrogate():
    current, _, seed = drawn_currents(6)

    def value(current, seed):
        return (spikes(current, 6, Unit(0.7)) * seed).sum()

    (expected,) = torch.autograd.grad(value(current, seed), current)
    given = current.detach()
    torch.testing.assert_close(torch.func.grad(value)(given, seed), expected)
    by_unit = torch.vmap(torch.func.grad(lambda c, s: value(c[:, None], s[:, None])), 1, 1)
    torch.testing.assert_close(by_unit(given, seed), expected)


def test_it_is_an_operator_that_keeps_its_promises():
    current, shares, _ = drawn_currents(6)
    given = (current, shares, 0.7, "arctan", 2.0, 6)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.everynet.spikes.default, given, test_utils=checks)
