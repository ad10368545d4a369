"""The JSON files of a run folder: what they say of the recipe and of the machine."""

from __future__ import annotations

import inspect
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from everynet import files
from everynet.card import FORMAT
from everynet.device import Setup, choose
from everynet.experiments import Experiment
from everynet.recipes import Recipe
from everynet.settings import plain_settings, settings
from everynet.sweeps import Sweep
from everynet.types import UserError
from everynet.weights import Trained


def source_file(recipe: Recipe) -> str:
    """The file of a recipe that does not live in the zoo; empty for one that does."""
    cls = type(recipe.origin() if isinstance(recipe, Experiment) else recipe)
    return "" if cls.__module__.startswith("everynet.zoo.") else inspect.getfile(cls)


def described(recipe: Recipe) -> dict[str, Any]:
    """What recipe.json holds; of a sweep, also the recipe that is swept."""
    base = {"base": described(recipe.base)} if isinstance(recipe, Sweep) else {}
    return {
        "name": recipe.name,
        "class": type(recipe).__name__,
        "file": source_file(recipe),
        "goal": recipe.goal,
        "changed": list(recipe.changed),
        "settings": plain_settings(recipe),
        **base,
    }


def resolved(recipe: Recipe) -> Recipe:
    """The recipe with what each run it was given holds now."""
    given = {n: v for n, v in settings(recipe).items() if isinstance(v, Trained) and v}
    held: dict[str, Any] = {name: value.resolved(name) for name, value in given.items()}
    return replace(recipe, **held)


def read_environment(folder: Path) -> dict[str, Any]:
    """environment.json of a run folder, if the folder has the form that is written today."""
    where = read_json(folder / "environment.json")
    if where.get("format") != FORMAT:
        raise UserError(
            f"{folder} was made by everynet {where.get('everynet', 'of another version')}, whose "
            "run folders have another form: run it again, or use that version"
        )
    return where


def setup_of(folder: Path) -> Setup:
    """How a run was computed, so that it goes on with the same bits."""
    where = read_environment(folder)
    setup = choose(where["device"], where["precision"], where["compile"])
    return replace(setup, threads=where["threads"])


def as_json(value: object) -> bytes:
    """The bytes of a JSON file of a run folder."""
    return json.dumps(value, indent=1, allow_nan=False, default=os.fspath).encode() + b"\n"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder."""
    if not path.is_file():
        raise UserError(f"{path.parent} is not a run: it has no {path.name}")
    try:
        value = json.loads(files.read(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it must hold an object")
    return value
