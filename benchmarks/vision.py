"""ResNet-20 on CIFAR-10: our update beside loops written by hand, on a GPU and on the CPU.

    python benchmarks/vision.py                  on the CPU, and on a GPU where there is one
    python benchmarks/vision.py --cpu            on the CPU alone: 1 and 2 threads
    python benchmarks/vision.py --gpu FOLDER     on a GPU alone; FOLDER holds the whole CIFAR-10
    python benchmarks/vision.py --gpu --profile  also the kernels that take longest; random images
    python benchmarks/vision.py --gpu --quick    a quick look, written nowhere

On the GPU, in bf16 with batches of 128: ours as one graph, with and without `--compile`; the plain
loop of gpu.py, kernel by kernel; and a graph captured by hand, with the whole set padded and
standardised on the device beforehand, one gather for crop and mirror, and no seeds, terms or
checkpoints. All crop and mirror every batch. The share is that of the fastest matrix product
measured in the same minute, counting the products of the forward and backward pass. On the CPU:
updates of our trainer beside a plain loop, which leaves channels first, on the same float images.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from side_by_side import Contestant, Job, Page, Turn, arguments, write

BATCH, UPDATES = 128, 3
REACH, AIM = 63_000, 126_000  # images a second on an H200
SPEC = {
    "task": "classification",
    "shape": [3, 32, 32],
    "classes": [str(label) for label in range(10)],
    "mean": [0.4914, 0.4822, 0.4465],
    "std": [0.247, 0.2435, 0.2616],
}


# ---------------------------------------------------------------------------------- on the CPU


def batches(job: Job):
    """Three batches of random images, as floats, and their labels."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(UPDATES * BATCH, 3, 32, 32, generator=numbers)
    return x, torch.randint(10, (UPDATES * BATCH,), generator=numbers)


def our_updates(job: Job) -> Callable[[], Turn]:
    import everynet
    from everynet.data.dataset import Data
    from everynet.training.loop import begin, train

    data = Data(splits={"train": batches(job)}, spec=SPEC, batch_size=BATCH)
    recipe = replace(everynet.recipe("resnet-cifar"), steps=10**9, schedule="constant", warmup=0)
    records = train(recipe, begin(recipe, data), data)
    return timed(lambda: next(records), job)


def plain_updates(channels_last: bool) -> Callable[[Job], Callable[[], Turn]]:
    """The loop of torch's tutorials, around our network."""

    def prepare(job: Job) -> Callable[[], Turn]:
        import torch
        from torch.nn.functional import cross_entropy

        from everynet.zoo.vision.resnet import CifarResNet

        form = torch.channels_last if channels_last else torch.contiguous_format
        model = CifarResNet(3, 10).to(memory_format=form)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        x, y = batches(job)

        def update() -> None:
            rows = torch.randperm(len(x))[:BATCH]
            optimizer.zero_grad()
            seen = x[rows].contiguous(memory_format=form)
            cross_entropy(model(seen), y[rows]).backward()
            optimizer.step()

        return timed(update, job)

    return prepare


