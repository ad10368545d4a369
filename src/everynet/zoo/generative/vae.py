"""A variational autoencoder: codes are drawn around what the encoder says, and kept near a prior.

    q(z|x)     = N(mu, diag(sigma^2)),   mu, log sigma^2 = e(x)              (1)  encoder
    z          = mu + sigma * eps,       eps ~ N(0, I)                       (2)  a code, drawn
    KL(q|p)    = 1/2 sum_j (sigma_j^2 + mu_j^2 - log sigma_j^2 - 1)          (3)  q from N(0, I)
    log p(x|z) = sum_i x_i log d_i(z) + (1 - x_i) log(1 - d_i(z))            (4)  Bernoulli pixels
    log p(x|z) = -|x - d(z)|^2 / (2 s^2) - D/2 log(2 pi s^2)                 (5)  Gaussian pixels
    L          = -E_q log p(x|z) + beta KL(q|p)                              (6)  minimised
    log w      = log p(x|z) + log p(z) - log q(z|x)                          (7)  weight of a code
    log p(x)  >= E log 1/k sum_i w_i  >=  E_q log p(x|z) - KL(q|p)           (8)  k codes of q

where x is an image of D pixels, z its code, p(z) = N(0, I) the prior, d the decoder, s the standard
deviation of Gaussian pixels, * the product of each two entries, and all logarithms are natural.
With beta = 1 (6) is an upper bound of -log p(x), the negative ELBO; it is tight where q(z|x) is the
posterior p(z|x), and otherwise too high by KL(q(z|x)|p(z|x)). By (2) a gradient passes through a
code to mu and sigma. (8) rises with k to log p(x), by which two networks are compared.

Kingma and Welling (2014), "Auto-encoding variational Bayes", arXiv:1312.6114; Rezende, Mohamed and
Wierstra (2014), "Stochastic backpropagation", arXiv:1401.4082; beta: Higgins et al. (2017),
"beta-VAE", openreview.net/forum?id=Sy2fzU9gl; (8): Burda, Grosse and Salakhutdinov (2016),
"Importance weighted autoencoders", arXiv:1509.00519, whose network of one stochastic layer
`vae-mnist` has. Unlike theirs the decoder's biases do not begin at the pixels' means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from everynet.data import Inputs
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.plot import image_grid
from everynet.recipes.recipe import later
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.zoo.generative.binary_images import BinaryImages, binarize, check_pixels, draw
from everynet.zoo.generative.pictures.codes import image_rows, plane_of_codes, unit_bars
from everynet.zoo.generative.sample_quality import QUALITY, measure_samples


class VAE(nn.Module):
    """Maps images to the images that the means of their codes stand for.

    `encoder` maps images to mu and log sigma^2 of their codes, one after the other.
    """

    def __init__(self, encoder: nn.Module, decoder: BernoulliDecoder | GaussianDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def encode(
        self, x: Float[Tensor, "batch ..."]
    ) -> tuple[Float[Tensor, "batch latent"], Float[Tensor, "batch latent"]]:
        """The mean and the logarithm of the variance of each number of the code."""
        mu, log_var = self.encoder(x).chunk(2, 1)  # (1)
        return mu, log_var

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        mean: Tensor = self.decoder(self.encode(x)[0])
        return mean

    def negative_elbo(
        self, x: Float[Tensor, "batch ..."], beta: float = 1.0
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        """The two terms of L for each image, by one code each: reconstruction and beta KL."""
        mu, log_var = self.encode(x)
        z = draw_code(mu, log_var)
        return -self.decoder.log_likelihood(x, z), beta * kl_divergence(mu, log_var)  # (6)

    def log_weights(self, x: Float[Tensor, "batch ..."], k: int) -> Float[Tensor, "k batch"]:
        """The logarithms of the weights of k codes of each image."""
        mu, log_var = (each.expand(k, -1, -1).flatten(0, 1) for each in self.encode(x))
        z = draw_code(mu, log_var)
        copies = x.expand(k, *x.shape).flatten(0, 1)
        zero = torch.zeros_like(mu)
        log_prior, log_q = log_normal(z, zero, zero), log_normal(z, mu, log_var)
        log_w = self.decoder.log_likelihood(copies, z) + log_prior - log_q  # (7)
        return log_w.view(k, len(x))

    def importance_bound(self, x: Float[Tensor, "batch ..."], k: int) -> Float[Tensor, " batch"]:
        """A lower bound of log p(x) by k codes, which rises to it with k."""
        return self.log_weights(x, k).logsumexp(0) - math.log(k)  # (8)


class BernoulliDecoder(nn.Module):
    """Maps codes to the probabilities of white pixels; `network` gives their logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch ..."]:
        d: Tensor = self.network(z).sigmoid()
        return d

    def log_likelihood(
        self, x: Float[Tensor, "batch ..."], z: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, " batch"]:
        """The log-likelihood from the logits: log d would be -inf where d is rounded to 0."""
        loss = binary_cross_entropy_with_logits(self.network(z), x, reduction="none")
        return -loss.flatten(1).sum(1)  # (4)


