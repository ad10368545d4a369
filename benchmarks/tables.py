"""Ten tables as people have them, by the command line and by a pipeline of scikit-learn.

    python benchmarks/tables.py                     the table of benchmarks/RESULTS.md
    python benchmarks/tables.py --splits 1          a quick look, written nowhere
    python benchmarks/tables.py --part visits,rooms some of the tables, written nowhere
    python benchmarks/tables.py --keep FOLDER       goes on where it was stopped

Each table (tests/data/tables_of_faults.py) is written five times as rows to learn from and rows to
be asked about. Ours is `data check`, `run mlp`, `evaluate` and `predict` on these files as they
are. The peer is told how every file is written and what its columns are, and chooses between early
stopping and none for each table, by three-fold cross-validation on the rows it learns from first.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from side_by_side import ROOT, arguments, machine, write

sys.path.insert(0, str(ROOT))
from tests.data.tables.faults import ABSENT, SPLITS, Table, tables

from everynet.cli import VERBS, main

REACH = -2.0  # points


# ------------------------------------------------------------------------------- scikit-learn's


def read(table: Table, path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """The numbers and then the categories of a file, its target, and how many are numbers."""
    with path.open(encoding=table.encoding, newline="") as stream:
        rows = [*csv.reader(stream, delimiter=table.separator)][1:]
    numbers, categories, y = [], [], []
    for cells in rows:
        of_row: dict[str, list] = {form: [] for form in "ncdt-"}
        for form, cell in zip(table.forms, cells, strict=True):
            of_row[form].append(cell)
        values = [math.nan if c in ABSENT else number(table, c) for c in of_row["n"]]
        for cell in of_row["d"]:
            when = datetime.strptime(cell, table.dates)
            values += [when.year, when.month, when.weekday(), when.hour + when.minute / 60]
        numbers.append(values)
        categories.append(["missing" if c in ABSENT else c for c in of_row["c"]])
        (target,) = of_row["t"]
        y.append(target if table.task == "classification" else number(table, target))
    x = [np.array(numbers, object), np.array(categories, object).reshape(len(rows), -1)]
    return np.hstack(x), np.array(y), len(numbers[0])


def number(table: Table, cell: str) -> float:
    return float(cell.replace(table.decimal, "."))


def pipeline(table: Table, numbers: int, width: int, early: bool) -> Pipeline:
    """Impute, encode and scale, then a network."""
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    encoded = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    treated = ColumnTransformer(
        [
            ("numbers", scaled, [*range(numbers)]),
            ("categories", encoded, [*range(numbers, width)]),
        ]
    )
    given = {"max_iter": 500, "random_state": 0, "early_stopping": early}
    if table.task == "classification":
        return make_pipeline(treated, MLPClassifier(**given))
    network = TransformedTargetRegressor(MLPRegressor(**given), transformer=StandardScaler())
    return make_pipeline(treated, network)


def better_early(table: Table, train: Path) -> bool:
    """Whether early stopping is the better, on the rows that are learned from alone."""
    x, y, numbers = read(table, train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain, early = (
            cross_val_score(pipeline(table, numbers, x.shape[1], early), x, y, cv=3).mean()
            for early in (False, True)
        )
    return bool(early > plain)


def theirs(table: Table, train: Path, test: Path, early: bool) -> float:
    """100 x accuracy or R2 on the rows that were not learned from."""
    x, y, numbers = read(table, train)
    asked, right, _ = read(table, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = pipeline(table, numbers, x.shape[1], early).fit(x, y)
    return 100 * float(fitted.score(asked, right))


# ----------------------------------------------------------------------------------------- ours


def command(*words: object) -> str:
    """What a command prints; it must end well."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main([str(word) for word in words])
    if code:
        line = " ".join(map(str, words))
        sys.exit(f"everynet {line} ended in {code}:\n{out.getvalue()}{said.getvalue()}")
    return out.getvalue()


