"""Music: the equations, what a note can know, particles, counts, and the verbs."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import everynet
from everynet.data.kinds.notes import BAR, TOKENS
from everynet.data.loading import samples
from everynet.data.sounds.midi import read_midi, write_midi
from everynet.nn.decoding import Draw
from everynet.nn.losses import IGNORED
from everynet.recipes.catalog import find
from everynet.runs.folder import open_run
from everynet.runs.job import Job
from everynet.runs.predict import Out, Predictor
from everynet.system.errors import UserError
from everynet.zoo.audio.music import (
    FREE,
    START,
    NextNote,
    NoteLSTM,
    by_voice,
    compare_counts,
    compose,
    count_nats,
    in_order,
    note_losses,
    resample,
    voice_names,
)

PLACE = torch.arange(3)[None] + 15


def network(voices=4, layers=1, seed=0):
    torch.manual_seed(seed)
    return NoteLSTM(voices, 6, layers).double().eval()


def notes(voices=4, time=3, batch=1, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, TOKENS, (batch, time, voices), generator=draw)


# ------------------------------------------------------------------------------------- equations


def test_voices_come_in_the_order_soprano_bass_alto_tenor():
    satb = torch.tensor([[[0, 1, 2, 3]]])
    assert in_order(satb).tolist() == [[[0, 3, 1, 2]]]
    assert in_order(torch.arange(5).view(1, 1, 5)).tolist() == [[[0, 4, 1, 2, 3]]]
    for voices in range(1, 9):
        x = torch.arange(voices).view(1, 1, voices)
        assert torch.equal(by_voice(in_order(x)), x)


@pytest.mark.parametrize("layers", [1, 2])
def test_logits_are_those_of_the_equations_note_by_note(layers):
    """(1) to (3) with torch's own cell, in float64: soprano, bass, alto, tenor of each 16th."""
    model, x = network(layers=layers), notes()
    place = PLACE % BAR
    told = [(t, v) for t in range(3) for v in (0, 3, 1, 2)]
    s = [int(x[0, t, v]) for t, v in told]
    cells = []
    for layer in model.layers:
        cell = torch.nn.LSTMCell(6, 6).double()
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
        cells.append(cell)
    states = [None] * layers
    logits = model(x, place)
    for n, (t, v) in enumerate(told):
        before = s[n - 1] if n else START
        same = s[n - 4] if n >= 4 else START
        h = model.before.weight[before] + model.same.weight[same]
        h = (h + model.voice.weight[[0, 3, 1, 2].index(v)] + model.place.weight[place[0, t]])[None]
        for k, cell in enumerate(cells):
            states[k] = cell(h, states[k])
            h = states[k][0]
        y = h @ model.output.weight.T + model.output.bias
        torch.testing.assert_close(logits[0, t, v], y[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("voices", [1, 2, 4])
def test_one_note_at_a_time_gives_the_same_logits(voices):
    model, x = network(voices, 2), notes(voices, 20, 2)
    place = (torch.arange(20) % BAR).expand(2, -1)
    whole = in_order(model(x, place)).flatten(1, 2)
    s = torch.cat([torch.full((2, voices), START), in_order(x).flatten(1)], 1)
    state = None
    for n in range(20 * voices):
        logits, state = model.step(s[:, n + voices - 1], s[:, n], number=n, state=state)
        torch.testing.assert_close(logits, whole[:, n], rtol=1e-9, atol=1e-9)


def test_no_note_is_told_from_itself_or_a_later_one():
    """A change of one note moves logits of later notes alone, in the order of (1)."""
    model, x = network(), notes()
    place = PLACE % BAR
    before = in_order(model(x, place)).flatten(1, 2)
    for n in range(12):
        s = in_order(x).flatten(1)
        s[:, n] = (s[:, n] + 1) % TOKENS
        changed = by_voice(s.unflatten(1, (3, 4)))
        moved = (in_order(model(changed, place)).flatten(1, 2) != before).any(2)[0]
        assert not moved[: n + 1].any()
        assert moved[n + 1 :].all()


def test_losses_are_nats_of_each_note_and_padding_has_none():
    model, x = network(), notes(time=5, batch=2)
    place = (torch.arange(5) % BAR).expand(2, -1)[..., None]
    losses, targets = note_losses(model, torch.cat([x, place], 2), torch.tensor([5, 2]))
    p = model(x, place[..., 0]).softmax(3).gather(3, x[..., None])[..., 0]
    torch.testing.assert_close(losses[0], -p[0].log())  # (4)
    torch.testing.assert_close(losses[1, :2], -p[1, :2].log())
    assert not losses[1, 2:].any()
    assert (targets[1, 2:] == IGNORED).all()


def test_the_objective_is_the_mean_over_notes_that_are_there():
    recipe, model, x = NextNote(), network(2), notes(2, 6, 3)
    batch = (
        torch.cat([x, torch.zeros(3, 6, 1).long()], 2),
        torch.tensor([6, 4, 1]),
        torch.arange(3),
    )
    each = recipe.metrics(model, batch)["cross_entropy"]
    assert each.shape == (22,)
    torch.testing.assert_close(recipe.objective(model, batch)["cross_entropy"], each.mean())


# -------------------------------------------------------------------------------------- composing


def test_what_is_given_stays_and_the_rest_is_drawn():
    model, x = network(), notes(time=6)
    given = x.clone()
    given[:, 2:, 1:] = FREE
    for particles in (1, 5):
        draw = Draw(torch.Generator().manual_seed(0))
        made = compose(model, given, draw, particles=particles)
        assert torch.equal(made[given != FREE], given[given != FREE])
        assert made.min() >= 0
        assert not torch.equal(made, x)


def test_free_pieces_are_drawn_with_the_probabilities_of_the_network():
    """The first note of many pieces against its distribution: a chi-squared of few classes."""
    model = network(1)
    with torch.no_grad():
        model.output.bias.add_(torch.arange(TOKENS) % 7 == 0, alpha=6)
    first = compose(model, torch.full((2000, 1, 1), FREE), Draw(torch.Generator().manual_seed(1)))
    p = model.step(torch.tensor([START]), torch.tensor([START]), number=0)[0].softmax(1)[0]
    counts = torch.bincount(first.flatten(), minlength=TOKENS).double()
    common = p > 0.01
    chi = ((counts - 2000 * p).square() / (2000 * p))[common].sum()
    assert chi < int(common.sum()) + 4 * math.sqrt(2 * int(common.sum()))


class Echo(NoteLSTM):
    """The first voice sounds 1 or 2 alike; the second of 16th 1 is what the first of 16th 2 is.

    So what is given in 16th 2 says what was drawn in 16th 1, nine to one.
    """

    def __init__(self):
        super().__init__(2, 1)

    def step(self, before, same, *, number, state=None):
        logits = torch.full((len(before), TOKENS), -50.0, dtype=torch.double)
        logits[:, 1:3] = 0.0
        if number == 1:  # the second voice of 16th 1 is 1 four times of five
            logits[:, 1] = math.log(4)
        if number == 2:  # the first voice of 16th 2 follows the second voice of 16th 1
            logits[torch.arange(len(before)), before] = math.log(9)
        return logits, (torch.zeros(len(before), 1),) if state is None else state


@pytest.mark.parametrize(("particles", "share"), [(1, 0.2), (100, 9 / 13)])
def test_particles_answer_to_what_is_given_later(particles, share):
    """By Bayes' rule the second voice of 16th 1 is 2 with probability 9/13, not 1/5."""
    given = torch.tensor([[[1, FREE], [2, FREE]]]).repeat(150, 1, 1)
    draw = Draw(torch.Generator().manual_seed(0))
    made = compose(Echo(), given, draw, particles=particles)[:, 0, 1]
    found = (made == 2).double().mean().item()
    assert abs(found - share) < 4 * math.sqrt(share * (1 - share) / 150)


class Remembering(Echo):
    """The same, with the note before as its state: one step later that is the note of two ago."""

    def step(self, before, same, *, number, state=None):
        if state is not None:
            assert torch.equal(state[0][:, 0], same.double()), "a state of another particle"
        return super().step(before, same, number=number)[0], (before.double()[:, None],)


def test_a_particle_that_is_taken_again_brings_its_state():
    given = torch.tensor([[[1, FREE], [2, FREE], [1, FREE]]])
    compose(Remembering(), given, Draw(torch.Generator().manual_seed(0)), particles=50)


def test_resampling_takes_each_as_often_as_it_weighs():
    w = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]]).double()
    rows = resample(w, torch.Generator().manual_seed(0))
    assert rows[0].bincount(minlength=4).tolist() == [2, 1, 1, 0]
    assert rows[1].tolist() == [7, 7, 7, 7]


