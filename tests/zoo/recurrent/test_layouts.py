"""The five layouts: shapes, each against torch's layer written out, who sees what, its task."""

import math
from dataclasses import replace

import pytest
import torch
from matplotlib.patches import Circle, Rectangle

from everynet import runs
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.training.loop import begin
from everynet.zoo.recurrent.layouts import (
    TASKS,
    Cell,
    EncoderDecoder,
    LayoutTask,
    ManyToMany,
    ManyToOne,
    OneToMany,
    OneToOne,
)
from everynet.zoo.recurrent.pictures.unrolled import Layout, unrolled

LAYOUTS = (  # class, tokens read, tokens said
    (OneToOne, 1, 1),
    (OneToMany, 1, 5),
    (ManyToOne, 6, 1),
    (ManyToMany, 6, 6),
    (EncoderDecoder, 6, 4),
)


def made(layout):
    torch.manual_seed(0)
    return layout(3, 7, 2).double()


def numbers(read):
    return torch.randn(4, read, 3, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.covers("R6")
@pytest.mark.parametrize(("layout", "read", "said"), LAYOUTS)
def test_one_signature_for_all_shapes(layout, read, said):
    found = made(layout)(numbers(read), said)
    assert found.shape == (4, said, 2)
    for other in (1, 2, 9):  # any length where there are many
        read_ = 1 if read == 1 else other
        said_ = 1 if said == 1 else other
        assert made(layout)(numbers(read_), said_).shape == (4, said_, 2)


def torchs(cell):
    """torch's layer with the weights of a cell."""
    layer = torch.nn.RNN(cell.input.in_features, 7, batch_first=True).double()
    layer.load_state_dict(
        {
            "weight_ih_l0": cell.input.weight,
            "weight_hh_l0": cell.recurrent.weight,
            "bias_ih_l0": cell.input.bias,
            "bias_hh_l0": torch.zeros(7),
        }
    )
    return layer


def by_torch(net, x, said):
    """What a layout says, by torch's layers and token by token where it feeds back."""
    states, h = torchs(net.cell)(x)
    if isinstance(net, OneToOne | ManyToOne):
        return net.output(h[0])[:, None]
    if isinstance(net, ManyToMany):
        return net.output(states)
    if isinstance(net, OneToMany):
        again, found = torchs(net.again), [net.output(h[0])]
    else:
        again, found = torchs(net.decoder), [torch.zeros(len(x), 2).double()]
        said += 1
    while len(found) < said:
        _, h = again(found[-1][:, None], h)
        found.append(net.output(h[0]))
    return torch.stack(found if isinstance(net, OneToMany) else found[1:], 1)


@pytest.mark.covers("R6")
@pytest.mark.parametrize(("layout", "read", "said"), LAYOUTS)
def test_it_is_made_of_torchs_layer(layout, read, said):
    net, x = made(layout), numbers(read)
    torch.testing.assert_close(net(x, said), by_torch(net, x, said), rtol=1e-12, atol=1e-12)


def test_a_cell_is_its_equation():
    torch.manual_seed(0)
    cell, x, h = Cell(3, 7).double(), numbers(1)[:, 0], torch.randn(4, 7).double()
    u, b, w = cell.input.weight, cell.input.bias, cell.recurrent.weight
    expected = torch.tanh(x @ u.T + h @ w.T + b)
    torch.testing.assert_close(cell(x, h), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(cell(x, None), cell(x, torch.zeros_like(h)))


def sees(net, read, said):
    """Which tokens said depend on which tokens read."""
    x = numbers(read)
    slopes = torch.autograd.functional.jacobian(lambda x: net(x, said).sum((0, 2)), x)
    return (slopes.abs().sum((1, 3)) > 0).tolist()


def test_who_sees_what():
    assert sees(made(ManyToMany), 3, 3) == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert sees(made(ManyToOne), 3, 1) == [[True] * 3]
    assert sees(made(EncoderDecoder), 3, 2) == [[True] * 3] * 2
    assert sees(made(OneToMany), 1, 3) == [[True]] * 3


@pytest.mark.parametrize("layout", [OneToMany, EncoderDecoder])
def test_longer_says_the_same_and_goes_on(layout):
    net, x = made(layout), numbers(1)
    torch.testing.assert_close(net(x, 7)[:, :3], net(x, 3))


@pytest.mark.parametrize(
    ("layout", "read", "said", "message"),
    [
        (OneToOne, 1, 2, r"outputs \(2\) must be 1, because OneToOne has one there"),
        (OneToMany, 1, 0, r"outputs \(0\) must be at least 1, because OneToMany has many there"),
        (ManyToOne, 0, 1, r"inputs \(0\) must be at least 1, because ManyToOne has many there"),
        (ManyToOne, 3, 2, r"outputs \(2\) must be 1, because ManyToOne has one there"),
        (ManyToMany, 0, 0, r"inputs \(0\) must be at least 1, because ManyToMany"),
        (ManyToMany, 3, 2, r"outputs \(2\) must be 3, because ManyToMany gives one for each"),
        (EncoderDecoder, 0, 2, r"inputs \(0\) must be at least 1, because EncoderDecoder"),
        (EncoderDecoder, 3, 0, r"outputs \(0\) must be at least 1, because EncoderDecoder"),
    ],
)
def test_numbers_of_tokens_it_refuses(layout, read, said, message):
    with pytest.raises(ValueError, match=message):
        made(layout)(numbers(read), said)


# ----------------------------------------------------------------------------------------- recipe


def test_tasks_ask_what_they_say():
    x = torch.tensor([[0.1, -0.2, 0.3, 0.9, 0.5, 0.6]])
    asked = {name: task.answer(x[:, : task.inputs]) for name, task in TASKS.items()}
    assert asked["one-to-one"].item() == pytest.approx(math.sin(math.pi * 0.1))
    waves = [math.sin(0.42 * t) for t in range(1, 17)]
    assert asked["one-to-many"][0].tolist() == pytest.approx(waves, abs=1e-5)
    assert asked["many-to-one"].tolist() == [[pytest.approx(0.9)]]
    assert asked["many-to-many"][0].tolist() == pytest.approx([0, 0, 0.1, -0.2, 0.3, 0.9])
    assert asked["encoder-decoder"][0].tolist() == pytest.approx([0.3, -0.2, 0.1])


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_shapes_of_its_layout_and_all_weights_but_idle_ones_learn(task):
    recipe = LayoutTask(task=task, hidden_size=6, batch_size=5)
    data = recipe.dataset()
    x, y = data.train(0)
    assert (x.shape, y.shape) == ((5, TASKS[task].inputs, 1), (5, TASKS[task].outputs, 1))
    state = begin(recipe, data)
    recipe.objective(state.model, (x, y))["mse"].backward()
    idle = {name for name, p in state.model.named_parameters() if p.grad is None}
    assert idle == ({"cell.recurrent.weight"} if TASKS[task].inputs == 1 else set())


def test_what_is_missed_is_a_share_of_the_variance():
    recipe = LayoutTask(task="many-to-many", hidden_size=6)
    x, y = next(recipe.dataset().valid)

    class Constant(torch.nn.Module):
        def __init__(self, says):
            super().__init__()
            self.says = says

        def forward(self, x, said):
            return self.says.expand(len(x), said, 1)

    def missed(model):
        found = recipe.summarise(recipe.metrics(model, (x, y)))
        assert found["mse"] == pytest.approx(recipe.objective(model, (x, y))["mse"].item())
        return found["unexplained"]

    assert missed(Constant(y.mean(0))) == pytest.approx(1)
    assert missed(Constant(y)) == 0


def test_the_diagram_has_a_state_for_each_token_shown():
    names = {name: Layout(t.inputs, t.outputs, (1, 32, 1), name) for name, t in TASKS.items()}
    drawn = unrolled(names)
    counts = []
    for axes in drawn.axes[:5]:
        states = sum(isinstance(patch, Circle) for patch in axes.patches)
        boxes = sum(isinstance(patch, Rectangle) for patch in axes.patches)
        counts.append((states, boxes))
    assert counts == [(1, 2), (3, 4), (3, 4), (3, 6), (6, 6)]
    said = drawn.axes[4].get_xlabel()
    assert said == "inputs (batch, 6, 1), states (batch, 32), outputs (batch, 3, 1)"
    assert [text.get_text() for text in drawn.axes[2].texts if "y" in text.get_text()] == ["$y$"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("layouts"), **fields)


def test_settings_of_a_cell_it_refuses():
    with pytest.raises(UserError, match=r"unknown task 'none'"):
        LayoutTask(task="none")
    with pytest.raises(UserError, match=r"hidden_size \(0\) must be at least 1"):
        LayoutTask(hidden_size=0)


@pytest.mark.slow
@pytest.mark.covers("R6")
def test_each_layout_learns_its_task(tmp_path):
    result = runs.run(find("layouts"), tmp_path)
    assert result.reached, result.metrics
