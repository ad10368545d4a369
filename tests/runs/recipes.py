"""Small recipes that each carry a different kind of state, to hold the protocol to its word."""

from __future__ import annotations

import copy
import os
import random
from dataclasses import dataclass, replace

import numpy
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from everynet.data.dataset import Batch, Data, History, Terms
from everynet.data.draws import Draw
from everynet.data.samplers import Made
from everynet.recipes.state import State
from everynet.recipes.training import Training, make_optimizer, minimised
from everynet.system.errors import UserError
from everynet.system.seeds import generator


def _two_classes(rows: int, seed: int, shape: tuple[int, ...] = (4,)) -> Batch:
    draw = generator(seed, rows)
    y = torch.arange(rows) % 2
    x = torch.randn(rows, *shape, generator=draw) + y.view(-1, *[1] * len(shape))
    return x, y


@dataclass(frozen=True, kw_only=True)
class Small(Training):
    """A classifier of noise, the base of the others."""

    steps: int = 12
    batch_size: int = 8
    lr: float = 0.05
    eval_every: int = 4
    save_every: int = 2
    goal: str = "cross_entropy <= 0.5"

    def dataset(self) -> Data:
        splits = {s: _two_classes(64, i) for i, s in enumerate(("train", "valid", "test"))}
        return Data(splits=splits, spec={"name": "noise", "shape": [4]}, seed=self.seed,
                    batch_size=self.batch_size, digest="noise")  # fmt: skip

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, y = batch
        return {"cross_entropy": cross_entropy(model(x), y)}

    def pictures(self, model: nn.Module, data: Data, history: History) -> dict[str, Figure]:
        return {"empty": Figure(figsize=(1, 1))}


@dataclass(frozen=True, kw_only=True)
class Dropout(Small):
    """Noise in every update."""

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 2))


@dataclass(frozen=True, kw_only=True)
class BatchNorm(Small):
    """Running statistics and channels-last filters."""

    def dataset(self) -> Data:
        splits = {
            s: _two_classes(32, i, (3, 6, 6)) for i, s in enumerate(("train", "valid", "test"))
        }
        return Data(splits=splits, spec={"name": "noise"}, seed=self.seed,
                    batch_size=self.batch_size, digest="noise-images")  # fmt: skip

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2)
        )


@dataclass(frozen=True, kw_only=True)
class Augmented(BatchNorm):
    """Random changes of each batch."""

    def dataset(self) -> Data:
        data = super().dataset()

        def noise(batch: Batch, draw: Draw) -> Batch:
            return batch[0] + draw.normal(*batch[0].shape[1:]), batch[1]

        return Data(splits=data.splits, spec=data.spec, seed=self.seed, digest=data.digest,
                    batch_size=self.batch_size, augment=noise)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plateau(Small):
    """A rate that follows the evaluations: ten times smaller after each without progress."""

    schedule: str = "plateau"
    eval_every: int = 1
    steps: int = 24
    waits = 1


@dataclass(frozen=True, kw_only=True)
class Momentum(Small):
    """SGD with momentum, a schedule and decay."""

    optimizer: str = "nesterov"
    schedule: str = "cosine"
    weight_decay: float = 0.01
    clip: float = 0.5


