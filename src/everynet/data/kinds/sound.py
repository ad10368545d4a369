"""Sound: clips with a class each, or with a transcript.

    clips/yes/1.wav   clips/no/2.wav        one subfolder for each class; or below train, test
    talk.csv                                with columns file,transcript and, if known, speaker
    talk/                                   a folder with one such csv

Clips are kept as 16-bit numbers of one channel at one rate, the mean of the channels of a file, and
made numbers from -1 to 1 on the device. A batch of clips with classes is (x, lengths, labels):
clips filled up with 0 to the longest or, with `window`, a stretch of each clip; how long they are;
and two columns, the class and the speaker (0 where `spec["speakers"]` is empty, -1 for one that is
not in it). A batch of clips with transcripts is (x, lengths, y, y_lengths): y are places in
`spec["symbols"]`, filled up with 0.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int16
from torch import Tensor

from everynet.data.dataset import Batch, Data, Spec
from everynet.data.images import folder
from everynet.data.images.skipped import Tally, reason
from everynet.data.in_memory import Given, Part, Unequal
from everynet.data.kinds import Kind, files_in
from everynet.data.paths import kind as kind_of_path
from everynet.data.report import Report, rare
from everynet.data.samplers import Buckets, Clips, flattened
from everynet.data.samples import class_numbers, describe_like
from everynet.data.sounds import wav
from everynet.data.split import (
    ALL_OF_IT,
    PARTS,
    OwnSplit,
    all_parts,
    by_hash,
    rows,
    test_part,
)
from everynet.data.texts import lines as texts
from everynet.system import files
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

FULL, SILENT = 0.001, -60.0
"""A clip with more than this share of its samples at the limit is clipped; dB of a silent one."""
STEREO = "have several channels, whose mean is taken"
CUTS = ("words", "characters")


class Clip(NamedTuple):
    """One sound and what is known of it."""

    sound: Int16[Tensor, " frames"]
    rate: int  # Hz
    label: str
    """Its class, or its transcript."""
    speaker: str = ""
    place: str = ""


@dataclass(frozen=True)
class Sounds:
    """Clips in three parts, as they were found."""

    name: str
    parts: Mapping[str, list[Clip]]
    digest: str
    split: str
    """One sentence that says how the parts were made."""
    task: str = "classification"
    """Or transcription."""
    classes: tuple[str, ...] = ()
    """The classes in order; where none is given, that of the alphabet."""
    published: bool = False
    """Whether the test part ships with the set, so that all the rest may be trained on."""
    test_only: bool = False
    """Whether a network is only evaluated on them: nothing is learned, so that few are enough."""
    remarks: tuple[str, ...] = ()
    """What a person should know before learning from them."""

    def __post_init__(self) -> None:
        for part in PARTS:
            if not self.parts[part]:
                raise UserError(f"{self.name}: the {part} part holds no clip; add some")
        if self.test_only or self.task != "classification":
            return
        found = {part: {clip.label for clip in self.parts[part]} for part in PARTS}
        everything = sorted(set.union(*found.values()))
        if len(everything) < 2:
            raise UserError(
                f"{self.name}: one class ({shown(everything[0], 60)}) is not enough to learn from; "
                "give at least 2"
            )
        for label in everything:
            if label not in found["train"]:
                raise UserError(
                    f"{self.name}: class {shown(label, 60)} has no training clip; add some"
                )
        object.__setattr__(self, "classes", self.classes or tuple(everything))

    @property
    def speakers(self) -> list[str]:
        """Everyone who is known to speak, in order."""
        return sorted({clip.speaker for part in PARTS for clip in self.parts[part]} - {""})

    @classmethod
    def divide(
        cls, clips: Sequence[Clip], name: str, keys: Sequence[str] = (), *,
        like: Spec | None = None, own: OwnSplit | None = None,
        split: str = texts.BY_ROW, task: str = "classification", remarks: Sequence[str] = (),
    ) -> Sounds:  # fmt: skip
        """Clips in three parts: the user's own, or by a hash of their keys or numbers."""
        if like:
            parts, split = all_parts([*clips]), ALL_OF_IT
        elif own:
            parts = {part: [clips[n] for n in its] for part, its in own.numbers.items()}
            split = own.sentence
        else:
            placed = by_hash(keys or rows(len(clips)))
            parts = {
                part: [clip for clip, its in zip(clips, placed, strict=True) if its == part]
                for part in PARTS
            }
        digest = "" if like else digest_of(clips)
        only = like is not None
        return cls(name, parts, digest, split, task, test_only=only, remarks=tuple(remarks))


