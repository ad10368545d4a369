"""Ctrl-C and SIGTERM at any moment end a command with one line, whatever was under way."""

import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import pytest

from everynet import runs
from everynet.system import signals as interrupts
from everynet.system.errors import Stopped
from everynet.system.signals import Stop, catching_signals, interruptible
from tests.runs.recipes import RECIPES, Small

SWALLOWS = """
import signal
try:
    signal.raise_signal(signal.{name})
except BaseException:
    pass
"""
"""A module that takes whatever ends it for a part that is not there, as many do."""


def process(folder, name, script):
    (folder / "swallows.py").write_text(SWALLOWS.format(name=name))
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    start = f"import sys\n{heard}\nsys.path.insert(0, {str(folder)!r})"  # nohup leaves it ignored
    command = [sys.executable, "-c", f"{start}\n{script}"]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_ctrl_c_in_an_import_that_swallows_it_ends_the_process(tmp_path):
    script = "from everynet.system.signals import interruptible\nwith interruptible():\n"
    done = process(tmp_path, "SIGINT", f"{script}    import swallows\nprint('still here')")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "everynet: stopped\n")


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_an_import_of_a_run_that_has_no_steps_yet(tmp_path, name, code):
    script = (
        "from everynet.system.signals import catching_signals\n"
        "with catching_signals() as stop, stop.ending('why'):\n"
    )
    done = process(tmp_path, name, f"{script}    import swallows\nprint('still here')")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "everynet: why\n")


def test_ctrl_c_elsewhere_is_what_it_always_was():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with interruptible(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_the_handler_of_a_caller_is_left_alone(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with interruptible():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_frame_is_no_import():
    assert not interrupts.importing(None)


def test_an_end_that_was_passed_over_comes_later():
    stop = Stop()
    with pytest.raises(Stopped, match="why") as stopped, stop.ending("why"):
        stop.raised = 15  # and whoever was interrupted went on
    assert stopped.value.code == 143


def test_an_end_that_was_taken_for_an_error_is_told_as_an_end():
    stop = Stop()
    stop.raised = 2
    with pytest.raises(Stopped, match="outer") as stopped, stop.ending("outer"):
        raise RecursionError
    assert stopped.value.code == 130
    assert stop.at_once == ""


def test_an_error_of_its_own_stays_one():
    with pytest.raises(RecursionError), Stop().ending("why"):
        raise RecursionError


@dataclass(frozen=True, kw_only=True)
class Interrupted(Small):
    """A signal comes while its network is built, or measured without its numbers before that."""

    hidden: int = 6
    swallows: bool = False
    """Whether the network takes whatever ends it for a part that is not there."""

    def model(self, data):
        if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:  # as the first one leaves it
            with suppress(Exception) if self.swallows else nullcontext():
                signal.raise_signal(signal.SIGINT)
        return super().model(data)


@pytest.mark.parametrize("hidden", [6, 10**6])
@pytest.mark.parametrize("swallows", [False, True])
def test_a_signal_before_the_first_step_writes_nothing(hidden, swallows, tmp_path):
    """Where errors pass, as while a network that may be large is measured, too."""
    recipe = Interrupted(name="interrupted", hidden=hidden, swallows=swallows)
    with pytest.raises(Stopped, match=r"\Astopped before it began; nothing was written\Z") as ended:
        runs.run(recipe, tmp_path / "out", device="cpu")
    assert ended.value.code == 130
    assert not (tmp_path / "out").exists()


class Drawn(Small):
    """A signal comes while the pictures are drawn."""

    def picture_empty(self, model, data, history):
        signal.raise_signal(signal.SIGTERM)
        return super().picture_empty(model, data, history)


def test_a_signal_after_the_last_step_ends_at_once_and_a_resume_draws(tmp_path):
    recipe = Drawn(name="small")
    with pytest.raises(Stopped, match="test and draw it with: everynet resume ") as stopped:
        runs.run(recipe, tmp_path, device="cpu")
    assert stopped.value.code == 143
    (folder,) = tmp_path.iterdir()
    assert not (folder / "card.md").exists()
    result = runs.resume(replace(RECIPES["small"], name="small"), folder)
    assert result.weights in (folder / "card.md").read_text()


# --------------------------------------------------------------- what was ignored, and SIGHUP


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_was_ignored_stays_so(number):
    """A script's background runs are not for Ctrl-C, and nohup means what it says."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with catching_signals() as stop:
            signal.raise_signal(number)
            assert stop.signal == 0
            other = signal.SIGTERM if number != signal.SIGTERM else signal.SIGINT
            signal.raise_signal(other)
            assert stop.signal == other
            assert signal.getsignal(number) is signal.SIG_IGN  # the second of the others kills
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


class HungUp(Small):
    """The terminal goes away in an update."""

    def step(self, state, batch):
        if state.step == 4:
            signal.raise_signal(signal.SIGHUP)
        return super().step(state, batch)


def test_a_terminal_that_goes_away_ends_a_run_that_is_saved(tmp_path):
    before = signal.getsignal(signal.SIGHUP)
    with pytest.raises(Stopped, match=r"stopped at step 5 and saved; go on with: ") as stopped:
        runs.run(HungUp(name="small"), tmp_path, device="cpu")
    assert stopped.value.code == 129
    assert signal.getsignal(signal.SIGHUP) is before
    (folder,) = tmp_path.iterdir()
    assert "5" in {path.name for path in (folder / "checkpoints").iterdir()}
