"""The grammar of melodies keeps its rules and knows its probability; chorales as they ship."""

import math
from collections import Counter

import numpy as np
import pytest

from everynet.data.kinds.notes import BAR
from everynet.data.loading import samples
from everynet.data.sets import music
from everynet.data.split import PARTS
from everynet.system.errors import UserError


@pytest.fixture(scope="module")
def melodies():
    return samples("melodies:60", kind="notes")


def test_parts_and_repeats(melodies):
    assert [len(melodies.parts[part]) for part in PARTS] == [54, 6, 12]
    again = samples("melodies:60", kind="notes")
    assert again.digest == melodies.digest
    for piece in melodies.parts["train"]:
        assert piece.shape == (8 * BAR, 2)
        assert piece.min() >= 36
        assert np.array_equal(piece[4 * BAR : 6 * BAR], piece[: 2 * BAR])
        tonic = piece[0, 1] % 12
        assert set(piece[-BAR:, 0] % 12) == {tonic}
        assert set(piece[-BAR:, 1] % 12) == {tonic}
        assert {(p - tonic) % 12 for p in piece.flatten()} <= set(music._SCALE)


def test_no_two_pieces_are_equal_and_all_keys_occur(melodies):
    pieces = [piece.tobytes() for part in PARTS for piece in melodies.parts[part]]
    assert len(set(pieces)) == len(pieces)
    assert len({piece[0, 1] % 12 for piece in melodies.parts["train"]}) == 12


def test_the_probability_of_a_piece_is_that_of_its_choices(monkeypatch):
    """The log-probability that is reported is the sum over every choice that was made."""
    made, call = [], music._Choices.__call__

    def watched(self, weights):
        chosen = call(self, weights)
        made.append(math.log(weights[chosen] / sum(weights.values())))
        return chosen

    monkeypatch.setattr(music._Choices, "__call__", watched)
    (_, log_p), *_ = music._draw(1, 3)
    assert log_p == pytest.approx(sum(made))
    assert len(made) > 30


def test_choices_have_their_probabilities():
    choose = music._Choices(music.Random("a"))
    counts = Counter(choose({"a": 3.0, "b": 1.0}) for _ in range(4000))
    assert abs(counts["a"] / 4000 - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 4000)
    expected = counts["a"] * math.log(0.75) + counts["b"] * math.log(0.25)
    assert choose.log_p == pytest.approx(expected)


def test_the_entropy_is_that_of_the_test_pieces(melodies):
    log_p = [log_p for _, log_p in music._draw(12, 3)]
    assert melodies.entropy == pytest.approx(-sum(log_p) / (12 * 8 * BAR * 2))
    assert 0.15 < melodies.entropy < 0.25


def test_a_wrong_count_is_refused():
    with pytest.raises(UserError, match="melodies:20"):
        samples("melodies:3", kind="notes")


@pytest.mark.real_data
def test_chorales_are_as_they_ship():
    found = samples("chorales", kind="notes")
    assert found.published
    assert found.voices == 4
    assert found.entropy == 0
    assert found.parts["train"][0][0].tolist() == [74, 70, 65, 58]
    assert sum(map(len, found.parts["test"])) == 18_900
