"""Thirteen tables as people have them, by the command line and by pipelines of scikit-learn.

    python benchmarks/tables.py                     the table of benchmarks/RESULTS.md
    python benchmarks/tables.py --splits 1          a quick look, written nowhere
    python benchmarks/tables.py --part visits,rooms some of the tables, written nowhere
    python benchmarks/tables.py --keep FOLDER       goes on where it was stopped

Each table (ten of tests/data/tables/faults.py, and three made here: two with sentences, two with a
rare class) is written five times as rows to learn from and rows to be asked about. Ours is `data
check`, `run mlp`, `evaluate` and `predict` on these files as they are. The peer is told how every
file is written and what its columns are, and chooses between early stopping and none for each
table, by three-fold cross-validation on the rows it learns from first.

A run also measures baselines on its own columns and its own test split, and says first which of
them does better. Both are looked at here: by how much ours is behind the better of the linear model
and boosted trees, and whether summary and card of each run begin with the one that does better.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from side_by_side import ROOT, arguments, machine, write

sys.path.insert(0, str(ROOT))
from tests.data.tables.faults import ABSENT, SPLITS, Table, tables, text

from everynet.cli import main
from everynet.runs.baselines import KINDS

REACH = -2.0  # points
ENOUGH = 9  # tables of thirteen on which ours is within that of both baselines
RARE = ("frauds", "churn")
"""Tables on which accuracy says little: the area under the ROC curve stands for it."""


# --------------------------------------------------------------------------- three more tables


def reviews() -> Table:
    """Sentences decide, and now and then what was paid."""
    random, n = np.random.default_rng(7), 2000
    words = (
        "sturdy reliable comfortable quick quiet bright accurate elegant durable generous",
        "flimsy noisy broken slow scratched leaking misleading cramped faulty brittle",
        "handle battery screen zip cushion lens motor cable box strap lid charger",
    )
    praise, blame, things = (line.split() for line in words)
    opening = [
        "Bought it for my son",
        "Arrived on Monday",
        "Second one we own",
        "Used it daily",
        "A gift for a friend",
        "Ordered after long research",
        "Replaced an older model",
    ]
    liked, rows = random.normal(0, 1, n), []
    price, days = random.gamma(3, 20, n), random.integers(1, 15, n)
    for k in range(n):
        said = []
        for _ in range(random.integers(2, 5)):
            good = liked[k] + random.normal(0, 0.8) > 0
            word, thing = str(random.choice(praise if good else blame)), random.choice(things)
            turned = random.random() < 0.1  # a denial says the opposite
            word = f"not {random.choice(blame if good else praise)}" if turned else word
            said.append(f"the {thing} is {word}")
        sentence = f"{random.choice(opening)}, {', '.join(said[:-1])} and {said[-1]}."
        again = liked[k] - 0.006 * (price[k] - 60) - 0.05 * (days[k] - 7) + random.normal(0, 0.3)
        shop = str(random.choice(["web", "store", "phone"]))
        rows.append([sentence, f"{price[k]:.2f}", str(days[k]), shop, "yes" if again > 0 else "no"])
    header = ["review", "price", "days to deliver", "shop", "buys again"]
    return Table("reviews", header, "wnnct", rows, faults="sentences")


def churn() -> Table:
    """Four in a hundred leave: who is new, pays much and may leave, or calls often."""
    random, n = np.random.default_rng(8), 4000
    months, fee = random.exponential(24, n), random.normal(60, 18, n)
    calls, usage = random.poisson(1.2, n), random.gamma(3, 4, n)
    contract = random.choice(["monthly", "one year", "two years"], n, p=[0.5, 0.3, 0.2])
    payment = random.choice(["card", "transfer", "bill"], n)
    free = contract == "monthly"
    score = -4.75 + 2.2 * free * (months < 12) * (fee > 65) + 0.7 * np.maximum(calls - 2, 0)
    score += 1.3 * free - 0.02 * months + 0.8 * ((payment == "bill") & (usage < 6))
    leaves = random.random(n) < 1 / (1 + np.exp(-score))
    columns = [
        text(months, 0),
        text(fee, 2),
        calls.astype(str).tolist(),
        text(usage, 1),
        contract.tolist(),
        payment.tolist(),
        ["yes" if one else "no" for one in leaves],
    ]
    header = ["months", "fee", "calls", "usage", "contract", "payment", "left"]
    rows = [*zip(*columns, strict=True)]
    return Table("churn", header, "nnnncct", rows, faults="4 % of one class, products of columns")


def tickets() -> Table:
    """To which team a message goes: by its words, and by where it came from."""
    random, n = np.random.default_rng(9), 2400
    words = {
        "billing": "invoice charged refund payment twice amount card receipt overdue price",
        "network": "connection drops router slow wifi signal outage ping cable offline",
        "hardware": "screen fan keyboard battery overheats cracked noise charger dead hinge",
        "account": "password login locked email reset profile code verify username delete",
        "sales": "upgrade offer quote licences trial discount plan seats demo contract",
    }
    filler = "hello please help since yesterday my again we cannot still the new urgent thanks"
    teams, rows = [*words], []
    for _ in range(n):
        team = str(random.choice(teams, p=[0.3, 0.25, 0.2, 0.15, 0.1]))
        own, other = words[team].split(), words[str(random.choice(teams))].split()
        said = [
            *random.choice(own, random.integers(1, 4)),
            *random.choice(filler.split(), 5),
            *random.choice(other, random.integers(0, 3)),
        ]
        usual = {"billing": "mail", "network": "phone", "hardware": "shop"}.get(team, "web")
        channel = (
            usual if random.random() < 0.6 else random.choice(["mail", "phone", "shop", "web"])
        )
        age = f"{random.gamma(2, 300 if team != 'sales' else 60):.0f}"
        rows.append([" ".join(random.permutation(said)), str(channel), age, team])
    header = ["message", "channel", "days as a customer", "team"]
    return Table("tickets", header, "wcnt", rows, faults="sentences, five classes")


def all_tables() -> list[Table]:
    """The ten, and three more."""
    return [*tables(), reviews(), churn(), tickets()]


# ------------------------------------------------------------------------------- scikit-learn's


def read(table: Table, path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Numbers, then categories, then sentences of a file, its target, and how many are numbers."""
    with path.open(encoding=table.encoding, newline="") as stream:
        rows = [*csv.reader(stream, delimiter=table.separator)][1:]
    numbers, categories, sentences, y = [], [], [], []
    for cells in rows:
        of_row: dict[str, list] = {form: [] for form in "ncdwt-"}
        for form, cell in zip(table.forms, cells, strict=True):
            of_row[form].append(cell)
        values = [math.nan if c in ABSENT else number(table, c) for c in of_row["n"]]
        for cell in of_row["d"]:
            when = datetime.strptime(cell, table.dates)
            values += [when.year, when.month, when.weekday(), when.hour + when.minute / 60]
        numbers.append(values)
        categories.append(["missing" if c in ABSENT else c for c in of_row["c"]])
        sentences.append(of_row["w"])
        (target,) = of_row["t"]
        y.append(target if table.task == "classification" else number(table, target))
    x = [np.array(part, object).reshape(len(rows), -1) for part in (numbers, categories, sentences)]
    return np.hstack(x), np.array(y), len(numbers[0])


