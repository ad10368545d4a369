"""Sequence to sequence: one network reads a sentence into a vector, another writes it from there.

    h_t = GRU(E x_t, h_{t-1}),  h_0 = 0                        (1)  encoder, from x_1 to x_Tx
    c = h_Tx                                                   (2)  context: its last state alone
    s_t = GRU(F y_{t-1}, s_{t-1}),  s_0 = c,  y_0 = <start>    (3)  decoder
    p(y_t | y_1 .. y_{t-1}, c) = softmax(W s_t + b)            (4)  the next token
    h_t, m_t = LSTM(E x_{Tx+1-t}, h_{t-1}, m_{t-1})            (5)  encoder, from x_Tx to x_1
    s_t, m_t = LSTM(F y_{t-1}, s_{t-1}, m_{t-1})               (6)  decoder; s_0 = h_Tx, m_0 = 0

E and F are embeddings; GRU is torch's cell, equation (6) of `recurrent/gru.py`. `Seq2Seq` has (1)
to (4); `LSTMSeq2Seq` has (5) and (6) in several layers, each with states of its own, in place of
(1) to (3): it reads the source backwards, so that its first words are close to those of the target.
Padding comes after the last token of a sentence and is left out of (2) and (5), so that the other
sentences of a batch change nothing. All of the output has to pass through vectors of fixed size,
whatever the length: the loss, decoding and BLEU are those of `translation.py`.

Sutskever, Vinyals, Le (2014), "Sequence to sequence learning with neural networks",
arXiv:1409.3215, for (5) and (6); Cho et al. (2014), "Learning phrase representations using RNN
encoder-decoder for statistical machine translation", arXiv:1406.1078. Unlike the second, c starts
the decoder and is not given to it again at each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn

from everynet.data.dataset import Data, History
from everynet.data.texts.tokens import Tokens
from everynet.nn.recurrent import last_states, reverse_sequences
from everynet.plot.sentences import encoder_decoder_states, sentence_map
from everynet.zoo.translation.translation import Translation, Translator, typical


class Seq2Seq(Translator):
    """Maps source sentences to the logits of the tokens of target sentences.

    x  (batch, source)  -> states of the encoder  (batch, source, units) -> c  (batch, units)
    y  (batch, target)  -> states of the decoder  (batch, target, units) -> logits of tokens
    """

    def __init__(self, source: int, target: int, *, embedding: int, hidden_size: int) -> None:
        super().__init__()
        self.source = nn.Embedding(source, embedding)
        self.encoder = nn.GRU(embedding, hidden_size, batch_first=True)
        self.target = nn.Embedding(target, embedding)
        self.decoder = nn.GRU(embedding, hidden_size, batch_first=True)
        self.output = nn.Linear(hidden_size, target)

    def read(self, x: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source units"]:
        """The state of the encoder after each token."""
        states: Tensor = self.encoder(self.source(x))[0]  # (1)
        return states

    def begin(
        self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch units"]:
        """The context: the state after the last token of each sentence, whatever follows it."""
        return last_states(self.read(x), lengths)  # (2)

    def decode(
        self, before: Int[Tensor, "batch target"], state: Float[Tensor, "batch units"]
    ) -> Float[Tensor, "batch target units"]:
        """The state of the decoder after each token that it is given."""
        states: Tensor = self.decoder(self.target(before), state[None].contiguous())[0]  # (3)
        return states

    def step(
        self, tokens: Int64[Tensor, " batch"], state: Float[Tensor, "batch units"]
    ) -> tuple[Float[Tensor, "batch tokens"], Float[Tensor, "batch units"]]:
        state = self.decode(tokens[:, None], state)[:, -1]
        return self.output(state), state

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        logits: Tensor = self.output(self.decode(before, self.begin(x, lengths)))  # (4)
        return logits


States: TypeAlias = tuple[tuple[Tensor, Tensor], ...]
"""h and c of each layer, (batch, units)."""


class LSTMSeq2Seq(Translator):
    """The same with layers of long short-term memory, which read the source backwards."""

    def __init__(
        self,
        source: int,
        target: int,
        *,
        embedding: int,
        hidden_size: int,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(source, embedding), nn.Embedding(target, embedding)
        sizes = [embedding, *[hidden_size] * (layers - 1)]
        self.encoder, self.decoder = (
            nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
            for _ in range(2)
        )
        self.output = nn.Linear(hidden_size, target)
        self.dropout = nn.Dropout(dropout)

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> States:
        """The output of each layer after the first word, which is read last; empty memories."""
        states, h = list[tuple[Tensor, Tensor]](), self.source(reverse_sequences(x, lengths))
        for layer in self.encoder:
            h, _ = layer(self.dropout(h))  # (5)
            c = last_states(h, lengths)
            states.append((c, torch.zeros_like(c)))
        return tuple(states)

    def decode(
        self, before: Int[Tensor, "batch target"], states: States
    ) -> tuple[Float[Tensor, "batch target tokens"], States]:
        """Logits of each token after those that it is given, and the states then."""
        s, after = self.target(before), list[tuple[Tensor, Tensor]]()
        for layer, state in zip(self.decoder, states, strict=True):
            first = tuple(part[None].contiguous() for part in state)
            s, last = layer(self.dropout(s), first)  # (6)
            after.append((last[0][0], last[1][0]))
        return self.output(self.dropout(s)), tuple(after)  # (4)

    def step(
        self, tokens: Int64[Tensor, " batch"], state: States
    ) -> tuple[Float[Tensor, "batch tokens"], States]:
        logits, state = self.decode(tokens[:, None], state)
        return logits[:, -1], state

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        return self.decode(before, self.begin(x, lengths))[0]


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Seq2SeqTranslation(Translation[Seq2Seq]):
    """Translate a sentence through one vector."""

    embedding: int = 16
    """Size of the embedding of a token."""
    hidden_size: int = 128
    """Units of the encoder and of the decoder: the size of the vector between them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "embedding", "hidden_size")

    def build(self, source: int, target: int) -> Seq2Seq:
        return Seq2Seq(source, target, embedding=self.embedding, hidden_size=self.hidden_size)

    def picture_handover(self, model: Seq2Seq, data: Data, history: History) -> Figure:
        """The units of the encoder after each token read, and of the decoder for each one written.

        The framed vector, the encoder's last state, is all that the decoder gets of the source.
        """
        source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
        one, length = typical(data)
        outputs, _ = model.write(one, length, 2 * one.shape[1] + 10)
        states = model.read(one)
        return encoder_decoder_states(
            states[0],
            model.decode(model.shift(outputs), states[:, -1])[0],
            [source.vocabulary[token] for token in one[0].tolist()],
            [target.vocabulary[token] for token in outputs[0].tolist()],
        )

    def picture_sentences(self, model: Seq2Seq, data: Data, history: History) -> Figure:
        """Whole sentences as points, by the vector between encoder and decoder.

        Left coloured by the first token of the target, right by the length of the source.
        """
        x, lengths, y, _ = next(iter(data.valid))
        vocabulary = Tokens.of(data.spec, "target_tokens").vocabulary
        vectors = model.begin(x, lengths)
        return sentence_map(vectors, y[:, 1], vocabulary, lengths, title="first of the target")


