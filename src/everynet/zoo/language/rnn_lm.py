"""A language model of words: an LSTM whose embeddings are the weights of its output, too.

    x_t = drop(E[s_t])                                   (1)  embedding of word s_t, with dropout
    y_t = E drop(h_t) + c                                (2)  logits by the same embeddings: tied
    L = -sum_t log softmax(y_t)[s_{t+1}] / batch         (3)  summed over the words of the window
    lr_n = lr / fall^k, k = 1 + floor((n - flat) / every)  (4)  from update n = flat on
    log P(s_1 .. s_n) = sum_t log softmax(y_{t-1})[s_t]  (5)  of a line, its end among its words

h_t is the state of the last layer; drop is dropout, which acts between layers, too, but never
through time, so that the memory is not disturbed. E drop(h_t) is a product of matrices. Lines are
scored by (5), which also ranks words for a gap, and finds where a word is missing (`cloze.py`). How
a text is read window by window is in `recurrent/next_token.py`, the cell in `recurrent/lstm.py`.

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
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import linear

from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds.text import BLANK, GAP
from everynet.data.texts.tokens import Tokens
from everynet.nn.chunked_cross_entropy import chunked_cross_entropy
from everynet.plot.words import WordBar, gap_candidates, word_probabilities
from everynet.recipes.state import State
from everynet.system.errors import UserError
from everynet.zoo.language.cloze import all_pairs, find_gap, rank_insertions
from everynet.zoo.language.ngram_model import NGram, fit_trigrams
from everynet.zoo.recurrent.lstm import LSTM
from everynet.zoo.recurrent.next_token import Carried, NextToken, Reader

LOGITS = 1 << 24
"""Most logits in memory at once where lines are scored."""
TRIES = 200
"""Words that are tried at each place by default."""
NEWLINE, END, RARE = "\n", "</s>", "<unk>"


class TiedReader(Reader):
    """Maps words to logits of the ones that follow, by the same embeddings."""

    def __init__(
        self,
        vocabulary: int,
        size: int,
        layers: Iterable[nn.Module],
        dropout: float = 0.0,
        spread: float = 0.1,
    ) -> None:
        super().__init__(vocabulary, size, layers, dropout)
        self.output.weight = self.embedding.weight
        for weight in self.parameters():
            nn.init.uniform_(weight, -spread, spread)

    def states(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time hidden"], Float[Tensor, "layers batch state"]]:
        """The state of the last layer at every word, and of all layers after the last word."""
        x, last = self.embedding(s), []
        for number, layer in enumerate(self.layers):
            x, after = layer(self.dropout(x), None if h is None else h[number : number + 1])  # (1)
            last.append(after)
        return x, torch.cat(last)

    def forward(
        self, s: Int64[Tensor, "batch time"], h: Float[Tensor, "layers batch state"] | None = None
    ) -> tuple[Float[Tensor, "batch time vocab"], Float[Tensor, "layers batch state"]]:
        states, h = self.states(s, h)
        return linear(self.dropout(states), self.embedding.weight, self.output.bias), h  # (2)


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class RecurrentNextWord(NextToken):
    """Predict the next word; score lines, fill gaps and find missing words."""

    tokens: str = "words"
    """Tokens: words, characters or bpe; or a vocabulary, of a run or in a published vocab.txt."""
    spread: float = 0.1
    """Weights are initialised uniformly between minus this and this."""
    flat: int = 0
    """Updates before the learning rate begins to fall."""
    every: int = 0
    """Updates between one fall of the learning rate and the next; 0 leaves it as it is."""
    fall: float = 1.2
    """Divisor of the learning rate at each fall."""

    numbers: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.above(0, "spread")
        self.at_least(0, "flat", "every")
        self.at_least(1, "fall")

    def rate(self, step: int, history: History) -> float:
        falls = max(0, 1 + (step - self.flat) // self.every) if self.every else 0
        return super().rate(step, history) / self.fall**falls  # (4)

    def layer(self) -> LSTM:
        return LSTM(self.hidden_size, self.hidden_size)

    def model(self, data: Data) -> TiedReader:
        words = data.spec["shape"][0]
        if words < 3:
            raise UserError(
                f"data ({self.data}) must hold at least 2 different {self.tokens}, because one "
                "alone leaves nothing to predict; give more text or a larger vocabulary"
            )
        layers = [self.layer() for _ in range(self.layers)]
        return TiedReader(words, self.hidden_size, layers, self.dropout, self.spread)

    def step(self, state: State[Reader, Carried], batch: Batch) -> Terms:
        s, following, keep = batch
        model = state.model
        states, h = model.states(s, state.extra.h * keep[:, None])
        inputs, output = model.dropout(states).flatten(0, 1), model.output
        loss = chunked_cross_entropy(inputs, output.weight, following.flatten(), output.bias)
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
        """Log-probabilities of each line and of its words, or the words that fill its gap best.

        With `missing`, which word is missing, and where. At each place the `tries` words that are
        most probable after the words before it are tried; 0 tries every word.
        """
        tokens = Tokens.of(spec)
        if candidates < 1:
            raise UserError(f"candidates ({candidates}) must be at least 1")
        if tries < 0:
            raise UserError(f"tries ({tries}) must be at least 1, or 0, which tries every word")
        scorer = LineScorer(model, tokens)
        answers: list[dict[str, Any]] = []
        for given in inputs:
            line = scorer.replace_unknown(given)
            if missing and bool((line == BLANK).any()):
                raise UserError(
                    f"a line with {GAP} says where a word is missing; leave out missing="
                )
            if missing or bool((line == BLANK).any()):
                answers.append(scorer.complete(line, candidates, tries, missing))
            else:
                unknown = int((given == tokens.unknown).sum())
                answers.append({**scorer.describe(line), "tokens": len(line), "unknown": unknown})
        return answers

    def picture_sentence(self, model: Reader, data: Data, history: History) -> Figure:
        """The probability of each word of two unseen lines, by the network (bars) and by trigrams.

        Beside each bar stands the word that the network held most probable; a hit is orange.
        """
        scorer, train = LineScorer(model, Tokens.of(data.spec)), data.splits["train"][0].cpu()
        ngrams = fit_trigrams(train, list(scorer.tokens.vocabulary))
        bars = [_word_bars(scorer, line, ngrams) for line in _unseen_lines(scorer, data)[:2]]
        return word_probabilities(bars, ("the network", "trigrams"))

    def picture_gaps(self, model: Reader, data: Data, history: History) -> Figure:
        """Unseen lines with a word left out, and the words that make each line most probable.

        They fit on both sides of the gap; the word that stood there is orange.
        """
        scorer, drawn = LineScorer(model, Tokens.of(data.spec)), []
        vocabulary = scorer.tokens.vocabulary
        for line in _unseen_lines(scorer, data):
            place = len(line) // 2 + 1
            _, best = scorer.rank_removed(line, place, [place])
            text = [GAP if n == place else vocabulary[w] for n, w in enumerate(line.tolist())]
            true = int(line[place])
            shown = [one for rank, one in enumerate(best) if rank < 5 or one[1] == true]
            bars = [WordBar(vocabulary[w], share, "", w == true) for _, w, share in shown]
            drawn.append((" ".join(text), bars))
        return gap_candidates(drawn)

    def picture_missing(self, model: Reader, data: Data, history: History) -> Figure:
        """An unseen line from which a word was removed, and the most probable word of each place.

        Orange is the place where the word stood, which the network is not given.
        """
        scorer = LineScorer(model, Tokens.of(data.spec))
        line, vocabulary = _unseen_lines(scorer, data)[0], scorer.tokens.vocabulary
        place = len(line) // 2
        rest, best = scorer.rank_removed(line, place, range(len(line)))
        words = [vocabulary[word] for word in rest.tolist()]
        bars: dict[int, WordBar] = {}
        for at, word, share in best:  # the most probable first
            nearby = [*words[max(0, at - 1) : at], f"[{vocabulary[word]}]", *words[at : at + 1]]
            bars.setdefault(at, WordBar(" ".join(nearby), share, "", at == place))
        return gap_candidates([(" ".join(words), [bars[at] for at in sorted(bars)])])

    picture_expected = picture_units = picture_reach = None  # type: ignore[assignment]  # of characters

    def tiny(self) -> Self:
        small = replace(super().tiny(), vocabulary=100, layers=min(self.layers, 2), hidden_size=8)
        return replace(small, flat=min(self.flat, 2), every=min(self.every, 1), eval_every=0)


@dataclass(frozen=True)
class LineScorer:
    """Scores and completes lines, each of which follows the end of another."""

    model: Reader
    tokens: Tokens

    @property
    def ends(self) -> list[int]:
        """The end of a line, where the training text had lines."""
        return [self.tokens.index[NEWLINE]] if NEWLINE in self.tokens.index else []

    def replace_unknown(self, line: Int64[Tensor, " words"]) -> Int64[Tensor, " words"]:
        """A line with new words replaced by the text's own <unk>, where it has that."""
        new = self.tokens.unknown
        return torch.where(line == new, self.tokens.index.get(RARE, new), line)

    def candidate_words(self) -> Int64[Tensor, " words"]:
        """Words that can be missing: all but ends of lines and unknown words."""
        left_out = {*self.ends, *self.tokens.special_numbers, self.tokens.index.get(RARE)}
        kept = [number for number in range(len(self.tokens)) if number not in left_out]
        return torch.tensor(kept, device=self.model.embedding.weight.device)

    def log_probabilities(
        self, lines: Int64[Tensor, "lines words"]
    ) -> Float[Tensor, "lines longer"]:
        """Of each word of lines of one length and of their ends; the first needs an end before."""
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
        return self.log_probabilities(lines).double().sum(1)  # (5)

    def describe(self, line: Int64[Tensor, " words"]) -> dict[str, Any]:
        """A line's cross-entropy and perplexity, and the log-probability of each of its words."""
        logp = self.log_probabilities(line[None])[0].double()
        nats = -logp.mean().item()
        texts = [self.tokens.vocabulary[n] for n in line.tolist()] + [END] * len(self.ends)
        words = zip(texts[len(texts) - len(logp) :], logp.tolist(), strict=True)
        return {
            "cross_entropy": nats,
            "perplexity": math.exp(nats),
            "words": [[word, p] for word, p in words],
        }

    def propose(
        self, line: Int64[Tensor, " words"], places: Sequence[int], tries: int
    ) -> tuple[Int64[Tensor, " tried"], Int64[Tensor, " tried"]]:
        """Words to try at places: the most probable after the words before, or every one."""
        words = self.candidate_words()
        if not 0 < tries < len(words):
            at, which = all_pairs(len(places), words)
            return line.new_tensor(places)[at], which
        context = torch.cat([line.new_tensor(self.ends), line])
        likely = self.model(context[None])[0][0, [k + len(self.ends) - 1 for k in places]][:, words]
        if not self.ends and 0 in places:  # nothing comes before the first word
            likely[list(places).index(0)] = 0.0
        which = words[likely.topk(tries).indices]  # places tries
        return line.new_tensor(places).repeat_interleave(tries), which.flatten()

    def complete(
        self, line: Int64[Tensor, " words"], candidates: int, tries: int, missing: bool
    ) -> dict[str, Any]:
        """The words that make the line most probable, in its gap or at any place."""
        if missing:
            rest, places = line, range(len(line) + 1)
        else:
            place = find_gap(line)
            rest, places = torch.cat([line[:place], line[place + 1 :]]), range(place, place + 1)
        tried = self.propose(rest, places, tries)
        best = rank_insertions(self.score, rest, *tried, candidates)
        found = [(place, self.tokens.vocabulary[word], share) for place, word, share in best]
        texts = [self.tokens.vocabulary[n] for n in rest.tolist()]
        place, word, _ = found[0]
        answer = {"filled": " ".join([*texts[:place], word, *texts[place:]])}
        if not missing:
            return answer | {"candidates": [[word, share] for _, word, share in found]}
        count = len(places) * len(self.candidate_words())
        return answer | {"candidates": [[w, k, p] for k, w, p in found], "pairs": count}

    def rank_removed(
        self, line: Int64[Tensor, " words"], place: int, places: Sequence[int]
    ) -> tuple[Int64[Tensor, " fewer"], list[tuple[int, int, float]]]:
        """A line without the word at a place, and all insertions tried at places, best first."""
        rest = torch.cat([line[:place], line[place + 1 :]])
        tried = self.propose(rest, places, TRIES)
        return rest, rank_insertions(self.score, rest, *tried, len(tried[0]))

    def select_lines(
        self, stream: Int64[Tensor, " words"], least: int, most: int
    ) -> list[Int64[Tensor, " _"]]:
        """Lines of a text of such lengths without unknown words; stretches where there are none."""
        stream = stream.to(self.model.embedding.weight.device)
        new = {self.tokens.unknown, self.tokens.index.get(RARE)}
        found, start = [], 0
        for at, token in enumerate(stream.tolist()):
            if token in self.ends:
                line = stream[start:at]
                if least <= len(line) <= most and not new & {*line.tolist()}:
                    found.append(line)
                start = at + 1
        return found or list(stream.split(least)[:3])


