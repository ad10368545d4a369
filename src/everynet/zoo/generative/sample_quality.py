"""The quality of generated images, as a classifier of the real ones sees them.

A network that draws images calls `measure_samples` in its `final` and adds `QUALITY` to its
meanings; its setting `of` names the run of a classifier. Left empty, a small convolutional network
is trained first, on the same images and in the same way as any other: on binary images, if it is
binary images that are drawn. What it gives is defined in `metrics/samples.py`.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.draws import Draw
from everynet.data.images.standardize import Standardize, resize
from everynet.metrics.samples import classes_present, frechet_distance, recognised
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.training.loop import evaluating, trained
from everynet.zoo.vision.classifier import check_image_run
from everynet.zoo.vision.cnn import CNNPhotographs

QUALITY = {
    "recognised": "the share of samples that a classifier gives a class with 90 % or more",
    "classes": "classes with at least a quarter of their fair share of recognised samples",
    "frechet": "the Frechet distance of samples and test images on the features of that classifier",
    "recognised_real": "the share of test images that it gives a class with 90 % or more",
    "frechet_real": "the same distance of training images, which samples should come near to",
}
"""The explanations of what `measure_samples` gives."""
AT_ONCE = 500
WIDTHS = (16, 32, 64)
LEAST = 2 ** (len(WIDTHS) - 1)
"""Pixels of the smallest images that a classifier of these widths takes."""


def measure_samples(
    made: Float[Tensor, "samples channels height width"],
    data: Data,
    of: Trained,
    *,
    steps: int,
    seed: int,
    binary: bool,
) -> dict[str, float]:
    """How many samples, from 0 to 1, are recognised, as how many classes, and how far they are.

    `data` is what they should look like, pixels from 0 to 1; `binary` says that black or white
    pixels were drawn. `steps` are the updates of a classifier that is trained where `of` is empty.
    """
    if len(made) < 2:
        raise UserError(f"samples ({len(made)}) must be at least 2, because they are compared")
    if of:
        check_image_run(of, "samples are shown to it")
        network, spec = of.load(), of.spec
    else:
        network, spec = train_classifier(data, steps, seed, binary=binary), data.spec
    probabilities, features = classify(network, spec, made)
    rows = min(len(made), data.rows("test"), data.rows("train"))
    test, train = (data.some(part, torch.arange(rows))[0] for part in ("test", "train"))
    if binary:
        u = torch.rand(train.shape, generator=torch.Generator().manual_seed(seed))
        train = (u < train.cpu()).to(train)
    answers, real = classify(network, spec, test)
    return {
        "recognised": recognised(probabilities).item(),
        "classes": float(classes_present(probabilities)),
        "frechet": frechet_distance(real, features).item(),
        "recognised_real": recognised(answers).item(),
        "frechet_real": frechet_distance(real, classify(network, spec, train)[1]).item(),
    }


def check_sides(data: Data) -> Data:
    """The same data, unless its images are too small for the classifier that looks at samples."""
    height, width = data.spec["shape"][1:]
    if min(height, width) < LEAST:
        raise UserError(
            f"images ({height} x {width}) must be at least {LEAST} pixels high and wide, because "
            "the classifier that looks at samples halves them twice; give size=8 or more"
        )
    return data


def train_classifier(data: Data, steps: int, seed: int, *, binary: bool) -> nn.Module:
    """A small network that is trained on the same images, on the CPU."""
    data = data.to(torch.device("cpu"), torch.float32)
    changed = _drawn if binary else None
    data = replace(data, batch_size=min(64, data.rows("train")), augment=changed)
    recipe = CNNPhotographs(
        widths=WIDTHS, steps=steps, batch_size=data.batch_size, lr=1e-2, seed=seed,
        optimizer="adamw", weight_decay=0.05, schedule="one-cycle",
    )  # fmt: skip
    return trained(recipe, data)


def classify(
    network: nn.Module, spec: Spec, x: Float[Tensor, "rows channels height width"]
) -> tuple[Float[Tensor, "rows classes"], Float[Tensor, "rows features"]]:
    """Probabilities of all classes, and what the last linear layer is given, on the CPU.

    `x` has pixels from 0 to 1; `spec` says how the network learned to see them.
    """
    last = [part for part in network.modules() if isinstance(part, nn.Linear)][-1]
    features: list[Tensor] = []
    answers: list[Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, given: features.append(given[0].cpu()))
    try:
        with evaluating(network):
            for some in x.split(AT_ONCE):
                answers.append(network(_prepared(some.to(last.weight), spec)).softmax(1).cpu())
    finally:
        hook.remove()
    return torch.cat(answers), torch.cat(features).flatten(1)


def _prepared(x: Tensor, spec: Spec) -> Tensor:
    """Pixels from 0 to 1 as a network learned to see them."""
    x = resize(x, spec["size"]) if spec.get("size") else x
    if list(x.shape[1:]) != spec["shape"]:
        its, wanted = ("x".join(map(str, s)) for s in (x.shape[1:], spec["shape"]))
        raise UserError(
            f"of (images of {wanted}) must be a classifier of images of {its}, because it is "
            "shown the samples; name another run, or none"
        )
    return Standardize(spec["mean"], spec["std"], 1.0).images(x).to(x)


def _drawn(batch: Batch, numbers: Draw) -> Batch:
    """A batch of grey images with each pixel drawn as black or white."""
    x, *rest = batch
    u = torch.rand(x.shape, generator=numbers.generator, dtype=x.dtype)
    return ((u < x).to(x), *rest)
