"""The catalogue: what the text of the zoo says, the index, and recipes found by name or folder."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everynet
from everynet.recipes import catalog
from everynet.recipes.catalog import entries, find, find_outside, parse, sources
from everynet.recipes.settings import override, plain_settings, setting_types
from everynet.recipes.settings import settings as values_of
from everynet.recipes.stored import of_run
from everynet.system import cache
from everynet.system.errors import UserError
from tests.runs.sealed import reseal

ZOO_FILE = '''"""One network, and what it is for.

    y = x  (1)  identity

class Fake(Training): in a docstring
"""

import torch
from everynet.recipes.recipe import Recipe as Kind
from everynet.recipes.training import (
    Training,  # a comment, with a comma
)
from everynet.zoo.other.shared import Shared


class Net(nn.Module):
    """A network."""

    width: int = 3


class Plain:
    pass


@dataclass(frozen=True, kw_only=True)
class Task(
    Training[dict[str, Tensor], nn.Module],
    Mixin,
):
    """A task.

    note: this is prose
    """

    goal: str = fact(
        "error <= 1 "
        "and accuracy >= 0.5"
    )
    covers = ("F1", "F2")
    width: int = 3
    """Units."""
    betas: tuple[float, float] = (0.9, 0.99)
    meanings: ClassVar[Mapping[str, str]] = {
        "line": (
            "A line of "
            "y: x = 1 over x."
        ),
    }
    kinds: ClassVar[str] = "none"

    def model(self, data):
        inner: int = 4
        return Net()


class Dynamic(Task):
    goal: str = make_goal()


class Apart(zoo.Shared): pass


RECIPES = {
    "one": Task(width=4, lr=1e-2, goal="accuracy >= 0.9", covers=("M1",)),
    "two": shared.Task(),
}
'''


# ---------------------------------------------------------------------------------- text of a file


def test_a_file_says_what_it_is():
    source = parse(ZOO_FILE)
    assert source["summary"] == "One network, and what it is for."
    assert source["fault"] == ""
    assert source["recipes"] == {
        "one": {
            "class": "Task",
            "settings": {"width": "4", "lr": "0.01"},
            "goal": "accuracy >= 0.9",
            "covers": ("M1",),
        },
        "two": {"class": "shared.Task", "settings": {}},
    }
    assert source["imports"] == {
        "Kind": ["everynet.recipes.recipe", "Recipe"],
        "Training": ["everynet.recipes.training", "Training"],
        "Shared": ["everynet.zoo.other.shared", "Shared"],
    }


def test_classes_are_read_by_pattern():
    classes = parse(ZOO_FILE)["classes"]
    assert classes["Net"]["bases"] == ["nn.Module"]
    plain = {"summary": "", "bases": [], "fields": [], "defaults": {}, "facts": {}}
    assert classes["Plain"] == plain
    assert classes["Task"]["bases"] == ["Training", "Mixin"]
    assert classes["Task"]["fields"] == ["width", "betas"]
    assert classes["Task"]["facts"] == {
        "goal": "error <= 1 and accuracy >= 0.5",
        "covers": ("F1", "F2"),
    }
    assert classes["Dynamic"]["facts"] == {}
    assert classes["Apart"]["bases"] == ["zoo.Shared"]


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ('"""Short."""\n', "Short."),
        ('#!/usr/bin/env python\n# a word before\n\nr"""Raw line\nmore"""\n', "Raw line"),
        ('"""\nOn the next line.\n"""\n', "On the next line."),
        ("x = 1\n", ""),
        ("", ""),
    ],
)
def test_the_first_line_of_the_docstring(text, summary):
    assert parse(text)["summary"] == summary
    assert parse(text)["recipes"] == {}
    assert parse(text)["fault"] == ""


@pytest.mark.parametrize(
    ("foot", "line"),
    [
        ("RECIPES = {\n    'a': Task(1 2),\n}\n", 5),
        ("RECIPES = dict(a=Task())\n", 4),
        ("RECIPES = [Task()]\n", 4),
        ("RECIPES = {'a': Task}\n", 4),
        ("RECIPES = {name: Task()}\n", 4),
        ("RECIPES = {'a': Task(goal=GOAL)}\n", 4),
        ("RECIPES += 1\n", 4),
        ("RECIPES = {**others}\n", 4),
    ],
)
def test_recipes_that_cannot_be_read(foot, line):
    source = parse(f'"""Idea."""\n\n\n{foot}')
    assert source["recipes"] == {}
    assert source["fault"] == f"line {line}: RECIPES must be a dict of literal recipes"


# -------------------------------------------------------------------------------- a zoo of our own

FAMILY_FILE = '''"""A family file."""

from everynet.recipes.recipe import fact
from everynet.recipes.training import Training


@dataclass(frozen=True, kw_only=True)
class Shared(Training):
    goal: str = "shared >= 1"
    covers: tuple[str, ...] = ("F9",)
    depth: int = 2
'''
USER_FILE = '''"""A user of it."""

from everynet.zoo.a.family import Shared as Common
from everynet.recipes.recipe import Fitting, Simulation
from everynet.zoo.a import family


class Deeper(Common):
    goal = "deeper >= 1"
    width: int = 3


class Fit(Fitting[Net]):
    pass


class Simulate(Simulation):
    pass


class Dotted(family.Shared):
    goal_size: int = 3


class Odd(Unknown):
    pass


RECIPES = {
    "deeper": Deeper(),
    "given": Deeper(goal="given >= 1", covers=("F1",)),
    "fit": Fit(),
    "simulate": Simulate(),
    "dotted": Dotted(),
    "elsewhere": family.Shared(),
    "odd": Odd(),
}
'''


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A package of two families in which nothing is importable."""
    package = tmp_path / "everynet"
    for name, text in {"zoo/a/family.py": FAMILY_FILE, "zoo/b/user.py": USER_FILE}.items():
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text(text)
    (package / "zoo" / "b" / "__init__.py").write_text("RECIPES = broken\n")
    (package / "recipes").mkdir()
    for name in catalog.KINDS:
        shutil.copy(catalog.PACKAGE / name, package / name)
    monkeypatch.setattr(catalog, "PACKAGE", package)
    monkeypatch.setattr(catalog, "ZOO", package / "zoo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return package


def by_name():
    return {entry.name: entry for entry in entries()[0]}


def test_entries_follow_base_classes(zoo):
    found, faults = entries()
    assert faults == []
    names = ["deeper", "given", "fit", "simulate", "dotted", "elsewhere", "odd"]
    assert [entry.name for entry in found] == names
    deeper = found[0]
    assert deeper.family == "b"
    assert deeper.kind == "training"
    assert deeper.summary == "A user of it."
    assert deeper.goal == "deeper >= 1"
    assert deeper.covers == ("F9",)
    assert deeper.file == "zoo/b/user.py"
    assert deeper.cls == "Deeper"
    assert deeper.settings[:2] == ("seed", "steps")
    assert deeper.settings[-2:] == ("depth", "width")
    assert (by_name()["given"].goal, by_name()["given"].covers) == ("given >= 1", ("F1",))
    assert by_name()["fit"].kind == "fitting"
    assert by_name()["simulate"].kind == "simulation"
    dotted, elsewhere = by_name()["dotted"], by_name()["elsewhere"]
    assert (dotted.kind, dotted.goal, dotted.cls) == ("training", "shared >= 1", "Dotted")
    assert dotted.settings[-2:] == ("depth", "goal_size")
    assert (elsewhere.kind, elsewhere.cls) == ("training", "Shared")
    assert by_name()["odd"] == found[-1]
    assert (found[-1].kind, found[-1].goal, found[-1].settings) == ("", "", ())


def test_a_circle_of_classes_ends(zoo):
    (zoo / "zoo/b/user.py").write_text('class A(B): pass\nclass B(A): pass\nRECIPES = {"a": A()}\n')
    assert by_name()["a"].kind == ""


def test_files_that_cannot_be_read_are_named(zoo):
    (zoo / "zoo/b/broken.py").write_text('"""Idea."""\nRECIPES = {\n')
    (zoo / "zoo/b/latin.py").write_bytes(b'"""Caf\xe9."""\n')
    (zoo / "zoo/b/zwei.py").write_text('"""Idea."""\nRECIPES = {"fit": Fit()}\n')
    found, faults = entries()
    assert len(found) == 7
    assert faults == [
        "zoo/b/broken.py: line 2: RECIPES must be a dict of literal recipes",
        "zoo/b/latin.py: is not text in UTF-8",
        "zoo/b/zwei.py: the name fit is taken by zoo/b/user.py",
    ]


# -------------------------------------------------------------------------------------- the index


def index_name():
    return f"zoo-{catalog.zlib.crc32(str(catalog.PACKAGE).encode()):08x}.json"


def index_file():
    return cache.home() / index_name()


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that are read, not taken from the index."""
    names = []
    real = catalog._read

    def read(path):
        names.append(path.name)
        return real(path)

    monkeypatch.setattr(catalog, "_read", read)
    return names


def test_the_index_saves_reading(zoo, reads):
    first = sources()
    kinds = ["experiment.py", "recipe.py", "tabular.py", "training.py"]
    assert sorted(reads) == sorted([*kinds, "family.py", "user.py"])
    assert json.loads(index_file().read_text().splitlines()[1]).keys() == first.keys()
    reads.clear()
    stamp = index_file().stat().st_mtime_ns
    assert json.dumps(sources()) == json.dumps(first)
    assert reads == []
    assert index_file().stat().st_mtime_ns == stamp  # nothing new, nothing written
    assert list(cache.home().iterdir()) == [index_file()]


def test_only_what_changed_is_read_again(zoo, reads):
    sources()
    reads.clear()
    path = zoo / "zoo/b/user.py"
    path.write_text(path.read_text().replace("deeper >= 1", "deeper >= 2"))
    os.utime(path, ns=(1, 1))  # the same size, another time
    assert by_name()["deeper"].goal == "deeper >= 2"
    assert reads == ["user.py"]
    path.unlink()
    assert entries() == ([], [])
    assert reads == ["user.py"]
    assert "user.py" not in index_file().read_text()


def test_another_version_of_the_code_reads_all_again(zoo, reads, monkeypatch):
    sources()
    reads.clear()
    monkeypatch.setattr(catalog, "MAKER", [1, 2])
    sources()
    assert len(reads) == 6


def spoiled(content, how, where, byte):
    place = where % len(content)
    match how:
        case "cut":
            return content[:place]
        case "flip":
            return content[:place] + bytes([content[place] ^ (byte or 1)]) + content[place + 1 :]
        case "lose a line":
            return content.splitlines()[byte % 2]
    return bytes([byte]) * place


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["cut", "flip", "lose a line", "fill"]),
    st.integers(0, 10**6),
    st.integers(0, 255),
)
def test_a_broken_index_is_ignored(how, where, byte):
    real = entries()
    path = index_file()
    whole = path.read_bytes()
    path.write_bytes(spoiled(whole, how, where, byte))
    assert entries() == real
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"{}\n{}", b"[1]\n[1]", b"[" * 10**5, b"\xff\xfe\n\x00"])
def test_an_index_of_another_kind_is_ignored(zoo, content):
    real = entries()
    index_file().write_bytes(content)
    assert entries() == real


def test_a_cache_that_cannot_be_written_is_ignored(zoo, tmp_path, monkeypatch):
    real = entries()
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert entries() == real
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert entries() == real
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "folder"))
    (tmp_path / "folder" / "everynet" / index_name()).mkdir(parents=True)
    assert entries() == real


def test_without_xdg_the_cache_is_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.home() == tmp_path / ".cache" / "everynet"
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # empty counts as not set
    assert cache.home() == tmp_path / ".cache" / "everynet"


# ----------------------------------------------------------------------------------- the real zoo


def test_the_zoo_has_no_faults():
    found, faults = entries()
    assert faults == []
    assert {"lenet", "mlp", "perceptron", "gradient-descent"} <= {entry.name for entry in found}


@pytest.mark.parametrize("entry", entries()[0], ids=lambda entry: entry.name)
def test_the_text_says_what_python_says(entry):
    recipe = find(entry.name)
    assert recipe.name == entry.name
    assert type(recipe).__name__ == entry.cls
    assert recipe.kind == entry.kind
    assert recipe.goal == entry.goal
    assert recipe.covers == entry.covers
    assert set(entry.settings) == set(setting_types(recipe))
    module = sys.modules[type(recipe).__module__]
    assert (catalog.PACKAGE / entry.file).samefile(module.__file__)
    assert module.__doc__.strip().splitlines()[0] == entry.summary
    assert recipe == replace(module.RECIPES[entry.name], name=entry.name)


def test_finding_one_imports_no_other(tmp_path):
    program = (
        "import sys\nfrom everynet.recipes.catalog import find\nfind('perceptron')\n"
        "zoo = [m for m in sys.modules if m.startswith('everynet.zoo.') and m.count('.') == 3]\n"
        "print(*(m for m in zoo if not m.endswith('.pictures')))"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert ran.stdout.split() == ["everynet.zoo.feedforward.perceptron"]


def test_unknown_names_answer_with_the_nearest_three():
    with pytest.raises(UserError, match=r"^there is no recipe lenett; did you mean lenet, .* or "):
        find("lenett")


def test_everynet_recipe_is_find_and_override():
    assert everynet.recipe("mlp", lr=0.5) == override(find("mlp"), {"lr": 0.5})


# ----------------------------------------------------------------------------- outside the package

MINE = '''"""A recipe of my own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from everynet.recipes.recipe import Simulation


@dataclass(frozen=True, kw_only=True)
class Doubling(Simulation):
    """Doubles a number."""

    value: float = 1.0
    """What is doubled."""
    again: tuple[int, ...] = ()
    """Nothing."""

    def simulate(self, generator: torch.Generator) -> dict[str, Tensor]:
        return {"y": torch.tensor(2 * self.value)}

    def metrics(self, result: dict[str, Tensor]) -> dict[str, float]:
        return {"y": result["y"].item()}


class NoRecipe:
    pass


RECIPES = {"double": Doubling(goal="y >= 2")}
'''


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_file_outside(mine, monkeypatch):
    for name in (f"{mine}", f"{mine}:double"):
        recipe = find(name)
        assert recipe.name == "double"
        assert type(recipe).__name__ == "Doubling"
        assert override(recipe, {"value": "3"}).value == 3.0  # its annotations can be resolved
    monkeypatch.chdir(mine.parent)
    assert find("mine.py").name == "double"
    assert find("./mine.py:double").name == "double"


def test_a_file_outside_may_import_its_neighbours(mine):
    (mine.parent / "my_neighbour_of_mine.py").write_text("GOAL = 'y >= 7'\n")
    mine.write_text(
        "from my_neighbour_of_mine import GOAL\n"
        + MINE.split('"""', 2)[2]
        .replace("from __future__ import annotations\n", "")
        .replace('"y >= 2"', "GOAL")
    )
    assert find(str(mine)).goal == "y >= 7"


def test_a_changed_file_is_read_again(mine):
    assert find(str(mine)).goal == "y >= 2"
    mine.write_text(MINE.replace('"y >= 2"', '"y >= 2 and y <= 9"'))
    assert find(str(mine)).goal == "y >= 2 and y <= 9"


def test_a_file_with_two_recipes_wants_a_name(mine):
    mine.write_text(MINE + 'RECIPES["triple"] = Doubling()\n')
    assert find(f"{mine}:triple").name == "triple"
    with pytest.raises(UserError, match=r"mine.py holds 2 recipes; name one of double, triple$"):
        find(str(mine))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", r"mine.py line 1: '\(' was never closed$"),
        ("\n\ndef f(:\n", r"mine.py line 3: invalid syntax$"),
        ("x = 1\n", r'mine.py must end in RECIPES = \{"name": Recipe\(...\)\}$'),
        ("RECIPES = {}\n", r"mine.py must end in RECIPES"),
        ("RECIPES = [1]\n", r"mine.py must end in RECIPES"),
        ("RECIPES = {'a': 1}\n", r"mine.py: the recipe a must be a Recipe, not 1$"),
        ("import nothing_at_all\n", r"mine.py line 1 cannot be imported: ModuleNotFoundError: No"),
        ("\n1 / 0\n", r"mine.py line 2 cannot be imported: ZeroDivisionError: division by zero$"),
        ("raise SystemExit(3)\n", r"mine.py line 1 cannot be imported: SystemExit: 3$"),
        ("raise ValueError('a\\nb')\n", r"mine.py line 1 cannot be imported: ValueError: a b$"),
        (MINE.replace('goal="y >= 2"', "seed=-1"), r"mine.py line \d+ cannot be .*seed \(-1\)"),
        (b"x = '\xe9'\n", r"mine.py line \d+: .*utf-8"),
        (b"x = 1\n\ny = 1\0\n", r"mine.py line 3: source code cannot contain null bytes$"),
    ],
)
def test_a_file_that_is_no_recipe(mine, text, message):
    mine.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        find(str(mine))


def test_a_file_whose_neighbour_is_no_python(mine):
    """Which error it is differs between versions of Python; the line of the import does not."""
    (mine.parent / "my_broken_neighbour.py").write_bytes(b"x = 1\0\n")
    mine.write_text("\nimport my_broken_neighbour\n")
    with pytest.raises(UserError, match=r"mine.py line 2.*: .*null bytes$"):
        find(str(mine))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere.py", r"^there is no file ./nowhere.py$"),
        ("nowhere.py:a", r"^there is no file nowhere.py$"),
        ("./mine", r"^./mine must be a recipe or a Python file: NAME, FILE.py or FILE.py:NAME$"),
        ("a/b:c", r"^a/b:c must be a recipe or a Python file"),
        ("{mine}:doubel", r"mine.py has no recipe doubel; did you mean double\?$"),
    ],
)
def test_a_name_that_is_no_file(mine, name, message):
    with pytest.raises(UserError, match=message):
        find_outside(name.format(mine=mine))


# ------------------------------------------------------------------------ back from a run folder


def stored(recipe, **changes):
    """What a run writes of its recipe."""
    return {
        "name": recipe.name,
        "class": type(recipe).__name__,
        "file": "",
        "goal": recipe.goal,
        "changed": list(recipe.changed),
        "settings": plain_settings(recipe),
    } | changes


def write(folder, value):
    folder.mkdir(exist_ok=True)
    (folder / "recipe.json").write_text(value if isinstance(value, str) else json.dumps(value))
    return reseal(folder)


def test_a_recipe_comes_back_from_its_run(tmp_path):
    recipe = override(find("mlp-xor"), {"lr": 0.3, "hidden": "5,6", "seed": 9})
    assert of_run(write(tmp_path / "run", stored(recipe))) == replace(recipe, covers=recipe.covers)


def test_a_recipe_made_in_python_comes_back(tmp_path):
    cls = type(find("mlp-xor"))
    recipe = cls(name="supervised", steps=7, goal="loss <= 1")
    again = of_run(write(tmp_path / "run", stored(recipe)))
    assert values_of(again) == values_of(recipe)
    assert (again.name, again.goal, again.changed) == ("supervised", "loss <= 1", ())


def test_a_recipe_of_a_file_comes_back_if_the_file_is_named(tmp_path, mine):
    recipe = override(find(str(mine)), {"value": 4, "again": (1, 2)})
    folder = write(tmp_path / "run", stored(recipe, file=str(mine)))
    again = of_run(folder, mine)
    assert (again.value, again.again, again.changed) == (4, (1, 2), ("value", "again"))
    message = r"mine.py, which is not in the zoo; if you trust that file, name it with --file$"
    with pytest.raises(UserError, match=r"/run was made by .*" + message):
        of_run(folder)


def test_a_folder_does_not_choose_code(tmp_path):
    """Neither a path nor a dotted name in recipe.json is ever imported."""
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('code of the folder ran')\n")
    recipe = find("mlp")
    for changes in (
        {"file": str(trap)},
        {"file": "trap"},
        {"class": "trap.Task"},
        {"class": "os.system"},
        {"class": "everynet.recipes.catalog.Entry"},
        {"class": "Recipe"},
        {"class": "Training"},
        {"class": "MLP"},
        {"class": "ACTIVATIONS"},
        {"class": "__builtins__"},
        {"class": ""},
        {"name": str(trap), "class": "Task"},
        {"settings": {"__class__": "trap"}},
    ):
        with pytest.raises(UserError):
            of_run(write(tmp_path / "run", stored(recipe, **changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"class": "Gone"},
            "recipe.json: the class Gone must be in one file of the zoo: was it",
        ),
        ({"class": "MLP"}, "recipe.json: MLP is not a recipe of .*mlp.py$"),
        ({"name": 3}, "recipe.json is damaged: name must be a str in it$"),
        ({"class": None}, "recipe.json is damaged: class must be a str in it$"),
        ({"file": []}, "recipe.json is damaged: file must be a str in it$"),
        ({"settings": []}, "recipe.json is damaged: settings must be a dict in it$"),
        ({"changed": "lr"}, "recipe.json is damaged: changed must be a list in it$"),
        ({"changed": [1]}, "recipe.json is damaged: changed must hold names of settings$"),
        ({"explicit": "lr"}, "recipe.json is damaged: explicit must hold names of settings$"),
        ({"explicit": [1]}, "recipe.json is damaged: explicit must hold names of settings$"),
        ({"name": "../a"}, "recipe.json is damaged: name must be one that a file can have$"),
        ({"goal": 1}, "recipe.json is damaged: goal must be a str in it$"),
        ({"goal": "well"}, r"recipe.json: goal \(well\) must read like 'accuracy >= 0.97'$"),
        ({"goal": "a >= b"}, "recipe.json: could not convert string to float: 'b'$"),
    ],
)
def test_a_recipe_json_with_a_wrong_part(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        of_run(write(tmp_path / "run", stored(find("mlp"), **changes)))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("lr", None, r"recipe.json: lr \(None\) must be a number$"),
        ("lr", -1.0, r"recipe.json: lr \(-1.0\) must be a positive number$"),
        ("lr", float("nan"), r"recipe.json is damaged: it is not JSON \(NaN is no number\)$"),
        ("steps", "many", r"recipe.json: steps \(many\) must be a whole number$"),
        ("hidden", [[1]], r"recipe.json: hidden \(\[1\]\) must be a whole number$"),
        ("hidden", {"a": 1}, r"recipe.json: hidden \(.*\) must be whole numbers"),
        ("widht", 3, "recipe.json: mlp has no setting widht; did you mean "),
    ],
)
def test_a_recipe_json_with_a_wrong_setting(tmp_path, setting, value, message):
    recipe = find("mlp")
    changed = stored(recipe, settings=plain_settings(recipe) | {setting: value})
    with pytest.raises(UserError, match=message):
        of_run(write(tmp_path / "run", changed))


def test_a_recipe_json_without_a_setting(tmp_path):
    recipe = find("mlp")
    fewer = {name: value for name, value in plain_settings(recipe).items() if name != "lr"}
    message = r"recipe.json has no setting lr, because it was changed or another version of "
    with pytest.raises(
        UserError, match=message + "everynet wrote it; run the recipe anew, or use that version$"
    ):
        of_run(write(tmp_path / "run", stored(recipe, settings=fewer)))


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "nonsense", '{"a": 1}{', "\x00"])
def test_a_recipe_json_that_is_no_json(tmp_path, text):
    with pytest.raises(UserError, match=r"recipe.json is damaged: it is not JSON \("):
        of_run(write(tmp_path / "run", text))


@pytest.mark.parametrize("text", ["[]", "3", "null", '"text"'])
def test_a_recipe_json_of_another_kind(tmp_path, text):
    with pytest.raises(UserError, match=r"recipe.json is damaged: it must hold an object$"):
        of_run(write(tmp_path / "run", text))


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(UserError, match=r"^there is no run folder .*/none; `everynet runs` lists"):
        of_run(tmp_path / "none")
    with pytest.raises(UserError, match=r"is not a run folder: it has no recipe.json$"):
        of_run(tmp_path)
    (tmp_path / "recipe.json").mkdir()
    with pytest.raises(UserError, match=r"has no manifest.json, because another version of"):
        of_run(tmp_path)
    reseal(tmp_path)
    with pytest.raises(UserError, match=r"recipe.json must be a plain file, but is a folder"):
        of_run(tmp_path)


def test_two_files_with_one_class(zoo, tmp_path):
    (zoo / "zoo/b/again.py").write_text('class Fit(Fitting):\n    pass\n\nRECIPES = {"x": Fit()}\n')
    about = {
        "name": "fitted",
        "class": "Fit",
        "file": "",
        "settings": {},
        "changed": [],
        "goal": "",
    }
    with pytest.raises(
        UserError, match="Fit must be in one file of the zoo: 2 files have it; name"
    ):
        of_run(write(tmp_path / "run", about))


def test_of_two_files_with_one_class_the_name_decides(zoo, tmp_path, monkeypatch):
    (zoo / "zoo/b/again.py").write_text('class Fit(Fitting):\n    pass\n\nRECIPES = {"x": Fit()}\n')
    monkeypatch.setattr(catalog, "module_of", lambda file: pytest.fail(f"the module of {file}"))
    about = {"class": "Fit", "file": "", "settings": {}, "changed": [], "goal": ""}
    for name, file in (("fit", "user.py"), ("x", "again.py")):
        with pytest.raises(pytest.fail.Exception, match=f"the module of zoo/b/{file}"):
            of_run(write(tmp_path / "run", about | {"name": name}))


def test_a_class_that_cannot_be_made_without_settings(tmp_path, mine):
    without = MINE.replace("value: float = 1.0", "value: float").replace("RECIPES = ", "OTHERS = ")
    mine.write_text(without.replace("Doubling(goal", "Doubling(value=1.0, goal"))
    settings = {"seed": 0, "value": 2.0, "again": []}
    about = {"name": "d", "class": "Doubling", "file": "", "changed": [], "goal": ""}
    folder = write(tmp_path / "run", about | {"settings": settings})
    message = r"recipe.json: .*missing 1 required .* 'value'; give every setting of it a default$"
    with pytest.raises(UserError, match=message):
        of_run(folder, mine)


def test_load_gives_the_result_back(tmp_path, mine):
    from everynet.runs.verbs import run

    result = run(override(find(str(mine)), {"value": 4.0}), tmp_path / "runs")
    assert everynet.load(result.folder, mine)["y"].item() == 8
    with pytest.raises(UserError, match="which is not in the zoo"):
        everynet.load(result.folder)