# ----------------------------------------------------------------------------------------- counts


def by_dictionaries(train, test, order):
    """(6) as it is written, with a dictionary of counts."""
    counts = Counter()
    for piece in train:
        padded = [START] * (order - 1) + piece
        for n in range(len(piece)):
            for k in range(order):
                counts[tuple(padded[n + order - 1 - k : n + order])] += 1
    followers = {}
    for gram in counts:
        followers.setdefault(gram[:-1], []).append(gram[-1])
    nats = []
    for piece in test:
        padded = [START] * (order - 1) + piece
        for n in range(len(piece)):
            p = 1 / TOKENS
            for k in range(order):
                gram = tuple(padded[n + order - 1 - k : n + order])
                if gram[:-1] not in followers:
                    break
                types = len(followers[gram[:-1]])
                total = sum(counts[(*gram[:-1], s)] for s in followers[gram[:-1]])
                p = (counts[gram] + types * p) / (total + types)
            nats.append(-math.log(p))
    return nats


@pytest.mark.parametrize("order", [1, 2, 4])
def test_counts_are_those_of_dictionaries(order):
    draw = torch.Generator().manual_seed(order)
    pieces = [torch.randint(0, 5, (n,), generator=draw) for n in (30, 1, 17, 12)]
    train, test = pieces[:2], [*pieces[2:], torch.tensor([128, 7])]
    found = count_nats(train, test, order).tolist()
    lists = [[p.tolist() for p in some] for some in (train, test)]
    assert found == pytest.approx(by_dictionaries(*lists, order))


