"""Pairs of texts: aligned files and tab-separated ones, as they are and as they should not be."""

import pytest
import torch

from everynet.data import check, load
from everynet.data.kinds import named
from everynet.data.loading import samples
from everynet.data.split import PARTS, by_hash, rows
from everynet.data.texts.tokens import Tokens
from everynet.system.errors import UserError

WORDS = ("red", "green", "blue", "white", "black", "yellow", "brown")
COUNT = 60


def sources(count=COUNT):
    return [
        " ".join(WORDS[(n * k) % 7] for k in range(1, 2 + n % 5)) + f" {n}" for n in range(count)
    ]


def targets(count=COUNT):
    return [text.upper() for text in sources(count)]


def two(folder, left=None, right=None):
    """The path of two aligned files; what is given may be lines or bytes."""
    paths = folder / "a.en", folder / "a.de"
    lines = sources() if left is None else left, targets() if right is None else right
    for path, content in zip(paths, lines, strict=True):
        path.write_bytes(content if isinstance(content, bytes) else joined(content))
    return f"{paths[0]},{paths[1]}"


def joined(lines, end="\n"):
    return "".join(line + end for line in lines).encode()


def tsv(folder, lines=None):
    path = folder / "a.tsv"
    pairs = zip(sources(), targets(), strict=True)
    lines = ["\t".join(pair) for pair in pairs] if lines is None else lines
    path.write_bytes(lines if isinstance(lines, bytes) else joined(lines))
    return path


def loaded(path, **options):
    return load(path, kind="pairs", batch_size=4, **options)


# ------------------------------------------------------------------------------------------- good


@pytest.mark.parametrize("make", [two, tsv])
def test_lines_stay_together_and_are_split_by_their_numbers(tmp_path, make):
    found = samples(make(tmp_path), kind="pairs")
    placed = by_hash(rows(COUNT))
    for part in PARTS:
        where = [n for n, its in enumerate(placed) if its == part]
        assert found.parts[part] == (
            [sources()[n] for n in where],
            [targets()[n] for n in where],
        )
        assert found.places[part] == [f"line {n + 1}" for n in where]
    assert not found.published


def test_a_batch_holds_tokens_and_lengths_between_start_and_end(tmp_path):
    data = loaded(two(tmp_path))
    source, target = Tokens.of(data.spec), Tokens.of(data.spec, "target_tokens")
    pair = dict(zip(sources(), targets(), strict=True))
    seen = 0
    for x, x_lengths, y, y_lengths in [*data.valid, *(data.train(step) for step in range(5))]:
        for row in range(len(x)):
            left, right = x[row, : x_lengths[row]].tolist(), y[row, : y_lengths[row]].tolist()
            assert (right[0], right[-1]) == (2, 3)
            assert not x[row, x_lengths[row] :].any()
            assert not y[row, y_lengths[row] :].any()
            if 1 not in left:
                assert target.decode(right) == pair[source.decode(left)]
                seen += 1
    assert seen >= 20


def test_vocabularies_are_those_of_training_alone(tmp_path):
    found = samples(two(tmp_path), kind="pairs")
    data = loaded(two(tmp_path))
    for side, name in enumerate(("tokens", "target_tokens")):
        words = {word for text in found.parts["train"][side] for word in text.split()}
        assert set(data.spec[name]["vocabulary"][4:]) == words
    hidden = {word for part in ("valid", "test") for text in found.parts[part][0]
              for word in text.split()}  # fmt: skip
    assert hidden - set(data.spec["tokens"]["vocabulary"]), "the number of each line is new"
    assert any((x == 1).any() for x, *_ in data.test)


def test_one_vocabulary_of_both(tmp_path):
    data = loaded(two(tmp_path), shared_vocabulary=True, vocabulary=20)
    assert data.spec["tokens"] == data.spec["target_tokens"]
    assert len(data.spec["tokens"]["vocabulary"]) == 20
    assert {"red", "RED"} <= set(data.spec["tokens"]["vocabulary"])
    apart = loaded(two(tmp_path))
    assert "RED" not in apart.spec["tokens"]["vocabulary"]


