"""Setting up: environments are whole or absent, pins are exact, the Makefile says what it needs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import everynet

ROOT = Path(__file__).parent.parent
PINS = (ROOT / "constraints.txt").read_text().splitlines()

DRIVER = """
import os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
import environment

def install(self, pins, package):
    (self.folder / "bin").mkdir(parents=True)
    self.python.touch()
    with open("installs", "a") as log:
        log.write("x")
    {then}

environment.ROOT = Path.cwd()
environment.Environment.install = install
sys.exit(environment.main())
"""
HANG = (
    "self.run(sys.executable, '-c', 'import time; open(\"begun\", \"w\"); time.sleep({seconds})')"
)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "environment.py", tmp_path / "tools")
    for name in ("pyproject.toml", "constraints.txt", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def begin(checkout, then, **options):
    """Start the set-up with an installation that only does `then`."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(then=then), ".venv", "constraints.txt", "."],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "tools")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def set_up(checkout, then="pass"):
    process = begin(checkout, then)
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def installs(checkout):
    return len((checkout / "installs").read_text())


def test_an_environment_is_made_once(checkout):
    assert set_up(checkout) == (0, "setting up .venv (a few minutes, once)\n")
    assert set_up(checkout) == (0, "")
    assert installs(checkout) == 1


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_it_is_made_again_when_what_it_is_made_of_changes(checkout, file):
    set_up(checkout)
    text = (checkout / file).read_text()
    (checkout / file).write_text(text.replace("numba", "numbat"))
    set_up(checkout)
    assert installs(checkout) == 2


def test_settings_of_tools_and_dates_do_not_make_it_again(checkout):
    set_up(checkout)
    text = (checkout / "pyproject.toml").read_text()
    (checkout / "pyproject.toml").write_text(text.replace("line-length = 100", "line-length = 90"))
    os.utime(checkout / "constraints.txt")
    set_up(checkout)
    assert installs(checkout) == 1


def test_it_is_made_again_when_its_python_or_stamp_is_gone(checkout):
    for name in ("bin/python", "stamp"):
        set_up(checkout)
        (checkout / ".venv" / name).unlink()
    set_up(checkout)
    assert installs(checkout) == 3


def test_a_failed_installation_leaves_nothing_and_one_line(checkout):
    code, said = set_up(checkout, "self.run('false')")
    assert (code, (checkout / ".venv").exists()) == (1, False)
    assert re.fullmatch(r"setting up .*\n\.venv was not made: .* ended with 1\n", said)


def test_an_error_of_our_own_leaves_nothing(checkout):
    code, said = set_up(checkout, "raise OSError('no space')")
    assert (code, (checkout / ".venv").exists()) == (1, False)
    assert "no space" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing(checkout, number):
    process = begin(checkout, HANG.format(seconds=60))
    wait_for(checkout / "begun")
    assert (checkout / ".venv").exists()
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert not (checkout / ".venv").exists()


def test_after_a_kill_the_next_set_up_waits_for_what_still_writes_and_begins_anew(checkout):
    """The installer outlives its parent here: nobody may build over it."""
    process = begin(checkout, HANG.format(seconds=1.5))
    wait_for(checkout / "begun")
    process.kill()
    process.wait(timeout=30)
    assert (checkout / ".venv").exists()
    assert not (checkout / ".venv" / "stamp").exists()
    code, said = set_up(checkout)
    assert (code, installs(checkout)) == (0, 2)
    assert said.startswith("waiting for another set-up to end\n")
    assert (checkout / ".venv" / "stamp").exists()
    process.communicate()


def test_two_set_ups_at_once_make_one_environment(checkout):
    processes = [begin(checkout, "time.sleep(0.3)") for _ in range(3)]
    for process in processes:
        process.communicate(timeout=30)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert installs(checkout) == 1


def test_an_active_environment_can_be_replaced(checkout):
    """`make` then runs with a Python that lives in the folder to be removed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    done = subprocess.run(
        [
            checkout / ".venv" / "bin" / "python",
            "-c",
            "import environment; print(environment.BASE)",
        ],
        env={**os.environ, "PYTHONPATH": str(checkout / "tools")},
        capture_output=True,
        text=True,
        check=True,
    )
    base = Path(done.stdout.strip())
    assert base.exists()
    assert checkout not in base.parents


def test_a_peer_that_cannot_be_installed_is_left_out_by_name(checkout):
    """Each stanza of a file of pins stands alone."""
    (checkout / "peers.txt").write_text("# Good\ngood==1\n\n# Bad\nbad==1\nworse==2\n")
    driver = """
import subprocess, sys
from pathlib import Path
import environment

def run(self, *command):
    if "venv" in command:
        (self.folder / "bin").mkdir(parents=True)
        self.python.touch()
    elif "bad==1" in command:
        raise subprocess.CalledProcessError(1, command)