class GaussianDecoder(nn.Module):
    """Maps codes to the means of pixels; `network` gives these, and all vary by `std`."""

    def __init__(self, network: nn.Module, std: float) -> None:
        super().__init__()
        if std <= 0:
            raise ValueError(f"std ({std}) must be above 0: it is that of a pixel; try 0.1")
        self.network, self.std = network, std

    def forward(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch ..."]:
        d: Tensor = self.network(z)
        return d

    def log_likelihood(
        self, x: Float[Tensor, "batch ..."], z: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, " batch"]:
        """The logarithm of a density, which can be above 0."""
        square: Tensor = (x - self.network(z)).flatten(1).square()
        log_scale = math.log(2 * math.pi * self.std**2) / 2
        return -(square / (2 * self.std**2) + log_scale).sum(1)  # (5)


def draw_code(
    mu: Float[Tensor, "batch latent"], log_var: Float[Tensor, "batch latent"]
) -> Float[Tensor, "batch latent"]:
    """A code for each mean and variance, by torch's default generator; its gradient is theirs."""
    return mu + (log_var / 2).exp() * torch.randn_like(mu)  # (2)


def kl_divergence(
    mu: Float[Tensor, "batch latent"], log_var: Float[Tensor, "batch latent"]
) -> Float[Tensor, " batch"]:
    """KL(q|p) of each code."""
    return kl_by_unit(mu, log_var).sum(1)


def kl_by_unit(
    mu: Float[Tensor, "batch latent"], log_var: Float[Tensor, "batch latent"]
) -> Float[Tensor, "batch latent"]:
    """What each number of a code adds to the divergence."""
    return (log_var.exp() + mu.square() - log_var - 1) / 2  # (3)


def log_normal(
    z: Float[Tensor, "batch latent"],
    mu: Float[Tensor, "batch latent"],
    log_var: Float[Tensor, "batch latent"],
) -> Float[Tensor, " batch"]:
    """The logarithm of a normal density with independent entries."""
    square = (z - mu).square() * (-log_var).exp()
    return -(square + log_var + math.log(2 * math.pi)).sum(1) / 2


def mlp_networks(
    shape: Sequence[int], hidden_size: int, latent_size: int
) -> tuple[nn.Sequential, nn.Sequential]:
    """Encoder and decoder of two hidden layers each, with tanh, started as Glorot and Bengio do."""
    pixels = math.prod(shape)
    h, n = hidden_size, latent_size
    encoder = nn.Sequential(
        *(nn.Flatten(), nn.Linear(pixels, h), nn.Tanh()),
        *(nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 2 * n)),
    )
    decoder = nn.Sequential(
        *(nn.Linear(n, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh()),
        *(nn.Linear(h, pixels), nn.Unflatten(1, tuple(shape))),
    )
    for layer in (*encoder, *decoder):
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return encoder, decoder


def conv_networks(
    shape: Sequence[int], width: int, hidden_size: int, latent_size: int
) -> tuple[nn.Sequential, nn.Sequential]:
    """Encoder and decoder of two convolutions each, which halve and double the images.

    layer   image        conv           conv              hidden        code
    maps    channels     width          2 width           hidden_size   latent_size
    side    H            H / 2          H / 4
    """
    channels, height, breadth = shape
    if height % 4 or breadth % 4:
        raise ValueError(
            f"images ({height} x {breadth}) must have sides that 4 divides, because they are "
            "halved twice; give size=28 or another such"
        )
    inner = (2 * width, height // 4, breadth // 4)
    pixels = math.prod(inner)
    encoder = nn.Sequential(
        *(nn.Conv2d(channels, width, 4, 2, 1), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(pixels, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 2 * latent_size)),
    )
    decoder = nn.Sequential(
        *(nn.Linear(latent_size, hidden_size), nn.ReLU()),
        *(nn.Linear(hidden_size, pixels), nn.ReLU(), nn.Unflatten(1, inner)),
        *(nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU()),
        nn.ConvTranspose2d(width, channels, 4, 2, 1),
    )
    return encoder, decoder


# -------- the network ends here; training and pictures follow --------

PIECE = 2**21
"""So many numbers of images by codes are decoded at once."""
MOST = 100_000
"""Images that are drawn at once."""
ACTIVE = 0.01
"""A unit is used if the variance of its mean over images is above this (Burda et al.)."""


@dataclass(frozen=True, kw_only=True)
class BinaryVAE(BinaryImages[VAE]):
    """Learn codes of binary images, and draw images from codes of the prior."""

    meanings: ClassVar[Mapping[str, str]] = {
        "negative_elbo": "the bound (6) with beta 1 on the negative log-likelihood, nats an image",
        "reconstruction": "its first term: nats to describe an image by its code",
        "kl": "its second term: nats of the code beyond the prior",
        "negative_log_likelihood": "nats an image, by importance samples: a closer bound",
        "active_units": "numbers of the code whose mean varies with the image",
        **QUALITY,
    }

    steps: int = 4000
    batch_size: int = 100
    lr: float = 3e-3
    schedule: str = "cosine"
    latent_size: int = 8
    """Numbers of a code."""
    hidden_size: int = 200
    """Units in each hidden layer of the encoder and of the decoder."""
    beta: float = 1.0
    """Weight of the divergence in training; 1 is the bound itself."""
    samples: int = 1000
    """Images that are drawn at the end, to be recognised by a classifier."""
    of: Trained = Trained()  # noqa: RUF009 -- frozen, and the same for all
    """The run of an image classifier that looks at the samples; empty trains a small one."""
    classifier_steps: int = later(600)
    """Updates of the classifier that is trained where `of` is empty."""

    last_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "latent_size", "hidden_size", "classifier_steps")
        self.at_least(2, "samples")
        self.at_least(0, "beta")

    def networks(self, spec: Spec) -> tuple[nn.Sequential, nn.Sequential]:
        """Encoder and decoder."""
        return mlp_networks(spec["shape"], self.hidden_size, self.latent_size)

    def model(self, data: Data) -> VAE:
        encoder, decoder = self.networks(data.spec)
        return VAE(encoder, BernoulliDecoder(decoder))

    def objective(self, model: VAE, batch: Batch) -> Terms:
        reconstruction, kl = model.negative_elbo(draw(batch[0]), self.beta)
        return {"reconstruction": reconstruction.mean(), "kl": kl.mean()}

    def metrics(self, model: VAE, batch: Batch) -> dict[str, Tensor]:
        """The bound with beta 1, whatever was minimised; on images that were drawn once."""
        reconstruction, kl = model.negative_elbo(draw(batch[0]))
        bound = reconstruction + kl
        return {"negative_elbo": bound, "reconstruction": reconstruction, "kl": kl}

    def final(
        self,
        model: VAE,
        data: Data,
        generator: torch.Generator,
        *,
        importance: int = 100,
        samples: int = 0,
    ) -> dict[str, float]:
        """-log p by `importance` codes an image, and the quality of `samples` (0: as set)."""
        if not 1 <= importance <= 100_000:
            raise UserError(f"importance ({importance}) must be from 1 to 100,000 codes an image")
        if samples and not 2 <= samples <= MOST:
            raise UserError(f"samples ({samples}) must be from 2 to {MOST:,}; 0 is as trained")
        bounds, means = [], []
        at_once = max(1, PIECE // (importance * math.prod(data.spec["shape"])))
        for x, *_ in data.test:
            means.append(model.encode(x)[0])
            for some in x.split(at_once):
                bounds.append(bound_in_pieces(model, some, importance))
        made = self.draw_images(model, data.spec, generator, samples or self.samples)
        return {
            "negative_log_likelihood": -torch.cat(bounds).double().mean().item(),
            "active_units": float((torch.cat(means).var(0) > ACTIVE).sum()),
            **measure_samples(
                made, data, self.of, steps=self.classifier_steps, seed=self.seed, binary=True
            ),
        }

    def draw_images(
        self, model: VAE, spec: Spec, generator: torch.Generator, n: int
    ) -> Float[Tensor, "n 1 height width"]:
        """Binary images whose codes are drawn from the prior."""
        weight = next(model.parameters())
        z = torch.randn(n, self.latent_size, generator=generator)
        d = torch.cat([model.decoder(some.to(weight)).cpu() for some in z.split(1000)])
        return (torch.rand(d.shape, generator=generator) < d).to(d.dtype)

    def sample(
        self,
        model: VAE,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 64,
        between: Inputs = (),
        pixels: bool = False,
        code: tuple[float, ...] = (),
    ) -> Float[Tensor, "n 1 height width"]:
        """Images of codes from the prior, of one code, or along a line between two images' codes.

        They are probabilities of white pixels; `pixels=true` draws black or white ones.
        """
        if not 1 <= n <= MOST:
            raise UserError(f"n ({n}) must be from 1 to {MOST:,}, because they are drawn at once")
        weight = next(model.parameters())
        if code and len(code) != self.latent_size:
            raise UserError(
                f"code ({len(code)} numbers) must be {self.latent_size}, as many as were learned"
            )
        if code:
            z = torch.tensor([code])
        elif len(between):
            if len(between) != 2 or not isinstance(between, Tensor):
                raise UserError(f"between ({len(between)} images) must be two: a.png,b.png")
            if n < 2:
                raise UserError(f"n ({n}) must be at least 2, because both ends are drawn")
            first, last = model.encode(binarize(check_pixels(between, "between")))[0]
            z = torch.lerp(first, last, torch.linspace(0, 1, n).to(first)[:, None])
        else:
            z = torch.randn(n, self.latent_size, generator=generator)
        d = torch.cat([model.decoder(some.to(weight)).cpu() for some in z.split(1000)])
        return (torch.rand(d.shape, generator=generator) < d).to(d.dtype) if pixels else d

    def predict(
        self, model: VAE, inputs: Tensor, spec: Spec, *, importance: int = 100
    ) -> Sequence[dict[str, Any]]:
        """The code of each image, a bound of its log-likelihood in nats, and the reconstruction.

        Pixels above one half are white, so that the answer does not depend on a draw.
        """
        if not 1 <= importance <= 100_000:
            raise UserError(f"importance ({importance}) must be from 1 to 100,000 codes an image")
        x = binarize(check_pixels(inputs, "inputs"))
        mu, _ = model.encode(x)
        seeded = torch.random.fork_rng(devices=[x.device] if x.is_cuda else [])
        with seeded:
            torch.manual_seed(self.seed)
            bound = torch.cat([bound_in_pieces(model, one[None], importance) for one in x])
        return [
            {"code": code.tolist(), "log_likelihood": float(nats), "reconstruction": image.cpu()}
            for code, nats, image in zip(mu, bound, model.decoder(mu), strict=True)
        ]

    # --------------------------------------------------------------------------------- pictures

    def picture_samples(self, model: VAE, data: Data, history: History) -> Figure:
        """Images whose codes were drawn from the prior, as probabilities of white pixels.

        They look like data where the prior and the codes of images overlap.
        """
        z = torch.randn(64, self.latent_size, generator=torch.Generator().manual_seed(self.seed))
        weight = next(model.parameters())
        return image_grid(model.decoder(z.to(weight)).cpu(), columns=16, title="codes of N(0, I)")

    def picture_reconstructions(self, model: VAE, data: Data, history: History) -> Figure:
        """Validation images, drawn as black and white pixels, and what their mean codes stand for.

        What the code leaves out is smooth: single pixels that a draw turned are gone.
        """
        x, _ = data.some("valid", torch.arange(12))
        return image_rows({"image": x.cpu(), "from its code": model(x).cpu()})

    def picture_interpolation(
        self, model: VAE, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Images along straight lines from the code of one validation image to that of another.

        Half way {between:.0%} of the pixels are grey, from 1/4 to 3/4; mixing the ends pixel by
        pixel would make {mixed:.0%} so.
        """
        x, y = data.some("valid", torch.arange(min(200, data.rows("valid"))))
        ends = _pairs_of_classes(y.cpu(), 5)
        lines = {}
        for first, last in ends:
            a, b = (model.encode(x[[row]])[0] for row in (first, last))
            share = torch.linspace(0, 1, 12).to(a)[:, None]
            names = (data.spec["classes"][int(y[row])] for row in (first, last))
            lines[" to ".join(names)] = model.decoder(torch.lerp(a, b, share)).cpu()
        rows = torch.stack([*lines.values()])
        halves = {"between": rows[:, 5:7], "mixed": (rows[:, :1] + rows[:, -1:]) / 2}
        grey = {
            name: float(((x - 0.5).abs() <= 0.25).double().mean()) for name, x in halves.items()
        }
        return image_rows(lines), grey

    def picture_plane(
        self, model: VAE, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Mean codes of validation images in the two units used most, and what is decoded there.

        The two hold {share:.0%} of the divergence; in images the other units are 0.
        """
        parts = [(model.encode(x), y) for x, y in data.valid]
        mu, log_var = (torch.cat([code[i] for code, _ in parts]) for i in range(2))
        y = torch.cat([y for _, y in parts]).cpu()
        used = kl_by_unit(mu, log_var).mean(0)
        order = used.argsort(descending=True)[:2]
        side = torch.linspace(0.03, 0.97, 12)
        quantile = math.sqrt(2) * torch.erfinv(2 * side - 1)  # equal parts of the prior
        z = torch.zeros(144, self.latent_size)
        z[:, order[0].cpu()] = quantile.repeat(12)
        z[:, order[-1].cpu()] = quantile.flip(0).repeat_interleave(12)
        images = model.decoder(z.to(mu)).cpu()
        names = [f"code unit {int(unit)}" for unit in order]
        plane = mu[:, order].cpu()
        plane = plane if plane.shape[1] == 2 else torch.cat([plane, torch.zeros_like(plane)], 1)
        figure = plane_of_codes(
            plane, y, data.spec["classes"], images, quantile, axes=(names[0], names[-1])
        )
        return figure, {"share": (used[order].sum() / used.sum()).item()}

    def picture_units(
        self, model: VAE, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """What each unit of the code holds in nats, and the images as it goes from -2 to 2.

        {active} of {latent} units are used; a unit that is not changes nothing.
        """
        parts = [model.encode(x) for x, *_ in data.valid]
        mu, log_var = (torch.cat([part[i] for part in parts]) for i in range(2))
        used = kl_by_unit(mu, log_var).mean(0)
        order = used.argsort(descending=True)[:8]
        steps = torch.linspace(-2, 2, 9).to(mu)
        z = mu[:1].repeat(len(order) * len(steps), 1)
        for row, unit in enumerate(order):
            z[row * len(steps) : (row + 1) * len(steps), unit] = steps
        images = model.decoder(z).cpu().unflatten(0, (len(order), len(steps)))
        figure = unit_bars(
            used.sort(descending=True).values.cpu(), order.cpu(), images, steps.cpu()
        )
        active = float((mu.var(0) > ACTIVE).sum())
        return figure, {"active": int(active), "latent": self.latent_size}

    def tiny(self) -> Self:
        small = super().tiny()
        return replace(small, samples=20, classifier_steps=3, latent_size=min(3, self.latent_size))


@dataclass(frozen=True, kw_only=True)
class BinaryConvVAE(BinaryVAE):
    """Learn codes of binary images by convolutions, and draw images from codes of the prior."""

    width: int = 32
    """Feature maps of the first convolution; the second has twice as many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "width")

    def networks(self, spec: Spec) -> tuple[nn.Sequential, nn.Sequential]:
        try:
            return conv_networks(spec["shape"], self.width, self.hidden_size, self.latent_size)
        except ValueError as error:
            raise UserError(str(error)) from None


def bound_in_pieces(model: VAE, x: Float[Tensor, "batch ..."], k: int) -> Float[Tensor, " batch"]:
    """The bound (8) by k codes an image, some at a time."""
    most = max(1, PIECE // x.numel())
    pieces = [model.log_weights(x, min(most, k - done)) for done in range(0, k, most)]
    return torch.cat(pieces).logsumexp(0) - math.log(k)


def _pairs_of_classes(y: Tensor, count: int) -> list[tuple[int, int]]:
    """Rows of two different classes each, where there are such."""
    first = {int(label): row for row, label in reversed([*enumerate(y.tolist())])}
    rows = [first[label] for label in sorted(first)] or [0]
    return [
        (rows[i % len(rows)], rows[(2 * i + 1 + i // len(rows)) % len(rows)]) for i in range(count)
    ]


RECIPES = {
    "vae": BinaryVAE(
        goal="negative_elbo <= 23.2 and negative_log_likelihood <= 22.8 and classes >= 9",
        covers=("G3", "G4", "G5"),
    ),
    "vae-mnist": BinaryVAE(
        data="mnist", latent_size=50, steps=300_000, batch_size=500, lr=1e-3, floor=0.01,
        samples=10_000, eval_every=5000, classifier_steps=3000,
        goal="negative_elbo <= 93 and negative_log_likelihood <= 88 and recognised >= 0.45 "
        "and classes >= 10",
        covers=("G3", "G4", "G5"),
    ),
    "vae-conv": BinaryConvVAE(
        width=16, steps=3000, lr=2e-3,
        goal="negative_elbo <= 23.6 and negative_log_likelihood <= 23.3",
        covers=("G5",),
    ),
}  # fmt: skip
