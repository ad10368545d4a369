"""The linear recurrence: closed forms, the plain loop, gradients, and what it leaves alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.kernels.recurrence import by_doubling, by_loop, linear_recurrence


def drawn(batch, time, dim, dtype=torch.float64, seed=0):
    make = torch.Generator().manual_seed(seed)
    a = torch.rand(batch, time, dim, generator=make, dtype=dtype)
    b = torch.randn(batch, time, dim, generator=make, dtype=dtype)
    return a, b, torch.randn(batch, dim, generator=make, dtype=dtype)


def test_constant_coefficients_relax_exponentially():
    """h_t = a^t h_0 + b (1 - a^t) / (1 - a), at every t."""
    a, b, h0 = (x[:, :1] if x.dim() == 3 else x for x in drawn(2, 1, 5))
    states = linear_recurrence(a.expand(-1, 8, -1), b.expand(-1, 8, -1), h0)
    power = a ** torch.arange(1, 9)[None, :, None]
    torch.testing.assert_close(states, power * h0[:, None] + b * (1 - power) / (1 - a))


@settings(max_examples=25)
@given(
    batch=st.integers(0, 3),
    time=st.integers(1, 20),
    dim=st.integers(0, 70),
    form=st.sampled_from([linear_recurrence, lambda *x: by_doubling(*x)[0]]),
)
def test_every_form_is_the_loop(batch, time, dim, form):
    parts = drawn(batch, time, dim)
    torch.testing.assert_close(form(*parts), by_loop(*parts), rtol=1e-12, atol=1e-12)


def gradients(form, *parts):
    leaves = [x.clone().requires_grad_() for x in parts]
    weights = torch.sin(torch.arange(parts[1].numel(), dtype=parts[1].dtype)).reshape(
        parts[1].shape
    )
    (form(*leaves) * weights).sum().backward()
    return [x.grad for x in leaves]


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 7, 3), (3, 33, 130)])
def test_gradients_are_those_of_the_loop(shape):
    parts = drawn(*shape)
    for ours, autograd in zip(
        gradients(linear_recurrence, *parts), gradients(by_loop, *parts), strict=True
    ):
        torch.testing.assert_close(ours, autograd, rtol=1e-12, atol=1e-12)


def test_gradcheck():
    leaves = [x.requires_grad_() for x in drawn(2, 4, 3)]
    assert torch.autograd.gradcheck(linear_recurrence, leaves)


@pytest.mark.parametrize("form", [linear_recurrence, by_loop])
def test_second_derivatives(form):
    leaves = [x.requires_grad_() for x in drawn(2, 4, 3)]
    assert torch.autograd.gradgradcheck(form, leaves)


def test_third_derivatives_are_those_of_the_loop():
    parts = drawn(1, 4, 2)

    def third(form):
        leaves = [x.clone().requires_grad_() for x in parts]
        value = form(*leaves).square().sum()
        for _ in range(2):
            value = sum(
                g.square().sum() for g in torch.autograd.grad(value, leaves, create_graph=True)
            )
        return torch.autograd.grad(value, leaves)

    for ours, autograd in zip(third(linear_recurrence), third(by_loop), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-10, atol=1e-10)


def test_no_step_at_all_has_gradients_of_nothing():
    for create_graph in (False, True):
        leaves = [x.requires_grad_() for x in drawn(2, 0, 3)]
        made = linear_recurrence(*leaves)
        back = torch.autograd.grad(made.sum(), leaves, create_graph=create_graph)
        assert [tuple(g.shape) for g in back] == [(2, 0, 3), (2, 0, 3), (2, 3)]
        assert torch.equal(back[2], torch.zeros(2, 3, dtype=torch.float64))


def test_it_is_one_operator_of_a_traced_graph():
    graph = torch.export.export(Scan(), drawn(2, 5, 3), strict=False).graph
    called = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert called == ["everynet.linear_recurrence.default"]


class Scan(torch.nn.Module):
    def forward(self, a, b, h0):
        return linear_recurrence(a, b, h0)


def test_the_operator_keeps_its_promises():
    """Its fake tensors, schema and autograd rule, also where a graph is compiled with gradients."""
    leaves = [x.requires_grad_() for x in drawn(2, 5, 3)]
    torch.library.opcheck(torch.ops.everynet.linear_recurrence.default, leaves)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own code
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_transformations_of_torch_func_are_those_of_the_loop(transform):
    a, b, h0 = drawn(2, 5, 3)
    ours, autograd = (
        torch.vmap(
            transform(lambda a, b, h0, form=form: form(a[None], b[None], h0[None]).sum(), (0, 1, 2))
        )(a, b, h0)
        for form in (linear_recurrence, by_loop)
    )
    torch.testing.assert_close(ours, autograd)


@given(cut=st.integers(1, 9))
def test_stopping_and_going_on_changes_nothing(cut):
    a, b, h0 = drawn(2, 10, 4)
    whole = linear_recurrence(a, b, h0)
    first = linear_recurrence(a[:, :cut], b[:, :cut], h0)
    second = linear_recurrence(a[:, cut:], b[:, cut:], first[:, -1])
    assert torch.equal(torch.cat([first, second], 1), whole)


def test_what_is_given_is_left_as_it_was():
    parts = drawn(2, 9, 5)
    copies = [x.clone() for x in parts]
    gradients(linear_recurrence, *parts)
    assert all(torch.equal(x, y) for x, y in zip(parts, copies, strict=True))


def test_float32_stays_near_float64_over_a_long_time():
    parts = drawn(2, 4096, 16, torch.float32)
    exact = by_loop(*(x.double() for x in parts))
    assert (linear_recurrence(*parts) - exact).abs().max() <= 1e-6 * exact.abs().max()


def test_scan_is_the_loop_in_twelve_steps_at_4096():
    parts = drawn(1, 4096, 3)
    states, steps = by_doubling(*parts)
    assert steps == math.ceil(math.log2(4096))
    torch.testing.assert_close(states, by_loop(*parts), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("time", "steps"), [(1, 0), (2, 1), (3, 2), (8, 3), (9, 4)])
def test_depth_is_the_logarithm_rounded_up(time, steps):
    assert by_doubling(*drawn(1, time, 1))[1] == steps


def test_two_threads_share_the_units():
    parts = drawn(1, 6, 200)
    alone, before = linear_recurrence(*parts), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(linear_recurrence(*parts), alone)
    finally:
        torch.set_num_threads(before)


def test_half_precision_carries_a_float_state():
    a, b, h0 = drawn(1, 64, 4, torch.bfloat16)
    near = by_loop(a.float(), b.float(), h0.float())
    torch.testing.assert_close(linear_recurrence(a, b, h0), near.bfloat16())


def test_expanded_and_transposed_tensors_are_taken():
    a, b, h0 = drawn(2, 6, 4)
    turned = b.transpose(1, 2).contiguous().transpose(1, 2)
    constant = a[:, :1].expand(-1, 6, -1)
    torch.testing.assert_close(
        linear_recurrence(constant, turned, h0), by_loop(constant.clone(), b, h0)
    )


def test_shapes_and_dtypes_that_do_not_fit_are_refused():
    a, b, h0 = drawn(2, 6, 4)
    with pytest.raises(ValueError, match=r"a \[2, 6, 4\], b \[2, 5, 4\] .* must be of shapes"):
        linear_recurrence(a, b[:, :5], h0)
    with pytest.raises(ValueError, match=r"h0 \[2, 3\] must be of shapes"):
        linear_recurrence(a, b, h0[:, :3])
    with pytest.raises(ValueError, match="one dtype and on one device"):
        linear_recurrence(a, b.float(), h0)
