"""What blocks say of inputs that do not fit, as a student gives them."""

import numpy as np
import pytest
import torch

import everynet
from everynet import zoo

X = torch.rand


def image_net(name):
    made = {
        "SparseLeNet": lambda: zoo.SparseLeNet(1, 10),
        "CNN": lambda: zoo.CNN(1, 3, widths=(2, 4)),
        "GroupCNN": lambda: zoo.GroupCNN(1, 3, widths=(2, 4)),
        "CifarResNet": lambda: zoo.CifarResNet(1, 3, depth=8, width=4),
        "UNet": lambda: zoo.UNet(width=2, depth=1),
        "SmallVGG": lambda: zoo.SmallVGG(1, 3, depth=11, width=2),
        "SmallGoogLeNet": lambda: zoo.SmallGoogLeNet(1, 3, width=16),
        "AlexNet": lambda: zoo.AlexNet(1, 3, width=6, size=67),
    }
    return made[name]()


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (
            X(2, 1, 28, 28),
            r"LeNet .*\(batch, 1, 32, 32\), not \(2, 1, 28, 28\); .*\(2, 2, 2, 2",
        ),
        (X(2, 1, 64, 64), r"not \(2, 1, 64, 64\); resize .* size=\(32, 32\)\)$"),
        (X(2, 1, 32, 31), r"not \(2, 1, 32, 31\); resize them: "),
        (X(1, 32, 32), r"not \(1, 32, 32\); put an axis for the batch before it: x\[None\]$"),
        (X(5, 32, 32), r"not \(5, 32, 32\); put an axis for the channel into it: x\[:, None\]$"),
        (X(32, 32), r"not \(32, 32\); .*: x\[None, None\]$"),
        (X(2, 32, 32, 1), r"its channels come last: x\.permute\(0, 3, 1, 2\)$"),
        (X(2, 3, 32, 32), r"make the network with in_channels=3, or images with 1 of them$"),
        (X(32), r"not \(32,\)$"),
    ],
)
def test_lenet_says_what_it_wants(unchecked, x, match):
    with pytest.raises(ValueError, match=match):
        zoo.LeNet(1, 10)(x)


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (X(2, 1, 32, 32).byte(), r"in float32, .*, not uint8; use x\.to\(torch\.float32\) / 255$"),
        (
            X(2, 1, 32, 32).long(),
            r"in float32, as its weights are, not int64; use x\.to\(to",
        ),
        (X(2, 1, 32, 32).double(), r"not float64; use x\.to\(torch\.float32\)$"),
        (np.ones((2, 1, 32, 32)), r"as a tensor, not a ndarray; torch\.as_tensor"),
        ([[1.0]], r"as a tensor, not a list"),
    ],
)
def test_types_are_told_apart(unchecked, x, match):
    with pytest.raises(TypeError, match=r"LeNet must be given images of shape .*" + match):
        zoo.LeNet(1, 10)(x)


@pytest.mark.parametrize(
    "name",
    ["SparseLeNet", "AlexNet", "CNN", "GroupCNN", "CifarResNet", "UNet", "SmallVGG",
     "SmallGoogLeNet"],
)  # fmt: skip
def test_every_image_network_looks_at_its_input(unchecked, name):
    net = image_net(name)
    with pytest.raises(ValueError, match=rf"{name} must be .* \(batch, 1, .*x\.permute"):
        net(X(2, 67, 67, 1))
    with pytest.raises(TypeError, match=rf"{name} must be given images .* not uint8"):
        net(X(2, 1, 67, 67).byte())


def test_images_that_pooling_would_swallow(unchecked):
    with pytest.raises(ValueError, match=r"SmallVGG .*\(2, 1, 28, 28\); of at least 32 x 32, be"):
        image_net("SmallVGG")(X(2, 1, 28, 28))


CELLS = ["GRU", "SimplifiedGRU", "LSTM", "HandLSTM", "PeepholeLSTM", "MemoryGateLSTM", "MinGRU",
         "StateForm", "PreActivationForm", "ConcatenatedForm"]  # fmt: skip


