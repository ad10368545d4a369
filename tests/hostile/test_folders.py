"""A folder received from anyone can be listed, shown, loaded, asked, drawn and gone on with.

Nothing outside of it changes, nothing hangs, and what is wrong with it is one line. The numbers are
those of the attacks that once succeeded.
"""

import errno
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import load, save
from torch import nn

import everynet
from everynet import runs
from everynet.cli import main
from everynet.runs import checkpoint, training_job
from everynet.system import files, manifest
from everynet.system.errors import CannotWrite, Missing, NoCheckpoint, UserError
from tests.hostile.generator import FILE, ROWS, make_canary, state_of
from tests.hostile.recipes import RECIPES
from tests.runs.recipes import RECIPES as CORE
from tests.runs.sealed import reseal, reseal_bundle

CODES = {0, 2, 3, 4, 5}
MINE = ("--file", FILE)


def tried(out, first, count):
    """How every verb ended on so many folders, in a process of their own."""
    command = [sys.executable, "-m", "tests.hostile.generator", str(out), str(first), str(count)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({one["seed"] for one in tries}) == count
    return tries


def check(tries):
    for one in tries:
        assert one["code"] in CODES, one
        assert one["same"], one
        assert one["seconds"] < 5, one
        assert one["megabytes"] < 1000, one
        assert "Traceback" not in one["said"], one
    assert {one["code"] for one in tries} >= {0, 2, 5}


def test_sixty_folders_of_strangers(tmp_path):
    check(tried(tmp_path, 0, 60))


@pytest.mark.slow
def test_five_hundred_folders_of_strangers(tmp_path):
    check(tried(tmp_path, 1000, 500))


# ------------------------------------------------------------------------- one test for each attack


def test_each_of_the_thirty_attacks_has_a_test_of_its_number():
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    numbers = {
        int(n) for text in texts for n in re.findall(r"^def test_(\d+)_", text, re.MULTILINE)
    }
    assert numbers == {*range(1, 31)}


@pytest.fixture
def around(tmp_path, monkeypatch):
    """What lies outside of the folder, and must stay as it is."""
    (tmp_path / "around" / "here").mkdir(parents=True)
    (tmp_path / "around" / "rows.csv").write_text(ROWS)
    monkeypatch.chdir(tmp_path / "around" / "here")
    make_canary(tmp_path / "around" / "canary")
    before = state_of(tmp_path / "around")
    yield tmp_path / "around"
    assert state_of(tmp_path / "around") == before


@pytest.fixture
def received(good, tmp_path):
    return lambda name="flowers": shutil.copytree(good[name], tmp_path / "evil", symlinks=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small pictures."""
    monkeypatch.setattr(training_job, "learning_curve", lambda *_: Figure(figsize=(1, 1)))


@pytest.fixture
def call(capsys):
    def run(*words):
        capsys.readouterr()
        code = main([*map(str, words)])
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("name", ["state.safetensors", "model.safetensors"])
def test_1_tensors_of_another_shape_are_refused_before_any_is_copied(name, received, call):
    folder = received()
    for step in checkpoint.steps(folder):
        path = checkpoint.path_of(folder, step)
        tensors = load((path / name).read_bytes())
        (path / name).write_bytes(save({key: torch.zeros(3) for key in tensors}))
        reseal_bundle(path)
    code, said = call("resume", folder, *MINE, "steps=600")
    assert code == 2
    assert "the checkpoint does not fit the network: " in said
    assert " is [3] there and [" in said


def odd_memory(folder, change):
    """A checkpoint whose optimiser remembers something else, sealed."""
    path = checkpoint.newest(folder)
    tensors = load((path / "state.safetensors").read_bytes())
    about = json.loads((path / "state.json").read_text())
    change(tensors, about["optimizers"])
    (path / "state.safetensors").write_bytes(save(tensors))
    (path / "state.json").write_text(json.dumps(about, sort_keys=True, indent=1))
    reseal_bundle(path)


FIRST = "optimizer/main/model/0.weight"


def only_moments(tensors, memory):
    tensors[f"{FIRST}/exp_avg"] = torch.zeros(3)


def doubled(tensors, memory):
    tensors[f"{FIRST}/exp_avg_sq"] = tensors[f"{FIRST}/exp_avg_sq"].double()


def renamed(tensors, memory):
    memory["main"]["model/0.weight"]["other"] = memory["main"]["model/0.weight"].pop("exp_avg")


def more(tensors, memory):
    memory["main"]["model/0.weight"]["more"] = 3


def stranger(tensors, memory):
    memory["main"]["model/9.weight"] = {}


def second(tensors, memory):
    memory["second"] = {}


def number(tensors, memory):
    memory["main"]["model/0.weight"]["exp_avg"] = 0.5


def unused(tensors, memory):
    tensors["optimizer/main/none"] = torch.zeros(3)


@pytest.mark.parametrize(("change", "words"), [
    (only_moments, r"0.weight/exp_avg is \[3\] there and \[5, 4\] here"),
    (doubled, r"0.weight/exp_avg_sq is torch.float64 there and torch.float32 here"),
    (renamed, r"0.weight/exp_avg is in one only"),
    (more, r"0.weight/more is in one only"),
    (stranger, r"optimizer/main/model/9.weight is in one only"),
    (second, r"the optimiser second is in one only"),
    (number, r"0.weight/exp_avg is a float there and a tensor here"),
    (unused, r"optimizer/main/none is in one only"),
])  # fmt: skip
def test_1_what_an_optimiser_remembers_must_be_what_a_step_makes(change, words, received):
    folder = received()
    odd_memory(folder, change)
    before = checkpoint.read_bundle(checkpoint.newest(folder))
    recipe = replace(RECIPES["flowers"], name="flowers", steps=9)
    with pytest.raises(UserError, match="does not fit the network: .*" + words):
        runs.resume(recipe, folder)
    assert checkpoint.read_bundle(checkpoint.newest(folder)) == before


@pytest.fixture(scope="module")
def painted(tmp_path_factory):
    recipe = replace(CORE["painting"], name="painting")
    return recipe, runs.run(recipe, tmp_path_factory.mktemp("painted"), device="cpu").folder


PIXELS = "optimizer/main/model/pixels"


def flat(tensors, memory):
    tensors[f"{PIXELS}/d"] = torch.zeros(3)


def shorter(tensors, memory):
    tensors.pop(f"{PIXELS}/{memory['main']['model/pixels']['ro'].pop()['tensor'].split('/', 4)[4]}")


def longer(tensors, memory):
    for name in ("old_dirs", "old_stps", "ro"):
        memory["main"]["model/pixels"][name] *= 40


def few(tensors, memory):
    memory["main"]["model/pixels"]["al"] = []


def nothing(tensors, memory):
    memory["main"]["model/pixels"]["d"] = None
    tensors.pop(f"{PIXELS}/d")


@pytest.mark.parametrize(("change", "words"), [
    (flat, r"pixels/d is \[3\] of torch.float32 there, and its parameter"),
    (shorter, r"optimizer/main must be equally long, 100 at most: old_dirs 11, .*ro 10"),
    (longer, r"optimizer/main must be equally long, 100 at most: old_dirs 440, .*ro 440"),
    (few, r"optimizer/main must be equally long, 100 at most: old_dirs 11, .*ro 11"),
    (nothing, r"optimizer/main cannot go on with what it remembers: .*'NoneType' object"),
])  # fmt: skip
def test_1_the_memory_of_an_optimiser_that_needs_a_closure(change, words, painted, tmp_path):
    """L-BFGS: its tensors must look like its parameters, and its lists like each other."""
    recipe, folder = painted
    folder = shutil.copytree(folder, tmp_path / "evil")
    odd_memory(folder, change)
    with pytest.raises(UserError, match="does not fit the network: .*" + words) as refused:
        runs.resume(replace(recipe, steps=9), folder)
    assert refused.value.code == 2


def test_1_what_is_kept_beside_the_network_is_checked_too(tmp_path):
    recipe = replace(CORE["ema"], name="ema", steps=2)
    folder = runs.run(recipe, tmp_path, device="cpu").folder
    path = checkpoint.newest(folder)
    tensors = load((path / "state.safetensors").read_bytes())
    tensors["model/0.bias"] = torch.zeros(1)  # which copying would spread over all six
    (path / "state.safetensors").write_bytes(save(tensors))
    reseal_bundle(path)
    with pytest.raises(UserError, match=r"model/0.bias is \[1\] there and \[6\] here"):
        runs.resume(replace(recipe, steps=4), folder)


def test_1_other_floats_are_for_loading_alone(received):
    folder, recipe = received(), replace(RECIPES["flowers"], name="flowers")
    expected = runs.load(recipe, folder)
    for path in (folder / "checkpoints").iterdir():
        tensors = load((path / "model.safetensors").read_bytes())
        double = {name: tensor.double() for name, tensor in tensors.items()}
        (path / "model.safetensors").write_bytes(save(double))
        reseal_bundle(path)
    found = runs.load(recipe, folder)
    assert torch.equal(found[0].weight, expected[0].weight)
    with pytest.raises(UserError, match=r"is torch.float64 there and torch.float32 here"):
        runs.resume(recipe, folder)
    whole = {name: tensor.long() for name, tensor in tensors.items()}
    for path in (folder / "checkpoints").iterdir():
        (path / "model.safetensors").write_bytes(save(whole))
        reseal_bundle(path)
    with pytest.raises(UserError, match=r"is torch.int64 there and torch.float32 here"):
        runs.load(recipe, folder)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "timing.jsonl", "lock", "recipe.json", "spec.json"]
)
def test_2_a_file_that_is_a_link(name, received, around, call):
    folder = received()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(around / "canary" / ".bashrc")
    code, said = call("resume", folder, *MINE, "steps=9")
    assert code == 2
    assert f"{name} must not be a link, because what is done to a run stays in its folder" in said


@pytest.mark.parametrize("name", ["checkpoints", "pictures", "cells", "checkpoints/6"])
def test_2_a_folder_that_is_a_link(name, received, around, call):
    folder = received("rates" if name == "cells" else "flowers")
    shutil.rmtree(folder / name)
    (folder / name).symlink_to(around / "canary" / "checkpoints")
    code, said = call("resume", folder, *MINE)
    assert code == 2
    assert f"{name} must not be a link" in said
    call("draw", folder, *MINE)
    call("predict", folder, around / "rows.csv", *MINE)


def test_2_a_link_to_a_run_of_the_users(received, good, call, tmp_path):
    """The lowest folder with a recipe.json is the user's own run: the topmost is what counts."""
    mine = shutil.copytree(good["flowers"], tmp_path / "mine")
    before = state_of(mine)
    folder = received("rates")
    shutil.rmtree(folder / "cells" / "lr-0.1")
    (folder / "cells" / "lr-0.1").symlink_to(mine)
    code, said = call("resume", folder, *MINE)
    assert code == 2
    assert "cells/lr-0.1 must not be a link" in said
    actions = (files.read, files.exists, lambda path: files.append(path, b"x"), files.remove_folder)
    for action in actions:
        with pytest.raises(UserError, match=r"cells/lr-0.1 must not be a link"):
            action(folder / "cells" / "lr-0.1" / "metrics.jsonl")
    assert state_of(mine) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "lock"])
