"""What every recipe of the zoo promises, swept by kind: a new recipe is tested the day it is there.

Nothing here names a network. A recipe shows itself through `tiny()`, which must be small and must
not need a download.
"""

import inspect
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import everynet
from everynet import checkpoint, runs
from everynet.catalog import entries, find
from everynet.device import choose
from everynet.recipes import Fitting, Goal, Simulation, Training, minimised, telling
from everynet.samplers import Made
from everynet.settings import override, setting_docs, settings
from everynet.trainer import begin, evaluate, train
from everynet.types import Data
from everynet.words import written

ALL = {entry.name: entry for entry in entries()[0]}
KINDS = {kind: [n for n, e in ALL.items() if e.kind == kind] for kind in
         ("training", "fitting", "simulation")}  # fmt: skip
NUMBER = re.compile(r"\((\d+)\)")


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch):
    """tiny() must not need any."""
    monkeypatch.delenv("EVERYNET_DATA", raising=False)


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
def test_each_caption_is_one_sentence_of_plain_words(name):
    for picture, caption in find(name).captions.items():
        assert re.fullmatch(r"[^.!?]([^.!?]|[.]\d)*[.]", caption), picture
        assert 40 <= len(caption) <= 240, picture
        assert not re.search(r"[]\\|*_<>$`[]", caption), (
            f"{picture}: it stands in Markdown as it is"
        )


def check_captions(recipe, drawn):
    """Two or three telling pictures of a run; what else has a caption can be drawn by the class."""
    shown = telling(recipe, drawn)
    assert len(shown) >= min(2, len(drawn - {"learning-curve"})), "pictures and what to see in them"
    modules = {inspect.getmodule(cls) for cls in type(recipe).mro()[:-1]}
    text = "".join(map(inspect.getsource, modules))
    for picture in recipe.captions.keys() - drawn:  # for other data: named where it is drawn, too
        assert text.count(f'"{picture}"') >= 2, picture
    return shown


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


def begun(recipe, seed=None, precision="fp32"):
    setup = choose("cpu", precision)
    data = recipe.dataset().to(setup.device, setup.dtype)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
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


@pytest.mark.parametrize("name", KINDS["training"])
def test_same_seed_same_bits_and_another_seed_others(name):
    recipe = tiny(name)
    runs = []
    for seed in (recipe.seed, recipe.seed, recipe.seed + 1):
        data, state, setup = begun(replace(recipe, seed=seed))
        terms = [r.terms for r in train(replace(recipe, seed=seed), state, data, setup=setup)]
        assert all(v.isfinite().all() for t in terms for v in t.values())
        runs.append((terms, bits(state)))
    (first, bits_first), (again, bits_again), (other, _) = runs
    equal(bits_first, bits_again)
    assert [{k: v.item() for k, v in t.items()} for t in first] == [
        {k: v.item() for k, v in t.items()} for t in again
    ]
    assert first != other


@pytest.mark.parametrize("name", KINDS["training"])
def test_only_what_an_optimiser_was_given_is_trained(name):
    recipe = tiny(name)
    data, state, setup = begun(recipe)
    given = {id(p) for o in state.optimizers.values() for g in o.param_groups for p in g["params"]}
    before = {n: p.detach().clone() for n, p in state.model.named_parameters()}
    for _ in train(recipe, state, data, setup=setup):
        pass
    for n, p in state.model.named_parameters():
        assert torch.equal(p, before[n]) != (id(p) in given), n


@pytest.mark.parametrize("name", KINDS["training"])
def test_learns_one_repeated_batch(name):
    recipe = tiny(name)
    if not recipe.overfits:
        return
    recipe = replace(recipe, steps=30, schedule="constant")
    data, state, setup = begun(recipe)
    batch = data.train(0)
    once = replace(data, sampler=Made(make=lambda _step: batch), augment=None)
    goal = recipe.judge()
    before = evaluate(recipe, recipe.deployed(state), [batch], setup)
    first = last = None
    for record in train(recipe, state, once, setup=setup):
        last = minimised(record.terms).item()
        first = last if first is None else first
    after = evaluate(recipe, recipe.deployed(state), [batch], setup)
    better = goal.merit(after) > goal.merit(before)
    assert better or (goal.merit(after) == goal.merit(before) and last < first)


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


@pytest.mark.parametrize("name", KINDS["training"])
def test_stop_and_resume_into_another_seed_is_bit_equal(name, tmp_path):
    recipe = tiny(name)
    assert recipe.steps >= 2
    data, whole, setup = begun(recipe)
    for record in train(recipe, whole, data, setup=setup):
        if record.step == recipe.steps // 2:
            path = tmp_path / str(record.step)
            checkpoint.save(path, whole, recipe.deployed(whole), checkpoint.Best())
    _, half, _ = begun(recipe, seed=recipe.seed + 7)
    checkpoint.restore(path, half, recipe.deployed(half))
    for _ in train(recipe, half, data, setup=setup):
        pass
    equal(bits(half), bits(whole))


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


@pytest.mark.parametrize("name", ALL)
def test_runs_draws_and_loads(name, tmp_path):
    """The whole life of a run: folder, pictures, card, load without data, draw again."""
    recipe = tiny(name)
    result = runs.run(recipe, tmp_path, device="cpu")
    assert {goal.metric for goal in recipe.goals()} <= result.metrics.keys()
    drawn = {path.stem for path in result.pictures}
    assert drawn - {"learning-curve"}, "a picture that shows how the network works"
    for path in result.pictures:
        assert path.read_bytes().startswith(b"\x89PNG")
    page = (result.folder / "card.md").read_text()
    assert f"everynet run {name}" in page
    for picture, caption in check_captions(recipe, drawn).items():
        assert f"![{caption}](pictures/{picture}.png)\n\n*{caption}*\n" in page
    loaded = runs.load(recipe, result.folder)
    if isinstance(recipe, Training):
        assert isinstance(loaded, nn.Module)
        assert not loaded.training
    shutil.rmtree(result.folder / "pictures")
    assert {path.stem for path in runs.draw(recipe, result.folder)} == drawn


@pytest.mark.parametrize("name", KINDS["fitting"])
def test_a_fitted_estimator_comes_back_the_same(name, tmp_path):
    recipe = tiny(name)
    assert isinstance(recipe, Fitting)
    result = runs.run(recipe, tmp_path, device="cpu")
    data = recipe.dataset().to(torch.device("cpu"), torch.float64)
    setup = choose("cpu", "fp64")
    assert evaluate(recipe, runs.load(recipe, result.folder), data.test, setup) == result.metrics


@pytest.mark.parametrize("name", KINDS["simulation"])
def test_a_simulation_is_a_function_of_its_seed(name):
    recipe = tiny(name)
    assert isinstance(recipe, Simulation)
    results = [recipe.simulate(torch.Generator().manual_seed(recipe.seed)) for _ in range(2)]
    equal(*results)
    assert {goal.metric for goal in recipe.goals()} <= recipe.metrics(results[0]).keys()
    assert all(isinstance(f, Figure) for f in recipe.pictures(results[0]).values())


@pytest.mark.parametrize("name", KINDS["training"] + KINDS["fitting"])
def test_the_model_is_built_from_the_description_alone(name):
    recipe = tiny(name)
    recipe.model(Data.described(recipe.dataset().spec))
