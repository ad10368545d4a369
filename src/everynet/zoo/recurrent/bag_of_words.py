"""Bag of words: a text is the set of its words, or of its phrases, and their weights are summed.

    n_g = 1 where text holds phrase g, else 0                        (1)  the bag; order is lost
    z_c = b_c + sum_g W_cg n_g                                       (2)  score of class c
    p(c | text) = e^z_c / sum_k e^z_k                                (3)  its probability
    b_c = log(N_c / N)                                               (4)  naive Bayes: the prior,
    W_cg = log((N_cg + s) / sum_h (N_ch + s))                        (5)  and what a phrase adds
    J = -sum_i log p(y_i | text i) + (l2/2) sum_cg W_cg^2            (6)  logistic regression
    dJ/dW_cg = sum_i (p(c | text i) - [y_i = c]) n_ig + l2 W_cg      (7)  its gradient

N_c of the N texts are of class c, and N_cg of those hold phrase g; s smooths. Phrases are runs of
1 to `ngrams` words. With single words "dog chases cat" and "cat chases dog" are one bag, and no sum
can let a "not" negate what comes after it; runs of three words hold "not very good" as a
phrase of its own and have the order back, as far as they reach.

Naive Bayes takes words for independent given the class, which is false, and needs no optimiser: it
counts. Logistic regression gives no such account of the texts and weighs words against each other.
With few texts the first often is the better of the two (Ng and Jordan).

Wang, Manning (2012), "Baselines and bigrams: simple, good sentiment and topic classification", ACL,
aclanthology.org/P12-2018; Ng, Jordan (2001), "On discriminative vs. generative classifiers", NIPS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.samplers import flattened
from everynet.data.texts.tokens import Tokens
from everynet.metrics import classified, name_classes
from everynet.metrics.meanings import CLASSES, meanings
from everynet.nn.estimator import Learned, check_learned
from everynet.recipes.recipe import Fitting, later
from everynet.system.errors import UserError
from everynet.zoo.recurrent.classified import check_words, prediction_label
from everynet.zoo.recurrent.pictures.feelings import coloured
from everynet.zoo.recurrent.pictures.grams import weighed_words, words_by_count

Rows: TypeAlias = Any  # a csr_array, which scipy does not type
Stream: TypeAlias = Int[Tensor, " tokens"]
Ends: TypeAlias = Int[Tensor, " texts_and_one"]
Labels: TypeAlias = Int[Tensor, " texts"]
Weights: TypeAlias = tuple[Float[Tensor, "classes grams"], Float[Tensor, " classes"]]
Array: TypeAlias = NDArray[np.float64]
MOST_NGRAMS = 3
MOST_TOKENS = 2_000_000  # of a vocabulary whose runs of three fit a number of 63 bits
SHOWN = 14  # words of each class that are drawn


class Bag:
    """Maps texts to scores of classes, linear in what they hold.

    Learns `keys_` (phrases of training, as numbers), `counts_` (texts that hold each), `weights_`
    (classes x phrases) and `bias_`. Texts are a stream of tokens and where each of them ends: rows
    of unequal length, which scikit-learn's contract has no place for.
    """

    keys_: Tensor
    counts_: Tensor
    weights_: Tensor
    bias_: Tensor

    def __init__(self, ngrams: int = 1, strength: float = 1.0) -> None:
        self.ngrams = ngrams
        self.strength = strength

    def get_params(self) -> dict[str, float]:
        """The arguments of the constructor."""
        return {"ngrams": self.ngrams, "strength": self.strength}

    def learn(self, n: Rows, y: Labels, classes: int) -> Weights:
        """W and b from bags and classes."""
        raise NotImplementedError  # by the subclass

    def fit(self, stream: Stream, ends: Ends, y: Labels) -> Self:
        if not 1 <= self.ngrams <= MOST_NGRAMS:
            raise UserError(f"ngrams ({self.ngrams}) must be from 1 to {MOST_NGRAMS}")
        if len(stream) and int(stream.max()) >= MOST_TOKENS:
            raise UserError(
                f"the vocabulary ({int(stream.max()):,} words) must be below {MOST_TOKENS:,}, "
                "because a run of three is one number; set vocabulary="
            )
        stream, ends, y = stream.cpu(), ends.cpu(), y.cpu()
        self.keys_ = encode_runs(stream, ends, self.ngrams)[0].unique()
        n = self.bags(stream, ends)
        self.counts_ = torch.from_numpy(np.asarray(n.sum(0)))
        self.weights_, self.bias_ = self.learn(n, y, int(y.max()) + 1)
        return self

    def bags(self, stream: Stream, ends: Ends) -> Rows:
        """Which phrases of training each text holds; new phrases are left out."""
        keys, rows = encode_runs(stream.cpu(), ends.cpu(), self.ngrams)
        place = torch.searchsorted(self.keys_, keys).clamp(max=len(self.keys_) - 1)
        known = self.keys_[place] == keys
        held = torch.stack([rows[known], place[known]]).unique(dim=1)  # (1)
        shape = (len(ends) - 1, len(self.keys_))
        values = np.ones(held.shape[1])
        return csr_array((values, (held[0].numpy(), held[1].numpy())), shape=shape)

    def scores(self, stream: Stream, ends: Ends) -> Float[Tensor, "texts classes"]:
        n = self.bags(stream, ends)
        return torch.from_numpy(n @ self.weights_.T.numpy()) + self.bias_  # (2)

    def check_learned(self) -> None:
        """Refuse values that `fit` does not give, such as a run folder may hold."""
        check_learned(vars(self), {
            "keys_": Learned("int64", "grams", low=0, ascending=True),
            "counts_": Learned("float64", "grams", low=1),
            "weights_": Learned("float64", "classes grams"),
            "bias_": Learned("float64", "classes"),
        })  # fmt: skip


class NaiveBayes(Bag):
    """A bag that counts; `strength` is the smoothing s."""

    def learn(self, n: Rows, y: Labels, classes: int) -> Weights:
        if not 0 < self.strength < math.inf:
            raise UserError(
                f"strength ({self.strength}) must be above 0, because a word that a class never "
                "has would have the probability 0; try 1.0"
            )
        of = one_hot(y, classes).double()  # texts classes
        b = (of.sum(0) / len(y)).log()  # (4)
        counts = torch.from_numpy((n.T @ of.numpy()).T) + self.strength
        w = (counts / counts.sum(1, keepdim=True)).log()  # (5)
        return w, b


class LogisticBag(Bag):
    """A bag whose weights make the classes likely; `strength` is the penalty l2."""

    def learn(self, n: Rows, y: Labels, classes: int) -> Weights:
        if not 0 < self.strength < math.inf:
            raise UserError(
                f"strength ({self.strength}) must be above 0, because texts with a word of their "
                "own can be separated by ever larger weights; try 1.0"
            )
        start = np.zeros(classes * (n.shape[1] + 1))
        found = minimize(
            lambda theta: self.objective(theta, n, y, classes), start, jac=True, method="L-BFGS-B",
            options={"maxiter": 1000, "maxfun": 2000, "ftol": 1e-14, "gtol": 1e-6},
        )  # fmt: skip
        theta = torch.from_numpy(found.x).view(classes, -1)
        return theta[:, :-1].contiguous(), theta[:, -1].contiguous()

    def objective(self, theta: Array, n: Rows, y: Labels, classes: int) -> tuple[float, Array]:
        """J and its gradient; of each class the weights and then the bias."""
        both = torch.from_numpy(theta).view(classes, -1)
        w, b = both[:, :-1], both[:, -1]
        z = torch.from_numpy(n @ w.T.numpy()) + b
        loss = cross_entropy(z, y, reduction="sum") + self.strength / 2 * w.square().sum()  # (6)
        error = z.softmax(1) - one_hot(y, classes)
        gradient = torch.empty_like(both)
        gradient[:, :-1] = torch.from_numpy((n.T @ error.numpy()).T) + self.strength * w  # (7)
        gradient[:, -1] = error.sum(0)
        return loss.item(), gradient.flatten().numpy()


def encode_runs(
    stream: Stream, ends: Ends, ngrams: int
) -> tuple[Int64[Tensor, " grams"], Int64[Tensor, " grams"]]:
    """Every run of 1 to `ngrams` words as one number, and the text that it is in."""
    ends = ends.long()
    text = torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff())
    keys, rows = [stream.long()], [text]
    for width in range(2, ngrams + 1):
        whole = text[: len(text) - width + 1] == text[width - 1 :]
        longer = keys[-1].new_zeros(max(0, len(stream) - width + 1))
        for place in range(width):
            longer = longer * MOST_TOKENS + stream[place : place + len(longer)].long()
        keys.append(longer[whole])
        rows.append(text[: len(longer)][whole])
    return torch.cat(keys), torch.cat(rows)


def decode_run(key: int, tokens: Tokens) -> str:
    """The words of a run."""
    words = []
    while key:
        key, number = divmod(key, MOST_TOKENS)
        words.append(tokens.vocabulary[number])
    return " ".join(reversed(words))


METHODS: Mapping[str, Callable[[int, float], Bag]] = {
    "naive-bayes": NaiveBayes,
    "logistic": LogisticBag,
}


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class BagOfWords(Fitting[Bag]):
    """Predict the class of a text by the words in it, whatever their order."""

    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "phrases"
    """A known set of texts with classes, a .csv, .tsv or .jsonl, or a folder of folders."""
    text: str = later("")
    """The column of the texts, of a file whose columns have names; empty: the one of sentences."""
    target: str = later("")
    """The column of their classes; empty: the one of few values."""
    tokens: str = "words"
    """Tokens: words, characters or bpe; or a vocabulary, of a run or in a published vocab.txt."""
    vocabulary: int = 0
    """Size of the vocabulary, the commonest words; 0 keeps every one of training."""
    lower: bool = later(False)
    """Whether a text is lower-cased first, also that of a prediction."""
    method: str = "naive-bayes"
    """How weights are learned: naive-bayes or logistic."""
    ngrams: int = 1
    """Longest run of words that is in the bag: 1 to 3."""
    strength: float = 1.0
    """Smoothing s of naive Bayes, or penalty l2 of logistic regression."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= self.ngrams <= MOST_NGRAMS, "ngrams", f"from 1 to {MOST_NGRAMS}")
        self.above(0, "strength")
        self.one_of("method", METHODS)

    def dataset(self) -> Data:
        return load(
            self.data, kind="labelled", batch_size=1, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, text=self.text, target=self.target,
        )  # fmt: skip

    def model(self, data: Data) -> Bag:
        return METHODS[self.method](self.ngrams, self.strength)

    def metrics(self, model: Bag, batch: Batch) -> dict[str, Tensor]:
        x, lengths, y = batch
        z = model.scores(*_stream(x, lengths))
        loss = cross_entropy(z, y.cpu(), reduction="none")
        return {**classified(z, y.cpu()), "cross_entropy": loss}

    def predict(
        self, model: Bag, inputs: Sequence[Tensor], spec: Spec, *, words: int = 3
    ) -> Sequence[dict[str, Any]]:
        """The class, all probabilities, and the `words` (or runs) with the largest weights."""
        check_words(words)
        tokens, answers = Tokens.of(spec), []
        for text in inputs:
            stream, ends = text.cpu(), torch.tensor([0, len(text)])
            p = model.scores(stream, ends)[0].softmax(0)  # (3)
            label = int(p.argmax())
            held = torch.from_numpy(model.bags(stream, ends).indices).long()
            weights = _against(model.weights_)[label, held]
            order = weights.argsort(descending=True, stable=True)[:words].tolist()
            answers.append(
                {
                    **name_classes(p[None], spec["classes"])[0],
                    "words": {
                        decode_run(int(model.keys_[held[n]]), tokens): round(weights[n].item(), 4)
                        for n in order
                        if weights[n] > 0
                    },
                    "unknown": int((stream == tokens.unknown).sum()),
                }
            )
        return answers

    def picture_weights(self, model: Bag, data: Data, history: History) -> Figure:
        """The words, or runs of words, with the largest weights for each class against the others.

        All that the bag knows of a text is which of them are in it.
        """
        tokens, weights = Tokens.of(data.spec), _against(model.weights_)
        sides = []
        for label, name in enumerate(data.spec["classes"]):
            order = weights[label].argsort(descending=True, stable=True)[:SHOWN]
            words = [decode_run(int(key), tokens) for key in model.keys_[order].tolist()]
            sides.append((f"for {name}", words, weights[label, order]))
        return weighed_words(sides, xlabel="weight against the rest")

    def picture_words(self, model: Bag, data: Data, history: History) -> Figure:
        """Unseen sentences with each word coloured by what it adds to the score of the last class.

        Red is for it, blue against; a run of words is shared out evenly among them.
        """
        tokens, classes = Tokens.of(data.spec), data.spec["classes"]
        x, lengths, y = next(iter(data.valid))
        weights, rows = _against(model.weights_)[-1], []
        for n in range(min(8, len(x))):
            text = x[n, : lengths[n]].cpu()
            p = model.scores(text, torch.tensor([0, len(text)]))[0].softmax(0)
            adds = torch.zeros(len(text), dtype=torch.float64)
            for width in range(1, model.ngrams + 1):
                for start in range(len(text) - width + 1):
                    run, ends = text[start : start + width], torch.tensor([0, width])
                    held = torch.from_numpy(model.bags(run, ends).indices).long()
                    own = held[model.keys_[held] == encode_runs(run, ends, width)[0].max()]
                    adds[start : start + width] += weights[own].sum() / width
            words = [tokens.vocabulary[token] for token in text.tolist()]
            rows.append((words, adds, prediction_label(p, int(y[n]), classes)))
        return coloured(rows, unit=f"what a word adds to “{classes[-1]}”")

    def picture_counts(self, model: Bag, data: Data, history: History) -> Figure:
        """Every word by the training sentences that hold it and by its weight for the last class.

        Words that occur in a single sentence have weights, too: by chance, and there are many.
        """
        tokens, weights = Tokens.of(data.spec), _against(model.weights_)[-1]
        strength = weights.abs() * model.counts_.sqrt()
        named = strength.argsort(descending=True, stable=True)[:24].tolist()
        return words_by_count(
            model.counts_,
            weights,
            [(n, decode_run(int(model.keys_[n]), tokens)) for n in named],
            ylabel=f"weight for “{data.spec['classes'][-1]}” against the rest",
        )


def _against(weights: Float[Tensor, "classes grams"]) -> Float[Tensor, "classes grams"]:
    """The weights for each class less the mean of those for the others."""
    others = (weights.sum(0) - weights) / max(1, len(weights) - 1)
    return weights - others


def _stream(x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> tuple[Stream, Ends]:
    """A padded batch as a stream of tokens and where its texts end."""
    rows = zip(x.tolist(), lengths.tolist(), strict=True)
    return flattened([row[:length] for row, length in rows])


RECIPES = {
    "bag-of-words": BagOfWords(
        method="logistic", ngrams=3, goal="accuracy >= 0.95", covers=("R19",)
    ),
    "bag-of-words-sst": BagOfWords(data="sst", goal="accuracy >= 0.78", covers=("R14", "R19")),
    "bag-of-words-logistic-sst": BagOfWords(
        data="sst", method="logistic", goal="accuracy >= 0.78", covers=("R14", "R19")
    ),
}
