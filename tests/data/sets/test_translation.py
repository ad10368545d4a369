"""Generated pairs: copies, dates in words and a verb-final language, each read back."""

import re
from datetime import date, datetime

import pytest

from everynet.cli import main
from everynet.data.loading import samples
from everynet.data.sets import everything, translation
from everynet.data.split import PARTS
from everynet.system.errors import UserError


def pairs(name):
    """All pairs of a dataset, in a dictionary by their source."""
    found = samples(name, kind="pairs")
    return {x: y for part in PARTS for x, y in zip(*found.parts[part], strict=True)}


@pytest.mark.parametrize("name", ["copying", "dates", "verb-final"])
def test_the_same_pairs_every_time_and_none_in_two_parts(name):
    found, again = (samples(f"{name}:200", kind="pairs") for _ in range(2))
    assert (found.digest, found.parts) == (again.digest, again.parts)
    assert sum(len(found.parts[part][0]) for part in PARTS) == len(pairs(f"{name}:200")) == 200
    assert len(found.parts["test"][0]) in range(20, 70)
    assert samples(f"{name}:201", kind="pairs").digest != found.digest
    with pytest.raises(UserError, match=f"{name}:99 must be from {name}:100 to {name}:"):
        samples(f"{name}:99", kind="pairs")


def test_the_list_shows_them(capsys):
    main(["data", "list"])
    listed = capsys.readouterr().out
    for name in ("copying", "dates", "verb-final"):
        assert re.search(rf"^{name} +pairs .*{name}:N", listed, re.MULTILINE)


def test_a_copy_is_the_string_itself():
    found = pairs("copying:2000")
    assert all(x == y for x, y in found.items())
    assert {len(x) for x in found} == set(range(3, 13))
    assert found.keys() != pairs("reversal:2000").keys()


def test_reversal_is_what_it_was_before_copying_came():
    digest = "aa285eeb36d8af099f43eed4eeb0078101e01520ddc9dfa9df35c1052b57f99f"
    assert samples("reversal:200", kind="pairs").digest == digest


# ------------------------------------------------------------------------------------------ dates

UNITS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"]
TEENS = ["thir", "four", "fif", "six", "seven", "eigh", "nine"]
ORDINALS = [*UNITS, "tenth", "eleventh", "twelfth", *(f"{teen}teenth" for teen in TEENS)]
ORDINALS += ["twentieth", *(f"twenty-{unit}" for unit in UNITS), "thirtieth", "thirty-first"]


def understood(text):
    """The date by Python's own reading, and the day of the week if the text has one."""
    words = re.sub(r"\bthe |\bof |,", "", text.lower()).split()
    weekday = words.pop(0) if words[0].endswith("day") else None
    days = [str(ORDINALS.index(w) + 1) if w in ORDINALS else w for w in words]
    plain = " ".join(re.sub(r"(\d)(st|nd|rd|th)$", r"\1", word) for word in days)
    for order in ("%d %B %Y", "%B %d %Y", "%Y %B %d", "%d %b %Y", "%b %d %Y"):
        try:
            return datetime.strptime(plain, order).date(), weekday
        except ValueError:
            pass
    raise ValueError(text)


def test_dates_mean_what_they_say():
    found = pairs("dates:1500")
    for text, iso in found.items():
        read, weekday = understood(text)
        assert read.isoformat() == iso
        assert weekday in (None, f"{read:%A}".lower())
        suffix = re.search(r"\d(st|nd|rd|th)\b", text)
        special = {1: "st", 2: "nd", 3: "rd"}.get(read.day % 10, "th")
        expected = "th" if read.day in (11, 12, 13) else special
        assert suffix is None or suffix[1] == expected
    assert min(found.values()) >= "1900-01-01"
    assert max(found.values()) <= "2099-12-31"
    assert len({iso[:4] for iso in found.values()}) > 190
    days = {iso[8:] for iso in found.values()}
    assert days == {f"{n:02}" for n in range(1, 32)}


