"""Eigenvalues and eigenvectors: the directions that a matrix only stretches, found in two ways.

    (A - lambda I) v = 0,  v != 0                        (1)  eigenvalue and eigenvector
    det(lambda I - A) = 0                                (2)  the eigenvalues are the roots
    A = V diag(lambda) V^-1                              (3)  with n independent eigenvectors
    A = Q diag(lambda) Q^T,  Q^T Q = I                   (4)  a symmetric A
    w = (a_qq - a_pp) / (2 a_pq)                         (5)  of the angle that makes a_pq zero:
    t = sign(w) / (|w| + sqrt(1 + w^2))                  (6)  its tangent in Jacobi's method
    A_k - mu I = Q_k R_k,  A_{k+1} = R_k Q_k + mu I      (7)  a step of the QR algorithm
    det A = prod_i lambda_i                              (8)  factor on a volume, with a sign
    n - rank(A - lambda I) <= multiplicity of lambda     (9)  as a root; "<" is defective

Read (4) from the right: change to the basis of eigenvectors, scale each axis, change back. Scaling
the columns of V to length 1 makes V^-1 = V^T only if they are orthogonal, for real A and lambda if
A is symmetric. Jacobi turns the plane of axes p and q so that a_pq becomes 0, pair after pair; A_k
keeps its eigenvalues and becomes triangular, so that they stand on its diagonal; mu is the
eigenvalue of its last 2 x 2 block that is nearest to the last entry. A symmetric A is positive
definite iff all lambda > 0, that is x^T A x > 0 for x != 0. A map keeps volumes iff |det A| = 1,
which a reflection with det A = -1 does as well.

Jacobi (1846), "Ueber ein leichtes Verfahren, die in der Theorie der Saecularstoerungen vorkommenden
Gleichungen numerisch aufzuloesen", doi:10.1515/crll.1846.30.51; Francis (1961), "The QR
transformation", doi:10.1093/comjnl/4.3.265.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Complex128, Float64
from matplotlib.figure import Figure
from torch import Tensor

from everynet.plot.panels import Curve, Panel, panels
from everynet.recipes.recipe import Simulation

EPS = torch.finfo(torch.float64).eps


class Found(NamedTuple):
    """Eigenvalues in ascending order, eigenvectors as columns, and the size off the diagonal."""

    values: Float64[Tensor, " n"]
    vectors: Float64[Tensor, "n n"]
    left: Float64[Tensor, " sweeps"]


class Eigenspace(NamedTuple):
    """One eigenvalue, how often it is a root of (2), and how many eigenvectors it has."""

    value: complex
    algebraic: int
    geometric: int


def jacobi(a: Float64[Tensor, "n n"], sweeps: int = 30) -> Found:
    """The eigenvalues and eigenvectors of a symmetric matrix, by rotations of two axes."""
    if not torch.allclose(a, a.T, rtol=0, atol=1e-12 * float(a.abs().max())):
        raise ValueError(
            "A must be symmetric, because only then its eigenvectors are orthogonal and rotations "
            "find them; take qr_algorithm, or (A + A.T) / 2"
        )
    a, q = a.clone(), torch.eye(len(a), dtype=a.dtype)
    left = [off_diagonal(a)]
    while left[-1] > EPS * a.norm() and len(left) <= sweeps:
        for i in range(len(a)):
            for j in range(i + 1, len(a)):
                rotate(a, q, i, j)
        left.append(off_diagonal(a))
    order = a.diag().argsort()
    return Found(a.diag()[order], q[:, order], torch.stack(left))


def rotate(a: Float64[Tensor, "n n"], q: Float64[Tensor, "n n"], i: int, j: int) -> None:
    """Turn axes i and j, in place, so that a_ij becomes zero; q gathers the rotations."""
    if a[i, j] == 0:
        return
    w = float((a[j, j] - a[i, i]) / (2 * a[i, j]))  # (5)
    t = math.copysign(1, w) / (abs(w) + math.hypot(1, w))  # (6)
    c = 1 / math.hypot(1, t)
    turn = torch.tensor([[c, t * c], [-t * c, c]], dtype=a.dtype)
    pair = [i, j]
    a[:, pair] = a[:, pair] @ turn
    a[pair] = turn.T @ a[pair]
    q[:, pair] = q[:, pair] @ turn
    a[i, j] = a[j, i] = 0


def off_diagonal(a: Float64[Tensor, "n n"]) -> Float64[Tensor, ""]:
    """The root of the sum of squares of the entries off the diagonal."""
    return (a - a.diag().diag()).square().sum().sqrt()


def qr_algorithm(
    a: Float64[Tensor, "n n"], most: int = 100
) -> tuple[Complex128[Tensor, " n"], Float64[Tensor, " steps"]]:
    """The eigenvalues of any square matrix, and the size below the last diagonal entry by step.

    Once the entries left of a diagonal entry are zero, that is an eigenvalue and the rest is a
    smaller matrix. Complex numbers, because a rotation has no other eigenvalues.
    """
    triangle, size, left = a.to(torch.complex128), len(a), []
    values = torch.zeros(size, dtype=torch.complex128)
    while size:
        part, scale = triangle[:size, :size], triangle[:size, :size].norm()
        for step in range(most):
            left.append(part[-1, :-1].norm())
            if left[-1] <= EPS * scale:
                break
            stuck = step % 10 == 9  # a permutation would turn round for ever
            mu = nearest_root(part[-2:, -2:]) + (left[-1] if stuck else 0)
            shift = mu * torch.eye(size, dtype=part.dtype)
            q, r = torch.linalg.qr(part - shift)
            part = r @ q + shift  # (7)
        else:
            raise ValueError(f"no eigenvalue was found in {most} steps; give a larger most")
        size -= 1
        values[size], triangle = part[-1, -1], part[:-1, :-1]
    return values, torch.stack(left)[:-1]


def nearest_root(block: Complex128[Tensor, "2 2"]) -> Complex128[Tensor, ""]:
    """The root of the characteristic polynomial of a 2 x 2 block nearest to its last entry."""
    half = block.diag().mean()
    spread = (((block[0, 0] - block[1, 1]) / 2) ** 2 + block[0, 1] * block[1, 0]).sqrt()
    roots = torch.stack([half + spread, half - spread])
    return roots[(roots - block[1, 1]).abs().argmin()]


def characteristic(a: Float64[Tensor, "n n"], at: Float64[Tensor, " points"]) -> Tensor:
    """The characteristic polynomial at real numbers."""
    shifted = at[:, None, None] * torch.eye(len(a), dtype=a.dtype) - a
    values: Tensor = torch.linalg.det(shifted)  # (2)
    return values


def eigenspaces(a: Float64[Tensor, "n n"], tolerance: float = 1e-5) -> list[Eigenspace]:
    """Each eigenvalue with its two multiplicities.

    Eigenvalues closer than the tolerance, as a part of |A|, are taken for one: rounding moves a
    k-fold root by the k-th root of eps, so that no computer can tell them from equal ones.
    """
    values, _ = qr_algorithm(a)
    scale, spaces = tolerance * max(float(a.norm()), EPS), []
    while len(values):
        near = (values - values[0]).abs() <= scale
        value = values[near].mean()
        stretches = torch.linalg.svdvals(a - value * torch.eye(len(a)))
        eigenvectors = int((stretches <= scale).sum())  # (9)
        spaces.append(Eigenspace(complex(value), int(near.sum()), eigenvectors))
        values = values[~near]
    return spaces


def is_defective(a: Float64[Tensor, "n n"], tolerance: float = 1e-5) -> bool:
    """Whether eigenvectors are missing, so that A cannot be diagonalised."""
    return any(space.geometric < space.algebraic for space in eigenspaces(a, tolerance))


def diagonalize(a: Float64[Tensor, "n n"]) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of length 1, from the null spaces of A - lambda I."""
    if is_defective(a):
        raise ValueError(
            "A must have as many independent eigenvectors as rows to be diagonalised, and it is "
            "defective; a singular value decomposition exists for every matrix"
        )
    values, vectors = [], []
    for space in eigenspaces(a):
        _, _, axes = torch.linalg.svd(a - space.value * torch.eye(len(a)))
        values += space.geometric * [space.value]
        vectors.append(axes.mH[:, len(a) - space.geometric :])  # (1)
    return torch.tensor(values, dtype=torch.complex128), torch.cat(vectors, dim=1)


