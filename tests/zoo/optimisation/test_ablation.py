import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d, one_hot

from everynet.recipes.experiment import Table
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.zoo.optimisation.ablation import (
    RECIPES,
    AblatedImages,
    Ablation,
    AblationCNN,
    effect,
    hinge,
    squared,
)
from tests.zoo.cells import cell


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        yield


# --------------------------------------------------------------------------------------- equations


def test_layers_by_hand():
    net, h = AblationCNN((2, 9, 8), 3, depth=2, width=4).double(), torch.randn(5, 2, 9, 8).double()
    x = h
    for conv in net.convs:
        h = max_pool2d(conv2d(h, conv.weight, conv.bias, padding=1).clamp(min=0), 2)
    assert h.shape == (5, 4, 2, 2)
    torch.testing.assert_close(net(x), h.flatten(1) @ net.head.weight.T + net.head.bias)


@pytest.mark.parametrize("pooling", ["max", "average", "stride"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
def test_each_pooling_and_activation_is_its_own(pooling, activation):
    x = torch.randn(4, 1, 8, 8)
    torch.default_generator.manual_seed(1)
    net = AblationCNN((1, 8, 8), 10, pooling=pooling, activation=activation)
    torch.default_generator.manual_seed(1)
    other = AblationCNN((1, 8, 8), 10)
    assert net(x).shape == (4, 10)
    same = (pooling, activation) == ("max", "relu")
    assert torch.equal(net(x), other(x)) is same


@pytest.mark.parametrize("side", [7, 8])
def test_strides_and_odd_sides_fit_the_head(side):
    x = torch.randn(2, 1, side, side)
    for pooling in ("max", "average", "stride"):
        assert AblationCNN((1, side, side), 3, depth=2, pooling=pooling)(x).shape == (2, 3)


def test_losses_by_hand():
    z, y = torch.tensor([[2.0, 1.5, -1.0], [0.0, 1.0, 3.0]]), torch.tensor([0, 1])
    assert squared(z, y) == pytest.approx(((1 + 2.25 + 1) + (0 + 0 + 9)) / 2)
    assert hinge(z, y) == pytest.approx(((0.5 + 0) / 3 + (0 + 3) / 3) / 2)
    assert hinge(z, y) == pytest.approx(nn.MultiMarginLoss()(z, y).item())
    assert squared(one_hot(y, 3).float(), y) == 0


def test_effect_by_hand():
    """Differences 0.1, 0.1 and -0.2: mean 0, variance 0.03."""
    base = torch.tensor([0.5, 0.6, 0.7], dtype=torch.float64)
    d, e = effect(base + torch.tensor([0.1, 0.1, -0.2], dtype=torch.float64), base)
    assert float(d) == pytest.approx(0, abs=1e-12)
    assert float(e) == pytest.approx(math.sqrt(0.03 / 3))
    d, e = effect(base - 0.25, base)  # paired: seeds differ, the effect does not
    assert (float(d), float(e)) == (pytest.approx(-0.25), pytest.approx(0, abs=1e-12))


# ------------------------------------------------------------------------------------ the recipe


def test_each_cell_changes_one_setting_and_seeds_are_shared():
    recipe = Ablation()
    cells = recipe.cells()
    assert len(cells) == 3 * 17
    fields = {"depth", "width", "kernel_size", "activation", "pooling", "rows", "loss", "optimizer"}
    changed = set()
    for name, one in cells.items():
        base = cells[f"base-{name[-1]}"]
        assert one.seed == base.seed
        differing = {field for field in fields if getattr(one, field) != getattr(base, field)}
        assert len(differing) == (0 if name.startswith("base") else 1), name
        assert (one.lr != base.lr) == (differing == {"optimizer"})
        changed |= differing
    assert changed == fields
    assert len({one.seed for one in cells.values()}) == 3


@pytest.mark.covers("D4")
def test_one_command_writes_the_table_with_its_seeds(tmp_path):
    recipe = RECIPES["ablation"].tiny()
    folder = run(recipe, tmp_path).folder
    card = (folder / "card.md").read_text()
    _, _, table = card.partition("## Accuracy by change\n\n")
    header, _, *lines = (line for line in table.splitlines() if line.startswith("|"))
    assert all(f"seed {seed} " in header for seed in recipe.seeds())
    found = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    assert list(found)[:9] == [
        "base", "depth=1", "width=8", "kernel_size=1", "activation=tanh", "pooling=stride",
        "rows=20", "loss=squared", "optimizer=sgd,lr=0.1",
    ]  # fmt: skip
    cells = load(recipe, folder).cells
    for name in recipe.trainings():
        for repeat in range(2):
            assert f" {cells[f'{name}-{repeat}'].test['accuracy']:.4f} " in found[name]


def test_metrics_by_hand():
    recipe = Ablation(
        repeats=2, depths=(1,), widths=(4,), kernel_sizes=(), activations=(), poolings=(),
        data_sizes=(), losses=(), optimizers=(), rates=(),
    )  # fmt: skip
    right = {"base": (0.9, 0.8), "depth=1": (0.7, 0.5), "width=4": (0.91, 0.81)}
    cells = {f"{n}-{i}": cell(test={"accuracy": v}) for n, vs in right.items()
             for i, v in enumerate(vs)}  # fmt: skip
    assert recipe.metrics(Table(cells, {})) == pytest.approx(
        {"accuracy": 0.85, "spread": math.sqrt(0.005), "largest_gain": 0.01, "largest_loss": -0.25,
         "told_apart": 2}
    )  # fmt: skip
    lost = {**cells, "depth=1-1": cell(diverged=3)}
    assert recipe.metrics(Table(lost, {}))["largest_loss"] == pytest.approx(0.01)
    (line,) = (line for line in recipe.page(Table(lost, {})) if line.startswith("| depth=1"))
    assert "| diverged |" in line
    figure, values = recipe.picture_ablation(Table(lost, {}))
    assert values["worst"] == "width=4"
    assert any("1 diverged" in text.get_text() for text in figure.axes[0].texts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depths": (2,)}, r"depths \(\(2,\)\) must be values that differ .* from depth=2"),
        ({"widths": (4, 4)}, "widths .* must be values that differ from each other"),
        ({"rates": (0.1,)}, "rates .* must be 2 positive numbers, one an optimiser"),
        ({"batch_size": 200}, r"batch_size \(200\) must be at most the smallest number of"),
        ({"optimizers": ("sgd", "adm")}, "optimizers .* must be of sgd, momentum"),
        ({"activation": "rely"}, "rely"),
        ({"losses": ("hing",)}, "hinge"),
        ({"kernel_sizes": (2,)}, r"kernel_size \(2\) must be odd"),
        ({"repeats": 0}, r"repeats \(0\) must be at least 1"),
    ],
)
def test_settings_are_refused_by_name(fields, message):
    with pytest.raises(UserError, match=message):
        Ablation(**fields)


def test_a_network_that_halves_too_often_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"depth \(4\) must be at most 3, because every layer"):
        AblationCNN((1, 8, 8), 10, depth=4)
    with pytest.raises(UserError, match="depth"):
        run(replace(RECIPES["ablation"].tiny(), depths=(4,)), tmp_path)
    assert AblatedImages(depth=4).depth == 4  # larger images have room


@pytest.mark.slow
@pytest.mark.covers("D4")
def test_a_filter_of_one_pixel_and_few_images_do_harm(tmp_path):
    result = run(RECIPES["ablation"], tmp_path, device="cpu")
    assert result.reached
