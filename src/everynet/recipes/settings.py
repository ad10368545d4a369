"""The settings of a recipe: their types and meanings, and how text becomes a value."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from everynet.data.dataset import UserError, nearest
from everynet.recipes.recipe import Recipe
from everynet.recipes.run_names import run_folder
from everynet.recipes.synonyms import OPTIONS, SETTINGS, meant
from everynet.recipes.trained import Trained
from everynet.system.wording import shown, with_article, written


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


def _type_name(kind: Any) -> str:  # noqa: ANN401 -- a type hint
    if typing.get_origin(kind) is tuple:
        inner = [a for a in typing.get_args(kind) if a is not Ellipsis]
        return f"{_type_name(inner[0])}s separated by commas"
    names = {
        Trained: "a run folder or file",
        int: "whole number",
        float: "number",
        bool: "true or false",
        str: "text",
        Path: "path",
    }
    return names.get(kind, str(kind))


def _convert_one(text: str, kind: Any) -> Any:  # noqa: ANN401 -- a type hint
    if kind is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
            text.lower()
        ]
    if kind is float and not math.isfinite(float(text)):
        raise ValueError(text)
    if kind is Trained and text:
        return Trained(str(run_folder(text)))
    return kind(text)


def convert(name: str, text: str, kind: Any) -> Any:  # noqa: ANN401 -- a type hint
    """The value of setting `name` written as `text`, in the type its recipe declares."""
    try:
        if typing.get_origin(kind) is not tuple:
            return _convert_one(text, kind)
        inner = typing.get_args(kind)
        parts = text.strip("()").strip().removesuffix(",").split(",") if text.strip("() ") else []
        if Ellipsis not in inner and len(parts) != len(inner):
            raise ValueError(text)
        kinds: Iterator[Any] = iter(inner if Ellipsis not in inner else inner[:1] * len(parts))
        return tuple(_convert_one(part.strip(), next(kinds)) for part in parts)
    except UserError as error:  # letters that several runs end in
        raise UserError(f"{name}: {error}") from None
    except (ValueError, KeyError):
        raise UserError(f"{name} ({text}) must be {_type_name(kind)}") from None


def override(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """The recipe with some settings replaced; text is converted to the setting's type."""
    kinds = setting_types(recipe)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in kinds:
            raise UserError(_unknown(recipe, name, value))
        values[name] = typed(name, value, kinds[name])
    changed = {n for n, v in values.items() if n != "seed" and v != getattr(recipe, n)}
    order = tuple(name for name in kinds if name in changed | set(recipe.changed))
    return replace(recipe, **values, changed=order)


def _unknown(recipe: Recipe, name: str, value: object) -> str:
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


def _checked(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 -- a case a type
    """The value, if it is of its type; a whole number may stand for a number."""
    if typing.get_origin(kind) is tuple and isinstance(value, tuple):
        inner = typing.get_args(kind)
        kinds = inner[:1] * len(value) if Ellipsis in inner else inner
        if len(value) == len(kinds):
            return tuple(_checked(name, *pair) for pair in zip(value, kinds, strict=True))
    elif isinstance(value, bool) or kind is bool:
        if isinstance(value, bool) and kind is bool:
            return value
    elif kind is float and isinstance(value, int):
        return convert(name, str(value), float)
    elif kind is Path and isinstance(value, str | Path):
        return Path(value)
    elif kind is Trained:
        return _trained(name, value)
    elif kind is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{name} ({shown(value, 40)}) must fit into 64 bits; choose a smaller one")
    elif kind in (int, float, str) and isinstance(value, kind):
        return kind(value)  # also of what is derived from it, such as numpy's float64
    raise UserError(f"{name} ({value}) must be {_type_name(kind)}")


def _trained(name: str, value: Any) -> Trained:  # noqa: ANN401 -- checked here
    """A run that is given, as it is or as recipe.json has it."""
    if isinstance(value, dict):
        parts = [value.get(key) for key in ("path", "sha256", "recipe")]
        if all(isinstance(part, str) for part in parts):
            return Trained(*map(str, parts))
    if not isinstance(value, Trained):
        raise UserError(f"{name} ({value}) must be {_type_name(Trained)}")
    return value


# ------------------------------------------------------------------------- settings of a verb


def verb_settings(method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The keyword-only parameters of `predict` or `sample`: type and default of each."""
    hints = typing.get_type_hints(method)
    return {
        name: (hints.get(name, str), parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def verb_arguments(method: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a verb, text among them, in the types of its signature."""
    known = verb_settings(method)
    for name in given:
        if name not in known:
            verb = method.__name__
            raise UserError(
                f"{verb} has no setting {name}" + (nearest(name, known) or "; it takes none")
            )
    return {name: typed(name, value, known[name][0]) for name, value in given.items()}


def typed(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 -- a case a type
    """The value of a setting, or that which a text says, in its type."""
    if isinstance(value, str) and kind is not str:
        value = convert(name, value, kind)
    return _checked(name, tuple(value) if isinstance(value, list) else value, kind)
