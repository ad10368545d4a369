"""Localisation: boxes against their formulas, files of one's own, and what it learns."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import everynet
from everynet import runs
from everynet.cli import main
from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.system.errors import UserError
from everynet.zoo.vision.localise import Localiser, SingleObject, box_iou


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def awake(seed=0):
    """A network in float64 and eval mode whose places propose different boxes."""
    torch.manual_seed(seed)
    net = Localiser(1, 3, widths=(4, 5)).double().eval().requires_grad_(False)
    net.edges.weight.copy_(randn(5 * 4, seed=3).reshape(4, 5, 1, 1))
    return net


# ------------------------------------------------------------------------------------ equations


def test_the_network_is_its_equations():
    """(2) to (6) written out place by place; maps of 4 x 6 places."""
    net, x = awake(), randn(2, 1, 8, 12)
    maps = net.backbone(x)
    assert maps.shape == (2, 5, 4, 6)
    y, b = net(x)
    u, edges = net.look.weight[0, :, 0, 0], net.edges.weight[:, :, 0, 0]
    for n in range(2):
        total, v, box = 0.0, torch.zeros(5).double(), torch.zeros(4).double()
        for row in range(4):
            for column in range(6):
                f = maps[n, :, row, column]
                a = (u @ f).exp()
                px, py = (column + 0.5) / 6, (row + 0.5) / 4
                d = (1 + (edges @ f + net.edges.bias).exp()).log()  # softplus
                total += a
                v += a * f
                box += a * torch.stack([px - d[0], py - d[1], px + d[2], py + d[3]])
        torch.testing.assert_close(b[n], box / total)
        torch.testing.assert_close(y[n], net.output.weight @ v / total + net.output.bias)


def test_all_places_propose_the_same_distances_at_first():
    torch.manual_seed(0)
    net = Localiser(1, 3, widths=(4, 5)).double().eval()
    box = net.propose_boxes(net.backbone(randn(1, 1, 8, 8))).detach()
    torch.testing.assert_close(box[:, 2] - box[:, 0], torch.full((1, 4, 4), 0.3).double())
    torch.testing.assert_close(box[0, 0, :, 1], torch.full((4,), 1.5 / 4 - 0.15).double())


BOXES = torch.tensor(
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0], [0.2, 0.2, 0.4, 0.4], [0.6, 0.6, 0.9, 0.9]]
).double()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(0, 0, 1.0), (0, 1, 0.5), (0, 2, 0.04), (1, 2, 0.04 / 0.5), (2, 3, 0.0)],
)
def test_overlap_of_known_boxes(one, other, expected):
    both = box_iou(BOXES[one : one + 1], BOXES[other : other + 1])
    assert both.item() == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_overlap_is_that_of_counted_pixels(seed):
    corners = torch.rand(2, 2, 2, generator=torch.Generator().manual_seed(seed)).double()
    low, high = corners.amin(1), corners.amax(1)
    boxes = torch.cat([low, high], 1)
    at = (torch.arange(400).double() + 0.5) / 400
    masks = [
        ((at > b[1]) & (at < b[3]))[:, None] & ((at > b[0]) & (at < b[2]))[None] for b in boxes
    ]
    counted = float((masks[0] & masks[1]).sum() / (masks[0] | masks[1]).sum())
    assert box_iou(boxes[:1], boxes[1:]).item() == pytest.approx(counted, abs=0.03)


def test_the_loss_is_its_three_terms():
    recipe, net = SingleObject(), awake()
    x, y = randn(2, 1, 8, 8), torch.tensor([[[2.0, 0.1, 0.2, 0.6, 0.7]], [[0, 0.4, 0.4, 0.5, 0.9]]])
    y = y.double()
    logits, b = net(x)
    terms = recipe.objective(net, (x, y))
    t = y[:, 0, 1:]
    k = torch.tensor([2, 0])
    away = (b - t).abs() / 0.1
    l1 = torch.where(away <= 1, away**2 / 2, away - 0.5).sum(1).mean()
    expected = {
        "cross_entropy": -logits.log_softmax(1)[[0, 1], k].mean(),
        "iou_loss": (1 - box_iou(b, t)).mean(),
        "smooth_l1": l1,
    }
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value)


def test_gradients():
    net = awake().requires_grad_(True)
    x = randn(1, 1, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: net(x)[1], x)
    boxes = BOXES[1:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda b: box_iou(b, BOXES[:2] * 0.9), boxes)


def test_an_image_that_moves_moves_its_box():
    """Off the borders, by the stride of the maps, once attention is on the object alone."""
    net = awake()
    net.look.weight.abs_().mul_(200)  # maps are 0 where the image is
    x = torch.zeros(1, 1, 24, 24).double()
    x[..., 8:12, 8:12] = 1 + randn(1, 1, 4, 4).abs()
    _, b = net(x)
    _, moved = net(x.roll((4, 2), (2, 3)))
    shift = torch.tensor([2, 4, 2, 4]).double() / 24
    torch.testing.assert_close(moved[0], b[0] + shift, atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------- files and errors


@pytest.fixture
def photos(tmp_path):
    """A folder with boxes of the user's own: bright rectangles of two shapes."""
    rows = ["image,class,left,top,right,bottom"]
    for number in range(24):
        wide = number % 2
        left, top = 3 + number, 2 + number // 2
        size = (16, 8) if wide else (8, 16)
        image = Image.new("L", (48, 40))
        image.paste(200, (left, top, left + size[0], top + size[1]))
        image.save(tmp_path / f"{number}.png")
        name = "wide" if wide else "high"
        rows.append(f"{number}.png,{name},{left},{top},{left + size[0]},{top + size[1]}")
    (tmp_path / "boxes.csv").write_text("\n".join(rows))
    return tmp_path


