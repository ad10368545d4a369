"""Vocabularies of published files, word pieces and byte pairs: good ones, and bad ones."""

import json
from pathlib import Path

import pytest

from everynet.data import load
from everynet.data.texts import bpe, given
from everynet.data.texts.given import BERT, read_byte_pairs, read_word_pieces, take_vocabulary
from everynet.data.texts.tokens import SENTENCE, STREAM, Tokens
from everynet.system.errors import UserError

PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += ["the", "cat", "##s", "sat", "."]


def vocab(folder, lines=PIECES, end="\n"):
    path = folder / "vocab.txt"
    content = lines if isinstance(lines, bytes) else "".join(line + end for line in lines).encode()
    path.write_bytes(content)
    return path


# ------------------------------------------------------------------------------------- word pieces


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_token_n_is_line_n(tmp_path, end):
    tokens = read_word_pieces(vocab(tmp_path, end=end))
    assert tokens.vocabulary == (*PIECES,)
    assert tokens.special == BERT
    assert tokens.encode("the cats sat. dog") == [6, 7, 8, 9, 10, 2]


@pytest.mark.parametrize("special", [STREAM, SENTENCE, BERT])
def test_it_keeps_its_numbers_whatever_the_recipe_calls_its_own(tmp_path, special):
    tokens = take_vocabulary(str(vocab(tmp_path)), special)
    assert tokens.vocabulary == (*PIECES,)
    assert take_vocabulary(str(vocab(tmp_path)), special, lower=True).lower
    assert not tokens.lower
    first = str(vocab(tmp_path, [*BERT, "the"]))  # also where its special tokens come first
    assert take_vocabulary(first, special).vocabulary == (*BERT, "the")


def test_lower_is_for_uncased_ones(tmp_path):
    path = str(vocab(tmp_path))
    assert take_vocabulary(path).encode("The Cats") == [2, 2]
    assert take_vocabulary(path, lower=True).encode("The CÁTS") == [6, 7, 8]


