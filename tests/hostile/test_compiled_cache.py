"""Compiled code is kept where others cannot write; whatever happens to it, loops compile anew."""

import errno
import hashlib
import importlib.util
import os
import pickle
import pwd
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from everynet.kernels import compiled as store
from everynet.kernels.compiled import compiled
from everynet.system import cache


def half(values):
    for i in range(len(values)):
        values[i] /= 2


def halved(loop=half):
    """Halve by a loop that this process has not compiled yet; how often it was found stored."""
    made, values = compiled()(loop), np.arange(3.0)
    made(values)
    assert values.tolist() == [0, 0.5, 1]
    return made.stats.cache_hits.total()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "code"))
    return tmp_path / "code"


def test_stored_code_is_found_again_in_a_folder_of_our_own(folder):
    assert halved() == 0
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert halved() == 1
    assert [*folder.iterdir()] == [file]


def signed(content):
    return hashlib.sha256(content).digest() + content


def test_8_a_file_that_is_no_longer_what_was_stored_is_made_anew(folder):
    halved()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    cases = {
        "empty": b"",
        "cut short": whole[: len(whole) // 2],
        "a bit turned": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
        "whole, with another sum": bytes(32) + whole[32:],
        "rubbish": b"\x80" * 100,
        "no pickle": signed(b"\x80" * 100),
        "of another form": signed(pickle.dumps((1, 2))),
    }
    for title, content in cases.items():
        file.write_bytes(content)
        assert halved() == 0, title
        assert halved() == 1, title
        assert [*folder.iterdir()] == [file], title


class Planted:
    """A pickle that leaves a mark when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("how", ["open to others", "a link", "of another user"])
def test_3_what_someone_else_could_have_written_is_not_loaded(folder, tmp_path, monkeypatch, how):
    halved()
    (file,) = folder.iterdir()
    file.write_bytes(signed(pickle.dumps(Planted(tmp_path / "mark"))))
    if how == "open to others":
        folder.chmod(0o720)
    elif how == "a link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    before = file.read_bytes()
    assert halved() == 0
    assert not (tmp_path / "mark").exists()
    assert file.read_bytes() == before
    with pytest.raises(OSError, match=r"chmod 700|Not a directory|symbolic links"):  # noqa: SIM117
        with cache.private(folder):
            pass
    folder.unlink() if how == "a link" else folder.chmod(0o700)
    monkeypatch.undo()
    monkeypatch.setenv(
        "NUMBA_CACHE_DIR", str(tmp_path / "elsewhere" if how == "a link" else folder)
    )
    halved()  # the mark shows that the file would have been loaded
    assert (tmp_path / "mark").exists()


def test_7_without_a_place_to_keep_it_a_loop_is_compiled_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert halved() == 0
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: {}["nobody"])
    assert cache.home() == Path(os.devnull) / "everynet"
    assert halved() == 0
    assert [*tmp_path.iterdir()] == []  # no folder named ~


@pytest.mark.parametrize("call", ["rename", "listdir"])
def test_8_a_full_or_closed_disk_ends_nothing_and_leaves_nothing(folder, monkeypatch, call):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, call, refuse)
    assert halved() == 0
    monkeypatch.undo()
    assert [*folder.iterdir()] == []


def test_code_of_a_loop_that_calls_into_a_changed_file_is_not_taken(folder, tmp_path):
    def loop():
        spec = importlib.util.spec_from_file_location("caller", tmp_path / "caller.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        store._stamp.cache_clear()  # as in a new process
        return module.caller

    (tmp_path / "caller.py").write_text(
        "def caller(values):\n    for i in range(len(values)):\n        values[i] /= 2\n"
    )
    (tmp_path / "callee.py").write_text("step = 1")
    assert [halved(loop()), halved(loop())] == [0, 1]
    (tmp_path / "callee.py").write_text("step = 2")
    assert [halved(loop()), halved(loop())] == [0, 1]


def test_what_is_old_is_swept_when_something_new_is_stored(folder):
    folder.mkdir(mode=0o700)
    for name, age in (("old", store.KEPT + 60), ("young", store.KEPT - 3600)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age,) * 2)
    halved()
    assert {path.name.partition("-")[0] for path in folder.iterdir()} == {"half", "young"}