def number(table: Table, cell: str) -> float:
    return float(cell.replace(table.decimal, "."))


def pipeline(table: Table, numbers: int, width: int, early: bool) -> Pipeline:
    """Impute, encode and scale, then a network."""
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    encoded = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    last = width - table.forms.count("w")
    treated = ColumnTransformer(
        [
            ("numbers", scaled, [*range(numbers)]),
            ("categories", encoded, [*range(numbers, last)]),
            *((f"words {k}", TfidfVectorizer(min_df=2), k) for k in range(last, width)),
        ],
        sparse_threshold=0,
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
            cross_val_score(
                pipeline(table, numbers, x.shape[1], early), x, y, cv=3,
                scoring="roc_auc" if table.name in RARE else None,
            ).mean()
            for early in (False, True)
        )  # fmt: skip
    return bool(early > plain)


def theirs(table: Table, train: Path, test: Path, early: bool) -> float:
    """100 x accuracy, area or R2 on the rows that were not learned from."""
    x, y, numbers = read(table, train)
    asked, right, _ = read(table, test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = pipeline(table, numbers, x.shape[1], early).fit(x, y)
    if table.name in RARE:
        return 100 * float(roc_auc_score(right, fitted.predict_proba(asked)[:, 1]))
    return 100 * float(fitted.score(asked, right))


def figure(table: Table) -> str:
    """The metric of a table."""
    if table.task == "regression":
        return "r2"
    return "auc" if table.name in RARE else "accuracy"


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


def ours(table: Table, train: Path, test: Path, out: Path) -> tuple[float, dict[str, float], str]:
    """The same, by the command line alone; the baselines of the run, and what it begins with."""
    settings = [f"target={table.target}", *table.settings]
    command("data", "check", train, *settings)
    summary = command("run", "mlp", f"data={train}", *settings, "--out", out)
    (run,) = out.iterdir()
    answers = [json.loads(line) for line in command("predict", run, test).splitlines()]
    _, right, _ = read(table, test)
    name = figure(table)
    if name == "r2":
        score = float(r2_score(right, [a["value"] for a in answers]))
    elif name == "auc":
        second = sorted({*right})[1]
        score = float(roc_auc_score(right, [a["probabilities"][second] for a in answers]))
    else:
        score = float(np.mean([a["class"] == y for a, y in zip(answers, right, strict=True)]))
    judged = json.loads(command("evaluate", run, f"data={test}", "--json"))[name]
    if abs(judged - score) > 1e-4:
        sys.exit(f"{table.name}: evaluate says {judged}, and what predict says gives {score}")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    splits = {kind: f"baseline_{kind}" for kind in KINDS.values()} | {"ours": "test"}
    beside = {kind: 100 * last[split][name] for kind, split in splits.items() if split in last}
    return 100 * score, beside, named_first(summary, run)


def named_first(summary: str, run: Path) -> str:
    """The baseline that summary and card begin with, in the log's word; they must agree."""
    page = (run / "card.md").read_text().splitlines()[2]
    begin = summary.splitlines()[0]
    named = {kind for name, kind in KINDS.items() if begin.startswith(f"{name} does better: ")}
    if named != {kind for name, kind in KINDS.items() if page.startswith(f"**{name} does bett")}:
        sys.exit(f"{run}: the summary begins with {begin!r} and the card with {page!r}")
    return next(iter(named), "")


# ------------------------------------------------------------------------------------ the table


@dataclass
class Scores:
    """What both reached, a figure a split."""

    ours: list[float]
    theirs: list[float]
    early: bool | None = None
    """Whether the peer stops early; not known yet."""
    beside: list[dict[str, float]] = field(default_factory=list)
    """What each run and its baselines reach on its own test split."""
    first: list[str] = field(default_factory=list)
    """The baseline that summary and card of each run begin with; mostly empty."""

    @property
    def ahead(self) -> float:
        return float(np.mean(self.ours) - np.mean(self.theirs))

    def mean(self, kind: str) -> float:
        return float(np.mean([run[kind] for run in self.beside if kind in run]))

    @property
    def behind(self) -> float:
        """By how much the better of the linear model and boosted trees is better than ours."""
        return max(self.mean("linear"), self.mean("boosted")) - self.mean("ours")

    @property
    def far(self) -> list[bool]:
        """Of each run that is more than 2 points behind, whether it begins with the better one."""
        told = []
        for run, first in zip(self.beside, self.first, strict=True):
            better = max(("linear", "boosted"), key=lambda kind: run.get(kind, -math.inf))
            if run[better] - run["ours"] > -REACH:
                told.append(first == better)
        return told

    @property
    def told(self) -> bool:
        """Whether most of these runs do: the others are behind by less than a standard error."""
        return 2 * sum(self.far) > len(self.far)


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
            score, beside, first = ours(table, *paths, place / f"runs-{number}")
            scores.ours.append(score)
            scores.beside.append(beside)
            scores.first.append(first)
            scores.theirs.append(theirs(table, *paths, scores.early))
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(asdict(scores)))
    beside, first = scores.beside[:splits], scores.first[:splits]
    return Scores(scores.ours[:splits], scores.theirs[:splits], scores.early, beside, first)


