"""The settings of a recipe: their types and meanings, and how text becomes a value."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from everynet.recipes.catalog import find
from everynet.recipes.recipe import Recipe
from everynet.recipes.synonyms import OPTIONS, SETTINGS, meant
from everynet.recipes.trained import Trained
from everynet.system.errors import UserError
from everynet.system.values import typed_all
from everynet.system.wording import nearest, shown, with_article, written


def setting_types(recipe: Recipe | type[Recipe]) -> dict[str, Any]:
    """The settings of a recipe with their types, in the order they were declared."""
    cls = recipe if isinstance(recipe, type) else type(recipe)
    hints = typing.get_type_hints(cls)
    # A class may say `goal: str = "..."` of its own: what is a fact of Recipe stays one.
    facts = {f.name for f in (*fields(Recipe), *fields(cls)) if not f.metadata.get("setting", True)}
    return {f.name: hints[f.name] for f in fields(cls) if f.name not in facts}


def came_later(recipe: Recipe) -> set[str]:
    """The settings that older run folders lack."""
    return {f.name for f in fields(recipe) if f.metadata.get("later", False)}


def settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe with their values."""
    return {name: getattr(recipe, name) for name in setting_types(recipe)}


def plain_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe as recipe.json holds them."""
    return {n: v.plain if isinstance(v, Trained) else v for n, v in settings(recipe).items()}


def setting_docs(recipe: Recipe) -> dict[str, str]:
    """The docstring line under each field, over all base classes."""
    docs: dict[str, str] = {}
    for cls in reversed(type(recipe).__mro__):
        if cls is object or not issubclass(cls, Recipe):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, after in zip(body.body, body.body[1:], strict=False):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = " ".join(text.split())
    return {name: docs.get(name, "") for name in setting_types(recipe)}


def override(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """The recipe with some settings replaced; text is converted to the setting's type."""
    values = typed_settings(recipe, given)
    explicit = {*recipe.explicit, *values} - {"seed"}
    same = {"seed"} | {f.name for f in fields(recipe) if not f.metadata.get("learns", True)}
    differ = {n for n in values if n not in same and values[n] != getattr(recipe, n)}
    changed = {*recipe.changed, *differ}
    known = setting_types(recipe)  # in the order of fields
    facts: dict[str, Any] = {
        "explicit": tuple(n for n in known if n in explicit),
        "changed": tuple(n for n in known if n in changed),
    }
    return replace(recipe, **values, **facts)


def typed_settings(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, text among them, in the types that a recipe declares; it must have them all."""
    kinds = setting_types(recipe)
    for name, value in given.items():
        if name not in kinds:
            raise UserError(unknown_setting(recipe, name, value))
    return typed_all(given, kinds)


def recipe(name: str, **fields: object) -> Recipe:
    """The recipe of that name, with some settings replaced."""
    found = find(name)
    known = setting_types(found)
    in_memory = "data" in known and not isinstance(fields.get("data", ""), str | Path)
    epochs = "epochs" in fields and "epochs" not in known and found.kind == "training"
    if in_memory or epochs:
        what = "data" if in_memory else "epochs"
        raise UserError(
            f"{what} must be given where a run begins, because it is read there: "
            f"everynet.run({name!r}, {what}=...)"
        )
    return override(found, fields)


def unknown_setting(recipe: Recipe, name: str, value: object) -> str:
    """What to say of a setting that a recipe has not: the words that work, or the nearest."""
    own, kinds = recipe.name or type(recipe).__name__, setting_types(recipe)
    if name in OPTIONS:
        option = f"--{name}" if value in ("true", True) else f"--{name} {shown(value)}"
        return f"{name} is no setting of {own} but an option: write {option}"
    counts = ["epochs"] if recipe.kind == "training" else []
    if known := meant(name, [*kinds, *counts]):
        return f"{own} has no setting {name}; write {known}={shown(written(value))}"
    if recipe.kind not in ("", "training") and SETTINGS.get(name, name) == "epochs":
        what = with_article(recipe.kind)
        return f"{own} has no setting {name}, because it is {what}; it has {', '.join(kinds)}"
    return f"{own} has no setting {name}" + nearest(name, kinds)
