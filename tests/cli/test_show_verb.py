"""`everynet show`: the page of a network, built without its numbers."""

import re
from pathlib import Path

import pytest

from everynet.recipes.catalog import entries, find

MINE = Path(__file__).parent / "mine.py"


def test_the_notes_example_is_counted_without_its_77_billion_numbers(call):
    code, out, error = call("show", "mlp", "sizes=196608,196608,196608")
    assert (code, error) == (0, "")
    assert "77,309,804,544 parameters" in out
    assert out.count("38,654,902,272") == 2


def test_the_page_of_lenet(call):
    _, out, _ = call("show", "lenet")
    assert out.startswith("lenet: training by ")
    assert "(1)  feature map" in out
    assert re.search(r"c3.0 +Conv2d +16 x 10 x 10 +6,400 +2,416 +240,000 +14 x 14\n", out)
    assert "  61,706 parameters\n  418,096 multiplications for one sample\n" in out
    assert "  58,408 bytes of activations for one sample in fp32\n" in out
    assert re.search(r"^  lr +0[.]\d+ +Learning rate, before the schedule's factor.$", out, re.M)
    assert out.endswith("goal: accuracy >= 0.985; curriculum rows: C15\n")


def test_the_pictures_are_named_with_what_to_see_in_them(call):
    _, out, _ = call("show", "mlp-xor")
    _, _, part = out.partition("\npictures\n")
    shown = dict(re.findall(r"^  ([a-z-]+) +([A-Z].*[.])$", part, re.M))
    assert shown == find("mlp-xor").picture_names()
    assert [*shown][:2] == ["surface", "regions"]
    assert shown["surface"].startswith("The answer over the plane of two inputs, ")
    _, out, _ = call("show", f"{MINE}:flowers")
    assert "pictures\n  empty\n" in out
    assert "pictures\n" not in call("show", f"{MINE}:average")[1]


def test_settings_are_shown_as_they_were_given(call):
    _, out, _ = call("show", f"{MINE}:flowers", "lr=0.5", "epochs=3")
    assert re.search(r"^  lr +0.5 ", out, re.M)
    assert re.search(r"^  steps +18 ", out, re.M)
    assert "  15 parameters" in out


def test_a_network_that_asks_nothing_of_the_data_does_not_read_it(call):
    code, out, _ = call("show", f"{MINE}:wide", "width=100000")
    assert code == 0
    assert re.search(r"Linear +100000 +400,000 +10,000,100,000 +10,000,000,000", out)
    assert "goal: none; curriculum rows: none" in out


def test_parts_are_listed_where_the_whole_cannot_be_called(call):
    _, out, _ = call("show", f"{MINE}:parts")
    assert re.search(r"first +Linear +10\n +second +Linear +9\n +19 parameters", out)
    _, out, _ = call("show", f"{MINE}:tied-parts")
    assert re.search(r"first +Linear +20\n +second +Linear +4\n +24 parameters", out)


def test_what_the_data_does_not_say_is_told_by_its_line(refused):
    line = refused("show", f"{MINE}:stray")
    assert line == f"{MINE} line 89: KeyError: 'vocabulary'"


@pytest.mark.parametrize("name", ["average", "double"])
def test_what_is_no_network_has_no_layers(call, name):
    code, out, _ = call("show", f"{MINE}:{name}")
    assert code == 0
    assert "layers\n" not in out
    assert "settings\n" in out


def test_nothing_is_fetched_for_a_look(call, monkeypatch, tmp_path):
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, out, _ = call("show", "mlp-mnist")
    assert code == 0
    assert "layers: not shown (mnist is not here; everynet data get mnist fetches it)" in out
    assert "settings\n" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonet"], r"there is no recipe nonet; did you mean \S+, \S+ or \S+\?"),
        (["mlp", "sizs=3"], r"mlp has no setting sizs; did you mean sizes, \w+ or \w+\?"),
        (["mlp", "sizes=a"], r"sizes \(a\) must be whole numbers separated by commas"),
        (["mlp", "sizes=0"], r"sizes \(0\) must be .*"),
        (["mlp", "sizes"], r"sizes must be a setting written name=value, such as seed=1"),
        (["mlp", "data=./none"], r".*none.* must be .*"),
    ],
)
def test_what_cannot_be_shown(refused, words, message):
    assert re.fullmatch(message, refused("show", *words))


@pytest.mark.parametrize("name", [entry.name for entry in entries()[0]])
def test_every_network_of_the_zoo_can_be_shown(call, name):
    code, out, error = call("show", name)
    assert (code, error) == (0, "")
    assert out.startswith(f"{name}: ")
    assert re.search(r"\d parameters[\n,]|layers: not shown", out) or "training" not in out[:80]