def baseline_row(table: Table, scores: Scores) -> str:
    kinds = ("mean" if table.task == "regression" else "commonest", "linear", "boosted", "ours")
    reached = f"{-scores.behind:+.2f} | "
    if scores.behind <= -REACH:
        reached += "within 2 points"
    else:
        told = "as they say first" if scores.told else "**which most runs do not say**"
        reached += f"behind, {told}"
    figures = " | ".join(f"{scores.mean(kind):.2f}" for kind in kinds)
    said = f"{sum(scores.far)} of {len(scores.far)}"
    return f"| {table.name} | {figure(table)} | {figures} | {reached} | {said} |"


def row(table: Table, scores: Scores) -> str:
    what = {"accuracy": "accuracy", "auc": "area", "r2": "R2"}[figure(table)]
    size = f"{len(table.rows):,} x {len(table.header) - 1}"
    columns = [table.name, size, table.faults, what]
    columns += [f"{np.mean(of):.2f} ± {np.std(of):.2f}" for of in (scores.ours, scores.theirs)]
    reached = "reached" if scores.ahead >= REACH else "**not reached**"
    return f"| {' | '.join(columns)} | {scores.ahead:+.2f} | {reached} |"


def baselines_table(found: dict[str, Scores]) -> Sequence[str]:
    """What runs say of their baselines, a line a table."""
    near = sum(scores.behind <= -REACH for scores in found.values())
    told = all(scores.told for scores in found.values() if scores.behind > -REACH)
    reached = near >= ENOUGH and told
    rows = [baseline_row(table, found[table.name]) for table in all_tables() if table.name in found]
    return [
        "### Beside the baselines of each run",
        "",
        "Means over the runs above, each on the test split of its own, by its own columns: the "
        "commonest class or the mean, LogisticRegression or Ridge, HistGradientBoosting. To reach: "
        f"at most {-REACH:.0f} points below the better of linear and boosted on {ENOUGH} of 13, "
        "and elsewhere most runs that are so far behind begin their summary and card with its name "
        "(the last column; a run does where the difference is more than its standard error). "
        f"Within on {near} of {len(found)}: {'reached' if reached else '**not reached**'}.",
        "",
        "| table | figure | commonest | linear | boosted | ours | ahead | to reach | begin so |",
        "|---" * 9 + "|",
        *rows,
    ]


