"""Real and corrupted sentences: a network learns to discriminate them, and so to model language.

    h_t = LSTM(E[s_1] .. E[s_t])                            (1)  state after a word
    l_t = log softmax(E h_{t-1} + c)[s_t]                   (2)  log-probability of the word
    r_t = l_t + a[s_t]                                      (3)  the same above that by frequency
    q(s) = w . (mean l_t, mean r_t, min r_t) + b            (4)  logit that the sentence is real
    s' = s with words swapped, removed or replaced          (5)  each sort equally often
    L = softplus(-q(s)) + softplus(q(s')) - mean_t l_t(s)   (6)  binary and next-word cross-entropy
    AUC = P(q(real) > q(corrupted))                         (7)  over pairs of unseen sentences

E are the embeddings, and a dot is the inner product. Every sentence of a batch has a corrupted
copy, drawn anew each time. A word that replaces another is drawn from the batch, so that words are
as frequent as in real text, and none is a sign of corruption by itself. Without the last term of
(6) the network memorises the few sentences there are. It also fills a gap: with the word that makes
a sentence most likely real.

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
from torch.nn.functional import cross_entropy, linear, pad, softplus

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds.text import BLANK, LongText, divided
from everynet.data.loading import samples
from everynet.data.samplers import Buckets, flattened
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.metrics.classification import name_classes
from everynet.metrics.ranking import auc
from everynet.plot import Panel, panels
from everynet.plot.words import word_values
from everynet.recipes.recipe import later
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.language.cloze import find_gap, insert_words

SORTS = ("swapped", "removed", "replaced")
AT_ONCE = 64
"""Sentences of a batch in evaluation."""
SHORTEST, LONGEST = 6, 40
"""Words of a sentence."""
CHOICES = 10
"""Words that are tried in a gap: the right one and random ones."""
_ENDS = re.compile(r"(?<=[.!?:])\s+")


class SentenceDiscriminator(nn.Module):
    """Maps sentences to the logit that they are real, and to the cross-entropy of their words."""

    def __init__(
        self, rarity: Float[Tensor, " vocab"], hidden_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(rarity), hidden_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.lstm = nn.LSTM(hidden_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.bias = nn.Parameter(-rarity)  # c: initial probabilities are frequencies
        self.rarity = nn.Parameter(rarity.clone())  # a
        self.output = nn.Linear(3, 1)
        nn.init.constant_(self.output.weight, 0.1)  # what is more probable is more real

    def word_scores(
        self, s: Int64[Tensor, "batch time"]
    ) -> tuple[Float[Tensor, "batch time"], Float[Tensor, "batch time"]]:
        """The log-probability l_t of each word, and r_t, the same above that by frequency."""
        states = self.lstm(self.dropout(self.embedding(s)))[0]  # (1)
        before = self.dropout(pad(states[:, :-1], (0, 0, 1, 0)))
        logits = linear(before, self.embedding.weight, self.bias)
        logp = -cross_entropy(logits.transpose(1, 2), s, reduction="none")  # (2)
        return logp, logp + self.rarity[s]  # (3)

    def forward(
        self, s: Int64[Tensor, "batch time"], lengths: Int64[Tensor, " batch"]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
        inside = torch.arange(s.shape[1], device=s.device) < lengths[:, None]
        logp, gain = self.word_scores(s)
        mean_l, mean_r = (part.masked_fill(~inside, 0).sum(1) / lengths for part in (logp, gain))
        min_r = gain.masked_fill(~inside, torch.inf).amin(1)
        return self.output(torch.stack([mean_l, mean_r, min_r], 1))[:, 0], -mean_l  # (4)


# -------- the network ends here; training and pictures follow --------


def corrupt(
    s: Int64[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    faults: int,
    random: torch.Generator | None = None,
) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, " batch"], Int64[Tensor, " batch"]]:
    """Each sentence with so many faults of one sort, its new length, and the number of the sort."""
    sort = _randint(torch.full_like(lengths, len(SORTS)), random)
    for _ in range(faults):
        s, lengths = add_fault(s, lengths, sort, random)
    return s, lengths, sort


def add_fault(
    s: Int64[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    sort: Int64[Tensor, " batch"],
    random: torch.Generator | None = None,
) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, " batch"]]:
    """Each sentence with one fault of its sort, and its new length."""
    at, where = _randint(lengths, random)[:, None], torch.arange(s.shape[1], device=s.device)
    other = (at + 1 + _randint(lengths - 1, random)[:, None]) % lengths[:, None]  # another place
    first, second = s.gather(1, at), s.gather(1, other)
    swapped = torch.where(where == at, second, torch.where(where == other, first, s))
    after = (where + (where >= at).long()).clamp(max=s.shape[1] - 1)
    removed = s.gather(1, after)
    replaced = torch.where(where == at, sample_words(s, lengths, random)[:, None], s)
    faulty = torch.stack([swapped, removed, replaced])[sort, torch.arange(len(s), device=s.device)]
    shorter = lengths - (sort == SORTS.index("removed")).long()
    return torch.where(where < shorter[:, None], faulty, 0), shorter  # (5)


def sample_words(
    s: Int64[Tensor, "batch time"],
    lengths: Int64[Tensor, " batch"],
    random: torch.Generator | None = None,
) -> Int64[Tensor, " batch"]:
    """A word for each sentence, each from a random place of the batch."""
    row = _randint(torch.full_like(lengths, len(s)), random)
    return s[row].gather(1, _randint(lengths[row], random)[:, None])[:, 0]


def _randint(high: Tensor, random: torch.Generator | None) -> Tensor:
    """A random integer from 0 to each of `high`, exclusive."""
    where = high.device if random is None else random.device
    share = torch.rand(len(high), generator=random, device=where).to(high.device)
    return torch.minimum((share * high).long(), high - 1)


def cut_sentences(text: str) -> list[str]:
    """The sentences of a text: its lines, or up to full stops where empty lines divide it."""
    if "\n\n" not in text:
        found = text.split("\n")
    else:
        paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        found = [one for part in paragraphs for one in _ENDS.split(part)]
    return [one for one in found if SHORTEST <= len(one.split()) <= LONGEST]


@dataclass(frozen=True, kw_only=True)
class CorruptedSentences(Training[SentenceDiscriminator]):
    """Discriminate real sentences from those with words swapped, removed or replaced."""

    meanings: ClassVar[Mapping[str, str]] = {
        "auc": "the chance that a real sentence has a higher score than a corrupted one",
        "auc_*": "the same for sentences with faults of one sort",
        "binary_cross_entropy": "cross-entropy in nats of real and of corrupted sentences, summed",
        "next_word": "cross-entropy in nats of the next word of real sentences",
        "cloze_accuracy": "how often the right word of ten fills a gap",
        "cloze_baseline": "how often the commonest word of the ten would be right: what to beat",
    }

    data: str = "topics"
    """A known text, or a file in UTF-8: a sentence a line, or paragraphs with an empty line."""
    vocabulary: int = 3000
    """Largest number of words, the commonest; 0 keeps every word of the training text."""
    lower: bool = later(False)
    """Whether the text is lower-cased first, also that of a prediction."""
    faults: int = 1
    """Faults of a corrupted sentence, all of one sort: the fewer, the harder they are to find."""
    hidden_size: int = 128
    """Units of the LSTM and dimensions of a word's embedding."""
    dropout: float = 0.3
    """Dropout of the embeddings and of the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size")
        self.require(
            1 <= self.faults < SHORTEST,
            "faults",
            f"from 1 to {SHORTEST - 1}, because a sentence may have {SHORTEST} words",
        )
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        found: LongText = samples(self.data, kind="text")
        texts, split = divided(found, "words")
        parts = {part: cut_sentences(text) for part, text in texts.items()}
        for part, some in parts.items():
            if len(some) < 2:
                raise UserError(
                    f"data ({self.data}) must hold at least 2 sentences of {SHORTEST} to {LONGEST} "
                    f"words in each part, but {part} holds {len(some)}; give more text"
                )
        tokens = Tokens.learned(parts["train"], "words", most=self.vocabulary, lower=self.lower)
        if len(tokens) < 3:
            raise UserError(
                f"data ({self.data}) must hold at least 2 different words, because one alone "
                "leaves nothing to predict; give more text or a larger vocabulary"
            )
        splits = {
            part: flattened([tokens.encode(one) for one in some]) for part, some in parts.items()
        }
        count = torch.bincount(splits["train"][0], minlength=len(tokens)).double() + 1
        spec: Spec = {
            "name": found.name,
            "kind": "text",
            "task": "classification",
            "shape": [len(tokens)],
            "classes": ["corrupted", "real"],
            "tokens": tokens.spec,
            "split": split,
            "rarity": (count.sum() / count).log().tolist(),
        }
        sampler = Buckets(("ragged",))
        return Data(
            splits, spec, self.batch_size, self.seed, found.digest, sampler, eval_batch_size=AT_ONCE
        )

    def model(self, data: Data) -> SentenceDiscriminator:
        return SentenceDiscriminator(
            torch.tensor(data.spec["rarity"]), self.hidden_size, self.dropout
        )

    def objective(self, model: SentenceDiscriminator, batch: Batch) -> Terms:
        s, lengths = batch
        wrong, shorter, _ = corrupt(s, lengths, self.faults)
        (real, nats), (fake, _) = model(s, lengths), model(wrong, shorter)
        bce = softplus(-real).mean() + softplus(fake).mean()
        return {"binary_cross_entropy": bce, "next_word": nats.mean()}  # (6)

    def metrics(self, model: SentenceDiscriminator, batch: Batch) -> dict[str, Tensor]:
        """Logits of sentences and of their corrupted copies; whether the right word fills a gap."""
        s, lengths = batch
        random = generator(2008, int(lengths.sum()))
        wrong, shorter, sort = corrupt(s, lengths, self.faults, random)
        at = _randint(lengths, random)[:, None]
        words = [sample_words(s, lengths, random) for _ in range(CHOICES - 1)]
        where = torch.arange(s.shape[1], device=s.device)
        real, nats = model(s, lengths)
        others = [model(torch.where(where == at, w[:, None], s), lengths)[0] for w in words]
        return {
            "real": real,
            "corrupted": model(wrong, shorter)[0],
            "nats": nats,
            "sort": sort.double(),
            "cloze_accuracy": (real > torch.stack(others).amax(0)).double(),
            "cloze_baseline": (s.gather(1, at)[:, 0] < torch.stack(words).amin(0)).double(),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """AUC of all and of each sort of fault, and the accuracy of filled gaps."""
        real, fake = outputs["real"], outputs["corrupted"]
        return {
            "auc": _auc(real, fake),
            **{
                f"auc_{name}": _auc(real, fake[outputs["sort"] == number])
                for number, name in enumerate(SORTS)
            },
            "binary_cross_entropy": (softplus(-real).mean() + softplus(fake).mean()).item(),
            "next_word": outputs["nats"].mean().item(),
            "cloze_accuracy": outputs["cloze_accuracy"].mean().item(),
            "cloze_baseline": outputs["cloze_baseline"].mean().item(),
        }

    def predict(
        self,
        model: SentenceDiscriminator,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        candidates: int = 5,
    ) -> Sequence[dict[str, Any]]:
        """The probability that each line is real; of one with a gap, `___`, the best words."""
        tokens = Tokens.of(spec)
        if candidates < 1:
            raise UserError(f"candidates ({candidates}) must be at least 1")
        answers: list[dict[str, Any]] = []
        for line in inputs:
            if not bool((line == BLANK).any()):
                unknown = int((line == tokens.index[UNKNOWN]).sum())
                z = model(line[None], line.new_tensor([len(line)]))[0]
                p = torch.stack([-z, z], 1).sigmoid()  # corrupted, real
                (answer,) = name_classes(p, spec["classes"])
                answers.append({**answer, "tokens": len(line), "unknown": unknown})
                continue
            place = find_gap(line)
            rest = torch.cat([line[:place], line[place + 1 :]])
            words = torch.arange(len(tokens), device=line.device)
            words = words[words != tokens.index[UNKNOWN]]
            tried = insert_words(rest, torch.full_like(words, place), words)
            parts = [model(some, some.new_full((len(some),), len(line)))[0]
                     for some in tried.split(AT_ONCE)]  # fmt: skip
            best = torch.cat(parts).sigmoid().topk(min(candidates, len(words)))
            found = [tokens.vocabulary[n] for n in words[best.indices].tolist()]
            texts = [tokens.vocabulary[n] for n in rest.tolist()]
            answers.append(
                {
                    "filled": " ".join([*texts[:place], found[0], *texts[place:]]),
                    "candidates": [
                        list(one) for one in zip(found, best.values.tolist(), strict=True)
                    ],
                }
            )
        return answers

    def picture_along(self, model: SentenceDiscriminator, data: Data, history: History) -> Figure:
        """How much more probable each word is in its sentence than alone; right, a corrupted copy.

        Bars are log-probabilities above those by frequency; below zero the context speaks against.
        """
        vocabulary, lines = Tokens.of(data.spec).vocabulary, []
        s, lengths = next(iter(data.valid))
        outputs = self.metrics(model, (s, lengths))
        random = generator(2008, int(lengths.sum()))
        wrong, shorter, sort = corrupt(s, lengths, self.faults, random)
        clear = (lengths <= 12) & ((s > 0).sum(1) == lengths)  # short, and without unknown words
        margin = outputs["real"] - outputs["corrupted"] + 100.0 * clear
        for number, name in enumerate(SORTS):
            row = int(margin.masked_fill(sort != number, -torch.inf).argmax())
            for some, length, title in ((s, lengths, "real"), (wrong, shorter, name)):
                line = some[row, : length[row]]
                gain = model.word_scores(line[None])[1][0].cpu()
                lines.append(([vocabulary[n] for n in line.tolist()], gain, title))
        return word_values(lines, "nats above frequency")

    def picture_curves(
        self, model: SentenceDiscriminator, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """Corrupted sentences found against real ones taken for corrupted, by sort of fault (ROC).

        By the area under the curve, words {best} are found best here and words {worst} worst.
        """
        every = [self.metrics(model, batch) for batch in data.valid]
        outputs = {n: torch.cat([one[n] for one in every]).double().cpu() for n in every[0]}
        real, curves, areas = outputs["real"], {}, {}
        for number, name in enumerate(SORTS):
            fake = outputs["corrupted"][outputs["sort"] == number]
            thresholds = torch.cat([real, fake]).sort().values
            alarms, found = ((part[:, None] < thresholds).double().mean(0) for part in (real, fake))
            areas[name] = _auc(real, fake)
            curves[f"{name}, AUC {areas[name]:.2f}"] = (alarms, found)
        diagonal = torch.tensor([0.0, 1.0])
        panel = Panel(
            curves,
            "real sentences taken for corrupted",
            "corrupted sentences found",
            guides={"by chance": (diagonal, diagonal)},
            legend="lower right",
        )
        worst, *_, best = sorted(areas, key=areas.__getitem__)
        return panels(panel, width=6.5, height=3.8), {"best": best, "worst": worst}

    def tiny(self) -> Self:
        small = replace(super().tiny(), vocabulary=300, hidden_size=16, batch_size=32)
        return replace(small, lr=2e-2, faults=3, dropout=0.0)


def _auc(real: Tensor, fake: Tensor) -> float:
    """How often a real sentence has the higher logit."""
    both = torch.cat([real, fake]).double()
    return auc(both, torch.arange(len(both), device=both.device) < len(real))  # (7)


RECIPES = {
    "corrupted": CorruptedSentences(
        faults=3, steps=500, batch_size=64, eval_every=100, lr=4e-3, schedule="cosine", clip=1.0,
        goal="auc >= 0.8", covers=("R26",),
    ),
    "corrupted-ptb": CorruptedSentences(
        data="ptb", vocabulary=10000, faults=2, hidden_size=512, dropout=0.5, steps=6000,
        batch_size=64, lr=2e-3, schedule="cosine", clip=1.0, goal="auc >= 0.8", covers=("R26",),
    ),
}  # fmt: skip
