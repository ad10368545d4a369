"""Sounds: tones, chords and sweeps, words of three tones, and digits that six people speak."""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from everynet.data.kinds.sound import Clip, Sounds, digest_of
from everynet.data.sets import parse_count
from everynet.data.sounds import wav
from everynet.data.split import GENERATED, PARTS, generate_parts, held_out
from everynet.system.seeds import generator

RATE = 8000  # Hz
COUNT = 800
SORTS = ("chord", "falling", "rising", "tone")
TRIADS = ((1.0, 5 / 4, 3 / 2), (1.0, 6 / 5, 3 / 2))
"""Major and minor, as ratios of frequencies."""
SOLFEGE = {"do": 1.0, "re": 9 / 8, "mi": 5 / 4, "so": 3 / 2}
WORDS = ("doremi", "domiso", "redomi", "remiso", "midore", "misodo", "somire", "sodore")
VOICES = {
    "bass": (220.0, (1.0, 0.5, 0.3)),
    "flute": (660.0, (1.0, 0.1)),
    "reed": (440.0, (1.0, 0.0, 0.6, 0.0, 0.3)),
    "string": (330.0, (1.0, 0.7, 0.5, 0.3)),
}
"""The frequency of do in Hz, and the strength of each harmonic."""
EDGE = 0.01  # s: how long a tone swells and fades
PUBLISHED = 5
"""Recordings of a digit by a speaker, from the first, that are the test."""


def _wave(frequency: Float[Tensor, " frames"], harmonics: Sequence[float]) -> Float[Tensor, " _"]:
    """A sound whose pitch follows the frequencies (Hz), soft at both ends."""
    phase = 2 * math.pi * frequency.cumsum(0) / RATE
    sound = sum(
        (strength * (n * phase).sin() for n, strength in enumerate(harmonics, 1)),
        start=torch.zeros_like(phase),
    )
    edge = min(round(EDGE * RATE), len(phase) // 2)
    ramp = (torch.arange(len(phase)) / edge).clamp(max=1)
    return sound * torch.minimum(ramp, ramp.flip(0))


def _finished(sound: Tensor, random: torch.Generator) -> Tensor:
    """At a loudness of its own, 0 to 20 dB below the full scale, with noise 30 dB below it."""
    loudness = 0.9 * 10 ** -float(torch.rand((), generator=random))
    noise = torch.randn(len(sound), generator=random) * 10 ** (-30 / 20)
    scaled = loudness * (sound + noise * sound.square().mean().sqrt()) / sound.abs().max()
    return torch.from_numpy(wav.to_16_bits((scaled / 1.2).numpy()))


def _uniform(low: float, high: float, random: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=random))


def _sort(number: int, random: torch.Generator) -> Clip:
    """A clip of the sort whose turn it is, of 0.2 to 0.4 s, from 200 to 1,600 Hz."""
    label = SORTS[number % len(SORTS)]
    frames = round(_uniform(0.2, 0.4, random) * RATE)
    low = 200 * 2 ** _uniform(0, 2, random)
    if label == "chord":
        triad = TRIADS[int(torch.randint(2, (), generator=random))]
        sound = sum(
            (_wave(torch.full((frames,), low * ratio), (1.0,)) for ratio in triad),
            start=torch.zeros(frames),
        )
    else:
        ends = {"tone": (low, low), "rising": (low, 2 * low), "falling": (2 * low, low)}[label]
        sound = _wave(torch.linspace(*ends, frames), (1.0,))
    return Clip(_finished(sound, random), RATE, label)


def _word(number: int, random: torch.Generator) -> Clip:
    """A word of three tones of 60 to 100 ms in one of the voices, a little out of tune."""
    label = WORDS[number % len(WORDS)]
    voice = [*VOICES][number // len(WORDS) % len(VOICES)]
    do, harmonics = VOICES[voice]
    do *= 2 ** _uniform(-0.5 / 12, 0.5 / 12, random)  # half a semitone
    parts = []
    for name in (label[:2], label[2:4], label[4:]):
        frames = round(_uniform(0.06, 0.1, random) * RATE)
        parts.append(_wave(torch.full((frames,), do * SOLFEGE[name]), harmonics))
    return Clip(_finished(torch.cat(parts), random), RATE, label, voice)


def _generated(name: str, count: str, make: Callable[[int, torch.Generator], Clip]) -> Sounds:
    size = parse_count(name, count, COUNT, 100, 100_000)

    def draw(clips: int, seed: int) -> list[Clip]:
        random = generator(seed, *name.encode())
        return [make(n, random)._replace(place=f"clip {n} of {name}") for n in range(clips)]

    parts = generate_parts(size, draw)
    return Sounds(name, parts, digest_of(c for p in PARTS for c in parts[p]), GENERATED)


def tones(count: str = "") -> Sounds:
    """Tones, chords and sweeps."""
    return _generated("tones", count, _sort)


def tone_words(count: str = "") -> Sounds:
    """Words of three tones, so that the same tones in another order are another word."""
    return _generated("tone-words", count, _word)


def spoken_digits(held: Sequence[bytes]) -> Sounds:
    """Files called digit_speaker_number.wav, of which numbers 0 to 4 are the published test."""
    clips: dict[str, Clip] = {}
    numbers: dict[str, int] = {}
    with zipfile.ZipFile(io.BytesIO(held[0])) as archive:
        for member in sorted(archive.namelist()):
            found = re.fullmatch(r"(?:.*/)?((\d)_([a-z]+)_(\d+)\.wav)", member)
            if found:
                name, digit, speaker, number = found.groups()
                sound = wav.decode(archive.read(member), Path(name))
                values = torch.from_numpy(wav.to_16_bits(sound.values))
                clips[name] = Clip(values, sound.rate, digit, speaker, name)
                numbers[name] = int(number)
    rest = [name for name in clips if numbers[name] >= PUBLISHED]
    valid = {n for n, marked in zip(rest, held_out(rest, 0.1, "valid").tolist(), strict=True)
             if marked}  # fmt: skip
    parts: dict[str, list[Clip]] = {part: [] for part in PARTS}
    for name, clip in clips.items():
        its = "test" if numbers[name] < PUBLISHED else "valid" if name in valid else "train"
        parts[its].append(clip)
    return Sounds(
        name="",
        parts=parts,
        digest="",
        split="recordings 0 to 4 of each digit and speaker are the published test; a tenth of the "
        "rest, by hash of the file name, is for validation",
        published=True,
    )


SECTIONS = 6
"""Classes of a piece of music: which sixth of it is heard."""
PIECE_RATE, HALF = 16_000, 8_000  # Hz, and samples in half a second


def music_clip(held: Sequence[bytes]) -> Sounds:
    """Half seconds of one piece, each with the number of the sixth that it is of."""
    sound = wav.decode_any(held[0], Path("Kevin_MacLeod_-_Vibe_Ace.ogg"))
    whole = wav.resample(wav.to_16_bits(sound.values), sound.rate, PIECE_RATE)
    count = len(whole) // HALF  # what is left over is left out
    parts = torch.from_numpy(whole)[: count * HALF].split(HALF)
    clips = [
        Clip(part, PIECE_RATE, str(1 + n * SECTIONS // count), place=f"half second {n}")
        for n, part in enumerate(parts)
    ]
    split = "half seconds of one piece: by hash, a fifth is test and a tenth of the rest is valid"
    made = Sounds.divide(clips, "", [clip.place for clip in clips], split=split)
    return replace(made, digest="")