class Average(nn.Module):
    """An exponential average of another network's weights."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.copy = copy.deepcopy(model).requires_grad_(False).eval()

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.copy.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)


@dataclass(frozen=True, kw_only=True)
class Ema(Small):
    """The average is what is evaluated, drawn and kept."""

    def extra(self, model: nn.Module) -> Average:
        return Average(model)

    def step(self, state: State, batch: Batch) -> Terms:
        terms = super().step(state, batch)
        state.extra.follow(state.model)
        return terms

    def deployed(self, state: State) -> nn.Module:
        return state.extra.copy


@dataclass(frozen=True, kw_only=True)
class Gan(Small):
    """Two players with an optimiser each, on points of a ring."""

    goal: str = "distance <= 10"
    overfits = False  # two players circle each other

    def dataset(self) -> Data:
        angle = torch.rand(256, generator=generator(5)) * 6.283
        points = torch.stack([angle.cos(), angle.sin()], 1)
        return Data(splits={"train": (points,), "valid": (points,), "test": (points,)},
                    spec={"name": "ring"}, batch_size=self.batch_size, seed=self.seed,
                    digest="ring")  # fmt: skip

    def model(self, data: Data) -> nn.ModuleDict:
        def net(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))

        return nn.ModuleDict({"generator": net(3, 2), "critic": net(2, 1)})

    def optimizers(self, model: nn.ModuleDict) -> dict[str, torch.optim.Optimizer]:
        return {
            name: make_optimizer(part.parameters(), "adam", self.lr) for name, part in model.items()
        }

    def step(self, state: State, batch: Batch) -> Terms:
        (real,) = batch
        critic, maker = state.model["critic"], state.model["generator"]
        fake = maker(torch.randn(len(real), 3, dtype=real.dtype))
        one, zero = torch.ones(len(real), 1).to(real), torch.zeros(len(real), 1).to(real)
        lost = binary_cross_entropy_with_logits(critic(real), one)
        lost = lost + binary_cross_entropy_with_logits(critic(fake.detach()), zero)
        state.descend(lost, "critic")
        fooled = binary_cross_entropy_with_logits(critic(fake), one)
        state.descend(fooled, "generator")
        return {"critic": lost, "generator": fooled}

    def metrics(self, model: nn.ModuleDict, batch: Batch) -> dict[str, Tensor]:
        (real,) = batch
        fake = model["generator"](torch.randn(len(real), 3, dtype=real.dtype))
        return {"distance": (fake.norm(dim=1) - 1).abs()}


class Memory(nn.Module):
    """What an agent has seen, and the state of its small world: a walk on a line."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("position", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(32, 2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


@dataclass(frozen=True, kw_only=True)
class Replay(Small):
    """An agent that learns from a replay memory of a world it walks in."""

    goal: str = "error <= 100"
    overfits = False  # it gathers its own data
    per_rank = True

    def dataset(self) -> Data:
        return Data.none()

    def model(self, data: Data) -> nn.Module:
        return nn.Linear(1, 1)

    def extra(self, model: nn.Module) -> Memory:
        return Memory()

    def step(self, state: State, batch: Batch) -> Terms:
        memory = state.extra
        with torch.no_grad():
            before = memory.position.clone()
            memory.position += torch.randn(()).to(before) - 0.1 * before
            memory.seen[memory.count % 32] = torch.stack([before, memory.position])
            memory.count += 1
        rows = memory.seen[torch.randint(int(memory.count.clamp(max=32)), (4,))]
        terms = {"error": mse_loss(state.model(rows[:, :1]), rows[:, 1:])}
        state.descend(minimised(terms))
        return terms

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"error": model.weight.square().sum()}


class Chains(nn.Module):
    """Gibbs chains that go on from one update to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("units", torch.randint(0, 2, (8, 4)).float())


@dataclass(frozen=True, kw_only=True)
class PersistentChains(Small):
    """A Boltzmann machine without hidden units: data against persistent chains."""

    goal: str = "energy <= 100"
    overfits = False  # the two phases balance

    def model(self, data: Data) -> nn.Module:
        return nn.Linear(4, 4)

    def extra(self, model: nn.Module) -> Chains:
        return Chains()

    @staticmethod
    def energy(model: nn.Module, v: Tensor) -> Tensor:
        return -(v * model(v)).sum(1)

    def step(self, state: State, batch: Batch) -> Terms:
        v, chains = (batch[0] > 0).to(batch[0]), state.extra
        with torch.no_grad():
            on = (state.model(chains.units) * 2).sigmoid()
            chains.units.copy_(torch.bernoulli(on))
        terms = {
            "data": self.energy(state.model, v).mean(),
            "model": -self.energy(state.model, chains.units).mean(),
        }
        state.descend(minimised(terms), clip=1.0)
        return terms

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"energy": self.energy(model, (batch[0] > 0).to(batch[0]))}


class Picture(nn.Module):
    """An image that is itself what is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Parameter(torch.rand(1, 3, 5, 5))

    def forward(self) -> Tensor:
        return self.pixels


