"""The neural Turing machine: a network that writes to a memory and reads it by soft addresses.

    h_t = C(x_t, r_{t-1})                                       (1)  controller, with output h_t
    beta = ln(1 + exp b), gamma = 1 + ln(1 + exp c)             (2)  what a head emits
    c_i = exp(beta cos(k, M_i)) / sum_j exp(beta cos(k, M_j))   (3)  by content
    v_i = g c_i + (1 - g) w_i                                   (4)  interpolation with the last w
    u_i = sum_d s_d v_{i-d}                                     (5)  shift, around the end
    w_i = u_i^gamma / sum_j u_j^gamma                           (6)  sharpening: the new weights
    M_i = M_i * prod_heads (1 - w_i e)                          (7)  erase, by each write head
    M_i = M_i + sum_heads w_i a                                 (8)  then add
    r_t = sum_i w_i M_i                                         (9)  read, by each read head
    y_t = W [h_t, r_t] + b                                     (10)  logits of the output bits

x_t is the input at time step t, M_i row i of the memory, `*` the product of each number with its
own. A head emits linear maps of h_t: a key k = tanh(.), a strength beta, a gate g = sigmoid(.),
shares s = softmax(.) of the shifts d = -1, 0, 1, and gamma; a write head also what to erase,
e = sigmoid(.), and to add, a = tanh(.). In (3) to (6) M is the memory before the step, and (9)
reads the one after it. Weights sum to 1 at every stage. No parameter depends on the number of rows:
a trained machine can be given more.

Graves, Wayne, Danihelka (2014), "Neural Turing machines", arXiv:1410.5401, sections 3 and 4;
Collier, Beel (2018), "Implementing neural Turing machines", arXiv:1807.08518, for a memory that
begins constant. Unlike the first paper, which learns it, each head begins on row 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.nn.attention import score_cosine
from everynet.nn.input_checks import require_sequences
from everynet.plot import Panel, panels
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator as seeded
from everynet.zoo.recurrent.lstm import LSTM
from everynet.zoo.recurrent.sequences import generate_data
from everynet.zoo.transformer.bit_sequences import Sequences, draw_copy, draw_recall
from everynet.zoo.transformer.pictures.machine import draw_addressing, draw_memory

SHIFTS = (-1, 0, 1)
EMPTY = 1e-6
"""Every number of the memory to begin with: small, but with a direction, which a cosine needs."""

Weights = Float[Tensor, "batch heads rows"]


class MachineState(NamedTuple):
    """All that a machine carries from one time step to the next."""

    memory: Float[Tensor, "batch rows width"]
    weights: Weights
    """Of each head, the read heads first."""
    read: Float[Tensor, "batch read"]
    """What the read heads have read, one after another."""
    controller: Tensor | None
    """The controller's own state; None begins it."""


class Addressing(NamedTuple):
    """Where the heads are, stage by stage; each sums to 1 over the rows."""

    content: Weights
    gated: Weights
    shifted: Weights
    weights: Weights


