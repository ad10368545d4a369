"""tools/rename_run.py: a folder of format 4 with older names becomes one of today, bit for bit."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

import everynet
from everynet import runs
from everynet.recipes.stored import FORMAT, of_run
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.manifest import canonical, digest
from tests.runs.sealed import reseal, reseal_bundle

TOOLS = Path(__file__).parents[2] / "tools"
OLD = {"classes": "Older", "settings": "rows_a_batch", "metrics": "right", "tensors": "inner"}
"""The names that are made older: a class, a setting, a metric and a part of a tensor's name."""


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TOOLS))
        import rename_run

        yield rename_run
        del sys.modules["rename_run"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = everynet.recipe("mlp", steps=4, batch_size=16, hidden="4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        return everynet.run(recipe, tmp_path_factory.mktemp("new"), device="cpu").folder


def replaced(path, *pairs):
    text = path.read_text()
    for new, old in pairs:
        assert new in text, (path, new)
        text = text.replace(new, old)
    path.write_text(text)


@pytest.fixture
def aged(trained, tmp_path):
    """The run as format 4 had it, with other names, and the table that leads to those of today."""
    folder = shutil.copytree(trained, tmp_path / "run")
    stored = json.loads((folder / "recipe.json").read_text())
    part = "layers"
    replaced(folder / "environment.json", (f'"format": {FORMAT}', f'"format": {FORMAT - 1}'))
    replaced(
        folder / "recipe.json",
        (f'"class": "{stored["class"]}"', f'"class": "{OLD["classes"]}"'),
        ('"batch_size"', f'"{OLD["settings"]}"'),
        ("accuracy", OLD["metrics"]),
    )
    replaced(folder / "metrics.jsonl", ('"accuracy"', f'"{OLD["metrics"]}"'))
    log = (folder / "metrics.jsonl").read_bytes()
    for path in (folder / "checkpoints").iterdir():
        for file in path.glob("*.safetensors"):
            tensors = load(file.read_bytes())
            assert not tensors or any(part in name for name in tensors), [*tensors]
            file.write_bytes(save({n.replace(part, OLD["tensors"]): t for n, t in tensors.items()}))
        if (path / "state.json").exists():
            about = json.loads((path / "state.json").read_text().replace(part, OLD["tensors"]))
            lines = log.splitlines(keepends=True)
            kept = b"".join(line for line in lines if json.loads(line)["step"] <= about["step"])
            kept = kept.partition(b'{"step": 4, "test"')[0]
            about["progress"]["log_length"] = len(kept)
            about["progress"]["log_sha256"] = digest(kept)
            (path / "state.json").write_bytes(canonical(about))
        reseal_bundle(path)
    reseal(folder)
    table = {
        **{key: {} for key in ("recipes", "metrics_of", "tensors_of")},
        "classes": {OLD["classes"]: stored["class"]},
        "settings": {f"mlp.{OLD['settings']}": "batch_size"},
        "metrics": {OLD["metrics"]: "accuracy"},
        "tensors": {OLD["tensors"]: part},
    }
    return folder, table


def test_a_folder_of_format_4_names_the_tool(aged):
    folder, _ = aged
    line = rf"names have changed since; rewrite it with python tools/rename_run.py {folder}"
    with pytest.raises(UserError, match=line):
        everynet.load(folder)
    with pytest.raises(UserError, match=line):
        of_run(folder)


def test_a_rewritten_folder_predicts_the_same_and_goes_on(aged, trained, tool, tmp_path, capsys):
    folder, table = aged
    (tmp_path / "table.json").write_text(json.dumps(table))
    assert tool.main([str(folder), str(tmp_path / "table.json")]) == 0
    assert f"the old one is {folder}-format-4" in capsys.readouterr().out
    rows = 16 * torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    wanted, found = (everynet.trained(one).predict(rows) for one in (trained, folder))
    assert wanted == found
    assert (folder / "metrics.jsonl").read_bytes() == (trained / "metrics.jsonl").read_bytes()
    again, result = (runs.resume(of_run(one), one).metrics for one in (trained, folder))
    assert again == result
    longer = [everynet.resume(one, steps=8) for one in (trained, folder)]
    assert longer[0].metrics == longer[1].metrics
    assert longer[0].history == longer[1].history


def test_only_format_4_is_rewritten(trained, tool, tmp_path, capsys):
    folder = shutil.copytree(trained, tmp_path / "run")
    assert tool.main([str(folder)]) == 2
    assert f"must be of format {FORMAT - 1}, and is of {FORMAT}" in capsys.readouterr().err
    (tmp_path / "run-format-4").mkdir()
    assert tool.main([str(folder)]) == 2
    assert "must not exist, because the old run is kept there" in capsys.readouterr().err
    assert tool.main([]) == 2
