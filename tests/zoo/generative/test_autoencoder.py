"""Autoencoders: the linear one is PCA, tied weights share a gradient, codes go in and out."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from everynet.runs.answer_table import write_table
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.loop import evaluate, trained
from everynet.zoo.generative.autoencoder import (
    RECIPES,
    Autoencoder,
    TiedAutoencoder,
    add_noise,
    principal_components,
    project,
    squared_error,
)

SMALL = replace(RECIPES["autoencoder"].tiny(), name="autoencoder", hidden_sizes=(6,), latent_size=3)


def largest_angle(first, second):
    """Degrees between the subspaces that the columns of two matrices span."""
    (a, _), (b, _) = (torch.linalg.qr(each) for each in (first, second))
    outside = b - a @ (a.T @ b)  # by the sine, because the cosine of a small angle is all but 1
    return torch.linalg.matrix_norm(outside, 2).clamp(max=1).asin().rad2deg()


@pytest.fixture
def rows():
    """Rows whose variances along some directions are far enough apart to tell them."""
    with seeded_by(1):
        turn = torch.linalg.qr(torch.randn(6, 6).double())[0]
        scale = torch.tensor([3.0, 2.0, 1.2, 0.5, 0.3, 0.1]).double()
        return torch.randn(300, 6).double() * scale @ turn + 1


# ----------------------------------------------------------------------------------- equations


def test_components_are_those_of_the_singular_values(rows):
    found = project(rows, *principal_components(rows, 2))
    centred = rows - rows.mean(0)
    u, s, v = torch.linalg.svd(centred, full_matrices=False)
    torch.testing.assert_close(found, rows.mean(0) + u[:, :2] * s[:2] @ v[:2])
    left = squared_error(found, rows).mean()
    torch.testing.assert_close(left, s[2:].square().sum() / rows.numel())
    torch.testing.assert_close(project(rows, *principal_components(rows, 6)), rows)


def fit(model, rows):
    """The weights of least error, by a method of second order."""
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1000, tolerance_change=1e-14,
                                  tolerance_grad=1e-10, line_search_fn="strong_wolfe")  # fmt: skip

    def loss():
        optimizer.zero_grad()
        value = squared_error(model(rows), rows).mean()
        value.backward()
        return value

    optimizer.step(loss)
    return loss().detach()


@pytest.mark.parametrize("cls", [Autoencoder, TiedAutoencoder])
def test_the_linear_network_spans_the_principal_subspace(cls, rows):
    with seeded_by(2):
        model = cls((6, 3)).double()
    loss, components = fit(model, rows), principal_components(rows, 3)
    best = squared_error(project(rows, *components), rows).mean()
    torch.testing.assert_close(loss, best, rtol=1e-4, atol=0)
    last = model.decoder[-1].weight if cls is Autoencoder else model.encoder[0].weight.T
    assert largest_angle(last.detach(), components[1]) < 1


def test_layers_by_hand():
    model = Autoencoder((2, 2, 1)).double()
    first, _, second = model.encoder
    third, _, fourth = model.decoder
    x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]]).double()
    z = (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
    torch.testing.assert_close(model.encode(x), z)
    made = (z @ third.weight.T + third.bias).clamp(min=0) @ fourth.weight.T + fourth.bias
    torch.testing.assert_close(model(x), made)
    wanted = ((made - x) ** 2).sum(1) / 2
    torch.testing.assert_close(squared_error(made, x), wanted)


def untied(tied, sizes):
    """The same network with matrices of its own in the decoder."""
    free = Autoencoder(sizes).double()
    free.encoder.load_state_dict(tied.encoder.state_dict())
    weights = [layer.weight for layer in tied.encoder if isinstance(layer, nn.Linear)]
    into = [layer for layer in free.decoder if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, weight, bias in zip(into, weights[::-1], [*tied.biases][::-1], strict=True):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
    return free


def test_the_gradient_of_a_tied_weight_is_the_sum_of_both_uses():
    sizes = (5, 4, 2)
    with seeded_by(3):
        tied, x = TiedAutoencoder(sizes).double(), torch.randn(7, 5).double()
        for bias in tied.biases:
            nn.init.normal_(bias)
    free = untied(tied, sizes)
    torch.testing.assert_close(tied(x), free(x))
    for model in (tied, free):
        squared_error(model(x), x).mean().backward()
    for number, tied_layer in ((0, 0), (2, 2)):
        encoder, decoder = free.encoder[number], free.decoder[2 - number]
        both = encoder.weight.grad + decoder.weight.grad.T
        torch.testing.assert_close(tied.encoder[tied_layer].weight.grad, both)
        assert decoder.weight.grad.abs().max() > 1e-3
    weights = list(tied.parameters())
    names = [name for name, _ in tied.named_parameters()]

    def loss(*values):
        made = torch.func.functional_call(tied, dict(zip(names, values, strict=True)), (x,))
        return squared_error(made, x).mean()

    assert torch.autograd.gradcheck(loss, [w.detach().clone().requires_grad_() for w in weights])


def test_tied_weights_are_half_as_many():
    sizes = (64, 20, 8)
    free, tied = ([p for p in cls(sizes).parameters() if p.dim() == 2]
                  for cls in (Autoencoder, TiedAutoencoder))  # fmt: skip
    assert sum(p.numel() for p in free) == 2 * sum(p.numel() for p in tied)


def test_noise_has_its_size_and_is_not_in_the_target():
    x = torch.full((400, 500), 0.5)
    with seeded_by(4):
        n = add_noise(x, 0.3) - x
    assert n.mean().abs() < 5 * 0.3 / n.numel() ** 0.5
    assert (n.std() / 0.3 - 1).abs() < 5 / (2 * n.numel()) ** 0.5
    recipe = replace(SMALL, noise=0.5)
    data = recipe.dataset()
    model = recipe.model(data)
    batch = (data.splits["test"][0][:200],)
    with seeded_by(5):
        found = recipe.metrics(model, batch)
    assert found["noisy_mse"].mean().item() == pytest.approx(0.25, rel=0.05)
    with seeded_by(5):
        x = batch[0].flatten(1)
        wanted = squared_error(model(x + 0.5 * torch.randn_like(x)), x)
    torch.testing.assert_close(wanted, found["mse"])
    with seeded_by(5):
        torch.testing.assert_close(recipe.objective(model, batch)["mse"], found["mse"].mean())


# ------------------------------------------------------------------------------------ the recipe


@pytest.fixture(scope="module")
def learned():
    data = SMALL.dataset()
    return SMALL, trained(SMALL, data), data


def test_codes_reconstructions_and_lines_between_two(learned):
    recipe, model, data = learned
    two = data.splits["test"][0][:2]
    with torch.no_grad():
        found = recipe.predict(model, two, data.spec)
        line = recipe.sample(model, data.spec, torch.Generator(), n=5, between=two)
        z = model.encode(two.flatten(1))
        one = recipe.sample(model, data.spec, torch.Generator(), code=tuple(z[1].tolist()))
    made = torch.stack([each["reconstruction"] for each in found])
    torch.testing.assert_close(made, line[[0, -1]])
    torch.testing.assert_close(one, line[-1:])
    torch.testing.assert_close(torch.tensor([each["code"] for each in found]), z)
    wanted = squared_error(model(two.flatten(1)), two.flatten(1))
    torch.testing.assert_close(torch.tensor([each["mse"] for each in found]), wanted)


def test_the_ratio_to_components_is_of_the_test_images(learned):
    recipe, model, data = learned
    with torch.no_grad():
        found = recipe.final(model, data, torch.Generator())
    x = data.splits["test"][0].flatten(1)
    components = principal_components(data.splits["train"][0].flatten(1), 3)
    pca = squared_error(project(x, *components), x).mean().item()
    assert found["pca_mse"] == pytest.approx(pca, rel=1e-5)
    mse = evaluate(recipe, model, data.test)["mse"]
    assert found["pca_ratio"] == pytest.approx(mse / pca, rel=1e-5)


def test_refusals(learned):
    recipe, model, data = learned
    two, draw = data.splits["test"][0][:2], torch.Generator()
    with pytest.raises(UserError, match=r"between \(0 images\) must be two, because this network"):
        recipe.sample(model, data.spec, draw)
    with pytest.raises(UserError, match=r"code \(1 numbers\) must be 3, as many as were learned"):
        recipe.sample(model, data.spec, draw, code=(1.0,))
    with pytest.raises(UserError, match=r"n \(1\) must be from 2 to 10,000"):
        recipe.sample(model, data.spec, draw, n=1, between=two)
    with pytest.raises(UserError, match=r"inputs \(0 to 9\) must hold pixels from 0 to 1"):
        recipe.predict(model, 9 * two, data.spec)
    with pytest.raises(UserError, match=r"latent_size \(64\) must be below 64, the number of pix"):
        replace(SMALL, latent_size=64).model(data)
    with pytest.raises(UserError, match=r"hidden_sizes \(\(0,\)\) must be numbers from 1 up"):
        replace(SMALL, hidden_sizes=(0,))
    with pytest.raises(ValueError, match=r"sizes \(5\) must be two or more numbers from 1 up"):
        TiedAutoencoder((5,))


@pytest.mark.slow
def test_the_linear_network_of_digits_spans_their_principal_subspace():
    rows = RECIPES["autoencoder"].dataset().splits["train"][0].flatten(1).double()
    with seeded_by(6):
        model = Autoencoder((64, 8)).double()
    loss, components = fit(model, rows), principal_components(rows, 8)
    torch.testing.assert_close(
        loss, squared_error(project(rows, *components), rows).mean(), rtol=1e-3, atol=0
    )
    assert largest_angle(model.decoder[-1].weight.detach(), components[1]) < 1


@pytest.mark.slow
def test_tied_weights_lose_little():
    found = []
    for name in ("autoencoder", "autoencoder-tied"):
        recipe = RECIPES[name]
        data = recipe.dataset()
        found.append(evaluate(recipe, trained(recipe, data), data.test)["mse"])
    assert found[1] < 1.15 * found[0]


def test_a_table_of_answers_has_a_column_for_each_number_of_the_code(tmp_path):
    write_table([{"input": "a.png", "code": [0.5, -2.0], "mse": 0.1}], tmp_path / "codes.csv")
    header, row = (tmp_path / "codes.csv").read_text().splitlines()
    assert header == "row,id,input,code.0,code.1,mse,warning,error"
    assert row == "0,a.png,a.png,0.5,-2.0,0.1,,"