def test_2_a_file_with_a_name_elsewhere(name, received, tmp_path, call):
    folder = received()
    (folder / name).touch()
    (folder / name).rename(tmp_path / "elsewhere")
    os.link(tmp_path / "elsewhere", folder / name)
    before = (tmp_path / "elsewhere").read_bytes()
    code, said = call("resume", folder, *MINE, "steps=9")
    assert code == 2
    assert (tmp_path / "elsewhere").read_bytes() == before
    assert f"{name} must have no other name, because a change of it would change" in said


def test_2_the_run_itself_may_be_a_link(received, tmp_path, call):
    folder = received()
    (tmp_path / "short").symlink_to(folder)
    assert call("resume", tmp_path / "short", *MINE)[0] == 0


def test_4_a_run_is_not_made_shorter_than_it_is(received, call):
    folder = received()
    before = state_of(folder)
    code, said = call("resume", folder, *MINE, "steps=2")
    assert code == 2
    assert "steps (2) must be at least 6, because " in said
    assert state_of(folder) == before


def test_6_a_fifo_hangs_nothing_and_hides_no_other_run(received, tmp_path, capsys):
    folder = received()
    shutil.copytree(folder, tmp_path / "runs" / "good")
    for name in ("recipe.json", "metrics.jsonl"):
        bad = shutil.copytree(folder, tmp_path / "runs" / name)
        (bad / name).unlink()
        os.mkfifo(bad / name)
    assert main(["runs", "--out", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert "good  flowers" in out
    assert "recipe.json/recipe.json must be a plain file, but is a FIFO; remove it" in out
    assert "metrics.jsonl/metrics.jsonl must be a plain file, but is a FIFO; remove it" in out


@pytest.mark.parametrize("name", ["../../../canary/notes", "/dev/zero", "recipe.json", "..", ""])
def test_6_a_manifest_names_files_of_ours_alone(name, received):
    path = checkpoint.newest(received())
    content = manifest.written({name: manifest.digest(b"")})
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(checkpoint.DamagedCheckpoint, match="is none of its files"):
        checkpoint.read_bundle(path)


@pytest.mark.parametrize("name", ["model.safetensors", "state.safetensors", "state.json"])
def test_6_no_more_is_read_than_the_network_could_need(name, received, call):
    folder = received()
    for path in (folder / "checkpoints").iterdir():
        if (path / name).exists():
            os.truncate(path / name, 10 << 30)
    code, said = call("resume", folder, *MINE)
    assert code == (5 if name == "state.json" else 2)
    assert f"{name} (10,737,418,240 bytes) must have at most " in said
    if name == "model.safetensors":
        code, said = call("draw", folder, *MINE)
        assert code == 5
        assert "must have at most 1,0" in said  # the network has few weights: a megabyte


@pytest.mark.parametrize("name", ["recipe.json", "environment.json", "spec.json"])
def test_11_what_decides_the_result_is_sealed(name, received, call, around):
    folder = received()
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    for words in (["resume"], ["draw"], ["predict", around / "rows.csv"]):
        code, said = call(words[0], folder, *words[1:], *MINE)
        assert code == 2
        assert f"{name} has been changed since it was written" in said


@pytest.mark.parametrize("change", [
    lambda log: log[:-40], lambda log: log[:20], lambda log: log.replace(b"1", b"2", 1),
    lambda log: log[log.index(b"\n") + 1 :],
])  # fmt: skip
def test_11_a_log_that_was_changed_or_cut_short_is_named(change, received, call):
    folder = received()
    log = (folder / "metrics.jsonl").read_bytes()
    kept = checkpoint.progress_of(checkpoint.newest(folder)).log_length
    (folder / "metrics.jsonl").write_bytes(change(log[:kept]))
    code, said = call("resume", folder, *MINE, "steps=9")
    assert code == 2
    assert "metrics.jsonl has been changed or cut short since it was written" in said


def test_11_of_a_cell_the_log_is_sealed_too(received, call):
    folder = received("rates")
    log = folder / "cells" / "lr-0.1" / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b"1", b"2", 1))
    for verb in ("draw", "resume"):
        code, said = call(verb, folder, *MINE)
        assert code == 2
        assert "lr-0.1/metrics.jsonl has been changed or cut short" in said


