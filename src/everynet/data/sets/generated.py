"""Sets that are generated: points in the plane and digits drawn as strokes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everynet.data.sets import Known


def counted(name: str, count: str) -> tuple[int, ...]:
    """The number behind `name:`, if there is one."""
    from everynet.system.errors import UserError  # noqa: PLC0415 -- imports torch
    from everynet.system.wording import shown  # noqa: PLC0415

    if count and not (count.isdecimal() and len(count) < 20):
        raise UserError(
            f"data ({name}:{shown(count, 40)}) must be like {name}:2000, with a whole number"
        )
    return (int(count),) if count else ()


def _points(name: str) -> Callable[[str], Any]:
    def make(count: str) -> Any:  # noqa: ANN401 -- samples
        from everynet.data import points  # noqa: PLC0415 -- imports torch

        return points.read(name, *counted(name, count))

    return make


def _strokes(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import strokes  # noqa: PLC0415 -- imports torch

    return strokes.read(*counted("strokes", count))


_NONE = "generated: no licence needed"
_PLANE = {
    "moons": "two half circles",
    "spirals": "two spirals",
    "rings": "a disc inside a ring",
    "xor": "four corners, opposite ones alike",
    "blobs": "three round clouds",
}

SETS = (
    *(
        Known(name, "table", f"points in the plane: {about}", _NONE, make=_points(name))
        for name, about in _PLANE.items()
    ),
    Known(
        "strokes",
        "image",
        "synthetic digits drawn as strokes, grey images of 28x28; strokes:N for N",
        _NONE,
        make=_strokes,
    ),
)
