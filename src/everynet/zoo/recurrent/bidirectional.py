"""Bidirectional and stacked networks: one cell reads forward, one backward, in several layers.

    a_t = f(x_t, a_{t-1}),  a_0 = 0               (1)  reads from the first word to the last
    b_t = g(x_t, b_{t+1}),  b_{T+1} = 0           (2)  reads from the last word, T, to the first
    h_t = [a_t; b_t]                              (3)  both contexts of word t
    x_t of the next layer = h_t                   (4)  stacked
    y_t = W h_t + c                               (5)  logits of the tag of word t

x_t is the embedding of word t, [;] concatenation. f and g are cells with weights of their own
(plain, GRU or LSTM) and neither depends on the other's state. T is the length of the sentence
itself: padding is never read. A network that only reads onward cannot tell "he said teddy bears are
on sale" from "he said teddy roosevelt was a president" at the word teddy; one that only reads
backward cannot tell "we met teddy at the fair" from "we sold a teddy at the fair". The sentences
here come in such pairs, so each of the two is right about exactly half of the words that the other
context decides, and h_t about all of them. The price is that y_t waits for the end of the sentence.

Schuster, Paliwal (1997), "Bidirectional recurrent neural networks", doi:10.1109/78.650093; Graves,
Schmidhuber (2005), "Framewise phoneme classification with bidirectional LSTM and other neural
network architectures", doi:10.1016/j.neunet.2005.06.042.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.metrics.classification import name_classes
from everynet.nn.recurrent import reverse_sequences
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.zoo.recurrent import context
from everynet.zoo.recurrent.pictures.passes import share_table, two_passes

CELLS: Mapping[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
PAIR = ("he said teddy bears are on sale", "he said teddy roosevelt was a president")
PASSES = ("reads onward $\\rightarrow$", "$\\leftarrow$ reads backward")
CUES = {"after": context.AFTER, "before": context.BEFORE}


class BothWays(nn.Module):
    """Maps words to states that depend on the whole sentence; 0 at padding."""

    def __init__(self, onward: nn.Module, backward: nn.Module) -> None:
        super().__init__()
        self.onward, self.backward = Onward(onward), Backward(backward)

    def forward(
        self, x: Float[Tensor, "batch time input"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time both"]:
        return torch.cat([self.onward(x, lengths), self.backward(x, lengths)], 2)  # (3)


class Onward(nn.Module):
    """Maps words to states that depend on all words up to their own."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Float[Tensor, "batch time input"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time hidden"]:
        a: Tensor = self.layer(x)[0]  # (1)
        return a * inside(lengths, x.shape[1])[:, :, None]


class Backward(nn.Module):
    """Maps words to states that depend on all words from their own to the last."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Float[Tensor, "batch time input"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time hidden"]:
        b = reverse_sequences(self.layer(reverse_sequences(x, lengths))[0], lengths)  # (2)
        return b * inside(lengths, x.shape[1])[:, :, None]


def inside(lengths: Int[Tensor, " batch"], time: int) -> Bool[Tensor, "batch time"]:
    """The mask of words, False at padding."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]


class RecurrentStack(nn.Module):
    """Maps words to the states of the last of several layers."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(
        self, x: Float[Tensor, "batch time input"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time hidden"]:
        for layer in self.layers:
            x = layer(x, lengths)  # (4)
        return x


def make_stack(
    cell: str, ways: str, input_size: int, hidden_size: int, *, layers: int
) -> RecurrentStack:
    """Layers of torch's cells that read onward, backward or both ways."""
    directions, stack = (2 if ways == "both" else 1), list[nn.Module]()
    for number in range(layers):
        size = directions * hidden_size if number else input_size
        cells = [CELLS[cell](size, hidden_size, batch_first=True) for _ in range(directions)]
        stack.append(WAYS[ways](*cells))
    return RecurrentStack(stack)


WAYS: Mapping[str, Any] = {"onward": Onward, "backward": Backward, "both": BothWays}


