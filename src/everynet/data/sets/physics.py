"""Images that are to become others, generated: sources and fields, scans and what was scanned."""

from __future__ import annotations

from typing import Any

from everynet.data.sets import Known
from everynet.data.sets.generated import counted

_NONE = "generated: no licence needed"


def _poisson(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import poisson  # noqa: PLC0415 -- imports torch

    return poisson.read(*counted("poisson", count))


def _phantoms(count: str) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import radon  # noqa: PLC0415 -- imports torch

    return radon.read(*counted("phantoms", count))


SETS = (
    Known(
        "poisson",
        "map",
        "sources on a square of 32x32 and the fields they make; poisson:N for N",
        _NONE,
        make=_poisson,
    ),
    Known(
        "phantoms",
        "map",
        "ellipses of 64x64, scanned from 60 angles and back-projected; phantoms:N for N",
        _NONE,
        make=_phantoms,
    ),
)
