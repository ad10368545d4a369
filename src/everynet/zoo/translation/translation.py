"""Translation, as several networks share it: what they learn from, how they write, how well.

    L = -sum_i [(1 - e) log p_i(y_i) + e mean_v log p_i(v)] / Ty  (1)  e smooths the labels, 0: none

p_i is what the network says of target token i, given the source and the true tokens before it
(teacher forcing); the last of the Ty target tokens is <end>. L is the mean over the target tokens
of a batch. Afterwards the network is given its own tokens: the likeliest one at each step, or a
beam of sentences (`nn/decoding.py`). BLEU compares them with the true ones (`metrics/bleu.py`).

Szegedy et al. (2016), "Rethinking the Inception architecture for computer vision",
arXiv:1512.00567, for smoothed labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.samplers import Buckets
from everynet.data.texts.tokens import END, PAD, SENTENCE, START, UNKNOWN, Tokens
from everynet.metrics.bleu import corpus_bleu, match_texts
from everynet.metrics.meanings import meanings
from everynet.nn.decoding import beam_search, generate, take_likeliest
from everynet.nn.ema import EMA
from everynet.plot import Panel, panels
from everynet.plot.sentences import attention_maps
from everynet.recipes.recipe import Goal, later
from everynet.recipes.state import State
from everynet.recipes.training import Training
from everynet.system.errors import UserError

_PAD, _UNKNOWN, _START, _END = (SENTENCE.index(token) for token in (PAD, UNKNOWN, START, END))


class Translator(nn.Module):
    """A network that reads a source sentence and writes a target sentence, token by token."""

    start: int = _START
    end: int = _END
    unknown: int = _UNKNOWN
    """Numbers of the tokens that begin and end a target, and of those it has not; 0 is padding."""
    context: int = 1 << 30
    """The most tokens of a sentence."""

    def forward(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target tokens"]:
        """Logits of each target token, given the source and the tokens before it."""
        raise NotImplementedError  # every translator says it

    def begin(self, x: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> Any:  # noqa: ANN401 -- by its kind
        """The state before the first token, for sentences that may be padded after `lengths`."""
        raise NotImplementedError  # every translator says it

    def step(
        self,
        tokens: Int64[Tensor, " batch"],
        state: Any,  # noqa: ANN401 -- by its kind
    ) -> tuple[Float[Tensor, "batch tokens"], Any]:
        """Logits of the token after one more, and the state after it."""
        raise NotImplementedError  # every translator says it

    def align(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        before: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target source"]:
        """How much each target token attends to each source token: rows sum to 1."""
        raise UserError(
            f"alignment and draw must be false, because {type(self).__name__} has no attention"
        )

    def write(
        self,
        x: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        longest: int,
        beam: int = 1,
    ) -> tuple[Int64[Tensor, "batch target"], Float[Tensor, " batch"]]:
        """Sentences of up to `longest` tokens, padded after <end>, and their log-probabilities.

        With a beam of 1 the likeliest token is taken at each step; a wider one never writes
        <unknown>, and gives log-probabilities divided by the number of tokens.
        """
        longest = min(longest, self.context)
        state = self.begin(x, lengths)
        logits, state = self.step(torch.full_like(lengths, self.start), state)
        if beam == 1:
            tokens, score = generate(
                self.step, logits, state, longest, take_likeliest, end=self.end
            )
        else:
            tokens, score = beam_search(
                self._step_known, self._known(logits), state, longest, width=beam, end=self.end
            )
        ended = (tokens == self.end).cumsum(1) - (tokens == self.end).long() > 0
        return tokens.masked_fill(ended, _PAD)[:, : int((~ended).sum(1).max())], score

    def _step_known(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: ANN401 -- by its kind
        logits, state = self.step(tokens, state)
        return self._known(logits), state

    def _known(self, logits: Float[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens"]:
        """Logits by which no filler and nothing unknown is written."""
        never = torch.tensor([_PAD, self.unknown, self.start], device=logits.device)
        return logits.index_fill(1, never, -torch.inf)

    def shift(self, outputs: Int64[Tensor, "batch target"]) -> Int64[Tensor, "batch target"]:
        """What a decoder is given for these outputs: <start>, and all but the last of them."""
        return torch.cat([torch.full_like(outputs[:, :1], self.start), outputs[:, :-1]], 1)


T = TypeVar("T", bound=Translator)

BY_LENGTH = {"short": "at most 10", "middle": "11 to 15", "long": "16 words or more"}
"""Parts of a test set by the words of the source."""

# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Translation(Training[T]):
    """Translate a sentence into the one that belongs to it."""

    made_for: ClassVar[tuple[str, ...]] = ("translation",)
    meanings: ClassVar[Mapping[str, str]] = {
        "exact": "the share of sentences that are translated without a mistake",
        "cross_entropy": "cross-entropy in nats at a token of the true sentence, the mean",
        **meanings("bleu"),
        "bleu_*": f"the same of the sentences whose source has {', '.join(BY_LENGTH.values())}",
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
    label_smoothing: float = 0.0
    """The share e of a target's probability that is spread over all tokens."""
    pad_to: int = later(1)
    """Lengths of training batches are rounded up to a multiple of it: on cuda 8 is faster."""
    ema: float = later(0.0)
    """Averaged weights are kept, this share of the average at each update (0.999); 0: none are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "pad_to")
        for name in ("label_smoothing", "ema"):
            self.require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="pairs", batch_size=self.batch_size, seed=self.seed, tokens=self.tokens,
            vocabulary=self.vocabulary, lower=self.lower, shared_vocabulary=self.shared_vocabulary,
        )  # fmt: skip
        return replace(data, sampler=Buckets(("ragged", "ragged"), self.pad_to))

    def model(self, data: Data) -> T:
        source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
        model = self.build(len(source), len(target))
        model.start, model.end, model.unknown = target.start, target.end, target.unknown
        return model

    def build(self, source: int, target: int) -> T:
        """The network, for vocabularies of these sizes."""
        raise NotImplementedError  # every recipe says it

    def extra(self, model: T) -> nn.Module:
        return EMA(model, self.ema) if self.ema else nn.Module()

    def objective(self, model: T, batch: Batch) -> Terms:
        x, lengths, y, _ = batch
        logits = model(x, lengths, y[:, :-1])
        loss = cross_entropy(
            logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=_PAD,
            label_smoothing=self.label_smoothing,
        )  # (1)  # fmt: skip
        return {"cross_entropy": loss}

    def step(self, state: State[T], batch: Batch) -> Terms:
        """One update; of several processes each counts by its number of tokens."""
        terms = self.objective(state.model, batch)
        tokens = (batch[2][:, 1:] != _PAD).sum()
        state.descend(
            terms["cross_entropy"], weight=tokens, clip=self.clip, clip_value=self.clip_value
        )
        return terms

    def metrics(self, model: T, batch: Batch) -> dict[str, Tensor]:
        """Whether the greedy output is exact; the summed loss of the tokens and their count."""
        x, lengths, y, y_lengths = batch
        targets = y[:, 1:]
        logits = model(x, lengths, y[:, :-1]).transpose(1, 2)
        outputs, _ = model.write(x, lengths, targets.shape[1])
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

    def monitor(self) -> Goal | None:
        """BLEU is measured only at the end: until then the cross-entropy chooses."""
        monitor = super().monitor()
        ends = monitor is not None and monitor.metric == "bleu"
        return Goal("cross_entropy", "<=", 0.0) if ends else monitor

    def final(
        self, model: T, data: Data, generator: torch.Generator, *, beam: int = 5
    ) -> dict[str, float]:
        """BLEU of the test sentences by a beam of this width; none where tokens are characters."""
        target = Tokens.of(data.spec, "target_tokens")
        if target.kind == "characters":  # as many make no sentence of words
            return {}
        sources, outputs, truths = translate(model, data.test, data.spec, beam)
        whole = corpus_bleu(match_texts(outputs, [truths])).score
        parts = bleu_by_length(sources, outputs, truths)
        return {"bleu": whole, **{f"bleu_{name}": value for name, value in parts.items()}}

    def predict(
        self,
        model: T,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        longest: int = 0,
        beam: int = 1,
        alignment: bool = False,
        draw: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """Translations of up to `longest` tokens (0: twice the source and ten).

        `alignment` adds the tokens of both sides and the attention between them, `draw` a picture.
        """
        if longest < 0:
            raise UserError(f"longest ({longest}) must be 0, which follows the source, or more")
        if beam < 1:
            raise UserError(f"beam ({beam}) must be 1, which takes the likeliest token, or more")
        if (most := max(map(len, inputs))) > model.context:
            raise UserError(
                f"a sentence ({most:,} tokens) must have at most {model.context:,}, the context of "
                f"the network; divide it, or train with context={most}"
            )
        x = pad_sequence(list(inputs), batch_first=True, padding_value=_PAD)
        lengths = torch.tensor([len(one) for one in inputs], device=x.device)
        outputs, score = model.write(x, lengths, longest or 2 * x.shape[1] + 10, beam)
        written = (outputs != _PAD).sum(1)
        total = score if beam == 1 else score * written
        source, target = Tokens.of(spec), Tokens.of(spec, "target_tokens")
        found: list[dict[str, Any]] = [
            {"output": target.decode(row), "log_probability": value}
            for row, value in zip(outputs.tolist(), total.double().tolist(), strict=True)
        ]
        if alignment or draw:
            weights = model.align(x, lengths, model.shift(outputs)).double().cpu()
            for row, answer in enumerate(found):
                read = [source.vocabulary[token] for token in inputs[row].tolist()]
                said = [target.vocabulary[token] for token in outputs[row, : written[row]].tolist()]
                attention = weights[row, : len(said), : len(read)]
                if alignment:
                    answer |= {"source": read, "target": said, "alignment": attention.tolist()}
                if draw:
                    answer["picture"] = attention_maps([("", attention, said, read)])
        return found

    def picture_length(self, model: T, data: Data, history: History) -> Figure:
        """The share of exact translations, and the cost of the true ones, by length of the source.

        A network with one vector between source and target has to fit any length into it.
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
        if self.lower:  # of sentences
            return replace(super().tiny(), data="verb-final:200", tokens="words", vocabulary=0)
        return replace(super().tiny(), data="reversal:200")


