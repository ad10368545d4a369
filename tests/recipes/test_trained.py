"""Runs and files of weights that are given: `of=RUN`, `start=RUN` and `start=FILE.safetensors`."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import everynet
from everynet import runs
from everynet.cli import main
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Simulation
from everynet.recipes.settings import override
from everynet.recipes.trained import Trained
from everynet.runs import checkpoint, verbs
from everynet.runs.job import Job
from everynet.system.errors import Stopped, UserError
from everynet.system.signals import Stop
from everynet.system.wording import written
from everynet.training.loop import begin, trained
from tests.runs import recipes


@pytest.fixture(scope="module", autouse=True)
def unseen():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    """A run of the zoo, on a table."""
    recipe = override(find("mlp-xor"), {"steps": 5, "hidden": "4"})
    return runs.run(recipe, tmp_path_factory.mktemp("runs")).folder


@pytest.fixture
def run_of(tmp_path):
    """Runs a recipe of this folder's own file; such a run can be begun from."""

    def run(recipe, **fields):
        name = recipe.name or "small"
        return runs.run(replace(recipe, name=name, **fields), tmp_path / "runs", device="cpu")

    return run


def of_file(weights, path):
    save_file(weights, path)
    return Trained(str(path))


def first(folder):
    """The weights of the checkpoint before the first update."""
    contents = checkpoint.read_bundle(folder / "checkpoints" / "0")
    return checkpoint.weights_in(folder, contents[checkpoint.MODEL])


def kept(folder):
    return checkpoint.weights_in(folder, checkpoint.kept_weights(folder))


LONG = {"steps": 3, "save_every": 1000, "eval_every": 1000}  # step 0 is still there at the end


# -------------------------------------------------------------------------------------- Trained


def test_what_it_is_worth_is_its_weights(mlp, tmp_path):
    here = everynet.trained(mlp)
    shutil.copytree(mlp, tmp_path / "copy")
    there = everynet.trained(tmp_path / "copy")
    assert here == there
    assert hash(here) == hash(there)
    assert here.path != there.path
    assert (here.made_by, len(here.sha256)) == ("mlp-xor", 64)
    assert here != Trained()
    assert here != replace(there, sha256="0" * 64)
    assert here != str(mlp)
    assert Trained("a") == Trained("a") != Trained("b")  # by path where no sum is known
    assert not Trained()
    assert here


def test_a_run_gives_its_recipe_network_and_description(mlp):
    given = everynet.trained(mlp)
    assert (given.recipe.name, given.recipe.steps) == ("mlp-xor", 5)
    assert not given.model.training
    assert given.spec["name"] == "xor"
    assert given.tensors().keys() == given.model.state_dict().keys()
    for name, tensor in given.model.state_dict().items():
        assert torch.equal(tensor, given.tensors()[name])


def test_it_is_written_as_its_path_and_comes_back_from_recipe_json(mlp, tmp_path, capsys):
    assert written(Trained("runs/a")) == "runs/a"
    recipe = override(find("mlp-xor"), {"hidden": "4", "steps": "1", "start": str(mlp)})
    assert recipe.changed == ("steps", "start", "hidden")
    folder = runs.run(recipe, tmp_path).folder
    stored = json.loads((folder / "recipe.json").read_text())["settings"]["start"]
    assert stored == everynet.trained(mlp).plain
    again = everynet.recipes.stored.of_run(folder)
    assert again.start.plain == stored
    assert again.changed == recipe.changed
    card = (folder / "card.md").read_text()
    assert f"start={mlp}" in card
    assert f"| read | {mlp}, SHA-256 `{stored['sha256']}` |" in card


@pytest.mark.parametrize("value", [3, {"path": "a"}, {"path": 1, "sha256": "", "recipe": ""}])
def test_recipe_json_that_holds_something_else_is_refused(value):
    with pytest.raises(UserError, match=r"start \(.*\) must be a run folder or file"):
        override(find("mlp-xor"), {"start": value})


