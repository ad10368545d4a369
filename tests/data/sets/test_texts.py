"""The known sets of texts: what is generated, and the counts of the real ones."""

import pytest

from everynet.data import load
from everynet.data.loading import samples
from everynet.data.sets import everything
from everynet.data.split import PARTS
from everynet.system.errors import UserError

TEXTS = [name for name, known in everything().items() if known.kind in ("pairs", "labelled")]
NO_SOURCE = [
    name
    for name in TEXTS
    if everything()[name].forms and not any(form.sources for form in everything()[name].forms)
]


def counts(found):
    return tuple(len(found.parts[part][0]) for part in PARTS)


# -------------------------------------------------------------------------------------- generated


def test_reversal_is_the_string_from_back_to_front():
    found = samples("reversal:2000", kind="pairs")
    texts = [text for part in PARTS for text in found.parts[part][0]]
    assert sum(counts(found)) == len(set(texts)) == 2000, "no string is in two parts"
    assert {len(text) for text in texts} == set(range(3, 13))
    assert set("".join(texts)) == set("abcdefgh")
    for part in PARTS:
        assert [text[::-1] for text in found.parts[part][0]] == found.parts[part][1]
    assert samples("reversal:2000", kind="pairs").digest == found.digest
    assert samples("reversal:2001", kind="pairs").digest != found.digest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reversal:99", "reversal:99 must be from reversal:100 to reversal:1000000"),
        ("reversal:1000001", "reversal:1000001 must be from"),
        ("reversal:many", r"data \(reversal:many\) must be like reversal:2000"),
    ],
)
def test_counts_that_reversal_refuses(name, message):
    with pytest.raises(UserError, match=message):
        samples(name, kind="pairs")


def test_a_not_turns_a_phrase_round():
    found = samples("phrases", kind="labelled")
    assert sum(counts(found)) == 2000
    label_of = {t: label for part in PARTS for t, label in zip(*found.parts[part], strict=True)}
    assert len(label_of) == 2000, "no phrase is in two parts"
    for text, label in label_of.items():
        turned = text.replace(" not ", " ") if " not " in text else text.replace("was", "was not")
        assert label_of.get(turned, "neither") != label
    shares = [sum(label == "good" for label in found.parts[part][1]) / len(found.parts[part][1])
              for part in PARTS]  # fmt: skip
    assert all(0.4 < share < 0.6 for share in shares)
    with pytest.raises(UserError, match=r"data \(phrases:9\) must be phrases"):
        samples("phrases:9", kind="labelled")


# ------------------------------------------------------------------------------------------- real


@pytest.mark.parametrize("name", NO_SOURCE)
def test_without_a_source_one_line_says_where_to_put_which_file(name, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("EVERYNET_DATA", raising=False)
    kind, (form,) = everything()[name].kind, everything()[name].forms
    with pytest.raises(UserError, match=f"{name} is not here and has no source; put ") as caught:
        samples(name, kind=kind)
    said = str(caught.value)
    assert "\n" not in said
    assert all(f"{c.name} (SHA-256 {c.sha256})" in said for c in form.contents)
    assert said.endswith(str(tmp_path / "everynet" / "data" / form.folder))


def test_some_sets_have_no_source():
    assert {"chitchat", "ubuntu-irc", "sst", "sst-fine"} == set(NO_SOURCE)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("multi30k-de", "pairs", (29_000, 1_014, 1_000)),
        ("multi30k-fr", "pairs", (29_000, 1_014, 1_000)),
        ("ubuntu-irc", "pairs", (50_590, 2_025, 4_063)),
        ("sst", "labelled", (6_920, 872, 1_821)),
        ("sst-fine", "labelled", (8_544, 1_101, 2_210)),
    ],
)
def test_published_parts_have_their_counts(name, kind, expected):
    found = samples(name, kind=kind)
    assert counts(found) == expected
    assert (found.published, found.name) == (True, name)
    assert all(text.strip() for part in PARTS for side in found.parts[part] for text in side)


@pytest.mark.real_data
def test_captions_are_aligned():
    for language, first in (("de", "Zwei junge weiße Männer"), ("fr", "Deux jeunes hommes blancs")):
        left, right = samples(f"multi30k-{language}", kind="pairs").parts["train"]
        assert left[0].startswith("Two young, White males")
        assert right[0].startswith(first)


@pytest.mark.real_data
def test_degrees_of_feeling_are_in_order():
    data = load("sst-fine", kind="labelled", batch_size=32, vocabulary=5000)
    assert data.spec["classes"][0] == "very negative"
    assert data.spec["classes"][2:] == ["neutral", "positive", "very positive"]
    assert len(data.spec["tokens"]["vocabulary"]) == 5000
    found = samples("sst-fine", kind="labelled")
    assert found.parts["valid"][1][:3] == ["neutral", "negative", "negative"]


@pytest.mark.real_data
def test_a_conversation_stays_in_one_part_and_speakers_alternate():
    import gzip
    import json
    import os
    from itertools import pairwise
    from pathlib import Path

    found = samples("chitchat", kind="pairs")
    assert sum(counts(found)) == 131_548
    part_of = {}
    for part in PARTS:
        for pair in zip(*found.parts[part], strict=True):
            part_of.setdefault(pair, set()).add(part)
    path = Path(os.environ["EVERYNET_DATA"], "dialogue", "chitchat.jsonl")
    packed = Path(f"{path}.gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    for line in content.splitlines()[:500]:
        turns = json.loads(line)["turns"]
        pairs = [
            tuple(" ".join(text.split()) for _, text in two)
            for two in pairwise(turns)
            if two[0][0] != two[1][0]
        ]
        places = [part_of[pair] for pair in pairs if all(pair)]
        if places:
            assert set.intersection(*places), "one part holds every pair of a conversation"
