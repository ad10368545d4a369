"""Predictive coding: F, its relaxation, the local rule, backpropagation's limit, both networks."""

import pytest
import torch
from torch.nn.functional import one_hot

import everynet
from everynet.data.dataset import Data
from everynet.system.errors import UserError
from everynet.zoo.predictive.predictive_coding import (
    ClassOnTop,
    ImageOnTop,
    PredictiveCoding,
    SeparateFeedback,
    backpropagated,
    correlate,
    cosines,
)
from everynet.zoo.vision.classifier import to_pixels

SIZES = (6, 5, 4, 3)
SPEC = {
    "kind": "image", "task": "classification", "shape": [1, 2, 3], "classes": ["a", "b", "c"],
    "mean": [0.5], "std": [0.25], "size": 0,
}  # fmt: skip


def network(cls=PredictiveCoding, nu=1.0, sizes=SIZES, seed=0):
    torch.manual_seed(seed)
    net = cls(sizes, nu).double()
    with torch.no_grad():
        for bias in net.biases:
            bias.normal_()
    return net


def activities(seed=1, rows=7, sizes=SIZES):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, n, generator=generator, dtype=torch.float64) for n in sizes]


def test_energy_by_hand():
    """Two layers of one unit: mu = M tanh(x2) + beta, F = (x1 - mu)^2 / (2 nu)."""
    net = PredictiveCoding((1, 1), nu=4.0).double()
    with torch.no_grad():
        net.weights[0].fill_(3.0)
        net.biases[0].fill_(0.5)
    x = [torch.tensor([[2.0]]).double(), torch.tensor([[0.7]]).double()]
    mu = 3 * torch.tensor(0.7).double().tanh() + 0.5
    torch.testing.assert_close(net.predict(0, x[1])[0, 0], mu)
    torch.testing.assert_close(net.errors(x)[0][0, 0], (2 - mu) / 4)
    torch.testing.assert_close(net.energy(x)[0], (2 - mu) ** 2 / 8)


@pytest.mark.parametrize("nu", [1.0, 0.3])
def test_flow_is_minus_the_gradient_of_the_energy(nu):
    net, x = network(nu=nu), [layer.requires_grad_() for layer in activities()]
    assert torch.autograd.gradcheck(lambda *x: net.energy([*x]), x)
    expected = torch.autograd.grad(net.energy(x).sum(), x)
    for found, gradient in zip(net.flow(x), expected, strict=True):
        torch.testing.assert_close(found, -gradient)


@pytest.mark.parametrize("ends", [{}, {"free_top": True}, {"free_bottom": True}])
@pytest.mark.parametrize("cls", [PredictiveCoding, SeparateFeedback])
def test_relaxing_in_place_is_euler_steps_of_the_flow(cls, ends):
    net, x = network(cls, nu=0.5), activities()
    expected = [layer.clone() for layer in x]
    clamped = (
        {0, 3} - ({3} if "free_top" in ends else set()) - ({0} if "free_bottom" in ends else set())
    )
    for _ in range(5):
        change = net.flow(expected)
        expected = [
            e if i in clamped else e + 0.1 * c
            for i, (e, c) in enumerate(zip(expected, change, strict=True))
        ]
    before = [layer.clone() for layer in x]
    torch.testing.assert_close(net.relax(x, 5, 0.1, **ends), expected)
    torch.testing.assert_close(x, before, rtol=0, atol=0)  # what was given is left as it was


@pytest.mark.parametrize("ends", [{}, {"free_top": True}, {"free_bottom": True, "free_top": True}])
@pytest.mark.parametrize("seed", range(5))
def test_energy_never_rises_while_relaxing(seed, ends):
    net, x = network(seed=seed), activities(seed)
    energies = []
    for _ in range(60):
        energies.append(net.energy(x))
        x = net.relax(x, 1, 0.03, **ends)
    assert (torch.stack(energies).diff(dim=0) <= 1e-12).all()
    assert (energies[-1] < energies[0]).all()


def test_errors_balance_at_equilibrium():
    net = network()
    x = net.relax(activities(), 6000, 0.1)
    eps = net.errors(x)
    for i in (1, 2):
        pushed = (1 - x[i].tanh() ** 2) * (eps[i - 1] @ net.weights[i - 1].T)
        assert (eps[i] - pushed).abs().max() < 1e-6
        assert eps[i].abs().max() > 1e-2  # not because there is none


def test_with_the_bottom_free_relaxation_ends_at_the_sweep():
    """Generation: no error is left, so that one sweep downwards is the equilibrium."""
    net, x = network(), activities()
    relaxed = net.relax(x, 6000, 0.1, free_bottom=True)
    torch.testing.assert_close(relaxed, net.sweep(x[-1]), rtol=0, atol=1e-6)
    assert net.energy(relaxed).max() < 1e-12


