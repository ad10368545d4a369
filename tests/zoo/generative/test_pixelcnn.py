"""PixelCNN: what a pixel sees, exact probabilities, and pixels that are drawn."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn.functional import conv2d

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.nn.ema import EMA
from everynet.plot.film import Film
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.loop import trained
from everynet.zoo.generative import pixelcnn as pixelcnn_file
from everynet.zoo.generative.pixelcnn import (
    ORDER,
    RECIPES,
    BinaryPixels,
    GatedLayer,
    MaskedConv2d,
    PixelCNN,
    comes_later,
    complete,
    draw_by_loop,
    draw_pixel,
    draw_steps,
    gate,
    horizontal_mask,
    keep_before,
    single_stack_field,
    vertical_mask,
)

SMALL = replace(RECIPES["pixelcnn"].tiny(), name="pixelcnn")


def network(seed=0, channels=3, layers=2, kernel_size=5, first=7):
    """In float64, with weights large enough to be heard through all layers."""
    with seeded_by(seed):
        net = PixelCNN(channels, layers, kernel_size, first).double()
        for weight in net.parameters():
            torch.nn.init.normal_(weight, std=0.4)
        torch.nn.init.constant_(net.head[1].bias, 3.0)  # so that no unit is dead
        torch.nn.init.constant_(net.horizontal.bias, 2.0)
    return net


def images(*shape, seed=1):
    with seeded_by(seed):
        return torch.rand(*shape).double().round()


def run(steps):
    for x in steps:
        found = x
    return found


# ------------------------------------------------------------------------------------------ masks


@pytest.mark.parametrize("kind", ["A", "B"])
@pytest.mark.parametrize("make", [vertical_mask, horizontal_mask])
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (6, 1), (9, 7)])
def test_a_masked_convolution_is_that_of_a_whole_kernel_with_zeros(kind, make, size):
    mask = make(5, kind)
    conv = MaskedConv2d(2, 3, mask).double()
    whole = torch.zeros(3, 2, *mask.shape).double()
    whole[:, :, mask] = conv.weight.detach().flatten(2)
    x = torch.randn(2, 2, *size).double()
    wanted = conv2d(x, whole, conv.bias, padding=tuple(side // 2 for side in mask.shape))
    torch.testing.assert_close(conv(x), wanted)


def test_masks_keep_what_comes_before():
    assert horizontal_mask(5, "A").tolist() == [[True, True, False, False, False]]
    assert horizontal_mask(5, "B").tolist() == [[True, True, True, False, False]]
    assert vertical_mask(3, "A").tolist() == [[True] * 3, [False] * 3, [False] * 3]
    assert vertical_mask(3, "B").tolist() == [[True] * 3, [True] * 3, [False] * 3]
    with pytest.raises(ValueError, match=r"kernel_size \(4\) must be odd and at least 3, because"):
        keep_before(4, "A")


def test_a_layer_is_what_its_equations_say():
    with seeded_by(2):
        layer = GatedLayer(2, 3).double()
        v, h = torch.randn(2, 3, 2, 4, 5).double()
    wide, column = torch.zeros(4, 2, 3, 3).double(), torch.zeros(4, 2, 3, 3).double()
    wide[:, :, :2], column[:, :, 1, :2] = layer.vertical.weight, layer.horizontal.weight[:, :, 0]
    a = conv2d(v, wide, layer.vertical.bias, padding=1)
    b = conv2d(h, column, layer.horizontal.bias, padding=1)
    b = b + torch.einsum("oi,bihw->bohw", layer.link.weight[..., 0, 0], a)
    b = b + layer.link.bias[:, None, None]
    y = b[:, :2].tanh() * b[:, 2:].sigmoid()
    out = torch.einsum("oi,bihw->bohw", layer.out.weight[..., 0, 0], y)
    new_v, new_h = layer(v, h)
    torch.testing.assert_close(new_v, v + a[:, :2].tanh() * a[:, 2:].sigmoid())
    torch.testing.assert_close(new_h, h + out + layer.out.bias[:, None, None])


def test_the_gate_closes_and_opens():
    a = torch.tensor([0.5, -2.0, 40.0, -40.0]).double().view(1, 4, 1, 1)
    torch.testing.assert_close(gate(a).flatten(), torch.tensor([math.tanh(0.5), 0.0]).double())


# -------------------------------------------------------------------------------- what a pixel sees


@given(row=st.integers(0, 6), column=st.integers(0, 7), seed=st.integers(0, 3))
@settings(max_examples=15)
def test_no_pixel_sees_itself_or_a_later_one_and_all_before_are_seen(row, column, seed):
    """Every earlier pixel that is near enough: no blind spot, also above and far to the right."""
    net, x = network(seed), images(2, 1, 7, 8).requires_grad_()
    (slope,) = torch.autograd.grad(net(x)[:, 0, row, column].sum(), x)
    seen = (slope.abs().sum((0, 1)) > 0).flatten()
    at = 8 * row + column
    assert not seen[at:].any()
    assert seen[:at].all()  # 3 + 2 x 2 rows and columns reach over all of it


def test_one_stack_has_a_blind_spot_where_two_have_none():
    net, x = network(), images(1, 1, 9, 15).requires_grad_()
    (slope,) = torch.autograd.grad(net(x)[0, 0, 6, 5], x)
    two = slope[0, 0].abs() > 0
    one = single_stack_field(9, 15, 6, 5, [7, 5, 5])
    assert not (one & ~two).any()
    assert two[5, 12]  # a row above and seven columns to the right
    assert not one[5, 9]
    assert one[5, 8]  # by the first layer alone
    assert one.flatten()[6 * 15 + 5 :].sum() == 0


def test_a_single_stack_sees_what_its_masked_kernels_let_through():
    """Beside gradients of such a network, all of whose weights are above 0."""
    x = torch.rand(1, 1, 9, 11).double().requires_grad_()
    y = x
    for number, side in enumerate((5, 3, 3)):
        mask = vertical_mask(side, "A").clone()
        mask[side // 2] = horizontal_mask(side, "B" if number else "A")[0]
        y = conv2d(y, mask.double()[None, None], padding=side // 2)
    (slope,) = torch.autograd.grad(y[0, 0, 4, 2], x)
    assert torch.equal(single_stack_field(9, 11, 4, 2, [5, 3, 3]), slope[0, 0] > 0)


# ----------------------------------------------------------------------------- exact probabilities


@pytest.mark.covers("G16")
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2), (1, 4)])
def test_the_probabilities_of_all_images_sum_to_one(shape):
    pixels = math.prod(shape)
    every = torch.tensor([*itertools.product([0.0, 1.0], repeat=pixels)]).double()
    logs = network().log_likelihoods(every.view(-1, 1, *shape)).flatten(1).sum(1)
    assert logs.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    assert logs.std() > 0.1  # and they are not all alike


def test_the_likelihood_is_the_product_over_pixels():
    net, x = network(), images(2, 1, 3, 4)
    m = net(x).sigmoid()
    wanted = torch.where(x == 1, m, 1 - m).log()
    torch.testing.assert_close(net.log_likelihoods(x), wanted)


def test_images_of_a_single_pixel_have_a_constant_probability():
    net = network()
    assert net(torch.zeros(1, 1, 1, 1).double()) == net(torch.ones(1, 1, 1, 1).double())


# ----------------------------------------------------------------------------------------- drawing


@pytest.mark.covers("G16")
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    layers=st.integers(1, 3),
    first=st.sampled_from([3, 7]),
    keep=st.sampled_from([0.0, 0.3, 0.8]),
    seed=st.integers(0, 99),
)
@settings(max_examples=12)  # fmt: skip
def test_drawing_with_what_is_kept_of_earlier_rows_equals_drawing_without(
    shape, layers, first, keep, seed
):
    net = network(seed, layers=layers, first=first)
    with seeded_by(seed):
        u, x = torch.rand(3, *shape).double(), torch.rand(3, 1, *shape).double()
        hidden = torch.rand(shape) >= keep
    x = x.round()
    wanted = draw_by_loop(net, u, x, hidden)
    found = [step.clone() for step in draw_steps(net, u, x, hidden)]
    assert len(found) == math.prod(shape)
    assert torch.equal(found[-1], wanted)
    assert torch.equal(found[-1][:, :, ~hidden], x[:, :, ~hidden])


def test_logits_while_drawing_are_those_of_the_whole_network(monkeypatch):
    net, u, asked = network(), torch.rand(2, 4, 5).double(), []

    def remember(logits, u, temperature=1.0):
        asked.append(logits)
        return draw_pixel(logits, u, temperature)

    monkeypatch.setattr(pixelcnn_file, "draw_pixel", remember)
    hidden = torch.ones(4, 5, dtype=torch.bool)
    x = run(draw_steps(net, u, torch.zeros(2, 1, 4, 5).double(), hidden))
    torch.testing.assert_close(torch.stack(asked, 1), net(x).flatten(1))


def test_drawn_images_are_as_frequent_as_they_are_probable():
    net, n = network(), 10_000
    u = torch.rand(n, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    hidden = torch.ones(2, 2, dtype=torch.bool)
    x = run(draw_steps(net, u, torch.zeros(n, 1, 2, 2).double(), hidden))
    every = torch.tensor([*itertools.product([0.0, 1.0], repeat=4)]).double()
    p = net.log_likelihoods(every.view(-1, 1, 2, 2)).flatten(1).sum(1).exp().detach()
    number = (x.flatten(1) @ torch.tensor([8.0, 4.0, 2.0, 1.0]).double()).long()
    share = number.bincount(minlength=16) / n
    assert ((share - p).abs() < 4.5 * (p * (1 - p) / n).sqrt() + 1e-9).all()


def test_the_lower_half_is_drawn_from_its_exact_conditional_distribution():
    """By Bayes' rule from the probabilities of whole images."""
    net, n = network(3), 10_000
    top = torch.tensor([1.0, 0.0]).double()
    x = torch.zeros(n, 1, 2, 2).double()
    x[:, 0, 0] = top
    u = torch.rand(n, 2, 2, generator=torch.Generator().manual_seed(0)).double()
    kept = torch.tensor([[True, True], [False, False]])
    made = complete(net, u, x, kept)
    assert (made[:, 0, 0] == top).all()
    rest = torch.tensor([*itertools.product([0.0, 1.0], repeat=2)]).double()
    every = torch.cat([top.expand(4, 2), rest], 1).view(4, 1, 2, 2)
    p = net.log_likelihoods(every).flatten(1).sum(1).softmax(0).detach()
    share = (made[:, 0, 1] @ torch.tensor([2.0, 1.0]).double()).long().bincount(minlength=4) / n
    assert ((share - p).abs() < 4.5 * (p * (1 - p) / n).sqrt()).all()
    assert not comes_later(kept)
    assert comes_later(kept.T)
    assert comes_later(~kept)


