"""Ten tables as people have them are read without a hand edit."""

import csv

import pytest

from everynet.data import check, kinds, load
from everynet.data.split import PARTS

from .faults import ABSENT, SPLITS, tables

TABLES = {table.name: table for table in tables()}


def options(table):
    given = dict(setting.split("=", 1) for setting in table.settings)
    return {"target": table.target, **given}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_is_good_and_its_other_rows_can_be_asked_about(name, tmp_path):
    table = TABLES[name]
    train, test = table.split(0)
    path = table.write(tmp_path / "train.csv", train)
    report = check(path, **options(table))
    assert report.good, str(report)
    assert report.task == table.task
    given = options(table)
    given["drop"] = tuple(filter(None, given.get("drop", "").split(",")))
    spec = load(path, kind="table", batch_size=8, **given).spec
    _, x = kinds.named("table").read([table.write(tmp_path / "test.csv", test)], spec)
    assert x.shape == (len(test), len(spec["features"]))
    assert bool(x.isfinite().all())


def test_splits_share_no_row_and_differ():
    for table in TABLES.values():
        found = [table.split(number) for number in range(SPLITS)]
        for train, test in found:
            assert sorted(train + test) == list(range(len(table.rows)))
            assert abs(len(test) - len(table.rows) / 5) < 6
        assert len({tuple(test) for _, test in found}) == SPLITS


def test_the_faults_are_there(tmp_path):
    cells = [cell for row in TABLES["patients"].rows for cell in row]
    assert {*ABSENT} <= {*cells}
    for number in range(SPLITS):
        train, test = (
            {TABLES["shops"].rows[row][0] for row in part} for part in TABLES["shops"].split(number)
        )
        assert len(test - train) > 5
    raw = TABLES["machines"].write(tmp_path / "a.csv", range(50)).read_bytes()
    assert "Länge;Breite".encode("latin-1") in raw
    rooms = TABLES["rooms"].write(tmp_path / "b.csv", range(50))
    assert rooms.read_bytes().startswith(b'\xef\xbb\xbf"area, in m2",')
    with rooms.open(encoding="utf-8-sig", newline="") as stream:
        assert next(csv.reader(stream)) == ["area, in m2", "storeys", 'heating "kind"', "rooms"]
    frauds = [row[-1] for row in TABLES["frauds"].rows]
    assert 0.03 < frauds.count("1") / len(frauds) < 0.05


def test_a_whole_number_is_learned_as_one(tmp_path):
    rooms = TABLES["rooms"]
    path = rooms.write(tmp_path / "a.csv", range(400))
    data = load(path, kind="table", batch_size=8, target="rooms", task="regression")
    assert data.spec["classes"] == []
    assert sum(data.rows(part) for part in PARTS) == 400