def test_characters(tmp_path):
    data = loaded(two(tmp_path), tokens="characters")
    assert set("red ") <= set(data.spec["tokens"]["vocabulary"])
    assert set("RED ") <= set(data.spec["target_tokens"]["vocabulary"])


def test_files_of_any_make(tmp_path):
    """A mark at the beginning, carriage returns, no newline at the end, odd spaces inside."""
    usual = samples(two(tmp_path), kind="pairs")
    other = two(
        tmp_path,
        b"\xef\xbb\xbf" + joined(sources(), "\r\n"),
        joined(targets()).removesuffix(b"\n"),
    )
    assert samples(other, kind="pairs").parts == usual.parts
    lines = [f"a\u2028b\x0bc\x85d {n}" for n in range(COUNT)]  # str.splitlines would cut these
    found = samples(two(tmp_path, lines), kind="pairs")
    assert sorted(text for part in PARTS for text in found.parts[part][0]) == sorted(lines)


def test_the_digest_follows_the_contents(tmp_path):
    first = samples(two(tmp_path), kind="pairs").digest
    assert samples(tsv(tmp_path), kind="pairs").digest == first
    changed = ["x", *sources()[1:]]
    assert samples(two(tmp_path, changed), kind="pairs").digest != first
    moved = samples(two(tmp_path, ["ab", *sources()[1:]], ["c", *targets()[1:]]), kind="pairs")
    other = samples(two(tmp_path, ["a", *sources()[1:]], ["bc", *targets()[1:]]), kind="pairs")
    assert moved.digest != other.digest


def test_a_file_may_have_a_comma_in_its_name(tmp_path):
    path = tsv(tmp_path).rename(tmp_path / "a,b.tsv")
    assert len(samples(path, kind="pairs").parts["train"][0]) > 30


# --------------------------------------------------------------------------------- asked, written


def test_asking_reads_each_line(tmp_path):
    data = loaded(two(tmp_path))
    (tmp_path / "q.txt").write_text("red blue\ngreen new\n")
    kind = named("pairs")
    names, rows_ = kind.read([tmp_path / "q.txt"], data.spec)
    assert names == [f"{tmp_path / 'q.txt'}:1", f"{tmp_path / 'q.txt'}:2"]
    index = Tokens.of(data.spec).index
    assert [row.tolist() for row in rows_] == [[index["red"], index["blue"]], [index["green"], 1]]
    assert all(row.dtype == torch.int64 for row in rows_)
    names, rows_ = kind.read([tsv(tmp_path)], data.spec)
    assert len(names) == COUNT
    assert Tokens.of(data.spec).decode(rows_[1].tolist()).startswith("green blue")


def test_an_empty_question_is_one_line(tmp_path):
    data = loaded(two(tmp_path))
    (tmp_path / "q.txt").write_text("red\n\nblue\n")
    with pytest.raises(UserError, match=r"q\.txt: line 2 is empty"):
        named("pairs").read([tmp_path / "q.txt"], data.spec)


def test_what_was_made_is_written_one_a_line(tmp_path):
    kind, spec = named("pairs"), loaded(two(tmp_path)).spec
    assert kind.write(["a b", "c\nd"], spec, tmp_path / "out") == [tmp_path / "out.txt"]
    assert (tmp_path / "out.txt").read_text() == "a b\nc d\n"
    with pytest.raises(UserError, match=r"--out \(.*out\.png\) must end in \.txt"):
        kind.write(["a"], spec, tmp_path / "out.png")


def test_the_line_of_the_card(tmp_path):
    spec = loaded(two(tmp_path)).spec
    assert named("pairs").line(spec).endswith(f"{len(spec['tokens']['vocabulary'])} words")


# -------------------------------------------------------------------------------------------- bad


def edited(line, text):
    return [text if n == line else one for n, one in enumerate(sources(), 1)]


