"""Gradient clipping: by norm and by value as recipes do them, and why long chains need it.

|g| > c:  g <- g c / |g|        by norm: the direction stays
g_i    <- min(max(g_i, -c), c)  by value: the direction turns
"""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.data.dataset import Data
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError


def parameters(values):
    return [nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in values]


def descended(gradients, clip=0.0, clip_value=0.0):
    """What one step of size 1 down a loss with these gradients takes off each parameter."""
    given_ = parameters([[0.0] * len(g) for g in gradients])
    state = State(nn.ParameterList(given_), nn.Module(), {"main": torch.optim.SGD(given_, lr=1.0)})
    slopes = [torch.tensor(g, dtype=torch.float64) for g in gradients]
    loss = sum((p * g).sum() for p, g in zip(given_, slopes, strict=True))
    state.descend(loss, clip=clip, clip_value=clip_value)
    return [-p.detach() for p in given_]


# --------------------------------------------------------------------------------------- equations


@pytest.mark.covers("O32")
def test_a_gradient_of_norm_five_is_brought_to_norm_one_over_all_parameters_together():
    taken = descended([[3.0, 0.0], [4.0]], clip=1.0)
    assert torch.cat(taken).tolist() == pytest.approx([0.6, 0, 0.8], rel=1e-5)


@pytest.mark.covers("O32")
@given(
    rows=st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=4), min_size=1, max_size=3),
    clip=st.floats(0.01, 100),
)
@settings(max_examples=25, deadline=None)
def test_clipping_by_norm_is_torchs_and_the_formula(rows, clip):
    taken = torch.cat(descended(rows, clip))
    expected = parameters(rows)
    for p in expected:
        p.grad = p.detach().clone()
    nn.utils.clip_grad_norm_(expected, clip)
    torch.testing.assert_close(taken, torch.cat([p.grad for p in expected]), rtol=1e-10, atol=0)
    g = torch.tensor([v for row in rows for v in row], dtype=torch.float64)
    formula = g * clip / g.norm() if g.norm() > clip else g
    torch.testing.assert_close(taken, formula, rtol=1e-3, atol=1e-5)  # torch adds 1e-6 to the norm
    assert taken.norm() <= clip * (1 + 1e-9)


def test_zero_clips_nothing():
    assert torch.cat(descended([[3e8, -4e8]], clip=0.0)).tolist() == [3e8, -4e8]


@pytest.mark.covers("O32")
def test_clipping_by_value_is_a_clamp_and_turns_the_gradient():
    g = torch.tensor([3.0, -0.5, -40.0], dtype=torch.float64)
    taken = torch.cat(descended([g.tolist()], clip_value=1.0))
    assert taken.tolist() == [1, -0.5, -1]
    assert torch.equal(taken, g.clamp(-1, 1))
    assert torch.cosine_similarity(taken, g, dim=0) < 0.9
    by_norm = torch.cat(descended([g.tolist()], clip=1.0))
    assert torch.cosine_similarity(by_norm, g, dim=0).item() == pytest.approx(1)


def test_a_negative_bound_is_refused():
    with pytest.raises(UserError, match=r"clip \(-1.0\) must be a number from 0 up"):
        Training(clip=-1.0)


# ------------------------------------------------------------------------------------ a long chain


@dataclass(frozen=True, kw_only=True)
class LastInput(Training[nn.ModuleDict]):
    """Give back the last of 100 numbers by a plain RNN that begins as `gain` times the identity."""

    steps: int = 120
    optimizer: str = "sgd"
    lr: float = 0.1
    gain: float = 1.05

    def model(self, data):
        torch.default_generator.manual_seed(self.seed)
        rnn = nn.RNN(1, 16, nonlinearity="relu", batch_first=True)
        rnn.weight_hh_l0.data = self.gain * torch.eye(16)
        return nn.ModuleDict({"rnn": rnn, "head": nn.Linear(16, 1)})

    def objective(self, model, batch):
        (x,) = batch
        _, h = model["rnn"](x)
        return {"mse": (model["head"](h[0]) - x[:, -1]).square().mean()}

    def losses(self):
        """The loss at each step, along the path every recipe takes."""
        model, random = self.model(Data.none()), torch.Generator().manual_seed(self.seed)
        state = State(model, nn.Module(), self.optimizers(model))
        batches = (torch.randn(32, 100, 1, generator=random) for _ in range(self.steps))
        return [self.step(state, (batch,))["mse"].item() for batch in batches]


@pytest.mark.covers("O32")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_long_chain_diverges_without_clipping_and_trains_with_it(seed):
    free = LastInput(seed=seed).losses()
    assert not math.isfinite(free[-1])
    clipped = LastInput(seed=seed, clip=1.0).losses()
    assert clipped[0] == free[0]  # the same network
    assert sum(clipped[-10:]) / 10 < 0.1  # the numbers have variance 1