class NeuralTuringMachine(nn.Module):
    """Maps x_1..x_T to the logits y_1..y_T and its last state; pass that back in to go on."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        controller: Controller,
        hidden_size: int,
        *,
        rows: int,
        width: int,
        read_heads: int = 1,
        write_heads: int = 1,
    ) -> None:
        super().__init__()
        sizes = {"rows": rows, "width": width, "read_heads": read_heads, "write_heads": write_heads}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name} ({value}) must be at least 1, or there is no memory")
        self.rows, self.width = rows, width
        self.read_heads, self.write_heads = read_heads, write_heads
        self.controller = controller(input_size + read_heads * width, hidden_size)
        addressing = (read_heads + write_heads) * (width + 3 + len(SHIFTS))
        self.emit = nn.Linear(hidden_size, addressing + write_heads * 2 * width)
        self.output = nn.Linear(hidden_size + read_heads * width, output_size)

    def begin(self, batch: int, rows: int = 0) -> MachineState:
        """An empty memory, of other than its usual number of rows if that is given."""
        bias = self.output.bias
        rows, heads = rows or self.rows, self.read_heads + self.write_heads
        first = torch.arange(rows, device=bias.device) == 0
        return MachineState(
            bias.new_full((batch, rows, self.width), EMPTY),
            first.to(bias.dtype).expand(batch, heads, rows),
            bias.new_full((batch, self.read_heads * self.width), EMPTY),
            None,
        )

    def forward(
        self, x: Float[Tensor, "batch time input"], state: MachineState | None = None
    ) -> tuple[Float[Tensor, "batch time output"], MachineState]:
        inputs = self.controller.input_size - self.read_heads * self.width
        require_sequences("NeuralTuringMachine", x, self.output.bias, inputs)
        state = self.begin(x.shape[0]) if state is None else state
        outputs = []
        for x_t in x.unbind(1):
            h, state, _ = self.step(x_t, state)
            outputs.append(torch.cat([h, state.read], 1))
        y: Tensor = self.output(torch.stack(outputs, 1))  # (10)
        return y, state

    def step(
        self, x: Float[Tensor, "batch input"], state: MachineState
    ) -> tuple[Float[Tensor, "batch hidden"], MachineState, Addressing]:
        """The controller's output, the state after one time step, and how it was addressed."""
        h, inner = self.controller(torch.cat([x, state.read], 1), state.controller)  # (1)
        heads, size = self.read_heads + self.write_heads, self.width
        emitted, written = self.emit(h).tensor_split([heads * (size + 3 + len(SHIFTS))], 1)
        k, beta, g, gamma, s = emitted.unflatten(1, (heads, -1)).split(
            [size, 1, 1, 1, len(SHIFTS)], 2
        )
        beta, gamma = softplus(beta), 1 + softplus(gamma)  # (2)
        at = address(k.tanh(), beta, g.sigmoid(), s.softmax(-1), gamma, state.memory, state.weights)
        reading, writing = at.weights.split([self.read_heads, self.write_heads], 1)
        e, a = written.unflatten(1, (self.write_heads, -1)).chunk(2, 2)
        memory = write(state.memory, writing, e.sigmoid(), a.tanh())
        read = (reading @ memory).flatten(1)  # (9)
        return h, MachineState(memory, at.weights, read, inner), at


def address(  # noqa: PLR0917 -- as the equations have them
    k: Float[Tensor, "batch heads width"],
    beta: Float[Tensor, "batch heads 1"],
    g: Float[Tensor, "batch heads 1"],
    s: Float[Tensor, "batch heads shifts"],
    gamma: Float[Tensor, "batch heads 1"],
    memory: Float[Tensor, "batch rows width"],
    before: Weights,
) -> Addressing:
    """The weights of all heads, from what they emit, the memory and their weights before."""
    content = (beta * score_cosine(k, memory)).softmax(-1)  # (3)
    gated = g * content + (1 - g) * before  # (4)
    shifted = circular_shift(gated, s)
    return Addressing(content, gated, shifted, sharpen(shifted, gamma))


def circular_shift(v: Weights, s: Float[Tensor, "batch heads shifts"]) -> Weights:
    """The circular convolution of weights with shares of SHIFTS."""
    moved = [s[..., n, None] * v.roll(d, -1) for n, d in enumerate(SHIFTS)]
    return moved[0] + moved[1] + moved[2]  # (5)


def sharpen(u: Weights, gamma: Float[Tensor, "batch heads 1"]) -> Weights:
    """Weights to the power gamma, made to sum to 1."""
    largest = u.amax(-1, keepdim=True).detach()  # cancels, and no sum is 0 where gamma is large
    powers = (u / largest) ** gamma
    return powers / powers.sum(-1, keepdim=True)  # (6)


def write(
    memory: Float[Tensor, "batch rows width"],
    w: Weights,
    e: Float[Tensor, "batch heads width"],
    a: Float[Tensor, "batch heads width"],
) -> Float[Tensor, "batch rows width"]:
    """The memory after all write heads have erased, then added."""
    for head in range(w.shape[1]):
        memory = memory * (1 - w[:, head, :, None] * e[:, head, None])  # (7)
    return memory + w.mT @ a  # (8)


