"""Which run folder a word means: a path, the last letters of a name in `runs`, or `latest`."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from everynet.system import files
from everynet.system.errors import UserError

RUNS = Path("runs")
LATEST = "latest"
FEW = 5  # candidates that are named where letters fit several runs
_STAMP = re.compile(r"-(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)(?:-|\Z)")


def find_runs(out: Path = RUNS) -> list[Path]:
    """The run folders in a folder, by name."""
    return [out / name for name in files.names(out) if is_run(out / name)]


def is_run(folder: Path) -> bool:
    """Whether a folder is one of a run, as far as we may look."""
    return os.path.lexists(folder / "recipe.json")


def start_time(folder: Path) -> str:
    """When a run began, as `2026-11-16 13:32:01`: its name says it, or else the file's time."""
    if stamp := _STAMP.search(folder.name):
        return "{}-{}-{} {}:{}:{}".format(*stamp.groups())
    changed = time.localtime(_modified(folder) / 1e9)
    return time.strftime("%Y-%m-%d %H:%M:%S", changed) if _modified(folder) else ""


def _modified(folder: Path) -> int:
    """When recipe.json was written, in nanoseconds; 0 where that cannot be seen."""
    try:
        return os.lstat(folder / "recipe.json").st_mtime_ns
    except OSError:
        return 0


def match_run(word: str, folders: list[Path], out: Path = RUNS) -> Path | None:
    """The one of these folders that a word means; None where it means none of them."""
    if word == LATEST:
        if not folders:
            raise UserError(f"there is no latest run: {out} holds none; try everynet run lenet")
        return max(folders, key=lambda folder: (start_time(folder), _modified(folder)))
    fits = [folder for folder in folders if folder.name == word]
    fits = fits or [folder for folder in folders if word and folder.name.endswith(word)]
    if len(fits) > 1:
        names = ", ".join(folder.name for folder in fits[:FEW])
        more = f" and {len(fits) - FEW} more" if len(fits) > FEW else ""
        raise UserError(f"{word} is how {len(fits)} runs end; write more of {names}{more}")
    return fits[0] if fits else None


def run_folder(word: str, out: Path = RUNS) -> Path:
    """The folder of a run that a word means; a word that means none is taken for a path."""
    if not word or os.path.lexists(word) or "/" in word:
        return Path(word)
    return match_run(word, find_runs(out), out) or Path(word)
