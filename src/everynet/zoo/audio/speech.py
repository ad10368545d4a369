"""Speech to text: a recurrent network that says in each frame which symbol is heard, or none.

    x = (y - mean) / std                               (1)  log-mel energies of an utterance
    c = relu(K * x)                                    (2)  features of every second frame
    f_t = LSTM(c_t, f_{t-1}),  g_t = LSTM(c_t, g_{t+1})   (3)  states of both directions
    u_t = W [f_t; g_t] + b                             (4)  logits of the symbols and of the blank
    p(l) = sum over paths that collapse to l of prod_t p_t(path_t),  p_t = softmax(u_t)    (5)

A path has a symbol or the blank in each frame. It collapses to what is said: first every run of
equal symbols becomes one, then blanks are left out, so that "-77--7" is 7 7. The loss -log p(l),
connectionist temporal classification (CTC), needs no word's place in time: it is learned. With the
states l' of l (a blank before, between and after its symbols, S of them) the sum over all paths is

    a_t(s) = p_t(l'_s) (a_{t-1}(s) + a_{t-1}(s-1) + skip_s a_{t-1}(s-2))     (6)  onward
    b_t(s) = b'_{t+1}(s) + b'_{t+1}(s+1) + skip_{s+2} b'_{t+1}(s+2)          (7)  back
    q_t(s) = a_t(s) b_t(s) / p(l)                                            (8)  lattice

where b'_t(s) = p_t(l'_s) b_t(s), skip_s is 1 where l'_s is a symbol other than l'_{s-2}, and q is
the probability that frame t is in state s, if l was said. What is heard is read off in two ways:

    collapse(argmax_k p_t(k) of each frame)            (9)  greedy: the best path
    argmax_l p(l), by a beam of prefixes               (10) adds the paths of the same symbols

`*` is a convolution over time, [;] concatenation. Training runs the recursion as a compiled loop
(kernels/ctc.py); the plain one below draws pictures and is held equal to it by a test.

Graves et al. (2006), "Connectionist temporal classification", doi:10.1145/1143844.1143891; Graves,
Jaitly (2014), "Towards end-to-end speech recognition with recurrent neural networks", ICML (the
beam of prefixes).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float, Int, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.kernels.ctc import ctc_loss
from everynet.nn.log_mel import LogMel
from everynet.nn.recurrent import reverse_sequences
from everynet.plot import confusion_matrix
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.audio.pictures.alignment import heard_over_time, lattice_picture
from everynet.zoo.audio.utterances import make_utterances

FRAME, HOP = 0.032, 0.016  # s
QUIET = 1e-5
"""The energy below which all is silence: about 60 dB below full scale."""
KERNEL, STRIDE = 5, 2
BLANK = 0
"""The place of the blank among the logits; symbol k of the data is k + 1."""


class SpeechNet(nn.Module):
    """Maps utterances to logits of the blank and of the symbols, a row every second frame."""

    def __init__(
        self, symbols: int, *, rate: int, mels: int, hidden_size: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.log_mel = LogMel(rate, round(FRAME * rate), round(HOP * rate), mels, floor=QUIET)
        self.features = nn.Conv1d(mels, hidden_size, KERNEL, stride=STRIDE, padding=KERNEL // 2)
        sizes = [hidden_size, *[2 * hidden_size] * (layers - 1)]
        onward, back = (
            [nn.LSTM(size, hidden_size, batch_first=True) for size in sizes] for _ in range(2)
        )
        self.onward, self.back = nn.ModuleList(onward), nn.ModuleList(back)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(2 * hidden_size, symbols + 1)

    def forward(
        self, sound: Float[Tensor, "batch samples"], lengths: Int64[Tensor, " batch"]
    ) -> Float[Tensor, "batch time symbols"]:
        y, frames = self.log_mel(sound), self.log_mel.frames(lengths)
        inside = (torch.arange(y.shape[1], device=y.device) < frames[:, None])[:, :, None]
        count = (frames * y.shape[2])[:, None, None]
        mean = (y * inside).sum((1, 2), keepdim=True) / count
        spread = ((y - mean).square() * inside).sum((1, 2), keepdim=True) / count
        x = (y - mean) / (spread + 1e-6).sqrt() * inside  # (1)
        c = self.features(x.transpose(1, 2)).relu().transpose(1, 2)  # (2)
        steps = self.steps(lengths)
        h: Tensor = self.dropout(c)
        for onward, back in zip(self.onward, self.back, strict=True):
            f = onward(h)[0]
            g = reverse_sequences(back(reverse_sequences(h, steps))[0], steps)
            h = self.dropout(torch.cat([f, g], 2))  # (3)
        u: Tensor = self.output(h)  # (4)
        return u

    def steps(self, lengths: Int64[Tensor, " batch"]) -> Int64[Tensor, " batch"]:
        """How many rows of logits utterances of so many samples have."""
        return (self.log_mel.frames(lengths) - 1) // STRIDE + 1


class Lattice(NamedTuple):
    """All alignments of one utterance to what was said."""

    log_p: Float[Tensor, ""]
    posterior: Float[Tensor, "time states"]
    """q of (8)."""
    states: list[int]
    """The symbol of each state, BLANK between two."""


def sum_alignments(log_y: Float[Tensor, "time symbols"], said: Sequence[int]) -> Lattice:
    """The recursion as it is written, in logarithms: for reading, for pictures and for tests."""
    states = [BLANK, *(one for symbol in said for one in (symbol, BLANK))]
    never = torch.tensor(-1e30, dtype=log_y.dtype)
    time, count = len(log_y), len(states)

    def skips(s: int) -> bool:
        return 2 <= s < count and states[s] != BLANK and states[s] != states[s - 2]

    a = [[never] * count for _ in range(time)]
    b = [[never] * count for _ in range(time)]
    for t in range(time):
        for s in range(count):
            if t == 0:
                a[t][s] = log_y[0, states[s]] if s < 2 else never
                continue
            came = [a[t - 1][s], a[t - 1][s - 1] if s else never]
            came += [a[t - 1][s - 2]] if skips(s) else []
            a[t][s] = log_y[t, states[s]] + torch.stack(came).logsumexp(0)  # (6)
    for t in reversed(range(time)):
        for s in range(count):
            if t == time - 1:
                b[t][s] = torch.zeros_like(never) if s >= count - 2 else never
                continue
            goes = [s, s + 1, s + 2] if skips(s + 2) else [s, s + 1]
            after = [b[t + 1][n] + log_y[t + 1, states[n]] for n in goes if n < count]
            b[t][s] = torch.stack(after).logsumexp(0)  # (7)
    onward, back = (torch.stack([torch.stack(row) for row in each]) for each in (a, b))
    log_p = onward[-1, -2:].logsumexp(0)
    return Lattice(log_p, (onward + back - log_p).exp(), states)  # (8)


class Heard(NamedTuple):
    """What was heard."""

    symbols: list[int]
    at: list[int]
    """The step at which each is surest."""
    sure: list[float]
    """Its probability there."""


def best_path(log_y: Float[Tensor, "time symbols"]) -> Heard:
    """What the best path collapses to."""
    surest, path = log_y.detach().exp().max(1)
    heard = Heard([], [], [])
    before = BLANK
    for t, (k, sure) in enumerate(zip(path.tolist(), surest.tolist(), strict=True)):  # (9)
        if k not in {BLANK, before}:
            heard.symbols.append(k)
            heard.at.append(t)
            heard.sure.append(sure)
        elif k != BLANK and sure > heard.sure[-1]:
            heard.at[-1], heard.sure[-1] = t, sure
        before = k
    return heard


def prefix_beam(log_y: Float[Tensor, "time symbols"], beam: int) -> tuple[list[int], float]:
    """The likeliest sequence that a beam of so many prefixes finds, and its log-probability.

    A prefix has two numbers: its paths that end in a blank, and those that end in its last symbol.
    """
    found: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for row in log_y.double().tolist():
        new: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [-math.inf, -math.inf])
        for prefix, (blank, symbol) in found.items():
            both = _add(blank, symbol)
            here = new[prefix]
            here[0] = _add(here[0], both + row[BLANK])
            if prefix:
                here[1] = _add(here[1], symbol + row[prefix[-1]])
            for k in range(1, len(row)):
                longer = new[*prefix, k]
                again = bool(prefix) and k == prefix[-1]  # a blank must stand between equal ones
                longer[1] = _add(longer[1], (blank if again else both) + row[k])
        best = sorted(new, key=lambda prefix: _add(*new[prefix]), reverse=True)[:beam]  # (10)
        found = {prefix: (new[prefix][0], new[prefix][1]) for prefix in best}
    prefix = max(found, key=lambda prefix: _add(*found[prefix]))
    return [*prefix], _add(*found[prefix])


def _add(x: float, y: float) -> float:
    """log(e^x + e^y)."""
    low, high = min(x, y), max(x, y)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def align(said: Sequence[int], heard: Sequence[int]) -> list[tuple[int | None, int | None]]:
    """Pairs of what was said and heard with the fewest mistakes; None where one is missing."""
    cost = [[max(i, j) if not i * j else 0 for j in range(len(heard) + 1)]
            for i in range(len(said) + 1)]  # fmt: skip
    for i, one in enumerate(said, 1):
        for j, other in enumerate(heard, 1):
            cost[i][j] = min(
                cost[i - 1][j - 1] + (one != other), cost[i - 1][j] + 1, cost[i][j - 1] + 1
            )
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(said), len(heard)
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (said[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((said[i], heard[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            pairs.append((said[i], None))
        else:
            j -= 1
            pairs.append((None, heard[j]))
    return pairs[::-1]


def count_mistakes(said: Sequence[int], heard: Sequence[int]) -> int:
    """The fewest symbols that are wrong, missing or too many."""
    return sum(one != other for one, other in align(said, heard))


# -------- the network ends here; training and pictures follow --------


@dataclass(frozen=True, kw_only=True)
class Speech(Training[SpeechNet]):
    """Write down what is said, without being told when."""

    last_weights: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "ctc": "-log p(what was said) of an utterance, in nats, of those that can be aligned",
        "error_rate": "symbols wrong, missing or too many, as a share of those said: best path",
        "beam_error_rate": "the same share by a beam of prefixes",
    }

    data: str = "tone-words"
    """Clips of one word each, of which utterances are made; or a csv of file,transcript."""
    tokens: str = "words"
    """What a transcript is cut into: words or characters."""
    held_out: str = ""
    """A speaker whose clips are the test, and of whom nothing is learned."""
    sample_rate: int = 0
    """Samples a second to which clips are resampled; 0 leaves them as they are."""
    trim: float = 0.0
    """Ends so many decibels below the loudest stretch are cut off; 0 cuts nothing."""
    words: int = 5
    """An utterance of single words has one to so many of them."""
    mels: int = 40
    """Bands of the log-mel energies."""
    hidden_size: int = 64
    """Units of each cell."""
    layers: int = 1
    """Layers of cells, each of both directions."""
    dropout: float = 0.0
    """Dropout of features and states."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "words", "mels", "hidden_size", "layers")
        self.at_least(0, "sample_rate", "trim")
        self.one_of("tokens", ("words", "characters"))
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        data = load(
            self.data, kind="sound", batch_size=self.batch_size, seed=self.seed,
            rate=self.sample_rate, trim=self.trim, held_out=self.held_out, tokens=self.tokens,
        )  # fmt: skip
        if data.spec["task"] == "transcription":
            return replace(data, eval_batch_size=64)
        return make_utterances(data, most=self.words)

    def model(self, data: Data) -> SpeechNet:
        return SpeechNet(
            len(data.spec["symbols"]), rate=data.spec["rate"], mels=self.mels,
            hidden_size=self.hidden_size, layers=self.layers, dropout=self.dropout,
        )  # fmt: skip

    def losses(self, u: Tensor, steps: Tensor, batch: Batch) -> Float[Tensor, " batch"]:
        """-log p of each utterance; 0 where there are too few frames for what was said."""
        _, _, y, counts = batch
        loss = ctc_loss(u, steps, y + 1, counts, blank=BLANK)  # (5)
        return torch.where(loss.isfinite(), loss, 0)

    def objective(self, model: SpeechNet, batch: Batch) -> Terms:
        u, steps = model(batch[0], batch[1]), model.steps(batch[1])
        return {"ctc": self.losses(u, steps, batch).mean()}

    def metrics(self, model: SpeechNet, batch: Batch) -> dict[str, Tensor]:
        u, steps = model(batch[0], batch[1]), model.steps(batch[1])
        rows = _rows(u, steps)
        said = _said(batch)
        wrong = [
            count_mistakes(words, best_path(row).symbols)
            for words, row in zip(said, rows, strict=True)
        ]
        return {
            "ctc": self.losses(u, steps, batch),
            "_wrong": torch.tensor(wrong).double(),
            "_said": torch.tensor([len(one) for one in said]).double(),
        }

    def summarise(self, outputs: Mapping[str, Tensor]) -> dict[str, float]:
        rate = outputs["_wrong"].sum() / outputs["_said"].sum().clamp(min=1)
        return {"ctc": outputs["ctc"].double().mean().item(), "error_rate": rate.item()}

    def final(
        self, model: SpeechNet, data: Data, generator: torch.Generator, *, beam: int = 8
    ) -> dict[str, float]:
        """The error rate of test utterances by a beam of so many prefixes."""
        check_beam(beam)
        wrong = total = 0
        for row, said in _utterances(model, data.test):
            wrong += count_mistakes(said, prefix_beam(row, beam)[0])
            total += len(said)
        return {"beam_error_rate": wrong / max(1, total)}

    def predict(
        self,
        model: SpeechNet,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        beam: int = 8,
        draw: bool = False,
    ) -> Sequence[dict[str, Any]]:
        """The text that a beam of so many prefixes finds, and when each word of it was heard (s).

        With `draw` also what was heard over time.
        """
        check_beam(beam)
        x = pad_sequence(list(inputs), batch_first=True)
        lengths = torch.tensor([len(one) for one in inputs], device=x.device)
        answers = []
        for clip, row in zip(inputs, _rows(model(x, lengths), model.steps(lengths)), strict=True):
            symbols, log_p = prefix_beam(row, beam)
            heard = place(row, symbols)
            names = [spec["symbols"][k - 1] for k in symbols]
            joint = "" if spec.get("tokens_are") == "characters" else " "
            times = [round(t * STRIDE * HOP, 3) for t in heard.at]
            answers.append(
                {
                    "text": joint.join(names),
                    "words": [
                        {"word": name, "at": at, "probability": round(sure, 4)}
                        for name, at, sure in zip(names, times, heard.sure, strict=True)
                    ],
                    "log_probability": round(log_p, 4),
                }
            )
            if draw:
                energies = model.log_mel(clip[None])[0].cpu()
                seconds = len(clip) / spec["rate"]
                answers[-1]["picture"] = heard_over_time(
                    energies, row.exp(), list(zip(names, times, strict=True)), spec["symbols"],
                    seconds,
                )  # fmt: skip
        return answers

    def picture_heard(self, model: SpeechNet, data: Data, history: History) -> Figure:
        """A validation utterance as log-mel energies, and what is heard of it over time.

        Names stand where their words are heard most surely. Below is the probability of each symbol
        in each frame, and in grey that of the blank, which says nothing.
        """
        clip, row, said = _longest(model, data)
        heard = place(row, said)
        names = [data.spec["symbols"][k - 1] for k in said]
        times = [t * STRIDE * HOP for t in heard.at]
        return heard_over_time(
            model.log_mel(clip[None])[0].cpu(), row.exp(), list(zip(names, times, strict=True)),
            data.spec["symbols"], len(clip) / data.spec["rate"],
        )  # fmt: skip

    def picture_lattice(
        self, model: SpeechNet, data: Data, history: History
    ) -> tuple[Figure, dict[str, str]]:
        """All alignments of a validation utterance to the words that were said.

        Rows are the words with blanks (-) around them, and the colour is the probability that a
        frame is in that state. Paths go from the upper left to the lower right; together they have
        the probability {p}.
        """
        clip, row, said = _longest(model, data)
        lattice = sum_alignments(row, said)
        names = [data.spec["symbols"][k - 1] if k else "-" for k in lattice.states]
        drawn = lattice_picture(lattice.posterior, names, len(clip) / data.spec["rate"])
        return drawn, {"p": f"{math.exp(float(lattice.log_p)):.3g}"}

    def picture_confusion(self, model: SpeechNet, data: Data, history: History) -> Figure | None:
        """What was heard (across) of each word that was said (down) in validation utterances.

        Pairs follow from the alignment with the fewest mistakes. In the last column words were
        missed, in the last row words were heard that nobody said.
        """
        names = [*data.spec["symbols"], "nothing"]
        counts = torch.zeros(len(names), len(names), dtype=torch.long)
        for row, said in _utterances(model, data.valid):
            for one, other in align(said, best_path(row).symbols):
                counts[(one or 0) - 1, (other or 0) - 1] += 1
        return confusion_matrix(counts, names)

    def tiny(self) -> Self:
        small = replace(super().tiny(), data="tone-words:100", words=2, mels=16, layers=1)
        return replace(small, held_out="", sample_rate=0, batch_size=4)


