import torch

from everynet.plot.style import png
from everynet.zoo.reinforcement.pictures.play import film_strip, policy_maps


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
    drawn = film_strip(torch.rand(3, 4, 5), q, actions=("left", "stay", "right"), end="caught")
    above, below = drawn.axes[:3], drawn.axes[3:]
    assert [axes.get_title() for axes in above] == ["step 0", "1", "caught"]
    for axes, row in zip(below, q, strict=False):
        assert torch.allclose(torch.tensor([b.get_height() for b in axes.patches]), row.double())
        assert [b.get_alpha() == 1 for b in axes.patches].index(True) == int(row.argmax())
    assert not below[2].patches
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["left", "stay", "right"]
    assert png(drawn).startswith(b"\x89PNG")
