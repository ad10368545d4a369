"""WaveNet: a network that predicts every next sample of a sound from those before it.

    p(x) = prod_t p(x_t | x_1 .. x_{t-1})                                 (1)  one sample at a time
    (w * h)_t = b + sum_{k=0}^{K-1} w_k h_{t - (K-1-k) d}                 (2)  causal convolution
    h_t = E_0 x_{t-1} + E_1 x_t                                           (3)  samples come in
    a = W_f * h + V_f g + U_f y,    c = W_g * h + V_g g + U_g y           (4)  with conditions
    z = tanh(a) o sigmoid(c)                                              (5)  gated unit
    h <- h + W_r z                                                        (6)  residual
    s = sum over layers of W_s z                                          (7)  skip connections
    log p = log softmax(W_2 relu(W_1 relu(s)))                            (8)  of 256 levels
    y_{n H + m} = sum_i u_{m i} v_{n i}, m = 0 .. H-1                     (9)  features upsampled
    R = 1 + sum over convolutions of (K - 1) d                            (10) receptive field

x_t is a level of mu-law (`nn/mu_law.py`), which stands as a vector with a single 1 in (3), so that
this first causal convolution, of dilation 1, is a sum of two rows of tables. K is 2; d, the
dilation, doubles from layer to layer of a block, 1 2 4 .. 512, and blocks repeat. * is (2), o a
product number by number; before the first sample h is 0. g holds for the whole sound (a speaker, a
digit: global conditioning); v are features of H samples each (local conditioning), which a
transposed convolution (9) brings to the rate of the sound, a frame to H samples.

    layer          size                    sees
    x              batch time              1 sample
    h              batch channels time     2 samples after (3), then one more of (10) a layer
    z              batch channels time
    s              batch skip time         R samples
    log p          batch levels time

A stack of 3, 4 or 5 blocks to 512 sees 3070, 4093 or 5116 samples; (3) adds one.

Unlike the paper: the last layer has no residual (6), which nothing would read.

van den Oord et al. (2016), "WaveNet: a generative model for raw audio", arXiv:1609.03499.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, pad

from everynet.data import Inputs, load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Buckets, Clips
from everynet.data.sounds import wav
from everynet.nn import mu_law
from everynet.nn.ema import EMA
from everynet.nn.mu_law import LEVELS
from everynet.plot import confusion_matrix
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import shown, unknown
from everynet.zoo.audio import baselines
from everynet.zoo.audio.pictures.wavenet import draw_field, draw_gates, draw_mu_law, draw_sounds


class CausalConv1d(nn.Module):
    """A convolution over time none of whose outputs depends on a later input."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 2, dilation: int = 1
    ) -> None:
        super().__init__()
        self.past = (kernel_size - 1) * dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(
        self, h: Float[Tensor, "batch channels time"]
    ) -> Float[Tensor, "batch out_channels time"]:
        output: Tensor = self.conv(pad(h, (self.past, 0)))  # (2)
        return output


