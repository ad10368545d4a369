"""Log-mel: the energy of a sound over time in bands that are spaced as we hear pitch.

    X_tk = sum_n w_n x_{tH + n} e^(-2 pi i k n / N)          (1)  Fourier transform of frame t
    P_tm = sum_k F_mk |X_tk|^2                               (2)  energy in mel band m
    y_tm = log max(P_tm, e)                                  (3)  log-mel

N is the length of a frame and w a Hann window over it, H the hop from a frame to the next; frame t
is around sample tH, with zeros beyond both ends. F_mk is a triangle over frequencies, 0 at the
centres of the bands on both sides. The centres are evenly spaced in mel, a scale of pitch:

    htk       mel(f) = 2595 log10(1 + f / 700), triangles of height 1
    slaney    linear below 1 kHz, logarithmic above (27 mel for a factor of 6.4), triangles of
              area 1 (in Hz), so that white noise is flat on average

Davis, Mermelstein (1980), "Comparison of parametric representations for monosyllabic word
recognition", doi:10.1109/TASSP.1980.1163420; Slaney (1998), "Auditory Toolbox", section 6; Young
et al. (2006), "The HTK Book", section 5.4.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

SCALES = ("slaney", "htk")
FLOOR = 1e-10
"""The least energy, e of equation (3): silence is as loud."""
_LINEAR, _KNEE, _STEP = 200 / 3, 1000.0, math.log(6.4) / 27
"""Slaney's scale: Hz a mel below the knee (Hz), and the logarithm of the factor a mel above."""


class LogMel(nn.Module):
    """Maps sounds from -1 to 1 to log-mel energies, a frame every `hop` samples."""

    window: Tensor
    filters: Tensor

    def __init__(
        self,
        rate: int,
        frame: int,
        hop: int,
        mels: int,
        *,
        scale: str = "slaney",
        floor: float = FLOOR,
    ) -> None:
        super().__init__()
        for name, value in (("rate", rate), ("frame", frame), ("hop", hop), ("mels", mels)):
            if value < 1:
                raise ValueError(f"{name} ({value}) must be at least 1")
        self.frame, self.hop, self.floor = frame, hop, floor
        # buffers travel with the network, and no checkpoint has to hold what follows from sizes
        self.register_buffer("window", torch.hann_window(frame), persistent=False)
        with torch.device("cpu"):  # numbers are looked at, which "meta" has none of
            filters = mel_filters(rate, frame, mels, scale).float()
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, x: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch frames mels"]:
        around = pad(x, (self.frame // 2, self.frame // 2))
        frames = around.unfold(1, self.frame, self.hop)  # batch frames samples
        spectrum = torch.fft.rfft(frames * self.window)  # (1)
        power = spectrum.real.square() + spectrum.imag.square()
        energy: Tensor = power @ self.filters.T  # (2)
        return energy.clamp(min=self.floor).log()  # (3)

    def frames(self, samples: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
        """How many frames sounds of so many samples have."""
        return (samples + 2 * (self.frame // 2) - self.frame) // self.hop + 1


def mel_filters(
    rate: int, frame: int, mels: int, scale: str = "slaney"
) -> Float[Tensor, "mels frequencies"]:
    """The triangles F_mk, from 0 Hz to half the rate, in float64."""
    if scale not in SCALES:
        raise ValueError(f"scale ({scale}) must be {' or '.join(SCALES)}")
    at = torch.linspace(0, rate / 2, frame // 2 + 1, dtype=torch.float64)  # Hz
    if frame % 2:
        at = torch.arange(frame // 2 + 1, dtype=torch.float64) * rate / frame
    top = torch.tensor(rate / 2, dtype=torch.float64)
    even = torch.linspace(0, 1, mels + 2, dtype=torch.float64) * to_mel(top, scale)
    edges = to_hertz(even, scale)
    rising = (at - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - at) / (edges[2:] - edges[1:-1])[:, None]
    filters = torch.minimum(rising, falling).clamp(min=0)
    if bool((filters.sum(1) == 0).any()):
        band = int((filters.sum(1) == 0).nonzero()[0])
        raise ValueError(
            f"mels ({mels}) must be fewer, or frame ({frame}) longer, because band {band} lies "
            "between two frequencies of a frame and would be empty"
        )
    return filters * (2 / (edges[2:] - edges[:-2]))[:, None] if scale == "slaney" else filters


def to_mel(hertz: Float[Tensor, "*shape"], scale: str) -> Float[Tensor, "*shape"]:
    """Frequencies on the scale of pitch."""
    if scale == "htk":
        return 2595 * torch.log10(1 + hertz / 700)
    above = _KNEE / _LINEAR + (hertz.clamp(min=_KNEE) / _KNEE).log() / _STEP
    return torch.where(hertz < _KNEE, hertz / _LINEAR, above)


def to_hertz(mel: Float[Tensor, "*shape"], scale: str) -> Float[Tensor, "*shape"]:
    """The frequencies that `to_mel` takes there."""
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    knee = _KNEE / _LINEAR
    return torch.where(mel < knee, mel * _LINEAR, _KNEE * ((mel - knee) * _STEP).exp())
