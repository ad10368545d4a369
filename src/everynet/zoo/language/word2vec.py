"""word2vec: words of similar meaning have similar contexts, so vectors that predict them are near.

    p(c | w) = e^{u_c . v_w} / sum_k e^{u_k . v_w}                 (1)  full softmax, the reference
    J = -log s(u_c . v_w) - sum_k log s(-u_k . v_w)                (2)  negative sampling, K words k
    h = (1/m) sum_{j in window} v_j,  in the place of v_w          (3)  CBOW: the mean of a window
    P(k) = n_k^{3/4} / sum_i n_i^{3/4}                             (4)  noise, from counts n
    keep = min(1, sqrt(t / f) + t / f)                             (5)  subsampling frequent words
    lr = lr_0 (1 - r) + lr_1 r,  lr_1 = lr_0 / 250                 (6)  learning rate after a part r

Here v are the vectors of words and u those of contexts, a dot is the inner product, s the logistic
function and f = n / sum n the relative frequency of a word. The words w within a distance of c,
drawn anew from 1 to `window` at each place, predict c: the nearer a word is, the more often it
counts. Unlike the paper, noise is drawn once for a centre word and shared by its
window, and (5) has a second term, as in word2vec.c and gensim. Unlike both programs, the gradient
of (3) is divided by m, as (3) says (Irsoy, Benton and Stratos, 2021, arXiv:2012.15332), and CBOW
therefore starts at three times the rate.

Mikolov, Sutskever, Chen, Corrado and Dean (2013), "Distributed Representations of Words and Phrases
and their Compositionality", arXiv:1310.4546; (3) is in arXiv:1301.3781.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from everynet.kernels.word2vec import Noise, Rule, draw_windows, read_text, to_uint32, update_batch
from everynet.nn.estimator import Learned, check_learned
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.language.corpus import Corpus, Sentences
from everynet.zoo.language.word_embedding import LearnedWordVectors, WordEmbedding, WordSimilarity

BLOCK = 50_000
"""Words that a thread reads at once."""
BATCH, OFTEN = 1024, 8
"""Most centre words of a batch, on other devices than the CPU, and how often the commonest may be
one of them: more steps of one row, all taken at one place, overshoot (50 of text8 diverge)."""


class Word2Vec(LearnedWordVectors):
    """Skip-gram: learns `vectors_` (v) and `contexts_` (u) of `words_`, the commonest first."""

    counts_: Int[Tensor, " vocab"]
    contexts_: Float[Tensor, "vocab dimensions"]
    loss_curve_: Float[Tensor, " blocks"]
    """The mean of (2) over each stretch of text."""

    bag: ClassVar[bool] = False
    rate: ClassVar[float] = 0.025  # lr_0

    def __init__(  # noqa: PLR0917 -- as gensim's users are used to
        self,
        dimensions: int = 100,
        window: int = 5,
        negatives: int = 5,
        min_count: int = 5,
        subsample: float = 1e-3,
        epochs: int = 5,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        self.dimensions = dimensions
        self.window = window
        self.negatives = negatives
        self.min_count = min_count
        self.subsample = subsample
        self.epochs = epochs
        self.threads = threads
        self.seed = seed

    def fit(self, given: Sentences | Corpus) -> Self:
        """Learn from sentences of words; of a corpus whose text is on another device, there."""
        for name in ("dimensions", "window", "negatives", "min_count", "epochs", "threads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} ({getattr(self, name)}) must be at least 1")
        if not self.subsample > 0:
            raise UserError(
                f"subsample ({self.subsample}) must be above 0, because the share of a word is "
                "compared with it; 1 keeps every word"
            )
        corpus = (
            given if isinstance(given, Corpus) else Corpus.from_sentences(given, self.min_count)
        )
        v, u = (table.to(corpus.text.device) for table in self._init_vectors(len(corpus.words)))
        learn = self._fit_blocks if corpus.text.device.type == "cpu" else self._fit_batches
        curve = learn(v, u, corpus.text, self._sampling_rule(corpus.counts))
        self.words_, self.counts_ = list(corpus.words), corpus.counts.cpu()
        self.vectors_, self.contexts_ = v.cpu(), u.cpu()
        self.loss_curve_ = torch.tensor(curve)
        return self

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "words_": Learned("list", "vocab"),
            "counts_": Learned("int64", "vocab", low=1),
            "vectors_": Learned("float32", "vocab dimensions"),
            "contexts_": Learned("float32", "vocab dimensions"),
            "loss_curve_": Learned("float32", "blocks", low=0),
        })  # fmt: skip

    def _init_vectors(
        self, vocab: int
    ) -> tuple[Float[Tensor, "vocab size"], Float[Tensor, "vocab size"]]:
        """Small random vectors of words; those of contexts are 0."""
        draw = torch.rand(vocab, self.dimensions, generator=generator(self.seed, 1))
        return (draw - 0.5) / self.dimensions, torch.zeros(vocab, self.dimensions)

    def _sampling_rule(self, counts: Int[Tensor, " vocab"]) -> Rule:
        n = counts.cpu().double().numpy()
        f, t = n / n.sum(), self.subsample
        keep = np.minimum(1, np.sqrt(t / f) + t / f)  # (5)
        noise = Noise.of(n**0.75)  # (4)
        return Rule(self.window, self.negatives, to_uint32(keep), noise, self.bag)

    def _rate(self, r: float) -> float:
        return self.rate * (1 - r) + self.rate / 250 * r  # (6)

    def _fit_blocks(
        self, v: Float[Tensor, "vocab size"], u: Float[Tensor, "vocab size"],
        text: Int[Tensor, " length"], rule: Rule,
    ) -> list[float]:  # fmt: skip
        """On the CPU. Random numbers are those of the block, whichever thread reads it."""
        blocks = [block.contiguous().numpy() for block in _blocks(text)]
        steps = len(blocks) * self.epochs
        losses, stop = [math.nan] * steps, Event()

        def work(first: int) -> None:
            for step in range(first, steps, self.threads):
                if stop.is_set():
                    return
                state = np.random.SeedSequence((self.seed, step)).generate_state(1, np.uint64)[0]
                done = read_text(
                    v.numpy(), u.numpy(), blocks[step % len(blocks)], rule,
                    rates=(self._rate(step / steps), self._rate((step + 1) / steps)),
                    state=int(state) | 1,
                )  # fmt: skip
                losses[step] = done.loss / max(done.watched, 1)

        with ThreadPoolExecutor(self.threads) as pool:
            try:
                for ended in [pool.submit(work, first) for first in range(self.threads)]:
                    ended.result()
            finally:
                stop.set()
        return losses

    def _fit_batches(
        self, v: Float[Tensor, "vocab size"], u: Float[Tensor, "vocab size"],
        text: Int[Tensor, " length"], rule: Rule,
    ) -> list[float]:  # fmt: skip
        """On other devices: the windows of many centre words move their rows at once."""
        device = text.device
        numbers = generator(self.seed, 2, device=device)
        keep, accept, alias = (
            torch.from_numpy(part.astype(np.int64)).to(device)
            for part in (rule.keep, rule.noise.accept, rule.noise.alias)
        )
        sentence = (text < 0).cumsum(0)
        words, sentence = text[text >= 0].long(), sentence[text >= 0]
        chance = keep.double() * words.bincount(minlength=len(keep))
        size = max(1, min(BATCH, int(OFTEN * chance.sum() / chance.max())))
        curve = []
        for epoch in range(self.epochs):
            draw = torch.randint(2**32, words.shape, generator=numbers, device=device)
            kept = draw <= keep[words]
            read, number = words[kept], sentence[kept]
            order = torch.randperm(len(read), generator=numbers, device=device)
            batches = order.split(size)
            total = torch.zeros((), device=device)
            for step, centres in enumerate(batches):
                rate = self._rate((epoch + step / len(batches)) / self.epochs)
                given = draw_windows(read, number, centres, rule, (accept, alias), numbers)
                loss, count = update_batch(v, u, given, rate, bag=self.bag)
                total += loss / count.clamp(min=1) / len(batches)
            curve.append(total.item())
        return curve


class CBOW(Word2Vec):
    """The mean of a window predicts its centre word: one prediction for each place, so faster."""

    bag: ClassVar[bool] = True
    rate: ClassVar[float] = 0.075


def full_softmax(
    v: Float[Tensor, "vocab size"],
    u: Float[Tensor, "vocab size"],
    w: Int[Tensor, " batch"],
    c: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """-log p(c | w) over the whole vocabulary, which is the cost that (2) avoids."""
    return cross_entropy(v[w] @ u.T, c, reduction="none")  # (1)


def negative_sampling(
    h: Float[Tensor, "batch size"],
    u: Float[Tensor, "vocab size"],
    c: Int[Tensor, " batch"],
    noise: Int[Tensor, "batch negatives"],
) -> Float[Tensor, " batch"]:
    """Classify c against words of noise; h is v_w, or the mean of a window."""
    truth, others = (h * u[c]).sum(1), torch.einsum("bd,bkd->bk", h, u[noise])
    return -logsigmoid(truth) - logsigmoid(-others).sum(1)  # (2)


def window_mean(
    v: Float[Tensor, "vocab size"],
    around: Int[Tensor, "batch window"],
    there: Bool[Tensor, "batch window"],
) -> Float[Tensor, "batch size"]:
    """The mean vector of a window in CBOW; `there` is the mask of places that hold a word."""
    return (v[around] * there[..., None]).sum(1) / there.sum(1, keepdim=True)  # (3)


def _blocks(text: Int[Tensor, " length"]) -> Iterator[Int[Tensor, " block"]]:
    """Stretches of whole sentences, of `BLOCK` words or little more."""
    ends = ((text < 0).nonzero()[:, 0] + 1).tolist()
    start = 0
    for end in ends:
        if end - start >= BLOCK or end == ends[-1]:
            yield text[start:end]
            start = end


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class SkipGramEmbedding(WordEmbedding):
    """Each word of a window predicts its centre word."""

    learner: ClassVar[type[LearnedWordVectors]] = Word2Vec


@dataclass(frozen=True, kw_only=True)
class CBOWEmbedding(WordEmbedding):
    """The mean of a window predicts its centre word."""

    learner: ClassVar[type[LearnedWordVectors]] = CBOW


@dataclass(frozen=True, kw_only=True)
class SkipGramSimilarity(WordSimilarity):
    """Learn from a whole text; evaluate on human judgements of similarity and on analogies."""

    learner: ClassVar[type[LearnedWordVectors]] = Word2Vec


RECIPES = {
    "word2vec": SkipGramEmbedding(goal="pairwise_accuracy >= 0.70", covers=("R28",)),
    "cbow": CBOWEmbedding(goal="pairwise_accuracy >= 0.70", covers=("R28",)),
    "word2vec-text8": SkipGramSimilarity(
        data="text8",
        judgements="word-eval",
        dimensions=100,
        window=5,
        min_count=5,
        epochs=5,
        goal="wordsim >= 0.50 and simlex >= 0.21 and analogies >= 0.078",
        covers=("R28",),
    ),
}
