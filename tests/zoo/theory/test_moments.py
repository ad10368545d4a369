import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from everynet.zoo.theory.moments import (
    correlation_matrix,
    covariance,
    covariance_matrix,
    expectation,
    unbiased_covariance_matrix,
    variance,
)

IRIS = torch.from_numpy(load_iris().data)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.covers("M5")
def test_a_die():
    faces, p = numbers(1, 2, 3, 4, 5, 6), torch.full((6,), 1 / 6, dtype=torch.float64)
    assert expectation(faces, p).item() == pytest.approx(3.5)
    assert expectation(faces**2, p).item() == pytest.approx(91 / 6)
    assert variance(faces, p).item() == pytest.approx(35 / 12)
    assert covariance(faces, 7 - faces, p).item() == pytest.approx(-35 / 12)


@pytest.mark.covers("M5")
def test_covariances_with_both_divisors_are_numpys_on_iris():
    np.testing.assert_allclose(covariance_matrix(IRIS), np.cov(IRIS.T, ddof=0), rtol=1e-12)
    np.testing.assert_allclose(unbiased_covariance_matrix(IRIS), np.cov(IRIS.T), rtol=1e-12)
    np.testing.assert_allclose(correlation_matrix(IRIS), np.corrcoef(IRIS.T), rtol=1e-12)


@pytest.mark.covers("M5")
def test_the_matrix_holds_variances_and_covariances():
    p = torch.full((len(IRIS),), 1 / len(IRIS), dtype=torch.float64)
    s = covariance_matrix(IRIS)
    for i in range(4):
        torch.testing.assert_close(s[i, i], variance(IRIS[:, i], p))
        torch.testing.assert_close(s[i, 3], covariance(IRIS[:, i], IRIS[:, 3], p))


@pytest.mark.covers("M5")
def test_a_square_is_uncorrelated_with_a_symmetric_number_though_it_follows_from_it():
    x, p = numbers(-2, -1, 0, 1, 2), torch.full((5,), 0.2, dtype=torch.float64)
    y = x**2
    assert covariance(x, y, p).item() == 0
    together = ((x == 2) & (y == 4)).double()
    both = expectation(together, p).item()
    apart = expectation((x == 2).double(), p) * expectation((y == 4).double(), p)
    assert both == pytest.approx(0.2)
    assert apart.item() == pytest.approx(0.08)  # independent numbers would have this
    half = torch.randn(50_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples = torch.cat([half, -half])
    found = correlation_matrix(torch.stack([samples, samples**2], dim=1))
    assert abs(found[0, 1]) < 1e-12
    moved = correlation_matrix(torch.stack([samples + 1, (samples + 1) ** 2], dim=1))
    assert moved[0, 1] > 0.5  # not symmetric: correlated


@pytest.mark.covers("M5")
def test_dividing_by_one_less_takes_the_bias_away():
    """The mean over all 4^3 samples of three from four values, which are drawn with replacement."""
    values = numbers(0, 1, 3, 7)
    p = torch.full((4,), 0.25, dtype=torch.float64)
    samples = torch.cartesian_prod(values, values, values)
    biased = torch.stack([covariance_matrix(s[:, None]) for s in samples]).mean()
    unbiased = torch.stack([unbiased_covariance_matrix(s[:, None]) for s in samples]).mean()
    assert unbiased.item() == pytest.approx(variance(values, p).item(), rel=1e-12)
    assert biased.item() == pytest.approx(variance(values, p).item() * 2 / 3, rel=1e-12)


@pytest.mark.covers("M5")
def test_covariance_of_a_linear_map():
    """Cov(A x) = A Cov(x) A^T."""
    a = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = a @ covariance_matrix(IRIS) @ a.T
    torch.testing.assert_close(covariance_matrix(IRIS @ a.T), expected)


def test_what_has_no_spread_is_refused():
    with pytest.raises(ValueError, match="column 1 must not be constant, because its standard"):
        correlation_matrix(numbers(1, 2, 2, 2).view(2, 2))
    with pytest.raises(ValueError, match=r"x \(1 rows\) must have at least 2, because a spread"):
        unbiased_covariance_matrix(numbers(1, 2)[None])
