"""Music on a grid of 16ths: Bach's chorales, and melodies over a bass from a small grammar.

A melody has eight bars in a major key, over a bass. Bar 1 has the chord I, then chords follow each
other by `_CHORDS`; bars 5 and 6 repeat 1 and 2, and V I ends the piece. A half bar has one of
`_RHYTHMS`. The first note of a bar is a tone of its chord, the one nearest to the note before; the
others go up or down by one or two steps of the scale. The bass plays the root, or root and fifth.
No two choices make the same piece, so that the sum of their logarithms is the probability of it,
and the mean of that over notes is the least that any network can reach.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np

from everynet.data.kinds.notes import BAR, Pieces
from everynet.data.sets import parse_count
from everynet.data.sounds.midi import REST, Grid
from everynet.data.split import GENERATED, PARTS, generate_parts

COUNT = 500
"""Training and validation pieces of the set; a fifth as many more are its test."""
_BARS, _LOW, _HIGH = 8, -3, 9
_SCALE = (0, 2, 4, 5, 7, 9, 11)
_CHORDS: Mapping[int, Mapping[int, float]] = {
    0: {1: 0.2, 3: 0.3, 4: 0.3, 5: 0.2},
    1: {3: 0.2, 4: 0.8},
    3: {0: 0.3, 1: 0.2, 4: 0.5},
    4: {0: 0.6, 3: 0.1, 5: 0.3},
    5: {1: 0.3, 3: 0.5, 4: 0.2},
}
"""After a chord, by the degree of its root, the probability of each that may follow."""
_RHYTHMS = {
    **{(8,): 0.1, (4, 4): 0.3, (4, 2, 2): 0.2},
    **{(2, 2, 4): 0.15, (6, 2): 0.15, (2, 2, 2, 2): 0.1},
}
_TONES = {0: 0.4, 2: 0.35, 4: 0.25}
_STEPS = {-2: 0.1, -1: 0.4, 1: 0.4, 2: 0.1}
T = TypeVar("T")


class _Choices:
    """Random choices, and the logarithm of their probability."""

    def __init__(self, random: Random) -> None:
        self.random, self.log_p = random, 0.0

    def __call__(self, weights: Mapping[T, float]) -> T:
        total = sum(weights.values())
        (chosen,) = self.random.choices([*weights], [*weights.values()])
        self.log_p += math.log(weights[chosen] / total)
        return chosen


def melodies(count: str) -> Pieces:
    """So many pieces of the grammar; each follows from its own seed."""
    number = parse_count("melodies", count, COUNT, 20, 100_000)
    drawn = generate_parts(number, _draw)
    parts = {part: [grid for grid, _ in drawn[part]] for part in PARTS}
    log_p = sum(log_p for _, log_p in drawn["test"])
    notes = sum(grid.size for grid in parts["test"])
    total = hashlib.sha256(b"".join(grid.tobytes() for part in PARTS for grid in parts[part]))
    return Pieces("melodies", parts, total.hexdigest(), GENERATED, entropy=-log_p / notes)


def _draw(count: int, seed: int) -> list[tuple[Grid, float]]:
    return [_melody(Random(f"melodies {seed} {number}")) for number in range(count)]


def _melody(random: Random) -> tuple[Grid, float]:
    """A piece of two voices, and the logarithm of its probability."""
    choose = _Choices(random)
    key = choose(dict.fromkeys(range(12), 1.0))
    grid = np.full((_BARS * BAR, 2), REST, np.int8)
    chord, degree, ends = 0, 0, list[int]()
    for bar in range(_BARS):
        here = grid[bar * BAR : (bar + 1) * BAR]
        if bar in (4, 5):  # which repeat bars 1 and 2
            here[:], degree = grid[(bar - 4) * BAR : (bar - 3) * BAR], ends[bar - 4]
            continue
        last = bar == _BARS - 1
        if bar:
            chord = 0 if last else 4 if bar == _BARS - 2 else choose(_CHORDS[chord])
        tone = (chord + (0 if last else choose(_TONES))) % 7
        rhythm = (BAR,) if last else (*choose(_RHYTHMS), *choose(_RHYTHMS))
        at = 0
        for number, length in enumerate(rhythm):
            if number:
                inside = {s: p for s, p in _STEPS.items() if _LOW <= degree + s <= _HIGH}
                degree += choose(inside)
            else:
                known = [d for d in range(_LOW, _HIGH + 1) if d % 7 == tone]
                degree = min(known, key=lambda d: (abs(d - degree), d))
            here[at : at + length, 0] = 60 + key + 12 * (degree // 7) + _SCALE[degree % 7]
            at += length
        ends.append(degree)
        root, fifth = (36 + (key + _SCALE[(chord + d) % 7]) % 12 for d in (0, 4))
        here[:, 1] = root
        if not last and choose({True: 0.5, False: 0.5}):
            here[BAR // 2 :, 1] = fifth
    return grid, choose.log_p


def chorales(held: Sequence[bytes]) -> Pieces:
    """Chorales by J. S. Bach in the parts that they ship with: soprano, alto, tenor, bass."""
    found = json.loads(held[0])
    parts = {part: [np.array(piece, np.int8) for piece in found[part]] for part in PARTS}
    return Pieces("", parts, "", "the three parts that it ships with", published=True)
