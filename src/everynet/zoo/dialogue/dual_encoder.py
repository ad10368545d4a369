"""The dual encoder: which of many replies belongs to what was said before.

    c = h_Tc,  h_t = LSTM(E x_t, h_{t-1})                      (1)  context, by its last state
    r = h_Tr,  h_t = LSTM(E y_t, h_{t-1})                      (2)  reply, by the same network
    p(true | c, r) = sigmoid(c^T M r)                          (3)  whether they belong together
    L = -[log p(true | c, r) + mean_d log(1 - p(true | c, d))] / 2    (4)  d: drawn replies
    L = -log softmax_j(c_i^T M r_j)[i]                         (5)  r_j: all replies of the batch

x are the tokens of a context, turns and speakers among them (`data/texts/turns.py`), y those of a
reply between <start> and <end>; E is an embedding, LSTM torch's cell, equations (1) to (6) of
`recurrent/lstm.py`. What follows a text is padding and changes nothing. With one drawn reply for
each true one (4) is the paper's; with more it learns faster. (5) takes the other replies of the
batch as distractors, with one product for all of them; a reply that is word for word the true one
is none. Where a reply is to be found, the true one stands among nine that were drawn
(`records.py`), or all are scored.

Lowe et al. (2015), "The Ubuntu dialogue corpus", arXiv:1506.08909, section 4.3; Henderson et al.
(2017), "Efficient natural language response suggestion for Smart Reply", arXiv:1705.00652, for (5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.loading import samples
from everynet.data.samplers import Rows
from everynet.data.split import PARTS
from everynet.data.texts.tokens import Tokens
from everynet.data.texts.turns import OTHER, SELF, THIRD, TURN
from everynet.nn.recurrent import last_states
from everynet.plot import Panel, panels
from everynet.plot.words import word_values
from everynet.recipes.recipe import Goal
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.dialogue import tfidf
from everynet.zoo.dialogue.contexts import (
    Answer,
    describe_answer,
    encode_talk,
    find_ambiguous,
    pad_contexts,
    read_replies,
)
from everynet.zoo.dialogue.pictures.replies import draw_reply_plane
from everynet.zoo.dialogue.records import DISTRACTORS, draw_others

KEPT = 5_000
"""Replies of training that a run keeps, the commonest: those it answers with."""
AT_ONCE = 512
"""Texts that are encoded together."""


class DualEncoder(nn.Module):
    """Maps contexts and replies to the logit of each belonging together.

    x, y  (batch, tokens)  -> states of the LSTM  (batch, tokens, units)  -> c, r  (batch, units)
    c, M, r                -> logits  (batch,), or of all replies for all contexts
    """

    def __init__(
        self, vocabulary: int, *, embedding: int, hidden_size: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.M = nn.Parameter(torch.eye(hidden_size))

    def encode(
        self, x: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch units"]:
        """The state after the last token of each text, whatever padding follows it."""
        states = self.lstm(self.dropout(self.embedding(x)))[0]
        last: Tensor = self.dropout(last_states(states, lengths.long()))  # (1) (2)
        return last

    def score_pairs(
        self, c: Float[Tensor, "*batch units"], r: Float[Tensor, "*batch units"]
    ) -> Float[Tensor, "*batch"]:
        """The logit c^T M r of each context with its own reply."""
        return (c @ self.M * r).sum(-1)  # (3)

    def score_all(
        self, c: Float[Tensor, "batch units"], r: Float[Tensor, "replies units"]
    ) -> Float[Tensor, "batch replies"]:
        """The logits of every context with every reply, as one product."""
        return c @ self.M @ r.T

    def forward(
        self,
        x: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        y: Int[Tensor, "batch target"],
        y_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        return self.score_pairs(self.encode(x, lengths), self.encode(y, y_lengths))

    def encode_texts(self, texts: Sequence[Sequence[int]]) -> Float[Tensor, "texts units"]:
        """Many texts, those of similar length together."""
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        found = self.M.new_empty(len(texts), len(self.M))
        for start in range(0, len(order), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            x = pad_sequence([torch.tensor(texts[n]) for n in rows], batch_first=True)
            lengths = torch.tensor([len(texts[n]) for n in rows])
            found[rows] = self.encode(x.to(self.M.device), lengths.to(self.M.device))
        return found


def drawn_loss(scores: Float[Tensor, "batch replies"]) -> Float[Tensor, " batch"]:
    """The cross-entropy of logits, of a true reply and of those behind it, which were drawn."""
    return (softplus(-scores[:, 0]) + softplus(scores[:, 1:]).mean(1)) / 2  # (4)


def batch_loss(
    scores: Float[Tensor, "batch batch"], y: Int[Tensor, "batch time"]
) -> Float[Tensor, " batch"]:
    """The cross-entropy of each context's own reply among all of the batch."""
    same = (y[:, None] == y[None]).all(2) & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    targets = torch.arange(len(y), device=y.device)
    return cross_entropy(scores.masked_fill(same, -torch.inf), targets, reduction="none")  # (5)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class ReplyRetrieval(Training[DualEncoder]):
    """Find the reply that belongs to what was said before."""

    made_for: ClassVar[tuple[str, ...]] = ("dialogue",)
    meanings: ClassVar[Mapping[str, str]] = {
        "recall_1": "the share of contexts whose true reply is the first of ten",
        **{f"recall_{k}": f"the same, among the first {k} of ten" for k in (2, 5)},
        "cross_entropy": "the loss of the true reply and the nine others, in nats",
        **{f"tfidf_{k}": f"the recall at {k} of ten of TF-IDF" for k in (1, 2, 5)},
        **{f"both_{k}": f"the recall at {k} of both scores, standardised and summed"
           for k in (1, 2, 5)},
        "right": "the share of contexts whose true reply is the first of all replies of the test",
        "right_earlier": "the same of contexts whose last turn alone has several replies",
    }  # fmt: skip

    data: str = "shop-talk"
    """A known set of conversations, JSON lines of turns, or a .tsv of context and reply."""
    tokens: str = "words"
    """Tokens: words, bpe or characters; or the vocabulary of a run."""
    vocabulary: int = 0
    """Size of the vocabulary, the commonest tokens; 0 keeps all of training."""
    lower: bool = True
    """Whether texts are lower-cased first."""
    turns: int = 8
    """Turns of a context, the last ones."""
    words: int = 100
    """Words of a context, the last ones."""
    reply_words: int = 40
    """Words of a reply, the first ones."""
    embedding: int = 32
    """Size of the embedding of a token."""
    hidden_size: int = 128
    """Units of the LSTM: the size of c and r."""
    dropout: float = 0.0
    """Share of embeddings and of numbers of c and r that is set to 0 in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "turns", "words", "reply_words", "embedding", "hidden_size")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="pairs", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, shared_vocabulary=True, turns=self.turns,
            words=self.words, replies=KEPT,
        )  # fmt: skip
        splits = {
            part: make_records(data.splits[part], self.reply_words, f"{data.spec['name']}: {part}")
            for part in PARTS
        }
        return replace(data, splits=splits, sampler=Rows(), eval_batch_size=200)

    def model(self, data: Data) -> DualEncoder:
        return DualEncoder(
            len(data.spec["tokens"]["vocabulary"]), embedding=self.embedding,
            hidden_size=self.hidden_size, dropout=self.dropout,
        )  # fmt: skip

    def metrics(self, model: DualEncoder, batch: Batch) -> dict[str, Tensor]:
        scores = score_ten(model, batch)
        rank = tfidf.rank_first(scores)
        recalls = {f"recall_{k}": (rank <= k).double() for k in (1, 2, 5)}
        return {**recalls, "cross_entropy": self.loss_of_ten(scores)}

    def loss_of_ten(self, scores: Float[Tensor, "batch ten"]) -> Float[Tensor, " batch"]:
        """The loss where the true reply is the first of ten."""
        raise NotImplementedError  # every recipe says it

    def probability(self, scores: Float[Tensor, "batch replies"]) -> Float[Tensor, "batch replies"]:
        """The probability of each reply that is offered."""
        raise NotImplementedError  # every recipe says it

    def monitor(self) -> Goal | None:
        """Whether the first of all replies is right is measured only at the end."""
        return Goal("recall_1", ">=", 1.0) if super().monitor() else None

    def final(self, model: DualEncoder, data: Data, generator: torch.Generator) -> dict[str, float]:
        """Recalls of TF-IDF and of both, and the share of right answers among all of the test.

        TF-IDF is fitted to training texts: on other data than the run's own it is left out.
        """
        found = dict[str, float]()
        if not data.test_only:
            ours, words = self._score_both(model, data, "test")
            both = tfidf.standardize(ours) + tfidf.standardize(words)
            for name, scores in (("tfidf", words), ("both", both)):
                found |= {f"{name}_{k}": tfidf.recall(scores, k) for k in (1, 2, 5)}
        x, lengths, y, *_ = data.splits["test"]
        replies, own = y.unique(dim=0, return_inverse=True)
        r = model.encode_texts([[n for n in row if n] for row in replies.tolist()])
        best = torch.cat([
            model.score_all(model.encode(some, its), r).argmax(1)
            for some, its in zip(x.split(AT_ONCE), lengths.split(AT_ONCE), strict=True)
        ])  # fmt: skip
        right = (best == own).cpu()
        found["right"] = right.double().mean().item()
        earlier = find_ambiguous(x, lengths, y, Tokens.of(data.spec))
        if earlier.any():
            found["right_earlier"] = right[earlier].double().mean().item()
        return found

    def _score_both(self, model: DualEncoder, data: Data, part: str) -> tuple[Tensor, Tensor]:
        """The scores of the true reply and of the nine others: of the network and of TF-IDF."""
        batches = data.sampler.evaluation(data.splits[part], self.batch_size, data.eval_batch_size)
        ours = torch.cat([score_ten(model, batch) for batch in batches]).double().cpu()
        talk = samples(self.data, kind="pairs", turns=self.turns).without_repeats(self.turns)
        _, _, y, _, others, _ = data.splits[part]
        ten = torch.cat([y[:, None], others], 1).flatten(0, 1).tolist()
        texts = talk.parts[part][1]
        known = {tuple(row): text for row, text in zip(y.tolist(), texts, strict=True)}
        number = {row: n for n, row in enumerate(known)}
        candidates = torch.tensor([number[tuple(row)] for row in ten]).view(len(y), -1)
        words = tfidf.score_by_words(talk, part, self.turns, [*known.values()], candidates)
        return ours, words

    def predict(
        self,
        model: DualEncoder,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        candidates: str = "",
        n: int = 3,
    ) -> Sequence[dict[str, Any]]:
        """The `n` likeliest replies to each context, of training or of a file with one a line."""
        if n < 1:
            raise UserError(f"n ({n}) must be at least 1, the replies that are given")
        texts = read_replies(candidates, "candidates") if candidates else spec["replies"]
        return self._rank(model, inputs, spec, self._encode(model, texts, spec), n)

    def _encode(
        self, model: DualEncoder, texts: Sequence[str], spec: Spec
    ) -> tuple[Sequence[str], Tensor]:
        """Replies and their vectors."""
        tokens = Tokens.of(spec)
        cut = (tokens.encode(text)[: self.reply_words] for text in texts)
        return texts, model.encode_texts([[tokens.start, *one, tokens.end] for one in cut])

    def _rank(
        self,
        model: DualEncoder,
        inputs: Sequence[Tensor],
        spec: Spec,
        known: tuple[Sequence[str], Tensor],
        n: int,
    ) -> list[dict[str, Any]]:
        """The likeliest of known replies to each context."""
        texts, replies = known
        x, lengths, counts = pad_contexts(inputs, spec, model.M.device)
        scores = model.score_all(model.encode(x, lengths), replies)
        p = self.probability(scores)
        best = scores.topk(min(n, len(texts)), dim=1).indices
        found = list[dict[str, Any]]()
        for row, (chosen, count) in enumerate(zip(best.tolist(), counts, strict=True)):
            ranked = [[texts[k], p[row, k].item()] for k in chosen]
            answer = {"output": ranked[0][0], "probability": ranked[0][1], "replies": ranked}
            found.append(answer | describe_answer(ranked[0][0], spec, count))
        return found

    def chat(
        self, model: DualEncoder, spec: Spec, *, replies: str = "", temperature: float = 0.0
    ) -> Answer:
        """Answers with the likeliest reply of training, or of a file; the next one `/again`.

        With a temperature above 0 it is drawn, by the softmax of the scores divided by it.
        """
        if temperature < 0:
            raise UserError(f"temperature ({temperature}) must be at least 0, which takes the best")
        texts = read_replies(replies, "replies") if replies else spec["replies"]
        _, known = self._encode(model, texts, spec)

        def answer(
            turns: Sequence[tuple[str, str]], random: torch.Generator, n: int
        ) -> dict[str, Any]:
            x, lengths, counts = pad_contexts([encode_talk(turns, spec)], spec, model.M.device)
            scores = model.score_all(model.encode(x, lengths), known)
            p = self.probability(scores)[0]
            if temperature:
                weights = (scores[0].double().cpu() / temperature).softmax(0)
                chosen = int(torch.multinomial(weights, 1, generator=random))
            else:
                chosen = int(scores[0].topk(1 + n % len(texts)).indices[-1])
            text = texts[chosen]
            return {"answer": text, "probability": p[chosen].item()} | describe_answer(
                text, spec, counts[0]
            )

        return answer

    def says(self, model: DualEncoder, spec: Spec, generator: torch.Generator) -> str:
        """The likeliest reply to some of the commonest ones."""
        texts, said = spec["replies"][:500], spec["replies"][:4]
        inputs = [encode_talk((("0", text),), spec) for text in said]
        found = self._rank(model, inputs, spec, self._encode(model, texts, spec), 1)
        return "\n".join(f"{a} -> {b['output']}" for a, b in zip(said, found, strict=True))

    def tiny(self) -> Self:
        return replace(super().tiny(), data="shop-talk:200", tokens="words", warmup=0)

    # ------------------------------------------------------------------------------ pictures

    def picture_ranks(
        self, model: DualEncoder, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """How often the true reply is among the first k of ten, of unseen contexts.

        The network finds {ours} first, TF-IDF {words}, the sum of both {both}; chance is a tenth.
        """
        ours, words = self._score_both(model, data, "valid")
        both = tfidf.standardize(ours) + tfidf.standardize(words)
        k = torch.arange(1, DISTRACTORS + 2)
        found = {"network": ours, "TF-IDF": words, "both": both}
        curves = {
            name: (k, torch.tensor([tfidf.recall(scores, int(n)) for n in k]))
            for name, scores in found.items()
        }
        drawn = panels(
            Panel(
                curves, "k, of ten replies", "share of contexts (validation)",
                guides={"chance": (k, k / len(k))}, ylim=(0, 1.02), legend="lower right",
            ),
        )  # fmt: skip
        firsts = zip(("ours", "words", "both"), curves.values(), strict=True)
        return drawn, {name: f"{curve[1][0]:.0%}" for name, curve in firsts}

    def picture_words(self, model: DualEncoder, data: Data, history: History) -> Figure | None:
        """By how much the margin of the true reply falls without each word of a context.

        The margin is the logit of the true reply minus the mean of nine others. Above 0 a word
        spoke for the true reply, below 0 against it.
        """
        tokens, batch = Tokens.of(data.spec), next(iter(data.valid))
        skipped = {tokens.index[one] for one in (TURN, SELF, OTHER, THIRD)}
        scores, lines = score_ten(model, batch), list[tuple[list[str], Tensor, str]]()
        wanted = (tfidf.rank_first(scores) == 1) & (batch[1] >= 6) & (batch[1] <= 24)
        order = (scores[:, 0] - scores[:, 1:].amax(1)).masked_fill(~wanted, -torch.inf)
        for row in order.topk(min(4, int(wanted.sum()))).indices.tolist():
            one = tuple(part[row : row + 1] for part in batch)
            x = one[0][0, : one[1][0]].tolist()
            places = [n for n, token in enumerate(x) if token not in skipped]
            without = torch.tensor([[t for k, t in enumerate(x) if k != n] for n in places])
            many = tuple(part.expand(len(places), *part.shape[1:]) for part in one[2:])
            lengths = torch.full((len(places),), len(x) - 1, device=one[0].device)
            cut = score_ten(model, (without.to(one[0].device), lengths, *many))
            drops = _margin(score_ten(model, one)) - _margin(cut)
            name = tokens.decode(one[2][0].tolist())
            words = [tokens.vocabulary[x[n]] for n in places]
            lines.append(
                (words, drops.double().cpu(), name if len(name) < 52 else f"{name[:49]}...")
            )
        if len(lines) < 2:
            return None
        return word_values(lines, "fall of the margin (logits)", changed=False)

    def picture_plane(self, model: DualEncoder, data: Data, history: History) -> Figure:
        """Replies on a plane for one context: across by their logit, up as they differ otherwise.

        The rightmost are the likeliest. Those that belong together lie together; a ring is the true
        reply.
        """
        tokens, batch = Tokens.of(data.spec), next(iter(data.valid))
        row = int(batch[1].argsort()[len(batch[1]) * 3 // 4])
        replies, own = batch[2].unique(dim=0, return_inverse=True)
        r = model.encode_texts([[n for n in one if n] for one in replies.tolist()])
        c = model.encode(batch[0][row : row + 1], batch[1][row : row + 1])
        said = tokens.decode(batch[0][row].tolist())
        return draw_reply_plane(
            model.score_all(c, r)[0], r, [tokens.decode(one) for one in replies.tolist()],
            int(own[row]), said if len(said) < 90 else f"... {said[-86:]}",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BatchReplies(ReplyRetrieval):
    """Find the true reply to a context among all of the batch."""

    def objective(self, model: DualEncoder, batch: Batch) -> Terms:
        x, lengths, y, y_lengths, *_ = batch
        scores = model.score_all(model.encode(x, lengths), model.encode(y, y_lengths))
        return {"cross_entropy": batch_loss(scores, y).mean()}

    def loss_of_ten(self, scores: Float[Tensor, "batch ten"]) -> Float[Tensor, " batch"]:
        return cross_entropy(scores, scores.new_zeros(len(scores)).long(), reduction="none")

    def probability(self, scores: Float[Tensor, "batch replies"]) -> Float[Tensor, "batch replies"]:
        """The probability of each reply among all that are offered."""
        return scores.softmax(1)


@dataclass(frozen=True, kw_only=True)
class DrawnReplies(ReplyRetrieval):
    """Tell the true reply to a context from others that were drawn."""

    drawn: int = 1
    """Drawn replies for each true one that is learned from, of nine; another choice each time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(1 <= self.drawn <= DISTRACTORS, "drawn", f"from 1 to {DISTRACTORS}")

    def objective(self, model: DualEncoder, batch: Batch) -> Terms:
        *true, others, counts = batch
        first = torch.randint(others.shape[1], (len(others), 1), device=others.device)
        chosen = (first + torch.arange(self.drawn, device=others.device)) % others.shape[1]
        rows = torch.arange(len(others), device=others.device)[:, None]
        scores = score_ten(model, (*true, others[rows, chosen], counts[rows, chosen]))
        return {"cross_entropy": drawn_loss(scores).mean()}

    def loss_of_ten(self, scores: Float[Tensor, "batch ten"]) -> Float[Tensor, " batch"]:
        return drawn_loss(scores)

    def probability(self, scores: Float[Tensor, "batch replies"]) -> Float[Tensor, "batch replies"]:
        """The probability of each reply that it is a true one."""
        return scores.sigmoid()


