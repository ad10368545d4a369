"""A convolutional network that tells sounds apart, on their log-mel energies.

    x = (y - mean) / std                      (1)  log-mel energies, standardised in each band
    h_l = pool(relu(norm(K_l * h_{l-1})))     (2)  feature maps over time and pitch, h_0 = x
    v_c = mean over t, m of h_L(c, t, m)      (3)  each map as one number
    z = W v + b                               (4)  logits of the classes
    d_k(t, m) = sum_c W_kc h_L(c, t, m)       (5)  what place (t, m) says for class k

y_tm is the log-mel energy of frame t in band m (see nn/log_mel.py), * a convolution of 3x3, pool
halves time and pitch by their largest value, norm is batch normalisation. The mean of (5) over all
places is z_k - b_k exactly, so that its map shows what decided.

    stage       maps       frames x bands of a clip of 1 s at 8 kHz
    log-mel     1          63 x 40
    block 1     16         31 x 20
    block 2     32         15 x 10
    block 3     64         7 x 5

A network hears a stretch of fixed length of each clip, at another place in each epoch and the
middle in evaluation; a shorter clip is filled up with silence.

Piczak (2015), "Environmental sound classification with convolutional neural networks",
doi:10.1109/MLSP.2015.7324337; Zhou et al. (2016), "Learning deep features for discriminative
localization", arXiv:1512.04150, section 2 (what decided).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.draws import Draw
from everynet.metrics import classified, confusion, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.log_mel import LogMel
from everynet.plot import confusion_matrix
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.audio.pictures.spectrograms import decided, waves

FRAME, HOP = 0.032, 0.016  # s


class SoundCNN(nn.Module):
    """Maps sounds of one length to logits of their classes."""

    def __init__(self, classes: int, *, rate: int, mels: int, width: int, dropout: float) -> None:
        super().__init__()
        self.log_mel = LogMel(rate, round(FRAME * rate), round(HOP * rate), mels)
        self.standardize = nn.BatchNorm1d(mels)
        widths = (1, width, 2 * width, 4 * width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            )
            for before, after in pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(widths[-1], classes)

    def maps(
        self, sound: Float[Tensor, "batch samples"]
    ) -> Float[Tensor, "batch maps frames bands"]:
        """The last feature maps."""
        y = self.log_mel(sound)
        x = self.standardize(y.transpose(1, 2)).transpose(1, 2)  # (1)
        h: Tensor = x[:, None]  # batch 1 frames bands
        for block in self.blocks:
            h = block(h)  # (2)
        return h

    def forward(self, sound: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch classes"]:
        v = self.maps(sound).mean((2, 3))  # (3)
        z: Tensor = self.output(self.dropout(v))  # (4)
        return z

    def decided(
        self, sound: Float[Tensor, "batch samples"], label: int
    ) -> Float[Tensor, "batch frames bands"]:
        """What each place says for a class."""
        return torch.einsum("bctm,c->btm", self.maps(sound), self.output.weight[label])  # (5)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SoundClassification(Training[SoundCNN]):
    """Tell sounds apart: a folder of clips with one subfolder for each class."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "tones"
    """A known set of sounds, or a folder with one subfolder of clips for each class."""
    holdout: bool = True
    """Keep a tenth of training to choose weights; false trains on all but a published test."""
    held_out: str = ""
    """A speaker whose clips are the test, and of whom nothing is learned."""
    sample_rate: int = 0
    """Samples a second to which clips are resampled; 0 leaves them as they are."""
    trim: float = 0.0
    """Ends so many decibels below the loudest stretch are cut off; 0 cuts nothing."""
    seconds: float = 0.4
    """Length of the stretch of a clip that is heard."""
    mels: int = 40
    """Bands of the log-mel energies."""
    width: int = 16
    """Maps of the first block; each further block has twice as many."""
    dropout: float = 0.0
    """Dropout of the maps before the logits."""
    shift: float = 0.0
    """Training clips begin later by up to so many seconds."""
    loudness: float = 0.0
    """Training clips are louder or quieter by up to so many decibels."""
    mask: float = 0.0
    """Share of a training stretch that is silenced, one piece of it at a random place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "mels", "width")
        self.at_least(0, "sample_rate", "trim", "shift", "loudness")
        self.above(0, "seconds")
        for name in ("dropout", "mask"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")

    def dataset(self) -> Data:
        options: dict[str, Any] = {
            "held_out": self.held_out,
            "rate": self.sample_rate,
            "trim": self.trim,
        }
        options |= {"batch_size": self.batch_size, "seed": self.seed, "holdout": self.holdout}
        whole = load(self.data, kind="sound", **options)
        if whole.spec["task"] != "classification":
            raise UserError(
                f"data ({self.data}) must be sounds with a class each, because a class is learned; "
                "try tones, or speech for transcripts"
            )
        rate = whole.spec["rate"]
        window = round(self.seconds * rate)
        least = 8 * round(HOP * rate)  # three halvings of the frames
        words = f"at least {least / rate:g}, because the frames are halved three times"
        self.require(window >= least, "seconds", words)
        data = load(self.data, kind="sound", **options, window=window)
        return replace(data, augment=self.augment)

    def augment(self, batch: Batch, draw: Draw) -> Batch:
        """Training clips begin later, are louder or quieter, and partly silent."""
        x, *rest = batch
        samples = x.shape[1]
        across = torch.arange(samples, device=x.device)
        later, louder, at = draw.uniform(3)[:, :, None]
        if self.shift:
            room = self.shift * samples / self.seconds
            place = across - (later * room).long()
            x = torch.where(place >= 0, x.gather(1, place.clamp(min=0)), 0)
        if self.loudness:
            x = x * 10 ** (self.loudness / 20 * (2 * louder - 1))
        if self.mask:
            begin = at * (1 - self.mask) * samples
            inside = (across >= begin) & (across < begin + self.mask * samples)
            x = x.masked_fill(inside, 0)
        return (x, *rest)

    def model(self, data: Data) -> SoundCNN:
        return SoundCNN(
            len(data.spec["classes"]), rate=data.spec["rate"], mels=self.mels, width=self.width,
            dropout=self.dropout,
        )  # fmt: skip

    def objective(self, model: SoundCNN, batch: Batch) -> Terms:
        x, _, labels = batch
        return {"cross_entropy": cross_entropy(model(x), labels[:, 0])}

    def metrics(self, model: SoundCNN, batch: Batch) -> dict[str, Tensor]:
        x, _, labels = batch
        logits = model(x)
        loss = cross_entropy(logits, labels[:, 0], reduction="none")
        return {**classified(logits, labels[:, 0]), "cross_entropy": loss}

    def predict(
        self, model: SoundCNN, inputs: Sequence[Tensor], spec: Spec, *, draw: bool = False
    ) -> Sequence[dict[str, Any]]:
        """The most likely class, the probability of each, and the seconds that were heard.

        With `draw` also the log-mel energies of the clip with what decided.
        """
        answers = []
        for clip in inputs:
            x, begin = self.middle(clip, spec["rate"])
            p = model(x[None]).softmax(1).cpu()
            end = min(begin + len(x), len(clip))
            heard = [round(place / spec["rate"], 3) for place in (begin, end)]
            answers.append({**name_classes(p, spec["classes"])[0], "heard": heard})
            if draw:
                answers[-1]["picture"] = self.draw_decided(model, x[None], p, spec)
        return answers

    def middle(
        self, clip: Float[Tensor, " samples"], rate: int
    ) -> tuple[Float[Tensor, " window"], int]:
        """The stretch that is heard, as in evaluation, and where it begins."""
        window = round(self.seconds * rate)
        begin = max(1, len(clip) - window + 1) // 2
        part = clip[begin : begin + window]
        return pad(part, (0, window - len(part))), begin

    def draw_decided(
        self, model: SoundCNN, x: Tensor, p: Tensor, spec: Spec, truth: Sequence[int] = ()
    ) -> Figure:
        """Log-mel energies of clips, and below each what decided."""
        names, best = spec["classes"], p.argmax(1).tolist()
        maps = torch.cat([model.decided(x[n : n + 1], label) for n, label in enumerate(best)]).cpu()
        titles = [f"{names[label]} ({p[n, label]:.0%})" for n, label in enumerate(best)]
        for n, label in enumerate(truth):
            titles[n] += f"\ntrue: {names[label]}" if label != best[n] else ""
        return decided(model.log_mel(x).cpu(), maps, titles, self.seconds)

    def picture_decided(self, model: SoundCNN, data: Data, history: History) -> Figure:
        """Validation clips as log-mel energies, and below each what decided for its class.

        A red place speaks for the class that was predicted, a blue one against it; the mean over
        all places is the logit without its bias. Mistakes come first.
        """
        x, y, p = _heard(model, data)
        wrong = (p.argmax(1) != y).nonzero()[:, 0].tolist()[:2]
        right = {int(y[n]): n for n in range(len(y) - 1, -1, -1) if p[n].argmax() == y[n]}
        rows = [*wrong, *sorted(right.values(), key=lambda n: int(y[n]))][:4]
        return self.draw_decided(model, x[rows], p[rows], data.spec, y[rows].tolist())

    def picture_confusion(self, model: SoundCNN, data: Data, history: History) -> Figure:
        """How often validation clips of each true class get each predicted class.

        Right answers are on the diagonal; classes that are confused have large numbers off it.
        """
        _, y, p = _heard(model, data)
        classes = data.spec["classes"]
        return confusion_matrix(confusion(p.argmax(1), y, len(classes)), classes)

    def picture_clips(self, model: SoundCNN, data: Data, history: History) -> Figure:
        """A validation clip of some classes: the sound, and below it its log-mel energies.

        Time runs to the right and pitch upwards; the louder a band, the lighter. The end of a clip
        is followed by silence.
        """
        x, y, _ = _heard(model, data)
        first = {int(label): n for n, label in reversed([*enumerate(y)])}
        rows = [first[label] for label in sorted(first)][:4]
        names = [data.spec["classes"][int(y[n])] for n in rows]
        return waves(x[rows].cpu(), model.log_mel(x[rows]).cpu(), names, self.seconds)

    def tiny(self) -> Self:
        return replace(
            super().tiny(), data="tones:100", mels=16, seconds=0.2, held_out="", sample_rate=0
        )


def _heard(model: SoundCNN, data: Data) -> tuple[Tensor, Tensor, Tensor]:
    """The validation clips, their classes, and the probabilities of all classes."""
    found = [(x, y[:, 0].cpu(), model(x).softmax(1).cpu()) for x, _, y in data.valid]
    x, y, p = (torch.cat(part) for part in zip(*found, strict=True))
    return x, y, p


RECIPES = {
    "sound-cnn": SoundClassification(
        steps=300, batch_size=32, lr=3e-3, schedule="one-cycle", loudness=6.0, shift=0.05, width=8,
        goal="accuracy >= 0.98", covers=("R16",),
    ),
    "sound-cnn-digits": SoundClassification(
        data="spoken-digits", seconds=1.0, steps=1500, batch_size=32, lr=3e-3, schedule="one-cycle",
        dropout=0.2, shift=0.2, loudness=6.0, mask=0.1, weight_decay=1e-2, optimizer="adamw",
        goal="accuracy >= 0.97", covers=("R16",),
    ),
}  # fmt: skip
