"""Updates and samples of `diffusion-cifar` on a GPU, beside a plain loop of the same network.

    python benchmarks/diffusion_gpu.py                a section of RESULTS.md
    python benchmarks/diffusion_gpu.py --rehearse     a tiny network anywhere, written nowhere

Images of noise in the sizes of CIFAR-10, in bf16. The plain loops are written as one writes them by
hand: noise drawn for a batch, autocast, gradients clipped, fused Adam, averaged weights in one
call; and DDIM by its formula. Each stands there eagerly and compiled. All are in one process and
take turns; the best of several turns counts, after all have warmed up.
"""

import argparse
import copy
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import everynet
from everynet.data.dataset import Data
from everynet.training.device import choose, computing
from everynet.training.graph import Update, captured
from everynet.training.loop import begin, train
from everynet.zoo.generative.diffusion import DDIM, denoise, last_of, sampling_steps
from side_by_side import write
from updates_gpu import best

IMAGES, STEPS = 64, 50
WARM, COUNTED, TURNS = 12, 40, 3
REACH, AIM = 1.5, 1.2  # times as fast as the plain loop, eager and compiled


def noise_like(recipe: Any, side: int) -> Data:
    draw = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(2048, 3, side, side, generator=draw) - 1
    spec = {"shape": [3, side, side], "classes": [str(c) for c in range(10)], "peak": 255.0}
    return Data({"train": (x, torch.arange(2048) % 10)}, spec, recipe.batch_size, recipe.seed)


def ours(recipe: Any, data: Data, setup: Any, **changed: Any) -> Callable[[int], None]:
    setup = replace(setup, **changed)
    state = begin(recipe, data, setup)
    update = Update(recipe, state, data, setup)
    records = train(recipe, state, data, setup=setup, update=update)
    return lambda count: [next(records) for _ in range(count)] and None


def plain(recipe: Any, data: Data, setup: Any, compiled: bool) -> Callable[[int], None]:
    state = begin(recipe, data, setup)
    net, average = state.model, copy.deepcopy(state.model)
    device = setup.device
    optimizer = torch.optim.Adam(net.parameters(), lr=recipe.lr, fused=device.type == "cuda")
    forward = torch.compile(net.network) if compiled else net.network
    kept = net.schedule.signal.square()
    x, y = (tensor.to(device) for tensor in data.splits["train"])
    x, none = x.to(memory_format=torch.channels_last), len(data.spec["classes"])
    net.train()

    def turn(count: int) -> None:
        for _ in range(count):
            rows = torch.randint(len(x), (recipe.batch_size,), device=device)
            clean, labels = x[rows], y[rows]
            labels = torch.where(torch.rand(len(rows), device=device) < 0.1, none, labels)
            noise = torch.randn_like(clean)
            t = torch.randint(1, recipe.noise_steps + 1, (len(rows),), device=device)
            a = kept[t][:, None, None, None]
            with torch.autocast(device.type, torch.bfloat16):
                guess = forward(a.sqrt() * clean + (1 - a).sqrt() * noise, t, labels)
            loss = (guess.float() - noise).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_([*average.parameters()], [*net.parameters()], 1 - recipe.decay)

    return turn


def plain_ddim(model: Any, noise: Tensor, y: Tensor, steps: int, compiled: bool) -> Callable:
    forward = torch.compile(model.network) if compiled else model.network
    kept, way = model.schedule.signal.square(), sampling_steps(steps, model.schedule.steps)

    def draw(count: int = 1) -> Tensor:
        for _ in range(count):
            x = noise
            for t, s in way:
                e = forward(x, torch.full((len(x),), t, device=x.device), y).float()
                data = ((x - (1 - kept[t]).sqrt() * e) / kept[t].sqrt()).clamp(-1, 1)
                e = (x - kept[t].sqrt() * data) / (1 - kept[t]).sqrt()
                x = kept[s].sqrt() * data + (1 - kept[s]).sqrt() * e
        return x

    return draw


