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
    assert out.startswith("my-own: ")
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
