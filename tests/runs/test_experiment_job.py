"""Experiments: cells go through the one trainer, and are the same however often they are broken."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import everynet
from everynet import runs
from everynet.cli import main
from everynet.recipes.experiment import stacked
from everynet.recipes.settings import settings
from everynet.recipes.stored import of_run
from everynet.runs import cell_job as cells
from everynet.runs import checkpoint, workers
from everynet.runs import worker as worker_process
from everynet.runs.experiment_job import CellFailed
from everynet.runs.log import Log
from everynet.runs.workers import Worker
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import Stop
from everynet.system.sources import note
from everynet.training.loop import begin, train
from tests.runs import laws
from tests.runs.laws import Law, Steep
from tests.runs.recipes import RECIPES
from tests.runs.sealed import reseal
from tests.test_contract import Killed, same, table_values

LAW = Law(name="law")
FILE = Path(laws.__file__)
GOOD, BAD = "lr-0.1-1", "lr-1e+30-1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return runs.run(LAW, tmp_path_factory.mktemp("whole"), device="cpu")


@pytest.fixture(scope="module")
def table(whole):
    return runs.load(LAW, whole.folder)


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Every update that is done anywhere, as `rate-seed step`."""
    path = tmp_path / "updates"
    path.touch()
    monkeypatch.setenv("EVERYNET_TEST_STEPS", str(path))
    return lambda: path.read_text().splitlines()


def folder_of(out):
    (folder,) = out.glob("law-*")
    return folder


# ------------------------------------------------------------------------------ what a cell is


def test_the_table(whole, table):
    cell = table.cells[GOOD]
    assert cell.steps.tolist() == [0, 4, 8, 12]
    assert cell.step == 12
    assert cell.diverged is None
    assert cell.measured["norm"].dtype == cell.valid["cross_entropy"].dtype == torch.float64
    assert cell.measured["norm"].shape == cell.valid["cross_entropy"].shape == (4,)
    assert cell.measured["weights"].shape == (4, 6, 4)
    norms = cell.measured["weights"].flatten(1).norm(dim=1).double()
    torch.testing.assert_close(cell.measured["norm"], norms, rtol=1e-6, atol=0)
    assert len({*cell.measured["norm"].tolist()}) == 4  # a copy at each look
    assert cell.measured["training"].tolist() == [1, 1, 1, 1]
    assert cell.terms["cross_entropy"][0].tolist() == [*range(1, 13)]
    assert cell.last == {"cross_entropy": float(cell.valid["cross_entropy"][-1])}
    assert cell.test == {}
    drawn = torch.rand(3, generator=torch.Generator().manual_seed(LAW.seed))
    assert torch.equal(table.result["drawn"], drawn)
    assert whole.metrics["diverged"] == 2
    assert whole.reached


def test_a_cell_is_a_run_of_its_recipe_and_measuring_changes_nothing(table, tmp_path):
    """`measure` draws random numbers, and training has dropout."""
    cell = table.cells[GOOD]
    alone = runs.run(replace(cell.recipe, goal="", name="steep"), tmp_path, device="cpu")
    expected = runs.load(cell.recipe, alone.folder).state_dict()
    same(dict(expected), dict(cell.network().state_dict()))
    assert torch.equal(cell.measured["weights"][-1], expected["0.weight"])
    rows = Log.of(alone.folder).rows
    assert cell.valid["cross_entropy"][1:].tolist() == [
        row["valid"]["cross_entropy"] for row in rows if "valid" in row
    ]
    assert cell.terms["cross_entropy"][1].tolist() == [
        row["train"]["cross_entropy"] for row in rows if "train" in row
    ]


def test_the_look_at_step_0_is_of_the_network_as_it_was_built(table):
    cell = table.cells[GOOD]
    state = begin(cell.recipe, cell.recipe.dataset())
    assert torch.equal(cell.measured["weights"][0], state.model[0].weight)
    next(train(cell.recipe, state, cell.recipe.dataset()))
    assert not torch.equal(cell.measured["weights"][0], state.model[0].weight)


