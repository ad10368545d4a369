"""Music as notes on a grid of 16ths: MIDI files, each a piece.

    songs/                  a folder of .mid or .midi files, split by a hash of their names
    songs/train songs/test  split as the folders say
    song.mid                one piece: enough to predict from or to evaluate on

A piece is a table of tokens, a row for each 16th and a column for each voice, the highest first: 0
is a rest and n + 1 is the pitch n of MIDI. A piece with fewer voices than others has rests below
them. A batch is (x, lengths, number): excerpts of `window` 16ths, each beginning anywhere in its
piece; the last column of x is the place in the bar, of 16 16ths, counted from the first of the
piece. In evaluation pieces are whole. In memory a piece is a row of an array of pitches, of
(pieces, time) or (pieces, time, voices), with -1 for a rest; rests of all voices at its end are no
part of it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int8, Int64
from torch import Tensor

from everynet.data.dataset import Data, Spec
from everynet.data.draws import Draw
from everynet.data.images.folder import complete, named, walk
from everynet.data.images.folder import roots as part_folders
from everynet.data.in_memory import Given, Part, summarize
from everynet.data.kinds import Kind, files_in
from everynet.data.paths import kind as kind_of_path
from everynet.data.paths import read_bytes
from everynet.data.report import Report
from everynet.data.samplers import Batch, Buckets, Clips, flattened
from everynet.data.samples import describe_like
from everynet.data.sounds.midi import MOST_LENGTH, MOST_VOICES, REST, Grid, read_midi, write_midi
from everynet.data.sounds.midi import Piece as Read
from everynet.data.sounds.synthesise import RATE, synthesise
from everynet.data.sounds.wav import encode
from everynet.data.split import ALL_OF_IT, PARTS, all_parts, by_hash, rows, test_part
from everynet.data.texts.lines import BY_ROW, count_equal
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import shown

SUFFIXES = (".mid", ".midi")
MOST_BYTES = 2**22
LOOKED_AT = 1000
"""So many files of a folder say whether it holds music."""
BAR = 16
"""16ths of a bar: of four quarters, because grids do not say where bars begin."""
TOKENS = 129
"""A rest and the 128 pitches of MIDI."""
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


@dataclass(frozen=True)
class Pieces:
    """Pieces of music before they are numbers of a network."""

    name: str
    parts: Mapping[str, Sequence[Int8[np.ndarray, "_ _"]]]
    digest: str
    split: str
    """One sentence that says how the parts were made."""
    published: bool = False
    """Whether the test part ships with the set, so that all the rest may be trained on."""
    places: Mapping[str, list[str]] = field(default_factory=dict)
    """Where the user has each piece."""
    remarks: tuple[str, ...] = ()
    """What a person should know before learning from them."""
    entropy: float = 0.0
    """Nats a note of the grammar that made the test pieces; 0 where nobody knows."""
    test_only: bool = False
    """Whether a network is only evaluated on them: nothing is learned, so that one is enough."""

    def __post_init__(self) -> None:
        for part in PARTS:
            if not self.parts[part]:
                raise UserError(f"{self.name}: the {part} part holds no piece; add some")

    @property
    def voices(self) -> int:
        """Voices of the piece that has most."""
        return max(int(grid.shape[1]) for part in PARTS for grid in self.parts[part])


@dataclass(frozen=True)
class Excerpts(Clips):
    """Excerpts in training; in evaluation whole pieces, filled up to the longest of a batch."""

    def at(self, split: Batch, rows: Tensor) -> Batch:
        return Buckets(("ragged", "plain")).at(split, rows)


class Notes(Kind[Pieces]):
    """Voices of music."""

    name: ClassVar[str] = "notes"
    about: ClassVar[str] = "music: a folder of MIDI files (.mid or .midi), each a piece"
    suffix: ClassVar[str] = ".mid"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = (
        "an array of pitches from 0 to 127, or -1 for a rest: pieces x time x voices"
    )

    def matches(self, path: Path) -> bool:
        try:
            if kind_of_path(path) == "folder":
                first = islice(walk(path), LOOKED_AT)
                return any(file.suffix.lower() in SUFFIXES for file in first)
            return path.suffix.lower() in SUFFIXES and kind_of_path(path) == "file"
        except (UserError, OSError):
            return False

    def find(self, path: Path, *, like: Spec | None = None) -> Pieces:
        return _find(path, like)

    def from_memory(self, given: Given, *, like: Spec | None = None) -> Pieces | None:
        x = given.x
        whole = isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.ndim in (2, 3)
        if given.y is not None or not whole:
            return None
        grids = _grids(x)
        if like:
            return Pieces(given.short, all_parts(grids), "", ALL_OF_IT, test_only=True)
        own = given.own
        parts = own.numbers if own else _by_hash(rows(len(grids)), given.short)
        return Pieces(
            given.short,
            {part: [grids[n] for n in chosen] for part, chosen in parts.items()},
            given.digest,
            own.sentence if own else BY_ROW,
            places={part: [f"row {n}" for n in chosen] for part, chosen in parts.items()},
        )

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        return [_tokens(grid, spec["voices"], f"row {n}") for n, grid in enumerate(_grids(x))]

    def data(
        self,
        samples: Pieces,
        *,
        batch_size: int,
        seed: int = 0,
        window: int = 64,
        transpose: int = 0,
        like: Spec | None = None,
    ) -> Data:
        """Excerpts of `window` 16ths, moved by up to `transpose` semitones in training."""
        voices = like["voices"] if like else samples.voices
        split = {part: _encoded(samples, part, voices) for part in PARTS}
        if like is not None:
            spec = describe_like(like, samples)
        else:
            pitches = np.concatenate([grid[grid != REST] for grid in samples.parts["train"]])
            spec = {
                "name": samples.name,
                "kind": self.name,
                "task": "music",
                "shape": [voices],
                "classes": [],
                "voices": voices,
                "pitches": [int(pitches.min()), int(pitches.max())],
                "entropy": samples.entropy,
                "split": samples.split,
            }
        return Data(
            split,
            spec,
            batch_size,
            seed,
            samples.digest,
            sampler=Excerpts(window),
            augment=partial(_transpose, most=transpose) if transpose else None,
            parts=("notes", "length", "number"),
            eval_batch_size=16,
            notes=samples.remarks,
        )

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        """Each file is a piece: its tokens, time x voices."""
        found = files_in(paths)
        pieces = [_tokens(_read(path).grid, spec["voices"], shown(path)) for path in found]
        return [str(path) for path in found], pieces

    def outliers(self, inputs: Any, spec: Spec) -> list[str]:  # noqa: ANN401 -- inputs of the kind
        low, high = spec["pitches"]
        return [_why_unlike(piece[piece > 0] - 1, low, high) for piece in inputs]

    def to_data_units(self, made: Int[Tensor, ...], spec: Spec) -> Int[Tensor, ...]:
        """Pitches, with -1 for a rest."""
        return made - 1

    def write(self, made: Int[Tensor, "pieces time voices"], spec: Spec, path: Path) -> list[Path]:
        """A MIDI file for each piece and a wav file beside it; several are numbered."""
        if path.suffix.lower() not in ("", *SUFFIXES, ".wav"):
            raise UserError(
                f"--out ({shown(path)}) must end in .mid or .wav, because music is made"
            )
        written: list[Path] = []
        midi = path.suffix if path.suffix.lower() in SUFFIXES else ".mid"
        for number, piece in enumerate(made.cpu().numpy().astype(np.int8), 1):
            stem = path.stem + (f"-{number}" if len(made) > 1 else "")
            contents = {midi: write_midi(piece), ".wav": encode(synthesise(piece), RATE)}
            for suffix, content in contents.items():
                written.append(path.with_name(stem + suffix))
                files.write(written[-1], content)
        return written

    def look_over(self, path: Path, report: Report, **options: Any) -> None:  # noqa: ANN401
        self.count(_find(path, None, report), report)

    def count(self, samples: Pieces, report: Report) -> None:
        report.task, report.split = "music", samples.split
        report.counts = {part: len(samples.parts[part]) for part in PARTS}
        grids = [grid for part in PARTS for grid in samples.parts[part]]
        voices = Counter(grid.shape[1] for grid in grids)
        report.sizes = {f"{n} voice{'s' * (n > 1)}": voices[n] for n in sorted(voices)}
        lengths = sorted(len(grid) for grid in grids)
        pitches = np.concatenate([grid[grid != REST] for grid in grids])
        report.facts |= {
            "length": f"median {lengths[len(lengths) // 2]:,} 16ths, longest {lengths[-1]:,}",
            "pitches": f"{pitch_name(int(pitches.min()))} to {pitch_name(int(pitches.max()))}",
            "rests": f"{np.mean([float((grid == REST).mean()) for grid in grids]):.1%} of a piece",
        }
        report.remarks += samples.remarks
        equal = {part: [(g.shape, g.tobytes()) for g in samples.parts[part]] for part in PARTS}
        count_equal(report, equal, samples.places)

    def line(self, spec: Spec) -> str:
        low, high = map(pitch_name, spec["pitches"])
        voices = f"{spec['voices']} voice{'s' * (spec['voices'] > 1)}"
        return f"{spec['name']}: music of {voices} on a grid of 16ths, from {low} to {high}"


def pitch_name(pitch: int) -> str:
    """The name of a pitch; C4, the middle C, is 60."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


