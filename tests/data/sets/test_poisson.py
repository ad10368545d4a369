"""Poisson's equation: the solver against sines, a sparse solve and a law, and what is drawn."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import diags, identity, kron
from scipy.sparse.linalg import spsolve

from everynet.data import load
from everynet.data.sets import poisson
from everynet.system.errors import UserError


def grid(side):
    at = torch.arange(1, side + 1, dtype=torch.float64) / (side + 1)
    return at[None, :], at[:, None]


def differences(side):
    """The five-point Laplacian, with a minus sign, as a sparse matrix."""
    h = 1 / (side + 1)
    line = diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side)) / h**2
    return (kron(line, identity(side)) + kron(identity(side), line)).tocsc()


@settings(max_examples=8, deadline=None)
@given(k=st.integers(1, 6), m=st.integers(1, 6))
def test_sines_are_divided_by_what_the_equation_multiplies_them_with(k, m):
    """Analytic: u = f / (pi^2 (k^2 + m^2)); differences are off by order h^2, both as computed."""
    errors = []
    for side in (15, 31):
        x, y = grid(side)
        f = (torch.pi * k * x).sin() * (torch.pi * m * y).sin()
        u = poisson.solve(f[None])[0]
        exact = f / (torch.pi**2 * (k**2 + m**2))
        h = 1 / (side + 1)
        by = 4 / h**2 * sum(math.sin(math.pi * n * h / 2) ** 2 for n in (k, m))
        torch.testing.assert_close(u, f / by, rtol=1e-9, atol=1e-12)
        errors.append(float((u - exact).abs().max()))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.25), "twice the points, a quarter"
    assert errors[1] < 0.05 * float(exact.abs().max())


def test_the_first_sine_is_known_to_nine_digits_from_two_grids():
    """Richardson: (4 u_{h/2} - u_h) / 3 is 1 / (2 pi^2) in the middle."""
    middle = []
    for side in (31, 63):
        x, y = grid(side)
        u = poisson.solve(((torch.pi * x).sin() * (torch.pi * y).sin())[None])[0]
        middle.append(float(u[side // 2, side // 2]))
    assert (4 * middle[1] - middle[0]) / 3 == pytest.approx(1 / (2 * torch.pi**2), rel=1e-6)


def test_any_source_as_by_a_sparse_solve():
    f = torch.randn(3, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u = poisson.solve(f)
    for source, field in zip(f, u, strict=True):
        wanted = spsolve(differences(12), source.flatten().numpy()).reshape(12, 12)
        torch.testing.assert_close(field, torch.from_numpy(wanted), rtol=1e-10, atol=1e-12)


def test_the_sine_transform_is_its_own_inverse():
    s = poisson.sines(9)
    torch.testing.assert_close(s @ s, torch.eye(9, dtype=torch.float64))
    torch.testing.assert_close(s, s.mT)


def test_a_response_is_a_row_of_the_inverse():
    """Positive everywhere, symmetric, and times a source it is the field at that place."""
    g = poisson.response(3, 7, 12)
    assert (g > 0).all()
    assert g.argmax() == 3 * 12 + 7
    assert float(g[8, 2]) == pytest.approx(float(poisson.response(8, 2, 12)[3, 7]), rel=1e-12)
    f = poisson.sources(poisson._waves(5, 0), 12)[:1]
    u = poisson.solve(f)
    assert float((g * f[0]).sum()) == pytest.approx(float(u[0, 3, 7]), rel=1e-10)


def test_sources_are_smooth_have_a_mean_square_of_one_and_do_not_vanish_on_the_border():
    f, u = poisson.draw(100, 3)
    torch.testing.assert_close(f.square().mean((1, 2)), torch.ones(100, dtype=torch.float64))
    steps = f.diff(dim=1).square().mean() / f.square().mean()
    assert steps < 0.3, "neighbours are alike"
    assert f[:, 0].square().mean() > 0.5
    assert u[:, 0].square().mean() < 0.1 * u.square().mean()


def test_waves_of_one_number_alone_are_that_cosine():
    heights = torch.zeros(1, poisson.WAVES, poisson.WAVES, dtype=torch.float64)
    heights[0, 2, 3] = 5.0
    x, y = grid(poisson.SIDE)
    wanted = (2 * torch.pi * y).cos() * (3 * torch.pi * x).cos()
    wanted = wanted / wanted.square().mean().sqrt()
    torch.testing.assert_close(poisson.sources(heights)[0], wanted)


def test_higher_waves_fade():
    """Two alone, equal in height: their share in the sum is exp(-(k^2 + m^2) / (2 FADES^2))."""
    heights = torch.zeros(1, poisson.WAVES, poisson.WAVES, dtype=torch.float64)
    heights[0, 0, 1] = heights[0, 6, 2] = 1.0
    x, y = grid(poisson.SIDE)
    f = poisson.sources(heights)[0]
    basis = torch.stack(
        [
            ((torch.pi * x).cos() * torch.ones_like(y)).flatten(),
            ((6 * torch.pi * y).cos() * (2 * torch.pi * x).cos()).flatten(),
        ],
        1,
    )
    low, high = torch.linalg.lstsq(basis, f.flatten()[:, None], driver="gelsd").solution[:, 0]
    fades = torch.tensor(-(40 - 1) / (2 * poisson.FADES**2)).exp()
    assert float(high / low) == pytest.approx(float(fades), rel=1e-6)


def test_a_sample_follows_from_its_number_alone():
    few, many = poisson.draw(7, 5), poisson.draw(60, 5)
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b[:7], rtol=1e-12, atol=1e-15)
    assert not torch.equal(poisson.draw(7, 6)[0], few[0])


def test_the_set_is_described_and_its_training_means_vanish():
    data = load("poisson:100", kind="map", batch_size=4)
    assert data.spec["shape"] == data.spec["target_shape"] == [1, 32, 32]
    assert [data.rows(part) for part in ("train", "valid", "test")] == [90, 10, 20]
    assert abs(data.spec["target_mean"]) < 1e-15
    assert abs(data.spec["mean"][0]) < 1e-12
    f, u = (part.double()[:, 0] for part in data.splits["valid"])
    again = poisson.solve(f * data.spec["std"][0]) / data.spec["target_std"]
    torch.testing.assert_close(again, u, rtol=1e-4, atol=1e-5)
    assert data.digest == load("poisson:100", kind="map", batch_size=4).digest
    assert data.digest != load("poisson:60", kind="map", batch_size=4).digest


@pytest.mark.parametrize("count", [19, 1_000_001])
def test_counts_it_refuses(count):
    with pytest.raises(UserError, match=rf"poisson:{count} must be from poisson:20 to"):
        load(f"poisson:{count}", kind="map", batch_size=4)
