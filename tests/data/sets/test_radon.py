"""Tomography: scans in closed form and by sums, the ramp filter, and images that come back."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data import load
from everynet.data.sets import radon
from everynet.system.errors import UserError
from everynet.system.seeds import generator

F64 = torch.float64


def one(right=0.0, up=0.0, along=0.5, across=0.5, turn=0.0, value=1.0):  # noqa: PLR0917
    return torch.tensor([[[right, up, along, across, turn, value]]], dtype=F64)


def chord(ellipse, t, s, places=40_001):
    """The integral along a line by the sum of very many places."""
    right, up, along, across, turn, value = ellipse[0, 0].tolist()
    r = torch.linspace(-2, 2, places, dtype=F64)
    x, y = s * math.cos(t) - r * math.sin(t) - right, s * math.sin(t) + r * math.cos(t) - up
    u = (math.cos(turn) * x + math.sin(turn) * y) / along
    v = (math.cos(turn) * y - math.sin(turn) * x) / across
    return value * float((u**2 + v**2 < 1).double().sum()) * 4 / (places - 1)


# --------------------------------------------------------------------------------------- scanning


def test_a_disc_casts_the_same_shadow_from_everywhere():
    """2 v sqrt(r^2 - s^2)."""
    s = radon.detectors(64).double()
    wanted = 2 * 3 * (0.5**2 - s**2).clamp(min=0).sqrt()
    sinogram = radon.seen(one(along=0.5, across=0.5, value=3.0), 7)[0]
    for row in sinogram:
        torch.testing.assert_close(row, wanted, rtol=1e-6, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    right=st.floats(-0.3, 0.3),
    up=st.floats(-0.3, 0.3),
    along=st.floats(0.2, 0.6),
    across=st.floats(0.1, 0.5),
    turn=st.floats(0, 3.1),
    value=st.floats(-1, 2),
)
def test_an_ellipse_casts_the_shadow_that_lines_through_it_measure(**given_):
    ellipse = one(**given_)
    sinogram = radon.seen(ellipse, 5, 16)[0]
    s = radon.detectors(16)
    for angle, t in enumerate(radon.directions(5).tolist()):
        for place in (7, 10, 14):
            wanted = chord(ellipse, t, float(s[place]))
            assert float(sinogram[angle, place]) == pytest.approx(wanted, abs=2e-3)


def test_shadows_add_and_each_holds_the_whole():
    """The mean over detectors of every angle is the mass of the image: pi a b v."""
    both = torch.cat([one(0.1, 0.2, 0.3, 0.2, 0.4, 2.0), one(-0.2, 0.0, 0.4, 0.3, 1.0, -1.0)], 1)
    sinogram = radon.seen(both, 9, 256)
    apart = radon.seen(both[:, :1], 9, 256) + radon.seen(both[:, 1:], 9, 256)
    torch.testing.assert_close(sinogram, apart)
    mass = sinogram[0].sum(1) * 2 / 256
    wanted = math.pi * (2.0 * 0.3 * 0.2 - 0.4 * 0.3)
    torch.testing.assert_close(mass, torch.full_like(mass, wanted), rtol=0, atol=2e-3)


def test_an_image_is_the_share_of_each_pixel_that_an_ellipse_covers():
    """Its mass is pi a b v, its middle the centre, and a turn of 90 degrees exchanges the axes."""
    ellipse = one(0.2, -0.1, 0.5, 0.3, 0.7, 2.0)
    image = radon.raster(ellipse, 64, 4)[0]
    x, area = radon.centres(64).double(), (2 / 64) ** 2
    assert float(image.sum() * area) == pytest.approx(2 * math.pi * 0.15, rel=5e-3)
    assert float((image.sum(0) * x).sum() / image.sum()) == pytest.approx(0.2, abs=2e-3)
    assert float((image.sum(1) * -x).sum() / image.sum()) == pytest.approx(-0.1, abs=2e-3)
    torch.testing.assert_close(
        radon.raster(one(0, 0, 0.5, 0.3, math.pi / 2)), radon.raster(one(0, 0, 0.3, 0.5, 0.0))
    )
    tilted = radon.raster(one(0, 0, 0.8, 0.1, math.pi / 4))[0]
    assert tilted[:32, 32:].sum() > 5 * tilted[:32, :32].sum(), "counter-clockwise"


def test_what_pixels_cast_is_what_their_ellipses_cast():
    """The sum over a turned image, against the closed form, within what a pixel's edge leaves."""
    ellipses = radon.ellipses(6, 3)
    exact, summed = radon.seen(ellipses, 24), radon.project(radon.raster(ellipses, 64, 4), 24)
    assert summed.shape == exact.shape == (6, 24, 92)
    assert float((summed - exact).abs().mean() / exact.mean()) < 0.01
    assert float((summed - exact).abs().max()) < 0.1 * float(exact.max())


def test_from_the_side_and_from_below_sums_of_pixels_are_plain_sums():
    """At 0 degrees detectors see columns, at 90 rows, the uppermost last."""
    image = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=F64)
    across = radon.project(image, 2)[0]
    outside = (across.shape[1] - 8) // 2
    torch.testing.assert_close(across[0, outside:-outside], image[0].sum(0) * 2 / 8)
    torch.testing.assert_close(across[1, outside:-outside], image[0].sum(1).flip(0) * 2 / 8)
    assert across[:, :outside].abs().max() < 1e-6