def compared() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--keep", type=Path)
    keep, sys.argv[1:] = parser.parse_known_args()[0].keep, parser.parse_known_args()[1]
    given = arguments(__doc__.partition("\n")[0], [], repeats=1, splits=SPLITS)
    wanted = given.part.split(",") if given.part else [table.name for table in all_tables()]
    lines = [
        "| table | rows x columns | faults | figure | everynet | scikit-learn | ahead | to reach |",
        "|---" * 8 + "|",
    ]
    print("\n".join(lines), flush=True)
    found = {}
    for table in all_tables():
        if table.name in wanted:
            found[table.name] = scores = compare(table, given.splits, keep)
            lines.append(row(table, scores))
            print(f"{lines[-1]}\n{baseline_row(table, scores)}", flush=True)
    verbs = "`data check`, `run mlp`, `evaluate` and `predict`"
    about = (
        "Accuracy or area under the ROC curve in per cent, or 100 x R2, on a fifth of the rows "
        f"that nothing was learned from: mean and deviation of {SPLITS} splits, the same for both. "
        f"Ours is {verbs}, default settings, without an edit of the files; of the rows it is "
        "given it trains on 72 %, and keeps the others to choose the weights and for a test of its "
        "own. scikit-learn is told how each file is written and what its columns are (impute with "
        "an indicator, one-hot, tf-idf of sentences, scale, its MLP with max_iter 500, early "
        "stopping or none by three-fold cross-validation) "
        f"and trains on all of them. To reach: at most {-REACH:.0f} points below on each."
    )
    beside = baselines_table(found)
    print("\n".join(beside), flush=True)
    if given.whole and not given.part:
        parts = [f"{about}\n\n{machine(Path(sys.executable))}", "\n".join(lines)]
        parts.append("\n".join(beside))
        write("tables", ["## Tables as people have them", *parts])
    else:
        print(f"\n{about}\n\nA short run: benchmarks/RESULTS.md was left as it was.")


if __name__ == "__main__":
    compared()
