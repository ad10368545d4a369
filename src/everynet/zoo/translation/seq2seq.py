"""Sequence to sequence: one network reads a sentence into a vector, another writes it from there.

    h_t = GRU(E x_t, h_{t-1}),  h_0 = 0                        (1)  encoder, from x_1 to x_Tx
    c = h_Tx                                                   (2)  context: its last state alone
    s_t = GRU(F y_{t-1}, s_{t-1}),  s_0 = c,  y_0 = <start>    (3)  decoder
    p(y_t | y_1 .. y_{t-1}, c) = softmax(W s_t + b)            (4)  the next token
    L = -sum_{t <= Ty} log p(y_t | y_1 .. y_{t-1}, c) / Ty     (5)  y_Ty = <end>; lengths may differ
    v_t = argmax_v p(v | v_1 .. v_{t-1}, c)                    (6)  greedy decoding, until <end>

E and F are embeddings; GRU is torch's cell, equation (6) of `recurrent/gru.py`. In training the
decoder is given the true tokens before each one (teacher forcing), and L is the mean over the
target tokens of a batch; afterwards it is given its own. Padding comes after the last token of a
sentence and is left out of (2) and (5), so that the other sentences of a batch change nothing. On
strings and their reversal all of the output has to pass through c, whatever the length.

Sutskever, Vinyals, Le (2014), "Sequence to sequence learning with neural networks",
arXiv:1409.3215; Cho et al. (2014), "Learning phrase representations using RNN encoder-decoder for
statistical machine translation", arXiv:1406.1078. Unlike the first, the cells are gated recurrent
units of one layer, and the search is greedy; unlike the second, c starts the decoder and is not
given to it again at each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Buckets
from everynet.data.texts.tokens import END, PAD, SENTENCE, START, Tokens
from everynet.plot import Panel, panels
from everynet.plot.sentences import encoder_decoder_states, sentence_map
from everynet.recipes.recipe import later
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError

_PAD, _START, _END = (SENTENCE.index(token) for token in (PAD, START, END))
"""Of a vocabulary that is learned; a published one may have others for start and end."""


class Seq2Seq(nn.Module):
    """Maps source sentences to the logits of the tokens of target sentences.

    x  (batch, source)  -> states of the encoder  (batch, source, units) -> c  (batch, units)
    y  (batch, target)  -> states of the decoder  (batch, target, units) -> logits of tokens
    """

    def __init__(
        self,
        source: int,
        target: int,
        *,
        embedding: int,
        hidden_size: int,
        start: int = _START,
        end: int = _END,
    ) -> None:
        super().__init__()
        self.start, self.end = start, end
        self.source = nn.Embedding(source, embedding)
        self.encoder = nn.GRU(embedding, hidden_size, batch_first=True)
        self.target = nn.Embedding(target, embedding)
        self.decoder = nn.GRU(embedding, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, target)

    def read(self, x: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source units"]:
        """The state of the encoder after each token."""
        states: Tensor = self.encoder(self.source(x))[0]  # (1)
        return states

    def encode(
        self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch units"]:
        """The state after the last token of each sentence, whatever follows it."""
        states = self.read(x)
        return states[torch.arange(x.shape[0], device=x.device), lengths - 1]  # (2)

    def decode(
        self, before: Int[Tensor, "batch target"], state: Float[Tensor, "batch units"]
    ) -> Float[Tensor, "batch target units"]:
        """The state of the decoder after each token that it is given."""
        states: Tensor = self.decoder(self.target(before), state[None].contiguous())[0]  # (3)
        return states

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        logits: Tensor = self.output(self.decode(before, self.encode(x, lengths)))  # (4)
        return logits

    def greedy(
        self, c: Float[Tensor, "batch units"], longest: int
    ) -> tuple[Int[Tensor, "batch target"], Float[Tensor, " batch"]]:
        """The likeliest token at each step, up to `longest`, and the log-probability of all.

        After <end> there is padding, which counts for nothing.
        """
        token = torch.full((len(c), 1), self.start, device=c.device)
        going = torch.ones(len(c), dtype=torch.bool, device=c.device)
        tokens, total = [], c.new_zeros(len(c))
        for _ in range(longest):
            c = self.decode(token, c)[:, -1]
            best, chosen = self.output(c).log_softmax(1).max(1)  # (6)
            tokens.append(chosen.where(going, _PAD))
            total = total + best.where(going, 0)
            going = going & (chosen != self.end)
            if not going.any():
                break
            token = chosen[:, None]
        return torch.stack(tokens, 1), total


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Translation(Training[Seq2Seq]):
    """Translate a sentence into the one that belongs to it."""

    meanings: ClassVar[Mapping[str, str]] = {
        "exact": "the share of sentences that are translated without a mistake",
        "cross_entropy": "cross-entropy in nats at a token of the true sentence, the mean",
    }

    last_weights: ClassVar[bool] = True
    captured: ClassVar[bool] = True

    data: str = "reversal"
    """A known set of pairs, two aligned files written a.en,a.de, or a .tsv with two columns."""
    tokens: str = "characters"
    """Tokens: characters, words or bpe; or vocabularies, of a run or in a published vocab.txt."""
    vocabulary: int = 0
    """Size of each vocabulary, the commonest tokens; 0 keeps all of training."""
    shared_vocabulary: bool = later(False)
    """Whether source and target have one vocabulary, learned from both."""
    lower: bool = later(False)
    """Whether sentences are lower-cased first, also those of a prediction."""
    embedding: int = 16
    """Size of the embedding of a token."""
    hidden_size: int = 128
    """Units of the encoder and of the decoder: the size of the vector between them."""
    pad_to: int = later(1)
    """Lengths of training batches are rounded up to a multiple of it: on cuda 8 is faster."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "embedding", "hidden_size", "pad_to")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="pairs", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, shared_vocabulary=self.shared_vocabulary, lower=self.lower,
        )  # fmt: skip
        return replace(data, sampler=Buckets(("ragged", "ragged"), self.pad_to))

    def model(self, data: Data) -> Seq2Seq:
        source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
        return Seq2Seq(
            len(source), len(target), embedding=self.embedding, hidden_size=self.hidden_size,
            start=target.start, end=target.end,
        )  # fmt: skip

    def objective(self, model: Seq2Seq, batch: Batch) -> Terms:
        x, lengths, y, _ = batch
        logits = model(x, lengths, y[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=_PAD)  # (5)
        return {"cross_entropy": loss}

    def step(self, state: State[Seq2Seq], batch: Batch) -> Terms:
        """One update; of several processes each counts by its number of tokens."""
        terms = self.objective(state.model, batch)
        tokens = (batch[2][:, 1:] != _PAD).sum()
        state.descend(
            terms["cross_entropy"], weight=tokens, clip=self.clip, clip_value=self.clip_value
        )
        return terms

    def metrics(self, model: Seq2Seq, batch: Batch) -> dict[str, Tensor]:
        """Whether the greedy output is exact; the summed loss of the tokens and their count."""
        x, lengths, y, y_lengths = batch
        targets = y[:, 1:]
        logits = model(x, lengths, y[:, :-1]).transpose(1, 2)
        outputs, _ = model.greedy(model.encode(x, lengths), targets.shape[1])
        outputs = nn.functional.pad(outputs, (0, targets.shape[1] - outputs.shape[1]), value=_PAD)
        return {
            "exact": (outputs == targets).all(1).double(),
            "nats": cross_entropy(logits, targets, ignore_index=_PAD, reduction="none").sum(1),
            "tokens": (y_lengths - 1).double(),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        """The share of exact sentences, and the cross-entropy of a token."""
        nats, tokens = (outputs[name].double().sum().item() for name in ("nats", "tokens"))
        return {"exact": outputs["exact"].mean().item(), "cross_entropy": nats / tokens}

    def predict(
        self, model: Seq2Seq, inputs: Sequence[Tensor], spec: Spec, *, longest: int = 0
    ) -> Sequence[dict[str, Any]]:
        """Translations of up to `longest` tokens (0: twice the source and ten)."""
        if longest < 0:
            raise UserError(f"longest ({longest}) must be 0, which follows the source, or more")
        x = pad_sequence(list(inputs), batch_first=True, padding_value=_PAD)
        lengths = torch.tensor([len(one) for one in inputs], device=x.device)
        most = longest or 2 * x.shape[1] + 10
        outputs, total = model.greedy(model.encode(x, lengths), most)
        target = Tokens.of(spec, "target_tokens")
        return [
            {"output": target.decode(row), "log_probability": value}
            for row, value in zip(outputs.tolist(), total.double().tolist(), strict=True)
        ]

    def picture_handover(self, model: Seq2Seq, data: Data, history: History) -> Figure:
        """The units of the encoder after each token read, and of the decoder for each one written.

        The framed vector, the encoder's last state, is all that the decoder gets of the source.
        """
        source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
        x, lengths, *_ = next(iter(data.valid))
        typical = int((lengths - lengths.double().quantile(0.8)).abs().argmin())
        one = x[typical : typical + 1, : lengths[typical]]
        states = model.read(one)
        c = states[:, -1]
        outputs, _ = model.greedy(c, 2 * one.shape[1] + 10)
        before = torch.cat([torch.full_like(outputs[:, :1], model.start), outputs[:, :-1]], 1)
        return encoder_decoder_states(
            states[0],
            model.decode(before, c)[0],
            [source.vocabulary[token] for token in one[0].tolist()],
            [target.vocabulary[token] for token in outputs[0].tolist()],
        )

    def picture_sentences(self, model: Seq2Seq, data: Data, history: History) -> Figure:
        """Whole sentences as points, by the vector between encoder and decoder.

        Left coloured by the first token of the target, right by the length of the source.
        """
        x, lengths, y, _ = next(iter(data.valid))
        vocabulary = Tokens.of(data.spec, "target_tokens").vocabulary
        vectors = model.encode(x, lengths)
        return sentence_map(vectors, y[:, 1], vocabulary, lengths, title="first of the target")

    def picture_length(self, model: Seq2Seq, data: Data, history: History) -> Figure:
        """The share of exact translations, and the cost of the true ones, by length of the source.

        One vector of fixed size has to hold a sentence of any length.
        """
        parts = [(batch[1], self.metrics(model, batch)) for batch in data.valid]
        lengths = torch.cat([each for each, _ in parts]).cpu()
        exact, nats = (
            torch.cat([found[name] for _, found in parts]).double().cpu()
            for name in ("exact", "nats")
        )
        sizes = lengths.unique()
        shares, costs = (
            torch.stack([values[lengths == size].mean() for size in sizes])
            for values in (exact, nats)
        )
        return panels(
            Panel(
                {"exact": (sizes, shares)}, "tokens of the source", "share without a mistake",
                f"{int(exact.sum()):,} of {len(exact):,} exact (validation)",
                ylim=(min(0.95, float(shares.min()) - 0.02), 1.005), legend="none",
            ),
            Panel(
                {"cost": (sizes, costs)}, "tokens of the source",
                "$-\\log\\,p(y\\,|\\,x)$ of the target (nats)",
                "mean over the sentences of a length", log="y", legend="none",
            ),
            width=3.7, height=3.2,
        )  # fmt: skip

    def tiny(self) -> Self:
        return replace(super().tiny(), data="reversal:200")


RECIPES = {
    "seq2seq": Translation(
        steps=5000, lr=5e-3, clip=1.0, schedule="one-cycle",
        goal="exact >= 0.99", covers=("R29",),
    ),
}  # fmt: skip
