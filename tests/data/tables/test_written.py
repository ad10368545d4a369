"""Tables as people write them: signs, marks for no value, sentences, rows without a target."""

import gzip
import json

import numpy as np
import pytest
import torch

from everynet.data import check, kinds, load
from everynet.data.split import PARTS
from everynet.data.tables.csv_table import read
from everynet.data.tables.sentences import BUCKETS, Bags
from everynet.system.errors import UserError

SENTENCES = [
    "the room was cold and the staff was late", "a lovely quiet room with a view",
    "breakfast was good but the coffee was cold", "we shall come back to this lovely place",
]  # fmt: skip


def table(path, cells, targets="xy", header="a;y"):
    rows = [f"{cell};{targets[k % len(targets)]}" for k, cell in enumerate(cells)]
    path.write_text(header + "\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def whole(raw):
    order = torch.cat([raw.rows[part] for part in PARTS]).argsort()
    return torch.cat([raw.parts[part][0] for part in PARTS])[order]


@pytest.mark.parametrize(
    ("cell", "sign", "decimal"),
    [
        ("{} %", "%", "."), ("{}%", "%", "."), ("${}", "$", "."), ("{} EUR", "EUR", "."),
        ("€ {}", "€", "."), ("-${}", "$", "."), ("CHF {}", "CHF", "."),
    ],
)  # fmt: skip
def test_numbers_with_a_sign(tmp_path, cell, sign, decimal):
    raw = read(table(tmp_path / "a.csv", [cell.format(f"{k}.5") for k in range(40)]), "y")
    assert raw.columns[0]["sign"] == sign
    assert raw.columns[0]["decimal"] == decimal
    values = whole(raw)[:, 0].abs().tolist()
    assert values == [k + 0.5 for k in range(40)]
    assert f"column a is of numbers with {sign}, which is left away" in raw.remarks


def test_decimal_commas_with_a_sign(tmp_path):
    raw = read(table(tmp_path / "a.csv", [f"{k},25 €" for k in range(40)]), "y")
    assert (raw.columns[0]["sign"], raw.columns[0]["decimal"]) == ("€", ",")
    assert whole(raw)[3].tolist() == [3.25]


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (["5 %"] * 30 + ["7"], r"line 32, column a \(7\) must be a number with %, as others"),
        (["$5"] * 30 + ["€7"], r"line 32, column a \(€7\) must be a number with \$, as others"),
        (["5"] * 30 + ["7 %"], r"line 32, column a \(7 %\) must be a number, as others of its"),
        (["$1,200"] * 30, r"line 2 \(\$1,200\) can be read in two ways; write \$1200 or \$1.200"),
        (["$1.5"] * 30 + ["$1,5"], r"line 32, column a \(\$1,5\) must be a number with \$ and a d"),
        (["5"] * 30 + ["-"], r"leave it empty where none is known \(missing=- takes it for that\)"),
    ],
)
def test_a_column_agrees_in_its_sign(tmp_path, cells, line):
    with pytest.raises(UserError, match=line) as refused:
        read(table(tmp_path / "a.csv", cells), "y")
    assert len(str(refused.value)) < 600


def test_marks_for_no_value_go_with_what_was_learned(tmp_path):
    cells = ["-" if k in (3, 9) else "n.a." if k == 5 else str(k * k) for k in range(60)]
    path = table(tmp_path / "a.csv", cells)
    data = load(path, kind="table", batch_size=4, target="y", missing=("-", "N.A."))
    (column,) = data.spec["columns"]
    assert column["marks"] == ["-", "N.A."]
    assert column["flag"] is True
    assert json.loads(json.dumps(data.spec)) == data.spec
    _, x = kinds.named("table").read([table(tmp_path / "b.csv", ["-", "4"])], data.spec)
    assert x[0, 1] != x[1, 1]
    plain = load(path, kind="table", batch_size=4, target="y", missing=("-", "n.a."))
    assert plain.digest != data.digest
    assert check(path, target="y", missing="-,n.a.").good


