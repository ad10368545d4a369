"""The linear recurrence on a GPU, forward and backward, beside torch's and accelerated-scan's.

    python benchmarks/recurrent_gpu.py            on a machine with a GPU: a section of RESULTS.md
    python benchmarks/recurrent_gpu.py --quick    a quick look, written nowhere

Each gets a and b in the layout it likes best, and must give the states of a loop in float64. Where
accelerated-scan is not installed, a kernel of the same form stands for it, which says so: one
program for each row and unit, a tree over blocks of 2,048 steps, in its layout (batch, dim, time).
They take turns, each a CUDA event around as many calls as fill some milliseconds; the best counts.
"""

import argparse
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from everynet.kernels.recurrence import linear_recurrence
from side_by_side import write

SIZES = ((8, 1024, 256), (8, 4096, 256), (64, 256, 384), (8, 16384, 1024))
Scan = Callable[[Tensor, Tensor], Tensor]


def ours(a: Tensor, b: Tensor) -> Tensor:
    return linear_recurrence(a, b, a.new_zeros(a.shape[0], a.shape[2]))


def torchs(mode: str) -> Scan:
    """Torch's associative scan, compiled: without that it is a Python loop over kernels."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def join(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    def scan(a: Tensor, b: Tensor) -> Tensor:
        return associative_scan(join, (a, b), dim=1, combine_mode=mode)[1]

    return torch.compile(scan)


def peers() -> dict[str, tuple[Scan, bool]]:
    """By name: the scan, and whether time is its last dimension."""
    found = {"everynet": (ours, False)}
    for mode in ("pointwise", "generic"):
        found[f"torch associative_scan, {mode}, compiled"] = (torchs(mode), False)
    for name in ("scalar", "warp"):  # in Triton, and in CUDA, which is built on first use
        try:
            module = __import__(f"accelerated_scan.{name}", fromlist=["scan"])
            found[f"accelerated-scan, {name}"] = (module.scan, True)
        except Exception as error:  # not installed, or no compiler: said, and left out
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"accelerated-scan, {name}, is left out: {said}", flush=True)
    if len(found) == 3:
        from peers.row_scan import scan

        found["a kernel of accelerated-scan's form, ours"] = (scan, True)
    return found


def exact(a: Tensor, b: Tensor) -> Tensor:
    h, states = torch.zeros_like(b[:, 0], dtype=torch.float64), []
    for now, more in zip(a.double().unbind(1), b.double().unbind(1), strict=True):
        h = now * h + more
        states.append(h)
    return torch.stack(states, 1)


def timed(work: Callable[[], None], calls: int) -> float:
    """Milliseconds of one call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls


def race(size: tuple[int, int, int], repeats: int) -> dict[str, tuple[float, float]]:
    """Best milliseconds and largest error of each."""
    random = torch.Generator("cuda").manual_seed(0)
    a = torch.rand(size, device="cuda", generator=random) * 0.98 + 0.01
    b = torch.rand(size, device="cuda", generator=random) + 0.01
    right, works, errors = exact(a, b), {}, {}
    up = torch.randn(size, device="cuda", generator=random)
    for name, (scan, turned) in peers().items():
        given = [x.transpose(1, 2).contiguous() if turned else x.clone() for x in (a, b, up)]

        def work(scan=scan, given=given) -> Tensor:
            given[0].grad = given[1].grad = None
            states = scan(given[0], given[1])
            states.backward(given[2])
            return states

        for leaf in given[:2]:
            leaf.requires_grad_()
        try:
            states = work().detach()
            wrong = (states.transpose(1, 2) if turned else states) - right
            errors[name] = (wrong.abs().max() / right.abs().max()).item()
            for _ in range(3):
                work()
            works[name] = work
        except Exception as error:  # whatever a peer raises is the reason it is left out
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"{name} is left out at {size}: {said[:200]}", flush=True)
    calls = {name: max(1, int(20 / max(timed(work, 1), 0.01))) for name, work in works.items()}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(repeats):
        for name, work in works.items():
            best[name] = min(best[name], timed(work, calls[name]))
    return {name: (best[name], errors[name]) for name in works}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("recurrent_gpu.py is left out: there is no GPU here")
        return 0
    warnings.simplefilter("ignore")  # compiling says what it would rather have
    rows = ["| batch x time x dim | | ms | ratio to ours | largest error |", "|---" * 5 + "|"]
    for size in SIZES[: 1 if given.quick else None]:
        torch._dynamo.reset()
        found = race(size, 2 if given.quick else 10)
        for name, (ms, error) in found.items():
            ratio = ms / found["everynet"][0]
            shape = " x ".join(f"{n:,}" for n in size)
            rows.append(f"| {shape} | {name} | {ms:.4f} | {ratio:.2f} | {error:.1e} |")
            print(rows[-1], flush=True)
    about = (
        "Forward and backward in float32, best of ten alternating turns; to reach: level with "
        "accelerated-scan's kernel (a ratio of about 1 or more). Errors are shares of the largest "
        f"state. {torch.cuda.get_device_name()}, torch {torch.__version__}."
    )
    print(about)
    if not given.quick:
        write("recurrent-gpu", ["## Recurrent layers: on a GPU", about, "\n".join(rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