def test_11_a_kill_between_two_writes_leaves_files_that_are_known(tmp_path, monkeypatch):
    """After each of the writes of `put`, every file is the old one or the new one, and readable."""
    old = {"recipe.json": b'{"a": 1}', "spec.json": b"{}"}
    new = {"recipe.json": b'{"a": 2}', "spec.json": b'{"b": 3}', "ended.json": b"{}"}
    for left in range(6):
        folder = tmp_path / str(left)
        files.write_folder(folder, manifest.sealed(old))
        count = iter(range(left))

        def write(path, content, count=count):
            if next(count, None) is None:
                raise KeyboardInterrupt
            WRITE(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(files, "write", write)
            if left < 5:
                with pytest.raises(KeyboardInterrupt):
                    manifest.put(folder, new)
            else:
                manifest.put(folder, new)
        for name, content in old.items():
            assert manifest.read(folder / name) in (content, new[name])
        if left < 4:
            with pytest.raises(Missing):
                manifest.read(folder / "ended.json")
        manifest.put(folder, new)
        assert {name: manifest.read(folder / name) for name in new} == new
        (folder / "spec.json").write_bytes(b'{"b": 4}')
        with pytest.raises(UserError, match=r"spec.json has been changed since it was written"):
            manifest.put(folder, old)


WRITE = files.write


@pytest.mark.parametrize("part", ["best", "cell"])
def test_6_the_best_weights_and_those_of_cells_are_bounded_too(part, received, call):
    folder = received("flowers" if part == "best" else "rates")
    if part == "best":
        best = checkpoint.progress_of(checkpoint.newest(folder)).best_step
        os.truncate(checkpoint.best_path(folder, best) / "model.safetensors", 10 << 30)
    else:
        cell = folder / "cells" / "lr-0.1"
        os.truncate(checkpoint.path_of(cell, 4) / "state.safetensors", 10 << 30)
        (cell / "ended.json").unlink()
        reseal(cell)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, _ = call("resume", folder, *MINE)
    assert code == (0 if part == "best" else 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # kB


def test_12_a_run_of_two_processes_is_gone_on_with_by_one_and_says_so(received, call):
    folder = received()
    where = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**where, "processes": 2}))
    reseal(folder)
    code, said = call("resume", folder, *MINE)
    assert code == 0, said
    assert "1 process(es) instead of 2" in (folder / "card.md").read_text()


