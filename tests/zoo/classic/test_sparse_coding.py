import csv
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.decomposition import sparse_encode
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from torch.nn.functional import normalize

from everynet.cli import main
from everynet.runs.verbs import run
from everynet.system.errors import UserError
from everynet.zoo.classic.sparse_coding import (
    RECIPES,
    PhotoCode,
    SparseCoding,
    cut_patches,
    encode,
    ista,
    join_patches,
    objective,
    soft_threshold,
    update_dictionary,
)


def some(seed=0, n=40, d=6, atoms=9):
    """Rows that are sums of two atoms, and the dictionary."""
    draw = torch.Generator().manual_seed(seed)
    dictionary = normalize(torch.randn(atoms, d, generator=draw, dtype=torch.float64), dim=1)
    codes = torch.zeros(n, atoms, dtype=torch.float64)
    for row in codes:
        row[torch.randperm(atoms, generator=draw)[:2]] = torch.randn(2, generator=draw).double() + 2
    return codes @ dictionary, dictionary


@pytest.mark.covers("M23")
@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_the_codes_are_scikit_learns_lasso(alpha):
    x, d = some()
    theirs = sparse_encode(
        x.numpy(), d.numpy(), algorithm="lasso_cd", alpha=alpha, max_iter=100_000
    )
    ours = encode(x, d, alpha, 1e-9)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    reached, wanted = (float(objective(x, torch.as_tensor(c), d, alpha)) for c in (ours, theirs))
    assert reached <= wanted + 1e-9


def test_at_the_end_the_subgradient_holds_zero():
    """|D (x - c D)| is alpha where a code is not 0, with its sign, and at most alpha elsewhere."""
    (x, d), alpha = some(), 0.3
    codes = encode(x, d, alpha, 1e-10)
    slope = (x - codes @ d) @ d.T
    on = codes != 0
    torch.testing.assert_close(slope[on], alpha * codes[on].sign(), atol=1e-6, rtol=0)
    assert slope[~on].abs().max() <= alpha + 1e-6
    assert 0 < on.double().mean() < 0.6


def test_one_atom_alone_by_hand():
    """With one atom of length 1 the code is x d, nearer to 0 by alpha."""
    d = torch.tensor([[0.6, 0.8]]).double()
    x = torch.tensor([[3.0, 4.0], [-0.6, -0.8], [0.1, 0.0]]).double()
    assert encode(x, d, 0.5, 1e-12)[:, 0].tolist() == pytest.approx([4.5, -0.5, 0])
    assert soft_threshold(torch.tensor([-2.0, 0.5, 3.0]), 1.0).tolist() == [-1, 0, 2]
    assert objective(x[:1], torch.tensor([[4.0]]).double(), d, 0.5).item() == pytest.approx(2.5)


@pytest.mark.covers("M23")
@given(seed=st.integers(0, 10_000), alpha=st.floats(0.01, 2.0))
@settings(max_examples=10, deadline=None)
def test_the_objective_falls_at_every_step(seed, alpha):
    x, d = some(seed)
    curve = torch.as_tensor(SparseCoding(12, alpha, max_iter=6, steps=4).fit(x).objectives_)
    assert len(curve) == 6 * 5
    assert (curve.diff() <= 1e-12).all()
    values = [float(objective(x, c, d, alpha)) for c in ista(x, d, alpha, x @ d.T, 5)]
    assert all(b <= a + 1e-12 for a, b in pairwise(values))


def test_each_atom_is_the_best_there_is_for_the_codes():
    """(4) and (5): no small step of one atom inside the ball lowers the error."""
    x, d = some()
    codes = encode(x, d, 0.1, 1e-6)
    for _ in range(400):
        d = update_dictionary(x, codes, d)
    slope = codes.T @ (codes @ d - x)  # the gradient of half the squared error
    inside = d.norm(dim=1) < 1 - 1e-9
    assert slope[inside].abs().max() < 1e-5 if inside.any() else True
    along = (slope * d).sum(1)[~inside]
    across = slope[~inside] - along[:, None] * d[~inside]
    assert (along <= 1e-6).all()  # the error would fall outwards alone
    assert across.abs().max() < 1e-4


