"""Real sentences from corrupted ones: a network learns what language is from what it is not.

    h_1 .. h_n = LSTM(E[s_1] .. E[s_n])                     (1)  states along a sentence
    q(s) = v . max_t h_t + b                                (2)  logit that it is real, unit by unit
    s' = s with two words swapped, one removed or replaced  (3)  each as likely
    L = softplus(-q(s)) + softplus(q(s'))                   (4)  cross-entropy, real 1 and corrupted 0
    AUC = P(q(real) > q(corrupted))                         (5)  over pairs of unseen sentences

Every sentence of a batch is shown with a corrupted copy, made anew each time. A word that replaces
another is drawn from the batch, so that common words come as often as they do in real text, and no
word is a sign of corruption by itself. The judge then fills a gap: the word that makes the sentence
most real.

After Collobert, Weston (2008), "A unified architecture for natural language processing",
doi:10.1145/1390156.1390177, section 5. Unlike there, a recurrent network reads whole sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import softplus

from everynet.data.kinds.text import BLANK, LongText, divided
from everynet.data.loading import samples
from everynet.data.tokens import UNKNOWN, Tokens
from everynet.metrics.ranking import auc
from everynet.plot import Panel, along_lines, panels
from everynet.recipes import Pictures, Training
from everynet.samplers import Buckets, flattened
from everynet.types import Batch, Data, History, Spec, Terms, UserError, generator
from everynet.zoo.language.gaps import inserted, place_of

WAYS = ("swapped", "removed", "replaced")
SHORTEST, LONGEST = 4, 40
"""Words of a sentence."""
_ENDS = re.compile(r"(?<=[.!?:])\s+")


class Judge(nn.Module):
    """Maps sentences to the logit that they are real."""

    def __init__(self, vocabulary: int, size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(size, 1)

    def states(self, s: Int64[Tensor, "batch time"]) -> Float[Tensor, "batch time hidden"]:
        """What is held after each word."""
        states: Tensor = self.lstm(self.dropout(self.embedding(s)))[0]  # (1)
        return states

    def forward(
        self, s: Int64[Tensor, "batch time"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, " batch"]:
        inside = torch.arange(s.shape[1], device=s.device) < lengths[:, None]
        most = self.states(s).masked_fill(~inside[..., None], -1.0).amax(1)  # tanh is above -1
        logits: Tensor = self.output(self.dropout(most))[:, 0]  # (2)
        return logits


def corrupt(
    s: Int64[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    random: torch.Generator | None = None,
) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, " batch"], Int64[Tensor, " batch"]]:
    """Each sentence with one fault, how long it is then, and which of WAYS the fault is."""
    way = _below(torch.full_like(lengths, len(WAYS)), random)
    at, where = _below(lengths, random)[:, None], torch.arange(s.shape[1], device=s.device)
    other = (at + 1 + _below(lengths - 1, random)[:, None]) % lengths[:, None]  # another place
    first, second = s.gather(1, at), s.gather(1, other)
    swapped = torch.where(where == at, second, torch.where(where == other, first, s))
    after = (where + (where >= at).long()).clamp(max=s.shape[1] - 1)
    removed = s.gather(1, after)
    replaced = torch.where(where == at, drawn(s, lengths, random)[:, None], s)
    made = torch.stack([swapped, removed, replaced])[way, torch.arange(len(s), device=s.device)]
    shorter = lengths - (way == WAYS.index("removed")).long()
    return torch.where(where < shorter[:, None], made, 0), shorter, way  # (3)


def drawn(
    s: Int64[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    random: torch.Generator | None = None,
) -> Int64[Tensor, " batch"]:
    """As many words as there are sentences, each from anywhere in the batch."""
    row = _below(torch.full_like(lengths, len(s)), random)
    return s[row].gather(1, _below(lengths[row], random)[:, None])[:, 0]


def _below(most: Tensor, random: torch.Generator | None) -> Tensor:
    """For each number one that is at least 0 and less."""
    where = most.device if random is None else random.device
    share = torch.rand(len(most), generator=random, device=where).to(most.device)
    return torch.minimum((share * most).long(), most - 1)


def sentences(text: str) -> list[str]:
    """A text's sentences: its lines, or where empty lines part it what ends in a full stop."""
    if "\n\n" not in text:
        found = text.split("\n")
    else:
        paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        found = [one for part in paragraphs for one in _ENDS.split(part)]
    return [one for one in found if SHORTEST <= len(one.split()) <= LONGEST]