class FeedForwardController(nn.Module):
    """h = tanh(W z + b): all that it remembers is in the memory."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(
        self, z: Float[Tensor, "batch input"], state: Tensor | None = None
    ) -> tuple[Float[Tensor, "batch hidden"], None]:
        return self.linear(z).tanh(), None


class LSTMController(nn.Module):
    """An LSTM cell, whose state is h and c beside each other: registers beside the memory."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.linear = nn.Linear(input_size + hidden_size, 4 * hidden_size)  # of i, f, g, o

    def forward(
        self, z: Float[Tensor, "batch input"], state: Float[Tensor, "batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch hidden"], Float[Tensor, "batch state"]]:
        size = self.linear.out_features // 4
        h, c = z.new_zeros(2, z.shape[0], size) if state is None else state.chunk(2, 1)
        gates, g, o = self.linear(torch.cat([z, h], 1)).tensor_split([2 * size, 3 * size], 1)
        i, f = gates.sigmoid().chunk(2, 1)
        c = f * c + i * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, torch.cat([h, c], 1)


Controller = Callable[[int, int], FeedForwardController | LSTMController]
"""One of them, from the sizes of its input and output."""
CONTROLLERS: Mapping[str, Controller] = {
    "lstm": LSTMController,
    "feed-forward": FeedForwardController,
}


