"""ARPA files: what is written is what is read, in the form that others read; damage is told."""

import math

import numpy as np
import pytest

from everynet.system.errors import UserError
from everynet.zoo.language.ngram_model import NGram

SENTENCES = ["the dog ran", "the cat ran away", "a dog sat", "the dog sat", "a cat saw the dog"]
FILE = r"""made by hand

\data\
ngram 1=4
ngram 2=2

\1-grams:
-99	<s>	-0.5
-0.6020599913279624	</s>
-0.3010299956639812	a	-0.30103
-0.6020599913279624	<unk>

\2-grams:
-0.1	<s> a
-0.2	a </s>

\end\
"""


def stored(tmp_path, text):
    path = tmp_path / "model.arpa"
    path.write_text(text)
    return path


@pytest.mark.parametrize("smoothing", ["kneser-ney", "add-k"])
def test_there_and_back(tmp_path, smoothing):
    model = NGram(3, smoothing).fit(SENTENCES)
    model.to_arpa(tmp_path / "model.arpa")
    other = NGram.from_arpa(tmp_path / "model.arpa")
    assert other.vocabulary_ == model.vocabulary_
    asked = ["the dog ran away", "a new cat", ""]
    np.testing.assert_allclose(other.logprob(asked), model.logprob(asked), rtol=1e-10)
    np.testing.assert_allclose(
        other.predict_next("the dog"), model.predict_next("the dog"), rtol=1e-10
    )
    assert math.isfinite(other.perplexity(SENTENCES))
    with pytest.raises(UserError, match=r"unknown smoothing 'arpa'; did you mean"):
        other.fit(SENTENCES)


def test_a_file_by_hand_means_what_it_says(tmp_path):
    model = NGram.from_arpa(stored(tmp_path, FILE))
    logp = model.logprob(["a", "a a", "b"]) / math.log(10)
    half, quarter = math.log10(0.5), math.log10(0.25)
    wanted = [-0.1, -0.2, -0.1, -0.30103 + half, -0.2, -0.5 + quarter, quarter]
    np.testing.assert_allclose(logp, wanted, rtol=1e-12)
    assert model.predict_next()[model.vocabulary_.index("a")] == pytest.approx(0.5)


def test_the_form_is_that_of_other_programs(tmp_path):
    model = NGram(2, "kneser-ney").fit(SENTENCES)
    model.to_arpa(tmp_path / "model.arpa")
    lines = (tmp_path / "model.arpa").read_text().split("\n")
    assert lines[:4] == ["\\data\\", "ngram 1=11", "ngram 2=16", ""]
    rows = [line.split("\t") for line in lines if "\t" in line]
    assert {len(row) for row in rows[:11]} == {3}
    assert {len(row) for row in rows[11:]} == {2}
    assert ["-99", "<s>"] in [row[:2] for row in rows]
    assert lines[-2:] == ["\\end\\", ""]


def test_words_of_the_penn_treebank_keep_their_names(tmp_path):
    """Its `<unk>` stands for rare words, as in ARPA files; a newline becomes `</s>`."""
    vocabulary = ["<unknown>", "a", "<unk>", "\n"]
    stream = np.array([1, 2, 3, 1, 1, 3, 2, 1, 3])
    model = NGram(2, "kneser-ney").fit(stream, vocabulary=vocabulary)
    model.to_arpa(tmp_path / "model.arpa")
    other = NGram.from_arpa(tmp_path / "model.arpa")
    assert other.vocabulary_ == ["<unknown>", "a", "<unk>", "</s>"]
    np.testing.assert_allclose(other.logprob(["a b"]), model.logprob(["a <unk>"]), rtol=1e-10)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("\\data\\", "data", r"line 18 ends the file, and \\data\\ was not found"),
        ("ngram 2=2", "ngram 3=2", r"line 5 \(ngram 3=2\) must be 'ngram 2=' and a number"),
        ("\\1-grams:", "1-grams", r"line 7 \(1-grams\) must be 'ngram 3='"),
        ("ngram 1=4\nngram 2=2\n", "", "line 5 must come after 1 to 20 lines like"),
        ("ngram 1=4", "ngram 1=5", r"line 13 must be one of 5 1-grams, but only 4 are there"),
        ("ngram 1=4", "ngram 1=9999", "begins 9999 1-grams, more than the file has lines"),
        ("ngram 1=4", "ngram 1=3", r"line 11 must be \\2-grams:, because all 1-grams were read"),
        ("ngram 2=2", "ngram 2=1", r"line 15 must be \\end\\, because all n-grams were read"),
        ("\\end\\", "", r"line \d+ must be \\end\\, because"),
        ("-0.1\t<s> a", "-0.1\t<s>", r"line 14 must hold a number and 2 words"),
        ("-0.30103", "-0.3 x", "line 10 must hold a number, 1 words and a number"),
        ("-0.1\t<s> a", "x\t<s> a", r"line 14 \(x.<s> a\) must begin and end in numbers"),
        ("-0.1\t<s> a", "0.1\t<s> a", "line 14 has the log-probability 0.1, which must be at most"),
        ("-0.1\t<s> a", "nan\t<s> a", "line 14 has the log-probability nan"),
        ("\t<s>\t-0.5", "\tb\t-0.5", "line 11 ends the 1-grams, and <s> is not among them"),
        ("\t<unk>", "\ta", "line 11 ends the 1-grams, one of which is there twice"),
        ("a </s>\n", "a b\n", "line 15 ends the 2-grams, where 'b' is no word of the 1-grams"),
        ("a </s>\n", "<s> a\n", "line 15 ends the 2-grams, one of which is there twice"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, old, new, why):
    with pytest.raises(UserError, match=f"model.arpa: .*{why}") as told:
        NGram.from_arpa(stored(tmp_path, FILE.replace(old, new, 1)))
    assert "\n" not in str(told.value)


def test_a_beginning_that_is_missing_is_told(tmp_path):
    more = FILE.replace("ngram 2=2\n", "ngram 2=2\nngram 3=1\n")
    more = more.replace("\n\\end", "\n\\3-grams:\n-0.1\ta a </s>\n\n\\end")
    with pytest.raises(UserError, match="'a a </s>' begins as no 2-gram does"):
        NGram.from_arpa(stored(tmp_path, more))


def test_a_model_without_unknown_words_refuses_them(tmp_path):
    text = FILE.replace("ngram 1=4", "ngram 1=3").replace("-0.6020599913279624\t<unk>\n", "")
    model = NGram.from_arpa(stored(tmp_path, text))
    with pytest.raises(UserError, match=r"a word \(b\) must be one of the model"):
        model.logprob(["b"])


def test_what_has_no_such_form_is_refused(tmp_path):
    for name in ("mle", "stupid-backoff"):
        with pytest.raises(UserError, match=rf"smoothing \({name}\) must be another one for an AR"):
            NGram(2, name).fit(SENTENCES).to_arpa(tmp_path / "model.arpa")
    spaced = NGram(2, "kneser-ney").fit([["a b", "c"], ["c", "a b"]])
    with pytest.raises(UserError, match=r"a word \('a b'\) must be without spaces"):
        spaced.to_arpa(tmp_path / "model.arpa")
