"""Folders of photos: `photos` and `photos-vgg` beside `cnn-cifar` and a random forest on pixels.

    EVERYNET_DATA=... python benchmarks/photos.py                    every cell, one after the other
    python benchmarks/photos.py --rows cifar-200 --seeds 0,1 --out part-0.json      some of them
    python benchmarks/photos.py --join part-*.json                   the table of what was written
    python benchmarks/photos.py --development --rows cifar-1000 --contestants photos --set blocks=1

A row is a folder of PNG files, so many of each class for training and a common test folder that no
training sees: 200, 1,000 and 10,000 images of CIFAR-10 (32 x 32, colour) and of Fashion-MNIST
(28 x 28, grey), and 400 rendered shapes (48 x 48, colour) in four classes. A seed chooses the
training images and seeds the training. Every contestant is given the folder as it is, with settings
of its own; what `photos` chooses by the number of images was tried with `--development` alone, on
training images.
Minutes are those of all threads of the CPU, with `--device cpu`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

import everynet
from everynet.data.loading import samples
from side_by_side import write

TESTS = 2_000
"""Test images of a row: the first so many of the published test, or so many rendered anew."""
SHAPES = ("circle", "square", "star", "triangle")
ROWS = {
    **{f"cifar-{count}": ("cifar10-small", count) for count in (200, 1_000, 10_000)},
    **{f"fashion-{count}": ("fashion-mnist", count) for count in (200, 1_000, 10_000)},
    "shapes-400": ("shapes", 400),
}
Images = tuple[np.ndarray, np.ndarray]
"""Images (images, height, width, channels) and their classes."""
Contestant = Callable[[Path, int, str, dict[str, str]], dict[str, Any]]
"""From a folder, a seed, a device and settings to the accuracy on its test images."""


# ------------------------------------------------------------------------------------- the folders


def published(name: str) -> tuple[Images, Images, list[str]]:
    """All images for training, the first test images, and the names of the classes."""
    found = samples(name, kind="image")
    parts = {
        part: (x.permute(0, 2, 3, 1).numpy(), y.numpy()) for part, (x, y) in found.parts.items()
    }
    train = tuple(np.concatenate([parts["train"][at], parts["valid"][at]]) for at in (0, 1))
    test = tuple(array[:TESTS] for array in parts["test"])
    return train, test, [str(label).replace("/", " or ") for label in found.classes]


def choose(images: Images, count: int, seed: int) -> Images:
    """As many images of each class, `count` in all, by the seed."""
    x, y = images
    random, labels = np.random.default_rng(seed), np.unique(y)
    each = count // len(labels)
    rows = [random.permutation(np.flatnonzero(y == label))[:each] for label in labels]
    chosen = np.concatenate(rows)
    return x[chosen], y[chosen]


def render(count: int, seed: int) -> Images:
    """Coloured shapes of random place, size and turn, on a gradient with lines, dots and noise."""
    random = np.random.default_rng(seed)
    x = [draw_shape(SHAPES[number % len(SHAPES)], random) for number in range(count)]
    return np.stack(x), np.arange(count) % len(SHAPES)


def draw_shape(shape: str, random: np.random.Generator, side: int = 48) -> np.ndarray:
    """One shape among clutter."""
    across, down = np.meshgrid(*[np.linspace(-0.5, 0.5, side)] * 2)
    angle, level = random.uniform(0, 2 * math.pi), random.uniform(70, 180, 3)
    slope = random.uniform(0, 60) * (math.cos(angle) * across + math.sin(angle) * down)
    image = Image.fromarray((level + slope[..., None]).astype(np.uint8))  # height width colours
    pen = ImageDraw.Draw(image)

    def colour() -> tuple[int, ...]:
        """One that stands out from the ground by 70 levels in each channel."""
        brighter = random.random() < 0.5
        change = random.uniform(70, 110, 3) * (1 if brighter else -1)
        return tuple(int(each) for each in (level + change).clip(0, 255))

    for _ in range(4):
        pen.line([tuple(at) for at in random.uniform(0, side, (2, 2))], colour(), 1)
        left, top = random.uniform(0, side, 2)
        pen.ellipse((left, top, left + 3, top + 3), colour())
    radius = random.uniform(8, 16)
    centre = random.uniform(radius, side - radius, 2)
    turn = random.uniform(0, 2 * math.pi)
    corners = {"circle": 60, "square": 4, "star": 10, "triangle": 3}[shape]
    points = []
    for corner in range(corners):
        away = radius * (0.45 if shape == "star" and corner % 2 else 1.0)
        at = turn + 2 * math.pi * corner / corners
        points.append((centre[0] + away * math.cos(at), centre[1] + away * math.sin(at)))
    pen.polygon(points, colour())
    noisy = np.asarray(image) + random.normal(0, 12, (side, side, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def write_folder(root: Path, part: str, images: Images, classes: list[str]) -> None:
    """A PNG for each image, in the folder of its class."""
    for number, (pixels, label) in enumerate(zip(*images, strict=True)):
        folder = root / part / classes[int(label)]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(folder / f"{number:05}.png")


def make_folder(root: Path, row: str, seed: int, *, development: bool) -> None:
    """The folder of a row: train as the seed has it, test always the same.

    Settings are chosen on images that are no test images: of the training images a tenth then
    stands for the test, and seeds are others.
    """
    name, count = ROWS[row]
    if name == "shapes":
        train, test = render(count, 1_000 + seed), render(TESTS, 0)
        if development:
            train, test = render(count, 2_000 + seed), render(TESTS, 1)
        classes = list(SHAPES)
    else:
        every, test, classes = published(name)
        if development:
            order = np.random.default_rng(0).permutation(len(every[1]))
            part = len(order) // 10
            test = tuple(array[order[:part]][:TESTS] for array in every)
            every = tuple(array[order[part:]] for array in every)
            seed += 1_000
        train = choose(every, count, seed)
    write_folder(root, "train", train, classes)
    write_folder(root, "test", test, classes)


# --------------------------------------------------------------------------------- the contestants


def train(name: str) -> Contestant:
    """A recipe, with the settings it has or chooses, and those that are given."""

    def work(folder: Path, seed: int, device: str, given: dict[str, str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as out:
            recipe = everynet.recipe(name, data=str(folder), seed=seed, **given)
            result = everynet.run(recipe, out, device=device)
            chosen = json.loads((result.folder / "recipe.json").read_text())["settings"]
        names = ("size", "widths", "blocks", "steps", "batch_size", "mixup", "lr", *given)
        return {
            "accuracy": result.metrics["accuracy"],
            "settings": {name: chosen[name] for name in names if name in chosen},
        }

    return work


def forest(folder: Path, seed: int, device: str, given: dict[str, str]) -> dict[str, Any]:
    """500 trees on the pixels, as scikit-learn has them."""
    from sklearn.ensemble import RandomForestClassifier

    (x, y), (test_x, test_y) = (read_pixels(folder / part) for part in ("train", "test"))
    trees = RandomForestClassifier(500, random_state=seed).fit(x, y)
    return {"accuracy": float(trees.score(test_x, test_y))}


def read_pixels(folder: Path) -> tuple[np.ndarray, list[str]]:
    """Every image as a row, and its class."""
    paths = sorted(folder.glob("*/*.png"))
    x = np.stack([np.asarray(Image.open(path)).reshape(-1) for path in paths])
    return x, [path.parent.name for path in paths]


CONTESTANTS: dict[str, Contestant] = {
    "photos": train("photos"),
    "cnn-cifar": train("cnn-cifar"),
    "random forest": forest,
    "photos-vgg": train("photos-vgg"),
}
FINE_TUNED = ("cifar-200", "cifar-1000")
"""The rows on which training anew is compared with fine-tuning."""


def contestants(row: str, wanted: list[str]) -> Iterator[str]:
    """Those that a row has, of those wanted."""
    for name in CONTESTANTS:
        if (not wanted or name in wanted) and (name != "photos-vgg" or row in FINE_TUNED):
            yield name


def measure(row: str, name: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """One cell of the table."""
    settings = dict(pair.split("=") for pair in given.set)
    with tempfile.TemporaryDirectory() as folder:
        make_folder(Path(folder), row, seed, development=given.development)
        start, cpu = time.perf_counter(), time.process_time()
        found = CONTESTANTS[name](Path(folder), seed, given.device, settings)
        return {
            "row": row,
            "contestant": name,
            "seed": seed,
            "device": given.device,
            "development": given.development,
            **found,
            "minutes": (time.perf_counter() - start) / 60,
            "cpu_minutes": (time.process_time() - cpu) / 60,
        }


# --------------------------------------------------------------------------------------- the table


def table(cells: list[dict[str, Any]]) -> str:
    """Test accuracy by row and contestant: mean, standard error, minutes and whether it leads."""
    lines = [
        "| row | contestant | accuracy | standard error | seeds | CPU minutes | on |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        for name in CONTESTANTS:
            its = [cell for cell in cells if (cell["row"], cell["contestant"]) == (row, name)]
            if not its:
                continue
            by_seed = {cell["seed"]: cell["accuracy"] for cell in its}  # of two the later: a GPU's
            accuracies = [*by_seed.values()]
            error = (
                statistics.stdev(accuracies) / len(by_seed) ** 0.5 if len(by_seed) > 1 else math.nan
            )
            minutes = [cell["cpu_minutes"] for cell in its if cell["device"] == "cpu"]
            spent = f"{statistics.mean(minutes):.1f}" if minutes else "-"
            devices = ", ".join(sorted({cell["device"] for cell in its}))
            lines.append(
                f"| {row} | `{name}` | {statistics.mean(accuracies):.3f} | {error:.3f} "
                f"| {len(by_seed)} | {spent} | {devices} |"
            )
    return "\n".join(lines)


ABOUT = (
    "Test accuracy after training on folders of 200 to 10,000 PNG files of CIFAR-10 and "
    "Fashion-MNIST and of 400 rendered shapes; 2,000 test images that no training saw; mean and "
    "standard error over seeds, each of which chooses other training images. To reach: `photos` "
    "best or within one standard error of `cnn-cifar` and the forest in every row, and "
    "`photos-vgg` above `photos`."
)


def listed(text: str) -> list[str]:
    """Words between commas."""
    return [word for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=listed, default=list(ROWS), help=f"some of {', '.join(ROWS)}"
    )
    parser.add_argument("--contestants", type=listed, default=[], help="some of all, by name")
    parser.add_argument("--seeds", type=listed, default=["0", "1", "2"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], help="settings, such as blocks=1 lr=0.01")
    parser.add_argument("--development", action="store_true", help="on images that are no test")
    parser.add_argument("--out", type=Path, help="a JSON file, written after each cell")
    parser.add_argument("--note", help="where it was measured: writes RESULTS.md of --join")
    parser.add_argument(
        "--join", type=Path, nargs="+", help="files of --out: only prints the table"
    )
    given = parser.parse_args()
    if given.join:
        text = table([cell for path in given.join for cell in json.loads(path.read_text())])
        print(text)
        if given.note:
            write("photos", ["## Folders of photos", f"{ABOUT} {given.note}", text])
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    torch.set_num_threads(given.threads)
    cells: list[dict[str, Any]] = []
    for row in given.rows:
        for name in contestants(row, given.contestants):
            for seed in map(int, given.seeds):
                cells.append(measure(row, name, seed, given))
                print(json.dumps(cells[-1]), flush=True)
                if given.out:
                    given.out.write_text(json.dumps(cells, indent=1))
    print(table(cells))


if __name__ == "__main__":
    main()
