"""The two logs of a run: metrics.jsonl, the same bytes however often it stopped, and the clock.

For a program a row of metrics.jsonl is a flat record of numbers: `step` (updates done), and for
what was logged there a name of split and metric, such as `train_loss`, `valid_accuracy` or, at the
end, `test_accuracy`. Terms of training are logged at every step up to a thousand, every tenth up to
ten thousand, and so on. A fitting, a simulation and an experiment log metrics at the end alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

from everynet.data.dataset import Record
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.manifest import digest, parsed
from everynet.training.processes import World

Flat: TypeAlias = dict[str, float]
"""One record: `{"step": 7, "train_loss": 0.41}`."""
Watch: TypeAlias = Callable[[Flat], object]
"""What `run(watch=...)` is given: called with each record; what it returns does not matter."""


@runtime_checkable
class Mark(Protocol):
    """How long the log was, and the SHA-256 of it then: what a checkpoint remembers."""

    log_length: int
    log_sha256: str


@dataclass
class Log:
    """metrics.jsonl: no clock times, so that a resumed run writes the very same bytes."""

    path: Path | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    length: int = 0
    pending: list[Record] = field(default_factory=list)
    late: bool = False
    """Rows are written when a checkpoint is: a kill loses those after the last one anyway."""
    _unwritten: bytes = b""
    _seen: Any = field(default_factory=hashlib.sha256)
    """The hash of all that was written so far."""

    @staticmethod
    def of(folder: Path, mark: Mark | None = None) -> Log:
        """The log of a run, or as much of it as there was at a mark."""
        path = folder / "metrics.jsonl"
        content = files.read(path)
        if mark is None:
            whole = content[: content.rfind(b"\n") + 1]  # a kill can leave half a line
        else:
            whole = content[: mark.log_length]
            if len(whole) != mark.log_length or digest(whole) != mark.log_sha256:
                raise UserError(
                    f"{path} has been changed or cut short since it was written, and schedules and "
                    "curves are made of it; bring it back as it was, or run the recipe anew"
                )
        rows = [_row(line, path) for line in whole.splitlines()]
        return Log(path, rows, len(whole), _seen=hashlib.sha256(whole))

    @property
    def sha256(self) -> str:
        """The SHA-256 of the first `length` bytes."""
        return str(self._seen.hexdigest())

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The rows that schedules may look at: those of a trained network."""
        return [row for row in self.rows if "valid" in row and row["step"] > 0]

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of what training minimises, as the first update gave them."""
        return tuple(next((row["train"] for row in self.rows if "train" in row), ()))

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row and write it."""
        self.rows.append(row)
        self._write([row])

    def flush(self, world: World) -> None:
        """Write the terms that are waiting, each row with the names its update had.

        Raises if one of them is not finite, after those before it are written.
        """
        if not self.pending:
            return
        if not world.same("; ".join(" ".join(record.terms) for record in self.pending)):
            raise UserError(
                f"the terms of steps {self.pending[0].step} to {self.pending[-1].step} must have "
                "the same names in every process; give a term everywhere, or nowhere"
            )
        terms = [term for record in self.pending for term in record.terms.values()]
        flat = torch.stack(terms) if terms else torch.empty(0)
        if world.size > 1 and terms:
            world.average([flat])
        values = map(float, flat.tolist())
        rows, bad = [], 0
        for record in self.pending:
            row = {name: next(values) for name in record.terms}
            if not all(map(math.isfinite, row.values())):
                bad = record.step
                break
            if worth_logging(record.step):
                rows.append({"step": record.step, "train": row})
        self.pending.clear()
        self.rows += rows
        self._write(rows)
        if bad:
            raise NonFiniteAt(bad)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        content = b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
        self.length += len(content)
        self._seen.update(content)
        self._unwritten += content
        if not self.late:
            self.settle()

    def settle(self) -> None:
        """Write what is not written yet."""
        if self.path is not None and self._unwritten:
            files.append(self.path, self._unwritten)
        self._unwritten = b""


def _row(line: bytes, path: Path) -> dict[str, Any]:
    """A line of the log: a step, and named metrics of one or more splits."""
    match row := parsed(line, path):
        case {"step": int(step), **rest} if step >= 0 and all(
            isinstance(v, str) if k == "said" else _are_metrics(v) for k, v in rest.items()
        ):
            return dict(row)
    raise UserError(f"{path} is damaged: a line of it must hold a step and named metrics")


def _are_metrics(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, float | int) for v in value.values())


def flatten(row: Mapping[str, Any]) -> Flat:
    """A row of metrics.jsonl without its nesting; text that a network made is left out."""
    record: Flat = {"step": row["step"]}
    for split, metrics in row.items():
        if isinstance(metrics, Mapping):
            record |= {f"{split}_{name}": value for name, value in metrics.items()}
    return record


def to_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """All rows as columns of one length, a line for each step; NaN where nothing was logged."""
    lines: dict[float, Flat] = {}
    for record in map(flatten, rows):
        lines.setdefault(record["step"], {}).update(record)
    names = dict.fromkeys(name for record in lines.values() for name in record)
    return {name: [record.get(name, math.nan) for record in lines.values()] for name in names}


def worth_logging(step: int) -> bool:
    """Every step up to a thousand, every tenth up to ten thousand, and so on."""
    every = 10 ** max(0, len(str(step - 1)) - 3)
    return step % int(every) == 0


class NonFiniteAt(ArithmeticError):
    """A value that is not finite was seen after this update."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


def read_seconds(folder: Path) -> float:
    """How long the sessions of a run took so far, as far as they wrote it down."""
    try:
        last = files.read(folder / "timing.jsonl").splitlines()[-1]
        return float(json.loads(last)["seconds"])
    except (UserError, ValueError, IndexError, KeyError, TypeError, RecursionError):
        return 0.0


def note_seconds(folder: Path, step: int, seconds: float) -> None:
    """Add a clock time to timing.jsonl."""
    row = {"step": step, "seconds": round(seconds, 3)}
    files.append(folder / "timing.jsonl", json.dumps(row).encode() + b"\n")
