"""Sound: a WaveNet sample by sample, the loss over all alignments, and log-mel, beside peers.

    python benchmarks/sound.py                                    the tables of RESULTS.md
    python benchmarks/sound.py --part ctc                         or generation, or log-mel
    python benchmarks/sound.py --part generation --repeats 1 --samples 1000    a quick look

Generation: one sound on one thread, sampled at temperature 1 from silence, by networks with weights
as they begin: what is timed does not depend on them. Everyone keeps the past of each layer, and
fills it before the clock starts. The note says how many samples that is a second; 8,000 a second is
real time for telephone speech.

CTC: loss and gradient of 32 random utterances of up to 200 frames and 20 symbols of 30, from logits
in float32; torch's loss comes after its log_softmax. The note is the mean loss, which must agree.

Log-mel: 32 sounds of 2 s at 16 kHz, 400 samples a frame, 160 a hop, 80 bands of Slaney's scale. The
note is the mean of what comes out; torch's is written with `torch.stft` and the same filters.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from side_by_side import Contestant, Job, Page, Turn, arguments

SIZES = {  # blocks of 10 layers, channels, skip channels, and the samples a second to reach
    "10 layers of 32 channels": {"blocks": 1, "channels": 32, "skip": 32, "reach": 20_000},
    "30 layers of 64 channels": {"blocks": 3, "channels": 64, "skip": 64, "reach": 8_000},
}


def about(part: str) -> str:
    """What the docstring says of a part."""
    return next(text for text in __doc__.split("\n\n") if text.startswith(part)).strip()


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


def utterances(job: Job) -> tuple[Any, ...]:
    """Logits, their lengths, targets, and the lengths of those."""
    import torch

    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(job["batch"], 200, 30, generator=draw, requires_grad=True)
    lengths = torch.randint(120, 201, (job["batch"],), generator=draw)
    targets = torch.randint(1, 30, (job["batch"], 20), generator=draw)
    return logits, lengths, targets, torch.randint(5, 21, (job["batch"],), generator=draw)


def repeated(job: Job, once: Callable[[], float], times: int) -> Callable[[], Turn]:
    """A turn that does the work so many times, after once without the clock."""
    clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    once()

    def turn() -> Turn:
        start = clock()
        for _ in range(times):
            value = once()
        return Turn((clock() - start) / times, f"{value:.4f}")

    return turn


def align_everynet(job: Job) -> Callable[[], Turn]:
    from everynet.kernels.ctc import ctc_loss

    given = utterances(job)

    def once() -> float:
        given[0].grad = None
        loss = ctc_loss(*given).mean()
        loss.backward()
        return loss.item()

    return repeated(job, once, 20)


def align_torch(job: Job) -> Callable[[], Turn]:
    from torch.nn.functional import ctc_loss

    logits, lengths, targets, counts = utterances(job)

    def once() -> float:
        logits.grad = None
        log_p = logits.log_softmax(2).transpose(0, 1)
        loss = ctc_loss(log_p, targets, lengths, counts, reduction="none").mean()
        loss.backward()
        return loss.item()

    return repeated(job, once, 20)


def sounds(job: Job) -> Any:
    import torch

    return torch.randn(job["batch"], 32_000, generator=torch.Generator().manual_seed(0)) / 10


def mel_everynet(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.nn.log_mel import LogMel

    x, features = sounds(job), LogMel(16_000, 400, 160, 80)
    with torch.no_grad():
        return repeated(job, lambda: features(x).mean().item(), 10)


def mel_torch(job: Job) -> Callable[[], Turn]:
    import torch

    from everynet.nn.log_mel import mel_filters

    x, window = sounds(job), torch.hann_window(400)
    filters = mel_filters(16_000, 400, 80).float()

    def once() -> float:
        spectrum = torch.stft(x, 400, 160, window=window, pad_mode="constant", return_complex=True)
        return (filters @ spectrum.abs().square()).clamp(min=1e-10).log().mean().item()

    return repeated(job, once, 10)


def mel_librosa(job: Job) -> Callable[[], Turn]:
    import librosa
    import numpy as np

    x = sounds(job).numpy()

    def once() -> float:
        mel = librosa.feature.melspectrogram(
            y=x, sr=16_000, n_fft=400, hop_length=160, n_mels=80, pad_mode="constant"
        )
        return float(np.log(np.maximum(mel, 1e-10)).mean())

    return repeated(job, once, 10)


CTC = [
    Contestant("everynet", align_everynet, "everynet.kernels.ctc", "everynet"),
    Contestant("torch", align_torch, "torch", "torch", reach=2.0),
]
LOG_MEL = [
    Contestant("everynet", mel_everynet, "everynet.nn.log_mel", "everynet"),
    Contestant("torch.stft by hand", mel_torch, "torch", "torch"),
    Contestant("librosa", mel_librosa, "librosa", "librosa", reach=1.0),
]
EVERYONE = {"generation": GENERATION, "ctc": CTC, "log-mel": LOG_MEL}


def contestants() -> list[Contestant]:
    """All of them, told apart by what they race in."""
    return [
        replace(one, name=f"{one.name}, {part}") if part != "generation" else one
        for part, racing in EVERYONE.items()
        for one in racing
    ]


def main() -> int:
    given = arguments(__doc__.splitlines()[0], contestants(), repeats=5, samples=20_000)
    page = Page("sound", __file__, given)
    if given.part in ("", "generation"):
        for name, size in SIZES.items():
            job = {**size, "samples": given.samples, "threads": 1}
            page.round(f"{given.samples:,} samples of a WaveNet, {name}", GENERATION, job)
        page.close("Sound: a WaveNet sample by sample", about("Generation"), "generation")
    for part, title in (("ctc", "Sound: CTC"), ("log-mel", "Sound: log-mel")):
        if given.part in ("", part):
            racing = [one for one in contestants() if one.name.endswith(f", {part}")]
            for threads in (1, 2):
                job = {"batch": 32, "threads": threads}
                page.round(f"32 at once, {threads} thread{'s' * (threads > 1)}", racing, job)
            page.close(title, about("CTC" if part == "ctc" else "Log-mel"), part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
