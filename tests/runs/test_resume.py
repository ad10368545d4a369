"""Stopping and going on changes nothing: weights, moments, extra state and log are bit-equal."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.cli.records import read_run
from everynet.runs import checkpoint, verbs
from everynet.runs.checkpoint import read_bundle
from everynet.runs.log import Log
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import Stop
from everynet.training.device import choose
from everynet.training.loop import begin
from everynet.training.processes import World
from tests.runs import recipes
from tests.runs.sealed import reseal

RECIPES = {n: r for n, r in recipes.RECIPES.items() if n not in ("killed", "endless", "raises")}


def contents(folder):
    """Every byte of a run that must not depend on how often it stopped."""
    last = checkpoint.steps(folder)[-1]
    best = checkpoint.progress_of(checkpoint.path_of(folder, last)).best_step
    saved = {path.name: read_bundle(path) for path in (folder / "checkpoints").iterdir()}
    assert {str(last), *([f"best-{best}"] if best >= 0 else [])} <= {*saved}
    return saved, (folder / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return {
        name: runs.run(replace(recipe, name=name), tmp_path_factory.mktemp(name), device="cpu")
        for name, recipe in RECIPES.items()
    }


@pytest.fixture
def copied(unbroken, tmp_path):
    return lambda name: shutil.copytree(unbroken[name].folder, tmp_path / "copy")


class StopAt(Stop):
    """A signal that arrives after so many looks at it."""

    def __init__(self, looks):
        self.left = looks

    @property
    def signal(self):
        self.left -= 1
        return 15 if self.left < 0 else 0


def stopped_after(stop, recipe, out, monkeypatch):
    """The folder of a run that a signal ended after so many updates."""

    @contextmanager
    def soon():
        yield StopAt(stop - 1)

    with monkeypatch.context() as patch:
        patch.setattr(verbs, "catching_signals", soon)
        with pytest.raises(Stopped, match="everynet resume") as stopped:
            runs.run(recipe, out, device="cpu")
    assert stopped.value.code == 143
    (folder,) = out.iterdir()
    assert checkpoint.steps(folder)[-1] == stop
    return folder


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_stop_and_resume_is_bit_equal(name, stop, unbroken, tmp_path, monkeypatch):
    recipe = replace(RECIPES[name], name=name)

    folder = stopped_after(stop, recipe, tmp_path, monkeypatch)
    result = runs.resume(recipe, folder)
    assert result.metrics == unbroken[name].metrics
    assert contents(folder) == contents(unbroken[name].folder)


@pytest.mark.parametrize("name", RECIPES)
def test_restoring_into_another_seed_brings_everything_back(name, unbroken):
    """What `extra` keeps outside buffers and submodules would stay as the other seed made it."""
    recipe, folder = RECIPES[name], unbroken[name].folder
    path = checkpoint.newest(folder)
    data = recipe.dataset()
    state = begin(replace(recipe, seed=99), data, choose("cpu"))
    progress = checkpoint.restore(path, state, recipe.deployed(state))
    copy = folder.parent / "copy"
    copy.mkdir(exist_ok=True)
    checkpoint.save(copy / path.name, state, recipe.deployed(state), progress)
    assert read_bundle(copy / path.name) == read_bundle(path)
    shutil.rmtree(copy)


def test_moments_of_channels_last_weights_keep_their_strides(unbroken):
    """Fused AdamW computes wrong values when moments and weights differ in their strides."""
    recipe = RECIPES["batch-norm"]
    state = begin(recipe, recipe.dataset(), choose("cpu"))
    checkpoint.restore(
        checkpoint.newest(unbroken["batch-norm"].folder), state, recipe.deployed(state)
    )
    weight = state.model[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert state.optimizers["main"].state[weight]["exp_avg"].stride() == weight.stride()


def test_a_longer_run_goes_on_from_the_end(unbroken, tmp_path):
    folder = tmp_path / "longer"
    shutil.copytree(unbroken["small"].folder, folder)
    runs.resume(replace(RECIPES["small"], name="small", steps=20, changed=("steps",)), folder)
    assert read_run(folder).step == 20
    whole = runs.run(replace(RECIPES["small"], name="small", steps=20), tmp_path, device="cpu")
    last = checkpoint.path_of(folder, 20), checkpoint.path_of(whole.folder, 20)
    assert read_bundle(last[0])["model.safetensors"] == read_bundle(last[1])["model.safetensors"]


def test_the_callers_random_state_and_threads_come_back(tmp_path):
    torch.manual_seed(3)
    threads, expected = torch.get_num_threads(), torch.random.get_rng_state()
    runs.run(RECIPES["dropout"], tmp_path, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert torch.get_num_threads() == threads


def test_plateau_divides_the_rate_after_evaluations_without_progress():
    recipe = replace(RECIPES["plateau"], goal="cross_entropy <= 0.5")
    rows = [
        {"step": s, "valid": {"cross_entropy": v}}
        for s, v in enumerate([3.0, 2.0, 2.0, 1.0, 1.0, 1.0])
    ]
    rates = [recipe.rate(step, rows) for step in range(6)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.001])


def test_plateau_looks_at_each_evaluation_once():
    """A history that grows gives what one that is there at once gives, and is not read again."""

    class Counted(dict):
        looks = 0

        def __contains__(self, key):
            Counted.looks += 1
            return super().__contains__(key)

    recipe = replace(RECIPES["plateau"], goal="cross_entropy <= 0.5")
    values = torch.rand(40, generator=torch.Generator().manual_seed(0)).tolist()
    rows = [Counted(step=s, valid={"cross_entropy": v}) for s, v in enumerate(values)]
    growing, grown = [], []
    for step, row in enumerate(rows):
        growing.append(row)
        grown += [recipe.rate(step, growing) for _ in range(3)]
    assert Counted.looks == 40
    fresh = [replace(recipe).rate(step, rows[: step + 1]) for step in range(40) for _ in range(3)]
    assert grown == fresh
    assert [recipe.rate(step, rows) for step in range(40) for _ in range(3)] == fresh
    shorter = rows[:7]
    assert recipe.rate(6, shorter) == fresh[18]
    assert len({*fresh}) > 5


def test_fewer_steps_than_are_done_are_refused(unbroken):
    folder = unbroken["small"].folder
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(
        UserError, match=r"steps \(10\) must be at least 12, .* has done 12 already"
    ):
        runs.resume(replace(RECIPES["small"], name="small", steps=10), folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_another_number_of_processes_is_refused_where_the_state_is_of_one(copied, monkeypatch):
    folder = copied("replay")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    monkeypatch.setattr(verbs, "joined", lambda *_: nullcontext(World(0, 2)))
    with pytest.raises(UserError, match="replay cannot be trained by several processes") as refused:
        runs.resume(replace(RECIPES["replay"], name="replay"), folder)
    assert refused.value.code == 2
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="goes on where there is no GPU")
def test_a_run_of_a_gpu_goes_on_elsewhere_and_the_card_says_so(copied):
    folder = copied("small")
    where = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(
        json.dumps(where | {"device": "cuda", "precision": "tf32"})
    )
    reseal(folder)
    recipe = replace(RECIPES["small"], name="small", steps=16)
    with pytest.raises(UserError, match="torch finds no cuda; try --device cpu"):
        runs.resume(recipe, folder)
    runs.resume(recipe, folder, device="cpu")
    card = (folder / "card.md").read_text()
    assert "| note | from step 12 on: cpu in fp32 instead of cuda in tf32 |" in card
    runs.resume(replace(recipe, steps=17), folder)  # on the CPU, as it was last


def test_a_run_goes_on_with_another_batch_size_and_the_card_says_so(copied):
    folder = copied("small")
    for number, (steps, size) in enumerate([(16, 4), (20, 4), (24, 8)], 1):
        recipe = replace(RECIPES["small"], name="small", steps=steps, batch_size=size)
        runs.resume(recipe, folder)
        notes = re.findall(r"\| note \| (from step .*) \|", (folder / "card.md").read_text())
        assert (
            notes
            == [
                "from step 12 on: batch_size 4 instead of 8",
                "from step 20 on: batch_size 8 instead of 4",
            ][: 1 + number // 3]
        )
    assert json.loads((folder / "recipe.json").read_text())["settings"]["batch_size"] == 8


def test_another_batch_size_is_refused_where_state_goes_from_batch_to_batch(copied):
    folder = copied("replay")
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match=r"batch_size \(4\) must stay 8, because replay carries"):
        runs.resume(replace(RECIPES["replay"], name="replay", batch_size=4), folder)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("changes", ["x", [1], ["x"] * 1001])
def test_changes_that_are_no_lines_are_damage(changes, copied):
    folder = copied("small")
    where = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**where, "changes": changes}))
    reseal(folder)
    with pytest.raises(UserError, match=r"environment.json is damaged: changes \(.*must be lines"):
        runs.resume(replace(RECIPES["small"], name="small"), folder)


def test_evaluations_between_saves_write_the_best_weights_alone(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoint, "write_bundle", lambda path, contents: (
        written.append((path.name, {*contents})), WRITE(path, contents)))  # fmt: skip
    result = runs.run(RECIPES["rare"], tmp_path, device="cpu")
    full = [name for name, files in written if "state.json" in files]
    light = [name for name, files in written if files == {"model.safetensors"}]
    assert full == ["0", "10", "20", "24"]
    assert len(light) > 1
    assert len(full) + len(light) == len(written)
    kept = {p.name for p in (result.folder / "checkpoints").iterdir()}
    spoken_of = {checkpoint.progress_of(checkpoint.path_of(result.folder, s)).best_step
                 for s in (20, 24)}  # fmt: skip
    assert kept == {"20", "24", *(f"best-{step}" for step in spoken_of)}
    assert "| weights | of step " in (result.folder / "card.md").read_text()


WRITE = checkpoint.write_bundle


def test_the_best_that_an_older_checkpoint_speaks_of_is_still_there(unbroken, tmp_path):
    """The newest checkpoint is damaged: the one before goes on with its own best."""
    folder = tmp_path / "copy"
    shutil.copytree(unbroken["rare"].folder, folder)
    (checkpoint.path_of(folder, 24) / "state.json").write_bytes(b"")
    result = runs.resume(replace(RECIPES["rare"], name="rare"), folder)
    assert result.metrics == unbroken["rare"].metrics
    for damaged in (folder / "checkpoints").glob("*.damaged-*"):
        shutil.rmtree(damaged)
    assert contents(folder) == contents(unbroken["rare"].folder)


@pytest.mark.parametrize("steps", [24, 30])
def test_a_damaged_best_does_not_end_the_run(steps, unbroken, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(unbroken["rare"].folder, folder)
    best = checkpoint.progress_of(checkpoint.newest(folder)).best_step
    (checkpoint.best_path(folder, best) / "model.safetensors").write_bytes(b"")
    recipe = replace(RECIPES["rare"], name="rare", steps=steps)
    with pytest.warns(UserWarning, match=r"damaged.*; the weights of .*24 are taken instead"):
        runs.load(recipe, folder)
    assert not [*(folder / "checkpoints").glob("*.damaged-*")]  # who looks moves nothing
    result = runs.resume(recipe, folder, show=True)
    assert "damaged" in capsys.readouterr().err
    assert result.metrics
    assert [*(folder / "checkpoints").glob(f"best-{best}.damaged-*")]
    card = (folder / "card.md").read_text()
    if steps == 24:
        assert "| weights | of step 24, the last, because the best were damaged" in card
    else:
        assert re.search(
            r"of step \d+ of 30: best valid cross_entropy .*; better may have been", card
        )
        runs.load(recipe, folder)


def test_a_tie_keeps_the_last(tmp_path):
    class Flat(type(RECIPES["small"])):
        def metrics(self, model, batch):
            return {"cross_entropy": torch.ones(len(batch[0]))}

    result = runs.run(Flat(name="flat"), tmp_path, device="cpu")
    assert checkpoint.progress_of(checkpoint.newest(result.folder)).best_step == 12


def test_terms_come_and_go_in_the_log(unbroken):
    rows = Log.of(unbroken["coming"].folder).rows
    names = {row["step"]: [*row["train"]] for row in rows if "train" in row}
    assert names[1] == ["_third", "cross_entropy", "_warm"]
    assert names[2] == ["cross_entropy", "_warm"]
    assert names[10] == ["_third", "cross_entropy"]
    assert names[12] == ["cross_entropy"]
    warm = [row["train"]["_warm"] for row in rows if "_warm" in row.get("train", ())]
    assert warm == [0, 1, 2, 3, 4]


APART = """
import os, random, sys, warnings
sys.path.append(os.getcwd())
from everynet import runs
from everynet.system.seeds import random_state
from everynet.training.loop import evaluate
from tests.runs.recipes import Drawing, Small

