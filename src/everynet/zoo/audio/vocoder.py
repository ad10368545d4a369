"""A vocoder: WaveNet speaks what features of a sound describe, the energy in bands of frequency.

    X_{n f} = sum_m w_m x_{n H + m - 3H/2} e^{-2 pi i f m / 4H},  m = 0 .. 4H - 1  (1)  spectrum
    v_{n b} = log(eps + mean over f in band b of |X_{n f}|^2)                      (2)  features

x is the sound, w a Hann window of 4 H samples whose middle is that of frame n of H samples, and
bands are equal parts of the frequencies. v says nothing of phases: the network, which gives
p(x_t | x_1 .. x_{t-1}, v), makes a wave that has these energies. It brings a frame to H samples by
a transposed convolution, and adds it to the gates of every layer (`wavenet.py`).

Tamamori et al. (2017), "Speaker-dependent WaveNet vocoder", doi:10.21437/Interspeech.2017-314;
van den Oord et al. (2016), "WaveNet: a generative model for raw audio", arXiv:1609.03499, section
2.5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, pad

from everynet.data import Inputs
from everynet.data.dataset import Data, Spec
from everynet.system.errors import UserError
from everynet.zoo.audio.wavenet import NextSample, WaveNet

EPS = 1e-4
"""The power below which nothing is heard."""


class BandEnergies(nn.Module):
    """Maps sounds to the logarithm of their energy in bands of frequency, by frames."""

    window: Tensor

    def __init__(self, bands: int, hop: int) -> None:
        super().__init__()
        self.bands, self.hop = bands, hop
        self.register_buffer("window", torch.hann_window(4 * hop))

    def forward(self, x: Float[Tensor, "batch time"]) -> Float[Tensor, "batch bands frames"]:
        frames = -(-x.shape[1] // self.hop)
        rest = frames * self.hop - x.shape[1]
        around = 3 * self.hop // 2
        x = pad(x, (around, rest + 3 * self.hop - around))
        pieces = x.unfold(1, 4 * self.hop, self.hop)  # batch frames window
        spectrum = torch.fft.rfft(pieces * self.window.to(x))  # (1)
        power = spectrum.real.square() + spectrum.imag.square()
        v = (adaptive_avg_pool1d(power, self.bands) + EPS).log()  # (2)
        return v.transpose(1, 2)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Vocoder(NextSample):
    """Predict every next sample of a clip from those before and the energies of its bands."""

    bands: int = 16
    """Bands of frequency whose energy is given."""
    hop: int = 80
    """Samples of a frame: 80 are 10 ms at 8 kHz."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "bands", "hop")

    def model(self, data: Data) -> WaveNet:
        kinds = (len(data.spec["classes"]), len(data.spec["speakers"]))
        return WaveNet(
            self.channels, self.skip_channels, blocks=self.blocks, layers=self.layers,
            conditions=[kind for kind in kinds if kind], features=self.bands, hop=self.hop,
        )  # fmt: skip

    def features(self, x: Float[Tensor, "batch time"]) -> Tensor | None:
        """The energies of bands."""
        energies: Tensor = BandEnergies(self.bands, self.hop).to(x.device)(x)
        return energies

    def sample(  # type: ignore[override]  # the settings of this verb are its own
        self,
        model: WaveNet,
        spec: Spec,
        generator: torch.Generator,
        *,
        like: Inputs = (),
        label: str = "",
        speaker: str = "",
        temperature: float = 1.0,
    ) -> list[Tensor]:
        """Each of the clips `like` once more, from the energies of its bands alone."""
        if not len(like):
            raise UserError(
                "like () must name clips, because the energies of their bands are what is made "
                "sound again; give like=clip.wav"
            )
        made = []
        for x in like:
            wanted = {"class": label, "speaker": speaker}
            v = self.features(x[None].to(model.now.weight.device))
            made += self.generate(
                model, spec, generator, wanted, n=1, seconds=len(x) / spec["rate"],
                temperature=temperature, v=v,
            )  # fmt: skip
        return made

    def tiny(self) -> Self:
        return replace(super().tiny(), bands=3, hop=16)


RECIPES = {
    "wavenet-vocoder": Vocoder(goal="nats <= 3.5 and gain >= 0.1", covers=("R41",)),
}
