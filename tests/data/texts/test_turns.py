"""Turns as tokens: who speaks, what is cut first, and lines that are no conversation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everynet.data.texts.tokens import Tokens
from everynet.data.texts.turns import (
    TALK,
    cut_context,
    encode_turns,
    find_answerer,
    find_replies,
    parse_line,
    parse_turns,
    read_conversations,
)
from everynet.system.errors import UserError

TOKENS = Tokens("words", (*TALK, "a", "b", "c"), special=TALK)
TURNS = (("ann", "a b"), ("bob", "c"), ("cy", "b b"), ("ann", "a"))


def words(numbers):
    return " ".join(TOKENS.vocabulary[n] for n in numbers)


def test_speakers_are_told_from_who_replies():
    """The one who replies, the other who spoke last, and everybody else."""
    found = words(encode_turns(TURNS, "bob", TOKENS))
    assert found == ("<other> a b <turn> <self> c <turn> <third> b b <turn> <other> a <turn>")
    found = words(encode_turns(TURNS, "nobody", TOKENS))
    assert found.count("<third>") == 2
    assert "<self>" not in found


def test_no_text_becomes_a_marker():
    assert words(encode_turns([("x", "<turn> <self> a")], "y", TOKENS)) == (
        "<other> <unknown> <unknown> a <turn>"
    )


def test_the_oldest_turns_and_then_the_oldest_words_are_cut():
    context = encode_turns(TURNS, "bob", TOKENS)
    assert cut_context(context, TOKENS, 9, 9) == (context, 0)
    found, count = cut_context(context, TOKENS, 2, 9)
    assert (words(found), count) == ("<third> b b <turn> <other> a <turn>", 3)
    found, count = cut_context(context, TOKENS, 9, 3)
    assert (words(found), count) == ("<third> b b <turn> <other> a <turn>", 3)
    found, count = cut_context(context, TOKENS, 9, 2)
    assert (words(found), count) == ("<third> b <turn> <other> a <turn>", 4)
    found, count = cut_context(context, TOKENS, 9, 1)
    assert (words(found), count) == ("<other> a <turn>", 5)


turns = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["a", "b c", "a b c", "d"])),
                 min_size=1, max_size=6)  # fmt: skip


@given(turns, st.integers(1, 6), st.integers(1, 9))
def test_what_is_kept_is_an_end_of_what_was_said(some, most, left):
    """Words in their order, none but the last ones; and no more than are allowed."""
    markers = range(4, 8)
    whole = encode_turns(some, "x", TOKENS)
    kept, count = cut_context(whole, TOKENS, most, left)
    said = [n for n in kept if n not in markers]
    every = [n for n in whole if n not in markers]
    assert len(said) <= left
    assert len(said) + count == len(every)
    assert every[len(every) - len(said) :] == said
    assert sum(n == 4 for n in kept) <= most
    assert cut_context(kept, TOKENS, most, left)[0] == kept


def test_a_reply_answers_another_speaker():
    some = (("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"))
    found = find_replies(some)
    assert [reply.pair for reply in found] == [("2", "3"), ("3", "4")]
    assert [reply.speaker for reply in found] == ["b", "a"]
    assert found[1].context(2) == some[1:3]
    assert found[0].context(9) == some[:2]
    assert find_answerer(some) == "b"
    assert find_answerer(some[:2]) == ""


def test_a_line_of_text_is_two_speakers_by_turns():
    assert [text for _, text in parse_line("one\ttwo\tthree")] == ["one", "two", "three"]
    (first, _), (second, _), (third, _) = parse_line("one\ttwo\tthree")
    assert first == third != second


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"w must be JSON like .* but is not: Expecting property name"),
        ("[" * 100_000, r"w must be JSON like .*: it is too deep|w must be JSON"),
        ("[1]", r"w must be an object like \{\"turns\": .*; it has no list of turns"),
        ('{"turns": []}', "it has no list of turns"),
        ('{"turns": [["a", "b"], "c"]}', r"w, turn 2 \(c\) must be \[speaker, text\], two texts"),
        ('{"turns": [["a", 3]]}', r"w, turn 1 .* must be \[speaker, text\]"),
        ('{"turns": [["", "b"]]}', r"w, turn 1: the speaker \(\) must have a name or a number"),
        ('{"turns": [[null, "b"]]}', r"w, turn 1: the speaker \(None\) must have a name"),
        ('{"turns": [[true, "b"]]}', r"w, turn 1: the speaker \(True\) must have a name"),
        ('{"turns": [["a", " "]]}', r"w, turn 1 must have a text that is not empty"),
    ],
)
def test_lines_that_are_no_conversation(line, message):
    with pytest.raises(UserError, match=message) as caught:
        parse_turns(line, "w")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_conversations(tmp_path):
    path = tmp_path / "talk.jsonl"
    good = '{"turns": [["a", "x"], ["b", "y"]]}\n'
    path.write_text(good + '{"turns": [["a", "x"]]}\n')
    with pytest.raises(UserError, match=r"line 2 \(1 turn\) must hold at least 2 turns"):
        read_conversations(path)
    assert len(read_conversations(path, least=1)) == 2
    path.write_text(good + '{"turns": [["a", "x"], ["a", "y"]]}\n')
    with pytest.raises(UserError, match="line 2 must hold a turn that answers another speaker"):
        read_conversations(path)
    path.write_text('{"turns": [[0, " x  y "], [1, "z"]]}\n')
    assert read_conversations(path) == [(("0", "x y"), ("1", "z"))]
