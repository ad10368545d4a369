import torch

from everynet.plot.style import CYCLE, array, bare, colour, figure, grid, png, symmetric


def test_a_figure_has_its_axes_by_rows():
    drawn = figure(6.0, 4.0, 2, 3)
    assert tuple(drawn.get_size_inches()) == (6, 4)
    assert len(drawn.axes) == 6
    places = [(axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start)
              for axes in drawn.axes]  # fmt: skip
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    grid(drawn.axes[0])
    bare(drawn.axes[1])
    assert figure(3.0, 3.0, projection="3d").axes[0].name == "3d"


def test_the_cycle_goes_round_and_lines_use_it():
    assert colour(0) == CYCLE[0] == colour(len(CYCLE))
    (line,) = figure(3.0, 3.0).axes[0].plot([0, 1])
    assert line.get_color() == CYCLE[0]


def test_limits_put_zero_in_the_middle():
    assert symmetric(torch.tensor([-2.0, 1.0])) == (-2, 2)
    assert symmetric(torch.zeros(3)) == symmetric(torch.zeros(0)) == (-1, 1)


def test_arrays_are_off_the_graph():
    values = torch.ones(2, requires_grad=True)
    assert array(values).tolist() == [1, 1]
    assert array(torch.tensor([1, 2])).dtype == "float64"


def test_formulae_on_several_lines_are_drawn_without_a_word(caplog):
    drawn = figure(2.0, 2.0)
    title = drawn.axes[0].set_title("rate $\\eta$\nby $x_1$")
    odd = drawn.axes[0].set_xlabel("fine $x$\nodd $\\frac$")
    png(drawn)
    assert (title.get_parse_math(), odd.get_parse_math()) == (True, False)
    assert not caplog.records
