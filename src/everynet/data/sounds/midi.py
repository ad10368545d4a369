"""Standard MIDI files of format 0 and 1, in and out, as voices on a grid of 16ths.

    16th of tick t = floor(4 t / d + 1/2)         d ticks a quarter, from the header

A piece is a table of pitches, a row for each 16th and a column for each voice, the highest voice
first; REST is a voice that is silent. A note that is struck again on the same pitch looks like one
that is held. Where every track (or channel of a track) plays one note at a time each is a
voice; otherwise, as in music for a piano, the notes that sound together are dealt out from the
highest down. Drums (channel 10) have no pitch and are left out. Tempo is not kept: what is written
plays 100 quarters a minute.

The MIDI Association (1996), "Standard MIDI files 1.0", RP-001.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from jaxtyping import Int8
from numpy.typing import NDArray

from everynet.system.errors import UserError

Grid: TypeAlias = Int8[np.ndarray, "time voices"]
"""Pitches from 0 to 127 of every voice at every 16th, or REST."""

REST = -1
MOST_VOICES = 8
MOST_LENGTH = 2**16
"""16ths of the longest piece, which at 100 quarters a minute is almost three hours."""
SECONDS = 0.15
"""How long a 16th is in what is written: 100 quarters a minute."""
_TICKS = 120  # of a 16th in what is written
_DRUMS = 9
_VOICE = re.compile(rb"voice ([1-8]) of ([1-8])")
"""The names of tracks that we write: they also tell of voices that are silent throughout."""
_END, _NAME, _CHANNEL, _TEMPO, _METER = 0x2F, 0x03, 0x20, 0x51, 0x58
_ONE_BYTE = (0xC0, 0xD0)  # channel events with one byte of data; all others have two


@dataclass(frozen=True)
class Piece:
    """What a MIDI file holds."""

    grid: Grid
    notes: int = 0
    moved: int = 0
    """Notes that did not begin and end on the grid, and were moved to it."""
    drums: int = 0
    """Notes of percussion, which were left out."""
    by_height: bool = False
    """Whether notes were dealt out to voices by their height."""


@dataclass(frozen=True)
class _Note:
    start: int
    end: int
    pitch: int
    channel: int


@dataclass
class _Track:
    notes: list[_Note] = field(default_factory=list)
    names: dict[int, bytes] = field(default_factory=dict)
    """The name of each channel; that of the whole track is under -1."""
    end: int = 0


# -------------------------------------------------------------------------------------- reading


def read_midi(content: bytes, name: str) -> Piece:
    """The voices of a MIDI file on a grid of 16ths; `name` is the first word of an error."""
    tracks, division = _read_tracks(content, name)
    groups: dict[tuple[int, int], list[_Note]] = defaultdict(list)
    names: dict[tuple[int, int], bytes] = {}
    moved, drums, end = 0, 0, 0
    for number, track in enumerate(tracks):
        for note in track.notes:
            if note.channel == _DRUMS:
                drums += 1
                continue
            start, stop = _round(note.start, division), _round(note.end, division)
            moved += start * division != 4 * note.start or stop * division != 4 * note.end
            placed = _Note(start, max(stop, start + 1), note.pitch, note.channel)
            groups[number, note.channel].append(placed)
        if track.notes:
            end = max(end, _round(track.end, division))
        names |= {(number, channel): said for channel, said in track.names.items()}
    if not groups:
        why = f" but {drums} of percussion, which have no pitch" if drums else ""
        raise UserError(f"{name} must hold a note, but holds none{why}; give another file")
    length = max(end, *(note.end for group in groups.values() for note in group))
    if length > MOST_LENGTH:
        raise UserError(
            f"{name} ({length:,} 16ths) must be at most {MOST_LENGTH:,} 16ths long; cut it"
        )
    for group in groups.values():
        group.sort(key=lambda note: (note.start, note.pitch))
    by_height = not all(map(_is_one_voice, groups.values())) or len(groups) > MOST_VOICES
    if by_height:
        grid = _by_height([note for group in groups.values() for note in group], length, name)
    else:
        grid = _by_part(groups, names, length)
    return Piece(grid, sum(map(len, groups.values())), moved, drums, by_height)


def _round(tick: int, division: int) -> int:
    """The 16th that is nearest to a tick."""
    return (8 * tick + division) // (2 * division)


def _is_one_voice(notes: Sequence[_Note]) -> bool:
    """Whether no two begin together and none lasts more than a 16th into the next."""
    return all(a.start < b.start and a.end <= b.start + 1 for a, b in pairwise(notes))


def _by_part(
    groups: dict[tuple[int, int], list[_Note]], names: dict[tuple[int, int], bytes], length: int
) -> Grid:
    """A voice for each part: as the names of our own tracks say, or else the highest first."""
    lines: dict[tuple[int, int], NDArray[np.int8]] = {}
    for part, notes in groups.items():
        lines[part] = np.full(length, REST, np.int8)
        for note in notes:
            lines[part][note.start : note.end] = note.pitch
    said = {part: _VOICE.fullmatch(name) for part, name in names.items()}
    ours = {part: (int(m[1]), int(m[2])) for part, m in said.items() if m}
    numbers = [ours[part][0] for part in lines if part in ours]
    counts = {count for _, count in ours.values()}
    if len(set(numbers)) == len(lines) and len(counts) == 1 and max(numbers) <= max(counts):
        grid = np.full((length, counts.pop()), REST, np.int8)
        for part, line in lines.items():
            grid[:, ours[part][0] - 1] = line
        return grid
    ordered = sorted(lines.values(), key=lambda line: -float(line[line != REST].mean()))
    return np.stack(ordered, 1)


def _by_height(notes: Iterable[_Note], length: int, name: str) -> Grid:
    """The notes that sound in each 16th, from the highest down."""
    sounding = np.zeros((128, length), bool)
    for note in notes:
        sounding[note.pitch, note.start : note.end] = True
    voices = int(sounding.sum(0).max())
    if voices > MOST_VOICES:
        at = int(sounding.sum(0).argmax())
        raise UserError(
            f"{name} must have at most {MOST_VOICES} notes at a time, but has {voices} in 16th "
            f"{at + 1:,}; leave tracks out"
        )
    grid = np.full((length, voices), REST, np.int8)
    pitch, time = np.nonzero(sounding[::-1])
    rank = (sounding[::-1].cumsum(0) - 1)[pitch, time]
    grid[time, rank] = 127 - pitch
    return grid


@dataclass
class _Bytes:
    """The bytes of a file from one place to another, read one after the other."""

    content: bytes
    at: int
    end: int
    name: str

    def byte(self) -> int:
        if self.at >= self.end:
            raise UserError(
                f"{self.name} must be a whole MIDI file, but a track ends in the middle of an "
                f"event at byte {self.at:,}; get it again"
            )
        self.at += 1
        return self.content[self.at - 1]

    def data(self) -> int:
        """A byte of data, which is below 128."""
        value = self.byte()
        if value > 127:
            raise self.damaged(f"is {value}, where a number below 128 must stand")
        return value

    def variable(self) -> int:
        """A number of up to four bytes, each of which but the last is 128 or more."""
        value = 0
        for _ in range(4):
            byte = self.byte()
            value = value << 7 | byte & 127
            if byte < 128:
                return value
        raise self.damaged("is the fifth of a number that may have four")

    def take(self, length: int) -> bytes:
        """So many bytes."""
        if length > self.end - self.at:
            self.at = self.end
            self.byte()
        self.at += length
        return self.content[self.at - length : self.at]

    def damaged(self, what: str) -> UserError:
        """What is wrong with the byte that was read last."""
        return UserError(
            f"{self.name} must be a MIDI file, but byte {self.at - 1:,} {what}; it is damaged, get "
            "it again"
        )


def _read_tracks(content: bytes, name: str) -> tuple[list[_Track], int]:
    """The tracks of a file, with times in ticks, and how many of those a quarter has."""
    if content[:4] != b"MThd" or len(content) < 14:
        raise UserError(
            f"{name} must be a MIDI file, which begins with MThd and 10 more bytes, but is not"
        )
    length, form, count, division = struct.unpack(">IHHH", content[4:14])
    if form > 1:
        raise UserError(
            f"{name} (MIDI of format {form}) must be of format 0 or 1; save it as format 1"
        )
    if not 0 < division < 1 << 15:
        raise UserError(
            f"{name} (division {division}) must count time in parts of a quarter, not of a second: "
            "no grid follows from it; save it with ticks a quarter"
        )
    tracks, at = list[_Track](), 8 + length
    while len(tracks) < count:
        if at + 8 > len(content):
            raise UserError(
                f"{name} must be a whole MIDI file, but holds {len(tracks)} of its {count} tracks; "
                "get it again"
            )
        sort, size = content[at : at + 4], int.from_bytes(content[at + 4 : at + 8])
        at += 8
        if at + size > len(content):
            raise UserError(
                f"{name} must be a whole MIDI file, but its track {len(tracks) + 1} has "
                f"{len(content) - at:,} of {size:,} bytes; get it again"
            )
        if sort == b"MTrk":  # what else there may be is passed over, as the standard asks
            tracks.append(_read_track(_Bytes(content, at, at + size, name)))
        at += size
    return tracks, division


def _read_track(given: _Bytes) -> _Track:
    """The notes of a track, up to its end; a note that is never ended lasts until then."""
    track, time, status, channel = _Track(), 0, 0, -1
    begun: dict[tuple[int, int], int] = {}

    def end(key: tuple[int, int]) -> None:
        if key in begun:
            track.notes.append(_Note(begun.pop(key), time, key[1], key[0]))

    while given.at < given.end:
        time += given.variable()
        first = given.byte()
        if first == 0xFF:
            meta, held = given.byte(), given.take(given.variable())
            if meta == _END:
                break
            if meta == _CHANNEL and len(held) == 1:
                channel = held[0]
            if meta == _NAME:
                track.names[channel] = held
        elif first in (0xF0, 0xF7):
            given.take(given.variable())
        elif first > 0xEF or (first < 0x80 and not status):
            raise given.damaged(f"is {first}, which begins no event")
        else:
            status, one = (first, given.data()) if first > 127 else (status, first)
            two = 0 if status & 0xF0 in _ONE_BYTE else given.data()
            key = (status & 15, one)
            if status & 0xF0 in (0x80, 0x90):
                end(key)
            if status & 0xF0 == 0x90 and two:
                begun[key] = time
    for key in [*begun]:
        end(key)
    track.end = time
    return track


# -------------------------------------------------------------------------------------- writing


def write_midi(grid: Grid, *, form: int = 1) -> bytes:
    """A MIDI file: of format 1, a track for each voice, or of format 0, all of them in one."""
    length, voices = grid.shape
    events = [_voice_events(grid[:, v], v, voices) for v in range(voices)]
    first = [
        (0, _meta(_TEMPO, round(4e6 * SECONDS).to_bytes(3))),
        (0, _meta(_METER, bytes((4, 2, 24, 8)))),
    ]
    if form == 0:
        together = sorted((event for each in events for event in each), key=lambda event: event[0])
        tracks = [[*first, *together]]
    else:
        tracks = [first, *events]
    header = struct.pack(">4sIHHH", b"MThd", 6, form, len(tracks), 4 * _TICKS)
    return header + b"".join(_track(track, length) for track in tracks)


def _voice_events(line: NDArray[np.int8], voice: int, voices: int) -> list[tuple[int, bytes]]:
    """The events of a voice, each with its 16th; equal pitches in succession are one note."""
    said = f"voice {voice + 1} of {voices}".encode()
    events = [(0, _meta(_CHANNEL, bytes((voice,)))), (0, _meta(_NAME, said))]
    for start, end, pitch in held_notes(line):
        events.append((start, bytes((0x90 | voice, pitch, 80))))
        events.append((end, bytes((0x80 | voice, pitch, 0))))
    return events


def held_notes(line: NDArray[np.int8]) -> list[tuple[int, int, int]]:
    """Where each note of a voice begins and ends, and its pitch."""
    edges = [0, *(np.flatnonzero(np.diff(line)) + 1).tolist(), len(line)]
    return [(a, b, int(line[a])) for a, b in pairwise(edges) if b > a and line[a] != REST]


def _meta(sort: int, held: bytes) -> bytes:
    return bytes((0xFF, sort, len(held))) + held


def _track(events: Iterable[tuple[int, bytes]], length: int) -> bytes:
    """A track of events with the times between them, which ends where the piece does."""
    content, now = bytearray(), 0
    for time, event in [*events, (length, _meta(_END, b""))]:
        content += _variable((time - now) * _TICKS) + event
        now = time
    return struct.pack(">4sI", b"MTrk", len(content)) + bytes(content)


def _variable(number: int) -> bytes:
    """A number in as few bytes as it needs, seven bits in each."""
    found = bytes((number & 127,))
    while number := number >> 7:
        found = bytes((number & 127 | 128,)) + found
    return found
