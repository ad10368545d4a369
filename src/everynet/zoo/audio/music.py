"""Music by an LSTM: every note is predicted from all notes before it, voice by voice, 16th by 16th.

    x_n = E s_{n-1} + H s_{n-V} + A v_n + B b_n               (1)  input of note n
    h_n = LSTM(x_n, h_{n-1})                                  (2)  state, layer upon layer
    y_n = W h_n + c                                           (3)  logits of note n
    L = -mean_n log softmax(y_n)[s_n]                         (4)  nats a note
    w <- w * softmax(y_n)[s_n]      where s_n is given        (5)  weight of a particle
    P_k(s|g) = (c(g s) + t(g) P_{k-1}(s|g')) / (c(g) + t(g))  (6)  Witten-Bell, counts of notes

s_n is note n: one of 128 pitches or a rest, on a grid of 16ths, where a note that is held stands in
each of them. Notes come in the order soprano, bass, alto, tenor of each 16th, so that the inner
voices know what they are between; V is the number of voices, and s_{n-V} the same voice a 16th
before. v_n is the voice and b_n the place in the bar. E, H, A and B are embeddings; the LSTM is
torch's, equations (1) to (4) of `recurrent/lstm.py`. In training an excerpt is moved by up to
`transpose` semitones, because music has its laws in every key.

Voices that are given stay as they are, and the others are drawn between them. By (5) what is drawn
answers to what is given later: many pieces, the particles, are written at once, each counts by the
probability that it gave to what came, and those that count for little give way to copies of others.

In (6), the baseline, g is the k - 1 notes before, g' is g without the earliest, c counts and t is
the number of different notes that followed g; below single notes stands 1 / 129.

Hochreiter, Schmidhuber (1997), "Long short-term memory", doi:10.1162/neco.1997.9.8.1735; Eck,
Schmidhuber (2002), "Finding temporal structure in music: blues improvisation with LSTM recurrent
networks", doi:10.1109/NNSP.2002.1030094; Hadjeres, Pachet, Nielsen (2017), "DeepBach: a steerable
model for Bach chorales generation", arXiv:1612.01010 (the grid); Gordon, Salmond, Smith (1993),
"Novel approach to nonlinear/non-Gaussian Bayesian state estimation", doi:10.1049/ip-f-2.1993.0015
(5); Witten, Bell (1991), "The zero-frequency problem", doi:10.1109/18.87000 (6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everynet.data import load
from everynet.data.dataset import Batch, Data, History, Spec, Terms
from everynet.data.kinds import Inputs
from everynet.data.kinds.notes import BAR, TOKENS, bars
from everynet.data.sounds.midi import MOST_LENGTH
from everynet.metrics.meanings import meanings
from everynet.nn.decoding import Draw, take_rows
from everynet.nn.losses import IGNORED
from everynet.nn.recurrent import set_uniform
from everynet.plot import Panel, panels
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.zoo.audio.pictures.rolls import nats_of_models, piano_rolls

START = TOKENS
"""What stands before the first notes of a piece."""
FREE = -1
"""A note that is to be drawn."""
State = tuple[tuple[Tensor, Tensor], ...]
"""h and c of each layer, with the batch first."""


class NoteLSTM(nn.Module):
    """Maps pieces to the logits of each of their notes, which follow from the notes before it."""

    def __init__(
        self, voices: int, hidden_size: int, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.before = nn.Embedding(TOKENS + 1, hidden_size)
        self.same = nn.Embedding(TOKENS + 1, hidden_size)
        self.voice = nn.Embedding(voices, hidden_size)
        self.place = nn.Embedding(BAR, hidden_size)
        cells = [nn.LSTM(hidden_size, hidden_size, batch_first=True) for _ in range(layers)]
        self.layers = nn.ModuleList(cells)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden_size, TOKENS)
        self.init_weights()

    def init_weights(self) -> None:
        """Small weights; forget gates begin open, and embeddings so that their sum is of size 1."""
        for embedding in (self.before, self.same, self.voice, self.place):
            nn.init.normal_(embedding.weight, std=0.5)
        for layer in self.layers:
            assert isinstance(layer, nn.LSTM)
            set_uniform(layer, layer.hidden_size)
            _, _, b_x, b_h = layer.all_weights[0]
            with torch.no_grad():
                b_x.view(4, -1)[1] = 1.0
                b_h.view(4, -1)[1] = 0.0

    def forward(
        self, notes: Int64[Tensor, "batch time voices"], place: Int64[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time voices vocab"]:
        """The logits of every note, of a piece whose first notes nothing comes before."""
        batch, time, voices = notes.shape
        s = in_order(notes).flatten(1)  # batch steps
        s = torch.cat([s.new_full((batch, voices), START), s], 1)
        before, same = s[:, voices - 1 : -1], s[:, :-voices]
        x = (self.before(before) + self.same(same)).unflatten(1, (time, voices))
        x = x + self.voice.weight + self.place(place)[:, :, None]  # (1)
        h = self.dropout(x.flatten(1, 2))
        for layer in self.layers:
            h = self.dropout(layer(h)[0])  # (2)
        y = self.output(h)  # (3)
        return by_voice(y.unflatten(1, (time, voices)))

    def step(
        self,
        before: Int64[Tensor, " batch"],
        same: Int64[Tensor, " batch"],
        *,
        number: int,
        state: State | None = None,
    ) -> tuple[Float[Tensor, "batch vocab"], State]:
        """The logits of note `number` of pieces, counted in order, and the state after it.

        `forward` gives the same for all notes at once.
        """
        time, voice = divmod(number, self.voice.num_embeddings)
        x = self.before(before) + self.same(same)
        x = x + self.voice.weight[voice] + self.place.weight[time % BAR]  # (1)
        after = list[tuple[Tensor, Tensor]]()
        h = x[:, None]
        for n, layer in enumerate(self.layers):
            known = None if state is None else tuple(t[None].contiguous() for t in state[n])
            h, (last, memory) = layer(h, known)  # (2)
            after.append((last[0], memory[0]))
        return self.output(h[:, 0]), tuple(after)  # (3)


def in_order(notes: Tensor) -> Tensor:
    """Voices from the highest to the lowest in the order of prediction: bass second."""
    if notes.shape[2] < 3:
        return notes
    return torch.cat([notes[:, :, :1], notes[:, :, -1:], notes[:, :, 1:-1]], 2)


def by_voice(notes: Tensor) -> Tensor:
    """What `in_order` gives, from the highest voice to the lowest again."""
    if notes.shape[2] < 3:
        return notes
    return torch.cat([notes[:, :, :1], notes[:, :, 2:], notes[:, :, 1:2]], 2)


def note_losses(
    model: nn.Module, x: Int64[Tensor, "batch time columns"], lengths: Int64[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch time voices"], Int64[Tensor, "batch time voices"]]:
    """The nats of each note, 0 where there is padding, and the notes, there IGNORED."""
    notes, place = x[..., :-1], x[..., -1]
    inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    targets = torch.where(inside[..., None], notes, IGNORED)
    logits = model(notes, place).permute(0, 3, 1, 2)  # batch vocab time voices
    return cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED), targets  # (4)


def compose(
    model: NoteLSTM,
    given: Int64[Tensor, "pieces time voices"],
    draw: Draw,
    *,
    particles: int = 1,
) -> Int64[Tensor, "pieces time voices"]:
    """Pieces in which what is given stays and what is FREE is drawn, in answer to all that is."""
    pieces, time, voices = given.shape
    wanted = in_order(given).flatten(1).repeat_interleave(particles, 0)
    known = wanted[0].ne(FREE).tolist() if pieces == 1 else None
    s = wanted.new_full((len(wanted), voices * (time + 1)), START)
    weights = torch.zeros(pieces, particles, dtype=torch.double, device=s.device)
    state: State | None = None
    for n in range(time * voices):
        at = n + voices
        logits, state = model.step(s[:, at - 1], s[:, n], number=n, state=state)
        its, free = wanted[:, n], wanted[:, n] == FREE
        note = its if known and known[n] else torch.where(free, draw(logits)[1], its)
        s[:, at] = note
        if particles == 1 or (known and not known[n]):
            continue
        log_p = logits.double().log_softmax(1).gather(1, note[:, None])[:, 0]
        weights = weights + log_p.where(~free, 0).view(pieces, particles)  # (5), its logarithm
        w = weights.softmax(1)
        if bool((1 / w.square().sum(1) < particles / 2).any()):
            rows = resample(w, draw.generator).flatten()
            s, state = s[rows], take_rows(state, rows)
            weights = torch.zeros_like(weights)
    best = weights.softmax(1).cpu()
    chosen = torch.multinomial(best, 1, generator=draw.generator)[:, 0].to(s.device)
    chosen = chosen + torch.arange(pieces, device=s.device) * particles
    return by_voice(s[chosen, voices:].unflatten(1, (time, voices)))


def resample(
    w: Float[Tensor, "pieces particles"], generator: torch.Generator | None
) -> Int64[Tensor, "pieces particles"]:
    """Rows of particles, each as often as its weight says, to one more or less."""
    pieces, particles = w.shape
    first = torch.rand(pieces, 1, generator=generator, dtype=torch.double).to(w.device)
    combs = (first + torch.arange(particles, device=w.device)) / particles
    rows = torch.searchsorted(w.cumsum(1), combs).clamp(max=particles - 1)
    return rows + torch.arange(pieces, device=w.device)[:, None] * particles


def count_nats(
    train: Sequence[Int64[Tensor, " _"]], test: Sequence[Int64[Tensor, " _"]], order: int
) -> Float[Tensor, " notes"]:
    """The nats of each note of `test` by the counts of n-grams of `train`."""
    base = TOKENS + 1
    p = torch.full((sum(map(len, test)),), 1 / TOKENS, dtype=torch.double)
    for k in range(order):
        known, asked = _ngrams(train, k, base), _ngrams(test, k, base)
        grams, count = known.unique(return_counts=True)
        past, seen = known.div(base, rounding_mode="floor").unique(return_counts=True)
        _, types = grams.div(base, rounding_mode="floor").unique(return_counts=True)
        c = _look_up(asked, grams, count)
        history = asked.div(base, rounding_mode="floor")
        n, t = _look_up(history, past, seen), _look_up(history, past, types)
        p = torch.where(n > 0, (c + t * p) / (n + t).clamp(min=1), p)  # (6)
    return -p.log()


def _ngrams(pieces: Sequence[Int64[Tensor, " _"]], k: int, base: int) -> Int64[Tensor, " notes"]:
    """Each note with the k before it, as one number; START stands before a piece."""
    padded = [torch.cat([piece.new_full((k,), START), piece]) for piece in pieces]
    powers = base ** torch.arange(k, -1, -1)
    return torch.cat([(piece.unfold(0, k + 1, 1) * powers).sum(1) for piece in padded])


def _look_up(
    asked: Int64[Tensor, " notes"], keys: Int64[Tensor, " _"], values: Int64[Tensor, " _"]
) -> Int64[Tensor, " notes"]:
    at = torch.searchsorted(keys, asked).clamp(max=len(keys) - 1)
    return torch.where(keys[at] == asked, values[at], 0)


# -------- the network ends here; training and pictures follow --------

COUNTED = {
    "interleaved_3gram": (3, False),
    "interleaved_7gram": (7, False),
    "voices_5gram": (5, True),
    "voices_6gram": (6, True),
}
"""The order of each count model, and whether it knows its own voice alone."""


@dataclass(frozen=True, kw_only=True)
class NextNote(Training[NoteLSTM]):
    """Predict each note of music in several voices from the notes before it."""

    meanings: ClassVar[Mapping[str, str]] = {
        **meanings("cross_entropy"),
        "interleaved_3gram": "nats a note by counts of 3 notes in the order of the network",
        "interleaved_7gram": "nats a note by counts of 7 notes in the order of the network",
        "voices_5gram": "nats a note by counts of 5 notes of the same voice",
        "voices_6gram": "nats a note by counts of 6 notes of the same voice",
        "grammar": "nats a note of the grammar that made the test pieces: none can have fewer",
    }

    data: str = "melodies"
    """A known set, or a folder of MIDI files."""
    hidden_size: int = 128
    """Units of a layer, and numbers of an embedding."""
    layers: int = 1
    """Layers, each fed by the states of the one below."""
    window: int = 64
    """16ths of an excerpt in training."""
    transpose: int = 6
    """Semitones by which an excerpt is moved in training, at most, up or down."""
    dropout: float = 0.0
    """Dropout of inputs and of outputs of layers, never of states along time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "hidden_size", "layers", "window")
        self.within(0, 24, "transpose")
        self.require(0 <= self.dropout < 1, "dropout", "at least 0 and below 1")

    def dataset(self) -> Data:
        return load(
            self.data, kind="notes", batch_size=self.batch_size, seed=self.seed,
            window=self.window, transpose=self.transpose,
        )  # fmt: skip

    def model(self, data: Data) -> NoteLSTM:
        return NoteLSTM(data.spec["voices"], self.hidden_size, self.layers, self.dropout)

    def objective(self, model: NoteLSTM, batch: Batch) -> Terms:
        x, lengths, _ = batch
        losses, targets = note_losses(model, x, lengths)
        return {"cross_entropy": losses.sum() / targets.ne(IGNORED).sum()}

    def metrics(self, model: NoteLSTM, batch: Batch) -> dict[str, Tensor]:
        """The nats of every note."""
        x, lengths, _ = batch
        losses, targets = note_losses(model, x, lengths)
        return {"cross_entropy": losses[targets != IGNORED]}

    def final(self, model: NoteLSTM, data: Data, generator: torch.Generator) -> dict[str, float]:
        """The count models, which learn from the same pieces, on those of the test."""
        return {} if data.test_only else compare_counts(data)

    def predict(
        self,
        model: NoteLSTM,
        inputs: Sequence[Tensor],
        spec: Spec,
        *,
        bars: int = 8,
        harmonise: bool = False,
        temperature: float = 0.8,
        particles: int = 64,
        seed: int = 0,
    ) -> Sequence[dict[str, Any]]:
        """The nats a note of each theme, and a piece that goes on from it for some bars.

        With `harmonise` its highest voice is kept and the others are composed to it instead.
        """
        _check_counts(bars=bars, particles=particles)
        answers = list[dict[str, Any]]()
        for theme in inputs:
            draw = Draw(torch.Generator().manual_seed(seed), temperature)
            x = torch.cat([theme, _places(theme)], 1)[None]
            losses, _ = note_losses(model, x, x.new_tensor([len(theme)]))
            sounding = theme.any(0)  # a voice that the theme lacks says nothing of it
            nats = losses[0][:, sounding].double().mean().item()
            if harmonise:
                given, many = _only_soprano(theme), particles
            else:
                more = theme.new_full((bars * BAR, theme.shape[1]), FREE)
                given, many = torch.cat([theme, more]), 1
            piece = compose(model, _checked_length(given)[None], draw, particles=many)[0]
            answers.append({"cross_entropy": nats, "sixteenths": len(theme), "piece": piece})
        return answers

    def sample(
        self,
        model: NoteLSTM,
        spec: Spec,
        generator: torch.Generator,
        *,
        n: int = 1,
        bars: int = 16,
        temperature: float = 0.9,
        top_p: float = 1.0,
        particles: int = 64,
        soprano: Inputs = (),
    ) -> Int64[Tensor, "pieces time voices"]:
        """`n` pieces of some bars; or `n` for each MIDI file of `soprano`, whose top voice stays.

        Where sopranos are of unequal length, rests follow those that are shorter.
        """
        _check_counts(n=n, bars=bars, particles=particles)
        draw = Draw(generator, temperature, top_p=top_p)
        device = model.output.weight.device
        if not len(soprano):
            shape = (n, bars * BAR, spec["voices"])
            free = torch.full(shape, FREE, device=device)
            return compose(model, _checked_length(free, axis=1), draw)
        made = [
            compose(model, _only_soprano(theme)[None], draw, particles=particles)[0]
            for theme in soprano
            for _ in range(n)
        ]
        return nn.utils.rnn.pad_sequence(made, batch_first=True)

    def tiny(self) -> Self:
        return replace(super().tiny(), data="melodies:20", window=8)

    def picture_rolls(self, model: NoteLSTM, data: Data, history: History) -> Figure:
        """Eight bars of a test piece, and as many that the network drew with nothing given.

        Each bar of colour is a note, from where it begins to where it ends.
        """
        piece = _test_pieces(data)[0][: 8 * BAR]
        free = torch.full_like(piece, FREE)[None]
        drawn = compose(model, free, Draw(torch.Generator().manual_seed(self.seed), 0.9))[0]
        names = voice_names(data.spec["voices"])
        return piano_rolls({"a test piece": piece - 1, "drawn by the network": drawn - 1}, names)

    def picture_nats(
        self, model: NoteLSTM, data: Data, history: History
    ) -> tuple[Figure, dict[str, float]]:
        """Where the nats of test pieces are: by the place in the bar, for each voice; grey, beats.

        Of all nats {share:.0%} are spent on the four beats.
        """
        sums = torch.zeros(BAR, data.spec["voices"], dtype=torch.double)
        counts = torch.zeros(BAR, 1, dtype=torch.double)
        for x, lengths, _ in data.test:
            losses, targets = note_losses(model, x, lengths)
            places, inside = x[..., -1].cpu(), targets[..., 0].ne(IGNORED).cpu()
            sums.index_add_(0, places[inside], losses.cpu().double()[inside])
            counts.index_add_(0, places[inside], torch.ones(int(inside.sum()), 1).double())
        nats = sums / counts.clamp(min=1)
        place = torch.arange(1, BAR + 1)
        names = voice_names(data.spec["voices"])
        curves = {name: (place, nats[:, v]) for v, name in enumerate(names)}
        beats = dict.fromkeys((" ", "  ", "   ", "    "))
        marks = {name: 1.0 + 4 * beat for beat, name in enumerate(beats)}
        drawn = panels(
            Panel(curves, "16th of the bar", "nats a note", marks=marks), width=6.5, height=3.0
        )
        return drawn, {"share": (sums[::4].sum() / sums.sum()).item()}

    def picture_harmonised(self, model: NoteLSTM, data: Data, history: History) -> Figure | None:
        """The highest voice of a test piece with the other voices it has, and with drawn ones.

        The highest voice is given in both; particles let what is drawn answer to what comes.
        """
        piece = _test_pieces(data)[-1][: 8 * BAR]
        if piece.shape[1] == 1:
            return None
        draw = Draw(torch.Generator().manual_seed(self.seed), 0.8)
        drawn = compose(model, _only_soprano(piece)[None], draw, particles=64)[0]
        names = voice_names(data.spec["voices"])
        return piano_rolls({"a test piece": piece - 1, "harmonised": drawn - 1}, names)

    def picture_counts(self, model: NoteLSTM, data: Data, history: History) -> Figure:
        """The nats a note of test pieces by the network, blue, and by counts of n-grams, grey.

        Black, if it is there, is the grammar that made the pieces: none can have fewer.
        """
        nats = torch.cat([self.metrics(model, batch)["cross_entropy"] for batch in data.test])
        return nats_of_models(nats.double().mean().item(), compare_counts(data))


