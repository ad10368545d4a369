"""Parquet and feather keep their types; a table of them is what a csv of it is."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch

from everynet.data import check, kinds, load
from everynet.data.split import PARTS
from everynet.data.tables import arrow_table, columns
from everynet.data.tables.csv_table import read
from everynet.system.errors import UserError

N = 60
RANDOM = np.random.default_rng(3)
SIZES = RANDOM.normal(size=N).round(3)


def columns_of_all_types():
    return {
        "size": pa.array([None if k in (4, 40) else float(v) for k, v in enumerate(SIZES)]),
        "count": pa.array([k % 9 for k in range(N)], pa.int32()),
        "code": pa.array([str(7 + k % 3) for k in range(N)]).dictionary_encode(),
        "colour": pa.array(["red", "green", None] * (N // 3)),
        "day": pa.array(np.datetime64("2024-01-30") + np.arange(N), pa.date32()),
        "new": pa.array([k % 4 == 0 for k in range(N)]),
        "cost": pa.array([f"{k % 7}.25" for k in range(N)]).cast(pa.decimal128(9, 2)),
        "label": pa.array(["yes" if k % 2 else "no" for k in range(N)]),
    }


def write(path, table):
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=17)
    else:
        pa.feather.write_feather(table, path, chunksize=17)
    return path


@pytest.fixture(params=[".parquet", ".feather", ".arrow"])
def path(request, tmp_path):
    return write(tmp_path / f"a{request.param}", pa.table(columns_of_all_types()))


def test_types_are_kept(path, tmp_path):
    raw = read(path, "label")
    forms = {column["name"]: column["form"] for column in raw.columns}
    assert forms == {
        **dict.fromkeys(["size", "count", "new", "cost"], "number"),
        **{"code": "category", "colour": "category", "day": "date"},
    }
    table = columns_of_all_types()
    text = [",".join(table)]
    cells = [column.to_pylist() for column in table.values()]
    words = {None: "", True: "1", False: "0"}
    text += [
        ",".join(words[c] if c is None or isinstance(c, bool) else str(c) for c in row)
        for row in zip(*cells, strict=True)
    ]
    (tmp_path / "b.csv").write_text("\n".join(text).replace("code", "code", 1))
    plain = read(tmp_path / "b.csv", "label", drop=("code",))
    typed = read(path, "label", drop=("code",))
    assert plain.columns == typed.columns
    for part in PARTS:
        assert torch.equal(plain.parts[part][0], typed.parts[part][0])
        assert torch.equal(plain.parts[part][1], typed.parts[part][1])


def test_what_was_learned_is_read_from_another_format(path, tmp_path):
    data = load(path, kind="table", batch_size=4, target="label")
    (tmp_path / "b.csv").write_text(
        "size,count,code,colour,day,new,cost\n0.5,3,8,red,2024-02-01,1,2.25\n"
    )
    _, x = kinds.named("table").read([tmp_path / "b.csv"], data.spec)
    again = pa.table({
        "cost": [2.25], "size": [0.5], "count": [3], "code": [8], "colour": ["red"],
        "day": pa.array(np.array(["2024-02-01"], "M8[D]")), "new": [True],
    })  # fmt: skip
    _, same = kinds.named("table").read([write(tmp_path / "c.parquet", again)], data.spec)
    assert torch.equal(x, same)


def test_a_real_target_is_one_by_its_type(tmp_path):
    table = pa.table({"a": np.arange(40.0), "y": np.arange(40) % 2 + 0.0, "n": np.arange(40) % 2})
    path = write(tmp_path / "a.parquet", table)
    assert read(path, "y").task == "regression"
    assert read(path, "n").classes == ("0", "1")
    assert check(path, target="n").facts["written"] == "parquet with types"


def bad_files(folder):
    good = write(folder / "good.parquet", pa.table(columns_of_all_types()))
    content = good.read_bytes()
    yield folder / "cut.parquet", content[:-30], "cut.parquet is damaged or no parquet file: "
    yield folder / "half.parquet", content[:40] + content[-60:], "damaged or no parquet file: "
    yield folder / "text.parquet", b"a,y\n1,2\n" * 9, "is damaged or no parquet file: Parquet magic"
    yield folder / "empty.feather", b"", "is damaged or no feather file: "
    yield folder / "text.arrow", b"a,y\n1,2\n" * 9, "is damaged or no arrow file: "
    constant = pa.table({"a": pa.array(np.zeros(10_000_000, np.int8)), "y": np.ones(10_000_000)})
    pa.parquet.write_table(constant, folder / "bomb.parquet")
    yield folder / "bomb.parquet", None, "would unpack to 160,000,000 bytes from "
    write(folder / "nested.parquet", pa.table({"a": [[1], [2, 3]] * 9, "y": ["x", "z"] * 9}))
    yield folder / "nested.parquet", None, r"column a \(list<.*\) must hold numbers, words or dates"
    write(folder / "infinite.parquet", pa.table({"a": [1.0, np.inf] * 9, "y": ["x", "z"] * 9}))
    yield folder / "infinite.parquet", None, r"row 1, column a \(inf\) must be a finite number"
    write(
        folder / "none.parquet",
        pa.table({"a": pa.array([], pa.int8()), "y": pa.array([], pa.int8())}),
    )
    yield folder / "none.parquet", None, "must have rows below its header"


def test_bad_files_are_refused_in_one_line(tmp_path):
    for path, content, line in bad_files(tmp_path):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=line) as refused:
            read(path, "y")
        assert "\n" not in str(refused.value)


def test_every_changed_byte_of_a_parquet_file_ends_in_one_line(tmp_path):
    content = write(tmp_path / "a.parquet", pa.table({"a": [0.5, 1.5] * 9, "y": ["x", "z"] * 9}))
    content = bytearray(content.read_bytes())
    for place in RANDOM.integers(0, len(content), 150).tolist():
        changed = content.copy()
        changed[place] ^= 1 << int(RANDOM.integers(8))
        (tmp_path / "b.parquet").write_bytes(changed)
        try:
            read(tmp_path / "b.parquet", "y")
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017 -- it may also be read


def test_a_large_table_is_held_in_float32_and_standardised(path, monkeypatch):
    plain = load(path, kind="table", batch_size=4, target="label")
    monkeypatch.setattr(columns, "LARGE", 10)
    large = load(path, kind="table", batch_size=4, target="label")
    assert large.splits["test"][0].dtype == torch.float32
    assert large.spec["mean"] == pytest.approx(plain.spec["mean"])
    assert large.spec["std"] == pytest.approx(plain.spec["std"])
    for part in PARTS:
        torch.testing.assert_close(
            large.splits[part][0].double(), plain.splits[part][0], rtol=1e-6, atol=1e-6
        )
        assert torch.equal(large.splits[part][1], plain.splits[part][1])


def test_stretches_of_rows_change_no_bit(path, monkeypatch):
    for large in (columns.LARGE, 10):
        monkeypatch.setattr(columns, "LARGE", large)
        whole = read(path, "label")
        with monkeypatch.context() as patch:
            patch.setattr(columns, "_STRETCH", 7)
            patch.setattr(arrow_table, "_ROWS", 11)
            some = read(path, "label")
        assert (some.moments, some.columns, some.described) == (
            whole.moments,
            whole.columns,
            whole.described,
        )
        for part in PARTS:
            assert torch.equal(some.rows[part], whole.rows[part])
            for mine, its in zip(some.parts[part], whole.parts[part], strict=True):
                assert torch.equal(mine, its)


def test_a_column_must_have_the_rows_that_its_file_says(tmp_path):
    path = write(tmp_path / "a.parquet", pa.table({"a": np.arange(9.0), "y": ["x", "z", "x"] * 3}))
    file = arrow_table.open_columnar(path)
    for rows in (8, 10):
        with pytest.raises(UserError, match=r"a.parquet is damaged .*: a column has"):
            replace(file, rows=rows).cells(["a"])


NOTHING_BUT_TABLES = """
import sys
from everynet.data import load
load(sys.argv[2], kind="table", batch_size=4)
assert "pyarrow" not in sys.modules, "arrays"
load(sys.argv[1], kind="table", batch_size=4, target="y")
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules, "Arrow brings it, where it is installed"
"""
BUILT_IN = """
import sys
from everynet.data import load
load("wine", kind="table", batch_size=4)  # of scikit-learn, which imports pyarrow with pandas
load("digits", kind=("image", "table"), batch_size=4)
assert not {f"everynet.data.tables.{name}" for name in ("words", "arrow_table")} & {*sys.modules}
"""


def test_pyarrow_is_imported_by_tables_alone(tmp_path):
    rows = [
        f"{k},{k % 3}.5,2024-01-{1 + k % 28:02},w{k % 2},{k} %,{'ab'[k % 2]}" for k in range(60)
    ]
    (tmp_path / "a.csv").write_text("a,b,c,d,e,y\n" + "\n".join(rows))
    np.savez(
        tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.arange(40) % 2
    )
    files = [str(tmp_path / name) for name in ("a.csv", "a.npz")]
    subprocess.run([sys.executable, "-c", NOTHING_BUT_TABLES, *files], check=True)
    subprocess.run([sys.executable, "-c", BUILT_IN], check=True)
