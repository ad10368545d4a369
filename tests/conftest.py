"""What every test runs under: checked shapes, one thread, a cache of its own, no real data unasked.

Nothing of everynet is imported here, because the hook must come first.
"""

import os
import signal
import tempfile
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import config, install_import_hook

import tests.checker  # noqa: F401 -- the hook below looks it up by name

os.environ["OMP_NUM_THREADS"] = "1"  # two workers with two threads each run far slower
CACHE = tempfile.TemporaryDirectory(prefix="everynet-tests-")
os.environ["XDG_CACHE_HOME"] = CACHE.name  # the user's cache stays out of the tests
COMPILED = Path(__file__).parent / "__pycache__" / "compiled"
os.environ.setdefault("NUMBA_CACHE_DIR", str(COMPILED))  # compiling takes a minute: once for all

SOURCE = Path(__file__).parent.parent / "src" / "everynet"
UNCHECKED = {"__init__", "__main__", "kernels"}  # the hook breaks what numba compiles
PARTS = {p.stem for p in SOURCE.glob("*.py")} | {p.parent.name for p in SOURCE.glob("*/*.py")}
install_import_hook([f"everynet.{part}" for part in PARTS - UNCHECKED], "tests.checker.checked")

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

SHOWN = 10
SLOW = pytest.StashKey()
WHY = "needs real data: EVERYNET_DATA is not set"


@pytest.fixture
def unchecked():
    """Calls as a user makes them: nothing compares arguments with annotations first."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def heard_signals():
    """Tests hear signals though they run in the background of a script, or under nohup."""
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    ignored = [each for each in heard if signal.getsignal(each) is signal.SIG_IGN]
    for each in ignored:
        signal.signal(each, heard[each])
    yield
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)


def pytest_runtest_setup(item):
    """Skip a test of real data unless the folder is named; then whatever is missing fails."""
    if item.get_closest_marker("real_data") and not os.environ.get("EVERYNET_DATA"):
        pytest.skip(WHY)


def pytest_deselected(items):
    """Count the tests of real data that `-m 'not slow'` leaves out."""
    stash = items[0].config.stash
    stash[SLOW] = stash.get(SLOW, 0) + sum("real_data" in item.keywords for item in items)


def pytest_sessionfinish(session):
    """Tell the process that speaks how many a worker counted; each worker counts them all."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash.get(SLOW, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[SLOW] = getattr(node, "workeroutput", {}).get("slow", 0)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Say which files took longest, and how many tests of real data were left out, and why."""
    took = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):  # of a setup, a call or a teardown, of any worker
            took[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section("slowest files, in seconds over all workers")
    for file, seconds in took.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.2f} {file}")
    skipped = terminalreporter.stats.get("skipped", [])
    absent = sum("EVERYNET_DATA" in str(report.longrepr) for report in skipped)
    slow = terminalreporter.config.stash.get(SLOW, 0)
    terminalreporter.write_line(
        f"real-data tests skipped: {absent + slow} ({absent} because EVERYNET_DATA is not set, "
        f"{slow} because they are slow: make test-all)"
    )


def pytest_unconfigure():
    CACHE.cleanup()
