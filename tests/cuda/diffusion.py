"""Diffusion on a GPU: `python tests/cuda/diffusion.py`, where CUDA is.

Training as one graph has the bits of eager training, 64 images of 50 steps of DDIM as one graph are
those drawn eagerly, and how long that takes. A plain script, as `captured.py`.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

from everynet.data.dataset import Data
from everynet.training import graph as capture
from everynet.training.device import choose, computing
from everynet.training.loop import begin, train
from everynet.zoo.generative.diffusion import DDIM, denoise, last_of
from everynet.zoo.generative.diffusion_image import RECIPES, ImageDiffusion

IMAGES, STEPS, LONGEST = 64, 50, 0.5


def cifar_like(recipe: ImageDiffusion) -> Data:
    """Images of noise in the sizes of CIFAR-10."""
    draw = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(1024, 3, 32, 32, generator=draw) - 1
    y = torch.arange(1024) % 10
    spec = {"shape": [3, 32, 32], "classes": [str(c) for c in range(10)], "peak": 255.0}
    return Data({"train": (x, y)}, spec, recipe.batch_size, recipe.seed)


def same_bits(precision: str) -> None:
    """Twelve updates of the CIFAR network, captured and eagerly."""
    recipe = replace(RECIPES["diffusion-cifar"], steps=12, batch_size=64, warmup=4)
    found = []
    for capturing in (True, False):
        setup = replace(choose("cuda", precision), capture=capturing)
        with computing(setup):
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.backends.cudnn.benchmark = False  # it would choose by the clock
            data = cifar_like(recipe).to(setup.device, setup.dtype)
            state = begin(recipe, data, setup)
            update = capture.Update(recipe, state, data, setup)
            for _ in train(recipe, state, data, setup=setup, update=update):
                pass
            assert bool(update.graphs) is capturing, update.eager
            found.append([p.clone() for p in recipe.deployed(state).parameters()])
            torch.use_deterministic_algorithms(False)
    apart = max((a - b).abs().max().item() for a, b in zip(*found, strict=True))
    assert apart == 0, f"captured and eager weights are {apart:.2g} apart"


def sampling(precision: str) -> None:
    """64 images as one graph: as drawn eagerly, new noise each time; in bf16 in half a second."""
    recipe, setup = RECIPES["diffusion-cifar"], choose("cuda", precision)
    with computing(setup), torch.no_grad(), setup.autocast():
        model = begin(recipe, cifar_like(recipe), setup).model.eval()
        for weight in model.parameters():  # as if it had learned: no weight is 0
            weight.add_(0.02 * torch.randn_like(weight))
        y = torch.arange(IMAGES, device="cuda") % 10
        predict = recipe.predictor(model, y, 1.0)

        def draw(x: torch.Tensor) -> torch.Tensor:
            return last_of(denoise(predict, model.schedule, x, STEPS, DDIM(), limit=1.0))

        noise = torch.randn(2, IMAGES, 3, 32, 32, device="cuda")
        eager = [draw(x) for x in noise]
        run = capture.captured(draw, noise[0])
        made = [run(x).clone() for x in noise]
        for one, other in zip(eager, made, strict=True):
            torch.testing.assert_close(one, other, atol=2e-2, rtol=0)
        assert not torch.equal(*made)
        seconds = {}
        for name, call in (("eager", draw), ("graph", run)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call(noise[0])
            torch.cuda.synchronize()
            seconds[name] = time.perf_counter() - start
    print(f"  {IMAGES} images of {STEPS} steps:", {n: round(s, 3) for n, s in seconds.items()})
    assert precision != "bf16" or seconds["graph"] < LONGEST


def verb() -> None:
    """`draw_images` in pieces, the last of them smaller, has the images of the CPU."""
    recipe = replace(RECIPES["diffusion-cifar"], widths=(16, 32))
    found = []
    for device in ("cpu", "cuda"):
        setup = choose(device, "fp32")
        with computing(setup), torch.no_grad():
            data = cifar_like(recipe)
            torch.manual_seed(0)
            model = begin(recipe, data, choose("cpu")).model.to(setup.device).eval()
            labels, draw = torch.arange(100) % 10, torch.Generator().manual_seed(1)
            found.append(recipe.draw_images(model, data.spec, labels, draw, n=100, steps=5))
    torch.testing.assert_close(*found, atol=1e-3, rtol=0)


def checks() -> Iterator[tuple[str, Callable[[], None]]]:
    for precision in ("fp32", "bf16"):
        yield f"training, {precision}", lambda p=precision: same_bits(p)
        yield f"sampling, {precision}", lambda p=precision: sampling(p)
    yield "images in pieces", verb


def main() -> int:
    failed = 0
    for name, check in checks():
        start = time.perf_counter()
        try:
            check()
            verdict = "ok"
        except Exception:  # every check is tried
            failed += 1
            verdict = "FAILED\n" + traceback.format_exc()[-700:]
        print(f"{name}: {verdict} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{torch.__version__}, {torch.cuda.get_device_name()}: {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    raise SystemExit(main())
