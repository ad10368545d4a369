"""Long texts: Python's own help, and texts of one file or of three parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pydoc_data.topics import topics as _TOPICS

from everynet.data.kinds.text import LongText, decoded
from everynet.data.split import PARTS


def topics() -> LongText:
    """What `help()` says, topic by topic; a paragraph that several topics share stands once."""
    paragraphs = "\n\n".join(_TOPICS[name] for name in sorted(_TOPICS)).split("\n\n")
    # Otherwise a fifth of the text would be there twice, and be known before it is tested on.
    text = "\n\n".join(dict.fromkeys(part for part in paragraphs if part.strip()))
    return LongText("topics", {"whole": text}, hashlib.sha256(text.encode()).hexdigest())


def one(held: Sequence[bytes]) -> LongText:
    """A text that our own rule divides."""
    return LongText("", {"whole": decoded(held[0], "its file")}, "")


def three(held: Sequence[bytes]) -> LongText:
    """A text that ships in three parts."""
    parts = {name: decoded(part, name) for name, part in zip(PARTS, held, strict=True)}
    return LongText("", parts, "", "the three parts that it ships with", published=True)