def test_temperature_sharpens():
    logits, u = torch.tensor([-1.0, -1.0]), torch.tensor([0.2, 0.02])
    assert draw_pixel(logits, u).tolist() == [1.0, 1.0]  # sigmoid(-1) is 0.27
    assert draw_pixel(logits, u, 0.5).tolist() == [0.0, 1.0]  # 0.12
    assert draw_pixel(logits, u, 0.1).tolist() == [0.0, 0.0]  # 0.00005


# --------------------------------------------------------------------------------------- the recipe


@pytest.fixture(scope="module")
def learned():
    recipe = replace(SMALL, steps=20, batch_size=50)
    data = recipe.dataset()
    return recipe, trained(recipe, data), data


def test_training_draws_pixels_anew_and_averages_weights():
    data = SMALL.dataset()
    model = SMALL.model(data)
    x = data.splits["train"][0][:20]
    found = []
    for seed in (1, 1, 2):
        with seeded_by(seed):
            found.append(SMALL.objective(model, (x,))["negative_log_likelihood"].item())
    assert found[0] == found[1] != found[2]
    y = data.splits["test"][0][:20]
    nats = SMALL.metrics(model, (y,))["negative_log_likelihood"]
    torch.testing.assert_close(nats, -model.log_likelihoods(y).flatten(1).sum(1))
    assert isinstance(SMALL.extra(model), EMA)
    assert not isinstance(replace(SMALL, ema=0.0).extra(model), EMA)


