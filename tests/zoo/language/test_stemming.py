"""Stems as nltk has them, the paper's own measure, and lemmas by rule and exception."""

import json
from pathlib import Path

import pytest

from everynet.system.errors import UserError
from everynet.zoo.language.stemming import IRREGULAR, lemmatize, measure, stem

REFERENCE = json.loads((Path(__file__).parent / "porter.json").read_text())
"""Stems by nltk; under "made" stands how."""


@pytest.mark.covers("R37")
def test_stems_are_those_of_nltk():
    assert len(REFERENCE["stems"]) > 1000
    assert {word: stem(word) for word in REFERENCE["stems"]} == REFERENCE["stems"]


@pytest.mark.parametrize(
    ("m", "words"),
    [
        (0, "tr ee tree y by"),
        (1, "trouble oats trees ivy"),
        (2, "troubles private oaten orrery"),
    ],
)
def test_the_measure_is_that_of_the_paper(m, words):
    assert [measure(word) for word in words.split()] == [m] * len(words.split())


def test_a_stem_need_not_be_a_word():
    assert {stem(word) for word in ("Relational", "relate", "relating", "relates")} == {"relat"}
    assert stem("") == ""


@pytest.mark.covers("R37")
@pytest.mark.parametrize(
    ("part", "forms"),
    [
        ("noun", "cats>cat boxes>box churches>church cities>city boys>boy men>man glass>glass "
         "houses>house potatoes>potato analyses>analysis status>status bridges>bridge ties>tie"),
        ("verb", "ran>run running>run making>make sleeping>sleep pulled>pull stopped>stop was>be "
         "tries>try tried>try passes>pass falling>fall fixed>fix judged>judge arriving>arrive "
         "creating>create treating>treat compared>compare appeared>appear danced>dance run>run "
         "argued>argue handled>handle planned>plan planed>plane agreed>agree bleed>bleed"),
        ("adjective", "bigger>big nicest>nice happier>happy larger>large better>good clever>clever "
         "simpler>simple red>red"),
    ],
)  # fmt: skip
def test_lemmas(part, forms):
    pairs = [form.split(">") for form in forms.split()]
    assert [lemmatize(word.title(), part) for word, _ in pairs] == [wanted for _, wanted in pairs]


def test_a_lemma_is_its_own():
    for part, irregular in IRREGULAR.items():
        for word in irregular.values():
            assert lemmatize(word, part) == word


def test_what_it_refuses():
    with pytest.raises(UserError, match=r"unknown part 'nuon'; .*noun"):
        lemmatize("cats", "nuon")
