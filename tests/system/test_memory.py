"""How much memory can be had: what the system says is free, and what a container may have."""

import math
import os

import pytest

from everynet.system import memory

SAID = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\nSwapFree:        1000000 kB\n"


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Sets what the two files say; None where there is no such file."""

    def say(known, limit):
        for name, text in (("KNOWN", known), ("LIMIT", limit)):
            path = tmp_path / name
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            monkeypatch.setattr(memory, name, path)

    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 10**7}.__getitem__)
    return say


@pytest.mark.parametrize(("known", "limit", "free"), [
    (SAID, None, 21_000_000 * 1024),
    (SAID, "max\n", 21_000_000 * 1024),
    (SAID, "1000000\n", 1_000_000),
    ("MemTotal: 9 kB\n", None, 4096 * 10**7),
    (None, None, 4096 * 10**7),
])  # fmt: skip
def test_the_least_of_what_is_said_is_free(known, limit, free, said):
    said(known, limit)
    assert memory.free() == free


def test_where_nothing_is_known_all_is_free(said, monkeypatch):
    said(None, None)
    monkeypatch.delattr(os, "sysconf")
    assert memory.free() == math.inf


def test_here_there_is_some():
    assert memory.free() > 1 << 20