def test_what_is_measured_by_chance_follows_from_seed_and_step(table):
    noise = [table.cells[name].measured["noise"].tolist() for name in (GOOD, "lr-0.1-0")]
    assert len({*noise[0], *noise[1]}) == 8
    assert table.cells["lr-0.01-1"].measured["noise"].tolist() == noise[0]  # the same seed


def test_a_cell_that_diverges_is_a_result(whole, table):
    cell = table.cells[BAD]
    assert cell.diverged == cell.step == 2
    assert cell.steps.tolist() == [0]
    assert cell.measured["weights"].shape == (1, 6, 4)
    assert cell.terms["cross_entropy"][0].tolist() == [1]  # the finite ones
    with pytest.raises(UserError, match=r"cell lr-1e\+30-1 diverged at step 2: .* no network left"):
        cell.network()
    assert not checkpoint.steps(whole.folder / "cells" / BAD)


def test_a_network_of_a_cell_that_is_larger_than_memory_is_refused(table, monkeypatch):
    monkeypatch.setattr("everynet.training.preflight.free", lambda: 0)
    with pytest.raises(
        UserError, match=r"the network must be smaller, because the weights of Steep"
    ):
        table.cells[GOOD].network()


@dataclass(frozen=True, kw_only=True)
class Sudden(Steep):
    """A weight, or a figure, that is no number at the second look, which no term shows."""

    where: str = "weight"
    when: int = 3

    def step(self, state, batch):
        terms = super().step(state, batch)
        if state.step == self.when and self.where == "weight":
            with torch.no_grad():
                state.model[-1].bias[0] = torch.inf
        return terms

    def metrics(self, model, batch):
        trained = model[0].weight[0, 0] != begin(self, self.dataset()).model[0].weight[0, 0]
        bad = self.where == "figure" and trained
        return {"cross_entropy": torch.tensor(torch.nan if bad else 1.0)}


def law_of(*made, **more):
    """A law of these cells; `more` is what else is new in it."""
    cells = {f"cell-{n}": cell for n, cell in enumerate(made)}
    cls = type("Given", (Law,), {"cells": lambda _: cells, "pictures": lambda *_: {}, **more})
    return cls(name="given", goal="")


def test_a_cell_may_diverge_in_its_weights_or_figures(tmp_path):
    law = law_of(Sudden(), Sudden(where="figure"), Sudden(where="nowhere"))
    found = runs.load(law, runs.run(law, tmp_path, device="cpu").folder).cells.values()
    assert [cell.diverged for cell in found] == [4, 4, None]
    assert [cell.steps.tolist() for cell in found] == [[0], [0], [0, 4, 8, 12]]


@pytest.mark.parametrize("save", [-1.0, 20.0])
def test_when_a_cell_diverged_does_not_hang_on_when_it_was_saved(save, tmp_path, monkeypatch):
    """Its weights are bad after update 2 and a term after 3: a checkpoint between finds nothing."""
    monkeypatch.setattr(cells, "SAVE", save)
    law = law_of(Sudden(when=1))
    found = runs.load(law, runs.run(law, tmp_path, device="cpu").folder).cells["cell-0"]
    assert found.diverged == 3
    assert found.terms["cross_entropy"][0].tolist() == [1, 2]


def test_a_plateau_does_not_look_at_step_0(tmp_path):
    """Which a run has not: the cell descends as its run does, where nothing gets better."""

    class Flat(type(RECIPES["plateau"])):
        def metrics(self, model, batch):
            return {"cross_entropy": torch.ones(len(batch[0]))}

    law = law_of(Flat())
    found = runs.load(law, runs.run(law, tmp_path, device="cpu").folder).cells["cell-0"]
    alone = runs.run(Flat(name="plateau"), tmp_path / "alone", device="cpu")
    assert found.terms["cross_entropy"][1].tolist() == [
        row["train"]["cross_entropy"] for row in Log.of(alone.folder).rows if "train" in row
    ]


# ----------------------------------------------------------------------------- broken and resumed


