"""`everynet list`."""

import os
import re

import pytest

from everynet.recipes import catalog
from everynet.recipes.catalog import entries


def test_every_network_is_listed(call):
    code, out, error = call("list")
    assert (code, error) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["name", "family", "kind", "what", "it", "is", "goal"]
    assert [row.split()[0] for row in rows] == [entry.name for entry in entries()[0]]
    (lenet,) = (row for row in rows if row.startswith("lenet "))
    assert re.match(r"lenet +vision +training +LeNet-5, .* {2,}accuracy >= 0.985$", lenet)


def test_one_family(call):
    _, out, _ = call("list", "feedforward")
    assert {row.split()[1] for row in out.splitlines()[1:]} == {"feedforward"}


def test_an_unknown_family(refused):
    line = refused("list", "feedforwrad")
    wanted = r"unknown family 'feedforwrad'; did you mean feedforward, \w+ or \w+\?"
    assert re.fullmatch(wanted, line)


def test_a_broken_file_is_left_out_and_named(call, monkeypatch, tmp_path):
    folder = tmp_path / "zoo" / "a"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("RECIPES = {\n")
    (folder / "good.py").write_text('"""Good."""\nRECIPES = {"good": Task()}\n')
    (tmp_path / "recipes").mkdir()
    for name in catalog.KINDS:
        (tmp_path / name).write_text("")
    monkeypatch.setattr(catalog, "PACKAGE", tmp_path)
    monkeypatch.setattr(catalog, "ZOO", tmp_path / "zoo")
    code, out, error = call("list")
    assert code == 0
    assert out.splitlines()[1].split() == ["good", "a", "Good.", "-"]
    line = "everynet: left out zoo/a/broken.py: line 1: RECIPES must be a dict of literal recipes\n"
    assert error == line


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_sentence_is_cut_on_a_terminal(call, monkeypatch, width):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 20)))
    _, out, _ = call("list")
    assert max(map(len, out.splitlines())) <= width
    words = " ".join(out.split())
    for entry in entries()[0]:
        assert f" {entry.name} {entry.variant or entry.summary} [{entry.kind}; goal: " in words
    assert re.search(r"^vision$", out, re.M)


def test_variants_are_told_apart(call):
    """Of recipes of one file only the first is described by its file."""
    said = [(entry.file, entry.variant or entry.summary) for entry in entries()[0]]
    assert len({*said}) == len(said)
    rows = {row.split()[0]: row for row in call("list")[1].splitlines()}
    assert " as lenet, with data=mnist  " in rows["lenet-mnist"]
    assert " by the network of 1998.  " in rows["lenet-1998"]  # a class of its own
    assert " as bag-of-words, with data=sst method=naive-bayes" in rows["bag-of-words-sst"]
    assert " as resnet-cifar, with depth=56  " in rows["resnet-56-cifar"]


def test_a_pipe_gets_a_line_for_each(call):
    assert len(call("list")[1].splitlines()) == 1 + len(entries()[0])
