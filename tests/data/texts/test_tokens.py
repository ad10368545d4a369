"""Tokens: text goes into numbers and back, whatever it holds."""

import tracemalloc
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.texts.tokens import (
    END,
    PAD,
    SENTENCE,
    START,
    STREAM,
    UNKNOWN,
    Tokens,
    cut,
    places,
)
from everynet.system.errors import UserError

lines = st.text(st.sampled_from("ab \n\t\r\u2028é"), max_size=60)


@given(st.text())
def test_characters_come_back(text):
    tokens = Tokens.learned([text], "characters")
    assert tokens.decode(tokens.encode(text)) == text


@given(lines)
def test_words_come_back_but_for_the_space_between_them(text):
    tokens = Tokens.learned([text], "words")
    back = tokens.decode(tokens.encode(text))
    assert cut(back, "words") == cut(text, "words")
    assert tokens.encode(back) == tokens.encode(text)
    assert back.split("\n") == [" ".join(line.split()) for line in text.split("\n")]


@given(st.text(), st.text(), st.sampled_from(["characters", "words"]))
def test_a_stream_is_what_encode_gives(learned, text, kind):
    tokens = Tokens.learned([learned], kind)
    stream = tokens.stream(text)
    assert stream.tolist() == tokens.encode(text)
    assert stream.dtype == torch.uint8


def test_a_stream_goes_on_over_the_edge_of_a_chunk(monkeypatch):
    monkeypatch.setattr("everynet.data.texts.tokens._CHUNK", 7)
    tokens = Tokens.learned(["abcdefghijk"], "characters")
    text = "kjihgzfedc\U0001f600ba" * 5
    assert tokens.stream(text).tolist() == tokens.encode(text)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        *((2, torch.uint8), (256, torch.uint8), (257, torch.int16), (32768, torch.int16)),
        *((32769, torch.int32), (65536, torch.int32), (70000, torch.int32)),
    ],
)
@pytest.mark.parametrize("kind", ["words", "characters"])
def test_a_stream_takes_the_smallest_integers_that_hold_the_last_token(size, dtype, kind):
    words = [chr(0x20000 + n) for n in range(size - 1)]
    tokens = Tokens(kind, (UNKNOWN, *words))
    stream = tokens.stream(f"{words[0]} {words[-1]}" if kind == "words" else words[0] + words[-1])
    assert stream.dtype == dtype
    assert stream.tolist() == [1, size - 1]


@given(lines, st.sampled_from(["characters", "words"]))
def test_places_are_where_tokens_begin(text, kind):
    ends = [*places(text, kind), len(text)]
    parts = [text[a:b] for a, b in pairwise(ends)]
    assert [cut(part, kind) for part in parts] == [[token] for token in cut(text, kind)]


def test_places_of_a_long_text_take_eight_bytes_each():
    """As a list they took five times as much, and 200 MB of words 3 GB."""
    tracemalloc.start()
    found = places("a word " * 20_000, "words")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 40_000
    assert most < 40_000 * 16


def test_the_end_of_a_line_is_a_word():
    assert cut(" no it was n't \n black\tmonday \n", "words") == [
        *("no", "it", "was", "n't", "\n", "black", "monday", "\n")
    ]


def test_the_commonest_come_first_and_equals_by_their_letters():
    tokens = Tokens.learned(["b b b a c", "a c d"], "words")
    assert tokens.vocabulary == (UNKNOWN, "b", "a", "c", "d")
    assert Tokens.learned(["b b b a c", "a c d"], "words", most=3).vocabulary == (UNKNOWN, "b", "a")
    assert len(tokens) == 5


def test_what_training_did_not_hold_is_unknown():
    tokens = Tokens.learned(["ab"], "characters")
    assert tokens.encode("azb") == [1, 0, 2]
    assert tokens.decode([1, 0, 2]) == "a\N{REPLACEMENT CHARACTER}b"


def test_fillers_are_left_out_and_cannot_be_spelt():
    """A sentence that holds the word <end> must not end there."""
    tokens = Tokens.learned(["a b <end>"], "words", SENTENCE)
    assert tokens.vocabulary == (PAD, UNKNOWN, START, END, "a", "b")
    assert tokens.encode("a <end> <pad> b") == [4, 1, 1, 5]
    assert tokens.decode([2, 4, 5, 3, 0, 0]) == "a b"


def test_in_one_long_text_the_names_of_fillers_are_words():
    text = "a <end> b <start> <pad>"
    tokens = Tokens.learned([text], "words", STREAM)
    assert tokens.decode(tokens.encode(text)) == text


def test_a_vocabulary_survives_json():
    import json

    tokens = Tokens.learned(["the quick brown fox"], "words")
    spec = json.loads(json.dumps({"tokens": tokens.spec}))
    assert Tokens.of(spec) == tokens


def test_what_it_refuses():
    with pytest.raises(UserError, match=r"unknown tokens 'wrods'; .* words"):
        Tokens.learned(["a"], "wrods")
    with pytest.raises(UserError, match=r"unknown tokens 'wrods'; .* words"):
        Tokens("wrods", ())
    for most in (-3, 1):
        with pytest.raises(UserError, match=rf"vocabulary \({most}\) must be 0, which keeps every"):
            Tokens.learned(["a"], "words", most=most)