def bars(length: int, device: torch.device | None = None) -> Int64[Tensor, " time"]:
    """The place in the bar of each 16th of a piece."""
    return torch.arange(length, device=device) % BAR


def _why_unlike(pitches: Int[Tensor, " notes"], low: int, high: int) -> str:
    """Why a piece is unlike all of training; empty where it is not."""
    outside = pitches[(pitches < low) | (pitches > high)].tolist()
    if not outside:
        return ""
    learned = f"{pitch_name(low)} to {pitch_name(high)}"
    return f"{pitch_name(outside[0])} is outside of what was learned, {learned}; transpose it"


# ---------------------------------------------------------------------------------------- files


def _midi_files(path: Path) -> Iterator[Path]:
    """The MIDI files of a folder and of those below it."""
    return (file for file in walk(path) if file.suffix.lower() in SUFFIXES)


def _read(path: Path) -> Read:
    return read_midi(read_bytes(path, MOST_BYTES), shown(path))


def _find(path: Path, like: Spec | None, report: Report | None = None) -> Pieces:
    """The pieces in a file or a folder; a bad file is refused, or with a report noted there."""
    name = shown(path)
    if kind_of_path(path) == "folder":
        own, roots = part_folders(path)
        found = {part: list(_midi_files(root)) for part, root in roots.items()}
        skipped = [file for root in roots.values() for file in walk(root)]
        skipped = [file for file in skipped if file.suffix.lower() not in SUFFIXES]
        above = list(roots.values())
    elif path.suffix.lower() in SUFFIXES:
        own, found, skipped, above = False, {"train": [path]}, [], [path.parent]
    else:
        raise UserError(f"data ({name}) must be {Notes.about}")
    key = partial(named, roots=above)
    read: dict[Path, Read] = {}
    for file in (file for files_of_part in found.values() for file in files_of_part):
        try:
            read[file] = _read(file)
        except UserError as error:
            if report is None:
                raise
            report.unreadable.append(str(error))
    kept = {part: [file for file in its if file in read] for part, its in found.items()}
    if not read:
        raise UserError(f"{name} must hold MIDI files (.mid or .midi) that can be read; add some")
    if like:
        tested, split = test_part({part: kept.get(part, []) for part in PARTS}, own, name)
        chosen = all_parts(tested)
    else:
        if not own and len(read) < len(PARTS):
            raise UserError(
                f"{name} must hold at least {len(PARTS)} pieces, one for each of train, valid and "
                f"test, but holds {len(read)}; add some"
            )
        chosen, split = complete(kept, own, key, "file name")
    total = hashlib.sha256()
    for part, its in chosen.items():
        for file in its:
            grid = read[file].grid
            total.update(f"{part} {key(file)} {grid.shape} ".encode("utf-8", "surrogateescape"))
            total.update(grid.tobytes())
    return Pieces(
        name,
        {part: [read[file].grid for file in its] for part, its in chosen.items()},
        "" if like else total.hexdigest(),
        split,
        places={part: [shown(file) for file in its] for part, its in chosen.items()},
        remarks=() if like else _remarks(list(read.values()), skipped),
        test_only=like is not None,
    )


