"""Spiking neurons beside the simulators people use: neurons and networks, membranes, training.

    python benchmarks/spiking.py                              the tables of benchmarks/RESULTS.md
    python benchmarks/spiking.py --part training              one of its five parts
    python benchmarks/spiking.py --repeats 1 --neurons 1000   a quick look, written nowhere

Building a model and running it are timed apart. Everyone is given the same drive and, where
neurons are joined, the same weights; a peer that would need more than 20 s does 50 steps, is scaled
and says so.
"""

import json
import sys
import tempfile
from pathlib import Path

from side_by_side import Contestant, Job, Page, arguments
from simulators import axons, decoders, neurons, populations, training

PARTS = {
    "neurons": neurons,
    "training": training,
    "axons": axons,
    "decoders": decoders,
    "populations": populations,
}


def everyone(job: Job) -> list[Contestant]:
    """The contestants of the part that a job names."""
    return PARTS[job["part"]].contestants(job)


def main() -> None:
    at = sys.argv.index("--job") + 1 if "--job" in sys.argv else 0
    told = json.loads(sys.argv[at]) if at else {"part": "neurons"}
    given = arguments(__doc__.splitlines()[0], everyone(told), repeats=3, neurons=10_000)
    page = Page("spiking", __file__, given)
    for name, part in PARTS.items():
        if given.part in ("", name):
            with tempfile.TemporaryDirectory() as folder:
                part.race(page, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
