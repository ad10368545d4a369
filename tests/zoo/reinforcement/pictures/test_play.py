import pytest
import torch

from everynet.plot.style import drawing, figure, png
from everynet.zoo.reinforcement.environments import MAPS, CartPole, Catch, MountainCar
from everynet.zoo.reinforcement.pictures.play import (
    draw_state,
    film_frame,
    film_strip,
    policy_maps,
    value_limits,
)
from tests.plot.legible import collisions, faults


def test_arrows_name_the_best_action():
    q = torch.zeros(2, 3, 4, 3)
    q[0, 1, 2] = torch.tensor([0.0, 0.5, 2.0])
    q[1, 1, 0] = torch.tensor([-0.1, -0.15, -0.2])  # all alike
    q[1, 1, 3] = torch.tensor([0.3, 0.0, 0.3])
    drawn = policy_maps(q, arrows="lsr")
    panels = drawn.axes[:3]
    said = {text.get_position(): text.get_text() for text in panels[1].texts}
    assert said == {(2, 0): "r", (3, 1): "l"}  # the first of equals
    assert panels[1].images[0].get_array()[0, 2] == 2
    assert panels[0].images[0].get_clim() == (-2, 2)
    assert png(drawn).startswith(b"\x89PNG")


def test_bars_stand_under_every_frame_but_the_last():
    q = torch.tensor([[0.1, 0.2, -0.3], [0.9, 0.2, 0.1]])
    states = torch.tensor([[0, 1, 1], [1, 1, 1], [2, 1, 0]])
    drawn = film_strip(Catch(4, 3), states, q, end="caught")
    above, below = drawn.axes[:3], drawn.axes[3:]
    assert [axes.get_title() for axes in above] == ["step 0", "1", "caught"]
    for axes, row in zip(below, q, strict=False):
        assert torch.allclose(torch.tensor([b.get_height() for b in axes.patches]), row.double())
        assert [b.get_alpha() == 1 for b in axes.patches].index(True) == int(row.argmax())
    assert not below[2].patches
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["left", "stay", "right"]
    assert png(drawn).startswith(b"\x89PNG")


def test_nothing_but_the_bars_moves_from_frame_to_frame_and_all_can_be_read():
    q = torch.tensor([[0.1, 0.2, -0.3], [0.9, 0.2, 0.1]])
    with drawing():
        frames = [
            film_frame(
                Catch(), torch.tensor([3, 1, 0]), row, title="game 10\ncaught",
                limits=value_limits(q),
            )
            for row in (q[0], q[1], None)
        ]  # fmt: skip
        for drawn in frames:
            assert not faults(drawn)
            assert not collisions(drawn)
            png(drawn)
    places = [[axes.get_position().bounds for axes in drawn.axes] for drawn in frames]
    assert places[0] == places[1] == places[2]
    assert len({(axes.get_xlim(), axes.get_ylim()) for _, axes in (d.axes for d in frames)}) == 1
    assert [len(drawn.axes[1].patches) for drawn in frames] == [3, 3, 0]
    assert [len(drawn.axes[1].texts) for drawn in frames] == [0, 0, 1], "the end is said"


def test_all_values_and_zero_have_room():
    low, high = value_limits(torch.tensor([[0.5, 1.0]]))
    assert (low, high) == (-0.08, 1.08)
    low, high = value_limits(torch.tensor([-2.0, -1.0]))
    assert low < -2
    assert high > 0
    assert value_limits(torch.zeros(2, 3)) == (-1, 1)


@pytest.mark.parametrize(
    ("game", "state"),
    [
        (CartPole(), [0.5, 0.0, 0.1, 0.0, 3.0]),
        (MountainCar(), [-0.9, 0.01, 4.0]),
        (MAPS["cliff"], [36, 0]),
    ],
)
def test_a_frame_of_every_game_can_be_read(game, state):
    with drawing():
        q = torch.linspace(-1, 2, len(game.actions))
        drawn = film_frame(
            game, torch.tensor(state), q, title="game 1\nstep 3", limits=value_limits(q)
        )
        assert not faults(drawn)
        assert not collisions(drawn)
        assert png(drawn).startswith(b"\x89PNG")


def test_a_pole_leans_to_where_it_falls():
    drawn = figure(2, 2)
    draw_state(drawn.axes[0], CartPole(), torch.tensor([1.0, 0.0, 0.2, 0.0, 0.0]))
    (_, pole) = drawn.axes[0].lines
    assert pole.get_xdata()[0] == 1.0
    assert pole.get_xdata()[1] > 1.0