environment.ROOT = Path.cwd()
environment.Environment.run = run
sys.exit(environment.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", driver, ".bench/some", "peers.txt"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "tools")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1:] == ["Bad cannot be installed here and is left out"]
    assert (checkout / ".bench" / "some" / "stamp").exists()


# ------------------------------------------------------------------------------------ the Makefile


def make(checkout, *arguments, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        ["make", *arguments],
        cwd=checkout,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_make_leaves_no_environment_behind_when_the_index_cannot_be_reached(checkout):
    done = make(checkout, "check", PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    assert done.returncode == 2
    assert ".venv was not made: -m pip install ended with 1" in done.stderr
    assert not (checkout / ".venv").exists()


def test_all_tests_refuse_to_start_without_real_data(checkout):
    done = make(checkout, "test-all")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r".*make test-all trains on real data: set EVERYNET_DATA.*\n", done.stderr)


def test_a_missing_python_is_named(checkout):
    done = make(checkout, "run", "PYTHON=")
    assert done.returncode == 2
    assert re.fullmatch(r".*Python 3\.11 or newer was not found.*\n", done.stderr)


# ----------------------------------------------------------------------------------- real data

REAL = """
import os
from pathlib import Path
import pytest

@pytest.mark.real_data
def test_quick():
    assert (Path(os.environ["EVERYNET_DATA"]) / "mnist").exists()

@pytest.mark.slow
@pytest.mark.real_data
def test_slow(): ...

def test_plain(): ...
"""
TIMED = """
import time, pytest

@pytest.fixture
def rested():
    time.sleep(0.2)
    yield
    time.sleep(0.2)

def test_long(rested):
    time.sleep(0.2)
"""


@pytest.mark.parametrize(
    ("workers", "data", "outcome", "absent"),
    [(0, "here", "1 failed, 2 passed", 0), (1, "", "2 passed, 1 skipped", 1)],
)
def test_real_data_is_skipped_unless_named_and_then_must_be_there(
    checkout, workers, data, outcome, absent
):
    """The run says how many were left out and why; a set that is missing fails.

    It also says how long the slowest files took, with their setup and teardown, slowest first.
    """
    (checkout / "tests").mkdir()
    for name in ("conftest.py", "checker.py", "__init__.py"):
        if (ROOT / "tests" / name).exists():
            shutil.copy(ROOT / "tests" / name, checkout / "tests")
    (checkout / "tests" / "test_real.py").write_text(REAL)
    (checkout / "tests" / "test_timed.py").write_text(TIMED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow", "-n", str(workers), "-q"],
        cwd=checkout,
        env={**os.environ, "EVERYNET_DATA": data},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout
    assert (
        f"real-data tests skipped: {absent + 1} ({absent} because EVERYNET_DATA is not set, "
        "1 because they are slow: make test-all)\n"
    ) in done.stdout
    slowest = re.findall(r"^ +(\d+\.\d\d) tests/(\w+)\.py$", done.stdout, re.MULTILINE)
    assert [file for _, file in slowest] == ["test_timed", "test_real"]
    assert float(slowest[0][0]) >= 0.6


# ---------------------------------------------------------------------------------------- the pins


def pins():
    return dict(line.split("==") for line in PINS if not line.startswith("#"))


def needed(requirement, seen):
    """Names of all packages that a requirement brings here, extras and markers respected."""
    for text in distribution(requirement.name).requires or []:
        inner = Requirement(text)
        extras = requirement.extras or {""}
        if inner.marker and not any(inner.marker.evaluate({"extra": e}) for e in extras):
            continue
        key = (canonicalize_name(inner.name), frozenset(inner.extras))
        if key not in seen:
            seen.add(key)
            needed(inner, seen)
    return {name for name, _ in seen}


def test_pins_are_exact_and_name_no_place():
    for line in PINS:
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9-]+==[0-9][0-9.a-z]*", line), line
    assert pins()["torch"] == "2.13.0"


def test_every_package_the_tests_run_with_is_pinned_and_is_that_version():
    names = needed(Requirement("everynet[test,check]"), set())
    assert {"torch", "numba", "pytest", "ruff", "pluggy", "sympy"} <= names
    gpu = {name for name in names if name.startswith(("nvidia", "cuda", "triton"))}
    here = {name: version(name).split("+")[0] for name in names - gpu}
    assert here == {name: pins().get(name) for name in here}


def test_the_version_is_said_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == everynet.__version__


def test_no_file_names_a_place_on_the_machine_it_was_written_on():
    private = re.compile(r"(?<![\w.])/(?:" + "|".join(("work", "root", "opt")) + r")/\w")
    files = [p for p in ROOT.glob("*") if p.is_file()]
    for folder in ("src", "tests", "tools", "benchmarks", "docs", ".ci"):
        files += [p for p in (ROOT / folder).rglob("*") if p.is_file()]
    kept = {".py", ".md", ".toml", ".txt", ".yaml", ""}
    for path in files:
        made = {"_build", "__pycache__"} & {*path.parts}
        if path.suffix in kept and not made and path != Path(__file__):
            found = private.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path}: {found}"
