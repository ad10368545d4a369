"""MIDI files: what is written is read again, what others write is read, what is bad is refused."""

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from everynet.data.loading import samples
from everynet.data.sounds.midi import MOST_LENGTH, REST, held_notes, read_midi, write_midi
from everynet.system.errors import UserError


def track(*events):
    """A track of events that begin with the time before each, as bytes."""
    content = b"".join(events)
    return b"MTrk" + struct.pack(">I", len(content)) + content


def midi(*tracks, form=1, division=480, count=None):
    count = len(tracks) if count is None else count
    return b"MThd" + struct.pack(">IHHH", 6, form, count, division) + b"".join(tracks)


def on(pitch, after=b"\0", channel=0):
    return after + bytes((0x90 | channel, pitch, 80))


def off(pitch, after=b"\x78", channel=0):  # 120 ticks, a 16th
    return after + bytes((0x80 | channel, pitch, 0))


END = b"\0\xff\x2f\0"
ONE = midi(track(on(60), off(60), END))


def grid_of(content):
    return read_midi(content, "a.mid").grid


# ----------------------------------------------------------------------------------------- round


@given(
    arrays(
        np.int8,
        st.tuples(st.integers(1, 20), st.integers(1, 8)),
        elements=st.sampled_from([REST, 0, 1, 60, 61, 62, 127]),
    ).filter(lambda grid: (grid != REST).any()),
    st.sampled_from([0, 1]),
)
@settings(max_examples=80, deadline=None)
def test_whatever_is_written_is_read_again(grid, form):
    """Also voices that are silent, that cross, and rests at both ends."""
    content = write_midi(grid, form=form)
    assert content[8:10] == bytes((0, form))
    found = read_midi(content, "a.mid")
    assert np.array_equal(found.grid, grid)
    assert found.grid.dtype == np.int8
    assert found.notes == sum(len(held_notes(line)) for line in grid.T)
    assert (found.moved, found.drums, found.by_height) == (0, 0, False)


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize("form", [0, 1])
def test_every_chorale_is_read_as_it_was_written(form):
    chorales = samples("chorales", kind="notes")
    assert [len(chorales.parts[part]) for part in chorales.parts] == [229, 76, 77]
    for piece in (piece for part in chorales.parts.values() for piece in part):
        assert np.array_equal(grid_of(write_midi(piece, form=form)), piece)


def test_a_file_written_is_what_the_standard_says():
    """One note of a quarter, byte by byte: 480 ticks are 0x83 0x60."""
    content = write_midi(np.full((4, 1), 60, np.int8))
    tempo, meter = b"\0\xff\x51\3" + (600_000).to_bytes(3), b"\0\xff\x58\4\4\2\x18\x08"
    ending = b"\x83\x60\xff\x2f\0"
    name = b"\0\xff\x20\1\0" + b"\0\xff\3\x0cvoice 1 of 1"
    note = b"\0\x90\x3c\x50" + b"\x83\x60\x80\x3c\0"
    assert content == midi(track(tempo, meter, ending), track(name, note, END))


# ---------------------------------------------------------------------------------------- others


def test_tracks_are_voices_and_the_highest_is_first():
    low, high = track(on(40), off(40), END), track(on(70), off(70), END)
    assert grid_of(midi(low, high)).tolist() == [[70, 40]]


def test_channels_of_one_track_are_voices_of_format_0():
    both = track(on(40), on(70, channel=1), off(70, channel=1), off(40, b"\0"), END)
    assert grid_of(midi(both, form=0)).tolist() == [[70, 40]]


def test_chords_are_dealt_out_by_height():
    chord = track(on(60), on(67), on(64), off(64), off(67, b"\0"), off(60), END)
    found = read_midi(midi(chord), "a.mid")
    assert found.by_height
    assert found.grid.tolist() == [[67, 64, 60], [60, REST, REST]]


def test_ticks_go_to_the_nearest_16th():
    """At 96 ticks a quarter a 16th has 24: 11 is nearest to 0, 12 and 13 to 1, 37 to 2."""
    events = track(on(60, b"\x0b"), off(60, b"\x01"), on(62, b"\x01"), off(62, b"\x18"), END)
    found = read_midi(midi(events, division=96), "a.mid")
    assert found.grid[:, 0].tolist() == [60, 62]
    assert found.moved == 2


def test_a_note_shorter_than_a_16th_has_one():
    assert grid_of(midi(track(on(60), off(60, b"\x01"), END))).tolist() == [[60]]


