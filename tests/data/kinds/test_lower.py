"""`lower=true`: a text, labelled texts and pairs in lower case, wherever text comes in."""

import pytest

from everynet.data import kinds, load
from everynet.data.loading import Like
from everynet.data.texts.tokens import Tokens
from everynet.system.errors import UserError

FILES = {
    "text": ("a.txt", lambda n: f"The CAT {n} and the dog"),
    "labelled": ("a.tsv", lambda n: f"{'AB'[n % 2]}\tThe CAT {n % 5}"),
    "pairs": ("a.tsv", lambda n: f"The CAT {n}\tDie KATZE {n}"),
}


def write(folder, kind, change=str):
    name, line = FILES[kind]
    path = folder / name
    path.write_text("".join(change(line(n)) + "\n" for n in range(60)))
    return path


def held(spec):
    return [
        token for n in ("tokens", "target_tokens") if n in spec for token in spec[n]["vocabulary"]
    ]


@pytest.mark.parametrize("kind", FILES)
def test_the_vocabulary_and_every_split_are_lower_cased(tmp_path, kind):
    """As the same file would be, had it been written so; classes keep their names."""
    made = load(write(tmp_path, kind), kind=kind, batch_size=2, tokens="words", lower=True)
    plain = load(write(tmp_path, kind, str.lower), kind=kind, batch_size=2, tokens="words")
    assert held(made.spec) == held(plain.spec)
    for part in ("train", "valid", "test"):
        assert all(map(lambda a, b: a.equal(b), made.splits[part], plain.splits[part]))
    assert made.spec["tokens"]["lower"] is True
    assert "lower" not in plain.spec["tokens"]
    if kind == "labelled":
        assert made.spec["classes"] == ["A", "B"]


@pytest.mark.parametrize("kind", FILES)
def test_what_is_predicted_and_evaluated_is_lower_cased(tmp_path, kind):
    data = load(write(tmp_path, kind), kind=kind, batch_size=2, tokens="words", lower=True)
    its, tokens = kinds.named(kind), Tokens.of(data.spec)
    (tmp_path / "lines.txt").write_text("THE Cat\n")
    the_cat = [tokens.index["the"], tokens.index["cat"]]
    _, [line] = its.read([tmp_path / "lines.txt"], data.spec)
    [again] = its.convert(["THE Cat"], data.spec)
    assert line.tolist() == again.tolist() == the_cat
    loud = write(tmp_path, kind, lambda line: line.replace("CAT", "Cat").replace("KATZE", "Katze"))
    like = load(Like(str(loud), data.spec, data.digest), kind=kind, batch_size=2, tokens="words")
    found = like.splits["test"][0].tolist()
    assert tokens.index["cat"] in found
    assert "Cat" not in held(like.spec)


def test_a_split_is_made_before_letters_change(tmp_path):
    """The capital İ is two characters in lower case, and blocks are counted in characters."""
    path = tmp_path / "a.txt"
    path.write_text("İa" * 300)
    made = load(path, kind="text", batch_size=2, lower=True)
    plain = load(path, kind="text", batch_size=2)
    for part in ("train", "valid", "test"):
        said, whole = (Tokens.of(d.spec).decode(d.splits[part][0].tolist()) for d in (made, plain))
        assert said == whole.lower()


def test_the_special_tokens_of_a_kind_are_those_it_is_given(tmp_path):
    """One form for all kinds of texts, so that a network goes from one to the other."""
    bert = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    for kind in FILES:
        path = write(tmp_path, kind)
        data = load(path, kind=kind, batch_size=2, tokens="words", special=bert)
        assert held(data.spec)[:5] == [*bert]
        assert Tokens.of(data.spec).special == bert
        for vocabulary in (3, 5):
            with pytest.raises(UserError, match=rf"vocabulary \({vocabulary}\) must be 0"):
                load(
                    path,
                    kind=kind,
                    batch_size=2,
                    tokens="words",
                    special=bert,
                    vocabulary=vocabulary,
                )
