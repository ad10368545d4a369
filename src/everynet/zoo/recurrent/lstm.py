"""Long short-term memory: a memory that gates write to, forget from and read, and that else stays.

    i, f, o = sigmoid(W_x x_t + W_h h_{t-1} + b)        (1)  input, forget and output gate
    g = tanh(W_xg x_t + W_hg h_{t-1} + b_g)             (2)  what could be written
    c_t = f * c_{t-1} + i * g                           (3)  memory
    h_t = o * tanh(c_t)                                 (4)  what is given out
    c_T = sigmoid(b_f)^k c_{T-k} + .. (small weights)   (5)  what is left after k times, at first
    x^l = x^{l-1} + D h^l, from the second layer on     (6)  layers add to what is below; D drops

Each gate has weights and a bias of its own.

By (3) the gradient of the memory comes back times f alone, not through a matrix and a tanh. At the
beginning f is about sigmoid(b_f), so by (5) half of the memory is lost at every time where b_f is
0: with b_f = 1 or more the network remembers before it has learned to. Torch's cell, whose two
biases only matter as a sum, does the computing; `lstm_variants.py` has the relatives.

How a text is read and the next token said is in `next_token.py`. Between layers there is dropout of
our own: on cuda that of `nn.LSTM` would keep random numbers that no seed of ours reaches.

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
from torch.nn.functional import linear, pad

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.kernels import linear_recurrence
from everynet.nn.input_checks import require_sequences
from everynet.nn.recurrent import set_uniform
from everynet.plot import Panel, panels
from everynet.recipes.recipe import Pictures
from everynet.system.seeds import seeded_by
from everynet.zoo.recurrent.adding import Adder, Adding, along, each_by_its_size, longest
from everynet.zoo.recurrent.next_token import NextToken, Reader
from everynet.zoo.recurrent.pictures.gated_cell import lstm_cell
from everynet.zoo.recurrent.pictures.gates import gates_over_marks, gates_over_text

SHOWN = 6
"""Units whose gates are drawn along a text."""


class LSTM(nn.Module):
    """Torch's cell, through its fused kernels; a state is h and c beside each other."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.cell = nn.LSTM(input_size, hidden_size, batch_first=True)  # (4)
        set_uniform(self, hidden_size)
        _, _, *biases = self.cell.all_weights[0]
        with torch.no_grad():
            for bias, value in zip(biases, (forget_bias, 0.0), strict=True):
                bias.view(4, hidden_size)[1] = value

    def forward(
        self,
        x: Float[Tensor, "batch time input"],
        state: Float[Tensor, "1 batch state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "1 batch state"]]:
        require_sequences("LSTM", x, self.cell.all_weights[0][0], self.cell.input_size)
        given = None
        if state is not None:
            h, c = state.chunk(2, 2)
            given = h.contiguous(), c.contiguous()
        y, last = self.cell(x, given)
        return y, torch.cat(last, 2)

    def gates(self, x: Float[Tensor, "batch time input"]) -> dict[str, Tensor]:
        """The gates at every time, each (batch, time, hidden), and the memory, from zero on."""
        h, _ = self.cell(x)
        w_x, w_h, *biases = self.cell.all_weights[0]
        before = pad(h[:, :-1], (0, 0, 1, 0))
        i, f, g, o = (linear(x, w_x, biases[0]) + linear(before, w_h, biases[1])).chunk(4, 2)
        i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()  # (1)
        written = i * g.tanh()  # (2)
        c = linear_recurrence(f, written, torch.zeros_like(f[:, 0]))  # (3)
        return {"forget gate": f, "input gate": i, "output gate": o, "memory": c}


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


@dataclass(frozen=True, kw_only=True)
class LSTMAdding(Adding):
    """Say the sum of the two numbers that were marked."""

    captions: ClassVar[dict[str, str]] = {
        "gates": "Along an unseen sequence the sixteen units that keep their memory longest: the "
        "forget gate stays open, bright, and the input gate opens where a number is marked.",
        "forgetting": "What is left of the memory of k times ago: at first it fades as fast as the "
        "bias of the forget gate says, dashed; once trained, a few units keep it to the end.",
        "along": "What the network would say at each time steps when a marked number comes; it is "
        "asked at the end alone, and there it meets the best guess, dashed.",
        "cell": "One cell between the one before and the one after, with the sizes of all it has: "
        "the memory runs along the top, and the gates at the bottom let it fade, grow and be read.",
    }

    forget_bias: float = 1.0
    """What the bias of the forget gate begins at: the more, the longer a memory lasts at first."""

    def cell(self) -> LSTM:
        return LSTM(2, self.hidden_size, self.forget_bias)

    def pictures(self, model: Adder, data: Data, history: History) -> Pictures:
        """Gates along a sequence, how a memory fades, the answer as it comes about, the cell."""
        x, y = next(data.valid)
        cell = model.cell
        assert isinstance(cell, LSTM)
        error = (model(x) - y).square().mean().sqrt().item()
        seen = cell.gates(x)
        units = longest(seen["forget gate"])
        rows = {name: part[0][:, units].T for name, part in seen.items()}
        memory = {"memory, each unit by its size": each_by_its_size(rows.pop("memory"))}
        return {
            "gates": gates_over_marks(x[0, :, 0], x[0, :, 1], rows, memory),
            "forgetting": self._forgetting(x[:50], seen["forget gate"]),
            "along": along(model, x[:4], error),
            "cell": lstm_cell(2, self.hidden_size),
        }

    def _forgetting(self, x: Tensor, trained: Tensor) -> Figure:
        """What networks keep that have learned nothing, by their bias, and what this one keeps."""
        kept, guides = {}, {}
        k = torch.arange(1, x.shape[1] + 1)
        for bias in (0.0, 1.0, 4.0):
            with seeded_by(self.seed):
                fresh = LSTM(2, self.hidden_size, bias).to(x)
            kept[f"at first, bias {bias:g}"] = _left(fresh.gates(x)["forget gate"])
            guides[f"at first, bias {bias:g}"] = (k, torch.tensor(bias).sigmoid() ** k)  # (5)
        kept["trained"] = _left(trained)
        return panels(
            Panel(
                {name: (k, left) for name, left in kept.items()},
                "$k$, times back",
                "share of the memory that is left",
                guides=guides,
                log="y",
                ylim=(1e-4, 2),
            ),
            width=6.5,
        )


def _left(forget: Float[Tensor, "batch time hidden"]) -> Float[Tensor, " time"]:
    """The share of a memory that outlives the last k times, the mean over units."""
    return forget.flip(1).cumprod(1).mean((0, 2)).cpu()


@dataclass(frozen=True, kw_only=True)
class LSTMNextToken(NextToken):
    """Say what comes next in a text, character by character."""

    captions: ClassVar[dict[str, str]] = {
        "gates": "Six units of the last layer along unseen text: a unit holds its memory while its "
        "forget gate is open, bright, and drops it at certain characters, such as a space.",
        **NextToken.captions,
        "units": "For each of seven facts the unit whose state tells it best, along unseen text: "
        "there are units that stay on for as long as a word or a quotation lasts.",
    }

    forget_bias: float = 1.0
    """What the bias of the forget gates begins at: the more, the longer a memory lasts at first."""

    numbers: ClassVar[int] = 2

    def layer(self) -> LSTM:
        return LSTM(self.hidden_size, self.hidden_size, self.forget_bias)

    def model(self, data: Data) -> ResidualReader:
        layers = [self.layer() for _ in range(self.layers)]
        return ResidualReader(data.spec["shape"][0], self.hidden_size, layers, self.dropout)

    def pictures(self, model: Reader, data: Data, history: History) -> Pictures:
        """Gates over a text, and what every network of its kind shows."""
        s, _, _ = next(data.valid)
        tokens = Tokens.of(data.spec)
        return {
            "gates": _gates(model, s[:1, :260], tokens),
            **super().pictures(model, data, history),
        }


def _gates(model: Reader, s: Tensor, tokens: Tokens) -> Figure:
    """The gates of the last layer along the end of a text, of units that forget at times."""
    last, given = model.layers[-1], list[Tensor]()
    assert isinstance(last, LSTM)
    hook = last.register_forward_pre_hook(lambda _layer, inputs: given.append(inputs[0]))
    model(s)
    hook.remove()
    seen = {name: part[0, -60:].T.cpu() for name, part in last.gates(given[0]).items()}
    units = seen["forget gate"].var(1).topk(min(SHOWN, len(seen["memory"]))).indices.sort().values
    rows = {name: part[units] for name, part in seen.items()}
    memory = {"memory": rows.pop("memory")}
    text = [tokens.vocabulary[token] for token in s[0, -60:].tolist()]
    return gates_over_text(rows, memory, text, units.tolist())


# lstm reached 0.0009, 0.0010, 0.0025 with seeds 0, 1, 2 on a CPU; with forget_bias=-1 it is at
# 0.170 after 600 steps. char-lstm, help of Python 3.12, seeds 0, 1, 2: 1.305, 1.313, 1.303 (CPU,
# one thread, 168 s). lstm-shakespeare, nats a character on the test split, seeds 0, 1: 1.402, 1.405
# (H200, bf16, 66 s); without (6) 1.458, and with windows that follow on each other 1.460.
# lstm-shakespeare-small, two CPU cores: 1.528 after 1,039 s, one seed; after ten minutes of it the
# validation part was at 1.42 and ended at 1.39.
RECIPES = {
    "lstm": LSTMAdding(
        steps=1200,
        batch_size=32,
        lr=1e-2,
        warmup=50,
        schedule="cosine",
        clip=1.0,
        goal="mse <= 0.01",
        covers=("R10", "R11"),
    ),
    "char-lstm": LSTMNextToken(
        data="topics",
        steps=2000,
        batch_size=32,
        lr=3e-3,
        schedule="cosine",
        clip=1.0,
        goal="cross_entropy <= 1.35",
        covers=("R10",),
    ),
    "lstm-shakespeare": LSTMNextToken(
        data="tinyshakespeare",
        hidden_size=512,
        layers=3,
        dropout=0.5,
        window=256,
        carry=False,
        steps=3000,
        batch_size=64,
        lr=2e-3,
        optimizer="adamw",
        weight_decay=0.01,
        warmup=100,
        schedule="cosine",
        floor=0.1,
        clip=1.0,
        eval_every=250,
        goal="cross_entropy <= 1.45",
        covers=("R15",),
    ),
    "lstm-shakespeare-small": LSTMNextToken(
        data="tinyshakespeare",
        hidden_size=256,
        dropout=0.2,
        window=100,
        steps=4000,
        batch_size=50,
        lr=3e-3,
        optimizer="adamw",
        warmup=100,
        schedule="cosine",
        clip=1.0,
        eval_every=400,
        goal="cross_entropy <= 1.6",
        covers=("R15",),
    ),
}