def test_samples_and_their_film(learned):
    recipe, model, data = learned
    draw = lambda: torch.Generator().manual_seed(1)  # noqa: E731
    made = recipe.sample(model, data.spec, draw(), n=5)
    assert made.shape == (5, 1, 8, 8)
    assert made.unique().tolist() == [0, 1]
    assert torch.equal(recipe.sample(model, data.spec, draw(), n=5), made)
    cold = recipe.sample(model, data.spec, draw(), n=5, temperature=0.5)
    assert not torch.equal(cold, made)
    film = recipe.sample(model, data.spec, draw(), n=4, film=True)
    assert isinstance(film, Film)
    assert len(film.frames) == 65  # all grey, then one for each pixel
    last = film.frames[-1][2:34, 2:34, 0]  # the first image, each pixel four times as large
    expected = (made[0, 0].repeat_interleave(4, 0).repeat_interleave(4, 1) * 255).byte()
    again = recipe.sample(model, data.spec, draw(), n=4)
    expected = (again[0, 0].repeat_interleave(4, 0).repeat_interleave(4, 1) * 255).byte()
    assert (last == expected.numpy()).all()


def test_images_in_pieces_are_those_drawn_at_once(learned, monkeypatch):
    recipe, model, data = learned
    whole = recipe.sample(model, data.spec, torch.Generator().manual_seed(1), n=7)
    monkeypatch.setattr(pixelcnn_file, "AT_ONCE", 3)
    assert torch.equal(
        recipe.sample(model, data.spec, torch.Generator().manual_seed(1), n=7), whole
    )