def timed(update: Callable[[], object], job: Job) -> Callable[[], Turn]:
    """Does several updates and says what one took."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter

    def turn() -> Turn:
        start = clock()
        for _ in range(UPDATES):
            update()
        seconds = (clock() - start) / UPDATES
        return Turn(seconds, f"{BATCH / seconds:,.0f} images a second")

    update()  # the first is slower
    return turn


CONTESTANTS = [
    Contestant("everynet.training.loop", our_updates, "everynet", "everynet"),
    Contestant("plain loop, channels first", plain_updates(False), "torch", "torch", reach=1.0),
    Contestant("plain loop, channels last", plain_updates(True), "torch", "torch"),
]


def on_cpu() -> None:
    given = arguments(__doc__.splitlines()[0], CONTESTANTS, repeats=5)
    page = Page("vision", __file__, given)
    for threads in (1, 2):
        heading = f"ResNet-20, batch {BATCH}, threads: {threads}"
        page.round(heading, CONTESTANTS, {"threads": threads})
    page.close(
        "Vision: an update of ResNet-20 on the CPU",
        f"Seconds of one update (forward, backward, Nesterov) of {BATCH} images of 32 x 32, "
        f"best of {given.repeats} alternating turns of {UPDATES}.",
        "cpu",
    )


# ---------------------------------------------------------------------------------- on the GPU


class ByHand:
    """The same update captured by hand: what a careful script does for this one network."""

    def __init__(self, recipe, data) -> None:
        import torch
        from torch.nn.functional import pad

        from everynet.data.images.standardize import Standardize
        from everynet.zoo.vision.resnet import CifarResNet

        x, self.y = data.splits["train"]
        standardize = Standardize.of(data.spec)
        self.sides = torch.arange(32, device=x.device)
        parts = [pad(standardize.images(part).bfloat16(), (4, 4, 4, 4)) for part in x.split(5000)]
        self.x = torch.cat(parts).permute(0, 2, 3, 1).contiguous()  # images rows columns colours
        torch.manual_seed(0)
        self.model = CifarResNet(3, 10).to(x.device, memory_format=torch.channels_last)
        self.rate = torch.full((), recipe.lr, device=x.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.rate, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True,
        )  # fmt: skip
        self.rows, self.top, self.left, self.mirrored = torch.zeros(
            4, BATCH, dtype=torch.int64, device=x.device
        )
        self.graph = self.captured()

    def update(self):
        import torch
        from torch.nn.functional import cross_entropy

        columns = self.left[:, None] + self.sides  # batch columns
        columns = torch.where(self.mirrored[:, None] > 0, columns.flip(1), columns)
        places = self.rows[:, None, None], (self.top[:, None] + self.sides)[..., None]
        seen = self.x[*places, columns[:, None]].permute(0, 3, 1, 2)  # channels last as it is
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(self.model(seen), self.y[self.rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def captured(self):
        import torch

        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                self.update()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            self.update()
        return graph

    def __call__(self, count: int) -> float:
        from gpu import clocked

        return clocked(lambda: self.updates(count))

    def updates(self, count: int) -> None:
        """An epoch's numbers are drawn at once, and copied where the graph reads them."""
        import torch

        device, rows = self.x.device, count * BATCH
        order = torch.randint(len(self.x), (rows,), device=device)
        moves = torch.randint(9, (2, rows), device=device)
        mirrored = torch.randint(2, (rows,), device=device)
        for number in range(count):
            mine = slice(number * BATCH, (number + 1) * BATCH)
            self.rows.copy_(order[mine])
            self.top.copy_(moves[0, mine])
            self.left.copy_(moves[1, mine])
            self.mirrored.copy_(mirrored[mine])
            self.rate.fill_(0.1)
            self.graph.replay()


def product_limit() -> float:
    """The most that matrix products of bf16 reach here, in operations a second."""
    import torch

    from gpu import clocked

    side, best = 8192, math.inf
    a, b = torch.randn(2, side, side, device="cuda", dtype=torch.bfloat16)
    for _ in range(4):
        best = min(best, clocked(lambda: [a @ b for _ in range(20)] and None) / 20)
    return 2 * side**3 / best


def operations() -> float:
    """Additions and multiplications of products in one image's update of ResNet-20.

    The backward pass has two products for each of the forward pass, but for the first layer, whose
    input needs no gradient.
    """
    from everynet.nn.layers import layer_table
    from everynet.zoo.vision.resnet import CifarResNet

    rows = layer_table(CifarResNet(3, 10), (3, 32, 32))
    products = [row.multiplications for row in rows if row.kind in ("Conv2d", "Linear")]
    return 2.0 * (3 * sum(products) - products[0])


KINDS = {
    "fused by torch.compile": ("triton_",),
    "norm": ("batch_norm", "bn_fw", "bn_bw"),
    "convolution": ("conv", "xmma", "cutlass", "gemm", "cudnn", "nhwc", "fprop", "dgrad", "wgrad"),
    "optimiser": ("multi_tensor", "sgd"),
}


