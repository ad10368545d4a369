"""A recipe of one's own: a mistake in its file is told by file and line, before it is trained."""

import re
from pathlib import Path

import pytest

from everynet.runs.job import Job

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
         r"objective must return a dict of tensors by name, .*, not a Tensor"),
        ("flowers", "model(x), y)}", "model(x), y, reduction='none')}",
         r"objective must return a dict of scalar tensors .*, not {'cross_entropy': \[16\]}"),
        ("double", '"y >= 2"', '"z >= 2"', r"the goal \(z >= 2\) must name a .* double gives: y"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_line(changed, refused, case):
    recipe, old, new, message = case
    text = changed((old, new))
    line = refused("run", f"./mine.py:{recipe}", "--quiet")
    at = "def objective(" if message.startswith("objective") else new
    assert re.fullmatch(rf"\./mine\.py line {line_with(text, at)}: {message}", line), line
    assert "fault of ours" not in line


NETWORK = 'return nn.Linear(data.spec["shape"][0], len(data.spec["classes"]))'
ADDED = "    def picture_empty("
NUMBERS = r"a dict of numbers by name, such as .*"
TENSORS = r"a dict of tensors by name, such as .*"
NONE = r"not None; end it in a return"


def added(signature, body):
    """A replacement that puts one more method into the class Flowers."""
    return ADDED, f"    def {signature}:\n        {body}\n\n{ADDED}"


@pytest.mark.parametrize(
    "case",
    [
        ("flowers", (NETWORK, "pass"), "def model(",
         rf"model must return a torch.nn.Module, {NONE}"),
        ("flowers", (NETWORK, "return nn.Linear"), "def model(",
         r"model must return a torch.nn.Module, not the class Linear; write Linear\(...\)"),
        ("flowers", (NETWORK, "return nn.Flatten()"), "def model(",
         r"model must return a module with weights that take a gradient, because they are what is "
         r"learned, and this has none"),
        ("flowers", ("model(x), y", "model(x).detach(), y"), "def objective(",
         r"objective must return terms that depend on the weights of the model, because .*; leave "
         r"out detach\(\), .data and no_grad\(\)"),
        ("flowers", ('return {"cross', 'terms = {"cross'), "def objective(",
         rf"objective must return {TENSORS}, {NONE}"),
        ("flowers", ("(model(x), y)}", "(model(x), y).item()}"), "def objective(",
         rf"objective must return {TENSORS}, not {{'cross_entropy': 'float'}}"),
        ("flowers", added("metrics(self, model, batch)", "return {'error': 1.0}"), "def metrics(",
         rf"metrics must return {TENSORS}, not {{'error': 'float'}}"),
        ("flowers", ("return load(", "load("), "def dataset(",
         rf"dataset must return a Data, such as load\(...\) makes, {NONE}"),
        ("flowers", ("steps: int = 12", "steps: int = 12.5"), "steps: int",
         r"steps \(12.5\) must be a whole number"),
        ("flowers", added("suited(self, data)", "pass"), "def suited(",
         rf"suited must return a dict of settings by name, {NONE}"),
        ("flowers", added("summarise(self, outputs)", "return outputs"), "def summarise(",
         rf"summarise must return {NUMBERS}, not {{'cross_entropy': 'Tensor'}}"),
        ("flowers", added("optimizers(self, model)", "return torch.optim.SGD(model.parameters())"),
         "def optimizers(", r"optimizers must return a dict of torch optimisers .*, not a SGD"),
        ("flowers", added("step(self, state, batch)", "pass"), "def step(",
         rf"step must return a dict of scalar tensors by name, .*, {NONE}"),
        ("average", ("return Mean()", "Mean()"), "def model(self, data: Data) -> Mean",
         rf"model must return an estimator, {NONE}"),
        ("average", ("class Average(Fitting[Mean]):", "class Average(Fitting[Mean]):\n    def fit("
         "self, model, data):\n        model.fit(*data.whole)\n"), "def fit(self, model",
         rf"fit must return the estimator that it fitted, {NONE}"),
        ("average", ("model.mean_).abs()", "model.mean_).abs().mean().item()"),
         "def metrics(self, model: Mean",
         rf"metrics must return {TENSORS}, not {{'error': 'float'}}"),
        ("double", ("return {\"y\": torch", "y = {\"y\": torch"), "def simulate(",
         rf"simulate must return {TENSORS}, {NONE}"),
        ("double", ('result["y"].item()', 'result["y"]'), "def metrics(self, result",
         rf"metrics must return {NUMBERS}, not {{'y': 'Tensor'}}"),
    ],
)  # fmt: skip
def test_what_a_method_returns_wrongly_is_told_by_its_line(changed, refused, case):
    recipe, pair, at, message = case
    text = changed(pair)
    line = refused("run", f"./mine.py:{recipe}", "--quiet")
    assert re.fullmatch(rf"\./mine\.py line {line_with(text, at)}: {message}", line), line
    assert "internal error" not in line


def test_predictions_and_pictures_that_are_none(changed, call, refused):
    """One run, and its file changed afterwards."""
    changed(("steps: int = 12", "steps: int = 1"))
    assert call("run", "./mine.py:flowers", "--quiet")[0] == 0
    sides = [f"{part} {side} (cm)" for part in ("sepal", "petal") for side in ("length", "width")]
    Path("two.csv").write_text(f"{','.join(sides)}\n5,3,1,0.2\n6,3,4,1.2\n")
    answers = 'return name_classes(model(inputs).softmax(1), spec["classes"])'
    for returned, given in (
        ("return 'iris'", "a str"),
        ("return ['iris'] * len(inputs)", "a str"),
        ("pass", "None; end it in a return"),
        ("return [{'class': 'iris'}]", "1"),
    ):
        at = line_with(changed((answers, returned)), "def predict(")
        line = refused("predict", "latest", "two.csv", "--file", "mine.py")
        wanted = "predict must return a list of 2 dicts, one for each input, not "
        assert line == f"mine.py line {at}: {wanted}{given}"
    at = line_with(changed(("return Figure(figsize=(1, 1))", "return 3")), "def picture_empty(")
    line = refused("draw", "latest", "--file", "mine.py")
    wanted = "picture_empty must return a matplotlib Figure, or None, not an int"
    assert line == f"mine.py line {at}: {wanted}"


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


@pytest.mark.parametrize(
    ("update", "learns"),
    [
        ("state.descend(sum(terms.values()))", True),
        ("state.extra.seen += len(batch[0])", True),  # what is gathered before the first descent
        ("sum(terms.values()).backward()", False),
    ],
)
def test_a_step_that_changes_nothing_is_told_by_its_line(
    changed, call, monkeypatch, update, learns
):
    monkeypatch.setattr(Job, "draw", lambda self, model: ())
    own = f"""
    def extra(self, model):
        gathered = nn.Module()
        gathered.register_buffer("seen", torch.zeros(()))
        return gathered

    def step(self, state, batch):
        terms = self.objective(state.model, batch)
        {update}
        return {{name: term.detach() for name, term in terms.items()}}
"""
    text = changed((OBJECTIVE, OBJECTIVE + own))
    code, _, error = call("run", "./mine.py:flowers", "steps=5", "eval_every=2")
    said = f"./mine.py line {line_with(text, 'def step(')}: step has changed no weight in 2 updates"
    assert (code, said in error) == (0, not learns)
    assert error.count("changed no weight") == (not learns)
    (card,) = Path("runs").glob("*/card.md")
    assert ("step has changed no weight" in card.read_text()) == (not learns)


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