def test_running_status_velocity_0_and_other_events():
    """Events of channels and the system are passed over; a note-on of velocity 0 ends a note."""
    events = [
        b"\0\xc0\5", b"\0\xd0\7", b"\0\xb0\7\x64", b"\0\xe0\0\x40", b"\0\xa0\x3c\5",
        b"\0\xf0\3ab\xf7", b"\0\xff\1\2hi", on(60), b"\x78\x3c\0", b"\0\x3e\x50",
        b"\x78\x3e\0", END,
    ]  # fmt: skip
    assert grid_of(midi(track(*events))).tolist() == [[60], [62]]


def test_a_note_that_is_never_ended_lasts_as_long_as_its_track():
    assert len(grid_of(midi(track(on(60), b"\x83\x60\xff\x2f\0")))) == 4


def test_a_note_struck_again_ends_the_one_before():
    events = track(on(60), on(60, b"\x78"), off(60), END)
    assert read_midi(midi(events), "a.mid").notes == 2


def test_drums_and_unknown_chunks_are_left_out():
    drums = track(on(40, channel=9), off(40, channel=9), END)
    other = b"XFIH" + struct.pack(">I", 3) + b"abc"
    found = read_midi(midi(other, drums, track(on(60), off(60), END), count=2), "a.mid")
    assert found.drums == 1
    assert found.grid.tolist() == [[60]]


# ------------------------------------------------------------------------------------------- bad


LONG = midi(track(on(60), *[b"\xff\xff\xff\x7f\xb0\7\7"] * 9, off(60), END), division=1)
NINE = midi(*[track(on(60 + n), off(60 + n), END) for n in range(9)])
BAD = {
    "empty": (b"", "begins with MThd"),
    "no MIDI": (b"RIFF" + bytes(40), "begins with MThd"),
    "cut header": (ONE[:10], "begins with MThd"),
    "format 2": (midi(track(END), form=2), "must be of format 0 or 1"),
    "seconds": (midi(track(END), division=0xE728), "parts of a quarter"),
    "division 0": (midi(track(END), division=0), "parts of a quarter"),
    "no track": (midi(count=2), "holds 0 of its 2 tracks"),
    "cut track": (ONE[:-3], r"track 1 has 9 of 12 bytes"),
    "cut event": (midi(track(b"\0\x90\x3c")), "in the middle of an event at byte 25"),
    "cut text": (midi(track(b"\0\xff\1\x50hi")), "in the middle of an event"),
    "no status": (midi(track(b"\0\x3c\x50")), "byte 23 is 60, which begins no event"),
    "clock": (midi(track(b"\0\xf8")), "is 248, which begins no event"),
    "data byte": (midi(track(b"\0\x90\x3c\xff")), "is 255, where a number below 128"),
    "long number": (midi(track(b"\xff\xff\xff\xff\xff")), "is the fifth"),
    "no note": (midi(track(END)), "must hold a note, but holds none; give"),
    "drums": (midi(track(on(40, channel=9), END)), "but 1 of percussion"),
    "too long": (LONG, f"at most {MOST_LENGTH:,} 16ths long"),
    "nine voices": (NINE, "at most 8 notes at a time, but has 9 in 16th 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_in_one_line(case):
    content, words = BAD[case]
    with pytest.raises(UserError, match=words) as refused:
        read_midi(content, "a.mid")
    assert str(refused.value).startswith("a.mid")
    assert "\n" not in str(refused.value)


def test_random_damage_is_read_or_refused():
    """200 files: bytes changed, taken out, put in, or the end cut off."""
    draw = random.Random(0)
    grid = np.random.default_rng(0).choice([REST, 50, 60, 62], (24, 3)).astype(np.int8)
    whole, refused = write_midi(grid), 0
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(draw.choice([1, 3, 20])):
            at = draw.randrange(len(content) or 1)
            match draw.randrange(4):
                case 0:
                    content[at : at + 1] = draw.randbytes(1)
                case 1:
                    del content[at : at + draw.randrange(1, 9)]
                case 2:
                    content[at:at] = draw.randbytes(draw.randrange(1, 9))
                case 3:
                    content = content[: max(1, at)]
        try:
            found = read_midi(bytes(content), "a.mid").grid
        except UserError:
            refused += 1
        else:
            assert found.ndim == 2
            assert found.min() >= REST
    assert 20 < refused < 200
