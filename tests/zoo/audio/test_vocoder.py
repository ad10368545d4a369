"""The vocoder: energies of bands in closed form, and sounds made from them."""

import math

import pytest
import torch

import everynet
from everynet.system.errors import UserError
from everynet.zoo.audio.vocoder import EPS, BandEnergies


def test_a_sine_is_in_its_band_and_as_strong_as_it_is():
    hop, bands = 16, 4
    t = torch.arange(640).double()
    energies = BandEnergies(bands, hop).double()
    for band, k in ((0, 4), (1, 12), (3, 28)):  # of 33 frequencies, k / 64 of a turn a sample
        quiet, loud = (a * (2 * math.pi * k * t / (4 * hop)).sin() for a in (0.1, 0.2))
        v = energies(torch.stack([quiet, loud]))
        assert v.shape == (2, bands, 40)
        assert (v[:, :, 4:36].argmax(1) == band).all()
        louder = v[1, band, 4:36].exp() - EPS
        torch.testing.assert_close(louder, 4 * (v[0, band, 4:36].exp() - EPS))


def test_by_hand_and_silence():
    energies = BandEnergies(2, 3).double()
    torch.manual_seed(0)
    x = torch.randn(1, 30).double()
    v = energies(x)
    n = 4  # the middle of its window is that of samples 12 to 14
    piece = x[0, 12 - 4 : 12 + 8] * torch.hann_window(12).double()
    power = torch.fft.fft(piece).abs().square()[:7]
    expected = [(power[:4].mean() + EPS).log(), (power[3:].mean() + EPS).log()]
    torch.testing.assert_close(v[0, :, n], torch.stack(expected))
    assert energies(torch.zeros(1, 31).double()).shape == (1, 2, 11)
    torch.testing.assert_close(
        energies(torch.zeros(1, 7).double()).exp(), torch.full((1, 2, 3), EPS).double()
    )


@pytest.mark.covers("R41")
def test_samples_follow_clips():
    recipe = everynet.recipe("wavenet-vocoder").tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    net = recipe.model(data).eval()
    clips = [torch.rand(50) - 0.5, torch.rand(33) - 0.5]
    made = recipe.sample(net, data.spec, torch.Generator(), like=clips, label="tone")
    assert [len(one) for one in made] == [50, 33]
    answer, _ = recipe.predict(net, clips, data.spec)
    assert answer["class"] in data.spec["classes"]
    with pytest.raises(UserError, match=r"like \(\) must name clips"):
        recipe.sample(net, data.spec, torch.Generator())
