"""Human judgements of words: how alike two are, and which word completes an analogy."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from everynet.data.download import store
from everynet.data.sets import everything
from everynet.system.errors import UserError
from everynet.system.sources import note
from everynet.system.wording import nearest

Pair = tuple[str, str, float]
Question = tuple[str, str, str, str]

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


@dataclass(frozen=True)
class Judgements:
    """Pairs with a score by the name of their list, and questions by the name of their section."""

    pairs: Mapping[str, Sequence[Pair]]
    analogies: Mapping[str, Sequence[Question]]
    """The first is to the second as the third is to the fourth."""
    name: str = ""
    digest: str = ""


def read(name: str) -> Judgements:
    """The judgements of a known set."""
    known = everything()
    ours = [n for n, one in known.items() if one.kind == "judgements"]
    if name not in ours:
        raise UserError(
            f"judgements ({name}) must be a known set of judgements{nearest(name, ours)}"
        )
    make = known[name].make
    found: Judgements = make("") if make else store.samples(known[name])
    note(found.name, found.digest)
    return found


def help_words() -> Judgements:
    """A few words of Python's help, and how alike they seem to us."""
    pairs = _pairs(_ALIKE.strip().replace(",", "\n").replace("\n\n", "\n"))
    many = {word: word + ("es" if word.endswith("s") else "s") for word in _PLURALS.split()}
    digest = hashlib.sha256((_ALIKE + _PLURALS).encode()).hexdigest()
    plural = [(a, many[a], b, many[b]) for a, b in permutations(many, 2)]
    return Judgements(
        {"wordsim": pairs[::2], "simlex": pairs[1::2]}, {"plural": plural}, "help-words", digest
    )


def of_files(held: Sequence[bytes]) -> Judgements:
    """Judgements out of the files of WordSim-353, SimLex-999 and Mikolov's questions."""
    wordsim, simlex, questions = (content.decode() for content in held)
    sections: dict[str, list[Question]] = {}
    for line in questions.splitlines():
        if line.startswith(":"):
            section = sections.setdefault(line[1:].strip(), [])
        else:
            a, b, c, d = line.casefold().split()
            section.append((a, b, c, d))
    return Judgements({"wordsim": _pairs(wordsim), "simlex": _pairs(simlex)}, sections)


def _pairs(content: str) -> list[Pair]:
    rows = (line.casefold().split() for line in content.splitlines())
    return [(a, b, float(score)) for a, b, score in rows]
