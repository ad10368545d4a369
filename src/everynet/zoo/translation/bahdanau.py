"""Attention: at every word that it writes, the decoder looks at the words it now needs.

    h_j = [GRU(E x_j, h>_{j-1}); GRU(E x_j, h<_{j+1})]             (1)  encoder, read both ways
    s_0 = tanh(W_s h<_1)                                           (2)  from the state of x_1
    e_ij = v^T tanh(W_a s_{i-1} + U_a h_j)                         (3)  additive score of word j
    alpha_ij = exp(e_ij) / sum_k exp(e_ik)                         (4)  attention: a row sums to 1
    c_i = sum_j alpha_ij h_j                                       (5)  context of target token i
    r_i = sigma(W_r F y_{i-1} + U_r s_{i-1} + C_r c_i)             (6)  reset gate
    z_i = sigma(W_z F y_{i-1} + U_z s_{i-1} + C_z c_i)             (7)  update gate
    s~_i = tanh(W F y_{i-1} + U (r_i . s_{i-1}) + C c_i)           (8)  candidate
    s_i = (1 - z_i) . s_{i-1} + z_i . s~_i                         (9)  decoder
    t~_i = U_o s_{i-1} + V_o F y_{i-1} + C_o c_i                  (10)  readout
    t_i = max(t~_{i,2k-1}, t~_{i,2k}) for each k                  (11)  maxout of pairs
    p(y_i | y_1 .. y_{i-1}, x) = softmax(W_o t_i)                 (12)  the next token

E and F are embeddings, h> and h< the forward and the backward states, and a dot is the product of
entries. There is no single vector that has to hold the whole sentence: the decoder reads a mixture
of the states of all words, weighed anew at each step, so that long sentences are translated as well
as short ones. What is drawn of alpha is an alignment that nobody taught. Padding has alpha = 0.
`TiedBahdanau` has one matrix E = F = W_o, of a vocabulary that both languages share, and embeddings
sqrt(d) E x of size d. `FixedContext` is the same without (3) to (5): c_i = [h>_Tx; h<_1] for all i.

Bahdanau, Cho, Bengio (2015), "Neural machine translation by jointly learning to align and
translate", arXiv:1409.0473. Unlike the paper, the encoder's units are torch's GRU (its reset gate
acts on the product), the gates have biases, and there is dropout on embeddings, contexts and t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear

from everynet.data.dataset import Data, History, Spec
from everynet.data.kinds import named
from everynet.data.texts.tokens import Tokens
from everynet.nn.attention import AdditiveScore, attend, padding_mask
from everynet.nn.recurrent import last_states, reverse_sequences
from everynet.plot import Film, Panel, panels
from everynet.recipes.experiment import Experiment, Table
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.training.loop import evaluating
from everynet.zoo.translation.pictures.writing import attention_frames
from everynet.zoo.translation.translation import (
    Translation,
    Translator,
    draw_alignments,
    typical,
)

Reading: TypeAlias = tuple[Tensor, ...]
"""Of the decoder: s, the states h of the encoder, their products U_a h and the mask of words."""


class Bahdanau(Translator):
    """Maps source sentences to the logits of target tokens, with a context for each of them.

    x  (batch, source)  -> h    (batch, source, 2 units), both directions
    y  (batch, target)  -> c_i  (batch, 2 units), s_i  (batch, units), for i = 1 .. target
                        -> t    (batch, target, embedding) -> logits
    """

    def __init__(
        self, source: int, target: int, *, embedding: int, hidden_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.source = nn.Embedding(source, embedding)
        self.forwards = nn.GRU(embedding, hidden_size, batch_first=True)
        self.backwards = nn.GRU(embedding, hidden_size, batch_first=True)
        self.initial = nn.Linear(hidden_size, hidden_size)  # W_s
        self.score = AdditiveScore(hidden_size, 2 * hidden_size, hidden_size)  # W_a, U_a, v
        self.target = nn.Embedding(target, embedding)
        self.from_token = nn.Linear(embedding, 3 * hidden_size)  # W_r, W_z, W
        self.from_context = nn.Linear(2 * hidden_size, 3 * hidden_size, bias=False)  # C_r, C_z, C
        self.from_state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)  # U_r, U_z
        self.candidate = nn.Linear(hidden_size, hidden_size, bias=False)  # U
        self.readout = nn.Linear(3 * hidden_size + embedding, 2 * embedding)  # U_o, C_o, V_o
        self.output = nn.Linear(embedding, target)  # W_o
        self.dropout = nn.Dropout(dropout)

    def encode(
        self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source both"], Float[Tensor, "batch units"]]:
        """The states of both directions at each word, and the decoder's first state."""
        words = self.dropout(self.embed_source(x))
        forwards = self.forwards(words)[0]
        backwards = self.backwards(reverse_sequences(words, lengths))[0]
        backwards = reverse_sequences(backwards, lengths)
        h = torch.cat([forwards, backwards], 2)  # (1)
        s: Tensor = self.initial(backwards[:, 0]).tanh()  # (2)
        return self.dropout(h), s

    def embed_source(self, x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding"]:
        """The embeddings E x of source tokens."""
        e: Tensor = self.source(x)
        return e

    def embed_target(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding"]:
        """The embeddings F y of target tokens."""
        e: Tensor = self.target(y)
        return e

    def score_tokens(self, t: Float[Tensor, "*batch embedding"]) -> Float[Tensor, "*batch tokens"]:
        """The logits W_o t of all tokens."""
        logits: Tensor = self.output(t)
        return logits

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Reading:
        h, s = self.encode(x, lengths)
        return s, h, self.score.key(h), padding_mask(lengths, x.shape[1])

    def read(
        self, s: Float[Tensor, "batch units"], state: Reading
    ) -> tuple[Float[Tensor, "batch both"], Float[Tensor, "batch source"]]:
        """The context c_i that a state of the decoder reads, and its attention to the words."""
        _, h, u, mask = state
        c, alpha = attend(self.score.compare, s[:, None], u, h, mask)  # (3) (4) (5)
        return c[:, 0], alpha[:, 0]

    def advance(
        self,
        token: Float[Tensor, "batch gates"],
        s: Float[Tensor, "batch units"],
        c: Float[Tensor, "batch both"],
    ) -> Float[Tensor, "batch units"]:
        """The next state of the decoder; `token` are W_r, W_z and W times the embedding."""
        gates, candidate = (token + self.from_context(c)).tensor_split([2 * s.shape[1]], 1)
        r, z = (gates + self.from_state(s)).sigmoid().chunk(2, 1)  # (6) (7)
        candidate = (candidate + self.candidate(r * s)).tanh()  # (8)
        after: Tensor = (1 - z) * s + z * candidate  # (9)
        return after

    def speak(
        self,
        s: Float[Tensor, "*batch units"],
        c: Float[Tensor, "*batch both"],
        token: Float[Tensor, "*batch embedding"],
    ) -> Float[Tensor, "*batch tokens"]:
        """Logits of target token i, from s_{i-1}, c_i and the embedding of the token before."""
        readout = self.readout(torch.cat([s, c, token], -1))  # (10)
        t = readout.unflatten(-1, (-1, 2)).amax(-1)  # (11)
        return self.score_tokens(self.dropout(t))  # (12)

    def step(
        self, tokens: Int64[Tensor, " batch"], state: Reading
    ) -> tuple[Float[Tensor, "batch tokens"], Reading]:
        s, *source = state
        token = self.dropout(self.embed_target(tokens))
        c, _ = self.read(s, state)
        after = self.advance(self.from_token(token), s, c)
        return self.speak(s, c, token), (after, *source)

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        states, contexts, tokens, _ = self.decode(x, lengths, before)
        return self.speak(states, contexts, tokens)

    def align(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target source"]:
        return self.decode(x, lengths, before)[3]

    def decode(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """For each target token i: s_{i-1}, c_i, the embedding of the token before, alpha_i."""
        state = self.begin(x, lengths)
        s = state[0]
        tokens = self.dropout(self.embed_target(before))
        states, contexts, attention = list[Tensor](), list[Tensor](), list[Tensor]()
        for token in self.from_token(tokens).unbind(1):  # the products with tokens at once
            c, alpha = self.read(s, state)
            states.append(s)
            contexts.append(c)
            attention.append(alpha)
            s = self.advance(token, s, c)
        return torch.stack(states, 1), torch.stack(contexts, 1), tokens, torch.stack(attention, 1)


class TiedBahdanau(Bahdanau):
    """The same with one matrix for the tokens of both sides and for the logits."""

    def __init__(
        self, vocabulary: int, *, embedding: int, hidden_size: int, dropout: float
    ) -> None:
        size = vocabulary, vocabulary
        super().__init__(*size, embedding=embedding, hidden_size=hidden_size, dropout=dropout)
        del self.target, self.output
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.source.weight, std=embedding**-0.5)

    def embed_source(self, x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding"]:
        return super().embed_source(x) * math.sqrt(self.source.embedding_dim)

    def embed_target(self, y: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch embedding"]:
        return self.embed_source(y)

    def score_tokens(self, t: Float[Tensor, "*batch embedding"]) -> Float[Tensor, "*batch tokens"]:
        return linear(t, self.source.weight, self.bias)


class FixedContext(TiedBahdanau):
    """The same without attention: one context for all target tokens."""

    def __init__(
        self, vocabulary: int, *, embedding: int, hidden_size: int, dropout: float
    ) -> None:
        super().__init__(vocabulary, embedding=embedding, hidden_size=hidden_size, dropout=dropout)
        del self.score

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Reading:
        h, s = self.encode(x, lengths)
        forwards, backwards = h.chunk(2, 2)
        return s, torch.cat([last_states(forwards, lengths), backwards[:, 0]], 1)

    def read(
        self, s: Float[Tensor, "batch units"], state: Reading
    ) -> tuple[Float[Tensor, "batch both"], Float[Tensor, "batch none"]]:
        return state[1], s[:, :0]

    align = Translator.align


# -------- the network ends here; training and pictures follow --------

RATE, HOLD = 1.5, 3  # frames of a film in a second, frames of its end


@dataclass(frozen=True, kw_only=True)
class BahdanauTranslation(Translation[Bahdanau]):
    """Translate a sentence with attention to its words."""

    writes: ClassVar[str] = "film"

    embedding: int = 32
    """Size of the embedding of a token, and half of the readout."""
    hidden_size: int = 64
    """Units of each direction of the encoder, of the decoder and of the score."""
    dropout: float = 0.0
    """Share of embeddings, encoder states and maxima that is set to 0 in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "embedding", "hidden_size")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def build(self, source: int, target: int) -> Bahdanau:
        return Bahdanau(
            source, target, embedding=self.embedding, hidden_size=self.hidden_size,
            dropout=self.dropout,
        )  # fmt: skip

    def picture_alignment(self, model: Bahdanau, data: Data, history: History) -> Figure:
        """Attention to the source (across) for each token written (down), of validation sentences.

        Nobody taught which words belong together: a bright cell is a pair that the network found.
        """
        return draw_alignments(model, data)

    def sample(
        self, model: Bahdanau, spec: Spec, generator: torch.Generator, *, text: str = ""
    ) -> Film:
        """A sentence (empty: of validation) as it is translated, and where the network looks."""
        place = next(model.parameters()).device
        if text:
            x = named("pairs").convert([text], spec)[0][None]
        else:
            x, _ = typical(self.dataset(), 0.5)
        x, lengths = x.to(place), torch.tensor([x.shape[1]], device=place)
        outputs, _ = model.write(x, lengths, 2 * x.shape[1] + 10)
        attention = model.align(x, lengths, model.shift(outputs))[0].double().cpu()
        source, target = Tokens.of(spec), Tokens.of(spec, "target_tokens")
        written = [target.vocabulary[token] for token in outputs[0].tolist()]
        read = [source.vocabulary[token] for token in x[0].tolist()]
        return Film(attention_frames(attention, written, read), RATE, hold=HOLD)


@dataclass(frozen=True, kw_only=True)
class TiedTranslation(BahdanauTranslation):
    """Translate a sentence with attention to its words and one vocabulary for both languages."""

    network: ClassVar[type[TiedBahdanau]] = TiedBahdanau

    shared_vocabulary: bool = True
    """Whether source and target have one vocabulary: always, because they share a matrix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.shared_vocabulary, "shared_vocabulary", "true: both share a matrix")

    def build(self, source: int, target: int) -> Bahdanau:
        return self.network(
            source, embedding=self.embedding, hidden_size=self.hidden_size, dropout=self.dropout
        )


@dataclass(frozen=True, kw_only=True)
class FixedTranslation(TiedTranslation):
    """Translate a sentence through one vector, which every step of the decoder is given."""

    network: ClassVar[type[TiedBahdanau]] = FixedContext

    writes: ClassVar[str] = ""

    picture_alignment = None  # type: ignore[assignment]  # there is none
    sample = Training.sample  # type: ignore[assignment]  # nothing is looked at


@dataclass(frozen=True, kw_only=True)
class ContextVector(Experiment):
    """Reverse strings through one vector of fixed size, and with attention to each letter."""

    meanings: ClassVar[Mapping[str, str]] = {
        "fixed_*": "the share of strings reversed without a mistake through one vector",
        "attention_*": "the share of strings reversed without a mistake with attention",
    }

    embedding: int = 16
    """Size of the embedding of a letter."""
    hidden_size: int = 32
    """Units of each direction of the encoders, and of the decoders."""
    strings: int = 40_000
    """Strings, for training, validation and test together."""
    steps: int = 2000
    """Updates of each network."""
    batch_size: int = 64
    """Strings an update sees."""
    lr: float = 5e-3
    """Learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.cells()  # checks the other settings

    def cells(self) -> dict[str, Training[Any, Any]]:
        kinds = {"fixed": FixedTranslation, "attention": TiedTranslation}
        return {
            name: kind(
                data=f"reversal:{self.strings}", embedding=self.embedding,
                hidden_size=self.hidden_size, steps=self.steps, batch_size=self.batch_size,
                lr=self.lr, clip=1.0, schedule="one-cycle", eval_every=self.steps, seed=self.seed,
            )
            for name, kind in kinds.items()
        }  # fmt: skip

    def measure(
        self, cell: str, recipe: Training[Any, Any], state: State[Any, Any], data: Data
    ) -> dict[str, float | Tensor]:
        """The share of exact outputs for each length of the source, and the lengths."""
        with evaluating(state.model):
            found = [
                (batch[1], recipe.metrics(state.model, batch)["exact"]) for batch in data.valid
            ]
        lengths, exact = (torch.cat(part).cpu() for part in zip(*found, strict=True))
        sizes = lengths.unique()
        shares = torch.stack([exact[lengths == size].mean() for size in sizes])
        return {"lengths": sizes.double(), "exact": shares.double()}

    def metrics(self, table: Table) -> dict[str, float]:
        """Exact outputs for the shortest and for the longest strings, of each network."""
        return {
            f"{name}_{which}": float(cell.measured["exact"][-1, place])
            for name, cell in table.cells.items()
            for which, place in (("short", 0), ("long", -1))
        }

    def picture_length(self, table: Table) -> Figure:
        """The share of strings that are reversed without a mistake, by their length.

        One vector has so many numbers for a letter; attention has as many states as letters.
        """
        names = {"attention": "attention", "fixed": "one vector"}
        found = {names[name]: table.cells[name].measured for name in names if name in table.cells}
        curves = {name: (one["lengths"][-1], one["exact"][-1]) for name, one in found.items()}
        lengths, both = next(iter(curves.values()))[0], 2 * self.hidden_size  # both directions
        room = {
            "attention": (lengths, torch.full_like(lengths, both)),
            "one vector": (lengths, both / lengths),
        }
        return panels(
            Panel(curves, "letters of the source", "share without a mistake"),
            Panel(room, "letters of the source", "numbers for a letter", log="y"),
        )

    def tiny(self) -> Self:
        return replace(super().tiny(), strings=200)


RECIPES = {
    "context-vector": ContextVector(
        goal="attention_long >= 0.95 and fixed_long <= 0.6", covers=("R18",)
    ),
    "bahdanau": BahdanauTranslation(
        data="dates", steps=3000, lr=3e-3, clip=1.0, schedule="one-cycle",
        goal="exact >= 0.99", covers=("R30",),
    ),
    "bahdanau-multi30k": TiedTranslation(
        data="multi30k-de", tokens="bpe", vocabulary=8000, lower=True, embedding=256,
        hidden_size=512, dropout=0.4, batch_size=128, steps=6800, eval_every=680, lr=1e-3,
        warmup=200, schedule="cosine", clip=1.0, label_smoothing=0.1, pad_to=8, ema=0.999,
        goal="bleu >= 36.5", covers=("R30",),
    ),
    "seq2seq-multi30k": FixedTranslation(
        data="multi30k-de", tokens="bpe", vocabulary=8000, lower=True, embedding=256,
        hidden_size=512, dropout=0.4, batch_size=128, steps=6800, eval_every=680, lr=1e-3,
        warmup=200, schedule="cosine", clip=1.0, label_smoothing=0.1, pad_to=8, ema=0.999,
        goal="bleu >= 28", covers=("R18",),
    ),
}  # fmt: skip
