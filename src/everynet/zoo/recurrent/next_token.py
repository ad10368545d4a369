"""Language models of tokens, as several recipes share them: network, loss, samples, pictures.

    x_t = E[s_t]                                     embedding of token s_t
    y_t = W h_t + c                                  logits of the token that follows state h_t
    L = -mean_t log softmax(y_t)[s_{t+1}]            cross-entropy in nats; perplexity is exp(L)
    h_0 <- keep * h_T, without its gradient          truncated backpropagation through time

A text is folded into lanes and read window by window: the state is carried from one window to the
next (keep is 1, and 0 where a lane begins), the gradient ends at the window's edge.

Williams, Peng (1990), "An efficient gradient-based algorithm for on-line training of recurrent
network trajectories", doi:10.1162/neco.1990.2.4.490.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds import Inputs
from everynet.data.kinds.text import BLANK
from everynet.data.samplers import Anywhere, Lanes
from everynet.data.texts.tokens import Tokens
from everynet.metrics.meanings import LANGUAGE, meanings
from everynet.nn.decoding import Draw, S, Step, generate
from everynet.nn.losses import IGNORED
from everynet.plot import Panel, panels
from everynet.plot.text import predicted_tokens, values_over_text
from everynet.recipes.recipe import later
from everynet.recipes.state import M, State, X
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import shown

AT_ONCE = 256
"""Tokens of each lane that an evaluation reads together."""
SAMPLED = 80
"""Tokens of the text that is sampled at each evaluation."""


LayerStates: TypeAlias = Any
"""The states of the layers: a tensor of (layers, batch, state), or a tuple of whatever each has."""


def _rows_first(h: LayerStates) -> tuple[Any, ...]:
    """The states of the layers, each with the batch as its first dimension."""
    return h.unbind() if isinstance(h, Tensor) else h


class Reader(nn.Module):
    """Maps tokens to logits of the ones that follow, and a state to the state after them.

    Each of its layers maps vectors and a state of (1, batch, state) to vectors of the same size and
    the state after the last of them, as torch's do with `batch_first`. States that are no tensors,
    such as caches of keys and values, are kept as a tuple, one for each layer.
    """

    def __init__(
        self, vocabulary: int, hidden_size: int, layers: Iterable[nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden_size)
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, vocabulary)

    def states(
        self, s: Int64[Tensor, "batch time"], h: LayerStates | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], LayerStates]:
        """Outputs of the last layer at every token, and the state of every layer after the last."""
        x = self.embedding(s)
        before = h.split(1) if isinstance(h, Tensor) else h or [None] * len(self.layers)
        last = []
        for layer, state in zip(self.layers, before, strict=True):
            x, after = layer(self.dropout(x), state)
            last.append(after)
        return x, torch.cat(last) if isinstance(last[0], Tensor) else tuple(last)

    def forward(
        self, s: Int64[Tensor, "batch time"], h: LayerStates | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], LayerStates]:
        states, h = self.states(s, h)
        return self.output(self.dropout(states)), h

    def begin(
        self, s: Int64[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch vocab"], tuple[Any, ...]]:
        """Logits of the token after a text, and the states of the layers, rows of it first."""
        logits, h = self(s.to(self.output.weight.device))
        return logits[:, -1], _rows_first(h)

    def step(
        self, tokens: Int64[Tensor, " batch"], states: tuple[Any, ...]
    ) -> tuple[Float[Tensor, "batch vocab"], tuple[Any, ...]]:
        """Logits of the token after one more, and the states after it."""
        together = isinstance(states[0], Tensor)
        logits, h = self(tokens[:, None], torch.stack(states) if together else states)
        return logits[:, -1], _rows_first(h)


class Carried(nn.Module):
    """The state that is carried from one window to the next, for every lane."""

    h: Tensor

    def __init__(self, layers: int, lanes: int, state_size: int) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(layers, lanes, state_size))


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class LanguageModel(Training[M, X]):
    """Predict the next token of a text, by a network that can `begin` and `step`."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*LANGUAGE)

    data: str = "topics"
    """A known text, or a file in UTF-8."""
    tokens: str = "characters"
    """Tokens: characters, words or bpe; or a vocabulary, of a run or in a published vocab.txt."""
    vocabulary: int = 0
    """Size of the vocabulary, the commonest tokens; 0 keeps every one of the training text."""
    lower: bool = later(False)
    """Whether a text is lower-cased first, also that of a prediction or a prompt."""

    def logits(self, model: M, s: Int64[Tensor, "batch time"]) -> Float[Tensor, "batch time vocab"]:
        """Logits of the token after each."""
        raise NotImplementedError  # every network has its own

    def losses(
        self, model: M, s: Int64[Tensor, "batch time"], targets: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, " tokens"]:
        """The cross-entropy at every token that is no padding."""
        raise NotImplementedError  # every network reads a long text in its own way

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = outputs["cross_entropy"].double().mean().item()
        return {"cross_entropy": nats, "perplexity": math.exp(nats), "bits": nats / math.log(2)}

    def predict(self, model: M, inputs: Sequence[Tensor], spec: Spec) -> Sequence[dict[str, Any]]:
        """The cross-entropy a token of each line, where it follows the end of another line."""
        tokens = Tokens.of(spec)
        return [self.score_line(model, line, tokens)[0] for line in inputs]

    def score_line(
        self, model: M, line: Int64[Tensor, " tokens"], tokens: Tokens
    ) -> tuple[dict[str, Any], Float[Tensor, " scored"]]:
        """What `predict` says of a line, and the cross-entropy at each token that follows one."""
        before = [tokens.index["\n"]] if "\n" in tokens.index else []
        line = torch.where(line == BLANK, tokens.unknown, line)
        whole = torch.cat([line.new_tensor(before), line])[None]
        if whole.shape[1] < 2:
            raise UserError("a line must hold at least 2 tokens, because none comes before it")
        losses = self.losses(model, whole[:, :-1], whole[:, 1:])
        nats = losses.double().mean().item()
        answer = {
            "cross_entropy": nats,
            "perplexity": math.exp(nats),
            "tokens": len(line),
            "unknown": int((line == tokens.unknown).sum()),
        }
        return answer, losses

    def sample(
        self,
        model: M,
        spec: Spec,
        generator: torch.Generator,
        *,
        prompt: str = "The ",
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: str = "",
        n: int = 3,
        length: int = 300,
        prompts: Inputs = (),
    ) -> list[str]:
        """`n` texts that continue the prompt, `length` tokens each, or to the text `stop`.

        Where there are `prompts`, lines of a file, each of them is continued instead.
        """
        tokens, speaker = Tokens.of(spec), cast("Reader", model)  # which begins and steps
        draw = Draw(generator, temperature, top_k, top_p, tokens.special_numbers)
        known = [torch.where(line == BLANK, tokens.unknown, line) for line in prompts]
        texts = [tokens.decode(line.tolist()) for line in known] or [prompt]
        return [
            text
            for one in texts
            for text in continue_prompt(
                speaker.begin, speaker.step, tokens, one, draw=draw, n=n, length=length, stop=stop
            )
        ]

    def says(self, model: M, spec: Spec, generator: torch.Generator) -> str:
        """A sampled text after the end of a line, or after whatever token there is."""
        tokens = Tokens.of(spec)
        known = "\n" in tokens.index
        first = (t for t in tokens.vocabulary if tokens.encode(t) == [tokens.index[t]])
        prompt = "\n" if known else next(first)
        text: str = self.sample(model, spec, generator, prompt=prompt, n=1, length=SAMPLED)[0]
        return text.removeprefix("\n")

    def picture_expected(self, model: M, data: Data, history: History) -> Figure:
        """The probability of each character of unseen text before it came, and the likeliest five.

        A confident network has one tall candidate, an undecided one spreads over several.
        """
        tokens, (s, targets, *_) = Tokens.of(data.spec), next(data.valid)
        span = _span(s, 46)
        p = self.logits(model, s[:1, : span.stop])[0, span].softmax(1).cpu()
        true = targets[0, span].cpu().clamp(min=0)
        best, ranked = p.topk(min(5, len(tokens)))
        return predicted_tokens(
            [tokens.vocabulary[token] for token in true.tolist()],
            p.gather(1, true[:, None])[:, 0],
            [[tokens.vocabulary[token] for token in row] for row in ranked.tolist()],
            best,
        )