def score_ten(model: DualEncoder, batch: Batch) -> Float[Tensor, "batch ten"]:
    """The logits of the true reply of each context, and of drawn ones, nine at most, behind it."""
    x, lengths, y, y_lengths, others, other_lengths = batch
    replies = torch.cat([y[:, None], others], 1)
    counts = torch.cat([y_lengths[:, None], other_lengths], 1)
    r = model.encode(replies.flatten(0, 1), counts.flatten()).unflatten(0, counts.shape)
    c = model.encode(x, lengths)[:, None].expand_as(r)
    return model.score_pairs(c, r)


def _margin(scores: Float[Tensor, "rows ten"]) -> Float[Tensor, " rows"]:
    return scores[:, 0] - scores[:, 1:].mean(1)


def make_records(split: Batch, reply_words: int, name: str) -> Batch:
    """A context, its reply and nine others in each row, all padded, and the lengths of each.

    The others are drawn from all different replies of the part, the same ones for every seed.
    """
    contexts, replies = (
        [stream[first:last].tolist() for first, last in pairwise(starts)]
        for stream, starts in ((split[0], split[1].tolist()), (split[2], split[3].tolist()))
    )
    cut = [tuple([*reply[: reply_words + 1], reply[-1]][: len(reply)]) for reply in replies]
    number = {reply: n for n, reply in enumerate(dict.fromkeys(cut))}
    if len(number) <= DISTRACTORS:
        raise UserError(
            f"{name} ({len(number)} different replies) must hold at least {DISTRACTORS + 1}, "
            "because the true one is found among ten; add conversations"
        )
    random = generator(0, DISTRACTORS)
    own = [number[reply] for reply in cut]
    drawn = torch.tensor([draw_others(n, len(number), DISTRACTORS, random) for n in own])
    x, y = (
        pad_sequence([torch.tensor(one, dtype=torch.int32) for one in some], batch_first=True)
        for some in (contexts, [*number])
    )
    lengths = torch.tensor([len(one) for one in contexts])
    y_lengths = torch.tensor([len(one) for one in number])
    return x, lengths, y[own], y_lengths[own], y[drawn], y_lengths[drawn]


RECIPES = {
    "dual-encoder": BatchReplies(
        steps=1200, lr=5e-3, schedule="one-cycle", clip=1.0,
        goal="right_earlier >= 0.99", covers=("R36",),
    ),
    "dual-encoder-drawn": DrawnReplies(
        drawn=9, steps=1200, lr=5e-3, schedule="one-cycle", clip=1.0,
        goal="recall_1 >= 0.9", covers=("R36",),
    ),
    "dual-encoder-ubuntu": BatchReplies(
        data="ubuntu-irc", tokens="bpe", vocabulary=8000, turns=6, words=160, reply_words=60,
        embedding=256, hidden_size=256, dropout=0.5, steps=4000, batch_size=256, lr=1e-3,
        warmup=200, schedule="cosine", clip=1.0, eval_every=400, goal="recall_1 >= 0.38",
        covers=("R36",),
    ),
}  # fmt: skip
