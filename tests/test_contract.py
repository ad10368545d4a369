"""What every recipe of the zoo promises, swept by kind: a new recipe is tested the day it is there.

Nothing here names a network. A recipe shows itself through `tiny()`, which must be small and must
not need a download. A training and a run are made once for each recipe: checks share what they
left. Fixtures of the module have the recipes as parameters, so that pytest runs all checks of one
recipe in succession.
"""

import ast
import inspect
import math
import re
import shutil
import zlib
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partialmethod
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.data.samplers import Made
from everynet.metrics.meanings import MEANINGS, explain_metric
from everynet.recipes.catalog import entries, find
from everynet.recipes.experiment import Table
from everynet.recipes.recipe import Fitting, Goal
from everynet.recipes.settings import override, setting_docs, settings
from everynet.recipes.state import State
from everynet.recipes.training import Training, minimised
from everynet.runs import checkpoint, job, training_job
from everynet.runs import experiment_job as study
from everynet.runs.folder import read_spec
from everynet.system.wording import written
from everynet.training.device import Setup, choose
from everynet.training.loop import begin, evaluate, train
from tests.plot.legible import faults

ALL = {entry.name: entry for entry in entries()[0]}
KINDS = {kind: [n for n, e in ALL.items() if e.kind == kind] for kind in
         ("training", "fitting", "simulation", "experiment")}  # fmt: skip
NUMBER = re.compile(r"\((\d+)\)")
ANSWERED, UNPREDICTED = set(), (Training.predict, Fitting.predict)
TEXTS = ("labelled", "text", "lines", "pairs")
WITHOUT_PROBABILITY = ("perceptron", "svm", "svm-xor", "svm-mnist")
"""Classifiers that say on which side of a plane an input lies, and give the distance as score."""


@pytest.fixture(scope="module", autouse=True)
def no_real_data():
    """tiny() must not need any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EVERYNET_DATA", raising=False)
        yield


def tiny(name):
    return find(name).tiny()


def test_the_sweep_finds_every_kind():
    assert all(KINDS.values())
    assert sum(map(len, KINDS.values())) == len(ALL)


# ---------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize("name", ALL)
def test_says_goal_rows_and_settings(name):
    recipe = find(name)
    assert Goal.parse(recipe.goal), "a recipe states what it reaches"
    assert recipe.covers, "a recipe names the rows of the curriculum it shows"
    undocumented = [field for field, doc in setting_docs(recipe).items() if not doc]
    assert not undocumented, "each field has a docstring line under it"


@pytest.mark.parametrize("name", ALL)
def test_each_caption_is_one_or_two_sentences_of_plain_words(name):
    for picture, caption in find(name).picture_names().items():
        filled = re.sub(r"\{\w+(:[^}]*)?\}", "7", caption)
        assert re.fullmatch(r"([^.!?]([^.!?]|[.]\d)*[.]( |$)){1,3}", filled), picture
        assert 40 <= len(caption) <= 280, picture
        assert not re.search(r"[]\\|*<>$`[]", filled), f"{picture}: it stands in Markdown as it is"


@pytest.mark.parametrize("name", ALL)
def test_each_figure_is_explained_in_one_line_of_plain_words(name):
    recipe = find(name)
    for figure, said in recipe.meanings.items():
        assert re.fullmatch(r"[^.A-Z].{9,108}[^.]", said), f"{figure}: a phrase on one line"
        assert not re.search(r"[]\\|*<>$`[]", said), f"{figure}: it stands in Markdown as it is"
    assert all(explain_metric(recipe.meanings, goal.metric) for goal in recipe.goals())


def check_figures(recipe, printed, page):
    """Each figure is one that the recipe explains, and the card says so."""
    text = "".join(inspect.getsource(inspect.getmodule(cls)) for cls in type(recipe).mro()[:-1])
    for figure, value in printed.items():
        named = [like for like in recipe.meanings if fnmatchcase(figure, like)]
        assert named, f"{figure} has no sentence in the figures of {type(recipe).__name__}"
        assert f"| {figure} | {value:.6g} | {explain_metric(recipe.meanings, figure)} |" in page
    for like in (
        recipe.meanings.keys() - MEANINGS.keys()
    ):  # of other settings: named where it is made
        there = any(fnmatchcase(figure, like) for figure in printed)
        assert there or text.count(f'"{like}"') >= 2 or "*" in like, f"{like} is never printed"


def check_captions(recipe, drawn, captions):
    """Every picture that a recipe draws says what to see in it, with the numbers of this run."""
    own = drawn - {"learning-curve", "network"}
    assert captions.keys() >= own, "pictures without a caption"
    for picture, caption in captions.items():
        assert "{" not in caption, picture


ZOO = Path(everynet.__file__).parent
NUMBERED = [
    path.relative_to(ZOO).as_posix()
    for path in sorted([*ZOO.glob("zoo/*/*.py"), *ZOO.glob("nn/*.py")])
    if re.search(r"^ {4}.*\s{2,}\(1\)", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("file", sorted({entry.file for entry in ALL.values()} | set(NUMBERED)))
def test_equation_numbers_match_and_a_source_is_cited(file):
    module = import_module("everynet." + file.removesuffix(".py").replace("/", "."))
    source = inspect.getsource(module)
    doc = module.__doc__
    said = {int(n) for line in doc.splitlines() for n in re.findall(r"\s{2,}\((\d+)\)", line)}
    body = source.split('"""', 2)[2]
    shown = {int(n) for line in body.splitlines() for n in _cited(line)}
    assert said == shown, "numbered equations and the lines that compute them"
    assert said == set(range(1, len(said) + 1))
    assert re.search(r"\((1[89]|20)\d\d\)", doc), "author (year), title"
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            lines = source.splitlines()[function.lineno - 1 : function.end_lineno]
            assert not [*filter(_cited, lines)], "a tag marks a line that computes"


