"""The log of a run for a program: flat records as they come, and columns of them at the end.

A record is a dict of numbers: `step` (updates done), and for what was logged there a name of split
and figure, such as `train_loss`, `valid_accuracy` or, at the end, `test_accuracy`. Training figures
are logged at every step up to a thousand, every tenth up to ten thousand, and so on. A fitting, a
simulation and an experiment log their figures at the end alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Flat: TypeAlias = dict[str, float]
"""One record: `{"step": 7, "train_loss": 0.41}`."""
Watch: TypeAlias = Callable[[Flat], object]
"""What `run(watch=...)` is given: called with each record; what it returns does not matter."""


def flat(row: Mapping[str, Any]) -> Flat:
    """A row of metrics.jsonl without its nesting; what a network said is left out."""
    record: Flat = {"step": row["step"]}
    for split, figures in row.items():
        if isinstance(figures, Mapping):
            record |= {f"{split}_{name}": value for name, value in figures.items()}
    return record


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """All rows as columns of one length, a line for each step; NaN where nothing was logged."""
    lines: dict[float, Flat] = {}
    for record in map(flat, rows):
        lines.setdefault(record["step"], {}).update(record)
    names = dict.fromkeys(name for record in lines.values() for name in record)
    return {name: [record.get(name, math.nan) for record in lines.values()] for name in names}
