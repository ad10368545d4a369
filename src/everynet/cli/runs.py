"""`everynet runs`: list run folders, or compare some of them; read as text, without torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everynet import files
from everynet.cli import UsageError, table
from everynet.errors import UserError
from everynet.manifest import parsed, read_json
from everynet.words import written

HELP = "list runs; with names, compare their settings and figures"


class Run(NamedTuple):
    """What the files of a run folder say."""

    folder: Path
    recipe: str
    settings: Mapping[str, Any]
    changed: Sequence[str]
    step: int
    split: str
    """test once the run has ended, valid before, nothing before its first evaluation."""
    figures: Mapping[str, float]
    state: str
    """ended, open, or diverged: what a cell of an experiment may have done."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Runs, or the folder they are in."""
    parser.add_argument("runs", metavar="RUN", nargs="*", help="run folders to compare")
    parser.add_argument("--out", metavar="DIR", help="the folder whose runs are listed (runs)")


def main(arguments: argparse.Namespace) -> int:
    """List or compare them."""
    if arguments.runs:
        print(comparison([read(Path(folder)) for folder in arguments.runs]))
        return 0
    out = Path(arguments.out or "runs")
    if arguments.out and not out.is_dir():
        raise UsageError(f"there is no folder {out}")
    folders = found(out)
    print(listing(folders) if folders else f"no runs in {out}; try everynet run lenet")
    return 0


def found(out: Path) -> list[Path]:
    """The run folders in a folder."""
    return [out / name for name in files.names(out) if _is_run(out / name)]


def _is_run(folder: Path) -> bool:
    try:
        return files.exists(folder / "recipe.json")
    except UserError:
        return False  # nobody lets us look


def read(folder: Path) -> Run:
    """Read a run folder."""
    about, log = read_json(folder / "recipe.json"), folder / "metrics.jsonl"
    try:
        lines = files.read(log).rpartition(b"\n")[0].splitlines()
        last = parsed(lines[-1], log) if lines else {"step": 0}
        shown = next((x for x in reversed(lines) if b'"test"' in x or b'"valid"' in x), b"{}")
        row = parsed(shown, log)
        split = next((name for name in ("test", "valid") if name in row), "")
        figures = {name: float(value) for name, value in row.get(split, {}).items()}
        settings, changed = dict(about["settings"]), [*map(str, about["changed"])]
        state = _state(folder, split)
        name, step = str(about["name"]), last["step"]
        if not isinstance(step, int):
            raise TypeError("step must be a whole number in metrics.jsonl")
        return Run(folder, name, settings, changed, step, split, figures, state)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{folder} is damaged: {type(error).__name__} {error}") from error


def _state(folder: Path, split: str) -> str:
    """Whether a run has ended; a cell of an experiment says so in a file of its own."""
    said = folder / "ended.json"
    if not files.exists(said):
        return "ended" if split == "test" else "open"
    return "ended" if read_json(said)["diverged"] is None else "diverged"


def listing(folders: Iterable[Path]) -> str:
    """One line for each run; a folder that cannot be read says why."""
    rows, damaged = [("run", "recipe", "step", "state", "figures", "changed")], []
    for folder in folders:
        try:
            run = read(folder)
        except (UsageError, UserError) as error:
            damaged.append(str(error))
            continue
        figures = "  ".join(f"{name} {value:.4g}" for name, value in run.figures.items())
        changed = " ".join(f"{name}={written(run.settings.get(name))}" for name in run.changed)
        rows.append((str(folder), run.recipe, f"{run.step:,}", run.state, figures, changed))
    return "\n".join([table(rows), *damaged])


def comparison(runs: Sequence[Run]) -> str:
    """Settings and figures side by side; of several runs only the settings that differ."""
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
    rows.append(("figures of", *(run.split or "-" for run in runs)))
    for name in dict.fromkeys(name for run in runs for name in run.figures):
        figures = (f"{run.figures[name]:.6g}" if name in run.figures else "-" for run in runs)
        rows.append((name, *figures))
    return table(rows) + (f"\n{alike} settings are the same in all" if alike else "")