ENDS = "# -------- the network ends here; training and pictures follow --------"


@pytest.mark.parametrize("file", sorted({entry.file for entry in ALL.values()}))
def test_the_network_stands_above_its_recipe(file):
    """Whoever opens the file finds the network first; a line says where it ends."""
    source = (ZOO / file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    networks = [n.lineno for n in tree.body if isinstance(n, ast.ClassDef) and _is_network(n)]
    recipes = [n.lineno for n in tree.body if isinstance(n, ast.ClassDef) and _is_recipe(n)]
    if networks and recipes:
        assert source.count(ENDS) == 1
        line = source[: source.index(ENDS)].count("\n") + 1
        assert networks[0] < line < min(recipes)


def _is_network(cls):
    return any(ast.unparse(base) in ("nn.Module", "Module") for base in cls.bases)


def _is_recipe(cls):
    return any(
        ast.unparse(d).startswith("dataclass(frozen=True, kw_only") for d in cls.decorator_list
    )


def test_a_class_of_a_recipe_has_a_name_of_its_own():
    """recipe.json stores it."""
    homes = {}
    for path in sorted(ZOO.glob("zoo/*/*.py")):
        for cls in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(cls, ast.ClassDef) and _is_recipe(cls):
                homes.setdefault(cls.name, []).append(path.name)
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def _cited(line):
    """Numbers of the equations at the end of a line of code: `# (3)` or `# (1) (2)`."""
    comment = re.search(r"#\s*((?:\(\d+\)[ ,]*)+)", line)
    return NUMBER.findall(comment[1]) if comment else []


@pytest.mark.parametrize("name", ALL)
def test_every_setting_survives_the_command_line(name):
    recipe = find(name)
    given = {field: written(value) for field, value in settings(recipe).items()}
    assert settings(override(recipe, given)) == settings(recipe)
    assert override(recipe, given).changed == ()


# --------------------------------------------------------------------------------------- training


def begun(recipe, precision="fp32"):
    setup = choose("cpu", precision)
    data = recipe.dataset().to(setup.device, setup.dtype)
    return data, begin(recipe, data, setup), setup


def bits(state):
    parts = {
        **state.model.state_dict(),
        **{f"+{k}": v for k, v in state.extra.state_dict().items()},
    }
    return {name: value.clone() for name, value in parts.items()}


def equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def numbers(record):
    return {name: term.item() for name, term in record.terms.items()}


class Learned(NamedTuple):
    """A training from the first step to the last, and what there was on the way."""

    recipe: Training
    data: Data
    setup: Setup
    state: State
    before: dict[str, Tensor]
    """The parameters."""
    terms: list[dict[str, float]]
    half: Path
    """A checkpoint of the middle."""


@pytest.fixture(scope="module", params=KINDS["training"])
def learned(request, tmp_path_factory):
    recipe = tiny(request.param)
    data, state, setup = begun(recipe)
    before = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    terms, half = [], tmp_path_factory.mktemp(request.param) / str(recipe.steps // 2)
    for record in train(recipe, state, data, setup=setup):
        terms.append(numbers(record))
        if record.step == recipe.steps // 2:
            checkpoint.save(half, state, recipe.deployed(state), checkpoint.Best())
    yield Learned(recipe, data, setup, state, before, terms, half)
    shutil.rmtree(half.parent)


def test_same_seed_same_bits_and_another_seed_others(learned):
    recipe = learned.recipe
    assert all(math.isfinite(v) for terms in learned.terms for v in terms.values())
    data, state, setup = begun(recipe)
    assert [numbers(r) for r in train(recipe, state, data, setup=setup)] == learned.terms
    equal(bits(state), bits(learned.state))
    other = replace(recipe, seed=1 + zlib.crc32(recipe.name.encode()) % 100)  # any, each its own
    data, state, setup = begun(other)
    terms = [numbers(record) for record in train(other, state, data, setup=setup)]
    assert terms[0] != learned.terms[0]
    assert all(math.isfinite(v) for one in terms for v in one.values())


def test_only_what_an_optimiser_was_given_is_trained(learned):
    state = learned.state
    given = {id(p) for o in state.optimizers.values() for g in o.param_groups for p in g["params"]}
    for n, p in state.model.named_parameters():
        assert torch.equal(p, learned.before[n]) != (id(p) in given), n


def test_stop_and_resume_into_another_seed_is_bit_equal(learned):
    recipe = learned.recipe
    assert recipe.steps >= 2
    half = begin(replace(recipe, seed=recipe.seed + 7), learned.data, learned.setup)
    checkpoint.restore(learned.half, half, recipe.deployed(half))
    assert half.step == recipe.steps // 2
    rest = [numbers(r) for r in train(recipe, half, learned.data, setup=learned.setup)]
    assert rest == learned.terms[recipe.steps // 2 :]
    equal(bits(half), bits(learned.state))


def test_the_network_is_built_from_the_description_alone(learned):
    built = learned.recipe.model(Data.described(learned.data.spec)).state_dict()
    trained = learned.state.model.state_dict()
    assert {n: v.shape for n, v in built.items()} == {n: v.shape for n, v in trained.items()}


def test_learns_one_repeated_batch(learned):
    """A recipe that says `overfits = False` is seen in the report as skipped."""
    if not learned.recipe.overfits:
        pytest.skip("the recipe says that its metric does not improve on one repeated batch")
    recipe, data, setup = replace(learned.recipe, steps=30, schedule="constant"), *learned[1:3]
    state = begin(recipe, data, setup)
    batch = data.train(0)
    once = replace(data, sampler=Made(make=lambda _step: batch), augment=None)
    goal = recipe.monitor()
    before = evaluate(recipe, recipe.deployed(state), [batch], setup)
    losses = [minimised(r.terms).item() for r in train(recipe, state, once, setup=setup)]
    after = evaluate(recipe, recipe.deployed(state), [batch], setup)
    better = goal.merit(after) > goal.merit(before)
    assert better or (goal.merit(after) == goal.merit(before) and losses[-1] < losses[0])


@pytest.mark.parametrize("name", KINDS["training"])
def test_float64(name):
    recipe = tiny(name)
    data, state, setup = begun(recipe, precision="fp64")
    assert all(p.dtype == torch.float64 for p in state.model.parameters())
    record = next(train(recipe, state, data, setup=setup))
    assert all(v.dtype == torch.float64 for v in record.terms.values())


@pytest.mark.parametrize("name", KINDS["training"])
def test_half_precision(name):
    recipe = replace(tiny(name), steps=3)
    data, state, setup = begun(recipe, precision="bf16")
    for record in train(recipe, state, data, setup=setup):
        assert minimised(record.terms).isfinite()
    assert all(p.dtype == torch.float32 for p in state.model.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", KINDS["training"])
def test_cpu_and_gpu_agree(name):
    recipe = tiny(name)
    losses = []
    for device in ("cpu", "cuda"):
        setup = choose(device)
        data = recipe.dataset().to(setup.device, setup.dtype)
        state = begin(recipe, data, setup)
        record = next(train(recipe, state, data, setup=setup))
        losses.append(minimised(record.terms).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


# -------------------------------------------------------------------------------------- all kinds


class Lived(NamedTuple):
    """A run of a tiny recipe, and the model or the result that it ended with."""

    recipe: Any
    result: job.Result
    values: dict[str, Any]
    captions: dict[str, str]


@pytest.fixture(scope="module", params=ALL)
def lived(request, tmp_path_factory):
    """Its pictures are those that `everynet draw` makes of what was saved: drawn once, for both."""
    recipe, ended, draw, write = tiny(request.param), [], job.Job.draw, job.Job.write_pictures
    captions = {}

    def drawn_again(self, model):
        if ended:
            return draw(self, model)  # of what was loaded
        ended.append(model)
        drawn = runs.draw(recipe, self.folder)
        self.captions = captions
        return drawn

    def write_pictures(self, pictures):
        written = write(self, pictures)
        captions.update(self.captions)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", partialmethod(rendered, type(recipe)))
        patch.setattr(training_job, "learning_curve", lambda *_: Figure(figsize=(1, 1)))
        patch.setattr(job.Job, "draw", drawn_again)
        patch.setattr(job.Job, "write_pictures", write_pictures)
        result = runs.run(recipe, tmp_path_factory.mktemp(request.param), device="cpu")
        yield Lived(recipe, result, values_of(ended[0]), captions)
    shutil.rmtree(result.folder.parent)


def rendered(figure, cls, to, **_):
    """Draw in one pass, coarsely and without moving axes about: nobody looks at these.

    Of the recipes of a class the first shows that pictures of this form can be drawn.
    """
    assert not faults(figure), "6.5 inches wide at most, text of 7 points at least"
    form = (cls, *figure.get_size_inches(), *(axes.get_title() for axes in figure.axes))
    if form in FORMS:
        to.write(PNG)
        return
    FORMS.add(form)
    figure.set_dpi(30)
    figure.set_layout_engine("none")
    FigureCanvasAgg(figure).print_png(to)


FORMS, PNG = set(), b"\x89PNG"


def values_of(model):
    """What was learned or computed, by name."""
    if isinstance(model, Table):
        return table_values(model)
    if isinstance(model, nn.Module):
        return {name: value.clone() for name, value in model.state_dict().items()}
    known = model if isinstance(model, dict) else vars(model)
    return {n: v for n, v in known.items() if isinstance(model, dict) or n.endswith("_")}


def table_values(table):
    """All of a table by name, the weights of its networks too."""
    values = {f"result/{name}": value for name, value in table.result.items()}
    for name, cell in table.cells.items():
        values |= {
            f"{name}/diverged": -1 if cell.diverged is None else cell.diverged,
            f"{name}/step": cell.step,
            f"{name}/steps": cell.steps,
            **{f"{name}/measured/{n}": v for n, v in cell.measured.items()},
            **{f"{name}/valid/{n}": v for n, v in cell.valid.items()},
            **{f"{name}/term/{n}": torch.stack([*map(torch.Tensor.double, v)])
               for n, v in cell.terms.items()},
            **{f"{name}/test/{n}": v for n, v in cell.test.items()},
        }  # fmt: skip
        if cell.diverged is None:
            values |= {f"{name}/net/{n}": v for n, v in cell.network().state_dict().items()}
    return values


def same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            assert right[name] == value, name  # a vocabulary
            continue
        torch.testing.assert_close(
            right[name], value, rtol=0, atol=0, equal_nan=True, msg=lambda said, n=name: n + said
        )


def test_a_run_gives_figures_pictures_and_a_card(lived):
    recipe, result, _, captions = lived
    assert {goal.metric for goal in recipe.goals()} <= result.metrics.keys()
    shown = {p.stem for p in result.pictures}
    assert shown - {"learning-curve", "network"}, "one that shows how it works"
    for everyone in ("learning-curve", "network"):
        assert (everyone in shown) == (recipe.kind == "training")
    for path in result.pictures:
        assert path.read_bytes().startswith(PNG)
    page = (result.folder / "card.md").read_text()
    assert f"everynet run {recipe.name}" in page
    check_figures(recipe, result.metrics, page)
    check_captions(recipe, shown, captions)
    for picture, caption in captions.items():
        assert f"![{caption}](pictures/{picture}.png)\n\n*{caption}*\n" in page


def test_every_answer_of_a_classifier_names_the_probability_of_each_class(lived):
    """Each network that predicts one of its classes, on inputs that say nothing."""
    recipe, result, _, _ = lived
    if recipe.kind not in ("training", "fitting") or type(recipe).predict in UNPREDICTED:
        return
    trained = everynet.trained(result.folder)
    spec = trained.spec
    form = (type(recipe), len(spec["classes"]))
    if spec["task"] not in ("classification", "detection") or form in ANSWERED:
        return
    ANSWERED.add(form)
    if spec["kind"] in TEXTS:
        given = ["a good film", "nobody laughed"]
    else:
        given = torch.rand(3, *spec["shape"], generator=torch.Generator().manual_seed(0)).numpy()
        given = (given * spec.get("peak", 1)).round()
    for answer in trained.predict(given):
        if recipe.name in WITHOUT_PROBABILITY:
            assert answer.keys() >= {"class", "score"}
            continue
        p = answer["probabilities"]
        assert list(p) == spec["classes"]
        assert sum(p.values()) == pytest.approx(1, abs=1e-5)
        assert p[answer["class"]] == answer["probability"] == max(p.values())


def test_what_is_loaded_is_what_the_run_ended_with(lived):
    """Also without the data: and it gives the same figures on the test split."""
    recipe, result, values, _ = lived
    loaded = runs.load(recipe, result.folder)
    same(values, values_of(loaded))
    if recipe.kind == "experiment":  # and a cell of it is a run
        name, cell = next((n, c) for n, c in loaded.cells.items() if c.diverged is None)
        alone = everynet.load(result.folder / "cells" / name)
        same(dict(cell.network().state_dict()), dict(alone.state_dict()))
    if recipe.kind in ("simulation", "experiment"):  # some figures are seconds of a clock
        return
    if recipe.kind == "training":
        assert not loaded.training
    found = everynet.evaluate(result.folder, device="cpu")
    assert found == pytest.approx(result.metrics, rel=1e-6)  # images may lie otherwise in memory


def settings_of(estimator):
    """What it was made with, not what it learned."""
    return {name: value for name, value in vars(estimator).items() if not name.endswith("_")}


def test_a_simulation_is_a_function_of_its_seed_and_an_estimator_of_its_data(lived):
    """A training of its seed, see above; here torch's own generator has moved on meanwhile."""
    recipe, _, values, _ = lived
    if recipe.kind == "simulation":
        same(values, recipe.simulate(torch.Generator().manual_seed(recipe.seed)))
    elif recipe.kind == "fitting":
        data = recipe.dataset().to(torch.device("cpu"), torch.float64)
        described = recipe.model(Data.described(data.spec))
        assert settings_of(described) == settings_of(recipe.model(data))
        same(values, values_of(recipe.fit(described, data)))


def test_an_estimator_refuses_what_it_cannot_have_learned(lived):
    """A run folder may come from anyone: each value is checked before any is used."""
    recipe, result, values, _ = lived
    if recipe.kind != "fitting":
        return
    spec = read_spec(result.folder)["spec"]
    for name, value in values.items():
        model = runs.load(recipe, result.folder)
        for other in (None, torch.zeros(0), "x", [], [value], math.nan):
            setattr(model, name, other)
            with pytest.raises((ValueError, TypeError, AttributeError)):
                recipe.check_learned(model, spec)
        delattr(model, name)
        with pytest.raises((ValueError, AttributeError)):
            recipe.check_learned(model, spec)


class Killed(BaseException):
    """What ends a run here as a kill would."""


def test_an_experiment_that_was_broken_ends_with_the_same_table(lived, tmp_path, monkeypatch):
    """Between two cells: what is done is not repeated."""
    recipe, _, values, _ = lived
    if recipe.kind != "experiment":
        return
    trained, names, kill = [], [*recipe.cells()], study.train_cell

    def train_cell(experiment, name, cell, **given):
        if len(trained) == len(names) // 2:
            trained.append("")
            raise Killed
        trained.append(name)
        kill(experiment, name, cell, **given)

    monkeypatch.setattr(job.Job, "draw", lambda *_: ())
    monkeypatch.setattr(study, "train_cell", train_cell)
    with pytest.raises(Killed):
        runs.run(recipe, tmp_path, device="cpu")
    (folder,) = tmp_path.iterdir()
    runs.resume(recipe, folder)
    assert sorted(filter(None, trained)) == sorted(names)
    same(values, values_of(runs.load(recipe, folder)))
