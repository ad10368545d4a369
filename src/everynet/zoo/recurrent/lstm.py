"""Long short-term memory: gates write to a memory, let it fade and read it; else it stays.

    i = sigmoid(W_xi x_t + W_hi h_{t-1} + b_i)          (1)  input gate; forget f, output o alike
    g = tanh(W_xg x_t + W_hg h_{t-1} + b_g)             (2)  candidate: what could be written
    c_t = f * c_{t-1} + i * g                           (3)  memory
    h_t = o * tanh(c_t)                                 (4)  hidden state: the output
    c_T = sigmoid(b_f)^k c_{T-k} + .. (small weights)   (5)  what is left after k steps, at first
    x^l = x^{l-1} + D h^l, from the second layer on     (6)  residual layers; D is dropout

x_t is the input at time step t, `*` the product of each unit with its own; W and b are learned.

By (3) the gradient of the memory comes back times f alone, not through a matrix and a tanh. Before
training f is about sigmoid(b_f), so by (5) half of the memory is lost at every step where b_f is 0:
with b_f = 1 or more the network remembers before it has learned to. Variants are in
`lstm_variants.py`; how a text is read and the next token predicted is in `next_token.py`. Between
layers there is dropout of our own: on cuda that of `nn.LSTM` keeps random numbers that no seed
reaches.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735; Gers,
Schmidhuber, Cummins (2000), "Learning to forget", doi:10.1162/089976600300015015 (the forget gate);
Jozefowicz, Zaremba, Sutskever (2015), "An empirical exploration of recurrent network
architectures", ICML (its bias).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.nn.input_checks import require_sequences
from everynet.nn.recurrent import set_uniform
from everynet.plot import Panel, panels
from everynet.system.seeds import seeded_by
from everynet.zoo.recurrent.adding import Adder, Adding, draw_gates
from everynet.zoo.recurrent.next_token import NextToken, Reader
from everynet.zoo.recurrent.pictures.gated_cell import lstm_cell
from everynet.zoo.recurrent.pictures.gates import gates_over_text

SHOWN = 6
"""Units whose gates are drawn along a text."""


class LSTM(nn.Module):
    """Maps x_1..x_T to h_1..h_T and the last state, which is h and c beside each other."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.cell = nn.LSTM(input_size, hidden_size, batch_first=True)  # gates stand as i, f, g, o
        self.init_weights(forget_bias)

    def init_weights(self, forget_bias: float) -> None:
        """Small weights; torch has two biases, of which only the sum matters: b_f and 0."""
        set_uniform(self, self.cell.hidden_size)
        _, _, b_x, b_h = self.cell.all_weights[0]
        with torch.no_grad():
            b_x.view(4, -1)[1] = forget_bias
            b_h.view(4, -1)[1] = 0.0

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        """Torch's fused kernel; `by_loop` is the same, step by step."""
        require_sequences("LSTM", x, self.cell.all_weights[0][0], self.cell.input_size)
        begin = None
        if state is not None:
            h, c = state.chunk(2, 2)
            begin = h.contiguous(), c.contiguous()
        states, last = self.cell(x, begin)
        return states, torch.cat(last, 2)

    def by_loop(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> dict[str, Float[Tensor, "batch time hidden"]]:
        """The equations as they are written, with every gate: for reading, pictures and tests."""
        w_x, w_h, b_x, b_h = self.cell.all_weights[0]
        h, c = x.new_zeros(2, len(x), w_h.shape[1]) if state is None else state[0].chunk(2, 1)
        steps = []
        for t in range(x.shape[1]):
            sums = linear(x[:, t], w_x, b_x) + linear(h, w_h, b_h)
            i, f, g, o = sums.chunk(4, 1)  # the order of the gates in torch's weights
            i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()  # (1)
            g = g.tanh()  # (2)
            c = f * c + i * g  # (3)
            h = o * c.tanh()  # (4)
            steps.append(torch.stack([f, i, o, c, h]))
        names = ("forget gate", "input gate", "output gate", "memory", "hidden state")
        return dict(zip(names, torch.stack(steps, 2), strict=True))


class ResidualReader(Reader):
    """A Reader whose layers above the first add to what they are given, so that depth trains."""

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        x = self.dropout(self.embedding(s))
        last = []
        for number, layer in enumerate(self.layers):
            y, after = layer(x, None if h is None else h[number : number + 1])
            x = x + self.dropout(y) if number else self.dropout(y)  # (6)
            last.append(after)
        return x, torch.cat(last)

    def forward(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "layers batch state"]]:
        states, h = self.states(s, h)
        return self.output(states), h


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class LSTMAdding(Adding):
    """Predict the sum of the two numbers that were marked."""

    forget_bias: float = 1.0
    """Initial bias of the forget gate: the larger, the longer a memory lasts before training."""

    def cell(self) -> LSTM:
        return LSTM(2, self.hidden_size, self.forget_bias)

    def picture_gates(self, model: Adder, data: Data, history: History) -> Figure:
        """Gates and memory along an unseen sequence, of the units with the longest memory.

        A forget gate near 1, bright, keeps the memory, and an open input gate writes to it.
        """
        x, _ = next(data.valid)
        gates = _gates(model.cell, x)
        return draw_gates(x, gates, gates["forget gate"], "memory")

    def picture_forgetting(self, model: Adder, data: Data, history: History) -> Figure:
        """The share of the memory that is left after k time steps, before and after training.

        Before training it fades as fast as the bias of the forget gate says, dashed.
        """
        x, _ = next(data.valid)
        shares, guides = {}, {}
        k = torch.arange(1, x.shape[1] + 1)
        for bias in (0.0, 1.0, 4.0):
            with seeded_by(self.seed):
                untrained = LSTM(2, self.hidden_size, bias).to(x)
            name = f"at first, bias {bias:g}"
            shares[name] = (k, share_left(_gates(untrained, x[:50])["forget gate"]))
            guides[name] = (k, torch.tensor(bias).sigmoid() ** k)  # (5)
        shares["trained"] = (k, share_left(_gates(model.cell, x)["forget gate"]))
        return panels(
            Panel(
                shares, "$k$, time steps back", "share of the memory that is left",
                guides=guides, log="y", ylim=(1e-4, 2),
            ),
            width=6.5,
        )  # fmt: skip

    def picture_cell(self, model: Adder, data: Data, history: History) -> Figure:
        """One cell between the one before and the one after it, with the sizes of all it holds.

        The memory runs along the top; the gates at the bottom let it fade, grow and be read.
        """
        return lstm_cell(2, self.hidden_size)


