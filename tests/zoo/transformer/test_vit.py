"""The Vision Transformer against unfolded patches and torch's own layers, and what it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate, unfold

import everynet
from everynet.nn.attention import record_weights
from everynet.recipes.catalog import find
from everynet.recipes.trained import Trained
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.transformer.pictures.patches import draw_class_attention, draw_similarity
from everynet.zoo.transformer.vit import ViT, ViTImages, ViTLayer, class_attention, count_patches
from tests.data.either import inputs

HIDDEN, HEADS, INNER, PATCH = 8, 2, 12, 4
SMALL = {"patch": 4, "hidden_size": 8, "heads": 2, "layers": 2, "batch_size": 8, "warmup": 0}


def make(size=(12, 8), *, layers=2, seed=0):
    """A small network in float64 whose weights are all drawn, gains and biases too."""
    torch.manual_seed(seed)
    net = ViT(
        3, 5, size=size, patch=PATCH, hidden_size=HIDDEN, heads=HEADS, feedforward_size=INNER,
        layers=layers,
    ).double()  # fmt: skip
    for p in net.parameters():
        nn.init.normal_(p, std=0.5)
    return net


def by_torch(net, x, positions):
    """The same from plain torch: a matrix for unfolded patches, and torch's encoder layers."""
    flat = unfold(x, PATCH, stride=PATCH).transpose(1, 2)  # batch patches numbers
    h = flat @ net.patches.weight.flatten(1).T + net.patches.bias
    z = torch.cat([net.class_token.repeat(len(x), 1, 1), h], 1) + positions
    for ours in net.layers:
        layer = nn.TransformerEncoderLayer(
            HIDDEN, HEADS, INNER, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True,
            norm_first=True, dtype=torch.float64,
        )  # fmt: skip
        pairs = {
            "self_attn.in_proj_weight": ours.attention.project.weight,
            "self_attn.in_proj_bias": ours.attention.project.bias,
        }
        for theirs, part in {
            "self_attn.out_proj": ours.attention.output,
            "linear1": ours.feedforward.inner,
            "linear2": ours.feedforward.output,
            "norm1": ours.around_attention.norm,
            "norm2": ours.around_feedforward.norm,
        }.items():
            pairs |= {f"{theirs}.weight": part.weight, f"{theirs}.bias": part.bias}
        z = torch.func.functional_call(layer, pairs, (z,))
    first = z[:, 0]
    spread = (first.var(1, unbiased=False, keepdim=True) + 1e-12).sqrt()
    normed = (first - first.mean(1, keepdim=True)) / spread * net.norm.weight + net.norm.bias
    return normed @ net.head.weight.T + net.head.bias


# ------------------------------------------------------------------------------------ equations


@pytest.mark.covers("T2", "T7")
def test_values_and_gradients_are_those_of_plain_torch():
    net, x = make(), torch.randn(3, 3, 12, 8, dtype=torch.float64)
    expected = by_torch(net, x, net.positions)
    torch.testing.assert_close(net(x), expected, atol=1e-10, rtol=1e-9)
    weights = torch.randn_like(expected)
    ours, theirs = (
        torch.autograd.grad((y * weights).sum(), [*net.parameters()]) for y in (net(x), expected)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-8)


def test_gelu_is_exact():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    torch.testing.assert_close(ViTLayer.activation(x), x * (1 + torch.erf(x / 2**0.5)) / 2)


@pytest.mark.parametrize("grid", [(4, 4), (2, 5), (3, 1)])
def test_images_of_another_size_have_interpolated_positions(grid):
    net = make()
    x = torch.randn(2, 3, PATCH * grid[0], PATCH * grid[1], dtype=torch.float64)
    table = net.positions[0, 1:].T.reshape(1, HIDDEN, 3, 2)
    places = interpolate(table, grid, mode="bicubic", align_corners=False)[0].flatten(1).T
    positions = torch.cat([net.positions[0, :1], places])
    torch.testing.assert_close(net(x), by_torch(net, x, positions), atol=1e-10, rtol=1e-9)


def test_interpolation_is_cubic_between_places():
    """Along one axis: Keys' kernel with a = -3/4, the outermost positions repeated outwards."""
    net = make(size=(16, 16))
    column = torch.randn(4, dtype=torch.float64)
    net.positions.data[:, 1:] = column.repeat_interleave(4)[None, :, None]
    place = (torch.arange(8, dtype=torch.float64) + 0.5) / 2 - 0.5
    near = place.floor()[:, None] + torch.arange(-1, 3)
    s = (place[:, None] - near).abs()
    inner = 1.25 * s**3 - 2.25 * s**2 + 1
    outer = -0.75 * (s**3 - 5 * s**2 + 8 * s - 4)
    expected = (torch.where(s <= 1, inner, outer) * column[near.long().clamp(0, 3)]).sum(1)
    resized = net.positions_of((8, 3))[0, 1:].reshape(8, 3, HIDDEN)
    torch.testing.assert_close(resized, expected[:, None, None].expand(8, 3, HIDDEN))
    assert torch.equal(net.positions_of((8, 3))[:, 0], net.positions[:, 0])
    assert net.positions_of((4, 4)) is net.positions


