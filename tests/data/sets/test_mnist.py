import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from everynet.data.sets import mnist as idx
from tests.data.conftest import idx as written


@settings(max_examples=50)
@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=4, max_side=5)))
def test_what_was_written_is_read(array):
    np.testing.assert_array_equal(idx.parse(written(array)), array)


def test_the_bytes_are_in_row_major_order_with_the_sizes_most_significant_first():
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 11, 12, 20, 21, 22])
    assert idx.parse(content).tolist() == [[10, 11, 12], [20, 21, 22]]


def test_images_get_a_channel_and_labels_are_whole_numbers():
    pixels, labels = np.arange(24).reshape(2, 3, 4), np.array([9, 0])
    np.testing.assert_array_equal(idx.images(written(pixels)), pixels[:, None])
    assert idx.labels(written(labels), 10).tolist() == [9, 0]
    assert idx.labels(written(labels), 10).dtype == np.int64


@given(st.binary(max_size=40))
def test_any_bytes_are_an_array_of_just_their_length_or_refused(content):
    try:
        array = idx.parse(content)
    except ValueError:
        return
    assert array.size == len(content) - 4 - 4 * array.ndim


def test_every_cut_is_refused():
    content = written(np.arange(24).reshape(2, 3, 4))
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"cut short|promises 2 x 3 x 4 = 24 bytes, but"):
            idx.parse(content[:length])


@pytest.mark.parametrize("sizes", [(2**32 - 1,) * 3, (2**31, 2**31, 4), (60_000, 2**32 - 1, 28)])
def test_huge_dimensions_are_refused_before_anything_is_allocated(sizes):
    content = struct.pack(">HBB3I", 0, 8, 3, *sizes) + bytes(100)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"promises {sizes[0]} x .* but 100 follow"):
        idx.parse(content)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut short: 0 of at least 8 bytes"),
        (b"\x89PNG\r\n\x1a\n", "two zero bytes, not 89 50"),
        (b"\0\0\x0d\x01\0\0\0\0", r"type \(13\) must be 8"),
        (b"\0\0\x08\0", "names 0 dimensions"),
        (b"\0\0\x08\x05" + bytes(20), "names 5 dimensions, not 1 to 4"),
        (written(np.zeros(3)) + b"\0", "promises 3 = 3 bytes, but 4 follow"),
    ],
)
def test_messages(content, words):
    with pytest.raises(ValueError, match=words):
        idx.parse(content)


def test_images_and_labels_say_what_they_want():
    with pytest.raises(ValueError, match=r"count x height x width, not \(3,\)"):
        idx.images(written(np.zeros(3)))
    with pytest.raises(ValueError, match=r"count x height x width, not \(0, 2, 2\)"):
        idx.images(written(np.zeros((0, 2, 2))))
    with pytest.raises(ValueError, match="one dimension, not 2"):
        idx.labels(written(np.zeros((3, 3))), 10)
    with pytest.raises(ValueError, match="label 10 must be below 10"):
        idx.labels(written(np.array([0, 10, 3])), 10)
