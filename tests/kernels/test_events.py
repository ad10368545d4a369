import pytest
import torch
from torch.nn.functional import linear

from everynet.kernels import events
from everynet.kernels.events import event_linear


def drawn(share, shape=(7, 5, 90), units=70, dtype=torch.float64, *, spikes=True):
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(shape, generator=generator) < share).to(dtype)
    if not spikes:
        x *= torch.randn(shape, generator=generator, dtype=dtype)
    weight = torch.randn(units, shape[-1], generator=generator, dtype=dtype)
    bias = torch.randn(units, generator=generator, dtype=dtype)
    return x, weight, bias, torch.randn(*shape[:-1], units, generator=generator, dtype=dtype)


def gradients(form, x, weight, bias, seed):
    given = [part.clone().requires_grad_() for part in (x, weight, bias)]
    y = form(*given)
    y.backward(seed)
    return y.detach(), *(part.grad for part in given)


@pytest.fixture
def never_whole(monkeypatch):
    for name in ("linear", "conv2d", "conv2d_weight"):
        monkeypatch.setattr(events, name, None)


@pytest.mark.usefixtures("never_whole")
@pytest.mark.parametrize("spikes", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.15])
def test_value_and_gradients_are_those_of_the_whole_product(share, dtype, spikes):
    given = drawn(share, dtype=dtype, spikes=spikes)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for ours, theirs in zip(
        gradients(event_linear, *given), gradients(linear, *given), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("never_whole")
def test_a_row_by_hand():
    """Spikes at 1 and 3: the sum of those columns of the weights, and the bias."""
    weight = torch.arange(4.0) + 10 * torch.arange(64.0)[:, None]
    x = torch.zeros(6, 4)
    x[2, 1] = x[2, 3] = 1
    y = event_linear(x, weight, torch.full((64,), 0.5))
    assert y[2].tolist() == [20 * unit + 4.5 for unit in range(64)]
    assert (y[[0, 1, 3, 4, 5]] == 0.5).all()


def test_two_threads_give_the_same_bits():
    given, threads, made = drawn(0.1, shape=(4, 30, 300)), torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            made.append(gradients(event_linear, *given))
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*made, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("share", "units", "dtype"),
    [(0.5, 70, torch.float32), (0.1, 10, torch.float32), (0.1, 70, torch.bfloat16)],
)
def test_the_whole_product_where_it_is_faster(share, units, dtype, monkeypatch):
    called = []
    monkeypatch.setattr(events, "linear", lambda *a: called.append(1) or linear(*a))
    given = drawn(share, units=units, dtype=dtype)
    whole, made = gradients(linear, *given), gradients(event_linear, *given)
    assert called
    assert torch.equal(made[0], whole[0])
    for ours, theirs in zip(made[1:], whole[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_needs_no_gradient_gets_none():
    x, weight, bias, seed = drawn(0.1)
    weight.requires_grad_()
    event_linear(x, weight, bias).backward(seed)
    assert x.grad is None
    assert bias.grad is None
    assert weight.grad.shape == weight.shape


def test_a_large_product_by_convolution_is_that_of_the_matrices(monkeypatch):
    given = drawn(0.9, shape=(6, 11, 90), dtype=torch.float32, spikes=False)
    whole = gradients(linear, *given)
    monkeypatch.setattr(events, "linear", None)
    monkeypatch.setattr(events, "LARGE", 6 * 11 * 90 * 70)
    made = gradients(event_linear, *given)
    assert event_linear(*given[:3]).is_contiguous()
    for ours, theirs in zip(made, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_second_derivatives_are_those_of_a_whole_product(share):
    """Also where the gradient that comes back is constant, which once lost them without a word."""
    x, weight, bias, seed = drawn(share, spikes=False)

    def second(form):
        given = [part.clone().requires_grad_() for part in (x, weight, bias)]
        first = torch.autograd.grad(form(*given), given, seed, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), given[:2])

    torch.testing.assert_close(second(event_linear), second(linear))
