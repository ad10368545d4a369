"""Splits: fixed, apart, of the right size, and stable when samples are added."""

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.split import PARTS, by_hash, held_out, place, rows, stratified, three

few = settings(max_examples=25, deadline=None)
names = st.lists(st.text(min_size=1, max_size=12), min_size=3, max_size=60, unique=True)


def test_a_place_is_the_hash_of_purpose_and_key():
    """Closed form: the first 56 bits of SHA-256 as a fraction."""
    sha = hashlib.sha256(b"everynet test cat/1.png").hexdigest()
    assert place("cat/1.png", "test") == int(sha[:14], 16) / 2**56


def test_places_are_uniform_and_purposes_independent():
    """Mean 1/2 and correlation 0 within four standard errors of 4,000 keys."""
    a, b = (torch.tensor([place(key, name) for key in rows(4000)]) for name in ("test", "valid"))
    assert abs(a.mean() - 0.5) < 4 * (1 / 12 / 4000) ** 0.5
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 4 / 4000**0.5


def test_the_shares_of_many_rows():
    parts = by_hash(rows(20_000))
    assert parts.count("test") == pytest.approx(4000, abs=4 * (20_000 * 0.16) ** 0.5)
    assert parts.count("valid") == pytest.approx(1600, abs=4 * (16_000 * 0.09) ** 0.5)


@few
@given(first=names, second=names)
def test_a_key_stays_in_its_part_when_others_come(first, second):
    """Only a key that had to fill an empty part, or was beside one, may ever move."""
    everything = list(dict.fromkeys([*first, *second]))
    later = dict(zip(everything, by_hash(everything), strict=True))
    for key, part in zip(first, by_hash(first), strict=True):
        own = "test" if place(key, "test") < 0.2 else "train"
        own = "valid" if own == "train" and place(key, "valid") < 0.1 else own
        if part == own:
            assert later[key] == part


@few
@given(keys=names)
def test_what_is_held_out_is_never_nothing(keys):
    parts = by_hash(keys)
    assert "test" in parts
    assert "valid" in parts or parts.count("train") < 2


def test_parts_that_were_not_asked_for_get_none():
    assert set(by_hash(rows(50), ("train", "valid"))) == {"train", "valid"}
    assert set(by_hash(rows(50), ("train", "test"))) == {"train", "test"}


def test_a_single_key_is_not_held_out():
    """But where its place says so: there is nothing to fill an empty part with."""
    for key in rows(100):
        own = "valid" if place(key, "valid") < 0.1 else "train"
        assert by_hash([key]) == ["test" if place(key, "test") < 0.2 else own]
    assert {by_hash([key])[0] for key in rows(100)} == set(PARTS)
    assert held_out([], 0.2, "test").tolist() == []


@few
@pytest.mark.covers("D2")
@given(y=st.lists(st.integers(0, 4), min_size=10, max_size=200))
def test_stratified_takes_a_rounded_fifth_of_each_class(y):
    y = torch.tensor(y)
    test = stratified(y)
    for label in y.unique():
        members = y == label
        assert int((test & members).sum()) == round(0.2 * int(members.sum()))


def test_three_parts_are_apart_and_whole():
    parts = three(stratified(torch.arange(1000) % 5))
    assert torch.cat(list(parts.values())).sort().values.tolist() == list(range(1000))
    assert [len(parts[name]) for name in PARTS] == [720, 80, 200]


def test_the_choice_is_not_the_first_rows():
    chosen = three(stratified(torch.zeros(1000)))["test"].double()
    assert abs(chosen.mean() - 499.5) < 4 * 289 / 200**0.5
