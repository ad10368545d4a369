"""Memories and models that generate, beside the peers.

    python benchmarks/generative.py                   the tables of benchmarks/RESULTS.md
    python benchmarks/generative.py --part hopfield   one part
    python benchmarks/generative.py --repeats 1       a quick look, written nowhere

Hopfield: 20 random patterns of 10,000 neurons are stored, and one of them is recalled from a state
with a tenth of its bits flipped. `hopfieldnetwork` builds W, 10,000 x 10,000; ours holds the
patterns alone. To store is to go from patterns to a network that can recall. To recall is to update
all neurons at once, or one after another in sweeps, until nothing changes any more (`run_max` of
the peer); the note is the overlap with the stored pattern, which has to be 1. Ours also checks its
input as scikit-learn does.
"""

import functools
import importlib.metadata
import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

HOPFIELD = {"neurons": 10_000, "patterns": 20, "flips": 0.1}
REACH_HOPFIELD = 100.0


def ours() -> str:
    """The distribution of everynet; none where src is on the path, and that is enough."""
    try:
        return importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:
        return ""


# --------------------------------------------------------------------------------------- Hopfield


@functools.cache
def patterns_and_cue() -> tuple:
    """Patterns, row by row, and the first of them with some bits flipped; int64 arrays."""
    import numpy as np

    rng = np.random.default_rng(0)
    patterns = rng.choice([-1, 1], (HOPFIELD["patterns"], HOPFIELD["neurons"]))
    flips = rng.random(HOPFIELD["neurons"]) < HOPFIELD["flips"]
    return patterns, np.where(flips, -patterns[0], patterns[0])


def say_overlap(state: object) -> Turn:
    patterns, _ = patterns_and_cue()
    return Turn(note=f"overlap {float((state * patterns[0]).mean()):.4f}")


def hopfield_with_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.zoo.memory.hopfield import Hopfield

    patterns, cue = patterns_and_cue()
    if job["task"] == "store":

        def store() -> Turn:
            net = Hopfield().fit(patterns)
            return Turn(note=f"{net.patterns_.shape[1]:,} neurons")

        return store
    net = Hopfield(job["task"]).fit(patterns)
    net.recall(cue[None])  # compiles, or loads what was compiled
    return lambda: say_overlap(net.recall(cue[None])[0])


def hopfield_with_peer(job: Job) -> Callable[[], Turn]:
    from hopfieldnetwork import HopfieldNetwork

    patterns, cue = patterns_and_cue()

    def store() -> HopfieldNetwork:
        net = HopfieldNetwork(N=HOPFIELD["neurons"])
        net.train_pattern(patterns.T)
        return net

    if job["task"] == "store":
        return lambda: Turn(note=f"{store().N:,} neurons")
    net = store()
    mode = {"synchronous": "sync", "asynchronous": "async"}[job["task"]]

    def recall() -> Turn:
        net.set_initial_neurons_state(cue.copy())
        net.update_neurons(iterations=1, mode=mode, run_max=True)
        return say_overlap(net.S)

    return recall


def hopfields() -> list[Contestant]:
    """Ours first."""
    return [
        Contestant(
            "everynet Hopfield", hopfield_with_everynet, "everynet.zoo.memory.hopfield", ours()
        ),
        Contestant(
            "hopfieldnetwork", hopfield_with_peer, "hopfieldnetwork", "hopfieldnetwork",
            reach=REACH_HOPFIELD,
        ),
    ]  # fmt: skip


def store_and_recall(page: Page) -> None:
    for title, task in (
        ("To store", "store"),
        ("To recall, all neurons at once", "synchronous"),
        ("To recall, one neuron after another", "asynchronous"),
    ):
        for threads in (1, 2):
            job = {"task": task, "threads": threads}
            page.round(f"{title}, {threads} thread{'s' * (threads > 1)}", hopfields(), job)
    page.close(
        "Hopfield networks",
        f"{HOPFIELD['patterns']} random patterns of {HOPFIELD['neurons']:,} neurons, "
        f"{HOPFIELD['flips']:.0%} of the bits of the cue flipped; seconds, best of "
        f"{page.given.repeats} alternating turns.",
        part="hopfield",
    )


CONTESTANTS = {"hopfield": hopfields}
PARTS = {"hopfield": store_and_recall}


def main() -> None:
    everyone = [one for named in CONTESTANTS.values() for one in named()]
    given = arguments(__doc__.splitlines()[0], everyone, repeats=7)
    page = Page("generative", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            part(page)


if __name__ == "__main__":
    sys.exit(main())
