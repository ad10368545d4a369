"""Decoders: the weights by which a value is read from the rates of a population.

    D       = V S^-1 U^T T,  H = U S V^T                          (1)  least |H D - T|^2
    D       = (H^T H + N sigma^2 I)^-1 H^T T                      (2)  least under noise
    H^T H   ~ Y (Q^T Y)^-1 Y^T = U L U^T,  Y = H^T H Q            (3)  Nystroem, from few columns Q
    P^-1    = (l + N sigma^2) U (L + N sigma^2 I)^-1 U^T + I - U U^T  (4)  preconditioner

Row i of H has the rates of all neurons at a point x_i, row i of T what is to be read there. Noise
of standard deviation sigma on each rate adds N sigma^2 |D|^2 to the squared error of N rows, so
that (2) is the average of (1) over the noise.

Rates at points of few dimensions are smooth functions of them, so that H^T H is nearly of low rank:
(3) finds it at a small part of the cost of H^T H itself, and conjugate gradients with (4), l being
the smallest number of L, then need few passes over H.

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
PRECISION = 1e-12  # of H^T T, left as residual
MOST = 60  # steps; a ridge so low that they do not do is left to Cholesky


class Optimal:
    """Decoders that are best without noise, all from one singular value decomposition.

    Directions that rounding alone makes are left out, as in numpy's lstsq.
    """

    def __init__(self, h: Float[Tensor, "points neurons"]) -> None:
        u, s, v = torch.linalg.svd(h, full_matrices=False)
        kept = s > s[0] * max(h.shape) * torch.finfo(h.dtype).eps
        self.u, self.s, self.v = u[:, kept], s[kept], v[kept]

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        found: Tensor = self.v.T @ ((self.u.T @ targets) / self.s[:, None])  # (1)
        return found


class Regularised:
    """Decoders that noise disturbs least, all from one Cholesky factor."""

    def __init__(self, h: Float[Tensor, "points neurons"], sigma: float) -> None:
        gram = _gram(h)
        gram.diagonal().add_(len(h) * sigma**2)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if failed:
            raise ValueError(f"noise (sigma {sigma:.3g} Hz) must be larger, or 0: rates too alike")
        self.h, self.factor = h, factor

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        return torch.cholesky_solve(self.h.T @ targets, self.factor)  # (2)


class Preconditioned:
    """The same decoders of a large population, all by way of one approximation of low rank."""

    def __init__(self, h: Float[Tensor, "points neurons"], sigma: float) -> None:
        self.h, self.sigma, self.ridge = h, sigma, len(h) * sigma**2
        drawn = torch.randn(h.shape[1], RANK, generator=torch.Generator().manual_seed(0))
        columns, rough = torch.linalg.qr(drawn.to(h.device)).Q, h.float()
        sketch = (rough.T @ (rough @ columns)).to(h)
        columns = columns.to(h)
        shift = torch.finfo(rough.dtype).eps * sketch.norm()  # keeps rounding positive
        sketch += shift * columns
        size, turn = torch.linalg.eigh(columns.T @ sketch)
        half = sketch @ (turn / size.clamp(min=shift).sqrt())  # (3) is half half^T
        size, turn = torch.linalg.eigh(half.T @ half)
        self.basis = half @ (turn / size.sqrt())
        large = (size - shift).clamp(min=0)
        self.shrink = (large[0] + self.ridge) / (large + self.ridge)

    def solve(self, targets: Float[Tensor, "points outputs"]) -> Float[Tensor, "neurons outputs"]:
        wanted = targets.T @ self.h  # a row for each output
        found, residual = torch.zeros_like(wanted), wanted
        nearly = direction = self._preconditioned(residual)
        for _ in range(MOST):
            ahead = self._ridged(direction)
            slope = (residual * nearly).sum(dim=1, keepdim=True)
            length = _ratio(slope, (direction * ahead).sum(dim=1, keepdim=True))
            found = found + length * direction
            residual = residual - length * ahead
            if bool((residual.norm(dim=1) <= PRECISION * wanted.norm(dim=1)).all()):
                return found.T.contiguous()
            nearly = self._preconditioned(residual)
            turned = _ratio((residual * nearly).sum(dim=1, keepdim=True), slope)
            direction = nearly + turned * direction
        return Regularised(self.h, self.sigma).solve(targets)

    def _ridged(self, d: Float[Tensor, "outputs neurons"]) -> Float[Tensor, "outputs neurons"]:
        """What (2) inverts, times decoders."""
        total = self.ridge * d
        for rows in self.h.split(ROWS):
            total.addmm_(d @ rows.T, rows)
        return total

    def _preconditioned(
        self, d: Float[Tensor, "outputs neurons"]
    ) -> Float[Tensor, "outputs neurons"]:
        along = d @ self.basis
        moved: Tensor = d + (along * (self.shrink - 1)) @ self.basis.T  # (4)
        return moved


def regularised(h: Float[Tensor, "points neurons"], sigma: float) -> Regularised | Preconditioned:
    """The faster of the two ways to the same decoders; a GPU has Cholesky's in no time."""
    large = h.device.type == "cpu" and min(h.shape) >= LARGE
    return Preconditioned(h, sigma) if large and sigma > 0 else Regularised(h, sigma)


def _ratio(over: Tensor, under: Tensor) -> Tensor:
    """0 where an output is solved already."""
    return torch.where(under > 0, over / under, 0)


def _gram(h: Float[Tensor, "points neurons"]) -> Float[Tensor, "neurons neurons"]:
    """H^T H, on the CPU as a symmetric product: the lower triangle, which is all Cholesky reads."""
    if h.device.type != "cpu":
        return h.T @ h
    product: Tensor = torch.from_numpy(dsyrk(1.0, h.contiguous().numpy().T).T)
    return product