class Late(Small):
    def step(self, state, batch):
        if state.step == 6:
            random.random()
        return super().step(state, batch)

class Said(Late):
    draws = True

def run(recipe):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        runs.run(recipe, sys.argv[1], device="cpu")
    return [str(warning.message) for warning in seen]

before = random_state()
late, said, small, drawing = map(run, (Late(name="late"), Said(), Small(), Drawing()))
assert random_state() == before, "the caller's random state"
print(*late)
assert said == small == drawing == [], (said, small, drawing)

recipe = Drawing()
data = recipe.dataset()
net = recipe.model(data)
before = random_state()
first = evaluate(recipe, net, data.valid)
assert random_state() == before, "an evaluation has numbers of its own"
random.random()
assert evaluate(recipe, net, data.valid) == first
"""


def test_random_numbers_of_python_and_numpy(tmp_path):
    """In a process of its own, because what checks types in tests draws from Python's numbers."""
    script = tmp_path / "apart.py"
    script.write_text(APART)
    command = [sys.executable, str(script), str(tmp_path / "runs")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"late drew from Python's .* before step 8 .*`draws = True`.*", done.stdout.strip()
    )


def test_the_test_split_has_no_say(tmp_path):
    """Poisoned test data changes the test figures and nothing that was learned or chosen."""
    clean = runs.run(RECIPES["small"], tmp_path, device="cpu")

    class Poisoned(type(RECIPES["small"])):
        def dataset(self):
            data = super().dataset()
            x, y = data.splits["test"]
            return replace(data, splits={**data.splits, "test": (x * 1e3, 1 - y)})

    poisoned = runs.run(Poisoned(), tmp_path, device="cpu")
    assert poisoned.metrics != clean.metrics
    assert contents(poisoned.folder)[0] == contents(clean.folder)[0]