def test_boxes_of_the_users_own_are_learned_and_found(photos, tmp_path_factory, capsys):
    out = tmp_path_factory.mktemp("runs")
    given = {"data": str(photos), "size": 32, "widths": "4,8", "steps": 20, "batch_size": 8}
    result = runs.run(override(find("localise"), {k: str(v) for k, v in given.items()}), out)
    assert 0 <= result.metrics["iou"] <= 1
    assert main(["predict", str(result.folder), str(photos / "3.png")]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["class"] in ("wide", "high")
    assert 0 <= line["box"]["left"] <= line["box"]["right"] <= 48
    assert 0 <= line["box"]["top"] <= line["box"]["bottom"] <= 40
    check_pixels(result.folder, out, capsys)


def check_pixels(run, out, capsys):
    """A network that sees where the object is, in parts of the image, of a photo of 160 x 120.

    The box is 43, 0, 96, 53 in its pixels, and about 8.6, 0, 19.2, 14.1 in those of 32 x 32.
    """
    box = {"left": 43, "top": 0, "right": 96, "bottom": 53}
    pixels = torch.zeros(120, 160, 3, dtype=torch.uint8)
    pixels[0:53, 43:96] = 200
    photo, parts = out / "photo.png", torch.tensor([43 / 160, 0, 96 / 160, 53 / 120])
    Image.fromarray(pixels.numpy()).save(photo)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Localiser, "forward", lambda _, x: (x.mean((2, 3)) @ x.new_zeros(1, 2), parts[None])
        )
        assert main(["predict", str(run), str(photo), "--out", str(out / "made")]) == 0
        line = json.loads(capsys.readouterr().out)
        assert line["box"] == pytest.approx(box)
        (same,) = everynet.trained(run).predict(photo)
        assert same == {k: v for k, v in line.items() if k != "overlay"}
        (grey,) = everynet.trained(run).predict(pixels[None, :, :, 0].numpy())
        assert grey["box"] == pytest.approx(box)
        assert main(["predict", str(run), str(photo), "--out", str(out / "a.csv")]) == 0
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(photo.read_bytes())))
        assert main(["predict", str(run), "-", "--out", str(out / "b.png")]) == 0
    with Image.open(out / "made" / "photo-overlay.png") as image:
        drawn = torch.from_numpy(np.asarray(image).copy())
    assert (out / "b.png").read_bytes() == (out / "made" / "photo-overlay.png").read_bytes()
    assert line["overlay"] == str(out / "made" / "photo-overlay.png")
    inked = (drawn != pixels).any(2)
    wanted = torch.zeros(120, 160, dtype=torch.bool)
    wanted[0:53, 43:96] = True
    wanted[1:52, 44:95] = False
    assert torch.equal(inked, wanted)
    header, row = csv.reader((out / "a.csv").read_text().splitlines())
    table = dict(zip(header, row, strict=True))
    assert [float(table[f"box.{edge}"]) for edge in box] == pytest.approx([43, 0, 96, 53])
    assert not (out / "a").exists()


@pytest.mark.parametrize("seed", range(4))
def test_no_augmentation_takes_the_one_object_away(seed):
    """With seeds 1 and 3 the box of some image left it, and its class became -1."""
    recipe = replace(find("localise").tiny(), seed=seed, steps=8)
    data = recipe.dataset()
    classes = [data.train(step)[1][:, 0, 0] for step in range(8)]
    assert torch.cat(classes).min() >= 0


def test_images_with_two_boxes_or_none_are_refused(photos):
    text = (photos / "boxes.csv").read_text()
    recipe = SingleObject(data=str(photos), size=32, batch_size=4)
    (photos / "boxes.csv").write_text(text + "\n0.png,high,0,0,4,4")
    with pytest.raises(UserError, match=r"must have one box in each image, .* an image has 2"):
        recipe.dataset()
    (photos / "boxes.csv").write_text("\n".join(text.splitlines()[:-1]))
    with pytest.raises(UserError, match=r"must have one box in each image, .* an image has 0"):
        recipe.dataset()


def test_other_data_is_refused():
    with pytest.raises(UserError, match=r"data \(iris\) must be images with boxes"):
        SingleObject(data="iris").dataset()
    with pytest.raises(UserError, match=r"size \(8\) must be at least 16, because images are laid"):
        SingleObject(data="digits", size=8).dataset()
    data = Data.described({"shape": [1, 12, 12], "classes": ["a"]})
    with pytest.raises(UserError, match=r"size \(12\) must be at least 16, because every block"):
        SingleObject().model(data)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": -1}, r"size \(-1\) must be at least 0"),
        ({"fragments": -1}, r"fragments \(-1\) must be at least 0"),
        ({"widths": (0,)}, r"widths \(\(0,\)\) must be one or more numbers from 1 up"),
        ({"pixels": -1.0}, r"pixels \(-1.0\) must be a number from 0 up"),
        ({"scale": 1.0}, r"scale \(1.0\) must be at least 0 and below 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("localise"), **fields)


# ------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C27")
def test_the_goal_is_reached(tmp_path):
    assert runs.run(find("localise"), tmp_path).reached
