import torch

from everynet.zoo.language.pictures.candidates import score_planes


def test_each_way_has_a_plane_with_its_points_and_the_line_of_equality():
    truth = torch.linspace(-5, 0, 30)
    ways = {"a": truth + 1, "b": -truth}
    made = score_planes(truth, ways, truth, ylabels={"a": "F", "b": "G"})
    *planes, bar = made.axes
    assert [axes.get_title() for axes in planes] == ["a", "b"]
    assert [axes.get_ylabel() for axes in planes] == ["F", "G"]
    for axes, scores in zip(planes, ways.values(), strict=True):
        assert axes.lines[0].get_xydata().tolist() == [[-5, -5], [0, 0]]
        torch.testing.assert_close(
            torch.tensor(axes.collections[0].get_offsets().data),
            torch.stack([truth, scores], 1).double(),
        )
        assert axes.get_xlabel()
    assert bar.get_ylabel()
    assert made.get_size_inches()[0] == 6.5
