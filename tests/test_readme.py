"""The Python of README and the guides: it passes mypy, and runs on small forms of its recipes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from everynet import runs
from everynet.recipes import catalog, settings
from everynet.runs import job, verbs

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/getting-started.md", "docs/how-to.md")
README = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
SMALLER = {"10_000": "100"}  # neurons
MYPY = """
[mypy]
strict = true
follow_imports = silent

[mypy-{others}]
follow_imports = skip
ignore_missing_imports = true
"""
OTHERS = (
    *("torch", "numpy", "matplotlib", "PIL", "sklearn", "scipy", "jaxtyping", "numba", "llvmlite"),
    *("safetensors", "filelock", "mpl_toolkits", "triton", "pandas"),
)


def test_there_are_snippets():
    assert len(SNIPPETS) >= 6
    assert README.count("```python") == len(SNIPPETS)


def type_checked(code, folder):
    """What mypy says of some code; of other packages than ours it looks at nothing."""
    (folder / "snippet.py").write_text(code)
    others = ",".join(f"{name}.*" for name in OTHERS)
    (folder / "mypy.ini").write_text(MYPY.format(others=others))
    command = ["mypy", "--config-file", "mypy.ini", "--cache-dir", os.devnull, "snippet.py"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip


def test_snippets_pass_mypy_and_a_wrong_name_does_not(tmp_path):
    """All in one go, because most of the time goes into reading everynet."""
    parts = [f"def _{n}() -> None:\n" + re.sub(r"^(?=.)", "    ", code, flags=re.M)
             for n, code in enumerate(SNIPPETS)]  # fmt: skip
    wrong = "import everynet\neverynet.zoo.LeNett\neverynet.tranied\neverynet.run(3)\n"
    found = type_checked("\n".join([wrong, *parts]), tmp_path).splitlines()
    faults = [re.sub(r"snippet.py:(\d+): error: .*\[(.*)\]", r"\1 \2", line) for line in found[:-1]]
    assert faults == ["2 attr-defined", "3 attr-defined", "4 arg-type"], "\n".join(found)


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run(code, tmp_path, monkeypatch):
    find, run = catalog.find, runs.run

    def in_one_process(recipe, out, **how):
        return run(recipe, out, **{**how, "jobs": 1})

    monkeypatch.chdir(tmp_path)
    for module in (catalog, settings, verbs):  # each has the name by itself
        monkeypatch.setattr(module, "find", lambda name: find(name).tiny())
    monkeypatch.setattr(runs, "run", in_one_process)
    monkeypatch.setattr(job.Job, "draw", lambda *_: ())  # pictures take most of the time
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    exec(compile(code, "README.md", "exec"), {})