def digest_of(clips: Iterable[Clip]) -> str:
    """SHA-256 of what was heard and what it is."""
    total = hashlib.sha256()
    for clip in clips:
        words = f"{clip.rate} {len(clip.sound)} {clip.label}\0{clip.speaker}\0"
        total.update(words.encode("utf-8", "surrogateescape"))
        total.update(clip.sound.numpy().astype("<i2").tobytes())
    return total.hexdigest()


class Sound(Kind[Sounds]):
    """Clips of sound."""

    name: ClassVar[str] = "sound"
    about: ClassVar[str] = (
        "sound: a folder with one subfolder of wav files for each class, or a .csv with the "
        "columns file and transcript (or a folder that holds it)"
    )
    suffix: ClassVar[str] = ".wav"
    own_parts: ClassVar[bool] = True
    in_memory: ClassVar[str] = (
        "(clips, labels), a list of arrays of int16, or of floats from -1 to 1, with rate="
    )

    def matches(self, path: Path) -> bool:
        if path.suffix.lower() == ".csv":
            return _names_files(path)
        try:
            return kind_of_path(path) == "folder" and (
                _transcripts(path) is not None or _holds_sounds(path)
            )
        except UserError:
            return False

    def guess_task(self, path: Path) -> str:
        listed = path.suffix.lower() == ".csv" or _transcripts(path) is not None
        return "transcription" if listed else "classification"

    def find(self, path: Path, *, like: Spec | None = None) -> Sounds:
        """Clips of a folder or a csv; each file must be readable."""
        listed = path if path.suffix.lower() == ".csv" else None
        if listed is None and kind_of_path(path) == "folder":
            inside = _transcripts(path)
            if not inside:
                return _folder(path, like)
            listed = inside
        if listed is None:
            raise UserError(f"data ({shown(path)}) must be {self.about}")
        found, wide = [], list[Path]()
        for number, (file, words, speaker) in enumerate(_rows(listed), 2):
            if not file.is_file():
                raise UserError(
                    f"{shown(listed)}: line {number} names {shown(file)}, which is not there"
                )
            found.append(_clip(file, words, wide, speaker))
        keys = [clip.place for clip in found]
        split = "by hash of the file name, a fifth is test and a tenth of the rest is valid"
        return Sounds.divide(
            found, shown(path), keys, like=like, split=split, task="transcription",
            remarks=_remark(wide, len(found)),
        )  # fmt: skip

    def from_memory(
        self, given: Given, *, rate: int = 0, like: Spec | None = None
    ) -> Sounds | None:
        clips, y = _arrays(given.x), given.y
        if clips is None or y is None:
            return None
        rate = like["rate"] if like else rate
        if rate <= 0:
            raise UserError(
                f"rate ({rate}) must be given with clips in memory, as sample_rate= of a recipe: "
                "samples a second"
            )
        labels = [str(label) for label in (y.tolist() if isinstance(y, np.ndarray) else y)]  # type: ignore[union-attr]  # columns have no use here
        found = [
            Clip(_in_memory(clip, n), rate, label)
            for n, (clip, label) in enumerate(zip(clips, labels, strict=True))
        ]
        return Sounds.divide(found, given.short, like=like, own=given.own)

    def convert(self, x: Part, spec: Spec) -> list[Tensor]:
        clips = _arrays(x)
        if clips is None:
            raise UserError("inputs must be clips: arrays of int16, or of floats from -1 to 1")
        return [_floats(_as_learned(_in_memory(clip, n), spec)) for n, clip in enumerate(clips)]

    def data(
        self,
        samples: Sounds,
        *,
        batch_size: int,
        seed: int = 0,
        rate: int = 0,
        trim: float = 0.0,
        window: int = 0,
        held_out: str = "",
        tokens: str = "words",
        like: Spec | None = None,
    ) -> Data:
        """Clips as numbers.

        `rate` (Hz) is what they are resampled to; `trim` takes off the ends what is so many
        decibels below the loudest stretch; `window` (samples) draws a stretch of each clip;
        `held_out` names a speaker who alone is the test; `tokens` cuts transcripts.
        """
        if tokens not in CUTS:
            raise UserError(f"tokens ({shown(tokens, 40)}) must be {' or '.join(CUTS)}")
        if rate and not wav.SLOWEST <= rate <= wav.FASTEST:
            raise UserError(f"rate ({rate}) must be from {wav.SLOWEST} to {wav.FASTEST:,} Hz")
        if not 0 <= trim <= 120:
            raise UserError(f"trim ({trim}) must be from 0, which trims nothing, to 120 dB")
        found = samples if like or not held_out else _without(samples, held_out)
        if like is not None:
            alone = like["classes"] and like["classes"] == like.get("symbols")
            # who learned words one by one may hear them alone or in transcripts
            spec = describe_like(like | {"task": found.task} if alone else like, found)
        else:
            spec = {
                "name": found.name,
                "kind": self.name,
                "task": found.task,
                "shape": [],
                "classes": [shown(label) for label in found.classes],
                "speakers": found.speakers,
                "split": found.split,
                "rate": rate or _common_rate(found),
                "trim": trim,
            }
            if found.task == "transcription":
                words = {one for clip in found.parts["train"] for one in cut(clip.label, tokens)}
                spec |= {"symbols": sorted(words), "tokens_are": tokens}
        splits = {part: _numbers(found, part, spec) for part in PARTS}
        written = found.task == "transcription"
        sampler = Buckets(("ragged", "ragged" if written else "plain"))
        return Data(
            splits, spec, batch_size, seed, found.digest,
            Clips(window) if window and not written else sampler,
            prepare=_prepare, notes=() if like else found.remarks,
        )  # fmt: skip

    def read(self, paths: Sequence[str | Path], spec: Spec) -> tuple[list[str], list[Tensor]]:
        names, found = [], []
        for path in files_in(paths):
            clip = _clip(path, "", [])
            sound = wav.resample(clip.sound.numpy(), clip.rate, spec["rate"])
            names.append(str(path))
            found.append(_floats(_as_learned(torch.from_numpy(sound), spec)))
        return names, found

    def write(self, made: Sequence[Tensor] | Tensor, spec: Spec, path: Path) -> list[Path]:
        """Sounds from -1 to 1, each as a wav file of 16 bits; what is louder is clipped."""
        if path.suffix not in ("", ".wav"):
            raise UserError(f"--out ({shown(path)}) must end in .wav, because sound was made")
        stem, written = path.with_suffix(""), []
        for number, sound in enumerate(made, 1):
            name = f"{stem.name}-{number}.wav" if len(made) > 1 else f"{stem.name}.wav"
            values = sound.detach().cpu()
            whole = values.numpy() if values.dtype == torch.int16 else values.double().numpy()
            files.write(stem.with_name(name), wav.encode(wav.to_16_bits(whole), spec["rate"]))
            written.append(stem.with_name(name))
        return written

    def look_over(self, path: Path, report: Report) -> None:  # type: ignore[override]  # no options
        """Read every file, going on past those that cannot be read."""
        for file in _files(path):
            try:
                wav.read(file)
            except UserError as error:
                report.unreadable.append(f"{shown(file)} {reason(file, error)}")
        if not report.unreadable:
            self.count(self.find(path), report)

    def count(self, samples: Sounds, report: Report) -> None:
        report.task, report.split = samples.task, samples.split
        report.counts = {part: len(samples.parts[part]) for part in PARTS}
        everything = [clip for part in PARTS for clip in samples.parts[part]]
        report.sizes = {f"{r:,} Hz": n for r, n in Counter(c.rate for c in everything).items()}
        seconds = [len(clip.sound) / clip.rate for clip in everything]
        report.facts["length"] = (
            f"median {median(seconds):.2f} s, shortest {min(seconds):.2f} s, longest "
            f"{max(seconds):.2f} s, together {sum(seconds) / 60:.1f} min"
        )
        loud = [clip.sound.int().abs() for clip in everything]
        full = sum(bool((one >= wav.LOUDEST - 1).double().mean() > FULL) for one in loud)
        mute = sum(bool(one.max() < wav.LOUDEST * 10 ** (SILENT / 20)) for one in loud)
        report.facts["clipping"] = f"{full:,} of {len(loud):,} clips are at full scale too often"
        report.facts["silence"] = f"{mute:,} of {len(loud):,} clips stay below {SILENT:g} dB"
        if samples.speakers:
            report.facts["speakers"] = ", ".join(samples.speakers[:10])
        report.remarks += samples.remarks
        if samples.task == "classification":
            counts = {part: Counter(c.label for c in samples.parts[part]) for part in PARTS}
            report.classes = {
                shown(label): {part: counts[part][label] for part in PARTS}
                for label in samples.classes
            }
            few = rare({name: parts["train"] for name, parts in report.classes.items()})
            report.remarks += [few] if few else []
        held = {p: [c.sound.numpy().tobytes() for c in samples.parts[p]] for p in PARTS}
        texts.count_equal(report, held, {p: [c.place for c in samples.parts[p]] for p in PARTS})

    def line(self, spec: Spec) -> str:
        what = f"{len(spec['classes'])} classes" if spec["classes"] else "transcripts"
        return f"{spec['name']}: sound of {spec['rate']:,} Hz, {what}"


