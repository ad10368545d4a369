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

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding, pad

from everynet.nn.mu_law import LEVELS


class CausalConv1d(nn.Module):
    """A convolution over time none of whose outputs depends on a later input."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int = 2, dilation: int = 1
    ) -> None:
        super().__init__()
        self.past = (kernel_size - 1) * dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(
        self, h: Float[Tensor, "batch in_channels time"]
    ) -> Float[Tensor, "batch out_channels time"]:
        output: Tensor = self.conv(pad(h, (self.past, 0)))  # (2)
        return output


class GatedLayer(nn.Module):
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

    `conditions` and `features` are how many numbers g and each frame of v have, 0 for none; `hop`
    is how many samples a frame of features stands for.
    """

    def __init__(
        self,
        channels: int = 32,
        skip_channels: int = 64,
        *,
        blocks: int = 1,
        layers: int = 10,
        levels: int = LEVELS,
        conditions: int = 0,
        features: int = 0,
        hop: int = 1,
    ) -> None:
        super().__init__()
        self.levels, self.conditions, self.features, self.hop = levels, conditions, features, hop
        self.dilations = [2**layer for _ in range(blocks) for layer in range(layers)]
        self.before = nn.Embedding(levels, channels)
        self.now = nn.Embedding(levels, channels)
        self.upsample = nn.ConvTranspose1d(features, features, hop, hop) if features else None
        self.layers = nn.ModuleList(
            GatedLayer(
                channels, skip_channels, dilation, conditions=conditions, features=features,
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
        for name, given, size in (("g", g, self.conditions), ("v", v, self.features)):
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

    def states(
        self,
        x: Int64[Tensor, "batch time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        v: Float[Tensor, "batch features frames"] | None = None,
    ) -> tuple[list[Float[Tensor, "batch channels time"]], Float[Tensor, "batch skip time"]]:
        """The numbers h that go into each layer, and the sum s of skip connections."""
        self.check(x, g, v)
        y = None if v is None else self.local(v, x.shape[1])
        h, before, s = self.enter(x), [], torch.zeros((), device=x.device)
        for layer in self.layers:
            before.append(h)
            h, skip = layer(h, g, y)
            s = s + skip  # (7)
        return before, s

    def forward(
        self,
        x: Int64[Tensor, "batch time"],
        g: Float[Tensor, "batch conditions"] | None = None,
        v: Float[Tensor, "batch features frames"] | None = None,
    ) -> Float[Tensor, "batch levels time"]:
        _, s = self.states(x, g, v)
        logits: Tensor = self.output(self.hidden(s.relu()).relu())  # (8)
        return logits


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
    """-log p of every sample of sounds that begin after silence, in nats; their sum is -log p(x)."""
    logits = model(after_silence(x, model.levels), g, v)
    return nn.functional.cross_entropy(logits, x, reduction="none")  # (1)