@pytest.mark.parametrize("cls", [PredictiveCoding, SeparateFeedback])
def test_the_loss_descends_by_the_local_rule(cls):
    net, x = network(cls, nu=0.5), activities()
    net.loss(x).sum().backward()
    rule = net.updates(x)
    torch.testing.assert_close([-m.grad for m in net.weights], rule["weights"])
    torch.testing.assert_close([-b.grad for b in net.biases], rule["biases"])
    if cls is SeparateFeedback:
        torch.testing.assert_close([-w.grad for w in net.feedbacks], rule["feedback"])
    for dm, dw in zip(rule["weights"], rule["feedback"], strict=True):
        torch.testing.assert_close(dm, dw.T)


@pytest.mark.covers("B1")
@pytest.mark.parametrize("cls", [PredictiveCoding, SeparateFeedback])
def test_each_update_reads_only_its_neighbours(cls):
    """By gradient: what joins two layers changes by these, and by what joins them, alone."""
    net, x = network(cls), [layer.requires_grad_() for layer in activities()]
    sources = {f"x{i}": layer for i, layer in enumerate(x)}
    sources |= {f"weights{i}": m for i, m in enumerate(net.weights)}
    sources |= {f"biases{i}": b for i, b in enumerate(net.biases)}
    if cls is SeparateFeedback:
        sources |= {f"feedback{i}": w for i, w in enumerate(net.feedbacks)}

    def read(value):
        found = torch.autograd.grad(
            value.square().sum(), [*sources.values()], allow_unused=True, retain_graph=True
        )
        return {
            n for n, g in zip(sources, found, strict=True) if g is not None and g.abs().max() > 0
        }

    for parts in net.updates(x).values():
        for i, part in enumerate(parts):
            assert read(part) == {f"x{i}", f"x{i + 1}", f"weights{i}", f"biases{i}"}
    back = "feedback" if cls is SeparateFeedback else "weights"
    for i, change in enumerate(net.flow(x)):
        near = {f"x{j}" for j in (i - 1, i, i + 1) if 0 <= j < 4}
        joins = {f"{kind}{j}" for kind in ("weights", "biases") for j in (i - 1, i) if 0 <= j < 3}
        assert read(change) == near | joins | ({f"{back}{i - 1}"} if i else set())


def test_small_errors_give_the_updates_of_backpropagation():
    """Where nu is large the activities hardly move; the difference falls as 1 / nu."""
    x, apart = activities(), []
    for nu in (1e2, 1e4):
        net = network(nu=nu)
        relaxed = net.relax([x[0], *net.sweep(x[-1])[1:]], 3000, 0.1)
        pairs = zip(net.updates(relaxed)["weights"], backpropagated(net, x[-1], x[0]), strict=True)
        apart.append(max(((a - b).norm() / b.norm()).item() for a, b in pairs))
        assert cosines(net, x[-1], x[0], 3000, 0.1).min() >= 0.99
    assert apart[1] < 1e-2
    assert apart[1] == pytest.approx(apart[0] / 100, rel=0.2)
    assert cosines(network(nu=0.1), x[-1], x[0], 3000, 0.01).min() < 0.99


@pytest.mark.covers("B3")
def test_weights_and_feedback_converge_to_each_other():
    """M - W^T shrinks by 1 - lr decay at every update, whatever is learned."""
    net, lr, decay = network(SeparateFeedback), 0.1, 0.1
    first = [m.detach() - w.detach().T for m, w in zip(net.weights, net.feedbacks, strict=True)]
    before = net.alignment()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, weight_decay=decay)
    x = activities()
    for _ in range(300):
        optimizer.zero_grad()
        net.loss(net.relax(x, 2, 0.1)).mean().backward()
        optimizer.step()
    share = (1 - lr * decay) ** 300
    for m, w, apart in zip(net.weights, net.feedbacks, first, strict=True):
        torch.testing.assert_close(m - w.T, share * apart)
    assert before.abs().max() < 0.7
    assert net.alignment().min() > 0.95


def recipe(cls=ClassOnTop, **given):
    return cls(hidden=(5, 4), **given)


@pytest.mark.parametrize("cls", [ClassOnTop, ImageOnTop])
def test_an_update_descends_the_energy_of_relaxed_activities(cls):
    made = recipe(cls, relaxation_steps=3, inference_steps=4)
    torch.manual_seed(0)
    net = made.model(Data.described(SPEC))
    image, y = torch.randn(4, 1, 2, 3), torch.tensor([0, 2, 1, 1])
    energy = made.objective(net, (image, y))["energy"]
    ends = (image.flatten(1), one_hot(y, 3).float())
    bottom, top = ends if cls is ClassOnTop else ends[::-1]
    x = net.relax([bottom, *net.sweep(top)[1:]], 3, made.dt)
    torch.testing.assert_close(energy, net.energy(x).mean())
    found = torch.autograd.grad(energy, [*net.weights])
    torch.testing.assert_close([-4 * g for g in found], net.updates(x)["weights"])
    assert torch.equal(x[0], bottom)
    assert torch.equal(x[-1], top)


