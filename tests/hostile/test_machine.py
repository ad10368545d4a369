"""Odd machines: no home, odd settings in the folder, closed streams, threads and forks."""

import csv
import io
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
import torch

from everynet.cli import data as data_verb
from everynet.data.download import package_index as index
from everynet.plot import style
from everynet.runs.training_job import TrainingJob
from everynet.runs.verbs import draw, run
from everynet.system import cache
from everynet.system.errors import UserError
from everynet.training import device
from everynet.training.device import Setup, choose, computing
from tests.runs.recipes import RECIPES

# ------------------------------------------------------------------------------ threads and forks


def test_5_a_second_thread_that_begins_a_run_is_refused_and_its_own_goes_on():
    said = []

    def second():
        try:
            with computing(choose("cpu")):
                said.append("computed")
        except UserError as error:
            said.append(str(error))

    def in_a_thread():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    with computing(choose("cpu")):
        with computing(choose("cpu")):  # as a law does that trains inside a run
            in_a_thread()
        in_a_thread()
    in_a_thread()
    assert [line[:57] for line in said] == [
        "one run at a time can be computed in a process, because b",
        "one run at a time can be computed in a process, because b",
        "computed",
    ]
    with pytest.raises(UserError, match="another thread is at it"):
        raise UserError(said[0])


FORKED = """
import os, signal, sys
import torch
from everynet.training.device import Setup, choose, computing, threads_for
from everynet.runs import draw, run
from everynet.system.errors import UserError

torch.set_num_threads(2)
several = Setup(torch.device("cpu"), threads=2)
with computing(several):
    torch.ones(1 << 20).mul_(2).sum()
    if os.fork() == 0:  # inside a run
        os._exit(0)
    os.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)  # it hung for good
    with computing(choose("cpu")):
        torch.ones(1 << 20).mul_(2).sum()
    print(threads_for(torch.nn.Linear(10_000, 1_000), 64), torch.get_num_threads())
    try:
        with computing(several):
            pass
    except UserError as error:
        print(error)
    sys.stdout.flush()
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_17_a_run_in_a_child_that_was_forked_after_a_run_does_not_hang():
    """OpenMP waits for threads that a fork does not copy."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    threads, refusal = ran.stdout.splitlines()
    assert threads == "1 1"
    assert refusal.startswith("threads (2) must be 1 in a process that was forked after a run")


def test_a_child_does_not_wait_for_a_thread_of_its_parent(monkeypatch):
    monkeypatch.setattr(device._Process, "turn", device._Process.turn)  # as it was, afterwards
    monkeypatch.setattr(device._Process, "parallel", False)
    held, done = threading.Event(), threading.Event()

    def other():
        with computing(choose("cpu")):
            held.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    try:
        device._in_child()  # what a fork calls in the child, where that thread is not
        with computing(Setup(torch.device("cpu"))):
            pass
    finally:
        done.set()
        thread.join()


# ------------------------------------------------------------------------------- a hostile folder

DRIVER = """
import pwd, sys
pwd.getpwuid = lambda _: {}["nobody"]  # a user without an entry, as in a container
from everynet.cli import main
sys.exit(main(sys.argv[1:]))
"""
NAMES = ("$\\frac$", "<b>|x`")


def test_27_training_ends_well_in_a_hostile_folder_on_a_machine_without_a_home(tmp_path):
    """No home; settings for matplotlib and numba; Jupyter's backend; names of all sorts."""
    data = os.fsdecode(b"d|\xff.csv")
    with (tmp_path / data).open("w") as file:
        rows = [(i % 7, i % 5, i % 3, NAMES[i % 2]) for i in range(60)]
        csv.writer(file).writerows([("a", "b$^", "c", "y"), *rows])
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    (tmp_path / ".numba_config.yaml").write_text("a: [")
    there = {path.name for path in tmp_path.iterdir()}
    gone = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    environment |= {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "RANK": "1"}
    environment |= {"MPLCONFIGDIR": matplotlib.get_cachedir()}  # or it makes one
    words = ("run", "mlp", f"data={data}", "target=y", "steps=2", "batch_size=16", "hidden=4")
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", DRIVER, *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.startswith("mlp: accuracy ")  # though RANK is 1
    assert {path.name for path in tmp_path.iterdir()} == there | {"runs"}  # no folder named ~
    (folder,) = (tmp_path / "runs").iterdir()
    card = (folder / "card.md").read_text()
    assert r"d\|?.csv, SHA-256 " in card
    assert r"d\|?.csv |" in card  # among the settings
    assert {path.name for path in (folder / "pictures").iterdir()} >= {"confusion.png"}


