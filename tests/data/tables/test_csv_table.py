"""csv files: numbers, classes and real targets arrive as written, whatever the file looks like."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everynet.data.split import PARTS
from everynet.data.tables import csv_table as table
from everynet.system.errors import UserError
from tests.data.either import load


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
    assert np.array_equal(
        table.features_like({"features": ["a", "b"]}, path).numpy(), np.array(values)
    )


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


def test_a_mark_at_tinit_he_weights_windows_lines_quotes_and_blank_ends(tmp_path):
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
    said = r"line 9002, column a \(nine\) must be a number, as others .*; leave it empty .* drop=a"
    with pytest.raises(UserError, match=said):
        table.read(write(tmp_path, bad), "tree")


def test_rows_of_a_real_target_stay_in_their_parts_when_others_are_appended(tmp_path):
    text = "a,b,n\n" + body([0.5, 1.5] * 30)
    before = table.read(write(tmp_path, text), "n").rows
    after = table.read(write(tmp_path, text + body([0.5, 1.5] * 30)), "n").rows
    for part in PARTS:
        assert before[part].tolist() == [row for row in after[part].tolist() if row < 60]


def test_every_class_has_its_share_of_every_part(tmp_path):
    words = ["oak"] * 100 + ["ash"] * 20 + ["yew"] * 1
    raw = table.read(write(tmp_path, "a,b,tree\n" + body(words)), "tree")
    counts = {part: torch.bincount(raw.parts[part][1], minlength=3).tolist() for part in PARTS}
    assert counts == {"train": [14, 72, 1], "valid": [2, 8, 0], "test": [4, 20, 0]}
    assert sorted(torch.cat([raw.rows[part] for part in PARTS]).tolist()) == list(range(121))


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


@pytest.mark.parametrize("cell", ["-inf", "inf", "1e999"])
def test_a_number_must_be_finite(tmp_path, cell):
    assert not math.isfinite(float(cell))
    path = write(tmp_path, "a,b,tree\n" + body(["oak", "ash"] * 20) + f"1,{cell},oak\n")
    with pytest.raises(UserError, match=rf"line 42, column b \({cell}\) must be a finite number"):
        load(path, batch_size=4, target="tree")


def test_columns_that_are_asked_for_must_be_there(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n")
    with pytest.raises(UserError, match="has no column c; did you mean"):
        table.features_like({"features": ["a", "c"]}, path)
    with pytest.raises(UserError, match="must have rows below its header"):
        table.features_like({"features": ["a"]}, write(tmp_path, "a,b\n"))


# ------------------------------------------------------------------------- however it is written


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_separators_and_encodings(tmp_path, separator, encoding):
    plain = "a,größe,tree\n" + body(["Eiche", "Ulme, grün"] * 20).replace("Ulme, grün", "Ulme grün")
    wanted = table.read(write(tmp_path, plain), "tree")
    text = plain.replace(",", separator)
    found = table.read(write(tmp_path, text, encoding=encoding), "tree")
    assert found.features == wanted.features == ("a", "größe")
    assert found.classes == ("Eiche", "Ulme grün")
    assert torch.equal(whole(found)[0], whole(wanted)[0])
    name = {";": "semicolon", "\t": "tab", "|": "bar"}[separator]
    said = {"latin-1": "LATIN-1", "utf-16": "UTF-16"}.get(encoding, "UTF-8")
    assert found.facts["written"] == f"{name}-separated, {said}"


def test_quoted_headers_may_hold_the_separator(tmp_path):
    text = '"length, cm";"width";"tree"\n' + "".join(f"{i};{-i};{'xy'[i % 2]}\n" for i in range(40))
    assert table.read(write(tmp_path, text), "tree").features == ("length, cm", "width")


def test_decimal_commas(tmp_path):
    rows = [f"{i},5;1.234,{i:02};{'xy'[i % 2]}" for i in range(40)]
    rows[3] = rows[3].replace("3,5", "3")  # a whole number has none
    x, _ = whole(table.read(write(tmp_path, "a;b;tree\n" + "\n".join(rows)), "tree"))
    assert x[:4].tolist() == [[0.5, 1234.0], [1.5, 1234.01], [2.5, 1234.02], [3.0, 1234.03]]


def test_a_comma_that_may_be_of_thousands_is_not_guessed(tmp_path):
    rows = [f"1,{i:03};{'xy'[i % 2]}" for i in range(40)]
    said = r"column a, line 2 \(1,000\) can be read in two ways; write 1000 or 1.000"
    with pytest.raises(UserError, match=said):
        table.read(write(tmp_path, "a;tree\n" + "\n".join(rows)), "tree")


def test_what_is_too_large_for_a_number_is_said_to_be_so(tmp_path):
    rows = [f"{i};{'xy'[i % 2]}" for i in range(40)]
    rows[7] = "1e400;x"
    with pytest.raises(UserError, match=r"line 9, column a \(1e400\) must be a finite number"):
        table.read(write(tmp_path, "a;tree\n" + "\n".join(rows)), "tree")
    rows = [f"{i},5;{'xy'[i % 2]}" for i in range(40)]
    rows[7] = "1,5e400;x"
    with pytest.raises(UserError, match=r"line 9, column a \(1,5e400\) must be a number"):
        table.read(write(tmp_path, "a;tree\n" + "\n".join(rows)), "tree")


def test_an_underscore_is_in_no_number(tmp_path):
    """Python takes 1_2 for 12; in a table it is an identifier."""
    rows = [f"{i % 3}_1;{i};{'xy'[i % 2]}" for i in range(40)]
    data = table.read(write(tmp_path, "a;b;tree\n" + "\n".join(rows)), "tree")
    assert [column["form"] for column in data.columns] == ["category", "number"]
    rows = [f"{i};{'xy'[i % 2]}" for i in range(40)]
    rows[7] = "1_2;x"
    with pytest.raises(UserError, match=r"line 9, column a \(1_2\) must be a number"):
        table.read(write(tmp_path, "a;tree\n" + "\n".join(rows)), "tree")


def test_a_cell_of_many_digits_is_not_printed_whole(tmp_path):
    rows = [f"{i};{'xy'[i % 2]}" for i in range(40)]
    rows[7] = "1" * 100_000 + ";x"
    with pytest.raises(UserError, match=r"\(1+\.\.\.1+\) must be a finite number") as refused:
        table.read(write(tmp_path, "a;tree\n" + "\n".join(rows)), "tree")
    assert len(str(refused.value)) < 400


def test_another_column_with_decimal_commas_tells_how_a_file_is_written(tmp_path):
    rows = [f"1,{i:03};{i},5;{'xy'[i % 2]}" for i in range(40)]
    x, _ = whole(table.read(write(tmp_path, "a;b;tree\n" + "\n".join(rows)), "tree"))
    assert x[7].tolist() == [1.007, 7.5]


@pytest.mark.parametrize("gap", ["", ";NA"])
def test_points_beside_decimal_commas_may_be_of_thousands_and_are_not_guessed(tmp_path, gap):
    """999 and then 1.000, which is one more."""
    rows = [f"{f'{990 + i:,}'.replace(',', '.')};{i},5;{'xy'[i % 2]}" for i in range(40)]
    rows += [f"NA;1,5;{'xy'[i % 2]}" for i in range(2)] if gap else []
    said = r"column a, line 12 \(1.000\) can be read in two ways; write 1000 or 1,000"
    with pytest.raises(UserError, match=said):
        table.read(write(tmp_path, "a;b;tree\n" + "\n".join(rows)), "tree")
    rows[5] = "99.5;0,5;x"  # plainly a decimal point: this column is written in another way
    x, _ = whole(table.read(write(tmp_path, "a;b;tree\n" + "\n".join(rows)), "tree"))
    assert x[10][:2].tolist() == [1.0, 10.5] or x[10][0] == 1.0


# ------------------------------------------------------------------------------- forms of columns


def columns(tmp_path, cells, targets="xy", **options):
    rows = [f"{cell};{targets[i % len(targets)]}" for i, cell in enumerate(cells)]
    return table.read(write(tmp_path, "a;n\n" + "\n".join(rows)), "n", **options)


@pytest.mark.covers("D1")
@pytest.mark.parametrize("sign", ["", "NA", "n/a", "NaN", "null", "None", "?", "  "])
def test_a_missing_number_is_the_median_of_training_with_a_flag(tmp_path, sign):
    cells = [str(i * i) for i in range(60)]
    gone = [4, 17, 30, 31, 50]
    for row in gone:
        cells[row] = sign
    raw = columns(tmp_path, cells)
    x, _ = whole(raw)
    assert raw.features == ("a", "a is missing")
    assert x[:, 1].nonzero()[:, 0].tolist() == gone
    train = [row for row in raw.rows["train"].tolist() if row not in gone]
    assert x[gone, 0].tolist() == [float(np.median([row * row for row in train]))] * len(gone)
    assert x[5].tolist() == [25.0, 0.0]


def test_a_category_is_a_column_for_each_common_value_and_one_for_the_others(tmp_path):
    cells = ["red", "blue"] * 30 + ["mauve", "puce", ""]
    raw = columns(tmp_path, cells)
    x, _ = whole(raw)
    held = {cells[row] for row in raw.rows["train"].tolist()}
    assert raw.features[:2] == ("a=blue", "a=red")
    assert ("a=other" in raw.features) == bool(held & {"mauve", "puce"})
    assert ("a=missing" in raw.features) == ("" in held)
    assert x[:2, :2].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    if "a=other" in raw.features:
        assert x[60:62, raw.features.index("a=other")].tolist() == [1.0, 1.0]
    other = write(tmp_path, "a\nred\nnever seen\n", "b.csv")
    again = table.features_like({"columns": raw.columns}, other)
    assert again[0].tolist() == x[0].tolist()
    assert again[1, :2].tolist() == [0.0, 0.0]


def test_at_most_fifty_values_are_told_apart(tmp_path):
    raw = columns(tmp_path, [f"v{i % 70:02}" for i in range(1400)])
    assert len(raw.features) == 51
    assert raw.features[-1] == "a=other"


@pytest.mark.parametrize(
    ("first", "wanted"),
    [
        ("2024-05-31", [2024, 5, 4]),
        ("31.05.2024", [2024, 5, 4]),
        ("31/5/2024", [2024, 5, 4]),
        ("5/31/2024", [2024, 5, 4]),
        ("1969-12-28", [1969, 12, 6]),
        ("2024-05-31T18:30", [2024, 5, 4, 18.5]),
        ("2024-05-31 18:30:36", [2024, 5, 4, 18.51]),
    ],
)
def test_dates(tmp_path, first, wanted):
    raw = columns(tmp_path, [first] * 40)
    assert raw.features == ("a year", "a month", "a weekday", "a hour")[: len(wanted)]
    assert whole(raw)[0][0].tolist() == pytest.approx(wanted)


def test_dates_that_may_begin_with_day_or_month_are_not_guessed(tmp_path):
    said = "column a holds dates that may begin with the day or the month; write .* drop=a"
    with pytest.raises(UserError, match=said):
        columns(tmp_path, ["05/04/2024", "6/7/2023"] * 20)


def test_columns_that_cannot_help_are_named(tmp_path):
    rows = [f"{i},{i % 5}.5,7,,u{i},{'xy'[i % 2]}" for i in range(60)]
    path = write(tmp_path, "id,a,same,none,user,tree\n" + "\n".join(rows))
    raw = table.read(path, "tree")
    assert raw.features == ("id", "a", "same")
    assert [line.split(",")[0].split(":")[0] for line in raw.remarks] == [
        "column id is another whole number in every row",
        "column same is the same in every row and tells nothing",
        "column none is empty and is left out",
        "column user is left out",
    ]
    assert table.read(path, "tree", drop=("id", "same")).features == ("a",)
    assert raw.facts["columns"] == "3 numbers, 1 categories, 1 empty"


def test_the_task_of_whole_numbers_can_be_said(tmp_path):
    cells = [str(i % 7) for i in range(60)]
    raw = columns(tmp_path, cells, targets="123")
    assert raw.classes == ("1", "2", "3")
    assert "target n is of 3 whole numbers, which are learned as classes" in raw.remarks[-1]
    raw = columns(tmp_path, cells, targets="123", task="regression")
    assert (raw.classes, raw.task, raw.remarks) == ((), "regression", ())
    assert whole(raw)[1][:3].tolist() == [1.0, 2.0, 3.0]
    raw = columns(tmp_path, cells, targets=["0.5", "1.5"], task="classification")
    assert raw.classes == ("0.5", "1.5")


@pytest.mark.parametrize(
    ("targets", "options", "said"),
    [
        ("xy", {"task": "regression"}, "column n must hold numbers"),
        (
            "xy",
            {"task": "sorting"},
            r"task \(sorting\) must be empty, classification or regression",
        ),
        (["2024-01-31"], {}, "column n must hold numbers"),
        (
            [f"{i}.5" for i in range(60)],
            {"task": "classification"},
            "60 different numbers",
        ),
        ([f"w{i}" for i in range(60)], {}, "60 different words in 60 rows, too many to be classes"),
        ("xy", {"drop": ("b",)}, "has no column b"),
        ("xy", {"drop": ("n",)}, r"drop \(n\) must not name the target"),
        ("xy", {"drop": ("a",)}, "must have a column besides its target n"),
        (["", "?"], {}, "column n is empty in every row, and it is to be learned; name another"),
    ],
)
def test_what_cannot_be_learned_is_said(tmp_path, targets, options, said):
    with pytest.raises(UserError, match=said):
        columns(tmp_path, [str(i % 7) for i in range(60)], targets, **options)


def test_a_table_of_nothing_but_names_is_refused(tmp_path):
    with pytest.raises(UserError, match="must have a column that tells something of its target"):
        columns(tmp_path, [f"name {i}" for i in range(60)])


def test_what_was_learned_is_applied_to_what_is_asked(tmp_path):
    rows = [f"{i % 9},{('ash', 'oak')[i % 2]},2024-01-{1 + i % 28:02},{i * 0.5}" for i in range(80)]
    rows[3] = ",oak,2024-01-04,1.5"
    path = write(tmp_path, "size,tree,day,price\n" + "\n".join(rows))
    raw = table.read(path, "price")
    turned = write(tmp_path, "day;tree;size;more\n2024-01-04;oak;;1\n", "b.csv")
    row = int((raw.rows["train"] == 3).nonzero()[0]) if 3 in raw.rows["train"] else None
    if row is not None:
        assert table.features_like({"columns": raw.columns}, turned)[0].equal(
            raw.parts["train"][0][row]
        )
    bad = write(tmp_path, "day,tree,size\n2024-01-04,oak,big\n", "c.csv")
    said = r"line 2, column size \(big\) must be a number, .*; leave it empty where none is known$"
    with pytest.raises(UserError, match=said):
        table.features_like({"columns": raw.columns}, bad)