def compare_counts(data: Data) -> dict[str, float]:
    """The nats a note of test pieces by count models, and by the grammar that made them."""
    train, test = (_pieces(data, part) for part in ("train", "test"))
    found = dict[str, float]()
    for name, (order, alone) in COUNTED.items():
        nats = [
            count_nats(_sequences(train, v), _sequences(test, v), order)
            for v in (range(data.spec["voices"]) if alone else (None,))
        ]
        found[name] = torch.cat(nats).mean().item()
    return found | ({"grammar": data.spec["entropy"]} if data.spec["entropy"] else {})


def voice_names(voices: int) -> Sequence[str]:
    """What voices are called, from the highest to the lowest."""
    if voices == 4:
        return ("soprano", "alto", "tenor", "bass")
    return ("melody", "bass") if voices == 2 else [f"voice {v + 1}" for v in range(voices)]


def _pieces(data: Data, part: str) -> list[Int64[Tensor, "_ _"]]:
    """The pieces of a part of the data, without the place in the bar."""
    stream, starts, _ = (tensor.cpu() for tensor in data.splits[part])
    return [piece[:, :-1].long() for piece in stream.tensor_split(starts[1:-1])]


def _test_pieces(data: Data) -> list[Int64[Tensor, "_ _"]]:
    """The pieces of the test, where the network is."""
    return [piece.to(data.splits["test"][0].device) for piece in _pieces(data, "test")]


