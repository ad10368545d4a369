"""Sample complexity: how many samples good values take, and what it costs to look for good actions.

A generative model gives n next states of every state and action:

    P_hat(s' | s, a) = count(s, a, s') / n                             (1)  what is learned
    Q_hat = r + gamma sum_s' P_hat(s' | s, a) max_a' Q_hat(s', a')     (2)  best values of that
    sup |Q_hat - Q*| = c n^-1/2                                        (3)  the error
    N  =  n |S| |A|  ~  |S| |A| log(|S| |A| / delta) / (eps^2 (1 - gamma)^3)   (4)  for error eps

In a bandit an action is tried, its reward is seen, and nothing follows:

    a_t = argmax_a m_a + (2 ln t / n_a)^1/2                            (5)  UCB1: optimism
    a_t = argmax_a m_a, but random with probability eps                (6)  epsilon-greedy
    R_T = sum_t (mu* - mu_{a_t})                                       (7)  regret
    E[R_T] <= sum_a (8 ln T / D_a + (1 + pi^2 / 3) D_a)                (8)  of UCB1
    E[R_T] >= eps T sum_a D_a / |A|                                    (9)  of epsilon-greedy

P(s' | s, a) are transition probabilities, r rewards from 0 to 1, gamma is the discount, delta the
probability of a larger error; m_a is the mean of the n_a rewards that action a gave, mu_a what it
tends to, mu* the largest of them and D_a = mu* - mu_a. The number of states and actions enters (4)
in proportion, because every pair needs its own samples. UCB1 tries an action ever more rarely, so
that its regret grows as ln T; a constant eps pays the same at every step for ever.

Azar, Munos and Kappen (2013), "Minimax PAC bounds on the sample complexity of reinforcement
learning with a generative model", doi:10.1007/s10994-013-5368-1; Auer, Cesa-Bianchi and Fischer
(2002), "Finite-time analysis of the multiarmed bandit problem", doi:10.1023/A:1013689704352.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot import Panel, panels
from everynet.recipes.recipe import Simulation


class Processes(NamedTuple):
    """Several Markov decision processes, each of whose actions leads to one of a few states."""

    following: Int[Tensor, "mdps states actions branches"]
    probability: Float[Tensor, "mdps states actions branches"]
    reward: Float[Tensor, "mdps states actions"]

    @staticmethod
    def at_random(mdps: int, states: int, actions: int, generator: torch.Generator) -> Processes:
        """Three next states, their probabilities and the rewards are drawn."""
        shape = (mdps, states, actions)
        following = torch.randint(states, (*shape, 3), generator=generator)
        cuts = torch.rand(*shape, 2, generator=generator, dtype=torch.float64).sort(-1).values
        edges = [cuts.new_zeros(*shape, 1), cuts, cuts.new_ones(*shape, 1)]
        reward = torch.rand(shape, generator=generator, dtype=torch.float64)
        return Processes(following, torch.cat(edges, -1).diff(dim=-1), reward)

    @staticmethod
    def equally_hard(mdps: int, states: int, actions: int, stay: float) -> Processes:
        """Each action gives 1 and repeats its state, or leads to a last one: all pairs are alike.

        So a process with more of them is not an easier one.
        """
        place = torch.arange(states + 1)
        both = torch.stack([place, torch.full_like(place, states)], 1)  # itself, or the last
        following = both[:, None].expand(mdps, -1, actions, -1)
        chance = torch.tensor([stay, 1 - stay], dtype=torch.float64)
        reward = torch.ones(mdps, states + 1, actions, dtype=torch.float64)
        reward[:, -1] = 0
        return Processes(following, chance.expand(following.shape), reward)

    def best_values(
        self, probability: Float[Tensor, "mdps states actions branches"], gamma: float
    ) -> Float[Tensor, "mdps states actions"]:
        """Q of the best play, if these were the probabilities, to one part in 10^8."""
        q, mdps = self.reward, len(self.reward)
        at = torch.arange(mdps)[:, None, None, None]
        for _ in range(math.ceil(-19 / math.log(gamma)) if gamma > 0 else 1):
            v = q.amax(2)
            q = self.reward + gamma * (probability * v[at, self.following]).sum(3)  # (2)
        return q


def estimate_probabilities(
    probability: Float[Tensor, "*pairs branches"], samples: int, generator: torch.Generator
) -> Float[Tensor, "*pairs branches"]:
    """The share of each branch among so many draws of every state and action."""
    left = torch.full_like(probability[..., 0], samples)
    rest = torch.ones_like(left)
    counts = []
    for branch in probability[..., :-1].unbind(-1):
        share = (branch / rest.clamp(min=1e-300)).clamp(max=1)
        counts.append(torch.binomial(left, share, generator=generator))
        left, rest = left - counts[-1], rest - branch
    return torch.stack([*counts, left], -1) / samples  # (1)


def fit_power(x: Float[Tensor, " points"], y: Float[Tensor, " points"]) -> tuple[float, float]:
    """The exponent p and the factor c of y = c x^p, by least squares of logarithms."""
    x, y = x.log(), y.log()
    p = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    return p.item(), (y.mean() - p * x.mean()).exp().item()  # (3)


def samples_needed(pairs: Tensor, eps: float, gamma: float, delta: float) -> Tensor:
    """How the number of all samples grows, but for a factor."""
    return pairs * (pairs / delta).log() / (eps**2 * (1 - gamma) ** 3)  # (4)


def choose_by_ucb(
    mean: Float[Tensor, "runs arms"], tries: Float[Tensor, "runs arms"], t: int
) -> Int[Tensor, " runs"]:
    """The arm that may be the best; one that was never tried comes first."""
    bound = mean + (2 * math.log(t) / tries).sqrt()  # (5)
    return torch.where(tries == 0, math.inf, bound).argmax(1)


def choose_by_epsilon(
    mean: Float[Tensor, "runs arms"], eps: float, chance: Float[Tensor, "runs 2"]
) -> Int[Tensor, " runs"]:
    """The arm that has been the best, or a random one."""
    random = (chance[:, 1] * mean.shape[1]).long()
    return torch.where(chance[:, 0] < eps, random, mean.argmax(1))  # (6)


def regret(mu: Float[Tensor, " arms"], arms: Int[Tensor, "steps runs"]) -> Tensor:
    """The regret after each step."""
    return (mu.max() - mu[arms]).cumsum(0)  # (7)


def ucb_bound(mu: Float[Tensor, " arms"], steps: Float[Tensor, " times"]) -> Tensor:
    """The most that the regret of UCB1 is expected to be."""
    gap = (mu.max() - mu)[mu < mu.max()]
    return 8 * steps.log() * (1 / gap).sum() + (1 + math.pi**2 / 3) * gap.sum()  # (8)


def epsilon_bound(mu: Float[Tensor, " arms"], eps: float, steps: Tensor) -> Tensor:
    """The least that the regret of epsilon-greedy is expected to be."""
    return eps * steps * (mu.max() - mu).mean()  # (9)


# -------- the network ends here; training and pictures follow --------

DELTA = 0.1  # of (4): one process in ten has a larger error


def quantile(errors: Float[Tensor, "*sizes repeats"]) -> Float[Tensor, "*sizes"]:
    """The error that is not exceeded with probability 1 - DELTA."""
    return errors.quantile(1 - DELTA, -1)


@dataclass(frozen=True, kw_only=True)
class SampleComplexity(Simulation):
    """Learn random decision processes from samples, and measure the error of the values."""

    meanings: ClassVar[Mapping[str, str]] = {
        "slope": "the exponent of the error in the samples of a pair; theory says -1/2",
        "slope_error": "how far that exponent is from -1/2",
        "size_slope": "the exponent of all samples needed in states x actions, logarithm apart",
        "size_slope_error": "how far that exponent is from 1",
    }

    samples: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    """Samples of each state and action."""
    states: tuple[int, ...] = (10, 20, 20, 40, 40, 80)
    """States of the processes, for each size."""
    actions: tuple[int, ...] = (2, 2, 4, 4, 8, 8)
    """Actions of them."""
    gamma: float = 0.9
    """Discount of a reward that is a step later."""
    eps: float = 0.25
    """The error for which the samples that are needed are counted."""
    repeats: int = 60
    """Processes of each size, a tenth of which may have a larger error."""
    stay: float = 0.9
    """Probability that an action repeats its state, in processes whose pairs are all alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.samples) >= 2, "samples", "two numbers or more")
        self.require(min(self.samples) >= 1, "samples", "positive")
        alike = len(self.states) == len(self.actions) >= 2
        self.require(alike, "states", "two numbers or more, as many as actions")
        self.require(min(*self.states, *self.actions) >= 1, "states", "positive, as actions must")
        self.require(0 <= self.gamma < 1, "gamma", "at least 0 and below 1")
        self.above(0, "eps")
        self.at_least(1, "repeats")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        random = Processes.at_random(8 * self.repeats, self.states[1], self.actions[1], generator)
        errors = [
            self.measure(Processes.equally_hard(self.repeats, *size, self.stay), generator)
            for size in zip(self.states, self.actions, strict=True)
        ]
        return {"random": self.measure(random, generator), "errors": torch.stack(errors)}

    def measure(
        self, mdps: Processes, generator: torch.Generator
    ) -> Float[Tensor, "samples repeats"]:
        """The largest error of a value in each process, for each number of samples."""
        best, errors = mdps.best_values(mdps.probability, self.gamma), []
        for n in self.samples:
            learned = estimate_probabilities(mdps.probability, n, generator)
            q = mdps.best_values(learned, self.gamma)
            errors.append((q - best).abs().flatten(1).amax(1))
        return torch.stack(errors)

    def needed(self, errors: Float[Tensor, "sizes samples repeats"]) -> Float[Tensor, " sizes"]:
        """All samples that bring the error down to eps, by the power law of each size."""
        n = torch.tensor(self.samples, dtype=torch.float64)
        laws = [fit_power(n, error) for error in quantile(errors)]
        each = torch.tensor([(self.eps / c) ** (1 / p) for p, c in laws], dtype=torch.float64)
        return each * self.pairs()

    def pairs(self) -> Float[Tensor, " sizes"]:
        states, actions = (torch.tensor(n).double() for n in (self.states, self.actions))
        return states * actions

    def slopes(self, result: Mapping[str, Tensor]) -> tuple[float, float]:
        """Of the error in the samples, and of all samples needed in the pairs, logarithm apart."""
        n = torch.tensor(self.samples, dtype=torch.float64)
        apart = self.needed(result["errors"]) / (self.pairs() / DELTA).log()
        return fit_power(n, result["random"].mean(1))[0], fit_power(self.pairs(), apart)[0]

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        slope, size_slope = self.slopes(result)
        return {
            "slope": slope,
            "slope_error": abs(slope + 0.5),
            "size_slope": size_slope,
            "size_slope_error": abs(size_slope - 1),
        }

    def picture_laws(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The error against the samples of each pair (left), and all samples needed (right).

        Four times as many samples halve the error: the slope is {slope:.3f}. The samples that are
        needed grow with the number of pairs, and a little more by the logarithm.
        """
        errors, pairs = result["errors"], self.pairs()
        n = torch.tensor(self.samples, dtype=torch.float64)
        shown = {"random processes": result["random"].mean(1)}
        shown |= {f"{int(pairs[i])} pairs alike": quantile(errors[i]) for i in (0, -1)}
        root = shown["random processes"][0] * (n[0] / n).sqrt()
        needed = self.needed(errors)
        theory = samples_needed(pairs, self.eps, self.gamma, DELTA)
        order = pairs.argsort(stable=True)
        level = (needed.log().mean() - theory.log().mean()).exp()
        drawn = panels(
            Panel(
                {name: (n, error) for name, error in shown.items()},
                "samples n of each state and action",
                "largest error of a value",
                guides={r"$n^{-1/2}$": (n, root)},
                log="xy",
                legend="below",
            ),
            Panel(
                {f"error {self.eps:g}": (pairs[order], needed[order])},
                "states x actions",
                "samples needed in all",
                guides={"formula, to scale": (pairs[order], (level * theory)[order])},
                log="xy",
                legend="upper left",
            ),
        )
        return drawn, {"slope": self.slopes(result)[0]}

    def tiny(self) -> Self:
        return replace(self, samples=(64, 256), states=(4, 8), actions=(2, 2), repeats=4)


@dataclass(frozen=True, kw_only=True)
class Bandits(Simulation):
    """Choose among arms with unknown chances to win, by UCB1 and by epsilon-greedy."""

    meanings: ClassVar[Mapping[str, str]] = {
        "ucb_growth": "the exponent of UCB1's regret in the steps over their last three quarters",
        "epsilon_growth": "that of epsilon-greedy, which tends to 1",
        "ucb_regret": "the regret of UCB1 in the end, mean over the runs",
        "epsilon_regret": "that of epsilon-greedy",
        "share_of_bound": "the largest regret of UCB1 as a share of its bound",
    }

    chances: tuple[float, ...] = (0.8, 0.6, 0.5, 0.4, 0.2)
    """The chance to win of each arm."""
    eps: float = 0.1
    """Share of random tries of epsilon-greedy."""
    pulls: int = 10_000
    """Tries of each run."""
    repeats: int = 100
    """Runs over which the regret is averaged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len({*self.chances}) >= 2, "chances", "two numbers or more that differ")
        self.require(all(0 <= p <= 1 for p in self.chances), "chances", "numbers from 0 to 1")
        self.within(0, 1, "eps")
        self.at_least(8, "pulls")
        self.at_least(1, "repeats")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        mu = self.mu()
        chosen = {name: self.play(name, mu, generator) for name in ("ucb", "epsilon")}
        return {name: regret(mu, arms).mean(1) for name, arms in chosen.items()}

    def mu(self) -> Float[Tensor, " arms"]:
        return torch.tensor(self.chances, dtype=torch.float64)

    def play(
        self, rule: str, mu: Float[Tensor, " arms"], generator: torch.Generator
    ) -> Int[Tensor, "steps runs"]:
        """The arms that a rule tries."""
        rows, arms = torch.arange(self.repeats), []
        wins, tries = torch.zeros(2, self.repeats, len(mu), dtype=torch.float64)
        for t in range(1, self.pulls + 1):
            chance = torch.rand(self.repeats, 3, generator=generator, dtype=torch.float64)
            mean = wins / tries.clamp(min=1)
            if rule == "ucb":
                arm = choose_by_ucb(mean, tries, t)
            else:
                arm = choose_by_epsilon(mean, self.eps, chance[:, :2])
            wins[rows, arm] += chance[:, 2] < mu[arm]
            tries[rows, arm] += 1
            arms.append(arm)
        return torch.stack(arms)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        t = torch.arange(1, self.pulls + 1, dtype=torch.float64)
        late = slice(self.pulls // 4, None)
        growth = {name: fit_power(t[late], curve[late])[0] for name, curve in result.items()}
        bound = ucb_bound(self.mu(), t)
        return {
            "ucb_growth": growth["ucb"],
            "epsilon_growth": growth["epsilon"],
            "ucb_regret": result["ucb"][-1].item(),
            "epsilon_regret": result["epsilon"][-1].item(),
            "share_of_bound": (result["ucb"] / bound).max().item(),
        }

    def picture_regret(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The regret of both rules by step, on a linear (left) and a logarithmic scale (right).

        That of UCB1 grows as the logarithm of the steps and is {ucb:.0f} in the end;
        epsilon-greedy pays for its random tries for ever and comes to {epsilon:.0f}.
        """
        some = torch.linspace(1, self.pulls, min(self.pulls, 400)).round().long()
        t = some.double()
        names = {"ucb": "UCB1", "epsilon": f"epsilon-greedy, {self.eps:g}"}
        curves = {name: (t, result[key][some - 1]) for key, name in names.items()}
        floor = (t, epsilon_bound(self.mu(), self.eps, t))
        bound = (t, ucb_bound(self.mu(), t))
        drawn = panels(
            Panel(curves, "step", "regret", legend="upper left"),
            Panel(
                curves,
                "step",
                "regret",
                guides={"bound of UCB1": bound, r"floor $\epsilon\, t\, \bar D$": floor},
                log="xy",
                legend="lower right",
            ),
        )
        return drawn, {name: float(curve[-1]) for name, curve in result.items()}

    def tiny(self) -> Self:
        return replace(self, pulls=40, repeats=4)


RECIPES = {
    "sample-complexity": SampleComplexity(
        goal="slope_error <= 0.05 and size_slope_error <= 0.1", covers=("Q8",)
    ),
    "bandits": Bandits(
        goal="ucb_growth <= 0.4 and epsilon_growth >= 0.85 and share_of_bound <= 1", covers=("Q8",)
    ),
}
