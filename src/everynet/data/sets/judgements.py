"""What people say of words: WordSim-353, SimLex-999, Mikolov's analogies; a few of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Web

_ALIKE = """
function method 8.5, list tuple 8, string bytes 8, integer float 8, class type 8, true false 7.5,
statement expression 7.5, module package 8, attribute name 6, key value 6.5, import module 7,
raise exception 8, return function 6, call function 7, loop iteration 8, try except 8,
string module 2, class integer 2, import float 0.5, list exception 1, bytes loop 0.5,
true package 0.5, method value 3, raise tuple 0.5
"""
_PLURALS = (
    "object function method class module name attribute argument value type statement expression"
)


def _few(count: str) -> Any:  # noqa: ANN401 -- judgements
    import hashlib  # noqa: PLC0415
    from itertools import permutations  # noqa: PLC0415

    from everynet.data.judgements import Judgements  # noqa: PLC0415 -- torch only where needed
    from everynet.system.errors import UserError  # noqa: PLC0415

    if count:
        raise UserError(f"judgements (help-words:{count[:40]}) must be help-words: it is one list")
    rows = [row.split() for row in _ALIKE.replace("\n", " ").split(",")]
    many = {word: word + ("es" if word.endswith("s") else "s") for word in _PLURALS.split()}
    digest = hashlib.sha256((_ALIKE + _PLURALS).encode()).hexdigest()
    pairs = [(a, b, float(score)) for a, b, score in rows]
    plural = [(a, many[a], b, many[b]) for a, b in permutations(many, 2)]
    return Judgements(
        {"wordsim": pairs[::2], "simlex": pairs[1::2]}, {"plural": plural}, "help-words", digest
    )


def _read(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- judgements
    from everynet.data import judgements  # noqa: PLC0415

    return judgements.of_files(held)


_WORD_EVAL = Form(
    folder="word-eval",
    decode=_read,
    contents=(
        Content(
            "EN-WS-353-ALL.txt",
            7_405,
            "ce12919b240af45bdf46d243601eaca2b6212b159b5e7e9b435ee7ee40c5619c",
        ),
        Content(
            "EN-SIMLEX-999.txt",
            18_024,
            "405394ffb7d25f6d0e3c041f87c9f27d29dc6b047506769953e85c4523b11685",
        ),
        Content(
            "questions-words.txt",
            603_955,
            "8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36",
        ),
    ),
    sources=(
        Web(
            "https://raw.githubusercontent.com/mfaruqui/eval-word-vectors/master/data/word-sim/{name}"
        ),
        Web("https://raw.githubusercontent.com/tmikolov/word2vec/master/{name}"),
    ),
)

SETS = (
    Known(
        name="help-words",
        kind="judgements",
        about="24 pairs of words of Python's help and how alike they seem to us; plurals",
        licence="ours",
        make=_few,
    ),
    Known(
        name="word-eval",
        kind="judgements",
        about="WordSim-353, SimLex-999 and 19,544 analogies: what word vectors are judged by",
        licence="Apache-2.0 (analogies), MIT (lists); cite Finkelstein 2002, Hill 2015",
        forms=(_WORD_EVAL,),
    ),
)
