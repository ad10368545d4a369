"""The neural conversation model: one LSTM reads what was said, another writes the reply.

    h_t, m_t = LSTM(E x_t, h_{t-1}, m_{t-1}),  h_0 = m_0 = 0    (1)  encoder, over the context
    v = h_Tx                                                    (2)  thought vector: its last state
    s_t, m_t = LSTM(E y_{t-1}, s_{t-1}, m_{t-1})                (3)  decoder, s_0 = v, m_0 = 0
    p(y_t | y_1 .. y_{t-1}, v) = softmax(W s_t + b)             (4)  the next word, y_0 = <start>
    perplexity = exp(-mean_t log p(y_t | y_1 .. y_{t-1}, v))    (5)  over all words and ends

x are the tokens of the turns before, with who speaks and where a turn ends
(`data/texts/turns.py`); the last of them is the <turn> that ends what is to be answered, and the
state of each layer there is all that the decoder gets. E is one embedding for both; (1) and (3)
have several layers, each with states of its own, of torch's cell: equations (1) to (6) of
`recurrent/lstm.py`. The cross-entropy is minimised by gradient descent with clipping. Decoding
(`nn/decoding.py`) takes the likeliest word, a beam, or draws.

Vinyals, Le (2015), "A neural conversational model", arXiv:1506.05869; Li et al. (2016), "A
diversity-promoting objective function for neural conversation models", arXiv:1510.03055, for how
often the likeliest reply is a dull one. Unlike the first, the memory m does not reach the decoder.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec
from everynet.data.samplers import Buckets
from everynet.data.texts.tokens import PAD, UNKNOWN, Tokens
from everynet.data.texts.turns import TURN
from everynet.metrics.meanings import MEANINGS
from everynet.nn.decoding import Choose, Draw, beam_search, generate, take_likeliest
from everynet.nn.recurrent import last_states
from everynet.plot import Panel, panels
from everynet.plot.sentences import sentence_map
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.dialogue.contexts import (
    Answer,
    describe_answer,
    encode_talk,
    find_ambiguous,
    pad_contexts,
)
from everynet.zoo.language.ngram_model import NGram, fit_trigrams
from everynet.zoo.translation.translation import Translation, Translator

States: TypeAlias = tuple[tuple[Tensor, Tensor], ...]
"""h and m of each layer, (batch, units)."""


class ConversationModel(Translator):
    """Maps contexts to the logits of the words of replies.

    x  (batch, context)  -> states of the encoder  (batch, context, units) -> v  (batch, units)
    y  (batch, reply)    -> states of the decoder  (batch, reply, units) -> logits of words
    """

    fillers: int = 0
    """Tokens from 0 on that are never written: all special ones but the end."""

    def __init__(
        self,
        vocabulary: int,
        *,
        embedding: int,
        hidden_size: int,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        sizes = [embedding, *[hidden_size] * (layers - 1)]
        self.encoder, self.decoder = (
            nn.ModuleList(nn.LSTM(size, hidden_size, batch_first=True) for size in sizes)
            for _ in range(2)
        )
        self.output = nn.Linear(hidden_size, vocabulary)
        self.dropout = nn.Dropout(dropout)

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> States:
        """The state of each layer at the end of the context, whatever follows; empty memories."""
        h = self.embedding(x)
        states: States = ()
        for layer in self.encoder:
            h, _ = layer(self.dropout(h))  # (1)
            v = last_states(h, lengths)  # (2)
            states = (*states, (v, torch.zeros_like(v)))
        return states

    def decode(
        self, before: Int[Tensor, "batch target"], states: States
    ) -> tuple[Float[Tensor, "batch target tokens"], States]:
        """Logits of each word after those that it is given, and the states then."""
        s = self.embedding(before)
        after: States = ()
        for layer, state in zip(self.decoder, states, strict=True):
            first = tuple(part[None].contiguous() for part in state)
            s, last = layer(self.dropout(s), first)  # (3)
            after = (*after, (last[0][0], last[1][0]))
        return self.output(self.dropout(s)), after  # (4)

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

    def write(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        longest: int,
        beam: int = 1,
        choose: Choose = take_likeliest,
    ) -> tuple[Int64[Tensor, "batch target"], Float[Tensor, " batch"]]:
        """Replies of up to `longest` tokens, padded with 0, and their log-probabilities.

        With a beam of 1 each token is taken as `choose` says; a wider one gives log-probabilities
        divided by the number of tokens. <unknown>, speakers and the like are never written.
        """
        state = self.begin(x, lengths)
        logits, state = self._step_known(torch.full_like(lengths, self.start), state)
        if beam == 1:
            tokens, score = generate(self._step_known, logits, state, longest, choose, end=self.end)
        else:
            tokens, score = beam_search(
                self._step_known, logits, state, longest, width=beam, end=self.end
            )
        ended = (tokens == self.end).cumsum(1) > 0
        return tokens.masked_fill(ended, 0)[:, : max(1, int((~ended).sum(1).max()))], score

    def _known(self, logits: Float[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens"]:
        never = torch.arange(logits.shape[1], device=logits.device)
        never = (never < self.fillers) & (never != self.end)
        return logits.masked_fill(never, -torch.inf)


# -------- the network ends here; training and pictures follow --------

WAYS = {
    "greedy": "the likeliest word at each step", "beam": "a beam of 5",
    "drawn": "words drawn from their probabilities",
}  # fmt: skip
"""How replies are written."""
LONGEST = 40
"""Tokens of a reply that is written, unless more are wanted."""
AT_ONCE = 64
"""Tokens of each reply whose logits are held at once in an evaluation."""


@dataclass(frozen=True, kw_only=True)
class Conversation(Translation[ConversationModel]):
    """Write the reply to what was said before."""

    made_for: ClassVar[tuple[str, ...]] = ("dialogue",)
    meanings: ClassVar[Mapping[str, str]] = {
        "cross_entropy": "the cross-entropy of a word of the true reply, or of its end, in nats",
        "perplexity": MEANINGS["perplexity"],
        "ngram_perplexity": "the same of trigrams of the replies (Kneser-Ney), the same words",
        "right": "the share of true replies that are written word for word, greedily",
        "right_earlier": "the same of contexts whose last turn alone has several replies",
        **{f"different_{way}": f"different replies by context, {how}" for way, how in WAYS.items()},
        **{f"commonest_{way}": "the share of the commonest of these" for way in WAYS},
    }  # fmt: skip
    last_weights: ClassVar[bool] = False
    captured: ClassVar[bool] = True

    data: str = "shop-talk"
    """A known set of conversations, JSON lines of turns, or a .tsv of context and reply."""
    tokens: str = "words"
    """Tokens: words, bpe or characters; or the vocabulary of a run."""
    shared_vocabulary: bool = True
    """Contexts and replies always have one vocabulary."""
    lower: bool = True
    """Whether texts are lower-cased first, also those of a prediction."""
    turns: int = 8
    """Turns of a context, the last ones."""
    words: int = 100
    """Words of a context, the last ones."""
    reply_words: int = 100
    """Words of a reply that is learned, the first ones; replies are evaluated whole."""
    embedding: int = 32
    """Size of the embedding of a token."""
    hidden_size: int = 128
    """Units of a layer."""
    layers: int = 1
    """Layers of the encoder and of the decoder."""
    dropout: float = 0.0
    """Share of embeddings and outputs of layers that is set to 0 in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "turns", "words", "reply_words", "embedding", "hidden_size", "layers")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")
        self.require(self.shared_vocabulary, "shared_vocabulary", "true: all speak one language")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="pairs", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, shared_vocabulary=True, turns=self.turns,
            words=self.words,
        )  # fmt: skip
        longest = (sys.maxsize, self.reply_words + 2)  # <start> and the end are no words
        sampler = Buckets(("ragged", "ragged"), self.pad_to, at_most=longest)
        return replace(data, sampler=sampler, eval_batch_size=250)

    def model(self, data: Data) -> ConversationModel:
        model = super().model(data)
        model.fillers = len(Tokens.of(data.spec).special)
        return model

    def build(self, source: int, target: int) -> ConversationModel:
        return ConversationModel(
            target, embedding=self.embedding, hidden_size=self.hidden_size, layers=self.layers,
            dropout=self.dropout,
        )  # fmt: skip

    def metrics(self, model: ConversationModel, batch: Batch) -> dict[str, Tensor]:
        """The summed loss of the tokens of each reply, and their count."""
        x, lengths, y, y_lengths = batch
        state, nats = model.begin(x, lengths), torch.zeros(len(x), device=x.device)
        pieces = (tokens.split(AT_ONCE, 1) for tokens in (y[:, :-1], y[:, 1:]))
        for before, target in zip(*pieces, strict=True):
            logits, state = model.decode(before, state)
            loss = cross_entropy(logits.mT, target, ignore_index=0, reduction="none")
            nats = nats + loss.sum(1)
        return {"nats": nats, "tokens": (y_lengths - 1).double()}

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        nats = (outputs["nats"].double().sum() / outputs["tokens"].double().sum()).item()
        return {"cross_entropy": nats, "perplexity": math.exp(nats)}  # (5)

    def monitor(self) -> Goal | None:
        """The cross-entropy chooses: replies are written only at the end."""
        return Goal("cross_entropy", "<=", 0.0) if Training.monitor(self) else None

    def final(
        self,
        model: ConversationModel,
        data: Data,
        generator: torch.Generator,
        *,
        beam: int = 5,
        contexts: int = 1000,
    ) -> dict[str, float]:
        """How many of the replies to some contexts are right, different, and the commonest one.

        Beside the perplexity of all test replies by trigrams of the training replies.
        """
        if min(beam, contexts) < 1:
            raise UserError(f"beam ({beam}) and contexts ({contexts}) must be at least 1")
        found = dict[str, float]()
        rows = torch.arange(min(contexts, data.rows("test")))
        x, lengths, y, _ = data.sampler.at(data.splits["test"], rows)  # type: ignore[attr-defined]  # buckets
        said = {way: list[tuple[int, ...]]() for way in WAYS}
        draw = Draw(generator)
        for some, its in zip(x.split(250), lengths.split(250), strict=True):
            for way, width, choose in (
                ("greedy", 1, take_likeliest), ("beam", beam, take_likeliest), ("drawn", 1, draw),
            ):  # fmt: skip
                written, _ = model.write(some, its, LONGEST, width, choose)
                said[way] += [tuple(n for n in row if n) for row in written.tolist()]
        true = [tuple(n for n in row[1:] if n not in (0, model.end)) for row in y.tolist()]
        right = torch.tensor([a == b for a, b in zip(said["greedy"], true, strict=True)]).double()
        found["right"] = right.mean().item()
        earlier = find_ambiguous(x, lengths, y, Tokens.of(data.spec))
        if earlier.any():
            found["right_earlier"] = right[earlier].mean().item()
        for way, replies in said.items():
            found[f"different_{way}"] = len({*replies}) / len(replies)
            found[f"commonest_{way}"] = Counter(replies).most_common(1)[0][1] / len(replies)
        if (trigrams := fit_replies(data)) is not None:
            logp, _ = score_replies(trigrams, data, "test")
            found["ngram_perplexity"] = math.exp(-logp.mean().item())
        return found

    def predict(  # type: ignore[override]  # other settings of the verb
        self,
        model: ConversationModel,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        longest: int = LONGEST,
        beam: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Sequence[dict[str, Any]]:
        """Replies of up to `longest` tokens; drawn where there is a temperature above 0."""
        _check_writing(longest, beam, temperature)
        x, lengths, counts = pad_contexts(inputs, spec, model.output.weight.device)
        random = torch.Generator().manual_seed(seed)
        choose: Choose = Draw(random, temperature) if temperature else take_likeliest
        outputs, score = model.write(x, lengths, longest, beam, choose)
        written = ((outputs != 0).sum(1) + 1).clamp(max=longest)  # with the end, if it came
        total = score if beam == 1 else score * written
        tokens, found = Tokens.of(spec), list[dict[str, Any]]()
        for row, value, count in zip(outputs.tolist(), total.tolist(), counts, strict=True):
            text = tokens.decode(row)
            answer = {"output": text, "log_probability": value}
            found.append(answer | describe_answer(text, spec, count))
        return found

    def chat(
        self,
        model: ConversationModel,
        spec: Spec,
        *,
        temperature: float = 0.0,
        beam: int = 1,
        longest: int = LONGEST,
    ) -> Answer:
        """Answers with what it writes: the likeliest words, or drawn ones, as `/again` does."""
        _check_writing(longest, beam, temperature)
        tokens = Tokens.of(spec)

        def answer(
            turns: Sequence[tuple[str, str]], random: torch.Generator, n: int
        ) -> dict[str, Any]:
            context = encode_talk(turns, spec)
            x, lengths, counts = pad_contexts([context], spec, model.output.weight.device)
            drawn = temperature or float(n > 0)
            choose: Choose = Draw(random, drawn) if drawn else take_likeliest
            written, _ = model.write(x, lengths, longest, 1 if drawn else beam, choose)
            text = tokens.decode(written[0].tolist())
            return {"answer": text} | describe_answer(text, spec, counts[0])

        return answer

    def says(self, model: ConversationModel, spec: Spec, generator: torch.Generator) -> str:
        """What it replies to some of the commonest replies."""
        said = spec["replies"][:4]
        found = self.predict(model, [encode_talk((("0", text),), spec) for text in said], spec)
        return "\n".join(f"{a} -> {b['output']}" for a, b in zip(said, found, strict=True))

    picture_length = None  # type: ignore[assignment]  # of translations

    def picture_turns(
        self, model: ConversationModel, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]] | None:
        """The perplexity of unseen replies by how many turns of the conversation were read.

        Trigrams read none: where the network is far below them, what was said before helps. Over
        all replies it has {network}, trigrams {ngrams}.
        """
        if (trigrams := fit_replies(data)) is None:
            return None
        end, parts = Tokens.of(data.spec).index[TURN], list[Tensor]()
        for batch in data.valid:
            values = self.metrics(model, batch)
            both = [(batch[0] == end).sum(1), values["nats"], values["tokens"]]
            parts.append(torch.stack([value.double().cpu() for value in both]))
        turns, nats, tokens = torch.cat(parts, 1)
        logp, reply = score_replies(trigrams, data, "valid")
        theirs = torch.zeros_like(nats).index_add_(0, reply, -logp)
        at = [int(n) for n in turns.unique() if (turns == n).sum() >= 10]
        curves = {
            name: (
                torch.tensor(at),
                torch.stack([(v[turns == n].sum() / tokens[turns == n].sum()).exp() for n in at]),
            )
            for name, v in (("network", nats), ("trigrams", theirs))
        }  # fmt: skip
        drawn = panels(
            Panel(curves, "turns that were read", "perplexity of a word (validation)", log="y"),
            width=4.6,
        )
        whole = ((value.sum() / tokens.sum()).exp() for value in (nats, theirs))
        return drawn, {
            name: f"{value:.1f}" for name, value in zip(("network", "ngrams"), whole, strict=True)
        }

    def picture_commonest(self, model: ConversationModel, data: Data, history: History) -> Figure:
        """The share of the commonest reply, of the second and so on, to 250 unseen contexts.

        A line above the dashes on the left is a network that says the same to too many: the dull
        answer. Where lines lie on each other its replies are as varied as the true ones.
        """
        x, lengths, y, _ = next(iter(data.valid))
        draw = Draw(torch.Generator().manual_seed(self.seed))
        replies = {
            "likeliest words": model.write(x, lengths, LONGEST)[0],
            "drawn words": model.write(x, lengths, LONGEST, choose=draw)[0],
            "true replies": y[:, 1:].masked_fill(y[:, 1:] == model.end, 0),
        }
        curves = dict[str, tuple[Tensor, Tensor]]()
        for name, rows in replies.items():
            counts = Counter(tuple(n for n in row if n) for row in rows.tolist())
            shares = torch.tensor([n for _, n in counts.most_common()]) / len(rows)
            curves[name] = (torch.arange(1, len(shares) + 1), shares)
        truth = {"true replies": curves.pop("true replies")}
        across, up = "reply, the commonest first", "share of the replies"
        return panels(Panel(curves, across, up, guides=truth, log="xy"), width=4.6)

    def picture_thoughts(self, model: ConversationModel, data: Data, history: History) -> Figure:
        """Whole contexts as points, by the thought vector of the last layer.

        Left coloured by the first word of the true reply, right by the length of the context.
        """
        x, lengths, y, _ = next(iter(data.valid))
        vocabulary = Tokens.of(data.spec).vocabulary
        vectors = model.begin(x, lengths)[-1][0]
        return sentence_map(vectors, y[:, 1], vocabulary, lengths, title="first of the reply")

    def tiny(self) -> Self:
        return replace(Training.tiny(self), data="shop-talk:100", turns=4)


