"""U-Net that cleans up tomography: what sixty angles show, without the grain and the streaks.

    p(t, s) = integral of f along x cos t + y sin t = s      (1)  scan; 1 % of noise is added
    q(t, .) = h * p(t, .)                                    (2)  ramp filter: frequency by its size
    b(x, y) = (pi / K) sum_t q(t, x cos t + y sin t)         (3)  filtered back-projection
    v = b + U(b)                                             (4)  U-Net, which gives the correction
    L = mean (v - f)^2                                       (5)  loss
    PSNR(v) = 10 log10(m^2 / mean (v - f)^2)                 (6)  dB; m is the range of values
    gain = PSNR(v) - PSNR(b)                                 (7)  dB

f is the image that is scanned from K angles t, p its projections onto detectors s, and `*` a
convolution over s. For infinitely many angles without noise b is f, blurred by a pixel. With few,
the sum (3) leaves streaks, and (2) makes noise larger. Both look alike in all images, so that a
network can learn to know them: U begins as 0, by weights of 0 in its last layer, and v as b. What
(3) gives everywhere depends on every place of f, which is why a U-Net, whose lower levels see far,
suits it.

Jin, McCann, Froustey, Unser (2017), "Deep Convolutional Neural Network for Inverse Problems in
Imaging", arXiv:1611.03679; Kak, Slaney (1988), "Principles of Computerized Tomographic Imaging",
chapter 3. Unlike the paper, nothing is normalised and the phantoms are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.images.deform import symmetries
from everynet.data.sets import radon
from everynet.data.transfer import constant
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.vision.pictures.fields import angles_needed, reconstructions
from everynet.zoo.vision.unet import UNetWithoutNorm

Maps = Float[Tensor, "batch channels height width"]


class FBPConvNet(nn.Module):
    """Maps a back-projection to the sum of itself and a correction, in the units of the targets.

    `gain` and `offset`, one a channel, bring the units of images to those of targets.
    """

    def __init__(
        self, correction: nn.Module, *, gain: Sequence[float], offset: Sequence[float], peak: float
    ) -> None:
        super().__init__()
        self.correction = correction
        self.gain, self.offset = tuple(gain), tuple(offset)
        self.peak = peak
        """The range of the targets in their units, m of (6)."""

    def forward(self, x: Maps) -> Maps:
        b = self.in_target_units(x)
        v: Tensor = b + self.correction(x)  # (4)
        return v

    def in_target_units(self, x: Maps) -> Maps:
        """The back-projection b without its correction."""
        affine = constant((self.gain, self.offset), x.dtype, x.device)[..., None, None]
        return x * affine[0] + affine[1]


def psnr(v: Maps, f: Maps, peak: float) -> Float[Tensor, " batch"]:
    """Peak signal-to-noise ratio of images in dB: the more the better."""
    error = (v - f).square().mean((1, 2, 3)).clamp(min=1e-30)
    return 10 * (peak**2 / error).log10()  # (6)


def back_project(
    images: Float[Tensor, "images size size"], angles: Sequence[int], seed: int = 0
) -> Float[Tensor, "counts images size size"]:
    """Filtered back-projections of images that were scanned from so many angles, with noise."""
    size, found = images.shape[-1], []
    for count in angles:
        p = radon.noisy(radon.project(images, count), generator(seed, count))  # (1)
        q = radon.filtered(p, size)  # (2)
        found.append(radon.back_projected(q, size))  # (3)
    return torch.stack(found)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Tomography(Training[FBPConvNet]):
    """Give back the image that was scanned, from its filtered back-projection."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "gain_db": "what the network adds to the PSNR of filtered back-projection, in dB",
        "psnr": "peak signal-to-noise ratio of the network's image, in dB",
        "psnr_fbp": "the same of filtered back-projection alone, in dB",
    }

    data: str = "phantoms"
    """A known set, or a folder with inputs (back-projections) and targets (true images) in it."""
    size: int = 0
    """Height and width in pixels to which images are resized; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    width: int = 8
    """Feature maps of the uppermost level; each level below has twice as many."""
    depth: int = 3
    """Levels below the uppermost; each halves the image."""
    mirror: bool = True
    """Training images are seen in the eight ways in which a square comes to lie on itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size")
        self.at_least(1, "width")
        self.within(1, 8, "depth")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="map", batch_size=self.batch_size, seed=self.seed, size=self.size,
            strict=self.strict, augment=symmetries() if self.mirror else None,
        )  # fmt: skip
        _, height, width = data.spec["shape"]
        if height != width:
            raise UserError(
                f"data ({self.data}: images of {width}x{height}) must be square, because a scan "
                f"goes all around them; do size={max(height, width) // 8 * 8}"
            )
        return data

    def model(self, data: Data) -> FBPConvNet:
        spec, parts = data.spec, 2**self.depth
        channels, height, width = spec["shape"]
        if spec["shape"] != spec["target_shape"]:
            raise UserError(
                f"data ({self.data}: {spec['shape']} to {spec['target_shape']}) must have targets "
                "like their images, because a correction is learned; give both the same channels"
            )
        if height % parts or width % parts:
            raise UserError(
                f"size ({self.size}: images of {width}x{height}) must be divisible by {parts}, "
                f"because each of depth ({self.depth}) levels halves the image; do "
                f"size={max(parts, round(max(height, width) / parts) * parts)}"
            )
        net = UNetWithoutNorm(channels, channels, width=self.width, depth=self.depth)
        nn.init.zeros_(net.output.weight)
        unit, mean = spec["target_std"], spec["target_mean"]
        gain, offset = [s / unit for s in spec["std"]], [(m - mean) / unit for m in spec["mean"]]
        peak = (spec["target_high"] - spec["target_low"]) / unit
        return FBPConvNet(net, gain=gain, offset=offset, peak=peak)

    def objective(self, model: FBPConvNet, batch: Batch) -> Terms:
        x, f = batch
        return {"squared_error": mse_loss(model(x), f)}  # (5)

    def metrics(self, model: FBPConvNet, batch: Batch) -> dict[str, Tensor]:
        x, f = batch
        after = psnr(model(x), f, model.peak)
        before = psnr(model.in_target_units(x), f, model.peak)
        return {"gain_db": after - before, "psnr": after, "psnr_fbp": before}  # (7)

    def _validation(self, model: FBPConvNet, data: Data) -> tuple[Tensor, Tensor, Tensor]:
        """Phantoms, back-projections and the network's images in physical units, grey."""
        x, f = (part[:16] for part in next(iter(data.valid)))
        std, mean = data.spec["target_std"], data.spec["target_mean"]
        images = (f, model.in_target_units(x), model(x))
        true, given, corrected = ((y.cpu().double() * std + mean).mean(1) for y in images)
        return true, given, corrected

    def picture_reconstructions(
        self, model: FBPConvNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Phantoms, their scans, and what back-projection and the network make of these.

        The network brings their PSNR from {before:.1f} to {after:.1f} dB on average.
        """
        true, given, corrected = (y[:3] for y in self._validation(model, data))
        peak = data.spec["target_high"] - data.spec["target_low"]
        before, after = (psnr(v[:, None], true[:, None], peak) for v in (given, corrected))
        scans = radon.project(true)
        means = {"before": float(before.mean()), "after": float(after.mean())}
        return reconstructions(true, scans, given, corrected, before=before, after=after), means

    def picture_angles(
        self, model: FBPConvNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """PSNR of filtered back-projection by the number of angles, and that of the network.

        From {used} angles the network reaches {network:.1f} dB, and back-projection alone reaches
        {fbp:.1f} dB from {most}.
        """
        true, _, corrected = self._validation(model, data)
        peak = data.spec["target_high"] - data.spec["target_low"]
        counts, used = [10, 15, 20, 30, 60, 120], radon.ANGLES
        fbp = [psnr(b[:, None], true[:, None], peak).mean() for b in back_project(true, counts)]
        network = psnr(corrected[:, None], true[:, None], peak).mean().item()
        figure = angles_needed(torch.tensor(counts), torch.stack(fbp), used, network)
        values = {"used": used, "network": network, "fbp": float(fbp[-1]), "most": counts[-1]}
        return figure, values

    def predict(self, model: FBPConvNet, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The corrected image, and by how much it differs from what was given."""
        pairs = [(model(x).cpu(), model.in_target_units(x).cpu()) for x in inputs.split(64)]
        return [
            {"image": v, "change": (v - b).square().mean().sqrt().item() * spec["target_std"]}
            for corrected, given in pairs
            for v, b in zip(corrected, given, strict=True)
        ]

    def tiny(self) -> Self:
        return replace(super().tiny(), depth=2, data="phantoms:20")


RECIPES = {
    "unet-tomography": Tomography(
        steps=1200, batch_size=8, lr=3e-3, schedule="one-cycle", goal="gain_db >= 3",
        covers=("C26",),
    ),
}  # fmt: skip
