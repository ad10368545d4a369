"""A recipe of one's own: a mistake in its file is told by file and line, before it is trained."""

import re
from pathlib import Path

import pytest

MINE = (Path(__file__).parent / "mine.py").read_text()


def line_with(text, words):
    """The number of the first line that has these words."""
    return next(n for n, line in enumerate(text.splitlines(), 1) if words in line)


@pytest.fixture
def changed():
    """Writes mine.py with some of its text replaced."""

    def write(*pairs):
        text = MINE
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new, 1)
        Path("mine.py").write_text(text)
        return text

    return write


OBJECTIVE = '        return {"cross_entropy": cross_entropy(model(x), y)}  # (1)\n'


@pytest.mark.parametrize(
    "case",
    [
        ("flowers", "model(x), y", "model(x[:, 1:]), y", r"RuntimeError: mat1 and .*"),
        ("flowers", "model(x), y", "model(z), y", r"NameError: name 'z' is not defined"),
        ("flowers", "x, y = batch", "x, y, z = batch", r"ValueError: not enough values .*"),
        ("flowers", 'data.spec["shape"][0], len', 'data.spec["shpe"][0], len', r"KeyError: 'shpe'"),
        ("double", "torch.tensor(2 * self.value)", "torch.tensor([][0])", r"IndexError: list .*"),
        ("average", "batch[1] - model.mean_", "batch[2] - model.mean_", r"IndexError: tuple .*"),
        ("flowers", "cross_entropy <= 10", "acuracy >= 10",
         r"the goal \(acuracy >= 10\) must name a metric that flowers gives: cross_entropy"),
        ("flowers", '{"cross_entropy": cross_entropy(model(x), y)}', "cross_entropy(model(x), y)",
         r"objective must give a dict of tensors by name, .*Error: .*"),
        ("flowers", "model(x), y)}", "model(x), y, reduction='none')}",
         r"objective must give a dict of scalar tensors .*, not {'cross_entropy': \[16\]}"),
        ("double", '"y >= 2"', '"z >= 2"', r"the goal \(z >= 2\) must name a .* double gives: y"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_line(changed, refused, case):
    recipe, old, new, message = case
    text = changed((old, new))
    line = refused("run", f"./mine.py:{recipe}", "--quiet")
    at = "def objective(" if "objective" in message else new
    assert re.fullmatch(rf"\./mine\.py line {line_with(text, at)}: {message}", line), line
    assert "fault of ours" not in line


def test_with_debug_the_traceback_is_shown(changed, call):
    changed(("model(x), y", "model(z), y"))
    code, _, error = call("run", "mine.py:flowers", "--quiet", "--debug")
    assert code == 2
    assert error.startswith("Traceback (most recent call last)")
    assert re.search(r"\neveryn.*: mine.py line \d+: NameError: name 'z' is not defined\n$", error)


def test_a_mistake_in_a_neighbour(changed, refused):
    changed(
        ("model(x), y", "scored(model, x), y"),
        ("import torch\n", "import torch\nfrom my_scores import scored\n"),
    )
    Path("my_scores.py").write_text("\ndef scored(model, x):\n    return model(x) + nothing\n")
    line = refused("run", "./mine.py:flowers", "--quiet")
    assert line == "./my_scores.py line 3: NameError: name 'nothing' is not defined"


@pytest.mark.parametrize(
    "case",
    [
        ("flowers", "Flowers", "def objective(", "objective(self, model, batch)"),
        ("flowers", "Flowers", "def model(", "model(self, data)"),
        ("average", "Average", "def metrics(self, model: Mean", "metrics(self, model, batch)"),
        ("double", "Doubling", "def simulate(", "simulate(self, generator)"),
        ("double", "Doubling", "def metrics(self, result", "metrics(self, result)"),
    ],
)
def test_a_missing_method_is_told_before_anything_is_done(changed, refused, case):
    recipe, cls, old, method = case
    text = changed((old, old.replace("def ", "def un")))
    line = refused("run", f"./mine.py:{recipe}", "--quiet")
    number = line_with(text, f"class {cls}(") - 1  # its decorator
    assert line.startswith(f"./mine.py line {number}: {cls} must have a method {method}, because")
    assert not Path("runs").exists()


def test_an_own_step_needs_own_metrics(changed, refused):
    changed(("def objective(self, model", "def step(self, state"))
    line = refused("run", "./mine.py:flowers", "--quiet")
    assert "Flowers must have a method metrics(self, model, batch)" in line


def test_a_metric_that_the_goal_names_is_looked_for_before_a_folder_is_made(changed, refused):
    changed(("cross_entropy <= 10", "acuracy >= 10"))
    refused("run", "./mine.py:flowers", "--quiet")
    assert not Path("runs").exists()


def test_a_summary_that_one_batch_is_too_little_for(changed, call):
    own = "\n    def summarise(self, outputs):\n        assert CALLS.append(1) or len(CALLS) > 1\n"
    own += "        return {'cross_entropy': 1.0}\n"
    changed((OBJECTIVE, OBJECTIVE + own), ("class Mean:", "CALLS = []\n\n\nclass Mean:"))
    assert call("run", "./mine.py:flowers", "--quiet")[0] == 0


def test_a_run_is_kept_though_its_pictures_fail(changed, call, refused):
    text = changed(("return Figure(figsize=(1, 1))", "return {}[0]"))
    code, out, error = call("run", "./mine.py:flowers")
    assert code == 0
    number = line_with(text, "{}[0]")
    said = f"the pictures of flowers are not drawn: ./mine.py line {number}: KeyError: 0\n"
    assert said in error
    assert "(learning-curve.png)" in out
    (folder,) = Path("runs").iterdir()
    assert (folder / "card.md").exists()
    assert refused("draw", "latest", "--file", "mine.py") == f"mine.py line {number}: KeyError: 0"
    with pytest.warns(UserWarning, match=r"the pictures of flowers are not drawn: .*KeyError: 0"):
        call("run", "./mine.py:flowers", "--quiet")


def test_pictures_need_not_be(changed, call):
    changed(("def picture_empty(", "def unused("))
    assert "(network.png, learning-curve.png)" in call("run", "./mine.py:flowers")[1]
    for recipe in ("average", "double"):
        code, out, _ = call("run", f"./mine.py:{recipe}")
        assert (code, "pictures: none\n" in out) == (0, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", r"\./mine\.py line 1: '\(' was never closed"),
        ("import nothing_at_all\n", r"\./mine\.py line 1 cannot be imported: ModuleNotFound.*"),
        ("x = 1\n", r"\./mine\.py must end in RECIPES = .*"),
        ("RECIPES = [1]\n", r"\./mine\.py must end in RECIPES = .*"),
        ("RECIPES = {'a': int}\n", r"\./mine\.py: the recipe a must be a Recipe, not the class; "
         r"write int\(\)"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_recipe(refused, text, message):
    Path("mine.py").write_text(text)
    assert re.fullmatch(message, refused("run", "./mine.py"))
