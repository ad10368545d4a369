from typing import NamedTuple

import torch
from torch import nn

from everynet.nn.layers import layers_called
from everynet.plot import layer_lines
from everynet.plot.layers import TIMES, folded, shortened
from everynet.plot.style import drawing
from tests.plot.legible import collisions, faults


class Row(NamedTuple):
    name: str
    kind: str = "Linear"
    shape: tuple[int, ...] = (8,)
    parameters: int = 72


def rows(*kinds):
    return [Row(f"{place}", kind, parameters=0 if kind == "ReLU" else 72)
            for place, kind in enumerate(kinds)]  # fmt: skip


def counted(groups):
    return [("".join(row.kind[0] for row in group.rows), group.count) for group in groups]


def test_a_stretch_that_repeats_is_drawn_once():
    found = folded(rows("Embedding", *("Norm", "Linear", "ReLU") * 4, "Norm", "Output"))
    assert counted(found) == [("E", 1), ("NLR", 4), ("N", 1), ("O", 1)]
    assert counted(folded(rows("A", "B", "B", "B"))) == [("A", 1), ("B", 3)]
    assert counted(folded(rows("A", "A", "B", "A", "A", "B"))) == [("AAB", 2)]
    wider = [Row("a"), Row("b", shape=(16,)), Row("c", parameters=73)]
    assert counted(folded(wider)) == [("L", 1)] * 3, "of the same kind, shape and size"
    assert folded([]) == []


def test_a_long_network_loses_what_does_not_learn_and_then_its_middle():
    kinds = [f"{chr(65 + place % 26)}{place}" for place in range(15)]
    plain = rows("input", *(word for kind in kinds for word in (kind, "ReLU")))
    assert counted(shortened(plain, 20)) == [("i", 1), *((kind[0], 1) for kind in kinds)]
    cut = shortened(plain, 9)
    assert [row.kind for group in cut for row in group.rows] == [
        "input", *kinds[:3], "", *kinds[-4:],
    ]  # fmt: skip
    (rest,) = cut[4].rows
    assert (rest.name, rest.parameters) == ("8 more layers", 8 * 72)


def test_each_line_says_kind_name_shape_and_parameters():
    blocks = rows(*("Linear", "ReLU") * 3)
    with drawing():
        drawn = layer_lines([Row("in", "input", (3, 4), 0), *blocks], title="Net")
        assert not faults(drawn) + collisions(drawn)
    said = [text.get_text() for text in drawn.axes[0].texts]
    assert drawn.axes[0].get_title() == "Net: 216 parameters"
    for word in ("Linear", "ReLU", f"3 {TIMES} 4", "72", f"3 {TIMES}"):
        assert word in said
    assert said.count("Linear") == 1
    links = [line for line in drawn.axes[0].lines if len(line.get_xdata()) == 2]
    assert len(links) == 2, "each line but the first hangs on the one before it"


class Odd(nn.Module):
    """Asks a layer by its numbers, calls one twice, and one never."""

    def __init__(self):
        super().__init__()
        self.last, self.first = nn.Linear(3, 1), nn.Linear(5, 3)
        self.by_numbers, self.act = nn.Linear(3, 3), nn.ReLU()

    def ask(self, x):
        h = self.act(self.first(x))
        return self.last(self.act(h @ self.by_numbers.weight.T))


def test_layers_stand_by_their_first_call_with_what_they_made():
    model = Odd()
    found = layers_called(model, lambda: model.ask(torch.zeros(2, 7, 5)))
    assert [(row.name, row.shape, row.parameters) for row in found] == [
        ("input", (7, 5), 0),
        ("first", (7, 3), 18),
        ("by_numbers", (), 12),
        ("act", (7, 3), 0),
        ("last", (7, 1), 4),
    ]
    assert sum(row.parameters for row in found) == sum(p.numel() for p in model.parameters())
    timed = layers_called(model, lambda: model.ask(torch.zeros(7, 2, 5)), samples=2)
    assert [row.shape for row in timed] == [row.shape for row in found], "time comes first"
    assert not any(module._forward_hooks for module in model.modules())


def test_a_network_that_is_not_called_has_its_layers_without_shapes():
    found = layers_called(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), lambda: None)
    assert [(row.kind, row.shape) for row in found] == [("input", ()), ("Linear", ())]
