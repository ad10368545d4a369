"""Voices as sound, by adding up harmonics: enough to hear what a network made.

    f = 440 * 2^((p - 69) / 12)                       (1)  frequency of pitch p, in hertz
    y(t) = e(t) sum_k k^(-3/2) exp(-k t / d) sin(2 pi k f t)    (2)  k f below half the rate

t is the time since a note began, d = 1 s lets high harmonics fade first, as those of a string do,
and e rises and falls in 10 ms at both ends, so that nothing clicks. Notes are added, and the sum is
scaled to nine tenths of full scale.

Helmholtz (1863), "Die Lehre von den Tonempfindungen", for tones as sums of harmonics.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int16

from everynet.data.sounds.midi import SECONDS, Grid, held_notes

RATE = 22_050
_HARMONICS, _DECAY, _EDGE, _PEAK = 10, 1.0, 0.01, 0.9


def frequency(pitch: float) -> float:
    """The frequency of a pitch in equal temperament, hertz."""
    return float(440 * 2 ** ((pitch - 69) / 12))  # (1)


def tone(pitch: float, seconds: float, rate: int = RATE) -> Float64[np.ndarray, " time"]:
    """One note."""
    t, f = np.arange(round(seconds * rate)) / rate, frequency(pitch)
    y = np.zeros(len(t))
    for k in range(1, _HARMONICS + 1):
        if k * f < rate / 2:
            y += k**-1.5 * np.exp(-k * t / _DECAY) * np.sin(2 * np.pi * k * f * t)  # (2)
    return y * np.minimum(1, np.minimum(t, seconds - t) / _EDGE)


def synthesise(
    grid: Grid, *, rate: int = RATE, seconds: float = SECONDS
) -> Int16[np.ndarray, " samples"]:
    """All voices together, as 16-bit samples; `seconds` is how long a 16th lasts."""
    places = [round(n * seconds * rate) for n in range(len(grid) + 1)]
    sound = np.zeros(places[-1])
    for line in grid.T:
        for start, end, pitch in held_notes(line):
            first, last = places[start], places[end]
            sound[first:last] += tone(pitch, (last - first) / rate, rate)
    peak = np.abs(sound).max(initial=0)
    return np.round(sound * (_PEAK * 32767 / peak if peak else 0)).astype(np.int16)
