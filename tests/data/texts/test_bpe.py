"""Byte pairs: the merges of a reference, the rule step by step, and every byte comes back."""

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everynet.data import load
from everynet.data.texts import bpe
from everynet.data.texts.bpe import BytePairs, as_bytes, as_text, each_piece, learn, spelt
from everynet.data.texts.tokens import END, PAD, SENTENCE, START, UNKNOWN, Tokens, cut, places
from everynet.system.errors import UserError

REFERENCE = json.loads((Path(__file__).parent / "byte_pairs.json").read_text())
"""What HF tokenizers makes of a text; under "made" stands how it was made."""
TOKENS = Tokens.learned([REFERENCE["text"]], "bpe", most=600)


# ----------------------------------------------------------------------------------- a reference


@pytest.mark.covers("R20")
def test_merges_are_those_of_the_reference():
    """Of equally common pairs both take the one of the lowest numbers, bytes in GPT-2's order."""
    assert [list(pair) for pair in learn([REFERENCE["text"]], 700 - 256)] == REFERENCE["merges"]


@pytest.mark.covers("R20")
@pytest.mark.parametrize("asked", REFERENCE["asked"], ids=lambda asked: repr(asked["text"][:9]))
def test_tokens_are_those_of_the_reference(asked):
    pairs = BytePairs([(a, b) for a, b in REFERENCE["merges"]])
    assert pairs.encode(asked["text"]).tolist() == asked["tokens"]


# -------------------------------------------------------------------------------------- the rule


def by_rule(text, most):
    """All words anew for each pair: join the commonest, of equals the lowest, from the left."""
    order = {byte: symbol for symbol, byte in enumerate(bpe.ORDER)}
    words = Counter(bpe.PIECES.findall(text))
    cut = {word: [order[byte] for byte in as_bytes(word)] for word in words}
    pairs = []
    while len(pairs) < most:
        counts = Counter()
        for word, symbols in cut.items():
            for pair in pairwise(symbols):
                counts[pair] += words[word]
        best = min(counts, key=lambda pair: (-counts[pair], pair), default=None)
        if best is None or counts[best] < 2:
            break
        cut = {word: joined(symbols, best, 256 + len(pairs)) for word, symbols in cut.items()}
        pairs.append(best)
    return pairs, cut


def joined(symbols, pair, new):
    made, at = [], 0
    while at < len(symbols):
        found = tuple(symbols[at : at + 2]) == pair
        made.append(new if found else symbols[at])
        at += 2 if found else 1
    return made


few = st.text(st.sampled_from("aab é\n_1'"), max_size=120)


@settings(max_examples=60)
@given(few)
def test_the_heap_takes_the_pairs_that_counting_anew_takes(text):
    expected, cut = by_rule(text, 12)
    assert learn([text], 12) == expected
    pairs = BytePairs(expected)
    for word, symbols in cut.items():
        assert pairs.encode(word).tolist() == symbols


def test_tables_and_lists_grow():
    """More pairs than the first table has room for, and more places than the first list."""
    draw = random.Random(0)
    words = ["".join(chr(draw.randrange(0x21, 0x7F)) for _ in range(3)) for _ in range(2000)]
    text = " ".join(words) + " " + "ab" * 500
    expected, _ = by_rule(text, 30)
    assert learn([text], 30) == expected
    every = learn([text], -1)
    assert every[:30] == expected
    tokens = BytePairs(every)
    assert b"".join(spelt(every)[n] for n in tokens.encode(text)) == text.encode()


def test_a_text_given_in_parts_counts_as_one():
    assert learn(["the cart ", "the hart"], 9) == learn(["the cart the hart"], 9)
    assert learn(["the cart the"], 0) == []
    assert learn([""], -1) == []


def test_pieces_keep_the_space_before_a_word():
    text = "He'll say: 'I've 12 carts_2' \n\n  x  é猫 ..."
    assert bpe.PIECES.findall(text) == [
        *("He", "'ll", " say", ":", " '", "I", "'ve", " 12", " carts", "_", "2", "'", " \n\n "),
        *(" x", " ", " é猫", " ..."),
    ]


@example("aaaa   \n")  # must not be cut inside of the space
@given(st.text(st.sampled_from("ab \n1_.é"), max_size=80))
def test_pieces_leave_nothing_out_and_chunks_change_nothing(text):
    pieces = bpe.PIECES.findall(text)
    assert "".join(pieces) == text
    assert [text[a:] for a in places(text, "bpe")] == [
        "".join(pieces[n:]) for n in range(len(pieces))
    ]
    was, bpe._CHUNK = bpe._CHUNK, 5
    try:
        assert cut(text, "bpe") == [piece for some in each_piece(text) for piece in some] == pieces
    finally:
        bpe._CHUNK = was