def kernels(name: str, turn: Callable[[int], float], count: int = 20) -> str:
    """The kernels of an update that take longest, in microseconds of one update."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        turn(count)
        torch.cuda.synchronize()
    took, calls = Counter(), Counter()
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            took[event.name] += event.time_range.elapsed_us() / count
            calls[event.name] += 1
    kinds = Counter()
    for kernel, micro in took.items():
        low = kernel.lower()
        kind = next((k for k, words in KINDS.items() if any(w in low for w in words)), "the rest")
        kinds[kind] += micro
    lines = [
        f"{name}: {sum(took.values()):,.0f} us in {sum(calls.values()) / count:.0f} kernels; "
        + ", ".join(f"{kind} {micro:,.0f}" for kind, micro in kinds.most_common())
    ]
    lines += [
        f"{micro:9.1f} us {calls[kernel] / count:6.1f} x  {kernel[:110]}"
        for kernel, micro in took.most_common(25)
    ]
    return "\n".join(lines)


def on_gpu(folder: str, *, quick: bool, profiled: bool) -> None:
    import torch

    import everynet
    from everynet.training.device import choose, computing
    from gpu import made, ours, plain

    count, repeats = (50, 2) if quick else (300, 4)
    with tempfile.TemporaryDirectory() as place:
        name = cifar(folder) if folder else str(made(Path(place), "cifar10"))
        recipe = everynet.recipe("resnet-cifar", data=name, holdout=not folder)
        setup = choose("cuda", "bf16")
        with computing(setup):
            data = recipe.dataset().to(setup.device, setup.dtype)
            limit = product_limit()
            ways: dict[str, Callable[[], Callable[[int], float]]] = {
                "everynet, one graph": lambda: ours(recipe, data, setup, True),
                "everynet, one graph, `--compile`": lambda: ours(
                    recipe, data, replace(setup, compile=True), True
                ),
                "plain loop": lambda: plain(recipe, data, setup, False),
                "captured by hand": lambda: ByHand(recipe, data),
            }
            contestants = {}
            for name, prepare in ways.items():
                try:
                    contestants[name] = prepare()
                except Exception as error:  # whatever it is, the others are timed
                    print(f"{name} is left out: {type(error).__name__}: {error}", flush=True)
            best = dict.fromkeys(contestants, math.inf)
            for _ in range(repeats):
                for name, turn in contestants.items():
                    few = count // 4 if name == "plain loop" else count
                    best[name] = min(best[name], turn(few) / few)
            if profiled:
                for name, turn in contestants.items():
                    print(kernels(name, turn), flush=True)
    each = operations()
    table = [
        "| | ms an update | images a second | share of the products' limit |",
        "|---" * 4 + "|",
    ]
    for name, seconds in best.items():
        speed = BATCH / seconds
        share = f"{100 * speed * each / limit:.1f} %"
        table.append(f"| {name} | {1e3 * seconds:.3f} | {speed:,.0f} | {share} |")
    fastest = max(BATCH / best[name] for name in best if name.startswith("everynet"))
    verdict = "reached" if fastest >= REACH else "**not reached**"
    about = (
        f"ResNet-20, bf16, batch {BATCH}, {'whole CIFAR-10' if folder else 'random images'} on the "
        f"device, cropped and mirrored; best of {repeats} turns of {count} updates. An image takes "
        f"{each / 1e6:,.0f} million operations; products of bf16 reach {limit / 1e12:,.0f} "
        f"TFLOP/s here. To reach: {REACH:,} images a second in ours: {verdict} ({fastest:,.0f}); "
        f"aim: {AIM:,}. {torch.cuda.get_device_name()}, torch {torch.__version__}."
    )
    print("\n".join([about, "", *table]), flush=True)
    if not quick:
        write("vision-gpu", ["## Vision: ResNet-20 on a GPU", about, "\n".join(table)])


def cifar(folder: str) -> str:
    """Make the whole CIFAR-10 of a folder known by its name."""
    given = Path(folder).resolve()
    os.environ["EVERYNET_DATA"] = str(given.parent if given.name == "cifar10-whole" else given)
    return "cifar10"


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--gpu", nargs="?", const="", metavar="FOLDER")
    for name in ("cpu", "profile", "quick"):
        parser.add_argument(f"--{name}", action="store_true")
    given, rest = parser.parse_known_args()
    sys.argv[1:] = rest  # what all benchmarks have
    if given.cpu or given.gpu is None:
        on_cpu()
    if given.gpu is not None or not given.cpu:
        import torch

        if torch.cuda.is_available():
            on_gpu(given.gpu or "", quick=given.quick, profiled=given.profile)
        else:
            print("the GPU part of vision.py is left out: there is no GPU here")


if __name__ == "__main__":
    sys.exit(main())
