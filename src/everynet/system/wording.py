"""How values and names are written for a person; light enough for a verb without torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What moves the cursor, starts an escape sequence or turns the direction of writing."""


def nearest(word: str, known: Iterable[object]) -> str:
    """`; did you mean a, b or c?` for the end of an error message: the known words most alike."""
    import difflib  # noqa: PLC0415 -- only a mistake needs it

    names = [str(name) for name in islice(known, 2000)]  # of the columns of a table, say
    close = difflib.get_close_matches(word[:200], names, n=3, cutoff=0.0)
    words = [", ".join(close[:-1])] * (len(close) > 1) + close[-1:]
    return f"; did you mean {' or '.join(words)}?" if close else ""


def unknown(name: str, value: object, known: Iterable[object]) -> str:
    """`unknown optimizer 'adm'; did you mean adam?`: the message for a value that is not known."""
    written_as = repr(shown(value)) if isinstance(value, str) else shown(value)
    return f"unknown {name} {written_as}" + nearest(str(value), known)


def no_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """What a module raises that finds its names when they are asked for."""
    hint = "" if name.startswith("_") else nearest(name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def with_article(noun: str) -> str:
    """A noun with a or an before it."""
    return f"an {noun}" if noun[:1] in "aeiou" else f"a {noun}"


def printable(text: str) -> str:
    """Text of any source as a terminal may show it; lines and tabs stay."""
    return _CONTROLS.sub("?", text)


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
