"""`everynet list`: everything, what words tell of, and how it is written."""

import os
import re

import pytest

from everynet.recipes import catalog
from everynet.recipes.catalog import ZOO
from everynet.recipes.search import FAMILIES, in_course_order, rows

LISTED = in_course_order(catalog.entries()[0])


def names(out):
    return [row.split()[0] for row in out.splitlines()[1:]]


def test_every_network_is_listed(call):
    code, out, error = call("list")
    assert (code, error) == (0, "")
    assert out.splitlines()[0].split() == ["name", "family", "kind", "what", "it", "is"]
    assert names(out) == [entry.name for entry in LISTED]
    (lenet,) = (row for row in out.splitlines() if row.startswith("lenet "))
    assert re.match(r"lenet +vision +training +LeNet-5, .*\.$", lenet)


def test_goals_only_where_they_are_wanted(call):
    head, *found = call("list", "--long", "vision")[1].splitlines()
    assert head.split()[-1] == "goal"
    (lenet,) = (row for row in found if row.startswith("lenet "))
    assert re.match(r"lenet +vision +training +LeNet-5, .* {2,}accuracy >= 0.985$", lenet)


def test_families_come_in_the_order_of_the_course():
    assert [*dict.fromkeys(entry.family for entry in LISTED)] == [*FAMILIES]
    assert {path.parent.name for path in ZOO.glob("*/*.py")} == {*FAMILIES}


# ------------------------------------------------------------------------------------- searching


def test_one_family(call):
    _, out, _ = call("list", "feedforward")
    assert {row.split()[1] for row in out.splitlines()[1:]} == {"feedforward"}
    assert call("list", "Feedforward")[1] == out


@pytest.mark.parametrize(
    ("words", "some", "others"),
    [
        (["perceptron"], ["perceptron", "mlp", "mlp-xor"], ["lenet"]),  # a title, for all its file
        (["cnn"], ["cnn-mnist", "group-cnn", "text-cnn", "sound-cnn"], ["mlp", "resnet"]),
        (["gan"], ["gan-ring", "gan-mnist"], ["vae", "music"]),  # no word that merely holds it
        (["shakespeare"], ["lstm-shakespeare", "gpt-shakespeare"], ["gpt"]),
        (["vision", "residual"], ["resnet", "degradation"], ["lenet"]),
        (["residual", "VISION"], ["resnet", "degradation"], ["lenet"]),
        (["reply"], ["conversation", "dual-encoder"], ["gpt"]),  # what a class says of itself
        (["c15"], ["lenet", "lenet-mnist"], ["alexnet"]),
        (["tuning", "curves"], ["lif"], ["mlp"]),  # the name of a row
    ],
)
def test_words_find_and_several_narrow(call, words, some, others):
    code, out, _ = call("list", *words)
    found = names(out)
    assert code == 0
    assert set(some) <= set(found)
    assert not set(others) & set(found)


def test_the_id_of_a_row_finds_what_covers_it_and_no_longer_id(call):
    for id in ("T1", "T11", "V1"):
        wanted = [entry.name for entry in LISTED if id in entry.covers]
        if wanted:
            assert names(call("list", id)[1]) == wanted


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["feedforwrad"],
            r"no recipe is about 'feedforwrad'; did you mean feedforward, [\w-]+ or ",
        ),
        (["perceptorn"], r"no recipe is about 'perceptorn'; did you mean perceptron, "),
        (["aussian"], "no recipe is about 'aussian'"),  # a part of a word of a title
        (["vision", "attractor"], "nothing that is found by 'vision' is about 'attractor'; leave"),
        (["[("], r"no recipe is about '\[\('; did you mean"),
        (["seed=1"], "list has no setting seed; did you mean"),
        (["target=x"], "target needs data=PATH beside it, or a known name"),
        (
            ["data=nowhere.csv"],
            r"data \(nowhere.csv\) must be a known name or a path that is there",
        ),
    ],
)
def test_nothing_found_is_one_line(refused, words, line):
    assert re.match(line, refused("list", *words))


def test_a_row_without_a_recipe_is_named(refused):
    covered = {row for entry in LISTED for row in entry.covers}
    row = next(row for row in rows() if row not in covered)
    line = refused("list", row.lower())
    assert line.startswith(f"no recipe shows the row {row} ({rows()[row]}): tests do, which docs/")


# ----------------------------------------------------------------------------------- how it looks


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
    code, out, error = call("list", "--long")
    assert code == 0
    assert out.splitlines()[1].split() == ["good", "a", "Good.", "-"]
    line = "everynet: left out zoo/a/broken.py: line 1: RECIPES must be a dict of literal recipes\n"
    assert error == line


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of so many columns."""

    def make(width):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 20)))

    return make


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_on_a_terminal_each_has_one_line(call, terminal, width):
    terminal(width)
    lines = call("list")[1].splitlines()
    assert max(map(len, lines)) <= width
    found = [line.split()[0] for line in lines if line.startswith("  ")]
    assert found == [entry.name for entry in LISTED]
    assert [line for line in lines if line[:1].strip()] == [*FAMILIES]
    assert "goal: " not in " ".join(lines)
    whole = next(line for line in lines if line.startswith("  mlp "))
    idea = "Multilayer perceptron: weighted sums and nonlinearities in turn, a matrix product a"
    assert idea.startswith(re.split(r" \.\.\.$", whole)[0].split(maxsplit=1)[1][:80])


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_long_cuts_no_sentence(call, terminal, width):
    terminal(width)
    _, out, _ = call("list", "--long")
    words = " ".join(out.split())
    for entry in LISTED:
        assert f" {entry.name} {entry.idea} [{entry.kind}; goal: {entry.goal}]" in words
    assert re.search(r"^vision$", out, re.M)


def test_variants_are_told_apart(call):
    """Of recipes of one file only the first is described by its file."""
    said = [(entry.file, entry.idea) for entry in LISTED]
    assert len({*said}) == len(said)
    rows = {row.split()[0]: row for row in call("list", "--long")[1].splitlines()}
    assert " as lenet, with data=mnist  " in rows["lenet-mnist"]
    assert " by the network of 1998.  " in rows["lenet-1998"]  # a class of its own
    assert " as bag-of-words, with data=sst method=naive-bayes" in rows["bag-of-words-sst"]
    assert " as resnet-cifar, with depth=56  " in rows["resnet-56-cifar"]


def test_a_pipe_gets_a_line_for_each(call):
    assert len(call("list")[1].splitlines()) == 1 + len(LISTED)
