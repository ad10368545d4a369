import os
import subprocess
import sys
import time

import numpy as np
import torch
from numba import prange

from everynet.kernels.compiled import threaded


def _double(values):
    for i in prange(len(values)):
        values[i] *= 2


def test_each_form_is_stored_by_its_own_name():
    """One name for both, and a process would be given whichever was compiled first."""
    threads, names = torch.get_num_threads(), []
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            values = np.arange(5.0)
            loop = threaded(_double)
            loop(values)
            names.append(loop.py_func.__qualname__)
            assert values.tolist() == [0, 2, 4, 6, 8]
            assert bool(loop.targetoptions.get("parallel")) == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert names == ["_double_alone", "_double_together", "_double_alone"]


SCRIPT = """
import sys, time, types
from pathlib import Path
import numpy
sys.modules["torch"] = types.ModuleType("torch")  # takes long, and is not asked for anything
sys.path.insert(0, {folder!r})
from loops import half

kinds, start = sys.argv[1:], Path({folder!r}) / "start"
Path({folder!r}, "ready-" + kinds[0]).touch()
while not start.exists():
    time.sleep(0.001)
for kind in kinds:
    values = half(numpy.arange(4, dtype=kind))
    compiling = "numba.np.polynomial.polynomial_core" in sys.modules
    print(values.dtype, values.tolist(), half.stats.cache_hits.total(), compiling)
"""
LOOPS = """
from everynet.kernels.compiled import compiled

@compiled()
def half(values):
    made = values.copy()
    for i in range(len(values)):
        made[i] = values[i] / 2
    return made
"""


def started_at_once(folder, *processes):
    """Let processes, each with its types, reach their first call, then go; what they print."""
    (folder / "loops.py").write_text(LOOPS)
    (folder / "script.py").write_text(SCRIPT.format(folder=str(folder)))
    # What numba would obey: its settings in the working directory, where something reads them.
    (folder / ".numba_config.yaml").write_text("disable_jit: 1")
    (folder / "yaml.py").write_text("safe_load = lambda file: {'disable_jit': 1}")
    (folder / "start").unlink(missing_ok=True)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    started = [
        subprocess.Popen(
            [sys.executable, folder / "script.py", *kinds],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        for kinds in processes
    ]
    until = time.monotonic() + 60
    while not all((folder / f"ready-{kinds[0]}").exists() for kinds in processes):
        assert time.monotonic() < until
        time.sleep(0.001)
    (folder / "start").touch()
    return [process.communicate(timeout=120)[0].splitlines() for process in started]


def test_processes_that_compile_at_once_keep_their_code_apart(tmp_path):
    """And what is stored is read back, one for each type, without the tables of the compiler.

    The working directory has no say: `disable_jit` there would leave nothing to be stored.
    """
    kinds = ["float32", "float64"]
    halves = dict.fromkeys(kinds, "[0.0, 0.5, 1.0, 1.5]")
    made = started_at_once(tmp_path, *([kind] for kind in kinds))
    assert made == [[f"{kind} {halves[kind]} 0 True"] for kind in kinds]
    assert len(list((tmp_path / "cache").iterdir())) == len(kinds)
    (read,) = started_at_once(tmp_path, kinds)
    assert read == [f"{kind} {halves[kind]} {hits} False" for hits, kind in enumerate(kinds, 1)]
