"""Ensembles in sequence: the weights between them factorise and need not be formed.

    W    = D E^T,  E_j = gain_j e_j / r      (1)  weights from N neurons to M others
    J    = a W + bias                        (2)  currents by weights
    J    = (a D) E^T + bias                  (3)  the same by way of the decoded value
    rank W <= d                              (4)  d numbers pass, whatever N and M are
    N M  against  d (N + M)                  (5)  multiplications of (2) and of (3)

Here a (N) are the rates and D (N x d) the decoders of the presynaptic ensemble, E (M x d) are the
encoders of the postsynaptic one, and products are those of matrices. Between ensembles that
represent d numbers W has rank d.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from everynet.plot.panels import Panel, panels
from everynet.recipes.recipe import Simulation
from everynet.zoo.population.ensemble import (
    Connection,
    Ensemble,
    Function,
    fit_exponent,
    product,
    quarter_turn,
    relative_error,
    sample_ball,
)


def currents_by_weights(
    link: Connection, rates: Float[Tensor, "points neurons"]
) -> Float[Tensor, "points others"]:
    """Currents through the full weight matrix, a synapse for each pair of neurons."""
    return rates @ link.weights() + link.bias  # (1) (2)


def currents_by_factors(
    link: Connection, rates: Float[Tensor, "points neurons"]
) -> Float[Tensor, "points others"]:
    """The same currents by way of the decoded value."""
    return link.currents(rates)  # (3)


def weight_rank(link: Connection) -> int:
    """The numerical rank of the weights."""
    return int(torch.linalg.matrix_rank(link.weights()))  # (4)


def count_multiplications(work: Callable[[], Tensor]) -> int:
    """Multiplications in all matrix products of some work, counted as it runs."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops()) // 2  # (5) a multiplication and an addition each


