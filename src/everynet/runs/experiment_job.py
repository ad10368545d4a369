"""An experiment on its way: simulate, train every cell, then compute metrics, draw and tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from everynet.data.dataset import Spec
from everynet.recipes.experiment import Experiment, Table, named_cells
from everynet.recipes.recipe import NUMBERS, require_returned
from everynet.recipes.stored import source_file
from everynet.recipes.training import Training
from everynet.runs import checkpoint
from everynet.runs.cell_job import read_cell, sources_of, tidy_cell, train_cell
from everynet.runs.job import Job, Result
from everynet.runs.log import Log, read_seconds
from everynet.runs.progress import Progress
from everynet.runs.training_job import TrainingJob
from everynet.system import files, seeds
from everynet.system.errors import Failure, Stopped, UserError, explain
from everynet.system.user_files import resuming


class CellFailed(Failure):
    """A cell of an experiment could not be trained: which one, why, and the exit code of that."""

    def __init__(self, cell: str, why: str, code: int) -> None:
        super().__init__(f"cell {cell}: {why}; the others are saved: everynet resume goes on")
        self.code = code


@dataclass
class ExperimentJob(Job):
    """A run of an experiment."""

    cells: dict[str, Training] = field(default_factory=dict, init=False)

    def prepare(self) -> None:
        """Build some cells, so that mistakes show before a folder is made."""
        self.note_settings()
        self.refuse_processes()
        self.setup = replace(self.setup, threads=1)  # so that numbers do not depend on `jobs`
        self.cells = named_cells(self.recipe)
        tried = self.recipe.tried(self.cells)
        for name in tried if self.folder == Path() else tried[:1]:
            cell = TrainingJob(self.cells[name], self.setup, self.world, stop=self.stop)
            try:
                cell.prepare()
            except Exception as error:
                code, line = explain(error)
                if code != UserError.code:
                    raise
                raise UserError(f"cell {name}: {line}") from error
            if name == tried[0]:
                self.data = cell.data  # the card tells of it
        torch.set_num_threads(1)

    def run(self) -> Result:
        """Simulate and train what is not done yet, and compute the metrics of all of it."""
        recipe: Experiment = self.recipe
        files.cut(self.folder / "metrics.jsonl", 0)
        self.log = Log(self.folder / "metrics.jsonl")
        self.seconds_before = read_seconds(self.folder)
        for line in recipe.introduction():
            self.progress.say(line)
        if not checkpoint.steps(self.folder):
            self.simulate()
        while todo := cells_to_train(recipe, self.folder, self.cells):
            self.train_all(todo)
        for name in self.cells:
            tidy_cell(self.folder, name)
        self.sources.update(dict.fromkeys(sources_of(self.folder, self.cells)))
        table = load_table(recipe, self.folder)
        steps = sum(cell.step for cell in table.cells.values())
        metrics = recipe.metrics(table)
        require_returned(recipe, "metrics", metrics, Mapping, NUMBERS, of=(int, float))
        return replace(self.finish(steps, metrics, table), cells=recipe.records(table))

    def simulate(self) -> None:
        """Compute what needs no training and keep it."""
        seeds.seed_all(self.setup.device, self.recipe.seed)
        generator = torch.Generator().manual_seed(self.recipe.seed)
        with self.ending_at_once():
            result = self.recipe.simulate(generator)
        files.make_folder(self.folder / "checkpoints")
        checkpoint.save_values(checkpoint.path_of(self.folder, 1), result)

    def train_all(self, todo: Mapping[str, int]) -> None:
        """Train cells, here one after the other or by several processes."""
        self.progress.steps, self.progress.unit = len(todo), "cell"
        done, several = 0, min(self.jobs, len(todo)) > 1
        try:
            for done, _ in enumerate(self.in_workers(todo) if several else self.here(todo), 1):
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

    def in_workers(self, todo: Mapping[str, int]) -> Iterator[str]:
        """Train cells by several processes; the names of those that are done."""
        from everynet.runs.workers import by_workers  # noqa: PLC0415 -- only with --jobs

        file = source_file(self.recipe)
        return by_workers(todo, run=self.folder, file=file, jobs=self.jobs, stop=self.stop)

    def here(self, todo: Mapping[str, int]) -> Iterator[str]:
        """Train cells one after the other; the names of those that are done."""
        for number, (name, wanted) in enumerate(todo.items(), 1):
            if self.stop.signal:
                raise Stopped("", self.stop.signal)
            inner = Progress(1, self.progress.shown, once=self.progress.once)
            inner.before = f"cell {number:,}/{len(todo):,} {name}  "
            try:
                train_cell(
                    self.recipe, name, self.cells[name], run=self.folder, wanted=wanted,
                    setup=self.setup, stop=self.stop, progress=inner,
                )  # fmt: skip
            except Stopped:
                raise
            except Exception as error:
                code, line = explain(error)
                raise CellFailed(name, line, code) from error
            finally:
                inner.close()
            yield name

    @classmethod
    def load(cls, recipe: Experiment, folder: Path, spec: Spec) -> Table:
        """All that the experiment found."""
        return load_table(recipe, folder)

    def more_on_card(self, model: Table) -> Iterable[str]:
        page: list[str] = self.recipe.page(model)
        return page


def cells_to_train(recipe: Experiment, run: Path, cells: Mapping[str, Training]) -> dict[str, int]:
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
    if todo := cells_to_train(recipe, run, cells):
        raise UserError(
            f"{run} is not done: {len(todo)} of {len(cells)} cells are to be trained yet; go on "
            f"with: everynet resume {run}"
        )
    found = {name: read_cell(run, name, cell) for name, cell in cells.items()}
    ended = {name: cell for name, cell in found.items() if cell is not None}
    return Table(ended, checkpoint.load_newest_values(run))
