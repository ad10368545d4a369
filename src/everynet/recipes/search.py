"""Finds recipes of the catalogue: by words that say what they are, and by the data they learn from.

Everything is read from the text of the zoo, so that a search imports no network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from everynet.recipes import catalog
from everynet.recipes.catalog import Entry
from everynet.system.errors import UserError
from everynet.system.wording import nearest, shown

FAMILIES = (
    *("classic", "feedforward", "optimisation", "vision", "recurrent", "language", "translation"),
    *("dialogue", "transformer", "audio", "generative", "memory", "spiking", "population"),
    *("predictive", "adversarial", "reinforcement", "theory"),
)
"""The families in the order of the course; any other comes after them."""


def in_course_order(found: Iterable[Entry]) -> list[Entry]:
    """Recipes by family, as the course goes; those of a family stay in their order."""
    place = {family: number for number, family in enumerate(FAMILIES)}
    return sorted(found, key=lambda entry: place.get(entry.family, len(place)))


def rows() -> dict[str, str]:
    """The rows of the curriculum by their ids."""
    import tomllib  # noqa: PLC0415 -- only a search needs it

    text = (catalog.PACKAGE / "curriculum.toml").read_text(encoding="utf-8")
    return {id: name for part in tomllib.loads(text).values() for id, name in part["rows"].items()}


def search(found: Sequence[Entry], words: Sequence[str]) -> list[Entry]:
    """The recipes that match every word; a family matches by its name alone.

    A word is part of a name, begins a word of a title or of a row of the curriculum that the recipe
    covers, or is the id of such a row.
    """
    families = {entry.family for entry in found}
    known = rows() if any(word.lower() not in families for word in words) else {}
    chosen = [*found]
    for word in words:
        before, chosen = (
            chosen,
            [entry for entry in chosen if _matches(entry, word, families, known)],
        )
        if not chosen:
            raise _nothing(found, before, word, words, known)
    return chosen


def _matches(entry: Entry, word: str, families: Iterable[str], known: dict[str, str]) -> bool:
    plain = word.lower()
    if plain in families:
        return entry.family == plain
    if word.upper() in known:
        return word.upper() in entry.covers
    titles = " ".join(
        (
            entry.summary,
            entry.variant,
            entry.about,
            *(known[row] for row in entry.covers if row in known),
        )
    )
    return plain in entry.name or bool(re.search(rf"(?<![^\W_]){re.escape(plain)}", titles.lower()))


def _nothing(
    found: Sequence[Entry],
    before: Sequence[Entry],
    word: str,
    words: Sequence[str],
    known: dict[str, str],
) -> UserError:
    """Why nothing is left, with the names most like the word that nothing tells of."""
    if len(before) < len(found):
        others = " ".join(words[: words.index(word)])
        said = f"nothing that is found by {shown(others, 60)!r} is about {shown(word, 60)!r}"
        return UserError(f"{said}; leave one of them out")
    if word.upper() in known:
        return UserError(
            f"no recipe shows the row {word.upper()} ({known[word.upper()]}): tests do, which "
            "docs/curriculum.md names"
        )
    names = [*dict.fromkeys(entry.family for entry in found), *(entry.name for entry in found)]
    return UserError(f"no recipe is about {shown(word, 60)!r}{nearest(word, names)}")


def suited(
    found: Iterable[Entry], kinds: Sequence[str], task: str = "", classes: int = 0
) -> list[tuple[Entry, str]]:
    """Recipes that learn from data of one of these kinds, with that kind; the best come first.

    First are those that were made for it, then those that ask for this very task, then those that
    take fewer kinds, and of a file its first recipe. One recipe stands for its class; what compares
    trainings is not meant for data of one's own. An unknown task or count leaves none out.
    """
    ranked: dict[tuple[str, str], tuple[tuple[int, ...], Entry, str]] = {}
    for entry in found:
        kind = next((name for name in entry.takes if name in kinds), None)
        if kind is None or entry.kind not in ("training", "fitting"):
            continue
        if (task and entry.task not in ("", task)) or (
            classes and entry.classes not in (0, classes)
        ):
            continue
        made = bool({kind, task}.intersection(entry.made_for))
        rank = (
            *(kinds.index(kind), not made, not entry.task),
            *(len(entry.takes), bool(entry.variant)),
        )
        ranked.setdefault((entry.file, entry.cls), (rank, entry, kind))
    return [(entry, kind) for _, entry, kind in sorted(ranked.values(), key=lambda one: one[0])]
