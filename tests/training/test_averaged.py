"""`ema=` of image classifiers: the average of weights is what is evaluated, kept and resumed."""

from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.trained import Trained
from everynet.runs.job import Job
from everynet.runs.log import Log
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.graph import Update, watching_step
from everynet.training.loop import begin, evaluate, train
from everynet.training.start import Start
from tests.runs.test_resume import contents, stopped_after


def tiny(**fields):
    """A network with batch normalisation, on images that are moved at random."""
    small = {"widths": (4, 4), "steps": 4, "eval_every": 2, "save_every": 2}
    return replace(find("cnn-cifar").tiny(), name="cnn-cifar", **(small | fields))


@pytest.fixture(autouse=True)
def unseen(monkeypatch):
    """Runs without pictures, which take longer than the rest."""
    monkeypatch.setattr(Job, "draw", lambda self, model: ())


def tensors(module):
    return [tensor.clone() for tensor in module.state_dict().values()]


def equal(left, right):
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


def states_of(recipe):
    """The data, and the state after each update."""
    data = recipe.dataset()
    state = begin(recipe, data)
    return data, state, train(recipe, state, data)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_average_follows_each_update_and_changes_nothing_else(accumulate):
    plain, recipe = tiny(accumulate=accumulate), tiny(accumulate=accumulate, ema=0.8)
    _, unaveraged, others = states_of(plain)
    _, state, records = states_of(recipe)
    assert plain.deployed(unaveraged) is unaveraged.model
    assert not [*unaveraged.extra.state_dict()]
    average = [p.double() for p in state.model.parameters()]
    places = [p.data_ptr() for p in recipe.deployed(state).parameters()]
    for _, record in zip(others, records, strict=True):
        assert equal(tensors(unaveraged.model), tensors(state.model))
        rate = max(1 - 0.8, 9 / (record.step - 1 + 10))
        average = [
            a + rate * (w.double() - a)
            for a, w in zip(average, state.model.parameters(), strict=True)
        ]
    deployed = recipe.deployed(state)
    assert deployed is not state.model
    for found, wanted in zip(deployed.parameters(), average, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    assert equal([*deployed.buffers()], [*state.model.buffers()])
    assert places == [p.data_ptr() for p in deployed.parameters()], "a graph writes there"


def test_an_averaged_update_does_not_read_the_step():
    recipe = tiny(ema=0.9)
    data = recipe.dataset()
    state = begin(recipe, data, choose("cpu"))
    update = Update(recipe, state, data, choose("cpu"))
    with watching_step(state) as reads:
        update.by_kernels(data.train(0))
    assert not reads
    assert state.extra.updates == 1


def test_the_average_is_what_is_evaluated_and_kept(tmp_path):
    recipe = tiny(ema=0.9, steps=4, eval_every=4, schedule="cosine")
    folder = runs.run(recipe, tmp_path, device="cpu").folder
    data, state, records = states_of(recipe)
    assert [record.step for record in records] == [1, 2, 3, 4]
    kept = runs.load(recipe, folder)
    assert equal(tensors(kept), tensors(recipe.deployed(state)))
    assert not equal(tensors(kept), tensors(state.model))
    rows = Log.of(folder).rows
    logged = next(row["valid"] for row in rows if "valid" in row)
    assert logged == evaluate(recipe, kept, data.valid)


def test_stop_and_resume_is_bit_equal_with_gradients_of_two_batches(tmp_path, monkeypatch):
    recipe = tiny(ema=0.99, accumulate=2)
    whole = runs.run(recipe, tmp_path / "whole", device="cpu")
    folder = stopped_after(3, recipe, tmp_path / "half", monkeypatch)
    result = runs.resume(recipe, folder)
    assert result.metrics == whole.metrics
    assert contents(folder) == contents(whole.folder)


def test_a_training_begins_from_an_average_and_averages_from_there(tmp_path):
    folder = runs.run(tiny(ema=0.9, steps=2), tmp_path, device="cpu").folder
    recipe = tiny(ema=0.5, start=Trained.from_text(str(folder)).resolved("start"), seed=3)
    data = recipe.dataset()
    state = begin(recipe, data, start=Start.of(recipe, data.spec))
    kept = tensors(runs.load(tiny(), folder))
    assert equal(kept, tensors(state.model))
    assert equal(kept, tensors(recipe.deployed(state)))


@pytest.mark.parametrize("ema", [1.0, -0.1, float("nan")])
def test_what_cannot_be(ema):
    with pytest.raises(UserError, match=r"ema \(.*\) must be at least 0 and below 1"):
        tiny(ema=ema)
