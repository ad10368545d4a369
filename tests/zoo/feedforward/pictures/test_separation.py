import numpy as np
import pytest
import torch

from everynet.zoo.feedforward.pictures.separation import mistake_bound, separating_line


@pytest.mark.covers("F1")
def test_the_line_is_where_the_score_is_zero(tmp_path):
    x, t = torch.tensor([[0.0, 0.0], [3.0, 1.0], [1.0, 2.0]]), torch.tensor([0, 1, 1])
    drawn = separating_line(x, t, torch.tensor([1.0, 2.0]), -1.5, classes=("no", "yes"))
    (line,) = drawn.axes[0].lines
    x1, x2 = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert x1 + 2 * x2 == pytest.approx(1.5)
    assert line.get_label() == r"$w \cdot x = -b$"
    drawn.savefig(tmp_path / "line.png")


def test_a_line_needs_a_normal():
    with pytest.raises(ValueError, match=r"weight \(all zeros\) must point somewhere"):
        separating_line(torch.zeros(1, 2), torch.zeros(1).long(), torch.zeros(2), 1.0)


@pytest.mark.covers("F2")
def test_the_curves_cross_at_the_bound(tmp_path):
    drawn = mistake_bound(torch.tensor([2.0, 3.0]), radius=4.0, margin=0.5)
    curves = {line.get_label(): line for line in drawn.axes[0].lines}
    k = curves[r"at most $\sqrt{k}\,R$"].get_xdata()
    above = (
        curves[r"at most $\sqrt{k}\,R$"].get_ydata() - curves[r"at least $k\,\gamma$"].get_ydata()
    )
    assert k[np.argmax(above[1:] < 0) + 1] == pytest.approx(64, rel=0.01)
    assert curves["measured: 2 mistakes"].get_ydata().tolist() == [2, 3]
    drawn.savefig(tmp_path / "bound.png")