class Tagger(nn.Module):
    """Maps sentences to the logits of a tag for every word."""

    def __init__(self, vocabulary: int, embedding: int, reader: RecurrentStack, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.reader = reader
        self.output = nn.Linear(size, 2)

    def states(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time size"]:
        h: Tensor = self.reader(self.embedding(x), lengths)
        return h

    def forward(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time tags"]:
        y: Tensor = self.output(self.states(x, lengths))  # (5)
        return y


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Tagging(Training[Tagger]):
    """Predict for every word of a sentence whether it is a name."""

    ways: str = "both"
    """How sentences are read: onward, backward or both."""
    cell: str = "lstm"
    """The cell: rnn, gru or lstm."""
    embedding: int = 16
    """Size of the embedding of a word."""
    hidden_size: int = 16
    """Units of a layer, for each direction."""
    layers: int = 1
    """Layers, each fed by the states of the one below."""
    pairs: int = 2000
    """Pairs of sentences, for training, validation and test together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("ways", WAYS)
        self.one_of("cell", CELLS)
        self.at_least(1, "embedding", "hidden_size", "layers")

    def dataset(self) -> Data:
        return context.make_names(self.batch_size, self.seed, self.pairs)

    def model(self, data: Data) -> Tagger:
        reader = make_stack(
            self.cell, self.ways, self.embedding, self.hidden_size, layers=self.layers
        )
        size = self.hidden_size * (2 if self.ways == "both" else 1)
        return Tagger(len(Tokens.of(data.spec)), self.embedding, reader, size)

    def objective(self, model: Tagger, batch: Batch) -> Terms:
        x, lengths, y, *_ = batch
        losses = cross_entropy(model(x, lengths).transpose(1, 2), y, reduction="none")
        mask = inside(lengths, x.shape[1])
        return {"cross_entropy": (losses * mask).sum() / mask.sum()}

    def step(self, state: State[Tagger], batch: Batch) -> Terms:
        """One update; of several processes each counts by its number of words."""
        terms = self.objective(state.model, batch)
        state.descend(
            terms["cross_entropy"],
            weight=batch[1].sum(),
            clip=self.clip,
            clip_value=self.clip_value,
        )
        return terms

    def metrics(self, model: Tagger, batch: Batch) -> dict[str, Tensor]:
        """Whether the tag is right: of every word, and of those that one context alone decides."""
        x, lengths, y, _, cue, _ = batch
        right = (model(x, lengths).argmax(2) == y).double()
        return {
            "accuracy": right[inside(lengths, x.shape[1])],
            **{f"told_{side}": right[cue == number] for side, number in CUES.items()},
        }

    def predict(
        self, model: Tagger, inputs: Sequence[Tensor], spec: Spec
    ) -> Sequence[dict[str, Any]]:
        """The tag of each word, the probability of each tag, and how many words are unknown."""
        unknown = Tokens.of(spec).index[UNKNOWN]
        x = pad_sequence(list(inputs), batch_first=True)
        lengths = torch.tensor([len(one) for one in inputs], device=x.device)
        p = model(x, lengths).double().softmax(2)
        return [
            {
                "tags": name_classes(p[row, :length], spec["classes"]),
                "unknown": int((x[row, :length] == unknown).sum()),
            }
            for row, length in enumerate(lengths.tolist())
        ]

    def picture_passes(self, model: Tagger, data: Data, history: History) -> Figure:
        """States and probabilities at each word of two sentences that are equal up to the frame.

        At the framed word only a state that reads backward can differ between the two.
        """
        return draw_passes({self.ways: model}, Tokens.of(data.spec))

    def tiny(self) -> Self:
        return replace(super().tiny(), pairs=40)


@torch.no_grad()
def draw_passes(models: Mapping[str, Tagger], tokens: Tokens) -> Figure:
    """States of the first network at each word of the pair, and the probabilities of all."""
    states, p = [], []
    for sentence in PAIR:
        first = next(iter(models.values()))
        x = torch.tensor([tokens.encode(sentence)], device=first.output.weight.device)
        lengths = torch.tensor([x.shape[1]], device=x.device)
        h = first.states(x, lengths)[0]
        halves = zip(PASSES, h.chunk(2, 1), strict=True)
        both = isinstance(first.reader.layers[-1], BothWays)
        states.append(dict(halves) if both else {"states": h})
        p.append({name: net(x, lengths)[0].softmax(1)[:, 1] for name, net in models.items()})
    return two_passes([sentence.split() for sentence in PAIR], states, p, framed=2)


@dataclass(frozen=True, kw_only=True)
class BothSides(Experiment):
    """Three networks tag the words of sentences: reading onward, backward and both ways."""

    meanings: ClassVar[Mapping[str, str]] = {
        "both": "the share of words that a network of both directions tags rightly",
        "onward": "the same of one that reads onward",
        "backward": "the same of one that reads backward",
        "*_told_after": "the same of words that the context after them decides",
        "*_told_before": "the same of words that the context before them decides",
    }

    cell: str = "lstm"
    """The cell: rnn, gru or lstm."""
    embedding: int = 16
    """Size of the embedding of a word."""
    hidden_size: int = 16
    """Units of a layer, for each direction."""
    layers: int = 1
    """Layers, each fed by the states of the one below."""
    pairs: int = 2000
    """Pairs of sentences, for training, validation and test together."""
    steps: int = 300
    """Updates of each network."""
    batch_size: int = 64
    """Sentences an update sees."""
    lr: float = 1e-2
    """Learning rate."""

    tests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.cells()  # checks the other settings

    def cells(self) -> dict[str, Training[Any, Any]]:
        return {
            ways: Tagging(
                ways=ways, cell=self.cell, embedding=self.embedding, hidden_size=self.hidden_size,
                layers=self.layers, pairs=self.pairs, steps=self.steps, batch_size=self.batch_size,
                lr=self.lr, schedule="cosine", seed=self.seed,
            )
            for ways in ("both", "onward", "backward")
        }  # fmt: skip

    def metrics(self, table: Table) -> dict[str, float]:
        """For each network the share of right tags, and of those that one context decides."""
        found = {}
        for ways, cell in table.cells.items():
            found[ways] = cell.test.get("accuracy", math.nan)
            for side in CUES:
                found[f"{ways}_told_{side}"] = cell.test.get(f"told_{side}", math.nan)
        return found

    def picture_passes(self, table: Table) -> Figure:
        """States and probabilities at each word of two sentences that are equal up to the frame.

        There the states that read onward are equal too; those that read backward differ.
        """
        cells = {ways: cell for ways, cell in table.cells.items() if cell.diverged is None}
        models = {ways: cast("Tagger", cell.network()) for ways, cell in cells.items()}
        spec = next(iter(cells.values())).recipe.dataset().spec
        return draw_passes(models, Tokens.of(spec))

    def picture_shares(self, table: Table) -> Figure:
        """The share of right tags of each network, by the context that decides a word.

        Half of the tags are right where the context that decides is on the side not read.
        """
        cells = {ways: cell for ways, cell in table.cells.items() if cell.diverged is None}
        names = ("accuracy", *(f"told_{side}" for side in CUES))
        return share_table(
            torch.tensor([[cell.test[name] for name in names] for cell in cells.values()]),
            [{"both": "reads both ways"}.get(ways, f"reads {ways}") for ways in cells],
            ["all words", "decided by what\ncomes after", "decided by what\ncame before"],
            unit="right tags of test sentences",
        )

    def tiny(self) -> Self:
        return replace(super().tiny(), pairs=40)


RECIPES = {
    "bidirectional": BothSides(
        goal="both >= 0.99 and onward_told_after <= 0.51 and backward_told_before <= 0.51",
        covers=("R12",),
    ),
}
