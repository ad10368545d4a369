import math
from dataclasses import replace
from statistics import mean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn import metrics as sk
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from everynet.data.dataset import Data
from everynet.metrics import predict_class
from everynet.plot.surface import boundary, square
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.zoo.feedforward.mlp import (
    ACTIVATIONS,
    MLP,
    RECIPES,
    Regressor,
    Supervised,
    count_parameters,
    loss,
    probabilities,
)
from everynet.zoo.feedforward.perceptron import Perceptron
from tests.data.either import inputs

SQUARE = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = torch.tensor([0, 1, 1, 0])
SIZES = st.lists(st.integers(1, 6), min_size=2, max_size=5)


# ------------------------------------------------------------------------------------ the model


@pytest.mark.covers("F5")
@given(sizes=SIZES, activation=st.sampled_from(sorted(ACTIVATIONS)), batch=st.integers(1, 5))
@settings(max_examples=25)
def test_a_batch_is_as_good_as_its_samples_one_by_one(sizes, activation, batch):
    """Equations (1) and (2) as sums over single numbers, without one product of matrices."""
    net = MLP(sizes, activation).double()
    x = torch.randn(batch, sizes[0], dtype=torch.float64)
    for row, z in zip(x, net(x), strict=True):
        h = row.tolist()
        for number, layer in enumerate(net.layers):
            weights, biases = layer.weight.tolist(), layer.bias.tolist()
            h = [
                math.fsum(w * value for w, value in zip(line, h, strict=True)) + bias
                for line, bias in zip(weights, biases, strict=True)
            ]
            if number < len(net.layers) - 1:
                h = ACTIVATIONS[activation]()(torch.tensor(h, dtype=torch.float64)).tolist()
        torch.testing.assert_close(z.tolist(), h, atol=1e-12, rtol=1e-12)


def test_shapes_of_the_layers():
    net = MLP((12, 7, 5, 3))
    assert [tuple(layer.weight.shape) for layer in net.layers] == [(7, 12), (5, 7), (3, 5)]
    x = torch.randn(2, 3, 2, 2)  # an image is flattened
    assert [tuple(h.shape) for h in net.hidden(x)] == [(2, 12), (2, 7), (2, 5)]
    torch.testing.assert_close(net(x), net(x.flatten(1)))


def test_equal_to_scikit_learn():
    """The same weights in scikit-learn's network give the same probabilities."""
    x = torch.randn(40, 5, dtype=torch.float64)
    y = torch.arange(40) % 3
    theirs = MLPClassifier((6, 4), activation="tanh", max_iter=1000, tol=1e-2, random_state=0)
    theirs.fit(x.numpy(), y.numpy())
    ours = MLP((5, 6, 4, 3), "tanh").double()
    with torch.no_grad():
        pairs = zip(ours.layers, theirs.coefs_, theirs.intercepts_, strict=True)
        for layer, weight, bias in pairs:
            layer.weight.copy_(torch.tensor(weight).T)
            layer.bias.copy_(torch.tensor(bias))
        found = probabilities(ours(x))
    torch.testing.assert_close(found, torch.tensor(theirs.predict_proba(x.numpy())))


@pytest.mark.covers("F6")
@pytest.mark.parametrize(
    ("sizes", "parameters"),
    [
        ((196_608,) * 3, 77_309_804_544),
        ((65_536,) * 3, 8_590_065_664),
        ((196_608, 196_608, 196_608, 3), 77_309_804_544 + 589_827),
        ((784, 256, 128, 10), 235_146),
    ],
    ids=["colour", "grey", "colour with a three-way head", "mnist"],
)
def test_parameters_of_the_notes(sizes, parameters):
    with torch.device("meta"):
        net = MLP(sizes)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert count_parameters(sizes) == parameters


def test_the_recipe_builds_the_notes_network_without_reading_data():
    recipe = replace(RECIPES["mlp"], sizes=(196_608,) * 3)
    with torch.device("meta"):
        net = recipe.model(Data.described({}))
    assert sum(p.numel() for p in net.parameters()) == 77_309_804_544


@given(sizes=SIZES)
@settings(max_examples=20)
def test_parameters_are_counted(sizes):
    assert count_parameters(sizes) == sum(p.numel() for p in MLP(sizes).parameters())


