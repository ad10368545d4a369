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
can let a "not" turn round what comes after it; runs of three words hold "not very good" as a
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
from dataclasses import dataclass, replace
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
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.metrics import classified
from everynet.metrics.meanings import CLASSES, meanings
from everynet.recipes.recipe import Fitting, Pictures
from everynet.system.errors import UserError
from everynet.system.wording import nearest
from everynet.zoo.recurrent.classified import check_words
from everynet.zoo.recurrent.pictures.feelings import coloured
from everynet.zoo.recurrent.pictures.grams import weighed_words, words_by_count

Rows: TypeAlias = Any  # a csr_array, which scipy does not type
Array: TypeAlias = NDArray[np.float64]
MOST_NGRAMS = 3
MOST_TOKENS = 2_000_000  # of a vocabulary whose runs of three fit a number of 63 bits
SHOWN = 14  # words of each class that are drawn


def runs(
    stream: Int[Tensor, " tokens"], ends: Int[Tensor, " texts_and_one"], ngrams: int
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


def spelt(key: int, tokens: Tokens) -> str:
    """The words of a run."""
    words = []
    while key:
        key, number = divmod(key, MOST_TOKENS)
        words.append(tokens.vocabulary[number])
    return " ".join(reversed(words))


class Bag:
    """Maps texts to scores of classes, linear in what they hold.

    Learns `keys_` (the phrases of training, as numbers), `seen_` (texts that hold each), `weights_`
    (classes x phrases) and `bias_`. Texts are a stream of tokens and where each of them ends: rows
    of unequal length, which scikit-learn's contract has no place for.
    """

    keys_: Tensor
    seen_: Tensor
    weights_: Tensor
    bias_: Tensor

    def __init__(self, ngrams: int = 1, strength: float = 1.0) -> None:
        self.ngrams = ngrams
        self.strength = strength

    def get_params(self) -> dict[str, float]:
        """What it was made with."""
        return {"ngrams": self.ngrams, "strength": self.strength}

    def learn(
        self, n: Rows, y: Int[Tensor, " texts"], classes: int
    ) -> tuple[Float[Tensor, "classes grams"], Float[Tensor, " classes"]]:
        """W and b from bags and classes."""
        raise NotImplementedError  # each way to learn says it

    def fit(
        self,
        stream: Int[Tensor, " tokens"],
        ends: Int[Tensor, " texts_and_one"],
        y: Int[Tensor, " texts"],
    ) -> Self:
        if not 1 <= self.ngrams <= MOST_NGRAMS:
            raise UserError(f"ngrams ({self.ngrams}) must be from 1 to {MOST_NGRAMS}")
        if len(stream) and int(stream.max()) >= MOST_TOKENS:
            raise UserError(
                f"the vocabulary ({int(stream.max()):,} words) must be below {MOST_TOKENS:,}, "
                "because a run of three is one number; set vocabulary="
            )
        stream, ends, y = stream.cpu(), ends.cpu(), y.cpu()
        self.keys_ = runs(stream, ends, self.ngrams)[0].unique()
        n = self.bags(stream, ends)
        self.seen_ = torch.from_numpy(np.asarray(n.sum(0)))
        self.weights_, self.bias_ = self.learn(n, y, int(y.max()) + 1)
        return self

    def bags(self, stream: Int[Tensor, " tokens"], ends: Int[Tensor, " texts_and_one"]) -> Rows:
        """Which phrases of training each text holds; phrases that are new are left out."""
        keys, rows = runs(stream.cpu(), ends.cpu(), self.ngrams)
        place = torch.searchsorted(self.keys_, keys).clamp(max=len(self.keys_) - 1)
        known = self.keys_[place] == keys
        held = torch.stack([rows[known], place[known]]).unique(dim=1)  # (1)
        shape = (len(ends) - 1, len(self.keys_))
        values = np.ones(held.shape[1])
        return csr_array((values, (held[0].numpy(), held[1].numpy())), shape=shape)

    def scores(
        self, stream: Int[Tensor, " tokens"], ends: Int[Tensor, " texts_and_one"]
    ) -> Float[Tensor, "texts classes"]:
        n = self.bags(stream, ends)
        return torch.from_numpy(n @ self.weights_.T.numpy()) + self.bias_  # (2)


class NaiveBayes(Bag):
    """A bag that counts; `strength` is the smoothing s."""

    def learn(
        self, n: Rows, y: Int[Tensor, " texts"], classes: int
    ) -> tuple[Float[Tensor, "classes grams"], Float[Tensor, " classes"]]:
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

    def learn(
        self, n: Rows, y: Int[Tensor, " texts"], classes: int
    ) -> tuple[Float[Tensor, "classes grams"], Float[Tensor, " classes"]]:
        if not 0 < self.strength < math.inf:
            raise UserError(
                f"strength ({self.strength}) must be above 0, because texts with a word of their "
                "own can be told apart by ever larger weights; try 1.0"
            )
        start = np.zeros(classes * (n.shape[1] + 1))
        found = minimize(
            lambda theta: self.objective(theta, n, y, classes), start, jac=True, method="L-BFGS-B",
            options={"maxiter": 1000, "maxfun": 2000, "ftol": 1e-14, "gtol": 1e-6},
        )  # fmt: skip
        theta = torch.from_numpy(found.x).view(classes, -1)
        return theta[:, :-1].contiguous(), theta[:, -1].contiguous()

    def objective(
        self, theta: Array, n: Rows, y: Int[Tensor, " texts"], classes: int
    ) -> tuple[float, Array]:
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


METHODS: Mapping[str, Callable[[int, float], Bag]] = {
    "naive-bayes": NaiveBayes,
    "logistic": LogisticBag,
}


@dataclass(frozen=True, kw_only=True)
class BagOfWords(Fitting[Bag]):
    """Name the class of a text by the words in it, whatever their order."""

    captions: ClassVar[dict[str, str]] = {
        "weights": "The words, or runs of words, that speak most for each class against the "
        "others: all that is known of a text is which of them are in it.",
        "words": "Unseen sentences, each word coloured by what it adds to the score of the last "
        "class, runs of words by an equal share for each: red for it, blue against.",
        "counts": "Every word by the training sentences that hold it and by its weight: rare words "
        "have weights because they were seen in one class by chance, and there are many.",
    }
    meanings: ClassVar[Mapping[str, str]] = meanings(*CLASSES, "cross_entropy")

    data: str = "phrases"
    """A known set of texts with classes, a .tsv with class and text, or a folder of folders."""
    tokens: str = "words"
    """What a text is cut into: words or characters."""
    vocabulary: int = 0
    """Most words that are told apart, the commonest; 0 keeps every one of training."""
    method: str = "naive-bayes"
    """How weights are learned: naive-bayes or logistic."""
    ngrams: int = 1
    """Longest run of words that is in the bag: 1 to 3."""
    strength: float = 1.0
    """Of what keeps weights small: the smoothing of naive Bayes, the penalty of the other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= self.ngrams <= MOST_NGRAMS, "ngrams", f"from 1 to {MOST_NGRAMS}")
        self.require(0 < self.strength < math.inf, "strength", "a positive number")
        self.require(
            self.method in METHODS, "method", "one we have" + nearest(self.method, METHODS)
        )

    def dataset(self) -> Data:
        return load(
            self.data,
            kind="labelled",
            batch_size=1,
            seed=self.seed,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
        )

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
        """The class with its probability, and the `words` (or runs) that say most for it."""
        check_words(words)
        tokens, answers = Tokens.of(spec), []
        for text in inputs:
            stream, ends = text.cpu(), torch.tensor([0, len(text)])
            p = model.scores(stream, ends)[0].softmax(0)  # (3)
            label = int(p.argmax())
            held = torch.from_numpy(model.bags(stream, ends).indices).long()
            says = _against(model.weights_)[label, held]
            order = says.argsort(descending=True, stable=True)[:words].tolist()
            answers.append(
                {
                    "class": spec["classes"][label],
                    "probability": p[label].item(),
                    "words": {
                        spelt(int(model.keys_[held[n]]), tokens): round(says[n].item(), 4)
                        for n in order
                        if says[n] > 0
                    },
                    "unknown": int((stream == tokens.index[UNKNOWN]).sum()),
                }
            )
        return answers

    def pictures(self, model: Bag, data: Data, history: History) -> Pictures:
        tokens, classes = Tokens.of(data.spec), data.spec["classes"]
        weights = _against(model.weights_)
        sides = []
        for label, name in enumerate(classes):
            order = weights[label].argsort(descending=True, stable=True)[:SHOWN]
            words = [spelt(int(key), tokens) for key in model.keys_[order].tolist()]
            sides.append((f"for {name}", words, weights[label, order]))
        last = weights[-1]
        telling = (last.abs() * model.seen_.sqrt()).argsort(descending=True, stable=True)[:24]
        named = [(n, spelt(int(model.keys_[n]), tokens)) for n in telling.tolist()]
        against = f"weight for “{classes[-1]}” against the rest"
        return {
            "weights": weighed_words(sides, xlabel="weight against the rest"),
            "words": _shown(model, data, tokens),
            "counts": words_by_count(model.seen_, last, named, ylabel=against),
        }

    def tiny(self) -> Self:
        return replace(self, data="phrases")


def _against(
    weights: Float[Tensor, "classes grams"],
) -> Float[Tensor, "classes grams"]:
    """The weights for each class less the mean of those for the others."""
    others = (weights.sum(0) - weights) / max(1, len(weights) - 1)
    return weights - others


def _stream(
    x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
) -> tuple[Int[Tensor, " tokens"], Int[Tensor, " texts_and_one"]]:
    """A padded rectangle as a stream and where its texts end."""
    rows = zip(x.tolist(), lengths.tolist(), strict=True)
    return flattened([row[:length] for row, length in rows])


def _shown(model: Bag, data: Data, tokens: Tokens) -> Figure:
    """What words add to the score of the last class, in unseen texts."""
    x, lengths, y = next(iter(data.valid))
    last, classes = _against(model.weights_)[-1], data.spec["classes"]
    rows = []
    for n in range(min(8, len(x))):
        text = x[n, : lengths[n]].cpu()
        ends = torch.tensor([0, len(text)])
        p = model.scores(text, ends)[0].softmax(0)
        adds = torch.zeros(len(text), dtype=torch.float64)
        for width in range(1, model.ngrams + 1):
            for start in range(len(text) - width + 1):
                run = text[start : start + width]
                held = model.bags(run, torch.tensor([0, width])).indices
                keys = model.keys_[torch.from_numpy(held).long()]
                own = keys == runs(run, torch.tensor([0, width]), width)[0].max()
                adds[start : start + width] += last[held[own.numpy()]].sum() / width
        words = [tokens.vocabulary[token] for token in text.tolist()]
        label = int(y[n])
        rows.append((words, adds, f"{classes[label]}: {p[label]:.0%}"))
    return coloured(rows, unit=f"what a word adds to “{classes[-1]}”")


# On the 1,821 test sentences of sst: naive Bayes 0.8204, logistic regression 0.8056; nothing in
# either is random.
RECIPES = {
    "bag-of-words": BagOfWords(
        method="logistic", ngrams=3, goal="accuracy >= 0.95", covers=("R19",)
    ),
    "bag-of-words-sst": BagOfWords(data="sst", goal="accuracy >= 0.78", covers=("R14", "R19")),
    "bag-of-words-logistic-sst": BagOfWords(
        data="sst", method="logistic", goal="accuracy >= 0.78", covers=("R14", "R19")
    ),
}