def test_predictions_are_exact_and_what_is_hidden_is_completed(learned):
    recipe, model, data = learned
    x = data.splits["test"][0][:3]
    with torch.no_grad():
        found = recipe.predict(model, x, data.spec)
        grey = recipe.predict(model, x * 0.8 + 0.1, data.spec)
    nats = model.log_likelihoods(x).flatten(1).sum(1).tolist()
    assert [one["log_likelihood"] for one in found] == pytest.approx(nats)
    assert [one["log_likelihood"] for one in grey] == pytest.approx(nats)
    assert "binarized" not in found[0]
    assert grey[0]["binarized"] == "100.0% of pixels were grey; above 1/2 they are white"
    for keep, said in (("top", False), ("left", True), ("bottom", True), ("0.5", True)):
        answers = recipe.predict(model, x, data.spec, keep=keep)
        assert [answer.get("note") for answer in answers] == [ORDER if said else None] * 3
        images = torch.stack([answer["completed"] for answer in answers])
        assert images.unique().tolist() == [0, 1]
        if keep == "top":
            assert torch.equal(images[:, :, :4], x[:, :, :4])
        if keep == "left":
            assert torch.equal(images[..., :4], x[..., :4])


def test_final_takes_the_number_of_samples(learned):
    recipe, model, data = learned
    with torch.no_grad():
        found = recipe.final(model, data, torch.Generator(), samples=30)
    assert found.keys() == recipe.meanings.keys() - {"negative_log_likelihood"}


def test_refusals(learned):
    recipe, model, data = learned
    draw, spec, x = torch.Generator(), data.spec, data.splits["test"][0][:1]
    with pytest.raises(UserError, match=r"n \(0\) must be from 1 to 100,000"):
        recipe.sample(model, spec, draw, n=0)
    with pytest.raises(UserError, match=r"n \(501\) must be at most 500 of a film"):
        recipe.sample(model, spec, draw, n=501, film=True)
    with pytest.raises(UserError, match=r"temperature \(0.0\) must be above 0; try 1.0"):
        recipe.sample(model, spec, draw, temperature=0.0)
    with pytest.raises(UserError, match=r"samples \(1\) must be from 2 to 100,000; 0 is as"):
        recipe.final(model, data, draw, samples=1)
    with pytest.raises(UserError, match=r"inputs \(0 to 3\) must hold pixels from 0 to 1"):
        recipe.predict(model, 3 * x, spec)
    for keep, what in (("0", "every pixel"), ("1.0", "no pixel")):
        with pytest.raises(UserError, match=rf"keep \({keep}\) hides {what} of 8 x 8; give top"):
            recipe.predict(model, x, spec, keep=keep)
    with pytest.raises(UserError, match=r"keep \('middle'\) must be top, bottom, left, right or"):
        recipe.predict(model, x, spec, keep="middle")
    with pytest.raises(UserError, match=r"kernel_size \(4\) must be odd and at least 3, because"):
        BinaryPixels(kernel_size=4)
    with pytest.raises(UserError, match=r"ema \(1.0\) must be at least 0 and below 1"):
        BinaryPixels(ema=1.0)


def test_the_network_takes_images_of_any_size():
    assert RECIPES["pixelcnn"].model(Data.described({"shape": [1, 5, 9]}))(
        torch.zeros(1, 1, 5, 9)
    ).shape == (1, 1, 5, 9)


# ------------------------------------------------------------------------------- the user's images


def write_images(folder, count, mode="L", side=10):
    for label in ("square", "bar"):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            image = Image.new(mode, (side, side))
            wide = 5 if label == "square" else 2
            image.paste((255,) * len(mode), (1, number % 3, 1 + wide, number % 3 + 5))
            image.save(folder / label / f"{number}.png")
    return folder


def test_images_of_a_folder_are_brought_to_a_size_and_completed(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    folder = write_images(tmp_path / "shapes", 12)
    recipe = replace(SMALL, data=str(folder), size=6, steps=2, eval_every=1)
    result = runs.run(recipe, tmp_path / "runs", device="cpu")
    predictor = everynet.trained(result.folder)
    (found,) = predictor.predict([folder / "bar" / "3.png"], keep="top")
    assert math.isfinite(found["log_likelihood"])
    assert found["completed"].shape == (1, 6, 6)
    assert predictor.sample(n=3).shape == (3, 1, 6, 6)


def test_folders_that_cannot_be_learned_are_refused_in_one_line(tmp_path):
    colour = write_images(tmp_path / "colour", 12, "RGB")
    with pytest.raises(UserError, match=r"must be grey images, because each pixel is drawn as bl"):
        replace(SMALL, data=str(colour)).dataset()
    single = tmp_path / "single"
    (single / "one").mkdir(parents=True)
    Image.new("L", (8, 8)).save(single / "one" / "a.png")
    with pytest.raises(UserError, match=r"single"):
        replace(SMALL, data=str(single)).dataset()
    small = write_images(tmp_path / "small", 12, side=3)
    with pytest.raises(
        UserError, match=r"images \(3 x 3\) must be at least 4 pixels high and wide"
    ):
        replace(SMALL, data=str(small)).dataset()
