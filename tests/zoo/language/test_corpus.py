"""Texts as sentences and numbers, and what people say of words."""

import pytest

from everynet.data.kinds import named
from everynet.data.sets import everything, judgements
from everynet.system.errors import UserError
from everynet.zoo.language.corpus import LONGEST, Corpus, encode_sentences, split_sentences


def test_sentences_end_at_stops_and_empty_lines():
    text = "The cat isn't here. It's 3 dogs!\nA_b\n\nx2: y\nz? "
    found = [["the", "cat", "isn't", "here"], ["it's", "dogs"], ["a_b"], ["x2", "y", "z"]]
    assert list(split_sentences(text)) == found
    assert list(split_sentences("... 12 \n\n")) == []


def test_unknown_words_and_empty_sentences_are_left_out():
    found = encode_sentences([["a", "z", "b"], ["z"], [], ["b"]], ["a", "b"])
    assert found.tolist() == [0, 1, -1, 1, -1]


def test_a_long_sentence_is_cut():
    text = Corpus.from_sentences([["a", "b"] * LONGEST], 1).text
    assert len(text) == 2 * LONGEST + 2
    assert text[LONGEST] == text[-1] == -1


def test_judgements_of_our_own():
    found = judgements.read("help-words")
    assert sum(map(len, found.pairs.values())) == 24
    assert len(found.analogies["plural"]) == 12 * 11
    assert ("class", "classes", "name", "names") in found.analogies["plural"]
    assert found.name == "help-words"
    with pytest.raises(UserError, match=r"judgements \(word-evil\) must be .* word-eval"):
        judgements.read("word-evil")
    with pytest.raises(UserError, match=r"judgements \(topics\) must be a known set of judgements"):
        judgements.read("topics")
    with pytest.raises(UserError, match=r"data \(help-words:9\) must be help-words"):
        everything()["help-words"].make("9")


def test_files_of_judgements():
    found = judgements.of_files([b"Love\tsex\t6.77\r\n", b"old\tnew\t1.58\n", b": a b\nA B C D\n"])
    assert found.pairs == {"wordsim": [("love", "sex", 6.77)], "simlex": [("old", "new", 1.58)]}
    assert found.analogies == {"a b": [("a", "b", "c", "d")]}


@pytest.mark.real_data
def test_published_judgements_have_their_counts():
    found = judgements.read("word-eval")
    assert {name: len(rows) for name, rows in found.pairs.items()} == {
        "wordsim": 353,
        "simlex": 999,
    }
    assert len(found.analogies) == 14
    assert sum(map(len, found.analogies.values())) == 19_544
    assert found.analogies["family"][0] == ("boy", "girl", "brother", "sister")


def test_lines_are_read_as_they_are(tmp_path):
    path = tmp_path / "asked.txt"
    path.write_text("king - man + woman\r\n\n  like: queen \n")
    names, lines = named("lines").read([path], {})
    assert names == [f"{path}:1", f"{path}:3"]
    assert lines == ["king - man + woman", "like: queen"]
    path.write_text("\n \n")
    with pytest.raises(UserError, match="must hold a line that is not empty"):
        named("lines").read([path], {})
    assert not named("lines").matches(path)
    assert named("lines").line({"name": "n", "shape": [1234]}) == "n: text, 1,234 different words"
