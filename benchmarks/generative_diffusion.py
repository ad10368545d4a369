"""Training and sampling of a diffusion model beside diffusers, of the same network.

    python benchmarks/generative_diffusion.py                 the table of benchmarks/RESULTS.md
    python benchmarks/generative_diffusion.py --part sample   sampling alone
    python benchmarks/generative_diffusion.py --repeats 1     a quick look, written nowhere

Grey images of 28 x 28 and a U-Net of 32, 64 and 64 maps with attention at 7 x 7; a note gives its
parameters, which must be as many. To train is to draw steps and noise for a batch, guess the noise,
and make an update of AdamW and of the averaged weights. Ours goes through its trainer, which also
gathers the batch and logs. diffusers is called as in its training example: `UNet2DModel`,
`DDPMScheduler`, `EMAModel`. To sample is to go from noise to images by DDIM.
"""

import sys
from collections.abc import Callable

from side_by_side import Contestant, Job, Page, Turn, arguments

WIDTHS, BLOCKS, NOISE_STEPS, SIDE = (32, 64, 64), 1, 1000, 28
TRAIN = {"batch": 32, "steps": 5}
SAMPLE = {"images": 16, "steps": 10}
LR, DECAY = 5e-4, 0.999
REACH = 1.3


def grey_images(rows: int):
    import torch

    x = torch.rand(rows, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    return 2 * x - 1


def size(model) -> str:
    return f"{sum(weight.numel() for weight in model.parameters()):,} parameters"


def with_everynet(job: Job) -> Callable[[], Turn]:
    from collections import deque
    from dataclasses import replace

    import torch

    from everynet.data.dataset import Data
    from everynet.training.loop import begin, train
    from everynet.zoo.generative.diffusion_image import ImageDiffusion

    recipe = ImageDiffusion(
        widths=WIDTHS, blocks=BLOCKS, noise_steps=NOISE_STEPS, noising="linear", lr=LR,
        conditional=False, decay=DECAY, batch_size=TRAIN["batch"], optimizer="adamw",
        schedule="constant", warmup=0,
    )  # fmt: skip
    x = grey_images(50 * TRAIN["batch"])
    y = torch.zeros(len(x), dtype=torch.int64)
    spec = {"shape": [1, SIDE, SIDE], "classes": ["0"], "peak": 255.0}
    state = begin(recipe, Data({"train": (x, y)}, spec, TRAIN["batch"]))
    data = Data({"train": (x, y)}, spec, TRAIN["batch"])

    def train_some() -> Turn:
        longer = replace(recipe, steps=state.step + TRAIN["steps"])
        (last,) = deque(train(longer, state, data), maxlen=1)
        return Turn(note=f"{size(state.model)}, loss {last.terms['noise_mse'].item():.2f}")

    def sample_some() -> Turn:
        model, draw = recipe.deployed(state).eval(), torch.Generator().manual_seed(0)
        with torch.no_grad():
            recipe.draw_images(model, spec, None, draw, n=SAMPLE["images"], steps=SAMPLE["steps"])
        return Turn(note=size(model))

    work = train_some if job["task"] == "train" else sample_some
    work()
    return work


def with_diffusers(job: Job) -> Callable[[], Turn]:
    import torch
    from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel
    from torch.nn.functional import mse_loss

    levels = len(WIDTHS) - 1
    model = UNet2DModel(
        sample_size=SIDE, in_channels=1, out_channels=1, layers_per_block=BLOCKS,
        block_out_channels=WIDTHS, attention_head_dim=WIDTHS[-1], norm_num_groups=8,
        down_block_types=("DownBlock2D",) * levels + ("AttnDownBlock2D",),
        up_block_types=("AttnUpBlock2D",) + ("UpBlock2D",) * levels,
    )  # fmt: skip
    noising = DDPMScheduler(num_train_timesteps=NOISE_STEPS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    average = EMAModel(model.parameters(), decay=DECAY)
    x = grey_images(50 * TRAIN["batch"])

    def train_some() -> Turn:
        model.train()
        for rows in torch.randperm(len(x)).split(TRAIN["batch"])[: TRAIN["steps"]]:
            clean = x[rows]
            noise = torch.randn_like(clean)
            t = torch.randint(0, NOISE_STEPS, (len(clean),))
            loss = mse_loss(model(noising.add_noise(clean, noise, t), t).sample, noise)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            average.step(model.parameters())
        return Turn(note=f"{size(model)}, loss {loss.item():.2f}")

    def sample_some() -> Turn:
        model.eval()
        scheduler = DDIMScheduler(num_train_timesteps=NOISE_STEPS)
        scheduler.set_timesteps(SAMPLE["steps"])
        images = torch.randn(SAMPLE["images"], 1, SIDE, SIDE)
        with torch.no_grad():
            for t in scheduler.timesteps:
                images = scheduler.step(model(images, t).sample, t, images).prev_sample
        return Turn(note=size(model))

    work = train_some if job["task"] == "train" else sample_some
    work()
    return work


def diffusions() -> list[Contestant]:
    """Ours first."""
    return [
        Contestant("everynet", with_everynet, "everynet.zoo.generative.diffusion_image"),
        Contestant("diffusers", with_diffusers, "diffusers", "diffusers", reach=REACH),
    ]


PARTS = {
    "train": f"Updates of a diffusion model in batches of {TRAIN['batch']}",
    "sample": f"{SAMPLE['images']} images by DDIM in {SAMPLE['steps']} steps",
}


def diffusion(page: Page) -> None:
    for part, said in PARTS.items():
        if page.given.part not in ("", part):
            continue
        for threads in (1, 2):
            title = f"{part}, {threads} thread{'s' * (threads > 1)}"
            page.round(title, diffusions(), {"threads": threads, "task": part})
        page.close(
            f"Diffusion, {part}",
            f"{said}; seconds, best of {page.given.repeats} alternating turns.",
            part=f"diffusion-{part}",
        )


def main() -> None:
    given = arguments(__doc__.splitlines()[0], diffusions(), repeats=5)
    diffusion(Page("generative", __file__, given))


if __name__ == "__main__":
    sys.exit(main())
