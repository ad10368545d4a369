"""A folder of many images: how fast it starts, how much memory it takes, how fast it feeds.

    python benchmarks/large.py FOLDER                 20,000 of 256 x 256, made once in FOLDER
    python benchmarks/large.py FOLDER --images 2000   a quick look, written nowhere

First start (files read and decoded into a cache inside FOLDER), second start, the most memory of
its own (RssAnon) that a whole run takes with its evaluations and pictures, and updates a second of
a small convolutional network on one thread, fed from the mapped file and from the same pixels in
memory, taking turns. Every row is measured in a process of its own.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from side_by_side import machine, write

IMAGES = 20_000
SIDE, CLASSES, BATCH = 256, 10, 64


def make(folder: Path, images: int) -> Path:
    """Seeded JPEGs: a coarse pattern of the class, some grain."""
    import numpy as np
    from PIL import Image

    place = folder / f"jpeg-{images}"
    done = place / ".done"
    if done.exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    for label in range(CLASSES):
        (place / f"class-{label}").mkdir(parents=True)

    def one(number: int) -> None:
        random = np.random.default_rng(number)
        coarse = random.integers(0, 200, (8, 8, 3), dtype=np.uint8)
        coarse[number % CLASSES % 8] = 255
        image = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        grain = random.integers(0, 32, (SIDE, SIDE, 1), dtype=np.uint8)
        path = place / f"class-{number % CLASSES}" / f"{number:06}.jpg"
        Image.fromarray((image // 2 + 64 + grain).astype(np.uint8)).save(path, quality=85)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(images)))
    time.sleep(2.5)  # what was written just now is not remembered
    done.touch()
    return place


# ------------------------------------------------------------------- in a process of its own


def lowered(images: int) -> None:
    """Let a quick look take the same path: images are kept in a file however few they are."""
    from everynet.data.images import decoded_cache as decoded

    decoded.LARGE = min(decoded.LARGE, images * 3 * SIDE * SIDE)


def start(place: Path) -> dict[str, float]:
    from everynet.data import load

    begun = time.perf_counter()
    data = load(place, kind="image", batch_size=BATCH)
    assert data.mapped
    return {"load": time.perf_counter() - begun}


def recipe(place: Path, steps: int):
    from dataclasses import dataclass

    from torch import nn

    from everynet.zoo.vision.classifier import ImageClassification

    @dataclass(frozen=True, kw_only=True)
    class Small(ImageClassification[nn.Sequential]):
        def model(self, data):
            return nn.Sequential(
                *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU()),
                *(nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
                *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES)),
            )

    return Small(data=str(place), batch_size=BATCH, steps=steps, eval_every=steps, lr=1e-3)


def memory(place: Path, steps: int = 40) -> dict[str, float]:
    """The peak of RssAnon over a whole run."""
    import tempfile

    from everynet.runs.verbs import run

    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            lines = Path("/proc/self/status").read_text().splitlines()
            most = max(most, *(int(line.split()[1]) for line in lines if "RssAnon" in line))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with tempfile.TemporaryDirectory() as out:
            run(recipe(place, steps), out, device="cpu")
    finally:
        over.set()
        watcher.join()
    return {"rss_anon": most * 1024}


def speed(place: Path, steps: int = 15, turns: int = 4) -> dict[str, list[float]]:
    """Updates a second, by turns."""
    from dataclasses import replace

    from everynet.training.device import choose, computing
    from everynet.training.loop import begin, train

    small = recipe(place, steps)
    mapped = small.dataset()
    rows = {part: tuple(t.clone() for t in tensors) for part, tensors in mapped.splits.items()}
    sets = {"mapped": mapped, "memory": replace(mapped, splits=rows, mapped=False)}
    rates: dict[str, list[float]] = {name: [] for name in sets}
    with computing(choose("cpu")):
        for turn in range(turns + 1):
            for name, data in sets.items():
                state = begin(small, data)
                begun = time.perf_counter()
                for _ in train(small, state, data):
                    pass
                if turn:  # the first is to warm up
                    rates[name].append(steps / (time.perf_counter() - begun))
    return rates


# --------------------------------------------------------------------------------- the table


def measured(what: str, place: Path, images: int, cache: Path) -> tuple[dict, float]:
    """What a fresh process found, and the seconds it took in all."""
    here = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(place), "--images", str(images), "--do", what]
    begun = time.perf_counter()
    said = subprocess.run(command, env=here, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(said.stdout.splitlines()[-1]), time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--do", choices=("start", "memory", "speed"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.do:
        lowered(given.images)
        print(json.dumps(globals()[given.do](given.folder)))
        return
    place = make(given.folder, given.images)
    cache = given.folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    work = place, given.images, cache
    rows = []
    for name in ("first start", "second start"):
        found, whole = measured("start", *work)
        rows.append((name, f"{whole:.1f} s", f"of which load {found['load']:.2f} s"))
    found, _ = measured("memory", *work)
    rows.append(("most RssAnon of a run", f"{found['rss_anon'] / 1e9:.2f} GB", "limit 1.5 GB"))
    rates, _ = measured("speed", *work)
    for name, values in rates.items():
        spread = f"median {statistics.median(values):.2f}, {len(values)} turns"
        rows.append((f"updates a second, {name}", f"{max(values):.2f}", spread))
    ratio = max(rates["mapped"]) / max(rates["memory"])
    rows.append(("mapped / memory", f"{ratio:.3f}", "best of each"))
    size = given.images * 3 * SIDE * SIDE / 1e9
    about = (
        f"{given.images:,} JPEGs of {SIDE} x {SIDE}, {size:.2f} GB of pixels, batches of {BATCH}, "
        "one thread, every row by a fresh process; a start is that of the whole process."
    )
    table = "\n".join(["| what | figure | |", "|---" * 3 + "|", *map(line, rows)])
    where = machine(Path(sys.executable))
    print(about, table, where, sep="\n\n")
    if given.images == IMAGES:
        write("large", ["## Large sets", about, table, where])


def line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


if __name__ == "__main__":
    main()
