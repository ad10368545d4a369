"""What every recipe that says the next token of a text shares: reading, loss, samples, pictures.

    x_t = E[s_t]                                     the vector of token s_t
    y_t = W h_t + c                                  logits of the token that follows state h_t
    L = -mean_t log softmax(y_t)[s_{t+1}]            nats a token; perplexity is exp(L)
    h_0 <- keep * h_T, without its gradient          truncated backpropagation through time

A text is folded into lanes and read window by window: the state goes on from one window to the next
(keep is 1, and 0 where a lane begins), the gradient ends at the window's edge.

Williams, Peng (1990), "An efficient gradient-based algorithm for on-line training of recurrent
network trajectories", doi:10.1162/neco.1990.2.4.490.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds.text import BLANK
from everynet.data.samplers import Anywhere, Lanes
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.metrics.meanings import LANGUAGE, meanings
from everynet.nn.losses import IGNORED
from everynet.plot import Panel, panels
from everynet.plot.text import expected, over_text
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import shown

AT_ONCE = 256
"""So many tokens of each lane are looked at together where nothing is learned."""

SAID = 80
"""Tokens of the text that is made at each evaluation."""


class Reader(nn.Module):
    """Maps tokens to logits of the ones that follow, and a state to the state after them.

    Each of its layers maps vectors and a state of (1, batch, state) to vectors of the same size and
    the state after the last of them, as torch's do with `batch_first`.
    """

    def __init__(
        self, vocabulary: int, size: int, layers: Iterable[nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(size, vocabulary)

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        """What the last layer gives at every token, and the state of every layer after the last."""
        x = self.embedding(s)
        last = []
        for number, layer in enumerate(self.layers):
            x, after = layer(self.dropout(x), None if h is None else h[number : number + 1])
            last.append(after)
        return x, torch.cat(last)

    def forward(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "layers batch state"]]:
        states, h = self.states(s, h)
        return self.output(self.dropout(states)), h


class Carried(nn.Module):
    """The state that one window hands to the next, for every lane."""

    h: Tensor

    def __init__(self, layers: int, lanes: int, state_size: int) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(layers, lanes, state_size))


@dataclass(frozen=True, kw_only=True)
class NextToken(Training[Reader, Carried]):
    """Say what comes next in a text, character by character."""

    captions: ClassVar[dict[str, str]] = {
        "expected": "At each character of unseen text, the probability it had before it came, and "
        "the five likeliest in its place: the ends of words are sure, their beginnings are not.",
        "units": "For each of seven facts the unit whose state tells it best, along unseen text: "
        "what began a few characters ago is kept, the line or the quotes one is in hardly are.",
        "reach": "How strongly the loss at one character depends on the state k characters before: "
        "the gradient fades long before the edge of the window cuts it off.",
    }
    meanings: ClassVar[Mapping[str, str]] = meanings(*LANGUAGE)

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    tokens: str = "characters"
    """What is a token: characters, words or bpe (pieces of words)."""
    vocabulary: int = 0
    """Most tokens that are told apart, the commonest; 0 keeps every one of the training text."""
    hidden_size: int = 256
    """Units of a layer."""
    layers: int = 1
    """Layers, each fed by the states of the one below."""
    window: int = 64
    """Tokens over which the gradient goes back; the state goes on beyond."""
    dropout: float = 0.0
    """Share of vectors and states that is dropped on the way up, never on that through time."""
    carry: bool = True
    """Windows follow on each other and hand their state on; false: each begins anywhere, from 0."""

    numbers: ClassVar[int] = 1  # that the state of a layer holds for each of its units
    per_rank: ClassVar[bool] = True
    captured: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden_size", "layers", "window"):
            self.require(getattr(self, name) >= 1, name, "at least 1")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        return load(
            self.data,
            kind="text",
            batch_size=self.batch_size,
            seed=self.seed,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
            sampler=Lanes(self.window) if self.carry else Anywhere(self.window),
        )

    def layer(self) -> nn.Module:
        """One layer, from vectors of `hidden_size` to vectors of that size."""
        raise NotImplementedError  # every recipe says it

    def model(self, data: Data) -> Reader:
        layers = [self.layer() for _ in range(self.layers)]
        return Reader(data.spec["shape"][0], self.hidden_size, layers, self.dropout)

    def extra(self, model: Reader) -> Carried:
        return Carried(self.layers, self.batch_size, self.numbers * self.hidden_size)

    def step(self, state: State[Reader, Carried], batch: Batch) -> Terms:
        s, following, keep = batch
        logits, h = state.model(s, state.extra.h * keep[:, None])
        loss = cross_entropy(logits.flatten(0, 1), following.flatten())
        state.descend(loss, clip=self.clip, clip_value=self.clip_value)
        state.extra.h.copy_(h.detach())
        return {"cross_entropy": loss}

    def metrics(self, model: Reader, batch: Batch) -> dict[str, Tensor]:
        """Nats of every token of the split, whose lanes are walked from end to end."""
        s, following, _ = batch
        return {"cross_entropy": torch.cat(list(_nats(model, s, following)))}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = outputs["cross_entropy"].double().mean().item()
        return {"cross_entropy": nats, "perplexity": math.exp(nats), "bits": nats / math.log(2)}

    def predict(
        self, model: Reader, inputs: Sequence[Tensor], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """How likely each line is: its nats a token, where it follows the end of another line."""
        tokens = Tokens.of(spec)
        before = [tokens.index["\n"]] if "\n" in tokens.index else []
        answers = []
        for line in inputs:
            line = torch.where(line == BLANK, tokens.index[UNKNOWN], line)  # noqa: PLW2901
            whole = torch.cat([line.new_tensor(before), line])[None]
            if whole.shape[1] < 2:
                raise UserError("a line must hold at least 2 tokens, because none comes before it")
            nats = torch.cat(list(_nats(model, whole[:, :-1], whole[:, 1:]))).double().mean().item()
            answers.append(
                {
                    "cross_entropy": nats,
                    "perplexity": math.exp(nats),
                    "tokens": len(line),
                    "unknown": int((line == tokens.index[UNKNOWN]).sum()),
                }
            )
        return answers

    def sample(
        self,
        model: Reader,
        spec: Spec,
        generator: torch.Generator,
        *,
        prompt: str = "The ",
        temperature: float = 0.8,
        n: int = 3,
        length: int = 300,
    ) -> list[str]:
        """`n` texts that go on from the prompt, token by token, `length` tokens each."""
        tokens = Tokens.of(spec)
        _check_prompt(prompt, tokens)
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature ({temperature}) must be above 0; 1 is what was learned")
        for name, value in (("n", n), ("length", length)):
            if value < 1:
                raise UserError(f"{name} ({value}) must be at least 1")
        device = model.output.weight.device
        made = torch.tensor([tokens.encode(prompt)] * n)
        logits, h = model(made.to(device))
        for _ in range(length):
            likely = (logits[:, -1].double().cpu() / temperature).log_softmax(1)
            likely[:, tokens.index[UNKNOWN]] = -math.inf
            drawn = torch.multinomial(likely.exp(), 1, generator=generator)
            made = torch.cat([made, drawn], 1)
            logits, h = model(drawn.to(device), h)
        return [tokens.decode(row) for row in made.tolist()]

    def says(self, model: Reader, spec: Spec, generator: torch.Generator) -> str:
        """A text of its own after the end of a line, or after whatever token there is."""
        tokens = Tokens.of(spec)
        known = "\n" in tokens.index
        prompt = "\n" if known else next(t for t in tokens.vocabulary if t != UNKNOWN)
        text: str = self.sample(model, spec, generator, prompt=prompt, n=1, length=SAID)[0]
        return text.removeprefix("\n")

    def pictures(self, model: Reader, data: Data, history: History) -> Pictures:
        """What was expected along a text, what units have learned, how far the gradient reaches."""
        tokens = Tokens.of(data.spec)
        s, following, _ = next(data.valid)
        lanes = [[tokens.vocabulary[token] for token in lane] for lane in s[:8, :2000].tolist()]
        start = min(200, max(0, len(lanes[0]) - 100))
        return {
            "expected": self._expected(model, s, following, tokens, slice(start, start + 46)),
            "units": _telling_units(model, s[:8, :2000], lanes, slice(start, start + 66)),
            "reach": _reach(model, s, following, self.window),
        }

    def _expected(
        self, model: Reader, s: Tensor, following: Tensor, tokens: Tokens, seen: slice
    ) -> Figure:
        likely = model(s[:1, : seen.stop])[0][0, seen].softmax(1).cpu()
        came = following[0, seen].cpu().clamp(min=0)
        best, ranked = likely.topk(min(5, len(tokens)))
        return expected(
            [tokens.vocabulary[token] for token in came.tolist()],
            likely.gather(1, came[:, None])[:, 0],
            [[tokens.vocabulary[token] for token in row] for row in ranked.tolist()],
            best,
        )

    def tiny(self) -> Self:
        small = replace(self, data="topics", batch_size=8, window=16, hidden_size=24)
        return replace(small, steps=min(self.steps, 4))


def _nats(
    model: Reader, s: Int64[Tensor, "batch time"], following: Int64[Tensor, "batch time"]
) -> Iterator[Float[Tensor, " tokens"]]:
    """The loss at every token, stretch by stretch with the state carried; fillers left out."""
    h = None
    for start in range(0, s.shape[1], AT_ONCE):
        target = following[:, start : start + AT_ONCE]
        logits, h = model(s[:, start : start + AT_ONCE], h)
        nats = cross_entropy(logits.transpose(1, 2), target, reduction="none")
        yield nats[target != IGNORED]


def _check_prompt(prompt: str, tokens: Tokens) -> None:
    numbers = tokens.encode(prompt)
    if not numbers:
        raise UserError("prompt () must hold at least one token, because a text begins with it")
    if tokens.index[UNKNOWN] in numbers:
        unknown = next(c for c in tokens.cut(prompt) if c not in tokens.index)
        raise UserError(
            f"prompt ({shown(prompt, 60)}) must hold {tokens.kind} of the training text, and "
            f"{unknown!r} is not one of them"
        )


def _facts(text: Sequence[str]) -> dict[str, list[float]]:
    """What a reader could keep in mind at each token of a text."""
    facts: dict[str, list[float]] = {}
    column, letters, indented, quoted, last = 0, 0, False, False, ""
    for token in text:
        if token == "\n":
            column, indented, quoted = 0, False, quoted and last != "\n"
        else:
            indented = token.isspace() if column == 0 else indented
            column += 1
        quoted ^= token.count('"') % 2 == 1
        word = token.isalnum() or token == "_"
        letters, last = letters + 1 if word else 0, token
        for name, value in (
            ("inside a word", word),
            ("letters so far", letters),
            ("a sign", not word and not token.isspace()),
            ("a capital", token[:1].isupper()),
            ("inside quotes", quoted),
            ("an indented line", indented),
            ("place in the line", column),
        ):
            facts.setdefault(name, []).append(float(value))
    return facts


def _telling_units(model: Reader, s: Tensor, lanes: Sequence[Sequence[str]], seen: slice) -> Figure:
    """For each fact of a text the unit that tells it best, by the size of their correlation."""
    states = model.states(s)[0].flatten(0, 1).double().cpu()  # tokens hidden
    names, facts = _facts(lanes[0]), [list(_facts(lane).values()) for lane in lanes]
    told = torch.cat([torch.tensor(one) for one in facts], 1).double()  # facts tokens
    r = torch.corrcoef(torch.cat([told, states.T]))[: len(told), len(told) :].nan_to_num()
    size, unit = r.abs().max(1)
    order = [n for n in size.argsort(descending=True).tolist() if size[n] > 0]  # it changes there
    signs = r.gather(1, unit[:, None]).sign()
    rows = states[: len(lanes[0]), unit].T * signs  # facts time
    labels = [f"{name}, r = {value:.2f}" for name, value in zip(names, size.tolist(), strict=True)]
    return over_text(
        rows[order, seen], lanes[0][seen], rows=[labels[n] for n in order], unit="state, times ±1"
    )


def _reach(model: Reader, s: Tensor, following: Tensor, window: int) -> Figure:
    """The gradient of the loss at one token with respect to the state k tokens before."""
    time = min(3 * window // 2 + 1, s.shape[1])
    whole = following[:, time - 1] != IGNORED
    s, target = s[whole, :time], following[whole, time - 1]
    # cuDNN goes back only through a network in training mode, and pictures are drawn in eval mode.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        given, h = model.states(s[:, :1])
        chain, h = [], h.detach().requires_grad_()
        for t in range(1, time):
            chain.append(h)
            given, h = model.states(s[:, t : t + 1], h)
        loss = cross_entropy(model.output(given[:, -1]), target, reduction="sum")
        gradients = torch.autograd.grad(loss, chain)
    norms = torch.stack([g.norm(dim=(0, 2)) for g in gradients]).flip(0).double().cpu()
    k = torch.arange(1, len(norms) + 1).double()
    low, middle, high = norms.clamp(min=1e-30).quantile(torch.tensor([0.1, 0.5, 0.9]).double(), 1)
    decades = (middle[0] / middle[-1]).log10().item()
    return panels(
        Panel(
            {"median of the lanes": (k, middle)},
            "k, tokens back",
            r"$\|\partial L_t\,/\,\partial h_{t-k}\|$",
            f"a tenth every {len(k) / decades:.0f} tokens" if decades > 0.5 else "",
            bands={"median of the lanes": (low, high)},
            marks={"edge of the window": float(window)},
            log="y",
        ),
        width=6.5,
    )