def test_counts_of_one_note_by_hand():
    """a a b: of 3 notes 2 are a, of 2 kinds; so p(a) = (2 + 2/129) / 5."""
    (nats,) = count_nats([torch.tensor([4, 4, 9])], [torch.tensor([4])], 1).tolist()
    assert nats == pytest.approx(-math.log((2 + 2 / TOKENS) / 5))


def test_count_models_and_the_grammar_are_reported():
    data = find("music").tiny().dataset()
    found = compare_counts(data)
    assert found["grammar"] == data.spec["entropy"] < min(found.values()) + 1e-9
    assert [*found] == [
        "interleaved_3gram", "interleaved_7gram", "voices_5gram", "voices_6gram", "grammar",
    ]  # fmt: skip


def test_names_of_voices():
    assert voice_names(4) == ("soprano", "alto", "tenor", "bass")
    assert voice_names(2) == ("melody", "bass")
    assert voice_names(3)[2] == "voice 3"


# ------------------------------------------------------------------------------------------ verbs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    recipe = replace(find("music").tiny(), steps=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda *_: ())
        return everynet.run(recipe, folder, device="cpu").folder


@pytest.fixture
def theme(tmp_path):
    path = tmp_path / "theme.mid"
    melody = samples("melodies:20", kind="notes").parts["test"][0][:BAR, :1]
    path.write_bytes(write_midi(melody))
    return path, melody


