"""minGRU, a gated recurrent unit whose gates do not look at the state.

    z_t = sigmoid(W_z x_t + b_z)                     (1)  update gate
    c_t = W_c x_t + b_c                              (2)  candidate
    h_t = (1 - z_t) * h_{t-1} + z_t * c_t            (3)  state

All gates are known before the first state is, so that (3) is a linear recurrence, which a scan
computes in ceil(log2 T) steps instead of T. What it costs: one layer alone cannot let the past
decide what is kept. Layers can, where each reads what the one below has kept:

    u_t = x_t + sum_{k=0..3} w_k * x_{t-k}           (4)  short convolution, for text
    y   = x + D minGRU(norm(x))                      (5)  a block: what went in is kept,
    y'  = y + D MLP(norm(y))                         (6)  and D drops parts of what is added

Feng et al. (2024), "Were RNNs All We Needed?", arXiv:2410.01201, section 3.1. Unlike the paper, the
candidate is not made positive and no logarithm is taken: the recurrence is computed as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.texts.tokens import Tokens
from everynet.kernels import linear_recurrence
from everynet.nn.input_checks import require_sequences
from everynet.nn.losses import IGNORED
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Pictures
from everynet.recipes.training import Training
from everynet.zoo.recurrent.next_token import NextToken, Reader
from everynet.zoo.recurrent.pictures.gate_maps import (
    gate_maps,
    gate_rows,
    memory_curves,
    swapped_map,
)
from everynet.zoo.recurrent.sequences import REMEMBERED, selective_copy

REACH = 4
"""Vectors that the short convolution sees: the present one and three before."""


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
        before = torch.zeros_like(c[:, 0]) if h is None else h[0].to(exact)
        states = linear_recurrence(1 - z, z * c, before)  # (3)
        return states, states[None, :, -1]


class ConvolvedMinGRU(nn.Module):
    """minGRU behind a convolution over the last few vectors, each unit for itself.

    The state is that of the minGRU and, one after another, the vectors that are still seen.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(REACH, size).uniform_(-0.5, 0.5))
        self.recurrence = MinGRU(size, size)

    def forward(
        self,
        x: Float[Tensor, "batch time hidden"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        batch, time, size = x.shape
        state = x.new_zeros(1, batch, REACH * size) if state is None else state
        h, before = state.split([size, (REACH - 1) * size], 2)
        seen = torch.cat([before.view(batch, REACH - 1, size).to(x.dtype), x], 1)
        shifted = [seen[:, REACH - 1 - k : REACH - 1 - k + time] for k in range(REACH)]
        u = x + sum(w * past for w, past in zip(self.weight, shifted, strict=True))  # (4)
        states, h = self.recurrence(u, h)
        return states, torch.cat([h, seen[None, :, time:].flatten(2)], 2)


class MinGRUBlock(nn.Module):
    """Adds to every vector what a recurrent layer made of all before it, then an MLP's answer."""

    def __init__(
        self, size: int, recurrence: nn.Module, widening: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.before, self.recurrence = nn.LayerNorm(size), recurrence
        self.mlp = nn.Sequential(
            nn.LayerNorm(size),
            nn.Linear(size, widening * size),
            nn.GELU(),
            nn.Linear(widening * size, size),
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
    """A Reader of blocks: dropout acts on vectors of tokens and inside of blocks, then a norm."""

    def __init__(
        self, vocabulary: int, size: int, blocks: Iterable[nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__(vocabulary, size, blocks)
        self.entry, self.norm = nn.Dropout(dropout), nn.LayerNorm(size)

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        return self.through(self.entry(self.embedding(s)), h)

    def through(
        self,
        x: Float[Tensor, "batch time hidden"],
        h: Float[Tensor, "layers batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        """The same from vectors on."""
        last = []
        for number, block in enumerate(self.layers):
            x, after = block(x, None if h is None else h[number : number + 1])
            last.append(after)
        return self.norm(x), torch.cat(last)


def gates(
    model: Reader, s: Int64[Tensor, "batch time"]
) -> list[Float[Tensor, "batch time hidden"]]:
    """How far every gate (1) of every block is open at each token."""
    found: list[Tensor] = []
    layers = [layer for layer in model.modules() if isinstance(layer, MinGRU)]
    hooks = [
        layer.gate.register_forward_hook(lambda _layer, _given, made: found.append(made.sigmoid()))
        for layer in layers
    ]
    try:
        model.states(s)
    finally:
        for hook in hooks:
            hook.remove()
    return found


@dataclass(frozen=True, kw_only=True)
class SelectiveCopy(Training[BlockReader]):
    """Ten symbols come at random places among blanks: say them again, in order."""

    captions: ClassVar[Mapping[str, str]] = {
        "gates": "How far each gate is open along an unseen sequence: in the first blocks gates "
        "open at symbols and shut at blanks, and in the last one a group of units takes each "
        "symbol in, shuts behind it and opens again at its question.",
        "answers": "How much of a right answer is lost where one of the ten symbols is exchanged: "
        "the bright diagonal says that each answer hangs on its own symbol, whatever the places.",
        "lengths": "Share of right answers on sequences longer and shorter than those of training, "
        "with as many symbols: what was learned is to skip blanks, not to count places.",
    }
    meanings: ClassVar[Mapping[str, str]] = {
        "cross_entropy": "nats of surprise at a token that is to be copied, the mean",
        "accuracy": "the share of tokens that are copied rightly",
    }

    length: int = 30
    """Places among which ten symbols are scattered."""
    symbols: int = 8
    """Symbols that are told apart."""
    hidden_size: int = 64
    """Units of a block."""
    layers: int = 3
    """Blocks; one alone cannot learn it, because its gates do not know how many symbols came."""
    widening: int = 2
    """Hidden units of a block's MLP for each of its units."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.length >= REMEMBERED, "length", f"at least {REMEMBERED}")
        for name in ("symbols", "hidden_size", "layers", "widening"):
            self.require(getattr(self, name) >= 1, name, "at least 1")

    def dataset(self) -> Data:
        return selective_copy(self.length, self.batch_size, self.seed, self.symbols)

    def model(self, data: Data) -> BlockReader:
        size = self.hidden_size
        blocks = [MinGRUBlock(size, MinGRU(size, size), self.widening) for _ in range(self.layers)]
        return BlockReader(len(data.spec["classes"]), size, blocks)

    def objective(self, model: BlockReader, batch: Batch) -> Terms:
        s, said = batch
        logits, _ = model(s)
        return {"cross_entropy": cross_entropy(logits.flatten(0, 1), said.flatten())}

    def metrics(self, model: BlockReader, batch: Batch) -> dict[str, Tensor]:
        """Nats, and whether it was right, at every answer."""
        s, said = batch
        logits, asked = model(s)[0], said != IGNORED
        return {
            "cross_entropy": cross_entropy(logits[asked], said[asked], reduction="none"),
            "accuracy": (logits[asked].argmax(1) == said[asked]).float(),
        }

    def pictures(self, model: BlockReader, data: Data, history: History) -> Pictures:
        s, said = next(data.valid)
        signs = ["\N{MIDDLE DOT}", *data.spec["classes"][1:-1], "?"]
        text = [signs[token] for token in s[0].tolist()]
        answers = model(s[:1])[0][0, -REMEMBERED:].argmax(1).tolist()
        heading = "its answers: " + " ".join(signs[answer] for answer in answers)
        return {
            "gates": gate_maps([z[0] for z in gates(model, s[:1])], text, s[0] > 0, heading),
            "answers": swapped_map(self._swapped(model, s[:200], said[:200])),
            "lengths": self._lengths(model, s.device),
        }

    def _swapped(
        self, model: nn.Module, s: Int64[Tensor, "batch time"], said: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, "answers symbols"]:
        """By how much a right answer loses (down) where a symbol is another one (across)."""
        symbols = said[:, -REMEMBERED:]
        places = ((s > 0) & (s <= self.symbols)).nonzero()[:, 1].view(len(s), REMEMBERED)

        def right(read: Tensor) -> Tensor:
            likely: Tensor = model(read)[0][:, -REMEMBERED:].softmax(2)
            return likely.gather(2, symbols[:, :, None])[:, :, 0].mean(0)  # answers

        before, lost = right(s), []
        for number in range(REMEMBERED):
            place = places[:, number : number + 1]
            other = s.scatter(1, place, s.gather(1, place) % self.symbols + 1)
            lost.append(before - right(other))
        return torch.stack(lost, 1)

    def _lengths(self, model: BlockReader, device: torch.device) -> Figure:
        """Accuracy on fresh sequences of other lengths."""
        lengths = sorted({REMEMBERED, *(self.length * n // 4 for n in (2, 3, 4, 6, 8, 12, 16))})
        lengths = [length for length in lengths if length >= REMEMBERED]
        right = []
        for length in lengths:
            data = selective_copy(length, self.batch_size, self.seed, self.symbols, held_out=200)
            batch = tuple(part.to(device) for part in data.splits["valid"])
            right.append(self.metrics(model, batch)["accuracy"].mean().item())
        return panels(
            Panel(
                {"answers": (torch.tensor(lengths), torch.tensor(right))},
                f"places among which the {REMEMBERED} symbols are scattered",
                "share of right answers",
                levels={"chance": 1 / self.symbols},
                marks={"trained on": float(self.length)},
                ylim=(0.0, 1.05),
            ),
            width=6.5,
            height=3.0,
        )

    def tiny(self) -> Self:
        small = replace(self, length=12, hidden_size=16, layers=2, batch_size=8)
        return replace(small, steps=min(self.steps, 4))


@dataclass(frozen=True, kw_only=True)
class MinNextToken(NextToken):
    """Say what comes next in a text, by blocks of minGRU with a short convolution."""

    captions: ClassVar[dict[str, str]] = {
        "gates": "For each block the gate that moves most along unseen text: a light square means "
        "that the unit takes in what it reads there and forgets what it held.",
        "memory": "After how many characters the state of each unit has faded to 1/e, by its gates "
        "along unseen text, from the shortest to the longest: most units forget within a word, and "
        "few hold more.",
        **NextToken.captions,
    }

    widening: int = 4
    """Hidden units of a block's MLP for each of its units."""

    numbers: ClassVar[int] = REACH  # the minGRU's state, and three vectors for the convolution

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.widening >= 1, "widening", "at least 1")

    def layer(self) -> MinGRUBlock:
        size = self.hidden_size
        return MinGRUBlock(size, ConvolvedMinGRU(size), self.widening, self.dropout)

    def model(self, data: Data) -> BlockReader:
        blocks = [self.layer() for _ in range(self.layers)]
        return BlockReader(data.spec["shape"][0], self.hidden_size, blocks, self.dropout)

    def pictures(self, model: Reader, data: Data, history: History) -> Pictures:
        tokens, (s, *_) = Tokens.of(data.spec), next(data.valid)
        s = s[:4, :1000]
        start = min(200, max(0, s.shape[1] - 100))
        seen = slice(start, start + 66)
        text = [tokens.vocabulary[token] for token in s[0, seen].tolist()]
        opened = gates(model, s)
        telling = [z[0, seen, int(z.flatten(0, 1).std(0).argmax())] for z in opened]
        kept = [-1 / torch.log1p(-z.double()).mean((0, 1)) for z in opened]
        return {
            "gates": gate_rows(torch.stack(telling), text),
            "memory": memory_curves(kept),
            **super().pictures(model, data, history),
        }

    def tiny(self) -> Self:
        return replace(super().tiny(), layers=2, widening=1)


# min-gru, seeds 0, 1, 2: 1.000, 1.000, 0.990 of the answers right (H200, fp32, 14 s); with 3,000
# steps 0.999, 0.997, 0.974 (CPU, one thread, 86 s). min-gru-shakespeare: 1.483 nats a character on
# the test split, one seed (H200, bf16, 51 s). min-gru-shakespeare-small: 1.51, one seed (two CPU
# cores, 477 s).
RECIPES = {
    "min-gru": SelectiveCopy(
        steps=5000,
        batch_size=32,
        lr=1e-2,
        schedule="cosine",
        warmup=100,
        clip=1.0,
        goal="accuracy >= 0.99",
        covers=("R9",),
    ),
    "min-gru-shakespeare": MinNextToken(
        data="tinyshakespeare", hidden_size=384, layers=6, window=256, carry=False, dropout=0.4,
        steps=2000, batch_size=64, lr=1e-3, optimizer="adamw", schedule="cosine", floor=0.1,
        warmup=100, weight_decay=0.1, clip=1.0, eval_every=250,
        goal="cross_entropy <= 1.52",
        covers=("R9", "R15"),
    ),
    "min-gru-shakespeare-small": MinNextToken(
        data="tinyshakespeare", hidden_size=128, layers=4, window=128, widening=2, dropout=0.1,
        steps=2000, batch_size=32, lr=4e-3, optimizer="adamw", schedule="cosine", floor=0.1,
        warmup=100, weight_decay=0.1, clip=1.0, eval_every=500,
        goal="cross_entropy <= 1.6",
        covers=("R9", "R15"),
    ),
}  # fmt: skip
