"""A matrix as a rotation, a stretch and a rotation, and which equations A x = b can be solved.

    A x     = sum_j x_j A[:, j],  j = 1..n                     (1)  a combination of n columns
    A       = U D V^T,  U^T U = V^T V = I                      (2)  singular value decomposition
    sigma_i = sqrt(lambda_i(A^T A)) = sqrt(lambda_i(A A^T))    (3)  stretches, the diagonal of D
    rank    = number of sigma_i > eps max(m, n) sigma_1        (4)  dimensions of the column space
    A^+     = V D^+ U^T                                        (5)  Moore-Penrose pseudoinverse
    x       = A^+ b                                            (6)  shortest of the nearest answers
    |b - A x| <= tol (sigma_1 |x| + |b|)                       (7)  then b is in the column space

A is a map from R^n to R^m: m rows, n columns, on column vectors x. D^+ is D transposed with 1 /
sigma_i in the place of each sigma_i that is not zero; eps is the spacing of the numbers at 1, and
tol leaves room for the rounding in b. Nearest are the x of the least |b - A x|. A x = b has no
answer where (7) does not hold; else exactly one if the rank is n, and infinitely many if it is
less. So it can be solved for every b iff the rank is m, and A has an inverse iff it is square with
rank n, when no eigenvalue is 0.

Beltrami (1873), "Sulle funzioni bilineari", Giornale di Matematiche 11; Penrose (1955), "A
generalized inverse for matrices", doi:10.1017/S0305004100030401.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.recipe import Simulation

KINDS = ("none", "unique", "infinite")
"""How many x solve A x = b."""


class SVD(NamedTuple):
    """A = U diag(sigma) V^T with as many columns in U and V as the smaller side of A has."""

    u: Float64[Tensor, "rows both"]
    sigma: Float64[Tensor, " both"]
    v: Float64[Tensor, "columns both"]

    def matrix(self) -> Float64[Tensor, "rows columns"]:
        return self.u @ self.sigma.diag() @ self.v.T  # (2)

    def rank(self) -> int:
        return int((self.sigma > self.rounding() * self.sigma.max()).sum())  # (4)

    def kept(self) -> SVD:
        """Without the axes whose stretch is zero: U then spans the column space of A."""
        rank = self.rank()
        return SVD(self.u[:, :rank], self.sigma[:rank], self.v[:, :rank])

    def rounding(self) -> float:
        """The part of sigma_1 that may be rounding."""
        return torch.finfo(self.sigma.dtype).eps * max(len(self.u), len(self.v))


class Solution(NamedTuple):
    """What A x = b comes to: one of KINDS, and the shortest of the nearest answers."""

    kind: str
    x: Float64[Tensor, " columns"]


def combine_columns(
    a: Float[Tensor, "rows columns"], x: Float[Tensor, " columns"]
) -> Float[Tensor, " rows"]:
    """A x as it is written, column by column."""
    total = torch.zeros_like(a[:, 0])
    for j in range(a.shape[1]):
        total = total + x[j] * a[:, j]  # (1)
    return total


def decompose(a: Float64[Tensor, "rows columns"]) -> SVD:
    """The singular values from the largest to the smallest, and the axes that they stretch."""
    u, sigma, v_transposed = torch.linalg.svd(a, full_matrices=False)
    return SVD(u, sigma, v_transposed.T)


def singular_values(a: Float64[Tensor, "rows columns"]) -> Float64[Tensor, " both"]:
    """The same stretches from eigenvalues, which squares the condition: for reading and tests."""
    gram = a.T @ a if a.shape[0] >= a.shape[1] else a @ a.T
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram).flip(0)
    return eigenvalues.clamp(min=0).sqrt()  # (3)


def pseudoinverse(a: Float64[Tensor, "rows columns"]) -> Float64[Tensor, "columns rows"]:
    """The matrix that undoes A where it can be undone, and gives 0 elsewhere."""
    u, sigma, v = decompose(a).kept()
    return v @ sigma.reciprocal().diag() @ u.T  # (5)


def solve(
    a: Float64[Tensor, "rows columns"], b: Float64[Tensor, " rows"], tolerance: float = 1e-10
) -> Solution:
    """How many x solve A x = b, and the one that the pseudoinverse gives."""
    if not (a.isfinite().all() and b.isfinite().all()):
        raise ValueError(
            "A and b must be finite, because NaN and infinity have no rank; drop such rows"
        )
    svd = decompose(a)
    u, sigma, v = svd.kept()
    x = v @ ((u.T @ b) / sigma)  # (6), factor by factor, which rounds less than A^+ b
    size = svd.sigma.max() * x.norm() + b.norm()
    if (b - a @ x).norm() > tolerance * size:  # (7) does not hold
        return Solution("none", x)
    return Solution("unique" if len(sigma) == a.shape[1] else "infinite", x)


def penrose_errors(
    a: Float64[Tensor, "rows columns"], inverse: Float64[Tensor, "columns rows"]
) -> Float64[Tensor, " 4"]:
    """How far a matrix is from each of the four conditions that only the pseudoinverse meets."""
    image, source = a @ inverse, inverse @ a
    conditions = (
        (image @ a, a),
        (source @ inverse, inverse),
        (image.T, image),
        (source.T, source),
    )
    return torch.stack([(found - wanted).norm() for found, wanted in conditions])


# -------- the network ends here; training and pictures follow --------


EQUATIONS: dict[str, tuple[tuple[tuple[float, float], ...], tuple[float, ...]]] = {
    "lines that cross": (((1.0, -1.0), (1.0, 2.0)), (-1.0, 3.0)),
    "three lines": (((1.0, -1.0), (1.0, 2.0), (1.0, 0.2)), (-1.0, 3.0, -0.6)),
    "parallel lines": (((1.0, 1.0), (1.0, 1.0)), (1.6, -0.8)),
    "the same line twice": (((1.0, 1.0), (2.0, 2.0)), (1.6, 3.2)),
}
"""Equations of lines in the plane of (x_1, x_2), one a row, to look at."""


@dataclass(frozen=True, kw_only=True)
class LinearMap(Simulation):
    """Take a matrix apart, and tell which of many random systems have an answer."""

    meanings: ClassVar[Mapping[str, str]] = {
        "wrong_kinds": "random systems that were said to have another number of answers",
        "reconstruction_error": "largest entry of A - U D V^T over all random matrices",
        "penrose_error": "how far the pseudoinverses are from the four Penrose conditions",
        "normal_error": "largest length of A^T (b - A x), zero where A x is nearest to b",
        "null_part": "largest part of x in the null space: zero where x is shortest",
        "stretch_1": "largest singular value of the matrix that is drawn",
        "stretch_2": "smallest singular value of the matrix that is drawn",
    }

    matrix: tuple[float, ...] = (1.4, 0.9, -0.2, 0.8)
    """The four entries, by rows, of the matrix that is drawn."""
    systems: int = 200
    """Random systems A x = b."""
    longest: int = 6
    """Most rows and columns of a random A."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = len(self.matrix) == 4 and all(map(math.isfinite, self.matrix))
        self.require(whole, "matrix", "four finite numbers, by rows: a,b,c,d")
        self.at_least(1, "systems", "longest")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        matrix = torch.tensor(self.matrix, dtype=torch.float64).view(2, 2)
        u, sigma, v = decompose(matrix)
        rows = [self.check(*random_system(self.longest, generator)) for _ in range(self.systems)]
        kinds, errors = zip(*rows, strict=True)
        return {
            "matrix": matrix,
            "u": u,
            "sigma": sigma,
            "v": v,
            "kinds": torch.tensor(kinds),
            "errors": torch.stack(errors),
        }

    def check(
        self, a: Float64[Tensor, "rows columns"], b: Float64[Tensor, " rows"], kind: str
    ) -> tuple[tuple[int, int], Float64[Tensor, " 4"]]:
        """The kind that a system was made with and the one found, and what the answer lacks."""
        svd, inverse, found = decompose(a), pseudoinverse(a), solve(a, b)
        errors = [
            (svd.matrix() - a).abs().max(),
            penrose_errors(a, inverse).max(),
            (a.T @ (b - a @ found.x)).norm(),
            (found.x - inverse @ (a @ found.x)).norm(),
        ]
        return (KINDS.index(kind), KINDS.index(found.kind)), torch.stack(errors)

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        made, found = result["kinds"].unbind(1)
        reconstruction, penrose, normal, null = result["errors"].amax(0).tolist()
        return {
            "wrong_kinds": float((made != found).sum()),
            "reconstruction_error": reconstruction,
            "penrose_error": penrose,
            "normal_error": normal,
            "null_part": null,
            "stretch_1": result["sigma"][0].item(),
            "stretch_2": result["sigma"][1].item(),
        }

    def picture_stages(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, float]]:
        """The unit circle with two axes of the matrix, and where each stage takes them.

        The first rotation lays the axes on the coordinates, the stretch makes them {first:.2f} and
        {second:.2f} long, the second rotation turns the ellipse: together that is A.
        """
        angle = torch.linspace(0, 2 * math.pi, 181, dtype=torch.float64)
        circle = torch.stack([angle.cos(), angle.sin()])
        u, sigma, v = result["u"], result["sigma"], result["v"]
        axes = [torch.stack([torch.zeros_like(one), one], dim=1) for one in v.unbind(1)]
        stages = {
            "$x$": torch.eye(2, dtype=torch.float64),
            "$V^T x$: rotated": v.T,
            "$D V^T x$: stretched": sigma.diag() @ v.T,
            "$U D V^T x = A x$: rotated": u @ sigma.diag() @ v.T,
        }
        far = 1.1 * max(1.0, float(sigma[0]))
        shown = []
        for name, m in stages.items():
            curves = {
                "unit circle": curve(m @ circle),
                "first axis $v_1$": curve(m @ axes[0]),
                "second axis $v_2$": curve(m @ axes[1]),
            }
            shown.append(Panel(curves, "first coordinate", "second coordinate", name))
        return square(far, *shown), {"first": float(sigma[0]), "second": float(sigma[1])}

    def picture_equations(self, result: Mapping[str, Tensor]) -> Figure:
        """Each row of A x = b as a line, for four systems, and the answer of the pseudoinverse.

        Where the lines meet, that is the one answer; where they do not, the point has the least sum
        of squared errors; and on a line it is the point next to the origin.
        """
        shown, reach = [], torch.tensor([-9.0, 9.0], dtype=torch.float64)
        for name, (rows, right) in EQUATIONS.items():
            a = torch.tensor(rows, dtype=torch.float64)
            b = torch.tensor(right, dtype=torch.float64)
            found = solve(a, b)
            curves = {"$A^+ b$": (found.x[:1], found.x[1:])}
            for i, (normal, offset) in enumerate(zip(a, b, strict=True)):
                foot = offset * normal / normal.square().sum()
                along = torch.stack([-normal[1], normal[0]]) / normal.norm()
                curves[f"row {i + 1}"] = curve(foot[:, None] + along[:, None] * reach)
            shown.append(Panel(curves, "$x_1$", "$x_2$", f"{name}: {found.kind}", legend="none"))
        return square(3.0, *shown)

    def tiny(self) -> Self:
        return replace(super().tiny(), systems=20)


