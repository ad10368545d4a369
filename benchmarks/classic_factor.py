"""Gaussian mixtures and independent components, beside scikit-learn's at equal results.

    python benchmarks/classic_factor.py                    the tables of benchmarks/RESULTS.md
    python benchmarks/classic_factor.py --repeats 1        a quick look, written nowhere
    python benchmarks/classic_factor.py --part ica         one of them

`mixture`: 60,000 rows of 50 columns drawn from ten Gaussians, float64; ten iterations of EM from
the same ten rows as first means. The mean log-likelihood of a row is the note. `ica`: 100,000
mixtures of 20 signals, five Laplacian, five uniform, five skewed and five on two values, float64;
the tolerance is 1e-6. The note is the Amari distance from the true mixing. Notes must be equal to
three digits.
"""

import functools
import importlib.metadata
import sys
import warnings
from collections.abc import Callable
from typing import Any

from side_by_side import Contestant, Job, Page, Turn, arguments

REACH, ROWS, COLUMNS, COMPONENTS, ITERATIONS = 1.0, 60_000, 50, 10, 10
LENGTH, SOURCES = 100_000, 20


@functools.cache
def clusters() -> Any:
    """Rows of a mixture, and the means that EM begins with."""
    import numpy as np

    draw = np.random.default_rng(0)
    means = draw.normal(size=(COMPONENTS, COLUMNS))
    factors = np.eye(COLUMNS) + draw.normal(size=(COMPONENTS, COLUMNS, COLUMNS)) / 7
    rows = [mean + draw.normal(size=(ROWS // COMPONENTS, COLUMNS)) @ factor.T
            for mean, factor in zip(means, factors, strict=True)]  # fmt: skip
    x = np.concatenate(rows)
    return np.ascontiguousarray(draw.permutation(x)), np.stack([r[0] for r in rows])


@functools.cache
def mixtures() -> Any:
    """Mixed signals and the mixing."""
    import numpy as np

    draw = np.random.default_rng(0)
    kinds = [
        draw.laplace(size=(LENGTH, 5)),
        draw.uniform(-1, 1, size=(LENGTH, 5)),
        draw.exponential(size=(LENGTH, 5)),
        draw.choice([-1.0, 1.0], size=(LENGTH, 5)),
    ]
    a = draw.normal(size=(SOURCES, SOURCES))
    return np.concatenate(kinds, 1) @ a.T, a


def timed(
    job: Job, make: Callable[[], Any], x: Any, say: Callable[[Any], str]
) -> Callable[[], Turn]:
    """What is learned is looked at outside of the time."""
    import time

    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter

    def fit() -> Turn:
        model = make()
        start = clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ten iterations are not meant to converge
            model.fit(x)
        return Turn(clock() - start, say(model))

    return fit


def say_likelihood(model: Any) -> str:
    return f"log-likelihood {model.score(clusters()[0]):.4f}"


def say_distance(model: Any) -> str:
    import torch

    from everynet.zoo.classic.ica import amari_distance

    return (
        f"Amari distance {amari_distance(torch.from_numpy(model.components_ @ mixtures()[1])):.4f}"
    )


def mixture_of_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.classic.mixture import GaussianMixture

    x, means = clusters()
    given = {"tol": 0.0, "max_iter": ITERATIONS, "means_init": means}
    return timed(job, lambda: GaussianMixture(COMPONENTS, **given), x, say_likelihood)


def mixture_of_scikit_learn(job: Job) -> Callable[[], Turn]:
    import numpy as np
    import torch
    from sklearn.mixture import GaussianMixture

    from everynet.zoo.classic.mixture import Gaussians, nearest

    x, means = clusters()
    rows = torch.from_numpy(x)
    first = Gaussians.of_groups(rows, nearest(rows, torch.from_numpy(means)), COMPONENTS)
    given = {
        "tol": 0.0, "max_iter": ITERATIONS, "reg_covar": 0.0,
        "weights_init": first.weights.numpy(), "means_init": first.means.numpy(),
        "precisions_init": np.linalg.inv(first.covariances.numpy()),
    }  # fmt: skip
    return timed(job, lambda: GaussianMixture(COMPONENTS, **given), x, say_likelihood)


def ica_of_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.classic.ica import FastICA

    return timed(job, lambda: FastICA(SOURCES, tol=1e-6), mixtures()[0], say_distance)


def ica_of_scikit_learn(job: Job) -> Callable[[], Turn]:
    from sklearn.decomposition import FastICA

    given = {"whiten": "unit-variance", "tol": 1e-6, "max_iter": 500, "random_state": 0}
    return timed(job, lambda: FastICA(SOURCES, **given), mixtures()[0], say_distance)


def contestants(part: str) -> list[Contestant]:
    """Ours first."""
    try:
        package = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        package = ""
    ours, theirs = {
        "mixture": (mixture_of_everynet, mixture_of_scikit_learn),
        "ica": (ica_of_everynet, ica_of_scikit_learn),
    }[part]
    return [
        Contestant(f"everynet {part}", ours, f"everynet.zoo.classic.{part}", package),
        Contestant(f"scikit-learn {part}", theirs, "sklearn", "scikit-learn", reach=REACH),
    ]


def compare(page: Page, part: str) -> None:
    for threads in (1, 2):
        title = f"{part}, {threads} thread{'s' * (threads > 1)}"
        page.round(title, contestants(part), {"threads": threads})
    what = {
        "mixture": f"{ROWS:,} x {COLUMNS}, {COMPONENTS} components, {ITERATIONS} iterations of EM",
        "ica": f"{LENGTH:,} x {SOURCES}, symmetric, tanh, until no direction turns",
    }[part]
    page.close(
        {"mixture": "Gaussian mixture", "ica": "Independent components"}[part],
        f"{what}; seconds of `fit`; best of {page.given.repeats} alternating turns.",
        part=part,
    )


def main() -> None:
    given = arguments(
        __doc__.splitlines()[0], [*contestants("mixture"), *contestants("ica")], repeats=5
    )
    page = Page("classic_factor", __file__, given)
    for part in ("mixture", "ica"):
        if given.part in ("", part):
            compare(page, part)


if __name__ == "__main__":
    sys.exit(main())