class ReadOnly:
    """The `os` of files.py on media that nobody can write to."""

    def __getattr__(self, name):
        return getattr(os, name)

    def open(self, name, flags, *arguments, **options):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return os.open(name, flags, *arguments, **options)

    def mkdir(self, *_arguments, **_options):
        raise OSError(errno.EROFS, "Read-only file system")

    rename = unlink = ftruncate = mkdir


def test_13_read_only_media(received, around, call, monkeypatch):
    """Who only looks needs to write nothing, also where something is damaged."""
    folder, recipe = received(), replace(RECIPES["flowers"], name="flowers")
    monkeypatch.setattr(files, "os", ReadOnly())
    assert call("predict", folder, around / "rows.csv", *MINE)[0] == 0
    assert call("runs", folder)[0] == 0
    assert call("runs", "--out", folder.parent)[0] == 0
    (checkpoint.newest(folder) / "state.json").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"6/state.json is damaged.*; the weights of .* are taken"):
        runs.load(recipe, folder)
    code, said = call("resume", folder, *MINE)
    assert code == 4
    assert "Read-only file system" in said


def test_13_who_only_asks_moves_nothing_and_says_what_is_damaged(received, call, around):
    folder = received()
    best = checkpoint.progress_of(checkpoint.newest(folder)).best_step
    (checkpoint.best_path(folder, best) / "model.safetensors").write_bytes(b"")
    before = state_of(folder)
    with pytest.warns(UserWarning, match=r"best-.* is damaged: .*; the weights of .*6 are taken"):
        assert call("predict", folder, around / "rows.csv", *MINE)[0] == 0
    assert state_of(folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_13_what_cannot_be_read_is_not_called_damaged(received, call):
    folder = received()
    path = checkpoint.newest(folder)
    (path / "state.safetensors").chmod(0)
    code, said = call("resume", folder, *MINE)
    assert code == 2
    assert "cannot read" in said
    assert "damaged" not in said
    assert path.exists()


def test_13_what_cannot_be_read_is_not_called_damaged_for_root_either(received, call, monkeypatch):
    folder = received()
    path = checkpoint.newest(folder)

    class Forbidden:
        def __getattr__(self, name):
            return getattr(os, name)

        def open(self, name, *arguments, **options):
            if str(name).endswith("state.safetensors"):
                raise PermissionError(13, "Permission denied")
            return os.open(name, *arguments, **options)

    monkeypatch.setattr(files, "os", Forbidden())
    code, said = call("resume", folder, *MINE)
    assert code == 2
    assert "cannot read" in said
    assert "Permission denied" in said
    assert "damaged" not in said
    assert path.exists()


def test_14_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(received, call):
    folder = received()
    (checkpoint.newest(folder) / "state.json").write_bytes(b"")
    code, said = call("resume", folder, *MINE)
    assert code == 0
    assert "checkpoints/6/state.json is damaged: its checksum does not match; the run goes" in said


def test_15_files_of_the_users_stay(received, call):
    folder = received()
    mine = [folder / ".notes.markdown", folder / "checkpoints" / ".git.worktree"]
    mine += [folder / name for name in (".a.b1c2d3e4", f".everynet-{'1' * 16}", ".everynet-XY-a")]
    for path in mine:
        path.write_text("mine")
    assert call("resume", folder, *MINE)[0] == 0
    assert all(path.read_text() == "mine" for path in mine)


@pytest.mark.parametrize("name", ["flowers", "rates"])
def test_16_what_a_kill_left_is_swept_everywhere(name, received, call, around):
    folder = received(name)
    parts = [folder, folder / "checkpoints", folder / "pictures"]
    if name == "rates":
        cell = folder / "cells" / "lr-0.1"
        parts += [cell, cell / "checkpoints", cell / "measured"]
    for part in parts:
        (part / f".everynet-{'a' * 16}-card.md").write_text("half")
        (part / f".everynet-{'b' * 16}-6").mkdir()
        (part / f".everynet-{'b' * 16}-6" / "model.safetensors").write_text("half")
        (part / f".everynet-{'c' * 16}-6").symlink_to(around / "canary")
    assert call("resume", folder, *MINE)[0] == 0
    assert not [path for path in folder.rglob(".*")]


def test_18_without_the_file_the_folder_is_still_locked(received):
    folder = received()
    with files.locked(folder):
        (folder / "lock").unlink()
        with pytest.raises(UserError, match="is in use by another process"), files.locked(folder):
            pass
    with files.locked(folder):
        pass


@pytest.mark.parametrize(("value", "words"), [
    ({}, "was made by everynet of another version"),
    ({"threads": 0}, r"threads \(0\) must be a whole number from 1 to 4,096"),
    ({"threads": 20_000}, r"threads \(20000\) must be a whole number from 1 to 4,096"),
    ({"threads": True}, r"threads \(True\) must be a whole number"),
    ({"processes": "2"}, r"processes \('2'\) must be a whole number"),
    ({"precision": "fp8"}, r"precision \('fp8'\) must be one of fp32, "),
    ({"compile": 1}, r"compile \(1\) must be true or false"),
    ({"device": "toaster"}, r"unknown device 'toaster'"),
    ({"versions": []}, r"versions \(\[\]\) must be an object"),
])  # fmt: skip
def test_22_an_environment_that_is_none(value, words, received):
    folder = received()
    where = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**where, **value} if value else {}))
    reseal(folder)
    with pytest.raises(UserError, match=words):
        runs.resume(replace(RECIPES["flowers"], name="flowers"), folder)