def _unseen_lines(scorer: LineScorer, data: Data) -> list[Int64[Tensor, " _"]]:
    """Three lines of 8 to 12 words from the validation text."""
    lines = scorer.select_lines(data.splits["valid"][0].long(), 8, 12)
    return [lines[n * (len(lines) - 1) // 2] for n in range(3)]


def _word_bars(scorer: LineScorer, line: Tensor, ngrams: NGram) -> list[WordBar]:
    """Each word of a line, its probability by both models, and the most probable in its place."""
    whole = torch.cat([line.new_tensor(scorer.ends), line])
    likely = scorer.model(whole[None, :-1])[0][0].softmax(1)
    words, vocabulary = whole[1:], scorer.tokens.vocabulary
    best, guess = likely.max(1)
    p = likely.gather(1, words[:, None])[:, 0]
    beside = ngrams.logprob(line.cpu()).exp()[-len(words) :]
    rows = zip(*(row.tolist() for row in (words, p, guess, best, beside)), strict=True)
    return [
        WordBar(vocabulary[word], p, f"{vocabulary[g]}  {b:.2f}", g == word, q)
        for word, p, g, b, q in rows
    ]


RECIPES = {
    "rnn-lm": RecurrentNextWord(
        vocabulary=3000, hidden_size=128, layers=1, dropout=0.5, window=35, steps=1780,
        batch_size=20, optimizer="sgd", lr=1.0, flat=890, every=89, fall=1.25, clip=5.0,
        goal="perplexity <= 55", covers=("R21", "R27"),
    ),
    "lstm-ptb": RecurrentNextWord(
        data="ptb", hidden_size=200, layers=2, dropout=0.2, window=35, steps=7962, batch_size=20,
        optimizer="sgd", lr=1.0, flat=3981, every=1327, fall=2.0, clip=5.0, eval_every=1327,
        goal="perplexity <= 130", covers=("R21",),
    ),
    "lstm-ptb-medium": RecurrentNextWord(
        data="ptb", hidden_size=650, layers=2, dropout=0.5, spread=0.05, window=35, steps=31848,
        batch_size=20, optimizer="sgd", lr=1.0, flat=7962, every=1327, fall=1.2, clip=5.0,
        eval_every=1327, goal="perplexity <= 80", covers=("R21",),
    ),
}  # fmt: skip
