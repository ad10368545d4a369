import inspect
import math
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from everynet.zoo.optimisation import update_rules
from everynet.zoo.optimisation.update_rules import (
    RULES,
    AdaGradRule,
    AdamRule,
    LionRule,
    MomentumRule,
    NesterovRule,
    RMSPropRule,
    SGDRule,
    descend,
    epoch_gradients,
    nesterov_look_ahead,
)

TORCH = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "nesterov": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, nesterov=True),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr=lr),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr=lr),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr),
}
RATES = {"sgd": 0.1, "momentum": 0.03, "nesterov": 0.03, "adagrad": 0.1, "rmsprop": 0.003,
         "adam": 0.01, "lion": 0.003}  # fmt: skip
CLOSE = {"momentum": 1e-12, "nesterov": 1e-12}  # the others 1e-10


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def digits():
    """Rows, classes and the mean loss of softmax regression on some rows, at weights theta."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16), torch.tensor(y)

    def loss(theta, rows, reduction="mean"):
        weights = theta.reshape(10, 65)
        return cross_entropy(
            x[rows] @ weights[:, 1:].T + weights[:, 0], y[rows], reduction=reduction
        )

    return x, y, loss


class Noise:
    """A stochastic gradient: the same sequence for whoever asks, whatever theta is."""

    def __init__(self, size=20, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.scale = 10 ** torch.linspace(-3, 1, size, dtype=torch.float64)

    def __call__(self, theta):
        shape = theta.shape
        return (0.3 + torch.randn(shape, generator=self.generator).double()) * self.scale


class Batches:
    """The gradient of a batch of 32 digits, drawn anew at each call."""

    def __init__(self, loss, seed=0):
        self.loss, self.generator = loss, torch.Generator().manual_seed(seed)

    def __call__(self, theta):
        rows = torch.randint(1797, (32,), generator=self.generator)
        point = theta.detach().requires_grad_()
        return torch.autograd.grad(self.loss(point, rows), point)[0]


def by_torch(name, lr, slope, theta, steps):
    parameter = torch.nn.Parameter(theta.clone())
    optimizer, path = TORCH[name]([parameter], lr), [theta]
    for _ in range(steps):
        parameter.grad = slope(parameter.detach())
        optimizer.step()
        path.append(parameter.detach().clone())
    return torch.stack(path)


def by_pseudocode(lr, slope, theta, steps, *, decay=0.0, b1=0.9, b2=0.99):
    """Lion, algorithm 2 of the paper, in numpy."""
    x, m, path = theta.numpy(), np.zeros(len(theta)), [theta.numpy()]
    for _ in range(steps):
        g = slope(torch.from_numpy(x)).numpy()
        update = np.sign(b1 * m + (1 - b1) * g)
        x = x - lr * (update + decay * x)
        m = b2 * m + (1 - b2) * g
        path.append(x)
    return torch.from_numpy(np.stack(path))


def quadratic(condition, size=10):
    """The slope of a quadratic with eigenvalues from 1 to `condition`, and a start."""
    spectrum = condition ** torch.linspace(0, 1, size, dtype=torch.float64)
    return (lambda theta: spectrum * theta), torch.ones(size, dtype=torch.float64)


def steps_to(rule, slope, start, tolerance=1e-6, most=4000):
    """Steps until the error stays below a share of the first."""
    sizes = descend(rule, slope, start, most).norm(dim=-1) / start.norm()
    above = (sizes > tolerance).nonzero()
    assert above[-1] < most, "never got there"
    return int(above[-1]) + 1


# -------------------------------------------------------------------------- traces against others


@pytest.mark.covers("O25", "O26", "O27", "O28", "O29")
@pytest.mark.parametrize("name", TORCH)
def test_a_thousand_steps_of_noise_equal_torch(name):
    theta = torch.linspace(-1, 1, 20, dtype=torch.float64)
    ours = descend(RULES[name](0.01), Noise(), theta, 1000)
    theirs = by_torch(name, 0.01, Noise(), theta, 1000)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=CLOSE.get(name, 1e-10))
    assert (ours[1:] != ours[:-1]).all()


@pytest.mark.covers("O25", "O26", "O27", "O28", "O29")
@pytest.mark.parametrize("name", TORCH)
def test_a_thousand_steps_on_digits_equal_torch(name, digits):
    theta, lr = torch.zeros(650, dtype=torch.float64), RATES[name]
    ours = descend(RULES[name](lr), Batches(digits[2]), theta, 1000)
    theirs = by_torch(name, lr, Batches(digits[2]), theta, 1000)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=CLOSE.get(name, 1e-10))
    assert digits[2](ours[-1], torch.arange(1797)) < 0.35


@pytest.mark.covers("O30")
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_thousand_steps_of_lion_equal_its_pseudocode(decay, digits):
    start = torch.linspace(-1, 1, 20, dtype=torch.float64)
    for slope, theta in ((Noise, start), (lambda: Batches(digits[2]), torch.zeros(650).double())):
        ours = descend(LionRule(0.003, decay=decay), slope(), theta, 1000)
        theirs = by_pseudocode(0.003, slope(), theta, 1000, decay=decay)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.covers("O26")
@given(lr=st.floats(0.001, 0.015), beta=st.floats(0.0, 0.99), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_nesterov_look_ahead_is_torch_s_after_a_change_of_variable(lr, beta, seed):
    """The points ahead, theta = phi + beta u, are those of the rule that torch has."""
    slope, _ = quadratic(100.0)
    start = torch.randn(10, generator=torch.Generator().manual_seed(seed)).double()
    phi, ahead = nesterov_look_ahead(slope, start, 50, lr, beta)
    theta = descend(NesterovRule(lr, beta), slope, start, 50)
    torch.testing.assert_close(ahead, theta, rtol=0, atol=1e-10)
    if beta > 0.01:
        assert not torch.allclose(phi[2:], theta[2:], rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------ by hand


def test_two_steps_by_hand():
    """theta = 1, slopes 3 and then -4, lr = 1, and b = 1/2 unless it says another."""
    half = (0.5, 0.5)
    second = {
        "sgd": (SGDRule(1.0), [-2, 2]),
        "momentum": (MomentumRule(1.0, 0.5), [-2, 0.5]),
        "nesterov": (NesterovRule(1.0, 0.5), [-3.5, 1.75]),
        "adagrad": (AdaGradRule(1.0, 0.0), [0, 0.8]),
        "rmsprop": (RMSPropRule(1.0, 0.5, 0.0), [1 - 2**0.5, 1 - 2**0.5 + 4 / 10.25**0.5]),
        "adam": (AdamRule(1.0, half, 0.0), [0, 1.25 / 0.75 / (10.25 / 0.75) ** 0.5]),
        "lion": (LionRule(1.0, (0.9, 0.5), 0.5), [-0.5, -1.25]),  # c = 0.3, then 1.35 - 0.4
    }
    for name, (rule, expected) in second.items():
        slopes = iter((tensor(3.0), tensor(-4.0)))
        path = descend(rule, lambda _, s=slopes: next(s), tensor(1.0), 2)
        assert path[1:, 0].tolist() == pytest.approx(expected), name


@pytest.mark.covers("O27")
def test_the_place_of_eps_matters_only_beside_tiny_squares():
    theta = torch.linspace(-1, 1, 20, dtype=torch.float64)
    ours = descend(AdaGradRule(0.1), Noise(), theta, 1000)
    r, inside, noise = torch.zeros_like(theta), theta, Noise()
    for _ in range(1000):
        g = noise(inside)
        r = r + g**2
        inside = inside - 0.1 * g / (1e-10 + r).sqrt()
    torch.testing.assert_close(ours[-1], inside, rtol=0, atol=1e-3)
    assert not torch.equal(ours[-1], inside)


@pytest.mark.covers("O29")
@given(seed=st.integers(0, 1000), size=st.floats(-2, 6))
@settings(max_examples=25, deadline=None)
def test_adam_s_first_step_is_the_sign_of_the_gradient(seed, size):
    generator = torch.Generator().manual_seed(seed)
    g = 10**size * (1 + torch.rand(8, generator=generator).double())
    g = g * torch.randn(8, generator=generator).sign()
    path = descend(AdamRule(0.3), lambda _: g, torch.zeros(8, dtype=torch.float64), 1)
    torch.testing.assert_close(path[1], -0.3 * g.sign(), rtol=1e-6, atol=0)


# -------------------------------------------------------------------------------------------- laws


@pytest.mark.covers("O25")
def test_momentum_takes_the_root_of_the_steps_of_descent():
    """Four times the condition: four times the steps of descent, twice those of momentum."""
    plain, heavy = {}, {}
    for condition in (100.0, 400.0):
        slope, start = quadratic(condition)
        root = math.sqrt(condition)
        beta = ((root - 1) / (root + 1)) ** 2
        plain[condition] = steps_to(SGDRule(2 / (1 + condition)), slope, start)
        heavy[condition] = steps_to(MomentumRule(4 / (1 + root) ** 2, beta), slope, start)
    assert plain[400.0] / plain[100.0] == pytest.approx(4, rel=0.1)
    assert heavy[400.0] / heavy[100.0] == pytest.approx(2, rel=0.1)
    assert heavy[100.0] < plain[100.0] / 5


@pytest.mark.covers("O26")
@pytest.mark.parametrize(
    ("condition", "beta"), [(10.0, 0.8), (10.0, 0.9), (100.0, 0.9), (100.0, 0.95), (300.0, 0.95)]
)
def test_nesterov_needs_fewer_steps_than_momentum(condition, beta):
    """At the same settings, where momentum swings in every direction."""
    assert beta > (1 - condition**-0.5) ** 2
    slope, start = quadratic(condition)
    lr = 1 / condition
    fewer = steps_to(NesterovRule(lr, beta), slope, start, most=2000)
    assert fewer < 0.9 * steps_to(MomentumRule(lr, beta), slope, start, most=2000)


@pytest.mark.covers("O26")
def test_where_momentum_creeps_nesterov_s_brake_is_no_help():
    """With a beta below (1 - 1/sqrt(c))^2 the flattest direction does not swing."""
    slope, start = quadratic(300.0)
    assert (1 - 300**-0.5) ** 2 > 0.8
    more = steps_to(NesterovRule(1 / 300, 0.8), slope, start, most=2000)
    assert more >= steps_to(MomentumRule(1 / 300, 0.8), slope, start, most=2000)


@pytest.mark.covers("O27")
def test_adagrad_s_step_falls_like_one_over_the_root_of_t():
    t = torch.arange(1, 2001, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)

    def signs(theta):
        return torch.randn(theta.shape, generator=generator).double().sign()

    def sizes(slope):
        path = descend(AdaGradRule(0.5), slope, torch.zeros(30, dtype=torch.float64), 2000)
        return path.diff(dim=0).norm(dim=1)

    torch.testing.assert_close(sizes(signs) * t.sqrt(), torch.full_like(t, 0.5 * 30**0.5))
    noisy = sizes(lambda theta: torch.randn(theta.shape, generator=generator).double())
    slope = np.polyfit(t[10:].log().numpy(), noisy[10:].log().numpy(), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.02)


@pytest.mark.covers("O28")
def test_rmsprop_keeps_moving_where_adagrad_stalls():
    """A hundred steep steps, then a gentle slope: AdaGrad never forgets the steep ones."""

    def moved(rule):
        slopes = iter([100.0] * 100 + [1.0] * 2000)
        path = descend(rule, lambda theta: torch.full_like(theta, next(slopes)), tensor(0.0), 2100)
        return path.diff(dim=0)[-500:].abs().mean().item()

    assert moved(RMSPropRule(0.01)) == pytest.approx(0.01, rel=1e-3)  # its full rate
    assert moved(AdaGradRule(0.01)) < 1.1e-5  # 1/1000 of it, the root of 100 steps at 100


@pytest.mark.covers("O29")
def test_without_its_correction_adam_would_start_ten_times_too_short_or_long():
    """m = 0.1 g and sqrt(s) = 0.032 g after one step: the ratio is 3.2, not 1."""
    _, (m, s) = AdamRule(1.0).step(
        tensor(0.0), tensor(5.0), AdamRule(1.0).init_state(tensor(0.0)), 1
    )
    assert (m / s.sqrt()).item() == pytest.approx(0.1 / 0.001**0.5)


@pytest.mark.covers("O30")
@given(seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_lion_s_steps_all_have_the_same_length(seed):
    steps = descend(LionRule(0.2), Noise(seed=seed), torch.zeros(20).double(), 30).diff(dim=0)
    torch.testing.assert_close(steps.abs(), torch.full_like(steps, 0.2))


# ------------------------------------------------------------------------------------ mini-batches


@pytest.mark.covers("O22")
@pytest.mark.parametrize("batch_size", [1, 3, 599, 1797])
def test_the_mean_of_an_epoch_s_gradients_is_the_whole_gradient(batch_size, digits):
    *_, loss = digits
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(650, generator=generator).double()
    point = theta.clone().requires_grad_()
    (whole,) = torch.autograd.grad(loss(point, torch.arange(1797)), point)
    slopes = epoch_gradients(loss, theta, 1797, batch_size, generator)
    assert len(slopes) == 1797 / batch_size
    torch.testing.assert_close(slopes.mean(dim=0), whole, rtol=0, atol=1e-12)


@pytest.mark.covers("O22")
def test_the_variance_of_a_batch_s_loss_is_in_proportion_to_one_over_its_size(digits):
    *_, loss = digits
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(650, generator=generator).double()
    each = loss(theta, torch.arange(1797), "none")
    for size in (1, 4, 16, 64, 256):
        drawn = each[torch.randint(1797, (8000, size), generator=generator)].mean(dim=1)
        assert drawn.mean().item() == pytest.approx(each.mean().item(), rel=0.05)
        expected = each.var(correction=0).item() / size
        assert drawn.var().item() == pytest.approx(expected, rel=0.1)  # 1.6 % of sampling error


# -------------------------------------------------------------------------------------------- form


def test_rates_of_many_runs_are_one_tensor():
    slope, start = quadratic(10.0, 3)
    rates = tensor(0.01, 0.05)
    for rule in RULES.values():
        both = descend(rule(rates[:, None]), slope, start.expand(2, -1), 20)
        for number, lr in enumerate(rates.tolist()):
            torch.testing.assert_close(both[:, number], descend(rule(lr), slope, start, 20))


def test_every_equation_has_its_line():
    text = inspect.getsource(update_rules)
    doc, body = update_rules.__doc__, text.split('"""', 2)[2]
    said = [int(n) for n in re.findall(r"\s{2,}\((\d+)\)", doc)]
    assert said == list(range(1, len(said) + 1))
    assert {int(n) for n in re.findall(r"# \((\d+)\)", body)} == set(said)
    assert all(a < b for a, b in pairwise(said))
