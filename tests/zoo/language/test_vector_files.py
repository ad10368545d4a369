"""Files of word vectors in both forms of word2vec: there and back, and what is wrong with them."""

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.language.vector_files import read_vectors, save_binary, save_text

SAVE = {"text": save_text, "binary": save_binary}
NAMES = st.text(st.characters(exclude_characters=" \n\r", codec="utf-8"), min_size=1, max_size=6)


@pytest.mark.parametrize("form", SAVE)
@settings(max_examples=12)
@given(
    words=st.lists(NAMES, min_size=1, max_size=5, unique=True),
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3),
)
def test_there_and_back(tmp_path_factory, form, words, numbers):
    path = tmp_path_factory.mktemp("vectors") / "a"
    rows = [[numbers[(i + j) % len(numbers)] for j in range(3)] for i in range(len(words))]
    vectors = torch.tensor(rows, dtype=torch.float32)
    SAVE[form](path, words, vectors)
    found = read_vectors(path)
    assert found.words == words
    assert torch.equal(found.vectors, vectors)


def test_the_forms_are_those_of_word2vec(tmp_path):
    vectors = torch.tensor([[1.0, -2.5], [0.25, 3.0]])
    save_text(tmp_path / "t", ["a", "b"], vectors)
    assert (tmp_path / "t").read_bytes() == b"2 2\na 1.0 -2.5\nb 0.25 3.0\n"
    save_binary(tmp_path / "b", ["a", "b"], vectors)
    packed = [struct.pack("<2f", *row) for row in vectors.tolist()]
    assert (tmp_path / "b").read_bytes() == b"2 2\na " + packed[0] + b"\nb " + packed[1] + b"\n"
    for content in (b"2 2\na " + packed[0] + b"b " + packed[1], b"2 2\na 1 -2.5 \nb 0.25 3e0 "):
        (tmp_path / "c").write_bytes(content)  # as other programs write it
        assert torch.equal(read_vectors(tmp_path / "c").vectors, vectors)
        assert read_vectors(tmp_path / "c").words == ["a", "b"]


ONE = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello\nworld 1 2\n", "must begin with the number of words and the number of dimensions"),
        (b"1 two\na 1 2\n", "must begin with the number of words"),
        (b"0 2\n", "must hold words with numbers, but says 0 of 2"),
        (b"2 2\na 1 2\nb 1 2 3\n", "line 3 has 3 numbers, but must have 2, as the first line says"),
        (b"2 3\na 1 2\nb 1 2\n", "line 2 has 2 numbers, but must have 3"),
        (b"3 2\na 1 2\nb 1 2\n", "must hold 3 words, as its first line says, but holds 2"),
        (b"2 2\na 1 2\na 1 2\n", "holds the word a twice"),
        (b"2 2\na 1 2\nb x 2\n", "line 3 must be a word in UTF-8 and 2 numbers"),
        (b"2 2\na 1 2\nb nan 2\n", "numbers must be finite, but b has NaN or inf"),
        (b"2 2\na " + ONE + b"b " + ONE[:5], "its 17 bytes are too few: it was cut short"),
        (b"2 3\na " + ONE + b"\nb " + ONE + b"\n", "are too few: it was cut short, or its vectors"),
        (b"2 1\na " + ONE + b"b " + ONE, "the vectors may be wider"),
        (b"1 1\na " + ONE, "4 bytes follow: the vectors may be wider"),
    ],
)
def test_refusals(tmp_path, content, said):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(UserError) as refusal:
        read_vectors(tmp_path / "v")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("word", ["", "a b", "a\nb"])
@pytest.mark.parametrize("form", SAVE)
def test_a_word_that_could_not_be_read_back(tmp_path, form, word):
    with pytest.raises(UserError, match="must hold a letter and neither space nor line feed"):
        SAVE[form](tmp_path / "v", [word], torch.zeros(1, 2))
    assert not (tmp_path / "v").exists()
