"""Settings, names and paths that ask too much end in one line, with the code that is promised."""

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError, explain
from everynet.training.preflight import check_memory

LONG = "x" * 5000
HUGE = 10**12


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "mlp", f"hidden={HUGE}", "seed=2000"], f"hidden ({HUGE}) must be smaller"),
        (["run", "mlp", f"data=xor:{HUGE}"], f"xor:{HUGE} must be from xor:20 to xor:10000000"),
        (["run", "mlp", f"hidden={'9' * 25}"], "must fit into 64 bits"),
        (["run", "mlp", f"data={LONG}.csv"], "File name too long"),
        (["run", "mlp", f"start={LONG}"], "File name too long"),
        (["run", f"{LONG}.py"], "File name too long"),
        (["resume", LONG], "File name too long"),
        (["draw", LONG], "File name too long"),
        (["predict", LONG, "a.png"], "File name too long"),
        (["runs", LONG], " is no run, no recipe of the runs in runs"),
        (["runs", "--out", LONG], "File name too long"),
        (["doctor", "--out", LONG], "File name too long"),
        (["data", "check", LONG], "File name too long"),
        (["data", "--file", LONG, "list"], "File name too long"),
        (["run", LONG], "there is no recipe xxx"),
        (["show", LONG], "there is no recipe xxx"),
        (["list", LONG], "no recipe is about 'xxx"),
        (["run", "mlp", f"seed={'9' * 5000}"], "must be a whole number"),
        (["run", "mlp", "data=\0"], "data (?) must be"),
    ],
)
def test_22_what_the_user_named_ends_in_one_line_of_bounded_length(refused, words, said):
    line = refused(*words)
    assert said in line
    assert len(line) < 2100


def test_a_folder_for_runs_whose_name_is_too_long_cannot_be_written(refused):
    words = ("run", "mlp-xor", "steps=1", "--quiet", "--out", LONG)
    assert "File name too long" in refused(*words, code=4)


def test_recipes_that_have_no_names(refused, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from everynet.zoo.feedforward.mlp import RECIPES as known\n"
        "RECIPES = {1: known['mlp'], 2: known['mlp-xor']}\n"
    )
    for name in (str(own), f"{own}:x", f"{own}:1"):
        assert refused("run", name) == f'{own} must end in RECIPES = {{"name": Recipe(...)}}'


def test_22_a_network_larger_than_the_memory_that_is_free(refused, monkeypatch):
    """By its settings, before any is taken: the system would give it, and kill us later."""
    monkeypatch.setattr("everynet.training.preflight.free", lambda: 7.5e6)
    line = refused("run", "mlp", "hidden=900,1000", "seed=2000", "data=digits")
    assert line == (
        "hidden (900,1000) must be smaller, because the weights and gradients of mlp would take "
        "0.0 GB, and 0.0 GB of memory are free"
    )
    recipe = override(find("mlp"), {"hidden": (900, 1000), "data": "digits"})
    data, weights = recipe.dataset(), 64 * 900 + 900 + 900 * 1000 + 1000 + 1000 * 10 + 10
    monkeypatch.setattr("everynet.training.preflight.free", lambda: 2 * 4 * weights)
    check_memory(recipe, data, copies=2)
    with pytest.raises(UserError, match=r"because the weights and gradients of mlp"):
        check_memory(recipe, data, copies=3)


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.empty(2**55),
        lambda: torch.empty(2**40, 2**40),
        lambda: torch.nn.Linear(2**50, 2**12),
        lambda: np.empty(2**55),
        lambda: bytearray(2**62),
    ],
)
def test_however_memory_runs_out_it_is_said_so(fails):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        fails()
    code, line = explain(caught.value, ["run", "mlp", "hidden=2,4000", "lr=0.1"])
    assert (code, line) == (
        2,
        "there is not enough memory for this: hidden (2,4000) must be smaller",
    )


def test_a_file_that_was_named_and_cannot_be_read_is_the_users_affair_and_no_other():
    error = PermissionError(errno.EACCES, "Permission denied", "/data/mine.csv")
    named = ["run", "mlp", "data=/data/mine.csv"]
    assert explain(error, named) == (2, "/data/mine.csv cannot be read: Permission denied")
    assert explain(error, ["run", "mlp"])[0] == 1
    full = OSError(errno.ENOSPC, "No space left on device", "/tmp/x")
    line = "cannot write: No space left on device; free some space or choose another folder"
    assert explain(full) == (4, line)


def test_whole_numbers_of_more_than_64_bits_are_refused_by_their_name():
    with pytest.raises(
        UserError, match=r"hidden \(-99.*\) must fit into 64 bits; choose a smaller"
    ):
        override(find("mlp"), {"hidden": (1, -(10**25) + 1)})
    assert override(find("mlp"), {"hidden": (2**63 - 1,)}).hidden == (2**63 - 1,)


def test_nothing_was_written(tmp_path, call):
    call("run", "mlp", f"hidden={HUGE}")
    assert [*Path(tmp_path).iterdir()] == []
