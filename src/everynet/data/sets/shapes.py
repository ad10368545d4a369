"""Shapes over noise, generated: with a class for each pixel, and with a box."""

from __future__ import annotations

from typing import Any

from everynet.data.sets import Known
from everynet.data.sets.generated import counted

_NONE = "generated: no licence needed"


def _masks(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import shapes  # noqa: PLC0415 -- imports torch

    return shapes.read(*counted("shapes", count))


def _boxes(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import shapes  # noqa: PLC0415 -- imports torch

    return shapes.read_boxes(*counted("shapes-boxes", count))


SETS = (
    Known(
        "shapes",
        "mask",
        "discs, squares and triangles over noise, grey images of 64x64; shapes:N for N",
        _NONE,
        make=_masks,
    ),
    Known(
        "shapes-boxes",
        "boxes",
        "one disc, square or triangle among bars, grey images of 64x64; shapes-boxes:N for N",
        _NONE,
        make=_boxes,
    ),
)