def test_predict_goes_on_from_a_theme(run, theme, tmp_path):
    path, melody = theme
    (answer,) = everynet.trained(run).predict([str(path)], bars=2)
    piece = answer["piece"].numpy()
    assert piece.shape == (3 * BAR, 2)
    assert np.array_equal(piece[:BAR, 0], melody[:, 0])
    assert (piece[:BAR, 1] == -1).all()
    assert answer["sixteenths"] == BAR
    assert 3 < answer["cross_entropy"] < 8
    out = Out(str(tmp_path / "on.mid"), "music", draws=True)
    (line,) = Predictor.of(open_run(run)).predict_files([str(path)], {"bars": "1"}, out)
    assert line["piece"] == str(tmp_path / "on.mid")
    assert (tmp_path / "on.wav").exists()
    assert len(read_midi((tmp_path / "on.mid").read_bytes(), "on").grid) == 2 * BAR


def test_predict_harmonises(run, theme):
    path, melody = theme
    settings = {"harmonise": True, "particles": 4, "temperature": 0.5}
    (answer,) = everynet.trained(run).predict([str(path)], **settings)
    piece = answer["piece"].numpy()
    assert np.array_equal(piece[:, 0], melody[:, 0])
    assert len(piece) == BAR
    assert (piece[:, 1] >= 0).any()
    (again,) = everynet.trained(run).predict([str(path)], **settings)
    assert np.array_equal(again["piece"], piece)
    (other,) = everynet.trained(run).predict([str(path)], seed=1, **settings)
    assert not np.array_equal(other["piece"], piece)


def test_sample_writes_midi_and_wav(run, theme, tmp_path):
    predictor = Predictor.of(open_run(run))
    made, paths = predictor.write_samples(
        {"bars": "1", "n": "2"}, Out(str(tmp_path / "a"), "music")
    )
    assert made.shape == (2, BAR, 2)
    assert [p.suffix for p in paths] == [".mid", ".wav"] * 2
    path, melody = theme
    settings = {"soprano": str(path), "particles": "3"}
    made, _ = predictor.write_samples(settings, Out(str(tmp_path / "b.mid"), "music"))
    assert np.array_equal(made[0, :, 0], melody[:, 0])
    assert (tmp_path / "b.wav").exists()


def test_evaluate_on_files_has_no_counts(run, theme):
    path, _ = theme
    found = everynet.evaluate(run, path.parent)
    assert [*found] == ["cross_entropy"]
    assert found["cross_entropy"] > 0


def test_bad_settings_are_refused(run, theme):
    path, _ = theme
    trained = everynet.trained(run)
    for settings, words in (
        ({"bars": 0}, r"bars \(0\) must be from 1 to"),
        ({"particles": 0}, r"particles \(0\) must be from 1"),
        ({"temperature": 0.0}, r"temperature \(0.0\) must be above 0"),
    ):
        with pytest.raises(UserError, match=words):
            trained.predict([str(path)], **settings)
    with pytest.raises(UserError, match=r"bars \(4097 in all\) must be at most 4,096"):
        trained.predict([str(path)], bars=4096)
    with pytest.raises(UserError, match=r"n \(0\) must be"):
        trained.sample(n=0)
    one = NoteLSTM(1, 4)
    with pytest.raises(UserError, match="need a network of 2 voices or more"):
        NextNote().predict(one, [torch.ones(4, 1).long()], {"voices": 1}, harmonise=True)
    for field, value in (("window", 0), ("transpose", 25), ("dropout", 1.0), ("layers", 0)):
        with pytest.raises(UserError, match=field):
            NextNote(**{field: value})


@pytest.mark.slow
def test_beats_every_count_model(tmp_path):
    found = everynet.run(find("music"), tmp_path, device="cpu").metrics
    counts = [found[name] for name in found if name.endswith("gram")]
    assert found["cross_entropy"] < min(counts)
    assert found["cross_entropy"] > found["grammar"]
