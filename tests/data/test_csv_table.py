"""csv files: numbers, classes and real targets arrive as written, whatever the file looks like."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data import csv_table as table
from everynet.data.split import PARTS
from everynet.types import UserError

from .either import load


def whole(raw):
    """x and y of all parts in the order of the file."""
    order = torch.cat([raw.rows[part] for part in PARTS]).argsort()
    return tuple(torch.cat([raw.parts[part][i] for part in PARTS])[order] for i in (0, 1))


def write(tmp_path, text, name="a.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def body(targets):
    return "".join(f"{row},{row * row / 7},{target}\n" for row, target in enumerate(targets))


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.tuples(finite, finite), min_size=12, max_size=40))
def test_numbers_arrive_bit_for_bit(tmp_path_factory, values):
    """Whatever float64 is written, with repr, is read again."""
    lines = [f"{a!r},{b!r},oak" for a, b in values]
    path = tmp_path_factory.mktemp("t") / "a.csv"
    path.write_text("a,b,tree\n" + "\n".join(lines))
    assert np.array_equal(table.columns(path, ["a", "b"]).numpy(), np.array(values))


def test_a_whole_number_that_is_missing_in_training_gets_advice(tmp_path):
    path = write(tmp_path, "a,b,n\n" + body(range(40)))
    with pytest.raises(UserError, match=r"class \d+ has no training sample; .*point \(3.0\)"):
        table.read(path, "n")


def test_words_are_classes_in_the_order_of_the_alphabet(tmp_path):
    path = write(tmp_path, "a,b,tree\n" + body(["oak", "ash", "yew"] * 20))
    raw = table.read(path, "tree")
    x, y = whole(raw)
    assert raw.classes == ("ash", "oak", "yew")
    assert y.tolist() == [1, 0, 2] * 20
    assert x[5].tolist() == [5.0, 25 / 7]
    assert raw.features == ("a", "b")
    assert raw.task == "classification"


def test_few_whole_numbers_are_classes_in_their_own_order(tmp_path):
    raw = table.read(write(tmp_path, "a,b,n\n" + body([10, 9, -2] * 20)), "n")
    assert raw.classes == ("-2", "9", "10")
    assert whole(raw)[1].tolist() == [2, 1, 0] * 20


def test_many_whole_numbers_and_decimals_are_real(tmp_path):
    raw = table.read(write(tmp_path, "a,b,n\n" + body(range(51))), "n")
    assert raw.task == "regression"
    assert whole(raw)[1].tolist() == [float(n) for n in range(51)]
    raw = table.read(write(tmp_path, "a,b,n\n" + body([1.0, 2.0] * 20)), "n")
    assert raw.classes == ()
    assert whole(raw)[1].dtype == torch.float64
    assert len(table.read(write(tmp_path, "a,b,n\n" + body([*range(50)] * 10)), "n").classes) == 50


def test_the_target_may_be_any_column(tmp_path):
    text = "a,tree,b\n" + "".join(f"{i},{'xy'[i % 2]},{-i}\n" for i in range(40))
    raw = table.read(write(tmp_path, text), "tree")
    assert whole(raw)[0][7].tolist() == [7.0, -7.0]
    assert raw.features == ("a", "b")


def test_a_mark_at_the_start_windows_lines_quotes_and_blank_ends(tmp_path):
    plain = "a,b,tree\n" + body(["oak", "ash"] * 20)
    wanted = whole(table.read(write(tmp_path, plain), "tree"))
    quoted = '"a", b ,"tree"\n' + plain.split("\n", 1)[1].replace("oak", '"oak"')
    for text, encoding in (
        (plain, "utf-8-sig"),
        (plain.replace("\n", "\r\n"), "utf-8"),
        (plain + "\n\n", "utf-8"),
        (plain.rstrip("\n"), "utf-8"),
        (quoted, "utf-8"),
    ):
        raw = table.read(write(tmp_path, text, encoding=encoding), "tree")
        assert raw.features == ("a", "b")
        found = whole(raw)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


def test_a_long_file_is_read_in_chunks(tmp_path):
    count = 10_000
    text = "a,b,tree\n" + body(["oak", "ash"] * (count // 2))
    x, _ = whole(table.read(write(tmp_path, text), "tree"))
    assert x.shape == (count, 2)
    assert x[:, 0].tolist() == list(range(count))
    bad = text.replace("9000,", "nine,", 1)
    with pytest.raises(UserError, match=r"line 9002, column a \(nine\) must be a number"):
        table.read(write(tmp_path, bad), "tree")


def test_rows_stay_in_their_parts_when_others_are_appended(tmp_path):
    text = "a,b,tree\n" + body(["oak", "ash"] * 30)
    before = table.read(write(tmp_path, text), "tree").rows
    after = table.read(write(tmp_path, text + body(["oak", "ash"] * 30)), "tree").rows
    for part in PARTS:
        assert before[part].tolist() == [row for row in after[part].tolist() if row < 60]


def test_the_digest_sees_contents_and_target(tmp_path):
    path = write(tmp_path, "a,b,n\n" + body([1, 2] * 20))
    first = table.read(path, "n").digest
    assert table.read(path, "b").digest != first
    path = write(tmp_path, "a,b,n\n" + body([2, 1] * 20))
    assert table.read(path, "n").digest != first


def test_load_standardises_by_the_training_rows(tmp_path):
    path = write(tmp_path, "a,b,tree\n" + body(["oak", "ash"] * 30))
    data, raw = load(path, batch_size=4, target="tree"), table.read(path, "tree")
    x = raw.parts["train"][0]
    assert data.spec["mean"] == pytest.approx(x.mean(0).tolist())
    torch.testing.assert_close(
        data.splits["test"][0], (raw.parts["test"][0] - x.mean(0)) / x.std(0, correction=0)
    )
    assert data.spec["features"] == ["a", "b"]


@pytest.mark.parametrize("value", ["3", "0.1", "1e300"])
def test_a_constant_column_becomes_zero(tmp_path, value):
    text = "a,b,tree\n" + "".join(f"{i},{value},{'xy'[i % 2]}\n" for i in range(40))
    data = load(write(tmp_path, text), batch_size=4, target="tree")
    assert data.splits["train"][0][:, 1].abs().max() == 0
    assert data.spec["mean"][1] == float(value)
    assert data.spec["std"][1] == 1.0


def test_values_too_large_for_a_mean_are_refused(tmp_path):
    text = "a,b,tree\n" + "".join(f"{i},{i}e307,{'xy'[i % 2]}\n" for i in range(17))
    with pytest.raises(UserError, match="csv: column b has values too large"):
        load(write(tmp_path, text), batch_size=4, target="tree")
    with pytest.raises(UserError, match="csv: the target has values too large"):
        load(write(tmp_path, text.replace("x", "1").replace("y", "2")), batch_size=4, target="b")


@pytest.mark.parametrize("cell", ["nan", "inf", "1e999"])
def test_a_number_must_be_finite(tmp_path, cell):
    assert not math.isfinite(float(cell))
    path = write(tmp_path, "a,b,tree\n" + body(["oak", "ash"] * 20) + f"1,{cell},oak\n")
    with pytest.raises(UserError, match=rf"line 42, column b \({cell}\) must be a finite number"):
        load(path, batch_size=4, target="tree")


def test_columns_that_are_asked_for_must_be_there(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n")
    with pytest.raises(UserError, match="has no column c; the nearest are"):
        table.columns(path, ["a", "c"])
    with pytest.raises(UserError, match="must have rows below its header"):
        table.columns(write(tmp_path, "a,b\n"), ["a"])
