"""Ten tables as people have them, by the command line and by a pipeline of scikit-learn.

    python benchmarks/tables.py                     the table of benchmarks/RESULTS.md
    python benchmarks/tables.py --splits 1          a quick look, written nowhere
    python benchmarks/tables.py --part visits,rooms some of the tables, written nowhere
    python benchmarks/tables.py --keep FOLDER       goes on where it was stopped

Each table (tests/data/tables_of_faults.py) is written five times as rows to learn from and rows to
be asked about. Ours is `data check`, `run mlp`, `evaluate` and `predict` on these files as they
are. The peer is told how every file is written and what its columns are, and may choose between
early stopping and none by three-fold cross-validation on the rows it learns from.
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
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from side_by_side import ROOT, arguments, machine, write

sys.path.insert(0, str(ROOT))
from tests.data.tables_of_faults import ABSENT, SPLITS, Table, tables

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


def pipeline(table: Table, numbers: int, width: int) -> GridSearchCV:
    """Impute, encode and scale, then a network; early stopping where it is the better."""
    treated = ColumnTransformer(
        [
            (
                "numbers",
                make_pipeline(
                    SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
                ),
                [*range(numbers)],
            ),
            (
                "categories",
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                [*range(numbers, width)],
            ),
        ]
    )
    if table.task == "classification":
        network, place = MLPClassifier(max_iter=500, random_state=0), "mlpclassifier__"
    else:
        network = TransformedTargetRegressor(
            MLPRegressor(max_iter=500, random_state=0), transformer=StandardScaler()
        )
        place = "transformedtargetregressor__regressor__"
    both = {f"{place}early_stopping": [False, True]}
    return GridSearchCV(make_pipeline(treated, network), both, cv=3)


def theirs(table: Table, train: Path, test: Path) -> float:
    """100 x accuracy or R2 on the rows that were not learned from."""
    x, y, numbers = read(table, train)
    asked, right, _ = read(table, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = pipeline(table, numbers, x.shape[1]).fit(x, y)
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

    @property
    def ahead(self) -> float:
        return float(np.mean(self.ours) - np.mean(self.theirs))


def compare(table: Table, splits: int) -> Scores:
    scores = Scores([], [])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for number in range(splits):
            train, test = table.split(number)
            paths = table.write(place / "train.csv", train), table.write(place / "test.csv", test)
            scores.ours.append(ours(table, *paths, place / "runs"))
            scores.theirs.append(theirs(table, *paths))
    return scores


def kept(table: Table, splits: int, keep: Path | None) -> Scores:
    """The same, of an earlier turn where it was kept."""
    path = keep / f"{table.name}-{splits}.json" if keep else None
    if path and path.exists():
        return Scores(**json.loads(path.read_text()))
    scores = compare(table, splits)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(scores)))
    return scores


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
            lines.append(row(table, kept(table, given.splits, keep)))
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
