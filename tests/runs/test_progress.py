"""The line of a run: how long it takes yet, the newest metric, the last step, in any place."""

import io
import re
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest

from everynet import runs
from everynet.runs import progress as module
from everynet.runs.progress import Pace, Progress
from tests.runs.recipes import RECIPES


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def simulated(clock, pace, *, steps, update=0.01, first=3.0, look=2.0):
    """Go through a run, and give what was thought to be left after each update."""
    pace.begin(0)
    left = []
    for step in range(1, steps + 1):
        clock[0] += first if step == 1 else update
        pace.tick(step)
        if step % pace.every == 0:
            with pace.pause(evaluates=True):
                clock[0] += look
            with pace.pause():  # a checkpoint
                clock[0] += 1
        left.append(pace.left(step, steps))
    return left


def test_time_left_leaves_the_first_update_out_and_counts_evaluations_to_come(clock):
    left = simulated(clock, Pace(every=100), steps=1000)
    true = [(1000 - n) * 0.01 + (10 - n // 100) * 2.0 for n in range(1, 1001)]
    assert left[0] is None  # one update, which takes longer than others
    assert left[1] == pytest.approx(9.98)  # nobody knows yet how long an evaluation takes
    assert left[101:999] == pytest.approx(true[101:999], rel=1e-6)
    assert left[999] == 0


def test_the_newest_evaluation_counts(clock):
    pace = Pace(every=1)
    for seconds in (5.0, 1.0):
        with pace.pause(evaluates=True):
            clock[0] += seconds
    pace.begin(0)
    for step in (1, 2):
        clock[0] += 0.5
        pace.tick(step)
    assert pace.seconds_per_update(2) == pytest.approx(0.5)
    assert pace.left(2, 10) == pytest.approx(8 * 0.5 + 8 * 1.0)
    assert pace.left(10, 10) == 0


def test_after_a_resume_only_this_session_counts(clock):
    pace = Pace()
    pace.begin(500)
    for step in range(501, 521):
        clock[0] += 2.0
        pace.tick(step)
    assert pace.left(520, 600) == pytest.approx(160)


def test_without_ticks_all_that_was_done_is_the_measure(clock):
    """As for the cells of an experiment, which several processes train."""
    pace = Pace()
    clock[0] += 30
    assert pace.left(3, 9) == pytest.approx(60)


def test_a_run_ends_at_its_last_step_and_shows_its_newest_metric(tmp_path, capsys):
    recipe = replace(RECIPES["small"], name="small")
    result = runs.run(recipe, tmp_path, device="cpu", show=True)
    _, last = capsys.readouterr().err.splitlines()
    value = r"\d\.\d+"
    assert re.fullmatch(
        rf"step 12/12  cross_entropy {value}  valid cross_entropy {value}  [\d,.]+/s  in \d+ s",
        last,
    )
    assert result.weights in (result.folder / "card.md").read_text()


def test_a_run_that_patience_ends_says_so_at_its_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Progress, "due", lambda self: self.shown)
    recipe = replace(RECIPES["patient"], name="patient")
    result = runs.run(recipe, tmp_path, device="cpu", show=True)
    lines = capsys.readouterr().err.splitlines()
    step = int(re.search(r"stopped at step (\d+)", result.weights)[1])
    assert re.fullmatch(rf"step {step}/100 .* in \d+ s", lines[-1])
    assert all(re.search(r"at most \d+ s left\Z", line) for line in lines[5:-2])


def test_the_newest_metric_is_the_goals_or_the_first(tmp_path, capsys):
    recipe = replace(RECIPES["gan"], name="gan", goal="")
    runs.run(recipe, tmp_path, device="cpu", show=True)
    assert "  valid distance " in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_narrow_terminal_loses_terms_before_the_time_left(monkeypatch, clock):
    monkeypatch.setattr(module.shutil, "get_terminal_size", lambda: SimpleNamespace(columns=60))
    progress = Progress(1000, shown=True, newest="valid accuracy 0.5")
    progress.stream = Terminal()
    clock[0] += 10
    progress.show(100, {f"term{n}": 0.123456 for n in range(9)})
    line = progress.stream.getvalue()
    assert line.rstrip() == "\rstep 100/1,000  valid accuracy 0.5  10/s  90 s left"
    progress.stream = Terminal()
    progress.show(100, {"loss": 1})
    assert "loss 1  valid" in progress.stream.getvalue()
    assert len(line) == 60


@pytest.fixture
def notebook(monkeypatch):
    """IPython as far as it is asked: what is shown by display, each with what it became."""
    shown = []

    class Handle:
        def __init__(self, data):
            self.lines = [data["text/plain"]]
            shown.append(self.lines)

        def update(self, data, *, raw):
            assert raw
            self.lines.append(data["text/plain"])

    def display(data, *, raw, display_id):
        assert raw
        assert display_id is True
        return Handle(data)

    ipython, displays = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return shown


def test_in_a_notebook_one_line_is_updated(notebook, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Progress, "due", lambda self: self.shown)
    runs.run(replace(RECIPES["small"], name="small"), tmp_path, device="cpu", show=True)
    (lines,) = notebook
    assert lines[0].startswith("step 1/12  ")
    assert lines[-1].startswith("step 12/12  ")
    assert len(lines) == 13
    assert capsys.readouterr().err.count("\n") == 1  # where the run goes


def test_a_shell_without_a_kernel_is_no_notebook(monkeypatch):
    ipython = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert module.display_of_notebook() is None
    ipython.get_ipython = SimpleNamespace  # IPython on a terminal
    assert module.display_of_notebook() is None
