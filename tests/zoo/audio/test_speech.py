"""Speech to text: the lattice, both ways to read it off, utterances, mistakes, messages."""

import math
from collections import defaultdict
from functools import cache
from itertools import groupby, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.draws import Share
from everynet.data.loading import Like
from everynet.data.sounds import wav
from everynet.kernels.ctc import ctc_loss
from everynet.system.errors import UserError
from everynet.system.seeds import generator
from everynet.zoo.audio.speech import (
    BLANK,
    Speech,
    SpeechNet,
    align,
    best_path,
    count_mistakes,
    place,
    prefix_beam,
    sum_alignments,
)
from everynet.zoo.audio.utterances import LONGEST, SHORTEST


@cache
def words():
    return Speech(data="tone-words:100", batch_size=4).dataset()


def log_y(seed=0, time=5, symbols=3, scale=2.0):
    logits = scale * torch.randn(time, symbols, dtype=torch.float64, generator=generator(seed))
    return logits.log_softmax(1)


def collapsed(path):
    return tuple(k for k, _ in groupby(path) if k != BLANK)


def by_sequence(rows):
    """The probability of each sequence, by a sum over all paths."""
    total = defaultdict(float)
    for path in product(range(rows.shape[1]), repeat=len(rows)):
        total[collapsed(path)] += math.exp(sum(float(rows[t, k]) for t, k in enumerate(path)))
    return total


# ------------------------------------------------------------------------------------ equations


@pytest.mark.covers("R16")
@pytest.mark.parametrize("said", [(), (1,), (1, 1), (1, 2), (2, 1, 2)])
def test_the_lattice_is_all_paths_and_the_compiled_loop(said):
    rows = log_y()
    lattice = sum_alignments(rows, said)
    assert math.exp(float(lattice.log_p)) == pytest.approx(by_sequence(rows)[said], rel=1e-12)
    loss = ctc_loss(
        rows[None], torch.tensor([5]), torch.tensor([[*said, 0]]), torch.tensor([len(said)])
    )
    torch.testing.assert_close(-loss[0], lattice.log_p)


@pytest.mark.parametrize("said", [(1,), (1, 1), (2, 1)])
def test_the_posterior_is_the_share_of_paths_in_each_state(said):
    rows, total = log_y(4), 0.0
    expected = torch.zeros(5, 2 * len(said) + 1, dtype=torch.float64)
    for path in product(range(3), repeat=5):
        if collapsed(path) != said:
            continue
        p = math.exp(sum(float(rows[t, k]) for t, k in enumerate(path)))
        total += p
        state, before = 0, BLANK
        for t, k in enumerate(path):
            if k == BLANK:
                state += state % 2
            elif k != before:
                state += 2 if state % 2 else 1
            expected[t, state] += p
            before = k
    lattice = sum_alignments(rows, said)
    torch.testing.assert_close(lattice.posterior, expected / total)
    torch.testing.assert_close(lattice.posterior.sum(1), torch.ones(5, dtype=torch.float64))


def test_a_wide_beam_finds_the_likeliest_sequence_and_its_probability():
    for seed in range(10):
        rows = log_y(seed, scale=1.0)
        exact = by_sequence(rows)
        best = max(exact, key=exact.get)
        found, log_p = prefix_beam(rows, 1000)
        assert tuple(found) == best
        assert math.exp(log_p) == pytest.approx(exact[best], rel=1e-12)
        greedy = math.exp(prefix_beam(rows, 1)[1])
        assert greedy <= exact[best] + 1e-12


def test_the_sum_of_paths_can_differ_from_the_best_path():
    """Graves's example: the blank is the likeliest in each frame, but not the likeliest text."""
    rows = torch.tensor([[0.6, 0.4], [0.6, 0.4]], dtype=torch.float64).log()
    assert best_path(rows).symbols == []
    assert prefix_beam(rows, 4)[0] == [1]


def test_the_best_path_collapses():
    path = [0, 1, 1, 0, 1, 2, 2, 0]
    rows = torch.full((8, 3), 0.05, dtype=torch.float64)
    for t, k in enumerate(path):
        rows[t, k] = 0.9
    rows[2, 1] = 0.95
    heard = best_path(rows.log())
    assert (heard.symbols, heard.at) == ([1, 1, 2], [2, 4, 5])
    assert heard.sure == pytest.approx([0.95, 0.9, 0.9])
    assert place(rows.log(), [1, 1, 2]).symbols == [1, 1, 2]
    assert [at in near for at, near in zip(place(rows.log(), [1, 1, 2]).at, ((1, 2), (4,), (5, 6)),
                                           strict=True)] == [True] * 3  # fmt: skip
    assert place(rows.log(), []).symbols == []


