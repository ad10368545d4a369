"""The columns of a csv file are what the rules say, cell by cell, however Arrow reads them."""

import csv
import io
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everynet.data.tables import cells
from everynet.data.tables.csv_lines import open_csv
from everynet.system.errors import UserError

from . import reference

ODD = [
    *("", " ", "NA", "nan", "n/a", "?", "Null", "none", "-", "--3", "+5", "1.", ".5", "-.5e3"),
    *("1_2", "0x10", "1e400", "-1e999", "inf", "-Infinity", "nan(1)", "007", "1d5", "½", "١٢"),
    *("1,5", "1.234", "1.234,5", "1,000", "12,345,678", "1.234.567", "0,5e3", "1,5e400", ",5"),
    *("2024-05-31", "31.05.2024", "5/31/2024", "05/04/2024", "2024-02-30", "0000-01-01"),
    *("2024-05-31T18:30", "2024-05-31 25:00", "31.5.2024 07:30:59.25+02:00", "1969-12-28Z"),
    *("red", " red ", "Red", "a,b", 'say "no"', "two\nlines", "\u3000x", "9" * 25, "1e5", "\x1f7"),
]
numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e6, 1e6).map(lambda x: f"{x:.2f}".replace(".", ",")),
    st.floats(0, 1e7).map(lambda x: f"{x:,.0f}".replace(",", ".")),
)
dates = st.dates().map(str) | st.dates().map(lambda day: f"{day.day}.{day.month}.{day.year:04}")
small = st.integers(0, 99).map(str)
words = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=6)


def mixed(cell, other, count):
    return [cell] * (9 - count) + [other] * count + [cell] * 3


columns = st.one_of(
    *(st.lists(st.one_of(kind, st.sampled_from(ODD[:7])), min_size=12, max_size=12)
      for kind in (numbers, dates, words, st.sampled_from(["red", "blue"]), small)),
    st.lists(st.sampled_from(ODD), min_size=12, max_size=12),
    st.tuples(st.sampled_from(ODD), st.sampled_from(ODD)).map(lambda two: mixed(*two, 3)),
    st.tuples(numbers, st.sampled_from(ODD)).map(lambda two: mixed(*two, 1)),
)  # fmt: skip
tables = st.lists(columns, min_size=2, max_size=4)


def outcome(rules, path, names):
    """The forms and the values of all columns, or how they are refused."""
    try:
        file = open_csv(path)
        found = rules.survey(file, names)
        values = rules.gather(file, found)
    except KeyError:  # of the reference, for dates in two orders
        return "must be a date, as others of its column are"
    except UserError as error:
        return re.sub(r" \(missing=\S+ takes it for that\)", "", str(error).split("; and ")[0])
    return found, [(each.numbers.tolist(), list(each.names)) for each in values]


def same(first, second):
    if isinstance(first, str):
        return isinstance(second, str) and second.count(first) == 1
    return (
        not isinstance(second, str)
        and first[0] == second[0]
        and all(
            a[1] == b[1] and np.array_equal(a[0], b[0], equal_nan=True)
            for a, b in zip(first[1], second[1], strict=True)
        )
    )


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@settings(max_examples=60, deadline=None)
@given(table=tables, end=st.sampled_from(["\n", "\r\n", "\n\n"]))
@example(table=[["1"] * 11 + ["1e400"], ["1,5"] * 12], end="\n")
@example(table=[["1.000"] * 12, ["1,5"] * 12], end="\n")
@example(table=[["1"] * 11 + ["a\nb"], ["x"] * 11 + ["-"]], end="\n")
def test_columns_and_refusals_are_those_of_the_rules(
    tmp_path_factory, separator, encoding, table, end
):
    path = tmp_path_factory.mktemp("t") / "a.csv"
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, lineterminator=end[:2].rstrip() or end[0])
    names = [f"c{number}" for number in range(len(table))]
    writer.writerow(names)
    writer.writerows(zip(*table, strict=True))
    path.write_bytes((text.getvalue() + "\n" * end.count("\n\n")).encode(encoding))
    assert same(outcome(reference, path, names), outcome(cells, path, names))
