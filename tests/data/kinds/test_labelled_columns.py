"""Texts with a class each in named columns: csv and tsv with a header, and JSON lines."""

import json

import pytest

from everynet.cli import main
from everynet.data import check, kinds, load
from everynet.data.kinds import named
from everynet.data.loading import samples
from everynet.data.split import PARTS, by_hash
from everynet.data.split import rows as numbers
from everynet.data.texts import lines
from everynet.data.texts.tokens import Tokens
from everynet.system.errors import UserError
from tests.data.kinds.test_labelled import ROWS, joined, loaded, tsv

KIND = named("labelled")


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def headed(folder, name="a.csv", rows=ROWS, *, names=("label", "text"), order=(0, 1), more=None):
    """Rows of class and text, in some order, with further columns by name."""
    path, more = folder / name, more or {}
    if name.endswith(".jsonl"):
        lines_ = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    else:
        tab = "\t" if name.endswith(".tsv") else ","
        cells = [[*row, *(make(n) for make in more.values())] for n, row in enumerate(rows)]
        order = (*order, *range(2, 2 + len(more)))
        found = [[*names, *more], *cells]
        write = str if tab == "\t" else quoted
        lines_ = [tab.join(write(row[at]) for at in order) for row in found]
    path.write_text("".join(f"{line}\n" for line in lines_))
    return path


def parts_of(path, **options):
    found = samples(path, kind="labelled", **options)
    return found.parts, found.classes, found.digest


# ------------------------------------------------------------------------------------------- good


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
@pytest.mark.parametrize("names", [("label", "text"), ("Sentiment", "the review")])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_named_columns_are_the_same_as_a_plain_tsv(tmp_path, name, names, order):
    wanted = parts_of(tsv(tmp_path, name="plain.tsv"))
    label, text = names
    assert (
        parts_of(headed(tmp_path, name, names=names, order=order), target=label, text=text)
        == wanted
    )
    if " " not in text:  # what is plain needs no word
        assert parts_of(tmp_path / name) == wanted
        assert kinds.matching(tmp_path / name) is KIND


def test_commas_quotes_and_line_ends_in_a_text(tmp_path):
    rows = [(label, f'{text}, "so\nto say"') for label, text in ROWS]
    found = samples(headed(tmp_path, rows=rows), kind="labelled")
    assert sorted(text for part in PARTS for text in found.parts[part][0]) == sorted(
        text for _, text in rows
    )
    semicolons = headed(tmp_path).read_text().replace('","', '";"')
    (tmp_path / "b.csv").write_text("\ufeff" + semicolons)
    assert parts_of(tmp_path / "b.csv") == parts_of(tmp_path / "a.csv")


def test_classes_of_json_may_be_numbers(tmp_path):
    rows = [(int(label == "good"), text) for label, text in ROWS]
    assert samples(headed(tmp_path, "a.jsonl", rows), kind="labelled").classes == ("0", "1")


def test_which_columns_were_found_is_said_unless_they_were_named(tmp_path):
    path = headed(tmp_path, names=("kind", "review"))
    said = "texts are in the column review, classes in kind"
    assert loaded(path).notes == (said,)
    assert loaded(path, text="review", target="kind").notes == ()
    assert f"columns    {said}" in str(check(path))
    assert loaded(path).spec["named"] == ["review", "kind"]
    assert "named" not in loaded(tsv(tmp_path, name="plain.tsv")).spec


def test_a_table_with_a_comment_stays_a_table_unless_text_is_named(tmp_path):
    more = {"age": lambda n: str(n % 9)}
    path = headed(tmp_path, more=more)
    assert kinds.matching(path) is named("table")
    with pytest.raises(UserError, match=r"\(text= and target= say which\).*; it looks like table"):
        loaded(path)
    assert loaded(path, text="text", target="label").spec["classes"] == ["bad", "good"]
    assert check(path, kind="labelled", text="text", target="label").good
    numbered = headed(tmp_path, "b.csv", more={"id": str})
    assert kinds.matching(numbered) is KIND


def test_a_tsv_without_a_header_is_read_as_before(tmp_path):
    assert "named" not in loaded(tsv(tmp_path)).spec
    assert sum(map(loaded(tsv(tmp_path)).rows, PARTS)) == len(ROWS)


def test_duplicates_are_named_by_their_lines(tmp_path):
    placed = by_hash(numbers(len(ROWS) + 1))
    row = next(row for row, part in enumerate(placed) if part != placed[-1])
    report = check(headed(tmp_path, rows=[*ROWS, ROWS[row]]))
    (pair,) = report.duplicates
    assert {*pair} == {f"line {row + 2}", f"line {len(ROWS) + 2}"}  # the header is line 1


# --------------------------------------------------------------------------- predict and evaluate


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_predict_reads_the_column_that_was_learned(tmp_path, name):
    data = loaded(headed(tmp_path, name, names=("label", "review")))
    asked = headed(tmp_path, f"asked.{name[2:]}", ROWS[:3], names=("id", "review"))
    names, found = KIND.read([asked], data.spec)
    first = 1 if name.endswith("jsonl") else 2
    assert names == [f"{asked}:{n}" for n in range(first, first + 3)]
    tokens = Tokens.of(data.spec)
    assert [row.tolist() for row in found] == [tokens.encode(text) for _, text in ROWS[:3]]
    (tmp_path / "q.txt").write_text("a text\n")
    assert len(KIND.read([tmp_path / "q.txt"], data.spec)[1]) == 1
    plain = tsv(tmp_path, name="plain.tsv")
    assert len(KIND.read([plain], data.spec)[1]) == len(ROWS)
    if not name.endswith(".tsv"):
        other = headed(tmp_path, f"other{name[1:]}", ROWS[:3], names=("id", "reveiw"))
        with pytest.raises(UserError, match=r"must have a column review, .* learned from; did you"):
            KIND.read([other], data.spec)


