"""A large vocabulary: the scores of all words at every step dominate the cost of training.

    F_sampled   -> log P(y | x) + K(x)                 (1)  sampled softmax, with -log pi_y
    F_biased    -> log P(y | x) - log pi_y + K(x)      (2)  without the correction
    F_contrast  -> log P(y | x)                        (3)  noise-contrastive estimation

F are learned scores, K(x) a constant of the context x, and pi_y the expected count of word y among
the candidates. Four networks with the same initial weights learn the same text: by the full
softmax, from random candidates (sampled softmax, noise-contrastive estimation) and from the words
of one part of the corpus at a time (importance sampling, Q uniform on them). They are evaluated by
the perplexity over all words. Three more learn a small language of which every probability is
known, which shows (1) to (3).

Jean et al. (2015), "On Using Very Large Target Vocabulary for Neural Machine Translation",
arXiv:1412.2007, section 3; Mnih, Teh (2012), "A fast and simple algorithm for training neural
probabilistic language models", arXiv:1206.6426; TensorFlow's note "Candidate Sampling Algorithms
Reference".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.optim import Optimizer

from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.nn.sampled_softmax import (
    Candidates,
    expected_counts,
    importance_softmax,
    log_uniform,
    noise_contrastive,
    sampled_softmax,
    uniform,
    unigram,
)
from everynet.plot import Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.settings import settings
from everynet.recipes.training import Training
from everynet.system.seeds import generator, seeded_by
from everynet.zoo.language.class_bigrams import ClassBigrams, make_text
from everynet.zoo.language.log_bilinear import (
    FullSoftmax,
    NoiseContrastive,
    PartitionedSoftmax,
    SampledLogBilinear,
    SampledSoftmax,
    UncorrectedSoftmax,
)
from everynet.zoo.language.pictures.candidates import score_planes

CLASSES = 8, 1.0
"""Classes of the small language, and the standard deviation of their logits."""
TOKENS = 512
"""Words of a batch of the small language, and of an update that is timed."""

WAYS = ("full", "sampled", "contrastive", "partitioned")
KNOWN: dict[str, type[FullSoftmax]] = {
    "corrected": SampledSoftmax,
    "uncorrected": UncorrectedSoftmax,
    "contrast": NoiseContrastive,
}
PROPOSALS = ("uniform", "log-uniform", "unigram")


def with_loss(recipe: FullSoftmax, cls: type[FullSoftmax], **more: Any) -> FullSoftmax:  # noqa: ANN401 -- settings
    """The same training with the loss of another class, and with settings that only it has."""
    return cls(**settings(recipe), **more)


def centre(scores: Float[Tensor, "contexts words"]) -> Float[Tensor, "contexts words"]:
    """Scores less their mean over the words of a context, so that K(x) cancels."""
    return scores - scores.mean(1, keepdim=True)


def spearman(a: Float[Tensor, "contexts words"], b: Float[Tensor, "contexts words"]) -> float:
    """Spearman's rank correlation of the words, the mean over contexts."""
    ranks = [centre(t.argsort(1).argsort(1).double()) for t in (a, b)]
    sizes = [r.norm(dim=1) for r in ranks]
    return float(((ranks[0] * ranks[1]).sum(1) / (sizes[0] * sizes[1])).mean())


def slope(y: Float[Tensor, "contexts words"], x: Float[Tensor, "contexts words"]) -> float:
    """The slope of y on x among the words of a context, by least squares."""
    return float((centre(y) * centre(x)).sum() / (centre(x) ** 2).sum())


def gradient_error(
    q: Float[Tensor, " vocab"], samples: int, layer: tuple[Tensor, ...], random: torch.Generator
) -> float:
    """Relative rms error of the gradient by x over eight draws of candidates."""
    x, weight, bias, y = layer
    x = x.clone().requires_grad_()
    (exact,) = torch.autograd.grad(cross_entropy(linear(x, weight, bias), y), x)
    candidates, errors = Candidates(expected_counts(q, samples)).double(), []
    for _ in range(8):
        loss = sampled_softmax(x, weight, bias, y, candidates(random))
        (found,) = torch.autograd.grad(loss, x)
        errors.append(((found - exact).norm() / exact.norm()) ** 2)
    return float(torch.stack(errors).mean().sqrt())


