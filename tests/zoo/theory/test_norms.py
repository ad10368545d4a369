import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.zoo.theory.norms import check_axioms, frobenius_norm, is_norm, norm, power_sum

VECTORS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5)
ORDERS = (1.0, 2.0, 3.5, math.inf)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.covers("M1")
@pytest.mark.parametrize("p", ORDERS)
@given(values=VECTORS)
@settings(max_examples=30, deadline=None)
def test_norms_are_numpys(values, p):
    expected = np.linalg.norm(values, ord=p)
    np.testing.assert_allclose(norm(numbers(*values), p), expected, rtol=1e-10, atol=1e-100)


@pytest.mark.covers("M1")
def test_by_hand():
    x = numbers(3, -4, 0)
    assert [norm(x, p).item() for p in (1.0, 2.0, math.inf)] == pytest.approx([7, 5, 4])
    assert norm(x).item() == pytest.approx(5)
    rows = torch.stack([x, 2 * x])
    assert norm(rows, 1.0).tolist() == pytest.approx([7, 14])


@pytest.mark.covers("M1")
def test_the_norm_of_a_matrix_is_numpys_and_the_root_of_its_squared_singular_values():
    a = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(frobenius_norm(a), np.linalg.norm(a.numpy(), axis=(1, 2)))
    torch.testing.assert_close(
        frobenius_norm(a), torch.linalg.svdvals(a).square().sum(1).sqrt(), rtol=1e-12, atol=0
    )


@pytest.mark.covers("M1")
@pytest.mark.parametrize("p", ORDERS)
def test_the_axioms_hold_on_ten_thousand_vectors(p):
    generator = torch.Generator().manual_seed(0)
    assert is_norm(lambda x: norm(x, p), 4, vectors=10_000, generator=generator)


@pytest.mark.covers("M1")
def test_a_power_below_one_is_no_norm_because_of_the_triangle_inequality():
    x, y, a = numbers(1, 0)[None], numbers(0, 1)[None], numbers(-3)
    found = check_axioms(lambda v: power_sum(v, 0.5), x, y, a)
    assert {name: bool(holds) for name, holds in found.items()} == {
        "definite": True,
        "triangle": False,
        "homogeneous": True,
    }
    assert power_sum(x + y, 0.5).item() == pytest.approx(4)
    assert not is_norm(lambda v: power_sum(v, 0.5), 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"p \(0.5\) must be at least 1, because below it the tri"):
        norm(x, 0.5)
    with pytest.raises(ValueError, match=r"p \(nan\) must be at least 1"):
        norm(x, math.nan)


@pytest.mark.parametrize(
    ("f", "axiom"),
    [
        (lambda x: x[:, 0].abs(), "definite"),
        (lambda x: x.sum(1), "definite"),
        (lambda x: x.square().sum(1), "triangle"),
        (lambda x: x.square().sum(1), "homogeneous"),
        (lambda x: (x != 0).double().sum(1), "homogeneous"),
    ],
)
def test_each_axiom_refuses_what_is_no_norm(f, axiom):
    x = torch.cat([numbers(0, 1)[None], numbers(2, -2.5)[None]])
    y, a = numbers(0, 1).expand(2, 2), numbers(-3, 2)
    assert not check_axioms(f, x, y, a)[axiom].all()
    assert not is_norm(f, 2, vectors=100, generator=torch.Generator().manual_seed(0))


def test_long_vectors_do_not_overflow():
    assert norm(numbers(3e200, 4e200)).item() == pytest.approx(5e200)
    assert norm(numbers(0, 0)).item() == 0
