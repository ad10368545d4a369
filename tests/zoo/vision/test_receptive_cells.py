"""ReceptiveCells of the eye and cortex in closed form, and histograms of gradients."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet import runs
from everynet.data.dataset import Data
from everynet.recipes.catalog import find
from everynet.system.errors import UserError
from everynet.zoo.vision.cnn import CNNPhotographs
from everynet.zoo.vision.receptive_cells import (
    BINS,
    CellRow,
    _places,
    centre_surround,
    complex_response,
    gaussian,
    grating,
    hog,
    preferred_angle,
    selectivity,
    simple_field,
    simple_response,
)

ROW = CellRow(41, 1.5, 1.6, 7, 2.0)
PHASES = torch.linspace(0, 2 * math.pi, 25, dtype=torch.float64)


# ------------------------------------------------------------------------------------ the cells


def test_a_bell_is_that_of_the_normal_law():
    x, y = _places(41)
    g = gaussian(x, y, 2.0)
    assert float(g.sum()) == pytest.approx(1, abs=1e-9)
    assert float((g * x**2).sum()) == pytest.approx(4, abs=1e-6)  # its variance
    assert float(g[20, 20]) == pytest.approx(1 / (2 * math.pi * 4))


def test_centre_and_surround_cancel_in_even_light():
    x, y = _places(61)
    field = centre_surround(x, y, 1.5, 1.6)
    assert float(field.sum()) == pytest.approx(0, abs=1e-9)
    assert float(field[30, 30]) == pytest.approx((1 - 1 / 1.6**2) / (2 * math.pi * 1.5**2))
    assert float(field[30, 34]) < 0  # a ring around it


@pytest.mark.parametrize("wave", [6.0, 10.0, 20.0])
def test_what_a_centre_surround_cell_lets_pass(wave):
    """The transform of (1): exp(-s^2 f^2 / 2) - exp(-k^2 s^2 f^2 / 2)."""
    x, y = _places(61)
    field, f = centre_surround(x, y, 1.5, 1.6), 2 * math.pi / wave
    law = math.exp(-(1.5**2) * f**2 / 2) - math.exp(-(2.4**2) * f**2 / 2)
    found = (field * grating(61, 0.7, wave, 0.0)).sum()
    assert float(found) == pytest.approx(law, abs=1e-6)


def test_the_best_wave_is_where_most_passes():
    recipe = find("receptive-cells")
    s, k, f = recipe.centre, recipe.surround, 2 * math.pi / recipe.wave()

    def passes(f):
        return math.exp(-((s * f) ** 2) / 2) - math.exp(-((k * s * f) ** 2) / 2)

    assert passes(f) > max(passes(1.05 * f), passes(0.95 * f))


def test_a_simple_cell_is_a_row_of_centre_surround_cells():
    """(2) with every cell written out, along 30 degrees."""
    x, y = _places(41)
    a, expected = math.radians(30), 0.0
    for n in range(7):
        d = (n - 3) * 2.0
        weight = math.exp(-(d**2) / (2 * 3.5**2))
        expected = expected + weight * centre_surround(
            x - d * math.cos(a), y - d * math.sin(a), 1.5, 1.6
        )
    torch.testing.assert_close(simple_field(ROW, a), expected)


def test_the_answer_is_rectified_and_the_energy_is_a_sum_of_squares():
    field, other = simple_field(ROW, 0.3), simple_field(ROW, 0.3, 2.0)
    x = torch.randn(5, 41, 41, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, two = torch.einsum("ij,nij->n", field, x), torch.einsum("ij,nij->n", other, x)
    torch.testing.assert_close(simple_response(field, x), one * (one > 0))
    assert float(simple_response(field, x).min()) == 0
    torch.testing.assert_close(complex_response(field, other, x), one * one + two * two)


@settings(max_examples=8, deadline=None)
@given(degrees=st.integers(0, 179))
def test_tuning_peaks_at_the_angle_that_was_built(degrees):
    recipe, built = find("receptive-cells"), math.radians(degrees)
    angles = torch.arange(36, dtype=torch.float64) * (math.pi / 36)
    field = simple_field(ROW, built)
    r = torch.stack(
        [
            simple_response(field, grating(41, float(a), recipe.wave(), PHASES)).amax()
            for a in angles
        ]
    )
    gap = abs(preferred_angle(r, angles) - built) % math.pi
    assert min(gap, math.pi - gap) < math.radians(1)
    assert selectivity(r, angles) > 0.5


@settings(max_examples=8, deadline=None)
@given(degrees=st.integers(0, 179))
def test_a_complex_cell_does_not_care_for_the_phase(degrees):
    wave, built = find("receptive-cells").wave(), math.radians(degrees)
    field, other = simple_field(ROW, built), simple_field(ROW, built, wave / 4)
    bars = grating(41, built, wave, PHASES)
    c, r = complex_response(field, other, bars), simple_response(field, bars)
    assert float((c.max() - c.min()) / c.mean()) < 1e-3
    assert float(r.min()) == 0 < float(r.max())


def test_selectivity_of_known_answers():
    angles = torch.arange(12, dtype=torch.float64) * (math.pi / 12)
    one = torch.zeros(12, dtype=torch.float64)
    one[4] = 3.0
    assert selectivity(one, angles) == pytest.approx(1)
    assert preferred_angle(one, angles) == pytest.approx(math.pi / 3)
    assert selectivity(torch.ones(12).double(), angles) == pytest.approx(0, abs=1e-12)
    wave = 1 + (2 * (angles - 0.4)).cos()  # its OSI is 1/2, its peak 0.4
    assert selectivity(wave, angles) == pytest.approx(0.5)
    assert preferred_angle(wave, angles) == pytest.approx(0.4)


# ------------------------------------------------------------------------------------ histograms


def ramp(degrees, side=8):
    """An image whose gradient is 1 everywhere and points at an angle, counterclockwise."""
    at = torch.arange(side, dtype=torch.float64)
    a = math.radians(degrees)
    return (math.cos(a) * at[None] - math.sin(a) * at[:, None])[None, None]


@pytest.mark.parametrize("degrees", [0.0, 20.0, 50.0, 110.0, 175.0, 200.0])
def test_a_ramp_votes_for_its_angle_in_two_neighbouring_bins(degrees):
    """Away from the border the gradient is exact; a block of 2 x 2 equal cells, then normed."""
    f = hog(ramp(degrees, 12), 3, e=0.0).reshape(3, 3, 4, BINS)[1, 1]
    place = degrees % 180 / 20
    low, share = int(place) % BINS, place - int(place)
    h = torch.zeros(BINS, dtype=torch.float64)
    h[low] += 1 - share
    h[(low + 1) % BINS] += share
    expected = (h / h.norm() / 2).expand(4, -1)  # four cells alike: each has half of the norm
    torch.testing.assert_close(f, expected)


def test_histograms_do_not_see_brightness_and_hardly_contrast():
    x = torch.rand(2, 1, 12, 12, dtype=torch.float64)
    f = hog(x, 3)
    torch.testing.assert_close(hog(x + 5, 3), f)
    torch.testing.assert_close(hog(3 * x, 3), f, atol=1e-4, rtol=0)
    torch.testing.assert_close(hog(-x, 3), f)  # angles modulo 180 degrees
    assert f.shape == (2, 3 * 3 * 4 * BINS)
    assert float(hog(torch.ones(1, 1, 8, 8), 2).abs().max()) == 0


def test_a_quarter_turn_moves_votes_by_ninety_degrees():
    """Nine bins have no bin 90 degrees on, so votes of 20 and 110 degrees are compared."""
    x, y = (hog(ramp(d, 12), 3).reshape(3, 3, 4, BINS)[1, 1, 0] for d in (20.0, 110.0))
    assert int(x.argmax()) == 1
    assert y[5] == pytest.approx(float(y[6]))


# --------------------------------------------------------------------------------------- recipe


def test_classifiers_learn_from_training_images_and_are_tested_on_others(monkeypatch):
    """Classes of test images are swapped, so whoever learned from them would find them right."""
    recipe = replace(find("receptive-cells"), steps=30)
    x = torch.zeros(40, 1, 8, 8)
    x[::2, :, :, :4], x[1::2, :, 4:] = 1.0, 1.0
    x, y = x + 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)), (
        torch.arange(40) % 2
    )  # fmt: skip
    splits = {
        "train": (x[:20], y[:20]),
        "valid": (x[20:30], y[20:30]),
        "test": (x[30:], 1 - y[30:]),
    }
    spec = {"shape": [1, 8, 8], "classes": ["a", "b"]}
    given_ = Data(splits, spec, batch_size=20)
    monkeypatch.setattr(CNNPhotographs, "dataset", lambda self: given_)
    assert recipe.classify()["told"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"angles": ()}, r"angles \(\(\)\) must be one or more"),
        ({"side": 5}, r"side \(5\) must be at least 9"),
        ({"centre": 0.0}, r"centre \(0.0\) must be a positive number"),
        ({"surround": 1.0}, r"surround \(1.0\) must be above 1"),
        ({"row": 1}, r"row \(1\) must be at least 2"),
        ({"gap": 0.0}, r"gap \(0.0\) must be a positive number"),
        ({"tried": 3}, r"tried \(3\) must be at least 8"),
        ({"cell": 0}, r"cell \(0\) must be at least 1"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
    ],
)
def test_settings_it_refuses(fields, message):
    with pytest.raises(UserError, match=message):
        replace(find("receptive-cells"), **fields)


@pytest.mark.slow
@pytest.mark.covers("C12")
def test_the_goal_is_reached_and_histograms_beat_pixels(tmp_path):
    result = runs.run(find("receptive-cells"), tmp_path)
    assert result.reached
    assert result.metrics["hog_svm"] > result.metrics["pixels_svm"]
