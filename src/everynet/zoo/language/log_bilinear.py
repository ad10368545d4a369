"""A log-bilinear language model, trained by the full softmax or by a few candidates a step.

    F(x, y)     = w_y . u_x + b_y                        (1)  score of word y after word x
    L           = -log e^{F(x, y)} / sum_k e^{F(x, k)}   (2)  over all V words: O(V) a token
    perplexity  = exp(-mean log softmax(F)[y])           (3)  over all words, however learned

u_x is the embedding of the context word x, w_y the output vector of word y, and a dot the inner
product. Only the rows of w and u that a loss reads are updated, so that an update with candidates
costs the same whatever V is: their losses are in `nn.sampled_softmax`, the updates in
`nn.row_sparse`. The full softmax reads every row of w.

Mnih, Hinton (2007), "Three new graphical models for statistical language modelling",
doi:10.1145/1273496.1273577, section 4 (log-bilinear; here with one word of context).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.optim import Optimizer

from everynet.data.dataset import Batch, Data, Terms
from everynet.data.draws import Share, permutation
from everynet.data.samplers import Rows
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.row_sparse import RowAdagrad, rows
from everynet.nn.sampled_softmax import (
    Candidates,
    Drawn,
    Part,
    expected_counts,
    importance_softmax,
    noise_contrastive,
    partitions,
    sampled_softmax,
    unigram,
)
from everynet.recipes.training import Training
from everynet.zoo.language.class_bigrams import ClassBigrams

EVAL_BATCH_SIZE = 250
"""Tokens whose scores of all words are computed at once in evaluation."""


class LogBilinear(nn.Module):
    """Maps words to scores of all words that may follow; biases start at log frequencies."""

    def __init__(self, counts: Int64[Tensor, " vocab"], size: int) -> None:
        super().__init__()
        self.inputs = nn.Parameter(0.3 * torch.randn(len(counts), size))
        self.weight = nn.Parameter(0.1 * torch.randn(len(counts), size))
        self.bias = nn.Parameter((counts + 1.0).log() - (counts + 1.0).sum().log())

    def vectors(self, x: Int64[Tensor, " tokens"]) -> Float[Tensor, "tokens hidden"]:
        """The embeddings of context words."""
        return rows(self.inputs, x)

    def forward(self, x: Int64[Tensor, " tokens"]) -> Float[Tensor, "tokens vocab"]:
        return linear(self.vectors(x), self.weight, self.bias)  # (1)


class SampledLogBilinear(LogBilinear):
    """The same with a sampler of candidates, which are drawn by the frequencies of words."""

    def __init__(self, counts: Int64[Tensor, " vocab"], size: int, samples: int) -> None:
        super().__init__(counts, size)
        self.candidates = Candidates(expected_counts(unigram(counts), samples))


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True)
class PartitionedRows(Rows):
    """Batches of (x, y, words), each from one part of the corpus and with its words."""

    parts: tuple[Part, ...]

    def steps_per_epoch(self, split: Batch, batch_size: int) -> int:
        return sum((part.stop - part.start) // batch_size for part in self.parts)

    def batch(self, split: Batch, batch_size: int, seed: int, step: int, share: Share) -> Batch:
        """Batches of all parts in one random order, so that no part is forgotten."""
        device = str(split[0].device)
        epoch, position = divmod(step, self.steps_per_epoch(split, batch_size))
        part_of = [n for n, p in enumerate(self.parts) for _ in range(p.start, p.stop, batch_size)]
        order = permutation(len(part_of), seed, epoch).tolist()
        part = part_of[order[position]]
        nth = sum(part_of[other] == part for other in order[:position])
        here = self.parts[part]
        rows_ = permutation(here.stop - here.start, seed + part, epoch, device) + here.start
        mine = share.of(batch_size)
        chosen = rows_[nth * batch_size :][mine.start : mine.stop]
        return (*(t.index_select(0, chosen) for t in split), here.words.to(device))


@dataclass(frozen=True, kw_only=True)
class FullSoftmax(Training[Any]):  # Any: subclasses have candidates besides
    """Predict the next word by the softmax over all words."""

    vocabulary: int = 20_000
    """Words of the vocabulary."""
    classes: int = 16
    """Classes of words of the generated language."""
    peak: float = 2.0
    """Standard deviation of the logits of the classes that follow a class."""
    tokens: int = 150_000
    """Words of the training text."""
    held_out: int = 5000
    """Words of the validation text and of the test text."""
    hidden_size: int = 32
    """Dimensions of a word's vector."""

    optimizer: str = "adagrad"
    """adagrad, which leaves rows without gradient as they are."""
    schedule: str = "linear"
    """constant, linear, cosine, step, one-cycle or plateau."""

    known_optimizers: ClassVar[Collection[str]] = ("adagrad",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip", "clip_value", "weight_decay"):
            rule = "0, because it would change rows that were not read"
            self.require(getattr(self, name) == 0, name, rule)

    def dataset(self) -> Data:
        language = ClassBigrams(self.vocabulary, self.classes, self.peak)
        data = language.data(self.tokens, self.batch_size, self.seed, self.held_out)
        return replace(data, eval_batch_size=EVAL_BATCH_SIZE)

    def model(self, data: Data) -> LogBilinear:
        return LogBilinear(torch.tensor(data.spec["counts"]), self.hidden_size)

    def optimizers(self, model: LogBilinear) -> dict[str, Optimizer]:
        return {"main": RowAdagrad(model.parameters(), lr=self.lr)}

    def objective(self, model: Any, batch: Batch) -> Terms:  # noqa: ANN401 -- as above
        x, y = batch
        return {"loss": chunked_cross_entropy(model.vectors(x), model.weight, y, model.bias)}  # (2)

    def metrics(self, model: LogBilinear, batch: Batch) -> dict[str, Tensor]:
        x, y = batch[:2]
        return {"cross_entropy": cross_entropy(model(x), y, reduction="none")}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = outputs["cross_entropy"].double().mean().item()
        return {"cross_entropy": nats, "perplexity": math.exp(nats)}  # (3)


@dataclass(frozen=True, kw_only=True)
class SampledSoftmax(FullSoftmax):
    """Predict the next word among candidates, corrected by their expected counts."""

    samples: int = 512
    """Candidates of an update, on average."""

    def model(self, data: Data) -> SampledLogBilinear:
        return SampledLogBilinear(torch.tensor(data.spec["counts"]), self.hidden_size, self.samples)

    def objective(self, model: SampledLogBilinear, batch: Batch) -> Terms:
        x, y = batch
        drawn = model.candidates()
        return {"loss": sampled_softmax(model.vectors(x), model.weight, model.bias, y, drawn)}


@dataclass(frozen=True, kw_only=True)
class UncorrectedSoftmax(SampledSoftmax):
    """Sampled softmax without the correction."""

    def objective(self, model: SampledLogBilinear, batch: Batch) -> Terms:
        x, y = batch
        words, of_words, of_all = model.candidates()
        none = torch.where(of_words.isinf(), of_words, 0.0)  # padding stays out
        drawn = Drawn(words, none, torch.zeros_like(of_all))
        return {"loss": sampled_softmax(model.vectors(x), model.weight, model.bias, y, drawn)}


@dataclass(frozen=True, kw_only=True)
class NoiseContrastive(SampledSoftmax):
    """Predict the next word by classifying it against noise."""

    def objective(self, model: SampledLogBilinear, batch: Batch) -> Terms:
        x, y = batch
        drawn = model.candidates()
        return {"loss": noise_contrastive(model.vectors(x), model.weight, model.bias, y, drawn)}


@dataclass(frozen=True, kw_only=True)
class PartitionedSoftmax(FullSoftmax):
    """Predict the next word by the softmax over the words of one part of the corpus."""

    tau: int = 6000
    """Different words of a part at most."""

    def dataset(self) -> Data:
        data = super().dataset()
        parts = partitions(data.splits["train"][1], self.tau, self.batch_size)
        return replace(data, sampler=PartitionedRows(tuple(parts)))

    def objective(self, model: LogBilinear, batch: Batch) -> Terms:
        x, y, words = batch
        loss = importance_softmax(model.vectors(x), model.weight, model.bias, y, words)
        return {"loss": loss}
