"""A race of seven update rules: a valley, a bend, a saddle, a plateau, and a network.

    E = theta^T H theta / 2,  lambda(H) = 1/2, 50         (1)  valley: a quadratic of condition 100
    E = (1 - x)^2 + 100 (y - x^2)^2                       (2)  bend: Rosenbrock's
    E = x^2 - y^2 + y^4 / 4 + 1                           (3)  saddle at 0; least at y = +-sqrt(2)
    E = 1 - exp(-(x^2 / 4 + y^2) / 2)                     (4)  plateau around a hole
    n = min {n : E(theta_t) <= tol E(theta_0), t >= n}    (5)  steps until it is there and stays
    Var[(1/B) sum_{i in batch} J_i] = Var[J_i] / B        (6)  loss of a batch of B

theta = (x, y) is the point, theta_t that after t steps, H a Hessian with eigenvalues lambda, tol
the tolerance; J_i is the loss of sample i. All E are 0 where they are least. Each rule runs each
course with each learning rate of one grid; the rate with the smallest n counts, or with the lowest
end where none arrives. The network, a perceptron with one hidden layer, learns from mini-batches;
there the rate with the lowest training loss counts, and with it the accuracy on test images. The
valley is turned, so that rules with a rate for each coordinate find no axis to their liking.

Momentum is for the valley and the bend, where SGD zigzags or creeps. AdaGrad and Adam, which divide
by the size of the gradient, walk off the plateau at once, where SGD waits. Rules whose steps do not
shrink with the gradient (RMSProp, Lion) circle the minimum at a distance set by the rate, so that a
constant rate is a bargain between speed and rest. On the network all end within three points of
test accuracy once each has its own rate.

Rosenbrock (1960), "An Automatic Method for Finding the Greatest or Least Value of a Function", The
Computer Journal 3, doi:10.1093/comjnl/3.3.175; Schmidt et al. (2021), "Descending through a Crowded
Valley: Benchmarking Deep Learning Optimizers", arXiv:2007.01547. The rules: `update_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Spec
from everynet.plot.film import Film
from everynet.plot.panels import Panel, panels
from everynet.recipes.experiment import Cell, Experiment, Table
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.wording import unknown
from everynet.training.loop import begin
from everynet.zoo.optimisation.few_images import OneHiddenLayer
from everynet.zoo.optimisation.pictures.race import Course, courses, race_frames, standings
from everynet.zoo.optimisation.update_rules import RULES, descend

NAMES = {
    "sgd": "SGD",
    "momentum": "momentum",
    "nesterov": "Nesterov",
    "adagrad": "AdaGrad",
    "rmsprop": "RMSProp",
    "adam": "Adam",
    "lion": "Lion",
}
TEAMS = {
    "steps in proportion to the gradient": ("SGD", "momentum", "Nesterov"),
    "steps scaled weight by weight": ("AdaGrad", "RMSProp", "Adam", "Lion"),
}
LOWEST = 1e-7  # E that is shown
WINDOWS = 15  # means of the training loss along a run of the network
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)  # sizes whose losses are measured
DRAWS = 20_000  # batches of each
MOST_FRAMES, RATE, HOLD = 80, 10.0, 10  # of a film: frames, frames a second, frames of its end


def valley(p: Float[Tensor, "*points 2"]) -> Float[Tensor, "*points"]:
    """Flat along one direction, a hundred times steeper across; turned by 30 degrees."""
    cos, sin = math.cos(math.pi / 6), math.sin(math.pi / 6)
    along, across = cos * p[..., 0] + sin * p[..., 1], cos * p[..., 1] - sin * p[..., 0]
    return (0.5 * along**2 + 50 * across**2) / 2  # (1)


def bend(p: Float[Tensor, "*points 2"]) -> Float[Tensor, "*points"]:
    """A curved valley, steep on both sides and almost flat along its floor."""
    return (1 - p[..., 0]) ** 2 + 100 * (p[..., 1] - p[..., 0] ** 2) ** 2  # (2)


def saddle(p: Float[Tensor, "*points 2"]) -> Float[Tensor, "*points"]:
    """Down in x, then away from the saddle in y to one of two minima."""
    return p[..., 0] ** 2 - p[..., 1] ** 2 + p[..., 1] ** 4 / 4 + 1  # (3)


def plateau(p: Float[Tensor, "*points 2"]) -> Float[Tensor, "*points"]:
    """A hole in a plain: almost no gradient at the start."""
    return 1 - torch.exp(-(p[..., 0] ** 2 / 4 + p[..., 1] ** 2) / 2)  # (4)


COURSES: dict[str, Course] = {
    "valley": Course(
        *("Valley, condition 100", valley, (-1.7, -0.6), ((0.0, 0.0),)),
        window=(-2.1, 0.9, -1.4, 0.9),
    ),
    "bend": Course(
        *("Rosenbrock's bend", bend, (-1.2, 1.0), ((1.0, 1.0),)), window=(-1.7, 1.6, -0.6, 2.2)
    ),
    "saddle": Course(
        *("Saddle", saddle, (1.5, 1e-3), ((0.0, math.sqrt(2)), (0.0, -math.sqrt(2)))),
        window=(-1.2, 2.0, -1.0, 2.2),
    ),
    "plateau": Course(
        *("Plateau", plateau, (-5.5, 2.6), ((0.0, 0.0),)), window=(-7.0, 3.2, -2.2, 3.4)
    ),
}


def heights(theta: Float[Tensor, "*times courses runs 2"]) -> Float[Tensor, "*times courses runs"]:
    """E of each course at its points."""
    each = zip(COURSES.values(), theta.unbind(-3), strict=True)
    return torch.stack([course.height(points) for course, points in each], dim=-2)


def gradients(theta: Float[Tensor, "courses runs 2"]) -> Float[Tensor, "courses runs 2"]:
    """The gradient of each course at its points."""
    with torch.enable_grad():
        point = theta.detach().requires_grad_()
        return torch.autograd.grad(heights(point).sum(), point)[0]


def arrival(values: Float[Tensor, " times *runs"], tolerance: float) -> Float[Tensor, "*runs"]:
    """Steps until E stays within a share of what it was at the start; inf if it never does."""
    above = ~(values <= tolerance * values[0])  # NaN is above
    steps = (torch.arange(len(values)) + 1).reshape(-1, *[1] * (values.dim() - 1))
    n = (above * steps).amax(dim=0)  # (5)
    return torch.where(n == len(values), math.inf, n.double())


def batch_variance(
    losses: Float[Tensor, " rows"], generator: torch.Generator
) -> Float[Tensor, " sizes"]:
    """The variance of the mean loss of a batch, for each of BATCHES, drawn with replacement."""
    rows = (torch.randint(len(losses), (DRAWS, size), generator=generator) for size in BATCHES)
    return torch.stack([losses[drawn].mean(1).var() for drawn in rows])


class RacedNetwork(NamedTuple):
    """The network of a rule at its best rate."""

    rate: float
    losses: Float[Tensor, " windows"]  # means over parts of the training
    accuracy: float  # at the end, on test images


@dataclass(frozen=True, kw_only=True)
class OptimiserRace(Experiment):
    """Every rule on every course at its best rate of a grid."""

    tests: ClassVar[bool] = True
    writes: ClassVar[str] = "film"
    meanings: ClassVar[Mapping[str, str]] = {
        "arrived": "pairs of a rule and a course in which the rule arrived",
        "momentum_gain": (
            "how many times fewer steps momentum needs in the valley than plain descent"
        ),
        "nesterov_gain": "the same of Nesterov's momentum",
        "lowest_accuracy": "test accuracy of the worst rule on the network",
        "best_accuracy": "test accuracy of the rule with the lowest training loss",
        "lion_accuracy": "test accuracy of Lion",
        "variance_error": "how far the variance of a batch's loss is from its law (6)",
    }

    data: str = "digits"
    """What the network learns: digits, mnist, or another known set or path with classes."""
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    """Learning rates each rule is tried with on each course, and on the network."""
    steps: int = 2000
    """Steps on each course."""
    tolerance: float = 1e-3
    """Share of the first E at which a run has arrived."""
    hidden_size: int = 32
    """Hidden units of the network."""
    updates: int = 500
    """Steps of the network."""
    batch_size: int = 64
    """Samples of a step of the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(len(self.rates) >= 1, "rates", "at least one number")
        self.require(all(0 < r < math.inf for r in self.rates), "rates", "positive numbers")
        self.require(0 < self.tolerance < 1, "tolerance", "a number between 0 and 1")
        self.at_least(1, "steps", "hidden_size", "updates", "batch_size")

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            f"{rule}-{lr:g}": replace(self.first(), optimizer=rule, lr=lr)
            for rule, lr in product(RULES, self.rates)
        }

    def first(self) -> OneHiddenLayer:
        """The network, whose rule and rate are replaced in each cell."""
        return OneHiddenLayer(
            data=self.data, hidden_size=self.hidden_size, steps=self.updates,
            batch_size=self.batch_size, eval_every=self.updates, seed=self.seed,
        )  # fmt: skip

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {**self.race(), **self.batches(generator)}

    def race(self) -> dict[str, Tensor]:
        """The four courses, all rates at once: the run of each rule at its best rate."""
        rates = torch.tensor(self.rates, dtype=torch.float64)
        starts = torch.tensor([course.start for course in COURSES.values()], dtype=torch.float64)
        first = starts[:, None].expand(-1, len(rates), -1)
        kept: list[tuple[Tensor, ...]] = []
        for rule in RULES.values():
            path = descend(rule(rates[:, None]), gradients, first, self.steps)
            values = heights(path)
            n = arrival(values, self.tolerance)
            best = choose(n, values[-1])
            pick = best[None, :, None]
            kept.append(
                (
                    path.gather(2, pick[..., None].expand(len(path), -1, -1, 2))[:, :, 0],
                    values.gather(2, pick.expand(len(path), -1, -1))[:, :, 0],
                    n.gather(1, best[:, None])[:, 0],
                    rates[best],
                )
            )
        paths, values, arrivals, used = (torch.stack(parts) for parts in zip(*kept, strict=True))
        return {"paths": paths, "values": values, "arrivals": arrivals, "rates": used}

    def batches(self, generator: torch.Generator) -> dict[str, Tensor]:
        """The losses of batches of the network before it is trained."""
        data = self.first().dataset()
        x, y = data.whole
        with torch.no_grad():
            each = cross_entropy(begin(self.first(), data).model(x), y, reduction="none").double()
        return {
            "batch_variance": batch_variance(each, generator),
            "loss_variance": each.var(correction=0),
        }

    def networks(self, table: Table) -> dict[str, RacedNetwork]:
        """The network of each rule at its best rate."""
        found = {}
        for rule in RULES:
            tried = {lr: table.cells[f"{rule}-{lr:g}"] for lr in self.rates}
            ends = {lr: self.losses(cell)[-1].item() for lr, cell in tried.items()}
            best = min(ends, key=ends.__getitem__)
            right = tried[best].test.get("accuracy", 0.0)  # only where every rate has diverged
            found[rule] = RacedNetwork(best, self.losses(tried[best]), right)
        return found

    def losses(self, cell: Cell) -> Float[Tensor, " windows"]:
        """The training loss, in means over a part of the run each; infinite if it diverged."""
        width = max(1, self.updates // WINDOWS)
        count = self.updates // width
        if cell.diverged is not None:
            return torch.full((count,), math.inf, dtype=torch.float64)
        steps, values = cell.terms["cross_entropy"]
        parts = (values[(steps - 1) // width == part] for part in range(count))
        return torch.stack([part.mean() for part in parts])

    def metrics(self, table: Table) -> dict[str, float]:
        result, nets = table.result, self.networks(table)
        n = result["arrivals"]
        some = n[:, list(COURSES).index("valley")].clamp(max=self.steps + 1).tolist()
        in_valley = dict(zip(RULES, some, strict=True))
        predicted = result["loss_variance"] / torch.tensor(BATCHES)  # (6)
        return {
            "arrived": n.isfinite().sum().item(),
            "momentum_gain": in_valley["sgd"] / in_valley["momentum"],
            "nesterov_gain": in_valley["sgd"] / in_valley["nesterov"],
            "lowest_accuracy": min(net.accuracy for net in nets.values()),
            "best_accuracy": min(nets.values(), key=lambda net: float(net.losses[-1])).accuracy,
            "lion_accuracy": nets["lion"].accuracy,
            "variance_error": (result["batch_variance"] / predicted - 1).abs().max().item(),
        }

    def picture_table(self, table: Table) -> Figure:
        """Steps of each rule (row) on each course (column), with the rate that was best for it.

        The winner is bold; the last column is the training loss and test accuracy of a network.
        """
        result, nets = table.result, self.networks(table)
        n, ends = result["arrivals"], result["values"][:, -1]
        rows = {}
        for i, (name, net) in enumerate(zip(NAMES.values(), nets.values(), strict=True)):
            cells = [
                f"{steps:.0f}" if math.isfinite(steps) else f"E = {end:.1g}"
                for steps, end in zip(n[i].tolist(), ends[i].tolist(), strict=True)
            ]
            share = f"{net.losses[-1]:.2g}, {100 * net.accuracy:.1f} %"
            used = [*result["rates"][i].tolist(), net.rate]
            rows[name] = [f"{c}\nrate {lr:g}" for c, lr in zip([*cells, share], used, strict=True)]
        reached = [float(net.losses[-1]) for net in nets.values()]
        return standings(
            [*(course.title for course in COURSES.values()), f"Network: {self.data}"],
            rows,
            best=[*n.argmin(dim=0).tolist(), int(torch.tensor(reached).argmin())],
            note=f"Steps until E stays below {self.tolerance:g} of its first value, or E after "
            f"{self.steps} steps; for the network training loss and test accuracy after "
            f"{self.updates}. Each at its best rate of {len(self.rates)} from {self.rates[0]:g} to "
            f"{self.rates[-1]:g}.",
        )

    def picture_paths(self, table: Table) -> Figure:
        """The path of each rule over four landscapes, from the ring to the star.

        Left are rules that step in proportion to the gradient, right those that scale each weight.
        """
        paths = table.result["paths"].unbind(2)
        by_rule = [dict(zip(NAMES.values(), path, strict=True)) for path in paths]
        return courses(list(zip(COURSES.values(), by_rule, strict=True)), TEAMS)

    def picture_curves(self, table: Table) -> Figure:
        """The loss by step of each rule on every course and on the network, each at its best rate.

        Below the dotted line a rule has arrived; lines that end in a band never settle.
        """
        result = table.result
        steps = torch.arange(1.0, self.steps + 1)
        drawn = []
        for k, course in enumerate(COURSES.values()):
            by_rule = dict(zip(NAMES.values(), result["values"][:, :, k], strict=True))
            first = float(result["values"][0, 0, k])
            drawn.append(
                Panel(
                    {name: (steps, v[1:].clamp(LOWEST / 10)) for name, v in by_rule.items()},
                    xlabel="step",
                    ylabel="E",
                    title=course.title,
                    levels={"arrived": self.tolerance * first},
                    log="xy",
                    ylim=(LOWEST, 10 * first),
                )
            )
        losses = [net.losses for net in self.networks(table).values()]
        updates = (torch.arange(len(losses[0])) + 0.5) * max(1, self.updates // WINDOWS)
        network = Panel(
            {name: (updates, loss) for name, loss in zip(NAMES.values(), losses, strict=True)},
            xlabel="step",
            ylabel="training loss",
            title=f"Network on {self.data}, batches of {self.batch_size}",
            log="y",
            legend="none",
        )
        sizes = torch.tensor(BATCHES, dtype=torch.float64)
        variance = Panel(
            {"measured": (sizes, result["batch_variance"])},
            guides={"variance of one loss / B": (sizes, result["loss_variance"] / sizes)},
            xlabel="samples in a batch, B",
            ylabel="variance of the batch's loss",
            title="Why larger batches are quieter",
            log="xy",
            scatter=True,
        )
        return panels(*drawn, network, variance, columns=3)

    def sample(
        self,
        table: Table,
        spec: Spec,
        generator: torch.Generator,
        *,
        course: str = "bend",
        frames: int = 48,
    ) -> Film:
        """The rules racing down one course, each at its best rate, at equal steps of sqrt(step)."""
        if course not in COURSES:
            raise UserError(unknown("course", course, COURSES))
        if not 2 <= frames <= MOST_FRAMES:
            raise UserError(f"frames ({frames}) must be from 2 to {MOST_FRAMES}")
        ways = table.result["paths"][:, :, list(COURSES).index(course)]
        paths = dict(zip(NAMES.values(), ways, strict=True))
        last = ways.shape[1] - 1
        steps = sorted({round(last * (k / (frames - 1)) ** 2) for k in range(frames)})
        return Film(race_frames(COURSES[course], paths, steps), RATE, hold=HOLD)

    def tiny(self) -> Self:
        return replace(super().tiny(), rates=(0.01,), steps=20, updates=10)


def choose(
    arrivals: Float[Tensor, "courses rates"], ends: Float[Tensor, "courses rates"]
) -> Tensor:
    """The rate that arrives first on each course, or that ends lowest where none arrives."""
    anyone = arrivals.isfinite().any(dim=1)
    lowest = ends.nan_to_num(nan=math.inf).argmin(dim=1)
    return torch.where(anyone, arrivals.argmin(dim=1), lowest)


RECIPES = {
    "optimiser-race": OptimiserRace(
        goal="arrived >= 27 and momentum_gain >= 2.5 and lowest_accuracy >= 0.93 "
        "and variance_error <= 0.05",
        covers=("O22", "O25", "O26", "O27", "O28", "O29", "O30"),
    ),
    "optimiser-race-mnist": OptimiserRace(
        data="mnist",
        hidden_size=64,
        updates=1000,
        batch_size=256,
        goal="arrived >= 27 and momentum_gain >= 2.5 and lowest_accuracy >= 0.94 "
        "and variance_error <= 0.05",
        covers=("O22", "O25", "O26", "O27", "O28", "O29", "O30"),
    ),
}
