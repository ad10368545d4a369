"""Pictures of samples, chains and energies show the values that they are given."""

import numpy as np
import torch

from everynet.plot import Film
from everynet.plot.style import WRONG
from everynet.zoo.generative.pictures.energy import (
    chain_frames,
    energy_histograms,
    image_table,
    pattern_probabilities,
    samples_by_validity,
)
from tests.plot.legible import faults


def test_a_table_names_its_rows_and_columns():
    made = image_table(torch.rand(2, 3, 4, 4), columns=["0", "1", "10"], rows=["a", "b"], title="t")
    axes = made.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "10"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert not faults(made)
    assert not faults(image_table(torch.rand(8, 9, 28, 28), columns=[*"012345678"]))


def test_wrong_samples_have_a_red_frame():
    made = samples_by_validity(torch.ones(20, 1, 4, 4), [True] * 17 + [False] * 3)
    inks = [patch.get_edgecolor() for patch in made.axes[0].patches]
    red = tuple(int(WRONG[at : at + 2], 16) / 255 for at in (1, 3, 5))
    assert sum(np.allclose(ink[:3], red) for ink in inks) == 3
    assert not faults(made)


def test_shares_of_a_histogram_add_up_to_one():
    made = energy_histograms({"data": torch.randn(500), "noise": torch.randn(90) + 3}, xlabel="F")
    for line in made.axes[0].lines:
        assert np.isclose(np.sum(line.get_ydata()), 1)
    assert not faults(made)


def test_patterns_are_drawn_from_the_likeliest_on():
    q = torch.tensor([0.1, 0.5, 0.2])
    made = pattern_probabilities(q, torch.full((3,), 1 / 3), title="q")
    heights = [bar.get_height() for bar in made.axes[0].patches]
    assert np.allclose(heights, [0.5, 0.2, 0.1])
    assert not faults(made)


def test_frames_of_a_film_hold_all_images():
    states = iter([torch.zeros(5, 1, 4, 4), torch.ones(5, 1, 4, 4)])
    film = Film(chain_frames(states, 3), 10)
    assert len(film.frames) == 2
    assert (film.frames[1] == 255).sum() == 3 * 5 * 32 * 32