def test_atoms_that_no_row_uses_become_the_rows_that_are_coded_worst():
    x, d = some(atoms=4)
    codes = torch.zeros(40, 4).double()
    codes[:, 0] = 1e-3
    made = update_dictionary(x, codes, d)
    worst = (x - codes @ made[:1].expand(4, -1)).square().sum(1).argmax()
    torch.testing.assert_close(made[1], normalize(x[worst], dim=0))
    assert objective(x, codes, made, 0.1) <= objective(x, codes, d, 0.1)


def test_the_dictionary_that_made_the_rows_is_found_again():
    x, d = some(n=1500, atoms=6)
    model = SparseCoding(6, alpha=0.05, max_iter=200, random_state=1).fit(x)
    alike = (model.components_ @ d.T).abs().amax(0)
    assert alike.median() > 0.99


def test_in_a_pipeline_the_sparsity_is_searched():
    x, _ = some(n=90)
    pipeline = make_pipeline(SparseCoding(max_iter=10), LinearRegression())
    search = GridSearchCV(pipeline, {"sparsecoding__alpha": [0.01, 100.0]}, cv=3)
    search.fit(x.numpy(), x[:, 0].numpy())
    assert search.best_params_ == {"sparsecoding__alpha": 0.01}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"n_components": 41}, r"n_components \(41\) must be from 1 to 40, because X has .* = 40"),
        ({"alpha": 0.0}, r"alpha \(0.0\) must be a positive number"),
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"max_iter": 0}, r"max_iter \(0\) must be at least 1"),
    ],
)
def test_what_cannot_be_learned_is_refused(given, line):
    with pytest.raises(UserError, match=line):
        SparseCoding(**given).fit(some()[0])
    with pytest.raises(ValueError, match="Input X contains NaN"):
        SparseCoding().fit(some()[0] * math.nan)


def test_codes_that_did_not_come_to_rest_are_said():
    x, d = some()
    with pytest.warns(match=r"40 codes still moved by more than tol \(1e-06\) after 2 steps"):
        encode(x, d, 0.1, 1e-6, most=2)


def test_patches_are_cut_and_joined():
    x = torch.randn(2, 1, 12, 12)
    patches, means = cut_patches(x, 4)
    torch.testing.assert_close(patches[1] + means[1], x[0, 0, :4, 4:8].flatten())
    torch.testing.assert_close(join_patches(patches + means, 12, 4), x)


def test_a_picture_becomes_a_csv_of_codes_and_a_reconstruction(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = PhotoCode(size=16, images=40, atoms=20, iterations=3)
    result = run(recipe, tmp_path / "runs")
    grey = np.linspace(40, 200, 256).astype(np.uint8).reshape(16, 16)
    Image.fromarray(grey).save("own.png")
    assert main(["predict", str(result.folder), "own.png", "--out", "codes.csv"]) == 0
    (row,) = csv.DictReader(Path("codes.csv").read_text().splitlines())
    assert len([name for name in row if name.startswith("code.")]) == 4 * 20
    assert main(["predict", str(result.folder), "own.png", "--out", "made"]) == 0
    with Image.open("made/own-reconstruction.png") as image:
        made = np.asarray(image.convert("L"), float)
    assert made.shape == (16, 16)
    assert abs(made - grey).mean() < 20  # in grey levels, not in standard deviations


@pytest.mark.slow
def test_the_recipe_reaches_its_goal(tmp_path):
    assert run(RECIPES["sparse-coding"], tmp_path).reached


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match=r"size \(60\) must be a multiple of patch \(8\)"):
        PhotoCode(size=60)
    with pytest.raises(UserError, match=r"size \(200\) must be at most a fifth of the width"):
        PhotoCode(size=200).dataset()
    model = SparseCoding(4, max_iter=2).fit(some()[0])
    with pytest.raises(ValueError, match="n_features_in_ must be 64, the pixels of a patch"):
        PhotoCode().check_learned(model, {})
