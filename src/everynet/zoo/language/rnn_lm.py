"""A language model of words: an LSTM whose vectors of words serve for reading and for saying.

    x_t = drop(E[s_t])                                   (1)  the vector of word s_t, parts left out
    y_t = E drop(h_t) + c                                (2)  logits by the same vectors: tied
    L = -sum_t log softmax(y_t)[s_{t+1}] / lanes         (3)  summed over the window's words
    lr_n = lr / fall^k, k = 1 + floor((n - flat) / every)  (4)  from update n = flat on
    log P(s_1 .. s_n) = sum_t log softmax(y_{t-1})[s_t]  (5)  of a line, its end among its words

h_t is what the last of the layers gives; between layers parts are left out, too, but never on the
way through time, so that the memory is not disturbed. Lines are scored by (5), which also tells
which word fits a gap, and where which word is missing (`gaps.py`). How a text is read window by
window is in `recurrent/next_token.py`, the cell in `recurrent/lstm.py`.

Zaremba, Sutskever, Vinyals (2014), "Recurrent neural network regularization", arXiv:1409.2329;
Press, Wolf (2017), "Using the output embedding to improve language models", arXiv:1608.05859.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.texts.tokens import UNKNOWN, Tokens
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.recipes.recipe import Pictures
from everynet.recipes.state import State
from everynet.system.errors import UserError
from everynet.zoo.language.gaps import every, likeliest, place_of
from everynet.zoo.language.ngram_model import NGram, trigrams
from everynet.zoo.language.pictures.words import Bars, by_word, filled_gaps
from everynet.zoo.recurrent.lstm import LSTM
from everynet.zoo.recurrent.next_token import Carried, NextToken, Reader

LOGITS = 1 << 24
"""So many are held at once where lines are scored."""
TRIES = 200
"""Words that are tried at each place, where nothing else is said."""
NEWLINE, END, RARE = "\n", "</s>", "<unk>"


class TiedReader(Reader):
    """Maps words to logits of the ones that follow, by the same vectors."""

    def __init__(
        self,
        vocabulary: int,
        size: int,
        layers: Iterable[nn.Module],
        dropout: float = 0.0,
        spread: float = 0.1,
    ) -> None:
        super().__init__(vocabulary, size, layers, dropout)
        self.output.weight = self.embedding.weight  # (2)
        for weight in self.parameters():
            nn.init.uniform_(weight, -spread, spread)

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        """What the last layer gives at every word, and the state of every layer after the last."""
        x, last = self.embedding(s), []
        for number, layer in enumerate(self.layers):
            x, after = layer(self.dropout(x), None if h is None else h[number : number + 1])  # (1)
            last.append(after)
        return x, torch.cat(last)


@dataclass(frozen=True, kw_only=True)
class NextWord(NextToken):
    """Say the next word; score lines, fill gaps and find what is missing."""

    captions: ClassVar[dict[str, str]] = {
        "sentence": "The probability of each word of unseen lines before it came, by the network "
        "(bars) and by trigrams (dots), and what the network would have said: where more than two "
        "words decide, the bar is the longer one.",
        "gaps": "Unseen lines with a word left out, and the words that make each line likeliest, "
        "because they fit on both sides: the word that stood there is orange.",
        "missing": "A word was taken out of an unseen line and its place is not told: the "
        "likeliest word of each place, and orange the place where it stood.",
    }

    tokens: str = "words"
    """What is a token: words, characters or bpe (pieces of words)."""
    spread: float = 0.1
    """Weights begin between minus this and this."""
    flat: int = 0
    """Updates before the learning rate begins to fall."""
    every: int = 0
    """Updates between one fall of the learning rate and the next; 0 leaves it as it is."""
    fall: float = 1.2
    """What the learning rate is divided by at each fall."""

    numbers: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.spread > 0, "spread", "above 0")
        self.require(min(self.flat, self.every) >= 0, "flat" if self.flat < 0 else "every",
                     "at least 0")  # fmt: skip
        self.require(self.fall >= 1, "fall", "at least 1, because the rate is divided by it")

    def rate(self, step: int, history: History) -> float:
        falls = max(0, 1 + (step - self.flat) // self.every) if self.every else 0
        return super().rate(step, history) / self.fall**falls  # (4)

    def layer(self) -> LSTM:
        return LSTM(self.hidden_size, self.hidden_size)

    def model(self, data: Data) -> TiedReader:
        words = data.spec["shape"][0]
        if words < 3:
            raise UserError(
                f"data ({self.data}) must hold at least 2 different {self.tokens}, because of one "
                "there is nothing to tell; give more text or a greater vocabulary"
            )
        layers = [self.layer() for _ in range(self.layers)]
        return TiedReader(words, self.hidden_size, layers, self.dropout, self.spread)

    def step(self, state: State[Reader, Carried], batch: Batch) -> Terms:
        s, following, keep = batch
        model = state.model
        states, h = model.states(s, state.extra.h * keep[:, None])
        said, output = model.dropout(states).flatten(0, 1), model.output
        loss = chunked_cross_entropy(said, output.weight, following.flatten(), output.bias)
        state.descend(loss * self.window, clip=self.clip, clip_value=self.clip_value)  # (3)
        state.extra.h.copy_(h.detach())
        return {"cross_entropy": loss}

    def predict(
        self,
        model: Reader,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        candidates: int = 5,
        missing: bool = False,
        tries: int = TRIES,
    ) -> Sequence[dict[str, Any]]:
        """How likely each line is and each of its words; which words fill its gap, `___`, best.

        With `missing`, which word is missing, and where. Of each place the `tries` words that are
        likeliest after what is before are tried; 0 tries every word.
        """
        tokens = Tokens.of(spec)
        if candidates < 1:
            raise UserError(f"candidates ({candidates}) must be at least 1")
        if tries < 0:
            raise UserError(f"tries ({tries}) must be at least 1, or 0, which tries every word")
        lines = ScoredLines(model, tokens)
        answers: list[dict[str, Any]] = []
        for given in inputs:
            line = lines.known(given)
            if missing and bool((line == BLANK).any()):
                raise UserError(
                    f"a line with {GAP} says where a word is missing; leave out missing="
                )
            if missing or bool((line == BLANK).any()):
                answers.append(lines.completed(line, candidates, tries, missing))
            else:
                unknown = int((given == tokens.index[UNKNOWN]).sum())
                answers.append({**lines.told(line), "tokens": len(line), "unknown": unknown})
        return answers

    def pictures(self, model: Reader, data: Data, history: History) -> Pictures:
        """Lines word by word, gaps that are filled, and a word missing nobody knows where."""
        lines = ScoredLines(model, Tokens.of(data.spec))
        (stream,) = data.splits["valid"]
        counts = trigrams(data.splits["train"][0].cpu(), list(lines.tokens.vocabulary))
        chosen = lines.of_stream(stream.long(), 8, 12)
        some = [chosen[n * (len(chosen) - 1) // 2] for n in range(3)]
        gaps = [_gap(lines, line, len(line) // 2 + 1) for line in some]
        return {
            "sentence": by_word(
                [_by_word(lines, line, counts) for line in some[:2]], ("the network", "trigrams")
            ),
            "gaps": filled_gaps(gaps),
            "missing": filled_gaps([_missing(lines, some[0], len(some[0]) // 2)]),
        }

    def tiny(self) -> Self:
        small = replace(super().tiny(), vocabulary=100, layers=min(self.layers, 2), hidden_size=8)
        return replace(small, flat=min(self.flat, 2), every=min(self.every, 1), eval_every=0)


@dataclass(frozen=True)
class ScoredLines:
    """A model asked about lines, each of which follows the end of another."""

    model: Reader
    tokens: Tokens

    @property
    def ends(self) -> list[int]:
        """The end of a line, where the training text had lines."""
        return [self.tokens.index[NEWLINE]] if NEWLINE in self.tokens.index else []

    def known(self, line: Int64[Tensor, " words"]) -> Int64[Tensor, " words"]:
        """A line in which a new word is what the text has for a rare one, where it has that."""
        new = self.tokens.index[UNKNOWN]
        return torch.where(line == new, self.tokens.index.get(RARE, new), line)

    def words(self) -> Int64[Tensor, " words"]:
        """What can be missing: every word but ends of lines and what stands for others."""
        left_out = {*self.ends, self.tokens.index[UNKNOWN], self.tokens.index.get(RARE)}
        kept = [number for number in range(len(self.tokens)) if number not in left_out]
        return torch.tensor(kept, device=self.model.embedding.weight.device)

    def logp(self, lines: Int64[Tensor, "lines words"]) -> Float[Tensor, "lines longer"]:
        """Of each word of lines of one length, and of their ends; the first only after an end."""
        end = lines.new_tensor(self.ends).expand(len(lines), -1)
        whole = torch.cat([end, lines, end], 1)
        if whole.shape[1] < 2:
            raise UserError("a line must hold at least 2 tokens, because none comes before it")
        at_once = max(1, LOGITS // (len(self.tokens) * whole.shape[1]))
        found = []
        for part in whole.split(at_once):
            likely = self.model(part[:, :-1])[0].log_softmax(2)
            found.append(likely.gather(2, part[:, 1:, None])[..., 0])
        return torch.cat(found)

    def score(self, lines: Int64[Tensor, "lines words"]) -> Float[Tensor, " lines"]:
        """The log-probability of lines of one length."""
        return self.logp(lines).double().sum(1)  # (5)

    def told(self, line: Int64[Tensor, " words"]) -> dict[str, Any]:
        """A line's nats and perplexity, and the log-probability of each of its words."""
        logp = self.logp(line[None])[0].double()
        nats = -logp.mean().item()
        said = [self.tokens.vocabulary[n] for n in line.tolist()] + [END] * len(self.ends)
        words = zip(said[len(said) - len(logp) :], logp.tolist(), strict=True)
        return {
            "cross_entropy": nats,
            "perplexity": math.exp(nats),
            "words": [[word, p] for word, p in words],
        }

    def proposed(
        self, line: Int64[Tensor, " words"], places: Sequence[int], tries: int
    ) -> tuple[Int64[Tensor, " tried"], Int64[Tensor, " tried"]]:
        """Words to try at places: those that are likeliest after what is before, or every one."""
        words = self.words()
        if not 0 < tries < len(words):
            at, which = every(len(places), words)
            return line.new_tensor(places)[at], which
        context = torch.cat([line.new_tensor(self.ends), line])
        likely = self.model(context[None])[0][0, [k + len(self.ends) - 1 for k in places]][:, words]
        if not self.ends and 0 in places:  # nothing comes before the first word
            likely[list(places).index(0)] = 0.0
        which = words[likely.topk(tries).indices]  # places tries
        return line.new_tensor(places).repeat_interleave(tries), which.flatten()

    def completed(
        self, line: Int64[Tensor, " words"], candidates: int, tries: int, missing: bool
    ) -> dict[str, Any]:
        """The words that make the line likeliest: in its gap, or anywhere where one is missing."""
        if missing:
            rest, places = line, range(len(line) + 1)
        else:
            place = place_of(line)
            rest, places = torch.cat([line[:place], line[place + 1 :]]), range(place, place + 1)
        tried = self.proposed(rest, places, tries)
        best = likeliest(self.score, rest, *tried, candidates)
        found = [(place, self.tokens.vocabulary[word], share) for place, word, share in best]
        said = [self.tokens.vocabulary[n] for n in rest.tolist()]
        place, word, _ = found[0]
        answer = {"filled": " ".join([*said[:place], word, *said[place:]])}
        if not missing:
            return answer | {"candidates": [[word, share] for _, word, share in found]}
        count = len(places) * len(self.words())
        return answer | {"candidates": [[w, k, p] for k, w, p in found], "pairs": count}

    def of_stream(
        self, stream: Int64[Tensor, " words"], least: int, most: int
    ) -> list[Int64[Tensor, " _"]]:
        """The lines of a text that are so long and hold no new word, or else some stretches."""
        stream = stream.to(self.model.embedding.weight.device)
        new = {self.tokens.index[UNKNOWN], self.tokens.index.get(RARE)}
        found, start = [], 0
        for at, token in enumerate(stream.tolist()):
            if token in self.ends:
                line = stream[start:at]
                if least <= len(line) <= most and not new & {*line.tolist()}:
                    found.append(line)
                start = at + 1
        return found or list(stream.split(least)[:3])


