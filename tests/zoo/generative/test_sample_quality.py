"""Samples that a classifier looks at: real images are recognised, noise is not."""

import pytest
import torch

from everynet import runs
from everynet.metrics.samples import recognised
from everynet.recipes.catalog import find
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.training.loop import trained
from everynet.zoo.generative.binary_images import BinaryImages, unit_images
from everynet.zoo.generative.sample_quality import (
    QUALITY,
    classify,
    measure_samples,
    train_classifier,
)


@pytest.fixture(scope="module")
def digits():
    return BinaryImages[torch.nn.Module](batch_size=32).dataset()


@pytest.fixture(scope="module")
def found(digits):
    """What is said of real images and of noise, by a classifier that is trained first."""
    with torch.no_grad():  # as an evaluation is
        real, noise = (
            measure_samples(x, digits, Trained(), steps=150, seed=0, binary=True)
            for x in (digits.splits["valid"][0], torch.rand(144, 1, 8, 8).round())
        )
    return real, noise


def test_real_images_are_recognised_and_near_and_noise_is_not(found):
    real, noise = found
    assert real.keys() == QUALITY.keys()
    assert real["recognised"] > 0.4 > 2 * noise["recognised"]
    assert real["classes"] >= 9
    assert noise["classes"] <= 4
    assert noise["frechet"] > 3 * real["frechet"]
    assert real["frechet_real"] == noise["frechet_real"]  # the same classifier, by its seed


def test_features_are_what_the_last_layer_is_given(digits):
    network = train_classifier(digits, 5, 0, binary=True)
    x = digits.splits["test"][0][:7]
    probabilities, features = classify(network, digits.spec, x)
    torch.testing.assert_close(network.output(features).softmax(1), probabilities)
    with torch.no_grad():
        torch.testing.assert_close(network(x).softmax(1), probabilities)
    grey = train_classifier(digits, 5, 0, binary=False)
    assert not torch.equal(grey.output.weight, network.output.weight)  # it saw other pixels


def test_another_classifier_sees_images_as_it_learned_to(digits):
    recipe = find("lenet").tiny()
    data = recipe.dataset()
    network, spec = trained(recipe, data), data.spec
    probabilities, _ = classify(network, spec, unit_images(data).splits["test"][0][:5])
    with torch.no_grad():
        wanted = network(data.splits["test"][0][:5]).softmax(1)
    torch.testing.assert_close(probabilities, wanted, atol=1e-5, rtol=0)
    other = spec | {"shape": [1, 9, 9], "size": 0}
    with pytest.raises(UserError, match=r"of \(images of 1x9x9\) must be a classifier of images"):
        classify(network, other, digits.splits["test"][0][:5])


@pytest.mark.slow
def test_the_classifier_of_a_run_is_used(digits, tmp_path):
    folder = runs.run(find("cnn-mnist").tiny(), tmp_path, device="cpu").folder
    of, x = Trained.from_text(str(folder)), digits.splits["valid"][0]
    found = measure_samples(x, digits, of, steps=1, seed=0, binary=True)
    assert found["recognised"] == recognised(classify(of.model, of.spec, x)[0]).item()
    folder = runs.run(find("gan-ring").tiny(), tmp_path, device="cpu").folder
    with pytest.raises(UserError, match="must be the run of a network that tells images apart"):
        measure_samples(x, digits, Trained.from_text(str(folder)), steps=1, seed=0, binary=True)


def test_one_sample_is_too_few(digits):
    with pytest.raises(UserError, match=r"samples \(1\) must be at least 2"):
        measure_samples(torch.zeros(1, 1, 8, 8), digits, Trained(), steps=1, seed=0, binary=True)