def _gates(cell: nn.Module, x: Float[Tensor, "batch time input"]) -> dict[str, Tensor]:
    """Gates and memory of an LSTM, from a state of zeros on."""
    assert isinstance(cell, LSTM)
    gates = cell.by_loop(x)
    del gates["hidden state"]
    return gates


def share_left(forget: Float[Tensor, "batch time hidden"]) -> Float[Tensor, " time"]:
    """The share of a memory that outlives the last k time steps, the mean over units."""
    return forget.flip(1).cumprod(1).mean((0, 2)).cpu()


@dataclass(frozen=True, kw_only=True)
class LSTMNextToken(NextToken):
    """Predict the next token of a text, character by character."""

    made_for: ClassVar[tuple[str, ...]] = ("text",)

    forget_bias: float = 1.0
    """Initial bias of the forget gates: the larger, the longer a memory lasts before training."""

    numbers: ClassVar[int] = 2

    def layer(self) -> LSTM:
        return LSTM(self.hidden_size, self.hidden_size, self.forget_bias)

    def model(self, data: Data) -> ResidualReader:
        layers = [self.layer() for _ in range(self.layers)]
        return ResidualReader(data.spec["shape"][0], self.hidden_size, layers, self.dropout)

    def picture_gates(self, model: Reader, data: Data, history: History) -> Figure:
        """Gates and memory of the last layer along unseen text, of units that forget at times.

        A unit keeps its memory while its forget gate is open, bright, and drops it where it shuts.
        """
        s = next(data.valid)[0][:1, :260]
        last, inputs = model.layers[-1], list[Tensor]()
        hook = last.register_forward_pre_hook(lambda _layer, given: inputs.append(given[0]))
        model(s)
        hook.remove()
        gates = {name: part[0, -60:].T.cpu() for name, part in _gates(last, inputs[0]).items()}
        forget = gates["forget gate"]
        units = forget.var(1).topk(min(SHOWN, len(forget))).indices.sort().values
        rows = {name: part[units] for name, part in gates.items()}
        memory = {"memory": rows.pop("memory")}
        text = [Tokens.of(data.spec).vocabulary[token] for token in s[0, -60:].tolist()]
        return gates_over_text(rows, memory, text, units.tolist())


RECIPES = {
    "lstm": LSTMAdding(
        steps=1200, batch_size=32, lr=1e-2, warmup=50, schedule="cosine", clip=1.0,
        goal="mse <= 0.01", covers=("R10", "R11"),
    ),
    "char-lstm": LSTMNextToken(
        data="topics", steps=2000, batch_size=32, lr=3e-3, schedule="cosine", clip=1.0,
        goal="cross_entropy <= 1.35", covers=("R10",),
    ),
    "lstm-shakespeare": LSTMNextToken(
        data="tinyshakespeare", hidden_size=512, layers=3, dropout=0.5, window=256, carry=False,
        steps=3000, batch_size=64, lr=2e-3, optimizer="adamw", weight_decay=0.01, warmup=100,
        schedule="cosine", floor=0.1, clip=1.0, eval_every=250,
        goal="cross_entropy <= 1.45", covers=("R15",),
    ),
    "lstm-shakespeare-small": LSTMNextToken(
        data="tinyshakespeare", hidden_size=256, dropout=0.2, window=100, steps=4000, batch_size=50,
        lr=3e-3, optimizer="adamw", warmup=100, schedule="cosine", clip=1.0, eval_every=400,
        goal="cross_entropy <= 1.6", covers=("R15",),
    ),
}  # fmt: skip