def samplers(recipe: Any, data: Data, setup: Any, images: int, steps: int) -> dict[str, Callable]:
    """Ways of drawing the same images, which must agree."""
    model = begin(recipe, data, setup).model.eval()
    with torch.no_grad():
        for weight in model.parameters():  # as if it had learned: no weight is 0
            weight.add_(0.02 * torch.randn_like(weight))
    side = data.spec["shape"][1]
    noise = torch.randn(images, 3, side, side, device=setup.device)
    noise = noise.to(memory_format=torch.channels_last)
    y = torch.arange(images, device=setup.device) % 10
    predict = recipe.predictor(model, y, 1.0)

    def draw(x: Tensor) -> Tensor:
        return last_of(denoise(predict, model.schedule, x, steps, DDIM(), limit=1.0))

    run = captured(draw, noise)
    racing = {
        "ours, one graph": lambda count: [run(noise) for _ in range(count)][-1].clone(),
        "ours, eager": lambda count: [draw(noise) for _ in range(count)][-1],
        "plain loop, eager": plain_ddim(model, noise, y, steps, False),
    }
    if setup.device.type == "cuda":
        racing["plain loop, compiled"] = plain_ddim(model, noise, y, steps, True)
    made = {name: call(1) for name, call in racing.items()}
    apart = {n: (x - made["ours, eager"]).abs().max().item() for n, x in made.items()}
    print("largest difference of a pixel:", {n: round(d, 4) for n, d in apart.items()}, flush=True)
    return racing


def table(found: dict[str, float], images: int, unit: str) -> list[str]:
    """Each with its images a second, then the verdicts."""
    lines = [f"\n| {unit} | ms | images/s |", "|---|---|---|"]
    lines += [f"| {n} | {1e3 * s:.2f} | {images / s:,.0f} |" for n, s in found.items()]
    fastest = min(seconds for name, seconds in found.items() if name.startswith("ours"))
    for name, least, word in (("eager", REACH, "to reach"), ("compiled", AIM, "aim")):
        if f"plain loop, {name}" in found:
            ratio = found[f"plain loop, {name}"] / fastest
            verdict = "reached" if ratio >= least else "not reached"
            lines.append(
                f"\nBeside the plain loop, {name}: {ratio:.2f} x ({word} {least}: {verdict})."
            )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true")
    rehearse = parser.parse_args().rehearse
    if not rehearse and not torch.cuda.is_available():
        print("diffusion_gpu.py is left out: there is no GPU here")
        return 0
    recipe = replace(
        everynet.recipe("diffusion-cifar"), steps=10**8, schedule="constant", warmup=0, mirror=False
    )
    images, steps, warm, counted, turns = IMAGES, STEPS, WARM, COUNTED, TURNS
    if rehearse:
        recipe = replace(recipe, widths=(8, 16), attention=1, blocks=1, batch_size=4)
        images, steps, warm, counted, turns = 2, 3, 1, 1, 1
    device = "cpu" if rehearse else "cuda"
    setup = choose(device, "bf16")
    if not rehearse:
        torch.set_float32_matmul_precision("high")
    with computing(setup):
        data = noise_like(recipe, 16 if rehearse else 32).to(setup.device, torch.float32)
        racing = {
            "ours, captured": ours(recipe, data, setup),
            "ours, eager": ours(recipe, data, setup, capture=False),
            "plain loop, eager": plain(recipe, data, setup, False),
        }
        if not rehearse:
            racing["ours, captured, `--compile`"] = ours(recipe, data, setup, compile=True)
            racing["plain loop, compiled"] = plain(recipe, data, setup, True)
        for turn in racing.values():
            turn(warm)
        calls = {n: lambda turn=turn: turn(counted) for n, turn in racing.items()}
        trained = {n: s / counted for n, s in best(calls, device, turns).items()}
        with torch.no_grad(), setup.autocast():
            drawn = best(
                {n: lambda call=call: call(1) for n, call in
                 samplers(recipe, data, setup, images, steps).items()}, device, turns,
            )  # fmt: skip
    lines = [
        "## `diffusion-cifar` on a GPU\n",
        f"Updates of {recipe.batch_size} images, bf16, best of {turns} alternating turns of "
        f"{counted}; and {images} images by {steps} steps of DDIM.",
        *table(trained, recipe.batch_size, "an update"),
        *table(drawn, images, f"{images} images"),
    ]
    if not rehearse:
        lines.append(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}.")
        write("diffusion-gpu", ["\n".join(lines)])
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
