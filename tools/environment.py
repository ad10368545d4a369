"""Make a virtual environment whole or not at all, and only when it is missing or out of date.

    environment.py .venv constraints.txt '.[test,check]'    what make run, test and check use
    environment.py .bench/NAME benchmarks/peers/NAME.txt    the peers of a benchmark

An environment counts only with its stamp, which is written last. Whatever goes wrong before (an
error, Ctrl-C, a kill) leaves none: the folder is removed at once, or by the next call that finds
it without a stamp. A lock makes a second call wait; pip holds it too, so that a pip that outlives
its killed parent is never overtaken.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
BASE = getattr(sys, "_base_executable", sys.executable)
"""The Python below any environment: this one may run in the very folder it has to replace."""


def fingerprint(pins: Path, package: str) -> str:
    """What an environment depends on: pins, our metadata, Python, and the place of the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    made_of = [
        pins.read_text(encoding="utf-8"),
        package,
        json.dumps([project["build-system"], project["project"]]),
        sys.version,
        str(ROOT),
    ]
    return hashlib.sha256("\0".join(made_of).encode()).hexdigest()


def stanzas(text: str) -> dict[str, list[str]]:
    """The peers of a file: each begins with a line `# Name`, the pins of all it needs follow."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            found[line.removeprefix("# ")] = []
        elif line.strip():
            found[next(reversed(found))].append(line.strip())
    return {name: lines for name, lines in found.items() if lines}


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold a lock on `folder` itself, waiting for whoever has it."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up to end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


class Environment:
    """The environment in one folder; `lock` is the open lock that pip is to inherit."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.lock = lock
        self.python = folder / "bin" / "python"
        self.stamp = folder / "stamp"

    def is_current(self, mark: str) -> bool:
        """Whether it is whole and made of what `mark` stands for."""
        return (
            self.python.exists()  # and the Python it was made with is still there
            and self.stamp.exists()
            and self.stamp.read_text(encoding="utf-8") == mark
        )

    def run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=ROOT, pass_fds=[self.lock])

    def pip(self, *arguments: str | Path) -> None:
        quiet = [] if sys.stdout.isatty() else ["--quiet"]
        self.run(
            *(self.python, "-m", "pip", "install", "--disable-pip-version-check"),
            *(*quiet, *arguments),
        )

    def remove(self) -> None:
        for _ in range(10):  # a process that pip began may write a moment longer
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                return

    def install(self, pins: Path, package: str) -> None:
        """Everything, at the versions of `pins`."""
        self.run(BASE, "-m", "venv", self.folder)
        text = pins.read_text(encoding="utf-8")
        peers = {} if package else stanzas(text)
        if torch := [line for line in text.splitlines() if line.startswith("torch==")]:
            # By its exact version first: a local CPU build then satisfies it, where the range in
            # pyproject.toml would fetch gigabytes.
            self.pip("-c", pins, *torch)
        if package or "everynet" in peers:
            self.pip("-c", pins, "-e", package or ".")
        for name, lines in peers.items():
            if name == "everynet":
                continue
            try:
                self.pip("--no-deps", *lines)  # the file names all that a peer needs
            except subprocess.CalledProcessError:
                print(f"{name} cannot be installed here and is left out", flush=True)


def stop(number: int, _frame: FrameType | None) -> None:
    """Let a signal unwind the stack, so that what was begun is removed."""
    sys.exit(128 + number)


def make(folder: Path, pins: Path, package: str) -> int:
    """Make the environment if it is not current; the exit code."""
    mark = fingerprint(pins, package)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(ROOT) as lock:
        environment = Environment(folder, lock)
        if environment.is_current(mark):
            return 0
        print(f"setting up {folder.relative_to(ROOT)} (a few minutes, once)", flush=True)
        environment.remove()
        try:
            environment.install(pins, package)
            environment.stamp.write_text(mark, encoding="utf-8")
        except subprocess.CalledProcessError as error:
            environment.remove()
            print(
                f"{folder.relative_to(ROOT)} was not made: "
                f"{' '.join(map(str, error.cmd[1:4]))} ended with {error.returncode}",
                file=sys.stderr,
            )
            return 1
        except BaseException:
            environment.remove()
            raise
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pins", type=Path)
    parser.add_argument("package", nargs="?", default="")
    given = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)  # only what is installed here counts
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        return make(ROOT / given.folder, ROOT / given.pins, given.package)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
