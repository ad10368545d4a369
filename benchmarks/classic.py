"""Classic estimators beside scikit-learn's, on the same arrays and at equal results.

    python benchmarks/classic.py                    the tables of benchmarks/RESULTS.md
    python benchmarks/classic.py --part svm         one part
    python benchmarks/classic.py --repeats 1        a quick look, written nowhere
    python benchmarks/classic.py --gpu              seconds on a GPU, of 60,000 rows; no peers

Rows of MNIST are pixels from 0 to 1 in float64, or those of `strokes` where EVERYNET_DATA holds no
MNIST. The note of each contestant is what the results must agree in: accuracy and support vectors,
the variance that the components hold, the log-likelihood, the error. Time is that of `fit` alone,
or of `predict` of 2,000 rows; both are given validated arrays and validate them again.
"""

import functools
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from side_by_side import Contestant, Job, Page, Turn, arguments

OURS = "everynet.zoo.classic"


class Task(NamedTuple):
    """One estimator of ours and one of scikit-learn's, with what both are given."""

    ours: tuple[str, str]
    """Module and class."""
    theirs: tuple[str, str]
    settings: Mapping[str, Any]
    data: str
    note: Callable[[Any, Any, Any], str]
    """What must agree, from the fitted estimator, X and y."""
    fit: float = 1.0
    """The least ratio of times of `fit`."""
    predict: float = 0.0
    """That of `predict`; 0 where it is not timed."""
    renamed: Mapping[str, Any] = {}
    """Settings of ours under other names than theirs, in place of `settings`."""


def rows_right(model: Any, x: Any, y: Any) -> str:
    support = f", {len(model.support_):,} support vectors" if hasattr(model, "support_") else ""
    return f"{(model.predict(x[:2000]) == y[:2000]).mean():.4f} right of 2,000 learned{support}"


def variance_held(model: Any, x: Any, y: Any) -> str:
    return f"{model.explained_variance_ratio_.sum():.6f} of the variance"


def error(model: Any, x: Any, y: Any) -> str:
    return f"squared error {((model.predict(x) - y) ** 2).mean():.8f}"


TASKS = {
    "svm": Task(
        (f"{OURS}.svm", "SVC"), ("sklearn.svm", "SVC"), {}, "mnist:6000", rows_right,
        fit=3.0, predict=20.0,
    ),
    "pca-full": Task(
        (f"{OURS}.pca", "PCA"), ("sklearn.decomposition", "PCA"),
        {"n_components": 50, "svd_solver": "covariance_eigh"}, "mnist:60000", variance_held,
    ),
    "pca-randomised": Task(
        (f"{OURS}.pca", "PCA"), ("sklearn.decomposition", "PCA"),
        {"n_components": 50, "svd_solver": "randomized", "random_state": 0}, "mnist:60000",
        variance_held,
    ),
    "least-squares": Task(
        (f"{OURS}.least_squares", "LeastSquares"), ("sklearn.linear_model", "LinearRegression"),
        {}, "numbers", error, fit=2.0,
    ),
    "logistic": Task(
        (f"{OURS}.logistic", "LogisticRegression"),
        ("sklearn.linear_model", "LogisticRegression"),
        {"tol": 1e-8, "max_iter": 10_000}, "classes", rows_right, renamed={"tol": 1e-8},
    ),
}  # fmt: skip


@functools.cache
def table(name: str) -> tuple[Any, Any]:
    """X and y of a task."""
    import numpy as np

    kind, _, rows = name.partition(":")
    if kind == "mnist":
        return images(int(rows))
    draw = np.random.default_rng(0)
    x = draw.normal(size=(20_000, 100))
    y = x @ draw.normal(size=100) + draw.normal(size=20_000)
    return (x, y) if kind == "numbers" else (x, (y > 0).astype(np.int64))


def images(rows: int) -> tuple[Any, Any]:
    """So many images as rows of pixels, and their classes."""
    import numpy as np

    from everynet.data.loading import samples
    from everynet.system.errors import UserError

    try:
        found = samples("mnist", kind="image")
    except UserError:  # they are not here
        found = samples("strokes:70000", kind="image")
    parts = [found.parts[part] for part in ("train", "valid")]
    x = np.concatenate([part[0].flatten(1).numpy() for part in parts])
    y = np.concatenate([part[1].numpy() for part in parts])
    return x[:rows].astype(np.float64) / found.peak, y[:rows]


