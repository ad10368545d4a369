"""One bit of one file of a run is wrong: it is named, or nothing that is used has changed."""

import contextlib
import io
import random
import shutil
import warnings
from collections import Counter
from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.runs import checkpoint
from everynet.runs.job import Job
from everynet.system.errors import Failure
from tests.hostile.recipes import RECIPES
from tests.runs.test_checkpoint import same
from tests.test_contract import table_values

ROWS = torch.tensor([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]])


def flip(folder, draw):
    """Change one bit: every file is as likely, however small."""
    path = draw.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size))
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return path.relative_to(folder)


def asked(name, recipe, folder):
    """What the run is asked for."""
    model = runs.load(recipe, folder)
    if name == "flowers":
        return model(ROWS).tolist()
    if name == "nearest":
        return recipe.predict(model, ROWS, {"classes": "abc"})
    return table_values(model) if name == "rates" else model


def gone_on(name, recipe, folder):
    """What a longer run learns."""
    if name != "flowers":
        return None
    runs.resume(replace(recipe, steps=7), folder, show=True)
    kept = checkpoint.read_bundle(checkpoint.path_of(folder, 7))
    return kept, asked(name, recipe, folder)


def told(action):
    """What an action gives, and whether it named something on the way."""
    said = io.StringIO()
    with warnings.catch_warnings(record=True) as seen, contextlib.redirect_stderr(said):
        warnings.simplefilter("always")
        try:
            given = action()
        except Failure as failure:
            return None, str(failure)
    lines = [line for line in said.getvalue().splitlines() if "damaged" in line]
    return given, "".join([*map(str, seen), *lines])


def count(good, tmp_path, flips, seed):
    """How often a flip was named, and how often it changed nothing."""
    draw, found = random.Random(seed), Counter()
    for name, share in (("flowers", 0.6), ("nearest", 0.1), ("walk", 0.1), ("rates", 0.2)):
        recipe = replace(RECIPES[name], name=name)
        wanted = asked(name, recipe, good[name])
        longer = gone_on(name, recipe, shutil.copytree(good[name], tmp_path / name))
        for number in range(round(share * flips)):
            folder = shutil.copytree(good[name], tmp_path / f"{name}-{number}")
            victim = flip(folder, draw)
            for way, expected in ((asked, wanted), (gone_on, longer)):
                given, line = told(lambda: way(name, recipe, folder))  # noqa: B023 -- called at once
                assert line or same(given, expected), (name, victim, way)
                found["named" if line else "the same"] += 1
            shutil.rmtree(folder)
    return found


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda _job, _model: ())


def test_a_hundred_and_fifty_flips(good, tmp_path):
    found = count(good, tmp_path, 150, 0)
    assert min(found["named"], found["the same"]) > 50


@pytest.mark.slow
def test_two_thousand_flips(good, tmp_path):
    found = count(good, tmp_path, 2000, 1)
    assert min(found["named"], found["the same"]) > 500