@dataclass(frozen=True, kw_only=True)
class LSTMTranslation(Translation[LSTMSeq2Seq]):
    """Translate a sentence through the last outputs of layers of long short-term memory."""

    embedding: int = 256
    """Size of the embedding of a token."""
    hidden_size: int = 512
    """Units of a layer."""
    layers: int = 2
    """Layers of the encoder and of the decoder."""
    dropout: float = 0.4
    """Share of embeddings and outputs of layers that is set to 0 in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "embedding", "hidden_size", "layers")
        self.within(0, 1, "dropout")

    def build(self, source: int, target: int) -> LSTMSeq2Seq:
        return LSTMSeq2Seq(
            source, target, embedding=self.embedding, hidden_size=self.hidden_size,
            layers=self.layers, dropout=self.dropout,
        )  # fmt: skip


RECIPES = {
    "seq2seq": Seq2SeqTranslation(
        steps=5000, lr=5e-3, clip=1.0, schedule="one-cycle",
        goal="exact >= 0.99", covers=("R29",),
    ),
    "seq2seq-lstm": LSTMTranslation(
        embedding=16, hidden_size=96, dropout=0.0, steps=5000, lr=5e-3, clip=1.0,
        schedule="one-cycle", goal="exact >= 0.99", covers=("R29",),
    ),
}  # fmt: skip