@pytest.mark.parametrize("stored", [b"[]", b"{}", b'{"files": []}', b"[" * 100_000, b"\xff", b""])
def test_22_a_manifest_that_is_none(stored, received, call):
    folder = received()
    for path in (folder / "checkpoints").iterdir():
        (path / "manifest.json").write_bytes(stored)
    code, said = call("resume", folder, *MINE)
    assert code == 5
    assert "no valid checkpoint left" in said
    (folder / "manifest.json").write_bytes(stored)
    code, said = call("resume", folder, *MINE)
    assert code == 2
    assert "manifest.json is damaged: " in said


def test_22_a_kind_of_number_that_torch_has_not(received, call):
    folder = received()
    for path in (folder / "checkpoints").iterdir():
        content = (path / "model.safetensors").read_bytes()
        (path / "model.safetensors").write_bytes(content.replace(b'"F32"', b'"F4" '))
        reseal_bundle(path)
    code, said = call("draw", folder, *MINE)
    assert code == 5
    assert "is damaged" in said


def test_22_json_that_is_nested_too_deep(received, call):
    folder = received()
    spec = json.loads((folder / "spec.json").read_text())
    for depth, words in ((61, "must hold spec, digest and read"), (65, "deeper than 64 levels")):
        value = []
        for _ in range(depth):
            value = [value]
        (folder / "spec.json").write_text(json.dumps({**spec, "read": value}))
        reseal(folder)
        code, said = call("draw", folder, *MINE)
        assert code == 2
        assert words in said