def _remarks(read: Sequence[Read], skipped: Sequence[Path]) -> tuple[str, ...]:
    """What was done to the files on the way to a grid."""
    notes, moved = sum(one.notes for one in read), sum(one.moved for one in read)
    drums, heights = sum(one.drums for one in read), sum(one.by_height for one in read)
    found = {
        f"{moved:,} of {notes:,} notes did not begin and end on a 16th and were moved to it": moved,
        f"{drums:,} notes of percussion have no pitch and were left out": drums,
        f"notes of {heights:,} of {len(read):,} files were dealt out to voices by their height, "
        "because a track plays several at a time": heights,
        f"{len(skipped):,} files that do not end in .mid or .midi were left out": len(skipped),
    }
    return tuple(line for line, count in found.items() if count)


def _by_hash(keys: Sequence[str], name: str) -> dict[str, list[int]]:
    """The pieces of each part."""
    if len(keys) < len(PARTS):
        raise UserError(
            f"{name} must hold at least {len(PARTS)} pieces, one for each of train, valid and "
            f"test, but holds {len(keys)}; give more"
        )
    placed = by_hash(keys)
    return {part: [n for n, its in enumerate(placed) if its == part] for part in PARTS}


# -------------------------------------------------------------------------------------- numbers


def _grids(x: Part) -> list[Int8[np.ndarray, "_ _"]]:
    """The pieces of an array of pitches, without the rests after their ends."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "iu" or x.ndim not in (2, 3):
        given = x if isinstance(x, str) else summarize(x)
        raise UserError(f"inputs ({given}) must be {Notes.in_memory}")
    table = x[..., None] if x.ndim == 2 else x
    if not table.size or table.min() < REST or table.max() > 127:
        raise UserError(
            "pitches must be from 0 to 127, or -1 for a rest, and there must be one; the array "
            f"({summarize(x)}) holds others or nothing"
        )
    if table.shape[2] > MOST_VOICES or table.shape[1] > MOST_LENGTH:
        raise UserError(
            f"pieces ({summarize(x)}) must have at most {MOST_VOICES} voices and {MOST_LENGTH:,} "
            "16ths; give fewer"
        )
    grids = []
    for n, piece in enumerate(table.astype(np.int8)):
        sounding = np.flatnonzero((piece != REST).any(1))
        if not len(sounding):
            raise UserError(f"row {n} must hold a note, but holds rests alone; leave it out")
        grids.append(np.ascontiguousarray(piece[: sounding[-1] + 1]))
    return grids


def _tokens(grid: Grid, voices: int, name: str) -> Int64[Tensor, "time columns"]:
    """The tokens of a piece, with rests below the voices that it has."""
    if grid.shape[1] > voices:
        raise UserError(
            f"{name} ({grid.shape[1]} voices) must have at most {voices}, as what was learned has; "
            "leave voices out"
        )
    tokens = torch.zeros(len(grid), voices, dtype=torch.int64)
    tokens[:, : grid.shape[1]] = torch.from_numpy(grid.astype(np.int64)) + 1
    return tokens


def _encoded(samples: Pieces, part: str, voices: int) -> Batch:
    """The stream of all pieces of a part, with the place in the bar, and where each begins."""
    pieces = []
    for n, grid in enumerate(samples.parts[part]):
        place = samples.places[part][n] if part in samples.places else f"piece {n} of {part}"
        tokens = _tokens(grid, voices, place)
        pieces.append(torch.cat([tokens, bars(len(grid))[:, None]], 1).to(torch.uint8))
    return (*flattened(pieces), torch.arange(len(pieces)))


def _transpose(batch: Batch, draw: Draw, most: int) -> Batch:
    """Every excerpt moved by up to `most` semitones either way, as far as MIDI has pitches."""
    x, *others = batch
    tokens, place = x[..., :-1], x[..., -1:]
    sounding = tokens > 0
    lowest = tokens.masked_fill(~sounding, TOKENS).amin((1, 2))
    highest = tokens.amax((1, 2))
    shift = draw.integers(-most, most, 1)[0]
    shift = torch.minimum(torch.maximum(shift, 1 - lowest), TOKENS - 1 - highest)
    moved = torch.where(sounding, tokens + shift[:, None, None], 0)
    return (torch.cat([moved, place], -1), *others)


KIND = Notes()