def _check_writing(longest: int, beam: int, temperature: float) -> None:
    if longest < 1:
        raise UserError(f"longest ({longest}) must be at least 1, the tokens of a reply")
    if beam < 1:
        raise UserError(f"beam ({beam}) must be 1, which takes the likeliest word, or more")
    if temperature < 0:
        raise UserError(f"temperature ({temperature}) must be above 0, or 0 for the likeliest word")
    if beam > 1 and temperature:
        raise UserError(
            f"beam ({beam}) must be 1 where temperature ({temperature}) is above 0, because words "
            "are either searched or drawn; leave one of them out"
        )


def fit_replies(data: Data) -> NGram | None:
    """Trigrams of the training replies; None where these are too few for any."""
    tokens = Tokens.of(data.spec)
    names = {tokens.end: "</s>", tokens.unknown: UNKNOWN, 0: PAD}
    words = [names.get(n, word) for n, word in enumerate(tokens.vocabulary)]
    try:
        return fit_trigrams(_reply_words(data, "train")[0], words)
    except UserError:
        return None


def score_replies(
    trigrams: NGram, data: Data, part: str
) -> tuple[Float[Tensor, " words"], Int64[Tensor, " words"]]:
    """Log P of every word of the replies of a part, and the number of its reply."""
    words, reply = _reply_words(data, part)
    return torch.from_numpy(trigrams.score_words(words)[0]), reply


def _reply_words(data: Data, part: str) -> tuple[Tensor, Tensor]:
    """The words and ends of all replies of a part, and the number of the reply of each."""
    _, _, stream, starts = data.splits[part]
    reply = torch.repeat_interleave(torch.arange(len(starts) - 1), starts.diff().cpu())
    said = stream.cpu() != Tokens.of(data.spec).start
    return stream.cpu()[said].long(), reply[said]


RECIPES = {
    "conversation": Conversation(
        steps=5000, batch_size=32, lr=10.0, optimizer="sgd", schedule="one-cycle", clip=1.0,
        goal="right_earlier >= 0.99", covers=("R38",),
    ),
    "conversation-chitchat": Conversation(
        data="chitchat", vocabulary=10000, turns=4, words=56, reply_words=94, embedding=512,
        hidden_size=512, layers=2, dropout=0.4, batch_size=128, steps=8000, lr=10.0,
        optimizer="sgd", schedule="cosine", floor=0.01, clip=0.5, pad_to=32, eval_every=800,
        goal="perplexity <= 115", covers=("R38",),
    ),
}  # fmt: skip
