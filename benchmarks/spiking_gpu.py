"""How many neurons a GPU updates in a second, by the same calls as on the CPU.

    python benchmarks/spiking_gpu.py       on a machine with a GPU: a section of RESULTS.md

Neurons on their own, and a network with a thousand synapses from each neuron; each is first run
on both devices at a small size, and the spikes must be the same.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from everynet.zoo.spiking.lif import LIF
from everynet.zoo.spiking.network import LIFNetwork
from side_by_side import write

TAU_M, TAU_S = 0.02, 0.005  # s
EACH = 1_000  # synapses from a neuron


def drives(neurons: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.8 + 0.7 * torch.rand(neurons, generator=generator, dtype=torch.float64)


def joined(neurons: int, each: int, dtype: type) -> LIFNetwork:
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, neurons, (neurons, each), dtype=np.int32), axis=1)
    values = TAU_M * 0.1 / np.sqrt(each) * rng.standard_normal(neurons * each)
    ends = np.arange(0, neurons * each + 1, each)
    shape = (neurons, neurons)
    weights = scipy.sparse.csr_matrix((values.astype(dtype), places.ravel(), ends), shape=shape)
    return LIFNetwork(weights, TAU_S, TAU_M, 0.0)


def best(run: Callable[[], Tensor]) -> tuple[float, int]:
    """The best time of three, and the spikes."""
    seconds = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        times = run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:]), len(times)


def check() -> None:
    """The same spikes on both devices, in float64."""
    x, neuron, network = drives(2_000), LIF(TAU_M, 0.002), joined(2_000, 200, np.float64)
    here, there = neuron.simulate(x, 0.2, 1e-4), neuron.simulate(x.cuda(), 0.2, 1e-4)
    assert torch.equal(here.times, there.times.cpu())
    here, there = network.simulate(0.2, 1e-4, x), network.simulate(0.2, 1e-4, x, device="cuda")
    assert torch.equal(here.times, there.times.cpu())


def main() -> None:
    if not torch.cuda.is_available():
        print("spiking_gpu.py is left out: there is no GPU here")
        return
    check()
    rows = ["| | dt ms | s of neurons | seconds | updates a second | spikes |", "|---" * 6 + "|"]

    def add(name: str, neurons: int, duration: float, dt: float, run: Callable) -> None:
        seconds, spikes = best(lambda: run(duration, dt).times)
        rate = neurons * duration / dt / seconds
        rows.append(
            f"| {name} | {1e3 * dt:g} | {duration:g} | {seconds:.3f} | {rate:.2e} | {spikes:,} |"
        )
        print(rows[-1], flush=True)

    x = drives(10**6).float().cuda()
    for duration, dt in ((1.0, 1e-3), (0.1, 1e-4)):
        add(
            "10^6 neurons on their own",
            10**6,
            duration,
            dt,
            lambda t, dt: LIF(TAU_M, 0.0).simulate(x, t, dt),
        )
    network, y = joined(10**5, EACH, np.float32), drives(10**5).float()
    for duration, dt in ((1.0, 1e-3), (0.2, 1e-4)):
        add(
            "10^5 neurons, 10^8 synapses", 10**5, duration, dt,
            lambda t, dt: network.simulate(t, dt, y, device="cuda"),
        )  # fmt: skip
    start = time.perf_counter()
    spikes = len(network.simulate(1.0, 1e-3, y).times)
    seconds = time.perf_counter() - start
    rows.append(
        f"| the same, one CPU thread | 1 | 1 | {seconds:.3f} | {1e8 / seconds:.2e} | {spikes:,} |"
    )
    about = (
        "float32, best of three; spikes equal those of the CPU in float64 at 2,000 neurons. "
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; at most "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GB of its memory."
    )
    write("spiking-gpu", ["## Spiking: on a GPU", about, "\n".join(rows)])


if __name__ == "__main__":
    sys.exit(main())
