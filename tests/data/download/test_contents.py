import contextlib
import gzip
import io
import os
import tarfile
import tracemalloc

import pytest

from everynet.data.download import contents
from everynet.data.download.contents import DamagedFile, take
from tests.data.conftest import content, zipped

DATA = {"a.bin": os.urandom(3000), "b.bin": bytes(1000)}
WANTED = [content(name, data) for name, data in DATA.items()]


def tarred(members, kinds=None):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if kinds and name in kinds:
                info.type, info.linkname, info.size = kinds[name], "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def taken(path, wanted=WANTED):
    return {found.name: held for found, held in take(path, wanted)}


def put(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("where", ["", "some/folder/"])
def test_members_are_found_by_their_last_name(tmp_path, where):
    members = {where + name: data for name, data in DATA.items()} | {"other": b"1", "._a.bin": b"2"}
    for name in ("x.zip", "x.whl", "x.npz"):
        assert taken(put(tmp_path, name, zipped(members))) == DATA
    for name in ("x.tar.gz", ".a.part.tar.gz", "x.tgz"):
        assert taken(put(tmp_path, name, tarred(members))) == DATA


def test_one_file_plain_or_packed(tmp_path):
    assert taken(put(tmp_path, "a.bin", DATA["a.bin"]), WANTED[:1]) == {"a.bin": DATA["a.bin"]}
    packed = put(tmp_path, "a.bin.gz", gzip.compress(DATA["a.bin"]))
    assert taken(packed, WANTED[:1]) == {"a.bin": DATA["a.bin"]}


def test_a_second_name_is_as_good(tmp_path):
    wanted = [content("a-idx", b"123", also="a.idx")]
    path = put(tmp_path, "x.zip", zipped({"p/a.idx": b"123", "p/a-idx": b"other"}))
    assert taken(path, wanted) == {"a-idx": b"123"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", r"is cut short: 0 of the 3,000 bytes"),
        (DATA["a.bin"][:-1], "is cut short: 2,999 of"),
        (DATA["a.bin"] + b"\0", "holds more than the 3,000 bytes of a.bin"),
        (bytes(3000), "holds other bytes: their SHA-256 is [0-9a-f]{64}, not"),
    ],
)
def test_wrong_bytes(tmp_path, data, words):
    other = DATA["b.bin"]
    for path in (
        put(tmp_path, "a.bin", data),
        put(tmp_path, "a.bin.gz", gzip.compress(data)),
        put(tmp_path, "x.zip", zipped({"a.bin": data, "b.bin": other})),
        put(tmp_path, "x.tar.gz", tarred({"a.bin": data, "b.bin": other})),
    ):
        with pytest.raises(DamagedFile, match=words):
            taken(path, WANTED if path.stem.startswith("x") else WANTED[:1])


def test_an_archive_must_hold_everything(tmp_path):
    for path in (
        put(tmp_path, "x.zip", zipped({"a.bin": DATA["a.bin"]})),
        put(tmp_path, "x.tar.gz", tarred({"a.bin": DATA["a.bin"]})),
    ):
        with pytest.raises(DamagedFile, match=r"lacks b\.bin"):
            taken(path)


@pytest.mark.parametrize("evil", ["../../a.bin", "/tmp/a.bin", "x/../../a.bin", "..\\..\\a.bin"])
def test_a_member_whose_path_leads_outside_is_not_taken(tmp_path, evil):
    members = {evil: DATA["a.bin"], "b.bin": DATA["b.bin"]}
    for path in (
        put(tmp_path, "x.zip", zipped(members)),
        put(tmp_path, "x.tar.gz", tarred(members)),
    ):
        with pytest.raises(DamagedFile, match=r"lacks a\.bin"):
            taken(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_in_a_tar_are_not_followed(tmp_path, kind):
    path = put(tmp_path, "x.tar.gz", tarred(DATA, {"a.bin": kind}))
    with pytest.raises(DamagedFile, match=r"lacks a\.bin"):
        taken(path)


def test_bombs_do_not_go_off(tmp_path):
    """Half a gigabyte of zeros in half a megabyte: refused having unpacked a little of it."""
    zeros = bytes(1 << 20)
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        for _ in range(200):
            packed.write(zeros)
    bomb = put(tmp_path, "a.bin.gz", stream.getvalue())
    inside = put(tmp_path, "x.zip", zipped({"a.bin": bytes(100 << 20), "b.bin": b""}))
    tar = put(tmp_path, "x.tar.gz", tarred({"big": bytes(100 << 20)} | DATA))
    tracemalloc.start()
    for path in (bomb, inside):
        with pytest.raises(DamagedFile, match=r"more than the 3,000 bytes of a\.bin"):
            taken(path, WANTED[:1])
    with pytest.raises(DamagedFile, match="unpacks to far more than it should hold"):
        taken(tar)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_tar_of_very_many_members_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "MEMBERS", 5)
    path = put(tmp_path, "x.tar.gz", tarred({f"{n}": b"" for n in range(6)} | DATA))
    with pytest.raises(DamagedFile, match="holds more than 5 members"):
        taken(path)


@pytest.mark.parametrize("name", ["a.bin.gz", "x.zip", "x.tar.gz"])
def test_what_cannot_be_unpacked_is_said_in_one_line(tmp_path, name):
    for data in (b"", b"<html>\nnot found\n</html>", gzip.compress(DATA["a.bin"])[:-20]):
        with pytest.raises(DamagedFile) as caught:
            taken(put(tmp_path, name, data), WANTED[:1])
        assert "\n" not in str(caught.value)


def test_every_cut_and_many_flips_of_an_archive_are_noticed(tmp_path):
    for name, whole in (("x.zip", zipped(DATA)), ("x.tar.gz", tarred(DATA))):
        for place in range(0, len(whole) - 1, 97):
            with pytest.raises(DamagedFile):
                taken(put(tmp_path, name, whole[:place]))
            flipped = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
            with contextlib.suppress(DamagedFile):
                assert taken(put(tmp_path, name, flipped)) == DATA  # a date, say, is no matter


def test_only_ordinary_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "a.bin")
    (tmp_path / "x.zip").mkdir()
    for path in (tmp_path / "a.bin", tmp_path / "x.zip"):
        with pytest.raises(DamagedFile, match="is not an ordinary file"):
            taken(path, WANTED[:1])
    with pytest.raises(FileNotFoundError):
        taken(tmp_path / "none.bin", WANTED[:1])
