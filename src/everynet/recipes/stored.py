"""A recipe as recipe.json holds it, and back.

A folder does not choose code: it names a class of the zoo, or one of a file that the caller trusts,
and gives it settings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from everynet.recipes import catalog
from everynet.recipes.experiment import Experiment
from everynet.recipes.recipe import Goal, Recipe
from everynet.recipes.settings import (
    came_later,
    plain_settings,
    setting_types,
    typed_settings,
)
from everynet.recipes.sweep import Sweep
from everynet.recipes.training import Training
from everynet.system.errors import UserError
from everynet.system.manifest import read_json, read_json_files


def source_file(recipe: Recipe) -> str:
    """The file of a recipe that does not live in the zoo; empty for one that does."""
    cls = type(recipe.origin() if isinstance(recipe, Experiment) else recipe)
    return "" if cls.__module__.startswith("everynet.zoo.") else inspect.getfile(cls)


def describe_recipe(recipe: Recipe) -> dict[str, Any]:
    """What recipe.json holds; of a sweep, also the recipe that is swept."""
    base = {"base": describe_recipe(recipe.base)} if isinstance(recipe, Sweep) else {}
    return {
        "name": recipe.name,
        "class": type(recipe).__name__,
        "file": source_file(recipe),
        "goal": recipe.goal,
        "changed": list(recipe.changed),
        "explicit": list(recipe.explicit),
        "settings": plain_settings(recipe),
        **base,
    }


def of_run(folder: str | Path, file: str | Path | None = None) -> Recipe:
    """The recipe a run was made with, from its recipe.json; `file` as for `make_recipe`."""
    path = Path(folder)
    where = ["environment.json"] if (path / "environment.json").exists() else []
    stored = read_run_files(path, "recipe.json", *where)["recipe.json"]
    return make_recipe(stored, path / "recipe.json", file)


def read_run_files(folder: Path, *names: str) -> dict[str, dict[str, Any]]:
    """Files of JSON of a run folder, if it has the form of today."""
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}; `everynet runs` lists them")
    found = read_json_files(folder, names)
    if "environment.json" in found:
        check_format(found["environment.json"], folder)
    return found


def check_format(environment: Mapping[str, Any], folder: Path) -> None:
    """Refuse a run folder of another form than is written today."""
    if environment.get("format") == FORMAT:
        return
    by = f"{folder} was made by everynet {environment.get('everynet', 'of another version')}, whose"
    if environment.get("format") == FORMAT - 1:
        raise UserError(
            f"{by} names have changed since; rewrite it with python tools/rename_run.py {folder}"
        )
    raise UserError(f"{by} run folders have another form: run it again, or use that version")


def make_recipe(stored: Any, path: Path, file: str | Path | None = None) -> Recipe:  # noqa: ANN401 -- from JSON
    """The recipe that recipe.json describes.

    A folder does not choose code: it names a class of the zoo, or one of the `file` the caller
    trusts, and gives it settings.
    """
    check_stored(stored, path)
    trusted = None if file is None else str(file)
    if "base" not in stored:
        return _with_settings(_of_class(stored, trusted, path), stored, path)
    base = _with_settings(_of_class(stored["base"], trusted, path), stored["base"], path)
    if not isinstance(base, Training):
        raise UserError(f"{path} is damaged: {base.name} is no training, which alone is swept")
    return _with_settings(Sweep(base=base), stored, path)


def _with_settings(recipe: Recipe, stored: Mapping[str, Any], path: Path) -> Recipe:
    """A recipe with the name, goal and settings that recipe.json gives it."""
    known = {*stored["settings"], *came_later(recipe)}
    if missing := [name for name in setting_types(recipe) if name not in known]:
        raise UserError(
            f"{path} has no setting {missing[0]}, because it was changed or another version of "
            "everynet wrote it; run the recipe anew, or use that version"
        )
    facts = {"name": stored["name"], "goal": stored["goal"]}
    facts |= {name: tuple(stored.get(name, ())) for name in _NAMES}
    try:
        Goal.parse(stored["goal"])
        if not stored["settings"].keys() <= setting_types(recipe).keys():
            recipe = replace(recipe, name=stored["name"])  # for the message
        return replace(recipe, **typed_settings(recipe, stored["settings"]), **facts)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


FORMAT = 5
"""What a run folder looks like; a folder of another format is refused."""
_FORM = {"name": str, "class": str, "file": str, "settings": dict, "changed": list, "goal": str}
_NAMES = ("changed", "explicit")  # lists of settings; older folders lack the second


def read_stored(path: Path) -> dict[str, Any]:
    """What recipe.json holds, in the form it must have."""
    stored = read_json(path)
    check_stored(stored, path)
    return stored


def check_stored(stored: Mapping[str, Any], path: Path) -> None:
    """Refuse a recipe.json that has another form."""
    _check_form(stored, path)
    if "base" in stored:
        _check_form(stored["base"], path)


def _check_form(stored: Any, path: Path) -> None:  # noqa: ANN401 -- from JSON
    """Refuse a description of a recipe that has another form."""
    for name, kind in _FORM.items():
        if not isinstance(stored, dict) or not isinstance(stored.get(name), kind):
            raise UserError(f"{path} is damaged: {name} must be a {kind.__name__} in it")
    for key in _NAMES:
        names = stored.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path} is damaged: {key} must hold names of settings")
    if not re.fullmatch(r"[^\W_][^/\\\x00-\x1f\x7f]{0,99}", stored["name"]):
        raise UserError(f"{path} is damaged: name must be one that a file can have")


def _of_class(stored: Mapping[str, Any], file: str | None, path: Path) -> Recipe:
    """A recipe of the class that recipe.json names: that of its name, or another of the class."""
    module = _home(stored, path) if file is None else catalog.import_file(file)
    cls = getattr(module, stored["class"], None)
    if not isinstance(cls, type) or not issubclass(cls, Recipe):
        raise UserError(f"{path}: {stored['class']} is not a recipe of {module.__file__}")
    known = getattr(module, "RECIPES", {})
    for recipe in (known.get(stored["name"]), *known.values()):
        if type(recipe) is cls:
            return recipe
    try:
        return cls()
    except TypeError as error:
        raise UserError(f"{path}: {error}; give every setting of it a default") from error


def _home(stored: Mapping[str, Any], path: Path) -> ModuleType:
    """The module of the zoo that holds the class of a run."""
    name, cls = stored["name"], stored["class"]
    if stored["file"]:
        raise UserError(
            f"{path.parent} was made by {stored['file']}, which is not in the zoo; "
            "if you trust that file, name it with --file"
        )
    texts = catalog.sources()
    homes = [file for file, text in texts.items() if cls in text["classes"]]
    homes = [file for file in homes if name in texts[file]["recipes"]] or homes
    if len(homes) != 1:
        why = f"{len(homes)} files have it; name one with --file" if homes else "was it removed?"
        raise UserError(f"{path}: the class {cls} must be in one file of the zoo: {why}")
    return catalog.module_of(homes[0])