def test_patches_are_a_set_but_for_their_positions():
    """Patches in another order, with their positions, change nothing; without them they do."""
    net, x = make(size=(8, 8)), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    y, order = net(x), torch.tensor([2, 0, 3, 1])
    tiles = x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)[:, :, order]
    moved = tiles.unflatten(2, (2, 2)).transpose(3, 4).reshape(2, 3, 8, 8)
    assert not torch.allclose(net(moved), y)
    net.positions.data[:, 1:] = net.positions.data[:, 1 + order]
    torch.testing.assert_close(net(moved), y)


def test_similarity_is_the_cosine_of_positions():
    net = make()
    e = net.positions[0, 1:]
    expected = nn.functional.cosine_similarity(e[:, None], e[None], dim=2)
    torch.testing.assert_close(net.similarity().reshape(6, 6), expected)


def test_class_attention_is_that_of_the_first_token():
    net, x = make(), torch.randn(2, 3, 12, 8, dtype=torch.float64)
    found = class_attention(net, x)
    assert found.shape == (2, 2, HEADS, 7)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 2, HEADS))
    with record_weights(net) as weights:
        net(x)
    last = weights["layers.1.attention"][0][1, :, 0]
    torch.testing.assert_close(found[1, 1], last.detach().float())


def test_parameters_of_the_paper():
    with torch.device("meta"):
        net = ViT(3, 1000, size=(224, 224))
    assert sum(p.numel() for p in net.parameters()) == 86_567_656
    assert net.positions.shape == (1, 197, 768)


# ------------------------------------------------------------------------------ published weights