@pytest.mark.parametrize("verb", ["resume", "predict", "draw", "load"])
def test_22_a_network_larger_than_memory_is_refused_before_any_is_taken(
    verb, received, call, around, monkeypatch
):
    folder = received()
    about = json.loads((folder / "recipe.json").read_text())
    about["settings"]["hidden"] = 10**9  # 28 GB of weights
    (folder / "recipe.json").write_text(json.dumps(about))
    reseal(folder)
    monkeypatch.setattr("everynet.training.preflight.free", lambda: 8e9)
    monkeypatch.setattr(nn.Linear, "__init__", small_only(nn.Linear.__init__))
    much = ("weights and gradients", "64.0") if verb == "resume" else ("weights", "32.0")
    said = (
        "hidden (1000000000) must be smaller, because the {} of flowers would take {} GB, and 8.0"
    )
    said = said.format(*much)
    if verb == "load":
        with pytest.raises(UserError, match=re.escape(said)):
            everynet.load(folder, FILE)
        return
    code, error = call(verb, folder, *([around / "rows.csv"] if verb == "predict" else []), *MINE)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def small_only(init):
    """That a layer of a thousand million numbers is not made in earnest."""

    def guarded(self, *sizes, **options):
        assert max(sizes) < 10**6 or torch.empty(0).is_meta
        init(self, *sizes, **options)

    return guarded


def test_22_folders_that_lie_too_deep(received, call):
    folder = received()
    handle, name = os.open(folder / "checkpoints", os.O_RDONLY), f".everynet-{'1' * 16}-4"
    for _ in range(1500):
        os.mkdir(name, dir_fd=handle)
        inner = os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle, name = inner, "d"
    os.close(handle)
    code, said = call("resume", folder, *MINE)
    if code:  # a newer Python deletes them
        assert code == 2
        assert "folders must not lie so deep in each other; remove it" in said
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_23_a_checkpoint_whose_name_is_no_number(received, call):
    folder = received()
    for name in ("²", "٣", "007", "9" * 19, "best-²"):
        (folder / "checkpoints" / name).mkdir()
    assert checkpoint.steps(folder) == [3, 6]
    assert call("resume", folder, *MINE)[0] == 0


def test_23_weights_that_are_no_numbers(received, call, around):
    folder = received()
    for path in (folder / "checkpoints").iterdir():
        tensors = load((path / "model.safetensors").read_bytes())
        tensors["0.bias"] = tensors["0.bias"] * float("nan")
        (path / "model.safetensors").write_bytes(save(tensors))
        reseal_bundle(path)
    code, said = call("predict", folder, around / "rows.csv", *MINE)
    assert code == 5
    assert "0.bias must be made of finite numbers, and is not" in said
    assert said.count("\n") == 1