def prepare(job: Job, ours: bool) -> Callable[[], Turn]:
    """The work of one contestant: to fit, or to predict 2,000 rows."""
    import time

    task = TASKS[job["task"]]
    module, name = task.ours if ours else task.theirs
    make = getattr(importlib.import_module(module), name)
    settings = dict(task.renamed or task.settings) if ours else dict(task.settings)
    x, y = table(task.data)
    given = (x,) if y is None else (x, y)
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    if ours:
        make(**settings).fit(*(part[:200] for part in given))  # compiles, or loads what was
    if job["work"] == "predict":
        model = make(**settings).fit(*given)

        def predict() -> Turn:
            start = clock()
            model.predict(x[:2000])
            return Turn(clock() - start, task.note(model, x, y))

        return predict

    def fit() -> Turn:
        model = make(**settings)
        start = clock()
        model.fit(*given)
        return Turn(clock() - start, task.note(model, x, y))  # looked at outside of the time

    return fit


def contestants(task: Task, reach: float) -> list[Contestant]:
    """Ours first."""
    try:
        package = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        package = ""
    return [
        Contestant("everynet", functools.partial(prepare, ours=True), task.ours[0], package),
        Contestant(
            "scikit-learn", functools.partial(prepare, ours=False), task.theirs[0],
            "scikit-learn", reach=reach,
        ),
    ]  # fmt: skip


def compare(page: Page, part: str) -> None:
    task = TASKS[part]
    works = {"fit": task.fit, **({"predict": task.predict} if task.predict else {})}
    for work, reach in works.items():
        for threads in (1, 2):
            title = f"{part}: {work}, {threads} thread{'s' * (threads > 1)}"
            job = {"task": part, "work": work, "threads": threads}
            page.round(title, contestants(task, reach), job)
    page.close(
        f"{task.ours[1]} ({part})",
        f"{task.data}, float64; best of {page.given.repeats} alternating turns. The note is what "
        "both must agree in.",
        part=part,
    )


# ------------------------------------------------------------------------------------------- a GPU


def seconds_on(device: str, work: Callable[[], object], repeats: int = 3) -> float:
    """The best of some turns, each ended when the device is done."""
    import time

    import torch

    best = float("inf")
    for _ in range(repeats + 1):  # the first warms up
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def time_gpu(device: str = "cuda", rows: int = 60_000) -> dict[str, float]:
    """Seconds of PCA and of the RBF kernel of all pairs of `rows` rows with 784 columns.

    Needs torch, numba and scikit-learn alone: rows are drawn, with 784 columns of rank 60.
    """
    import torch

    from everynet.zoo.classic.pca import PCA
    from everynet.zoo.classic.svm import Kernel

    draw = torch.Generator(device).manual_seed(0)
    numbers = {"generator": draw, "device": device}
    x = torch.randn(rows, 60, **numbers) @ torch.randn(60, 784, **numbers) / 28
    x = x.double()
    kernel, found = Kernel("rbf", 1 / 784), {}
    for solver in ("covariance_eigh", "randomized"):
        found[f"PCA {solver}"] = seconds_on(
            device, lambda solver=solver: PCA(50, solver, random_state=0).fit(x)
        )
    for dtype in (torch.float32, torch.float64):
        given = x.to(dtype)

        def total(given: Any = given) -> Any:
            return sum(kernel(part, given).sum() for part in given.split(4096))

        found[f"RBF kernel {str(dtype)[6:]}"] = seconds_on(device, total)
    return found


PARTS: Sequence[str] = tuple(TASKS)


def main() -> None:
    if "--gpu" in sys.argv:
        for name, seconds in time_gpu().items():
            print(f"{name}: {seconds:.3f} s")
        return
    given = arguments(__doc__.splitlines()[0], contestants(TASKS["svm"], 1.0), repeats=5)
    page = Page("classic", __file__, given)
    for part in PARTS:
        if given.part in ("", part):
            compare(page, part)


if __name__ == "__main__":
    sys.exit(main())