def test_one_date_in_every_form():
    days = (date(1987, 3, 12) - date(1900, 1, 1)).days
    written = [translation.write_date((days, form, 0)) for form in range(len(translation.FORMS))]
    assert {iso for _, iso in written} == {"1987-03-12"}
    assert [text for text, _ in written] == [
        "12 March 1987", "12 Mar 1987", "12th March 1987", "12th Mar 1987",
        "the 12th of March 1987", "the twelfth of March 1987", "March 12, 1987", "Mar 12, 1987",
        "March 12th, 1987", "March the twelfth, 1987", "Thursday, 12 March 1987",
        "Thursday, March 12th, 1987", "Thursday the 12th of March, 1987", "1987 March 12",
    ]  # fmt: skip
    assert translation.write_date((days, 4, 1))[0] == "the 12th of march 1987"


def test_from_the_first_day_to_the_last_and_no_more_than_are_wanted(monkeypatch):
    monkeypatch.setattr(translation, "LAST", date(1900, 1, 31))
    found = pairs("dates:500")
    assert {*found.values()} == {f"1900-01-{n:02}" for n in range(1, 32)}
    assert len(found) == 500, "of 868, so that some were drawn again"


def test_no_date_is_in_two_parts():
    found = samples("dates:1500", kind="pairs")
    train, valid, test = ({*found.parts[part][1]} for part in PARTS)
    assert not train & (valid | test)
    assert not valid & test
    assert len(train) < len(found.parts["train"][1]), "and some are there in two forms"
    assert "date" in found.split


# ------------------------------------------------------------------------------------- word order


def backwards(text):
    """The English sentence, by the rules of the other language read from its last word on."""
    english = {
        other: word
        for words in (translation.ARTICLES, translation.ADJECTIVES, translation.NOUNS,
                      translation.PLACES, translation.PREPOSITIONS, translation.VERBS)
        for word, other in words.items()
        if word
    }  # fmt: skip
    words = text.split()
    tense, verb = words.pop(), english[words.pop()]
    verb = dict(zip(translation.TENSES, (f"{verb}s", f"{verb}ed", f"will {verb}"), strict=True))[
        tense
    ]

    def noun_phrase():
        found = [english[words.pop()]]
        while english[words[-1]] in translation.ADJECTIVES:
            found.append(english[words.pop()])
        return " ".join([*found, english[words.pop()]])

    thing, place = noun_phrase(), ""
    if english[words[-1]] in translation.PREPOSITIONS:
        place = f" {english[words.pop()]} {noun_phrase()}"
    who = noun_phrase()
    assert not words
    return f"{who} {verb} {thing}{place}"


def test_the_verb_final_language_can_be_translated_back():
    found = pairs("verb-final:1500")
    assert {text: backwards(other) for text, other in found.items()} == {x: x for x in found}
    assert len({*found.values()}) == len(found)
    share = sum(len(set(text.split()) & translation.PREPOSITIONS.keys()) for text in found) / 1500
    assert 0.7 < share < 0.9, "most say where"
    assert {len(text.split()) for text in found} == set(range(5, 13))


def test_one_sentence_by_hand():
    english, other = translation.write_verb_final((0, 1, 0, 0, 1, 1, 0, 2, 3, 0, 2, 1))
    assert english == "the small farmer followed a dog behind the tall river"
    words = other.split()
    assert len(words) == len(english.split()) + 1, "the past is a word of its own"
    nouns = [translation.NOUNS["farmer"], translation.PLACES["river"], translation.NOUNS["dog"]]
    places = [words.index(noun) for noun in nouns]
    assert places == sorted(places), "subject, place, object"
    assert words[-2:] == [translation.VERBS["follow"], translation.TENSES[1]]
    assert words[words.index(translation.NOUNS["farmer"]) + 1] == translation.ADJECTIVES["small"]


def test_no_two_words_are_alike():
    tables = (translation.ARTICLES, translation.ADJECTIVES, translation.NOUNS, translation.PLACES,
              translation.PREPOSITIONS, translation.VERBS)  # fmt: skip
    words = [word for table in tables for word in table if word]
    others = [other for table in tables for other in table.values() if other]
    assert len({*words}) == len(words)
    assert len({*others, *translation.TENSES}) == len(others) + 3
    assert not {*words} & {*others}
    assert not any(word[0] in "aeiou" for table in tables[1:4] for word in table if word), "a, an"
    assert everything()["verb-final"].licence.startswith("generated")