@dataclass(frozen=True, kw_only=True)
class NextToken(LanguageModel[Reader, Carried]):
    """Predict the next token of a text, character by character."""

    hidden_size: int = 256
    """Units of a layer."""
    layers: int = 1
    """Layers, each fed by the states of the one below."""
    window: int = 64
    """Tokens over which the gradient goes back; the state is carried further."""
    dropout: float = 0.0
    """Dropout of embeddings and of outputs of layers, never of states along time."""
    carry: bool = True
    """Windows follow on each other and carry the state; false: each begins anywhere, from 0."""

    numbers: ClassVar[int] = (
        1  # that the state of a layer holds for each of its units: 2 for h and c
    )
    per_rank: ClassVar[bool] = True
    captured: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "layers", "window")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        return load(
            self.data, kind="text", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower,
            sampler=Lanes(self.window) if self.carry else Anywhere(self.window),
        )  # fmt: skip

    def layer(self) -> nn.Module:
        """One layer, from vectors of `hidden_size` to vectors of that size."""
        raise NotImplementedError  # every recipe has its own

    def model(self, data: Data) -> Reader:
        layers = [self.layer() for _ in range(self.layers)]
        return Reader(data.spec["shape"][0], self.hidden_size, layers, self.dropout)

    def extra(self, model: Reader) -> Carried:
        return Carried(self.layers, self.batch_size, self.numbers * self.hidden_size)

    def step(self, state: State[Reader, Carried], batch: Batch) -> Terms:
        s, targets, keep = batch
        logits, h = state.model(s, state.extra.h * keep[:, None])
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        state.descend(loss, clip=self.clip, clip_value=self.clip_value)
        state.extra.h.copy_(h.detach())
        return {"cross_entropy": loss}

    def metrics(self, model: Reader, batch: Batch) -> dict[str, Tensor]:
        """The cross-entropy of every token of the split, whose lanes are read from end to end."""
        s, targets, _ = batch
        return {"cross_entropy": self.losses(model, s, targets)}

    def logits(
        self, model: Reader, s: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time vocab"]:
        return model(s)[0]  # type: ignore[no-any-return]  # a module's call

    def losses(
        self, model: Reader, s: Int64[Tensor, "batch time"], targets: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, " tokens"]:
        return token_losses(model, s, targets)

    picture_expected = LanguageModel.picture_expected  # the most telling comes first

    def picture_units(self, model: Reader, data: Data, history: History) -> Figure:
        """Along unseen text, for each of several facts, the unit that correlates with it most.

        The larger r is, the better this one unit alone knows the fact.
        """
        vocabulary, s = Tokens.of(data.spec).vocabulary, next(data.valid)[0][:8, :2000]
        lanes = [[vocabulary[token] for token in lane] for lane in s.tolist()]
        states = model.states(s)[0].flatten(0, 1).double().cpu()  # tokens hidden
        facts = [list(_facts(lane).values()) for lane in lanes]
        values = torch.cat([torch.tensor(one) for one in facts], 1).double()  # facts tokens
        both = torch.corrcoef(torch.cat([values, states.T]))
        r = both[: len(values), len(values) :].nan_to_num()  # facts hidden
        size, unit = r.abs().max(1)
        order = [n for n in size.argsort(descending=True).tolist() if size[n] > 0]
        rows = states[: len(lanes[0]), unit].T * r.gather(1, unit[:, None]).sign()  # facts time
        names = zip(_facts(lanes[0]), size.tolist(), strict=True)
        labels = [f"{name}, r = {value:.2f}" for name, value in names]
        span = _span(s, 66)
        return values_over_text(
            rows[order, span],
            lanes[0][span],
            rows=[labels[n] for n in order],
            unit="state, times ±1",
        )

    def picture_reach(self, model: Reader, data: Data, history: History) -> Figure:
        """The gradient of the loss at one character with respect to the state k characters before.

        Where it has faded before the edge of the window, truncation costs nothing.
        """
        s, targets, _ = next(data.valid)
        time = min(3 * self.window // 2 + 1, s.shape[1])
        whole = targets[:, time - 1] != IGNORED
        s, target = s[whole, :time], targets[whole, time - 1]
        # cuDNN goes back only in training mode, and pictures are drawn in eval mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            output, h = model.states(s[:, :1])
            states, h = [], h.detach().requires_grad_()
            for t in range(1, time):
                states.append(h)
                output, h = model.states(s[:, t : t + 1], h)
            loss = cross_entropy(model.output(output[:, -1]), target, reduction="sum")
            gradients = torch.autograd.grad(loss, states)
        norms = torch.stack([g.norm(dim=(0, 2)) for g in gradients]).flip(0).double().cpu()
        k = torch.arange(1, len(norms) + 1).double()
        quantiles = torch.tensor([0.1, 0.5, 0.9]).double()
        low, middle, high = norms.clamp(min=1e-30).quantile(quantiles, 1)
        decades = (middle[0] / middle[-1]).log10().item()
        return panels(
            Panel(
                {"median of the lanes": (k, middle)}, "k, tokens back",
                r"$\|\partial L_t\,/\,\partial h_{t-k}\|$",
                f"a tenth every {len(k) / decades:.0f} tokens" if decades > 0.5 else "",
                bands={"median of the lanes": (low, high)},
                marks={"edge of the window": float(self.window)}, log="y",
            ),
            width=6.5,
        )  # fmt: skip


def continue_prompt(
    begin: Callable[[Tensor], tuple[Tensor, S]],
    step: Step[S],
    tokens: Tokens,
    prompt: str,
    *,
    draw: Draw,
    n: int,
    length: int,
    stop: str,
) -> list[str]:
    """`n` texts that begin with the prompt and go on for `length` tokens, or end before `stop`."""
    numbers = tokens.encode(prompt)
    if not numbers:
        raise UserError("prompt () must hold at least one token, because a text begins with it")
    if tokens.unknown in numbers:
        unknown = next(c for c in tokens.cut(prompt) if tokens.unknown in tokens.encode(c))
        raise UserError(
            f"prompt ({shown(prompt, 60)}) must hold {tokens.kind} of the training text, and "
            f"{unknown!r} is not one of them"
        )
    for name, value in (("n", n), ("length", length)):
        if value < 1:
            raise UserError(f"{name} ({value}) must be at least 1")

    def stops(row: list[int]) -> bool:
        return stop in tokens.decode(row)

    logits, state = begin(torch.tensor([numbers] * n))
    drawn, _ = generate(step, logits, state, length, draw, stops=stops if stop else None)
    start = len(tokens.decode(numbers))
    return [end_before(stop, tokens.decode(numbers + row), start) for row in drawn.tolist()]


def end_before(stop: str, text: str, start: int) -> str:
    """The text up to where `stop` first stands after `start`, if it does."""
    return text[:start] + text[start:].partition(stop)[0] if stop else text


def token_losses(
    model: Reader, s: Int64[Tensor, "batch time"], targets: Int64[Tensor, "batch time"]
) -> Float[Tensor, " tokens"]:
    """The cross-entropy at every token, read in stretches with the state carried; no padding."""
    h, losses = None, []
    for start in range(0, s.shape[1], AT_ONCE):
        target = targets[:, start : start + AT_ONCE]
        logits, h = model(s[:, start : start + AT_ONCE], h)
        loss = cross_entropy(logits.transpose(1, 2), target, reduction="none")
        losses.append(loss[target != IGNORED])
    return torch.cat(losses)


def _span(s: Int64[Tensor, "batch time"], tokens: int) -> slice:
    """The tokens of a lane that are drawn, where there are so many."""
    start = min(200, max(0, s.shape[1] - 100))
    return slice(start, start + tokens)


def _facts(text: Sequence[str]) -> dict[str, list[float]]:
    """Facts that a reader could keep in mind at each token of a text."""
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
