"""What recipes share that read a table, learn a column of it, or two classes by a probability."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from everynet.recipes.recipe import Recipe, later
from everynet.system.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Columns(Recipe):
    """A recipe that reads a table: which columns it has, and which rows are for what."""

    target: str = ""
    """The column of a table that is to be learned; one that is not learned from where none is."""
    drop: tuple[str, ...] = later(())
    """Columns of a table that are left out."""
    missing: tuple[str, ...] = later(())
    """What stands for no value in a table, beside empty cells, NA, n/a, NaN, null, none and ?."""
    split: str = later("")
    """A column of a table that says train, valid or test; empty: a hash does."""
    group: str = later("")
    """A column of a table whose values each lie in one part, such as patients."""
    until: str = later("")
    """A date: rows of a table before it are train and valid, later ones test; see time."""
    time: str = later("")
    """The column that until is compared with; empty: the one column of dates."""

    @property
    def columns(self) -> dict[str, Any]:
        """The settings of the columns of a table, as `load` takes them."""
        names = ("target", "drop", "missing", "split", "group", "until", "time")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Tabular(Columns):
    """A recipe that learns a column of a table from the others."""

    baselines: bool = later(True, learns=False)
    """Of a table: simple models of scikit-learn beside it, which change nothing that it learns."""

    def tiny(self) -> Self:
        return replace(super().tiny(), baselines=False)


@dataclass(frozen=True, kw_only=True)
class Probabilistic(Tabular):
    """One that gives classes a probability, so that a threshold can decide between two."""

    threshold: str = later("0.5")
    """The least probability of the rarer of two classes, or f1: what is best on validation."""
    recall: float = later(0.0)
    """The share of the rarer of two classes that the threshold is to find; 0: see threshold."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 <= self.recall <= 1, "recall", "from 0 to 1")
        if self.threshold == "f1":
            one = not self.recall
            self.require(one, "threshold", "left out with recall, which chooses one itself")
            return
        try:
            known = 0 < float(self.threshold) < 1
        except ValueError:
            known = False
        self.require(known, "threshold", "f1 or a number between 0 and 1")
        if self.recall and float(self.threshold) != 0.5:
            raise UserError(
                f"recall ({self.recall:g}) must be left out with threshold={self.threshold}, "
                "because each decides alone; give one of them"
            )

    @property
    def chooses_threshold(self) -> bool:
        """Whether the validation split chooses the threshold."""
        return self.threshold == "f1" or self.recall > 0

    @property
    def decides_as_usual(self) -> bool:
        """Whether the more probable class is the answer."""
        return not self.chooses_threshold and float(self.threshold) == 0.5
