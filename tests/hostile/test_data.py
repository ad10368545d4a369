"""Files of data that ask for far more than they are: refused before the memory is taken."""

import gzip
import re
import resource
import time
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from everynet.cli import main
from everynet.data import kinds
from everynet.data.download import package_index as index
from everynet.data.images import decoded_cache as decoded
from everynet.data.tables import arrays, csv_lines, csv_table, npz
from everynet.recipes.catalog import find
from everynet.runs.folder import explaining_misfit
from everynet.runs.job import Job
from everynet.system import cache
from everynet.system.errors import UserError
from tests.data.images.test_folder import fill

MEGABYTE = 2**20


@pytest.fixture
def peak():
    """Megabytes of Python's and numpy's memory at the most, since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] / MEGABYTE
    tracemalloc.stop()


def test_9_one_limit_for_all_arrays_of_an_npz(tmp_path, peak):
    """Each is just below what one may unpack to."""
    block = np.zeros(60 * MEGABYTE, np.uint8)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=block, y=block)
    del block
    before = peak()
    with pytest.raises(UserError, match=r"a.npz would unpack to 125,829,\d+ bytes from \d+"):
        arrays.read(path)
    assert arrays.rank(path) == 1
    assert arrays.rank(path, "z") == 0
    assert peak() - before < 5


def test_only_arrays_that_are_wanted_are_read(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(6.0).reshape(3, 2), y=np.arange(3), evil=np.zeros(9))
    read = []
    whole = npz._array
    monkeypatch.setattr(
        npz, "_array", lambda place, *rest: read.append(place) or whole(place, *rest)
    )
    with pytest.raises(UserError, match=r"holds x, y, evil, but must hold x and y, or x_train"):
        arrays.read(path)
    assert arrays.rank(path) == 2
    assert read == []
    assert arrays.first(path).shape == (3, 2)
    assert [place.rpartition(" ")[2] for place in read] == ["x"]
    np.savez(path, z=np.zeros(9))
    with pytest.raises(UserError, match="holds z, but must hold x"):
        arrays.first(path)


def wide(path, columns, rows=3):
    lines = [",".join([*(f"c{i}" for i in range(columns)), "y"])]
    lines += [",".join(["1.5"] * columns + [f"{row}.5"]) for row in range(rows)]
    path.write_text("\n".join(lines))


def test_24_the_time_of_a_csv_grows_with_its_columns_and_not_with_their_square(tmp_path):
    """Ten times the columns took a hundred times as long: 60,000 of them 32 s."""
    took = []
    for columns in (1_500, 15_000):
        wide(tmp_path / "a.csv", columns)
        begun = time.process_time()
        found = csv_table.read(tmp_path / "a.csv", "y")
        csv_table.features_like({"features": found.features}, tmp_path / "a.csv")
        took.append(time.process_time() - begun)
    assert len(found.features) == 15_000
    assert took[1] < 40 * max(took[0], 0.01)


def test_24_a_csv_is_refused_before_it_is_held(tmp_path, peak):
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no place on the disk
    with pytest.raises(UserError, match=r"line 1 holds a NUL, as a binary file does"):
        csv_table.read(path, "y")
    path.write_bytes(b"x" * (csv_lines.MOST_LINE + 1))
    with pytest.raises(UserError, match=r"line 1 must be at most 16,777,216 characters long"):
        csv_table.read(path, "y")
    assert peak() < 150


def test_a_packed_csv_that_unpacks_to_far_more_is_refused(tmp_path, peak):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"a,y\n" + b"0,0\n" * (2**24 + 2**18))
    with pytest.raises(UserError, match=r"a.csv.gz would unpack to 68,157,440 bytes or more from"):
        csv_table.read(path, "y")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"a.csv.gz would unpack|is damaged or no gzip file"):
        csv_table.read(path, "y")
    path.write_bytes(b"a,y\n1,2\n")
    with pytest.raises(UserError, match=r"a.csv.gz is damaged or no gzip file: Not a gzipped file"):
        csv_table.read(path, "y")
    assert peak() < 150


@pytest.mark.parametrize("cell", [",", '"\n",'])
def test_24_a_row_of_a_csv_has_an_end(tmp_path, peak, monkeypatch, cell):
    """Of commas, or of lines that a quotation mark holds together."""
    monkeypatch.setattr(csv_lines, "MOST_LINE", 10_000)
    path = tmp_path / "a.csv"
    path.write_text("a,y\n1,2\n" + cell * 500_000)
    with pytest.raises(UserError, match=r"line 3 must be at most 10,000 characters long"):
        csv_table.read(path, "y")
    assert peak() < 40


def test_rows_of_a_csv_are_counted_one_by_one(tmp_path, monkeypatch):
    """The limit is of a row, not of the file."""
    monkeypatch.setattr(csv_lines, "MOST_LINE", 10)
    path = tmp_path / "a.csv"
    path.write_text("a,y\n" + "1,2\n3,4\n" * 50)
    assert csv_table.features_like({"features": ["a"]}, path).shape == (100, 1)


def test_a_page_of_an_index_that_is_nested_without_end_cannot_be_read():
    with pytest.raises(OSError, match="the page of the index cannot be read: RecursionError"):
        list(index._json_links(b"[" * 200_000))


def test_19_more_pixels_than_there_is_room_for(tmp_path, monkeypatch, capsys):
    """They once were put into TMPDIR unseen, and a full one ended in SIGBUS.

    Now they are in the cache, whose room is taken before a byte is written: none is one line.
    """
    fill(tmp_path / "photos", count=40, shape=(64, 64, 3))
    monkeypatch.setattr(decoded, "LARGE", 100)
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(small))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Job, "draw", lambda *_: ())
    words = [
        "run",
        "cnn-mnist",
        f"data={tmp_path / 'photos'}",
        "size=64",
        "steps=1",
        "batch_size=4",
    ]
    words += ["--quiet", "--device", "cpu", "--out", str(tmp_path / "out")]
    with smallest_files(1 << 18):
        assert main(words) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"cannot write [\d,]+ bytes to .*cache.*: File too large; ", line)
    assert [*cache.pixels().iterdir()] == []
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    assert max(path.stat().st_size for path in cache.pixels().iterdir()) > 1 << 18
    assert not [path for path in small.rglob("*") if path.is_file() and path.stat().st_size]


@contextmanager
def smallest_files(most):
    """No file may become larger: a disk that is as full for our process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "changed",
    [
        {"form": "text", "idf": "abc", "missing": False},
        {"form": "text", "idf": [], "missing": True},
        {"form": "text", "idf": [1.0, "x"], "missing": False},
        {"form": "text", "idf": [[1.0]], "missing": False},
        {"form": "number", "decimal": ".", "sign": "%", "median": "x", "flag": True},
        {"form": "number", "decimal": ".", "median": 0.0, "flag": False, "marks": 5},
        {"form": "date", "order": "xyz", "median": 0.0, "flag": False, "time": True},
        {"form": "category", "values": 7, "other": False, "missing": False},
        {"form": "soup"},
    ],
)
def test_columns_of_a_received_run_are_refused_in_one_line(tmp_path, changed):
    (tmp_path / "a.csv").write_text('a\n1 %\n"the old man and the sea"\n')
    spec = {
        "columns": [{"name": "a", **changed}], "features": ["a", "b"], "shape": [2],
        "mean": [0.0, 0.0], "std": [1.0, 1.0],
    }  # fmt: skip
    with pytest.raises(UserError) as refused, explaining_misfit(find("mlp"), tmp_path):
        kinds.named("table").read([tmp_path / "a.csv"], spec)
    assert "\n" not in str(refused.value)
