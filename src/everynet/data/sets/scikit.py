"""Sets that ship with scikit-learn: digits, four tables and two photographs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everynet.data.sets import Known

_UCI = "CC BY 4.0 (UCI); in scikit-learn"


def _of(name: str) -> Callable[[str], Any]:
    def make(count: str) -> Any:  # noqa: ANN401 -- samples
        from everynet.data import scikit  # noqa: PLC0415 -- torch and scikit-learn are slow
        from everynet.system.errors import UserError  # noqa: PLC0415

        if count:
            raise UserError(
                f"data ({name}:{count[:40]}) must be {name}: it has a fixed number of samples"
            )
        return scikit.SETS[name]()

    return make


def _set(name: str, kind: str, about: str, licence: str = _UCI) -> Known:
    return Known(name, kind, about, licence, make=_of(name))


SETS = (
    _set("digits", "image", "1,797 handwritten digits, grey images of 8x8"),
    _set("iris", "table", "150 flowers of 3 species, 4 measures"),
    _set("wine", "table", "178 wines of 3 growers, 13 measures"),
    _set("breast-cancer", "table", "569 tumours, malignant or benign, 30 measures"),
    _set(
        "diabetes",
        "table",
        "442 patients, 10 measures; how far the illness is a year later",
        "none stated; cite Efron et al. (2004); in scikit-learn",
    ),
    _set(
        "china",
        "image",
        "one photograph of 427x640",
        "CC BY 2.0, danielbuechele; in scikit-learn",
    ),
    _set("flower", "image", "one photograph of 427x640", "CC BY 2.0, vultilion; in scikit-learn"),
)