def cut(transcript: str, tokens: str) -> list[str]:
    """A transcript as words, or as characters with single spaces between words."""
    words = transcript.split()
    return words if tokens == "words" else list(" ".join(words))


def _prepare(batch: Batch) -> Batch:
    """Clips as numbers from -1 to 1; those that are such numbers stay as they are."""
    x, *rest = batch
    return batch if x.is_floating_point() else (x.to(torch.float32) / wav.LOUDEST, *rest)


def _floats(sound: Int16[Tensor, " frames"]) -> Float[Tensor, " frames"]:
    return sound.to(torch.float32) / wav.LOUDEST


def _as_learned(sound: Int16[Tensor, " frames"], spec: Spec) -> Int16[Tensor, " _"]:
    """Trimmed, where that was done to what was learned."""
    if not spec.get("trim"):
        return sound
    return torch.from_numpy(wav.trim_silence(sound.numpy(), spec["rate"], spec["trim"]).copy())


def _numbers(samples: Sounds, part: str, spec: Spec) -> Batch:
    """The tensors of one part."""
    clips = samples.parts[part]
    sounds = [
        _as_learned(
            torch.from_numpy(wav.resample(clip.sound.numpy(), clip.rate, spec["rate"])), spec
        )
        for clip in clips
    ]
    if samples.task == "transcription":
        number = {symbol: n for n, symbol in enumerate(spec["symbols"])}
        written = []
        for clip in clips:
            symbols = cut(clip.label, spec["tokens_are"])
            if new := next((one for one in symbols if one not in number), None):
                raise UserError(
                    f"{clip.place}: its transcript has {shown(repr(new), 40)}, which no training "
                    "transcript has; write it otherwise, or add clips with it"
                )
            written.append([number[one] for one in symbols])
        return (*flattened(sounds), *flattened(written))
    known = class_numbers(spec, samples.name, {shown(clip.label) for clip in clips})
    people = {name: n for n, name in enumerate(spec["speakers"])}
    unknown = -1 if people else 0
    labels = [[known[shown(c.label)], people.get(c.speaker, unknown)] for c in clips]
    return (*flattened(sounds), torch.tensor(labels))


