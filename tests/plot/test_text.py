import torch

from everynet.plot.text import drawable, predicted_tokens, values_over_text


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_spaces_have_a_sign_and_what_the_font_lacks_is_a_square():
    assert drawable("a b\n") == "a\N{OPEN BOX}b\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"
    assert drawable("\U0002f800\x00") == "\N{WHITE SQUARE}" * 2
    assert drawable("$é") == "$é"


def test_values_over_a_text(tmp_path):
    values = torch.tensor([[0.5, -1.0, 0.0], [0.2, 0.1, -0.3]])
    drawn = values_over_text(values, ["a", "$", "\n"], rows=["first", "second"], unit="state")
    axes = drawn.axes[0]
    assert labels(axes.xaxis)[:2] == ["a", "$"]
    assert labels(axes.yaxis) == ["first", "second"]
    assert axes.images[0].get_clim() == (-1.0, 1.0)  # white is zero
    assert torch.equal(torch.tensor(axes.images[0].get_array()), values.double())
    drawn.savefig(tmp_path / "a.png")


def test_what_came_is_framed_where_it_was_expected(tmp_path):
    ranked = [["a", "b"], ["$x$", "c"], ["d", "e"]]
    given, likely = torch.tensor([0.3, 0.6, 0.0]), torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.9, 0]])
    drawn = predicted_tokens(["b", "$x$", "z"], given, ranked, likely.requires_grad_())
    top, below, *_ = drawn.axes
    assert [bar.get_height() for bar in top.patches] == given.double().tolist()
    assert [frame.get_xy() for frame in below.patches] == [(-0.5, 0.5), (0.5, -0.5)]
    found = {text.get_position(): text.get_text() for text in below.texts}
    assert found == {(n, r): ranked[n][r] for n in range(3) for r in range(2)}
    drawn.savefig(tmp_path / "a.png")
