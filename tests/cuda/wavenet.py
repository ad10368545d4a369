"""Sound by a recorded graph is that of the network: `python tests/cuda/wavenet.py`, where CUDA is.

A plain script: each check prints a line, then the samples a second of many sounds at once.
"""

from __future__ import annotations

import sys
import time

import torch

from everynet.zoo import WaveNet
from everynet.zoo.audio.wavenet_generation import Queues, generate, generate_naively


def network(dtype: torch.dtype, channels: int = 8, blocks: int = 2, layers: int = 4) -> WaveNet:
    torch.manual_seed(0)
    net = WaveNet(channels, channels, blocks=blocks, layers=layers, conditions=(3,), features=2)
    return net.to("cuda", dtype).eval()


def equal(dtype: torch.dtype, prompt: int) -> bool:
    """Whether graph, eager steps, the whole network and the CPU give one and the same sound."""
    net = network(dtype)
    x = torch.randint(256, (5, prompt), device="cuda")
    uniforms, g = torch.rand(5, 50, device="cuda"), torch.randn(5, 3, device="cuda", dtype=dtype)
    v = torch.randn(5, 2, prompt + 50, device="cuda", dtype=dtype)
    replayed = generate(net, x, uniforms, g=g, v=v)
    eager = Queues(net, x, g=g, v=v, more=50).eager(uniforms.to(dtype), 1.0)
    naive = generate_naively(net, x, uniforms, g=g, v=v)
    on_cpu = generate(net.cpu(), x.cpu(), uniforms.cpu(), g=g.cpu(), v=v.cpu())
    return all(torch.equal(replayed.cpu(), other.cpu()) for other in (eager, naive, on_cpu))


def rate(batch: int, steps: int = 2000) -> float:
    """Samples a second of 30 layers of 64 channels, recording included."""
    torch.manual_seed(0)
    net = WaveNet(64, 64, blocks=3).cuda().eval()
    silence = torch.full((batch, 1), 128, device="cuda")
    uniforms = torch.rand(batch, steps, device="cuda")
    generate(net, silence, uniforms[:, :10])
    torch.cuda.synchronize()
    start = time.perf_counter()
    generate(net, silence, uniforms)
    torch.cuda.synchronize()
    return batch * steps / (time.perf_counter() - start)


def main() -> int:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    failed = 0
    for dtype in (torch.float64, torch.float32):
        for prompt in (1, 2, 45):
            good = equal(dtype, prompt)
            failed += not good
            print(f"{'equal' if good else 'DIFFERENT'}: {dtype}, after {prompt} samples")
    for batch in (1, 64, 256, 1024):
        print(f"{batch:5d} sounds at once: {rate(batch):,.0f} samples a second")
    print(f"{failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
