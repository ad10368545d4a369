import pytest
import torch

from everynet.kernels import surrogate
from everynet.kernels.surrogate import SLOPES, Unit, spikes, spikes_by_autograd


def both_ways(rows, unit, dtype, steps=20, units=300):
    generator = torch.Generator().manual_seed(3)
    current = 1.5 * torch.randn(rows, units, generator=generator, dtype=dtype) + 0.8
    seed = torch.randn(steps, units, generator=generator, dtype=dtype)
    for way in (spikes, spikes_by_autograd):
        given = current.clone().requires_grad_()
        made = way(given, steps, unit)
        made.backward(seed)
        yield made.detach(), given.grad
    membrane, fired = surrogate._forward_torch(current, steps, unit)
    yield fired, surrogate._backward_torch(membrane, seed, rows, unit)


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


def test_two_threads_give_the_same_bits():
    units = 3 * surrogate.BLOCK + 17
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
    assert torch.equal(made[0][0], made[1][0])
    assert torch.equal(made[0][1], made[1][1])


def test_three_steps_by_hand():
    """beta 1/2, current 3: u = 1.5 fires, and again from 0; current 1.5: u = 3/4, 9/8 fires."""
    fired = spikes(torch.tensor([[3.0, 1.5, 0.5]]), 3, Unit(beta=0.5))
    assert fired.tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 0]]


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
