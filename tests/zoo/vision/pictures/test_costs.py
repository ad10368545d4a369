import torch
from matplotlib.colors import to_hex

from everynet.plot.style import BASELINE, CYCLE, OURS
from everynet.zoo.vision.pictures.costs import layer_costs


def test_what_is_compared_stands_before_its_grey_baseline_and_kinds_have_colours():
    one, other = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 2.0])
    for kinds, inks in (
        ({"naive": one, "ours": one / 2}, (BASELINE, OURS)),
        ({"convolutions": one, "dense": other}, CYCLE[:2]),
    ):
        bars = layer_costs(["a", "b"], {"products": kinds}).axes[0].containers
        assert tuple(to_hex(bar[0].get_facecolor()) for bar in bars) == inks
