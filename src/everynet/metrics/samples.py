"""How good the samples of a generative network are, as a classifier of real ones sees them.

    recognised = the share of samples whose most likely class has at least so much probability
    classes    = how many classes get at least a quarter of their fair share of all samples
    frechet    = |m - n|^2 + tr(S + T - 2 (S^1/2 T S^1/2)^1/2)

where m and n are the means, S and T the covariances of the classifier's features of real and of
generated samples: the squared 2-Wasserstein distance of two Gaussians with these moments, 0 where
both are alike. The three are read together: samples that are all alike, or even blurs that are no
images at all, can be recognised, but as few classes, and far away. Dowson and Landau (1982), "The
Frechet distance between multivariate normal distributions", doi:10.1016/0047-259X(82)90077-X;
Heusel et al. (2017), "GANs trained by a two time-scale update rule converge to a local Nash
equilibrium", arXiv:1706.08500, with the features of a network that was trained on photographs, so
that its numbers are not these.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

SURE = 0.9
"""The least probability of the most likely class of a sample that is recognised."""


def recognised(
    probabilities: Float[Tensor, "samples classes"], sure: float = SURE
) -> Float[Tensor, ""]:
    """The share of samples to one of whose classes the classifier gives at least `sure`."""
    return (probabilities.amax(1) >= sure).double().mean()


def classes_present(probabilities: Float[Tensor, "samples classes"], sure: float = SURE) -> int:
    """How many classes have at least a quarter of their fair share of samples, recognised."""
    samples, classes = probabilities.shape
    highest, found = probabilities.max(1)
    counts = found[highest >= sure].bincount(minlength=classes)
    return int((counts >= max(1.0, samples / classes / 4)).sum())


def frechet_distance(
    x: Float[Tensor, "rows features"], y: Float[Tensor, "others features"]
) -> Float64[Tensor, ""]:
    """The Frechet distance of two sets of features, as Gaussians of their moments, in float64."""
    if min(len(x), len(y)) < 2:
        raise ValueError(
            f"features ({len(x)} and {len(y)} rows) must be at least 2 of each, because "
            "covariances are compared"
        )
    (m, s), (n, t) = ((each.double().mean(0), each.double().T.cov()) for each in (x, y))
    s, t = (each.reshape(len(m), len(m)) for each in (s, t))
    root = square_root(s)
    cross = torch.linalg.eigvalsh(root @ t @ root).clamp(min=0).sqrt().sum()
    distance: Tensor = (m - n).square().sum() + s.trace() + t.trace() - 2 * cross
    return distance


def square_root(matrix: Float64[Tensor, "side side"]) -> Float64[Tensor, "side side"]:
    """The symmetric root of a covariance."""
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = vectors * values.clamp(min=0).sqrt() @ vectors.T
    return root