BAD = {
    "empty": (b"", r"vocab\.txt is empty"),
    "twice": ([*PIECES, "cat"], r"vocab\.txt: line 12 \(cat\) must not repeat line 8, because"),
    "no unknown": (["[PAD]", "a"], r"vocab\.txt must hold the line \[UNK\], the piece of unknown"),
    "binary": (b"[UNK]\na\n\x89PNG\0\0", r"vocab\.txt must be text, but line 3 holds a byte of va"),
    "latin 1": (b"[UNK]\nB\xe4ume\n", r"vocab\.txt: line 2 is not UTF-8 text"),
    "newlines": (b"\n\n\n", r"vocab\.txt: line 2 \(\) must not repeat line 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_none_are_one_line(tmp_path, case):
    content, message = BAD[case]
    with pytest.raises(UserError, match=message) as caught:
        take_vocabulary(str(vocab(tmp_path, content)))
    assert "\n" not in str(caught.value)


def test_a_file_of_too_many_lines_or_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(given, "MOST", 1000)
    many = vocab(tmp_path, [f"a{n}" for n in range(1001)])
    with pytest.raises(
        UserError, match=r"\(1,001 tokens\) must have at most 1,000, because each is"
    ):
        take_vocabulary(str(many))
    monkeypatch.setattr(given, "MOST_BYTES", 20)
    with pytest.raises(UserError, match=r"vocab\.txt must be at most 20 bytes long"):
        take_vocabulary(str(vocab(tmp_path)))


def test_word_pieces_are_not_learned():
    with pytest.raises(UserError, match=r"tokens \(wordpiece\) must be the path of a published vo"):
        take_vocabulary("wordpiece")
    with pytest.raises(
        UserError, match=r"vocabulary \(9\) must be 0, because a given one \(tokens"
    ):
        take_vocabulary("./vocab.txt", most=9)


def test_sentences_need_tokens_for_padding_start_and_end(tmp_path):
    alone = str(vocab(tmp_path, ["[UNK]", "a", "[PAD]"]))
    assert take_vocabulary(alone).special == ("[UNK]",)
    with pytest.raises(
        UserError, match=r"tokens \(.*\) must have special tokens in the place of <"
    ):
        take_vocabulary(alone, SENTENCE)
    later = str(vocab(tmp_path, ["a", *BERT]))
    assert take_vocabulary(later).unknown == 2
    with pytest.raises(UserError, match=r"the first of them as token 0, because texts are filled"):
        take_vocabulary(later, SENTENCE)


def test_every_kind_of_texts_takes_them(tmp_path):
    path, lines, text = str(vocab(tmp_path)), tmp_path / "a.tsv", tmp_path / "a.txt"
    text.write_text("The cats sat .\n" * 60)
    data = load(text, kind="text", batch_size=2, tokens=path, lower=True)
    assert data.splits["test"][0].tolist()[:5] == [6, 7, 8, 9, 10]
    assert data.notes == ("the vocabulary is a given one, which does not know 0.0% of the tokens",)
    loud = load(text, kind="text", batch_size=2, tokens=path)
    assert loud.notes == (
        "the vocabulary is a given one, which does not know 21.0% of the tokens; it has no "
        "capitals, and lower=true may find more",
    )
    lines.write_text("".join(f"{'ab'[n % 2]}\tthe cat {n}\n" for n in range(30)))
    data = load(lines, kind="labelled", batch_size=2, tokens=path)
    x, lengths, _ = data.train(0)
    assert x[0, : lengths[0]].tolist() == [6, 7, 2]
    lines.write_text("".join(f"the {n}\tthe cat {n}\n" for n in range(30)))
    data = load(lines, kind="pairs", batch_size=2, tokens=path)
    _, _, y, lengths = data.train(0)
    assert y[0, : lengths[0]].tolist() == [3, 6, 7, 2, 4]  # between [CLS] and [SEP]
    assert data.spec["tokens"] == data.spec["target_tokens"]


def test_words_at_the_seams_of_a_split_stay_two(tmp_path):
    path, text = str(vocab(tmp_path)), tmp_path / "a.txt"
    text.write_text("the\ncat\n" * 100)
    data = load(text, kind="text", batch_size=2, tokens=path)
    assert {*data.splits["train"][0].tolist()} == {*data.splits["valid"][0].tolist()} == {6, 7}


# -------------------------------------------------------------------------------------- byte pairs

REFERENCE = json.loads((Path(__file__).parent / "byte_pairs.json").read_text())
"""What HF tokenizers makes of a text; under "made" stands how it was made."""


def published(folder, numbers=None, lines=None):
    """The files of GPT-2's form that hold the pairs of the reference."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = (byte for byte in range(256) if byte not in shown)
    letter = {b: chr(b) for b in shown} | {b: chr(256 + n) for n, b in enumerate(hidden)}
    words = [letter[byte] for byte in bpe.ORDER]
    pairs = []
    for a, b in REFERENCE["merges"]:
        pairs.append(f"{words[a]} {words[b]}")
        words.append(words[a] + words[b])
    own = {word: n for n, word in enumerate([*words, "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(own if numbers is None else numbers(own)))
    merges = ["#version: 0.2", *(pairs if lines is None else lines(pairs))]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n")
    return folder / "vocab.json"


def test_byte_pairs_of_published_files_have_their_numbers(tmp_path):
    tokens = read_byte_pairs(published(tmp_path))
    for asked in REFERENCE["asked"]:
        assert tokens.encode(asked["text"]) == asked["tokens"]
        assert tokens.decode(asked["tokens"]) == asked["text"]
    assert tokens.special == ("<|endoftext|>",)
    assert tokens.special_numbers == [len(tokens) - 1]
    assert Tokens.of(json.loads(json.dumps({"tokens": tokens.spec}))) == tokens
    assert take_vocabulary(str(tmp_path / "vocab.json")) == tokens
    with pytest.raises(UserError, match=r"must have special tokens in the place of <pad>"):
        take_vocabulary(str(tmp_path / "vocab.json"), SENTENCE)


BAD_PAIRS = {
    "a list": ({"numbers": list}, r"vocab\.json must hold an object of tokens and their numbers"),
    "texts": ({"numbers": lambda own: dict.fromkeys(own, "1")}, r"must hold an object of tokens"),
    "gaps": ({"numbers": lambda own: own | {"x": 9999}}, r"must hold an object of tokens"),
    "other order": (
        {"numbers": lambda own: {w: n for n, w in enumerate([*own][::-1])}},
        r"merges: pair 0 .* must join tokens that come before it|vocab\.json must number the bytes",
    ),
    "one more": ({"numbers": lambda own: own | {"x y": len(own)}}, r"must number the bytes, then "),
    "three": (
        {"lines": lambda pairs: [*pairs, "a b c"]},
        r"merges\.txt: line \d+ \(a b c\) must h",
    ),
    "unknown": ({"lines": lambda pairs: ["qqq a"]}, r"merges\.txt: line 2 \(qqq a\) must hold two"),
    "empty line": (
        {"lines": lambda pairs: ["", *pairs]},
        r"merges\.txt: line 2 \(\) must hold two",
    ),
}


@pytest.mark.parametrize("case", BAD_PAIRS)
def test_files_of_byte_pairs_that_are_none_are_one_line(tmp_path, case):
    changed, message = BAD_PAIRS[case]
    with pytest.raises(UserError, match=message) as caught:
        read_byte_pairs(published(tmp_path, **changed))
    assert "\n" not in str(caught.value)


def test_byte_pairs_without_merges_or_json(tmp_path):
    published(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"merges\.txt must be a file, but is not there"):
        take_vocabulary(str(tmp_path / "vocab.json"))
    (tmp_path / "vocab.json").write_text("{")
    with pytest.raises(UserError, match=r"vocab\.json is damaged: it is not JSON"):
        take_vocabulary(str(tmp_path / "vocab.json"))