@dataclass(frozen=True, kw_only=True)
class Corrupted(Training[Judge]):
    """Tell real sentences from such with a word swapped, removed or replaced."""

    captions: ClassVar[dict[str, str]] = {
        "along": "Unseen sentences and the same with a fault, orange: how real each seems so far, "
        "word by word. It falls at the fault, and a judge that takes the most of each unit does "
        "not forget it.",
        "curves": "Of unseen sentences how many faults are found for how many false alarms, by "
        "sort of fault: a word out of its place is found most easily, a missing one least.",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8: a sentence a line, or paragraphs with an empty line."""
    vocabulary: int = 3000
    """Most words that are told apart, the commonest; 0 keeps every one of the training text."""
    hidden_size: int = 128
    """Units of the LSTM, and numbers of a word's vector."""
    dropout: float = 0.3
    """Share of the vectors and of the state that is dropped in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.hidden_size >= 1, "hidden_size", "at least 1")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        found: LongText = samples(self.data, kind="text")
        texts, split = divided(found, "words")
        parts = {part: sentences(text) for part, text in texts.items()}
        for part, some in parts.items():
            if len(some) < 2:
                raise UserError(
                    f"data ({self.data}) must hold at least 2 sentences of {SHORTEST} to {LONGEST} "
                    f"words in each part, but {part} holds {len(some)}; give more text"
                )
        tokens = Tokens.learned(parts["train"], "words", most=self.vocabulary)
        if len(tokens) < 3:
            raise UserError(
                f"data ({self.data}) must hold at least 2 different words, because of one there is "
                "nothing to tell; give more text or a greater vocabulary"
            )
        spec: Spec = {
            "name": found.name,
            "kind": "text",
            "task": "classification",
            "shape": [len(tokens)],
            "classes": ["corrupted", "real"],
            "tokens": tokens.spec,
            "split": split,
        }
        splits = {
            part: flattened([tokens.encode(one) for one in some]) for part, some in parts.items()
        }
        return Data(splits, spec, self.batch_size, self.seed, found.digest, Buckets(("ragged",)))

    def model(self, data: Data) -> Judge:
        return Judge(data.spec["shape"][0], self.hidden_size, self.dropout)

    def objective(self, model: Judge, batch: Batch) -> Terms:
        s, lengths = batch
        wrong, shorter, _ = corrupt(s, lengths)
        real, fake = model(torch.cat([s, wrong]), torch.cat([lengths, shorter])).chunk(2)
        return {"cross_entropy": softplus(-real).mean() + softplus(fake).mean()}  # (4)

    def metrics(self, model: Judge, batch: Batch) -> dict[str, Tensor]:
        """Logits of sentences and of their corrupted copies; whether the right word fills a gap."""
        s, lengths = batch
        random = generator(2008, int(lengths.sum()))
        wrong, shorter, way = corrupt(s, lengths, random)
        at = _below(lengths, random)[:, None]
        words = torch.stack([drawn(s, lengths, random) for _ in range(CHOICE - 1)])
        where = torch.arange(s.shape[1], device=s.device)
        tried = torch.where(where == at, words[..., None], s).flatten(0, 1)
        real = model(s, lengths)
        others = model(tried, lengths.repeat(CHOICE - 1)).view(CHOICE - 1, -1)
        return {
            "real": real,
            "corrupted": model(wrong, shorter),
            "way": way.double(),
            "chosen": (real > others.amax(0)).double(),
            "by_frequency": (s.gather(1, at)[:, 0] < words.amin(0)).double(),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """AUC of all and of each sort of fault; how often a gap is filled right, of ten words."""
        real, fake = outputs["real"], outputs["corrupted"]
        return {
            "auc": _auc(real, fake),
            **{
                f"auc_{name}": _auc(real, fake[outputs["way"] == number])
                for number, name in enumerate(WAYS)
            },
            "cross_entropy": (softplus(-real).mean() + softplus(fake).mean()).item(),
            "chosen": outputs["chosen"].mean().item(),
            "by_frequency": outputs["by_frequency"].mean().item(),
        }

    def predict(
        self, model: Judge, inputs: Sequence[Tensor], spec: Spec, *, candidates: int = 5
    ) -> Sequence[dict[str, Any]]:
        """How real each line is; of one with a gap, `___`, the words that make it most real."""
        tokens = Tokens.of(spec)
        if not 1 <= candidates <= len(tokens):
            raise UserError(f"candidates ({candidates}) must be from 1 to the {len(tokens)} words")
        answers: list[dict[str, Any]] = []
        for line in inputs:
            if not bool((line == BLANK).any()):
                unknown = int((line == tokens.index[UNKNOWN]).sum())
                p = model(line[None], line.new_tensor([len(line)])).sigmoid().item()
                answers.append({"real": p, "tokens": len(line), "unknown": unknown})
                continue
            place = place_of(line)
            rest = torch.cat([line[:place], line[place + 1 :]])
            words = torch.arange(len(tokens), device=line.device)
            words = words[words != tokens.index[UNKNOWN]]
            tried = inserted(rest, torch.full_like(words, place), words)
            p = model(tried, words.new_full((len(words),), len(line))).sigmoid()
            best = p.topk(min(candidates, len(words)))
            found = [tokens.vocabulary[n] for n in words[best.indices].tolist()]
            said = [tokens.vocabulary[n] for n in rest.tolist()]
            answers.append(
                {
                    "filled": " ".join([*said[:place], found[0], *said[place:]]),
                    "candidates": [
                        list(one) for one in zip(found, best.values.tolist(), strict=True)
                    ],
                }
            )
        return answers

    def pictures(self, model: Judge, data: Data, history: History) -> Pictures:
        """How real sentences seem along their words, and faults found against false alarms."""
        s, lengths = next(data.valid)
        outputs = self.metrics(model, (s, lengths))
        wrong, shorter, way = corrupt(s, lengths, generator(2008, int(lengths.sum())))
        say = Tokens.of(data.spec).vocabulary
        lines = []
        for number in range(len(WAYS)):
            gap = torch.where(
                (way == number) & (lengths >= 7) & (lengths <= 12) & (s > 0).sum(1).eq(lengths),
                outputs["real"] - outputs["corrupted"], -torch.inf,
            )  # fmt: skip
            row = int(gap.argmax())
            lines += [
                (part[row, : length[row]], _so_far(model, part[row, : length[row]]), name)
                for part, length, name in ((s, lengths, "real"), (wrong, shorter, WAYS[number]))
            ]
        return {
            "along": along_lines(
                [([say[n] for n in line.tolist()], p, name) for line, p, name in lines]
            ),
            "curves": _curves(outputs),
        }

    def tiny(self) -> Self:
        small = replace(self, data="topics", vocabulary=100, hidden_size=8, batch_size=16)
        return replace(small, steps=min(self.steps, 4))


CHOICE = 10
"""Words that are tried in a gap: the right one, and drawn ones."""


def _auc(real: Tensor, fake: Tensor) -> float:
    """How often a real sentence has the higher logit."""
    both = torch.cat([real, fake]).double()
    return auc(both, torch.arange(len(both), device=both.device) < len(real))  # (5)


def _so_far(model: Judge, line: Tensor) -> Tensor:
    """How real a sentence seems after each of its words."""
    most = model.states(line[None])[0].cummax(0).values
    return model.output(most)[:, 0].sigmoid().cpu()


def _curves(outputs: Mapping[str, Tensor]) -> Figure:
    real = outputs["real"].double().cpu()
    curves = {}
    for number, name in enumerate(WAYS):
        fake = outputs["corrupted"][outputs["way"] == number].double().cpu()
        at = torch.cat([real, fake]).sort().values
        alarms, found = ((part[:, None] < at).double().mean(0) for part in (real, fake))
        curves[f"{name}, AUC {_auc(real, fake):.2f}"] = (alarms, found)
    diagonal = torch.tensor([0.0, 1.0])
    return panels(
        Panel(
            curves,
            "real sentences taken for corrupted",
            "corrupted sentences found",
            guides={"by chance": (diagonal, diagonal)},
            legend="lower right",
        ),
        width=4.5,
        height=4.0,
    )


RECIPES = {
    "corrupted": Corrupted(
        steps=1500,
        batch_size=64,
        lr=3e-3,
        schedule="cosine",
        clip=1.0,
        goal="auc >= 0.8",
        covers=("R26",),
    ),
    "corrupted-ptb": Corrupted(
        data="ptb",
        vocabulary=10000,
        hidden_size=256,
        steps=8000,
        batch_size=128,
        lr=2e-3,
        schedule="cosine",
        clip=1.0,
        goal="auc >= 0.8",
        covers=("R26",),
    ),
}
