"""Sound: samples of a WaveNet one after the other, with our compiled loop, with torch and a peer.

    python benchmarks/sound.py --part generation                  the tables of RESULTS.md
    python benchmarks/sound.py --part generation --repeats 1 --samples 1000    a quick look

One sound on one thread, sampled at temperature 1 from silence, by networks with weights as they
begin: what is timed does not depend on them. Everyone keeps the past of each layer, and fills it
before the clock starts. The note says how many samples that is a second; 8,000 a second is real
time for telephone speech.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from side_by_side import Contestant, Job, Page, Turn, arguments

SIZES = {  # blocks of 10 layers, channels, skip channels, and the samples a second to reach
    "10 layers of 32 channels": {"blocks": 1, "channels": 32, "skip": 32, "reach": 20_000},
    "30 layers of 64 channels": {"blocks": 3, "channels": 64, "skip": 64, "reach": 8_000},
}


def timed(job: Job, samples: int, work: Callable[[int], object]) -> Callable[[], Turn]:
    """A turn that is scaled up to the samples of the job, and says the rate."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    work(16)  # compiles

    def turn() -> Turn:
        start = clock()
        work(samples)
        seconds = clock() - start
        rate = samples / seconds
        kept = f"; asked for {job['reach']:,}: {'yes' if rate >= job['reach'] else 'no'}"
        return Turn(job["samples"] / rate, f"{rate:,.0f} samples a second{kept}")

    return turn


def network(job: Job) -> Any:
    import torch

    from everynet.zoo import WaveNet

    torch.manual_seed(0)
    return WaveNet(job["channels"], job["skip"], blocks=job["blocks"], layers=10).eval()


def with_everynet(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.audio.wavenet_generation import generate

    model, silence = network(job), torch.full((1, 1), 128)
    return timed(job, job["samples"], lambda n: generate(model, silence, torch.rand(1, n)))


def with_torch(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.zoo.audio.wavenet_generation import Queues

    model, silence = network(job), torch.full((1, 1), 128)

    @torch.no_grad()
    def work(n: int) -> None:
        Queues(model, silence).eager(torch.rand(1, n), 1.0)

    return timed(job, max(100, job["samples"] // 50), work)


def with_wavenet_vocoder(job: Job) -> Callable[[], Turn]:
    import torch
    from wavenet_vocoder import WaveNet

    model = WaveNet(
        out_channels=256,
        layers=10 * job["blocks"],
        stacks=job["blocks"],
        residual_channels=job["channels"],
        gate_channels=2 * job["channels"],
        skip_out_channels=job["skip"],
        kernel_size=2,
        dropout=0.0,
        cin_channels=-1,
        gin_channels=-1,
        scalar_input=False,
    ).eval()
    model.make_generation_fast_()
    silence = torch.nn.functional.one_hot(torch.tensor([[[128]]]), 256)[0].float().transpose(1, 2)

    @torch.no_grad()
    def work(n: int) -> None:
        model.incremental_forward(silence, T=n, tqdm=lambda x: x, softmax=True, quantize=True)

    return timed(job, max(50, job["samples"] // 100), work)


GENERATION = [
    Contestant("everynet", with_everynet, "everynet.zoo.audio.wavenet", "everynet"),
    Contestant("the same by torch, step by step", with_torch, "torch", "torch", reach=8.0),
    Contestant("wavenet_vocoder", with_wavenet_vocoder, "wavenet_vocoder", "wavenet_vocoder"),
]


def main() -> int:
    given = arguments(__doc__.splitlines()[0], GENERATION, repeats=5, samples=20_000)
    page = Page("sound", __file__, given)
    if given.part in ("", "generation"):
        for name, size in SIZES.items():
            job = {**size, "samples": given.samples, "threads": 1}
            page.round(f"{given.samples:,} samples of a WaveNet, {name}", GENERATION, job)
        page.close("Sound: a WaveNet sample by sample", __doc__.split("\n\n")[2], "generation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
