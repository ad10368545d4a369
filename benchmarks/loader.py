"""A torch Dataset through a DataLoader: the same figures as the folder it reads, at what speed.

    python benchmarks/loader.py FOLDER                 50,000 of 32 x 32, made once in FOLDER
    python benchmarks/loader.py FOLDER --images 2000   a quick look, written nowhere

The images of a folder are read by a Dataset through a DataLoader with two workers. Without random
changes, in the order of our own batches, every batch and every metric must be that of the folder
itself. With them (a crop and a mirror by the workers) three epochs are timed beside a plain loop
over the same DataLoader, with the same network and optimiser, taking turns in one process.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from side_by_side import machine, write

IMAGES = 50_000
SIDE, CLASSES, BATCH, WORKERS, EPOCHS, TURNS = 32, 10, 128, 2, 3, 2


def make(folder: Path, images: int) -> Path:
    """Seeded PNGs: a coarse pattern of the class, some grain."""
    from PIL import Image

    place = folder / f"png-{images}"
    done = folder / f"png-{images}.done"
    if done.exists():
        return place
    for label in range(CLASSES):
        (place / f"class-{label}").mkdir(parents=True, exist_ok=True)

    def one(number: int) -> None:
        random = np.random.default_rng(number)
        coarse = np.random.default_rng(number % CLASSES).integers(0, 200, (4, 4, 3))
        image = np.kron(coarse, np.ones((SIDE // 4, SIDE // 4, 1), int))
        grain = random.integers(0, 56, (SIDE, SIDE, 3))
        path = place / f"class-{number % CLASSES}" / f"{number:06}.png"
        Image.fromarray((image + grain).astype(np.uint8)).save(path)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(images)))
    done.touch()
    return place


# ------------------------------------------------------------------- in a process of its own


def files(place: Path) -> dict[str, list[tuple[Path, int]]]:
    """The files of each part, as our own split of the folder has them."""
    from everynet.data.images.folder import class_files, complete, named
    from everynet.data.images.skipped import Tally

    found = {"train": [*class_files(place, Tally(place, strict=True))]}
    parts, _ = complete(found, False, lambda item: named(item[1], [place]), "file")
    return {n: [(path, int(label[-1])) for label, path in its] for n, its in parts.items()}


def dataset(pairs: list[tuple[Path, int]], augmented: bool = False):
    import torch
    from PIL import Image
    from torch.utils.data import Dataset

    class Pictures(Dataset):
        def __len__(self) -> int:
            return len(pairs)

        def __getitem__(self, number: int):
            path, label = pairs[number]
            with Image.open(path) as image:
                x = torch.from_numpy(np.array(image)).permute(2, 0, 1)
            if augmented:
                x = torch.nn.functional.pad(x, (4, 4, 4, 4))
                top, left = torch.randint(9, (2,)).tolist()
                x = x[:, top : top + SIDE, left : left + SIDE]
                x = x.flip(2) if torch.rand(()) < 0.5 else x
            return x.contiguous(), label

    return Pictures()


def recipe(steps: int, **fields):
    from dataclasses import dataclass

    from torch import nn

    from everynet.zoo.vision.classifier import ImageClassification

    @dataclass(frozen=True, kw_only=True)
    class Small(ImageClassification[nn.Sequential]):
        def model(self, data):
            return network()

    return Small(name="small", batch_size=BATCH, steps=steps, eval_every=steps, lr=1e-3, **fields)


def network():
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES)),
    )


class Ours:
    """The order of our own batches, epoch after epoch."""

    def __init__(self, rows: int) -> None:
        self.rows, self.epoch = rows, -1

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        from everynet.data.draws import permutation

        self.epoch += 1
        return iter(permutation(self.rows, 0, self.epoch).tolist())


def figures(place: Path) -> dict[str, float]:
    """How many batches and metrics differ between the folder and its Dataset."""
    import torch
    from torch.utils.data import DataLoader

    import everynet
    from everynet.data.in_memory import given, holding

    parts = files(place)
    steps = 2 * (len(parts["train"]) // BATCH)

    def data() -> dict[str, object]:
        rows = dataset(parts["train"])
        train = DataLoader(rows, BATCH, sampler=Ours(len(rows)), num_workers=WORKERS)
        return {"train": train, **{n: dataset(parts[n]) for n in ("valid", "test")}}

    folder = recipe(steps, data=str(place)).dataset()
    held = given(data())
    with holding(held):
        fed = recipe(steps, data=held.name).dataset()
    differ, unseen = 0, torch.Generator()  # nothing is drawn from it
    with fed.feed() as stored:
        for step in range(steps):
            mine, its = fed.changed(stored(step), unseen), folder.train(step)
            differ += not all(map(torch.equal, mine, its))
    with tempfile.TemporaryDirectory() as out:
        both = [everynet.run(recipe(steps), out, data=one).metrics for one in (place, data())]
    other = sum(value != both[1][name] for name, value in both[0].items())
    return {"batches": steps, "differ": differ, "metrics": other}


def speed(place: Path) -> dict[str, list[float]]:
    """Images a second of three epochs with random changes, by turns."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    from everynet.data.in_memory import given, holding
    from everynet.training.device import choose, computing
    from everynet.training.loop import begin, train

    parts = files(place)
    rows = dataset(parts["train"], augmented=True)
    steps = EPOCHS * (len(rows) // BATCH)

    def loader() -> DataLoader:
        return DataLoader(rows, BATCH, shuffle=True, drop_last=True, num_workers=WORKERS)

    def plain() -> None:
        model = network().to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        batches = loader()
        for _ in range(EPOCHS):
            for pixels, y in batches:
                x = pixels.float().div_(255).sub_(0.5).div_(0.25)
                loss = cross_entropy(model(x.to(memory_format=torch.channels_last)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def ours() -> None:
        others = {n: dataset(parts[n][:BATCH]) for n in ("valid", "test")}
        held = given({"train": loader(), **others})  # which reads the first samples ahead
        with holding(held):
            small = recipe(steps, data=held.name)
            data = small.dataset()
            for _ in train(small, begin(small, data), data):
                pass

    rates: dict[str, list[float]] = {"plain loop": [], "everynet": []}
    with computing(choose("cpu")):
        for _ in range(TURNS):
            for name, work in (("plain loop", plain), ("everynet", ours)):
                begun = time.perf_counter()
                work()
                rates[name].append(steps * BATCH / (time.perf_counter() - begun))
    return rates


# --------------------------------------------------------------------------------- the table


def measured(what: str, folder: Path, images: int) -> dict:
    command = [sys.executable, __file__, str(folder), "--images", str(images), "--do", what]
    here = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, env=here, check=True, stdout=subprocess.PIPE, text=True)
    found: dict = json.loads(said.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--do", choices=("figures", "speed"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    place = make(asked.folder, asked.images)
    if asked.do:
        print(json.dumps(globals()[asked.do](place)))
        return
    same = measured("figures", asked.folder, asked.images)
    rows = [
        (
            "batches of two epochs that differ from those of the folder",
            f"{same['differ']}",
            f"of {same['batches']}",
        ),
        ("metrics on test unlike those of the folder", f"{same['metrics']}", ""),
    ]
    rates = measured("speed", asked.folder, asked.images)
    for name, values in rates.items():
        spread = f"median {statistics.median(values):,.0f}, {len(values)} turns"
        rows.append((f"images a second, {name}", f"{max(values):,.0f}", spread))
    ratio = max(rates["everynet"]) / max(rates["plain loop"])
    rows.append(("everynet / plain loop", f"{ratio:.3f}", "best of each; level is 1"))
    about = (
        f"{asked.images:,} PNGs of {SIDE} x {SIDE}, batches of {BATCH}, {WORKERS} workers, one "
        "thread; the time of ours includes what it reads ahead and its own description of the data."
    )
    body = [f"| {' | '.join(row)} |" for row in (("what", "figure", ""), ("---",) * 3, *rows)]
    table, where = "\n".join(body), machine(Path(sys.executable))
    print(about, table, where, sep="\n\n")
    if asked.images == IMAGES:
        write("loader", ["## A Dataset through a DataLoader", about, table, where])


if __name__ == "__main__":
    main()
