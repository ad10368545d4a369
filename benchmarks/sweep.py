"""Twenty-four trainings of a sweep by two processes, and by one after the other.

    python benchmarks/sweep.py                             the table of benchmarks/RESULTS.md
    python benchmarks/sweep.py --steps 100 --repeats 1     a quick look, written nowhere

Six learning rates with four seeds each of the multilayer perceptron on the digits, one thread in
every process. The time is that of the whole command: starting the two processes, which import torch
once each, data, training, evaluations, checkpoints, table and picture.
"""

import sys
import tempfile
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

RATES = [0.0003, 0.001, 0.002, 0.003, 0.005, 0.01]
SEEDS = 4
REACH = 2 / 1.15  # within 15 % of half the time


def with_jobs(jobs: int) -> Callable[[Job], Callable[[], object]]:
    """The sweep by so many processes."""

    def prepare(job: Job) -> Callable[[], object]:
        import everynet

        def work() -> Turn:
            with tempfile.TemporaryDirectory() as out:
                result = everynet.sweep(
                    "mlp",
                    lr=RATES,
                    steps=job["steps"],
                    seeds=SEEDS,
                    jobs=jobs,
                    out=out,
                    device="cpu",
                )
            return Turn(note=f"best {result.metrics['best_accuracy']:.4f}")  # the same for both

        return work

    return prepare


CONTESTANTS = [
    Contestant("everynet sweep --jobs 2", with_jobs(2), "everynet.runs"),
    Contestant("everynet sweep --jobs 1", with_jobs(1), "everynet.runs", reach=REACH),
]


def main() -> None:
    given = arguments(__doc__.splitlines()[0], CONTESTANTS, repeats=1, steps=12_000)
    page = Page("sweep", __file__, given)
    cells = len(RATES) * SEEDS
    job = {"steps": given.steps, "threads": 1}
    page.round(f"{cells} trainings of {given.steps:,} steps, one thread each", CONTESTANTS, job)
    page.close(
        "A sweep by two processes",
        f"{cells} trainings of `mlp` on the digits; best of {given.repeats} alternating turns. To "
        f"reach: two processes within 15 % of half the time of one, a ratio of {REACH:.2f}.",
    )


if __name__ == "__main__":
    sys.exit(main())
