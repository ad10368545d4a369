"""Files of sound: wav read and written here, flac, ogg and mp3 by the extra `soundfile`.

A wav file is a list of chunks, each with a name of four letters and a size. `fmt ` says how numbers
are stored, `data` holds them, one frame (a number for each channel) after another. `decode` gives
them as stored, as scipy.io.wavfile does: uint8 (128 is silence), int16, int32 (24 bits are its
upper ones) or floats; `to_16_bits` makes one channel of 16 bits of them. What a header says is held
against the bytes that follow, and what does not agree is refused, never repaired.

Microsoft, IBM (1991), "Multimedia Programming Interface and Data Specifications 1.0", chapter 3.
"""

from __future__ import annotations

import io
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int16
from numpy.typing import NDArray

from everynet.data.paths import read_bytes
from everynet.system.errors import UserError
from everynet.system.wording import shown

Array = NDArray[Any]
MOST_BYTES = 2**30
SLOWEST, FASTEST = 100, 768_000  # Hz
LOUDEST = 2**15
"""16-bit numbers are from -LOUDEST to LOUDEST - 1."""

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_COMPRESSED = {2: "ADPCM", 6: "A-law", 7: "mu-law", 0x11: "IMA ADPCM", 0x50: "MPEG", 0x55: "MP3"}
_SUBFORMAT = bytes.fromhex("000000001000800000aa00389b71")
"""How the name of a sub-format goes on after its number."""
_TYPES = {(_PCM, 8): "u1", (_PCM, 16): "<i2", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4"}
_TYPES |= {(_PCM, 24): "", (_FLOAT, 64): "<f8"}
OTHERS = {b"fLaC": "FLAC", b"OggS": "Ogg", b"ID3": "MP3", b"\xff\xfb": "MP3", b"\xff\xf3": "MP3"}
"""How files begin that the extra reads."""
SUFFIXES = frozenset({".wav", ".wave", ".flac", ".ogg", ".oga", ".mp3"})


class Sound(NamedTuple):
    """What a file of sound holds."""

    rate: int  # Hz
    values: Array
    """frames, or frames x channels, as they are stored."""


class _Format(NamedTuple):
    code: int
    channels: int
    rate: int
    bits: int


def read(path: Path) -> Sound:
    """A file of any format that is known by its first bytes."""
    return decode_any(read_bytes(path, MOST_BYTES), path)


def decode_any(content: bytes, path: Path) -> Sound:
    """What such a file holds, from its bytes; the path is for messages."""
    if content[:4] == b"RIFF":
        return decode(content, path)
    other = next((name for start, name in OTHERS.items() if content.startswith(start)), "")
    if not other:
        raise UserError(
            f"{shown(path)} is no sound: it begins as neither wav nor flac, ogg or mp3; save it as "
            "wav"
        )
    return _by_soundfile(content, path, other)


def _by_soundfile(content: bytes, path: Path, what: str) -> Sound:
    try:
        import soundfile  # noqa: PLC0415 -- an extra
    except (ImportError, OSError):
        raise UserError(
            f"{shown(path)} is {what}, which needs the extra soundfile: pip install "
            "'everynet[soundfile]', or save it as wav"
        ) from None
    try:
        values, rate = soundfile.read(io.BytesIO(content), dtype="int16")
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"{shown(path)} cannot be read: {shown(error, 120)}") from None
    return _checked(Sound(int(rate), values), path)


def decode(content: bytes, path: Path) -> Sound:
    """The numbers of a wav file, as they are stored."""

    def refuse(why: str) -> UserError:
        return UserError(f"{shown(path)} {why}")

    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise refuse("is no wav file: it must begin with RIFF and WAVE; save it as wav")
    end = 8 + int.from_bytes(content[4:8], "little")
    if end > len(content) + 1:  # a last byte that fills up may be missing
        raise refuse(
            f"is cut short, or its header lies: it promises {end:,} bytes, and {len(content):,} "
            "are there; save it again"
        )
    form, at = None, 12
    while at + 8 <= min(end, len(content)):
        name, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8], "little")
        begin, at = at + 8, at + 8 + size + size % 2
        if begin + size > len(content):
            raise refuse(
                f"is cut short, or its header lies: chunk {shown(repr(name)[2:-1], 20)} promises "
                f"{size:,} bytes, and {len(content) - begin:,} follow; save it again"
            )
        if name == b"fmt ":
            form = _format(content[begin : begin + size], refuse)
        if name == b"data":
            if form is None:
                raise refuse("has its sound before the chunk that describes it; save it again")
            return _checked(Sound(form.rate, _values(content, begin, size, form, refuse)), path)
    missing = "data" if form else "fmt"
    raise refuse(f"has no chunk {missing}, so that it holds no sound; save it again as wav")


def _format(chunk: bytes, refuse: Any) -> _Format:  # noqa: ANN401 -- makes an error of words
    if len(chunk) < 16:
        raise refuse(f"describes its sound in {len(chunk)} bytes, but it takes 16; save it again")
    code, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", chunk[:16])
    if code == _EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:40] != _SUBFORMAT:
            raise refuse("has an extensible header without a known sub-format; save it as PCM")
        code = int.from_bytes(chunk[24:26], "little")
    if code not in {_PCM, _FLOAT}:
        what = _COMPRESSED.get(code, f"format {code}")
        raise refuse(f"is compressed ({what}), but must be PCM or float; save it so")
    if (code, bits) not in _TYPES:
        words = "float numbers" if code == _FLOAT else "numbers"
        known = "32 or 64" if code == _FLOAT else "8, 16, 24 or 32"
        raise refuse(f"has {words} of {bits} bits, but must have {known}; save it so")
    if not channels:
        raise refuse("has 0 channels, but must have at least 1; save it again")
    if frame != channels * bits // 8:
        raise refuse(
            f"says that a frame is {frame} bytes, but {channels} x {bits} bits are "
            f"{channels * bits // 8}; save it again"
        )
    return _Format(code, channels, rate, bits)


