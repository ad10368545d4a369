"""Generation from each layer's past: equal to asking the whole network, in every form."""

import pytest
import torch

from everynet.kernels import wavenet as kernel
from everynet.zoo.audio.wavenet import WaveNet
from everynet.zoo.audio.wavenet_generation import Queues, draw, generate, generate_naively

STEPS = 40


def network(dtype=torch.float32, **given):
    torch.manual_seed(0)
    sizes = {"blocks": 2, "layers": 4, "levels": 32, "conditions": (3,), "features": 2, "hop": 5}
    net = WaveNet(6, 9, **(sizes | given)).to(dtype).eval()
    for weight in net.parameters():
        weight.data *= 2
    return net


def inputs(net, prompt, batch=3):
    torch.manual_seed(prompt)
    dtype = net.now.weight.dtype
    x = torch.randint(net.levels, (batch, prompt))
    g = torch.randn(batch, 3).to(dtype) if net.conditions else None
    v = torch.randn(batch, 2, -(-(prompt + STEPS) // 5)).to(dtype) if net.features else None
    return x, torch.rand(batch, STEPS).double(), g, v


@pytest.mark.covers("R42")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("prompt", [1, 2, 45])
@pytest.mark.parametrize("features", [0, 2])
def test_equal_to_the_naive_one_sample_by_sample(dtype, prompt, features):
    net = network(dtype, features=features)
    x, u, g, v = inputs(net, prompt)
    expected = generate_naively(net, x, u, g=g, v=v)
    assert torch.equal(generate(net, x, u, g=g, v=v), expected)
    queues = Queues(net, x, g=g, v=v, more=STEPS)
    assert torch.equal(queues.eager(u.to(dtype), 1.0), expected)
    assert len(expected.unique()) > 8


@pytest.mark.parametrize("temperature", [0.0, 0.5, 3.0])
def test_temperatures(temperature):
    net = network(features=0, conditions=())
    x, u, _, _ = inputs(net, 4)
    expected = generate_naively(net, x, u, temperature=temperature)
    assert torch.equal(generate(net, x, u, temperature=temperature), expected)
    if temperature == 0:
        again = generate(net, x, u.flip(1), temperature=0.0)
        assert torch.equal(again, expected)  # no number has a say


def test_logits_of_the_compiled_loop():
    net = network()
    x, u, g, v = inputs(net, 9)
    queues, steps = Queues(net, x, g=g, v=v, more=STEPS), Queues(net, x, g=g, v=v, more=STEPS)
    ring = queues.ring.transpose(0, 1).contiguous()
    for t in range(20):
        bias = queues.bias.transpose(0, 1)[None] + queues.local[queues.time + t][None]
        levels, logits = kernel.generate(
            queues.weights(), queues.dilations, ring, queues.last, queues.time + t,
            bias.contiguous(), u[:, t : t + 1].float().contiguous(), 1.0,
        )  # fmt: skip
        expected = steps.step(steps.last, torch.tensor(queues.time + t))
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=2e-5)
        steps.last = torch.stack([steps.last[:, 1], levels[:, 0]], 1)


def test_it_goes_on_where_it_stopped():
    net = network(features=0)
    x, u, g, _ = inputs(net, 6)
    whole = generate(net, x, u, g=g)
    queues = Queues(net, x, g=g)
    parts = [queues.compiled(u[:, :25].float(), 1.0), queues.eager(u[:, 25:40].float(), 1.0)]
    parts.append(queues.compiled(u[:, 40:].float(), 1.0))
    assert torch.equal(torch.cat(parts, 1), whole)


def test_features_made_in_pieces(monkeypatch):
    net = network()
    x, u, g, v = inputs(net, 3)
    whole = generate(net, x, u, g=g, v=v)
    monkeypatch.setattr("everynet.zoo.audio.wavenet_generation.AT_ONCE", 16)
    assert torch.equal(generate(net, x, u, g=g, v=v), whole)


def test_the_network_is_left_as_it_was():
    net = network()
    before = [weight.clone() for weight in net.parameters()]
    x, u, g, v = inputs(net, 5)
    prompt = x.clone()
    generate(net, x, u, g=g, v=v)
    assert torch.equal(x, prompt)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_exponentials():
    x = torch.linspace(-86, 86, 100_001).numpy()
    y = torch.empty(len(x)).numpy()
    kernel.exponentials(x, y)
    error = torch.from_numpy(y).double() / torch.from_numpy(x).double().exp() - 1
    assert error.abs().max() < 1e-7


def test_draws_follow_their_probabilities():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).log_softmax(0)
    n = 40_000
    for temperature in (1.0, 2.0):
        u = (torch.arange(n) + 0.5) / n
        drawn = draw(logits.expand(n, -1), u, temperature)
        share = torch.bincount(drawn, minlength=4) / n
        torch.testing.assert_close(share, (logits / temperature).softmax(0), atol=2 / n, rtol=0)
    assert draw(logits[None], torch.tensor([0.1]), 0.0).tolist() == [2]
    assert draw(logits[None], torch.tensor([1.0]), 1.0).tolist() == [3]  # the last at most


def test_a_negative_temperature_is_refused():
    net = network(features=0)
    x, u, g, _ = inputs(net, 3)
    with pytest.raises(ValueError, match=r"temperature \(-1.0\) must be at least 0"):
        generate(net, x, u, g=g, temperature=-1.0)
