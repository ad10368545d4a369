"""Settings as values: how a text, or a value from Python or JSON, becomes one of its type.

A type of its own may say how: `from_text`, `from_json` (which raise ValueError) and, in words for
a message, `written_as`.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown


def _type_name(kind: Any) -> str:  # noqa: ANN401 -- a type hint
    if typing.get_origin(kind) is tuple:
        inner = [a for a in typing.get_args(kind) if a is not Ellipsis]
        return f"{_type_name(inner[0]).removeprefix('a ')}s separated by commas"
    names = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        Path: "a path",
    }
    return names.get(kind, "") or str(getattr(kind, "written_as", kind))


def _convert_one(text: str, kind: Any) -> Any:  # noqa: ANN401 -- a type hint
    if kind is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
            text.lower()
        ]
    if kind is float and not math.isfinite(float(text)):
        raise ValueError(text)
    if hasattr(kind, "from_text"):
        return kind.from_text(text)
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
        raise UserError(f"{name} ({shown(text)}) must be {_type_name(kind)}") from None


def typed(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 -- a case a type
    """The value of a setting, or that which a text says, in its type.

    As on the command line one value may stand for a tuple of one.
    """
    if isinstance(value, str) and kind is not str:
        value = convert(name, value, kind)
    if isinstance(value, list) or getattr(value, "ndim", 0) == 1:
        value = tuple(value)
    if typing.get_origin(kind) is tuple and not isinstance(value, tuple):
        value = (value,) if _is_plain(value) else value
    return _checked(name, value, kind)


def _is_plain(value: object) -> bool:
    """Whether a value is one number, truth value or path, such as can stand in a tuple."""
    single = getattr(value, "shape", None) == ()  # a scalar of numpy or torch
    return single or isinstance(value, bool | int | float | Path)


def typed_all(given: Mapping[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values of settings, each in its type."""
    return {name: typed(name, value, kinds[name]) for name, value in given.items()}


def _checked(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 -- a case a type
    """The value, if it is of its type; a whole number may stand for a number."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a scalar of numpy or torch
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
    elif kind in (str, Path) and isinstance(value, str | Path):
        return kind(value)
    elif hasattr(kind, "from_json") and isinstance(value, dict | kind):
        with suppress(ValueError):
            return value if isinstance(value, kind) else kind.from_json(value)
    elif kind is int and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{name} ({shown(value, 40)}) must fit into 64 bits; choose a smaller one")
    elif kind in (int, float) and isinstance(value, kind):
        return kind(value)  # also of what is derived from it, such as numpy's float64
    raise UserError(f"{name} ({shown(value)}) must be {_type_name(kind)}")


# ------------------------------------------------------------------------- settings of a verb


def verb_settings(method: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The keyword-only parameters of `predict`, `sample` or `final`: type and default of each."""
    hints = typing.get_type_hints(method, include_extras=True)
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
    return typed_all(given, {name: kind for name, (kind, _) in known.items()})
