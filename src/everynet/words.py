"""How values and names are written for a person; light enough for a verb without torch."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The three known words most like `word`, for the end of an error message."""
    import difflib  # noqa: PLC0415 -- only a mistake needs it

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.0)
    return "; the nearest are " + ", ".join(close) if close else ""


def with_article(noun: str) -> str:
    """A noun with a or an before it."""
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


def shown(text: object, most: int = 300) -> str:
    """The text of a path or a cell as one printable line that is not too long."""
    line = "".join(c if c.isprintable() else "?" for c in str(text))
    return line if len(line) <= most else f"{line[: most // 2]}...{line[-most // 4 :]}"


def written(value: object) -> str:
    """A setting as it is written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):  # a run that was given, as recipe.json holds it
        return str(value.get("path", value))
    return ",".join(map(written, value)) if isinstance(value, tuple | list) else str(value)
