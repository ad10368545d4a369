"""An experiment on its way: simulate, train every cell, then judge, draw and write the card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from everynet.recipes.experiment import Experiment, Table, named_cells
from everynet.recipes.stored import source_file
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs.cell_job import read_cell, sources_of, tidy_cell, train_cell
from everynet.runs.job import Job, Result
from everynet.runs.log import Log, seconds
from everynet.runs.progress import Progress
from everynet.runs.workers import by_workers
from everynet.system import files, seeds
from everynet.system.errors import Stopped, UserError
from everynet.system.explain import CellFailed, explained
from everynet.system.user_files import resuming


@dataclass
class Study(Job):
    """A run of an experiment."""

    jobs: int = 1
    cells: dict[str, Training] = field(default_factory=dict)

    def prepared(self) -> Callable[[], Result]:
        """Build one cell, so that mistakes show before a folder is made."""
        self.note_given()
        self.world.check(1, True, self.recipe.name)
        self.setup = replace(self.setup, threads=1)  # so that numbers do not depend on `jobs`
        torch.set_num_threads(1)
        self.cells = named_cells(self.recipe)
        tried = self.recipe.tried(self.cells)
        for name in tried if self.folder == Path() else tried[:1]:
            try:
                self.try_cell(self.cells[name], first=name == tried[0])
            except Exception as error:
                code, said = explained(error)
                if code != UserError.code:
                    raise
                raise UserError(f"cell {name}: {said}") from error
        return self.conduct

    def try_cell(self, recipe: Training, *, first: bool) -> None:
        """Read the data of a cell and build its network; the run tells of the first one's data."""
        cell = Job(recipe, self.setup, self.world, stop=self.stop)
        cell.note_given()
        cell.build()
        if first:
            self.data = cell.data

    def conduct(self) -> Result:
        """Simulate and train what is not done yet, and judge all of it."""
        recipe: Experiment = self.recipe
        files.cut(self.folder / "metrics.jsonl", 0)
        self.log = Log(self.folder / "metrics.jsonl")
        self.before = seconds(self.folder)
        if not checkpoint.steps(self.folder):
            self.simulate_once()
        while todo := to_do(recipe, self.folder, self.cells):
            self.train_all(todo)
        for name in self.cells:
            tidy_cell(self.folder, name)
        self.read.update(dict.fromkeys(sources_of(self.folder, self.cells)))
        table = load_table(recipe, self.folder)
        steps = sum(cell.step for cell in table.cells.values())
        return self.finish(steps, recipe.metrics(table), table)

    def simulate_once(self) -> None:
        """Compute what needs no training and keep it."""
        seeds.seed_all(self.setup.device, self.recipe.seed)
        generator = torch.Generator().manual_seed(self.recipe.seed)
        with self.whole():
            result = self.recipe.simulate(generator)
        files.make_folder(self.folder / "checkpoints")
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), result)

    def train_all(self, todo: Mapping[str, int]) -> None:
        """Train cells, here one after the other or by several processes."""
        self.progress.steps, self.progress.unit = len(todo), "cell"
        done = 0
        try:
            for done, _ in enumerate(self.trained(todo), 1):
                if self.progress.due():
                    self.progress.show(done, {})
        except Stopped as stopped:
            again = resuming(self.folder, source_file(self.recipe))
            raise Stopped(
                f"stopped with {done} of {len(todo)} cells done and the rest saved; go on with: "
                f"{again}", stopped.code - 128,
            ) from None  # fmt: skip
        finally:
            self.progress.close()
            self.note_time(done)

    def trained(self, todo: Mapping[str, int]) -> Iterator[str]:
        """The names of cells as they are done."""
        if min(self.jobs, len(todo)) > 1:
            file = source_file(self.recipe)
            yield from by_workers(todo, run=self.folder, file=file, jobs=self.jobs, stop=self.stop)
            return
        for number, (name, wanted) in enumerate(todo.items(), 1):
            if self.stop.signal:
                raise Stopped("", self.stop.signal)
            inner = Progress(1, self.progress.shown, said=self.progress.said)
            inner.before = f"cell {number:,}/{len(todo):,} {name}  "
            try:
                train_cell(
                    self.recipe, name, self.cells[name], run=self.folder, wanted=wanted,
                    setup=self.setup, stop=self.stop, progress=inner,
                )  # fmt: skip
            except Stopped:
                raise
            except Exception as error:
                raise CellFailed.of(name, error) from error
            finally:
                inner.close()
            yield name


def to_do(recipe: Experiment, run: Path, cells: Mapping[str, Training]) -> dict[str, int]:
    """The cells that have not come as far as they should, and how far that is."""
    read = ((name, read_cell(run, name, cell)) for name, cell in cells.items())
    ended = {name: cell for name, cell in read if cell is not None}

    def done(name: str, wanted: int) -> bool:
        cell = ended.get(name)
        return cell is not None and (cell.diverged is not None or cell.step >= wanted)

    wanted = recipe.wanted(cells, ended)
    return {name: step for name, step in wanted.items() if not done(name, step)}


def load_table(recipe: Experiment, run: Path) -> Table:
    """All that an experiment found, once it is done."""
    cells = named_cells(recipe)
    if todo := to_do(recipe, run, cells):
        raise UserError(
            f"{run} is not done: {len(todo)} of {len(cells)} cells are to be trained yet; go on "
            f"with: everynet resume {run}"
        )
    found = {name: read_cell(run, name, cell) for name, cell in cells.items()}
    ended = {name: cell for name, cell in found.items() if cell is not None}
    return Table(ended, checkpoint.load_newest_values(run))