def random_system(
    longest: int, generator: torch.Generator
) -> tuple[Float64[Tensor, "rows columns"], Float64[Tensor, " rows"], str]:
    """A matrix of a rank that was drawn, a right-hand side, and how many answers there are.

    Every second b is A z, which lies in the column space, and the others lie anywhere.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def whole(most: int) -> int:
        return int(torch.randint(1, most + 1, (), generator=generator))

    m, n, inside = whole(longest), whole(longest), whole(2) == 1
    rank = whole(min(m, n))
    a = normal(m, rank) @ normal(rank, n)
    b = a @ normal(n) if inside else normal(m)
    if not inside and rank < m:
        return a, b, "none"
    return a, b, "unique" if rank == n else "infinite"


def curve(points: Float64[Tensor, "2 points"]) -> Curve:
    """The points as a curve of a panel: where across, and how far up."""
    return points[0], points[1]


def square(far: float, *shown: Panel) -> Figure:
    """The panels, two in a row, with the origin in the middle of each and equal scales."""
    made = panels(*shown, columns=2, width=3.0, height=2.9)
    for axes in made.axes:
        axes.set(aspect="equal", xlim=(-far, far), ylim=(-far, far))
    return made


RECIPES = {
    "linear-map": LinearMap(
        goal="wrong_kinds == 0 and reconstruction_error <= 1e-10 and penrose_error <= 1e-10",
        covers=("M2", "M4"),
    ),
}
