"""`everynet doctor`."""

import os
import re

import pytest

from everynet.cli import doctor
from everynet.data.sets import everything


def test_a_healthy_machine(call, monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "ENOUGH", 1)
    code, out, error = call("doctor")
    assert (code, error) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert {name for name, known in everything().items() if known.forms} <= set(rows)
    assert {"everynet", "python", "torch", "numpy", "device", "threads", "cache", "runs"} <= set(
        rows
    )
    assert rows["mnist"].endswith("not here")
    assert rows["EVERYNET_DATA"].endswith("not set")
    assert re.search(r"\d recipes$", rows["everynet"])
    assert "OMP_NUM_THREADS is 1" in rows["threads"]
    assert out.endswith("all is well\n")
    assert list(tmp_path.glob("**/tmp*")) == []


def test_data_that_is_there(call, monkeypatch, tmp_path):
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    _, out, _ = call("doctor")
    assert re.search(rf"^EVERYNET_DATA +{tmp_path}$", out, re.M)


def test_too_little_space(call, monkeypatch):
    monkeypatch.setattr(doctor, "ENOUGH", 10**18)
    code, out, _ = call("doctor")
    assert code == 4
    assert re.search(r"^problem: only .* are free for runs$", out, re.M)
    assert "all is well" not in out


@pytest.mark.skipif(os.geteuid() != 0 and not os.path.isdir("/proc/self"), reason="no /proc here")
def test_a_folder_that_cannot_be_written(call):
    code, out, _ = call("doctor", "--out", "/proc/self/runs")
    assert code == 4
    assert re.search(r"^problem: cannot write in /proc/self: ", out, re.M)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (2_500_000, "2.5 MB"), (7e10, "70 GB"),
     (3e12, "3 TB")],
)  # fmt: skip
def test_sizes(count, text):
    assert doctor._size(count) == text
