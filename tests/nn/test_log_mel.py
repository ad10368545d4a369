"""Log-mel: against sums written out with numpy, and closed forms of the two scales."""

import math

import numpy as np
import pytest
import torch
from scipy.signal import stft

from everynet.nn.log_mel import FLOOR, LogMel, mel_filters, to_hertz, to_mel

RATE, FRAME, HOP, MELS = 8000, 256, 100, 20


def mel(f, scale):
    """The scales as their authors write them, for one frequency."""
    if scale == "htk":
        return 2595 * math.log10(1 + f / 700)
    return 3 * f / 200 if f < 1000 else 15 + 27 * math.log(f / 1000) / math.log(6.4)


def hertz(m, scale):
    if scale == "htk":
        return 700 * (10 ** (m / 2595) - 1)
    return 200 * m / 3 if m < 15 else 1000 * 6.4 ** ((m - 15) / 27)


def triangles(scale):
    top = mel(RATE / 2, scale)
    edges = [hertz(top * n / (MELS + 1), scale) for n in range(MELS + 2)]
    table = np.zeros((MELS, FRAME // 2 + 1))
    for m in range(MELS):
        low, centre, high = edges[m : m + 3]
        for k in range(FRAME // 2 + 1):
            f = k * RATE / FRAME
            if low < f <= centre:
                table[m, k] = (f - low) / (centre - low)
            elif centre < f < high:
                table[m, k] = (high - f) / (high - centre)
        table[m] *= 2 / (high - low) if scale == "slaney" else 1
    return table


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_filters_and_energies_equal_a_table_and_sums_written_out(scale):
    expected = triangles(scale)
    np.testing.assert_allclose(mel_filters(RATE, FRAME, MELS, scale).numpy(), expected, atol=1e-12)
    x = np.random.default_rng(0).uniform(-1, 1, 900)
    around = np.concatenate([np.zeros(FRAME // 2), x, np.zeros(FRAME // 2)])
    n, k = np.arange(FRAME), np.arange(FRAME // 2 + 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * n / FRAME)
    rows = []
    for t in range(900 // HOP + 1):
        frame = window * around[t * HOP : t * HOP + FRAME]
        spectrum = np.exp(-2j * np.pi * np.outer(k, n) / FRAME) @ frame
        rows.append(np.log(np.maximum(expected @ np.abs(spectrum) ** 2, FLOOR)))
    module = LogMel(RATE, FRAME, HOP, MELS, scale=scale)
    made = module(torch.tensor(x, dtype=torch.float32)[None])[0]
    np.testing.assert_allclose(made.numpy(), np.stack(rows), rtol=1e-5, atol=1e-4)
    assert module.frames(torch.tensor([900])).tolist() == [len(rows)]


def test_the_spectrum_is_that_of_scipy():
    x = np.random.default_rng(1).uniform(-1, 1, 2000)
    _, _, spectrum = stft(x, window="hann", nperseg=FRAME, noverlap=FRAME - HOP, padded=False)
    power = np.abs(spectrum * FRAME / 2) ** 2  # scipy divides by the sum of the window
    expected = np.log(mel_filters(RATE, FRAME, MELS).numpy() @ power).T
    made = LogMel(RATE, FRAME, HOP, MELS)(torch.tensor(x, dtype=torch.float32)[None])[0]
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_scales_are_inverse_and_a_tone_is_loudest_in_its_band(scale):
    f = torch.linspace(0, 4000, 50, dtype=torch.float64)
    torch.testing.assert_close(to_hertz(to_mel(f, scale), scale), f)
    assert float(to_mel(torch.tensor(1000.0, dtype=torch.float64), scale)) == pytest.approx(
        {"slaney": 15.0, "htk": 999.9855}[scale], abs=1e-3
    )
    top = float(to_mel(torch.tensor(4000.0), scale))
    for band in (3, 9, 17):
        centre = float(to_hertz(torch.tensor(top * (band + 1) / (MELS + 1)), scale))
        tone = (2 * math.pi * centre * torch.arange(4000) / RATE).sin()
        assert int(LogMel(RATE, FRAME, HOP, MELS, scale=scale)(tone[None])[0, 20].argmax()) == band


def test_silence_is_the_floor_and_twice_as_loud_is_log_four_more():
    module = LogMel(RATE, FRAME, HOP, MELS)
    torch.testing.assert_close(
        module(torch.zeros(1, 500)), torch.full((1, 6, MELS), math.log(FLOOR))
    )
    x = torch.randn(2, 500)
    torch.testing.assert_close(module(2 * x), module(x) + math.log(4))


def test_slaney_triangles_have_area_one():
    table = mel_filters(RATE, 4096, MELS, "slaney")
    torch.testing.assert_close(
        table.sum(1) * RATE / 4096, torch.ones(MELS, dtype=torch.float64), rtol=1e-3, atol=0
    )


def test_it_holds_no_weights_and_goes_to_float64():
    module = LogMel(RATE, FRAME, HOP, MELS)
    assert not module.state_dict()
    assert not list(module.parameters())
    x = torch.randn(1, 300, dtype=torch.float64, requires_grad=True)
    assert module.double()(x).dtype == torch.float64
    assert torch.autograd.gradcheck(LogMel(RATE, 16, 8, 3).double(), (x[:, :40],))


def test_messages():
    for sizes, words in (
        ((0, 256, 100, 20), r"rate \(0\) must be at least 1"),
        ((8000, 256, 0, 20), r"hop \(0\) must be at least 1"),
        ((8000, 64, 32, 80), r"mels \(80\) must be fewer, or frame \(64\) longer"),
    ):
        with pytest.raises(ValueError, match=words):
            LogMel(*sizes)
    with pytest.raises(ValueError, match=r"scale \(bark\) must be slaney or htk"):
        mel_filters(8000, 256, 20, "bark")
