"""`everynet runs`: list, filter, sort and group run folders, or compare some; without torch."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everynet.cli import UsageError, records, table
from everynet.cli.records import Condition, Group, Run
from everynet.recipes.run_names import LATEST, RUNS, find_runs, is_run, match_run
from everynet.system.wording import nearest, shown, written

HELP = "list runs, by recipe and conditions; with names of runs, compare them"
WIDE = 8  # runs that are compared side by side; more are compared one below the other
WIDEST = 1000  # characters of a cell that are printed
DRAWN = 20  # runs whose curves are drawn into one picture
OF_FOLDER = ("run", "date", "step", "state", "split")
"""Columns that a paper does not want."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Runs or conditions, and what to make of them."""
    parser.add_argument(
        "words",
        metavar="RUN|RECIPE|CONDITION",
        nargs="*",
        help="runs to compare (a folder, the last letters of its name, or latest); or which to "
        'list: recipes (lenet, "mlp*") and conditions on settings and metrics ("lr>0.01")',
    )
    parser.add_argument(
        "--sort", metavar="NAME", help="by a setting, metric or date; -NAME the largest first"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--group", action="store_true", help="mean and spread over seeds")
    form.add_argument("--compare", action="store_true", help="compare those that are listed")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print them as JSON")
    form.add_argument("--csv", action="store_true", help="print them as a table with commas")
    form.add_argument("--latex", action="store_true", help="print them as a table for a paper")
    parser.add_argument(
        "--out",
        metavar="DIR|FILE.png",
        help="the folder of the runs (runs), or where the curves of those compared are drawn",
    )


def main(arguments: argparse.Namespace) -> int:
    """List or compare them."""
    out, picture = _resolve_out(arguments.out)
    named, runs, damaged = choose_runs(arguments.words, out)
    if arguments.sort:
        runs = records.sort_runs(runs, arguments.sort)
    compare = named or arguments.compare
    exports = arguments.json or arguments.csv or arguments.latex
    if picture is not None and not (compare and len(runs) > 1):
        raise UsageError(f"--out ({picture}) must be a folder, unless several runs are compared")
    if exports:
        print(export(runs, arguments))
    elif arguments.group:
        groups, left_out = records.group_runs(runs)
        print(format_groups(groups))
        damaged += left_out
    elif runs:
        print(format_comparison(runs) if compare else format_list(runs))
    elif not damaged:
        count = len(find_runs(out))
        no = f"no run of {count} in {out} is like that; everynet runs lists them"
        print(no if count else f"no runs in {out}; try everynet run lenet")
    for line in damaged:
        print(line, file=sys.stderr if exports else None)
    if compare and len(runs) > 1 and (picture is not None or not (exports or arguments.group)):
        sys.stdout.flush()  # drawing takes a moment
        print(draw_curves(runs, picture))
    return 0


def _resolve_out(word: str | None) -> tuple[Path, Path | None]:
    """The folder whose runs are meant, and the picture that is to be drawn."""
    if word is None:
        return RUNS, None
    if Path(word).is_dir():
        return Path(word), None
    if Path(word).suffix.lower() == ".png":
        return RUNS, Path(word)
    raise UsageError(f"there is no folder {word}; the name of a picture ends in .png")


def choose_runs(words: Sequence[str], out: Path) -> tuple[bool, list[Run], list[str]]:
    """Whether runs were named, those that words mean, and what is wrong with others."""
    folders = find_runs(out)
    named, patterns, conditions = [], [], []
    read: tuple[list[Run], list[str]] | None = None
    for word in words:
        if is_run(Path(word)):
            named.append(Path(word))
            continue
        if condition := Condition.parse(word):
            conditions.append(condition)
            continue
        read = read or records.read_runs(folders)
        if word != LATEST and records.filter_by_recipe(read[0], word):
            patterns.append(word)
        elif folder := match_run(word, folders, out):
            named.append(folder)
        else:
            recipes = dict.fromkeys(run.recipe for run in read[0])
            what = f"is no run, no recipe of the runs in {out} and no condition such as lr>0.01"
            raise UsageError(f"{word} {what}{nearest(word, recipes)}")
    if named and (patterns or conditions):
        other = (patterns or ["".join(conditions[0])])[0]
        raise UsageError(f"{other} chooses among runs and {named[0]} is one; give one or the other")
    if named:
        return True, [records.read_run(folder) for folder in dict.fromkeys(named)], []
    runs, damaged = read or records.read_runs(folders)
    for condition in conditions:
        condition.check(runs)
    if patterns:
        chosen = {
            run.folder for pattern in patterns for run in records.filter_by_recipe(runs, pattern)
        }
        runs = [run for run in runs if run.folder in chosen]
    return False, [run for run in runs if all(c.holds(run) for c in conditions)], damaged


# ------------------------------------------------------------------------------------- as tables


def format_list(runs: Sequence[Run]) -> str:
    """One line for each run."""
    rows = [("run", "recipe", "seed", "step", "state", "changed", "metrics")]
    for run in runs:
        metrics = "  ".join(f"{name} {value:.4g}" for name, value in run.metrics.items())
        seed, step = written(run.settings.get("seed", "-")), f"{run.step:,}"
        changed = _format_changed(run)
        rows.append((str(run.folder), run.recipe, seed, step, run.state, changed, metrics))
    return table([[shown(cell, WIDEST) for cell in row] for row in rows])


def _format_changed(run: Run) -> str:
    return " ".join(f"{name}={written(run.settings.get(name))}" for name in run.changed)


def format_groups(groups: Sequence[Group]) -> str:
    """One line for each group: the mean of each metric, and its standard deviation in brackets."""
    rows = [("recipe", "seeds", "changed", "mean (standard deviation) of each metric")]
    for group in groups:
        spread = {name: f" ({value:.2g})" for name, value in group.deviations.items()}
        means = group.means.items()
        metrics = "  ".join(f"{name} {mean:.4g}{spread.get(name, '')}" for name, mean in means)
        seeds, changed = str(len(group.seeds)), _format_changed(group.first) or "-"
        rows.append((group.first.recipe, seeds, changed, metrics))
    return table(rows)


def format_comparison(runs: Sequence[Run]) -> str:
    """Settings and metrics side by side; of several runs only the settings that differ."""
    names = [run.folder.resolve().name for run in runs]
    rows = [("", *names), ("recipe", *(run.recipe for run in runs))]
    alike = 0
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        values = [written(run.settings[name]) if name in run.settings else "-" for run in runs]
        if len(runs) > 1 and len({*values}) == 1:
            alike += 1
        else:
            rows.append((name, *values))
    rows.append(("step", *(f"{run.step:,}" for run in runs)))
    rows.append(("metrics of", *(run.split or "-" for run in runs)))
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        metrics = (f"{run.metrics[name]:.6g}" if name in run.metrics else "-" for run in runs)
        rows.append((name, *metrics))
    turned = rows if len(runs) <= WIDE else [*zip(*rows, strict=True)]
    return table(turned) + (f"\n{alike} settings are the same in all" if alike else "")


# ------------------------------------------------------------------------------ for other programs


def export(runs: Sequence[Run], arguments: argparse.Namespace) -> str:
    """Runs or groups as JSON, as rows with commas, or in LaTeX."""
    if arguments.group:
        objects = [_group_object(group) for group in records.group_runs(runs)[0]]
    else:
        objects = [_run_object(run) for run in runs]
    if arguments.json:
        return json.dumps(_finite(objects), indent=1, allow_nan=False)
    import csv
    import io

    text, rows = io.StringIO(), [*map(_flatten, objects)]
    first = ("run", "recipe", "seed", "seeds", "date", "step", "state", "split")
    found = dict.fromkeys(name for row in rows for name in row)
    names = [*(name for name in first if name in found), *(n for n in found if n not in first)]
    if arguments.latex:
        from everynet.runs.cell_table import CellTable

        told = [name for name in names if name not in OF_FOLDER]
        return CellTable({n: row.get(n) for n in told} for row in rows).to_latex().rstrip("\n")
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: written(value) for name, value in row.items()} for row in rows)
    return text.getvalue().rstrip("\n")