@pytest.mark.parametrize("name", ["bytes", "fifo", "named", "good"])
def test_10_settings_of_matplotlib_that_are_broken_are_told_in_one_line(
    name, tmp_path, call, monkeypatch
):
    """Bytes that are no text, a FIFO, one that the environment names; a good one is read."""
    monkeypatch.chdir(tmp_path)
    if name == "fifo":
        os.mkfifo("matplotlibrc")
    else:
        file = Path("named" if name == "named" else "matplotlibrc")
        file.write_bytes(b"font.size: 7\n" if name == "good" else b"font.size: \xff\n")
    if name == "named":
        monkeypatch.setenv("MATPLOTLIBRC", "named")
    code, _, line = call("list")
    assert code == (0 if name == "good" else 2)
    assert line.startswith("everynet: matplotlib cannot read its settings in ") == (name != "good")


def test_pictures_are_drawn_with_settings_of_their_own():
    with matplotlib.rc_context({"text.usetex": True, "font.size": 40, "backend": "agg"}):
        with style.drawing():
            assert (matplotlib.rcParams["text.usetex"], matplotlib.rcParams["font.size"]) == (
                False,
                8.5,
            )
        assert matplotlib.rcParams["text.usetex"]


def test_a_run_draws_with_those_settings_whatever_the_program_has(tmp_path, monkeypatch):
    recipe, seen = replace(RECIPES["small"], steps=1), []
    monkeypatch.setattr(
        type(recipe), "draw", lambda *_: seen.append(matplotlib.rcParams["text.usetex"]) or {}
    )
    with matplotlib.rc_context({"text.usetex": True}):
        draw(recipe, run(recipe, tmp_path).folder)
    assert seen == [False, False]


def test_10_no_name_is_read_as_a_formula():
    spec = style.escape_names(
        {"classes": ["$x$", r"\$", "a"], "features": ["$\\frac$"], "shape": [2]}
    )
    assert spec == {"classes": [r"\$x\$", r"\\$", "a"], "features": [r"\$\frac\$"], "shape": [2]}
    made = style.figure(2, 2)
    title = made.axes[0].set_title("$\\frac$ from somewhere else")
    label = made.axes[0].set_xlabel("$x_1$")
    assert style.png(made).startswith(b"\x89PNG")
    assert (title.get_parse_math(), label.get_parse_math()) == (False, True)


def test_pictures_of_a_recipe_are_given_such_names(tmp_path, monkeypatch):
    recipe, seen = next(iter(RECIPES.values())), []
    monkeypatch.setattr(type(recipe), "draw", lambda *given: seen.append(given[2].spec) or {})
    data = replace(recipe.dataset(), spec={"classes": ["$a$"]})
    job = TrainingJob(recipe, choose("cpu"), folder=tmp_path, data=data)
    job.draw(torch.nn.Linear(4, 3))
    assert seen == [{"classes": [r"\$a\$"]}]


# ---------------------------------------------------------------------------------- closed streams


@pytest.mark.parametrize(
    ("words", "how", "code", "said"),
    [
        ("list", ">&-", 4, "everynet: cannot write to standard output: it is closed\n"),
        ("list", ">/dev/full", 4, "everynet: cannot write to standard output: No space left on"),
        ("--version", ">/dev/full", 4, "everynet: cannot write to standard output: No space left"),
        ("rnu", "2>&-", 2, ""),
        ("rnu", "2>/dev/full", 2, ""),
        ("list", "<&- >/dev/null", 0, ""),
    ],
)
def test_22_streams_that_are_closed_or_full(words, how, code, said):
    ran = subprocess.run(
        f"exec {sys.executable} -m everynet {words} {how}",
        shell=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stderr.startswith(said)
    assert ran.stderr.count("\n") == said[:1].count("e")


# ------------------------------------------------------------------------------------ small things


def test_25_a_terminal_of_no_columns_gets_whole_lines(call, monkeypatch):
    monkeypatch.setattr("everynet.cli.streams.Output.isatty", lambda _: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = call("list")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "\n\n\n" not in out  # a line between families, never several
    assert "LeNet" in out


def test_28_doctor_says_that_nothing_can_be_kept(call, monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    code, out, _ = call("doctor")
    assert code == 4
    assert f"problem: cannot write in {os.devnull}: Not a directory" in out
    assert "problem: loops are compiled anew in every process, because none can be kept" in out
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.compiled().mkdir(parents=True, mode=0o755)
    code, out, _ = call("doctor")
    assert code == 4
    assert f"{cache.compiled()} must belong to you and be closed to others: chmod 700" in out
    cache.compiled().chmod(0o700)
    assert "loops are compiled" not in call("doctor")[1]


def test_26_without_a_home_the_working_directory_is_not_taken_for_it(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what Python does then
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert cache.home().is_absolute()
    assert all(path.is_absolute() for path in index._configuration_files())


def test_a_file_that_is_fetched_has_a_name_that_commands_nothing(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    data_verb.LiveLine()("a\x1b[2J\rb", 1, 2)
    assert stream.getvalue().startswith("\ra?[2J?b  50% of 0.0 MB")
