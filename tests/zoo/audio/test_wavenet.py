"""WaveNet: causality, receptive field, conditions, likelihoods, generation, baselines."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import conv1d, conv_transpose1d, one_hot, pad

import everynet
from everynet.data.sounds import wav
from everynet.nn import mu_law
from everynet.system.errors import UserError
from everynet.zoo.audio import baselines
from everynet.zoo.audio.pictures.wavenet import spectrogram
from everynet.zoo.audio.wavenet import (
    CausalConv1d,
    DilatedLayer,
    NextSample,
    WaveNet,
    after_silence,
    choose_labels,
    classify,
    gradient_reach,
    log_likelihoods,
    marginal,
    receptive_field,
    sample_losses,
)

SPEC = {"classes": ["a", "b", "c"], "speakers": ["theo", "yves"], "rate": 8000}


def network(**given):
    torch.manual_seed(0)
    sizes = {"blocks": 2, "layers": 3, "levels": 16, "conditions": (3, 2), "features": 2, "hop": 4}
    net = WaveNet(5, 6, **(sizes | given)).double().eval()
    for weight in net.parameters():
        weight.data *= 2  # so that a wrong term is seen
    return net


def given(net, batch=2, time=40):
    torch.manual_seed(1)
    x = torch.randint(net.levels, (batch, time))
    g = net.one_hot(torch.tensor([[1, 0], [2, 1]])[:batch]) if net.conditions else None
    v = torch.randn(batch, 2, -(-time // net.hop)).double() if net.features else None
    return x, g, v


# ------------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize("kernel_size", [2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 8])
def test_dilated_is_a_kernel_stuffed_with_zeros(kernel_size, dilation):
    conv, h = CausalConv1d(3, 4, kernel_size, dilation).double(), torch.randn(2, 3, 30).double()
    stuffed = torch.zeros(4, 3, (kernel_size - 1) * dilation + 1).double()
    stuffed[:, :, ::dilation] = conv.conv.weight
    whole = conv1d(pad(h, (stuffed.shape[2] - 1, 0)), stuffed, conv.conv.bias)
    torch.testing.assert_close(conv(h), whole)


def test_causal_convolution_by_hand():
    conv, h = CausalConv1d(1, 1, 2, 3).double(), torch.arange(1.0, 9.0).double()
    (old, new), bias = conv.conv.weight.flatten(), conv.conv.bias
    expected = [bias + new * h[t] + (old * h[t - 3] if t >= 3 else 0) for t in range(8)]
    torch.testing.assert_close(conv(h[None, None])[0, 0], torch.stack(expected)[:, 0])


def test_entry_is_a_causal_convolution_of_one_hot_vectors():
    net = network()
    x, _, _ = given(net)
    conv = CausalConv1d(16, 5).double()
    conv.conv.weight.data = torch.stack([net.before.weight.T, net.now.weight.T], 2)
    conv.conv.bias.data.zero_()
    torch.testing.assert_close(net.enter(x), conv(one_hot(x, 16).transpose(1, 2).double()))


@pytest.mark.covers("R41")
def test_gated_layer_by_hand():
    torch.manual_seed(0)
    layer = DilatedLayer(3, 4, 2, conditions=2, features=1).double()
    h, g, y = (
        torch.randn(2, 3, 9).double(),
        torch.randn(2, 2).double(),
        torch.randn(2, 1, 9).double(),
    )
    w, b = layer.conv.conv.weight, layer.conv.conv.bias
    shifted = pad(h, (2, 0))[:, :, :9]
    both = torch.einsum("oc,bct->bot", w[:, :, 0], shifted) + b[:, None]
    both += torch.einsum("oc,bct->bot", w[:, :, 1], h)
    both += (g @ layer.of_conditions.weight.T)[:, :, None]
    both += torch.einsum("oc,bct->bot", layer.of_features.weight[:, :, 0], y)
    z = both[:, :3].tanh() / (1 + (-both[:, 3:]).exp())
    after, skip = layer(h, g, y)
    torch.testing.assert_close(after, h + layer.residual(z))
    torch.testing.assert_close(skip, layer.skip(z))


def test_network_by_hand():
    net = network()
    x, g, v = given(net)
    h, y, s = net.enter(x), net.local(v, 40), 0
    for layer in net.layers:
        h, skip = layer(h, g, y)
        s = s + skip
    hidden = (net.hidden.weight[:, :, 0] @ s.clamp(min=0) + net.hidden.bias[:, None]).clamp(min=0)
    logits = net.output.weight[:, :, 0] @ hidden + net.output.bias[:, None]
    torch.testing.assert_close(net(x, g, v), logits)
    unchanged, _ = net.layers[-1](h, g, y)
    assert unchanged is h  # the last layer has no residual


def test_features_are_held_by_a_transposed_convolution():
    net = network()
    _, _, v = given(net)
    u, bias = net.upsample.weight, net.upsample.bias
    y = net.local(v, 38)
    for t in (0, 3, 4, 37):
        expected = torch.einsum("bi,ij->bj", v[:, :, t // 4], u[:, :, t % 4]) + bias
        torch.testing.assert_close(y[:, :, t], expected)
    torch.testing.assert_close(conv_transpose1d(v, u, bias, stride=4)[:, :, :38], y)


# ------------------------------------------------------------------------------------ the past


@pytest.mark.covers("R39")
@pytest.mark.parametrize(("blocks", "samples"), [(3, 3070), (4, 4093), (5, 5116)])
def test_receptive_fields_of_the_paper(blocks, samples):
    net = WaveNet(1, 1, blocks=blocks, layers=10, levels=2)
    assert net.stack_field == samples
    assert net.receptive_field == samples + 1
    assert {3: 192, 4: 256, 5: 320}[blocks] == round(samples / 16)  # ms at 16 kHz
    assert receptive_field([1, 2, 4], kernel_size=3) == 15


@pytest.mark.covers("R39")
def test_no_output_depends_on_a_later_sample_and_every_one_of_the_field_counts():
    """Each sample weighs the row of its level, so that the gradient by the weight is its share."""
    net = network(conditions=(), features=0)
    field = net.receptive_field
    assert field == 2 + 2 * 7
    time = field + 9
    share = torch.ones(1, time, 1, dtype=torch.double, requires_grad=True)
    x = torch.randint(16, (1, time))
    before = pad((net.before.weight[x] * share)[:, :-1], (0, 0, 1, 0))
    h = (before + net.now.weight[x] * share).transpose(1, 2)
    logits = net.head(net.run_layers(h)[1])
    torch.testing.assert_close(logits, net(x))
    for t in (0, 5, time - 1):
        (gradient,) = torch.autograd.grad(logits[0, :, t].square().sum(), share, retain_graph=True)
        counts = gradient[0, :, 0] != 0
        assert counts[max(0, t - field + 1) : t + 1].all()
        assert not counts[t + 1 :].any()
        assert not counts[: max(0, t - field + 1)].any()


def test_a_changed_sample_changes_the_field_and_nothing_else():
    net = network(conditions=(), features=0)
    x, _, _ = given(net, 1, 60)
    other = x.clone()
    other[0, 20] = (x[0, 20] + 5) % 16
    changed = (net(other) != net(x)).any(1)[0]
    assert changed[20 : 20 + net.receptive_field].all()
    assert not changed[:20].any()
    assert not changed[20 + net.receptive_field :].any()


def test_reach_ends_with_the_field():
    net = network(conditions=(3,), features=0, levels=256)
    x = torch.rand(1, 80).double() - 0.5
    reach = gradient_reach(net, x, torch.tensor([[1]]))
    assert len(reach) == 40
    assert (reach[: net.stack_field] > 0).all()
    assert (reach[net.stack_field :] == 0).all()


# --------------------------------------------------------------------------------- likelihoods


def test_the_losses_are_those_of_a_distribution_over_sounds():
    """The probabilities of all sounds of four samples of two levels add up to one."""
    net = network(levels=2, conditions=(3, 2), features=0)
    x = torch.cartesian_prod(*[torch.arange(2)] * 4)
    g = net.one_hot(torch.tensor([[1, 1]])).expand(16, -1)
    total = (-sample_losses(net, x, g).sum(1)).exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total))


def test_silence_comes_first():
    assert after_silence(torch.tensor([[3, 4, 5]])).tolist() == [[128, 3, 4]]
    assert after_silence(torch.tensor([[3]]), 16).tolist() == [[8]]


def test_labels_are_one_hot_and_an_unknown_one_is_nothing():
    net = network()
    g = net.one_hot(torch.tensor([[1, 0], [2, -1]]))
    assert g.tolist() == [[0, 1, 0, 1, 0], [0, 0, 1, 0, 0]]


@pytest.mark.covers("R41")
def test_likelihoods_of_every_combination():
    net = network(levels=256, features=0)
    x, lengths = torch.rand(3, 30).double() - 0.5, torch.tensor([30, 12, 1])
    table = log_likelihoods(net, x, lengths)
    assert table.shape == (3, 3, 2)
    for row, digit, speaker in ((0, 2, 1), (1, 0, 1), (2, 1, 0)):
        short = mu_law.encode(x[row : row + 1, : lengths[row]])
        losses = sample_losses(net, short, net.one_hot(torch.tensor([[digit, speaker]])))
        torch.testing.assert_close(table[row, digit, speaker], -losses.sum())
    by_digit = table.exp().mean(2).log()
    torch.testing.assert_close(marginal(table, 0), by_digit)
    torch.testing.assert_close(marginal(table, 1), table.exp().mean(1).log())
    one = table[:, :, 0]
    torch.testing.assert_close(marginal(one, 0), one)


class Loudness(WaveNet):
    """Class 0 sounds at level 10, class 1 at level 200: a stand-in whose classes are known."""

    def __init__(self):
        super().__init__(1, 1, layers=1, conditions=(2,))

    def forward(self, x, g=None, v=None):
        wanted = torch.tensor([10.0, 200.0])[g.argmax(1)]
        likely = -(torch.arange(256.0) - wanted[:, None]).abs()
        return likely[:, :, None].expand(-1, -1, x.shape[1])


@pytest.mark.covers("R41")
def test_the_likeliest_class_is_found():
    levels = torch.tensor([10, 200, 10, 199, 12])
    sounds = (32767 * mu_law.decode(levels)).round().short().repeat_interleave(7)
    starts = torch.arange(0, 36, 7)
    labels = torch.tensor([[0], [1], [0], [1], [0]])
    like = NextSample(data="tones:100").dataset()
    splits = dict.fromkeys(("train", "valid", "test"), (sounds, starts, labels))
    data = replace(like, splits=splits, batch_size=2, eval_batch_size=2)
    ((likely, true),) = classify(Loudness(), data, "test")
    assert likely.tolist() == true.tolist() == [0, 1, 0, 1, 0]
    ((likely, true),) = classify(Loudness(), data, "test", 3)
    assert len(likely) == 3
    assert (likely == true).all()


# ----------------------------------------------------------------------------------- baselines


def clips(*sounds):
    lengths = torch.tensor([0, *map(len, sounds)])
    return torch.cat([one.double() for one in sounds]), lengths.cumsum(0)


def test_histogram_by_hand():
    train = clips(mu_law.decode(torch.tensor([3, 3, 3, 7])))
    test = clips(mu_law.decode(torch.tensor([3, 9])))
    expected = -(math.log(4 / 260) + math.log(1 / 260)) / 2
    assert baselines.histogram_nats(train, test) == pytest.approx(expected)


@pytest.mark.covers("R42")
def test_autoregression_finds_its_coefficients():
    torch.manual_seed(0)
    noise, true, sounds = 0.01 * torch.randn(2, 20_000).double(), (1.2, -0.6), []
    for row in noise.tolist():
        x = [0.0, 0.0]
        for e in row:
            x.append(true[0] * x[-1] + true[1] * x[-2] + e)
        sounds.append(torch.tensor(x[2:]))
    a, s = baselines.fit_autoregression(clips(*sounds), 2)
    torch.testing.assert_close(a, torch.tensor(true).double(), atol=0.02, rtol=0)
    assert s == pytest.approx(0.01, rel=0.02)
    first = clips(sounds[0][:100], sounds[1][:3])  # a clip knows nothing of the one before
    (past, x), *_ = baselines._pasts(first, 2)
    assert past[0].tolist() == past[100].tolist() == [0, 0]
    assert past[101].tolist() == [x[100], 0]
    assert past[7].tolist() == [x[6], x[5]]
    nats = baselines.autoregression_nats(clips(*sounds), clips(*sounds), 2)
    assert nats < baselines.histogram_nats(clips(*sounds), clips(*sounds)) - 0.3


def test_the_gaussian_over_levels_is_a_distribution():
    edges = mu_law.level_edges(dtype=torch.double)
    for mean, s in ((0.0, 0.1), (0.9, 0.001), (-0.3, 2.0)):
        log_p = baselines.log_between((edges[:-1] - mean) / s, (edges[1:] - mean) / s)
        assert log_p.exp().sum() == pytest.approx(1)
        assert log_p.isfinite().all()
    one = torch.ones(1).double()
    assert baselines.log_between(-one, one).exp().item() == pytest.approx(math.erf(0.5**0.5))
    # Phi(42) - Phi(40): as Phi(-40) - Phi(-42), whose logarithm is known from the series.
    tail = baselines.log_between(40 * one, 42 * one).item()
    assert tail == pytest.approx(-800 - math.log(40 * math.sqrt(2 * math.pi)), abs=1e-3)
    assert baselines.log_between(-42 * one, -40 * one).item() == pytest.approx(tail)


# -------------------------------------------------------------------------------------- recipe


def test_objective_leaves_padding_out():
    recipe, net = NextSample(), network(levels=256, conditions=(3,), features=0).float()
    x, labels = torch.rand(2, 20) - 0.5, torch.tensor([[0], [2]])
    x[1, 8:] = 0
    nats = recipe.objective(net, (x, torch.tensor([20, 8]), labels))["nats"]
    each = recipe.metrics(net, (x, torch.tensor([20, 8]), labels))["nats"]
    assert each.shape == (28,)
    torch.testing.assert_close(each.mean(), nats)
    alone = recipe.metrics(net, (x[1:, :8], torch.tensor([8]), labels[1:]))["nats"]
    torch.testing.assert_close(each[20:], alone)


def test_training_sees_stretches_and_evaluation_whole_clips():
    data = NextSample(data="tones:100", window=50).dataset()
    x, lengths, labels = data.train(0)
    assert x.shape == (8, 50)
    assert labels.shape == (8, 2)
    assert (lengths == 50).all()
    heard = sum(int(lengths.sum()) for _, lengths, _ in data.test)
    assert heard == len(data.splits["test"][0])
    (x, lengths, _), *_ = data.sample("valid", 3)
    assert x.shape == (3, int(lengths.max()))


@pytest.fixture(scope="module")
def trained():
    recipe = everynet.recipe("wavenet", steps=1).tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    return recipe, recipe.model(data).eval(), data


@pytest.mark.covers("R42")
def test_sample_makes_sounds(trained):
    recipe, net, data = trained
    made = recipe.sample(
        net, data.spec, torch.Generator().manual_seed(3), n=2, seconds=0.01, label="chord"
    )
    assert [one.shape for one in made] == [(80,), (80,)]
    assert not torch.equal(*made)
    assert all(one.abs().max() <= 1 for one in made)
    again = recipe.sample(
        net, data.spec, torch.Generator().manual_seed(3), n=2, seconds=0.01, label="chord"
    )
    assert torch.equal(made[1], again[1])
    start = [torch.rand(30) - 0.5, torch.rand(5) - 0.5]
    longer = recipe.sample(net, data.spec, torch.Generator(), seconds=0.01, start=start)
    assert [len(one) for one in longer] == [110, 85]
    assert torch.equal(longer[0][:30], mu_law.decode(mu_law.encode(start[0])))


def test_wav_is_written(trained, tmp_path):
    from everynet.data.kinds.sound import KIND

    recipe, net, data = trained
    made = recipe.sample(net, data.spec, torch.Generator(), seconds=0.02)
    (path,) = KIND.write(made, data.spec, tmp_path / "one.wav")
    sound = wav.decode(path.read_bytes(), path)
    assert sound.rate == 8000
    assert len(sound.values) == 160


def test_predict_tells_the_class(trained):
    recipe, net, data = trained
    x = torch.rand(50) - 0.5
    answer, _ = recipe.predict(net, [x, x[:9]], data.spec)
    table = log_likelihoods(net, x[None], torch.tensor([50]))[0].tolist()
    assert answer["class_log_likelihoods"] == pytest.approx(
        dict(zip(data.spec["classes"], table, strict=True))
    )
    assert answer["class"] == data.spec["classes"][table.index(max(table))]
    assert answer["nats"] == pytest.approx(-max(table) / 50)
    assert "speaker" not in answer


def test_choice_of_labels():
    random = torch.Generator().manual_seed(0)
    chosen = choose_labels(SPEC, {"class": "b", "speaker": ""}, 40, random)
    assert (chosen[:, 0] == 1).all()
    assert set(chosen[:, 1].tolist()) == {0, 1}
    chosen = choose_labels(SPEC, {"class": "", "speaker": "yves"}, 40, random)
    assert set(chosen[:, 0].tolist()) == {0, 1, 2}
    assert (chosen[:, 1] == 1).all()


def test_spectrogram_of_a_sine():
    t = torch.arange(4000) / 8000
    strength = spectrogram((2 * math.pi * 1000 * t).sin())
    middle = strength[:, strength.shape[1] // 2]
    assert int(middle.argmax()) == 32
    assert middle[80] < -60  # 1,000 Hz of 31.25 Hz steps


# -------------------------------------------------------------------------------------- errors


def test_networks_refuse_what_they_were_not_made_for():
    net = network()
    x, g, v = given(net)
    with pytest.raises(ValueError, match=r"g \(0 numbers\) must have 5"):
        net(x, None, v)
    with pytest.raises(ValueError, match=r"v \(3 numbers\) must have 2"):
        net(x, g, torch.zeros(2, 3, 10).double())
    with pytest.raises(ValueError, match=r"v \(9 frames\) must cover 40 samples.*give 10 frames"):
        net(x, g, v[:, :, :9])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": 21}, r"layers \(21\) must be at most 20"),
        ({"channels": 0}, r"channels \(0\) must be at least 1"),
        ({"window": 0}, r"window \(0\) must be at least 1"),
        ({"decay": 1.0}, r"decay \(1.0\) must be above 0 and below 1"),
        ({"clips": -1}, r"clips \(-1\) must be at least 0"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        NextSample(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"label": "hum"}, "unknown class 'hum'; did you mean"),
        ({"speaker": "theo"}, r"speaker \(theo\) must be left out"),
        ({"n": 0}, r"n \(0\) must be from 1"),
        ({"seconds": 0.0}, r"seconds \(0\) must be above 0"),
        ({"seconds": 1e4}, r"seconds \(10000\) must be above 0 and at most 600"),
        ({"temperature": -1.0}, r"temperature \(-1\) must be from 0"),
    ],
)
def test_samples_that_are_refused(trained, settings, words):
    recipe, net, data = trained
    with pytest.raises(UserError, match=words):
        recipe.sample(net, data.spec, torch.Generator(), **settings)


def test_empty_clips_and_odd_counts_are_refused(trained):
    recipe, net, data = trained
    with pytest.raises(UserError, match="must hold at least one sample"):
        recipe.predict(net, [torch.zeros(0)], data.spec)
    with pytest.raises(UserError, match=r"clips \(-2\) must be at least 0"):
        recipe.final(net, data, torch.Generator(), clips=-2)


def test_transcripts_are_refused(tmp_path):
    wave = wav.encode(wav.to_16_bits(torch.zeros(400).numpy()), 8000)
    lines = ["file,transcript"]
    for n in range(40):
        (tmp_path / f"{n}.wav").write_bytes(wave)
        lines.append(f"{n}.wav,one")
    (tmp_path / "talk.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match="must be a folder with one subfolder of clips"):
        NextSample(data=str(tmp_path / "talk.csv")).dataset()


@pytest.mark.slow
def test_learns_tones(tmp_path):
    run = everynet.run(everynet.recipe("wavenet"), tmp_path)
    print(run.metrics, run.folder)
    assert run.reached, run.metrics
