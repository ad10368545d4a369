"""wav files: equal to scipy's for every width, and whatever is wrong with one is one line."""

import io
import math
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile
from scipy.signal import resample_poly

from everynet.data.sounds import wav
from everynet.system.errors import UserError

HERE = Path("a.wav")
RANDOM = np.random.default_rng(0)


def sound(dtype="int16", frames=101, channels=1):
    shape = frames if channels == 1 else (frames, channels)
    if np.dtype(dtype).kind == "f":
        return RANDOM.uniform(-1, 1, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def extensible(content, code):
    """The same file with the long header that some programs write."""
    form = struct.pack("<HIH", 22, 3, 0)[:2] + struct.pack("<HI", 16, 3)
    form += struct.pack("<H", code) + wav._SUBFORMAT
    at = content.index(b"fmt ") + 8
    head = struct.pack("<H", 0xFFFE) + content[at + 2 : at + 16] + form
    rest = content[at + 16 :]
    inner = b"WAVEfmt " + struct.pack("<I", len(head)) + head + rest
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


TYPES = ("uint8", "int16", "int32", "float32", "float64")


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("dtype", TYPES)
def test_files_of_scipy_are_read_as_scipy_reads_them(dtype, channels):
    held, values = io.BytesIO(), sound(dtype, channels=channels)
    wavfile.write(held, 22050, values)
    found = wav.decode(held.getvalue(), HERE)
    rate, expected = wavfile.read(io.BytesIO(held.getvalue()))
    assert found.rate == rate == 22050
    np.testing.assert_array_equal(found.values, expected)
    assert found.values.dtype == expected.dtype


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "bits"), [*((one, 0) for one in TYPES), ("int32", 24)], ids=[*TYPES, "24 bits"]
)
@pytest.mark.parametrize("long", [False, True])
def test_files_written_here_are_read_by_scipy_and_back(dtype, bits, channels, long):
    values = sound(dtype, channels=channels)
    values = values & ~0xFF if bits == 24 else values
    content = wav.encode(values, 8000, bits)
    if long:
        content = extensible(content, 3 if values.dtype.kind == "f" else 1)
    rate, expected = wavfile.read(io.BytesIO(content))
    np.testing.assert_array_equal(expected, values)
    np.testing.assert_array_equal(wav.decode(content, HERE).values, values)
    assert (rate, wav.decode(content, HERE).rate) == (8000, 8000)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 3), st.sampled_from(TYPES))
def test_any_length_makes_a_round_trip(frames, channels, dtype):
    values = sound(dtype, frames, channels)
    content = wav.encode(values, 44_100)
    assert len(content) % 2 == 0
    np.testing.assert_array_equal(wav.decode(content, HERE).values, values)


def test_other_chunks_are_passed_over_and_a_missing_last_byte_is_no_fault():
    plain = wav.encode(sound("uint8", 7), 8000)
    listed = plain[:12] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + plain[12:]
    listed = listed[:4] + struct.pack("<I", len(listed) - 8) + listed[8:]
    for content in (listed, plain[:-1]):
        np.testing.assert_array_equal(
            wav.decode(content, HERE).values, wav.decode(plain, HERE).values
        )


def test_every_width_is_the_same_sound_in_16_bits():
    whole = sound("int16", 200)
    for values in (
        whole.astype(np.int32) << 16,
        (whole / 2.0**15).astype(np.float32),
        np.stack([whole, whole], 1),
    ):
        np.testing.assert_array_equal(wav.to_16_bits(values), whole)
    np.testing.assert_array_equal(
        wav.to_16_bits(np.array([0, 128, 255], np.uint8)), [-32768, 0, 127 << 8]
    )
    np.testing.assert_array_equal(wav.to_16_bits(np.array([-2.0, 2.0])), [-32768, 32767])
    np.testing.assert_array_equal(
        wav.to_16_bits(np.array([[100, 200], [-4, 0]], np.int16)), [150, -2]
    )


def test_resampling_keeps_a_tone_and_takes_away_what_would_alias():
    time = np.arange(8000) / 8000
    low, high = (np.sin(2 * np.pi * f * time) * 10_000 for f in (440, 3000))
    low, high = (np.rint(one).astype(np.int16) for one in (low, high))
    half = wav.resample(low, 8000, 4000)
    expected = np.sin(2 * np.pi * 440 * np.arange(4000) / 4000) * 10_000
    inner = slice(200, -200)
    gain = 20 * math.log10(half[inner].std() / expected[inner].std())
    assert abs(gain) < 0.1
    np.testing.assert_allclose(half[inner], expected[inner], atol=200)
    # 40 dB: the transition band of scipy's filter begins below half of the new rate
    assert wav.resample(high, 8000, 4000)[inner].std() < high.std() / 100
    np.testing.assert_array_equal(
        wav.resample(low, 8000, 11_025), np.rint(resample_poly(low.astype(float), 441, 320))
    )
    assert wav.resample(low, 8000, 8000) is low