# -------------------------------------------------------------------------------------- tokens


@pytest.mark.covers("R20")
@given(st.text())
def test_text_comes_back(text):
    assert TOKENS.decode(TOKENS.encode(text)) == text
    assert TOKENS.stream(text).tolist() == TOKENS.encode(text)
    assert "".join(TOKENS.cut(text)).encode("utf-8", "surrogateescape") == text.encode()


@pytest.mark.covers("R20")
@given(st.binary(max_size=200))
def test_any_bytes_come_back(content):
    assert TOKENS.decode_bytes(TOKENS.encode_bytes(content)) == content
    assert as_bytes(as_text(content)) == content


def test_every_byte_is_a_token_and_nothing_is_unknown():
    every = bytes(range(256))
    numbers = TOKENS.encode_bytes(every + "Ωμέγα".encode())
    assert TOKENS.index[UNKNOWN] not in numbers
    assert sorted(bpe.ORDER) == list(every)
    assert {"\n", " ", "é".encode()[:1].decode("utf-8", "surrogateescape")} <= TOKENS.index.keys()
    assert TOKENS.decode([TOKENS.index["a"], 0, TOKENS.encode_bytes(b"\xff")[0]]) == "a\ufffd\ufffd"


def test_a_word_that_is_common_is_one_token():
    assert TOKENS.cut(" the") == [" the"]
    assert len(TOKENS.cut(" qqzzx")) == 6
    assert TOKENS.cut("bababab") != list("bababab")


def test_a_vocabulary_survives_json():
    spec = json.loads(json.dumps({"tokens": TOKENS.spec}))
    assert Tokens.of(spec) == TOKENS
    assert Tokens.of(spec).encode("the man") == TOKENS.encode("the man")
    assert len(TOKENS.vocabulary) == len(set(TOKENS.vocabulary)) == len(TOKENS) == 1 + 256 + 337


def test_vocabulary_is_the_size():
    assert len(Tokens.learned([REFERENCE["text"]], "bpe", most=300)) == 300
    assert len(Tokens.learned([REFERENCE["text"]], "bpe", SENTENCE, most=300)) == 300
    assert len(Tokens.learned([""], "bpe", most=300)) == 257  # there is no pair to join
    assert Tokens.learned(["ab" * 300], "bpe", most=257).stream("ab").dtype == torch.int16


def test_fillers_are_left_out_and_cannot_be_spelt():
    tokens = Tokens.learned(["<end> <end> a <end>"], "bpe", SENTENCE)
    assert tokens.vocabulary[:4] == (PAD, UNKNOWN, START, END)
    numbers = tokens.encode("a <end> <pad>")
    assert not {0, 1, 2, 3} & set(numbers)
    assert tokens.decode([2, *numbers, 3, 0]) == "a <end> <pad>"


def test_a_text_is_learned_from_by_byte_pairs():
    data = load("topics", kind="text", batch_size=4, tokens="bpe", vocabulary=512)
    tokens = Tokens.of(data.spec)
    assert data.spec["shape"] == [512]
    assert "of 4,096 words of the rest" in data.spec["split"]
    sample = tokens.decode(data.splits["train"][0][:2000].tolist())
    assert len(sample) > 3000
    assert tokens.encode(sample) != list(range(2000))


def test_what_it_refuses():
    with pytest.raises(UserError, match=r"vocabulary \(256\) must be 0 or at least 257 where tok"):
        Tokens.learned(["a"], "bpe", most=256)
    with pytest.raises(UserError, match=r"text \(.*\) must be Unicode, but holds half of a"):
        TOKENS.encode("ab\ud800")
    with pytest.raises(UserError, match=r"merges: pair 1 \(0, 257\) must join tokens that come be"):
        spelt([(0, 1), (0, 257)])
    with pytest.raises(UserError, match=r"merges must spell the vocabulary that comes with them"):
        Tokens("bpe", TOKENS.vocabulary, ((1, 2), *TOKENS.merges[1:]))
    for call in (lambda t: t.encode_bytes(b""), lambda t: t.decode_bytes([])):
        with pytest.raises(
            ValueError, match=r"kind \(words\) must be bpe, because only byte pairs"
        ):
            call(Tokens.learned(["a"], "words"))
