"""The neural Turing machine: its equations by hand, weights that sum to 1, tasks, errors."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import everynet
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.transformer.bit_sequences import ITEM, draw_copy, draw_recall
from everynet.zoo.transformer.neural_turing import (
    CONTROLLERS,
    EMPTY,
    FeedForwardController,
    LSTMController,
    NeuralTuringMachine,
    address,
    circular_shift,
    sharpen,
    trace,
    write,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}
ROWS, WIDTH, HIDDEN, INPUT, OUTPUT = 5, 3, 4, 3, 2


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def machine(controller="lstm", reads=2, writes=2, seed=0):
    torch.manual_seed(seed)
    net = NeuralTuringMachine(
        INPUT, OUTPUT, CONTROLLERS[controller], HIDDEN,
        rows=ROWS, width=WIDTH, read_heads=reads, write_heads=writes,
    ).double()  # fmt: skip
    with torch.no_grad():
        for parameter in net.emit.parameters():
            parameter.mul_(4)  # so that no gate stands in the middle
    return net


# ------------------------------------------------------------------------------- by hand, in loops


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def softmax(values):
    powers = [math.exp(v - max(values)) for v in values]
    return [p / sum(powers) for p in powers]


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def linear(layer, z):
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [
        sum(w * v for w, v in zip(row, z, strict=True)) + b
        for row, b in zip(weight, bias, strict=True)
    ]


def lstm_by_hand(layer, z, h, c):
    gates = linear(layer, z + h)
    n = len(h)
    i, f, g, o = (gates[k * n : (k + 1) * n] for k in range(4))
    c = [sigmoid(f[u]) * c[u] + sigmoid(i[u]) * math.tanh(g[u]) for u in range(n)]
    return [sigmoid(o[u]) * math.tanh(c[u]) for u in range(n)], c


def head_by_hand(z, memory, before):
    """The weights of one head, from its WIDTH + 6 sums."""
    k = [math.tanh(v) for v in z[:WIDTH]]
    beta, g = math.log(1 + math.exp(z[WIDTH])), sigmoid(z[WIDTH + 1])
    gamma, s = 1 + math.log(1 + math.exp(z[WIDTH + 2])), softmax(z[WIDTH + 3 : WIDTH + 6])
    c = softmax([beta * cosine(k, row) for row in memory])
    v = [g * c[i] + (1 - g) * before[i] for i in range(len(memory))]
    n = len(memory)
    u = [sum(s[d + 1] * v[(i - d) % n] for d in (-1, 0, 1)) for i in range(n)]
    powers = [x**gamma for x in u]
    return [p / sum(powers) for p in powers]


def machine_by_hand(net, x):
    """Logits of one sequence, the memory and the weights at its end: lists, no tensors."""
    memory = [[EMPTY] * WIDTH for _ in range(ROWS)]
    heads = net.read_heads + net.write_heads
    w = [[1.0] + [0.0] * (ROWS - 1) for _ in range(heads)]
    r, h, c = [EMPTY] * WIDTH * net.read_heads, [0.0] * HIDDEN, [0.0] * HIDDEN
    outputs = []
    for x_t in x.tolist():
        if isinstance(net.controller, LSTMController):
            h, c = lstm_by_hand(net.controller.linear, x_t + r, h, c)
        else:
            h = [math.tanh(v) for v in linear(net.controller.linear, x_t + r)]
        z = linear(net.emit, h)
        size = WIDTH + 6
        w = [head_by_hand(z[n * size : (n + 1) * size], memory, w[n]) for n in range(heads)]
        written = [z[heads * size + n * 2 * WIDTH :][: 2 * WIDTH] for n in range(net.write_heads)]
        for i in range(ROWS):
            for j in range(WIDTH):
                for n, ea in enumerate(written):
                    memory[i][j] *= 1 - w[net.read_heads + n][i] * sigmoid(ea[j])
                for n, ea in enumerate(written):
                    memory[i][j] += w[net.read_heads + n][i] * math.tanh(ea[WIDTH + j])
        r = [
            sum(w[n][i] * memory[i][j] for i in range(ROWS))
            for n in range(net.read_heads)
            for j in range(WIDTH)
        ]
        outputs.append(linear(net.output, h + r))
    return [torch.tensor(part, dtype=torch.float64) for part in (outputs, memory, w)]


@pytest.mark.covers("T13")
@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("heads", [(1, 1), (2, 2)])
def test_the_machine_is_the_equations_by_hand(controller, heads):
    net, x = machine(controller, *heads), drawn(2, 4, INPUT)
    y, state = net(x)
    for n, one in enumerate(x):
        outputs, memory, weights = machine_by_hand(net, one)
        torch.testing.assert_close(y[n], outputs, **EXACT)
        torch.testing.assert_close(state.memory[n], memory, **EXACT)
        torch.testing.assert_close(state.weights[n], weights, **EXACT)


# -------------------------------------------------------------------------- the stages one by one


@pytest.mark.covers("T13")
def test_content_addressing_is_a_softmax_of_the_strength_times_the_cosine():
    torch.manual_seed(1)
    k, memory, beta = drawn(2, 3, WIDTH), drawn(2, ROWS, WIDTH), drawn(2, 3, 1).exp()
    shares, one = (
        torch.tensor([0.0, 1.0, 0.0]).double().expand(2, 3, 3),
        torch.ones(2, 3, 1).double(),
    )
    at = address(k, beta, one, shares, one, memory, drawn(2, 3, ROWS))
    for b in range(2):
        for head in range(3):
            scores = [
                beta[b, head].item() * cosine(k[b, head].tolist(), row)
                for row in memory[b].tolist()
            ]
            torch.testing.assert_close(at.content[b, head].tolist(), softmax(scores), **EXACT)
    for stage in at[1:]:  # an open gate, no shift and a power of 1 leave it as it is
        torch.testing.assert_close(stage, at.content, **EXACT)


def test_a_shut_gate_keeps_the_weights_whatever_the_key():
    memory, before = drawn(2, ROWS, WIDTH), drawn(2, 1, ROWS).softmax(-1)
    zero, one = torch.zeros(2, 1, 1).double(), torch.ones(2, 1, 1).double()
    shares = torch.tensor([0.0, 1.0, 0.0]).double().expand(2, 1, 3)
    at = address(drawn(2, 1, WIDTH), one, zero, shares, one, memory, before)
    torch.testing.assert_close(at.weights, before, **EXACT)


@pytest.mark.covers("T13")
def test_the_shift_is_a_circular_convolution():
    """By a loop, and by the theorem: a product of the discrete Fourier transforms."""
    torch.manual_seed(2)
    v, s = drawn(2, 3, 7).softmax(-1), drawn(2, 3, 3).softmax(-1)
    u = circular_shift(v, s)
    for i in range(7):
        by_loop = sum(s[..., d + 1] * v[..., (i - d) % 7] for d in (-1, 0, 1))
        torch.testing.assert_close(u[..., i], by_loop, **EXACT)
    kernel = torch.zeros(2, 3, 7).double()
    kernel[..., [6, 0, 1]] = s
    product = torch.fft.fft(v) * torch.fft.fft(kernel)
    torch.testing.assert_close(u, torch.fft.ifft(product).real, **EXACT)


def test_a_whole_shift_moves_a_head_on_by_one_row_and_around_the_end():
    at = torch.eye(4).double()[:, None]
    ahead = torch.tensor([0.0, 0.0, 1.0]).double().expand(4, 1, 3)
    torch.testing.assert_close(
        circular_shift(at, ahead)[:, 0].argmax(1), torch.tensor([1, 2, 3, 0])
    )


def test_sharpening_takes_powers_and_survives_a_large_one():
    u = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64).expand(1, 1, 3)
    squares = torch.tensor([0.01, 0.36, 0.09], dtype=torch.float64) / 0.46
    torch.testing.assert_close(
        sharpen(u, torch.full((1, 1, 1), 2.0).double())[0, 0], squares, **EXACT
    )
    flat = sharpen(torch.full((1, 1, 128), 1 / 128), torch.full((1, 1, 1), 50.0))  # 128^-50 is 0
    torch.testing.assert_close(flat, torch.full((1, 1, 128), 1 / 128))


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_weights_sum_to_one_at_every_stage_and_none_is_negative(seed):
    net = machine(seed=seed)
    with torch.no_grad():
        _, _, stages, memory = trace(net, 3 * drawn(1, 6, INPUT))
    for weights in stages:
        torch.testing.assert_close(weights.sum(-1), torch.ones(6, 4).double(), **EXACT)
        assert (weights >= 0).all()
    assert memory.isfinite().all()


def test_what_is_written_is_erased_first_by_every_head_and_then_added():
    """Two heads at one row: whatever was there is gone, and both additions stay."""
    memory, a = drawn(1, ROWS, WIDTH), drawn(1, 2, WIDTH)
    w, e = torch.zeros(1, 2, ROWS).double(), torch.ones(1, 2, WIDTH).double()
    w[..., 2] = 1.0
    after = write(memory, w, e, a)
    torch.testing.assert_close(after[0, 2], a[0, 0] + a[0, 1], **EXACT)
    rest = [0, 1, 3, 4]
    assert torch.equal(after[:, rest], memory[:, rest])
    half = write(memory, 0.5 * w, e, torch.zeros_like(a))
    torch.testing.assert_close(half[0, 2], memory[0, 2] / 4, **EXACT)


# --------------------------------------------------------------------------- gradients, and state


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_gradients_of_one_step(controller):
    net = machine(controller)
    state = net.begin(2)
    _, state, _ = net.step(drawn(2, INPUT), state)  # weights of 0 have no difference to both sides
    given = [part.detach().requires_grad_() for part in state if part is not None]
    x = drawn(2, INPUT).requires_grad_()

    def step(x, *parts):
        h, after, _ = net.step(x, type(state)(*parts, *[None] * (4 - len(parts))))
        return h, after.memory, after.weights, after.read

    assert torch.autograd.gradcheck(step, (x, *given))


@pytest.mark.parametrize("controller", CONTROLLERS)
@settings(max_examples=5)
@given(cut=st.integers(1, 5))
def test_stopping_and_going_on_changes_nothing(controller, cut):
    net, x = machine(controller), drawn(2, 6, INPUT)
    with torch.no_grad():
        whole, last = net(x)
        first, state = net(x[:, :cut])
        second, state = net(x[:, cut:], state)
    assert torch.equal(torch.cat([first, second], 1), whole)
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(state, last, strict=True))


def test_company_changes_nothing_and_a_call_leaves_no_trace():
    net, x = machine(), drawn(3, 5, INPUT)
    alone = torch.cat([net(one[None])[0] for one in x])
    torch.testing.assert_close(net(x)[0], alone, **EXACT)
    torch.testing.assert_close(net(x)[0], alone, **EXACT)


def test_no_parameter_depends_on_the_rows():
    net, x = machine(), drawn(2, 5, INPUT)
    other = NeuralTuringMachine(
        INPUT, OUTPUT, LSTMController, HIDDEN, rows=9, width=WIDTH, read_heads=2, write_heads=2
    ).double()
    other.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x, net.begin(2, rows=9))[0], other(x)[0], **EXACT)


def test_an_address_is_stored_and_found_by_content():
    """Rows that were written are read back by their keys alone, as the strength grows."""
    memory = torch.eye(4).double()[None]
    key = memory[:, 2:3] + 0.1
    one = torch.ones(1, 1, 1).double()
    shares = torch.tensor([0.0, 1.0, 0.0]).double().expand(1, 1, 3)
    for beta, least in ((5.0, 0.9), (50.0, 1 - 1e-9)):
        at = address(key, beta * one, one, shares, one, memory, memory[:, :1])
        assert at.weights[0, 0, 2] > least


# ---------------------------------------------------------------------------------------- the tasks


def test_sequences_to_copy_have_one_shape_marks_and_their_answers_behind_it():
    lengths = torch.tensor([1, 3, 5])
    x, y, mask = draw_copy(lengths, 5, 4, torch.Generator().manual_seed(0))
    assert x.shape == (3, 12, 6)
    assert y.shape == (3, 12, 4)
    for n, length in enumerate(lengths.tolist()):
        assert x[n, :, 4].tolist() == [float(t == 0) for t in range(12)]
        assert x[n, :, 5].tolist() == [float(t == length + 1) for t in range(12)]
        due = mask[n].bool()
        assert due.tolist() == [length + 1 < t <= 2 * length + 1 for t in range(12)]
        assert torch.equal(y[n, due], x[n, 1 : length + 1, :4])
        assert not y[n, ~due].any()
        assert not x[n, length + 1 :, :4].any()
    many = draw_copy(torch.full((100,), 5), 5, 4, torch.Generator().manual_seed(1))[0]
    assert many[:, 1:6, :4].mean() == pytest.approx(0.5, abs=5 * 0.5 / 2000**0.5)


def test_sequences_to_recall_ask_for_an_item_and_answer_the_next():
    items = torch.tensor([2, 3, 4] * 20)
    x, y, mask = draw_recall(items, 4, 5, torch.Generator().manual_seed(0))
    assert x.shape == (60, 4 * (ITEM + 1) + 2 * ITEM + 2, 7)
    asked = set()
    for n, count in enumerate(items.tolist()):
        marks = x[n, :, 5].nonzero()[:, 0].tolist()
        assert marks == [i * (ITEM + 1) for i in range(count)]
        begin, end = x[n, :, 6].nonzero()[:, 0].tolist()
        assert (begin, end) == (count * (ITEM + 1), count * (ITEM + 1) + ITEM + 1)
        query = x[n, begin + 1 : end, :5]
        given = torch.stack([x[n, m + 1 : m + 1 + ITEM, :5] for m in marks])
        place = next(i for i in range(count) if torch.equal(given[i], query))
        asked.add((count, place))
        due = mask[n].bool()
        assert due.nonzero()[:, 0].tolist() == list(range(end + 1, end + 1 + ITEM))
        assert torch.equal(y[n, due], given[place + 1])
        assert not x[n, end + 1 :].any()
    assert asked == {(count, place) for count in (2, 3, 4) for place in range(count - 1)}


@pytest.mark.parametrize("name", ["neural-turing", "neural-turing-recall"])
def test_padding_changes_no_metric(name):
    """What follows the answers is never read, by the mask and because time goes one way."""
    recipe = find(name).tiny()
    data = recipe.dataset()
    torch.manual_seed(0)
    model, (x, y, mask) = recipe.model(data), data.train(0)
    longer = [torch.cat([part, torch.ones_like(part[:, :4])], 1) for part in (x, y)]
    masked = torch.cat([mask, torch.zeros(len(mask), 4)], 1)
    one, other = recipe.metrics(model, (x, y, mask)), recipe.metrics(model, (*longer, masked))
    for metric, values in one.items():
        torch.testing.assert_close(other[metric], values)


def test_metrics_count_bits_and_not_sequences():
    recipe = find("copy-lstm").tiny()
    y = torch.tensor([[[1.0, 0.0, 1.0]] * 2, [[1.0, 1.0, 1.0]] * 2])
    logits = torch.tensor([[[5.0, 5.0, 5.0]] * 2, [[-5.0, 5.0, 5.0]] * 2])
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    found = recipe.summarise(recipe.compare(logits, y, mask))
    assert found["wrong_bits"] == pytest.approx(3 / 9)
    nats = (3 * (5 + math.log1p(math.exp(-5))) + 6 * math.log1p(math.exp(-5))) / 9
    assert found["cross_entropy"] == pytest.approx(nats)


def test_the_loss_is_the_cross_entropy_of_a_bit():
    recipe = find("copy-lstm").tiny()
    data = recipe.dataset()
    model, batch = recipe.model(data), data.train(0)
    loss = recipe.objective(model, batch)["cross_entropy"].item()
    outputs = {name: values.detach() for name, values in recipe.metrics(model, batch).items()}
    assert loss == pytest.approx(recipe.summarise(outputs)["cross_entropy"])


def test_an_update_has_one_shape_and_the_lengths_differ():
    data = find("neural-turing").tiny().dataset()
    batches = [data.train(step) for step in range(3)]
    assert len({tuple(part.shape for part in batch) for batch in batches}) == 1
    assert len(set(batches[0][2].sum(1).tolist())) > 1


def test_the_lstm_has_as_many_parameters_as_the_machine():
    sizes = []
    for name in ("neural-turing", "copy-lstm"):
        recipe = find(name)
        model = recipe.model(everynet.Data.described({"shape": [22, 10]}))
        sizes.append(sum(p.numel() for p in model.parameters()))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)
    assert sizes[1] >= sizes[0]


# --------------------------------------------------------------------------------------- settings


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = replace(find("neural-turing").tiny(), steps=2)
    return everynet.run(recipe, tmp_path_factory.mktemp("turing"), device="cpu")


def test_evaluate_takes_lengths_and_rows(run):
    found = everynet.evaluate(run.folder, lengths="2,7", rows=20)
    assert {"wrong_bits_2", "wrong_bits_7", "wrong_bits_longer"} <= found.keys()
    assert everynet.evaluate(run.folder).keys() == run.metrics.keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lengths": "0"}, r"^lengths \(0\) must be from 1 to 1,000$"),
        ({"lengths": "5,2000"}, r"^lengths \(2000\) must be from 1 to 1,000$"),
        ({"lengths": "short"}, r"^lengths \(short\) must be whole numbers separated by commas$"),
        ({"rows": "-1"}, r"^rows \(-1\) must be 0, which is as trained, or more$"),
    ],
)
def test_settings_of_evaluate_that_are_refused(run, given, message):
    with pytest.raises(UserError, match=message):
        everynet.evaluate(run.folder, **given)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("neural-turing", {"rows": 0}, r"^rows \(0\) must be at least 1$"),
        ("neural-turing", {"width": 0}, r"^width \(0\) must be at least 1$"),
        ("neural-turing", {"read_heads": 0}, r"^read_heads \(0\) must be at least 1$"),
        ("neural-turing", {"write_heads": -1}, r"^write_heads \(-1\) must be at least 1$"),
        ("neural-turing", {"longest": 0}, r"^longest \(0\) must be at least 1$"),
        ("neural-turing-recall", {"longest": 1}, r"^longest \(1\) must be at least 2$"),
        ("neural-turing", {"controller": "gru"}, r"^unknown controller 'gru'"),
        ("copy-lstm", {"bits": 0}, r"^bits \(0\) must be at least 1$"),
    ],
)
def test_settings_that_are_refused(name, changed, message):
    with pytest.raises(UserError, match=message):
        replace(find(name), **changed)


def test_a_machine_without_memory_is_refused():
    with pytest.raises(ValueError, match=r"^rows \(0\) must be at least 1, or there is no memory$"):
        NeuralTuringMachine(3, 2, FeedForwardController, 4, rows=0, width=3)


@pytest.mark.parametrize(
    ("draw", "length", "least"),
    [(draw_copy, 6, 1), (draw_copy, 0, 1), (draw_recall, 6, 2), (draw_recall, 1, 2)],
)
def test_a_sequence_that_does_not_fit_the_padding_is_refused(draw, length, least):
    message = rf"^a sequence of length {length} must be at least {least} and at most 5 long"
    with pytest.raises(UserError, match=message):
        draw(torch.tensor([3, length]), 5, 4, torch.Generator())


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="NeuralTuringMachine must be given"):
        machine()(drawn(2, 5, INPUT + 1))


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"), [("neural-turing", 0), ("neural-turing-recall", 1), ("copy-lengths", 0)]
)
def test_reaches_its_goal(name, seed, tmp_path):
    """Seed 0 of recall does not converge, as docs/results.md says."""
    recipe = replace(find(name), seed=seed)
    metrics = everynet.run(recipe, tmp_path, device="cpu").metrics
    assert all(goal.reached(metrics) for goal in recipe.goals())
