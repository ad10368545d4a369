"""The estimator beside scikit-learn's BernoulliRBM, and its fast update beside the plain rule."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.neural_network import BernoulliRBM

from everynet.system.errors import UserError
from everynet.zoo.generative import rbm_estimator
from everynet.zoo.generative.rbm import BoltzmannMachine
from everynet.zoo.generative.rbm_estimator import RBM, _Learner


@pytest.fixture(scope="module")
def digits():
    grey = load_digits().data / 16
    return (np.random.default_rng(0).random(grey.shape) < grey).astype(np.float32)


def as_network(fitted):
    """What either of the two learned, as our network."""
    net = BoltzmannMachine(fitted.components_.shape[1], len(fitted.components_)).double()
    net.weight.data = torch.tensor(fitted.components_, dtype=torch.float64).T
    net.visible_bias.data = torch.tensor(fitted.intercept_visible_, dtype=torch.float64)
    net.hidden_bias.data = torch.tensor(fitted.intercept_hidden_, dtype=torch.float64)
    return net


def pseudo_likelihood(fitted, x):
    """The mean over all rows and all units: without noise."""
    net, v = as_network(fitted), torch.tensor(x).double()
    with torch.no_grad():
        units = (torch.full((len(v),), i) for i in range(v.shape[1]))
        return np.mean([net.pseudo_likelihood(v, unit).mean().item() for unit in units])


@pytest.mark.parametrize("bfloat16", [True, False])
def test_pseudo_likelihood_is_that_of_scikit_learn(digits, monkeypatch, bfloat16):
    monkeypatch.setattr(rbm_estimator, "has_bfloat16", lambda: bfloat16)
    given = {"n_components": 64, "learning_rate": 0.05, "batch_size": 50, "n_iter": 8}
    ours, theirs = (
        np.mean(
            [pseudo_likelihood(cls(random_state=s, **given).fit(digits), digits) for s in (0, 1)]
        )
        for cls in (RBM, BernoulliRBM)
    )
    start = pseudo_likelihood(
        RBM(n_components=64, n_iter=1, learning_rate=1e-6).fit(digits), digits
    )
    assert theirs > start + 5  # both learned something
    assert ours == pytest.approx(theirs, rel=0.05)


def test_transform_and_scores_are_those_of_scikit_learn_for_the_same_weights(digits):
    theirs = BernoulliRBM(n_components=16, n_iter=1, random_state=0).fit(digits)
    ours = RBM(n_components=16, n_iter=1, random_state=0).fit(digits)
    for name in ("components_", "intercept_hidden_", "intercept_visible_"):
        setattr(ours, name, np.asarray(getattr(theirs, name), np.float64))
    x = digits.astype(np.float64)
    np.testing.assert_allclose(ours.transform(x), theirs.transform(x), rtol=1e-4)
    free = ours.network()(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(free, theirs._free_energy(x), rtol=1e-4)
    assert ours.score_samples(x).mean() == pytest.approx(theirs.score_samples(x).mean(), rel=0.05)


@pytest.mark.parametrize(("bfloat16", "close"), [(True, 2e-2), (False, 1e-5)])
def test_one_update_is_the_plain_rule(monkeypatch, bfloat16, close):
    """With the random numbers of the update, step by step in float64."""
    monkeypatch.setattr(rbm_estimator, "has_bfloat16", lambda: bfloat16)
    x = torch.rand(6, 5, generator=torch.Generator().manual_seed(1)).round()
    learner = _Learner(x, 4, 6, torch.Generator().manual_seed(2))
    learner.chains.copy_(torch.rand(6, 4, generator=torch.Generator().manual_seed(3)).round())
    chains, w, v = learner.chains.double(), learner.weight.double(), x.double()
    learner.visible_bias.fill_(0.3)
    learner.hidden_bias.fill_(-0.2)
    numbers = torch.Generator()
    numbers.set_state(learner.generator.get_state())
    u, u_hidden = torch.rand(6, 5, generator=numbers), torch.rand(6, 4, generator=numbers)
    learner.update(0, 0.6)
    v_model = (u < torch.sigmoid(chains @ w.T + 0.3)).double()
    h, h_model = torch.sigmoid(v @ w - 0.2), torch.sigmoid(v_model @ w - 0.2)
    rate = 0.6 / 6
    found = {
        "weight": w + rate * (v.T @ h - v_model.T @ h_model),
        "visible_bias": 0.3 + rate * (v - v_model).sum(0),
        "hidden_bias": -0.2 + rate * (h - h_model).sum(0),
    }
    for name, value in found.items():
        torch.testing.assert_close(getattr(learner, name).double(), value, atol=close, rtol=0)
    torch.testing.assert_close(learner.chains.double(), (u_hidden < h_model).double())
    torch.testing.assert_close(learner.factor.double(), learner.weight.double(), atol=close, rtol=0)


def test_the_last_batch_may_be_smaller_and_a_batch_larger_than_the_data():
    x = np.eye(7)
    for batch in (3, 100):
        fitted = RBM(n_components=4, batch_size=batch, n_iter=2, random_state=0).fit(x)
        assert fitted.components_.shape == (4, 7)
        assert np.isfinite(fitted.components_).all()


def test_the_same_random_state_gives_the_same_machine(digits):
    first, second = (RBM(8, n_iter=1, random_state=3).fit(digits) for _ in range(2))
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.gibbs(digits[:5]), second.gibbs(digits[:5]))
    assert set(np.unique(first.gibbs(digits))) == {0, 1}
    assert not np.array_equal(
        first.components_, RBM(8, n_iter=1, random_state=4).fit(digits).components_
    )


def test_tensors_come_back_as_tensors(digits):
    x = torch.tensor(digits[:50])
    fitted = RBM(8, n_iter=1, random_state=0).fit(x)
    assert isinstance(fitted.components_, torch.Tensor)
    for made in (fitted.transform(x), fitted.gibbs(x), fitted.score_samples(x)):
        assert isinstance(made, torch.Tensor)
    assert list(fitted.get_feature_names_out()) == [f"rbm{n}" for n in range(8)]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"n_components": 0}, r"n_components \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"n_iter": 0}, r"n_iter \(0\) must be at least 1"),
        ({"learning_rate": 0.0}, r"learning_rate \(0.0\) must be above 0"),
    ],
)
def test_settings_that_are_refused(given, line):
    with pytest.raises(UserError, match=line):
        RBM(**given).fit(np.eye(4))


def test_before_fit_it_says_so():
    with pytest.raises(NotFittedError, match="fit"):
        RBM().network()
