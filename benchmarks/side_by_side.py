"""Time ours and its peers at the same work, taking turns in one run.

A benchmark names its contestants: each has a function that prepares the work and gives back one
that does it once, and may return a `Turn` where it knows better than a clock around it. A
contestant lives in a process of its own, in the environment of its peers and with the threads it
was given, and works only when it is told to. They take turns, so that a slow minute of the machine
hits all of them, and the best of several turns counts. One that cannot start, because a tool or a
package is missing, is left out by name.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"

Job = Mapping[str, Any]
"""What a contestant is told of the work: plain JSON."""


@dataclass(frozen=True)
class Turn:
    """What a contestant says of its own turn."""

    seconds: float | None = None
    """Where a clock around the work would be wrong: a short run scaled up, a program's own time."""
    note: str = ""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work."""

    name: str
    prepare: Callable[[Job], Callable[[], object]]
    imports: str = ""
    """The module a user imports to begin with; its time is shown."""
    package: str = ""
    """The distribution whose version is shown."""
    environment: Mapping[str, str] = field(default_factory=dict)
    reach: float | None = None
    """The least ratio of its time to ours; none: shown, not judged."""
    reach_total: float | None = None
    """The same with the time to prepare added on both sides."""


@dataclass
class Result:
    """What was measured of one contestant."""

    contestant: Contestant
    version: str = ""
    imports: float = 0.0  # s
    build: float = 0.0  # s, to prepare the work
    peak: float = 0.0  # MB
    seconds: list[float] = field(default_factory=list)
    missing: str = ""
    """Why it was left out."""
    note: str = ""

    @property
    def best(self) -> float:
        return min(self.seconds)


# --------------------------------------------------------------------------------------- a worker


def serve(contestants: Sequence[Contestant], name: str, job: Job) -> None:
    """Be one contestant: say when ready, work when told, report each time."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is no answer

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    chosen = next(one for one in contestants if one.name == name)
    try:
        start = time.perf_counter()
        if chosen.imports:
            importlib.import_module(chosen.imports)
        imports = time.perf_counter() - start
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(job["threads"])
        start = time.perf_counter()
        work = chosen.prepare(job)
        build = time.perf_counter() - start
        version = importlib.metadata.version(chosen.package) if chosen.package else ""
        answer(version=version, imports=imports, build=build)
        clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
        for _ in sys.stdin:
            start = clock()
            said = work()
            seconds = clock() - start
            turn = said if isinstance(said, Turn) else Turn()
            seconds = seconds if turn.seconds is None else turn.seconds
            answer(seconds=seconds, peak=peak_memory(), note=turn.note)
    except Exception as error:  # whatever a peer raises is the reason it is left out
        answer(missing=f"{type(error).__name__}: {error}".splitlines()[0])


def peak_memory() -> float:
    """The most memory this process ever held, in MB."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
    except (OSError, TypeError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 2**20 if sys.platform == "darwin" else most / 1024


class Worker:
    """The process of one contestant, seen from outside."""

    def __init__(self, script: Path, contestant: Contestant, job: Job, python: Path) -> None:
        self.result = Result(contestant)
        threads = str(job["threads"])
        counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        self.process = subprocess.Popen(
            [python, script, "--contestant", contestant.name, "--job", json.dumps(job)],
            env={**os.environ, **dict.fromkeys(counts, threads), **contestant.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.take()

    def take(self) -> None:
        """Take one answer into the result."""
        line = self.process.stdout.readline()
        said = json.loads(line) if line else {"missing": f"ended with {self.process.wait()}"}
        for name, value in said.items():
            if name == "seconds":
                self.result.seconds.append(value)
            else:
                setattr(self.result, name, value)

    def turn(self) -> None:
        """Let it do the work once."""
        if not self.result.missing:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.take()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def race(
    script: Path, contestants: Sequence[Contestant], job: Job, python: Path, repeats: int
) -> list[Result]:
    """Every contestant `repeats` times in turn, each round begun by another."""
    workers = [Worker(script, contestant, job, python) for contestant in contestants]
    try:
        for number in range(repeats):
            first = number % len(workers)
            for worker in workers[first:] + workers[:first]:
                worker.turn()
    finally:
        for worker in workers:
            worker.end()
    for worker in workers:
        if worker.result.missing:
            print(f"{worker.result.contestant.name} is left out: {worker.result.missing}")
    return [worker.result for worker in workers]


# ----------------------------------------------------------------------------------- the command


def python_of(group: str) -> Path:
    """The Python of a peer environment that `make bench` made; our own where there is none."""
    python = ROOT / ".bench" / group / "bin" / "python"
    return python if python.exists() else Path(sys.executable)


def arguments(
    description: str, contestants: Sequence[Contestant], repeats: int = 5, **sizes: int
) -> argparse.Namespace:
    """The command line of a benchmark: repeats, sizes of the work, and the call of a worker."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats, help="turns each has")
    parser.add_argument("--only", default="", help="names of contestants, separated by commas")
    parser.add_argument("--part", default="", help="the one part of the benchmark that is run")
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: if busy")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.whole = given.repeats >= repeats and not given.only and given.clock == "wall"
    given.whole &= all(getattr(given, name) >= value for name, value in sizes.items())
    if given.contestant:
        serve(contestants, given.contestant, given.job)
        sys.exit(0)
    return given