def _finite(value: Any) -> Any:  # noqa: ANN401 -- JSON, any value
    """The same with null for infinite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _run_object(run: Run) -> dict[str, Any]:
    return {
        **{"run": str(run.folder), "recipe": run.recipe, "seed": run.settings.get("seed")},
        **{"date": run.date, "step": run.step, "state": run.state, "split": run.split},
        "changed": {name: run.settings.get(name) for name in run.changed},
        **{"metrics": dict(run.metrics), "settings": dict(run.settings)},
    }


def _group_object(group: Group) -> dict[str, Any]:
    run = group.first
    return {
        **{"recipe": run.recipe, "seeds": [*group.seeds]},
        "changed": {name: run.settings.get(name) for name in run.changed},
        **{"metrics": dict(group.means), "spread": dict(group.deviations)},
        "settings": {name: value for name, value in run.settings.items() if name != "seed"},
    }


def _flatten(found: dict[str, Any]) -> dict[str, Any]:
    """An object as one row: what was changed and each metric in columns of their own."""
    row = {name: value for name, value in found.items() if not isinstance(value, dict)}
    row |= found["changed"] | found["metrics"]
    return row | {f"{name} spread": value for name, value in found.get("spread", {}).items()}


# ------------------------------------------------------------------------------------ the picture


def draw_curves(runs: Sequence[Run], picture: Path | None) -> str:
    """Draw the curves of runs over each other, and say where; or why they are not drawn."""
    if len(runs) > DRAWN:
        return f"curves: not drawn, because {len(runs)} are too many; choose at most {DRAWN}"
    where = picture or _new_picture(runs[0].folder.parent)
    if _in_a_run(where):
        raise UsageError(f"--out ({where}) must not lie in a run: what a run holds is its own")
    from everynet.plot.comparison import compare_runs
    from everynet.plot.style import drawing, png
    from everynet.runs.log import Log
    from everynet.system import files

    logs = [Log.of(run.folder).rows for run in runs]
    with drawing():
        figure = compare_runs(dict(zip(_label_runs(runs), logs, strict=True)))
        if figure is None:
            return "curves: none, because nothing was logged on the way"
        files.write(where, png(figure))
    return f"curves: {where}"


def _in_a_run(path: Path) -> bool:
    return any(is_run(above) for above in path.absolute().parents)


def _new_picture(folder: Path) -> Path:
    """A new file in a folder; in the working directory where the folder is in a run."""
    import secrets
    import time

    name = f"comparison-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}.png"
    return Path(name) if _in_a_run(folder / name) else folder / name


def _label_runs(runs: Sequence[Run]) -> list[str]:
    """A label for each run: the settings that differ, and how its name ends."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    apart = [n for n in names if len({written(run.settings.get(n, "")) for run in runs}) > 1]
    recipes = len({run.recipe for run in runs}) > 1
    labels = []
    for run in runs:
        known = [f"{n}={shown(written(run.settings[n]), 24)}" for n in apart if n in run.settings]
        words = [*[run.recipe] * recipes, *known[:4], f"({run.folder.resolve().name[-6:]})"]
        labels.append(" ".join(words))
    return labels