def _by_word(lines: ScoredLines, line: Tensor, counts: NGram) -> list[Bars]:
    """Each word of a line, its probability by both models, and what was likeliest in its place."""
    whole = torch.cat([line.new_tensor(lines.ends), line])
    likely = lines.model(whole[None, :-1])[0][0].softmax(1)
    words = whole[1:]
    best, guess = likely.max(1)
    say = lines.tokens.vocabulary
    p = likely.gather(1, words[:, None])[:, 0]
    beside = counts.logprob(line.cpu()).exp()[-len(words) :]
    rows = zip(*(row.tolist() for row in (words, p, guess, best, beside)), strict=True)
    return [Bars(say[word], p, f"{say[g]}  {b:.2f}", g == word, q) for word, p, g, b, q in rows]


def _gap(lines: ScoredLines, line: Tensor, place: int) -> tuple[str, list[Bars]]:
    """A line with a gap, the five words that fit it best, and the one that stood there."""
    rest = torch.cat([line[:place], line[place + 1 :]])
    tried = lines.proposed(rest, [place], TRIES)
    best = likeliest(lines.score, rest, *tried, len(tried[0]))
    say, true = lines.tokens.vocabulary, int(line[place])
    text = " ".join(GAP if n == place else say[word] for n, word in enumerate(line.tolist()))
    shown = [one for rank, one in enumerate(best) if rank < 5 or one[1] == true]
    return text, [Bars(say[word], share, "", word == true) for _, word, share in shown]