# -------------------------------------------------------------------------------------- the table


def machine(python: Path) -> str:
    """The machine and the versions in words."""
    try:
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        names = []
    processor = names[0] if names else platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    ask = "import platform, torch; print(platform.python_version(), torch.__version__)"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    versions = done.stdout.split()
    return (
        f"{os.cpu_count()} x {processor}, {memory:.0f} GB, {platform.system()}; "
        f"Python {versions[0]}, torch {versions[1]}; {datetime.now(UTC):%Y-%m-%d}; "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )


def table(results: Sequence[Result], unit: str) -> str:
    """Times and ratios to the first result, which is ours."""
    ours = results[0]
    if ours.missing:
        sys.exit(f"{ours.contestant.name} cannot run: {ours.missing}")
    noted = any(result.note for result in results)
    lines = [
        f"| | version | set-up s | best {unit} | median | ratio to ours | to reach | import s "
        f"| peak MB |{' |' * noted}",
        "|---" * (9 + noted) + "|",
    ]
    for result in results:
        contestant = result.contestant
        if result.missing:
            lines.append(
                f"| {contestant.name} | | left out: {result.missing} {'| ' * (6 + noted)}|"
            )
            continue
        ratio = result.best / ours.best
        total = (result.build + result.best) / (ours.build + ours.best)
        asked = [
            f">= {least:.2f}{what}: {'reached' if value >= least else '**not reached**'}"
            for least, value, what in (
                (contestant.reach, ratio, ""),
                (contestant.reach_total, total, f" with set-up ({total:.1f})"),
            )
            if least is not None
        ]
        lines.append(
            f"| {contestant.name} | {result.version} | {result.build:.2f} | {result.best:.4g} "
            f"| {statistics.median(result.seconds):.4g} | {ratio:.2f} | {'; '.join(asked)} "
            f"| {result.imports:.1f} | {result.peak:.0f} |{f' {result.note} |' * noted}"
        )
    return "\n".join(lines)


def write(name: str, parts: Iterable[str], path: Path = RESULTS) -> None:
    """Put the section of one benchmark into the page of results, in place of its last one."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = "\n\n".join([begin, *parts, end])
    about = "Written by `make bench`, one section a benchmark; a ratio is (peer's time / ours)."
    head = f"# Results\n\n{about}\n"
    page = path.read_text(encoding="utf-8") if path.exists() else head
    before, found, rest = page.partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    path.write_text(f"{before if found else before + chr(10)}{section}{after}", encoding="utf-8")


class Page:
    """The section of one benchmark, round by round: printed as it grows, written when whole."""

    def __init__(self, name: str, script: str, given: argparse.Namespace) -> None:
        self.name = name
        self.script = Path(script)
        self.given = given
        self.python = python_of(name)
        self.parts: list[str] = []

    def round(self, title: str, racing: Sequence[Contestant], job: Job, unit: str = "s") -> None:
        """One race, of those that `--only` names, and its table."""
        only = self.given.only.split(",") if self.given.only else None
        racing = [one for one in racing if only is None or one.name in only]
        if racing:
            job = {"clock": self.given.clock, **job}
            results = race(self.script, racing, job, self.python, self.given.repeats)
            self.parts.append(f"### {title}\n\n{table(results, unit)}")
            print(self.parts[-1], flush=True)

    def close(self, heading: str, about: str, part: str = "") -> None:
        """Write the section, or one part of it, unless the run was short."""
        about = f"{about}\n\n{machine(self.python)}"
        if self.given.whole:
            name = f"{self.name}-{part}" if part else self.name
            write(name, [f"## {heading}", about, *self.parts])
        else:
            print(f"\n{about}\n\nA short run: benchmarks/RESULTS.md was left as it was.")
        self.parts = []