def test_noise_is_a_share_of_the_largest_value_of_each_scan():
    scans = torch.stack([torch.full((60, 92), 2.0), torch.full((60, 92), 10.0)])
    errors = radon.noisy(scans, generator(1)) - scans
    for error, most in zip(errors, (2.0, 10.0), strict=True):
        assert float(error.std()) == pytest.approx(0.01 * most, rel=0.05)  # 5520 numbers: 1 %
        assert abs(float(error.mean())) < 4 * 0.01 * most / 5520**0.5


# --------------------------------------------------------------------------------- reconstruction


def test_the_ramp_filter_weighs_each_frequency_by_its_size():
    """The transform of h, on 2 M places, is |frequency| but for its end: Kak and Slaney, fig. 3."""
    count, spacing = 64, 2 / 64
    matrix = radon.ramp(2 * count, spacing).double()
    row = matrix[count]  # h around the middle
    response = torch.fft.rfft(torch.roll(row, -count)).real
    frequency = torch.fft.rfftfreq(2 * count, spacing).double()
    torch.testing.assert_close(response, frequency, rtol=0, atol=2e-2 * float(frequency.max()))
    assert abs(float(response[0])) < 0.01 * float(frequency.max())
    assert float(row[count]) == pytest.approx(1 / (4 * spacing), rel=1e-6)
    assert float(row[count + 1]) == pytest.approx(-1 / (math.pi**2 * spacing), rel=1e-6)
    assert row[count + 2] == 0
    assert float(row[count - 3]) == pytest.approx(-1 / (9 * math.pi**2 * spacing), rel=1e-6)


def test_many_angles_give_the_image_back():
    """The inside of a disc to one part in a hundred, the outside to two, wherever it is."""
    for right, up, value in ((0.0, 0.0, 1.0), (0.3, -0.2, 2.0)):
        disc = one(right, up, 0.5, 0.5, 0.0, value)
        made = radon.reconstructed(radon.seen(disc, 180))[0]
        at = radon.centres(64).double()
        away = ((at - right) ** 2 + (-at[:, None] - up) ** 2).sqrt()
        assert float((made - value)[away < 0.4].abs().mean()) < 0.01 * value
        assert float(made[away > 0.6].abs().mean()) < 0.02 * value
        assert abs(float(made[away > 0.6].mean())) < 0.005 * value
        assert float(made[away < 0.4].mean()) == pytest.approx(value, rel=5e-3)


def test_an_image_comes_back_the_right_way_up():
    image = radon.raster(radon.ellipses(8, 2))
    made = radon.reconstructed(radon.seen(radon.ellipses(8, 2), 120))
    close = (made - image).square().mean()
    for moved in (image.flip(1), image.flip(2), image.mT):
        assert close < 0.2 * (made - moved).square().mean()


def test_one_angle_smears_what_it_saw_along_its_lines():
    """Back-projection alone: from 0 degrees each column has what its detector saw, times pi."""
    scan = torch.rand(1, 1, 92, generator=torch.Generator().manual_seed(0), dtype=F64)
    made = radon.back_projected(scan)[0]
    inner = scan[0, 0, 14:-14]
    torch.testing.assert_close(made, (math.pi * inner).expand(64, 64), rtol=1e-5, atol=1e-5)


def test_reconstruction_is_linear_and_more_angles_are_better():
    ellipses = radon.ellipses(4, 1)
    image, scan = radon.raster(ellipses), radon.seen(ellipses)
    torch.testing.assert_close(
        radon.reconstructed(2 * scan - scan.flip(0)),
        2 * radon.reconstructed(scan) - radon.reconstructed(scan.flip(0)),
        rtol=1e-4,
        atol=1e-4,
    )
    errors = [
        float((radon.reconstructed(radon.seen(ellipses, angles)) - image).square().mean())
        for angles in (8, 20, 60)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


# ---------------------------------------------------------------------------------------- the set


def test_phantoms_are_bodies_with_things_in_them():
    image, scan, undone = radon.draw(60, 4)
    assert image.shape == undone.shape == (60, 64, 64)
    assert scan.shape == (60, 60, 92)
    torch.testing.assert_close(image.amax((1, 2)), torch.ones(60))
    assert image.min() > -0.2
    ellipses = radon.ellipses(60, 4)
    things = (ellipses[:, 1:, 5] != 0).sum(1)
    assert things.min() == 2
    assert things.max() == radon.INNER
    reach = ellipses[..., :2].norm(dim=-1) + ellipses[..., 2:4].amax(-1)
    assert reach[:, 0].max() < 1, "within what every detector row sees"
    error = (undone - image).square().mean((1, 2)).sqrt()
    assert 0.01 < error.min() < error.max() < 0.08


def test_a_phantom_follows_from_its_number_and_the_seed():
    assert torch.equal(radon.ellipses(7, 5), radon.ellipses(120, 5)[:7])
    assert not torch.equal(radon.ellipses(7, 5), radon.ellipses(7, 6))


def test_the_set_is_described():
    data = load("phantoms:20", kind="map", batch_size=4)
    assert data.spec["shape"] == data.spec["target_shape"] == [1, 64, 64]
    assert [data.rows(part) for part in ("train", "valid", "test")] == [18, 2, 4]
    assert data.digest == load("phantoms:20", kind="map", batch_size=4).digest
    assert data.spec["target_high"] == 1.0


@pytest.mark.parametrize("count", [19, 100_001])
def test_counts_it_refuses(count):
    with pytest.raises(UserError, match=rf"phantoms:{count} must be from phantoms:20 to"):
        load(f"phantoms:{count}", kind="map", batch_size=4)
