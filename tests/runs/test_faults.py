"""Whatever write, flush, rename or mkdir fails, a run ends in one line and nothing is lost."""

import contextlib
import errno
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from everynet import runs
from everynet.runs import checkpoint
from everynet.runs.experiment_job import CellFailed
from everynet.system import files
from everynet.system.errors import CannotWrite, UserError
from tests.runs.laws import Law
from tests.runs.recipes import RECIPES
from tests.runs.test_resume import contents
from tests.test_contract import same, table_values

RECIPE = replace(RECIPES["momentum"], name="momentum", steps=3, eval_every=2, save_every=1)
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)


class Faulty:
    """The `os` of files.py, whose n-th call of one operation fails."""

    def __init__(self, operation, n, error):
        self.operation, self.left, self.error = operation, n, error

    def __getattr__(self, name):
        real = getattr(os, name)
        if name != self.operation:
            return real

        def failing(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                raise OSError(self.error, os.strerror(self.error))
            return real(*arguments, **options)

        return failing


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return runs.run(RECIPE, tmp_path_factory.mktemp("runs"), device="cpu").folder


def attempt(out):
    try:
        runs.run(RECIPE, out, device="cpu")
    except CannotWrite as failure:
        return failure
    return None


@pytest.mark.parametrize("operation", ["write", "fsync", "rename", "mkdir"])
def test_every_operation_can_fail(operation, unbroken, tmp_path, monkeypatch):
    """For each n in turn, until a run needs fewer calls than n and ends well."""
    for n in range(1, 500):
        out = tmp_path / str(n)
        error = ERRORS[n % 3]
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", Faulty(operation, n, error))
            failure = attempt(out)
        if failure is None:
            break
        assert failure.code == 4
        line = str(failure)
        assert os.strerror(error) in line
        assert str(out) in line
        assert "\n" not in line
        for folder in out.glob("momentum-*"):  # none where the folder itself could not be made
            assert not list(folder.glob(".*"))
            if checkpoint.steps(folder):
                runs.load(RECIPE, folder)
            runs.resume(RECIPE, folder)
            assert contents(folder) == contents(unbroken)
    assert n > {"write": 20, "fsync": 20, "rename": 10, "mkdir": 5}[operation]


@pytest.mark.parametrize("operation", ["open", "write", "fsync", "rename"])
def test_a_file_has_its_old_bytes_or_its_new_ones(operation, tmp_path, monkeypatch):
    """Wherever its writing ends, and nothing is left beside it."""
    old, new = b"old", b"new" * 1000
    for n in range(1, 5):
        path = tmp_path / f"{operation}-{n}"
        path.write_bytes(old)
        with monkeypatch.context() as patch, contextlib.suppress(CannotWrite):
            patch.setattr(files, "os", Faulty(operation, n, errno.EIO))
            files.write(path, new)
        assert path.read_bytes() in (old, new)
    assert {p.name for p in tmp_path.iterdir()} == {f"{operation}-{n}" for n in range(1, 5)}
    assert path.read_bytes() == new  # fewer than four were needed


@pytest.mark.parametrize("name", ["gan", "ema", "replay"])
@pytest.mark.parametrize("operation", ["write", "rename"])
def test_other_states_survive_a_fault_too(name, operation, tmp_path, monkeypatch):
    """Two players, an average and a replay memory: broken at a few places, each ends the same."""
    recipe = replace(RECIPES[name], name=name, steps=3, eval_every=2, save_every=1)
    whole = runs.run(recipe, tmp_path, device="cpu").folder
    for n in (5, 14):
        out = tmp_path / str(n)
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", Faulty(operation, n, errno.EIO))
            with contextlib.suppress(CannotWrite):
                runs.run(recipe, out, device="cpu")
        (folder,) = out.iterdir()
        runs.resume(recipe, folder)
        assert contents(folder) == contents(whole)


def test_an_experiment_survives_a_fault_too(tmp_path, monkeypatch):
    """Also between the manifest of a cell and the files it speaks of."""
    recipe = Law(name="law", steps=2, rates=(0.1,))
    whole = runs.run(recipe, tmp_path, device="cpu").folder
    wanted = table_values(runs.load(recipe, whole))
    for n in (4, 9, 12, 14, 16, 20, 25):
        out = tmp_path / str(n)
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", Faulty("rename", n, errno.EIO))
            with contextlib.suppress(CannotWrite, CellFailed):
                runs.run(recipe, out, device="cpu")
        (folder,) = out.iterdir()
        runs.resume(recipe, folder)
        same(table_values(runs.load(recipe, folder)), wanted)


def test_a_full_disk(tmp_path):
    """A real one, as small as the machine lets us make it: /dev/full refuses every byte."""
    with pytest.raises(CannotWrite, match="No space left on device"):
        files.append(type(tmp_path)("/dev/full"), b"more")


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc/self"), reason="needs /proc")
def test_an_unwritable_folder():
    with pytest.raises(CannotWrite, match=r"cannot make /proc/runs.*--out"):
        runs.run(RECIPE, "/proc/runs", device="cpu")


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(CannotWrite, match=r"cannot make .*runs"):
        runs.run(RECIPE, tmp_path / "runs", device="cpu")


def test_fifty_processes_make_fifty_folders_in_the_same_second(tmp_path):
    script = [sys.executable, "-m", "tests.training.crowd", str(tmp_path / "runs")]
    made = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
    assert len(made) == len(set(made)) == 50
    assert {str(path) for path in (tmp_path / "runs").iterdir()} == set(made)


def test_a_second_process_on_one_run_is_refused(unbroken):
    with files.locked(unbroken), pytest.raises(UserError, match="in use by another process"):
        runs.resume(RECIPE, unbroken)


HOLD = """
import sys, time
from pathlib import Path
from everynet.system import files
with files.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_taken_over(unbroken):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(unbroken)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match="in use by another process"):
        runs.resume(RECIPE, unbroken)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    runs.resume(RECIPE, unbroken)
