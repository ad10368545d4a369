"""`check` says as which other kinds files could be read, and how to ask for it."""

import shlex

import pytest

from everynet.cli import main
from everynet.data import check, kinds, loading
from everynet.data.kinds import Kind
from tests.data.images.test_folder import fill
from tests.data.kinds.test_labelled import ROWS, joined
from tests.data.kinds.test_labelled_columns import headed

PAIRS = [(f"a text of {n} and more", f"ein Text von {n} und mehr") for n in range(60)]


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_bytes(joined(PAIRS))
    return "pairs.tsv"


@pytest.fixture
def looked(monkeypatch):
    """The kinds that looked a path over."""
    found = []
    real = Kind.check

    def look(self, path, **options):
        found.append(self.name)
        return real(self, path, **options)

    monkeypatch.setattr(Kind, "check", look)
    return found


def test_two_columns_of_sentences(pairs, capsys):
    report = check(pairs)
    assert report.kind == "table"
    assert not report.good
    command = "everynet data check pairs.tsv kind=pairs"
    assert report.others == [f"as pairs of texts: good, {command}"]
    assert str(report).splitlines()[-2:] == [f"otherwise  {report.others[0]}", "not good"]
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "good"


def test_a_table_with_tabs_is_no_pair_of_texts(tmp_path):
    (tmp_path / "a.tsv").write_text(
        "a\tb\tc\n" + "".join(f"{n}\t{n % 7}\t{n % 2}\n" for n in range(60))
    )
    assert kinds.matching(tmp_path / "a.tsv").name == "table"
    report = check(tmp_path / "a.tsv", target="c")
    assert report.good
    assert report.others == []


def test_nothing_else_is_looked_at_where_all_is_good(tmp_path, looked):
    assert check(headed(tmp_path)).good
    fill(tmp_path / "photos")
    assert check(tmp_path / "photos").good
    assert looked == ["labelled", "image"]


def test_a_kind_that_was_asked_for_is_the_only_one(pairs, looked):
    assert check(pairs, kind="table").others == []
    assert looked == ["table"]


def test_another_kind_that_is_not_good_either_is_not_named(tmp_path):
    (tmp_path / "a.tsv").write_bytes(joined([*ROWS, ("good", "")]))
    report = check(tmp_path / "a.tsv")
    assert report.kind == "labelled"
    assert "line 61, column 2 is empty" in report.refused
    assert report.others == []


def test_an_option_leaves_out_kinds_without_it(pairs):
    report = check(pairs, target="nothing")
    assert report.others == []


def test_large_files_are_not_looked_at_twice(pairs, looked, monkeypatch):
    monkeypatch.setattr(loading, "FEW_BYTES", 99)
    words = "as pairs of texts, which was not looked at: everynet data check pairs.tsv kind=pairs"
    assert check(pairs).others == [words]
    assert looked == ["table"]


def test_images_without_classes_are_taken_for_images_alone(tmp_path):
    fill(tmp_path)
    flat = tmp_path / "cat"
    report = check(flat)
    assert report.good
    assert str(report).startswith(f"{flat}: images, density\n")
