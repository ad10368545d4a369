"""Generated pairs to translate: dates in words, and sentences of a language with the verb last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

import torch

from everynet.data.kinds.pairs import Pairs
from everynet.data.sets import parse_count
from everynet.system.seeds import generator

COUNT = 20_000

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UNITS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
ORDINALS = (
    *_UNITS, "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
    "seventeenth", "eighteenth", "nineteenth", "twentieth", *(f"twenty-{unit}" for unit in _UNITS),
    "thirtieth", "thirty-first",
)  # fmt: skip
FORMS = (
    "{day} {month} {year}", "{day} {short} {year}", "{nth} {month} {year}", "{nth} {short} {year}",
    "the {nth} of {month} {year}", "the {ordinal} of {month} {year}", "{month} {day}, {year}",
    "{short} {day}, {year}", "{month} {nth}, {year}", "{month} the {ordinal}, {year}",
    "{weekday}, {day} {month} {year}", "{weekday}, {month} {nth}, {year}",
    "{weekday} the {nth} of {month}, {year}", "{year} {month} {day}",
)  # fmt: skip
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)


def dates(count: str = "") -> Pairs:
    """Dates of 1900 to 2099 in words, and as year-month-day; a date is in one part alone."""
    days = LAST.toordinal() - FIRST.toordinal() + 1
    found = _draw("dates", count, 500_000, (days, len(FORMS), 2), write_date)
    split = "by hash of the date, a fifth is test and a tenth of the rest is valid"
    return Pairs.divide(found, "dates", [iso for _, iso in found], split)


def write_date(choice: Sequence[int]) -> tuple[str, str]:
    """A date by its number of days, in one of the forms, as it is or in small letters."""
    days, form, small = choice
    when = date.fromordinal(FIRST.toordinal() + days)
    ending = "th" if when.day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(when.day % 10)
    text = FORMS[form].format(
        day=when.day,
        nth=f"{when.day}{ending or 'th'}",
        ordinal=ORDINALS[when.day - 1],
        month=MONTHS[when.month - 1],
        short=MONTHS[when.month - 1][:3],
        year=when.year,
        weekday=WEEKDAYS[when.weekday()],
    )
    return text.lower() if small else text, when.isoformat()


def _dictionary(words: str) -> dict[str, str]:
    return dict(word.split(":") for word in words.split())


ARTICLES = _dictionary("the:ko a:bem")
ADJECTIVES = {"": ""} | _dictionary(
    "small:tiki tall:lumo brave:gari quiet:sosa young:nemi clever:zura"
)
NOUNS = _dictionary(
    "farmer:belo child:kimu dog:haku cat:miro king:doren sailor:nafal teacher:sikas horse:zalpa "
    "baker:ponet stranger:durru"
)
PLACES = _dictionary("garden:lorat river:vasi market:kembo tower:tarku forest:selvu bridge:ponru")
PREPOSITIONS = {"": ""} | _dictionary("in:nu near:bego behind:raku beyond:haru")
VERBS = _dictionary(
    "follow:jatu greet:salo call:denu help:lagu thank:milo visit:biso lift:jasu paint:pintu"
)
TENSES = ("ra", "sen", "vu")
"""What follows a verb: follows, followed, will follow."""
_CHOICES = (ARTICLES, ADJECTIVES, NOUNS, VERBS, TENSES, ARTICLES, ADJECTIVES, NOUNS, PREPOSITIONS,
            ARTICLES, ADJECTIVES, PLACES)  # fmt: skip


def verb_final(count: str = "") -> Pairs:
    """Short English sentences, and the same in an invented language: subject, place, object, verb.

    There adjective and article follow their noun, what says where follows its place, and the time
    is a word behind the verb. So each sentence has one translation, and that has one back.
    """
    choices = [len(words) for words in _CHOICES]
    found = _draw("verb-final", count, 1_000_000, choices, write_verb_final)
    return Pairs.divide(found, "verb-final")


def write_verb_final(choice: Sequence[int]) -> tuple[str, str]:
    """The sentence with these words, and its translation."""
    words = [list(table)[n] for table, n in zip(_CHOICES, choice, strict=True)]
    verb, preposition = words[3], words[8]
    subject, thing, place = (_noun_phrase(*words[at : at + 3]) for at in (0, 5, 9))
    where = place if preposition else ("", "")
    inflected = (f"{verb}s", f"{verb}ed", f"will {verb}")[choice[4]]
    english = (subject[0], inflected, thing[0], preposition, where[0])
    other = (subject[1], where[1], PREPOSITIONS[preposition], thing[1], VERBS[verb], words[4])
    return " ".join(filter(None, english)), " ".join(filter(None, other))


def _noun_phrase(article: str, adjective: str, noun: str) -> tuple[str, str]:
    """The words in English, and in the other language."""
    other = ((NOUNS | PLACES)[noun], ADJECTIVES[adjective], ARTICLES[article])
    return " ".join(filter(None, (article, adjective, noun))), " ".join(filter(None, other))


def _draw(
    name: str,
    count: str,
    most: int,
    choices: Sequence[int],
    write: Callable[[Sequence[int]], tuple[str, str]],
) -> list[tuple[str, str]]:
    """As many pairs as are wanted, each written from one choice of each sort, no source twice."""
    size = parse_count(name, count, COUNT, 100, most)
    random, found = generator(0, *name.encode()), dict[str, str]()
    while len(found) < size:
        drawn = [torch.randint(number, (size,), generator=random) for number in choices]
        found.update(map(write, torch.stack(drawn, 1).tolist()))
    return list(found.items())[:size]
