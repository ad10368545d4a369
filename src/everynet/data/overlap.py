"""Rows that lie in two parts at once, so that a test asks for nothing new.

Equal rows are no proof of that: two passengers may have the same age, class and fare. But rows that
are drawn alike have twins in train about as often as those of train have twins among themselves.
A part that has more, beyond a hundredth of its rows, shares rows with train. One is enough where
rows are not equal by chance: two columns of real numbers are different in all rows of train, or no
two of its images are equal. Rows are compared with their targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from everynet.data.report import row_sums
from everynet.data.split import PARTS, OwnSplit
from everynet.system.errors import UserError
from everynet.system.status import say

SHARE = 0.01
"""Of the rows of a part so many may be those of another, beside what chance explains."""
Array = np.ndarray[Any, Any]


def check_apart(name: str, parts: Mapping[str, Any], own: OwnSplit) -> None:
    """Refuse parts that a user made of the same rows; a few equal ones are said."""
    if not all(isinstance(part, tuple) and len(part) == 2 for part in parts.values()):
        return  # of a text, say, which has no rows
    keys = {part: _keys(*parts[part]) for part in PARTS}
    taken = [keys[part] for part in PARTS if part not in own.rows]
    made = {part: keys[part] for part in PARTS if part in own.rows}
    made["train"] = train = np.concatenate([keys["train"], *taken])
    _, group, count = np.unique(train, return_inverse=True, return_counts=True)
    twins = float((count[group] > 1).mean())
    x = parts["train"][0]
    images = isinstance(x, Tensor) and x.dim() == 4
    unique = (images and not twins) or _cannot_be_equal(x)
    for later in ("valid", "test"):
        for first in PARTS[: PARTS.index(later)]:
            if later not in made or first not in made:
                continue
            both, rows = int(np.isin(made[later], made[first]).sum()), len(made[later])
            most = 0 if unique else max(1, SHARE * rows) + 2 * twins * rows
            if both > most:
                raise UserError(
                    f"{name}: {both:,} of the {rows:,} rows of {later} are rows of {first} too, "
                    "and a network must be tested on others than it learns from; leave them out "
                    "of one of the two"
                )
            if both:
                say(
                    f"{name}: {both:,} of the {rows:,} rows of {later} are equal to some of {first}"
                )


def _keys(x: Tensor | Sequence[str], y: Tensor | Sequence[str]) -> Shaped[np.ndarray, " rows"]:
    """A number or a text for each row, the same where rows are equal with their targets."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        mine, its = (row_sums(np.ascontiguousarray(part.numpy())) for part in (x, y))
        both: Shaped[np.ndarray, " rows"] = mine * np.uint64(3) ^ its
        return both
    return np.array([f"{text}\0{other}" for text, other in zip(x, y, strict=True)], str)


def _cannot_be_equal(x: object) -> bool:
    """Whether two columns of real numbers, or more, are different in all of at least ten rows."""
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point() or len(x) < 10:
        return False
    found = 0
    for column in x.T:
        if bool((column != column.round()).any()) and len(column.unique()) == len(column):
            found += 1
            if found == 2:
                return True
    return False
