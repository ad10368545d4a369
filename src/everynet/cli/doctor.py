"""`everynet doctor`: what this machine offers, and whether everynet can work on it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from everynet.cli import table

HELP = "versions, devices, threads, data, cache and free space on this machine"
ENOUGH = 1 << 30  # bytes that a few runs and one real set take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where runs would be written."""
    parser.add_argument("--out", metavar="DIR", default="runs", help="where run folders go (runs)")


def main(arguments: argparse.Namespace) -> int:
    """Print what was found; exit code 4 where nothing can be written."""
    out = Path(arguments.out)
    problems = [*_find_problems(out)]
    print(table([*_versions(), *_devices(), *_data(), *_places(out)]))
    print("\n".join(f"problem: {problem}" for problem in problems) or "all is well")
    return 4 if problems else 0


def _versions() -> Iterator[tuple[str, str]]:
    import importlib.metadata
    import platform

    import everynet
    from everynet.recipes.catalog import entries
    from everynet.runs.folder import VERSIONS

    yield "everynet", f"{everynet.__version__}, {len(entries()[0])} recipes"
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for name in VERSIONS:
        yield name, importlib.metadata.version(name)


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    from everynet.training.device import choose, describe

    yield "device", f"{describe(choose('auto').device)}, chosen by --device auto"
    for index in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(index).total_memory
        yield f"cuda:{index}", f"{torch.cuda.get_device_name(index)}, {_size(memory)}"
    yield "mps", "present" if torch.backends.mps.is_available() else "none"
    limit = os.environ.get("OMP_NUM_THREADS")
    threads = f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    yield "threads", threads + (f", OMP_NUM_THREADS is {limit}" if limit else "")


def _data() -> Iterator[tuple[str, str]]:
    from everynet.data import built_in
    from everynet.data.download.store import where
    from everynet.data.sets import everything

    yield "data", f"{len(built_in())} sets are always here: {' '.join(built_in())}"
    yield "EVERYNET_DATA", os.environ.get("EVERYNET_DATA") or "not set"
    for name, known in everything().items():
        if known.forms:
            yield name, where(known)


def _places(out: Path) -> Iterator[tuple[str, str]]:
    from everynet.system.cache import home

    yield "cache", f"{home()}, {_size(_used(home()))} used, {_size(_free(home()))} free"
    yield "runs", f"{out}, {_size(_free(out))} free"


def _find_problems(out: Path) -> Iterator[str]:
    """Why runs or fetched data could not be written."""
    import tempfile

    from everynet.recipes.catalog import entries
    from everynet.system.cache import compiled, home, private

    for fault in entries()[1]:
        yield f"{fault}; its recipes are left out"
    for folder in (out, home()):
        try:
            with tempfile.TemporaryFile(dir=_existing_path(folder)) as file:
                file.write(b"a few bytes")
                file.flush()
        except OSError as error:
            yield f"cannot write in {_existing_path(folder)}: {error.strerror}"
        if _free(folder) < ENOUGH:
            yield f"only {_size(_free(folder))} are free for {folder}"
    try:
        with private(compiled()):
            pass
    except OSError as error:
        why = f"{error.strerror}: {compiled()}" if error.strerror else str(error)
        yield f"loops are compiled anew in every process, because none can be kept: {why}"


def _existing_path(folder: Path) -> Path:
    """The path, or the nearest above it that exists, be it a folder or not."""
    return next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))


def _free(folder: Path) -> int:
    """Bytes that are free in a folder, or in the nearest above it that exists."""
    import shutil

    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(existing).free


def _used(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _size(count: int | float) -> str:
    """Bytes as a person writes them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
