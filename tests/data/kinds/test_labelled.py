"""Texts with a class each: a tsv or a folder, as they are and as they should not be."""

from pathlib import Path

import pytest
import torch

from everynet.data import check, load
from everynet.data.kinds import ORDER, named
from everynet.data.loading import samples
from everynet.data.split import PARTS, by_hash, rows
from everynet.data.texts import lines
from everynet.data.texts.tokens import Tokens
from everynet.system.errors import UserError
from tests.data.kinds.test_pairs import two

COUNT = 60
ROWS = [("good" if n % 3 else "bad", f"a text of {n % 7} and {n}") for n in range(COUNT)]


def joined(rows_):
    return "".join(f"{label}\t{text}\n" for label, text in rows_).encode()


def tsv(folder, rows_=ROWS, name="a.tsv"):
    path = folder / name
    path.write_bytes(rows_ if isinstance(rows_, bytes) else joined(rows_))
    return path


def tree(folder, files=None):
    """A folder with a file for each text; `files` are changed or added."""
    root = folder / "reviews"
    named_ = {f"{label}/{n}.txt": text + "\n" for n, (label, text) in enumerate(ROWS)}
    for name, content in {**named_, **(files or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def two_files(folder, rows_=ROWS, labels=None):
    """Texts and their classes in two files; the lines of the second may be others."""
    texts, classes = folder / "texts.txt", folder / "classes.txt"
    texts.write_text("".join(f"{text}\n" for _, text in rows_))
    lines = [label for label, _ in rows_] if labels is None else labels
    classes.write_bytes("".join(f"{label}\n" for label in lines).encode())
    return f"{texts},{classes}"


def loaded(path, **options):
    return load(path, kind="labelled", batch_size=4, **options)


# ------------------------------------------------------------------------------------------- good


def test_rows_are_split_by_their_numbers(tmp_path):
    found = samples(tsv(tmp_path), kind="labelled")
    placed = by_hash(rows(COUNT))
    for part in PARTS:
        mine = [row for row, its in zip(ROWS, placed, strict=True) if its == part]
        assert found.parts[part] == ([text for _, text in mine], [label for label, _ in mine])
    assert found.classes == ("bad", "good")


def test_two_files_are_the_same_as_a_tsv(tmp_path):
    one, other = (samples(make(tmp_path), kind="labelled") for make in (tsv, two_files))
    assert (one.parts, one.digest, one.split) == (other.parts, other.digest, other.split)
    assert named("labelled").matches(Path(two_files(tmp_path)))


def test_files_are_split_by_class_and_name(tmp_path):
    root = tree(tmp_path)
    found = samples(root, kind="labelled")
    keys = {f"{label}/{n}.txt": (text, label) for n, (label, text) in enumerate(ROWS)}
    everything = [pair for part in PARTS for pair in zip(*found.parts[part], strict=True)]
    assert sorted(everything) == sorted(keys.values())
    before = set(found.parts["test"][0])
    more = samples(tree(tmp_path, {"good/new.txt": "one more"}), kind="labelled")
    assert before <= set(more.parts["test"][0]) | {"one more"}
    assert "class and file name" in found.split


def test_folders_of_parts_are_honoured(tmp_path):
    root = tmp_path / "reviews"
    for part in ("train", "valid", "test"):
        for label in ("good", "bad"):
            (root / part / label).mkdir(parents=True)
            (root / part / label / "1.txt").write_text(f"{part} {label}")
    found = samples(root, kind="labelled")
    assert found.parts["test"] == (["test bad", "test good"], ["bad", "good"])
    assert named("labelled").matches(root)


@pytest.mark.parametrize("make", [tsv, tree])
def test_a_batch_holds_tokens_lengths_and_classes(tmp_path, make):
    data = loaded(make(tmp_path))
    tokens, label_of = Tokens.of(data.spec), {text: label for label, text in ROWS}
    assert data.spec["classes"] == ["bad", "good"]
    seen = 0
    for x, lengths, y in [*data.test, *(data.train(step) for step in range(6))]:
        assert (x.dtype, lengths.dtype, y.dtype) == (torch.int64,) * 3
        for row in range(len(x)):
            numbers = x[row, : lengths[row]].tolist()
            assert not x[row, lengths[row] :].any()
            if 1 not in numbers:
                assert label_of[tokens.decode(numbers)] == data.spec["classes"][y[row]]
                seen += 1
    assert seen >= 20


def test_the_vocabulary_is_that_of_training(tmp_path):
    found, data = samples(tsv(tmp_path), kind="labelled"), loaded(tsv(tmp_path))
    words = {word for text in found.parts["train"][0] for word in text.split()}
    assert set(data.spec["tokens"]["vocabulary"][4:]) == words
    assert len(loaded(tsv(tmp_path), vocabulary=9).spec["tokens"]["vocabulary"]) == 9
    assert "x" in loaded(tsv(tmp_path), tokens="characters").spec["tokens"]["vocabulary"]


def test_asking_reads_lines_or_files_as_they_were_learned(tmp_path):
    kind = named("labelled")
    question = tmp_path / "q.txt"
    question.write_text("a text\nof 3\n")
    spec = loaded(tsv(tmp_path)).spec
    names, found = kind.read([question], spec)
    assert names == [f"{question}:1", f"{question}:2"]
    assert [Tokens.of(spec).decode(row.tolist()) for row in found] == ["a text", "of 3"]
    names, found = kind.read([tmp_path / "a.tsv"], spec)
    assert Tokens.of(spec).decode(found[0].tolist()).startswith("a text of 0 and")
    spec = loaded(tree(tmp_path)).spec
    names, found = kind.read([question], spec)
    assert names == [str(question)]
    assert len(found[0]) == 5, "two lines of one text, and the end between them"
    names, _ = kind.read([tmp_path / "reviews" / "bad"], spec)
    assert len(names) == 20
    assert kind.write(["a"], spec, tmp_path / "out") == [tmp_path / "out.txt"]


def test_the_line_of_the_card(tmp_path):
    assert ": texts, 2 classes, " in named("labelled").line(loaded(tsv(tmp_path)).spec)


# -------------------------------------------------------------------------------- which kind it is


def pairs_of(count, values):
    return [(f"word {n % values}", f"wort {n}") for n in range(count)]


@pytest.mark.parametrize(
    ("rows_", "kind"),
    [
        (ROWS, "labelled"),
        (pairs_of(60, 60), "pairs"),
        (pairs_of(60, 29), "labelled"),
        (pairs_of(60, 30), "pairs"),  # half as many values as rows
        (pairs_of(500, 50), "labelled"),
        (pairs_of(500, 51), "pairs"),
        (pairs_of(1000, 2) + pairs_of(3000, 3000), "labelled"),  # only the first are looked at
    ],
)
def test_few_values_before_the_tab_are_classes(tmp_path, rows_, kind):
    path = tsv(tmp_path, rows_)
    assert [name for name in ("labelled", "pairs") if named(name).matches(path)] == [kind]


def test_texts_are_told_from_images(tmp_path):
    kind = named("labelled")
    assert kind.matches(tree(tmp_path))
    assert ORDER.index("labelled") < ORDER.index("image"), "any folder of folders may be images"
    pictures = tmp_path / "pictures"
    for label in ("cat", "dog"):
        (pictures / label).mkdir(parents=True)
        (pictures / label / "1.png").touch()
    assert not kind.matches(pictures)
    assert named("image").matches(pictures)


def test_looking_never_raises(tmp_path):
    (tmp_path / "empty").mkdir()
    tsv(tmp_path, b"\xff\xfe\t\0", "binary.tsv")
    tsv(tmp_path, b"", "nothing.tsv")
    for name in ("empty", "binary.tsv", "nothing.tsv", "not-there.tsv", "a" * 300 + ".tsv", "x\0y"):
        path = tmp_path / name
        tells = name.endswith(".tsv")  # where nothing can be told, what is wanted says why
        assert named("labelled").matches(path) == named("pairs").matches(path) == tells
    assert named("pairs").matches(tmp_path / ("a" * 300 + ",b"))
    assert not named("labelled").matches(tmp_path / ("a" * 300 + ",b"))


# -------------------------------------------------------------------------------------------- bad


def in_test_alone():
    lonely = by_hash(rows(COUNT)).index("test")
    return [("odd" if n == lonely else label, text) for n, (label, text) in enumerate(ROWS)]


def two_files_of(folder, labels):
    return two_files(folder, labels=labels)


BAD = {
    "one class": (tsv, [("good", text) for _, text in ROWS],
                  r"a\.tsv: one class \(good\) is not enough to learn from"),
    "class in test alone": (tsv, in_test_alone(), r"class odd of test has no training sample"),
    "no text": (tsv, joined(ROWS) + b"good\t\n", r"a\.tsv: line 61, column 2 is empty"),
    "no class": (tsv, joined(ROWS) + b"\ttext\n", r"a\.tsv: line 61, column 1 is empty"),
    "no tab": (tsv, joined(ROWS) + b"good text\n", r"a\.tsv: line 61 has 1 columns"),
    "two tabs": (tsv, joined(ROWS) + b"good\ta\tb\n", r"a\.tsv: line 61 has 3 columns"),
    "empty line": (tsv, joined(ROWS) + b"\n", r"a\.tsv: line 61 is empty"),
    "empty": (tsv, b"", r"a\.tsv is empty"),
    "too few": (tsv, ROWS[:2], r"a\.tsv must hold at least 3 texts"),
    "binary": (tsv, joined(ROWS) + b"good\t\0\n", r"a\.tsv must be text, but line 61 holds"),
    "latin 1": (tsv, joined(ROWS) + b"good\tB\xe4ume\n", r"a\.tsv: line 61 is not UTF-8"),
    "fewer classes": (two_files_of, [label for label, _ in ROWS[:-2]],
                      r"classes\.txt \(58 lines\) must have as many lines as .*texts\.txt \(60\)"),
    "more classes": (two_files_of, [label for label, _ in ROWS] + ["good"],
                     r"classes\.txt \(61 lines\) must have as many lines as .*texts\.txt \(60\)"),
    "a class left out": (two_files_of, ["good", " ", *(label for label, _ in ROWS[2:])],
                         r"classes\.txt: line 2 is empty; fill it in"),
    "no classes": (two_files_of, [], r"classes\.txt is empty"),
    "empty file": (tree, {"bad/0.txt": ""}, r"0\.txt is empty"),
    "blank file": (tree, {"bad/0.txt": " \n"}, r"0\.txt holds no text; write some or remove it"),
    "binary file": (tree, {"bad/0.txt": b"a\nb\0"}, r"0\.txt must be text, but line 2 holds"),
    "latin 1 file": (tree, {"bad/0.txt": b"B\xe4ume"}, r"0\.txt: line 1 is not UTF-8 text"),
    "other file": (tree, {"bad/z.png": b"\x89PNG"}, r"z\.png must end in \.txt"),
    "loose file": (tree, {"0.txt": "a"}, r"0\.txt must lie in a subfolder"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    make, content, message = BAD[case]
    path = make(tmp_path, content)
    with pytest.raises(UserError, match=message) as caught:
        loaded(path)
    assert "\n" not in str(caught.value)
    assert check(path, kind="labelled").refused == str(caught.value)


def test_paths_and_parts_it_refuses(tmp_path):
    root = tree(tmp_path)
    root.joinpath("good").rename(tmp_path / "away")
    with pytest.raises(UserError, match=r"reviews: one class \(bad\) is not enough"):
        loaded(root)
    with pytest.raises(UserError, match=r"must be texts with a class each: .* looks like pairs"):
        loaded(two(tmp_path))
    with pytest.raises(UserError, match=r"a\.txt\) must be texts with a class each"):
        named("labelled").find(tmp_path / "a.txt")
    (tmp_path / "own" / "good").mkdir(parents=True)
    with pytest.raises(UserError, match="the train part holds no text; add some"):
        named("labelled").find(tmp_path / "own")
    with pytest.raises(UserError, match=r"vocabulary \(3\) must be 0"):
        loaded(tsv(tmp_path), vocabulary=3)


# ------------------------------------------------------------------------------------------ check


def test_the_report_says_classes_lengths_and_duplicates(tmp_path):
    report = check(tsv(tmp_path), kind="labelled")
    assert report.good
    assert sum(report.classes["bad"].values()) == 20
    assert report.facts["length"] == "median 6 words, longest 6"
    placed = by_hash(rows(COUNT))
    train, test = placed.index("train"), placed.index("test")
    changed = [
        (label, ROWS[train][1] if n == test else text) for n, (label, text) in enumerate(ROWS)
    ]
    report = check(tsv(tmp_path, changed), kind="labelled")
    assert report.duplicates == [(f"line {train + 1}", f"line {test + 1}")]
    copies = {f"good/copy{n}.txt": ROWS[1][1] for n in range(9)}
    found = check(tree(tmp_path, copies), kind="labelled").duplicates
    assert found
    assert all("copy" in b or "copy" in a for a, b in found)


def test_a_line_is_bounded(tmp_path, monkeypatch):
    """The tokens of one line of 200 MB took 3.4 GB."""
    monkeypatch.setattr(lines, "MOST_LINE", 40)
    path = tsv(tmp_path, [*ROWS[:5], ("good", "x" * 60), *ROWS[5:]])
    said = r"a.tsv: line 6 \(65 characters\) must have at most 40, because a line is one text"
    with pytest.raises(UserError, match=said):
        load(path, kind="labelled", batch_size=2)
    (tmp_path / "one.txt").write_text("word\n" + "long " * 20)
    for kind, spec in (
        ("lines", {}),
        ("text", load("topics", kind="text", batch_size=2, tokens="words").spec),
    ):
        with pytest.raises(UserError, match=r"one.txt: line 2 \(\d+ characters\) must have at"):
            named(kind).read([tmp_path / "one.txt"], spec)


def test_what_a_file_is_follows_from_its_beginning_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LOOKED_AT", 100)
    assert lines.beginning(tsv(tmp_path, b"good\t" + b"x" * 10_000)) == [["good", "x" * 95]]
