"""Samples as a classifier sees them: counts by hand, and Gaussians in closed form."""

import pytest
import torch

from everynet.metrics.samples import classes_present, frechet_distance, recognised, square_root


def test_shares_and_classes_counted_by_hand():
    sure = torch.tensor([[0.95, 0.03, 0.02], [0.9, 0.05, 0.05], [0.4, 0.3, 0.3], [0.0, 1.0, 0.0]])
    assert recognised(sure) == 0.75
    assert classes_present(sure) == 2
    assert recognised(sure, sure=0.99) == 0.25
    # one of a hundred is less than a quarter of the fair share of a third
    rare = torch.eye(3)[[0] * 50 + [1] * 49 + [2]]
    assert classes_present(rare) == 2
    assert classes_present(torch.eye(3)[[0] * 46 + [1] * 45 + [2] * 9]) == 3
    assert classes_present(torch.full((10, 10), 0.1)) == 0


def standardized(rows, columns, number):
    """Points whose mean is 0 and whose covariance is the identity, exactly."""
    draw = torch.Generator().manual_seed(number)
    x = torch.randn(rows, columns, generator=draw, dtype=torch.float64)
    x -= x.mean(0)
    covariance = x.T.cov().reshape(columns, columns)
    return torch.linalg.solve(torch.linalg.cholesky(covariance), x.T).T


def test_the_distance_of_gaussians_in_closed_form():
    """Of one dimension (m - n)^2 + (s - t)^2; of several, the same where covariances commute."""
    x, y = standardized(400, 1, 0), standardized(300, 1, 1)
    found = frechet_distance(2 * x + 1, 5 * y - 3)
    torch.testing.assert_close(found, torch.tensor(16.0 + 9.0, dtype=torch.float64))
    a, b = (torch.tensor(d, dtype=torch.float64) for d in ([1.0, 2.0, 3.0], [3.0, 0.5, 3.0]))
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    x, y = standardized(400, 3, 2) * a @ turn.T, standardized(500, 3, 3) * b @ turn.T
    torch.testing.assert_close(frechet_distance(x, y + 1), 3 + (a - b).square().sum())


def test_the_distance_of_covariances_that_do_not_commute():
    """The eigenvalues of S T are those of the symmetric form."""
    draw = torch.Generator().manual_seed(5)
    x, y = (torch.randn(60, 4, generator=draw).double() @ torch.randn(4, 4, generator=draw).double()
            for _ in range(2))  # fmt: skip
    s, t = x.T.cov(), y.T.cov()
    cross = torch.linalg.eigvals(s @ t).real.sqrt().sum()
    wanted = (x.mean(0) - y.mean(0)).square().sum() + s.trace() + t.trace() - 2 * cross
    torch.testing.assert_close(frechet_distance(x, y), wanted)
    torch.testing.assert_close(frechet_distance(x, y), frechet_distance(y, x))
    assert frechet_distance(x, x.flip(0)).abs() < 1e-9
    torch.testing.assert_close(square_root(s) @ square_root(s), s)


def test_one_row_has_no_covariance():
    with pytest.raises(ValueError, match=r"features \(1 and 5 rows\) must be at least 2 of each"):
        frechet_distance(torch.zeros(1, 3), torch.zeros(5, 3))
