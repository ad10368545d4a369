"""What is offered after a run: each command is one that the command line takes as it stands."""

import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from everynet.cli import build_parser, overridden, pairs, parse_words
from everynet.cli.hints import suggestions
from everynet.recipes import catalog
from everynet.recipes.catalog import entries, find
from everynet.recipes.recipe import Fitting
from everynet.recipes.settings import override
from everynet.recipes.sweep import sweep_of
from everynet.recipes.training import Training
from everynet.runs.gap import Gap
from everynet.runs.job import Result


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """The zoo does not change meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "sources", cache(catalog.sources))
        yield


MINE = Path(__file__).parent / "mine.py"


def offered(recipe, named, gap=None):
    """The commands that follow a run of a recipe, in words, each with what it is said to do."""
    result = Result(Path("runs/x-20261116-101010-abcdef"), {}, None, (), gap=gap)
    return [(shlex.split(line), what) for line, what in suggestions(recipe, result, named)]


def check(words):
    """Let the command line's own parser read a command, and the recipe take its settings."""
    program, verb, *rest = words
    assert program == "everynet"
    arguments = parse_words(build_parser(verb), rest)
    if verb == "sweep":
        return sweep_of(find(arguments.name), pairs(arguments.settings)).base
    if verb != "run":
        return None
    return overridden(find(arguments.name), [w for w in arguments.settings if w != "data=PATH"])


@pytest.mark.parametrize("file", sorted({entry.file for entry in entries()[0]}))
def test_every_hint_of_every_recipe_can_be_followed(file):
    for entry in (entry for entry in entries()[0] if entry.file == file):
        recipe = find(entry.name)
        hints = offered(recipe, entry.name)
        assert len(hints) >= 3
        verbs = [words[1] for words, _ in hints]
        for verb in ("predict", "sample"):
            plain = (None, getattr(Training, verb), getattr(Fitting, verb))
            assert (verb in verbs) == (getattr(type(recipe), verb, None) not in plain)
        for words, _ in hints:
            again = check(words)
            if again is None or again.name != entry.name:
                continue
            if "seed" in " ".join(words):
                assert recipe.kind in ("training", "experiment")  # others compute the same again


@pytest.mark.parametrize("lr", ["3e30", "0.5"])
def test_what_the_user_gave_is_kept(lr):
    data = "/some where/my table.csv"
    given = {"lr": lr, "data": data, "target": "kind of thing", "hidden": "4,4", "seed": "7"}
    recipe = override(find("mlp"), given)
    runs = [words for words, _ in offered(recipe, "mlp") if words[:3] == ["everynet", "run", "mlp"]]
    assert len(runs) == 2  # the rate of the recipe, another seed; no other data
    for words in runs:
        again = check(words)
        assert (again.data, again.target, again.hidden) == (data, "kind of thing", (4, 4))
    assert (check(runs[0]).seed, check(runs[0]).lr) == (7, find("mlp").lr)
    assert (check(runs[1]).seed, check(runs[1]).lr) == (8, recipe.lr)


def test_a_recipe_of_ones_own_keeps_its_file():
    recipe = find(f"{MINE}:flowers")
    hints = {words[1]: words for words, _ in offered(recipe, f"{MINE}:flowers")}
    for verb in ("predict", "draw"):
        assert hints[verb][-2:] == ["--file", str(MINE)]
    assert hints["show"][2] == f"{MINE}:flowers"


def test_more_decay_is_offered_after_overfitting_alone():
    """And a search for a rate otherwise, which is no promise."""
    far = Gap("accuracy", 1.0, 0.8, (100, 100), 0.2, 0.01)
    cases = ((None, ["sweep", "lr=0.0003,0.001,0.003"]), (far, ["run", "weight_decay=0.01"]),
             (replace(far, error=0.1), ["sweep", "lr=0.0003,0.001,0.003"]))  # fmt: skip
    for gap, (verb, word) in cases:
        recipe = replace(find("mlp"), lr=0.001)
        hints = [words for words, _ in offered(recipe, "mlp", gap) if word in words]
        assert [words[:3] for words in hints] == [["everynet", verb, "mlp"]]
    decays = replace(find("mlp"), weight_decay=0.1)
    assert any("weight_decay=1" in words for words, _ in offered(decays, "mlp", far))
    own = override(find("mlp"), {"weight_decay": "0.1"})
    assert not any("weight_decay=1" in words for words, _ in offered(own, "mlp", far))
    assert not any("lr=" in word for words, _ in offered(find("lif"), "lif") for word in words)


def test_the_last_seed_has_none_after_it():
    recipe = replace(find("mlp"), seed=2**63 - 1)
    assert not any("other random" in what for _, what in offered(recipe, "mlp"))


def test_a_folder_of_photos_is_pointed_to_photos(tmp_path):
    """Not from a known set, and not from photos itself."""
    command = ["everynet", "run", "photos", f"data={tmp_path}"]
    given = override(find("lenet"), {"data": str(tmp_path)})
    assert command in [words for words, _ in offered(given, "lenet")[:3]]
    given = override(find("photos"), {"data": str(tmp_path)})
    assert command not in [words for words, _ in offered(given, "photos")]
    assert not any("photos" in words for words, _ in offered(find("lenet"), "lenet"))