def test_23_a_log_with_a_step_that_is_none(received, tmp_path, capsys):
    good = shutil.copytree(received(), tmp_path / "runs" / "good")
    bad = shutil.copytree(good, tmp_path / "runs" / "bad")
    (bad / "metrics.jsonl").write_text('{"step": "x"}\n')
    assert main(["runs", "--out", str(tmp_path / "runs")]) == 0
    out = capsys.readouterr().out
    assert f"{good}  flowers" in out
    assert f"{bad} is damaged: TypeError step must be a whole number" in out
    with pytest.raises(UserError, match=r"metrics.jsonl is damaged: a line of it must hold a step"):
        runs.draw(replace(RECIPES["flowers"], name="flowers"), bad)


@pytest.mark.parametrize("older", [True, False])
def test_29_loading_while_checkpoints_come_and_go(older, received, monkeypatch):
    """Each time the newest is looked at it has just given way to another: nothing is damaged."""
    folder, recipe = received(), replace(RECIPES["flowers"], name="flowers")
    contents = checkpoint.read_bundle(checkpoint.newest(folder))
    steps = iter(range(7, 12))

    def read(path, *most):
        newest = checkpoint.steps(folder)[-1]
        if path.parent == checkpoint.path_of(folder, newest) and (step := next(steps, 0)):
            about = json.loads(contents["state.json"]) | {"step": step}
            about["progress"]["best_step"] = -1
            state = {"state.json": manifest.canonical(about)}
            checkpoint.write_bundle(checkpoint.path_of(folder, step), {**contents, **state})
            files.remove_folder(checkpoint.path_of(folder, newest))
        return READ(path, *most)

    if not older:
        files.remove_folder(checkpoint.path_of(folder, 3))
    monkeypatch.setattr(files, "read", read)
    runs.load(recipe, folder)  # a warning would be an error
    assert checkpoint.steps(folder)[-1] == 11


READ = files.read


# ------------------------------------------------------------------------------ values of strangers


@pytest.mark.parametrize(("plain", "words"), [
    ({"a_": {"texts": ["x"], "dtype": "<U1000000000"}}, "are too many"),
    ({"a_": {"texts": [], "dtype": "<U1000000000"}}, "are too many"),
    ({"a_": {"texts": ["x"], "dtype": "O"}}, "are too many"),
    ({"a_": {"tensor": "none"}}, "KeyError"),
    ({"a_": {"tensor": []}}, "TypeError"),
    ({"a_": {"float": "many"}}, "ValueError"),
    ({"a_": {"keys": [1], "values": []}}, "ValueError"),
    ({"a_": {"keys": [[1]], "values": [1]}}, "TypeError"),
    ([], "must hold an object"),
])  # fmt: skip
def test_values_that_nobody_saved(plain, words, tmp_path):
    contents = {"model.safetensors": save({}), "state.json": manifest.canonical(plain)}
    checkpoint.write_bundle(tmp_path / "1", contents)
    with pytest.raises(checkpoint.DamagedCheckpoint, match=words):
        checkpoint.load_values(tmp_path / "1")


@pytest.mark.parametrize("name", ["fit", "__class__", "_hidden_", "a b_", "predict"])
def test_an_estimator_is_given_what_it_learned_and_nothing_else(name, received):
    folder = received("nearest")
    shutil.rmtree(folder / "checkpoints" / "1")
    checkpoint.save_values(folder / "checkpoints" / "1", {name: 3})
    with pytest.raises(UserError, match="no estimator learns"):
        runs.load(replace(RECIPES["nearest"], name="nearest"), folder)


def test_values_that_do_not_fit_their_recipe_are_one_line(received, call, around):
    folder = received("nearest")
    shutil.rmtree(folder / "checkpoints" / "1")
    checkpoint.save_values(folder / "checkpoints" / "1", {"centres_": torch.ones(2, 9)})
    code, said = call("predict", folder, around / "rows.csv", *MINE)
    assert code == 2
    assert "recipes.py line " in said  # where it failed, in the file that was named
    assert said.count("\n") == 1


@pytest.mark.parametrize(("name", "value"), [
    ("step", "6"), ("step", 7), ("progress", []),
    ("progress", {"best_step": 1}), ("optimizers", {"main": {"a": 3}}),
])  # fmt: skip
def test_a_state_of_another_form_is_damaged(name, value, received, call):
    folder = received()
    path = checkpoint.newest(folder)
    about = json.loads((path / "state.json").read_text())
    if name == "progress" and value:
        value = {**about["progress"], "best_step": "1", "more": 2}
    (path / "state.json").write_bytes(manifest.canonical({**about, name: value}))
    reseal_bundle(path)
    code, said = call("resume", folder, *MINE)
    assert code == 0  # from the one before
    assert "checkpoints/6 is damaged: " in said


# ----------------------------------------------------------------------------------- the door alone