def ours(table: Table, train: Path, test: Path, out: Path) -> float:
    """The same, by the command line alone."""
    settings = [f"target={table.target}", *table.settings]
    command("data", "check", train, *settings)
    run = command("run", "mlp", f"data={train}", *settings, "--out", out, "--quiet").strip()
    answers = [json.loads(line) for line in command("predict", run, test).splitlines()]
    _, right, _ = read(table, test)
    if table.task == "classification":
        name = "accuracy"
        score = float(np.mean([a["class"] == y for a, y in zip(answers, right, strict=True)]))
    else:
        name, score = "r2", float(r2_score(right, [a["value"] for a in answers]))
    if "evaluate" in VERBS:
        judged = json.loads(command("evaluate", run, f"data={test}", "--json"))[name]
        if abs(judged - score) > 1e-4:
            sys.exit(f"{table.name}: evaluate says {judged}, and what predict says gives {score}")
    return 100 * score


# ------------------------------------------------------------------------------------ the table


@dataclass
class Scores:
    """What both reached, a figure a split."""

    ours: list[float]
    theirs: list[float]
    early: bool | None = None
    """Whether the peer stops early; not known yet."""

    @property
    def ahead(self) -> float:
        return float(np.mean(self.ours) - np.mean(self.theirs))


def compare(table: Table, splits: int, keep: Path | None) -> Scores:
    """Split by split, from where an earlier turn was stopped."""
    kept = keep / f"{table.name}.json" if keep else None
    scores = Scores(**json.loads(kept.read_text())) if kept and kept.exists() else Scores([], [])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number in range(len(scores.ours), splits):
            train, test = table.split(number)
            paths = table.write(place / "train.csv", train), table.write(place / "test.csv", test)
            if scores.early is None:
                scores.early = better_early(table, paths[0])
            scores.ours.append(ours(table, *paths, place / "runs"))
            scores.theirs.append(theirs(table, *paths, scores.early))
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(asdict(scores)))
    return Scores(scores.ours[:splits], scores.theirs[:splits], scores.early)


def row(table: Table, scores: Scores) -> str:
    what = "accuracy" if table.task == "classification" else "R2"
    size = f"{len(table.rows):,} x {len(table.header) - 1}"
    columns = [table.name, size, table.faults, what]
    columns += [f"{np.mean(of):.2f} ± {np.std(of):.2f}" for of in (scores.ours, scores.theirs)]
    reached = "reached" if scores.ahead >= REACH else "**not reached**"
    return f"| {' | '.join(columns)} | {scores.ahead:+.2f} | {reached} |"


def compared() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--keep", type=Path)
    keep, sys.argv[1:] = parser.parse_known_args()[0].keep, parser.parse_known_args()[1]
    given = arguments(__doc__.partition("\n")[0], [], repeats=1, splits=SPLITS)
    wanted = given.part.split(",") if given.part else [table.name for table in tables()]
    lines = [
        "| table | rows x columns | faults | figure | everynet | scikit-learn | ahead | to reach |",
        "|---" * 8 + "|",
    ]
    print("\n".join(lines), flush=True)
    for table in tables():
        if table.name in wanted:
            lines.append(row(table, compare(table, given.splits, keep)))
            print(lines[-1], flush=True)
    verbs = "`data check`, `run mlp`, `evaluate` and `predict`"
    if "evaluate" not in VERBS:
        verbs = "`data check`, `run mlp` and `predict`"
    about = (
        f"Accuracy in per cent, or 100 x R2, on a fifth of the rows that nothing was learned from: "
        f"mean and deviation of {SPLITS} splits, the same for both. Ours is {verbs}, default "
        "settings, without an edit of the files; of the rows it is given it trains on 72 %, and "
        "keeps the others to choose the weights and for a test of its own. scikit-learn is told "
        "how each file is written and what its columns are (impute with an indicator, one-hot, "
        "scale, its MLP with max_iter 500, early stopping or none by three-fold cross-validation) "
        f"and trains on all of them. To reach: at most {-REACH:.0f} points below on each."
    )
    if given.whole and not given.part:
        parts = [f"{about}\n\n{machine(Path(sys.executable))}", "\n".join(lines)]
        write("tables", ["## Tables as people have them", *parts])
    else:
        print(f"\n{about}\n\nA short run: benchmarks/RESULTS.md was left as it was.")


if __name__ == "__main__":
    compared()