def test_json_lines_are_texts_whatever_was_learned(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"text": "a text"}\n')
    names, found = KIND.read([tmp_path / "q.jsonl"], loaded(tsv(tmp_path)).spec)
    assert (names, len(found[0])) == ([f"{tmp_path / 'q.jsonl'}:1"], 2)


def test_evaluate_takes_the_columns_of_the_run_or_others(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    headed(tmp_path, "train.csv")
    headed(tmp_path, "few.csv", ROWS[:4])  # too few to tell columns by
    headed(tmp_path, "other.jsonl", ROWS[:4], names=("stars", "body"))
    assert main(["run", "bag-of-words", "data=train.csv", "--quiet"]) == 0
    for words, code in (
        (["data=few.csv"], 0),
        (["data=other.jsonl", "text=body", "target=stars"], 0),
        (["data=other.jsonl"], 2),
    ):
        assert main(["evaluate", "latest", *words]) == code, capsys.readouterr()
    said = capsys.readouterr()
    assert "few.csv (4 samples)" in said.out
    assert "other.jsonl (4 samples)" in said.out
    assert said.err.count("\n") == 1


# -------------------------------------------------------------------------------------------- bad


def csv_of(text):
    def make(folder):
        path = headed(folder)
        path.write_text(path.read_text() + text)
        return path

    return make


def json_of(text):
    def make(folder):
        path = headed(folder, "a.jsonl")
        path.write_text(path.read_text() + text)
        return path

    return make


def without_header(folder):
    (folder / "a.csv").write_text(joined(ROWS).decode().replace("\t", ","))
    return folder / "a.csv"


BAD = {
    "empty text": (csv_of('"good"," "\n'), r"a.csv: line 62: text is empty; fill it in"),
    "empty class": (csv_of('"","fine"\n'), r"a.csv: line 62: label is empty; fill it in"),
    "blank line": (csv_of("\n"), r"a.csv: line 62 is empty; fill it in or leave it out"),
    "blank cells": (csv_of(",\n"), r"a.csv: line 62 is empty; fill it in or leave it out"),
    "one cell": (csv_of("good\n"), r"a.csv: line 62 has 1 columns, but the first line has 2"),
    "three cells": (csv_of("a,b,c\n"), r"a.csv: line 62 has 3 columns, but the first line has 2"),
    "no header": (without_header, r"a.csv: line 1 must name the columns, such as label,text, be"),
    "long cell": (csv_of("good," + "x" * 200_000 + "\n"), r"a.csv: line 62: field larger than fi"),
    "open quote": (csv_of('good,"fine\n'), r"a.csv: line 62: unexpected end of data"),
    "blank JSON": (json_of("\n"), r"a.jsonl: line 61 is empty; fill it in or leave it out"),
    "no JSON": (json_of("{text: 1}\n"), r"a.jsonl: line 61 must be JSON: Expecting property name"),
    "deep JSON": (json_of("[" * 10**6 + "\n"), r"a.jsonl: line 61 must be JSON: "),
    "no object": (json_of("[1]\n"), r'a.jsonl: line 61 must be an object such as \{"text": '),
    "no text": (json_of('{"label": "good"}\n'), r"a.jsonl: line 61: text is empty; fill it in"),
    "a list": (json_of('{"text": ["a"], "label": "b"}\n'), r"line 61: text must be a text or a n"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path, case):
    make, message = BAD[case]
    path = make(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        KIND.find(path)
    assert "\n" not in str(caught.value)
    assert check(path, kind="labelled").refused == str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "txt"}, r"text \(txt\) must be a column of .*a.csv; did you mean text or label"),
        ({"target": "lable"}, r"target \(lable\) must be a column of .*a.csv; did you mean label"),
        ({"text": "text", "target": "text"}, r"has the columns label, text: name that of the te"),
    ],
)
def test_columns_that_are_not_there(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        loaded(headed(tmp_path), **options)


def test_what_is_not_plain_is_refused_with_the_names(tmp_path):
    path = headed(tmp_path, more={"country": lambda n: "ab"[n % 2]})
    with pytest.raises(UserError, match=r"a.csv has the columns label, text, country: name that"):
        KIND.find(path)
    with pytest.raises(UserError, match=r"column 'label' must have a name of its own"):
        KIND.find(headed(tmp_path, names=("label", "label")))


def test_columns_of_what_has_none_are_refused(tmp_path):
    (tmp_path / "good").mkdir()
    for path in (tsv(tmp_path), tmp_path):
        with pytest.raises(
            UserError, match=r"text \(a\) must be left out, because .* has no colum"
        ):
            KIND.find(path, text="a")


def test_a_text_is_bounded_and_looking_never_raises(tmp_path, monkeypatch):
    path = headed(tmp_path)
    for name in ("none.csv", "x\0.csv", "a" * 300 + ".jsonl"):
        assert not KIND.matches(tmp_path / name)
    (tmp_path / "binary.csv").write_bytes(b"\xff\0\xfe,\n")
    assert not KIND.matches(tmp_path / "binary.csv")
    monkeypatch.setattr(lines, "MOST_LINE", 10)
    with pytest.raises(UserError, match=r"a.csv: line 2 \(17 characters\) must have at most 10"):
        load(path, kind="labelled", batch_size=2)