def test_a_folder_is_not_deleted_through_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "other")
    with pytest.raises(UserError, match="checkpoints must not be a link"):
        files.remove_folder(tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "file").touch()
    with pytest.raises(UserError, match="file must be a folder, because everynet made one there"):
        files.remove_folder(tmp_path / "run" / "file")
    assert (tmp_path / "other").is_dir()


def test_reading_outside_of_a_run_follows_links(tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert files.read(tmp_path / "b") == b"a"
    (tmp_path / "recipe.json").touch()
    with pytest.raises(UserError, match="b must not be a link"):
        files.read(tmp_path / "b")
    with pytest.raises(CannotWrite, match=r"cannot shorten .*c: No such file"):
        files.cut(tmp_path / "c", 0)


def test_names_and_existence(tmp_path):
    assert files.names(tmp_path / "none") == []
    (tmp_path / "file").touch()
    assert files.names(tmp_path / "file") == []
    (tmp_path / "lost").symlink_to("nowhere")
    assert files.names(tmp_path) == ["file", "lost"]
    assert files.exists(tmp_path / "lost")
    assert not files.exists(tmp_path / "file" / "inside")


def test_no_checkpoint_is_said_of_a_folder_without_any(received):
    folder = received()
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(NoCheckpoint, match="no valid checkpoint left"):
        runs.load(replace(RECIPES["flowers"], name="flowers"), Path(folder))


# ------------------------------------------------------------------------ what is read is bounded


def edit(path, change):
    """Change a file of JSON of a run, and seal it."""
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    reseal(path.parent)


@pytest.mark.parametrize("change", [
    lambda stored: stored["settings"].update({"schedule": "x" * 10**6}),
    lambda stored: stored["settings"].update({f"s{n}": n for n in range(2000)}),
    lambda stored: stored.update(name="x" * 10**6),
    lambda stored: stored.update(changed=["lr"] * 2000),
])  # fmt: skip
def test_one_folder_does_not_flood_the_list_of_runs(change, received, capsys):
    """31 MB of text were printed."""
    folder = received()
    edit(folder / "recipe.json", change)
    shutil.copytree(folder, folder.parent / "evil2")
    for words in ([], ["--json"], [str(folder), str(folder.parent / "evil2")]):
        main(["runs", "--out", str(folder.parent), *words])
        out, err = capsys.readouterr()
        assert len(out) + len(err) < 4000
        said = "is damaged: its settings and metrics must be at most 1,000, of 100,000 characters"
        assert said in out + err


def test_a_long_setting_is_cut_in_the_list_of_runs(received, capsys):
    folder = received()
    edit(folder / "recipe.json", lambda stored: stored["settings"].update(schedule="x" * 50_000))
    edit(folder / "recipe.json", lambda stored: stored.update(changed=["schedule"]))
    assert main(["runs", "--out", str(folder.parent)]) == 0
    assert 1000 < len(capsys.readouterr().out) < 4000


def test_runs_as_json_hold_no_infinite_number(received, capsys):
    folder = received()
    recipe = folder / "recipe.json"
    recipe.write_text(re.sub(r'"lr": [^,]+,', '"lr": 1e400,', recipe.read_text()))
    reseal(folder)

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    assert main(["runs", "--out", str(folder.parent), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert run["settings"]["lr"] is None
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 6, "test": {"accuracy": 1e400}}\n')
    assert main(["runs", "--out", str(folder.parent), "--json"]) == 0
    assert "metrics must be finite numbers in metrics.jsonl" in capsys.readouterr().err


def test_metrics_near_the_largest_number_are_grouped(received, capsys):
    folder = received()
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 6, "test": {"loss": 1.7e308}}\n')
    other = shutil.copytree(folder, folder.parent / "evil2")
    edit(other / "recipe.json", lambda stored: stored["settings"].update(seed=1))
    with (other / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 6, "test": {"loss": -1.7e308}}\n')
    assert main(["runs", "--out", str(folder.parent), "--group", "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)
    assert group["metrics"]["loss"] == 0
    assert group["spread"]["loss"] is None or group["spread"]["loss"] > 1e308


def test_more_threads_than_a_machine_can_start_are_refused(received, call):
    """libgomp ended the process with a line of its own."""
    folder = received()
    edit(folder / "environment.json", lambda where: where.update(threads=4096))
    if 64 * os.cpu_count() >= 4096:
        pytest.skip("this machine can")
    code, said = call("resume", folder, *MINE, "steps=9")
    assert code == 2
    assert "threads (4096) of" in said
    assert "go on with the run on the machine where it began" in said


def test_a_setting_of_very_many_values_is_refused(tmp_path, call):
    with pytest.raises(UserError, match=r"hidden \(20,000 values\) must hold at most 10,000"):
        everynet.recipe("mlp", hidden=(3,) * 20_000)
