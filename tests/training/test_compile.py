"""`--compile` compiles the whole objective, losses and all, or refuses in one line."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everynet.data.dataset import Batch, Data, Terms
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, train
from everynet.training.preflight import check_compiles
from tests.runs.recipes import Ema, Gan, Small

COMPILED = choose("cpu", compile=True)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler


@dataclass(frozen=True, kw_only=True)
class Parts(Small):
    """A network in parts, which the objective calls by name."""

    def model(self, data: Data) -> nn.Module:
        return nn.ModuleDict({"body": nn.Linear(4, 6), "head": nn.Linear(6, 2)})

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        x, y = batch
        assert isinstance(model, nn.ModuleDict)
        return {"cross_entropy": cross_entropy(model["head"](model["body"](x).tanh()), y)}


@dataclass(frozen=True, kw_only=True)
class Looking(Small):
    """An objective that looks at a number in the middle, which no graph can."""

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        terms = super().objective(model, batch)
        return terms if terms["cross_entropy"].item() > 0 else {}


@pytest.fixture
def graphs(monkeypatch) -> list[torch.fx.GraphModule]:
    """The graphs that torch makes of what is compiled, run as they are: its compiler is slow."""
    made: list[torch.fx.GraphModule] = []

    def backend(graph, _inputs):
        made.append(graph)
        return graph

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    return made


def losses(recipe, setup) -> list[float]:
    data = recipe.dataset()
    state = begin(recipe, data, setup)
    assert "weight" in next(state.model.named_parameters())[0]
    assert "_orig" not in next(state.model.named_parameters())[0]  # names do not change
    records = train(recipe, state, data, setup=setup)
    return [record.terms["cross_entropy"].item() for record in records]


@pytest.mark.parametrize("recipe", [Small(steps=5), Parts(steps=5), Ema(steps=5)])
def test_the_objective_is_one_graph_and_its_loss_is_in_it(recipe, graphs):
    assert losses(recipe, COMPILED) == losses(recipe, choose("cpu"))
    (graph,) = graphs
    called = {str(node.target) for node in graph.graph.nodes}
    assert any("cross_entropy" in name for name in called)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Gan(name="gan"), "because gan has a step of its own, which calls no objective that could"),
        (Looking(name="odd"), r"because torch cannot compile the objective of odd: .+; leave it o"),
    ],
)
def test_what_cannot_be_compiled_is_refused_before_a_folder_is_made(
    recipe, words, graphs, tmp_path
):
    with pytest.raises(UserError, match=rf"^compile \(true\) must be false, {words}"):
        run(recipe, tmp_path / "runs", device="cpu", compile=True)
    assert not (tmp_path / "runs").exists()


def test_trying_changes_nothing_of_the_run(graphs, tmp_path):
    recipe = replace(Ema(), steps=4)
    plain, compiled = (
        run(recipe, tmp_path / str(c), device="cpu", compile=c).metrics for c in (False, True)
    )
    assert plain == compiled


@pytest.mark.slow
def test_a_network_compiled_in_earnest_learns_the_same():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    recipe = Parts(steps=5)
    check_compiles(recipe, recipe.dataset(), COMPILED)
    assert losses(recipe, COMPILED) == pytest.approx(losses(recipe, choose("cpu")), rel=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
