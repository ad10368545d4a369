"""Sound from a WaveNet, sample by sample, from what each layer remembers of the past.

    x_t ~ softmax(log p(. | x_1 .. x_{t-1}) / T)          (1)  one sample, at temperature T
    q_l[t mod d_l] = h_{l,t}, read before it is written   (2)  the last d inputs of layer l

A network of receptive field R that is evaluated anew for each sample computes R values of every
layer for one number; with (2) it computes one. On the CPU a compiled loop does it
(`kernels/wavenet.py`), and elsewhere `Queues.step`, which on cuda is recorded once as a graph and
replayed, for many sounds at once: what all layers remember is read by one gather, its products with
the weights are one batched product, and only what depends on the newest sample goes from layer to
layer. A draw takes one uniform number: the level at which the sum of probabilities first exceeds
it. So all ways give the same sound from the same numbers.

Le Paine et al. (2016), "Fast Wavenet generation algorithm", arXiv:1611.09482.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from everynet.kernels import wavenet as kernel
from everynet.zoo.audio.wavenet import DilatedLayer, WaveNet

AT_ONCE = 2048
"""Samples for which biases of features are made ahead: 8 MB for 10 layers of 32 channels."""


@torch.no_grad()
def generate(
    model: WaveNet,
    x: Int64[Tensor, "batch time"],
    uniforms: Float[Tensor, "batch steps"],
    *,
    g: Float[Tensor, "batch conditions"] | None = None,
    v: Float[Tensor, "batch features frames"] | None = None,
    temperature: float = 1.0,
) -> Int64[Tensor, "batch steps"]:
    """The samples that follow x, each drawn by a uniform number; v covers x and what is made."""
    if temperature < 0:
        raise ValueError(
            f"temperature ({temperature}) must be at least 0: 0 takes the likeliest, 1 is as "
            "learned"
        )
    queues = Queues(model, x, g=g, v=v, more=uniforms.shape[1])
    if x.device.type == "cpu" and queues.ring.dtype == torch.float32:
        return queues.compiled(uniforms.float(), temperature)
    uniforms = uniforms.to(queues.ring)
    return (
        queues.replayed(uniforms, temperature) if x.is_cuda else queues.eager(uniforms, temperature)
    )


@torch.no_grad()
def generate_naively(
    model: WaveNet,
    x: Int64[Tensor, "batch time"],
    uniforms: Float[Tensor, "batch steps"],
    *,
    g: Float[Tensor, "batch conditions"] | None = None,
    v: Float[Tensor, "batch features frames"] | None = None,
    temperature: float = 1.0,
) -> Int64[Tensor, "batch steps"]:
    """The same by evaluating the whole network for each sample: for reading and for tests."""
    for uniform in uniforms.to(model.now.weight).unbind(1):
        recent = x
        if v is None:
            recent = x[:, -model.receptive_field :]
        logits = model(recent, g, v)[:, :, -1]
        x = torch.cat([x, draw(logits, uniform, temperature)[:, None]], 1)  # (1)
    return x[:, -uniforms.shape[1] :]


def draw(
    logits: Float[Tensor, "batch levels"], uniform: Float[Tensor, " batch"], temperature: float
) -> Int64[Tensor, " batch"]:
    """The likeliest level at temperature 0, else the one at which the sum exceeds `uniform`."""
    if temperature == 0:
        return logits.argmax(1)
    p = (logits / temperature).softmax(1)  # (1)
    return (p.cumsum(1) <= uniform[:, None]).sum(1).clamp(max=logits.shape[1] - 1)


class Queues:
    """A WaveNet laid out for one sample at a time, and what its layers remember of some sounds.

    x is what the sounds begin with, and has been read but for its last sample, which the next step
    reads. v covers `more` samples beyond it.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: WaveNet,
        x: Int64[Tensor, "batch time"],
        *,
        g: Float[Tensor, "batch conditions"] | None = None,
        v: Float[Tensor, "batch features frames"] | None = None,
        more: int = 0,
    ) -> None:
        layers = [cast("DilatedLayer", layer) for layer in model.layers]
        self.model, self.levels = model, model.levels
        self.dilations = torch.tensor(model.dilations, device=x.device)
        self.starts = self.dilations.cumsum(0) - self.dilations
        weight, n = model.now.weight.detach(), len(layers)
        self.channels = weight.shape[1]
        none = torch.zeros_like(weight[:1])
        self.before, self.now = torch.cat([model.before.weight, none]), weight
        self.gates = torch.stack([layer.conv.conv.weight for layer in layers])  # 2C C 2
        bias = torch.stack([cast("Tensor", layer.conv.conv.bias) for layer in layers])
        bias = bias[:, None].expand(n, len(x), -1)
        if g is not None:
            bias = bias + torch.stack([one.of_conditions(g) for one in layers if one.of_conditions])
        self.bias = bias.contiguous()  # layers batch 2C
        self.skip = torch.stack([layer.skip.weight[:, :, 0] for layer in layers])
        self.skip_bias = torch.stack([cast("Tensor", layer.skip.bias) for layer in layers])
        self.residual = [layer.residual for layer in layers]
        self.local = None if v is None else _local(model, layers, v, x.shape[1] + more)
        self._remember(x, g, v)

    def _remember(self, x: Tensor, g: Tensor | None, v: Tensor | None) -> None:
        """Fill the queues with what a prompt leaves in them, computed for all of it at once."""
        self.time = x.shape[1] - 1
        missing = torch.full_like(x[:, :1], self.levels)  # the row of zeros
        self.last = torch.cat([missing, x], 1)[:, -2:].contiguous()
        self.ring = self.bias.new_zeros(int(self.dilations.sum()), len(x), self.channels)
        if not self.time:
            return
        recent = x[:, :-1]
        if v is None:
            recent = recent[:, -self.model.receptive_field :]
        self.model.check(recent, g, v)
        states, _ = self.model.run_layers(self.model.enter(recent), g, v)
        for h, d, start in zip(states, self.model.dilations, self.starts.tolist(), strict=True):
            times = torch.arange(max(0, self.time - d), self.time)
            rows = start + times % d
            self.ring[rows.to(x.device)] = h[:, :, -len(times) :].permute(2, 0, 1)

    @torch.no_grad()
    def step(
        self,
        last: Int64[Tensor, "batch 2"],
        time: Int64[Tensor, ""],
    ) -> Float[Tensor, "batch levels"]:
        """The logits after the last of two samples; the queues take in what the layers read."""
        places = self.starts + time % self.dilations
        past = self.ring.index_select(0, places)  # layers batch C
        bias = self.bias
        if self.local is not None:
            bias = bias + self.local.index_select(0, time[None])[0].transpose(0, 1)
        both = torch.baddbmm(bias, past, self.gates[:, :, :, 0].transpose(1, 2))
        h = self.before[last[:, 0]] + self.now[last[:, 1]]
        read, units = [], []
        for layer, residual in enumerate(self.residual):
            read.append(h)
            sums = torch.addmm(both[layer], h, self.gates[layer, :, :, 1].T)
            a, c = sums.chunk(2, 1)
            z = a.tanh() * c.sigmoid()
            units.append(z)
            if residual is not None:
                matrix, offset = _matrix(residual)
                h = h + torch.addmm(offset, z, matrix)
        self.ring.index_copy_(0, places, torch.stack(read))  # (2)
        s = torch.addmm(
            self.skip_bias.sum(0), torch.cat(units, 1), self.skip.transpose(1, 2).flatten(0, 1)
        )
        head = (_matrix(self.model.hidden), _matrix(self.model.output))
        for weight, bias in head:
            s = torch.addmm(bias, s.relu(), weight)
        return s

    @torch.no_grad()
    def eager(
        self, uniforms: Float[Tensor, "batch steps"], temperature: float
    ) -> Int64[Tensor, "batch steps"]:
        """Samples by `step`, one after the other."""
        made, time = [], torch.tensor(self.time, device=self.last.device)
        for uniform in uniforms.unbind(1):
            level = draw(self.step(self.last, time), uniform, temperature)
            self.last = torch.stack([self.last[:, 1], level], 1)
            made.append(level)
            time = time + 1
        self.time += len(made)
        return torch.stack(made, 1)

    @torch.no_grad()
    def replayed(
        self, uniforms: Float[Tensor, "batch steps"], temperature: float
    ) -> Int64[Tensor, "batch steps"]:
        """The same on cuda: one step is recorded as a graph and replayed."""
        steps = uniforms.shape[1]
        uniforms = uniforms.T.contiguous()
        made = torch.zeros(steps, len(self.last), dtype=torch.int64, device=self.last.device)
        first = torch.tensor(self.time, device=self.last.device)
        count = torch.zeros_like(first)
        ring, last = self.ring.clone(), self.last.clone()

        def advance() -> None:
            logits = self.step(self.last, first + count)
            level = draw(logits, uniforms.index_select(0, count[None])[0], temperature)
            made.index_copy_(0, count[None], level[None])
            self.last.copy_(torch.stack([self.last[:, 1], level], 1))
            count.add_(1)

        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            advance()  # libraries get ready before anything is recorded
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        torch._C._cuda_clearCublasWorkspaces()  # those of the graph are its own
        with torch.cuda.graph(graph):
            advance()
        torch._C._cuda_clearCublasWorkspaces()
        self.ring.copy_(ring)
        self.last.copy_(last)
        count.zero_()
        for _ in range(steps):
            graph.replay()
        self.time += steps
        return made.T.contiguous()

    @torch.no_grad()
    def weights(self) -> kernel.Weights:
        """The same weights for the compiled loop."""
        n, c = len(self.skip), self.channels
        residual = torch.zeros(n, c, c)
        biases = torch.zeros(n, c)
        for layer, conv in enumerate(self.residual):
            if conv is not None:
                residual[layer], biases[layer] = conv.weight[:, :, 0], cast("Tensor", conv.bias)
        (hidden, hidden_bias), (output, output_bias) = map(
            _matrix, (self.model.hidden, self.model.output)
        )
        return kernel.Weights(
            before=self.before,
            now=self.now,
            gates=self.gates.permute(0, 1, 3, 2).flatten(2),
            out=torch.cat([residual, self.skip], 1),
            out_bias=torch.cat([biases, self.skip_bias], 1),
            hidden=hidden.T.contiguous(),
            hidden_bias=hidden_bias,
            output=output.T.contiguous(),
            output_bias=output_bias,
        )

    @torch.no_grad()
    def compiled(
        self, uniforms: Float[Tensor, "batch steps"], temperature: float
    ) -> Int64[Tensor, "batch steps"]:
        """The same by the compiled loop of the CPU."""
        weights = self.weights()
        ring = self.ring.transpose(0, 1).contiguous()
        constant = self.bias.transpose(0, 1)[None]  # 1 batch layers 2C
        made = []
        for some in uniforms.split(AT_ONCE if self.local is not None else uniforms.shape[1], 1):
            bias = constant
            if self.local is not None:
                bias = constant + self.local[self.time : self.time + some.shape[1]]
            levels, _ = kernel.generate(
                weights, self.dilations, ring, self.last, self.time, bias.contiguous(),
                some.contiguous(), temperature,
            )  # fmt: skip
            made.append(levels)
            self.time += some.shape[1]
        self.ring = ring.transpose(0, 1).contiguous()
        return torch.cat(made, 1)


def _local(model: WaveNet, layers: Iterable[DilatedLayer], v: Tensor, time: int) -> Tensor:
    """What features add to the gates of every layer at every sample: time batch layers 2C."""
    y = model.local(v, time)
    return torch.stack([one.of_features(y) for one in layers if one.of_features], 2).permute(
        3, 0, 2, 1
    )


def _matrix(conv: nn.Conv1d) -> tuple[Tensor, Tensor]:
    """The matrix that a convolution of one sample multiplies rows with, and its bias."""
    return conv.weight.detach()[:, :, 0].T, cast("Tensor", conv.bias).detach()
