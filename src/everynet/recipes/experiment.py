"""The fourth kind of recipe: a law that is shown by training, cell by cell.

    cells()          named trainings: a grid of settings and seeds
    measure(...)     what is looked at in each, at step 0 and at every evaluation
    simulate(...)    what needs no training
    metrics(table)   metrics of all that was measured; so pictures(table)

Every cell goes through the one trainer, in a folder of its own inside that of the run. A cell whose
numbers cease to be finite has diverged, which is a result: it ends there and the others go on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from everynet.data.dataset import Data
from everynet.recipes.recipe import Recipe, require_returned
from everynet.recipes.settings import settings
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError

NAME = re.compile(r"[A-Za-z0-9][\w=.,+-]{0,119}", re.ASCII)


@dataclass(frozen=True)
class Cell:
    """One training of an experiment: what was seen on the way, and its network."""

    recipe: Training
    step: int
    """Updates done, or the one after which it had diverged."""
    steps: Tensor
    """Updates done at each look, 0 first."""
    measured: Mapping[str, Tensor]
    """What `measure` gave, stacked over the looks; numbers are float64."""
    valid: Mapping[str, Tensor]
    """Metrics on the validation split, one a look, float64."""
    terms: Mapping[str, tuple[Tensor, Tensor]]
    """What training logged of each term: updates done, and values in float64."""
    diverged: int | None
    """The step at which a value was first seen that is not finite; later looks are absent."""
    test: Mapping[str, float]
    """Metrics on the test split at the end, where the experiment asks for them."""
    network: Callable[[], nn.Module]
    """Gives the network with the last weights, in eval mode; a diverged cell has none."""

    @property
    def last(self) -> dict[str, float]:
        """The metrics on the validation split at the last look."""
        return {name: float(values[-1]) for name, values in self.valid.items()}


@dataclass(frozen=True)
class Table:
    """All that an experiment found: its cells by name, and the result of `simulate`."""

    cells: Mapping[str, Cell]
    result: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Experiment(Recipe):
    """A law that is shown by training several networks."""

    kind: ClassVar[str] = "experiment"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda", "mps")
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "tf32", "bf16", "fp64")
    tests: ClassVar[bool] = False  # whether cells that have ended are evaluated on the test split

    def cells(self) -> dict[str, Training[Any, Any]]:
        """The trainings by name; a name is the folder of its cell."""
        raise NotImplementedError  # every recipe says it

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """Numbers and arrays at step 0 and at each evaluation, the same names every time.

        The network is in training mode and no gradient is kept: whoever wants another mode, or
        `torch.enable_grad()`, says so and leaves the network as it was.
        """
        return {}

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Named arrays that need no training."""
        return {}

    def metrics(self, table: Table) -> dict[str, float]:
        """Metrics of all that was found."""
        raise NotImplementedError  # every recipe says it

    def wanted(self, cells: Mapping[str, Training], ended: Mapping[str, Cell]) -> Mapping[str, int]:
        """How far each cell is to be trained; asked again whenever all have come so far."""
        return {name: recipe.steps for name, recipe in cells.items()}

    def tried(self, cells: Mapping[str, Training]) -> Sequence[str]:
        """The cells that are built before the run begins, so that a mistake shows: the first."""
        return [*cells][:1]

    def origin(self) -> Recipe:
        """The recipe that the file of a run of this one is named after."""
        return self

    def introduction(self) -> list[str]:
        """Lines that say what is trained, before it is."""
        return []

    def varied(self, table: Table) -> Sequence[str]:
        """The settings in which cells differ; the seed is named beside them."""
        every = [settings(cell.recipe) for cell in table.cells.values()]
        names = dict.fromkeys(name for each in every for name in each if name != "seed")
        return [n for n in names if any(each.get(n) != every[0].get(n) for each in every)]

    def ranked(self, table: Table) -> Sequence[str]:
        """The cells in the order in which a table has them."""
        return [*table.cells]

    def records(self, table: Table) -> list[dict[str, Any]]:
        """A row for each cell: its name, what varies, and its metrics at the end (NaN for none)."""
        varied, cells = self.varied(table), [*table.cells.values()]
        valid = dict.fromkeys(name for cell in cells for name in cell.valid)
        test = dict.fromkeys(name for cell in cells for name in cell.test)
        rows = []
        for name in self.ranked(table):
            cell = table.cells[name]
            row = {"cell": name, **{n: getattr(cell.recipe, n, None) for n in varied}}
            row |= {"seed": cell.recipe.seed, "step": cell.step}
            row |= {"diverged": cell.diverged is not None}
            last = cell.last if cell.diverged is None else {}
            row |= {f"valid_{n}": last.get(n, math.nan) for n in valid}
            rows.append(row | {f"test_{n}": cell.test.get(n, math.nan) for n in test})
        return rows

    def page(self, table: Table) -> list[str]:
        """Lines of Markdown that the card shows besides the metrics: what each cell came to."""
        names = [*dict.fromkeys(name for cell in table.cells.values() for name in cell.valid)]
        heading = ["cell", "steps", *(f"valid {name}" for name in names)]
        lines = [heading, ["---"] * len(heading)]
        for name, cell in table.cells.items():
            if cell.diverged is None:
                lines.append([name, f"{cell.step:,}", *(f"{cell.last[n]:.6g}" for n in names)])
            else:
                lines.append([name, f"diverged at {cell.diverged:,}", *["-"] * len(names)])
        return ["", "## Cells", "", *(f"| {' | '.join(line)} |" for line in lines)]


def named_cells(recipe: Experiment) -> dict[str, Training]:
    """The cells of an experiment, each with a name that a folder can have."""
    cells = recipe.cells()
    require_returned(recipe, "cells", cells, Mapping, "a dict of trainings by name")
    if not cells:
        raise UserError(f"cells of {recipe.name} must hold a training: it holds none")
    folded: dict[str, str] = {}
    for name, cell in cells.items():
        if not NAME.fullmatch(name):
            raise UserError(
                f"cell ({name}) must be a plain file name, because it is a folder: letters, "
                "digits and any of _ = . , + - behind the first, 120 at most"
            )
        if (other := folded.setdefault(name.lower(), name)) != name:
            raise UserError(
                f"cell ({name}) must differ from {other} in more than capitals, because some "
                "systems take the two for one folder"
            )
        if not isinstance(cell, Training):
            raise UserError(f"cell ({name}) must be a Training, not {type(cell).__name__}")
    return cells


def stacked(looks: list[dict[str, Any]]) -> dict[str, Tensor]:
    """What was measured at several looks, by name."""
    first = looks[0] if looks else {}
    for look in looks[1:]:
        if look.keys() != first.keys():
            raise UserError(
                f"measure must give the same names at every look: {', '.join(first) or 'none'} at "
                f"first, then {', '.join(look) or 'none'}"
            )
    return {name: _stack(name, [look[name] for look in looks]) for name in first}


def _stack(name: str, values: list[float | Tensor]) -> Tensor:
    tensors = [torch.as_tensor(v).detach().cpu() for v in values]
    tensors = [t if t.dim() else t.double() for t in tensors]
    shapes = {tuple(t.shape): None for t in tensors}
    if len(shapes) > 1:
        raise UserError(
            f"measure must give {name} in one shape at every look, not "
            + " and ".join(str([*shape]) for shape in shapes)
        )
    return torch.stack(tensors)
