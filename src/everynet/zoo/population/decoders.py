"""Decoders: the weights by which a value is read from the rates of a population.

    D       = V S^-1 U^T T,  H = U S V^T                          (1)  least squares |H D - T|^2
    D       = (H^T H + N sigma^2 I)^-1 H^T T                      (2)  ridge: least under noise
    H^T H   ~ Y (Q^T Y)^-1 Y^T = B L B^T,  Y = H^T H Q            (3)  Nystroem, from few columns Q
    P^-1    = (l + N sigma^2) B (L + N sigma^2 I)^-1 B^T + I - B B^T  (4)  preconditioner

Products are those of matrices. Row i of H has the rates of all neurons (the activities A of Nengo)
at evaluation point i, row i of T the target value there. Noise of standard deviation sigma on each
rate adds N sigma^2 |D|^2 to the squared error of N rows, so that (2) is the average of (1) over the
noise.

Rates at points of few dimensions are smooth functions of them, so that H^T H is nearly of low rank:
(3) finds it at a small part of the cost of H^T H itself, and conjugate gradients with (4), l being
the smallest eigenvalue in L, then need few passes over H.

Eliasmith and Anderson (2003), "Neural Engineering", MIT Press, chapter 2; Frangella, Tropp, Udell
(2023), "Randomized Nystroem preconditioning", SIAM Journal on Matrix Analysis and Applications 44,
arXiv:2110.02820.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from scipy.linalg.blas import dsyrk
from torch import Tensor

LARGE = 1500  # neurons and points from which conjugate gradients are faster than a factorisation
RANK = 200  # columns of Q
ROWS = 64  # of H: read from memory once for both products with them
TOLERANCE = 1e-12  # residual as a share of H^T T
MAX_STEPS = 60  # of conjugate gradients; a ridge too low for them is left to Cholesky


class LeastSquaresDecoders:
    """Decoders without regularisation, all from one singular value decomposition.

    Singular values at the level of rounding are left out, as in numpy's lstsq.
    """

    def __init__(self, h: Float[Tensor, "points neurons"]) -> None:
        u, s, v = torch.linalg.svd(h, full_matrices=False)
        kept = s > s[0] * max(h.shape) * torch.finfo(h.dtype).eps
        self.u, self.s, self.v = u[:, kept], s[kept], v[kept]

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        decoders: Tensor = self.v.T @ ((self.u.T @ targets) / self.s[:, None])  # (1)
        return decoders


class RidgeDecoders:
    """L2-regularised decoders, all from one Cholesky factor."""

    def __init__(self, h: Float[Tensor, "points neurons"], sigma: float) -> None:
        gram = _gram(h)
        gram.diagonal().add_(len(h) * sigma**2)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise ValueError(f"noise (sigma {sigma:.3g} Hz) must be larger, or 0: rates too alike")
        self.h, self.factor = h, factor

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        return torch.cholesky_solve(self.h.T @ targets, self.factor)  # (2)


class NystromRidgeDecoders:
    """The decoders of (2) for a large population, by preconditioned conjugate gradients."""

    def __init__(self, h: Float[Tensor, "points neurons"], sigma: float) -> None:
        self.h, self.sigma, self.ridge = h, sigma, len(h) * sigma**2
        self.basis, eigenvalues = nystrom(h)
        self.shrink = (eigenvalues[0] + self.ridge) / (eigenvalues + self.ridge)

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        right = targets.T @ self.h  # a row for each output
        decoders, residual = torch.zeros_like(right), right
        z = direction = self._precondition(residual)
        for _ in range(MAX_STEPS):
            product = self._multiply_ridged(direction)
            slope = (residual * z).sum(dim=1, keepdim=True)
            alpha = _ratio(slope, (direction * product).sum(dim=1, keepdim=True))
            decoders = decoders + alpha * direction
            residual = residual - alpha * product
            if bool((residual.norm(dim=1) <= TOLERANCE * right.norm(dim=1)).all()):
                return decoders.T.contiguous()
            z = self._precondition(residual)
            beta = _ratio((residual * z).sum(dim=1, keepdim=True), slope)
            direction = z + beta * direction
        return RidgeDecoders(self.h, self.sigma).solve(targets)

    def _multiply_ridged(
        self, d: Float[Tensor, "outputs neurons"]
    ) -> Float[Tensor, "outputs neurons"]:
        """The matrix that (2) inverts, times decoders."""
        total = self.ridge * d
        for rows in self.h.split(ROWS):
            total.addmm_(d @ rows.T, rows)
        return total

    def _precondition(
        self, d: Float[Tensor, "outputs neurons"]
    ) -> Float[Tensor, "outputs neurons"]:
        """P^-1 times decoders."""
        projected = d @ self.basis
        solved: Tensor = d + (projected * (self.shrink - 1)) @ self.basis.T  # (4)
        return solved


def nystrom(
    h: Float[Tensor, "points neurons"],
) -> tuple[Float[Tensor, "neurons rank"], Float[Tensor, " rank"]]:
    """Eigenvectors B and eigenvalues L of a low-rank approximation of H^T H, smallest first."""
    drawn = torch.randn(h.shape[1], RANK, generator=torch.Generator().manual_seed(0))
    q, rough = torch.linalg.qr(drawn.to(h.device)).Q, h.float()
    y = (rough.T @ (rough @ q)).to(h)
    q = q.to(h)
    shift = torch.finfo(rough.dtype).eps * y.norm()  # keeps rounding positive
    y += shift * q
    eigenvalues, vectors = torch.linalg.eigh(q.T @ y)
    root = y @ (vectors / eigenvalues.clamp(min=shift).sqrt())  # (3) is root root^T
    eigenvalues, vectors = torch.linalg.eigh(root.T @ root)
    return root @ (vectors / eigenvalues.sqrt()), (eigenvalues - shift).clamp(min=0)


def ridge_solver(
    h: Float[Tensor, "points neurons"], sigma: float
) -> RidgeDecoders | NystromRidgeDecoders:
    """The faster of the two solvers of (2); on a GPU that is Cholesky."""
    large = h.device.type == "cpu" and min(h.shape) >= LARGE
    return NystromRidgeDecoders(h, sigma) if large and sigma > 0 else RidgeDecoders(h, sigma)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """0 where an output is solved already."""
    return torch.where(denominator > 0, numerator / denominator, 0)


def _gram(h: Float[Tensor, "points neurons"]) -> Float[Tensor, "neurons neurons"]:
    """H^T H, on the CPU as a symmetric product: the lower triangle, which is all Cholesky reads."""
    if h.device.type != "cpu":
        return h.T @ h
    product: Tensor = torch.from_numpy(dsyrk(1.0, h.contiguous().numpy().T).T)
    return product
