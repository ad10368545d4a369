"""A value that becomes non-finite is named, layer and step, and the last good weights stay."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from everynet import runs
from everynet.cli.records import read_run
from everynet.data.dataset import Batch, Data, Terms
from everynet.recipes.state import State
from everynet.runs import checkpoint
from everynet.system.errors import NonFinite
from everynet.training.loop import finite
from tests.runs.recipes import Small


class Breaks(nn.Module):
    """The identity, until its call number `at`; the count lives in a buffer, so it is saved."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return x * float("nan") if self.training and self.calls >= self.at else x


@dataclass(frozen=True, kw_only=True)
class BadLayer(Small):
    """The third layer of four breaks at step 37."""

    steps: int = 60
    eval_every: int = 10
    save_every: int = 10

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Breaks(37), nn.Linear(6, 2))


@dataclass(frozen=True, kw_only=True)
class BadTerm(BadLayer):
    """The objective breaks by itself at step 23."""

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 2))

    def step(self, state: State, batch: Batch) -> Terms:
        terms = super().step(state, batch)
        return {k: v / 0 if state.step == 22 else v for k, v in terms.items()}


@dataclass(frozen=True, kw_only=True)
class BadUpdate(BadLayer):
    """A rate so large that the first update overflows the weights."""

    lr: float = 1e38
    optimizer: str = "sgd"

    def model(self, data: Data) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 2))

    def objective(self, model: nn.Module, batch: Batch) -> Terms:
        return {"cross_entropy": (model(batch[0]) * 1e6).square().mean()}


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (BadLayer(name="bad"), "layer 2 became non-finite at step 37"),
        (BadTerm(name="bad"), "the term cross_entropy became non-finite at step 23"),
        (BadUpdate(name="bad"), r"(parameter|gradient of) 0\.\w+ became non-finite at step 1;"),
    ],
)
def test_layer_and_step_are_named(recipe, words, tmp_path):
    with pytest.raises(NonFinite, match=words) as raised:
        runs.run(recipe, tmp_path, device="cpu")
    assert raised.value.code == 3
    assert "the last good weights are in" in str(raised.value)
    (folder,) = tmp_path.iterdir()
    model = runs.load(recipe, folder)
    assert finite(model.parameters())
    step = int(words.split("step ")[1].split(";")[0])
    assert checkpoint.steps(folder)[-1] == (step - 1) // 10 * 10


def test_a_smaller_rate_can_go_on_from_the_last_good_weights(tmp_path):
    """The folder is still a run: with the fault mended it resumes and ends."""
    recipe = BadLayer(name="bad")
    with pytest.raises(NonFinite):
        runs.run(recipe, tmp_path, device="cpu")
    (folder,) = tmp_path.iterdir()

    class Mended(BadLayer):
        def model(self, data):
            return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Breaks(10**9), nn.Linear(6, 2))

    result = runs.resume(Mended(**{**vars(recipe)}), folder)
    assert read_run(folder).split == "test"
    assert result.metrics["cross_entropy"] < 1


def test_a_metric_that_is_not_a_number_is_refused(tmp_path):
    class BadMetric(Small):
        def metrics(self, model, batch):
            return {"cross_entropy": torch.full((len(batch[0]),), float("nan"))}

    with pytest.raises(NonFinite, match="cross_entropy is nan at step 4"):
        runs.run(replace(BadMetric(), name="bad"), tmp_path, device="cpu")


def test_a_gradient_of_a_few_rows_is_looked_at_too():
    rows = torch.sparse_coo_tensor(
        [[1, 3]], torch.tensor([[1.0], [2.0]]), (5, 1), check_invariants=True
    )
    bad = torch.sparse_coo_tensor(
        [[1, 3]], torch.tensor([[1.0], [float("nan")]]), (5, 1), check_invariants=True
    )
    assert finite([rows])
    assert not finite([rows, bad])
