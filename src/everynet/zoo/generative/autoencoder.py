"""An autoencoder: an image goes through a narrow code, and the image that comes out is compared.

    z  = e(x)                                                    (1)  code, fewer numbers than x
    x' = d(z)                                                    (2)  reconstruction
    L  = 1/D |x' - x|^2                                          (3)  mean squared error of a pixel
    e: h_l = s(W_l h_{l-1} + b_l),  d: h_{l-1} = s(W_l^T h_l + c_l)        (4)  tied weights
    L  = 1/D |d(e(x + n)) - x|^2,   n ~ N(0, sigma^2)            (5)  denoising
    x' = m + V V^T (x - m)                                       (6)  principal components

where x is an image of D pixels from 0 to 1, h_l the units of layer l, W_l, b_l and c_l weights and
biases, s a ReLU that the code and the output go without, m the mean of the training images and V
the eigenvectors of their covariance with the largest eigenvalues, one for each number of the code.
By (4) there are half as many weights, and the gradient of each is the sum of that of both uses.
With linear e and d the least L is that of (6), and the columns of d span the same subspace, though
they are other vectors: Baldi and Hornik (1989), "Neural networks and principal component analysis",
doi:10.1016/0893-6080(89)90014-2. Layers with a nonlinearity reach a lower L with as many numbers.

Hinton and Salakhutdinov (2006), "Reducing the dimensionality of data with neural networks",
doi:10.1126/science.1127647; (5): Vincent et al. (2008), "Extracting and composing robust features
with denoising autoencoders", doi:10.1145/1390156.1390294. Unlike the first, nothing is trained
layer by layer before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear

from everynet.data import Inputs, load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.metrics.meanings import meanings
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.generative.binary_images import check_pixels, unit_images
from everynet.zoo.generative.pictures.codes import code_plane, image_rows


class Autoencoder(nn.Module):
    """Maps rows of pixels to their reconstructions; `sizes` are pixels, hidden units and code.

    The decoder has the same sizes the other way round. Two sizes alone make both linear.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        check_sizes(sizes)
        self.encoder = layers(sizes)
        self.decoder = layers(sizes[::-1])

    def encode(self, x: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch latent"]:
        """The code of each image."""
        z: Tensor = self.encoder(x)  # (1)
        return z

    def decode(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch pixels"]:
        """The image that each code stands for."""
        x: Tensor = self.decoder(z)  # (2)
        return x

    def forward(self, x: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch pixels"]:
        return self.decode(self.encode(x))


class TiedAutoencoder(nn.Module):
    """The same with half the weights: the decoder has the transposed matrices of the encoder."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        check_sizes(sizes)
        self.encoder = layers(sizes)
        self.biases = nn.ParameterList([torch.zeros(n) for n in sizes[:-1]])

    def encode(self, x: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch latent"]:
        """The code of each image."""
        z: Tensor = self.encoder(x)  # (4)
        return z

    def decode(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch pixels"]:
        """The image that each code stands for."""
        weights = [layer.weight for layer in self.encoder if isinstance(layer, nn.Linear)]
        for number in reversed(range(len(weights))):
            z = linear(z, weights[number].T, self.biases[number])  # (4)
            z = z.relu() if number else z
        return z

    def forward(self, x: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch pixels"]:
        return self.decode(self.encode(x))


def check_sizes(sizes: Sequence[int]) -> None:
    """Refuse what leaves no code."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"sizes ({', '.join(map(str, sizes))}) must be two or more numbers from 1 up: pixels, "
            "hidden units and the code"
        )


def layers(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers of these sizes with a ReLU between any two."""
    parts = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def squared_error(
    reconstruction: Float[Tensor, "batch pixels"], x: Float[Tensor, "batch pixels"]
) -> Float[Tensor, " batch"]:
    """L of each image."""
    return (reconstruction - x).square().mean(1)  # (3)


def add_noise(x: Float[Tensor, "batch pixels"], std: float) -> Float[Tensor, "batch pixels"]:
    """Images with normal noise on each pixel, by torch's default generator."""
    return x + std * torch.randn_like(x)  # (5)


def principal_components(
    x: Float[Tensor, "rows pixels"], count: int
) -> tuple[Float[Tensor, " pixels"], Float[Tensor, "pixels count"]]:
    """The mean m of some rows, and V, the directions in which they vary most; in float64."""
    x = x.double()
    mean = x.mean(0)
    covariance = (x - mean).T @ (x - mean) / len(x)
    return mean, torch.linalg.eigh(covariance).eigenvectors[:, -count:]


def project(
    x: Float[Tensor, "rows pixels"],
    mean: Float[Tensor, " pixels"],
    directions: Float[Tensor, "pixels count"],
) -> Float[Tensor, "rows pixels"]:
    """The nearest rows in the subspace of the principal components."""
    m, v = mean.to(x), directions.to(x)
    nearest: Tensor = m + (x - m) @ v @ v.T  # (6)
    return nearest


# -------- the network ends here; training and pictures follow --------

Either: TypeAlias = Autoencoder | TiedAutoencoder


@dataclass(frozen=True, kw_only=True)
class ImageCodes(Training[Either]):
    """Reconstruct images from few numbers."""

    meanings: ClassVar[Mapping[str, str]] = {
        **meanings("mse"),
        "noisy_mse": "the mean squared error of the noisy images that are given",
        "pca_mse": "the mean squared error of as many principal components of the training images",
        "pca_ratio": "the error of the network by that of the components: below 1 it beats them",
    }

    steps: int = 4000
    batch_size: int = 64
    lr: float = 2e-3
    schedule: str = "cosine"
    data: str = "digits"
    """A known set of images, or a folder with one subfolder of images for each class."""
    size: int = 0
    """Side of the images in pixels, to which others are brought; 0 leaves them as they are."""
    strict: bool = later(False)
    """Refuse a file that is no image or cannot be read, instead of skipping and counting it."""
    hidden_sizes: tuple[int, ...] = (256, 128)
    """Units of the hidden layers before the code; the decoder's are the same from the code on."""
    latent_size: int = 8
    """Numbers of the code."""
    noise: float = 0.0
    """Standard deviation of the noise on given images, where white is 1; 0 leaves it out."""

    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "size", "noise")
        self.at_least(1, "latent_size")
        self.require(min(self.hidden_sizes, default=1) >= 1, "hidden_sizes", "numbers from 1 up")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="image", batch_size=self.batch_size, seed=self.seed, size=self.size,
            strict=self.strict,
        )  # fmt: skip
        return unit_images(data)

    def sizes(self, data: Data) -> tuple[int, ...]:
        """Pixels, hidden units and code."""
        pixels = math.prod(data.spec["shape"])
        words = f"below {pixels}, the number of pixels, because the code would hold them all"
        self.require(self.latent_size < pixels, "latent_size", words)
        return (pixels, *self.hidden_sizes, self.latent_size)

    def objective(self, model: Either, batch: Batch) -> Terms:
        x = batch[0].flatten(1)
        return {"mse": squared_error(model(self.given(x)), x).mean()}

    def given(self, x: Float[Tensor, "batch pixels"]) -> Float[Tensor, "batch pixels"]:
        """What the network sees: images with noise, if there is any."""
        return add_noise(x, self.noise) if self.noise else x

    def metrics(self, model: Either, batch: Batch) -> dict[str, Tensor]:
        x = batch[0].flatten(1)
        given = self.given(x)
        found = {"mse": squared_error(model(given), x)}
        return found | ({"noisy_mse": squared_error(given, x)} if self.noise else {})

    def final(self, model: Either, data: Data, generator: torch.Generator) -> dict[str, float]:
        """The error of as many principal components, which need no network, on the test images."""
        components = self.components(data)
        errors: dict[str, list[Tensor]] = {"net": [], "pca": []}
        for x, *_ in data.test:
            clean = x.flatten(1)
            given = self.given(clean)
            errors["net"].append(squared_error(model(given), clean))
            errors["pca"].append(squared_error(project(given, *components), clean))
        net, pca = (torch.cat(each).double().mean().item() for each in errors.values())
        return {"pca_mse": pca, "pca_ratio": net / max(pca, 1e-12)}

    def components(self, data: Data) -> tuple[Tensor, Tensor]:
        """As many principal components of the training images as the code has numbers."""
        return principal_components(data.whole[0].flatten(1), self.latent_size)

    def predict(self, model: Either, inputs: Tensor, spec: Spec) -> Sequence[dict[str, Any]]:
        """The code of each image, the mean squared error and the reconstruction."""
        x = check_pixels(inputs, "inputs").flatten(1)
        z = model.encode(x)
        made = model.decode(z)
        images = made.clamp(0, 1).view(inputs.shape).cpu()
        each = zip(z.tolist(), squared_error(made, x).tolist(), images, strict=True)
        return [{"code": code, "mse": mse, "reconstruction": image} for code, mse, image in each]

    def sample(
        self,
        model: Either,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 16,
        between: Inputs = (),
        code: tuple[float, ...] = (),
    ) -> Float[Tensor, "n channels height width"]:
        """The image of a code, or images along a line between the codes of two (a.png,b.png)."""
        weight = next(model.parameters())
        if code and len(code) != self.latent_size:
            raise UserError(
                f"code ({len(code)} numbers) must be {self.latent_size}, as many as were learned"
            )
        if not code and (len(between) != 2 or not isinstance(between, Tensor)):
            raise UserError(
                f"between ({len(between)} images) must be two, because this network has no "
                "distribution to draw codes from; give between=a.png,b.png or code=, or train vae"
            )
        if not 2 <= n <= 10_000:
            raise UserError(f"n ({n}) must be from 2 to 10,000, because both ends are drawn")
        if code:
            z = torch.tensor([code]).to(weight)
        else:
            assert isinstance(between, Tensor)
            first, last = model.encode(check_pixels(between, "between").flatten(1))
            z = torch.lerp(first, last, torch.linspace(0, 1, n).to(first)[:, None])
        made: Tensor = model.decode(z).clamp(0, 1).cpu()
        return made.view(-1, *spec["shape"])

    # --------------------------------------------------------------------------------- pictures

    def picture_reconstructions(
        self, model: Either, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Validation images above their reconstructions by the network and by components.

        With {latent} numbers the squared error of a pixel is {ours:.4f}, of components {pca:.4f}.
        """
        x = torch.cat([x for x, *_ in data.valid]).flatten(1)
        given = self.given(x)
        made = {"autoencoder": model(given), "components": project(given, *self.components(data))}
        errors = [squared_error(each, x).mean().item() for each in made.values()]
        rows = {"image": x, **({"with noise": given} if self.noise else {}), **made}
        shape = tuple(data.spec["shape"])
        shown = {name: each[:12].unflatten(1, shape).cpu() for name, each in rows.items()}
        figure = image_rows(shown)
        return figure, {"latent": self.latent_size, "ours": errors[0], "pca": errors[1]}

    def picture_codes(
        self, model: Either, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Codes of validation images in the two directions along which they vary most.

        The classes were not given, and yet {same:.0%} of the codes have one of their own class
        nearest; both directions hold {share:.0%} of the variance.
        """
        parts = [(model.encode(x.flatten(1)).cpu(), y.cpu()) for x, y in data.valid]
        z, y = (torch.cat(part) for part in zip(*parts, strict=True))
        centred = (z - z.mean(0)).double()
        _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
        plane = centred @ directions[:2].T
        plane = plane if plane.shape[1] == 2 else torch.cat([plane, torch.zeros_like(plane)], 1)
        share = (sizes[:2].square().sum() / sizes.square().sum()).item()
        nearest = torch.cdist(z[:4000], z[:4000]).fill_diagonal_(torch.inf).argmin(1)
        same = float((y[nearest] == y[:4000]).double().mean())
        return code_plane(plane, y, data.spec["classes"]), {"share": share, "same": same}

    def picture_units(self, model: Either, data: Data, history: History) -> Figure:
        """What each unit of the code does to the mean code's image: red is lighter, blue darker.

        From top to bottom a unit is raised by 1/2, 1 and 2 standard deviations of its own.
        """
        z = torch.cat([model.encode(x.flatten(1)) for x, *_ in data.valid])
        mean, std = z.mean(0, keepdim=True), z.std(0)
        shape, base = tuple(data.spec["shape"]), model.decode(mean)
        count = min(12, self.latent_size)
        rows = {}
        for size in (0.5, 1.0, 2.0):
            moved = mean + size * torch.diag(std)[:count]
            change = (model.decode(moved) - base).unflatten(1, shape)
            rows[f"+ {size:g} std"] = change.mean(1, keepdim=True).cpu()
        return image_rows(rows, signed=True, xlabel="unit of the code, from the first on")


@dataclass(frozen=True, kw_only=True)
class FreeImageCodes(ImageCodes):
    """Reconstruct images from few numbers; encoder and decoder have weights of their own."""

    def model(self, data: Data) -> Autoencoder:
        return Autoencoder(self.sizes(data))


@dataclass(frozen=True, kw_only=True)
class TiedImageCodes(ImageCodes):
    """Reconstruct images from few numbers; the decoder has the encoder's matrices."""

    def model(self, data: Data) -> TiedAutoencoder:
        return TiedAutoencoder(self.sizes(data))


RECIPES = {
    "autoencoder": FreeImageCodes(
        goal="mse <= 0.0125 and pca_ratio <= 0.52",
        covers=("G1",),
    ),
    "autoencoder-mnist": FreeImageCodes(
        data="mnist", hidden_sizes=(512, 256), latent_size=32, steps=10_000, batch_size=250,
        lr=1e-3, eval_every=1000,
        goal="mse <= 0.008 and pca_ratio <= 0.48",
        covers=("G1",),
    ),
    "autoencoder-tied": TiedImageCodes(
        goal="mse <= 0.012 and pca_ratio <= 0.5",
        covers=("G2",),
    ),
    "autoencoder-denoising": FreeImageCodes(
        noise=0.4, hidden_sizes=(256,), latent_size=24,
        goal="mse <= 0.024 and pca_ratio <= 0.36",
        covers=("G1",),
    ),
}  # fmt: skip
