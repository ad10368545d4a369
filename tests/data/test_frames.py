"""Frames of every library come through one door, and equal ones are equal."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from everynet.data import loading
from everynet.data.in_memory import given, holding
from everynet.data.split import PARTS
from everynet.system.errors import UserError

from .frame import Frame

N = 60
SIZES = np.random.default_rng(5).normal(size=N).round(3)
SIZES[[4, 40]] = np.nan
DAYS = np.datetime64("2024-01-30T07:30", "s") + np.arange(N) * np.timedelta64(40, "h")
WORDS = np.array([("red", "green", "")[k % 3] for k in range(N)], object)
PLAIN = {
    "size": SIZES, "count": np.arange(N) % 9, "new": np.arange(N) % 4 == 0, "day": DAYS,
    "colour": WORDS, "label": np.array(["yes", "no"] * (N // 2), object),
}  # fmt: skip
"""What an old frame gives: arrays by their names."""
ARROW = pa.table(
    {name: cells if cells.dtype.kind != "O" else list(cells) for name, cells in PLAIN.items()}
)
LIBRARIES = {
    "pandas": pd.DataFrame(PLAIN),
    "polars": pl.from_arrow(ARROW),
    "pyarrow": ARROW,
    "batches": ARROW.to_batches(max_chunksize=17),
}


def frame(name):
    found = LIBRARIES[name]
    return pa.Table.from_batches(found) if isinstance(found, list) else found


def held(data, **options):
    found = given(data)
    with holding(found):
        return loading.samples(found.name, kind="table", **options)


@pytest.mark.parametrize("name", LIBRARIES)
def test_equal_frames_are_equal_to_the_arrays_of_them(name):
    wanted, found = given(Frame(PLAIN)), given(frame(name))
    assert found.digest == wanted.digest
    first, second = held(Frame(PLAIN), target="label"), held(frame(name), target="label")
    assert first.columns == second.columns
    for part in PARTS:
        assert torch.equal(first.parts[part][0], second.parts[part][0])
        assert torch.equal(first.parts[part][1], second.parts[part][1])


def test_a_reader_that_is_no_frame():
    reader = pa.RecordBatchReader.from_batches(ARROW.schema, ARROW.to_batches(max_chunksize=9))
    assert given(reader).digest == given(ARROW).digest


def test_categories_are_such_in_every_library():
    codes = [str(7 + k % 3) for k in range(N)]
    wanted = given(Frame({"code": np.array(codes, object), "y": np.arange(N) % 2}, ("code",)))
    for data in (
        pd.DataFrame({"code": pd.Categorical(codes), "y": np.arange(N) % 2}),
        pl.DataFrame({"code": pl.Series(codes, dtype=pl.Categorical), "y": np.arange(N) % 2}),
        pa.table({"code": pa.array(codes).dictionary_encode(), "y": np.arange(N) % 2}),
    ):
        assert given(data).digest == wanted.digest
        assert held(data, target="y").columns[0]["form"] == "category"


def test_objects_of_several_types_are_words():
    mixed = pd.DataFrame({"a": [1, "x", None, 2.5] * 15, "y": [0, 1] * 30})
    assert (
        given(mixed).digest == given(Frame({name: mixed[name].to_numpy() for name in mixed})).digest
    )


def test_missing_whole_numbers_and_truths():
    frames = (
        pd.DataFrame({"a": pd.array([1, None, 3] * 20, dtype="Int64"), "y": [0, 1] * 30}),
        pl.DataFrame({"a": [1, None, 3] * 20, "y": [0, 1] * 30}),
        pa.table({"a": [1, None, 3] * 20, "y": [0, 1] * 30}),
    )
    assert len({given(data).digest for data in frames}) == 1
    assert held(frames[0], target="y").features == ("a", "a is missing")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (pa.table({"a": [[1], [2]]}), r"a \(list<.*\) must hold numbers, words or dates; change"),
        (pl.DataFrame({"a": [{"b": 1}]}), r"a \(struct<b.*\) must hold numbers, words or dates"),
        (
            pa.table([[1], [2]], names=["a", "a"]),
            "data names column a twice; give each its own name",
        ),
        (pa.table({}), r"data \(a frame without columns\) must have some"),
    ],
)
def test_frames_that_cannot_be_taken(data, line):
    with pytest.raises(UserError, match=line):
        given(data)
