"""The film of a network that learns a plane: it moves, and ends in the network that was trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from everynet.plot.film import Film
from everynet.system.errors import UserError
from everynet.training.loop import begin, trained
from everynet.zoo.feedforward.mlp import HOLD, RECIPES, PlaneClassification

GENERATOR = torch.Generator()


@pytest.fixture(scope="module")
def learned():
    """A network in float32, the data it learned, and its recipe."""
    recipe = replace(RECIPES["mlp-spirals"], hidden=(12,), steps=60, batch_size=32, lr=0.05)
    data = recipe.dataset().to(torch.device("cpu"), torch.float32)
    return recipe, data, trained(recipe, data)


def test_it_moves_and_ends_in_the_regions_of_the_network_it_was_given(learned):
    recipe, data, _ = learned
    model = begin(replace(recipe, seed=1), data).model  # another than it learns again
    film = recipe.sample(model, data.spec, GENERATOR, frames=4)
    assert len(film.frames) == 4 + HOLD
    assert all((a != b).any() for a, b in zip(film.frames[:3], film.frames[1:4], strict=True))
    kept = "the network as it was kept"
    last = Film((recipe._regions(model, data, kept) for _ in "1"), 1).frames[0]
    for frame in film.frames[-HOLD:]:
        np.testing.assert_array_equal(frame, last)
    assert film.frames[0].shape[1] * 2 < 975, "two side by side on a page"


def test_it_learns_again_what_was_learned_and_ends_there(learned, monkeypatch):
    recipe, data, model = learned
    seen = []

    def regions(self, net, data, when):
        seen.append((when, {name: value.clone() for name, value in net.state_dict().items()}))

    monkeypatch.setattr(PlaneClassification, "_regions", regions)
    list(recipe._learn_again(model, 4))
    assert [when for when, _ in seen[:4]] == ["step 0", "step 7", "step 27", "step 60"]
    first, end = begin(recipe, data).model.state_dict(), model.state_dict()
    for name in end:
        assert torch.equal(seen[0][1][name], first[name])
        assert torch.equal(seen[3][1][name], end[name])
        assert torch.equal(seen[-1][1][name], end[name])


def test_what_it_cannot_show_is_one_line(learned):
    recipe, data, model = learned
    for frames in (1, 81):
        with pytest.raises(UserError, match=rf"frames \({frames}\) must be from 2 to 80"):
            recipe.sample(model, data.spec, GENERATOR, frames=frames)
    for spec in ({"shape": [4]}, {"task": "regression"}):
        with pytest.raises(UserError, match=r"must be \[2\] with classes, because the film shows"):
            recipe.sample(model, {**data.spec, **spec}, GENERATOR)