def translate(
    model: Translator, batches: Iterable[Batch], spec: Spec, beam: int = 1
) -> tuple[list[str], list[str], list[str]]:
    """Source sentences of these batches, their translations by a beam, and the true ones."""
    source, target = Tokens.of(spec), Tokens.of(spec, "target_tokens")
    sources, outputs, truths = list[str](), list[str](), list[str]()
    for x, lengths, y, _ in batches:
        written, _ = model.write(x, lengths, 2 * x.shape[1] + 10, beam)
        sources += [source.decode(row) for row in x.tolist()]
        outputs += [target.decode(row) for row in written.tolist()]
        truths += [target.decode(row) for row in y.tolist()]
    return sources, outputs, truths


def bleu_by_length(
    sources: Sequence[str], outputs: Sequence[str], truths: Sequence[str]
) -> dict[str, float]:
    """BLEU of the sentences with so many words of the source, where there are any."""
    found = dict[str, float]()
    for name, rows in rows_by_length(sources).items():
        if rows:
            own, others = ([side[n] for n in rows] for side in (outputs, truths))
            found[name] = corpus_bleu(match_texts(own, [others])).score
    return found


def rows_by_length(sources: Sequence[str]) -> dict[str, list[int]]:
    """Which of the sentences are short, middle and long."""
    ends = {"short": (1, 10), "middle": (11, 15), "long": (16, math.inf)}
    words = [len(text.split()) for text in sources]
    return {
        name: [n for n, count in enumerate(words) if least <= count <= most]
        for name, (least, most) in ends.items()
    }


def typical(data: Data, share: float = 0.8) -> tuple[Int[Tensor, "1 source"], Int[Tensor, " 1"]]:
    """A validation sentence that is longer than this share of them, without padding."""
    x, lengths, *_ = next(iter(data.valid))
    row = int((lengths - lengths.double().quantile(share)).abs().argmin())
    return x[row : row + 1, : lengths[row]], lengths[row : row + 1]


def draw_alignments(model: Translator, data: Data, count: int = 2) -> Figure:
    """Attention between validation sentences and what the network makes of them."""
    source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
    x, lengths, *_ = next(iter(data.valid))
    order = (lengths - lengths.double().quantile(0.7)).abs().argsort(stable=True)[:count]
    maps = []
    for row in order.tolist():
        one, length = x[row : row + 1, : lengths[row]], lengths[row : row + 1]
        outputs, _ = model.write(one, length, 2 * one.shape[1] + 10)
        said = [target.vocabulary[token] for token in outputs[0].tolist()]
        read = [source.vocabulary[token] for token in one[0].tolist()]
        maps.append(("", model.align(one, length, model.shift(outputs))[0], said, read))
    return attention_maps(maps)