# ------------------------------------------------------------------------- loss and probability


def test_losses_by_hand():
    z, t = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([1])
    assert loss(z, t).item() == pytest.approx(math.log(math.exp(2) + 2))
    assert loss(torch.tensor([[3.0]]), t).item() == pytest.approx(math.log1p(math.exp(-3)))
    assert loss(torch.tensor([[3.0]]), 1 - t).item() == pytest.approx(math.log1p(math.exp(3)))
    assert loss(torch.tensor([[3.0], [1.0]]), torch.tensor([1.0, 1.0])).item() == 2.0


def test_the_error_is_the_mean_over_samples():
    recipe, x, t = Supervised(), torch.randn(6, 4), torch.randint(3, (6,))
    net = MLP((4, 5, 3))
    terms, rows = recipe.objective(net, (x, t)), recipe.metrics(net, (x, t))
    assert set(terms) == {"loss"}
    assert rows["loss"].shape == rows["accuracy"].shape == (6,)
    torch.testing.assert_close(terms["loss"], rows["loss"].mean())
    torch.testing.assert_close(terms["loss"], cross_entropy(net(x), t))


def test_figures_of_numbers_are_in_their_own_units():
    recipe, x, t = Supervised(), torch.randn(9, 4), torch.randn(9)
    net = Regressor((4, 1), "relu", unit=50.0)
    with torch.no_grad():
        made = recipe.summarise(recipe.metrics(net, (x, t)))
        p = 50 * net(x)[:, 0]
    assert made == {
        "loss": pytest.approx((p / 50 - t).square().mean().item()),
        "r2": pytest.approx(sk.r2_score(50 * t, p), abs=1e-6),
        "rmse": pytest.approx(sk.root_mean_squared_error(50 * t, p)),
        "mae": pytest.approx(sk.mean_absolute_error(50 * t, p)),
    }


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_figures_of_classes(outputs):
    recipe, x, t = Supervised(), torch.randn(40, 4), torch.arange(40) % max(2, outputs)
    net = MLP((4, outputs))
    with torch.no_grad():
        made, z = recipe.summarise(recipe.metrics(net, (x, t))), net(x)
    said = predict_class(z)
    assert made["accuracy"] == pytest.approx(sk.accuracy_score(t, said))
    assert made["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(t, said))
    assert made["macro_f1"] == pytest.approx(sk.f1_score(t, said, average="macro"))
    assert made["majority"] == pytest.approx(1 / max(2, outputs), abs=0.02)
    if outputs < 3:
        assert made["auc"] == pytest.approx(sk.roc_auc_score(t, probabilities(z)[:, 1]))
    else:
        assert "auc" not in made


@given(a=st.floats(-20, 20), b=st.floats(-20, 20))
@settings(max_examples=25)
def test_one_output_says_the_same_of_two_classes_as_two(a, b):
    two = torch.tensor([[a, b]], dtype=torch.float64)
    one = two[:, 1:] - two[:, :1]
    torch.testing.assert_close(probabilities(one), probabilities(two))
    assert probabilities(two).sum().item() == pytest.approx(1)
    assert probabilities(one)[0, 1].item() == pytest.approx(1 / (1 + math.exp(a - b)))
    for t in (torch.tensor([0]), torch.tensor([1])):
        torch.testing.assert_close(loss(one, t), loss(two, t))


# -------------------------------------------------------------------------------------- learning


def train_xor(hidden, seeds=30, steps=1000):
    """How many of the seeds solve XOR: all their networks are trained at once, each by itself."""
    nets = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        nets.append(MLP((2, hidden, 1), "tanh"))
    weights, _ = stack_module_state(nets)
    optimizer = torch.optim.SGD(list(weights.values()), lr=0.5, momentum=0.9)
    scores = vmap(lambda given: functional_call(nets[0], given, (SQUARE,)))
    targets = XOR.float()[None, :, None].expand(seeds, 4, 1)
    for _ in range(steps):
        optimizer.zero_grad()
        # The mean over the samples of each network; the networks do not meet.
        (binary_cross_entropy_with_logits(scores(weights), targets) * seeds).backward()
        optimizer.step()
    right = (scores(weights)[..., 0] > 0).long() == XOR
    return int(right.all(1).sum())


@pytest.mark.covers("F3")
def test_two_hidden_units_solve_xor_from_half_of_tinit_he_weightss():
    assert train_xor(2) >= 15


@pytest.mark.covers("F3")
def test_eight_hidden_units_solve_xor_from_every_start():
    assert train_xor(8) == 30


@pytest.mark.covers("F3")
def test_without_a_hidden_layer_xor_stays_at_three_quarters():
    torch.manual_seed(0)
    net = MLP((2, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    best = 0.0
    for _ in range(500):
        optimizer.zero_grad()
        loss(net(SQUARE), XOR).backward()
        optimizer.step()
        best = max(best, ((net(SQUARE)[:, 0] > 0).long() == XOR).float().mean().item())
    assert best <= 0.75


def bend(scores, low=-1.0, high=1.0):
    """How far the longest boundary is from a straight line: its width across over its length."""
    line = max(boundary(scores, low, high), key=len)
    spread = torch.linalg.svdvals(line - line.mean(0))
    return (spread[1] / spread[0]).item()


@pytest.mark.covers("F4")
@pytest.mark.parametrize("points", [120, 200])
def test_a_perceptron_has_a_straight_boundary_and_an_mlp_a_bent_one(points):
    torch.manual_seed(0)
    places = square(points)
    assert places.shape == (points**2, 2)
    samples = torch.rand(40, 2, dtype=torch.float64) * 2 - 1
    unit = Perceptron().fit(samples, (samples @ torch.tensor([1.0, -2.0]).double() > 0.3).long())
    assert bend(unit.decision_function(places)) < 1e-9
    net = MLP((2, 400, 1), "tanh").double()  # a random network of the notes' size
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=2.0)
    scores = net(places)[:, 0]
    assert scores.shape == (points**2,)
    assert bend((scores - scores.median()).detach()) > 0.01


# ---------------------------------------------------------------------------------- the recipes


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_tiny_runs_and_draws(name, tmp_path):
    recipe = replace(RECIPES[name].tiny(), name=name)
    result = run(recipe, out=tmp_path)
    drawn = {path.stem for path in result.pictures}
    plane = {"surface", "units", "hidden"} if recipe.data in ("xor", "spirals") else set()
    image = {"first-layer", "misclassified"} if recipe.data == "digits" else set()
    assert drawn == {"learning-curve", "confusion", "network"} | plane | image
    assert all(path.read_bytes()[1:4] == b"PNG" for path in result.pictures)


@pytest.mark.parametrize(
    ("data", "hidden", "pictures"),
    [
        ("wine", (4,), {"confusion", "first-layer"}),
        ("blobs", (4,), {"confusion", "regions", "units"}),
        ("moons", (), {"confusion", "surface"}),
        ("diabetes", (4,), {"fit"}),
    ],
)
def test_other_data(data, hidden, pictures):
    recipe = replace(RECIPES["mlp"].tiny(), data=data, hidden=hidden)
    made = recipe.dataset().to(torch.device("cpu"), torch.float32)
    net = recipe.model(made)
    with torch.no_grad():
        assert set(recipe.draw(net, made, [])) == pictures
        x, _ = next(iter(made.valid))
        answers = recipe.predict(net, x, made.spec)
    assert len(answers) == len(x)
    if data == "diabetes":
        assert set(answers[0]) == {"value"}
        return
    assert {answer["class"] for answer in answers} <= set(made.spec["classes"])
    least = 1 / len(made.spec["classes"])
    assert all(least <= answer["probability"] <= 1 for answer in answers)


def test_photos_of_different_sizes(tmp_path):
    for name, side in (("cat", 9), ("dog", 12)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            colour = (number * 9, 100, 200 if name == "cat" else 50)
            Image.new("RGB", (side, side + number % 3), colour).save(
                tmp_path / "photos" / name / f"{number}.png"
            )
    photos = str(tmp_path / "photos")
    recipe = replace(RECIPES["mlp"].tiny(), data=photos, size=8, changed=("data", "size"))
    result = run(replace(recipe, name="mlp"), out=tmp_path)
    assert {path.stem for path in result.pictures} >= {"confusion", "first-layer"}
    net = load(recipe, result.folder)
    x = inputs([tmp_path / "photos" / "cat" / "0.png"], recipe.dataset().spec)
    assert net.layers[0].in_features == 3 * 8 * 8
    (answer,) = recipe.predict(net, x.float(), recipe.dataset().spec)
    assert answer["class"] in ("cat", "dog")
    assert 0.5 <= answer["probability"] <= 1


def test_a_table_of_ones_own(tmp_path):
    lines = [f"{i % 7},{i % 3},{2 * (i % 7) - (i % 3)}.5" for i in range(60)]
    (tmp_path / "mine.csv").write_text("a,b,price\n" + "\n".join(lines) + "\n")
    recipe = replace(RECIPES["mlp"].tiny(), data=str(tmp_path / "mine.csv"), target="price")
    result = run(replace(recipe, name="mlp", changed=("data", "target")), out=tmp_path)
    assert set(result.metrics) == {"loss", "r2", "rmse", "mae"}
    assert {path.stem for path in result.pictures} == {"fit", "network", "learning-curve"}


def test_numbers_are_standardised_and_given_back_in_their_units():
    recipe = replace(RECIPES["mlp"], data="diabetes")
    data = recipe.dataset()
    t = data.splits["train"][1]
    assert t.mean().item() == pytest.approx(0, abs=1e-9)
    assert t.std(correction=0).item() == pytest.approx(1)
    net = MLP((10, 1)).double()
    with torch.no_grad():
        net.layers[0].weight.zero_()
        net.layers[0].bias.fill_(2.0)
        answer = recipe.predict(net, torch.zeros(1, 10, dtype=torch.float64), data.spec)
    raw = torch.tensor(load_diabetes().target)
    spec = data.spec
    assert answer == [{"value": pytest.approx(2 * spec["target_std"] + spec["target_mean"])}]
    assert raw.min() < spec["target_mean"] < raw.max()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sizes": (64, 32, 4)}, r"sizes \(64,32,4\) must end in 10, what digits asks for"),
        ({"sizes": (64, 12)}, r"sizes \(64,12\) must end in 10, what digits asks for"),
        ({"sizes": (2, 3), "data": "xor"}, r"sizes \(2,3\) must end in 1, what xor asks for"),
        ({"sizes": (63, 10)}, r"sizes \(63,10\) must begin with 64, the values of a sample"),
    ],
)
def test_sizes_that_do_not_fit_the_data(fields, message):
    with pytest.raises(UserError, match=message):
        replace(RECIPES["mlp"], **fields).dataset()


@pytest.mark.parametrize("outputs", [1, 2])
def test_two_classes_may_have_one_output_or_two(outputs):
    recipe = replace(RECIPES["mlp-xor"].tiny(), sizes=(2, 3, outputs))
    data = recipe.dataset()
    net = recipe.model(data).double()
    with torch.no_grad():
        assert "surface" in recipe.draw(net, data, [])
        assert recipe.metrics(net, data.train(0))["loss"].shape == (8,)


def test_sizes_and_activations_that_make_no_network():
    with pytest.raises(UserError, match=r"sizes \(5\) must be two or more positive numbers"):
        MLP((5,))
    with pytest.raises(UserError, match=r"sizes \(5,0,2\) must be two or more positive numbers"):
        MLP((5, 0, 2))
    with pytest.raises(UserError, match=r"unknown activation 'rellu'; did you mean"):
        MLP((5, 2), "rellu")


def reached(name, tmp_path, seeds=(0,)):
    recipe = replace(RECIPES[name], name=name)
    results = [run(replace(recipe, seed=seed), out=tmp_path) for seed in seeds]
    return [result.metrics["accuracy"] for result in results], recipe.goals()[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "mlp-xor", "mlp-spirals"])
def test_reaches_its_goal(name, tmp_path):
    found, goal = reached(name, tmp_path)
    assert found[0] >= goal.value


@pytest.mark.slow
def test_regression_explains_part_of_the_variance(tmp_path):
    recipe = replace(RECIPES["mlp"], data="diabetes", hidden=(16,), steps=1000, changed=("data",))
    assert run(replace(recipe, name="mlp"), out=tmp_path).metrics["loss"] < 0.65


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.covers("F10")
def test_mnist_to_98_percent(tmp_path):
    found, goal = reached("mlp-mnist", tmp_path, seeds=(0, 1, 2))
    assert mean(found) >= goal.value == 0.98