def test_rows_without_a_target_are_left_out_and_counted(tmp_path):
    targets = ["x", "y", "y", "x", "x", ""]
    path = table(tmp_path / "a.csv", [str(k * k) for k in range(60)], targets)
    raw = read(path, "y")
    assert sum(len(raw.parts[part][0]) for part in PARTS) == 50
    assert raw.remarks[-1] == "10 rows of 60 without a target are left out, the first line 7"
    for part in PARTS:
        rows, (x, y) = raw.rows[part], raw.parts[part]
        assert x[:, 0].tolist() == [row * row for row in rows.tolist()]
        assert [raw.classes[k] for k in y.tolist()] == [targets[r % 6] for r in rows.tolist()]
    spec = load(path, kind="table", batch_size=4, target="y").spec
    few = read(table(tmp_path / "b.csv", ["4", "9", "16"], ["x", "", "y"]), "y", like=spec)
    assert len(few.parts["test"][0]) == 2
    assert few.split.endswith("1 row of 3 without a target is left out, the first line 3")


def test_rows_stay_in_their_parts_when_targets_go(tmp_path):
    """A part follows from the number of a row in the file, not among those that are kept."""
    cells, targets = [str(k * k) for k in range(60)], [f"{k}.5" for k in range(60)]
    before = read(table(tmp_path / "a.csv", cells, targets), "y").rows
    targets[7] = ""
    after = read(table(tmp_path / "a.csv", cells, targets), "y").rows
    for part in PARTS:
        assert [row for row in before[part].tolist() if row != 7] == after[part].tolist()


def test_a_target_that_never_changes(tmp_path):
    path = table(tmp_path / "a.csv", [str(k) for k in range(40)], ["2.5"])
    with pytest.raises(UserError, match=r"column y is 2.5 in every row, so that nothing can be"):
        read(path, "y")


def test_all_faults_are_listed_by_check_and_counted_by_a_run(tmp_path):
    rows = [f"{k};{k}.5;2024-01-{1 + k % 28:02};{'xy'[k % 2]}" for k in range(40)]
    rows[5], rows[9] = "big;1.5;2024-01-01;x", "1;wide;soon;y"
    path = tmp_path / "a.csv"
    path.write_text("a;b;c;y\n" + "\n".join(rows))
    report = check(path, target="y")
    said = [line.split(" must")[0].split(", ")[-1] for line in [report.refused, *report.faults]]
    assert said == [
        "column a (big)", "column b (wide)", "column c (soon)",
    ]  # fmt: skip
    assert str(report).count("\nrefused    ") == 3
    with pytest.raises(
        UserError, match=r"drop=a; and 2 more: everynet data check \S+ target=\.\.\."
    ):
        read(path, "y")


def test_every_column_is_described(tmp_path):
    rows = [
        f"{k * k};{'' if k % 9 == 0 else k}.5;2024-01-{1 + k % 28:02};t{k % 12};u{k};;z;"
        f"{'xy'[k % 2]}"
        for k in range(60)
    ]
    path = tmp_path / "a.csv"
    path.write_text("id;b;when;town;user;none;gone;y\n" + "\n".join(rows))
    report = check(path, target="y", drop="gone")
    assert report.columns == [
        "id: number, 0 to 3481, 0 % missing; a number",
        "b: number, 0.5 to 59.5, 0 % missing; a number",
        "when: date, 2024-01-01 to 2024-01-28, 0 % missing; 3 numbers: year, month, weekday",
        "town: category, 12 different: t0 8.33 %, t1 8.33 %, t2 8.33 %, ...; 0 % missing; "
        f"{report.columns[3].rpartition('; ')[2]}",
        "user: category, 60 different: u0 1.67 %, u1 1.67 %, u2 1.67 %, ...; 0 % missing; "
        "left out, because it tells nothing",
        "none: empty, 100 % missing; left out, because it tells nothing",
        "gone: left out by drop=",
        "y: the target, one of 2 classes",
    ]
    wide = ";".join(f"c{k}" for k in range(90))
    path.write_text(
        f"{wide};y\n"
        + "".join(";".join([str(r * r)] * 90) + f";{'xy'[r % 2]}\n" for r in range(40))
    )
    assert "column     and 31 more" in str(check(path, target="y"))