def _common_rate(samples: Sounds) -> int:
    """The rate that all clips have."""
    first = samples.parts["train"][0]
    for part in PARTS:
        for clip in samples.parts[part]:
            if clip.rate != first.rate:
                raise UserError(
                    f"{clip.place} ({clip.rate:,} Hz) must have the rate of {first.place} "
                    f"({first.rate:,} Hz); or do sample_rate={min(clip.rate, first.rate)}, "
                    "which resamples all clips"
                )
    return first.rate


def _without(samples: Sounds, speaker: str) -> Sounds:
    """The same clips, of which all of one speaker are the test and nothing else is."""
    if speaker not in samples.speakers:
        known = samples.speakers
        raise UserError(
            f"held_out ({shown(speaker, 60)}) must be a speaker of {samples.name}"
            + (nearest(speaker, known) if known else ", which names none")
        )
    everything = [clip for part in PARTS for clip in samples.parts[part]]
    parts = {p: [c for c in samples.parts[p] if c.speaker != speaker] for p in PARTS}
    parts["test"] = [clip for clip in everything if clip.speaker == speaker]
    return Sounds(
        samples.name, parts, samples.digest, f"the test is all clips of {shown(speaker)}",
        samples.task, samples.classes, remarks=samples.remarks,
    )  # fmt: skip


# ------------------------------------------------------------------------------------ in memory


def _arrays(x: Part) -> list[np.ndarray] | None:
    """Clips that a caller has in memory; None where they are none."""
    if isinstance(x, Unequal):
        found = list(x.rows)
    elif isinstance(x, np.ndarray) and x.ndim in (1, 2):
        found = [x] if x.ndim == 1 else list(x)
    else:
        return None
    good = all(one.ndim == 1 and (one.dtype == np.int16 or one.dtype.kind == "f") for one in found)
    return found if good else None


def _in_memory(clip: np.ndarray, number: int) -> Int16[Tensor, " frames"]:
    """A clip of int16, or of floats from -1 to 1."""
    if not len(clip):
        raise UserError(f"clip {number} is empty; leave it out")
    if clip.dtype.kind == "f" and not (np.isfinite(clip).all() and np.abs(clip).max() <= 1):
        raise UserError(
            f"clip {number} must be of numbers from -1 to 1, or of int16; divide it by its peak"
        )
    return torch.from_numpy(wav.to_16_bits(clip))


