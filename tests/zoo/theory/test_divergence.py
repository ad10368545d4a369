import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from everynet.zoo.theory.divergence import (
    cross_entropy,
    entropy,
    kl_divergence,
    kl_from_cross_entropy,
    kl_gaussians,
    kl_monte_carlo,
)

WEIGHTS = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=6)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.covers("M7")
@given(WEIGHTS)
@settings(max_examples=40, deadline=None)
def test_entropies_are_scipys(weights):
    p, q = (numbers(*some) / sum(some) for some in zip(*weights, strict=True))
    np.testing.assert_allclose(entropy(p), stats.entropy(p), rtol=1e-10)
    np.testing.assert_allclose(kl_divergence(p, q), stats.entropy(p, q), rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(kl_from_cross_entropy(p, q), stats.entropy(p, q), atol=1e-12)
    assert kl_divergence(p, q) >= -1e-15
    torch.testing.assert_close(cross_entropy(p, q), entropy(p) + kl_divergence(p, q))


@pytest.mark.covers("M7")
def test_by_hand():
    fair, loaded = numbers(0.5, 0.5), numbers(0.75, 0.25)
    assert entropy(fair).item() == pytest.approx(math.log(2))
    assert kl_divergence(fair, fair).item() == 0
    assert kl_divergence(loaded, fair).item() == pytest.approx(
        0.75 * math.log(1.5) - 0.25 * math.log(2)
    )
    assert kl_divergence(fair, loaded) != kl_divergence(loaded, fair)
    certain = numbers(1, 0)
    assert entropy(certain).item() == 0
    assert kl_divergence(certain, fair).item() == pytest.approx(math.log(2))
    assert kl_divergence(fair, certain).item() == math.inf
    assert kl_divergence(certain, certain).item() == 0


@pytest.mark.covers("M7")
def test_a_negative_log_likelihood_is_a_cross_entropy():
    labels = torch.tensor([0, 2, 2, 1, 2, 0])
    q = numbers(0.2, 0.3, 0.5)
    shares = torch.bincount(labels).double() / len(labels)
    loss = torch.nn.functional.nll_loss(q.log().expand(len(labels), -1), labels)
    torch.testing.assert_close(cross_entropy(shares, q), loss)


@pytest.mark.covers("M7")
def test_gaussians_agree_with_a_million_samples_within_one_percent():
    generator = torch.Generator().manual_seed(0)
    mean_p, mean_q = numbers(0.5, -1), numbers(-0.3, 0.4)
    root_p = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    root_q = torch.tensor([[1.5, 0.0], [-0.4, 1.1]], dtype=torch.float64)
    p, q = root_p @ root_p.T, root_q @ root_q.T
    exact = kl_gaussians(mean_p, p, mean_q, q).item()
    samples = mean_p + torch.randn(10**6, 2, generator=generator, dtype=torch.float64) @ root_p.T
    of_p = torch.distributions.MultivariateNormal(mean_p, p)
    of_q = torch.distributions.MultivariateNormal(mean_q, q)
    counted, error = kl_monte_carlo(of_p.log_prob, of_q.log_prob, samples)
    assert counted == pytest.approx(exact, rel=0.01)
    assert abs(counted - exact) < 4.5 * error
    assert error < 0.003 * exact
    reference = torch.distributions.kl_divergence(of_p, of_q).item()
    assert exact == pytest.approx(reference, rel=1e-12)


@pytest.mark.covers("M7")
def test_gaussians_in_one_dimension_by_hand():
    """log(s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2."""
    found = kl_gaussians(numbers(1), numbers(4)[None], numbers(3), numbers(25)[None]).item()
    assert found == pytest.approx(math.log(5 / 2) + (4 + 4) / 50 - 0.5)
    assert kl_gaussians(numbers(1), numbers(4)[None], numbers(1), numbers(4)[None]).item() == 0