@dataclass(frozen=True, kw_only=True)
class Painting(Small):
    """An image as the parameter, no data, L-BFGS: its memory holds lists."""

    goal: str = "roughness <= 1"
    steps: int = 6
    eval_every: int = 3

    def dataset(self) -> Data:
        return Data.none()

    def model(self, data: Data) -> Picture:
        return Picture()

    def optimizers(self, model: nn.Module) -> dict[str, torch.optim.Optimizer]:
        return {"main": torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)}

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x = model()
        rough = x.diff(dim=-1).square().mean() + x.diff(dim=-2).square().mean()
        return {"roughness": rough + (x.mean() - 0.3).square()}

    def step(self, state: State, batch: Batch) -> Terms:
        before = self.objective(state.model, batch)
        state.descend(lambda: minimised(self.objective(state.model, batch)))
        return before


class Tied(nn.Module):
    """Encoder and decoder share one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(4, 4, bias=False)
        self.up = nn.Linear(4, 4, bias=False)
        self.up.weight = self.down.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.up(torch.tanh(self.down(x)))


@dataclass(frozen=True, kw_only=True)
class TiedWeights(Small):
    """One parameter under two names."""

    goal: str = "error <= 2"

    def model(self, data: Data) -> nn.Module:
        return Tied()

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        return {"error": mse_loss(model(batch[0]), batch[0])}


@dataclass(frozen=True, kw_only=True)
class Killed(Ema):
    """Long enough to be killed in the middle: dropout, moments, an average, a cosine."""

    steps: int = 200
    save_every: int = 7
    eval_every: int = 20
    schedule: str = "cosine"

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 2))


@dataclass(frozen=True, kw_only=True)
class Drawing(Small):
    """Noise from Python's and numpy's generators, in batches, updates and evaluations."""

    def dataset(self) -> Data:
        def made(step: int) -> Batch:
            x, y = _two_classes(self.batch_size, step)
            return x + random.gauss(0, 0.1) + torch.randn(()), y  # torch's are seeded by then, too

        return replace(super().dataset(), sampler=Made(make=made))

    def step(self, state: State, batch: Batch) -> Terms:
        noise = random.random() + numpy.random.normal()  # noqa: NPY002 -- the one meant
        return super().step(state, (batch[0] + noise, batch[1]))

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        noise = random.random() + numpy.random.normal()  # noqa: NPY002 -- the one meant
        return super().metrics(model, (batch[0] + noise, batch[1]))


@dataclass(frozen=True, kw_only=True)
class Coming(Small):
    """Terms that come and go: a warm-up term for five updates, another at every third."""

    def step(self, state: State, batch: Batch) -> Terms:
        terms = super().step(state, batch)
        if state.step < 5:
            terms["_warm"] = torch.tensor(float(state.step))
        if state.step % 3 == 0:
            terms = {"_third": torch.tensor(2.0), **terms}
        return terms


@dataclass(frozen=True, kw_only=True)
class Rare(Small):
    """Evaluated at every second update, saved at every tenth."""

    steps: int = 24
    eval_every: int = 2
    save_every: int = 10


@dataclass(frozen=True, kw_only=True)
class Patient(Dropout):
    """Ends early: its rate is so high that it soon learns nothing better."""

    steps: int = 100
    lr: float = 0.3
    eval_every: int = 2
    save_every: int = 3
    patience: int = 3


@dataclass(frozen=True, kw_only=True)
class Raises(Small):
    """Fails in one of several processes."""

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        if os.environ.get("RANK") == "1":
            raise UserError("the data of rank 1 is bad")
        return super().objective(model, batch)


RECIPES = {
    "small": Small(),
    "dropout": Dropout(),
    "batch-norm": BatchNorm(),
    "augmented": Augmented(),
    "plateau": Plateau(),
    "momentum": Momentum(),
    "ema": Ema(),
    "gan": Gan(),
    "replay": Replay(),
    "persistent-chains": PersistentChains(),
    "painting": Painting(),
    "tied-weights": TiedWeights(),
    "drawing": Drawing(),
    "coming": Coming(),
    "rare": Rare(),
    "patient": Patient(),
    "killed": Killed(),
    "endless": Small(steps=10_000_000, save_every=100),
    "raises": Raises(),
}
