"""What people say of words: how alike two are, and which word completes an analogy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everynet.data.download import store
from everynet.data.sets import everything
from everynet.system.errors import UserError
from everynet.system.sources import note
from everynet.system.wording import nearest

Pair = tuple[str, str, float]
Question = tuple[str, str, str, str]


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