# ---------------------------------------------------------------------------------------- files


def _clip(path: Path, label: str, wide: list[Path], speaker: str = "") -> Clip:
    """A file; one of several channels is added to `wide`."""
    found = wav.read(path)
    if found.values.ndim > 1 and found.values.shape[1] > 1:
        wide.append(path)
    sound = torch.from_numpy(wav.to_16_bits(found.values))
    return Clip(sound, found.rate, label, speaker, shown(path))


def _remark(wide: Sequence[Path], total: int) -> tuple[str, ...]:
    """What is said of files of several channels."""
    if not wide:
        return ()
    return (f"{len(wide):,} of {total:,} clips (first {shown(wide[0])}) {STEREO}",)


def _is_sound(path: Path) -> bool:
    return path.suffix.lower() in wav.SUFFIXES


def _folder(path: Path, like: Spec | None) -> Sounds:
    tally = Tally(path)
    listed, split = folder.listing(path, tally)
    own, roots = folder.roots(path)
    every = [file for part in PARTS for _, file in listed[part]]
    stray = [*tally.skipped, *(file for file in every if not _is_sound(file))]
    listed = {part: [one for one in listed[part] if _is_sound(one[1])] for part in listed}
    if like:
        chosen, split = test_part(listed, own, shown(path))
        listed = all_parts(chosen)
    wide, read = list[Path](), dict[Path, Clip]()
    for part in PARTS:
        for label, file in listed[part]:
            read[file] = read.get(file) or _clip(file, label, wide)
    parts = {part: [read[file] for _, file in listed[part]] for part in PARTS}
    keys = (f"{part}/{folder.named(file, roots.values())}" for part in PARTS for _, file in
            listed[part])  # fmt: skip
    remarks = _remark(wide, len(read))
    if stray:
        remarks += (
            f"{len(stray):,} of the files (first {shown(stray[0])}) passed over: no sound in a "
            "class",
        )
    whole = hashlib.sha256("\n".join(keys).encode("utf-8", "surrogateescape"))
    whole.update(digest_of(read.values()).encode())
    return Sounds(
        shown(path), parts, "" if like else whole.hexdigest(), split, test_only=like is not None,
        remarks=remarks,
    )  # fmt: skip


def _files(path: Path) -> list[Path]:
    """Every file of sound that data names."""
    listed = path if path.suffix.lower() == ".csv" else _transcripts(path)
    if listed:
        return [file for file, _, _ in _rows(listed)]
    return [file for file in folder.walk(path) if _is_sound(file)]


def _holds_sounds(path: Path) -> bool:
    """Whether a folder has class folders that begin with a sound, also below `train`."""
    inside = [each for each in folder.entries(path) if each.is_dir()]
    train = [each for each in inside if each.name == "train"]
    classes = folder.entries(train[0]) if train else inside
    first = [next(iter(folder.entries(each)), None) for each in classes if each.is_dir()]
    return any(each is not None and _is_sound(each) for each in first)


def _transcripts(path: Path) -> Path | None:
    """The csv of a folder that names files and transcripts; None where there is none."""
    found = [p for p in folder.entries(path) if p.suffix.lower() == ".csv" and _names_files(p)]
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise UserError(f"{shown(path)} must hold one csv of transcripts, not {shown(names)}")
    return found[0] if found else None


def _names_files(path: Path) -> bool:
    """Whether the first line of a csv names the columns file and transcript."""
    head = texts.beginning(path)
    names = {name.strip().lower() for name in ",".join(head[0]).split(",")} if head else set()
    return {"file", "transcript"} <= names


def _rows(path: Path) -> list[tuple[Path, str, str]]:
    """File, transcript and speaker of each line of a csv."""
    reader = csv.DictReader(io.StringIO(texts.read(path)), skipinitialspace=True)
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    if not {"file", "transcript"} <= {*reader.fieldnames}:
        raise UserError(f"{shown(path)} must have the columns file and transcript in line 1")
    found = []
    try:
        for number, row in enumerate(reader, 2):
            file, words = ((row[name] or "").strip() for name in ("file", "transcript"))
            if not file or not words:
                what = "transcript" if file else "file"
                raise UserError(
                    f"{shown(path)}: line {number} has no {what}; fill it in or leave it out"
                )
            found.append((path.parent / file, words, (row.get("speaker") or "").strip()))
    except csv.Error as error:
        raise UserError(f"{shown(path)} cannot be read as csv: {error}") from None
    if not found:
        raise UserError(f"{shown(path)} names no file; add lines of file,transcript")
    return found


KIND = Sound()
