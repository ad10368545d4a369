"""A recurrent network as a distribution over sequences, and three ways for a sequence to end.

    h_t = tanh(U[y_{t-1}] + W h_{t-1} + b + r_t)                  (1)  y_0 is a start symbol
    p(y_t | y_<t) = softmax(V h_t + c)[y_t]                       (2)  the next symbol
    p(y_1..y_n) = prod_{t<=n} p(y_t | y_<t)  p(end | y_<=n)       (3)  the end is a symbol
    q_t = sigmoid(v^T h_{t+1} + d)                                (4)  halt unit, after y_t
    p(y_1..y_n) = prod_{t<=n} p(y_t | y_<t)  prod_{t<n} (1 - q_t)  q_n            (5)
    p(y_1..y_n) = P(n)  prod_{t<=n} p(y_t | y_<t, n - t)          (6)  first a length is drawn
    X^2 = sum_i (N_i - N p_i)^2 / (N p_i)                         (7)  counts against probabilities

y_<t is y_1..y_{t-1}. A state holds all of the past that the next symbol depends on, so the network
is a directed graphical model with an edge from each symbol to all later ones, and few weights.
Ancestral sampling follows the edges: draw y_1, feed it back, draw y_2. With (3) a sequence may be
empty; in (5) the unit is read after each symbol, which works for outputs that are no symbols, too;
in (6) the number of symbols that are left is an input, r_t = r (n - t), or the network would not
know that it is to come to an end. In (3) and (5) r_t is 0.

Goodfellow, Bengio, Courville (2016), "Deep Learning", section 10.2.3. X^2: Pearson (1900), "On the
criterion that a given system of deviations ... can be reasonably supposed to have arisen from
random sampling", doi:10.1080/14786440009463897.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self, TypeAlias

import torch
from jaxtyping import Float, Int64, Num
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from everynet.plot import Panel, panels
from everynet.plot.style import INK, array, colour, figure, grid
from everynet.recipes.recipe import Simulation

NOTHING = -1
"""Padding behind the end of a sequence."""
ENOUGH = 5.0
"""Expected counts below this are pooled for (7)."""

Drawn: TypeAlias = tuple[Int64[Tensor, "count longest"], Int64[Tensor, " count"]]


class SymbolChain(nn.Module):
    """Maps a symbol and a state to the next state, and that to log-probabilities of symbols."""

    def __init__(self, symbols: int, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols + 1, hidden_size)  # U; the last is the start
        self.recurrent = nn.Linear(hidden_size, hidden_size)  # W and b
        self.output = nn.Linear(hidden_size, outputs)  # V and c
        self.start = symbols

    def init_state(
        self, count: int, r: Float[Tensor, "count hidden"] | float = 0.0
    ) -> Float[Tensor, "count hidden"]:
        """The state h_1, after the start symbol alone."""
        h = self.recurrent.weight.new_zeros(count, self.recurrent.in_features)
        return self.forward(torch.full((count,), self.start), h, r)

    def forward(
        self,
        y: Int64[Tensor, " count"],
        h: Float[Tensor, "count hidden"],
        r: Float[Tensor, "count hidden"] | float = 0.0,
    ) -> Float[Tensor, "count hidden"]:
        return torch.tanh(self.symbol(y) + self.recurrent(h) + r)  # (1)

    def log_p(self, h: Float[Tensor, "count hidden"]) -> Float[Tensor, "count outputs"]:
        """Log-probabilities of the next symbol."""
        log_p: Tensor = self.output(h).log_softmax(1)  # (2)
        return log_p


def gather(
    log_p: Float[Tensor, "count outputs"], y: Int64[Tensor, " count"]
) -> Float[Tensor, " count"]:
    """The log-probability of each symbol that came."""
    return log_p.gather(1, y[:, None])[:, 0]


class EndSymbol(nn.Module):
    """Sequences that end with a symbol of their own, which has the highest number."""

    shortest = 0

    def __init__(self, symbols: int, hidden_size: int, longest: int) -> None:
        super().__init__()
        self.chain = SymbolChain(symbols, hidden_size, symbols + 1)
        self.symbols, self.longest = symbols, longest

    def log_prob(self, y: Int64[Tensor, "count time"]) -> Float[Tensor, " count"]:
        """The log-probability of sequences that end behind their last symbol."""
        h = self.chain.init_state(len(y))
        total = h.new_zeros(len(y))
        for now in y.unbind(1):
            total = total + gather(self.chain.log_p(h), now)
            h = self.chain(now, h)
        return total + self.chain.log_p(h)[:, self.symbols]  # (3)

    def sample(self, count: int, generator: torch.Generator) -> Drawn:
        """Sequences and their lengths; whatever would be longer than `longest` has one more."""
        y, lengths = _blank(count, self.longest)
        h, alive = self.chain.init_state(count), torch.ones(count, dtype=torch.bool)
        for t in range(self.longest + 1):
            drawn = _draw(self.chain.log_p(h), generator)
            alive &= drawn < self.symbols
            lengths += alive
            if t < self.longest:
                y[alive, t] = drawn[alive]
                h = self.chain(drawn.clamp(max=self.symbols - 1), h)
        return y, lengths


class HaltUnit(nn.Module):
    """Sequences after each symbol of which one unit decides whether to stop."""

    shortest = 1

    def __init__(self, symbols: int, hidden_size: int, longest: int) -> None:
        super().__init__()
        self.chain = SymbolChain(symbols, hidden_size, symbols)
        self.halt = nn.Linear(hidden_size, 1)  # v and d
        self.symbols, self.longest = symbols, longest

    def log_prob(self, y: Int64[Tensor, "count time"]) -> Float[Tensor, " count"]:
        """The log-probability of sequences that end behind their last symbol."""
        h = self.chain.init_state(len(y))
        total, last = h.new_zeros(len(y)), y.shape[1] - 1
        for t, now in enumerate(y.unbind(1)):
            total = total + gather(self.chain.log_p(h), now)
            h = self.chain(now, h)
            logit = self.halt(h)[:, 0]
            total = total + logsigmoid(logit if t == last else -logit)  # (5)
        return total

    def sample(self, count: int, generator: torch.Generator) -> Drawn:
        """Sequences and their lengths; whatever would be longer than `longest` has one more."""
        y, lengths = _blank(count, self.longest)
        h, alive = self.chain.init_state(count), torch.ones(count, dtype=torch.bool)
        for t in range(self.longest):
            drawn = _draw(self.chain.log_p(h), generator)
            y[alive, t] = drawn[alive]
            lengths += alive
            h = self.chain(drawn, h)
            q = self.halt(h)[:, 0].sigmoid()  # (4)
            alive &= torch.rand(count, generator=generator, dtype=q.dtype) >= q
        return y, lengths + alive


class SampledLength(nn.Module):
    """Sequences whose length is drawn first; how many symbols are left is an input."""

    shortest = 1

    def __init__(self, symbols: int, hidden_size: int, longest: int) -> None:
        super().__init__()
        self.chain = SymbolChain(symbols, hidden_size, symbols)
        self.length = nn.Parameter(torch.zeros(longest))  # logits of 1 .. longest
        self.left = nn.Linear(1, hidden_size, bias=False)  # r
        self.symbols, self.longest = symbols, longest

    def remaining(self, left: Int64[Tensor, " count"]) -> Float[Tensor, "count hidden"]:
        """The term r_t: how many symbols are left after this one."""
        r: Tensor = self.left(left.clamp(min=0)[:, None].to(self.length))
        return r

    def log_prob(self, y: Int64[Tensor, "count time"]) -> Float[Tensor, " count"]:
        """The log-probability of sequences together with their length."""
        count, n = y.shape
        total = self.length.log_softmax(0)[n - 1].expand(count)
        h = self.chain.init_state(count, self.remaining(torch.full((count,), n - 1)))
        for t, now in enumerate(y.unbind(1), 1):
            total = total + gather(self.chain.log_p(h), now)  # (6)
            h = self.chain(now, h, self.remaining(torch.full((count,), n - t - 1)))
        return total

    def sample(self, count: int, generator: torch.Generator) -> Drawn:
        """Sequences and their lengths."""
        y, _ = _blank(count, self.longest)
        n = _draw(self.length.log_softmax(0).expand(count, -1), generator) + 1
        h = self.chain.init_state(count, self.remaining(n - 1))
        for t in range(1, self.longest + 1):
            drawn = _draw(self.chain.log_p(h), generator)
            y[n >= t, t - 1] = drawn[n >= t]
            h = self.chain(drawn, h, self.remaining(n - t - 1))
        return y, n


Rule: TypeAlias = EndSymbol | HaltUnit | SampledLength
RULES: dict[str, type[EndSymbol] | type[HaltUnit] | type[SampledLength]] = {
    "end symbol": EndSymbol,
    "halt unit": HaltUnit,
    "sampled length": SampledLength,
}


def _blank(count: int, longest: int) -> Drawn:
    return torch.full((count, longest), NOTHING), torch.zeros(count, dtype=torch.long)


def _draw(
    log_p: Float[Tensor, "count outputs"], generator: torch.Generator
) -> Int64[Tensor, " count"]:
    return torch.multinomial(log_p.exp(), 1, generator=generator)[:, 0]


def every_sequence(symbols: int, n: int) -> Int64[Tensor, "count time"]:
    """Every sequence of n symbols, in the order of numbers written with these digits."""
    digits = torch.arange(symbols**n)[:, None]
    return digits // symbols ** torch.arange(n - 1, -1, -1) % symbols


def joint(rule: Rule) -> Float[Tensor, " kinds"]:
    """The probability of every sequence, short ones first, and last that of all longer ones."""
    lengths = range(rule.shortest, rule.longest + 1)
    parts = [rule.log_prob(every_sequence(rule.symbols, n)).exp() for n in lengths]
    every = torch.cat([torch.zeros(rule.shortest).double(), *parts])  # the empty one, if never
    return torch.cat([every, (1 - every.sum()).clamp(min=0)[None]])


def counted(rule: Rule, drawn: Drawn) -> Int64[Tensor, " kinds"]:
    """How often each of the same sequences was drawn, and last how many were longer."""
    y, lengths = drawn
    left = lengths[:, None] - torch.arange(1, rule.longest + 1)
    written = (y * rule.symbols ** left.clamp(min=0) * (left >= 0)).sum(1)
    sizes = rule.symbols ** torch.arange(rule.longest + 1)
    first = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    kind = first[lengths] + torch.where(lengths > rule.longest, 0, written)
    return torch.bincount(kind, minlength=int(first[-1]) + 1)


def chi_squared(
    counts: Int64[Tensor, " kinds"], probabilities: Float[Tensor, " kinds"]
) -> tuple[float, float]:
    """X^2 and its p-value; kinds with small expected counts are pooled."""
    expected = counts.sum() * probabilities
    often = expected >= ENOUGH
    n = torch.cat([counts[often].double(), counts[~often].sum()[None].double()])
    e = torch.cat([expected[often], expected[~often].sum()[None]])
    if e[-1] < ENOUGH:  # so few in all that they go with the rarest of the others
        n, e = (torch.cat([part[:-2], part[-2:].sum()[None]]) for part in (n, e))
    value = ((n - e) ** 2 / e).sum()  # (7)
    half = torch.tensor(max(len(e) - 1, 1) / 2, dtype=torch.float64)
    return float(value), float(torch.special.gammaincc(half, value / 2))


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Stopping(Simulation):
    """Samples of random networks under each rule, counted against exact probabilities."""

    meanings: ClassVar[Mapping[str, str]] = {
        "smallest_p": "the smallest p-value of the three chi-squared tests",
        "length_error": "the largest difference between the share of a length and its probability",
        "p_*": "p-value of the chi-squared test of counts against probabilities, for one rule",
    }

    symbols: int = 3
    """Symbols of the alphabet, without one for the end."""
    hidden_size: int = 8
    """Units of the state."""
    longest: int = 8
    """Symbols of the longest sequence that is counted by itself."""
    samples: int = 200_000
    """Sequences drawn under each rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "symbols")
        self.at_least(1, "hidden_size", "longest")
        few = self.symbols**self.longest <= 100_000
        self.require(few, "longest", f"smaller: {self.symbols}^longest sequences are all written")
        self.at_least(100, "samples")

    @torch.no_grad()
    def network(self, name: str, generator: torch.Generator) -> Rule:
        """A random network that ends by that rule, in float64."""
        rule = RULES[name](self.symbols, self.hidden_size, self.longest).double()
        for weight in rule.parameters():
            normal = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(normal if weight.dim() == 1 else normal / weight.shape[1] ** 0.25)
        match rule:  # so that few sequences are longer than what is counted
            case EndSymbol():
                rule.chain.output.bias[-1] = 0.5
            case HaltUnit():
                rule.halt.bias.fill_(-1.5)
            case SampledLength():
                rule.left.weight.mul_(0.3)
        return rule

    @torch.no_grad()
    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        probabilities, counts = [], []
        for name in RULES:
            rule = self.network(name, generator)
            probabilities.append(joint(rule))
            counts.append(counted(rule, rule.sample(self.samples, generator)))
        return {"probabilities": torch.stack(probabilities), "counts": torch.stack(counts)}

    def by_length(self, values: Num[Tensor, "rules kinds"]) -> Num[Tensor, "rules lengths"]:
        """Their sums over the sequences of each length, and last over longer ones."""
        sizes = [self.symbols**n for n in range(self.longest + 1)]
        return torch.stack([part.sum(1) for part in values.split([*sizes, 1], 1)], 1)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        both = zip(result["counts"], result["probabilities"], strict=True)
        p = {name: chi_squared(*pair)[1] for name, pair in zip(RULES, both, strict=True)}
        exact, often = map(self.by_length, (result["probabilities"], result["counts"]))
        return {
            "smallest_p": min(p.values()),
            "length_error": float((exact - often / self.samples).abs().max()),
            **{f"p_{name.replace(' ', '_')}": value for name, value in p.items()},
        }

    def picture_lengths(self, result: Mapping[str, Tensor]) -> Figure:
        """How long sequences are under each of the three rules: samples, bars, and exact, points.

        The exact probabilities are sums over all sequences there are.
        """
        exact, often = map(self.by_length, (result["probabilities"], result["counts"]))
        made = figure(6.5, 2.6, 1, len(RULES))
        for n, (axes, name) in enumerate(zip(made.axes, RULES, strict=True)):
            places, shares = range(self.longest + 2), array(often[n] / self.samples)
            axes.bar(places, shares, color=colour(n), alpha=0.5, width=0.8, label="drawn")
            axes.plot(places, array(exact[n]), "o", color=INK, ms=4, label="exact")
            axes.set_xticks([*places], [*map(str, places[:-1]), f">{self.longest}"])
            axes.tick_params(labelsize=7)
            axes.set_title(name, color=INK, fontsize="medium")
            axes.set_xlabel("symbols")
            axes.set_ylim(0, 1.4 * max(float(exact[n].max()), shares.max()))
            grid(axes)
        first = made.axes[0]
        first.set_ylabel("probability")
        first.legend(frameon=False, fontsize="small", loc="upper left", ncols=2, handlelength=1)
        return made

    def picture_joint(self, result: Mapping[str, Tensor]) -> Figure:
        """Every sequence of which at least 5 are expected: its share of the samples by probability.

        All lie along the line, with more scatter where fewer came.
        """
        points = []
        for name, p, n in zip(RULES, result["probabilities"], result["counts"], strict=True):
            often = p * self.samples >= ENOUGH
            line = torch.stack([p[often].min(), p[often].max()])
            points.append(
                Panel(
                    {"a sequence": (p[often], n[often] / self.samples)}, "probability",
                    "share of the samples", name, guides={"equal": (line, line)}, scatter=True,
                    log="xy", legend="none",
                )
            )  # fmt: skip
        return panels(*points, width=6.5 / 3, height=2.5)

    def tiny(self) -> Self:
        return replace(super().tiny(), longest=3, samples=300)


RECIPES = {
    "stopping": Stopping(goal="smallest_p > 0.01 and length_error <= 0.005", covers=("R13",)),
}  # fmt: skip