@pytest.mark.parametrize("name", CELLS)
def test_cells_say_what_they_want(unchecked, name):
    cell = getattr(zoo, name)(4, 3)
    with pytest.raises(ValueError, match=r"\(batch, time, 4\), not \(2, 5, 3\); .*input_size=3, "):
        cell(X(2, 5, 3))
    with pytest.raises(ValueError, match=r"not \(5, 4\); put an axis for the batch .*: x\[None\]$"):
        cell(X(5, 4))
    with pytest.raises(ValueError, match=r"with at least 1 time, not \(2, 0, 4\), because"):
        cell(X(2, 0, 4))
    with pytest.raises(TypeError, match=r"in float32, .*not int64"):
        cell(X(2, 5, 4).long())
    with pytest.raises(TypeError, match=r"not float64; use x\.to\(torch\.float32\)"):
        cell(X(2, 5, 4).double())


def test_one_number_a_time_needs_an_axis(unchecked):
    with pytest.raises(ValueError, match=r"not \(2, 5\); .*: x\[\.\.\., None\]$"):
        zoo.GRU(1, 3)(X(2, 5))


@pytest.mark.parametrize(
    "net",
    [zoo.MLP([4, 8, 3]), zoo.SpikingNetwork([4, 5, 3]), zoo.RateNetwork(4, 5, 3, zoo.LIF())],
    ids=lambda net: type(net).__name__,
)
def test_networks_of_flat_samples_say_what_they_want(unchecked, net):
    assert net(X(2, 1, 2, 2)).shape == (2, 3)  # any shape of four numbers
    assert net(X(0, 4)).shape == (0, 3)
    with pytest.raises(ValueError, match=r"\(batch, 4\), not \(2, 5\), which has 5 numbers a"):
        net(X(2, 5))
    with pytest.raises(ValueError, match=r"not \(4,\); put an axis for the batch before it"):
        net(X(4))
    with pytest.raises(TypeError, match=r"not uint8; use x\.to\(torch\.float32\) / 255"):
        net(X(2, 4).byte())


def test_one_size_is_not_enough(unchecked):
    with pytest.raises(ValueError, match=r"sizes \(\[64\]\) must have inputs, hidden units and"):
        zoo.SpikingNetwork(64)


def test_half_precision_is_for_autocast_to_judge():
    with torch.autocast("cpu", torch.bfloat16):
        assert zoo.LeNet(1, 10)(X(1, 1, 32, 32).bfloat16()).shape == (1, 10)
        assert zoo.GRU(4, 3)(X(1, 5, 4).bfloat16())[0].shape == (1, 5, 3)


# ------------------------------------------------------------------------ LIFNetwork(dense array)

TIMES = {"tau_s": 0.005, "tau_m": 0.02, "tau_ref": 0.002}


def test_weights_may_be_any_dense_numbers(unchecked):
    array = np.zeros((3, 3))
    array[0, 1] = 0.02
    wanted = zoo.LIFNetwork(torch.tensor(array), **TIMES).simulate(0.2, 1e-3, 1.5)
    for weights in (array, array.tolist(), np.asfortranarray(array), array[::-1][::-1]):
        found = everynet.zoo.LIFNetwork(weights, **TIMES).simulate(0.2, 1e-3, 1.5)
        torch.testing.assert_close(found.times, wanted.times)
        assert torch.equal(found.neurons, wanted.neurons)
    assert zoo.LIFNetwork(array.astype("f4"), **TIMES).wiring.values.dtype == torch.float32
    assert zoo.LIFNetwork(np.eye(3, dtype=int), **TIMES).wiring.values.dtype == torch.float64
    array[0, 1] = 9.0  # what the caller does to it later is not the network's
    delayed = zoo.LIFNetwork(array, **TIMES, delay=np.full((3, 3), 0.001))
    assert delayed.delay.tolist() == [0.001]


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (np.ones((3, 4)), r"weights \(3 x 4 s\) must be square"),
        (np.array([["a"]]), r"weights \(<U1 type\) must be numbers"),
        ("csr", r"weights \(str type\) must be a square array, or compressed rows as scipy's csr"),
        (np.full((2, 2), np.nan), r"weights \(not finite s\) must be finite numbers only"),
    ],
)
def test_weights_that_are_none(unchecked, weights, match):
    with pytest.raises(ValueError, match=match):
        zoo.LIFNetwork(weights, **TIMES)


def test_docstrings_give_units():
    for words in ("in seconds", "tau_m", "threshold is 1"):
        assert words in zoo.LIFNetwork.__doc__
    assert "32 x 32" in zoo.LeNet.__doc__
    assert "in seconds" in zoo.LIF.__doc__
    assert "mS/cm2" in zoo.HodgkinHuxley.__doc__
    assert "mS/cm2" in zoo.DimensionalLIF.__doc__