def test_logits_are_the_energies_of_clamped_classes_but_for_what_all_share():
    net = network(sizes=(6, 5, 3)).float()
    made = recipe(inference_steps=5)
    x = made.infer(net, torch.randn(4, 6))
    logits, units = made.score(net, x)
    energies = torch.stack(
        [net.energy([*x[:-1], torch.eye(3)[c].repeat(4, 1)]) for c in range(3)], 1
    )
    torch.testing.assert_close(logits.log_softmax(1), (-energies).log_softmax(1), atol=1e-4, rtol=0)
    assert torch.equal(units, x[-1])
    turned, bottom = replace_top(), torch.randn(4, 6)
    x = turned[0].infer(turned[1], bottom)
    logits, _ = turned[0].score(turned[1], x)
    energies = torch.stack(
        [turned[1].energy([torch.eye(3)[c].repeat(4, 1), *x[1:]]) for c in range(3)], 1
    )
    torch.testing.assert_close(logits.log_softmax(1), (-energies).log_softmax(1), atol=1e-4, rtol=0)


def replace_top():
    return recipe(ImageOnTop, nu=0.5), network(nu=0.5, sizes=(3, 5, 6)).float()


@pytest.mark.parametrize("cls", [ClassOnTop, ImageOnTop])
def test_samples_are_of_the_class_that_is_asked_for(cls):
    made = recipe(cls)
    torch.manual_seed(0)
    net = made.model(Data.described(SPEC)).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        every = made.sample(net, SPEC, draw, n=5, noise=0.0)
        same = made.sample(net, SPEC, draw, n=2, label="b", noise=0.0)
        varied = made.sample(net, SPEC, draw, n=2, label="b")
        expected = made.generate_classes(net, SPEC)
    assert every.shape == (5, 1, 2, 3)
    torch.testing.assert_close(to_pixels(every, SPEC).clamp(0, 1), expected[[0, 1, 2, 0, 1]])
    torch.testing.assert_close(to_pixels(same, SPEC).clamp(0, 1), expected[[1, 1]])
    assert not torch.allclose(varied[0], varied[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label": "d"}, r"unknown label 'd'; did you mean"),
        ({"n": 0}, r"n \(0\) must be between 1 and 10,000"),
        ({"n": 10_001}, r"n \(10001\) must be between"),
        ({"noise": -1.0}, r"noise \(-1.0\) must be at least 0"),
        ({"noise": float("nan")}, r"noise \(nan\) must be at least 0"),
    ],
)
def test_samples_that_cannot_be_made(settings, message):
    made = recipe()
    net = made.model(Data.described(SPEC))
    with pytest.raises(UserError, match=message):
        made.sample(net, SPEC, torch.Generator(), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": ()}, r"hidden .* must be one or more positive numbers"),
        ({"hidden": (4, 0)}, r"hidden .* must be one or more positive numbers"),
        ({"nu": 0.0}, r"nu \(0.0\) must be a positive number"),
        ({"dt": -0.1}, r"dt \(-0.1\) must be a positive number"),
        ({"relaxation_steps": 0}, r"relaxation_steps \(0\) must be at least 1"),
        ({"inference_steps": 0}, r"inference_steps \(0\) must be at least 1"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        ClassOnTop(**settings)


def test_networks_that_are_refused():
    with pytest.raises(ValueError, match=r"sizes \(4\) must be two or more positive numbers"):
        PredictiveCoding((4,))
    with pytest.raises(ValueError, match=r"nu \(0\) must be above 0, because it is a variance"):
        PredictiveCoding((4, 3), nu=0)
    with pytest.raises(ValueError, match="PredictiveCoding must be given"):
        PredictiveCoding((4, 3))(torch.randn(2, 5))


def test_correlation_of_images():
    a = torch.randn(3, 1, 4, 4)
    torch.testing.assert_close(correlate(a, 2 * a + 1), torch.ones(3).double())
    torch.testing.assert_close(correlate(a, 1 - a), -torch.ones(3).double())


@pytest.mark.slow
@pytest.mark.covers("B4")
def test_digits_are_inferred_and_generated(tmp_path):
    result = everynet.run("predictive-coding", out=tmp_path)
    assert result.reached
    assert result.metrics["unit_accuracy"] >= 0.9