def rebuild(values: Tensor, vectors: Tensor) -> Float64[Tensor, "n n"]:
    """A from its eigenvalues and eigenvectors."""
    made: Tensor = vectors @ values.diag() @ torch.linalg.inv(vectors)  # (3)
    return made.real


def rebuild_symmetric(values: Tensor, q: Tensor) -> Float64[Tensor, "n n"]:
    """A symmetric A: the inverse of Q is its transpose."""
    return q @ values.diag() @ q.T  # (4)


def determinant(a: Float64[Tensor, "n n"]) -> float:
    """The signed factor by which A changes volumes."""
    return qr_algorithm(a)[0].prod().real.item()  # (8)


def is_positive_definite(a: Float64[Tensor, "n n"]) -> bool:
    """Whether all eigenvalues of a symmetric matrix are positive."""
    return bool(jacobi(a).values[0] > 0)


# -------- the network ends here; training and pictures follow --------


MATRICES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "symmetric": ((1.5, 0.5), (0.5, 0.8)),
    "not symmetric": ((1.6, 0.9), (0.0, 0.6)),
    "defective": ((1.0, 1.0), (0.0, 1.0)),
    "rotation": ((0.6, -0.8), (0.8, 0.6)),
}
"""One of each kind, to look at."""


@dataclass(frozen=True, kw_only=True)
class Eigenvalues(Simulation):
    """Solve random eigenvalue problems in both ways, beside LAPACK."""

    meanings: ClassVar[Mapping[str, str]] = {
        "jacobi_error": "largest difference of Jacobi's eigenvalues from those of LAPACK",
        "qr_error": "largest difference of eigenvalues by the QR algorithm from those of LAPACK",
        "rebuilt_error": "largest entry of A - Q diag(lambda) Q^T over the random matrices",
        "wrong_definite": "symmetric matrices whose definiteness Cholesky's method saw otherwise",
        "wrong_defective": "matrices with or without a Jordan block that were taken for the other",
    }

    size: int = 8
    """Rows of each matrix."""
    matrices: int = 200
    """Matrices whose definiteness is compared with Cholesky; a tenth are solved as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.within(3, 40, "size")
        self.at_least(10, "matrices")

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        n = self.size
        few = [symmetric(n, generator) for _ in range(self.matrices // 10)]
        definite = []
        for _ in range(self.matrices):
            a = symmetric(n, generator) / math.sqrt(n) + 2.0 * torch.eye(n)
            definite.append((is_positive_definite(a), bool(torch.linalg.cholesky_ex(a).info == 0)))
        defective = [[is_defective(jordan(n, k, generator)) for _ in few] for k in (0, 1)]
        return {
            "errors": torch.stack([compare(a) for a in few]),
            "definite": torch.tensor(definite),
            "defective": torch.tensor(defective),
            "jacobi": jacobi(few[0]).left,
            "qr": qr_algorithm(few[0])[1],
        }

    def metrics(self, result: Mapping[str, Tensor]) -> dict[str, float]:
        names = ("jacobi_error", "qr_error", "rebuilt_error")
        ours, cholesky = result["definite"].unbind(1)
        return {
            **dict(zip(names, result["errors"].amax(dim=0).tolist(), strict=True)),
            "wrong_definite": float((ours != cholesky).sum()),
            "wrong_defective": float(
                (result["defective"] != torch.tensor([[False], [True]])).sum()
            ),
        }

    def picture_directions(self, result: Mapping[str, Tensor]) -> Figure:
        """The image of the unit circle with the eigenvectors (top), and det(lambda I - A) (bottom).

        Two real roots are two directions that A only stretches, at right angles if it is symmetric;
        the double root of the defective matrix has one, and the rotation has none.
        """
        shown = [
            on_plane(name, torch.tensor(a, dtype=torch.float64)) for name, a in MATRICES.items()
        ]
        rows = [panel for row in zip(*shown, strict=True) for panel in row]
        made = panels(*rows, columns=len(MATRICES), height=2.0)
        for axes in made.axes[: len(MATRICES)]:
            axes.set(aspect="equal", xlim=(-2.1, 2.1), ylim=(-2.1, 2.1))
        return made

    def picture_convergence(self, result: Mapping[str, Tensor]) -> tuple[Figure, dict[str, int]]:
        """What is still to become zero, by sweep (Jacobi) and by step (QR algorithm).

        Near the end a sweep squares it. The QR algorithm finds one eigenvalue after the other,
        here {steps} steps for {size} of them, and starts on a smaller matrix after each.
        """
        made = panels(
            falling(result["jacobi"], "sweep", "off the diagonal", "Jacobi's rotations"),
            falling(result["qr"], "step", "left of the last diagonal entry", "QR algorithm"),
        )
        return made, {"steps": len(result["qr"]), "size": self.size}

    def tiny(self) -> Self:
        return replace(super().tiny(), size=4, matrices=10)


def symmetric(n: int, generator: torch.Generator) -> Float64[Tensor, "n n"]:
    """A symmetric matrix of normal numbers."""
    x = torch.randn(n, n, generator=generator, dtype=torch.float64)
    return (x + x.T) / math.sqrt(2)


def jordan(n: int, missing: int, generator: torch.Generator) -> Float64[Tensor, "n n"]:
    """A matrix with a double eigenvalue that lacks so many eigenvectors, in a basis at random."""
    values = torch.linspace(-1, 1, n - 1, dtype=torch.float64)
    block = torch.cat([values[:1], values]).diag()
    block[0, 1] = missing
    q, r = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    basis = q @ (torch.eye(n) + 0.3 * r.triu(1))  # neither orthogonal nor near to singular
    made: Tensor = basis @ block @ torch.linalg.inv(basis)
    return made


def compare(a: Float64[Tensor, "n n"]) -> Float64[Tensor, " 3"]:
    """How far the eigenvalues in both ways, and the matrix from them, are off."""
    expected, found = torch.linalg.eigvalsh(a), jacobi(a)
    by_qr = qr_algorithm(a)[0].real.sort().values
    rebuilt = rebuild_symmetric(found.values, found.vectors)
    errors = (found.values - expected, by_qr - expected, rebuilt - a)
    return torch.stack([error.abs().max() for error in errors])


def on_plane(name: str, a: Float64[Tensor, "2 2"]) -> tuple[Panel, Panel]:
    """The unit circle, its image and the eigenvectors; and the characteristic polynomial."""
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=torch.float64)
    at = torch.linspace(-0.6, 2.4, 121, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])
    x, y = a @ circle
    curves = {"image $A x$": (x, y), **real_directions(a)}
    guides = {"unit circle": (circle[0], circle[1])}
    above = Panel(curves, "$x_1$", "$x_2$", name, guides=guides, legend="none")
    curves, zero = {"polynomial": (at, characteristic(a, at))}, {"zero": 0.0}
    ylabel = r"$\det(\lambda I - A)$"
    return above, Panel(curves, r"$\lambda$", ylabel, levels=zero, ylim=(-0.8, 2.0), legend="none")


def falling(left: Float64[Tensor, " times"], time: str, where: str, title: str) -> Panel:
    """How large the entries are that are to become zero; a logarithmic scale has no zero."""
    curve = {where: (torch.arange(len(left)), left.clamp(min=1e-30))}
    return Panel(curve, time, f"size {where}", title, log="y", legend="none")


def real_directions(a: Float64[Tensor, "2 2"]) -> dict[str, Curve]:
    """Each real eigenvector, drawn from -lambda v to lambda v."""
    lines: dict[str, Curve] = {}
    for value in (space.value for space in eigenspaces(a)):
        if abs(value.imag) < 1e-9:
            _, _, axes = torch.linalg.svd(a - value.real * torch.eye(2))
            line = torch.tensor([[-value.real], [value.real]]) * axes[-1]
            lines[f"eigenvector {len(lines) + 1}"] = (line[:, 0], line[:, 1])
    return lines


RECIPES = {
    "eigen": Eigenvalues(
        goal="jacobi_error <= 1e-10 and qr_error <= 1e-10 and rebuilt_error <= 1e-10 "
        "and wrong_definite == 0 and wrong_defective == 0",
        covers=("M3",),
    ),
}
