"""The experiment with every cell: equal budgets, tasks and judges, one table."""

from dataclasses import replace

import pytest
import torch

from everynet import runs
from everynet.recipes.catalog import find
from everynet.recipes.experiment import Cell, Table
from everynet.system.errors import UserError
from everynet.zoo.recurrent.cells import (
    NETWORKS,
    TASKS,
    CellComparison,
    MinGRUStack,
    Remember,
    Rememberer,
    count_weights,
    fit_hidden_size,
)


@pytest.mark.parametrize("task", TASKS)
def test_all_have_as_many_weights_to_a_tenth(task):
    budget = CellComparison().parameters
    for network in NETWORKS:
        recipe = Remember(network=network, task=task, length=3, batch_size=2)
        data = recipe.dataset()
        with torch.device("meta"):
            model = recipe.model(data)
        assert count_weights(model) == pytest.approx(budget, rel=0.05), network


def test_the_hidden_size_is_the_nearest():
    def make(size):
        return torch.nn.Linear(size, size, bias=False)

    assert [fit_hidden_size(make, n) for n in (1, 99, 100, 111, 9_900, 10_300)] == [
        1,
        10,
        10,
        11,
        99,
        101,
    ]


def test_every_cell_is_taught_in_the_same_way():
    cells = replace(find("cells-long"), seed=3).cells()
    assert len(cells) == 2 * 3 * len(NETWORKS)
    shared = {
        (c.steps, c.batch_size, c.lr, c.schedule, c.warmup, c.clip, c.seed, c.parameters)
        for c in cells.values()
    }
    assert len(shared) == 1
    for name, cell in cells.items():
        assert name == f"{cell.network}-{cell.task}-{cell.length}"
    same = [c.dataset() for c in cells.values() if (c.task, c.length) == ("copy", 100)]
    assert len({data.digest for data in same[:3]}) == 1
    assert torch.equal(same[0].train(5)[0], same[1].train(5)[0])


@pytest.mark.parametrize("network", NETWORKS)
@torch.no_grad()
def test_answers_come_from_the_last_states_and_cells_go_on(network):
    torch.manual_seed(0)
    net = Rememberer(NETWORKS[network](2, 6), 6, 3, 4).double()
    x = torch.randn(2, 9, 2, dtype=torch.float64)
    states, last = net.cell(x)
    torch.testing.assert_close(net(x), net.output(states[:, 5:]))
    first, state = net.cell(x[:, :5])
    second, state = net.cell(x[:, 5:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), states)
    torch.testing.assert_close(state, last)


def test_a_stack_is_its_blocks_one_after_another():
    torch.manual_seed(0)
    stack, x = MinGRUStack(2, 4), torch.randn(2, 5, 2)
    by_hand = stack.entry(x)
    for block in stack.blocks:
        by_hand, _ = block(by_hand)
    torch.testing.assert_close(stack(x)[0], stack.norm(by_hand))


class Says(Rememberer):
    """Answers the same, whatever is asked."""

    def __init__(self, answer):
        torch.nn.Module.__init__(self)
        self.answer, self.output = answer, torch.nn.Linear(1, 10)

    def forward(self, x):
        return self.answer.expand(len(x), -1, -1)


def test_who_remembers_nothing_has_the_error_of_the_dotted_line():
    recipe = Remember(task="adding", length=50)
    valid = recipe.dataset().splits["valid"]
    error = recipe.metrics(Says(torch.ones(1, 1)), valid)["error"]
    assert error.mean().item() == pytest.approx(TASKS["adding"], rel=0.15)  # 500 sums
    torch.testing.assert_close(error, (1 - valid[1]) ** 2)
    torch.testing.assert_close(
        recipe.objective(Says(torch.ones(1, 1)), valid)["loss"], error.mean()
    )
    recipe = Remember(task="copy", length=5)
    valid = recipe.dataset().splits["valid"]
    always = torch.nn.functional.one_hot(torch.full((10,), 4), 10).float() * 20
    error = recipe.metrics(Says(always), valid)["error"]
    assert error.mean().item() == pytest.approx(TASKS["copy"], rel=0.02)
    torch.testing.assert_close(error, (valid[1][:, -10:] != 4).float().mean(1))


def test_a_right_answer_has_no_error():
    recipe = Remember(task="copy", length=5)
    x, y = recipe.dataset().splits["valid"]
    right = torch.nn.functional.one_hot(y[0, -10:], 10).float() * 50
    terms = recipe.objective(Says(right), (x[:1], y[:1]))
    assert recipe.metrics(Says(right), (x[:1], y[:1]))["error"].item() == 0
    assert terms["loss"].item() < 1e-6


def table_of(recipe):
    """As if all had been trained: the error of a cell tells which one it is."""
    cells = {}
    for number, (name, cell) in enumerate(recipe.cells().items()):
        errors = torch.tensor([1.0, number / 100]).double()
        net = Rememberer(torch.nn.Flatten(), 3, 1, 1)
        if cell.network == "rnn":
            net = cell.model(cell.dataset())
        cells[name] = Cell(
            recipe=cell, step=2, steps=torch.tensor([0, 2]), measured={}, valid={"error": errors},
            terms={}, diverged=7 if number == 2 else None, test={}, network=lambda net=net: net,
        )  # fmt: skip
    return Table(cells, {})


def test_figures_and_the_page_are_those_of_the_cells():
    recipe = find("cells-long").tiny()
    table = table_of(recipe)
    found = recipe.metrics(table)
    for number, cell in enumerate(recipe.cells().values()):
        longer = f"_{cell.length}" if cell.length > 2 else ""
        assert found[f"{cell.network}_{cell.task}{longer}"] == pytest.approx(number / 100)
    page = recipe.page(table)
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in page if "|" in line]
    assert rows[0] == ["cell", "hidden size", "weights", "adding 2", "adding 3", "copy 2", "copy 3"]
    by_name = {row[0]: row for row in rows}
    assert by_name["rnn"][1:] == ["22", "595", "0.0600", "0.0000", "0.0900", "0.0300"]
    assert by_name["lstm"][4] == "diverged at 7"
    assert by_name["remembers nothing"][3:] == ["0.1667", "0.1667", "0.8750", "0.8750"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": ()}, r"lengths \(\(\)\) must be 2 or more, each"),
        ({"lengths": (1, 5)}, r"lengths \(\(1, 5\)\) must be 2 or more, each"),
        ({"lengths": (5, 5)}, r"lengths \(\(5, 5\)\) must be named once each"),
        ({"networks": ()}, r"networks \(\(\)\) must be one cell at least"),
        ({"networks": ("gru", "gru")}, r"networks .* must be named once each"),
        ({"networks": ("lstn",)}, r"networks \(\('lstn',\)\) must be cells of ours.*lstm"),
        ({"parameters": 499}, r"parameters \(499\) must be at least 500"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"looks": 0}, r"looks \(0\) must be at least 1"),
        ({"lr": 0.0}, r"lr \(0.0\) must be a positive number"),
        ({"clip": -1.0}, r"clip \(-1.0\) must be a number from 0 up"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("cells"), **fields)


@pytest.mark.slow
@pytest.mark.covers("R4", "R7", "R8", "R10", "R11")
def test_gates_remember_where_a_plain_network_forgets(tmp_path):
    result = runs.run(find("cells"), tmp_path, jobs=2)
    assert result.reached, result.metrics