class LSTMCopier(nn.Module):
    """An LSTM alone, for comparison: maps x_1..x_T to logits and its last state."""

    def __init__(self, input_size: int, output_size: int, hidden_size: int) -> None:
        super().__init__()
        self.cell, self.output = LSTM(input_size, hidden_size), nn.Linear(hidden_size, output_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time output"], Float[Tensor, "1 batch state"]]:
        states, state = self.cell(x, state)
        return self.output(states), state


# -------- the network ends here; training and pictures follow --------

MOST = 1000
"""Vectors, or items, of the longest sequence that is evaluated."""
EACH = 100
"""Sequences of a length that are evaluated."""

Either = NeuralTuringMachine | LSTMCopier


@dataclass(frozen=True, kw_only=True)
class BitCopy(Training[Either]):
    """Copy a sequence of random vectors of bits, of any length up to the longest."""

    meanings: ClassVar[Mapping[str, str]] = {
        "cross_entropy": "cross-entropy in nats of a bit that is to be written, the mean",
        "wrong_bits": "the share of bits that are written wrongly, of lengths that were trained",
        "wrong_bits_longer": "the share of wrong bits of sequences longer than those trained",
        "wrong_bits_*": "the share of wrong bits of sequences of that length",
    }

    longest: int = 10
    """The longest sequence that is trained, to which all are padded."""
    bits: int = 8
    """Bits of a vector."""
    hidden_size: int = 64
    """Units of the controller, or of the LSTM."""

    last_weights: ClassVar[bool] = True  # short sequences cannot say which copy long ones best
    task: ClassVar[str] = "bits to copy"
    shortest: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(self.shortest, "longest")
        self.at_least(1, "bits", "hidden_size")

    def beyond(self) -> range:
        """The lengths that count as longer than trained."""
        return range(self.longest + 1, 2 * self.longest + 1)

    def sequences(self, lengths: Int64[Tensor, " batch"], random: torch.Generator) -> Sequences:
        """Sequences of these lengths, padded to the longest of training or, if longer, of them."""
        return draw_copy(lengths, max(self.longest, int(lengths.max())), self.bits, random)

    def dataset(self) -> Data:
        def draw(rows: int, random: torch.Generator) -> Batch:
            lengths = torch.randint(self.shortest, self.longest + 1, (rows,), generator=random)
            return self.sequences(lengths, random)

        _, time, channels = draw(1, seeded(0))[0].shape
        spec = {"task": "sequence", "shape": [time, channels], "classes": []}
        name = f"{self.task} {self.longest} {self.bits}"
        return generate_data(name, draw, spec, self.batch_size, self.seed, held_out=500)

    def model(self, data: Data) -> Either:
        return LSTMCopier(data.spec["shape"][1], self.bits, self.hidden_size)

    def objective(self, model: Either, batch: Batch) -> Terms:
        sums = {name: values.sum() for name, values in self.metrics(model, batch).items()}
        return {"cross_entropy": sums["nats"] / sums["bits"]}

    def metrics(self, model: Either, batch: Batch) -> dict[str, Tensor]:
        """Sums over the answers of each sequence."""
        x, y, mask = batch
        logits, _ = model(x)
        return self.compare(logits, y, mask)

    def compare(self, logits: Tensor, y: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Wrong bits, bits and nats of each sequence."""
        nats = binary_cross_entropy_with_logits(logits, y, reduction="none").sum(2)
        wrong = ((logits > 0) != (y > 0.5)).sum(2)
        return {
            "wrong": (wrong * mask).sum(1),
            "bits": self.bits * mask.sum(1),
            "nats": (nats * mask).sum(1),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """Wrong bits and cross-entropy a bit."""
        wrong, bits, nats = (outputs[n].double().sum().item() for n in ("wrong", "bits", "nats"))
        return {"wrong_bits": wrong / bits, "cross_entropy": nats / bits}

    def final(
        self,
        model: Either,
        data: Data,
        generator: torch.Generator,
        *,
        lengths: tuple[int, ...] = (),
    ) -> dict[str, float]:
        """Wrong bits of sequences longer than those trained, and of these lengths."""
        return self.by_length(model, generator, lengths)

    def by_length(
        self, model: Either, random: torch.Generator, lengths: tuple[int, ...], rows: int = 0
    ) -> dict[str, float]:
        for length in lengths:
            if not self.shortest <= length <= MOST:
                raise UserError(f"lengths ({length}) must be from {self.shortest} to {MOST:,}")
        longer = torch.tensor([wrong_bits(self, model, n, random, rows) for n in self.beyond()])
        weights = torch.tensor(self.beyond())  # a bit counts the same in any sequence
        return {
            "wrong_bits_longer": float((longer * weights).sum() / weights.sum()),
            **{f"wrong_bits_{n}": wrong_bits(self, model, n, random, rows) for n in lengths},
        }

    def picture_length(self, model: Either, data: Data, history: History) -> Figure:
        """Wrong bits a bit by the length of the sequence; the grey line is the longest trained.

        Beyond it the network has to go on with what it does at each vector.
        """
        lengths = range(self.shortest, self.beyond()[-1] + 1)
        random = seeded(self.seed, 1)
        errors = [wrong_bits(self, model, n, random) for n in lengths]
        return panels(
            Panel(
                {"wrong bits": (torch.tensor(lengths), torch.tensor(errors))},
                "length of the sequence", "wrong bits a bit", levels={"guessing": 0.5},
                marks={"longest trained": float(self.longest)}, ylim=(-0.02, 0.55),
            ),
            height=2.6,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), longest=max(3, self.shortest), bits=3)


def wrong_bits(
    recipe: BitCopy, model: Either, length: int, random: torch.Generator, rows: int = 0
) -> float:
    """The share of wrong bits of EACH sequences of one length."""
    lengths = torch.full((EACH,), length)
    drawn = replace(recipe, longest=length).sequences(lengths, random)  # no padding
    first = next(model.parameters())
    x, y, mask = (part.to(first) for part in drawn)
    if rows and isinstance(model, NeuralTuringMachine):
        logits, _ = model(x, model.begin(EACH, rows))
    else:
        logits, _ = model(x)
    return recipe.summarise(recipe.compare(logits, y, mask))["wrong_bits"]


@dataclass(frozen=True, kw_only=True)
class TuringCopy(BitCopy):
    """Copy a sequence of random vectors of bits by a memory with one address for each."""

    controller: str = "lstm"
    """lstm or feed-forward."""
    rows: int = 32
    """Rows of the memory; a copy takes one for each vector."""
    width: int = 16
    """Numbers of a row."""
    read_heads: int = 1
    """Heads that read."""
    write_heads: int = 1
    """Heads that write."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "rows", "width", "read_heads", "write_heads")
        self.one_of("controller", CONTROLLERS)

    def model(self, data: Data) -> NeuralTuringMachine:
        return NeuralTuringMachine(
            data.spec["shape"][1], self.bits, CONTROLLERS[self.controller], self.hidden_size,
            rows=self.rows, width=self.width, read_heads=self.read_heads,
            write_heads=self.write_heads,
        )  # fmt: skip

    def final(
        self,
        model: Either,
        data: Data,
        generator: torch.Generator,
        *,
        lengths: tuple[int, ...] = (),
        rows: int = 0,
    ) -> dict[str, float]:
        """The same, with a memory of so many rows (0: as trained)."""
        if rows < 0:
            raise UserError(f"rows ({rows}) must be 0, which is as trained, or more")
        return self.by_length(model, generator, lengths, rows)

    def picture_memory(self, model: Either, data: Data, history: History) -> Figure:
        """The memory along an unseen sequence, with its bits and the weights of both heads above.

        Where both heads go over the same rows, the network reads what it has written there.
        """
        x, y, at, memory = self.trace_one(model)
        reading, writing = self.shown_heads(at.weights)
        return draw_memory(
            {"input": x.T, "output: probability of a 1": y.sigmoid().T},
            {"write head": writing, "read head": reading},
            memory,
        )

    def picture_addressing(
        self, model: Either, data: Data, history: History
    ) -> tuple[Figure, dict[str, object]]:
        """Where both heads are after each stage of addressing, along the same sequence.

        A shift moves them on from row to row; the sum at any stage is 1 to within {error:.0e}.
        """
        _, _, at, _ = self.trace_one(model)
        names = ("content", "gate", "shift", "sharpening")
        stages = {name: self.shown_heads(w) for name, w in zip(names, at, strict=True)}
        error = max(float((w.sum(-1) - 1).abs().max()) for w in at)
        return draw_addressing(stages, ("read head", "write head")), {"error": error}

    def shown_heads(self, weights: Float[Tensor, "time heads rows"]) -> list[Tensor]:
        """The first read head and the first write head, by row and time."""
        return [weights[:, head].T for head in (0, self.read_heads)]

    def trace_one(self, model: Either) -> tuple[Tensor, Tensor, Addressing, Tensor]:
        """Input and logits along one sequence of the longest length, addresses and memory."""
        assert isinstance(model, NeuralTuringMachine)
        x, _, _ = self.sequences(torch.tensor([self.longest]), seeded(self.seed, 2))
        return trace(model, x.to(model.output.bias))

    def tiny(self) -> Self:
        return replace(super().tiny(), rows=6)


def trace(
    model: NeuralTuringMachine, x: Float[Tensor, "1 time input"]
) -> tuple[
    Float[Tensor, "time input"],
    Float[Tensor, "time output"],
    Addressing,
    Float[Tensor, "time rows width"],
]:
    """Input and logits of one sequence, where the heads were, and the memory after each step."""
    state, outputs, places, memory = model.begin(1), [], [], []
    for x_t in x.unbind(1):
        h, state, at = model.step(x_t, state)
        outputs.append(model.output(torch.cat([h, state.read], 1)))
        places.append(at)
        memory.append(state.memory)
    stages = Addressing(*(torch.cat(stage) for stage in zip(*places, strict=True)))
    return x[0], torch.cat(outputs), stages, torch.cat(memory)


@dataclass(frozen=True, kw_only=True)
class TuringRecall(TuringCopy):
    """Answer with the item that came after the one asked for; lengths count items."""

    task: ClassVar[str] = "items to recall"
    shortest: ClassVar[int] = 2

    def beyond(self) -> range:
        return range(self.longest + 2, self.longest + 3)

    def sequences(self, lengths: Int64[Tensor, " batch"], random: torch.Generator) -> Sequences:
        return draw_recall(lengths, max(self.longest, int(lengths.max())), self.bits, random)


RECIPES = {
    "neural-turing": TuringCopy(
        controller="feed-forward", hidden_size=96,
        steps=4000, batch_size=32, lr=1e-3, schedule="cosine", clip=1.0, eval_every=500,
        goal="wrong_bits <= 0.01 and wrong_bits_longer <= 0.02", covers=("T13",),
    ),
    "neural-turing-recall": TuringRecall(
        longest=4, bits=6, controller="feed-forward", hidden_size=96, rows=32,
        steps=4000, batch_size=32, lr=1e-3, schedule="cosine", clip=10.0, eval_every=500,
        goal="wrong_bits <= 0.02 and wrong_bits_longer <= 0.02", covers=("T13",),
    ),
    "copy-lstm": BitCopy(
        hidden_size=46, steps=4000, batch_size=32, lr=1e-3, schedule="cosine", clip=1.0,
        eval_every=500, goal="wrong_bits <= 0.3", covers=("T13",),
    ),
}  # fmt: skip
