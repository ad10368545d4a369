"""A training step of a VAE beside pythae's, of the same network.

    python benchmarks/generative_vae.py                 the table of benchmarks/RESULTS.md
    python benchmarks/generative_vae.py --repeats 1     a quick look, written nowhere

The network is pythae's own, 784-512-20-512-784 with ReLU, batches of 128, Adam at 0.001. Ours goes
through its trainer: a batch is gathered, its pixels are drawn, one update is made and logged.
pythae's network is called as its documentation shows, on batches that are gathered and drawn alike,
with torch's Adam, because its own training pipeline fails with the pydantic of today.
"""

import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

VAE = {"pixels": (1, 28, 28), "hidden": 512, "latent": 20, "batch": 128, "steps": 50}
REACH_VAE = 1.5


def grey_images(rows: int):
    """Images as dark as those of MNIST, most of whose pixels are black."""
    import torch

    draw = torch.Generator().manual_seed(0)
    x = torch.rand(rows, *VAE["pixels"], generator=draw)
    return x * (torch.rand(x.shape, generator=draw) < 0.2)


def vae_with_everynet(job: Job) -> Callable[[], Turn]:
    from collections import deque
    from dataclasses import dataclass, replace

    from torch import nn

    from everynet.data.dataset import Data
    from everynet.training.loop import begin, train
    from everynet.zoo.generative.vae import BinaryVAE

    hidden, latent = VAE["hidden"], VAE["latent"]

    @dataclass(frozen=True, kw_only=True)
    class PeersVAE(BinaryVAE):
        def networks(self, spec):
            encoder = nn.Sequential(
                nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent)
            )
            decoder = nn.Sequential(
                *(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 784)),
                nn.Unflatten(1, VAE["pixels"]),
            )
            return encoder, decoder

    recipe = PeersVAE(
        latent_size=latent, hidden_size=hidden, batch_size=VAE["batch"], lr=1e-3,
        schedule="constant",
    )  # fmt: skip
    x = grey_images(50 * VAE["batch"])
    data = Data({"train": (x,)}, {"shape": [*VAE["pixels"]]}, VAE["batch"], parts=("image",))
    state = begin(recipe, data)

    def steps() -> Turn:
        longer = replace(recipe, steps=state.step + VAE["steps"])
        (last,) = deque(train(longer, state, data), maxlen=1)
        loss = sum(term.item() for term in last.terms.values())
        return Turn(note=f"loss {loss:.1f}")

    steps()
    return steps


def vae_with_pythae(job: Job) -> Callable[[], Turn]:
    import torch
    from pythae.data.datasets import DatasetOutput
    from pythae.models import VAE as PeerVAE
    from pythae.models import VAEConfig

    config = VAEConfig(input_dim=VAE["pixels"], latent_dim=VAE["latent"], reconstruction_loss="bce")
    model = PeerVAE(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = grey_images(50 * VAE["batch"])

    def steps() -> Turn:
        for rows in torch.randperm(len(x)).split(VAE["batch"])[: VAE["steps"]]:
            optimizer.zero_grad()
            loss = model(DatasetOutput(data=torch.bernoulli(x[rows]))).loss
            loss.backward()
            optimizer.step()
        return Turn(note=f"loss {loss.item():.1f}")

    steps()
    return steps


def products_alone(job: Job) -> Callable[[], Turn]:
    """The matrix products of those updates, forward and back, and nothing else."""
    import torch

    sizes = [(784, VAE["hidden"]), (VAE["hidden"], 2 * VAE["latent"])]
    sizes += [(VAE["latent"], VAE["hidden"]), (VAE["hidden"], 784)]
    rows = VAE["batch"]
    layers = [
        (torch.randn(rows, n), torch.randn(rows, m), torch.randn(m, n)) for n, m in sizes
    ]  # inputs, gradients of outputs, weights

    def steps() -> Turn:
        for _ in range(VAE["steps"]):
            for place, (x, g, weight) in enumerate(layers):
                torch.mm(x, weight.T)
                torch.mm(g.T, x)
                if place:
                    torch.mm(g, weight)
        return Turn(note=f"{sum(weight.numel() for *_, weight in layers):,} weights")

    steps()
    return steps


def vaes() -> list[Contestant]:
    """Ours first."""
    return [
        Contestant("everynet VAE", vae_with_everynet, "everynet.zoo.generative.vae"),
        Contestant("pythae VAE", vae_with_pythae, "pythae.models", "pythae", reach=REACH_VAE),
        Contestant("products of the updates alone", products_alone, "torch", "torch"),
    ]


def vae_steps(page: Page) -> None:
    for threads in (1, 2):
        title = f"{VAE['steps']} updates, {threads} thread{'s' * (threads > 1)}"
        page.round(title, vaes(), {"threads": threads})
    page.close(
        "VAE",
        f"Updates of a VAE of {784}-{VAE['hidden']}-{VAE['latent']} in batches of {VAE['batch']}; "
        f"seconds, best of {page.given.repeats} alternating turns.",
        part="vae",
    )


def main() -> None:
    given = arguments(__doc__.splitlines()[0], vaes(), repeats=7)
    page = Page("generative", __file__, given)
    vae_steps(page)


if __name__ == "__main__":
    sys.exit(main())
