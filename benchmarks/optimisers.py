"""One step of Lion on ten million parameters, ours and every other there is.

    python benchmarks/optimisers.py                          the tables of benchmarks/RESULTS.md
    python benchmarks/optimisers.py --steps 5 --repeats 1    a quick look, written nowhere
    python benchmarks/optimisers.py --device cuda            the same on a GPU; our own Python is
                                                             taken where .bench has none

200 tensors of 50,000 float32 each, gradients given, weight decay on; on the CPU with one and with
two threads. Each Lion must take the steps of the published pseudocode, or it is left out. Peers are
shown with their lists of tensors (foreach) and without, because either may be the faster. torch's
fused AdamW, which reads and writes one moment more, is shown beside them and not judged.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Callable

import numpy as np

from side_by_side import Contestant, Job, Page, arguments

TENSORS, SHAPE = 200, (250, 200)
RATE, B1, B2, DECAY = 1e-3, 0.9, 0.99, 0.1
CHECKED = 4  # steps that are compared with the pseudocode


def arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and gradients of the first `count` tensors."""
    random = np.random.default_rng(0)
    drawn = random.standard_normal((count, 2, *SHAPE), dtype=np.float32)
    return drawn[:, 0], drawn[:, 1]


def published() -> np.ndarray:
    """The first tensor after CHECKED steps, by the pseudocode; the gradient turns round halfway."""
    (x,), (g,) = (part.astype(np.float64) for part in arrays(1))
    m = np.zeros_like(x)
    for step in range(CHECKED):
        slope = g if step < CHECKED / 2 else -g
        x = x - RATE * (np.sign(B1 * m + (1 - B1) * slope) + DECAY * x)
        m = B2 * m + (1 - B2) * slope
    return x


def repeated(job: Job, make: Callable, is_lion: bool = True) -> Callable[[], object]:
    """The work of a turn, after the first steps have been found right."""
    import torch

    weights, gradients = arrays(TENSORS)
    parameters = [torch.nn.Parameter(torch.from_numpy(w).to(job["device"])) for w in weights]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = torch.from_numpy(g).to(job["device"])
    optimizer = make(parameters)
    for step in range(CHECKED):
        if step == CHECKED / 2:
            for p in parameters:
                p.grad.neg_()
        optimizer.step()
    error = np.abs(parameters[0].detach().cpu().numpy() - published())
    if is_lion and np.mean(error > 1e-5) > 1e-3:  # a sign may turn by rounding
        raise ValueError(f"weights are {error.max():.1e} away from Lion's: this is other work")
    wait = torch.cuda.synchronize if job["device"] == "cuda" else lambda: None
    wait()

    def work() -> None:
        for _ in range(job["steps"]):
            optimizer.step()
        wait()

    return work


# ------------------------------------------------------------------------------------ contestants


def with_everynet(job: Job) -> Callable[[], object]:
    from everynet.nn.lion import Lion

    return repeated(job, lambda p: Lion(p, lr=RATE, betas=(B1, B2), weight_decay=DECAY))


def with_lion_pytorch(module: str) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        lion = importlib.import_module(module).Lion
        return repeated(job, lambda p: lion(p, lr=RATE, betas=(B1, B2), weight_decay=DECAY))

    return prepare


def with_pytorch_optimizer(foreach: bool) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        from pytorch_optimizer import Lion

        return repeated(
            job,
            lambda p: Lion(p, lr=RATE, betas=(B1, B2), weight_decay=DECAY, foreach=foreach),
        )

    return prepare


def with_timm(foreach: bool) -> Callable[[Job], Callable[[], object]]:
    def prepare(job: Job) -> Callable[[], object]:
        lion = alone("timm.optim.lion").Lion
        return repeated(
            job,
            lambda p: lion(p, lr=RATE, betas=(B1, B2), weight_decay=DECAY, foreach=foreach),
        )

    return prepare


def with_adamw(job: Job) -> Callable[[], object]:
    import torch

    return repeated(
        job,
        lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=DECAY, fused=True),
        is_lion=False,
    )


def alone(name: str) -> types.ModuleType:
    """A module without what the packages around it import: timm's need torchvision."""
    top, *middle, _ = name.split(".")
    (folder,) = importlib.util.find_spec(top).submodule_search_locations
    for number in range(len(middle) + 1):
        package = types.ModuleType(".".join([top, *middle[:number]]))
        package.__path__ = ["/".join([folder, *middle[:number]])]
        sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(name)


def contestants(device: str = "cpu") -> list[Contestant]:
    """Ours first: twice as fast as any on the CPU, at least as fast as timm's on a GPU."""
    try:
        ours = importlib.metadata.version("everynet") and "everynet"
    except importlib.metadata.PackageNotFoundError:  # src is on the path, and that is enough
        ours = ""
    on_cpu = 2.0 if device == "cpu" else None
    optimizers = ("pytorch_optimizer", "pytorch_optimizer")
    return [
        Contestant("everynet", with_everynet, "everynet.nn.lion", ours),
        Contestant(
            *("lion-pytorch", with_lion_pytorch("lion_pytorch"), "lion_pytorch", "lion-pytorch"),
            reach=on_cpu,
        ),
        Contestant(
            *("lion-pytorch, foreach", with_lion_pytorch("lion_pytorch.foreach")),
            *("lion_pytorch", "lion-pytorch"),
            reach=on_cpu,
        ),
        Contestant("pytorch_optimizer", with_pytorch_optimizer(False), *optimizers, reach=on_cpu),
        Contestant(
            "pytorch_optimizer, foreach", with_pytorch_optimizer(True), *optimizers, reach=on_cpu
        ),
        Contestant("timm", with_timm(False), "torch", "timm", reach=on_cpu),
        Contestant("timm, foreach", with_timm(True), "torch", "timm", reach=on_cpu or 1.0),
        Contestant("torch fused AdamW", with_adamw, "torch", "torch"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    chosen, sys.argv[1:] = parser.parse_known_args()
    device = chosen.device
    given = arguments(__doc__.splitlines()[0], contestants(device), repeats=9, steps=50)
    page = Page("optimisers", __file__, given)
    gpu = ""
    if device == "cuda":
        import torch

        page.name = "optimisers-cuda"
        gpu = f" On {torch.cuda.get_device_name()}."
    for threads in (1, 2) if device == "cpu" else (1,):
        job = {"device": device, "steps": given.steps, "threads": threads}
        heading = f"{given.steps} steps on 10 million parameters, {device}, threads: {threads}"
        page.round(heading, contestants(device), job)
    page.close(
        "Lion: a step on 10 million parameters" + (" on a GPU" if gpu else ""),
        f"{TENSORS} tensors of 50,000 float32 each; best of {given.repeats} alternating turns of "
        f"{given.steps} steps, each optimiser in a process of its own.{gpu} Every Lion was checked "
        "against the published pseudocode. AdamW keeps a second moment and is not judged.",
    )


if __name__ == "__main__":
    sys.exit(main())
