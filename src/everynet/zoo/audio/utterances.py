"""Utterances put together from clips of single words, with pauses between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from everynet.data.dataset import Batch, Data
from everynet.data.draws import WHOLE, Share
from everynet.data.samplers import Buckets, flattened
from everynet.system.errors import UserError
from everynet.system.seeds import generator

SHORTEST, LONGEST = 0.05, 0.3  # s: a pause between two words, and at both ends
MADE = 3
"""The stream of random numbers of utterances, among those of a seed."""


@dataclass
class Utterances(Buckets):
    """A training batch is made anew: one to `most` clips of one speaker each, and pauses.

    What is evaluated is a set of utterances that was made once. A batch of both is
    (x, lengths, y, y_lengths).
    """

    columns: tuple[str, ...] = ("ragged", "ragged")
    most: int = 5
    rate: int = 8000
    clips: Sequence[tuple[int, int, int]] = field(default=(), repr=False)
    """Where each clip begins and ends in the stream, and its symbol."""
    by_speaker: Sequence[Sequence[int]] = field(default=(), repr=False)
    """The clips of each speaker."""

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        """Updates in which as many words are heard as there are clips."""
        return max(1, 2 * self.rows(split) // ((self.most + 1) * batch_size))

    def batch(
        self, split: Batch, batch_size: int, seed: int, step: int, share: Share = WHOLE
    ) -> Batch:
        drawn = self.draw(batch_size, generator(seed, MADE, step))
        longest = max(self.samples(one) for one in drawn)
        symbols = max(len(words) for words, _ in drawn)
        mine = drawn[share.of(batch_size)]
        sounds = [self.joined(split[0], *one) for one in mine]
        lengths = [len(sound) for sound in sounds]
        x = pad_sequence([*sounds, split[0].new_zeros(longest)], batch_first=True)[:-1]
        said = [self.symbols(words) for words, _ in mine]
        y = pad_sequence([*said, torch.zeros(symbols).long()], batch_first=True)[:-1]
        where = split[0].device
        counts = torch.tensor([len(words) for words, _ in mine])
        return x, torch.tensor(lengths).to(where), y.to(where), counts.to(where)

    def draw(self, count: int, random: torch.Generator) -> list[tuple[list[int], list[int]]]:
        """The clips of each utterance and the pauses around them, in samples."""
        speakers = torch.randint(len(self.by_speaker), (count,), generator=random).tolist()
        sizes = torch.randint(1, self.most + 1, (count,), generator=random).tolist()
        picks = torch.rand(count, self.most, generator=random).tolist()
        seconds = SHORTEST + (LONGEST - SHORTEST) * torch.rand(
            count, self.most + 1, generator=random
        )
        pauses = (seconds * self.rate).long().tolist()
        made = []
        for speaker, size, chosen, pause in zip(speakers, sizes, picks, pauses, strict=True):
            own = self.by_speaker[speaker]
            made.append(([own[int(p * len(own))] for p in chosen[:size]], pause[: size + 1]))
        return made

    def samples(self, drawn: tuple[list[int], list[int]]) -> int:
        """The length of an utterance."""
        words, pauses = drawn
        return sum(self.clips[n][1] - self.clips[n][0] for n in words) + sum(pauses)

    def joined(self, stream: Tensor, words: Sequence[int], pauses: Sequence[int]) -> Tensor:
        """Clips one after another with silence before, between and after them."""
        parts = [stream.new_zeros(pauses[0])]
        for n, pause in zip(words, pauses[1:], strict=True):
            begin, end, _ = self.clips[n]
            parts += [stream[begin:end], stream.new_zeros(pause)]
        return torch.cat(parts)

    def symbols(self, words: Sequence[int]) -> Int64[Tensor, " words"]:
        """What is said."""
        return torch.tensor([self.clips[n][2] for n in words])


def make_utterances(data: Data, *, most: int) -> Data:
    """Data of single words as utterances: those of training anew each step, the others fixed."""
    rate = data.spec["rate"]
    samplers = {part: _sampler(split, most, rate) for part, split in data.splits.items()}
    splits = {}
    for number, (part, split) in enumerate(data.splits.items()):
        if part == "train" and not data.test_only:
            splits[part] = split
            continue
        sampler, stream = samplers[part], split[0]
        count = max(4, 2 * (len(split[1]) - 1) // (most + 1))
        drawn = sampler.draw(count, generator(0, MADE, number))
        sounds = flattened([sampler.joined(stream, *one) for one in drawn])
        splits[part] = (*sounds, *flattened([sampler.symbols(words) for words, _ in drawn]))
    said = {"task": "transcription", "symbols": data.spec["classes"], "tokens_are": "words"}
    spec = data.spec | said
    return replace(data, splits=splits, spec=spec, sampler=samplers["train"], eval_batch_size=64)


def _sampler(split: Batch, most: int, rate: int) -> Utterances:
    _, starts, labels = split
    ends = starts.tolist()
    clips = list(zip(ends[:-1], ends[1:], labels[:, 0].tolist(), strict=True))
    speakers: dict[int, list[int]] = {}
    for n, speaker in enumerate(labels[:, 1].tolist()):
        speakers.setdefault(speaker, []).append(n)
    if max(end - begin for begin, end, _ in clips) > 60 * rate:
        raise UserError("data must be clips of one word each, but one is longer than a minute")
    by_speaker = tuple(tuple(own) for own in speakers.values())
    return Utterances(most=most, rate=rate, clips=tuple(clips), by_speaker=by_speaker)
