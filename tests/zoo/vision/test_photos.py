"""Photos of one's own: what is chosen by their number, what fine-tuning freezes and records."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import linear

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.data.images.standardize import Standardize, restandardize
from everynet.data.loading import load
from everynet.data.sets import vgg19
from everynet.recipes.catalog import find
from everynet.recipes.settings import override
from everynet.recipes.trained import Trained
from everynet.runs import loading
from everynet.runs.best_weights import BestWeights
from everynet.system.errors import UserError
from everynet.training.loop import begin, train
from everynet.training.start import Start
from everynet.zoo.vision import photos
from everynet.zoo.vision.photos import PhotoNet, PhotoVGG, suitable_widths
from tests.runs.test_vocabulary import stopped


def make_folder(root, count=24, *, sides=(20,), classes=("cat", "dog"), grey=False):
    """Noise, brighter in the second class; the sides take turns."""
    random = np.random.default_rng(0)
    for number in range(count):
        label, side = number % len(classes), sides[number % len(sides)]
        shape = (side, side + 4) if grey else (side, side + 4, 3)
        pixels = random.integers(0, 100, shape) + 100 * (label % 2)
        folder = root / classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return root


def recipe(folder, name="photos", **settings):
    return override(find(name), {"data": str(folder), **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    """A short run on the folder, and what it said."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everynet.runs.job.Job.draw", lambda *_: ())
        patch.setattr("everynet.runs.progress.Progress.say", lambda _self, line: lines.append(line))
        given = recipe(folder, steps=4, widths=(8, 8))
        return everynet.run(given, tmp_path_factory.mktemp("runs"), device="cpu"), lines


# -------------------------------------------------------------------------------------- the network


def test_the_logits_are_of_the_mean_over_what_stages_and_blocks_give():
    torch.manual_seed(0)
    net = PhotoNet(3, 5, widths=(4, 6, 8), blocks=2).double().eval()
    x = torch.randn(2, 3, 16, 16).double()
    h = x
    for stage in range(3):
        conv = net.features.get_submodule(f"stage{stage}")
        h = conv.conv(h)
        h = nn.functional.max_pool2d(h, 2) if stage < 2 else h
        h = conv.norm(h).relu()
        for block in range(2):
            residual = net.features.get_submodule(f"block{stage}_{block}")
            h = (residual.residual(h) + h).relu()
    assert h.shape == (2, 8, 4, 4)
    wanted = linear(h.flatten(2).mean(2), net.output.weight, net.output.bias)
    torch.testing.assert_close(net(x), wanted)


@pytest.mark.parametrize("net", [PhotoNet(3, 4, widths=(4, 6)), PhotoVGG(3, 4, width=4)])
def test_evidence_is_grad_cam_by_autograd(net):
    torch.manual_seed(1)
    net = net.double().eval()
    x = torch.randn(2, 3, 16, 16).double()
    h = net.features(x).detach().requires_grad_()
    y = linear(h.mean((2, 3)), net.output.weight, net.output.bias)
    pixels = h.shape[2] * h.shape[3]
    for label in range(4):
        (gradient,) = torch.autograd.grad(y[:, label].sum(), h, retain_graph=True)
        weight = gradient.mean((2, 3), keepdim=True) * pixels
        wanted = (weight * h).sum(1).relu()
        torch.testing.assert_close(net.evidence(x)[:, label], wanted)