def published(net):
    """The tensors of a network as Hugging Face's ViTForImageClassification names them."""
    state = {name: tensor.detach() for name, tensor in net.state_dict().items()}
    found = {
        "vit.embeddings.cls_token": state["class_token"],
        "vit.embeddings.position_embeddings": state["positions"],
        "vit.pooler.dense.weight": torch.ones(HIDDEN, HIDDEN),
    }
    for kind in ("weight", "bias"):
        found[f"vit.embeddings.patch_embeddings.projection.{kind}"] = state[f"patches.{kind}"]
        found[f"vit.layernorm.{kind}"] = state[f"norm.{kind}"]
        found[f"classifier.{kind}"] = state[f"head.{kind}"]
        for n in range(len(net.layers)):
            ours, theirs = f"layers.{n}", f"vit.encoder.layer.{n}"
            parts = state[f"{ours}.attention.project.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                found[f"{theirs}.attention.attention.{name}.{kind}"] = part
            for one, two in {
                "attention.output": "attention.output.dense",
                "feedforward.inner": "intermediate.dense",
                "feedforward.output": "output.dense",
                "around_attention.norm": "layernorm_before",
                "around_feedforward.norm": "layernorm_after",
            }.items():
                found[f"{theirs}.{two}.{kind}"] = state[f"{ours}.{one}.{kind}"]
    return found


def test_published_weights_are_all_read():
    net, other = make(), make(seed=1)
    tensors = published(net)
    other.load_state_dict(ViTImages.published.rename(tensors, 2))
    x = torch.randn(2, 3, 12, 8, dtype=torch.float64)
    assert torch.equal(other(x), net(x))
    headless = {name: t for name, t in tensors.items() if not name.startswith("classifier")}
    renamed = ViTImages.published.rename(headless, 2)
    assert set(net.state_dict()) - set(renamed) == {"head.weight", "head.bias"}


def test_sizes_of_a_published_configuration():
    config = {
        "model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "image_size": 224,
        "num_attention_heads": 12, "intermediate_size": 3072, "patch_size": 16,
        "hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True,
    }  # fmt: skip
    settings = ViTImages.published.settings(config, "config.json")
    recipe = ViTImages(**settings)
    assert (recipe.patch, recipe.layers, recipe.positions_size) == (16, 12, 224)
    with pytest.raises(UserError, match=r"layer_norm_eps 1e-06.*must have layer_norm_eps 1e-12"):
        ViTImages.published.settings(config | {"layer_norm_eps": 1e-6}, "config.json")


# --------------------------------------------------------------------------------------- recipe


def test_positions_of_a_size_serve_images_of_another():
    recipe = replace(find("vit").tiny(), size=16, positions_size=8)
    data = recipe.dataset()
    net = recipe.model(data)
    assert data.spec["shape"] == [1, 16, 16]
    assert (net.grid, net.positions.shape[1]) == ((2, 2), 5)
    assert recipe.predict(net, data.some("valid", torch.arange(3))[0], data.spec)[2]["class"]
    assert replace(recipe, size=0).dataset().spec["shape"] == [1, 8, 8]


def test_a_run_gives_its_positions_to_larger_images(tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", lambda self, to, **_: to.write(b"drawn"))
    recipe = replace(find("vit").tiny(), steps=1, warmup=0)
    first = run(recipe, tmp_path)
    again = everynet.recipe("vit", start=str(first.folder), **SMALL, size=16, steps=1, lr=1e-12)
    second = run(again, tmp_path)
    nets = [everynet.load(result.folder) for result in (first, second)]
    torch.testing.assert_close(nets[1].positions, nets[0].positions)
    x = torch.randn(2, 1, 16, 16)
    torch.testing.assert_close(nets[1](x), nets[0](x))
    assert nets[1].grid == (2, 2)


def test_pictures_of_many_layers_and_of_one_patch():
    drawn = draw_class_attention(torch.rand(3, 8, 8), torch.rand(15, 14, 2, 2))
    labels = [label.get_text() for label in drawn.axes[1].get_yticklabels()]
    assert labels == [str(n) for n in range(1, 13)]  # the first twelve
    recipe = replace(find("vit").tiny(), patch=8)
    data = recipe.dataset()
    net = recipe.model(data)
    _, values = recipe.picture_positions(net, data, [])
    assert values == {"near": 1.0, "far": 1.0}  # there is one patch
    assert draw_similarity(net.similarity().detach()).axes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch": 0}, r"patch \(0\) must be at least 1"),
        (
            {"size": 30, "patch": 4},
            r"size \(30\) must be a multiple of patch \(4\).*; try 28 or 32$",
        ),
        ({"positions_size": 30}, r"positions_size \(30\) must be .* patch \(8\).*; try 24 or 32$"),
        ({"positions_size": -1}, r"positions_size \(-1\) must be at least 0"),
        ({"hidden_size": 63}, r"hidden_size \(63\) must be a multiple of heads \(4\)"),
        ({"dropout": 1.0}, r"dropout \(1\.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("vit"), **fields)


def test_images_that_patches_do_not_divide():
    recipe = replace(find("vit"), size=0, patch=3)
    message = r"data \(digits, 8 x 8 pixels\) .* patch \(3\) divides.*; do size=6$"
    with pytest.raises(UserError, match=message):
        recipe.model(recipe.dataset())
    net = make()
    message = r"size \(13 x 8\) must be a multiple of patch \(4\).*; try 12 x 8 or 16 x 8"
    with pytest.raises(ValueError, match=message):
        net(torch.zeros(1, 3, 13, 8).double())
    with pytest.raises(ValueError, match=r"size \(2 x 2\).*; try 4 x 4$"):
        count_patches((2, 2), 4)
    with pytest.raises(ValueError, match=r"patch \(0\)"):
        count_patches((8, 8), 0)
    with pytest.raises(ValueError, match=r"ViT must be given images of shape \(batch, 3, height"):
        net(torch.zeros(1, 1, 12, 8).double())


def test_a_folder_of_photographs(tmp_path, monkeypatch):
    """The user's own images: trained on, tested, drawn, and predicted by file."""
    monkeypatch.setattr(Figure, "savefig", lambda self, to, **_: to.write(b"drawn"))
    random, photos = np.random.default_rng(0), tmp_path / "photos"
    for name, colour in (("lawn", (60, 160, 60)), ("brick", (170, 70, 50))):
        (photos / name).mkdir(parents=True)
        for number in range(20):
            pixels = random.normal(colour, 25, (20, 26, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(photos / name / f"{number}.png")
    recipe = everynet.recipe(
        "vit", data=str(photos), size=16, hidden_size=8, heads=2, layers=1, steps=30, batch_size=8,
        eval_every=30, warmup=0,
    )  # fmt: skip
    result = run(recipe, tmp_path / "runs")
    assert result.metrics["accuracy"] == 1
    drawn = {path.stem for path in (result.folder / "pictures").iterdir()}
    assert drawn >= {"attention", "patches", "positions"}
    asked, spec = [photos / "brick" / "3.png", photos / "lawn" / "5.png"], recipe.dataset().spec
    with torch.no_grad():
        rows = recipe.predict(everynet.load(result.folder), inputs(asked, spec), spec)
    assert [row["class"] for row in rows] == ["brick", "lawn"]
    assert set(rows[0]) >= {"class", "probability", "probabilities"}


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_learns_digits(tmp_path):
    recipe = find("vit")
    found = [run(replace(recipe, seed=s), tmp_path).metrics["accuracy"] for s in range(3)]
    assert sum(found) / len(found) >= recipe.goals()[0].value


def test_published_weights_are_given_pixels_from_minus_one_to_one():
    own = find("vit")
    data, given = (replace(own, start=Trained(path)).dataset() for path in ("", "a/vit-base"))
    assert (given.spec["mean"], given.spec["std"]) == ([0.5], [0.5])
    rows = torch.arange(50)
    own_images, images = (part.some("train", rows)[0] for part in (data, given))
    mean, std = data.spec["mean"][0], data.spec["std"][0]
    torch.testing.assert_close(own_images * std + mean, images / 2 + 0.5)
    assert images.amin() >= -1
    assert 0.5 < images.amax() <= 1  # enlarged, so that few are white
    file = replace(own, start=Trained("weights.safetensors")).dataset()
    assert file.spec["mean"] == data.spec["mean"]
