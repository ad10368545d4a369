"""Ten tables as people have them: four of scikit-learn's, and six with the faults of real files.

Each is written as two csv files, rows to learn from and rows to be asked about, five times over.
The same numbers come out every time: all that is drawn follows from a seed.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from sklearn import datasets

SPLITS = 5
ABSENT = ("", "NA", "n/a", "NaN", "NULL", "?")
"""How people write that a value is not known."""


@dataclass(frozen=True)
class Table:
    """Cells as text, and how they are written."""

    name: str
    header: Sequence[str]
    forms: str
    """A letter a column: number, category, date, what is left out (-) or the target."""
    rows: Sequence[Sequence[str]]
    task: str = "classification"
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    dates: str = "%Y-%m-%d %H:%M"
    faults: str = "none"
    settings: tuple[str, ...] = ()
    """What else a user says of it."""

    @property
    def target(self) -> str:
        return self.header[self.forms.index("t")]

    def write(self, path: Path, rows: Sequence[int]) -> Path:
        with path.open("w", encoding=self.encoding, newline="") as stream:
            writer = csv.writer(stream, delimiter=self.separator)
            writer.writerow(self.header)
            writer.writerows(self.rows[row] for row in rows)
        return path

    def split(self, number: int) -> tuple[list[int], list[int]]:
        """The rows that are learned from and a fifth that is not, of each class."""
        random = np.random.default_rng([number, len(self.rows)])
        at = self.forms.index("t")
        groups: dict[str, list[int]] = {}
        for row, cells in enumerate(self.rows):
            groups.setdefault(cells[at] if self.task == "classification" else "", []).append(row)
        test: set[int] = set()
        for members in groups.values():
            test |= {*random.permutation(members)[: round(len(members) / 5)].tolist()}
        everything = range(len(self.rows))
        return [r for r in everything if r not in test], [r for r in everything if r in test]


def tables() -> list[Table]:
    """All ten."""
    return [make() for make in MAKERS]


def text(values: np.ndarray, digits: int = 3, decimal: str = ".") -> list[str]:
    return [f"{value:.{digits}f}".replace(".", decimal) for value in values]


def with_gaps(cells: list[str], random: np.random.Generator, share: float) -> list[str]:
    """Some of the cells are not known, and each says so in its own way."""
    gone = random.random(len(cells)) < share
    return [str(random.choice(ABSENT)) if g else c for c, g in zip(cells, gone, strict=True)]


# ---------------------------------------------------------------------------- scikit-learn's own


def known(name: str) -> Callable[[], Table]:
    def make() -> Table:
        found = getattr(datasets, f"load_{name}")()
        real = name == "diabetes"
        words = found.target if real else [str(found.target_names[y]) for y in found.target]
        rows = [
            [*(repr(float(v)) for v in x), str(y)] for x, y in zip(found.data, words, strict=True)
        ]
        names = [str(column) for column in found.feature_names]
        task = "regression" if real else "classification"
        return Table(name, [*names, "target"], "n" * len(names) + "t", rows, task=task)

    return make


# ------------------------------------------------------------------------------- made with faults


def machines() -> Table:
    """What a spreadsheet north of the Alps writes."""
    random, n = np.random.default_rng(1), 1200
    length, width = random.gamma(4, 30, n), random.normal(20, 4, n)
    sort = random.choice(["Säge", "Bohrer", "Fräse", "Größe 4"], n, p=[0.4, 0.3, 0.2, 0.1])
    by_sort = {"Säge": 0.0, "Bohrer": 25.0, "Fräse": 60.0, "Größe 4": -20.0}
    price = 1000 + 2.5 * length + 0.06 * length * width + np.array([by_sort[s] for s in sort])
    price += random.normal(0, 15, n)
    columns = [text(length, 2, ","), text(width, 3, ","), sort.tolist(), text(price, 2, ",")]
    return Table(
        "machines",
        ["Länge", "Breite", "Gerät", "Preis"],
        "nnct",
        [*zip(*columns, strict=True)],
        task="regression",
        separator=";",
        decimal=",",
        encoding="latin-1",
        faults="semicolons, decimal commas, latin-1",
    )


def shops() -> Table:
    """Many places, most of them rare: among the rows asked about are some never seen."""
    random, n = np.random.default_rng(2), 1500
    number = np.minimum(random.zipf(1.4, n), 2000)
    effect = random.normal(0, 1.2, 2001)
    size, age = random.normal(0, 1, n), random.exponential(1, n)
    colour = random.choice(["red", "green", "blue"], n)
    score = effect[number] + size - 0.8 * age + 1.5 * (colour == "red") * size
    bought = score + random.logistic(0, 0.5, n) > 0
    columns = [
        [f"shop {k}" for k in number],
        text(size),
        text(age),
        colour.tolist(),
        ["yes" if b else "no" for b in bought],
    ]
    header = ["shop", "size", "age", "colour", "bought"]
    rows = [*zip(*columns, strict=True)]
    return Table("shops", header, "cnnct", rows, faults="categories never seen before")


def patients() -> Table:
    """Much is not known, and that it is not known tells something."""
    random, n = np.random.default_rng(3), 1400
    x = random.normal(0, 1, (n, 5))
    ward = random.choice(["A", "B", "C"], n)
    score = np.stack(
        [x[:, 0] + x[:, 1] * x[:, 2], 1.2 * x[:, 3] + (ward == "B"), 0.5 - x[:, 0] * x[:, 4]], 1
    )
    state = (score + random.gumbel(0, 0.3, (n, 3))).argmax(1)
    columns = [
        with_gaps(text(10 * x[:, k] + 50, 1), random, share)
        for k, share in enumerate((0.05, 0.1, 0.02, 0.2, 0.0))
    ]
    columns += [
        with_gaps(ward.tolist(), random, 0.15),
        [("well", "ill", "unclear")[k] for k in state],
    ]
    return Table(
        "patients",
        ["pulse", "pressure", "warmth", "sugar", "weight", "ward", "state"],
        "nnnnnct",
        [*zip(*columns, strict=True)],
        separator="\t",
        faults="missing values in six spellings, tabs",
    )


def visits() -> Table:
    """A day and an hour, beside a number of the row and a column that never changes."""
    random, n = np.random.default_rng(4), 2500
    begin = datetime(2021, 1, 1)
    when = [begin + timedelta(minutes=int(m)) for m in random.integers(0, 3 * 365 * 24 * 60, n)]
    warm = random.normal(12, 6, n)
    hour = np.array([w.hour + w.minute / 60 for w in when])
    free = np.array([w.weekday() >= 5 for w in when])
    month = np.array([w.month for w in when])
    count = 40 + 30 * np.sin((hour - 8) / 24 * 2 * np.pi) + 25 * free + 2 * warm
    count += 8 * np.cos((month - 7) / 12 * 2 * np.pi) + random.normal(0, 6, n)
    columns = [
        [str(100_000 + k) for k in random.permutation(n)],
        [w.strftime("%d.%m.%Y %H:%M") for w in when],
        text(warm, 1),
        ["Bern"] * n,
        text(count, 1),
    ]
    return Table(
        "visits",
        ["id", "when", "warmth", "town", "visits"],
        "-dn-t",
        [*zip(*columns, strict=True)],
        task="regression",
        separator="|",
        dates="%d.%m.%Y %H:%M",
        faults="dates with times, an id, a constant column, bars",
        settings=("drop=id,town",),
    )


def frauds() -> Table:
    """One class in twenty-five rows, told by two numbers together."""
    random, n = np.random.default_rng(5), 3000
    x = random.normal(0, 1, (n, 6))
    bad = random.random(n) < 0.04
    x[bad, 0] += 2.0
    x[bad, 1] *= 3.0
    land = np.where(bad & (random.random(n) < 0.5), "XX", random.choice(["CH", "DE", "FR"], n))
    columns = [[f"c{k:05}" for k in range(n)], *(text(column) for column in x.T)]
    columns += [land.tolist(), ["1" if b else "0" for b in bad]]
    return Table(
        "frauds",
        ["card", *(f"v{k}" for k in range(1, 7)), "land", "fraud"],
        "-nnnnnnct",
        [*zip(*columns, strict=True)],
        faults="4 % of one class, a name in every row",
        settings=("drop=card",),
    )


def rooms() -> Table:
    """A whole number is to be learned as a number; names hold commas; a mark begins the file."""
    random, n = np.random.default_rng(6), 1600
    area, storeys = random.gamma(6, 20, n), random.integers(1, 5, n)
    heating = random.choice(["gas", "oil, old", "none"], n, p=[0.5, 0.3, 0.2])
    count = 1 + area / 22 + 0.9 * storeys + 1.5 * (heating == "gas") + random.normal(0, 0.5, n)
    columns = [
        text(area, 1),
        storeys.astype(str).tolist(),
        heating.tolist(),
        [str(k) for k in np.maximum(1, np.round(count)).astype(int)],
    ]
    return Table(
        "rooms",
        ["area, in m2", "storeys", 'heating "kind"', "rooms"],
        "nnct",
        [*zip(*columns, strict=True)],
        task="regression",
        encoding="utf-8-sig",
        faults="whole numbers to be learned, commas in names, a byte order mark",
        settings=("task=regression",),
    )


MAKERS = (
    *(known(name) for name in ("iris", "breast_cancer", "diabetes", "digits")),
    *(machines, shops, patients, visits, frauds, rooms),
)
