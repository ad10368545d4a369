"""Special tokens are those of the recipe, and no text becomes one; lower case where it is set."""

import json

import pytest

from everynet.data.texts.tokens import KINDS, PAD, SENTENCE, STREAM, Tokens
from everynet.system.errors import UserError

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SHORT = ("<pad>", "<unk>", "<s>", "</s>")


def again(tokens):
    """What a description of data gives back."""
    return Tokens.of(json.loads(json.dumps({"tokens": tokens.spec})))


# ------------------------------------------------------------------------------------------ places


@pytest.mark.parametrize("special", [STREAM, SENTENCE, BERT, SHORT, ("?",)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_recipe_chooses_and_the_description_holds_them(kind, special):
    tokens = Tokens.learned(["the cat and the dog"], kind, special)
    assert tokens.vocabulary[: len(special)] == tokens.special == special
    assert tokens.special_numbers == [*range(len(special))]
    assert tokens.unknown == (1 if len(special) > 1 else 0)
    assert again(tokens) == tokens
    assert again(tokens).special == special
    if len(special) > 1:
        assert (tokens.start, tokens.end) == (2, 3)


def test_what_is_by_default_is_not_written():
    """Descriptions of runs stay as they were before a recipe could choose."""
    for special in (STREAM, SENTENCE):
        assert {*Tokens.learned(["a b"], "words", special).spec} == {"kind", "vocabulary"}
    own = Tokens.learned(["a B"], "words", BERT, lower=True).spec
    assert own == {
        "kind": "words", "vocabulary": [*BERT, "a", "b"], "special": [*BERT], "lower": True,
    }  # fmt: skip


@pytest.mark.parametrize("special", [(), ("a", "b"), ("a", "b", "c"), ("a", "b", "c", "a")])
def test_places_that_say_nothing_are_refused(special):
    with pytest.raises(
        UserError, match=r"special \(.*\) must be the unknown token alone, or those "
    ):
        Tokens.learned(["text"], "words", special)


def test_byte_pairs_have_nothing_after_them_but_special_tokens():
    held = Tokens.learned(["ab ab"], "bpe").spec
    held["vocabulary"].append("more")
    with pytest.raises(UserError, match=r"merges must spell the vocabulary that comes with them"):
        Tokens.of({"tokens": held})
    Tokens.of(
        {
            "tokens": held
            | {
                "special": ["more"],
                "vocabulary": held["vocabulary"][1:],
                "merges": [[a - 1, b - 1] for a, b in held["merges"]],
            }
        }
    )


DAMAGED = {
    "absent": ({"special": ["[UNK]"]}, r"special \(\[UNK\]\) must be in the vocabulary"),
    "three": ({"special": ["<unknown>", "a", "b"]}, r"special \(.*\) must be the unknown token"),
    "lower": ({"lower": "yes"}, r"lower \(yes\) of a vocabulary must be true or false"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_descriptions_that_are_damaged(case):
    changed, message = DAMAGED[case]
    held = {"kind": "words", "vocabulary": ["<unknown>", "a", "b"]}
    with pytest.raises(UserError, match=message):
        Tokens.of({"tokens": held | changed})


# ------------------------------------------------------------------------------------------ spoken


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_special_token(kind):
    """Who writes [MASK] has written letters, or a word that is unknown."""
    text = "a [MASK] and [CLS] b [PAD] MASK"
    tokens = Tokens.learned([text.replace("[", "").replace("]", ""), "[]"], kind, BERT)
    numbers = tokens.encode(text)
    assert tokens.stream(text).tolist() == numbers
    assert {*numbers} & {*tokens.special_numbers} == ({1} if kind == "words" else set())
    if kind != "words":
        assert tokens.decode(numbers) == text


@pytest.mark.parametrize("special", [("?",), (*SENTENCE, "?")])
def test_a_special_token_of_one_character_is_not_that_character(special):
    tokens = Tokens.learned(["what? a?"], "characters", special)
    assert tokens.encode("a?") == [tokens.index["a"], tokens.unknown]
    assert tokens.stream("a?").tolist() == tokens.encode("a?")


def test_a_token_that_is_spelt_like_a_special_one_is_another():
    """Byte pairs may join the letters of a name that a recipe has for something else."""
    tokens = Tokens.learned(["mask mask mask"], "bpe", (*SENTENCE, "mask"))
    assert tokens.vocabulary.count("mask") == 2
    assert tokens.index["mask"] == tokens.special_numbers[4] == 4
    assert 4 not in tokens.encode("mask mask")
    assert tokens.decode([4, *tokens.encode("mask")]) == "mask"


def test_special_tokens_are_left_out_of_what_is_said():
    tokens = Tokens.learned(["a b"], "words", BERT)
    a, b = tokens.index["a"], tokens.index["b"]
    assert tokens.decode([2, a, 4, b, 3, 0, 1]) == "a b \N{REPLACEMENT CHARACTER}"
    pairs = Tokens.learned(["a b"], "bpe", BERT)
    assert pairs.decode([2, *pairs.encode("a b"), 4, 3, 0, 1]) == "a b\N{REPLACEMENT CHARACTER}"


def test_special_tokens_count_in_a_vocabulary_of_limited_size():
    tokens = Tokens.learned(["a a a b b c"], "words", BERT, 7)
    assert tokens.vocabulary == (*BERT, "a", "b")
    with pytest.raises(UserError, match=r"or more than the 5 that stand for no word"):
        Tokens.learned(["a"], "words", BERT, 5)


# ------------------------------------------------------------------------------------------- lower


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_in_the_vocabulary_and_in_whatever_is_cut(kind):
    tokens = Tokens.learned(["The CAT and the cat"], kind, lower=True)
    plain = Tokens.learned(["the cat and the cat"], kind)
    assert tokens.vocabulary == plain.vocabulary
    for held in (tokens, again(tokens)):
        assert held.encode("THE Cat") == plain.encode("the cat")
        assert held.stream("THE Cat").tolist() == plain.encode("the cat")
        assert held.cut("THE Cat") == plain.cut("the cat")
        assert held.decode(held.encode("THE Cat")) == "the cat"
    assert plain.encode("THE Cat") != plain.encode("the cat")


def test_lower_case_may_be_longer():
    """The capital İ is two characters in lower case."""
    tokens = Tokens.learned(["İstanbul"], "characters", lower=True)
    assert tokens.decode(tokens.encode("İ")) == "i\N{COMBINING DOT ABOVE}"
    assert tokens.stream("İİ").tolist() == tokens.encode("İİ")


def test_padding_is_told_by_its_place():
    assert Tokens.learned(["a"], "words", SENTENCE).index[PAD] == 0
