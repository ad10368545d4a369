"""Large tables: a csv of two million rows looked over, a parquet of twenty million trained from.

    python benchmarks/table_size.py                 the table of benchmarks/RESULTS.md
    python benchmarks/table_size.py --rows 100000   a quick look, written nowhere
    python benchmarks/table_size.py --part csv      one half, written nowhere

Every measurement is a process of its own: the seconds of CPU beside its imports, and the most
memory it ever held. The files are made in a temporary folder. The peers read the csv and do nothing
else.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from side_by_side import arguments, machine, peak_memory, write

SECONDS, MEGABYTES, RATIO = 6.0, 700.0, 1.3
FEATURES = 8  # of the parquet file
STEPS = 20
TENFOLD = 10  # rows of the parquet file for one of the csv


# ------------------------------------------------------------------------------------ the files


def make_csv(path: Path, rows: int) -> Path:
    """Six numbers, two categories, a date and a class, without quotation marks."""
    random = np.random.default_rng(0)
    columns = {f"v{k}": random.normal(size=rows).round(4) for k in range(6)}
    columns["colour"] = np.array(["red", "green", "blue", "black"])[random.integers(0, 4, rows)]
    columns["town"] = np.array([f"town {k}" for k in range(12)])[random.integers(0, 12, rows)]
    day = np.datetime64("2020-01-01") + random.integers(0, 1500, rows)
    columns["day"] = day.astype(str)
    columns["y"] = (columns["v0"] + random.normal(size=rows) > 0).astype(int)
    options = pa.csv.WriteOptions(quoting_style="none")
    pa.csv.write_csv(pa.table(columns), path, options)
    return path


def make_parquet(path: Path, rows: int) -> Path:
    """Numbers of 32 bits and a class, a piece at a time."""
    random, pieces = np.random.default_rng(0), 20
    names = [f"v{k}" for k in range(FEATURES)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int8())])
    with pa.parquet.ParquetWriter(path, schema) as writer:
        for _ in range(pieces):
            x = random.normal(size=(FEATURES, rows // pieces)).astype(np.float32)
            y = (x[0] + random.normal(size=rows // pieces) > 0).astype(np.int8)
            writer.write_table(pa.table([*x, y], schema=schema))
    return path


# -------------------------------------------------------------------------------- what is measured


def check(path: str) -> None:
    from everynet.data import check as look_over

    assert look_over(path, target="y").good


def train(path: str) -> None:
    from everynet.cli import main

    with tempfile.TemporaryDirectory() as out:
        words = [f"data={path}", "target=y", f"steps={STEPS}", "--out", out, "--device", "cpu"]
        assert main(["run", "mlp", *words, "--quiet"]) == 0


def load(path: str) -> None:
    from everynet.data import load as read

    data = read(path, kind="table", batch_size=64, target="y")
    assert data.rows("train")


def polars(path: str) -> None:
    import polars as pl

    pl.read_csv(path)


def pandas(path: str) -> None:
    import pandas as pd

    pd.read_csv(path)


WORK = {work.__name__: work for work in (check, load, train, polars, pandas)}
OURS = ("torch", "numba", "pyarrow.csv", "everynet.data.kinds.table", "everynet.runs")


def measure(name: str, path: str) -> None:
    """One measurement, in this process: what it took beside its imports."""
    own = {"polars": ("polars",), "pandas": ("pandas",), "check": OURS[:-1]}
    for module in own.get(name, OURS):
        importlib.import_module(module)
    imports, before = time.process_time(), peak_memory()
    WORK[name](path)
    print(json.dumps({"cpu": time.process_time() - imports, "base": before, "peak": peak_memory()}))


def measured(name: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, str(path)]
    environment = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


# ------------------------------------------------------------------------------------- the table


def reached(value: float, most: float) -> str:
    return "reached" if value <= most else "**not reached**"


def of_csv(folder: Path, rows: int) -> list[str]:
    path = make_csv(folder / "a.csv", rows)
    lines = ["| | CPU s | peak MB | to reach |", "|---|---|---|---|"]
    for name, what in (
        ("check", "everynet data check"),
        ("polars", "polars.read_csv"),
        ("pandas", "pandas.read_csv"),
    ):
        found = measured(name, path)
        goal = ""
        if name == "check":
            goal = f"at most {SECONDS:g} s: {reached(found['cpu'], SECONDS)}; "
            goal += f"{MEGABYTES:g} MB: {reached(found['peak'], MEGABYTES)}"
        lines.append(f"| {what} | {found['cpu']:.2f} | {found['peak']:.0f} | {goal} |")
    size = path.stat().st_size / 1e6
    title = f"### A csv of {rows:,} rows x 10 columns, {size:.0f} MB"
    return [title, "\n".join(lines)]


def of_parquet(folder: Path, rows: int) -> list[str]:
    path = make_parquet(folder / "a.parquet", rows)
    tensors = rows * (4 * FEATURES + 8) / 2**20  # float32, and a class of 64 bits
    lines = [
        "| | CPU s | peak MB | beside the imports | of the tensors | to reach |",
        "|---|---|---|---|---|---|",
    ]
    for name, what in (("load", "load"), ("train", f"run mlp steps={STEPS}")):
        found = measured(name, path)
        more = found["peak"] - found["base"]
        lines.append(
            f"| {what} | {found['cpu']:.1f} | {found['peak']:.0f} | {more:.0f} "
            f"| {more / tensors:.2f} x | at most {RATIO} x: {reached(more / tensors, RATIO)} |"
        )
    size, title = path.stat().st_size / 1e6, f"{rows:,} rows x {FEATURES + 1} columns"
    about = f"Its tensors, float32 with a class of 64 bits, take {tensors:.0f} MB."
    return [f"### A parquet file of {title}, {size:.0f} MB", about, "\n".join(lines)]


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
        return
    given = arguments(__doc__.splitlines()[0], [], repeats=1, rows=2_000_000)
    with tempfile.TemporaryDirectory() as folder:
        parts = of_csv(Path(folder), given.rows) if given.part in ("", "csv") else []
        if given.part in ("", "parquet"):
            parts += of_parquet(Path(folder), TENFOLD * given.rows)
    about = (
        "Six numbers, two categories, a date and a class are looked over, column by column, split "
        "and compared row by row; polars and pandas only read them. Seconds of CPU beside imports, "
        f"one thread for torch and polars; peak is of the whole process. "
        f"{machine(Path(sys.executable))}"
    )
    print("\n\n".join([about, *parts]))
    if given.whole and not given.part:
        write("table_size", ["## Large tables", about, *parts])


if __name__ == "__main__":
    main()