class DilatedLayer(nn.Module):
    """A dilated gated unit: maps h to the next h and to its part of the skip connections.

    The last one of a stack has no residual, and gives h as it came.
    """

    def __init__(
        self,
        channels: int,
        skip_channels: int,
        dilation: int,
        *,
        conditions: int = 0,
        features: int = 0,
        last: bool = False,
    ) -> None:
        super().__init__()
        self.conv = CausalConv1d(channels, 2 * channels, dilation=dilation)
        self.of_conditions = nn.Linear(conditions, 2 * channels, bias=False) if conditions else None
        self.of_features = nn.Conv1d(features, 2 * channels, 1, bias=False) if features else None
        self.residual = None if last else nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, skip_channels, 1)

    def gates(
        self,
        h: Float[Tensor, "batch channels time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        y: Float[Tensor, "batch features time"] | None = None,
    ) -> tuple[Float[Tensor, "batch channels time"], Float[Tensor, "batch channels time"]]:
        """What goes into the tanh and into the sigmoid."""
        both = self.conv(h)
        if self.of_conditions is not None:
            both = both + self.of_conditions(g)[:, :, None]
        if self.of_features is not None:
            both = both + self.of_features(y)
        a, c = both.chunk(2, 1)  # (4)
        return a, c

    def forward(
        self,
        h: Float[Tensor, "batch channels time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        y: Float[Tensor, "batch features time"] | None = None,
    ) -> tuple[Float[Tensor, "batch channels time"], Float[Tensor, "batch skip_channels time"]]:
        a, c = self.gates(h, g, y)
        z = a.tanh() * c.sigmoid()  # (5)
        if self.residual is not None:
            h = h + self.residual(z)  # (6)
        return h, self.skip(z)


class WaveNet(nn.Module):
    """Maps levels of a sound to logits of the level that follows each.

    `conditions` are how many classes each label of a sound has (10 digits, 6 speakers), which
    `one_hot` makes g of; `features` is how many numbers a frame of v has, and `hop` how many
    samples it stands for. None, or 0, is a network without them.
    """

    def __init__(
        self,
        channels: int = 32,
        skip_channels: int = 64,
        *,
        blocks: int = 1,
        layers: int = 10,
        levels: int = LEVELS,
        conditions: Sequence[int] = (),
        features: int = 0,
        hop: int = 1,
    ) -> None:
        super().__init__()
        self.levels, self.features, self.hop = levels, features, hop
        self.conditions = tuple(conditions)
        self.dilations = [2**layer for _ in range(blocks) for layer in range(layers)]
        self.before = nn.Embedding(levels, channels)
        self.now = nn.Embedding(levels, channels)
        self.upsample = nn.ConvTranspose1d(features, features, hop, hop) if features else None
        self.layers = nn.ModuleList(
            DilatedLayer(
                channels, skip_channels, dilation, conditions=sum(conditions), features=features,
                last=number == len(self.dilations) - 1,
            )
            for number, dilation in enumerate(self.dilations)
        )  # fmt: skip
        self.hidden = nn.Conv1d(skip_channels, skip_channels, 1)
        self.output = nn.Conv1d(skip_channels, levels, 1)

    @property
    def stack_field(self) -> int:
        """Values of h that an output depends on."""
        return receptive_field(self.dilations)

    @property
    def receptive_field(self) -> int:
        """Samples that an output depends on."""
        return receptive_field([1, *self.dilations])

    def one_hot(self, labels: Int64[Tensor, "batch kinds"]) -> Float[Tensor, "batch conditions"]:
        """The vector g of the labels of each sound: a 1 for each, and none where one is -1."""
        parts = [
            labels[:, kind, None] == torch.arange(classes, device=labels.device)
            for kind, classes in enumerate(self.conditions)
        ]
        return torch.cat(parts, 1).to(self.now.weight)

    def enter(self, x: Int64[Tensor, "batch time"]) -> Float[Tensor, "batch channels time"]:
        """The numbers h before the first layer."""
        before = pad(embedding(x[:, :-1], self.before.weight), (0, 0, 1, 0))
        h = before + embedding(x, self.now.weight)  # (3)
        return h.transpose(1, 2)

    def local(
        self, v: Float[Tensor, "batch features frames"], time: int
    ) -> Float[Tensor, "batch features time"]:
        """The features of every sample."""
        assert self.upsample is not None  # `check` refuses features that nothing reads
        y: Tensor = self.upsample(v)  # (9)
        return y[:, :, :time]

    def check(
        self,
        x: Int64[Tensor, "batch time"],
        g: Float[Tensor, "batch conditions"] | None,
        v: Float[Tensor, "batch features frames"] | None,
    ) -> None:
        """Refuse conditions that the network was not made for, and features that end too early."""
        for name, given, size in (("g", g, sum(self.conditions)), ("v", v, self.features)):
            width = given.shape[1] if given is not None else 0
            if width != size:
                raise ValueError(
                    f"{name} ({width} numbers) must have {size}, as many as the network was made "
                    f"for; {'give' if size else 'leave out'} {name}"
                )
        if v is not None and v.shape[2] * self.hop < x.shape[1]:
            raise ValueError(
                f"v ({v.shape[2]} frames) must cover {x.shape[1]} samples, and a frame stands for "
                f"{self.hop}; give {-(-x.shape[1] // self.hop)} frames"
            )

    def run_layers(
        self,
        h: Float[Tensor, "batch channels time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        v: Float[Tensor, "batch features frames"] | None = None,
    ) -> tuple[list[Float[Tensor, "batch channels time"]], Float[Tensor, "batch skip time"]]:
        """The numbers h that go into each layer, and the sum s of skip connections."""
        y = None if v is None else self.local(v, h.shape[2])
        before, s = [], torch.zeros((), dtype=h.dtype, device=h.device)
        for layer in self.layers:
            before.append(h)
            h, skip = layer(h, g, y)
            s = s + skip  # (7)
        return before, s

    def head(self, s: Float[Tensor, "batch skip time"]) -> Float[Tensor, "batch levels time"]:
        """The logits that the skip connections give."""
        logits: Tensor = self.output(self.hidden(s.relu()).relu())  # (8)
        return logits

    def forward(
        self,
        x: Int64[Tensor, "batch time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        v: Float[Tensor, "batch features frames"] | None = None,
    ) -> Float[Tensor, "batch levels time"]:
        self.check(x, g, v)
        return self.head(self.run_layers(self.enter(x), g, v)[1])


def receptive_field(dilations: Iterable[int], kernel_size: int = 2) -> int:
    """How many inputs an output of a stack of causal convolutions depends on."""
    return 1 + sum((kernel_size - 1) * d for d in dilations)  # (10)


def after_silence(
    x: Int64[Tensor, "batch time"], levels: int = LEVELS
) -> Int64[Tensor, "batch time"]:
    """What comes before each sample of a sound that begins after silence."""
    return torch.cat([torch.full_like(x[:, :1], levels // 2), x[:, :-1]], 1)


def sample_losses(
    model: WaveNet,
    x: Int64[Tensor, "batch time"],
    g: Float[Tensor, "batch conditions"] | None = None,
    v: Float[Tensor, "batch features frames"] | None = None,
) -> Float[Tensor, "batch time"]:
    """-log p of each sample of sounds that begin after silence; their sum is -log p(x)."""
    logits = model(after_silence(x, model.levels), g, v)
    return cross_entropy(logits, x, reduction="none")  # (1)


# -------- the network ends here; training and pictures follow --------

AT_ONCE = 2**16
"""Samples whose logits are computed together: 64 MB."""
LONGEST = 600.0
"""Seconds that `sample` makes at most."""
COMPARED = 60
"""Validation clips whose likelihoods are compared in a picture."""


class _StretchesThenWhole(Clips):
    """Trains on a stretch of each clip, at another place each epoch; evaluates on whole clips."""

    def evaluation(self, split: Batch, batch_size: int, at_once: int) -> Iterator[Batch]:
        return _WHOLE.evaluation(split, batch_size, at_once)

    def at(self, split: Batch, rows: Tensor) -> Batch:
        return _WHOLE.at(split, rows)


_WHOLE = Buckets(("ragged", "plain"))


@dataclass(frozen=True, kw_only=True)
class NextSample(Training[WaveNet, EMA[WaveNet]]):
    """Predict every next sample of clips of sound, knowing their class and who speaks."""

    meanings: ClassVar[Mapping[str, str]] = {
        "nats": "the mean of -log p of a sample of whole clips, given class and speaker",
        "bits": "the same in bits: 8 is what 256 levels cost without a model",
        "histogram": "nats a sample under the histogram of levels of the training clips",
        "autoregression": "nats a sample under a linear prediction from 16 samples, AR(16)",
        "gain": "nats a sample below the better of the histogram and AR(16)",
        "class_accuracy": "the share of test clips whose class makes them likeliest",
        "speaker_accuracy": "the share of test clips whose speaker makes them likeliest",
    }

    data: str = "tones"
    """A known set of sounds, or a folder with one subfolder of sound files for each class."""
    sample_rate: int = 0
    """Hz that clips are resampled to; 0 is the rate of the files."""
    held_out: str = ""
    """A speaker who alone is the test."""
    window: int = 1024
    """Samples of a clip that an update sees; whole clips are evaluated."""
    channels: int = 32
    """Numbers h of each layer."""
    skip_channels: int = 64
    """Numbers s of the skip connections."""
    blocks: int = 1
    """Blocks of layers whose dilations double."""
    layers: int = 10
    """Layers of a block: 10 go up to a dilation of 512."""
    decay: float = 0.999
    """Of the average of weights that is evaluated and sampled from."""
    clips: int = 0
    """Test clips that are classified by likelihood at the end; 0 takes all of them."""

    steps: int = 1000
    batch_size: int = 8
    lr: float = 2e-3
    schedule: str = "cosine"
    clip: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "window", "channels", "skip_channels", "blocks", "layers")
        self.require(self.layers <= 20, "layers", "at most 20: the last dilation is 524,288 then")
        self.require(0 < self.decay < 1, "decay", "above 0 and below 1; 0.999 is usual")
        self.at_least(0, "clips")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="sound", batch_size=self.batch_size, seed=self.seed,
            rate=self.sample_rate, window=self.window, held_out=self.held_out,
        )  # fmt: skip
        if data.spec["task"] != "classification":
            raise UserError(
                f"data ({shown(self.data)}) must be a folder with one subfolder of clips for each "
                "class, because a class is what the sound is conditioned on; transcripts are for "
                "`speech`"
            )
        return replace(data, sampler=_StretchesThenWhole(self.window), eval_batch_size=16)

    def model(self, data: Data) -> WaveNet:
        kinds = (len(data.spec["classes"]), len(data.spec["speakers"]))
        return WaveNet(
            self.channels, self.skip_channels, blocks=self.blocks, layers=self.layers,
            conditions=[kind for kind in kinds if kind],
        )  # fmt: skip

    def extra(self, model: WaveNet) -> EMA[WaveNet]:
        return EMA(model, self.decay)

    def features(self, x: Float[Tensor, "batch time"]) -> Tensor | None:
        """The features of sounds that the network is given besides labels; here none."""
        return None

    def objective(self, model: WaveNet, batch: Batch) -> Terms:
        x, lengths, labels = batch
        losses = sample_losses(model, mu_law.encode(x), model.one_hot(labels), self.features(x))
        heard = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return {"nats": (losses * heard).sum() / heard.sum()}

    def metrics(self, model: WaveNet, batch: Batch) -> dict[str, Tensor]:
        """-log p of every sample of whole clips."""
        x, lengths, labels = batch
        losses, heard = [], torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        for rows in torch.arange(len(x), device=x.device).split(max(1, AT_ONCE // x.shape[1])):
            some = sample_losses(
                model, mu_law.encode(x[rows]), model.one_hot(labels[rows]), self.features(x[rows])
            )
            losses.append(some[heard[rows]])
        return {"nats": torch.cat(losses)}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = outputs["nats"].double().mean().item()
        return {"nats": nats, "bits": nats / math.log(2)}

    def final(
        self, model: WaveNet, data: Data, generator: torch.Generator, *, clips: int = 0
    ) -> dict[str, float]:
        """The baselines on the test clips, and whom `clips` (0: as set) of them are told from."""
        if clips < 0:
            raise UserError(f"clips ({clips}) must be at least 0, which takes as many as were set")
        train, test = (_floats(data.splits[part]) for part in ("train", "test"))
        outputs = [self.metrics(model, batch)["nats"] for batch in data.test]
        nats = torch.cat(outputs).double().mean().item()
        histogram = baselines.histogram_nats(train, test)
        linear = baselines.autoregression_nats(train, test)
        found = {
            "histogram": histogram, "autoregression": linear, "gain": min(histogram, linear) - nats
        }  # fmt: skip
        answers = classify(model, data, "test", clips or self.clips, features=self.features)
        names = ("class_accuracy", "speaker_accuracy")
        for name, (likely, true) in zip(names, answers, strict=False):
            found[name] = (likely == true).double().mean().item()
        return found

    def predict(
        self, model: WaveNet, inputs: Sequence[Tensor], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """Class and speaker that make each clip likeliest, and how likely every one makes it.

        Log-likelihoods are of the whole clip, in nats, with all speakers (or classes) as likely.
        """
        answers = []
        for x in inputs:
            if not len(x):
                raise UserError("a clip must hold at least one sample; this one is empty")
            lengths = torch.tensor([len(x)], device=x.device)
            table = log_likelihoods(model, x[None], lengths, self.features(x[None])).cpu()
            answer: dict[str, Any] = {"nats": -table.max().item() / len(x)}
            for axis, (kind, names) in enumerate(_kinds(spec).items()):
                every = marginal(table, axis)[0]
                answer[kind] = names[int(every.argmax())]
                answer[f"{kind}_log_likelihoods"] = dict(zip(names, every.tolist(), strict=True))
                if kind == "class":
                    p = dict(zip(names, every.softmax(0).tolist(), strict=True))
                    answer |= {"probability": p[answer["class"]], "probabilities": p}
            answers.append(answer)
        return answers

    def sample(
        self,
        model: WaveNet,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 1,
        seconds: float = 1.0,
        label: str = "",
        speaker: str = "",
        temperature: float = 1.0,
        start: Inputs = (),
    ) -> list[Tensor]:
        """`n` sounds of a class by a speaker, each drawn at random where it is left out.

        Where there are clips to `start` from, each of them is continued instead.
        """
        return self.generate(
            model, spec, generator, {"class": label, "speaker": speaker}, n=n, seconds=seconds,
            temperature=temperature, start=start,
        )  # fmt: skip

    def generate(
        self,
        model: WaveNet,
        spec: Spec,
        generator: torch.Generator,
        wanted: Mapping[str, str],
        *,
        n: int,
        seconds: float,
        temperature: float,
        start: Inputs = (),
        v: Float[Tensor, "n features frames"] | None = None,
    ) -> list[Tensor]:
        """What `sample` makes, by features if there are some; `wanted` names class and speaker."""
        from everynet.zoo.audio.wavenet_generation import generate  # noqa: PLC0415 -- from here

        steps = round(seconds * spec["rate"])
        if not 1 <= n <= 10_000:
            raise UserError(f"n ({n}) must be from 1 to 10,000 sounds")
        if not (0 < seconds <= LONGEST and steps):
            raise UserError(
                f"seconds ({seconds:g}) must be above 0 and at most {LONGEST:g}, and hold a sample"
            )
        if not 0 <= temperature <= 10:
            raise UserError(
                f"temperature ({temperature:g}) must be from 0, which takes the likeliest sample, "
                "to 10; 1 is as learned"
            )
        device = model.now.weight.device
        prompts = [mu_law.encode(one.to(device)) for one in start]
        prompts = prompts or [torch.zeros(0, dtype=torch.long, device=device)] * n
        labels = choose_labels(spec, wanted, len(prompts), generator).to(device)
        uniforms = torch.rand(len(prompts), steps, generator=generator).to(device)
        silence = torch.full((1,), model.levels // 2, device=device)
        made: list[Tensor] = []
        together = len(prompts) if not len(start) else 1  # prompts differ in length
        for first in range(0, len(prompts), together):
            rows = slice(first, first + together)
            x = [torch.cat([silence, prompt]) for prompt in prompts[rows]]
            levels = generate(
                model, torch.stack(x), uniforms[rows], g=model.one_hot(labels[rows]),
                v=None if v is None else v[rows], temperature=temperature,
            )  # fmt: skip
            whole = torch.cat([torch.stack(x)[:, 1:], levels], 1)
            made += [*mu_law.decode(whole, dtype=torch.float32).cpu()]
        return made

    # --------------------------------------------------------------------------------- pictures

    def picture_sounds(
        self, model: WaveNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """A validation clip ({labels}) and two that the network makes of the same kind.

        On the left 40 ms of the waveform, on the right the spectrogram: how strong each frequency
        is, in decibels below the strongest.
        """
        x, labels = _clip(data, 0)
        spec, frames = data.spec, len(x)
        names = [n[int(k)] for n, k in zip(_kinds(spec).values(), labels, strict=False)]
        wanted = dict(zip(_kinds(spec), names, strict=True))
        generator = torch.Generator().manual_seed(self.seed)
        v = self.features(x[None])
        made = self.generate(
            model, spec, generator, wanted, n=2, seconds=frames / spec["rate"], temperature=1.0,
            v=None if v is None else v.expand(2, -1, -1),
        )  # fmt: skip
        clips = {"real": x.cpu(), "generated": made[0], "generated, again": made[1]}
        return draw_sounds(clips, spec["rate"]), {"labels": ", ".join(names)}

    def picture_field(
        self, model: WaveNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """What one output reads, layer by layer, and the gradient of log p by distance.

        Each value reads two of the layer below. Of the gradient, {share} lies within the last
        {near} samples, and none lies beyond the receptive field of {field}.
        """
        x, labels = _longest_clip(data)
        reach = gradient_reach(model, x[None], labels[None], self.features(x[None]))
        near = max(1, model.receptive_field // 10)
        share = float(reach[:near].sum() / reach.sum())
        figure = draw_field(
            [d for d in model.dilations if d <= 8][:4], reach, model.receptive_field
        )
        field = f"{model.receptive_field:,}"
        return figure, {"share": f"{share:.0%}", "near": f"{near:,}", "field": field}

    def picture_gates(
        self, model: WaveNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, int]]:
        """The tanh and the sigmoid of every unit of two layers along a validation clip.

        Their dilations are {first} and {last} samples. A sigmoid near 0 keeps a unit out of what
        comes next, and one near 1 lets it through.
        """
        x, labels = _clip(data, 0)
        levels = after_silence(mu_law.encode(x[None]), model.levels)
        g, v = model.one_hot(labels[None]), self.features(x[None])
        states, _ = model.run_layers(model.enter(levels), g, v)
        y = None if v is None else model.local(v, len(x))
        some = sorted({len(states) // 5, len(states) - 1})
        gates = {}
        for number in some:
            layer = cast("DilatedLayer", model.layers[number])
            a, c = layer.gates(states[number], g, y)
            gates[f"dilation {model.dilations[number]}"] = (a[0].tanh().cpu(), c[0].sigmoid().cpu())
        figure = draw_gates(x.cpu(), gates, data.spec["rate"])
        return figure, {"first": model.dilations[some[0]], "last": model.dilations[some[-1]]}

    def picture_mu_law(
        self, model: WaveNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """Compression by mu-law, half the width of each level, and the noise by loudness.

        Of validation sound with a peak {loudness} dB below full scale, mu-law leaves {ours} dB of
        signal to noise, and 256 levels at equal distances leave {uniform} dB.
        """
        return draw_mu_law(_floats(data.splits["valid"])[0][: 2**16].cpu())

    def picture_classes(self, model: WaveNet, data: Data, history: History) -> Figure:
        """The class that makes each of some validation clips likeliest, by the class it has.

        The network was not trained to classify: it says how likely a sound is, given its class.
        """
        return self._confusion(model, data, "class")

    def picture_speakers(self, model: WaveNet, data: Data, history: History) -> Figure | None:
        """The speaker who makes each of some validation clips likeliest, by who speaks."""
        return self._confusion(model, data, "speaker") if data.spec["speakers"] else None

    def _confusion(self, model: WaveNet, data: Data, kind: str) -> Figure:
        names = _kinds(data.spec)
        answers = classify(model, data, "valid", COMPARED, features=self.features)
        found = dict(zip(names, answers, strict=True))
        likely, true = found[kind]
        size = len(names[kind])
        counts = torch.bincount(true * size + likely, minlength=size * size).view(size, size)
        return confusion_matrix(counts, names[kind])

    def tiny(self) -> Self:
        small = super().tiny()
        return replace(
            small, data="tones:100", window=64, channels=4, skip_channels=4, blocks=1, layers=3,
            clips=4, held_out="",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NextSampleOfDigits(NextSample):
    """Predict every next sample of a spoken digit, knowing the digit and who speaks."""

    def sample(  # type: ignore[override]  # the settings of this verb have names of their own
        self,
        model: WaveNet,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 1,
        seconds: float = 0.5,
        digit: str = "",
        speaker: str = "",
        temperature: float = 1.0,
        start: Inputs = (),
    ) -> list[Tensor]:
        """`n` digits as a speaker says them, each drawn at random where it is left out.

        Where there are clips to `start` from, each of them is continued instead.
        """
        return self.generate(
            model, spec, generator, {"class": digit, "speaker": speaker}, n=n, seconds=seconds,
            temperature=temperature, start=start,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), data="tone-words:100")  # which has speakers


def log_likelihoods(
    model: WaveNet,
    x: Float[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    v: Float[Tensor, "batch features frames"] | None = None,
) -> Float[Tensor, "batch ..."]:
    """The log-likelihood of each whole clip under every combination of labels."""
    levels, sizes, device = mu_law.encode(x), model.conditions, x.device
    heard = torch.arange(x.shape[1], device=device) < lengths[:, None]
    every = torch.cartesian_prod(*[torch.arange(size, device=device) for size in sizes])
    every = every.view(-1, len(sizes))
    rows, labels = torch.arange(len(x)).repeat_interleave(len(every)), every.repeat(len(x), 1)
    found = []
    for some in torch.arange(len(rows)).split(max(1, AT_ONCE // x.shape[1])):
        which = rows[some].to(device)
        g, own = model.one_hot(labels[some.to(device)]), None if v is None else v[which]
        losses = sample_losses(model, levels[which], g, own)
        found.append(-(losses * heard[which]).double().sum(1))
    return torch.cat(found).view(len(x), *sizes)


def marginal(table: Float[Tensor, "batch ..."], kind: int) -> Float[Tensor, "batch names"]:
    """The log-likelihood of each clip by one kind of label, where all others are equally likely."""
    others = [axis for axis in range(1, table.dim()) if axis != kind + 1]
    for axis in reversed(others):
        table = table.logsumexp(axis) - math.log(table.shape[axis])
    return table


def no_features(x: Float[Tensor, "batch time"]) -> Tensor | None:
    """What a network without local conditioning is given of sounds."""
    return None


def classify(
    model: WaveNet,
    data: Data,
    split: str,
    clips: int = 0,
    *,
    features: Callable[[Tensor], Tensor | None] = no_features,
) -> list[tuple[Int64[Tensor, " clips"], Int64[Tensor, " clips"]]]:
    """For each kind of label what makes clips of a split likeliest, and what they are."""
    batches = data.batches(split) if not clips else data.sample(split, clips)
    tables, labels = [], []
    for x, lengths, label in batches:
        tables.append(log_likelihoods(model, x, lengths, features(x)))
        labels.append(label)
    table, label = torch.cat(tables).cpu(), torch.cat(labels).cpu()
    return [
        (marginal(table, kind).argmax(1), label[:, kind]) for kind in range(len(model.conditions))
    ]


def choose_labels(
    spec: Spec, wanted: Mapping[str, str], n: int, generator: torch.Generator
) -> Int64[Tensor, "n kinds"]:
    """The numbers of the labels that are wanted, each drawn at random where it is ""."""
    kinds, columns = _kinds(spec), []
    for kind, name in wanted.items():
        names = kinds.get(kind, [])
        if name and not names:
            raise UserError(f"{kind} ({shown(name)}) must be left out, because no clip names one")
        if name and name not in names:
            raise UserError(unknown(kind, name, names))
        drawn = torch.randint(max(1, len(names)), (n,), generator=generator)
        columns.append(torch.full((n,), names.index(name)) if name else drawn)
    return torch.stack(columns, 1)


def gradient_reach(
    model: WaveNet,
    x: Float[Tensor, "batch time"],
    labels: Int64[Tensor, "batch kinds"],
    v: Float[Tensor, "batch features frames"] | None = None,
) -> Float[Tensor, " back"]:
    """The size of the gradient of log p of the last samples by what came in 1, 2 .. before."""
    levels = mu_law.encode(x)
    with torch.enable_grad():
        h = model.enter(after_silence(levels, model.levels)).detach().requires_grad_()
        _, s = model.run_layers(h, model.one_hot(labels), v)
        logits = model.head(s)
        some = torch.arange(x.shape[1] - 1, x.shape[1] // 2, -max(1, x.shape[1] // 16))
        total = torch.zeros(x.shape[1], dtype=torch.double)
        for t in some.tolist():
            log_p = logits[:, :, t].log_softmax(1).gather(1, levels[:, t, None]).sum()
            (gradient,) = torch.autograd.grad(log_p, h, retain_graph=True)
            norms = gradient.norm(dim=1).sum(0).double().cpu()[: t + 1].flip(0)
            total[: t + 1] += norms
    return total[: x.shape[1] // 2] / len(some)


def _kinds(spec: Spec) -> dict[str, list[str]]:
    """The names of each kind of label that sounds are conditioned on."""
    kinds = {"class": [*spec["classes"]], "speaker": [*spec["speakers"]]}
    return {kind: names for kind, names in kinds.items() if names}


def _floats(split: Batch) -> baselines.Clips:
    return split[0].to(torch.float32) / wav.LOUDEST, split[1]


def _clip(data: Data, number: int) -> tuple[Float[Tensor, " time"], Int64[Tensor, " kinds"]]:
    """A whole validation clip, and its labels."""
    stream, starts, labels = data.splits["valid"]
    x = stream[starts[number] : starts[number + 1]].to(torch.float32) / wav.LOUDEST
    return x, labels[number]


def _longest_clip(data: Data) -> tuple[Float[Tensor, " time"], Int64[Tensor, " kinds"]]:
    return _clip(data, int(data.splits["valid"][1].diff().argmax()))


RECIPES = {
    "wavenet": NextSample(
        goal="nats <= 2.9 and gain >= 0.35 and class_accuracy >= 0.45",
        covers=("R39", "R40", "R41", "R42"),
    ),
    "wavenet-music": NextSample(
        data="music-clip", sample_rate=8000, window=4000, channels=64, blocks=3, steps=3000,
        batch_size=16, lr=1e-3, warmup=200, goal="nats <= 4.5 and gain >= 0", covers=("R41", "R42"),
    ),
    "wavenet-digits": NextSampleOfDigits(
        data="spoken-digits", window=4096, channels=64, blocks=3, steps=6000, batch_size=32,
        lr=1e-3, warmup=200,
        goal="nats <= 5 and gain >= 0 and class_accuracy >= 0.2 and speaker_accuracy >= 0.34",
        covers=("R40", "R41", "R42"),
    ),
}  # fmt: skip
