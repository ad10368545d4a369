"""The JSON files of a run folder: what they say of the recipe and of the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from everynet.data.paths import absolute
from everynet.recipes.recipe import Recipe
from everynet.recipes.settings import override, settings
from everynet.recipes.sweep import Sweep
from everynet.recipes.trained import Trained
from everynet.runs.card import FORMAT
from everynet.system.errors import UserError
from everynet.system.manifest import read_json
from everynet.training.device import PRECISIONS, Setup, choose


def resolved(recipe: Recipe) -> Recipe:
    """The recipe with what each run it was given holds now, and with absolute paths."""
    held: dict[str, Any] = {}
    for name, value in settings(recipe).items():
        if isinstance(value, Trained) and value:
            held[name] = value.resolved(name)
        elif isinstance(value, Path) and value != Path():
            held[name] = value.absolute()
        elif isinstance(value, str) and name in recipe.sources:
            held[name] = absolute(value)
    if isinstance(recipe, Sweep):
        held["base"] = resolved(recipe.base)
    return replace(recipe, **held)


@contextmanager
def as_typed(typed: Recipe, recipe: Recipe) -> Iterator[None]:
    """What is wrong with a path is said of it as the user wrote it."""
    try:
        yield
    except UserError as error:
        said = str(error)
        for name, value in _written(typed).items():
            whole = _written(recipe)[name]
            both = zip([whole, *whole.split(",")], [value, *value.split(",")], strict=False)
            for full, mine in both:
                said = said.replace(full, str(Path(mine))) if full != mine else said
        error.args = (said,)
        raise


def _written(recipe: Recipe) -> dict[str, str]:
    """Settings that are paths, or may be, as text."""
    if isinstance(recipe, Sweep):
        return _written(recipe.base)
    return {
        name: str(value)
        for name, value in settings(recipe).items()
        if isinstance(value, Path | Trained) or name in recipe.sources
    }


def with_data(recipe: Recipe, data: str) -> Recipe:
    """The recipe with other data, or the same in another place; of a sweep in all of its cells."""
    if isinstance(recipe, Sweep):
        base = override(recipe.base, {"data": data})
        return replace(recipe, base=base)  # type: ignore[arg-type]  # of the class it was
    return override(recipe, {"data": data})


def what(recipe: Recipe, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as recipe.json has them, but for where data, files and runs are.

    What these hold is noted by its SHA-256 in spec.json, and compared there.
    """
    mine = settings(recipe)
    places = {n for n, v in mine.items() if isinstance(v, Path) or n in recipe.sources}
    kept = {name: value for name, value in stored.items() if name not in places}
    return {n: v.get("sha256") if isinstance(v, dict) else v for n, v in kept.items()}


def read_environment(folder: Path) -> dict[str, Any]:
    """environment.json of a run folder, if the folder has the form that is written today."""
    where = read_json(folder / "environment.json")
    if where.get("format") != FORMAT:
        raise UserError(
            f"{folder} was made by everynet {where.get('everynet', 'of another version')}, whose "
            "run folders have another form: run it again, or use that version"
        )
    for name, wanted, fits in _ENVIRONMENT:
        if not fits(where.get(name)):
            raise UserError(
                f"{folder / 'environment.json'} is damaged: {name} ({where.get(name)!r:.40}) must "
                f"be {wanted}"
            )
    return where


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


_ENVIRONMENT: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("threads", "a whole number from 1 to 4,096", lambda value: _is_count(value, 4_096)),
    ("processes", "a whole number from 1 to 65,536", lambda value: _is_count(value, 65_536)),
    ("precision", f"one of {', '.join(PRECISIONS)}", lambda value: value in PRECISIONS),
    ("compile", "true or false", lambda value: isinstance(value, bool)),
    ("versions", "an object", lambda value: isinstance(value, dict)),
    *((n, "text", _is_text) for n in ("everynet", "python", "device", "device_name", "begun")),
)
"""What each part of environment.json that is used must be."""


def read_spec(folder: Path) -> dict[str, Any]:
    """spec.json of a run folder: what the data is, and all that was read."""
    path = folder / "spec.json"
    known = read_json(path)
    match known:
        case {"spec": dict(), "digest": str(), "read": list(read)} if all(map(_is_source, read)):
            return known
    raise UserError(f"{path} is damaged: it must hold spec, digest and read")


def _is_source(entry: object) -> bool:
    match entry:
        case {"name": str(), "sha256": str()}:
            return True
    return False


def setup_of(folder: Path) -> Setup:
    """How a run was computed, so that it goes on with the same bits."""
    where = read_environment(folder)
    setup = choose(where["device"], where["precision"], where["compile"])
    return replace(setup, threads=where["threads"])


def as_json(value: object) -> bytes:
    """The bytes of a JSON file of a run folder."""
    return json.dumps(value, indent=1, allow_nan=False, default=os.fspath).encode() + b"\n"