def place(log_y: Float[Tensor, "time symbols"], symbols: Sequence[int]) -> Heard:
    """When each of these symbols is heard: where its state of the lattice is likeliest."""
    if not symbols:
        return Heard([], [], [])
    posterior = sum_alignments(log_y, symbols).posterior[:, 1::2]
    sure, at = posterior.max(0)
    return Heard([*symbols], at.tolist(), sure.clamp(max=1).tolist())


def check_beam(beam: int) -> None:
    """Refuse a beam that holds nothing."""
    if beam < 1:
        raise UserError(f"beam ({beam}) must be at least 1, because so many prefixes are kept")


def _rows(u: Tensor, steps: Int[Tensor, " batch"]) -> list[Tensor]:
    """The log-probabilities of each utterance, without padding, on the CPU."""
    log_y = u.double().log_softmax(2).cpu()
    return [row[:count] for row, count in zip(log_y, steps.tolist(), strict=True)]


def _said(batch: Batch) -> list[list[int]]:
    """What was said in each utterance, as places among the logits."""
    _, _, y, counts = batch
    return [row[:count] for row, count in zip((y + 1).tolist(), counts.tolist(), strict=True)]


def _utterances(model: SpeechNet, batches: Iterator[Batch]) -> Iterator[tuple[Tensor, list[int]]]:
    """The log-probabilities of every utterance, and what was said."""
    for batch in batches:
        u = model(batch[0], batch[1])
        yield from zip(_rows(u, model.steps(batch[1])), _said(batch), strict=True)


def _longest(model: SpeechNet, data: Data) -> tuple[Tensor, Tensor, list[int]]:
    """The validation utterance of the first batch in which most is said."""
    batch = next(iter(data.valid))
    n = int(batch[3].argmax())
    clip = batch[0][n, : batch[1][n]]
    row = _rows(model(clip[None], batch[1][n : n + 1]), model.steps(batch[1][n : n + 1]))[0]
    return clip, row, _said(batch)[n]


RECIPES = {
    "speech": Speech(
        steps=600, batch_size=16, lr=5e-3, schedule="one-cycle", clip=1.0, hidden_size=32, mels=32,
        goal="error_rate <= 0.02", covers=("R16",),
    ),
    "speech-digits": Speech(
        data="spoken-digits", steps=1000, batch_size=16, lr=5e-3, schedule="one-cycle", clip=1.0,
        hidden_size=64, dropout=0.2, goal="error_rate <= 0.1", covers=("R16",),
    ),
}  # fmt: skip