class EnsembleChain:
    """Ensembles in sequence, each of which represents a function of the value of the last."""

    def __init__(
        self,
        ensembles: Sequence[Ensemble],
        functions: Sequence[Function | None],
        *,
        noise: float = 0.1,
    ) -> None:
        if len(functions) != len(ensembles) - 1:
            raise ValueError(
                f"functions ({len(functions)}) must be {len(ensembles) - 1}, one between each "
                f"two of {len(ensembles)} ensembles"
            )
        self.ensembles, self.noise = ensembles, noise
        pairs = zip(pairwise(ensembles), functions, strict=True)
        self.connections = [
            pre.connect(post, function, noise=noise) for (pre, post), function in pairs
        ]

    def rates(
        self, x: Float[Tensor, "points dimensions"]
    ) -> list[Float[Tensor, "points _neurons"]]:
        """The rates (Hz) of each ensemble where the first one represents x."""
        rates = [self.ensembles[0].encode(x)]
        for connection, ensemble in zip(self.connections, self.ensembles[1:], strict=True):
            rates.append(ensemble.tuning.rate(currents_by_factors(connection, rates[-1])))
        return rates

    def values(
        self, x: Float[Tensor, "points dimensions"]
    ) -> list[Float[Tensor, "points _outputs"]]:
        """The decoded value of each ensemble where the first one represents x."""
        return [
            rates @ ensemble.decoders(noise=self.noise)
            for rates, ensemble in zip(self.rates(x), self.ensembles, strict=True)
        ]


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Transformation(Simulation):
    """Rotate a point between two ensembles and multiply its coordinates on the way to a third."""

    meanings: ClassVar[Mapping[str, str]] = {
        "turn_error": "relative rms error of a rotation by 90 degrees between two ensembles",
        "chain_error": "relative rms error of the product in the third ensemble",
        "difference": "relative difference of the currents by weights and by factors: rounding",
        "rank_excess": "largest difference of the rank of the weights from the dimensions",
        "count_slope_weights": "the power of N with which multiplications by weights grow: 2",
        "count_slope_factors": "the power of N with which multiplications by factors grow: 1",
        "time_slope_weights": "the power of N with which the time by weights grows",
        "time_slope_factors": "the power of N with which the time by factors grows",
    }

    neurons: int = 1000
    """Neurons of each of the three ensembles."""
    noise: float = 0.05
    """Noise that the decoders allow for, as a share of the highest rate."""
    dimensions: int = 6
    """Connections of 1, 2, ... dimensions whose rank is measured."""
    sizes: tuple[int, ...] = (100, 400, 1000, 4000)
    """Neurons of either ensemble for which multiplications are counted and timed."""
    stretch: int = 64
    """Factor on the neurons when factors are timed, whose time at few is mere overhead."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(10, "neurons")
        self.above(0, "noise")
        self.at_least(1, "dimensions", "stretch")
        fair = len(set(self.sizes)) >= 2 and min(self.sizes) >= 2
        self.require(fair, "sizes", "two different numbers at least, each from 2 up")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        chain = EnsembleChain(
            [
                Ensemble(self.neurons, 2, generator=generator),
                Ensemble(self.neurons, 2, generator=generator),
                Ensemble(self.neurons, 1, radius=0.5, generator=generator),
            ],
            [quarter_turn, product],
            noise=self.noise,
        )
        x = sample_ball(2000, 2, generator=generator)
        values = chain.values(x)
        differ = [
            relative_error(currents_by_factors(link, rates), currents_by_weights(link, rates))
            for link, rates in zip(chain.connections, chain.rates(x), strict=False)
        ]
        ranks = [weight_rank(self.connect(d, 60, generator)) for d in range(1, self.dimensions + 1)]
        counted = [self.count(size) for size in self.sizes]
        first = torch.linalg.svdvals(chain.connections[0].weights())[:12]
        return {
            "x": x,
            "first": values[0],
            "turned": values[1],
            "multiplied": values[2],
            "differ": torch.tensor(differ, dtype=torch.float64),
            "ranks": torch.tensor(ranks),
            "singular": first / first[0],
            "counts": torch.tensor(counted, dtype=torch.float64).T,
        }

    def connect(self, dimensions: int, neurons: int, generator: torch.Generator) -> Connection:
        """A connection that communicates a point of so many dimensions."""
        first, second = (
            Ensemble(neurons + 20 * k, dimensions, generator=generator) for k in range(2)
        )
        return first.connect(second, noise=self.noise)

    def count(self, size: int) -> tuple[int, int]:
        """Multiplications of one product by weights and by factors, two dimensions."""
        rates, link = _dummy_connection(size)
        weights = link.weights()
        return (
            count_multiplications(lambda: rates @ weights + link.bias),
            count_multiplications(lambda: currents_by_factors(link, rates)),
        )

    def seconds(self) -> Float[Tensor, "2 sizes"]:
        """Processor time of the same two products.

        It does not follow from the seed and is therefore no part of the result.
        """
        found = torch.zeros(2, len(self.sizes), dtype=torch.float64)
        for column, size in enumerate(self.sizes):
            rates, link = _dummy_connection(size)
            weights = link.weights()
            found[0, column] = _measure_seconds(partial(torch.addmm, link.bias, rates, weights))
            rates, link = _dummy_connection(size * self.stretch)
            found[1, column] = _measure_seconds(partial(currents_by_factors, link, rates))
        return found

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        turned = quarter_turn(result["x"])
        expected = torch.arange(1, self.dimensions + 1)
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        weights, factors = (fit_exponent(sizes, row).item() for row in result["counts"])
        slow, fast = (fit_exponent(sizes, row).item() for row in self.seconds())
        return {
            "turn_error": relative_error(result["turned"], turned),
            "chain_error": relative_error(result["multiplied"], product(turned)),
            "difference": result["differ"].max().item(),
            "rank_excess": (result["ranks"] - expected).abs().max().item(),
            "count_slope_weights": weights,
            "count_slope_factors": factors,
            "time_slope_weights": slow,
            "time_slope_factors": fast,
        }

    def picture_chain(self, result: Mapping[str, Tensor]) -> Figure:
        """A rotation, then a product, decoded from the third ensemble (left), one dot a point.

        Right, the singular values of the weights between planes: all but two are rounding.
        """
        true, number = product(quarter_turn(result["x"]))[:, 0], len(result["singular"])
        numbers = torch.arange(1, number + 1).double()
        return panels(
            Panel(
                {"a point each": (true[:400], result["multiplied"][:400, 0])}, "$-x_1 x_2$",
                "decoded from the third ensemble",
                f"rotation, then product; {self.neurons} neurons each",
                guides={"truth": (torch.stack([true.min(), true.max()]),) * 2}, scatter=True,
                legend="upper left",
            ),
            Panel(
                {"weights between planes": (numbers, result["singular"].clamp(min=1e-18))},
                "number of the singular value", "share of the largest",
                "two dimensions, rank 2", log="y",
            ),
        )  # fmt: skip

    def picture_cost(self, result: Mapping[str, Tensor]) -> Figure:
        """Multiplications (left) and processor time (right) against the number of neurons.

        Full weights cost its square and factors the number itself, which dashes show.
        """
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        many = sizes * self.stretch
        slow, fast = self.seconds() * 1e6
        weights, factors = result["counts"]
        return panels(
            Panel(
                {"by weights": (sizes, weights), "by factors": (sizes, factors)},
                "neurons N = M", "multiplications", "counted", dashes="$N^2$ and $4N$",
                guides={"by weights": (sizes, sizes**2), "by factors": (sizes, 4 * sizes)},
                log="xy",
            ),
            Panel(
                {"by weights": (sizes, slow), "by factors": (many, fast)}, "neurons N = M",
                "processor time (us)", f"measured, factors on {self.stretch} times the neurons",
                dashes="slopes 2 and 1",
                guides={
                    "by weights": (sizes, slow[-1] * (sizes / sizes[-1]) ** 2),
                    "by factors": (many, fast[-1] * many / many[-1]),
                },
                log="xy",
            ),
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(self, neurons=50, dimensions=2, sizes=(20, 40, 80), stretch=2)


def _dummy_connection(size: int) -> tuple[Float[Tensor, "1 neurons"], Connection]:
    """Rates and a connection of two dimensions with the right shapes, all that cost depends on."""
    plane = torch.ones(size, 2, dtype=torch.float64)
    return plane[:, :1].T.contiguous(), Connection(plane, plane, plane[:, 0].contiguous())


def _measure_seconds(work: Callable[[], Tensor], least: float = 0.005) -> float:
    """The smallest of three means of processor seconds, each over at least so many of them."""
    best, times = float("inf"), 1
    for _ in range(3):
        while True:
            start = time.process_time()
            for _ in range(times):
                work()
            spent = time.process_time() - start
            if spent >= least:
                break
            times *= 2
        best = min(best, spent / times)
    return best


RECIPES = {
    "transformation": Transformation(
        goal="chain_error <= 0.03 and difference <= 1e-10 and rank_excess == 0",
        covers=("P5",),
    ),
}