def test_silence_is_trimmed_at_both_ends_alone():
    loud = np.full(400, 10_000, np.int16)
    parts = [np.zeros(240, np.int16), loud, np.zeros(80, np.int16), loud, np.zeros(33, np.int16)]
    kept = wav.trim_silence(np.concatenate(parts), 8000, 40.0)
    np.testing.assert_array_equal(kept, np.concatenate(parts[1:4]))
    quiet = np.concatenate([loud // 1000, loud])
    assert len(wav.trim_silence(quiet, 8000, 30.0)) == 400
    assert len(wav.trim_silence(quiet, 8000, 70.0)) == 800
    assert len(wav.trim_silence(np.zeros(100, np.int16), 8000, 40.0)) == 100


# -------------------------------------------------------------------------------------- bad files

GOOD = wav.encode(sound("int16", 50), 8000)
STEREO = wav.encode(sound("int16", 50, 2), 8000)


def changed(at, new, content=GOOD):
    return content[:at] + new + content[at + len(new) :]


BAD = {
    "cut short": (GOOD[:100], r"cut short, or its header lies: it promises 144 bytes, and 100 are"),
    "header": (changed(40, struct.pack("<I", 200)), "chunk data promises 200 bytes, and 100 foll"),
    "huge": (changed(40, b"\xff" * 4), "chunk data promises 4,294,967,295 bytes, and 100 follow"),
    "no frame": (changed(40, struct.pack("<I", 99)), "holds 99 bytes, which are no whole frames"),
    "mu-law": (changed(20, struct.pack("<H", 7)), r"is compressed \(mu-law\), but must be PCM"),
    "format": (changed(20, struct.pack("<H", 99)), r"is compressed \(format 99\)"),
    "extensible": (changed(20, b"\xfe\xff"), "extensible header without a known sub-format"),
    "bits": (changed(34, struct.pack("<H", 12)), "has numbers of 12 bits, but must have 8, 16, 24"),
    "float bits": (
        changed(20, struct.pack("<H", 3)),
        "has float numbers of 16 bits, but must have 32 or 64",
    ),
    "channels": (changed(22, struct.pack("<H", 0)), "has 0 channels, but must have at least 1"),
    "frame": (changed(32, struct.pack("<H", 4)), "says that a frame is 4 bytes, but 1 x 16 bits"),
    "rate": (
        changed(24, struct.pack("<I", 0)),
        r"a.wav: rate \(0 Hz\) must be from 100 to 768,000",
    ),
    "no sound": (wav.encode(np.zeros(0, np.int16), 8000), "holds no sound: it is 0 frames long"),
    "NaN": (
        wav.encode(np.array([0, 1, np.nan], np.float32), 8000),
        "a.wav: sample 2 is not finite, but sound must be numbers",
    ),
    "inf": (
        wav.encode(np.array([[0, 1], [0, -np.inf]], np.float32), 8000),
        "a.wav: sample 1 is not finite",
    ),
    "RIFX": (b"RIFX" + GOOD[4:], "is no wav file: it must begin with RIFF"),
    "short fmt": (
        b"RIFF" + struct.pack("<I", 16) + b"WAVEfmt " + struct.pack("<I", 4) + b"abcd",
        "describes its sound in 4 bytes, but it takes 16",
    ),
    "no fmt": (b"RIFF" + struct.pack("<I", 4) + b"WAVE", "has no chunk fmt, so that it holds no"),
    "no data": (changed(4, struct.pack("<I", 28), GOOD)[:36], "has no chunk data"),
    "order": (
        b"RIFF" + struct.pack("<I", 14) + b"WAVEdata" + struct.pack("<I", 2) + b"ab",
        "has its sound before the chunk that describes it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_messages(name):
    content, words = BAD[name]
    with pytest.raises(UserError, match=words) as caught:
        wav.decode(content, HERE)
    assert "\n" not in str(caught.value)


def test_mutants_are_sound_or_one_line(tmp_path):
    random = np.random.default_rng(1)
    lines = []
    originals = [GOOD, STEREO, wav.encode(sound("float32", 50), 8000), extensible(GOOD, 1)]
    path = tmp_path / "mutant.wav"
    for number in range(200):
        content = bytearray(originals[number % len(originals)])
        for _ in range(random.integers(1, 4)):
            sort = random.integers(4)
            at = int(random.integers(min(70, len(content))))  # most of what matters is in front
            if sort == 0:
                content[at] ^= 1 << int(random.integers(8))
            elif sort == 1:
                content[at : at + 4] = random.bytes(4)
            elif sort == 2:
                del content[int(random.integers(1, len(content))) :]
            else:
                content[at:at] = random.bytes(int(random.integers(1, 6)))
        path.write_bytes(bytes(content))
        try:
            found = wav.read(path)
        except UserError as error:
            lines.append(str(error))
        else:
            assert wav.to_16_bits(found.values).ndim == 1
    assert len(lines) > 100
    assert all("mutant.wav" in line and "\n" not in line for line in lines)


def test_a_file_that_needs_the_extra_says_which(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for start, what in ((b"fLaC", "FLAC"), (b"OggS", "Ogg"), (b"ID3\x04", "MP3")):
        path = tmp_path / "clip"
        path.write_bytes(start + bytes(20))
        with pytest.raises(UserError, match=rf"is {what}, which needs the extra soundfile: pip"):
            wav.read(path)
    path.write_bytes(b"hello")
    with pytest.raises(UserError, match="is no sound: it begins as neither wav nor flac"):
        wav.read(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        wav.read(path)


def test_the_extra_reads_the_other_formats(tmp_path, monkeypatch):
    class Extra:
        @staticmethod
        def read(stream, dtype):
            if stream.read() == b"fLaC bad":
                raise RuntimeError("Format not recognised.")
            return np.arange(6, dtype=dtype).reshape(3, 2), 16_000

    monkeypatch.setitem(sys.modules, "soundfile", Extra)
    path = tmp_path / "a.flac"
    path.write_bytes(b"fLaC good")
    assert wav.read(path).rate == 16_000
    assert wav.to_16_bits(wav.read(path).values).tolist() == [0, 2, 4]
    path.write_bytes(b"fLaC bad")
    with pytest.raises(UserError, match=r"a.flac cannot be read: Format not recognised."):
        wav.read(path)


def test_only_types_of_a_wav_file_are_written():
    with pytest.raises(TypeError, match="int64 with 64 bits must be uint8, int16, int32 or a fl"):
        wav.encode(np.zeros(3, np.int64), 8000)