def _values(
    content: bytes,
    begin: int,
    size: int,
    form: _Format,
    refuse: Any,  # noqa: ANN401 -- makes an error of words
) -> Array:
    frame = form.channels * form.bits // 8
    if size % frame:
        raise refuse(f"holds {size:,} bytes, which are no whole frames of {frame}; save it again")
    held = np.frombuffer(content, np.uint8, size, begin)
    if form.bits == 24:  # the upper three bytes of four
        wide = np.zeros((size // 3, 4), np.uint8)
        wide[:, 1:] = held.reshape(-1, 3)
        values = wide.reshape(-1).view("<i4")
    else:
        values = held.view(_TYPES[form.code, form.bits])
    return values if form.channels == 1 else values.reshape(-1, form.channels)


def _checked(sound: Sound, path: Path) -> Sound:
    if not SLOWEST <= sound.rate <= FASTEST:
        raise UserError(
            f"{shown(path)}: rate ({sound.rate:,} Hz) must be from {SLOWEST} to {FASTEST:,}; save "
            "it again"
        )
    if not len(sound.values):
        raise UserError(f"{shown(path)} holds no sound: it is 0 frames long; record it again")
    if sound.values.dtype.kind == "f" and not np.isfinite(sound.values).all():
        at = int((~np.isfinite(sound.values.reshape(len(sound.values), -1))).any(1).argmax())
        raise UserError(
            f"{shown(path)}: sample {at:,} is not finite, but sound must be numbers; save it again"
        )
    return sound


def encode(values: Array, rate: int, bits: int = 0) -> bytes:
    """A wav file of frames, or frames x channels, of the types that `decode` gives.

    `bits=24` keeps the upper 24 bits of int32.
    """
    bits = bits or 8 * values.dtype.itemsize
    code = _FLOAT if values.dtype.kind == "f" else _PCM
    kind = _TYPES.get((code, bits))
    if kind is None or (kind and np.dtype(kind) != values.dtype):
        raise TypeError(f"{values.dtype} with {bits} bits must be uint8, int16, int32 or a float")
    channels = values.shape[1] if values.ndim > 1 else 1
    held = np.ascontiguousarray(values)
    data = held.astype("<i4").reshape(-1).view(np.uint8).reshape(-1, 4)[:, 1:].tobytes() \
        if bits == 24 else held.astype(held.dtype.newbyteorder("<")).tobytes()  # fmt: skip
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", code, channels, rate, rate * frame, frame, bits)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form
    if code == _FLOAT:  # the standard wants the number of frames beside it
        chunks += b"fact" + struct.pack("<II", 4, len(data) // frame)
    chunks += b"data" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def to_floats(values: Array) -> Float[np.ndarray, " frames"]:
    """One channel from -1 to 1, the mean of those there are; floats may go beyond."""
    scale = {"u": 2.0**7, "i": 2.0 ** (8 * values.dtype.itemsize - 1), "f": 1.0}[values.dtype.kind]
    found = values.astype(np.float64)
    found = (found - (128.0 if values.dtype.kind == "u" else 0.0)) / scale
    return found if found.ndim == 1 else found.mean(1)


def to_16_bits(values: Array) -> Int16[np.ndarray, " frames"]:
    """One channel of 16-bit numbers; what is beyond -1 and 1 is clipped."""
    if values.dtype == np.int16 and values.ndim == 1:
        return values.astype(np.int16)  # a copy of its own in the machine's order
    scaled: Array = np.rint(to_floats(values) * LOUDEST)
    return np.clip(scaled, -LOUDEST, LOUDEST - 1).astype(np.int16)


def resample(
    sound: Int16[np.ndarray, " frames"], rate: int, wanted: int
) -> Int16[np.ndarray, " _"]:
    """The same sound at another rate, by a polyphase filter that lets no higher pitch through."""
    if rate == wanted:
        return sound
    from scipy.signal import resample_poly  # noqa: PLC0415 -- takes a while to import

    common = math.gcd(rate, wanted)
    made = resample_poly(sound.astype(np.float64), wanted // common, rate // common)
    found: Array = np.clip(np.rint(made), -LOUDEST, LOUDEST - 1).astype(np.int16)
    return found


def trim_silence(
    sound: Int16[np.ndarray, " frames"], rate: int, decibels: float
) -> Int16[np.ndarray, " _"]:
    """Without what is more than so many decibels below the loudest stretch, at both ends.

    Loudness is that of stretches of 10 ms; a sound of nothing but silence is left as it is.
    """
    width = max(1, rate // 100)
    count = -(-len(sound) // width)
    padded = np.zeros(count * width)
    padded[: len(sound)] = sound
    power = (padded.reshape(count, width) ** 2).mean(1)
    loud = np.flatnonzero(power >= power.max() * 10 ** (-decibels / 10))
    if not power.max():
        return sound
    kept: Array = sound[loud[0] * width : (loud[-1] + 1) * width]
    return kept