def network(layers=2):
    torch.manual_seed(1)
    return SpeechNet(
        3, rate=8000, mels=12, hidden_size=4, layers=layers, dropout=0.0
    ).double().eval()  # fmt: skip


def test_the_network_is_its_equations():
    model, x = network(1), torch.randn(1, 3000, dtype=torch.float64) / 10
    y = model.log_mel(x)[0]
    h = (y - y.mean()) / (y.var(correction=0) + 1e-6).sqrt()
    weight, bias = model.features.weight, model.features.bias
    padded = torch.cat([torch.zeros(2, 12), h, torch.zeros(2, 12)]).double()
    rows = []
    for t in range(0, len(h), 2):
        rows.append((weight * padded[t : t + 5].T).sum((1, 2)) + bias)
    c = torch.stack(rows).clamp(min=0)[None]
    f, g = model.onward[0](c)[0], model.back[0](c.flip(1))[0].flip(1)
    expected = torch.cat([f, g], 2) @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(x, torch.tensor([3000])), expected)
    assert model.steps(torch.tensor([3000])).tolist() == [expected.shape[1]]


def test_padding_and_the_other_utterances_change_nothing():
    model = network()
    x = torch.randn(2, 3000, dtype=torch.float64) / 10
    lengths = torch.tensor([3000, 2000])
    x[1, 2000:] = 0
    together = model(x, lengths)
    steps = model.steps(lengths).tolist()
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, : steps[row]], alone[: steps[row]])


def test_louder_is_the_same_to_it():
    model, x = network(), torch.randn(1, 3000, dtype=torch.float64)
    lengths = torch.tensor([3000])
    torch.testing.assert_close(model(x, lengths), model(x / 7, lengths))


# -------------------------------------------------------------------------------------- mistakes


@given(st.lists(st.integers(1, 3), max_size=5), st.lists(st.integers(1, 3), max_size=5))
def test_mistakes_are_the_edit_distance(said, heard):
    def distance(a, b):
        if not a or not b:
            return len(a) + len(b)
        return min(
            distance(a[1:], b[1:]) + (a[0] != b[0]), distance(a[1:], b) + 1, distance(a, b[1:]) + 1
        )

    assert count_mistakes(said, heard) == distance(said, heard)
    pairs = align(said, heard)
    assert [one for one, _ in pairs if one is not None] == said
    assert [other for _, other in pairs if other is not None] == heard


def test_the_error_rate_is_a_share_of_the_words_not_of_the_utterances():
    recipe, data = Speech(data="tone-words:100", batch_size=4), words()
    model = recipe.model(data).eval()
    outputs = [recipe.metrics(model, batch) for batch in data.valid]
    wrong, said = (torch.cat([one[name] for one in outputs]) for name in ("_wrong", "_said"))
    found = recipe.summarise(
        {name: torch.cat([one[name] for one in outputs]) for name in outputs[0]}
    )
    assert found["error_rate"] == pytest.approx(float(wrong.sum() / said.sum()))


# ------------------------------------------------------------------------------------ utterances


def test_an_utterance_is_clips_of_one_speaker_with_pauses():
    data = words()
    stream, starts, labels = data.splits["train"]
    sampler = data.sampler
    for own in sampler.by_speaker:
        assert len({int(labels[n, 1]) for n in own}) == 1
    assert sum(map(len, sampler.by_speaker)) == len(labels)
    drawn = sampler.draw(200, generator(3))
    sizes = {len(clips) for clips, _ in drawn}
    assert sizes == {1, 2, 3, 4, 5}
    for clips, pauses in drawn:
        assert any(set(clips) <= set(own) for own in sampler.by_speaker)
        assert len(pauses) == len(clips) + 1
        assert all(SHORTEST * 8000 <= pause <= LONGEST * 8000 for pause in pauses)
        sound = sampler.joined(stream, clips, pauses)
        at = pauses[0]
        for clip, pause in zip(clips, pauses[1:], strict=True):
            begin, end = int(starts[clip]), int(starts[clip + 1])
            assert torch.equal(sound[at : at + end - begin], stream[begin:end])
            assert not sound[at + end - begin : at + end - begin + pause].any()
            at += end - begin + pause
        assert at == len(sound) == sampler.samples((clips, pauses))
        assert sampler.symbols(clips).tolist() == labels[list(clips), 0].tolist()


