"""The table of `benchmarks/samples.py`: samples of runs beside real images."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from everynet import runs
from everynet.recipes.catalog import find
from everynet.runs.job import Job

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def samples():
    """The script as a module."""
    sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location("samples_table", FOLDER / "samples.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["samples_table"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))
    del sys.modules["samples_table"]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_for_each_run_below_real_images_of_each_sort(samples):
    draw = torch.Generator().manual_seed(0)
    grey = torch.rand(40, 1, 8, 8, generator=draw)
    made = [
        samples.Made("grey noise", "digits", 0, grey),
        samples.Made("binary noise", "digits", 0, grey.round()),
    ]
    head, _, *rows = samples.table(made, 200, 60).splitlines()
    assert len(cells(head)) == 6
    found = [cells(row) for row in rows]
    assert [row[:2] for row in found] == [
        ["test images", "of all values"],
        ["test images", "black and white"],
        ["grey noise", "of all values"],
        ["binary noise", "black and white"],
    ]
    away = [float(row[4]) for row in found]
    assert away[2] > 3 * away[0]
    assert away[3] > 3 * away[1]
    assert float(found[2][5]) > 3 * float(found[0][5])


def test_runs_that_make_no_images_are_left_out_in_one_line(samples, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    folders = [
        runs.run(replace(find(name).tiny(), steps=2), tmp_path, device="cpu").folder
        for name in ("gan-ring", "vae")
    ]
    words = ["samples.py", *map(str, folders), "--n", "30", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", words)
    assert samples.main() == 0
    said, errors = capsys.readouterr()
    assert errors.count("\n") == 1
    assert "left out" in errors
    assert "(gan-ring) must be the run of a network that makes images" in errors
    assert "| vae (" in said
    assert "black and white" in said  # pixels of a VAE, not their probabilities
    assert "RESULTS.md was left as it was" in said
    monkeypatch.setattr(sys, "argv", words[:2])
    assert samples.main() == 2
    monkeypatch.setattr(sys, "argv", words[:1])
    assert samples.main() == 0
    assert "no run is named" in capsys.readouterr()[0]