def kill_at(monkeypatch, rate_seed, step, how=Killed):
    """End the run as a kill does, just before an update of a cell."""

    def stepped(self, state, batch, step_of=Steep.step):
        if (f"{self.lr:g}-{self.seed}", state.step) == (rate_seed, step):
            monkeypatch.setattr(Steep, "step", step_of)
            raise how
        return step_of(self, state, batch)

    monkeypatch.setattr(Steep, "step", stepped)


@pytest.mark.parametrize(("every", "repeated"), [(0, 7), (3, 1), (7, 0)])
def test_a_cell_that_was_killed_goes_on_from_its_checkpoint(  # noqa: PLR0917 -- fixtures
    every, repeated, table, tmp_path, monkeypatch, counted
):
    law = replace(LAW, every=every)
    kill_at(monkeypatch, "0.1-0", 7)
    with pytest.raises(Killed):
        runs.run(law, tmp_path, device="cpu")
    before = counted()
    folder = folder_of(tmp_path)
    with pytest.raises(UserError, match=r"is not done: 4 of 6 cells .* everynet resume"):
        runs.load(law, folder)
    with (folder / "cells" / "lr-0.1-0" / "metrics.jsonl").open("a") as log:  # no checkpoint has it
        log.write('{"step": 8, "valid": {"cross_entropy": 0.0}}\n{"step": 9, "tra')
    runs.resume(law, folder)
    assert len(counted()) - len({*counted()}) == repeated
    assert not {*before} & {*counted()[len(before) + repeated :]}
    same(table_values(table), table_values(runs.load(law, folder)))
    done = counted()
    runs.resume(law, folder)
    assert counted() == done


