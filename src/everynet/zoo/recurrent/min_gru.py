"""minGRU, a gated recurrent unit whose gates do not look at the state.

    z_t = sigmoid(W_z x_t + b_z)                     (1)  update gate
    c_t = W_c x_t + b_c                              (2)  candidate
    h_t = (1 - z_t) * h_{t-1} + z_t * c_t            (3)  state

x_t is the input at time step t, `*` the product of each unit with its own. All gates are known
before the first state is, so that (3) is a linear recurrence, which a scan computes in ceil(log2 T)
steps instead of T. What it costs: one layer alone cannot let the past decide what is kept. Layers
can, where each reads the states of the one below:

    u_t = x_t + sum_{k=0..3} w_k * x_{t-k}           (4)  short causal convolution, for text
    y   = x + D minGRU(norm(x))                      (5)  a residual block; D is dropout,
    y'  = y + D MLP(norm(y))                         (6)  norm is layer normalisation

Feng et al. (2024), "Were RNNs All We Needed?", arXiv:2410.01201, section 3.1. Unlike the paper, the
candidate is not made positive and no logarithm is taken: the recurrence is computed as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.texts.tokens import Tokens
from everynet.kernels.recurrence import linear_recurrence
from everynet.nn.input_checks import require_sequences
from everynet.nn.losses import IGNORED
from everynet.plot import Panel, panels
from everynet.recipes.training import Training
from everynet.zoo.recurrent.next_token import NextToken, Reader
from everynet.zoo.recurrent.pictures.gate_maps import (
    gate_maps,
    gate_rows,
    memory_curves,
    swapped_map,
)
from everynet.zoo.recurrent.sequences import REMEMBERED, make_selective_copy

REACH = 4
"""Kernel size of the short convolution: the present vector and three before."""


class MinGRU(nn.Module):
    """Maps x_1..x_T to h_1..h_T and the last state; pass that state back in to go on."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(input_size, hidden_size)
        self.candidate = nn.Linear(input_size, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        h: Float[Tensor, "1 batch hidden"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch hidden"]]:
        require_sequences("MinGRU", x, self.gate.weight, self.gate.in_features)
        exact = self.gate.weight.dtype  # under autocast too: 1 - z needs more than 8 bits
        z = self.gate(x).to(exact).sigmoid()  # (1)
        c = self.candidate(x).to(exact)  # (2)
        begin = torch.zeros_like(c[:, 0]) if h is None else h[0].to(exact)
        states = linear_recurrence(1 - z, z * c, begin)  # (3), as a scan; `by_loop` is the same
        return states, states[None, :, -1]


def by_loop(
    z: Float[Tensor, "batch time hidden"],
    c: Float[Tensor, "batch time hidden"],
    h: Float[Tensor, "batch hidden"],
) -> Float[Tensor, "batch time hidden"]:
    """The recurrence as it is written, for reading and for tests."""
    states = []
    for t in range(z.shape[1]):
        h = (1 - z[:, t]) * h + z[:, t] * c[:, t]  # (3)
        states.append(h)
    return torch.stack(states, 1)


class ConvolvedMinGRU(nn.Module):
    """minGRU behind a causal convolution over the last few vectors, each unit for itself.

    The state is that of the minGRU and, one after another, the last REACH - 1 inputs.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(REACH, hidden_size).uniform_(-0.5, 0.5))
        self.recurrence = MinGRU(hidden_size, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "batch time hidden"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        batch, time, size = x.shape
        state = x.new_zeros(1, batch, REACH * size) if state is None else state
        h, past = state.split([size, (REACH - 1) * size], 2)
        inputs = torch.cat([past.view(batch, REACH - 1, size).to(x.dtype), x], 1)
        shifted = [inputs[:, REACH - 1 - k : REACH - 1 - k + time] for k in range(REACH)]
        u = x + sum(w * x_k for w, x_k in zip(self.weight, shifted, strict=True))  # (4)
        states, h = self.recurrence(u, h)
        return states, torch.cat([h, inputs[None, :, time:].flatten(2)], 2)


class MinGRUBlock(nn.Module):
    """A residual block: a recurrent layer, then an MLP, each behind layer normalisation."""

    def __init__(
        self, hidden_size: int, recurrence: nn.Module, widening: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.before, self.recurrence = nn.LayerNorm(hidden_size), recurrence
        self.mlp = nn.Sequential(
            nn.LayerNorm(hidden_size),
            nn.Linear(hidden_size, widening * hidden_size),
            nn.GELU(),
            nn.Linear(widening * hidden_size, hidden_size),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch time hidden"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        states, state = self.recurrence(self.before(x), state)
        x = x + self.dropout(states)  # (5)
        return x + self.dropout(self.mlp(x)), state  # (6)


class BlockReader(Reader):
    """A Reader of blocks: dropout acts on embeddings and inside of blocks; a norm is the last."""

    def __init__(
        self, vocabulary: int, hidden_size: int, blocks: Iterable[nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__(vocabulary, hidden_size, blocks)
        self.entry, self.norm = nn.Dropout(dropout), nn.LayerNorm(hidden_size)

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        x = self.entry(self.embedding(s))
        last = []
        for number, block in enumerate(self.layers):
            x, after = block(x, None if h is None else h[number : number + 1])
            last.append(after)
        return self.norm(x), torch.cat(last)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SelectiveCopy(Training[BlockReader]):
    """Ten symbols come at random places among blanks: output them again, in order."""

    meanings: ClassVar[Mapping[str, str]] = {
        "cross_entropy": "cross-entropy in nats at a token that is to be copied, the mean",
        "accuracy": "the share of tokens that are copied rightly",
    }

    length: int = 30
    """Places among which ten symbols are scattered."""
    symbols: int = 8
    """Different symbols."""
    hidden_size: int = 64
    """Units of a block."""
    layers: int = 3
    """Blocks; one alone cannot learn it, because its gates do not know how many symbols came."""
    widening: int = 2
    """Hidden units of a block's MLP for each of its units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.length >= REMEMBERED, "length", f"at least {REMEMBERED}")
        self.at_least(1, "symbols", "hidden_size", "layers", "widening")

    def dataset(self) -> Data:
        return make_selective_copy(self.length, self.batch_size, self.seed, self.symbols)

    def model(self, data: Data) -> BlockReader:
        size = self.hidden_size
        blocks = [MinGRUBlock(size, MinGRU(size, size), self.widening) for _ in range(self.layers)]
        return BlockReader(len(data.spec["classes"]), size, blocks)

    def objective(self, model: BlockReader, batch: Batch) -> Terms:
        s, targets = batch
        logits, _ = model(s)
        return {"cross_entropy": cross_entropy(logits.flatten(0, 1), targets.flatten())}

    def metrics(self, model: BlockReader, batch: Batch) -> dict[str, Tensor]:
        """The loss, and whether the likeliest token is right, at every answer."""
        s, targets = batch
        mask = targets != IGNORED
        logits, targets = model(s)[0][mask], targets[mask]
        return {
            "cross_entropy": cross_entropy(logits, targets, reduction="none"),
            "accuracy": (logits.argmax(1) == targets).float(),
        }

    def picture_gates(self, model: BlockReader, data: Data, history: History) -> Figure:
        """How far each gate of each block is open along an unseen sequence, and its answers.

        A gate that opens at symbols and shuts at blanks keeps the symbols alone.
        """
        s = next(data.valid)[0][:1]
        signs = ["\N{MIDDLE DOT}", *data.spec["classes"][1:-1], "?"]
        text = [signs[token] for token in s[0].tolist()]
        answers = model(s)[0][0, -REMEMBERED:].argmax(1).tolist()
        heading = "its answers: " + " ".join(signs[answer] for answer in answers)
        return gate_maps([z[0] for z in gates(model, s)], text, s[0] > 0, heading)

    def picture_answers(self, model: BlockReader, data: Data, history: History) -> Figure:
        """By how much the probability of each right answer falls where one symbol is exchanged.

        On a bright diagonal each answer depends on its own symbol, wherever that stood.
        """
        s, targets = next(data.valid)
        return swapped_map(self.swap_symbols(model, s[:200], targets[:200]))

    def swap_symbols(
        self, model: nn.Module, s: Int64[Tensor, "batch time"], targets: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, "answers symbols"]:
        """The loss of probability of each answer (down) where each symbol (across) is another."""
        symbols = targets[:, -REMEMBERED:]
        places = ((s > 0) & (s <= self.symbols)).nonzero()[:, 1].view(len(s), REMEMBERED)

        def right(s: Tensor) -> Tensor:
            p: Tensor = model(s)[0][:, -REMEMBERED:].softmax(2)
            return p.gather(2, symbols[:, :, None])[:, :, 0].mean(0)  # answers

        falls = []
        for place in places.T[:, :, None]:
            other = s.scatter(1, place, s.gather(1, place) % self.symbols + 1)
            falls.append(right(s) - right(other))
        return torch.stack(falls, 1)

    def picture_lengths(self, model: BlockReader, data: Data, history: History) -> Figure:
        """The share of right answers on sequences shorter and longer than those of training.

        Where the curve stays high, the network learned to skip blanks, not to count places.
        """
        device, accuracy = next(data.valid)[0].device, []
        longer = [self.length * n // 4 for n in (2, 3, 4, 6, 8, 12, 16)]
        lengths = sorted({max(REMEMBERED, length) for length in (REMEMBERED, *longer)})
        for length in lengths:
            others = make_selective_copy(
                length, self.batch_size, self.seed, self.symbols, held_out=200
            )
            batch = tuple(part.to(device) for part in others.splits["valid"])
            accuracy.append(self.metrics(model, batch)["accuracy"].mean().item())
        return panels(
            Panel(
                {"answers": (torch.tensor(lengths), torch.tensor(accuracy))},
                f"places among which the {REMEMBERED} symbols are scattered",
                "share of right answers", levels={"chance": 1 / self.symbols},
                marks={"trained on": float(self.length)}, ylim=(0.0, 1.05),
            ),
            width=6.5, height=3.0,
        )  # fmt: skip


def gates(
    model: Reader, s: Int64[Tensor, "batch time"]
) -> list[Float[Tensor, "batch time hidden"]]:
    """How far every gate of every block is open at each token."""
    found: list[Tensor] = []
    layers = [layer.gate for layer in model.modules() if isinstance(layer, MinGRU)]
    hooks = [
        gate.register_forward_hook(lambda _layer, _inputs, output: found.append(output.sigmoid()))
        for gate in layers
    ]
    try:
        model.states(s)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@dataclass(frozen=True, kw_only=True)
class MinNextToken(NextToken):
    """Predict the next token of a text, by blocks of minGRU with a short convolution."""

    widening: int = 4
    """Hidden units of a block's MLP for each of its units."""

    numbers: ClassVar[int] = REACH  # the minGRU's state, and three vectors for the convolution

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "widening")

    def layer(self) -> MinGRUBlock:
        recurrence = ConvolvedMinGRU(self.hidden_size)
        return MinGRUBlock(self.hidden_size, recurrence, self.widening, self.dropout)

    def model(self, data: Data) -> BlockReader:
        blocks = [self.layer() for _ in range(self.layers)]
        return BlockReader(data.spec["shape"][0], self.hidden_size, blocks, self.dropout)

    def picture_gates(self, model: Reader, data: Data, history: History) -> Figure:
        """For each block the gate whose values vary most, along unseen text.

        At a light square the unit takes in what it reads and forgets what it held.
        """
        s = next(data.valid)[0][:4, :1000]
        start = min(200, max(0, s.shape[1] - 100))
        span = slice(start, start + 66)
        vocabulary = Tokens.of(data.spec).vocabulary
        text = [vocabulary[token] for token in s[0, span].tolist()]
        rows = [z[0, span, int(z.flatten(0, 1).std(0).argmax())] for z in gates(model, s)]
        return gate_rows(torch.stack(rows), text)

    def picture_memory(self, model: Reader, data: Data, history: History) -> Figure:
        """After how many characters the state of each unit has faded to 1/e, by its gates.

        Units stand from the shortest memory to the longest, for each block.
        """
        s = next(data.valid)[0][:4, :1000]
        return memory_curves([-1 / torch.log1p(-z.double()).mean((0, 1)) for z in gates(model, s)])


RECIPES = {
    "min-gru": SelectiveCopy(
        steps=5000, batch_size=32, lr=1e-2, schedule="cosine", warmup=100, clip=1.0,
        goal="accuracy >= 0.98", covers=("R9",),
    ),
    "min-gru-shakespeare": MinNextToken(
        data="tinyshakespeare", hidden_size=384, layers=6, window=256, carry=False, dropout=0.4,
        steps=2000, batch_size=64, lr=1e-3, optimizer="adamw", schedule="cosine", floor=0.1,
        warmup=100, weight_decay=0.1, clip=1.0, eval_every=250,
        goal="cross_entropy <= 1.52", covers=("R9", "R15"),
    ),
    "min-gru-shakespeare-small": MinNextToken(
        data="tinyshakespeare", hidden_size=128, layers=4, window=128, widening=2, dropout=0.1,
        steps=2000, batch_size=32, lr=4e-3, optimizer="adamw", schedule="cosine", floor=0.1,
        warmup=100, weight_decay=0.1, clip=1.0, eval_every=500,
        goal="cross_entropy <= 1.6", covers=("R9", "R15"),
    ),
}  # fmt: skip
