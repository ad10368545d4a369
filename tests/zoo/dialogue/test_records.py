"""Records: their fields, the round trip, and what is drawn into them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everynet.system.errors import UserError
from everynet.zoo.dialogue.records import (
    Record,
    flatten_record,
    from_json_lines,
    make_evaluation_records,
    make_training_records,
    parse_record,
    to_json_lines,
)

said = st.lists(st.integers(0, 99), max_size=6).map(tuple)
nine = st.lists(said, min_size=9, max_size=9).map(tuple)
records = st.one_of(
    st.tuples(said, said, st.integers(0, 1)), st.tuples(said, said, st.none(), nine)
)
PAIRS = [((n, n + 1), (100 + n,)) for n in range(12)]


@pytest.mark.covers("R37")
@given(st.lists(records, max_size=4))
def test_records_come_back(some):
    some = [Record(*fields) for fields in some]
    assert [parse_record(flatten_record(record, 6)) for record in some] == some
    assert from_json_lines(to_json_lines(some, 8)) == some


@pytest.mark.covers("R37")
def test_the_fields_are_those_of_the_row():
    names = ["context", "context_len", "utterance", "utterance_len"]
    fields = flatten_record(Record((5, 6), (7,), 1), 3)
    assert fields == {
        "context": [5, 6, 0], "context_len": 2, "utterance": [7, 0, 0], "utterance_len": 1,
        "label": 1,
    }  # fmt: skip
    others = [f"distractor_{n}{end}" for n in range(9) for end in ("", "_len")]
    assert list(flatten_record(Record((1,), (2,), None, ((3,),) * 9), 3)) == [*names, *others]


def test_half_of_the_replies_are_true():
    found = list(make_training_records(PAIRS, torch.Generator().manual_seed(0)))
    assert [record.label for record in found] == [1, 0] * 12
    for record in found:
        true = dict(PAIRS)[record.context] == record.utterance
        assert true == bool(record.label)
    assert len({record.utterance for record in found[1::2]}) > 4
    assert found == list(make_training_records(PAIRS, torch.Generator().manual_seed(0)))


def test_nine_others_are_drawn_and_none_twice():
    for record in make_evaluation_records(PAIRS, torch.Generator().manual_seed(0)):
        assert dict(PAIRS)[record.context] == record.utterance
        assert len({record.utterance, *record.distractors}) == 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Record((1,), (2,)), r"a record must have a label, for training, or dist"),
        (lambda: Record((1,), (2,), 1, ((3,),)), r"a record must have a label, .* never both"),
        (lambda: Record((1,), (2,), 2), r"label \(2\) must be 0 or 1"),
        (lambda: Record((1,), (2,), None, ((3,),)), r"distractors \(1\) must be 9, because the"),
        (
            lambda: flatten_record(Record((1,) * 4, (2,), 1), 3),
            r"context \(4 tokens\) must be at most len",
        ),
        (
            lambda: parse_record({"context": [1]}),
            r"a record must have the fields of one, but context_len",
        ),
        (
            lambda: from_json_lines('{"a": 1}\n'),
            r"line 1: a record must have the fields of one, but a is",
        ),
        (lambda: from_json_lines("[]"), r"line 1: a record must be fields with their values"),
        (lambda: from_json_lines("{"), r"line 1: Expecting property name"),
        (
            lambda: parse_record(bad(context_len=9)),
            r"context_len \(9\) must be where the padding of cont",
        ),
        (
            lambda: parse_record(bad(context_len=1)),
            r"context_len \(1\) must be where the padding of cont",
        ),
        (lambda: parse_record(bad(context=["a"])), r"context must be a list of whole numbers"),
        (lambda: parse_record(bad(label=[1])), r"label \(\[1\]\) must be 0 or 1"),
        (
            lambda: list(make_training_records(PAIRS[:1], torch.Generator())),
            r"pairs \(1\) must be at least 2",
        ),
        (
            lambda: list(make_evaluation_records(PAIRS[:9], torch.Generator())),
            r"pairs \(9\) must be at least 10",
        ),
    ],
)
def test_what_it_refuses(make, message):
    with pytest.raises(UserError, match=message):
        make()


def bad(**fields):
    return flatten_record(Record((5, 6), (7,), 1), 3) | fields