def test_training_utterances_are_made_anew_and_follow_from_seed_and_step():
    data = words()
    first, again, later = data.train(0), data.train(0), data.train(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], later[1])
    halves = [data.train(0, Share(rank, 2)) for rank in range(2)]
    for whole, *parts in zip(first, *halves, strict=True):
        assert torch.equal(whole, torch.cat(parts))


def test_evaluated_utterances_are_fixed_and_of_other_recordings():
    data = words()
    one, other = ([b[0] for b in data.valid] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    found = data.splits["test"][0].numpy().tobytes()
    stream, starts, _ = data.splits["train"]
    assert stream[starts[0] : starts[1]].numpy().tobytes() not in found


def test_clips_of_a_folder_are_evaluated_like_those_that_were_learned(tmp_path):
    data = words()
    for name in data.spec["symbols"][:2]:
        (tmp_path / name).mkdir()
        for n in range(3):
            sound = np.random.default_rng(n).integers(-9000, 9000, 2000).astype(np.int16)
            (tmp_path / name / f"{n}.wav").write_bytes(wav.encode(sound, 16_000))
    like = Like(str(tmp_path), data.spec, data.digest)
    found = Speech(data=like, batch_size=4).dataset()
    _, lengths, y, counts = next(iter(found.test))
    assert (found.spec["symbols"], found.spec["rate"]) == (data.spec["symbols"], 8000)
    assert bool((lengths > 1000 * counts).all())
    assert int(y.max()) <= 1
    words_ = data.spec["symbols"]
    (tmp_path / "a.csv").write_text(f"file,transcript\n{words_[0]}/0.wav,{words_[3]} {words_[1]}\n")
    listed = Like(str(tmp_path / "a.csv"), data.spec, data.digest)
    _, lengths, y, _ = next(iter(Speech(data=listed, batch_size=4).dataset().test))
    assert (lengths.tolist(), y.tolist()) == ([1000], [[3, 1]])


# ------------------------------------------------------------------------------ files, messages


def talk(folder, count=24, frames=3000):
    random = np.random.default_rng(0)
    names = ("one", "two", "one two")
    for n in range(count):
        sound = random.integers(-9000, 9000, frames).astype(np.int16)
        (folder / f"{n}.wav").write_bytes(wav.encode(sound, 8000))
    listed = "\n".join(f"{n}.wav,{names[n % 3]}" for n in range(count))
    (folder / "a.csv").write_text(f"file,transcript\n{listed}\n")
    return str(folder)


def test_transcripts_of_words_and_of_letters_are_learned(tmp_path):
    for tokens, symbols in (("words", 2), ("characters", 6)):
        recipe = Speech(data=talk(tmp_path), tokens=tokens, batch_size=4, hidden_size=4)
        data = recipe.dataset()
        model = recipe.model(data).eval()
        assert model.output.out_features == symbols + 1
        assert recipe.objective(model, data.train(0))["ctc"].isfinite()
        x, lengths, *_ = next(iter(data.valid))
        (answer,) = recipe.predict(model, [x[0, : lengths[0]]], data.spec, draw=True)
        joint = "" if tokens == "characters" else " "
        assert answer["text"] == joint.join(one["word"] for one in answer["words"])
        assert answer["picture"].axes


def test_a_clip_too_short_for_its_transcript_is_left_out_of_the_loss(tmp_path):
    recipe = Speech(data=talk(tmp_path, frames=200), tokens="characters", batch_size=4)
    data = recipe.dataset()
    model = recipe.model(data)
    assert recipe.objective(model, data.train(0))["ctc"].isfinite()


def test_messages():
    for settings, said in (
        ({"words": 0}, r"words \(0\) must be at least 1"),
        ({"dropout": 1.0}, r"dropout \(1.0\) must be at least 0 and below 1"),
        ({"tokens": "bpe"}, "unknown tokens 'bpe'"),
    ):
        with pytest.raises(UserError, match=said):
            Speech(**settings)
    with pytest.raises(UserError, match=r"beam \(0\) must be at least 1"):
        Speech().predict(network(), [], {}, beam=0)