TABBED = ["\t".join(pair) for pair in zip(sources(), targets(), strict=True)]
BAD = {
    "fewer lines": (two, {"right": targets()[:-2]},
                    r"a\.de \(58 lines\) must have as many lines as .*a\.en \(60\)"),
    "more lines": (two, {"right": [*targets(), "more"]}, r"a\.de \(61 lines\) .* \(60\)"),
    "empty line": (two, {"left": edited(7, "")}, r"a\.en: line 7 is empty"),
    "blank line": (two, {"left": edited(9, " \t ")}, r"a\.en: line 9 is empty"),
    "empty at the end": (two, {"left": [*sources(), ""], "right": [*targets(), ""]},
                         r"a\.en: line 61 is empty"),
    "empty file": (two, {"left": b""}, r"a\.en is empty"),
    "newlines": (two, {"left": b"\n\n", "right": b"\n\n"}, r"a\.en: line 1 is empty"),
    "binary": (two, {"right": joined(targets(3)) + b"\x89PNG\0\0"},
               r"a\.de must be text, but line 4 holds a byte of value 0"),
    "latin 1": (two, {"right": joined(targets(4)) + "Bäume\n".encode("latin-1")},
                r"a\.de: line 5 is not UTF-8 text"),
    "utf 16": (two, {"right": "Bäume\n".encode("utf-16")}, r"a\.de must be text, but line 1"),
    "too few": (two, {"left": ["a", "b"], "right": ["c", "d"]},
                r"a\.de must hold at least 3 texts, .* but holds 2; add some"),
    "one column": (tsv, {"lines": [*TABBED, "alone"]}, r"a\.tsv: line 61 has 1 columns"),
    "three columns": (tsv, {"lines": [*TABBED[:4], "a\tb\tc", *TABBED[4:]]},
                      r"a\.tsv: line 5 has 3 columns, but must have 2"),
    "nothing left": (tsv, {"lines": [*TABBED, " \tb"]}, r"a\.tsv: line 61, column 1 is empty"),
    "nothing right": (tsv, {"lines": [*TABBED, "a\t"]}, r"a\.tsv: line 61, column 2 is empty"),
    "empty in a tsv": (tsv, {"lines": [*TABBED, ""]}, r"a\.tsv: line 61 is empty"),
    "one line of a tsv": (tsv, {"lines": TABBED[:1]}, r"a\.tsv must hold at least 3 texts"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    make, changed, message = BAD[case]
    path = make(tmp_path, **changed)
    with pytest.raises(UserError, match=message) as caught:
        loaded(path)
    assert "\n" not in str(caught.value)
    report = check(path, kind="pairs")
    assert report.refused == str(caught.value)
    assert not report.good


def test_paths_that_are_not_there(tmp_path):
    path = two(tmp_path)
    (tmp_path / "a.de").unlink()
    with pytest.raises(UserError, match=r"a\.de\) must be a file or a folder, but is not there"):
        loaded(path)
    (tmp_path / "a.de").mkdir()
    with pytest.raises(UserError, match=r"a\.de must be a file, but is a folder"):
        loaded(path)
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(UserError, match=r"a\.txt\) must be pairs of texts"):
        named("pairs").find(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "letters"}, r"unknown tokens 'letters'; did you mean"),
        ({"vocabulary": 4}, r"vocabulary \(4\) must be 0, which keeps every token, or more than 4"),
        ({"vocabulary": -1}, r"vocabulary \(-1\) must be 0"),
        ({"holdout": False}, r"holdout \(false\) must be true for"),
    ],
)
def test_options_it_refuses(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        loaded(two(tmp_path), **options)


# ------------------------------------------------------------------------------------------ check


def test_the_report_says_lengths_unknown_words_and_duplicates(tmp_path):
    report = check(two(tmp_path), kind="pairs")
    assert report.good
    assert sum(report.counts.values()) == COUNT
    assert report.facts["source length"] == "median 4 words, longest 6"
    shares = [float(value.split("%")[0]) for name, value in report.facts.items() if "unk" in name]
    assert len(shares) == 4
    assert all(15 < share < 50 for share in shares), "the number that ends each line is new"
    left, right = sources(), targets()
    train, test = (by_hash(rows(COUNT)).index(part) for part in ("train", "test"))
    left[test], right[test] = left[train], right[train]
    report = check(two(tmp_path, left, right), kind="pairs")
    assert report.duplicates == [(f"line {train + 1}", f"line {test + 1}")]
    assert not report.good
    assert f"duplicate  line {train + 1} = line {test + 1}" in str(report)