def _sequences(
    pieces: Sequence[Int64[Tensor, "_ _"]], voice: int | None
) -> list[Int64[Tensor, " _"]]:
    """The notes of one voice of each piece, or of all in the order of the network."""
    if voice is not None:
        return [piece[:, voice] for piece in pieces]
    return [in_order(piece[None])[0].flatten() for piece in pieces]


def _places(piece: Int64[Tensor, "time voices"]) -> Int64[Tensor, "time one"]:
    return bars(len(piece), piece.device)[:, None]


def _only_soprano(piece: Int64[Tensor, "time voices"]) -> Int64[Tensor, "time voices"]:
    """The highest voice of a piece; the others are to be drawn."""
    if piece.shape[1] < 2:
        raise UserError(
            "harmonise and soprano need a network of 2 voices or more, and this one has learned 1"
        )
    return torch.cat([piece[:, :1], torch.full_like(piece[:, 1:], FREE)], 1)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if not 1 <= count <= MOST_LENGTH // BAR:
            raise UserError(f"{name} ({count}) must be from 1 to {MOST_LENGTH // BAR:,}")


def _checked_length(given: Tensor, axis: int = 0) -> Tensor:
    """The same, if a file of it could be read again."""
    if given.shape[axis] > MOST_LENGTH:
        raise UserError(
            f"bars ({given.shape[axis] / BAR:g} in all) must be at most {MOST_LENGTH // BAR:,}"
        )
    return given


RECIPES = {
    "music": NextNote(
        data="melodies", steps=600, batch_size=16, lr=3e-3, warmup=50, schedule="cosine", clip=1.0,
        goal="cross_entropy <= 0.55", covers=("R17",),
    ),
    "music-chorales": NextNote(
        data="chorales", hidden_size=256, window=48, dropout=0.2, steps=1600, batch_size=32,
        lr=4e-3, warmup=100, schedule="cosine", clip=1.0, eval_every=200,
        goal="cross_entropy <= 0.85", covers=("R17",),
    ),
}  # fmt: skip