def step_seconds(step: Callable[[], Tensor], optimizer: Optimizer) -> float:
    """Processor time (s) of one update, the better of two after a warm-up."""
    best = math.inf
    for repeat in range(3):
        start = time.process_time()
        optimizer.zero_grad()
        step().backward()
        optimizer.step()
        best = min(best, time.process_time() - start) if repeat else math.inf
    return best


def time_updates(
    vocabulary: int, size: int, samples: int, random: torch.Generator
) -> dict[str, float]:
    """Processor time (s) of an update of the last layer by each loss, for targets by Zipf's law."""
    q = log_uniform(vocabulary)
    y = torch.multinomial(q, TOKENS, replacement=True, generator=random)
    x = torch.randn(TOKENS, size, generator=random).requires_grad_()
    weight = nn.Parameter(0.05 * torch.randn(vocabulary, size, generator=random))
    bias, some = nn.Parameter(torch.zeros(vocabulary)), min(samples, vocabulary)
    candidates = Candidates(expected_counts(q, some))
    words = torch.cat([candidates(random).words, y]).unique()
    cuts = sorted({max(1, vocabulary // part) for part in (100, 20, 3)})
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(size, vocabulary, cuts, div_value=4.0)
    plain = torch.optim.SGD([weight, bias], lr=0.1)
    ways: dict[str, tuple[Callable[[], Tensor], Optimizer]] = {
        "full": (lambda: cross_entropy(linear(x, weight, bias), y), plain),
        "sampled": (lambda: sampled_softmax(x, weight, bias, y, candidates(random)), plain),
        "contrastive": (lambda: noise_contrastive(x, weight, bias, y, candidates(random)), plain),
        "partitioned": (lambda: importance_softmax(x, weight, bias, y, words), plain),
        "full, in chunks": (lambda: chunked_cross_entropy(x, weight, y, bias), plain),
        "adaptive": (lambda: adaptive(x, y).loss, torch.optim.SGD(adaptive.parameters(), lr=0.1)),
    }
    return {name: step_seconds(*way) for name, way in ways.items()}


@dataclass(frozen=True, kw_only=True)
class LargeVocabulary(Experiment):
    """Train on the same text by the full softmax and by a few candidates a step."""

    meanings: ClassVar[Mapping[str, str]] = {
        "ratio_*": "perplexity by a loss of candidates, as a multiple of the full softmax's",
        "perplexity_full": "perplexity of the network trained by the full softmax",
        "perplexity_floor": "perplexity of the true probabilities of the language",
        "rank_corrected": "rank correlation of scores by sampled softmax with the truth",
        "rank_uncorrected": "rank correlation with the truth without the correction",
        "rank_contrast": "rank correlation with the truth of noise-contrastive estimation",
        "slope_corrected": "slope of the error of the scores on -log pi with correction: near 0",
        "slope_uncorrected": "slope of the error of the scores on -log pi without: near 1",
        "log_z_contrast": "mean absolute log partition function of noise-contrastive scores",
        "error_falls": "1 where the error of the gradient falls with more candidates, else 0",
        "error_of_all": "the error of the gradient where all words are candidates: rounding",
    }

    vocabulary: int = 20_000
    """Words of the large language."""
    tokens: int = 150_000
    """Words of its training text, which is read once."""
    held_out: int = 5000
    """Words of the validation text."""
    samples: int = 512
    """Candidates of an update, on average."""
    tau: int = 6000
    """Most different words in a part of the corpus."""
    hidden_size: int = 32
    """Dimensions of a word's vector."""
    batch_size: int = 256
    """Words an update learns to predict."""
    lr: float = 0.3
    """Learning rate of Adagrad."""
    known: int = 320
    """Words of the small language, whose probabilities are known; a tenth are candidates."""
    known_tokens: int = 400_000
    """Words of its training text."""
    known_steps: int = 2500
    """Updates on it, of 512 words each."""
    sizes: tuple[int, ...] = (1000, 3000, 10_000, 30_000, 100_000)
    """Vocabularies for which an update is timed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "batch_size", "known_steps", "held_out")
        self.at_least(160, "known")
        self.at_least(512, "known_tokens")
        self.above(0, "lr")
        fits = 1 <= self.samples <= self.vocabulary
        self.require(fits, "samples", "from 1 to vocabulary")
        self.require(self.tau >= self.batch_size, "tau", "at least batch_size")
        self.require(self.tokens >= 4 * self.batch_size, "tokens", "at least 4 batches")
        good = len(self.sizes) >= 2 and min(self.sizes) >= 100
        self.require(good, "sizes", "two or more, each at least 100")

    def cells(self) -> dict[str, Training[Any, Any]]:
        # A part of the corpus ends with a whole batch, so that all losses see the same text.
        steps = self.tokens // self.batch_size
        large = FullSoftmax(
            vocabulary=self.vocabulary, tokens=self.tokens, held_out=self.held_out, lr=self.lr,
            hidden_size=self.hidden_size, batch_size=self.batch_size, steps=steps,
            eval_every=max(1, steps // 4), seed=self.seed,
        )  # fmt: skip
        small = replace(
            large, vocabulary=self.known, tokens=self.known_tokens, batch_size=TOKENS,
            steps=self.known_steps, eval_every=self.known_steps,
            classes=CLASSES[0], peak=CLASSES[1], hidden_size=min(self.hidden_size, 2 * CLASSES[0]),
        )  # fmt: skip
        few = {"samples": self.known // 10}
        return {
            "full": large,
            "sampled": with_loss(large, SampledSoftmax, samples=self.samples),
            "contrastive": with_loss(large, NoiseContrastive, samples=self.samples),
            "partitioned": with_loss(large, PartitionedSoftmax, tau=self.tau),
            **{name: with_loss(small, cls, **few) for name, cls in KNOWN.items()},
        }

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        """How far gradients from candidates are from those of all words of the small language."""
        words = self.known
        x = torch.randn(64, 8, generator=generator).double()
        weight = 0.5 * torch.randn(words, 8, generator=generator).double()
        q = {"uniform": uniform(words), "log-uniform": log_uniform(words)}
        bias = q["log-uniform"].log()
        likely = linear(x, weight, bias).softmax(1)
        y = torch.multinomial(likely, 1, generator=generator)[:, 0]
        q["unigram"] = unigram((1e6 * likely.mean(0)).long())
        numbers = torch.tensor([words // 64, words // 16, words // 4, words // 2, words])
        layer = (x, weight, bias, y)
        errors = [
            [gradient_error(q[name], int(n), layer, generator) for n in numbers]
            for name in PROPOSALS
        ]
        return {"candidates": numbers, "errors": torch.tensor(errors, dtype=torch.float64)}

    @torch.no_grad()
    def compute_scores(self, table: Table) -> dict[str, Tensor]:
        """True log-probabilities, log pi and scores of all words after one word of each class."""
        language = ClassBigrams(self.known, *CLASSES)
        contexts, words = torch.arange(language.classes), torch.arange(self.known)
        found = {"truth": language.log_probability(contexts, words)}
        for name in KNOWN:
            network = table.cells[name].network()
            assert isinstance(network, SampledLogBilinear)
            found[name] = network(contexts.to(network.weight.device)).double().cpu()
            log_expected = network.candidates.log_expected.double().cpu()
        return {**found, "log_expected": log_expected.expand_as(found["truth"])}

    def metrics(self, table: Table) -> dict[str, float]:
        scores = self.compute_scores(table)
        truth, log_pi = scores["truth"], scores["log_expected"]
        full = table.cells["full"].last["perplexity"]
        ratios = {name: table.cells[name].last["perplexity"] / full for name in WAYS}
        errors = table.result["errors"]
        return {
            **{f"ratio_{name}": value for name, value in ratios.items() if name != "full"},
            "perplexity_full": full,
            "perplexity_floor": self.perplexity_floor(),
            "rank_corrected": spearman(scores["corrected"], truth),
            "rank_uncorrected": spearman(scores["uncorrected"], truth),
            "rank_contrast": spearman(scores["contrast"], truth),
            "slope_corrected": slope(scores["corrected"] - truth, -log_pi),  # (1)
            "slope_uncorrected": slope(scores["uncorrected"] - truth, -log_pi),  # (2)
            "log_z_contrast": float(scores["contrast"].logsumexp(1).abs().mean()),  # (3)
            "error_falls": float((errors.diff(dim=1) < 0).all()),
            "error_of_all": float(errors[:, -1].max()),
        }

    def perplexity_floor(self) -> float:
        """The perplexity of the true probabilities on the validation text."""
        language = ClassBigrams(self.vocabulary)
        return language.perplexity(make_text(language, self.held_out + 1, 1))

    def picture_cost(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Processor time of an update by the vocabulary (left); perplexity in training (right).

        From the least to the most words the full softmax takes {full:.1f} times as long, sampling
        {sampled:.1f} times.
        """
        with seeded_by(self.seed):  # times do not follow from the seed: no part of the result
            times = [time_updates(n, 128, self.samples, generator(self.seed)) for n in self.sizes]
        sizes = torch.tensor(self.sizes).double()
        updates = Panel(
            {n: (sizes, 1e3 * torch.tensor([one[n] for one in times])) for n in times[0]},
            "vocabulary (words)",
            "processor time of an update (ms)",
            f"{TOKENS} tokens, {self.samples} candidates",
            log="xy",
        )
        cells = {name: table.cells[name] for name in WAYS}
        training = Panel(
            {n: (c.steps * self.batch_size / 1e3, c.valid["perplexity"]) for n, c in cells.items()},
            "words learned from (thousands)",
            "validation perplexity",
            f"{self.vocabulary:,} words",
            levels={"true probabilities": self.perplexity_floor()},
            log="y",
        )
        growth = {name: times[-1][name] / times[0][name] for name in ("full", "sampled")}
        return panels(updates, training, width=3.25, height=3.1), growth

    def picture_correction(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """Learned scores against true log-probabilities, common candidates yellow.

        The line is equality; the slope of the error on -log pi is {corrected:.2f} with the
        correction and {uncorrected:.2f} without.
        """
        scores = self.compute_scores(table)
        titles = {
            "corrected": "sampled softmax",
            "uncorrected": r"without $-\log\,\pi_y$",
            "contrast": "noise-contrastive",
        }
        learned = {titles[name]: centre(scores[name]).flatten() for name in KNOWN}
        mean = scores["truth"].mean(1, keepdim=True)
        learned[titles["contrast"]] = (scores["contrast"] - mean).flatten()  # with its constant
        ylabels = dict.fromkeys(learned, r"learned $F$, centred (nats)")
        ylabels[titles["contrast"]] = r"learned $F$ as it is (nats)"
        truth, log_pi = scores["truth"], scores["log_expected"]
        drawn = score_planes(centre(truth).flatten(), learned, log_pi.flatten(), ylabels=ylabels)
        slopes = {n: slope(scores[n] - truth, -log_pi) for n in ("corrected", "uncorrected")}
        return drawn, slopes

    def picture_gradient_error(self, table: Table) -> tuple[Figure, dict[str, float]]:
        """The relative error of the gradient by the number of candidates, for three proposals.

        With all words as candidates, which has no place on the axis, it is {all:.0e}.
        """
        numbers, errors = table.result["candidates"].double(), table.result["errors"]
        curves = {n: (numbers[:-1], e[:-1]) for n, e in zip(PROPOSALS, errors, strict=True)}
        panel = Panel(
            curves, "candidates, on average", "error of the gradient by x, as a share of it",
            f"{self.known} words", log="xy",
        )  # fmt: skip
        return panels(panel, width=5.2), {"all": float(errors[:, -1].max())}

    def tiny(self) -> Self:
        return replace(
            self, vocabulary=200, tokens=200, held_out=20, samples=20, tau=100, hidden_size=4,
            batch_size=50, known=160, known_tokens=512, known_steps=2, sizes=(100, 200),
        )  # fmt: skip


RECIPES = {
    "large-vocabulary": LargeVocabulary(
        goal="ratio_sampled <= 1.1 and ratio_contrastive <= 1.1 and ratio_partitioned <= 1.1 and "
        "rank_corrected >= 0.95 and rank_contrast >= 0.95 and slope_uncorrected >= 0.9 and "
        "error_falls >= 1",
        covers=("R34", "R35"),
    ),
}