# ------------------------------------------------------------------------------------- sentences


def test_sentences_become_weighed_counts_of_words():
    """Closed form of (1) for two cells and four rows."""
    bags = Bags(["a b b", "b c", ""], buckets=4096)
    codes = np.array([0, 1, 1, -1], np.int32)
    idf = bags.rarity(codes)
    made = np.stack(list(bags.columns(codes, idf.tolist())), 1)
    a, b, c = np.log(5 / 2), np.log(5 / 4), np.log(5 / 3)
    assert sorted(made[0][made[0] > 0]) == pytest.approx(
        sorted(np.array([a, 2 * b]) / np.hypot(a, 2 * b))
    )
    assert sorted(made[1][made[1] > 0]) == pytest.approx(sorted(np.array([b, c]) / np.hypot(b, c)))
    assert made[3].tolist() == [0.0] * 4096


def test_free_text_is_learned_as_words(tmp_path):
    cells = [f"{SENTENCES[k % 4]} {k}" for k in range(60)]
    cells[7] = ""
    path = table(tmp_path / "a.csv", cells)
    raw = read(path, "y")
    assert len(raw.features) in (BUCKETS, BUCKETS + 1)
    assert raw.features[0] == "a words 0"
    assert raw.remarks == (
        "column a is of sentences, which are learned as counts of their words; drop=a leaves it "
        "out",
    )
    assert raw.facts["columns"] == "1 texts"
    spec = load(path, kind="table", batch_size=4, target="y").spec
    asked = table(tmp_path / "b.csv", [SENTENCES[0].upper() + " !", "words that nobody saw"])
    _, x = kinds.named("table").read([asked], spec)
    assert torch.isfinite(x).all()
    (tmp_path / "c.csv").write_text("a;y\n" + SENTENCES[0] + " ;x\n")
    assert torch.equal(kinds.named("table").read([tmp_path / "c.csv"], spec)[1][0], x[0])


def test_sentences_may_be_classes(tmp_path):
    raw = read(table(tmp_path / "a.csv", [str(k * k) for k in range(80)], SENTENCES), "y")
    assert raw.classes == tuple(sorted(SENTENCES))


# ------------------------------------------------------------------------------------ other files


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv.gz", ";"), ("a.tsv", "\t"), ("a.tsv.gz", "\t")]
)
def test_packed_files_and_tabs(tmp_path, name, separator):
    path = table(tmp_path / "a.csv", [f"{k}.5" for k in range(60)])
    wanted = read(path, "y")
    text = path.read_text().replace(";", separator).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    found = load(tmp_path / name, kind="table", batch_size=4, target="y")
    assert found.rows("train") == len(wanted.parts["train"][0])
    assert torch.equal(whole(read(tmp_path / name, "y")), whole(wanted))


def test_a_long_quoted_file_names_its_lines(tmp_path, monkeypatch):
    """Cells with line ends: a row is not its line."""
    rows = [f'"two\nlines";{k};{"xy"[k % 2]}' for k in range(40)]
    rows[20] = '"two\nlines";big;x'
    path = tmp_path / "a.csv"
    path.write_text("t;a;y\n" + "\n".join(rows))
    with pytest.raises(UserError, match=r"line 43, column a \(big\) must be a number"):
        read(path, "y")


def test_numbers_that_become_words_in_a_later_block(tmp_path, monkeypatch):
    """The column is read again as words: 007 is not 7."""
    from everynet.data.tables import arrow_table

    monkeypatch.setattr(arrow_table, "_BLOCKS", (64, 2**20))
    cells = [f"{k % 3:03}" for k in range(60)] + ["x"] * 80
    raw = read(table(tmp_path / "a.csv", cells), "y")
    assert raw.columns[0]["values"] == ["000", "001", "002", "x"]
