import io
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everynet.data.sets import cifar

RANDOM = np.random.default_rng(0)


def record(label, red, green, blue):
    return bytes([label]) + bytes([red] * 1024 + [green] * 1024 + [blue] * 1024)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_a_record_is_a_label_and_three_planes():
    x, y = cifar.binary([record(3, 10, 20, 30) + record(9, 1, 2, 3), record(0, 7, 8, 9)])
    assert y.tolist() == [3, 9, 0]
    assert x.shape == (3, 3, 32, 32)
    assert x[:, :, 5, 5].tolist() == [[10, 20, 30], [1, 2, 3], [7, 8, 9]]


def test_rows_come_before_columns():
    pixels = RANDOM.integers(0, 256, (3, 32, 32), dtype=np.uint8)
    x, _ = cifar.binary([b"\x05" + pixels.tobytes()])
    np.testing.assert_array_equal(x[0], pixels)


def test_both_forms_hold_the_same_images():
    """The same images written as records and as arrays, colours last, are read alike."""
    x = RANDOM.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
    y = RANDOM.integers(0, 10, 6, dtype=np.uint8)
    records = b"".join(bytes([label]) + image.tobytes() for label, image in zip(y, x, strict=True))
    for found in (cifar.binary([records]), cifar.npy(npy(x.transpose(0, 2, 3, 1).copy()), npy(y))):
        np.testing.assert_array_equal(found[0], x)
        np.testing.assert_array_equal(found[1], y)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 5))
def test_the_first_of_each_class_in_the_order_they_stand_in(labels, count):
    y = np.array(labels)
    x = np.zeros((len(y), 3, 32, 32), np.uint8)
    x[:, 0, 0, 0] = np.arange(len(y))
    kept, classes = cifar.first_of_each(x, y, count)
    seen, expected = dict.fromkeys(range(10), 0), []
    for row, label in enumerate(labels):
        seen[label] += 1
        expected += [row] if seen[label] <= count else []
    assert kept[:, 0, 0, 0].tolist() == expected
    assert classes.tolist() == [labels[row] for row in expected]


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_a_part_of_a_record_is_refused(length):
    with pytest.raises(ValueError, match="not a whole number of records of 3,073 bytes"):
        cifar.binary([bytes(length)])


def test_labels_are_below_ten():
    with pytest.raises(ValueError, match="label 10 must be below 10"):
        cifar.binary([record(10, 0, 0, 0)])
    with pytest.raises(ValueError, match="label 255 must be below 10"):
        cifar.npy(npy(np.zeros((1, 32, 32, 3), np.uint8)), npy(np.array([255], np.uint8)))


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((2, 32, 32, 3)), np.zeros(2, np.uint8), "must be uint8, count x 32 x 32 x 3"),
        (np.zeros((2, 3, 32, 32), np.uint8), np.zeros(2, np.uint8), r"not uint8 \(2, 3, 32, 32\)"),
        (np.zeros((2, 32, 32, 3), np.uint8), np.zeros(3, np.uint8), "labels must be 2 of uint8"),
        (np.zeros((2, 32, 32, 3), np.uint8), np.zeros(2), "2 of uint8, not float64"),
        (np.asfortranarray(np.zeros((2, 32, 32, 3), np.uint8)), np.zeros(2), "row-major"),
        (np.array([{}, 3]), np.zeros(2), "plain and row-major, not object"),
    ],
)
def test_wrong_arrays(x, y, words):
    with pytest.raises(ValueError, match=words):
        cifar.npy(npy(x), npy(y))


def test_a_header_is_held_against_the_bytes_that_follow():
    whole = npy(np.zeros((2, 32, 32, 3), np.uint8))
    huge = whole.replace(b"(2, 32, 32, 3)", b"(2000000000,3)")
    labels = npy(np.zeros(2, np.uint8))
    tracemalloc.start()
    below = whole.replace(b"(2, 32, 32, 3)", b"(-2,-32,32, 3)")
    for broken in (whole[:-1], whole + b"\0", huge, below):
        with pytest.raises(ValueError, match="the npy header promises"):
            cifar.npy(broken, labels)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@given(st.integers(0, 127), st.binary(min_size=1, max_size=8))
@example(7, b"\0")  # changes nothing
@example(100, b" \t")  # space for space
def test_a_damaged_header_is_a_value_error_or_the_same_array(place, rubbish):
    pixels = RANDOM.integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    whole = npy(pixels)
    rubbish = rubbish[: 128 - place]  # of the header alone
    broken = whole[:place] + rubbish + whole[place + len(rubbish) :]
    try:
        x, _ = cifar.npy(broken, npy(np.zeros(1, np.uint8)))
    except ValueError:
        return
    np.testing.assert_array_equal(x, pixels.transpose(0, 3, 1, 2))


def test_another_version_of_npy_is_refused():
    whole = bytearray(npy(np.zeros((1, 32, 32, 3), np.uint8)))
    whole[6] = 2
    with pytest.raises(ValueError, match=r"version is \(2, 0\), not \(1, 0\)"):
        cifar.npy(bytes(whole), npy(np.zeros(1, np.uint8)))