def test_paths_that_lead_to_no_weights(tmp_path):
    with pytest.raises(UserError, match=r"trained \(.*gone\) must be a run folder or a .safetenso"):
        everynet.trained(tmp_path / "gone")
    with pytest.raises(UserError, match=r"is not a run folder: it has no recipe.json"):
        everynet.trained(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UserError, match=r"trained \(.*a.txt\) must be a run folder or a .safetens"):
        everynet.trained(tmp_path / "a.txt")
    (tmp_path / "a.safetensors").write_bytes(b"no tensors at all, but quite some bytes")
    with pytest.raises(UserError, match=r"a.safetensors is no safetensors file, or is damaged: "):
        everynet.trained(tmp_path / "a.safetensors").tensors()


@pytest.mark.parametrize("word", ["gone", "here", "bad.safetensors", "empty.safetensors"])
def test_each_mistake_is_one_line_of_the_command_line(word, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    save_file({}, tmp_path / "empty.safetensors")
    assert main(["run", "mlp-xor", f"start={word}"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert word in error
    assert not (tmp_path / "runs").exists()


@dataclass(frozen=True, kw_only=True)
class Sum(Simulation):
    """The sum of the weights of a run."""

    of: Trained = Trained()  # noqa: RUF009 -- frozen

    def simulate(self, generator):
        return {"sum": sum(t.double().sum() for t in self.of.tensors().values())}

    def metrics(self, result):
        return {"sum": result["sum"].item()}


def test_weights_that_changed_since_are_refused(mlp, tmp_path):
    shutil.copytree(mlp, tmp_path / "victim")
    recipe = Sum(name="sum", of=Trained(str(tmp_path / "victim")))
    done = runs.run(recipe, tmp_path)
    expected = sum(t.double().sum() for t in kept(mlp).values())
    assert done.metrics["sum"] == pytest.approx(float(expected))
    held = replace(recipe, of=everynet.trained(tmp_path / "victim"))
    assert runs.resume(held, done.folder).metrics == done.metrics
    other = runs.run(override(find("mlp-xor"), {"steps": 6, "hidden": "4"}), tmp_path).folder
    shutil.rmtree(tmp_path / "victim")
    other.rename(tmp_path / "victim")
    with pytest.raises(UserError, match=r"of \(.*victim\) must hold the weights it held when the"):
        runs.resume(held, done.folder)


def test_the_run_of_a_simulation_or_an_estimator_has_a_sum_too(tmp_path, mlp):
    done = runs.run(Sum(name="sum", of=Trained(str(mlp))), tmp_path)
    assert len(everynet.trained(done.folder).sha256) == 64
    with pytest.raises(UserError, match=r"start \(.*\) must hold weights that fit this network"):
        runs.run(replace(recipes.Small(), start=Trained(str(done.folder))), tmp_path)


# ---------------------------------------------------------------------------------------- start


def test_a_training_begins_from_a_run(run_of):
    """Also from one whose recipe is not of the zoo: only its weights are read."""
    before = run_of(recipes.Small(), steps=8).folder
    after = run_of(recipes.Small(), start=Trained(str(before)), **LONG).folder
    began, ended = first(after), kept(before)
    assert began.keys() == ended.keys()
    assert all(torch.equal(began[name], ended[name]) for name in began)


def test_a_training_begins_from_a_file(run_of, tmp_path):
    torch.manual_seed(5)
    weights = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).state_dict()
    start = of_file(weights, tmp_path / "w.safetensors")
    began = first(run_of(recipes.Small(), start=start, **LONG).folder)
    assert all(torch.equal(began[name], weights[name]) for name in weights)


def test_what_fits_in_part_is_taken_and_the_rest_is_named(run_of, tmp_path, capfd):
    weights = {"0.weight": torch.ones(6, 4), "0.bias": torch.ones(5), "head": torch.ones(2)}
    start = of_file(weights, tmp_path / "w.safetensors")
    recipe = replace(recipes.Small(), name="small", start=start, **LONG)
    folder = runs.run(recipe, tmp_path / "runs", device="cpu", show=True).folder
    said = capfd.readouterr()
    line = next(t for t in (said.out + said.err).splitlines() if "began from" in t)
    assert "w.safetensors: 1 of 4 tensors" in line
    assert "new: 0.bias, 2.weight, 2.bias" in line
    assert "left out: 0.bias, head" in line
    began = first(folder)
    assert torch.equal(began["0.weight"], torch.ones(6, 4))
    fresh = begin(recipes.Small(), recipes.Small().dataset()).model.state_dict()
    for name in ("0.bias", "2.weight", "2.bias"):
        assert torch.equal(began[name], fresh[name])  # as without a start: of the seed


def test_nothing_that_fits_is_an_error(run_of, tmp_path):
    start = of_file({"other": torch.ones(3)}, tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=r"start \(.*\) must hold weights that fit this network: n"):
        run_of(recipes.Small(), start=start)
    assert not (tmp_path / "runs").exists()


def test_an_averaged_copy_begins_there_too(run_of, tmp_path):
    before = run_of(recipes.Small(), steps=8).folder
    start = Trained(str(before))
    after = run_of(recipes.Ema(), start=start, **LONG).folder
    began = first(after)  # the deployed network, which is the average
    assert all(torch.equal(began[name], tensor) for name, tensor in kept(before).items())


def stopped(recipe, out, monkeypatch):
    """The folder of a run that was stopped after its first update."""

    @contextmanager
    def soon():
        stop = Stop()
        stop.signal = 15
        yield stop

    with monkeypatch.context() as patch:
        patch.setattr(verbs, "catching_signals", soon)
        with pytest.raises(Stopped):
            runs.run(recipe, out, device="cpu")
    return next(out.iterdir())


def test_tinit_he_weights_is_read_once(run_of, tmp_path, monkeypatch):
    before = run_of(recipes.Small(), steps=8).folder
    start = Trained(str(before))
    recipe = replace(recipes.Small(), name="small", start=everynet.trained(before))
    whole = run_of(recipe, start=start)
    half = stopped(recipe, tmp_path / "half", monkeypatch)
    shutil.rmtree(before)
    done = runs.resume(recipe, half)
    assert done.metrics == whole.metrics
    assert all(torch.equal(t, kept(whole.folder)[n]) for n, t in kept(half).items())


def test_a_kill_before_the_first_checkpoint_begins_there_again(run_of, tmp_path, monkeypatch):
    before = run_of(recipes.Small(), steps=8).folder
    recipe = replace(recipes.Small(), name="small", start=everynet.trained(before), **LONG)
    whole = run_of(recipe)
    half = stopped(recipe, tmp_path / "half", monkeypatch)
    shutil.rmtree(half / "checkpoints")
    done = runs.resume(recipe, half)
    assert done.metrics == whole.metrics
    assert all(torch.equal(t, kept(before)[n]) for n, t in first(half).items())
    shutil.rmtree(half / "checkpoints")
    changed = replace(recipe, start=replace(recipe.start, sha256="0" * 64))
    with pytest.raises(UserError, match=r"start \(.*\) must hold the weights it held when the run"):
        runs.resume(changed, half)


# -------------------------------------------------------------------------------- in memory


def test_a_network_trained_in_memory_is_that_of_a_run(run_of):
    """And whoever asks for it keeps random numbers, threads and mode."""
    recipe = replace(recipes.Dropout(), goal="")
    folder = run_of(recipe).folder
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.get_num_threads()
    model = trained(recipe, recipe.dataset())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    assert not model.training
    for name, tensor in kept(folder).items():
        assert torch.equal(model.state_dict()[name], tensor), name
    average = trained(recipes.Ema(), recipes.Ema().dataset())
    assert not any(p.requires_grad for p in average.parameters())  # what is deployed
