"""Values as plain JSON and named tensors, and back: lists and dicts of numbers, text and arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from everynet.system.errors import UserError

VALUES = 512 << 20  # bytes of what an estimator learned, a simulation gave, an experiment measured


def encode(value: object, name: str, key: str, tensors: dict[str, Tensor]) -> object:
    """Plain JSON for a value; its tensors are set aside under `key`, `name` is for the refusal."""
    plain: object = None
    match value:
        case float() if not math.isfinite(value):
            plain = {"float": str(value)}
        case None | bool() | int() | float() | str():
            plain = value
        case list():
            plain = [encode(v, f"{name}[{i}]", f"{key}/{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            plain = {"tuple": encode([*value], name, key, tensors)}
        case dict():
            for inner in value:
                if type(inner) not in (str, int, float, bool, type(None)):
                    raise UserError(
                        f"{name} has the key {inner!r}, which cannot be saved: keys must be text "
                        "or numbers"
                    )
            items = [
                encode(v, f"{name}[{k!r}]", f"{key}/{i}", tensors)
                for i, (k, v) in enumerate(value.items())
            ]
            plain = {"keys": encode([*value], name, key, tensors), "values": items}
        case np.ndarray() if value.dtype.kind == "U":
            plain = {"texts": value.tolist(), "dtype": value.dtype.str}
        case Tensor() | np.ndarray() | np.generic():
            kind = "tensor" if isinstance(value, Tensor) else "array"
            plain = {"scalar" if isinstance(value, np.generic) else kind: key}
            tensors[key] = _tensor(value, name)
        case _:
            _refuse(value, name)
    return plain


def _tensor(value: Tensor | np.ndarray | np.generic, name: str) -> Tensor:
    """A tensor of a kind that safetensors takes, if there is one for the value."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
    except (TypeError, ValueError):  # dates, objects, numpy's longdouble, swapped bytes
        _refuse(value, name)
    if tensor.layout != torch.strided or tensor.is_complex():
        _refuse(value, name)
    return tensor


def _refuse(value: object, name: str) -> NoReturn:
    kind = f" of {value.dtype}" if isinstance(value, Tensor | np.ndarray) else ""
    raise UserError(
        f"{name} is a {type(value).__name__}{kind}, which cannot be saved: keep tensors, arrays, "
        "numbers and text, and lists and dicts of them"
    )


def decode(value: Any, tensor: Callable[[str], Tensor]) -> Any:  # noqa: ANN401 -- JSON, any value
    """What `encode` was given; `tensor` finds the one that was set aside under a key."""
    match value:
        case list():
            value = [decode(v, tensor) for v in value]
        case {"tensor": key}:
            value = tensor(key)
        case {"array": key}:
            value = tensor(key).numpy()
        case {"scalar": key}:
            value = tensor(key).numpy()[()]
        case {"texts": list(texts), "dtype": str(kind)}:
            value = _texts(texts, kind)
        case {"float": text}:
            value = float(text)
        case {"tuple": items}:
            value = tuple(decode(items, tensor))
        case {"keys": keys, "values": values}:
            value = dict(zip(decode(keys, tensor), decode(values, tensor), strict=True))
    return value


def _texts(texts: list[Any], kind: str) -> np.ndarray:
    """An array of texts; the room it takes is for us to bound, not for the file to say."""
    width = re.fullmatch(r"[<>=]U([0-9]{1,9})", kind)
    number = sum(1 for text in leaves(texts) if isinstance(text, str))
    if width is None or 4 * int(width[1]) * max(number, 1) > VALUES:
        raise ValueError(f"{number} texts of {kind:.20} are too many")
    return np.array(texts, kind)


def leaves(value: Any) -> Iterator[Any]:  # noqa: ANN401 -- JSON, any value
    """What lies in lists, tuples and dicts, at any depth."""
    inner = value.values() if isinstance(value, dict) else value
    if isinstance(value, list | tuple | dict):
        for one in inner:
            yield from leaves(one)
    else:
        yield value
