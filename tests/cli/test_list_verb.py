"""`everynet list`."""

import os
import re

from everynet import catalog
from everynet.catalog import entries


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
    assert re.fullmatch(r"unknown family feedforwrad; the nearest are feedforward, \w+, \w+", line)


def test_a_broken_file_is_left_out_and_named(call, monkeypatch, tmp_path):
    folder = tmp_path / "zoo" / "a"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("RECIPES = {\n")
    (folder / "good.py").write_text('"""Good."""\nRECIPES = {"good": Task()}\n')
    for name in catalog.KINDS:
        (tmp_path / name).write_text("")
    monkeypatch.setattr(catalog, "PACKAGE", tmp_path)
    monkeypatch.setattr(catalog, "ZOO", tmp_path / "zoo")
    code, out, error = call("list")
    assert code == 0
    assert out.splitlines()[1].split() == ["good", "a", "Good.", "-"]
    line = "everynet: left out zoo/a/broken.py: line 1: RECIPES must be a dict of literal recipes\n"
    assert error == line


def test_lines_are_cut_at_the_edge_of_a_terminal(call, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((40, 20)))
    _, out, _ = call("list")
    assert max(map(len, out.splitlines())) == 40
