"""Notes as sound: pitches, harmonics, lengths, and the file."""

import io
import itertools
import wave

import numpy as np
import pytest

from everynet.data.sounds.midi import REST
from everynet.data.sounds.synthesise import RATE, frequency, synthesise, tone
from everynet.data.sounds.wav import encode


def strength(sound, hertz):
    """How much of a frequency there is, by a window that lets neighbours through little."""
    t = np.arange(len(sound)) / RATE
    return abs((np.hanning(len(sound)) * sound * np.exp(-2j * np.pi * hertz * t)).sum())


def test_an_octave_doubles_the_frequency():
    assert frequency(69) == 440
    assert frequency(81) == pytest.approx(880)
    assert frequency(60) == pytest.approx(261.6256, abs=1e-4)


def test_harmonics_fall_by_the_power_of_three_halves_and_fade_the_faster_the_higher():
    """At the start of a note of 200 ms, mid-window: k^-1.5 exp(-k t)."""
    f, sound = frequency(57), tone(57, 0.2)
    first = strength(sound, f)
    for k in (2, 3, 5):
        assert strength(sound, k * f) / first == pytest.approx(
            k**-1.5 * np.exp(-(k - 1) * 0.1), rel=0.03
        )
    assert strength(sound, 1.5 * f) < 0.01 * first


def test_no_harmonic_lies_above_half_the_rate():
    sound = tone(120, 0.3)  # 8,372 Hz: one harmonic alone is below 11,025
    mirrored = RATE - 2 * frequency(120)
    assert strength(sound, mirrored) < 1e-3 * strength(sound, frequency(120))


def test_a_piece_lasts_as_long_as_its_16ths_and_rests_are_silent():
    grid = np.array([[60, 48]] * 4 + [[REST, REST]] * 4 + [[62, REST]] * 2, np.int8)
    sound = synthesise(grid)
    assert len(sound) == round(10 * 0.15 * RATE)
    edges = [round(n * 0.15 * RATE) for n in (0, 4, 8, 10)]
    loud = [np.abs(sound[a:b].astype(int)).max() for a, b in itertools.pairwise(edges)]
    assert loud[1] == 0
    assert loud[0] == round(0.9 * 32767)
    assert loud[2] > 3000
    assert not synthesise(np.full((3, 2), REST, np.int8)).any()


def test_the_file_is_read_by_others():
    sound = synthesise(np.full((2, 1), 60, np.int8))
    with wave.open(io.BytesIO(encode(sound, RATE))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        assert np.array_equal(np.frombuffer(file.readframes(10**6), "<i2"), sound)
