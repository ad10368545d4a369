"""What an estimator of a received folder learned is checked before any of it is used."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import everynet
from everynet import runs
from everynet.cli import main
from everynet.recipes.catalog import find
from everynet.runs import checkpoint, job
from tests.hostile import mutations

CODES = {0, 2, 3, 5}


def tried(out, first, count):
    """How so many changed values ended, in a process that checks no shapes."""
    command = [sys.executable, "-m", "tests.hostile.mutations", str(out), str(first), str(count)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def check(said, count):
    """Refused in one line, or equal; another answer is for what may have been learned."""
    tries = [json.loads(line) for line in said.splitlines()]
    assert len(tries) == count
    for one in tries:
        assert one["code"] in CODES, one
        assert "Traceback" not in one["said"], one
        assert one["code"] == 0 or one["said"].count("\n") == 0, one
        if one["kind"] == "fitting" and one["code"] == 0:
            assert one["like"] or one["said"] == "equal", one
    assert {one["code"] for one in tries} >= {0, 2}


@pytest.mark.usefixtures("unchecked")
def test_twelve_changed_values(tmp_path, monkeypatch, capsys):
    """Among them, with seed 106, one that ended in SIGSEGV."""
    monkeypatch.setattr(job, "render", job.render)  # puts back what is replaced meanwhile
    mutations.try_all(tmp_path, 100, 12, ["ngram", "perceptron", "bag-of-words"])
    check(capsys.readouterr().out, 12)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_changed_values(part, tmp_path):
    check(tried(tmp_path, 250 * part, 250), 250)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A run of n-grams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.Job, "draw", lambda *_: ())
        return runs.run(find("ngram").tiny(), tmp_path_factory.mktemp("runs"), device="cpu").folder


def long(tensor):
    return tensor.long()


def short(tensor):
    return tensor[: len(tensor) // 2]


def far(tensor):
    return torch.full_like(tensor, 2**30)


def falling(tensor):
    return tensor.flip(0)


def no_number(tensor):
    return tensor.clone().index_fill_(0, torch.tensor([3]), math.nan)


@pytest.mark.parametrize(("name", "order", "change", "words"), [
    ("backoff_", 0, short, r"backoff (float64 [N]) must be float64 [N] from -inf to 100"),
    ("backoff_", 0, no_number, r"backoff (float64 [N]) must be float64 [N] from -inf to 100"),
    ("logp_", 1, short, r"logp (float64 [N]) must be float64 [N] from -inf to 1e-09"),
    ("starts_", 1, far, r"starts (int32 [N]) must be int32 [N] from 0 to N"),
    ("starts_", 1, falling, r"starts of the 2-grams must rise from 0 to N"),
    ("starts_", 1, long, r"starts (int64 [N]) must be int32 [N] from 0 to N"),
    ("words_", 1, far, r"words (int32 [N]) must be int32 [N] from 0 to N"),
    ("words_", 1, falling, r"words of the 2-grams must rise after each beginning"),
    ("words_", 0, short, r"words (int32 [N]) must be int32 [N] from 0 to N"),
])  # fmt: skip
def test_a_received_folder_of_ngrams_is_refused_before_a_compiled_loop_reads_it(  # noqa: PLR0917
    name, order, change, words, counted, tmp_path, capsys
):
    """A shorter table was read past its end, and far indices ended the process."""
    folder = shutil.copytree(counted, tmp_path / "evil")
    values = checkpoint.load_newest_values(folder)
    values[name][order] = change(values[name][order])
    path = checkpoint.newest(folder)
    shutil.rmtree(path)
    checkpoint.save_values(path, values)
    with pytest.raises(ValueError, match="because another version made it or it was changed"):
        everynet.load(folder)
    (tmp_path / "lines.txt").write_text("The sea is\n")
    assert main(["predict", str(folder), str(tmp_path / "lines.txt")]) == 2
    said = capsys.readouterr().err
    assert words in re.sub(r"\d{4,}", "N", said)  # how many words there are is Python's affair
    assert said.count("\n") == 1
