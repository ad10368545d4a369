"""The two walks of ARCHITECTURE are what happens: a recorded trace has their steps."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import everynet
from everynet.cli import main

PAGE = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
MOST = 15


def walk(title):
    """The functions that a walk names, in its order."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `([\w.]+)`", section, re.M)


def traced(function):
    """Each function of everynet that ran, in the order of its first call."""
    order = {}

    def hook(frame, event, _argument):
        module = str(frame.f_globals.get("__name__"))
        if event == "call" and module.startswith("everynet."):
            order.setdefault(f"{module.removeprefix('everynet.')}.{frame.f_code.co_qualname}")

    sys.setprofile(hook)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [*order]


@pytest.fixture(scope="module")
def recipe():
    return everynet.recipe("lenet", steps=4, batch_size=8)


@pytest.fixture(scope="module")
def run(recipe, tmp_path_factory):
    return everynet.run(recipe, tmp_path_factory.mktemp("runs"), device="cpu").folder


def check(steps, trace):
    assert 8 <= len(steps) <= MOST
    absent = [step for step in steps if step not in trace]
    assert not absent, "a function that does not run there any more"
    assert steps == sorted(steps, key=trace.index), "in the order in which they first run"


@pytest.mark.usefixtures("unchecked")
def test_a_walk_of_a_batch(recipe, run, tmp_path):
    trace = traced(lambda: everynet.run(recipe, tmp_path, device="cpu"))
    check(walk("A walk of a batch"), trace)


@pytest.mark.usefixtures("unchecked")
def test_a_walk_of_a_prediction(run, tmp_path, capsys):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "one.png")
    trace = traced(lambda: main(["predict", str(run), str(tmp_path / "one.png")]))
    assert '"class"' in capsys.readouterr().out
    check(walk("A walk of a prediction"), trace)
