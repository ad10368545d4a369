"""A restricted Boltzmann machine fitted to MNIST, beside scikit-learn's BernoulliRBM.

    python benchmarks/generative_rbm.py                    the tables of benchmarks/RESULTS.md
    python benchmarks/generative_rbm.py --repeats 1        a quick look, written nowhere

Both are given the same 60,000 images, or those of `strokes` where EVERYNET_DATA holds no MNIST,
each pixel drawn once from its grey value, in float32: 256 hidden units, batches of 100, three
passes, learning rate 0.05. Both follow persistent chains by the same update. The pseudo-likelihood
of 5,000 held-out images, by the same 40 draws of a unit for each, is the note: it must be equal to
2 %.
"""

import functools
import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

from side_by_side import Contestant, Job, Page, Turn, arguments

REACH = 3.0
HIDDEN, BATCH, PASSES, RATE, DRAWS = 256, 100, 3, 0.05, 40


@functools.cache
def images() -> tuple[str, Any, Any]:
    """What they are, those to learn from and those held out, as zeros and ones."""
    import numpy as np

    from everynet.data.loading import samples
    from everynet.system.errors import UserError

    try:
        what, found = "images of MNIST", samples("mnist", kind="image")
    except UserError:  # they are not here
        what, found = "images of strokes", samples("strokes:70000", kind="image")
    draw = np.random.default_rng(0)

    def binary(*parts: str) -> Any:
        grey = np.concatenate([found.parts[p][0].flatten(1).numpy() for p in parts]) / found.peak
        return (draw.random(grey.shape, np.float32) < grey).astype(np.float32)

    return what, binary("train", "valid"), binary("test")[:5000]


def held_out_likelihood(fitted: Any) -> float:
    """The mean pseudo-likelihood of what either learned, by our network in float32."""
    import numpy as np
    import torch

    from everynet.zoo.generative.rbm import BoltzmannMachine

    visible, numbers = fitted.components_.shape[1], torch.Generator().manual_seed(5)
    net = BoltzmannMachine(visible, HIDDEN)
    learned = (fitted.components_.T, fitted.intercept_visible_, fitted.intercept_hidden_)
    v = torch.from_numpy(images()[2])
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), learned, strict=True):
            parameter.copy_(torch.from_numpy(np.array(value)))
        units = torch.randint(visible, (DRAWS, len(v)), generator=numbers)
        return sum(net.pseudo_likelihood(v, unit).mean().item() for unit in units) / DRAWS


def fit_machine(make: Callable[..., Any], job: Job) -> Callable[[], Turn]:
    import time

    x = images()[1]
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter

    def fit() -> Turn:
        machine = make(
            n_components=HIDDEN, batch_size=BATCH, n_iter=PASSES, learning_rate=RATE, random_state=0
        )
        start = clock()
        machine.fit(x)
        seconds = clock() - start  # what is learned is looked at outside of the time
        return Turn(seconds, f"pseudo-likelihood {held_out_likelihood(machine):.1f}")

    return fit


def fit_with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.generative.rbm_estimator import RBM

    return fit_machine(RBM, job)


def fit_with_scikit_learn(job: Job) -> Callable[[], Turn]:
    from sklearn.neural_network import BernoulliRBM

    return fit_machine(BernoulliRBM, job)


def machines() -> list[Contestant]:
    """Ours first."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    module = "everynet.zoo.generative.rbm_estimator"
    return [
        Contestant("everynet RBM", fit_with_everynet, module, ours),
        Contestant(
            "BernoulliRBM", fit_with_scikit_learn, "sklearn.neural_network", "scikit-learn",
            reach=REACH,
        ),
    ]  # fmt: skip


def fit_machines(page: Page) -> None:
    for threads in (1, 2):
        title = f"RBM, {HIDDEN} hidden units, {threads} thread{'s' * (threads > 1)}"
        page.round(title, machines(), {"threads": threads})
    what, x, _ = images()
    page.close(
        "Restricted Boltzmann machine",
        f"{len(x):,} {what}, {PASSES} passes by batches of {BATCH}, data in float32; seconds of "
        f"`fit`; best of {page.given.repeats} alternating turns. The note is the "
        "pseudo-likelihood of 5,000 held-out images.",
        part="rbm",
    )


PARTS = {"rbm": fit_machines}


def main() -> None:
    given = arguments(__doc__.splitlines()[0], machines(), repeats=5)
    page = Page("generative", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page)


if __name__ == "__main__":
    sys.exit(main())
