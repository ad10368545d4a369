"""Tomography by a network: it begins as back-projection, its figures, its pictures, its answers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from everynet.data.dataset import Data
from everynet.data.sets import radon
from everynet.recipes.catalog import find
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.vision.unet_tomography import FBPConvNet, back_project, psnr

F64 = torch.float64
SPEC = {
    "shape": [1, 16, 16], "target_shape": [1, 16, 16], "mean": [0.2], "std": [0.5],
    "target_mean": 0.3, "target_std": 0.25, "target_low": 0.0, "target_high": 1.0,
}  # fmt: skip


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


# ---------------------------------------------------------------------------------------- equations


def test_psnr_in_closed_form():
    """Equation (6): an error of a tenth of the range is 20 dB, of a hundredth 40."""
    f = noise(3, 1, 8, 8)
    off = torch.tensor([0.1, 0.01, 1.0], dtype=F64)[:, None, None, None]
    torch.testing.assert_close(psnr(f + off, f, 1.0), torch.tensor([20.0, 40.0, 0.0], dtype=F64))
    torch.testing.assert_close(psnr(f + 4 * off, f, 4.0), psnr(f + off, f, 1.0))
    assert math.isfinite(psnr(f, f, 1.0).sum().item())


def test_a_correction_is_added_to_what_was_given_in_the_units_of_targets():
    """Equation (4): the values of x and of what comes out agree where the correction is 0."""
    net = FBPConvNet(nn.Conv2d(2, 2, 1), gain=[2.0, 3.0], offset=[-1.0, 0.5], peak=4.0).double()
    x = noise(2, 2, 4, 4)
    given = torch.stack([2 * x[:, 0] - 1, 3 * x[:, 1] + 0.5], 1)
    torch.testing.assert_close(net.in_target_units(x), given)
    torch.testing.assert_close(net(x), given + net.correction(x))


@pytest.mark.covers("C26")
def test_the_network_begins_as_back_projection():
    """By weights of 0 in its last layer; values are those that x stands for."""
    net = replace(find("unet-tomography"), width=2, depth=2).model(Data.described(SPEC))
    x = noise(3, 1, 16, 16).float()
    v = net(x)
    torch.testing.assert_close(v, net.in_target_units(x))
    values = x * SPEC["std"][0] + SPEC["mean"][0]
    torch.testing.assert_close(v * 0.25 + 0.3, values, atol=1e-6, rtol=0)
    assert net.peak == pytest.approx(4.0)


def test_the_loss_and_the_gain():
    """Equations (5) and (7), by hand: half the error is 6.02 dB, and one tenth 20."""
    recipe, f = find("unet-tomography"), noise(4, 1, 8, 8)

    class Halved(FBPConvNet):
        def forward(self, x):
            return (self.in_target_units(x) + f) / 2

    e = noise(4, 1, 8, 8, seed=2)
    net = Halved(nn.Identity(), gain=[1.0], offset=[0.0], peak=4.0)
    found = recipe.metrics(net, (f + e, f))
    torch.testing.assert_close(found["gain_db"], torch.full((4,), 20 * math.log10(2), dtype=F64))
    torch.testing.assert_close(found["psnr"] - found["psnr_fbp"], found["gain_db"])
    torch.testing.assert_close(found["psnr_fbp"], psnr(f + e, f, 4.0))
    loss = recipe.objective(net, (f + e, f))["squared_error"]
    torch.testing.assert_close(loss, (e / 2).square().mean())


@pytest.mark.covers("C26")
def test_more_angles_make_back_projection_better():
    """Equations (1) to (3) on pixels: scanned from more angles, an image comes back better."""
    image = radon.raster(radon.ellipses(4, 1), 32)
    made = back_project(image, [6, 20, 60])
    errors = [(one - image).square().mean().item() for one in made]
    assert errors[0] > 2 * errors[1] > 3 * errors[2]
    p = radon.project(image, 20)
    quiet = radon.back_projected(radon.filtered(p, 32), 32)
    assert not torch.allclose(made[1], quiet), "there is noise"
    assert (made[1] - quiet).abs().mean() < 0.2 * (made[0] - image).abs().mean()
    assert torch.equal(back_project(image, [20], seed=0)[0], made[1])


# ------------------------------------------------------------------------------------------ recipe


def test_training_images_are_turned_with_their_targets():
    recipe = replace(find("unet-tomography"), data="phantoms:20", batch_size=6)
    data = recipe.dataset()
    x, f = data.train(0)
    stored = data.stored(0)
    assert not torch.equal(x, stored[0])
    torch.testing.assert_close(x.flatten(1).norm(dim=1), stored[0].flatten(1).norm(dim=1))
    net = recipe.model(data)
    assert (
        (net.in_target_units(x) - f).square().mean()
        - net.in_target_units(stored[0]).sub(stored[1]).square().mean()
    ).abs() < 1e-4
    assert replace(recipe, mirror=False).dataset().augment is None


def test_prediction_is_the_image_and_how_far_it_was_moved():
    recipe = replace(find("unet-tomography"), width=2, depth=2)
    net = recipe.model(Data.described(SPEC)).eval()
    nn.init.constant_(net.correction.output.bias, 0.5)
    x = noise(3, 1, 16, 16).float()
    with torch.no_grad():
        rows = recipe.predict(net, x, SPEC)
        for row, v in zip(rows, net(x), strict=True):
            torch.testing.assert_close(row["image"], v)
            assert row["change"] == pytest.approx(0.5 * 0.25, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": -1}, r"size \(-1\) must be at least 0"),
        ({"width": 0}, r"width \(0\) must be at least 1"),
        ({"depth": 0}, r"depth \(0\) must be a number from 1 to 8"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("unet-tomography"), **fields)


def test_data_it_refuses():
    recipe = find("unet-tomography")
    with pytest.raises(UserError, match=r"must have targets like their images, because a corr"):
        recipe.model(Data.described({**SPEC, "target_shape": [3, 16, 16]}))
    odd = {**SPEC, "shape": [1, 20, 20], "target_shape": [1, 20, 20]}
    with pytest.raises(UserError, match=r"size \(0: images of 20x20\) must be divisible by 8,.*16"):
        recipe.model(Data.described(odd))


def test_images_that_are_not_square_are_refused(tmp_path):
    x = np.zeros((40, 1, 8, 16), np.float32)
    np.savez(tmp_path / "wide.npz", x=x + np.arange(40)[:, None, None, None], y=x)
    with pytest.raises(UserError, match=r"wide.npz: images of 16x8\) must be square, because"):
        replace(find("unet-tomography"), data=str(tmp_path / "wide.npz")).dataset()


def test_the_last_weights_are_kept_when_the_rate_ends_at_zero():
    assert find("unet-tomography").monitor() is None
    assert replace(find("unet-tomography"), schedule="constant").monitor().metric == "gain_db"


# --------------------------------------------------------------------------------------- learning


@pytest.mark.slow
@pytest.mark.covers("C26")
def test_goal(tmp_path):
    """Held-out phantoms: at least 3 dB above filtered back-projection."""
    result = run(find("unet-tomography"), tmp_path)
    assert result.metrics["gain_db"] >= 3