@pytest.mark.parametrize("channels", [1, 3])
def test_vgg_sees_pixels_as_its_published_form_does(channels, monkeypatch):
    """The published form has a layer of its own that puts blue first and takes the mean off."""
    monkeypatch.setattr(vgg19, "BLOCKS", ((4, 2), (8, 1)))
    torch.manual_seed(2)
    shapes = {"conv1_1": (4, 3, 3, 3), "conv1_2": (4, 4, 3, 3), "conv2_1": (8, 4, 3, 3)}
    scales = {"conv1_1": 100, "conv1_2": 6, "conv2_1": 6}  # so that activations are about 1
    found = {f"{n}.weight": torch.randn(shape) / scales[n] for n, shape in shapes.items()}
    found |= {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}
    monkeypatch.setattr(vgg19, "read", lambda: {n: t.clone() for n, t in found.items()})
    net = PhotoVGG(channels, 2)
    net.load_published()
    pixels = torch.rand(1, channels, 8, 8)
    moments = find("photos-vgg").moments({"shape": [channels, 8, 8]})
    seen = net.features(Standardize(*moments, peak=1.0).images(pixels))
    mean = torch.tensor([103.939, 116.779, 123.68])[:, None, None]
    mean = mean if channels == 3 else mean.mean(0, keepdim=True)
    h = 255 * pixels.expand(-1, 3, -1, -1).flip(1) - mean
    for name in shapes:
        h = nn.functional.max_pool2d(h, 2) if name == "conv2_1" else h
        h = nn.functional.conv2d(h, found[f"{name}.weight"], found[f"{name}.bias"], padding=1)
        h = h.relu()
    if channels == 1:  # one mean for all: what lies outside of the image is another grey
        seen, h = seen[..., 1:-1, 1:-1], h[..., 1:-1, 1:-1]
    torch.testing.assert_close(seen, h, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------------- what is chosen


def described(images, side=32, classes=("cat", "dog")):
    """Data of so many images, all of them the same one."""
    x = torch.zeros(1, 3, side, side).expand(images, -1, -1, -1)
    y = torch.arange(images) % len(classes)
    spec = {"shape": [3, side, side], "classes": classes, "size": side, "kind": "image"}
    return Data({"train": (x, y), "valid": (x, y)}, spec, batch_size=2, own=True)


def test_many_images_take_a_deeper_network_and_more_updates(folder):
    few, some, many = (recipe(folder).suited(described(n)) for n in (180, 900, 9_000))
    assert few["blocks"] == some["blocks"] == 0 < many["blocks"]
    assert few["steps"] < some["steps"] < many["steps"]
    assert few["mixup"] > many["mixup"]
    assert few["widths"] == (32, 64, 128, 128)
    assert recipe(folder).suited(described(20))["batch_size"] == 10


def test_settings_that_were_given_stay(folder):
    given = recipe(folder, blocks=2, steps=50, mirror=False, size=24)
    found = given.suited(described(9_000))
    assert not {"blocks", "steps", "size"} & found.keys()
    assert found["eval_every"] == 5
    assert find("photos").suited(replace(described(900), own=False)) == {}, "the recipe as it is"


def test_settings_that_were_given_with_their_own_value_stay(folder):
    own = find("photos")
    names = ("blocks", "widths", "steps", "batch_size", "lr", "pixels", "mirror", "mixup", "size")
    given = recipe(folder, eval_every=0, **{name: getattr(own, name) for name in names})
    assert not {*names, "eval_every"} & given.suited(described(9_000)).keys()
    assert given.sized().size == own.size


def test_weights_of_classes_are_not_mixed(folder):
    found = recipe(folder, class_weight="balanced").suited(described(20))
    assert found["mixup"] == 0
    assert found["class_weights"] == (1.0, 1.0)


@pytest.mark.parametrize(
    ("classes", "mirrors"),
    [
        (("cat", "dog"), True),
        (("bright", "copyright"), True),
        (("0", "1", "12"), False),
        (("b", "d"), False),
        (("Left", "straight"), False),
        (("turn-right", "straight"), False),
        (("hand_left_1", "foot"), False),
    ],
)
def test_what_a_mirror_may_change_is_not_mirrored(folder, classes, mirrors):
    assert recipe(folder).suited(described(20, classes=classes))["mirror"] is mirrors


@pytest.mark.parametrize(
    ("side", "widths"),
    [(8, (128, 128)), (28, (32, 64, 128, 128)), (64, (16, 32, 64, 128, 128))],
)
def test_stages_leave_about_four_pixels(side, widths):
    assert suitable_widths(side, 128) == widths


@pytest.mark.parametrize(("sides", "size"), [((10, 12), 16), ((20, 30, 40), 30), ((90, 300), 64)])
def test_images_of_any_size_are_brought_to_their_median_within_limits(tmp_path, sides, size):
    made = make_folder(tmp_path, sides=sides, grey=True)
    (tmp_path / "cat" / "broken.png").write_bytes(b"no image")
    data = recipe(made).dataset()
    assert data.spec["shape"] == [1, size, size]
    assert recipe(made, size=18).dataset().spec["shape"] == [1, 18, 18]


def test_arrays_of_large_images_are_made_smaller(tmp_path):
    x, y = np.zeros((40, 80, 100), np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "large.npz", x=x, y=y)
    assert recipe(tmp_path / "large.npz").dataset().spec["shape"] == [1, 64, 64]


def test_training_images_are_changed_as_was_chosen(folder, monkeypatch):
    seen = []

    def augment(self):
        seen.append(self)

    monkeypatch.setattr(photos.Photos, "augment", augment)
    recipe(folder).dataset()
    assert (seen[-1].pixels, seen[-1].mirror) == (2.0, True)
    assert seen[0].pixels == 1, "as the recipe has it, until the images are read"


def test_a_run_says_what_it_chose_and_keeps_it(finished, folder):
    result, lines = finished
    said = next(line for line in lines if line.startswith("taken from the data"))
    assert "size=20 blocks=0 batch_size=" in said
    stored = json.loads((result.folder / "recipe.json").read_text())["settings"]
    assert (stored["size"], stored["steps"], stored["pixels"]) == (20, 4, 2.0)
    again = everynet.trained(result.folder).recipe.dataset()
    assert again.batch_size == stored["batch_size"]
    assert again.augment is not None
    (answer,) = everynet.trained(result.folder).predict([folder / "cat" / "0.png"])
    assert answer["class"] in ("cat", "dog")


def test_few_validation_images_choose_no_weights(folder):
    data = recipe(folder).dataset()
    kept = BestWeights.of(recipe(folder), data)
    assert kept.monitor is None
    assert kept.why_last == f"{data.rows('valid')} validation rows are too few to choose others"
    patient = recipe(folder, patience=3)
    assert BestWeights.of(patient, patient.dataset()).monitor.metric == "accuracy"


# ------------------------------------------------------------------------------------ fine-tuning


def tuned(folder, result, **settings):
    given = {"start": str(result.folder), "steps": 6, "frozen": 0.5, **settings}
    made = recipe(folder, **given)
    return replace(made, start=made.start.resolved("start"))


def test_given_features_are_frozen_first_and_then_thawed(finished, folder):
    made = tuned(folder, finished[0])
    made = override(made, made.suited(made.dataset()))
    assert made.widths == (8, 8)
    data = made.dataset()
    state = begin(made, data, start=Start.of(made, data.spec))
    before = {name: tensor.clone() for name, tensor in state.model.state_dict().items()}
    rates = [group["lr"] for group in state.optimizers["main"].param_groups]
    assert rates == [pytest.approx(0.1 * made.lr), made.lr]
    for record in train(made, state, data):
        same = {n for n, t in state.model.state_dict().items() if torch.equal(t, before[n])}
        norms = {n for n in before if "running" in n or "tracked" in n}
        assert norms <= same
        assert not {"output.weight", "output.bias"} & same
        weights = {n for n in before if n.startswith("features")} - norms
        assert weights <= same if record.step <= 3 else not weights & same


def test_a_run_that_was_begun_needs_the_one_it_started_from_no_more(
    finished, folder, tmp_path, monkeypatch
):
    """How its images are standardised is in its own folder."""
    monkeypatch.setattr("everynet.runs.job.Job.draw", lambda *_: ())
    before = shutil.copytree(finished[0].folder, tmp_path / "before")
    given = {"start": str(before), "steps": 4, "frozen": 0.5}
    whole = runs.run(recipe(folder, **given), tmp_path / "whole", device="cpu")
    half = stopped(recipe(folder, **given), tmp_path / "half")
    shutil.rmtree(before)
    done = loading.resume(half)
    assert done.metrics == whole.metrics
    wanted = everynet.trained(whole.folder).tensors()
    assert all(torch.equal(t, wanted[n]) for n, t in everynet.trained(half).tensors().items())
    assert everynet.evaluate(half) == pytest.approx(done.metrics)
    assert everynet.evaluate(half, folder)["accuracy"] >= 0


def test_classes_may_all_be_new(finished, tmp_path):
    """Features are taken from the run; outputs begin anew where their classes do."""
    other = make_folder(tmp_path, sides=(40,), classes=("bird", "fish"))
    made = tuned(other, finished[0])
    made = override(made, made.suited(made.dataset()))
    data, given = made.dataset(), made.start.tensors()
    start = Start.of(made, data.spec)
    own, plain = (begin(made, data, start=one).model.state_dict() for one in (start, None))
    for name, tensor in own.items():
        assert torch.equal(tensor, given[name] if name.startswith("features") else plain[name])
    with pytest.raises(UserError, match="must share classes with the data, because rows"):
        Start.of(replace(find("lenet"), start=made.start), data.spec)


def test_images_are_standardised_as_those_of_the_given_run(finished, tmp_path):
    other = make_folder(tmp_path, sides=(40,), classes=("bird", "fish"))
    made = tuned(other, finished[0])
    spec, given = made.dataset().spec, everynet.trained(finished[0].folder).spec
    assert (spec["mean"], spec["std"], spec["shape"]) == (
        given["mean"], given["std"], given["shape"]
    )  # fmt: skip
    data = made.dataset()
    path = next((tmp_path / "bird").iterdir())
    _, read = find_kind().read([path], spec)
    rows = torch.cat([x for x, _ in data.splits.values()])
    assert (rows - read).abs().amax((1, 2, 3)).min() < 1e-5


def find_kind():
    from everynet.data import kinds

    return kinds.named("image")


@pytest.mark.parametrize("later", [False, True])
def test_standardising_again_is_standardising_otherwise(folder, later):
    data = load(str(folder), kind="image", batch_size=2, size=20)
    pixels = (data.splits["train"][0] * torch.tensor(data.spec["std"])[:, None, None]
              + torch.tensor(data.spec["mean"])[:, None, None])  # fmt: skip
    if later:
        splits = {n: ((255 * pixels).round().to(torch.uint8), y) for n, (_, y) in
                  [("train", data.splits["train"])]}  # fmt: skip
        data = replace(data, splits=splits, prepare=Standardize.of(data.spec))
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    found = restandardize(data, mean, std)
    wanted = (pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(found.some("train", torch.arange(len(wanted)))[0], wanted)
    assert (found.spec["mean"], found.spec["std"]) == (mean, std)
    assert restandardize(found, mean, std) is found


# ---------------------------------------------------------------------------------------- refusals


def test_a_run_of_another_network_or_of_other_channels_is_refused(finished, tmp_path, monkeypatch):
    grey = make_folder(tmp_path, grey=True)
    with pytest.raises(UserError, match=r"of as many channels as those of data \(1\), and its im"):
        tuned(grey, finished[0]).dataset()
    given = tuned(grey, finished[0])
    monkeypatch.setattr(Trained, "recipe", find("cnn-cifar"))
    with pytest.raises(UserError, match=r"must be a run of photos, because .* of cnn-cifar is"):
        given.dataset()


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("photos", {"widths": ()}, r"widths .* must be one or more numbers from 1 up"),
        ("photos", {"blocks": -1}, r"blocks \(-1\) must be at least 0"),
        ("photos", {"frozen": 1.0}, r"frozen \(1.0\) must be at least 0 and below 1"),
        ("photos", {"share": 0.0}, r"share \(0.0\) must be above 0 and at most 1"),
        ("photos", {"batch_size": 1}, r"batch_size \(1\) must be at least 2, because norms"),
        ("photos-vgg", {"width": 8}, r"width \(8\) must be 64, because the published weights"),
        ("photos-vgg", {"widths": (8, 8)}, r"widths .* must be left out, because VGG-19 has"),
        ("photos-vgg", {"blocks": 1}, r"blocks \(1\) must be left out, because VGG-19"),
    ],
)
def test_settings_are_refused_in_a_line(name, settings, words):
    with pytest.raises(UserError, match=words):
        override(find(name), settings)


@pytest.mark.parametrize(("name", "least"), [("photos", 4), ("photos-vgg", 16)])
def test_images_that_are_too_small_are_refused(name, least):
    data = Data.described({"shape": [3, 3, 9], "classes": ("a", "b")})
    with pytest.raises(UserError, match=rf"size \(3\) must be at least {least}, because"):
        find(name).model(data)