def _missing(lines: ScoredLines, line: Tensor, place: int) -> tuple[str, list[Bars]]:
    """A line without one of its words, and the likeliest word of each place."""
    rest = torch.cat([line[:place], line[place + 1 :]])
    tried = lines.proposed(rest, range(len(rest) + 1), TRIES)
    best = likeliest(lines.score, rest, *tried, len(tried[0]))
    say = lines.tokens.vocabulary
    words = [say[word] for word in rest.tolist()]
    rows: dict[int, Bars] = {}
    for at, word, share in best:  # the likeliest first
        label = " ".join([*words[max(0, at - 1) : at], f"[{say[word]}]", *words[at : at + 1]])
        rows.setdefault(at, Bars(label, share, "", at == place))
    return " ".join(words), [rows[at] for at in sorted(rows)]


# An epoch of the Penn Treebank is 1,327 windows of 20 lanes of 35 words. Test perplexity: rnn-lm
# 44.9 (help of Python 3.11, CPU) and 45.2 (seed 1, of Python 3.12), lstm-ptb 100.3 (seed 0, one CPU
# thread, 8.1 updates/s: 16 minutes), lstm-ptb-medium 76.8, 77.0 (seeds 0, 1; H200, 153 s). Of
# 400 lines of the test part that lost a word, it has place and word among its first five in 52.5 %,
# 5-grams in 44.8 %, and chance in 0.005 %.
RECIPES = {
    "rnn-lm": NextWord(
        vocabulary=3000,
        hidden_size=128,
        layers=1,
        dropout=0.5,
        window=35,
        steps=1780,
        batch_size=20,
        optimizer="sgd",
        lr=1.0,
        flat=890,
        every=89,
        fall=1.25,
        clip=5.0,
        goal="perplexity <= 55",
        covers=("R21", "R27"),
    ),
    "lstm-ptb": NextWord(
        data="ptb",
        hidden_size=200,
        layers=2,
        dropout=0.2,
        window=35,
        steps=7962,
        batch_size=20,
        optimizer="sgd",
        lr=1.0,
        flat=3981,
        every=1327,
        fall=2.0,
        clip=5.0,
        eval_every=1327,
        goal="perplexity <= 130",
        covers=("R21",),
    ),
    "lstm-ptb-medium": NextWord(
        data="ptb",
        hidden_size=650,
        layers=2,
        dropout=0.5,
        spread=0.05,
        window=35,
        steps=31848,
        batch_size=20,
        optimizer="sgd",
        lr=1.0,
        flat=7962,
        every=1327,
        fall=1.2,
        clip=5.0,
        eval_every=1327,
        goal="perplexity <= 80",
        covers=("R21",),
    ),
}
