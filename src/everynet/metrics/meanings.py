"""What each figure means, in one line: for `everynet show`, the card and `everynet evaluate`."""

from __future__ import annotations

MEANINGS: dict[str, str] = {}


def meaning(recipe: object, name: str) -> str:
    """The sentence of a figure; empty where nobody has written it."""
    return MEANINGS.get(name, "")
