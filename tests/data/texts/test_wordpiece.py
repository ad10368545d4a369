"""Word pieces: the tokens of a reference, the rule on words, and what characters become."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.texts.given import BERT
from everynet.data.texts.tokens import Tokens
from everynet.data.texts.wordpiece import WordPieces, join_pieces, part

REFERENCE = json.loads((Path(__file__).parent / "word_pieces.json").read_text())
"""What HF tokenizers makes of texts; under "made" stands how it was made."""
TOKENS = {
    lower: Tokens("wordpiece", (*REFERENCE["vocabulary"],), special=BERT, lower=lower)
    for lower in (False, True)
}


@pytest.mark.covers("R20")
@pytest.mark.parametrize("asked", REFERENCE["asked"], ids=lambda asked: ascii(asked["text"][:9]))
def test_tokens_are_those_of_the_reference(asked):
    tokens = TOKENS[asked["lower"]]
    assert tokens.encode(asked["text"]) == asked["tokens"]
    assert tokens.stream(asked["text"]).tolist() == asked["tokens"]


def cutter(*pieces, lower=False):
    return WordPieces({piece: n for n, piece in enumerate(pieces)}, -1, lower=lower)


def test_the_longest_piece_comes_first():
    pieces = cutter("un", "una", "##ff", "##aff", "##able", "##fable", "##ble", "a")
    assert pieces.pieces("unaffable") == ("una", "##ff", "##able")
    assert pieces.pieces("unaff") == ("una", "##ff")
    assert pieces.pieces("a") == ("a",)


def test_a_word_with_a_rest_that_has_no_piece_is_unknown_as_a_whole():
    """No shorter piece is tried in the place of one that was taken."""
    pieces = cutter("ab", "a", "##bc", "##c")
    assert pieces.pieces("abc") == ("ab", "##c")
    assert pieces.pieces("abd") == ()
    assert pieces.pieces("b") == ()  # only inside of a word
    assert [*pieces.numbers("abc abd")] == [0, 3, -1]
    assert pieces.cut("abc ABD") == ["ab", "##c", "ABD"]


@pytest.mark.parametrize(("length", "known"), [(100, True), (101, False)])
def test_a_word_of_more_than_100_characters_is_unknown(length, known):
    assert bool(cutter("x", "##x").pieces("x" * length)) is known


PARTS = {
    "\n": (" ", " "), "\u2003": (" ", " "), "\u2029": (" ", " "), "\x00": ("", ""),
    "\u200d": ("", ""), "\ue000": ("", ""), "\u0378": ("\u0378", "\u0378"), "$": (" $ ", " $ "),
    "¿": (" ¿ ", " ¿ "), "€": ("€", "€"), "É": ("É", "e"), "ß": ("ß", "ß"), "Σ": ("Σ", "\u03c3"),
    "中": (" 中 ", " 中 "), "\U0002b820": (" \U0002b820 ", " \U0002b820 "), "か": ("か", "か"),
    "が": ("が", "か"), "\u0301": ("\u0301", ""), "\N{GREEK VARIA}": ("\N{GREEK VARIA}", " ` "),
}  # fmt: skip


@pytest.mark.parametrize("character", PARTS, ids=lambda c: f"{ord(c):x}")
def test_what_becomes_of_a_character(character):
    assert (part(character, lower=False), part(character, lower=True)) == PARTS[character]


@settings(max_examples=30)
@given(st.text())
def test_words_hold_neither_space_nor_control_characters(text):
    words = [*cutter(lower=True).words(text)]
    assert all(word and not word.isspace() for word in words)
    assert not any(c in word for word in words for c in " \n\t\r\0")
    assert [*cutter(lower=True).words(" ".join(words))] == words


def test_pieces_are_joined_into_words():
    tokens = TOKENS[False]
    assert join_pieces(["the", "cart", "##s", "!"]) == "the carts !"
    text = "The man pulled the cart"
    special = tokens.special_numbers
    assert tokens.decode([special[2], *tokens.encode(text), special[3], 0]) == text
    assert tokens.decode(tokens.encode("the qqqq")) == "the \N{REPLACEMENT CHARACTER}"


def test_who_writes_mask_has_written_letters():
    for tokens in TOKENS.values():
        for text in ("[MASK]", "a [CLS] b", "[PAD][UNK]"):
            assert not {*tokens.encode(text)} & ({*tokens.special_numbers} - {tokens.unknown})
    assert TOKENS[True].cut("the [MASK]")[:2] == ["the", "["]


def test_they_survive_json():
    for tokens in TOKENS.values():
        assert Tokens.of(json.loads(json.dumps({"tokens": tokens.spec}))) == tokens
        assert tokens.unknown == 4
        assert (tokens.start, tokens.end) == (5, 6)
