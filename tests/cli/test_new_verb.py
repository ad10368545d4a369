"""`everynet new`: what it writes runs as it is, and nothing is replaced."""

import re
from pathlib import Path

import pytest

from everynet.cli.new import KINDS
from everynet.recipes.catalog import find
from everynet.recipes.settings import setting_docs


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_runs(call, kind):
    words = [] if kind == "training" else ["--kind", kind]
    code, out, error = call("new", "my-own.py", *words)
    article = "an" if kind == "experiment" else "a"
    run = "run it with: everynet run ./my-own.py"
    assert (code, out, error) == (0, f"wrote my-own.py, {article} {kind}; {run}\n", "")
    assert "mine.py" not in Path("my-own.py").read_text()
    less = {"training": ["steps=200"], "experiment": ["updates=60", "sizes=1,8"]}
    code, out, error = call("run", "./my-own.py", *less.get(kind, []))
    assert code == 0, error
    assert "not drawn" not in error
    assert "\nmy-own: " in f"\n{out}"  # a baseline that does better is named before
    assert ("goal not checked" in out) == (kind in less)
    recipe = find("./my-own.py")
    assert (recipe.name, recipe.kind) == ("my-own", kind)
    assert all(doc for name, doc in setting_docs(recipe).items())
    assert call("show", "./my-own.py")[0] == 0


def test_what_is_learned_can_be_asked(call):
    names = "sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)"
    rows = f"{names}\n5.1,3.5,1.4,0.2\n"
    for kind in ("training", "fitting"):
        call("new", f"{kind}.py", "--kind", kind)
        code, _, error = call("run", f"{kind}.py", "--quiet")
        assert code == 0, error
        Path("flowers.csv").write_text(rows)
        code, out, error = call("predict", "latest", "flowers.csv", "--file", f"{kind}.py")
        assert (code, '"class": "setosa"' in out) == (0, True), error


@pytest.mark.parametrize(
    ("kind", "old", "message"),
    [
        ("training", "return nn.Sequential(", "model must return a torch.nn.Module"),
        ("fitting", "return self", "fit must return the estimator that it fitted"),
        ("simulation", 'return {"final', "metrics must return a dict of numbers by name"),
        ("experiment", "return {\n", "cells must return a dict of trainings by name"),
        ("experiment", 'return {"best"', "metrics must return a dict of numbers by name"),
    ],
)
def test_a_return_that_is_forgotten_in_it_is_told_by_its_line(call, refused, kind, old, message):
    call("new", "mine.py", "--kind", kind)
    text = Path("mine.py").read_text().replace("updates: int = ", "updates: int = 2  # ")
    assert old in text
    Path("mine.py").write_text(text.replace(old, old.replace("return ", "made = "), 1))
    line = refused("run", "./mine.py", "--quiet")
    method = text[: text.index(old)].rindex(f"    def {message.partition(' ')[0]}(")
    at = text[:method].count("\n") + 1
    assert line.startswith(f"./mine.py line {at}: {message}")
    assert line.endswith("not None; end it in a return")


def test_nothing_is_replaced(refused):
    Path("mine.py").write_text("precious")
    assert (
        refused("new", "mine.py") == "mine.py is there already and is not replaced; choose another"
    )
    assert Path("mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["mine"], 2, r"mine must be the name of a Python file, .*; write everynet new mine.py"),
        (["3.py"], 2, r"3.py must be the name of a Python file, .*"),
        (["a b.py"], 2, r"a b.py must be the name of a Python file, .*"),
        (
            ["mine.py", "--kind", "trainig"],
            2,
            r"unknown --kind 'trainig'; did you mean training, .*",
        ),
        (["no/where/mine.py"], 4, r"cannot write no/where/mine.py: No such file or directory; .*"),
    ],
)
def test_what_cannot_be_written(refused, words, code, message):
    assert re.fullmatch(message, refused("new", *words, code=code))