def test_how_often_a_cell_is_saved_changes_nothing(table, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "SAVE", -1.0)
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda path, *rest, save=checkpoint.save: (
        saved.append(path.name), save(path, *rest)))  # fmt: skip
    result = runs.run(LAW, tmp_path, device="cpu")
    assert saved[:12] == [str(step) for step in range(1, 13)]
    same(table_values(table), table_values(runs.load(LAW, result.folder)))
    kept = result.folder / "cells" / GOOD
    assert [p.name for part in ("checkpoints", "measured") for p in (kept / part).iterdir()] == [
        "12",
        "12",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_cell_that_is_trained(number, table, tmp_path, monkeypatch, counted):
    def stepped(self, state, batch, step_of=Steep.step):
        if (self.lr, self.seed, state.step) == (0.1, 1, 5):
            os.kill(os.getpid(), number)
        return step_of(self, state, batch)

    monkeypatch.setattr(Steep, "step", stepped)
    words = "stopped with 3 of 6 cells done and the rest saved; go on with: everynet resume "
    with pytest.raises(Stopped, match=words) as stopped:
        runs.run(LAW, tmp_path, device="cpu")
    assert stopped.value.code == 128 + number
    monkeypatch.undo()
    runs.resume(LAW, folder_of(tmp_path))
    assert len(counted()) == len({*counted()})
    same(table_values(table), table_values(runs.load(LAW, folder_of(tmp_path))))


def test_a_signal_in_the_last_update_of_a_cell_begins_no_other(tmp_path, monkeypatch, counted):
    def stepped(self, state, batch, step_of=Steep.step):
        if (self.lr, self.seed, state.step) == (0.1, 1, 11):
            os.kill(os.getpid(), signal.SIGTERM)
        return step_of(self, state, batch)

    monkeypatch.setattr(Steep, "step", stepped)
    with pytest.raises(Stopped, match="stopped with 4 of 6 cells done"):
        runs.run(LAW, tmp_path, device="cpu")
    assert len(counted()) == 4 * 12


def test_what_a_kill_left_in_cells_that_ended_is_removed(whole, tmp_path):
    shutil.copytree(whole.folder, tmp_path / "copy")
    good, bad = (tmp_path / "copy" / "cells" / name for name in (GOOD, BAD))
    shutil.copytree(good / "checkpoints" / "12", bad / "checkpoints" / "1")
    for part in (good / "checkpoints", good / "measured"):  # of the save before the last
        shutil.copytree(part / "12", part / "8")
    shutil.copytree(bad / "measured" / "2", bad / "measured" / "1")
    shutil.copytree(good / "checkpoints" / "12", good / "checkpoints" / f".everynet-{'a' * 16}-8")
    (good / f".everynet-{'b' * 16}-ended.json").touch()
    runs.resume(LAW, tmp_path / "copy")
    assert [p.name for p in (good / "checkpoints").iterdir()] == ["12"]
    assert [p.name for p in (good / "measured").iterdir()] == ["12"]
    assert [p.name for p in (bad / "measured").iterdir()] == ["2"]
    assert not [*(bad / "checkpoints").iterdir()]
    assert not [*good.glob(".*")]


def test_folders_that_are_no_cells_of_the_experiment_are_not_even_opened(whole, tmp_path):
    """To lock and search 20,000 of them took 13 CPU-seconds."""
    shutil.copytree(whole.folder, tmp_path / "copy")
    stray = tmp_path / "copy" / "cells" / "lr-7-0"
    stray.mkdir()
    (stray / f".everynet-{'a' * 16}-8").touch()
    runs.resume(LAW, tmp_path / "copy")
    assert [p.name for p in stray.iterdir()] == [f".everynet-{'a' * 16}-8"]


def test_a_damaged_checkpoint_of_a_cell_begins_it_again(table, tmp_path, monkeypatch, capsys):
    kill_at(monkeypatch, "0.1-1", 7)
    law = replace(LAW, every=3)
    with pytest.raises(Killed):
        runs.run(law, tmp_path, device="cpu")
    folder = folder_of(tmp_path)
    (folder / "cells" / GOOD / "checkpoints" / "6" / "state.json").write_bytes(b"")
    runs.resume(law, folder, show=True)
    said = capsys.readouterr().err
    assert f"cell {GOOD}: " in said
    assert "damaged" in said
    assert "; it begins again" in said
    same(table_values(table), table_values(runs.load(law, folder)))


# ------------------------------------------------------------------------------ several processes


def test_two_processes_give_the_same_table_and_a_cell_that_fails_in_one_is_named(
    table, whole, tmp_path, monkeypatch, counted
):
    """To start them takes longest: the cells that two have trained are gone on with by this one."""
    monkeypatch.setenv("EVERYNET_TEST_FAIL", "0.1-1 11")
    words = r"cell lr-0.1-1: the data of this cell is bad; .*everynet resume goes on"
    with pytest.raises(CellFailed, match=words) as failed:
        runs.run(LAW, tmp_path, device="cpu", jobs=2)
    assert failed.value.code == 2
    assert len(counted()) == len({*counted()})  # no cell is trained by both
    folder = folder_of(tmp_path)
    assert len([*folder.glob("cells/*/ended.json")]) >= 2  # of the three before it
    monkeypatch.setenv("EVERYNET_TEST_FAIL", "0.1-1 5")
    with pytest.raises(CellFailed, match=r"cell lr-0.1-1: .*is bad"):
        runs.resume(LAW, folder)
    monkeypatch.delenv("EVERYNET_TEST_FAIL")
    assert runs.resume(LAW, folder).metrics == whole.metrics
    same(table_values(table), table_values(runs.load(LAW, folder)))
    repeated = len(counted()) - len({*counted()})
    assert repeated <= 11 + 5 + 2  # of the one that failed, and what it wrote before it did


def test_a_worker_starts_no_workers(tmp_path, monkeypatch):
    """A script that is no guarded main would otherwise start itself over and over."""
    monkeypatch.setenv("EVERYNET_WORKER", "1")
    words = r"jobs \(2\) must be 1 in a process that trains cells; .* if __name__"
    with pytest.raises(UserError, match=words):
        runs.run(LAW, tmp_path, device="cpu", jobs=2)


def worker(script):
    """A process that answers as the script says, instead of training."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    made = Worker(process, tempfile.TemporaryFile(), "lr-1")  # noqa: SIM115 -- closed below
    made.errors.write(b"Traceback\nMemoryError\n")
    return made


def answer(made):
    while not made.answered():  # it may come in pieces
        pass


@pytest.mark.parametrize(("script", "words", "code"), [
    ("import os; os.kill(os.getpid(), 9)", r"its process was killed by signal 9 \(Memory", 1),
    ("raise SystemExit(7)", r"its process ended with exit code 7 \(MemoryError\); the others", 1),
    ("""print('{"warnings": [], "failed": "disk full", "code": 4}')""", "disk full; the others", 4),
])  # fmt: skip
def test_why_a_worker_failed(script, words, code):
    made = worker(script)
    with pytest.raises(CellFailed, match=f"cell lr-1: {words}") as failed:
        answer(made)
    assert failed.value.code == code
    close(made)


def test_what_a_worker_warns_of_is_told_with_its_cell():
    made = worker("""print('{"warnings": ["late"], "failed": "", "code": 0}')""")
    with pytest.warns(UserWarning, match="cell lr-1: late"):
        answer(made)
    close(made)


HANGS = "import time\nwhile True: time.sleep(1)"


@pytest.mark.parametrize(("script", "words"), [
    ("print('hello', flush=True)\n" + HANGS, r"wrote what is no answer: hello; the others"),
    ("print('[1]', flush=True)\n" + HANGS, r"wrote what is no answer: \[1\]"),
    ("print('{\"failed\": 1}\\n' * 2, flush=True)\n" + HANGS, r"what is no answer; the others"),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", r"wrote what is no answer; the others"),
    ("import os\nos.write(1, b'{\"failed\": ')", r"ended with exit code 0"),
    ("import os\nos.write(1, b'{'); os.kill(os.getpid(), 9)", r"was killed by signal 9"),
    ("import os\nos.write(1, b'{')\n" + HANGS, r"said nothing for 1 s and was killed"),
    ("import os\nos.close(1)\n" + HANGS, r"was killed by signal 9"),
])  # fmt: skip
def test_a_worker_that_dies_hangs_floods_or_writes_garbage(script, words, monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-S", "-c", script))
    monkeypatch.setattr(workers, "SILENCE", 1.0)
    monkeypatch.setattr(workers, "GOING", 0.5)
    begun = time.monotonic()
    with pytest.raises(CellFailed, match=f"cell a: its process .*{words}") as failed:
        list(workers.by_workers({"a": 3}, run=tmp_path, file="", jobs=2, stop=Stop()))
    assert failed.value.code == 1
    assert time.monotonic() - begun < 30  # neither it nor its end is waited for


def test_a_worker_that_only_says_that_it_is_alive_is_waited_for_until_a_signal(
    monkeypatch, tmp_path
):
    script = "import time\nwhile True: time.sleep(0.1); print(flush=True)"
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-S", "-c", script))
    monkeypatch.setattr(workers, "SILENCE", 0.5)
    monkeypatch.setattr(workers, "GOING", 0.1)
    stop = Stop()
    threading.Timer(1.5, lambda: setattr(stop, "signal", 15)).start()
    with pytest.raises(Stopped):
        list(workers.by_workers({"a": 3}, run=tmp_path, file="", jobs=2, stop=stop))


@pytest.mark.parametrize("written", [b"", b'["lr-0.1-', b"garbage\n"])
def test_a_worker_whose_parent_is_killed_goes_though_it_was_amidst_a_message(written, tmp_path):
    """It has the import of this process: a fork."""
    there, here = os.pipe()
    os.write(here, written)
    child = os.fork()
    if child == 0:
        os.close(here)
        signal.alarm(60)  # it waited for good
        os.dup2(there, 0)
        sys.stdin = os.fdopen(0)
        os._exit(worker_process.main(tmp_path, ""))
    os.close(here)
    os.close(there)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_worker_says_that_it_is_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "BEAT", 0.02)
    (there, here), (answers, said) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        os.dup2(there, 0)
        os.dup2(said, 1)
        sys.stdin = os.fdopen(0)
        os._exit(worker_process.main(tmp_path, ""))
    assert os.read(answers, 1) == b"\n"
    os.close(here)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for each in (there, answers, said):
        os.close(each)


def close(made):
    made.process.communicate()
    made.errors.close()


# ------------------------------------------------------------------------------------ the folder


def test_a_cell_is_a_run_folder(whole, table, capsys):
    folder = whole.folder / "cells" / GOOD
    loaded = everynet.load(folder, FILE)
    same(dict(table.cells[GOOD].network().state_dict()), dict(loaded.state_dict()))
    found = of_run(folder, FILE)
    assert settings(found) == settings(table.cells[GOOD].recipe)
    assert type(found).__name__ == "Steep"
    assert main(["runs", "--out", str(whole.folder / "cells")]) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {Path(words[0]).name: words[4] for words in map(str.split, lines[1:])}
    assert states[GOOD] == "ended"
    assert states[BAD] == "diverged"
    assert len(states) == 6


def test_a_cell_that_was_killed_is_open(tmp_path, monkeypatch, capsys):
    kill_at(monkeypatch, "0.01-0", 7)
    with pytest.raises(Killed):
        runs.run(LAW, tmp_path, device="cpu")
    assert main(["runs", "--out", str(folder_of(tmp_path) / "cells")]) == 0
    assert " open" in capsys.readouterr().out


def test_pictures_are_drawn_again_of_what_is_kept(whole):
    picture = whole.folder / "pictures" / "empty.png"
    picture.unlink()
    assert runs.draw(LAW, whole.folder) == (picture,)
    assert picture.is_file()


def test_what_the_cells_read_is_what_the_run_read(tmp_path):
    class Reads(Steep):
        def dataset(self):
            note(f"set {self.seed}", f"sum {self.seed}")
            return super().dataset()

    law = law_of(Reads(), Reads(seed=1))
    result = runs.run(law, tmp_path, device="cpu")
    read = json.loads((result.folder / "spec.json").read_text())["read"]
    assert read == [{"name": f"set {n}", "sha256": f"sum {n}"} for n in (0, 1)]
    assert "| read | set 1, SHA-256 `sum 1` |" in (result.folder / "card.md").read_text()
    ones = json.loads((result.folder / "cells" / "cell-1" / "spec.json").read_text())["read"]
    assert ones == read[1:]


def test_data_that_changed_under_a_cell_is_refused(tmp_path, monkeypatch):
    kill_at(monkeypatch, "0.01-1", 7)
    with pytest.raises(Killed):
        runs.run(LAW, tmp_path, device="cpu")
    data = Steep.dataset

    def other(self):
        return replace(data(self), digest="noise" if self.seed == 0 else "other")

    monkeypatch.setattr(Steep, "dataset", other)
    with pytest.raises(CellFailed, match=r"cell lr-0.01-1: the data of .* has changed since"):
        runs.resume(LAW, folder_of(tmp_path))


def test_the_card_and_the_listing(whole):
    page = (whole.folder / "card.md").read_text()
    assert "## Metrics\n" in page
    assert "| diverged | 2 |" in page
    assert "## Cells\n\n| cell | steps | valid cross_entropy |\n| --- | --- | --- |\n" in page
    assert "| lr-0.1-0 | 12 | 0.629283 |\n" in page
    assert "| lr-1e+30-1 | diverged at 2 | - |\n" in page
    assert json.loads((whole.folder / "metrics.jsonl").read_text())["step"] == 4 * 12 + 2 * 2


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("given", "words"), [
    ({}, "cells of given must hold a training: it holds none"),
    ({"../up": Steep()}, r"cell \(../up\) must be a plain file name, because it is a folder"),
    ({"": Steep()}, r"cell \(\) must be a plain file name"),
    ({"-x": Steep()}, r"cell \(-x\) must be a plain file name"),
    ({"a" * 121: Steep()}, "must be a plain file name.* 120 at most"),
    ({"a": Steep(), "A": Steep()}, r"cell \(A\) must differ from a in more than capitals"),
    ({"a": Law()}, r"cell \(a\) must be a Training, not Law"),
])  # fmt: skip
def test_cells_that_cannot_be(given, words, tmp_path):
    law = type("Given", (Law,), {"cells": lambda _: given})(name="given")
    with pytest.raises(UserError, match=words):
        runs.run(law, tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def test_what_is_measured_keeps_its_names_and_shapes(tmp_path):
    with pytest.raises(UserError, match="the same names at every look: a at first, then a, b"):
        stacked([{"a": 1.0}, {"a": 1.0, "b": 2.0}])
    with pytest.raises(UserError, match=r"give a in one shape at every look, not \[2\] and \[3\]"):
        stacked([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}])
    grows = law_of(Steep(), measure=lambda self, cell, recipe, state, data: {
        "a": torch.zeros(state.step)})  # fmt: skip
    with pytest.raises(CellFailed, match=r"cell cell-0: measure must give a in one shape") as error:
        runs.run(grows, tmp_path, device="cpu")
    assert error.value.code == 2


def test_a_mistake_in_the_first_cell_leaves_no_folder(tmp_path):
    class Wrong(Steep):
        def model(self, data):
            raise UserError("width (0) must be at least 1")

    with pytest.raises(UserError, match=r"cell cell-0: width \(0\) must be at least 1"):
        runs.run(law_of(Wrong()), tmp_path, device="cpu")
    assert not [*tmp_path.iterdir()]


def test_jobs_are_for_experiments(tmp_path):
    small = replace(RECIPES["small"], name="small")
    words = r"jobs \(2\) must be 1, because small is a training, which has no cells"
    with pytest.raises(UserError, match=words):
        runs.run(small, tmp_path, device="cpu", jobs=2)
    with pytest.raises(UserError, match=r"jobs \(0\) must be at least 1"):
        runs.run(LAW, tmp_path, device="cpu", jobs=0)
    assert not [*tmp_path.iterdir()]


def test_settings_stay_as_they_were(whole, tmp_path):
    before = (whole.folder / "recipe.json").read_bytes()
    words = r"steps \(20\) must stay 12, because the cells of .* were trained with it; run"
    with pytest.raises(UserError, match=words):
        runs.resume(replace(LAW, steps=20), whole.folder)
    assert (whole.folder / "recipe.json").read_bytes() == before
    shutil.copytree(whole.folder, tmp_path / "copy")
    (tmp_path / "copy" / "cells" / GOOD / "ended.json").unlink()
    with pytest.raises(UserError, match=r"ended.json has been changed since it was written"):
        runs.resume(LAW, tmp_path / "copy")
    reseal(tmp_path / "copy" / "cells" / GOOD)

    class Other(Law):
        def cells(self):
            return {name: replace(cell, clip=1.0) for name, cell in super().cells().items()}

    with pytest.raises(CellFailed, match=f"cell {GOOD}: .* other settings, or by other code; run"):
        runs.resume(Other(name="law"), tmp_path / "copy")


def test_the_command_line(tmp_path, capsys):
    words = [f"{FILE}:law", "--out", str(tmp_path), "--device", "cpu"]
    assert main(["run", *words, "rates=0.1", "--quiet"]) == 0
    folder = capsys.readouterr().out.strip()
    assert main(["resume", folder, "--file", str(FILE), "--jobs", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("law: better ")
    assert main(["resume", folder, "--file", str(FILE), "steps=20"]) == 2
    assert "steps (20) must stay 12" in capsys.readouterr().err
    assert main(["predict", folder, "x.csv", "--file", str(FILE)]) == 2
    line = "law is an experiment: it neither predicts nor samples; name a cell of it"
    assert line in capsys.readouterr().err
    assert main(["show", f"{FILE}:law"]) == 0
    said = capsys.readouterr().out
    assert "law: experiment by Law" in said
    assert "cells: 6 trainings (lr-0.01-0, lr-0.01-1, " in said


def test_progress_says_how_many_cells_are_done(tmp_path, monkeypatch, capsys):
    for name in ("FIRST", "PLAIN"):
        monkeypatch.setattr(f"everynet.runs.progress.{name}", 0.0)
    runs.run(LAW, tmp_path, device="cpu", show=True)
    lines = capsys.readouterr().err.splitlines()
    assert any(re.match(r"cell 6/6  \S+/s  0 s left", line) for line in lines), lines
    begins = "cell 2/6 lr-0.01-1  step 12/12  cross_entropy 0."
    assert any(line.startswith(begins) for line in lines), lines
